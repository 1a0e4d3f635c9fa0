"""The tangent space at some draws: which draws choose, and which are held out."""

from collections import Counter

import numpy as np
import pytest

from benchmarks.closed_forms import InMemoryLogLikelihoods
from pymc_coresets import InvalidDataError
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.solving.problem import problem_at, tangent_problem
from tests.refusals import refused

ROWS = np.random.default_rng(1).normal(size=(30, 4))


#: Log-likelihoods ``-(x_n . theta)^2 / 2`` of draws theta of shape (n_draws, 4).
QUADRATIC = InMemoryLogLikelihoods(
    InMemoryRows([ROWS]), 4, lambda draws, rows: -0.5 * np.square(rows.arrays[0] @ draws.T)
)


def columns(vectors):
    """Draws by the log-likelihoods of two rows, on a scale that does not depend on their number."""
    loglik = (vectors[:2] - vectors[:2].min(axis=1, keepdims=True)) * np.sqrt(vectors.shape[1])
    return Counter(map(tuple, loglik.T.round(9)))


def test_a_fifth_of_the_draws_is_held_out():
    draws = np.random.default_rng(2).normal(size=(200, 4))
    problem, candidates = tangent_problem(QUADRATIC, draws, rng=np.random.default_rng(3))
    assert problem.heldout_vectors.shape == (30, 40)
    assert problem.vectors.shape == (30, 160)
    np.testing.assert_array_equal(candidates.positions, np.arange(30))
    np.testing.assert_allclose(problem.target, problem.vectors.sum(axis=0), atol=1e-12)


def test_draws_that_repeat_themselves_are_all_held_out_or_all_choose():
    draws = np.random.default_rng(2).normal(size=(100, 4)).repeat(3, axis=0)
    problem, _ = tangent_problem(QUADRATIC, draws, rng=np.random.default_rng(3))
    assert problem.heldout_vectors.shape == (30, 60)
    for vectors in (problem.vectors, problem.heldout_vectors):
        assert set(columns(vectors).values()) == {3}


def test_potentials_that_cancel_are_refused():
    two = InMemoryRows([np.array([1.0, -1.0])])
    loglik = InMemoryLogLikelihoods(two, 1, lambda draws, rows: np.outer(rows.arrays[0], draws))
    with refused(InvalidDataError, "does not vary", "weighting draws"):
        tangent_problem(loglik, np.arange(50.0), rng=np.random.default_rng(1))


def test_few_draws_that_repeat_themselves_are_refused():
    source = InMemoryRows([np.arange(5.0)])
    posterior = InMemoryLogLikelihoods(
        source, 1, lambda draws, rows: np.outer(rows.arrays[0], draws)
    )
    with refused(InvalidDataError, "3 of 60"):
        tangent_problem(posterior, np.repeat([0.0, 1.0, 3.0], 20), rng=np.random.default_rng(1))


def test_draws_that_are_all_the_same_are_refused():
    with refused(InvalidDataError, "does not vary", "weighting draws"):
        tangent_problem(QUADRATIC, np.ones((50, 4)), rng=np.random.default_rng(1))


@pytest.mark.parametrize(("n_equal", "used"), [(200, True), (3, False)])
def test_weights_judge_where_the_draws_held_out_are_worth_thirty(n_equal, used):
    """Of 200 draws 40 are held out; with three of any weight, none or few of them are heard."""
    draws = np.random.default_rng(2).normal(size=(200, 4))
    sums = QUADRATIC.sums(draws, n_candidates=30)
    weights = np.zeros(200)
    weights[:n_equal] = np.linspace(1.0, 1.5, n_equal)
    problems = [
        problem_at(
            QUADRATIC.loglik(draws, sums.candidates),
            sums,
            sums.total,
            rng=np.random.default_rng(3),
            weights=w,
        )
        for w in (weights, None)
    ]
    same = np.array_equal(problems[0].heldout_target, problems[1].heldout_target)
    assert same is not used
