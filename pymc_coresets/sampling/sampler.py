"""Draws from the posteriors of many coresets of one model, whose density is compiled once."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Literal

import numpy as np

from pymc_coresets.diagnostics.known_posterior import Proposal, possible
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.potentials.backends.evaluator import SlopesOfRows
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.remainder import Remainder
from pymc_coresets.potentials.verification import refuse_impossible_rows
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Curvature, Quadratic, as_dense
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.keyed import Scan, random_key
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import Look, RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import (
    GradientPass,
    KernelSlopes,
    PosteriorDensity,
    Slopes,
    WeightedPosterior,
)
from pymc_coresets.sampling.laplace import LaplaceApproximation
from pymc_coresets.sampling.mixtures import LaplaceMixture, resampled
from pymc_coresets.sampling.modes_of_all_rows import around_modes
from pymc_coresets.sampling.proposal import KnownDensity
from pymc_coresets.sampling.steps.axis_tables import AxisTables
from pymc_coresets.sampling.steps.many_chains import SplitHmc
from pymc_coresets.sampling.steps.metric import Factor
from pymc_coresets.sampling.steps.warm_nuts import InnerNuts, WarmNuts

type Kind = Literal["auto", "nuts", "laplace"]

#: Dimensions from which on 4 D gradients and a decomposition take longer than NUTS.
MOST_BY_LAPLACE = 1_500

_PROPOSALS, _MORE_PROPOSALS = 2, 4  # for each draw by importance sampling
_CURVATURES = 4  # whose mean is the precision around draws
_TABULATED = 2**32  # products, for a density that is tabulated: some seconds

_log = logging.getLogger(__name__)


class CoresetSampler:
    """Samples the posterior of any weighted rows of a model, and evaluates potentials at the draws.

    Rows and weights are inputs of the compiled density, so that nothing is compiled after the
    first call of a sampler.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials of the model.
    kind : {"auto", "nuts", "laplace"}
        How draws are made.  "auto" corrects Laplace's draws by importance sampling while that is
        sound (a Pareto k-hat of at most 0.7), for they need no tuning and no further compilation,
        and goes over to NUTS for good where it is not.
    tune, nuts_sampler
        As `WarmNuts` has them.
    quadratic : Quadratic, optional
        What is added to the weighted rows.

    Attributes
    ----------
    quadratic : Quadratic, or None
        May be replaced by others of the same interface: nothing is compiled anew.
    corrects : bool
        Whether the posteriors so far were so close to normal that NUTS was not needed.
    near : KnownDensity, or None
        Close to the posterior: draws are taken from it, and corrected while that is sound; where it
        is not, they are moved to the posterior, if `curvature` is known.
    along_axes : AxisTables, or None
        From where the last draws come, if Laplace's would not do.
    curvature : callable, or None
        Returns the precision (n_dims, n_dims) of the posterior near a point (n_dims,), dense or
        sparse, where it is known: that of Laplace's approximation, in place of differences of
        gradients.
    n_runs, n_draws, n_corrected, n_gradients, n_not_finite : int
        Posteriors that were sampled, draws, how many of the runs were corrected draws of Laplace's,
        gradients of all rows, and draws at which the log-likelihood of all rows is not finite.

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
        nuts_sampler: InnerNuts = "pymc",
        quadratic: Quadratic | None = None,
    ) -> None:
        self.loglikelihood, self.quadratic = loglik, quadratic
        self._kind = kind
        self.corrects = kind == "auto" and loglik.n_dims <= MOST_BY_LAPLACE
        self._nuts = WarmNuts(loglik, quadratic, tune=tune, nuts_sampler=nuts_sampler)
        self.near: KnownDensity | None = None
        self.along_axes: AxisTables | None = None
        self.curvature: Callable[[np.ndarray], Curvature] | None = None
        self.n_runs = self.n_draws = self.n_corrected = self.n_gradients = self.n_not_finite = 0

    def with_kind(self, kind: Kind, *, tune: int | None = None) -> "CoresetSampler":
        """Return a sampler of the same model that draws in another way."""
        steps, nuts = self._nuts.tune if tune is None else tune, self._nuts.nuts_sampler
        return CoresetSampler(self.loglikelihood, kind=kind, tune=steps, nuts_sampler=nuts)

    def with_quadratic(
        self, quadratic: Quadratic, start: np.ndarray | None = None
    ) -> "CoresetSampler":
        """Return a sampler of the same rows and a quadratic; it may begin at a point (n_dims,)."""
        nuts = self._nuts.nuts_sampler
        other = CoresetSampler(self.loglikelihood, nuts_sampler=nuts, quadratic=quadratic)
        if start is not None:
            other.begin_at(start[None])
        return other

    def begin_at(self, points: np.ndarray, metric: Factor | None = None) -> None:
        """Begin at points (n_points, n_dims); NUTS with the precision there, if that is known."""
        self._nuts.begin_at(points, metric)

    @property
    def counts(self) -> dict[str, int]:
        """What has gone on so far, and what has gone wrong."""
        return {
            "n_sampler_runs": self.n_runs,
            "n_sampler_draws": self.n_draws,
            "n_corrected_laplace": self.n_corrected,
            "n_divergences": self._nuts.n_divergences,
            "n_failed_starts": self._nuts.n_failed_starts,
            "n_gradients": self.n_gradients,
            "n_not_finite": self.n_not_finite,
        }

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.loglikelihood.n_rows

    @property
    def n_terms(self) -> int:
        """See `Potentials`."""
        return self.loglikelihood.n_terms

    @property
    def total_weight(self) -> float:
        """Number of rows of the data; larger than N where equal rows were merged."""
        return self.loglikelihood.total_weight

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D."""
        return self.loglikelihood.n_dims

    @cached_property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model."""
        return self.loglikelihood.observations.space

    @cached_property
    def remainder(self) -> Remainder:
        """The log-density without rows and quadratic."""
        if self.quadratic is None:
            return self.loglikelihood.remainder
        return self.loglikelihood.remainder_beside(self.quadratic.graph)

    def scan(self, size: int, *, key: int, distinct: bool = False) -> Scan:
        """Sample rows, see `Potentials.scan`."""
        return self.loglikelihood.source.scan(size, key=key, distinct=distinct)

    def loglik(self, draws: Draws, rows: Rows) -> np.ndarray:
        """Potentials of some rows, (n_rows, n_draws), in nats; not all of them may be finite."""
        return self.loglikelihood.matrix(draws, rows, finite=False)

    def look(
        self, draws: Draws, *, n_candidates: int = 0, scale: float = 0.0, key: int = 0
    ) -> Look:
        """Evaluate all rows at the draws, see `Potentials.look`."""
        look = self.loglikelihood.look(draws, n_candidates=n_candidates, scale=scale, key=key)
        n_finite = int(np.count_nonzero(np.isfinite(look.total)))
        self.n_not_finite += len(look.total) - n_finite
        if not n_finite:
            refuse_impossible_rows(self.loglikelihood, self.space)
        return look

    def draw(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from the posterior of the rows with the given weights.

        Raises
        ------
        SamplingError
            If the posterior has no mode ("laplace"), or NUTS fails.
        """
        return self.space.constrain(self.points(rows, weights, n_draws, rng=rng))

    def points(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw on the unconstrained scale, (n_draws, n_dims), see `draw`."""
        self.n_runs, self.n_draws = self.n_runs + 1, self.n_draws + n_draws
        if self._kind == "laplace":
            return self.laplace(rows, weights).draw(n_draws, rng=rng)
        self.along_axes, starts, points = None, None, None
        if self.near is not None:
            starts, log_weights = self.weighed(
                self.near, rows, weights, _PROPOSALS * n_draws, rng=rng
            )
            points = resampled(starts, log_weights, n_draws, rng=rng)
        if points is None and self.corrects:
            points = self._importance_sampled(rows, weights, n_draws, rng)
        if points is not None:
            self.n_corrected += 1
            return points
        _log.info("The posterior is too far from what it should be near")
        if starts is not None and self.curvature is not None:
            points = self._moved(starts[:n_draws], self.curvature, rows, weights, rng)
        if points is None:
            points = self._nuts.draw(rows, weights, self.quadratic, n_draws, rng=rng)
        return points

    def _moved(
        self,
        starts: np.ndarray,
        curvature: Callable[[np.ndarray], Curvature],
        rows: Rows,
        weights: np.ndarray,
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        """Move draws from near the posterior (n_draws, n_dims) there; None where they do not mix.

        Raises
        ------
        SamplingError
            If they do not in thousands of dimensions, where NUTS would take hours.
        """
        some = starts[:_CURVATURES]
        factor = Factor.near(reduce(add, map(curvature, some)) / len(some))
        density = self._density_of(rows, weights)
        points = SplitHmc(density.slopes, starts.mean(axis=0), factor).moved(starts, rng=rng)
        if points is None and self.n_dims > MOST_BY_LAPLACE:
            raise SamplingError(
                f"The posterior of {len(rows):,} rows and a quadratic in {self.n_dims:,} "
                "dimensions is too far from that of the quadratic alone: draws from there do not "
                "mix, and NUTS would take hours. Sample the model itself, or integrate out "
                "variables that few rows see, such as those of each person."
            )
        return points

    def _importance_sampled(
        self, rows: Rows, weights: np.ndarray, n_draws: int, rng: np.random.Generator
    ) -> np.ndarray | None:
        """Draw by Laplace's approximation, (n_draws, n_dims); None where that is not near."""
        try:
            laplace = self.laplace(rows, weights)
            points = self._corrected(laplace, rows, weights, n_draws, rng)
            if points is None:
                _log.info("The posterior is too far from normal to correct Laplace's draws")
                points = self._drawn_along_axes(laplace, rows, weights, n_draws, rng)
        except SamplingError as error:
            _log.info("No Laplace approximation, NUTS from here: %s", error)
            points = None
        self.corrects = points is not None
        return points

    def _drawn_along_axes(
        self,
        laplace: LaplaceMixture,
        rows: Rows,
        weights: np.ndarray,
        n_draws: int,
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        """Draw where the posterior is normal but for some directions; None where it is not."""
        [part, *others] = laplace.parts
        if others:
            return None
        if self.curvature is not None:  # which is a mean over the posterior, not that at the mode
            space = self.space.with_density(self._density_of(rows, weights))
            part = LaplaceApproximation.of(space, part.mode)
        density, most = (
            partial(self.log_density, rows, weights),
            _TABULATED / self._n_products(rows),
        )
        found = AxisTables.around(part.mode, part.factor, density, most=most)
        if found is None:
            return None
        x, log_weights = self.weighed(found, rows, weights, _MORE_PROPOSALS * n_draws, rng=rng)
        points = resampled(x, log_weights, n_draws, rng=rng)
        self.along_axes = None if points is None else found
        return points

    def weighed(
        self,
        near: KnownDensity,
        rows: Rows,
        weights: np.ndarray,
        n_draws: int,
        *,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw from a distribution, (n_draws, n_dims), with log-weights for the rows' posterior."""
        x, logq = near.draw(n_draws, rng=rng)
        return x, self.log_density(rows, weights, x) - logq

    def rough_draw(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from roughly the region of that posterior: by Laplace, corrected where possible.

        By NUTS where the posterior has no mode.  Of Laplace's draws, those at which the density is
        zero are left out.

        Raises
        ------
        SamplingError
            If NUTS fails.
        """
        self.n_runs, self.n_draws = self.n_runs + 1, self.n_draws + n_draws
        try:
            approximation = self.laplace(rows, weights)
        except SamplingError as error:
            _log.info("No Laplace approximation, NUTS from here: %s", error)
            self.corrects = False
            points = self._nuts.draw(rows, weights, self.quadratic, n_draws, rng=rng)
            return self.space.constrain(points)
        corrected = None
        if self.corrects:
            corrected = self._corrected(approximation, rows, weights, n_draws, rng)
        self.n_corrected += corrected is not None
        points = approximation.draw(n_draws, rng=rng) if corrected is None else corrected
        kept = possible(self.log_density(rows, weights, points))
        if kept is None:
            points = self._nuts.draw(rows, weights, self.quadratic, n_draws, rng=rng)
        elif len(kept) < n_draws:
            points = points[kept]
        return self.space.constrain(points)

    def proposal(
        self, n_draws: int, *, start_size: int, rng: np.random.Generator, key: int | None = None
    ) -> Proposal[Draws] | None:
        """Draw from around the modes of the posterior of all rows.

        Others than the first are looked for from some tens of starts, see `Modes`.  A mode is found
        from that of a few rows, with a few gradients of all; the curvature there takes 2 D more, or
        2 D of a sample of the rows where D is large.  Of more than two million rows, that sample is
        larger, and the mode is looked for from there: each gradient of all rows reads them once.

        Parameters
        ----------
        n_draws : int
        start_size : int
            Number of the few rows.
        rng : numpy.random.Generator
        key : int, optional
            Of the sample that the few rows are; drawn by default.

        Returns
        -------
        Proposal, or None
            None where the posterior has no mode, as in hierarchies, or discrete variables.
        """
        key = random_key(rng) if key is None else key
        try:
            found = around_modes(self, start_size, key=key, rng=rng.spawn(1)[0])
        except SamplingError as error:
            _log.info("No proposal for the full posterior: %s", error)
            refuse_impossible_rows(self.loglikelihood, self.space)
            return None
        self.n_gradients += found.n_gradients
        self._nuts.starts = [part.location for part in found.mixture.parts]
        positions, logq = found.mixture.draw(n_draws, rng=rng)
        with np.errstate(all="ignore"):  # some draws are far out
            draws, of_prior = self.space.constrain(positions), self._unweighted(positions).values
        return Proposal(
            draws=draws,
            log_ratios=of_prior - logq,
            around=found.mixture,
            modes=found.table(self.space, self.space.model.named_vars_to_dims),
        )

    def laplace(self, rows: Rows, weights: np.ndarray) -> LaplaceMixture:
        """Return the Laplace approximation of the posterior of weighted rows.

        Raises
        ------
        SamplingError
            If there is no mode.
        """
        return LaplaceMixture.of(self.posterior_of(rows, weights), self._nuts.starts)

    @property
    def full_density(self) -> PosteriorDensity:
        """The log-density of the model with all rows."""
        source = self.loglikelihood.source
        return PosteriorDensity(partial(self._added_up, source, self._slopes_of_source))

    def posterior_of(self, rows: Rows, weights: np.ndarray) -> Unconstrained:
        """Return the space of the model with the density of weighted rows."""
        density, curvature = self._density_of(rows, weights), self.curvature
        if curvature is None:
            return self.space.with_density(density)
        return self.space.with_density(density, lambda x: as_dense(curvature(x)))

    def _density_of(self, rows: Rows, weights: np.ndarray) -> PosteriorDensity:
        if not weights.any():
            return PosteriorDensity(self._unweighted)
        return self._posterior_density(replace(rows, base_weights=weights))

    def posterior_of_some(self, size: int, key: int) -> Unconstrained:
        """Return the space of the model with the density of a sample of the rows."""
        return self.space.with_density(self.density_of_some(size, key))

    def density_of_some(self, size: int, key: int) -> PosteriorDensity:
        """Return the density of a sample of the rows."""
        if size >= self.n_rows:
            return self._posterior_density(self.loglikelihood.all_rows)
        scan = self.scan(size, key=key, distinct=True)
        return self._posterior_density(replace(scan.rows, base_weights=scan.weights))

    def _posterior_density(self, rows: Rows) -> PosteriorDensity:
        source = InMemoryRows.of(rows)
        return PosteriorDensity(partial(self._added_up, source, self._slopes))

    def _added_up(self, source: RowBlocks, slopes: SlopesOfRows, points: np.ndarray) -> Slopes:
        return source.reduce(GradientPass(slopes, points)).plus(self._unweighted(points))

    @cached_property
    def _slopes(self) -> KernelSlopes:
        return KernelSlopes.of(self.loglikelihood)

    @cached_property
    def _slopes_of_source(self) -> SlopesOfRows:
        # A device keeps the blocks of the source, and knows them by where they begin and end.
        return self.loglikelihood.evaluator.slopes(self.space) or self._slopes

    def _unweighted(self, points: np.ndarray) -> Slopes:
        """Return the log-density without rows, and its gradients."""
        if self.quadratic is None:
            return Slopes(*self.remainder.slopes(points))
        coefficients = self.remainder.coefficients(points)
        pull = self.quadratic.slopes_at(coefficients)
        values, gradients = self.remainder.slopes(points, pull)
        return Slopes(values + self.quadratic.at(coefficients), gradients)

    def _corrected(
        self,
        approximation: LaplaceMixture,
        rows: Rows,
        weights: np.ndarray,
        n_draws: int,
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        density, n_products = partial(self.log_density, rows, weights), self._n_products(rows)
        return approximation.corrected(n_draws, density, n_products=n_products, rng=rng)

    def _n_products(self, rows: Rows) -> int:
        """About how many numbers are multiplied for the density at a point."""
        of_quadratic = 0 if self.quadratic is None else self.n_dims
        return self.n_dims * (len(rows) + of_quadratic)

    def log_density(self, rows: Rows, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return the log-density of weighted rows at points (n_points, n_dims)."""
        posterior = WeightedPosterior(self.loglikelihood, rows, weights, self.quadratic)
        return posterior.log_density(x)
