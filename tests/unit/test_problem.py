import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.problems import problem_of
from pymc_coresets.solving.problem import Problem, tangent_vectors, weighted_tangent_vectors


def make(**changes):
    arguments = {"vectors": np.eye(3), "target": np.ones(3), "case_weights": np.ones(3)}
    return Problem(**(arguments | changes))


def test_norms_of_many_blocks():
    vectors = np.random.default_rng(1).normal(size=(3000, 300)).astype(np.float32)
    problem = make(vectors=vectors, target=np.ones(300), case_weights=np.ones(3000))
    assert problem.norms == pytest.approx(np.linalg.norm(vectors.astype(float), axis=1))


def test_vectors_are_not_copied():
    vectors = np.eye(3)
    assert make(vectors=vectors).vectors is vectors


def test_constant_rows_have_no_norm():
    loglik = np.full((2, 7), -1234.567)
    loglik[1] += np.arange(7) * 1e-13
    loglik[0, 0] += 1e-9
    assert (problem_of(loglik).norms > 0).tolist() == [True, False]


def test_the_target_matches_the_objective_of_the_sheet():
    """J(w) is the variance over draws of the difference of weighted log-likelihoods."""
    rng = np.random.default_rng(4)
    loglik, weights = rng.gamma(2.0, size=(9, 40)), rng.uniform(size=9)
    problem = problem_of(loglik)
    residual = problem.target - weights @ problem.vectors
    assert residual @ residual == pytest.approx(np.var((1 - weights) @ loglik))


def test_weights_of_draws_count_as_repeated_draws():
    rng = np.random.default_rng(1)
    loglik, times = rng.normal(size=(3, 4)), np.array([1, 2, 4, 1])
    repeated = tangent_vectors(np.repeat(loglik, times, axis=1))
    weighted = weighted_tangent_vectors(loglik, weights=times / times.sum())
    assert_allclose(weighted @ weighted.T, repeated @ repeated.T, rtol=1e-12)
