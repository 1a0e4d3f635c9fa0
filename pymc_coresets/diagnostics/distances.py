"""How far apart two sets of draws are: joint and per-variable distances, and their noise.

Monte Carlo error makes every distance positive, even between draws of the *same* distribution; the
functions whose names end in ``_noise`` return the level to be expected then.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

type Floats = NDArray[np.float64]
#: A conditionally positive definite kernel: from rows (n_x, n_dims) and (n_y, n_dims) to its
#: matrix (n_x, n_y).
type Kernel = Callable[[Floats, Floats], Floats]

MAX_PAIR_DRAWS = 4000
"""Most draws of either set that distances over all pairs use: 16 million pairs take a second."""

_BLOCK = 512  # rows of the pair matrix held at a time: 512 x 4000 numbers are 16 MB
_RELATIVE_RANK = 1e-10
_SINGULAR = 1e-13


def negative_distance(x: Floats, y: Floats) -> Floats:
    """Kernel of the energy distance: minus the Euclidean distance.

    By it, `kernel_distance` is ``sqrt(2 E|x - y| - E|x - x'| - E|y - y'|)``, in the units of the
    variables: zero for equal distributions only (Székely and Rizzo 2013).

    Parameters
    ----------
    x, y : ndarray of shape (n_x, n_dims), (n_y, n_dims)

    Returns
    -------
    ndarray of shape (n_x, n_y)

    Examples
    --------
    >>> import numpy as np
    >>> negative_distance(np.zeros((1, 2)), np.array([[3.0, 4.0]]))
    array([[-5.]])
    """
    return -np.asarray(cdist(x, y))


def cubic_kernel(x: Floats, y: Floats) -> Floats:
    """Polynomial kernel ``(1 + x'y/d)**3`` of Huggins et al. (2016, 2017).

    By it, `kernel_distance` is zero if all moments up to the third agree.

    Parameters
    ----------
    x, y : ndarray of shape (n_x, n_dims), (n_y, n_dims)

    Returns
    -------
    ndarray of shape (n_x, n_y)

    Examples
    --------
    >>> import numpy as np
    >>> cubic_kernel(np.ones((1, 2)), np.ones((1, 2)))
    array([[8.]])
    """
    return np.asarray((1 + x @ y.T / x.shape[1]) ** 3)


def gaussian_kls(x: Floats, y: Floats) -> tuple[tuple[float, float], int]:
    """Return both KL divergences of two sets of draws as if these were Gaussian, in nats.

    Only means and covariances matter, and dimensions that depend linearly on others count once.
    Costs O(n d**2 + d**3).

    Parameters
    ----------
    x, y : ndarray of shape (n_x, n_dims), (n_y, n_dims)

    Returns
    -------
    tuple of float
        KL(x || y) and KL(y || x): infinite if only one of the covariances is singular, and NaN
        without more draws than directions.
    int
        Number of directions in which the draws vary at all.

    Notes
    -----
    With the eigenvalues l of ``inv(cov_y) cov_x`` and the difference of means m, the first one is
    ``(sum(l - 1 - log l) + m' inv(cov_y) m) / 2``.  In coordinates in which the average covariance
    is the identity, both covariances have the same eigenvectors, and eigenvalues that sum to 2.

    Examples
    --------
    >>> x = np.array([[-1.0], [0.0], [1.0]])
    >>> gaussian_kls(x, x + 0.5)
    ((0.125, 0.125), 1)
    """
    covariances = [np.atleast_2d(np.cov(draws, rowvar=False)) for draws in (x, y)]
    pooled = (covariances[0] + covariances[1]) / 2
    scale = np.sqrt(np.diag(pooled))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(pooled / np.outer(scale, scale))
    kept = values > _RELATIVE_RANK * max(float(values[-1]), np.finfo(float).tiny)
    basis = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
    rank = basis.shape[1]
    if min(len(x), len(y)) <= rank:
        return (np.nan, np.nan), rank
    of_x, turned = np.linalg.eigh(basis.T @ covariances[0] @ basis)
    of_y = 2 - of_x
    if min(of_x.min(), of_y.min()) <= _SINGULAR:
        return (np.inf, np.inf), rank
    squared = ((x.mean(axis=0) - y.mean(axis=0)) @ basis @ turned) ** 2
    first, second = (
        float(np.sum(one / other - 1 - np.log(one / other) + squared / other)) / 2
        for one, other in ((of_x, of_y), (of_y, of_x))
    )
    return (first, second), rank


def kernel_distance(x: Floats, y: Floats, kernel: Kernel) -> float:
    """Return the maximum mean discrepancy of two sets of draws (the biased estimate, >= 0).

    Exact over all pairs of draws, in blocks: O(n**2 d) time, O(n) memory.

    Parameters
    ----------
    x, y : ndarray of shape (n_x, n_dims), (n_y, n_dims)
    kernel : Kernel
        Such as :func:`cubic_kernel`.

    Returns
    -------
    float
        ``sqrt(E k(x, x') + E k(y, y') - 2 E k(x, y))``.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012). A kernel two-sample test. JMLR 13, eq. 5.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4.0)[:, None]
    >>> kernel_distance(x, x, cubic_kernel)
    0.0
    """
    own = _mean_over_pairs(kernel, x, x) + _mean_over_pairs(kernel, y, y)
    return float(np.sqrt(max(own - 2 * _mean_over_pairs(kernel, x, y), 0.0)))


def kernel_noise(x: Floats, kernel: Kernel, inverse_ess: float) -> float:
    """Return the kernel distance to expect between two runs of the same distribution.

    Parameters
    ----------
    x : ndarray of shape (n_draws, n_dims)
        Draws of that distribution.
    kernel : Kernel
    inverse_ess : float
        Sum of the reciprocals of the two runs' effective sample sizes.

    Returns
    -------
    float
        Root of the expected squared distance, ``sqrt(inverse_ess (E k(x, x) - E k(x, x')))``.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[-1.0], [1.0]])
    >>> round(kernel_noise(x, negative_distance, 2 / 100), 4)
    0.1414
    """
    diagonal = np.mean([kernel(row[None], row[None])[0, 0] for row in x])
    spread = float(diagonal) - _mean_over_pairs(kernel, x, x)
    return float(np.sqrt(max(spread, 0.0) * inverse_ess))


def wasserstein_noise(x: Floats, inverse_ess: float) -> float:
    """Return the Wasserstein-1 distance to expect between two runs of the same distribution.

    Parameters
    ----------
    x : ndarray of shape (n_draws,)
        Draws of that distribution.
    inverse_ess : float
        Sum of the reciprocals of the two runs' effective sample sizes.

    Returns
    -------
    float
        Expected distance. The distance is the integral of ``|F_x - F_y|``, where for many draws
        ``F_x - F_y`` is Gaussian with variance ``F(1 - F) inverse_ess`` at each point.

    Examples
    --------
    >>> round(wasserstein_noise(np.array([0.0, 1.0]), 2 / 100), 4)
    0.0564
    """
    ordered = np.sort(x)
    cdf = np.arange(1, len(ordered)) / len(ordered)
    spread = np.sum(np.diff(ordered) * np.sqrt(cdf * (1 - cdf)))
    return float(np.sqrt(2 / np.pi * inverse_ess) * spread)


def _mean_over_pairs(kernel: Kernel, x: Floats, y: Floats) -> float:
    total = sum(
        float(kernel(x[start : start + _BLOCK], y).sum()) for start in range(0, len(x), _BLOCK)
    )
    return total / (len(x) * len(y))


def thinned(draws: Floats, max_draws: int = MAX_PAIR_DRAWS) -> Floats:
    """Return at most so many of the draws, evenly spaced.

    Parameters
    ----------
    draws : ndarray of shape (n_draws, n_dims)
    max_draws : int, default 4000

    Examples
    --------
    >>> thinned(np.arange(9.0)[:, None], 3).ravel()
    array([0., 4., 8.])
    """
    chosen = np.linspace(0, len(draws) - 1, min(len(draws), max_draws))
    return draws[chosen.round().astype(np.int64)]
