"""Every step against the brute-force best row and the best point of its geodesic."""

import numpy as np
import pytest
from scipy.optimize import nnls

from pymc_coresets import GIGA
from pymc_coresets.methods.hilbert import solve
from pymc_coresets.solving.problem import Problem
from pymc_coresets.solving.solution import Status

N_OBS, STEPS = 40, 15
VECTORS = (np.random.default_rng(8).normal(size=(N_OBS, 15)) + 0.4) * np.linspace(0.1, 9, N_OBS)[
    :, None
]
NORMS = np.linalg.norm(VECTORS, axis=1)
CASE_WEIGHTS = np.random.default_rng(9).uniform(0.5, 2, size=N_OBS)
TARGET = CASE_WEIGHTS @ VECTORS
PROBLEM = Problem(vectors=VECTORS, target=TARGET, case_weights=CASE_WEIGHTS)


def weights_after(steps, *, polish=False, problem=PROBLEM):
    solution = solve(GIGA(polish=polish), problem, steps)
    weights = np.zeros(problem.n_obs)
    weights[solution.rows.positions] = solution.weights
    return weights


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_first_row_is_the_best_aligned_one():
    weights = weights_after(1)
    best = np.argmax(VECTORS @ TARGET / NORMS)
    assert np.flatnonzero(weights) == [best]
    assert weights[best] == pytest.approx(VECTORS[best] @ TARGET / NORMS[best] ** 2)


def brute_force_row(y):
    """Row whose great circle leaves y closest to the great circle from y to the target."""
    ell = unit(TARGET)
    towards = unit(ell - (ell @ y) * y)
    scores = []
    for row in VECTORS:
        side = unit(row) - (unit(row) @ y) * y
        length = np.linalg.norm(side)
        scores.append(towards @ side / length if length > 1e-8 else -np.inf)
    return int(np.argmax(scores))


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_step_is_the_best_point_on_the_best_geodesic(steps):
    """The best point of a geodesic, scaled, is the projection on the cone of its two ends."""
    before, after = weights_after(steps) @ VECTORS, weights_after(steps + 1) @ VECTORS
    best = brute_force_row(unit(before))
    ends = np.array([unit(before), VECTORS[best] / NORMS[best]])
    shares, _ = nnls(ends.T, TARGET)
    assert after == pytest.approx(shares @ ends, abs=1e-9 * np.linalg.norm(TARGET))


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_weights_follow_the_direction(steps):
    """Only the selected row gains; all others shrink by the same factor."""
    before, after = weights_after(steps), weights_after(steps + 1)
    best = brute_force_row(unit(before @ VECTORS))
    others = np.flatnonzero((before > 0) & (np.arange(N_OBS) != best))
    ratios = after[others] / before[others]
    assert after[best] > 0
    assert ratios == pytest.approx(np.full(len(others), ratios[:1].sum()))


@pytest.mark.parametrize("steps", [1, 5, STEPS])
def test_weights_are_scaled_optimally(steps):
    matched = weights_after(steps) @ VECTORS
    assert matched @ (TARGET - matched) == pytest.approx(0, abs=1e-9 * (TARGET @ TARGET))


def test_polished_weights_are_the_best_on_their_rows():
    support = np.flatnonzero(weights_after(STEPS))
    best, _ = nnls(VECTORS[support].T, TARGET)
    assert weights_after(STEPS, polish=True)[support] == pytest.approx(best, abs=1e-10)


def test_aligned_target_stops_at_once():
    problem = Problem(vectors=np.eye(3), target=np.array([0, 5.0, 0]), case_weights=np.ones(3))
    solution = solve(GIGA(), problem, 3)
    assert solution.status is Status.OPTIMAL
    assert solution.rows.positions.tolist() == [1]
    assert solution.weights == pytest.approx([5.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_runs_do_not_drift(dtype):
    """After 2000 steps the running direction still describes the weights, and errors fell."""
    rng = np.random.default_rng(3)
    vectors = (rng.normal(size=(2000, 4)) + 0.2).astype(dtype)
    target = vectors.astype(float).sum(0)
    problem = Problem(vectors=vectors, target=target, case_weights=np.ones(2000))
    objective = solve(GIGA(polish=False), problem, 2000).history["objective"]
    assert objective[-1] < 1e-10 * objective[0]
    assert objective[-1] == pytest.approx(objective[-2], rel=1e-3, abs=1e-26 * objective[0])
