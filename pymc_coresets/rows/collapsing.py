"""Merging of rows that are equal in all their data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["collapse_rows"]


def collapse_rows(
    arrays: Sequence[NDArray[Any]], n_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Merge rows that are equal in every array: they have the same potential.

    Exact, in one sort of N fixed-length keys; time O(N log N) and memory O(N) times the length of
    a row.

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
    columns = [array.reshape(n_rows, -1) for array in arrays]
    # Adding zero makes -0.0 and 0.0 the same key.
    columns = [c + 0.0 if c.dtype.kind == "f" else c for c in columns]
    keys = np.concatenate(
        [np.ascontiguousarray(c).view(np.uint8).reshape(n_rows, -1) for c in columns], axis=1
    )
    whole = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).reshape(n_rows)
    _, first, counts = np.unique(whole, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order].astype(float)
