"""Draws of coresets that hardly change, re-weighted from a reserve."""

from functools import partial

import numpy as np

from pymc_coresets.diagnostics.importance import EFFECTIVE_SHARE, MIN_DRAWS
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import resampled
from pymc_coresets.sampling.sampler import CoresetSampler


class Reserve:
    """Draws of changing coresets' posteriors, re-weighted from a reserve if possible.

    For methods that draw hundreds of times while the weights hardly change.  The reserve has four
    times the requested draws.  For other rows and weights they are re-weighted by
    ``exp(sum_n (w'_n - w_n) f_n)``, smoothed, and resampled; the sampler runs again only if Pareto
    k-hat exceeds 0.7, or the effective sample size falls below a quarter of the reserve (the number
    requested).  Re-weighting costs evaluations of the coreset's rows at the reserve, but no pass
    over the data.

    Parameters
    ----------
    sampler : CoresetSampler
        Fills the reserve, and evaluates log-likelihoods.

    Attributes
    ----------
    n_reused : int
        Number of calls answered from the reserve.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72).
    https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.rowlogp.evaluation import LogLikelihood
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=np.arange(5.0))
    >>> loglik = LogLikelihood(find_observations(model))
    >>> reserve = Reserve(CoresetSampler(loglik, kind="laplace"))
    >>> rng, rows = np.random.default_rng(1), loglik.source.take(np.array([2, 3]))
    >>> for weight in (50.0, 51.0, 52.0):
    ...     draws = reserve.draw(rows, np.array([50.0, weight]), 200, rng=rng)
    >>> reserve.n_reused
    2
    """

    def __init__(self, sampler: CoresetSampler) -> None:
        self._sampler = sampler
        self._reserve: Draws | None = None
        self._own = np.zeros(0)
        self.n_reused = 0

    def draw(
        self, rows: Rows, weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
    ) -> Draws:
        """Draw from the posterior of the rows with the given weights.

        Raises
        ------
        SamplingError
            As `CoresetSampler.draw`.
        """
        reserve = self._reserve
        n_reserve = max(round(n_draws / EFFECTIVE_SHARE), MIN_DRAWS)
        summed = partial(self._sampler.loglikelihood.weighted_sum, rows=rows, weights=weights)
        if reserve is not None and reserve.n_draws >= n_reserve:
            step = summed(reserve, finite=False) - self._own
            for chosen in resampled(np.arange(reserve.n_draws), step, n_draws, rng=rng):
                self.n_reused += 1
                return reserve.take(chosen)
        reserve = self._reserve = self._sampler.draw(rows, weights, n_reserve, rng=rng)
        self._own = summed(reserve)
        return reserve.take(rng.choice(reserve.n_draws, n_draws, replace=False))
