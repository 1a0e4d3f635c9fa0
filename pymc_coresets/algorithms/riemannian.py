"""Riemannian pursuit: choose the rows under the coreset's own posterior, again and again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.algorithms.base import Progress, Solution, Status, Trace, solve
from pymc_coresets.algorithms.candidates import default_n_draws, tangent_problem
from pymc_coresets.algorithms.options import check_positive, check_tolerance
from pymc_coresets.algorithms.posterior import CoresetPosterior
from pymc_coresets.algorithms.problem import Vector
from pymc_coresets.algorithms.pursuit import Pursuit
from pymc_coresets.algorithms.uniform import sample_uniform
from pymc_coresets.exceptions import InvalidOptionError

__all__ = ["RiemannianPursuit", "Round"]

_MARGIN = 0.1  # of the tolerance, within a round: the next posterior is another one


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """A coreset and how far its own draws say that it is from the full posterior.

    Parameters
    ----------
    indices : ndarray of int64
        Rows of the coreset.
    weights : ndarray of float64
        Their weights.
    objective : float
        ``Var(log r)`` in nats over draws of its own posterior, which chose nothing.
    """

    indices: NDArray[np.int64]
    weights: Vector
    objective: float


@dataclass(frozen=True, kw_only=True)
class RiemannianPursuit:
    """Rounds of draws from the coreset's posterior, and pursuit in the tangent space there.

    A fixed weighting distribution limits every Hilbert coreset: the rows are matched where the
    draws are.  Here the draws come from the coreset's own posterior, which comes closer to the
    full one every round, so that nothing about the full posterior needs to be known before.  One
    round costs a run of the sampler on the coreset, one pass over the data for `n_draws`
    log-likelihoods a row, and one pursuit.

    Parameters
    ----------
    tolerance : float, default 0.01
        Stop when the symmetrised KL divergence is estimated below this many nats.  A round adds
        no rows beyond a tenth of it.
    n_draws : int, optional
        Draws a round; by default 4 for each wanted row, but 500 at least and 2 000 at most.
    start_size : int, default 1000
        Rows of the uniform coreset that the first draws come from.
    max_rounds : int, default 8
        Pursuits at most.
    patience : int, default 2
        Rounds without improvement after which to stop.

    Raises
    ------
    InvalidOptionError
        If an option is not positive.

    Notes
    -----
    For draws of pi_w, ``Var(log r)`` with ``log r = sum_n (u_n - w_n) f_n`` is the objective
    ``||L - L(w)||^2`` in the tangent space at pi_w, and estimates the symmetrised KL divergence
    between pi_w and the full posterior (Campbell and Beronov 2019, Proposition 2).  The best
    round by this measure is returned.

    Examples
    --------
    >>> RiemannianPursuit(tolerance=0.1).max_rounds
    8
    """

    tolerance: float = 0.01
    n_draws: int | None = None
    start_size: int = 1_000
    max_rounds: int = 8
    patience: int = 2

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        for name in ("start_size", "max_rounds", "patience"):
            check_positive(name, getattr(self, name))
        if self.n_draws is not None and self.n_draws < 100:
            raise InvalidOptionError(f"n_draws must be at least 100, but is {self.n_draws}")

    def construct[D](
        self,
        posterior: CoresetPosterior[D],
        size: int,
        *,
        rng: np.random.Generator,
        callback: Callable[[Progress], object] | None = None,
        deadline: float = np.inf,
    ) -> Solution:
        """Choose at most `size` weighted rows.

        Parameters
        ----------
        posterior : CoresetPosterior
            Samples coreset posteriors, and evaluates potentials.
        size : int
            Largest number of weights.
        rng : numpy.random.Generator
        callback : callable, optional
            Called with a `Progress` after every round.
        deadline : float
            Value of `time.perf_counter` after which no round begins.

        Returns
        -------
        Solution
            The best round; the trace has one entry a round.
        """
        run = _Run(self, posterior, size, rng, callback)
        try:
            status = run.rounds(deadline)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        best = run.best
        return Solution(
            indices=best.indices,
            weights=best.weights,
            history=Trace.of(run.steps),
            status=status,
        )


class _Run[D]:
    """One construction: the rounds so far, and the best of them."""

    def __init__(
        self,
        options: RiemannianPursuit,
        posterior: CoresetPosterior[D],
        size: int,
        rng: np.random.Generator,
        callback: Callable[[Progress], object] | None,
    ) -> None:
        self.options, self.posterior, self.size, self.rng = options, posterior, size, rng
        self.callback, self.started = callback, time.perf_counter()
        self.n_draws = options.n_draws or default_n_draws(size)
        self.steps: list[Progress] = []
        self.best = self._uniform(size)

    def _uniform(self, size: int) -> Round:
        base_weights = self.posterior.base_weights
        size = min(size, int(np.count_nonzero(base_weights)))
        indices, weights = sample_uniform(base_weights, size, rng=self.rng)
        return Round(indices=indices, weights=weights, objective=np.inf)

    def rounds(self, deadline: float) -> Status:
        current, predicted = self._uniform(self.options.start_size), np.nan
        unimproved = 0
        for n_done in range(self.options.max_rounds + 1):
            draws, moments, objective = self._measure(current, predicted)
            if n_done > 0:  # the start has another size than was asked for
                unimproved = 0 if objective < self.best.objective else unimproved + 1
                if not unimproved:
                    self.best = replace(current, objective=objective)
                if objective <= self.options.tolerance:
                    return Status.TOLERANCE_REACHED
                if unimproved >= self.options.patience:
                    return Status.NO_PROGRESS
            if n_done == self.options.max_rounds or time.perf_counter() > deadline:
                break
            current, predicted = self._pursue(draws, moments)
        return Status.ITERATION_LIMIT

    def _measure(self, current: Round, predicted: float) -> tuple[D, tuple[Vector, Vector], float]:
        """Draw from a coreset's posterior, and see how much log r varies there."""
        draws = self.posterior.draw(
            current.indices, current.weights, self.n_draws, rng=self.rng.spawn(1)[0]
        )
        moments = self.posterior.moments(draws)
        own = current.weights @ self.posterior.loglik(draws, current.indices)
        progress = Progress(
            size=len(current.indices),
            objective=predicted,
            heldout_objective=float(np.var(moments[0] - own)),
            seconds=time.perf_counter() - self.started,
        )
        self.steps.append(progress)
        if self.callback is not None:
            self.callback(progress)
        return draws, moments, progress.heldout_objective

    def _pursue(self, draws: D, moments: tuple[Vector, Vector]) -> tuple[Round, float]:
        problem, candidates = tangent_problem(self.posterior, draws, rng=self.rng, moments=moments)
        method = Pursuit(tolerance=_MARGIN * self.options.tolerance)
        solution = solve(method, problem, min(self.size, problem.n_obs), rng=self.rng)
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        chosen = Round(
            indices=candidates[solution.indices], weights=solution.weights, objective=np.inf
        )
        return chosen, float(solution.history.objective[-1])
