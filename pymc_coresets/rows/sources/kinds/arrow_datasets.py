"""Paths and Arrow datasets: which files there are, and whether they fit each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pymc_coresets.compat.pyarrow_api import filter_of, unfiltered
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.arrow_columns import arrow_field, named_columns, schema_fields
from pymc_coresets.rows.sources.columns import Field
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.kinds.arrow_files import ParquetFile, ParquetReader, open_scan
from pymc_coresets.rows.sources.kinds.named_files import files_at, is_address, paths_of
from pymc_coresets.rows.sources.layout import Piece
from pymc_coresets.rows.sources.tables import Opened, Table, open_table

_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc",
}  # fmt: skip
_REMEDIES = {
    (".csv", ".json", ".orc"): "pyarrow.dataset.dataset({path!r}, format={format!r})",
    (".npy",): "{{'y': numpy.load({path!r}, mmap_mode='r')}}, by its name in the model,",
    (".npz",): "dict(numpy.load({path!r}))",
    (".h5", ".hdf5"): "a mapping from names to the datasets of h5py.File({path!r})",
}  # fmt: skip


def open_paths(source: str | Path | Sequence[str | Path]) -> Opened:
    """Return the reader of a path, a pattern, a list of paths, or an address with ``://``.

    Raises
    ------
    InvalidOptionError
        If there is no such file, or the files are of a kind that this cannot read.
    """
    if is_address(source):
        with reading_errors(str(source)):
            return open_dataset(ds.dataset(source, format="parquet", partitioning="hive"))
    try:
        paths = paths_of(source)
    except RuntimeError as error:
        raise InvalidOptionError(
            f"{source!r} begins with '~', but there is no such user: {error}"
        ) from error
    root = paths[0] if len(paths) == 1 and Path(paths[0]).is_dir() else None
    files = [file for path in paths for file in files_at(path)]
    if not files:
        raise InvalidOptionError(
            f"There is no file at {', '.join(paths) or '[]'}: give a file, a folder of "
            "Parquet files, a pattern such as 'flights/*.parquet', or a list of files."
        )
    formats = {_FORMATS.get(Path(file).suffix.lower(), "") for file in files}
    if "" in formats or len(formats) > 1:
        other = next((f for f in files if Path(f).suffix.lower() not in _FORMATS), files[-1])
        raise InvalidOptionError(
            f"{other} is not of a kind that open_rows reads from a path (Parquet, Arrow IPC, Zarr, "
            f"NetCDF; one kind at a time). {_remedy(other)}"
        )
    with reading_errors(files[0]):
        dataset = ds.dataset(
            files, format=formats.pop(), partitioning="hive", partition_base_dir=root
        )
    return open_dataset(dataset)


def open_dataset(dataset: Any) -> Opened:  # noqa: ANN401
    """Return the reader of an Arrow dataset, and where its rows lie.

    Raises
    ------
    InvalidOptionError
        If there are no files.
    InvalidDataError
        If the files differ in their columns, or one cannot be read.
    """
    if isinstance(dataset, ds.InMemoryDataset):
        return open_table(Table.of(named_columns(dataset.to_table())), "Arrow dataset")
    chosen = filter_of(dataset)
    fragments = list(unfiltered(dataset).get_fragments())
    if not fragments:
        raise InvalidOptionError("The dataset has no files.")
    if chosen is None and all(isinstance(f, ds.ParquetFileFragment) and f.path for f in fragments):
        return _open_parquet(fragments)
    return open_scan(fragments, dataset.schema, chosen)


def _open_parquet(fragments: Sequence[Any]) -> Opened:
    filesystem = fragments[0].filesystem
    infos = filesystem.get_file_info([fragment.path for fragment in fragments])
    pieces: list[Piece] = []
    fields: dict[str, Field] = {}
    first = ""
    for fragment, info in zip(fragments, infos, strict=True):
        path = fragment.path
        with reading_errors(path):
            keys = ds.get_partition_keys(fragment.partition_expression)
            found = schema_fields(fragment.physical_schema) | {
                name: arrow_field(pa.scalar(value).type) for name, value in keys.items()
            }
            file = ParquetFile(path=path, keys=keys, size=info.size, modified=info.mtime_ns)
            pieces += [
                Piece(f"{path}, row group {group.id}", path, group.num_rows, held=(file, group.id))
                for group in fragment.row_groups
            ]
            n_rows = sum(group.num_rows for group in fragment.row_groups)
        if not n_rows:
            continue  # an empty file may know no types
        if not fields:
            fields, first = found, path
        _require_same_fields(fields, found, first, path)
    reader = ParquetReader(filesystem, fields or found)
    reader.kind, reader.n_bytes = "Parquet", sum(info.size for info in infos)
    return reader, pieces


def _remedy(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix in _FORMATS:
        return "Name the files of one kind."
    for suffixes, remedy in _REMEDIES.items():
        if suffix in suffixes:
            return f"Pass {remedy.format(path=path, format=suffix[1:])} instead."
    return "Pass what another library reads from it: a frame, or a mapping from names to arrays."


def _require_same_fields(
    first: Mapping[str, Field], other: Mapping[str, Field], first_path: str, path: str
) -> None:
    for name, field in first.items():
        if name not in other:
            raise InvalidDataError(
                f"{path} has no column {name!r}, which {first_path} has: write the column to all "
                "files."
            )
        if other[name] != field:
            raise InvalidDataError(
                f"{path} has {name!r} as {other[name]}, and {first_path} as {field}: write the "
                "column with one type to all files."
            )
