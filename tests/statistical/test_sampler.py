"""Draws of changing coresets: right by closed forms, and compiled once."""

import signal
import time
from _thread import interrupt_main
from functools import cache, partial
from threading import Timer

import numpy as np
import pymc as pm
import pytest
from pytensor.compile.maker import FunctionMaker
from scipy.stats import gamma, ks_2samp, kstest

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.sampling import nuts
from pymc_coresets.sampling.laplace import LaplaceApproximation
from pymc_coresets.sampling.nuts import NutpieNuts, PyMCNuts
from pymc_coresets.sampling.reuse import ReusingSampler
from pymc_coresets.sampling.sampler import CoresetSampler

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


def assert_right(draws, indices, weights):
    """Five standard errors of independent draws; NUTS draws of a normal are about as good."""
    beta = draws.values["beta"]
    mean, covariance = posterior(indices, weights)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (beta - mean).T)
    assert np.abs(whitened.mean(axis=1)).max() < 5 / np.sqrt(len(beta))
    assert np.abs(np.cov(whitened) - np.eye(D)).max() < 5 * np.sqrt(2 / len(beta))


def nuts_sampler(loglik, kind):
    if kind is NutpieNuts:
        pytest.importorskip("nutpie", reason="needs the extra 'nutpie'")
    sampler = CoresetSampler(loglik, np.ones(N), sampler="nuts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pymc_coresets.sampling.sampler.find_spec", lambda name: kind is not PyMCNuts or None
        )
        assert isinstance(sampler._nuts, kind)
    return sampler


@pytest.fixture(scope="module")
def kept(loglik):
    """A sampler of each kind, kept from test to test as a construction keeps it."""
    return cache(partial(nuts_sampler, loglik))


@pytest.fixture(scope="module", params=["auto", "laplace", NutpieNuts, PyMCNuts])
def sampler(request, loglik, kept):
    if isinstance(request.param, str):
        return CoresetSampler(loglik, np.ones(N), sampler=request.param)
    return kept(request.param)


def test_draws_of_every_coreset_are_right(sampler):
    for i, coreset in enumerate([*CORESETS, *CORESETS]):
        assert_right(sampler.draw(*coreset, 2_000, rng=np.random.default_rng(i)), *coreset)
    assert sampler.counts["n_failed_starts"] == 0


@pytest.mark.parametrize("kind", [NutpieNuts, PyMCNuts])
def test_nothing_is_compiled_after_the_first_run(kept, kind, monkeypatch):
    sampler = kept(kind)
    for _ in range(2):  # Laplace's draws, and the first run of NUTS
        sampler.draw(*CORESETS[0], 100, rng=np.random.default_rng(1))
    compiled = []
    monkeypatch.setattr(FunctionMaker, "create", lambda *a, **k: compiled.append(1))
    for coreset in CORESETS:
        sampler.draw(*coreset, 100, rng=np.random.default_rng(1))
    assert compiled == []


def test_a_call_of_nutpie_takes_less_than_half_a_second():
    pytest.importorskip("nutpie", reason="needs the extra 'nutpie'")
    x = RNG.normal(size=(1_000, 10))
    with pm.Model() as model:
        pm.Normal("y", x @ pm.Normal("beta", shape=10), observed=x.sum(axis=1))
    loglik = LogLikelihood(find_observations(model))
    sampler = CoresetSampler(loglik, np.ones(1_000), sampler="nuts")
    coreset, rng = (np.arange(200), np.full(200, 5.0)), np.random.default_rng(1)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        sampler.draw(*coreset, 200, rng=rng)
        seconds.append(time.perf_counter() - start)
    assert min(seconds[2:]) < 0.5


def test_a_failed_warm_start_is_counted_and_begun_anew(loglik):
    sampler, rng = nuts_sampler(loglik, PyMCNuts), np.random.default_rng(1)
    for _ in range(2):
        sampler.draw(*CORESETS[0], 100, rng=rng)
    broken = nuts.Run(
        draws=sampler._last.draws,
        positions=np.full_like(sampler._last.positions, np.nan),
        step_size=sampler._last.step_size,
        n_divergences=0,
    )
    sampler._last = broken
    assert_right(sampler.draw(*CORESETS[1], 1_000, rng=rng), *CORESETS[1])
    assert sampler.counts["n_failed_starts"] == 1


def test_discrete_variables_are_named():
    with pm.Model() as model:
        flip = pm.Bernoulli("flip", 0.5)
        pm.Normal("y", flip, observed=np.zeros(20))
    sampler = CoresetSampler(LogLikelihood(find_observations(model)), np.ones(20))
    with pytest.raises(SamplingError, match="'flip'"):
        sampler.draw(np.arange(3), np.ones(3), 100, rng=np.random.default_rng(1))


def test_reserve_answers_for_near_coresets_and_is_right_for_all(loglik):
    sampler = ReusingSampler(CoresetSampler(loglik, np.ones(N), sampler="laplace"))
    indices, weights = CORESETS[0]
    rng = np.random.default_rng(1)
    for i in range(8):
        coreset = indices, weights * (1 + 0.02 * i)
        assert_right(sampler.draw(*coreset, 500, rng=rng), *coreset)
    assert sampler.n_reused == 7
    for coreset in CORESETS[1:]:  # too far to re-weight
        assert_right(sampler.draw(*coreset, 500, rng=rng), *coreset)
    assert sampler.counts == {
        "n_sampler_runs": 3,
        "n_sampler_draws": 6_000,
        "n_corrected_laplace": 0,
        "n_divergences": 0,
        "n_failed_starts": 0,
        "n_not_finite": 0,
        "n_reused": 7,
    }


def test_a_reserve_is_large_enough_to_be_judged(loglik):
    sampler = ReusingSampler(CoresetSampler(loglik, np.ones(N), sampler="laplace"))
    indices, weights = CORESETS[0]
    for factor in (1.0, 1.01):
        draws = sampler.draw(indices, factor * weights, 2, rng=np.random.default_rng(1))
        assert draws.n_draws == 2
    assert sampler.n_reused == 1


@pytest.fixture(scope="module")
def hierarchy():
    group = RNG.integers(0, 5, N)
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        effect = pm.Deterministic("effect", sd * pm.Normal("z", shape=5))
        pm.Poisson("y", pm.math.exp(effect[group]), observed=RNG.poisson(2.0, N))
    loglik = LogLikelihood(find_observations(model))
    reference = pm.sample(
        model=coreset_model(loglik.observations, *CORESETS[0]),
        draws=1_000,
        chains=2,
        random_seed=1,
        progressbar=False,
    )
    return loglik, reference["posterior"]["sd"].to_numpy().ravel()[::10]


@pytest.mark.parametrize("kind", ["auto", "nuts"])
def test_hierarchical_draws_agree_with_pm_sample(hierarchy, kind):
    loglik, theirs = hierarchy
    sampler = CoresetSampler(loglik, np.ones(N), sampler=kind)
    for i in (1, 2):  # the first draws may be a coarse start's
        draws = sampler.draw(*CORESETS[0], 1_000, rng=np.random.default_rng(i))
    # Every tenth draw: what remains of the chains' autocorrelation is negligible.
    assert ks_2samp(draws.values["sd"][::10], theirs).pvalue > 1e-3


def test_laplace_draws_are_corrected_for_skewness():
    """A rate with few events: its logarithm is skewed, by a gamma distribution in closed form."""
    y = np.array([1, 0, 2, 1])
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0), observed=y)
    loglik = LogLikelihood(find_observations(model))
    sampler = CoresetSampler(loglik, np.ones(4), sampler="auto")
    everything = np.arange(4), np.ones(4)
    draws = sampler.draw(*everything, 2_000, rng=np.random.default_rng(1))
    assert sampler.n_corrected == 1
    # Half of the draws are sure to count.
    exact = gamma(2 + y.sum(), scale=1 / (1 + len(y)))
    assert draws.values["rate"].mean() == pytest.approx(
        exact.mean(), abs=5 * exact.std() / 1_000**0.5
    )
    assert kstest(draws.values["rate"][:500], exact.cdf).pvalue > 1e-3
    raw = LaplaceApproximation.of(sampler._space).draw(2_000, rng=np.random.default_rng(1))
    assert kstest(raw.values["rate"], exact.cdf).pvalue < 1e-4


def test_heavy_tails_are_left_to_nuts():
    with pm.Model() as model:
        mu = pm.StudentT("mu", nu=1)
        pm.Normal("y", mu, 1e3, observed=np.zeros(20))
    coarse = CoresetSampler(LogLikelihood(find_observations(model)), np.ones(20))
    exact = coarse.with_sampler("auto", coarse_start=False)
    for sampler, by_nuts in ((coarse, False), (exact, True)):
        sampler.draw(np.arange(3), np.ones(3), 1_000, rng=np.random.default_rng(1))
        assert (sampler._last is not None) == by_nuts
    coarse.draw(np.arange(3), np.ones(3), 1_000, rng=np.random.default_rng(2))
    assert coarse._last is not None
    assert coarse.n_corrected == exact.n_corrected == 0


@pytest.fixture
def ctrl_c():
    """Interrupts as Ctrl-C does, where the process ignores that too, as in the background."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield interrupt_main
    signal.signal(signal.SIGINT, usual)


@pytest.mark.parametrize("kind", [NutpieNuts, PyMCNuts])
def test_ctrl_c_is_not_taken_for_a_short_run(kept, kind, ctrl_c):
    sampler = kept(kind)
    for i in range(2):
        sampler.draw(*CORESETS[0], 100, rng=np.random.default_rng(i))
    timer = Timer(0.5, ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        sampler.draw(*CORESETS[0], 300_000, rng=np.random.default_rng(3))
    timer.join()
    assert sampler.n_failed_starts == 0
    assert_right(sampler.draw(*CORESETS[1], 1_000, rng=np.random.default_rng(4)), *CORESETS[1])


def test_draws_beyond_the_likelihood_are_counted():
    with pm.Model() as model:
        pm.Uniform("y", 0, pm.Exponential("end"), observed=np.linspace(0.1, 2.0, 20))
    loglik = LogLikelihood(find_observations(model))
    sampler = CoresetSampler(loglik, np.ones(20))
    draws = Draws({"end": np.array([1.5, 2.5, 3.0])})
    total, _ = sampler.moments(draws)
    np.testing.assert_allclose(total[1:], -20 * np.log([2.5, 3.0]))
    assert total[0] == -np.inf
    assert sampler.counts["n_not_finite"] == 1


def test_potentials_are_those_of_all_rows_with_base_weights(loglik):
    weights = np.r_[np.zeros(100), np.ones(200)]
    sampler = CoresetSampler(loglik, weights, sampler="laplace")
    draws = sampler.draw(*CORESETS[0], 50, rng=np.random.default_rng(1))
    values = sampler.loglik(draws)
    total, spread = sampler.moments(draws)
    np.testing.assert_allclose(total, weights @ values)
    np.testing.assert_allclose(sampler.total(draws), total)
    np.testing.assert_allclose(spread[100:], values[100:].std(axis=1))
