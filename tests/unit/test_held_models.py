"""Models inside other packages' objects: found by what these have, or refused as ever."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pymc as pm
import pytest

from pymc_coresets import InvalidOptionError, build_coreset
from tests.builds import QUIET, of_some_rows
from tests.refusals import refused, warned

with pm.Model() as MODEL:
    pm.Normal("y", pm.Normal("mean"), 1.0, observed=np.arange(60.0))


class LikeBambi:
    """Has its PyMC model once it is built."""

    def __init__(self):
        self.backend, self.n_built = None, 0

    def build(self):
        self.backend, self.n_built = SimpleNamespace(model=MODEL), self.n_built + 1


class LikeHssm:
    """Has its PyMC model beside the model of Bambi that made it."""

    def __init__(self):
        self.model = LikeBambi()
        self.model.build()

    @property
    def pymc_model(self):
        return self.model.backend.model


class LikeMarketing:
    """Has no attribute before it is built."""

    def build_model(self):
        self.model = MODEL


def test_the_model_of_each_neighbour_is_found():
    built, of_bambi = LikeMarketing(), LikeBambi()
    built.build_model()
    for holder in (built, LikeHssm(), of_bambi, of_bambi):
        assert of_some_rows(holder).full_model is MODEL
    assert of_bambi.n_built == 1


def test_what_holds_no_model_is_refused_by_its_own_name():
    never = SimpleNamespace(backend=None, build=lambda: None)
    for holder in (LikeMarketing(), never, SimpleNamespace(model="glm")):
        with refused(InvalidOptionError, f"model is a {type(holder).__name__}", "pm.Model"):
            of_some_rows(holder)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Bambi's libraries
def test_a_formula_of_bambi_is_summarised():
    bambi = pytest.importorskip("bambi")
    rng = np.random.default_rng(1)
    x = rng.normal(size=500)
    table = pd.DataFrame({"x": x, "y": rng.normal(x)})
    formula = bambi.Model("y ~ x", table, center_predictors=False)
    quick = {"size": 20, "method": "uniform"} | QUIET
    coreset = build_coreset(formula, **quick)
    with warned("center_predictors=False", "coreset.predict()"):
        build_coreset(bambi.Model("y ~ x", table), **quick)
    assert coreset.full_model is formula.backend.model
    assert coreset.n_observations == 500


def test_a_number_of_draws_in_place_of_the_model_is_told_its_name():
    """As in `pm.sample(500)`."""
    with refused(InvalidOptionError, "model is a int", "draws=500"):
        of_some_rows(500)
