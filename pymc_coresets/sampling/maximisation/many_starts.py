"""Ascents from many starts at once: a density is evaluated for all of them in one batch."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pymc_coresets.deadline import stop_if_late
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.normal import Normal

type OfPoints = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
type OfValues = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: Steps whose changes of the gradient are kept, as in SciPy.
_KEPT = 10
#: Part of the gain foreseen by the slope that a step must reach.
_GAIN = 1e-4
#: Largest gain, relative to the value, and gradient at which an ascent has ended, as in SciPy.
_FLAT, _LEVEL = 2.2e-9, 1e-5
#: Factor of the steps where the slope does not decrease.
_LONGER = 4.0
#: Distance and difference of values at which two ascents have joined, in whitened coordinates.
_JOINED = 0.1


@dataclass(frozen=True, eq=False)
class Ends:
    """The ends of ascents.

    Parameters
    ----------
    values : ndarray of shape (n_starts,)
        Of the function; infinite where it is not finite at the start.
    points : ndarray of shape (n_starts, n_dims)
    finished : ndarray of bool, of shape (n_starts,)
        Whether an ascent came to its end, or was to go no further.
    last : ndarray of int, of shape (n_starts,)
        The number of the ascent whose end it has: its own, unless it met another one.
    """

    values: np.ndarray
    points: np.ndarray
    finished: np.ndarray
    last: np.ndarray

    @classmethod
    def of(
        cls, values: np.ndarray, points: np.ndarray, going: np.ndarray, joined: np.ndarray
    ) -> "Ends":
        """Return the ends, of ascents that have joined others those of the others."""
        last = joined
        while not np.array_equal(last, last[last]):
            last = last[last]
        return cls(values[last], points[last], ~going[last], last)


def none_known(values: np.ndarray, points: np.ndarray) -> np.ndarray:  # noqa: ARG001
    """Return that no ascent should go no further."""
    return np.zeros(len(values), dtype=bool)


def minimise_together(
    negative: OfPoints,
    starts: np.ndarray,
    *,
    most_steps: int,
    are_known: OfValues = none_known,
    is_over: Callable[[], bool] = lambda: False,
    joins: bool = True,
) -> Ends:
    """Minimise a function from many starts by L-BFGS, each with its own steps.

    Parameters
    ----------
    negative : callable
        Returns values (n_points,) and gradients at points (n_points, n_dims), given the numbers of
        their starts besides, since each may have a function of its own.
    starts : ndarray of shape (n_starts, n_dims)
        In coordinates in which the curvature is about one.
    most_steps : int
    are_known : callable
        Which ascents should go no further, given their values (n,) and points (n, n_dims).
    is_over : callable
        Whether all should end where they are.
    joins : bool
        Whether an ascent ends that meets another one, whose end it has.

    Returns
    -------
    Ends

    References
    ----------
    Nocedal and Wright (2006). Numerical optimization, 2nd edition, algorithm 7.4.

    Examples
    --------
    >>> def negative(x, which):
    ...     return np.square(np.square(x).sum(axis=1) - 1), 4 * x * (np.square(x) - 1)
    >>> minimise_together(negative, np.array([[0.5], [-3.0]]), most_steps=50).points.round(3)
    array([[ 1.],
           [-1.]])
    """
    ascents = _Ascents.at(negative, starts)
    for _ in range(3 * most_steps):
        if not ascents.going.any() or is_over():
            break
        moved = ascents.step(negative)
        ascents.going[moved[are_known(ascents.values[moved], ascents.points[moved])]] = False
        ascents.going &= ascents.n_steps < most_steps
        if joins:
            ascents.join()
    return Ends.of(ascents.values, ascents.points, ascents.going, ascents.joined)


def negative_at(density: Density, like: Normal, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return negative log-densities, and gradients, at points in whitened coordinates of a normal.

    Infinity, and no slope, where they are not finite.
    """
    values, slopes = negative_of_points(density, like.at(z))
    return values, like.factor.whiten_gradients(slopes)


def negative_of_points(density: Density, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return negative log-densities and gradients at points; infinity where they are not finite."""
    values, gradients = density.slopes(points)
    return _finite(-values, -gradients)


@dataclass(eq=False)
class _Ascents:
    """The state of ascents, of which some are still going."""

    points: np.ndarray
    values: np.ndarray
    gradients: np.ndarray
    going: np.ndarray
    n_steps: np.ndarray
    joined: np.ndarray  # the number of the ascent whose end it has
    lengths: np.ndarray  # of the next step, as a part of the direction
    directions: np.ndarray = field(default_factory=lambda: np.zeros(0))
    changes: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    scales: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def at(cls, negative: OfPoints, starts: np.ndarray) -> "_Ascents":
        """Evaluate the function at the starts."""
        values, gradients = _finite(*negative(starts, np.arange(len(starts))))
        n = len(starts)
        sizes = np.linalg.norm(gradients, axis=1)
        found = cls(
            points=starts.copy(),
            values=values,
            gradients=gradients,
            going=np.isfinite(values) & (np.abs(gradients).max(axis=1, initial=0.0) > _LEVEL),
            n_steps=np.zeros(n, dtype=np.int64),
            joined=np.arange(n),
            lengths=np.ones(n),
            scales=1 / np.maximum(sizes, 1.0),
        )
        found.directions = -found.scales[:, None] * gradients
        return found

    def step(self, negative: OfPoints) -> np.ndarray:
        """Try the next step of each ascent; return the numbers of those that moved."""
        which = np.flatnonzero(self.going)
        stop_if_late(f"{len(which)} of {len(self.going)} searches go on")
        lengths = self.lengths[which]
        moves = lengths[:, None] * self.directions[which]
        foreseen = (self.gradients[which] * moves).sum(axis=1)
        values, gradients = _finite(*negative(self.points[which] + moves, which))
        gained = values - self.values[which]
        better = gained <= _GAIN * foreseen
        # The minimum of a parabola through both values, where that is a shorter step.
        with np.errstate(all="ignore"):
            shorter = np.nan_to_num(-foreseen / (2 * (gained - foreseen)), nan=0.1)
        self.lengths[which] = np.where(better, 1.0, lengths * np.clip(shorter, 0.1, 0.5))
        self.going[which[~better & (lengths < 1e-10)]] = False
        moved, some = which[better], gradients[better]
        self._remember(moved, moves[better], some - self.gradients[moved])
        self.points[moved] += moves[better]
        self.values[moved], self.gradients[moved] = values[better], some
        self.n_steps[moved] += 1
        self.directions[moved] = self._directions(moved)
        flat = -gained[better] <= _FLAT * np.maximum(np.abs(values[better]), 1.0)
        self.going[moved] = ~flat & (np.abs(some).max(axis=1, initial=0.0) > _LEVEL)
        found: np.ndarray = moved
        return found

    def _remember(self, which: np.ndarray, moves: np.ndarray, changes: np.ndarray) -> None:
        """Keep the moves of some ascents and what they changed, where the function is convex."""
        steps, slopes = np.zeros_like(self.points), np.zeros_like(self.points)
        inverse = np.zeros(len(self.points))
        products, squares = (moves * changes).sum(axis=1), np.square(changes).sum(axis=1)
        convex = products > 1e-10 * squares
        kept = which[convex]
        steps[kept], slopes[kept] = moves[convex], changes[convex]
        inverse[kept] = 1 / products[convex]
        self.scales[kept] = products[convex] / squares[convex]
        self.scales[which[~convex]] *= _LONGER  # the slope does not say how far the minimum is
        self.changes = [*self.changes[-_KEPT + 1 :], (steps, slopes, inverse)]

    def _directions(self, which: np.ndarray) -> np.ndarray:
        """Return L-BFGS's directions; those of steepest descent where they would not lead down.

        An ascent that did not move in some step has nothing to remember of it.
        """
        left, shares = self.gradients[which].copy(), []
        for steps, slopes, inverse in reversed(self.changes):
            share = inverse[which] * (steps[which] * left).sum(axis=1)
            left -= share[:, None] * slopes[which]
            shares.append(share)
        left *= self.scales[which, None]
        for (steps, slopes, inverse), share in zip(self.changes, reversed(shares), strict=True):
            back = inverse[which] * (slopes[which] * left).sum(axis=1)
            left += (share - back)[:, None] * steps[which]
        gradients = self.gradients[which]
        down = (left * gradients).sum(axis=1) > 0
        steepest = gradients / np.maximum(np.linalg.norm(gradients, axis=1), 1.0)[:, None]
        found: np.ndarray = np.where(down[:, None], -left, -steepest)
        return found

    def join(self) -> None:
        """End ascents that have met others."""

        def away(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
            moves: np.ndarray = self.points[ones] - self.points[others]
            return moves

        join_those_near(self.values, self.going, self.joined, away)


def join_those_near(
    values: np.ndarray,
    going: np.ndarray,
    joined: np.ndarray,
    away: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> None:
    """End ascents that have met others, of which the lower one goes on.

    Parameters
    ----------
    values : ndarray of shape (n_ascents,)
    going, joined : ndarray of bool, and of int, of shape (n_ascents,)
        Which ascents go on, and the number of the ascent whose end each has: both are changed.
    away : callable
        Returns how far some ascents are from others, (n_pairs, n_dims), in whitened coordinates.
    """
    which = np.flatnonzero(going)
    close = np.abs(values[which, None] - values) < _JOINED
    close[np.arange(len(which)), which] = False
    ones, others = which[close.nonzero()[0]], close.nonzero()[1]
    near = np.abs(away(ones, others)).max(axis=1) < _JOINED
    for i, other in zip(ones[near], others[near], strict=True):
        if going[i] and joined[other] == other:
            joined[i], going[i] = other, False


def _finite(values: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return infinity, and no slope, where a value or a gradient is not finite."""
    finite = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
    return np.where(finite, values, np.inf), np.where(finite[:, None], gradients, 0.0)
