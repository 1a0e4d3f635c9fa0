"""The comparison with PyMC reaches signs and tails, and refuses no model for being what it is."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_coresets import InvalidDataError, UnsupportedModelError
from pymc_coresets.predictive.pymc_densities import log_densities
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.likelihood.prototypes import Prototypes
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import verify_form
from pymc_coresets.rowlogp.verification import _compare, verify_rows
from tests.derived import likelihood_of
from tests.models.zoo import BINARY, GROUP, POSITIVE, REAL, N, X
from tests.refusals import refused

WIDE = np.linspace(-60, 60, N)


def check(build, change=None):
    with pm.Model() as model:
        build()
    observations = find_observations(model)
    if change is not None:
        loglik = change(observations.loglik, next(iter(observations.parameters.values())))
        observations = replace(observations, loglik=loglik)
    verify_rows(LogLikelihood(observations), rng=np.random.default_rng(1))


def test_terms_that_do_not_add_up_are_noticed():
    with pm.Model() as model:
        walk = {"mu": pm.Normal("m"), "init_dist": pm.Normal.dist(0, 1)}
        pm.GaussianRandomWalk("y", observed=REAL, **walk)
    observations = replace(find_observations(model), unweighted=())
    with refused(UnsupportedModelError, "['y']", "add up"):
        verify_rows(LogLikelihood(observations), rng=np.random.default_rng(1))


# -- models that are right -------------------------------------------------------------------------


def power_of_any_sign():
    pm.Normal("y", pm.Normal("b") ** np.resize([2.0, 3.0], N), 1.0, observed=REAL)


def probability_of_large_logits():
    pm.Bernoulli("y", p=pm.math.sigmoid(pm.Normal("b") + WIDE), observed=BINARY)


def probability_that_is_data():
    p = pm.math.sigmoid(pm.Data("x", WIDE))
    pm.Bernoulli("y", p=p, observed=BINARY)
    pm.Normal("z", pm.Normal("b"), 1.0, observed=REAL)


def bounds_that_exclude_rows_far_out():
    pm.Uniform("y", -5.0 - pm.LogNormal("low"), 5.0 + pm.Normal("high"), observed=REAL)


def tails_of_a_distribution_function():
    centre = pm.Normal.dist(pm.Normal("m"), 0.1)
    pm.Censored("y", centre, lower=-1.0, upper=1.0, observed=np.clip(REAL, -1.0, 1.0))


def free_labels():
    pm.Normal("y", pm.Normal("m", shape=3)[pm.Categorical("z", np.ones(3) / 3)], 1.0, observed=REAL)


def scale_that_is_zero_at_first():
    scale = pm.Normal("a") + pm.Normal("b") * POSITIVE
    pm.Normal("y", 0.0, scale, observed=REAL)


def infinite_bounds():
    upper = np.where(GROUP == 0, 3.0, np.inf)
    pm.Truncated("y", pm.Normal.dist(pm.Normal("m"), 1.0), upper=upper, observed=REAL)


def large_terms_that_cancel():
    size = pm.math.exp(20.0 * pm.Normal("log_size")) * POSITIVE
    pm.BetaBinomial("y", size, 2.5, n=20, observed=BINARY)


def probabilities_that_cancel():
    """Of complementary log-log, written out: p is 1e-14, of which two digits are right."""
    eta = X @ pm.Normal("b", shape=3) - 32.0
    pm.Bernoulli("y", p=1 - pm.math.exp(-pm.math.exp(eta)), observed=np.ones(N, int))


def truncation_of_what_has_no_parameters():
    """Where a rate is not positive, PyMC subtracts infinite values, and gives 0 for every row."""
    shape = REAL * pm.Normal("b", 0.5)
    pm.Truncated("y", pm.Gamma.dist(shape, shape), upper=20.0, observed=POSITIVE)


@pytest.mark.parametrize(
    "build",
    [
        large_terms_that_cancel,
        probabilities_that_cancel,
        truncation_of_what_has_no_parameters,
        power_of_any_sign,
        probability_of_large_logits,
        probability_that_is_data,
        bounds_that_exclude_rows_far_out,
        tails_of_a_distribution_function,
        free_labels,
        scale_that_is_zero_at_first,
        infinite_bounds,
    ],
)
def test_model_is_accepted(build):
    check(build)


def test_probabilities_that_are_data_are_stabilised():
    with pm.Model() as model:
        pm.Bernoulli("y", p=pm.math.sigmoid(pm.Data("x", WIDE)), observed=np.zeros(N, int))
        pm.Normal("z", pm.Normal("b"), 1.0, observed=np.zeros(N))
    values = likelihood_of(model).matrix({"b": np.zeros(1)})[:, 0]
    np.testing.assert_allclose(values, -np.logaddexp(0, WIDE) - np.log(2 * np.pi) / 2)


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda loglik, b: pt.switch(b < 0, loglik + 0.001, loglik),
        lambda loglik, b: pt.switch(b > 0, loglik + 0.001, loglik),
        lambda loglik, b: pt.switch(b < -0.75, loglik * 1.5, loglik),
        lambda loglik, b: pt.switch(b > 0.75, np.nan, loglik),
        lambda loglik, b: pt.switch(b > 0.75, np.inf, loglik),
    ],
    ids=["negative", "positive", "far below", "NaN far above", "infinite far above"],
)
def test_mistake_at_one_side_is_found(change):
    def normal():
        pm.Normal("y", pm.Normal("b"), 1.0, observed=REAL)

    with refused(UnsupportedModelError, "PyMC", "report", "observation"):
        check(normal, change)


# -- points and data without a log-likelihood ------------------------------------------------------


def test_check_that_fails_everywhere_is_named():
    def weights_that_do_not_add_up():
        weights = pm.Beta("w", 1.0, 1.0, shape=2) / 3
        pm.NormalMixture("y", weights, mu=pm.Normal("m", shape=2), sigma=1.0, observed=REAL)

    with refused(UnsupportedModelError, "'y'", "sum(weights) == 1", "initval=..."):
        check(weights_that_do_not_add_up)


def bernoulli(x, b):
    pm.Bernoulli("y", logit_p=x @ b, observed=BINARY)


def poisson(x, b):
    pm.Poisson("y", pm.math.exp(x @ b), observed=BINARY)


def normal_scale(x, b):
    pm.Normal("y", b[0], pm.math.exp(x[:, 0] * b[1]), observed=REAL)


@pytest.mark.parametrize("likelihood", [bernoulli, poisson, normal_scale])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_covariate_that_is_no_number_is_named_with_its_rows(likelihood, value):
    with pm.Model() as model:
        likelihood(pm.Data("x", X), pm.Normal("b", shape=3))
    bad = X.copy()
    bad[[4, 9, 30], 0] = value
    with model:
        pm.set_data({"x": bad})
    loglik = likelihood_of(model)
    with refused(InvalidDataError, "3 rows", "(4, 9, 30)", "'x'"):
        verify_rows(loglik, rng=np.random.default_rng(1))


def test_unnamed_covariate_that_is_no_number():
    x = X.copy()
    x[::2, 0] = x[::2, 2] = np.nan
    with refused(InvalidDataError, "24 rows", "(0, 2, 4, 6, 8, ...)", "(47, 3)", "column 0, 2"):
        check(lambda: bernoulli(x, pm.Normal("b", shape=3)))


@pytest.mark.parametrize("likelihood", [bernoulli, poisson])
def test_covariates_that_overflow(likelihood):
    with refused(InvalidDataError, "43 rows", "(0, 2, 3, 4, 5, ...)"):
        check(
            lambda: likelihood(pt.as_tensor(X * 3.0) * np.float64(1e308), pm.Normal("b", shape=3))
        )


def test_half_precision():
    half = pytensor.shared(X.astype("float16"), name="half")
    check(lambda: pm.Normal("y", half @ pm.Normal("b", shape=3), 1.0, observed=REAL))


@pytest.mark.parametrize(
    ("found", "expected", "accepted"),
    [
        (-np.inf, -40.0, True),  # a probability that 1 - (1 - p) has no digits of
        (-np.inf, -20.0, False),
        (-41.0, -40.0, False),
        (-40.0, -40.0, True),
        (-1.0, -np.inf, True),  # PyMC's check of another row's parameters failed
        (-1.0, -2.0, False),
    ],
)
def test_what_is_taken_for_equal(found, expected, accepted):
    loglik = SimpleNamespace(
        matrix=lambda draws, rows, finite: np.array([[found, -1.0]]),
        in_memory=SimpleNamespace(take=lambda rows: rows),
        slack=0.0,
        observations=SimpleNamespace(
            reference=pt.zeros(1),
            loglik=pt.zeros(1),
            n_obs=1,
            parameters={"a": pt.dscalar()},
            prototypes=Prototypes(),
        ),
    )
    draws, reference = Draws({"a": np.zeros(2)}), np.array([[expected, -1.0]])
    with (
        nullcontext()
        if accepted
        else refused(UnsupportedModelError, "PyMC", "report", "observation")
    ):
        _compare(loglik, draws, reference, np.array([0]), rtol=1e-8, atol=1e-8)


def test_a_code_without_an_entry_is_named():
    codes = np.r_[np.arange(N - 1) % 4, 4]
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("effect", shape=4)[codes], 1.0, observed=REAL)
    with refused(InvalidDataError, f"row {N - 1}", "index 4"):
        verify_rows(likelihood_of(model), rng=np.random.default_rng(1))


def test_scalars_in_a_vector_that_codes_index_are_rows_by_code():
    """PyTensor makes a vector of 20,000 scalars of it, which it takes hours to rewrite."""
    codes = np.random.default_rng(1).integers(0, 3, size=20_000)
    with pm.Model() as model:
        levels = pt.stack([pm.Normal(name) for name in "abc"])
        pm.Normal("y", levels[codes], observed=np.zeros(20_000))
    observations = find_observations(model)
    verify_rows(LogLikelihood(observations), rng=np.random.default_rng(1))
    assert {row.values.dtype.kind for row in observations.rows} == {"f", "i"}
    [[density]] = log_densities([(model, ["y"])])([{"a": 1.0, "b": 2.0, "c": 3.0}])
    expected = -20_000 * np.log(2 * np.pi) / 2 - np.square(codes + 1.0).sum() / 2
    assert density == pytest.approx(expected, rel=1e-12)


def extreme_value(value, location, scale, shape):
    """The log-density of a generalised extreme value distribution: NaN where its shape is zero."""
    z = 1 + shape * (value - location) / scale
    inside = -pt.log(scale) - (1 + 1 / shape) * pt.log(z) - z ** (-1 / shape)
    return pt.switch(z > 0, inside, -np.inf)


@pytest.mark.parametrize("off", [0.0, np.nan])
def test_a_density_may_be_undefined_at_the_initial_point(off):
    """As where the shape starts at exactly zero: PyMC jitters, too.  Nowhere is another matter."""
    with pm.Model() as model:
        shape = pm.Normal("shape", 0.0, 0.2)
        parameters = [pm.Normal("location") + off, pm.HalfNormal("scale", 2.0), shape]
        pm.CustomDist("y", *parameters, logp=extreme_value, observed=POSITIVE / 10)
    loglik = likelihood_of(model)
    if np.isnan(off):
        with refused(UnsupportedModelError, "initval=..."):
            verify_rows(loglik, rng=np.random.default_rng(1))
    else:
        verify_rows(loglik, rng=np.random.default_rng(1))
        verify_form(loglik)
