"""Coresets of whole units: what was integrated out is drawn again, saved, judged, and predicted."""

import pickle

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import logsumexp
from scipy.stats import norm

from pymc_coresets import Coreset, InvalidOptionError, OutOfTimeError, build_coreset
from tests.models.reference import density
from tests.refusals import refused

N_LEVELS = 400
_rng = np.random.default_rng(1)
LEVEL = np.repeat(np.arange(N_LEVELS), _rng.integers(1, 5, size=N_LEVELS))
_rng.shuffle(LEVEL)
LEVEL[LEVEL == 7] = 8  # the seventh has no rows
X = _rng.normal(size=LEVEL.size)
Y = 0.5 * X + _rng.normal(1.0, 0.8, size=N_LEVELS)[LEVEL] + 0.6 * _rng.normal(size=LEVEL.size)
USERS = [f"u{i}" for i in range(N_LEVELS)]


def model_of(*, width: float = 1.0) -> pm.Model:
    with pm.Model(coords={"user": USERS}) as model:
        level, x = pm.Data("level_of", LEVEL), pm.Data("x", X)
        mean, sd, noise = pm.Normal("mean", 0, width), pm.HalfNormal("sd"), pm.HalfNormal("noise")
        z = pm.Normal("z", mean, sd, dims="user")
        pm.Deterministic("exp_z", pm.math.exp(z), dims="user")
        pm.Normal("y", pm.Normal("b") * x + z[level], noise, observed=pm.Data("seen", Y))
    return model


@pytest.fixture(scope="module")
def coreset() -> Coreset:
    return build_coreset(model_of(), integrate="z", random_seed=1, progressbar=False)


@pytest.fixture(scope="module")
def idata(coreset: Coreset) -> xr.DataTree:
    return coreset.sample(draws=500, tune=200, chains=2, random_seed=1, progressbar=False)


SHARED = {"mean": 0.9, "sd": 0.7, "noise": 0.5, "b": 0.4}


def fixed_draws(n_draws: int) -> xr.DataTree:
    """Draws that are all the same, of the shared variables."""
    dims = ("chain", "draw")
    values = {name: (dims, np.full((1, n_draws), value)) for name, value in SHARED.items()}
    coords = {"chain": [0], "draw": np.arange(n_draws)}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(values, coords)})


def exact_conditional() -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each level, given the shared variables."""
    residuals = np.bincount(LEVEL, Y - SHARED["b"] * X, N_LEVELS)
    counts = np.bincount(LEVEL, minlength=N_LEVELS)
    precision = counts / SHARED["noise"] ** 2 + 1 / SHARED["sd"] ** 2
    linear = residuals / SHARED["noise"] ** 2 + SHARED["mean"] / SHARED["sd"] ** 2
    return linear / precision, precision**-0.5


def test_the_coreset_is_of_few_whole_units(coreset):
    assert len(coreset.indices) < 40
    assert "(unit " in repr(coreset)
    chosen = coreset.rows
    for level in coreset.indices:
        rows = chosen["position"].values[chosen["level"].values == level]
        np.testing.assert_array_equal(rows, np.flatnonzero(level == LEVEL))
    assert 7 not in coreset.indices
    assert [v.name for v in coreset.model.free_RVs] == ["mean", "sd", "noise", "b"]
    assert "integrated  z, by 3 nodes" in str(coreset)  # exact for normal densities


def test_levels_are_drawn_from_their_exact_conditional_posterior(coreset):
    n_draws = 2_000
    found = coreset.recover(fixed_draws(n_draws), "z", random_seed=2)["z"].values[0]
    mean, sd = exact_conditional()
    # Of 400 levels: z-scores of means, of which the largest is 3.7 on average, and of variances.
    scores = (found.mean(axis=0) - mean) / (sd / np.sqrt(n_draws))
    assert np.abs(scores).max() < 5
    assert np.sqrt(np.mean(scores**2)) == pytest.approx(1.0, abs=5 / np.sqrt(2 * N_LEVELS))
    ratios = found.std(axis=0) / sd
    assert ratios.mean() == pytest.approx(1.0, abs=5 / np.sqrt(2 * n_draws * N_LEVELS) + 2e-3)
    # The one without rows has its prior.
    assert (mean[7], sd[7]) == pytest.approx((SHARED["mean"], SHARED["sd"]))
    # Draws are independent of each other, from draw to draw and from level to level.
    standard = (found - mean) / sd
    assert np.abs((standard[1:] * standard[:-1]).mean()) < 5 / np.sqrt(standard.size)
    assert np.abs((standard[:, 1:] * standard[:, :-1]).mean()) < 5 / np.sqrt(standard.size)


def test_some_levels_and_summaries_are_those_of_all(coreset, idata):
    some = coreset.recover(idata, levels=["u3", "u7"], random_seed=2)
    assert list(some["user"].values) == ["u3", "u7"]
    assert some["z"].dims == ("chain", "draw", "user")
    np.testing.assert_allclose(some["exp_z"], np.exp(some["z"]), rtol=1e-12)
    summary = coreset.recover(idata, "z", levels=["u3", "u7"], summary=True, random_seed=2)["z"]
    assert list(summary["statistic"].values) == ["mean", "sd", "q3", "median", "q97"]
    draws = some["z"]
    np.testing.assert_allclose(summary.sel(statistic="mean"), draws.mean(("chain", "draw")))
    np.testing.assert_allclose(summary.sel(statistic="sd"), draws.std(("chain", "draw")))
    np.testing.assert_allclose(
        summary.sel(statistic="q97"), draws.quantile(0.97, ("chain", "draw")), rtol=1e-12
    )


def test_blocks_of_levels_are_put_together_along_each_variables_own_axis(limits):
    limits(levels_at_once=150)
    with pm.Model() as model:
        mean, noise = pm.Normal("mean"), pm.HalfNormal("noise")
        z = pm.Normal("z", mean, 1.0, shape=N_LEVELS)
        both = pm.Deterministic("both", pm.math.stack([z, -z]))
        pm.Deterministic("centred", z - z.mean())
        pm.Deterministic("typical", z.mean())
        pm.Normal("y", both[0][LEVEL], noise, observed=Y)
    coreset = build_coreset(model, integrate="z", random_seed=1, progressbar=False)
    idata = coreset.importance_draws(random_seed=1)
    every = coreset.recover(idata, random_seed=1)
    assert set(every.data_vars) == {"z", "both", "centred", "typical"}
    np.testing.assert_allclose(every["typical"], every["z"].mean("z_dim_0"))
    summary = coreset.recover(idata, summary=True, random_seed=1)
    assert summary["z"].shape == (5, N_LEVELS)
    assert summary["both"].shape == (5, 2, N_LEVELS)
    means = summary.sel(statistic="mean")
    np.testing.assert_allclose(means["both"][0], means["z"])
    # What needs all levels at once is refused, and not computed from levels that were not drawn.
    some = coreset.recover(idata, levels=[3, 5], random_seed=1)
    assert set(some.data_vars) == set(summary.data_vars) == {"z", "both"}
    for options in ({"levels": [3, 5]}, {"summary": True}):
        for name in ("centred", "typical"):
            with refused(InvalidOptionError, "var_names=", "several levels"):
                coreset.recover(idata, name, **options)


def test_draws_have_what_draws_of_the_model_have(coreset, idata):
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {"mean", "sd", "noise", "b", "z", "exp_z"}
    assert posterior["z"].dims == ("chain", "draw", "user")
    assert list(posterior["user"].values) == USERS
    np.testing.assert_allclose(posterior["exp_z"], np.exp(posterior["z"]), rtol=1e-12)
    weighted = coreset.reweight(idata, random_seed=2)["posterior"]
    assert set(weighted.data_vars) == set(posterior.data_vars)
    # Draws of levels stay with those that they were drawn for.
    pairs = {(float(m), float(z)) for m, z in draws_of(posterior)}
    assert {(float(m), float(z)) for m, z in draws_of(weighted)} <= pairs


def draws_of(posterior: xr.Dataset) -> zip:
    return zip(posterior["mean"].values.ravel(), posterior["z"].values[..., 3].ravel(), strict=True)


def test_draws_of_levels_belong_to_those_of_the_shared_variables(idata):
    draws = idata["posterior"].to_dataset().stack(sample=("chain", "draw"))
    mean, sd, noise, b = (draws[n].values for n in ("mean", "sd", "noise", "b"))
    level = 3
    rows = np.flatnonzero(level == LEVEL)
    residuals = (Y[rows, None] - b * X[rows, None]).sum(axis=0)
    precision = len(rows) / noise**2 + 1 / sd**2
    expected = (residuals / noise**2 + mean / sd**2) / precision
    standard = (draws["z"].values[level] - expected) * np.sqrt(precision)
    n = standard.size
    assert abs(standard.mean()) < 5 / np.sqrt(n)
    assert standard.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * n) + 2e-3)


def test_densities_of_pymc_agree(coreset, idata):
    opinion = coreset.verify(idata)
    assert opinion.difference < 1e-8
    assert opinion.by_us == pytest.approx(opinion.by_pymc, rel=1e-6)
    assert opinion.by_us < 0.02


def test_a_coreset_survives_its_file_and_its_copy(coreset, idata, tmp_path):
    coreset.to_netcdf(tmp_path / "coreset.nc")
    loaded = Coreset.from_netcdf(tmp_path / "coreset.nc", model_of())
    copied = pickle.loads(pickle.dumps(coreset))
    expected = coreset.recover(idata, levels=["u3"], random_seed=2)
    for other in (loaded, copied):
        np.testing.assert_array_equal(other.indices, coreset.indices)
        found = other.recover(idata, levels=["u3"], random_seed=2)
        np.testing.assert_allclose(found["z"], expected["z"], rtol=1e-6)
        units = other.loglikelihood.observations
        assert units.node_error == coreset.loglikelihood.observations.node_error
        assert other.verify(idata, draws=10).difference < 1e-6


def test_other_priors_are_those_of_the_shared_variables(coreset, idata):
    other = coreset.with_model(model_of(width=3.0))
    np.testing.assert_array_equal(other.weights, coreset.weights)
    assert other.verify(idata, draws=10).difference < 1e-8
    point = {name: np.array(0.3) for name in ("mean", "sd_log__", "noise_log__", "b")}
    difference = density(other.model)(point)[0] - density(coreset.model)(point)[0]
    of_priors = [norm.logpdf(0.3, 0.0, width) for width in (3.0, 1.0)]
    # PyTensor keeps 3.0 in single precision, and its logarithm.
    assert difference == pytest.approx(of_priors[0] - of_priors[1], abs=1e-6)


def test_known_levels_are_predicted_by_their_own_draws(coreset, idata):
    found = coreset.predict(idata, progressbar=False)["posterior_predictive"]["y"]
    draws = idata["posterior"].to_dataset().stack(sample=("chain", "draw"))
    b, z = draws["b"].values.mean(), draws["z"].values.mean(axis=1)
    np.testing.assert_allclose(found, b * X + z[LEVEL], rtol=1e-10)


def test_draws_without_levels_are_completed_before_predictions(coreset):
    found = coreset.predict(fixed_draws(1_000), random_seed=3, progressbar=False)
    mean, sd = exact_conditional()
    expected = SHARED["b"] * X + mean[LEVEL]
    errors = (found["posterior_predictive"]["y"].values - expected) / (sd[LEVEL] / np.sqrt(1_000))
    assert np.abs(errors).max() < 5


@pytest.mark.parametrize("users", [["u3", "new"], ["new", "newer"]])
def test_draws_without_levels_predict_known_and_new_levels_of_another_model(coreset, users, calls):
    """Known ones given their rows, which alone are drawn; new ones by what all levels share."""
    with pm.Model(coords={"user": users}) as model:
        mean, sd, noise = pm.Normal("mean"), pm.HalfNormal("sd"), pm.HalfNormal("noise")
        z = pm.Normal("z", mean, sd, dims="user")
        pm.Normal("y", pm.Normal("b") * 0.0 + z, noise, observed=np.zeros(2))
    n_draws, (mean, sd) = 1_000, exact_conditional()
    drawn = calls("levels recovered")
    found = coreset.predict(
        fixed_draws(n_draws), model=model, random_seed=3, progressbar=False
    )["predictions"]["y"].values  # fmt: skip
    assert [call.kwargs["levels"] for call in drawn] == [["u3" if "u3" in users else "u0"]]
    is_known = users[0] == "u3"
    middle = [mean[3] if is_known else SHARED["mean"], SHARED["mean"]]
    widths = np.array([sd[3] if is_known else SHARED["sd"], SHARED["sd"]]) / np.sqrt(n_draws)
    assert np.abs((found - middle) / widths).max() < 5


def test_rows_are_refused_before_levels_are_drawn(coreset, fails):
    fails("levels recovered")
    with refused(InvalidOptionError, "'level_of'", "no column"):
        coreset.predict(fixed_draws(2), rows={"x": np.zeros(2)})


def test_units_are_left_out_one_by_one(coreset, idata):
    found = coreset.loo(idata)
    assert found.n_data_points == len(np.unique(LEVEL))
    draws = {name: idata["posterior"][name].values.ravel() for name in SHARED}
    lppd = sum(
        logsumexp(of_unit(level, draws)) - np.log(len(draws["b"])) for level in np.unique(LEVEL)
    )
    # It is less by about one nat for each of the four shared variables.
    assert 1.0 < lppd - found.elpd < 10.0


def of_unit(level: int, draws: dict[str, np.ndarray]) -> np.ndarray:
    """Log-density of the rows of a level, which are jointly normal, at all draws."""
    rows = np.flatnonzero(level == LEVEL)
    n, v, w = len(rows), draws["noise"] ** 2, draws["sd"] ** 2
    y = Y[rows, None] - draws["b"] * X[rows, None] - draws["mean"]
    square = ((y**2).sum(axis=0) - w / (v + n * w) * y.sum(axis=0) ** 2) / v
    log_det = (n - 1) * np.log(v) + np.log(v + n * w)
    return -(square + log_det + n * np.log(2 * np.pi)) / 2


def test_unknown_names_and_levels_are_refused(coreset, idata):
    with refused(InvalidOptionError, "var_names=['zz']"):
        coreset.recover(idata, "zz")
    with refused(InvalidOptionError, "levels=['u400']", "400", "such as 'u0'"):
        coreset.recover(idata, levels=["u400"])


def test_nothing_is_recovered_where_nothing_was_integrated_out():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("m"), 1.0, observed=Y)
    plain = build_coreset(model, size=5, method="uniform", random_seed=1, progressbar=False)
    with refused(InvalidOptionError, "Nothing", "integrated out"):
        plain.recover(fixed_draws(10))


def test_integrate_is_refused_without_names():
    with refused(InvalidOptionError, "integrate=True"):
        build_coreset(model_of(), integrate=True, progressbar=False)


def test_few_units_all_stay():
    """Too few to choose from; but their posterior has three dimensions in place of 23."""
    rng, level = np.random.default_rng(2), np.repeat(np.arange(20), 6)
    y = rng.normal(size=20)[level] + rng.normal(size=level.size)
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("mean"), pm.HalfNormal("sd"), shape=20)
        pm.Normal("y", z[level], pm.HalfNormal("noise"), observed=y)
    few = build_coreset(model, integrate="z", random_seed=1, progressbar=False)
    assert (few.size, few.method, few.loglikelihood.n_dims) == (20, "exact", 3)
    np.testing.assert_array_equal(few.weights, 1.0)


def test_a_time_budget_ends_the_integration():
    with refused(OutOfTimeError, "time_budget", "PyMC's log-density", "on_failure='nuts'"):
        build_coreset(model_of(), integrate="z", time_budget=1e-3, progressbar=False)
