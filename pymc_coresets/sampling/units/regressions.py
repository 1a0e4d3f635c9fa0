"""Regressions of what belongs to units on the shared variables: known at few draws, for all."""

from typing import NamedTuple

import numpy as np

#: Number of draws at which a regression is judged.
HELD_OUT = 16


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
    """

    features: np.ndarray
    which: np.ndarray
    n_fitted: int

    @classmethod
    def of(cls, features: np.ndarray) -> "Regression | None":
        """Choose draws for as many features; None if that would be a quarter of them."""
        n_draws, n_features = features.shape
        n_fitted = int(2.5 * n_features) + 8
        if 4 * (n_fitted + HELD_OUT) > n_draws:
            return None
        both = spread(n_draws, n_fitted + HELD_OUT)
        judging = spread(len(both), HELD_OUT)
        return cls(features, np.concatenate([np.delete(both, judging), both[judging]]), n_fitted)

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


def linear_and_quadratic(x: np.ndarray) -> list[Regression]:
    """Return regressions on shared variables (n_draws, n_dims), as far as they pay."""
    middle, sd = x.mean(axis=0), x.std(axis=0)
    varies = sd > 1e-9 * (1.0 + np.abs(middle))
    x = ((x - middle) / np.where(varies, sd, 1.0))[:, varies]
    first, second = np.triu_indices(x.shape[1])
    linear = Regression.of(np.concatenate([np.ones((len(x), 1)), x], axis=1))
    if linear is None:
        return []
    if 4 * (2.5 * len(first) + HELD_OUT) > len(x):
        return [linear]
    products = x[:, first] * x[:, second]
    quadratic = Regression.of(np.concatenate([linear.features, products], axis=1))
    return [linear] if quadratic is None else [linear, quadratic]


def spread(n: int, n_wanted: int) -> np.ndarray:
    """Choose as many of n numbers, evenly spread.

    Examples
    --------
    >>> spread(10, 3)
    array([0, 4, 9])
    """
    return np.unique(np.linspace(0, n - 1, min(n, n_wanted)).round().astype(int))
