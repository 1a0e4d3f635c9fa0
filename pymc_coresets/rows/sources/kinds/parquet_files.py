"""Parquet files: small row groups are read together, large ones block by block."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.cursors import Cursors
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.kinds.arrow_tables import (
    ArrowTable,
    arrow_field,
    schema_fields,
    tables_of_sizes,
)
from pymc_coresets.rows.sources.layout import BLOCK_ROWS, Piece, Segment, cuts_of
from pymc_coresets.rows.sources.reader import Key, Lies, Pieces
from pymc_coresets.rows.sources.tabular import Field, Table

__all__ = ["ParquetFile", "ParquetReader", "fields_of"]

_BUFFER = 2**18  # bytes of each column of a large row group that are read ahead
_N_FOOTERS = 64


@dataclass(frozen=True)
class ParquetFile:
    """A file, or some of its row groups.

    Parameters
    ----------
    path : str
    groups : tuple of int
        Numbers of the row groups.
    n_rows : tuple of int
        Rows of each.
    keys : mapping from str to object
        Columns that the names of the folders hold.
    size : int
        In bytes.
    modified : int or None
        When the file was last written, in nanoseconds.
    """

    path: str
    groups: tuple[int, ...]
    n_rows: tuple[int, ...]
    keys: Mapping[str, Any]
    size: int
    modified: int | None


class ParquetReader:
    """Parquet files on a file system.

    Parameters
    ----------
    files : sequence of ParquetFile
    filesystem : pyarrow.fs.FileSystem
    fields : mapping from str to Field
        Of the first file.
    """

    kind, noun, divisible, lies = "Parquet", "file", True, Lies.IN_FILES

    def __init__(
        self,
        files: Sequence[ParquetFile],
        filesystem: Any,  # noqa: ANN401
        fields: Mapping[str, Field],
    ) -> None:
        self._filesystem, self.fields = filesystem, fields
        self._files: Mapping[int, ParquetFile] = dict(enumerate(files))
        places = [(f, i) for f, file in self._files.items() for i in range(len(file.groups))]
        self._places: Mapping[int, tuple[int, int]] = dict(enumerate(places))
        self.pieces: Pieces = tuple(
            Piece(f"{file.path}, row group {group}", file.path, n_rows)
            for file in files
            for group, n_rows in zip(file.groups, file.n_rows, strict=True)
        )
        self.n_bytes: int | None = sum(file.size for file in files)
        self._cursors = Cursors()
        self._reset()

    def _reset(self) -> None:
        self._lock = Lock()
        self._footers: OrderedDict[int, Any] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {n: v for n, v in vars(self).items() if n not in {"_lock", "_footers"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> "ParquetReader":
        """Return a reader that knows the files of some pieces only, see `Reader.portion`."""
        del names  # the layout is that of all columns
        pieces = {segment.piece for key in keys for segment in key}
        portion, places = copy(self), {piece: self._places[piece] for piece in pieces}
        vars(portion).update(
            pieces={piece: self.pieces[piece] for piece in pieces},
            _places=places,
            _files={number: self._files[number] for number, _ in places.values()},
            _cursors=Cursors(),
        )
        return portion

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Read some columns of row groups, see `Reader.tables`."""
        for number, group in groupby(segments, key=self._file_of):
            with reading_errors(self._files[number].path):
                yield from self._read_file(number, list(group), names)

    def _file_of(self, segment: Segment) -> int:
        return self._places[segment.piece][0]

    def _read_file(
        self, number: int, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        for whole, group in groupby(segments, key=self._is_whole):
            if whole:
                yield self._with_keys(number, self._read_groups(number, list(group), names))
                continue
            for segment in group:
                yield self._with_keys(number, self._block(number, segment, names))

    def _is_whole(self, segment: Segment) -> bool:
        return segment.stop - segment.start == self.pieces[segment.piece].n_rows

    def _read_groups(self, number: int, segments: Sequence[Segment], names: Sequence[str]) -> Any:  # noqa: ANN401
        file = self._files[number]
        groups = [file.groups[self._places[segment.piece][1]] for segment in segments]
        stored = [name for name in names if name not in file.keys]
        with self._open(number, stored) as opened:
            return opened.read_row_groups(groups, columns=stored, use_threads=False)

    def _block(self, number: int, segment: Segment, names: Sequence[str]) -> Any:  # noqa: ANN401
        """Return a part of a large row group, through the cursor that all threads share."""
        stored = tuple(name for name in names if name not in self._files[number].keys)
        start = partial(self._blocks, number, segment.piece, stored)
        n_blocks = len(cuts_of(self.pieces[segment.piece].n_rows, BLOCK_ROWS)) - 1
        cursor = self._cursors.get((segment.piece, stored), start, n_items=n_blocks)
        return cursor.item(segment.part)

    def _blocks(self, number: int, piece: int, names: Sequence[str]) -> Iterator[Any]:
        """Read a large row group as tables of the sizes that `cuts_of` has."""
        cuts = cuts_of(self.pieces[piece].n_rows, BLOCK_ROWS)
        group = self._files[number].groups[self._places[piece][1]]
        with self._open(number, names, buffer_size=_BUFFER) as opened:
            batches = opened.iter_batches(
                cuts[1], row_groups=[group], columns=list(names), use_threads=False
            )
            yield from tables_of_sizes(batches, [int(n) for n in np.diff(cuts)])

    @contextmanager
    def _open(self, number: int, names: Sequence[str], buffer_size: int = 0) -> Iterator[Any]:
        """Open a file that is still the one whose footer was read."""
        file = self._files[number]
        text = [name for name in names if self.fields[name].dtype is None]
        local = isinstance(self._filesystem, pyarrow.fs.LocalFileSystem)
        with self._filesystem.open_input_file(file.path) as handle:
            self._require_same_file(file)
            with self._lock:
                footer = self._footers.get(number)
            opened = pq.ParquetFile(
                handle, metadata=footer, read_dictionary=text, buffer_size=buffer_size,
                pre_buffer=not local and not buffer_size, page_checksum_verification=True,
            )  # fmt: skip
            with self._lock:
                self._footers[number] = opened.metadata
                while len(self._footers) > _N_FOOTERS:
                    self._footers.popitem(last=False)
            yield opened

    def _require_same_file(self, file: ParquetFile) -> None:
        info = self._filesystem.get_file_info(file.path)
        if (info.size, info.mtime_ns) != (file.size, file.modified):
            raise InvalidDataError(
                f"{file.path} was replaced or changed after it had been opened: open the files "
                "again with open_rows."
            )

    def _with_keys(self, number: int, table: Any) -> tuple[Table, slice]:  # noqa: ANN401
        """Add the columns that the folders' names hold."""
        for name, value in self._files[number].keys.items():
            codes = np.zeros(table.num_rows, np.int32)
            column = pa.DictionaryArray.from_arrays(codes, pa.array([value]))
            text = self.fields[name].dtype is None
            table = table.append_column(name, column if text else column.dictionary_decode())
        return ArrowTable(table), slice(0, table.num_rows)


def fields_of(schema: Any, keys: Mapping[str, Any]) -> dict[str, Field]:  # noqa: ANN401
    """Return what the columns of a file and of its folders' names hold."""
    return schema_fields(schema) | {
        name: arrow_field(pa.scalar(value).type) for name, value in keys.items()
    }
