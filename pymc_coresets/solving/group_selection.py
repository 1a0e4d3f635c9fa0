"""Choose the rows of one group: its own variables are matched, and what groups share, kept."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.solving.nnls import ActiveSet, add_best, rounding
from pymc_coresets.solving.problem import Vector, unit_rows
from pymc_coresets.solving.shared_basis import SharedBasis


@dataclass(frozen=True, eq=False)
class GroupTerms:
    """What the joint objective has to know of the rows of one group.

    Parameters
    ----------
    shared : ndarray of shape (k, m)
        Shared parts P of the rows' vectors.
    gram : ndarray of shape (k, k)
        Inner products of their local parts.
    pull : ndarray of shape (k,)
        Inner products of their local parts with the target's.
    target_shared : ndarray of shape (m,)
        Shared part of the target.
    target_square : float
        Squared length of the target's local part.
    weights : ndarray of shape (k,)

    Examples
    --------
    >>> basis = SharedBasis(np.array([[1.0], [0.0], [0.0]]))
    >>> terms = GroupTerms.of(np.eye(3)[:2], np.array([2.0, 1.0, 2.0]), np.ones(2), basis)
    >>> terms.lacks(np.array([2.0, 1.0]))
    (array([0.]), 4.0)
    """

    shared: Vector
    gram: Vector
    pull: Vector
    target_shared: Vector
    target_square: float
    weights: Vector

    @classmethod
    def of(
        cls, vectors: Vector, target: Vector, weights: Vector, basis: SharedBasis
    ) -> "GroupTerms":
        """Split vectors (k, n_draws) and a target (n_draws,) into shared and local parts."""
        shared, target_shared = basis.coordinates(vectors), basis.coordinates(target)
        local = vectors - shared @ basis.functions.T
        target_local = target - basis.functions @ target_shared
        return cls(
            shared=shared,
            gram=local @ local.T,
            pull=local @ target_local,
            target_shared=target_shared,
            target_square=float(target_local @ target_local),
            weights=weights,
        )

    def lacks(self, weights: Vector) -> tuple[Vector, float]:
        """Return what weights leave: the shared part (m,), and the local one's squared length."""
        square = self.target_square - 2 * self.pull @ weights + weights @ self.gram @ weights
        return self.target_shared - weights @ self.shared, max(float(square), 0.0)


def rows_of_group(n_local: int, n_shared: int) -> int:
    """Return how many rows match what a potential has besides its shared part.

    A quadratic function of q local variables has q + q(q + 1)/2 terms; q p more are products with
    the shared ones.

    Examples
    --------
    >>> rows_of_group(1, 5)
    8
    """
    return n_local + n_local * (n_local + 1) // 2 + n_local * n_shared + 1


def select_rows(
    vectors: Vector,
    target: Vector,
    basis: SharedBasis,
    lacking: Vector,
    *,
    tolerance: float,
    size: int,
) -> tuple[NDArray[np.int64], Vector]:
    """Choose weighted rows of a group, by non-negative orthogonal matching pursuit.

    Parameters
    ----------
    vectors : ndarray of shape (n_rows, n_draws)
        Tangent vectors of the group's candidates.
    target : ndarray of shape (n_draws,)
        Their sum over all rows of the group.
    basis : SharedBasis
    lacking : ndarray of shape (m,)
        What the groups before lack of the shared part: this one makes up for it where it can.
    tolerance : float
        Enough, in nats, for the local part, and for the shared one if that was less before.
    size : int
        Largest number of rows.

    Returns
    -------
    chosen : ndarray of int64
        Sorted.
    weights : ndarray of float64
        Positive.

    Examples
    --------
    >>> basis = SharedBasis(np.zeros((2, 0)))
    >>> vectors = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> select_rows(vectors, vectors.sum(0), basis, np.zeros(0), tolerance=1e-9, size=2)
    (array([1]), array([3.]))
    """
    goal = target + basis.functions @ lacking
    active, directions, threshold = ActiveSet(goal, size), unit_rows(vectors), rounding(goal)
    enough = max(float(lacking @ lacking), tolerance)
    while len(active.keys) < size:
        residual = active.residual
        shared = basis.coordinates(residual)
        square = float(shared @ shared)
        if square <= enough and float(residual @ residual) - square <= tolerance:
            break
        if not add_best(active, directions @ residual, vectors.__getitem__, threshold):
            break
    order = np.argsort(active.keys)
    return np.array(active.keys, dtype=np.int64)[order], active.weights[order]
