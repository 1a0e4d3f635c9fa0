"""Quasi-Newton coresets against exact minimisers of the closed-form divergence."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from pymc_coresets import QuasiNewton, SamplingError
from pymc_coresets.methods.loop import Measure, Measurement
from pymc_coresets.papers.adaptive import solve_adaptively
from pymc_coresets.papers.quasi_newton import _lowers_divergence
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.solution import Status
from tests.unit.oracles import Line, Location, dense

N_OBS = 200
MODELS = [Location.simulate(N_OBS, 6, seed=1), Line.simulate(N_OBS, 4, seed=2)]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)


def rng(seed=1):
    return np.random.default_rng(seed)


def states(method, model, size, steps):
    result = [method.start(Measure(model, rng()), size)]
    for _ in range(steps):
        result.append(method.step(result[-1]))
    return result


def exact_optimum(model, rows, start):
    """Smallest KL(pi_w || pi) over non-negative weights of the rows."""

    def value_and_slope(weights):
        full = np.zeros(N_OBS)
        full[rows] = weights
        return model.kl(full), model.kl_gradient(full)[rows]

    bounds = [(0, None)] * len(rows)
    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-14}
    return minimize(value_and_slope, start, jac=True, bounds=bounds, options=options).fun


def test_start_is_uniform_over_different_rows():
    state = QuasiNewton().start(Measure(MODELS[0], rng()), 30)
    assert state.coreset.size == 30
    assert state.coreset.weights == pytest.approx(np.full(30, N_OBS / 30))


def test_rows_are_chosen_in_proportion_to_their_case_weights():
    model = Location(MODELS[0].matrices, MODELS[0].responses, (np.arange(N_OBS) < 20) * 3.0)
    state = QuasiNewton().start(Measure(model, rng()), 50)
    assert state.coreset.support.rows.positions.tolist() == list(range(20))
    assert state.coreset.weights.sum() == pytest.approx(60)


@each_model
@pytest.mark.parametrize("number", [0, 3])
def test_newton_point_is_optimal_for_the_regularised_model(model, number):
    """Karush-Kuhn-Tucker conditions of the quadratic in the Notes."""
    method = QuasiNewton(regularisation=0.01)
    state = states(method, model, 25, number)[-1]
    weights, vectors = state.coreset.weights, state.coreset.vectors
    point = method._newton_point(state.coreset)
    covariance = vectors @ vectors.T
    covariance += 0.01 * np.trace(covariance) / 25 * np.eye(25)
    slope = covariance @ (point - weights) + state.coreset.gradient
    tolerance = 1e-8 * np.abs(state.coreset.gradient).max()
    assert (slope >= -tolerance).all()
    assert np.abs(slope[point > 0]).max() <= tolerance


@each_model
def test_each_of_the_first_steps_lowers_the_divergence(model):
    divergences = [
        model.kl(dense(s.coreset, N_OBS)) for s in states(QuasiNewton(draws=1000), model, 25, 5)
    ]
    assert (np.diff(divergences) < 0).all()


@each_model
@pytest.mark.parametrize("size", [4, 10])
def test_it_ends_near_the_best_weights_of_its_rows(model, size):
    """Weights fitted to S draws lose about size / S of what the best ones leave: 20 % is ample."""
    method = QuasiNewton(draws=2000)
    solution = solve_adaptively(method, model, size, rng=rng())
    rows = method.start(Measure(model, rng()), size).coreset.rows.positions
    best = exact_optimum(model, rows, dense(solution, N_OBS)[rows])
    assert best <= model.kl(dense(solution, N_OBS)) < 1.2 * best + 1e-9


def test_enough_rows_are_exact():
    solution = solve_adaptively(QuasiNewton(), MODELS[0], 30, rng=rng())
    assert MODELS[0].kl(dense(solution, N_OBS)) < 1e-9


@each_model
def test_divergence_falls_with_size(model):
    runs = [solve_adaptively(QuasiNewton(), model, size, rng=rng()) for size in (2, 8, 40)]
    divergences = [model.kl(dense(run, N_OBS)) for run in runs]
    assert divergences[0] > divergences[1] > divergences[2]


@each_model
def test_line_search_knows_uphill_and_too_far(model):
    state = QuasiNewton(draws=4000).start(Measure(model, rng()), 25)
    downhill = -state.coreset.gradient
    downhill *= 0.1 / np.linalg.norm(downhill @ state.coreset.vectors)
    assert _lowers_divergence(state.coreset, downhill)
    assert not _lowers_divergence(state.coreset, -downhill)
    assert not _lowers_divergence(state.coreset, 100 * downhill)


@each_model
def test_weights_are_few_nonnegative_and_reproducible(model):
    solution, again = (solve_adaptively(QuasiNewton(), model, 25, rng=rng(3)) for _ in range(2))
    assert len(solution.rows) <= 25
    assert (solution.weights > 0).all()
    assert np.array_equal(solution.weights, again.weights)


@each_model
def test_draws_that_were_used_again_do_not_measure_the_result(model):
    """Draws of the right posterior with too little spread, as if they had chosen the weights."""

    def draw(rows, weights, n_draws, *, rng):
        draws = model.draw(rows, weights, n_draws, rng=rng)
        return draws.mean(axis=0) + 0.1 * (draws - draws.mean(axis=0))

    solution = solve_adaptively(QuasiNewton(), model, 5, rng=rng(1), draw=draw)
    measured = solution.history["heldout_objective"]
    assert solution.objective == measured[-1] > 10 * measured[-2]


def test_a_step_whose_sampler_fails_is_taken_back():
    n_left = iter((True, True, False))

    def draw(rows, weights, n_draws, *, rng):
        if not next(n_left):
            raise SamplingError("no more")
        return MODELS[1].draw(rows, weights, n_draws, rng=rng)

    solution = solve_adaptively(QuasiNewton(), MODELS[1], 25, rng=rng(), draw=draw)
    assert solution.status is Status.SAMPLING_FAILED
    assert len(solution.history["size"]) == 2  # the start, and one step
    assert solution.objective == solution.history["heldout_objective"][-1]


def test_iteration_limit():
    solution = solve_adaptively(QuasiNewton(max_iterations=2), MODELS[1], 25, rng=rng())
    assert solution.status is Status.ITERATION_LIMIT
    assert len(solution.history["size"]) == 3


def test_a_perfect_start_stops_at_once():
    solution = solve_adaptively(QuasiNewton(), MODELS[0], N_OBS, rng=rng())
    assert solution.status is Status.NO_PROGRESS
    assert solution.weights == pytest.approx(np.ones(N_OBS))


@pytest.mark.parametrize("seed", range(5))
def test_a_change_is_judged_by_normalised_weights(seed):
    """By weights of the moved posterior from SciPy's softmax, without their logarithms."""
    rng = np.random.default_rng(seed)
    n = 400
    vectors = rng.normal(size=(3, n)) / np.sqrt(n)
    vectors -= vectors.mean(axis=1, keepdims=True)
    three, missing = Rows(np.arange(3), np.ones(3)), np.sqrt(n) * vectors.sum(axis=0)
    coreset = Measurement(
        rows=three,
        weights=np.ones(3),
        draws=None,
        own=np.zeros(n),
        sums=PassSums(total=missing, norm_total=0.0, candidates=three),
        centred=np.sqrt(n) * vectors,
    )
    for length in (0.3, 0.6, 1.0, 1.5, 2.2, -0.3):
        move = length * np.array([1.0, 0.8, 1.1])
        tilt = np.sqrt(n) * move @ vectors
        moved = softmax(tilt)
        change = moved @ (tilt - missing) - np.log(np.mean(np.exp(tilt))) + missing.mean()
        if abs(change) > 0.3 and 1 / np.square(moved).sum() > 0.26 * n:  # many standard errors
            assert _lowers_divergence(coreset, move) is bool(change < 0)
