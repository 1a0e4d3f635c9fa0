"""Warnings point to the user's own line, however deep in the package they arise."""

import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_coresets
from pymc_coresets import Coreset, CoresetWarning, build_coreset
from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws, resample_draws
from pymc_coresets.diagnostics.posterior_draws import Chains
from pymc_coresets.exceptions import warn_user
from tests.refusals import warned

PACKAGE = Path(pymc_coresets.__file__).parent


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


def test_a_warning_of_reweighted_draws_points_here():
    idata = far_draws()
    found = EvaluatedDraws.at_all(100 * idata.posterior["mu"].to_numpy())
    with warned("importance weights", "k-hat") as caught:
        resample_draws(Chains(idata), found, rng=np.random.default_rng(1))
    assert [warning.filename for warning in caught] == [__file__]


def test_a_warning_of_the_method_points_here(coreset):
    with warned("importance weights", "k-hat") as caught:
        coreset.reweight(far_draws(), random_seed=1)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_warning_within_a_context_points_here():
    code = """
@contextmanager
def reading():
    warn_user("few draws")
    yield

with reading():
    pass
"""
    names = {"warn_user": warn_user, "contextmanager": contextmanager}
    with pytest.warns(CoresetWarning) as caught:
        exec(compile(code, f"{PACKAGE}/build.py", "exec"), names)
    assert caught[0].filename == __file__


def test_a_folder_whose_name_only_begins_alike_is_the_users():
    path = f"{PACKAGE}_of_mine/analysis.py"
    with pytest.warns(CoresetWarning) as caught:
        exec(compile("warn_user('few draws')", path, "exec"), {"warn_user": warn_user})
    assert caught[0].filename == path
