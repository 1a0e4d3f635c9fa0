"""Nodes and weights of an integral over the variables of a unit, for a standard normal weight."""

from dataclasses import dataclass
from itertools import product

import numpy as np

_FIRST = {1: 7, 2: 5}  # nodes along each axis, by the number of axes
_MOST = 1_000  # nodes
_MOST_EACH = 127  # along an axis: weights of more have lost their digits
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
        Number of nodes K along each axis.

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

    def __len__(self) -> int:
        return len(self.points)


def fewest_nodes(n_dims: int) -> int | None:
    """Return with how many nodes along each axis to begin; None where there are too many axes.

    Examples
    --------
    >>> fewest_nodes(1), fewest_nodes(3), fewest_nodes(9)
    (7, 3, None)
    """
    n_each = _FIRST.get(n_dims, 3)
    return n_each if n_each**n_dims <= _MOST else None


def more_nodes(n_each: int, n_dims: int) -> int | None:
    """Return the next larger number of nodes along each axis; None where it is too large.

    Examples
    --------
    >>> more_nodes(7, 1), more_nodes(127, 1), more_nodes(7, 6)
    (15, None, None)
    """
    more = 2 * n_each + 1
    return more if more <= _MOST_EACH and more**n_dims <= 4 * _MOST else None
