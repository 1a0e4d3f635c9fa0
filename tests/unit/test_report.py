"""The report of a coreset: what comes first, and which times it shows."""

import re
import sys
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import xarray as xr

from pymc_coresets import Certificate, Coreset, Report

SECONDS = {"reading the model": 1.0, "rounds": 3.0}


def built(seconds=SECONDS, *, log_ratios=0.01, steps=2):
    """Return a coreset whose build took these seconds, with log-ratios of that scale."""
    columns = {
        "size": [5, 6], "seconds_drawing": [1.0, 2.25], "seconds_evaluating": [0.25, 0.5],
    }  # fmt: skip
    named = {name: ("step", values[:steps]) for name, values in columns.items()}
    attrs = {f"seconds {name}": value for name, value in seconds.items()} | {"n_gradients": 7}
    draws = np.random.default_rng(1).normal(size=400)
    return Coreset(
        indices=np.arange(3),
        weights=np.array([2.0, 5.0, 1.0]),
        n_observations=900,
        n_distinct=900,
        method="auto",
        weighting="none",
        status="",
        objective=1.0,
        random_seed=None,
        history=xr.Dataset(named, attrs=attrs),
        settings={},
        loglikelihood=None,
        certificate=Certificate.of(log_ratios * draws),
    )


@pytest.mark.parametrize("log_ratios", [0.01, 50.0])
def test_the_verdict_comes_first_and_then_facts_and_times(log_ratios):
    coreset = built(log_ratios=log_ratios)
    text = " ".join(repr(coreset.report()).split())
    places = [
        text.index(part) for part in (str(coreset.certificate.verdict), "3 of 900", "took 4.0 s")
    ]
    assert places == sorted(places)
    assert text.startswith(f"Report of a coreset {coreset.certificate.verdict}")


def test_bars_are_as_long_as_their_stages():
    lines = repr(built().report()).splitlines()
    bars = {name: line.count("█") for line in lines for name in SECONDS if name in line}
    assert bars["rounds"] == pytest.approx(3 * bars["reading the model"], abs=2)


def test_times_of_the_sampler_are_those_of_the_last_step():
    assert built().report().within == {"the sampler": 2.25, "log-likelihoods": 0.5}
    assert "Of these, 2.2 s in the sampler and 0.5 s in log-likelihoods." in repr(built().report())


def test_stages_that_were_not_timed_are_left_out():
    report = built({}, steps=0).report()
    assert (report.seconds, report.within) == ({}, {})
    assert "took" not in repr(report)
    assert "Of these" not in repr(built(steps=0).report())


def test_without_a_certificate_there_is_no_verdict():
    report = replace(built(), certificate=None).report()
    assert report.verdict is None
    assert "Reliable" not in repr(report)


def test_a_notebook_shows_the_text_and_a_picture_of_the_weights():
    pytest.importorskip("matplotlib")
    text, image, _ = built().report()._repr_html_().partition("<img")
    assert unescape(re.sub("<[^<>]*>", "", text)) == repr(built().report())
    assert image


@pytest.mark.parametrize("missing", ["weights", "matplotlib"])
def test_without_weights_or_matplotlib_there_is_no_picture(missing, monkeypatch):
    coreset = built()
    if missing == "weights":
        coreset = replace(coreset, indices=np.arange(0), weights=np.empty(0))
    else:
        monkeypatch.setattr("pymc_coresets.results.reports.find_spec", lambda name: None)
    assert "<img" not in coreset.report()._repr_html_()


def open_figures() -> list[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return [] if pyplot is None else pyplot.get_fignums()


def test_a_report_leaves_no_figure_open():
    pytest.importorskip("matplotlib")
    before = open_figures()  # of tests that ran in this process
    built().report()._repr_html_()
    assert open_figures() == before


def test_lines_fit_into_a_terminal():
    long = {f"{name} {20 * 'x'}": seconds for name, seconds in SECONDS.items()}
    assert max(map(len, repr(built(long).report()).splitlines())) <= 80
    assert isinstance(built().report(), Report)
