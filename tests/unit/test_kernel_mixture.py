"""Kernel densities of weighted draws, as proposals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import LinAlgError
from scipy.stats import multivariate_t

from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.glm.given_scales.kernel_mixture import KernelMixture
from pymc_coresets.sampling.normal import heavy_tailed


def of_a_scale_near_zero(points):
    """Return the log-density of the logarithm of a half-normal scale, and of another number."""
    return points[:, 0] - np.exp(2 * points[:, 0]) / 2 - np.square(points[:, 1:]).sum(axis=1)


@pytest.fixture
def first():
    mode = np.zeros(2)
    return heavy_tailed(mode, np.diag([1.4, 1.4])).split(of_a_scale_near_zero)


@pytest.fixture
def mixture(first):
    points, logq = first.draw(800, rng=np.random.default_rng(1))
    return KernelMixture.of(first, points, of_a_scale_near_zero(points) - logq)


def test_its_density_integrates_to_one(mixture):
    grid = np.linspace(-15, 15, 101)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    total = np.exp(mixture.log_density(points)).sum() * (grid[1] - grid[0]) ** 2
    assert total == pytest.approx(1.0, abs=1e-2)


@pytest.mark.parametrize("n_dims", [1, 2, 3])
def test_its_density_is_that_of_its_kernels_near_and_far_out(n_dims):
    """Also with masses that are hardly numbers: warnings are errors."""
    rng = np.random.default_rng(4)
    first = heavy_tailed(np.full(n_dims, 9.0), np.diag([0.1, 1.0, 4.0][:n_dims]))
    centers, _ = first.draw(300, rng=rng)
    log_weights = rng.normal(size=300) - 740.0 * (np.arange(300) % 7 == 0)
    mixture = KernelMixture.of(first, centers, log_weights)
    far = 10.0 ** np.arange(9)[:, None] * rng.normal(size=(9, n_dims))
    points = np.concatenate([centers[:50], far])
    logs = [np.log(mixture.shares[0]) + first.log_density(points)]
    for root, share in zip(mixture.roots, mixture.shares[1:], strict=True):
        kernel = multivariate_t(np.zeros(n_dims), root @ root.T, df=5)
        kernels = np.exp([kernel.logpdf(point - centers) for point in points])
        logs.append(np.log(share) + np.log(kernels @ mixture.masses))
    assert_allclose(mixture.log_density(points), np.logaddexp.reduce(logs), atol=1e-9)


def test_its_draws_have_that_density(first, mixture):
    points, logq = mixture.draw(10_000, rng=np.random.default_rng(2))
    assert_allclose(logq, mixture.log_density(points))
    middle = mixture.masses @ mixture.centers
    of_first = first.draw(10_000, rng=np.random.default_rng(3))[0].mean(axis=0)
    expected = 0.9 * middle + 0.1 * of_first
    assert_allclose(points.mean(axis=0), expected, atol=0.05)


def test_weights_in_an_exponential_tail_are_reliable(mixture):
    points, logq = mixture.draw(4_000, rng=np.random.default_rng(3))
    smoothed = pareto_smooth((of_a_scale_near_zero(points) - logq)[None])
    assert smoothed.pareto_khat < 0.5
    assert smoothed.ess > 0.8 * len(points)


def test_too_few_draws_with_weights_are_refused(first):
    points, _ = first.draw(100, rng=np.random.default_rng(1))
    log_weights = np.where(np.arange(100) < 2, 0.0, -800.0)
    with pytest.raises(LinAlgError, match="Too few draws"):
        KernelMixture.of(first, points, log_weights)
