"""The method: a quadratic for all rows, rows for its residual, and rounds at its own draws."""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np

from pymc_coresets.deadline import doing, until
from pymc_coresets.diagnostics.known_posterior import Modes, Proposal
from pymc_coresets.exceptions import (
    InvalidDataError,
    OutOfTimeError,
    UnsupportedModelError,
    warn_user,
)
from pymc_coresets.glm.control_variates.averaged import MOST_DENSE, ByPredictors
from pymc_coresets.glm.control_variates.by_gradients import ByGradients
from pymc_coresets.glm.control_variates.expansion import AveragedRows, Choice
from pymc_coresets.glm.control_variates.posteriors import Approximation, Expansion, Posteriors
from pymc_coresets.glm.predictor.finding import find_interface
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.methods.best_of_rounds import Best, Place, Rounds
from pymc_coresets.methods.job import AIM, Job, draws_to_certify
from pymc_coresets.methods.loop import Measure, Measurement
from pymc_coresets.options import if_given, positive_number, whole_number
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.verification import refuse_impossible_rows
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.solving.solution import History, Progress, Selection, Solution, Status

_log = logging.getLogger(__name__)

_LEAST_ROWS = 40  #: Fewest rows in addition to a quadratic: fewer save no time.
_SETTLED = 0.7  #: Stop once a round leaves more than this share of the divergence.
_SETTLING = 100  #: Draws that determine the widths of the rows' predictors.
_NOTICED = 0.01  #: Nats that a damped step gains at least.
_DAMPED_STEPS = 40  #: Largest number of steps to the mode, most of which may be damped.
_WORTHWHILE = 10_000  #: Rows: with fewer, sampling the model itself may be faster.


@dataclass(frozen=True, kw_only=True)
class ControlVariates:
    """A quadratic approximation of all rows' log-likelihood, and weighted rows for its residual.

    Weighted rows alone must reproduce a quadratic of ``D(D + 3)/2`` numbers to be accurate.  But a
    quadratic needs no rows: its slope and curvature are sums over all of them.  Its residual is of
    third order, small if there are many rows per dimension, and represented by a few rows.  For
    models of 25 to 1,000 dimensions, and of a few thousand if each row depends on at most five
    numbers: linear predictors, and scalars that all rows share, such as a noise scale.  Examples
    are regressions with or without a free scale, shape or dispersion, mean and scale both of
    covariates, ordered answers, choices between five alternatives, item response, hierarchies and
    crossed factors.  At the end the posterior is searched for other modes, given the scales of a
    hierarchy, if that takes a small part of the time.

    Parameters
    ----------
    tolerance : float, default 0.01
        Stop when the symmetrised KL divergence is estimated below this many nats.
    max_rounds : int, default 6
        Largest number of rounds with a quadratic alone, and then of rounds with rows.
    correctable : float, optional
        Divergence in nats that importance weights can correct.  It becomes the tolerance if half of
        the rows are predicted to miss the tolerance.  If they are predicted to exceed four times
        this divergence, the model is refused.  ``"auto"`` uses 0.5, with an effective sample size
        of six tenths of the draws, if neither a size nor a tolerance is given.

    Raises
    ------
    InvalidOptionError
        If an option is not positive.

    Notes
    -----
    The log-likelihood of row n is approximated, as a function of the numbers it depends on, by the
    quadratic that is closest on average over the posterior (its projection on Hermite polynomials),
    not by the Taylor expansion at the mode.  Predictors are affine in coefficients, which may be
    any functions of the free variables: prior, scales and transforms stay exact.  If rows depend on
    more numbers, and for units, the quadratic is in all coordinates, and slope and curvature of the
    sum are regressions of its gradients on draws (Stein's identity).  In every round the average is
    taken over draws of the previous round's approximation.  Rows that are normal in one predictor,
    with a free width, are quadratic in coefficients over that, see `parabolas.in_widths`: the
    quadratic is exact then, and no error depends on the forty rows that are kept.  Others are drawn
    by priority sampling with probabilities in proportion to their residuals, and kept whole if the
    probability is one; ridge regression at the draws brings their weighted sum closer to that of
    all rows, if that helps at other draws, too.  If most rows are of levels of a factor that have
    many, rows and weights are instead found for the residual of each level, by orthogonal matching
    pursuit: that depends on few coefficients, and is represented by a few dozen rows.  In
    directions in which the rows have more curvature than the posterior, weights of concave rows
    shrink, and those of convex ones grow, so that the quadratic without the rows' part is concave,
    with the prior: but for mixtures, see `concavity.concave`.

    A round costs O(N p (S + p)) for N rows of p coefficients and S draws if the design is dense,
    and memory O(p^2) and that of the candidates.  At most 3,000 coefficients, or 20,000 if few
    pairs of them occur in the same row.  Rows outside memory are read once for each quadratic, and
    once to measure each coreset.  Control variates are known from subsampling MCMC (Quiroz et al.
    2019), in which a new subsample is drawn in each step; here it is chosen once.

    References
    ----------
    Quiroz, Kohn, Villani, Tran (2019). Speeding up MCMC by efficient data subsampling. Journal of
    the American Statistical Association 114(526). https://arxiv.org/abs/1404.4178

    Examples
    --------
    >>> ControlVariates(tolerance=0.1).max_rounds
    6
    """

    name: ClassVar[str] = "control_variates"
    accepts: ClassVar[Collection[str]] = frozenset({"size", "tolerance", "time_budget", "rows"})
    draws_from: ClassVar[str] = "the coreset's posterior"

    tolerance: float = 0.01
    max_rounds: int = 6
    correctable: float | None = None

    def __post_init__(self) -> None:
        positive_number("tolerance", self.tolerance)
        whole_number("max_rounds", self.max_rounds, least=1)
        if_given(positive_number, "correctable", self.correctable)

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """Twenty rows per dimension, or a fortieth of all; a limit, of which few may be used.

        Rows of rare categories, which no quadratic approximates, may be thousands.
        """
        return min(n_rows, max(1_000, 20 * n_dims, min(n_rows // 40, 10_000)))

    def run(self, job: Job[Any]) -> Solution:
        """Approximate all rows, and choose some of them.

        If the job's posterior has a quadratic itself, it is included in the approximation.
        """
        with job.report.part("linear predictor"):
            expansion = _expansion_of(job.loglikelihood)
        with job.report.part("control variates", total=2 * self.max_rounds) as show:
            return _Run(self, job, expansion, show).solution()


def has_quadratics(loglik: LogLikelihood) -> bool:
    """Whether there can be a quadratic for all rows."""
    try:
        _expansion_of(loglik)
    except (UnsupportedModelError, InvalidDataError):
        return False
    return True


def _expansion_of(loglik: LogLikelihood) -> Expansion:
    """Return the approximation by predictors if rows depend on few numbers, else by gradients."""
    known: Expansion | None = loglik.derived.get("expansion")  # when a method was chosen
    if known is not None:
        return known
    expansion: Expansion
    try:
        seen = seen_rows_of(loglik, find_interface)
    except UnsupportedModelError as error:
        _log.info("Quadratics by gradients of all rows: %s", error.message)
        expansion, most = ByGradients(loglik), 1_000
    else:
        expansion = ByPredictors(loglik.source, seen)
        most = 20_000 if seen.found.is_sparse else MOST_DENSE
    n_coefficients = len(expansion.interface.names)
    if n_coefficients > most:
        raise UnsupportedModelError(
            f"method='control_variates' keeps a matrix of coefficient pairs, for at most {most:,} "
            f"coefficients; this model has {n_coefficients:,}. Use method='auto'.",
            topic="regressions",
        )
    loglik.derived["expansion"] = expansion
    return expansion


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """All rows; or a sample of them, and a quadratic for its difference from all of them.

    Parameters
    ----------
    loglik : LogLikelihood
    expansion : ByPredictors or ByGradients
    known : tuple of Quadratic
        What is added to the quadratic of the rows.
    """

    loglik: LogLikelihood
    expansion: Expansion
    known: tuple[Quadratic, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Place(Place):
    """A quadratic, draws of its coefficients, and the number of rows tried with it."""

    quadratic: Quadratic
    coefficients: np.ndarray
    size: int = _LEAST_ROWS // 2


class _Run:
    """One construction: quadratics until convergence, then rows."""

    def __init__(
        self,
        options: ControlVariates,
        job: Job[Draws],
        expansion: Expansion,
        show: Callable[[Progress], None],
    ) -> None:
        self.options, self.job, self.found = options, job, expansion.interface
        self.all = _Source(loglik=job.loglikelihood, expansion=expansion)
        self.n_draws = draws_to_certify(job.loglikelihood.n_rows)
        self.n_rows, self.history = job.loglikelihood.n_rows, History(show)
        self.best = Best(self._again, tolerance=options.tolerance, goal=AIM * options.tolerance)
        with until(job.deadline), doing("searching for the mode of a sample of the rows"):
            self.posteriors = Posteriors.begun(job, expansion)

    def solution(self) -> Solution:
        """Approximate all rows in rounds, and return the best of them."""
        limit, deadline = self.options.max_rounds - 1, self.job.deadline
        rounds = Rounds(self._propose, self._try, self._follow, self.best)
        with until(deadline), doing("approximating all rows by a quadratic"):
            begun = self._first_place()
        with until(deadline), doing("choosing rows beside a quadratic"):
            first = rounds.once(begun)
        status = self.best.concluded(rounds.run(first, limit=limit, deadline=deadline), deadline)
        best, proposal, modes = self.best.measured, None, None
        assert best is not None, "a round was tried"
        if math.isfinite(best.objective):
            around, modes = self._surroundings(best, status)
            proposal = Proposal(
                draws=best.draws, log_ratios=best.log_ratios, around=around, modes=modes
            )
        self.job.report.counts.update(self.posteriors.sampler.counts)
        return self.history.solution(best, status, **best.facts, proposal=proposal, modes=modes)

    def _first_place(self) -> _Place:
        """Return a converged quadratic; one that is exact is so at once."""
        if self.all.expansion.is_exact:
            exact = self._at(self.posteriors.mode, self.all)
            self.job.report.tell(
                f"Rows are normal: a quadratic of {len(exact.names):,} coefficients is exact."
            )
            return _Place(quadratic=exact, coefficients=exact.center[None])
        source, quadratic = self._begun()
        quadratic = self._ascended(quadratic, source)
        self._look_ahead(quadratic)
        quadratic, coefficients = self._settled(quadratic, source)
        return _Place(quadratic=quadratic, coefficients=coefficients)

    def _surroundings(self, best: Measurement, status: Status) -> tuple[Any, Modes | None]:
        """Return a distribution near the best posterior, and its modes, if there is time."""
        around = modes = None
        with suppress(OutOfTimeError), until(self.job.deadline):
            around = self.posteriors.around(best)
            if status is not Status.INTERRUPTED:
                allowed = 0.15 * self.history.steps[-1].n_evaluations
                modes = self.posteriors.modes(best.about, key=self.job.key, n_evaluations=allowed)
        return around, modes

    def _propose(self, place: _Place) -> Choice:
        """Average the quadratic over the last draws, and choose rows for its residual."""
        most = self.job.size
        averaged, quadratic = self._average(
            place.coefficients, place.quadratic, self.all, n_kept=most, goal=self.best.goal
        )
        if averaged.sample.has_impossible_rows:  # near the mode, or elsewhere
            refuse_impossible_rows(self.all.loglik, self.posteriors.sampler.space)
        if self.all.expansion.has_levels and self._may_be_refused:
            self._expect(averaged.missed_by(most), most)
        goal = 0.95 * self.best.goal
        size = max(self._wanted(averaged), min(2 * place.size, most))
        choose = partial(self.all.expansion.chosen, averaged, quadratic, goal=goal)
        chosen = choose(size)
        while chosen.left > goal and size < most:
            size = min(math.ceil(1.5 * size), most) if size < averaged.sample.most else most
            chosen = choose(size)
        return chosen

    def _follow(self, place: _Place, chosen: Choice, view: Measurement, before: float) -> _Place:
        """Go on from the draws of the last coreset, unless more rows are not allowed, nor help."""
        is_settled = view.objective > _SETTLED * before
        return replace(
            place,
            quadratic=chosen.of_all,
            coefficients=self.posteriors.sampler.rest.coefficients(view.about.points),
            size=chosen.tried,
            status=Status.NO_PROGRESS if chosen.tried >= self.job.size and is_settled else None,
        )

    # -- the quadratic ---------------------------------------------------------------------------

    def _settled(self, quadratic: Quadratic, source: _Source) -> tuple[Quadratic, np.ndarray]:
        """Return a converged quadratic, and draws of the coefficients from its posterior."""
        best, lowest = quadratic, math.inf
        for _ in range(self.options.max_rounds):
            coefficients = self._coefficients(quadratic, min(_SETTLING, self.n_draws))
            averaged, following = self._average(coefficients, quadratic, source)
            objective = self._measured(quadratic, following, averaged)
            settled = objective > _SETTLED * lowest or objective <= self.best.goal
            if objective < lowest:
                best, lowest = following, objective
            if settled or time.perf_counter() > self.job.deadline:
                break
            quadratic = following
        return best, self._coefficients(best, self.n_draws)

    def _begun(self) -> tuple[_Source, Quadratic]:
        """Return the rows that settle the quadratic, and the first one, at the mode of a sample.

        The rows of the sample, and a quadratic that makes both exact there; or all rows, if they
        are few or a coefficient's curvature comes from rows that the sample lacks.
        """
        some, mode = self.posteriors.some, self.posteriors.mode
        whole = self._at(mode, self.all)
        if some.n_rows > self.n_rows / 2:
            return self.all, whole
        bare = _Source(loglik=some, expansion=self.all.expansion.reading(some))
        rest = whole.without(self._at(mode, bare))
        lacking, every = (np.abs(q.curvature.diagonal()) for q in (rest, whole))
        if (lacking > every / 2).any():
            return self.all, whole
        return replace(bare, known=(*bare.known, rest)), whole

    def _measured(self, of: Quadratic, following: Quadratic, averaged: AveragedRows) -> float:
        """Measure a quadratic alone, at its own draws, over which the next one is averaged."""
        total = averaged.residual + following.at(averaged.draws)
        alone = self.posteriors.alone(of)
        sums = PassSums(total=total, norm_total=0.0, candidates=alone.rows)
        measured = Measurement.of(alone, of.at(averaged.draws), sums)
        measured.enter(self.history)
        return measured.objective

    def _coefficients(self, quadratic: Quadratic, n_draws: int) -> np.ndarray:
        with self.history.drawing():
            return self.posteriors.coefficients(quadratic, n_draws)

    def _look_ahead(self, quadratic: Quadratic) -> None:
        """Predict the error of a coreset of half of the rows, before anything is drawn.

        It is large if there are few rows per dimension, such as few answers per person.  The
        tolerance is then the divergence that importance weights correct; a model that would need
        most of its rows and still miss it is refused.
        """
        if self.all.expansion.has_levels or not self._may_be_refused:
            return
        size = min(self.job.size, self.n_rows // 2)
        with self.history.drawing():
            coefficients = self.posteriors.coefficients_near_mode(quadratic, _SETTLING)
        averaged, _ = self._average(coefficients, quadratic, self.all, n_kept=size)
        self._expect(averaged.missed_by(size), size)

    @property
    def _may_be_refused(self) -> bool:
        """Whether rows are few for the dimensions, and the user has not asked for a coreset."""
        if self.options.correctable is None or self.n_rows >= 100 * self.posteriors.sampler.n_dims:
            return False
        return bool(self.n_rows >= _WORTHWHILE or self.job.size == self.n_rows)

    def _expect(self, left: float, size: int) -> None:
        """Set the goal, or refuse the model, by the divergence that so many rows would leave."""
        enough, n_rows = self.options.correctable, self.n_rows
        if enough is None or left <= self.options.tolerance:
            return
        n_dims = self.posteriors.sampler.n_dims
        reason = (
            f"{n_rows:,} rows are few for {n_dims:,} free dimensions, and {size:,} of them, with a "
            f"quadratic for the others, would still be about {left:.1g} nats from the full data"
        )
        if n_rows < _WORTHWHILE:
            warn_user(f"Sampling the model itself is probably faster than this coreset: {reason}.")
            return
        if left > 4 * enough:
            raise UnsupportedModelError(
                f"A coreset saves little here: {reason}. Sample the model itself, integrate out "
                "variables that few rows depend on, such as those of each person, or build one "
                "anyway (method='control_variates', size=... or tolerance=...).",
                topic="regressions",
            )
        # Rows by level are forecast at the first draws, which are further off than later ones.
        if not self.all.expansion.has_levels or left > enough:
            self.best.goal = max(self.best.goal, enough, left)

    def _ascended(self, quadratic: Quadratic, source: _Source) -> Quadratic:
        """Return the quadratic at a point near the mode for all rows.

        Newton steps from the mode for a sample of rows, halved while they lower the density: levels
        with few rows in the sample end far from the mode, and quadratics there lead further away.
        Where a quadratic has no mode, or leads downhill, steps are damped: a search that is not
        over ends at such points, and which of them it is depends on rounding.
        """
        posteriors, n_steps = self.posteriors, 0
        if posteriors.bases:
            return quadratic
        for _ in range(_DAMPED_STEPS):
            step = next(self._steps(quadratic, source), None)
            if step is None:
                break
            posteriors.mode, is_newton, is_near = step
            n_steps += is_newton
            if is_near or n_steps >= self.options.max_rounds:
                break
            if time.perf_counter() > self.job.deadline:
                break
            quadratic = self._at(posteriors.mode, source)
        return quadratic

    def _steps(
        self, quadratic: Quadratic, source: _Source
    ) -> Iterator[tuple[np.ndarray, bool, bool]]:
        """Yield where steps lead that gain: to the mode of a quadratic's posterior, or damped ones.

        Also whether each is one of Newton's, or part of it, and began near the mode.
        """
        posteriors = self.posteriors
        if posteriors.has_mode(quadratic):
            step = posteriors.mode_of(quadratic) - posteriors.mode
            for halvings in range(10):
                x = posteriors.mode + step / 2**halvings
                gained = self._gain(x, source)
                if gained > 0.0:
                    is_near = halvings == 0 and gained < len(x)  # as a typical draw is
                    yield x, True, is_near
        for x in posteriors.damped_steps(quadratic):
            gained = self._gain(x, source)
            if gained > _NOTICED:
                yield x, False, False

    def _gain(self, x: np.ndarray, source: _Source) -> float:
        """Return the log-density at a point, minus that at the mode."""
        n_rows = source.loglik.n_rows
        with self.history.evaluating(n_rows, 2, of=self.n_rows):
            gained = self.posteriors.gain(x, source.loglik)
        for rest in source.known:
            ends = self.posteriors.sampler.rest.coefficients(np.stack([self.posteriors.mode, x]))
            gained += float(np.diff(rest.at(ends))[0])
        return gained

    def _at(self, x: np.ndarray, source: _Source) -> Quadratic:
        coefficients = self.posteriors.sampler.rest.coefficients(x[None])
        with self._evaluating(source, 1, 0):
            # A curvature may come from the sample that the first reading has kept.
            found = source.expansion.at_point(coefficients, key=self.job.key)
        return reduce(Quadratic.plus, self._known(source), found)

    def _known(self, source: _Source) -> tuple[Quadratic, ...]:
        """Return what is added to the quadratic of the rows of a source."""
        return (*self.posteriors.bases, *source.known)

    def _evaluating(
        self, source: _Source, n_draws: int, n_kept: int
    ) -> AbstractContextManager[None]:
        n_evaluations = source.expansion.n_evaluations(n_draws, n_kept)
        return self.history.evaluating(source.loglik.n_rows, n_evaluations, of=self.n_rows)

    def _average(
        self,
        coefficients: np.ndarray,
        before: Quadratic,
        source: _Source,
        *,
        n_kept: int = 0,
        goal: float = 0.0,
    ) -> tuple[AveragedRows, Quadratic]:
        known = self._known(source)
        with self._evaluating(source, len(coefficients), n_kept):
            averaged = source.expansion.average(
                coefficients,
                reduce(Quadratic.without, known, before),
                n_kept=n_kept,
                goal=goal,
                key=random_key(self.job.rng),
                prior=self.posteriors.prior_precision,
            )
        return averaged, reduce(Quadratic.plus, known, averaged.quadratic(self.found))

    # -- the rows --------------------------------------------------------------------------------

    def _wanted(self, averaged: AveragedRows) -> int:
        """Return the number of rows predicted to meet the tolerance."""
        size, enough = _LEAST_ROWS, 0.75 * self.best.goal
        while size < self.job.size and averaged.missed_by(size) > enough:
            size = math.ceil(1.2 * size)
        return min(max(int(self.all.expansion.calibration * size), _LEAST_ROWS), self.job.size)

    def _try(self, chosen: Choice) -> Measurement:
        """Draw from an approximation, and evaluate all rows at held-out draws."""
        return self._drawn(chosen, chosen.of_all, self.n_draws)

    def _again(self, best: Measurement, n_draws: int) -> Measurement:
        return self._drawn(best, best.about.of_all, n_draws)

    def _drawn(self, chosen: Selection, of_all: Quadratic, n_draws: int) -> Measurement:
        with self.history.drawing():
            drawn = self.posteriors.draw(of_all, chosen, n_draws)
        sampler, points = self.posteriors.sampler, drawn.points
        draws = sampler.space.constrain(points)
        coefficients = sampler.rest.coefficients(points)
        measure = Measure(sampler, self.job.rng, history=self.history)
        own = chosen.weights @ measure.loglik(draws, chosen.rows, n_draws)
        own = own + chosen.quadratic.at(coefficients)
        for base in self.posteriors.bases:
            own = own - base.at(coefficients)
        sums = measure.sums(draws, n_draws)
        about = Approximation(
            of_all=of_all,
            points=points,
            near=self.posteriors.near,
            along_axes=drawn.along_axes,
        )
        measured = Measurement.of(chosen, own, sums, draws=draws, about=about)
        measured.enter(self.history)
        return measured
