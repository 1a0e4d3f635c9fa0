"""Importance weights: smoothed, judged, and how many draws are evaluated for them."""

import math

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from scipy.signal import lfilter
from scipy.stats import genpareto

from pymc_coresets import InvalidDataError, InvalidOptionError, compare
from pymc_coresets.diagnostics import importance
from pymc_coresets.diagnostics.evaluated_draws import (
    EvaluatedDraws,
    enough_for,
    evaluate_enough,
    resample_draws,
    wanted_ess,
)
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.diagnostics.posterior_draws import Chains
from tests.refusals import refused

# -- Pareto smoothing and KL estimates against generalised Pareto tails and Gaussian closed forms. -


def gaussian_log_ratios(z, mean, scale):
    """log N(theta; 0, I) - log N(theta; mean, scale**2 I), theta = mean + scale z, last axis d."""
    theta = mean + scale * z
    return np.sum((z**2 - theta**2) / 2 + np.log(scale), axis=-1)


def gaussian_kls(mean, scale, dims):
    """KL(N(mean, scale**2 I) || N(0, I)), the reverse, and the variance of the log-ratio."""
    forward = dims * (scale**2 + mean**2 - 1 - 2 * np.log(scale)) / 2
    backward = dims * ((1 + mean**2) / scale**2 - 1 + 2 * np.log(scale)) / 2
    return forward, backward, dims * ((1 - scale**2) ** 2 / 2 + (mean * scale) ** 2)


@pytest.mark.parametrize("shape", [0.3, 0.5, 0.9])
def test_khat_recovers_shape_of_a_one_sided_pareto_tail(shape):
    # 600 points in the tail, 20 repetitions: the standard error is (1 + k) / sqrt(12000) < 0.018.
    rng = np.random.default_rng(1)
    ratios = 1 + genpareto.rvs(shape, size=(20, 4, 10_000), random_state=rng)
    found = [importance.pareto_smooth(np.log(r)).pareto_khat for r in ratios]
    assert np.mean(found) == pytest.approx(shape, abs=0.06)


def test_khat_is_negative_for_bounded_ratios():
    uniform = np.random.default_rng(1).uniform(1, 2, size=(4, 2500))
    assert importance.pareto_smooth(np.log(uniform)).pareto_khat < -0.5


@pytest.mark.parametrize("noise", [0.0, 1e-11])
def test_equal_ratios_are_an_exact_coreset(noise):
    log_r = 1234.5 + noise * np.random.default_rng(1).standard_cauchy(size=(4, 50)).clip(-9, 9)
    smoothed = importance.pareto_smooth(log_r)
    assert smoothed.pareto_khat == -np.inf
    np.testing.assert_allclose(smoothed.weights, 1 / 200, rtol=1e-9)
    assert smoothed.log_mean_ratio == pytest.approx(1234.5)


def test_ess_of_equal_ratios_is_the_number_of_draws():
    drift = np.linspace(0, 1e-9, 200).reshape(4, 50)  # rounding errors that follow a variable
    for ratios in (0 * drift, drift):
        assert importance.pareto_smooth(ratios).ess == pytest.approx(200)


def test_ratios_that_often_attain_their_bound_are_harmless():
    log_r = np.zeros((4, 100))
    log_r[:, ::2] = -np.random.default_rng(1).exponential(size=(4, 50))
    smoothed = importance.pareto_smooth(log_r)
    assert smoothed.pareto_khat == -np.inf
    np.testing.assert_allclose(smoothed.weights, np.exp(log_r) / np.exp(log_r).sum())


def test_a_bound_that_is_attained_up_to_rounding_is_harmless():
    rng = np.random.default_rng(1)
    log_r = 1e-12 * rng.normal(size=(4, 100))
    log_r[:, ::2] = -rng.exponential(size=(4, 50))
    assert importance.pareto_smooth(log_r).pareto_khat == -np.inf


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("n_draws", [8, 60, 1000])
def test_one_ratio_below_the_bound_within_the_tail_ends_the_exception(correlation, n_draws):
    # With all points of the tail equal k-hat is -inf; from the first lower one on there is a fit.
    noise = np.random.default_rng(1).normal(size=(4, n_draws))
    log_r = lfilter([1], [1, -correlation], noise, axis=1) - 100
    verdicts = []
    for length in range(1, log_r.size, max(1, log_r.size // 80)):
        tied = np.where(log_r >= np.sort(log_r, axis=None)[-length], 0.0, log_r)
        verdicts.append(importance.pareto_smooth(tied).pareto_khat == -np.inf)
    assert not verdicts[0]
    assert verdicts[-1]
    assert np.all(np.diff(np.array(verdicts, dtype=int)) >= 0)


def test_an_unknown_complaint_about_the_tail_is_no_verdict(fails):
    fails(importance.array_stats, "psislw", ValueError("something else"))
    with pytest.raises(ValueError, match="something else"):
        importance.pareto_smooth(np.random.default_rng(1).normal(size=(4, 100)))


def test_one_draw_with_all_the_weight_is_useless():
    log_r = 3000.0 * np.random.default_rng(1).normal(size=(4, 250))
    smoothed = importance.pareto_smooth(log_r)
    assert smoothed.pareto_khat > importance.KHAT_USELESS
    assert smoothed.ess < 3


def test_weights_sum_to_one_and_follow_the_ratios():
    log_r = np.random.default_rng(1).normal(size=(4, 500))
    weights = importance.pareto_smooth(log_r).weights
    assert weights.sum() == pytest.approx(1)
    order = np.argsort(log_r, axis=None)
    assert np.all(np.diff(weights.ravel()[order]) >= -1e-15)


def test_a_constant_in_the_ratios_changes_nothing_but_their_mean():
    log_r = np.random.default_rng(1).normal(size=(4, 500))
    first, second = importance.pareto_smooth(log_r), importance.pareto_smooth(log_r - 700)
    np.testing.assert_allclose(first.log_weights, second.log_weights)
    assert first.log_mean_ratio - second.log_mean_ratio == pytest.approx(700)
    kls = [importance.pareto_smooth(r) for r in (log_r, log_r - 700)]
    assert kls[0].kl == pytest.approx(kls[1].kl)


def test_mean_ratio_is_that_of_the_normalising_constants():
    z = np.random.default_rng(1).normal(size=(4, 2500, 1))
    log_r = gaussian_log_ratios(z, 0.1, 1.2)
    error = np.exp(log_r).std() / np.sqrt(log_r.size)
    assert importance.pareto_smooth(log_r).log_mean_ratio == pytest.approx(0, abs=5 * error)


def test_autocorrelation_lowers_the_ess():
    noise = np.random.default_rng(1).normal(size=(4, 2500))
    log_r = 0.01 * lfilter([1], [1, -0.9], noise, axis=1)
    # AR(1) with coefficient 0.9: 1/19 of the draws count; the weights are nearly equal.
    assert importance.pareto_smooth(log_r).ess == pytest.approx(10_000 / 19, rel=0.35)


@pytest.mark.parametrize(("correlation", "length"), [(0.0, 300), (0.9, 1300)])
def test_autocorrelation_lengthens_the_tail(correlation, length):
    # 3 sqrt(S / r_eff) points, with the relative efficiency (1 - c) / (1 + c) of AR(1) chains.
    noise = np.random.default_rng(1).normal(size=(4, 2500))
    log_r = 0.3 * lfilter([1], [1, -correlation], noise, axis=1)
    moved = log_r - importance.pareto_smooth(log_r).log_weights
    changed = np.abs(moved - np.median(moved)) > 1e-12
    assert np.sum(changed) == pytest.approx(length, rel=0.25)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_ratios_that_are_not_finite_are_refused(value):
    log_r = np.zeros((2, 50))
    log_r[1, 7] = value
    with refused(InvalidDataError, "chain 1, draw 7", topic="draws"):
        importance.pareto_smooth(log_r)


@pytest.mark.parametrize("shape", [(1, 29), (20, 3), (0, 0)])
def test_too_few_draws_are_refused(shape):
    with refused(InvalidDataError, "log_ratios", "at least 30 draws", topic="draws"):
        importance.pareto_smooth(np.zeros(shape))


def test_flat_ratios_are_refused():
    with refused(InvalidDataError, "(n_chains, n_draws)", topic="draws"):
        importance.pareto_smooth(np.zeros(100))


def test_fewest_draws_allowed_are_enough():
    """Two hundred sets of 30 independent draws, whose log-ratios have the variance v = 1/4."""
    log_r = 0.5 * np.random.default_rng(1).normal(size=(200, 1, 30))
    found = [importance.pareto_smooth(own) for own in log_r]
    np.testing.assert_allclose([f.symmetrised_kl for f in found], log_r.var(axis=(1, 2), ddof=1))
    # The mean of exp(log r) is too low by (exp(v) - 1) / 60 on average, and so is its logarithm.
    assert np.mean([f.kl for f in found]) == pytest.approx(1 / 8 - 0.005, abs=0.01)
    assert np.median([f.ess for f in found]) == pytest.approx(30 * np.exp(-1 / 4), rel=0.1)
    assert np.median([f.pareto_khat for f in found]) < 0.5


@pytest.mark.parametrize("dims", [1, 5])
@pytest.mark.parametrize(("mean", "scale"), [(0.1, 1.15), (0.3, 1.0), (-0.05, 1.02)])
def test_divergences_of_gaussians(dims, mean, scale):
    z = np.random.default_rng(1).normal(size=(4, 5000, dims))
    found = importance.pareto_smooth(gaussian_log_ratios(z, mean, scale))
    forward, backward, variance = gaussian_kls(mean, scale, dims)
    assert found.kl == pytest.approx(forward, abs=5 * found.kl_mcse)
    assert found.symmetrised_kl == pytest.approx(variance, abs=5 * found.symmetrised_kl_mcse)
    assert found.reverse_kl == pytest.approx(backward, abs=5 * found.kl_mcse)
    assert found.kl_mcse < 0.2 * forward


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_standard_errors_are_calibrated(correlation):
    # 200 independent runs of 4 x 250 draws each: the root mean square of 200 standardised errors
    # has a standard error of 1 / sqrt(400) = 0.05; the log-prior of the tolerance is for the
    # error of the estimated errors themselves.
    noise = np.random.default_rng(1).normal(size=(200, 4, 350))
    z = np.sqrt(1 - correlation**2) * lfilter([1], [1, -correlation], noise, axis=-1)[..., 100:]
    forward, _, variance = gaussian_kls(0.8, 1.2, 1)
    errors = []
    for run in z:
        found = importance.pareto_smooth(gaussian_log_ratios(run[..., None], 0.8, 1.2))
        errors.append([
            (found.kl - forward) / found.kl_mcse,
            (found.symmetrised_kl - variance) / found.symmetrised_kl_mcse,
        ])  # fmt: skip
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(errors), axis=0)), 1, atol=0.25)


def test_equal_ratios_have_no_divergence():
    found = importance.pareto_smooth(np.full((4, 50), -3.0))
    assert found.kl == pytest.approx(0, abs=1e-12)
    assert found.symmetrised_kl == found.symmetrised_kl_mcse == 0


def test_weighted_estimate_is_withheld_where_the_tail_is_heavy():
    log_r = np.log1p(genpareto.rvs(1.5, size=(4, 1000), random_state=np.random.default_rng(1)))
    found = importance.pareto_smooth(log_r)
    assert np.isnan(found.reverse_kl)
    assert found.symmetrised_kl == pytest.approx(log_r.var(ddof=1))
    # Ratios that are not in the tail stay as they are, and show what the smoothed ones sum up to.
    least = log_r.argmin()
    log_sum = log_r.flat[least] - np.log(found.weights.flat[least])
    assert found.kl == pytest.approx(log_sum - np.log(log_r.size) - log_r.mean())


def test_threshold_grows_with_the_number_of_draws():
    assert importance.khat_threshold(100) == pytest.approx(0.5)
    assert importance.khat_threshold(1_000_000) == importance.KHAT_RELIABLE


def test_systematic_resampling_repeats_each_index_as_often_as_expected():
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.full(50, 0.3))
    counts = np.bincount(importance.systematic_resample(weights, 1000, rng=rng), minlength=50)
    assert np.all(np.abs(counts - 1000 * weights) < 1)
    assert counts.sum() == 1000


def test_systematic_resampling_is_unbiased():
    rng = np.random.default_rng(1)
    weights = np.array([0.13, 0.27, 0.0, 0.6])
    draws = [importance.systematic_resample(weights, 3, rng=rng) for _ in range(4000)]
    share = np.bincount(np.ravel(draws), minlength=4) / 12_000
    np.testing.assert_allclose(share, weights, atol=5 * 0.5 / np.sqrt(12_000))


def test_any_part_of_a_systematic_resample_is_a_sample_too():
    rng = np.random.default_rng(1)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    first = [importance.systematic_resample(weights, 10, rng=rng)[0] for _ in range(4000)]
    error = np.sqrt(weights * (1 - weights) / 4000)
    assert np.all(np.abs(np.bincount(first, minlength=4) / 4000 - weights) < 5 * error)


def test_systematic_resampling_never_picks_a_trailing_zero_weight():
    rng = np.random.default_rng(1)
    weights = np.append(np.full(10, 0.1), 0.0)
    picked = [importance.systematic_resample(weights, 7, rng=rng).max() for _ in range(500)]
    assert max(picked) == 9


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e8, 1e30])
@pytest.mark.parametrize("seed", range(5))
def test_ratios_of_any_size_are_judged_without_a_warning(scale, seed):
    log_r = scale * np.random.default_rng(seed).standard_t(3, size=(1, 500))
    smoothed = importance.pareto_smooth(log_r)
    assert smoothed.pareto_khat > 0.7
    assert not smoothed.sound
    assert np.sum(smoothed.weights) == pytest.approx(1)
    assert smoothed.ess >= 0


def test_a_proposal_is_weighed_by_the_likelihood():
    proposal = Proposal(draws=np.arange(3.0), log_ratios=np.array([1.0, 2.0, 3.0]), around="here")
    weighed = proposal.weighed(np.array([0.5, -2.0, 0.0]))
    np.testing.assert_array_equal(weighed.log_ratios, [1.5, 0.0, 3.0])
    assert weighed.draws is proposal.draws
    assert weighed.around == "here"


@pytest.mark.parametrize("impossible", [-np.inf, np.nan])
def test_draws_of_a_proposal_where_the_likelihood_is_not_finite_are_left_out(impossible):
    proposal = Proposal(draws=np.arange(30.0), log_ratios=np.arange(30.0))
    loglik = np.where(np.arange(30) % 10 == 3, impossible, 0.0)
    weighed = proposal.weighed(loglik)
    expected = np.flatnonzero(np.isfinite(loglik))
    np.testing.assert_array_equal(weighed.draws, expected)
    np.testing.assert_array_equal(weighed.log_ratios, expected)
    assert proposal.weighed(np.where(np.arange(30) % 7 == 3, impossible, 0.0)) is None


# -- As many draws are evaluated as their importance weights need, each of them once. --------------

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


def test_reweighted_draws_count_by_their_own_effective_sample_size():
    theta, others = np.random.default_rng(1).normal(size=(2, 4, 500))
    full, tree = (
        xr.DataTree.from_dict({"posterior": xr.Dataset({"theta": (("chain", "draw"), v)})})
        for v in (1 + others, theta)
    )
    found = EvaluatedDraws.at_all(1.0 * theta)
    weighted = resample_draws(Chains(tree), found, rng=np.random.default_rng(1))
    row = compare(full, weighted).table.loc["theta"]
    assert row["delta_mean_noise"] > 1 / np.sqrt(weighted.posterior.attrs["psis_ess"])
    assert abs(row["delta_mean_sd"]) < 5 * row["delta_mean_noise"]
