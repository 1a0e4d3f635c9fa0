"""Summaries of weighted rows against the same rows, repeated as often as they weigh."""

import numpy as np
import pytest

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.results.columns import Column, columns_of, flat_columns, named_columns
from pymc_coresets.results.summary import described, effective_size

RNG = np.random.default_rng(3)
EVERY = RNG.normal(size=200)
CHOSEN = np.sort(RNG.choice(200, size=15, replace=False))
WEIGHTS = RNG.integers(1, 40, size=15).astype(float)
QUANTILES = [0.0, 0.05, 0.37, 0.5, 0.95, 1.0]


MEASURES = {"all": (slice(None), None), "chosen": (CHOSEN, None), "weighted": (CHOSEN, WEIGHTS)}
OUT_OF_REACH = {"chosen": (slice(None), None), "weighted": (slice(None), WEIGHTS)}


def of_repeated(values):
    ordered = np.sort(values)
    # The smallest value up to which at least this share of all lies.
    ranks = [max(int(np.ceil(p * len(ordered) - 1e-9)), 1) - 1 for p in QUANTILES]
    return [values.mean(), values.std(), ordered[0], *ordered[ranks], ordered[-1]]


@pytest.mark.parametrize("masses", [None, RNG.integers(1, 5, size=200).astype(float)])
def test_weighted_rows_count_as_often_as_they_weigh(masses):
    measures = MEASURES | {"all": (slice(None), masses)}
    table = described(Column(EVERY), measures, QUANTILES)
    repeats = np.ones(200, int) if masses is None else masses.astype(int)
    np.testing.assert_allclose(table["all"], of_repeated(np.repeat(EVERY, repeats)))
    np.testing.assert_allclose(table["chosen"], of_repeated(EVERY[CHOSEN]))
    weighted = np.repeat(EVERY[CHOSEN], WEIGHTS.astype(int))
    np.testing.assert_allclose(table["weighted"], of_repeated(weighted))
    assert list(table.index) == [
        "mean",
        "sd",
        "min",
        "0%",
        "5%",
        "37%",
        "50%",
        "95%",
        "100%",
        "max",
    ]


@pytest.mark.parametrize(
    ("weights", "size"), [([1.0] * 9, 9), ([5.0], 1), ([1.0, 1e-9], 1), ([3.0, 1.0], 1.6), ([], 0)]
)
def test_equal_weights_count_fully(weights, size):
    assert effective_size(np.array(weights)) == pytest.approx(size)


@pytest.mark.parametrize("start", [0, 1, -3])
def test_levels_are_counted_under_their_labels(start):
    codes = RNG.integers(0, 6, size=200)
    codes[codes == 4] = 0  # a level without rows
    labels = list("abcdef") if start == 0 else range(start, start + 6)
    table = described(Column.of(codes + start, labels), MEASURES, QUANTILES)
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
    table = described(Column(np.arange(200) % 50, np.arange(50)), MEASURES, QUANTILES)
    assert list(table.index) == ["levels", "in these levels"]


@pytest.mark.parametrize(
    "column", [Column(np.arange(15.0)), Column(np.arange(15) % 3, list("abc"))]
)
def test_what_is_out_of_reach_is_not_known(column):
    table = described(column, OUT_OF_REACH, QUANTILES)
    assert table["all"].isna().all()
    assert table[["chosen", "weighted"]].notna().all(axis=None)


def test_missing_values_are_left_out():
    x = EVERY[CHOSEN].copy()
    x[3] = np.nan
    table = described(Column(x), OUT_OF_REACH, QUANTILES)
    assert table.loc["mean", "chosen"] == pytest.approx(np.nanmean(x))
    others = np.delete(np.arange(15), 3)
    expected = np.average(x[others], weights=WEIGHTS[others])
    assert table.loc["mean", "weighted"] == pytest.approx(expected)


def test_exact_numbers_replace_those_of_a_sample():
    table = described(Column(EVERY), MEASURES, QUANTILES, exact=np.array([-9.0, 9.0]))
    assert table.loc[["min", "max"], "all"].tolist() == [-9.0, 9.0]
    column = Column(np.zeros(200, int), ["a", "b"])
    table = described(column, MEASURES, QUANTILES, exact=np.array([300.0, 5.0]))
    assert table.loc[["levels", "in these levels", "= a", "= b"], "all"].tolist() == [
        2,
        300,
        300,
        5,
    ]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (np.array([3, 5]), range(3, 6)),
        (np.array([-3, 1], dtype=np.int8), range(-3, 2)),
        (np.array([7, 9], dtype=np.uint8), range(7, 10)),
        (np.array([True, False]), range(2)),
        (np.array([0, 20]), None),
        (np.array([0.0, 1.0]), None),
    ],
)
def test_whole_numbers_of_a_small_range_are_classes(values, labels):
    column = columns_of({"y": values})["y"]
    assert column.labels == labels
    if labels is not None:
        assert [labels[i] for i in column.values] == values.tolist()


def test_arrays_are_split_and_chosen_by_their_name():
    x = np.arange(24.0).reshape(2, 3, 4)
    columns = flat_columns({"x": x, "xy": x[:, 0, 0]}, {"x": [["a", "b", "c"]]})
    assert list(columns)[5] == "x[b, 1]"
    np.testing.assert_array_equal(columns["x[b, 1]"], x[:, 1, 1])
    found = columns_of(columns)
    assert list(named_columns(found, ["xy", "x[c, 0]"])) == ["xy", "x[c, 0]"]
    assert len(named_columns(found, ["x", "x[a, 0]"])) == 12
    with pytest.raises(InvalidOptionError, match=r"no column 'z'. Choose among: 'x\[a, 0\]'"):
        named_columns(found, ["z"])
