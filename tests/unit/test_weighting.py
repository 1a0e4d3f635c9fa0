"""Weighting distributions against closed forms: linear regression and a correlated posterior."""

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import (
    InvalidDataError,
    Laplace,
    Prior,
    SamplingError,
    Subsample,
    UnsupportedModelError,
)
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.weighting import UserDraws
from tests.refusals import refused

N, N_DRAWS = 400, 4_000
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.5], [0.0, 0.0, 1.0]])
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=N)


def posterior(weights):
    """Mean and covariance of the weighted linear regression (unit noise, N(0, 1) prior)."""
    covariance = np.linalg.inv(np.eye(3) + X.T @ (weights[:, None] * X))
    return covariance @ (X.T @ (weights * Y)), covariance


def assert_same_normal(draws, mean, covariance):
    """Five standard errors of whitened sample means and covariances of independent draws."""
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    limit = 5 / np.sqrt(len(draws))
    assert np.abs(whitened.mean(axis=1)).max() < limit
    assert np.abs(np.cov(whitened) - np.eye(3)).max() < limit * np.sqrt(2)


@pytest.fixture(scope="module")
def regression():
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        pm.Normal("y", X @ beta, 1.0, observed=Y)
    return CoresetSampler(LogLikelihood(find_observations(model)))


def draw(weighting, sampler, n_draws=N_DRAWS, seed=1):
    return weighting.draw(sampler, n_draws, rng=np.random.default_rng(seed))


def test_laplace_is_exact_for_a_normal_posterior(regression):
    assert_same_normal(draw(Laplace(), regression).values["beta"], *posterior(np.ones(N)))


def test_laplace_counts_merged_rows_as_often_as_they_occur():
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        pm.Normal("y", np.tile(X[:100], (3, 1)) @ beta, 1.0, observed=np.tile(Y[:100], 3))
    sampler = CoresetSampler(LogLikelihood(find_observations(model), collapse=True))
    assert (sampler.n_rows, sampler.loglikelihood.total_weight) == (100, 300)
    draws = draw(Laplace(), sampler).values["beta"]
    assert_same_normal(draws, *posterior(np.where(np.arange(N) < 100, 3.0, 0.0)))


def laplace_of(model):
    space = Unconstrained(model)
    return laplace(Density.of_model(space), space.start)


def test_laplace_covariance_is_the_inverse_hessian_on_the_unconstrained_scale():
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(2), cov=np.array([[2.0, 1.8], [1.8, 2.0]]))
        pm.LogNormal("s", 1.0, 0.3)
    points, _ = laplace_of(model).draw(20_000, rng=np.random.default_rng(1))
    draws = Unconstrained(model).constrain(points).values
    limit = 5 / np.sqrt(20_000)
    np.testing.assert_allclose(np.cov(draws["x"].T), [[2, 1.8], [1.8, 2]], atol=limit * 4)
    assert abs(np.log(draws["s"]).mean() - 1.0) < 0.3 * limit
    assert abs(np.log(draws["s"]).std() - 0.3) < 0.3 * limit


def test_laplace_does_not_depend_on_units():
    """A step of a ten-thousandth would be a hundred thousand standard deviations."""
    x = RNG.normal(size=200)
    counts = RNG.poisson(np.exp(1 + 0.3 * x))

    def factor(unit):
        with pm.Model() as model:
            b, a = pm.Normal("b", 0, 10 * unit), pm.Normal("a", 0, 10)
            pm.Poisson("y", pm.math.exp(a + b / unit * x), observed=counts)
        return laplace_of(model).factor.root

    expected, found = factor(1.0), factor(1e-9)
    found[0] *= 1e-9
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_laplace_sees_the_curvature_beyond_the_kinks():
    """Each row's gradient jumps: over a small step the curvature is none, or that of one row."""
    y = RNG.laplace(size=1_000)
    with pm.Model() as model:
        pm.Laplace("y", pm.Flat("m"), 1.0, observed=np.repeat(y, 4))
    found = laplace_of(model)
    # The Fisher information is one for each row; a fifth of it is the noise of the rows there.
    assert 1 / 1.5 < found.factor.root.item() / np.sqrt(4_000) < 1.5


def test_laplace_says_where_there_is_no_mode():
    with pm.Model() as funnel:
        log_scale = pm.Flat("log_scale")
        pm.Normal("x", 0, pm.math.exp(log_scale), shape=10)
    with refused(SamplingError, "weighting='subsample'"):
        laplace_of(funnel)


def test_a_prior_without_draws_is_refused_by_name():
    with pm.Model() as model:
        beta = pm.Normal("beta", pm.Flat("mean"), pm.HalfNormal("sd"), shape=3)
        pm.Normal("y", X @ beta, 1.0, observed=Y)
    sampler = CoresetSampler(LogLikelihood(find_observations(model)))
    with refused(UnsupportedModelError, "'mean'", "weighting='subsample'"):
        draw(Prior(), sampler)


def test_prior_draws_have_the_prior_moments(regression):
    assert_same_normal(draw(Prior(), regression).values["beta"], np.zeros(3), np.eye(3))


@pytest.mark.usefixtures("nuts_by_numpy")
@pytest.mark.parametrize("sampler", ["laplace", "nuts"])
def test_subsample_of_all_rows_is_the_posterior(regression, sampler):
    weighting = Subsample(size=N, sampler=sampler)
    draws = draw(weighting, regression, n_draws=1_000).values["beta"]
    # NUTS draws of a normal posterior are about as good as independent ones.
    assert_same_normal(draws, *posterior(np.ones(N)))


def test_a_subsample_is_weighted_up_to_all_rows(regression):
    draws = draw(Subsample(size=100, sampler="laplace"), regression).values["beta"]
    spread = np.cov(draws.T)
    _, covariance = posterior(np.ones(N))
    ratio = np.linalg.slogdet(spread)[1] - np.linalg.slogdet(covariance)[1]
    assert abs(ratio) < 1.0  # one hundredth of the weight would make this 3 log(4)


def test_user_draws_are_thinned_and_named(regression):
    few, many = ({"beta": RNG.normal(size=(n, 3))} for n in (50, 5_000))
    assert draw(UserDraws(few), regression, n_draws=20).n_draws == 50
    assert draw(UserDraws(many), regression, n_draws=20).n_draws == 4_000
    with refused(InvalidDataError, "'beta'", topic="draws"):
        draw(UserDraws({"gamma": np.zeros(50)}), regression)


def test_draws_are_reproducible(regression):
    one, two = (draw(Subsample(size=50), regression, n_draws=40).values["beta"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_constrain_inverts_the_models_own_transforms():
    with pm.Model() as model:
        pm.Beta("p", 2, 2)
        pm.Dirichlet("w", np.ones(3))
        pm.HalfNormal("s", shape=2)
    point = model.initial_point(random_seed=1)
    space = Unconstrained(model)
    back = space.constrain(space.start[None] + 0.3)
    assert back.values["w"].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(back.values["s"][0], np.exp(point["s_log__"] + 0.3))
