"""The models of ``benchmarks.strangers``, and how their results are judged."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning

from benchmarks.stranger_models import CASES
from benchmarks.strangers import Found, judge, not_in, report

pytestmark = pytest.mark.slow  # of a benchmark


@pytest.mark.parametrize("key", CASES)
def test_known_values_are_those_of_the_model(key):
    case = CASES[key]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        model, truth = case.model(20 / case.n_units, 1)
    shapes = {rv.name: tuple(rv.shape.eval()) for rv in model.unobserved_RVs if rv.name in truth}
    assert shapes == {name: np.shape(value) for name, value in truth.items()}


def posterior(**means):
    rng = np.random.default_rng(1)
    draws = {n: rng.normal(m, 1.0, size=(4, 500, *np.shape(m))) for n, m in means.items()}
    return xr.Dataset(
        {n: (("chain", "draw", *(["person"] * (x.ndim - 2))), x) for n, x in draws.items()}
    )


def test_values_outside_of_their_intervals_are_counted():
    effects = np.linspace(-1, 1, 100)
    found = judge(posterior(mean=0.5, effect=effects), {"mean": 3.5, "effect": effects})
    assert (found.outside, found.known) == (1, 101)
    assert found.worst == pytest.approx(3.0, abs=0.2)


def test_variables_that_the_result_lacks_are_named():
    with pm.Model(coords={"person": range(3)}) as model:
        pm.Normal("mean")
        pm.Normal("effect", dims="person")
        pm.Normal("other", shape=3)
        pm.Deterministic("twice", 2 * model["mean"])
    drawn = posterior(mean=0.0, effect=np.zeros(3), other=np.zeros(3))
    assert not_in(drawn, model) == ("other", "twice")


def test_a_refusal_has_a_line_of_the_table():
    lines = report([Found(name="walks", said="refused: UnsupportedModelError")]).splitlines()
    assert lines[-1].startswith("| walks |  | refused: UnsupportedModelError |")
