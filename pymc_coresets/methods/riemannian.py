"""Riemannian pursuit: choose rows at draws near the full posterior, then at the coreset's own."""

import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pymc_coresets.deadline import doing, until
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE
from pymc_coresets.diagnostics.known_posterior import Modes, Proposal
from pymc_coresets.exceptions import InvalidDataError, OutOfTimeError, SamplingError
from pymc_coresets.methods.best_of_rounds import Best, Place, Rounds
from pymc_coresets.methods.job import (
    AIM,
    Job,
    candidates_to_keep,
    draws_around_mode,
    draws_to_certify,
    rows_of_a_quadratic,
)
from pymc_coresets.methods.loop import Measure, Measurement, decide
from pymc_coresets.methods.pursuit import pursue
from pymc_coresets.options import if_given, positive_number, whole_number
from pymc_coresets.rows.keyed import random_key, rows_to_start
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.solving.problem import Matrix, Vector, default_n_draws, total_length
from pymc_coresets.solving.solution import History, Selection, Solution, Status

_log = logging.getLogger(__name__)

#: Units by which the mean length of tangent vectors is known to a tenth: others take long.
_UNITS_FOR_SCALE = 200


@dataclass(frozen=True, kw_only=True)
class RiemannianPursuit:
    """Pursuit at draws from around the full posterior's mode, then at the coreset's own.

    Every Hilbert coreset is limited by its weighting distribution: rows are matched only near the
    draws.  The first draws come from a normal distribution, a tenth of them from a t distribution,
    with the mode and curvature of the posterior of all rows, which take a few dozen gradients.  One
    pass over the data at these draws is enough to choose the rows, and one more, at fresh draws of
    the coreset's own posterior (400, or 200 with more than half a million), to measure their
    accuracy.  If the tolerance is not met, or the posterior has no mode (as in many hierarchies),
    rounds follow: draws from the coreset's own posterior, which comes closer to the full one with
    every round, one pass over the data, and one pursuit.

    Parameters
    ----------
    tolerance : float, default 0.01
        Stop when the symmetrised KL divergence is estimated below this many nats.  A round adds
        no rows beyond a tenth of it (0.1 nats at most), nor once they bring no gain on held-out
        draws.
    draws : int, optional
        Draws of each pass that chooses rows.  By default 2 K around the mode (K as in
        `rows_of_a_quadratic`), and in rounds 4 for each wanted row (K of them at most) or, if
        there are more of these, each free dimension; at least 500 (around the mode, 1,000 for up
        to 50,000 rows, and 150 for more than two million) and at most 4,000.
    start_size : int, optional
        Rows of the uniform coreset at which the search for the mode starts, and from whose
        posterior the first draws come if there is no mode; by default 50 for each free dimension,
        and at least 1,000.  If its posterior is too far from the full one, the rounds may not
        converge.
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
    The draws around the mode have importance weights, since all rows are evaluated there.  These
    are used for the held-out draws, which decide when to stop; draws that choose rows have equal
    weights, since otherwise only a few of large weight would be matched.

    For draws of pi_w, ``Var(log r)`` with ``log r = sum_n (u_n - w_n) f_n`` is the objective
    ``||L - L(w)||^2`` in the tangent space at pi_w, and estimates the symmetrised KL divergence
    between pi_w and the full posterior (Campbell and Beronov 2019, Proposition 2).  The best
    round by this measure is returned.  If all of them are worse than the start, uniform weights
    are measured too: those of the start, or fewer if the start is larger than `size`.

    A step from w to w' may leave the region covered by the draws of pi_w.  If a round is worse, and
    the importance weights ``exp(sum_n (w'_n - w_n) f_n)`` at the old draws confirm that the step
    was too long (Pareto k-hat above 0.7, or an effective sample size below a quarter of the draws),
    it is discarded: the next round pursues ``(1 - g) L(w) + g L`` from the old draws, for the
    largest g among 1/2, 1/4, ... at which those weights are usable.  A damped step that is worse is
    damped further.

    Examples
    --------
    >>> RiemannianPursuit(tolerance=0.1).max_rounds
    8
    """

    name: ClassVar[str] = "riemannian_pursuit"
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
        if_given(whole_number, "start_size", self.start_size, least=1)
        if_given(whole_number, "draws", self.draws, least=100)

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """Twice as many rows as match a quadratic log-likelihood, 100 to 1,000."""
        return min(n_rows, max(100, min(2 * rows_of_a_quadratic(n_dims), 1_000)))

    def run[D](self, job: Job[D]) -> Solution:
        """Choose rows in rounds, until the tolerance is met.

        The history has an entry for every coreset measured: that of the draws around the mode, or
        the start; one per round; possibly a uniform one at the end.

        Raises
        ------
        KeyboardInterrupt
            If interrupted before there are any draws.
        SamplingError, InvalidDataError
            If the start cannot be sampled, or its draws cannot be used.
        """
        with job.report.part("rounds", total=self.max_rounds + 1) as show:
            return _Run(self, job, History(show)).solution()


@dataclass(frozen=True, eq=False)
class _Place(Place):
    """The start of a round, and the length of its step as a share of the way to all rows."""

    known: Measurement
    share: float = 1.0
    unimproved: int = 0


class _Run[D]:
    """One construction: what its rounds propose, and where they begin."""

    def __init__(self, options: RiemannianPursuit, job: Job[D], history: History) -> None:
        self.options, self.job, self.size = options, job, job.size
        self.posterior, self.rng, self.history = job.posterior, job.rng, history
        self.measure = Measure(self.posterior, self.rng, history=history)
        n_dims = self.posterior.n_dims
        wanted = min(self.size, rows_of_a_quadratic(n_dims))
        self.n_draws = options.draws or default_n_draws(wanted, n_dims)
        self.best = Best(
            self._again,
            tolerance=options.tolerance,
            goal=AIM * options.tolerance,
        )
        self.scale = 0.0  # of the tangent vectors, by the last pass
        self.start_size = options.start_size or rows_to_start(n_dims)
        self.proposed: Proposal[D] | None = None
        self.modes: Modes | None = None
        self.unmeasured, self.start = self._uniform(self.size), self._uniform(self.start_size)
        self.objective_of_start = math.inf

    @property
    def is_late(self) -> bool:
        """Whether no further round should begin."""
        return time.perf_counter() > self.job.deadline

    def solution(self) -> Solution:
        """Return the best coreset, or an unmeasured one if none was measured."""
        try:
            with until(self.job.deadline), doing("choosing rows"):
                status = self.status()
        except OutOfTimeError:
            status = Status.OUT_OF_TIME
        except KeyboardInterrupt:
            if not self.history.steps:
                raise
            status = Status.INTERRUPTED
        else:
            status = self.best.concluded(status, self.job.deadline)
        best = self.best.measured
        found: dict[str, Any] = {"proposal": self.proposed, "modes": self.modes}
        if best is None or not math.isfinite(best.objective):
            return self.history.solution(self.unmeasured, status, math.nan, **found)
        found["proposal"] = self._proposal(best)
        return self.history.solution(best, status, **best.facts, **found)

    def _proposal(self, best: Measurement) -> Proposal[D] | None:
        """Return the draws around the mode, or those of the coreset if only they weigh reliably.

        Chains start at some of them: from elsewhere, they may end in modes that only the coreset's
        posterior has.
        """
        proposed = self.proposed
        if proposed is None or not best.is_judged:
            return proposed
        if proposed.is_reliable or best.certificate.pareto_khat >= KHAT_RELIABLE:
            return proposed
        return Proposal(draws=best.draws, log_ratios=best.log_ratios, modes=self.modes)

    def status(self) -> Status:
        """Run the rounds, and return why they ended."""
        known = self.first_view()
        if isinstance(known, Status):
            return known
        status = Rounds(self._propose, self._try, self._follow, self.best).run(
            _Place(known), limit=self.options.max_rounds, deadline=self.job.deadline
        )
        enough = max(self.options.tolerance, self.objective_of_start)
        if status is Status.INTERRUPTED or self.best.objective <= enough:
            return status
        return self.fall_back(status)

    def _uniform(self, size: int) -> Selection:
        subsample = self.job.subsample(size)
        return Selection(rows=subsample.rows, weights=subsample.weights)

    def _propose(self, place: _Place) -> Solution:
        """Choose rows at the draws of the last coreset that was accepted."""
        known, share = place.known, place.share
        target = (1 - share) * known.own + share * known.sums.total
        return self._pursue(known.draws, known.sums, target)

    def _follow(self, place: _Place, chosen: Selection, view: Measurement, before: float) -> _Place:
        """Accept a step, or shorten it; end after several that were no better."""
        known, unimproved = place.known, 0 if view.objective < before else place.unimproved + 1
        if unimproved >= self.options.patience:
            is_drawn = math.isfinite(view.objective)
            return replace(place, status=Status.NO_PROGRESS if is_drawn else Status.SAMPLING_FAILED)

        def change() -> Vector:  # of the log-density at known draws, which were of another coreset
            loglik = self.measure.loglik(known.draws, chosen.rows, len(known.own))
            return chosen.weights @ loglik - known.own

        return _Place(*decide(known, view, change, place.share), unimproved)

    def first_view(self) -> Measurement | Status:
        """Return the start of the rounds, or a status if none are needed."""
        found = self._one_pass()
        if found is None:
            return self._view_of_start()
        self.unmeasured = found
        if self.is_late:
            return Status.OUT_OF_TIME
        # If more rounds are likely, the draws that certify are reused in the next one.
        enough = found.objective <= self.best.goal
        view = self._try(found, draws_to_certify(self.posterior.n_terms) if enough else None)
        if not math.isfinite(view.objective):
            return self._view_of_start()
        self.best.takes(view)
        if self.best.is_met():
            return self.best.met
        if self.is_late:
            return Status.OUT_OF_TIME
        if not len(view.sums.candidates):
            view = self._try(view)
        return view if math.isfinite(view.objective) else Status.SAMPLING_FAILED

    def _view_of_start(self) -> Measurement:
        # These draws only locate the region of the posterior.
        known = self._measured(self.start, math.nan, draw=self.posterior.rough_draw)
        self.objective_of_start = known.objective
        if len(self.start.rows) <= self.size:
            self.unmeasured = self.start  # any round will do better
        return known

    def _one_pass(self) -> Solution | None:
        """Choose rows at draws from around the mode; None if that fails."""
        default = draws_around_mode(self.posterior.n_dims, self.posterior.n_terms)
        n_draws, rng = self.options.draws or default, self.rng.spawn(1)[0]
        with self.history.drawing():
            proposal = self.job.propose(n_draws, start_size=self.start_size, rng=rng)
        if proposal is None:
            return None
        n_draws = len(proposal.log_ratios)
        if not self.scale and self._n_candidates(n_draws) < self.posterior.n_rows:
            known = self._uniform(_UNITS_FOR_SCALE) if self._n_units < math.inf else self.start
            loglik = self.measure.loglik(proposal.draws, known.rows, n_draws)
            self.scale = total_length(loglik, known.weights)
        sums = self._candidates(proposal.draws, n_draws)
        self.proposed, self.modes = proposal.weighed(sums.total), proposal.modes
        if self.proposed is None:
            return None
        n_kept = len(self.proposed.log_ratios)
        if n_kept < n_draws:  # rows that are impossible at the others were no candidates
            sums = self._candidates(self.proposed.draws, n_kept)
        weights = self.proposed.smoothed.weights[0] if self.proposed.is_reliable else None
        try:
            return self._pursue(self.proposed.draws, sums, sums.total, weights)
        except InvalidDataError as error:  # hardly any of them differ: that is no mode
            _log.info("The draws around the mode cannot be used: %s", error.message)
            self.proposed = self.modes = None
            return None

    def fall_back(self, status: Status) -> Status:
        """Try uniform weights: those of the start if they fit, whose first draws were rough."""
        if self.is_late:
            return Status.OUT_OF_TIME
        fits = len(self.start.rows) <= self.size
        self.best.takes(self._try(self.start if fits else self._uniform(self.size)))
        return self.best.met if self.best.is_met() else status

    def _again(self, best: Measurement, n_draws: int) -> Measurement:
        """Measure a coreset at fresh draws, if there are any."""
        view = self._try(best.support, n_draws)
        return view if math.isfinite(view.objective) else best

    def _try(self, chosen: Selection, n_certifying: int | None = None) -> Measurement:
        """Measure a coreset: at infinity, if its posterior cannot be sampled or evaluated.

        No candidates are kept if the draws only certify.
        """
        predicted = math.nan
        if isinstance(chosen, Solution):
            predicted = float(chosen.history["objective"][-1])
        try:
            return self._measured(chosen, predicted, n_certifying)
        except SamplingError as error:
            _log.info("A round was discarded: %s", error)
            self.history.add(size=chosen.size, objective=predicted, heldout_objective=math.inf)
            return Measurement.failed(chosen)

    def _measured(
        self,
        chosen: Selection,
        predicted: float,
        n_certifying: int | None = None,
        draw: Callable[..., D] | None = None,
    ) -> Measurement:
        """Measure the variance of log r over a coreset's posterior, and add it to the history."""
        n_draws = n_certifying or self.n_draws

        def sums(draws: D, loglik: Matrix) -> PassSums:
            self.scale = self.scale or total_length(loglik, chosen.weights)
            return self._candidates(draws, n_draws)

        measured = self.measure.at(
            chosen,
            n_draws,
            rng=self.rng.spawn(1)[0],
            draw=draw,
            sums=sums if n_certifying is None else None,
        )
        measured.enter(self.history, predicted)
        return measured

    def _candidates(self, draws: D, n_draws: int) -> PassSums:
        """Pass over all rows, and keep candidates."""
        n_candidates, key = self._n_candidates(n_draws), random_key(self.rng)
        sums = self.measure.sums(
            draws, n_draws, n_candidates=n_candidates, scale=self.scale, key=key
        )
        self.scale = sums.norm_total or self.scale
        return sums

    def _n_candidates(self, n_draws: int) -> int:
        """Return how many candidates a pass keeps; if these are all rows, it needs no scale."""
        return candidates_to_keep(self.posterior.n_dims, self.size, n_draws, self._n_units)

    @property
    def _n_units(self) -> float:
        """Number of rows, if these are units of many terms each; otherwise infinite."""
        n_rows = self.posterior.n_rows
        return n_rows if self.posterior.n_terms > n_rows else math.inf

    def _pursue(
        self, draws: D, sums: PassSums, target: Vector, weights: Vector | None = None
    ) -> Solution:
        """Choose candidates of a pass that match a target, such as the sum over all rows."""
        loglik = self.measure.of_candidates(draws, sums)
        tolerance, rng = self.options.tolerance, self.rng
        return pursue(
            loglik, sums, target, self.size, tolerance=tolerance, rng=rng, weights=weights
        )
