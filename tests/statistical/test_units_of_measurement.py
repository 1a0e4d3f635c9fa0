"""Outcomes in cents or in millions: the same rows, with the same weights."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import build_coreset

N, LEVELS = 1_500, 60
MILLION = 2.0**20  # a power of two moves no digit


def model(kind: str, unit: float) -> pm.Model:
    """Return a regression whose outcome and priors are in some unit."""
    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(N, 26)), rng.normal(size=N)
    level, effects = rng.integers(LEVELS, size=N), rng.normal(0, 0.5, size=LEVELS)
    x = x[:, :2] if kind == "few" else x
    y = 1 + x[:, 0] + noise
    with pm.Model() as found:
        mean = pm.Normal("intercept", 0, 10 * unit)
        if kind == "levels":
            scale = pm.HalfNormal("scale", 10 * unit)
            mean += pm.Normal("effect", 0, scale, shape=LEVELS)[level]
            y = y - x[:, 0] + effects[level]
        else:
            mean += x @ pm.Normal("slopes", 0, 10 * unit, shape=x.shape[1])
        pm.Normal("y", mean, pm.HalfNormal("noise", 10 * unit), observed=unit * y)
    return found


@pytest.mark.parametrize(
    "kind", ["few", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("wide", "levels"))]
)
def test_the_unit_of_the_outcome_changes_nothing(kind):
    options = {"integrate": ["effect"]} if kind == "levels" else {}
    one, other = (
        build_coreset(model(kind, unit), random_seed=1, progressbar=False, **options)
        for unit in (1.0, MILLION)
    )
    assert_array_equal(one.indices, other.indices)
    assert_allclose(one.weights, other.weights, rtol=1e-3)
    assert (other.modes is None) == (one.modes is None)
    check = other.check(other.sample(random_seed=1, progressbar=False, quiet=True))
    assert check.reliable
    assert check.second_opinion is not None
