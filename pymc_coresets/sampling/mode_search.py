"""Other modes of a posterior: starting points, and searches from them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pymc as pm

from pymc_coresets.deadline import paced
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import WRITTEN_MODE
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.maximisation.many_modes import maximise_by_curvature, settled_each
from pymc_coresets.sampling.maximisation.many_starts import (
    Ends,
    minimise_together,
    negative_at,
    negative_of_points,
)
from pymc_coresets.sampling.maximisation.paths import Pair, are_apart
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.symmetry.local_modes import NOTICEABLE, KnownModes, LocalMode
from pymc_coresets.sampling.symmetry.symmetries import ALONE, Images
from pymc_coresets.sampling.symmetry.value_changes import changes, points_of

#: Most modes that are searched for, without their images: each is refined on all rows.
MOST_SEARCHED = 24
#: Number of known modes of which a new one might be a part.
_NEAREST = 8
#: Number of searches that step together.
_TOGETHER = 64
#: Standard deviations from a mode at which the density is looked at along each coordinate.
_OUTWARDS = np.array([3.5, 6.0, 10.0, 17.0, 29.0, 50.0])
#: Number of coordinates along which it is looked at there: twelve gradients each.
_MOST_COORDINATES = 250
#: Steps of searches that have ended at no mode, and about how many gradients each of them may take
#: along a ridge.
_MOST_STEPS, _ON_RIDGES = 2_000, 500

_log = logging.getLogger(__name__)


def mode_of(density: Density, around: Normal) -> LocalMode:
    """Return a mode with the log-density there."""
    return LocalMode(around, density.logp_and_gradient(around.location)[0])


def find_modes(
    density: Density,
    known: Sequence[LocalMode],
    starts: np.ndarray,
    *,
    error: Callable[[np.ndarray, np.ndarray], float],
    is_over: Callable[[], bool] = lambda: False,
    orbits: Images = ALONE,
) -> tuple[list[LocalMode], int]:
    """Search for modes of a density from many starts.

    Searches in the coordinates of the first known mode, and stops early near any known mode.  Modes
    between which the density hardly dips count as one.

    Parameters
    ----------
    density : Density
    known : sequence of LocalMode
        Modes of the density of a sample, at least one.
    starts : ndarray of shape (n_starts, n_dims)
        Where the density is finite.
    error : callable
        Returns the standard error, in nats, of the difference of the log-densities at two points
        from that of all rows.
    is_over : callable
        Returns whether no further search should begin.
    orbits : Orbits or Alone
        The images of each new mode, which need no search.

    Returns
    -------
    list of LocalMode
        First the known ones, then others whose mass may be noticeable: at most `MOST_SEARCHED`
        besides their images.
    int
        Number of starts used.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as model:
    ...     m = pm.Mixture("m", [0.5, 0.5], pm.Normal.dist([-4.0, 4.0], 1.0))
    >>> density = Density.of_model(Unconstrained(model))
    >>> from pymc_coresets.sampling.curvature import laplace
    >>> first = mode_of(density, laplace(density, np.array([3.0])))
    >>> starts = np.array([[-5.0], [2.0]])
    >>> found, n_starts = find_modes(density, [first], starts, error=lambda x, y: 0.0)
    >>> [mode.x.round(3) for mode in found]
    [array([4.]), array([-4.])]
    """
    found, first = KnownModes(known), known[0].around
    ends: list[_End] = []
    n_starts = 0
    with paced("searching for other modes", len(starts), "starts") as count:
        for i in range(0, len(starts), _TOGETHER):
            if is_over():
                break
            some = starts[i : i + _TOGETHER]
            refined = _ascended(density, first, some, found, is_over)
            n_starts += sum(end.n_starts for end in refined)
            ends += refined
            count(len(some))
    _refine(density, found, ends, error, orbits)
    return found.modes, n_starts


@dataclass(frozen=True, eq=False)
class _End:
    """Where some searches have ended."""

    height: float
    x: np.ndarray
    n_starts: int


def _refine(
    density: Density,
    found: KnownModes,
    ends: Sequence[_End],
    error: Callable[[np.ndarray, np.ndarray], float],
    orbits: Images,
) -> None:
    """Add the modes at the ends of searches, all at once.

    Most ends are at modes; from the others the search goes on by gradients, and along ridges by
    curvatures, until it meets a known mode or another search.
    """

    def are_known(values: np.ndarray, points: np.ndarray) -> np.ndarray:
        return found.holding(points, -values) >= 0

    def by_gradients(points: np.ndarray) -> Ends:
        def negative(x: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return negative_of_points(density, x)

        return minimise_together(negative, points, most_steps=_MOST_STEPS, are_known=are_known)

    def by_curvature(points: np.ndarray) -> Ends:
        return maximise_by_curvature(density, points, n_gradients=_ON_RIDGES, are_known=are_known)

    ends = _settled(density, found, ends, error, orbits)
    for search in (by_gradients, by_curvature):
        if ends:
            refined = search(np.stack([end.x for end in ends]))
            ends = _joined(refined, [end.n_starts for end in ends])
            ends = _settled(density, found, ends, error, orbits)


def _settled(
    density: Density,
    found: KnownModes,
    ends: Sequence[_End],
    error: Callable[[np.ndarray, np.ndarray], float],
    orbits: Images,
) -> list[_End]:
    """Add the modes at some ends, and return the ends that are at none."""
    ends = _not_known(found, ends, error)
    settled = settled_each(density, np.stack([end.x for end in ends])) if ends else []
    both = list(zip(ends, settled, strict=True))
    new = [(end, around) for end, around in both if isinstance(around, Normal)]
    if new:
        heights = density.values(np.stack([around.location for _, around in new]))
        modes = [
            LocalMode(around, float(height), end.n_starts)
            for (end, around), height in zip(new, heights, strict=True)
        ]
        _add(density, found, modes, error, orbits)
    return [end for end, around in both if isinstance(around, SamplingError)]


def n_searched(modes: Sequence[LocalMode]) -> int:
    """Return the number of modes that are no images of others."""
    return sum(not mode.is_image for mode in modes)


def _may_be_noticeable(
    known: Sequence[LocalMode],
    height: float,
    x: np.ndarray,
    error: Callable[[np.ndarray, np.ndarray], float],
) -> bool:
    """Whether a mode of this height may hold noticeable mass, given the sample.

    The volumes of modes may differ by ten nats, and the sample errs by four standard errors.
    """
    highest = max(known, key=lambda mode: mode.height)
    behind = highest.height - height + np.log(NOTICEABLE) - 10.0
    some = n_searched(known) < MOST_SEARCHED
    return some and bool(behind <= 0 or behind <= 4.0 * error(highest.x, x))


def _not_known(
    known: KnownModes, ends: Sequence[_End], error: Callable[[np.ndarray, np.ndarray], float]
) -> list[_End]:
    """Return the ends that are at no known mode, and whose mass may be noticeable."""
    left = []
    for end in sorted(ends, key=lambda end: -end.height):
        [number] = known.holding(end.x[None], np.array([end.height]))
        if number >= 0:
            _count(known, int(number), end.n_starts, known.modes[number])
        elif np.isfinite(end.height) and _may_be_noticeable(known.modes, end.height, end.x, error):
            left.append(end)
    return left


def _add(
    density: Density,
    known: KnownModes,
    modes: Sequence[LocalMode],
    error: Callable[[np.ndarray, np.ndarray], float],
    orbits: Images,
) -> None:
    """Add modes, the highest first, unless the density hardly dips between one and a known one."""
    modes = sorted(modes, key=lambda mode: -mode.height)
    dips = _Dips(density)
    dips.measure(known, modes)
    for mode in modes:
        [number] = known.holding(mode.x[None], np.array([mode.height]))
        for part_of in [int(number)] if number >= 0 else dips.none_before(known, mode):
            _count(known, part_of, mode.n_ended, mode)
            break
        else:
            if _may_be_noticeable(known.modes, mode.height, mode.x, error):
                for image in orbits.of(mode, len(known)):
                    if not (image.is_image and known.hold(image.x)):
                        known.add(image)


class _Dips:
    """Whether the density dips between modes: paths are found together, and remembered."""

    def __init__(self, density: Density) -> None:
        self._density = density
        self._apart: dict[Pair, bool] = {}  # by the distributions themselves, not their values

    def measure(self, known: KnownModes, modes: Sequence[LocalMode]) -> None:
        """Look at the ways from each of some modes to the nearest known ones and each other."""
        every, pairs = KnownModes(known.modes), []
        for mode in modes:
            pairs += [(every.modes[number].around, mode.around) for number in _nearest(every, mode)]
            every.add(mode)
        self._look(pairs)

    def none_before(self, known: KnownModes, mode: LocalMode) -> Iterator[int]:
        """Yield the numbers of known modes, of the nearest, with no dip before them."""
        nearest = _nearest(known, mode)
        self._look([(known.modes[number].around, mode.around) for number in nearest])
        for number in nearest:
            if not self._apart[known.modes[number].around, mode.around]:
                yield number

    def _look(self, pairs: Sequence[Pair]) -> None:
        new = [pair for pair in pairs if pair not in self._apart]
        self._apart |= zip(new, are_apart(self._density, new).tolist(), strict=True)


def _nearest(known: KnownModes, mode: LocalMode) -> list[int]:
    """Return the numbers of the known modes of which a new one might be a part."""
    return known.nearest(mode.around)[:_NEAREST]


def _count(known: KnownModes, number: int, n_starts: int, found: LocalMode) -> None:
    """Count starts that ended at a mode, whose highest point may be `found`."""
    mode = known.modes[number]
    higher = mode if found.height <= mode.height else found
    n_ended = mode.n_ended + n_starts
    known.set(number, replace(mode, around=higher.around, height=higher.height, n_ended=n_ended))


def _joined(ends: Ends, n_starts: Sequence[int] | np.ndarray) -> list[_End]:
    """Return the ends of ascents that joined no other, with the starts of those that did."""
    counts = np.bincount(ends.last, np.asarray(n_starts))
    return [
        _End(float(-ends.values[i]), ends.points[i], int(counts[i])) for i in np.flatnonzero(counts)
    ]


def _ascended(
    density: Density,
    first: Normal,
    starts: np.ndarray,
    known: KnownModes,
    is_over: Callable[[], bool],
) -> list[_End]:
    """Search from some starts until a known mode is near, or no step raises the density.

    Returns the ends, without those of searches that are not over in time.
    """

    def negative(z: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return negative_at(density, first, z)

    def are_known(values: np.ndarray, z: np.ndarray) -> np.ndarray:
        return known.holding(first.at(z), -values) >= 0

    ends = minimise_together(
        negative, first.whiten(starts), most_steps=100, are_known=are_known, is_over=is_over
    )
    return _joined(replace(ends, points=first.at(ends.points)), ends.finished.astype(int))


def starting_points(
    space: Unconstrained, density: Density, *, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return points from which to search for other modes, (n_starts, n_dims) each.

    Draws of the prior, half of them those of highest density; and the initial point with jitter.

    Parameters
    ----------
    space : Unconstrained
    density : Density
        Of a sample of the rows.
    rng : numpy.random.Generator

    Examples
    --------
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 2.0, 0.5)
    >>> space, rng = Unconstrained(model), np.random.default_rng(1)
    >>> found = starting_points(space, Density.of_model(space), rng=rng)
    >>> [points.shape for points in found]
    [(12, 1), (4, 1)]
    """
    around = space.start + rng.uniform(-1.0, 1.0, (4, space.n_dims))
    of_prior = prior_draws(space, 48, rng=rng)
    return highest(density, of_prior, 6, 6), highest(density, around, 0, 4)


def starts_beyond_dips(density: Density, around: Normal) -> np.ndarray:
    """Return points beyond dips of the density along each coordinate, (n_starts, n_dims).

    The other coordinates move as they go with it around the mode.  A mode of one coordinate alone,
    such as that of a level with few rows, is met by no start in which all coordinates move.  Of
    hundreds of coordinates, the widest are followed: few rows say little.

    Parameters
    ----------
    density : Density
    around : Normal
        Around a mode.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as model:
    ...     m = pm.Mixture("m", [0.5, 0.5], pm.Normal.dist([-4.0, 4.0], 1.0))
    >>> density = Density.of_model(Unconstrained(model))
    >>> from pymc_coresets.sampling.curvature import laplace
    >>> starts_beyond_dips(density, laplace(density, np.array([3.0]))).round(1)
    array([[-2.]])
    """
    n_dims, n_steps = len(around.location), len(_OUTWARDS)
    covariance = around.covariance
    sds = np.sqrt(np.diag(covariance))
    widest = np.sort(np.argsort(-sds, kind="stable")[:_MOST_COORDINATES])
    directions = covariance[widest] / sds[widest, None]
    directions = np.concatenate([directions, -directions])
    points = around.location + _OUTWARDS[:, None] * directions[:, None]
    found = density.slopes(points.reshape(-1, n_dims))
    logs = found.values.reshape(-1, n_steps)
    slopes = found.gradients.reshape(-1, n_steps, n_dims)
    outwards = np.einsum("ijk,ik->ij", slopes, directions) > 0
    rising = np.diff(logs, axis=1, prepend=np.inf) > 0
    beyond = np.where((outwards | rising) & np.isfinite(logs), logs, -np.inf)
    # One start for each direction: the highest point.
    best = beyond.argmax(axis=1)
    heights = beyond[np.arange(len(beyond)), best]
    order = np.argsort(-heights, kind="stable")[:MOST_SEARCHED]
    order = np.sort(order[np.isfinite(heights[order])])
    starts: np.ndarray = points[order, best[order]]
    return starts


def starts_at_images(space: Unconstrained, density: Density, mode: np.ndarray) -> np.ndarray:
    """Return the eight highest images of a mode (or all), (n_starts, n_dims)."""
    return highest(density, image_points(space, mode)[1], 8, 0)


def highest(density: Density, points: np.ndarray, n_best: int, n_any: int) -> np.ndarray:
    """Return the points of highest density, and the first others of finite density."""
    if not len(points):
        return points
    heights = density.values(points)
    points, heights = points[np.isfinite(heights)], heights[np.isfinite(heights)]
    best = np.sort(np.argsort(-heights, kind="stable")[:n_best])
    others = np.setdiff1d(np.arange(len(points)), best)[:n_any]
    return points[np.concatenate([best, others]).astype(np.int64)]


def image_points(space: Unconstrained, mode: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the names of a mode's images, and their positions, (n_images, n_dims)."""
    values = {name: value[0] for name, value in space.constrain(mode[None]).values.items()}
    tried = list(islice(changes(values), 100))
    points = points_of(space, [change(values) for _, change in tried])
    inside = np.isfinite(points).all(axis=1)
    return [name for (name, _), keep in zip(tried, inside, strict=True) if keep], points[inside]


def prior_draws(space: Unconstrained, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
    """Return finite draws of the prior, (n_draws, n_dims); none if it cannot be sampled."""
    names = [rv.name for rv in space.model.free_RVs]
    with np.errstate(all="ignore"):
        try:
            values = pm.draw(space.model.free_RVs, n_draws, random_seed=rng, mode=WRITTEN_MODE)
        # Raised by flat priors, and by distributions at parameters out of range.
        except (NotImplementedError, ValueError, ArithmeticError, RuntimeError) as error:
            _log.info("The prior cannot be drawn from: %s", error)
            return np.empty((0, space.n_dims))
        points = space.free(Draws(dict(zip(names, map(np.asarray, values), strict=True))))
    return points[np.isfinite(points).all(axis=1)]
