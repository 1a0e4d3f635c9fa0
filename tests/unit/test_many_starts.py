"""Ascents that step together end where single ones do."""

import numpy as np
from scipy.optimize import minimize, rosen, rosen_der

from pymc_coresets import OutOfTimeError
from pymc_coresets.deadline import until
from pymc_coresets.sampling.maximisation.many_starts import minimise_together
from tests.refusals import refused

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
