"""Variables of levels are integrated out of rows that lie elsewhere, which the model holds then."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from numpy.typing import ArrayLike

from pymc_coresets import (
    Coreset,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    build_coreset,
    coreset_of,
    open_rows,
    sample,
)
from tests.builds import of_some_rows
from tests.refusals import refused

N_LEVELS = 300
_rng = np.random.default_rng(3)
ROWS = {"user": _rng.permutation(np.repeat(np.arange(N_LEVELS), 3)), "x": _rng.normal(size=900)}
EFFECTS = _rng.normal(size=N_LEVELS)
ROWS["seen"] = 0.5 * ROWS["x"] + EFFECTS[ROWS["user"]] + _rng.normal(size=900)


def model_of(n_rows: int, offset: ArrayLike = 0.0) -> pm.Model:
    """Return a model that holds so many of the rows."""
    with pm.Model(coords={"name": [f"u{i}" for i in range(N_LEVELS)]}) as model:
        user, x, seen = (pm.Data(name, values[:n_rows]) for name, values in ROWS.items())
        z = pm.Normal("z", 0.0, pm.HalfNormal("sd"), dims="name")
        pm.Normal("y", pm.Normal("b") * x + z[user] + offset, 1.0, observed=seen)
    return model


@pytest.fixture(scope="module")
def prototypes() -> pm.Model:
    return model_of(40)


@pytest.fixture(scope="module")
def coreset(prototypes: pm.Model) -> Coreset:
    return build_coreset(prototypes, rows=open_rows(ROWS), random_seed=1, progressbar=False)


def test_it_is_the_coreset_of_a_model_that_holds_all_rows(prototypes, coreset):
    whole = build_coreset(model_of(900), random_seed=1, progressbar=False)
    np.testing.assert_array_equal(coreset.indices, whole.indices)
    np.testing.assert_array_equal(coreset.weights, whole.weights)
    assert coreset.n_observations == N_LEVELS
    assert [v.name for v in coreset.model.free_RVs] == ["sd", "b"]
    assert len(prototypes["x"].get_value()) == 40  # the user's model is left as it is


def test_it_is_read_from_its_file_with_the_rows(prototypes, coreset, tmp_path: Path):
    coreset.to_netcdf(tmp_path / "a.nc")
    draws = coreset.sample(draws=100, chains=2, random_seed=1, progressbar=False)
    again = Coreset.from_netcdf(tmp_path / "a.nc", prototypes, rows=open_rows(ROWS))
    assert again.verify(draws).difference < 1e-6
    found, known = (each.recover(draws, levels=["u3"], random_seed=2) for each in (again, coreset))
    np.testing.assert_array_equal(found["z"], known["z"])
    with refused(InvalidDataError, "300 observations", "39", topic="coresets-in-files"):
        Coreset.from_netcdf(tmp_path / "a.nc", prototypes)
    others = open_rows(ROWS | {"seen": ROWS["seen"] + 1.0})
    with pytest.raises(InvalidDataError):
        Coreset.from_netcdf(tmp_path / "a.nc", prototypes, rows=others)


def test_one_call_draws_the_effects_of_all_levels(prototypes):
    idata = sample(prototypes, rows=open_rows(ROWS), random_seed=1, progressbar=False)
    assert idata.attrs["level"] == "Reliable"
    assert idata["posterior"]["z"].sizes["name"] == N_LEVELS
    # Each mean is a shrunken one of three rows, up to Monte Carlo error.
    draws = idata["posterior"].to_dataset().mean(("chain", "draw"))
    sums = np.bincount(ROWS["user"], ROWS["seen"] - float(draws["b"]) * ROWS["x"])
    errors = draws["z"].values - sums / (3 + float(draws["sd"]) ** -2)
    assert np.abs(errors).max() < 0.1
    again = coreset_of(idata, prototypes, rows=open_rows(ROWS))
    assert (again.n_observations, again.loglikelihood.n_dims) == (N_LEVELS, 2)


def test_effects_of_single_rows_are_those_of_all_rows():
    counts = np.random.default_rng(4).poisson(np.exp(np.random.default_rng(5).normal(1, 1, 600)))
    with pm.Model() as model:
        seen = pm.Data("seen", counts[:30])
        e = pm.Normal("e", 0.0, pm.HalfNormal("s"), shape=seen.shape[0])
        pm.Poisson("y", pm.math.exp(pm.Normal("a") + e), observed=seen)
    rows = open_rows({"seen": counts})
    found = build_coreset(model, rows=rows, random_seed=1, progressbar=False)
    assert found.n_observations == 600
    assert found.weights.sum() == pytest.approx(600)
    assert found.loglikelihood.n_dims == 2


@pytest.mark.parametrize("options", [{}, {"integrate": "e"}])
def test_models_without_any_other_variable_are_refused(options):
    with pm.Model() as model:
        seen = pm.Data("seen", ROWS["seen"][:30])
        pm.Normal("unseen")
        pm.Normal("y", pm.Normal("e", shape=seen.shape[0]), 1.0, observed=seen)
    rows = open_rows({"seen": ROWS["seen"]})
    with refused(UnsupportedModelError, "['e']", "prior", topic="models-that-are-refused"):
        build_coreset(model, rows=rows, random_seed=1, progressbar=False, **options)


def test_what_cannot_be_held_together_is_refused(prototypes, limits, caplog):
    weighted = open_rows(ROWS | {"w": np.ones(900)}, weight="w")
    with refused(InvalidOptionError, "weights", "integrate=False"):
        build_coreset(prototypes, rows=weighted, integrate="z", progressbar=False)
    with refused(UnsupportedModelError, "900 rows", "302"):
        build_coreset(prototypes, rows=weighted, progressbar=False)
    assert "Variables of levels remain parameters. Rows with weights" in caplog.text
    limits(free_memory=lambda: 100_000)
    with refused(InvalidOptionError, "0.0 GB", "0.125", "integrate=False"):
        build_coreset(prototypes, rows=open_rows(ROWS), integrate="z", progressbar=False)


def test_shapes_that_are_numbers_of_rows_are_refused():
    model, rows = model_of(40, offset=np.zeros(40)), open_rows(ROWS)
    with refused(InvalidDataError, "(900,)", "(40,)", "no shape"):
        build_coreset(model, rows=rows, progressbar=False)


def test_columns_that_are_missing_or_out_of_range_are_refused(prototypes):
    fewer = {name: values for name, values in ROWS.items() if name != "user"}
    with refused(InvalidDataError, "'seen': (900,)", "'user': (40,)"):
        build_coreset(prototypes, rows=open_rows(fewer), progressbar=False)
    beyond = open_rows(ROWS | {"user": ROWS["user"] + 1})
    with refused(InvalidDataError, "3 rows", "index 300", "size 300"):
        build_coreset(prototypes, rows=beyond, progressbar=False)


def test_rows_of_units_need_no_executor(prototypes):
    with ThreadPoolExecutor(1) as pool:
        coreset = of_some_rows(prototypes, rows=open_rows(ROWS), executor=pool)
    assert coreset.loglikelihood.observations.integrated == ("z",)
    assert coreset.n_observations == N_LEVELS


def test_all_rows_are_read_in_one_pass():
    rows = open_rows([{"x": np.arange(4.0), "k": np.arange(4)}, {"x": np.ones(2), "k": [7, 8]}])
    found = rows.together(["k"])
    assert list(found) == ["k"]
    np.testing.assert_array_equal(found["k"], [0, 1, 2, 3, 7, 8])


def test_levels_of_many_rows_stay_parameters_however_few_the_prototypes_have():
    rng, n = np.random.default_rng(1), 20_000  # forty rows for each of five hundred levels
    rows = open_rows(
        {"x": rng.normal(size=(n, 60)), "user": np.arange(n) % 500, "seen": rng.normal(size=n)}
    )
    with pm.Model() as model:
        x, user, seen = (pm.Data(name, values) for name, values in rows.head(1_000).items())
        z = pm.Normal("z", 0.0, 1.0, shape=500)
        pm.Normal("y", x @ pm.Normal("b", shape=60) + z[user], 1.0, observed=seen)
    coreset = of_some_rows(model, rows=rows)
    assert coreset.loglikelihood.observations.integrated == ()
    assert coreset.n_observations == n
