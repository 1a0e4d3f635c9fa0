"""Methods that draw from their own coreset, against closed forms; and what a round keeps."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from pymc_coresets import (
    InvalidDataError,
    InvalidOptionError,
    OutOfTimeError,
    QuasiNewton,
    SamplingError,
    SparseVI,
)
from pymc_coresets.methods.best_of_rounds import Best, Place, Rounds
from pymc_coresets.methods.loop import Measure, Measurement
from pymc_coresets.papers.adaptive import solve_adaptively
from pymc_coresets.papers.quasi_newton import _lowers_divergence
from pymc_coresets.papers.sparse_vi import adam_direction
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.solution import Selection, Status
from tests.refusals import refused
from tests.unit.oracles import Line, Location, dense

# -- Sparse variational inference on models whose divergences are known in closed form. ------------

N_OBS = 120
MODELS = [Location.simulate(N_OBS, 3, seed=1), Line.simulate(N_OBS, 3, seed=2)]
METHODS = [
    SparseVI(n_steps=40),
    SparseVI(n_steps=40, n_subsample=60),
    SparseVI(n_steps=40, step_size=0.5),
    SparseVI(n_steps=40, step_size=0.5, adam=True),
]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
each_method = pytest.mark.parametrize("method", METHODS, ids=str)


def rng(seed=1):
    return np.random.default_rng(seed)


def weights_of(method, model, size, seed=1):
    return dense(solve_adaptively(method, model, size, rng=rng(seed)), model.n_rows)


def states(method, model, size, seed=1):
    """All states from the prior's to that of the last step."""
    result = [method.start(Measure(model, rng(seed)), size)]
    while result[-1].status is None and len(result) <= size:
        result.append(method.step(result[-1]))
    return result


def some_weights(seed=5):
    return rng(seed).uniform(0, 3, size=N_OBS) * (np.arange(N_OBS) % 10 == 0)


@each_model
def test_closed_form_gradient_is_that_of_the_closed_form_divergence(model):
    weights, step = some_weights(), 1e-5 * np.eye(N_OBS)[:6]
    slopes = [(model.kl(weights + e) - model.kl(weights - e)) / 2e-5 for e in step]
    assert slopes == pytest.approx(model.kl_gradient(weights)[:6], rel=1e-5)


@each_model
@pytest.mark.parametrize("n_subsample", [None, 40])
def test_gradient_is_unbiased(model, n_subsample):
    """Mean of 400 estimates, with 5 standard errors as tolerance; 1/S is the centring's bias."""
    weights, n_draws, source = some_weights(), 50, rng(3)
    chosen = np.arange(0, N_OBS, 5)
    coreset = Selection(rows=model.source.take(chosen), weights=weights[chosen])
    measure = Measure(model, source)
    gradients = np.array(
        [
            SparseVI(draws=n_draws, n_subsample=n_subsample).measured(measure, coreset).gradient
            for _ in range(400)
        ]
    )
    error = gradients.std(0) / np.sqrt(400)
    exact = model.kl_gradient(weights)[chosen] * (1 - 1 / n_draws)
    assert (np.abs(gradients.mean(0) - exact) < 5 * error).all()


@each_model
def test_objective_is_the_variance_of_what_is_missing(model):
    """With S draws its relative standard error is about sqrt(2 / S), more for heavier tails."""
    weights = some_weights()
    chosen, missing = np.flatnonzero(weights), model.case_weights - weights
    coreset = Selection(rows=model.source.take(chosen), weights=weights[chosen])
    objective = Measure(model, rng()).at(coreset, 20_000).objective
    assert objective == pytest.approx(missing @ model.covariance(weights) @ missing, rel=0.1)


@each_model
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_selection_is_the_largest_correlation(model, steps):
    method = SparseVI(n_steps=5)
    state = states(method, model, 10)[steps]
    loglik = model.loglik(state.coreset.draws)
    weights = dense(state.coreset, N_OBS)
    missing = (model.case_weights - weights) @ loglik
    scores = np.array([np.corrcoef(row, missing)[0, 1] for row in loglik])
    scores = np.where(weights > 0, np.abs(scores), scores)
    assert method._select(state).positions == [scores.argmax()]


@each_model
def test_selection_agrees_with_the_exact_correlations(model):
    method = SparseVI(draws=20_000, n_steps=1)
    covariance = model.covariance(np.zeros(N_OBS))
    scores = covariance @ model.case_weights / np.sqrt(np.diag(covariance))
    [best] = method._select(method.start(Measure(model, rng()), 10)).positions
    assert scores[best] == pytest.approx(scores.max(), rel=0.02)


def test_selection_within_a_subsample():
    method, model = SparseVI(n_subsample=1), MODELS[0]
    found = [method._select(method.start(Measure(model, rng(seed)), 5)) for seed in range(20)]
    assert len({int(rows.positions[0]) for rows in found if rows is not None}) > 10


def test_the_paper_s_step_by_hand():
    """Algorithm 1, lines 5 to 23, with the same stream of draws."""
    model, n_draws, gamma, source = MODELS[0], 30, 0.01, rng(7)
    weights = np.zeros(N_OBS)

    def centred_draws():
        support = np.flatnonzero(weights)
        draws = model.draw(model.source.take(support), weights[support], n_draws, rng=source)
        loglik = model.loglik(draws)
        return loglik - loglik.mean(1, keepdims=True)

    g = centred_draws()
    correlations = g @ g.T @ (1 - weights) / np.linalg.norm(g, axis=1)
    best = int(correlations.argmax())
    for t in (1, 2, 3):
        g = centred_draws()
        gradient = -g @ g.T @ (1 - weights) / n_draws
        weights[best] = max(0, weights[best] - gamma / t * gradient[best])
    method = SparseVI(draws=n_draws, n_steps=3, step_size=gamma)
    assert weights_of(method, model, 1, seed=7) == pytest.approx(weights)


def test_first_adam_step_has_the_length_of_the_schedule_whatever_the_gradient():
    """Without memory the direction is the sign of the gradient."""
    method = SparseVI(n_steps=1, step_size=0.5, adam=True)
    first, second = states(method, MODELS[0], 2)[1:]
    assert first.coreset.weights.sum() == pytest.approx(0.5, abs=1e-6)
    moved = (dense(second.coreset, N_OBS) - dense(first.coreset, N_OBS))[
        second.coreset.rows.positions
    ]
    np.testing.assert_allclose(np.abs(moved), 0.5, atol=1e-6)


def test_adam_remembers_gradients_within_a_step():
    """By hand, for two gradients g and h: means (0.09 g + 0.1 h) / 0.19 and so on."""
    g, h = np.array([3.0, -1.0]), np.array([1.0, 2.0])
    means = np.zeros((2, 2))
    np.testing.assert_allclose(adam_direction(g, means, 1), [1, -1])
    direction = adam_direction(h, means, 2)
    square = (0.999 * 0.001 * g**2 + 0.001 * h**2) / (1 - 0.999**2)
    np.testing.assert_allclose(direction, (0.09 * g + 0.1 * h) / 0.19 / np.sqrt(square))


@each_model
def test_each_of_the_first_steps_lowers_the_divergence(model):
    """Up to the Monte Carlo floor of the weights' own noise, 10 % of the divergence."""
    method = SparseVI(n_steps=100, draws=200)
    divergences = np.array([model.kl(dense(s.coreset, N_OBS)) for s in states(method, model, 6)])
    assert (divergences[1:] < 1.1 * divergences[:-1]).all()
    assert divergences[-1] < 1e-2 * divergences[0]


@each_model
@pytest.mark.parametrize("method", [METHODS[0], METHODS[3]], ids=str)
def test_divergence_falls_with_size(model, method):
    sizes = (0, 2, 6)
    divergences = [
        np.median([model.kl(weights_of(method, model, size, s)) for s in range(3)])
        if size
        else model.kl(np.zeros(N_OBS))
        for size in sizes
    ]
    assert divergences[0] > divergences[1] > divergences[2]


def test_default_steps_do_not_depend_on_the_scale_of_a_potential():
    """Multiplying f_n by c_n divides w_n by c_n."""
    model, method = MODELS[1], SparseVI(n_steps=3)
    scale = rng(4).uniform(0.1, 10, size=N_OBS)
    root = np.sqrt(scale)[:, None]
    scaled = Line(
        model.matrices * root[:, None], model.responses * root, model.case_weights / root[:, 0] ** 2
    )
    original, other = weights_of(method, model, 4), weights_of(method, scaled, 4)
    assert other * scale == pytest.approx(original, rel=1e-6)


@each_model
@each_method
def test_weights_are_few_nonnegative_and_reproducible(model, method):
    solution = solve_adaptively(method, model, 3, rng=rng(8))
    again = solve_adaptively(method, model, 3, rng=rng(8))
    assert len(solution.rows) <= 3
    assert (solution.weights > 0).all()
    assert (np.diff(solution.rows.positions) > 0).all()
    assert np.array_equal(solution.weights, again.weights)
    assert solution.history["size"][-1] == len(solution.rows)
    history = solution.history
    np.testing.assert_array_equal(history["heldout_objective"], history["objective"])
    assert solution.objective == history["objective"][-1]


def test_rows_of_base_weight_0_are_not_selected():
    model = MODELS[0]
    present = (np.arange(N_OBS) % 2).astype(float)
    model = Location(model.matrices, model.responses, present)
    for method in METHODS:
        assert (present[solve_adaptively(method, model, 3, rng=rng()).rows.positions] == 1).all()


def test_old_states_keep_their_weights():
    method = SparseVI(n_steps=3)
    before = states(method, MODELS[0], 3)[-1]
    weights = before.coreset.weights.copy()
    method.step(before)
    assert np.array_equal(before.coreset.weights, weights)


def test_interruption_returns_the_last_complete_step():
    def stop(progress):
        if progress.size == 2:
            raise KeyboardInterrupt

    solution = solve_adaptively(SparseVI(n_steps=3), MODELS[0], 9, rng=rng(), callback=stop)
    assert solution.status is Status.INTERRUPTED
    assert len(solution.rows) == solution.history["size"][-1] == 2


def test_potentials_that_do_not_vary_are_optimal_without_rows():
    model = Location(np.zeros((4, 2, 2)), np.ones((4, 2)), np.ones(4))
    for method in METHODS:
        solution = solve_adaptively(method, model, 2, rng=rng())
        assert solution.status is Status.OPTIMAL
        assert not len(solution.rows)


def test_infinite_potentials_are_refused():
    model = replace(MODELS[0], responses=np.full((N_OBS, 3), np.inf))
    with np.errstate(all="ignore"), refused(InvalidDataError, "NaN", "prior"):
        solve_adaptively(SparseVI(), model, 2, rng=rng())


@pytest.mark.parametrize("size", [0, N_OBS + 1, 2.5])
def test_size_is_checked(size):
    with refused(InvalidOptionError, "size="):
        solve_adaptively(SparseVI(), MODELS[0], size, rng=rng())


def test_history_has_both_divergences():
    """Against the closed forms, for normal posteriors whose spreads differ."""
    rows = np.random.default_rng(1).normal(size=2_000)
    mean, shift = 0.1, 1.3  # pi_w = N(0, 1), and the full posterior N(mean, shift^2)
    draws = rows - rows.mean()
    draws /= draws.std()
    log_ratios = draws**2 / 2 - ((draws - mean) / shift) ** 2 / 2
    nothing = Rows(np.arange(0), np.ones(0))
    sums = PassSums(total=log_ratios, norm_total=0.0, candidates=nothing)
    chosen = Selection(rows=nothing, weights=np.zeros(0))
    found = Measurement.of(chosen, np.zeros(len(log_ratios)), sums)
    kl = np.log(shift) + (1 + mean**2) / (2 * shift**2) - 0.5
    reverse = -np.log(shift) + (shift**2 + mean**2) / 2 - 0.5
    # 2,000 draws: standard errors below a tenth; the two differ by a half.
    assert found.certificate.kl == pytest.approx(kl, rel=0.25)
    assert found.smoothed.reverse_kl == pytest.approx(reverse, rel=0.25)
    assert reverse > 1.4 * kl


def test_history_judges_the_ratios_themselves():
    solution = solve_adaptively(SparseVI(draws=2_000, n_steps=20), MODELS[0], 2, rng=rng(1))
    weights = dense(solution, N_OBS)
    assert solution.history["kl"][-1] == pytest.approx(MODELS[0].kl(weights), rel=0.3)


@pytest.mark.parametrize(("size", "t"), [(1e-3, 1), (1e-3, 3), (100.0, 1)])
def test_a_step_minimises_along_its_direction_but_goes_a_nat_at_most(size, t):
    vectors = rng().normal(size=(4, 300))
    residual = size * np.array([1.0, 2.0, 1.2, 1.5]) @ vectors  # of which no row has too much
    gradient = -vectors @ residual
    moved = SparseVI()._moved(np.zeros(4), gradient, vectors, t) @ vectors
    assert (gradient < 0).all()
    lengths = np.linspace(0.0, 2.0, 20_001)[:, None]
    best = lengths[np.square(residual - t * lengths * moved).sum(axis=1).argmin()]
    if size < 1:
        assert best == pytest.approx(1.0, abs=1e-3)
    else:
        assert np.linalg.norm(moved) == pytest.approx(1.0)


# -- Quasi-Newton coresets against exact minimisers of the closed-form divergence. -----------------

N_WIDE = 200
WIDE_MODELS = [
    Location.simulate(N_WIDE, 6, seed=1),
    Line.simulate(N_WIDE, 4, seed=2),
]
each_wide_model = pytest.mark.parametrize("model", WIDE_MODELS, ids=lambda m: type(m).__name__)


def first_states(method, model, size, steps):
    result = [method.start(Measure(model, rng()), size)]
    for _ in range(steps):
        result.append(method.step(result[-1]))
    return result


def exact_optimum(model, rows, start):
    """Smallest KL(pi_w || pi) over non-negative weights of the rows."""

    def value_and_slope(weights):
        full = np.zeros(N_WIDE)
        full[rows] = weights
        return model.kl(full), model.kl_gradient(full)[rows]

    bounds = [(0, None)] * len(rows)
    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-14}
    return minimize(value_and_slope, start, jac=True, bounds=bounds, options=options).fun


def test_start_is_uniform_over_different_rows():
    state = QuasiNewton().start(Measure(WIDE_MODELS[0], rng()), 30)
    assert state.coreset.size == 30
    assert state.coreset.weights == pytest.approx(np.full(30, N_WIDE / 30))


def test_rows_are_chosen_in_proportion_to_their_case_weights():
    model = Location(
        WIDE_MODELS[0].matrices,
        WIDE_MODELS[0].responses,
        (np.arange(N_WIDE) < 20) * 3.0,
    )
    state = QuasiNewton().start(Measure(model, rng()), 50)
    assert state.coreset.support.rows.positions.tolist() == list(range(20))
    assert state.coreset.weights.sum() == pytest.approx(60)


@each_wide_model
@pytest.mark.parametrize("number", [0, 3])
def test_newton_point_is_optimal_for_the_regularised_model(model, number):
    """Karush-Kuhn-Tucker conditions of the quadratic in the Notes."""
    method = QuasiNewton(regularisation=0.01)
    state = first_states(method, model, 25, number)[-1]
    weights, vectors = state.coreset.weights, state.coreset.vectors
    point = method._newton_point(state.coreset)
    covariance = vectors @ vectors.T
    covariance += 0.01 * np.trace(covariance) / 25 * np.eye(25)
    slope = covariance @ (point - weights) + state.coreset.gradient
    tolerance = 1e-8 * np.abs(state.coreset.gradient).max()
    assert (slope >= -tolerance).all()
    assert np.abs(slope[point > 0]).max() <= tolerance


@each_wide_model
def test_each_of_the_first_steps_lowers_the_divergence_of_quasi_newton(model):
    divergences = [
        model.kl(dense(s.coreset, N_WIDE))
        for s in first_states(QuasiNewton(draws=1000), model, 25, 5)
    ]
    assert (np.diff(divergences) < 0).all()


@each_wide_model
@pytest.mark.parametrize("size", [4, 10])
def test_it_ends_near_the_best_weights_of_its_rows(model, size):
    """Weights fitted to S draws lose about size / S of what the best ones leave: 20 % is ample."""
    method = QuasiNewton(draws=2000)
    solution = solve_adaptively(method, model, size, rng=rng())
    rows = method.start(Measure(model, rng()), size).coreset.rows.positions
    best = exact_optimum(model, rows, dense(solution, N_WIDE)[rows])
    assert best <= model.kl(dense(solution, N_WIDE)) < 1.2 * best + 1e-9


def test_enough_rows_are_exact():
    solution = solve_adaptively(QuasiNewton(), WIDE_MODELS[0], 30, rng=rng())
    assert WIDE_MODELS[0].kl(dense(solution, N_WIDE)) < 1e-9


@each_wide_model
def test_divergence_falls_with_size_of_quasi_newton(model):
    runs = [solve_adaptively(QuasiNewton(), model, size, rng=rng()) for size in (2, 8, 40)]
    divergences = [model.kl(dense(run, N_WIDE)) for run in runs]
    assert divergences[0] > divergences[1] > divergences[2]


@each_wide_model
def test_line_search_knows_uphill_and_too_far(model):
    state = QuasiNewton(draws=4000).start(Measure(model, rng()), 25)
    downhill = -state.coreset.gradient
    downhill *= 0.1 / np.linalg.norm(downhill @ state.coreset.vectors)
    assert _lowers_divergence(state.coreset, downhill)
    assert not _lowers_divergence(state.coreset, -downhill)
    assert not _lowers_divergence(state.coreset, 100 * downhill)


@each_wide_model
def test_weights_are_few_nonnegative_and_reproducible_of_quasi_newton(model):
    solution, again = (solve_adaptively(QuasiNewton(), model, 25, rng=rng(3)) for _ in range(2))
    assert len(solution.rows) <= 25
    assert (solution.weights > 0).all()
    assert np.array_equal(solution.weights, again.weights)


def test_a_step_whose_sampler_fails_is_taken_back():
    n_left = iter((True, True, False))

    class Failing(type(WIDE_MODELS[1])):
        def draw(self, *arguments, **options):
            if not next(n_left):
                raise SamplingError("no more")
            return super().draw(*arguments, **options)

    wide = WIDE_MODELS[1]
    model = Failing(wide.matrices, wide.responses, wide.case_weights)
    solution = solve_adaptively(QuasiNewton(), model, 25, rng=rng())
    assert solution.status is Status.SAMPLING_FAILED
    assert len(solution.history["size"]) == 2  # the start, and one step
    assert solution.objective == solution.history["heldout_objective"][-1]


def test_iteration_limit():
    solution = solve_adaptively(QuasiNewton(max_iterations=2), WIDE_MODELS[1], 25, rng=rng())
    assert solution.status is Status.ITERATION_LIMIT
    assert len(solution.history["size"]) == 3


def test_a_perfect_start_stops_at_once():
    solution = solve_adaptively(QuasiNewton(), WIDE_MODELS[0], N_WIDE, rng=rng())
    assert solution.status is Status.NO_PROGRESS
    assert solution.weights == pytest.approx(np.ones(N_WIDE))


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


# -- Rounds that propose coresets: which is kept, what confirms it, and how a run ends. ------------

NOWHERE = Rows(np.arange(0), np.ones(0))
NOTHING = Selection(rows=NOWHERE, weights=np.ones(0))


def of_divergence(variance, n_draws=400):
    """Return the measurement of a coreset that is so far off."""
    z = np.random.default_rng(1).normal(size=n_draws)
    total = np.sqrt(variance) * z / z.std()
    sums = PassSums(total=total, norm_total=0.0, candidates=NOWHERE)
    return Measurement.of(NOTHING, np.zeros(n_draws), sums)


class Again:
    """Measures coresets again, with the divergences given, and counts the draws."""

    def __init__(self, *divergences):
        self.divergences, self.n_draws = list(divergences), []

    def __call__(self, best, n_draws):
        self.n_draws.append(n_draws)
        found = self.divergences.pop(0)
        if isinstance(found, type):
            raise found("said so")
        return best if found is None else of_divergence(found, n_draws)


def best_of(*divergences, again=(), tolerance=0.01, goal=0.008):
    best = Best(Again(*again), tolerance=tolerance, goal=goal)
    for each in divergences:
        best.takes(of_divergence(each))
    return best


def test_the_best_coreset_is_kept():
    best = Best(Again(), tolerance=0.01, goal=0.008)
    assert best.objective == np.inf
    assert [best.takes(of_divergence(v)) for v in (0.3, 0.2, 0.25)] == [True, True, False]
    assert best.objective == pytest.approx(0.2)


def test_a_first_coreset_is_kept_whatever_it_is():
    """A posterior at whose draws the full data are impossible, say: it is all there is."""
    endless = of_divergence(np.inf)
    best = best_of()
    assert best.takes(endless)
    assert best.measured is endless
    assert not best.takes(of_divergence(np.inf))


def test_a_clear_case_takes_no_further_draws():
    assert best_of(0.003).is_met()
    assert not best_of(0.02).is_met()


@pytest.mark.parametrize(
    ("again", "met", "objective"),
    [
        (0.0070, True, 0.0070),
        (0.0090, True, 0.0090),  # beyond the goal, but within the tolerance
        (0.0110, False, 0.0110),
        (SamplingError, True, 0.0075),
        (None, True, 0.0075),
    ],
)
def test_a_close_call_is_measured_once_more_at_twice_as_many_draws(again, met, objective):
    best = best_of(0.0075, again=[again])
    assert best.is_met() == met
    assert best.objective == pytest.approx(objective)
    best.confirm()
    assert best.concluded(Status.NO_PROGRESS, np.inf) is Status.NO_PROGRESS
    assert best._again.n_draws == [800]


def test_a_loose_goal_is_said():
    assert best_of().met is Status.TOLERANCE_REACHED
    loose = best_of(0.3, goal=0.5)
    assert loose.is_met()
    assert loose.met is Status.CORRECTABLE


@pytest.mark.parametrize(
    ("again", "status"),
    [(OutOfTimeError, Status.OUT_OF_TIME), (KeyboardInterrupt, Status.INTERRUPTED)],
)
def test_what_ends_the_last_measurement_loses_nothing(again, status):
    best = best_of(0.009, again=[again])
    assert best.concluded(Status.NO_PROGRESS, np.inf) is status
    assert best.objective == pytest.approx(0.009)


def test_nothing_is_measured_after_an_interruption():
    best = best_of(0.009, again=[])
    assert best.concluded(Status.INTERRUPTED, np.inf) is Status.INTERRUPTED


@dataclass(frozen=True, eq=False)
class Number(Place):
    n: int = 0


def rounds_to(divergences, best, most=3):
    """Return rounds whose n-th coreset is so far off, and what each was followed by."""
    followed = []

    def follow(place, chosen, view, before):
        followed.append((round(view.objective, 4), before))
        return replace(place, n=place.n + 1, status=Status.NO_PROGRESS if place.n >= most else None)

    def propose(place):
        return replace(NOTHING, weights=np.full(0, place.n), quadratic=divergences[place.n])

    def measure(chosen):
        if chosen.quadratic is None:
            return Measurement.failed(chosen)
        return of_divergence(chosen.quadratic)

    return Rounds(propose, measure, follow, best), followed


def test_rounds_go_on_from_the_last_place_until_the_goal_is_met():
    rounds, followed = rounds_to([0.5, None, 0.7, 0.003, 0.001], best_of())
    assert rounds.run(Number(), limit=9, deadline=np.inf) is Status.TOLERANCE_REACHED
    assert rounds.best.objective == pytest.approx(0.003)
    assert [view for view, _ in followed] == [0.5, np.inf, 0.7]
    assert [before for _, before in followed] == pytest.approx([np.inf, 0.5, 0.5])


def test_rounds_end_where_a_place_says_so_or_after_the_last():
    rounds, _ = rounds_to([0.5, 0.4, 0.3, 0.2, 0.1], best_of(), most=1)
    assert rounds.run(Number(), limit=9, deadline=np.inf) is Status.NO_PROGRESS
    assert rounds.best.objective == pytest.approx(0.4)
    rounds, followed = rounds_to([0.5, 0.4, 0.3, 0.2, 0.1], best_of())
    assert rounds.run(Number(), limit=2, deadline=np.inf) is Status.ITERATION_LIMIT
    assert len(followed) == 2
    assert rounds.run(Number(), limit=2, deadline=-np.inf) is Status.OUT_OF_TIME
