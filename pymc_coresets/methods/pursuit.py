"""Non-negative orthogonal matching pursuit: every step refits all weights exactly."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pymc_coresets.methods.hilbert import HilbertMethod, State, solve
from pymc_coresets.methods.job import LOOSEST
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.solving.candidates import problem_at
from pymc_coresets.solving.nnls import ActiveSet, add_best
from pymc_coresets.solving.problem import Matrix, Vector
from pymc_coresets.solving.solution import Solution, Status

_STEPS_PER_POINT = 10  # rows that come and go again cost one step each; 1 to 3 per point are usual
_MARGIN = 0.1  # of the tolerance, within a round: the next posterior will differ from this one
_LEAST_PATIENCE = 20  # rows that do not help on held-out draws before a round ends
_PATIENCE_WITH_WEIGHTS = 60  # the same: with importance weights, held-out draws are noisier


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
    """Hilbert coreset by non-negative orthogonal matching pursuit, the most accurate method here.

    A few hundred points usually reproduce the tangent vectors of a smooth model to rounding, for
    they have numerical rank near D(D + 3)/2 in D parameters. Use at least 3 to 5 times as many
    draws as points: with fewer, every set of weights fits the draws that chose it. One pass over
    the vectors and O(n_draws * size) time per step; O(n_draws * size) memory.

    Parameters
    ----------
    tolerance : float, optional
        Stop once the held-out objective is at most this many nats, or 0.1 where that is less.  It
        is measured at the weighting draws: at those of the coreset's own posterior, which `check`
        evaluates, the divergence may be several times larger.

    Raises
    ------
    InvalidOptionError
        If the tolerance is not positive.

    Notes
    -----
    With ``r = L - L(w)``, add ``f = argmax <r, V_n / ||V_n||>`` over rows outside the active set A
    and set ``w_A`` to the minimiser of ``||L - sum_A w_n V_n||`` over ``w_A >= 0``; rows of weight
    0 leave A. Where no score is positive beyond rounding (that of float32 if the vectors are), the
    Karush-Kuhn-Tucker conditions hold and w is optimal among all non-negative weights. Each step
    strictly lowers the objective, so that no active set comes back. Where rows have prices, as
    units of several rows do, positive scores are divided by these.

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
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), base_weights=np.ones(3))
    >>> solution = solve(Pursuit(), problem, 2)
    >>> solution.weights, solution.status
    (array([3.]), <Status.OPTIMAL: 'No other row brings the coreset closer to the full data.'>)
    """

    name: ClassVar[str] = "pursuit"

    def start(self, empty: State) -> PursuitState:
        """Start from no rows."""
        return PursuitState(**vars(empty), active=ActiveSet(empty.residual, empty.size))

    def most_steps(self, size: int) -> int:
        """Ten for each wanted row."""
        return _STEPS_PER_POINT * size

    def step(self, state: PursuitState) -> PursuitState:
        """Add the row that is best aligned with the residual, and solve anew."""
        space = state.space
        active, distance = state.active, np.linalg.norm(state.residual)
        scores = space.project(state.residual)
        threshold = space.rounding + space.resolution * float(distance)
        if space.prices is not None:
            scores, threshold = np.where(scores > threshold, scores / space.prices, 0.0), 0.0
        if not add_best(active, scores, space.row, threshold):
            return replace(state, status=Status.OPTIMAL)
        if np.linalg.norm(active.residual) >= distance:
            return replace(state, status=Status.NO_PROGRESS)
        weights = np.zeros_like(state.weights)
        weights[active.keys] = active.weights
        return state.moved(weights=weights, residual=active.residual)

    def finish(self, state: PursuitState) -> State:
        """Leave the weights as they are: they are already the best on their rows."""
        return state


def pursue(
    loglik: Matrix,
    sums: PassSums,
    size: int,
    *,
    tolerance: float,
    rng: np.random.Generator,
    goal: Vector | None = None,
    weights: Vector | None = None,
) -> Solution:
    """Choose among the candidates of a pass until more rows no longer help on held-out draws.

    Parameters
    ----------
    loglik : ndarray of shape (n_candidates, n_draws)
        Potentials of the candidates of the pass, at its draws, in nats.
    sums : PassSums
        The sum over all rows, and the candidates.
    size : int
        Largest number of weights.
    tolerance : float
        In nats: no rows are added beyond a tenth of it (0.1 nats at most).
    rng : numpy.random.Generator
        Says which draws are held out.
    goal, weights : ndarray of shape (n_draws,), optional
        See `problem_at`.

    Returns
    -------
    Solution

    Raises
    ------
    KeyboardInterrupt
        If it comes during the choice.
    InvalidDataError
        If the draws cannot be used.
    """
    problem = problem_at(loglik, sums, rng=rng, goal=goal, weights=weights, dtype=np.float32)
    method = Pursuit(tolerance=min(_MARGIN * tolerance, LOOSEST))
    least = _LEAST_PATIENCE if weights is None else _PATIENCE_WITH_WEIGHTS
    size = min(size, problem.n_obs)
    solution = solve(method, problem, size, patience=max(least, size // 10))
    if solution.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return solution.of(sums.candidates)
