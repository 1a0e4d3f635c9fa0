"""From a model to a coreset posterior, against the closed form of weighted linear regression."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

from pymc_coresets import (
    GIGA,
    IHT,
    Coreset,
    CoresetError,
    FrankWolfe,
    InvalidDataError,
    InvalidOptionError,
    Pursuit,
    RiemannianPursuit,
    SamplingError,
    SparseVI,
    Subsample,
    Uniform,
    UnsupportedModelError,
    build_coreset,
    plot_history,
    plot_weights,
)
from tests.refusals import refused, warned

N, D, SIZE = 3_000, 4, 30
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, D))
Y = X @ RNG.normal(size=D) + RNG.normal(size=N)


def posterior(weights, x=X, y=Y):
    covariance = np.linalg.inv(np.eye(x.shape[1]) + x.T @ (weights[:, None] * x))
    return covariance @ (x.T @ (weights * y)), covariance


def gaussian_kl(p, q):
    (mean, covariance), (other_mean, other_covariance) = p, q
    ratio = np.linalg.solve(other_covariance, covariance)
    shift = other_mean - mean
    return 0.5 * (
        np.trace(ratio)
        - len(mean)
        - np.linalg.slogdet(ratio)[1]
        + shift @ np.linalg.solve(other_covariance, shift)
    )


def kl_of(coreset):
    weights = np.zeros(N)
    weights[coreset.indices] = coreset.weights
    return gaussian_kl(posterior(weights), posterior(np.ones(N)))


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"obs": np.arange(N)}) as model:
        x = pm.Data("x", X, dims=("obs", "k"))
        beta = pm.Normal("beta", shape=D)
        pm.Normal("y", x @ beta, 1.0, observed=Y, dims="obs")
    return model


HILBERT = (Pursuit, IHT, GIGA, FrankWolfe)


def build(model, **options):
    options = {"size": SIZE, "method": "pursuit", "random_seed": 1, "progressbar": False} | options
    if options["method"] == "pursuit" or isinstance(options["method"], HILBERT):
        options = {"weighting": "laplace"} | options
    return build_coreset(model, **options)


@pytest.mark.parametrize(
    ("method", "limit"),
    [("pursuit", 1e-6), (Pursuit(), 1e-6), (IHT(), 1.0), (GIGA(), 1.0), (FrankWolfe(), 10.0)],
    ids=["pursuit", "Pursuit()", "IHT", "GIGA", "FrankWolfe"],
)
def test_the_coreset_posterior_is_the_full_one(model, method, limit):
    # Quadratic log-likelihoods span D(D + 3)/2 = 14 dimensions: 30 rows match them to rounding.
    assert kl_of(build(model, method=method)) < limit


def test_uniform_is_much_worse(model):
    assert kl_of(build(model, method="uniform")) > 1.0


@pytest.mark.parametrize(
    "weighting",
    [
        Subsample(size=300, sampler="laplace"),
        "prior",
        pytest.param("subsample", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_weighting_draws_far_from_the_posterior_still_do_for_a_quadratic(model, weighting):
    assert kl_of(build(model, weighting=weighting)) < 1e-4


def test_the_users_draws_can_be_the_weighting_distribution(model):
    mean, covariance = posterior(np.ones(N))
    draws = {"beta": RNG.multivariate_normal(mean, covariance, size=600, method="cholesky")}
    assert kl_of(build(model, weighting=draws)) < 1e-6


def test_result_has_what_was_asked_for(model):
    coreset = build(model)
    assert coreset.size <= SIZE
    assert np.all(np.diff(coreset.indices) > 0)
    assert np.all(coreset.weights > 0)
    assert coreset.n_observations == N
    assert coreset.full_model is model
    assert coreset.history["heldout_objective"][-1] < 1e-6 * coreset.history["heldout_objective"][0]
    assert all(seconds > 0 for seconds in coreset.history.attrs.values())


def test_history_says_what_every_round_cost_and_reached(model):
    history = build(model, size=None, method="auto").history
    assert np.isfinite(history["kl"]).all()
    assert history["pareto_khat"][-1] < 0.7
    assert (history["n_passes"].diff("step") >= 1).all()
    assert (history["seconds_drawing"].diff("step") > 0).all()
    assert history.attrs["n_sampler_runs"] == history.sizes["step"]
    assert history.attrs["n_divergences"] == history.attrs["n_failed_starts"] == 0


def test_sparse_vi_needs_modes_and_names_a_method_that_does_not():
    rng, group = np.random.default_rng(1), np.arange(400) % 4
    y = rng.normal(rng.normal(size=4)[group])
    with pm.Model() as hierarchy:  # centred: the density has no mode where the scale is 0
        scale = pm.HalfNormal("scale")
        effect = pm.Normal("effect", 0, scale, shape=4)
        pm.Normal("y", effect[group], observed=y)
    with refused(SamplingError, "'riemannian_pursuit'"):
        build(hierarchy, size=4, method=SparseVI(draws=100, n_steps=5))


@pytest.mark.parametrize("tolerance", [1.0, 0.01])
def test_without_options_it_is_as_close_as_the_tolerance_asks(model, tolerance):
    coreset = build_coreset(model, tolerance=tolerance, random_seed=1, progressbar=False)
    assert kl_of(coreset) < 3 * tolerance
    assert coreset.size <= D * (D + 3) // 2 + 1


@pytest.mark.parametrize("method", [GIGA(), IHT(), FrankWolfe(), Pursuit(), RiemannianPursuit()])
def test_option_objects_and_classes_are_told_apart(model, method):
    with refused(InvalidOptionError, "method=<class", "'riemannian_pursuit'", "ControlVariates()"):
        build(model, method=type(method))
    assert type(method).__name__ in build(model, method=method).method


def test_a_tolerance_out_of_reach_is_said_once(model):
    with warned("1e-06") as record:
        build_coreset(model, size=2, tolerance=1e-6, random_seed=1, progressbar=False)
    assert len(record) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"method": "pursuit", "tolerance": 1e-6},
        {"method": Pursuit(tolerance=1e-6)},
        {"method": RiemannianPursuit(tolerance=1e-6)},
    ],
    ids=["pursuit", "Pursuit", "RiemannianPursuit"],
)
@pytest.mark.filterwarnings("ignore:The posterior of all rows reaches further")
def test_it_is_the_tolerance_asked_for_that_counts(model, options):
    with warned("1e-06"):
        coreset = build(model, size=8, **options)
    assert 1e-6 < coreset.objective < 1
    assert f"about {coreset.objective:.3g} nats" in repr(coreset)


def test_draws_of_another_posterior_do_not_show_that_directions_are_missing(model):
    """At these draws even no coreset at all is D / 2 nats away."""
    found = build(model, tolerance=5.0)
    assert found.objective <= 0.1
    assert kl_of(found) < 0.5


def test_a_default_tolerance_does_not_count_where_a_size_was_asked_for(model):
    coreset = build(model, size=5, method=RiemannianPursuit())
    assert 0.01 < coreset.objective < 1


def test_a_tolerance_counts_where_a_size_was_asked_for_too(model):
    with warned("0.01"):
        build_coreset(model, size=5, tolerance=0.01, random_seed=1, progressbar=False)


@pytest.mark.parametrize("size", [20, N - 1])
def test_a_time_budget_that_is_used_up_is_said(model, size):
    with warned("time budget", "not measured"):
        coreset = build_coreset(
            model, size=size, time_budget=1e-9, random_seed=1, progressbar=False
        )
    assert coreset.size <= size
    assert coreset.history.sizes["step"] == 0
    assert "nats" not in repr(coreset)


def test_few_observations_for_many_parameters_are_said():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", shape=3)[np.arange(12) % 3], 1.0, observed=np.arange(12.0))
    with warned("12 observations", "3 free dimensions"):
        build(model, size=6, method="uniform")


def test_a_part_whose_cost_grows_with_n_is_named():
    walk = np.arange(100.0)
    with pm.Model() as model:
        pm.Normal("y", pt.cumsum(pm.Normal("b") * walk), 1.0, observed=walk)
    with warned("cumulative sum", "'b'", "number of observations"):
        build(model, size=6, method="uniform")


def test_a_coreset_of_a_coreset_model_is_refused(model):
    with refused(UnsupportedModelError, "full model"):
        build(build(model, method="uniform").model)


@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
def test_quantile_regression_has_kinks_and_a_coreset():
    """From a sample of 1,000 rows no mode is found; rounds without one ended at 70 nats."""
    rng = np.random.default_rng(16)
    x, n = rng.normal(size=4_000), 4_000
    with pm.Model() as model:
        b, s = pm.Normal("b", 0, 2, shape=2), pm.HalfNormal("s")
        y = 1 + 0.5 * x + rng.standard_normal(n)
        pm.AsymmetricLaplace("y", mu=b[0] + b[1] * x, q=0.8, b=1 / s, observed=y)
    coreset = build_coreset(model, random_seed=2, progressbar=False)
    assert coreset.objective < 0.05
    assert coreset.size <= 100
    check = coreset.check(coreset.sample(random_seed=1, progressbar=False, quiet=True))
    assert check.reliable


def test_an_initial_value_that_depends_on_another_variable_is_refused():
    """As PyMC does when it samples the model."""
    with pm.Model() as model:
        scale, mean = pm.HalfNormal("scale"), pm.Normal("mean")
        level = pm.Normal("level", mean, scale, initval=mean + 1)
        pm.Normal("y", level, 1.0, observed=np.arange(300.0) / 300)
    with refused(UnsupportedModelError, "'level'", "'mean'", "initval=0.0"):
        build(model)


def test_draws_that_the_full_data_exclude_are_said():
    y = np.r_[np.random.default_rng(1).uniform(0, 1, size=300), 5.0]
    with pm.Model() as model:
        pm.Uniform("y", 0, pm.Pareto("t", 1, 1, initval=10.0), observed=y)
    coreset = build(model, size=5, method="uniform")
    t = np.random.default_rng(2).uniform(1.0, 1.1, size=(2, 100))  # as its posterior is about
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"t": (("chain", "draw"), t)})})
    with refused(InvalidDataError, "100.0%", "impossible", topic="draws"):
        coreset.check(idata)


def test_same_seed_same_coreset_and_other_seed_another(model):
    one, two, other = build(model), build(model), build(model, random_seed=2)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.weights, two.weights)
    assert not np.array_equal(one.indices, other.indices)


def test_the_model_of_the_context_is_used(model):
    with model:
        coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    assert coreset.full_model is model


def test_default_size_matches_a_quadratic_log_posterior(model):
    assert build(model, size=None).size <= 50


def test_collapsing_merges_identical_rows_exactly():
    flags = RNG.integers(0, 2, size=(5_000, 3)).astype(float)
    y = RNG.normal(flags @ [1.0, 2.0, -1.0], 1.0).round()
    with pm.Model() as model:
        pm.Normal("y", flags @ pm.Normal("beta", shape=3), 1.0, observed=y)
    coreset = build_coreset(
        model,
        method="pursuit",
        size=60,
        collapse=True,
        weighting="laplace",
        random_seed=1,
        progressbar=False,
    )
    distinct = len(np.unique(np.c_[flags, y], axis=0))
    assert coreset.n_distinct == distinct < coreset.n_observations == 5_000
    weights = np.zeros(5_000)
    weights[coreset.indices] = coreset.weights
    full, approximate = (posterior(w, flags, y) for w in (np.ones(5_000), weights))
    assert gaussian_kl(approximate, full) < 1e-6


@pytest.fixture(scope="module")
def census():
    rng = np.random.default_rng(4)
    flags = rng.integers(0, 2, size=(50_000, 3)).astype(float)
    y = rng.normal(flags @ [1.0, 2.0, -1.0], 1.0).round()
    with pm.Model(coords={"flag": ["a", "b", "c"]}) as model:
        beta = pm.Normal("beta", dims="flag")
        pm.Normal("y", flags @ beta, 1.0, observed=y)
    return model, flags, y


@pytest.mark.parametrize("options", [{}, {"method": "exact"}])
def test_few_distinct_rows_are_all_kept(census, options):
    model, flags, y = census
    coreset = build_coreset(model, random_seed=1, progressbar=False, **options)
    assert coreset.method == "exact"
    assert coreset.size == coreset.n_distinct == len(np.unique(np.c_[flags, y], axis=0))
    weights = np.zeros(len(y))
    weights[coreset.indices] = coreset.weights
    full, exact = (posterior(w, flags, y) for w in (np.ones(len(y)), weights))
    assert gaussian_kl(exact, full) < 1e-12
    assert (coreset.objective, coreset.status[-6:]) == (0.0, "exact.")


def test_rows_are_chosen_where_equal_ones_are_not_merged(census):
    coreset = build_coreset(census[0], collapse=False, random_seed=1, progressbar=False)
    assert (coreset.method, coreset.n_distinct) == ("riemannian_pursuit", 50_000)
    assert coreset.objective < 0.01


def test_all_rows_are_not_limited(census):
    with refused(InvalidOptionError, "size=7", "method='exact'", "distinct rows"):
        build_coreset(census[0], method="exact", size=7)


def test_importance_draws_are_those_of_the_full_posterior(model):
    """Five standard errors of the mean; deviations to a tenth."""
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.importance_draws(random_seed=1)
    mean, covariance = posterior(np.ones(N))
    beta, deviations = idata["posterior"]["beta"], np.sqrt(np.diag(covariance))
    assert beta.sizes["draw"] == 1_000
    assert idata["posterior"].attrs["pareto_khat"] < 0.7
    errors = deviations / np.sqrt(idata["posterior"].attrs["psis_ess"])
    assert (np.abs(beta.mean(("chain", "draw")) - mean) < 5 * errors).all()
    np.testing.assert_allclose(beta.std(("chain", "draw")), deviations, rtol=0.1)
    again = coreset.importance_draws(50, random_seed=1)
    assert again["posterior"].sizes["draw"] == 50


def test_importance_draws_have_the_model_s_dims(census):
    coreset = build_coreset(census[0], collapse=False, random_seed=1, progressbar=False)
    beta = coreset.importance_draws(random_seed=1)["posterior"]["beta"]
    assert beta.dims == ("chain", "draw", "flag")
    assert list(beta["flag"].values) == ["a", "b", "c"]


def test_other_methods_have_no_importance_draws(model):
    with refused(CoresetError, "no importance draws", "sample()"):
        build(model, method="uniform").importance_draws()


def test_ten_binary_covariates_have_at_most_2048_kinds_of_rows():
    flags = RNG.integers(0, 2, size=(20_000, 10))
    with pm.Model() as model:
        logit_p = flags @ pm.Normal("beta", shape=10)
        pm.Bernoulli("y", logit_p=logit_p, observed=RNG.integers(0, 2, 20_000))
    coreset = build_coreset(
        model, size=3_000, collapse=True, method="uniform", random_seed=1, progressbar=False
    )
    assert coreset.n_distinct <= 2_048


def test_there_are_no_more_weights_than_distinct_rows():
    y = np.repeat([0.0, 1.0, 2.0], [10, 20, 30])
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=y)
    coreset = build_coreset(
        model, size=50, collapse=True, method="uniform", random_seed=1, progressbar=False
    )
    assert list(coreset.indices) == [0, 10, 30]
    assert coreset.weights.sum() == pytest.approx(60)
    counts, chances = coreset.weights * 50 / 60, np.array([1, 2, 3]) / 6
    np.testing.assert_allclose(counts, np.rint(counts))  # as many draws as were asked for
    sds = np.sqrt(50 * chances * (1 - chances))
    assert (np.abs(counts - 50 * chances) < 4.5 * sds).all()


@pytest.mark.parametrize(
    ("options", "error", "facts"),
    [
        ({"size": 0}, InvalidOptionError, "size=0"),
        ({"size": N + 1}, InvalidOptionError, str(N)),
        ({"method": "magic"}, InvalidOptionError, ("method='magic'", "'pursuit'")),
        ({"method": "auto", "time_budget": 0.0}, InvalidOptionError, "time_budget=0.0"),
        ({"method": "auto", "time_budget": np.nan}, InvalidOptionError, "time_budget=nan"),
        ({"method": "pursuit", "time_budget": 9.0}, InvalidOptionError, "time_budget=9.0"),
        (
            {"method": "auto", "weighting": "laplace"},
            InvalidOptionError,
            ("weighting=laplace", "method='pursuit'"),
        ),
        (
            {"method": "uniform", "weighting": "prior"},
            InvalidOptionError,
            ("weighting=prior", "method='uniform'"),
        ),
        ({"method": "uniform", "tolerance": 0.1}, InvalidOptionError, "tolerance=0.1"),
        ({"method": SparseVI(), "weighting": "prior"}, InvalidOptionError, "weighting=prior"),
        ({"weighting": "magic"}, InvalidOptionError, ("weighting='magic'", "'laplace'")),
        (
            {"weighting": {"beta": np.zeros((100, D))}},
            InvalidDataError,
            ("does not vary", "weighting draws"),
        ),
        (
            {"weighting": {"beta": np.zeros((5, D))}},
            InvalidDataError,
            ("5 weighting draws", "at least 20"),
        ),
    ],
)
def test_bad_arguments_are_named(model, options, error, facts):
    with refused(error, facts):
        build(model, **options)


# -- afterwards: sample, check, reweight, store ----------------------------------------------------


@pytest.fixture(scope="module")
def coreset(model):
    return build(model, size=8)  # too few for an exact match, so that there is something to see


@pytest.fixture(scope="module")
def idata(coreset):
    return coreset.sample(draws=1_500, tune=300, chains=2, random_seed=1, progressbar=False)


def test_draws_are_those_of_the_weighted_posterior(coreset, idata):
    weights = np.zeros(N)
    weights[coreset.indices] = coreset.weights
    mean, covariance = posterior(weights)
    draws = idata["posterior"]["beta"].to_numpy().reshape(-1, D)
    # NUTS draws of a normal posterior: five standard errors of 1,000 independent draws.
    errors = (draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
    assert np.abs(errors).max() < 5 / np.sqrt(1_000)


def test_check_estimates_the_true_divergence(coreset, idata):
    check = coreset.check(idata)
    assert abs(check.kl - kl_of(coreset)) < 4 * check.kl_mcse + 0.05 * check.kl


def test_reweighted_draws_have_the_means_of_the_full_posterior(coreset, idata):
    """Five standard errors of as many independent draws as they say that they are worth."""
    corrected = coreset.reweight(idata, random_seed=1)["posterior"]
    mean, covariance = posterior(np.ones(N))
    errors = corrected["beta"].mean(("chain", "draw")).to_numpy() - mean
    limit = 5 / np.sqrt(corrected.attrs["psis_ess"])
    assert np.abs(errors / np.sqrt(np.diag(covariance))).max() < limit


def test_log_ratios_are_the_difference_of_the_two_log_likelihoods(coreset, idata):
    beta = idata["posterior"]["beta"].to_numpy()
    weights = np.zeros(N)
    weights[coreset.indices] = coreset.weights
    residuals = Y - beta @ X.T
    expected = -0.5 * residuals**2 @ (1 - weights)
    ratios = coreset.log_ratios(idata)
    np.testing.assert_allclose(ratios - ratios.mean(), expected - expected.mean(), atol=1e-6)


def test_sampling_adds_the_coreset_to_the_tree(coreset, idata):
    np.testing.assert_array_equal(idata["coreset"]["indices"], coreset.indices)
    assert idata["coreset"].attrs["method"] == "pursuit"


def test_netcdf_round_trip(coreset, idata, model, tmp_path):
    pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")
    coreset.to_netcdf(tmp_path / "coreset.nc")
    back = Coreset.from_netcdf(tmp_path / "coreset.nc", model)
    np.testing.assert_array_equal(back.weights, coreset.weights)
    np.testing.assert_allclose(back.log_ratios(idata), coreset.log_ratios(idata))
    assert repr(back) == repr(coreset)
    assert back.certificate == coreset.certificate
    assert back.objective == coreset.objective
    assert back.history.equals(coreset.history)
    without = Coreset.from_netcdf(tmp_path / "coreset.nc")
    with refused(CoresetError, "from_netcdf(path, model=...)"):
        without.sample()


def test_a_file_of_another_model_is_refused(coreset, tmp_path):
    pytest.importorskip("h5netcdf", reason="needs the extra 'netcdf'")
    coreset.to_netcdf(tmp_path / "coreset.nc")
    with pm.Model(coords={"obs": range(5)}) as other:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(5), dims="obs")
    with refused(InvalidDataError, "3000", topic="coresets-in-files"):
        Coreset.from_netcdf(tmp_path / "coreset.nc", other)


def test_reprs_say_what_it_is(coreset):
    assert "of 3,000" in repr(coreset)
    assert "pursuit" in repr(coreset)


def test_weights_and_history_can_be_plotted(coreset):
    assert plot_weights(coreset).get_xlabel()
    assert plot_history(coreset).get_xlabel()


def test_an_exact_coreset_has_importance_draws(census):
    model, flags, y = census
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.history["n_passes"][-1] == 1
    drawn = coreset.importance_draws(random_seed=1)["posterior"]
    assert drawn.attrs["level"] == "Reliable"
    mean, covariance = posterior(np.ones(len(y)), flags, y)
    errors = (drawn["beta"].values[0].mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
    assert np.abs(errors).max() < 5 / np.sqrt(drawn.attrs["psis_ess"])


@pytest.mark.parametrize("check", ["comparison of rows", "comparison of forms"])
def test_nothing_is_chosen_by_potentials_that_pymc_contradicts(model, check, fails):
    fails(check, error=UnsupportedModelError("PyMC gives something else"))
    fails(Uniform, "run")
    with refused(UnsupportedModelError, "something else"):
        build_coreset(model, size=5, method="uniform", progressbar=False)


@pytest.mark.parametrize(
    ("method", "weighting", "said"),
    [
        ("auto", None, "the coreset's posterior"),
        ("uniform", None, "none"),
        ("pursuit", None, "subsample"),
        ("pursuit", "laplace", "laplace"),
    ],
)
def test_the_weighting_is_named(model, method, weighting, said):
    coreset = build_coreset(
        model, size=5, method=method, weighting=weighting, random_seed=1, progressbar=False
    )
    name = {"auto": "riemannian_pursuit"}.get(method, method)
    assert (coreset.method, coreset.weighting) == (name, said)


@pytest.mark.parametrize("beyond", [-np.inf, np.nan])
def test_far_proposals_of_density_zero_have_no_weight(beyond):
    """A few of a thousand proposals are beyond 2.2 standard deviations, where no row is possible.

    A log of one minus a distribution function is so where that is rounded to one.
    """
    y = np.random.default_rng(1).normal(size=2_000)
    end = y.mean() + 2.2 / np.sqrt(2_000)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0)
        pm.Potential("y", pm.math.switch(mu < end, -((y - mu) ** 2) / 2, beyond))
    coreset = build_coreset(model, observed="y", random_seed=1, progressbar=False)
    assert coreset.certificate.reliable
    draws = coreset.proposal.draws.values["mu"]
    assert draws.max() < end
    assert 960 < len(draws) < 1_000
    assert len(coreset.history["step"]) == 1
