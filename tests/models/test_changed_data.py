"""A coreset stands for the data that it was built from, whatever `pm.set_data` puts in since."""

from itertools import permutations

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from pymc.model.transform.optimization import freeze_dims_and_data

from pymc_coresets import InvalidDataError, build_coreset, build_pass_glm, merge, open_rows
from tests.builds import of_some_rows, read
from tests.modes import PLAIN_MODE
from tests.refusals import refused

N, FEW = 400, 5
RNG = np.random.default_rng(1)
DATA = {"x": RNG.normal(size=N)}
DATA["y"] = RNG.normal(2 * DATA["x"])
OPTIONS = {"size": 20, "method": "uniform", "random_seed": 1, "progressbar": False}


def make_model(n=N, *, labels=True):
    with pm.Model(coords={"obs": [f"o{i}" for i in range(n)]} if labels else {}) as model:
        x, y = (pm.Data(name, values[:n], dims="obs") for name, values in DATA.items())
        spread = pm.Data("spread", 2.0)
        if labels:
            pm.Data("unused", np.arange(float(n)), dims="obs")
        mean = pm.Deterministic("mean", pm.Normal("a", 0, spread) + 2 * x, dims="obs")
        pm.Normal("z", mean, 1.0, observed=y, dims="obs")
    return model


def change(model):
    new = {"x": np.full(FEW, 9.0), "y": np.zeros(FEW), "unused": np.zeros(FEW), "spread": 0.1}
    with model:
        pm.set_data(new, coords={"obs": list("vwxyz")})


@pytest.fixture(scope="module")
def pair():
    """Two coresets of equal data, one of which its model has no more, and draws."""
    options = {"random_seed": 1, "progressbar": False}
    kept, changed = (build_coreset(make_model(), **options) for _ in range(2))
    change(changed.full_model)
    return kept, changed, kept.sample(draws=200, tune=100, chains=2, **options)


def test_judgements_tables_and_models_are_those_of_the_old_data(pair):
    kept, changed, idata = pair
    assert_array_equal(kept.log_ratios(idata), changed.log_ratios(idata))
    elpd = [each.loo(idata, observations=20, random_seed=1).elpd for each in (kept, changed)]
    assert elpd[0] == elpd[1]
    pd.testing.assert_frame_equal(kept.summary(), changed.summary())
    assert kept.model.coords == changed.model.coords
    for name in ("x", "unused", "spread"):
        assert_array_equal(kept.model[name].get_value(), changed.model[name].get_value())
    point = {"a": np.array(0.3)}
    logp = [each.model.compile_logp(mode=PLAIN_MODE)(point) for each in (kept, changed)]
    assert logp[0] == logp[1]


def test_what_reads_the_model_itself_says_that_it_has_changed(pair):
    _, changed, idata = pair
    with refused(InvalidDataError, "pm.set_data", "['x', 'y', 'spread', 'unused', 'obs']"):
        _ = changed.full_model
    with refused(InvalidDataError, "model=..."):
        changed.predict(idata, progressbar=False)


@pytest.mark.parametrize("kind", ["mean", "draws"])
def test_new_rows_with_all_that_predicts_them_need_no_old_data(pair, kind):
    """Neither prior nor outcome do, once there are draws."""
    kept, changed, idata = pair
    options = {"rows": {"x": np.array([1.0, 2.0])}, "kind": kind, "random_seed": 1}
    found = [each.predict(idata, **options)["predictions"] for each in (kept, changed)]
    xr.testing.assert_equal(*(tree.to_dataset() for tree in found))


def test_data_that_new_rows_lack_must_be_the_old_ones():
    with pm.Model(coords={"k": [0, 1]}) as model:
        x, scale = pm.Data("x", DATA["x"]), pm.Data("scale", np.ones(2), dims="k")
        mu = pm.Normal("a") * x * scale.sum()
        pm.Normal("z", mu, 1.0, observed=DATA["y"])
    coreset = build_coreset(model, **OPTIONS)
    draws, rows = xr.Dataset({"a": (("chain", "draw"), np.ones((1, 3)))}), {"x": np.ones(2)}
    with model:
        pm.set_data({"scale": 2 * np.ones(2)})
    with refused(InvalidDataError, "['scale']", "model=..."):
        coreset.predict(draws, rows=rows)
    with model:
        pm.set_data({"scale": np.ones(2)}, coords={"k": [1, 2]})
    with refused(InvalidDataError, "['k']", "model=..."):
        coreset.predict(draws, rows=rows)


def test_new_data_are_predicted_where_the_model_is_passed(pair):
    _, changed, idata = pair
    model = make_model()
    change(model)
    found = changed.predict(idata, model=model, progressbar=False)["predictions"]["z"]
    assert found.sizes == {"obs": FEW}
    np.testing.assert_allclose(found, idata["posterior"]["a"].mean() + 18.0)


def test_old_data_that_are_put_back_are_no_change():
    model = make_model()
    coreset = build_coreset(model, **OPTIONS)
    labels = model.coords["obs"]
    change(model)
    with model:
        old = {n: values.copy() for n, values in DATA.items()}
        pm.set_data(old | {"spread": 2.0, "unused": np.arange(float(N))}, coords={"obs": labels})
    assert coreset.full_model is model


@pytest.mark.parametrize("names", [*permutations("abc")])
def test_a_point_of_the_model_is_one_of_its_copy(names):
    """However the variables are used: what is known of a posterior goes by their order."""
    with pm.Model() as model:
        free = {name: pm.Normal(name) for name in names}
        x, y = pm.Data("x", np.arange(3.0)), pm.Data("y", np.zeros(3))
        pm.Normal("z", free["a"] + free["b"] * x, pm.math.exp(free["c"]), observed=y)
    assert [rv.name for rv in of_some_rows(model, size=1).model.free_RVs] == list(names)


def test_other_labels_are_a_change():
    model = make_model()
    coreset = build_coreset(model, **OPTIONS)
    with model:
        pm.set_data({"x": DATA["x"]}, coords={"obs": range(N)})
    with refused(InvalidDataError, "['obs']"):
        _ = coreset.full_model
    assert all(str(label).startswith("o") for label in coreset.model.coords["obs"])


def test_rows_are_merged_with_the_data_that_they_had():
    models = [make_model(labels=False) for _ in range(2)]
    found = [build_coreset(model, **OPTIONS) for model in models]
    with models[1]:
        pm.set_data({"x": np.ones(FEW), "y": np.ones(FEW)})
    kept, changed = (merge(each, each, size=2 * N).rows for each in found)
    xr.testing.assert_identical(kept, changed)


def test_prototypes_may_be_any_rows_but_not_beside_other_constants():
    with pm.Model() as model:
        x, y = (pm.Data(name, values[:10]) for name, values in DATA.items())
        pm.Normal("z", pm.Normal("a", 0, pm.Data("spread", 2.0)) * x, 1.0, observed=y)
    coreset = build_coreset(model, rows=open_rows(DATA), **OPTIONS)
    with model:
        pm.set_data({name: values[20:24] for name, values in DATA.items()})
    idata = coreset.sample(draws=30, tune=30, chains=2, random_seed=1, progressbar=False)
    found = coreset.predict(idata, progressbar=False)
    assert found["posterior_predictive"].sizes == {"z_dim_0": N}
    with model:
        pm.set_data({"spread": 0.1})
    assert coreset.check(idata).n_draws == 60
    with refused(InvalidDataError, "['spread']"):
        coreset.predict(idata, progressbar=False)


def test_polynomials_name_the_change_too():
    models = [make_model(labels=False) for _ in range(2)]
    found = [build_pass_glm(model, random_seed=1, progressbar=False) for model in models]
    with models[1]:
        pm.set_data({"spread": 0.001})
    assert found[0].closed_form().identical(found[1].closed_form())
    with refused(InvalidDataError, "['spread']"):
        _ = found[1].full_model


def test_frozen_data_are_data():
    model = freeze_dims_and_data(make_model())
    coreset = build_coreset(model, **OPTIONS)
    assert {"x", "unused"} <= set(coreset.summary().index.get_level_values("part"))
    assert coreset.full_model is model
    assert_array_equal(coreset.model["unused"].get_value(), coreset.indices.astype(float))


H = 1e-5  # a step


@pytest.mark.parametrize("compiled", [False, True])
def test_data_may_bound_a_variable_of_the_rows(compiled):
    """Gradients are evaluated by programs, which take the rows and no other data."""
    with pm.Model() as model:
        rate = pm.Uniform("rate", 0.0, pm.Data("most", 5.0))
        pm.Poisson("y", rate, observed=np.arange(30) % 4)
    loglik = read(model)
    functions, rows = loglik.functions, loglik.in_memory.all
    kernel = (functions.as_loops if compiled else functions).gradients
    evaluate = kernel.program.given(np.array([[0.3], [-1.0]]))
    found, slopes = evaluate(rows.case_weights, *kernel.arrays(rows))
    logp = model.compile_logp(model["y"], jacobian=False, mode=PLAIN_MODE)
    at = [np.array([logp({"rate_interval__": x + h}) for x in (0.3, -1.0)]) for h in (-H, 0.0, H)]
    assert_allclose(found, at[1])
    assert_allclose(slopes[:, 0], (at[2] - at[0]) / (2 * H), rtol=1e-6)
