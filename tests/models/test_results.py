"""What coresets of many kinds say of their rows, against the data that they were built from."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_coresets import (
    Coreset,
    CoresetError,
    CoresetWarning,
    InvalidOptionError,
    build_coreset,
    merge,
    open_rows,
)
from tests.refusals import refused

N = 400
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 2))
SHOP = RNG.integers(0, 5, size=N)
VISITS = RNG.poisson(np.exp(0.3 * X[:, 0]))
LATE = RNG.integers(0, 2, size=N)
UNUSED = RNG.normal(size=N)
BUILD = {"method": "uniform", "size": 12, "random_seed": 1, "progressbar": False}


def unequal(coreset):
    """Return the coreset with other weights, which are all different."""
    factors = np.random.default_rng(7).uniform(0.2, 1.8, size=coreset.size)
    return replace(coreset, weights=coreset.weights * factors)


@pytest.fixture(scope="module")
def in_memory():
    """Two outcomes, containers of all kinds, codes that count from one, and a plain array."""
    coords = {
        "shop": ["<b>", "two", "three", "four", "five"],
        "row": range(N),
        "k": ["age", "dose"],
    }
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", X, dims=("row", "k"))
        shop = pm.Data("shop_number", SHOP + 1, dims="row")
        pm.Data("unused", UNUSED, dims="row")
        effect = pm.Normal("effect", dims="shop")
        eta = effect[shop - 1] + x @ pm.Normal("b", dims="k") + X[:, 0] ** 2
        pm.Poisson("visits", pm.math.exp(eta), observed=VISITS, dims="row")
        pm.Bernoulli("late", logit_p=eta, observed=LATE, dims="row")
    return unequal(build_coreset(model, **BUILD))


@pytest.fixture(scope="module")
def cells():
    with pm.Model(coords={"item": list("abc"), "person": range(40)}) as model:
        age = pm.Data("age", np.arange(40.0), dims="person")
        eta = pm.Normal("ability", dims="person") + 0.1 * age
        eta = eta[None, :] - pm.Normal("difficulty", dims="item")[:, None]
        outcome = np.arange(120).reshape(3, 40) % 2
        pm.Bernoulli("y", logit_p=eta, observed=outcome, dims=("item", "person"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)  # there are few rows
        return build_coreset(model, dim=("item", "person"), **BUILD)


@pytest.fixture(scope="module")
def merged():
    """Equal rows, of which one stands for all."""
    with pm.Model() as model:
        pm.Poisson("visits", pm.math.exp(pm.Normal("rate")), observed=VISITS)
    return build_coreset(model, collapse=True, **BUILD | {"size": 3})


COLUMNS = {
    "x": X,
    "shop": SHOP,
    "late": LATE,
    "items": np.arange(N)[:, None] % [2, N],
    "n": RNG.integers(1, 4, size=N).astype(float),
}


def prototypes():
    with pm.Model(coords={"name": list("abcde")}) as model:
        held = {name: pm.Data(name, COLUMNS[name][:9]) for name in COLUMNS if name != "n"}
        effect = pm.Normal("effect", dims="name")
        eta = effect[held["shop"]] + (held["x"] + held["items"]) @ pm.Normal("b", shape=2)
        pm.Bernoulli("y", logit_p=eta, observed=held["late"])
    return model


@pytest.fixture(scope="module")
def elsewhere():
    """Rows in chunks, with case weights."""
    return unequal(build_coreset(prototypes(), rows=open_rows(COLUMNS, weight="n"), **BUILD))


@pytest.fixture(params=["in_memory", "cells", "merged", "elsewhere"])
def coreset(request):
    return request.getfixturevalue(request.param)


def test_columns_are_those_of_the_data(in_memory):
    table = in_memory.summary()
    frame = pd.DataFrame({"x[age]": X[:, 0], "x[dose]": X[:, 1], "unused": UNUSED})
    chosen, weights = frame.iloc[in_memory.indices], in_memory.weights
    for name in frame:
        assert table.loc[(name, "mean"), "all"] == pytest.approx(frame[name].mean())
        assert table.loc[(name, "max"), "chosen"] == chosen[name].max()
        expected = np.average(chosen[name], weights=weights)
        assert table.loc[(name, "mean"), "weighted"] == pytest.approx(expected)
        assert table.loc[(name, "sd"), "all"] == pytest.approx(frame[name].std(ddof=0))
    for label, name in enumerate(in_memory.full_model.coords["shop"]):
        line = table.loc[("shop_number", f"= {name}")]
        here = SHOP[in_memory.indices] == label
        assert line.tolist() == pytest.approx(
            [(label == SHOP).sum(), here.sum(), weights[here].sum()]
        )
    assert table.loc[("late", "= 1"), "all"] == LATE.sum()
    assert table.loc[("visits", "= 0"), "all"] == (VISITS == 0).sum()


def test_cells_have_the_columns_of_their_dimensions(cells):
    table = cells.summary()
    assert table.loc[("item", "= b"), "all"] == 40
    assert table.loc[("person", "levels"), "chosen"] == len(np.unique(cells.indices % 40))
    assert table.loc[("age", "max"), "chosen"] == (cells.indices % 40).max()
    largest = table.loc["largest weights"].index[0]
    item, person = largest.split(", ")
    assert 40 * "abc".index(item) + int(person) in cells.indices


def test_rows_are_counted_and_the_largest_weights_listed(in_memory):
    table, weights = in_memory.summary(), in_memory.weights
    assert table.loc[("rows", "number")].tolist() == [N, 12, weights.sum()]
    worth = weights.sum() ** 2 / (weights @ weights)
    assert table.loc[("rows", "effective")].tolist() == pytest.approx([N, 12, worth])
    largest = table.loc["largest weights"]["weighted"]
    by_label = {f"row {i}": w for i, w in zip(in_memory.indices, weights, strict=True)}
    assert largest.tolist() == sorted(weights, reverse=True)[:5]
    assert largest.to_dict() == {label: by_label[label] for label in largest.index}


def test_merged_rows_count_as_often_as_they_occur(merged):
    table = merged.summary()
    assert table.loc[("rows", "distinct"), "all"] == len(np.unique(VISITS))
    for value in np.unique(VISITS):
        assert table.loc[("visits", f"= {value}"), "all"] == (value == VISITS).sum()
    chosen = VISITS[merged.indices]
    assert table.loc[("visits", f"= {chosen[0]}"), "chosen"] == 1


@pytest.mark.parametrize("block", [64, 2**16])
def test_rows_elsewhere_are_summed_by_their_case_weights(elsewhere, block, limits):
    limits(summary_rows=block)
    table, n = elsewhere.summary(), COLUMNS["n"]
    assert table.loc[("x[0]", "min"), "all"] == X[:, 0].min()
    assert table.loc[("x[0]", "max"), "all"] == X[:, 0].max()
    for code, label in enumerate("abcde"):
        assert table.loc[("shop", f"= {label}"), "all"] == n[code == SHOP].sum()
    assert table.loc[("late", "= 1"), "all"] == n[LATE == 1].sum()
    assert table.loc[("items[0]", "= 1"), "all"] == n[1::2].sum()
    assert table.loc[("items[1]", "max"), "all"] == N - 1
    mean = np.average(X[:, 1], weights=n)
    assert table.loc[("x[1]", "mean"), "all"] == pytest.approx(mean, abs=1e-12)
    sd = np.sqrt(np.average((X[:, 1] - mean) ** 2, weights=n))
    assert table.loc[("x[1]", "sd"), "all"] == pytest.approx(sd)


def test_rows_that_are_gone_are_not_known(elsewhere, tmp_path):
    pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")
    elsewhere.to_netcdf(tmp_path / "coreset.nc")
    table = elsewhere.summary()
    for model in (prototypes(), None):
        found = Coreset.from_netcdf(tmp_path / "coreset.nc", model)
        assert found.summary()["all"].loc["x[0]"].isna().all()
        lines = found.summary(["x"])[["chosen", "weighted"]]
        pd.testing.assert_frame_equal(lines, table.loc[lines.index, lines.columns])


def test_merging_leaves_the_chosen_rows_alone(elsewhere):
    both = merge(elsewhere, elsewhere, size=30, random_seed=1)
    assert both.summary().loc[("shop", "levels")].isna().tolist() == [True, False, False]


def test_without_its_model_a_coreset_says_what_to_do(merged, tmp_path):
    pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")
    merged.to_netcdf(tmp_path / "coreset.nc")
    alone = Coreset.from_netcdf(tmp_path / "coreset.nc")
    assert f"{alone.size} of 400" in repr(alone)
    with refused(CoresetError, "from_netcdf(path, model=...)"):
        alone.summary()


def test_it_is_printed_in_80_columns_and_says_the_essentials(coreset):
    text = repr(coreset)
    assert max(map(len, text.splitlines())) <= 80
    assert f"size       {coreset.size} of {coreset.n_observations:,} rows" in text
    assert max(map(len, str(coreset.summary()).splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("in_memory", "shop_number {} of 5"),
        ("cells", "person {} of 40"),
        ("elsewhere", "shop {} of 5"),
    ],
)
def test_covered_groups_are_counted(name, words, request):
    coreset = request.getfixturevalue(name)
    column = words.split()[0]
    covered = coreset.summary().loc[(column, "levels"), "chosen"]
    assert words.format(int(covered)) in " ".join(repr(coreset).split())


def test_negative_numbers_of_levels_count_from_the_end():
    numbers = np.tile([-1, 0, 1, 2], 30)
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=3)
        pm.Normal("y", effect[numbers], 1.0, observed=np.arange(120.0))
    found = unequal(build_coreset(model, **BUILD))
    [column] = {part for part, name in found.summary().index if name == "= 0"}
    lines = found.summary().loc[column]
    assert lines.loc[["= 0", "= 1", "= 2"], "all"].tolist() == [30, 30, 60]
    assert " 3 of 3\n" in repr(found)


def test_a_likelihood_term_of_which_no_row_was_chosen_is_shown_without():
    rows = np.linspace(-1.0, 1.0, 600)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=rows)
        pm.Normal("z", mu, 2.0, observed=rows[:550])
    options = {"size": 3, "method": "uniform", "random_seed": 1, "progressbar": False}
    of_both = build_coreset(model, **options)
    of_one = replace(of_both, indices=np.array([2, 5]), weights=np.array([300.0, 400.0]))
    assert np.isnan(of_one.summary().loc[("z", "mean"), "chosen"])


def test_columns_of_joined_predictors_are_those_of_their_own_terms():
    """A row of the one term repeats a value of the other's column, which does not count."""
    one, two = np.linspace(1.0, 2.0, 600), np.linspace(5.0, 6.0, 550)
    with pm.Model() as model:
        slope, other = pm.Normal("slope"), pm.Normal("other")
        mu = pt.concatenate([slope * pm.Data("one", one), other * pm.Data("two", two)])
        pm.Normal("y", mu[:600], 1.0, observed=np.zeros(600))
        pm.Normal("z", mu[600:], 2.0, observed=np.zeros(550))
    coreset = build_coreset(model, size=20, method="uniform", random_seed=1, progressbar=False)
    table = coreset.summary()
    for name, values in {"one": one, "two": two}.items():
        assert table.loc[(name, "mean"), "all"] == pytest.approx(values.mean())


def test_whole_numbers_are_printed_whole(in_memory):
    table = in_memory.summary()
    lines = {line.split()[-4]: line.split()[-3:] for line in str(table).splitlines()[2:]}
    assert lines["number"][:2] == [str(N), "12"]
    assert lines["effective"][2] == f"{table.loc[('rows', 'effective'), 'weighted']:.4g}"
    assert lines["0"][0] == f"{(LATE == 0).sum()}"  # the last of these lines: of late
    assert str(N) in table._repr_html_()
    assert f"{N}.0" not in table._repr_html_()
    assert type(table.loc["rows"]) is pd.DataFrame
    assert (table.dtypes == np.float64).all()


def test_columns_of_a_joined_matrix_have_the_names_of_their_coefficients():
    """As Bambi writes the common terms of a formula, and its group-specific ones."""
    columns = np.stack([X[:, 0], VISITS, X[:, 1]], axis=1)
    with pm.Model(coords={"kind_dim": ["b", "c"], "shop__factor_dim": list("vwxyz")}) as model:
        terms = [pm.Normal("age")[None], pm.Normal("kind", dims="kind_dim")]
        sigma, offset = pm.HalfNormal("1|shop_sigma"), pm.Normal("1|shop_offset", shape=5)
        effect = pm.Deterministic("1|shop", sigma * offset, dims="shop__factor_dim")
        mu = pt.dot(columns, pt.concatenate(terms)) + effect[SHOP]
        pm.Normal("y", mu, 1.0, observed=X[:, 0])
    table = build_coreset(model, **BUILD).summary()
    for name, values in zip(["age", "kind[b]", "kind[c]"], columns.T, strict=True):
        lines = table.loc[name, "all"]
        found = lines.get("mean", lines.get("levels"))
        expected = values.mean() if "mean" in lines else len(np.unique(values))
        assert found == pytest.approx(expected)
    assert table.loc[("shop", "= v"), "all"] == (SHOP == 0).sum()


@pytest.mark.parametrize("terms", ["of unknown names", "in other words"])
def test_a_matrix_keeps_its_number_where_a_coefficient_has_no_name(terms):
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        parts = [2 * a, b] if terms == "of unknown names" else [b, b]
        joined = pt.stack(parts)
        pm.Normal("y", pt.dot(X, joined), 1.0, observed=X[:, 0])
    table = build_coreset(model, **BUILD).summary()
    assert {"array[0]", "array[1]"} <= set(table.index.get_level_values("part"))


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda c: c.summary(["nothing"]), ("columns", "'nothing'")),
        (lambda c: c.summary("nothing"), ("columns", "'nothing'", "'visits'")),
        (lambda c: c.summary([]), ("columns=[]", "'visits'")),
        (lambda c: c.summary(3), ("columns=3", "name")),
    ],
)
def test_what_cannot_be_shown_is_named_with_a_remedy(merged, call, facts):
    with refused(InvalidOptionError, facts):
        call(merged)
