"""Files that Arrow reads: Parquet by row groups and blocks, others by Arrow's own scanner."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.arrow_columns import named_columns, schema_fields, tables_of_sizes
from pymc_coresets.rows.sources.columns import Field
from pymc_coresets.rows.sources.cursors import Cursor, Recent
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.layout import BLOCK_ROWS, Chunk, Piece, Segment, cuts_of
from pymc_coresets.rows.sources.tables import Location, Opened, Reader, Table

_BUFFER = 2**18  # bytes of each column of a large row group that are read ahead
_N_FOOTERS, _N_CURSORS = 64, 8


class _Blocks:
    """Blocks of pieces that can only be read from their start, through cursors of all threads."""

    def __init__(self) -> None:
        self._cursors: Recent[Any, Cursor[Any]] = Recent(_N_CURSORS)

    def of(
        self, segment: Segment, names: Sequence[str], batches: Callable[[int], Iterator[Any]]
    ) -> Any:  # noqa: ANN401
        """Return a segment as an Arrow table; `batches` are those of its piece, of a given size."""
        cuts = cuts_of(segment.piece.n_rows, BLOCK_ROWS)

        def start() -> Iterator[Any]:
            return tables_of_sizes(batches(cuts[1]), [b - a for a, b in pairwise(cuts)])

        make = partial(Cursor, start, n_items=len(cuts) - 1)
        return self._cursors.get((segment.piece, *names), make).item(segment.part)


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
        for file, segments in groupby(chunk.segments, key=lambda segment: segment.piece.held[0]):
            stored = [name for name in names if name not in file.keys]
            with reading_errors(file.path):
                for table in self._read(file, list(segments), stored):
                    yield self._with_keys(file, table, names)

    def _read(
        self, file: ParquetFile, segments: Sequence[Segment], names: list[str]
    ) -> Iterator[Any]:
        for whole, group in groupby(segments, key=lambda s: len(s) == s.piece.n_rows):
            if whole:
                numbers = [segment.piece.held[1] for segment in group]
                with self._open(file, names) as opened:
                    yield opened.read_row_groups(numbers, columns=names, use_threads=False)
                continue
            for segment in group:
                batches = partial(self._batches, file, segment.piece.held[1], names)
                yield self._blocks.of(segment, names, batches)

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

    def _with_keys(self, file: ParquetFile, table: Any, names: Sequence[str]) -> Table:  # noqa: ANN401
        """Add the columns that the folders' names hold."""
        for name in [name for name in names if name in file.keys]:
            column = pa.DictionaryArray.from_arrays(
                np.zeros(table.num_rows, np.int32), pa.array([file.keys[name]])
            )
            text = self.fields[name].is_text
            table = table.append_column(name, column if text else column.dictionary_decode())
        return Table.of(named_columns(table))


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
        self.fields = schema_fields(schema)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Scan blocks of fragments, see `Reader.tables`."""
        for segment in chunk.segments:
            piece = segment.piece
            with _reading(piece.held, piece.file, self.fields):
                batches = partial(self._batches, piece.held, list(names))
                block = self._blocks.of(segment, names, batches)
            if block is not None:  # rows that are gone are noticed by their number
                yield Table.of(named_columns(block))

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
            found = schema_fields(fragment.physical_schema)
        for name in [name for name in fields if name in found]:
            if fields[name].is_text != found[name].is_text:
                raise InvalidDataError(
                    f"{path} has {name!r} as {found[name]}, and the dataset as {fields[name]}: "
                    "write the column with one type to all files."
                ) from error
        raise
