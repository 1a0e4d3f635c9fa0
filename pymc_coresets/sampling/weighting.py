"""Weighting distributions: draws at which the potentials of all rows are compared.

The closer they are to the posterior, the better a coreset of a given size.  Each states what it
costs in passes over the data.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import InvalidOptionError, SamplingError
from pymc_coresets.methods.uniform import sample_uniform
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.sampling.laplace import laplace_draws
from pymc_coresets.sampling.nuts import N_CHAINS, sample_quietly

__all__ = ["WEIGHTINGS", "Laplace", "Pathfinder", "Prior", "Subsample", "UserDraws", "Weighting"]

_log = logging.getLogger(__name__)

_MOST_USER_DRAWS = 4_000


class Weighting(Protocol):
    """A source of draws of the free variables."""

    def draw(
        self,
        observations: Observations,
        n_draws: int,
        *,
        base_weights: np.ndarray,
        rng: np.random.Generator,
    ) -> Draws:
        """Give `n_draws` draws for the observations with the given base weights (n_obs,)."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Draws of the prior.  No pass over the data, and far from the posterior where N is large."""

    def draw(
        self,
        observations: Observations,
        n_draws: int,
        *,
        base_weights: np.ndarray,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> Draws:
        """Sample the free variables of the model forwards."""
        model = observations.model
        names = [rv.name for rv in model.free_RVs]
        drawn = pm.draw([model[n] for n in names], n_draws, random_seed=rng)
        return Draws({n: np.asarray(v) for n, v in zip(names, drawn, strict=True)})


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """The Laplace approximation of the full posterior: its mode and the curvature there.

    Costs as many passes over the data as the optimiser takes gradients (some dozens), and 4 D
    for the Hessian, by central differences of the gradient.  Hierarchical models may have no
    mode: use `Subsample` there.
    """

    def draw(
        self,
        observations: Observations,
        n_draws: int,
        *,
        base_weights: np.ndarray,
        rng: np.random.Generator,
    ) -> Draws:
        """Find the mode of the full model and draw around it."""
        if np.all(base_weights == 1.0):
            model = observations.model
        else:
            model = coreset_model(observations, *_positive(base_weights))
        return laplace_draws(model, n_draws, rng=rng)


@dataclass(frozen=True, kw_only=True)
class Subsample:
    """The posterior of a uniform coreset: m rows drawn at random, with replacement, weighted up.

    Costs no pass over the data.  Its centre is off by about sqrt(N/m) posterior standard
    deviations; the tangent space is that much less exact, so choose m as large as is cheap.

    Parameters
    ----------
    size : int, optional
        Number of rows m; by default 2 000, or 100 for each free dimension where that is more, and
        never more than all.
    sampler : {"nuts", "laplace"}
        A short NUTS run, or a Laplace approximation: faster, but hierarchical models may have no
        mode.
    tune : int
        Tuning steps of each of two NUTS chains.

    Raises
    ------
    InvalidOptionError
        If `size` is below 2, `tune` below 1, or the sampler has another name.

    Examples
    --------
    >>> Subsample(size=500, sampler="laplace").size
    500
    """

    size: int | None = None
    sampler: str = "nuts"
    tune: int = 400

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 2:
            raise InvalidOptionError(f"size must be at least 2, not {self.size}.")
        if self.sampler not in ("nuts", "laplace"):
            raise InvalidOptionError(f"sampler must be 'nuts' or 'laplace', not {self.sampler!r}.")
        if self.tune < 1:
            raise InvalidOptionError(f"tune must be at least 1, not {self.tune}.")

    def draw(
        self,
        observations: Observations,
        n_draws: int,
        *,
        base_weights: np.ndarray,
        rng: np.random.Generator,
    ) -> Draws:
        """Sample the posterior of a uniform coreset."""
        wanted = self.size or max(2_000, 100 * observations.n_dims)
        size = min(wanted, int(np.count_nonzero(base_weights)))
        if size == np.count_nonzero(base_weights):
            indices, weights = _positive(base_weights)
        else:
            indices, weights = sample_uniform(base_weights, size, rng=rng)
        model = coreset_model(observations, indices, weights)
        if self.sampler == "laplace":
            return laplace_draws(model, n_draws, rng=rng)
        per_chain = -(-n_draws // N_CHAINS)
        try:
            idata = sample_quietly(model, per_chain, tune=self.tune, seed=_seed(rng))
        except (ValueError, RuntimeError, FloatingPointError) as error:
            raise SamplingError(
                f"NUTS failed on the uniform coreset that gives the weighting draws: {error} "
                "Pass draws of your own as weighting=..., or a larger Subsample(size=...)."
            ) from error
        return Draws.of(idata, observations.shapes).take(slice(0, n_draws))


@dataclass(frozen=True, kw_only=True)
class Pathfinder:
    """Pathfinder's normal approximation of the posterior of the full model (needs pymc-extras).

    Costs as many passes over the data as its optimiser takes gradients.
    """

    def draw(
        self,
        observations: Observations,
        n_draws: int,
        *,
        base_weights: np.ndarray,
        rng: np.random.Generator,
    ) -> Draws:
        """Run Pathfinder on the full model."""
        try:
            from pymc_extras import fit_pathfinder  # noqa: PLC0415
        except ImportError as error:
            raise InvalidOptionError(
                "weighting='pathfinder' needs the package pymc-extras: "
                'pip install "pymc-coresets[pathfinder]".'
            ) from error
        model = coreset_model(observations, *_positive(base_weights))
        idata = fit_pathfinder(
            model=model, num_draws=n_draws, random_seed=_seed(rng), progressbar=False
        )
        return Draws.of(idata, observations.shapes).take(slice(0, n_draws))


@dataclass(frozen=True, eq=False)
class UserDraws:
    """The user's own draws: a DataTree, a Dataset, or a mapping of names to arrays.

    At most 4 000 of them are used, picked at random.
    """

    draws: Any

    def draw(
        self,
        observations: Observations,
        n_draws: int,
        *,
        base_weights: np.ndarray,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> Draws:
        """Give all of them, or 4 000 (`n_draws`, where that is more) at random."""
        draws, most = Draws.of(self.draws, observations.shapes), max(n_draws, _MOST_USER_DRAWS)
        if draws.n_draws <= most:
            return draws
        return draws.take(np.sort(rng.choice(draws.n_draws, most, replace=False)))


#: The weighting distributions that have a name.
WEIGHTINGS: Mapping[str, type[Prior | Laplace | Subsample | Pathfinder]] = {
    "prior": Prior,
    "laplace": Laplace,
    "subsample": Subsample,
    "pathfinder": Pathfinder,
}


def _positive(base_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    indices = np.flatnonzero(base_weights)
    return indices, base_weights[indices]


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
