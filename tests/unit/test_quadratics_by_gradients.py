"""Quadratics from gradients of all rows, for rows that see many numbers."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_coresets import UnsupportedModelError
from pymc_coresets.glm.control_variates.averaged import ByPredictors
from pymc_coresets.glm.control_variates.by_gradients import (
    ByGradients,
    FreeCoordinates,
    beyond_second_order,
    regressed,
)
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import interface_at
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from tests.refusals import refused

D = 3


def flat():
    """Return the precision of a flat prior."""
    return np.zeros((D, D))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), n_steps=st.integers(1, 4))
def test_what_taylors_quadratic_misses_of_quartics_is_exact(seed, n_steps):
    rng = np.random.default_rng(seed)
    coefficients = [rng.normal(size=(D,) * degree) for degree in range(5)]
    steps = rng.normal(size=(n_steps, D))

    def form(degree, x):
        value = np.broadcast_to(coefficients[degree], (len(x), *(D,) * degree))
        for _ in range(degree):
            value = np.einsum("n...d,nd->n...", value, x)
        return value

    scales = (1.0, -1.0, 0.5, -0.5)
    points = np.concatenate([np.zeros((1, D)), *(s * steps for s in scales)])
    values = sum(form(degree, points) for degree in range(5))
    ahead, behind = (form(3, s) + form(4, s) for s in (steps, -steps))
    expected = np.stack([ahead, behind], axis=1).ravel()
    found = beyond_second_order(values[:, None])[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(values).max())


@pytest.mark.parametrize("n_draws", [12, 40])
def test_the_gradients_of_a_quadratic_are_regressed_exactly_from_enough_draws(n_draws):
    rng = np.random.default_rng(1)
    root = np.tril(rng.normal(size=(D, D))) + 2 * np.eye(D)
    away = rng.normal(size=(n_draws, D)) @ root.T
    curvature, slope = -root @ root.T, rng.normal(size=D)
    found = regressed(away, slope + away @ curvature, root)
    np.testing.assert_allclose(found[0], slope, atol=1e-8)
    np.testing.assert_allclose(found[1], curvature, rtol=1e-8)


def test_noise_is_not_taken_for_a_curvature():
    rng, p = np.random.default_rng(2), 40
    away, noise = rng.normal(size=(60, p)), rng.normal(size=(60, p))
    slope, curvature = regressed(away, noise, np.eye(p))
    fresh = rng.normal(size=(500, p))
    added = np.square(slope + fresh @ curvature).mean()
    assert added < 0.15  # least squares add 0.8 of the noise's variance


def test_a_curvature_that_would_make_the_posterior_improper_is_cut_off():
    """In the coordinates in which the draws have variance one; the mean gradient is kept."""
    rng = np.random.default_rng(4)
    root, curvature = np.diag([2.0, 1.0, 0.5]), np.diag([-1.0, 0.1, 20.0])
    away = rng.normal(size=(50, D)) @ root.T
    slope, found = regressed(away, 1.0 + away @ curvature, root, most=0.75)
    np.testing.assert_allclose(found, np.diag([-1.0, 0.1, 0.75 / 0.5**2]), atol=1e-8)
    np.testing.assert_allclose(
        slope + found @ away.mean(axis=0), 1.0 + curvature @ away.mean(axis=0), atol=1e-8
    )


@pytest.fixture(scope="module")
def logistic():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 2))
    with pm.Model() as model:
        b, a = pm.Normal("b", shape=2), pm.Normal("a")
        pm.Bernoulli("y", logit_p=a + x @ b, observed=rng.binomial(1, 0.4, 600))
    return LogLikelihood(find_observations(model))


def test_quadratics_are_those_of_rows_that_see_few_numbers(logistic):
    by_rows = ByPredictors(logistic.source, seen_rows_of(logistic, find_predictors))
    by_gradients = ByGradients(logistic)
    order = [by_gradients.interface.names.index(n) for n in by_rows.interface.names]
    rng = np.random.default_rng(4)
    draws = 0.1 * rng.normal(size=(400, 3))
    expected = by_rows.average(draws, by_rows.at_point(draws[:1], key=0), prior=flat)
    start = by_gradients.at_point(draws[:1], key=0)
    draws = draws[:, np.argsort(order)]
    found = by_gradients.average(draws, start, n_kept=50, key=1, prior=flat)
    # Both are averages; those of gradients over 400 draws, whose noise is of third order.
    np.testing.assert_allclose(found.slope[order], expected.slope, atol=0.3)
    np.testing.assert_allclose(
        found.curvature[np.ix_(order, order)], expected.curvature, rtol=0.03, atol=1.0
    )
    assert np.var(found.residual) == pytest.approx(np.var(expected.residual), rel=0.3)
    # Along each direction, sums over rows are what is missed of all rows together.
    each = by_gradients._beyond_of(draws.mean(axis=0), found.directions, logistic.all_rows)
    np.testing.assert_allclose(
        each @ logistic.all_rows.case_weights, found.missed, atol=1e-8 * len(each.T)
    )


def test_chosen_rows_and_their_quadratic_are_closer_than_the_quadratic_alone(logistic):
    expansion = ByGradients(logistic)
    rng = np.random.default_rng(5)
    draws = 0.3 * rng.normal(size=(300, 3))  # of which third orders are seen
    quadratic = expansion.at_point(draws.mean(axis=0)[None], key=0)
    averaged = expansion.average(draws, quadratic, n_kept=150, key=1, prior=flat)
    quadratic = averaged.quadratic(expansion.interface)
    chosen = expansion.chosen(averaged, quadratic, 150, goal=0.0)
    fresh = 0.3 * rng.normal(size=(200, 3))
    x = expansion._points(fresh)
    of_all = logistic.weighted_sum(x, logistic.all_rows, logistic.all_rows.case_weights)
    own = logistic.weighted_sum(x, chosen.rows, chosen.weights) + chosen.quadratic.at(fresh)
    alone = np.var(of_all - quadratic.at(fresh))
    assert np.var(of_all - own) < 0.2 * alone
    assert chosen.left < 0.2 * alone
    # Beside them, the quadratic is convex nowhere by more than half of what all rows have.
    largest = np.linalg.eigvals(-np.linalg.solve(quadratic.curvature, chosen.quadratic.curvature))
    assert largest.real.max() < 0.5 + 0.1


def test_a_coefficient_that_the_prior_determines_costs_no_weight():
    """A column of six rows: one of them, with a weight of 15, has more curvature than all six."""
    rng = np.random.default_rng(6)
    x = np.c_[np.ones(600), rng.normal(size=600), np.arange(600) < 6]
    with pm.Model() as model:
        b = pm.Normal("b", shape=3)
        pm.Bernoulli("y", logit_p=x @ b, observed=rng.binomial(1, 0.4, 600))
    expansion = ByGradients(LogLikelihood(find_observations(model)))
    draws = 0.1 * rng.normal(size=(300, 3))
    quadratic = expansion.at_point(draws.mean(axis=0)[None], key=0)
    totals = []
    for prior in (flat, lambda: np.diag([0.0, 0.0, 100.0])):
        averaged = expansion.average(draws, quadratic, n_kept=40, key=8, prior=prior)
        chosen = expansion.chosen(averaged, quadratic, 40, goal=0.0)
        totals.append(chosen.weights.sum())
    assert totals[0] < 0.6 * totals[1]
    assert 400 < totals[1] < 1_000


def test_coordinates_are_those_of_the_unconstrained_scale():
    with pm.Model() as model:
        free, width = pm.Normal("free", shape=(2, 2)), pm.HalfNormal("width")
        share = pm.Dirichlet("share", np.ones(3))
        pm.Normal("unseen", width)
        mean = (free * share[0]).sum() + pt.log(share[1]) * np.arange(5.0)
        pm.Normal("y", mean, width, observed=np.arange(5.0))
    observations = find_observations(model)
    found = FreeCoordinates.of(observations)
    space = observations.space
    x = np.random.default_rng(1).normal(size=(3, space.n_dims))
    assert len(found.names) == len(found.columns) == 4 + 1 + 2
    at = interface_at(found.coefficients, observations, space.constrain(x))
    np.testing.assert_allclose(at, x[:, found.columns], atol=1e-12)


def test_discrete_variables_have_no_coordinates():
    with pm.Model() as model:
        kind = pm.Categorical("kind", [0.5, 0.5])
        pm.Normal("y", pm.Normal("mean", shape=2)[kind], observed=np.arange(5.0))
    with refused(UnsupportedModelError, "'kind'", topic="regressions"):
        FreeCoordinates.of(find_observations(model))
