"""Units that are kept with their labels, rows and data, and put one after the other."""

import numpy as np
import pymc as pm
import pytest

from pymc_coresets.reading.units.joined_units import kept_units, model_of_units
from pymc_coresets.rowlogp.units import unit_model

OF, SEEN = np.array([3, 0, 1, 0, 3, 1, 1, 2]), np.arange(8)
LABELS, INCOME = ["ada", "ben", "cleo", "dan"], np.array([10.0, 20.0, 30.0, 40.0])


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"user": LABELS}) as model:
        of, seen = pm.Data("of", OF), pm.Data("seen", SEEN)
        income = pm.Data("income", INCOME, dims="user")
        effect = pm.Normal("effect", pm.Normal("b") * income, 1.0, dims="user")
        pm.Poisson("y", pm.math.exp(effect[of]), observed=seen)
    return model


@pytest.fixture(scope="module")
def units(model):
    return unit_model(model, ["effect"], {})


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
