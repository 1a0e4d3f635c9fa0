"""Warnings point to the user's own line, however deep in the package they arise."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from pymc_coresets import Coreset, CoresetWarning, build_coreset
from tests.refusals import warned


@pytest.fixture(scope="module")
def coreset() -> Coreset:
    """Three rows of a thousand: the importance weights of its posterior are useless."""
    x = np.random.default_rng(1).normal(size=1000)
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
        return build_coreset(size=3, method="uniform", random_seed=1, progressbar=False)


def far_draws():
    mu = np.random.default_rng(1).normal(scale=3.0, size=(2, 1_000))
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), mu)})})


def test_a_warning_of_the_method_points_here(coreset):
    with warned("importance weights", "k-hat") as caught:
        coreset.reweight(far_draws(), random_seed=1)
    assert [warning.filename for warning in caught] == [__file__]
