"""Files that Arrow reads: Parquet by row groups and blocks, others by Arrow's own scanner."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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
from pymc_coresets.rows.sources.columns import Field, arrow_field, required_table
from pymc_coresets.rows.sources.finders import Cursor, Recent, open_columns
from pymc_coresets.rows.sources.readers import (
    BLOCK_ROWS,
    Chunk,
    Opened,
    Piece,
    Reader,
    cuts_of,
    reading_errors,
)

_BUFFER = 2**18  # bytes of each column of a large row group that are read ahead
_N_FOOTERS, _N_CURSORS = 64, 8


def _place(piece: Piece) -> tuple[str, bool]:
    return getattr(piece.held, "path", "a table in memory"), piece.is_whole


class _Files(ABC):
    """Finds pieces of files: small ones together, and large ones block by block, in one stream."""

    def __init__(self) -> None:
        self._cursors: Recent[Any, Cursor[Any]] = Recent(_N_CURSORS)

    def __call__(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Any]:
        for (path, whole), group in groupby(chunk.pieces, key=_place):
            pieces = list(group)
            with reading_errors(path):
                if whole:
                    n_rows = sum(piece.n_rows for piece in pieces)
                    held = [piece.held for piece in pieces]
                    yield from _tables_of_sizes(self.batches(held, names, n_rows), [n_rows])
                else:
                    for piece in pieces:
                        block = self._block(piece, names)
                        yield from [] if block is None else [block]  # noticed by the number of rows

    def _block(self, piece: Piece, names: Sequence[str]) -> Any:  # noqa: ANN401
        """Return a part of what can only be read from its start, through cursors of all threads."""
        cuts = cuts_of(piece.n_stored or piece.n_rows, BLOCK_ROWS)

        def start() -> Iterator[Any]:
            batches = self.batches([piece.held], names, cuts[1], buffer=_BUFFER)
            return _tables_of_sizes(batches, [b - a for a, b in pairwise(cuts)])

        make = partial(Cursor, start, n_items=len(cuts) - 1)
        return self._cursors.get((piece.held, *names), make).item(piece.origin // cuts[1])

    @abstractmethod
    def batches(
        self, held: Sequence[Any], names: Sequence[str], size: int, *, buffer: int = 0
    ) -> Iterator[Any]:
        """Yield record batches of at most `size` rows of some pieces of one file.

        With a buffer of so many bytes for each column, only these are read ahead.
        """


# -- Parquet ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowGroup:
    """A part of a Parquet file as it was when it was opened.

    Parameters
    ----------
    path : str
    number : int
        Of the row group in the file.
    keys : mapping from str to object
        Columns that the names of the folders hold.
    size : int
        In bytes.
    modified : int or None
        When the file was last written, in nanoseconds.
    """

    path: str
    number: int
    keys: Mapping[str, Any]
    size: int
    modified: int | None


class ParquetFiles(_Files):
    """Parquet files on a file system; a piece holds a `RowGroup`.

    Small row groups are read together, large ones block by block.  (Arrow's scanner would hold a
    whole row group.)

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    fields : mapping from str to Field
        Of the first file.
    """

    def __init__(self, filesystem: Any, fields: Mapping[str, Field]) -> None:  # noqa: ANN401
        super().__init__()
        self._filesystem, self._fields = filesystem, fields
        self._local = isinstance(filesystem, pyarrow.fs.LocalFileSystem)
        self._footers: Recent[str, Any] = Recent(_N_FOOTERS)

    def batches(
        self, held: Sequence[Any], names: Sequence[str], size: int, *, buffer: int = 0
    ) -> Iterator[Any]:
        """Read row groups of a file, if it is still the one whose footer was read."""
        file, groups = held[0], [group.number for group in held]
        stored = [name for name in names if name not in file.keys]
        keys = {name: file.keys[name] for name in names if name in file.keys}
        with self._filesystem.open_input_file(file.path) as handle:
            info = self._filesystem.get_file_info(file.path)
            if (info.size, info.mtime_ns) != (file.size, file.modified):
                raise InvalidDataError(
                    f"{file.path} was replaced or changed after it had been opened: open the files "
                    "again with open_rows."
                )
            opened = pq.ParquetFile(
                handle,
                metadata=self._footers.get(file.path, lambda: pq.read_metadata(handle)),
                read_dictionary=[name for name in stored if self._fields[name].is_text],
                buffer_size=buffer,
                pre_buffer=not self._local and not buffer,
                page_checksum_verification=True,
            )
            options = {"row_groups": groups, "columns": stored, "use_threads": False}
            for batch in opened.iter_batches(size, **options):
                repeated = [pa.repeat(key, batch.num_rows) for key in keys.values()]
                both = [*batch.schema.names, *keys]
                yield pa.RecordBatch.from_arrays([*batch.columns, *repeated], names=both)


# -- other files, and filtered ones ----------------------------------------------------------------


class ScannedFiles(_Files):
    """The fragments of a dataset; a piece holds a file, or a row group of one.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the dataset.
    chosen : pyarrow.dataset.Expression, optional
        Which rows to read.
    """

    def __init__(self, schema: Any, chosen: Any) -> None:  # noqa: ANN401
        super().__init__()
        self._schema, self._chosen = schema, chosen

    def batches(
        self, held: Sequence[Any], names: Sequence[str], size: int, *, buffer: int = 0
    ) -> Iterator[Any]:
        """Scan fragments of a file; the scanner has its own buffers."""
        del buffer
        for fragment in held:
            yield from fragment.to_batches(
                schema=self._schema,
                columns=list(names),
                filter=self._chosen,
                batch_size=size,
                use_threads=False,
            )


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
    kind = "Arrow dataset" if chosen is None else "filtered Arrow dataset"
    fields = _fields(dataset.schema)
    find = ScannedFiles(dataset.schema, chosen)
    reader = Reader(find=find, fields=fields, kind=kind, in_files=True)
    return reader, [p for f in fragments for p in _scanned(f, chosen, fields)]


def _scanned(fragment: Any, chosen: Any, fields: Mapping[str, Field]) -> list[Piece]:  # noqa: ANN401
    """Count the rows of a fragment, which reads the columns of `chosen`."""
    path = getattr(fragment, "path", "") or "a table in memory"
    parquet = isinstance(fragment, ds.ParquetFileFragment)
    end = "" if chosen is None else ", filtered"
    pieces = []
    with reading_errors(path):
        keys = ds.get_partition_keys(fragment.partition_expression)
        found = {n: f for n, f in _fields(fragment.physical_schema).items() if n not in keys}
        for name in fields.keys() & found.keys():  # Arrow casts numbers to those of the dataset
            if found[name].is_text != fields[name].is_text:
                _require_equal(path, name, found[name], "the dataset", fields[name])
        for part in fragment.split_by_row_group() if parquet else [fragment]:
            group = f", row group {part.row_groups[0].id}" if parquet else ""
            n_rows = part.count_rows(filter=chosen)
            pieces.append(Piece(f"{path}{group}{end}", n_rows, held=part))
    return pieces


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
            of_keys = {name: arrow_field(pa.scalar(value).type) for name, value in keys.items()}
            found = _fields(fragment.physical_schema) | of_keys
            n_rows = {group.id: group.num_rows for group in fragment.row_groups}
        for number, n in n_rows.items():
            held = RowGroup(path, number, keys, info.size, info.mtime_ns)
            pieces.append(Piece(f"{path}, row group {number}", n, held=held))
        if not sum(n_rows.values()):
            continue  # an empty file may know no types
        if not fields:
            fields, first = found, path
        for name, field in fields.items():
            _require_equal(path, name, found.get(name), first, field)
    fields = fields or found
    reader = Reader(
        find=ParquetFiles(filesystem, fields),
        fields=fields,
        kind="Parquet",
        in_files=True,
    )
    return reader, pieces


def _require_equal(path: str, name: str, found: Field | None, first: str, field: Field) -> None:
    if found is None:
        raise InvalidDataError(
            f"{path} has no column {name!r}, which {first} has: write the column to all files."
        )
    if found != field:
        raise InvalidDataError(
            f"{path} has {name!r} as {found}, and {first} as {field}: write the column with one "
            "type to all files."
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


def _fields(schema: Any) -> dict[str, Field]:  # noqa: ANN401
    """Say what each column of an Arrow schema holds.

    Examples
    --------
    >>> _fields(pa.schema({"x": pa.int8()}))["x"].dtype
    dtype('int8')
    """
    for name in schema.names:
        if len(schema.get_all_field_indices(name)) > 1:
            raise InvalidDataError(f"There are two columns {name!r}: rename one of them.")
    return {field.name: arrow_field(field.type) for field in schema}
