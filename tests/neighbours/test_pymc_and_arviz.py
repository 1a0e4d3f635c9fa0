"""What PyMC and ArviZ do with a coreset's draws, and with its model."""

import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from pymc.model.transform.optimization import freeze_dims_and_data

import pymc_coresets as pmc
from tests.modes import PLAIN_MODE

QUIET = {"random_seed": 1, "progressbar": False}
SHOPS = list("abc")
RNG = np.random.default_rng(1)
PRICE, SHOP = RNG.normal(size=3_000), RNG.integers(0, 3, size=3_000)
SOLD = RNG.normal(SHOP - 0.5 * PRICE)


@pytest.fixture(scope="module", autouse=True)
def closed_figures():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def sales(observed=SOLD):
    with pm.Model(coords={"shop": SHOPS}) as model:
        price = pm.Data("price", PRICE, dims="sale")
        shop = pm.Data("in_shop", SHOP, dims="sale")
        level = pm.Normal("level", dims="shop")
        pm.Deterministic("doubled", 2 * level, dims="shop")
        mean = pm.Deterministic("mean", level[shop] + pm.Normal("slope") * price, dims="sale")
        pm.Normal("sold", mean, 1.0, observed=observed, dims="sale")
    return model


@pytest.fixture(scope="module")
def model():
    return sales()


@pytest.fixture(scope="module")
def coreset(model):
    return pmc.build_coreset(model, **QUIET)


@pytest.fixture(scope="module")
def idata(coreset):
    return coreset.sample(draws=200, **QUIET)


@pytest.fixture
def few(idata):
    return idata.isel(draw=slice(0, 5)).copy()


# -- PyMC, and the model of all rows ---------------------------------------------------------------


def test_all_rows_are_predicted(model, few):
    found = pm.sample_posterior_predictive(few, model=model, **QUIET)
    assert found["posterior_predictive"]["sold"].shape == (4, 5, 3_000)


def test_log_likelihoods_and_deterministics_of_all_rows(model, few):
    mean = pm.compute_deterministics(
        few["posterior"].to_dataset(), model=model, var_names=["mean"], progressbar=False
    )["mean"]
    found = pm.compute_log_likelihood(few, model=model, progressbar=False)
    expected = -((SOLD - mean.values) ** 2 + np.log(2 * np.pi)) / 2
    assert_allclose(found["log_likelihood"]["sold"], expected)


@pytest.mark.parametrize(
    "changed",
    [
        lambda: pm.do(sales(), {"slope": -0.5}),
        lambda: pm.observe(sales(observed=None), {"sold": SOLD}),
        lambda: freeze_dims_and_data(sales()),
    ],
    ids=["do", "observe", "freeze_dims_and_data"],
)
def test_models_that_pymc_has_changed_are_summarised(changed):
    coreset = pmc.build_coreset(changed(), size=30, method="uniform", **QUIET)
    assert coreset.n_observations == 3_000


# -- PyMC, and the coreset's own model -------------------------------------------------------------


def test_the_coresets_model_is_changed_as_any_other(coreset):
    own = coreset.model
    fixed = pm.do(own, {"slope": -0.5})
    assert {rv.name for rv in fixed.free_RVs} == {"level"}
    seen = pm.observe(own, {"slope": -0.5})
    assert {rv.name for rv in seen.observed_RVs} == {"slope"}
    frozen, point = freeze_dims_and_data(own), own.initial_point(random_seed=1)
    densities = (model.compile_logp(mode=PLAIN_MODE)(point) for model in (frozen, own))
    assert_allclose(*densities)


def test_the_coresets_model_is_drawn(coreset):
    pytest.importorskip("graphviz", reason="graphviz is not installed")
    assert "coreset_loglik" in coreset.model.to_graphviz().source


def test_predictions_of_the_coresets_model_are_warned_of(coreset, few):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pm.sample_posterior_predictive(few, model=coreset.model, **QUIET)
    words = [str(w.message) for w in caught if issubclass(w.category, pmc.CoresetWarning)]
    assert len(words) == 1
    assert "'sold'" in words[0]
    assert "predict" in words[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("nuts_sampler", ["pymc", "nutpie", "numpyro", "blackjax"])
def test_every_nuts_samples_it(coreset, nuts_sampler):
    pytest.importorskip(nuts_sampler, reason=f"{nuts_sampler} is not installed")
    own = coreset.sample(nuts_sampler=nuts_sampler, draws=300, **QUIET)
    one_device = {"nuts": {"chain_method": "vectorized"}} if nuts_sampler == "blackjax" else {}
    theirs = pm.sample(
        model=coreset.model, nuts_sampler=nuts_sampler, draws=300, cores=1, **QUIET, **one_device
    )
    for found in (own, theirs):
        slope = found["posterior"]["slope"]
        # Of 1,200 draws some 300 are worth independent ones.
        assert abs(float(slope.mean()) + 0.5) < 5 * float(slope.std())
        assert float(slope.std()) == pytest.approx(3_000**-0.5, rel=0.2)


# -- ArviZ -----------------------------------------------------------------------------------------


def test_draws_are_summarised_and_plotted(idata, model, few):
    assert az.summary(idata)["mean"]["slope"] == pytest.approx(-0.5, abs=0.1)
    az.plot_trace_dist(idata)
    az.plot_forest({"one": idata, "same": idata})
    az.plot_ppc_dist(pm.sample_posterior_predictive(few, model=model, **QUIET), num_samples=10)


def test_models_are_compared_by_our_leave_one_out(coreset, idata):
    elpd = coreset.loo(idata, observations=100, random_seed=1)
    assert set(az.compare({"one": elpd, "same": elpd})["elpd_diff"]) == {0.0}
    with pytest.raises(TypeError, match="log likelihood not found"):
        az.loo(idata)


def test_priors_are_scaled(coreset, idata):
    found = az.psense_summary(coreset.with_log_densities(idata))
    assert found.loc["slope", "likelihood"] > found.loc["slope", "prior"]


@pytest.mark.filterwarnings("ignore:Consolidated metadata")  # of Zarr
@pytest.mark.parametrize("engine", ["h5netcdf", "zarr"])
def test_draws_come_back_from_files(model, idata, tmp_path, engine):
    pytest.importorskip(engine)
    written = pmc.sample(model, draws=200, **QUIET)
    path = tmp_path / "draws"
    if engine == "zarr":
        written.to_zarr(path)
    else:
        written.to_netcdf(path, engine=engine)
    with xr.open_datatree(path, engine=engine) as read:
        xr.testing.assert_equal(read.load(), written)
        assert read.attrs == written.attrs
        coreset = pmc.coreset_of(read, model)
    assert coreset.size == written["coreset"].sizes["row"]
