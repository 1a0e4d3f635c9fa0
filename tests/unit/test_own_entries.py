"""Rows that depend on few of the numbers that rows see: which, and their quadratics by hand."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pymc.distributions.transforms import ordered
from scipy.special import expit

from pymc_coresets.glm.control_variates.averaged import row_quadratics
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.glm.predictor.row_density import effects, kinds_by_entries
from pymc_coresets.reading.observations import find_observations

N, K = 400, 7
CUTS = np.linspace(-2.0, 2.0, K - 1)
_rng = np.random.default_rng(3)
X = _rng.normal(size=(N, 2))
GRADES = ((X @ [0.6, -0.4] + _rng.logistic(size=N))[:, None] > CUTS).sum(axis=1)


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


def density(cuts_and_eta, grade):
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
            _, g, h = density(seen, GRADES[n])
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
        [density([*cuts, one], grade)[0] for one, grade in zip(own, grades, strict=False)]
        for cuts, own in zip(at[:, : K - 1], eta, strict=True)
    ]
    share = each.spread[:60] / np.std(exact, axis=0)
    beside = np.isin(grades[:60], (2, 3))
    assert share[beside].max() < 0.1  # without a quadratic of its own, a row keeps all of it
    assert share[~beside].max() < 0.03
