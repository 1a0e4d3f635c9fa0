"""Comparisons of posteriors whose differences are known, and of two runs of the same one."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.signal import lfilter

from pymc_coresets import Comparison, InvalidDataError, InvalidOptionError, compare
from tests.refusals import refused

DIMS = ("chain", "draw")


def dataset(coords=None, **variables):
    named = {name: ((*DIMS, *"kl"[: np.ndim(v) - 2]), v) for name, v in variables.items()}
    return xr.Dataset(named, coords=coords)


def normal(seed, *shape, n_draws=500):
    return np.random.default_rng(seed).normal(size=(4, n_draws, *shape))


def test_shift_and_scale_are_read_off():
    z = normal(1)
    row = compare(dataset(mu=3 + 2 * z), dataset(mu=4 + 3 * z)).table.loc["mu"]
    sd = z.std(ddof=1)
    delta = 1 + z.mean()
    assert row["mean_approximation"] - row["mean_full"] == pytest.approx(delta)
    assert row["delta_mean_sd"] == pytest.approx(delta / 2 / sd)
    assert row["sd_ratio"] == pytest.approx(1.5)
    quantiles = np.quantile(1 + z, [0.05, 0.5, 0.95]) / 2 / sd
    np.testing.assert_allclose(row[["shift_q5", "shift_q50", "shift_q95"]], quantiles)


def test_equal_draws_do_not_differ():
    found = compare(dataset(mu=normal(1)), dataset(mu=normal(1)))
    differences = ["delta_mean_sd", "shift_q5", "shift_q50", "shift_q95"]
    assert (found.table[differences] == 0).all(axis=None)
    assert found.within_noise == 1


def ar1(seed, *shape, correlation, n_draws=250):
    noise = normal(seed, *shape, n_draws=n_draws + 100)
    scale = np.sqrt(1 - correlation**2)
    return scale * lfilter([1], [1, -correlation], noise, axis=1)[:, 100:]


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_noise_is_what_two_independent_runs_show(correlation):
    # 24 pairs of runs with 3 components: errors of 72 standardised values are near 0.08; the rest
    # of the tolerance is for the estimated effective sample sizes (sd: of the squares).
    pairs = [
        compare(*(dataset(b=ar1((seed, run), 3, correlation=correlation)) for run in (0, 1)))
        for seed in range(24)
    ]
    table = np.stack([pair.table for pair in pairs]).reshape(-1, pairs[0].table.shape[1])
    values = dict(zip(pairs[0].table.columns, table.T, strict=True))

    def standardised(name, noise):
        return np.sqrt(np.mean((values[name] / values[noise]) ** 2))

    assert standardised("delta_mean_sd", "delta_mean_noise") == pytest.approx(1, abs=0.25)
    for name in ("shift_q5", "shift_q50", "shift_q95"):
        assert standardised(name, f"{name}_noise") == pytest.approx(1, abs=0.3)
    log_ratio = np.log(values["sd_ratio"]) / values["sd_ratio_noise"]
    assert np.sqrt(np.mean(log_ratio**2)) == pytest.approx(1, abs=0.15)


def test_constant_components_do_not_differ_up_to_rounding():
    one = np.ones((4, 500))
    found = compare(dataset(one=one, mu=normal(1)), dataset(one=one + 1e-15, mu=normal(2)))
    row = found.table.loc["one"]
    assert row["delta_mean_sd"] == row["shift_q5"] == row["shift_q5_noise"] == 0
    assert row["sd_ratio"] == 1
    assert found.largest_mean_shift.name == found.largest_sd_change.name == "mu"


def test_rounding_errors_of_a_large_negative_constant_are_no_spread():
    zero = np.zeros((4, 500))
    row = compare(dataset(c=zero), dataset(c=-1e6 + 1e-9 * normal(1))).table.loc["c"]
    assert row["sd_ratio"] == 1
    assert row["delta_mean_sd"] == -np.inf


def test_a_narrow_posterior_far_from_zero_is_no_constant():
    """Seconds since 1970, known to hundredths."""
    when = [1.7e9 + 0.02 * (normal(seed) + shift) for seed, shift in ((1, 0), (2, 3))]
    row = compare(*(dataset(t=t) for t in when)).table.loc["t"]
    assert row["delta_mean_sd"] == pytest.approx(3, abs=0.2)
    assert row["sd_ratio"] == pytest.approx(1, abs=0.1)


def test_a_constant_that_changed_is_infinitely_far():
    one = np.ones((4, 500))
    found = compare(dataset(one=one, mu=normal(1)), dataset(one=0 * one, mu=normal(1)))
    assert found.largest_mean_shift == ("one", -np.inf)


def test_a_component_that_froze_is_seen():
    found = compare(dataset(mu=normal(1), b=normal(2)), dataset(mu=normal(1), b=0 * normal(2)))
    assert found.largest_sd_change == ("b", -np.inf)


def test_discrete_and_boolean_variables():
    counts = np.random.default_rng(1).poisson(3.0, size=(2, 4, 500))
    table = compare(*(dataset(n=n, odd=n % 2 == 1) for n in counts)).table
    odd = counts % 2 == 1
    for i, column in enumerate(("mean_full", "mean_approximation")):
        np.testing.assert_allclose(table[column], [counts[i].mean(), odd[i].mean()])
    for name, values in (("n", counts), ("odd", odd)):
        shift = values[1].mean() - values[0].mean()
        sds = values.std(axis=(1, 2), ddof=1)
        assert table.loc[name, "delta_mean_sd"] == pytest.approx(shift / sds[0])
        assert table.loc[name, "sd_ratio"] == pytest.approx(sds[1] / sds[0])
    quantiles = np.quantile(counts, [0.05, 0.5, 0.95], axis=(1, 2))
    shifts = table.loc["n", ["shift_q5", "shift_q50", "shift_q95"]] * counts[0].std(ddof=1)
    np.testing.assert_allclose(shifts.astype(float), quantiles[:, 1] - quantiles[:, 0])


def test_components_are_labelled_by_their_coordinates():
    coords = {"k": ["a", "b"]}
    found = compare(dataset(coords, b=normal(1, 2)), dataset(coords, b=normal(2, 2)))
    assert list(found.table.index) == ["b[a]", "b[b]"]


def test_variables_of_other_shape_or_labels_are_skipped():
    full = dataset({"k": ["a", "b"]}, mu=normal(1), obs=normal(1, 2), gone=normal(1))
    coreset = dataset({"k": ["b", "a"]}, mu=normal(2), obs=normal(2, 2), new=normal(2))
    found = compare(full, coreset)
    assert found.skipped == ("obs", "gone", "new")
    assert list(found.table.index) == ["mu"]
    assert "Not compared: obs, gone, new." in repr(found)


def test_dims_without_labels_count_as_numbered():
    bare, numbered = dataset(b=normal(1, 2)), dataset(b=normal(2, 2), coords={"k": [0, 1]})
    for pair in [(bare, numbered), (numbered, bare)]:
        found = compare(*pair)
        assert list(found.table.index) == ["b[0]", "b[1]"]
        assert found.skipped == ()


@pytest.mark.parametrize("var_names", ["gone", ["mu", "gone"], ["nowhere"]])
def test_variables_asked_for_must_be_in_both(var_names):
    full, coreset = dataset(mu=normal(1), gone=normal(1)), dataset(mu=normal(2))
    with refused(InvalidOptionError, "var_names=", "Choose among mu."):
        compare(full, coreset, var_names)


def test_only_variables_asked_for_are_compared():
    full, coreset = (dataset(mu=normal(s), b=normal(s, 2)) for s in (1, 2))
    assert list(compare(full, coreset, ["b"]).table.index) == ["b[0]", "b[1]"]
    assert list(compare(full, coreset, "mu").table.index) == ["mu"]


def test_nothing_in_common_is_refused():
    with refused(InvalidDataError, "['a']", "['b']", "same model", topic="draws"):
        compare(dataset(a=normal(1)), dataset(b=normal(1)))


def test_draws_that_are_not_finite_are_refused_by_name():
    z = normal(1, 2)
    z[0, 0, 1] = np.nan
    with refused(InvalidDataError, "b[1]", topic="draws"):
        compare(dataset(b=normal(2, 2)), dataset(b=z))


def test_order_of_dims_and_numbers_of_draws_may_differ():
    full, coreset = dataset(b=normal(1, 2)), dataset(b=normal(2, 2, n_draws=300))
    turned = coreset.transpose("k", "draw", "chain")
    tree = xr.DataTree.from_dict({"posterior": turned})
    pd.testing.assert_frame_equal(compare(full, coreset).table, compare(full, tree).table)


def test_summary_names_what_differs_most():
    z = normal(1, 2)
    found = compare(dataset(b=z), dataset(b=z * [1, 2] + np.array([1, 0])))
    assert found.largest_mean_shift.name == "b[0]"
    assert found.largest_sd_change.name == "b[1]"
    assert found.largest_sd_change.value == pytest.approx(np.log(2))
    assert found.within_noise == 0.5
    assert "b[0]" in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 80


def test_long_tables_are_cut_in_print_only():
    found = compare(dataset(b=normal(1, 30)), dataset(b=normal(2, 30)))
    assert len(found.table) == 30
    assert "10 more rows" in repr(found)


@pytest.mark.parametrize("spoiled", ["full", "approximation"])
def test_draws_that_cannot_be_compared_are_named(spoiled):
    good = xr.Dataset({"mu": (("chain", "draw"), np.random.default_rng(1).normal(size=(2, 50)))})
    bad = {
        "no draws": good.isel(chain=slice(0)),
        "at least 4": good.isel(draw=slice(3)),
        "beyond 1e+150": good * 1e200,
        "none of them in common": good.astype(str),
    }
    for facts, draws in bad.items():
        pair = {"full": good, "approximation": good} | {spoiled: draws}
        with refused(InvalidDataError, facts, topic="draws"):
            compare(**pair)


def test_two_standard_errors_are_within_noise():
    shifts = {"delta_mean_sd": [0.5, -1.5, 2.0, -2.5], "delta_mean_noise": [1.0, 1.0, 1.0, 1.0]}
    assert Comparison(table=pd.DataFrame(shifts), skipped=()).within_noise == 0.75
