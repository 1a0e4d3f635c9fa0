"""Coresets as rows with their data, and fewer rows for these and others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import xarray as xr
from scipy import sparse
from scipy.linalg import LinAlgError

from pymc_coresets.advice import (
    Outcome,
    wanted_tolerance,
    warn_of_limits,
    with_informativeness,
)
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.control_variates.expansion import carried_over, written_in
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.glm.predictor.finding import find_linear_predictor, interface_of
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.glm.sensitivity import Sensitivity
from pymc_coresets.methods.job import Method, Reduction
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import kept_dataset, rows_of_dataset
from pymc_coresets.potentials.of_model import RowsToRead, template_of_rows
from pymc_coresets.potentials.remainder import refuse_unweighted
from pymc_coresets.potentials.sameness import differing_row, points_of, same_priors
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.user_model import copy_with_rows, settable_data
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.normal import Factor
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.solution import Solution, Status
from pymc_coresets.weighted_rows import WeightedRows, required_likelihood

_ROUNDING = 1e-9  # of the largest curvature


@dataclass(frozen=True, kw_only=True, eq=False)
class CoresetPart:
    """A coreset as rows with their data, for a model with a template of the rows.

    Parameters
    ----------
    template : LogLikelihood
    kept : xarray.Dataset
        As `kept_dataset` makes it.
    n_rows : int
        Rows that it stands for: positions are below it.
    quadratic : Quadratic, optional
        What stands for its rows besides, by the parameters of the template.
    """

    template: LogLikelihood
    kept: xr.Dataset
    n_rows: int
    quadratic: Quadratic | None = None

    @classmethod
    def of(cls, coreset: WeightedRows) -> Self:
        """Take the rows out of a coreset.

        Raises
        ------
        CoresetError
            If it was read without its model.
        UnsupportedModelError
            If its rows are not data of the model, or are cells of several dims.
        """
        loglik, quadratic = required_likelihood(coreset), coreset.quadratic
        held = loglik.observations
        _require_rows(coreset, held)
        template, kept, n_rows = loglik, coreset.data, coreset.n_distinct
        if kept is None:
            values = settable_data(held.model)
            columns = {n: v[0] for n, v in values.items() if v.shape[:1] == (held.n_obs,)}
            wanted = RowsToRead(**coreset.settings)
            template, n_rows = template_of_rows(held.model, columns, wanted), held.n_obs
            rows = template.in_memory.at(coreset.indices)
            kept = kept_dataset(template, rows, coreset.weights)
            if quadratic is not None:
                quadratic = carried_over(quadratic, held, template.observations)
        return cls(template=template, kept=kept, n_rows=n_rows, quadratic=quadratic)

    def rows_in(self, loglik: LogLikelihood) -> Rows:
        """Return the rows for a model of the same columns, with their weights as base weights."""
        rows = rows_of_dataset(loglik.observations, self.kept)
        return replace(rows, base_weights=self.kept["weight"].to_numpy())

    def after(self, n_rows: int) -> Self:
        """Return the same with positions after those of other rows."""
        return replace(self, kept=self.kept.assign(position=self.kept["position"] + n_rows))

    def quadratic_in(self, loglik: LogLikelihood) -> Quadratic | None:
        """Return the quadratic for a model whose likelihood is the same."""
        if self.quadratic is None:
            return None
        return carried_over(self.quadratic, self.template.observations, loglik.observations)

    def require_same_model(
        self, other: LogLikelihood, rng: np.random.Generator, remedy: str
    ) -> None:
        """Refuse a model with other columns, priors or likelihoods of these rows.

        Raises
        ------
        InvalidDataError
            Which ends with the remedy.
        """
        own = self.template
        rows, others = self.rows_in(own), self.rows_in(other)
        if not same_priors(own, other, rng):
            raise InvalidDataError(f"There are other priors than in the coreset's model. {remedy}")
        if differing_row(own, other, points_of(own, rng), rows, others) is not None:
            raise InvalidDataError(
                f"There is another likelihood than in the coreset's model. {remedy}"
            )


def _require_rows(coreset: WeightedRows, observations: Observations) -> None:
    """Refuse coresets whose rows are no rows of a table."""
    dim, what = coreset.settings["dim"], ""
    if isinstance(dim, list) and len(dim) > 1:
        what = f"The rows of this coreset are cells of dim={dim!r}"
        remedy = (
            "Put the data into long format, one row for each cell, and build a coreset of that; or "
            "build one of all cells."
        )
    elif observations.units is not None:
        what = f"{list(observations.integrated)!r} were integrated out of this coreset"
        remedy = "Build one of all rows, or one with integrate=False."
    elif coreset.data is None and observations.sets:
        names = ", ".join(each.names for each in observations.sets)
        what = f"The rows of this coreset are of several terms, {names}, with data of their own"
        remedy = "Build one of all rows."
    if what:
        raise UnsupportedModelError(
            f"{what}: such coresets can be neither extended nor merged. {remedy}"
        )
    if coreset.data is None:
        refuse_unweighted(observations)


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


def reduced(
    template: LogLikelihood,
    source: RowBlocks,
    size: int,
    method: RiemannianPursuit | Sensitivity | ControlVariates,
    rng: np.random.Generator,
    *,
    quadratic: Quadratic | None = None,
    all_serve: bool = True,
    report: Reporter | None = None,
) -> tuple[Solution, dict[str, Any]]:
    """Choose at most `size` of some rows, count what that took, and warn of what limits them.

    Parameters
    ----------
    template : LogLikelihood
        Of a model with a template of the rows.
    source : RowBlocks
        The rows; control variates and sensitivities read all of them into memory.
    size : int
    method : RiemannianPursuit, Sensitivity or ControlVariates
    rng : numpy.random.Generator
    quadratic : Quadratic, optional
        What stands for the rows besides, by the parameters of the template: for `ControlVariates`.
    all_serve : bool, default True
        Whether all rows are taken where they are few.
    report : Reporter, optional
        Shows the parts; by default nothing is shown.

    Returns
    -------
    solution : Solution
    counts : dict
    """
    if all_serve and source.n_rows <= size:
        every = _every(source)
        union = Solution.sampled(every, every.base_weights)
        return replace(union, status=Status.UNION, objective=0.0, quadratic=quadratic), {}
    size = min(size, source.n_rows)
    report = Reporter(show=False) if report is None else report
    if isinstance(method, Sensitivity):
        return _by_sensitivity(template, _every(source), size, method, rng)
    if isinstance(method, ControlVariates):
        solution, counts = _by_control_variates(
            template, source, size, method, rng, quadratic, report
        )
    else:
        sampler = CoresetSampler(template.reading(source))
        solution = method.run(
            Reduction(
                posterior=sampler, size=size, rng=rng, propose=sampler.proposal, report=report
            )
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


def _every(source: RowBlocks) -> Rows:
    return Rows.joined(list(source.blocks(source.n_rows)))


def _by_sensitivity(
    template: LogLikelihood, every: Rows, size: int, method: Sensitivity, rng: np.random.Generator
) -> tuple[Solution, dict[str, Any]]:
    seen = SeenRows(find_linear_predictor(model_of(template, every)))
    numbered = InMemoryRows(every.arrays, every.base_weights)  # as the model has them
    scan, figures = method.choose(numbered, seen, size, rng=rng)
    return Solution.sampled(every.take(scan.rows.positions), scan.weights), figures


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
    every = _every(source)
    held = model_of(template, every)
    arrays = [np.moveaxis(row.values, row.axis, 0) for row in held.rows]
    rows = InMemoryRows(
        arrays, every.base_weights, place=lambda n: source.place(int(every.positions[n]))
    )
    loglik = LogLikelihood(held).reading(rows)
    if quadratic is not None:
        points = points_of(template, rng.spawn(1)[0])
        own = interface_of(held)
        like = Quadratic.zero(own.names, own.coefficients, is_sparse=True)
        quadratic = written_in(like, held, quadratic, template.observations, points)
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
