"""Missing values of covariates are integrated out row by row: against sums over nodes by hand."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pymc.exceptions import ImputationWarning
from scipy.special import expit, logsumexp
from scipy.stats import bernoulli, norm

from pymc_coresets import InvalidOptionError, build_coreset
from tests.models.units import chosen, compared, loglik_of, nodes_at, read
from tests.refusals import refused

N = 90
RNG = np.random.default_rng(1)
X, Z = RNG.normal(1, 2, size=(2, N))
NO_X, NO_Z = RNG.random((2, N)) < 0.4
Y = RNG.binomial(1, expit(0.3 + 0.5 * X - 0.4 * Z))
PERSON = RNG.permutation(np.repeat(np.arange(30), 3))
B = np.array([0.2, 0.6, -0.5])
SHARED = {"mu": 0.7, "b": B}


def masked(values: np.ndarray, missing: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.masked_array(values, missing)


def model_of(write: Callable[[Any, Any], None]) -> pm.Model:
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", ImputationWarning)
        write(pm.Normal("mu"), pm.Normal("b", shape=3))
    return model


def imputed(mu, b):
    x = pm.Normal("x", mu, 2.0, observed=masked(X, NO_X))
    pm.Bernoulli("y", logit_p=b[0] + b[1] * x + b[2] * Z, observed=Y)


def in_two_likelihoods(mu, b):
    pm.Normal("x_known", mu, 2.0, observed=X[~NO_X])
    x = pm.Normal("x_missing", mu, 2.0, shape=int(NO_X.sum()))
    for name, value, rows in (("complete", X[~NO_X], ~NO_X), ("incomplete", x, NO_X)):
        logit = b[0] + b[1] * value + b[2] * Z[rows]
        pm.Bernoulli(name, logit_p=logit, observed=Y[rows])


def written_into_data(mu, b):
    pm.Normal("x_known", mu, 2.0, observed=X[~NO_X])
    missing = pm.Normal("x_missing", mu, 2.0, shape=int(NO_X.sum()))
    x = pt.set_subtensor(pt.as_tensor(np.where(NO_X, 0.0, X))[np.flatnonzero(NO_X)], missing)
    pm.Bernoulli("y", logit_p=b[0] + b[1] * x + b[2] * Z, observed=Y)


def one_for_every_row(mu, b):
    every = pm.Normal("x_missing", mu, 2.0, shape=N)
    x = pt.where(NO_X, every, X)
    pm.Potential("x_known", pt.where(NO_X, 0.0, pm.logp(pm.Normal.dist(mu, 2.0), X)))
    pm.Bernoulli("y", logit_p=b[0] + b[1] * x + b[2] * Z, observed=Y)


def units_of(model: pm.Model, *names: str) -> Any:
    """Read the rows of a model, compare them with PyMC's, and place nodes."""
    found = chosen(model, names or None)
    assert found is not None
    assert set(found) >= set(names)
    units = compared(model, *found)
    return nodes_at(units, 21 if units.factor.n_dims == 1 else 9)


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(101)
LOG_WEIGHTS = np.log(WEIGHTS / WEIGHTS.sum())


def of_rows(known: np.ndarray, *, of_x: bool = True) -> np.ndarray:
    """The log-likelihood of each row, with its x integrated out where that is missing."""

    def seen(x: np.ndarray) -> np.ndarray:
        return bernoulli.logpmf(Y[:, None], expit(B[0] + B[1] * x + B[2] * Z[:, None]))

    complete = seen(X[:, None])[:, 0] + of_x * norm.logpdf(X, 0.7, 2.0)
    missing = logsumexp(seen(0.7 + 2.0 * NODES[None]) + LOG_WEIGHTS, axis=1)
    return np.where(known, complete, missing)


WAYS = {
    imputed: ("x_unobserved", np.arange(N)),
    in_two_likelihoods: ("x_missing", np.argsort(~NO_X, kind="stable")),
    written_into_data: ("x_missing", np.arange(N)),
    one_for_every_row: ("x_missing", np.arange(N)),
}


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(way, id=way.__name__, marks=[pytest.mark.slow] * (way is one_for_every_row))
        for way in WAYS
    ],
)
def test_all_ways_of_writing_give_the_same_units(write):
    name, order = WAYS[write]
    units = units_of(model_of(write), name)
    assert units.integrated == (name,)
    # Terms of few rows stay where they are, but for those that have variables of their own.
    expected = of_rows(~NO_X, of_x=write in (imputed, in_two_likelihoods))
    assert_allclose(loglik_of(units)(SHARED), expected[order], rtol=0, atol=1e-6)
    assert units.unselected == ()


def test_missing_values_are_integrated_out_without_being_named():
    assert chosen(model_of(imputed)) == ("x_unobserved",)


@pytest.mark.slow
def test_where_there_is_no_hole_the_number_of_nodes_does_not_matter():
    model = model_of(imputed)
    units = read(model, "x_unobserved")
    one, many = (loglik_of(nodes_at(units, degree))(SHARED) for degree in (1, 9))
    assert_allclose(one[~NO_X], many[~NO_X], rtol=0, atol=1e-12)
    assert (np.abs(one - many)[NO_X] > 1e-4).any()


def in_turn(mu, b):
    x = pm.Normal("x", mu, 2.0, observed=masked(X, NO_X))
    z = pm.Normal("z", 0.5 * x, 1.0, observed=masked(Z, NO_Z))
    pm.Bernoulli("y", logit_p=b[0] + b[1] * x + b[2] * z, observed=Y)


def as_a_matrix(mu, b):
    values = masked(np.stack([X, Z], axis=1), np.stack([NO_X, NO_Z], axis=1))
    both = pm.Normal("x", mu, 2.0, observed=values)
    pm.Bernoulli("y", logit_p=b[0] + both @ b[1:], observed=Y)


@pytest.mark.parametrize(
    ("write", "n_variables"), [(in_turn, 2), pytest.param(as_a_matrix, 1, marks=pytest.mark.slow)]
)
def test_holes_of_one_row_are_variables_of_one_unit(write, n_variables):
    units = units_of(model_of(write))
    assert len(units.integrated) == n_variables
    assert units.source.factor.n_dims == 2
    given_x, sd_z = (write is in_turn, 1.0) if write is in_turn else (False, 2.0)
    x = np.where(NO_X[:, None, None], 0.7 + 2.0 * NODES[:, None], X[:, None, None])
    z = np.where(
        NO_Z[:, None, None],
        (0.5 * x if given_x else 0.7) + sd_z * NODES,
        Z[:, None, None],
    )
    seen = bernoulli.logpmf(Y[:, None, None], expit(B[0] + B[1] * x + B[2] * z))
    of_x = np.where(NO_X, 0.0, norm.logpdf(X, 0.7, 2.0))[:, None, None]
    of_z = np.where(
        NO_Z[:, None, None],
        0.0,
        norm.logpdf(Z[:, None, None], 0.5 * x if given_x else 0.7, sd_z),
    )
    weights = LOG_WEIGHTS[:, None] + LOG_WEIGHTS
    expected = logsumexp(seen + of_x + of_z + weights, axis=(1, 2)).sum()
    assert loglik_of(units)(SHARED).sum() == pytest.approx(expected, abs=1e-3)


def test_holes_that_the_rows_of_a_person_share_are_those_of_the_person():
    no_x = NO_X[:30]

    def of_persons(mu, b):
        x = pm.Normal("x", mu, 2.0, observed=masked(X[:30], no_x))
        effect = pm.Normal("effect", 0.0, 1.0, shape=30)
        pm.Normal("y", b[0] + b[1] * x[PERSON] + effect[PERSON], 1.0, observed=Z)

    units = units_of(model_of(of_persons), "x_unobserved", "effect")
    assert_array_equal(units.sizes, 3)
    mean = B[0] + B[1] * np.where(no_x, 0.7, X[:30])
    expected = []
    for person in range(30):
        shared = 1.0 + no_x[person] * (B[1] * 2.0) ** 2
        rows, cov = Z[person == PERSON], np.eye(3) + shared
        away = rows - mean[person]
        square = away @ np.linalg.solve(cov, away)
        expected.append(-(square + np.linalg.slogdet(2 * np.pi * cov)[1]) / 2)
    assert_allclose(loglik_of(units)(SHARED), expected, rtol=0, atol=1e-8)


def test_discrete_covariates_take_all_their_values():
    seen = (X > 1).astype(int)

    def binary(mu, b):
        x = pm.Bernoulli("x", logit_p=mu, observed=masked(seen, NO_X))
        pm.Bernoulli("y", logit_p=b[0] + b[1] * x + b[2] * Z, observed=Y)

    found = loglik_of(units_of(model_of(binary)))(SHARED)
    p, of_y = expit(0.7), lambda x: bernoulli.pmf(Y, expit(B[0] + B[1] * x + B[2] * Z))
    known = of_y(seen) * np.where(seen, p, 1 - p)
    assert_allclose(found, np.log(np.where(NO_X, p * of_y(1) + (1 - p) * of_y(0), known)))


def test_values_that_rows_share_are_not_integrated_out():
    def centred(mu, b):
        x = pm.Normal("x", mu, 2.0, observed=masked(X, NO_X))
        pm.Bernoulli("y", logit_p=b[0] + b[1] * (x - x.mean()), observed=Y)

    assert chosen(model_of(centred)) == ()
    with refused(InvalidOptionError, "integrate=['x_unobserved']", "[]"):
        chosen(model_of(centred), ["x_unobserved"])


# -- a coreset -------------------------------------------------------------------------------------

MANY = 400
LONG = np.random.default_rng(2).normal(size=MANY)
OUTCOME = np.random.default_rng(3).normal(2.0 * LONG, 0.5)
HOLES = np.random.default_rng(4).random(MANY) < 0.25


@pytest.fixture(scope="module")
def coreset():
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", ImputationWarning)
        x = pm.Normal("x", pm.Normal("mean"), 1.0, observed=masked(LONG, HOLES))
        pm.Normal("y", pm.Normal("slope") * x, 0.5, observed=OUTCOME)
    return build_coreset(model, random_seed=1, progressbar=False)


def test_missing_values_are_drawn_given_the_posterior(coreset):
    assert [rv.name for rv in coreset.model.free_RVs] == ["mean", "slope"]
    idata = coreset.sample(
        draws=300, random_seed=1, progressbar=False, compute_convergence_checks=False
    )
    assert coreset.check(idata).reliable
    drawn = idata["posterior"]["x_unobserved"]
    assert drawn.sizes["x_unobserved_dim_0"] == HOLES.sum()
    # Given slope 2 and noise 0.5, x has the precision 1 + 16 and the mean 8 y / 17.
    assert_allclose(drawn.mean(["chain", "draw"]), 8 * OUTCOME[HOLES] / 17, atol=0.15)
    assert_allclose(drawn.std(["chain", "draw"]), 17**-0.5, rtol=0.2)


def test_missing_values_of_some_rows_are_drawn_by_their_numbers(coreset):
    idata = coreset.importance_draws(200, random_seed=1)
    rows = np.flatnonzero(HOLES)[[0, 5]].tolist()
    few = coreset.recover(idata, levels=rows, random_seed=1)["x_unobserved"]
    assert_array_equal(few["x_unobserved_dim_0"], [0, 5])
    assert_allclose(few.mean(["chain", "draw"]), 8 * OUTCOME[rows] / 17, atol=0.15)
    with refused(InvalidOptionError, "levels=[0]", "84 levels"):
        coreset.recover(idata, levels=[int(np.flatnonzero(~HOLES)[0])])
