"""Effects of levels: rows chosen by level, and normal distributions given the others."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import expit, logsumexp

from pymc_coresets import UnsupportedModelError, build_coreset
from pymc_coresets.glm.control_variates import precisions
from pymc_coresets.glm.control_variates.averaged import ByPredictors, row_quadratics
from pymc_coresets.glm.control_variates.by_levels import (
    PursuedLevel,
    SampleOfLevels,
    in_chunks,
    levels_of,
)
from pymc_coresets.glm.control_variates.expansion import ResidualSample
from pymc_coresets.glm.control_variates.hierarchy import ConditionalGaussian, find_hierarchy
from pymc_coresets.glm.control_variates.precisions import with_entries
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.sampling.maximisation.central_differences import differences
from tests.modes import PLAIN_MODE
from tests.refusals import refused

# -- Rows for the residual of each level of a factor: by brute force, and in exact cases. ----------

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


# -- Posteriors of a quadratic under hierarchical priors: which variables are scales, and draws. ---

LEVELS = 3
GROUP = np.arange(60) % LEVELS
DESIGN = np.random.default_rng(1).normal(size=(60, 20))


def centred():
    return pm.Normal("effect", 0, pm.HalfNormal("scale", 1), shape=LEVELS)[GROUP]


def not_centred():
    return pm.HalfNormal("scale", 1) * pm.Normal("raw", shape=LEVELS)[GROUP]


def zero_sum():
    return pm.ZeroSumNormal("effect", sigma=pm.HalfNormal("scale", 1), shape=LEVELS)[GROUP]


def random_walk():
    scale = pm.HalfNormal("scale", 1)
    start = pm.Normal.dist(0, 1)
    return pm.GaussianRandomWalk("effect", sigma=scale, init_dist=start, steps=LEVELS - 1)[GROUP]


def of_two_scales():
    scales = pm.HalfNormal("scale", 1, shape=2)
    shift, slope = pm.Normal("shift", 0, scales[0]), pm.Normal("slope", 0, scales[1])
    return shift + slope * GROUP


def regression():
    return DESIGN @ pm.Normal("slopes", shape=20)


def of_heavy_tails():
    return DESIGN @ pm.StudentT("slopes", 4, shape=20)


def of_own_scales():
    return DESIGN @ pm.Normal("slopes", 0, pm.HalfCauchy("scale", 1, shape=20))


def observed(predictor):
    """Return a model whose rows see one predictor."""
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=predictor(), observed=np.arange(60) % 2)
    return model


def parted(predictor):
    """Return the model's log-prior, its coefficients, and the hierarchy."""
    observations = find_observations(observed(predictor))
    found = find_predictors(observations)
    rest = RestLogDensity(observations, found.coefficients)
    space = rest.space
    columns = [np.ravel(own) for own in space.columns.values()]
    hierarchy = find_hierarchy(rest.slopes, rest.coefficients, space.start, columns)
    return rest, found, hierarchy


def quadratic_of(found, *, is_sparse=False):
    """Return a quadratic with correlations whose maximum is not at the center."""
    rng, p = np.random.default_rng(2), len(found.names)
    root = rng.normal(size=(p, p))
    curvature = -(root @ root.T + np.eye(p))
    return Quadratic(
        names=found.names,
        center=rng.normal(size=p),
        slope=rng.normal(size=p),
        curvature=sparse.csr_array(curvature) if is_sparse else curvature,
        interface=found.coefficients,
    )


@pytest.mark.parametrize(
    ("predictor", "scales"),
    [
        (centred, ["scale"]),
        (not_centred, ["scale"]),
        (zero_sum, ["scale"]),
        (random_walk, ["scale"]),
        (of_two_scales, ["scale"]),
        (regression, []),
    ],
)
def test_the_scales_are_the_fewest_variables_given_which_the_rest_is_normal(predictor, scales):
    rest, _, hierarchy = parted(predictor)
    columns = rest.space.columns
    assert [name for name, own in columns.items() if hierarchy.is_scale[own].any()] == scales


@pytest.mark.parametrize("predictor", [of_heavy_tails, of_own_scales])
def test_priors_that_are_normal_in_too_few_coordinates_have_none(predictor):
    with refused(UnsupportedModelError, "prior", "normal", "scales", topic="regressions"):
        parted(predictor)


@pytest.mark.parametrize(
    ("predictor", "n_ruling"),
    [(centred, 1), (not_centred, 0), (zero_sum, 1), (random_walk, 1), (of_two_scales, 2),
     (regression, 0)],
)  # fmt: skip
def test_scales_of_centred_effects_rule_their_precision(predictor, n_ruling):
    _, _, hierarchy = parted(predictor)
    found = hierarchy.rules_precision
    assert found.sum() == n_ruling
    assert not (found & ~hierarchy.is_scale).any()


def around_a_mean():
    mean = pm.Normal("mean", 0, 2)
    return pm.Normal("effect", mean, pm.HalfNormal("scale", 1), shape=80)[np.arange(60) // 2]


def test_the_precision_of_many_effects_around_a_mean_takes_three_gradients():
    rest, _, hierarchy = parted(around_a_mean)
    assert hierarchy.colors.max() == 1
    reference, free = hierarchy.reference, ~hierarchy.is_scale
    expanded = next(hierarchy.expanded(reference[hierarchy.is_scale][None]))
    found = with_entries(hierarchy.pattern, expanded.precisions[0]).toarray()

    def slopes(points):
        return rest.slopes(points)[1][:, free]

    dense = -differences(slopes, reference, np.full(len(reference), 0.5))[free]
    assert_allclose(found, dense, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scales_with_a_gradient_that_is_not_finite_have_no_weight(bad):
    _, found, hierarchy = parted(centred)
    near = ConditionalGaussian.of(hierarchy, quadratic_of(found))

    def prior(points):
        values, gradients = hierarchy.prior(points)
        return values, np.where(points[:, hierarchy.is_scale] > 0.5, bad, gradients)

    broken = replace(near, hierarchy=replace(hierarchy, prior=prior))
    scales = np.array([[0.0], [1.0]])
    expected, _ = near.log_marginals(scales)
    assert broken.log_marginals(scales).tolist() == [expected, -np.inf]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    "predictor", [centred, not_centred, zero_sum, random_walk, of_two_scales, regression]
)
def test_draws_have_the_density_that_is_said(predictor, is_sparse):
    """Up to what depends on the scales alone, it is that of prior and quadratic."""
    rest, found, hierarchy = parted(predictor)
    quadratic = quadratic_of(found, is_sparse=is_sparse)
    near = ConditionalGaussian.of(hierarchy, quadratic)
    x, logq = near.draw(50, rng=np.random.default_rng(3))
    logp = rest.values(x) + quadratic.at(rest.coefficients(x))
    at = x[:, hierarchy.is_scale]
    given_scales = logp - near.log_marginals(at)
    of_scales = near.scales.log_density(at)
    assert_allclose(np.ptp(given_scales - (logq - of_scales)), 0.0, atol=1e-7)


def test_the_marginal_of_the_scales_is_the_integral():
    """Over two effects, by the trapezoidal rule, which is exact for what is smooth and vanishes."""
    rest, found, hierarchy = parted(of_two_scales)
    quadratic = quadratic_of(found)
    near = ConditionalGaussian.of(hierarchy, quadratic)
    scales = np.array([[-1.0, 0.5], [0.3, -0.2], [0.0, 1.0]])
    effects = np.stack(np.meshgrid(*[np.linspace(-12, 12, 201)] * 2), axis=-1).reshape(-1, 2)
    expected = []
    for some in scales:
        x = np.empty((len(effects), 4))
        x[:, hierarchy.is_scale], x[:, ~hierarchy.is_scale] = some, effects
        logp = rest.values(x) + quadratic.at(rest.coefficients(x))
        expected.append(logsumexp(logp))
    assert_allclose(np.diff(near.log_marginals(scales)), np.diff(expected), atol=1e-8)


def test_it_does_not_matter_how_effects_are_written():
    """The marginal of the scale is the same, centred or not."""
    marginals = []
    for predictor in (centred, not_centred):
        _, found, hierarchy = parted(predictor)
        numbers = quadratic_of(found)
        near = ConditionalGaussian.of(hierarchy, numbers)
        marginals.append(near.log_marginals(np.linspace(-2, 1, 5)[:, None]))
    assert_allclose(np.ptp(marginals[0] - marginals[1]), 0.0, atol=1e-8)


def test_draws_may_share_scales():
    """Where decompositions are dear."""
    _, found, hierarchy = parted(centred)
    near = replace(ConditionalGaussian.of(hierarchy, quadratic_of(found)), n_operations=1.0)
    x, _ = near.draw(640, rng=np.random.default_rng(4))
    assert len(np.unique(x[:, hierarchy.is_scale])) == 64
    assert len(np.unique(x[:, ~hierarchy.is_scale], axis=0)) == 640


def test_hierarchies_are_built_and_sampled_without_nuts():
    rng = np.random.default_rng(5)
    codes = [rng.integers(0, k, 20_000) for k in (30, 20)]
    eta = sum(rng.normal(0, 0.5, k)[c] for k, c in zip((30, 20), codes, strict=True))
    with pm.Model() as model:
        predictor = pm.Normal("mean", 0, 2)
        for name, k, code in zip("ab", (30, 20), codes, strict=True):
            predictor += pm.Normal(name, 0, pm.HalfNormal(f"{name}_scale", 1), shape=k)[code]
        pm.Poisson("y", pm.math.exp(predictor), observed=rng.poisson(np.exp(eta)))
    coreset = build_coreset(model, method="control_variates", random_seed=1, progressbar=False)
    assert coreset.objective <= 0.01
    counts = coreset.history.attrs
    assert counts["n_corrected_laplace"] == counts["n_sampler_runs"]
    again = pickle.loads(pickle.dumps(coreset))  # without what is compiled
    idata = again.sample(draws=300, chains=2, random_seed=2, progressbar=False)
    assert idata.sample_stats["accepted"].mean() > 0.5
    assert coreset.verify(idata, draws=100).by_pymc < 0.02  # with a standard error of 14 %


@pytest.mark.parametrize("most", [10**6, 0])
def test_precisions_follow_slopes_that_vary(most, monkeypatch):
    monkeypatch.setattr(precisions, "_MOST_PRODUCTS", most)
    rng = np.random.default_rng(1)
    pattern = rng.uniform(size=(6, 4)) < 0.5
    prior = sparse.csr_array(np.diag(rng.uniform(1.0, 2.0, 6)))
    grams = [sparse.csr_array(rng.normal(size=(4, 4)) * mask) for mask in (np.eye(4), np.tri(4))]
    grams = [gram + gram.T for gram in grams]
    places = sparse.csr_array(pattern.astype(float))
    found = precisions.Precisions(grams, prior, places, moves=True)
    shares, slopes = np.array([0.5, 2.0]), rng.normal(size=places.nnz)
    by = np.zeros((6, 4))
    by[pattern] = slopes
    wanted = sum(s * by @ g.toarray() @ by.T for s, g in zip(shares, grams, strict=True))
    at = found.at(shares, prior.data, precisions.with_entries(places, slopes)).toarray()
    assert_allclose(at, wanted + prior.toarray(), atol=1e-12)
