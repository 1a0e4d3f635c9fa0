"""Draws of many variables given others, by Stein's identities: closed forms, jumps and limits."""

import numpy as np
import pytest

from pymc_coresets.diagnostics.stein_of_units import (
    Shifts,
    deviation_of_units,
    deviation_of_values,
    sizes_of_columns,
)

SHAPE, N = (4, 500), 8
NAMES = [f"z[{k}]" for k in range(N)]


def test_shifts_are_undone():
    rng = np.random.default_rng(1)
    shifts, x = Shifts(rng.normal(size=(5, 3))), rng.normal(size=(5, 3))
    there, log_jacobian = shifts.of(x, 0.7)
    back, _ = shifts.of(there, shifts.inverse(0.7))
    np.testing.assert_allclose(back, x)
    assert log_jacobian == 0.0


def uniform(z, **options):
    """Compare draws with uniform variables between 0 and 1, whose derivatives are zero."""

    def log_density(_, x):
        return np.where((x > 0) & (x < 1), 0.0, -np.inf).sum(axis=1)

    return deviation_of_units(z, 0 * z, 0 * z, NAMES, log_density, **options)


def test_a_density_with_jumps_is_not_contradicted_by_its_derivatives():
    z = np.random.default_rng(1).random((*SHAPE, N))
    assert sizes_of_columns(z, 0 * z).min() > 100  # the identity of widths does not hold
    assert not uniform(z).is_noticeable
    assert uniform(0.8 * z).is_noticeable


def normal(z, **options):
    def log_density(_, x):
        return -np.square(x).sum(axis=1) / 2

    return deviation_of_units(z, -z, 0 * z, NAMES, log_density, **options)


def test_what_is_too_small_in_each_column_is_seen_in_all():
    z = np.random.default_rng(1).normal(size=(*SHAPE, N))
    assert not normal(z).is_noticeable
    assert normal(z + 0.08).where == "z"
    some = np.arange(N) < 4
    assert not normal(z + 0.08 * ~some, together=some).is_noticeable
    assert normal(z, n_all=10**6).limit > normal(z).limit


@pytest.mark.parametrize("seed", range(5))
def test_values_that_are_rare_are_not_noticeable(seed):
    rng = np.random.default_rng(seed)
    p = rng.choice([0.5, 1e-2, 1e-4, 1e-7], size=N) * rng.random((*SHAPE, 1))
    z = (rng.random((*SHAPE, N)) < p).astype(int)
    both = np.stack([1 - p, p], axis=2)
    assert not deviation_of_values(z, both, NAMES).is_noticeable
    assert deviation_of_values(1 - z, both, NAMES).is_noticeable
