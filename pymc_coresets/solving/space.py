"""The candidates as a method sees them: unit rows, one product per pass, a safe unit of length."""

import math

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.solving.nnls import rounding
from pymc_coresets.solving.problem import Problem, Vector


class TangentSpace:
    """A problem in its own unit of length, with the few operations that the methods share.

    Lengths are divided by a power of two near the longest row, which is exact, so that no square
    overflows or underflows whatever the scale of the potentials; the matrix itself is not copied.
    Sums over draws of selected rows are float64; only `project` runs in the matrix's own dtype.

    Parameters
    ----------
    problem : Problem
        What to solve; its norms are computed here if they were not before.

    Attributes
    ----------
    target : ndarray of shape (n_draws,)
        What the weighted rows have to match.
    norms : ndarray of shape (n_obs,)
        Lengths of the rows.
    inverse_norms : ndarray of shape (n_obs,)
        Their inverses; 0 for rows that must not be selected, because they are zero (next to the
        longest row) or absent from the data.
    total_norm : float
        Sum of base weight times length over all data.
    rounding : float
        Length below which a component of a residual is rounding error of the target.
    resolution : float
        Relative error of `project`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    >>> space = TangentSpace(Problem(vectors=rows, target=rows.sum(0), base_weights=np.ones(2)))
    >>> space.project(np.array([1.0, 0.0]))
    array([0.6, 0. ])
    """

    def __init__(self, problem: Problem) -> None:
        longest = float(problem.norms.max())
        self._unit = math.ldexp(1.0, min(max(math.frexp(longest)[1], -1000), 1000))
        self._problem = problem
        self.norms: Vector = problem.norms / self._unit
        selectable = self.norms > np.finfo(np.float64).eps * self.norms.max()
        selectable &= problem.base_weights > 0
        self.inverse_norms: Vector = np.zeros(problem.n_obs)
        np.divide(1.0, self.norms, out=self.inverse_norms, where=selectable)
        self._own_inverse_norms = self.inverse_norms / self._unit  # in the problem's own unit
        self._barred = np.flatnonzero(~selectable)

        self.target: Vector = problem.target / self._unit
        total_norm = problem.total_norm
        self.total_norm = (
            float(problem.base_weights @ self.norms)
            if total_norm is None
            else total_norm / self._unit
        )
        self.rounding = rounding(self.target)
        self.resolution = 4 * float(np.finfo(problem.vectors.dtype).eps)

    def project(self, direction: Vector) -> Vector:
        """Inner products of all unit rows ``V_n / ||V_n||`` with a vector: one pass.

        Parameters
        ----------
        direction : ndarray of shape (n_draws,)
            In this space's unit; it is normalised first, so that float32 keeps its digits.

        Returns
        -------
        ndarray of shape (n_obs,)
            Exactly 0 for rows that must not be selected.
        """
        length = float(np.linalg.norm(direction))
        if length == 0:
            return np.zeros_like(self.norms)
        vectors = self._problem.vectors
        products = vectors @ (direction / length).astype(vectors.dtype)
        cosines: Vector = products * self._own_inverse_norms
        cosines *= length
        return cosines

    def best(self, scores: Vector) -> int:
        """Position of the largest score among the rows that may be selected (others get -inf)."""
        scores[self._barred] = -np.inf
        return int(scores.argmax())

    def row(self, position: int) -> Vector:
        """One row in this space's unit, shape (n_draws,), float64."""
        row: Vector = self.rows(np.array([position]))[0]
        return row

    def rows(self, positions: NDArray[np.int64]) -> Vector:
        """Several rows in this space's unit, shape (len(positions), n_draws), float64."""
        rows: Vector = self._problem.vectors[positions].astype(np.float64) / self._unit
        return rows

    def residual(self, weights: Vector) -> Vector:
        """``L - L(w)``, shape (n_draws,), from the rows that have weight."""
        support = np.flatnonzero(weights)
        difference: Vector = self.target - weights[support] @ self.rows(support)
        return difference

    def objective(self, residual: Vector) -> float:
        """Squared length of a residual in nats (the problem's own unit)."""
        return float(residual @ residual) * self._unit * self._unit

    def heldout_objective(self, weights: Vector) -> float:
        """``J(w)`` on the held-out draws in nats, nan where the problem has none."""
        problem = self._problem
        if problem.heldout_vectors is None or problem.heldout_target is None:
            return math.nan
        support = np.flatnonzero(weights)
        matched = weights[support] @ problem.heldout_vectors[support].astype(np.float64)
        return self.objective((problem.heldout_target - matched) / self._unit)
