"""What cannot be opened, or not be used, is refused with the place and a remedy."""

import subprocess
import sys
from decimal import Decimal

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

from pymc_coresets import InvalidDataError, InvalidOptionError, open_rows
from tests.refusals import refused

X = np.arange(4.0)
TEXT = np.array(["AA", "UA", "AA", "OO"])
DATA = {"x": X, "carrier": TEXT, "year": np.array([2013, 2014, 2013, 2013])}


def generated():
    yield {"x": X}


class Opposite:
    """Yields its chunks once only."""

    def __init__(self):
        self.chunks = iter([{"x": X}])

    def __iter__(self):
        return self.chunks


@pytest.mark.parametrize(
    ("source", "options", "facts"),
    [
        (generated(), {}, ("generator", "only once")),
        (iter([DATA]), {}, ("list_iterator", "only once")),
        (map(dict, [DATA]), {}, ("map", "only once")),
        (Opposite(), {}, ("no chunk", "read again")),
        (len, {}, ("len", "lambda")),
        (lambda: 3, {}, ("read a int", "function")),
        ([3, 4], {}, ("yields a int", "mapping")),
        ([], {}, ("no file", "[]")),
        (3, {}, ("read a int", "paths")),
        (X, {}, ("yields a float64", "mapping")),
        (pd.Series(X), {}, ("yields a float", "mapping")),
        (pl.LazyFrame({"x": X}), {}, ("LazyFrame", "collect()")),
        (xr.DataArray(X), {}, ("DataArray", "{'name': array}")),
        ("nowhere/*.parquet", {}, ("no file", "nowhere/")),
        ("nowhere.zarr", {}, "nowhere.zarr"),
        (DATA, {"dim": "row"}, ("dim='row'", "xarray.Dataset")),
        (DATA, {}, ("'carrier'", "text", "labels={'carrier': ['a', 'b']}")),
        (DATA, {"columns": {}}, ("columns", "name")),
        (DATA, {"columns": ["x"]}, ("columns", "map names")),
        (DATA, {"columns": {3: "x"}}, ("columns", "name")),
        (DATA, {"columns": {"x": []}}, "x=[]"),
        (DATA, {"columns": {"x": 1.5}}, "x=1.5"),
        (DATA, {"columns": {"x": "wind"}}, ("'wind'", "x, carrier, year")),
        (DATA, {"columns": {"x": "x"}, "labels": ["AA"]}, ("labels=", "map names")),
        (DATA, {"columns": {"x": "x"}, "labels": {"y": ["AA"]}}, "array 'y'"),
        (DATA, {"labels": {"carrier": "AA"}}, ("'carrier'", "list", "'AA'")),
        (DATA, {"labels": {"carrier": []}}, ("'carrier'", "[]")),
        (DATA, {"labels": {"carrier": ["AA", None]}}, ("'carrier'", "None")),
        (DATA, {"labels": {"carrier": ["AA", 1]}}, ("'carrier'", "one type", "['AA', 1]")),
        (DATA, {"labels": {"carrier": ["AA", "AA"]}}, ("'carrier'", "once", "['AA', 'AA']")),
        (DATA, {"columns": {"x": "x"}, "labels": {"x": [1, 2]}}, ("'x'", "float64")),
        (DATA, {"columns": {"x": "x"}, "weight": "w"}, "weight='w'"),
        (DATA, {"columns": {"x": "x"}, "weight": np.array("x")}, "weight=array('x'"),
        (DATA, {"columns": {"x": "x"}, "weight": "carrier"}, ("'carrier'", "text")),
        ({"n": np.ones(3)}, {"weight": "n"}, ("no column", "weights")),
        (xr.Dataset({"y": (("a", "b"), np.ones((2, 3)))}), {}, ("dim=None", "one of a, b")),
        (xr.Dataset({"y": ("a", X)}), {"dim": "b"}, ("dim='b'", "one of a")),
        (xr.Dataset({"y": ("a", X)}, {"b": X}), {"dim": "b"}, ("dim='b'", "one of a, b")),
    ],
)  # fmt: skip
def test_what_cannot_be_opened(source, options, facts):
    with refused(InvalidOptionError, facts):
        open_rows(source, **options)


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        ({"x": X, "y": X[:3]}, "{'x': 4, 'y': 3}"),
        ({"x": 3.0}, "{'x': None}"),
        ({"x": da.ones(3), "y": np.ones(4)}, "{'x': 3, 'y': 4}"),
        ({"x": da.ones(3)[da.ones(3) > 0]}, ("{'x': nan}", "compute_chunk_sizes()")),
        ({"x": X[:0]}, "no rows"),
        ([{"x": X[:0]}], "no rows"),
        (
            {"x": np.array(["2013-01-01"], "M8[D]")},
            ("'x'", "datetime64[D]", "days"),
        ),
        ({"x": np.array([1j])}, ("'x'", "complex128", "columns=")),
        (
            pd.DataFrame({"x": pd.date_range("2013", periods=2)}),
            ("'x'", "days"),
        ),
        (pd.DataFrame({"x": pd.period_range("2013", periods=2)}), ("'x'", "period[D]")),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), ("two columns", "'x'")),
        (pl.DataFrame({"x": [[1], [2, 3]]}), ("'x'", "large_list")),
        (
            pl.DataFrame({"x": pd.date_range("2013", periods=2)}),
            ("'x'", "days"),
        ),
        (pa.table({"x": [[1], [2, 3]]}), ("'x'", "list")),
        (
            pa.table({"x": pa.array([3], pa.timestamp("s"))}),
            ("'x'", "days"),
        ),
        (pa.table([[1], [2]], names=["x", "x"]), ("two columns", "'x'")),
        (pa.table({"x": pa.nulls(3)}), ("'x'", "null")),
        ([{"x": X}, {"x": np.arange(4)}], ("chunk 1", "'x'", "int64", "float64")),
        ([{"x": X}, {"y": X}], ("chunk 1", "column 'x'")),
    ],
)
def test_data_that_cannot_be_used(source, facts):
    with refused(InvalidDataError, facts, topic="rows-and-files"):
        list(map((rows := open_rows(source)).read, rows.chunks))


def test_columns_that_cannot_be_stacked():
    with refused(InvalidDataError, "'X'", "columns a, b", topic="rows-and-files"):
        open_rows({"a": X, "b": X[:, None]}, columns={"X": ["a", "b"]})


def test_wrong_numbers_and_names():
    rows = open_rows({"x": X})
    with refused(InvalidOptionError, "array 'y'"):
        rows.read(rows.chunks[0], ["y"])
    for position in (-1, 4):
        with refused(InvalidOptionError, f"no row {position}", "4 rows"):
            rows.take(np.array([position]))
        with refused(InvalidOptionError, "no row"):
            rows.locate(position)
    for n in (0, 1.5, True):
        with refused(InvalidOptionError, "n="):
            rows.head(n)
        with refused(InvalidOptionError, "n="):
            rows.sample(n)
    with refused(InvalidOptionError, "random_seed='a'"):
        rows.sample(2, random_seed="a")


@pytest.fixture
def folder(tmp_path):
    """Three files; 'wind' has 12 values that are NaN in two of them."""
    for i in range(3):
        wind = np.arange(100.0)
        wind[{0: [], 1: [41, 57], 2: range(10)}[i]] = np.nan
        table = {
            "wind": wind,
            "gust": np.where(np.arange(100) == 7, -np.inf, 1.0),
            "hour": pa.array([None if i == 2 and j in {3, 98} else j % 24 for j in range(100)]),
            "late": pa.array([None if i == 1 and j == 0 else True for j in range(100)]),
            "fine": pa.array([None if j == 5 else 1.5 for j in range(100)]),
            "carrier": pa.array(["OO" if i and j == 60 else "AA" for j in range(100)]),
            "tail": pa.array([None if j == 99 else "N1" for j in range(100)]).dictionary_encode(),
            "n": np.where(np.arange(100) == i + 1, -0.5, 2.0),
            "m": np.where(np.arange(100) == i + 1, np.inf, 2.0),
        }
        pq.write_table(pa.table(table), tmp_path / f"part-{i}.parquet", row_group_size=30)
    return tmp_path


@pytest.mark.parametrize(
    ("column", "place", "message", "in_read"),
    [
        ("wind", "part-1.parquet, row group 1, row 11", "NaN; 12 rows", False),
        ("gust", "part-0.parquet, row group 0, row 7", "infinite; 3 rows", False),
        ("fine", "part-0.parquet, row group 0, row 5", "missing value; 3 rows", False),
        ("hour", "part-2.parquet, row group 0, row 3", "missing value; 2 rows", True),
        ("late", "part-1.parquet, row group 0, row 0", "missing value; 1 row", True),
        ("carrier", "part-1.parquet, row group 2, row 0", "unseen label 'OO'; 2 rows", True),
        ("tail", "part-0.parquet, row group 3, row 9", "missing value; 3 rows", True),
    ],
)
def test_values_that_cannot_be_used_are_named_with_their_place(
    folder, column, place, message, in_read
):
    labels = {"carrier": ["AA"], "tail": ["N1"]}
    rows = open_rows(
        folder, columns={"z": column}, labels={"z": labels[column]} if column in labels else None
    )
    with pytest.raises(InvalidDataError) as caught:
        rows.check().require_usable()
    assert str(caught.value).startswith(f"{folder}/{place}, column '{column}': {message}")
    assert "remove such rows or fill in their values" in str(caught.value)
    if in_read:
        with pytest.raises(InvalidDataError) as caught:
            rows.take(np.arange(len(rows)))
        start = f"{folder}/{place}, column '{column}': {message.partition(';')[0]}. The source's"
        assert str(caught.value).startswith(start)
    else:
        assert np.isfinite(rows.take(np.arange(len(rows)))["z"]).sum() < len(rows)


def test_all_columns_with_problems_are_listed(folder):
    rows = open_rows(folder, columns={"X": ["wind", "gust"], "hour": "hour"})
    problems = rows.check().problems
    assert [(p.column, p.kind, p.n_rows) for p in problems] == [
        ("gust", "infinite", 3), ("wind", "NaN", 12), ("hour", "missing value", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("n", "rest"), [(5, ""), (6, "\nand 1 more such entries")])
def test_long_lists_are_cut(n, rest):
    rows = open_rows({f"x{j}": np.array([np.nan]) for j in range(n)})
    with pytest.raises(InvalidDataError) as caught:
        rows.check().require_usable()
    listed = "\n".join(f"row 0, column 'x{j}': NaN; 1 row in all" for j in range(5))
    assert str(caught.value).startswith(f"{listed}{rest}. Before open_rows")


@pytest.mark.parametrize(
    ("weight", "facts"),
    [("n", ("negative weight -0.5", "3 rows")), ("m", ("infinite", "3 rows"))],
)
def test_case_weights_that_cannot_be_used(folder, weight, facts):
    rows = open_rows(folder, columns={"x": "gust"}, weight=weight)
    with refused(InvalidDataError, facts, topic="rows-and-files"):
        rows.check().require_usable()
    with refused(InvalidDataError, "row 1", "column", "check()", topic="rows-and-files"):
        rows.weighted(rows.chunks[0])


def test_case_weights_that_are_all_0():
    with refused(InvalidDataError, "case weights", "0", topic="rows-and-files"):
        open_rows({"x": X, "n": 0 * X}, weight="n").check().require_usable()


@pytest.mark.parametrize(
    "column",
    [
        np.array([2, 0, 1], np.uint8), np.array([True, False, True]), np.array([1.5, 2, 3], ">f8"),
        np.array([1, 2, 3], "f4"), np.array([[1, 2], [3, 4], [5, 6]]),
        np.asfortranarray([[1.0, 2], [3, 4], [5, 6]]),
    ],
)  # fmt: skip
def test_numbers_keep_their_type(column):
    (column_, array) = ((rows := open_rows({"x": column})).columns["x"], rows.head(3)["x"])
    np.testing.assert_array_equal(array, column)
    assert array.dtype == column_.dtype == column.dtype.newbyteorder("=")
    assert column_.shape == column.shape[1:]
    assert array.flags.c_contiguous


@pytest.mark.parametrize(
    ("column", "labels", "codes"),
    [
        (np.array([2014, 2013, 2013]), [2013, 2014], [1, 0, 0]),
        (np.array([7, 5, 6], np.uint8), np.array([5, 7, 6]), [1, 0, 2]),
        (np.array([True, False]), [True, False], [0, 1]),
        (np.array([b"b", b"a"]), [b"a", b"b"], [1, 0]),
        (pd.Series(["b", "a"], dtype="category"), ["b", "a"], [0, 1]),
        (pd.Series([3, 1], dtype="category"), [1, 3], [1, 0]),
        (np.array(["b", "a"], dtype="T"), pd.Index(["a", "b"]), [1, 0]),
    ],
)
def test_labels_are_found_by_value(column, labels, codes):
    rows = open_rows(pd.DataFrame({"g": column}) if isinstance(column, pd.Series) else
                     {"g": column}, labels={"g": labels})  # fmt: skip
    found = rows.head(10)["g"]
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, codes)


def test_dictionaries_that_differ_by_row_group(tmp_path):
    schema = pa.schema({"g": pa.dictionary(pa.int8(), pa.string())})
    with pq.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
        for values in (["b", "a"], ["a", "c"], ["c", "b"]):
            writer.write_table(pa.table({"g": pa.array(values).dictionary_encode()}).cast(schema))
    rows = open_rows(tmp_path, labels={"g": ["a", "b", "c"]})
    np.testing.assert_array_equal(rows.head(9)["g"], [1, 0, 0, 2, 2, 1])


def test_unseen_labels_are_shown():
    rows = open_rows({"g": np.array(list("abcdefgha"))}, labels={"g": ["a"]})
    (problem,) = rows.check().problems
    assert str(problem) == (
        "row 1, column 'g': unseen label 'b', 'c', 'd', 'e', 'f', ...; 7 rows in all"
    )
    wrong_kind = open_rows({"g": np.array([1, 2, 2])}, labels={"g": ["1", "2"]})
    assert wrong_kind.check().problems[0].value == "1, 2"


@pytest.mark.parametrize(
    ("source", "array"),
    [
        (pa.table({"x": [Decimal("1.5"), Decimal("2.25")]}), [1.5, 2.25]),
        (
            pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(np.eye(2)).storage}),
            np.eye(2),
        ),
        (pd.DataFrame({"x": pd.array([1, 2], dtype="UInt8")}), np.array([1, 2], np.uint8)),
        (pl.DataFrame({"x": [Decimal("1.5"), Decimal("2.25")]}), [1.5, 2.25]),
        (np.ma.MaskedArray([1.0, 2.0], [False, True]), [1.0, np.nan]),
    ],
)
def test_other_types_of_numbers(source, array):
    source = {"x": source} if isinstance(source, np.ndarray) else source
    np.testing.assert_array_equal(open_rows(source).head(5)["x"], array)


def test_masked_values_are_missing():
    rows = open_rows({"x": np.ma.MaskedArray([[1, 2], [3, 4]], [[False, False], [False, True]])})
    assert str(rows.check().problems[0]) == "row 1, column 'x': missing value; 1 row in all"


def test_matrices_as_chunks():
    rows = open_rows([np.arange(6.0).reshape(3, 2), np.ones((1, 2))], columns={"X": [1, 0], "y": 1})
    np.testing.assert_array_equal(rows.head(9)["X"], [[1, 0], [3, 2], [5, 4], [1, 1]])
    np.testing.assert_array_equal(rows.head(9)["y"], [1, 3, 5, 1])


def test_integers_are_stacked_with_floats():
    rows = open_rows(DATA, columns={"X": ["x", "year"], "Z": ["year", "year"]})
    assert [rows.columns[name].dtype.kind for name in ("X", "Z")] == ["f", "i"]


def test_a_partition_that_cannot_be_computed():
    frame = dd.from_map(lambda i: pd.DataFrame({"x": [i]}), [0, 1], meta={"x": "i8"})
    rows = open_rows(frame.map_partitions(_fail_for_1, meta={"x": "i8"}))
    with refused(InvalidDataError, "partition 1", "the disk is full", topic="rows-and-files"):
        rows.check()


def _fail_for_1(part, seen=[]):  # noqa: B006 - rows are counted first
    seen.append(len(part))
    if len(seen) > 2 and part["x"].iloc[0] == 1:
        raise OSError("the disk is full")
    return part


def test_chunks_that_differ_when_they_are_read_again():
    sizes = iter([[4, 3], [4, 3], [4, 2]])
    rows = open_rows(lambda: ({"x": np.ones(n)} for n in next(sizes)))
    with refused(InvalidDataError, "chunk 1", "6 rows", "7", topic="rows-and-files"):
        rows.check()
    shorter = iter([[4, 3], [4], [4]])
    rows = open_rows(lambda: ({"x": np.ones(n)} for n in next(shorter)))
    with refused(InvalidDataError, "chunk 1", "4 rows", "7", topic="rows-and-files"):
        rows.check()


def test_values_that_differ_in_a_later_reading_are_noticed():
    x = np.arange(3000.0)
    rows = open_rows({"x": x, "i": np.arange(3000)})
    notes = rows.check()
    for change in ([5, 6], [5, 2999], [2998, 2999]):
        x[change] = x[change[::-1]]
        with refused(InvalidDataError, "rows 0 to 2,999", "'x'", topic="rows-and-files"):
            notes.verify(0, rows.read(rows.chunks[0]))
        x[change] = x[change[::-1]]
        notes.verify(0, rows.read(rows.chunks[0]))


def test_libraries_are_loaded_when_they_are_needed_and_named_where_they_are_missing():
    code = (
        "import sys, pymc_coresets\n"
        "from pymc_coresets import *\n"
        "print([n for n in ('pyarrow.dataset', 'dask', 'polars', 'zarr') if n in sys.modules])\n"
        "sys.modules['pyarrow'] = None\n"
        "try:\n    pymc_coresets.open_rows('flights.parquet')\n"
        "except ValueError as error:\n    print(error)\n"
        "import polars\n"
        "frame = polars.DataFrame({'x': [1.0]})\n"
        "try:\n    pymc_coresets.open_rows(lambda: iter([frame]))\n"
        "except ValueError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, message, of_polars = done.stdout.splitlines()
    assert loaded == "[]"
    assert "needs pyarrow" in message
    assert "polars needs pyarrow" in of_polars
    assert 'pip install "pymc-coresets[parquet]"' in message
