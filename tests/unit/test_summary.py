"""Summaries of weighted rows against the same rows, repeated as often as they weigh."""

import numpy as np
import pytest

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.results.columns import Column, Levels, RowColumns, flat_columns
from pymc_coresets.results.summary import effective_size, summary_table

RNG = np.random.default_rng(3)
EVERY = RNG.normal(size=200)
CHOSEN = np.sort(RNG.choice(200, size=15, replace=False))
WEIGHTS = RNG.integers(1, 40, size=15).astype(float)
QUANTILES = [0.0, 0.05, 0.37, 0.5, 0.95, 1.0]


def table_of(*columns, weights=WEIGHTS, masses=None):
    found = RowColumns(columns, weights, masses)
    return summary_table(
        found,
        columns,
        labels=[f"row {i}" for i in CHOSEN],
        n_observations=200,
        n_distinct=200,
        quantiles=QUANTILES,
    )


def described(values):
    ordered = np.sort(values)
    # The smallest value up to which at least this share of all lies.
    ranks = [max(int(np.ceil(p * len(ordered) - 1e-9)), 1) - 1 for p in QUANTILES]
    return [values.mean(), values.std(), ordered[0], *ordered[ranks], ordered[-1]]


@pytest.mark.parametrize("masses", [None, RNG.integers(1, 5, size=200).astype(float)])
def test_weighted_rows_count_as_often_as_they_weigh(masses):
    table = table_of(Column("x", EVERY[CHOSEN], EVERY), masses=masses).loc["x"]
    repeats = np.ones(200, int) if masses is None else masses.astype(int)
    np.testing.assert_allclose(table["all"], described(np.repeat(EVERY, repeats)))
    np.testing.assert_allclose(table["chosen"], described(EVERY[CHOSEN]))
    weighted = np.repeat(EVERY[CHOSEN], WEIGHTS.astype(int))
    np.testing.assert_allclose(table["weighted"], described(weighted))
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


def test_rows_are_counted_and_the_largest_weights_listed():
    table = table_of()
    assert table.loc[("rows", "number")].tolist() == [200, 15, WEIGHTS.sum()]
    worth = WEIGHTS.sum() ** 2 / (WEIGHTS @ WEIGHTS)
    assert table.loc[("rows", "effective")].tolist() == pytest.approx([200, 15, worth])
    largest = table.loc["largest weights"]
    assert largest["weighted"].tolist() == sorted(WEIGHTS, reverse=True)[:5]
    by_label = {f"row {i}": w for i, w in zip(CHOSEN, WEIGHTS, strict=True)}
    assert largest["weighted"].to_dict() == {label: by_label[label] for label in largest.index}


@pytest.mark.parametrize(
    ("weights", "size"), [([1.0] * 9, 9), ([5.0], 1), ([1.0, 1e-9], 1), ([3.0, 1.0], 1.6), ([], 0)]
)
def test_equal_weights_count_fully(weights, size):
    assert effective_size(np.array(weights)) == pytest.approx(size)


@pytest.mark.parametrize("start", [0, 1, -3])
def test_levels_are_counted_under_their_labels(start):
    codes = RNG.integers(0, 6, size=200)
    codes[codes == 4] = 0  # a level without rows
    levels = Levels(np.array(list("abcdef")), start=start)
    table = table_of(Column("g", codes[CHOSEN] + start, codes + start, levels)).loc["g"]
    chosen = codes[CHOSEN]
    for number, label in enumerate("abcdef"):
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
    codes = np.arange(200) % 50
    table = table_of(Column("g", codes[CHOSEN], codes, Levels(np.arange(50)))).loc["g"]
    assert list(table.index) == ["levels", "in these levels"]


def test_what_is_out_of_reach_is_not_known_and_missing_values_are_left_out():
    x = EVERY[CHOSEN].copy()
    x[3] = np.nan
    table = table_of(Column("x", x, None), Column("g", CHOSEN % 3, None, Levels(np.arange(3))))
    assert table["all"][["x", "g"]].isna().all()
    assert table.loc[("x", "mean"), "chosen"] == pytest.approx(np.nanmean(x))
    others = np.delete(np.arange(15), 3)
    expected = np.average(x[others], weights=WEIGHTS[others])
    assert table.loc[("x", "mean"), "weighted"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (np.array([3, 5]), [3, 4, 5]),
        (np.array([True, False]), [0, 1]),
        (np.array([0, 20]), None),
        (np.array([0.0, 1.0]), None),
    ],
)
def test_whole_numbers_of_a_small_range_are_classes(values, labels):
    levels = Column("y", values, values).with_classes().levels
    assert (None if levels is None else levels.labels.tolist()) == labels


def test_arrays_are_split_and_chosen_by_their_name():
    x = np.arange(24.0).reshape(2, 3, 4)
    columns = tuple(flat_columns("x", x, x, [["a", "b", "c"]]))
    assert columns[5].name == "x[b, 1]"
    np.testing.assert_array_equal(columns[5].chosen, x[:, 1, 1])
    found = RowColumns((*columns, Column("xy", x[:, 0, 0], None)), np.ones(2))
    assert [c.name for c in found.named(["xy", "x[c, 0]"])] == ["xy", "x[c, 0]"]
    assert len(found.named(["x", "x[a, 0]"])) == 12
    with pytest.raises(InvalidOptionError, match=r"no column 'z'. Choose among: 'x\[a, 0\]'"):
        found.named(["z"])
