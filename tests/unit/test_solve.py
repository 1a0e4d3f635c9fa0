import numpy as np
import pytest

from benchmarks.problems import problem_of
from pymc_coresets import GIGA, IHT, FrankWolfe, InvalidOptionError, Pursuit
from pymc_coresets.methods.hilbert import solve
from pymc_coresets.request import known_methods
from pymc_coresets.solving.problem import Problem
from pymc_coresets.solving.solution import History, Selection, Status
from tests.refusals import refused


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
