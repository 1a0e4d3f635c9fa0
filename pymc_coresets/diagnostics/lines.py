"""Straight lines through draws: on them two densities can be compared where no draw is.

On the line through a draw of a posterior along one coordinate, the density is that of the
coordinate given all else, up to a constant.  Quadrature over the line needs no draws, and reaches
as far as one likes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import PchipInterpolator

from pymc_coresets.diagnostics.importance import Floats, log_sum
from pymc_coresets.numerics import rows_at_once

#: Log-densities or log-ratios of points (n_points, n_dims), (n_points,), in nats.
type OfPoints = Callable[[Floats], Floats]

_DEPTHS = (20.0, 7.0, 2.5)  # nats below the top: points are added within these, one by one


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines through draws along which one coordinate moves, and others as they go with it.

    Parameters
    ----------
    origins, directions : ndarray of shape (n_lines, n_dims)
    columns : ndarray of int, of shape (n_lines,)
        The coordinate, which moves by one along each direction.
    medians, scales : ndarray of shape (n_lines,)
        Of the coordinate, relative to the origin; and how far it extends: half the distance
        between its quantiles of 16 and 84 %.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(1_000, 2)) * [1.0, 3.0]
    >>> lines = Lines.through(draws, np.arange(2), np.array([0, 1]))
    >>> lines.points(np.ones((2, 1)))[:, 0] - draws[:2]
    array([[1., 0.],
           [0., 1.]])
    """

    origins: Floats
    directions: Floats
    columns: np.ndarray
    medians: Floats
    scales: Floats

    @classmethod
    def through(
        cls,
        draws: Floats,
        which: np.ndarray,
        columns: np.ndarray,
        fixed: np.ndarray | slice = slice(0, 0),
        modes: np.ndarray | int = 0,
    ) -> "Lines":
        """Make lines through some of the draws (n_draws, n_dims), along one coordinate each.

        Those that are `fixed`, (n_dims,), move with no other: discrete ones. If the draws are next
        to different `modes`, (n_draws,), scales and correlations are those around a mode: the
        distance between two narrow modes would step over both.
        """
        medians = np.empty_like(draws)
        modes = np.broadcast_to(modes, len(draws))
        for mode in np.unique(modes):
            medians[modes == mode] = np.median(draws[modes == mode], axis=0)
        around = draws - medians
        low, high = np.quantile(around, (0.16, 0.84), axis=0)
        scales = np.where(high > low, (high - low) / 2, around.std(axis=0))
        with np.errstate(invalid="ignore", divide="ignore"):
            # Beyond three scales from the median, draws count no more for correlations.
            z = np.nan_to_num(around / scales).clip(-3.0, 3.0)
            z = np.nan_to_num((z - z.mean(axis=0)) / z.std(axis=0))
        used, numbers = np.unique(columns, return_inverse=True)
        correlation = z[:, used].T @ z / len(draws)  # (n_used, n_dims)
        # Within three standard errors.
        correlation[np.square(correlation) < 3.0**2 / len(draws)] = 0.0
        correlation[:, fixed] = 0.0
        slopes = correlation * scales / scales[used, None]
        slopes[np.arange(len(used)), used] = 1.0
        origins = draws[which]
        away = -around[which, columns]
        return cls(origins, slopes[numbers], columns, away, scales[columns])

    def __len__(self) -> int:
        return len(self.columns)

    def take(self, which: np.ndarray) -> "Lines":
        """Return some of the lines."""
        own = (self.origins, self.directions, self.columns, self.medians, self.scales)
        return Lines(*(values[which] for values in own))

    def points(self, t: Floats) -> Floats:
        """Return the points at positions (n_lines, n_points): (n_lines, n_points, n_dims)."""
        points: Floats = self.origins[:, None] + t[:, :, None] * self.directions[:, None]
        return points

    def values(self, function: OfPoints, t: Floats) -> Floats:
        """Return a log-density at positions on the lines; minus infinity if it is not finite."""
        n_dims, parts = self.origins.shape[1], []
        at_once = rows_at_once(t.shape[1] * n_dims)
        for first in range(0, len(t), at_once):
            some = np.arange(first, min(first + at_once, len(t)))
            parts.append(function(self.take(some).points(t[some]).reshape(-1, n_dims)))
        found = np.concatenate(parts).reshape(t.shape)
        return np.where(np.isfinite(found), found, -np.inf)


@dataclass(frozen=True, eq=False)
class Profile:
    """A log-density along lines, taken to be linear between its points.

    Parameters
    ----------
    t, logs : ndarray of shape (n_lines, n_points)
        Increasing positions, 0 among them, which is that of the draw; and the log-density there.

    Examples
    --------
    >>> t = np.linspace(-8.0, 8.0, 101)[None]
    >>> Profile(t, -((t - 1.0) ** 2) / 2).ends.round(1)  # of a normal about 1
    array([[ 1. , -3. ,  5.1]])
    """

    t: Floats
    logs: Floats

    @classmethod
    def of(cls, lines: Lines, log_density: OfPoints) -> "Profile":
        """Evaluate a density from the draws as far out as it holds mass: 65 to 77 points."""
        outwards = np.array([0.5, 1.0, 2.0, 3.0, 4.0, 6.0])  # scales from the median
        nearby = np.array([-2.0, -0.5, 0.0, 0.5, 2.0])  # scales from the draw
        scales = lines.scales[:, None]
        t = lines.medians[:, None] + scales * np.concatenate([-outwards, outwards])
        t = np.sort(np.concatenate([t, scales * nearby], axis=1), axis=1)
        found = cls(t, lines.values(log_density, t))
        # Farther, where the density has not fallen far by then.
        for far in (9.0, 14.0, 24.0, 50.0, 120.0, 300.0):
            ends = found._below_top[:, [0, -1]] < _DEPTHS[0]
            if not ends.any():
                break
            t = lines.medians[:, None] + scales * [-far, far]
            # Beyond a deep fall there may be nothing but rounding errors.
            logs = np.where(ends, lines.values(log_density, t), -np.inf)
            found = found.with_more(t, logs)
        for depth in _DEPTHS:
            t = found.within(depth)
            found = found.with_more(t, lines.values(log_density, t))
        return found

    @cached_property
    def masses(self) -> Floats:
        """Mass between neighbouring points, (n_lines, n_points - 1), relative to the height."""
        return log_linear_masses(self.t, -self._below_top)

    @cached_property
    def top(self) -> np.ndarray:
        """Number of the highest point of each line."""
        return np.argmax(self.logs, axis=1)

    @property
    def _below_top(self) -> Floats:
        with np.errstate(invalid="ignore"):
            below: Floats = self.logs.max(axis=1, keepdims=True) - self.logs
        return np.nan_to_num(below, nan=np.inf)

    def within(self, depth: float) -> Floats:
        """Return 16 further positions where the density is within so many nats of its top."""
        inside = self._below_top < depth
        last = self.t.shape[1] - 1
        first = np.maximum(np.argmax(inside, axis=1) - 1, 0)
        end = np.minimum(last - np.argmax(inside[:, ::-1], axis=1) + 1, last)
        rows = np.arange(len(self.t))
        low, high = self.t[rows, first], self.t[rows, end]
        shares = (np.arange(16) + 0.5) / 16
        between: Floats = low[:, None] + (high - low)[:, None] * shares
        return between

    def with_more(self, t: Floats, logs: Floats) -> "Profile":
        """Add further points."""
        t, logs = np.concatenate([self.t, t], axis=1), np.concatenate([self.logs, logs], axis=1)
        order = np.argsort(t, axis=1, kind="stable")
        return Profile(*(np.take_along_axis(values, order, axis=1) for values in (t, logs)))

    @property
    def ends(self) -> Floats:
        """Positions of the top and of both edges, (n_lines, 3)."""
        at = np.column_stack([self.top, self.edges])
        return np.take_along_axis(self.t, at, axis=1)

    @property
    def edges(self) -> np.ndarray:
        """Numbers of the points to the left and right of the top with little mass beyond, (n, 2).

        The outermost points where the density does not fall as far.
        """
        # A density that is 8 nats below its top has a ten-thousandth of its mass beyond.
        far = self._below_top >= 8.0
        numbers = np.arange(self.t.shape[1])
        left = np.where(far & (numbers < self.top[:, None]), numbers, 0).max(axis=1)
        right = np.where(far & (numbers > self.top[:, None]), numbers, numbers[-1]).min(axis=1)
        return np.stack([left, right], axis=1)


def log_linear_masses(t: Floats, logs: Floats) -> Floats:
    """Return the integrals between neighbours of a function whose logarithm is linear there.

    Parameters
    ----------
    t, logs : ndarray of shape (..., n)
        Ascending positions, and the logarithm there; a cell beside minus infinity has no
        mass.

    Returns
    -------
    ndarray of shape (..., n - 1)

    Examples
    --------
    >>> log_linear_masses(np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.0, -2.0])).round(3)
    array([1.   , 0.865])
    """
    higher, change = neighbours(logs)
    same = change < 1e-8  # nats
    means = np.where(same, 1.0, -np.expm1(-change) / np.where(same, 1.0, change))
    masses: Floats = np.diff(t) * np.exp(higher) * means
    return masses


def neighbours(logs: Floats) -> tuple[Floats, Floats]:
    """Return the higher one of each two neighbours (..., n), and by how much they differ.

    Two that are minus infinity do not; beside a finite number it is infinite.

    Examples
    --------
    >>> neighbours(np.array([0.0, -3.0, -np.inf]))
    (array([ 0., -3.]), array([ 3., inf]))
    """
    with np.errstate(invalid="ignore"):
        change = np.abs(np.diff(logs))
    higher: Floats = np.maximum(logs[..., :-1], logs[..., 1:])
    return higher, np.nan_to_num(change, nan=0.0, posinf=np.inf)


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Comparison of two densities on lines through the draws; by default, nothing was examined.

    Parameters
    ----------
    outside : float
        Symmetrised KL divergence, in nats, from the ends of the lines, where the full posterior has
        mass that the coreset's posterior and draws lack; 0 if there are no lines.
    most : float
        The largest part of it along a single line.
    where : str
        The coordinate of that line; empty if there is none.
    n_points : int
        Number of points at which both densities were compared.
    largest : float
        Largest absolute log-ratio there, relative to the middle of each line, in nats.
    misfit : float
        How far the draws are from those of the density, in standard errors: see `Deviation`.
    misfit_limit : float
        What it may be.
    misfit_where : str
        The coordinate where; empty for all together.
    unseen : float
        Share of the mass of the density, beyond dips of it, that the draws lack; 0 if it is not
        noticeable.
    unseen_where : str
        The coordinate along which they lack most of it.
    constant : str
        A coordinate that is the same in all draws; empty if there is none.
    is_done : bool
        Whether there were lines.

    Examples
    --------
    >>> found = Probes(outside=0.3, most=0.26, where="alpha", n_points=60, largest=9.0)
    >>> found.in_short
    '0.3 nats, 0.26 of them along alpha, at 60 points'
    """

    outside: float = 0.0
    most: float = 0.0
    where: str = ""
    n_points: int = 0
    largest: float = 0.0
    misfit: float = 0.0
    misfit_limit: float = math.inf
    misfit_where: str = ""
    unseen: float = 0.0
    unseen_where: str = ""
    constant: str = ""
    is_done: bool = True

    @property
    def in_short(self) -> str:
        """Summary in a few words."""
        if not self.n_points:
            return "not looked at"
        found = "nothing missed"
        if self.where:
            found = f"{self.outside:.2g} nats, {self.most:.2g} of them along {self.where}"
        if math.isinf(self.most):
            found = f"without end along {self.where}"
        return f"{found}, at {self.n_points} points"


#: There were no lines beyond the draws.
NO_PROBES = Probes(is_done=False)


def missed(
    lines: Lines,
    profile: Profile,
    log_density: OfPoints,
    log_ratio: OfPoints,
    ratios: Floats,
    *,
    tolerance: float,
) -> tuple[Floats, int, float]:
    """Return what a density lacks along lines, in nats; from how many points; the largest ratio.

    Where the other density may have a noticeable mass at the edges of a line, both are integrated
    along it.

    Parameters
    ----------
    lines : Lines
    profile : Profile
        Of the density.
    log_density : callable
    log_ratio : callable
        Of the other density over this one, up to a constant of each call.
    ratios : ndarray of shape (n_lines, 3)
        Values of `log_ratio` at `Profile.ends`.
    tolerance : float
        In nats.

    Returns
    -------
    ndarray of shape (n_lines,)
        Contribution of regions with hardly any draws to the symmetrised KL divergence of the two
        densities on the line; 0 if no mass is missed.
    int
    float
    """
    t, rows = profile.ends, np.arange(len(lines))
    with np.errstate(invalid="ignore"):
        gains = np.nan_to_num(
            ratios[:, 1:] - ratios[:, :1], nan=np.inf, posinf=np.inf, neginf=-np.inf
        )
    falls = profile.logs[rows[:, None], profile.edges] - profile.logs[rows, profile.top][:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        # Two scale lengths of the tail count as mass beyond an edge.
        masses = np.nan_to_num(np.exp(falls + gains) * np.maximum(gains, 0) * 2.0, nan=np.inf)
    worst = masses.max(axis=1)
    # The twelve worst lines, of those that may hold more than a tenth of the tolerance.
    closely = np.argsort(-worst, kind="stable")[:12]
    closely = closely[worst[closely] > 0.1 * tolerance]
    found, n_points = np.zeros(len(lines)), t.size
    largest = float(np.abs(gains[np.isfinite(gains)]).max(initial=0.0))
    if closely.size:
        some = lines.take(closely)
        positions = _outwards(t[closely])
        logs = some.values(log_density, positions)
        values = np.array(
            [
                _divergence(*each)
                for each in zip(
                    positions, logs, some.values(log_ratio, positions), t[closely], strict=True
                )
            ]
        )
        found[closely], n_points = values, n_points + positions.size
    return found, n_points, largest


def _outwards(t: Floats) -> Floats:
    """Return positions on either side of the middle, within the edges and far beyond."""
    shares = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # of the way to an edge
    middle, low, high = t.T[:, :, None]
    positions: Floats = np.concatenate(
        [(middle + shares * (low - middle))[:, ::-1], middle, middle + shares * (high - middle)],
        axis=1,
    )
    return positions


def _divergence(t: Floats, logs: Floats, log_ratios: Floats, ends: Floats) -> float:
    """Return the part of the symmetrised KL divergence of densities that no draws see.

    As far as either has mass from the middle outwards: far beyond, there may be nothing but
    rounding errors.
    """
    with np.errstate(invalid="ignore"):
        both = [np.where(np.isfinite(own), own, -np.inf) for own in (logs, logs + log_ratios)]
        higher = np.fmax(*(own - own.max() for own in both))
    fallen, middle = ~(higher > -_DEPTHS[0]), len(t) // 2
    first = np.flatnonzero(fallen[:middle])[-1:]
    last = middle + np.flatnonzero(fallen[middle:])[:1]
    some = slice(int(first[0]) if first.size else 0, int(last[0]) + 1 if last.size else len(t))
    t, logs, log_ratios = t[some], logs[some], log_ratios[some]
    finite = np.isfinite(logs) & np.isfinite(log_ratios)
    if finite.sum() < 2:
        return math.inf
    t, first_of = np.unique(t[finite], return_index=True)
    logs, log_ratios = logs[finite][first_of], log_ratios[finite][first_of]
    if len(t) < 2:  # the top is at the end of the line
        return math.inf
    dense = np.linspace(t[0], t[-1], 400)
    q, ratios = (PchipInterpolator(t, values)(dense) for values in (logs, log_ratios))
    p = q + ratios
    if max(p[0], p[-1]) > p.max() - 3.0:  # nats: it does not end on this line
        return math.inf
    log_p, log_q = (own - log_sum(own) for own in (p, q))
    parts = (np.exp(log_p) - np.exp(log_q)) * (log_p - log_q)
    # Draws come as far as 0.8 of the way to an edge, one in a thousand.
    low, high = ends[0] + 0.8 * (ends[1:] - ends[0])
    return float(parts[(dense < low) | (dense > high)].sum())
