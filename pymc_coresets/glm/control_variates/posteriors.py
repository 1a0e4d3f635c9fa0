"""Posteriors of quadratics, with and without weighted rows: their modes, and draws."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from typing import cast

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError
from scipy.special import softmax

from pymc_coresets.diagnostics.importance import EFFECTIVE_SHARE, pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Modes
from pymc_coresets.exceptions import SamplingError, UnsupportedModelError
from pymc_coresets.glm.concavity import is_concave, is_definite
from pymc_coresets.glm.control_variates.averaged import ByPredictors
from pymc_coresets.glm.control_variates.by_gradients import ByGradients
from pymc_coresets.glm.control_variates.expansion import OF_A_GRADIENT
from pymc_coresets.glm.control_variates.hierarchy import (
    ConditionalGaussian,
    Hierarchy,
    find_hierarchy,
)
from pymc_coresets.glm.control_variates.surroundings import (
    derivatives,
    mode_given_the_rest,
    precision_near,
    uphill_steps,
)
from pymc_coresets.glm.predictor.finding import FreeCoordinates
from pymc_coresets.glm.predictor.predictors import Predictors
from pymc_coresets.methods.job import Job
from pymc_coresets.methods.loop import Measurement
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Curvature, Quadratic
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows import keyed
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, factor_near, factor_of
from pymc_coresets.sampling.found_modes import FoundModes, table_of
from pymc_coresets.sampling.maximisation.many_starts import minimise_together, negative_of_points
from pymc_coresets.sampling.modes import beside_mode
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.sample_search import FEW_TO_SEARCH
from pymc_coresets.sampling.sampler import MOST_BY_LAPLACE, CoresetSampler, PosteriorDraws
from pymc_coresets.sampling.scales.scale_modes import marginal_modes, starts_around
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals
from pymc_coresets.sampling.symmetry.local_modes import NOTICEABLE, LocalMode
from pymc_coresets.solving.solution import Selection

_log = logging.getLogger(__name__)

#: The ways to approximate the rows of a model by quadratics.
type Expansion = ByPredictors | ByGradients

#: Operations of a decomposition above which other modes of the scales are not sought; ascents that
#: end the search; and draws that show the width of a mode.
_MOST_OPERATIONS, _FAILURES, _TO_MEASURE = 1e7, 2, 100
_SAME = 4.0  #: Nats within which searches have found the same mode.


def _sample_of(
    loglik: LogLikelihood, found: Predictors | FreeCoordinates, *, key: int
) -> LogLikelihood:
    """Return the log-likelihood of a sample of the rows, whose weights scale it to all."""
    several = min(keyed.FIRST_SAMPLE, rows_at_once(found.entries_a_row / 4))
    size = min(max(keyed.rows_to_start(loglik.n_dims), several), loglik.n_rows)
    subsample = loglik.source.subsample(size, key=key, distinct=True)
    return loglik.reading(InMemoryRows.of(replace(subsample.rows, case_weights=subsample.weights)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Approximation:
    """What is known of the draws of rows and a quadratic that represent all rows."""

    of_all: Quadratic
    points: np.ndarray
    near: tuple[ConditionalGaussian, ...]
    along_axes: tuple[GriddedMarginals, ...]


@dataclass(eq=False, kw_only=True)
class Posteriors:
    """The successive posteriors of one construction, whose density is compiled once.

    Parameters
    ----------
    found : Predictors or FreeCoordinates
        The coefficients that rows depend on.
    rng : numpy.random.Generator
    bases : tuple of Quadratic
        The quadratic of the job's posterior, if it has one: part of every quadratic.
    without_rows : Quadratic
        The same, or zero.
    slopes : csr_array of shape (n_dims, p)
        Derivatives of the coefficients at some point.
    some : LogLikelihood
        Of a sample of the rows, whose weights scale it to all.
    sampler : CoresetSampler
        Sampler of the last quadratic.
    mode : ndarray of shape (n_dims,)
        Near the mode of the last posterior.
    hierarchies : tuple of Hierarchy
        The prior, if it is one.

    Attributes
    ----------
    last : PosteriorDraws, or None
        The last draws.
    near : tuple of ConditionalGaussian
        Of these draws, if there is one.
    """

    found: Predictors | FreeCoordinates
    rng: np.random.Generator
    bases: tuple[Quadratic, ...]
    without_rows: Quadratic
    slopes: sparse.csr_array
    some: LogLikelihood
    sampler: CoresetSampler
    mode: np.ndarray
    hierarchies: tuple[Hierarchy, ...] = ()
    near: tuple[ConditionalGaussian, ...] = field(default=(), init=False)
    last: PosteriorDraws | None = field(default=None, init=False)
    _find: Sequence[Callable[[Quadratic], ConditionalGaussian]] = field(init=False)
    _last_beside: Quadratic = field(init=False)  # that of the sampler

    def __post_init__(self) -> None:
        self._find = [partial(ConditionalGaussian.of, each) for each in self.hierarchies]
        self._last_beside = self.without_rows

    @classmethod
    def begun(cls, job: Job[Draws], expansion: Expansion) -> "Posteriors":
        """Return those of a construction, at the mode of a sample of the rows."""
        full, found = cast(CoresetSampler, job.posterior), expansion.interface
        loglik = full.loglikelihood
        bases = tuple(own for own in (full.quadratic,) if own is not None)
        zero = Quadratic.zero(found.names, found.coefficients, is_sparse=found.is_sparse)
        [own, *_] = (*bases, zero)
        sampler = CoresetSampler(loglik, quadratic=own)
        # At the start, products of zeros may have no slope.
        apart = sampler.start + job.rng.uniform(-0.5, 0.5, sampler.n_dims)
        first = cls(
            found=found,
            rng=job.rng,
            bases=bases,
            without_rows=own,
            slopes=derivatives(sampler.rest.coefficients, apart),
            some=_sample_of(loglik, found, key=job.key),
            sampler=sampler,
            mode=sampler.start,
        )
        for base in bases:  # which may be convex far from its center
            first.mode = first.mode_of(base.uncorrelated)
            first.sampler_of(base)
        return first.at_mode(expansion, key=job.key)

    def at_mode(self, expansion: Expansion, *, key: int) -> "Posteriors":
        """Return the same at the mode of the sample, with the hierarchy that the prior is there."""
        space, loglik = self.sampler.space, self.sampler.loglikelihood
        of_some = self.sampler.density(self.some.source)
        start = self._start_of(key)
        like = self._normal_at(start, expansion)
        mode = mode_given_the_rest(of_some, start, self.is_seen, most_steps=400, like=like)
        sampler = CoresetSampler(loglik, quadratic=self.without_rows, starts=[mode])
        columns = [np.ravel(own) for own in space.columns.values()]
        rest, found = sampler.rest, list[Hierarchy]()
        with suppress(UnsupportedModelError):
            found.append(find_hierarchy(rest.slopes, rest.coefficients, mode, columns))
        return replace(self, sampler=sampler, mode=mode, hierarchies=tuple(found))

    @property
    def is_seen(self) -> np.ndarray:
        """Which free coordinates the coefficients depend on, (n_dims,)."""
        seen: np.ndarray = np.diff(self.slopes.indptr) > 0
        return seen

    @property
    def _no_rows(self) -> tuple[Rows, np.ndarray]:
        return self.sampler.loglikelihood.some_row, np.zeros(1)

    def _normal_at(self, x: np.ndarray, expansion: Expansion) -> Normal | None:
        """Return a normal distribution of the seen coordinates, with the precision at a point.

        That of the sample, if each row has a quadratic: otherwise it takes as many gradients as a
        search for the mode.
        """
        if not isinstance(expansion, ByPredictors):
            return None
        seen, coefficients = self.is_seen, self.sampler.rest.coefficients(x[None])
        of_rows = expansion.reading(self.some).at_point(coefficients, key=0)
        quadratic = reduce(Quadratic.plus, self.bases, of_rows)
        try:
            factor = factor_near(self._seen(self._precision_near(x, quadratic)))
        except SamplingError as error:  # not finite, or not definite, so far from the mode
            _log.info("The search for the mode has no scale: %s", error)
            return None
        return Normal(x[seen], factor)

    def mode_of(self, quadratic: Quadratic) -> np.ndarray:
        """Return the mode of the posterior of a quadratic, given variables only in the prior."""
        density = self.sampler_of(quadratic).posterior(*self._no_rows).density
        return mode_given_the_rest(density, self.mode, self.is_seen, most_steps=2_000)

    def has_mode(self, quadratic: Quadratic) -> bool:
        """Whether the posterior of a quadratic is bounded, or at least concave at the mode.

        The scales of effects apart, where rows are concave.
        """
        if is_concave(quadratic.curvature):
            return True
        return is_definite(self._seen(self._precision_near(self.mode, quadratic)))

    def damped_steps(self, quadratic: Quadratic) -> Iterator[np.ndarray]:
        """Yield points uphill from the mode by the posterior of a quadratic; see `uphill_steps`."""
        x, seen = self.mode, np.flatnonzero(self.is_seen)
        posterior = self.sampler_of(quadratic).posterior(*self._no_rows)
        precision, gradients = self._precision_near(x, quadratic), posterior.slopes(x[None])[1]
        for step in uphill_steps(self._seen(precision), gradients[0, seen]):
            point = x.copy()
            point[seen] += step
            yield point

    def _seen(self, precision: Curvature) -> Curvature:
        """Return the part of a precision that the coefficients depend on."""
        seen = self.is_seen
        if isinstance(precision, np.ndarray):
            return precision[np.ix_(seen, seen)]
        part: Curvature = precision[seen][:, seen]
        return part

    def gain(self, x: np.ndarray, loglik: LogLikelihood) -> float:
        """Return the log-density of some rows and the prior at a point, minus that at the mode."""
        points = np.stack([self.mode, x])
        of_rows = loglik.sums(self.sampler.space.constrain(points)).total
        before, after = map(float, of_rows + self.sampler.rest.values(points))
        return after - before  # NaN if a row is impossible at both

    def _start_of(self, key: int) -> np.ndarray:
        """Return a point from which a search leads to the highest mode of a sample, if several.

        Three searches begin near the model's initial point.  If they end at different heights, 48
        compete, all at once: the best dozen of them goes on, and then the best four.  A regression
        with one predictor, and perhaps a scale, has one.
        """
        n_dims, rng = len(self.mode), np.random.default_rng(key)
        is_simple = isinstance(self.found, Predictors) and (
            self.found.n_seen <= 2 or self.found.is_quadratic
        )
        if is_simple or n_dims > FEW_TO_SEARCH:
            return self.mode
        density = self.sampler.density_of_some(max(keyed.rows_to_start(n_dims), 5_000), key)
        seen = self.is_seen
        starts = self.mode + rng.uniform(-1.0, 1.0, (48, n_dims)) * seen  # as PyMC's jitter
        starts[0] = self.mode
        ends = [mode_given_the_rest(density, x, seen, most_steps=400) for x in starts[:3]]
        heights = np.nan_to_num(density.values(np.stack(ends)), nan=-1e300)
        if np.ptp(heights) < _SAME:
            return self.mode
        _log.info("The likelihood has several modes")

        def whole(some: np.ndarray) -> np.ndarray:
            points = np.tile(self.mode, (len(some), 1))
            points[:, seen] = some
            return points

        def negative(some: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, slopes = negative_of_points(density, whole(some))
            return values, slopes[:, seen]

        left = starts[:, seen]
        for most_steps, n_kept in ((40, 12), (100, 4), (400, 1)):
            found = minimise_together(negative, left, most_steps=most_steps, joins=False)
            left = found.points[np.argsort(found.values, kind="stable")[:n_kept]]
        highest: np.ndarray = whole(left)[0]
        return highest

    def coefficients(self, quadratic: Quadratic, n_draws: int) -> np.ndarray:
        """Draw from the posterior of a quadratic."""
        points = self.draw(quadratic, self.alone(quadratic), n_draws).points
        return self.sampler.rest.coefficients(points)

    def coefficients_near_mode(self, quadratic: Quadratic, n_draws: int) -> np.ndarray:
        """Draw from near the posterior of a quadratic, in negligible time.

        If its prior is not a `Hierarchy`, from a normal approximation around its mode, at which
        variables only in the prior are fixed.
        """
        for near in self._conditional_gaussian(quadratic):
            return self.sampler.rest.coefficients(near.draw(n_draws, rng=self.rng)[0])
        factor = factor_near(self._precision_near(self.mode, quadratic))
        points = self.mode + factor.draw_inverse(n_draws, rng=self.rng) * self.is_seen
        return self.sampler.rest.coefficients(points)

    def alone(self, quadratic: Quadratic) -> Selection:
        """Return a quadratic without rows: a single row of weight 0 provides their columns."""
        rows, weights = self._no_rows
        return Selection(rows=rows, weights=weights, quadratic=quadratic)

    def draw(self, of_all: Quadratic, chosen: Selection, n_draws: int) -> PosteriorDraws:
        """Draw from the posterior of rows and a quadratic, which is close to that of `of_all`."""
        sampler = self.sampler_beside(chosen.quadratic, of_all)
        self.near = self._conditional_gaussian(of_all)
        drawn = partial(sampler.drawn, near=self.near)
        if not (self.near or sampler.corrects):
            middle = self._points.mean(axis=0)
            metric = factor_near(self._precision_near(middle, of_all))
            drawn = partial(sampler.drawn_in_metric, starts=self._points, metric=metric)
            if sampler.n_dims > MOST_BY_LAPLACE:  # NUTS would take hours
                drawn = partial(sampler.drawn, near=[Normal(middle, metric)])
        self.last = drawn(chosen.rows, chosen.weights, n_draws, rng=self.rng)
        return self.last

    @property
    def _points(self) -> np.ndarray:
        """The last draws, or the mode if there are none, (n_points, n_dims)."""
        return self.mode[None] if self.last is None else self.last.points

    def _conditional_gaussian(self, quadratic: Quadratic) -> tuple[ConditionalGaussian, ...]:
        try:
            found = tuple(find(quadratic) for find in self._find)
        except SamplingError as error:
            _log.info("%s", error)
            return ()
        for near in found:  # from which the next one is sought
            self._find, self.mode = [near.of_similar], near.mode
        return found

    def sampler_of(self, quadratic: Quadratic) -> CoresetSampler:
        """Return the sampler of a quadratic."""
        return self.sampler_beside(quadratic, quadratic)

    def sampler_beside(self, quadratic: Quadratic, of_all: Quadratic) -> CoresetSampler:
        """Return the sampler of rows and the remainder of the quadratic of all rows.

        On average over the posterior, both have the curvature of the latter.
        """
        before, self._last_beside = self._last_beside, quadratic
        if type(before.curvature) is not type(quadratic.curvature):
            loglik = self.sampler.loglikelihood
            self.sampler = CoresetSampler(loglik, quadratic=quadratic, starts=[self.mode])
        curvature = partial(self._precision_near, quadratic=of_all)
        self.sampler = self.sampler.beside(quadratic, curvature)
        return self.sampler

    def prior_precision(self) -> Curvature:
        """Return the precision of the prior near the last draws, (n_dims, n_dims)."""
        return self._precision_near(self._points.mean(axis=0), self.without_rows)

    def _precision_near(self, x: np.ndarray, quadratic: Quadratic) -> Curvature:
        """Return the precision of the posterior of a quadratic at a point."""
        sampler = self.sampler
        slopes = derivatives(sampler.rest.coefficients, x)
        pull, change = np.zeros((1, 1)), abs(slopes - self.slopes).max()
        if not change <= 1e-8 * abs(self.slopes).max():  # coefficients have curvatures of their own
            pull = quadratic.slopes_at(sampler.rest.coefficients(x[None]))

        def gradients(points: np.ndarray) -> np.ndarray:
            return sampler.rest.slopes(points, pull)[1]

        return precision_near(slopes, gradients, quadratic.curvature, x)

    def modes(self, best: Approximation, *, key: int, n_evaluations: float) -> Modes | None:
        """Search for modes of the posterior of all rows other than that of an approximation.

        Given the scales on which the prior's precision depends.  None if there was no search: it
        would exceed the given number of log-likelihoods of a row, or no mode is near.
        """
        rng = self.rng.spawn(1)[0]
        of_scales = (self._modes_of_scales(near, best.of_all, rng) for near in best.near)
        for modes in chain.from_iterable(of_scales):
            return modes
        center = best.points.mean(axis=0)
        precision = self._precision_near(center, best.of_all)
        sampler = self.sampler_of(self.without_rows)
        if sampler.is_log_concave:
            only = LocalMode(Normal(center, factor_of(precision)), 0.0)
            return FoundModes([only], 0).table(sampler.space)
        size = min(max(1_000, 20 * len(center)), sampler.n_rows)
        half_a_second = 1e8 * sampler.n_rows / sampler.n_terms / size / len(center)
        n_gradients = max(n_evaluations / (OF_A_GRADIENT * size), half_a_second)
        if n_gradients < 500 or not isinstance(precision, np.ndarray):
            return None
        held = np.zeros(len(center), bool)
        for hierarchy in self.hierarchies:
            held = hierarchy.rules_precision
        precision = np.where(held[:, None] | held, np.eye(len(center)), precision)
        try:
            found = beside_mode(
                sampler,
                Normal(center, factor_of(precision)),
                size,
                key=key,
                rng=self.rng.spawn(1)[0],
                n_gradients=n_gradients,
                held=held,
            )
        except (SamplingError, LinAlgError, ValueError) as error:
            _log.info("No search for other modes: %s", error)
            return None
        return found.table(sampler.space)

    def _modes_of_scales(
        self, near: ConditionalGaussian, of_all: Quadratic, rng: np.random.Generator
    ) -> Iterator[Modes]:
        """Yield the modes of the scales, and of the rest given these, if they have several.

        Their masses are those of the quadratic, corrected by all rows at each mode.
        """
        space, is_scale, known = self.sampler.space, near.hierarchy.is_scale, near.scales
        assert isinstance(known, Normal)
        if not len(known.location) or near.n_operations_each > _MOST_OPERATIONS:
            return

        def given(part: Normal) -> ConditionalGaussian:
            return replace(near, scales=part, n_operations=math.inf)

        def starts_of(part: Normal) -> np.ndarray:
            return starts_around(space, part, given(part).mode, is_scale, rng=rng)

        found = marginal_modes(near.log_marginals, known, starts_of, most_failures=_FAILURES)
        if len(found) == 1 and found.is_first:
            return
        if not found.is_first:  # the known one may be negligible by the quadratic alone
            height = float(near.log_marginals(known.location[None])[0])
            found = replace(found, parts=[*found.parts, known], heights=[*found.heights, height])
        at = np.stack([given(part).mode for part in found.parts])
        of_quadratic = of_all.at(self.sampler.rest.coefficients(at))
        errors = self.sampler.loglikelihood.sums(space.constrain(at)).total - of_quadratic
        log_masses = [part.log_mass(h) for part, h in zip(found.parts, found.heights, strict=True)]
        masses = softmax(log_masses + errors)
        kept = [int(i) for i in np.argsort(-masses) if masses[i] >= NOTICEABLE]
        drawn = [given(found.parts[i]).draw(_TO_MEASURE, rng=rng)[0] for i in kept]
        # Others given the scales were not looked for.
        are_alone = self.sampler.has_log_concave_rows(is_scale)
        yield table_of(
            space,
            at[kept],
            drawn,
            masses[kept] / masses[kept].sum(),
            n_starts=found.n_ascents,
            is_complete=found.is_complete and are_alone,
        )

    def around(
        self, best: Measurement
    ) -> GriddedMarginals | Normal | ConditionalGaussian | CholeskyFactor:
        """Return a distribution near the posterior of an approximation, or its precision."""
        about: Approximation = best.about
        for tables in about.along_axes:
            return tables
        sampler, center = self.sampler_beside(best.quadratic, about.of_all), about.points.mean(0)
        for near in about.near:
            precision = self._precision_near(center, about.of_all)
            for joint in self._joint(center, precision, best):
                return joint
            return replace(near, n_operations=math.inf, metric=factor_near(precision))
        if sampler.corrects:
            try:
                [part, *_] = sampler.laplace(best.rows, best.weights).parts
            except SamplingError as error:
                _log.info("The metric has no correlations: %s", error)
            else:
                return part.with_tails()
        return factor_near(self._precision_near(center, about.of_all))

    def _joint(
        self, center: np.ndarray, precision: Curvature, best: Measurement
    ) -> Iterator[Normal]:
        """Yield one normal distribution of all coordinates, if the posterior is near it.

        Compared at draws of both: those of the normal alone do not detect regions it misses.
        """
        if not isinstance(precision, np.ndarray):
            return
        try:
            found = Normal(center, factor_of(precision)).with_tails()
        except LinAlgError:
            return
        posterior = self.sampler.posterior(best.rows, best.weights)
        _, log_weights = posterior.weighed(found, len(best.about.points), rng=self.rng)
        if not np.isfinite(log_weights).all():
            return
        smoothed = pareto_smooth(log_weights[None])
        reached = (
            posterior.log_density(best.about.points)
            - found.log_density(best.about.points)
            - smoothed.log_mean_ratio
        )
        with np.errstate(over="ignore"):
            covers = float(np.exp(reached).mean()) * EFFECTIVE_SHARE < 1.0
        if smoothed.sound and covers:
            yield found
