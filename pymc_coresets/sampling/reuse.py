"""Re-weight the draws of one coreset's posterior for the next, while they suit it."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from pymc_coresets.diagnostics.importance import (
    EFFECTIVE_SHARE,
    MIN_DRAWS,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.known_posterior import possible
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.sampler import CoresetSampler

_RESERVE = round(1 / EFFECTIVE_SHARE)  # draws in hand for each that is asked for


class Reserve:
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
        Fills the reserve, and evaluates potentials.

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
        n_reserve = max(_RESERVE * n_draws, MIN_DRAWS)
        if reserve is not None and reserve.n_draws >= n_reserve:
            loglik = self._sampler.loglikelihood.weighted_sum(reserve, rows, weights, finite=False)
            step = loglik - self._own
            kept = possible(step)
            smoothed = None if kept is None else pareto_smooth(step[None, kept])
            if kept is not None and smoothed is not None and smoothed.sound:
                self.n_reused += 1
                chosen = systematic_resample(smoothed.weights[0], n_draws, rng=rng)
                return reserve.take(kept[chosen])
        reserve = self._sampler.draw(rows, weights, n_reserve, rng=rng)
        self._reserve = reserve
        self._own = self._sampler.loglikelihood.weighted_sum(reserve, rows, weights)
        return reserve.take(rng.choice(reserve.n_draws, n_draws, replace=False))


class Samplers:
    """The samplers of one construction, made when they are needed.

    Parameters
    ----------
    loglik : LogLikelihood
        The potentials of the model.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(5.0))
    >>> Samplers(LogLikelihood(find_observations(model))).counts
    {}
    """

    def __init__(self, loglik: LogLikelihood) -> None:
        self.first = CoresetSampler(loglik)
        self._others: list[CoresetSampler] = []
        self._reserve: Reserve | None = None

    def for_many_draws(self) -> tuple[CoresetSampler, CoresetSampler, Callable[..., Draws]]:
        """Return Laplace approximations; and where there is no mode, a sampler with a reserve."""
        laplace, sampler = self.first.with_kind("laplace"), self.first.with_kind("auto")
        self._others, self._reserve = [laplace, sampler], Reserve(sampler)
        return laplace, sampler, self._reserve.draw

    @property
    def counts(self) -> dict[str, int]:
        """What all of them counted; nothing where none was used."""
        counts: Counter[str] = Counter()
        for sampler in (self.first, *self._others):
            if sampler.n_runs:
                counts.update(sampler.counts)
        if self._reserve is not None and self._others[-1].n_runs:
            counts["n_reused"] = self._reserve.n_reused
        return dict(counts)
