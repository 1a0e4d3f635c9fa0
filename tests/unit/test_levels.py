"""Rows for the residual of each level of a factor: by brute force, and in exact cases."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp

from pymc_coresets import build_coreset
from pymc_coresets.glm.control_variates.averaged import ByPredictors, row_quadratics
from pymc_coresets.glm.control_variates.by_levels import (
    PursuedLevel,
    SampleOfLevels,
    in_chunks,
    levels_of,
)
from pymc_coresets.glm.control_variates.expansion import ResidualSample
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from tests.modes import PLAIN_MODE

G, EACH = 8, 120
_rng = np.random.default_rng(1)
LEVEL = _rng.permutation(np.repeat(np.arange(G), EACH))
X = _rng.normal(size=G * EACH)
TRUE = _rng.normal(-1.0, 1.0, G)
COUNTS = _rng.binomial(1, expit(TRUE[LEVEL] + 0.5 * X))
QUIET = {"random_seed": 3, "progressbar": False}


def rows_of(model):
    loglik = LogLikelihood(find_observations(model), collapse=False)
    every = loglik.in_memory.all
    return RowsInMemory(find_predictors(loglik.observations), every.positions, every.case_weights)


def model_of(level, *, other=None, n_slopes=0):
    rng = np.random.default_rng(2)
    with pm.Model() as model:
        eta = pm.Normal("own", shape=int(1 + level.max()))[level]
        if other is not None:
            eta = eta + pm.Normal("other", shape=int(1 + other.max()))[other]
        if n_slopes:
            eta = eta + rng.normal(size=(len(level), n_slopes)) @ pm.Normal("b", shape=n_slopes)
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=len(level)))
    return model


# -- levels ----------------------------------------------------------------------------------------


def test_levels_are_those_of_the_factor():
    found = levels_of(rows_of(model_of(LEVEL, n_slopes=2)))
    pairs = np.unique(np.c_[LEVEL, found], axis=0)
    assert_array_equal(pairs, np.c_[np.arange(G), np.arange(G)])


def test_variables_of_the_same_factor_have_the_same_levels():
    found = levels_of(rows_of(model_of(LEVEL, other=LEVEL)))
    assert len(np.unique(np.c_[LEVEL, found], axis=0)) == G


def test_a_coarser_factor_is_shared():
    school = np.repeat(np.arange(40), 60)
    found = levels_of(rows_of(model_of(school, other=school // 10)))
    assert len(np.unique(np.c_[school, found], axis=0)) == 40


@pytest.mark.parametrize(
    "model",
    [
        model_of(np.repeat(np.arange(100), 6)),
        model_of(np.repeat(np.arange(20), 30), other=np.tile(np.arange(30), 20)),
        model_of(np.repeat(np.arange(20), 60), n_slopes=8),
    ],
    ids=["few rows", "crossed", "many slopes"],
)
def test_small_levels_are_not_pursued(model):
    assert not len(levels_of(rows_of(model)))


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_chunks_have_whole_levels_and_each_row_once(size):
    levels = np.random.default_rng(3).integers(9, size=200)
    levels[:9] = np.arange(9)
    chunks = [*in_chunks(levels, size)]
    assert_array_equal(np.sort(np.concatenate(chunks)), np.arange(200))
    of_chunks = [set(levels[chunk]) for chunk in chunks]
    assert sum(map(len, of_chunks)) == 9
    assert all((np.diff(chunk) > 0).all() for chunk in chunks)
    assert all(len(c) <= size or len(own) == 1 for c, own in zip(chunks, of_chunks, strict=True))


# -- one level -------------------------------------------------------------------------------------


def cubic(n_rows=60, n_draws=200, *, seed=4):
    """Rows whose residual is a cubic of two numbers, and whose second-order terms are concave."""
    rng = np.random.default_rng(seed)
    z, a = rng.normal(size=(n_draws, 2)), rng.normal(size=(n_rows, 2))
    seen = z @ a.T
    return SimpleNamespace(
        positions=np.arange(n_rows),
        case_weights=np.ones(n_rows),
        left=0.01 * seen**3,
        curved=-0.05 * seen**2,
        spread=0.01 * (seen**3).std(axis=0),
    )


def test_few_rows_have_the_residual_of_all():
    """Cubics of two numbers have four coefficients, and their quadratics three."""
    rows = cubic()
    level = PursuedLevel.of(**vars(rows), least=1e-12, key=1)
    which = level.choices[-1]
    weights = level.weights(rows.left[:, which], rows.curved[:, which])
    assert len(which) <= 12
    assert (weights >= 0).all()
    total = rows.left.sum(axis=1)
    assert np.var(total - rows.left[:, which] @ weights) < 1e-9 * np.var(total)
    assert_allclose(rows.curved[:, which] @ weights, 0.95 * rows.curved.sum(axis=1), rtol=1e-4)


def test_residuals_are_those_at_draws_that_did_not_choose():
    """By noise, which no row of another draw predicts: more rows fit the draws that choose only."""
    rows = cubic()
    rows.left = 0.01 * np.random.default_rng(5).normal(size=rows.left.shape)
    level = PursuedLevel.of(**vars(rows), least=0.0, key=1)
    total = np.var(rows.left[1::2].sum(axis=1))
    assert_allclose(level.left[0], total)
    assert level.left.min() > 0.3 * total
    assert len(level.choices) < 12  # it gave up


def test_whole_rows_keep_their_weights():
    rows = cubic()
    rows.spread[[3, 7]] = np.inf
    level = PursuedLevel.of(**vars(rows), least=1e-12, key=1)
    others = np.delete(np.arange(60), [3, 7])
    assert_array_equal(level.whole, [3, 7])
    assert not {3, 7} & set(level.choices[-1])
    assert_allclose(level.target[0], rows.left[:, others].sum(axis=1))


def test_absent_rows_are_not_chosen():
    rows = cubic()
    rows.case_weights[:30] = 0.0
    rows.spread = rows.spread * rows.case_weights
    level = PursuedLevel.of(**vars(rows), least=1e-12, key=1)
    assert min(level.choices[-1]) >= 30
    assert_allclose(level.target[0], rows.left[:, 30:].sum(axis=1))


# -- several levels --------------------------------------------------------------------------------


def levels_with(*squares):
    return SampleOfLevels(
        [
            PursuedLevel(
                np.empty(0, np.int64),
                [1000 * g + np.arange(3 * c) for c in range(len(own))],
                np.array(own),
                np.zeros((2, 4)),
            )
            for g, own in enumerate(squares)
        ]
    )


def test_rows_go_to_the_levels_that_need_them():
    sample = levels_with([1.0, 0.5, 0.01], [0.02, 0.001], [8.0, 2.0, 0.4, 0.02])
    assert_array_equal(sample.choices(0), [0, 0, 0])
    assert_array_equal(sample.choices(9), [1, 0, 2])  # 0.5, 0.02 and 0.4 are at most 0.5
    assert_array_equal(sample.choices(100), [2, 1, 3])
    sizes = [len(sample.first(size)[0]) for size in range(20)]
    assert all(found <= size for size, found in enumerate(sizes))
    variances = [sample.variance(size) for size in range(20)]
    assert (np.diff(variances) <= 0).all()
    assert_allclose(variances[0], 9.02)
    assert_allclose(variances[-1], 0.031)
    assert_array_equal(sample.choices(sample.most), sample.choices(10_000))


def test_a_choice_without_a_gain_is_not_taken():
    sample = levels_with([1.0, 2.0, 3.0])
    assert_array_equal(sample.choices(100), [0])
    assert sample.variance(100) == 1.0


# -- whole constructions ---------------------------------------------------------------------------


def logistic(*, observed=COUNTS):
    with pm.Model() as model:
        own = pm.Normal("own", -1.0, 1.5, shape=G)
        pm.Bernoulli("y", logit_p=own[LEVEL] + 0.5 * X, observed=observed)
    return model


def test_posteriors_of_levels_are_those_of_brute_force():
    """Independent levels, each with one number: its posterior on a grid, with and without rows."""
    model = logistic()
    coreset = build_coreset(
        model, method="control_variates", integrate=False, tolerance=1e-4, **QUIET
    )
    assert coreset.size < G * EACH / 4
    grid, middle = np.linspace(-3.5, 2.5, 400), np.full(G, -1.0)
    of_coreset, of_all = (m.compile_logp(mode=PLAIN_MODE) for m in (coreset.model, model))
    divergence = 0.0
    for g in range(G):
        points = [{"own": np.where(np.arange(G) == g, z, middle)} for z in grid]
        exact, found = (np.array([logp(p) for p in points]) for logp in (of_all, of_coreset))
        exact, found = (one - logsumexp(one) for one in (exact, found))
        divergence += (np.exp(exact) - np.exp(found)) @ (exact - found)
    assert 0 <= divergence < 2e-4  # twice the tolerance: the measurement has its own error


def test_normal_outcomes_leave_nothing_to_rows():
    y = np.random.default_rng(6).normal(TRUE[LEVEL], 1.0)
    with pm.Model() as model:
        own = pm.Normal("own", -1.0, 1.5, shape=G)
        pm.Normal("y", own[LEVEL], 1.0, observed=y)
    coreset = build_coreset(model, method="control_variates", integrate=False, **QUIET)
    precision = 1 / 1.5**2 + EACH
    mean = (-1.0 / 1.5**2 + np.bincount(LEVEL, y)) / precision
    idata = coreset.sample(draws=500, chains=4, cores=1, **QUIET)
    found = idata["posterior"]["own"].mean(["chain", "draw"]).to_numpy()
    assert np.abs((found - mean) * np.sqrt(precision)).max() < 4.5 / np.sqrt(1_000)
    assert coreset.check(idata).symmetrised_kl < 1e-6


@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")  # of what 30 rows miss
def test_no_more_rows_than_allowed():
    coreset = build_coreset(
        logistic(), method="control_variates", integrate=False, size=30, tolerance=1e-9, **QUIET
    )
    assert coreset.size <= 30


def expansion_of(model):
    loglik = LogLikelihood(find_observations(model), collapse=False)
    return ByPredictors(loglik.source, seen_rows_of(loglik, find_predictors))


def averaged_at_draws():
    expansion = expansion_of(logistic())
    draws = TRUE + 0.25 * np.random.default_rng(7).normal(size=(400, G))
    before = expansion.at_point(draws[:1], key=0)
    return (
        expansion,
        draws,
        expansion.average(draws, before, n_kept=500, goal=4e-6, key=1, prior=lambda: np.eye(G)),
    )


def test_rows_are_sampled_where_those_of_levels_miss_more(limits):
    limits(candidates_of_levels=1)
    _, _, averaged = averaged_at_draws()
    assert isinstance(averaged.sample, ResidualSample)


def test_sums_are_the_same_by_level_and_by_block(monkeypatch):
    _, _, found = averaged_at_draws()
    monkeypatch.setattr(ByPredictors, "has_levels", False)
    _, _, expected = averaged_at_draws()
    for name in ("slope", "curvature", "residual"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9)


def test_rows_of_levels_see_their_own_residual():
    """The weighted rows of each level match its residual, and not only those of all together."""
    expansion, draws, averaged = averaged_at_draws()
    assert isinstance(averaged.sample, SampleOfLevels)
    chosen = expansion.chosen(averaged, averaged.quadratic(expansion.interface), 500, goal=1e-6)
    every = expansion.seen.of(expansion.source.all)
    left = row_quadratics(every, draws.mean(axis=0), draws - draws.mean(axis=0)).left
    weights = np.zeros(G * EACH)
    weights[chosen.rows.positions] = chosen.weights
    for own in (np.flatnonzero(g == LEVEL) for g in range(G)):
        total = left[:, own].sum(axis=1)
        rest = total - left[:, own] @ weights[own]
        assert np.var(rest) < 1e-3 * np.var(total)
    assert chosen.left < 1e-5


def test_no_rows_are_needed_where_little_is_left():
    with pm.Model() as model:
        own, sd = pm.Normal("own", shape=G), pm.HalfNormal("sd")
        pm.StudentT("y", nu=5, mu=own[LEVEL], sigma=sd, observed=COUNTS + 0.1 * X)
    expansion = expansion_of(model)
    draws = 1.0 + 0.05 * np.random.default_rng(7).normal(size=(400, G + 1))
    before, prior = expansion.at_point(draws[:1], key=0), lambda: np.eye(G)
    averaged = expansion.average(draws, before, n_kept=500, goal=1e6, key=1, prior=prior)
    chosen = expansion.chosen(averaged, averaged.quadratic(expansion.interface), 500, goal=1e6)
    assert len(chosen.weights) == 0
    assert_allclose(chosen.left, np.var(averaged.residual))


def test_levels_without_a_success_meet_the_tolerance():
    """Weights for their residual alone have too much curvature on one side, and must not shrink."""
    rng, level = np.random.default_rng(1), np.repeat(np.arange(6), 500)
    x = rng.normal(size=len(level))
    observed = rng.binomial(1, expit(0.5 * x - 2.0)) * (level >= 2)
    with pm.Model() as model:
        own, slope = pm.Normal("own", -2.0, 2.0, shape=6), pm.Normal("slope", shape=6)
        pm.Bernoulli("y", logit_p=own[level] + slope[level] * x, observed=observed)
    coreset = build_coreset(
        model, method="control_variates", integrate=False, tolerance=2e-3, **QUIET
    )
    assert coreset.size < 100
    assert coreset.certificate.symmetrised_kl < 2e-3
