import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.solving.problem import Problem


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_from_loglik_follows_the_formula(dtype, order):
    rng = np.random.default_rng(2)
    loglik = np.asarray(rng.normal(size=(3000, 200)) - 5, dtype=dtype, order=order)
    weights = rng.uniform(size=3000)
    problem = Problem.from_loglik(loglik, base_weights=weights, heldout_loglik=loglik[:, :50])
    centred = loglik.astype(float) - loglik.astype(float).mean(axis=1, keepdims=True)
    assert problem.vectors.dtype == dtype
    assert problem.vectors.flags[f"{order}_CONTIGUOUS"]
    assert np.allclose(problem.vectors, centred / np.sqrt(200), rtol=0, atol=1e-6)
    assert problem.target == pytest.approx(weights @ centred / np.sqrt(200), abs=1e-9)
    assert problem.heldout_vectors.shape == (3000, 50)
    assert np.abs(problem.heldout_vectors.sum(axis=1)).max() < 1e-5


def test_from_loglik_gives_constant_rows_no_norm():
    loglik = np.full((2, 7), -1234.567)
    loglik[1] += np.arange(7) * 1e-13
    loglik[0, 0] += 1e-9
    assert (Problem.from_loglik(loglik).norms > 0).tolist() == [True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loglik": [[1.0, np.nan]]}, "loglik contains NaN"),
        ({"loglik": [1.0, 2.0]}, "loglik must have shape"),
        ({"loglik": np.eye(2), "base_weights": np.ones(3)}, "base_weights must have shape"),
        ({"loglik": np.eye(2), "heldout_loglik": np.eye(3)}, "heldout_loglik has 3 rows"),
    ],
)
def test_from_loglik_rejects(arguments, message):
    with pytest.raises(InvalidDataError, match=message):
        Problem.from_loglik(**arguments)


def test_from_loglik_target_matches_the_objective_of_the_sheet():
    """J(w) is the variance over draws of the difference of weighted log-likelihoods."""
    rng = np.random.default_rng(4)
    loglik, weights = rng.gamma(2.0, size=(9, 40)), rng.uniform(size=9)
    problem = Problem.from_loglik(loglik)
    residual = problem.target - weights @ problem.vectors
    assert residual @ residual == pytest.approx(np.var((1 - weights) @ loglik))
