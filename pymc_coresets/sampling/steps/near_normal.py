"""Draws of posteriors that are normal except in a few directions, by tables along axes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp, softmax

from pymc_coresets.diagnostics.lines import log_linear_masses, neighbours
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.steps.joint_axes import N_GRADIENTS, independent_axes

type LogDensity = Callable[[np.ndarray], np.ndarray]
type Gradients = Callable[[np.ndarray], np.ndarray]

#: Share of the draws from a power of the density, and that power.
_SHARE, _POWER = 0.1, 0.8
#: Rounds of refinement of a table, and the number of places added by each.
_ROUNDS, _ADDED = 6, 8
#: Share of the draws that weights leave if coordinates hardly depend on each other.
_ENOUGH = 0.8
#: Distances from the mode that tell whether a density is normal along an axis, and those at which a
#: table begins, in standard deviations.
_DISTANCES = (-5.0, -3.0, -1.5, 1.5, 3.0, 5.0)
_FAR = 0.5 * 2.0 ** np.arange(10)


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

    def flattened(self, power: float) -> "Table":
        """Return a power of the density."""
        return Table(self.places, power * self.heights)

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw (n_draws,) by the inverse of the distribution function."""
        cumulative = np.cumsum(self._masses)
        uniform = rng.uniform(size=n_draws)
        cell = np.searchsorted(cumulative[:-1], uniform * cumulative[-1])
        change, uniform = np.diff(self.heights)[cell], rng.uniform(size=n_draws)
        same = np.abs(change) < 1e-8
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
class GriddedMarginals:
    """Independent coordinates along axes: a tabulated density along some, a normal along others.

    For a posterior that is close to normal except in a few coordinates, which a few rows bound on
    one side, for instance because all outcomes of a rare category agree.  There Laplace's
    approximation has the wrong scale and no skewness, and NUTS takes short steps because the bound
    is steep.  A tenth of the draws is from a power of the density, so that importance weights have
    a finite variance.

    Parameters
    ----------
    location : ndarray of shape (n_dims,)
    axes : ndarray of shape (n_dims, n_dims)
        In columns: draws are ``location + axes @ z``.
    tables : dict of int to Table
        Densities of some entries of z; the others are standard normal.

    Examples
    --------
    A positive and an unrestricted standard normal variable:

    >>> def log_density(x):
    ...     return -np.square(x).sum(axis=1) / 2 - np.logaddexp(0, -300 * x[:, 0])
    >>> from pymc_coresets.sampling.normal import heavy_tailed
    >>> near = heavy_tailed(np.array([0.02, 0.0]), np.diag([4.0, 1.0]))
    >>> def gradients(x):
    ...     return -x + 300 * np.exp(-np.logaddexp(0, 300 * x[:, :1])) * [1.0, 0.0]
    >>> [found] = GriddedMarginals.around(near, log_density, gradients)
    >>> len(found.tables)
    1
    >>> draws, logq = found.draw(2_000, rng=np.random.default_rng(1))
    >>> weights = np.exp(log_density(draws) - logq)
    >>> bool(weights.sum() ** 2 / np.square(weights).sum() > 1_900)
    True
    """

    location: np.ndarray
    axes: np.ndarray
    tables: dict[int, Table]

    @classmethod
    def around(
        cls, near: Normal, log_density: LogDensity, gradients: Gradients, *, most: float = np.inf
    ) -> "Iterator[GriddedMarginals]":
        """Tabulate a density along axes through its mode, see `independent_axes`.

        If its coordinates along them depend on each other, the tables are mean densities of a
        coordinate given some draws of the others.

        Parameters
        ----------
        near : Normal
            Of the density's mode and its curvature there.
        log_density : callable
            Takes points (n_points, n_dims), and returns (n_points,), in nats.
        gradients : callable
            The same of its gradient, (n_points, n_dims).
        most : float, optional
            Largest number of points.  The axes take 36 D, and tables 69 for each coordinate that
            has one: if these are too many, nothing is yielded.  Mean densities take 2,208 more
            for each, and are left out if these are too many.
        """
        mode, n_dims = near.location, len(near.location)
        # A gradient takes as long as three values.
        n_values = (3 * N_GRADIENTS + len(_DISTANCES)) * n_dims
        n_averages, n_others = 2, 16  # and draws of the other coordinates, of each of them
        if n_values > most:
            return
        rng = np.random.default_rng(0)
        axes = independent_axes(near, gradients, rng=rng)

        def density(z: np.ndarray) -> np.ndarray:
            return log_density(mode + z @ axes.T)

        which = _unusual(density, n_dims)
        of_tables = (2 * len(_FAR) + 1 + _ROUNDS * _ADDED) * len(which)
        if n_values + of_tables > most:
            return
        found = cls(mode, axes, _tabulated(density, which, np.zeros((1, n_dims))))
        n_values += of_tables * (1 + n_averages * n_others)
        if n_values <= most and not found.serves(log_density, rng):
            for _ in range(n_averages):
                others = found.standardised(n_others, rng)
                found = cls(mode, axes, _tabulated(density, which, others))
        yield found

    def serves(self, log_density: LogDensity, rng: np.random.Generator) -> bool:
        """Whether importance weights leave most of a hundred draws."""
        x, logq = self.draw(100, rng=rng)
        with np.errstate(all="ignore"):  # some draws may be impossible
            log_ratios = np.nan_to_num(log_density(x) - logq, nan=-np.inf, neginf=-np.inf)
            weights = softmax(log_ratios)  # NaN if all are impossible, which is not enough
        return float(1 / np.square(weights).sum()) > _ENOUGH * len(x)

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return float(len(self.location) ** 2)

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        z = self.standardised(n_draws, rng)
        return self.location + z @ self.axes.T, self._log_density(z)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return the log-density at points (n_points, n_dims), up to a constant: (n_points,)."""
        return self._log_density(np.linalg.solve(self.axes, (x - self.location).T).T)

    def standardised(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw coordinates along the axes, (n_draws, n_dims)."""
        z = rng.standard_normal((n_draws, len(self.location)))
        wide = rng.permutation(n_draws) < round(_SHARE * n_draws)
        z[wide] /= np.sqrt(_POWER)
        for axis, table in self.tables.items():
            for some, own in ((~wide, table), (wide, table.flattened(_POWER))):
                z[some, axis] = own.draw(int(some.sum()), rng=rng)
        return z

    def _log_density(self, z: np.ndarray) -> np.ndarray:
        own, flat = (self._log_power(z, power) for power in (1.0, _POWER))
        logq: np.ndarray = np.logaddexp(np.log1p(-_SHARE) + own, np.log(_SHARE) + flat)
        return logq

    def _log_power(self, z: np.ndarray, power: float) -> np.ndarray:
        """Return the logarithm of a power of the density of z, normalised up to a constant."""
        normal = np.delete(z, list(self.tables), axis=1)
        total = (normal.shape[1] * np.log(power) - power * np.square(normal).sum(axis=1)) / 2
        for axis, table in self.tables.items():
            total = total + table.flattened(power).log_density(z[:, axis])
        return np.asarray(total)


def _unusual(density: LogDensity, n_dims: int) -> np.ndarray:
    """Return the numbers of the coordinates along which a density is not standard normal."""
    height, unusual = float(density(np.zeros((1, n_dims)))[0]), np.zeros(n_dims, bool)
    for distance in _DISTANCES:
        expected = distance**2 / 2
        with np.errstate(all="ignore"):
            below = height - density(distance * np.eye(n_dims))
            unusual |= ~(np.abs(below - expected) <= 0.1 * expected)
    return np.flatnonzero(unusual)


def _tabulated(density: LogDensity, which: np.ndarray, others: np.ndarray) -> dict[int, Table]:
    """Tabulate a density along some coordinates, averaged over the others (n_others, n_dims)."""
    if not which.size:
        return {}

    def at(places: np.ndarray) -> np.ndarray:
        """Evaluate at places (m, k) along each coordinate: (m, n_others, k)."""
        shape, n_dims = (len(which), len(others), places.shape[1]), others.shape[1]
        z = np.broadcast_to(others[None, :, None], (*shape, n_dims)).copy()
        for own, axis, along in zip(z, which, places, strict=True):
            own[:, :, axis] = along
        with np.errstate(all="ignore"):  # some places are far in the tails
            values = density(z.reshape(-1, n_dims)).reshape(shape)
        return np.nan_to_num(values, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)

    places = np.tile(np.concatenate([-_FAR[::-1], [0.0], _FAR]), (len(which), 1))
    values, rows = at(places), np.arange(len(which))[:, None]
    for _ in range(_ROUNDS):
        cells = np.argsort(-_urgency(places, _averaged(places, values)), axis=1)[:, :_ADDED]
        middles = (places[rows, cells] + places[rows, cells + 1]) / 2
        values = np.concatenate([values, at(middles)], axis=2)
        places = np.hstack([places, middles])
        order = np.argsort(places, axis=1)
        places = np.take_along_axis(places, order, 1)
        values = np.take_along_axis(values, order[:, None], 2)
    heights = np.maximum(_averaged(places, values), -40.0)  # nothing is drawn below
    return {int(i): Table(*own) for i, *own in zip(which, places, heights, strict=True)}


def _averaged(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the logarithm of a mean of densities (m, n_others, k), each normalised; at most 0."""
    values = values - values.max(axis=2, keepdims=True)
    masses = log_linear_masses(places[:, None], values).sum(axis=2, keepdims=True)
    means = logsumexp(values - np.log(masses), axis=1)
    heights: np.ndarray = means - means.max(axis=1, keepdims=True)
    return heights


def _urgency(places: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return bounds on the interpolation error of the density between neighbours."""
    higher, change = neighbours(heights)
    # At a bound, at most ten nats between neighbours count.
    urgency: np.ndarray = np.diff(places) * np.exp(higher) * np.minimum(change, 10.0)
    return urgency
