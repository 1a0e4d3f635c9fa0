"""Posteriors of several modes, where they are known; and no false alarm where there is one."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from benchmarks.reliability_models import MODELS
from pymc_coresets import build_coreset, open_rows
from tests.derived import proposed
from tests.refusals import warned

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(17)
X, TIMES = RNG.normal(size=5_000), RNG.uniform(0, 10, 5_000)
PRODUCT = 1.5 * X + RNG.normal(size=5_000)
WAVE = np.sin(3.3 * TIMES) + 0.5 * RNG.normal(size=5_000)
RIGHT = 10.0 + 0.5 * RNG.normal(size=2_000)
CLUSTERS = np.concatenate([-RIGHT, RIGHT])  # which say nothing of the sign
QUIET = {"random_seed": 1, "progressbar": False}


def grouped(centres):
    rng = np.random.default_rng(18)
    return rng.normal(rng.choice(centres, size=9_000), 1.0)


def components(n_components):
    y = grouped([-2.0, 2.0, 6.0][:n_components])
    with pm.Model() as model:
        begin = np.linspace(-1.0, 1.0, n_components)
        mu = pm.Normal("mu", 0, 5, shape=n_components, initval=begin)
        w = pm.Dirichlet("w", np.ones(n_components))
        pm.Mixture("y", w, pm.Normal.dist(mu, 1.0, shape=(n_components,)), observed=y)
    return model


def built(model, **options):
    with warned("modes: at"):
        return build_coreset(model, **QUIET | options)


@pytest.mark.filterwarnings("ignore:1 rows for 2 free dimensions")
@pytest.mark.filterwarnings("ignore:.* of the coresets' posteriors diverged")  # along the ridges
def test_a_product_may_change_both_signs():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a * b * X, 1.0, observed=PRODUCT)
    coreset = built(model)
    np.testing.assert_allclose(coreset.modes.mass, 0.5, atol=0.01)
    assert coreset.modes.images[0] == ""
    assert set(coreset.modes.images[1].rpartition("sign of ")[2].split(", ")) == {"a", "b"}
    assert coreset.certificate.modes.unseen == []
    idata = coreset.sample(random_seed=1, progressbar=False, quiet=True)
    assert 0.2 < (idata["posterior"]["a"] > 0).mean() < 0.8  # by chains, which may stay in a mode


@pytest.mark.parametrize(("n_components", "n_modes"), [(2, 2), (3, 6)])
def test_components_change_places(n_components, n_modes):
    coreset = built(components(n_components))
    assert len(coreset.modes) == n_modes
    np.testing.assert_allclose(coreset.modes.mass, 1 / n_modes, atol=0.01)
    assert all("of mu, w exchanged" in image for image in coreset.modes.images[1:])
    assert coreset.certificate.reliable


def test_components_change_places_in_rows_of_chunks():
    y = grouped([-2.0, 2.0])
    with pm.Model() as model:
        seen = pm.Data("seen", y[:100])
        mu = pm.Normal("mu", 0, 5, shape=2, initval=[-1.0, 1.0])
        w = pm.Dirichlet("w", np.ones(2))
        pm.Mixture("y", w, pm.Normal.dist(mu, 1.0, shape=(2,)), observed=seen)
    coreset = built(model, rows=open_rows({"seen": y}))
    np.testing.assert_allclose(coreset.modes.mass, 0.5, atol=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_a_frequency_is_found_from_an_initial_point_that_leads_elsewhere(seed):
    with pm.Model() as model:
        w, s = pm.Uniform("w", 0, 10), pm.HalfNormal("s")
        pm.Normal("y", pm.math.sin(w * TIMES), s, observed=WAVE)
    coreset = build_coreset(model, **QUIET | {"random_seed": seed})
    assert coreset.modes.positions["w"].values == pytest.approx([3.3], abs=0.01)
    assert coreset.certificate.reliable


def test_two_clusters_far_from_each_other():
    """The mass on either side, by integration: Cauchy errors leave a mode at each cluster."""
    with pm.Model() as model:
        pm.StudentT("y", nu=1, mu=pm.Normal("mu", 10, 20), sigma=1.0, observed=CLUSTERS)
    grid = np.concatenate([np.linspace(-11, -9, 2_001), np.linspace(9, 11, 2_001)])
    logp = stats.norm.logpdf(grid, 10, 20)
    logp += [stats.cauchy.logpdf(CLUSTERS, at, 1.0).sum() for at in grid]
    density = np.exp(logp - logp.max())
    right = density[grid > 0].sum() / density.sum()
    assert 0.6 < right < 0.65
    modes = built(model).modes
    found = modes.mass[modes.positions["mu"].to_numpy() > 0].sum()
    assert found == pytest.approx(right, abs=0.01)


def exchangeable_means(k):
    y = np.random.default_rng(3).normal(np.repeat(3.0 * np.arange(k), 6_000 // k), 0.7)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=k, initval=np.linspace(-1.0, 1.0, k))
        pm.Mixture("y", np.ones(k) / k, pm.Normal.dist(mu, 0.7, shape=(k,)), observed=y)
    return model


@pytest.mark.parametrize(("k", "n_modes"), [(4, 24), (5, 120)])
def test_draws_visit_all_orders_of_exchangeable_means(k, n_modes):
    """Each mean has the same posterior, of which each component holds an equal share."""
    coreset = built(exchangeable_means(k))
    assert len(coreset.modes) == n_modes
    check = coreset.check(idata := coreset.sample(random_seed=1, progressbar=False, quiet=True))
    assert check.verdict.text.startswith("Reliable: ")
    draws = idata["posterior"]["mu"].to_numpy().reshape(-1, k)
    error = 4 * draws.std(axis=0) / np.sqrt(check.ess_bulk)
    assert (np.abs(draws.mean(axis=0) - 1.5 * (k - 1)) < error + 0.02).all()
    shares = [(np.abs(draws - 3.0 * i) < 1.5).mean(axis=0) for i in range(k)]
    np.testing.assert_allclose(shares, 1 / k, atol=4 * np.sqrt(1 / k / check.ess_bulk))


def test_draws_of_a_phase_have_the_spread_of_its_prior():
    with pm.Model() as model:
        phase, size = pm.Normal("phase", 0, 20), pm.HalfNormal("size", 2)
        y = 1.3 * np.sin(2 * TIMES + 0.5) + RNG.normal(size=len(TIMES))
        pm.Normal("y", size * pm.math.sin(2 * TIMES + phase), 1.0, observed=y)
    coreset = built(model)
    check = coreset.check(idata := coreset.sample(random_seed=1, progressbar=False, quiet=True))
    assert check.verdict.text.startswith("Reliable: ")
    phases = idata["posterior"]["phase"].to_numpy()
    error = 20 / np.sqrt(check.ess_bulk)
    assert phases.mean() == pytest.approx(0.0, abs=4 * error)
    assert phases.std() == pytest.approx(20.0, abs=4 * error)


@pytest.mark.parametrize("shift", [0.0, 1e-4])
@pytest.mark.parametrize("seed", range(2))
def test_clusters_far_apart_under_a_flat_prior(seed, shift):
    """Their masses by integration; those of the rows differ by little."""
    y = np.concatenate([-2 * RIGHT, 2 * RIGHT + shift])
    with pm.Model() as model:
        pm.StudentT("y", nu=1, mu=pm.Flat("mu", initval=-19.0), sigma=1.0, observed=y)
    near = np.linspace(19, 21, 2_001)
    logp = np.array(
        [[stats.cauchy.logpdf(y, at, 1.0).sum() for at in way * near] for way in (-1, 1)]
    )
    mass = np.exp(logp - logp.max()).sum(axis=1)
    modes = built(model, random_seed=seed).modes
    found = modes.mass[modes.positions["mu"].to_numpy() > 0].sum()
    assert found == pytest.approx(mass[1] / mass.sum(), abs=0.01)


OF_UNITS = {name for name in MODELS if "units" in name} | {"an effect of each row"}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in OF_UNITS])
def test_no_false_alarm(name):
    with pm.Model() as model:
        MODELS[name](np.random.default_rng(3), 20_000)
    n_dims = sum(v.size for v in model.initial_point(random_seed=1).values())
    found = proposed(model, 100, start_size=max(1_000, 50 * n_dims))
    assert (found is None) == (name == "a funnel")  # which has no mode
    assert found is None or (len(found.modes) == 1 and found.modes.is_complete)


def test_many_small_modes_are_not_overlooked_together():
    """A second mode of .2 to .5 % of the mass for each of ten rare levels, by a grid.

    No two of them are images of each other, and each could be left out alone.
    """
    rng, n_levels = np.random.default_rng(1), 11
    level, y = np.zeros(4_000, int), rng.standard_cauchy(4_000)
    for k in range(1, n_levels):
        rows = slice(5 * k, 5 * k + 5)
        level[rows] = k
        y[rows] = np.r_[rng.normal(0, 0.3, 3), rng.normal(rng.uniform(17, 23), 0.3, 2)]
        y[rows] += rng.normal()
    t = np.linspace(-30.0, 50.0, 16_001)
    logs = [
        stats.cauchy.logpdf(y[level == k][:, None], t).sum(axis=0) - (t / 30) ** 2 / 2
        for k in range(1, n_levels)
    ]
    exact = np.exp(logs - np.max(logs, axis=1)[:, None])
    exact /= exact.sum(axis=1, keepdims=True)
    masses = exact[:, t > 9].sum(axis=1)
    assert masses.max() < 0.01
    assert masses.sum() > 0.02
    with pm.Model() as model:
        a = pm.Normal("a", 0, 30, shape=n_levels)
        pm.StudentT("y", nu=1, mu=a[level], sigma=1.0, observed=y)
    coreset = built(model)
    found = coreset.modes.positions["a"].to_numpy()[:, 1:] > 9
    assert (found.sum(axis=1) <= 1).all()  # each alone
    assert masses[~found.any(axis=0)].sum() < 0.015  # by Laplace's approximation, 1 % at most
    idata = coreset.sample(random_seed=1, progressbar=False, quiet=True)
    if coreset.check(idata).reliable:
        draws = idata["posterior"]["a"].to_numpy()[..., 1:]
        lacking = masses - (draws > 9).mean(axis=(0, 1))
        assert lacking.sum() < 0.015
