"""Weights under which a quadratic that lacks the rows' part has a maximum."""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from pymc_coresets.glm.control_variates.averaged import RowsInMemory

__all__ = ["concave", "largest_share"]

_ALLOWED = 0.9  # of the posterior's curvature, while single weights shrink
_ROUNDS, _SHRINKINGS = 8, 15


def concave(
    rows: RowsInMemory,
    weights: np.ndarray,
    curvatures: np.ndarray,
    posterior: np.ndarray,
    *,
    drawn: np.ndarray,
) -> np.ndarray:
    """Shrink weights until the rows have nowhere more curvature than the posterior.

    Else the quadratic of all rows without theirs is convex somewhere, and the density may rise
    without end, since the rows' own log-likelihood is far out often only linear.  The weight of a
    row that was drawn shrinks by the part of its curvature that lies in directions where there is
    too much of it, times how much is too much there.  What this leaves takes all weights of drawn
    rows, and at last those of all rows.

    Parameters
    ----------
    rows : RowsInMemory
    weights : ndarray of shape (n_rows,)
    curvatures : ndarray of shape (k, k, n_rows)
        Of each row, by the numbers that it sees.
    posterior : ndarray of shape (p, p)
        Its precision.
    drawn : ndarray of bool, of shape (n_rows,)
        Rows that were drawn, and may have another weight.

    Returns
    -------
    ndarray of shape (n_rows,)

    Notes
    -----
    Costs eight decompositions of a (p, p) matrix, O(p^3), at most thirty where these do not do.
    """
    try:
        whole = _size(rows, curvatures, posterior)
    except LinAlgError:  # no maximum, with the prior and all rows
        return np.zeros_like(weights)
    for _ in range(_ROUNDS):
        share, directions = eigh(
            -rows.gram(weights * curvatures), posterior, subset_by_value=(_ALLOWED, np.inf)
        )
        if not len(share) or share[-1] <= 1.0:
            return weights
        seen = rows.seen(directions.T)
        each = -np.einsum("abn,ajn,bjn->jn", curvatures, seen, seen)
        too_much = (1 - _ALLOWED / share) @ np.maximum(each, 0.0) / whole
        weights = np.where(drawn, weights * (1 - np.minimum(too_much, 1.0)), weights)
    for step in range(2 * _SHRINKINGS):
        largest = largest_share(-rows.gram(weights * curvatures), posterior)
        if largest <= 1.0:
            return weights
        smaller = weights / max(largest, 1.02) if largest < np.inf else np.zeros_like(weights)
        weights = np.where(drawn | (step >= _SHRINKINGS), smaller, weights)
    return np.zeros_like(weights)


def _size(rows: RowsInMemory, curvatures: np.ndarray, posterior: np.ndarray) -> np.ndarray:
    """Return how much curvature each row has, relative to the posterior and over all directions."""
    m, tiny = rows.found.n_shared, np.finfo(float).tiny
    covariance = cho_solve(cho_factor(posterior), np.eye(len(posterior)))
    total = np.abs(curvatures[np.arange(m), np.arange(m)].T) @ covariance.diagonal()[:m]
    for i, line in enumerate(rows.lines):
        own = covariance[np.ix_(line.columns, line.columns)]
        spread = np.asarray((line.design * (line.design @ own)).sum(axis=1)).ravel()
        total = total + np.abs(curvatures[m + i, m + i]) * spread
    found: np.ndarray = np.maximum(total, tiny)
    return found


def largest_share(of_rows: np.ndarray, of_posterior: np.ndarray) -> float:
    """Return the largest curvature of chosen rows relative to that of the posterior.

    Where it is at most one, the quadratic that takes the rows' part from that of all rows leaves,
    with the prior, no direction in which the density rises without end.

    Parameters
    ----------
    of_rows, of_posterior : ndarray of shape (p, p)
        Negative Hessians.

    Examples
    --------
    >>> largest_share(np.diag([1.0, 6.0]), np.diag([2.0, 3.0]))
    2.0
    """
    n = len(of_rows)
    try:
        return float(eigh(of_rows, of_posterior, subset_by_index=(n - 1, n - 1))[0][0])
    except LinAlgError:
        return np.inf
