"""Kernel densities of weighted draws, as proposals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.glm.given_scales.kernel_mixture import KernelMixture
from pymc_coresets.sampling.normal import heavy_tailed


def of_a_scale_near_zero(points):
    """Return the log-density of the logarithm of a half-normal scale, and of another number."""
    return points[:, 0] - np.exp(2 * points[:, 0]) / 2 - np.square(points[:, 1:]).sum(axis=1)


@pytest.fixture
def first():
    return heavy_tailed(np.zeros(2), 1.5 * np.eye(2))


@pytest.fixture
def mixture(first):
    points, logq = first.draw(800, rng=np.random.default_rng(1))
    return KernelMixture.of(first, points, of_a_scale_near_zero(points) - logq)


def test_its_density_integrates_to_one(mixture):
    grid = np.linspace(-30, 30, 401)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    total = np.exp(mixture.log_density(points)).sum() * (grid[1] - grid[0]) ** 2
    assert total == pytest.approx(1.0, abs=5e-3)


def test_its_draws_have_that_density(mixture):
    points, logq = mixture.draw(20_000, rng=np.random.default_rng(2))
    assert_allclose(logq, mixture.log_density(points))
    middle = mixture.masses @ mixture.centers
    expected = 0.9 * middle + 0.1 * mixture.location
    assert_allclose(points.mean(axis=0), expected, atol=0.05)


def test_weights_in_an_exponential_tail_have_a_lighter_one(first, mixture):
    khats = []
    for source in (first, mixture):
        points, logq = source.draw(4_000, rng=np.random.default_rng(3))
        khats.append(pareto_smooth((of_a_scale_near_zero(points) - logq)[None]).pareto_khat)
    assert khats[1] < min(khats[0], 0.5)
