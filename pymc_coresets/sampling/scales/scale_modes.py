"""Modes of the marginal posterior of a few variables, such as the scales of a hierarchy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Self

import numpy as np

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.maximisation.one_start import near_mode
from pymc_coresets.sampling.mode_search import image_points, prior_draws
from pymc_coresets.sampling.normal import Mixture, Normal, heavy_tailed

type Array = np.ndarray

#: Points from which ascents may begin: how many there are around a known mode, how far away, in its
#: widths and in units of the logarithm; and draws of the prior, of all scales and of each.
_AROUND, _WIDTHS, _AWAY, _FROM_PRIOR = 16, 10.0, 3.0, 24
_ALONG = (1.5, 3.0, 5.0, 8.0, 12.0)  #: Distances of others along each coordinate.
#: Points on a line, by which those in the surroundings of a known mode are told, and the dip in
#: nats; and most of them that are tried from one mode to the next.
_ON_LINE, _DIP, _MOST_TRIED = 8, 0.5, 32
#: Standard deviations within which points are next to a known mode; nats below the highest one from
#: which other points must belong to another one; and nats from which another one is negligible.
_BESIDE, _SAME_HEIGHT, _NEGLIGIBLE = 2.0, 1e-2, 7.0
_MOST = 8  #: Largest number of modes: draws of more are worth little.


@dataclass(frozen=True, eq=False)
class MarginalModes:
    """Modes of a marginal density that may hold a noticeable share of its mass.

    Parameters
    ----------
    parts : sequence of Normal
        Around each of them, the first one the largest.
    heights : sequence of float
        The log-density at each of them, in nats.
    n_ascents : int
        Number of ascents that led to them, or nowhere else.
    is_complete : bool
        Whether the density is nowhere known to be high except around them.
    is_first : bool
        Whether the first one is where the search began.
    """

    parts: Sequence[Normal]
    heights: Sequence[float]
    n_ascents: int = 1
    is_complete: bool = True
    is_first: bool = True

    def __len__(self) -> int:
        return len(self.parts)

    @cached_property
    def mixture(self) -> Mixture:
        """Mixture around the modes, by their masses."""
        return Mixture.of(self.parts, self.heights)

    def split(self, log_density: Callable[[Array], Array]) -> Self:
        """Match the widths on either side of each mode, as far as the density belongs to it."""

        def of(number: int, points: Array) -> Array:
            values = log_density(points)
            return np.where(self.nearest(points) == number, values, -np.inf)

        parts = [part.split(partial(of, number)) for number, part in enumerate(self.parts)]
        return replace(self, parts=parts)

    def log_density(self, points: Array) -> Array:
        """Approximate the marginal density at points (n_points, p), in nats."""
        every = [
            height + part.log_density(points) - part.log_density(part.location[None])
            for part, height in zip(self.parts, self.heights, strict=True)
        ]
        found: Array = np.logaddexp.reduce(every)
        return found

    def nearest(self, points: Array) -> Array:
        """Return the number of the mode to which each point (n_points, p) belongs."""
        logs = np.log(self.mixture.masses)[:, None]
        found: Array = np.argmax(
            logs + np.stack([part.log_density(points) for part in self.parts]), axis=0
        )
        return found


def starts_around(
    space: Unconstrained,
    known: Normal,
    at: Array,
    is_scale: Array,
    *,
    rng: np.random.Generator,
) -> Array:
    """Return scales at which other modes may be: (n_starts, n_scales).

    Images of a known mode; points around it by its widths, and along each coordinate; and draws of
    the prior: of all scales, and of one variable while the others stay, since most draws of the
    scale of errors are impossible.

    Parameters
    ----------
    space : Unconstrained
    known : Normal
        Of the scales, around the known mode.
    at : ndarray of shape (n_dims,)
        All variables there.
    is_scale : ndarray of bool, of shape (n_dims,)
    rng : numpy.random.Generator
    """
    middle = known.location
    images = image_points(space, at)[1][:, is_scale]
    wide, away = rng.uniform(-1, 1, (2, _AROUND, len(middle)))
    around = [known.at(_WIDTHS * wide), middle + _AWAY * away]
    steps = np.concatenate([sign * way * np.eye(len(middle)) for way in _ALONG for sign in (-1, 1)])
    columns = [np.ravel(own) for own in space.columns.values()]
    moved = [np.isin(np.flatnonzero(is_scale), own[is_scale[own]]) for own in columns]
    moved = [own for own in moved if own.any()]
    drawn = prior_draws(space, _FROM_PRIOR * (1 + len(moved)), rng=rng)[:, is_scale]
    parts = np.array_split(drawn, 1 + len(moved))
    of_each = [np.where(own, part, middle) for own, part in zip(moved, parts[1:], strict=True)]
    every = np.concatenate([*around, middle + steps, images, parts[0], *of_each])
    found: Array = np.unique(every[np.isfinite(every).all(axis=1)], axis=0)
    return found


def marginal_modes(
    log_density: Callable[[Array], Array],
    known: Normal,
    starts_of: Callable[[Normal], Array],
    *,
    most_failures: int,
    error: float = 0.0,
) -> MarginalModes:
    """Search for the modes of a marginal density, of which one is known.

    Ascents begin where the density exceeds that around the known modes most, and dips on the line
    to the nearest of them.

    Parameters
    ----------
    log_density : callable
        Takes points (n_points, p), and returns (n_points,), in nats.
    known : Normal
        Around the known mode.
    starts_of : callable
        Returns points (n_starts, p) at which other modes may be, given one.
    most_failures : int
        After how many ascents that lead to no other mode the search ends.
    error : float, default 0
        Of differences of the density between modes, in nats: so much smaller ones are kept.

    Examples
    --------
    >>> def of_two(x):
    ...     return np.logaddexp(-np.square(x[:, 0]) / 2, 1 - 50 * np.square(x[:, 0] - 9))
    >>> first = heavy_tailed(np.zeros(1), np.eye(1))
    >>> found = marginal_modes(of_two, first, lambda _: np.array([[1.0], [8.9]]), most_failures=1)
    >>> [part.location.round(3) for part in found.parts], found.mixture.masses.round(2)
    ([array([0.]), array([9.])], array([0.79, 0.21]))
    """
    with np.errstate(all="ignore"):  # some points are far out
        search = _Search(log_density, starts_of, most_failures, _NEGLIGIBLE + error)
        search.add(known, float(log_density(known.location[None])[0]))
        for start in search.next_starts():
            search.ascend(start)
        return search.found()


@dataclass(eq=False)
class _Search:
    """What is known of a marginal density, and the points from which no ascent has begun."""

    log_density: Callable[[Array], Array]
    starts_of: Callable[[Normal], Array]
    most_failures: int
    negligible: float
    parts: list[Normal] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)
    starts: Array = field(default_factory=lambda: np.empty((0, 0)))
    values: Array = field(default_factory=lambda: np.empty(0))
    n_ascents: int = 1
    n_failures: int = 0
    n_tried: int = 0

    def add(self, part: Normal, height: float) -> None:
        """Add a mode, and points at which there may be others."""
        self.parts.append(part)
        self.heights.append(height)
        starts, self.n_tried = self.starts_of(part), 0
        values = self.log_density(starts)
        self.starts = np.concatenate([self.starts.reshape(-1, starts.shape[1]), starts])
        self.values = np.append(self.values, values)

    @property
    def goes_on(self) -> bool:
        """Whether a further ascent may begin."""
        is_over = self.n_failures >= self.most_failures or self.n_tried >= _MOST_TRIED
        return not is_over and len(self.parts) <= _MOST

    @property
    def is_far(self) -> Array:
        """Which points are next to no known mode."""
        away = [np.linalg.norm(part.whiten(self.starts), axis=1) for part in self.parts]
        found: Array = (np.min(away, axis=0) > _BESIDE) & np.isfinite(self.values)
        return found

    def next_starts(self) -> Iterator[Array]:
        """Yield points that are not in the surroundings of a known mode, while more are needed."""
        while self.goes_on and (left := self.is_far).any():
            known = MarginalModes(self.parts, self.heights).log_density(self.starts)
            chosen = int(np.argmax(np.where(left, self.values - known, -np.inf)))
            start: Array = self.starts[chosen]
            value = float(self.values[chosen])
            self.starts = np.delete(self.starts, chosen, axis=0)
            self.values = np.delete(self.values, chosen)
            self.n_tried += 1
            if value > max(self.heights) - _SAME_HEIGHT or self._is_apart(start, value):
                yield start

    def _is_apart(self, start: Array, value: float) -> bool:
        """Whether the density dips on the line to the nearest mode."""
        away = [float(np.linalg.norm(part.whiten(start))) for part in self.parts]
        nearest = int(np.argmin(away))
        shares = np.linspace(0, 1, _ON_LINE + 2)[1:-1, None]
        line = self.log_density(start + shares * (self.parts[nearest].location - start))
        return bool((line < min(value, self.heights[nearest]) - _DIP).any())

    def ascend(self, start: Array) -> None:
        """Ascend, and keep the mode at the end if it is another one that is noticeable."""
        self.n_ascents += 1
        try:
            found = near_mode(self.log_density, heavy_tailed(start, 10 * np.eye(len(start))))
        except SamplingError:  # the ascent ends where the marginal has no curvature
            self.n_failures += 1
            return
        if self._is_another(found):
            self.add(found, self._height(found))
        else:
            self.n_failures += 1

    def _is_another(self, part: Normal) -> bool:
        """Whether a mode is none of the known ones, and not negligible."""
        if any(part.is_near(known) for known in self.parts):
            return False
        return part.log_mass(self._height(part)) > max(self._log_masses()) - self.negligible

    def _height(self, part: Normal) -> float:
        return float(self.log_density(part.location[None])[0])

    def _log_masses(self) -> list[float]:
        return [p.log_mass(h) for p, h in zip(self.parts, self.heights, strict=True)]

    def found(self) -> MarginalModes:
        """Return the modes that are not negligible, the largest first."""
        masses = self._log_masses()
        order = sorted(range(len(masses)), key=lambda i: -masses[i])
        kept = [i for i in order if masses[i] > masses[order[0]] - self.negligible]
        elsewhere = self.is_far & (self.values > max(self.heights) - _SAME_HEIGHT)
        modes = MarginalModes(
            [self.parts[i] for i in kept],
            [self.heights[i] for i in kept],
            self.n_ascents,
            is_complete=len(self.parts) <= _MOST and not elsewhere.any(),
            is_first=kept[0] == 0,
        )
        return modes.split(self.log_density) if len(self.parts) > 1 else modes
