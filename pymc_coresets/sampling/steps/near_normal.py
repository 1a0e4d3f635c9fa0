"""Draws of nearly normal posteriors: except in a few directions, or for many small differences."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import logsumexp

from pymc_coresets.diagnostics.lines import log_linear_masses, neighbours
from pymc_coresets.sampling.normal import Normal

type LogDensity = Callable[[np.ndarray], np.ndarray]

#: Share of the draws from a power of the density, and that power.
_SHARE, _POWER = 0.1, 0.8
#: Rounds of refinement of a table, and the number of places added by each.
_ROUNDS, _ADDED = 6, 8

_log = logging.getLogger(__name__)


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
        """Approximate variance of a draw, with the mass between two places in their middle."""
        middles = (self.places[1:] + self.places[:-1]) / 2
        shares = self._masses / self._masses.sum()
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
class AxisTables:
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
    >>> found = AxisTables.around(near, log_density)
    >>> sorted(found.tables)  # the last coordinate
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
    def around(
        cls, near: Normal, log_density: LogDensity, *, most: float = np.inf
    ) -> "AxisTables | None":
        """Tabulate a density along axes through its mode.

        Each coordinate moves those before it to their conditional expectations, as in a Cholesky
        decomposition; those along which the density is widest relative to its curvature at the mode
        come last.  So the bound of one coordinate hardly depends on another.  The final tables are
        mean densities of a coordinate given some draws of the others.

        Parameters
        ----------
        near : Normal
            Of the density's mode and its curvature there.
        log_density : callable
            Takes points (n_points, n_dims), and returns (n_points,), in nats.
        most : float, optional
            Largest number of points.  With fewer than 150 D the result is None; the mean density
            takes 2,200 per tabulated coordinate, and is skipped if these are too many.
        """
        mode, n_dims = near.location, len(near.location)
        n_places = 27 + _ROUNDS * _ADDED  # those of `_unusual` and the first of `_tabulated`
        n_averages, n_others = 2, 16  # and draws of the other coordinates, of each of them
        if n_places * 2 * n_dims > most:
            return None
        middle, rng = np.zeros((1, n_dims)), np.random.default_rng(0)

        def along(
            axes: np.ndarray, others: np.ndarray, which: np.ndarray | None = None
        ) -> "AxisTables":
            def density(z: np.ndarray) -> np.ndarray:
                return log_density(mode + z @ axes.T)

            which = _unusual(density, n_dims) if which is None else which
            return cls(mode, axes, _tabulated(density, which, others))

        covariance = near.covariance
        alone = along(covariance / np.sqrt(covariance.diagonal()), middle)
        order = np.argsort(alone.variances, kind="stable")
        root = cholesky(near.factor.matrix[np.ix_(order, order)], lower=True)
        axes = np.empty((n_dims, n_dims))
        axes[order] = solve_triangular(root, np.eye(n_dims), lower=True, trans="T")
        found = along(axes, middle)
        which = np.array(list(found.tables), dtype=np.int64)
        if n_places * n_averages * n_others * len(which) <= most:
            for _ in range(n_averages):
                found = along(axes, found.standardised(n_others, rng), which)
        return found

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return float(len(self.location) ** 2)

    @property
    def variances(self) -> np.ndarray:
        """Approximate standard deviations of the coordinates, (n_dims,)."""
        variances = np.ones(len(self.location))
        for axis, table in self.tables.items():
            variances[axis] = table.variance
        return variances

    @property
    def covariance(self) -> np.ndarray:
        """Approximate covariance of its draws, (n_dims, n_dims)."""
        covariance: np.ndarray = (self.axes * self.variances) @ self.axes.T
        return covariance

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        z = self.standardised(n_draws, rng)
        own, flat = (self._log_power(z, power) for power in (1.0, _POWER))
        logq = np.logaddexp(np.log1p(-_SHARE) + own, np.log(_SHARE) + flat)
        return self.location + z @ self.axes.T, logq

    def standardised(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw coordinates along the axes, (n_draws, n_dims)."""
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


def _unusual(density: LogDensity, n_dims: int) -> np.ndarray:
    """Return the numbers of the coordinates along which a density is not standard normal."""
    height, unusual = float(density(np.zeros((1, n_dims)))[0]), np.zeros(n_dims, bool)
    for distance in (-5.0, -3.0, -1.5, 1.5, 3.0, 5.0):
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

    far = 0.5 * 2.0 ** np.arange(10)  # standard deviations
    places = np.tile(np.concatenate([-far[::-1], [0.0], far]), (len(which), 1))
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


@dataclass(frozen=True, eq=False)
class _Chains:
    """States of chains, (n_chains, n_dims), with the log-density and its gradient there."""

    points: np.ndarray
    values: np.ndarray
    pull: np.ndarray

    def moved(self, others: "_Chains", which: np.ndarray) -> "_Chains":
        """Replace the states of some chains by those of others."""
        return _Chains(
            np.where(which[:, None], others.points, self.points),
            np.where(which, others.values, self.values),
            np.where(which[:, None], others.pull, self.pull),
        )

    def correlation(self, others: "_Chains") -> float:
        """Return the largest correlation with other states, of a coordinate or the log-density."""
        one, other = (np.column_stack([c.points, c.values]) for c in (self, others))
        one, other = one - one.mean(axis=0), other - other.mean(axis=0)
        sizes = np.sqrt(np.square(one).sum(axis=0) * np.square(other).sum(axis=0))
        return float((np.abs((one * other).sum(axis=0)) / sizes).max())


@dataclass(frozen=True, eq=False)
class SplitHmc:
    """Moves draws of a distribution near a density until they are draws of that density.

    For thousands of dimensions, in which the sum of many small differences makes importance weights
    useless.  All draws move at once, each as its own chain.  A trajectory is a quarter turn under
    the normal distribution around them, which is followed exactly; only the difference of the
    density from the normal needs steps.  So four gradients give a draw that hardly depends on the
    start of the chain.

    Parameters
    ----------
    slopes : callable
        Returns the log-densities (n_points,), in nats, and gradients at points (n_points, n_dims).
    around : Normal
        With approximately the mean and precision of the density.

    References
    ----------
    Shahbaba, Lan, Johnson, Neal (2014). Split Hamiltonian Monte Carlo. Statistics and Computing
    24. https://doi.org/10.1007/s11222-012-9373-1

    Examples
    --------
    Logarithms of gamma variables, which are skewed:

    >>> from pymc_coresets.sampling.normal import CholeskyFactor
    >>> hmc = SplitHmc(
    ...     lambda x: ((5 * x - np.exp(x)).sum(axis=1), 5 - np.exp(x)),
    ...     Normal(np.full(3, 1.5), CholeskyFactor(np.eye(3) / 0.22)),
    ... )
    >>> rng = np.random.default_rng(1)
    >>> draws = hmc.moved(rng.normal(1.5, 0.47, size=(2_000, 3)), rng=rng)
    >>> np.exp(draws).mean().round(1), np.exp(draws).var().round(0)
    (np.float64(5.0), np.float64(5.0))
    """

    slopes: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    around: Normal

    def moved(self, points: np.ndarray, *, rng: np.random.Generator) -> np.ndarray | None:
        """Return as many draws, (n_chains, n_dims); None if they stay correlated with the starts.

        Trajectories are repeated until every chain has moved and the product of the correlations
        between the ends of each trajectory is at most 0.05.  The largest correlation counts, of a
        coordinate or the log-density.
        """
        chains, n_steps, left = self._at(points), 4, 1.0
        moved = np.zeros(len(points), bool)
        for _ in range(12):
            before = chains
            chains, accepted = self._after_a_quarter(before, n_steps, rng)
            left, moved = left * before.correlation(chains), moved | accepted
            share = float(accepted.mean())
            _log.info("%d gradients: %.2f accepted, correlation %.2g", n_steps, share, left)
            if left <= 0.05 and moved.all():
                return chains.points
            if share < 0.8:
                n_steps *= 2
            if n_steps > 16 or not np.isfinite(left):
                break
        return None

    def _at(self, points: np.ndarray) -> _Chains:
        """Evaluate the density; if it is not finite, it is zero, with gradient zero."""
        with np.errstate(all="ignore"):
            values, gradients = self.slopes(points)
        finite = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
        gradients = np.where(finite[:, None], gradients, 0.0)
        pull = self.around.factor.solve(gradients.T).T + points - self.around.location
        return _Chains(points, np.where(finite, values, -np.inf), pull)

    def _after_a_quarter(
        self, start: _Chains, n_steps: int, rng: np.random.Generator
    ) -> tuple[_Chains, np.ndarray]:
        """Propose the ends of trajectories; return the chains, and which of them moved."""
        factor, location = self.around.factor, self.around.location
        velocity = factor.draw_inverse(len(start.points), rng=rng)
        energy = np.square(factor.whiten(velocity)).sum(axis=1) / 2 - start.values
        end, angle = start, np.pi / 2 / n_steps
        cos, sin = np.cos(angle), np.sin(angle)
        for _ in range(n_steps):
            velocity = velocity + angle / 2 * end.pull
            away = end.points - location
            end = self._at(location + cos * away + sin * velocity)
            velocity = cos * velocity - sin * away + angle / 2 * end.pull
        with np.errstate(invalid="ignore"):
            ended = np.square(factor.whiten(velocity)).sum(axis=1) / 2 - end.values
            gained = energy - ended
        which = np.log(rng.uniform(size=len(gained))) < gained
        return start.moved(end, which), which
