"""Densities of rows by what they see, and quadratics of many rows."""

import logging
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from pymc.distributions.transforms import ordered
from scipy.special import expit

from pymc_coresets import UnsupportedModelError
from pymc_coresets.glm.control_variates.averaged import ByPredictors, row_quadratics
from pymc_coresets.glm.control_variates.by_gradients import (
    ByGradients,
    FreeCoordinates,
    beyond_second_order,
    regressed,
)
from pymc_coresets.glm.control_variates.expansion import AveragedRows, reliability
from pymc_coresets.glm.control_variates.posteriors import Posteriors
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.parabolas import Parabolas
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.glm.predictor.row_density import effects, kinds_by_entries
from pymc_coresets.glm.predictor.row_graph import evenly_spread, spread_rows
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.methods.job import Job
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.quadratic import interface_at
from tests.derived import likelihood_of, sampler_of
from tests.refusals import refused

# -- Rows whose log-density is quadratic in one of their numbers. ----------------------------------

_rng = np.random.default_rng(1)
PEAKS, HEIGHTS, SDS = _rng.normal(0, 30, 9), _rng.normal(size=9), np.exp(_rng.normal(size=9))


def density(numbers, *, compiled):
    """Return that of rows which are normal in the second number."""
    return HEIGHTS - np.square((numbers[1] - PEAKS) / SDS) / 2


def test_peaks_heights_and_precisions_are_those_of_the_rows():
    found = Parabolas.of(partial(density, compiled=False), np.zeros((2, 9)), 1)
    assert_allclose(found.peaks, PEAKS, rtol=1e-9)
    assert_allclose(found.heights, HEIGHTS, rtol=1e-9)
    assert_allclose(found.precisions, 1 / SDS**2, rtol=1e-9)
    assert found.are_proper


def test_values_are_those_of_the_density_anywhere():
    found = Parabolas.of(partial(density, compiled=False), np.zeros((2, 9)), 1)
    at = _rng.normal(0, 30, size=(4, 9))
    numbers = np.stack([np.zeros((4, 9)), at])
    assert_allclose(found.at(at), density(numbers, compiled=False), rtol=1e-8)


def test_a_row_without_a_maximum_has_no_parabola():
    def upwards(numbers, *, compiled):
        return -density(numbers, compiled=compiled)

    found = Parabolas.of(partial(upwards, compiled=False), np.zeros((2, 9)), 1)
    assert not found.are_proper


# -- golden ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 10, 1_000])
def test_gaps_are_nearly_equal(n):
    gaps = np.diff(np.r_[0.0, np.sort(evenly_spread(n)), 1.0])
    assert gaps.max() < 3 / (n + 1)


@pytest.mark.parametrize("period", [2, 3, 8, 16, 32])
@pytest.mark.parametrize("n_obs", [2**20, 10**6])
def test_rows_that_repeat_in_a_period_are_all_met(n_obs, period):
    met = np.bincount(spread_rows(n_obs, 200) % period, minlength=period)
    assert met.min() > 0.3 * 200 / period


def test_all_rows_are_taken_where_they_are_few():
    np.testing.assert_array_equal(spread_rows(5, 5), np.arange(5))
    assert len(spread_rows(6, 5)) <= 5


# -- Averages of rows over draws: predicted errors, and differences in any unit. -------------------


def test_the_predicted_divergence_is_that_of_the_best_factor():
    """An estimate of variance v, times c, misses a signal of variance s by (1 - c)^2 s + c^2 v."""
    signal, noise = np.array([-2.0, 2.0, -2.0, 2.0]), 3.0
    none = dict.fromkeys(("draws", "slope", "curvature", "missed"), np.zeros(0))
    sample = SimpleNamespace(variance=lambda size: noise / size)
    rows = AveragedRows(residual=signal, sample=sample, **none)
    factors = np.linspace(0.0, 1.0, 100_001)
    for size in (1, 4):
        errors = (1 - factors) ** 2 * signal.var() + factors**2 * noise / size
        assert_allclose(rows.missed_by(size), errors.min(), rtol=1e-8)
        assert_allclose(reliability(4.0, noise / size), factors[errors.argmin()], atol=1e-5)


def test_differences_of_rows_in_large_units_are_no_rounding_errors():
    """Draws that are all equal do not say how far to step: the rows do."""
    unit = 2.0**30
    with pm.Model() as model:
        y = unit * np.random.default_rng(1).normal(size=50)
        pm.Normal("y", pm.Normal("b", 0.0, unit), unit, observed=y)
    found = find_predictors(find_observations(model))
    rows = RowsInMemory(found, np.arange(50), np.ones(50))
    each = row_quadratics(rows, np.zeros(1), np.zeros((8, 1)))
    assert_allclose(each.curvatures * unit**2, -1.0, rtol=1e-3)


# -- Rows that depend on few of the numbers that rows see: which, and their quadratics by hand. ----

N, K = 400, 7
CUTS = np.linspace(-2.0, 2.0, K - 1)
_rng_own_entries = np.random.default_rng(3)
X = _rng_own_entries.normal(size=(N, 2))
GRADES = ((X @ [0.6, -0.4] + _rng_own_entries.logistic(size=N))[:, None] > CUTS).sum(axis=1)


def rows_of(grades, by_item=None):
    """Rows of an ordered regression, one of whose cut points are those of an item, if wanted."""
    shape = () if by_item is None else (by_item.max() + 1,)
    start = np.broadcast_to(CUTS, (*shape, K - 1)).copy()
    with pm.Model() as model:
        cuts = pm.Normal("c", shape=start.shape, transform=ordered, initval=start)
        points = cuts if by_item is None else cuts[by_item]
        eta = X @ pm.Normal("b", shape=2)
        pm.OrderedLogistic("y", eta, points, compute_p=False, observed=grades)
    found = find_predictors(find_observations(model))
    return RowsInMemory(found, np.arange(N), np.ones(N))


def density_own_entries(cuts_and_eta, grade):
    """The log-probability of a grade, its gradient and its Hessian, in closed form."""
    *cuts, eta = cuts_and_eta
    p, first, second = 0.0, np.zeros(K), np.zeros((K, K))
    for at, sign in ((grade, 1.0), (grade - 1, -1.0)):
        if not 0 <= at < K - 1:
            p += sign * (at >= K - 1)
            continue
        share, way = expit(cuts[at] - eta), np.zeros(K)
        way[[at, K - 1]] = 1.0, -1.0
        slope = share * (1 - share)
        p += sign * share
        first += sign * slope * way
        second += sign * slope * (1 - 2 * share) * np.outer(way, way)
    gradient = first / p
    hessian = second / p - np.outer(gradient, gradient)
    return np.log(p), gradient, hessian


def test_rows_depend_on_their_predictor_and_the_cut_points_beside_their_grade():
    rows = rows_of(GRADES)
    middle = np.vstack([np.repeat(CUTS[:, None], N, axis=1), (X @ [0.5, -0.3])[None]])

    def at(seen):
        return rows.density(seen)

    found = effects(at, middle, np.full_like(middle, 0.1)) > 0
    cut = np.arange(K - 1)[:, None]
    assert_array_equal(found[:-1], (cut == GRADES) | (cut == GRADES - 1))
    assert found[-1].all()


def test_what_fails_a_check_of_all_numbers_is_no_effect():
    """Cut points next to each other, one of which the steps take past the other."""
    middle = np.array([[0.0], [1e-3], [5.0]])

    def at(seen):
        ascending = (np.diff(seen, axis=0) > 0).all(axis=0)
        return np.where(ascending, seen[2], -np.inf)

    assert_array_equal(effects(at, middle, np.full((3, 1), 0.1)).ravel() > 0, [False, False, True])


def test_rows_of_a_kind_are_together_once():
    size = np.random.default_rng(1).integers(0, 2, (4, 50)).astype(float)
    seen = np.zeros(50, dtype=int)
    for own, which in kinds_by_entries(size):
        seen[which] += 1
        expected = np.isin(np.arange(4), own)[:, None]
        assert_array_equal(size[:, which] > 0, np.broadcast_to(expected, (4, len(which))))
    assert_array_equal(seen, 1)


def test_of_more_than_five_entries_the_largest_count():
    [(own, _)] = kinds_by_entries(np.array([[3.0, 1.0, 7.0, 4.0, 5.0, 6.0, 2.0]]).T)
    assert_array_equal(own, [0, 2, 3, 4, 5])


@pytest.mark.parametrize("of_items", [False, True], ids=["one scale", "a scale for each item"])
def test_the_quadratic_of_a_row_has_its_averaged_gradient_and_hessian(of_items):
    """By Stein's identity; here by seven nodes in each of three directions, in closed form."""
    by_item = np.arange(N) % 3 if of_items else None
    rows = rows_of(GRADES, by_item)
    n_cuts, rng = (3 if of_items else 1) * (K - 1), np.random.default_rng(5)
    names = list(rows.found.names)
    is_cut = np.array([name.startswith("c") for name in names])
    assert is_cut.sum() == n_cuts
    center = np.where(is_cut, 0.0, 0.4)
    center[is_cut] = np.tile(CUTS, n_cuts // (K - 1))
    root = 0.05 * rng.normal(size=(len(names), len(names))) / np.sqrt(len(names))
    away = rng.normal(size=(1_000, len(names))) @ root.T
    away -= away.mean(axis=0)
    each = row_quadratics(rows, center, away)
    slope, curvature = rows.slope(each.slopes), rows.gram(each.curvatures)
    nodes, masses = np.polynomial.hermite_e.hermegauss(7)
    grid = np.array(list(product(nodes, repeat=3)))
    weights = np.prod(list(product(masses / masses.sum(), repeat=3)), axis=1)
    expected, hessian = np.zeros(len(names)), np.zeros((len(names), len(names)))
    cov = away.T @ away / len(away)
    for n in range(0, N, 8):
        some = RowsInMemory(rows.found, np.array([n]), np.ones(1))
        one = row_quadratics(some, center, away)
        jacobian = np.zeros((K, len(names)))
        first = np.flatnonzero(is_cut)[(n % 3) * (K - 1) if of_items else 0]
        jacobian[np.arange(K - 1), first + np.arange(K - 1)] = 1.0
        jacobian[K - 1, ~is_cut] = X[n]
        own = [k for k in (GRADES[n] - 1, GRADES[n]) if 0 <= k < K - 1] + [K - 1]
        spread = np.linalg.cholesky((jacobian @ cov @ jacobian.T)[np.ix_(own, own)])
        steps = grid[:, : len(own)] @ spread.T
        gradient, second = np.zeros(K), np.zeros((K, K))
        for step, weight in zip(steps, weights, strict=True):
            seen = jacobian @ center
            seen[own] += step
            _, g, h = density_own_entries(seen, GRADES[n])
            gradient, second = gradient + weight * g, second + weight * h
        # The quadratic's slope at the mean, which is the center.
        scale = np.abs(second).max()
        assert_allclose(some.slope(one.slopes), jacobian.T @ gradient, atol=1e-3 * scale)
        assert_allclose(
            some.gram(one.curvatures), jacobian.T @ second @ jacobian, atol=0.01 * scale
        )
        expected += some.slope(one.slopes)
        hessian += some.gram(one.curvatures)
    every = rows.take(np.arange(0, N, 8))
    assert_allclose(every.slope(each.slopes[:, ::8]), expected, rtol=1e-9, atol=1e-9)
    assert_allclose(every.gram(each.curvatures[:, :, ::8]), hessian, rtol=1e-9, atol=1e-9)
    # Those of all rows are the sums of those of every eighth, begun at each of eight.
    parts = [(rows.take(np.arange(k, N, 8)), slice(k, None, 8)) for k in range(8)]
    whole = sum(part.slope(each.slopes[:, own]) for part, own in parts)
    assert_allclose(slope, whole, rtol=1e-9, atol=1e-9)
    whole = sum(part.gram(each.curvatures[:, :, own]) for part, own in parts)
    assert_allclose(curvature, whole, rtol=1e-9, atol=1e-9)


def test_a_grade_of_few_rows_leaves_its_neighbours_a_quadratic():
    """Its two cut points lie closer together than either is known, but are known together."""
    rng = np.random.default_rng(6)
    grades = np.where(GRADES == 3, 2, GRADES)
    grades[:25] = 3
    rows = rows_of(grades)
    center = np.concatenate([CUTS, [0.5, -0.3]])
    center[3] = center[2] + 0.1
    away = 0.02 * rng.normal(size=(300, K + 1))
    away[:, 2:4] += 0.2 * rng.normal(size=(300, 1))
    each = row_quadratics(rows, center, away)
    at = center + away
    eta = at[:, K - 1 :] @ X[:60].T
    exact = [
        [
            density_own_entries([*cuts, one], grade)[0]
            for one, grade in zip(own, grades, strict=False)
        ]
        for cuts, own in zip(at[:, : K - 1], eta, strict=True)
    ]
    share = each.spread[:60] / np.std(exact, axis=0)
    beside = np.isin(grades[:60], (2, 3))
    assert share[beside].max() < 0.1  # without a quadratic of its own, a row keeps all of it
    assert share[~beside].max() < 0.03


# -- Quadratics from gradients of all rows, for rows that see many numbers. ------------------------

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
    return likelihood_of(model)


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
    expansion = ByGradients(likelihood_of(model))
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


def test_the_search_for_the_mode_begins_several_times_if_there_are_several(caplog):
    """A mixture of four kinds of counts: from PyMC's initial point, one of them stays empty."""
    rng, n = np.random.default_rng(5), 1_000
    level = np.array([-1.0, 1.5, 3.0, 4.5])
    count = rng.poisson(np.exp(rng.choice(level, n, p=[0.3, 0.2, 0.2, 0.3])))
    with pm.Model() as model:
        a = pm.Normal("a", 0, 5, shape=4, transform=ordered)
        kinds = pm.Poisson.dist(pm.math.exp(a + np.zeros((n, 1))))
        pm.Mixture("y", w=pm.Dirichlet("w", np.ones(4)), comp_dists=kinds, observed=count)
    sampler, rng = sampler_of(model), np.random.default_rng(1)
    loglik = sampler.loglikelihood
    job = Job(posterior=sampler, loglikelihood=loglik, size=1_000, rng=rng, sample_key=1)
    with caplog.at_level(logging.INFO, logger="pymc_coresets"):
        mode = Posteriors.begun(job, ByGradients(loglik)).mode
    assert "several modes" in caplog.text
    at = loglik.observations.space.constrain(mode[None]).values
    np.testing.assert_allclose(at["a"][0], level, atol=0.35)  # two standard deviations
