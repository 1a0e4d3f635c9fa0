"""One contract for every method that works in the tangent space of fixed draws."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pymc_coresets.methods.hilbert import HilbertMethod, solve
from pymc_coresets.request import known_methods
from pymc_coresets.solving.problem import Problem
from pymc_coresets.solving.solution import Solution, Status

PAGE = Path(__file__).parents[2] / "docs/adding-a-method.md"


def method_of_the_page() -> type[Any]:
    """The method that the page on adding one shows in full."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    [block] = [block for block in blocks if "class KCenter(" in block]
    names: dict[str, Any] = {"__name__": PAGE.stem}
    exec(compile(block, PAGE.name, "exec"), names)
    return names["KCenter"]


TESTED = {**known_methods(), "k_center": method_of_the_page()}
GREEDY = [name for name, method in TESTED.items() if issubclass(method, HilbertMethod)]
STEPWISE = [name for name in GREEDY if name != "iht"]
every_method = pytest.mark.parametrize("name", GREEDY)
quick = settings(deadline=None, max_examples=30)


def run(name: str, problem: Problem, size: int) -> Solution:
    return solve(TESTED[name](), problem, size)


def problem_of(vectors: np.ndarray, case_weights: np.ndarray | None = None) -> Problem:
    weights = np.ones(len(vectors)) if case_weights is None else case_weights
    target = weights @ vectors.astype(np.float64)
    return Problem(vectors=vectors, target=target, case_weights=weights)


def dense(solution: Solution, n_obs: int) -> np.ndarray:
    weights = np.zeros(n_obs)
    weights[solution.rows.positions] = solution.weights
    return weights


def distance(problem: Problem, weights: np.ndarray) -> float:
    return float(np.sum((problem.target - weights @ problem.vectors.astype(np.float64)) ** 2))


@st.composite
def generic_vectors(draw: st.DrawFn, *, min_draws: int = 2) -> np.ndarray:
    """Continuous rows of very different lengths: no ties, so that the choice of rows is unique."""
    n_obs, n_draws = draw(st.integers(2, 40)), draw(st.integers(min_draws, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    lengths = rng.gamma(0.5, size=(n_obs, 1)) + 1e-3
    return lengths * (rng.normal(size=(n_obs, n_draws)) + 0.3)


# Small whole numbers: zero rows, equal rows, opposite rows, low rank and ties abound.
degenerate_vectors = st.tuples(st.integers(1, 12), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-2, 2).map(float))
)


@every_method
@quick
@given(vectors=st.one_of(generic_vectors(), degenerate_vectors), data=st.data())
def test_solution_is_sparse_sorted_and_positive(name, vectors, data):
    size = data.draw(st.integers(1, len(vectors)))
    solution = run(name, problem_of(vectors), size)
    assert len(solution.rows.positions) == len(solution.weights) <= size
    assert (np.diff(solution.rows.positions) > 0).all()
    assert (solution.weights > 0).all()
    assert solution.rows.positions.dtype == np.int64
    assert solution.status in Status


@every_method
@quick
@given(vectors=st.one_of(generic_vectors(), degenerate_vectors), data=st.data())
def test_history_describes_the_solution(name, vectors, data):
    size = data.draw(st.integers(1, len(vectors)))
    problem = problem_of(vectors)
    history = (solution := run(name, problem, size)).history
    total = problem.target @ problem.target
    found = distance(problem, dense(solution, problem.n_obs))
    assert history["objective"][0] == pytest.approx(total)
    assert history["objective"][-1] == pytest.approx(found, rel=1e-9, abs=1e-24 * total + 1e-300)
    assert history["size"][0] == 0
    assert history["size"][-1] == len(solution.rows.positions)
    assert (np.diff(history["seconds"]) >= 0).all()
    assert np.isnan(history["heldout_objective"]).all()


@every_method
@quick
@given(vectors=st.one_of(generic_vectors(), degenerate_vectors), data=st.data())
def test_objective_never_grows(name, vectors, data):
    size = data.draw(st.integers(1, len(vectors)))
    objective = run(name, problem_of(vectors), size).history["objective"]
    assert (np.diff(objective[1:]) <= 1e-12 * objective[0]).all()


@pytest.mark.parametrize("name", STEPWISE)
@quick
@given(vectors=generic_vectors())
def test_more_points_are_never_worse(name, vectors):
    problem = problem_of(vectors)
    finals = [run(name, problem, m).history["objective"][-1] for m in range(1, len(vectors) + 1)]
    assert (np.diff(finals) <= 1e-12 * (problem.target @ problem.target)).all()


@every_method
@quick
@given(vectors=generic_vectors(), exponent=st.integers(-60, 60))
def test_scale_of_the_potentials_changes_nothing(name, vectors, exponent):
    size, scale = len(vectors) // 2, 2.0**exponent
    solution = run(name, problem_of(vectors), size)
    scaled = run(name, problem_of(scale * vectors), size)
    assert (solution.rows.positions == scaled.rows.positions).all()
    assert scaled.weights == pytest.approx(solution.weights, rel=1e-9)
    assert np.allclose(scaled.history["objective"] / scale / scale, solution.history["objective"])


@every_method
@quick
@given(vectors=generic_vectors(min_draws=8), data=st.data())
def test_permuted_rows_permute_the_weights(name, vectors, data):
    order = np.array(data.draw(st.permutations(range(len(vectors)))))
    size = max(1, len(vectors) // 3)
    original, permuted = problem_of(vectors), problem_of(vectors[order])
    expected = dense(run(name, original, size), len(order))[order]
    found = dense(run(name, permuted, size), len(order))
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6 * expected.max())


@pytest.mark.parametrize("name", STEPWISE)
@quick
@given(vectors=generic_vectors(min_draws=8), share=st.floats(0.1, 0.9))
def test_duplicated_rows_with_split_weights_change_nothing(name, vectors, share):
    n_obs, size = len(vectors), max(1, len(vectors) // 3)
    whole = run(name, problem_of(vectors), size)
    weights = np.repeat([share, 1 - share], n_obs)
    split = run(name, problem_of(np.vstack([vectors, vectors]), weights), size)
    merged = dense(split, 2 * n_obs).reshape(2, n_obs).sum(0)
    expected = dense(whole, n_obs)
    assert merged == pytest.approx(expected, rel=1e-6, abs=1e-6 * expected.max())


@every_method
@quick
@given(vectors=generic_vectors(min_draws=8))
def test_case_weights_stand_for_repeated_rows(name, vectors):
    counts = np.arange(len(vectors)) % 3 + 1
    size = max(1, len(vectors) // 3)
    weighted = run(name, problem_of(vectors, counts.astype(float)), size)
    repeated = problem_of(np.repeat(vectors, counts, axis=0))
    objective = run(name, repeated, size).history["objective"]
    if name == "iht":  # chooses several of equal rows at once
        objective = objective[:1]
    found = weighted.history["objective"][: len(objective)]
    # A step may choose a copy of a chosen row, which changes nothing.
    found = np.append(found, np.full(len(objective) - len(found), found[-1]))
    assert found == pytest.approx(objective, rel=1e-6, abs=1e-12 * objective[0])


@every_method
@quick
@given(vectors=generic_vectors(), data=st.data())
def test_absent_rows_change_nothing(name, vectors, data):
    present = np.array(data.draw(st.lists(st.booleans(), min_size=1, max_size=len(vectors))))
    case_weights = np.ones(len(vectors))
    case_weights[: len(present)] = present
    assume(case_weights.any())
    solution = run(name, problem_of(vectors, case_weights), len(vectors))
    assert (case_weights[solution.rows.positions] > 0).all()


@every_method
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_without_information_are_never_selected(name, dtype):
    vectors = np.random.default_rng(1).normal(size=(30, 5)).astype(dtype)
    vectors[::2] = 0
    vectors[1] = 1e-30 * vectors[1]
    solution = run(name, problem_of(vectors), 30)
    assert (solution.rows.positions % 2 == 1).all()
    assert 1 not in solution.rows.positions
    assert solution.history["objective"][-1] < 1e-2 * solution.history["objective"][0]


@every_method
def test_nothing_to_match_needs_no_rows(name):
    for vectors in (np.zeros((4, 3)), np.array([[1.0, 2.0], [-1.0, -2.0]])):
        solution = run(name, problem_of(vectors), 2)
        assert len(solution.rows.positions) == 0
        assert solution.status is Status.OPTIMAL


@every_method
def test_no_row_points_at_the_target(name):
    problem = Problem(vectors=-np.eye(2), target=np.ones(2), case_weights=np.ones(2))
    solution = run(name, problem, 2)
    assert len(solution.rows.positions) == 0
    assert solution.status is Status.OPTIMAL


@every_method
def test_equal_rows_are_represented_by_their_sum(name):
    case_weights = np.arange(1.0, 6.0)
    vectors = np.tile([1.0, -2.0, 0.1], (5, 1))
    solution = run(name, problem_of(vectors, case_weights), 1)
    assert solution.weights == pytest.approx([15.0])
    assert solution.history["objective"][-1] < 1e-24 * solution.history["objective"][0]


@every_method
@quick
@given(seed=st.integers(0, 2**32), n_draws=st.integers(2, 30), log_scale=st.floats(-12, 12))
def test_two_dimensional_cones_are_matched_exactly(name, seed, n_draws, log_scale):
    rng = np.random.default_rng(seed)
    vectors = rng.uniform(size=(20, 2)) @ rng.normal(size=(2, n_draws))
    solution = run(name, problem_of(10.0**log_scale * vectors), 20)
    assert solution.history["objective"][-1] <= 1e-20 * solution.history["objective"][0]


@every_method
@quick
@given(vectors=generic_vectors(min_draws=1))
def test_as_many_points_as_rows_come_close(name, vectors):
    """With n_obs >= n_draws too, where every step after the last useful one must be harmless."""
    objective = run(name, problem_of(vectors), len(vectors)).history["objective"]
    assert objective[-1] < 0.5 * objective[0]
    if name == "pursuit":
        assert objective[-1] < 1e-20 * objective[0]


@every_method
@quick
@given(vectors=generic_vectors())
def test_memory_order_changes_nothing(name, vectors):
    size = max(1, len(vectors) // 3)
    expected = run(name, problem_of(vectors), size)
    found = run(name, problem_of(np.asfortranarray(vectors)), size)
    first, last = expected.history["objective"][[0, -1]]
    assert found.history["objective"][-1] == pytest.approx(last, rel=1e-3, abs=1e-12 * first)


@every_method
@quick
@given(vectors=generic_vectors())
def test_single_precision_is_nearly_as_good(name, vectors):
    """Scores within 1e-6 of each other may swap, hence a comparison of what is reached."""
    problem, size = problem_of(vectors), max(1, len(vectors) // 3)
    single = Problem(
        vectors=vectors.astype(np.float32),
        target=problem.target,
        case_weights=problem.case_weights,
    )
    expected = run(name, problem, size).history["objective"][-1]
    found = distance(problem, dense(run(name, single, size), len(vectors)))
    assert found <= 1.2 * expected + 1e-9 * (problem.target @ problem.target)


@every_method
def test_inputs_are_left_alone(name):
    vectors = np.random.default_rng(3).normal(size=(30, 10))
    problem = problem_of(vectors.copy())
    for array in (problem.vectors, problem.target, problem.case_weights):
        array.setflags(write=False)
    run(name, problem, 10)
    assert (problem.vectors == vectors).all()


@every_method
def test_same_seed_same_coreset(name):
    problem = problem_of(np.random.default_rng(3).normal(size=(30, 10)))
    first, second = run(name, problem, 8), run(name, problem, 8)
    assert (first.rows.positions == second.rows.positions).all()
    assert first.weights == pytest.approx(second.weights, rel=1e-12)


@every_method
def test_target_may_cover_more_than_the_candidates(name):
    """A hundred candidates out of 1000 rows still aim at the sum of all."""
    vectors = np.random.default_rng(5).normal(size=(1000, 6))
    vectors[:, 0] += 1
    problem = Problem(
        vectors=vectors[:100],
        target=vectors.sum(0),
        case_weights=np.ones(100),
        total_norm=float(np.linalg.norm(vectors, axis=1).sum()),
    )
    objective = run(name, problem, 40).history["objective"]
    assert objective[-1] < 1e-3 * objective[0]
