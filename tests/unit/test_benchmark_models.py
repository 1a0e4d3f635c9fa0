"""The benchmark of real models: differences that noise explains, records, and tables."""

import json
import time
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

from benchmarks.differences import CONFIDENCE, difference_of, largest_by_noise
from benchmarks.example_models import BUILD, FULL, IMPROPER, SAMPLE, available
from benchmarks.model_records import Record, quality_table, read, timing_table, within
from benchmarks.models import FullRun, ProcessorWatch
from pymc_coresets import compare

RECORD = Record(
    name="model", n_obs=20_190, n_dims=10, size=52, n_rounds=2, n_passes=6.1, status="",
    warnings=[], verdict="Reliable: the draws serve.", reliable=True, khat=0.1, ess=900.0,
    n_draws=2000, kl=0.001, symmetrised_kl=0.002, rhat=1.001, n_divergences=0, draws=1000,
    seconds={BUILD: 30.0, SAMPLE: 20.0, within(BUILD, "drawing"): 25.0},
    processor={BUILD: 15.0, SAMPLE: 10.0}, full_rhat=1.002,
)  # fmt: skip


def draws(seed, shift=0.0, scale=1.0):
    """Return draws of five independent components; the last one is shifted and scaled."""
    values = np.random.default_rng(seed).normal(size=(2, 400, 5))
    values[..., -1] = shift + scale * values[..., -1]
    return xr.Dataset({"beta": (("chain", "draw", "k"), values)})


# -- differences -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 200])
def test_largest_of_equal_errors_has_a_closed_form(n):
    """Each of n lies within the limit with probability 0.95 ** (1 / n)."""
    expected = 0.3 * norm.isf((1 - CONFIDENCE ** (1 / n)) / 2)
    assert largest_by_noise(pd.Series(np.full(n, 0.3))) == pytest.approx(expected)


def test_largest_of_unequal_errors_exceeds_the_limit_one_time_in_20():
    """Five standard errors of a share."""
    sds, n = np.array([0.02, 0.1, 0.1, 0.3]), 40_000
    errors = np.abs(sds * np.random.default_rng(1).normal(size=(n, len(sds)))).max(axis=1)
    share = np.mean(errors > largest_by_noise(pd.Series(sds)))
    assert abs(share - 0.05) < 5 * np.sqrt(0.05 * 0.95 / n)


def test_constant_components_have_no_noise():
    assert largest_by_noise(pd.Series([0.0, 0.0])) == 0
    with_constant, without = (largest_by_noise(pd.Series(s)) for s in ([0.0, 0.2], [0.2]))
    assert with_constant == without


def test_noise_explains_what_two_runs_of_one_posterior_differ_by():
    found = difference_of(compare(full=draws(1), approximation=draws(2)))
    assert found.beyond_noise == []
    assert 0 < found.mean < found.mean_limit
    assert 0 < found.sd < found.sd_limit


@pytest.mark.parametrize("change", [{"shift": -0.5}, {"scale": 0.5}, {"scale": 2.0}], ids=repr)
def test_noise_does_not_explain_another_posterior(change):
    found = difference_of(compare(full=draws(1), approximation=draws(2, **change)))
    assert found.beyond_noise == ["beta[4]"]
    if "shift" in change:
        assert (found.mean_of, found.mean > found.mean_limit) == ("beta[4]", True)
        assert found.mean == pytest.approx(0.5, abs=found.mean_limit)
    else:
        assert (found.sd_of, found.sd > found.sd_limit) == ("beta[4]", True)
        assert found.sd == pytest.approx(np.log(2), abs=found.sd_limit)


# -- records ---------------------------------------------------------------------------------------


def test_ratio_is_that_of_getting_to_the_posterior():
    assert np.isnan(RECORD.ratio)
    sampled = replace(
        RECORD,
        seconds=RECORD.seconds | {FULL: 150.0},
        processor=RECORD.processor | {FULL: 100.0},
    )
    assert (sampled.ratio, sampled.processor_ratio) == (3, 4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"symmetrised_kl": 0.02}, ["KL 0.02 above 0.01"]),
        ({"reliable": False, "verdict": "Doubtful: a heavy tail."}, ["doubtful"]),
        ({"n_divergences": 3}, ["3 divergences"]),
        ({"full_rhat": 1.2}, ["all rows: R-hat 1.20"]),
        ({"processor": {BUILD: 2.0, SAMPLE: 1.0, FULL: 1.0}}, ["slower than all rows"]),
    ],
)
def test_shortfalls_are_said(change, said):
    assert replace(RECORD, **change).shortfalls == said


def test_components_beyond_noise_are_shortfalls():
    other = difference_of(compare(full=draws(1), approximation=draws(2, shift=1.0)))
    same = difference_of(compare(full=draws(1), approximation=draws(2)))
    assert replace(RECORD, before=same, after=other).shortfalls == [
        "reweighted: 1 components beyond noise"
    ]


def test_records_survive_the_file(tmp_path):
    difference = difference_of(compare(full=draws(1), approximation=draws(2)))
    records = [RECORD, replace(RECORD, name="other", before=difference, after=difference)]
    path = tmp_path / "records.json"
    path.write_text(json.dumps([asdict(r) for r in records]))
    assert read(path) == records


def test_full_runs_are_kept(tmp_path):
    posterior = draws(1).assign_attrs(sampling_time=3.5)
    idata = xr.DataTree.from_dict({"posterior": posterior})
    path = tmp_path / "runs" / "model.nc"
    FullRun(idata=idata, seconds=12.5, processor=20.0).keep(path)
    again = FullRun.kept_in(path)
    assert (again.seconds, again.processor, again.cached) == (12.5, 20.0, True)
    xr.testing.assert_identical(again.idata["posterior"].to_dataset(), posterior)


def test_waiting_takes_none_of_the_processor_s_time():
    watch = ProcessorWatch()
    with watch("wait"):
        time.sleep(0.3)
    with watch("work"):
        started = time.process_time()
        while time.process_time() < started + 0.3:
            pass
    assert watch.seconds["wait"] >= 0.29
    assert watch.processor["wait"] < watch.processor["work"] / 2
    assert watch.processor["work"] == pytest.approx(0.3, abs=0.1)


# -- tables ----------------------------------------------------------------------------------------


def cells(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


def test_parts_stand_below_what_they_are_parts_of():
    rows = cells(
        timing_table(
            [RECORD, replace(RECORD, name="other", seconds={BUILD: 1.0, SAMPLE: 2.0}, processor={})]
        )
    )
    assert rows[0] == ["seconds", "model", "other"]
    assert rows[2:5] == [
        [BUILD, "30.0 / 15.0", "1.0"],
        ["– drawing", "25.0", ""],
        [SAMPLE, "20.0 / 10.0", "2.0"],
    ]


def test_times_of_an_earlier_run_are_marked():
    kept = replace(RECORD, seconds=RECORD.seconds | {FULL: 100.0}, full_cached=True)
    by_part = {row[0]: row[1] for row in cells(timing_table([kept]))}
    assert (by_part[BUILD], by_part[FULL]) == ("30.0 / 15.0", "100.0 *")


def test_every_row_has_as_many_cells_as_the_heading():
    compared = difference_of(compare(full=draws(1), approximation=draws(2)))
    records = [RECORD, replace(RECORD, before=compared, after=compared)]
    assert len({len(row) for row in cells(quality_table(records))}) == 1


# -- models ----------------------------------------------------------------------------------------


def test_models_are_those_of_the_examples_and_the_improper_one():
    pytest.importorskip("statsmodels", reason="examples/randhie.py reads its data from it")
    names = list(available(flights=False))
    assert names[-1] == IMPROPER
    assert {"randhie_poisson", "robust", "varying_slopes", "mixture"} <= set(names)
    assert "flights" not in names
