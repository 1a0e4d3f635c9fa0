"""Distances between draws against closed forms, SciPy in one dimension, and brute force."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from pymc_coresets.diagnostics import distances
from pymc_coresets.exceptions import InvalidDataError

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
    assert distances.gaussian_kl(x, y) == pytest.approx(expected)


def test_gaussian_kl_is_invariant_to_affine_maps(draws):
    x, y = draws
    map_ = np.random.default_rng(2).normal(size=(3, 3))
    mapped = distances.gaussian_kl(x @ map_ + 5, y @ map_ + 5)
    assert mapped == pytest.approx(distances.gaussian_kl(x, y))


def test_gaussian_kl_of_a_degenerate_set_is_infinite(draws):
    x, _ = draws
    flat = x * [1, 1, 0]
    assert distances.gaussian_kl(x, flat) == distances.gaussian_kl(flat, x) == np.inf


def test_gaussian_kl_refuses_fewer_draws_than_dimensions():
    with pytest.raises(InvalidDataError, match="compare fewer variables"):
        distances.gaussian_kl(np.zeros((3, 3)), np.zeros((9, 3)))


def test_different_dimensions_are_refused(draws):
    with pytest.raises(InvalidDataError, match="n_dims"):
        energy_distance(draws[0], draws[1][:, :2])


def test_independent_coordinates_keep_the_gaussian_kl(draws):
    x, y = draws
    redundant = [np.hstack([z, z @ [[1e3], [2.0], [0.0]], np.ones((len(z), 1))]) for z in draws]
    first, second = distances.independent_coordinates(*redundant)
    assert first.shape == x.shape
    assert distances.gaussian_kl(first, second) == pytest.approx(distances.gaussian_kl(x, y))


def test_energy_distance_in_one_dimension_is_scipys(draws):
    x, y = draws[0][:, 0], draws[1][:, 0]
    assert energy_distance(x, y) == pytest.approx(stats.energy_distance(x, y))


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
    thinned = distances.kernel_distance(x, x[:1], distances.negative_distance, max_draws=11)
    spaced = np.linspace(0, 999, 11).round()
    assert thinned == pytest.approx(stats.energy_distance(spaced, [0.0]))


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
