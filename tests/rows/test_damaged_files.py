"""Files that are damaged, missing, replaced or of another kind."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pymc_coresets import InvalidDataError, InvalidOptionError, open_rows
from tests.refusals import refused


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    for i in range(3):
        table = pa.table({"x": rng.normal(size=5000), "g": rng.integers(0, 9, 5000)})
        path = tmp_path / f"part-{i}.parquet"
        pq.write_table(table, path, row_group_size=1000, write_page_checksum=True)
    return tmp_path


def test_a_truncated_file(folder):
    path = folder / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with refused(InvalidDataError, "part-1.parquet", "damaged", topic="rows-and-files"):
        open_rows(folder)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a Parquet file at all" * 9])
def test_a_file_of_another_kind(folder, content):
    (folder / "part-0.parquet").write_bytes(content)
    with refused(InvalidDataError, "part-0.parquet", "damaged", topic="rows-and-files"):
        open_rows(folder)


@pytest.mark.parametrize("place", [0.1, 0.35, 0.6, 0.8])
def test_a_flipped_bit(folder, place):
    path = folder / "part-2.parquet"
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 4
    path.write_bytes(data)
    rows = open_rows(folder)
    with refused(InvalidDataError, "part-2.parquet", "damaged", topic="rows-and-files"):
        rows.check()


def test_a_file_that_is_gone(folder):
    rows = open_rows(folder)
    (folder / "part-1.parquet").unlink()
    with refused(InvalidDataError, "part-1.parquet", "missing", topic="rows-and-files"):
        rows.check()


def test_a_file_that_was_replaced(folder):
    rows = open_rows(folder)
    shutil.copy(folder / "part-0.parquet", folder / "part-1.parquet")
    os.utime(folder / "part-1.parquet", ns=(1, 1))
    with refused(InvalidDataError, "part-1.parquet", "changed", topic="rows-and-files"):
        rows.check()


def test_a_file_that_may_not_be_read(folder, fails):
    rows = open_rows(folder)
    fails(pq.ParquetFile, "__init__", PermissionError(13, "Permission denied"))
    with refused(InvalidDataError, "part-0.parquet", "permissions", topic="rows-and-files"):
        rows.check()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permissions(folder):
    (folder / "part-1.parquet").chmod(0)
    with refused(InvalidDataError, "part-1.parquet", topic="rows-and-files"):
        open_rows(folder)


def test_files_that_differ_in_a_type(folder):
    table = pa.table({"g": pa.array(["a"]), "x": [1.0]})  # another order is fine
    pq.write_table(table, folder / "part-9.parquet")
    facts = ("part-9.parquet", "'g'", "text", "part-0.parquet", "int64")
    with refused(InvalidDataError, facts, topic="rows-and-files"):
        open_rows(folder)


def test_files_that_differ_in_their_columns(folder):
    pq.write_table(pa.table({"x": [1.0]}), folder / "part-9.parquet")
    facts = ("part-9.parquet", "column 'g'", "part-0.parquet")
    with refused(InvalidDataError, facts, topic="rows-and-files"):
        open_rows(folder)


def test_columns_may_come_in_another_order_and_be_more(folder):
    pq.write_table(pa.table({"new": [0], "g": [7], "x": [1.5]}), folder / "part-9.parquet")
    rows = open_rows(folder)
    assert list(rows.columns) == ["x", "g"]
    last = rows.take(np.array([15_000]))
    assert (last["x"][0], last["g"][0]) == (1.5, 7)


def test_empty_files_anywhere(folder):
    nothing = pa.table({"x": pa.array([], pa.null()), "g": pa.array([], pa.int8())})
    for name in ("a", "part-1b", "z"):
        pq.write_table(nothing, folder / f"{name}.parquet")
    assert len(open_rows(folder)) == 15_000


def test_folders_without_rows(tmp_path):
    with refused(InvalidOptionError, "no file"):
        open_rows(tmp_path)
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "a.parquet")
    (tmp_path / "_SUCCESS").touch()
    with refused(InvalidDataError, "no rows", topic="rows-and-files"):
        open_rows(tmp_path)
    with refused(InvalidOptionError, "no file"):
        open_rows(tmp_path / "b/*")
    nothing = ds.FileSystemDataset([], pa.schema({"x": pa.float64()}), ds.ParquetFileFormat())
    with refused(InvalidOptionError, "no files"):
        open_rows(nothing)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "x,y,g\n1,2.5,a\n3,4.5,b\n"),
        ("rows.json", '{"x": 1, "y": 2.5, "g": "a"}\n{"x": 3, "y": 4.5, "g": "b"}\n'),
    ],
)
def test_text_is_read_by_its_path_or_as_a_dataset(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    for source in (path, tmp_path, ds.dataset(path, format=path.suffix[1:])):
        rows = open_rows(source, labels={"g": ["b", "a"]})
        assert rows.columns["x"].dtype == np.int64
        np.testing.assert_array_equal(rows.head(9)["y"], [2.5, 4.5])
        np.testing.assert_array_equal(rows.head(9)["g"], [1, 0])


def test_orc_is_read_by_its_path(tmp_path):
    orc = pytest.importorskip("pyarrow.orc")
    orc.write_table(pa.table({"x": [1.5, 2.5], "g": ["a", "b"]}), tmp_path / "rows.orc")
    rows = open_rows(tmp_path, labels={"g": ["b", "a"]})
    np.testing.assert_array_equal(rows.head(9)["x"], [1.5, 2.5])
    np.testing.assert_array_equal(rows.head(9)["g"], [1, 0])


def test_text_whose_columns_change_is_named(tmp_path):
    for i, value in enumerate(["1.5", "none"]):
        (tmp_path / f"part-{i}.csv").write_text(f"x\n{value}\n")
    facts = ("part-1.csv", "'x'", "text", "float64")
    with refused(InvalidDataError, facts, topic="rows-and-files"):
        list(map((rows := open_rows(tmp_path)).read, rows.chunks))
    (tmp_path / "part-1.csv").write_text("x\n1,2\n")
    with refused(InvalidDataError, "part-1.csv", "columns", topic="rows-and-files"):
        list(map((rows := open_rows(tmp_path)).read, rows.chunks))


def test_folders_of_text_may_hold_a_column_in_their_names(tmp_path):
    for name in ("AA", "UA"):
        folder = tmp_path / f"carrier={name}"
        folder.mkdir()
        (folder / "rows.csv").write_text("x\n1\n2\n")
    rows = open_rows(tmp_path, labels={"carrier": ["UA", "AA"]})
    np.testing.assert_array_equal(rows.head(9)["carrier"], [1, 1, 0, 0])


@pytest.mark.parametrize("name", ["y.npy", "y.npz", "y.h5", "y.sas"])
def test_other_formats_have_a_remedy(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with refused(InvalidOptionError, name, "numpy.load"):
        open_rows(tmp_path / name)


def test_files_of_two_kinds(folder):
    (folder / "part-9.arrow").write_bytes(b"")
    with refused(InvalidOptionError, "part-9.arrow", "Arrow IPC", "Parquet"):
        open_rows(folder)


def test_files_that_are_added_are_not_among_the_rows(folder):
    rows = open_rows(folder)
    shutil.copy(folder / "part-0.parquet", folder / "part-9.parquet")
    assert rows.check().n_rows == rows.n_rows < len(open_rows(folder))


LARGE = """
import resource, sys
import numpy as np
from pymc_coresets import open_rows
rows = open_rows(sys.argv[1], columns={"X": [f"x{j}" for j in range(8)]})
rows.read(rows.chunks[0])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
notes = rows.check()
assert notes.n_rows == 2_000_000, notes.n_rows
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_large_row_group_is_read_in_bounded_memory(tmp_path):
    """2 million rows of 8 columns are 128 MB; a block of 131,072 rows is 8 MB."""
    n, path = 2_000_000, tmp_path / "a.parquet"
    x = np.random.default_rng(1).normal(size=n)
    table = pa.table({f"x{j}": x for j in range(8)})
    pq.write_table(table, path, row_group_size=n, compression="none", use_dictionary=False)
    assert pq.ParquetFile(path).num_row_groups == 1
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 60_000  # kB


def test_too_little_memory_is_not_called_damage(folder, fails):
    rows = open_rows(folder)
    fails(pq.ParquetFile, "__init__", pa.ArrowMemoryError("malloc of size 160000 failed"))
    with refused(InvalidDataError, "part-0.parquet", "memory", topic="rows-and-files"):
        rows.check()
