"""Re-weight the draws of one coreset's posterior for the next, while they are good for it."""

import numpy as np

from pymc_coresets.diagnostics.importance import (
    EFFECTIVE_SHARE,
    MIN_DRAWS,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.sampler import CoresetSampler

__all__ = ["ReusingSampler"]

_RESERVE = round(1 / EFFECTIVE_SHARE)  # draws in hand for each that is asked for


class ReusingSampler:
    """Draws of changing coresets' posteriors, from a reserve where importance sampling allows.

    For methods that ask for draws hundreds of times while the weights hardly change.  It keeps
    four times the draws that it was asked for.  For other rows and weights it re-weights them by
    ``exp(sum_n (w'_n - w_n) f_n)``, smoothed, and resamples; only where Pareto k-hat exceeds 0.7,
    or the effective sample size falls below a quarter of the reserve (as many as are asked for),
    does the sampler run again.  Re-weighting costs the potentials of the coreset's rows at the
    reserve, and no pass over the data.

    Parameters
    ----------
    sampler : CoresetSampler
        Makes the reserve, and evaluates potentials.

    Attributes
    ----------
    n_reused : int
        Calls that the reserve has answered.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72).
    https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.potentials.evaluation import LogLikelihood
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=np.arange(5.0))
    >>> loglik = LogLikelihood(find_observations(model))
    >>> sampler = ReusingSampler(CoresetSampler(loglik, np.ones(5), sampler="laplace"))
    >>> rng = np.random.default_rng(1)
    >>> for weight in (50.0, 51.0, 52.0):
    ...     draws = sampler.draw(np.array([2, 3]), np.array([50.0, weight]), 200, rng=rng)
    >>> sampler.n_reused
    2
    """

    def __init__(self, sampler: CoresetSampler) -> None:
        self._sampler = sampler
        self._reserve: Draws | None = None
        self._own = np.zeros(0)
        self.n_reused = 0

    @property
    def counts(self) -> dict[str, int]:
        """Those of the sampler, and `n_reused`."""
        return {**self._sampler.counts, "n_reused": self.n_reused}

    @property
    def n_obs(self) -> int:
        """Number of rows N."""
        return self._sampler.n_obs

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D."""
        return self._sampler.n_dims

    @property
    def base_weights(self) -> np.ndarray:
        """What each row stands for, of shape (n_obs,)."""
        return self._sampler.base_weights

    def loglik(self, draws: Draws, rows: np.ndarray | None = None) -> np.ndarray:
        """Potentials of some rows (all by default), (n_rows, n_draws), in nats."""
        return self._sampler.loglik(draws, rows)

    def total(self, draws: Draws) -> np.ndarray:
        """Sum of the weighted potentials of all rows, of shape (n_draws,)."""
        return self._sampler.total(draws)

    def moments(self, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """Give `total`, and the standard deviation of each row's potential, in one pass."""
        return self._sampler.moments(draws)

    def draw(
        self, indices: np.ndarray, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from the posterior of the rows `indices` with the given weights.

        Raises
        ------
        SamplingError
            As `CoresetSampler.draw`.
        """
        reserve = self._reserve
        n_reserve = max(_RESERVE * n_draws, MIN_DRAWS)
        if reserve is not None and reserve.n_draws >= n_reserve:
            step = self._weighted(indices, weights, reserve) - self._own
            smoothed = pareto_smooth(step[None]) if np.isfinite(step).all() else None
            if smoothed is not None and smoothed.sound:
                self.n_reused += 1
                return reserve.take(systematic_resample(smoothed.weights[0], n_draws, rng=rng))
        reserve = self._sampler.draw(indices, weights, n_reserve, rng=rng)
        self._reserve, self._own = reserve, self._weighted(indices, weights, reserve)
        return reserve.take(rng.choice(reserve.n_draws, n_draws, replace=False))

    def _weighted(self, indices: np.ndarray, weights: np.ndarray, draws: Draws) -> np.ndarray:
        if not len(indices):
            return np.zeros(draws.n_draws)
        total: np.ndarray = weights @ self._sampler.loglik(draws, indices)
        return total
