"""Draws of posteriors by importance sampling, and their distance from the full posterior's.

The judge uses no Markov chains: it draws from Student-t distributions about the mode, which are
matched to the posterior where needed, and reports how well that worked (Pareto k-hat).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from benchmarks.closed_forms import Array
from benchmarks.glm_data import PRIOR_SD, DataSet
from benchmarks.regressions import Regression
from pymc_coresets.diagnostics.importance import pareto_smooth, systematic_resample

DEGREES = 6
PROPOSED = 4_000
ROUNDS = 6
GOOD_KHAT, GOOD_SHARE = 0.5, 0.25
_ENTRIES = 2**22  # of a block of log-likelihoods


def seconds_of[T](run: Callable[[], T]) -> tuple[float, T]:
    """Measure processor seconds, over all threads, so that other programs do not count."""
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Draws (n_draws, n_dims) of a posterior, and how well the proposal covered it."""

    draws: Array
    khat: float
    ess: float


def sample_weighted(
    regression: Regression,
    weights: Array,
    n_draws: int,
    *,
    rng: np.random.Generator,
    total: Callable[[Array], Array] | None = None,
) -> Sample:
    """Draw from a posterior; `total` evaluates the weighted log-likelihood in a faster way.

    A proposal that does not cover the posterior is replaced by one with the mean and the covariance
    of its own re-weighted draws.
    """
    laplace = regression.laplace(weights, precise=1e-8)
    mean, covariance = laplace.mean, np.linalg.inv(laplace.precision)
    loglik = total or (lambda draws: _total(regression, weights, draws))
    for _ in range(ROUNDS):
        proposal = multivariate_t(mean, covariance, df=DEGREES, seed=rng)
        draws = proposal.rvs(max(PROPOSED, n_draws)).reshape(-1, regression.n_dims)
        log_ratios = loglik(draws) - np.square(draws).sum(axis=1) / 2 - proposal.logpdf(draws)
        smoothed = pareto_smooth(log_ratios.reshape(4, -1))
        if smoothed.pareto_khat < GOOD_KHAT and smoothed.ess > GOOD_SHARE * len(draws):
            break
        mean, covariance = _moments(draws, smoothed.weights.ravel())
    kept = systematic_resample(smoothed.weights.ravel(), n_draws, rng=rng)
    return Sample(draws=PRIOR_SD * draws[kept], khat=smoothed.pareto_khat, ess=smoothed.ess)


def _total(regression: Regression, weights: Array, draws: Array) -> Array:
    step = max(1, _ENTRIES // len(weights))
    parts = [
        weights @ regression.loglik(draws[start : start + step])
        for start in range(0, len(draws), step)
    ]
    return np.concatenate(parts)


def _moments(draws: Array, shares: Array) -> tuple[Array, Array]:
    mean = shares @ draws
    covariance = np.cov(draws, rowvar=False, aweights=shares, ddof=0)
    return mean, np.atleast_2d(covariance)


# -- distances from the full posterior -------------------------------------------------------------


def cubic_kernel(x: Array, y: Array) -> Array:
    """Polynomial kernel ``(1 + x'y/d)**3`` of Huggins et al. (2016, 2017), (n_x, n_y)."""
    return np.asarray((1 + x @ y.T / x.shape[1]) ** 3)


def polynomial_mmd(x: Array, y: Array) -> float:
    """Return the maximum mean discrepancy: zero if all moments up to the third agree."""
    own = cubic_kernel(x, x).mean() + cubic_kernel(y, y).mean()
    return float(np.sqrt(max(own - 2 * cubic_kernel(x, y).mean(), 0.0)))


def mmd_noise(x: Array, inverse_ess: float) -> float:
    """Return the MMD to expect between two runs of the distribution that x is from.

    By the sum of the reciprocals of their effective sample sizes.
    """
    kernel = cubic_kernel(x, x)
    spread = float(np.diag(kernel).mean() - kernel.mean())
    return float(np.sqrt(max(spread, 0.0) * inverse_ess))


def thinned(draws: Array, max_draws: int) -> Array:
    """Return at most so many of the draws, evenly spaced."""
    chosen = np.linspace(0, len(draws) - 1, min(len(draws), max_draws))
    return draws[chosen.round().astype(np.int64)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """The full posterior of a data set, and distances from it."""

    data: DataSet
    full: Sample

    @property
    def mean(self) -> Array:
        return np.asarray(self.full.draws.mean(axis=0))

    @property
    def sd(self) -> Array:
        return np.asarray(self.full.draws.std(axis=0))

    def mmd(self, draws: Array, *, standard: bool, max_draws: int) -> float:
        """Return the polynomial MMD, in standard deviations of the full posterior or as it is."""
        found, full = (
            thinned(self._scaled(each, standard=standard), max_draws)
            for each in (draws, self.full.draws)
        )
        return polynomial_mmd(found, full)

    def mmd_noise(self, n_draws: int, *, standard: bool) -> float:
        """Return the MMD of two sets of so many independent draws of the full posterior."""
        draws = thinned(self._scaled(self.full.draws, standard=standard), 1_000)
        return mmd_noise(draws, 2 / n_draws)

    def _scaled(self, draws: Array, *, standard: bool) -> Array:
        return (draws - self.mean) / self.sd if standard else draws

    def negative_test_loglik(self, draws: Array) -> float:
        """Return minus the mean log predictive density of the test rows, in nats."""
        signs = np.where(self.data.test_y > 0, 1.0, -1.0)
        signed, draws = signs[:, None] * self.data.test_features, np.atleast_2d(draws)
        step = max(1, _ENTRIES // len(draws))
        means = [
            logsumexp(-np.logaddexp(0, -signed[start : start + step] @ draws.T), axis=1)
            for start in range(0, len(signed), step)
        ]
        return -float(np.concatenate(means).mean() - np.log(len(draws)))


def judge_of(
    data: DataSet,
    n_draws: int,
    *,
    rng: np.random.Generator,
    total: Callable[[Array], Array] | None = None,
) -> Judge:
    """Draw the full posterior, from distinct rows and their counts where there are few of them."""
    everything: NDArray[np.int64] = np.arange(data.n_obs)
    regression, weights = data.weighted(everything, np.ones(data.n_obs))
    full = sample_weighted(regression, weights, n_draws, rng=rng, total=total)
    return Judge(data=data, full=full)
