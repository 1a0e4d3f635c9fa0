"""Where to look for other modes: draws of the prior, and images of a mode that is known."""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations

import numpy as np
import pymc as pm

from pymc_coresets.compat.pytensor_api import Mode
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained

__all__ = ["images", "jittered", "prior_starts", "screened"]

_MOST_IMAGES = 60
_MOST_PAIRS = 6  # of variables whose signs change together, for each variable


def prior_starts(space: Unconstrained, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
    """Return draws of the prior, (n_draws, n_dims), without those that are no numbers.

    None where a prior has no draws, as that of a flat one.
    """
    names = [rv.name for rv in space.model.free_RVs]
    plain = Mode(linker="py", optimizer=None)
    try:
        values = pm.draw(space.model.free_RVs, n_draws, random_seed=rng, mode=plain)
    except NotImplementedError:
        return np.empty((0, space.n_dims))
    with np.errstate(all="ignore"):
        points = space.free(Draws(dict(zip(names, map(np.asarray, values), strict=True))))
    return points[np.isfinite(points).all(axis=1)]


def jittered(space: Unconstrained, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
    """Return the model's initial point with what chains of PyMC begin with added, U(-1, 1)."""
    return space.start + rng.uniform(-1.0, 1.0, (n_draws, space.n_dims))


def screened(
    logp: Callable[[np.ndarray], float], points: np.ndarray, n_best: int, n_any: int
) -> np.ndarray:
    """Return the points of highest density, and the first of the others where it is finite."""
    heights = np.array([logp(x) for x in points])
    points, heights = points[np.isfinite(heights)], heights[np.isfinite(heights)]
    best = np.sort(np.argsort(-heights)[:n_best])
    others = np.setdiff1d(np.arange(len(points)), best)[:n_any]
    return points[np.concatenate([best, others])]


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
