"""Rows that a function finds chunk by chunk: slices of tables, partitions, items of an iterable."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Self

import numpy as np

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.columns import (
    AnyColumn,
    Field,
    Table,
    fields_of,
    is_lazy,
    library_of,
    n_rows_of,
    required_pyarrow,
    required_table,
    rows_first,
)
from pymc_coresets.rows.sources.readers import (
    BLOCK_ROWS,
    Chunk,
    Opened,
    Piece,
    Reader,
    computed,
    reading_errors,
)

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pyarrow as pa
    import xarray as xr

# -- tables, with columns in memory or elsewhere ---------------------------------------------------


def open_columns(table: Table, kind: str) -> Opened:
    """Return the reader of a table, which reads slices along the first axis."""
    columns, n_rows = list(table.values()), n_rows_of(table)
    lazy = any(map(is_lazy, columns))
    reader = Reader(
        find=partial(_slices, table),
        fields=fields_of(table),
        kind=kind,
        divisible=not lazy,
        in_files=all(map(_is_in_files, columns)),
    )
    cuts = np.cumsum([0, *_blocks_of_rows(columns, n_rows)]) if lazy else [0, n_rows]
    return reader, [Piece("", int(b - a), int(a)) for a, b in pairwise(cuts)]


def _slices(table: Table, chunk: Chunk, names: Sequence[str]) -> list[Table]:
    first, last = chunk.pieces[0], chunk.pieces[-1]
    rows = slice(first.origin, last.origin + last.n_rows)
    return [{name: table[name][rows] for name in names}]


def dataset_columns(dataset: "xr.Dataset | xr.DataArray", dim: str | None) -> Table:
    """Return the variables of an xarray dataset that have the dimension of the rows, as a table.

    Raises
    ------
    InvalidOptionError
        If `dim` is not a dimension, or is missing although there are several.

    Examples
    --------
    >>> import xarray as xr
    >>> dataset = xr.Dataset({"y": ("row", np.zeros(3)), "m": ("feature", np.zeros(2))})
    >>> list(dataset_columns(dataset, "row"))
    ['y']
    """
    if not hasattr(dataset, "data_vars"):
        raise InvalidOptionError(
            "An xarray.DataArray has no columns: pass {'name': array}, or an xarray.Dataset."
        )
    dims = [str(d) for d in dataset.dims]
    of_rows = dims[0] if dim is None and len(dims) == 1 else str(dim)
    variables = {str(n): v for n, v in dataset.data_vars.items() if of_rows in v.dims}
    found = {name: rows_first(variable, of_rows) for name, variable in variables.items()}
    if not found:
        raise InvalidOptionError(
            f"dim={dim!r} must name the dimension of the rows, one of {', '.join(dims)}, which "
            "some variable of the dataset has."
        )
    return found


def _is_in_files(array: AnyColumn) -> bool:
    """Whether the pickle of an array holds the path of a file, and no data."""
    stored = library_of(array) == "zarr" and hasattr(array.store, "root")
    return stored or getattr(array, "in_files", False)


def _blocks_of_rows(arrays: Sequence[AnyColumn], n_rows: int) -> Sequence[int]:
    """Return the numbers of rows that are stored together, if the arrays have chunks."""
    chunks = [array.chunks for array in arrays if getattr(array, "chunks", None)]
    of_dask: list[tuple[int, ...]] = [c[0] for c in chunks if isinstance(c[0], tuple)]
    if of_dask:
        return of_dask[0]
    size = max((c[0] for c in chunks if isinstance(c, tuple)), default=BLOCK_ROWS)
    size *= max(1, BLOCK_ROWS // size)
    return [min(size, n_rows - start) for start in range(0, n_rows, size)]


# -- what is made by number ------------------------------------------------------------------------


def open_partitions(frame: "dd.DataFrame") -> Opened:
    """Return the reader of a Dask frame, whose partitions are computed once to count their rows."""
    names = {str(name): name for name in frame.columns}
    with reading_errors("A partition of the Dask frame", "Try to compute it without open_rows."):
        sizes = np.asarray(computed([frame.map_partitions(len)])[0])
    reader = Reader(
        find=partial(_partitions, frame, names),
        fields=fields_of(required_table(frame._meta_nonempty)),  # noqa: SLF001
        kind="Dask",
        divisible=False,
    )
    return reader, [_piece("partition", k, int(size)) for k, size in enumerate(sizes)]


def _partitions(
    frame: "dd.DataFrame",
    stored: Mapping[str, Hashable],
    chunk: Chunk,
    names: Sequence[str],
) -> list["dd.DataFrame"]:
    some = frame[[stored[name] for name in names]]
    return [some.partitions[piece.held] for piece in chunk.pieces]


def open_iterable(source: object, kind: str = "iterable") -> Opened:
    """Return the reader of chunks, which are read once to count their rows.

    Parameters
    ----------
    source : iterable or callable
        A callable returns an iterable of chunks, the same ones every time.
    kind : str
        For `repr`.

    Raises
    ------
    InvalidOptionError
        If the chunks can be read only once, or are of an unknown kind.
    InvalidDataError
        If there are none.
    """
    pieces: list[Piece] = []
    fields: dict[str, Field] = {}
    for number, table in enumerate(_iterated(source)):
        pieces.append(_piece("chunk", number, n_rows_of(table)))
        if pieces[-1].n_rows and not fields:
            fields = fields_of(table)
    if not fields:
        raise InvalidDataError(
            "The source has no rows: it yields no chunks, or only empty ones.",
            topic="rows-and-files",
        )
    if not any(True for _ in _iterated(source)):
        raise InvalidOptionError(
            "The source yields no chunk when it is read again, and the rows are read at least "
            "twice: pass a function that makes a new iterator each time."
        )
    find = partial(_items, source, Recent(1))
    return Reader(find=find, fields=fields, kind=kind, divisible=False), pieces


def _items(
    source: object,
    cursors: "Recent[str, Cursor[Table]]",
    chunk: Chunk,
    names: Sequence[str],
) -> Iterator[Table]:
    """Yield chunks by number, each with all of its columns."""
    del names
    start = partial(_iterated, source)
    for piece in chunk.pieces:
        yield from cursors.get("all", lambda: Cursor(start)).item(piece.held)


def _iterated(source: object) -> Iterator[Table]:
    chunks = source() if callable(source) else source
    # PyTensor's variables look iterable until they are read.
    single = library_of(chunks) == "pytensor" or getattr(chunks, "shape", None) == ()
    if single or not hasattr(chunks, "__iter__"):
        raise InvalidOptionError(
            f"open_rows cannot read a {type(chunks).__name__}: pass paths of files, an Arrow "
            "dataset, a frame (collect() a lazy one), a mapping from names to arrays, an "
            "xarray.Dataset, or an iterable of chunks, each a mapping or a frame, or a function "
            "that returns one."
        )
    return map(required_table, chunks)


def open_stream(source: object) -> Opened:
    """Return the reader of a table that comes in batches, through Arrow's C interface.

    Each reading requests a new stream: a query is run again.
    """
    return open_iterable(partial(_batches, source), type(source).__name__)


def _batches(source: object) -> Iterator["pa.RecordBatch"]:
    arrow = required_pyarrow(f"A table of {library_of(source)}")
    for batch in arrow.RecordBatchReader.from_stream(source):
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            yield batch.slice(start, BLOCK_ROWS)


def _piece(noun: str, number: int, n_rows: int) -> Piece:
    return Piece(f"{noun} {number}", n_rows, held=number)


# -- streams that can only be read from their start ------------------------------------------------


class Cursor[T]:
    """Items of a stream by number; items that are asked for in order are read once.

    If a thread requests an item early, the stream reads ahead and keeps the items between, but
    for those that were requested after the item was last.  An item that was requested before is
    read again, from the start.

    Parameters
    ----------
    start : callable
        Returns a new iterator over all items.
    n_items : int, optional
        After this many, the stream is closed.

    Examples
    --------
    >>> cursor = Cursor(lambda: iter("abc"))
    >>> cursor.item(1), cursor.item(0), cursor.item(2), cursor.item(3)
    (['b'], ['a'], ['c'], [])
    """

    def __init__(self, start: Callable[[], Iterator[T]], n_items: int | None = None) -> None:
        self._start, self._n_items = start, n_items
        self._lock = Lock()
        self._kept: dict[int, T] = {}
        self._requests: dict[int, int] = {}  # the last one of each item
        self._n_requests = 0
        self._stream: Iterator[T] | None = None
        self._next = 0

    def item(self, number: int) -> list[T]:
        """Return an item; none if the stream ends before it, as the number of rows reveals."""
        with self._lock:
            if number not in self._kept:
                self._run_to(number)
            self._n_requests += 1
            self._requests[number] = self._n_requests
            return [self._kept.pop(number)] if number in self._kept else []

    def _run_to(self, number: int) -> None:
        """Read up to the item, from the start if it has been passed."""
        if self._stream is None or number < self._next:
            self._stream, self._next = self._start(), 0
            self._kept.clear()  # of an earlier reading
        stream, self._stream = self._stream, None  # one that ends or fails has no next item
        last = self._requests.get(number, 0)
        for item in islice(stream, number + 1 - self._next):
            if self._requests.get(self._next, 0) <= last:  # else this reading has passed it
                self._kept[self._next] = item
            self._next += 1
            if len(self._kept) > 8:  # items kept for other threads: at most as many as cursors
                del self._kept[min(self._kept)]
        if number < self._next != self._n_items:  # or it is let go, which closes its file
            self._stream = stream


class Recent[K: Hashable, V]:
    """A cache of the objects used last, by key; pickles do not include them.

    Parameters
    ----------
    size : int
        Largest number of keys.

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
        """Return the object of a key; create it if it is not cached."""
        with self._lock:
            value = self._held.pop(key) if key in self._held else make()
            self._held[key] = value
            while len(self._held) > self._size:
                self._held.popitem(last=False)
        return value
