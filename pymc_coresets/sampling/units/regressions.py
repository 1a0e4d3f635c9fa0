"""Regressions of what belongs to units on the shared variables: known at few draws, for all."""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import ndtri

#: Number of draws at which a regression is judged: half of them evenly spread, half far out.
HELD_OUT = 32
#: Share of the draws that are too far out for a regression.
_OUTER = 0.01


class Regression(NamedTuple):
    """A regression on the shared variables.

    Parameters
    ----------
    features : ndarray of shape (n_draws, n_features)
        Functions of the shared variables.
    which : ndarray of int
        The draws at which values are known.
    n_fitted : int
        How many of these are for the regression: the others judge it.
    outer : ndarray of int
        The draws that lie farthest out, for which it is not meant.
    """

    features: np.ndarray
    which: np.ndarray
    n_fitted: int
    outer: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, distance: np.ndarray) -> "Regression | None":
        """Choose draws for as many features; None if that would be a quarter of them.

        A regression is worst where it extrapolates, as for the few draws of a scale close to zero.
        So those farthest out are left to others, and it is judged at the next ones, too.

        Parameters
        ----------
        features : ndarray of shape (n_draws, n_features)
        distance : ndarray of shape (n_draws,)
            How far out draws are, see `distances`.
        """
        n_draws, n_features = features.shape
        n_fitted = int(2.5 * n_features) + 8
        if 4 * (n_fitted + HELD_OUT) > n_draws:
            return None
        order = np.argsort(-distance, kind="stable")
        n_outer, n_far = int(np.ceil(_OUTER * n_draws)), HELD_OUT // 2
        outer, far = np.sort(order[:n_outer]), np.sort(order[n_outer : n_outer + n_far])
        inner = np.sort(order[n_outer + n_far :])
        both = inner[spread(len(inner), n_fitted + HELD_OUT - n_far)]
        judging = spread(len(both), HELD_OUT - n_far)
        which = np.concatenate([np.delete(both, judging), both[judging], far])
        return cls(features, which, n_fitted, outer)

    def coefficients(self, values: np.ndarray) -> np.ndarray:
        """Return coefficients (n_features, ...) of values (n_fitted, ...) at the first draws."""
        inverse = np.linalg.pinv(self.features[self.which[: self.n_fitted]])
        flat = inverse @ values.reshape(self.n_fitted, -1)
        found: np.ndarray = flat.reshape(-1, *values.shape[1:])
        return found

    def at(self, coefficients: np.ndarray, draws: slice | np.ndarray) -> np.ndarray:
        """Return the values (n_draws, ...) at some draws."""
        flat = self.features[draws] @ coefficients.reshape(len(coefficients), -1)
        found: np.ndarray = flat.reshape(-1, *coefficients.shape[1:])
        return found

    @property
    def judging(self) -> np.ndarray:
        """The draws that judge the regression."""
        return self.which[self.n_fitted :]


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(
    found: np.ndarray,
    coefficients: np.ndarray,
    which: np.ndarray,
    x: np.ndarray,
    own: np.ndarray,
    has_own: bool,  # noqa: FBT001 (Numba takes no keywords alone)
) -> None:
    n_draws, n_units = x.shape
    for s in range(n_draws):
        total, at = found[s], x[s]
        for power in range(coefficients.shape[1] - 1, -1, -1):
            known = coefficients[s, power]
            if not has_own:
                for g in range(n_units):
                    own[g] = known[which[g]]
                known = own
            for g in range(n_units):
                total[g] = total[g] * at[g] + known[g]


def polynomials(coefficients: np.ndarray, which: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the values of polynomials of each draw, of which units share some.

    Parameters
    ----------
    coefficients : ndarray of shape (n_draws, n_powers, n_polynomials)
        Those of low powers first.
    which : ndarray of int, of shape (n_units,)
        The number of each unit's polynomial.
    x : ndarray of shape (n_draws, n_units)

    Returns
    -------
    ndarray of shape (n_draws, n_units)

    Examples
    --------
    >>> one_plus_square = np.array([[[1.0], [0.0], [1.0]]])
    >>> polynomials(one_plus_square, np.array([0, 0]), np.array([[2.0, 3.0]]))
    array([[ 5., 10.]])
    """
    has_own = np.array_equal(which, np.arange(coefficients.shape[2]))
    x, coefficients = (np.ascontiguousarray(a, np.float64) for a in (x, coefficients))
    found, own = np.zeros(x.shape), np.empty(x.shape[1])
    _fill(found, coefficients, which, x, own, has_own)  # NumPy makes arrays: it is compiled
    return found


def linear_and_quadratic(x: np.ndarray) -> list[Regression]:
    """Return regressions on shared variables (n_draws, n_dims), as far as they pay."""
    middle, sd = x.mean(axis=0), x.std(axis=0)
    varies = sd > 1e-9 * (1.0 + np.abs(middle))
    x = ((x - middle) / np.where(varies, sd, 1.0))[:, varies]
    first, second = np.triu_indices(x.shape[1])
    distance = distances(x)
    linear = Regression.of(np.concatenate([np.ones((len(x), 1)), x], axis=1), distance)
    if linear is None:
        return []
    if 4 * (2.5 * len(first) + HELD_OUT) > len(x):
        return [linear]
    products = x[:, first] * x[:, second]
    quadratic = Regression.of(np.concatenate([linear.features, products], axis=1), distance)
    return [linear] if quadratic is None else [linear, quadratic]


def distances(x: np.ndarray) -> np.ndarray:
    """Return how far out draws (n_draws, n_dims) are along any variable or principal axis.

    By normal scores of their ranks, so that one variable of heavy tails does not outdo the others.

    Examples
    --------
    >>> distances(np.array([[0.0], [1.0], [100.0]])).round(2)
    array([0.97, 0.  , 0.97])
    """
    if not x.size:
        return np.zeros(len(x))
    _, _, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    along = np.concatenate([x, x @ axes.T], axis=1)
    ranks = along.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    found: np.ndarray = np.abs(ndtri((ranks + 0.5) / len(x))).max(axis=1)
    return found


def spread(n: int, n_wanted: int) -> np.ndarray:
    """Choose as many of n numbers, evenly spread.

    Examples
    --------
    >>> spread(10, 3)
    array([0, 4, 9])
    """
    return np.unique(np.linspace(0, n - 1, min(n, n_wanted)).round().astype(int))
