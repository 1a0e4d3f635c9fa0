"""Posteriors of a quadratic under hierarchical priors: which variables are scales, and draws."""

import pickle
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import logsumexp

from pymc_coresets import UnsupportedModelError, build_coreset
from pymc_coresets.glm.control_variates import precisions
from pymc_coresets.glm.control_variates.hierarchy import ConditionalGaussian, find_hierarchy
from pymc_coresets.glm.control_variates.precisions import with_entries
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.sampling.maximisation.central_differences import differences
from tests.refusals import refused

LEVELS = 3
LEVEL = np.arange(60) % LEVELS
X = np.random.default_rng(1).normal(size=(60, 20))


def centred():
    return pm.Normal("effect", 0, pm.HalfNormal("scale", 1), shape=LEVELS)[LEVEL]


def not_centred():
    return pm.HalfNormal("scale", 1) * pm.Normal("raw", shape=LEVELS)[LEVEL]


def zero_sum():
    return pm.ZeroSumNormal("effect", sigma=pm.HalfNormal("scale", 1), shape=LEVELS)[LEVEL]


def random_walk():
    scale = pm.HalfNormal("scale", 1)
    start = pm.Normal.dist(0, 1)
    return pm.GaussianRandomWalk("effect", sigma=scale, init_dist=start, steps=LEVELS - 1)[LEVEL]


def of_two_scales():
    scales = pm.HalfNormal("scale", 1, shape=2)
    shift, slope = pm.Normal("shift", 0, scales[0]), pm.Normal("slope", 0, scales[1])
    return shift + slope * LEVEL


def regression():
    return X @ pm.Normal("slopes", shape=20)


def of_heavy_tails():
    return X @ pm.StudentT("slopes", 4, shape=20)


def of_own_scales():
    return X @ pm.Normal("slopes", 0, pm.HalfCauchy("scale", 1, shape=20))


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
