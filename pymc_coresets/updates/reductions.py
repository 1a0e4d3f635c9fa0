"""Fewer rows for those of coresets, by pursuit or, beside a quadratic, by control variates."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError

from pymc_coresets.advice import (
    Outcome,
    wanted_tolerance,
    warn_of_limits,
    with_informativeness,
)
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.glm.control_variates.interfaces import (
    Coefficients,
    carried_over,
    interface_of,
    written_in,
)
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.methods.job import Method, Reduction
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.sameness import points_of
from pymc_coresets.progress.reporter import Reporter
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.user_model import copy_with_rows
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.metric import Factor
from pymc_coresets.solving.solution import Solution, Status

_ROUNDING = 1e-9  # of the largest curvature


def asked_reduction(
    method: Any,  # noqa: ANN401 - what users pass
    kinds: Collection[type[Any]],
    *,
    with_quadratic: bool,
) -> Any:  # noqa: ANN401 - one of these kinds
    """Return the options of a method that is given by name, or by its options.

    Parameters
    ----------
    method : str or option object
        "auto" is pursuit, and control variates beside a quadratic.
    kinds : collection of type
        The methods that may be asked for.
    with_quadratic : bool
        Whether a quadratic stands for the rows besides.

    Raises
    ------
    InvalidOptionError
        If there is no such method, or it does not go with a quadratic.

    Examples
    --------
    >>> kinds = (RiemannianPursuit, ControlVariates)
    >>> asked_reduction("auto", kinds, with_quadratic=True)
    ControlVariates(tolerance=0.01, max_rounds=6, correctable=None)
    """
    known: Mapping[str, type[Any]] = {kind.name: kind for kind in kinds}
    if with_quadratic and isinstance(method, str) and method == RiemannianPursuit.name:
        return ControlVariates()
    chosen = known[method]() if isinstance(method, str) and method in known else method
    if not isinstance(chosen, tuple(kinds)):
        raise InvalidOptionError(
            f"method={method!r} must be one of {list(known)!r}, or an object of its options."
        )
    if with_quadratic and not isinstance(chosen, ControlVariates):
        raise InvalidOptionError(
            f"method={method!r} chooses among rows alone, but a quadratic stands for most of what "
            "these rows say: leave method out, or pass ControlVariates(...)."
        )
    return chosen


def all_of(source: InMemoryRows, quadratic: Quadratic | None = None) -> Solution:
    """Take all rows, which are few, beside a quadratic."""
    union = Solution.sampled(source.all, source.all.base_weights)
    return replace(union, status=Status.UNION, objective=0.0, quadratic=quadratic)


def reduced(
    template: LogLikelihood,
    source: RowBlocks,
    size: int,
    method: RiemannianPursuit | ControlVariates,
    rng: np.random.Generator,
    *,
    quadratic: Quadratic | None = None,
    report: Reporter | None = None,
) -> tuple[Solution, dict[str, Any]]:
    """Choose at most `size` of some rows, count what that took, and warn of what limits them.

    Parameters
    ----------
    template : LogLikelihood
        Of a model with a template of the rows.
    source : RowBlocks
        The rows; control variates read all of them into memory.
    size : int
    method : RiemannianPursuit or ControlVariates
    rng : numpy.random.Generator
    quadratic : Quadratic, optional
        What stands for the rows besides, by the parameters of the template: for `ControlVariates`.
    report : Reporter, optional
        Shows the parts; by default nothing is shown.

    Returns
    -------
    solution : Solution
    counts : dict
    """
    report = Reporter(show=False) if report is None else report
    if isinstance(method, ControlVariates):
        solution, counts = _by_control_variates(
            template, source, size, method, rng, quadratic, report
        )
    else:
        sampler = CoresetSampler(template.reading(source))
        with report.part("rounds", total=method.max_rounds + 1) as show:
            solution = method.construct(
                sampler, size, rng=rng, propose=sampler.proposal, callback=show
            )
        counts = dict(sampler.counts)
    solution = with_informativeness(solution, template.reading(source))
    found: Method = method
    warn_of_limits(
        Outcome(
            solution=solution,
            observations=template.observations,
            n_obs=round(source.total_weight),
            size=size,
            tolerance=wanted_tolerance(method, asked=False),
            counts=counts,
            method=found,
        )
    )
    return solution, counts


def model_of(template: LogLikelihood, rows: Rows) -> Observations:
    """Return the observations of a copy of the model that holds these rows."""
    observations = template.observations
    copy = copy_with_rows(observations.model, observations.by_name(rows))
    names = [term.name for term in observations.terms]
    return find_observations(copy, observed=names, dim=observations.dim)


def is_concave(quadratic: Quadratic) -> bool:
    """Whether a quadratic has nowhere a positive curvature, but for rounding.

    Examples
    --------
    >>> q = Quadratic(
    ...     names=("a", "b"), center=np.zeros(2), slope=np.zeros(2), curvature=-np.ones((2, 2))
    ... )
    >>> is_concave(q), is_concave(q.minus(np.zeros(2), -0.1 * np.eye(2)))
    (True, False)
    """
    negative: Any = -quadratic.curvature
    allowed = _ROUNDING * abs(negative).max() + np.finfo(float).tiny
    shift = allowed * sparse.eye_array(len(quadratic.names))
    try:
        Factor(negative + shift)
    except LinAlgError:
        return False
    return True


def _by_control_variates(
    template: LogLikelihood,
    source: RowBlocks,
    size: int,
    method: ControlVariates,
    rng: np.random.Generator,
    quadratic: Quadratic | None,
    report: Reporter,
) -> tuple[Solution, dict[str, Any]]:
    every = Rows.joined(list(source.blocks(source.n_rows)))
    held = model_of(template, every)
    arrays = [np.moveaxis(row.values, row.axis, 0) for row in held.rows]
    rows = InMemoryRows(arrays, every.base_weights, place=lambda n: _place(source, every, n))
    loglik = LogLikelihood(held, backend=template.backend).reading(rows)
    if quadratic is not None:
        points = points_of(template, rng.spawn(1)[0])
        own = interface_of(held)
        coefficients = Coefficients(own.names, own.coefficients, held)
        quadratic = written_in(coefficients, quadratic, template.observations, points)
    sampler, key = CoresetSampler(loglik, quadratic=quadratic), random_key(rng.spawn(1)[0])
    job = Reduction(
        posterior=sampler,
        loglikelihood=loglik,
        size=size,
        rng=rng,
        sample_key=key,
        report=report,
    )
    found = method.run(job)
    assert found.quadratic is not None  # which the method always finds
    chosen = every.take(found.rows.positions)
    carried = carried_over(found.quadratic, held, template.observations)
    return replace(found, rows=chosen, quadratic=carried), dict(report.counts)


def _place(source: RowBlocks, every: Rows, number: int) -> str:
    return source.place(int(every.positions[number]))
