"""Bad input is refused with an error of ours that names what was found, and the remedy."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.exceptions import ImputationWarning
from pytensor.sparse import structured_dot
from scipy import sparse

from pymc_coresets import build_coreset
from pymc_coresets.exceptions import (
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
)
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.verification import reference_of, verify
from tests.models.zoo import CASES, MASK, OBS, REAL, N, X

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


UNSUPPORTED = [
    (no_observed, {}, "no observed variable.*observed="),
    (marginal_gp, {}, "'y' is one number.*Gaussian process.*HSGP"),
    (latent_gp, {}, "'f'.*one value per observation.*HSGP"),
    (simulator, {}, "'y' is a pm.Simulator.*sample_smc"),
    (
        volatility_of_all_steps_before,
        {},
        "'y' is one number.*other rows too.*loop.*scan.*recursion",
    ),
    (series_with_a_gap, {}, "PyMC imputes the missing values of 'y' together"),
    (moving_average, {}, r"no likelihood.*'total'.* sum over data, name it: observed="),
    (moving_average, {"observed": "total"}, "'total' is one number: a sum of 47 .*cumulative"),
    (
        cox_partial_likelihood,
        {"observed": "cox"},
        "'cox' is one number: .*other rows too.*cumulative sum",
    ),
    (scale_of_each_step, {}, "'s'.*one value per observation"),
    (no_observed, {"observed": "scalar"}, "depends on no free variable"),
    (normal_over_all_rows, {}, "'y' is one number: one joint density, not a sum"),
    (local_variables, {}, "'local'.*allow_local=True"),
    (minibatch, {}, "'y' .*whole data"),
    (total_size, {}, "'y' has total_size.*without total_size"),
    (unregistered_distribution, {}, "'y'.*random.*register"),
    (one_row, {}, "'y' has 1 observation"),
    (no_rows, {}, "'y' has 0 observation"),
    (scalar_observation, {}, "'y' is one number: one joint density, not a sum"),
    (sparse_container, {}, "'design' holds a sparse matrix.*pytensor.shared"),
    (linear, {"observed": ["z"]}, "'z'.*It has .'y'"),
    (linear, {"observed": "b"}, "'b'.*It has .'y'"),
    (linear, {"observed": []}, "observed=.*It has .'y'"),
    (linear, {"dim": "time"}, "dim='time'.*It has .'obs', 'other'"),
    (linear, {"dim": "obs"}, "dimension 'obs'.*dims='obs'"),
    (different_dims, {"observed": "z", "dim": "obs"}, "'z' has the dimensions.*observed="),
]


def built(build):
    with pm.Model(coords=OBS | {"other": range(N)}) as model:
        build()
    return model


@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
@pytest.mark.filterwarnings("ignore:.*RandomVariable:DeprecationWarning")  # PyMC's Simulator
@pytest.mark.parametrize(("build", "options", "message"), UNSUPPORTED)
def test_unsupported_model(build, options, message):
    with pytest.raises(UnsupportedModelError, match=f"(?s){message}"):
        find_observations(built(build), **options)


def test_sub_model():
    with pm.Model(), pm.Model(name="inner") as inner:
        linear()
    with pytest.raises(UnsupportedModelError, match=r"'inner' is part of another.*parent"):
        find_observations(inner)


def test_model_with_a_sub_model_is_whole():
    with pm.Model() as outer, pm.Model(name="inner"):
        linear()
    assert [t.name for t in find_observations(outer).terms] == ["inner::y"]


def test_no_model_at_all():
    with pytest.raises(InvalidOptionError, match=r"There is no model.*model="):
        find_observations()


def test_positions_of_imputed_rows_are_those_of_the_user_s_data():
    observations = find_observations(CASES["missing values imputed"].model())
    np.testing.assert_array_equal(observations.positions, np.flatnonzero(~MASK))


@pytest.mark.parametrize("name", ["local variables", "local variables without dims"])
def test_local_variables_are_allowed_on_request(name):
    observations = find_observations(CASES[name].model(), allow_local=True)
    assert observations.local in (("local",), ("true_x",))


def test_symbolic_initial_value():
    with pm.Model() as model:
        m = pm.Normal("m")
        pm.Normal("y", pm.Normal("b", initval=m + 1.0), 1.0, observed=REAL)
    loglik = LogLikelihood(find_observations(model))
    rows = loglik.source.take(np.arange(3))
    with pytest.raises(UnsupportedModelError, match=r"'b' has a symbolic initial value.*initval"):
        coreset_model(loglik.observations, rows, np.ones(3))


# -- data ------------------------------------------------------------------------------------------


def with_entry(array, value):
    return np.where(np.arange(array.size).reshape(array.shape) == 10, value, array)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_covariate_that_is_no_number_is_named(value):
    model = built(linear)
    with model:
        pm.set_data({"x": with_entry(X, value)})
    with pytest.raises(InvalidDataError, match=r"(?s)\b3\b.*'x'"):
        verify(LogLikelihood(find_observations(model)), rng=np.random.default_rng(1))


def test_nan_in_a_covariate_without_a_container():
    def with_array():
        pm.Normal("y", with_entry(X, np.nan) @ pm.Normal("b", shape=3), 1.0, observed=REAL)

    loglik = LogLikelihood(find_observations(built(with_array)))
    with pytest.raises(InvalidDataError, match=r"row 3\b.*not finite.*impute"):
        verify(loglik, rng=np.random.default_rng(1))


def test_rows_are_compared_where_a_formula_as_written_would_overflow():
    with pm.Model() as model:
        b = pm.Normal("b", initval=1.0)
        pm.Potential("y", pm.math.log(1 - pm.math.sigmoid(b * np.array([1.0, 800.0]))))
    loglik = LogLikelihood(find_observations(model))
    found = reference_of(loglik.observations)(Draws({"b": np.array([1.0])}))
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
    with pytest.raises(UnsupportedModelError, match="Leave the rows with missing values out"):
        build_coreset(model, size=3, method="uniform", random_seed=1, progressbar=False)


def test_parts_of_complex_data_are_data():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(3) + 1j)
        pm.Normal("y", pm.Normal("b") * x.real, 1.0, observed=np.ones(3))
    assert [row.values.dtype for row in find_observations(model).rows] == [float, float]


def test_complex_potentials_are_refused():
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("b") * (np.ones(3) + 1j)), observed=np.ones(3))
    with pytest.raises(InvalidDataError, match="'y' is computed of complex numbers"):
        find_observations(model)


def test_lengths_that_do_not_fit_are_named():
    with pm.Model() as model:
        x = pm.Data("x", np.ones(20))
        pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(2))
    with pytest.raises(InvalidDataError, match=r"lengths of the data.*'x': \(20,\)"):
        find_observations(model)


def test_impossible_observation_is_named():
    def beyond():
        pm.Exponential("y", pm.LogNormal("rate"), observed=with_entry(np.abs(REAL), -1.0))

    loglik = LogLikelihood(find_observations(built(beyond)))
    with pytest.raises(InvalidDataError, match=r"observation 10\b"):
        verify(loglik, rng=np.random.default_rng(1))


# -- options and draws -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size=0 must lie between 1 and .*47"),
        ({"size": -3}, "size=-3 must lie between"),
        ({"size": N + 1}, "size=48 must lie between"),
        ({"method": "best"}, "method='best' is unknown.*pursuit"),
        ({"weighting": "posterior"}, "weighting='posterior' is unknown.*subsample"),
        ({"size": 2.5}, "size=2.5"),
        ({"method": None}, "method=None"),
        ({"size": "5"}, "size='5'"),
    ],
)
def test_bad_option(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        build_coreset(
            built(linear),
            **{"size": 5, "weighting": "prior", "method": "pursuit", "progressbar": False}
            | options,
        )


B = np.random.default_rng(2).normal(size=(100, 3))


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        ({}, "lack the free variable 'b'"),
        ({"a": B}, "lack the free variable 'b'"),
        ({"b": B[:, :2]}, "'b' have shape"),
        ({"b": B[0]}, "'b' have shape"),
        ({"b": with_entry(B, np.nan)}, "'b' contain NaN"),
        ({"b": with_entry(B, np.inf)}, "'b' contain NaN or infinite"),
        ({"b": B[:5]}, "5 weighting draws are too few.*at least 20"),
        ({"b": B[:0]}, "'b' are none"),
        ({"b": np.ones((100, 3))}, "all the same"),
        ({"b": B.astype(str)}, "'b'"),
    ],
)
def test_bad_draws(draws, message):
    with pytest.raises(InvalidDataError, match=message):
        build_coreset(
            built(linear),
            size=5,
            method="pursuit",
            weighting=draws,
            random_seed=1,
            progressbar=False,
        )


def test_what_is_no_weighting_is_named():
    with pytest.raises(InvalidOptionError, match=r"weighting=\[1.0, 2.0\] must be .* Subsample"):
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
    loglik = LogLikelihood(find_observations(CASES["linear"].model()))
    with pytest.raises(InvalidDataError, match=r"different numbers of draws.*'b': 3.*'s': 2"):
        loglik.matrix({"b": np.zeros((3, 3)), "s": np.ones(2)})


def test_draws_outside_the_support_are_refused():
    loglik = LogLikelihood(find_observations(CASES["linear"].model()))
    with pytest.raises(InvalidDataError, match=r"observation 0.* at draw 1"):
        loglik.matrix({"b": np.zeros((2, 3)), "s": np.array([1.0, -1.0])})
