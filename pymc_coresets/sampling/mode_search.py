"""Other modes of a posterior: starting points, and searches from them."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import WRITTEN_MODE
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.climbing import climb, negative_of
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.normal import Normal

NOTICEABLE = 0.01  #: Smallest share of the posterior's mass of a mode that is reported.

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LocalMode:
    """A mode of a posterior, and the number of starts that ended there.

    Parameters
    ----------
    around : Normal
        Its position and curvature.
    height : float
        The log-density there, in nats.
    n_ended : int, default 0
    """

    around: Normal
    height: float
    n_ended: int = 0

    @property
    def x(self) -> np.ndarray:
        """Its position, (n_dims,)."""
        return self.around.location

    @property
    def log_mass(self) -> float:
        """Log of its mass by Laplace's approximation, up to a constant."""
        return self.around.log_mass(self.height)


def mode_of(space: Unconstrained, around: Normal, n_ended: int = 0) -> LocalMode:
    """Return a mode with the log-density of a space there."""
    return LocalMode(around, space.logp_and_gradient(around.location)[0], n_ended)


def find_modes(
    space: Unconstrained,
    known: Sequence[LocalMode],
    starts: np.ndarray,
    *,
    error: Callable[[np.ndarray, np.ndarray], float],
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[list[LocalMode], int]:
    """Search for modes of a density from many starts.

    Searches in the coordinates of the first known mode, and stops early near any known mode.  Modes
    between which the density hardly dips count as one.

    Parameters
    ----------
    space : Unconstrained
    known : sequence of LocalMode
        Modes of the density of a sample, at least one.
    starts : ndarray of shape (n_starts, n_dims)
        Where the density is finite.
    error : callable
        Returns the standard error, in nats, of the difference of the log-densities at two points
        from that of all rows.
    is_over : callable
        Returns whether no further search should begin.

    Returns
    -------
    list of LocalMode
        First the known ones, then others whose mass may be noticeable.
    int
        Number of starts used.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as model:
    ...     m = pm.Mixture("m", [0.5, 0.5], pm.Normal.dist([-4.0, 4.0], 1.0))
    >>> space = Unconstrained(model)
    >>> first = mode_of(space, laplace(space, np.array([3.0])))
    >>> starts = np.array([[-5.0], [2.0]])
    >>> found, n_starts = find_modes(space, [first], starts, error=lambda x, y: 0.0)
    >>> [mode.x.round(3) for mode in found]
    [array([4.]), array([-4.])]
    """
    known, first = list(known), known[0].around
    ends: list[tuple[float, np.ndarray]] = []
    n_starts = 0
    for start in starts:
        if is_over():
            break
        n_starts += 1
        height, x = _climbed(space, first, start, known)
        where = _arrived(known, height, x)
        if where is not None:
            _count(known, where)
        elif np.isfinite(height):
            ends.append((height, x))
    for height, x in sorted(ends, key=lambda end: -end[0]):
        where = _arrived(known, height, x)
        if where is not None:
            _count(known, where)
        elif _may_be_noticeable(known, height, x, error):
            _add_near(space, known, x)
    return known, n_starts


def _may_be_noticeable(
    known: Sequence[LocalMode],
    height: float,
    x: np.ndarray,
    error: Callable[[np.ndarray, np.ndarray], float],
) -> bool:
    """Whether a mode of this height may hold noticeable mass, given the sample; eight at most.

    The volumes of modes may differ by ten nats, and the sample errs by four standard errors.
    """
    highest = max(known, key=lambda mode: mode.height)
    behind = highest.height - height + np.log(NOTICEABLE) - 10.0
    return len(known) < 8 and bool(behind <= 0 or behind <= 4.0 * error(highest.x, x))


def _add_near(space: Unconstrained, known: list[LocalMode], x: np.ndarray) -> None:
    """Add the mode near the end of a search, unless the density hardly dips before a known one."""
    try:
        around = laplace(space, x, n_gradients=500)
    except SamplingError:  # a point where the climb stopped
        return
    found = mode_of(space, around, 1)
    for number, mode in enumerate(known):
        if not apart(space, mode.around, around):
            _count(known, number, found)
            return
    known.append(found)


def _count(known: list[LocalMode], number: int, found: LocalMode | None = None) -> None:
    """Count one more start that ended at a mode, whose highest point may be `found`."""
    mode = known[number]
    higher = mode if found is None or found.height <= mode.height else found
    known[number] = replace(higher, n_ended=mode.n_ended + 1)


def _arrived(known: Sequence[LocalMode], height: float, x: np.ndarray) -> int | None:
    """Return the number of the mode near a point: in distance, and within 4 nats."""
    for number, mode in enumerate(known):
        if mode.around.has_near(x) and height > mode.height - 4.0:
            return number
    return None


def _climbed(
    space: Unconstrained, first: Normal, start: np.ndarray, known: Sequence[LocalMode]
) -> tuple[float, np.ndarray]:
    """Search from a start until a known mode is near, or no step raises the density."""
    negative = negative_of(space, first)

    def stop_near_known(z: np.ndarray) -> None:
        value = negative(z)[0]
        if np.isfinite(value) and _arrived(known, -value, first.at(z)) is not None:
            raise StopIteration

    begin = first.whiten(start)
    found = climb(negative, begin, most_steps=100, callback=stop_near_known).x
    z = found if np.isfinite(found).all() else begin
    return -negative(z)[0], first.at(z)


def apart(space: Unconstrained, one: Normal, other: Normal) -> bool:
    """Whether the density dips between two modes, on a path of highest density.

    By three nats, which chains hardly cross.

    Parameters
    ----------
    space : Unconstrained
    one, other : Normal
        Around modes of its density.
    """
    if one.is_near(other):
        return False

    def height(x: np.ndarray) -> float:
        return space.logp_and_gradient(x)[0]

    way = other.location - one.location
    least = min(height(one.location), height(other.location)) - 3.0
    shares = np.linspace(0, 1, 10)[1:-1]
    if all(height(one.location + share * way) > least for share in shares):
        return False
    at = one.location
    for x in [*_relaxed(space, one, way, shares), other.location]:
        if height(x) <= least or height((at + x) / 2) <= least:
            return True
        at = x
    return False


def _relaxed(
    space: Unconstrained, one: Normal, way: np.ndarray, shares: np.ndarray
) -> list[np.ndarray]:
    """Return points of a path, each of highest density across the straight line."""
    whole = one.factor.whiten(way)
    direction = whole / np.linalg.norm(whole)
    density, aside, points = negative_of(space, one), np.zeros_like(way), []

    def across(z: np.ndarray) -> np.ndarray:
        straight: np.ndarray = z - direction * (direction @ z)
        return straight

    for along in shares[:, None] * whole:

        def negative(z: np.ndarray, along: np.ndarray = along) -> tuple[float, np.ndarray]:
            value, slope = density(along + across(z))
            return value, across(slope)

        found = climb(negative, aside, most_steps=15).x
        aside = across(found if np.isfinite(found).all() else aside)
        points.append(one.at(along + aside))
    return points


def starting_points(
    space: Unconstrained, mode: np.ndarray, *, rng: np.random.Generator
) -> np.ndarray:
    """Return points from which to search for other modes, (n_starts, n_dims).

    The highest images of a known mode under changes of sign and exchanges of entries; draws of the
    prior, half of them those of highest density; and the initial point with jitter.

    Parameters
    ----------
    space : Unconstrained
        With the density of a sample of the rows.
    mode : ndarray of shape (n_dims,)
        The known mode.
    rng : numpy.random.Generator

    Examples
    --------
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 2.0, 0.5)
    >>> rng = np.random.default_rng(1)
    >>> starting_points(Unconstrained(model), np.array([2.0]), rng=rng).shape
    (17, 1)
    """
    around = space.start + rng.uniform(-1.0, 1.0, (4, space.n_dims))
    return np.concatenate(
        [
            starts_at_images(space, mode),
            _highest(space, prior_draws(space, 48, rng=rng), 6, 6),
            _highest(space, around, 0, 4),
        ]
    )


def starts_at_images(space: Unconstrained, mode: np.ndarray) -> np.ndarray:
    """Return the eight highest images of a mode (or all), (n_starts, n_dims)."""
    return _highest(space, image_points(space, mode)[1], 8, 0)


def _highest(space: Unconstrained, points: np.ndarray, n_best: int, n_any: int) -> np.ndarray:
    """Return the points of highest density, and the first others of finite density."""
    heights = np.array([space.logp_and_gradient(x)[0] for x in points])
    points, heights = points[np.isfinite(heights)], heights[np.isfinite(heights)]
    best = np.sort(np.argsort(-heights, kind="stable")[:n_best])
    others = np.setdiff1d(np.arange(len(points)), best)[:n_any]
    return points[np.concatenate([best, others]).astype(np.int64)]


def image_points(space: Unconstrained, mode: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the names of a mode's images, and their positions, (n_images, n_dims)."""
    values = {name: value[0] for name, value in space.constrain(mode[None]).values.items()}
    found = list(islice(images(values), 60))
    with np.errstate(all="ignore"):  # some images are outside of the support
        points = space.free(Draws({n: np.stack([image[n] for _, image in found]) for n in values}))
    inside = np.isfinite(points).all(axis=1)
    return [name for (name, _), keep in zip(found, inside, strict=True) if keep], points[inside]


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


def images(values: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Return images of a point under changes of sign and exchanges of entries, with their names.

    Those of neural networks, factor models and mixtures are symmetries of their posteriors.

    Parameters
    ----------
    values : mapping of str to ndarray
        Of each variable, on its own scale.

    Examples
    --------
    >>> for name, image in images({"a": np.array(2.0), "mu": np.array([1.0, 3.0])}):
    ...     print(name, *image.values())
    sign of a -2.0 [1. 3.]
    sign of mu 2.0 [-1. -3.]
    sign of a, mu -2.0 [-1. -3.]
    sign of entry 0 of mu 2.0 [-1.  3.]
    sign of entry 1 of mu 2.0 [ 1. -3.]
    entries 0 and 1 of mu exchanged 2.0 [3. 1.]
    """
    for names in chain(combinations(values, 1), combinations(values, 2)):
        yield f"sign of {', '.join(names)}", {**values, **{name: -values[name] for name in names}}
    for length in dict.fromkeys(n for value in values.values() for n in value.shape if n > 1):
        yield from _of_entries(values, length)


def _of_entries(
    values: Mapping[str, np.ndarray], length: int
) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Return the images of the entries along axes of a length, in all variables at once."""
    axes = {n: value.shape.index(length) for n, value in values.items() if length in value.shape}
    together = ", ".join(axes)
    for i in range(length):
        signs = np.where(np.arange(length) == i, -1.0, 1.0)
        flipped = {
            name: np.moveaxis(np.moveaxis(values[name], axis, -1) * signs, -1, axis)
            for name, axis in axes.items()
        }
        yield f"sign of entry {i} of {together}", {**values, **flipped}
    for i, j in combinations(range(length), 2):
        order = np.arange(length)
        order[[i, j]] = j, i
        exchanged = {name: values[name].take(order, axis) for name, axis in axes.items()}
        yield f"entries {i} and {j} of {together} exchanged", {**values, **exchanged}
        if len(axes) > 1:
            for name, value in exchanged.items():
                yield f"entries {i} and {j} of {name} exchanged", {**values, name: value}
