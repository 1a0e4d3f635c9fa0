"""Other modes of a posterior: starting points, and searches from them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    first, search = known[0].around, _Search(density, KnownModes(known), error, orbits)
    ends: list[_End] = []
    n_starts = 0
    with paced("searching for other modes", len(starts), "starts") as count:
        for i in range(0, len(starts), _TOGETHER):
            if is_over():
                break
            some = starts[i : i + _TOGETHER]
            refined = _ascended(density, first, some, search.are_known, is_over)
            n_starts += sum(end.n_starts for end in refined)
            ends += refined
            count(len(some))
    search.refine(ends)
    return search.known.modes, n_starts


def n_searched(modes: Sequence[LocalMode]) -> int:
    """Return the number of modes that are no images of others."""
    return sum(not mode.is_image for mode in modes)


@dataclass(frozen=True, eq=False)
class _End:
    """Where some searches have ended."""

    height: float
    x: np.ndarray
    n_starts: int


@dataclass(frozen=True, eq=False)
class _Search:
    """The modes that searches have found, and what decides whether another is one of these.

    Parameters
    ----------
    density : Density
    known : KnownModes
        Grows.
    error, orbits
        See `find_modes`.
    """

    density: Density
    known: KnownModes
    error: Callable[[np.ndarray, np.ndarray], float]
    orbits: Images
    _apart: dict[Pair, bool] = field(default_factory=dict)  # by identity: where there is a dip

    def are_known(self, values: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return which points, of some negative log-densities, are near a known mode."""
        return self.known.holding(points, -values) >= 0

    def refine(self, ends: Sequence[_End]) -> None:
        """Add the modes at the ends of searches, all at once.

        Most ends are at modes; from the others the search goes on by gradients, and along ridges by
        curvatures, until it meets a known mode or another search.
        """
        ends = self._settled(ends)
        for search in (self._by_gradients, self._by_curvature):
            if ends:
                refined = search(np.stack([end.x for end in ends]))
                ends = self._settled(_joined(refined, [end.n_starts for end in ends]))

    def _by_gradients(self, points: np.ndarray) -> Ends:
        def negative(x: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return negative_of_points(self.density, x)

        return minimise_together(negative, points, most_steps=_MOST_STEPS, are_known=self.are_known)

    def _by_curvature(self, points: np.ndarray) -> Ends:
        return maximise_by_curvature(
            self.density, points, n_gradients=_ON_RIDGES, are_known=self.are_known
        )

    def _settled(self, ends: Sequence[_End]) -> list[_End]:
        """Add the modes at some ends, and return the ends that are at none."""
        ends = self._not_known(ends)
        settled = settled_each(self.density, np.stack([end.x for end in ends])) if ends else []
        both = list(zip(ends, settled, strict=True))
        new = [(end, around) for end, around in both if isinstance(around, Normal)]
        if new:
            heights = self.density.values(np.stack([around.location for _, around in new]))
            self._add(
                LocalMode(around, float(height), end.n_starts)
                for (end, around), height in zip(new, heights, strict=True)
            )
        return [end for end, around in both if isinstance(around, SamplingError)]

    def _may_be_noticeable(self, height: float, x: np.ndarray) -> bool:
        """Whether a mode of this height may hold noticeable mass, given the sample.

        The volumes of modes may differ by ten nats, and the sample errs by four standard errors.
        """
        highest = max(self.known.modes, key=lambda mode: mode.height)
        behind = highest.height - height + np.log(NOTICEABLE) - 10.0
        some = n_searched(self.known.modes) < MOST_SEARCHED
        return some and bool(behind <= 0 or behind <= 4.0 * self.error(highest.x, x))

    def _not_known(self, ends: Sequence[_End]) -> list[_End]:
        """Return the ends that are at no known mode, and whose mass may be noticeable."""
        left = []
        for end in sorted(ends, key=lambda end: -end.height):
            [number] = self.known.holding(end.x[None], np.array([end.height]))
            if number >= 0:
                self._count(int(number), end.n_starts, self.known.modes[number])
            elif np.isfinite(end.height) and self._may_be_noticeable(end.height, end.x):
                left.append(end)
        return left

    def _add(self, found: Iterable[LocalMode]) -> None:
        """Add modes, the highest first, unless there is hardly a dip between one and a known one.

        The ways from each to the nearest known ones and to each other are looked at together.
        """
        modes = sorted(found, key=lambda mode: -mode.height)
        every, pairs = KnownModes(self.known.modes), []
        for mode in modes:
            pairs += [(every.modes[number].around, mode.around) for number in _nearest(every, mode)]
            every.add(mode)
        self._look(pairs)
        for mode in modes:
            [number] = self.known.holding(mode.x[None], np.array([mode.height]))
            for part_of in [int(number)] if number >= 0 else self._without_dip(mode):
                self._count(part_of, mode.n_ended, mode)
                break
            else:
                if self._may_be_noticeable(mode.height, mode.x):
                    for image in self.orbits.of(mode, len(self.known)):
                        if not (image.is_image and self.known.hold(image.x)):
                            self.known.add(image)

    def _without_dip(self, mode: LocalMode) -> Iterator[int]:
        """Yield the numbers of known modes, of the nearest, with no dip before them."""
        nearest = _nearest(self.known, mode)
        self._look([(self.known.modes[number].around, mode.around) for number in nearest])
        for number in nearest:
            if not self._apart[self.known.modes[number].around, mode.around]:
                yield number

    def _look(self, pairs: Sequence[Pair]) -> None:
        """Find out, for pairs of modes, whether the density dips between them."""
        new = [pair for pair in pairs if pair not in self._apart]
        self._apart.update(zip(new, are_apart(self.density, new).tolist(), strict=True))

    def _count(self, number: int, n_starts: int, found: LocalMode) -> None:
        """Count starts that ended at a known mode, whose highest point may be `found`."""
        mode = self.known.modes[number]
        higher = mode if found.height <= mode.height else found
        n_ended = mode.n_ended + n_starts
        counted = replace(mode, around=higher.around, height=higher.height, n_ended=n_ended)
        self.known.set(number, counted)


def _nearest(known: KnownModes, mode: LocalMode) -> list[int]:
    """Return the numbers of the known modes of which a new one might be a part."""
    return known.nearest(mode.around)[:_NEAREST]


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
    are_known: Callable[[np.ndarray, np.ndarray], np.ndarray],
    is_over: Callable[[], bool],
) -> list[_End]:
    """Search from some starts until a known mode is near, or no step raises the density.

    Returns the ends, without those of searches that are not over in time.
    """

    def negative(z: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return negative_at(density, first, z)

    ends = minimise_together(
        negative,
        first.whiten(starts),
        most_steps=100,
        are_known=lambda values, z: are_known(values, first.at(z)),
        is_over=is_over,
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
