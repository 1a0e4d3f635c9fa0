"""Rows whose log-density is quadratic in one of their numbers."""

from functools import partial

import numpy as np
from numpy.testing import assert_allclose

from pymc_coresets.glm.predictor.parabolas import Parabolas

_rng = np.random.default_rng(1)
PEAKS, HEIGHTS, SDS = _rng.normal(0, 30, 9), _rng.normal(size=9), np.exp(_rng.normal(size=9))


def density(numbers, *, compiled):
    """Return that of rows which are normal in the second number."""
    return HEIGHTS - np.square((numbers[1] - PEAKS) / SDS) / 2


def test_peaks_heights_and_precisions_are_those_of_the_rows():
    found = Parabolas.of(partial(density, compiled=False), np.zeros((2, 9)), 1)
    assert_allclose(found.peaks, PEAKS, rtol=1e-9)
    assert_allclose(found.heights, HEIGHTS, rtol=1e-9)
    assert_allclose(found.precisions, 1 / SDS**2, rtol=1e-9)
    assert found.are_proper


def test_values_are_those_of_the_density_anywhere():
    found = Parabolas.of(partial(density, compiled=False), np.zeros((2, 9)), 1)
    at = _rng.normal(0, 30, size=(4, 9))
    numbers = np.stack([np.zeros((4, 9)), at])
    assert_allclose(found.at(at), density(numbers, compiled=False), rtol=1e-8)


def test_a_row_without_a_maximum_has_no_parabola():
    def upwards(numbers, *, compiled):
        return -density(numbers, compiled=compiled)

    found = Parabolas.of(partial(upwards, compiled=False), np.zeros((2, 9)), 1)
    assert not found.are_proper
