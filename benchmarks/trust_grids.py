"""Exact marginal distributions of a few shared variables and of levels, for ``benchmarks.trust``.

The shared variables are summed over an even grid.  The variables of a level are integrated out by
formulas, or over a dense grid of their own.  Nothing here uses the package that is judged, and a
distribution is represented by its cumulative distribution function.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp, ndtr
from scipy.stats import halfnorm, norm

from benchmarks.trust_models import Array

__all__ = [
    "Curves",
    "Grid",
    "Known",
    "NormalLevels",
    "Prior",
    "cdf_of_density",
    "grid",
    "half_normal",
    "mixed",
    "normal",
    "quantiles",
]

type Points = Mapping[str, Array]
type LogDensity = Callable[[Points], Array]
type Prior = Callable[[Array], Array]  # log-density of a shared variable
type Cdf = Callable[[float], float]
type Quantiles = Callable[[Array], Array]

_COARSE = 25  # nodes along each axis of grids that find where the mass is
_NEGLIGIBLE = 28.0  # nats below the largest density: 1e-12
_AT_ONCE = 2_000  # points of the grid


@dataclass(frozen=True, kw_only=True)
class Known:
    """A model's variables, and the quantile functions of their posterior, of the same data."""

    build: Callable[[], None]
    truth: Callable[[], Mapping[str, Quantiles]]


# -- distributions ---------------------------------------------------------------------------------


def quantiles(cdf: Cdf, low: float, high: float) -> Quantiles:
    """Return the quantile function of a distribution between two bounds."""

    def inverse(levels: Array) -> Array:
        def above(u: float, level: float) -> float:
            return cdf(u) - level

        return np.array([brentq(above, low, high, args=(level,), xtol=1e-14) for level in levels])

    return inverse


def mixed(shares: Array, cdfs: Sequence[Cdf]) -> Cdf:
    """Return the distribution function of a mixture."""

    def cdf(u: float) -> float:
        return float(sum(share * of(u) for share, of in zip(shares, cdfs, strict=True)))

    return cdf


def cdf_of_density(nodes: Array, density: Array) -> Cdf:
    """Return the distribution function of a density at nodes, by its cubic spline."""
    integral = CubicSpline(nodes, density).antiderivative()
    total = float(integral(nodes[-1]))
    return lambda u: float(integral(np.clip(u, nodes[0], nodes[-1]))) / total


# -- shared variables ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The posterior of shared variables at the nodes of an even grid.

    ``masses`` has an axis for each variable, and sums to one; ``log_mass`` is the logarithm of the
    integral of the density that was given.
    """

    axes: dict[str, Array]
    masses: Array
    log_mass: float

    def cdf(self, name: str) -> Cdf:
        """Return the marginal distribution function of a variable."""
        place, nodes = list(self.axes).index(name), self.axes[name]
        others = tuple(k for k in range(self.masses.ndim) if k != place)
        return cdf_of_density(nodes, self.masses.sum(axis=others) / _trapezoid(nodes))

    def quantiles(self, name: str) -> Quantiles:
        """Return the marginal quantile function of a variable."""
        return quantiles(self.cdf(name), *self.axes[name][[0, -1]])

    @cached_property
    def points(self) -> tuple[dict[str, Array], Array]:
        """Nodes with some mass, and their masses."""
        keep = self.masses.ravel() > 1e-13
        masses = self.masses.ravel()[keep]
        flat = {name: values[keep] for name, values in _flat(self.axes).items()}
        return flat, masses / masses.sum()

    def chunks(self) -> Iterator[tuple[dict[str, Array], Array]]:
        """Yield the same a few at a time."""
        points, masses = self.points
        for i in range(0, len(masses), _AT_ONCE):
            part = slice(i, i + _AT_ONCE)
            yield {name: values[part] for name, values in points.items()}, masses[part]


def grid(log_density: LogDensity, box: Mapping[str, tuple[float, float]], size: int) -> Grid:
    """Put a grid of so many nodes along each axis where a density has its mass within a box.

    There must be one mode, or a few that lie close.
    """
    ends = _ends(log_density, box)
    axes = {name: np.linspace(*of, size) for name, of in ends.items()}
    values = _evaluated(log_density, axes)
    for axis, nodes in enumerate(axes.values()):
        shape = [len(nodes) if k == axis else 1 for k in range(len(axes))]
        values = values + np.log(_trapezoid(nodes)).reshape(shape)
    log_mass = float(logsumexp(values))
    return Grid(axes=axes, masses=np.exp(values - log_mass), log_mass=log_mass)


def _ends(
    log_density: LogDensity, box: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Return a smaller box, at the faces of which the density is negligible.

    It begins with the axes through the mode, and grows at each face that is not negligible.
    """
    names, limits = list(box), np.array(list(box.values()))

    def at(point: Array) -> float:
        found = log_density({name: point[[k]] for k, name in enumerate(names)})
        return float(np.nan_to_num(found, nan=-np.inf)[0])

    coarse = {name: np.linspace(*of, _COARSE + 2)[1:-1] for name, of in box.items()}
    best = np.argmax(_evaluated(log_density, coarse))
    start = np.array([values[best] for values in _flat(coarse).values()])
    options = {"xatol": 1e-6, "fatol": 1e-6, "maxiter": 2_000}
    mode = minimize(
        lambda point: -at(point), start, method="Nelder-Mead", bounds=limits, options=options
    ).x
    reach = np.array([[_reach(at, mode, k, end) for end in limits[k]] for k in range(len(names))])
    while True:
        axes = {
            name: np.linspace(reach[k, 0], reach[k, 1], _COARSE) for k, name in enumerate(names)
        }
        values = _evaluated(log_density, axes)
        grown = _grown(reach, values)
        grown = np.clip(grown, limits[:, :1], limits[:, 1:])
        if np.array_equal(grown, reach):
            return {name: (float(reach[k, 0]), float(reach[k, 1])) for k, name in enumerate(names)}
        reach = grown


def _reach(at: Callable[[Array], float], mode: Array, axis: int, end: float) -> float:
    """Return where the density along an axis through the mode is negligible, or the end."""
    direction = np.eye(len(mode))[axis] * (end - mode[axis])
    lowest = at(mode) - _NEGLIGIBLE
    if at(mode + direction) > lowest:
        return end
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if at(mode + middle * direction) > lowest else (low, middle)
    return float(mode[axis] + high * (end - mode[axis]))


def _grown(reach: Array, values: Array) -> Array:
    """Return a box that is larger at faces with mass."""
    grown, lowest = reach.copy(), np.nanmax(values) - _NEGLIGIBLE
    for axis, (low, high) in enumerate(reach):
        for side, face in enumerate((0, -1)):
            if np.nanmax(np.take(values, face, axis=axis)) > lowest:
                grown[axis, side] += (-0.3, 0.3)[side] * (high - low)
    return grown


def _evaluated(log_density: LogDensity, axes: Mapping[str, Array]) -> Array:
    flat = _flat(axes)
    n = len(next(iter(flat.values())))
    parts = [
        log_density({name: values[i : i + _AT_ONCE] for name, values in flat.items()})
        for i in range(0, n, _AT_ONCE)
    ]
    return np.concatenate(parts).reshape([len(nodes) for nodes in axes.values()])


def _flat(axes: Mapping[str, Array]) -> dict[str, Array]:
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    return {name: values.ravel() for name, values in zip(axes, mesh, strict=True)}


def _trapezoid(nodes: Array) -> Array:
    """Return the weights of the trapezoidal rule at nodes."""
    gaps = np.diff(nodes)
    return np.r_[gaps, 0.0] / 2 + np.r_[0.0, gaps] / 2


# -- levels with normal rows -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class NormalLevels:
    """Normal rows, equally many in each group, with normal variables of levels.

    The rows of a group are ``normal(design * shift + tau * (seen @ z), s)``, with ``z`` standard
    normal.  The variable of a level is ``own * shift + tau * z`` where it is centred, else ``z``.
    ``shift`` is the mean of the levels, or the slope of their covariate ``own``.
    """

    y: Array  # (n_groups, n_rows)
    seen: Array  # (n_groups, n_levels)
    own: Array | None  # (n_levels,), or None
    shift: tuple[float, Prior]  # half the width of the box, and the prior
    tau: tuple[float, float]  # the end of the box, and the scale of a half-normal prior

    @cached_property
    def _turned(self) -> tuple[Array, Array, Array, Array]:
        """Means and design in the coordinates of the groups, squared roots, those of levels."""
        left, roots, right = np.linalg.svd(self.seen)
        padded = np.zeros(len(left))
        padded[: len(roots)] = roots
        own = np.ones(self.seen.shape[0]) if self.own is None else self.seen @ self.own
        return left.T @ self.y.mean(axis=1), left.T @ own, padded, right

    def log_density(self, points: Points) -> Array:
        """Return the log-density of the shared variables, up to a constant."""
        n_groups, n = self.y.shape
        within = np.square(self.y - self.y.mean(axis=1, keepdims=True)).sum()
        rest, variance = self._residuals(points)
        s = points["s"]
        groups = -(np.log(variance) + rest**2 / variance).sum(axis=1) / 2
        rows = -n_groups * (n - 1) * np.log(s) - within / (2 * s**2)
        prior = self.shift[1](points["shift"]) + halfnorm.logpdf(points["tau"], scale=self.tau[1])
        return groups + rows + prior + halfnorm.logpdf(s)

    def _residuals(self, points: Points) -> tuple[Array, Array]:
        means, design, roots, _ = self._turned
        shift, tau, s = (points[name][:, None] for name in ("shift", "tau", "s"))
        return means - shift * design, (tau * roots) ** 2 + s**2 / self.y.shape[1]

    def grid(self, size: int = 61) -> Grid:
        """Return the posterior of ``shift``, ``tau`` and ``s``."""
        wide = self.shift[0]
        box = {"shift": (-wide, wide), "tau": (1e-6, self.tau[0]), "s": (0.05, 5.0)}
        return grid(self.log_density, box, size)

    def level(self, posterior: Grid, j: int) -> Quantiles:
        """Return the quantile function of the variable of a level."""
        parts = [self._given(points, j) for points, _ in posterior.chunks()]
        mean, sd = (np.concatenate(found) for found in zip(*parts, strict=True))
        _, masses = posterior.points

        def cdf(u: float) -> float:
            return float(masses @ ndtr((u - mean) / sd))

        return quantiles(cdf, float((mean - 9 * sd).min()), float((mean + 9 * sd).max()))

    def _given(self, points: Points, j: int) -> tuple[Array, Array]:
        """Return mean and sd of a level's variable, given the shared ones."""
        rest, variance = self._residuals(points)
        _, _, roots, right = self._turned
        k = min(self.seen.shape)
        gain = points["tau"][:, None] * roots[:k] * right[:k, j]
        mean = (gain * rest[:, :k] / variance[:, :k]).sum(axis=1)
        sd = np.sqrt(1 - (gain**2 / variance[:, :k]).sum(axis=1))
        if self.own is None:
            return mean, sd
        return self.own[j] * points["shift"] + points["tau"] * mean, points["tau"] * sd

    def truth(self, shift: str, local: str, levels: Sequence[int]) -> dict[str, Quantiles]:
        """Return the quantile functions of all shared variables and of some levels."""
        posterior = self.grid()
        names = {shift: "shift", "tau": "tau", "s": "s"}
        found = {name: posterior.quantiles(axis) for name, axis in names.items()}
        return found | {f"{local}[{j}]": self.level(posterior, j) for j in levels}


# -- levels with one variable, on a grid of its own ------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Curves:
    """Levels with one variable each, which is integrated out by the trapezoidal rule.

    ``rows(value)`` returns the log-likelihoods (n_levels, n_nodes) of the levels' rows at the
    nodes, for a value of the shared variable `row_variable` on which these depend, if any.
    ``log_prior(nodes, points)`` returns the levels' log-prior (n_nodes, n_points).
    """

    nodes: Array
    rows: Callable[[float], Array]
    log_prior: Callable[[Array, Points], Array]
    shared: Mapping[str, tuple[tuple[float, float], Prior]]  # the box and the prior of each
    row_variable: str | None = None

    def log_density(self, points: Points) -> Array:
        """Return the log-density of the shared variables, up to a constant."""
        total = sum(prior(points[name]) for name, (_, prior) in self.shared.items())
        found = np.array(total, dtype=float)
        for chosen, value in self._by_value(points):
            likelihood, largest = self._likelihood(value)
            at = {name: values[chosen] for name, values in points.items()}
            with np.errstate(divide="ignore"):
                integrals = np.log(likelihood @ self._weights(at))
            found[chosen] += integrals.sum(axis=0) + largest.sum()
        return found

    def _by_value(self, points: Points) -> Iterator[tuple[Array, float]]:
        if self.row_variable is None:
            yield np.arange(len(next(iter(points.values())))), 0.0
            return
        values, of = np.unique(points[self.row_variable], return_inverse=True)
        for k, value in enumerate(values):
            yield np.flatnonzero(of == k), float(value)

    @cached_property
    def _likelihood(self) -> Callable[[float], tuple[Array, Array]]:
        """Likelihoods of levels over the largest of each, and the log of this, by a value."""

        @lru_cache(maxsize=1)  # the points of a grid are sorted by it
        def found(value: float) -> tuple[Array, Array]:
            rows = self.rows(value)
            largest = rows.max(axis=1)
            return np.exp(rows - largest[:, None]), largest

        return found

    def _weights(self, points: Points) -> Array:
        """Return the prior masses of the nodes (n_nodes, n_points)."""
        return np.exp(self.log_prior(self.nodes[:, None], points)) * _trapezoid(self.nodes)[:, None]

    def grid(self, size: int) -> Grid:
        """Return the posterior of the shared variables."""
        return grid(self.log_density, {name: box for name, (box, _) in self.shared.items()}, size)

    def level(self, posterior: Grid, j: int) -> Quantiles:
        """Return the quantile function of the variable of a level."""
        mass = np.zeros(len(self.nodes))
        for points, masses in posterior.chunks():
            for chosen, value in self._by_value(points):
                own = self._likelihood(value)[0][j]
                weights = self._weights({name: values[chosen] for name, values in points.items()})
                mass += own * (weights @ (masses[chosen] / (own @ weights)))
        below = (np.cumsum(mass) - mass / 2) / mass.sum()
        return lambda levels: np.interp(levels, below, self.nodes)

    def truth(self, size: int, local: str, levels: Sequence[int]) -> dict[str, Quantiles]:
        """Return the quantile functions of all shared variables and of some levels."""
        posterior = self.grid(size)
        found = {name: posterior.quantiles(name) for name in self.shared}
        return found | {f"{local}[{j}]": self.level(posterior, j) for j in levels}


def half_normal(scale: float) -> Prior:
    """Return the log-density of a half-normal prior."""
    return lambda values: halfnorm.logpdf(values, scale=scale)


def normal(mean: float, sd: float) -> Prior:
    """Return the log-density of a normal prior."""
    return lambda values: norm.logpdf(values, mean, sd)
