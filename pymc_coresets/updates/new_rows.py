"""A coreset of the rows of another one, and of new rows; and the errors of such steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pymc as pm

from pymc_coresets.advice import decided_by
from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.display.report import as_text
from pymc_coresets.exceptions import InvalidDataError, warn_user
from pymc_coresets.glm.control_variates.interfaces import carried_over
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.options import flag, generator, whole_number
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import columns_of_dataset, kept_dataset, rows_of_dataset
from pymc_coresets.potentials.of_model import (
    RowsToRead,
    full_model,
    likelihood_of_rows,
    template_of_rows,
)
from pymc_coresets.potentials.sameness import differing_row, points_of, same_priors
from pymc_coresets.potentials.verification import verify
from pymc_coresets.progress.reporter import Reporter
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.extended import ExtendedRows
from pymc_coresets.rows.sources.opening import open_rows
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.sampling.density import WeightedPosterior
from pymc_coresets.solving.solution import Solution
from pymc_coresets.storage import history_dataset
from pymc_coresets.updates.coreset_parts import (
    KNOWN,
    CoresetPart,
    KnownRows,
    known_before,
    noted,
    warn_of_known_rows,
)
from pymc_coresets.updates.reductions import all_of, asked_reduction, reduced
from pymc_coresets.updates.regions import Distance, farthest_of
from pymc_coresets.weighted_rows import WeightedRows, required_likelihood

_OBJECTIVES, _ROWS = "objectives_of_updates", "rows_of_updates"
_METHODS = (RiemannianPursuit, ControlVariates)
_WITHIN = 2 * TOLERANCE  # symmetrised
#: Attribute of a history: what the coresets that went into this one lacked, in nats.
OBJECTIVE_OF_PARTS = "objective_of_parts"


def extend[C: WeightedRows](
    coreset: C,
    model: pm.Model,
    *,
    rows: RowSource | None = None,
    executor: Any = None,  # noqa: ANN401 - of several libraries
    size: int | None = None,
    method: str | RiemannianPursuit | ControlVariates = "auto",
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool | None = None,
) -> C:
    """Return a coreset of all rows so far and of new ones; the old data are not needed.

    The weighted rows of this coreset, in place of the data that they stand for, and all new
    rows are what the construction sees.  It costs that of a coreset of the new rows.  Where
    rows come in many small chunks use `CoresetStream`.

    Parameters
    ----------
    model : pm.Model
        The model of this coreset with the new rows in its `pymc.Data` containers, and none of
        the old ones; with `rows`, a template of them.
    rows : RowSource, optional
        From `open_rows`: all new rows, where the model holds a few of them only.  Control
        variates read all of them into memory.
    executor : Executor or Client, optional
        Who reads and evaluates `rows`, see `build_coreset`.
    size : int, optional
        Largest number of weighted rows; by default that of `build_coreset`.
    method : {"auto", "control_variates"} or RiemannianPursuit or ControlVariates
        How rows are chosen.  "auto" is pursuit; for a coreset with a quadratic it is control
        variates: its quadratic is kept as it is, and one of the new rows is added.
    random_seed : int or Generator, optional
        The result is reproducible from it.
    progressbar : bool, optional
        By default as in the build.

    Returns
    -------
    Coreset
        Its rows are numbered as if the new ones came after the old ones.  `objective`,
        `certificate` and `check` are exact for the new rows; for the others they are relative
        to this coreset.  `ancestry` has the divergence of each step, and all combined.

    Raises
    ------
    InvalidDataError
        If the model has other free variables, priors, containers or another likelihood, or
        its linear predictor is written in other coefficients than the quadratic.
    InvalidOptionError
        If an option is out of range, or the method does not go with a quadratic.
    UnsupportedModelError
        If the rows are no data containers of the model, or cells of several dims.
    CoresetError
        If the coreset was read without its model.

    Warns
    -----
    CoresetWarning
        If something limits the coreset, as `build_coreset` does, the new rows begin with some that
        it stands for already, or they move the posterior to where its error is not known.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> def normal(rows):
    ...     with pm.Model() as model:
    ...         y = pm.Data("y", rows)
    ...         likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    ...     return model
    >>> months = np.random.default_rng(1).normal(size=(2, 3_000))
    >>> coreset = build_coreset(normal(months[0]), random_seed=1, progressbar=False)
    >>> longer = coreset.extend(normal(months[1]), random_seed=1)
    >>> longer.n_observations, longer.ancestry.rows, longer.ancestry.combined < 0.01
    (6000, (3000, 3000), True)
    """
    chosen = asked_reduction(method, _METHODS, with_quadratic=coreset.quadratic is not None)
    rng = generator(random_seed)
    show = coreset.progressbar if progressbar is None else flag("progressbar", progressbar)
    size = None if size is None else whole_number("size", size, least=1)
    part = CoresetPart.of(coreset)
    wanted = replace(part.wanted, rows=rows, executor=executor)
    new = _new_rows(full_model(model), part, wanted, rng.spawn(1)[0])
    _require_same_model(part, new, rng.spawn(1)[0])
    known = known_before(part, coreset.history.attrs)
    warn_of_known_rows(known, new)
    source, earlier = _extended(part, new), part.quadratic
    if earlier is not None:
        earlier = carried_over(earlier, part.template.observations, new.observations)
    limit = chosen.default_size(new.n_dims, source.n_rows) if size is None else size
    counts: dict[str, Any] = {}
    if source.n_rows <= limit:
        solution = all_of(source.in_memory, earlier)
    else:
        with Reporter(show=show) as report:
            solution, counts = reduced(
                new, source, limit, chosen, rng, quadratic=earlier, report=report
            )
    loglik, n_new = new.reading(source), round(new.total_weight)
    added = KnownRows.spread(new, part.n_rows)
    before = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    if math.isfinite(coreset.objective):
        old = WeightedPosterior(new, source.old, source.old.base_weights, earlier)
        before = before.moved_by(_distance(old, coreset.proposal, solution, rng))
    ancestry = before.extended(n_new, solution.objective)
    longer = replace(
        coreset,
        **decided_by(solution),
        n_observations=coreset.n_observations + n_new,
        n_distinct=part.n_rows + new.n_rows,
        method="extend",
        weighting=chosen.draws_from,
        random_seed=int(random_seed) if isinstance(random_seed, int | np.integer) else None,
        history=history_dataset(
            solution.history, ancestry.attrs | {KNOWN: noted([*known, added])} | counts
        ),
        loglikelihood=loglik,
        data=kept_dataset(loglik, solution.rows, solution.weights),
        built_from=None,
        earlier=earlier,
        progressbar=show,
    )
    if longer.certificate is None:
        return longer
    return replace(longer, certificate=replace(longer.certificate, caveat=caveat_of(longer)))


def _distance(
    old: WeightedPosterior,
    known: Proposal[Draws] | None,
    new: Solution,
    rng: np.random.Generator,
) -> Distance:
    """Return how far new rows move the posterior of a coreset, and warn where that is far."""
    posterior = replace(old, rows=new.rows, weights=new.weights, quadratic=new.quadratic)
    found = farthest_of([(old, known)], posterior, new.proposal, rng=rng)
    if found.is_far:
        warn_user(
            f"The new rows move the posterior by {found.words}. The coreset stands for the old "
            "rows near where it was made: how far it is off is not known, and check() cannot tell. "
            "Build a coreset of all rows."
        )
    return found


def _new_rows(
    model: pm.Model, part: CoresetPart, wanted: RowsToRead, rng: np.random.Generator
) -> LogLikelihood:
    if wanted.rows is not None:
        return likelihood_of_rows(model, wanted, rng=rng)
    new = template_of_rows(model, columns_of_dataset(part.kept), wanted)
    verify(new, rng=rng)
    return new


def _require_same_model(part: CoresetPart, new: LogLikelihood, rng: np.random.Generator) -> None:
    old = part.template
    first = rows_of_dataset(old.observations, part.kept)
    second = rows_of_dataset(new.observations, part.kept)  # which refuses other columns
    if not same_priors(old, new, rng):
        raise InvalidDataError(
            "The model of the new rows has other priors than that of the coreset: give it the same "
            "ones. with_model() changes the priors of a coreset."
        )
    if differing_row(old, new, points_of(old, rng), first, second) is not None:
        raise InvalidDataError(
            "The model of the new rows has another likelihood than that of the coreset: the rows "
            "of the coreset have other log-likelihoods there."
        )


def _extended(part: CoresetPart, new: LogLikelihood) -> ExtendedRows:
    """Put the coreset's rows, with its weights, before all new ones."""
    kept, source = part.kept, new.source
    old = replace(rows_of_dataset(new.observations, kept), base_weights=kept["weight"].to_numpy())
    where = map(str, kept["where"].to_numpy())
    if not isinstance(source, StreamedRows):  # the model holds them
        arrays = new.observations.by_name(new.in_memory.all)
        source = StreamedRows(open_rows(arrays), {n: a.dtype for n, a in arrays.items()})
    moved = replace(source, start=part.n_rows, initial_sample=None)
    return ExtendedRows(old, moved, dict(zip(old.positions.tolist(), where, strict=True)))


@dataclass(frozen=True)
class Ancestry:
    """How a coreset came about: rows that each construction added, and how far it was off.

    Parameters
    ----------
    rows : tuple of int
        Rows that the first construction, and each `Coreset.extend` after it, read.
    objectives : tuple of float
        What each estimated of its own divergence, in nats; larger by now where later rows have
        moved the posterior, see Notes, and NaN where it is not known.

    Notes
    -----
    An objective is the squared length ``|L - L(w)|^2`` of the error that one construction added, at
    the posterior that it was made for.  Lengths obey the triangle inequality: measured at one
    posterior, all errors together have at most the length of their sum.  What is left of a
    log-likelihood that is matched up to the second order is cubic: draws whose root mean square
    distance is r, in standard deviations of the posterior before, see r^6 times its variance.  By
    this, older errors are taken to be larger after an update, if r exceeds 1.  Beyond 1.5, or 2.5
    where there is a single parameter, nothing that is left of the old rows can tell.

    Examples
    --------
    >>> found = Ancestry((1_000, 50), (0.01, 0.0025))
    >>> round(found.combined, 4)
    0.0225
    """

    rows: tuple[int, ...]
    objectives: tuple[float, ...]

    @classmethod
    def of(cls, attrs: Mapping[str, Any], n_observations: int, objective: float) -> Self:
        """Read it from the attributes of a history, and from what else a coreset says of itself."""
        if _ROWS in attrs:
            rows, objectives = (np.atleast_1d(attrs[name]) for name in (_ROWS, _OBJECTIVES))
            return cls(tuple(map(int, rows)), tuple(map(float, objectives)))
        parts = float(attrs.get(OBJECTIVE_OF_PARTS, 0.0))
        return cls((n_observations,), (_together([parts, objective]),))

    def extended(self, n_rows: int, objective: float) -> "Ancestry":
        """Add a construction."""
        return Ancestry((*self.rows, n_rows), (*self.objectives, float(objective)))

    def moved_by(self, distance: Distance) -> "Ancestry":
        """The same where new rows have moved the posterior: errors grow, or are not known there."""
        if distance.is_far:
            return self.unmeasured
        return Ancestry(self.rows, tuple(distance.growth * each for each in self.objectives))

    @property
    def unmeasured(self) -> "Ancestry":
        """The same for another posterior, at which no error was measured."""
        return Ancestry(self.rows, (math.nan,) * len(self.rows))

    @property
    def earlier(self) -> float:
        """What `combined` is of all constructions but the last, which has seen its own rows."""
        return _together(self.objectives[:-1])

    @property
    def combined(self) -> float:
        """Square of the sum of all errors' lengths, in nats: a bound where the posterior stays."""
        return _together(self.objectives)

    @property
    def attrs(self) -> dict[str, Any]:
        """As attributes of a history."""
        return {
            _ROWS: np.array(self.rows),
            _OBJECTIVES: np.array(self.objectives),
            OBJECTIVE_OF_PARTS: self.earlier,
        }

    def __repr__(self) -> str:
        steps = zip(self.rows, self.objectives, strict=True)
        facts = {
            f"{'update' if i else 'first'} {i or ''}".strip(): f"{rows:,} rows, {_nats(objective)}"
            for i, (rows, objective) in enumerate(steps)
        }
        facts["together"] = f"at most {_nats(self.combined)}, if the posterior hardly moves"
        return as_text("Ancestry of a coreset", facts, self._words())

    def _words(self) -> str:
        if len(self.rows) == 1:
            return "It was built once, from all its rows."
        return (
            "check() compares it with the rows of the last update, exactly, and with the coreset "
            "before it in place of all others: what that one lacked is not in it, but here."
        )


def caveat_of(coreset: WeightedRows) -> str:
    """Say what a comparison with the rows that are left cannot see; nothing where it sees enough.

    Parameters
    ----------
    coreset : WeightedRows
        With its model.
    """
    if not isinstance(required_likelihood(coreset).source, ExtendedRows):
        return ""
    found = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    if found.earlier <= _WITHIN:
        return ""
    unseen = "an unknown divergence" if math.isnan(found.earlier) else f"{_nats(found.earlier)}"
    return (
        f"the old rows are gone, and the coreset that stands for them may be off by {unseen} "
        "here, which these numbers do not contain. Build a coreset of all rows; or read this one "
        "with Coreset.from_netcdf(path, model, rows=...), and check it against all of them."
    )


def _together(objectives: Sequence[float]) -> float:
    return float(np.sqrt(np.asarray(objectives, dtype=float)).sum() ** 2)


def _nats(objective: float) -> str:
    return "a divergence that is not known" if math.isnan(objective) else f"{objective:.2g} nats"
