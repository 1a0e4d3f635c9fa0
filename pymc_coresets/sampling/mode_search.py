"""Other modes of a posterior: starting points, and searches from them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pymc as pm

from pymc_coresets.deadline import paced
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import WRITTEN_MODE
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.climbs.many_climbs import climb_together, negative_at
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.symmetry.local_modes import NOTICEABLE, KnownModes, LocalMode
from pymc_coresets.sampling.symmetry.symmetries import Orbits
from pymc_coresets.sampling.symmetry.value_changes import changes, points_of

#: Most modes that are searched for, without their images: each is refined on all rows.
MOST_SEARCHED = 24
#: Number of known modes of which a new one might be a part.
_NEAREST = 8
#: Number of searches that step together.
_TOGETHER = 64

_log = logging.getLogger(__name__)


def mode_of(density: Density, around: Normal, n_ended: int = 0) -> LocalMode:
    """Return a mode with the log-density there."""
    return LocalMode(around, density.logp_and_gradient(around.location)[0], n_ended)


def find_modes(
    density: Density,
    known: Sequence[LocalMode],
    starts: np.ndarray,
    *,
    error: Callable[[np.ndarray, np.ndarray], float],
    is_over: Callable[[], bool] = lambda: False,
    orbits: Orbits | None = None,
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
    orbits : Orbits, optional
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
    >>> first = mode_of(density, laplace(density, np.array([3.0])))
    >>> starts = np.array([[-5.0], [2.0]])
    >>> found, n_starts = find_modes(density, [first], starts, error=lambda x, y: 0.0)
    >>> [mode.x.round(3) for mode in found]
    [array([4.]), array([-4.])]
    """
    found, first = KnownModes(known), known[0].around
    ends: list[tuple[float, np.ndarray]] = []
    n_starts = 0
    with paced("searching for other modes", len(starts), "starts") as count:
        for i in range(0, len(starts), _TOGETHER):
            if is_over():
                break
            some = starts[i : i + _TOGETHER]
            climbed = _climbed(density, first, some, found, is_over)
            n_starts += len(climbed)
            for height, x in climbed:
                where = _arrived(found, height, x)
                if where is not None:
                    _count(found, where)
                elif np.isfinite(height):
                    ends.append((height, x))
            count(len(some))
    for height, x in sorted(ends, key=lambda end: -end[0]):
        where = _arrived(found, height, x)
        if where is not None:
            _count(found, where)
        elif _may_be_noticeable(found.modes, height, x, error):
            _add_near(density, found, x, orbits)
    return found.modes, n_starts


def n_searched(modes: Sequence[LocalMode]) -> int:
    """Return the number of modes that are no images of others."""
    return sum(mode.parent is None for mode in modes)


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


def _add_near(density: Density, known: KnownModes, x: np.ndarray, orbits: Orbits | None) -> None:
    """Add the mode near the end of a search, unless the density hardly dips before a known one."""
    try:
        around = laplace(density, x, n_gradients=500, climbed=True)
    except SamplingError:  # a point where the climb stopped
        return
    found = mode_of(density, around, 1)
    for number in known.nearest(around)[:_NEAREST]:
        if not apart(density, known.modes[number].around, around):
            _count(known, number, found)
            return
    new = [found] if orbits is None else orbits.of(found, len(known))
    for mode in new:
        if mode.parent is None or not known.hold(mode.x):
            known.add(mode)


def _count(known: KnownModes, number: int, found: LocalMode | None = None) -> None:
    """Count one more start that ended at a mode, whose highest point may be `found`."""
    mode = known.modes[number]
    higher = mode if found is None or found.height <= mode.height else found
    known.set(
        number, replace(mode, around=higher.around, height=higher.height, n_ended=mode.n_ended + 1)
    )


def _arrived(known: KnownModes, height: float, x: np.ndarray) -> int | None:
    """Return the number of the mode that a point belongs to, or None."""
    [number] = known.holding(x[None], np.array([height]))
    return None if number < 0 else int(number)


def _climbed(
    density: Density,
    first: Normal,
    starts: np.ndarray,
    known: KnownModes,
    is_over: Callable[[], bool],
) -> list[tuple[float, np.ndarray]]:
    """Search from some starts until a known mode is near, or no step raises the density.

    Returns heights and points, without those of searches that are not over in time.
    """

    def negative(z: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return negative_at(density, first, z)

    def are_known(values: np.ndarray, z: np.ndarray) -> np.ndarray:
        return known.holding(first.at(z), -values) >= 0

    ends = climb_together(
        negative, first.whiten(starts), most_steps=100, are_known=are_known, is_over=is_over
    )
    over = ends.finished
    return list(zip(-ends.values[over], first.at(ends.points[over]), strict=True))


def apart(density: Density, one: Normal, other: Normal) -> bool:
    """Whether the density dips between two modes, on a path of highest density.

    By three nats, which chains hardly cross.

    Parameters
    ----------
    density : Density
    one, other : Normal
        Around modes of its density.
    """
    if one.is_near(other):
        return False

    way, shares = other.location - one.location, np.linspace(0, 1, 10)
    line = density.values(one.location + shares[:, None] * way)
    least = min(line[0], line[-1]) - 3.0
    if (line > least).all():
        return False
    path = np.stack([one.location, *_relaxed(density, one, way, shares[1:-1]), other.location])
    heights = density.values(np.concatenate([path, (path[1:] + path[:-1]) / 2]))
    return bool((heights <= least).any())


def _relaxed(density: Density, one: Normal, way: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return points of a path, (n_points, n_dims), of highest density across the straight line."""
    whole = one.factor.whiten(way)
    along, direction = shares[:, None] * whole, whole / np.linalg.norm(whole)

    def across(z: np.ndarray) -> np.ndarray:
        straight: np.ndarray = z - (z @ direction)[:, None] * direction
        return straight

    def negative(z: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = negative_at(density, one, along[which] + across(z))
        return values, across(slopes)

    ends = climb_together(negative, np.zeros_like(along), most_steps=15, joins=False)
    return one.at(along + across(ends.points))


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
