"""The models of ``benchmarks.vignettes``, and what its table tells of their draws."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_coresets as pmc
from benchmarks.public_data import MissingDataError
from benchmarks.vignette_models import CASES
from benchmarks.vignettes import HEADER, Found, Run, drawn_from, line_of, report
from tests.modes import PLAIN_MODE

pytestmark = pytest.mark.slow  # of a benchmark


@pytest.mark.filterwarnings("ignore:PyTensor could not link")  # PyMC's initial points of LKJ
@pytest.mark.parametrize("key", CASES)
def test_every_row_of_the_data_is_observed_and_factors_have_their_effects(key):
    case = CASES[key]
    try:
        model, data = case.model()
    except MissingDataError as error:
        pytest.skip(str(error))
    [observed] = model.observed_RVs
    assert observed.shape.eval().tolist() == [len(data)]
    assert np.isfinite(model.compile_logp(mode=PLAIN_MODE)(model.initial_point()))
    sizes = {n for v in model.free_RVs for n in v.shape.eval()}
    assert {data[name].nunique() for name in case.groups} <= sizes


def test_what_draws_are_from_is_told_in_a_few_words():
    x = np.random.default_rng(1).normal(size=500)
    with pm.Model():
        pm.Normal("y", pm.Normal("mean"), 1.0, observed=x)
        found = pmc.sample(random_seed=1, progressbar=False)
    kept = found["coreset"].sizes["row"]
    assert drawn_from(found, len(x)) == f"{kept} of 500 rows"
    assert drawn_from(xr.DataTree(), 500) == "NUTS"
    assert drawn_from(xr.DataTree(xr.Dataset(attrs={"psis_ess": 9})), 500) == "weighted"


def test_runs_without_draws_have_a_line_of_the_table():
    ours, nuts = Run(said="not done after 300 s"), Run(said="0 divergences", seconds=3.0)
    found = Found(key="wine", ours=ours, nuts=nuts)
    line = dict(zip(HEADER, line_of(found), strict=True))
    assert line["draws"] == "not done after 300 s"
    assert line["rows, groups, D"] == "72, 9, 16"
    assert line["CPU s (NUTS)"] == "– (3)"
    assert line["mean, sd (noise)"] == ""
    assert report([found]).count("\n") == 2
