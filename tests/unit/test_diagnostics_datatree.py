"""Checks and re-weighted draws of Gaussian posteriors, where every answer is known."""

import re
import warnings
from dataclasses import fields, replace

import numpy as np
import pytest
import xarray as xr
from scipy.signal import lfilter

from pymc_coresets import (
    Certificate,
    Check,
    InvalidDataError,
    Level,
    Modes,
    PolynomialCheck,
    Reason,
    Verdict,
)
from pymc_coresets.diagnostics import evaluated_draws
from pymc_coresets.diagnostics.evaluated_draws import (
    EvaluatedDraws,
    evaluate_enough,
    resample_draws,
)
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.diagnostics.known_posterior import MODE, NOT_SOUGHT
from pymc_coresets.diagnostics.lines import NO_PROBES, Probes
from pymc_coresets.diagnostics.posterior_draws import Chains, Copies, Shift, thinned
from tests.refusals import refused, warned

DIMS = ("chain", "draw")
SEEN = Probes(outside=0.0, most=0.0, where="", n_points=30, largest=0.3)
ONE_MODE = Modes(
    positions=xr.Dataset({"theta": (MODE, [0.0])}), sds=xr.Dataset({"theta": (MODE, [1.0])}),
    mass=np.ones(1), n_ended=np.array([24]), n_starts=24, images=("",),
).seen_by({"theta": np.zeros(3)})  # fmt: skip
GOOD = Check(
    pareto_khat=0.3, ess=3000.0, n_draws=4000, kl=0.001, kl_mcse=1e-4, symmetrised_kl=0.002,
    symmetrised_kl_mcse=2e-4, largest=0.5, rhat=1.002, ess_bulk=2000.0, ess_tail=1500.0,
    n_divergences=0, probes=SEEN, modes=ONE_MODE,
)  # fmt: skip
ALONE = {"probes": NO_PROBES}
FAR = replace(GOOD, kl=0.1, symmetrised_kl=0.2)


def check_draws(idata, log_ratios):
    return EvaluatedDraws.at_all(np.asarray(log_ratios)).check(Chains(idata))


def reweight_draws(idata, log_ratios, **options):
    found = EvaluatedDraws.at_all(np.asarray(log_ratios))
    return resample_draws(Chains(idata), found, **options)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def idata(rng):
    """Draws of N(0, 1), of which the groups agree draw by draw."""
    theta = rng.normal(size=(4, 1000))
    draws = xr.Dataset(
        {"theta": (DIMS, theta), "twice": ((*DIMS, "k"), np.stack([theta, 2 * theta], axis=-1))},
        coords={"chain": np.arange(4), "draw": np.arange(1000), "k": ["a", "b"]},
    )
    return xr.DataTree.from_dict({
        "posterior": draws,
        "sample_stats": xr.Dataset(
            {"diverging": (DIMS, theta > 3.4), "lp": (DIMS, -(theta**2) / 2)}
        ),
        "warmup_posterior": draws.isel(draw=slice(10)),
        "observed_data": xr.Dataset({"y": ("obs", [1.0, 2.0])}),
    })  # fmt: skip


def shifted(idata, shift):
    """Log-ratios that make N(shift, 1) of draws of N(0, 1)."""
    return shift * idata.posterior["theta"]


def test_exact_coreset_is_reliable_as_it_is(idata):
    check = check_draws(idata, np.zeros((4, 1000)))
    assert check.reliable
    assert not check.needs_reweighting
    assert check.pareto_khat == -np.inf
    assert check.kl == pytest.approx(0, abs=1e-12)


def test_rounding_errors_with_a_heavy_tail_do_no_harm(idata, rng):
    log_r = 1e-6 * rng.standard_cauchy(size=(4, 1000)).clip(-1e4, 1e4)
    check = check_draws(idata, log_r)
    assert check.pareto_khat > 0.7
    assert check.reliable


def test_a_moderate_shift_is_reliable_once_reweighted(idata):
    check = check_draws(idata, shifted(idata, 0.4))
    assert check.reliable
    assert check.needs_reweighting
    assert check.kl == pytest.approx(0.08, abs=5 * check.kl_mcse)
    assert check.verdict.level is Level.REWEIGHTED


def test_a_far_posterior_is_not_to_be_used(idata):
    check = check_draws(idata, 100 * idata.posterior["theta"] ** 3)
    assert not check.reliable
    assert check.verdict.level is Level.UNUSABLE


def test_convergence_is_read_from_the_draws(idata):
    check = check_draws(idata, np.zeros((4, 1000)))
    theta = idata.posterior["theta"].values
    assert 0 < check.n_divergences == (theta > 3.4).sum()
    assert check.rhat < 1.01
    assert 3000 < check.ess_bulk < 6000


def test_one_stuck_variable_is_seen(idata):
    idata["posterior"]["stuck"] = idata.posterior["theta"] + 3 * idata.posterior["chain"]
    check = check_draws(idata, np.zeros((4, 1000)))
    assert check.rhat > 1.5
    assert not check.reliable
    assert check.verdict.reason is Reason.STUCK


@pytest.mark.parametrize(
    ("changes", "converged"),
    [
        ({"rhat": 1.01}, True),
        ({"rhat": 1.0101}, False),
        ({"ess_bulk": 400.0}, True),
        ({"ess_bulk": 399.0}, False),
        ({"ess_tail": 400.0}, True),
        ({"ess_tail": 399.0}, False),
        ({"ess_tail": 799.0, "n_chains": 8}, False),
        ({"ess_tail": 399.0, "n_chains": 2}, False),
        ({"rhat": np.nan, "n_chains": 1}, True),
        ({"rhat": np.inf}, False),
    ],
)
def test_chains_have_converged_within_the_limits_of_pymc(changes, converged):
    found = replace(GOOD, **changes)
    assert found.converged is found.reliable is converged


def test_slow_distances_from_the_middle_are_seen_in_the_tails():
    """Chains that change sides at every step mix well, but not in how far out they are."""
    rng = np.random.default_rng(4)
    distance = np.exp(0.3 * lfilter([1], [1, -0.97], rng.normal(size=(4, 1000)), axis=1))
    x = distance * rng.choice([-1.0, 1.0], size=distance.shape)
    posterior = xr.Dataset({"x": (DIMS, x)})
    check = check_draws(xr.DataTree.from_dict({"posterior": posterior}), np.zeros((4, 1000)))
    assert check.ess_tail < 400
    assert check.ess_bulk > 2_000
    assert not check.converged


def test_convergence_may_be_judged_by_more_draws_than_were_evaluated(idata):
    chains = Chains(idata)
    numbers = chains.spread(100)
    some = 0.4 * idata.posterior["theta"].values[:, numbers]
    check = EvaluatedDraws(numbers, some, np.zeros_like(some)).check(chains)
    assert check.n_draws == 100
    assert check.ess_bulk == check_draws(idata, np.zeros((4, 1000))).ess_bulk


@pytest.mark.parametrize(("draws", "per_chain"), [(100, 25), (101, 26), (3, 1), (10**6, 1_000)])
def test_draws_are_thinned_evenly(idata, draws, per_chain):
    theta = thinned(idata, draws)["posterior"]["theta"]
    assert theta.sizes["draw"] == per_chain
    assert np.isin(theta.values, idata.posterior["theta"].values).all()


def test_constant_variables_do_not_matter(idata):
    before = check_draws(idata, np.zeros((4, 1000)))
    idata["posterior"]["one"] = xr.ones_like(idata.posterior["theta"])
    assert check_draws(idata, np.zeros((4, 1000))) == before
    assert before.rhat == pytest.approx(1, abs=0.01)


def test_chains_that_stand_still_apart_have_not_converged(idata):
    idata["posterior"]["still"] = idata.posterior["chain"] + 0 * idata.posterior["theta"]
    check = check_draws(idata, np.zeros((4, 1000)))
    assert check.rhat == np.inf
    assert not check.reliable


def test_a_single_chain_is_said(idata):
    one = xr.DataTree.from_dict({"posterior": idata["posterior"].to_dataset().isel(chain=[0])})
    check = check_draws(one, np.zeros((1, 1000)))
    assert np.isnan(check.rhat)
    assert check.n_divergences is None
    assert "single chain" in check.verdict.text
    assert "divergences" not in repr(check)


@pytest.mark.parametrize("n_chains", [1, 4])
def test_draws_that_do_not_move_have_not_converged(n_chains):
    still = xr.Dataset({"theta": (DIMS, np.ones((n_chains, 1000)))})
    check = check_draws(still, np.zeros((n_chains, 1000)))
    assert check.ess_bulk == 0
    assert not check.reliable
    assert ("single chain" in check.verdict.text) == (n_chains == 1)


def correlated(rng, *, n_chains=4, n_draws=1000, coefficient=0.98):
    """Draws of N(0, 1) by an autoregressive process."""
    noise = np.sqrt(1 - coefficient**2) * rng.normal(size=(n_chains, n_draws + 500))
    draws = lfilter([1], [1, -coefficient], noise, axis=1)[:, 500:]
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"theta": (DIMS, draws)})})


def test_weighted_draws_are_worth_no_more_than_the_chains_they_come_from(rng):
    """Ratios that are independent of the draws: their own autocorrelation says nothing."""
    tree = correlated(rng, coefficient=0.9, n_draws=4_000)
    check = check_draws(tree, 0.3 * rng.normal(size=(4, 4_000)))
    kish = np.exp(-(0.3**2))  # of log-normal weights, as a share of the draws
    assert check.ess_bulk < 2_000
    assert check.ess == pytest.approx(kish * check.ess_bulk, rel=0.1)


def test_resampled_draws_are_worth_no_more_than_their_chains(rng):
    """`compare` takes its noise level from that, since their order is random."""
    tree = correlated(rng, coefficient=0.9, n_draws=4_000)
    again = reweight_draws(tree, np.zeros((4, 4_000)), rng=rng)
    ess = check_draws(tree, np.zeros((4, 4_000))).ess_bulk
    assert again.posterior.attrs["psis_ess"] == pytest.approx(ess)


def test_reweighting_says_that_draws_have_not_converged(idata, rng):
    apart = idata["posterior"].to_dataset() + 50 * (xr.DataArray(np.arange(4), dims="chain") // 2)
    tree = xr.DataTree.from_dict({"posterior": apart})
    with warned("not converged"):
        again = reweight_draws(tree, np.zeros((4, 1000)), rng=rng)
    assert Verdict.stored(again.posterior.attrs).reason is Reason.STUCK
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reweight_draws(tree, np.zeros((4, 1000)), rng=rng, independent=True)


def test_groups_that_are_no_draws_of_the_posterior_are_not_resampled(idata, rng):
    for name in ("prior", "warmup_posterior"):
        idata[name] = idata["posterior"].to_dataset()
    found = reweight_draws(idata, shifted(idata, 0.5), rng=rng)
    xr.testing.assert_identical(found["prior"].ds, idata["prior"].ds)
    assert "warmup_posterior" not in found.children


def test_many_short_chains_are_judged_by_some_draws_of_each(rng):
    many = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"a": (DIMS, rng.normal(size=(200, 50)))})}
    )
    equal = lambda some: 2 * [np.zeros(some["posterior"]["a"].size)]  # noqa: E731
    check = evaluated_draws.check_draws(Chains(many), equal, impossible="")
    assert check.n_draws == 800


def test_data_without_posterior_are_refused():
    with refused(InvalidDataError, "groups", "no posterior", topic="draws"):
        check_draws(xr.DataTree.from_dict({"prior": xr.Dataset()}), np.zeros((4, 10)))


def test_a_dataset_will_do_and_has_no_divergences_recorded(idata):
    check = check_draws(idata["posterior"].to_dataset(), shifted(idata, 0.3))
    assert check.n_divergences is None
    assert check.kl == pytest.approx(check_draws(idata, shifted(idata, 0.3)).kl)


def test_draws_of_another_kind_are_refused():
    with refused(InvalidDataError, "idata is a dict", "pm.sample", topic="draws"):
        check_draws({"a": np.zeros((4, 10))}, np.zeros((4, 10)))


@pytest.mark.parametrize("bad", [-np.inf, np.nan])
def test_draws_that_the_full_data_exclude_are_counted(idata, bad):
    def densities(some):
        log_p = np.zeros(some["posterior"]["theta"].size)
        log_p[: log_p.size // 4] = bad
        return log_p, np.zeros_like(log_p)

    facts = ("25.0%", "impossible")
    with refused(InvalidDataError, facts, topic="draws"):
        evaluate_enough(Chains(idata), densities, lambda _: 0.0, impossible="not to be used")


def test_draws_without_chains_are_refused():
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"a": ("draw", np.zeros(50))})})
    with refused(InvalidDataError, "{'draw': 50}", "chain and draw", topic="draws"):
        check_draws(tree, np.zeros((1, 50)))


@pytest.mark.parametrize(
    ("check", "reason", "start"),
    [
        (GOOD, "tolerance", "Reliable: the draws can be used as they are"),
        (
            replace(GOOD, modes=NOT_SOUGHT),
            "tolerance",
            "Reliable around this mode (others were not looked for)",
        ),
        (replace(GOOD, pareto_khat=1.5), "collapsed", "Not to be used:"),  # however small they are
        (
            replace(GOOD, pareto_khat=0.8),
            "heavy_tail",
            "Doubtful: the importance weights have a heavy",
        ),
        (replace(GOOD, pareto_khat=1.5, largest=0.39), "tolerance", "Reliable:"),
        (
            replace(GOOD, pareto_khat=1.5, largest=0.39, probes=NO_PROBES),
            "tolerance",
            "Reliable at the draws (check",
        ),
        (
            replace(GOOD, pareto_khat=1.5, largest=0.39, probes=replace(SEEN, outside=1e-3)),
            "collapsed",
            "Not to be used:",
        ),
        (replace(GOOD, pareto_khat=np.inf, kl_mcse=0.1), "collapsed", "Not to be used:"),
        (replace(GOOD, symmetrised_kl=0.0096), "tolerance", "Reliable:"),
        (replace(GOOD, symmetrised_kl=0.0097), "weights", "Reliable once re-weighted:"),
        (replace(GOOD, symmetrised_kl_mcse=0.0041), "weights", "Reliable once re-weighted:"),
        (replace(GOOD, symmetrised_kl_mcse=0.0041, tolerance=0.011), "tolerance", "Reliable:"),
        (replace(GOOD, kl=0.0099), "weights", "Reliable once re-weighted:"),
        (
            replace(GOOD, modes=NOT_SOUGHT, kl=0.0099),
            "weights",
            "Reliable once re-weighted around this mode",
        ),
        (FAR, "weights", "Reliable once re-weighted:"),
        (replace(FAR, ess=20.0), "few_draws", "Doubtful: the re-weighted draws have an effective"),
        (replace(FAR, pareto_khat=0.71), "heavy_tail", "Doubtful:"),
        (replace(FAR, pareto_khat=0.6, n_draws=100), "heavy_tail", "Doubtful:"),
        (replace(FAR, pareto_khat=1.0), "collapsed", "Not to be used:"),
        (replace(GOOD, rhat=1.2), "unconverged", "Not to be used yet:"),
        (replace(GOOD, rhat=1.2, ess_tail=99.0), "stuck", "Not to be used: the chains are stuck"),
        (replace(FAR, pareto_khat=1.0, rhat=1.2), "collapsed", "Not to be used: a few draws"),
        (replace(GOOD, ess_bulk=50.0), "unconverged", "Not to be used yet:"),
        (replace(GOOD, rhat=np.nan), "tolerance", "Reliable:"),
        (replace(GOOD, probes=replace(SEEN, outside=0.0076)), "tolerance", "Reliable:"),
        (
            replace(GOOD, probes=replace(SEEN, outside=0.0077)),
            "weights",
            "Reliable once re-weighted:",
        ),
        (
            replace(GOOD, probes=replace(SEEN, outside=0.02)),
            "weights",
            "Reliable once re-weighted:",
        ),
        (
            replace(GOOD, probes=replace(SEEN, outside=0.02, most=0.02, where="alpha")),
            "tail",
            "Doubtful: the full posterior reaches further along alpha than the coreset posterior",
        ),
        (
            replace(GOOD, probes=replace(SEEN, misfit=5.1, misfit_limit=5.0, misfit_where="beta")),
            "foreign",
            "Not to be used: these are not draws of the coreset posterior. By its own density,",
        ),
        (
            replace(GOOD, probes=replace(SEEN, misfit=4.9, misfit_limit=5.0)),
            "tolerance",
            "Reliable:",
        ),
        (replace(GOOD, n_divergences=4), "tolerance", "Reliable:"),
        (
            replace(GOOD, n_divergences=9),
            "divergences",
            "Doubtful: NUTS reported 9 divergences in 4,000",
        ),
        (replace(GOOD, copies=Copies(0.04)), "tolerance", "Reliable:"),
        (
            replace(GOOD, copies=Copies(0.25)),
            "copied",
            "Not to be used: 25% of the draws are copies",
        ),
        (
            replace(GOOD, copies=Copies(0.25, "b[2]")),
            "copied",
            "Not to be used: 25% of the draws of b[2] are copies",
        ),
        (
            replace(GOOD, probes=Probes(constant="mu")),
            "constant",
            "Not to be used: mu is the same in",
        ),
        (replace(GOOD, caveat="rows moved."), "caveat", "Doubtful: rows moved."),
    ],
)
def test_verdicts(check, reason, start):
    assert check.verdict.reason == reason
    assert check.verdict.text.startswith(start)
    level = re.match("Reliable once re-weighted|Reliable|Doubtful|Not to be used", start)[0]
    assert check.verdict.level == level
    assert check.reliable is level.startswith("Reliable")


@pytest.mark.parametrize(("symmetrised_kl", "is_known"), [(0.0, True), (1e-3, False)])
def test_that_chains_are_too_short_does_not_hide_that_all_rows_are_kept(symmetrised_kl, is_known):
    none = {"kl": 0.0, "kl_mcse": 0.0, "symmetrised_kl_mcse": 0.0, "largest": 0.0}
    check = replace(GOOD, rhat=1.2, symmetrised_kl=symmetrised_kl, **none)
    assert check.verdict.reason == "unconverged"
    assert ("the coreset posterior, which keeps all rows. Sample" in check.verdict.text) is is_known
    assert ("cannot be judged" in check.verdict.text) is not is_known


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("probes", NO_PROBES, "beyond the draws     not looked at"),
        ("probes", SEEN, "beyond the draws     nothing missed, at 30 points"),
        ("mean_shift", Shift("b[1]", -0.12, 0.03), "mean of b[1] by -0.12 ± 0.03"),
        ("sd_shift", Shift("b[0]", 0.04, 0.02), "sd of b[0] by 4.0% ± 2.0%"),
        ("ess_tail", 1500.0, "2,000 in the bulk, 1,500 in the tails"),
        ("tolerance", 0.02, "(tolerance 0.02)"),
    ],
)
def test_facts_are_shown(field, value, line):
    shift = Shift("c", 0.0, 0.0)
    check = replace(replace(GOOD, mean_shift=shift, sd_shift=shift), **{field: value})
    assert line in repr(check)


def test_a_few_draws_that_carry_the_variance_make_its_error_large(rng):
    """Squares of a t distribution of 2.2 degrees of freedom have no variance."""
    heavy = pareto_smooth(0.05 * rng.standard_t(2.2, size=(4, 1_000)))
    light = pareto_smooth(0.05 * rng.normal(size=(4, 1_000)))
    assert light.symmetrised_kl_mcse < 0.03 * light.symmetrised_kl
    assert heavy.symmetrised_kl_mcse > 0.1 * heavy.symmetrised_kl


def test_half_the_variance_of_a_few_draws_is_not_known(rng):
    log_r = 0.01 * rng.normal(size=(4, 100))
    log_r[0, [5, 50]] = [0.12, 0.16]  # whose squares sum to that of all others
    found = pareto_smooth(log_r)
    assert found.symmetrised_kl_mcse > 0.25 * found.symmetrised_kl


def test_divergences_are_part_of_the_verdict():
    assert "12 divergences" in replace(GOOD, n_divergences=12).verdict.text
    assert "1 divergence:" in replace(GOOD, n_divergences=1).verdict.text


@pytest.mark.parametrize("check", [GOOD, replace(FAR, pareto_khat=np.inf), replace(GOOD, ess=1.0)])
def test_representations_hold_numbers_and_verdict(check):
    text = repr(check)
    assert check.verdict.text in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert f"{check.kl:.2g}" in text
    assert "KL(coreset || full)" in text


def test_reweighted_draws_have_the_moments_of_the_full_posterior(idata, rng):
    log_r = shifted(idata, 0.5)
    draws = reweight_draws(idata, log_r, rng=rng).posterior["theta"]
    ess = check_draws(idata, log_r).ess
    assert float(draws.mean()) == pytest.approx(0.5, abs=5 / np.sqrt(ess))
    assert float(draws.std()) == pytest.approx(1.0, abs=5 / np.sqrt(2 * ess))


def test_groups_of_draws_stay_together(idata, rng):
    tree = reweight_draws(idata, shifted(idata, 0.5), rng=rng, draws=300)
    theta = tree.posterior["theta"]
    assert theta.sizes == {"chain": 4, "draw": 300}
    np.testing.assert_array_equal(tree.sample_stats["lp"], -(theta**2) / 2)
    np.testing.assert_array_equal(tree.posterior["twice"].sel(k="b"), 2 * theta)
    xr.testing.assert_identical(tree["observed_data"].ds, idata["observed_data"].ds)
    assert "warmup_posterior" not in tree.children


def test_reweighting_leaves_its_input_alone_and_says_what_it_did(idata, rng):
    before = idata.copy(deep=True)
    idata.attrs["created_by"] = before.attrs["created_by"] = "test"
    tree = reweight_draws(idata, shifted(idata, 0.5), rng=rng)
    xr.testing.assert_identical(idata, before)
    check = check_draws(idata, shifted(idata, 0.5))
    assert tree.posterior.attrs["pareto_khat"] == pytest.approx(check.pareto_khat)
    assert tree.posterior.attrs["psis_ess"] == pytest.approx(check.ess)
    assert tree.attrs["created_by"] == "test"
    np.testing.assert_array_equal(tree.posterior["draw"], np.arange(1000))


def test_reweighting_depends_on_the_generator_only(idata):
    trees = [
        reweight_draws(idata, shifted(idata, 0.5), rng=np.random.default_rng(seed))
        for seed in (3, 3, 4)
    ]
    assert trees[0].identical(trees[1])
    assert not trees[0].identical(trees[2])


@pytest.mark.parametrize(("shift", "quality"), [(2.2, "heavy tail"), (60.0, "carry all of them")])
def test_reweighting_warns_of_unreliable_weights(idata, rng, shift, quality):
    with warned(quality):
        reweight_draws(idata, shifted(idata, shift), rng=rng)


def test_reweighting_an_exact_coreset_is_silent_and_keeps_every_draw(idata, rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = reweight_draws(idata, np.zeros((4, 1000)), rng=rng)
    theta = np.sort(idata.posterior["theta"], axis=None)
    np.testing.assert_array_equal(np.sort(tree.posterior["theta"], axis=None), theta)


def test_heavy_tailed_rounding_errors_are_no_reason_to_warn(idata, rng):
    log_r = 1e-6 * rng.standard_cauchy(size=(4, 1000)).clip(-1e4, 1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = reweight_draws(idata, log_r, rng=rng)
    assert tree.posterior.attrs["pareto_khat"] > 0.7


@pytest.mark.parametrize(
    ("changes", "reason", "said"),
    [
        (
            {},
            "weights",
            "Reliable: resampled draws of the full posterior, worth 3,500 independent ones.",
        ),
        (
            {"ess": 99.0},
            "few_draws",
            "Doubtful: few resampled draws of the full posterior, worth 99 ",
        ),
        (
            {"pareto_khat": 0.8},
            "heavy_tail",
            "Doubtful: the importance weights have a heavy tail (Pareto k-hat",
        ),
        (
            {"pareto_khat": 1.0},
            "collapsed",
            "Not to be used: the importance weights have a heavy tail",
        ),
        ({"pareto_khat": 0.8, "kl": 1e-5, "symmetrised_kl": 2e-5}, "heavy_tail", "Doubtful:"),
        (
            {"pareto_khat": 0.8, "kl": 1e-5, "symmetrised_kl": 2e-5, "largest": 3e-3} | ALONE,
            "weights",
            "Reliable:",
        ),
        ({"ess": 50.0, "kl": 1e-5, "symmetrised_kl": 2e-5}, "weights", "Reliable:"),
    ],
)
def test_what_resampled_draws_are_worth(changes, reason, said):
    check = replace(GOOD, **{"kl": 0.1, "symmetrised_kl": 0.2, "ess": 3500.0} | changes)
    verdict = check.verdict_on_weights
    assert verdict.reason == reason
    assert verdict.text.startswith(said)
    assert verdict.text.startswith(verdict.level)


def test_a_certificate_needs_no_chains():
    certificate = Certificate.of(0.1 * np.random.default_rng(1).normal(size=400))
    assert certificate.reliable
    assert certificate.n_draws == 400
    assert certificate.symmetrised_kl == pytest.approx(0.01, rel=0.35)  # five standard errors
    assert "R-hat" not in repr(certificate)
    assert certificate.verdict.text in " ".join(repr(certificate).split())
    with refused(InvalidDataError, "at least 30", topic="draws"):
        Certificate.of(np.zeros(20))


def test_the_largest_log_ratio_is_measured_from_their_mean(rng):
    log_r = 0.1 * rng.normal(size=400)
    expected = np.abs(log_r - log_r.mean()).max()
    assert Certificate.of(log_r + 1_000.0).largest == pytest.approx(expected)


def test_a_certificate_and_a_check_judge_alike():
    ratios = 0.3 * np.random.default_rng(1).normal(size=(4, 100))
    mu = xr.DataArray(np.random.default_rng(2).normal(size=(4, 100)), dims=("chain", "draw"))
    check = check_draws(xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})}), ratios)
    certificate = Certificate.of(ratios)
    for field in fields(Certificate):
        assert getattr(certificate, field.name) == getattr(check, field.name)


@pytest.mark.parametrize(
    ("change", "copied"),
    [
        (lambda x: x, 0.0),
        (lambda x: x[[0, 1, 2, 0]], 0.25),
        (lambda x: x[[0, 0, 0, 0]], 0.75),
        (lambda x: np.repeat(x[:, ::5], 5, axis=1), 0.0),  # chains that stay where they are
        (lambda x: np.tile(x[:, :100], 10), 0.9),
        (lambda x: x.round(1).astype(int), 0.0),  # discrete variables return
    ],
)
def test_copies_are_draws_that_return(rng, change, copied):
    draws = change(rng.normal(size=(4, 1_000)))
    assert Chains(xr.Dataset({"theta": (DIMS, draws)})).copies.share == pytest.approx(copied)


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda x: x, 0.0),
        (lambda x: x[[0, 0, 2, 3]], 0.25),
        (lambda x: np.concatenate([x[:, :500], x[:, 499::-1]], axis=1), 0.5),
        (lambda x: np.repeat(x[:, ::5], 5, axis=1), 0.0),  # a step that does not accept
        (lambda x: x.round(2), 0.0),
        (lambda x: (1e3 + x).astype(np.float32), 0.0),
        (lambda x: x.clip(-1, 1), 0.0),  # the border of a support
    ],
)
def test_copies_of_one_entry_are_found(rng, change, share):
    draws = rng.normal(size=(2, 4, 1_000))
    both = np.stack([draws[0], change(draws[1])], axis=2)
    copies = Chains(xr.Dataset({"b": ((*DIMS, "k"), both)})).copies
    assert copies.share == pytest.approx(share, abs=0.01)
    assert copies.where == ("b[1]" if share else "")


@pytest.mark.parametrize(("location", "is_coarse"), [(0.0, False), (1e4, False), (1e6, True)])
def test_single_precision_must_resolve_the_posterior(rng, location, is_coarse):
    draws = (location + 0.03 * rng.normal(size=(4, 500))).astype(np.float32)
    found = Chains(xr.Dataset({"theta": (DIMS, draws)}))
    assert ("draws of 'theta' are numbers of type float32" in found.too_coarse) is is_coarse
    assert Chains(xr.Dataset({"theta": (DIMS, draws.astype(float))})).too_coarse == ""


@pytest.mark.parametrize(("known", "kept"), [(Level.RELIABLE, False), (Level.UNUSABLE, True)])
def test_a_doubt_never_improves_a_verdict(known, kept):
    found = Verdict.starting(known, Reason.WEIGHTS, "as weighted.")
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset(attrs=found.attrs)})
    doubts = [Verdict.starting(Level.DOUBTFUL, Reason.CAVEAT, f"{name}.") for name in "ab"]
    evaluated_draws.note_doubts(tree, doubts)
    assert Verdict.stored(tree["posterior"].attrs) == (found if kept else doubts[0])


@pytest.mark.parametrize(
    ("draws", "bounded", "level", "reason", "said"),
    [
        (GOOD, True, Level.RELIABLE, Reason.TOLERANCE, "Reliable: the draws"),
        (GOOD, False, Level.UNUSABLE, Reason.IMPROPER, "Not to be used: the polynomial is unb"),
        (replace(FAR, pareto_khat=0.8), True, Level.DOUBTFUL, Reason.HEAVY_TAIL, "degree"),
        (replace(FAR, pareto_khat=0.8), False, Level.UNUSABLE, Reason.IMPROPER, "heavy tail"),
    ],
)
def test_a_polynomial_is_judged_by_its_draws_if_it_is_bounded(draws, bounded, level, reason, said):
    check = PolynomialCheck(
        degree=2, radius=4.0, outside=0.01, reach=3.0, max_error=0.1, bounded=bounded, draws=draws
    )
    assert (check.verdict.level, check.verdict.reason) == (level, reason)
    assert check.reliable is level.reliable
    assert said in check.verdict.text


@pytest.mark.parametrize("largest", [1e-9, 0.3])
def test_draws_beside_the_posterior_show_that_it_is_the_full_one_but_not_that_they_are_its(largest):
    """To rounding, at the draws and along lines: then the certificate needs no better draws."""
    off = replace(SEEN, misfit=9.0, misfit_limit=5.0, largest=largest)
    check = replace(GOOD, kl=0.0, kl_mcse=0.0, symmetrised_kl=1e-20, probes=off)
    assert check.verdict.reason == Reason.FOREIGN
    assert check.certificate.reliable == (largest < 1e-6)
