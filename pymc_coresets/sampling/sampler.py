"""Draws from the posteriors of many coresets of one model, whose density is compiled once."""

import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Literal, Self

import numpy as np

from pymc_coresets.diagnostics.known_posterior import possible
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Curvature, Quadratic, as_dense
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.log_concavity import is_log_concave, rows_are_log_concave
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.rowlogp.verification import refuse_impossible_rows
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import PassSums, RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.curvature import laplace, laplace_parts
from pymc_coresets.sampling.density import (
    Density,
    Slopes,
    Surrogate,
    resampled,
    slopes_of_all,
    slopes_of_each,
    slopes_without_rows,
)
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, factor_near
from pymc_coresets.sampling.normal import KnownDensity, Mixture, Normal
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals
from pymc_coresets.sampling.steps.nuts import WarmNuts, refuse_discrete
from pymc_coresets.sampling.steps.split_hmc import SplitHmc
from pymc_coresets.sampling.symmetry.local_modes import LocalMode
from pymc_coresets.sampling.symmetry.symmetries import ALONE, Images

type OfPoint = Callable[[np.ndarray], Curvature]
type Kind = Literal["auto", "nuts", "laplace"]

#: Dimensions above which 4 D gradients and a decomposition take longer than NUTS.
MOST_BY_LAPLACE = 1_500

#: Why variables may not be discrete.
_NO_SLOPE = "so there is no Laplace approximation"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, kw_only=True)
class PosteriorDraws:
    """Draws of a posterior.

    Parameters
    ----------
    points : ndarray of shape (n_draws, n_dims)
    along_axes : tuple of GriddedMarginals
        The tables that they come from, if Laplace's draws are unreliable.
    """

    points: np.ndarray
    along_axes: tuple[GriddedMarginals, ...] = ()


@dataclass(eq=False)
class _Tally:
    """Counts of the samplers of a model, and whether Laplace's draws are still reliable."""

    corrects: bool
    counts: dict[str, int] = field(
        default_factory=lambda: {
            "n_sampler_runs": 0,
            "n_sampler_draws": 0,
            "n_corrected_laplace": 0,
            "n_gradients": 0,
            "n_not_finite": 0,
        }
    )


class CoresetSampler:
    """Samples the posterior of any weighted rows of a model, and evaluates rows at the draws.

    Rows and weights are inputs of the compiled density, so that nothing is compiled after the
    first call of a sampler.

    Parameters
    ----------
    loglik : LogLikelihood
        The log-likelihoods of the model.
    kind : {"auto", "nuts", "laplace"}
        Method of sampling.  "auto" corrects Laplace's draws by importance sampling, which needs no
        tuning and no further compilation; once that is unreliable (Pareto k-hat above 0.7), it
        switches to NUTS permanently.
    tune : int
        See `WarmNuts`.
    quadratic : Quadratic, optional
        Added to the weighted rows.
    starts : sequence of ndarray of shape (n_dims,), optional
        Starts of searches for modes and of NUTS, by default `start`; `modes.proposal` finds others.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=np.arange(5.0))
    >>> loglik = LogLikelihood(find_observations(model))
    >>> sampler = CoresetSampler(loglik, kind="laplace")
    >>> rows = loglik.source.take(np.array([4]))
    >>> draws = sampler.draw(rows, np.array([100.0]), 1_000, rng=np.random.default_rng(1))
    >>> bool(abs(draws.values["mu"].mean() - 4.0) < 0.02)
    True
    """

    def __init__(
        self,
        loglik: LogLikelihood,
        *,
        kind: Kind = "auto",
        tune: int = 300,
        quadratic: Quadratic | None = None,
        starts: Sequence[np.ndarray] = (),
    ) -> None:
        self.loglikelihood, self.quadratic = loglik, quadratic
        self._kind, self._starts = kind, starts if len(starts) else self._in_the_middle
        self._searched: Sequence[np.ndarray] = ()
        self._images: Images = ALONE
        self._curvature: OfPoint | None = None
        self._tally = _Tally(kind == "auto" and loglik.n_dims <= MOST_BY_LAPLACE)
        self._nuts = WarmNuts(tune=tune)

    def with_kind(self, kind: Kind, *, tune: int) -> "CoresetSampler":
        """Return a sampler of the same model with another method of sampling."""
        return CoresetSampler(self.loglikelihood, kind=kind, tune=tune, quadratic=self.quadratic)

    def beside(self, quadratic: Quadratic, curvature: OfPoint) -> Self:
        """Return a sampler of another quadratic of the same interface, sharing compiled functions.

        Parameters
        ----------
        quadratic : Quadratic
        curvature : callable
            Returns the precision (n_dims, n_dims) of the posterior near a point (n_dims,), dense or
            sparse: that of Laplace's approximation, in place of differences of gradients.
        """
        _ = self.rest  # which copies share
        other = copy(self)
        other.quadratic, other._curvature = quadratic, curvature  # noqa: SLF001 (its own)
        return other

    @property
    def is_log_concave(self) -> bool:
        """Whether the posterior of all rows is proven to be log-concave."""
        return is_log_concave(self.loglikelihood)

    def has_log_concave_rows(self, given: np.ndarray) -> bool:
        """Whether the likelihood is proven to be so in all coordinates but some, (n_dims,)."""
        columns = self.space.columns
        names = [name for name, own in columns.items() if given[own].any()]
        return rows_are_log_concave(self.loglikelihood.observations, names)

    @property
    def corrects(self) -> bool:
        """Whether all posteriors so far were close enough to normal to avoid NUTS."""
        return self._tally.corrects

    @property
    def counts(self) -> dict[str, int]:
        """Counts of work and failures so far.

        Posteriors sampled, draws, runs with corrected draws of Laplace's, counts of NUTS, gradients
        of all rows, and draws at which the log-likelihood of all rows is not finite.
        """
        return self._tally.counts | self._nuts.counts

    @property
    def counts_of_runs(self) -> dict[str, int]:
        """The same; none if no posterior was sampled, as reports have it."""
        return self.counts if self._tally.counts["n_sampler_runs"] else {}

    def _count(self, **more: int) -> None:
        for name, n in more.items():
            self._tally.counts[name] += n

    @property
    def start(self) -> np.ndarray:
        """Where a first search begins: the model's initial point, but for units.

        Nodes of units follow their modes by steps of Newton's from the middle of the posterior.
        Far from there, where initial points may be, sums over thousands of rows are wrong by
        nats: their slopes are not those of the values, and a search ends on a ridge that is none.
        """
        middle = self._in_the_middle
        return middle[0] if middle else self.space.start

    @property
    def _in_the_middle(self) -> list[np.ndarray]:
        """The point for which nodes of units were placed, if there is one."""
        own = self.loglikelihood.observations
        return [own.at] if isinstance(own, UnitObservations) and len(own.at) else []

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.loglikelihood.n_rows

    @property
    def n_terms(self) -> int:
        """See `PointwiseLogLikelihood`."""
        return self.loglikelihood.n_terms

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D."""
        return self.loglikelihood.n_dims

    @cached_property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model."""
        return self.loglikelihood.observations.space

    @cached_property
    def rest(self) -> RestLogDensity:
        """The log-density without rows and quadratic."""
        if self.quadratic is None:
            return self.loglikelihood.rest
        return self.loglikelihood.functions.rest_beside(self.quadratic.graph)

    def subsample(self, size: int, *, key: int, distinct: bool = False) -> RowSample:
        """Sample rows, see `PointwiseLogLikelihood.subsample`."""
        return self.loglikelihood.source.subsample(size, key=key, distinct=distinct)

    def loglik(self, draws: Draws, rows: Rows) -> np.ndarray:
        """Log-likelihoods of some rows, (n_rows, n_draws), in nats; some may not be finite."""
        return self.loglikelihood.matrix(draws, rows, finite=False)

    def sums(
        self, draws: Draws, *, n_candidates: int = 0, scale: float = 0.0, key: int = 0
    ) -> PassSums:
        """Evaluate all rows at the draws, see `PointwiseLogLikelihood.sums`."""
        sums = self.loglikelihood.sums(draws, n_candidates=n_candidates, scale=scale, key=key)
        n_finite = int(np.count_nonzero(np.isfinite(sums.total)))
        self._count(n_not_finite=len(sums.total) - n_finite)
        if not n_finite:
            refuse_impossible_rows(self.loglikelihood, self.space)
        return sums

    def draw(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from the posterior of the rows with the given weights.

        Raises
        ------
        SamplingError
            If the posterior has no mode ("laplace"), or NUTS fails.
        """
        return self.space.constrain(self.drawn(rows, weights, n_draws, rng=rng).points)

    def drawn(
        self,
        rows: Rows,
        weights: np.ndarray,
        n_draws: int,
        *,
        near: Sequence[KnownDensity] = (),
        rng: np.random.Generator,
    ) -> PosteriorDraws:
        """Draw on the unconstrained scale, by the first method that serves.

        Parameters
        ----------
        rows, weights, n_draws
            See `draw`.
        near : sequence of KnownDensity
            Close to the posterior: draws are corrected by importance sampling if the weights are
            reliable; otherwise they are moved to the posterior, if its curvature is known.
        rng : numpy.random.Generator
        """
        return next(self._drawn(self._begun(rows, weights, n_draws), near, n_draws, rng))

    def drawn_in_metric(
        self,
        rows: Rows,
        weights: np.ndarray,
        n_draws: int,
        *,
        starts: np.ndarray,
        metric: CholeskyFactor,
        rng: np.random.Generator,
    ) -> PosteriorDraws:
        """Draw on the unconstrained scale by NUTS, see `WarmNuts.draw_in_metric`."""
        posterior = self._begun(rows, weights, n_draws)
        return PosteriorDraws(
            points=self._nuts.draw_in_metric(
                posterior, n_draws, starts=list(starts), metric=metric, rng=rng
            )
        )

    def _begun(self, rows: Rows, weights: np.ndarray, n_draws: int) -> Surrogate:
        self._count(n_sampler_runs=1, n_sampler_draws=n_draws)
        return self.posterior(rows, weights)

    def _drawn(
        self,
        posterior: Surrogate,
        near: Sequence[KnownDensity],
        n_draws: int,
        rng: np.random.Generator,
    ) -> Iterator[PosteriorDraws]:
        """Yield draws by each method that serves, the cheapest first."""
        if self._kind == "laplace":
            around = self.laplace(posterior.rows, posterior.weights)
            yield PosteriorDraws(points=around.draw(n_draws, rng=rng, equally=0.0)[0])
        proposed = [posterior.weighed(each, 2 * n_draws, rng=rng) for each in near]
        for x, log_weights in proposed:
            for points in resampled(x, log_weights, n_draws, rng=rng):
                self._count(n_corrected_laplace=1)
                yield PosteriorDraws(points=points)
        if self.corrects:
            yield from self._importance_sampled(posterior, n_draws, rng)
        _log.info("The posterior is too far from its approximation")
        if self._curvature is not None:
            for x, _ in proposed:
                for points in self._moved(posterior, x[:n_draws], self._curvature, rng):
                    yield PosteriorDraws(points=points)
        yield PosteriorDraws(points=self._by_nuts(posterior, n_draws, rng))

    def _by_nuts(self, posterior: Surrogate, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._nuts.draw(posterior, n_draws, starts=self._starts, rng=rng)

    def _moved(
        self,
        posterior: Surrogate,
        starts: np.ndarray,
        curvature: OfPoint,
        rng: np.random.Generator,
    ) -> Iterator[np.ndarray]:
        """Move draws from near the posterior (n_draws, n_dims) to it; none if they do not mix.

        Raises
        ------
        SamplingError
            If they do not mix in thousands of dimensions, for which NUTS would take hours.
        """
        some = starts[:4]
        factor = factor_near(reduce(add, map(curvature, some)) / len(some))
        around = Normal(starts.mean(axis=0), factor)
        yield from SplitHmc(posterior.as_loops.slopes, around).moved(starts, rng=rng)
        if self.n_dims > MOST_BY_LAPLACE:
            raise SamplingError(
                f"The posterior of {len(posterior.rows):,} rows and a quadratic in {self.n_dims:,} "
                "dimensions is too far from that of the quadratic alone: draws of the latter do "
                "not mix, and NUTS would take hours. Sample the model itself, or integrate out "
                "variables that few rows depend on, such as those of each person."
            )

    def _importance_sampled(
        self, posterior: Surrogate, n_draws: int, rng: np.random.Generator
    ) -> Iterator[PosteriorDraws]:
        """Draw by Laplace's approximation, if that is near; otherwise it is not tried again."""
        try:
            for found in self._by_laplace(posterior, n_draws, rng):
                self._count(n_corrected_laplace=1)
                yield found
        except SamplingError as error:
            _log.info("No Laplace approximation, NUTS from here: %s", error)
        self._tally.corrects = False

    def _by_laplace(
        self, posterior: Surrogate, n_draws: int, rng: np.random.Generator
    ) -> Iterator[PosteriorDraws]:
        around = self.laplace(posterior.rows, posterior.weights)
        for points in posterior.corrected_around(around, n_draws, rng=rng):
            yield PosteriorDraws(points=points)
        _log.info("The posterior is too far from normal to correct Laplace's draws")
        if len(around.parts) == 1:
            yield from self._drawn_along_axes(around.parts[0], posterior, n_draws, rng)

    def _drawn_along_axes(
        self, near: Normal, posterior: Surrogate, n_draws: int, rng: np.random.Generator
    ) -> Iterator[PosteriorDraws]:
        """Draw if the posterior is normal except in some directions."""
        density = Density(posterior.slopes)
        if self._curvature is not None:  # the mean over the posterior, not that at the mode
            near = laplace(density, near.location)
        most = 2**32 / posterior.n_products  # a few seconds
        for found in GriddedMarginals.around(
            near, posterior.log_density, density.gradients, most=most
        ):
            for points in posterior.corrected(found, n_draws, times=4, rng=rng):
                yield PosteriorDraws(points=points, along_axes=(found,))

    def rough_draw(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from roughly the region of that posterior: by Laplace, corrected if possible.

        By NUTS if the posterior has no mode.  Laplace's draws of zero density are left out.

        Raises
        ------
        SamplingError
            If NUTS fails.
        """
        posterior = self._begun(rows, weights, n_draws)
        return self.space.constrain(next(self._rough_ways(posterior, n_draws, rng)))

    def _rough_ways(
        self, posterior: Surrogate, n_draws: int, rng: np.random.Generator
    ) -> Iterator[np.ndarray]:
        """Yield draws by each method that serves, the best one first."""
        try:
            around = self.laplace(posterior.rows, posterior.weights)
        except SamplingError as error:
            _log.info("No Laplace approximation, NUTS from here: %s", error)
            self._tally.corrects = False
        else:
            if self.corrects:
                for points in posterior.corrected_around(around, n_draws, rng=rng):
                    self._count(n_corrected_laplace=1)
                    yield points
            x, _ = around.draw(n_draws, rng=rng, equally=0.0)
            kept = possible(posterior.log_density(x))
            if kept is not None:
                yield x[kept]
        yield self._by_nuts(posterior, n_draws, rng)

    def begin_at(self, modes: Sequence[LocalMode], *, n_gradients: int, images: Images) -> None:
        """Start searches and NUTS at the modes of all rows, and count the gradients these took.

        Parameters
        ----------
        modes : sequence of LocalMode
        n_gradients : int
        images : Orbits or Alone
            Which makes those modes that are images of others.
        """
        self._starts = [mode.x for mode in modes]
        self._searched = [mode.x for mode in modes if not mode.is_image]
        self._images = images
        self._count(n_gradients=n_gradients)

    def laplace(self, rows: Rows, weights: np.ndarray) -> Mixture:
        """Return the Laplace approximation of the posterior of weighted rows.

        Raises
        ------
        SamplingError
            If there is no mode.
        """
        refuse_discrete(self.space.model, _NO_SLOPE)
        density = self.posterior(rows, weights).density
        starts = self._searched or self._starts or [self.start]
        found = zip(*laplace_parts(density, starts), strict=True)
        modes = [m for part, height in found for m in self._images.of(LocalMode(part, height))]
        return Mixture.of([mode.around for mode in modes], [mode.height for mode in modes])

    def posterior(self, rows: Rows, weights: np.ndarray) -> Surrogate:
        """Return the posterior of weighted rows, and of the quadratic if there is one."""
        known = self._curvature
        curvature = None if known is None else lambda x: as_dense(known(x))
        return Surrogate(self.loglikelihood, rows, weights, self.quadratic, curvature)

    @property
    def full_density(self) -> Density:
        """The log-density of the model with all rows."""
        return self.density(self.loglikelihood.source)

    def density_of_some(self, size: int, key: int) -> Density:
        """Return the density of a sample of the rows."""
        if size >= self.n_rows:
            return self.density(InMemoryRows.of(self.loglikelihood.all_rows))
        return self.density_of_sample(self.subsample(size, key=key, distinct=True))

    def density_of_sample(self, sample: RowSample) -> Density:
        """Return the density of weighted rows, which stand for all."""
        return self.density(InMemoryRows.of(replace(sample.rows, case_weights=sample.weights)))

    def density(self, source: RowBlocks) -> Density:
        """Return the density of the rows of a source, with prior and quadratic.

        Raises
        ------
        SamplingError
            If variables are discrete.
        """
        return self._with(partial(slopes_of_all, self.loglikelihood, source))

    def density_of_each(self, each: Sequence[Rows]) -> Density:
        """Return the density of which each point has few rows of its own."""
        return self._with(partial(slopes_of_each, self.loglikelihood, each))

    @property
    def density_without_rows(self) -> Density:
        """The density of the prior, and the quadratic if there is one."""
        refuse_discrete(self.space.model, _NO_SLOPE)
        return Density(partial(slopes_without_rows, self.loglikelihood, self.quadratic))

    def _with(self, of_rows: Callable[[np.ndarray], Slopes]) -> Density:
        others = self.density_without_rows.slopes
        return Density(lambda points: of_rows(points).plus(others(points)))
