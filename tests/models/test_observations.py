"""What is found in models whose lengths, names and missing values are unusual."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_coresets import InvalidOptionError, UnsupportedModelError
from tests.builds import of_some_rows, read
from tests.models.zoo import REAL, N, X
from tests.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore:Data in .* contains missing values")


def without(values, *rows):
    """Mask one row of some data, or single entries of them."""
    mask = np.zeros(values.shape, dtype=bool)
    for row in rows:
        mask[row] = True
    return np.ma.masked_array(values, mask)


# -- the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["hello", 3, pm.Normal.dist(), pm.Model])
def test_what_is_no_model_is_refused(model):
    with refused(InvalidOptionError, "model", "pm.Model"):
        read(model)


def test_model_of_the_context():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("m"), 1.0, observed=REAL)
        assert of_some_rows().full_model is model


# -- the length of the axis ------------------------------------------------------------------------


def autoregression_of_free_order():
    rho = pm.Normal("rho", dims="lag")
    order = rho.shape[0]
    series = pt.as_tensor(REAL)
    mu = sum(rho[k] * series[1 - k : N - 1 - k] for k in range(2))
    pm.Potential("y", pm.logp(pm.Normal.dist(mu, 1.0), series[order:]))


def autoregression_of_sliced_starts():
    starts, rho = pm.Normal("starts", dims="start"), pm.Normal("rho")
    order = starts[:2].shape[0]
    series = pt.as_tensor(REAL)
    mu = rho * series[:-order] + starts[0]
    pm.Potential("y", pm.logp(pm.Normal.dist(mu, 1.0), series[order:]))


def broken_stick():
    stick = pm.Beta("stick", 1.0, 2.0, dims="start")
    rest = pt.concatenate([[1.0], pt.cumprod(1 - stick)[:-1]])
    weights = pt.concatenate([stick * rest, [pt.prod(1 - stick)]])
    components = pm.Normal.dist(pm.Normal("m", shape=5)[: weights.shape[0]], 1.0)
    pm.Mixture("y", weights, components, observed=REAL[2:])


@pytest.mark.parametrize(
    "build",
    [
        autoregression_of_free_order,
        autoregression_of_sliced_starts,
        pytest.param(broken_stick, marks=pytest.mark.slow),
    ],
)
def test_lengths_that_follow_free_variables(build):
    with pm.Model(coords={"lag": range(2), "start": range(4)}) as model:
        build()
    loglik = read(model)
    observations = loglik.observations
    assert observations.n_obs == N - 2
    draws = {name: np.full((1, *shape), 0.3) for name, shape in observations.shapes.items()}
    values = loglik.matrix(draws)[:, 0]
    inputs = {v: draws[name][0] for name, v in observations.parameters.items()}
    np.testing.assert_allclose(values, observations.reference.eval(inputs))


def test_length_that_follows_free_values_is_refused():
    with pm.Model() as model:
        m = pm.Normal("m", shape=5)
        pm.Potential("y", m[m > 0])
    with refused(UnsupportedModelError, "'y'", "free variables"):
        read(model)


# -- numbers that are sums -------------------------------------------------------------------------


def test_two_series_form_one_observation():
    with pm.Model() as model:
        walk = {"mu": pm.Normal("m"), "init_dist": pm.Normal.dist(0, 1)}
        pm.GaussianRandomWalk("y", observed=REAL, **walk)
        pm.AR("z", [pm.Normal("rho")], init_dist=walk["init_dist"], observed=X[:, 0])
    np.testing.assert_array_equal(read(model).observations.positions, np.arange(1, N))


def normal_terms(mu, n_rows):
    return pm.logp(pm.Normal.dist(mu, 1.0), np.linspace(-1, 1, n_rows))


def test_many_terms_that_are_no_rows_are_named():
    with pm.Model() as model:
        m = pm.Normal("m")
        pm.Potential("total", normal_terms(m, 300).sum() + normal_terms(-m, 150).sum())
    observations = read(model, observed="total").observations
    assert observations.n_obs == 300
    assert observations.unselected == ("the sum of 150 terms in 'total' that are not rows",)


def test_sum_over_many_joined_pieces_is_refused():
    with pm.Model() as model:
        means = pm.Normal("m", shape=3)
        pieces = [normal_terms(means[k], 50) for k in range(3)]
        pm.Potential("total", pt.concatenate(pieces).sum() * 2)
    with refused(UnsupportedModelError, "150 terms", "concatenation", topic="no-sum-over-rows"):
        read(model, observed="total")


# -- likelihoods without parameters ----------------------------------------------------------------


def test_model_without_free_variables_is_refused():
    with pm.Model() as model:
        pm.Normal("y", 0.0, 1.0, observed=REAL)
    with refused(UnsupportedModelError, "'y'", "prior"):
        read(model)


def test_likelihood_without_free_variables_is_refused():
    with pm.Model() as model:
        first = pm.Normal("first", 0.0, 1.0, observed=without(REAL, 3, 4))
        second = pm.Normal("second", first, 1.0, observed=without(REAL, 3, 8))
        pm.Normal("third", second, 1.0, observed=REAL)
    with refused(UnsupportedModelError, "first_observed", "'second_unobserved'"):
        read(model, observed="first_observed")
    with refused(UnsupportedModelError, "'third'", "observed"):
        read(model, observed="second_observed")
    assert read(model, observed="third").n_rows == N


# -- missing values --------------------------------------------------------------------------------


def test_rows_of_which_some_entries_are_missing_have_no_density_of_their_own():
    with pm.Model() as model:
        pm.MvNormal("y", pm.Normal("m", shape=3), np.eye(3), observed=without(X, (4, 1)))
    with refused(UnsupportedModelError, "'y'", "missing values"):
        read(model)


def test_missing_rows_of_a_multivariate_variable():
    with pm.Model() as model:
        pm.MvNormal("y", pm.Normal("m", shape=3), np.eye(3), observed=without(X, 4))
    positions = read(model).observations.positions
    np.testing.assert_array_equal(positions, np.delete(np.arange(N), 4))


def test_missing_cells_are_found_where_none_can_be_drawn():
    """PyMC's shape of what is imputed is that of draws, which may not exist."""
    huge = np.full((N, 2), 1e300)
    with pm.Model() as model:
        counts = without(np.ones((N, 2)), (4, 1))
        pm.Poisson("y", pm.math.exp(pm.Normal("m") * huge), observed=counts)
    observations = read(model).observations
    np.testing.assert_array_equal(observations.positions, np.delete(np.arange(2 * N), 9))


def test_own_imputation_under_the_names_of_pymc_is_refused():
    with pm.Model() as model:
        m = pm.Normal("m")
        seen = pm.Normal("y_observed", m, 1.0, observed=REAL)
        unseen = pm.Normal("y_unobserved", m, 1.0, shape=2)
        pm.Deterministic("y", pt.concatenate([seen, unseen]))
    with refused(UnsupportedModelError, "'y'", "'y_observed'", "'y_unobserved'"):
        read(model)


def test_names_like_those_of_an_imputation():
    with pm.Model() as model:
        m = pm.Normal("y_unobserved")
        pm.Normal("y_observed", m, 1.0, observed=REAL)
        pm.Deterministic("y", 2 * m)
    found = read(model).observations
    np.testing.assert_array_equal(found.positions, np.arange(found.n_data))
    assert found.n_dims == 1


def test_free_dimensions_are_those_of_the_unconstrained_space():
    with pm.Model(coords={"k": range(5)}) as model:
        zero_sum = pm.ZeroSumNormal("zero_sum", 1.0, dims="k")  # four free dimensions
        shares = pm.Dirichlet("shares", np.ones((2, 3)))  # two in each of two rows
        mu = zero_sum[np.arange(20) % 5] + shares[0, 0] * pm.Normal("a")
        pm.Normal("y", mu, pm.HalfNormal("s"), observed=np.zeros(20))
    observations = read(model).observations
    assert observations.n_dims == 4 + 4 + 1 + 1
    assert observations.shapes["zero_sum"] == (5,)


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
def test_imputed_values_are_no_dimensions_that_rows_determine():
    y = np.arange(50.0)
    y[::5] = np.nan
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("s"), observed=y)
    assert model.initial_point()["y_unobserved"].shape == (10,)
    assert read(model).observations.n_dims == 2
