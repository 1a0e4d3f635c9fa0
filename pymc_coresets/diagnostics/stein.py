"""Whether draws are those of a density: Stein's identities for its gradients at the draws.

For draws x of a density p with the score ``s = grad log p``, and any smooth f for which ``f p``
vanishes far out, ``E[f(x) s_j(x) + df/dx_j] = 0``.  Over draws of another distribution, the mean of
such a statistic is not zero: f = 1 tells a shift, and ``f = x_j`` another width.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy import stats
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from pymc_coresets.diagnostics.importance import Floats

#: Log-densities of points (n_points, n_dims), (n_points,), in nats.
type OfPoints = Callable[[Floats], Floats]

#: How often draws of the density itself are told from it.
FALSE_ALARMS = 1e-4

_BATCHES = 100  # of all chains together: as long as possible, since draws are correlated
_MOST_FOR_PAIRS = 20  # dimensions, whose squared number of statistics is tested
_AMOUNTS = (0.3, 1.0, 2.0)  # standard deviations by which draws are moved, or factors less 1


class Move(NamedTuple):
    """A change of points ``x + a (c + u'x) d``: a shift (u = 0), or a stretch or shear (c = 0).

    Parameters
    ----------
    direction : ndarray of shape (n_dims,)
        d.
    constant : float
        c.
    along : ndarray of shape (n_dims,)
        u.
    """

    direction: Floats
    constant: float
    along: Floats

    def amounts(self) -> Floats:
        """Return amounts a that change a distribution noticeably."""
        return np.array(_AMOUNTS)

    def inverse(self, a: float) -> float:
        """Return the amount that moves points back."""
        return -a / (1 + a * float(self.along @ self.direction))

    def of(self, x: Floats, a: float) -> tuple[Floats, float]:
        """Return moved points (n_points, n_dims), and the logarithm of the Jacobian determinant."""
        moved = x + a * (self.constant + x @ self.along)[:, None] * self.direction
        return moved, math.log1p(a * float(self.along @ self.direction))


class Stretch(NamedTuple):
    """A change of points by the factor ``1 + a`` in all dimensions, see `Move`."""

    n_dims: int

    def amounts(self) -> Floats:
        """Return amounts a that change a distribution noticeably."""
        return np.array(_AMOUNTS) / math.sqrt(2 * self.n_dims)

    def inverse(self, a: float) -> float:
        """Return the amount that moves points back."""
        return -a / (1 + a)

    def of(self, x: Floats, a: float) -> tuple[Floats, float]:
        """Return moved points (n_points, n_dims), and the logarithm of the Jacobian determinant."""
        return (1 + a) * x, self.n_dims * math.log1p(a)


@dataclass(frozen=True, eq=False)
class Deviation:
    """The statistic of some draws that is least likely for draws of the density.

    Parameters
    ----------
    size : float
        Its distance from zero, in standard errors.
    limit : float
        What the largest of all statistics exceeds once in 10,000 times for draws of the density.
    where : str
        The coordinate that it belongs to, or has most weight in it; empty for all together.
    move : Move or Stretch, optional
        Change of the draws to which the statistic is most sensitive; None if there is none.
    """

    size: float = 0.0
    limit: float = math.inf
    where: str = ""
    move: Move | Stretch | None = None

    @property
    def is_noticeable(self) -> bool:
        """Whether the draws are those of another distribution, going by this statistic."""
        return self.size > self.limit


def standard_errors_from_zero(values: Floats) -> tuple[Floats, int]:
    """Return means over draws in their standard errors, by means of batches, without skewness.

    Parameters
    ----------
    values : ndarray of shape (n_chains, n_draws, n_statistics)
        Those of consecutive draws may be correlated.

    Returns
    -------
    ndarray of shape (n_statistics,)
    int
        Degrees of freedom of these t statistics.

    Notes
    -----
    The t statistic of a skewed distribution has a long tail, on the side of the short tail of the
    distribution: that of ``1 - x^2`` over 400 normal draws is above 5 twenty times as often as
    Student's t.  So it is also transformed to ``t + g t^2 / 3 + g^2 t^3 / 27 + g / 6``, with the
    skewness of the batches divided by the root of their number as ``g``, which takes the skewness
    away; the result is the one of both that is nearer to zero.

    References
    ----------
    Flegal, Jones (2010). Batch means and spectral variance estimators in Markov chain Monte Carlo.
    The Annals of Statistics 38. https://doi.org/10.1214/09-AOS735

    Hall (1992). On the removal of skewness by transformation. Journal of the Royal Statistical
    Society B 54. https://doi.org/10.1111/j.2517-6161.1992.tb01876.x

    Examples
    --------
    >>> values = np.random.default_rng(1).normal([0.0, 0.5], size=(4, 250, 2))
    >>> standard_errors_from_zero(values)[0].round()
    array([-1., 16.])
    """
    n_chains, n_draws, n_statistics = values.shape
    length = max(n_draws * n_chains // _BATCHES, 1)
    used = n_draws - n_draws % length
    batches = values[:, n_draws - used :].reshape(-1, length, n_statistics).mean(axis=1)
    mean, root = batches.mean(axis=0), math.sqrt(len(batches))
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a statistic that is constant
        t = np.where(mean == 0, 0.0, root * mean / batches.std(axis=0, ddof=1))
        g = np.nan_to_num(stats.skew(batches, axis=0)) / root
        found = t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6
    return np.where(np.abs(found) < np.abs(t), found, t), len(batches) - 1


def deviation(away: Floats, scores: Floats, names: Sequence[str]) -> Deviation:
    """Compare draws with a density by the gradients of its logarithm there.

    Parameters
    ----------
    away : ndarray of shape (n_chains, n_draws, n_dims)
        Draws, less the same point near their middle.
    scores : ndarray of shape (n_chains, n_draws, n_dims)
        Gradients of the log-density.
    names : sequence of str
        Of the dimensions.

    Returns
    -------
    Deviation

    Notes
    -----
    With t a coordinate in standard deviations, g the derivative by it, and a function b that is
    constant but for steps at 1.5 standard deviations on either side, the statistics are g (shift),
    ``t g + 1`` (width) and ``b(t) g + b'(t)`` (tails), for each coordinate and for whitened ones;
    of these also the mean of ``t g + 1``, and ``t_i g_j`` for pairs of up to 20 dimensions.
    The mean of g is minus the shift in units of the variance, that of ``t g + 1`` is one minus the
    squared ratio of widths.  Chains are whitened by the covariance of the others: by their own, n
    draws in D dimensions would have widths that are off by up to D / n.
    Time O(n_draws n_dims^2).

    References
    ----------
    Gorham, Mackey (2015). Measuring sample quality with Stein's method. Advances in Neural
    Information Processing Systems 28. https://arxiv.org/abs/1506.03039

    Examples
    --------
    >>> x = np.random.default_rng(1).normal(size=(4, 1_000, 2))
    >>> deviation(x, -x, ["a", "b"]).is_noticeable  # of a standard normal density
    False
    >>> found = deviation(x, -x - [0.0, 0.2], ["a", "b"])  # of one shifted by -0.2
    >>> found.is_noticeable, found.where
    (True, 'b')
    """
    found: list[tuple[float, str, Move | Stretch]] = []
    n_statistics, df = 0, 1
    for values, moves in _statistics(away, scores, names):
        sizes, df = standard_errors_from_zero(values)
        worst = int(np.abs(sizes).argmax())
        found.append((abs(float(sizes[worst])), *moves(worst)))
        n_statistics += len(sizes)
    size, where, move = max(found, key=lambda each: each[0])
    limit = float(stats.t.isf(FALSE_ALARMS / 2 / n_statistics, df))
    return Deviation(size, limit, where, move)


def widths(values: Floats) -> Floats:
    """Return the width of the middle of each column of draws (n_chains, n_draws, n_columns).

    One for constants.

    Examples
    --------
    >>> widths(np.random.default_rng(1).normal(0.0, [3.0, 0.0], size=(4, 1_000, 2))).round()
    array([3., 1.])
    """
    low, high = np.quantile(values, (0.16, 0.84), axis=(0, 1))
    scales = np.where(high > low, (high - low) / 2, values.std(axis=(0, 1)))
    found: Floats = np.where(scales > 0, scales, 1.0)
    return found


type _Named = Callable[[int], tuple[str, Move | Stretch]]


def _statistics(
    away: Floats, scores: Floats, names: Sequence[str]
) -> Iterator[tuple[Floats, _Named]]:
    """Yield statistics (n_chains, n_draws, n), and the name and the move that belong to each."""
    n_dims = away.shape[2]
    scales = widths(away)

    def along_axis(j: int) -> tuple[Floats, Floats]:
        axis = (np.arange(n_dims) == j).astype(float)
        return scales * axis, axis / scales

    yield from _of_coordinates(away / scales, scores * scales, names, along_axis)
    roots = _roots_of_others(away)
    if roots is None:
        return
    of_chain = [(solve_triangular(root, x.T, lower=True).T, s @ root)
                for root, x, s in zip(roots, away, scores, strict=True)]  # fmt: skip
    t, g = (np.stack(part) for part in zip(*of_chain, strict=True))
    root = roots[0]
    loudest = [names[int(np.abs(column).argmax())] for column in (root / scales[:, None]).T]

    def along_root(j: int) -> tuple[Floats, Floats]:
        axis = (np.arange(n_dims) == j).astype(float)
        return root[:, j], solve_triangular(root, axis, lower=True, trans=1)

    yield from _of_coordinates(t, g, loudest, along_root)
    total = (t * g + 1.0).mean(axis=2, keepdims=True)
    yield total, lambda _: ("", Stretch(n_dims))
    if 1 < n_dims <= _MOST_FOR_PAIRS:
        first, second = np.nonzero(~np.eye(n_dims, dtype=bool))

        def pair(k: int) -> tuple[str, Move]:
            (direction, _), (_, along) = along_root(second[k]), along_root(first[k])
            return loudest[second[k]], Move(direction, 0.0, along)

        yield t[:, :, first] * g[:, :, second], pair


def _of_coordinates(
    t: Floats,
    g: Floats,
    names: Sequence[str],
    axis: Callable[[int], tuple[Floats, Floats]],
) -> Iterator[tuple[Floats, _Named]]:
    """Yield the statistics of shift, width and tails of each coordinate, standardised."""

    def shift(j: int) -> tuple[str, Move]:
        direction = axis(j)[0]
        return names[j], Move(direction, 1.0, np.zeros_like(direction))

    def width(j: int) -> tuple[str, Move]:
        direction, along = axis(j)
        return names[j], Move(direction, 0.0, along)

    yield g, shift
    yield t * g + 1.0, width
    beyond = np.tanh((np.abs(t) - 1.5) / 0.3)
    yield np.sign(t) * (beyond + np.tanh(5.0)) * g + (1 - np.square(beyond)) / 0.3, width


def _roots_of_others(away: Floats) -> list[Floats] | None:
    """Return Cholesky factors of covariances, for each chain that of the other half of the chains.

    None if there are too few draws for it.
    """
    n_chains, n_draws, n_dims = away.shape
    if n_chains * n_draws < 8 * n_dims:
        return None
    halves = away[: n_chains // 2], away[n_chains // 2 :]
    try:
        roots = [cholesky(np.cov(half.reshape(-1, n_dims).T).reshape(n_dims, n_dims), lower=True)
                 for half in halves]  # fmt: skip
    except (LinAlgError, ValueError):  # a chain that stands still
        return None
    return [roots[1]] * (n_chains // 2) + [roots[0]] * (n_chains - n_chains // 2)


def deviation_by_values(
    x: Floats, center: Floats, log_density: OfPoints, names: Sequence[str]
) -> Deviation:
    """Compare draws with a density by its values alone: see `size_by_values`.

    By shifts and stretches of each coordinate.  Takes twelve values of the density for each draw
    and coordinate.

    Parameters
    ----------
    x, center, log_density
        As of `size_by_values`.
    names : sequence of str
        Of the dimensions; empty for those along which draws are not moved.
    """
    n_dims = x.shape[2]
    scales = (x - center).reshape(-1, n_dims).std(axis=0)
    moves: list[tuple[str, Move]] = []
    for j in [j for j, name in enumerate(names) if name and scales[j] > 0]:
        axis = (np.arange(n_dims) == j).astype(float)
        shift, stretch = Move(scales * axis, 1.0, 0 * axis), Move(axis, 0.0, axis)
        moves += [(names[j], shift), (names[j], stretch)]
    found = [(size_by_values(x, center, log_density, move), name, move) for name, move in moves]
    if not found:
        return Deviation()
    size, where, move = max(found, key=lambda each: each[0])
    n_values = len(found) * len(_AMOUNTS)
    return Deviation(size, float(stats.norm.isf(FALSE_ALARMS / 2 / n_values)), where, move)


def in_halves(points: Floats) -> Floats:
    """Cut a single chain (1, n_draws, n_dims) into two; return several as they are.

    Examples
    --------
    >>> in_halves(np.zeros((1, 7, 2))).shape, in_halves(np.zeros((4, 7, 2))).shape
    ((2, 3, 2), (4, 7, 2))
    """
    if len(points) > 1:
        return points
    half = points.shape[1] // 2
    return points[0, : 2 * half].reshape(2, half, -1)


class Change(Protocol):
    """A one-to-one change of points, by an amount."""

    def amounts(self) -> Floats:
        """Return amounts a that change a distribution noticeably."""

    def inverse(self, a: float) -> float:
        """Return the amount that moves points back."""

    def of(self, x: Floats, a: float) -> tuple[Floats, float]:
        """Return moved points (n_points, n_dims), and the logarithm of the Jacobian determinant."""


def size_by_values(x: Floats, center: Floats, log_density: OfPoints, move: Change) -> float:
    """Compare draws with a density by its values there, and at moved draws.

    Where the density has jumps, Stein's identities do not hold, but this one does.

    Parameters
    ----------
    x : ndarray of shape (n_chains, n_draws, n_dims)
        Draws.
    center : ndarray of shape (n_dims,)
        Subtracted before points are moved.
    log_density : callable
    move : Change
        Such as a `Move`.

    Returns
    -------
    float
        The largest deviation, for a few amounts of the move, in standard errors.

    Notes
    -----
    For a one-to-one map T with Jacobian determinant J,
    ``E[min(1, |J(x)| p(T x) / p(x))] = E[min(1, p(T^-1 x) / (p(x) |J(T^-1 x)|))]``: both are the
    integral of the smaller one of two densities, p and that of the moved draws.

    Examples
    --------
    >>> x = np.random.default_rng(1).exponential(size=(4, 1_000, 1))
    >>> def log_density(x):
    ...     return np.where(x[:, 0] < 0, -np.inf, -x[:, 0])
    >>> shift = Move(np.ones(1), 1.0, np.zeros(1))
    >>> size_by_values(x, np.zeros(1), log_density, shift) < 4  # although the mean score is -1
    True
    >>> size_by_values(x + 0.2, np.zeros(1), log_density, shift) > 4
    True
    """
    flat = x.reshape(-1, x.shape[2])
    before = log_density(flat)

    def accepted(a: float) -> Floats:
        moved, log_jacobian = move.of(flat - center, a)
        with np.errstate(invalid="ignore", over="ignore"):
            gain = log_density(center + moved) + log_jacobian - before
            return np.exp(np.minimum(np.nan_to_num(gain, nan=-np.inf), 0.0))

    sizes = []
    for a in move.amounts():
        difference = accepted(a) - accepted(move.inverse(a))
        # Squares of small numbers would be zero, and the statistic infinite.
        difference /= np.abs(difference).max(initial=np.finfo(float).tiny)
        [size], _ = standard_errors_from_zero(difference.reshape(*x.shape[:2], 1))
        sizes.append(abs(float(size)))
    return max(sizes)
