"""Descents from one start, and from many at once."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, rosen, rosen_der

from pymc_coresets import OutOfTimeError
from pymc_coresets.deadline import until
from pymc_coresets.sampling.maximisation.many_starts import minimise_together
from pymc_coresets.sampling.maximisation.one_start import FiniteObjective, minimise_where_finite
from tests.refusals import refused

# -- Searches for the lowest point of functions that are not finite everywhere. --------------------


def beyond_zero(x):
    return (float(x[0] - np.log(x[0])), 1 - 1 / x) if x[0] > 0 else (np.nan, x)


@pytest.mark.parametrize("start", [1e-3, 10.0, 100.0, 1_000.0])
def test_steps_to_where_there_is_nothing_are_shortened(start):
    assert_allclose(
        minimise_where_finite(FiniteObjective(beyond_zero), np.array([start])).x, 1, atol=1e-4
    )


def test_a_gradient_alone_that_is_not_finite_is_a_border_too():
    """As of PyMC's mixtures, where a weight is so small that its logarithm is infinite."""

    def function(x):
        inside = np.abs(x).max() < 1.3
        return rosen(x), rosen_der(x) if inside else np.full_like(x, np.nan)

    start = np.random.default_rng(1).uniform(-1, 1, 8)
    assert_allclose(minimise_where_finite(FiniteObjective(function), start).x, 1, atol=1e-4)


def test_where_all_is_finite_it_is_l_bfgs_itself():
    def function(x):
        return rosen(x), rosen_der(x)

    start = np.random.default_rng(1).uniform(-1, 1, 8)
    same = minimize(function, start, jac=True, method="L-BFGS-B", options={"maxiter": 2_000})
    assert (minimise_where_finite(FiniteObjective(function), start).x == same.x).all()


def test_another_start_is_found_near_one_that_is_not_finite():
    found = minimise_where_finite(FiniteObjective(beyond_zero), np.array([-0.5]))
    assert_allclose(found.x, 1, atol=1e-4)


def test_what_is_finite_nowhere_is_said_to_be_infinite():
    found = minimise_where_finite(
        FiniteObjective(lambda x: (0.0, np.full_like(x, np.nan))), np.zeros(2)
    )
    assert found.fun == np.inf
    assert 0 < np.abs(found.x).max() <= 1  # one of the points nearby that were tried


def test_all_searches_together_have_a_bound():
    calls = []

    def falls_to_the_border(x):
        calls.append(x)
        return (float(x[0]), np.ones(1)) if x[0] > 0 else (np.nan, x)

    minimise_where_finite(FiniteObjective(falls_to_the_border), np.ones(1), most_steps=4)
    assert len(calls) <= 20 + 20  # those of the last line search are not counted


# -- Ascents that step together end where single ones do. ------------------------------------------

RNG = np.random.default_rng(1)


def of_points(function, gradient):
    def negative(points, which):
        negative.n_calls += 1
        negative.n_points += len(points)
        return np.array([function(x) for x in points]), np.array([gradient(x) for x in points])

    negative.n_calls = negative.n_points = 0
    return negative


def test_narrow_valleys_are_followed_to_their_ends():
    negative = of_points(rosen, rosen_der)
    starts = RNG.uniform(-2, 2, size=(24, 2))
    ends = minimise_together(negative, starts, most_steps=200)
    assert ends.finished.all()
    np.testing.assert_allclose(ends.points, 1.0, atol=1e-2)
    alone = sum(minimize(rosen, x, jac=rosen_der, method="L-BFGS-B").nfev for x in starts)
    assert negative.n_points < 1.2 * alone
    assert negative.n_calls < alone / 8


def test_each_start_ends_at_its_own_minimum():
    centres = np.array([[-4.0, 0.0, 1.0], [4.0, 1.0, 0.0], [0.0, 6.0, -5.0]])

    def nearest(x):
        return int(np.square(x - centres).sum(axis=1).argmin())

    negative = of_points(
        lambda x: np.square(x - centres[nearest(x)]).sum() / 2 + nearest(x),
        lambda x: x - centres[nearest(x)],
    )
    starts = np.concatenate([centres + shift for shift in (-0.7, 0.4, 0.9)])
    ends = minimise_together(negative, starts, most_steps=50)
    np.testing.assert_allclose(ends.points, np.tile(centres, (3, 1)), atol=1e-4)
    np.testing.assert_allclose(ends.values, np.tile(np.arange(3), 3), atol=1e-6)


def test_what_is_not_finite_is_not_entered():
    negative = of_points(
        lambda x: 100 * (x[0] - np.log(x[0])) if x[0] > 0 else np.nan,
        lambda x: 100 - 100 / x if x[0] > 0 else np.full(1, np.nan),
    )
    ends = minimise_together(negative, np.array([[50.0], [-1.0], [1e-3]]), most_steps=100)
    np.testing.assert_allclose(ends.points[[0, 2], 0], 1.0, atol=1e-3)
    assert np.isinf(ends.values[1])


def test_a_climb_that_meets_another_has_its_end_for_no_evaluations():
    negative = of_points(rosen, rosen_der)
    start = np.array([[-1.2, 1.0]])
    one = minimise_together(negative, start, most_steps=200)
    alone, negative.n_points = negative.n_points, 0
    ends = minimise_together(negative, np.repeat(start, 8, axis=0), most_steps=200)
    assert negative.n_points <= alone + 2 * 7
    np.testing.assert_array_equal(ends.points, np.repeat(one.points, 8, axis=0))


def test_known_ends_and_the_end_of_time_stop_climbs():
    negative = of_points(lambda x: float(x @ x), lambda x: 2 * x)
    starts = np.array([[1.0, 2.0], [3.0, 30.0]])
    ends = minimise_together(
        negative, starts, most_steps=50, are_known=lambda values, _: values < 500
    )
    assert ends.finished.all()
    assert 0 < ends.values.max() < 500
    over = minimise_together(negative, starts, most_steps=50, is_over=lambda: True)
    assert not over.finished.any()
    with refused(OutOfTimeError, "2 of 2 searches"), until(0.0):
        minimise_together(negative, starts, most_steps=50)


def test_each_start_may_have_a_function_of_its_own():
    """None of them joins another, although all begin where they meet."""
    centres = np.array([[-4.0, 0.0], [4.0, 1.0], [0.0, 6.0]])

    def negative(points, which):
        away = points - centres[which]
        return np.square(away).sum(axis=1) / 2, away

    ends = minimise_together(negative, np.zeros((3, 2)), most_steps=50, joins=False)
    np.testing.assert_allclose(ends.points, centres, atol=1e-6)
