"""The same rows from every kind of source, however they are laid out."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_coresets import InvalidDataError, RowSource, open_rows
from tests.refusals import refused

N = 57
BLOCK_ROWS = 2**17  # of a chunk, at most
CARRIERS = ["UA", "AA", "B6"]  # not in alphabetical order
COLUMNS = {"X": ["wind", "hour"], "hour": "hour", "carrier": "carrier", "late": "late"}
LABELS = {"carrier": CARRIERS}


def frame(n=N):
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "wind": rng.normal(size=n),
            "hour": rng.integers(0, 24, n),
            "carrier": np.array(CARRIERS)[rng.integers(0, 3, n)],
            "late": rng.integers(0, 2, n).astype(bool),
            "n": rng.integers(0, 5, n),
        }
    )


def expected(data):
    return {
        "X": np.column_stack([data["wind"], data["hour"]]),
        "hour": data["hour"].to_numpy(),
        "carrier": np.array([CARRIERS.index(c) for c in data["carrier"]], dtype=np.int64),
        "late": data["late"].to_numpy(),
    }


def assert_equal_arrays(found, wanted):
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].flags.c_contiguous
        assert found[name].flags.writeable


def as_table(data):
    return pa.Table.from_pandas(data)


def in_parquet(data, folder):
    pq.write_table(pa.Table.from_pandas(data[:20]), folder / "a.parquet", row_group_size=7)
    pq.write_table(pa.Table.from_pandas(data[20:20]), folder / "b.parquet")
    text = data[20:].assign(carrier=data["carrier"][20:].astype("category"))
    pq.write_table(pa.Table.from_pandas(text), folder / "c.parquet", row_group_size=30)
    return str(folder)


def in_hive_folders(data, folder):
    folder = folder / "by_carrier"
    ordered = data.assign(place=range(len(data)))
    pq.write_to_dataset(pa.Table.from_pandas(ordered), folder, partition_cols=["carrier"])
    return folder


def in_dask_arrays(data, folder):
    arrays = {name: da.from_array(data[name].to_numpy(), chunks=10) for name in data}
    return arrays | {"carrier": data["carrier"].to_numpy(object)}


def in_zarr_arrays(data, folder):
    group = zarr.open_group(folder / "plain.zarr", mode="w")
    for name in ("wind", "hour", "late", "n"):
        group.create_array(name, data=data[name].to_numpy(), chunks=(8,))
    arrays = {name: group[name] for name in ("wind", "hour", "late", "n")}
    return arrays | {"carrier": data["carrier"].to_numpy(object)}


def in_hdf5(data, folder):
    file = h5py.File(folder / "rows.h5", "w")
    for name in ("wind", "hour", "late", "n"):
        file.create_dataset(name, data=data[name].to_numpy())
    arrays = {name: file[name] for name in ("wind", "hour", "late", "n")}
    return arrays | {"carrier": data["carrier"].to_numpy(object)}


def in_memory_maps(data, folder):
    arrays = {}
    for name in data:
        values = data[name].to_numpy()
        np.save(folder / f"{name}.npy", values.astype("U2") if name == "carrier" else values)
        arrays[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return arrays


def as_xarray(data):
    return xr.Dataset({name: ("flight", data[name].to_numpy(object if name == "carrier" else None))
                       for name in data}).assign(features=("feature", [1.0, 2.0]))  # fmt: skip


def as_netcdf(data, folder):
    path = folder / "rows.nc"
    as_xarray(data.assign(late=data["late"])).to_netcdf(path, engine="h5netcdf")
    return path


def chunks_of_frame(data):
    def make():
        for start in range(0, len(data), 11):
            yield data[start:start]
            yield {name: data[name].to_numpy()[start : start + 11] for name in data}

    return make


class Frame(pd.DataFrame):
    """As those of geopandas."""


class Query:
    """A table of a library that we do not know, which passes it on by Arrow's C interface."""

    def __init__(self, data, folder=None, batch_rows=13):
        self.table, self.n_runs = pa.Table.from_pandas(data, preserve_index=False), 0
        self.columns, self.batch_rows = list(data), batch_rows

    def __arrow_c_stream__(self, requested_schema=None):
        self.n_runs += 1
        batches = self.table.to_batches(max_chunksize=self.batch_rows)
        reader = pa.RecordBatchReader.from_batches(self.table.schema, batches)
        return reader.__arrow_c_stream__(requested_schema)


def in_duckdb(data, folder):
    duckdb = pytest.importorskip("duckdb")
    pq.write_table(pa.Table.from_pandas(data), folder / "rows.parquet")
    return duckdb.sql(f"SELECT wind, hour, carrier, late, n FROM '{folder}/rows.parquet'")


def in_ibis(data, folder):
    return pytest.importorskip("ibis").memtable(data)


SOURCES = {
    "mapping": lambda data, _: {name: data[name].to_numpy() for name in data},
    "mapping of series": lambda data, _: {name: data[name] for name in data},
    "memory maps": in_memory_maps,
    "pandas": lambda data, _: data,
    "pandas, subclass": lambda data, _: Frame(data),
    "pandas categories": lambda data, _: data.assign(carrier=data["carrier"].astype("category")),
    "pandas, objects": lambda data, _: data.astype({"carrier": object}),
    "pandas, own types": lambda data, _: data.convert_dtypes(),
    "pandas, Arrow": lambda data, _: data.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda data, _: pl.DataFrame(data.to_dict("list")),
    "polars categories": lambda data, _: pl.DataFrame(data.to_dict("list")).cast(
        {"carrier": pl.Categorical}
    ),
    "Arrow table": lambda data, _: as_table(data),
    "Parquet": in_parquet,
    "pattern": lambda data, folder: in_parquet(data, folder) + "/*.parquet",
    "paths": lambda data, folder: [f"{in_parquet(data, folder)}/{n}.parquet" for n in "abc"],
    "dataset": lambda data, folder: ds.dataset(in_parquet(data, folder)),
    "filtered dataset": lambda data, folder: ds.dataset(
        in_parquet(pd.concat([data[:30], data[:9].assign(n=99), data[30:]]), folder)
    ).filter(ds.field("n") < 99),
    "Arrow file": lambda data, folder: (
        pyarrow.feather.write_feather(data, folder / "rows.feather") or folder / "rows.feather"
    ),
    "dataset in memory": lambda data, _: ds.dataset(pa.Table.from_pandas(data)),
    "Dask frame": lambda data, _: dd.from_pandas(data, npartitions=5),
    "Dask arrays": in_dask_arrays,
    "Zarr arrays": in_zarr_arrays,
    "HDF5": in_hdf5,
    "xarray": lambda data, _: as_xarray(data),
    "xarray with Dask": lambda data, _: as_xarray(data).chunk(flight=10),
    "NetCDF": as_netcdf,
    "Arrow stream": Query,
    "DuckDB": in_duckdb,
    "Ibis": in_ibis,
    "list of chunks": lambda data, _: [data[:30], data[30:30], data[30:]],
    "function": lambda data, _: chunks_of_frame(data),
}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    with dask.config.set({"dataframe.convert-string": True}):
        yield SOURCES[request.param](frame(), tmp_path)


def opened(source, **options):
    dim = "flight" if isinstance(source, xr.Dataset) or str(source).endswith(".nc") else None
    return open_rows(source, columns=COLUMNS, labels=LABELS, dim=dim, **options)


def test_every_kind_of_source_returns_the_same_rows(source):
    rows = opened(source, weight="n")
    assert isinstance(rows, RowSource)
    assert len(rows) == rows.n_rows == N
    data = frame()
    assert_equal_arrays(rows.take(np.arange(N)), expected(data))
    for chunk in rows.chunks:
        arrays = rows.read(chunk)
        assert_equal_arrays(arrays, {name: arrays[name] for name in rows.columns})
        assert list(rows.read(chunk, ["late"])) == ["late"]
        place = slice(chunk.start, chunk.start + chunk.n_rows)
        np.testing.assert_array_equal(rows.weighted(chunk)[1], data["n"][place].astype(float))
    assert all(rows.columns[name].dtype == a.dtype for name, a in expected(data).items())
    assert rows.columns["X"].shape == (2,)


def test_a_first_reading_is_the_same_for_every_kind_of_source(source):
    rows = opened(source, weight="n")
    notes, data = rows.check(), frame()
    assert notes.problems == ()
    notes.require_usable()
    assert notes.n_rows == N
    assert notes.total_weight == data["n"].sum()
    assert notes.ranges == {
        "hour": (data["hour"].min(), data["hour"].max()), "carrier": (0, 2), "late": (0, 1),
    }  # fmt: skip
    for chunk in rows.chunks:
        notes.verify(chunk.start, rows.read(chunk))


@pytest.mark.parametrize("kind", sorted(SOURCES.keys() - {"HDF5", "function", "DuckDB", "Ibis"}))
def test_sources_can_be_pickled(kind, tmp_path):
    """But open HDF5 files, functions within functions, and connections to a database."""
    rows = opened(SOURCES[kind](frame(), tmp_path))
    rows.read(rows.chunks[0])
    assert_equal_arrays(pickle.loads(pickle.dumps(rows)).head(N), expected(frame()))


def test_folders_may_hold_a_column_in_their_names(tmp_path):
    rows = open_rows(
        in_hive_folders(frame(), tmp_path), columns=COLUMNS | {"place": "place"}, labels=LABELS
    )
    found = rows.take(np.arange(N))
    order = np.argsort(found.pop("place"))
    assert_equal_arrays({n: np.ascontiguousarray(a[order]) for n, a in found.items()},
                        expected(frame()))  # fmt: skip


def test_pickles_of_files_hold_no_data(tmp_path):
    data = frame(20_000)
    data.to_parquet(tmp_path / "a.parquet")
    for rows in (opened(tmp_path / "a.parquet"), opened(in_memory_maps(data, tmp_path))):
        rows.read(rows.chunks[0])
        assert len(pickle.dumps(rows)) < 100_000


BEYOND = np.array([2**63 + 5, 7], dtype=np.uint64)


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        ({"n": np.ma.masked_array([1, 2], mask=[False, False])}, {}, {"n": [1, 2]}),
        ({"n": BEYOND}, {"labels": {"n": [7, 2**63 + 5]}}, {"n": [1, 0]}),
        (pd.get_dummies(pd.DataFrame({"a": ["u", "v"]}), sparse=True), {},
         {"a_u": [True, False], "a_v": [False, True]}),
        ({"b": pa.array([True, False]), "t": pa.array(["u", "v"])}, {"labels": {"t": ["v", "u"]}},
         {"b": [True, False], "t": [1, 0]}),
    ],
    ids=["mask of nothing", "labels beyond 2**63", "sparse frame", "Arrow arrays"],
)  # fmt: skip
def test_columns_of_unusual_kinds(data, options, expected):
    found = open_rows(data, **options)
    assert found.check().problems == ()
    assert {name: list(column) for name, column in found.head(2).items()} == expected


def test_names_that_are_equal_as_text_are_refused():
    with refused(InvalidDataError, "columns '1'", "text", topic="rows-and-files"):
        open_rows(pd.DataFrame({1: [1.0, 2.0], "1": [3.0, 4.0]}))


def test_by_default_each_column_has_its_own_name(tmp_path):
    frame()[["wind", "hour"]].set_axis(range(5, 5 + N)).to_parquet(tmp_path / "a.parquet")
    rows = open_rows(tmp_path / "a.parquet")
    assert list(rows.columns) == ["wind", "hour"]
    weighted = open_rows(frame()[["wind", "n"]], weight="n")
    assert list(weighted.columns) == ["wind"]


def test_head_sample_and_take(source):
    rows, wanted = opened(source), expected(frame())
    assert_equal_arrays(rows.head(3), {name: a[:3] for name, a in wanted.items()})
    assert_equal_arrays(rows.head(1000), wanted)
    positions = np.array([40, 3, 3, 56])
    assert_equal_arrays(rows.take(positions), {name: a[positions] for name, a in wanted.items()})
    some, again = rows.sample(20, random_seed=1), rows.sample(20, random_seed=1)
    assert_equal_arrays(some, again)
    assert len(some["X"]) == 20


@pytest.mark.parametrize("size", [1, 10, 20, 30, 40])
def test_samples_are_uniform_by_row_and_in_order(size):
    rows = open_rows([{"x": np.arange(2)}, {"x": np.arange(2, 40)}])
    counts = np.zeros(40)
    for seed in range(1_000):
        drawn = rows.sample(size, random_seed=seed)["x"]
        assert len(drawn) == size
        assert (np.diff(drawn) > 0).all()
        counts[drawn] += 1
    # Five standard errors of a binomial proportion.
    share = size / 40
    assert np.abs(counts / 1_000 - share).max() <= 5 * np.sqrt(share * (1 - share) / 1_000)


def test_a_table_that_is_streamed_is_read_in_blocks_and_run_once_for_each_reading():
    data = pd.DataFrame({"x": np.arange(3.0 * BLOCK_ROWS)})
    query = Query(data, batch_rows=len(data))
    rows = open_rows(query)
    assert "Query, 393,216 rows in 3 chunks" in repr(rows)
    before = query.n_runs
    found = np.concatenate([rows.read(chunk)["x"] for chunk in rows.chunks])
    assert query.n_runs == before + 1
    np.testing.assert_array_equal(found, data["x"])
    assert max(chunk.n_rows for chunk in rows.chunks) <= BLOCK_ROWS


def test_frames_are_sliced_where_they_lie():
    for source in (Frame(frame()), pl.DataFrame(frame().to_dict("list")), as_table(frame())):
        assert opened(source).locate(0) == "row 0"


def test_places_of_rows(tmp_path):
    rows = opened(in_parquet(frame(), tmp_path))
    assert rows.locate(0) == f"{tmp_path}/a.parquet, row group 0, row 0"
    assert rows.locate(19) == f"{tmp_path}/a.parquet, row group 2, row 5"
    assert rows.locate(20) == f"{tmp_path}/c.parquet, row group 0, row 0"
    assert rows.locate(56) == f"{tmp_path}/c.parquet, row group 1, row 6"
    assert opened(frame()).locate(56) == "row 56"
    assert opened(dd.from_pandas(frame(), npartitions=3)).locate(56) == "partition 2, row 18"
    assert opened(as_xarray(frame()).chunk(flight=10)).locate(56) == "row 56"


def test_what_is_printed(tmp_path):
    shown = repr(opened(in_parquet(frame(), tmp_path), weight="n"))
    assert "Parquet, 57 rows in 1 chunks" in shown
    assert "1 chunks, weighted by n; X float64[2], hour int64, carrier int64, late bool" in shown
    assert "DataFrame, 57 rows" in repr(opened(frame()))


@pytest.mark.parametrize("name", ["a.nc", "old.zarr.bak/a.nc", "a.NC", "a.zarr", "a.nc.bak/a.zarr"])
def test_grids_are_found_in_the_home_folder_and_known_by_their_own_name(
    name, tmp_path, monkeypatch
):
    """A folder on the way says nothing of the file."""
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    data, path = xr.Dataset({"y": ("row", np.arange(5.0))}), tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith(".zarr"):
        data.to_zarr(path, zarr_format=2)
    else:
        data.to_netcdf(path, engine="h5netcdf")
    for place in (path, f"~/{name}", Path("~") / name):
        assert open_rows(place, dim="row").head(5)["y"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("chunks", [None, {}])
def test_zarr_stores_are_read_by_slices(tmp_path, chunks):
    n = 300_000
    values = {"y": ("row", np.arange(n)), "X": (("k", "row"), np.arange(2.0 * n).reshape(2, n))}
    store = xr.Dataset(values).chunk(row=50_000)
    store.to_zarr(tmp_path / "rows.zarr", consolidated=False)
    opened_store = xr.open_zarr(tmp_path / "rows.zarr", chunks=chunks, consolidated=False)
    rows = open_rows(opened_store, dim="row")
    assert all(chunk.start % 50_000 == 0 for chunk in rows.chunks)
    assert rows.columns["X"].shape == (2,)
    found = rows.take(np.array([7, n - 1]))
    np.testing.assert_array_equal(found["X"], [[7, n + 7], [n - 1, 2 * n - 1]])
    assert len(pickle.dumps(rows)) < 30_000
    broken = tmp_path / "rows.zarr/y/c/1"
    broken.write_bytes(broken.read_bytes()[:50])
    with refused(InvalidDataError, "rows 0 to 99,999", "decompression", topic="rows-and-files"):
        rows.check()


def test_threads_may_read_different_chunks(tmp_path):
    n = 5 * BLOCK_ROWS + 7
    x = np.arange(n)
    table = pa.table({"x": x, "y": np.array(list("abcdefg"))[x % 7]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=n)
    rows = open_rows(tmp_path / "a.parquet", labels={"y": list("abcdefg")})
    assert len(rows.chunks) == 6
    rng = np.random.default_rng(1)
    for chunks in (rows.chunks, rows.chunks[::-1], rng.permutation(len(rows.chunks))):
        wanted = [c if hasattr(c, "start") else rows.chunks[c] for c in chunks]
        with ThreadPoolExecutor(4) as pool:
            for chunk, arrays in zip(wanted, pool.map(rows.read, wanted), strict=True):
                assert arrays["x"][0] == chunk.start
                assert len(arrays["y"]) == chunk.n_rows
                np.testing.assert_array_equal(arrays["x"] % 7, arrays["y"])


SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(sum)


@settings(max_examples=40)
@given(sizes=SIZES, groups=st.integers(1, 6))
def test_ragged_files_hold_the_same_rows(tmp_path_factory, sizes, groups):
    folder, n = tmp_path_factory.mktemp("ragged"), sum(sizes)
    x = np.arange(n) * 0.5
    for i, (start, size) in enumerate(zip(np.cumsum([0, *sizes]), sizes, strict=False)):
        part = pa.table({"x": x[start : start + size], "i": np.arange(start, start + size)})
        pq.write_table(part, folder / f"{i:03}.parquet", row_group_size=groups)
    rows = open_rows(folder)
    assert sum(chunk.n_rows for chunk in rows.chunks) == len(rows) == n
    found = rows.take(np.arange(n))
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["i"], np.arange(n))


@pytest.mark.parametrize("size", [1, 7, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_row_groups_of_any_size(tmp_path, size):
    n = size + 2
    pq.write_table(pa.table({"x": np.arange(n)}), tmp_path / "a.parquet", row_group_size=size)
    rows = open_rows(tmp_path)
    assert max(chunk.n_rows for chunk in rows.chunks) <= BLOCK_ROWS
    found = np.concatenate([rows.read(chunk)["x"] for chunk in rows.chunks])
    np.testing.assert_array_equal(found, np.arange(n))
