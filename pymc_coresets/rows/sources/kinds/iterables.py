"""Chunks from a factory or a re-iterable, such as a data loader of pymc-extras."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.fingerprints import spaced
from pymc_coresets.rows.sources.cursors import Cursor, Recent
from pymc_coresets.rows.sources.layout import Chunk, Piece
from pymc_coresets.rows.sources.tables import Opened, Reader, Table, library_of, table_of

_N_KEPT = 16  # chunks that were read last


class IterableReader(Reader):
    """Chunks that are iterated over as often as needed.

    Parameters
    ----------
    source : iterable or callable
        A callable returns an iterable of chunks, the same ones every time.
    """

    kind, noun, divisible = "iterable", "chunk", False

    def __init__(self, source: Any) -> None:  # noqa: ANN401
        self._source = source
        self._cursor: Recent[str, Cursor[Table]] = Recent(1)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Return chunks by number, see `Reader.tables`."""
        del names  # a chunk comes with all of its columns
        for piece in (segment.piece for segment in chunk.segments):
            cursor = self._cursor.get("all", lambda: Cursor(self.start, n_kept=_N_KEPT, once=False))
            table = cursor.item(piece.held)
            if table is None or table.n_rows != piece.n_rows:
                found = "is missing" if table is None else f"has {spaced(table.n_rows)} rows"
                raise InvalidDataError(
                    f"{piece.where} {found} now, but had {spaced(piece.n_rows)} rows when it was "
                    "read first: the source must yield the same chunks every time."
                )
            yield table

    def start(self) -> Iterator[Table]:
        """Begin with the first chunk.

        Raises
        ------
        InvalidOptionError
            If the chunks are of an unknown kind.
        """
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


def open_iterable(source: Any) -> Opened:  # noqa: ANN401
    """Return the reader of chunks, which are read once to count their rows.

    Raises
    ------
    InvalidOptionError
        If the chunks can be read only once, or are of an unknown kind.
    InvalidDataError
        If there are none.
    """
    reader, pieces = IterableReader(source), []
    reader.fields = {}
    for number, table in enumerate(reader.start()):
        name = f"chunk {number}"
        pieces.append(Piece(name, name, table.n_rows, held=number))
        if table.n_rows and not reader.fields:
            reader.fields = table.fields
    if not reader.fields:
        raise InvalidDataError("The source has no rows: it yields no chunks, or only empty ones.")
    if next(reader.start(), None) is None:
        raise InvalidOptionError(
            "The source yields no chunk when it is read again, and the rows are read at least "
            "twice: pass a function that makes a new iterator each time."
        )
    return reader, pieces


def _as_table(chunk: Any) -> Table:  # noqa: ANN401
    table = table_of(chunk)
    if table is None:
        raise InvalidOptionError(
            f"The source yields a {type(chunk).__name__}: each chunk must be a mapping from names "
            "to arrays, a frame, or a matrix with one row for each row of the data."
        )
    return table
