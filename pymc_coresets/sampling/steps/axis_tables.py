"""Proposals for posteriors that are normal but for a few directions: these are tabulated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import logsumexp

from pymc_coresets.diagnostics.lines import log_linear_masses, neighbours
from pymc_coresets.sampling.normal import Normal

__all__ = ["AxisTables", "Table"]

type LogDensity = Callable[[np.ndarray], np.ndarray]

_SHARE, _POWER = 0.1, 0.8  # of the draws that come from that power of the density
_PROBES = (-5.0, -3.0, -1.5, 1.5, 3.0, 5.0)  # standard deviations
_UNUSUAL = 0.1  # relative difference from what a normal density falls by
_FARTHEST = 0.5 * 2.0 ** np.arange(10)  # standard deviations: the first places of a table
_ROUNDS, _ADDED = 6, 8  # of refinement, and places that each of them adds
_N_PLACES = len(_PROBES) + 2 * len(_FARTHEST) + 1 + _ROUNDS * _ADDED
_LOWEST = -40.0  # nats below the maximum: nothing is drawn there
_AVERAGES, _OTHERS = 2, 16  # and draws of the other coordinates, of each of them
_STEEPEST = 10.0  # nats between neighbours: what counts of a bound
_SAME = 1e-8  # nats between neighbours that are equally high


@dataclass(frozen=True, eq=False)
class Table:
    """A density of one number whose logarithm is linear between some places.

    Parameters
    ----------
    places : ndarray of shape (n_places,)
        Ascending; beyond them the density is 0.
    heights : ndarray of shape (n_places,)
        Its logarithm there, up to a constant.

    Examples
    --------
    >>> table = Table(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, -40.0]))
    >>> table.log_density(np.array([0.5, 3.0])).round(2)
    array([-0.02,  -inf])
    >>> bool(table.draw(1_000, rng=np.random.default_rng(1)).max() < 1.5)
    True
    """

    places: np.ndarray
    heights: np.ndarray

    @cached_property
    def _masses(self) -> np.ndarray:
        return log_linear_masses(self.places, self.heights)

    @property
    def variance(self) -> float:
        """About that of a draw, as if all mass between two places were in the middle."""
        middles, shares = (
            (self.places[1:] + self.places[:-1]) / 2,
            self._masses / self._masses.sum(),
        )
        return float(shares @ np.square(middles - shares @ middles))

    def flattened(self, power: float) -> "Table":
        """Return a power of the density."""
        return Table(self.places, power * self.heights)

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw (n_draws,) by the inverse of the distribution function."""
        cumulative = np.cumsum(self._masses)
        uniform = rng.uniform(size=n_draws)
        cell = np.searchsorted(cumulative[:-1], uniform * cumulative[-1])
        change, uniform = np.diff(self.heights)[cell], rng.uniform(size=n_draws)
        same = np.abs(change) < _SAME
        sloping = np.log1p(uniform * np.expm1(change)) / np.where(same, 1.0, change)
        shares = np.where(same, uniform, sloping)
        draws: np.ndarray = self.places[cell] + shares * np.diff(self.places)[cell]
        return draws

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return the normalised log-density at numbers (n,)."""
        height = np.interp(x, self.places, self.heights, left=-np.inf, right=-np.inf)
        log_density: np.ndarray = height - np.log(self._masses.sum())
        return log_density


@dataclass(frozen=True, eq=False)
class AxisTables:
    """Independent coordinates along axes: a tabulated density along some, a normal along others.

    For a posterior that is close to normal but for a few coordinates, which a few rows bound to one
    side, as where all outcomes of a rare category agree.  There Laplace's approximation has the
    wrong scale and no skewness, and NUTS takes steps as short as the bound is steep.  A tenth of
    the draws comes from a power of the density, so that importance weights have a variance.

    Parameters
    ----------
    location : ndarray of shape (n_dims,)
    axes : ndarray of shape (n_dims, n_dims)
        In columns: draws are ``location + axes @ z``.
    tables : dict of int to Table
        Densities of some entries of z; the others are standard normal.

    Examples
    --------
    A standard normal variable that is positive, beside another one:

    >>> def log_density(x):
    ...     return -np.square(x).sum(axis=1) / 2 - np.logaddexp(0, -300 * x[:, 0])
    >>> from pymc_coresets.sampling.normal import heavy_tailed
    >>> near = heavy_tailed(np.array([0.02, 0.0]), np.diag([4.0, 1.0]))
    >>> found = AxisTables.around(near, log_density)
    >>> sorted(found.tables)  # which is the last coordinate
    [1]
    >>> draws, logq = found.draw(2_000, rng=np.random.default_rng(1))
    >>> weights = np.exp(log_density(draws) - logq)
    >>> bool(weights.sum() ** 2 / np.square(weights).sum() > 1_900)
    True
    """

    location: np.ndarray
    axes: np.ndarray
    tables: dict[int, Table]

    @classmethod
    def around(cls, near: Normal, log_density: LogDensity, *, most: float = np.inf) -> Self | None:
        """Tabulate a density along axes through its mode.

        Each coordinate moves those before it as far as they are expected to follow it, as in a
        Cholesky decomposition; those along which the density is widest beside its curvature at the
        mode come last.  So hardly any bound of one coordinate moves with another.  What is
        tabulated at last is the mean density of a coordinate given some draws of the others.

        Parameters
        ----------
        near : Normal
            Of the density's mode and its curvature there.
        log_density : callable
            Takes points (n_points, n_dims), and returns (n_points,), in nats.
        most : float, optional
            Largest number of points.  With fewer than 150 D the result is None; that mean takes
            2 200 for each coordinate that is tabulated, and is left out where they are too many.
        """
        mode, n_dims = near.location, len(near.location)
        if _N_PLACES * 2 * n_dims > most:
            return None
        middle, rng = np.zeros((1, n_dims)), np.random.default_rng(0)
        covariance = near.covariance
        alone = covariance / np.sqrt(covariance.diagonal())
        variances = np.ones(n_dims)
        unusual = _unusual(log_density, mode, alone)
        for axis, table in _tabulated(log_density, mode, alone, unusual, middle).items():
            variances[axis] = table.variance
        order = np.argsort(variances, kind="stable")
        root = cholesky(near.factor.matrix[np.ix_(order, order)], lower=True)
        axes = np.empty((n_dims, n_dims))
        axes[order] = solve_triangular(root, np.eye(n_dims), lower=True, trans="T")
        which = _unusual(log_density, mode, axes)
        found = cls(mode, axes, _tabulated(log_density, mode, axes, which, middle))
        if _N_PLACES * _AVERAGES * _OTHERS * len(which) <= most:
            for _ in range(_AVERAGES):
                z = found._standardised(_OTHERS, rng)
                found = cls(mode, axes, _tabulated(log_density, mode, axes, which, z))
        return found

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return float(len(self.location) ** 2)

    @property
    def covariance(self) -> np.ndarray:
        """About that of its draws, (n_dims, n_dims)."""
        variances = np.ones(len(self.location))
        for axis, table in self.tables.items():
            variances[axis] = table.variance
        covariance: np.ndarray = (self.axes * variances) @ self.axes.T
        return covariance

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        z = self._standardised(n_draws, rng)
        own, flat = (self._log_power(z, power) for power in (1.0, _POWER))
        logq = np.logaddexp(np.log1p(-_SHARE) + own, np.log(_SHARE) + flat)
        return self.location + z @ self.axes.T, logq

    def _standardised(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n_draws, len(self.location)))
        wide = rng.permutation(n_draws) < round(_SHARE * n_draws)
        z[wide] /= np.sqrt(_POWER)
        for axis, table in self.tables.items():
            for some, own in ((~wide, table), (wide, table.flattened(_POWER))):
                z[some, axis] = own.draw(int(some.sum()), rng=rng)
        return z

    def _log_power(self, z: np.ndarray, power: float) -> np.ndarray:
        """Return the logarithm of a power of the density of z, normalised up to a constant."""
        normal = np.delete(z, list(self.tables), axis=1)
        total = (normal.shape[1] * np.log(power) - power * np.square(normal).sum(axis=1)) / 2
        for axis, table in self.tables.items():
            total = total + table.flattened(power).log_density(z[:, axis])
        return np.asarray(total)


def _unusual(log_density: LogDensity, location: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Return the numbers of the axes, in columns, along which a density is not standard normal."""
    height, unusual = float(log_density(location[None])[0]), np.zeros(axes.shape[1], bool)
    for distance in _PROBES:
        expected = distance**2 / 2
        with np.errstate(all="ignore"):
            below = height - log_density(location + distance * axes.T)
            unusual |= ~(np.abs(below - expected) <= _UNUSUAL * expected)
    return np.flatnonzero(unusual)


def _tabulated(
    log_density: LogDensity,
    location: np.ndarray,
    axes: np.ndarray,
    which: np.ndarray,
    others: np.ndarray,
) -> dict[int, Table]:
    """Tabulate the density along some axes, the mean given the other coordinates (n_others, D)."""
    if not which.size:
        return {}

    def at(places: np.ndarray) -> np.ndarray:
        """Evaluate at places (m, k) along each axis: (m, n_others, k)."""
        shape = len(which), len(others), places.shape[1]
        z = np.broadcast_to(others[None, :, None], (*shape, len(location))).copy()
        for own, axis, along in zip(z, which, places, strict=True):
            own[:, :, axis] = along
        with np.errstate(all="ignore"):  # the farthest are far out
            values = log_density(location + z.reshape(-1, len(location)) @ axes.T).reshape(shape)
        return np.nan_to_num(values, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)

    places = np.tile(np.concatenate([-_FARTHEST[::-1], [0.0], _FARTHEST]), (len(which), 1))
    values, rows = at(places), np.arange(len(which))[:, None]
    for _ in range(_ROUNDS):
        cells = np.argsort(-_urgency(places, _averaged(places, values)), axis=1)[:, :_ADDED]
        middles = (places[rows, cells] + places[rows, cells + 1]) / 2
        values = np.concatenate([values, at(middles)], axis=2)
        places = np.hstack([places, middles])
        order = np.argsort(places, axis=1)
        places = np.take_along_axis(places, order, 1)
        values = np.take_along_axis(values, order[:, None], 2)
    heights = np.maximum(_averaged(places, values), _LOWEST)
    return {int(i): Table(*own) for i, *own in zip(which, places, heights, strict=True)}


def _averaged(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the logarithm of a mean of densities (m, n_others, k), each normalised; at most 0."""
    values = values - values.max(axis=2, keepdims=True)
    masses = log_linear_masses(places[:, None], values).sum(axis=2, keepdims=True)
    means = logsumexp(values - np.log(masses), axis=1)
    heights: np.ndarray = means - means.max(axis=1, keepdims=True)
    return heights


def _urgency(places: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return how much the density between neighbours may differ from what is interpolated."""
    higher, change = neighbours(heights)
    urgency: np.ndarray = np.diff(places) * np.exp(higher) * np.minimum(change, _STEEPEST)
    return urgency
