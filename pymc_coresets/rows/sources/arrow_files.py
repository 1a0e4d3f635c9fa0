"""Files that Arrow reads: Parquet by row groups and blocks, others by Arrow's own scanner."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from pymc_coresets.compat.pyarrow_api import filter_of, unfiltered
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.chunks import required_table
from pymc_coresets.rows.sources.cursors import Cursor, Recent
from pymc_coresets.rows.sources.readers import (
    BLOCK_ROWS,
    Chunk,
    Location,
    Opened,
    Piece,
    Reader,
    cuts_of,
    reading_errors,
)
from pymc_coresets.rows.sources.slices import open_columns
from pymc_coresets.rows.sources.tables import Field, Table, arrow_field

_BUFFER = 2**18  # bytes of each column of a large row group that are read ahead
_N_FOOTERS, _N_CURSORS = 64, 8


class _Blocks:
    """Blocks of pieces that can only be read from their start, through cursors of all threads."""

    def __init__(self) -> None:
        self._cursors: Recent[Any, Cursor[Any]] = Recent(_N_CURSORS)

    def of(
        self, piece: Piece, names: Sequence[str], batches: Callable[[int], Iterator[Any]]
    ) -> Any:  # noqa: ANN401
        """Return a piece as an Arrow table; `batches` are those of what is stored, by size."""
        cuts = cuts_of(piece.n_stored or piece.n_rows, BLOCK_ROWS)

        def start() -> Iterator[Any]:
            return _tables_of_sizes(batches(cuts[1]), [b - a for a, b in pairwise(cuts)])

        make = partial(Cursor, start, n_items=len(cuts) - 1)
        return self._cursors.get((piece.held, *names), make).item(piece.part)


# -- Parquet ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ParquetFile:
    """A file as it was when it was opened.

    Parameters
    ----------
    path : str
    keys : mapping from str to object
        Columns that the names of the folders hold.
    size : int
        In bytes.
    modified : int or None
        When the file was last written, in nanoseconds.
    """

    path: str
    keys: Mapping[str, Any]
    size: int
    modified: int | None


class ParquetReader(Reader):
    """Parquet files on a file system; a piece is a row group, and holds its file and number.

    Small row groups are read together, large ones block by block.  (Arrow's scanner would hold a
    whole row group.)

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    fields : mapping from str to Field
        Of the first file.
    """

    noun, location = "file", Location.IN_FILES

    def __init__(self, filesystem: Any, fields: Mapping[str, Field]) -> None:  # noqa: ANN401
        self._filesystem, self.fields, self._blocks = filesystem, fields, _Blocks()
        self._footers: Recent[ParquetFile, Any] = Recent(_N_FOOTERS)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Read some columns of row groups, see `Reader.tables`."""
        for file, pieces in groupby(chunk.pieces, key=lambda piece: piece.held[0]):
            stored = [name for name in names if name not in file.keys]
            with reading_errors(file.path):
                for table in self._read(file, pieces, stored):
                    keys = {name: file.keys[name] for name in names if name in file.keys}
                    repeated = {n: pa.repeat(key, table.num_rows) for n, key in keys.items()}
                    yield {**required_table(table), **repeated}

    def _read(self, file: ParquetFile, pieces: Iterable[Piece], names: list[str]) -> Iterator[Any]:
        for whole, group in groupby(pieces, key=lambda piece: piece.is_whole):
            if whole:
                numbers = [piece.held[1] for piece in group]
                with self._open(file, names) as opened:
                    yield opened.read_row_groups(numbers, columns=names, use_threads=False)
                continue
            for piece in group:
                batches = partial(self._batches, file, piece.held[1], names)
                yield self._blocks.of(piece, names, batches)

    def _batches(self, file: ParquetFile, group: int, names: list[str], size: int) -> Iterator[Any]:
        with self._open(file, names, buffer_size=_BUFFER) as opened:
            yield from opened.iter_batches(
                size, row_groups=[group], columns=names, use_threads=False
            )

    @contextmanager
    def _open(self, file: ParquetFile, names: Sequence[str], buffer_size: int = 0) -> Iterator[Any]:
        """Open a file that is still the one whose footer was read."""
        local = isinstance(self._filesystem, pyarrow.fs.LocalFileSystem)
        with self._filesystem.open_input_file(file.path) as handle:
            info = self._filesystem.get_file_info(file.path)
            if (info.size, info.mtime_ns) != (file.size, file.modified):
                raise InvalidDataError(
                    f"{file.path} was replaced or changed after it had been opened: open the files "
                    "again with open_rows."
                )
            yield pq.ParquetFile(
                handle,
                metadata=self._footers.get(file, lambda: pq.read_metadata(handle)),
                read_dictionary=[name for name in names if self.fields[name].is_text],
                buffer_size=buffer_size,
                pre_buffer=not local and not buffer_size,
                page_checksum_verification=True,
            )


# -- other files, and filtered ones ----------------------------------------------------------------


class ScanReader(Reader):
    """The fragments of a dataset; a piece holds a file, or a row group of one.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the dataset.
    chosen : pyarrow.dataset.Expression, optional
        Which rows to read.
    """

    noun, location = "file", Location.IN_FILES

    def __init__(self, schema: Any, chosen: Any) -> None:  # noqa: ANN401
        self._schema, self._chosen, self._blocks = schema, chosen, _Blocks()
        self.fields = _schema_fields(schema)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Scan blocks of fragments, see `Reader.tables`."""
        for piece in chunk.pieces:
            with _reading(piece.held, piece.file, self.fields):
                batches = partial(self._batches, piece.held, list(names))
                block = self._blocks.of(piece, names, batches)
            if block is not None:  # rows that are gone are noticed by their number
                yield required_table(block)

    def _batches(self, fragment: Any, names: list[str], size: int) -> Iterator[Any]:  # noqa: ANN401
        batches: Iterator[Any] = fragment.to_batches(
            schema=self._schema,
            columns=names,
            filter=self._chosen,
            batch_size=size,
            use_threads=False,
        )
        return batches


def open_scan(fragments: Sequence[Any], schema: Any, chosen: Any = None) -> Opened:  # noqa: ANN401
    """Return a reader of fragments, and where its rows lie.

    Parameters
    ----------
    fragments : sequence of pyarrow.dataset.Fragment
        Files; those of Parquet files are divided into row groups.
    schema, chosen
        As of `ScanReader`.  The rows are counted now, which reads the columns of `chosen`.
    """
    reader, pieces = ScanReader(schema, chosen), []
    for fragment in fragments:
        path = getattr(fragment, "path", "") or "a table in memory"
        parquet = isinstance(fragment, ds.ParquetFileFragment)
        with _reading(fragment, path, reader.fields):
            for part in fragment.split_by_row_group() if parquet else [fragment]:
                group = f", row group {part.row_groups[0].id}" if parquet else ""
                where = f"{path}{group}" if chosen is None else f"{path}{group}, filtered"
                pieces.append(Piece(where, path, part.count_rows(filter=chosen), held=part))
    reader.kind = "Arrow dataset" if chosen is None else "filtered Arrow dataset"
    return reader, pieces


@contextmanager
def _reading(fragment: Any, path: str, fields: Mapping[str, Field]) -> Iterator[None]:  # noqa: ANN401
    """Name the column where Arrow finds no numbers: it casts the columns of each file."""
    try:
        with reading_errors(path):
            yield
    except InvalidDataError as error:
        with reading_errors(path):
            found = _schema_fields(fragment.physical_schema)
        for name in [name for name in fields if name in found]:
            if fields[name].is_text != found[name].is_text:
                raise InvalidDataError(
                    f"{path} has {name!r} as {found[name]}, and the dataset as {fields[name]}: "
                    "write the column with one type to all files."
                ) from error
        raise


def open_files(files: str | Sequence[str], **options: Any) -> Opened:  # noqa: ANN401
    """Return the reader of files, or of an address; see `pyarrow.dataset.dataset` for the options.

    Raises
    ------
    InvalidDataError
        If they cannot be read, or differ in their columns.
    """
    with reading_errors(files if isinstance(files, str) else files[0]):
        dataset = ds.dataset(files, partitioning="hive", **options)
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
        return open_columns(required_table(dataset.to_table()), "Arrow dataset")
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
            found = _schema_fields(fragment.physical_schema) | {
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


def _tables_of_sizes(batches: Iterator[Any], sizes: Sequence[int]) -> Iterator[Any]:
    """Join and divide record batches into tables of the given sizes, copying nothing.

    The last table is shorter where there are not enough rows.

    Examples
    --------
    >>> batches = pa.table({"x": range(5)}).to_batches(max_chunksize=2)
    >>> [table["x"].to_pylist() for table in _tables_of_sizes(iter(batches), [3, 2])]
    [[0, 1, 2], [3, 4]]
    """
    held: list[Any] = []
    for size in sizes:
        while sum(batch.num_rows for batch in held) < size:
            batch = next(batches, None)
            if batch is None:
                break
            held.append(batch)
        if not held:
            return
        table = pa.Table.from_batches(held)
        yield table.slice(0, size)
        held = table.slice(size).to_batches()


def _schema_fields(schema: Any) -> dict[str, Field]:  # noqa: ANN401
    """Say what each column of an Arrow schema holds.

    Raises
    ------
    InvalidDataError
        If two columns have the same name.

    Examples
    --------
    >>> _schema_fields(pa.schema({"x": pa.int8()}))["x"].dtype
    dtype('int8')
    """
    for name in schema.names:
        if len(schema.get_all_field_indices(name)) > 1:
            raise InvalidDataError(f"There are two columns {name!r}: rename one of them.")
    return {field.name: arrow_field(field.type) for field in schema}
