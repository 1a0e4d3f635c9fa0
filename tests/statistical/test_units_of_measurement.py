"""Outcomes and predictors in any unit: the same rows with the same weights, the same posterior."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import build_coreset

N, LEVELS = 1_500, 60
MILLION = 2.0**20  # a power of two moves no digit


def model(kind: str, unit: float) -> pm.Model:
    """Return a regression whose outcome and priors are in some unit."""
    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(N, 26)), rng.normal(size=N)
    level, effects = rng.integers(LEVELS, size=N), rng.normal(0, 0.5, size=LEVELS)
    x = x[:, :2] if kind == "few" else x
    y = 1 + x[:, 0] + noise
    with pm.Model() as found:
        mean = pm.Normal("intercept", 0, 10 * unit)
        if kind == "levels":
            scale = pm.HalfNormal("scale", 10 * unit)
            mean += pm.Normal("effect", 0, scale, shape=LEVELS)[level]
            y = y - x[:, 0] + effects[level]
        else:
            mean += x @ pm.Normal("slopes", 0, 10 * unit, shape=x.shape[1])
        pm.Normal("y", mean, pm.HalfNormal("noise", 10 * unit), observed=unit * y)
    return found


@pytest.mark.parametrize(
    "kind", ["few", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("wide", "levels"))]
)
def test_the_unit_of_the_outcome_changes_nothing(kind):
    options = {"integrate": ["effect"]} if kind == "levels" else {}
    one, other = (
        build_coreset(model(kind, unit), random_seed=1, progressbar=False, **options)
        for unit in (1.0, MILLION)
    )
    assert_array_equal(one.indices, other.indices)
    assert_allclose(one.weights, other.weights, rtol=1e-3)
    assert (other.modes is None) == (one.modes is None)
    check = other.check(other.sample(random_seed=1, progressbar=False, quiet=True))
    assert check.reliable
    assert check.second_opinion is not None


def seconds(kind: str, unit: float) -> pm.Model:
    """Return a regression on a raw time in seconds, whose slopes are standard normal per second."""
    rng = np.random.default_rng(2)
    time = 1.7e9 + 1e7 * rng.normal(size=N)
    standardised = (time - time.mean()) / time.std()
    mean = np.exp(0.5 + 0.3 * standardised)
    with pm.Model() as found:
        x, slopes = time / unit, pm.Normal("slopes", 0, unit, shape=1)
        eta = pm.Normal("intercept") + slopes[0] * x
        if kind == "square":
            eta += pm.Normal("bends", 0, unit**2) * x**2
            pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(mean))
        elif kind == "counts":
            alpha = pm.Exponential("alpha", 1)
            counts = rng.negative_binomial(2, 2 / (2 + mean))
            pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=alpha, observed=counts)
        else:
            noise = rng.standard_t(4, size=N)
            own = {"nu": pm.Gamma("nu", 2, 0.1), "sigma": pm.HalfNormal("sigma")}
            pm.StudentT("y", mu=eta, observed=1 + standardised / 2 + noise, **own)
    return found


@pytest.mark.parametrize("kind", ["square", "counts", "robust"])
def test_a_predictor_in_the_billions_has_the_posterior_of_one_of_about_one(kind):
    """Means and standard deviations at five standard errors of 2,000 draws each."""
    found = {}
    for unit in (1.0, 1.7e9):
        coreset = build_coreset(seconds(kind, unit), random_seed=1, progressbar=False)
        idata = coreset.sample(random_seed=1, progressbar=False, quiet=True)
        assert coreset.check(idata).reliable
        draws = idata["posterior"]["slopes"].to_numpy().ravel() / unit
        found[unit] = draws.mean(), draws.std()
    (one, spread), (other, other_spread) = found.values()
    assert abs(one - other) < 5 * spread * np.sqrt(2 / 2_000)
    assert abs(np.log(spread / other_spread)) < 5 * np.sqrt(1 / 2_000)
