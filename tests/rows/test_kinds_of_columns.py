"""A column that changes its kind from piece to piece is refused, or read by value."""

import re
from decimal import Decimal
from functools import partial

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_coresets import CoresetError, InvalidDataError, InvalidOptionError, open_rows
from tests.refusals import refused

NUMBERS = ["f8", "f4", "i8", "i4", "u1", "?"]
KINDS = [*NUMBERS, "text", "numeric text", "category", "category of numbers", "object", "dates"]


def column(kind, values):
    """Return whole numbers as a column of some kind."""
    numbers = np.array(values)
    match kind:
        case "text":
            return np.array([f"v{i}" for i in values])
        case "numeric text":
            return np.array([f"{i}.5" for i in values])
        case "category":
            return pd.Categorical([f"v{i}" for i in values])
        case "category of numbers":
            return pd.Categorical(numbers / 2)
        case "object":
            return np.array([f"v{i}" if i % 2 else float(i) for i in values], dtype=object)
        case "dates":
            return numbers.astype("M8[D]").astype("M8[ns]")
    return numbers.astype(kind)


def as_polars(frame):
    texts = frame.astype({n: str for n in frame if frame[n].dtype == object})
    return pl.from_arrow(as_arrow(texts))


def as_arrow(frame):
    texts = frame.astype({n: str for n in frame if frame[n].dtype == object})
    return pa.Table.from_pandas(texts, preserve_index=False)


def as_dict(frame):
    return {name: frame[name] for name in frame}


CONTAINERS = {"pandas": lambda frame: frame, "Arrow": as_arrow, "polars": as_polars,
              "mapping": as_dict}  # fmt: skip
PIECES = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.lists(st.integers(0, 9), min_size=1, max_size=4),
        st.sampled_from(sorted(CONTAINERS)),
    ),
    min_size=2,
    max_size=4,
)


def piece(kind, values, container):
    return CONTAINERS[container](pd.DataFrame({"x": column(kind, values)}))


def the_values(pieces):
    """What a column of all pieces must hold, if it is read at all."""
    return [value for kind, values, _ in pieces for value in np.asarray(column(kind, values))]


def read_or_refused(*args, **options):
    """Return a column of all rows, or what is said where it cannot be used."""
    try:
        rows = open_rows(*args, **options)
        rows.check().require_usable()
        return rows.head(100)["x"].tolist(), ""
    except CoresetError as error:
        return None, str(error)


@given(pieces=PIECES)
def test_pieces_of_other_kinds_are_refused_or_equal_by_value(pieces):
    found, refusal = read_or_refused([piece(*each) for each in pieces])
    if refusal:
        assert "'x'" in refusal
        assert len({kind for kind, _, _ in pieces}) > 1 or pieces[0][0] not in NUMBERS
    else:
        assert found == the_values(pieces)


@given(pieces=PIECES)
def test_labels_of_pieces_of_other_kinds_are_refused_or_found_by_value(pieces):
    labels = list(range(10)) if pieces[0][0] in NUMBERS else [f"v{i}" for i in range(10)]
    options = {"labels": {"x": labels}}
    codes, refusal = read_or_refused([piece(*each) for each in pieces], **options)
    assert "'x'" in refusal or [labels[code] for code in codes] == the_values(pieces)


def assert_refused_or_equal(source, kind, where):
    """The first piece holds 1.0 and 2.0, the second `column(kind, [1, 2])`."""
    found, refusal = read_or_refused(source)
    if refusal:
        assert re.match(f"{where} has 'x' as .*float64", refusal)
    else:
        assert found == [1.0, 2.0, *np.asarray(column(kind, [1, 2]), float)]


NOT_NUMBERS = sorted(set(KINDS) - set(NUMBERS))


@pytest.mark.parametrize("kind", NOT_NUMBERS)
@pytest.mark.parametrize("container", sorted(CONTAINERS))
def test_chunks_that_are_no_numbers_are_named(kind, container):
    pieces = [piece("f8", [1, 2], container), piece(kind, [1, 2], container)]
    assert_refused_or_equal(pieces, kind, "chunk 1")


def in_parquet(frame, path):
    pq.write_table(as_arrow(frame), path.with_suffix(".parquet"))


def in_ipc(frame, path):
    pyarrow.feather.write_feather(as_arrow(frame), path.with_suffix(".arrow"))


@pytest.mark.parametrize("kind", NOT_NUMBERS)
@pytest.mark.parametrize("write", [in_parquet, in_ipc])
def test_files_that_hold_no_numbers_are_named(kind, write, tmp_path):
    for i, each in enumerate(["f8", kind]):
        write(pd.DataFrame({"x": column(each, [1, 2])}), tmp_path / f"part-{i}")
    assert_refused_or_equal(tmp_path, kind, r".*/part-1\.\w+")


@pytest.mark.parametrize("kind", NOT_NUMBERS)
def test_partitions_that_hold_no_numbers_are_named(kind):
    frames = [pd.DataFrame({"x": column(each, [1, 2])}) for each in ("f8", kind)]
    lazy = dd.from_map(partial(_frame, frames), [0, 1], meta=frames[0])
    assert_refused_or_equal(lazy, kind, "partition 1")


def _frame(frames, number):
    return frames[number]


def test_text_is_no_number():
    with refused(InvalidOptionError, "'x'", "text"):
        open_rows({"y": np.ones(2), "x": np.array(["a", "b"])}, weight="x")


LISTS = {
    "whole": (pa.int16(), [[1, 2], [3, 4], [5, 6], [7, 8]]),
    "real": (pa.float32(), [[0.5, 2.0], [3.0, 4.0], [-1.0, 6.0], [7.0, 8.0]]),
    "truth values": (pa.bool_(), [[True, False], [False, False], [True, True], [False, True]]),
    "decimals": (pa.decimal128(9, 2), [[Decimal("1.25"), Decimal(n)] for n in (2, 4, 5, 7)]),
}


@pytest.mark.parametrize("third", ["whole", "without a number", "missing"])
@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_numbers_are_read_unless_numbers_are_missing(kind, third):
    """As Arrow shows them, from chunks and slices, too; a number missing inside is no zero."""
    type_, lists = LISTS[kind]
    own = {"whole": lists[2], "without a number": [None, lists[2][1]], "missing": None}[third]
    x = pa.array([*lists[:2], own, lists[3]], pa.list_(type_, 2))
    for column in (x.slice(1), pa.chunked_array([x.slice(1, 1), x.slice(2)])):
        rows = open_rows(pa.table({"x": column}))
        if third == "whole":
            rows.check().require_usable()
            np.testing.assert_array_equal(rows.head(9)["x"], np.array(lists[1:], float))
        else:
            with refused(InvalidDataError, "row 1", "'x'", topic="rows-and-files"):
                rows.check().require_usable()
