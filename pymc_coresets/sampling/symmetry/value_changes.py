"""Changes of the values of variables under which posteriors may be symmetric."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, combinations

import numpy as np

from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained

type Values = Mapping[str, np.ndarray]
type Change = tuple[str, Callable[[Values], Values]]

#: Periods that are tried: of angles in radians, turns and degrees, and halves of them.
PERIODS = {"pi": np.pi, "2 pi": 2 * np.pi, "1/2": 0.5, "1": 1.0, "180": 180.0, "360": 360.0}


def changes(values: Values) -> Iterator[Change]:
    """Return changes of sign and exchanges of entries and variables, with their names.

    Those of neural networks, factor models and mixtures are symmetries of their posteriors.

    Parameters
    ----------
    values : mapping of str to ndarray
        Of each variable, on its own scale, for their shapes.

    Examples
    --------
    >>> values = {"a": np.array(2.0), "mu": np.array([1.0, 3.0])}
    >>> for name, change in changes(values):
    ...     print(name, *change(values).values())
    sign of a -2.0 [1. 3.]
    sign of mu 2.0 [-1. -3.]
    sign of a, mu -2.0 [-1. -3.]
    sign of entry 0 of mu 2.0 [-1.  3.]
    sign of entry 1 of mu 2.0 [ 1. -3.]
    entries 0 and 1 of mu exchanged 2.0 [3. 1.]
    """
    for names in chain(combinations(values, 1), combinations(values, 2)):
        yield f"sign of {', '.join(names)}", signs_of(names)
    for a, b in combinations(values, 2):
        if values[a].shape == values[b].shape:
            yield f"{a} and {b} exchanged", _swapped(a, b)
    for length in dict.fromkeys(n for value in values.values() for n in value.shape if n > 1):
        axes = {
            n: value.shape.index(length) for n, value in values.items() if length in value.shape
        }
        yield from _of_entries(axes, length)


def signs_of(names: Sequence[str]) -> Callable[[Values], Values]:
    """Return the change of sign of whole variables."""
    return lambda values: {**values, **{name: -values[name] for name in names}}


def _swapped(a: str, b: str) -> Callable[[Values], Values]:
    return lambda values: {**values, a: values[b], b: values[a]}


def _of_entries(axes: Mapping[str, int], length: int) -> Iterator[Change]:
    """Return the changes of entries along axes of a length, in all variables at once, and in one.

    Neighbours are exchanged first, which alone make up all orders.
    """
    every = tuple(axes)
    groups = [every, *((name,) for name in every if len(every) > 1)]
    for i in range(length):
        for names in groups:
            own = {name: axes[name] for name in names}
            yield f"sign of entry {i} of {', '.join(names)}", _flipped(own, i, length)
    for i, j in sorted(combinations(range(length), 2), key=lambda pair: pair[1] - pair[0]):
        for names in groups:
            own = {name: axes[name] for name in names}
            yield (
                f"entries {i} and {j} of {', '.join(names)} exchanged",
                _ordered(own, i, j, length),
            )


def _flipped(axes: Mapping[str, int], i: int, length: int) -> Callable[[Values], Values]:
    signs = np.where(np.arange(length) == i, -1.0, 1.0)

    def change(values: Values) -> Values:
        flipped = {
            name: np.moveaxis(np.moveaxis(values[name], axis, -1) * signs, -1, axis)
            for name, axis in axes.items()
        }
        return {**values, **flipped}

    return change


def _ordered(axes: Mapping[str, int], i: int, j: int, length: int) -> Callable[[Values], Values]:
    order = np.arange(length)
    order[[i, j]] = j, i

    def change(values: Values) -> Values:
        return {**values, **{name: values[name].take(order, axis) for name, axis in axes.items()}}

    return change


def shifted(name: str, index: tuple[int, ...], by: float) -> Callable[[Values], Values]:
    """Return the addition of a number to an entry of a variable."""

    def change(values: Values) -> Values:
        moved = np.array(values[name], dtype=float)
        moved[index] += by
        return {**values, name: moved}

    return change


def both(
    one: Callable[[Values], Values], other: Callable[[Values], Values]
) -> Callable[[Values], Values]:
    """Return one change after another."""
    return lambda values: other(one(values))


def points_of(space: Unconstrained, images: Sequence[Values]) -> np.ndarray:
    """Return points of the unconstrained space, (n_images, n_dims); some may not be finite."""
    names = [rv.name for rv in space.model.free_RVs]
    with np.errstate(all="ignore"):  # some images are outside of the support
        return space.free(Draws({n: np.stack([image[n] for image in images]) for n in names}))
