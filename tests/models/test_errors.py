"""Bad input is refused with an error of ours that names what was found, and the remedy."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning
from pytensor.sparse import structured_dot
from scipy import sparse

from pymc_coresets import InvalidDataError, InvalidOptionError, UnsupportedModelError, build_coreset
from tests.builds import read
from tests.models.zoo import CASES, MASK, OBS, REAL, N, X
from tests.refusals import refused

# -- models ----------------------------------------------------------------------------------------


def linear():
    pm.Normal("y", pm.Data("x", X) @ pm.Normal("b", shape=3), 1.0, observed=REAL)


def no_observed():
    pm.Normal("b")
    pm.Potential("scalar", pt.constant(0.0))


def marginal_gp():
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(3, ls=pm.HalfNormal("ell")))
    gp.marginal_likelihood("y", X=X, y=REAL, sigma=1.0)


def latent_gp():
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=1.0))
    pm.Normal("y", gp.prior("f", X=X, reparameterize=False), 1.0, observed=REAL)


def simulator():
    def simulate(rng, mu, size):
        return rng.normal(mu, size=size)

    pm.Simulator("y", simulate, pm.Normal("mu"), observed=REAL)


def volatility_of_all_steps_before():
    a, b = pm.Beta("a", 1, 1), pm.Beta("b", 1, 1)
    pm.GARCH11("y", omega=1.0, alpha_1=a, beta_1=b, initial_vol=1.0, observed=REAL)


def series_with_a_gap():
    start = pm.Normal.dist(0, 1)
    observed = np.ma.masked_array(REAL, np.arange(N) == 5)
    pm.AR("y", rho=[pm.Normal("rho")], sigma=1.0, init_dist=start, observed=observed)


def moving_average():
    step = pm.Normal("rho") ** np.arange(N)
    shocks = pt.cumsum(REAL / step) * step
    pm.Potential("total", -0.5 * (shocks**2).sum())


def cox_partial_likelihood():
    eta = X @ pm.Normal("b", shape=3)  # of persons in the order of their times, the last one first
    pm.Potential("cox", (eta - pt.log(pt.cumsum(pt.exp(eta)))).sum())


def scale_of_each_step():
    walk = {"sigma": pm.HalfNormal("s", shape=N - 1), "init_dist": pm.Normal.dist(0, 1)}
    pm.GaussianRandomWalk("y", observed=REAL, **walk)


def normal_over_all_rows():
    pm.MvNormal("y", pm.Normal("m") * np.ones(N), cov=np.eye(N), observed=REAL)


def local_variables():
    local = pm.Normal("local", shape=N)
    pm.Poisson("y", pm.math.exp(pm.Normal("m") + local), observed=np.ones(N, int))


def minibatch():
    x, y = pm.Minibatch(X[:, 0], REAL, batch_size=5)
    pm.Normal("y", pm.Normal("m") * x, 1.0, observed=y, total_size=N)


def total_size():
    pm.Normal("y", pm.Normal("m"), 1.0, observed=REAL, total_size=1000)


def unregistered_distribution():
    pm.Normal("y", pm.Normal.dist(), 1.0, observed=REAL)


def different_dims():
    m = pm.Normal("m")
    pm.Normal("y", m, 1.0, observed=REAL, dims="obs")
    pm.Normal("z", m, 1.0, observed=REAL, dims="other")


def one_row():
    pm.Normal("y", pm.Normal("m"), 1.0, observed=[1.0])


def no_rows():
    pm.Normal("y", pm.Normal("m"), 1.0, observed=np.empty(0))


def scalar_observation():
    pm.Normal("y", pm.Normal("m"), 1.0, observed=1.0)


def sparse_container():
    design = pm.Data("design", sparse.csr_matrix(X))
    pm.Normal("y", structured_dot(design, pm.Normal("b", shape=(3, 1)))[:, 0], observed=REAL)


MODEL, SUM, LOCAL = "models-that-are-refused", "no-sum-over-rows", "local-latent-variables"
UNSUPPORTED = [
    (no_observed, {}, ("observed=...", "['scalar']"), MODEL),
    (marginal_gp, {}, ("'y'", "one number", "pm.gp.HSGP"), SUM),
    (latent_gp, {}, ("['f']", "pm.gp.HSGP"), LOCAL),
    (simulator, {}, ("'y'", "pm.Simulator", "pm.sample_smc"), MODEL),
    (volatility_of_all_steps_before, {}, ("'y'", "46 terms", "pytensor.scan"), SUM),
    (series_with_a_gap, {}, ("'y'", "missing values"), MODEL),
    (moving_average, {}, ("['total']", "observed=..."), MODEL),
    (moving_average, {"observed": "total"}, ("'total'", "47 terms", "cumulative sum"), SUM),
    (cox_partial_likelihood, {"observed": "cox"}, ("'cox'", "47 terms", "cumulative sum"), SUM),
    (scale_of_each_step, {}, "['s']", LOCAL),
    (no_observed, {"observed": "scalar"}, ("['scalar']", "['b']", "prior"), MODEL),
    (normal_over_all_rows, {}, ("'y'", "one number", "joint density"), SUM),
    (local_variables, {}, ("['local']", "allow_local=True"), LOCAL),
    (minibatch, {}, ("'y'", "total_size"), MODEL),
    (total_size, {}, ("'y'", "total_size"), MODEL),
    (unregistered_distribution, {}, ("'y'", "random", "register"), MODEL),
    (one_row, {}, ("'y'", "1 observation"), MODEL),
    (no_rows, {}, ("'y'", "0 observation"), MODEL),
    (scalar_observation, {}, ("'y'", "one number", "joint density"), SUM),
    (sparse_container, {}, ("'design'", "sparse matrix", "pytensor.shared"), MODEL),
    (linear, {"observed": ["z"]}, ("'z'", "['y']"), MODEL),
    (linear, {"observed": "b"}, ("'b'", "['y']"), MODEL),
    (linear, {"observed": []}, ("observed=", "['y']"), MODEL),
    (linear, {"dim": "time"}, ("dim='time'", "['obs', 'other']"), MODEL),
    (linear, {"dim": "obs"}, ("'obs'", "dims='obs'"), MODEL),
    (different_dims, {"observed": "z", "dim": "obs"}, ("'z'", "dimensions", "observed="), MODEL),
]


def built(build):
    with pm.Model(coords=OBS | {"other": range(N)}) as model:
        build()
    return model


@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
@pytest.mark.filterwarnings("ignore:.*RandomVariable:DeprecationWarning")  # PyMC's Simulator
@pytest.mark.parametrize(("build", "options", "facts", "topic"), UNSUPPORTED)
def test_unsupported_model(build, options, facts, topic):
    with refused(UnsupportedModelError, facts, topic=topic):
        read(built(build), **options)


def test_sub_model():
    with pm.Model(), pm.Model(name="inner") as inner:
        linear()
    with refused(UnsupportedModelError, "'inner'", "parent"):
        read(inner)


def test_model_with_a_sub_model_is_whole():
    with pm.Model() as outer, pm.Model(name="inner"):
        linear()
    assert [t.name for t in read(outer).observations.terms] == ["inner::y"]


def test_no_model_at_all():
    with refused(InvalidOptionError, "model=...", "pm.Model()"):
        read()


def test_positions_of_imputed_rows_are_those_of_the_user_s_data():
    observations = read(CASES["missing values imputed"].model()).observations
    np.testing.assert_array_equal(observations.positions, np.flatnonzero(~MASK))


@pytest.mark.parametrize("name", ["local variables", "local variables without dims"])
def test_local_variables_are_allowed_on_request(name):
    coreset = read(CASES[name].model(), allow_local=True)
    assert coreset.observations.local in (("local",), ("true_x",))


def test_symbolic_initial_value():
    with pm.Model() as model:
        start = pm.Data("start", 1.0)
        pm.Normal("y", pm.Normal("b", initval=start + 1.0), 1.0, observed=REAL)
    with refused(UnsupportedModelError, "'b'", "initval"):
        read(model)


# -- data ------------------------------------------------------------------------------------------


def with_entry(array, value):
    return np.where(np.arange(array.size).reshape(array.shape) == 10, value, array)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_covariate_that_is_no_number_is_named(value):
    model = built(linear)
    with model:
        pm.set_data({"x": with_entry(X, value)})
    with refused(InvalidDataError, "3", "'x'"):
        read(model)


def test_nan_in_a_covariate_without_a_container():
    def with_array():
        pm.Normal("y", with_entry(X, np.nan) @ pm.Normal("b", shape=3), 1.0, observed=REAL)

    with refused(InvalidDataError, "row 3", "impute"):
        read(built(with_array))


def test_rows_are_compared_where_a_formula_as_written_would_overflow():
    with pm.Model() as model:
        b = pm.Normal("b", initval=1.0)
        pm.Potential("y", pm.math.log(1 - pm.math.sigmoid(b * np.array([1.0, 800.0]))))
    found = read(model, size=1).matrix({"b": np.array([1.0])})
    np.testing.assert_allclose(found[:, 0], [-np.log1p(np.e), -800.0])


def test_random_draws_beside_the_likelihood_are_left_alone():
    """As those write who want predictions with their draws."""
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Normal("y", b, 1.0, observed=REAL)
        pm.Deterministic("new", b + pm.Normal.dist())
    found = build_coreset(model, size=3, method="uniform", random_seed=1, progressbar=False)
    assert found.model["new"].eval({found.model["b"]: 0.0}) != 0


def test_imputed_values_that_share_a_density_with_the_others_are_refused():
    observed = np.ma.masked_array(np.ones(N, int), np.arange(N) == 5)
    with pm.Model() as model, pytest.warns(ImputationWarning):
        pm.ZeroInflatedPoisson("y", 0.5, pm.math.exp(pm.Normal("b")), observed=observed)
    with refused(UnsupportedModelError, "'y'", "missing values"):
        build_coreset(model, size=3, method="uniform", random_seed=1, progressbar=False)


def test_parts_of_complex_data_are_data():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(3) + 1j)
        pm.Normal("y", pm.Normal("b") * x.real, 1.0, observed=np.ones(3))
    assert [row.values.dtype for row in read(model).observations.rows] == [float, float]


def test_complex_potentials_are_refused():
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("b") * (np.ones(3) + 1j)), observed=np.ones(3))
    with refused(InvalidDataError, "'y'", "complex"):
        read(model)


def test_lengths_that_do_not_fit_are_named():
    with pm.Model() as model:
        x = pm.Data("x", np.ones(20))
        pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(2))
    with refused(InvalidDataError, "'x': (20,)"):
        read(model)


def test_impossible_observation_is_named():
    def beyond():
        pm.Exponential("y", pm.LogNormal("rate"), observed=with_entry(np.abs(REAL), -1.0))

    with refused(InvalidDataError, "observation 10"):
        read(built(beyond))


# -- options and draws -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"size": 0}, ("size=0", "1 and 47")),
        ({"size": -3}, ("size=-3", "1 and 47")),
        ({"size": N + 1}, ("size=48", "1 and 47")),
        ({"method": "best"}, ("method='best'", "'pursuit'")),
        ({"weighting": "posterior"}, ("weighting='posterior'", "'subsample'")),
        ({"size": 2.5}, "size=2.5"),
        ({"method": None}, "method=None"),
        ({"size": "5"}, "size='5'"),
    ],
)
def test_bad_option(options, facts):
    with refused(InvalidOptionError, facts):
        build_coreset(
            built(linear),
            **{"size": 5, "weighting": "prior", "method": "pursuit", "progressbar": False}
            | options,
        )


B = np.random.default_rng(2).normal(size=(100, 3))


@pytest.mark.parametrize(
    ("draws", "facts", "topic"),
    [
        ({}, ("lack", "'b'"), "draws"),
        ({"a": B}, ("lack", "'b'"), "draws"),
        ({"b": B[:, :2]}, ("'b'", "shape"), "draws"),
        ({"b": B[0]}, ("'b'", "shape"), "draws"),
        ({"b": with_entry(B, np.nan)}, ("'b'", "NaN"), "draws"),
        ({"b": with_entry(B, np.inf)}, ("'b'", "infinite"), "draws"),
        ({"b": B[:5]}, ("5 weighting draws", "at least 20"), "the-data-and-the-model"),
        ({"b": B[:0]}, ("'b'", "(0, 3)"), "draws"),
        ({"b": np.ones((100, 3))}, ("does not vary", "weighting draws"), "the-data-and-the-model"),
        ({"b": B.astype(str)}, "'b'", "draws"),
    ],
)
def test_bad_draws(draws, facts, topic):
    with refused(InvalidDataError, facts, topic=topic):
        build_coreset(
            built(linear),
            size=5,
            method="pursuit",
            weighting=draws,
            random_seed=1,
            progressbar=False,
        )


def test_what_is_no_weighting_is_named():
    with refused(InvalidOptionError, "weighting=[1.0, 2.0]", "Subsample"):
        build_coreset(built(linear), method="pursuit", weighting=[1.0, 2.0], progressbar=False)


@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
def test_draws_with_labels_are_draws():
    labels = {"chain": [0, 1], "draw": range(50)}
    draws = xr.Dataset({"b": (("chain", "draw", "k"), B.reshape(2, 50, 3))}, coords=labels)
    coreset = build_coreset(
        built(linear), size=5, method="pursuit", weighting=draws, random_seed=1, progressbar=False
    )
    assert coreset.weighting == "user's draws"


def test_draws_of_different_length():
    loglik = read(CASES["linear"].model())
    with refused(InvalidDataError, "'b': 3", "'s': 2", topic="draws"):
        loglik.matrix({"b": np.zeros((3, 3)), "s": np.ones(2)})


def test_draws_outside_the_support_are_refused():
    loglik = read(CASES["linear"].model())
    with refused(InvalidDataError, "observation 0", "draw 1"):
        loglik.matrix({"b": np.zeros((2, 3)), "s": np.array([1.0, -1.0])})
