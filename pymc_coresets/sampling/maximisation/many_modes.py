"""Modes near many points at once: curvatures by differences of gradients, and steps by them."""

import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from scipy.linalg import LinAlgError

from pymc_coresets.deadline import doing, forecast, stop_if_late
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, factor_of
from pymc_coresets.sampling.maximisation.central_differences import Places, blocks_of_differences
from pymc_coresets.sampling.maximisation.many_starts import (
    Ends,
    OfValues,
    join_those_near,
    negative_of_points,
    none_known,
)
from pymc_coresets.sampling.maximisation.one_start import FLAT, REMEDY
from pymc_coresets.sampling.normal import Normal

#: Standard deviations that a mode may move in polishing before its curvature is recomputed, and
#: largest predicted gain of a Newton step, in nats, at convergence.
_MOVED = 1e-2
#: Gain foreseen of a Newton step, in nats, after which none follows.
_ENOUGH = 1e-10
#: Lengths of the steps that are tried at once, as multiples of the last one that gained.
_TRIED = np.array([16.0, 4.0, 1.0, 1 / 4, 1 / 16, 1 / 64])
#: Scale below which a coordinate is in units of it, such as a coefficient of a large predictor.
_TINY = 1e-6
#: Length at which a search that gains nothing has ended.
_SHORTEST = 1e-10

_NOT_CONVERGED = f"The search for the posterior's mode did not converge: {REMEDY}"
_NOT_PROPER = (
    "The posterior has no proper mode (its curvature is not negative definite at the end of "
    f"the search), as for hierarchical models: {REMEDY}"
)


def scales_of(diagonal: np.ndarray) -> np.ndarray:
    """Return a standard deviation for each curvature; 1 if that is not positive."""
    return np.where(diagonal > 0, 1 / np.sqrt(np.maximum(diagonal, 1e-12)), 1.0)


def negative_hessians(density: Density, points: np.ndarray, *, kinks: bool) -> np.ndarray:
    """Return the negative Hessians of a density at some points, (n_points, n_dims, n_dims).

    Exact if they are known.  Otherwise by differences of the gradient, with steps of a small part
    of each scale: O(D) gradients for each point, those of all points in the same readings.

    Parameters
    ----------
    density : Density
    points : ndarray of shape (n_points, n_dims)
    kinks : bool
        Whether to use steps of a whole scale for coordinates in which the gradient jumps.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 2.0, 0.5)
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> density = Density.of_model(Unconstrained(model))
    >>> negative_hessians(density, np.array([[0.0], [9.0]]), kinks=True).round(3)
    array([[[4.]],
    <BLANKLINE>
           [[4.]]])
    """
    if density.curvature is not None:
        return np.stack([density.curvature(x) for x in points])
    begun = time.perf_counter()
    diagonals = _local_diagonals(density, points)
    with doing("computing curvatures"):
        forecast((1 + kinks) * (time.perf_counter() - begun))  # each takes as many gradients
    steps = 1e-2 * scales_of(diagonals)
    if kinks:
        steps = _steps_beyond_kinks(density, points, diagonals, steps)
    shape = (*points.shape, points.shape[1])
    hessians = _derivatives(density, points, steps, _everywhere(points)).reshape(shape)
    symmetric: np.ndarray = hessians / 2 + hessians.transpose(0, 2, 1) / 2  # may be infinite
    return symmetric


def _everywhere(points: np.ndarray) -> Places:
    """Return the numbers of the points, and of the coordinates, of all pairs of them."""
    each, coordinates = np.indices(points.shape)
    return each.ravel(), coordinates.ravel()


def _derivatives(
    density: Density, points: np.ndarray, steps: np.ndarray, where: Places
) -> np.ndarray:
    """Return rows of negative Hessians, (n_rows, n_dims)."""

    def negative(x: np.ndarray) -> np.ndarray:
        slopes: np.ndarray = -density.gradients(x)
        return slopes

    return np.concatenate(list(blocks_of_differences(negative, points, steps, where)))


def _diagonals(
    density: Density, points: np.ndarray, steps: np.ndarray, where: Places
) -> np.ndarray:
    rows = _derivatives(density, points, steps, where)
    found: np.ndarray = rows[np.arange(len(rows)), where[1]]
    return found


def _local_diagonals(density: Density, points: np.ndarray) -> np.ndarray:
    """Return roughly the diagonals of negative Hessians, from steps well within a scale."""
    steps = np.full(points.shape, 1e-4)  # in units of the unconstrained space
    diagonals = np.empty(points.shape)
    where = _everywhere(points)
    for _ in range(12):
        diagonals[where] = _diagonals(density, points, steps, where)
        # A step of a scale or more does not measure the curvature, and may overflow.
        each, coordinates = (~(np.abs(diagonals) * steps**2 <= 1.0)).nonzero()
        where = each, coordinates
        if not each.size:
            break
        steps[where] /= 100
    return diagonals


def _steps_beyond_kinks(
    density: Density, points: np.ndarray, diagonals: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Lengthen a step to a scale if the curvature a scale away is far below the local one.

    If the gradient jumps, its difference over a small step is that of one row.  A smooth curvature
    hardly falls to a quarter within a scale.
    """
    diagonals, steps = diagonals.copy(), steps.copy()
    left = np.arange(len(points))
    for _ in range(20):
        some, own = points[left], diagonals[left]
        where = _everywhere(some)
        beyond = _diagonals(density, some, scales_of(own), where).reshape(own.shape)
        kinked = (own > 0) & (beyond > 0) & (beyond < own / 4)
        changed = kinked.any(axis=1)
        if not changed.any():
            break
        left, kinked = left[changed], kinked[changed]
        diagonals[left] = np.where(kinked, beyond[changed], diagonals[left])
        steps[left] = np.where(kinked, scales_of(diagonals[left]), steps[left])
    return steps


def settled_each(density: Density, points: np.ndarray) -> list[Normal | SamplingError]:
    """Return the normal distributions around the modes near some points, or why there is none.

    Parameters
    ----------
    density : Density
    points : ndarray of shape (n_points, n_dims)
        Ends of searches.

    Examples
    --------
    >>> double = Density(lambda x: (-np.square(x[:, 0] ** 2 - 1), -4 * x * (x**2 - 1)))
    >>> left, right, between = settled_each(double, np.array([[-1.001], [0.999], [0.0]]))
    >>> left.location.round(6), right.factor.matrix.round(1)
    (array([-1.]), array([[8.]]))
    >>> type(between).__name__
    'SamplingError'
    """
    if not len(points):
        return []
    factors = factors_at(density, points, kinks=True)
    known, some = np.array([*factors], dtype=np.int64), [*factors.values()]
    if not some:
        return [SamplingError(_NOT_PROPER) for _ in points]
    modes, converged = _polished(density, points[known], some)
    found: list[Normal | SamplingError] = [SamplingError(_NOT_PROPER) for _ in points]
    moved = []
    for i, mode, factor, is_mode in zip(known, modes, some, converged, strict=True):
        found[i] = Normal(mode, factor) if is_mode else SamplingError(_NOT_CONVERGED)
        if is_mode and np.abs(factor.whiten(mode - points[i])).max() > _MOVED:
            moved.append((i, mode))
    if moved:
        anew = factors_at(density, np.stack([mode for _, mode in moved]), kinks=True)
        for number, (i, mode) in enumerate(moved):
            is_mode = number in anew
            found[i] = Normal(mode, anew[number]) if is_mode else SamplingError(_NOT_PROPER)
    return found


def factors_at(density: Density, points: np.ndarray, *, kinks: bool) -> dict[int, CholeskyFactor]:
    """Return Cholesky factors of the `negative_hessians` that are definite, by their numbers."""
    found: dict[int, CholeskyFactor] = {}
    for i, hessian in enumerate(negative_hessians(density, points, kinks=kinks)):
        if np.isfinite(hessian).all():
            with suppress(LinAlgError):
                found[i] = factor_of(hessian)
    return found


def _polished(
    density: Density, points: np.ndarray, factors: Sequence[CholeskyFactor]
) -> tuple[np.ndarray, np.ndarray]:
    """Take Newton steps with fixed Hessians: L-BFGS stops once the function no longer changes.

    Returns points (n_points, n_dims), and whether each is near a mode.
    """
    points, gains = points.copy(), np.full(len(points), np.inf)
    values, slopes = negative_of_points(density, points)
    going = np.flatnonzero(np.isfinite(values))
    steps = np.zeros_like(points)
    for tries in reversed(range(51)):
        for i in going.tolist():
            steps[i] = factors[i].solve(slopes[i])
        gains[going] = (slopes[going] * steps[going]).sum(axis=1)
        going = going[~(gains[going] < _ENOUGH) & (tries > 0)]
        if not going.size:
            break
        tried, new = negative_of_points(density, points[going] - steps[going])
        better = tried <= values[going] + _ENOUGH
        going = going[better]
        points[going] -= steps[going]
        values[going], slopes[going] = tried[better], new[better]
    return points, gains <= _MOVED


def maximise_by_curvature(
    density: Density,
    starts: np.ndarray,
    *,
    n_gradients: int,
    are_known: OfValues = none_known,
) -> Ends:
    """Maximise a density from many starts, on ridges too narrow for gradients alone.

    They occur if a scale multiplies a well-determined variable, as in non-centred hierarchies, and
    if outcomes or predictors are in the millions: coordinates of a scale above one, or below 1e-6,
    are in units of that.  Each ascent takes steps of several lengths at once, the best within a
    trust region of that radius by its curvature.

    Parameters
    ----------
    density : Density
    starts : ndarray of shape (n_starts, n_dims)
    n_gradients : int
        Approximate number of gradients of each ascent.
    are_known : callable
        See `minimise_together`; ascents that meet others end there, too.

    References
    ----------
    Nocedal and Wright (2006). Numerical optimization, 2nd edition, section 4.3.

    Examples
    --------
    >>> def slopes(x):
    ...     off, a = 1e4 * (x[:, 1] - np.square(x[:, 0])), x[:, 0]
    ...     return -(off**2) / 2e4 - a**2 / 2, np.c_[2 * off * a - a, -off]
    >>> starts = np.array([[3.0, 9.0], [-2.0, 4.0]])
    >>> ends = maximise_by_curvature(Density(slopes), starts, n_gradients=1_000)
    >>> bool(np.abs(ends.points).max() < 1e-3)
    True
    """
    ascents = _RidgeAscents(density, starts)
    for _ in range(max(n_gradients // (4 * starts.shape[1]), 5)):
        if not ascents.going.any():
            break
        stop_if_late(f"{ascents.going.sum()} of {len(starts)} searches go on")
        moved = ascents.step()
        ascents.going[moved[are_known(ascents.values[moved], ascents.points[moved])]] = False
        ascents.join()
    return Ends.of(ascents.values, ascents.points, ascents.going, ascents.joined)


class _RidgeAscents:
    """The state of ascents by curvatures, of which some are still going."""

    def __init__(self, density: Density, starts: np.ndarray) -> None:
        n, n_dims = starts.shape
        self._density = density
        self.points = starts.copy()
        self.values, self._slopes = negative_of_points(density, starts)
        self.going = np.isfinite(self.values)
        self.joined = np.arange(n)  # the number of the ascent whose end it has
        self._lengths = np.ones(n)
        self._units = np.ones((n, n_dims))
        self._curvatures = np.zeros((n, n_dims))  # along axes, in these units
        self._axes = np.zeros((n, n_dims, n_dims))
        self._curve(np.flatnonzero(self.going), begin=True)

    def _curve(self, which: np.ndarray, *, begin: bool = False) -> None:
        """Compute curvatures where some ascents are; those whose curvature overflows end."""
        if not which.size:
            return
        hessians = negative_hessians(self._density, self.points[which], kinks=False)
        bounded = (np.abs(hessians) < 1e100).all(axis=(1, 2))
        # Scales are above 1e-50; larger squares overflow: there is no mode.
        self.going[which[~bounded]] = False
        which, hessians = which[bounded], hessians[bounded]
        if begin:
            diagonals = np.abs(np.diagonal(hessians, axis1=1, axis2=2))
            scales = scales_of(diagonals)
            self._units[which] = np.where((scales < _TINY) | (scales > 1.0), scales, 1.0)
        units = self._units[which]
        scaled = hessians * units[:, :, None] * units[:, None]
        self._curvatures[which], self._axes[which] = np.linalg.eigh(scaled)

    def step(self) -> np.ndarray:
        """Try steps of several lengths for each ascent; return the numbers of those that moved."""
        which = np.flatnonzero(self.going)
        moves = self._moves(which)
        tried = self.points[which, None] + self._units[which, None] * moves
        values, slopes = negative_of_points(self._density, tried.reshape(-1, tried.shape[2]))
        values, slopes = values.reshape(tried.shape[:2]), slopes.reshape(tried.shape)
        best = np.arange(len(which)), values.argmin(axis=1)
        better = values[best] < self.values[which]
        self._lengths[which] = np.where(
            better, np.linalg.norm(moves[best], axis=1), self._lengths[which] * _TRIED[-1] / 4
        )
        self.going[which[~better & (self._lengths[which] < _SHORTEST)]] = False
        moved = which[better]
        self.points[moved], self.values[moved] = tried[best][better], values[best][better]
        self._slopes[moved] = slopes[best][better]
        self._curve(moved)
        at_mode = self._are_flat(moved) & (self._curvatures[moved, 0] > 0)
        self.going[moved[at_mode]] = False
        found: np.ndarray = moved
        return found

    def _are_flat(self, which: np.ndarray) -> np.ndarray:
        scaled = self._slopes[which] * self._units[which]
        flat: np.ndarray = np.linalg.norm(scaled, axis=1) < FLAT
        return flat

    def _moves(self, which: np.ndarray) -> np.ndarray:
        """Return steps of several lengths, (n_ascents, n_lengths, n_dims), in units.

        At a saddle, small ones in the directions of the steepest rise.
        """
        curvatures, axes = self._curvatures[which], self._axes[which]
        slopes = np.einsum("ijk,ij->ik", axes, self._slopes[which] * self._units[which])
        moves = -np.einsum(
            "ijk,ilk->ilj",
            axes,
            _shortened(slopes, curvatures, _TRIED * self._lengths[which, None]),
        )
        saddle = self._are_flat(which)
        ways = np.outer([1e-2, -1e-2, 0.1, -0.1, 1.0, -1.0], np.ones(len(which)))
        lengths = ways.T * scales_of(np.abs(curvatures[:, :1]))
        moves[saddle] = (lengths[:, :, None] * axes[:, None, :, 0])[saddle]
        found: np.ndarray = moves
        return found

    def join(self) -> None:
        """End ascents that have met others, each in its own widths."""

        def away(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
            units = (self.points[others] - self.points[ones]) / self._units[ones]
            along = np.einsum("ij,ijk->ik", units, self._axes[ones])
            widths: np.ndarray = along * np.sqrt(np.abs(self._curvatures[ones]))
            return widths

        join_those_near(self.values, self.going, self.joined, away)


def _shortened(slopes: np.ndarray, curvatures: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the best steps of at most some lengths, (n, n_lengths, n_dims), along axes.

    By gradients and curvatures along the axes, (n, n_dims) each, for lengths (n, n_lengths).
    """
    slopes, curvatures = slopes[:, None], curvatures[:, None]
    least = np.maximum(-curvatures[..., :1], 0.0)
    least = least + 1e-9 * np.maximum(np.abs(curvatures).max(axis=2, keepdims=True), 1e-30)
    least = np.where(curvatures[..., :1] > 0, 0.0, least)
    lengths = lengths[..., None]

    def steps(shift: np.ndarray) -> np.ndarray:
        found: np.ndarray = slopes / (curvatures + least + shift)
        return found

    def too_long(shift: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.linalg.norm(steps(shift), axis=2, keepdims=True) > lengths
        return found

    most = np.linalg.norm(slopes, axis=2, keepdims=True) / lengths
    low, high = np.log(np.maximum(1e-18 * most, 1e-300)), np.log(np.maximum(most, 1e-290))
    for _ in range(40):
        middle = (low + high) / 2
        longer = too_long(np.exp(middle))
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    whole = np.zeros_like(lengths)
    return steps(np.where(too_long(whole), np.exp(high), whole))
