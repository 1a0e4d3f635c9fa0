"""Arrow datasets that are filtered, or are no Parquet files: read by Arrow's own scanner."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow.dataset as ds

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.arrow_columns import named_columns, schema_fields, tables_of_sizes
from pymc_coresets.rows.sources.columns import Field
from pymc_coresets.rows.sources.cursors import Cursor, Recent
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.layout import BLOCK_ROWS, Chunk, Piece, cuts_of
from pymc_coresets.rows.sources.reader import Location, Opened, Reader
from pymc_coresets.rows.sources.tables import Table

__all__ = ["ScanReader", "open_scan"]

_N_CURSORS = 8


class ScanReader(Reader):
    """The fragments of a dataset, block by block; a piece holds a file, or a row group of one.

    Parameters
    ----------
    kind : str
    schema : pyarrow.Schema
        Of the dataset.
    chosen : pyarrow.dataset.Expression, optional
        Which rows to read.
    """

    noun, location = "file", Location.IN_FILES

    def __init__(self, kind: str, schema: Any, chosen: Any) -> None:  # noqa: ANN401
        self.kind, self._schema, self._chosen = kind, schema, chosen
        self.fields = schema_fields(schema)
        self._cursors: Recent[Any, Cursor[Any]] = Recent(_N_CURSORS)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Scan blocks of fragments, see `Reader.tables`."""
        for segment in chunk.segments:
            piece = segment.piece
            cuts = cuts_of(piece.n_rows, BLOCK_ROWS)
            start = partial(self._stream, piece.held, cuts, names)
            with _reading(piece.held, piece.file, self.fields):
                block = self._cursors.get(
                    (piece, *names), partial(Cursor, start, n_items=len(cuts) - 1)
                ).item(segment.part)
            if block is not None:  # rows that are gone are noticed by their number
                yield Table.of(named_columns(block))

    def _stream(self, fragment: Any, cuts: Sequence[int], names: Sequence[str]) -> Iterator[Any]:  # noqa: ANN401
        batches = fragment.to_batches(
            schema=self._schema,
            columns=list(names),
            filter=self._chosen,
            batch_size=cuts[1],
            use_threads=False,
        )
        return tables_of_sizes(batches, [b - a for a, b in pairwise(cuts)])


def open_scan(fragments: Sequence[Any], schema: Any, chosen: Any = None) -> Opened:  # noqa: ANN401
    """Return a reader of fragments, and where its rows lie.

    Parameters
    ----------
    fragments : sequence of pyarrow.dataset.Fragment
        Files; those of Parquet files are divided into row groups.
    schema, chosen
        As of `ScanReader`.  The rows are counted now, which reads the columns of `chosen`.
    """
    kind = "Arrow dataset" if chosen is None else "filtered Arrow dataset"
    paths = [getattr(fragment, "path", "") or "a table in memory" for fragment in fragments]
    n_files = len({*paths})
    reader = ScanReader(f"{kind}, {n_files} file{'s' * (n_files != 1)}", schema, chosen)
    pieces = []
    for fragment, path in zip(fragments, paths, strict=True):
        parquet = isinstance(fragment, ds.ParquetFileFragment)
        with _reading(fragment, path, reader.fields):
            for part in fragment.split_by_row_group() if parquet else [fragment]:
                group = f", row group {part.row_groups[0].id}" if parquet else ""
                where = f"{path}{group}" if chosen is None else f"{path}{group}, filtered"
                pieces.append(Piece(where, path, part.count_rows(filter=chosen), held=part))
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
            if (fields[name].dtype is None) != (found[name].dtype is None):
                raise InvalidDataError(
                    f"{path} has {name!r} as {found[name]}, and the dataset as {fields[name]}: "
                    "write the column with one type to all files."
                ) from error
        raise
