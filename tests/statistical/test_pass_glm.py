"""PASS-GLM on PyMC models: every family within its error bound, and posteriors known exactly."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from numpy.polynomial import chebyshev
from scipy import special, stats
from scipy.integrate import quad

from pymc_coresets import (
    InvalidDataError,
    InvalidOptionError,
    Level,
    UnsupportedModelError,
    build_pass_glm,
)
from tests.builds import QUIET
from tests.modes import PLAIN_MODE
from tests.refusals import refused, warned

N, R = 200, 4.0
RNG = np.random.default_rng(1)
X = np.column_stack([np.ones(N), RNG.uniform(-1, 1, size=(N, 2))])
OFFSET = 0.2 * RNG.uniform(-1, 1, size=N)
BETA = np.array([0.3, -0.8, 0.5])
BINARY = RNG.integers(0, 2, N)
COUNTS = RNG.poisson(1.5, N)
TRIALS = RNG.integers(1, 9, N)
SUCCESSES = RNG.binomial(TRIALS, 0.4)
REAL = X @ BETA + RNG.standard_t(3, size=N)
POSITIVE = RNG.gamma(2.0, 1.0, N)


def potential(graph):
    return pm.Potential("y", graph)


def huber(r, switch=np.where, absolute=np.abs):
    return -switch(absolute(r) < 1.5, r**2 / 2, 1.5 * (absolute(r) - 0.75))


#: How PyMC writes each family, and its log-density of one row by SciPy.
FAMILIES = {
    "logistic": (
        lambda e: pm.Bernoulli("y", logit_p=e, observed=BINARY),
        lambda e, n: BINARY[n] * e - np.logaddexp(0, e),
    ),
    "probit": (
        lambda e: pm.Bernoulli("y", p=pm.math.invprobit(e), observed=BINARY),
        lambda e, n: special.log_ndtr(e if BINARY[n] else -e),
    ),
    "cloglog": (
        lambda e: pm.Bernoulli("y", logit_p=pt.log(pt.expm1(pt.exp(e))), observed=BINARY),
        lambda e, n: np.log(-np.expm1(-np.exp(e))) if BINARY[n] else -np.exp(e),
    ),
    "poisson": (
        lambda e: pm.Poisson("y", pm.math.exp(e), observed=COUNTS),
        lambda e, n: stats.poisson.logpmf(COUNTS[n], np.exp(e)),
    ),
    "gamma": (
        lambda e: pm.Gamma("y", alpha=2.0, beta=2.0 * pm.math.exp(-e), observed=POSITIVE),
        lambda e, n: stats.gamma.logpdf(POSITIVE[n], 2.0, scale=np.exp(e) / 2.0),
    ),
    "negative binomial": (
        lambda e: pm.NegativeBinomial("y", mu=pm.math.exp(e), alpha=3.0, observed=COUNTS),
        lambda e, n: stats.nbinom.logpmf(COUNTS[n], 3.0, 3.0 / (3.0 + np.exp(e))),
    ),
    "binomial": (
        lambda e: pm.Binomial("y", n=TRIALS, logit_p=e, observed=SUCCESSES),
        lambda e, n: stats.binom.logpmf(SUCCESSES[n], TRIALS[n], special.expit(e)),
    ),
    "student": (
        lambda e: pm.StudentT("y", nu=4.0, mu=e, sigma=2.0, observed=REAL),
        lambda e, n: stats.t.logpdf(REAL[n], 4.0, e, 2.0),
    ),
    "cauchy": (
        lambda e: pm.Cauchy("y", e, 2.0, observed=REAL),
        lambda e, n: stats.cauchy.logpdf(REAL[n], e, 2.0),
    ),
    "laplace": (
        lambda e: pm.Laplace("y", e, 1.5, observed=REAL),
        lambda e, n: stats.laplace.logpdf(REAL[n], e, 1.5),
    ),
    "huber": (
        lambda e: potential(huber(REAL - e, pm.math.switch, pm.math.abs)),
        lambda e, n: huber(REAL[n] - e),
    ),
    "smoothed huber": (
        lambda e: potential(1 - pm.math.sqrt(1 + (REAL - e) ** 2)),
        lambda e, n: 1 - np.sqrt(1 + (REAL[n] - e) ** 2),
    ),
    "gaussian": (
        lambda e: pm.Normal("y", e, 1.5, observed=REAL),
        lambda e, n: stats.norm.logpdf(REAL[n], e, 1.5),
    ),
}


#: Their polynomials of degree six grow without bound.
IMPROPER = {"cauchy", "laplace", "huber", "smoothed huber"}


def expansion_error(density, n, degree):
    """What the Chebyshev expansion of a row's log-density leaves out on [-R, R], in nats."""
    series = np.abs(chebyshev.chebinterpolate(lambda t: density(R * t, n), 400))
    folded = series[64 - degree :].sum()  # onto the coefficients, from 32 nodes
    return series[degree + 1 :].sum() + folded


@pytest.fixture(scope="module", params=FAMILIES)
def regression(request):
    return request.param, FAMILIES[request.param][1]


@cache
def summary_of(name, degree):
    likelihood, _ = FAMILIES[name]
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        likelihood(X @ beta + OFFSET)
    return build_pass_glm(model, degree=degree, radius=R, **QUIET)


@pytest.mark.parametrize("degree", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_every_family_is_within_the_error_of_its_expansion(regression, degree):
    name, density = regression
    if degree > 2 and name in IMPROPER:
        pytest.skip("refused")
    statistics = summary_of(name, degree).statistics
    bound = sum(expansion_error(density, n, degree) for n in range(N))
    thetas = BETA + np.array([-1.0, 0.0, 0.7])[:, None] * np.array([1.0, -1.0, 1.0])
    eta = X @ thetas.T + OFFSET[:, None]
    assert np.abs(eta).max() < R
    exact = [sum(density(e[n], n) for n in range(N)) for e in eta.T]
    error = np.abs(statistics.loglik(thetas) - exact)
    constants = 2e-8 * N  # PyMC has the Gaussian's in single precision
    assert error.max() <= bound + constants
    if name == "gaussian":
        assert np.ptp(error) < 1e-10 * N


def test_the_potential_is_the_polynomial_and_the_priors_stay(regression):
    name, _ = regression
    for degree in (2, 6) if name in ("logistic", "poisson", "gaussian") else (2,):
        summary = summary_of(name, degree)
        statistics, logp = summary.statistics, summary.model.compile_logp(mode=PLAIN_MODE)
        for theta in (np.zeros(3), BETA, -2 * BETA):
            prior = stats.norm.logpdf(theta, 0, 2).sum()
            assert logp({"beta": theta}) == pytest.approx(prior + statistics.loglik(theta))


# -- posteriors that are known ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def gaussian():
    with pm.Model(coords={"covariate": ["one", "age", "sex"]}) as model:
        beta = pm.Normal("beta", [0.0, 1.0, 0.0], [2.0, 1.0, 0.5], dims="covariate")
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", X @ beta + OFFSET, sigma, observed=REAL)
    return model


def test_gaussian_regression_has_the_conjugate_posterior(gaussian):
    summary = build_pass_glm(gaussian, given={"sigma": 1.5}, random_seed=1)
    mu0, precision0 = np.array([0.0, 1.0, 0.0]), np.diag([0.25, 1.0, 4.0])
    precision = precision0 + X.T @ X / 1.5**2
    mean = np.linalg.solve(precision, precision0 @ mu0 + X.T @ (REAL - OFFSET) / 1.5**2)
    found = summary.closed_form()
    assert found.coefficient.values.tolist() == ["beta[one]", "beta[age]", "beta[sex]"]
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-8)
    np.testing.assert_allclose(found["covariance"], np.linalg.inv(precision), rtol=1e-8)
    check = summary.check(random_seed=1)
    assert check.reliable
    assert not check.needs_reweighting
    assert check.max_error < 1e-9
    assert check.verdict.level is Level.RELIABLE
    assert "Reliable" in repr(check)


def test_a_quadratic_likelihood_has_a_closed_form_at_any_degree(gaussian):
    two, six = (
        build_pass_glm(gaussian, degree=degree, given={"sigma": 1.5}, random_seed=1)
        for degree in (2, 6)
    )
    for name in ("mean", "covariance"):
        np.testing.assert_allclose(six.closed_form()[name], two.closed_form()[name], rtol=1e-8)


def test_a_free_scale_must_be_given(gaussian):
    with refused(UnsupportedModelError, "['sigma']", "given={'sigma': ...}", topic="regressions"):
        build_pass_glm(gaussian, random_seed=1)


N_LOGISTIC = 2_000
COVARIATES = np.random.default_rng(2).normal(size=(N_LOGISTIC, 2)) @ np.array([[1, 0.8], [0, 0.6]])
LABELS = np.random.default_rng(3).binomial(1, special.expit(COVARIATES @ [0.7, -0.4]))


def logistic_model(rows=slice(None)):
    with pm.Model() as model:
        beta = pm.MvNormal("beta", [0.5, 0.0], cov=np.array([[4.0, 1.0], [1.0, 2.0]]))
        pm.Bernoulli("y", logit_p=COVARIATES[rows] @ beta, observed=LABELS[rows])
    return model


@pytest.fixture(scope="module")
def logistic():
    return build_pass_glm(logistic_model(), random_seed=1)


def test_logistic_regression_in_closed_form(logistic):
    b1, b2 = 0.5, -0.0816678  # of the paper, R = 4
    Z = COVARIATES * (2 * LABELS - 1)[:, None]
    precision0 = np.linalg.inv([[4.0, 1.0], [1.0, 2.0]])
    precision = precision0 - 2 * b2 * Z.T @ Z
    mean = np.linalg.solve(precision, precision0 @ [0.5, 0.0] + b1 * Z.sum(axis=0))
    found = logistic.closed_form()
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["covariance"], np.linalg.inv(precision), rtol=1e-5)


def test_the_density_that_is_sampled_is_the_closed_form(logistic):
    found, logp = logistic.closed_form(), logistic.model.compile_logp(mode=PLAIN_MODE)
    normal = stats.multivariate_normal(found["mean"].to_numpy(), found["covariance"].to_numpy())
    points = normal.rvs(40, random_state=1)
    differences = [logp({"beta": point}) - normal.logpdf(point) for point in points]
    np.testing.assert_allclose(differences, differences[0], rtol=1e-9)
    idata = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"beta": (("chain", "draw", "b"), points.reshape(2, 20, 2))})}
    )
    assert logistic.check(idata).draws.n_draws == 40


def test_parts_add_up_to_the_whole(logistic):
    parts = [
        build_pass_glm(logistic_model(rows), random_seed=1)
        for rows in (slice(0, 700), slice(700, N_LOGISTIC))
    ]
    total = parts[0] + parts[1]
    assert total.n_observations == N_LOGISTIC
    whole = logistic.closed_form()
    for name in ("mean", "covariance"):
        np.testing.assert_allclose(total.closed_form()[name], whole[name], rtol=1e-10)
    check, expected = total.check(random_seed=1), logistic.check(random_seed=1)
    assert check.draws.kl == pytest.approx(expected.draws.kl, rel=1e-6)
    assert check.outside == pytest.approx(expected.outside)
    theta = np.array([[3.0, 1.0]])
    reaches = [part.reach(2, R, theta).outside for part in total.parts]
    both = np.average(reaches, weights=[700, N_LOGISTIC - 700])
    assert both == pytest.approx(np.mean(np.abs(COVARIATES @ theta.T) > R))
    assert "parts         2" in repr(total)
    assert "2,000" in repr(total)


def test_reweighted_draws_have_the_moments_of_the_full_posterior():
    x, y = COVARIATES[:100, 0], LABELS[:100]
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.Normal("b", 0, 3) * x, observed=y)
    summary = build_pass_glm(model, random_seed=1)
    draws = summary._closed_form_draws(np.random.default_rng(1))
    mean = float(summary.reweight(draws, random_seed=1)["posterior"]["b"].mean())

    def density(b):
        return np.exp(stats.norm.logpdf(b, 0, 3) + np.sum(y * b * x - np.logaddexp(0, b * x)) + 60)

    mass, first, second = (quad(lambda b, k=k: b**k * density(b), -3, 4)[0] for k in (0, 1, 2))
    sd = np.sqrt(second / mass - (first / mass) ** 2)
    check = summary.check(draws)
    assert abs(mean - first / mass) < 5 * sd / np.sqrt(check.draws.ess)
    assert check.reliable


# -- models ----------------------------------------------------------------------------------------


def test_hierarchical_priors_just_work():
    groups = np.random.default_rng(4).integers(0, 30, N)
    with pm.Model(coords={"group": np.arange(30)}) as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        z = pm.Normal("z", dims="group")
        a = pm.Deterministic("a", mu + tau * z, dims="group")
        slope = pm.Laplace("slope", 0, 1)
        pm.Poisson("y", pm.math.exp(a[groups] + slope * X[:, 1]), observed=COUNTS)
    summary = build_pass_glm(model, radius="auto", random_seed=1)
    assert {rv.name for rv in summary.model.free_RVs} == {"mu", "tau", "z", "slope"}
    assert tuple(summary.model.named_vars_to_dims["z"]) == ("group",)
    point = {"mu": 0.3, "tau_log__": -0.7, "z": np.linspace(-1, 1, 30), "slope": 0.4}
    theta = {"a": 0.3 + np.exp(-0.7) * point["z"], "slope": 0.4}
    eta = theta["a"][groups] + 0.4 * X[:, 1]
    nodes = chebyshev.chebpts1(32)
    rates = chebyshev.chebfit(nodes, np.exp(summary.radius * nodes), 2)
    of_rows = COUNTS * eta - chebyshev.chebval(eta / summary.radius, rates)
    expected = np.sum(of_rows - special.gammaln(COUNTS + 1))
    found = summary.model.compile_logp(vars=summary.model.potentials, mode=PLAIN_MODE)(point)
    assert found == pytest.approx(expected)
    prior = [model[n] for n in ("mu", "tau", "z", "slope")]
    same = [summary.model[n] for n in ("mu", "tau", "z", "slope")]
    assert summary.model.compile_logp(vars=same, mode=PLAIN_MODE)(point) == pytest.approx(
        model.compile_logp(vars=prior, mode=PLAIN_MODE)(point)
    )
    with refused(UnsupportedModelError, "'tau'", "sample()", topic="regressions"):
        summary.closed_form()
    with refused(InvalidOptionError, "sample()"):
        summary.check()


def test_other_terms_stay_in_the_model_and_count_as_prior():
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        pm.Normal("known", beta[0], 0.5, observed=np.array([1.0, 2.0]))
        pm.Normal("y", X @ beta + OFFSET, 1.5, observed=REAL)
    summary = build_pass_glm(model, observed="y", random_seed=1)
    assert [v.name for v in summary.model.observed_RVs] == ["known"]
    precision = np.eye(3) / 4 + X.T @ X / 1.5**2
    precision[0, 0] += 2 / 0.25
    shift = X.T @ (REAL - OFFSET) / 1.5**2 + np.array([3.0 / 0.25, 0, 0])
    np.testing.assert_allclose(
        summary.closed_form()["mean"], np.linalg.solve(precision, shift), rtol=1e-7
    )


def test_coefficients_that_are_affine_in_gaussian_variables():
    with pm.Model() as model:
        z = pm.Normal("z", shape=3)
        beta = pm.Deterministic("beta", 1.0 + 0.5 * pm.math.cumsum(z))
        pm.Normal("y", X @ beta + OFFSET, 1.5, observed=REAL)
    found = build_pass_glm(model, random_seed=1).closed_form()
    A = 0.5 * np.tril(np.ones((3, 3)))
    precision = np.linalg.inv(A @ A.T)
    posterior = precision + X.T @ X / 1.5**2
    shift = precision @ np.ones(3) + X.T @ (REAL - OFFSET) / 1.5**2
    np.testing.assert_allclose(found["mean"], np.linalg.solve(posterior, shift), rtol=1e-7)
    np.testing.assert_allclose(found["covariance"], np.linalg.inv(posterior), rtol=1e-7)


@pytest.mark.parametrize("scale", [1.3e-6, 1.0, 1.3e6])
def test_gaussian_priors_of_all_sizes_have_a_closed_form(scale):
    with pm.Model() as model:
        b = pm.Normal("b", 0.37 * scale, scale, shape=3)
        pm.Normal("y", X @ b / scale, 1.5, observed=REAL)
    found = build_pass_glm(model, random_seed=1).closed_form()
    posterior = np.eye(3) + X.T @ X / 1.5**2
    expected = np.linalg.solve(posterior, np.full(3, 0.37) + X.T @ REAL / 1.5**2)
    np.testing.assert_allclose(found["mean"] / scale, expected, rtol=1e-6)


def test_a_nearly_gaussian_prior_has_no_closed_form():
    with pm.Model() as model:
        b = pm.StudentT("b", nu=3.0, sigma=10.0, shape=3)
        pm.Normal("y", X @ b, 1.5, observed=REAL)
    with refused(UnsupportedModelError, "['b']", "Gaussian", topic="regressions"):
        build_pass_glm(model, random_seed=1).closed_form()


@pytest.mark.parametrize(
    "term",
    [lambda b: pt.switch(b[0] > 0.3, 0.0, -np.inf), lambda b: -(pt.minimum(b[1], -7.0) ** 2)],
)
def test_a_prior_that_is_gaussian_near_zero_alone_has_no_closed_form(term):
    """Its gradient is affine wherever it is read: it excludes values, or bends far away."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 100.0, shape=3)
        pm.Potential("term", term(b))
        pm.Normal("y", X @ b, 0.5, observed=REAL - 20 * X[:, 1])
    summary = build_pass_glm(model, random_seed=1)
    with refused(UnsupportedModelError, "pm.Potential", "Gaussian", topic="regressions"):
        summary.draw(random_seed=1)
    with refused(InvalidOptionError, "sample()"):
        summary.check(random_seed=1)


@pytest.mark.parametrize("sd", [None, 1e7, 1e4])
def test_a_precision_that_is_singular_up_to_rounding_is_refused(sd):
    collinear = np.column_stack([X, X[:, 1] + X[:, 2]])
    with pm.Model() as model:
        b = pm.Flat("b", shape=4) if sd is None else pm.Normal("b", 0, sd, shape=4)
        pm.Normal("y", collinear @ b, 1.0, observed=REAL)
    summary = build_pass_glm(model, random_seed=1)
    if sd == 1e4:  # the prior alone determines one direction: a third of each of three variances
        found = summary.closed_form()["sd"].to_numpy()[1:]
        np.testing.assert_allclose(found, sd / np.sqrt(3), rtol=1e-4)
    else:
        with refused(InvalidDataError, "improper", "collinear", topic="regressions"):
            summary.closed_form()


def test_draws_have_the_dims_of_the_model():
    with pm.Model(coords={"part": ["a", "b", "c"]}) as model:
        pm.Normal("y", X @ pm.Normal("b", dims="part"), 1.0, observed=REAL)
    draws = build_pass_glm(model, random_seed=1).draw(5)
    assert draws["posterior"]["b"].sel(part="c").sizes == {"chain": 4, "draw": 5}


def test_many_groups_are_one_sparse_quadratic_form():
    rng = np.random.default_rng(5)
    groups, x = rng.integers(0, 200, 1_000), rng.normal(size=1_000)
    y = rng.normal(size=1_000)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=200)
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", a[groups] + b * x, 1.0, observed=y)
    summary = build_pass_glm(model, random_seed=1)
    assert not isinstance(summary.statistics.moments[2], np.ndarray)
    design = np.column_stack([np.eye(200)[groups], x])
    precision = np.eye(201) + design.T @ design
    found = summary.closed_form()
    np.testing.assert_allclose(
        found["mean"], np.linalg.solve(precision, design.T @ y), rtol=1e-7, atol=1e-10
    )


# -- what must be said -----------------------------------------------------------------------------


def test_the_check_says_where_predictors_leave_the_radius():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(4_000, 2))
    beta = np.array([3.0, -2.4])  # |eta| > 4 for 30 % of the rows
    eta = x @ beta
    assert 0.28 < np.mean(np.abs(eta) > 4) < 0.32
    with pm.Model() as model:
        b = pm.Normal("b", 0, 10, shape=2)
        pm.Bernoulli("y", logit_p=x @ b, observed=rng.binomial(1, special.expit(eta)))
    check = build_pass_glm(model, random_seed=1).check(random_seed=1)
    assert not check.reliable
    assert check.draws.pareto_khat > 1
    assert check.verdict.level is Level.UNUSABLE
    assert "outside the radius 4" in check.verdict.text
    assert check.outside > 0.03


def test_improper_degrees_are_refused_and_usable_ones_named():
    with refused(InvalidOptionError, "degree=4", "[2, 6, 10]"):
        build_pass_glm(logistic_model(), degree=4, random_seed=1)


def test_radius_auto_covers_the_bulk_and_nearly_all_for_higher_degrees():
    quadratic = build_pass_glm(logistic_model(), radius="auto", random_seed=1)
    eta = np.abs(COVARIATES @ quadratic.closed_form()["mean"].to_numpy())
    # The stated 5 %, and as much for the spread of the draws around their mean.
    assert quadratic.radius == pytest.approx(np.quantile(eta, 0.975), rel=0.1)
    higher = build_pass_glm(logistic_model(), degree=6, radius="auto", random_seed=1)
    assert higher.radius == pytest.approx(1.1 * np.quantile(eta, 0.999), rel=0.2)
    default = build_pass_glm(logistic_model(), random_seed=1).check(random_seed=1)
    assert quadratic.check(random_seed=1).draws.kl < default.draws.kl


def test_radius_auto_grows_to_responses_far_from_zero():
    with pm.Model() as model:
        pm.Cauchy("y", pm.Normal("mu", 0, 100), 5.0, observed=REAL + 30.0)
    summary = build_pass_glm(model, radius="auto", random_seed=1)
    assert summary.radius > 25
    assert summary.statistics.is_proper


def test_radius_auto_warns_where_it_does_not_settle(limits):
    limits(rounds_of_radius=1)
    with warned("not converged") as caught:
        build_pass_glm(logistic_model(), radius="auto", random_seed=1)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"degree": 0}, "degree=0"),
        ({"degree": 2.5}, ("degree=2.5", "whole number")),
        ({"radius": -1.0}, ("radius=-1.0", "'auto'")),
        ({"radius": "wide"}, ("radius='wide'", "'auto'")),
        ({"degree": True}, ("degree=True", "whole number")),
        ({"degree": "2"}, ("degree='2'", "whole number")),
        ({"degree": 21}, ("degree=21", "1 and 20")),
        ({"radius": True}, "radius=True"),
        ({"radius": np.inf}, "radius=inf"),
        ({"radius": None}, "radius=None"),
        ({"random_seed": "a"}, "random_seed='a'"),
        ({"random_seed": -1}, "random_seed=-1"),
        ({"given": {"nothing": 1.0}}, ("given", "'nothing'", "['beta']")),
        ({"given": {1: 1.0}}, ("given", "1", "['beta']")),
        ({"given": "beta"}, "given is a str"),
        ({"given": ["beta"]}, "given is a list"),
        ({"given": 1.0}, "given is a float"),
        ({"given": {"beta": "high"}}, ("'beta'", "finite numbers")),
        ({"given": {"beta": None}}, ("'beta'", "finite numbers")),
        ({"given": {"beta": "2"}}, ("'beta'", "finite numbers")),
        ({"given": {"beta": 1.0}}, ("'beta'", "(2,)", "1.0")),
        ({"given": {"beta": [np.nan, 1.0]}}, ("'beta'", "finite")),
    ],
)
def test_options_out_of_range(options, facts):
    with refused(InvalidOptionError, facts):
        build_pass_glm(logistic_model(), **options)


@pytest.mark.parametrize("model", ["hello", 1, logistic_model])
def test_what_is_no_model_is_named(model):
    with refused(InvalidOptionError, f"model is a {type(model).__name__}", "pm.Model"):
        build_pass_glm(model)


def test_without_any_model_both_ways_to_pass_one_are_named():
    with refused(InvalidOptionError, "model=...", "pm.Model()"):
        build_pass_glm()


def test_a_whole_number_is_not_cut_off_when_it_is_given():
    with pm.Model() as model:
        trials = pm.Poisson("trials", 3.0)
        pm.Binomial("y", n=trials, logit_p=pm.Normal("a"), observed=np.array([1, 2]))
    with refused(InvalidOptionError, "'trials'", "whole numbers", "4.5"):
        build_pass_glm(model, given={"trials": 4.5})
    assert build_pass_glm(model, given={"trials": 4.0}, random_seed=1).n_observations == 2


def test_progress_is_shown_by_parts_unless_it_is_turned_off(capsys):
    build_pass_glm(logistic_model(), radius="auto", random_seed=1, progressbar=True)
    shown = capsys.readouterr().out
    for part in ("reading the model", "choosing the radius", "summing polynomials"):
        assert part in shown
    assert "2,000 of 2,000 rows" in shown
    assert "2,000 of 2,000 rows, pass " in shown
    build_pass_glm(logistic_model(), random_seed=1, progressbar=False)
    assert capsys.readouterr().out == ""


def test_summaries_that_do_not_add_up_or_cannot_be_summarised_again(logistic, gaussian):
    other = build_pass_glm(gaussian, given={"sigma": 1.5}, random_seed=1)
    with refused(
        InvalidOptionError, "('beta[0]', 'beta[1]')", "('beta[one]', 'beta[age]', 'beta[sex]')"
    ):
        logistic + other
    with pytest.raises(TypeError):
        logistic + 1
    wider = build_pass_glm(logistic_model(), radius=5.0, random_seed=1)
    with refused(InvalidOptionError, "radius", "4.0", "5.0"):
        logistic + wider
    with refused(UnsupportedModelError, "already", "summary"):
        build_pass_glm(logistic.model)
    assert logistic.full_model is not logistic.model
