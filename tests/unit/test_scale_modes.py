"""Modes of the scales of a hierarchy: the densities around them, and those of all variables."""

import numpy as np
import pytest

from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.scales.laplace_given_scales import LaplaceGivenScales
from pymc_coresets.sampling.scales.scale_modes import MarginalModes

CENTRES, HEIGHTS = np.array([[-20.0, 0.0], [20.0, 0.0]]), np.array([3.0, -1.0])


@pytest.fixture(scope="module")
def modes():
    """Two normal modes that are far apart, of the same widths."""
    parts = [Normal(centre, factor_of(np.diag([1.0, 4.0]))) for centre in CENTRES]
    return MarginalModes(parts, HEIGHTS)


def test_densities_at_modes_have_the_known_heights(modes):
    np.testing.assert_allclose(modes.log_density(CENTRES), HEIGHTS)
    away = CENTRES + 1.0
    np.testing.assert_allclose(modes.log_density(away), HEIGHTS - (1 + 4) / 2)


def test_points_belong_to_the_mode_of_the_higher_density(modes):
    """Between modes of equal widths, as far from the middle as heights over the distance."""
    border = (HEIGHTS[0] - HEIGHTS[1]) / 40
    points = np.array([[border - 0.01, 0.0], [border + 0.01, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(modes.nearest(points), [0, 1, 0])


def test_a_mode_of_scales_gives_that_of_all_variables():
    """Of a normal posterior, whose curvature is known."""
    rng, n, is_scale = np.random.default_rng(1), 5, np.array([True, False, False, True, False])
    root, mean = np.eye(n) + 0.3 * rng.normal(size=(n, n)), rng.normal(size=n)
    precision = root @ root.T

    def density(x):
        return -((x - mean) * ((x - mean) @ precision)).sum(axis=1) / 2, -(x - mean) @ precision

    def prior(x):
        return -np.square(x).sum(axis=1) / 20, -x / 10

    known = LaplaceGivenScales.at(density, prior, is_scale, np.zeros(n))
    marginal = np.linalg.inv(np.linalg.inv(precision)[np.ix_(is_scale, is_scale)])
    found = known.local(Normal(mean[is_scale], factor_of(marginal)))
    np.testing.assert_allclose(found.x, mean, atol=1e-6)
    np.testing.assert_allclose(found.around.factor.matrix, precision, rtol=1e-5, atol=1e-6)
    assert found.height == pytest.approx(0.0, abs=1e-10)
