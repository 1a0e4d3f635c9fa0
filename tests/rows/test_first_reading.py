"""Hashes of arrays, and the notes of chunks joined."""

import numpy as np
import pytest

from pymc_coresets import InvalidDataError, open_rows
from pymc_coresets.rows.first_reading import FirstReading, all_finite, array_hash
from tests.refusals import refused


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?"])
@pytest.mark.parametrize("size", [1, 5, 1021, 5000])
def test_a_hash_changes_with_every_value(dtype, size):
    array = (np.arange(size) % 2).astype(dtype)
    known = array_hash(array)
    assert (array_hash(array.copy()), len(known)) == (known, 8)
    for place in {0, size // 2, size - 1}:
        changed = array.copy()
        changed[place] = 1 - array[place]
        assert array_hash(changed) != known


def test_a_hash_changes_with_the_last_bit_of_a_large_sum():
    array = np.full(100_000, 1e9)
    changed = array.copy()
    changed[7] = np.nextafter(1e9, 2e9)
    assert array_hash(changed) != array_hash(array)


def test_a_hash_changes_with_shape_and_dtype():
    arrays = [
        np.zeros(6),
        np.zeros((6, 1)),
        np.zeros((3, 2)),
        np.zeros(6, "i8"),
        np.zeros(12, "f4"),
    ]
    assert len({array_hash(array) for array in arrays}) == len(arrays)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("place", [0, 1500, 4999])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(dtype, place, value):
    array = np.ones(5000, dtype)
    assert all_finite(array)
    array[place] = value
    assert not all_finite(array)


def test_sums_that_overflow_are_of_finite_numbers():
    assert all_finite(np.full(5000, 1e308))
    assert open_rows({"x": np.full(5000, 1e308)}).check().problems == ()


def test_case_weights_whose_sum_overflows():
    rows = open_rows({"x": np.ones(3), "n": np.full(3, 1e308)}, weight="n")
    with refused(InvalidDataError, "case weights", "inf", topic="rows-and-files"):
        rows.check().require_usable()


def test_chunks_may_be_joined_in_any_order():
    """An infinite value in the first chunk, a group in each."""
    parts = [np.array([3.0, np.inf]), np.array([np.nan]), np.array([2.0, np.nan, np.inf])]
    chunks = [{"x": x, "g": np.arange(len(x)) + 5 * i} for i, x in enumerate(parts)]
    chunks[1:1] = [{"x": np.ones(2**17), "g": np.full(2**17, 4)}]
    rows = open_rows(chunks)
    assert len(rows.chunks) == 3
    notes = [rows.examine(chunk)[-1] for chunk in rows.chunks]
    notes = FirstReading.joined(notes[::-1])
    assert notes.ranges == {"g": (0, 12)}
    assert notes.n_rows == notes.total_weight == len(rows)
    found = [(p.kind, p.first, p.n_rows) for p in notes.problems]
    assert found == [
        ("infinite", "chunk 0, row 1", 2),
        ("NaN", "chunk 2, row 0", 2),
    ]
    assert [notes.problems[0].position, notes.problems[1].position] == [1, 2**17 + 2]


def test_case_weights_may_sum_to_less_than_1():
    rows = open_rows({"x": np.ones(2), "n": np.array([0.25, 0.0])}, weight="n")
    notes = rows.check()
    notes.require_usable()
    assert notes.total_weight == 0.25
