"""Merging of rows that are equal in all their data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

type Columns = Sequence[NDArray[Any]]

_PROBED = 20_000  # rows
_DISTINCT = 0.99  # of the probed rows: merging cannot pay
# An odd constant near 2**64 over the golden ratio: multiplication by it spreads the low bits.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


def collapse_rows(arrays: Columns, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Merge rows that are equal in every array: they have the same potential.

    Exact: rows of the same hash are compared with the first of them.  Time O(N) times the length
    of a row; memory O(N).

    Parameters
    ----------
    arrays : sequence of ndarray
        Everything that is indexed by the observation, each array with the N rows along its first
        axis.
    n_rows : int
        N.

    Returns
    -------
    which : ndarray of int64
        The first row of each kind, sorted.
    counts : ndarray of float64
        How many rows are equal to it; they sum to N.

    Examples
    --------
    >>> collapse_rows([np.array([1, 0, 1, 1])], 4)
    (array([0, 1]), array([3., 1.]))
    """
    if not arrays:
        return np.zeros(1, dtype=np.int64), np.array([float(n_rows)])
    columns = _columns(arrays, n_rows)
    kinds, found = pd.factorize(_hashes(columns, n_rows))  # numbered as they appear
    first = np.empty(len(found), dtype=np.int64)
    first[kinds[::-1]] = np.arange(n_rows)[::-1]  # the last one assigned stays
    same = first[kinds]
    if all(np.array_equal(c, c[same]) for c in columns):
        return first, np.bincount(kinds).astype(float)
    return _sorted_apart(columns)


def may_collapse(arrays: Columns, n_rows: int) -> bool:
    """Whether merging can pay: not all of a few thousand evenly spread rows are distinct.

    Blind to equal rows that are rare, such as pairs.

    Examples
    --------
    >>> may_collapse([np.arange(100)], 100), may_collapse([np.arange(100) // 2], 100)
    (False, True)
    """
    if n_rows <= _PROBED:
        probed, n_probed = list(arrays), n_rows
    else:
        rng = np.random.default_rng(n_rows)
        rows = np.sort(rng.choice(n_rows, _PROBED, replace=False))
        probed, n_probed = [array[rows] for array in arrays], _PROBED
    which, _ = collapse_rows(probed, n_probed)
    return len(which) < _DISTINCT * n_probed


def _columns(arrays: Columns, n_rows: int) -> list[NDArray[np.uint64]]:
    """Return the bits of each column as whole numbers."""
    columns = [c for array in arrays for c in array.reshape(n_rows, -1).T]
    # Adding zero makes -0.0 and 0.0 the same key.
    return [(c + 0.0).astype(float).view(np.uint64) if c.dtype.kind == "f"
            else c.astype(np.int64).view(np.uint64) for c in columns]  # fmt: skip


def _hashes(columns: Sequence[NDArray[np.uint64]], n_rows: int) -> NDArray[np.uint64]:
    hashes = np.zeros(n_rows, dtype=np.uint64)
    for column in columns:
        hashes ^= column
        hashes *= _MULTIPLIER
        hashes ^= hashes >> _SHIFT
    return hashes


def _sorted_apart(
    columns: Sequence[NDArray[np.uint64]],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Do the same by sorting the rows themselves, where two kinds have the same hash."""
    _, first, counts = np.unique(
        np.stack(columns, axis=1), axis=0, return_index=True, return_counts=True
    )
    order = np.argsort(first)
    return first[order], counts[order].astype(float)
