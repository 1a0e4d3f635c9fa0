"""Histograms of the only variable of units as proposals."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from pymc_coresets.sampling.units.frames import Frames
from pymc_coresets.sampling.units.histograms import Histograms, places_around

MODES = np.array([[-20.0, 0.0], [0.0, 0.0], [30.0, 0.0]])  # of two units, three each


@pytest.fixture(scope="module")
def places() -> np.ndarray:
    return places_around(MODES[None], np.full((1, 3, 2), 0.5))


def log_density(z: np.ndarray) -> np.ndarray:
    """Of (..., n_units): two modes far apart and one that no frame knows, and a normal one."""
    parts = [(0.5, -20.0, 0.5), (0.3, 30.0, 0.5), (0.2, 10.0, 1.0)]
    first = np.logaddexp.reduce([np.log(p) + norm.logpdf(z[..., 0], m, s) for p, m, s in parts])
    return np.stack([first, norm.logpdf(z[..., 1], 0.0, 0.5)], axis=-1)


@pytest.fixture(scope="module")
def histograms(places) -> Histograms:
    return Histograms.of_tables(places, log_density(places)[None])


def test_places_are_around_all_modes_in_ascending_order(places):
    assert (np.diff(places, axis=0) >= 0).all()
    near = np.abs(places[:, None] - MODES).min(axis=0)
    assert near.max() < 0.1
    assert np.diff(places[:, 0]).max() < 0.5


def test_masses_are_those_of_densities(places, histograms):
    steps = np.diff(places, axis=0)
    inner = np.exp(histograms.log_density[1:-1])
    np.testing.assert_allclose((inner * steps).sum(axis=0), 1.0)
    np.testing.assert_allclose(np.diff(histograms.below, axis=0), inner * steps, atol=1e-12)
    assert np.isinf(histograms.log_density[[0, -1]]).all()
    lower = np.interp(5.0, places[:, 0], histograms.below[:, 0])
    assert abs(lower - 0.5) < 0.05


def test_values_are_drawn_from_cells_by_their_mass(places, histograms):
    z = histograms.some_replaced(np.full((40, 500, 2), 1e3), np.random.default_rng(1))
    assert abs(np.mean(z == 1e3) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / z.size)
    for g in range(2):
        own, below = places[:, g], histograms.below[:, g]
        drawn = z[..., g][z[..., g] < 1e3]
        assert kstest(drawn, lambda x, o=own, b=below: np.interp(x, o, b)).pvalue > 1e-4


def test_averages_over_draws_weigh_them_alike(places):
    """Whatever constants their log-densities have; draws without a density do not count."""
    logs = np.stack([log_density(places), log_density(places + 1.0) + 50.0])
    both = np.exp(Histograms.of_tables(places, logs).log_density)
    each = [np.exp(Histograms.of_tables(places, own[None]).log_density) for own in logs]
    np.testing.assert_allclose(both, np.mean(each, axis=0), rtol=1e-9)
    none = np.full_like(logs[:1], -np.inf)
    some = Histograms.of_tables(places, np.concatenate([logs, none]))
    np.testing.assert_allclose(np.exp(some.log_density), both, rtol=1e-9)


def test_without_any_density_values_stay(places):
    found = Histograms.of_tables(places, np.full((2, *places.shape), -np.inf))
    z = np.random.default_rng(2).normal(size=(3, 50, 2))
    np.testing.assert_array_equal(found.some_replaced(z, np.random.default_rng(3)), z)
    mixed = found.mixed(z, np.zeros_like(z))
    np.testing.assert_allclose(mixed, np.log(0.25))


def test_weights_of_proposals_have_a_mean_of_one_and_are_bounded(histograms):
    """Also where a mode is known to the histogram alone: the mass of a density is one."""
    n = 50_000
    frames = Frames(MODES[None, None], np.full((1, 1, 1, 3, 2), 0.5), np.zeros((1, 3, 2)))
    found = frames.proposed(n, np.random.default_rng(4), histograms)
    z, log_q = found.values[0, 0], found.log_density[0] - np.log(3)  # less the height
    weights = np.exp(log_density(z) - log_q)
    error = weights.std(axis=0) / np.sqrt(n)
    assert (np.abs(weights.mean(axis=0) - 1) < 4 * error).all()
    assert weights.max() < 2
