"""Functions of a few variables, expanded to second order from their values: Newton's method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, inv

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.normal import Normal, heavy_tailed

type Array = NDArray[np.float64]

_STEP = 0.3  # standard deviations
_CLOSE = 0.02  # twice the nats that a last step may promise: the mode to a tenth of an sd
_ROUND = 2.0  # curvatures between 1/2 and 2 in the coordinates of the last step
_ROUNDING = 1e-12  # of values
_MOST_STEPS = 60
_DAMPING = (0.0, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4)


def design(n_dims: int) -> Array:
    """Return as many points as a quadratic function has terms, the middle first.

    Both sides of each axis, and corners; 0.3 away, for coordinates in which the function is roughly
    the logarithm of a standard normal density.

    Examples
    --------
    >>> design(1).ravel()
    array([ 0. ,  0.3, -0.3])
    """
    units = np.eye(n_dims)
    first, second = np.triu_indices(n_dims, 1)
    corners = units[first] + units[second]
    return _STEP * np.concatenate([np.zeros((1, n_dims)), units, -units, corners])


def monomials(points: Array) -> Array:
    """Return all monomials up to degree two of points (B, p): (B, (p + 1)(p + 2)/2).

    Examples
    --------
    >>> monomials(np.array([[2.0, 3.0]]))
    array([[1., 2., 3., 4., 6., 9.]])
    """
    first, second = np.triu_indices(points.shape[1])
    return np.concatenate(
        [np.ones((len(points), 1)), points, points[:, first] * points[:, second]], axis=1
    )


def are_smooth(values: Array) -> bool:
    """Whether values at the points of `design` are finite, and differ by more than rounding.

    Examples
    --------
    >>> are_smooth(np.array([1e16, 1e16 + 2, 1e16 + 4])), are_smooth(np.array([0.0, 1.0, -np.inf]))
    (False, False)
    """
    largest = float(np.abs(values).max())
    return bool(np.isfinite(largest) and (len(values) == 1 or np.ptp(values) > _ROUNDING * largest))


@dataclass(frozen=True, eq=False, kw_only=True)
class Expansion:
    """A function of p variables around 0, from its values at the points of `design`.

    Parameters
    ----------
    height : float
    gradient : ndarray of shape (p,)
    heights : ndarray of shape (p,)
        Eigenvalues of the negative Hessian.
    axes : ndarray of shape (p, p)
        Its eigenvectors, in columns.

    Examples
    --------
    >>> found = Expansion.of(-np.square(design(2) - 0.1).sum(axis=1) / 2)
    >>> found.heights.round(6), found.shift.round(6), found.is_last
    (array([1., 1.]), array([0.1, 0.1]), False)
    """

    height: float
    gradient: Array
    heights: Array
    axes: Array

    @classmethod
    def of(cls, values: Array) -> Self:
        """Interpolate the values at the points of `design`."""
        n_dims = (int(np.sqrt(8 * len(values) + 1)) - 3) // 2
        terms = np.linalg.solve(monomials(design(n_dims)), values)
        hessian = np.zeros((n_dims, n_dims))
        hessian[np.triu_indices(n_dims)] = terms[1 + n_dims :]
        heights, axes = np.linalg.eigh(-hessian - hessian.T)
        return cls(
            height=float(terms[0]), gradient=terms[1 : 1 + n_dims], heights=heights, axes=axes
        )

    @property
    def is_last(self) -> bool:
        """Whether the coordinates are right, and the maximum is near."""
        lowest, highest = float(self.heights.min(initial=1)), float(self.heights.max(initial=1))
        return 1 / _ROUND < lowest <= highest < _ROUND and self._promised < _CLOSE

    @property
    def goes_on(self) -> bool:
        """Whether a step promises more than can be left."""
        return self._promised > _CLOSE

    @property
    def turn(self) -> Array:
        """``turn @ z`` has the curvature of a standard normal density in z, (p, p)."""
        return self.axes / np.sqrt(self._scales)

    @property
    def shift(self) -> Array:
        """Newton's step, (p,)."""
        shift: Array = self.turn @ (self.turn.T @ self.gradient)
        return shift

    @property
    def steps(self) -> Array:
        """Steps of several lengths, Newton's first, (n_steps, p): uphill, whatever the sign."""
        slope, scales = self._slope, self._scales
        return np.stack(
            [self.axes @ (slope / (scales + d * scales.max(initial=0.0))) for d in _DAMPING]
        )

    @property
    def _slope(self) -> Array:
        slope: Array = self.axes.T @ self.gradient
        return slope

    @property
    def _scales(self) -> Array:
        heights = np.abs(self.heights)
        largest = max(heights.max(initial=1e-8), np.abs(self._slope).max(initial=0.0))
        scales: Array = np.maximum(heights, 1e-8 * largest)
        return scales

    @property
    def _promised(self) -> float:
        """Twice the nats that Newton's step promises."""
        return float(np.square(self._slope) @ (1 / self._scales))


def near_mode(log_density: Callable[[Array], Array], start: Normal) -> Normal:
    """Return a normal distribution with the mode of a function of few variables, and heavy tails.

    Parameters
    ----------
    log_density : callable
        Takes points (n_points, p), and returns (n_points,), in nats.
    start : Normal
        Where the search begins, with a guess of the scales.

    Raises
    ------
    SamplingError
        If it leads to no mode.

    Examples
    --------
    >>> start = heavy_tailed(np.zeros(1), np.eye(1))
    >>> found = near_mode(lambda x: -2 * np.square(x[:, 0] - 3), start)
    >>> found.location.round(6), found.factor.root.round(6)
    (array([3.]), array([[2.]]))
    """
    mode, spread = start.location, inv(start.factor.root).T
    for _ in range(_MOST_STEPS):
        values = log_density(mode + design(len(mode)) @ spread.T)
        if not are_smooth(values):
            break
        found = Expansion.of(values)
        if found.is_last:
            mode, spread = mode + spread @ found.shift, spread @ found.turn
            try:
                return heavy_tailed(mode, cholesky(inv(spread @ spread.T), lower=True))
            except (LinAlgError, ValueError):  # it is flat, or has no end
                break
        tried = mode + found.steps @ spread.T
        heights, spread = log_density(tried), spread @ found.turn
        best = int(np.argmax(heights))
        if heights[best] > found.height:
            mode = tried[best]
        elif found.goes_on:
            break
    raise SamplingError("The marginal posterior of the scales has no mode near the start.")
