"""Derivatives by central differences, at one point or at many."""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse

from pymc_coresets.numerics import rows_at_once

type OfPoints = Callable[[np.ndarray], np.ndarray]
type Places = tuple[np.ndarray, np.ndarray]


def both_sides(function: OfPoints, points: np.ndarray, moves: np.ndarray) -> list[np.ndarray]:
    """Evaluate a function ahead of points and behind them, for all moves (n_moves, n_dims).

    From one point (n_dims,), or from one for each move.
    """
    return np.split(function(np.concatenate([points + moves, points - moves])), 2)


def blocks_of_differences(
    function: OfPoints, points: np.ndarray, steps: np.ndarray, where: Places
) -> Iterator[np.ndarray]:
    """Yield derivatives by central differences, (n_coordinates, p) in all, some at once.

    Parameters
    ----------
    function : callable
        Takes points (n, n_dims), and returns values (n, p).
    points, steps : ndarray of shape (n_points, n_dims)
    where : pair of ndarray of int, of shape (n_coordinates,)
        The number of the point of each derivative, and that of the coordinate.

    Examples
    --------
    >>> points, where = np.array([[1.0], [3.0]]), (np.array([0, 1]), np.array([0, 0]))
    >>> list(blocks_of_differences(lambda x: x**2, points, np.ones((2, 1)), where))
    [array([[2.],
           [6.]])]
    """
    n_blocks = max(-(-len(where[0]) // rows_at_once(4 * points.shape[1])), 1)
    for each, coordinates in zip(*(np.array_split(w, n_blocks) for w in where), strict=True):
        x, lengths = points[each], steps[each, coordinates]
        moves = np.zeros_like(x)
        moves[np.arange(len(x)), coordinates] = lengths
        ahead, behind = both_sides(function, x, moves)
        with np.errstate(invalid="ignore", over="ignore"):
            yield (ahead - behind) / (2 * lengths[:, None])


def _at_one(coordinates: np.ndarray) -> Places:
    """Return some coordinates of one point."""
    return np.zeros_like(coordinates), coordinates


def differences(function: OfPoints, x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the derivatives of a function at a point, (n_dims, p).

    Parameters
    ----------
    function : callable
        See `blocks_of_differences`.
    x, steps : ndarray of shape (n_dims,)

    Examples
    --------
    >>> differences(lambda x: x[:, :1] ** 2, np.ones(2), np.full(2, 0.5))
    array([[2.],
           [0.]])
    """
    blocks = blocks_of_differences(function, x[None], steps[None], _at_one(np.arange(len(x))))
    return np.concatenate(list(blocks))


def sparse_differences(
    function: OfPoints, x: np.ndarray, steps: np.ndarray, which: np.ndarray | slice = slice(None)
) -> sparse.csr_array:
    """Return the non-zero derivatives of a function at a point.

    Parameters
    ----------
    function, x, steps
        See `differences`.
    which : ndarray of int, or slice
        Coordinates; all by default.

    Returns
    -------
    csr_array of shape (n_coordinates, p)

    Examples
    --------
    >>> sparse_differences(lambda x: x[:, :1] ** 2, np.ones(2), np.full(2, 0.5)).toarray()
    array([[2.],
           [0.]])
    """
    parts = []
    where = _at_one(np.arange(len(x))[which])
    for found in blocks_of_differences(function, x[None], steps[None], where):
        size = np.abs(found)
        found[size <= 1e-9 * size.max(axis=1, keepdims=True)] = 0.0
        parts.append(sparse.csr_array(found))
    return sparse.csr_array(sparse.vstack(parts, "csr"))
