"""A coreset of a time series: the posterior of an autoregression, in closed form."""

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import (
    UnsupportedModelError,
    build_coreset,
    build_pass_glm,
    open_rows,
)
from tests.refusals import refused

TOLERANCE = 0.01  # nats, the default of build_coreset
NOISE, PRIOR = 0.7, 0.5
COEFFICIENTS = np.array([0.5, 0.3])


def series(n_steps, seed):
    steps = np.random.default_rng(seed).normal(0, NOISE, size=n_steps)
    x = np.zeros(n_steps)
    for t in range(2, n_steps):
        x[t] = COEFFICIENTS @ x[t - 2 : t][::-1] + steps[t]
    return x


def autoregression(x):
    with pm.Model(coords={"time": np.arange(len(x))}) as model:
        rho = pm.Normal("rho", 0, PRIOR, shape=2)
        start = pm.Normal.dist(0, 1)
        pm.AR("x", rho, sigma=NOISE, init_dist=start, observed=x, dims="time")
    return model


def posterior(x, weights):
    """Mean and precision of the coefficients: a weighted regression on the last two values."""
    lags = np.column_stack([x[1:-1], x[:-2]])
    scaled = lags * (weights / NOISE**2)[:, None]
    precision = np.eye(2) / PRIOR**2 + scaled.T @ lags
    return np.linalg.solve(precision, scaled.T @ x[2:]), precision


def gaussian_kl(one, other):
    (mean, precision), (other_mean, other_precision) = one, other
    ratio, shift = np.linalg.solve(precision, other_precision), other_mean - mean
    return 0.5 * (
        np.trace(ratio) - 2 - np.linalg.slogdet(ratio)[1] + shift @ other_precision @ shift
    )


def both_kl(x, coreset):
    weights = np.zeros(len(x))
    weights[coreset.indices] = coreset.weights
    found, exact = posterior(x, weights[2:]), posterior(x, np.ones(len(x) - 2))
    return gaussian_kl(found, exact), gaussian_kl(exact, found)


@pytest.fixture(scope="module")
def x():
    return series(2_000, 1)


@pytest.fixture(scope="module")
def coreset(x):
    return build_coreset(autoregression(x), random_seed=1, progressbar=False)


def test_posterior_is_that_of_the_whole_series(coreset, x):
    assert coreset.indices.min() >= 2
    assert len(coreset.indices) < 100
    assert max(both_kl(x, coreset)) < TOLERANCE


def test_model_has_the_labels_of_the_chosen_steps(coreset):
    assert coreset.model.coords["time"] == tuple(coreset.indices)
    assert {p.name for p in coreset.model.potentials} == {"coreset_loglik", "coreset_unweighted"}


def test_it_is_not_extended_because_a_part_belongs_to_no_row(coreset):
    with refused(UnsupportedModelError, "['x']", "no row"):
        coreset.extend(autoregression(series(100, 2)))


def test_importance_draws_have_the_moments_of_the_closed_form(coreset, x):
    mean, precision = posterior(x, np.ones(len(x) - 2))
    draws = coreset.importance_draws(random_seed=2)["posterior"]["rho"].to_numpy().reshape(-1, 2)
    noise = np.sqrt(np.diag(np.linalg.inv(precision)) / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 6 * noise).all()  # resampled: more than noise alone


def test_polynomial_of_degree_two_is_exact(x):
    summary = build_pass_glm(autoregression(x), progressbar=False)
    found, exact = summary.closed_form(), posterior(x, np.ones(len(x) - 2))
    np.testing.assert_allclose(found["mean"], exact[0], rtol=1e-6)
    np.testing.assert_allclose(found["covariance"], np.linalg.inv(exact[1]), rtol=1e-6)


def test_series_elsewhere_are_refused_by_name(x):
    with pm.Model() as model:
        series = pm.Data("series", x[:50])
        rho = pm.Normal("rho", shape=2)
        pm.AR("x", rho, sigma=NOISE, init_dist=pm.Normal.dist(0, 1), observed=series)
    with refused(UnsupportedModelError, "'x'", "rows=", topic="no-sum-over-rows"):
        build_coreset(model, rows=open_rows({"series": x}), random_seed=1, progressbar=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hundred_thousand_steps(seed):
    long = series(100_000, seed)
    coreset = build_coreset(autoregression(long), random_seed=seed, progressbar=False)
    assert len(coreset.indices) < 100
    assert max(both_kl(long, coreset)) < TOLERANCE
