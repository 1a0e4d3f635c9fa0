"""Draws of levels and of what they share: their weights, by integration over all variables."""

import pickle
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import build_coreset
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.levels.grouped_density import DrawsInLevels, NormalInLevels
from pymc_coresets.sampling.levels.nested_laplace import find_nested_laplace

COUNTS = np.array([0, 0, 1, 1, 2, 5, 0, 3])
QUIET = {"progressbar": False, "quiet": True, "random_seed": 3}


@dataclass(frozen=True)
class FewCounts:
    """Poisson counts of one row for each level: posteriors of the levels are skewed."""

    counts: np.ndarray

    def __call__(self, shared, local):
        own = local[..., 0]
        by_level = -np.square(own - shared) / 2 + self.counts * own - np.exp(own)
        return -np.square(shared[:, 0]) / 2, by_level

    def of_absent(self, local):
        return 0.0

    def positions(self, shared, local):
        return np.concatenate([shared, local[..., 0]], axis=1)


def integrated():
    """Mean and standard deviation of what is shared, and the mean of each level, on a grid."""
    shared, own = np.linspace(-4, 4, 321), np.linspace(-12, 6, 1_441)
    at = own[None, :, None]
    by_level = -np.square(at - shared[:, None, None]) / 2 + COUNTS * at - np.exp(at)
    each = np.exp(by_level)  # (shared, own, level)
    marginal = np.exp(-np.square(shared) / 2 + np.log(each.sum(axis=1)).sum(axis=1))
    marginal /= marginal.sum()
    mean = marginal @ shared
    sd = np.sqrt(marginal @ np.square(shared - mean))
    of_levels = (each * at).sum(axis=1) / each.sum(axis=1)
    return mean, sd, marginal @ of_levels


@pytest.mark.parametrize("n_pairs", [1, 3])
def test_weights_make_up_for_what_the_approximation_lacks(n_pairs):
    density = FewCounts(COUNTS)
    near = find_nested_laplace(density, np.zeros(1), len(COUNTS), 1)
    n = 200_000
    found = DrawsInLevels(density, near, n_pairs).weighed(n, np.random.default_rng(1))
    x, logp, log_weights = found
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean, sd, of_levels = integrated()
    # Five standard errors; the levels' posterior standard deviations are below 1.
    error = 5 / np.sqrt(1 / np.square(weights).sum())
    assert error < 0.02
    assert weights @ x[:, 0] == pytest.approx(mean, abs=error * sd)
    assert np.sqrt(weights @ np.square(x[:, 0] - mean)) == pytest.approx(sd, abs=error * sd)
    np.testing.assert_allclose(weights @ x[:, 1:], of_levels, atol=error)
    alone, by_level = density(x[:, :1], x[:, 1:, None])
    np.testing.assert_allclose(logp, alone + by_level.sum(axis=1))
    # The modes are not the means, by more than that.
    modes = near.given(np.zeros((1, 1)))[0].ravel()
    assert np.abs(modes - of_levels).max() > 5 * error


def test_a_level_whose_draws_are_mostly_impossible_counts_those_that_are_possible():
    """Effects above zero only, which a normal approximation does not know."""

    @dataclass(frozen=True)
    class Positive(FewCounts):
        def __call__(self, shared, local):
            alone, by_level = super().__call__(shared, local)
            return alone, np.where(local[..., 0] > 0, by_level, np.nan)

    near = find_nested_laplace(FewCounts(COUNTS), np.zeros(1), len(COUNTS), 1)
    draws = DrawsInLevels(Positive(COUNTS), near, 4)
    with np.errstate(invalid="ignore"):
        x, _, log_weights = draws.weighed(100_000, np.random.default_rng(1))
    assert np.isfinite(log_weights).mean() > 0.6
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    shared, own = np.linspace(-4, 4, 321), np.linspace(0.001, 6, 2_000)
    at = own[None, :, None]
    each = np.exp(-np.square(at - shared[:, None, None]) / 2 + COUNTS * at - np.exp(at))
    marginal = np.exp(-np.square(shared) / 2 + np.log(each.sum(axis=1)).sum(axis=1))
    mean = marginal @ shared / marginal.sum()
    # Five standard errors; the standard deviation is below 1.
    assert weights @ x[:, 0] == pytest.approx(mean, abs=5 * np.sqrt(np.square(weights).sum()))
    assert np.square(weights).sum() < 1e-4


def test_more_pairs_are_less_noise():
    density = FewCounts(np.repeat(COUNTS, 30))
    near = find_nested_laplace(density, np.zeros(1), len(density.counts), 1)
    sd = [
        DrawsInLevels(density, near, n).weighed(2_000, np.random.default_rng(1))[2].std()
        for n in (1, 4, 16)
    ]
    assert sd[0] > 1.5 * sd[1] > 1.5 * sd[2]


@pytest.fixture(scope="module")
def slopes():
    """Correlated intercepts and slopes of 40 levels."""
    rng = np.random.default_rng(5)
    level, x = np.repeat(np.arange(40), 100), rng.normal(size=4_000)
    effects = rng.multivariate_normal([1.0, 0.5], [[0.5, 0.2], [0.2, 0.3]], size=40)
    y = effects[level, 0] + effects[level, 1] * x + rng.normal(size=4_000)
    with pm.Model():
        mean, scales = pm.Normal("mean", shape=2), pm.Exponential("scales", 1.0, shape=2)
        z, r = pm.Normal("z", shape=(40, 2)), pm.Uniform("r", -1, 1)
        second = r * z[:, 0] + pm.math.sqrt(1 - r**2) * z[:, 1]
        b = mean + scales * pm.math.stack([z[:, 0], second], axis=1)
        sd = pm.HalfNormal("sd")
        pm.Normal("y", b[level, 0] + b[level, 1] * x, sd, observed=y)
        return build_coreset(method="block_pursuit", random_seed=1, progressbar=False)


def test_levels_are_sampled_without_nuts(slopes):
    assert isinstance(slopes.proposal.around, NormalInLevels)
    idata = slopes.sample(draws=500, **QUIET)
    assert "accepted" in idata["sample_stats"]
    assert slopes.check(idata).reliable
    again = pickle.loads(pickle.dumps(slopes)).sample(draws=500, **QUIET)
    np.testing.assert_array_equal(again["posterior"]["mean"], idata["posterior"]["mean"])


def test_the_log_density_is_that_of_the_model(slopes):
    posterior = slopes._posterior
    draws = DrawsInLevels(posterior.in_levels, slopes.proposal.around.approximation, 1)
    x, logp, _ = draws.weighed(4, np.random.default_rng(1))
    lp, space = slopes.model.compile_logp(), Unconstrained(slopes.model)
    names = slopes.proposal.draws.values
    constrained = posterior.space.constrain(x)
    assert isinstance(constrained, Draws)
    assert set(constrained.values) == set(names)
    expected = [float(lp(space.point(own))) for own in x]
    np.testing.assert_allclose(logp - logp[0], np.array(expected) - expected[0], atol=1e-6)


@pytest.mark.slow
def test_the_posterior_is_that_of_nuts(slopes):
    """With the levels' scale, which a normal approximation has wrong."""
    names = ["mean", "sd", "scales", "r"]
    ours = slopes.sample(draws=1_500, chains=2, **QUIET)["posterior"]
    nuts = slopes.sample(
        draws=500, tune=500, chains=2, cores=1, nuts_sampler="pymc", target_accept=0.95, **QUIET
    )["posterior"]
    for name in names:
        a, b = (np.asarray(d[name]).reshape(np.prod(d[name].shape[:2]), -1) for d in (ours, nuts))
        sd = a.std(axis=0)
        # NUTS has an effective 100 draws at least: five standard errors.
        np.testing.assert_array_less(np.abs(a.mean(axis=0) - b.mean(axis=0)), 0.5 * sd)
        np.testing.assert_array_less(np.abs(np.log(b.std(axis=0) / sd)), 0.35)


def test_the_log_density_leaves_out_what_stands_in_for_absent_variables():
    """A reference level has rows, and no variables of its own."""
    rng = np.random.default_rng(5)
    level = np.repeat(np.arange(13), 100)
    with pm.Model() as model:
        effects = pm.Normal("effects", 0, pm.HalfNormal("scale"), shape=12)
        mean = pm.Normal("mean") + pm.math.concatenate([[0.0], effects])[level]
        mean += pm.Normal("slope") * rng.normal(size=1_300)
        pm.Normal("y", mean, 1.0, observed=rng.normal(size=1_300))
    coreset = build_coreset(model, method="block_pursuit", random_seed=1, progressbar=False)
    posterior = coreset._posterior
    draws = DrawsInLevels(posterior.in_levels, coreset.proposal.around.approximation, 1)
    x, logp, _ = draws.weighed(50, np.random.default_rng(1))
    assert not draws.density.prior.present.all()
    np.testing.assert_allclose(np.ptp(logp - posterior.log_density(x)), 0.0, atol=1e-8)


def test_other_priors_may_tie_the_levels(slopes):
    """They are no levels then, and what was known of them is of no use."""
    model = slopes.full_model
    assert isinstance(slopes.with_model(model).proposal.around, NormalInLevels)
    with model.copy() as tied:
        pm.Potential("tie", -0.5 * ((tied["z"][1:] - tied["z"][:-1]) ** 2).sum())
    tied.free_RVs.sort(key=lambda rv: [v.name for v in model.free_RVs].index(rv.name))
    other = slopes.with_model(tied)
    assert not isinstance(other.proposal.around, NormalInLevels)
    assert "posterior" in other.sample(draws=20, tune=20, chains=2, cores=1, **QUIET).children


def test_levels_are_those_of_the_data_that_the_model_had():
    """Also after draws with them: what was compiled for these does not read the containers."""
    rng = np.random.default_rng(5)
    level = np.repeat(np.arange(30), 50)
    with pm.Model() as model:
        effects = pm.Normal("effects", 0, pm.Data("scale", 1.0), shape=30)
        mean = pm.Normal("mean") + effects[level] + pm.Normal("slope") * rng.normal(size=1_500)
        pm.Normal("y", mean, pm.HalfNormal("sd"), observed=rng.normal(size=1_500))
    coreset = build_coreset(model, method="block_pursuit", random_seed=1, progressbar=False)
    x = coreset._posterior.space.free(coreset.proposal.draws.take(slice(0, 3)))

    def densities():
        _, alone, by_level = coreset._posterior.in_levels.prior.at(x)
        return alone + by_level.sum(axis=1)

    before = densities()
    first = coreset.sample(draws=100, chains=2, **QUIET)["posterior"]["effects"]
    with model:
        pm.set_data({"scale": 0.01})
    np.testing.assert_allclose(densities(), before, rtol=1e-12)
    again = coreset.sample(draws=100, chains=2, **QUIET)["posterior"]["effects"]
    np.testing.assert_allclose(again, first)
