"""Every step against scipy's non-negative least squares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from benchmarks.problems import problem_of
from pymc_coresets import Pursuit
from pymc_coresets.methods.hilbert import State, solve
from pymc_coresets.solving.problem import Problem
from pymc_coresets.solving.solution import Status

VECTORS = np.random.default_rng(12).normal(size=(60, 25)) + 0.4
TARGET = VECTORS.sum(0) + 10 * np.random.default_rng(9).normal(size=25)  # outside the cone
PROBLEM = Problem(vectors=VECTORS, target=TARGET, case_weights=np.ones(60))


def steps(problem, size):
    """All states from the empty one to the one that stops."""
    method = Pursuit()
    states = [method.start(State.empty(problem, size))]
    while states[-1].status is None:
        states.append(method.step(states[-1]))
    return states


STATES = steps(PROBLEM, 60)


def test_the_example_drops_rows():
    sizes = [np.count_nonzero(state.weights) for state in STATES]
    assert (np.diff(sizes) < 0).any()


@pytest.mark.parametrize("number", range(len(STATES) - 2))
def test_step_adds_the_best_row_and_solves_exactly(number):
    before, after = STATES[number].weights, STATES[number + 1].weights
    scores = VECTORS @ (TARGET - before @ VECTORS) / np.linalg.norm(VECTORS, axis=1)
    scores[before > 0] = -np.inf
    best = int(np.argmax(scores))
    support = np.append(np.flatnonzero(before), best)
    exact, distance = nnls(VECTORS[support].T, TARGET)
    assert after[best] > 0
    assert np.linalg.norm(TARGET - after @ VECTORS) == pytest.approx(distance, rel=1e-10)
    assert after[support] == pytest.approx(exact, abs=1e-9)
    assert np.count_nonzero(after) == np.count_nonzero(exact)


def test_rows_that_come_and_go_cost_no_points():
    solution = solve(Pursuit(), PROBLEM, 20)
    assert len(solution.history["size"]) - 1 > 20
    assert solution.status is Status.SIZE_REACHED


def test_old_states_keep_their_weights():
    assert [np.count_nonzero(state.weights) for state in STATES[:3]] == [0, 1, 2]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 25))
def test_optimum_is_that_of_all_nonnegative_weights(seed, n_obs, n_draws):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n_obs, n_draws)) * rng.gamma(0.5, size=(n_obs, 1))
    problem = Problem(
        vectors=vectors, target=10 * rng.normal(size=n_draws), case_weights=np.ones(n_obs)
    )
    solution = solve(Pursuit(), problem, n_obs)
    _, distance = nnls(vectors.T, problem.target)
    assert np.sqrt(solution.history["objective"][-1]) == pytest.approx(distance, abs=1e-8)


def test_status_at_the_optimum():
    assert STATES[-1].status is Status.OPTIMAL
    assert (VECTORS @ (TARGET - STATES[-1].weights @ VECTORS)).max() < 1e-9


def test_independent_rows_that_form_the_target_are_found():
    vectors = np.eye(8)
    weights = np.array([0, 3.0, 0, 0, 2.0, 0, 0, 7.0])
    problem = Problem(vectors=vectors, target=weights @ vectors, case_weights=np.ones(8))
    solution = solve(Pursuit(), problem, 3)
    assert solution.rows.positions.tolist() == [1, 4, 7]
    assert solution.weights == pytest.approx([3, 2, 7])


def test_quadratic_potentials_need_few_points():
    """Quadratics in 3 parameters span 9 dimensions after centring, so 9 points are enough."""
    rng = np.random.default_rng(4)
    draws = rng.normal(size=(3, 200))
    slopes, offsets = rng.normal(size=(1000, 3)), rng.normal(size=(1000, 1))
    problem = problem_of(-0.5 * (offsets - slopes @ draws) ** 2)
    solution = solve(Pursuit(), problem, 200)
    assert len(solution.rows.positions) <= 9
    assert solution.history["objective"][-1] < 1e-24 * solution.history["objective"][0]


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
def test_nearly_collinear_rows_at_every_scale(scale):
    rng = np.random.default_rng(6)
    vectors = rng.normal(size=(5, 40))[rng.integers(5, size=200)]
    vectors = scale * (vectors + 1e-13 * rng.normal(size=vectors.shape))
    problem = Problem(vectors=vectors, target=vectors.sum(0), case_weights=np.ones(200))
    objective = solve(Pursuit(), problem, 100).history["objective"]
    assert objective[-1] < 1e-24 * objective[0]


def test_the_cheaper_of_two_rows_that_point_the_same_way_is_chosen():
    vectors = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    problem = Problem(
        vectors=vectors,
        target=vectors.sum(0),
        case_weights=np.ones(3),
        prices=np.array([5.0, 1.0, 30.0]),
    )
    solution = solve(Pursuit(), problem, 3)
    assert solution.rows.positions.tolist() == [1, 2]
    assert solution.weights == pytest.approx([3, 1])
