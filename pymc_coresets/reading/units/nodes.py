"""Nodes and weights of an integral over the variables of a unit, for a standard normal weight."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

_FIRST = {1: 7, 2: 5}  # nodes along each axis, by the number of axes
_LEAST_EACH, _MANY_MEMBERS = 3, 50.0
_NUMBERS = (3, 5, 7, 11, 17, 25, 41, 61)  # along an axis
_MOST = 1_000  # nodes
_TO_JUDGE_BY = {1: 101, 2: 31, 3: 12, 4: 8, 5: 5}  # along an axis, by the number of axes
_LEAST = 1e-7  # of a weight, beside the largest: such nodes add nothing


@dataclass(frozen=True, eq=False)
class Nodes:
    """``integral of f(x) N(x; 0, I) dx = sum_k w_k f(x_k)``, for smooth functions of q numbers.

    Parameters
    ----------
    points : ndarray of shape (n_nodes, q)
    log_weights : ndarray of shape (n_nodes,)
        Of ``log(w_k) + |x_k|^2 / 2 + (q / 2) log(2 pi)``: what a node's log-density gets for an
        integral without the weight.
    n_each : int
        Number of nodes K along each axis; 0 where they are all values of discrete variables.

    Examples
    --------
    >>> nodes = Nodes.of_axes(3, 2)
    >>> nodes.points.shape
    (9, 2)
    >>> h = -0.5 * np.square(nodes.points).sum(axis=1)  # its integral is 2 pi
    >>> bool(np.isclose(np.exp(nodes.log_weights + h).sum(), 2 * np.pi))
    True
    """

    points: np.ndarray
    log_weights: np.ndarray
    n_each: int

    @classmethod
    def of_axes(cls, n_each: int, n_dims: int) -> "Nodes":
        """Take all combinations of Gauss-Hermite nodes along q axes that count for anything.

        Exact for polynomials of degree ``2 K - 1`` along each axis; ``K = 1`` is Laplace's method.
        """
        x, w = np.polynomial.hermite_e.hermegauss(n_each)
        w = w / w.sum()
        points = np.array(list(product(x, repeat=n_dims)))
        weights = np.array([np.prod(ws) for ws in product(w, repeat=n_dims)])
        kept = weights > _LEAST * weights.max() if n_dims > 1 else weights > 0
        points, weights = points[kept], weights[kept] / weights[kept].sum()
        logs = np.log(weights) + np.square(points).sum(axis=1) / 2
        return cls(points, logs + n_dims / 2 * np.log(2 * np.pi), n_each)

    @classmethod
    def of_values(cls, values: Sequence[Sequence[int]]) -> "Nodes":
        """Take all combinations of the values of discrete variables: their sum is exact.

        Examples
        --------
        >>> Nodes.of_values([[0, 1], [0, 1, 2]]).points.shape
        (6, 2)
        """
        points = np.array(list(product(*values)), dtype=float)
        return cls(points, np.zeros(len(points)), 0)

    def __len__(self) -> int:
        return len(self.points)


def fewest_nodes(n_dims: int, n_members: float = 1.0) -> int | None:
    """Return with how many nodes along each axis to begin; None where there are too many axes.

    Parameters
    ----------
    n_dims : int
        Number of axes q.
    n_members : float
        Mean number of rows of a unit: with many, its density is closer to normal.

    Examples
    --------
    >>> fewest_nodes(1), fewest_nodes(2, 100.0), fewest_nodes(9)
    (7, 3, None)
    """
    n_each = _FIRST.get(n_dims, _LEAST_EACH)
    if n_members >= _MANY_MEMBERS:
        n_each = max(n_each - 2, _LEAST_EACH)
    return n_each if n_each**n_dims <= _MOST else None


def more_nodes(n_each: int, n_dims: int, steps: int = 1) -> int | None:
    """Return a larger number of nodes along each axis; None where there is none to judge it by.

    Parameters
    ----------
    n_each, n_dims : int
    steps : int
        Each has about a hundredth of the error, where units have a single mode.

    Examples
    --------
    >>> more_nodes(7, 1), more_nodes(7, 1, 3), more_nodes(7, 4)
    (11, 25, None)
    """
    more = [n for n in _NUMBERS if n_each < n < nodes_to_judge_by(n_dims)]
    return more[min(steps, len(more)) - 1] if more else None


def nodes_to_judge_by(n_dims: int) -> int:
    """Return how many nodes along each axis have no error, beside that of fewer.

    Examples
    --------
    >>> nodes_to_judge_by(1), nodes_to_judge_by(2), nodes_to_judge_by(6)
    (101, 31, 4)
    """
    return _TO_JUDGE_BY.get(n_dims, _LEAST_EACH + 1)
