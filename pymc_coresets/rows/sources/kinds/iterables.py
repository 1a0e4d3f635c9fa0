"""Chunks from a factory or a re-iterable, such as a data loader of pymc-extras."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.first_reading import spaced
from pymc_coresets.rows.sources.cursors import Cursor
from pymc_coresets.rows.sources.kinds.conversion import library_of, table_of
from pymc_coresets.rows.sources.layout import Piece, Segment
from pymc_coresets.rows.sources.reader import Key, Lies, Reader, SentRows
from pymc_coresets.rows.sources.tabular import Field, Table

__all__ = ["IterableReader"]

_N_KEPT = 16  # chunks that were read last


class IterableReader:
    """Chunks that are iterated over as often as needed; the first time to count their rows.

    Parameters
    ----------
    source : iterable or callable
        A callable returns an iterable of chunks, the same ones every time.

    Raises
    ------
    InvalidOptionError
        If the chunks can be read only once, or are of an unknown kind.
    InvalidDataError
        If there are none.
    """

    kind, noun, divisible, lies = "iterable", "chunk", False, Lies.HERE
    n_bytes: int | None = None

    def __init__(self, source: Any) -> None:  # noqa: ANN401
        self._source = source
        fields: dict[str, Field] = {}
        pieces = []
        for number, table in enumerate(self._start()):
            pieces.append(Piece(f"chunk {number}", f"chunk {number}", table.n_rows))
            if table.n_rows and not fields:
                fields = dict(table.fields)
        if not fields:
            raise InvalidDataError(
                "The source has no rows: it yields no chunks, or only empty ones."
            )
        self.fields: Mapping[str, Field] = fields
        self.pieces = tuple(pieces)
        if next(self._start(), None) is None:
            raise InvalidOptionError(
                "The source yields no chunk when it is read again, and the rows are read at least "
                "twice: pass a function that makes a new iterator each time."
            )
        self._reset()

    def _reset(self) -> None:
        self._cursor = Cursor(self._start, n_kept=_N_KEPT, once=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_cursor"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()

    def tables(
        self, segments: Sequence[Segment], names: Sequence[str]
    ) -> Iterator[tuple[Table, slice]]:
        """Return chunks by number, see `Reader.tables`."""
        del names  # a chunk comes with all of its columns
        for segment in segments:
            table, piece = self._cursor.item(segment.piece), self.pieces[segment.piece]
            n_rows = None if table is None else table.n_rows
            if table is None or n_rows != piece.n_rows:
                found = "is missing" if table is None else f"has {spaced(table.n_rows)} rows"
                raise InvalidDataError(
                    f"{piece.where} {found} now, but had {spaced(piece.n_rows)} rows when it was "
                    "read first: the source must yield the same chunks every time."
                )
            yield table, slice(0, table.n_rows)

    def portion(self, keys: Sequence[Key], names: Sequence[str]) -> Reader:
        """Return what some chunks hold, see `Reader.portion`."""
        return SentRows.of(self, keys, names)

    def _start(self) -> Iterator[Table]:
        source: Callable[[], Any] | Any = self._source
        chunks = source() if callable(source) else source
        refused = InvalidOptionError(
            f"The function returned a {type(chunks).__name__}: it must return an iterable of "
            "chunks, each a mapping from names to arrays or a frame."
        )
        if library_of(chunks) == "pytensor":  # its variables seem iterable until they are read
            raise refused
        try:
            stream = iter(chunks)
        except TypeError:
            raise refused from None
        return map(_as_table, stream)


def _as_table(chunk: Any) -> Table:  # noqa: ANN401
    table = table_of(chunk)
    if table is None:
        raise InvalidOptionError(
            f"The source yields a {type(chunk).__name__}: each chunk must be a mapping from names "
            "to arrays, a frame, or a matrix with one row for each row of the data."
        )
    return table
