"""Other modes of a posterior: looked for from many starts, on a sample of the rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import minimize

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.laplace import LaplaceApproximation

SAME = 2.0  #: Standard deviations between points of the same mode.
NOTICEABLE = 0.01  #: Share of the posterior's mass from which on a mode is reported.

_STEPS = 100  # of a climb
_BELOW = 4.0  # nats below a mode where a climb has come close to it
_DIP = 3.0  # nats between two modes that chains cross
_POINTS = 8  # of a path between two modes
_RELAXING = 15  # steps for each of them
_ERRORS = 4.0  # standard errors of a difference that is estimated from the sample
_CURVATURES = 10.0  # nats by which the volumes of modes may differ
_ON_RIDGES = 500  # gradients for each end of a climb
_MOST = 8  # modes whose curvature is computed


@dataclass(frozen=True, eq=False)
class LocalMode:
    """A mode of the posterior of a sample of rows, and how many starts ended there.

    Parameters
    ----------
    around : LaplaceApproximation
        Its mode and curvature.
    height : float
        The log-density there, in nats.
    n_ended : int
    """

    around: LaplaceApproximation
    height: float
    n_ended: int

    @classmethod
    def of(cls, around: LaplaceApproximation, n_ended: int = 0) -> Self:
        """Add the log-density to a mode."""
        return cls(around, around.space.logp_and_gradient(around.mode)[0], n_ended)


def log_mass(height: float, factor: np.ndarray) -> float:
    """Return the log of the mass of a mode by Laplace's approximation, up to a constant.

    Parameters
    ----------
    height : float
        The log-density at the mode.
    factor : ndarray of shape (n_dims, n_dims)
        Lower Cholesky factor of the negative Hessian there.

    Examples
    --------
    >>> round(log_mass(0.0, np.diag([1.0, 2.0])), 3)
    -0.693
    """
    return float(height - np.log(np.diag(factor)).sum())


def find_modes(
    known: Sequence[LocalMode],
    starts: np.ndarray,
    *,
    error: Callable[[np.ndarray, np.ndarray], float],
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[list[LocalMode], int]:
    """Look for modes of a density from many starts.

    Climbs in the coordinates of the first mode that is known, and stops early near any of them.
    Modes between which the density hardly dips are one.

    Parameters
    ----------
    known : sequence of LocalMode
        Modes of the density of a sample, at least one.
    starts : ndarray of shape (n_starts, n_dims)
        Where the density is finite.
    error : callable
        Returns how far the difference of the log-densities at two points may be from that of all
        rows, as a standard error in nats.
    is_over : callable
        Says whether no further climb is to begin.

    Returns
    -------
    list of LocalMode
        First those that were known, then others whose mass may be noticeable.
    int
        From how many starts they were looked for.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as model:
    ...     m = pm.Mixture("m", [0.5, 0.5], pm.Normal.dist([-4.0, 4.0], 1.0))
    >>> space = Unconstrained(model)
    >>> first = LocalMode.of(LaplaceApproximation.of(space, np.array([3.0])))
    >>> found, n_starts = find_modes([first], np.array([[-5.0], [2.0]]), error=lambda x, y: 0.0)
    >>> [mode.around.mode.round(3) for mode in found]
    [array([4.]), array([-4.])]
    """
    known, first = list(known), known[0].around
    ends: list[tuple[float, np.ndarray]] = []
    n_starts = 0
    for start in starts:
        if is_over():
            break
        n_starts += 1
        end = _climbed(first, start, known)
        where = _arrived(known, *end)
        if where is None:
            ends.append(end)
        else:
            known = _counted(known, where)
    lasting = [end for end in ends if np.isfinite(end[0])]
    for height, x in sorted(lasting, key=lambda end: -end[0]):
        known = _with_end(known, x, height, error)
    return known, n_starts


def _with_end(
    known: list[LocalMode],
    x: np.ndarray,
    height: float,
    error: Callable[[np.ndarray, np.ndarray], float],
) -> list[LocalMode]:
    """Add the mode near the end of a climb, where it is another one of noticeable mass."""
    where = _arrived(known, height, x)
    if where is not None:
        return _counted(known, where)
    highest = max(known, key=lambda mode: mode.height)
    behind = highest.height - height + np.log(NOTICEABLE) - _CURVATURES
    if len(known) >= _MOST or (behind > 0 and behind > _ERRORS * error(highest.around.mode, x)):
        return known
    try:
        around = LaplaceApproximation.of(known[0].around.space, x, n_gradients=_ON_RIDGES)
    except SamplingError:  # a point where the climb stopped
        return known
    found = LocalMode.of(around, 1)
    for number, mode in enumerate(known):
        if not apart(mode.around, around):
            return _counted(known, number, found)
    return [*known, found]


def _counted(
    known: list[LocalMode], number: int, found: LocalMode | None = None
) -> list[LocalMode]:
    """Count one more start that ended at a mode, whose highest point may be `found`."""
    mode = known[number]
    higher = mode if found is None or found.height <= mode.height else found
    more = replace(higher, n_ended=mode.n_ended + 1)
    return [*known[:number], more, *known[number + 1 :]]


def _arrived(known: Sequence[LocalMode], height: float, x: np.ndarray) -> int | None:
    """Return the number of the mode that a point is close to, in distance and in height."""
    for number, mode in enumerate(known):
        distance = np.linalg.norm(mode.around.factor.T @ (x - mode.around.mode))
        if distance < SAME and height > mode.height - _BELOW:
            return number
    return None


def _climbed(
    first: LaplaceApproximation, start: np.ndarray, known: Sequence[LocalMode]
) -> tuple[float, np.ndarray]:
    """Climb from a start until a known mode is near, or no step leads higher."""
    density = first.whitened(first.space.logp_and_gradient)

    def stop_near_known(z: np.ndarray) -> None:
        value = density(z)[0]
        if np.isfinite(value) and _arrived(known, -value, first.mode + first.offset(z)) is not None:
            raise StopIteration

    begin = first.factor.T @ (start - first.mode)
    z = _descended(density, begin, steps=_STEPS, callback=stop_near_known)
    return -density(z)[0], first.mode + first.offset(z)


def _descended(
    negative: Callable[[np.ndarray], tuple[float, np.ndarray]],
    z: np.ndarray,
    *,
    steps: int,
    callback: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """Return where L-BFGS ends."""
    options = {"maxiter": steps, "maxfun": 2 * steps}
    found = minimize(negative, z, jac=True, method="L-BFGS-B", callback=callback, options=options)
    return np.asarray(found.x) if np.isfinite(found.x).all() else z


def apart(one: LaplaceApproximation, other: LaplaceApproximation) -> bool:
    """Whether the density dips between two modes, on a path that keeps as high as it can.

    Parameters
    ----------
    one, other : LaplaceApproximation
        Modes of the same density, and their curvatures.
    """
    way = other.mode - one.mode
    if min(np.linalg.norm(mode.factor.T @ way) for mode in (one, other)) < SAME:
        return False
    density = one.space.logp_and_gradient
    least = min(density(one.mode)[0], density(other.mode)[0]) - _DIP
    between = [one.mode + t * way for t in np.linspace(0, 1, _POINTS + 2)[1:-1]]
    if all(density(x)[0] > least for x in between):
        return False
    at = one.mode
    for x in [*_relaxed(one, way), other.mode]:
        if density(x)[0] <= least or density((at + x) / 2)[0] <= least:
            return True
        at = x
    return False


def _relaxed(one: LaplaceApproximation, way: np.ndarray) -> Sequence[np.ndarray]:
    """Return points of a path, each as high as it can be across the straight way."""
    direction = one.factor.T @ way
    length = np.linalg.norm(direction)
    direction = direction / length
    density, aside = one.whitened(one.space.logp_and_gradient), np.zeros_like(way)

    def across(z: np.ndarray) -> np.ndarray:
        straight: np.ndarray = z - direction * (direction @ z)
        return straight

    points = []
    for t in np.linspace(0, 1, _POINTS + 2)[1:-1]:
        along = t * length * direction

        def negative(z: np.ndarray, along: np.ndarray = along) -> tuple[float, np.ndarray]:
            value, slope = density(along + across(z))
            return value, across(slope)

        aside = across(_descended(negative, aside, steps=_RELAXING))
        points.append(one.mode + one.offset(along + aside))
    return points
