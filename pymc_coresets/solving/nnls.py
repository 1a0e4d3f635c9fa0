"""Non-negative least squares on a growing set of rows, by an up-to-date QR factorisation."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import qr_delete, solve_triangular
from scipy.optimize import nnls

from pymc_coresets.solving.problem import Vector, rounding, unit_rows

_STEPS_PER_ROW = 30  # at most: rows that come and go again cost one step each


class ActiveSet:
    """Rows with positive weights whose weighted sum is the closest to a target.

    Lawson and Hanson's method, warm-started: each `add` solves the problem exactly on the rows it
    has and drops those whose weight is no longer positive. It keeps the thin factorisation
    ``V_A^T = Q R``; R is the Cholesky factor of the Gram matrix ``V_A V_A^T`` without squaring
    its condition number. An addition costs O(n_draws * len) time, as does each row dropped.

    Parameters
    ----------
    target : ndarray of shape (n_draws,)
        What the weighted sum has to match.
    capacity : int
        Largest number of rows; more than ``n_draws`` can never be independent.

    Attributes
    ----------
    keys : list of int
        The caller's names of the rows.
    weights : ndarray of shape (len(keys),)
        Positive.
    residual : ndarray of shape (n_draws,)
        Target minus weighted sum; orthogonal to every row in the set.

    References
    ----------
    .. [1] Lawson, C. L. and Hanson, R. J. (1974). Solving Least Squares Problems, Chapter 23.
       https://doi.org/10.1137/1.9781611971217
    .. [2] Daniel, J. W., Gragg, W. B., Kaufman, L. and Stewart, G. W. (1976). Reorthogonalization
       and stable algorithms for updating the Gram-Schmidt QR factorization.
       https://doi.org/10.1090/S0025-5718-1976-0431641-8

    Examples
    --------
    >>> import numpy as np
    >>> active = ActiveSet(np.array([2.0, 3.0]), capacity=2)
    >>> active.add(7, np.array([1.0, 0.0])), active.add(9, np.array([0.0, 1.0]))
    (True, True)
    >>> active.keys, active.weights
    ([7, 9], array([2., 3.]))
    """

    def __init__(self, target: Vector, capacity: int) -> None:
        n_draws = len(target)
        capacity = min(capacity, n_draws)
        self._target = target
        self._rounding = rounding(target)
        self._basis = np.empty((n_draws, capacity), order="F")
        self._triangle = np.zeros((capacity, capacity), order="F")
        self._coordinates = np.empty(capacity)
        self.keys: list[int] = []
        self.weights: Vector = np.empty(0)
        self.residual: Vector = target

    def add(self, key: int, row: Vector) -> bool:
        """Add a row and solve anew.

        Parameters
        ----------
        key : int
            Name of the row.
        row : ndarray of shape (n_draws,)
            Its vector.

        Returns
        -------
        bool
            False, and nothing changes, if the set is full, the row depends on those in it, or a
            positive weight for it would not bring the sum closer to the target.
        """
        if not self._append(row):
            return False
        self.keys.append(key)
        self.weights = np.append(self.weights, 0.0)
        while (trial := self._unconstrained()).min() <= 0:
            self._step_to_boundary(trial)
        self.weights = trial
        return True

    def _append(self, row: Vector) -> bool:
        """Extend Q and R by one column; orthogonalising twice is enough [2]_."""
        n = len(self.keys)
        if n == self._basis.shape[1]:
            return False
        basis = self._basis[:, :n]
        coefficients = row @ basis
        column = row - basis @ coefficients
        column -= basis @ (column @ basis)
        height = float(np.linalg.norm(column))
        if height <= rounding(row):
            return False
        column /= height
        coordinate = float(column @ self.residual)
        if coordinate <= self._rounding:
            return False
        self._basis[:, n] = column
        self._triangle[:n, n] = coefficients
        self._triangle[n, n] = height
        self._coordinates[n] = coordinate
        self.residual = self.residual - coordinate * column
        return True

    def _unconstrained(self) -> Vector:
        """Least-squares weights of the rows in the set, whatever their signs."""
        n = len(self.keys)
        weights: Vector = solve_triangular(
            self._triangle[:n, :n], self._coordinates[:n], check_finite=False
        )
        return weights

    def _step_to_boundary(self, trial: Vector) -> None:
        """Go towards the trial weights until the first of them vanishes, and drop its row."""
        blocking = np.flatnonzero(trial <= 0)
        ratios = self.weights[blocking] / (self.weights - trial)[blocking]
        self.weights = self.weights + ratios.min() * (trial - self.weights)
        self.weights[blocking[ratios.argmin()]] = 0
        for position in np.flatnonzero(self.weights <= 0)[::-1]:
            self._drop(int(position))

    def _drop(self, position: int) -> None:
        """Take a column out of Q and R; residual and coordinates follow from the new Q."""
        n = len(self.keys)
        basis, triangle = qr_delete(
            self._basis[:, :n], self._triangle[:n, :n], position, which="col", check_finite=False
        )
        del self.keys[position]
        self.weights = np.delete(self.weights, position)
        basis = self._basis[:, : n - 1] = basis[:, : n - 1]
        self._triangle[: n - 1, : n - 1] = triangle[: n - 1]
        self._coordinates[: n - 1] = self._target @ basis
        self.residual = self._target - basis @ self._coordinates[: n - 1]
        self.residual -= basis @ (self.residual @ basis)


def add_best(
    active: ActiveSet, scores: Vector, row: Callable[[int], Vector], threshold: float
) -> bool:
    """Add the row of the highest score that the active set accepts.

    Parameters
    ----------
    active : ActiveSet
        Grows by one row, and loses those that became superfluous.
    scores : ndarray of shape (n_obs,)
        Overwritten: -inf for rows in the set and for rows that were refused.
    row : callable
        From the position of a row to its vector of shape (n_draws,).
    threshold : float
        Scores at or below it are rounding errors.

    Returns
    -------
    bool
        False if no row above the threshold was accepted: the weights are optimal.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.eye(2)
    >>> active = ActiveSet(np.array([2.0, 3.0]), capacity=2)
    >>> add_best(active, rows @ active.residual, rows.__getitem__, 0.0), active.keys
    (True, [1])
    """
    scores[active.keys] = -np.inf
    while scores[best := int(scores.argmax())] > threshold:
        if active.add(best, row(best)):
            return True
        scores[best] = -np.inf
    return False


def nonnegative_least_squares(rows: Vector, target: Vector) -> Vector:
    """Non-negative weights of rows whose weighted sum is closest to a target.

    By :func:`scipy.optimize.nnls`, on rows of length 1.  Of collinear rows it uses an independent
    subset.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_draws)
        Vectors to combine.
    target : ndarray of shape (n_draws,)
        What to match.

    Returns
    -------
    ndarray of shape (n_rows,)
        Weights, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> nonnegative_least_squares(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -3.0]))
    array([2., 0.])
    """
    norms = np.linalg.norm(rows, axis=1)
    lengths, _ = nnls(unit_rows(rows).T, target, maxiter=_STEPS_PER_ROW * len(rows))
    weights: Vector = lengths / np.where(norms > 0, norms, 1.0)
    return weights
