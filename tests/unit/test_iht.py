"""Against a plain implementation of accelerated iterative hard thresholding."""

import numpy as np
import pytest
from scipy.optimize import nnls

from pymc_coresets import IHT
from pymc_coresets.methods.hilbert import State, solve
from pymc_coresets.solving.problem import Problem

N_OBS, SIZE = 50, 8
VECTORS = (np.random.default_rng(8).normal(size=(N_OBS, 30)) + 0.2) * np.linspace(0.5, 2, N_OBS)[
    :, None
]
NORMS = np.linalg.norm(VECTORS, axis=1)
UNITS = VECTORS / NORMS[:, None]
TARGET = VECTORS.sum(0)
PROBLEM = Problem(vectors=VECTORS, target=TARGET, case_weights=np.ones(N_OBS))


def largest(values, size):
    kept = np.zeros_like(values)
    rows = np.argsort(-values)[:size]
    kept[rows] = np.maximum(values[rows], 0)
    return kept


def plain_iterates(steps):
    """Lengths after each step; every line search by brute force."""
    x = z = np.zeros(N_OBS)
    for _ in range(steps):
        gradient = UNITS @ (TARGET - z @ UNITS)
        outside = largest(np.where(z != 0, 0, gradient), SIZE)
        restricted = np.where(z != 0, gradient, outside)
        change = restricted @ UNITS
        step, *_ = np.linalg.lstsq(change[:, None], TARGET - z @ UNITS)
        old, x = x, largest(z + step[0] * gradient, SIZE)
        moved = (x - old) @ UNITS
        tau, *_ = np.linalg.lstsq(moved[:, None], TARGET - x @ UNITS)
        z = x + max(tau[0], 0) * (x - old)
        yield x


def states(steps):
    method = IHT()
    state = method.start(State.empty(PROBLEM, SIZE))
    for _ in range(steps):
        yield (state := method.step(state))


def test_iterates_follow_the_formulas():
    unit = np.linalg.norm(VECTORS, axis=1) / PROBLEM.norms
    for expected, state in zip(plain_iterates(15), states(15), strict=True):
        assert unit * state.lengths == pytest.approx(expected, abs=1e-9 * expected.max())


def test_best_iterate_is_kept():
    best = np.inf
    for expected, state in zip(plain_iterates(15), states(15), strict=True):
        best = min(best, np.sum((TARGET - expected @ UNITS) ** 2))
        assert np.sum((TARGET - state.weights @ VECTORS) ** 2) == pytest.approx(best)


def test_weights_are_the_best_on_their_rows():
    method = IHT(max_iterations=2)
    solution = solve(method, PROBLEM, SIZE)
    best, _ = nnls(VECTORS[solution.rows.positions].T, TARGET)
    assert solution.weights == pytest.approx(best)


def test_iterates_have_no_negative_weights():
    problem = Problem(vectors=np.eye(4), target=np.array([3, 2, -1, -2]), case_weights=np.ones(4))
    empty = State.empty(problem, 4)
    assert IHT().step(IHT().start(empty)).weights == pytest.approx([3, 2, 0, 0])


def test_orthogonal_rows_are_solved_in_one_step():
    lengths = np.arange(1.0, 9.0)
    problem = Problem(vectors=np.eye(8), target=lengths, case_weights=np.ones(8))
    solution = solve(IHT(max_iterations=1), problem, 3)
    assert solution.rows.positions.tolist() == [5, 6, 7]
    assert solution.weights == pytest.approx([6, 7, 8])
