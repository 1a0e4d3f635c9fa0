"""The polynomial MMD of the benchmarks, against its features and independent runs."""

import numpy as np
import pytest

from benchmarks.glm_judge import mmd_noise, polynomial_mmd, thinned

pytestmark = pytest.mark.slow  # of a benchmark


@pytest.fixture
def draws():
    rng = np.random.default_rng(1)
    return rng.normal(size=(150, 3)), 0.5 + rng.gamma(2.0, size=(130, 3))


def test_mmd_is_the_distance_of_explicit_features(draws):
    x, y = (np.hstack([np.ones((len(z), 1)), z / np.sqrt(3)]) for z in draws)
    cubes = [np.einsum("ni,nj,nk->ijk", z, z, z) / len(z) for z in (x, y)]
    expected = np.linalg.norm(cubes[0] - cubes[1])
    assert polynomial_mmd(*draws) == pytest.approx(expected)
    assert polynomial_mmd(*draws[::-1]) == pytest.approx(expected)
    assert polynomial_mmd(draws[0], draws[0]) == 0


def test_noise_is_the_distance_of_independent_runs():
    # The squared distance of 200 pairs of runs has a relative standard error of about 0.1.
    rng = np.random.default_rng(1)
    squared = [polynomial_mmd(x, y) ** 2 for x, y in rng.normal(size=(200, 2, 100, 2))]
    expected = mmd_noise(rng.normal(size=(3000, 2)), 2 / 100) ** 2
    assert np.mean(squared) == pytest.approx(expected, rel=0.3)


def test_thinning_keeps_first_and_last_draw_and_the_wanted_number():
    x = np.arange(1000.0)[:, None]
    np.testing.assert_array_equal(thinned(x, 11)[:, 0], np.linspace(0, 999, 11).round())
    np.testing.assert_array_equal(thinned(x, 2000), x)
