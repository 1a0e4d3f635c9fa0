"""Draws of approximations against posteriors that are known, on every kind of scale."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose

from pymc_coresets import (
    Check,
    GaussianApproximation,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    check_approximation,
    open_rows,
)
from tests.refusals import refused

N = 400
X = np.random.default_rng(1).normal(size=N) + 3.0  # so that intercept and slope are correlated
Y = 1.0 + 0.5 * X + np.random.default_rng(2).normal(size=N)
DESIGN = np.column_stack([np.ones(N), X])
COVARIANCE = np.linalg.inv(DESIGN.T @ DESIGN + np.eye(2) / 25)
MEAN = COVARIANCE @ DESIGN.T @ Y
# What mean-field variational inference converges to: the conditional variances.
MEAN_FIELD = np.diag(1 / np.diag(np.linalg.inv(COVARIANCE)))


def line(x, y):
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 5), pm.Normal("b", 0, 5)
        pm.Normal("likelihood", a + b * pm.Data("x", x), 1.0, observed=pm.Data("y", y))
    return model


@pytest.fixture(scope="module")
def model():
    return line(X, Y)


@pytest.fixture(scope="module")
def exact():
    return GaussianApproximation(MEAN, COVARIANCE)


@pytest.fixture(scope="module")
def draws(model, exact):
    return exact.draw(model, 500, random_seed=1)


def points(idata, *names):
    return np.stack([idata["posterior"][name].to_numpy() for name in names], axis=-1)


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd)


def test_the_posterior_itself_passes_as_an_array_and_as_a_function(model, exact, draws):
    values = exact(points(draws, "a", "b").reshape(-1, 2)).reshape(4, 500)
    labelled = xr.DataArray(values.T + 7.0, dims=("draw", "chain"))  # any constant
    for density in (exact, values, labelled):
        check = check_approximation(model, draws, density)
        assert isinstance(check, Check)
        assert check.symmetrised_kl < 1e-12
        assert check.verdict.text.startswith(
            "Reliable around this mode (others were not looked for)"
        )


def test_mean_field_is_refused_where_the_posterior_is_correlated(model):
    found = GaussianApproximation(MEAN, MEAN_FIELD)
    check = check_approximation(model, found.draw(model, random_seed=1), found)
    # KL of two normal distributions with the same mean.
    expected = 0.5 * np.linalg.slogdet(COVARIANCE)[1] - 0.5 * np.linalg.slogdet(MEAN_FIELD)[1]
    assert expected > 1.0
    assert not check.reliable
    assert "Fit a richer family" in check.verdict.text
    assert "KL(approximation || full)" in repr(check)


def test_mean_field_passes_where_the_posterior_is_not_correlated():
    model = line(X - X.mean(), Y)
    design = np.column_stack([np.ones(N), X - X.mean()])
    precision = np.diag(design.T @ design) + 1 / 25
    found = GaussianApproximation(design.T @ Y / precision, np.diag(1 / precision))
    assert check_approximation(model, found.draw(model, random_seed=1), found).negligible


def test_what_fit_returns_is_taken_as_it_is(model):
    wanted = {"mean_field": MEAN_FIELD, "full_rank": COVARIANCE}
    for kind, is_refused in (pm.MeanField, True), (pm.FullRank, False):
        fit = kind(model=model)
        group = fit.groups[0]
        order = [list(group.ordering).index(name) for name in ("a", "b")]
        covariance = wanted[group.short_name][np.ix_(order, order)]
        group.params_dict["mu"].set_value(MEAN[order])
        if is_refused:
            rho = np.log(np.expm1(np.sqrt(np.diag(covariance))))
            group.params_dict["rho"].set_value(rho)
        else:
            root = np.linalg.cholesky(covariance)
            root[np.diag_indices(2)] = np.log(np.expm1(np.diag(root)))
            group.params_dict["L_tril"].set_value(root[np.tril_indices(2)])
        idata = GaussianApproximation(MEAN, wanted[group.short_name]).draw(model, random_seed=1)
        check = check_approximation(model, idata, fit)
        assert check.negligible != is_refused
        other = line(X, Y)
        with other:
            pm.Normal("c")
        more = idata["posterior"].to_dataset().assign(c=idata["posterior"]["a"])
        with refused(InvalidDataError, "['a', 'b']", "['a', 'b', 'c']"):
            check_approximation(other, more, fit)


def test_rows_elsewhere_give_the_same(model, exact, draws):
    wide = GaussianApproximation(MEAN, 2 * COVARIANCE)
    here = check_approximation(model, draws, wide, draws=100)
    elsewhere = check_approximation(
        line(X[:20], Y[:20]), draws, wide, draws=100, rows=open_rows({"x": X, "y": Y})
    )
    assert_allclose(elsewhere.kl, here.kl, rtol=1e-8)
    assert here.n_draws == 100


# -- scales ----------------------------------------------------------------------------------------


def transformed():
    """Return a model with a log and an interval transform, whose prior is known on both scales."""
    with pm.Model() as model:
        scale = pm.LogNormal("scale", 0.3, 0.2)
        share = pm.Uniform("share", -1.0, 3.0)
        # A likelihood that is nearly flat: the posterior is the prior, within 1e-6 nats.
        pm.Normal("likelihood", 1e-6 * (scale + share), 1.0, observed=np.zeros(5))
    return model


def test_the_scale_is_the_unconstrained_one():
    model, rng = transformed(), np.random.default_rng(3)
    log_scale, uniform = rng.normal(0.3, 0.2, size=(2, 500)), rng.uniform(size=(2, 500))
    idata = xr.Dataset(
        {
            "scale": (("chain", "draw"), np.exp(log_scale)),
            "share": (("chain", "draw"), 4 * uniform - 1),
        }
    )
    # log(scale) is normal, and logit(u) has the logistic density u (1 - u).
    unconstrained = log_normal(log_scale, 0.3, 0.2) + np.log(uniform * (1 - uniform))
    check = check_approximation(model, idata, unconstrained)
    assert check.symmetrised_kl < 1e-9
    # Densities on the model's own scale lack the Jacobian, whose variance is what is off.
    own = log_normal(log_scale, 0.3, 0.2) - log_scale
    check = check_approximation(model, idata, own)
    jacobian = log_scale + np.log(uniform * (1 - uniform))
    assert_allclose(check.symmetrised_kl, jacobian.var(ddof=1), rtol=1e-3)


def test_draws_outside_of_the_support_are_refused():
    model = transformed()
    draws = np.full((2, 50), 1.0)
    inside = xr.Dataset({n: (("chain", "draw"), draws.copy()) for n in ("scale", "share")})
    outside = inside.copy(deep=True)
    outside["scale"][1, 3] = -1.0
    with refused(InvalidDataError, "Draw 53", "'scale'"):
        check_approximation(model, outside, np.zeros((2, 50)), draws=100)
    with refused(InvalidDataError, "'share'", topic="draws"):
        check_approximation(model, inside.drop_vars("share"), np.zeros((2, 50)))


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("density", "error", "facts"),
    [
        (np.zeros((4, 499)), InvalidDataError, ("log_density", "(4, 499)", "(4, 500)")),
        (np.zeros(2_000), InvalidDataError, ("log_density", "(2000,)", "(4, 500)")),
        (np.full((4, 500), np.nan), InvalidDataError, ("log_density", "nan", "draw (0, 0)")),
        (lambda x: np.zeros(3), InvalidDataError, ("log_density", "(3,)", "(400,)")),
        (
            lambda x: np.full(len(x), -np.inf),
            InvalidDataError,
            ("log_density", "-inf", "draw (0,)"),
        ),
        (
            GaussianApproximation(np.zeros(3), np.eye(3)),
            InvalidDataError,
            ("2 unconstrained dimensions", "3"),
        ),
        ("normal", InvalidOptionError, "log_density='normal'"),
        (None, InvalidOptionError, "log_density=None"),
        ([["a"]], InvalidOptionError, ("log_density", "numbers")),
    ],
)
def test_densities_that_are_none_are_refused(model, draws, density, error, facts):
    with refused(error, facts):
        check_approximation(model, draws, density)


def test_other_bad_input_is_refused(model, exact, draws):
    with refused(InvalidDataError, "'b'", topic="draws"):
        check_approximation(model, draws["posterior"].to_dataset().drop_vars("b"), exact)
    with refused(InvalidOptionError, "draws=3"):
        check_approximation(model, draws, exact, draws=3)
    with refused(InvalidOptionError, "model is a str", "pm.Model"):
        check_approximation("model", draws, exact)
    with refused(InvalidOptionError, "rows is a list", "open_rows(...)"):
        check_approximation(model, draws, exact, rows=[1.0])
    with pm.Model() as alone:
        pm.Normal("a"), pm.Normal("b")
    with refused(UnsupportedModelError, "observed="):
        check_approximation(alone, draws, exact)


@pytest.mark.parametrize(
    ("mean", "covariance", "facts"),
    [
        ([0.0], np.eye(2), ("mean", "covariance", "(1,)", "(2, 2)")),
        ([np.nan], [[1.0]], ("mean", "covariance", "finite")),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], ("covariance", "positive definite")),
        ([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]], ("covariance", "symmetric")),
    ],
)
def test_gaussians_that_are_none_are_refused(mean, covariance, facts):
    with refused(InvalidOptionError, facts):
        GaussianApproximation(mean, covariance)
