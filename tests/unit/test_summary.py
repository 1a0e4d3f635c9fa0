"""Summaries of weighted rows against the same rows, repeated as often as they weigh."""

import numpy as np
import pytest

from pymc_coresets import InvalidOptionError
from pymc_coresets.after.summary import ClassSums, Columns, ColumnSums, described, named_columns
from pymc_coresets.results.facts import effective_size
from pymc_coresets.rows.values import Rows
from tests.refusals import refused

RNG = np.random.default_rng(3)
EVERY = RNG.normal(size=200)
CHOSEN = np.sort(RNG.choice(200, size=15, replace=False))
WEIGHTS = RNG.integers(1, 40, size=15).astype(float)
ONES = np.ones(15)


def measured(values, labels=None, masses=None):
    masses = np.ones(len(values)) if masses is None else masses
    return {"all": ColumnSums.of(values, masses, labels)} | out_of_reach(values[CHOSEN], labels)


def out_of_reach(values, labels=None):
    columns = {"chosen": ColumnSums.of(values, ONES, labels)}
    return columns | {"weighted": ColumnSums.of(values, WEIGHTS, labels)}


def of_repeated(values):
    return [values.mean(), values.std(), values.min(), values.max()]


@pytest.mark.parametrize("masses", [None, RNG.integers(1, 5, size=200).astype(float)])
def test_weighted_rows_count_as_often_as_they_weigh(masses):
    table = described(measured(EVERY, masses=masses))
    repeats = np.ones(200, int) if masses is None else masses.astype(int)
    np.testing.assert_allclose(table["all"], of_repeated(np.repeat(EVERY, repeats)))
    np.testing.assert_allclose(table["chosen"], of_repeated(EVERY[CHOSEN]))
    weighted = np.repeat(EVERY[CHOSEN], WEIGHTS.astype(int))
    np.testing.assert_allclose(table["weighted"], of_repeated(weighted))
    assert list(table.index) == ["mean", "sd", "min", "max"]


@pytest.mark.parametrize("far", [0.0, 1e9])
def test_parts_add_up_to_the_whole(far):
    """Far from zero, too, and where a part has no rows."""
    masses = RNG.uniform(size=200)
    parts = [slice(0, 0), slice(0, 70), slice(70, 200), slice(0, 0)]
    columns = [ColumnSums.of(EVERY[part] + far, masses[part]) for part in parts]
    whole = ColumnSums.of(EVERY + far, masses)
    total = columns[0] + columns[1] + columns[2] + columns[3]
    assert total.n_rows == pytest.approx(masses.sum())
    assert total.ends == whole.ends
    mean = np.average(EVERY, weights=masses)
    assert total.mean - far == pytest.approx(mean, abs=1e-15 * far + 1e-12)
    sd = np.sqrt(np.average((EVERY - mean) ** 2, weights=masses))
    assert total.numbers["sd"] == pytest.approx(sd, rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "size"), [([1.0] * 9, 9), ([5.0], 1), ([1.0, 1e-9], 1), ([3.0, 1.0], 1.6), ([], 0)]
)
def test_equal_weights_count_fully(weights, size):
    assert effective_size(np.array(weights)) == pytest.approx(size)


@pytest.mark.parametrize("start", [0, 1, -3])
def test_levels_are_counted_under_their_labels(start):
    """By their labels, or as the whole numbers that they are."""
    codes = RNG.integers(0, 6, size=200)
    codes[codes == 4] = 0  # a level without rows
    labels = list("abcdef") if start == 0 else range(start, start + 6)
    table = described(measured(codes + start, labels if start == 0 else None))
    chosen = codes[CHOSEN]
    for number, label in enumerate(labels):
        expected = [
            (codes == number).sum(),
            (chosen == number).sum(),
            WEIGHTS[chosen == number].sum(),
        ]
        if number == 4:
            assert f"= {label}" not in table.index
        else:
            assert table.loc[f"= {label}"].tolist() == expected
    covered = np.isin(codes, chosen)
    assert table.loc["levels"].tolist() == [5, *[len(np.unique(chosen))] * 2]
    assert table.loc["in these levels"].tolist() == [covered.sum(), 15, WEIGHTS.sum()]


def test_many_levels_are_not_listed():
    table = described(measured(np.arange(200) % 50, np.arange(50)))
    assert list(table.index) == ["levels", "in these levels"]


@pytest.mark.parametrize(
    ("values", "labels"), [(np.arange(15.0), None), (np.arange(15) % 3, "abc")]
)
def test_what_is_out_of_reach_is_not_known(values, labels):
    table = described(out_of_reach(values, labels))
    assert table["all"].isna().all()
    assert table[["chosen", "weighted"]].notna().all(axis=None)


def test_missing_values_are_left_out():
    x = EVERY[CHOSEN].copy()
    x[3] = np.nan
    table = described(out_of_reach(x))
    assert table.loc["mean", "chosen"] == pytest.approx(np.nanmean(x))
    others = np.delete(np.arange(15), 3)
    expected = np.average(x[others], weights=WEIGHTS[others])
    assert table.loc["mean", "weighted"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "are_classes"),
    [
        (np.array([3, 5]), True),
        (np.array([-3, 1], dtype=np.int8), True),
        (np.array([7, 9], dtype=np.uint8), True),
        (np.array([True, False]), True),
        (np.array([0, 19]), True),
        (np.array([0, 20]), False),
        (np.array([0.0, 1.0]), False),
    ],
)
def test_whole_numbers_of_a_small_range_are_classes(values, are_classes):
    """Also if the range is known only when parts have been added up."""
    one, other = (ColumnSums.of(values[i : i + 1], np.ones(1)) for i in range(2))
    for column in (ColumnSums.of(values, np.ones(2)), one + other):
        assert isinstance(column, ClassSums) == are_classes
        if are_classes:
            assert column.counts.to_dict() == dict.fromkeys(values.astype(int).tolist(), 1.0)


def test_arrays_are_split_and_chosen_by_their_name():
    x = np.arange(24.0).reshape(2, 3, 4)
    columns = Columns(["x", "xy"], {"x": [["a", "b", "c"]]}, {})
    found = columns.of(Rows(np.arange(2), np.ones(2), (x, x[:, 0, 0])))
    names = list(found)
    assert names[5] == "x[b, 1]"
    np.testing.assert_array_equal(found["x[b, 1]"], x[:, 1, 1])
    assert named_columns(names, ["xy", "x[c, 0]"]) == ["xy", "x[c, 0]"]
    assert len(named_columns(names, ["x", "x[a, 0]"])) == 12
    with refused(InvalidOptionError, "column 'z'", "'x[a, 0]'"):
        named_columns(names, ["z"])
