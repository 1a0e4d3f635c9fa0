"""The one loop that runs every Hilbert coreset method, and what goes in and comes out of it."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.algorithms.nnls import nonnegative_least_squares
from pymc_coresets.algorithms.options import checked_size
from pymc_coresets.algorithms.problem import Problem, Vector
from pymc_coresets.algorithms.space import TangentSpace
from pymc_coresets.exceptions import InvalidOptionError

__all__ = ["Method", "Progress", "Solution", "State", "Status", "Trace", "refit", "solve"]

_log = logging.getLogger(__name__)
_OVERFITTED = 4.0  # held-out objective over that of the choosing draws


class Status(Enum):
    """Why a method stopped; the value is a sentence for the user.

    Examples
    --------
    >>> Status.SIZE_REACHED.value
    'The coreset has the wanted number of weights.'
    """

    SIZE_REACHED = "The coreset has the wanted number of weights."
    TOLERANCE_REACHED = "The held-out objective is within the tolerance."
    OPTIMAL = "No other row brings the coreset closer to the full data."
    NO_PROGRESS = "The last step no longer improved the objective."
    ITERATION_LIMIT = "The method used all of its steps."
    SAMPLING_FAILED = "The sampler failed; this is the best coreset so far."
    INTERRUPTED = "Interrupted by the user; this is the best coreset so far."


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands after a step; the callback of `solve` receives one a step.

    Parameters
    ----------
    size : int
        Number of positive weights.
    objective, heldout_objective : float
        ``||L - L(w)||^2`` in nats, on the draws that choose the weights and on held-out draws
        (nan where there are none).
    seconds : float
        Wall time since the start.
    pareto_khat : float
        Tail of the importance ratios of the full posterior over the coreset's; this and the next
        two are nan for methods that do not draw from the coreset's posterior.
    kl, reverse_kl : float
        KL(coreset || full) and KL(full || coreset) in nats, by these ratios; the latter is nan
        where their tail is too heavy.
    n_passes, n_evaluations : float, int
        Evaluations of all rows, and of one row at one draw, so far.
    seconds_drawing, seconds_evaluating : float
        Wall time so far in the sampler, and in log-likelihoods.

    Examples
    --------
    >>> Progress(size=1, objective=0.5, heldout_objective=0.7, seconds=0.1).size
    1
    """

    size: int
    objective: float
    heldout_objective: float
    seconds: float
    pareto_khat: float = math.nan
    kl: float = math.nan
    reverse_kl: float = math.nan
    n_passes: float = 0.0
    n_evaluations: int = 0
    seconds_drawing: float = 0.0
    seconds_evaluating: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """The history of a run: arrays of equal length, one entry a step that changed the weights.

    The first entry is the empty coreset, the last one the weights that were returned.

    Parameters
    ----------
    size : ndarray of int64
        Number of positive weights.
    objective, heldout_objective : ndarray of float64
        ``||L - L(w)||^2`` in nats.
    seconds : ndarray of float64
        Wall time since the start.
    pareto_khat, kl, reverse_kl, n_passes, n_evaluations, seconds_drawing, seconds_evaluating
        Arrays too; see `Progress`.

    Examples
    --------
    >>> step = Progress(size=0, objective=2.0, heldout_objective=2.5, seconds=0.0)
    >>> Trace.of([step]).objective
    array([2.])
    """

    size: NDArray[np.int64]
    objective: Vector
    heldout_objective: Vector
    seconds: Vector
    pareto_khat: Vector
    kl: Vector
    reverse_kl: Vector
    n_passes: Vector
    n_evaluations: NDArray[np.int64]
    seconds_drawing: Vector
    seconds_evaluating: Vector

    @classmethod
    def of(cls, steps: list[Progress]) -> "Trace":
        """Turn a list of steps into arrays."""
        return cls(**{f.name: np.array([getattr(s, f.name) for s in steps]) for f in fields(cls)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """The weighted rows that a method chose.

    Parameters
    ----------
    indices : ndarray of int64
        Positions among the candidates, sorted and unique.
    weights : ndarray of float64
        Positive, of the same length.
    history : Trace
        Size and objectives after every step that changed the weights.
    status : Status
        Why the method stopped.

    Examples
    --------
    >>> import numpy as np
    >>> start = Progress(size=0, objective=0.0, heldout_objective=0.0, seconds=0.0)
    >>> empty = Solution(
    ...     indices=np.arange(0), weights=np.zeros(0), history=Trace.of([start]),
    ...     status=Status.OPTIMAL,
    ... )
    >>> len(empty.indices)
    0
    """

    indices: NDArray[np.int64]
    weights: Vector
    history: Trace
    status: Status


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """What every method carries from step to step.

    A step returns a new state and leaves the arrays of the old one alone; that is why an
    interrupted run can return its last complete step.

    Parameters
    ----------
    space : TangentSpace
        The candidates.
    size : int
        Largest number of positive weights.
    rng : numpy.random.Generator
        The only source of randomness.
    weights : ndarray of shape (n_obs,)
        Best weights so far, at least 0.
    residual : ndarray of shape (n_draws,)
        ``L - L(weights)`` in the space's unit.
    step_limit : int
        Largest number of steps.
    status : Status, optional
        Set by the step that wants to be the last.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.eye(2)
    >>> problem = Problem(vectors=rows, target=np.ones(2), base_weights=np.ones(2))
    >>> state = State.empty(TangentSpace(problem), 1, rng=np.random.default_rng(1))
    >>> state.weights, state.residual, state.is_full
    (array([0., 0.]), array([1., 1.]), False)
    """

    space: TangentSpace
    size: int
    rng: np.random.Generator
    weights: Vector
    residual: Vector
    step_limit: int
    status: Status | None = None

    @classmethod
    def empty(cls, space: TangentSpace, size: int, *, rng: np.random.Generator) -> "State":
        """No weights yet, and one step a point to come."""
        return State(
            space=space,
            size=size,
            rng=rng,
            weights=np.zeros_like(space.norms),
            residual=space.target,
            step_limit=size,
        )

    @property
    def is_full(self) -> bool:
        """Whether the weights have as many positive entries as wanted."""
        return bool(np.count_nonzero(self.weights) >= self.size)


class Method[S: State](Protocol):
    """A coreset method: frozen options, and three functions that the driver calls."""

    @property
    def tolerance(self) -> float | None:
        """Held-out objective in nats at which to stop, if any."""

    def start(self, empty: State) -> S:
        """Turn the empty coreset into this method's own state."""

    def step(self, state: S) -> S:
        """Improve the weights once, or set the status, or both."""

    def finish(self, state: S) -> State:
        """Polish the last state."""


def solve[S: State](
    method: Method[S],
    problem: Problem,
    size: int,
    *,
    rng: np.random.Generator,
    patience: int | None = None,
    callback: Callable[[Progress], object] | None = None,
) -> Solution:
    """Choose at most ``size`` weighted rows whose sum is close to the target.

    Ctrl-C (``KeyboardInterrupt``, from the callback too) ends the run with the last complete
    step. Time: one pass over ``problem.vectors`` for the norms and, for all but `Uniform`, one a
    step. Memory: a few vectors of length n_obs and the selected rows.

    Parameters
    ----------
    method : Method
        For instance ``Pursuit()``.
    problem : Problem
        Candidates and target.
    size : int
        Largest number of weights, 1 to ``problem.n_obs``.
    rng : numpy.random.Generator
        Used by the methods that sample.
    patience : int, optional
        Stop after so many steps that did not lower the held-out objective while that was over four
        times the objective: further rows only fit the draws that choose them. By default never.
    callback : callable, optional
        Called with a `Progress` after every step that changed the weights.

    Returns
    -------
    Solution
        With at most ``size`` positive weights. Except for `Uniform`, no step after the first
        increases the objective.

    Raises
    ------
    InvalidOptionError
        If ``size`` is out of range, or a tolerance or patience is given but the problem has no
        held-out draws.
    InvalidDataError
        If ``problem.vectors`` contains NaN or infinite values.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.algorithms import Problem, Pursuit
    >>> vectors = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), base_weights=np.ones(3))
    >>> solution = solve(Pursuit(), problem, 2, rng=np.random.default_rng(1))
    >>> solution.indices, solution.weights
    (array([1]), array([3.]))
    """
    size = checked_size(size, problem.n_obs)
    measured = {"tolerance": method.tolerance, "patience": patience}
    asked = [f"{name}={value}" for name, value in measured.items() if value is not None]
    if asked and problem.heldout_vectors is None:
        raise InvalidOptionError(
            f"{', '.join(asked)}: measured on held-out draws, but the problem has none; pass "
            "heldout_vectors and heldout_target, or leave it out"
        )
    recorder = _Recorder(callback)
    state = method.start(State.empty(TangentSpace(problem), size, rng=rng))
    status = Status.ITERATION_LIMIT
    try:
        progress = recorder.add(state)
        for _ in range(state.step_limit):
            previous, state = state, method.step(state)
            if state.weights is not previous.weights:
                progress = recorder.add(state)
            if patience is not None and recorder.unimproved >= patience:
                status = Status.NO_PROGRESS
                break
            if method.tolerance is not None and progress.heldout_objective <= method.tolerance:
                status = Status.TOLERANCE_REACHED
                break
            if state.status is not None:
                status = state.status
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    final = method.finish(state)
    if final.weights is not state.weights:
        recorder.add(final, call=False)
    indices = np.flatnonzero(final.weights)
    _log.debug("%s: %d weights. %s", type(method).__name__, len(indices), status.value)
    return Solution(
        indices=indices,
        weights=final.weights[indices],
        history=Trace.of(recorder.steps),
        status=status,
    )


class _Recorder:
    """Measures every step and tells the callback."""

    def __init__(self, callback: Callable[[Progress], object] | None) -> None:
        self._callback = callback
        self._start = time.perf_counter()
        self._lowest = math.inf
        self.unimproved = 0  # steps in a row that only fitted the draws that choose
        self.steps: list[Progress] = []

    def add(self, state: State, *, call: bool = True) -> Progress:
        progress = Progress(
            size=int(np.count_nonzero(state.weights)),
            objective=state.space.objective(state.residual),
            heldout_objective=state.space.heldout_objective(state.weights),
            seconds=time.perf_counter() - self._start,
        )
        self.steps.append(progress)
        improved = progress.heldout_objective < self._lowest
        overfits = progress.heldout_objective > _OVERFITTED * progress.objective
        self.unimproved = self.unimproved + 1 if overfits and not improved else 0
        self._lowest = min(self._lowest, progress.heldout_objective)
        if self._callback is not None and call:
            self._callback(progress)
        return progress


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
    >>> space = TangentSpace(Problem(vectors=rows, target=np.ones(2), base_weights=np.ones(2)))
    >>> empty = State.empty(space, 2, rng=np.random.default_rng(1))
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
