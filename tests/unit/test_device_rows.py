"""Rows on the device: few shapes, padded rows that nothing sees, and blocks that stay."""

import numpy as np
import pytest

from pymc_coresets.compat.jax_api import in_double
from pymc_coresets.potentials.backends import jax_evaluator
from pymc_coresets.potentials.backends.jax_evaluator import DeviceRows, n_parts, padded
from pymc_coresets.rows.values import Rows


def rows(n_rows, start=0):
    x = np.arange(start, start + n_rows, dtype=float)
    return Rows(np.arange(start, start + n_rows), np.full(n_rows, 2.0), (x, np.c_[x, x]))


@pytest.mark.parametrize("steps", [1, 8])
def test_padded_sizes_are_few_and_hardly_larger(steps):
    sizes = {n: padded(n, steps) for n in range(1, 5_000)}
    assert all(n <= size for n, size in sizes.items())
    assert all(size <= n * (1 + 1 / steps) for n, size in sizes.items() if n >= 64)
    assert len(set(sizes.values())) <= 1 + steps * 7
    assert padded(2**17, steps) == 2**17


@pytest.mark.parametrize("n_draws", [1, 150, 500, 2_000, 10**6])
def test_a_block_is_divided_into_equal_parts(n_draws):
    for size in {padded(n, 8) for n in range(1, 200_000, 997)}:
        assert size % n_parts(size, n_draws) == 0


def test_a_padded_block_repeats_its_last_row_without_weight():
    with in_double():
        [x, pair], weights = DeviceRows(keep=False).block(rows(3), [0, 1], 5)
    np.testing.assert_array_equal(x, [0, 1, 2, 2, 2])
    np.testing.assert_array_equal(pair[:, 1], [0, 1, 2, 2, 2])
    np.testing.assert_array_equal(weights, [2, 2, 2, 0, 0])


def test_blocks_stay_where_they_fit(monkeypatch):
    monkeypatch.setattr(jax_evaluator, "device_memory", lambda: 2 * 8 * 3 * 10)  # half of it: 30
    kept = DeviceRows(keep=True)
    with in_double():
        first = kept.block(rows(10), [0], 10)
        second = kept.block(rows(10, start=10), [0], 10)
        assert kept.block(rows(10), [0], 10)[0][0] is first[0][0]
        assert kept.block(rows(10, start=10), [0], 10)[0][0] is second[0][0]
        assert kept.block(rows(10, start=10), [0], 10)[1] is not second[1]  # there was no room left
        other = DeviceRows(keep=False)
        assert other.block(rows(10), [0], 10)[1] is not other.block(rows(10), [0], 10)[1]
