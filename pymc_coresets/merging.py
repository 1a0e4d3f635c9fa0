"""Coresets of coresets: merge, and reduce."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import xarray as xr

from pymc_coresets.coreset import Coreset
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, warn_user
from pymc_coresets.glm.control_variates.interfaces import Coefficients, carried_over, written_in
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.glm.logistic.sensitivity import Sensitivity
from pymc_coresets.glm.predictor.linear import find_linear_predictor
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.methods.job import rows_of_a_quadratic
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.options import generator, whole_number
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import rows_of_dataset
from pymc_coresets.potentials.sameness import arranged, differing_row, points_of, same_priors
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import AbsentRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import WeightedPosterior
from pymc_coresets.solving.solution import Solution
from pymc_coresets.storage import history_dataset
from pymc_coresets.updates.coreset_parts import KNOWN, CoresetPart, known_before, noted
from pymc_coresets.updates.new_rows import OBJECTIVE_OF_PARTS
from pymc_coresets.updates.reductions import all_of, asked_reduction, is_concave, model_of, reduced
from pymc_coresets.updates.regions import farthest_of

_METHODS = (RiemannianPursuit, Sensitivity, ControlVariates)

_APART = "The coresets disagree: what either lacks at the posterior of both is not known."
_LEVELS, _LEAVES = "merge_levels", "merged_coresets"
_GONE = (
    "This coreset was merged from others, without the rows that they stand for: it can be sampled, "
    "but this needs all of them. Store it, and read it with Coreset.from_netcdf(path, model, "
    "rows=...), where rows has those of the first coreset and, after them, those of the second."
)


def merge(
    first: Coreset,
    second: Coreset,
    *,
    size: int | None = None,
    method: str | RiemannianPursuit | Sensitivity | ControlVariates = "auto",
    random_seed: int | np.random.Generator | None = None,
) -> Coreset:
    """Merge the coresets of two data sets into one of both, and reduce it to fewer rows.

    Use it where shards of the data were summarised apart and are out of reach, and for trees of
    coresets.  The union of the two is as good as they are, and their quadratics add up; each
    reduction adds an error of its own, and there are log2(B) of them above B leaves.  Where all
    rows can be compared at the same draws, `CoresetStream` loses nothing of that kind, and costs
    less.

    Parameters
    ----------
    first, second : Coreset
        Of the same model: with ``rows=...``, from a `CoresetStream`, from `merge`, or of models
        that hold all their rows in `pm.Data` containers.
    size : int, optional
        Largest number of weighted rows; by default that of the larger of the two, or what a
        quadratic log-posterior takes, if that is more.  Where either has a quadratic, the union is
        kept by default, however large it is.
    method : {"auto", "sensitivity", "control_variates"} or option object
        How the union is reduced: by `RiemannianPursuit` to the posterior of the union; for logistic
        regression by `Sensitivity`, at random with its guarantee; or by `ControlVariates`, which
        is what "auto" means where either has a quadratic.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    Coreset
        Its rows are numbered as if those of the second data set came after those of the first.
        `objective` is the divergence from the posterior of the *union*; what the coresets lacked
        is not in it: the attribute ``objective_of_parts`` of `history` holds the sum of theirs.
        It is NaN where the coresets disagree.
        ``merged_coresets`` counts the coresets that went into it, and ``merge_levels`` the
        reductions in a row.

    Raises
    ------
    InvalidDataError
        If the coresets are of different models, or their quadratics in different coefficients.
    InvalidOptionError
        If an argument is no coreset, an option is out of range, or the method does not go with a
        quadratic.
    CoresetError
        If a coreset was read without its model, its rows are not data of the model, or they are
        cells of several dims.

    Warns
    -----
    CoresetWarning
        If something limits the coreset, as `build_coreset` does; or if the posterior of both lies
        far from that of either, so that nothing is known of what the coresets lack there.

    Notes
    -----
    If the log-likelihoods L1, L2 of two data sets are approximated with relative errors of at most
    epsilon each, then L1 + L2 is by the sum of the approximations, since both have the same sign.
    A reduction with relative error delta leaves ``(1 + epsilon)(1 + delta) - 1`` (Huggins et al.,
    Section 3.4).

    Two quadratics of the same coefficients are one about either center, and exactly their sum.
    Where that is convex in some direction, the prior may not outweigh it, though it outweighs
    either: then the union is reduced by control variates, whatever its size.

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
    rng = generator(random_seed)
    for name, part in {"first": first, "second": second}.items():
        if not isinstance(part, Coreset):
            raise InvalidOptionError(f"{name} is a {type(part).__name__}, but must be a Coreset.")
    if size is not None:
        size = whole_number("size", size, least=1)
    beside = first.quadratic is not None or second.quadratic is not None
    chosen = asked_reduction(method, _METHODS, with_quadratic=beside)
    parts = [CoresetPart.of(first), CoresetPart.of(second)]
    template, n_rows = parts[0].template, [part.n_rows for part in parts]
    shifted = parts[1].kept.assign(position=parts[1].kept["position"] + n_rows[0])
    together = xr.concat([parts[0].kept, shifted], dim="row", combine_attrs="drop_conflicts")
    rows = [_weighted(template, kept) for kept in (parts[0].kept, shifted)]
    union = Rows.joined(rows)
    _require_same(template, parts[1].template, union, rng=rng.spawn(1)[0])
    quadratics = _quadratics(parts, rng.spawn(1)[0]) if beside else (None, None)
    added = [each for each in quadratics if each is not None]
    quadratic = reduce(Quadratic.plus, added) if added else None
    few = len(union) <= (_default_size(parts) if size is None else size)
    source = InMemoryRows.of(union)
    if few and _holds(parts, quadratic):
        solution, figures = all_of(source, quadratic), dict[str, Any]()
    else:
        limit = len(union) if few else _default_size(parts) if size is None else size
        solution, figures = _reduced(template, source, limit, chosen, rng, quadratic)
    posteriors = [
        WeightedPosterior(template, own, own.base_weights, q)
        for own, q in zip(rows, quadratics, strict=True)
    ]
    both = WeightedPosterior(template, union, union.base_weights, quadratic)
    apart = _are_apart(posteriors, (first, second), both, solution.proposal, rng=rng)
    absent = AbsentRows(sum(n_rows), float(first.n_observations + second.n_observations), _GONE)
    return Coreset(
        indices=solution.rows.positions,
        weights=solution.weights,
        n_observations=first.n_observations + second.n_observations,
        n_distinct=sum(n_rows),
        method="merge",
        weighting=chosen.draws_from,
        status=_APART if apart else solution.status.value,
        objective=math.nan if apart else solution.objective,
        random_seed=int(random_seed) if isinstance(random_seed, int | np.integer) else None,
        history=history_dataset(solution.history, _ancestry(first, second, parts) | figures),
        settings=first.settings,
        loglikelihood=template.reading(absent),
        data=together.isel(row=union.where(solution.rows.positions)).assign(
            weight=("row", solution.weights)
        ),
        quadratic=solution.quadratic,
        progressbar=first.progressbar and second.progressbar,
    )


# -- what is merged --------------------------------------------------------------------------------


def _require_same(
    first: LogLikelihood, second: LogLikelihood, rows: Rows, *, rng: np.random.Generator
) -> None:
    """Refuse another likelihood or another prior, by their values at some points."""
    if first.observations.model is second.observations.model:
        return
    what = None if same_priors(first, second, rng) else "priors"
    same_rows, points = arranged(first, second, rows), points_of(first, rng)
    if differing_row(first, second, points, rows, same_rows) is not None:
        what = what or "likelihoods"
    if what is not None:
        raise InvalidDataError(
            f"The coresets are of different models: their {what} differ. Merge those of one."
        )


def _weighted(template: LogLikelihood, kept: xr.Dataset) -> Rows:
    rows = rows_of_dataset(template.observations, kept)
    return replace(rows, base_weights=kept["weight"].to_numpy())


def _quadratics(
    parts: Sequence[CoresetPart], rng: np.random.Generator
) -> tuple[Quadratic | None, Quadratic | None]:
    """Return the quadratics of both, once they are known to be in the same coefficients."""
    first, second = (part.quadratic for part in parts)
    one, other = (part.template.observations for part in parts)
    if second is None:
        return first, None
    if first is None:
        return None, carried_over(second, other, one)
    coefficients = Coefficients(first.names, first.graph, one)
    points = points_of(parts[0].template, rng)
    return first, written_in(coefficients, second, other, points)


# -- reduction -------------------------------------------------------------------------------------


def _default_size(parts: Sequence[CoresetPart]) -> int:
    sizes = [part.kept.sizes["row"] for part in parts]
    if any(part.quadratic is not None for part in parts):
        return sum(sizes)
    return max(*sizes, rows_of_a_quadratic(parts[0].template.n_dims))


def _holds(parts: Sequence[CoresetPart], quadratic: Quadratic | None) -> bool:
    """Whether the density cannot rise without end because the quadratics were added.

    The prior outweighs what is convex in either; where both are convex, it may not outweigh both.
    """
    alone = any(part.quadratic is None for part in parts)
    return alone or quadratic is None or is_concave(quadratic)


def _reduced(
    template: LogLikelihood,
    source: InMemoryRows,
    size: int,
    method: RiemannianPursuit | Sensitivity | ControlVariates,
    rng: np.random.Generator,
    quadratic: Quadratic | None,
) -> tuple[Solution, dict[str, Any]]:
    """Choose rows of a union, whose base weights are the weights of the coresets."""
    if isinstance(method, Sensitivity):
        seen = SeenRows(find_linear_predictor(model_of(template, source.all)))
        numbered = InMemoryRows(source.all.arrays, source.all.base_weights)  # as the model has them
        scan, figures = method.choose(numbered, seen, size, rng=rng)
        scan = replace(scan, rows=source.take(scan.rows.positions))
        return Solution.sampled(scan.rows, scan.weights), figures
    return reduced(template, source, size, method, rng, quadratic=quadratic)


def _are_apart(
    posteriors: Sequence[WeightedPosterior],
    coresets: Sequence[Coreset],
    both: WeightedPosterior,
    known: Proposal[Draws] | None,
    *,
    rng: np.random.Generator,
) -> bool:
    """Whether the posterior of both is far from where either was measured, which is warned of.

    Parameters
    ----------
    posteriors : sequence of WeightedPosterior
        Of each coreset, in one model.
    coresets : sequence of Coreset
    both : WeightedPosterior
        Of their union.
    known : Proposal, optional
        Draws that were weighed for it.
    rng : numpy.random.Generator
    """
    measured = [
        (posterior, coreset.proposal)
        for posterior, coreset in zip(posteriors, coresets, strict=True)
        if math.isfinite(coreset.objective)
    ]
    if not measured:
        return False
    moved = farthest_of(measured, both, known, rng=rng)
    if moved.is_far:
        warn_user(
            f"The rows of one coreset move the posterior of the other by {moved.words}. A coreset "
            "stands for its rows near where it was made: what these two lack together is not "
            "known. Build a coreset of all rows."
        )
    return moved.is_far


def _ancestry(first: Coreset, second: Coreset, parts: Sequence[CoresetPart]) -> dict[str, Any]:
    """Say what was merged, in numbers and words."""
    both = [first, second]
    attrs = [each.history.attrs for each in both]
    later = known_before(parts[1], attrs[1], start=parts[0].n_rows)
    return {
        KNOWN: noted([*known_before(parts[0], attrs[0]), *later]),
        _LEAVES: sum(int(each.get(_LEAVES, 1)) for each in attrs),
        _LEVELS: 1 + max(int(each.get(_LEVELS, 0)) for each in attrs),
        OBJECTIVE_OF_PARTS: sum(each.objective for each in both)
        + sum(float(each.get(OBJECTIVE_OF_PARTS, 0.0)) for each in attrs),
        "parts": "; ".join(
            f"{each.size} rows by {each.method!r} for {each.n_observations} observations"
            for each in both
        ),
    }
