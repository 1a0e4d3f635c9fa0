"""Draws of changing coresets: right by closed forms, and compiled once."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import ks_2samp

from pymc_coresets.model.loglik import LogLikelihood
from pymc_coresets.model.observations import find_observations
from pymc_coresets.model.rewrite import coreset_model
from pymc_coresets.model.sampler import CoresetSampler

N, D = 300, 3
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, D))
Y = X @ [1.0, -1.0, 0.5] + RNG.normal(size=N)
CORESETS = [
    (np.arange(0, 300, 3), np.full(100, 3.0)),
    (np.arange(20), np.linspace(1, 20, 20)),
    (np.arange(150, 155), np.full(5, 60.0)),
]


@pytest.fixture(scope="module")
def loglik():
    with pm.Model(coords={"obs": np.arange(N)}) as model:
        mu = pm.Deterministic("mu", X @ pm.Normal("beta", shape=D), dims="obs")
        pm.Normal("y", mu, 1.0, observed=Y, dims="obs")
    return LogLikelihood(find_observations(model))


def posterior(indices, weights):
    x = X[indices]
    covariance = np.linalg.inv(np.eye(D) + x.T @ (weights[:, None] * x))
    return covariance @ (x.T @ (weights * Y[indices])), covariance


@pytest.mark.parametrize("kind", ["laplace", "nuts"])
def test_draws_of_every_coreset_are_right(loglik, kind):
    sampler, n_draws = CoresetSampler(loglik, np.ones(N), sampler=kind), 2_000
    for i, (indices, weights) in enumerate(CORESETS):
        rng = np.random.default_rng(i)
        draws = sampler.draw(indices, weights, n_draws, rng=rng).values["beta"]
        mean, covariance = posterior(indices, weights)
        whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
        # Five standard errors of independent draws; NUTS draws of a normal are about as good.
        assert np.abs(whitened.mean(axis=1)).max() < 5 / np.sqrt(n_draws)
        assert np.abs(np.cov(whitened) - np.eye(D)).max() < 5 * np.sqrt(2 / n_draws)


def test_density_is_compiled_once(loglik, monkeypatch):
    nutpie = pytest.importorskip("nutpie", reason="needs the extra 'nutpie'")
    compiled = []
    compile_model = nutpie.compile_pymc_model
    monkeypatch.setattr(
        nutpie, "compile_pymc_model", lambda *a, **k: compiled.append(1) or compile_model(*a, **k)
    )
    sampler = CoresetSampler(loglik, np.ones(N))
    for indices, weights in [*CORESETS, *CORESETS]:
        sampler.draw(indices, weights, 100, rng=np.random.default_rng(1))
    assert len(compiled) == 1


def test_hierarchical_draws_agree_with_pm_sample():
    group = RNG.integers(0, 5, N)
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        effect = pm.Deterministic("effect", sd * pm.Normal("z", shape=5))
        pm.Poisson("y", pm.math.exp(effect[group]), observed=RNG.poisson(2.0, N))
    loglik = LogLikelihood(find_observations(model))
    indices, weights = CORESETS[0]
    sampler = CoresetSampler(loglik, np.ones(N))
    draws = [sampler.draw(indices, weights, 1_000, rng=np.random.default_rng(i)) for i in (1, 2)][1]
    reference = pm.sample(
        model=coreset_model(loglik.observations, indices, weights),
        draws=1_000,
        chains=2,
        random_seed=1,
        progressbar=False,
    )["posterior"]
    # Every tenth draw: what remains of the chains' autocorrelation is negligible.
    theirs = reference["sd"].to_numpy().ravel()[::10]
    assert ks_2samp(draws.values["sd"][::10], theirs).pvalue > 1e-3


def test_potentials_are_those_of_all_rows_with_base_weights(loglik):
    weights = np.r_[np.zeros(100), np.ones(200)]
    sampler = CoresetSampler(loglik, weights, sampler="laplace")
    draws = sampler.draw(*CORESETS[0], 50, rng=np.random.default_rng(1))
    values = sampler.loglik(draws)
    total, spread = sampler.moments(draws)
    np.testing.assert_allclose(total, weights @ values)
    np.testing.assert_allclose(sampler.total(draws), total)
    np.testing.assert_allclose(spread[100:], values[100:].std(axis=1))
