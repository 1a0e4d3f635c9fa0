"""Riemannian pursuit: choose the rows where the full posterior is, and see where they lead."""

import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Modes, Proposal
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.methods.adaptive import TangentDraws, judge
from pymc_coresets.methods.job import (
    AIM,
    CoresetPosterior,
    Job,
    candidates_to_keep,
    draws_around_mode,
    draws_to_certify,
    rows_of_a_quadratic,
)
from pymc_coresets.methods.pursuit import pursue
from pymc_coresets.methods.rounds import Round, View, decide
from pymc_coresets.options import positive_number, whole_number
from pymc_coresets.rows.keyed import random_key, rows_to_start
from pymc_coresets.rows.passes import Look
from pymc_coresets.solving.candidates import default_n_draws, total_length
from pymc_coresets.solving.loop import advance
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import History, Progress, Selection, Solution, Status

type Propose[D] = Callable[..., Proposal[D] | None] | None

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RiemannianPursuit:
    """Pursuit at draws from around the full posterior's mode, then at the coreset's own.

    Every Hilbert coreset is limited by its weighting distribution: rows are matched only where the
    draws are.  The first come from a normal distribution, a tenth of them from a t distribution,
    with the mode and curvature of the posterior of all rows, which some tens of gradients find.
    One pass over the data at these draws is enough to choose the rows, and one more, at fresh draws
    of the coreset's own posterior (400, or 200 where there are more than two million rows), to say
    how good they are.  Where that is not good enough, or the posterior has no mode (as in many
    hierarchies), rounds follow: draws from the coreset's own posterior, which comes closer to the
    full one with every round, one pass over the data, and one pursuit.

    Parameters
    ----------
    tolerance : float, default 0.01
        Stop when the symmetrised KL divergence is estimated below this many nats.  A round adds
        no rows beyond a tenth of it (0.1 nats at most), nor when they no longer help on held-out
        draws.
    draws : int, optional
        Draws of each pass that chooses rows.  By default 2 K around the mode (K as in
        `rows_of_a_quadratic`), and in rounds 4 for each wanted row, of which K count at most, or,
        where there are more of these, each free dimension; but 500 at least (around the mode, 1 000
        of up to 50 000 rows, and 150 of more than two million) and 4 000 at most.
    start_size : int, optional
        Rows of the uniform coreset from which the mode is looked for, and from whose posterior the
        first draws come where there is none; by default 50 for each free dimension, but 1 000 at
        least.  Where its posterior is too far from the full one, the rounds may not converge.
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
    The draws around the mode have importance weights, since all rows are evaluated there.  They
    weigh the draws that are held out to say when to stop; those that choose count alike, since few
    of large weight would be matched and no others.

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
    accepts: ClassVar[Collection[str]] = frozenset({"rows", "size", "tolerance", "time_budget"})
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
                job.posterior,
                job.size,
                rng=job.rng,
                propose=job.propose,
                callback=show,
                deadline=job.deadline,
                sample_key=job.sample_key,
                n_terms=job.loglikelihood.n_terms,
            )

    def construct[D](
        self,
        posterior: CoresetPosterior[D],
        size: int,
        *,
        rng: np.random.Generator,
        propose: Propose[D] = None,
        callback: Callable[[Progress], object] | None = None,
        deadline: float = np.inf,
        sample_key: int | None = None,
        n_terms: int | None = None,
    ) -> Solution:
        """Choose at most `size` weighted rows.

        Parameters
        ----------
        posterior : CoresetPosterior
            Samples coreset posteriors, and evaluates potentials.
        size : int
            Largest number of weights.
        rng : numpy.random.Generator
        propose : callable, optional
            Draws from around the mode of the full posterior; without it, or where it finds none,
            the rounds begin at once.
        callback : callable, optional
            Called with a `Progress` after every round.
        deadline : float
            Value of `time.perf_counter` after which no round begins.
        sample_key : int, optional
            Of distinct rows for the uniform coresets, the smaller a part of the larger.  By
            default they are drawn anew each time, with replacement.
        n_terms : int, optional
            How many terms one draw of a pass costs, which says how many draws are worth it; by
            default as many as there are rows.

        Returns
        -------
        Solution
            The best coreset; the trace has an entry for every one that was measured: that of the
            draws around the mode, or the start; one per round; perhaps a uniform one at the end.

        Raises
        ------
        KeyboardInterrupt
            If it comes before there are any draws.
        SamplingError, InvalidDataError
            If the start cannot be sampled, or its draws cannot be used.
        """
        source = TangentDraws(posterior, rng, history=History(callback))
        run = _Run(self, source, size, sample_key, n_terms or posterior.n_rows)
        try:
            known = run.first_view(deadline, propose)
            status = known if isinstance(known, Status) else run.rounds(known, deadline)
            interrupted = status is Status.INTERRUPTED
            if not interrupted and run.best.objective > max(self.tolerance, run.start.objective):
                status = run.fall_back(status, deadline)
        except KeyboardInterrupt:
            if not run.history.steps:
                raise
            status = Status.INTERRUPTED
        best = run.best
        return run.history.solution(
            best.rows, best.weights, status, best.objective,
            log_ratios=best.log_ratios, draws=best.draws, proposal=run.proposed, modes=run.modes,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Place[D]:
    """Where a round begins, and how much of the way to all rows it goes."""

    known: View[D]
    share: float = 1.0
    unimproved: int = 0
    status: Status | None = None


class _Run[D]:
    """One construction: the best of its rounds, and what they share."""

    def __init__(
        self,
        options: RiemannianPursuit,
        source: TangentDraws[D],
        size: int,
        sample_key: int | None,
        n_terms: int,
    ) -> None:
        self.options, self.size, self._sample_key = options, size, sample_key
        self.n_terms = n_terms
        self.source, self.posterior = source, source.posterior
        self.rng, self.history = source.rng, source.history
        n_dims = self.posterior.n_dims
        wanted = min(size, rows_of_a_quadratic(n_dims))
        self.n_draws = options.draws or default_n_draws(wanted, n_dims)
        self.scale = 0.0  # of the tangent vectors, by the last look
        self.start_size = options.start_size or rows_to_start(n_dims)
        self.proposed: Proposal[D] | None = None
        self.modes: Modes | None = None
        self.best, self.start = self._uniform(size), self._uniform(self.start_size)

    def _uniform(self, size: int) -> Round:
        distinct = self._sample_key is not None
        key = random_key(self.rng) if self._sample_key is None else self._sample_key
        scan = self.posterior.scan(size, key=key, distinct=distinct)
        return Round(rows=scan.rows, weights=scan.weights)

    def rounds(self, known: View[D], deadline: float) -> Status:
        start, limit = _Place(known), self.options.max_rounds
        return advance(start, self._round, lambda p: p.status, limit=limit, deadline=deadline)[1]

    def _round(self, place: _Place[D]) -> _Place[D]:
        known, share = place.known, place.share
        goal = (1 - share) * known.own + share * known.look.total
        current, selection = self._pursue(known.draws, known.look, goal)
        view = self._try(current, selection)
        unimproved = 0 if self._improves(view) else place.unimproved + 1
        if self.best.objective <= AIM * self.options.tolerance:
            return replace(place, status=Status.TOLERANCE_REACHED)
        if unimproved >= self.options.patience:
            failed = Status.SAMPLING_FAILED if view is None else Status.NO_PROGRESS
            return replace(place, status=failed)
        known, share = decide(known, view, partial(self._change, known, current), share)
        return _Place(known, share, unimproved)

    def _improves(self, view: View[D] | None) -> bool:
        """Keep a coreset that is better than those before."""
        if view is None or view.coreset.objective >= self.best.objective:
            return False
        self.best = view.coreset
        return True

    def first_view(self, deadline: float, propose: Propose[D]) -> View[D] | Status:
        """Return what the rounds begin with, or why there is no need of any."""
        found = None if propose is None else self._one_look(propose)
        if found is None:
            return self._view_of_start()
        self.best, selection = found
        if time.perf_counter() > deadline:
            return Status.OUT_OF_TIME
        # Where more rounds are likely, the draws that certify serve for the next of them, too.
        enough = selection.objective <= AIM * self.options.tolerance
        certifying = draws_to_certify(self.n_terms) if enough else None
        view = self._try(self.best, selection, n_draws=certifying)
        if view is None:
            return self._view_of_start()
        self.best = view.coreset
        if self.best.objective <= AIM * self.options.tolerance:
            return Status.TOLERANCE_REACHED
        if time.perf_counter() > deadline:
            return Status.OUT_OF_TIME
        if not len(view.look.candidates):
            view = self._try(self.best)
        return Status.SAMPLING_FAILED if view is None else view

    def _view_of_start(self) -> View[D]:
        # These draws are only to find the region of the posterior.
        known = self._look(self.start, math.nan, self.posterior.rough_draw)
        self.start = known.coreset
        if len(self.start.rows) <= self.size:
            self.best = replace(self.start, objective=math.inf)  # any round will do better
        return known

    def _one_look(
        self, propose: Callable[..., Proposal[D] | None]
    ) -> tuple[Round, Selection] | None:
        """Choose rows at draws from around the mode; None where that leads to no coreset."""
        default = draws_around_mode(self.posterior.n_dims, self.n_terms)
        n_draws, rng = self.options.draws or default, self.rng.spawn(1)[0]
        with self.history.drawing():
            proposal = propose(n_draws, start_size=self.start_size, rng=rng)
        if proposal is None:
            return None
        n_draws = len(proposal.log_ratios)
        look = self._all_rows(proposal.draws, self.start, n_draws, choosing=True)
        self.proposed, self.modes = proposal.weighed(look.total), proposal.modes
        if self.proposed is None:
            return None
        n_kept = len(self.proposed.log_ratios)
        if n_kept < n_draws:  # rows that are impossible at the others were no candidates
            look = self._all_rows(self.proposed.draws, self.start, n_kept, choosing=True)
        smoothed = pareto_smooth(self.proposed.log_ratios[None])
        weights = smoothed.weights[0] if smoothed.pareto_khat < KHAT_RELIABLE else None
        return self._pursue(self.proposed.draws, look, look.total, weights)

    def fall_back(self, status: Status, deadline: float) -> Status:
        """Try uniform weights: those of the start if they fit, whose first draws were rough."""
        if time.perf_counter() > deadline:
            return Status.OUT_OF_TIME
        fits = len(self.start.rows) <= self.size
        self._improves(self._try(self.start if fits else self._uniform(self.size)))
        is_enough = self.best.objective <= AIM * self.options.tolerance
        return Status.TOLERANCE_REACHED if is_enough else status

    def _try(
        self, coreset: Round, selection: Selection | None = None, *, n_draws: int | None = None
    ) -> View[D] | None:
        """Measure a coreset, unless its posterior defeats the sampler or the likelihood."""
        predicted = math.nan if selection is None else float(selection.history.objective[-1])
        try:
            view = self._look(coreset, predicted, self.posterior.draw, n_draws)
        except SamplingError as error:
            _log.info("A round is taken back: %s", error)
            self._record(coreset, predicted, None)
            return None
        return view if math.isfinite(view.coreset.objective) else None

    def _look(
        self, coreset: Round, predicted: float, draw: Callable[..., D], n_draws: int | None = None
    ) -> View[D]:
        """See how much log r varies over a coreset's posterior; no candidates with `n_draws`."""
        n = n_draws or self.n_draws
        rng = self.rng.spawn(1)[0]
        with self.history.drawing():
            draws = draw(coreset.rows, coreset.weights, n, rng=rng)
        look = self._all_rows(draws, coreset, n, choosing=n_draws is None)
        loglik = self.source.loglik(draws, coreset.rows, n)
        own = coreset.weights @ (loglik - loglik.mean(axis=1, keepdims=True))
        log_ratios = look.total - own
        finite = log_ratios if np.isfinite(log_ratios).all() else None
        objective = self._record(coreset, predicted, finite)
        measured = replace(coreset, objective=objective, log_ratios=finite, draws=draws)
        return View(coreset=measured, draws=draws, own=own, look=look)

    def _all_rows(self, draws: D, some: Round, n_draws: int, *, choosing: bool) -> Look:
        """Look at all rows, and take candidates if these draws are to choose any."""
        posterior, n_rows = self.posterior, self.posterior.n_rows
        wanted: dict[str, Any] = {}
        if choosing:
            if not self.scale:
                loglik = self.source.loglik(draws, some.rows, n_draws)
                self.scale = total_length(loglik, some.weights)
            n_candidates = candidates_to_keep(posterior.n_dims, self.size, n_draws)
            key = random_key(self.rng)
            wanted = {"n_candidates": n_candidates, "scale": self.scale, "key": key}
        with self.history.evaluating(n_rows, n_draws, of=n_rows):
            look = posterior.look(draws, **wanted)
        self.scale = look.norm_total or self.scale
        return look

    def _record(self, coreset: Round, predicted: float, log_ratios: Vector | None) -> float:
        """Add a step to the history, and return its objective."""
        found, judged = math.inf, {}
        if log_ratios is not None:
            found, judged = float(np.var(log_ratios)), judge(log_ratios)
        size = len(coreset.rows)
        self.history.add(size=size, objective=predicted, heldout_objective=found, **judged)
        return found

    def _change(self, known: View[D], coreset: Round) -> Vector:
        """Change of the log-density at known draws, if they were of another coreset."""
        loglik = self.source.loglik(known.draws, coreset.rows, len(known.own))
        return coreset.weights @ loglik - known.own

    def _pursue(
        self, draws: D, look: Look, goal: Vector, weights: Vector | None = None
    ) -> tuple[Round, Selection]:
        """Choose among the candidates of a look what matches the goal at its draws."""
        loglik = self.source.loglik(draws, look.candidates, len(goal))
        tolerance = self.options.tolerance
        selection = pursue(
            loglik, look, self.size, tolerance=tolerance, rng=self.rng, goal=goal, weights=weights
        )
        rows = look.candidates.take(selection.indices)
        return Round(rows=rows, weights=selection.weights), selection
