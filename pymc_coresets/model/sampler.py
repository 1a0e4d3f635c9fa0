"""Draws from the posteriors of many coresets of one model, whose density is compiled once."""

import logging
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.model.draws import Draws
from pymc_coresets.model.laplace import laplace_draws
from pymc_coresets.model.loglik import LogLikelihood
from pymc_coresets.model.rewrite import coreset_model, row_values
from pymc_coresets.model.unconstrained import Unconstrained

__all__ = ["N_CHAINS", "CoresetSampler", "sample_quietly"]

_log = logging.getLogger(__name__)

N_CHAINS = 2


def sample_quietly(model: pm.Model, draws: int, *, tune: int, seed: int) -> xr.DataTree:
    """Run NUTS as a part of something else: two chains, and nothing shown or judged."""
    idata: xr.DataTree = pm.sample(
        model=model,
        draws=draws,
        tune=tune,
        chains=N_CHAINS,
        random_seed=seed,
        progressbar=False,
        compute_convergence_checks=False,
        quiet=True,
    )
    return idata


class CoresetSampler:
    """Samples the posterior of any weighted rows of a model, and evaluates potentials at the draws.

    Rows and weights are inputs of the compiled density, so that nothing is compiled after the
    first call of a sampler.  NUTS is nutpie's where that is installed, and PyMC's own otherwise
    (which compiles its step functions again for every call, from PyTensor's cache).

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials of the model.
    base_weights : ndarray of shape (n_obs,)
        What each row stands for.
    sampler : {"nuts", "laplace"}
        How draws are made.  With NUTS, the first draws are Laplace's where the posterior has a
        mode: they come from a coarse start.
    tune : int, default 300
        Tuning steps of each of two NUTS chains.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.model.observations import find_observations
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
        sampler: Literal["nuts", "laplace"] = "nuts",
        tune: int = 300,
    ) -> None:
        self._loglik, self._base_weights = loglik, base_weights
        self._sampler, self._tune = sampler, tune
        self._n_calls = self.n_divergences = 0

    def with_sampler(self, sampler: Literal["nuts", "laplace"]) -> "CoresetSampler":
        """Give one for the same model that draws in another way."""
        return CoresetSampler(self._loglik, self._base_weights, sampler=sampler, tune=self._tune)

    @property
    def n_obs(self) -> int:
        """Number of rows N."""
        return self._loglik.n_obs

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
        moments = self._loglik.moments(draws, self._base_weights)
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
        for name, shared in self._shared.items():
            shared.set_value(values[name])
        self._n_calls += 1
        if self._sampler == "laplace":
            return laplace_draws(self._space, n_draws, rng=rng)
        if self._n_calls == 1:
            try:
                return laplace_draws(self._space, n_draws, rng=rng)
            except SamplingError as error:
                _log.info("No Laplace approximation to start with: %s", error)
        return self._nuts(values, n_draws, rng)

    def _nuts(self, values: dict[str, np.ndarray], n_draws: int, rng: np.random.Generator) -> Draws:
        per_chain, seed = -(-n_draws // N_CHAINS), int(rng.integers(2**31))
        try:
            if find_spec("nutpie") is not None:
                idata = self._nutpie(values, per_chain, seed)
            else:
                idata = sample_quietly(self._model, per_chain, tune=self._tune, seed=seed)
        except (ValueError, RuntimeError, FloatingPointError) as error:
            raise SamplingError(f"NUTS failed on the posterior of a coreset: {error}") from error
        self.n_divergences += int(idata["sample_stats"]["diverging"].sum())
        shapes = self._loglik.observations.shapes
        return Draws.of(idata, shapes).take(slice(0, n_draws))

    def _nutpie(self, values: dict[str, np.ndarray], draws: int, seed: int) -> Any:  # noqa: ANN401
        import nutpie  # noqa: PLC0415

        used = {v.name for v in self._compiled.shared_var_keys}
        exchanged = self._compiled.with_data(**{n: v for n, v in values.items() if n in used})
        return nutpie.sample(
            exchanged,
            draws=draws,
            tune=self._tune,
            chains=N_CHAINS,
            seed=seed,
            progress_bar=False,
        )

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
    def _compiled(self) -> Any:  # noqa: ANN401
        import nutpie  # noqa: PLC0415

        return nutpie.compile_pymc_model(self._model)
