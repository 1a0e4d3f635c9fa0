"""Draws have the data of all rows where `pm.sample` has them, so that its companions work."""

from dataclasses import replace

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from pymc.exceptions import ImputationWarning

from pymc_coresets import build_coreset, build_pass_glm, compare, open_rows
from tests.builds import QUIET, of_all_rows
from tests.modes import PLAIN_MODE

N = 1_200
RNG = np.random.default_rng(1)
X, GROUP = RNG.normal(size=N), RNG.integers(0, 3, N)
Y = RNG.normal(X + GROUP)
GROUPS = ["observed_data", "constant_data"]


def in_containers():
    """Labelled and unlabelled dims, none, a scalar, and a deterministic of the coefficients."""
    coords = {"group": list("abc"), "row": np.arange(10, N + 10)}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", X[:, None], dims=("row", None))
        group, sd = pm.Data("group_of_row", GROUP, dims="row"), pm.Data("sd", 1.0)
        pm.Data("no_dims", np.ones((2, 3)))
        level = pm.Deterministic("level", 2 * pm.Normal("half", dims="group"), dims="group")
        mu = pm.Deterministic("mu", x[:, 0] * pm.Normal("slope") + level[group], dims="row")
        pm.Normal("y", mu, sd, observed=Y, dims="row")
    return model


def counts_in_a_container_of_floats():
    with pm.Model() as model:
        seen = pm.Data("seen", np.arange(5.0))
        pm.Poisson("y", pm.Exponential("rate", 1.0), observed=seen)
    return model


def outcomes_that_predict():
    with pm.Model() as model:
        y = pm.Data("y_data", np.arange(5.0))
        pm.Normal("y", pm.Normal("a") * (y**2), 1.0, observed=y)
    return model


def missing_values():
    observed = np.array([1.0, np.nan, 3.0, 4.0, 5.0])
    with pm.Model(coords={"row": range(5)}) as model:
        mu = pm.Normal("mu")
        with pytest.warns(ImputationWarning):
            pm.Normal("y", mu, 1.0, observed=observed, dims="row")
    return model


def with_pymc_dims():
    with pm.Model(coords={"row": range(5)}) as model:
        x = pmd.Data("x", np.arange(5.0), dims="row")
        y = pmd.as_xtensor(np.ones(5), dims="row")
        pmd.Normal("y", pmd.Normal("b") * x, 1.0, observed=y)
    return model


@pytest.mark.parametrize(
    "make",
    [
        in_containers,
        counts_in_a_container_of_floats,
        outcomes_that_predict,
        missing_values,
        with_pymc_dims,
    ],
)
def test_groups_are_those_of_pymc(make):
    model = make()
    assert_has_data_of(model, of_all_rows(model).importance_draws(100, random_seed=1))


def assert_has_data_of(model, idata):
    options = {"random_seed": 1, "compile_kwargs": {"mode": PLAIN_MODE}}
    theirs = pm.sample_prior_predictive(1, model=model, **options)
    assert {*idata.children} & {*GROUPS} == {*theirs.children} & {*GROUPS}
    for name in {*theirs.children} & {*GROUPS}:
        expected = theirs[name].to_dataset().drop_attrs(deep=True)
        xr.testing.assert_identical(idata[name].to_dataset(), expected)


@pytest.fixture(scope="module")
def model():
    return in_containers()


@pytest.fixture(scope="module")
def coreset(model):
    return build_coreset(model, **QUIET)


@pytest.fixture(scope="module")
def sampled(coreset):
    return coreset.sample(draws=200, compute_convergence_checks=False, **QUIET)


@pytest.fixture(params=["sample", "importance_draws", "reweight"])
def idata(request, coreset, sampled):
    if request.param == "importance_draws":
        return coreset.importance_draws(100, random_seed=1)
    return sampled if request.param == "sample" else coreset.reweight(sampled, random_seed=1)


@pytest.mark.slow
def test_a_variable_that_was_added_to_the_model_is_sampled(coreset):
    other = replace(coreset)
    with other.model:
        pm.Normal("more", 3.0, 0.1)
    idata = other.sample(draws=100, tune=100, compute_convergence_checks=False, **QUIET)
    assert idata["posterior"]["more"].mean() == pytest.approx(3.0, abs=0.1)


def test_draws_have_the_data_of_all_rows(idata, model):
    assert_has_data_of(model, idata)
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {"half", "slope", "level"}
    assert_allclose(posterior["level"], 2 * posterior["half"])


def test_draws_have_the_data_where_variables_are_integrated_out():
    """The outcome depends on them, and goes with them where they are taken out of the model."""
    person = np.arange(N) // 4
    with pm.Model(coords={"person": np.arange(10, N // 4 + 10)}) as model:
        of_row = pm.Data("person_of_row", person)
        effect = pm.Normal("effect", 0, pm.HalfNormal("sd"), dims="person")
        pm.Normal("y", pm.Data("x", X) + effect[of_row], 1.0, observed=Y)
    coreset = build_coreset(model, **QUIET)
    assert coreset.loglikelihood.observations.integrated == ("effect",)
    idata = coreset.importance_draws(100, random_seed=1)
    assert_has_data_of(model, idata)


def test_axes_without_names_are_numbered_as_by_pymc():
    """So that a variable with some of its dims is compared, and not left out."""
    area = np.arange(N) // 12
    with pm.Model(coords={"area": np.arange(10, N // 12 + 10)}) as model:
        effect = pm.Normal("effect", 0, pm.HalfNormal("sd"), dims="area")
        both = pm.math.stack([effect, 2 * effect], axis=1)
        pm.Deterministic("both", both, dims=("area", None))
        pm.Normal("y", effect[area], 1.0, observed=Y)
    coreset = build_coreset(model, integrate="effect", **QUIET)
    assert coreset.loglikelihood.observations.integrated == ("effect",)
    ours = coreset.recover(coreset.importance_draws(100, random_seed=1), random_seed=1)
    options = {"draws": 20, "tune": 0, "chains": 1, "compute_convergence_checks": False}
    written = {"compile_kwargs": {"mode": PLAIN_MODE}}
    step = pm.Metropolis(model=model, **written)
    theirs = pm.sample(model=model, step=step, **options, **written, **QUIET)
    dims = {name: theirs["posterior"][name].dims for name in ("effect", "both")}
    assert dims["both"] == ("chain", "draw", "area", "both_dim_0")
    assert {name: ours[name].dims for name in dims} == dims
    assert "both" not in compare(full=theirs, approximation=ours).skipped


def test_the_data_are_not_copied_and_cannot_be_changed(idata, model):
    x = idata["constant_data"]["x"].to_numpy()
    assert np.shares_memory(x, model["x"].get_value(borrow=True))
    with pytest.raises(ValueError, match="read-only"):
        x[:] = 0.0


def test_pymc_and_arviz_predict(idata, model):
    few = idata.isel(draw=slice(0, 5))
    found = pm.sample_posterior_predictive(few, model=model, extend_inferencedata=False, **QUIET)
    assert found["posterior_predictive"]["y"].sizes["row"] == N
    tree = idata.assign(posterior_predictive=found["posterior_predictive"])
    az.plot_ppc_dist(tree, num_samples=2, backend="none")


def test_the_data_are_those_of_the_construction():
    with pm.Model() as model:
        x = pm.Data("x", X)
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=Y)
    coreset = build_coreset(model, **QUIET)
    pm.set_data({"x": np.zeros(N)}, model=model)
    idata = coreset.importance_draws(100, random_seed=1)
    assert_allclose(idata["constant_data"]["x"], X)


def test_rows_elsewhere_are_not_read_for_it():
    with pm.Model() as model:
        x, y = pm.Data("x", X[:100]), pm.Data("y_data", Y[:100])
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=y)
    coreset = build_coreset(model, rows=open_rows({"x": X, "y_data": Y}), **QUIET)
    assert set(coreset.importance_draws(100, random_seed=1).children) == {"posterior"}
    # Nor are the few rows of the coreset's model taken for the data.
    idata = coreset.sample(draws=50, chains=1, quiet=True, **QUIET)
    assert set(idata.children).isdisjoint(GROUPS)


def test_draws_in_closed_form_have_the_data():
    with pm.Model() as model:
        x = pm.Data("x", X)
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=Y)
    idata = build_pass_glm(model, **QUIET).draw(10, random_seed=1)
    assert_allclose(idata["constant_data"]["x"], X)
    assert_allclose(idata["observed_data"]["y"], Y)


# -- Bambi -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bambi():
    return pytest.importorskip("bambi", reason="bambi is not installed")


@pytest.fixture(scope="module")
def of_bambi(bambi):
    group = pd.Categorical.from_codes(GROUP, list("abc"))
    table = pd.DataFrame({"x": X + 3.0, "group": group, "y": Y})
    formula = bambi.Model("y ~ x + group", table, center_predictors=False)
    formula.build()
    return formula, build_coreset(formula.backend.model, **QUIET)


@pytest.mark.parametrize(
    "call", [pytest.param("sample", marks=pytest.mark.slow), "importance_draws", "reweight"]
)
def test_bambi_predicts(bambi, of_bambi, call):
    formula, coreset = of_bambi
    if call == "importance_draws":
        idata = coreset.importance_draws(100, random_seed=1)
    else:
        idata = coreset.sample(draws=200, compute_convergence_checks=False, **QUIET)
        idata = coreset.reweight(idata, random_seed=1) if call == "reweight" else idata
    theirs = formula.predict(idata, kind="response_params", inplace=False)["posterior"]["mu"]
    ours = coreset.predict(idata, progressbar=False)["posterior_predictive"]["y"]
    assert_allclose(theirs.mean(["chain", "draw"]), ours, rtol=1e-9)
    few = idata.isel(draw=slice(0, 5))
    draws = formula.predict(few, kind="response", inplace=False, random_seed=1)
    az.plot_ppc_dist(draws, num_samples=2, backend="none")
    slope = float(idata["posterior"]["x"].mean())
    slopes = bambi.interpret.slopes(formula, idata, "x").summary["estimate"]
    assert_allclose(slopes, slope, rtol=1e-6)
    assert len(bambi.interpret.comparisons(formula, idata, "group").summary)
    assert len(bambi.interpret.predictions(formula, idata, "x").summary)
    with pytest.warns(bambi.PlottingFutureWarning):
        bambi.interpret.plot_predictions(formula, idata, "x")
