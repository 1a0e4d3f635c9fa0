"""Searches for the lowest point of functions that are not finite everywhere."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, rosen, rosen_der

from pymc_coresets.sampling.maximisation.one_start import FiniteObjective, minimise_where_finite


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
