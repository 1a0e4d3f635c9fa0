"""As many draws are evaluated as their importance weights need, each of them once."""

import math

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import InvalidOptionError
from pymc_coresets.diagnostics.evaluated_draws import (
    EvaluatedDraws,
    enough_for,
    evaluate_enough,
    resample_draws,
    wanted_ess,
)
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.diagnostics.posterior_draws import Chains
from tests.refusals import refused

DIMS = ("chain", "draw")


def enough_draws(idata, densities, *, ess, at_least=0):
    chains = Chains(idata)
    wanted, first = enough_for(chains, ess), max(ess, at_least)
    return evaluate_enough(chains, densities, wanted, first=first, impossible="")


@pytest.fixture
def idata():
    theta = np.random.default_rng(1).normal(size=(4, 1000))
    draws = xr.Dataset({"theta": (DIMS, theta)})
    return xr.DataTree.from_dict({"posterior": draws, "sample_stats": draws.rename(theta="lp")})


class Shifted:
    """Densities of N(shift, 1) and of N(0, 1), the former up to another constant in each call."""

    def __init__(self, shift):
        self.shift, self.calls = shift, []

    def __call__(self, some):
        theta = some["posterior"]["theta"].to_numpy()
        self.calls.append(theta)
        log_p = -((theta - self.shift) ** 2) / 2
        return (log_p - log_p.mean()).ravel(), (-(theta**2) / 2).ravel()


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.7])
def test_they_are_worth_what_was_asked_for(idata, shift):
    densities = Shifted(shift)
    found = enough_draws(idata, densities, ess=300)
    assert found.smoothed.ess >= 300
    assert found.log_p.size < 4 * 300 * np.exp(shift**2)  # the variance of weights is exp(d²) - 1
    assert len(densities.calls) <= 3


def test_ratios_of_several_passes_are_those_of_one(idata):
    densities = Shifted(0.7)
    found = enough_draws(idata, densities, ess=300)
    assert len(densities.calls) > 1
    theta = Chains(idata).some(found.numbers)["posterior"]["theta"].to_numpy()
    assert_array_equal(theta, idata["posterior"]["theta"].values[:, found.numbers])
    expected = 0.7 * theta
    off = found.log_ratios - expected
    assert_allclose(off, off.mean(), atol=1e-12)
    # What is known already is evaluated again at one draw of each chain only.
    n_calls = sum(call.size for call in densities.calls)
    assert n_calls == found.log_p.size + 4 * (len(densities.calls) - 1)


def test_the_first_ones_are_spread_evenly(idata):
    found = enough_draws(idata, Shifted(0.0), ess=40)
    assert (found.numbers[0], found.numbers[-1]) == (0, 999)
    assert np.diff(found.numbers).max() <= np.diff(found.numbers).min() + 1


def test_chains_that_move_slowly_need_more(idata):
    """Draws that repeat themselves ten times are worth a tenth, though their weights are equal."""
    posterior = idata["posterior"].to_dataset()
    slow = posterior.isel(draw=np.repeat(np.arange(100), 10)).assign_coords(draw=np.arange(1000))
    tree = xr.DataTree.from_dict({"posterior": slow})
    assert enough_draws(idata, Shifted(0.0), ess=600).log_p.size == 600
    assert enough_draws(tree, Shifted(0.0), ess=600).log_p.size == 4_000


@pytest.mark.parametrize(
    ("options", "n_evaluated"),
    [({"ess": math.inf}, 4_000), ({"ess": 8, "at_least": 1e9}, 4_000), ({"ess": 1}, 32)],
)
def test_bounds_of_how_many(idata, options, n_evaluated):
    densities = Shifted(0.0)
    assert enough_draws(idata, densities, **options).log_p.size == n_evaluated
    assert len(densities.calls) == 1


def test_weights_without_a_variance_take_all_draws(idata):
    def cubed(some):
        theta = some["posterior"]["theta"].to_numpy()
        return (100 * theta**3).ravel(), np.zeros(theta.size)

    assert enough_draws(idata, cubed, ess=100).log_p.size == 4_000


def test_only_draws_that_were_evaluated_are_resampled(idata):
    found = enough_draws(idata, Shifted(0.5), ess=200)
    tree = resample_draws(Chains(idata), found, rng=np.random.default_rng(1))
    theta = tree["posterior"]["theta"].to_numpy()
    assert theta.shape == found.log_p.shape
    assert np.isin(theta, Chains(idata).some(found.numbers)["posterior"]["theta"]).all()
    assert_array_equal(tree["sample_stats"]["lp"], theta)
    attrs = tree["posterior"].attrs
    assert abs(theta.mean() - 0.5) < 4 / np.sqrt(attrs["psis_ess"])
    assert attrs["n_evaluated"] == found.log_p.size
    assert f"evaluated at {found.log_p.size} of 4,000 draws" in attrs["verdict"]


def test_nothing_is_said_of_the_number_where_all_were_evaluated(idata):
    ratios = 0.5 * idata["posterior"]["theta"].to_numpy()
    found = EvaluatedDraws.at_all(ratios)
    one = resample_draws(Chains(idata), found, rng=np.random.default_rng(1))
    assert "evaluated" not in one["posterior"].attrs["verdict"]
    assert one["posterior"].attrs["psis_ess"] <= pareto_smooth(ratios).ess


@pytest.mark.parametrize("value", [0, -1.0, math.nan, "all", True, None, -math.inf])
def test_sizes_that_are_none_are_named(value):
    with refused(InvalidOptionError, "ess=", "positive"):
        wanted_ess(value)
