"""What the methods have in common that draw from coreset posteriors as they go."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from pymc_coresets.diagnostics.importance import MIN_DRAWS, estimate_divergences, pareto_smooth
from pymc_coresets.exceptions import SamplingError, warn_user
from pymc_coresets.methods.job import CoresetPosterior, Job, moderate_size
from pymc_coresets.options import whole_number
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.loop import advance
from pymc_coresets.solving.problem import Matrix, Vector, tangent_vectors
from pymc_coresets.solving.solution import History, Progress, Solution, Status

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tangent:
    """Draws of a coreset posterior, and how the potentials vary over them.

    Parameters
    ----------
    draws : object
        Draws of pi_w, of the posterior's own type.
    vectors : ndarray of shape (n_rows, n_draws)
        Centred potentials of some rows over ``sqrt(n_draws)``, in nats.
    residual : ndarray of shape (n_draws,)
        The same of ``log r = sum_n (u_n - w_n) f_n``, by which the coreset's log-density is off.

    Notes
    -----
    These are the tangent vectors at pi_w: their inner products are covariances under it, and the
    gradient of KL(pi_w || pi) with respect to the weights of the rows is ``-vectors @ residual``.

    References
    ----------
    .. [1] Campbell, T. and Beronov, B. (2019). Sparse Variational Inference: Bayesian Coresets
       from Scratch, Equations 10 and 22. https://arxiv.org/abs/1906.03329

    Examples
    --------
    >>> import numpy as np
    >>> tangent = Tangent(draws=None, vectors=np.eye(2), residual=np.array([3.0, 1.0]))
    >>> tangent.objective, tangent.gradient
    (10.0, array([-3., -1.]))
    """

    draws: Any
    vectors: Vector
    residual: Vector

    @property
    def objective(self) -> float:
        """Variance of log r in nats, an estimate of the symmetrised KL divergence."""
        return float(self.residual @ self.residual)

    @property
    def gradient(self) -> Vector:
        """Estimated gradient of KL(pi_w || pi) by the weights of the rows, (n_rows,)."""
        gradient: Vector = -(self.vectors @ self.residual)
        return gradient


@dataclass(frozen=True, eq=False)
class TangentDraws[D]:
    """Draws from the posteriors of a construction's coresets, and how potentials vary over them.

    Parameters
    ----------
    posterior : CoresetPosterior
        Potentials of all rows, and draws.
    rng : numpy.random.Generator
        The only source of randomness.
    draw : callable, optional
        How to draw instead, with the arguments of ``posterior.draw``.
    history : History
        Counts what it costs.

    Examples
    --------
    >>> import numpy as np
    >>> from benchmarks.closed_forms import Location
    >>> location = Location(np.array([[1.0], [2.0]]))
    >>> draws = TangentDraws(location, np.random.default_rng(1))
    >>> draws.at(location.source.all, np.ones(2), 100).objective  # all rows, with their weights
    0.0
    """

    posterior: CoresetPosterior[D]
    rng: np.random.Generator
    draw: Callable[..., D] | None = None
    history: History = field(default_factory=History)

    def at(
        self, rows: Rows, weights: Vector, n_draws: int, n_subsample: int | None = None
    ) -> Tangent:
        """Draw from the posterior of the weighted rows: one pass over the data.

        Parameters
        ----------
        rows : Rows
            Rows whose vectors are wanted, among them all of positive weight.
        weights : ndarray of shape (n_rows,)
            Their weights, at least 0.
        n_draws : int
            Number of draws.
        n_subsample : int, optional
            Estimate the sum over the data, without bias, from that many rows drawn with
            replacement in proportion to their base weights, instead of a pass.

        Raises
        ------
        InvalidDataError
            If a potential is not finite at a draw.
        """
        positive = np.flatnonzero(weights > 0)
        draw = self.draw or self.posterior.draw
        with self.history.drawing():
            draws = draw(rows.take(positive), weights[positive], n_draws, rng=self.rng)
        if n_subsample is None:
            with self.history.evaluating(self.n_rows, n_draws, of=self.n_rows):
                total = self.posterior.look(draws).total
        else:
            scan = self.posterior.scan(n_subsample, key=random_key(self.rng))
            total = scan.weights @ self.loglik(draws, scan.rows, n_draws)
        loglik = self.loglik(draws, rows, n_draws)
        return Tangent(
            draws=draws,
            vectors=tangent_vectors(loglik),
            residual=tangent_vectors(total - weights @ loglik),
        )

    def loglik(self, draws: D, rows: Rows, n_draws: int) -> Matrix:
        """Return the potentials of some rows, (n_rows, n_draws), in nats; they may be infinite."""
        with self.history.evaluating(len(rows), n_draws, of=self.n_rows):
            return self.posterior.loglik(draws, rows)

    @property
    def n_rows(self) -> int:
        """Number of all rows N."""
        return self.posterior.n_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveState:
    """What every such method carries from step to step; a step leaves the old arrays alone.

    Parameters
    ----------
    source : TangentDraws
        Where draws and potentials come from.
    size : int
        Largest number of positive weights.
    rows : Rows
        Rows that have weight, or may get it back.
    weights : ndarray of shape (len(rows),)
        At least 0.
    tangent : Tangent
        Draws of the posterior of these weights.
    step_limit : int
        Largest number of steps.
    status : Status, optional
        Set by the step that wants to be the last.

    Examples
    --------
    >>> import numpy as np
    >>> tangent = Tangent(draws=None, vectors=np.eye(2), residual=np.zeros(2))
    >>> state = AdaptiveState(
    ...     source=None, size=3, rows=Rows(np.arange(3), np.ones(3)),
    ...     weights=np.array([0.0, 4.0, 2.0]), tangent=tangent, step_limit=1,
    ... )
    >>> state.support.positions, state.is_full
    (array([1, 2]), False)
    """

    source: TangentDraws[Any]
    size: int
    rows: Rows
    weights: Vector
    tangent: Tangent
    step_limit: int
    status: Status | None = None

    @property
    def support(self) -> Rows:
        """Rows of positive weight."""
        return self.rows.take(np.flatnonzero(self.weights))

    @property
    def is_full(self) -> bool:
        """Whether the weights have as many positive entries as wanted."""
        return bool(np.count_nonzero(self.weights) >= self.size)


class AdaptiveMethod[S: AdaptiveState](ABC):
    """What the methods have in common that draw from the coreset's posterior at every step."""

    accepts: ClassVar[Collection[str]] = frozenset({"size"})
    draws_from: ClassVar[str] = "the coreset's posterior"

    @abstractmethod
    def start(self, source: TangentDraws[Any], size: int) -> S:
        """Return the first weights, which may be none, with draws from their posterior."""

    @abstractmethod
    def step(self, state: S) -> S:
        """Improve the weights once, or set the status, or both."""

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """As many rows as match a quadratic log-likelihood, 50 to 500."""
        return moderate_size(n_dims, n_rows)

    def run(self, job: Job[Any]) -> Solution:
        """Draw hundreds of times: by Laplace approximations, and otherwise from a reserve."""
        laplace, sampler, from_reserve = job.ways_to_draw()
        with job.report.part("choosing rows", total=job.size) as show:
            try:
                solution = solve_adaptively(self, laplace, job.size, rng=job.rng, callback=show)
                if solution.status is not Status.SAMPLING_FAILED:
                    return solution
                reason = solution.status.value
            except SamplingError as error:
                reason = error.message
            warn_user(
                "The coresets' posteriors are sampled by NUTS, which takes longer, because "
                f"Laplace approximations failed: {reason}"
            )
            return solve_adaptively(
                self, sampler, job.size, rng=job.rng, draw=from_reserve, callback=show
            )


def solve_adaptively[S: AdaptiveState](
    method: AdaptiveMethod[S],
    posterior: CoresetPosterior[Any],
    size: int,
    *,
    rng: np.random.Generator,
    draw: Callable[..., Any] | None = None,
    callback: Callable[[Progress], object] | None = None,
) -> Solution:
    """Choose at most ``size`` weighted rows whose posterior is close to the full one.

    Ctrl-C (``KeyboardInterrupt``, from the callback too) and a sampler that fails end the run with
    the last complete step.

    Parameters
    ----------
    method : AdaptiveMethod
        For instance ``SparseVI()``.
    posterior : CoresetPosterior
        Draws of coreset posteriors, and potentials at them.
    size : int
        Largest number of weights, 1 to ``posterior.n_rows``.
    rng : numpy.random.Generator
        Source of all draws and choices.
    draw : callable, optional
        How to draw instead, from draws that are used again and again.  As these have chosen the
        weights, the result is measured at fresh draws of the posterior.
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
        If a potential is not finite at a draw.
    SamplingError
        If there are no draws to start with.

    Examples
    --------
    Observations ``x_n ~ Normal(theta, 1)`` with a standard normal prior:

    >>> import numpy as np
    >>> from benchmarks.closed_forms import Location
    >>> from pymc_coresets.methods.sparse_vi import SparseVI
    >>> location = Location(np.array([[0.9], [1.0], [1.1]]))
    >>> solution = solve_adaptively(SparseVI(), location, 1, rng=np.random.default_rng(1))
    >>> solution.rows.positions, solution.weights.round()
    (array([1]), array([3.]))
    """
    size = whole_number("size", size, least=1, most=posterior.n_rows)
    history = History(callback)
    measured: Vector | None = None

    def measure(state: S) -> Status | None:
        nonlocal measured
        if state.weights is not measured:
            measured, residual = state.weights, state.tangent.residual
            history.add(
                size=len(state.support),
                objective=state.tangent.objective,
                heldout_objective=state.tangent.objective,
                **judge(residual * math.sqrt(residual.size)),
            )
        return state.status

    def measured_anew(state: S) -> S:
        rows, weights = state.support, state.weights[state.weights > 0]
        tangent = fresh.at(rows, weights, state.tangent.residual.size)
        return replace(state, rows=rows, weights=weights, tangent=tangent)

    fresh = TangentDraws(posterior, rng, history=history)
    state = method.start(replace(fresh, draw=draw), size)
    state, status = advance(state, method.step, measure, limit=state.step_limit)
    if draw is not None and status not in {Status.INTERRUPTED, Status.SAMPLING_FAILED}:
        state, failed = advance(state, measured_anew, measure, limit=1)
        status = failed if failed in {Status.INTERRUPTED, Status.SAMPLING_FAILED} else status
    rows, weights = state.support, state.weights[state.weights > 0]
    _log.debug("%s: %d weights. %s", type(method).__name__, len(rows), status.value)
    return history.solution(rows, weights, status, state.tangent.objective)


def judge(log_ratios: Vector) -> dict[str, Any]:
    """Estimate how far a coreset's posterior is from the full one, from draws of its own.

    Parameters
    ----------
    log_ratios : ndarray of shape (n_draws,)
        ``log r = sum_n (u_n - w_n) f_n`` at draws of pi_w, finite.

    Returns
    -------
    dict
        `pareto_khat`, `kl` and `reverse_kl` (nats) of a `Progress`; empty where there are fewer
        than 30 draws.

    Notes
    -----
    The integrals over the path between the two posteriors in Lemma 3 of Campbell and Beronov
    (2019) are ``log E[r] - E[log r]`` and ``E[r log r]/E[r] - log E[r]``: with A(t) = log E[r^t],
    the variance of log r at t is A''(t), and both follow by integration by parts.  Estimates from
    the same draws are then the same too, so the closed forms are used.

    Examples
    --------
    >>> judge(np.zeros(100))["kl"]
    0.0
    """
    if log_ratios.size < MIN_DRAWS:
        return {}
    ratios = log_ratios[None]
    smoothed = pareto_smooth(ratios)
    found = estimate_divergences(ratios, smoothed)
    return {
        "pareto_khat": smoothed.pareto_khat,
        "kl": found.kl,
        "reverse_kl": max(found.weighted_symmetrised_kl - found.kl, 0.0),
    }
