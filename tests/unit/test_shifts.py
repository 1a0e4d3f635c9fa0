"""The largest shifts by importance weights, of normal draws whose answers are known."""

import numpy as np
import pytest
import xarray as xr

from pymc_coresets.diagnostics.posterior_draws import Chains

SHAPE = (4, 5_000)


def weighted(log_weights):
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def test_the_largest_shift_of_a_mean_is_found_and_named():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=SHAPE), 3.0 * rng.normal(size=(*SHAPE, 2))
    y[..., 0] = 1.0
    dims = ("chain", "draw")
    posterior = xr.Dataset({"x": (dims, x), "y": ((*dims, "k"), y)})
    mean, sd = Chains(posterior).largest_shifts(weighted(0.2 * y[..., 1] / 3.0 + 0.05 * x))
    assert mean.name == "y[1]"
    assert mean.size == pytest.approx(0.2, abs=4 * mean.error)  # of N(0.2, 1) over N(0, 1)
    assert 0.2 / np.sqrt(x.size) < mean.error < 0.6 / np.sqrt(x.size)
    # Of the sd nothing changes: the largest of six errors, in the weights' own scale.
    assert abs(sd.size) < 0.05


def test_the_largest_change_of_a_standard_deviation_is_found():
    x = np.random.default_rng(2).normal(size=SHAPE)
    posterior = xr.Dataset({"x": (("chain", "draw"), x), "same": (("chain", "draw"), 0 * x)})
    _, sd = Chains(posterior).largest_shifts(weighted(-(x**2) / 2 * (1 / 0.95**2 - 1)))
    assert sd.name == "x"
    assert sd.size == pytest.approx((0.95**2 - 1) / 2, abs=4 * sd.error)


def test_constants_and_words_have_no_shift():
    posterior = xr.Dataset({"c": (("chain", "draw"), np.ones(SHAPE)), "n": ("k", np.arange(3.0))})
    weights = np.full(SHAPE, 1 / np.prod(SHAPE))
    assert Chains(posterior).largest_shifts(weights) == (None, None)
