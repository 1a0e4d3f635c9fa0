"""Coresets of rows that are read in chunks: the same as those of the same rows in memory."""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import (
    Coreset,
    CoresetError,
    CoresetStream,
    InvalidDataError,
    InvalidOptionError,
    build_coreset,
    open_rows,
)
from tests.refusals import refused

N = 6_000
SETTINGS = {"random_seed": 3, "progressbar": False}
_rng = np.random.default_rng(8)
COLUMNS = {
    "X": _rng.normal(size=(N, 2)),
    "group": _rng.integers(0, 3, size=N),
    "exposure": _rng.gamma(4.0, 0.5, size=N),
}
_RATE = COLUMNS["exposure"] * np.exp(COLUMNS["X"] @ [0.3, -0.2] + 0.1 * COLUMNS["group"])
COLUMNS["count"] = _rng.poisson(_RATE)


def regression(columns, n_rows):
    with pm.Model(coords={"level": list("abc")}) as model:
        data = {n: pm.Data(n, c[:n_rows], dims=("obs", None)[: c.ndim])
                for n, c in columns.items()}  # fmt: skip
        base = pm.Normal("base", 0, 1, dims="level")
        slope = pm.Normal("slope", 0, 1, shape=2)
        standard = (data["X"] - 0.1) / 1.5
        eta = base[data["group"]] + standard @ slope + pm.math.log(data["exposure"])
        rate = pm.Deterministic("rate", pm.math.exp(eta), dims="obs")
        pm.Poisson("likelihood", rate, observed=data["count"], dims="obs")
    return model


def in_chunks(sizes):
    """Open the rows in pieces of some sizes, the last one repeated."""
    cuts = np.minimum(np.cumsum([0, *sizes, *[sizes[-1]] * (N // sizes[-1] + 1)]), N)
    pairs = [(a, b) for a, b in pairwise(cuts) if a < b or a == 0]
    return open_rows(lambda: ({n: c[a:b] for n, c in COLUMNS.items()} for a, b in pairs))


@pytest.fixture(scope="module")
def coreset():
    return build_coreset(regression(COLUMNS, 50), rows=open_rows(COLUMNS), **SETTINGS)


@pytest.mark.filterwarnings("ignore:The coreset is about")  # at draws of the prior
@pytest.mark.parametrize("method", ["auto", "pursuit", "uniform"])
def test_the_coreset_is_that_of_the_rows_in_memory(method):
    rng = np.random.default_rng(4)  # NUTS would make much of a last digit
    draws = {"base": rng.normal(size=(300, 3)), "slope": rng.normal(size=(300, 2))}
    options = {"method": method} | SETTINGS | ({"weighting": draws} if method == "pursuit" else {})
    found = build_coreset(regression(COLUMNS, 50), rows=in_chunks([1, 7, 1_000]), **options)
    expected = build_coreset(regression(COLUMNS, N), collapse=False, **options)
    assert_array_equal(found.indices, expected.indices)
    assert_allclose(found.weights, expected.weights, rtol=1e-9)
    assert found.n_observations == N


@pytest.mark.parametrize("n_cores", [1, 3])
def test_chunks_and_threads_make_no_difference(coreset, n_cores, limits):
    limits(n_cores=lambda: n_cores)
    other = build_coreset(regression(COLUMNS, 20), rows=in_chunks([997]), **SETTINGS)
    assert_array_equal(other.indices, coreset.indices)
    assert_allclose(other.weights, coreset.weights, rtol=1e-9)


def test_the_rows_come_with_their_data(coreset):
    kept = coreset.rows
    assert_array_equal(kept["position"], coreset.indices)
    assert_array_equal(kept["weight"], coreset.weights)
    assert_array_equal(kept["data X"], COLUMNS["X"][coreset.indices])
    assert kept["where"].values[0] == f"row {coreset.indices[0]}"
    assert_array_equal(coreset.model["X"].get_value(), COLUMNS["X"][coreset.indices])
    with refused(CoresetError, "prototypes", "pm.set_data"):
        coreset.full_model  # noqa: B018


def test_ratios_are_those_of_all_rows(coreset):
    rng = np.random.default_rng(2)
    draws = {"base": rng.normal(size=(40, 3)), "slope": rng.normal(size=(40, 2))}
    expected = build_coreset(regression(COLUMNS, N), method="uniform", size=5, **SETTINGS)
    whole = expected.loglikelihood.sums(draws).total
    assert_allclose(coreset.loglikelihood.sums(draws).total, whole, rtol=1e-9)


def test_files_keep_the_rows(coreset, tmp_path):
    coreset.to_netcdf(tmp_path / "coreset.nc")
    again = Coreset.from_netcdf(tmp_path / "coreset.nc", regression(COLUMNS, 30))
    idata = coreset.sample(draws=750, chains=2, random_seed=1, progressbar=False, quiet=True)
    with refused(CoresetError, "rows=", topic="coresets-in-files"):
        again.check(idata)
    rows = in_chunks([2_000])
    complete = Coreset.from_netcdf(tmp_path / "coreset.nc", regression(COLUMNS, 30), rows=rows)
    assert_allclose(complete.log_ratios(idata), coreset.log_ratios(idata), rtol=1e-9, atol=1e-9)
    assert complete.reweight(idata, random_seed=1)["posterior"].sizes["draw"] == 750
    changed = COLUMNS | {"count": COLUMNS["count"] + 1}
    with refused(InvalidDataError, "6000", "open_rows", topic="coresets-in-files"):
        Coreset.from_netcdf(
            tmp_path / "coreset.nc", regression(COLUMNS, 30), rows=open_rows(changed)
        )


@pytest.mark.parametrize("kind", ["int32", "int8"])
def test_whole_numbers_that_do_not_fit_are_refused(kind):
    """`pm.Data` makes int32 of the prototypes' numbers: others would change their sign."""
    rows = open_rows({"n": np.r_[np.arange(1_000), 2**31 + 5]})
    with pm.Model() as model:
        n = pm.Data("n", rows.head(100)["n"].astype(kind))
        pm.Normal("y", pm.Normal("mu"), 1e6, observed=n)
    with refused(InvalidDataError, "2147483653", "pm.Data('n')", topic="rows-and-files"):
        build_coreset(model, rows=rows, method="uniform", size=20, **SETTINGS)


@pytest.fixture(scope="module")
def impossible():
    count = COLUMNS["count"].copy()
    count[[4_217, 5_000]] = -1
    return COLUMNS | {"count": count}


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 3), pytest.param({"method": "giga", "size": 10}, 5, marks=pytest.mark.slow)],
)
def test_impossible_observations_are_found_by_the_first_look(impossible, options, most):
    """Beside the first reading and those of samples: one that notices, and one that finds rows."""
    readings = []

    def chunks():
        readings.append(1)
        for part in (slice(0, 4_000), slice(4_000, None)):
            yield {name: column[part] for name, column in impossible.items()}

    rows = open_rows(chunks)
    readings.clear()
    with refused(InvalidDataError, "chunk 1, row 217", "1 more"):
        build_coreset(regression(COLUMNS, 50), rows=rows, **options, **SETTINGS)
    assert len(readings) <= most


def test_impossible_observations_of_a_pilot_are_named(impossible):
    with refused(InvalidDataError, "row 4,217", "1 more"):
        CoresetStream(regression(COLUMNS, 50), pilot=impossible, random_seed=1)


def test_case_weights_count():
    counts = _rng.poisson(2.0, size=N)
    weighted = open_rows(COLUMNS | {"n": counts}, weight="n")
    options = {"rows": weighted, "method": "uniform", "size": 20} | SETTINGS
    found = build_coreset(regression(COLUMNS, 50), **options)
    assert found.n_observations == counts.sum()
    assert found.n_distinct == N


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"method": "sparse_vi"}, ("rows=...", "method='sparse_vi'")),
        ({"collapse": True}, ("collapse=True", "rows=...")),
        ({"allow_local": True}, ("allow_local=True", "rows=...")),
        ({"dim": ("obs", "level")}, ("dim=", "cells")),
        ({"rows": COLUMNS}, "open_rows"),
    ],
)
def test_what_needs_all_rows_in_memory_is_refused(options, facts):
    options = {"rows": open_rows(COLUMNS)} | options
    with refused(InvalidOptionError, facts):
        build_coreset(regression(COLUMNS, 50), **options, **SETTINGS)


def test_laplace_of_all_rows_reads_them_for_each_gradient():
    options = {"method": "pursuit", "weighting": "laplace", "size": 20} | SETTINGS
    found = build_coreset(regression(COLUMNS, 50), rows=open_rows(COLUMNS), **options)
    in_memory = build_coreset(regression(COLUMNS, N), **options)
    assert set(found.indices) == set(in_memory.indices)


def test_pymcs_own_densities_of_rows_elsewhere():
    rng = np.random.default_rng(1)
    rows = open_rows({"x": rng.normal(1.0, 1.0, size=70_000)})
    with pm.Model() as model:
        x, mu = pm.Data("x", rows.head(10)["x"]), pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=x)
    coreset = build_coreset(
        model, rows=rows, size=5, method="uniform", random_seed=1, progressbar=False
    )
    mu = xr.DataArray(1 + 0.004 * rng.normal(size=(2, 10)), dims=("chain", "draw"))
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    found = coreset.verify(idata, draws=20)
    assert found.n_draws == 20
    assert found.difference < 1e-7


def test_a_matrix_of_one_column():
    rng = np.random.default_rng(1)
    columns = {"x": rng.normal(size=(300, 1)), "y": rng.binomial(1, 0.4, size=300)}
    with pm.Model() as model:
        x, y = (pm.Data(name, values[:50]) for name, values in columns.items())
        pm.Bernoulli("z", logit_p=pm.Normal("a") + x @ pm.Normal("b", shape=1), observed=y)
    rows = open_rows(columns)
    coreset = build_coreset(
        model, rows=rows, size=5, method="uniform", random_seed=1, progressbar=False
    )
    assert coreset.n_observations == 300
