"""Solvers, each against the formulas of its paper, written plainly or by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import nnls

from benchmarks.problems import problem_of
from pymc_coresets import GIGA, IHT, FrankWolfe, Pursuit
from pymc_coresets.methods.hilbert import State, solve
from pymc_coresets.methods.pursuit import ActiveSet
from pymc_coresets.solving.problem import Problem, nonnegative_least_squares
from pymc_coresets.solving.solution import Status


class Example:
    """A problem, and what is known of it without the package."""

    def __init__(self, vectors, *, case_weights=None, target=None):
        self.vectors, self.norms = vectors, np.linalg.norm(vectors, axis=1)
        self.case_weights = np.ones(len(vectors)) if case_weights is None else case_weights
        self.target = self.case_weights @ vectors if target is None else target
        self.sigma = self.case_weights @ self.norms

    def problem(self, **options):
        return Problem(
            vectors=self.vectors, target=self.target, case_weights=self.case_weights, **options
        )

    def weights_by(self, method, size, **options):
        """Return the weights of all rows, of which most are zero."""
        solution = solve(method, self.problem(**options), size)
        weights = np.zeros(len(self.vectors))
        weights[solution.rows.positions] = solution.weights
        return weights

    def distance(self, weights):
        return np.sum((self.target - weights @ self.vectors) ** 2)

    def best_weights(self, rows):
        return nnls(self.vectors[rows].T, self.target)[0]


def rows_of(n_rows, n_draws, shift):
    return np.random.default_rng(8).normal(size=(n_rows, n_draws)) + shift


GROWING = np.linspace(0.1, 9, 40)[:, None]
EXAMPLE = Example(rows_of(40, 15, 0.4), case_weights=np.random.default_rng(9).uniform(0.5, 2, 40))
UNEQUAL = Example(GROWING * EXAMPLE.vectors, case_weights=EXAMPLE.case_weights)
EVEN = Example(rows_of(50, 30, 0.2) * np.linspace(0.5, 2, 50)[:, None])


# -- non-negative least squares --------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 30))
def test_agrees_with_scipy(seed, n_rows, n_draws):
    rng = np.random.default_rng(seed)
    rows, target = rng.normal(size=(n_rows, n_draws)), rng.normal(size=n_draws)
    weights = nonnegative_least_squares(rows, target)
    _, distance = nnls(rows.T, target)
    assert (weights >= 0).all()
    assert np.linalg.norm(target - weights @ rows) == pytest.approx(distance, abs=1e-10)


@settings(deadline=None)
@given(
    arrays(np.float64, (8, 4), elements=st.integers(-2, 2).map(float)),
    arrays(np.float64, (4,), elements=st.integers(-5, 5).map(float)),
)
def test_optimality_conditions_hold_for_dependent_rows(rows, target):
    weights = nonnegative_least_squares(rows, target)
    gradient = rows @ (target - weights @ rows)
    assert (weights >= 0).all()
    assert gradient.max() <= 1e-10
    assert gradient[weights > 0] == pytest.approx(0, abs=1e-10)


def test_ill_conditioned_rows_keep_their_digits():
    """Condition number 1e6: normal equations would lose all but four digits."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=40) + 1e-6 * rng.normal(size=(6, 40))
    weights = nonnegative_least_squares(rows, np.arange(1.0, 7.0) @ rows)
    assert weights == pytest.approx(np.arange(1.0, 7.0), rel=1e-8)


def test_dependent_row_is_refused():
    active = ActiveSet(np.ones(3), capacity=3)
    row = np.array([0.1, 0.7, 0.3])
    assert active.add(0, row)
    assert not active.add(1, 3 * row)
    assert active.numbers == [0]


def test_row_without_gain_is_refused():
    active = ActiveSet(np.array([1.0, 1e-17]), capacity=2)
    assert active.add(0, np.array([1.0, 0.0]))
    assert not active.add(1, np.array([0.0, 1.0]))


def test_full_set_refuses():
    active = ActiveSet(np.ones(3), capacity=1)
    assert active.add(0, np.eye(3)[0])
    assert not active.add(1, np.eye(3)[1])


def test_superfluous_row_is_dropped():
    active = ActiveSet(np.array([1.0, 1.0]), capacity=3)
    for key, row in enumerate([[1.0, 0.9], [1.0, 0.0], [0.0, 1.0]]):
        active.add(key, np.array(row))
    assert np.linalg.norm(active.residual) < 1e-14
    assert len(active.numbers) == 2


def test_factorisation_survives_many_drops():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(300, 30)) + 1
    target = rows.sum(0) + 20 * rng.normal(size=30)
    active = ActiveSet(target, capacity=30)
    for key in rng.permutation(300):
        if key not in active.numbers:
            active.add(int(key), rows[key])
    residual = target - active.weights @ rows[active.numbers]
    assert active.residual == pytest.approx(residual, abs=1e-9 * np.linalg.norm(target))
    assert rows[active.numbers] @ residual == pytest.approx(0, abs=1e-9 * np.linalg.norm(target))


def test_factors_of_rows_that_are_almost_the_same_stay_orthogonal():
    rng = np.random.default_rng(6)
    middle, apart = rng.normal(size=50), 1e-7 * rng.normal(size=50)
    active = ActiveSet(middle, 2)
    assert active.add(0, middle + apart)
    assert active.add(1, middle - apart)
    assert active.weights == pytest.approx([0.5, 0.5], rel=1e-6)
    np.testing.assert_allclose(active._basis.T @ active._basis, np.eye(2), atol=1e-13)


# -- orthogonal pursuit: each step against SciPy's non-negative least squares ----------------------

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


# -- Frank-Wolfe: against a dense line search ------------------------------------------------------


def by_frank_wolfe(steps, **options):
    return EXAMPLE.weights_by(FrankWolfe(polish=False), steps, **options)


def vertex(row):
    weights = np.zeros(len(EXAMPLE.vectors))
    weights[row] = EXAMPLE.sigma / EXAMPLE.norms[row]
    return weights


def test_first_step_is_the_best_aligned_vertex():
    best = np.argmax(EXAMPLE.vectors @ EXAMPLE.target / EXAMPLE.norms)
    assert by_frank_wolfe(1) == pytest.approx(vertex(best))


@pytest.mark.parametrize("steps", range(1, 30))
def test_step_is_the_best_point_towards_the_best_vertex(steps):
    before, after = by_frank_wolfe(steps), by_frank_wolfe(steps + 1)
    best = np.argmax(EXAMPLE.vectors @ (EXAMPLE.target - before @ EXAMPLE.vectors) / EXAMPLE.norms)
    gammas = np.linspace(0, 1, 2001)
    grid = [EXAMPLE.distance((1 - g) * before + g * vertex(best)) for g in gammas]
    gamma = gammas[np.argmin(grid)]
    assert EXAMPLE.distance(after) <= min(grid) * (1 + 1e-12)
    assert after == pytest.approx(
        (1 - gamma) * before + gamma * vertex(best), abs=EXAMPLE.sigma / 1000
    )


@pytest.mark.parametrize("steps", range(1, 30))
def test_weights_stay_in_the_polytope(steps):
    assert by_frank_wolfe(steps) @ EXAMPLE.norms == pytest.approx(EXAMPLE.sigma)


def test_total_norm_of_all_data_sets_the_polytope():
    weights = by_frank_wolfe(5, total_norm=3 * EXAMPLE.sigma)
    assert weights @ EXAMPLE.norms == pytest.approx(3 * EXAMPLE.sigma)


def test_optimum_inside_the_polytope_is_recognised():
    problem = Problem(vectors=np.eye(1), target=np.ones(1), case_weights=np.ones(1))
    repeated = Problem(vectors=np.ones((3, 1)), target=np.array([3.0]), case_weights=np.ones(3))
    for case in (problem, repeated):
        solution = solve(FrankWolfe(polish=False), case, case.n_obs)
        assert solution.history["objective"][-1] == 0
    assert solution.status is Status.OPTIMAL


# -- GIGA: against the best row and the best point of its geodesic ---------------------------------

STEPS = 15


def by_giga(steps):
    return UNEQUAL.weights_by(GIGA(polish=False), steps)


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_first_row_is_the_best_aligned_one():
    weights = by_giga(1)
    best = np.argmax(UNEQUAL.vectors @ UNEQUAL.target / UNEQUAL.norms)
    assert np.flatnonzero(weights) == [best]
    assert weights[best] == pytest.approx(
        UNEQUAL.vectors[best] @ UNEQUAL.target / UNEQUAL.norms[best] ** 2
    )


def brute_force_row(y):
    """Row whose great circle leaves y closest to the great circle from y to the target."""
    ell = unit(UNEQUAL.target)
    towards = unit(ell - (ell @ y) * y)
    scores = []
    for row in UNEQUAL.vectors:
        side = unit(row) - (unit(row) @ y) * y
        length = np.linalg.norm(side)
        scores.append(towards @ side / length if length > 1e-8 else -np.inf)
    return int(np.argmax(scores))


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_step_is_the_best_point_on_the_best_geodesic(steps):
    """The best point of a geodesic, scaled, is the projection on the cone of its two ends."""
    before, after = (
        by_giga(steps) @ UNEQUAL.vectors,
        by_giga(steps + 1) @ UNEQUAL.vectors,
    )
    best = brute_force_row(unit(before))
    ends = np.array([unit(before), UNEQUAL.vectors[best] / UNEQUAL.norms[best]])
    shares, _ = nnls(ends.T, UNEQUAL.target)
    assert after == pytest.approx(shares @ ends, abs=1e-9 * np.linalg.norm(UNEQUAL.target))


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_weights_follow_the_direction(steps):
    """Only the selected row gains; all others shrink by the same factor."""
    before, after = by_giga(steps), by_giga(steps + 1)
    best = brute_force_row(unit(before @ UNEQUAL.vectors))
    others = np.flatnonzero((before > 0) & (np.arange(40) != best))
    ratios = after[others] / before[others]
    assert after[best] > 0
    assert ratios == pytest.approx(np.full(len(others), ratios[:1].sum()))


@pytest.mark.parametrize("steps", [1, 5, STEPS])
def test_weights_are_scaled_optimally(steps):
    matched = by_giga(steps) @ UNEQUAL.vectors
    assert matched @ (UNEQUAL.target - matched) == pytest.approx(
        0, abs=1e-9 * (UNEQUAL.target @ UNEQUAL.target)
    )


@pytest.mark.parametrize(
    ("method", "example", "size"), [(FrankWolfe, EXAMPLE, 10), (GIGA, UNEQUAL, STEPS)]
)
def test_polished_weights_are_the_best_on_their_rows(method, example, size):
    rows = np.flatnonzero(example.weights_by(method(polish=False), size))
    polished = example.weights_by(method(polish=True), size)
    assert polished[rows] == pytest.approx(example.best_weights(rows), abs=1e-10)


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


# -- iterative hard thresholding: against a plain implementation -----------------------------------

SIZE = 8
UNITS = EVEN.vectors / EVEN.norms[:, None]


def largest(values, size):
    kept = np.zeros_like(values)
    rows = np.argsort(-values)[:size]
    kept[rows] = np.maximum(values[rows], 0)
    return kept


def plain_iterates(steps):
    """Lengths after each step; every line search by brute force."""
    x = z = np.zeros(len(UNITS))
    for _ in range(steps):
        gradient = UNITS @ (EVEN.target - z @ UNITS)
        outside = largest(np.where(z != 0, 0, gradient), SIZE)
        restricted = np.where(z != 0, gradient, outside)
        change = restricted @ UNITS
        step, *_ = np.linalg.lstsq(change[:, None], EVEN.target - z @ UNITS)
        old, x = x, largest(z + step[0] * gradient, SIZE)
        moved = (x - old) @ UNITS
        tau, *_ = np.linalg.lstsq(moved[:, None], EVEN.target - x @ UNITS)
        z = x + max(tau[0], 0) * (x - old)
        yield x


def states(steps):
    method = IHT()
    state = method.start(State.empty(EVEN.problem(), SIZE))
    for _ in range(steps):
        yield (state := method.step(state))


def test_iterates_follow_the_formulas():
    unit = np.linalg.norm(EVEN.vectors, axis=1) / EVEN.problem().norms
    for expected, state in zip(plain_iterates(15), states(15), strict=True):
        assert unit * state.lengths == pytest.approx(expected, abs=1e-9 * expected.max())


def test_best_iterate_is_kept():
    best = np.inf
    for expected, state in zip(plain_iterates(15), states(15), strict=True):
        best = min(best, np.sum((EVEN.target - expected @ UNITS) ** 2))
        assert EVEN.distance(state.weights) == pytest.approx(best)


def test_weights_are_the_best_on_their_rows():
    method = IHT(max_iterations=2)
    solution = solve(method, EVEN.problem(), SIZE)
    best, _ = nnls(EVEN.vectors[solution.rows.positions].T, EVEN.target)
    assert solution.weights == pytest.approx(best)


def test_iterates_have_no_negative_weights():
    problem = Problem(vectors=np.eye(4), target=np.array([3, 2, -1, -2]), case_weights=np.ones(4))
    empty = State.empty(problem, 4)
    assert IHT().step(IHT().start(empty)).weights == pytest.approx([3, 2, 0, 0])


def test_orthogonal_rows_are_solved_in_one_step():
    lengths = np.arange(1.0, 9.0)
    problem = Problem(vectors=np.eye(8), target=lengths, case_weights=np.ones(8))
    solution = solve(IHT(max_iterations=1), problem, 3)
    assert solution.rows.positions.tolist() == [5, 6, 7]
    assert solution.weights == pytest.approx([6, 7, 8])
