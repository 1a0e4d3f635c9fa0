"""Sources that can only be read from their start: cursors, and chunks of iterables."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from threading import Lock
from typing import Any, Self

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.fingerprints import spaced
from pymc_coresets.rows.sources.readers import Chunk, Opened, Piece, Reader
from pymc_coresets.rows.sources.tables import Table, library_of, table_of

_N_AHEAD = 8  # blocks that wait for their thread
_N_KEPT = 16  # chunks that were read last

_NOTHING = object()


class Cursor[T]:
    """Items of a stream by number; items that are asked for in order are read once.

    An item that is asked for too early, by another thread, makes the stream run ahead; those
    passed over are kept.  An item that was given up is read again, from the start.

    Parameters
    ----------
    start : callable
        Returns a new iterator over all items.
    n_kept : int, default 8
        Most items that are kept.
    once : bool, default True
        Whether an item is asked for only once, so that it need not be kept after that.
    n_items : int, optional
        After this many, the stream is closed.

    Examples
    --------
    >>> cursor = Cursor(lambda: iter("abc"))
    >>> cursor.item(1), cursor.item(0), cursor.item(2), cursor.item(3)
    ('b', 'a', 'c', None)
    """

    def __init__(
        self,
        start: Callable[[], Iterator[T]],
        *,
        n_kept: int = _N_AHEAD,
        once: bool = True,
        n_items: int | None = None,
    ) -> None:
        self._start, self._n_kept, self._once = start, n_kept, once
        self._n_items = n_items
        self._lock = Lock()
        self._kept: OrderedDict[int, T] = OrderedDict()
        self._stream: Iterator[T] | None = None
        self._next = 0

    def item(self, number: int) -> T | None:
        """Return an item; None where the stream has ended before it."""
        with self._lock:
            if number not in self._kept and not self._run_to(number):
                return None
            return self._kept.pop(number) if self._once else self._kept[number]

    def _run_to(self, number: int) -> bool:
        """Read up to the item, from the start if it has been passed; False if there is none."""
        if self._stream is None or number < self._next:
            self._stream, self._next = self._start(), 0
        try:
            while self._next <= number:
                item = next(self._stream, _NOTHING)
                if item is _NOTHING:
                    self._stream = None
                    return False
                self._kept[self._next] = item  # type: ignore[assignment]
                self._next += 1
                while len(self._kept) > self._n_kept:
                    self._kept.popitem(last=False)
        except BaseException:
            self._stream = None  # a stream that failed has no next item
            raise
        if self._next == self._n_items:
            self._stream = None  # which closes its file
        return True


class Recent[K: Hashable, V]:
    """What was made for some keys, of which those used last are kept; a pickle holds none.

    Parameters
    ----------
    size : int
        Most keys.

    Examples
    --------
    >>> recent = Recent(1)
    >>> [recent.get(key, lambda: [key])[0] for key in (1, 2, 2)]
    [1, 2, 2]
    """

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, Lock()
        self._held: OrderedDict[K, V] = OrderedDict()

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self._size,)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return what belongs to a key; it is made where it is not held."""
        with self._lock:
            value = self._held.pop(key) if key in self._held else make()
            self._held[key] = value
            while len(self._held) > self._size:
                self._held.popitem(last=False)
        return value


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
