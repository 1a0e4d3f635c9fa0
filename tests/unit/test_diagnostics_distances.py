"""Distances between draws against closed forms, SciPy in one dimension, and brute force."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from pymc_coresets.diagnostics import distances

energy_distance = partial(distances.kernel_distance, kernel=distances.negative_distance)
polynomial_mmd = partial(distances.kernel_distance, kernel=distances.cubic_kernel)


@pytest.fixture
def draws():
    rng = np.random.default_rng(1)
    return rng.normal(size=(150, 3)), 0.5 + rng.gamma(2.0, size=(130, 3))


def test_gaussian_kl_is_the_textbook_formula(draws):
    x, y = draws
    cov_x, cov_y = np.cov(x.T), np.cov(y.T)
    shift = x.mean(axis=0) - y.mean(axis=0)
    inverse = np.linalg.inv(cov_y)
    log_dets = np.linalg.slogdet(cov_y)[1] - np.linalg.slogdet(cov_x)[1]
    expected = (np.trace(inverse @ cov_x) + shift @ inverse @ shift - 3 + log_dets) / 2
    (forward, backward), rank = distances.gaussian_kls(x, y)
    assert forward == pytest.approx(expected)
    assert distances.gaussian_kls(y, x)[0] == pytest.approx((backward, forward))
    assert rank == 3


def test_gaussian_kls_are_invariant_to_affine_maps(draws):
    x, y = draws
    map_ = np.random.default_rng(2).normal(size=(3, 3))
    mapped, _ = distances.gaussian_kls(x @ map_ + 5, y @ map_ + 5)
    assert mapped == pytest.approx(distances.gaussian_kls(x, y)[0])


def test_gaussian_kls_of_very_different_spreads_keep_their_digits(draws):
    """The spreads differ by five orders of magnitude, and the variances by ten."""
    x, _ = draws
    x = x - x.mean(axis=0)
    (narrow, wide), _ = distances.gaussian_kls(1e-5 * x, x)
    assert narrow == pytest.approx(3 * np.log(1e5) - 1.5, rel=1e-6)
    assert wide == pytest.approx(1.5e10 - 1.5 - 3 * np.log(1e5), rel=1e-4)


def test_gaussian_kl_of_a_degenerate_set_is_infinite(draws):
    x, _ = draws
    flat = x * [1, 1, 0]
    for pair in [(x, flat), (flat, x)]:
        assert distances.gaussian_kls(*pair)[0] == (np.inf, np.inf)


def test_fewer_draws_than_dimensions_have_no_gaussian_kl(draws):
    x, y = draws
    found, rank = distances.gaussian_kls(x[:3], y)
    assert np.isnan(found).all()
    assert rank == 3


def test_redundant_dimensions_leave_the_gaussian_kls(draws):
    redundant = [np.hstack([z, z @ [[1e3], [2.0], [0.0]], np.ones((len(z), 1))]) for z in draws]
    found, rank = distances.gaussian_kls(*redundant)
    assert found == pytest.approx(distances.gaussian_kls(*draws)[0])
    assert rank == 3


def test_energy_distance_in_one_dimension_is_scipys(draws):
    x, y = draws[0][:, :1], draws[1][:, :1]
    assert energy_distance(x, y) == pytest.approx(stats.energy_distance(x[:, 0], y[:, 0]))


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_energy_distance_is_that_of_brute_force(draws, block, monkeypatch):
    monkeypatch.setattr(distances, "_BLOCK", block)
    x, y = draws

    def mean_distance(a, b):
        return np.linalg.norm(a[:, None] - b[None], axis=-1).mean()

    expected = 2 * mean_distance(x, y) - mean_distance(x, x) - mean_distance(y, y)
    assert energy_distance(x, y) == pytest.approx(np.sqrt(expected))


def test_mmd_is_the_distance_of_explicit_features(draws):
    x, y = (np.hstack([np.ones((len(z), 1)), z / np.sqrt(3)]) for z in draws)
    cubes = [np.einsum("ni,nj,nk->ijk", z, z, z) / len(z) for z in (x, y)]
    expected = np.linalg.norm(cubes[0] - cubes[1])
    assert polynomial_mmd(*draws) == pytest.approx(expected)


def test_distances_are_symmetric_and_vanish_for_equal_draws(draws):
    x, y = draws
    for distance in (energy_distance, polynomial_mmd):
        assert distance(x, x) == pytest.approx(0, abs=1e-6)
        assert distance(x, y) == pytest.approx(distance(y, x))


def test_thinning_keeps_first_and_last_draw_and_the_wanted_number():
    x = np.arange(1000.0)[:, None]
    np.testing.assert_array_equal(distances.thinned(x, 11)[:, 0], np.linspace(0, 999, 11).round())
    np.testing.assert_array_equal(distances.thinned(x, 2000), x)


@pytest.mark.parametrize("kernel", [distances.negative_distance, distances.cubic_kernel])
def test_kernel_noise_is_the_distance_of_independent_runs(kernel):
    # The squared distance of 200 pairs of runs has a relative standard error of about 0.1.
    rng = np.random.default_rng(1)
    runs = rng.normal(size=(200, 2, 100, 2))
    squared = [distances.kernel_distance(x, y, kernel) ** 2 for x, y in runs]
    expected = distances.kernel_noise(rng.normal(size=(3000, 2)), kernel, 2 / 100) ** 2
    assert np.mean(squared) == pytest.approx(expected, rel=0.3)


def test_wasserstein_noise_is_the_distance_of_independent_runs():
    rng = np.random.default_rng(1)
    runs = rng.gamma(2.0, size=(300, 2, 200))
    found = [stats.wasserstein_distance(x, y) for x, y in runs]
    error = 5 * np.std(found) / np.sqrt(300)
    expected = distances.wasserstein_noise(rng.gamma(2.0, size=20_000), 2 / 200)
    assert np.mean(found) == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_kernel_noise_has_the_unit_of_the_kernel(scale):
    x = np.random.default_rng(1).normal(size=(50, 2))
    one = distances.kernel_noise(x, distances.negative_distance, 0.02)
    other = distances.kernel_noise(scale * x, distances.negative_distance, 0.02)
    assert other == pytest.approx(np.sqrt(scale) * one)
