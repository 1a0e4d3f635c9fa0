"""Coresets as rows with their data, and their reduction to fewer rows."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import xarray as xr

from pymc_coresets.advice import Outcome, wanted_tolerance, warn_of_limits, with_informativeness
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.control_variates.expansion import carried_over, written_in
from pymc_coresets.glm.control_variates.method import ControlVariates
from pymc_coresets.glm.predictor.finding import interface_of
from pymc_coresets.methods.job import Job, Method
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.user_model import settable_data
from pymc_coresets.request import asked_method
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.kept_rows import Densities, kept_dataset, rows_of_dataset
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_prototypes
from pymc_coresets.rowlogp.rest import refuse_unweighted
from pymc_coresets.rowlogp.verification import points_near
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import InMemoryRows, one_blas_thread
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.solution import Solution, Status
from pymc_coresets.weighted_rows import WeightedRows, required_likelihood


@dataclass(frozen=True, kw_only=True, eq=False)
class CoresetPart:
    """A coreset as rows with their data, for a model with prototype rows.

    Parameters
    ----------
    loglikelihood : LogLikelihood
    kept : xarray.Dataset
        From `kept_dataset`.
    n_rows : int
        Number of rows that it represents; positions are smaller.
    quadratic : Quadratic, optional
        Quadratic that represents its rows together with the weighted ones, in the model's
        parameters.
    """

    loglikelihood: LogLikelihood
    kept: xr.Dataset
    n_rows: int
    quadratic: Quadratic | None = None

    @classmethod
    def of(cls, coreset: WeightedRows) -> Self:
        """Extract the rows of a coreset.

        Raises
        ------
        CoresetError
            If it was read without its model.
        UnsupportedModelError
            If its rows are not data of the model, or are cells of several dims.
        """
        loglik, quadratic = required_likelihood(coreset), coreset.quadratic
        held, dim = loglik.observations, coreset.settings["dim"]
        if isinstance(dim, list) and len(dim) > 1:
            raise _refusal(f"The rows of this coreset are cells of dim={dim!r}")
        loglikelihood, kept, n_rows = loglik, coreset.data, coreset.n_distinct
        if kept is None:
            if held.sets:
                names = ", ".join(each.names for each in held.sets)
                raise _refusal(
                    f"The rows of this coreset are of several terms, {names}, with data of their "
                    "own"
                )
            refuse_unweighted(held)
            values = settable_data(held.model)
            columns = {n: v[0] for n, v in values.items() if v.shape[:1] == (held.n_obs,)}
            wanted = RowsToRead(**coreset.settings)
            loglikelihood, n_rows = (
                likelihood_of_prototypes(held.model, columns, wanted),
                held.n_obs,
            )
            rows = loglikelihood.in_memory.at(coreset.indices)
            kept = kept_dataset(loglikelihood, rows, coreset.weights)
            quadratic = moved_to(loglikelihood, quadratic, loglik)
        return cls(loglikelihood=loglikelihood, kept=kept, n_rows=n_rows, quadratic=quadratic)

    def rows_in(self, loglik: LogLikelihood) -> Rows:
        """Return the rows for a model of the same columns, with their weights as case weights."""
        rows = rows_of_dataset(loglik.observations, self.kept)
        return replace(rows, case_weights=self.kept["weight"].to_numpy())

    def after(self, n_rows: int) -> Self:
        """Return the same with positions shifted behind those of other rows."""
        return replace(self, kept=self.kept.assign(position=self.kept["position"] + n_rows))

    def quadratic_in(self, loglik: LogLikelihood) -> Quadratic | None:
        """Return the quadratic for a model whose likelihood is the same."""
        return moved_to(loglik, self.quadratic, self.loglikelihood)

    def require_same_model(self, other: LogLikelihood, remedy: str) -> None:
        """Refuse a model with other columns, priors or likelihoods of these rows.

        Raises
        ------
        InvalidDataError
            If they differ; the message ends with the remedy.
        """
        own, found = ((loglik, self.rows_in(loglik)) for loglik in (self.loglikelihood, other))
        require_same_densities(own, found, remedy)


def moved_to(
    new: LogLikelihood, quadratic: Quadratic | None, old: LogLikelihood
) -> Quadratic | None:
    """Return a coreset's quadratic, if it has one, for a model whose likelihood is the same."""
    if quadratic is None:
        return None
    return carried_over(quadratic, old.observations, new.observations)


def require_same_densities(
    own: tuple[LogLikelihood, Rows], found: tuple[LogLikelihood, Rows], remedy: str
) -> None:
    """Refuse a model that has other priors, or another likelihood of the same rows.

    Parameters
    ----------
    own, found : tuple of LogLikelihood and Rows
        Of the coreset's model, and of the other one.
    remedy : str

    Raises
    ------
    InvalidDataError
        If they differ; the message ends with the remedy.
    """
    one, other = Densities.of(*own), Densities.of(*found)
    for what, is_same in zip(("likelihood", "prior"), one.same(other), strict=True):
        if not is_same:
            raise InvalidDataError(f"There is another {what} than in the coreset's model. {remedy}")


def _refusal(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{what}: such coresets can be neither extended nor merged. Build one of all rows. To "
        "extend it later, pass cells in long format, and integrate=False."
    )


def asked_reduction(
    method: str | Method,
    names: Collection[str],
    *,
    with_quadratic: bool,
) -> Method:
    """Return the options of a method passed by name or as options.

    Parameters
    ----------
    method : str or option object
        "auto" is pursuit, or control variates if there is a quadratic.
    names : collection of str
        The methods that are allowed.
    with_quadratic : bool
        Whether a quadratic represents part of the rows' log-likelihood.

    Raises
    ------
    InvalidOptionError
        If there is no such method, or it cannot use a quadratic.

    Examples
    --------
    >>> asked_reduction("auto", ("auto", "control_variates"), with_quadratic=True)
    ControlVariates(tolerance=0.01, max_rounds=6, correctable=None)
    """
    chosen: Method = asked_method(method, names)
    if not with_quadratic or isinstance(chosen, ControlVariates):
        return chosen
    if isinstance(method, str) and method == "auto":
        return ControlVariates()
    raise InvalidOptionError(
        f"method={method!r} chooses rows only, but most of the log-likelihood of these rows is in "
        "a quadratic: leave method out, or pass ControlVariates(...)."
    )


def reduced(
    loglik: LogLikelihood,
    size: int,
    method: Method,
    rng: np.random.Generator,
    *,
    report: Reporter,
    quadratic: Quadratic | None = None,
    all_serve: bool = True,
) -> tuple[Solution, dict[str, float]]:
    """Choose at most `size` of some rows, count the cost, and warn of limits to their accuracy.

    Parameters
    ----------
    loglik : LogLikelihood
        Of the rows; control variates and sensitivities read all of them into memory.
    size : int
    method : Method
        That needs no more than draws from posteriors of weighted rows.
    rng : numpy.random.Generator
    quadratic : Quadratic, optional
        Quadratic that represents the rows together with these, in the parameters of `loglik`, for
        `ControlVariates`.
    all_serve : bool, default True
        Whether all rows may be kept if they are few.
    report : Reporter, optional
        Shows the parts; by default nothing is shown.

    Returns
    -------
    solution : Solution
    counts : dict
    """
    if all_serve and loglik.n_rows <= size:
        every = loglik.all_rows
        union = Solution.sampled(every, every.case_weights)
        return replace(union, status=Status.UNION, objective=0.0, quadratic=quadratic), {}
    size = min(size, loglik.n_rows)
    if quadratic is not None:
        own, observations = interface_of(loglik.observations), loglik.observations
        like = Quadratic.zero(own.names, own.coefficients, is_sparse=True)
        points = points_near(observations.space, rng.spawn(1)[0])
        quadratic = written_in(like, quadratic, observations, points)  # if they differ
    with one_blas_thread():
        if isinstance(method, RiemannianPursuit):
            sampler = CoresetSampler(loglik)
            solution = method.run(
                Job(
                    posterior=sampler,
                    size=size,
                    rng=rng,
                    propose=partial(proposal, sampler),
                    report=report,
                )
            )
            counts: dict[str, float] = dict(sampler.counts)
        else:
            solution = _of_all(loglik, size, method, rng, quadratic, report)
            counts = report.counts | report.figures
    solution = with_informativeness(solution, loglik)
    warn_of_limits(
        Outcome(
            solution=solution,
            observations=loglik.observations,
            n_obs=round(loglik.total_weight),
            size=size,
            tolerance=wanted_tolerance(method, asked=False),
            counts=counts,
            method=method,
        )
    )
    return solution, counts


def _of_all(
    loglik: LogLikelihood,
    size: int,
    method: Method,
    rng: np.random.Generator,
    quadratic: Quadratic | None,
    report: Reporter,
) -> Solution:
    """Choose among rows in memory, which the methods of linear predictors number from 0."""
    every, source = loglik.all_rows, loglik.source
    numbered = InMemoryRows(
        every.arrays,
        every.case_weights,
        unit_rows=every.unit_rows,
        place=lambda n: source.place(int(every.positions[n])),
    )
    here = loglik.reading(numbered)
    job = Job(
        posterior=CoresetSampler(here, quadratic=quadratic),
        loglikelihood=here,
        size=size,
        rng=rng,
        sample_key=random_key(rng.spawn(1)[0]),
        report=report,
    )
    found = method.run(job)
    return replace(found, rows=every.take(found.rows.positions))
