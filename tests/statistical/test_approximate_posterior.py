"""What a coreset and a polynomial summary have in common: draws, judgements, copies."""

import copy
import pickle
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import fields, replace

import arviz_stats
import numpy as np
import pymc as pm
import pytest
import xarray as xr

from pymc_coresets import (
    InvalidDataError,
    InvalidOptionError,
    Level,
    Reason,
    SamplingError,
    UnsupportedModelError,
    build_coreset,
    build_pass_glm,
    open_rows,
)
from tests.modes import PLAIN_MODE
from tests.refusals import refused, warned

N = 200
X = np.random.default_rng(1).normal(size=N)
Y = np.random.default_rng(2).binomial(1, 1 / (1 + np.exp(-X)))


def make_model(prior_sd=3.0):
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.Normal("b", 0, prior_sd) * X, observed=Y)
    return model


def make_approximation(kind):
    if kind == "coreset":
        return build_coreset(
            make_model(), size=5, method="uniform", random_seed=1, progressbar=False
        )
    return build_pass_glm(make_model(), random_seed=1, progressbar=False)


@pytest.fixture(scope="module", params=["coreset", "polynomials"])
def approximation(request):
    return make_approximation(request.param)


def draws_from(mean, sd=0.2, n_chains=2, n_draws=200):
    b = np.random.default_rng(3).normal(mean, sd, size=(n_chains, n_draws))
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"b": (("chain", "draw"), b)})})


def full_loglik(b):
    eta = b[..., None] * X
    return np.sum(Y * eta - np.logaddexp(0, eta), axis=-1)


SETTINGS = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
CHEAPLY = SETTINGS | {"compile_kwargs": {"mode": PLAIN_MODE}}


@pytest.fixture(scope="module")
def idata(approximation):
    return approximation.sample(draws=100, tune=100, **CHEAPLY)


def test_draws_of_another_coreset_are_refused():
    """The few ratios of draws that are far from the full posterior look harmless."""
    own, other = (
        build_coreset(make_model(), size=5, method="uniform", random_seed=seed, progressbar=False)
        for seed in (1, 2)
    )
    idata = draws_from(1.0)
    idata["coreset"] = own.approximation.groups["coreset"]
    own.check(idata)
    for call in (other.check, other.reweight, other.loo):
        with refused(InvalidDataError, "another coreset", "sample", topic="draws"):
            call(idata)


# -- draws -----------------------------------------------------------------------------------------


def test_draws_are_those_of_its_own_model(approximation, idata):
    assert dict(idata["posterior"].sizes) == {"chain": 2, "draw": 100}
    assert ("coreset" in idata.children) == hasattr(approximation, "indices")


def test_the_defaults_of_pm_sample_may_be_given(approximation, idata, sampled):
    passed = sampled(idata)
    approximation.sample(draws=20, **CHEAPLY | {"tune": None, "chains": None, "cores": None})
    [options] = passed
    assert (options["chains"], options["draws"]) == (4, 20)
    assert not {"tune", "cores"} & options.keys()  # PyMC has its own


@pytest.mark.parametrize("option", [{"model": None}, {"return_inferencedata": False}])
def test_options_that_would_leave_its_model_or_a_datatree_are_refused(approximation, option):
    with refused(InvalidOptionError, f"{next(iter(option))}="):
        approximation.sample(**option)


def test_where_a_chain_cannot_start_the_model_is_named(exact):
    starts = {"initvals": {"b": np.nan}, "nuts_sampler": "pymc"}
    with refused(SamplingError, "pm.sample", "model.debug()") as caught:
        exact.sample(draws=5, tune=5, **starts, **CHEAPLY)
    assert not re.search(r"SamplerWarning|`model\.debug|\n", caught.value.message)


def test_log_ratios_are_those_of_the_two_densities(approximation, idata):
    ratios, b = approximation.log_ratios(idata), idata["posterior"]["b"].to_numpy()
    potential = approximation.model.compile_logp(
        vars=approximation.model.potentials, mode=PLAIN_MODE
    )
    own = [[potential({"b": value}) for value in chain] for chain in b]
    expected = full_loglik(b) - own  # a constant does not matter
    np.testing.assert_allclose(ratios - ratios.mean(), expected - expected.mean(), atol=1e-6)


# -- judging and correcting ------------------------------------------------------------------------


def test_checks_are_reached_the_same_way(approximation, idata):
    check = approximation.check(idata)
    judged = getattr(check, "draws", check)
    assert judged.n_draws == 200
    assert check.verdict.text


def test_reweighted_draws_have_as_many_draws_per_chain_as_asked(approximation):
    result = approximation.reweight(draws_from(1.0, 0.02), draws=7, random_seed=1)
    assert dict(result["posterior"].sizes) == {"chain": 2, "draw": 7}


def test_where_rows_are_many_some_draws_are_evaluated(approximation, limits):
    limits(cheap_rows=1)
    idata = draws_from(1.0, 0.02, n_chains=4, n_draws=1_000)
    few, every = (approximation.reweight(idata, ess=ess, random_seed=1) for ess in (100, np.inf))
    attrs = few["posterior"].attrs
    assert attrs["n_evaluated"] < 2_000 == every["posterior"].sizes["draw"] * 2
    assert every["posterior"].attrs["n_evaluated"] == 4_000
    means = [float(tree["posterior"]["b"].mean()) for tree in (few, every)]
    assert abs(means[0] - means[1]) < 4 * 0.02 / np.sqrt(attrs["psis_ess"])
    with refused(InvalidOptionError, "ess=0"):
        approximation.reweight(idata, ess=0)


def test_corrected_draws_are_neither_judged_nor_corrected_again(approximation):
    """A few draws, repeated, have ratios without a tail: they would pass for reliable."""
    with warned("k-hat"):
        corrected = approximation.reweight(draws_from(8.0, 4.0), random_seed=1)
    assert corrected["posterior"].attrs["level"] == Level.UNUSABLE
    for call in ("check", "reweight"):
        with refused(InvalidDataError, f"{call}()", "sample()", "resampled", topic="draws"):
            getattr(approximation, call)(corrected)


def test_a_warning_of_useless_weights_points_here_and_ends_with_the_remedy(approximation):
    remedy = "larger coreset" if hasattr(approximation, "indices") else "check()"
    with warned("k-hat", remedy) as caught:
        approximation.reweight(draws_from(8.0, 4.0), random_seed=1)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("draws", [0, -1, 2.0, True, "7"])
def test_numbers_of_draws_that_are_none_are_named(approximation, draws):
    with refused(InvalidOptionError, "draws="):
        approximation.reweight(draws_from(1.0), draws=draws)


def test_seeds_that_are_none_are_named(approximation):
    with refused(InvalidOptionError, "random_seed='a'"):
        approximation.reweight(draws_from(1.0), random_seed="a")


def test_the_same_seed_gives_the_same_draws_and_leaves_the_generator_ahead(approximation):
    rng = np.random.default_rng(1)
    results = [
        approximation.reweight(draws_from(1.0, 0.02), random_seed=s)["posterior"]["b"].to_numpy()
        for s in (1, rng, rng)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[1], results[2])


def test_draws_without_the_variable_are_refused(approximation):
    posterior = draws_from(0.0)["posterior"].to_dataset()
    other = xr.DataTree.from_dict({"posterior": posterior.rename(b="c")})
    for use in (approximation.log_ratios, approximation.check, approximation.reweight):
        with refused(InvalidDataError, "'b'", topic="draws"):
            use(other)


# -- copies ----------------------------------------------------------------------------------------


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize(
    "duplicate", [pickled, copy.copy, pytest.param(copy.deepcopy, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_copies_are_equal_and_work(approximation, duplicate, used):
    original = copy.copy(approximation)
    b = draws_from(1.0)
    expected = approximation.log_ratios(b)
    if used:
        original.check(b)
        original.sample(draws=5, tune=5, compute_convergence_checks=False, **CHEAPLY)
    again = duplicate(original)
    assert repr(again) == repr(approximation)
    np.testing.assert_array_equal(again.log_ratios(b), expected)
    assert type(again.check(b)) is type(approximation.check(b))
    sampled = again.sample(draws=5, tune=5, compute_convergence_checks=False, **CHEAPLY)
    assert sampled["posterior"].sizes["draw"] == 5


def test_shallow_copies_share_the_model_and_deep_ones_do_not(approximation):
    assert copy.copy(approximation).full_model is approximation.full_model
    assert copy.deepcopy(approximation).full_model is not approximation.full_model


def test_nothing_compiled_is_pickled(approximation):
    used = pickled(approximation)
    used.check(draws_from(1.0))
    used.model  # noqa: B018
    again = pickled(used)
    assert set(vars(again)) == {field.name for field in fields(again)}
    parts = getattr(again, "parts", (again,))
    for density in (part.held.density for part in parts if part is not again):
        assert set(vars(density)) == {field.name for field in fields(density)}
    for part in parts:
        functions = part.loglikelihood.functions
        for kernels in (functions._by_numpy, functions._by_loops):
            assert set(vars(kernels)) == {field.name for field in fields(kernels)}
        assert not functions._rests
        assert not part.loglikelihood.observations._spaces


def test_a_pickle_is_read_inside_another_models_context(approximation):
    data = pickle.dumps(approximation)
    with pm.Model() as other:
        again = pickle.loads(data)
        again.check(draws_from(1.0))
    assert not other.named_vars
    assert again.full_model.parent is None


@pytest.mark.slow
def test_a_pickle_is_read_by_another_process(approximation, tmp_path):
    (tmp_path / "it.pickle").write_bytes(pickle.dumps(approximation))
    code = "import pickle, sys; print(repr(pickle.load(open(sys.argv[1], 'rb'))))"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path / "it.pickle"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == repr(approximation)


# -- how many draws are checked --------------------------------------------------------------------


class CountedDraws:
    """Ratios of a shift by some deviations, and how many draws they were asked for."""

    def __init__(self, instead, shift):
        self.asked = []

        def log_densities(_, some):
            b = some["posterior"]["b"].to_numpy().ravel()
            self.asked.append(b.size)
            return shift * (b - 0.5) / 0.2, np.zeros(b.size)

        instead("log-densities at draws", log_densities)


@pytest.mark.parametrize(
    ("shift", "options", "asked"),
    [
        (0.01, {}, [400]),
        (0.5, {}, [400, 3_604]),  # the others, and one of each chain that joins them
        (0.5, {"draws": 100}, [100]),
        (0.01, {"draws": 4_000}, [4_000]),
    ],
)
def test_all_draws_are_evaluated_only_where_some_do_not_decide(
    approximation, instead, no_lines, shift, options, asked
):
    counted = CountedDraws(instead, shift)
    instead("second opinion", lambda *_, **__: None)  # it would object
    approximation.check(draws_from(0.5, n_chains=4, n_draws=1_000), **options)
    assert counted.asked == asked


def test_too_few_draws_to_check_are_refused(approximation):
    with refused(InvalidOptionError, "draws=10"):
        approximation.check(draws_from(0.5), draws=10)


# -- log-densities ---------------------------------------------------------------------------------


def test_log_densities_are_those_of_the_prior_and_of_all_rows(approximation):
    """A coreset of random rows is far off, but polynomials are as close as the eye can see."""
    draws = draws_from(1.0)
    found, b = approximation.with_log_densities(draws), draws["posterior"]["b"].to_numpy()
    prior = found["log_prior"]["b"].to_numpy()
    np.testing.assert_allclose(prior, -0.5 * b**2 / 9 - np.log(3 * np.sqrt(2 * np.pi)))
    [own] = found["log_likelihood"].data_vars.values()
    expected = full_loglik(b) - approximation.log_ratios(draws)
    np.testing.assert_allclose(own - own.mean(), expected - expected.mean(), atol=1e-6)
    assert "log_prior" not in draws.children
    assert arviz_stats.psense(found, group="likelihood")["b"] > 0.05


def test_log_densities_need_all_variables(approximation):
    posterior = draws_from(0.0)["posterior"].to_dataset()
    with refused(InvalidDataError, "'b'", topic="draws"):
        approximation.with_log_densities(
            xr.DataTree.from_dict({"posterior": posterior.rename(b="c")})
        )


def test_observed_variables_that_stay_have_their_own_log_densities():
    with pm.Model() as model:
        b, scale = pm.Normal("b"), pm.HalfNormal("scale")
        pm.Normal("y", b * X, scale, observed=X)
        pm.Normal("z", b, 2.0, observed=np.array([1.0, 3.0]))
    coreset = build_coreset(
        model, observed="y", size=5, method="uniform", random_seed=1, progressbar=False
    )
    draws = draws_from(0.0, n_draws=40)
    posterior = draws["posterior"].to_dataset()
    draws["posterior"] = posterior.assign(scale=np.exp(posterior["b"]))
    found = coreset.with_log_densities(draws)
    assert set(found["log_likelihood"].data_vars) == {"coreset_loglik", "z"}
    assert set(found["log_prior"].data_vars) == {"b", "scale"}
    del draws["posterior"]["scale"]
    with refused(InvalidDataError, "'scale'", topic="draws"):
        coreset.with_log_densities(draws)


# -- the second opinion ----------------------------------------------------------------------------


def test_pymcs_own_densities_give_the_same_divergence(approximation):
    idata = draws_from(1.0, n_draws=25)
    found = approximation.verify(idata, draws=50)
    assert found.n_draws == 50
    assert found.difference < 1e-9
    full = full_loglik(idata["posterior"]["b"].values).ravel()
    expected = np.var(full - approximation.approximation.replacement.loglik(idata))
    assert found.by_pymc == pytest.approx(expected, rel=1e-9)
    assert found.by_us == pytest.approx(expected, rel=1e-9)


def test_a_model_that_says_something_else_is_noticed():
    coreset = make_approximation("coreset")
    coreset.model["coreset_weights"].set_value(1.1 * coreset.weights)
    with refused(UnsupportedModelError, "log-ratio", "PyMC"):
        coreset.verify(draws_from(1.0))
    with refused(UnsupportedModelError, "log-ratio", "PyMC"):
        coreset.check(draws_from(1.0))


def test_a_check_says_that_pymc_was_asked(approximation):
    check = approximation.check(draws_from(1.0))
    opinion = getattr(check, "draws", check).second_opinion
    assert opinion.n_draws == 8
    assert opinion.difference < 1e-9


def test_where_pymc_has_no_finite_density_nothing_is_claimed():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 3)
        pm.Bernoulli("y", logit_p=b * X, observed=Y)
        pm.Potential("nowhere", pm.math.switch(b > 0.99, -np.inf, 0.0))
    coreset = build_coreset(model, size=5, method="uniform", random_seed=1, progressbar=False)
    idata = draws_from(1.0, sd=0.001)
    assert coreset.verify(idata).n_draws == 0
    assert coreset.verify(idata).in_short == "not finite at any draw"


@pytest.mark.parametrize("draws", [1, 2.5, "all"])
def test_number_of_draws_of_a_second_opinion(approximation, draws):
    with refused(InvalidOptionError, "draws="):
        approximation.verify(draws_from(1.0), draws=draws)


# -- what is kept of draws, and judged -------------------------------------------------------------

N_WHOLE = 1_200  # rows of a term that is left whole


@pytest.fixture(scope="module")
def with_fits():
    """A coreset beside a term that is left whole, whose fit is a deterministic."""
    with pm.Model(coords={"whole": range(N_WHOLE), "group": range(1_100)}) as model:
        b = pm.Normal("b", 0, 3)
        pm.Bernoulli("y", logit_p=b * X, observed=Y)
        fit = pm.Deterministic("fit", b * np.ones(N_WHOLE), dims="whole")
        pm.Deterministic("table", b * np.ones((2, N_WHOLE)))
        pm.Deterministic("odds", pm.math.exp(b * X))
        pm.Deterministic("by_group", b * np.ones(1_100), dims="group")
        pm.Normal("z", fit, 1.0, observed=np.zeros(N_WHOLE), dims="whole")
    options = {"method": "uniform", "random_seed": 1, "progressbar": False}
    return build_coreset(model, observed="y", size=20, **options)


def test_deterministics_of_many_rows_are_drawn_only_if_they_are_named(with_fits, sampled):
    passed = sampled(draws_from(0))
    with_fits.sample()
    with_fits.sample(var_names=["b", "fit"])
    assert sorted(passed[0]["var_names"]) == ["b", "by_group"]
    assert passed[1]["var_names"] == ["b", "fit"]


def test_all_variables_are_drawn_where_none_is_large(approximation, sampled):
    passed = sampled(draws_from(0))
    approximation.sample()
    assert [options["var_names"] for options in passed] == [None]


@pytest.fixture(scope="module")
def exact():
    return build_coreset(make_model(), size=N, random_seed=1, progressbar=False)


@pytest.mark.parametrize(("n_entries", "converged"), [(101, True), (100, False)])
def test_large_deterministics_are_not_judged(exact, n_entries, converged):
    """They are functions of the free variables, and cost milliseconds for each entry."""
    posterior = draws_from(0.5, n_chains=4)["posterior"].to_dataset()
    apart = posterior["b"] + xr.DataArray(np.arange(4.0), dims="chain")  # chains that disagree
    idata = posterior.assign(fit=apart * xr.DataArray(np.ones(n_entries), dims="row"))
    assert exact.check(idata).converged == converged
    with nullcontext() if converged else warned("not converged"):
        again = exact.reweight(idata, random_seed=1)
    assert again["posterior"]["fit"].sizes["row"] == n_entries


@pytest.mark.parametrize("how", ["auto", "files", "other priors"])
def test_exact_coresets_are_checked_without_any_row(how, exact, fails):
    options = {"random_seed": 1, "progressbar": False}
    if how == "files":
        with pm.Model() as model:
            x, y = (pm.Data(name, values[:10]) for name, values in (("x", X), ("y", Y)))
            pm.Bernoulli("z", logit_p=pm.Normal("b", 0, 3) * x, observed=y)
        exact = build_coreset(model, rows=open_rows({"x": X, "y": Y}), size=N, **options)
    elif how == "other priors":
        exact = exact.with_model(make_model(prior_sd=1.0))
    idata = exact.sample(chains=2, quiet=True, **options)
    fails("sums over all rows")
    check = exact.check(idata)
    assert check.reliable
    assert check.verdict.reason is Reason.EXACT
    assert (check.kl, check.symmetrised_kl) == (0.0, 0.0)
    assert exact.reweight(idata, random_seed=1)["posterior"].sizes["draw"] == 1_000
    assert exact.check(draws_from(0.5)).verdict.reason is Reason.FOREIGN
    with refused(InvalidDataError, "lack", "'b'", topic="draws"):
        exact.check(draws_from(0.5)["posterior"].to_dataset().rename(b="c"))


def test_all_rows_with_other_weights_are_not_exact(exact):
    doubled = replace(exact, weights=2 * exact.weights)
    assert doubled.check(draws_from(0.5)).kl > 0


@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")  # five rows are few
@pytest.mark.parametrize("call", ["check", "reweight", "log_ratios", "loo", "with_log_densities"])
def test_a_dataset_of_draws_is_as_good_as_a_tree(approximation, call):
    tree = draws_from(0.5)
    options = {"random_seed": 1} if call in ("reweight", "loo") else {}
    one, other = (
        getattr(approximation, call)(draws, **options)
        for draws in (tree, tree["posterior"].to_dataset())
    )
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, xr.DataTree):
        assert one.groups == other.groups
        for node in one.subtree:
            xr.testing.assert_allclose(node.to_dataset(), other[node.path].to_dataset())
    else:
        assert repr(one) == repr(other)


@pytest.mark.parametrize("draws", [{"b": np.zeros((2, 100))}, [1.0], None, "b", xr.DataTree()])
@pytest.mark.parametrize(
    "call", ["check", "reweight", "log_ratios", "loo", "with_log_densities", "predict"]
)
def test_what_are_no_draws_is_named(approximation, call, draws):
    draws = 1.0 if draws is None and call == "check" else draws  # polynomials have their own
    with refused(InvalidDataError, "idata", "pm.sample", topic="draws"):
        getattr(approximation, call)(draws)
