"""Units that are kept with their labels, rows and data, and put one after the other."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pymc as pm
import pytest

from pymc_coresets import UnsupportedModelError
from pymc_coresets.reading.units.joined_units import kept_units, model_of_units
from pymc_coresets.reading.units.labels import texts_of
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from tests.models.units import nodes_at, read
from tests.refusals import refused

OF, SEEN = np.array([3, 0, 1, 0, 3, 1, 1, 2]), np.arange(8)
LABELS, INCOME = ["ada", "ben", "cleo", "dan"], np.array([10.0, 20.0, 30.0, 40.0])
DATA = {"of": OF, "seen": SEEN, "w": INCOME, "labels": LABELS}


def model_of(labels):
    with pm.Model(coords={"user": labels}) as model:
        of, seen = pm.Data("of", OF), pm.Data("seen", SEEN)
        income = pm.Data("income", INCOME, dims="user")
        effect = pm.Normal("effect", pm.Normal("b") * income, 1.0, dims="user")
        pm.Poisson("y", pm.math.exp(effect[of]), observed=seen)
    return model


@pytest.fixture(scope="module")
def model():
    return model_of(LABELS)


@pytest.fixture(scope="module")
def units(model):
    return read(model, "effect")


def test_units_are_kept_with_their_own_labels_rows_and_data(units):
    kept = kept_units(units, np.array([1, 3]))
    assert kept["label"].to_numpy().tolist() == ["ben", "dan"]
    assert kept["size"].to_numpy().tolist() == [3, 2]
    assert kept["data seen"].to_numpy().tolist() == [2, 5, 6, 0, 4]
    [income] = [values for name, values in kept.items() if name.endswith("income")]
    assert income.to_numpy().tolist() == [20.0, 40.0]


def test_units_of_several_parts_follow_each_other(model, units):
    filled = model_of_units(model, [kept_units(units, np.array(some)) for some in ([1, 3], [0])])
    assert list(filled.coords["user"]) == ["ben", "dan", "ada"]
    assert filled["of"].get_value().tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert filled["seen"].get_value().tolist() == [2, 5, 6, 0, 4, 1, 3]
    assert filled["income"].get_value().tolist() == [20.0, 40.0, 10.0]
    assert model["seen"].get_value().tolist() == SEEN.tolist()  # left as it was


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [float, np.float32, str])
def test_labels_are_the_same_whatever_their_type(other):
    numbers = np.arange(7, 12)
    assert texts_of(numbers) == texts_of([other(i) for i in numbers])


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_dates_are_known_again_in_any_unit(unit):
    days = np.datetime64("2000-01-31") + np.arange(3)
    known = texts_of(days.astype(f"datetime64[{unit}]"))
    assert known == texts_of([pd.Timestamp(day) for day in days])
    labels = np.datetime64("2000-01-31", unit) + np.arange(4)
    units = read(model_of(labels), "effect")
    filled = model_of_units(model_of(labels), [kept_units(units, np.array([1, 2]))])
    assert texts_of(filled.coords["user"]) == texts_of(labels[1:3])


# -- what cannot be joined -------------------------------------------------------------------------


def unlabelled(data) -> pm.Model:
    with pm.Model() as model:
        user, seen = pm.Data("of", data["of"]), pm.Data("seen", data["seen"])
        effect = pm.Normal("effect", pm.Normal("a"), pm.HalfNormal("s"), shape=len(data["w"]))
        pm.Poisson("y", pm.math.exp(effect[user]), observed=seen)
    return model


def constant(data) -> pm.Model:
    with pm.Model(coords={"user": data["labels"]}) as model:
        user = pm.Data("of", data["of"])
        effect = pm.Normal("effect", pm.Normal("a"), pm.HalfNormal("s"), dims="user")
        pm.Poisson("y", pm.math.exp(effect[user]), observed=data["seen"])
    return model


def without_index(data) -> pm.Model:
    with pm.Model(coords={"user": data["labels"]}) as model:
        user, seen = pm.Data("of", data["of"] + 1), pm.Data("seen", data["seen"])
        effect = pm.Normal("effect", pm.Normal("a"), pm.HalfNormal("s"), dims="user")
        pm.Poisson("y", pm.math.exp(effect[user - 1]), observed=seen)
    return model


def without_dims(data) -> pm.Model:
    with pm.Model(coords={"user": data["labels"]}) as model:
        user, seen = pm.Data("of", data["of"]), pm.Data("seen", data["seen"])
        w = pm.Data("w", data["w"])
        effect = pm.Normal("effect", pm.Normal("g") * w, pm.HalfNormal("s"), dims="user")
        pm.Poisson("y", pm.math.exp(effect[user]), observed=seen)
    return model


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (unlabelled, ("['effect']", "labels", 'dims="level"')),
        (constant, ("array", "not in pm.Data")),
        (without_index, ("['effect']", "No data container")),
        (without_dims, ("(w)", "dims")),
    ],
)
def test_what_other_units_cannot_be_joined_to_is_refused(kind, facts):
    model = kind(DATA)
    units = read(model, "effect")
    with refused(UnsupportedModelError, facts):
        kept_units(units, units.levels)


# -- units of single rows, and equal ones ----------------------------------------------------------


def units_of_rows(n: int, part: int) -> pm.Model:
    """Return counts with an effect each: levels are rows, and have no index."""
    counts = np.random.default_rng(part).poisson(
        np.exp(1 + np.random.default_rng(9).normal(size=n))
    )
    with pm.Model(coords={"row": [f"{part} {i}" for i in range(n)]}) as model:
        seen = pm.Data("seen", counts, dims="row")
        effect = pm.Normal("effect", 0.0, pm.HalfNormal("s"), dims="row")
        pm.Poisson("y", pm.math.exp(pm.Normal("a") + effect), observed=seen, dims="row")
    return model


def test_units_of_single_rows_are_joined_by_the_labels_of_rows():
    models = [units_of_rows(8, part) for part in (1, 2)]
    units = [read(model, "effect") for model in models]
    parts = [kept_units(units[0], np.array([2, 5])), kept_units(units[1], np.arange(8))]
    filled = model_of_units(models[0], parts)
    assert list(filled.coords["row"])[:3] == ["1 2", "1 5", "2 0"]
    found = filled["seen"].get_value()
    known = [model["seen"].get_value() for model in models]
    np.testing.assert_array_equal(found, np.r_[known[0][[2, 5]], known[1]])
    np.testing.assert_array_equal(models[0]["seen"].get_value(), known[0])  # left as it was


def test_equal_units_are_merged_with_all_that_they_represent():
    model = unlabelled({"of": np.array([0, 1, 1, 2]), "seen": np.array([4, 1, 2, 4]), "w": [0] * 3})
    units = replace(read(model, "effect"), case_weights=np.array([5.0, 2.0, 3.0]))
    loglik = LogLikelihood(nodes_at(units, 3), collapse=True)
    np.testing.assert_array_equal(loglik.in_memory.all.case_weights, [8.0, 2.0])
    np.testing.assert_array_equal(loglik.collapsed(collapse=False).total_weight, 10.0)
