"""Draws from the posteriors of many coresets of one model, whose density is compiled once."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import pymc as pm

from pymc_coresets.compat.pymc_api import PyMCSamplingError
from pymc_coresets.diagnostics.importance_draws import Proposal
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.potentials.backends.evaluator import SlopesOfRows
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.fused_loops import density_mode
from pymc_coresets.potentials.remainder import Remainder
from pymc_coresets.potentials.verification import refuse_impossible_rows
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.rewriting.quadratic import Quadratic
from pymc_coresets.reading.rewriting.rewrite import coreset_model, row_values
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import Look, RowBlocks, Scan
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import GradientPass, KernelSlopes, PosteriorDensity, Slopes
from pymc_coresets.sampling.modes.mixtures import LaplaceMixture, resampled
from pymc_coresets.sampling.modes.on_all_rows import around_modes
from pymc_coresets.sampling.proposal import KnownDensity
from pymc_coresets.sampling.steps.metric import Factor
from pymc_coresets.sampling.steps.nuts import (
    N_CHAINS,
    NutpieNuts,
    Nuts,
    PyMCNuts,
    Run,
    nuts_failure,
)

__all__ = ["MOST_BY_LAPLACE", "CoresetSampler", "InnerNuts", "Kind"]

type Kind = Literal["auto", "nuts", "laplace"]
type InnerNuts = Literal["pymc", "nutpie"]

#: Dimensions from which on 4 D gradients and a decomposition take longer than NUTS.
MOST_BY_LAPLACE = 1_500

_POTENTIALS_AT_ONCE = 2**22
_PROPOSALS = 2  # for each draw by importance sampling

_log = logging.getLogger(__name__)


class CoresetSampler:
    """Samples the posterior of any weighted rows of a model, and evaluates potentials at the draws.

    Rows and weights are inputs of the compiled density, so that nothing is compiled after the
    first call of a sampler.  From the second run on, NUTS starts where the last one ended, with
    its step size, and tunes for half as long.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials of the model.
    kind : {"auto", "nuts", "laplace"}
        How draws are made.  "auto" corrects Laplace's draws by importance sampling while that is
        sound (a Pareto k-hat of at most 0.7), for they need no tuning and no further compilation,
        and goes over to NUTS for good where it is not.
    tune : int, default 300
        Tuning steps of each of two NUTS chains.
    nuts_sampler : {"pymc", "nutpie"}
        Whose NUTS.  PyMC's compiles in a second; nutpie's takes ten or more, and runs faster.
    quadratic : Quadratic, optional
        What is added to the weighted rows.

    Attributes
    ----------
    quadratic : Quadratic, or None
        May be replaced by others of the same interface: nothing is compiled anew.
    near : KnownDensity, or None
        Close to the posterior: draws are taken from it, and corrected, while that is sound.
    metric : Factor, or None
        Of a precision close to that of the posterior, if PyMC's NUTS shall use it.
    curvature : callable, or None
        Returns the precision (n_dims, n_dims) of the posterior near a point (n_dims,), where it is
        known: that of Laplace's approximation, in place of differences of gradients.
    n_runs, n_draws, n_corrected, n_divergences, n_failed_starts, n_gradients, n_not_finite : int
        Posteriors that were sampled, draws, how many of the runs were corrected draws of Laplace's,
        divergences among the draws, runs of NUTS that failed, gradients of all rows, and draws at
        which the log-likelihood of all rows is not finite.

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
        self._kind, self._tune, self._nuts_sampler = kind, tune, nuts_sampler
        self._corrects = kind == "auto" and loglik.n_dims <= MOST_BY_LAPLACE
        self._last: Run | None = None
        self._starts: list[np.ndarray] = []  # modes of the posterior of all rows, where known
        self.near: KnownDensity | None = None
        self.metric: Factor | None = None
        self.curvature: Callable[[np.ndarray], np.ndarray] | None = None
        self.n_corrected = 0
        self.n_runs = self.n_draws = self.n_divergences = self.n_failed_starts = 0
        self.n_gradients = self.n_not_finite = 0

    def with_kind(self, kind: Kind, *, tune: int | None = None) -> "CoresetSampler":
        """Return a sampler of the same model that draws in another way."""
        steps, nuts = self._tune if tune is None else tune, self._nuts_sampler
        return CoresetSampler(self.loglikelihood, kind=kind, tune=steps, nuts_sampler=nuts)

    def with_quadratic(
        self, quadratic: Quadratic, start: np.ndarray | None = None
    ) -> "CoresetSampler":
        """Return a sampler of the same rows, to which a quadratic is added.

        Parameters
        ----------
        quadratic : Quadratic
        start : ndarray of shape (n_dims,), optional
            Where the search for the mode begins, and NUTS where there is none.
        """
        nuts = self._nuts_sampler
        other = CoresetSampler(self.loglikelihood, nuts_sampler=nuts, quadratic=quadratic)
        if start is not None:
            other.begin_at(start[None])
        return other

    def begin_at(self, points: np.ndarray, metric: Factor | None = None) -> None:
        """Begin at points (n_points, n_dims); NUTS with the precision there, if that is known."""
        self._starts, self.metric, self._last = list(points[:N_CHAINS]), metric, None

    @property
    def corrects(self) -> bool:
        """Whether the posteriors so far were so close to normal that NUTS was not needed."""
        return self._corrects

    @property
    def counts(self) -> dict[str, int]:
        """What has gone on so far, and what has gone wrong."""
        return {
            "n_sampler_runs": self.n_runs,
            "n_sampler_draws": self.n_draws,
            "n_corrected_laplace": self.n_corrected,
            "n_divergences": self.n_divergences,
            "n_failed_starts": self.n_failed_starts,
            "n_gradients": self.n_gradients,
            "n_not_finite": self.n_not_finite,
        }

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.loglikelihood.n_rows

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
        """Potentials of some rows, (n_rows, n_draws), in nats."""
        return self.loglikelihood.matrix(draws, rows)

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
        self._count(n_draws)
        if self._kind == "laplace":
            return self.laplace(rows, weights).draw(n_draws, rng=rng)
        if self.near is not None:
            x, log_weights = self.weighed(self.near, rows, weights, _PROPOSALS * n_draws, rng=rng)
            kept = resampled(x, log_weights, n_draws, rng=rng)
            if kept is not None:
                self.n_corrected += 1
                return kept
            _log.info("The posterior is too far from what it should be near")
        if self._corrects:
            try:
                approximation = self.laplace(rows, weights)
                points = self._corrected(approximation, rows, weights, n_draws, rng)
            except SamplingError as error:
                _log.info("No Laplace approximation, NUTS from here: %s", error)
                self._corrects = False
            else:
                if points is not None:
                    self.n_corrected += 1
                    return points
                _log.info("The posterior is too far from normal to correct Laplace's draws")
                self._corrects = False
        return self._warm(rows, weights, n_draws, rng)

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
        return x, self._density_of(rows, weights)(x) - logq

    def rough_draw(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from roughly the region of that posterior: by Laplace, corrected where possible.

        By NUTS where the posterior has no mode.

        Raises
        ------
        SamplingError
            If NUTS fails.
        """
        self._count(n_draws)
        try:
            approximation = self.laplace(rows, weights)
        except SamplingError as error:
            _log.info("No Laplace approximation, NUTS from here: %s", error)
            self._corrects = False
            return self.space.constrain(self._warm(rows, weights, n_draws, rng))
        points = None
        if self._corrects:
            points = self._corrected(approximation, rows, weights, n_draws, rng)
        self.n_corrected += points is not None
        if points is None:
            points = approximation.draw(n_draws, rng=rng)
        return self.space.constrain(points)

    def proposal(
        self,
        n_draws: int,
        *,
        start_size: int,
        rng: np.random.Generator,
        key: int | None = None,
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
        self._starts = [part.location for part in found.mixture.parts]
        positions, logq = found.mixture.draw(n_draws, rng=rng)
        return Proposal(
            draws=self.space.constrain(positions),
            log_ratios=self._log_unweighted(positions) - logq,
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
        space = self.posterior_of(rows, weights)
        return LaplaceMixture.of(space, self._starts)

    @property
    def full_density(self) -> PosteriorDensity:
        """The log-density of the model with all rows."""
        source = self.loglikelihood.source
        return PosteriorDensity(partial(self._added_up, source, self._slopes_of_source))

    def posterior_of(self, rows: Rows, weights: np.ndarray) -> Unconstrained:
        """Return the space of the model with the density of weighted rows."""
        density = PosteriorDensity(self._unweighted)
        if weights.any():
            density = self._posterior_density(replace(rows, base_weights=weights))
        return self.space.with_density(density, self.curvature)

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
        source = InMemoryRows(rows.arrays, rows.base_weights, rows.positions)
        return PosteriorDensity(partial(self._added_up, source, self._slopes))

    def _added_up(self, source: RowBlocks, slopes: SlopesOfRows, points: np.ndarray) -> Slopes:
        return source.reduce(GradientPass(slopes, points)).plus(self._unweighted(points))

    @cached_property
    def _slopes(self) -> KernelSlopes:
        return KernelSlopes.of(self.loglikelihood.observations)

    @cached_property
    def _slopes_of_source(self) -> SlopesOfRows:
        # A device keeps the blocks of the source, and knows them by where they begin and end.
        return self.loglikelihood.slopes(self.space) or self._slopes

    def _unweighted(self, points: np.ndarray) -> Slopes:
        """Return the log-density without rows, and its gradients."""
        if self.quadratic is None:
            return Slopes(*self.remainder.slopes(points))
        coefficients = self.remainder.coefficients(points)
        pull = self.quadratic.slopes_at(coefficients)
        values, gradients = self.remainder.slopes(points, pull)
        return Slopes(values + self.quadratic.at(coefficients), gradients)

    def _count(self, n_draws: int) -> None:
        self.n_runs += 1
        self.n_draws += n_draws

    def _values(self, rows: Rows, weights: np.ndarray) -> dict[str, np.ndarray]:
        values = row_values(self.loglikelihood.observations, rows, weights)
        return values if self.quadratic is None else values | self.quadratic.values

    def _warm(
        self, rows: Rows, weights: np.ndarray, n_draws: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Run NUTS from where it ended before; where the density is 0 there, from the start."""
        values, last = self._values(rows, weights), self._last
        try:
            run = self._run(values, n_draws, last, rng)
        except SamplingError as error:
            if last is None:
                raise
            _log.info("NUTS starts anew: %s", error)
            run = self._run(values, n_draws, None, rng)
        self._last = run
        self.n_divergences += run.n_divergences
        return run.positions

    def _run(
        self,
        values: dict[str, np.ndarray],
        n_draws: int,
        last: Run | None,
        rng: np.random.Generator,
    ) -> Run:
        tune = self._tune if last is None else self._tune // 2
        if self.metric is not None:  # and only the step size is left to tune
            tune = self._tune // 4
        if isinstance(self._nuts, PyMCNuts):
            self._nuts.metric = self.metric
        starts = self._first
        at_initial_point = last is None and starts is None
        try:
            return self._nuts.run(values, n_draws, tune=tune, last=last, rng=rng, starts=starts)
        except (ValueError, RuntimeError, FloatingPointError, PyMCSamplingError) as error:
            self.n_failed_starts += 1
            if isinstance(error, SamplingError):
                raise
            raise nuts_failure(error, self._model if at_initial_point else None) from error

    @property
    def _first(self) -> np.ndarray | None:
        """Where the first chains of NUTS begin: at one known mode after another."""
        known = self._starts
        return np.stack([known[i % len(known)] for i in range(N_CHAINS)]) if known else None

    @cached_property
    def _model(self) -> pm.Model:
        loglik = self.loglikelihood
        some, of_one = loglik.some_row, np.ones(1)
        return coreset_model(loglik.observations, some, of_one, quadratic=self.quadratic, lean=True)

    def _corrected(
        self,
        approximation: LaplaceMixture,
        rows: Rows,
        weights: np.ndarray,
        n_draws: int,
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        density = self._density_of(rows, weights)
        of_quadratic = 0 if self.quadratic is None else self.n_dims
        n_products = self.n_dims * (len(rows) + of_quadratic)
        return approximation.corrected(n_draws, density, n_products=n_products, rng=rng)

    def _density_of(self, rows: Rows, weights: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the log-density of weighted rows, for points (n_points, n_dims) at once."""
        step = max(_POTENTIALS_AT_ONCE // max(len(rows), 1), 1)

        def log_density(x: np.ndarray) -> np.ndarray:
            parts = [x[i : i + step] for i in range(0, len(x), step)]
            of_rows = [weights @ self.loglik(self.space.constrain(some), rows) for some in parts]
            total: np.ndarray = self._log_unweighted(x) + np.concatenate(of_rows)
            return total

        return log_density

    def _log_unweighted(self, x: np.ndarray) -> np.ndarray:
        """Return the log-density without rows at points (n_points, n_dims)."""
        logp = self.remainder.values(x)
        if self.quadratic is not None:
            logp = logp + self.quadratic.at(self.remainder.coefficients(x))
        return logp

    @cached_property
    def _nuts(self) -> Nuts:
        discrete = [v.name for v in self._model.discrete_value_vars]
        if discrete:
            raise SamplingError(
                f"{discrete!r} are discrete, and NUTS cannot sample them: sum them out, or use "
                "method='pursuit' with weighting='prior', or with draws of your own."
            )
        if self._nuts_sampler == "nutpie":
            return NutpieNuts(self._model, self.loglikelihood.observations.shapes)
        names = self._values(self.loglikelihood.some_row, np.ones(1))
        return PyMCNuts(Unconstrained(self._model, mode=density_mode()), names)
