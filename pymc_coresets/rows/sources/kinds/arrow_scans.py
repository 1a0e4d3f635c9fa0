"""Arrow datasets that are filtered, or are no Parquet files: read by Arrow's own scanner."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import pyarrow.dataset as ds

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.cursors import Cursors
from pymc_coresets.rows.sources.failures import reading_errors
from pymc_coresets.rows.sources.kinds.arrow_tables import ArrowTable, schema_fields, tables_of_sizes
from pymc_coresets.rows.sources.layout import BLOCK_ROWS, Piece, Segment, cuts_of
from pymc_coresets.rows.sources.reader import Key, Lies, Pieces
from pymc_coresets.rows.sources.tabular import Field, Table

__all__ = ["ScanReader"]


class ScanReader:
    """The fragments of a dataset, block by block.

    Parameters
    ----------
    fragments : sequence of pyarrow.dataset.Fragment
        Files; those of Parquet files are divided into row groups.
    schema : pyarrow.Schema
        Of the dataset.
    chosen : pyarrow.dataset.Expression, optional
        Which rows to read.  They are counted now, which reads the columns of this expression.
    """

    noun, divisible, lies = "file", True, Lies.IN_FILES
    n_bytes: int | None = None

    def __init__(self, fragments: Sequence[Any], schema: Any, chosen: Any = None) -> None:  # noqa: ANN401
        self.kind = "Arrow dataset" if chosen is None else "filtered Arrow dataset"
        self._schema, self._chosen = schema, chosen
        self.fields: Mapping[str, Field] = schema_fields(schema)
        parts: list[Any] = []
        pieces: list[Piece] = []
        for fragment in fragments:
            path = getattr(fragment, "path", "") or "a table in memory"
            with _reading(fragment, path, self.fields):
                for part in _parts_of(fragment):
                    n_rows = part.count_rows(filter=chosen)
                    parts.append(part)
                    pieces.append(Piece(_place_of(path, part, chosen), path, n_rows))
        self._fragments: Mapping[int, Any] = dict(enumerate(parts))
        self.pieces: Pieces = tuple(pieces)
        self._cursors = Cursors()

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> "ScanReader":
        """Return a reader that knows some of the fragments only, see `Reader.portion`."""
        del names  # the layout is that of all columns
        pieces = {segment.piece for key in keys for segment in key}
        portion = copy(self)
        vars(portion).update(
            pieces={piece: self.pieces[piece] for piece in pieces},
            _fragments={piece: self._fragments[piece] for piece in pieces},
            _cursors=Cursors(),
        )
        return portion

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Scan blocks of fragments, see `Reader.tables`."""
        for segment in segments:
            start = partial(self._blocks, segment.piece, tuple(names))
            fragment, path = self._fragments[segment.piece], self.pieces[segment.piece].file
            with _reading(fragment, path, self.fields):
                n_blocks = len(cuts_of(self.pieces[segment.piece].n_rows, BLOCK_ROWS)) - 1
                cursor = self._cursors.get((segment.piece, *names), start, n_items=n_blocks)
                block = cursor.item(segment.part)
            if block is not None:  # rows that are gone are noticed by their number
                yield ArrowTable(block), slice(0, block.num_rows)

    def _blocks(self, piece: int, names: Sequence[str]) -> Iterator[Any]:
        cuts = cuts_of(self.pieces[piece].n_rows, BLOCK_ROWS)
        batches = self._fragments[piece].to_batches(
            schema=self._schema, columns=list(names), filter=self._chosen, batch_size=cuts[1],
            use_threads=False,
        )  # fmt: skip
        return tables_of_sizes(batches, [int(n) for n in np.diff(cuts)])


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


def _parts_of(fragment: Any) -> Sequence[Any]:  # noqa: ANN401
    if isinstance(fragment, ds.ParquetFileFragment):
        parts: Sequence[Any] = fragment.split_by_row_group()
        return parts
    return [fragment]


def _place_of(path: str, part: Any, chosen: Any) -> str:  # noqa: ANN401
    group = (
        f", row group {part.row_groups[0].id}" if isinstance(part, ds.ParquetFileFragment) else ""
    )
    return f"{path}{group}" if chosen is None else f"{path}{group}, filtered"
