"""How far apart two sets of draws are: joint and per-variable distances, and their noise.

Draws are arrays of shape (n_draws, n_dims), or (n_draws,) for a single variable. Monte Carlo error
makes every distance positive, even between draws of the *same* distribution; the functions whose
names end in ``_noise`` return the level to be expected then.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, eigh
from scipy.spatial.distance import cdist

from pymc_coresets.exceptions import InvalidDataError

type Floats = NDArray[np.float64]
#: A conditionally positive definite kernel: from rows (n_x, n_dims) and (n_y, n_dims) to its
#: matrix (n_x, n_y).
type Kernel = Callable[[Floats, Floats], Floats]

MAX_PAIR_DRAWS = 4000
"""Most draws of either set that distances over all pairs use; larger sets are thinned evenly."""

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


def gaussian_kl(x: ArrayLike, y: ArrayLike) -> float:
    """Return the KL divergence of two sets of draws as if both were Gaussian, in nats.

    Only means and covariances matter. Costs O(n d**2 + d**3).

    Parameters
    ----------
    x, y : array_like of shape (n_x, n_dims), (n_y, n_dims)
        Each with more draws than dimensions. :func:`independent_coordinates` removes dimensions
        that depend linearly on others.

    Returns
    -------
    float
        KL(x || y) >= 0; ``inf`` if one of the covariances is singular.

    Raises
    ------
    InvalidDataError
        If the numbers of dimensions differ or there are no more draws than dimensions.

    Notes
    -----
    With the eigenvalues l of ``inv(cov_y) cov_x`` and the difference of means m, the divergence is
    ``(sum(l - 1 - log l) + m' inv(cov_y) m) / 2``.

    Examples
    --------
    >>> round(gaussian_kl([-1.0, 0.0, 1.0], [-0.5, 0.5, 1.5]), 4)
    0.125
    """
    x, y = _pair(x, y)
    if min(len(x), len(y)) <= x.shape[1]:
        raise InvalidDataError(
            f"the covariance of {x.shape[1]} variables needs more draws than that, found "
            f"{len(x)} and {len(y)}: compare fewer variables or sample more draws."
        )
    try:
        values, vectors = eigh(_covariance(x), _covariance(y))
    except LinAlgError:
        return float(np.inf)
    if values[0] <= _SINGULAR * values[-1]:
        return float(np.inf)
    shift = vectors.T @ (x.mean(axis=0) - y.mean(axis=0))
    return float(np.sum(values - 1 - np.log(values)) + shift @ shift) / 2


def independent_coordinates(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Express two sets of draws in the directions in which they vary at all.

    Parameters
    ----------
    x, y : array_like of shape (n_x, n_dims), (n_y, n_dims)

    Returns
    -------
    tuple of ndarray
        Draws of shape (n_x, rank) and (n_y, rank) whose average covariance is the identity. A
        Gaussian KL divergence is the same in all such coordinates.

    Raises
    ------
    InvalidDataError
        If the numbers of dimensions differ.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(1).normal(size=(50, 1))
    >>> independent_coordinates(np.hstack([x, 2 * x]), np.hstack([x, 2 * x]))[0].shape
    (50, 1)
    """
    x, y = _pair(x, y)
    pooled = (_covariance(x) + _covariance(y)) / 2
    scale = np.sqrt(np.diag(pooled))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(pooled / np.outer(scale, scale))
    kept = values > _RELATIVE_RANK * max(float(values[-1]), np.finfo(float).tiny)
    basis = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None]
    centre = y.mean(axis=0)
    return (x - centre) @ basis, (y - centre) @ basis


def kernel_distance(
    x: ArrayLike, y: ArrayLike, kernel: Kernel, *, max_draws: int = MAX_PAIR_DRAWS
) -> float:
    """Return the maximum mean discrepancy of two sets of draws (the biased estimate, >= 0).

    Exact over all pairs of draws, in blocks: O(n**2 d) time, O(n) memory. Sets with more than
    `max_draws` draws are thinned evenly to that number first.

    Parameters
    ----------
    x, y : array_like of shape (n_x, n_dims), (n_y, n_dims)
    kernel : Kernel
        Such as :func:`cubic_kernel`.
    max_draws : int, default 4000

    Returns
    -------
    float
        ``sqrt(E k(x, x') + E k(y, y') - 2 E k(x, y))``.

    Raises
    ------
    InvalidDataError
        If the numbers of dimensions differ.

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
    x, y = (_thin(draws, max_draws) for draws in _pair(x, y))
    squared = (
        _mean_over_pairs(kernel, x, x)
        + _mean_over_pairs(kernel, y, y)
        - 2 * _mean_over_pairs(kernel, x, y)
    )
    return float(np.sqrt(max(squared, 0.0)))


def kernel_noise(
    x: ArrayLike, kernel: Kernel, inverse_ess: float, *, max_draws: int = MAX_PAIR_DRAWS
) -> float:
    """Return the kernel distance to expect between two runs of the same distribution.

    Parameters
    ----------
    x : array_like of shape (n_draws, n_dims)
        Draws of that distribution.
    kernel : Kernel
    inverse_ess : float
        Sum of the reciprocals of the two runs' effective sample sizes.
    max_draws : int, default 4000

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
    x = _thin(_matrix(x), max_draws)
    diagonal = np.mean([kernel(row[None], row[None])[0, 0] for row in x])
    spread = float(diagonal) - _mean_over_pairs(kernel, x, x)
    return float(np.sqrt(max(spread, 0.0) * inverse_ess))


def wasserstein_noise(x: ArrayLike, inverse_ess: float) -> float:
    """Return the Wasserstein-1 distance to expect between two runs of the same distribution.

    Parameters
    ----------
    x : array_like of shape (n_draws,)
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
    >>> round(wasserstein_noise([0.0, 1.0], 2 / 100), 4)
    0.0564
    """
    ordered = np.sort(np.asarray(x, dtype=np.float64))
    cdf = np.arange(1, len(ordered)) / len(ordered)
    spread = np.sum(np.diff(ordered) * np.sqrt(cdf * (1 - cdf)))
    return float(np.sqrt(2 / np.pi * inverse_ess) * spread)


def _mean_over_pairs(kernel: Kernel, x: Floats, y: Floats) -> float:
    total = sum(
        float(kernel(x[start : start + _BLOCK], y).sum()) for start in range(0, len(x), _BLOCK)
    )
    return total / (len(x) * len(y))


def _thin(x: Floats, max_draws: int) -> Floats:
    if len(x) <= max_draws:
        return x
    return x[np.linspace(0, len(x) - 1, max_draws).round().astype(np.int64)]


def _covariance(x: Floats) -> Floats:
    return np.atleast_2d(np.cov(x, rowvar=False))


def _matrix(x: ArrayLike) -> Floats:
    draws = np.asarray(x, dtype=np.float64)
    return draws[:, None] if draws.ndim == 1 else draws


def _pair(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    first, second = _matrix(x), _matrix(y)
    if first.shape[1:] != second.shape[1:] or first.ndim != 2:
        raise InvalidDataError(
            f"the two sets of draws have shapes {first.shape} and {second.shape}: both must be "
            "(n_draws, n_dims) with the same n_dims."
        )
    return first, second
