"""A coreset extended by new rows, and two coresets merged."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.advice import decided_by
from pymc_coresets.ancestry import OBJECTIVE_OF_PARTS, Ancestry, caveat_of
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, warn_user
from pymc_coresets.glm.concavity import is_concave
from pymc_coresets.glm.control_variates.expansion import written_in
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.growth.coverage import moved_from
from pymc_coresets.growth.new_units import UnitPart, UnitsTogether
from pymc_coresets.growth.reductions import CoresetPart, asked_reduction, reduced
from pymc_coresets.methods.job import Method, rows_of_a_quadratic
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.options import flag_or, generator, if_given, whole_number
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.kept_rows import columns_of_dataset, kept_dataset, rows_of_dataset
from pymc_coresets.rowlogp.known_rows import KnownRows, recurring
from pymc_coresets.rowlogp.of_model import (
    RowsToRead,
    full_model,
    likelihood_of_prototypes,
    likelihood_of_rows,
)
from pymc_coresets.rowlogp.verification import points_near, verify_rows
from pymc_coresets.rows.executors import HasSubmit
from pymc_coresets.rows.keyed import FirstRows
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import AbsentRows
from pymc_coresets.rows.sources.opening import open_rows
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.streamed import ExtendedRows, StreamedRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import Surrogate
from pymc_coresets.solving.solution import Solution
from pymc_coresets.storage import history_dataset
from pymc_coresets.weighted_rows import Fields, WeightedRows, holds_rows, required_likelihood

_KNOWN = "rows_read"  # a sample of the rows of each construction


def extend[C: WeightedRows](
    coreset: C,
    model: pm.Model,
    *,
    rows: RowSource | None = None,
    executor: HasSubmit | None = None,
    size: int | None = None,
    method: Literal["auto", "control_variates"] | RiemannianPursuit | ControlVariates = "auto",
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool | None = None,
) -> C:
    """Return a coreset of all old rows and new ones, see `Coreset.extend`."""
    chosen = asked_reduction(
        method, ("auto", "control_variates"), with_quadratic=coreset.quadratic is not None
    )
    rng = generator(random_seed)
    show = flag_or("progressbar", progressbar, coreset.progressbar)
    size = if_given(whole_number, "size", size, least=1)
    wanted = RowsToRead(**coreset.settings, rows=rows, executor=executor)
    with Reporter(show=show) as report:
        grow = _with_units if _of_units([coreset]) else _with_rows
        grown = grow(coreset, full_model(model), wanted, rng.spawn(1)[0])
        loglik, [old], [earlier] = grown.loglik, grown.rows, grown.quadratics
        limit = chosen.default_size(loglik.n_dims, loglik.n_rows) if size is None else size
        solution, counts = reduced(loglik, limit, chosen, rng, quadratic=earlier, report=report)
    represented = Surrogate(loglik, old, old.case_weights, earlier)
    before = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    before = before.moved_by(moved_from([(coreset, represented)], solution, rng=rng))
    told = {**before.extended(grown.n_new, solution.objective).attrs, **grown.attrs}
    longer = replace(
        coreset,
        **_decided(solution, chosen, random_seed) | grown.finished(solution),
        n_observations=coreset.n_observations + grown.n_new,
        method="extend",
        history=history_dataset(solution.history, {**told, **counts}),
        earlier=earlier,
        progressbar=show,
    )
    if longer.certificate is None:
        return longer
    found = replace(longer.certificate, caveat=caveat_of(longer), node_error=loglik.node_error)
    return replace(longer, certificate=found)


class _Together(NamedTuple):
    """The weighted rows, or units, of coresets in one model, and perhaps new ones."""

    loglik: LogLikelihood
    rows: Sequence[Rows]  # of each coreset
    quadratics: Sequence[Quadratic | None]
    finished: Callable[[Solution], Fields]  # of a coreset of all
    n_new: int = 0
    attrs: Mapping[str, str] = MappingProxyType({})  # of the history


def _with_rows(
    coreset: WeightedRows, model: pm.Model, wanted: RowsToRead, rng: np.random.Generator
) -> _Together:
    part = CoresetPart.of(coreset)
    new = _new_rows(model, part, wanted, rng)
    part.require_same_model(
        new, "Pass the new rows in the same model; with_model() changes the priors of a coreset."
    )
    source, known = _extended(part, new), _known_rows(coreset, part)
    _warn_of_known_rows(known, new)
    loglik, known = new.reading(source), [*known, KnownRows.among(new, part.n_rows)]

    def finished(found: Solution) -> Fields:
        return {
            "n_distinct": part.n_rows + new.n_rows,
            "loglikelihood": loglik,
            "data": kept_dataset(loglik, found.rows, found.weights),
        }

    return _Together(
        loglik,
        [source.old],
        [part.quadratic_in(new)],
        finished,
        n_new=round(new.total_weight),
        attrs={_KNOWN: json.dumps(known)},
    )


def _with_units(
    coreset: WeightedRows, model: pm.Model, wanted: RowsToRead, rng: np.random.Generator
) -> _Together:
    own = UnitPart.of(coreset)
    parts = [own, UnitPart.of_rows(model, wanted, own.dim)]
    found = UnitsTogether.of(model, parts, tolerance=coreset.tolerance, rng=rng)
    n_old, n_new = (part.kept.sizes["unit"] for part in parts)

    def finished(chosen: Solution) -> Fields:
        return {
            "n_distinct": coreset.n_distinct + n_new,
            "settings": found.settings,
            "loglikelihood": found.loglik,
            "data": found.kept(chosen.rows.positions, chosen.weights),
        }

    return _Together(
        found.loglik,
        [found.loglik.in_memory.take(slice(0, n_old))],
        [found.carried_over(coreset)],
        finished,
        n_new=n_new,
    )


def _of_units(coresets: Sequence[WeightedRows]) -> bool:
    """Whether coresets are made of units.

    Raises
    ------
    InvalidDataError
        If some are, and others are not.
    """
    names = [required_likelihood(each).observations.integrated for each in coresets]
    if any(names) and not all(names):
        raise InvalidDataError(
            f"{list(max(names))!r} were integrated out of one of the coresets only: build both "
            "with the same `integrate`."
        )
    return bool(names[0])


def _decided(
    solution: Solution, chosen: Method, random_seed: int | np.random.Generator | None
) -> Fields:
    """Return the fields of a coreset that depend on its rows and weights."""
    seed = int(random_seed) if isinstance(random_seed, int | np.integer) else None
    found = {"weighting": chosen.draws_from, "random_seed": seed, "built_from": None}
    return decided_by(solution) | found


def merge[C: WeightedRows](
    first: C,
    second: C,
    *,
    size: int | None = None,
    method: Literal["auto", "sensitivity", "control_variates"] | Method = "auto",
    random_seed: int | np.random.Generator | None = None,
) -> C:
    """Merge the coresets of two data sets into one of both, and reduce it to fewer rows.

    Use it for shards that were summarised separately and are no longer available, and for trees of
    coresets. The union is as accurate as the two coresets, and their quadratics add up. Each
    reduction adds an error, and a tree with B leaves has log2(B) levels of reductions. If all rows
    can be compared at the same draws, `CoresetStream` avoids these errors at a lower cost.

    Coresets of units are merged by their levels, which need labels and must be different ones. The
    result draws variables of the levels that it keeps, whose rows it has.

    Parameters
    ----------
    first, second : Coreset
        Of the same model: with ``rows=...``, from a `CoresetStream`, from `merge`, or of models
        that hold all their rows in `pm.Data` containers.
    size : int, optional
        Largest number of weighted rows; by default that of the larger of the two, or the number
        that a quadratic log-posterior requires, if that is larger. If either has a quadratic, the
        default keeps the whole union.
    method : {"auto", "sensitivity", "control_variates"} or option object
        How the union is reduced: by `RiemannianPursuit` to the posterior of the union; for logistic
        regression by `Sensitivity`, at random with its guarantee; or by `ControlVariates`, the
        default if either has a quadratic.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    Coreset
        Rows of the second data set are numbered after those of the first. `objective` is the
        divergence from the posterior of the *union*, without the errors of the two coresets: the
        attribute ``objective_of_parts`` of `history` holds the sum of theirs. It is NaN if the
        coresets disagree. ``merged_coresets`` counts the coresets that went into it, and
        ``merge_levels`` the reductions in a row.

    Raises
    ------
    InvalidDataError
        If the coresets are of different models, their quadratics in different coefficients, or
        levels are in both.
    InvalidOptionError
        If an argument is not a coreset, an option is out of range, or the method cannot use a
        quadratic.
    CoresetError
        If a coreset was read without its model, its rows are not data of the model, they are
        cells of several dims, or levels have no labels.

    Warns
    -----
    CoresetWarning
        If something limits the coreset, as in `build_coreset`; or if the posterior of both is so
        far from that of either that the coresets' errors there are unknown.

    Notes
    -----
    If the log-likelihoods L1, L2 of two data sets are approximated with relative errors of at most
    epsilon, so is L1 + L2 by the sum of the approximations, since both have the same sign. A
    reduction with relative error delta leaves ``(1 + epsilon)(1 + delta) - 1`` (Huggins et al.,
    Section 3.4).

    The sum of two quadratics of the same coefficients is a quadratic, exactly. If both are convex
    in some direction, the prior may outweigh each but not their sum: then the union is reduced by
    control variates, whatever its size.

    References
    ----------
    Huggins, Campbell and Broderick (2016), Coresets for Scalable Bayesian Logistic Regression.
    https://doi.org/10.48550/arXiv.1605.06423

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset, merge, open_rows
    >>> halves = [{"y": np.random.default_rng(i).normal(size=2_500)} for i in (1, 2)]
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", halves[0]["y"][:100])
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    ...     parts = [
    ...         build_coreset(rows=open_rows(half), size=20, random_seed=1, progressbar=False)
    ...         for half in halves
    ...     ]
    >>> both = merge(*parts, random_seed=1)
    >>> both.n_observations, both.size <= 20
    (5000, True)
    """
    rng, coresets = generator(random_seed), (first, second)
    for name, part in {"first": first, "second": second}.items():
        if not isinstance(part, WeightedRows):
            raise InvalidOptionError(f"{name} is a {type(part).__name__}, but must be a Coreset.")
    size = if_given(whole_number, "size", size, least=1)
    beside = any(part.quadratic is not None for part in coresets)
    chosen = asked_reduction(
        method, ("auto", "control_variates", "sensitivity"), with_quadratic=beside
    )
    both = (_both_units if _of_units(coresets) else _both_rows)(coresets, rng.spawn(1)[0])
    loglik = both.loglik
    quadratic, all_serve = _sum_of(both.quadratics, loglikelihood=loglik, rng=rng.spawn(1)[0])
    if size is None:
        enough = max(*map(len, both.rows), rows_of_a_quadratic(loglik.n_dims))
        size = loglik.n_rows if beside else enough
    solution, figures = reduced(
        loglik,
        size,
        chosen,
        rng,
        report=Reporter(show=False),
        quadratic=quadratic,
        all_serve=all_serve,
    )
    measured = [
        (coreset, Surrogate(loglik, own, own.case_weights, each))
        for coreset, own, each in zip(coresets, both.rows, both.quadratics, strict=True)
    ]
    decided = _decided(solution, chosen, random_seed)
    if moved_from(measured, solution, rng=rng).is_far:
        apart = "The coresets disagree: their errors at the posterior of both are unknown."
        decided |= {"status": apart, "objective": math.nan}
    # The measured objective is relative to the union.
    decided |= dict.fromkeys(("proposal", "certificate", "modes", "earlier"))
    return replace(
        first,
        **decided | both.finished(solution),
        n_observations=first.n_observations + second.n_observations,
        method="merge",
        history=history_dataset(solution.history, _merged(coresets) | figures),
        progressbar=first.progressbar and second.progressbar,
    )


def _both_rows(coresets: Sequence[WeightedRows], _: np.random.Generator) -> _Together:
    one, other = (CoresetPart.of(each) for each in coresets)
    loglikelihood, n_rows = one.loglikelihood, one.n_rows + other.n_rows
    if other.loglikelihood.observations.model is not loglikelihood.observations.model:
        other.require_same_model(loglikelihood, "Merge coresets of one model.")
    parts = one, other.after(one.n_rows)
    together = xr.concat([p.kept for p in parts], dim="row", combine_attrs="drop_conflicts")
    rows = [part.rows_in(loglikelihood) for part in parts]
    union = Rows.joined(rows)
    gone = AbsentRows(
        n_rows,
        float(sum(each.n_observations for each in coresets)),
        "This coreset was merged from others, without the rows that they stand for: it can be "
        "sampled, but this needs all of them. Store it, and read it with "
        "Coreset.from_netcdf(path, model, rows=...), where rows has those of the first coreset "
        "and, after them, those of the second.",
    )

    def finished(found: Solution) -> Fields:
        kept = together.isel(row=union.where(found.rows.positions))
        return {
            "n_distinct": n_rows,
            "loglikelihood": loglikelihood.reading(gone),
            "data": kept.assign(weight=("row", found.weights)),
        }

    return _Together(
        loglikelihood.reading(InMemoryRows.of(union)),
        rows,
        [part.quadratic_in(loglikelihood) for part in parts],
        finished,
    )


def _both_units(coresets: Sequence[WeightedRows], rng: np.random.Generator) -> _Together:
    first, second = coresets
    parts = [UnitPart.of(first), UnitPart.of(second)]
    found = UnitsTogether.of(
        parts[0].model, parts, tolerance=min(each.tolerance for each in coresets), rng=rng
    )
    border, every = parts[0].kept.sizes["unit"], found.loglik.in_memory
    return _Together(
        found.loglik,
        [every.take(slice(0, border)), every.take(slice(border, None))],
        [found.carried_over(each) for each in coresets],
        lambda chosen: found.alone(chosen, sum(each.n_observations for each in coresets)),
    )


def _new_rows(
    model: pm.Model, part: CoresetPart, wanted: RowsToRead, rng: np.random.Generator
) -> LogLikelihood:
    if wanted.are_elsewhere:
        return likelihood_of_rows(model, wanted, rng=rng)
    new = likelihood_of_prototypes(model, columns_of_dataset(part.kept), wanted)
    verify_rows(new, rng=rng)
    return new


def _extended(part: CoresetPart, new: LogLikelihood) -> ExtendedRows:
    """Insert the coreset's rows, with their weights, before all new ones."""
    old, source = part.rows_in(new), new.source
    where = map(str, part.kept["where"].to_numpy())
    if not isinstance(source, StreamedRows):  # rows of the model itself
        arrays = new.observations.by_name(new.in_memory.all)
        source = StreamedRows(open_rows(arrays), {n: a.dtype for n, a in arrays.items()})
    moved = replace(source, start=part.n_rows, initial_sample=FirstRows.none())
    return ExtendedRows(old, moved, dict(zip(old.positions.tolist(), where, strict=True)))


def _sum_of(
    quadratics: Sequence[Quadratic | None],
    *,
    loglikelihood: LogLikelihood,
    rng: np.random.Generator,
) -> tuple[Quadratic | None, bool]:
    """Add up quadratics, and return whether the union can be kept without a reduction.

    The prior outweighs a convex direction of either quadratic, but perhaps not of their sum.
    """
    known = [quadratic for quadratic in quadratics if quadratic is not None]
    if len(known) < 2:
        return next(iter(known), None), True
    one, other = known
    observations = loglikelihood.observations
    points = points_near(observations.space, rng)
    both = one.plus(written_in(one, other, observations, points))
    return both, is_concave(both.curvature)


def _merged(coresets: Sequence[WeightedRows]) -> dict[str, float]:
    """Describe the merged coresets, as attributes of a history."""
    attrs = [each.history.attrs for each in coresets]
    lacking = [float(each.get(OBJECTIVE_OF_PARTS, 0.0)) for each in attrs]
    return {
        "merged_coresets": sum(int(each.get("merged_coresets", 1)) for each in attrs),
        "merge_levels": 1 + max(int(each.get("merge_levels", 0)) for each in attrs),
        OBJECTIVE_OF_PARTS: sum(each.objective for each in coresets) + sum(lacking),
    }


def _known_rows(coreset: WeightedRows, part: CoresetPart) -> list[KnownRows]:
    """Return the sample of rows of each construction, or else of those that are left."""
    if _KNOWN in coreset.history.attrs:
        return [KnownRows(*each) for each in json.loads(coreset.history.attrs[_KNOWN])]
    if not holds_rows(coreset):  # the model has all of them
        return [KnownRows.among(part.loglikelihood, 0)]
    rows = rows_of_dataset(part.loglikelihood.observations, part.kept)
    return [KnownRows.of(part.loglikelihood, rows, 0, part.n_rows)]


def _warn_of_known_rows(known: Sequence[KnownRows], new: LogLikelihood) -> None:
    """Warn if there are rows among new ones that a construction read before."""
    for one, n_found in zip(known, recurring(known, new), strict=True):
        if n_found:
            warn_user(
                f"Of {len(one.hashes)} rows that were sampled from rows {one.start:,} to "
                f"{one.stop - 1:,}, which the coreset already represents, {n_found} are among the "
                "new ones, so they count twice. Pass only rows that are not among these, or build "
                "a coreset of all of them."
            )
