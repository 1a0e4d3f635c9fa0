"""Methods that draw from a coreset's posterior at every step."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.methods.job import Job, moderate_size
from pymc_coresets.methods.loop import CoresetPosterior, Measure, Measurement, rounds
from pymc_coresets.options import whole_number
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.solution import History, Progress, Solution, Status, unwatched

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveState:
    """State of an adaptive method between steps; a step does not modify the old arrays.

    Parameters
    ----------
    measure : Measure
        Source of draws and log-likelihoods.
    size : int
        Largest number of positive weights.
    coreset : Measurement
        Rows that have weight, or may regain it, at draws of their posterior.
    status : Status, optional
        Set by a step after which the run should stop.
    """

    measure: Measure[Any]
    size: int
    coreset: Measurement
    status: Status | None = None


class AdaptiveMethod[S: AdaptiveState](ABC):
    """Base class of methods that draw from the coreset's posterior at every step."""

    accepts: ClassVar[Collection[str]] = frozenset({"size"})
    draws_from: ClassVar[str] = "the coreset's posterior"
    default_size = staticmethod(moderate_size)

    @abstractmethod
    def start[D](self, measure: Measure[D], size: int) -> S:
        """Return the initial weights (possibly none), with draws from their posterior."""

    @abstractmethod
    def step(self, state: S) -> S:
        """Improve the weights once, or set the status, or both."""

    def most_steps(self, size: int) -> int:
        """Largest number of steps: one per row of the coreset."""
        return size

    def run[D](self, job: Job[D]) -> Solution:
        """Draw hundreds of times, by Laplace approximations.

        Raises
        ------
        SamplingError
            If there is none of the prior, or of the first rows.
        """
        sampler = CoresetSampler(job.loglikelihood, kind="laplace")
        with job.report.part("choosing rows", total=job.size) as show:
            try:
                solution = solve_adaptively(self, sampler, job.size, rng=job.rng, callback=show)
            except SamplingError as error:
                raise SamplingError(
                    "This method draws from Laplace approximations of posteriors, and one failed: "
                    f"{error.message} 'riemannian_pursuit' draws by NUTS where that is needed."
                ) from error
        job.report.counts.update(sampler.counts_of_runs)
        return solution


def solve_adaptively[S: AdaptiveState, D](
    method: AdaptiveMethod[S],
    posterior: CoresetPosterior[D],
    size: int,
    *,
    rng: np.random.Generator,
    callback: Callable[[Progress], object] = unwatched,
) -> Solution:
    """Choose at most ``size`` weighted rows whose posterior is close to the full one.

    Ctrl-C (``KeyboardInterrupt``, from the callback too) and a sampler that fails end the run with
    the last complete step.

    Parameters
    ----------
    method : AdaptiveMethod
        For instance ``SparseVI()``.
    posterior : CoresetPosterior
        Draws of coreset posteriors, and log-likelihoods at them.
    size : int
        Largest number of weights, 1 to ``posterior.n_rows``.
    rng : numpy.random.Generator
        Source of all draws and choices.
    callback : callable, optional
        Called with a `Progress` after every step that changed the weights.

    Returns
    -------
    Solution
        With at most ``size`` positive weights. Both objectives of its history are the variance of
        ``log r = sum_n (u_n - w_n) f_n`` over fresh draws of each step's own coreset posterior,
        which are held out: a noisy estimate that may rise, and noisier with a subsample.

    Raises
    ------
    InvalidOptionError
        If ``size`` is out of range.
    InvalidDataError
        If a log-likelihood is not finite at a draw.
    SamplingError
        If there are no draws to start with.

    Examples
    --------
    Observations ``x_n ~ Normal(theta, 1)`` with a standard normal prior:

    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> from pymc_coresets.rowlogp.evaluation import LogLikelihood
    >>> from pymc_coresets.sampling.sampler import CoresetSampler
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.9, 1.0, 1.1])
    >>> loglik = LogLikelihood(find_observations(model))
    >>> from pymc_coresets.papers.sparse_vi import SparseVI
    >>> sampler, rng = CoresetSampler(loglik, kind="laplace"), np.random.default_rng(1)
    >>> solution = solve_adaptively(SparseVI(), sampler, 1, rng=rng)
    >>> solution.rows.positions, solution.weights.round()
    (array([1]), array([3.]))
    """
    size = whole_number("size", size, least=1, most=posterior.n_rows)
    measure = Measure(posterior, rng, history=History(callback))
    last: Measurement | None = None

    def measured(state: S) -> Status | None:
        nonlocal last
        if state.coreset is not last:
            last = state.coreset
            last.enter(measure.history, last.objective)
        return state.status

    state, status = rounds(
        method.start(measure, size), method.step, measured, limit=method.most_steps(size)
    )
    chosen = state.coreset.support
    _log.debug("%s: %d weights. %s", type(method).__name__, chosen.size, status.value)
    return measure.history.solution(chosen, status, state.coreset.objective)
