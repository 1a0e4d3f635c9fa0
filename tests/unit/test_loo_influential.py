"""Rows of large influence in the elpd of all rows: found, removed from the posterior, or named."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_stats import compare
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from pymc_coresets import (
    build_coreset,
    open_rows,
)
from tests.refusals import warned

KAPPA, ALPHA, RATE = 0.01, 2.0, 2.0
REMOVED = "removed from the posterior instead"


class Normal(NamedTuple):
    """Normal rows with a conjugate prior of their mean and precision."""

    y: np.ndarray

    @property
    def posterior(self):
        n, mean = len(self.y), self.y.mean()
        kappa, shape = KAPPA + n, ALPHA + n / 2
        rate = RATE + n / 2 * self.y.var() + KAPPA * n * mean**2 / kappa / 2
        return n * mean / kappa, kappa, shape, rate

    def elpds(self):
        """Of each row: the others' predictive distribution is Student's t."""
        mean, kappa, shape, rate = self.posterior
        less = kappa - 1
        centre = (kappa * mean - self.y) / less
        rate = rate - less / kappa / 2 * (self.y - centre) ** 2
        scale = np.sqrt(rate * kappa / less / (shape - 0.5))
        return stats.t.logpdf(self.y, 2 * shape - 1, centre, scale)

    def draws(self, seed, size=(4, 250)):
        mean, kappa, shape, rate = self.posterior
        rng = np.random.default_rng(seed)
        tau = rng.gamma(shape, 1 / rate, size=size)
        mu = rng.normal(mean, 1 / np.sqrt(kappa * tau))
        values = {"mu": (("chain", "draw"), mu), "tau": (("chain", "draw"), tau)}
        return xr.DataTree.from_dict({"posterior": xr.Dataset(values)})

    def coreset(self, **options):
        with pm.Model() as model:
            observed = pm.Data("observed", self.y[:9] if "rows" in options else self.y)
            tau = pm.Gamma("tau", ALPHA, RATE)
            mu = pm.Normal("mu", 0.0, tau=KAPPA * tau)
            pm.Normal("y", mu, tau=tau, observed=observed)
        return build_coreset(model, random_seed=1, progressbar=False, **options)


def normal(outliers, *, n=20_000):
    rng = np.random.default_rng(1)
    y = rng.normal(1.0, 1.0, size=n)
    at = np.sort(rng.choice(n, len(outliers), replace=False))
    y[at] += outliers
    return Normal(y), at


@pytest.fixture(
    scope="module",
    params=[(40.0, 40.0, -40.0), pytest.param((100.0, 100.0), marks=pytest.mark.slow)],
    ids=len,
)
def with_outliers(request):
    data, at = normal(request.param)
    return data, at, data.coreset()


# -- removed from the posterior --------------------------------------------------------------------


def test_the_elpd_of_outliers_is_exact_and_their_positions_are_told(with_outliers):
    data, at, coreset = with_outliers
    with warned(f"{len(at)} of the", REMOVED) as caught:
        found = coreset.loo(data.draws(1), random_seed=1)
    exact = data.elpds()
    assert all(f"observation {i} (" in str(caught[0].message) for i in at)
    assert_allclose(found.elpd_i[at], exact[at], atol=0.02)
    assert abs(found.elpd - exact.sum()) < 3 * np.hypot(found.mcse, found.subsampling_se)
    of_data = np.sqrt(len(exact)) * exact.std()
    assert_allclose(found.se, of_data, rtol=0.01)
    assert not found.warning
    outlying = np.isin(found.pareto_k["position"], at)
    assert (found.influence_pareto_k[outlying] > 1.5).all()
    assert (found.pareto_k[outlying] < 0.5).all()


@pytest.mark.slow
def test_stated_errors_cover_the_elpd_beside_outliers():
    """Of 25 intervals of 95 %, at least 20 contain the value: fewer have a probability of 0.001."""
    data, _ = normal([40.0, 40.0, -40.0], n=4_000)
    truth, errors, coreset = data.elpds().sum(), [], data.coreset()
    for seed in range(25):
        with warned(REMOVED):
            found = coreset.loo(data.draws(seed, size=(2, 200)), observations=30, random_seed=seed)
        errors.append((found.elpd - truth) / np.hypot(found.mcse, found.subsampling_se))
    assert np.count_nonzero(np.abs(errors) < 1.96) >= 20
    assert 0.3 < np.mean(np.square(errors)) < 2.0  # the mean of 25 is known to 28 %


def test_rows_elsewhere_are_removed_like_rows_in_memory():
    data, at = normal([40.0, -30.0], n=2_000)
    chunks = [{"observed": part} for part in np.split(data.y, [300, 1_100])]
    found = []
    for coreset in (data.coreset(), data.coreset(rows=open_rows(chunks))):
        with warned(REMOVED):
            found.append(coreset.loo(data.draws(1), observations=100, random_seed=1))
    for name in ("elpd", "se", "mcse", "subsampling_se", "elpd_i", "elpd_loo_approx"):
        assert_allclose(*(getattr(one, name) for one in found), rtol=1e-6)
    positions = [one.pareto_k["position"].to_numpy() for one in found]
    assert_array_equal(*positions)
    assert np.isin(at, positions[0]).all()


def test_a_leverage_row_of_a_regression_with_many_coefficients():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1_500, 60))
    y = rng.normal(x @ rng.normal(size=60), 1.3)
    x[70], y[70] = 5 * x[70], y[70] + 50
    with pm.Model():
        pm.Normal("y", x @ pm.Normal("beta", 0, 2, shape=60), 1.3, observed=y)
        coreset = build_coreset(random_seed=1, progressbar=False)
    covariance = np.linalg.inv(np.eye(60) / 4 + x.T @ x / 1.69)
    mean = covariance @ x.T @ y / 1.69
    z = rng.normal(size=(4, 500, 60)) @ np.linalg.cholesky(covariance).T
    draws = xr.Dataset({"beta": (("chain", "draw", "k"), mean + z)})
    with warned("observation 70", REMOVED):
        found = coreset.loo(
            xr.DataTree.from_dict({"posterior": draws}), observations=20, random_seed=1
        )
    leverage = x[70] @ covariance @ x[70] / 1.69
    error, variance = (y[70] - x[70] @ mean) / (1 - leverage), 1.69 / (1 - leverage)
    assert_allclose(found.elpd_i[70], stats.norm.logpdf(error, 0, np.sqrt(variance)), atol=0.1)


def test_a_count_that_a_log_linear_rate_does_not_explain():
    """By sums over a grid, since the posterior without the row is skewed."""
    rng = np.random.default_rng(2)
    y = rng.poisson(0.05, size=400)
    y[100] = 60
    with pm.Model():
        pm.Poisson("y", pm.math.exp(pm.Normal("b", 0, 3)), observed=y)
        coreset = build_coreset(random_seed=1, progressbar=False)
    grid = np.linspace(-8, 2, 20_001)

    def log_mass(rows):
        heights = stats.norm.logpdf(grid, 0, 3)
        for value, count in zip(*np.unique(rows, return_counts=True), strict=True):
            heights = heights + count * stats.poisson.logpmf(value, np.exp(grid))
        return np.logaddexp.reduce(heights)

    idata = coreset.sample(random_seed=1, progressbar=False)
    with warned("observation 100", REMOVED):
        found = coreset.loo(idata, random_seed=1)
    exact = log_mass(y) - log_mass(np.delete(y, 100))
    assert_allclose(found.elpd_i[100], exact, atol=0.05)


# -- not removed -----------------------------------------------------------------------------------


def test_more_rows_than_can_be_removed_are_named_and_the_error_is_infinite():
    data, at = normal(np.repeat([60.0, -60.0], 6))
    with warned("12 of", "relied on"):
        found = data.coreset().loo(data.draws(1), observations=20, random_seed=1)
    assert np.isinf(found.mcse)
    assert found.warning
    assert np.isin(at, found.pareto_k["position"]).all()


# -- units -----------------------------------------------------------------------------------------

SHOP = np.repeat(np.arange(60), 3)
NOISE_SD, SPREAD, PRIOR = 0.7, 1.2, 3.0


def of_shops(y, *, integrate=None, shop=SHOP):
    with pm.Model(coords={"shop": np.arange(shop.max() + 1)}) as model:
        mean, level = pm.Normal("mean", 0, PRIOR), pm.Data("in_shop", shop)
        effect = pm.Normal("effect", mean, SPREAD, dims="shop")
        pm.Normal("y", effect[level], NOISE_SD, observed=y)
    return build_coreset(model, integrate=integrate, random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def sales():
    rng = np.random.default_rng(3)
    y = rng.normal(1 + rng.normal(0, SPREAD, size=60)[SHOP], NOISE_SD)
    y[SHOP == 20] += 30.0
    return y


@pytest.fixture(scope="module")
def by_shop(sales):
    coreset = of_shops(sales, integrate="effect")
    idata = coreset.sample(random_seed=1, progressbar=False)
    with warned("observation 20", REMOVED):
        return coreset.loo(idata, random_seed=1)


def test_a_unit_is_removed_as_a_row_is(sales, by_shop):
    """Given the mean of all shops, the three rows of a shop are jointly normal."""
    covariance = NOISE_SD**2 * np.eye(3) + SPREAD**2
    rows = sales.reshape(60, 3)
    weights = np.linalg.solve(covariance, np.ones(3))
    others = np.delete(rows, 20, axis=0)
    precision = 1 / PRIOR**2 + len(others) * weights.sum()
    mean = (others @ weights).sum() / precision
    exact = stats.multivariate_normal.logpdf(rows[20], np.full(3, mean), covariance + 1 / precision)
    assert_allclose(by_shop.elpd_i[20], exact, atol=0.05)


def test_units_are_compared_with_the_same_units_alone(by_shop):
    """A result of rows is refused, also if there are as many; and so are units of other rows."""
    assert list(compare({"a": by_shop, "b": by_shop}).index) == ["a", "b"]
    others = replace(by_shop, units="60 units of several rows (grouping 00000000)")
    with pytest.raises(ValueError, match=r"incompatible .*units of several rows \(grouping"):
        compare({"a": by_shop, "b": others})
    data, _ = normal([], n=60)
    rows = data.coreset().loo(data.draws(1), random_seed=1)
    with pytest.raises(ValueError, match=r"incompatible .*\['loo', 'loo of 60 units of several"):
        compare({"rows": rows, "units": by_shop})


def test_rows_of_large_influence_are_left_out_whatever_the_sample():
    data, _ = normal([6.0, -7.0], n=3_000)
    coreset = data.coreset()
    found = [coreset.loo(data.draws(1), observations=30, random_seed=seed) for seed in range(3)]
    extreme = np.argsort(-np.abs(data.y - data.y.mean()))[:3]
    for one in found:
        assert one.subsample_size == 30
        assert np.isin(extreme, one.pareto_k["position"]).all()
        assert_allclose(one.elpd_i[extreme], one.elpd_loo_approx[extreme], rtol=1e-12)
