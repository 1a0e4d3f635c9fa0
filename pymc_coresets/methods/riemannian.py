"""Riemannian pursuit: choose the rows under the coreset's own posterior, again and again."""

import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.methods.adaptive import judge
from pymc_coresets.methods.job import Job, rows_of_a_quadratic
from pymc_coresets.methods.metering import Metered
from pymc_coresets.methods.posterior import CoresetPosterior
from pymc_coresets.methods.pursuit import Pursuit
from pymc_coresets.options import positive_number, whole_number
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.source import Look
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.candidates import default_n_draws, n_candidates, problem_at
from pymc_coresets.solving.loop import solve
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Progress, Solution, Status, Trace

__all__ = ["RiemannianPursuit", "Round"]

_log = logging.getLogger(__name__)

_MARGIN = 0.1  # of the tolerance, within a round: the next posterior will differ from this one
_LOOSEST = 0.1  # nats, within a round: with fewer rows some directions are not matched at all
_LEAST_PATIENCE = 20  # rows that do not help on held-out draws before a round ends
_SHORTEST = 2.0**-10  # smallest share of a step
_LEAST_START = 1_000  # rows
_ROWS_PER_DIMENSION = 50  # of the start: from a tenth of that, the rounds diverged in a hierarchy


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """A coreset, and how far from the full posterior its own draws say that it is.

    Parameters
    ----------
    rows : Rows
        Rows of the coreset.
    weights : ndarray of float64
        Their weights.
    objective : float
        ``Var(log r)`` in nats over draws of its own posterior, which chose nothing.

    Examples
    --------
    >>> Round(rows=Rows(np.arange(2), np.ones(2)), weights=np.ones(2)).objective
    inf
    """

    rows: Rows
    weights: Vector
    objective: float = math.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class View[D]:
    """A coreset with draws of its posterior, and the sums of the potentials there.

    Parameters
    ----------
    coreset : Round
        What was measured.
    draws : object
        Draws of its posterior, of the posterior's own type.
    own : ndarray of shape (n_draws,)
        Weighted sum of the centred potentials of its own rows, in nats.
    look : Look
        The same sum over all rows, and candidates for the next round.
    """

    coreset: Round
    draws: D
    own: Vector
    look: Look


@dataclass(frozen=True)
class Accept[D]:
    """The last step is kept: the next round starts from its draws, and aims at all rows.

    Parameters
    ----------
    view : View
        Where the step led.
    """

    view: View[D]


@dataclass(frozen=True)
class Damp:
    """The last step was too long: the next one starts where it did, and goes part of the way.

    Parameters
    ----------
    share : float
        Of the way to the sum over all rows, below 1.

    Examples
    --------
    >>> Damp(0.5).share
    0.5
    """

    share: float


@dataclass(frozen=True, kw_only=True)
class RiemannianPursuit:
    """Rounds of draws from the coreset's posterior, and pursuit in the tangent space there.

    Every Hilbert coreset is limited by its weighting distribution: rows are matched only where the
    draws are.  Here the draws come from the coreset's own posterior, which comes closer to the
    full one with every round, so that nothing need be known about the full posterior in advance.
    One round costs a run of the sampler on the coreset, one pass over the data for `draws`
    log-likelihoods per row, and one pursuit.

    Parameters
    ----------
    tolerance : float, default 0.01
        Stop when the symmetrised KL divergence is estimated below this many nats.  A round adds
        no rows beyond a tenth of it (0.1 nats at most), nor when they no longer help on held-out
        draws.
    draws : int, optional
        Draws per round; by default 4 for each wanted row or, where there are more of these, each
        free dimension, but 500 at least and 2 000 at most.
    start_size : int, optional
        Rows of the uniform coreset that the first draws come from; by default 50 for each free
        dimension, but 1 000 at least.  Where these draws are too far from the full posterior,
        the rounds may not converge to it.
    max_rounds : int, default 8
        Largest number of rounds.
    patience : int, default 2
        Stop after this many rounds without improvement.

    Raises
    ------
    InvalidOptionError
        If an option is not positive.

    Notes
    -----
    For draws of pi_w, ``Var(log r)`` with ``log r = sum_n (u_n - w_n) f_n`` is the objective
    ``||L - L(w)||^2`` in the tangent space at pi_w, and estimates the symmetrised KL divergence
    between pi_w and the full posterior (Campbell and Beronov 2019, Proposition 2).  The best
    round by this measure is returned.  Where all of them came out worse than the start, uniform
    weights are measured too: those of the start, or fewer where the start is larger than `size`.

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

    name: ClassVar[str] = "auto"
    accepts: ClassVar[Collection[str]] = frozenset({"size", "tolerance", "time_budget"})
    draws_from: ClassVar[str] = "the coreset's posterior"

    tolerance: float = 0.01
    draws: int | None = None
    start_size: int | None = None
    max_rounds: int = 8
    patience: int = 2

    def __post_init__(self) -> None:
        positive_number("tolerance", self.tolerance)
        for name in ("max_rounds", "patience"):
            whole_number(name, getattr(self, name), least=1)
        if self.start_size is not None:
            whole_number("start_size", self.start_size, least=1)
        if self.draws is not None:
            whole_number("draws", self.draws, least=100)

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """Twice as many rows as match a quadratic log-likelihood, 100 to 1 000."""
        return min(n_rows, max(100, min(2 * rows_of_a_quadratic(n_dims), 1_000)))

    def run(self, job: Job[Any]) -> Solution:
        """Choose rows in rounds, until the tolerance is met."""
        with job.report.part("rounds", total=self.max_rounds + 1) as show:
            return self.construct(
                job.posterior, job.size, rng=job.rng, callback=show, deadline=job.deadline
            )

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
            The best round; the trace has an entry for every coreset that was measured: the
            start, one per round, and perhaps a uniform one at the end.

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
            rows=best.rows,
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
        self.n_draws = options.draws or default_n_draws(size, n_dims)
        self.n_candidates = n_candidates(self.n_draws)
        self.scale = 0.0  # of the tangent vectors, by the last look
        start_size = options.start_size or max(_LEAST_START, _ROWS_PER_DIMENSION * n_dims)
        self.steps: list[Progress] = []
        self.best, self.start = self._uniform(size), self._uniform(start_size)

    def _uniform(self, size: int) -> Round:
        scan = self.posterior.scan(size, key=random_key(self.rng))
        return Round(rows=scan.rows, weights=scan.weights)

    def rounds(self, deadline: float) -> Status:
        # The first draws are only to find the region of the posterior.
        known = self._look(self.start, math.nan, draw=self.posterior.rough_draw)
        self.start = known.coreset
        if len(self.start.rows) <= self.size:
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
            match self._decide(known, current, view, share):
                case Accept(accepted):
                    known, share = accepted, 1.0
                case Damp(share):
                    pass
        return Status.ITERATION_LIMIT

    def fall_back(self, status: Status, deadline: float) -> Status:
        """Try uniform weights: those of the start if they fit, whose first draws were rough."""
        if time.perf_counter() > deadline:
            return Status.OUT_OF_TIME
        fits = len(self.start.rows) <= self.size
        view = self._try(self.start if fits else self._uniform(self.size), math.nan)
        if view is not None and view.coreset.objective < self.best.objective:
            self.best = view.coreset
        within = self.best.objective <= self.options.tolerance
        return Status.TOLERANCE_REACHED if within else status

    def _try(self, coreset: Round, predicted: float) -> View[D] | None:
        """Measure a coreset, unless its posterior defeats the sampler or the likelihood."""
        try:
            view = self._look(coreset, predicted, draw=self.posterior.draw)
        except SamplingError as error:
            _log.info("A round is taken back: %s", error)
            self._record(coreset, predicted, math.inf, {})
            return None
        return view if math.isfinite(view.coreset.objective) else None

    def _look(self, coreset: Round, predicted: float, *, draw: Callable[..., D]) -> View[D]:
        """Draw from a coreset's posterior, and see how much log r varies there."""
        draws = draw(coreset.rows, coreset.weights, self.n_draws, rng=self.rng.spawn(1)[0])
        loglik = self.posterior.loglik(draws, coreset.rows)
        if not self.scale:
            self.scale = float(coreset.weights @ loglik.std(axis=1))
        look = self.posterior.look(
            draws,
            n_candidates=self.n_candidates,
            scale=self.scale,
            key=random_key(self.rng),
        )
        self.scale = look.norm_total
        own = coreset.weights @ (loglik - loglik.mean(axis=1, keepdims=True))
        log_ratios = look.total - own
        finite = bool(np.isfinite(log_ratios).all())
        objective = float(np.var(log_ratios)) if finite else math.inf
        self._record(coreset, predicted, objective, judge(log_ratios) if finite else {})
        measured = replace(coreset, objective=objective)
        return View(coreset=measured, draws=draws, own=own, look=look)

    def _record(
        self, coreset: Round, predicted: float, objective: float, judged: dict[str, Any]
    ) -> None:
        progress = Progress(
            size=len(coreset.rows),
            objective=predicted,
            heldout_objective=objective,
            seconds=time.perf_counter() - self.started,
            **judged,
            **self.posterior.costs,
        )
        self.steps.append(progress)
        if self.callback is not None:
            self.callback(progress)

    def _decide(
        self, known: View[D], coreset: Round, view: View[D] | None, taken: float
    ) -> Accept[D] | Damp:
        """Accept a step unless it came out worse because it was too long."""
        if view is not None and view.coreset.objective < known.coreset.objective:
            return Accept(view)
        there = coreset.weights @ self.posterior.loglik(known.draws, coreset.rows)
        step = there - known.own
        if view is not None and pareto_smooth(step[None]).sound:
            return Accept(view)
        part = 0.5
        while taken * part > _SHORTEST and not pareto_smooth(part * step[None]).sound:
            part /= 2
        return Damp(taken * part)

    def _pursue(self, known: View[D], share: float) -> tuple[Round, float]:
        goal = (1 - share) * known.own + share * known.look.total
        problem = problem_at(self.posterior, known.draws, known.look, rng=self.rng, goal=goal)
        method = Pursuit(tolerance=min(_MARGIN * self.options.tolerance, _LOOSEST))
        size = min(self.size, problem.n_obs)
        patience = max(_LEAST_PATIENCE, size // 10)
        selection = solve(method, problem, size, rng=self.rng, patience=patience)
        if selection.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        rows = known.look.candidates.take(selection.indices)
        chosen = Round(rows=rows, weights=selection.weights)
        return chosen, float(selection.history.objective[-1])
