import numpy as np
import pytest

from pymc_coresets.glm.predictor.row_graph import evenly_spread, spread_rows


@pytest.mark.parametrize("n", [1, 10, 1_000])
def test_gaps_are_nearly_equal(n):
    gaps = np.diff(np.r_[0.0, np.sort(evenly_spread(n)), 1.0])
    assert gaps.max() < 3 / (n + 1)


@pytest.mark.parametrize("period", [2, 3, 8, 16, 32])
@pytest.mark.parametrize("n_obs", [2**20, 10**6])
def test_rows_that_repeat_in_a_period_are_all_met(n_obs, period):
    met = np.bincount(spread_rows(n_obs, 200) % period, minlength=period)
    assert met.min() > 0.3 * 200 / period


def test_all_rows_are_taken_where_they_are_few():
    np.testing.assert_array_equal(spread_rows(5, 5), np.arange(5))
    assert len(spread_rows(6, 5)) <= 5
