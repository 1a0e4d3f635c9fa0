"""Missing outcomes are no part of a coreset's model: they are drawn given the posterior."""

import warnings

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from pymc.exceptions import ImputationWarning

from pymc_coresets import build_coreset

N = 600
RNG = np.random.default_rng(1)
X = RNG.normal(size=N)
MISSING = RNG.uniform(size=N) < 0.1
QUIET = {"random_seed": 1, "progressbar": False}
FEW = {"draws": 300, "compute_convergence_checks": False, **QUIET}


def model_of(likelihood, observed, dims="row"):
    shape = np.shape(observed)
    coords = {name: range(n) for name, n in zip(np.atleast_1d(dims), shape, strict=True)}
    with warnings.catch_warnings(), pm.Model(coords=coords) as model:
        warnings.simplefilter("ignore", ImputationWarning)
        x = pm.Data("x", X.reshape(shape), dims=dims)
        likelihood("y", pm.Normal("slope") * x, observed, dims)
    return model


def normal(name, mean, observed, dims):
    pm.Normal(name, mean, 0.1, observed=observed, dims=dims)


def poisson(name, mean, observed, dims):
    pm.Poisson(name, pm.math.exp(mean), observed=observed, dims=dims)


def of_numbers(shape=(N,)):
    return np.ma.masked_array(RNG.normal(2 * X, 0.1), MISSING).reshape(shape)


CASES = {
    "numbers": (normal, of_numbers(), "row"),
    "counts": (poisson, np.ma.masked_array(RNG.poisson(np.exp(X)), MISSING), "row"),
    "a matrix": (normal, of_numbers((300, 2)), ("row", "time")),
}


@pytest.mark.parametrize("case", CASES)
def test_missing_outcomes_are_drawn_given_the_posterior(case):
    likelihood, observed, dims = CASES[case]
    model = model_of(likelihood, observed, dims)
    coreset = build_coreset(model, **QUIET)
    assert [rv.name for rv in coreset.model.free_RVs] == ["slope"]
    assert coreset.full_model is model
    idata = coreset.sample(**FEW)
    assert coreset.check(idata).reliable
    for draws in (idata, coreset.importance_draws(random_seed=1), coreset.reweight(idata)):
        posterior = draws["posterior"]
        assert set(posterior.data_vars) == {"slope", "y_unobserved"}
        drawn = posterior["y_unobserved"]
        assert drawn.sizes["y_unobserved_dim_0"] == MISSING.sum()
        slope, x = float(posterior["slope"].mean()), X[MISSING]
        mean = slope * x if likelihood is normal else np.exp(slope * x)
        sd = 0.1 if likelihood is normal else np.sqrt(mean)
        errors = (drawn.mean(["chain", "draw"]) - mean) / sd
        assert abs(errors).max() < 5 / np.sqrt(posterior.attrs.get("psis_ess", 300))


def test_their_posterior_is_that_of_pymc():
    """Where the posterior is normal, so is what is missing."""
    coreset = build_coreset(model_of(*CASES["numbers"]), **QUIET)
    drawn = coreset.sample(**FEW)["posterior"]
    x, y = X[~MISSING], of_numbers().compressed()
    variance = 1 / (1 + 100 * x @ x)
    assert_allclose(drawn["slope"].mean(), 100 * variance * (x @ y), atol=5 * variance**0.5)
    spread = drawn["y_unobserved"].std(["chain", "draw"])
    assert_allclose(spread, np.sqrt(0.01 + variance * X[MISSING] ** 2), rtol=0.2)


def test_draws_that_lack_them_are_predicted():
    coreset = build_coreset(model_of(*CASES["numbers"]), **QUIET)
    idata = coreset.importance_draws(100, random_seed=1)
    for draws in (idata, idata["posterior"].to_dataset()[["slope"]]):
        found = coreset.predict(draws, random_seed=1)["posterior_predictive"]
        assert set(found.data_vars) == {"y", "y_observed"}
        slope = float(idata["posterior"]["slope"].mean())
        assert_allclose(found["y"][MISSING], slope * X[MISSING], atol=0.06)


def test_many_are_left_to_predict(limits):
    limits(most_recorded=10)
    coreset = build_coreset(model_of(*CASES["numbers"]), **QUIET)
    assert set(coreset.sample(**FEW)["posterior"].data_vars) == {"slope"}


def test_few_are_drawn_beside_many(limits):
    limits(most_recorded=10)
    few, many = np.arange(60.0), np.arange(60.0)
    few[:2], many[:30] = np.nan, np.nan
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", ImputationWarning)
        mu = pm.Normal("mu")
        pm.Normal("few", mu, 1.0, observed=few)
        pm.Normal("many", mu, 1.0, observed=many)
    found = build_coreset(model, **QUIET).sample(**FEW)
    assert set(found["posterior"].data_vars) == {"mu", "few_unobserved"}


def test_those_of_units_follow_what_was_integrated_out():
    rng, user = np.random.default_rng(1), np.repeat(np.arange(300), 3)
    levels = rng.normal(scale=5, size=300)
    seen = rng.normal(levels[user], 0.1)
    missing = [0, 70]
    seen[missing] = np.nan
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", ImputationWarning)
        level = pm.Normal("level", pm.Normal("mean"), pm.HalfNormal("sd", 5), shape=300)
        pm.Normal("seen", level[user], 0.1, observed=seen)
    coreset = build_coreset(model, integrate="level", **QUIET)
    weighed = coreset.importance_draws(100, random_seed=1)
    assert set(weighed["posterior"].data_vars) == {"mean", "sd"}
    found = coreset.predict(weighed, kind="draws", random_seed=1)
    predicted = found["posterior_predictive"]["seen"]
    drawn = coreset.sample(**FEW)["posterior"]["seen_unobserved"]
    for found in (predicted[..., missing], drawn):
        assert_allclose(found.mean(["chain", "draw"]), levels[user[missing]], atol=0.4)


def test_what_others_depend_on_is_kept():
    observed = np.array([1.0, np.nan, *range(30)])
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", ImputationWarning)
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=observed)
        pm.Potential("known", -((model["y_unobserved"] - 3.0) ** 2).sum())
    coreset = build_coreset(model, observed="y_observed", size=5, method="uniform", **QUIET)
    assert [rv.name for rv in coreset.model.free_RVs] == ["mu", "y_unobserved"]
