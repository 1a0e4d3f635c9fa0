"""Parquet files: small row groups are read together, large ones block by block."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.arrow_columns import named_columns, tables_of_sizes
from pymc_coresets.rows.sources.columns import Field
from pymc_coresets.rows.sources.cursors import Cursor, Recent
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.layout import BLOCK_ROWS, Chunk, Segment, cuts_of
from pymc_coresets.rows.sources.reader import Location, Reader
from pymc_coresets.rows.sources.tables import Table

__all__ = ["ParquetFile", "ParquetReader"]

_BUFFER = 2**18  # bytes of each column of a large row group that are read ahead
_N_FOOTERS, _N_CURSORS = 64, 8


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

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    fields : mapping from str to Field
        Of the first file.
    n_bytes : int
        Size of all files.
    """

    noun, location = "file", Location.IN_FILES

    def __init__(self, filesystem: Any, fields: Mapping[str, Field], n_bytes: int) -> None:  # noqa: ANN401
        self._filesystem, self.fields, self.n_bytes = filesystem, fields, n_bytes
        self._footers: Recent[ParquetFile, Any] = Recent(_N_FOOTERS)
        self._cursors: Recent[Any, Cursor[Any]] = Recent(_N_CURSORS)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Read some columns of row groups, see `Reader.tables`."""
        for file, segments in groupby(chunk.segments, key=lambda segment: segment.piece.held[0]):
            stored = tuple(name for name in names if name not in file.keys)
            with reading_errors(file.path):
                for whole, group in groupby(segments, key=_is_whole):
                    read = self._row_groups if whole else self._blocks
                    for table in read(file, list(group), stored):
                        yield self._with_keys(file, table, names)

    def _row_groups(
        self, file: ParquetFile, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[Any]:
        """Read whole row groups at once."""
        groups = [segment.piece.held[1] for segment in segments]
        with self._open(file, names) as opened:
            yield opened.read_row_groups(groups, columns=list(names), use_threads=False)

    def _blocks(
        self, file: ParquetFile, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[Any]:
        """Return parts of large row groups, through cursors that all threads share."""
        for segment in segments:
            cuts = cuts_of(segment.piece.n_rows, BLOCK_ROWS)
            start = partial(self._stream, file, segment.piece.held[1], cuts, names)
            yield self._cursors.get(
                (segment.piece, names), partial(Cursor, start, n_items=len(cuts) - 1)
            ).item(segment.part)

    def _stream(
        self, file: ParquetFile, group: int, cuts: Sequence[int], names: Sequence[str]
    ) -> Iterator[Any]:
        """Read a large row group as tables of the sizes that `cuts_of` has."""
        with self._open(file, names, buffer_size=_BUFFER) as opened:
            batches = opened.iter_batches(
                cuts[1], row_groups=[group], columns=list(names), use_threads=False
            )
            yield from tables_of_sizes(batches, [b - a for a, b in pairwise(cuts)])

    @contextmanager
    def _open(self, file: ParquetFile, names: Sequence[str], buffer_size: int = 0) -> Iterator[Any]:
        """Open a file that is still the one whose footer was read."""
        text = [name for name in names if self.fields[name].dtype is None]
        local = isinstance(self._filesystem, pyarrow.fs.LocalFileSystem)
        with self._filesystem.open_input_file(file.path) as handle:
            self._require_same_file(file)
            footer = self._footers.get(file, lambda: pq.read_metadata(handle))
            yield pq.ParquetFile(
                handle,
                metadata=footer,
                read_dictionary=text,
                buffer_size=buffer_size,
                pre_buffer=not local and not buffer_size,
                page_checksum_verification=True,
            )

    def _require_same_file(self, file: ParquetFile) -> None:
        info = self._filesystem.get_file_info(file.path)
        if (info.size, info.mtime_ns) != (file.size, file.modified):
            raise InvalidDataError(
                f"{file.path} was replaced or changed after it had been opened: open the files "
                "again with open_rows."
            )

    def _with_keys(self, file: ParquetFile, table: Any, names: Sequence[str]) -> Table:  # noqa: ANN401
        """Add the columns that the folders' names hold."""
        for name in [name for name in names if name in file.keys]:
            column = pa.DictionaryArray.from_arrays(
                np.zeros(table.num_rows, np.int32), pa.array([file.keys[name]])
            )
            text = self.fields[name].dtype is None
            table = table.append_column(name, column if text else column.dictionary_decode())
        return Table.of(named_columns(table))


def _is_whole(segment: Segment) -> bool:
    return len(segment) == segment.piece.n_rows
