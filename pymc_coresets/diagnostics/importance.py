"""Importance ratios of a coreset posterior: Pareto smoothing and Kullback-Leibler divergences.

The log-ratios ``log r_s = sum_n (u_n - w_n) f_n(theta_s)`` at draws ``theta_s`` of the coreset
posterior are, up to a constant, the logarithm of the full posterior density over the coreset's.
They cannot see what the draws never visit: a mode that the coreset posterior lacks altogether.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.display import counted
from pymc_coresets.exceptions import InvalidDataError

type Floats = NDArray[np.float64]

KHAT_RELIABLE = 0.7
"""Pareto k-hat below which importance weights are reliable, given enough draws."""

KHAT_USELESS = 1.0
"""Pareto k-hat from which on importance weights are useless: the ratios have no finite mean."""

EFFECTIVE_SHARE = 0.25
"""Smallest effective sample size, as a share of the draws, at which re-weighted draws will do."""

MIN_DRAWS = 30
"""Fewest draws to fit a tail to: a fifth of them, six points, form the tail."""

EQUAL_RATIOS = 1e-4
"""Range of log-ratios (nats) below which they are equal but for rounding errors."""

MIN_PER_CHAIN = 4
"""Fewest draws of a chain: ArviZ needs as many for an effective sample size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SmoothedRatios:
    """Importance ratios whose largest values were replaced by those of a fitted Pareto tail.

    They say how far the posterior that was drawn from is from the full one, and weigh its draws.
    Divergences are estimates in nats; they cannot see regions that the draws do not visit.

    Parameters
    ----------
    log_ratios : ndarray of shape (n_chains, n_draws)
        As they were, in nats.
    log_weights : ndarray of shape (n_chains, n_draws)
        Logarithms of the smoothed weights, normalised: their exponentials sum to one.
    pareto_khat : float
        Shape of the tail. ``-inf`` if all ratios of the tail are equal, so that the ratios are
        bounded; ``inf`` if no tail could be fitted because a few draws carry all the weight.
    efficiency : float
        Of the Markov chains, relative to independent draws; one at most.

    Notes
    -----
    With ratios r, their mean m and normalised weights W, under draws of the coreset posterior::

        KL(coreset || full)                        = log E[r] - E[log r]
        KL(coreset || full) + KL(full || coreset)  = E[W log r] - E[log r]  ~  Var(log r)

    The last step holds to first order in the log-ratios (Campbell & Beronov 2019, proposition 2).
    The standard errors allow for autocorrelation; they are those of the means of the estimators'
    influence functions (delta method): ``r/m - log r`` and ``(log r - E[log r])**2``.
    Of n values with the tail shape k, the mean converges no faster than ``n**(k - 1)`` (Vehtari et
    al. 2024): the relative error of the second is that at least.

    References
    ----------
    Campbell, Beronov (2019). Sparse variational inference: Bayesian coresets from scratch.
    https://doi.org/10.48550/arXiv.1906.03329

    Examples
    --------
    A posterior N(0, 1), approximated by N(0.1, 1): both divergences are 0.005 nats.

    >>> import numpy as np
    >>> theta = 0.1 + np.random.default_rng(1).normal(size=(4, 1000))
    >>> found = pareto_smooth(-0.1 * theta)
    >>> bool(abs(found.kl - 0.005) < 3 * found.kl_mcse)
    True
    >>> bool(abs(found.symmetrised_kl - 0.01) < 3 * found.symmetrised_kl_mcse)
    True
    """

    log_ratios: Floats
    log_weights: Floats
    pareto_khat: float
    efficiency: float

    @cached_property
    def weights(self) -> Floats:
        """Smoothed weights, shape (n_chains, n_draws), non-negative, summing to one."""
        return np.exp(self.log_weights)

    @property
    def ess_of_independent(self) -> float:
        """Effective sample size ``1 / sum(weights**2)`` if the draws were independent."""
        return float(np.exp(-log_sum(2 * self.log_weights)))

    @property
    def ess(self) -> float:
        """Effective sample size of the weighted draws."""
        return self.efficiency * self.ess_of_independent

    @property
    def sound(self) -> bool:
        """Whether the weighted draws can replace draws of the other posterior.

        They can if Pareto k-hat is at most 0.7 and the effective sample size at least a quarter of
        the number of draws.
        """
        enough = EFFECTIVE_SHARE * self.log_weights.size
        return self.pareto_khat <= KHAT_RELIABLE and self.ess >= enough

    @property
    def log_mean_ratio(self) -> float:
        """Logarithm of the mean of the smoothed ratios, in nats.

        It estimates the logarithm of the ratio of the two normalising constants, up to the constant
        that the log-ratios omit.
        """
        # Smoothing leaves four fifths of the ratios as they are, so the median difference is the
        # logarithm of the sum by which the smoothed ratios were divided.
        log_sum = float(np.median(self.log_ratios - self.log_weights))
        return log_sum - float(np.log(self.log_ratios.size))

    @property
    def _centred(self) -> Floats:
        centred: Floats = self.log_ratios - self.log_ratios.mean()
        return centred

    @property
    def kl(self) -> float:
        """KL(coreset || full); smoothing may push an estimate near zero below it."""
        return max(self.log_mean_ratio - float(self.log_ratios.mean()), 0.0)

    @property
    def kl_mcse(self) -> float:
        """Monte Carlo standard error of it."""
        return _mcse_mean(self.weights * self.log_ratios.size - self._centred)

    @property
    def symmetrised_kl(self) -> float:
        """Variance of the log-ratios, to first order KL(coreset || full) + KL(full || coreset).

        The held-out objective J(w). It needs no importance weights, so it is valid where their tail
        is heavy, too; where that of the squared log-ratios is, so that few draws carry their sum,
        its error shows it.
        """
        return float(np.var(self.log_ratios, ddof=1))

    @property
    def symmetrised_kl_mcse(self) -> float:
        """Monte Carlo standard error of it."""
        return _mcse_of_squares(self._centred**2)

    @property
    def reverse_kl(self) -> float:
        """KL(full || coreset), by the weights; NaN where their tail is too heavy for that."""
        if not self.pareto_khat < KHAT_RELIABLE:
            return math.nan
        return max(float(np.sum(self.weights * self._centred)) - self.kl, 0.0)

    @property
    def largest(self) -> float:
        """Largest distance of a log-ratio from their mean, in nats."""
        return float(np.abs(self._centred).max())


def khat_threshold(n_draws: int) -> float:
    """Return the Pareto k-hat up to which importance weights of so many draws are reliable.

    Parameters
    ----------
    n_draws : int
        Number of draws over all chains, more than 1.

    Returns
    -------
    float
        ``min(1 - 1 / log10(n_draws), 0.7)``; 0.7 from about 2200 draws on.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72),
    section 3.2.4. https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    >>> round(khat_threshold(100), 2), khat_threshold(4000)
    (0.5, 0.7)
    """
    return float(min(1 - 1 / np.log10(n_draws), KHAT_RELIABLE))


def pareto_smooth(log_ratios: ArrayLike) -> SmoothedRatios:
    """Return weights that turn draws of the coreset posterior into draws of the full one.

    The largest ratios are replaced by the expected order statistics of a generalised Pareto
    distribution that is fitted to them; its shape k-hat says whether the weights can be trusted.
    Costs one sort of the draws.

    Parameters
    ----------
    log_ratios : array_like of shape (n_chains, n_draws)
        Log of full over coreset posterior density at the draws, in nats, up to a constant. At
        least 30 draws in all and 4 per chain.

    Returns
    -------
    SmoothedRatios
        The weights, Pareto k-hat, the effective sample size and divergences.

    Raises
    ------
    InvalidDataError
        If a ratio is NaN or infinite, the array is not two-dimensional, or there are too few draws.

    Notes
    -----
    The length of the tail depends on the relative efficiency of the chains, which is taken from
    the log-ratios because the ratios themselves may have no variance. A tail whose log-ratios lie
    within 1e-4 nats of each other counts as one of equal ratios (k-hat ``-inf``), since the shape
    of rounding errors means nothing; nor does their autocorrelation, where all ratios are that
    close.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72).
    https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    >>> import numpy as np
    >>> theta = np.random.default_rng(1).normal(scale=1.1, size=(4, 1000))
    >>> smoothed = pareto_smooth(-(theta**2) / 2 * (1 - 1 / 1.1**2))
    >>> bool(smoothed.pareto_khat < 0.5), bool(smoothed.ess > 3000)
    (True, True)
    """
    log_r = _validated(log_ratios)
    same = np.ptp(log_r) <= EQUAL_RATIOS
    efficiency = (
        1.0 if same else min(float(array_stats.ess(log_r, method="mean")) / log_r.size, 1.0)
    )
    log_weights, khat = smooth_tail(log_r, efficiency)
    return SmoothedRatios(
        log_ratios=log_r, log_weights=log_weights, pareto_khat=khat, efficiency=efficiency
    )


def systematic_resample(
    weights: ArrayLike, size: int, *, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw indices in proportion to weights, with as little noise as possible.

    Systematic resampling uses a single random number: index i appears ``floor`` or ``ceil`` of
    ``size * weights[i]`` times. Costs O(len(weights) + size log len(weights)).

    Parameters
    ----------
    weights : array_like of shape (n,)
        Non-negative, summing to one.
    size : int
        Number of indices wanted.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (size,)
        In random order, so that any part of them is a sample too.

    References
    ----------
    Douc, Cappé, Moulines (2005). Comparison of resampling schemes for particle filtering.
    https://doi.org/10.48550/arXiv.cs/0507025

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> np.bincount(systematic_resample([0.25, 0.0, 0.75], 4, rng=rng))
    array([1, 0, 3])
    """
    cumulative = np.cumsum(np.asarray(weights, dtype=np.float64))
    positions = (rng.uniform() + np.arange(size)) / size * cumulative[-1]
    # Rounding may lift the last position onto the total, beyond the last index of positive weight.
    indices = np.searchsorted(cumulative, positions, side="right")
    return rng.permutation(np.minimum(indices, np.flatnonzero(np.diff(cumulative, prepend=0))[-1]))


def smooth_tail(log_r: Floats, efficiency: float = 1.0) -> tuple[Floats, float]:
    """Return the smoothed normalised log-weights (shape of `log_r`) and k-hat.

    Without a check of the ratios, and without their effective sample size: see `pareto_smooth`.

    Examples
    --------
    >>> smooth_tail(np.zeros(4))[1]
    -inf
    """
    as_they_are = log_r - log_sum(log_r)
    length = _tail_length(log_r.size, efficiency)
    if np.ptp(np.partition(log_r, -length, axis=None)[-length:]) <= EQUAL_RATIOS:
        return as_they_are, -np.inf
    with np.errstate(over="ignore", invalid="ignore"):  # in a tail beyond any smoothing
        # ArviZ expects the log-likelihood of the point left out: minus the log-ratio.
        log_weights, khat = array_stats.psislw(-log_r.ravel(), r_eff=efficiency)
    # The fit fails where the lower part of the tail vanishes beside its top.
    if not np.isfinite(khat) or np.isnan(log_weights).any():
        return as_they_are, np.inf
    return np.reshape(np.asarray(log_weights, dtype=np.float64), log_r.shape), float(khat)


def log_sum(exponents: Floats) -> float:
    """Return ``log sum(exp(x))``: SciPy's takes ten times as long for a thousand numbers.

    Examples
    --------
    >>> log_sum(np.log([1.0, 2.0, 5.0])) == np.log(8.0)
    np.True_
    """
    largest = exponents.max()
    return float(largest + np.log(np.exp(exponents - largest).sum()))


def _tail_length(n_draws: int, efficiency: float) -> int:
    """Return the number of ratios that ArviZ fits the tail to (Vehtari et al. 2024, section 6)."""
    many = n_draws * efficiency > 225
    return int(3 * (n_draws / efficiency) ** 0.5) if many else n_draws // 5


def _validated(log_ratios: ArrayLike) -> Floats:
    log_r = np.asarray(log_ratios, dtype=np.float64)
    if log_r.ndim != 2 or log_r.size < MIN_DRAWS or log_r.shape[1] < MIN_PER_CHAIN:
        raise InvalidDataError(
            f"log_ratios has shape {log_r.shape}, but (n_chains, n_draws) is wanted, with at least "
            f"{MIN_DRAWS} draws in all and {MIN_PER_CHAIN} per chain to judge their tail: sample "
            "more draws from the coreset posterior, and put those of a single chain into one row.",
            topic="draws",
        )
    invalid = np.argwhere(~np.isfinite(log_r))
    if invalid.size:
        chain, draw = invalid[0]
        raise InvalidDataError(
            f"log_ratios is not finite at {counted(len(invalid), 'draw')}, the first of them "
            f"{log_r[chain, draw]} in chain {chain}, draw {draw}: find the observation whose "
            "log-likelihood is not finite at that draw, or leave such draws out.",
            topic="draws",
        )
    return log_r


def _mcse_mean(values: Floats) -> float:
    return float(array_stats.mcse(values, method="mean"))


def _mcse_of_squares(squares: Floats) -> float:
    """Return the standard error of their mean, of which a few may be the largest part."""
    error = _mcse_mean(squares)
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(squares), np.log(np.finfo(float).tiny))
    shape = min(max(smooth_tail(logs)[1], 0.0), 1.0)
    slowest = float(squares.mean() * squares.size ** (shape - 1.0))
    return max(error, slowest if shape > 0.5 else 0.0)  # up to there, their variance is finite
