"""The rows of each group, and the best weights of all groups through what these share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import nnls

from pymc_coresets.solving.nnls import ActiveSet, add_best
from pymc_coresets.solving.problem import Vector, rounding, unit_rows
from pymc_coresets.solving.shared_basis import SharedBasis

_RIDGE = 1e-10  # of the largest diagonal entry: rows may depend on each other but for rounding
_LEAST_LOCAL = 1e-8  # of the squares of the shared part
_MOST_STEPS = 50
_MOST_HALVINGS = 30
_SUFFICIENT = 1e-4  # of the decrease that the slope promises (Armijo)
_PRECISION = 1e-9  # of the shared part, relative to the target's


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


def joint_objective(groups: Sequence[GroupTerms], weights: Sequence[Vector]) -> tuple[float, float]:
    """Return the shared and the local part of the objective at some weights, in nats.

    Notes
    -----
    ``|sum_g (t_g - P_g' w_g)|^2`` and ``sum_g |L_g - sum_n w_n V_n|^2`` of the local parts: with
    groups that are independent given the shared variables, their sum is the variance of
    ``log r = sum_n (u_n - w_n) f_n``.

    Examples
    --------
    >>> terms = GroupTerms(np.eye(1), np.eye(1), np.ones(1), np.ones(1), 1.0, np.ones(1))
    >>> joint_objective([terms, terms], [np.zeros(1), np.zeros(1)])
    (4.0, 2.0)
    """
    lacks = [group.lacks(w) for group, w in zip(groups, weights, strict=True)]
    shared = np.sum([lack for lack, _ in lacks], axis=0)
    return float(np.sum(shared**2)), float(sum(square for _, square in lacks))


def joint_weights(groups: Sequence[GroupTerms]) -> list[Vector]:
    """Minimise the objective over all non-negative weights of the given rows.

    Parameters
    ----------
    groups : sequence of GroupTerms
        With the weights so far.

    Returns
    -------
    list of ndarray
        One for each group, at least 0; never worse than the weights so far.

    Notes
    -----
    Given mu, what is lacking of the shared part, the groups are non-negative least-squares
    problems of their own: ``w_g(mu) = argmin |L_g - w V|^2 / 2 - mu' P_g' w`` over ``w >= 0``.
    The equation ``mu = sum_g (t_g - P_g' w_g(mu))`` is the stationarity of a convex function of m
    variables.  Newton's method on it is semismooth: the matrix is that of the rows of positive
    weight (Qi and Sun 1993).  G small problems, and O(m^2) for each row, a step.

    References
    ----------
    Qi, L. and Sun, J. (1993). A nonsmooth version of Newton's method. Mathematical Programming 58,
    353-367. https://doi.org/10.1007/BF01581275

    Examples
    --------
    >>> terms = GroupTerms(np.eye(1), np.eye(1), np.ones(1), np.ones(1), 1.0, np.zeros(1))
    >>> joint_weights([terms, terms])
    [array([1.]), array([1.])]
    """
    if not groups:
        return []
    dual = _Dual(groups)
    mu = np.zeros_like(groups[0].target_shared)
    point = dual.at(mu)
    limit = _PRECISION * max(float(np.linalg.norm(dual.target)), 1e-300)
    for _ in range(_MOST_STEPS):
        if np.linalg.norm(point.slope) <= limit:
            break
        step = -cho_solve(cho_factor(dual.curvature(point.weights)), point.slope)
        if (closer := _closer(dual, point, step)) is None:
            break
        point = closer
    before, after = ([g.weights for g in groups], point.weights)
    worse = sum(joint_objective(groups, after)) > sum(joint_objective(groups, before))
    return before if worse else after


@dataclass(frozen=True, eq=False)
class _Point:
    mu: Vector
    weights: list[Vector]
    value: float
    slope: Vector


class _Factored:
    """One group's problem as least squares: A = R'R, right-hand side ``R^-T (c + P mu)``."""

    def __init__(self, terms: GroupTerms) -> None:
        self.shared = terms.shared
        largest = float(np.diag(terms.gram).max(initial=0.0))
        # A level without variables of its own may have no local part at all.
        seen = _LEAST_LOCAL * float(np.square(terms.shared).sum(axis=1).max(initial=0.0))
        ridge = max(_RIDGE * largest, seen, 1e-300)
        self.gram = terms.gram + ridge * np.eye(len(terms.gram))
        self.root = cholesky(self.gram, lower=False)
        sides = np.concatenate([terms.pull[:, None], terms.shared], axis=1)
        self._sides = solve_triangular(self.root, sides, trans="T", lower=False)

    def weights(self, mu: Vector) -> Vector:
        found: Vector = nnls(self.root, self._sides[:, 0] + self._sides[:, 1:] @ mu)[0]
        return found


class _Dual:
    """The dual function: ``|mu|^2/2 - t'mu + sum_g max_w ((c + P mu)'w - w'Aw/2)``."""

    def __init__(self, groups: Sequence[GroupTerms]) -> None:
        self.target: Vector = np.sum([group.target_shared for group in groups], axis=0)
        self._groups = [_Factored(group) for group in groups]

    def at(self, mu: Vector) -> _Point:
        weights = [group.weights(mu) for group in self._groups]
        slope, value = mu - self.target, 0.5 * float(mu @ mu) - float(self.target @ mu)
        for group, w in zip(self._groups, weights, strict=True):
            slope = slope + w @ group.shared
            value += 0.5 * float(np.square(group.root @ w).sum())
        return _Point(mu, weights, value, slope)

    def curvature(self, weights: Sequence[Vector]) -> Vector:
        """Of the dual function, where the positive weights stay positive: (m, m)."""
        curvature = np.eye(len(self.target))
        for group, own in zip(self._groups, weights, strict=True):
            kept = np.flatnonzero(own)
            if kept.size:
                factor = cholesky(group.gram[np.ix_(kept, kept)], lower=True)
                half = solve_triangular(factor, group.shared[kept], lower=True)
                curvature += half.T @ half
        return curvature


def _closer(dual: _Dual, point: _Point, step: Vector) -> _Point | None:
    """Go along a step as far as the dual function falls enough; None where it does not."""
    promised, flat = float(step @ point.slope), 0.5 * float(np.linalg.norm(point.slope))
    for halvings in range(_MOST_HALVINGS):
        share = 0.5**halvings
        tried = dual.at(point.mu + share * step)
        falls = tried.value <= point.value + _SUFFICIENT * share * promised
        # Close to the solution, the slope still tells what the value's rounding hides.
        if falls or np.linalg.norm(tried.slope) <= flat:
            return tried
    return None
