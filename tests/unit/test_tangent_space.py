"""The tangent space at some draws, and the loop that selects rows in it."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.closed_forms import InMemoryLogLikelihoods
from benchmarks.problems import problem_of
from pymc_coresets import GIGA, IHT, FrankWolfe, InvalidDataError, InvalidOptionError, Pursuit
from pymc_coresets.methods.hilbert import solve
from pymc_coresets.request import known_methods
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.solving.problem import (
    Problem,
    problem_at,
    tangent_problem,
    tangent_vectors,
    weighted_tangent_vectors,
)
from pymc_coresets.solving.solution import History, Selection, Status
from tests.refusals import refused

# -- vectors and their target ----------------------------------------------------------------------


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


# -- scales, and rows that are barred --------------------------------------------------------------

VECTORS = np.random.default_rng(2).normal(size=(20, 6)) * np.linspace(0.1, 5, 20)[:, None]
WEIGHTS = np.linspace(1, 2, 20)


def make_space(vectors=VECTORS, **changes):
    weights = changes.pop("case_weights", WEIGHTS)
    return Problem(vectors=vectors, target=weights @ vectors, case_weights=weights, **changes)


def test_norms_and_their_sum():
    norms = np.linalg.norm(VECTORS, axis=1)
    assert make_space().norms == pytest.approx(norms)
    assert make_space().sigma == pytest.approx(WEIGHTS @ norms)
    assert make_space(total_norm=8.0).sigma == 8.0


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("length", [1e-20, 1.0, 1e5])
def test_project_at_every_scale(scale, length):
    direction = length * np.arange(6.0)
    units = VECTORS / np.linalg.norm(VECTORS, axis=1)[:, None]
    assert make_space(scale * VECTORS).project(direction) == pytest.approx(
        units @ direction, rel=1e-9
    )


def test_project_keeps_the_digits_of_single_precision():
    """A residual of 1e-42 would be denormal in float32."""
    direction = 1e-42 * np.arange(6.0)
    expected = make_space().project(direction)
    found = make_space(VECTORS.astype(np.float32)).project(direction)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-47)


def test_rows_of_no_length_or_no_weight_are_barred():
    vectors, weights = VECTORS.copy(), WEIGHTS.copy()
    vectors[0], vectors[1], weights[2] = 0, 1e-17 * vectors[1], 0
    space = make_space(vectors, case_weights=weights)
    scores = np.full(20, -1.0)
    scores[:3], scores[7] = 5, -0.5
    assert (space.inverse_norms == 0).nonzero()[0].tolist() == [0, 1, 2]
    assert (space.project(np.ones(6))[:3] == 0).all()
    assert space.best(scores) == 7


def test_objectives_are_in_nats():
    heldout = np.random.default_rng(3).normal(size=(20, 9))
    space = make_space(heldout_vectors=heldout, heldout_target=WEIGHTS @ heldout)
    weights = np.where(np.arange(20) % 3, 0.0, 2.0)
    assert space.residual(weights) == pytest.approx((WEIGHTS - weights) @ VECTORS)
    assert space.heldout_objective(weights) == pytest.approx(
        np.sum(((WEIGHTS - weights) @ heldout) ** 2)
    )
    assert np.isnan(make_space().heldout_objective(weights))


# -- which draws choose, and which are held out ----------------------------------------------------

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


# -- sizes, ends and histories of all solvers ------------------------------------------------------


@pytest.fixture
def problem():
    rng = np.random.default_rng(11)
    draws, heldout = rng.normal(size=(5, 60)), rng.normal(size=(5, 400))
    features = rng.normal(size=(80, 5)) + 0.5
    return problem_of(features @ draws, heldout=features @ heldout)


def make_rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize("size", [0, -1, 81])
def test_size_out_of_range_names_both_numbers(problem, size):
    with refused(InvalidOptionError, f"size={size}", "1 and 80"):
        solve(Pursuit(), problem, size)


def test_size_must_be_whole(problem):
    with refused(InvalidOptionError, "size=2.5", "whole number"):
        solve(Pursuit(), problem, 2.5)


def test_size_may_be_a_numpy_integer(problem):
    assert len(solve(Pursuit(), problem, np.int64(3)).rows.positions) == 3


def test_tolerance_needs_heldout_draws():
    problem = Problem(vectors=np.eye(2), target=np.ones(2), case_weights=np.ones(2))
    with refused(InvalidOptionError, "heldout_vectors"):
        solve(Pursuit(tolerance=0.1), problem, 1)


def test_tolerance_stops_at_the_first_step_within_it(problem):
    solution = solve(Pursuit(tolerance=1.0), problem, 80)
    heldout = solution.history["heldout_objective"]
    assert solution.status is Status.TOLERANCE_REACHED
    assert heldout[-1] <= 1.0 < heldout[-2]


def test_heldout_objective_follows_its_formula(problem):
    solution = solve(Pursuit(), problem, 4)
    matched = solution.weights @ problem.heldout_vectors[solution.rows.positions]
    expected = np.sum((problem.heldout_target - matched) ** 2)
    assert solution.history["heldout_objective"][-1] == pytest.approx(expected)


def test_linear_potentials_need_as_many_points_as_parameters(problem):
    """Five coefficients span the rows, so the full optimum has at most five points."""
    solution = solve(Pursuit(), problem, 80)
    assert len(solution.rows.positions) <= 5
    assert solution.status is Status.OPTIMAL
    assert (
        solution.history["heldout_objective"][-1] < 1e-20 * solution.history["heldout_objective"][0]
    )


def test_callback_sees_every_step(problem):
    seen = []
    history = solve(Pursuit(), problem, 4, callback=seen.append).history
    assert [step.size for step in seen] == history["size"].tolist()
    assert [step.objective for step in seen] == history["objective"].tolist()


@pytest.mark.parametrize("name", ["frank_wolfe", "giga", "pursuit", "iht"])
def test_interrupt_returns_the_best_so_far(problem, name):
    def interrupt_third(progress):
        if (calls := next(counter)) == 3:
            raise KeyboardInterrupt
        assert calls < 3

    counter = iter(range(100))
    solution = solve(known_methods()[name](), problem, 50, callback=interrupt_third)
    assert solution.status is Status.INTERRUPTED
    assert len(solution.rows.positions) > 0
    assert solution.history["objective"][-1] < solution.history["objective"][1]


def test_status_tells_why_it_stopped(problem):
    def status(method, size):
        return solve(method, problem, size).status

    assert status(Pursuit(), 3) is Status.SIZE_REACHED
    assert status(GIGA(), 1) is Status.SIZE_REACHED
    assert status(FrankWolfe(), 80) is Status.ITERATION_LIMIT
    assert status(IHT(max_iterations=1), 3) is Status.ITERATION_LIMIT
    assert all(reason.value.endswith(".") for reason in Status)


@pytest.mark.parametrize(
    ("method", "passes"),
    [(FrankWolfe(), 4), (GIGA(), 5), (Pursuit(), 4), (IHT(max_iterations=4), 4)],
)
def test_one_pass_over_the_vectors_per_step(problem, method, passes, calls):
    """In four steps; GIGA needs one more before the first."""
    projections = calls(Problem, "project")
    solve(method, problem, 4)
    assert len(projections) == passes


def test_patience_ends_a_run_that_only_fits_the_draws_that_choose():
    rng = np.random.default_rng(1)
    loglik = rng.normal(size=(200, 80))  # no structure: nothing carries over to held-out draws
    choosing, heldout = loglik[:, :60], loglik[:, 60:]
    problem = problem_of(choosing, heldout=heldout)
    patient = solve(Pursuit(), problem, 50)
    solution = solve(Pursuit(), problem, 50, patience=5)
    assert solution.status is Status.NO_PROGRESS
    assert len(solution.rows.positions) < len(patient.rows.positions)
    objective, heldout_objective = (
        solution.history["objective"],
        solution.history["heldout_objective"],
    )
    lowest = np.minimum.accumulate(heldout_objective)
    useless = (heldout_objective > lowest) & (heldout_objective > 4 * objective)
    assert useless[-6:-1].all()
    assert not any(useless[i : i + 5].all() for i in range(len(useless) - 6))
    # Those steps are taken back.
    assert (
        solution.history["size"][-1] == len(solution.rows.positions) == solution.history["size"][-7]
    )
    assert solution.objective == heldout_objective[-1] == heldout_objective[-7]


def test_patience_waits_while_the_choosing_draws_are_matched_no_better():
    vectors = np.random.default_rng(1).normal(size=(40, 100))
    # Every row leads away from the held-out target, whose objective stays the smaller one.
    problem = Problem(
        vectors=vectors,
        target=vectors.sum(axis=0),
        case_weights=np.ones(40),
        heldout_vectors=0.1 * vectors,
        heldout_target=-0.1 * vectors.sum(axis=0),
    )
    solution = solve(Pursuit(), problem, 10, patience=2)
    assert np.all(np.diff(solution.history["heldout_objective"]) > 0)
    assert len(solution.rows.positions) == 10


@pytest.mark.parametrize(
    ("objective", "stated"), [(np.inf, np.nan), (-np.inf, np.nan), (np.nan, np.nan), (2.0, 2.0)]
)
def test_an_objective_that_is_not_finite_is_not_known(objective, stated):
    chosen = Selection(rows=[], weights=np.zeros(0))
    found = History().solution(chosen, Status.TOLERANCE_REACHED, objective).objective
    np.testing.assert_equal(found, stated)
