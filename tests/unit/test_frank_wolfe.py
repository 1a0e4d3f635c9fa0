"""Against the paper's formulas and a dense line search."""

import numpy as np
import pytest
from scipy.optimize import nnls

from pymc_coresets import FrankWolfe
from pymc_coresets.methods.hilbert import solve
from pymc_coresets.solving.problem import Problem
from pymc_coresets.solving.solution import Status

N_OBS, STEPS = 40, 30
VECTORS = np.random.default_rng(8).normal(size=(N_OBS, 15)) + 0.4
NORMS = np.linalg.norm(VECTORS, axis=1)
CASE_WEIGHTS = np.random.default_rng(9).uniform(0.5, 2, size=N_OBS)
TARGET = CASE_WEIGHTS @ VECTORS
PROBLEM = Problem(vectors=VECTORS, target=TARGET, case_weights=CASE_WEIGHTS)
SIGMA = CASE_WEIGHTS @ NORMS


def weights_after(steps, *, polish=False, problem=PROBLEM):
    solution = solve(FrankWolfe(polish=polish), problem, steps)
    weights = np.zeros(N_OBS)
    weights[solution.rows.positions] = solution.weights
    return weights


def vertex(row):
    weights = np.zeros(N_OBS)
    weights[row] = SIGMA / NORMS[row]
    return weights


def distance(weights):
    return np.sum((TARGET - weights @ VECTORS) ** 2)


def test_first_step_is_the_best_aligned_vertex():
    best = np.argmax(VECTORS @ TARGET / NORMS)
    assert weights_after(1) == pytest.approx(vertex(best))


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_step_is_the_best_point_towards_the_best_vertex(steps):
    before, after = weights_after(steps), weights_after(steps + 1)
    best = np.argmax(VECTORS @ (TARGET - before @ VECTORS) / NORMS)
    gammas = np.linspace(0, 1, 2001)
    grid = [distance((1 - g) * before + g * vertex(best)) for g in gammas]
    gamma = gammas[np.argmin(grid)]
    assert distance(after) <= min(grid) * (1 + 1e-12)
    assert after == pytest.approx((1 - gamma) * before + gamma * vertex(best), abs=SIGMA / 1000)


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_weights_stay_in_the_polytope(steps):
    assert weights_after(steps) @ NORMS == pytest.approx(SIGMA)


def test_total_norm_of_all_data_sets_the_polytope():
    problem = Problem(
        vectors=VECTORS, target=TARGET, case_weights=CASE_WEIGHTS, total_norm=3 * SIGMA
    )
    assert weights_after(5, problem=problem) @ NORMS == pytest.approx(3 * SIGMA)


def test_polished_weights_are_the_best_on_their_rows():
    support = np.flatnonzero(weights_after(10))
    best, _ = nnls(VECTORS[support].T, TARGET)
    assert weights_after(10, polish=True)[support] == pytest.approx(best, abs=1e-10)


def test_optimum_inside_the_polytope_is_recognised():
    problem = Problem(vectors=np.eye(1), target=np.ones(1), case_weights=np.ones(1))
    repeated = Problem(vectors=np.ones((3, 1)), target=np.array([3.0]), case_weights=np.ones(3))
    for case in (problem, repeated):
        solution = solve(FrankWolfe(polish=False), case, case.n_obs)
        assert solution.history["objective"][-1] == 0
    assert solution.status is Status.OPTIMAL
