"""Draws from the posteriors of many coresets of one model, whose density is compiled once."""

import logging
from functools import cached_property
from importlib.util import find_spec
from typing import Literal

import numpy as np
import pymc as pm
from pymc import exceptions
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.rewrite import coreset_model, row_values
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.laplace import LaplaceApproximation
from pymc_coresets.sampling.nuts import NutpieNuts, Nuts, PyMCNuts, Run

__all__ = ["CoresetSampler"]

type Kind = Literal["auto", "nuts", "laplace"]

_log = logging.getLogger(__name__)


class CoresetSampler:
    """Samples the posterior of any weighted rows of a model, and evaluates potentials at the draws.

    Rows and weights are inputs of the compiled density, so that nothing is compiled after the
    first call of a sampler.  NUTS is nutpie's where that is installed, and PyMC's own otherwise.
    From the second run on it starts where the last one ended, with its step size, and tunes for
    half as long.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials of the model.
    base_weights : ndarray of shape (n_obs,)
        What each row stands for.
    sampler : {"auto", "nuts", "laplace"}
        How draws are made.  "auto" corrects Laplace's draws by importance sampling while that is
        sound (a Pareto k-hat of at most 0.7), for they need no tuning and no further compilation,
        and goes over to NUTS for good where it is not.
    tune : int, default 300
        Tuning steps of each of two NUTS chains.
    coarse_start : bool, default True
        Let the first draws be Laplace's own where they cannot be corrected ("auto" and "nuts"):
        they are only to find the region of the posterior.

    Attributes
    ----------
    n_runs, n_draws, n_corrected, n_divergences, n_failed_starts, n_not_finite : int
        Posteriors that were sampled, draws, how many of the runs were corrected draws of Laplace's,
        divergences among the draws, runs of NUTS that failed, and draws at which the
        log-likelihood of all rows is not finite.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=np.arange(5.0))
    >>> loglik = LogLikelihood(find_observations(model))
    >>> sampler = CoresetSampler(loglik, np.ones(5), sampler="laplace")
    >>> draws = sampler.draw(
    ...     np.array([4]), np.array([100.0]), 1_000, rng=np.random.default_rng(1)
    ... )
    >>> bool(abs(draws.values["mu"].mean() - 4.0) < 0.02)
    True
    """

    def __init__(
        self,
        loglik: LogLikelihood,
        base_weights: np.ndarray,
        *,
        sampler: Kind = "auto",
        tune: int = 300,
        coarse_start: bool = True,
    ) -> None:
        self._loglik, self._base_weights = loglik, base_weights
        self._sampler, self._tune, self._coarse_start = sampler, tune, coarse_start
        self._corrects = sampler == "auto"
        self._last: Run | None = None
        self.n_corrected = 0
        self.n_runs = self.n_draws = self.n_divergences = self.n_failed_starts = 0
        self.n_not_finite = 0

    def with_sampler(self, sampler: Kind, *, coarse_start: bool = True) -> "CoresetSampler":
        """Give one for the same model that draws in another way."""
        return CoresetSampler(
            self._loglik,
            self._base_weights,
            sampler=sampler,
            tune=self._tune,
            coarse_start=coarse_start,
        )

    @property
    def counts(self) -> dict[str, int]:
        """What has gone on so far, and what has gone wrong."""
        return {
            "n_sampler_runs": self.n_runs,
            "n_sampler_draws": self.n_draws,
            "n_corrected_laplace": self.n_corrected,
            "n_divergences": self.n_divergences,
            "n_failed_starts": self.n_failed_starts,
            "n_not_finite": self.n_not_finite,
        }

    @property
    def n_obs(self) -> int:
        """Number of rows N."""
        return self._loglik.n_obs

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D."""
        return self._loglik.observations.n_dims

    @property
    def base_weights(self) -> np.ndarray:
        """What each row stands for, of shape (n_obs,)."""
        return self._base_weights

    def loglik(self, draws: Draws, rows: np.ndarray | None = None) -> np.ndarray:
        """Potentials of some rows (all by default), (n_rows, n_draws), in nats."""
        return self._loglik.matrix(draws, rows)

    def total(self, draws: Draws) -> np.ndarray:
        """Sum of the weighted potentials of all rows, of shape (n_draws,)."""
        return self.moments(draws)[0]

    def moments(self, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Give `total`, and the standard deviation of each row's potential, in one pass."""
        moments = self._loglik.moments(draws, self._base_weights, finite=False)
        self.n_not_finite += int(np.count_nonzero(~np.isfinite(moments.total)))
        return moments.total, moments.norms

    def draw(
        self, indices: np.ndarray, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from the posterior of the rows `indices` with the given weights.

        Raises
        ------
        SamplingError
            If the posterior has no mode (Laplace), or NUTS fails.
        """
        values = row_values(self._loglik.observations, indices, weights)
        self.n_runs += 1
        self.n_draws += n_draws
        if self._sampler == "laplace":
            return self._approximation(values).draw(n_draws, rng=rng)
        if self._corrects or (self._coarse_start and self.n_runs == 1):
            draws = self._by_laplace(values, n_draws, rng)
            if draws is not None:
                return draws
        return self._warm(values, n_draws, rng)

    def _by_laplace(
        self, values: dict[str, np.ndarray], n_draws: int, rng: np.random.Generator
    ) -> Draws | None:
        """Correct Laplace's draws, or take them as they are for the coarse start; None for NUTS."""
        coarse = self._coarse_start and self.n_runs == 1
        try:
            approximation = self._approximation(values)
        except SamplingError as error:
            _log.info("No Laplace approximation: %s", error)
            self._corrects = False
            return None
        draws = approximation.corrected(n_draws, rng=rng) if self._corrects else None
        if draws is not None:
            self.n_corrected += 1
            return draws
        if coarse:
            return approximation.draw(n_draws, rng=rng)
        _log.info("The posterior is too far from normal to correct Laplace's draws: NUTS from here")
        self._corrects = False
        return None

    def _approximation(self, values: dict[str, np.ndarray]) -> LaplaceApproximation:
        for name, shared in self._shared.items():
            shared.set_value(values[name])
        return LaplaceApproximation.of(self._space)

    def _warm(self, values: dict[str, np.ndarray], n_draws: int, rng: np.random.Generator) -> Draws:
        """Run NUTS from where it ended before; where the density is 0 there, from the start."""
        last = self._last
        try:
            run = self._run(values, n_draws, last, rng)
        except SamplingError as error:
            if last is None:
                raise
            _log.info("NUTS starts anew: %s", error)
            run = self._run(values, n_draws, None, rng)
        self._last = run
        self.n_divergences += run.n_divergences
        return run.draws

    def _run(
        self,
        values: dict[str, np.ndarray],
        n_draws: int,
        last: Run | None,
        rng: np.random.Generator,
    ) -> Run:
        tune = self._tune if last is None else self._tune // 2
        try:
            return self._nuts.run(values, n_draws, tune=tune, last=last, rng=rng)
        except (ValueError, RuntimeError, FloatingPointError, exceptions.SamplingError) as error:
            self.n_failed_starts += 1
            raise SamplingError(f"NUTS failed on the posterior of a coreset: {error}") from error

    @cached_property
    def _model(self) -> pm.Model:
        first, one = np.array([0]), np.array([1.0])
        return coreset_model(self._loglik.observations, first, one, lean=True)

    @cached_property
    def _shared(self) -> dict[str, SharedVariable]:
        """The shared variables of the model that hold rows and weights, by name."""
        names = row_values(self._loglik.observations, np.array([0]), np.array([1.0]))
        inputs = graph_inputs([self._model.logp()])
        return {v.name: v for v in inputs if isinstance(v, SharedVariable) and v.name in names}

    @cached_property
    def _space(self) -> Unconstrained:
        return Unconstrained(self._model)

    @cached_property
    def _nuts(self) -> Nuts:
        discrete = [v.name for v in self._model.discrete_value_vars]
        if discrete:
            raise SamplingError(
                f"{discrete!r} are discrete, and NUTS cannot sample them: marginalise them, or use "
                "a method with a fixed weighting distribution (method='pursuit')."
            )
        if find_spec("nutpie") is not None:
            return NutpieNuts(self._model, self._loglik.observations.shapes)
        return PyMCNuts(self._space, self._shared)
