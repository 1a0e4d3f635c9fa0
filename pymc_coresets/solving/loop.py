"""The one loop that runs every Hilbert coreset method."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import whole_number
from pymc_coresets.solving.nnls import nonnegative_least_squares
from pymc_coresets.solving.problem import Problem, Vector
from pymc_coresets.solving.solution import Progress, Selection, Status, Trace
from pymc_coresets.solving.space import TangentSpace

__all__ = ["GreedyMethod", "State", "refit", "solve"]

_log = logging.getLogger(__name__)
_OVERFITTED = 4.0  # held-out objective over that of the choosing draws


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
        """No weights yet, and one step per point to come."""
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


class GreedyMethod[S: State](Protocol):
    """A method that works step by step: frozen options, and three functions for `solve`."""

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
    method: GreedyMethod[S],
    problem: Problem,
    size: int,
    *,
    rng: np.random.Generator,
    patience: int | None = None,
    callback: Callable[[Progress], object] | None = None,
) -> Selection:
    """Choose at most ``size`` weighted rows whose sum is close to the target.

    Ctrl-C (``KeyboardInterrupt``, from the callback too) ends the run with the last complete
    step. Time: one pass over ``problem.vectors`` for the norms, and one per step. Memory: a few
    vectors of length n_obs and the selected rows.

    Parameters
    ----------
    method : GreedyMethod
        For instance ``Pursuit()``.
    problem : Problem
        Candidates and target.
    size : int
        Largest number of weights, 1 to ``problem.n_obs``.
    rng : numpy.random.Generator
        The only source of randomness.
    patience : int, optional
        Stop after so many steps that did not lower the held-out objective while that was over four
        times the objective, and take them back: they only fit the draws that choose. By default
        never.
    callback : callable, optional
        Called with a `Progress` after every step that changed the weights.

    Returns
    -------
    Selection
        With at most ``size`` positive weights. No step after the first increases the objective.

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
    >>> from pymc_coresets.solving.problem import Problem
    >>> from pymc_coresets.methods.pursuit import Pursuit
    >>> vectors = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), base_weights=np.ones(3))
    >>> solution = solve(Pursuit(), problem, 2, rng=np.random.default_rng(1))
    >>> solution.indices, solution.weights
    (array([1]), array([3.]))
    """
    size = whole_number("size", size, least=1, most=problem.n_obs)
    measured = {"tolerance": method.tolerance, "patience": patience}
    asked = [f"{name}={value}" for name, value in measured.items() if value is not None]
    if asked and problem.heldout_vectors is None:
        raise InvalidOptionError(
            f"{', '.join(asked)}: measured on held-out draws, but the problem has none; pass "
            "heldout_vectors and heldout_target, or leave it out"
        )
    recorder = _Recorder(callback)
    best = state = method.start(State.empty(TangentSpace(problem), size, rng=rng))
    status = Status.ITERATION_LIMIT
    try:
        progress = recorder.add(state)
        for _ in range(state.step_limit):
            previous, state = state, method.step(state)
            if state.weights is not previous.weights:
                progress = recorder.add(state)
            if patience is not None:
                best = state if recorder.unimproved == 0 else best
                if recorder.unimproved >= patience:
                    state, status = best, Status.NO_PROGRESS
                    recorder.add(state, call=False)
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
    return Selection(
        indices=indices,
        weights=final.weights[indices],
        history=Trace.of(recorder.steps),
        status=status,
        objective=recorder.steps[-1].best_estimate if recorder.steps else math.nan,
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
