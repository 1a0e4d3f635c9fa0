"""Averages of rows over draws: predicted errors, and differences in any unit."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
from numpy.testing import assert_allclose

from pymc_coresets.glm.control_variates.averaged import row_quadratics
from pymc_coresets.glm.control_variates.expansion import AveragedRows, reliability
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.reading.observations import find_observations


def test_the_predicted_divergence_is_that_of_the_best_factor():
    """An estimate of variance v, times c, misses a signal of variance s by (1 - c)^2 s + c^2 v."""
    signal, noise = np.array([-2.0, 2.0, -2.0, 2.0]), 3.0
    none = dict.fromkeys(("draws", "slope", "curvature", "missed"), np.zeros(0))
    sample = SimpleNamespace(variance=lambda size: noise / size)
    rows = AveragedRows(residual=signal, sample=sample, **none)
    factors = np.linspace(0.0, 1.0, 100_001)
    for size in (1, 4):
        errors = (1 - factors) ** 2 * signal.var() + factors**2 * noise / size
        assert_allclose(rows.missed_by(size), errors.min(), rtol=1e-8)
        assert_allclose(reliability(4.0, noise / size), factors[errors.argmin()], atol=1e-5)


def test_differences_of_rows_in_large_units_are_no_rounding_errors():
    """Draws that are all equal do not say how far to step: the rows do."""
    unit = 2.0**30
    with pm.Model() as model:
        y = unit * np.random.default_rng(1).normal(size=50)
        pm.Normal("y", pm.Normal("b", 0.0, unit), unit, observed=y)
    found = find_predictors(find_observations(model))
    rows = RowsInMemory(found, np.arange(50), np.ones(50))
    each = row_quadratics(rows, np.zeros(1), np.zeros((8, 1)))
    assert_allclose(each.curvatures * unit**2, -1.0, rtol=1e-3)
