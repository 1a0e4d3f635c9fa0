"""Control variates end to end: chosen by itself, judged, stored, under other priors."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

from pymc_coresets import (
    ControlVariates,
    Coreset,
    CoresetWarning,
    InvalidDataError,
    UnsupportedModelError,
    build_coreset,
    merge,
)

N_ROWS, N_COLUMNS = 6_000, 50


def regression(columns, sd=1.0, order=slice(None)):
    """A logistic regression; of 50 columns it takes more rows to match than 1 000."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N_ROWS, columns))
    y = rng.binomial(1, expit(x @ rng.normal(0, 0.3, size=columns)))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, sd, shape=columns)
        pm.Bernoulli("y", logit_p=x[:, order] @ slopes, observed=y)
    return model


@pytest.fixture(scope="module")
def model():
    return regression(N_COLUMNS)


@pytest.fixture(scope="module")
def coreset(model):
    return build_coreset(model, random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def idata(coreset):
    return coreset.sample(draws=200, random_seed=1, progressbar=False)


def test_many_dimensions_are_summarised_by_a_quadratic_and_few_rows(coreset):
    assert coreset.method == "control_variates"
    assert coreset.size < 1_000  # where rows alone need 1 326
    assert coreset.objective <= 0.01
    assert coreset.certificate.reliable
    assert "of 50 coefficients, for all rows" in repr(coreset)
    assert {v.name for v in coreset.model.potentials} == {"coreset_loglik", "coreset_quadratic"}


@pytest.mark.parametrize(("columns", "method"), [(24, "auto"), (25, "control_variates")])
def test_from_25_dimensions_on_rows_alone_take_longer(columns, method):
    coreset = build_coreset(regression(columns), random_seed=1, progressbar=False)
    assert coreset.method == method
    assert (coreset.quadratic is None) == (method == "auto")
    assert coreset.objective <= 0.01


def test_those_who_limit_the_size_get_rows_alone():
    with pytest.warns(CoresetWarning, match="not within"):
        coreset = build_coreset(regression(25), size=30, random_seed=1, progressbar=False)
    assert (coreset.method, coreset.quadratic) == ("auto", None)


def test_pymc_agrees_with_the_ratios_of_full_and_approximate_posterior(coreset, idata):
    check = coreset.check(idata)
    assert check.second_opinion.difference < 1e-6  # of thousands of nats
    assert check.symmetrised_kl < 0.01
    assert not check.needs_reweighting


def test_chains_begin_in_the_posterior_s_own_coordinates(idata):
    assert idata["posterior"].attrs["tuning_steps"] == 300


def test_files_and_pickles_keep_the_quadratic(coreset, model, tmp_path):
    coreset.to_netcdf(tmp_path / "coreset.nc")
    point = {"slopes": np.linspace(-1, 1, N_COLUMNS)}
    expected = coreset.model.compile_logp()(point)
    for same in (
        Coreset.from_netcdf(tmp_path / "coreset.nc", model),
        cloudpickle.loads(cloudpickle.dumps(coreset)),
    ):
        assert same.model.compile_logp()(point) == pytest.approx(expected, rel=1e-12)
    without_model = Coreset.from_netcdf(tmp_path / "coreset.nc")
    np.testing.assert_array_equal(without_model.quadratic.slope, coreset.quadratic.slope)


def test_other_priors_keep_the_quadratic(coreset):
    narrow = coreset.with_model(regression(N_COLUMNS, sd=0.3))
    idata = narrow.sample(draws=200, tune=300, random_seed=1, progressbar=False)
    assert narrow.check(idata).symmetrised_kl < 0.2  # of other draws than it was averaged over


def test_other_likelihoods_are_refused(coreset):
    backwards = slice(None, None, -1)
    with pytest.raises(InvalidDataError):
        coreset.with_model(regression(N_COLUMNS, order=backwards))


def test_quadratics_are_neither_extended_nor_merged(coreset, model):
    with pytest.raises(UnsupportedModelError, match=r"coreset\.quadratic"):
        coreset.extend(model)
    with pytest.raises(UnsupportedModelError, match=r"coreset\.quadratic"):
        merge(coreset, coreset)


def test_importance_draws_are_those_that_judged_it(coreset):
    found = coreset.importance_draws(random_seed=1)["posterior"]
    assert found.attrs["psis_ess"] > 200
    assert found.sizes["draw"] == 400


def test_the_divergence_falls_with_the_number_of_rows():
    # The variance of a sum of sampled residuals is in proportion to 1 / M, or falls faster where
    # the largest are kept whole: from 200 to 3 000 rows to a tenth at least, with 400 draws
    # (relative error of a variance: sqrt(2 / 400), 7 %).
    rng = np.random.default_rng(5)
    x = rng.standard_t(4, size=(3_000, 25))
    y = rng.binomial(1, expit(-3 + x @ rng.normal(0, 0.2, size=25)))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=25)
        pm.Bernoulli("y", logit_p=pm.Normal("a", 0, 3) + x @ slopes, observed=y)
    method = ControlVariates(tolerance=1e-9, max_rounds=2)
    options = {"method": method, "random_seed": 1, "progressbar": False}
    with pytest.warns(CoresetWarning, match="not within 1e-09"):
        few, many = (build_coreset(model, size=n, **options).objective for n in (200, 2_900))
    assert many < 0.1 * few


def test_crossed_factors_that_are_not_centred():
    rng = np.random.default_rng(2)
    first, second = rng.integers(30, size=8_000), rng.integers(25, size=8_000)
    eta = -0.5 + 0.8 * rng.normal(size=30)[first] + 0.5 * rng.normal(size=25)[second]
    with pm.Model() as model:
        scales = pm.HalfNormal("scales", 1, shape=2)
        one, other = pm.Normal("one", shape=30), pm.Normal("other", shape=25)
        predictor = pm.Normal("mean", 0, 2) + (scales[0] * one)[first] + scales[1] * other[second]
        pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, expit(eta)))
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.method == "control_variates"
    assert coreset.objective < 0.05  # of free scales, whose draws come from NUTS
    assert coreset.size < 1_000


def test_levels_of_few_rows():
    """From the mode for 1 650 of the rows the quadratics diverge."""
    rng = np.random.default_rng(1)
    share = np.repeat([1.0, 0.015], 15)
    level = rng.choice(30, size=100_000, p=share / share.sum())
    y = rng.binomial(1, expit(-1.2 + 0.3 * rng.normal(size=30)[level]))
    x = rng.normal(size=100_000)  # so that no rows are equal
    with pm.Model() as model:
        effects = pm.ZeroSumNormal("effects", pm.Gamma("sd", 2, 5), shape=30)
        eta = pm.Normal("mean", -1, 1) + pm.Normal("slope") * x + effects[level]
        pm.Bernoulli("y", logit_p=eta, observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.method == "control_variates"
    assert coreset.objective <= 0.01


@pytest.mark.parametrize("scale", ["free", "of covariates"])
def test_scales_are_part_of_the_quadratic(scale):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(6_000, 45))
    y = rng.normal(x @ rng.normal(0, 0.3, 45), np.exp(0.3 * x[:, 0]))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=45)
        sigma = pm.HalfNormal("sigma")
        if scale != "free":
            sigma = pm.math.exp(pm.math.log(sigma) + x[:, :5] @ pm.Normal("of_scale", shape=5))
        pm.Normal("y", x @ slopes, sigma, observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.method == "control_variates"
    assert coreset.objective <= 0.01
    idata = coreset.sample(draws=100, tune=300, random_seed=1, progressbar=False)
    check = coreset.check(idata)
    assert check.second_opinion.difference < 1e-6  # of thousands of nats
    assert check.symmetrised_kl < 0.02
    if scale == "free":
        fitted = np.linalg.lstsq(x, y)[0]
        means = idata.posterior["slopes"].mean(("chain", "draw")).to_numpy()
        assert np.abs(means - fitted).max() < 0.005  # sd of 0.013, 400 draws, a prior of sd 1
