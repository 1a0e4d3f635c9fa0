import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from benchmarks.problems import problem_of
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.solving.problem import Problem, tangent_vectors


def make(**changes):
    arguments = {"vectors": np.eye(3), "target": np.ones(3), "base_weights": np.ones(3)}
    return Problem(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vectors": np.ones(3)}, "vectors must have shape"),
        ({"vectors": np.ones((0, 3))}, "vectors must have shape"),
        ({"vectors": np.eye(3, dtype=int)}, "float32 or float64"),
        ({"target": np.ones(2)}, r"target must have shape \(3,\)"),
        ({"target": [1, np.nan, 1]}, "target contains NaN"),
        ({"base_weights": np.ones(4)}, r"base_weights must have shape \(3,\)"),
        ({"base_weights": [1, -1, 1]}, "must not be negative"),
        ({"base_weights": [1, np.inf, 1]}, "base_weights contains NaN or infinite"),
        ({"total_norm": np.nan}, "total_norm"),
        ({"heldout_vectors": np.eye(3)}, "together"),
        ({"heldout_target": np.ones(3)}, "together"),
        ({"heldout_vectors": np.eye(2), "heldout_target": np.ones(2)}, "same observations"),
        ({"heldout_vectors": np.ones((3, 2)), "heldout_target": np.ones(3)}, "heldout_target"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(InvalidDataError, match=message):
        make(**changes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_vectors_are_found_with_the_norms(bad):
    vectors = np.eye(3)
    vectors[1, 2] = bad
    with pytest.raises(InvalidDataError, match="vectors contains NaN"):
        _ = make(vectors=vectors).norms


@given(st.integers(-150, 150), st.sampled_from("CF"))
def test_norms_at_every_scale(exponent, order):
    vectors = np.random.default_rng(1).normal(size=(50, 7))
    problem = make(
        vectors=np.asarray(10.0**exponent * vectors, order=order),
        target=np.ones(7),
        base_weights=np.ones(50),
    )
    assert problem.norms / 10.0**exponent == pytest.approx(np.linalg.norm(vectors, axis=1))


def test_norms_of_many_blocks():
    vectors = np.random.default_rng(1).normal(size=(3000, 300)).astype(np.float32)
    problem = make(vectors=vectors, target=np.ones(300), base_weights=np.ones(3000))
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
    potentials, times = rng.normal(size=(3, 4)), np.array([1, 2, 4, 1])
    repeated = tangent_vectors(np.repeat(potentials, times, axis=1))
    weighted = tangent_vectors(potentials, weights=times / times.sum())
    assert_allclose(weighted @ weighted.T, repeated @ repeated.T, rtol=1e-12)
