"""Sensitivity coresets of rows that are read in chunks: those of the same rows in memory."""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import (
    InvalidOptionError,
    Sensitivity,
    UnsupportedModelError,
    build_coreset,
    open_rows,
)
from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.seen_rows import SeenRows, seen_rows_of
from pymc_coresets.papers.sensitivity import Sensitivities, SignedBlocks
from pymc_coresets.papers.signed_rows import signed_by_labels
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.of_model import RowsToRead, likelihood_of_rows
from pymc_coresets.rows.memory import InMemoryRows
from tests.refusals import refused

N = 15_001  # so that the clusters are found in a sample
SETTINGS = {"random_seed": 3, "progressbar": False}
_rng = np.random.default_rng(8)
COLUMNS = {"X": _rng.normal(size=(N, 2)), "shift": 0.3 * _rng.normal(size=N)}
COLUMNS["late"] = _rng.binomial(1, 1 / (1 + np.exp(-COLUMNS["X"] @ [1.0, -0.5])))
COLUMNS["n"] = _rng.poisson(1.5, size=N).astype(float)
OPTIONS = {"weighted": ("n", True), "equal": (None, False)}


def regression(n_rows):
    with pm.Model() as model:
        X, shift, late = (pm.Data(name, COLUMNS[name][:n_rows]) for name in ("X", "shift", "late"))
        eta = pm.Normal("a") + X @ pm.Normal("b", shape=2) + shift
        pm.Bernoulli("likelihood", logit_p=eta, observed=late)
    return model


def in_chunks(sizes, weight=None):
    cuts = np.minimum(np.cumsum([0, *sizes, *[sizes[-1]] * (N // sizes[-1] + 1)]), N)
    pairs = [(a, b) for a, b in pairwise(cuts) if a < b]
    return open_rows(
        lambda: ({k: c[a:b] for k, c in COLUMNS.items()} for a, b in pairs), weight=weight
    )


@pytest.mark.parametrize("case", OPTIONS)
def test_bounds_and_rows_are_those_of_the_rows_in_memory(case):
    weight, exact = OPTIONS[case]
    weights = np.ones(N) if weight is None else COLUMNS["n"]
    ball = Sensitivity(exact_centers=exact)
    chunks, rng = in_chunks([7, 6_000], weight), np.random.default_rng(1)
    loglik = likelihood_of_rows(regression(30), RowsToRead(rows=chunks), rng=rng)
    read = loglik.source, seen_rows_of(loglik, find_linear_predictor)
    held = SeenRows(find_linear_predictor(find_observations(regression(N))))
    found, expected = (
        Sensitivities.of(
            SignedBlocks(source, lambda rows, seen=seen: signed_by_labels(seen.of(rows)), 2_048),
            ball.bound,
            6,
            rng=np.random.default_rng(2),
        )
        for source, seen in (read, (InMemoryRows([COLUMNS["late"]], weights), held))
    )
    assert found.mean == pytest.approx(expected.mean, rel=1e-9)
    assert found.bound.radius == pytest.approx(expected.bound.radius, rel=1e-9)
    assert found.largest == pytest.approx(expected.largest, rel=1e-9)
    every = signed_by_labels(held.of(InMemoryRows([], weights, np.arange(N)).all))
    assert found.largest == pytest.approx(expected.bound.values(every).max(), rel=1e-9)
    subsample, its = (each.draw(300, key=9) for each in (found, expected))
    assert_array_equal(subsample.rows.positions, its.rows.positions)
    assert_allclose(subsample.weights, its.weights, rtol=1e-9)
    assert_array_equal(subsample.rows.case_weights, weights[subsample.rows.positions])


def test_the_coreset_is_that_of_the_rows_in_memory():
    options = {"method": "sensitivity", "size": 100} | SETTINGS
    found = build_coreset(regression(30), rows=in_chunks([4_000]), **options)
    expected = build_coreset(regression(N), collapse=False, **options)
    assert_array_equal(found.indices, expected.indices)
    assert_allclose(found.weights, expected.weights, rtol=1e-9)
    figures = ("radius", "mean sensitivity")
    assert_allclose(*([c.history.attrs[f] for f in figures] for c in (found, expected)))


def test_what_does_not_fit_is_named():
    with refused(InvalidOptionError, "2 numbers", "3 coefficients"):
        build_coreset(
            regression(30), rows=in_chunks([8_000]), method=Sensitivity(center=[0, 0]), **SETTINGS
        )
    with pm.Model() as poisson:
        X, late = (pm.Data(name, COLUMNS[name][:30]) for name in ("X", "late"))
        pm.Poisson("likelihood", pm.math.exp(X @ pm.Normal("b", shape=2)), observed=late)
    with refused(
        UnsupportedModelError, "method='sensitivity'", "logistic", "chunk", topic="regressions"
    ):
        build_coreset(poisson, rows=in_chunks([8_000]), method="sensitivity", **SETTINGS)
