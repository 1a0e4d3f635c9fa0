"""Chunks that are made by number: items of an iterable, partitions of Dask, what was sent."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.fingerprints import spaced
from pymc_coresets.rows.sources.cursors import Cursor, Recent
from pymc_coresets.rows.sources.readers import (
    BLOCK_ROWS,
    Chunk,
    Location,
    Opened,
    Piece,
    Reader,
    reading_errors,
)
from pymc_coresets.rows.sources.slices import computed
from pymc_coresets.rows.sources.tables import (
    Table,
    fields_of,
    library_of,
    n_rows_of,
    required_pyarrow,
    table_of,
)

_N_KEPT = 16  # chunks that were read last
_COMPUTING = "Try to compute it without open_rows."


class PartitionReader(Reader):
    """A Dask frame, whose partitions are computed by the scheduler that is set up, or right here.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    """

    kind, noun, divisible, location = "Dask", "partition", False, Location.WITH_DASK

    def __init__(self, frame: Any) -> None:  # noqa: ANN401
        self._names = {str(name): name for name in frame.columns}
        if len(self._names) < len(frame.columns):
            raise InvalidOptionError("Two columns of the frame have the same name: rename one.")
        self._frame = frame
        self.fields = fields_of(required_table(frame._meta_nonempty))  # noqa: SLF001

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Compute some columns of partitions, see `Reader.tables`."""
        for piece, partition in zip(chunk.pieces, self.collections(chunk, names), strict=True):
            with reading_errors(piece.where, _COMPUTING):
                frame = computed(partition)
            yield required_table(frame)

    def collections(self, chunk: Chunk, names: Sequence[str]) -> list[Any]:
        """Return partitions, see `Reader.collections`."""
        frame = self._frame[[self._names[name] for name in names]]
        return [frame.partitions[piece.held] for piece in chunk.pieces]


def open_partitions(frame: Any) -> Opened:  # noqa: ANN401
    """Return the reader of a Dask frame, whose partitions are computed once to count their rows."""
    reader = PartitionReader(frame)
    with reading_errors("A partition of the Dask frame", _COMPUTING):
        sizes = map(int, computed(frame.map_partitions(len)))
    return reader, [_piece("partition", *each) for each in enumerate(sizes)]


class IterableReader(Reader):
    """Chunks that are iterated over as often as needed.

    Parameters
    ----------
    source : iterable or callable
        A callable returns an iterable of chunks, the same ones every time.
    """

    noun, divisible = "chunk", False

    def __init__(self, source: Any, kind: str) -> None:  # noqa: ANN401
        self._source, self.kind = source, kind
        self._cursor: Recent[str, Cursor[Table]] = Recent(1)

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Iterator[Table]:
        """Return chunks by number, see `Reader.tables`."""
        del names  # a chunk comes with all of its columns
        for piece in chunk.pieces:
            cursor = self._cursor.get("all", lambda: Cursor(self.start, n_kept=_N_KEPT, once=False))
            table = cursor.item(piece.held)
            if table is None or n_rows_of(table) != piece.n_rows:
                found = "is missing" if table is None else f"has {spaced(n_rows_of(table))} rows"
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
        chunks = self._source() if callable(self._source) else self._source
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
        return map(required_table, stream)


def open_iterable(source: Any, kind: str = "iterable") -> Opened:  # noqa: ANN401
    """Return the reader of chunks, which are read once to count their rows.

    Raises
    ------
    InvalidOptionError
        If the chunks can be read only once, or are of an unknown kind.
    InvalidDataError
        If there are none.
    """
    reader, pieces = IterableReader(source, kind), []
    reader.fields = {}
    for number, table in enumerate(reader.start()):
        pieces.append(_piece("chunk", number, n_rows_of(table)))
        if pieces[-1].n_rows and not reader.fields:
            reader.fields = fields_of(table)
    if not reader.fields:
        raise InvalidDataError("The source has no rows: it yields no chunks, or only empty ones.")
    if next(reader.start(), None) is None:
        raise InvalidOptionError(
            "The source yields no chunk when it is read again, and the rows are read at least "
            "twice: pass a function that makes a new iterator each time."
        )
    return reader, pieces


def open_stream(source: Any) -> Opened:  # noqa: ANN401
    """Return the reader of a table that comes in batches, through Arrow's C interface.

    Each reading asks for a new stream of them, from the start: a query is run again.
    """
    return open_iterable(partial(_batches, source), type(source).__name__)


def _batches(source: Any) -> Iterator[Any]:  # noqa: ANN401
    arrow = required_pyarrow(f"A table of {library_of(source)}")
    for batch in arrow.RecordBatchReader.from_stream(source):
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            yield batch.slice(start, BLOCK_ROWS)


class SentRows(Reader):
    """The rows of some chunks, which were read where they lie and are decoded elsewhere.

    Parameters
    ----------
    noun : str
        See `Reader`.
    found : mapping from int to sequence of Table
        The rows of each chunk, by the position of the first one.
    """

    def __init__(self, noun: str, found: Mapping[int, Sequence[Table]]) -> None:
        self.noun, self.fields, self._found = noun, {}, found

    def tables(self, chunk: Chunk, names: Sequence[str]) -> Sequence[Table]:
        """Return what was read, see `Reader.tables`."""
        del names
        return self._found[chunk.start]


def required_table(chunk: Any) -> Table:  # noqa: ANN401
    """Return a chunk as a table.

    Raises
    ------
    InvalidOptionError
        If it holds no columns.
    """
    table = table_of(chunk)
    if table is None:
        raise InvalidOptionError(
            f"The source yields a {type(chunk).__name__}: each chunk must be a mapping from names "
            "to arrays, a frame, or a matrix with one row for each row of the data."
        )
    return table


def _piece(noun: str, number: int, n_rows: int) -> Piece:
    name = f"{noun} {number}"
    return Piece(name, name, n_rows, held=number)
