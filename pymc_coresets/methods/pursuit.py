"""Non-negative orthogonal matching pursuit: every step refits all weights exactly."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import qr_delete, solve_triangular

from pymc_coresets.methods.hilbert import HilbertMethod, State, solve
from pymc_coresets.methods.job import LOOSEST
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.solving.problem import Matrix, Vector, problem_at, rounding
from pymc_coresets.solving.solution import Solution, Status


class ActiveSet:
    """Rows with positive weights whose weighted sum is the closest to a target.

    Lawson and Hanson's method, warm-started: each `add` solves the problem exactly on the rows it
    has and drops those whose weight is no longer positive. It keeps the thin factorisation
    ``V_A^T = Q R``; R is the Cholesky factor of the Gram matrix ``V_A V_A^T`` without squaring
    its condition number. An addition costs O(n_draws * len) time, as does each row dropped.

    Parameters
    ----------
    target : ndarray of shape (n_draws,)
        Target of the weighted sum.
    capacity : int
        Largest number of rows; more than ``n_draws`` are never independent.

    Attributes
    ----------
    keys : list of int
        Names of the rows, given by the caller.
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
    >>> active.numbers, active.weights
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
        self.numbers: list[int] = []
        self.weights: Vector = np.empty(0)
        self.residual: Vector = target

    def add(self, number: int, row: Vector) -> bool:
        """Add a row and solve again.

        Parameters
        ----------
        number : int
            Of the row.
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
        self.numbers.append(number)
        self.weights = np.append(self.weights, 0.0)
        while (trial := self._unconstrained()).min() <= 0:
            self._step_to_boundary(trial)
        self.weights = trial
        return True

    def _append(self, row: Vector) -> bool:
        """Extend Q and R by one column; orthogonalising twice is enough [2]_."""
        n = len(self.numbers)
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
        n = len(self.numbers)
        weights: Vector = solve_triangular(
            self._triangle[:n, :n], self._coordinates[:n], check_finite=False
        )
        return weights

    def _step_to_boundary(self, trial: Vector) -> None:
        """Move towards the trial weights until one reaches 0, and drop its row."""
        blocking = np.flatnonzero(trial <= 0)
        ratios = self.weights[blocking] / (self.weights - trial)[blocking]
        self.weights = self.weights + ratios.min() * (trial - self.weights)
        self.weights[blocking[ratios.argmin()]] = 0
        for position in np.flatnonzero(self.weights <= 0)[::-1]:
            self._drop(int(position))

    def _drop(self, position: int) -> None:
        """Remove a column from Q and R; residual and coordinates follow from the new Q."""
        n = len(self.numbers)
        basis, triangle = qr_delete(
            self._basis[:, :n], self._triangle[:n, :n], position, which="col", check_finite=False
        )
        del self.numbers[position]
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
        Gains one row, and loses those whose weight becomes 0.
    scores : ndarray of shape (n_obs,)
        Overwritten: -inf for rows in the set and for rows that were refused.
    row : callable
        Maps the position of a row to its vector of shape (n_draws,).
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
    >>> add_best(active, rows @ active.residual, rows.__getitem__, 0.0), active.numbers
    (True, [1])
    """
    scores[active.numbers] = -np.inf
    while scores[best := int(scores.argmax())] > threshold:
        if active.add(best, row(best)):
            return True
        scores[best] = -np.inf
    return False


@dataclass(frozen=True, kw_only=True, eq=False)
class PursuitState(State):
    """Adds the factorised active set, which grows in place.

    Parameters
    ----------
    active : ActiveSet
        The rows with positive weights.
    """

    active: ActiveSet


@dataclass(frozen=True, kw_only=True)
class Pursuit(HilbertMethod[PursuitState]):
    """Hilbert coreset by orthogonal matching pursuit with non-negative weights.

    A few hundred points usually reproduce the tangent vectors of a smooth model to rounding, since
    their numerical rank is near D(D + 3)/2 in D parameters. Use at least 3 to 5 times as many
    draws as points: with fewer, every set of weights fits the draws that chose it. One pass over
    the vectors and O(n_draws * size) time per step; O(n_draws * size) memory.

    Parameters
    ----------
    tolerance : float, optional
        Stop once the held-out objective is at most this many nats, or 0.1 if that is less.  It is
        measured at the weighting draws: at draws of the coreset's own posterior, as in `check`,
        the divergence may be several times larger.

    Raises
    ------
    InvalidOptionError
        If the tolerance is not positive.

    Notes
    -----
    With ``r = L - L(w)``, add ``f = argmax <r, V_n / ||V_n||>`` over rows outside the active set A
    and set ``w_A`` to the minimiser of ``||L - sum_A w_n V_n||`` over ``w_A >= 0``; rows of weight
    0 leave A. If no score is positive beyond rounding (that of float32 if the vectors are), the
    Karush-Kuhn-Tucker conditions hold and w is optimal among all non-negative weights. Each step
    strictly lowers the objective, so no active set recurs. If rows have prices, as units of several
    rows do, positive scores are divided by these.

    References
    ----------
    .. [1] Bruckstein, A. M., Elad, M. and Zibulevsky, M. (2008). On the Uniqueness of Nonnegative
       Sparse Solutions to Underdetermined Systems of Equations.
       https://doi.org/10.1109/TIT.2008.929920
    .. [2] Lawson, C. L. and Hanson, R. J. (1974). Solving Least Squares Problems, Chapter 23.
       https://doi.org/10.1137/1.9781611971217

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.solving.problem import Problem
    >>> from pymc_coresets.methods.hilbert import solve
    >>> vectors = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), case_weights=np.ones(3))
    >>> solution = solve(Pursuit(), problem, 2)
    >>> solution.weights, solution.status
    (array([3.]), <Status.OPTIMAL: 'No other row brings the coreset closer to the full data.'>)
    """

    name: ClassVar[str] = "pursuit"

    def start(self, empty: State) -> PursuitState:
        """Start from no rows."""
        return PursuitState(**vars(empty), active=ActiveSet(empty.residual, empty.size))

    def most_steps(self, size: int) -> int:
        """Ten per row of the coreset: re-adding a dropped row costs one; 1 to 3 are usual."""
        return 10 * size

    def step(self, state: PursuitState) -> PursuitState:
        """Add the row that is best aligned with the residual, and solve again."""
        space = state.space
        active, distance = state.active, np.linalg.norm(state.residual)
        scores = space.project(state.residual)
        threshold = space.rounding + space.resolution * float(distance)
        scores = np.where(scores > threshold, scores / space.prices, 0.0)
        if not add_best(active, scores, space.row, 0.0):
            return replace(state, status=Status.OPTIMAL)
        if np.linalg.norm(active.residual) >= distance:
            return replace(state, status=Status.NO_PROGRESS)
        weights = np.zeros_like(state.weights)
        weights[active.numbers] = active.weights
        return state.moved(weights=weights, residual=active.residual)

    def finish(self, state: PursuitState) -> State:
        """Return the state unchanged: its weights are already optimal for its rows."""
        return state


def pursue(
    loglik: Matrix,
    sums: PassSums,
    target: Vector,
    size: int,
    *,
    tolerance: float,
    rng: np.random.Generator,
    weights: Vector | None = None,
) -> Solution:
    """Choose candidates of a pass until more rows bring no gain on held-out draws.

    Parameters
    ----------
    loglik : ndarray of shape (n_candidates, n_draws)
        Log-likelihoods of the candidates of the pass, at its draws, in nats.
    sums : PassSums
        The sum over all rows, and the candidates.
    size : int
        Largest number of weights.
    tolerance : float
        In nats: no rows are added beyond a tenth of it (0.1 nats at most).
    rng : numpy.random.Generator
        Chooses the held-out draws.
    target, weights : ndarray of shape (n_draws,), optional
        See `problem_at`.

    Returns
    -------
    Solution

    Raises
    ------
    KeyboardInterrupt
        If interrupted during the choice.
    InvalidDataError
        If the draws cannot be used.
    """
    problem = problem_at(loglik, sums, target, rng=rng, weights=weights, dtype=np.float32)
    # The next posterior will differ from this one: less than a tenth brings no gain.
    method = Pursuit(tolerance=min(0.1 * tolerance, LOOSEST))
    least = 20 if weights is None else 60  # with these, held-out draws are noisier
    size = min(size, problem.n_obs)
    solution = solve(method, problem, size, patience=max(least, size // 10))
    if solution.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return solution.of(sums.candidates)
