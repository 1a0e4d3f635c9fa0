"""Riemannian pursuit: choose the rows under the coreset's own posterior, again and again."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.exceptions import InvalidOptionError, SamplingError
from pymc_coresets.methods.adaptive import judge
from pymc_coresets.methods.metering import Metered
from pymc_coresets.methods.posterior import CoresetPosterior
from pymc_coresets.methods.pursuit import Pursuit
from pymc_coresets.methods.uniform import sample_uniform
from pymc_coresets.solving.candidates import default_n_draws, tangent_problem
from pymc_coresets.solving.loop import solve
from pymc_coresets.solving.options import check_positive, check_tolerance
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Progress, Solution, Status, Trace

__all__ = ["RiemannianPursuit", "Round"]

_log = logging.getLogger(__name__)

_MARGIN = 0.1  # of the tolerance, within a round: the next posterior is another one
_LOOSEST = 0.1  # nats within a round: fewer rows leave directions that these draws do not show
_LEAST_PATIENCE = 20  # rows that do not help held-out draws, before a round adds no more
_SHORTEST = 2.0**-10  # share of a step
_LEAST_START = 1_000  # rows
_ROWS_A_DIMENSION = 50  # of the start: a tenth of them went astray in a hierarchy of 100 groups


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
    objective: float = math.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class _View[D]:
    """A coreset with draws of its posterior, and the potentials' sums and spreads there."""

    coreset: Round
    draws: D
    own: Vector
    moments: tuple[Vector, Vector]


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
        no rows beyond a tenth of it (0.1 nats at most), nor when they no longer help on held-out
        draws.
    n_draws : int, optional
        Draws a round; by default 4 for each wanted row or, where there are more of these, each
        free dimension, but 500 at least and 2 000 at most.
    start_size : int, optional
        Rows of the uniform coreset that the first draws come from; by default 50 for each free
        dimension, but 1 000 at least.  Where these draws are too far from the full posterior,
        no round finds the way.
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
    round by this measure is returned.  Where all of them came out worse than the start, that is
    looked at once more, or a uniform coreset of the wanted size where the start is larger.

    A step from w to w' may leave the region that the draws of pi_w know.  Where a round came out
    worse, and the importance weights ``exp(sum_n (w'_n - w_n) f_n)`` at the old draws confirm that
    the step was too long (Pareto k-hat above 0.7, or an effective sample size below a quarter of
    the draws), it is taken back: the next round pursues ``(1 - g) L(w) + g L`` from the old draws,
    for the largest g among 1/2, 1/4, ... at which those weights are sound.  A damped step that
    came out worse is damped further.

    Examples
    --------
    >>> RiemannianPursuit(tolerance=0.1).max_rounds
    8
    """

    tolerance: float = 0.01
    n_draws: int | None = None
    start_size: int | None = None
    max_rounds: int = 8
    patience: int = 2

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        for name in ("max_rounds", "patience"):
            check_positive(name, getattr(self, name))
        if self.start_size is not None:
            check_positive("start_size", self.start_size)
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
            The best round; the trace has an entry for every coreset that was looked at: the
            start, one a round, and perhaps a uniform one at the end.

        Raises
        ------
        KeyboardInterrupt
            If it comes before there are any draws.
        SamplingError, InvalidDataError
            If the start cannot be sampled, or its draws cannot be used.
        """
        run = _Run(self, posterior, size, rng, callback)
        try:
            status = run.rounds(deadline)
            if run.best.objective > max(self.tolerance, run.start.objective):
                status = run.fall_back(status, deadline)
        except KeyboardInterrupt:
            if not run.steps:
                raise
            status = Status.INTERRUPTED
        best = run.best
        return Solution(
            indices=best.indices,
            weights=best.weights,
            history=Trace.of(run.steps),
            status=status,
            objective=best.objective if math.isfinite(best.objective) else math.nan,
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
        self.options, self.size, self.rng = options, size, rng
        self.posterior = Metered(posterior)
        self.callback, self.started = callback, time.perf_counter()
        n_dims = self.posterior.n_dims
        self.n_draws = options.n_draws or default_n_draws(size, n_dims)
        start_size = options.start_size or max(_LEAST_START, _ROWS_A_DIMENSION * n_dims)
        self.steps: list[Progress] = []
        self.best, self.start = self._uniform(size), self._uniform(start_size)

    def _uniform(self, size: int) -> Round:
        indices, weights = sample_uniform(self.posterior.base_weights, size, rng=self.rng)
        return Round(indices=indices, weights=weights)

    def rounds(self, deadline: float) -> Status:
        known = self._look(self.start, math.nan)
        self.start = known.coreset
        if len(self.start.indices) <= self.size:
            self.best = replace(self.start, objective=math.inf)  # any round will do better
        share, unimproved = 1.0, 0
        for _ in range(self.options.max_rounds):
            if time.perf_counter() > deadline:
                return Status.OUT_OF_TIME
            current, predicted = self._pursue(known, share)
            view = self._try(current, predicted)
            if view is not None and view.coreset.objective < self.best.objective:
                self.best, unimproved = view.coreset, 0
            else:
                unimproved += 1
            if self.best.objective <= self.options.tolerance:
                return Status.TOLERANCE_REACHED
            if unimproved >= self.options.patience:
                return Status.SAMPLING_FAILED if view is None else Status.NO_PROGRESS
            share = self._share(known, current, view, share)
            if view is not None and share == 1.0:
                known = view
        return Status.ITERATION_LIMIT

    def fall_back(self, status: Status, deadline: float) -> Status:
        """Try uniform weights: those of the start, whose first draws may be coarse, if they fit."""
        if time.perf_counter() > deadline:
            return Status.OUT_OF_TIME
        fits = len(self.start.indices) <= self.size
        view = self._try(self.start if fits else self._uniform(self.size), math.nan)
        if view is not None and view.coreset.objective < self.best.objective:
            self.best = view.coreset
        within = self.best.objective <= self.options.tolerance
        return Status.TOLERANCE_REACHED if within else status

    def _try(self, coreset: Round, predicted: float) -> _View[D] | None:
        """Look at a coreset whose posterior may be beyond the sampler, or beyond the likelihood."""
        try:
            view = self._look(coreset, predicted)
        except SamplingError as error:
            _log.info("A round is taken back: %s", error)
            self._record(coreset, predicted, math.inf, {})
            return None
        return view if math.isfinite(view.coreset.objective) else None

    def _look(self, coreset: Round, predicted: float) -> _View[D]:
        """Draw from a coreset's posterior, and see how much log r varies there."""
        draws = self.posterior.draw(
            coreset.indices, coreset.weights, self.n_draws, rng=self.rng.spawn(1)[0]
        )
        moments = self.posterior.moments(draws)
        own = coreset.weights @ self.posterior.loglik(draws, coreset.indices)
        log_ratios = moments[0] - own
        finite = bool(np.isfinite(log_ratios).all())
        objective = float(np.var(log_ratios)) if finite else math.inf
        self._record(coreset, predicted, objective, judge(log_ratios) if finite else {})
        measured = replace(coreset, objective=objective)
        return _View(coreset=measured, draws=draws, own=own, moments=moments)

    def _record(
        self, coreset: Round, predicted: float, objective: float, judged: dict[str, Any]
    ) -> None:
        progress = Progress(
            size=len(coreset.indices),
            objective=predicted,
            heldout_objective=objective,
            seconds=time.perf_counter() - self.started,
            **judged,
            **self.posterior.costs,
        )
        self.steps.append(progress)
        if self.callback is not None:
            self.callback(progress)

    def _share(self, known: _View[D], coreset: Round, view: _View[D] | None, taken: float) -> float:
        """How much of a step to take: all, unless the last one came out worse for its length."""
        if view is not None and view.coreset.objective < known.coreset.objective:
            return 1.0
        there = coreset.weights @ self.posterior.loglik(known.draws, coreset.indices)
        step = there - known.own
        if view is not None and pareto_smooth(step[None]).sound:
            return 1.0
        part = 0.5
        while taken * part > _SHORTEST and not pareto_smooth(part * step[None]).sound:
            part /= 2
        return taken * part

    def _pursue(self, known: _View[D], share: float) -> tuple[Round, float]:
        total, norms = known.moments
        goal = (1 - share) * known.own + share * total
        problem, candidates = tangent_problem(
            self.posterior, known.draws, rng=self.rng, moments=(goal, norms)
        )
        method = Pursuit(tolerance=min(_MARGIN * self.options.tolerance, _LOOSEST))
        size = min(self.size, problem.n_obs)
        patience = max(_LEAST_PATIENCE, size // 10)
        solution = solve(method, problem, size, rng=self.rng, patience=patience)
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        chosen = Round(indices=candidates[solution.indices], weights=solution.weights)
        return chosen, float(solution.history.objective[-1])
