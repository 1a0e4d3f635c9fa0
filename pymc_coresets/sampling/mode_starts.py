"""Where to look for other modes: draws of the prior, and images of a mode that is known."""

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, islice

import numpy as np
import pymc as pm

from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import WRITTEN_MODE
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.laplace import LaplaceApproximation

_DRAWS_OF_PRIOR, _BEST, _ANY = 48, 6, 6  # how many, and how many climbs begin there
_JITTERED, _IMAGES = 4, 8  # climbs that begin near the initial point, and at images
# What flat priors raise, and distributions at parameters out of range.
_NO_DRAWS = (NotImplementedError, ValueError, ArithmeticError, RuntimeError)
_MOST_IMAGES = 60  # that are evaluated


_log = logging.getLogger(__name__)


def starting_points(first: LaplaceApproximation, *, rng: np.random.Generator) -> np.ndarray:
    """Return points from which to look for other modes, (n_starts, n_dims).

    The highest images of a known mode under changes of sign and exchanges of entries; draws of the
    prior, half of them those of highest density; and the initial point with jitter.

    Parameters
    ----------
    first : LaplaceApproximation
        The mode that is known, with the density of a sample of the rows.
    rng : numpy.random.Generator

    Examples
    --------
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 2.0, 0.5)
    >>> first = LaplaceApproximation.of(Unconstrained(model))
    >>> starting_points(first, rng=np.random.default_rng(1)).shape
    (17, 1)
    """
    space = first.space
    logp = space.logp_and_gradient

    def height(x: np.ndarray) -> float:
        return logp(x)[0]

    around = space.start + rng.uniform(-1.0, 1.0, (_JITTERED, space.n_dims))
    return np.concatenate(
        [
            starts_at_images(first),
            _highest(height, prior_draws(space, _DRAWS_OF_PRIOR, rng=rng), _BEST, _ANY),
            _highest(height, around, 0, _JITTERED),
        ]
    )


def starts_at_images(of: LaplaceApproximation) -> np.ndarray:
    """Return the highest images of a mode, (n_starts, n_dims)."""
    points = image_points(of.space, of.mode)[1]
    return _highest(lambda x: of.space.logp_and_gradient(x)[0], points, _IMAGES, 0)


def _highest(
    height: Callable[[np.ndarray], float], points: np.ndarray, n_best: int, n_any: int
) -> np.ndarray:
    """Return the points of highest density, and the first of the others where it is finite."""
    heights = np.array([height(x) for x in points])
    points, heights = points[np.isfinite(heights)], heights[np.isfinite(heights)]
    best = np.sort(np.argsort(-heights, kind="stable")[:n_best])
    others = np.setdiff1d(np.arange(len(points)), best)[:n_any]
    return points[np.concatenate([best, others]).astype(np.int64)]


def image_points(space: Unconstrained, mode: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the names of a mode's images, and where they are, (n_images, n_dims)."""
    values = {name: value[0] for name, value in space.constrain(mode[None]).values.items()}
    found = list(islice(images(values), _MOST_IMAGES))
    with np.errstate(all="ignore"):  # some images are outside of the support
        points = space.free(Draws({n: np.stack([image[n] for _, image in found]) for n in values}))
    inside = np.isfinite(points).all(axis=1)
    return [name for (name, _), keep in zip(found, inside, strict=True) if keep], points[inside]


def prior_draws(space: Unconstrained, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
    """Return draws of the prior, (n_draws, n_dims), that are finite; none where it has none."""
    names = [rv.name for rv in space.model.free_RVs]
    with np.errstate(all="ignore"):
        try:
            values = pm.draw(space.model.free_RVs, n_draws, random_seed=rng, mode=WRITTEN_MODE)
        except _NO_DRAWS as error:
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
    yield from _signs(values)
    for length, names in _axes(values).items():
        yield from _of_entries(values, length, names)


def _signs(values: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    for name in values:
        yield f"sign of {name}", {**values, name: -values[name]}
    for one, other in combinations(values, 2):
        yield f"sign of {one}, {other}", {**values, one: -values[one], other: -values[other]}


def _axes(values: Mapping[str, np.ndarray]) -> dict[int, list[str]]:
    """Return the variables that have an axis of each length."""
    lengths = dict.fromkeys(n for value in values.values() for n in value.shape if n > 1)
    return {n: [name for name, value in values.items() if n in value.shape] for n in lengths}


def _of_entries(
    values: Mapping[str, np.ndarray], length: int, names: list[str]
) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    axes = {name: values[name].shape.index(length) for name in names}
    together = ", ".join(names)
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
        if len(names) > 1:
            for name in names:
                yield (
                    f"entries {i} and {j} of {name} exchanged",
                    {**values, name: exchanged[name]},
                )
