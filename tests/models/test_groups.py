"""PyMC models of many groups: coresets of units, of rows, and of groups that are one row each."""

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform.conditioning import remove_value_transforms
from scipy import stats

from pymc_coresets import build_coreset
from tests.builds import QUIET, read
from tests.modes import PLAIN_MODE


def visits(n_shops, n_each):
    """Visits of shops, with an effect of each and an unknown scale of the effects."""
    rng = np.random.default_rng(41)
    shop = rng.permutation(np.repeat(np.arange(n_shops), n_each))
    x = rng.normal(size=(len(shop), 2))
    effect = rng.normal(1.0, 0.5, n_shops)
    observed = rng.poisson(np.exp(x @ np.array([0.3, -0.2]) + effect[shop]))
    with pm.Model(coords={"shop": np.arange(n_shops)}) as model:
        slopes = pm.Normal("slopes", 0, 1, shape=2)
        mean, sd = pm.Normal("mean", 0, 2), pm.HalfNormal("sd", 1)
        offset = pm.Normal("offset", dims="shop")
        eta = x @ slopes + (mean + sd * offset)[shop]
        pm.Poisson("visits", pm.math.exp(eta), observed=observed)
    return model


def test_many_small_groups_are_units_by_themselves():
    """Six rows for each of 304 free dimensions would be too few for any coreset of rows."""
    coreset = build_coreset(visits(300, 6), **QUIET)
    units = coreset.loglikelihood.observations
    assert units.integrated == ("offset",)
    assert coreset.size < 30
    assert coreset.n_observations == 300
    draws = coreset.sample(draws=250, chains=2, random_seed=1)
    assert draws["posterior"]["offset"].sizes["shop"] == 300
    assert coreset.check(draws).verdict.text.startswith("Reliable:")


@pytest.mark.slow
def test_without_units_many_dimensions_are_those_of_a_quadratic():
    model = visits(260, 40)
    coreset = build_coreset(model, integrate=False, **QUIET)
    assert coreset.quadratic is not None
    assert coreset.method == "control_variates"
    assert coreset.certificate.verdict.text.startswith("Reliable around this mode")


LEVELS, LEVEL = 30, np.arange(600) % 30
Y = np.random.default_rng(1).normal(size=600)


N_DAYS = 4


def beta_binomial():
    pm.BetaBinomial("y", pm.Gamma("a", 2, 1), pm.Gamma("b", 2, 1), 9, observed=LEVEL[:LEVELS] % 9)


def negative_binomial():
    mean, evenness = pm.LogNormal("mean"), pm.Gamma("evenness", 2, 1)
    pm.NegativeBinomial("y", mean, evenness, observed=LEVEL[:LEVELS] % 9)


def linear_mixed():
    """An effect of each group on its four days, integrated out: a covariance within the group."""
    noise, spread = pm.HalfNormal("noise"), pm.HalfNormal("spread")
    days = np.arange(N_DAYS) / N_DAYS
    cov = noise**2 * np.eye(N_DAYS) + spread**2
    mean = pm.Normal("mean") + pm.Normal("slope") * days
    pm.MvNormal("y", mean, cov=cov, observed=Y[: LEVELS * N_DAYS].reshape(LEVELS, N_DAYS))


def sums_of_rows():
    """Any density of a group: here, that of normal rows with an effect that is integrated out."""
    noise, spread, mean = pm.HalfNormal("noise"), pm.HalfNormal("spread"), pm.Normal("mean")
    n, total, squares = (np.bincount(LEVEL, weights) for weights in (None, Y, Y**2))
    around = squares - 2 * mean * total + n * mean**2
    shared = (total - n * mean) ** 2 / (n + (noise / spread) ** 2)
    logdet = 2 * (n - 1) * pm.math.log(noise) + pm.math.log(noise**2 + n * spread**2)
    pm.Potential("y", -(logdet + (around - shared) / noise**2) / 2)


@pytest.mark.parametrize(
    "build",
    [
        beta_binomial,
        pytest.param(negative_binomial, marks=pytest.mark.slow),
        linear_mixed,
        sums_of_rows,
    ],
)
def test_a_group_that_is_integrated_out_is_one_row(build):
    with pm.Model() as model:
        build()
    loglik = read(model, observed="y", collapse=False)
    assert loglik.n_rows == LEVELS
    draws = {name: np.array([0.7, 1.3]) for name in loglik.shapes}
    by_group = loglik.matrix(draws)
    plain = remove_value_transforms(model)
    logp = plain.compile_logp(vars=plain["y"], sum=False, mode=PLAIN_MODE)
    for s, values in enumerate(np.stack([*draws.values()], axis=1)):
        [expected] = logp(dict(zip(draws, values, strict=True)))
        np.testing.assert_allclose(by_group[:, s], expected, rtol=1e-9)


def test_dim_names_the_groups_whose_terms_stay_together():
    """A group's four days and its count are one row, whose density SciPy knows."""
    rng = np.random.default_rng(5)
    days, counts = rng.normal(size=(LEVELS, N_DAYS)), rng.poisson(2.0, LEVELS)
    with pm.Model(coords={"group": range(LEVELS), "day": range(N_DAYS)}) as model:
        mean, spread = pm.Normal("mean"), pm.HalfNormal("spread")
        cov = np.eye(N_DAYS) + spread**2
        pm.MvNormal("days", mean, cov=cov, observed=days, dims=("group", "day"))
        pm.Poisson("count", pm.math.exp(mean), observed=counts, dims="group")
    coreset = build_coreset(model, dim="group", method="uniform", size=20, **QUIET)
    assert coreset.n_observations == LEVELS
    assert tuple(coreset.model.named_vars_to_dims["coreset_weights"]) == ("group",)
    assert coreset.model.coords["group"] == tuple(coreset.indices)
    at = {"mean": np.array([0.3]), "spread": np.array([0.8])}
    [found] = coreset.loglikelihood.matrix(at).T
    of_days = stats.multivariate_normal(np.full(N_DAYS, 0.3), np.eye(N_DAYS) + 0.8**2).logpdf(days)
    of_count = stats.poisson(np.exp(0.3)).logpmf(counts)
    np.testing.assert_allclose(found, of_days + of_count, rtol=1e-9)
    small = remove_value_transforms(coreset.model)
    weighted = small.compile_logp(vars=small.potentials, mode=PLAIN_MODE)
    point = {name: values[0] for name, values in at.items()}
    np.testing.assert_allclose(weighted(point), coreset.weights @ found[coreset.indices])
