"""Rows that are alike: in all but their predictors, or in the numbers that they depend on."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Array = NDArray[np.float64]

#: Up to so many kinds of rows, something is computed once for each of them.
MOST_DISTINCT = 4_096
#: Up to so many numbers, each row is taken to depend on all of them.
MOST_TOGETHER = 4
#: Most numbers that a row may depend on.
MOST_OWN = 5

_BEGINNING = 1_000  # rows, whose values are often all that there are
_STEPS = (1.0, -1.0, 0.03, -0.03)
_LEAST_STEP = 1e-3  # of a number's size
_ROUNDING = 64 * np.finfo(float).eps


def distinct_rows(
    arrays: Sequence[NDArray[Any]], most: int = MOST_DISTINCT
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Number the distinct rows of some columns, and say where one of each is.

    Returns None where there are more than `most`, or seem to be by the first thousand.

    Parameters
    ----------
    arrays : sequence of ndarray, each of shape (n_rows, ...)
        At least one.
    most : int, default 4096

    Examples
    --------
    >>> numbers, some = distinct_rows([np.array([5, 3, 5]), np.array([0.5, 0.0, 0.5])])
    >>> numbers, some
    (array([1, 0, 1]), array([1, 2]))
    """
    numbers, size = np.zeros(len(arrays[0]), dtype=np.int64), 1
    for column in (c for a in arrays for c in a.reshape(len(a), -1).T):
        beginning = np.unique(column[:_BEGINNING])
        if len(beginning) == _BEGINNING and len(column) > most:
            return None  # numbers of which hardly any two are equal
        values, own = _numbered(column, beginning)
        numbers, size = numbers * len(values) + own, size * len(values)
        if size > most:
            found, numbers = np.unique(numbers, return_inverse=True)
            size = len(found)
            if size > most:
                return None
    some = np.full(size, -1)
    some[numbers] = np.arange(len(numbers))
    present = some >= 0
    if not present.all():
        numbers = (np.cumsum(present) - 1)[numbers]
    return numbers, some[present]


def _numbered(column: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct values, which may be the given ones, and the number of each entry's."""
    numbers = np.minimum(np.searchsorted(values, column), len(values) - 1)
    if np.array_equal(values[numbers], column):
        return values, numbers
    return np.unique(column, return_inverse=True)


def effects(density: Callable[[Array], Array], middle: Array, widths: Array) -> Array:
    """Return how much each row's log-density changes with each number that rows see.

    A change to where the density is not finite does not count: that may be a check of all numbers,
    such as that cut points ascend.

    Parameters
    ----------
    density : callable
        From numbers (k, n_points, n_rows) to log-densities (n_points, n_rows).
    middle : ndarray of shape (k, n_rows)
    widths : ndarray of shape (k, n_rows)
        Steps that matter; a thousandth of a number's size at least.

    Returns
    -------
    ndarray of shape (k, n_rows)
        In nats; 0 where a row does not depend on a number.

    Examples
    --------
    >>> middle = np.zeros((3, 1))
    >>> effects(lambda seen: seen[0] - 2 * seen[2], middle, np.ones((3, 1))).ravel()
    array([1., 0., 2.])
    """
    found, steps = np.zeros(middle.shape), np.array(_STEPS)[:, None]
    widths = np.maximum(widths, _LEAST_STEP * (1 + np.abs(middle)))
    base = density(middle[:, None])
    least = _ROUNDING * (1 + np.abs(base))
    with np.errstate(invalid="ignore"):
        for j, width in enumerate(widths):
            seen = np.repeat(middle[:, None], len(steps), axis=1)
            seen[j] += steps * width
            change = np.abs(density(seen) - base)
            counts = np.isfinite(change) & (change > least)
            found[j] = np.where(counts, change, 0.0).max(axis=0)
    return found


def kinds_by_entries(size: Array) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Group rows by the numbers that they depend on; by those that matter most, if more than five.

    Parameters
    ----------
    size : ndarray of shape (k, n_rows)
        From `effects`.

    Yields
    ------
    own : ndarray of int64
        Numbers that some rows depend on, ascending.
    which : ndarray of int64
        Those rows, ascending.

    Examples
    --------
    >>> for own, which in kinds_by_entries(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 5.0]])):
    ...     own, which
    (array([1]), array([2]))
    (array([0]), array([0, 1]))
    """
    order = np.argsort(-size, axis=0, kind="stable")[:MOST_OWN]
    is_own = np.zeros(size.shape, dtype=bool)
    np.put_along_axis(is_own, order, values=True, axis=0)
    is_own &= size > 0
    kinds, numbers = np.unique(is_own.T, axis=0, return_inverse=True)
    for kind, own in enumerate(kinds):
        yield np.flatnonzero(own), np.flatnonzero(numbers.ravel() == kind)
