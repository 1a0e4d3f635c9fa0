"""How well many short chains agree: R-hat and the effective sample size, of all entries at once."""

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from pymc_coresets.diagnostics.importance import Floats


def agreement(draws: Floats) -> tuple[float, float]:
    """Compare the means of the halves of many chains, and their spreads.

    The variance of the means of a hundred half chains shows the effective sample size as well as
    autocorrelations do, and needs no lags: it tells chains that stay apart from those that mix.

    Parameters
    ----------
    draws : ndarray of shape (n_draws, n_chains, n_entries)
        At least four draws of each chain.

    Returns
    -------
    rhat : float
        The largest of the entries, of ranks and of ranks of the distances from the median, as in
        ArviZ's; infinite if an entry does not vary.
    ess : float
        The smallest effective sample size; 0 if an entry does not vary.

    Notes
    -----
    With m half chains of n draws, whose normalised ranks have the variance W on average, while
    their means have the variance V, R-hat is ``sqrt(V / W + (n - 1) / n)`` and the effective sample
    size ``m (W + V) / V``: one draw for each half chain if none moves.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and
    localization. Bayesian Analysis 16(2). https://doi.org/10.1214/20-BA1221

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> draws = rng.normal(size=(100, 64, 2))
    >>> rhat, ess = agreement(draws)
    >>> bool(rhat < 1.01), bool(4_000 < ess < 10_000)
    (True, True)
    >>> rhat, ess = agreement(draws + rng.normal(size=(64, 2)))  # stuck
    >>> bool(rhat > 1.3), bool(ess < 300)
    (True, True)
    """
    half = len(draws) // 2
    halves = np.concatenate([draws[:half], draws[-half:]], axis=1)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    rhat, ess = 1.0, np.inf
    for values in (halves, folded):
        n, m, n_entries = values.shape
        ranks = rankdata(values.reshape(n * m, n_entries), axis=0)
        z = ndtri((ranks - 3 / 8) / (n * m + 1 / 4)).reshape(values.shape)
        within = z.var(axis=0, ddof=1).mean(axis=0)
        between = z.mean(axis=0).var(axis=0, ddof=1)
        if not (np.ptp(values, axis=(0, 1)) > 0).all() or not within.all():
            return np.inf, 0.0
        rhat = max(rhat, float(np.sqrt(between / within + (n - 1) / n).max()))
        ess = min(ess, float((m * (within + between) / between).min()))
    return rhat, ess
