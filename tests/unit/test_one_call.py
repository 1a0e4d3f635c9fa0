"""A coreset in one call: what is returned and said, and what happens where no coreset serves."""

import logging
import re
import time
import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning

import pymc_coresets as pmc
from pymc_coresets import (
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    Level,
    OutOfTimeError,
    Reason,
    SamplingError,
    Verdict,
    one_call,
)
from tests.refusals import refused, warned

X = np.random.default_rng(1).normal(size=2_000)
QUIET = {"random_seed": 1, "progressbar": False}
SHORT = {"draws": 400, "chains": 2}
FEW = {"method": "uniform", "size": 3}  # rows: the importance weights of their draws are useless
SOME = {"method": "uniform", "size": 300}  # enough to be corrected
GROUPS = ["posterior", "sample_stats", "observed_data", "coreset"]
SECONDS = ["seconds_build", "seconds_sample", "seconds_check"]


def mean_of(x=X):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    return model


@pytest.fixture(scope="module")
def model():
    return mean_of()


@pytest.fixture(scope="module")
def idata(model):
    return pmc.sample(model, **QUIET)


@pytest.fixture(scope="module")
def corrected(model):
    return pmc.sample(model, **SOME, **QUIET)


# -- what is returned ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Found dimension named 'sample'")  # by ArviZ
@pytest.mark.parametrize("dim", ["row", "sample"])
def test_dimensions_of_the_model_may_have_names_of_ours(dim):
    """Of a tree's groups, those inside have the lengths of those outside by the same name."""
    with pm.Model(coords={dim: range(6)}) as model:
        level = pm.Normal("level", dims=dim)
        pm.Normal("y", level[np.arange(len(X)) % 6], 1.0, observed=X)
    idata = pmc.sample(model, **SHORT, **QUIET)
    assert idata["posterior"]["level"].dims == ("chain", "draw", dim)
    coreset = pmc.coreset_of(idata, model)
    assert coreset.modes.positions["level"].dims == ("posterior_mode", dim)
    assert coreset.check(idata).reliable == (idata.attrs["level"] == Level.RELIABLE)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("drawz", "'draws'"), ("tolerence", "'tolerance'"), ("tune", "sample(tune=...)")],
)
def test_a_misspelled_argument_is_refused_with_the_one_that_was_meant(model, name, meant):
    with pytest.raises(TypeError, match=f"{name!r} is no argument.*{re.escape(meant)}"):
        pmc.sample(model, **{name: 3}, **QUIET)


def test_draws_come_with_data_coreset_and_verdict(model, idata):
    assert set(idata.children) == set(GROUPS)
    assert dict(idata["posterior"].sizes) == {"chain": 4, "draw": 1_000}
    assert idata["observed_data"].sizes["y_dim_0"] == len(X)
    assert list(idata.attrs) == ["verdict", "level", "reason", "divergence", *SECONDS]
    assert idata.attrs["level"] == Level.RELIABLE
    assert 0 <= idata.attrs["divergence"] <= 0.01
    assert all(idata.attrs[name] > 0 for name in SECONDS)
    assert abs(idata["posterior"]["mu"].mean() - X.sum() / 2_001) < 0.003


def test_all_rows_are_asked_for_once_at_each_draw_and_on_lines_beyond(calls):
    """Rows chosen at draws around the mode, certified, and checked: nothing is evaluated twice."""
    rng, n, n_dims = np.random.default_rng(1), 20_000, 2
    x = rng.normal(size=(n, n_dims))
    with pm.Model() as model:
        chance = 1 / (1 + np.exp(-x @ pm.Normal("b", shape=n_dims)))
        pm.Bernoulli("y", chance, observed=rng.binomial(1, 0.4, n))
    passes, gradients = calls("sums of all rows"), calls("slopes of all rows")
    idata = pmc.sample(model, **QUIET)
    assert idata.attrs["level"] == Level.RELIABLE
    asked = [call.args[1].n_draws for call in passes]
    to_choose, to_certify, to_check = [number for number in asked if number >= 100]
    assert to_certify < to_choose
    assert to_check == 400 + 3 * n_dims  # the first draws, and those on lines
    of_few = sum(number for number in asked if number < 100)
    of_rows = sum(len(call.args[2]) * call.args[1].n_rows / n for call in gradients)
    of_axes = 1 + n_dims  # for rows that decide an axis alone
    of_dips = 12 * n_dims * 1_000 / n  # of a sample, along each coordinate
    assert of_few + of_rows < 20 + of_axes + of_dips


def test_the_coreset_is_that_of_the_build_with_this_seed(model, idata):
    built = pmc.build_coreset(model, **QUIET)
    found = pmc.coreset_of(idata, model)
    assert found.random_seed == 1
    np.testing.assert_array_equal(found.indices, built.indices)
    np.testing.assert_array_equal(found.weights, built.weights)


def test_the_seed_decides_all_draws(model, corrected):
    rng = np.random.default_rng(1)  # as from the seed of the others
    from_rng = pmc.sample(model, **SOME, random_seed=rng, progressbar=False)
    assert from_rng["posterior"].equals(corrected["posterior"])
    assert pmc.coreset_of(from_rng, model).random_seed is None


def test_the_model_of_the_context_and_options_of_the_build_are_used(model):
    with model:
        found = pmc.sample(tolerance=0.1, collapse=False, **SHORT, **QUIET)
    assert dict(found["posterior"].sizes) == {"chain": 2, "draw": 400}
    assert pmc.coreset_of(found, model).tolerance == 0.1


def test_draws_are_corrected_where_the_check_says_so(model, corrected):
    assert set(corrected.children) == set(GROUPS)
    verdict = Verdict.stored(corrected.attrs)
    assert verdict == Verdict.stored(corrected["posterior"].attrs)
    assert (verdict.level, verdict.reason) == (Level.RELIABLE, Reason.WEIGHTS)
    assert 100 < corrected.attrs["psis_ess"] < 4_000
    assert corrected.attrs["pareto_khat"] < 0.7
    assert corrected.attrs["divergence"] > 0.01
    coreset = pmc.coreset_of(corrected, model)
    error = corrected["posterior"]["mu"].mean().item() - X.sum() / 2_001
    assert abs(error) < abs(X[coreset.indices].mean() - X.mean()) / 2
    with refused(InvalidDataError, "check()", "sample()", "resampled", topic="draws"):
        coreset.check(corrected)


# -- what is said ----------------------------------------------------------------------------------


def test_a_result_has_one_verdict(model):
    """The coreset says what the check of the draws said, not what its build had seen."""
    found = pmc.sample(model, **SHORT, **QUIET)
    certificate = pmc.coreset_of(found, model).certificate
    assert certificate.verdict == Verdict.stored(found.attrs)
    assert certificate.divergence == found.attrs["divergence"]
    assert found.attrs["verdict"] in str(pmc.coreset_of(found, model)).replace("\n", " ")


def test_one_line_is_in_the_log(model, caplog, capsys):
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        pmc.sample(model, **SHORT, **QUIET)
        pmc.sample(model, **SOME, **QUIET)
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("pymc_coresets")]
    plain, weighed = (line for line in lines if "check" in line)
    assert plain.startswith("Coreset of 2 of 2,000 rows, at most ")
    assert " nats from the full posterior (build " in plain
    assert plain.endswith("is at most 0.01 nats.")
    n_kept = int(re.match(r"Coreset of (\d+) of 2,000 rows, at most ", weighed)[1])
    assert abs(n_kept - 279) < 25  # 300 drawn with replacement: 279 different ones, sd 4.4
    assert " nats from the full posterior, then re-weighted (build " in weighed
    assert "Reliable: resampled draws" in weighed
    assert capsys.readouterr().out == ""


def test_one_line_is_shown_with_the_progress(model, capsys):
    pmc.sample(model, **SHORT, random_seed=1)
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("Coreset of 2 of 2,000 rows, at most ")


@pytest.mark.parametrize(("n_missing", "not_drawn"), [(0, ["fit"]), (1_100, ["y", "y_unobserved"])])
def test_variables_along_the_rows_are_named_with_the_call_that_draws_them(
    n_missing, not_drawn, caplog
):
    outcome = X if not n_missing else np.ma.masked_array(X, np.arange(len(X)) < n_missing)
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", ImputationWarning)
        fit = pm.Deterministic("fit", pm.Normal("slope") * X)
        pm.Normal("y", fit, 1.0, observed=outcome)
        with caplog.at_level(logging.INFO, logger="pymc_coresets"):
            found = pmc.sample(**SHORT, **QUIET)
    names = found["posterior"].attrs["not_drawn"]
    assert sorted(names) == not_drawn
    assert {*found["posterior"].data_vars, *names} == {v.name for v in model.unobserved_RVs}
    [line] = (r.getMessage() for r in caplog.records if "along the rows" in r.getMessage())
    assert f"coreset_of(idata, model).predict(idata, var_names={names!r}, kind='draws')" in line
    drawn = pmc.coreset_of(found, model).predict(found, var_names=names, kind="draws", draws=10)
    assert set(drawn["posterior_predictive"].data_vars) == set(names)


# -- where no coreset serves -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"on_failure": "raise"}, ("9 rows", "1 free dimension,", "'mu'")),
        ({"time_budget": 60.0}, ("9 rows", "1 free dimension,", "'mu'")),
        ({"observed": "z"}, ("observed=['z']", "['y']")),
        ({"dim": "z"}, ("dim='z'", "[]")),
    ],
)
def test_a_refusal_is_raised_where_there_are_no_draws(options, facts):
    with refused(pmc.UnsupportedModelError, facts):
        pmc.sample(mean_of(X[:9]), **options, **QUIET)


@pytest.mark.parametrize("options", [{}, {"integrate": False}], ids=str)
def test_rows_that_are_few_for_the_dimensions_are_all_sampled_by_pymc(options, caplog):
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        found = pmc.sample(mean_of(X[:9]), **options, **SHORT, **QUIET)
    assert "pm.sample takes all rows now. A coreset hardly helps" in caplog.text
    assert found.attrs["level"] == Level.UNJUDGED
    assert found["sample_stats"].sizes["draw"] == SHORT["draws"]


def test_units_that_would_all_be_kept_beside_many_variables_are_left_to_pymc(caplog, sampled):
    """An effect of each row is integrated out by itself, and chains at all nodes take longer."""
    n, n_groups = 300, 30
    with pm.Model() as model:
        of_group, of_row = pm.Normal("of_group", shape=n_groups), pm.Normal("of_row", shape=n)
        rate = pm.math.exp(of_group[np.arange(n) % n_groups] + 0.5 * of_row)
        pm.Poisson("y", rate, observed=np.random.default_rng(1).poisson(1.0, n))
    own = xr.Dataset({"of_row": (("chain", "draw", "row"), np.zeros((2, SHORT["draws"], n)))})
    passed = sampled(xr.DataTree.from_dict({"posterior": own}))
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        found = pmc.sample(model, **SHORT, **QUIET)
    [options] = passed
    assert options["model"] is model
    assert options["draws"] == SHORT["draws"]
    assert "levels of ['of_row'] would be kept, beside 30 free dimensions" in caplog.text
    assert found.attrs["level"] == Level.UNJUDGED
    xr.testing.assert_equal(found["posterior"].to_dataset(), own)


@pytest.mark.parametrize("reason", [Reason.UNCONVERGED, Reason.SEPARATE_MODES])
def test_few_rows_are_left_to_nuts_unless_it_would_hide_modes(model, reason, instead, sampled):
    verdict = Verdict.starting(Level.UNUSABLE, reason, "as it is said.")
    instead("verdict on draws", lambda _, idata, __: one_call._Answer(idata, "Coreset", verdict))
    own = xr.Dataset({"mu": (("chain", "draw"), np.zeros((2, SHORT["draws"])))})
    passed = sampled(xr.DataTree.from_dict({"posterior": own}))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", pmc.CoresetWarning)
        found = pmc.sample(model, **SHORT, **QUIET)
    takes_all = reason is Reason.UNCONVERGED
    assert found.attrs["level"] == (Level.UNJUDGED if takes_all else Level.UNUSABLE)
    assert "as it is said." in found.attrs["verdict"]
    assert (passed[-1]["model"] is model, not told) == (takes_all, takes_all)


def test_draws_that_cannot_be_trusted_are_returned_with_a_warning(model):
    with warned("Not to be used", "a few draws", "on_failure='nuts'") as w:
        found = pmc.sample(model, **FEW, **SHORT, **QUIET)
    assert w[-1].filename == __file__
    assert Verdict.stored(found.attrs).reason is Reason.COLLAPSED
    assert found.attrs["divergence"] > 1
    assert set(found.children) == set(GROUPS)
    assert pmc.coreset_of(found, model).size == 3


def test_draws_that_cannot_be_trusted_are_an_error_where_asked(model):
    with refused(CoresetError, "Not to be used", "a few draws", topic="draws"):
        pmc.sample(model, on_failure="raise", **FEW, **SHORT, **QUIET)


def test_draws_that_the_full_data_exclude_are_not_to_be_used():
    with pm.Model() as model:
        pm.Uniform("y", 0, pm.HalfNormal("top", 3), observed=np.linspace(0.01, 1, 500))
    with warned("100.0%", "impossible"):
        found = pmc.sample(model, **FEW, **SHORT, **QUIET)
    assert found.attrs["divergence"] == np.inf
    assert Verdict.stored(found.attrs).reason is Reason.IMPOSSIBLE
    assert pmc.coreset_of(found, model).size == 3


@pytest.mark.parametrize(
    ("x", "options", "reason"),
    [
        (X[:9], {}, "9 rows are few for 1 free"),
        pytest.param(X, FEW, "Not to be used: a few draws", marks=pytest.mark.slow),
    ],
)
def test_pymc_samples_all_rows_where_asked(x, options, reason, caplog):
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        found = pmc.sample(mean_of(x), on_failure="nuts", **options, **SHORT, **QUIET)
    assert set(found.children) >= set(GROUPS) - {"coreset"}
    assert "coreset" not in found.children
    assert "diverging" in found["sample_stats"]
    assert dict(found["posterior"].sizes) == {"chain": 2, "draw": 400}
    assert abs(found["posterior"]["mu"].mean() - x.sum() / (len(x) + 1)) < 0.2 / len(x) ** 0.5
    assert reason in found.attrs["verdict"]
    assert found.attrs["divergence"] == 0
    assert found.attrs["seconds_sample"] > 0
    [said] = [r.getMessage() for r in caplog.records if "check" in r.getMessage()]
    assert said.startswith("pm.sample on all rows (build ")
    with refused(InvalidDataError, "no coreset", "pymc_coresets.sample()", topic="draws"):
        pmc.coreset_of(found, mean_of(x))


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"on_failure": "ask"}, ("on_failure='ask'", "'nuts'")),
        ({"draws": 29}, ("draws=29", "at least 30")),
        ({"chains": 0}, ("chains=0", "at least 1")),
        ({"random_seed": "a"}, "random_seed='a'"),
        ({"progressbar": 1}, "progressbar=1"),
        ({"model": "hello"}, ("model is a str", "pm.Model")),
        ({"size": 0, "on_failure": "nuts"}, ("size=0", "1 and 2000")),
        ({"on_failure": "nuts", "rows": "here"}, ("on_failure='nuts'", "rows=...")),
    ],
)
def test_options_out_of_range_are_refused_whatever_is_to_be_done(model, options, facts):
    with refused(InvalidOptionError, facts):
        pmc.sample(**({"model": model} | QUIET | options))


# -- limits of time --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
def test_a_time_budget_ends_sampling_with_a_sentence(model):
    facts = ("sampling", "pm.sample", "0 of")
    with refused(OutOfTimeError, facts):
        pmc.sample(model, size=20, time_budget=1e-9, **QUIET)
    with refused(InvalidOptionError, "time_budget=-1.0"):
        pmc.sample(model, time_budget=-1.0, **QUIET)


@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
def test_pymc_samples_without_a_limit_after_that_and_it_is_said(model, idata, sampled, caplog):
    drawn = idata.copy()
    sampled(drawn)
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        found = pmc.sample(model, size=20, time_budget=1e-9, on_failure="nuts", **QUIET)
    assert found is drawn
    assert "pm.sample takes all rows now, without a limit of time. The time_budget" in caplog.text
    assert found.attrs["verdict"].startswith("Draws of the full posterior, because no coreset")
    assert found.attrs["level"] == Level.UNJUDGED


def test_draws_that_were_not_checked_in_time_are_returned_and_it_is_said(model, fails):
    fails(pmc.Coreset, "check", OutOfTimeError("Too late."))
    with warned("Doubtful", "time_budget"):
        found = pmc.sample(model, time_budget=100.0, **SHORT, **QUIET)
    assert found["posterior"].sizes["draw"] == 400
    assert found.attrs["divergence"] == np.inf
    assert Verdict.stored(found.attrs).reason is Reason.UNFINISHED


def test_the_budget_is_passed_on_and_four_fifths_of_it_are_for_the_build(model, calls):
    builds = calls(one_call, "_built")
    pmc.sample(model, time_budget=100.0, **SHORT, **QUIET)
    assert [call.args[0].given["time_budget"] for call in builds] == [80.0]


def test_time_for_exact_draws_that_do_not_serve_is_taken_from_the_build(model, monkeypatch):
    given = []

    def prepare(request):
        given.append(request.given["time_budget"])
        raise SamplingError("Enough.")

    monkeypatch.setattr(one_call, "_given_scales", lambda *_: time.sleep(0.2))
    monkeypatch.setattr(one_call, "preparing", prepare)
    with pytest.raises(SamplingError):
        pmc.sample(model, time_budget=100.0, **QUIET)
    assert 40.0 < given[0] <= 79.8


# -- the coreset of some draws ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"method": "control_variates"}, marks=pytest.mark.slow)]
)
def test_the_coreset_is_whole_after_a_file(options, tmp_path):
    pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_000, 2))
    late = rng.binomial(1, 1 / (1 + np.exp(1 - x @ [1.0, -0.5])))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 2, shape=2)
        pm.Bernoulli("late", logit_p=pm.Data("x", x) @ slopes - 1, observed=late)
    idata = pmc.sample(model, **options, **QUIET)
    idata.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as read:
        back = pmc.coreset_of(read, model)
        assert Verdict.stored(read.attrs) == Verdict.stored(idata.attrs)
        assert "x" in read["constant_data"]
    built = pmc.build_coreset(model, **options, **QUIET)
    assert repr(back) == repr(built)
    assert (back.quadratic is None) == (built.quadratic is None) == (not options)
    draws = [c.importance_draws(random_seed=1)["posterior"]["slopes"] for c in (back, built)]
    np.testing.assert_array_equal(*draws)
    assert back.check(idata).reliable


def test_rows_that_lie_elsewhere_are_kept_with_the_draws():
    source = pmc.open_rows({"y": X})
    with pm.Model() as model:
        y = pm.Data("y", source.head(10)["y"])
        pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    idata = pmc.sample(model, rows=source, **QUIET)
    assert idata.attrs["level"] == Level.RELIABLE
    coreset = pmc.coreset_of(idata, model, rows=source)
    np.testing.assert_array_equal(coreset.rows["data y"], X[coreset.indices])
    assert coreset.check(idata).reliable


def test_draws_that_are_corrected_later_keep_their_coreset(model, idata):
    coreset = pmc.coreset_of(idata, model)
    later = coreset.reweight(idata, random_seed=1)
    np.testing.assert_array_equal(pmc.coreset_of(later, model).weights, coreset.weights)


def test_the_coreset_of_another_model_is_refused(idata):
    with refused(InvalidDataError, "other data", "coreset's rows", topic="coresets-in-files"):
        pmc.coreset_of(idata, mean_of(X + 1))


def test_what_holds_no_whole_coreset_is_refused(model):
    coreset = pmc.build_coreset(model, **SOME, **QUIET)
    for found in (
        xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), [[0.0]])})}),
        coreset.sample(**SHORT, **QUIET),
    ):
        with refused(InvalidDataError, "no coreset", "pymc_coresets.sample()", topic="draws"):
            pmc.coreset_of(found, model)
    with refused(InvalidDataError, "idata is a str", "pm.sample", topic="draws"):
        pmc.coreset_of("draws.nc", model)


@pytest.mark.parametrize(
    ("n_rows", "n_wanted", "n_lines"),
    [(1_500, 10**7, 1), (1_500, 120, 0), pytest.param(5_000, 10**7, 0, id="many rows")],
)
def test_what_takes_long_is_announced_before_a_quadratic(
    n_rows, n_wanted, n_lines, caplog, instead, fails
):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n_rows, 49))
    with pm.Model() as model:
        mean = pm.math.exp(pm.Normal("a") + x @ pm.Normal("b", 0, 0.1, shape=49))
        pm.Poisson("y", mean, observed=rng.poisson(1.0, n_rows))
    instead("draws around the mode", lambda *_: None)
    fails("construction", error=KeyboardInterrupt())
    with caplog.at_level(logging.INFO), pytest.raises(KeyboardInterrupt):
        pmc.sample(model, draws=n_wanted // 4, chains=4, **QUIET)
    said = [line for line in caplog.messages if line.startswith("Building, sampling and checking")]
    assert len(said) == n_lines
    found = [re.search(r"1,500 rows and 50 free dimensions: about (\d+) hours", s) for s in said]
    assert all(float(hours[1]) >= 1e7 * 50 * 1.3e-5 / 3600 - 1 for hours in found)
