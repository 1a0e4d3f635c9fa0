"""Posteriors that are normal but for some directions, of which the density is tabulated."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals, Table

_BOUNDED = 1  # the coordinate that a few rows bound to one side


_PRECISION = np.array([[2.0, 0.5, 0.3], [0.5, 1.0, 0.2], [0.3, 0.2, 3.0]])


def _one_sided(x):
    """Three correlated normal coordinates, and three rows that keep one of them above 0."""
    return -(x * (x @ _PRECISION)).sum(axis=1) / 2 - 3 * np.logaddexp(0, -200 * x[:, _BOUNDED])


def _slopes(x):
    share = np.exp(-np.logaddexp(0, 200 * x[:, _BOUNDED]))
    return -x @ _PRECISION + 3 * 200 * share[:, None] * np.eye(3)[_BOUNDED]


@pytest.fixture(scope="module")
def found():
    """Around the mode, with the curvature there."""
    mode, curvature = np.zeros(3), _PRECISION
    for _ in range(100):
        share = 1 / (1 + np.exp(200 * mode[_BOUNDED]))
        slope, curvature = -_PRECISION @ mode, _PRECISION.copy()
        slope[_BOUNDED] += 3 * 200 * share
        curvature[_BOUNDED, _BOUNDED] += 3 * 200**2 * share * (1 - share)
        mode = mode + np.linalg.solve(curvature, slope)
    [found] = GriddedMarginals.around(Normal(mode, factor_of(curvature)), _one_sided, _slopes)
    return found


def test_a_table_is_a_normalised_density_of_its_draws():
    """By quadrature, and the distribution function at five standard errors."""
    table = Table(np.array([-1.0, 0.0, 0.5, 3.0]), np.array([-2.0, 0.0, 0.0, -9.0]))

    def density(x):
        return np.exp(table.log_density(np.array([x])))[0]

    assert quad(density, -1, 3, points=[0, 0.5])[0] == pytest.approx(1.0)
    draws = table.draw(20_000, rng=np.random.default_rng(1))
    for limit in (-0.5, 0.2, 0.7):
        below = quad(density, -1, limit, points=[0, 0.5])[0]
        assert (draws < limit).mean() == pytest.approx(below, abs=5 * 0.5 / 20_000**0.5)


def test_importance_weights_are_nearly_equal(found):
    """Laplace's approximation would lose nearly all of its draws."""
    draws, logq = found.draw(4_000, rng=np.random.default_rng(1))
    weights = np.exp(_one_sided(draws) - logq)
    assert weights.sum() ** 2 / np.square(weights).sum() > 0.9 * len(weights)
    assert weights.max() < 5 * weights.mean()


def test_weighted_draws_have_the_mean_of_the_bounded_coordinate(found):
    """By quadrature of its marginal density."""
    draws, logq = found.draw(20_000, rng=np.random.default_rng(2))
    weights = np.exp(_one_sided(draws) - logq)
    variance = np.linalg.inv(_PRECISION)[_BOUNDED, _BOUNDED]

    def density(x):
        return np.exp(-(x**2) / variance / 2 - 3 * np.logaddexp(0, -200 * x))

    mass = quad(density, -0.2, 8, points=[0])[0]
    first = quad(lambda x: x * density(x), -0.2, 8, points=[0])[0]
    mean = weights @ draws[:, _BOUNDED] / weights.sum()
    assert mean == pytest.approx(first / mass, abs=5 * variance**0.5 / len(draws) ** 0.5)


def test_a_tenth_of_the_density_is_a_flatter_one():
    """Of a normal variable alone, whose density to the power 0.8 is a wider normal one."""
    found = GriddedMarginals(np.array([2.0]), np.array([[3.0]]), {})
    z = np.linspace(-6.0, 6.0, 13)
    expected = np.log(0.9 * norm.pdf(z) + 0.1 * norm.pdf(z, scale=0.8**-0.5))
    away = found.log_density(2.0 + 3.0 * z[:, None]) - expected
    np.testing.assert_allclose(away, away[0])


def test_normal_axes_have_no_table(found):
    """So that thousands of dimensions cost some points each."""
    assert len(found.tables) == 1


def test_too_many_points_are_not_evaluated():
    """What it takes to find the axes alone is 150 D points."""
    near = Normal(np.zeros(3), factor_of(np.eye(3)))
    assert not [*GriddedMarginals.around(near, _one_sided, _slopes, most=100)]


def test_rows_bound_sums_of_variables():
    """Each of two sums by rows of its own: axes along variables would mix them."""
    rows = np.array([[3.0, -3.0, 0.0], [0.0, 20.0, 10.0]])

    def log_density(x):
        return -np.square(x).sum(axis=1) / 2 - np.logaddexp(0, -x @ rows.T).sum(axis=1)

    def slopes(x):
        return -x + np.exp(-np.logaddexp(0, x @ rows.T)) @ rows

    mode = np.zeros(3)
    for _ in range(50):
        share = np.exp(-np.logaddexp(0, rows @ mode))
        curvature = np.eye(3) + rows.T @ np.diag(share * (1 - share)) @ rows
        mode = mode + np.linalg.solve(curvature, slopes(mode[None])[0])
    [found] = GriddedMarginals.around(Normal(mode, factor_of(curvature)), log_density, slopes)
    assert len(found.tables) == 2
    draws, logq = found.draw(4_000, rng=np.random.default_rng(1))
    weights = np.exp(log_density(draws) - logq)
    assert weights.sum() ** 2 / np.square(weights).sum() > 0.9 * len(weights)
