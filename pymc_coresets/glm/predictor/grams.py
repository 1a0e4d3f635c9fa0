"""Sums of products of columns over rows, each row with a weight: one engine for all quadratics."""

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dsyrk

from pymc_coresets.glm.predictor.affine import Matrix

_EQUAL = 64 * np.finfo(float).eps  # sums that differ by less are equal but for rounding
_BLOCK_ENTRIES = 2**19  # of float64: a block and its scaled copy stay in the cache


def weighted_gram(x: Matrix, weights: np.ndarray) -> Matrix:
    """Sum ``weights[n] x_n x_n'`` over rows, as (p, p); sparse where the rows are.

    Nothing as large as the rows is copied.

    Parameters
    ----------
    x : ndarray or csr_array, of shape (n, p)
    weights : ndarray of shape (n,)
        Of any signs.

    Notes
    -----
    The symmetric product of BLAS takes half the time of a general one, but knows no weights: the
    rows are scaled by the roots of these, for each sign separately.  For canonical links all are
    the same, and there is nothing to scale.

    Examples
    --------
    >>> weighted_gram(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, -3.0]))
    array([[1., 2.],
           [2., 1.]])
    """
    if not isinstance(x, np.ndarray):
        return weighted_product(x, weights, x)
    n, p = x.shape
    total = np.zeros((p, p), order="F")
    step = max(64, _BLOCK_ENTRIES // max(p, 1))
    with np.errstate(over="ignore", invalid="ignore"):  # whoever needs finite sums refuses them
        for start in range(0, n, step):
            block = slice(start, start + step)
            _add_gram(total, np.asarray(x[block], dtype=float), weights[block])
    return np.triu(total) + np.triu(total, 1).T


def _add_gram(total: np.ndarray, x: np.ndarray, weights: np.ndarray) -> None:
    """Add the upper triangle, in place."""
    low, high = weights.min(), weights.max()
    if high - low <= _EQUAL * max(-low, high):
        dsyrk(float(low + high) / 2, x.T, beta=1.0, c=total, overwrite_c=1)
        return
    for sign in (-1.0, 1.0):
        chosen = weights * sign > 0
        if chosen.any():
            which = slice(None) if chosen.all() else chosen
            scaled = x[which] * np.sqrt(np.abs(weights[which]))[:, None]
            dsyrk(sign, scaled.T, beta=1.0, c=total, overwrite_c=1)


def weighted_product(x: Matrix, weights: np.ndarray, z: Matrix) -> Matrix:
    """Sum ``weights[n] x_n z_n'`` over rows, as (p, q); sparse where both are.

    Examples
    --------
    >>> weighted_product(np.ones((2, 1)), np.array([1.0, 2.0]), np.array([[1.0], [3.0]]))
    array([[7.]])
    """
    if isinstance(x, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            return (x * weights[:, None]).T @ z
    scaled = x.copy()
    scaled.data = scaled.data * np.repeat(weights, np.diff(x.indptr))
    return sparse.csr_array(scaled.T) @ z
