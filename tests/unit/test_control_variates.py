"""Control variates: averaged quadratics by brute force, rows for the rest, and exact cases."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from scipy.integrate import quad
from scipy.special import expit

from pymc_coresets import (
    ControlVariates,
    InvalidDataError,
    Level,
    SamplingError,
    UnsupportedModelError,
    build,
    build_coreset,
    open_rows,
)
from pymc_coresets.glm.concavity import concave, is_concave, is_definite, largest_share
from pymc_coresets.glm.control_variates import averaged, method, posteriors
from pymc_coresets.glm.control_variates.averaged import row_quadratics
from pymc_coresets.glm.control_variates.expansion import (
    AveragedRows,
    ResidualSample,
    calibrated,
    carried_over,
    written_in,
)
from pymc_coresets.glm.control_variates.method import _expansion_of
from pymc_coresets.glm.control_variates.posteriors import Posteriors
from pymc_coresets.glm.control_variates.surroundings import (
    derivatives,
    precision_near,
    uphill_steps,
)
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import RowsInMemory, coefficient_draws
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.user_model import copy_with_rows
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import Smallest
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling import sampler
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.maximisation.one_start import FiniteObjective
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.nuts import WarmNuts
from pymc_coresets.sampling.steps.split_hmc import SplitHmc
from tests.derived import likelihood_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused, warned

N, P, NOISE, PRIOR_SD = 600, 3, 1.3, 2.0
_rng = np.random.default_rng(1)
X = _rng.normal(size=(N, P))
Y = {
    "normal": _rng.normal(X @ [1.0, -1.0, 0.5], NOISE),
    "logistic": _rng.binomial(1, expit(X @ [1.0, -1.0, 0.5])),
    "poisson": _rng.poisson(np.exp(X @ [0.3, -0.3, 0.2])),
}
CENTER = np.array([0.4, -0.2, 0.1])
DRAWS = CENTER + 0.15 * _rng.normal(size=(80, P))
QUIET = {"random_seed": 3, "progressbar": False}
SETTINGS = {"method": "control_variates", **QUIET}


def likelihood(kind, eta, y):
    if kind == "normal":
        pm.Normal("y", eta, NOISE, observed=y)
    elif kind == "logistic":
        pm.Bernoulli("y", logit_p=eta, observed=y)
    else:
        pm.Poisson("y", pm.math.exp(eta), observed=y)


def regression(kind, x=X, y=None):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, PRIOR_SD, shape=x.shape[1])
        likelihood(kind, x @ beta, Y[kind] if y is None else y)
    return model


def rows_of(model, *, collapse="auto"):
    loglik = LogLikelihood(find_observations(model), collapse=collapse)
    every = loglik.in_memory.all
    return RowsInMemory(find_predictors(loglik.observations), every.positions, every.case_weights)


@pytest.fixture(scope="module")
def rows():
    return {kind: rows_of(regression(kind)) for kind in Y}


def average(rows, center, draws):
    """Return the sums of all rows, read in blocks, and the quadratic of each."""
    source = InMemoryRows([], rows.case_weights, rows.which)
    found = averaged.average(source, SeenRows(rows.found), center, draws, n_kept=len(rows), key=7)
    spread = np.zeros(len(rows))
    spread[np.searchsorted(rows.which, found.sample.rows.positions)] = found.sample.spread
    each = row_quadratics(rows, center, draws - center)
    return SimpleNamespace(
        slope=found.slope,
        curvature=found.curvature,
        residual=found.residual,
        slopes=each.slopes,
        curvatures=each.curvatures,
        spread=spread,
        sample=found.sample,
    )


def logliks(rows, draws):
    return rows.density(rows.numbers(draws))


def with_design(rows, design):
    [predictor] = rows.found.predictors
    return replace(rows, found=replace(rows.found, predictors=(replace(predictor, design=design),)))


# -- the averaged quadratic ------------------------------------------------------------------------


def test_a_normal_likelihood_is_its_own_average(rows):
    found = average(rows["normal"], CENTER, DRAWS)
    scale = np.abs(found.slope @ (DRAWS - CENTER).T).max()  # of the log-likelihood, in nats
    assert np.abs(found.residual).max() < 1e-9 * scale
    assert found.spread.max() < 1e-9 * scale
    assert_allclose(found.slope, X.T @ (Y["normal"] - X @ CENTER) / NOISE**2, rtol=1e-10)
    assert_allclose(found.curvature, -X.T @ X / NOISE**2, rtol=1e-10, atol=1e-10 * N)
    assert_allclose(found.curvatures, -1 / NOISE**2, rtol=1e-9)


DERIVATIVES = {  # of the log-density by its predictor: none, first, second
    "logistic": lambda y: (
        lambda e: y * e - np.logaddexp(0, e),
        lambda e: y - expit(e),
        lambda e: -expit(e) * expit(-e),
    ),
    "poisson": lambda y: (
        lambda e: y * e - np.exp(e),
        lambda e: y - np.exp(e),
        lambda e: -np.exp(e),
    ),
}


def mean_under(middle, width, function):
    def integrand(z):
        return function(middle + width * z, z) * stats.norm.pdf(z)

    return quad(integrand, -10, 10, epsabs=1e-12, epsrel=1e-11)[0]


@pytest.mark.parametrize("kind", DERIVATIVES)
def test_averages_are_projections_and_averaged_derivatives(kind, rows):
    """Stein's identity, by adaptive integration.

    Seven nodes are exact up to degree 13.  A width of w leaves a relative error of the order of
    (w / pi)^12 for a logistic row (its poles lie pi off the axis), less for a Poisson one.
    """
    found = average(rows[kind], CENTER, DRAWS)
    middles, widths = X @ CENTER, (DRAWS @ X.T).std(axis=0)
    chosen = [n for n in range(N) if 0.1 < widths[n] < 0.5][:12]
    slopes, curvatures = np.empty((2, 2, len(chosen)))
    for i, n in enumerate(chosen):
        value, first, second = DERIVATIVES[kind](Y[kind][n])
        at = (middles[n], widths[n])
        slopes[:, i] = (
            mean_under(*at, lambda e, z, f=first: f(e)),
            mean_under(*at, lambda e, z, f=value: z * f(e)) / widths[n],
        )
        curvatures[:, i] = (
            mean_under(*at, lambda e, z, f=second: f(e)),
            mean_under(*at, lambda e, z, f=value: (z**2 - 1) * f(e)) / widths[n] ** 2,
        )
    assert_allclose(slopes[0], slopes[1], rtol=1e-7)
    assert_allclose(curvatures[0], curvatures[1], rtol=1e-7)
    assert_allclose(found.slopes[0, chosen], slopes[0], rtol=1e-6)
    assert_allclose(found.curvatures[0, 0, chosen], curvatures[0], rtol=1e-6)


@pytest.mark.parametrize("kind", Y)
def test_sums_spreads_and_residuals_are_those_of_the_rows(kind, rows):
    found, away = average(rows[kind], CENTER, DRAWS), DRAWS - CENTER
    moved = away @ X.T
    loglik = logliks(rows[kind], DRAWS)
    left = loglik - found.slopes[0] * moved - found.curvatures[0, 0] / 2 * moved**2
    quadratic = away @ found.slope + np.einsum("sp,pq,sq->s", away, found.curvature, away) / 2
    total = loglik.sum(axis=1) - quadratic
    assert_allclose(found.slope, found.slopes[0] @ X)
    assert_allclose(found.curvature, (X.T * found.curvatures[0, 0]) @ X)
    assert_allclose(found.spread, left.std(axis=0), rtol=1e-6, atol=1e-13)
    assert_allclose(found.residual, total - total.mean(), atol=1e-10)


def test_averages_over_two_numbers_of_a_row():
    """A normal row as a function of the logarithm of its scale, and of its mean.

    Averages of ``exp(-2 s) g(mean)`` are those of g at a mean that is moved by -2 cov.
    """
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, PRIOR_SD, shape=P)
        pm.Normal("y", X @ beta, pm.HalfNormal("noise"), observed=Y["normal"])
    rows = rows_of(model)
    center = np.r_[np.log(NOISE), CENTER]
    mix = np.eye(4) + 0.3 * np.tri(4, k=-1)
    draws = center + 0.1 * np.random.default_rng(5).normal(size=(100, 4)) @ mix
    found = average(rows, center, draws)
    middle, moved = X @ CENTER, (draws - center)[:, 1:] @ X.T
    variance, cov = draws[:, 0].var(), np.cov(draws[:, 0], moved.T, ddof=0)[0, 1:]
    factor = np.exp(-2 * center[0] + 2 * variance)
    away = Y["normal"] - middle + 2 * cov
    assert_allclose(found.slopes[0], factor * (away**2 + moved.var(axis=0)) - 1, atol=2e-5)
    assert_allclose(found.slopes[1], factor * away, atol=2e-5)
    assert_allclose(found.curvatures[0, 1], -2 * factor * away, atol=1e-4)
    assert_allclose(found.curvatures[1, 1], -factor, rtol=1e-5)
    assert_allclose(found.curvatures, found.curvatures.swapaxes(0, 1), atol=1e-12)
    design = np.stack([np.c_[np.ones(N), np.zeros((N, P))], np.c_[np.zeros(N), X]])
    brute = np.einsum("anp,abn,bnq->pq", design, found.curvatures, design)
    assert_allclose(found.curvature, brute, rtol=1e-9, atol=1e-9 * N)
    assert_allclose(found.slope, np.einsum("anp,an->p", design, found.slopes), atol=1e-9 * N)


def test_one_draw_gives_the_derivatives_at_the_mode(rows):
    found = average(rows["logistic"], CENTER, CENTER[None])
    mean = expit(X @ CENTER)
    # Differences over a width of 1e-3 have rounding errors of 1e-16 / 1e-6, and a bias of 1e-6.
    assert_allclose(found.slopes[0], Y["logistic"] - mean, rtol=1e-5)
    assert_allclose(found.curvatures[0, 0], -mean * (1 - mean), rtol=1e-5, atol=1e-8)
    assert_array_equal(found.spread, 0.0)


def assert_same(found, expected, **tolerance):
    for name in ("slope", "curvature", "slopes", "curvatures", "spread", "residual"):
        assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name, **tolerance)


@pytest.mark.parametrize("sparsely", [False, True])
def test_blocks_and_sparse_designs_change_nothing(sparsely, rows, limits):
    design = np.where(np.abs(X) < 1.0, 0.0, X)
    expected = average(with_design(rows["logistic"], design), CENTER, DRAWS)
    limits(entries_at_once=256 * len(DRAWS))  # blocks of 256, 256, 88
    other = with_design(rows["logistic"], sparse.csr_array(design) if sparsely else design)
    assert_same(average(other, CENTER, DRAWS), expected, rtol=1e-9, atol=1e-11)


def test_equal_rows_that_were_merged_count_as_often():
    x = np.repeat([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [40, 30, 50], axis=0)
    y = (np.arange(120) % 3 == 0).astype(int)
    model, draws = regression("logistic", x, y), DRAWS[:, :2]
    merged, every = (rows_of(model, collapse=c) for c in (True, False))
    assert (len(merged), len(every), merged.case_weights.sum()) == (6, 120, 120.0)
    found, expected = (average(r, CENTER[:2], draws) for r in (merged, every))
    for name in ("slope", "curvature", "residual"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-11)
    assert_allclose(found.slopes, expected.slopes[:, merged.which])
    single = expected.spread[merged.which]
    assert_allclose(found.spread, merged.case_weights * single, rtol=1e-9, atol=1e-14)


def test_residuals_do_not_depend_on_the_coordinates(rows):
    mix = np.array([[2.0, 0.3, -0.1], [0.0, 0.05, 0.7], [-1.0, 0.2, 9.0]])
    back = np.linalg.inv(mix).T
    found = average(with_design(rows["logistic"], X @ mix), CENTER @ back, DRAWS @ back)
    expected = average(rows["logistic"], CENTER, DRAWS)
    assert_allclose(found.residual, expected.residual, rtol=1e-6, atol=1e-9)
    assert_allclose(found.spread, expected.spread, rtol=1e-6, atol=1e-12)
    assert_allclose(found.slope, mix.T @ expected.slope, rtol=1e-6)
    assert_allclose(found.curvature, mix.T @ expected.curvature @ mix, rtol=1e-6)


# -- rows for what it leaves -----------------------------------------------------------------------

SPREADS = st.lists(st.just(0.0) | st.floats(1e-9, 1e9), min_size=1, max_size=30)


def sample_of(spread, most, key):
    rows = Rows(np.arange(len(spread)), np.ones(len(spread)))
    return ResidualSample.of(rows, np.array(spread), most, key=key)


@given(spread=SPREADS, size=st.integers(1, 30), key=st.integers(0, 2**32 - 1))
def test_samples_are_distinct_sorted_and_of_their_size(spread, size, key):
    sample = sample_of(spread, 30, key)
    which, shares = sample.shares(size)
    chosen, positive = sample.rows.positions[which], np.flatnonzero(spread)
    assert len(chosen) == min(size, len(positive))
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(positive)
    assert ((shares > 0) & (shares <= 1)).all()
    drawn = shares < 1
    factors = shares[drawn] / np.array(spread)[chosen[drawn]]
    assert_allclose(factors, factors.max(initial=0.0), rtol=1e-9)
    # Rows of probability one would have more by that factor.
    most = factors.max(initial=0.0)
    assert (most * np.array(spread)[chosen[~drawn]] >= 1 - 1e-9).all() or not drawn.any()


@given(spread=SPREADS, size=st.integers(1, 30), cut=st.integers(0, 30), key=st.integers(0, 99))
def test_samples_depend_neither_on_blocks_nor_on_the_largest_size(spread, size, cut, key):
    whole, spread = sample_of(spread, 30, key), np.array(spread)
    rows, kept = Rows(np.arange(len(spread)), np.ones(len(spread))), Smallest(size + 1)
    for part in (slice(0, cut), slice(cut, None)):
        kept.add(*ResidualSample.of(rows.take(part), spread[part], size, key=key).marked)
    parts = ResidualSample.of_marked(*kept.cut(), size)
    found, expected = (
        (sample.rows.positions[which], shares)
        for sample in (parts, whole)
        for which, shares in [sample.shares(size)]
    )
    assert_array_equal(found[0], expected[0])
    assert_array_equal(found[1], expected[1])


def test_sums_over_samples_have_their_mean_and_their_variance():
    """Of sums of values whose sizes are the spreads, over many keys."""
    spread = np.array([9.0, 0.0, 0.2, 5.0, 2.5, 0.9, 1.0, 4.0, 3.0, 6.0, 7.0, 2.0, 1.5])
    values = spread * np.random.default_rng(1).choice([-1.0, 1.0], size=len(spread))
    n_times, totals, predicted = 4_000, [], []
    for key in range(n_times):
        sample = sample_of(spread, 8, key)
        which, shares = sample.shares(5)
        totals.append((values[sample.rows.positions[which]] / shares).sum())
        predicted.append(sample.variance(5))
    error = np.std(totals) / np.sqrt(n_times)
    assert abs(np.mean(totals) - values.sum()) < 4 * error
    # Relative errors of a variance and of its prediction: about sqrt(2 / 4,000), 2 % each.
    assert np.mean(predicted) == pytest.approx(np.var(totals), rel=0.1)


def test_impossible_rows_come_first():
    sample = sample_of([1.0, np.inf, 3.0, np.inf], 3, key=5)
    which, shares = sample.shares(2)
    assert_array_equal(sample.rows.positions[which], [1, 3])
    assert_array_equal(shares, 1.0)
    assert 0 < sample.variance(2) < np.inf
    assert sample.variance(1) > 1e200


def test_calibration_is_ridge_regression_towards_one():
    rng = np.random.default_rng(2)
    residuals = rng.normal(size=(40, 15))
    residuals -= residuals.mean(axis=0)
    goal = residuals @ rng.uniform(0.6, 1.4, size=15) + 0.1 * rng.normal(size=40)
    ridge = 0.2 * np.trace(residuals @ residuals.T) / 40
    normal = residuals.T @ residuals + ridge * np.eye(15)
    change = np.linalg.solve(normal, residuals.T @ (goal - residuals.sum(axis=1)))
    assert np.abs(change).max() > 0.2
    assert_allclose(calibrated(residuals, goal), 1 + change, rtol=1e-9)


@given(
    n_draws=st.integers(2, 30),
    n_rows=st.integers(0, 30),
    size=st.floats(0.0, 3.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_calibration_brings_the_sum_closer(n_draws, n_rows, size, seed):
    rng = np.random.default_rng(seed)
    residuals = rng.normal(size=(n_draws, n_rows)) * rng.gamma(0.5, size=n_rows)
    residuals -= residuals.mean(axis=0)
    goal = residuals.sum(axis=1) + size * rng.normal(size=n_draws)
    factors = calibrated(residuals, goal)
    assert ((factors >= 0) & (factors <= 3)).all()
    if ((factors > 0) & (factors < 3)).all():  # else the nearest allowed one
        before, after = goal - residuals.sum(axis=1), goal - residuals @ factors
        assert np.linalg.norm(after) <= np.linalg.norm(before) * (1 + 1e-12) + 1e-12


def test_calibration_keeps_rows_that_leave_nothing():
    assert_array_equal(calibrated(np.zeros((5, 3)), np.arange(5.0) - 2.0), 1.0)


# -- the quadratic without the rows ----------------------------------------------------------------


def test_a_quadratic_without_the_parts_of_rows():
    rng = np.random.default_rng(4)
    names, center = ("a", "b"), rng.normal(size=2)
    slope, root = rng.normal(size=2), rng.normal(size=(2, 2))
    whole = Quadratic(names=names, center=center, slope=slope, curvature=-root @ root.T)
    part = Quadratic(names=names, center=center, slope=slope / 3, curvature=np.diag([-1.0, 2.0]))
    at = rng.normal(size=(7, 2))
    expected = [
        slope @ (c - center) - ((c - center) @ root) @ (root.T @ (c - center)) / 2 for c in at
    ]
    assert_allclose(whole.at(at), expected)
    without = whole.minus(part.slope, part.curvature)
    assert_allclose(without.at(at) + part.at(at), whole.at(at))
    assert (without.names, without.interface) == (names, None)


def random_quadratic(rng, names=("a", "b", "c"), kind=np.asarray):
    root = rng.normal(size=(len(names), len(names)))
    center, slope = rng.normal(size=(2, len(names)))
    return Quadratic(names=names, center=center, slope=slope, curvature=kind(-root @ root.T))


def shape_of(values):
    return values - values[0]


@pytest.mark.parametrize("kinds", [(np.asarray,) * 2, (sparse.csr_array,) * 2], ids=str)
def test_quadratics_move_and_add_up(kinds):
    rng = np.random.default_rng(8)
    one, other = (random_quadratic(rng, kind=kind) for kind in kinds)
    at, center = rng.normal(size=(9, 3)), rng.normal(size=3)
    assert_allclose(shape_of(one.about(center).at(at)), shape_of(one.at(at)), rtol=1e-10)
    assert_array_equal(one.about(center).center, center)
    both = one.plus(other)
    assert_allclose(shape_of(both.at(at)), shape_of(one.at(at) + other.at(at)), rtol=1e-10)
    assert_array_equal(both.center, one.center)
    with pytest.raises(ValueError, match="other coefficients"):
        one.plus(random_quadratic(rng, names=("a", "c", "b")))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_concave_quadratics_are_recognised(kind):
    root = np.random.default_rng(9).normal(size=(6, 4))
    singular = np.asarray(-root @ root.T)
    for part, expected in ((0.0, True), (1e-3, False), (-1e-3, True), (1e3, False)):
        curvature = kind(singular + part * np.eye(6))
        assert is_concave(curvature) is expected


def test_quadratics_are_written_in_other_coefficients():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b", shape=2)
        pm.Bernoulli("y", logit_p=a + X[:, :2] @ b, observed=Y["logistic"])
    observations = find_observations(model)

    def coefficients(swapped=False, factor=1.0):
        names, both = ["a", "b[0]", "b[1]"], [observations.parameters[n] for n in "ab"]
        graph = pt.concatenate([both[0].ravel(), factor * both[1]])
        order = [2, 0, 1] if swapped else [0, 1, 2]
        return Quadratic.zero(tuple(names[k] for k in order), graph[order], is_sparse=False)

    rng = np.random.default_rng(10)
    draws = {"a": rng.normal(size=4), "b": rng.normal(size=(4, 2))}
    own, swapped = coefficients(), coefficients(swapped=True)
    q = replace(random_quadratic(rng, own.names), interface=own.interface)
    moved = written_in(swapped, q, observations, draws)
    assert moved.names == swapped.names
    expected = q.at_draws(observations, draws)
    assert_allclose(moved.at_draws(observations, draws), expected)
    others = find_observations(model)
    again = carried_over(moved, observations, others)
    assert_allclose(again.at_draws(others, draws), expected)
    for other in (coefficients(factor=2.0), replace(own, names=("a", "b[0]", "c"))):
        with refused(InvalidDataError, "['a', 'b[0]', 'b[1]']", "quadratic", topic="regressions"):
            written_in(other, q, observations, draws)


def test_coefficients_of_a_copy_have_the_same_names():
    with pm.Model() as model:
        scale, effects = pm.HalfNormal("scale", shape=2), pm.Normal("effects", shape=3)
        one = pm.Data("one", np.arange(12) % 3)
        eta = (scale[0] * pm.Normal("base", shape=3))[one] + scale[1] * effects[one]
        pm.Bernoulli("y", logit_p=eta, observed=pm.Data("late", np.arange(12) % 2))
    names = [
        find_predictors(find_observations(m)).names for m in (model, copy_with_rows(model, {}))
    ]
    assert names[0] == names[1]


def test_a_quadratic_in_functions_of_the_free_variables():
    group = np.arange(12) % 3
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
        eta = mu + (sd * pm.Normal("z", shape=3))[group]
        pm.Bernoulli("y", logit_p=eta, observed=group % 2)
    observations = find_observations(model)
    found = find_predictors(observations)
    rng = np.random.default_rng(6)
    q = Quadratic(
        names=found.names,
        center=rng.normal(size=4),
        slope=rng.normal(size=4),
        curvature=np.eye(4) - 2.0,
        interface=found.coefficients,
    )
    draws = {"mu": rng.normal(size=5), "sd": rng.random(5), "z": rng.normal(size=(5, 3))}
    expected = {"mu": draws["mu"], "sd * z": draws["sd"][:, None] * draws["z"]}
    coefficients = coefficient_draws(found, draws)
    # In either order.
    assert_allclose(np.sort(coefficients), np.sort(np.column_stack(list(expected.values()))))
    assert_allclose(q.at_draws(observations, draws), q.at(coefficients))
    parameters = observations.parameters
    graph = pytensor.function(list(parameters.values()), q.potential(), mode="FAST_COMPILE")
    values = [graph(*(draws[name][s] for name in parameters)) for s in range(5)]
    assert_allclose(values, q.at(coefficients))


# -- properness ------------------------------------------------------------------------------------


def mode_of(x, y):
    """Mode under standard normal coefficients by Newton's method, and the precision there."""
    beta = np.zeros(x.shape[1])
    for _ in range(100):
        mean = expit(x @ beta)
        precision = (x.T * (mean * (1 - mean))) @ x + np.eye(len(beta))
        step = np.linalg.solve(precision, x.T @ (y - mean) - beta)
        beta = beta + step * min(1.0, 1.0 / np.abs(step).max())
    return beta, precision


def heavy_tailed(seed, n_rows=3_000, n_dims=20):
    """Few positives, and covariates without a variance, one row of them giant."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(2, size=(n_rows, n_dims))
    x[0] *= 100 / np.abs(x[0]).max()
    x[:, 0] = 1.0
    y = rng.binomial(1, expit(-4.0 + 0.5 * x[:, 1]))
    return x, y


def test_shrunk_weights_leave_a_concave_quadratic():
    x, y = heavy_tailed(1)
    mode, precision = mode_of(x, y)
    rng = np.random.default_rng(2)
    draws = rng.multivariate_normal(mode, np.linalg.inv(precision), size=400)
    rows = rows_of(regression("logistic", x, y))
    found = average(rows, mode, draws)
    posterior = np.eye(len(mode)) - found.curvature
    which, shares = found.sample.shares(40)
    chosen = found.sample.rows.positions[which]
    some, weights, curvatures = rows.take(chosen), 1 / shares, found.curvatures[..., chosen]
    drawn = shares < 1.0

    def share(weights):
        return largest_share(-some.gram(weights * curvatures), posterior)

    shrunk = concave(some, weights, curvatures, posterior, draws - mode, drawn=drawn)
    assert share(weights) > 1.0
    assert share(shrunk) <= 1.0
    assert_array_equal(shrunk[~drawn], weights[~drawn])
    assert (shrunk[drawn] < weights[drawn]).all()


def rows_of_levels(level):
    """Rows that see three coefficients of a level, and one that all of them share."""
    n, last = len(level), 3 * (level.max() + 1)
    entries = [3 * level, 3 * level + 1, 3 * level + 2, np.full(n, last)]
    ones = [sparse.csr_array((np.ones(n), (np.arange(n), e)), (n, last + 1)) for e in entries]

    def gram(curvatures):
        pairs = ((a, b) for a in range(4) for b in range(4))
        parts = (ones[a].T @ sparse.diags_array(curvatures[a, b]) @ ones[b] for a, b in pairs)
        return sum(parts).toarray()

    def seen(points):
        return np.stack([points[:, e] for e in entries])

    return SimpleNamespace(gram=gram, seen=seen)


def test_whole_rows_that_are_all_concave_shrink():
    # As in a sum of coresets, of which one has a row of a large weight.
    rng = np.random.default_rng(3)
    rows = rows_of(regression("normal", rng.normal(size=(50, 3)), rng.normal(size=50)))
    curvatures, whole = -np.ones((1, 1, 50)), np.zeros(50, dtype=bool)
    weights, posterior = np.full(50, 1.4), -rows.gram(curvatures)
    away = rng.multivariate_normal(np.zeros(3), np.linalg.inv(posterior), size=100)
    found = concave(rows, weights, curvatures, posterior, away, drawn=whole)
    assert largest_share(-rows.gram(found * curvatures), posterior) <= 1.0
    assert (found > 0.9).all()


@pytest.mark.parametrize(
    ("size", "share_of_whole", "concave_by", "convex_by"),
    [
        (100, 0.08, 30.0, 2.0),
        (250, 0.08, 30.0, 2.0),
        (1_000, 0.08, 30.0, 2.0),
        # Steps by direction are not enough, and a factor for all drawn rows would leave none.
        (100, 0.15, 20.0, 3.0),
        (100, 0.3, 12.0, 5.0),
    ],
)
def test_convex_rows_make_up_for_concave_ones(size, share_of_whole, concave_by, convex_by):
    # As in mixtures: some rows are far more concave than all rows together, and are kept whole;
    # the others are convex along the same coefficient of their level.
    rng, level = np.random.default_rng(1), np.repeat(np.arange(12), 400)
    is_whole = rng.random(len(level)) < share_of_whole
    slopes, along = rng.normal(size=(4, len(level))), np.zeros((4, len(level)))
    along[0], along[2] = rng.normal(0, 0.4, len(level)), 1.0
    factors = np.where(is_whole, -concave_by, convex_by)
    curvatures = factors * along[:, None] * along - slopes[:, None] * slopes
    posterior = -rows_of_levels(level).gram(curvatures)
    others = rng.choice(np.flatnonzero(~is_whole), size, replace=False)
    some = np.append(np.flatnonzero(is_whole), others)
    rows, own, drawn = rows_of_levels(level[some]), curvatures[..., some], ~is_whole[some]
    away = rng.multivariate_normal(np.zeros(37), np.linalg.inv(posterior), size=200)
    weights = np.where(drawn, (~is_whole).sum() / size, 1.0)

    def share(weights):
        return largest_share(-rows.gram(weights * own), posterior)

    found = concave(rows, weights, own, posterior, away, drawn=drawn)
    assert share(weights * ~drawn) > 2.0
    assert share(weights) > 1.2
    assert share(found) <= 1.5
    assert_array_equal(found[~drawn], 1.0)
    assert found[drawn].sum() > 0.8 * weights[drawn].sum()


# -- coresets --------------------------------------------------------------------------------------


def test_a_normal_regression_is_exact():
    model = regression("normal")
    coreset = build_coreset(model, **SETTINGS)
    assert np.var(coreset.proposal.log_ratios) < 1e-12
    beta = np.random.default_rng(7).normal(size=(6, P))
    each = stats.norm.logpdf(Y["normal"], beta @ X.T, NOISE)
    own = each[:, coreset.indices] @ coreset.weights + coreset.quadratic.at(beta)
    difference = own - each.sum(axis=1)
    assert_allclose(difference, difference[0], atol=1e-9 * np.ptp(each.sum(axis=1)))
    theirs, full = coreset.model.compile_logp(mode=PLAIN_MODE), model.compile_logp(mode=PLAIN_MODE)
    between = [theirs({"beta": b}) - full({"beta": b}) for b in beta]
    assert_allclose(between, between[0], atol=1e-9 * np.ptp(each.sum(axis=1)))


def test_all_rows_kept_whole_are_exact():
    model = regression("logistic", X[:60], Y["logistic"][:60])
    coreset = build_coreset(
        model, size=60, **SETTINGS | {"method": ControlVariates(tolerance=1e-9)}
    )
    assert_array_equal(coreset.weights, 1.0)
    assert coreset.size == 60
    assert np.var(coreset.proposal.log_ratios) < 1e-12
    assert np.abs(coreset.quadratic.curvature).max() < 1e-9


def test_too_many_coefficients_are_refused(limits):
    limits(most_dense=2)
    with refused(UnsupportedModelError, "2 coefficients", "3", topic="regressions"):
        build_coreset(regression("logistic"), **SETTINGS)


def test_rows_that_are_impossible_nearby_are_kept_whole():
    """A Poisson rate that is not positive at some nodes of the average."""
    x = np.abs(X[:200])
    x[20:, 2] = x[:20, :2] = 0.0  # so that the last rate is near zero
    with pm.Model() as model:
        beta = pm.HalfNormal("beta", PRIOR_SD, shape=P)
        y = np.where(np.arange(200) < 20, 0, 1)
        pm.Poisson("y", x @ beta, observed=y)
    coreset = build_coreset(model, **SETTINGS)
    assert set(range(20)) <= set(coreset.indices)
    assert_array_equal(coreset.weights[:20], 1.0)
    assert coreset.objective < 0.05


@pytest.mark.parametrize("sign", [-1.0, 1.0], ids=["concave", "convex"])
def test_the_precision_of_a_quadratic_is_the_hessian_of_its_posterior(sign):
    """Not centred: coefficients are products of free variables, and have curvature of their own."""
    rng = np.random.default_rng(8)
    group = np.arange(60) % 4
    with pm.Model() as model:
        effect = pm.HalfNormal("sd") * pm.Normal("z", shape=4)
        mean = pm.Normal("mean") + effect[group]
        pm.Normal("y", mean, NOISE, observed=rng.normal(1.0, 1.0, 60))
    loglik = likelihood_of(model)
    found = find_predictors(loglik.observations)
    root = rng.normal(size=(5, 5))
    quadratic = Quadratic(
        names=found.names,
        center=rng.normal(size=5),
        slope=rng.normal(size=5),
        curvature=sign * root @ root.T,
        interface=found.coefficients,
    )
    sampler = CoresetSampler(loglik, quadratic=quadratic)
    no_rows = loglik.some_row, np.zeros(1)
    x = 0.3 * rng.normal(size=6)
    posterior, steps = sampler.posterior(*no_rows), 1e-5 * np.eye(6)
    before, after = (posterior.slopes(x + side * steps).gradients for side in (-1, 1))
    expected = (before - after) / 2e-5
    space = posterior.space
    slopes = derivatives(lambda points: coefficient_draws(found, space.constrain(points)), x)
    pull = quadratic.slopes_at(sampler.rest.coefficients(x[None]))

    def gradients(points):
        return sampler.rest.slopes(points, np.repeat(pull, len(points), axis=0))[1]

    precision = precision_near(slopes, gradients, quadratic.curvature, x)
    assert_allclose(precision, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("width", [1e-2, 1e-3, 1e-4])
def test_predictors_that_are_known_well_have_the_slope_that_they_have_there(rows, width):
    """However narrow: an average over more is biased, and so is its sum over many rows."""
    own = rows["poisson"]
    center, rng = np.full(P, 0.5), np.random.default_rng(8)
    each = row_quadratics(own, center, width * rng.normal(size=(400, P)))
    eta = own.seen(center[None])[0, 0] + own.predictors[0].offset
    seen = own.seen(width * np.eye(P))[0]
    expected = Y["poisson"][own.which] - np.exp(eta + np.square(seen).sum(axis=0) / 2)
    # The width at 400 draws has an error of 4 %.
    error = 0.2 * np.exp(eta) * np.square(seen).sum(axis=0) + 1e-9
    assert (np.abs(each.slopes[0] - expected) < error).all()


# -- models of few rows for each dimension ---------------------------------------------------------


def answers(n_persons, n_items):
    """Right or wrong answers of persons to items of unknown difficulty and discrimination."""
    rng = np.random.default_rng(12)
    person, item = np.divmod(np.arange(n_persons * n_items), n_items)
    ability = rng.normal(size=n_persons)
    right = rng.binomial(1, expit(ability[person] - rng.normal(size=n_items)[item]))
    with pm.Model() as model:
        slope = pm.LogNormal("slope", 0.0, 0.5, shape=n_items)
        sides = pm.Normal("ability", shape=n_persons)[person]
        sides -= pm.Normal("difficulty", shape=n_items)[item]
        pm.Bernoulli("right", logit_p=slope[item] * sides, observed=right)
    return model


def matches(n_players, n_rows, *, normal=True):
    """Who won against whom, by skills whose spread is unknown."""
    rng = np.random.default_rng(14)
    skills, one = rng.normal(size=n_players), rng.integers(n_players, size=n_rows)
    other = (one + rng.integers(1, n_players, size=n_rows)) % n_players
    won = rng.binomial(1, expit(skills[one] - skills[other]))
    with pm.Model() as model:
        spread = pm.HalfNormal("spread")
        skill = (
            pm.Normal("skill", 0, spread, shape=n_players)
            if normal
            else pm.StudentT("skill", 4, mu=0, sigma=spread, shape=n_players)
        )
        pm.Bernoulli("won", logit_p=skill[one] - skill[other], observed=won)
    return model


class _ArrivedError(Exception):
    """Ends a build where it has arrived."""


def test_that_few_answers_of_each_person_save_little_is_said_before_anything_is_drawn(
    limits, fails
):
    """Half of them would leave 0.4 nats: more than four times what weights correct here."""
    limits(worthwhile=1_000, correctable=0.05)
    fails(CoresetSampler, "drawn")
    with refused(UnsupportedModelError, "4,000 rows", "240 free dimensions", topic="regressions"):
        build_coreset(answers(200, 20), **QUIET)


@pytest.mark.parametrize(
    "asked",
    [pytest.param({"method": "control_variates"}, marks=pytest.mark.slow), {"tolerance": 0.02}],
)
def test_few_rows_are_chosen_where_a_method_or_a_tolerance_is_asked_for(limits, monkeypatch, asked):
    limits(worthwhile=1_000)
    monkeypatch.setattr(AveragedRows, "missed_by", lambda averaged, size: 1e3 / max(size, 1))
    found = build_coreset(matches(60, 1_500), collapse=False, **QUIET | asked)
    assert found.objective < 0.02


def test_few_rows_for_each_dimension_are_as_few_as_importance_weights_correct(limits):
    limits(worthwhile=1_000)
    with warned("4,000 rows", "201 free dimensions"):
        found = build_coreset(matches(200, 4_000), collapse=False, **QUIET)
    assert 0.01 < found.objective <= 0.5
    assert found.size < 400
    assert found.certificate.reliable
    assert found.certificate.verdict.level is Level.REWEIGHTED


@pytest.fixture
def thousands(limits, fails, monkeypatch):
    """Every model is as one of thousands of dimensions, in which importance weights fail."""
    limits(most_by_laplace=10)
    monkeypatch.setattr(sampler, "resampled", lambda *_, **__: ())
    fails(WarmNuts, "draw")


@pytest.mark.parametrize("normal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_where_weights_fail_draws_move_to_the_posterior_without_nuts(thousands, normal):
    """Of skills that are normal given their spread, and of others; by PyMC's own densities.

    In equilibrium, a coordinate times its gradient is minus one on average.
    """
    model = matches(60, 1_500, normal=normal)
    found = build_coreset(model, collapse=False, tolerance=0.02, **SETTINGS)
    assert found.objective < 0.02
    assert found.history.attrs["n_corrected_laplace"] == 0
    space = Unconstrained(model)
    x = space.free(found.proposal.draws)
    products = (x - x.mean(axis=0)) * Density.of_model(space).gradients(x)
    error = products.std(axis=0) / len(x) ** 0.5
    assert np.abs((products.mean(axis=0) + 1 - 1 / len(x)) / error).max() < 5


def test_draws_that_do_not_mix_in_thousands_of_dimensions_are_refused(thousands, monkeypatch):
    monkeypatch.setattr(SplitHmc, "moved", lambda *_, **__: ())
    with refused(SamplingError, "61 dimensions", "quadratic"):
        build_coreset(matches(60, 1_500), collapse=False, **SETTINGS)


def test_that_sampling_the_model_itself_is_faster_is_said_before_anything_is_drawn(fails):
    """With 20 rows for each dimension, which the method might keep all."""
    fails(CoresetSampler, "drawn", _ArrivedError())
    with warned("faster", "4,000 rows"), pytest.raises(_ArrivedError):
        build_coreset(answers(200, 20), **QUIET)


def test_what_a_coreset_would_leave_is_foreseen():
    """The mean square of what samples of that size miss, times what they count, by brute force."""
    rng = np.random.default_rng(15)
    n, n_draws, size = 300, 400, 60
    left = rng.gamma(0.3, size=n) * rng.normal(size=(n_draws, n))
    spread, total, missed = left.std(axis=0), left.sum(axis=1), []
    rows = Rows(np.arange(n), np.ones(n))
    for key in range(200):
        sample = ResidualSample.of(rows, spread, n, key=key)
        which, shares = sample.shares(size)
        missed.append(np.var(left[:, which] @ (1 / shares) - total))
    averaged = AveragedRows(np.zeros((1, 1)), np.zeros(1), np.zeros((1, 1)), total, sample, total)
    noise, signal = np.mean(missed), np.var(total)
    assert averaged.missed_by(size) == pytest.approx(noise * signal / (noise + signal), rel=0.2)


def test_few_rows_that_a_quadratic_stands_for_are_not_refused(limits):
    """Of a normal likelihood with a known scale: it is a quadratic."""
    limits(worthwhile=1_000)
    rng = np.random.default_rng(13)
    group = np.arange(1_200) // 12
    with pm.Model() as model:
        effects = pm.Normal("effect", 0, pm.HalfNormal("sd"), shape=100)[group]
        pm.Normal("y", effects, 1.0, observed=rng.normal(rng.normal(size=100)[group], 1.0))
    assert build_coreset(model, **QUIET).objective < 1e-6


def areas(side, n_rows, *, together):
    """Counts of areas of a lattice: effects of their own and of their neighbourhood (BYM2)."""
    rng, n = np.random.default_rng(16), side**2
    line = np.eye(side, k=1) + np.eye(side, k=-1)
    neighbours = np.kron(line, np.eye(side)) + np.kron(np.eye(side), line)
    area, x = np.arange(n_rows) % n, rng.normal(size=n_rows)
    y = rng.poisson(np.exp(0.3 * x + 0.5 * rng.normal(size=n)[area]))
    with pm.Model() as model:
        sigma, rho = pm.HalfNormal("sigma"), pm.Beta("rho", 2, 2)
        own, spatial = pm.Normal("own", shape=n), pm.ICAR("spatial", neighbours)
        if together:
            effect = (pt.sqrt(1 - rho) * own + pt.sqrt(rho / 0.5) * spatial)[area]
        else:
            effect = pt.sqrt(1 - rho) * own[area] + pt.sqrt(rho / 0.5) * spatial[area]
        pm.Poisson("y", pt.exp(pm.Normal("b") * x + sigma * effect), observed=y)
    return model


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_scales_multiply_does_not_look_far_from_a_quadratic(limits, together):
    """Draws of scales and effects, each normal around the mode, are thousands of nats off."""
    limits(worthwhile=1_000)
    assert build_coreset(areas(5, 3_000, together=together), **QUIET).objective < 0.01


def test_the_history_counts_passes_and_evaluations(calls, monkeypatch):
    """Of all rows, and of the chosen ones at the draws that judge them; not of a sample."""
    monkeypatch.setattr(Posteriors, "_normal_at", lambda *_: None)
    averages, gains = calls(averaged, "average"), calls(Posteriors, "gain")
    sums = calls(CoresetSampler, "sums")
    coreset = build_coreset(
        regression("poisson"), method="control_variates", random_seed=1, progressbar=False
    )
    history = coreset.history
    of_chosen = history["size"].to_numpy().sum() / N
    passes = [len(call.args[3]) for call in averages] + [call.args[1].n_draws for call in sums]
    passes += [2] * len(gains)  # at two points
    assert_allclose(history["n_passes"][-1], len(passes) + of_chosen)
    n_draws = len(coreset.proposal.log_ratios)
    assert history["n_evaluations"][-1] == N * sum(passes) + of_chosen * N * n_draws
    spent = history["seconds_drawing"] + history["seconds_evaluating"]
    assert history["seconds_drawing"][-1] > 0
    assert (spent <= history["seconds"]).all()


def test_a_sample_settles_the_quadratic_of_many_rows(limits, calls):
    """Three passes over all rows: one for what the sample lacks, one for the rows, and a check."""
    limits(first_sample=1)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12_000, 30))
    y = rng.poisson(np.exp(x @ rng.normal(0, 0.2, 30)))
    of_quadratics, of_checks = calls(averaged, "average"), calls(CoresetSampler, "sums")
    coreset = build_coreset(regression("poisson", x, y), random_seed=1, progressbar=False)
    passes = [call.args[0].n_rows for call in (*of_quadratics, *of_checks)]
    assert passes.count(len(x)) == 3
    assert set(passes) == {1_500, len(x)}  # 50 rows per dimension
    assert coreset.certificate.reliable


def posteriors_of(loglik):
    job = SimpleNamespace(
        posterior=CoresetSampler(loglik), loglikelihood=loglik, rng=np.random.default_rng(1), key=7
    )
    return Posteriors.begun(job, _expansion_of(loglik))


def test_gains_are_those_of_pymc_s_density():
    model = regression("poisson")
    loglik = likelihood_of(model)
    found = posteriors_of(loglik)
    logp, x = model.compile_logp(mode=PLAIN_MODE), found.mode + 0.1
    expected = logp({"beta": x}) - logp({"beta": found.mode})
    assert expected < -1.0  # not of the prior alone, which favours zero
    assert_allclose(found.gain(x, loglik), expected, rtol=1e-8)


def convex_at(kind):
    """Return a model of rows that are convex at a point, and a point of that kind near zero."""
    rng = np.random.default_rng(5)
    x, b = rng.normal(size=(400, P)), np.array([2.0, -1.5, 1.0])
    with pm.Model() as model:
        eta = pm.math.dot(x, pm.Normal("b", 0, 5, shape=P))
        if kind == "tails":  # of Student's t: residuals are 10 scales
            y = x @ b + 0.2 * rng.standard_t(3, 400)
            pm.StudentT("y", nu=3, mu=eta, sigma=0.2, observed=y)
        else:  # at zero, which is as far from one sign as from the other
            y = x @ b * rng.choice([-1, 1], 400) + rng.normal(size=400)
            parts = [pm.Normal.dist(eta, 1), pm.Normal.dist(-eta, 1)]
            pm.Mixture("y", [0.5, 0.5], parts, observed=y)
    return model


@pytest.mark.parametrize("kind", ["tails", "saddle"])
def test_a_search_that_ended_where_rows_are_convex_goes_on_to_a_mode(kind, monkeypatch):
    model, given_the_rest = convex_at(kind), posteriors.mode_given_the_rest

    def not_over(space, start, free, *, most_steps, like=None):
        if like is not None:  # the search for the mode of a sample
            return np.zeros(P)
        return given_the_rest(space, start, free, most_steps=most_steps)

    ascended, ends = method._Run._ascended, []

    def end(run, quadratic, source):
        assert not is_concave(quadratic.curvature)
        assert_array_equal(run.posteriors.mode, np.zeros(P))
        ends.append((run.posteriors, ascended(run, quadratic, source)))
        raise _ArrivedError

    monkeypatch.setattr(posteriors, "mode_given_the_rest", not_over)
    monkeypatch.setattr(posteriors.Posteriors, "_normal_at", lambda *_: Normal(np.zeros(P), None))
    monkeypatch.setattr(method._Run, "_ascended", end)
    with pytest.raises(_ArrivedError):
        build_coreset(model, **SETTINGS)
    [(found, quadratic)] = ends
    density = Density.of_model(Unconstrained(model))
    [before, after] = density.values(np.stack([found.mode, laplace(density, found.mode).location]))
    assert after - before < 1.0
    assert is_definite(-quadratic.curvature)


def test_scaled_steps_lead_to_the_same_mode_by_fewer_gradients(calls, monkeypatch):
    """Thirty correlated columns, of widths from 0.1 to 10."""
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(2_000, 30)) + rng.normal(size=(2_000, 1))) * np.logspace(-1, 1, 30)
    with pm.Model() as model:
        p = pm.math.invlogit(x @ pm.Normal("beta", 0, 1, shape=30))
        pm.Bernoulli("y", p, observed=rng.integers(2, size=2_000))
    loglik, found = likelihood_of(model), []
    steps = calls(FiniteObjective, "__call__")
    for scaled in (True, False):
        if not scaled:
            monkeypatch.setattr(Posteriors, "_normal_at", lambda *_: None)
        steps.clear()
        found.append((posteriors_of(loglik).mode, len(steps)))
    (mode, few), (same, many) = found
    assert few < 20 < many / 2
    assert_allclose(mode, same, atol=0.02)
    gradient = model.compile_dlogp(mode=PLAIN_MODE)({"beta": mode})
    assert np.abs(gradient / (x**2).sum(axis=0) ** 0.5).max() < 0.05  # a standard deviation is 2


@pytest.mark.parametrize("impossible", [-np.inf, pytest.param(np.nan, marks=pytest.mark.slow)])
def test_approximations_that_no_draw_can_judge_are_kept_with_a_warning(impossible, monkeypatch):
    sums = CoresetSampler.sums

    def beyond(*args, **options):
        found = sums(*args, **options)
        found.total[0] = impossible
        return found

    monkeypatch.setattr(CoresetSampler, "sums", beyond)
    with warned("0.01 nats", "NaN", "check()"):
        coreset = build_coreset(
            regression("poisson"), method="control_variates", random_seed=1, progressbar=False
        )
    assert np.isnan(coreset.objective)
    assert coreset.size > 0
    assert coreset.certificate is None


@pytest.mark.parametrize("asked", [{}, {"tolerance": 0.5}])
def test_a_variable_of_each_customer_is_refused_before_anything_is_computed(fails, asked):
    fails(build, "CoresetSampler")
    customer = np.repeat(np.arange(500), 3)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, pm.HalfNormal("spread"), shape=500)
        pm.Poisson("y", pt.exp(effect[customer]), observed=customer % 4)
    facts = ("1,500 rows", "501 free dimensions", "'effect'")
    with refused(UnsupportedModelError, facts):
        build_coreset(model, integrate=False, **QUIET | asked)


@pytest.mark.parametrize("asked", [{"method": "uniform"}, {"size": 39}])
def test_few_rows_are_no_reason_to_refuse_what_is_asked_for(asked):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mean", shape=4).sum(), 1.0, observed=np.arange(39.0))
    with refused(UnsupportedModelError, "39 rows", "4 free dimensions"):
        build_coreset(model, **QUIET)
    with warned("39 observations", "4 free dimensions"):
        build_coreset(model, **QUIET | asked)


# -- scales of what each group has -----------------------------------------------------------------


def of_their_own_tails(n_groups, n_rows):
    """Rows of lines with degrees of freedom and a scale of each group."""
    rng = np.random.default_rng(17)
    group, x = np.arange(n_rows) % n_groups, rng.normal(size=n_rows)
    degrees = rng.uniform(4, 30, n_groups)[group]
    return {"group": group, "x": x, "y": x + rng.standard_t(degrees)}


def lines(columns, n_groups, n_held=None):
    with pm.Model() as model:
        group, x, y = (pm.Data(name, values[:n_held]) for name, values in columns.items())
        nu = pm.Gamma("nu", 2, 0.1, shape=n_groups)
        a, b, log_s = (pm.Normal(name, shape=n_groups) for name in ("a", "b", "log_s"))
        mean, scale = a[group] + b[group] * x, pt.exp(log_s)[group]
        pm.StudentT("likelihood", nu=nu[group], mu=mean, sigma=scale, observed=y)
    return model


@pytest.mark.slow
def test_degrees_of_freedom_of_each_group_are_expanded_where_they_are_positive():
    """Near 30 with a standard deviation of 15, draws on their own scale are impossible."""
    model = lines(of_their_own_tails(7, 7_000), 7)
    found = find_predictors(find_observations(model))
    assert found.names[0] == "f(nu)[0]"
    assert found.names[-1] == "log_s[6]"
    assert build_coreset(model, tolerance=0.2, **QUIET).objective < 0.2


@pytest.mark.slow  # two minutes
@pytest.mark.filterwarnings("ignore:The posterior of all rows reaches further")
def test_weights_that_must_shrink_are_calibrated_again(limits):
    """Where single weights shrink in directions of too much curvature, it brings others up.

    Rows elsewhere are sampled together: in memory each group has a coreset of its own.  Five
    builds, each with and without, on average of the logarithms: where few draws carry the
    divergence, it is known to a factor of two.
    """
    left, columns = {}, of_their_own_tails(7, 21_000)
    given = {"rows": open_rows(columns), "size": 140}
    for times in (1, 4):
        limits(calibrations=times)
        options = [SETTINGS | given | {"random_seed": seed} for seed in range(1, 6)]
        found = [build_coreset(lines(columns, 7, 200), **each).objective for each in options]
        left[times] = stats.gmean(found)
    assert left[4] < 0.8 * left[1]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_no_steps_uphill_where_a_curvature_is_not_finite(kind):
    for entry in (np.nan, np.inf):
        assert not list(uphill_steps(kind(np.diag([entry, 1.0])), np.ones(2)))
