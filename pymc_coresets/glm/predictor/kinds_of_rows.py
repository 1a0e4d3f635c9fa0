"""Rows that are equal in what their log-density depends on besides the predictor."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Up to so many kinds of rows, something is computed once for each of them.
MOST_DISTINCT = 4_096
_BEGINNING = 1_000  # rows, whose values are often all that there are


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
