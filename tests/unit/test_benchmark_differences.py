"""Differences between posteriors that Monte Carlo noise explains."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

from benchmarks.differences import CONFIDENCE, difference_of, largest_by_noise, tails_of
from pymc_coresets import compare

pytestmark = pytest.mark.slow  # of a benchmark


def draws(seed, shift=0.0, scale=1.0):
    """Return draws of five independent components; the last one is shifted and scaled."""
    values = np.random.default_rng(seed).normal(size=(2, 400, 5))
    values[..., -1] = shift + scale * values[..., -1]
    return xr.Dataset({"beta": (("chain", "draw", "k"), values)})


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


@pytest.mark.parametrize(("scale", "beyond"), [(1.0, False), (0.5, True)])
def test_noise_explains_tails_of_one_posterior_but_not_those_of_another(scale, beyond):
    largest, limit = tails_of(draws(1), draws(2, scale=scale))
    assert (largest > limit) == beyond


def test_a_wider_posterior_has_tails_that_much_further_out():
    expected = norm.isf(0.01)  # twice as far, in sds of the first
    largest, limit = tails_of(draws(1), draws(2, scale=2.0))
    assert largest == pytest.approx(expected, abs=limit + 0.2)
