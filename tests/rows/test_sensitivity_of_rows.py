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
from tests.refusals import refused

N = 15_001  # so that the clusters are found in a sample
SETTINGS = {"random_seed": 3, "progressbar": False}
_rng = np.random.default_rng(8)
COLUMNS = {"X": _rng.normal(size=(N, 2)), "shift": 0.3 * _rng.normal(size=N)}
COLUMNS["late"] = _rng.binomial(1, 1 / (1 + np.exp(-COLUMNS["X"] @ [1.0, -0.5])))
COLUMNS["n"] = _rng.poisson(1.5, size=N).astype(float)


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


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("weight", ["n", None])
def test_the_coreset_is_that_of_the_rows_in_memory(weight, exact):
    """Of rows with case weights: that of the same rows in one chunk."""
    ball = Sensitivity(exact_centers=exact)
    options = {"method": ball, "size": 300} | SETTINGS
    found = build_coreset(regression(30), rows=in_chunks([7, 6_000], weight), **options)
    if weight is None:
        expected = build_coreset(regression(N), collapse=False, **options)
    else:
        expected = build_coreset(regression(30), rows=in_chunks([N], weight), **options)
    assert_array_equal(found.indices, expected.indices)
    assert_allclose(found.weights, expected.weights, rtol=1e-9)
    figures = ("radius", "mean sensitivity", "largest sensitivity")
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
