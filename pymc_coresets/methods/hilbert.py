"""The greedy methods in the tangent space at fixed draws, step by step."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.methods.job import LOOSEST, Job, moderate_size
from pymc_coresets.methods.loop import rounds
from pymc_coresets.options import if_given, positive_number, whole_number
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import (
    Problem,
    Vector,
    default_n_draws,
    nonnegative_least_squares,
    tangent_problem,
)
from pymc_coresets.solving.solution import History, Progress, Selection, Solution, Status, unwatched

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """State of a greedy method between steps.

    A step returns a new state and does not modify the arrays of the old one, so an interrupted run
    can return its last complete step.

    Parameters
    ----------
    space : Problem
        The candidates.
    size : int
        Largest number of positive weights.
    weights : ndarray of shape (n_obs,)
        Best weights so far, at least 0.
    residual : ndarray of shape (n_draws,)
        ``L - L(weights)``.
    status : Status, optional
        Set by a step after which the run should stop.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.eye(2)
    >>> problem = Problem(vectors=rows, target=np.ones(2), case_weights=np.ones(2))
    >>> state = State.empty(problem, 1)
    >>> state.weights, state.residual, state.is_full
    (array([0., 0.]), array([1., 1.]), False)
    """

    space: Problem
    size: int
    weights: Vector
    residual: Vector
    status: Status | None = None

    @classmethod
    def empty(cls, space: Problem, size: int) -> "State":
        """No weights yet."""
        weights = np.zeros_like(space.norms)
        return State(space=space, size=size, weights=weights, residual=space.target)

    @property
    def is_full(self) -> bool:
        """Whether the number of positive weights has reached `size`."""
        return bool(np.count_nonzero(self.weights) >= self.size)

    def moved(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return the state with new weights; its status is set once there are `size` of them."""
        after = replace(self, **changes)
        return replace(after, status=Status.SIZE_REACHED) if after.is_full else after


def refit[S: State](state: S) -> S:
    """Replace the weights by the best non-negative ones on the same support.

    Parameters
    ----------
    state : State
        Any state; its support may shrink.

    Returns
    -------
    State
        Never further from the target than ``state``.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.eye(2)
    >>> space = Problem(vectors=rows, target=np.ones(2), case_weights=np.ones(2))
    >>> empty = State.empty(space, 2)
    >>> half = np.array([0.5, 0.5])
    >>> refit(replace(empty, weights=half, residual=half)).weights
    array([1., 1.])
    """
    space, support = state.space, np.flatnonzero(state.weights)
    if not support.size:
        return state
    weights = np.zeros_like(state.weights)
    weights[support] = nonnegative_least_squares(space.rows(support), space.target)
    residual = space.residual(weights)
    if np.linalg.norm(residual) > np.linalg.norm(state.residual):
        return state
    return replace(state, weights=weights, residual=residual)


@dataclass(frozen=True, kw_only=True)
class HilbertMethod[S: State](ABC):
    """A greedy method in the tangent space of the weighting distribution.

    Costs one pass over the data for the target, one over the candidates for their vectors, and the
    steps of the method itself.

    Parameters
    ----------
    tolerance : float, optional
        Stop once the held-out objective is at most this many nats, or 0.1 if that is less.
    """

    accepts: ClassVar[Collection[str]] = frozenset({"rows", "size", "tolerance", "weighting"})
    draws_from: ClassVar[str] = ""
    default_size = staticmethod(moderate_size)

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if_given(positive_number, "tolerance", self.tolerance)

    @abstractmethod
    def start(self, empty: State) -> S:
        """Turn the empty coreset into this method's own state."""

    @abstractmethod
    def step(self, state: S) -> S:
        """Improve the weights once, or set the status, or both."""

    def most_steps(self, size: int) -> int:
        """Largest number of steps: one per row of the coreset."""
        return size

    def finish(self, state: S) -> State:
        """Find the best weights of the chosen rows."""
        return refit(state)

    @property
    def goal(self) -> float:
        """The tolerance in nats; minus infinity, which is never met, if there is none."""
        return -math.inf if self.tolerance is None else self.tolerance

    def run[D](self, job: Job[D]) -> Solution:
        """Draw, evaluate the log-likelihoods of all rows at the draws, and choose rows."""
        n_draws = default_n_draws(job.size, job.posterior.n_dims)
        with job.report.part("weighting draws"):
            draws = job.weighting(n_draws, rng=job.rng)
        with job.report.part("log-likelihoods"):
            problem, candidates = tangent_problem(job.posterior, draws, rng=job.rng)
        method = replace(self, tolerance=LOOSEST) if self.goal > LOOSEST else self
        size = min(job.size, problem.n_obs)
        with job.report.part("choosing rows", total=job.size) as show:
            return solve(method, problem, size, callback=show).of(candidates)


def solve[S: State](
    method: HilbertMethod[S],
    problem: Problem,
    size: int,
    *,
    patience: float = math.inf,
    callback: Callable[[Progress], object] = unwatched,
) -> Solution:
    """Choose at most ``size`` weighted rows whose sum is close to the target.

    Ctrl-C (``KeyboardInterrupt``, from the callback too) ends the run with the last complete
    step. Time: one pass over ``problem.vectors`` for the norms, and one per step. Memory: a few
    vectors of length n_obs and the selected rows.

    Parameters
    ----------
    method : HilbertMethod
        For instance ``Pursuit()``.
    problem : Problem
        Candidates and target.
    size : int
        Largest number of weights, 1 to ``problem.n_obs``.
    patience : int, optional
        Stop, and undo the last steps, after this many steps in a row that overfit: they did not
        lower the held-out objective, which was over four times the objective. By default never.
    callback : callable, optional
        Called with a `Progress` after every step that changed the weights.

    Returns
    -------
    Solution
        With at most ``size`` positive weights; rows are numbered within the candidates, see
        `Solution.of`.  No step after the first increases the objective.

    Raises
    ------
    InvalidOptionError
        If ``size`` is out of range, or a tolerance or patience is given but the problem has no
        held-out draws.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.solving.problem import Problem
    >>> from pymc_coresets.methods.pursuit import Pursuit
    >>> vectors = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), case_weights=np.ones(3))
    >>> solution = solve(Pursuit(), problem, 2)
    >>> solution.rows.positions, solution.weights
    (array([1]), array([3.]))
    """
    size = whole_number("size", size, least=1, most=problem.n_obs)
    limits = {"tolerance": method.goal, "patience": patience}
    asked = [f"{name}={value}" for name, value in limits.items() if math.isfinite(value)]
    if asked and not problem.has_heldout:
        raise InvalidOptionError(
            f"{', '.join(asked)} needs held-out draws, but the problem has none: pass "
            "heldout_vectors and heldout_target, or omit it"
        )
    start = method.start(State.empty(problem, size))
    measured = _StepMeasure(start, History(callback), method.goal, patience)
    state, status = rounds(start, method.step, measured, limit=method.most_steps(size))
    if status is Status.NO_PROGRESS and measured.only_fits:
        state = measured.best
        measured.record(state, call=False)
    final = method.finish(state)
    if final.weights is not state.weights:
        measured.record(final, call=False)
    indices = np.flatnonzero(final.weights)
    _log.debug("%s: %d weights. %s", type(method).__name__, len(indices), status.value)
    steps = measured.history.steps
    chosen = Selection(
        rows=Rows(indices, problem.case_weights[indices]), weights=final.weights[indices]
    )
    objective = steps[-1].best_estimate if steps else math.nan
    return measured.history.solution(chosen, status, objective)


class _StepMeasure[S: State]:
    """Measures every step of a Hilbert coreset, and decides when to stop."""

    def __init__(self, start: S, history: History, goal: float, patience: float) -> None:
        self.best, self.history = start, history
        self._goal, self._patience = goal, patience
        self._weights: Vector | None = None
        self._lowest, self._unimproved = math.inf, 0  # the latter: overfitted steps in a row

    def __call__(self, state: S) -> Status | None:
        if state.weights is not self._weights:
            self.record(state)
        if self._unimproved == 0:
            self.best = state
        if self.only_fits:
            return Status.NO_PROGRESS
        last = self.history.steps[-1].heldout_objective
        if last <= self._goal and state.weights.any():
            return Status.TOLERANCE_REACHED
        return state.status

    @property
    def only_fits(self) -> bool:
        """Whether too many steps in a row overfitted the draws that choose rows."""
        return self._unimproved >= self._patience

    def record(self, state: State, *, call: bool = True) -> None:
        """Add a step to the history."""
        self._weights, space = state.weights, state.space
        objective = float(state.residual @ state.residual)
        heldout = space.heldout_objective(state.weights)
        overfits = heldout > 4 * objective
        self._unimproved = self._unimproved + 1 if overfits and not heldout < self._lowest else 0
        self._lowest = min(self._lowest, heldout)
        size = int(np.count_nonzero(state.weights))
        self.history.add(size=size, objective=objective, heldout_objective=heldout, call=call)
