"""Rows of units: taken and joined as if unit by unit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pymc_coresets.rows.values import Rows, UnitRows

UNITS = st.lists(st.integers(1, 4), min_size=1, max_size=9)


def units_of(sizes: list[int], first: int = 0) -> Rows:
    """Units whose rows hold ten times the unit's position, and their number in it."""
    n, counts = len(sizes), np.array(sizes)
    of_row = np.repeat(np.arange(first, first + n), counts)
    within = np.concatenate([np.arange(size) for size in sizes])
    arrays = (10 * of_row + within, np.stack([of_row, within], axis=1))
    unit_rows = UnitRows(counts, 100 * of_row + within, arrays)
    return Rows(np.arange(first, first + n), np.ones(n), (counts.astype(float),), unit_rows)


def assert_has_units(rows: Rows, sizes: list[int], units: list[int]) -> None:
    expected = [(unit, i) for unit in units for i in range(sizes[unit])]
    unit_rows = rows.unit_rows
    np.testing.assert_array_equal(rows.positions, units)
    np.testing.assert_array_equal(unit_rows.sizes, [sizes[unit] for unit in units])
    np.testing.assert_array_equal(unit_rows.positions, [100 * u + i for u, i in expected])
    np.testing.assert_array_equal(unit_rows.arrays[0], [10 * u + i for u, i in expected])
    np.testing.assert_array_equal(
        unit_rows.arrays[1].reshape(-1, 2), np.array(expected).reshape(-1, 2)
    )
    assert rows.n_unit_rows == len(expected)
    assert rows.n_numbers == len(units) + 3 * len(expected)


@given(UNITS, st.data())
def test_units_are_taken_with_their_rows(sizes, data):
    rows = units_of(sizes)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
    assert_has_units(rows.take(np.array(chosen, dtype=np.int64)), sizes, chosen)
    mask = np.isin(np.arange(len(sizes)), chosen)
    assert_has_units(rows.take(mask), sizes, chosen)
    start, stop = (data.draw(st.integers(0, len(sizes) + 1)) for _ in range(2))
    part = rows.take(slice(start, stop))
    assert_has_units(part, sizes, list(range(len(sizes)))[start:stop])
    # Taking again from what was taken.
    if len(part):
        assert_has_units(part.take(slice(len(part) - 1, None)), sizes, [start + len(part) - 1])


@given(UNITS, st.data())
def test_parts_are_joined_in_order_each_unit_once(sizes, data):
    rows, n = units_of(sizes), len(sizes)
    subsets = data.draw(
        st.lists(st.sets(st.integers(0, n - 1), min_size=1), min_size=2, max_size=4)
    )
    parts = [rows.take(np.array(sorted(some))) for some in subsets]
    assert_has_units(Rows.joined(parts), sizes, sorted(set().union(*subsets)))


@given(UNITS, st.integers(1, 5))
def test_blocks_are_views_that_join_to_the_whole(sizes, size):
    rows = units_of(sizes)
    blocks = list(rows.blocks(size))
    assert all(np.shares_memory(b.unit_rows.arrays[0], rows.unit_rows.arrays[0]) for b in blocks)
    assert_has_units(Rows.joined(blocks), sizes, list(range(len(sizes))))
