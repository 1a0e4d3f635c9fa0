"""Readers of a source: pieces, chunks of rows that are read together, errors, and Dask."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Self

from pymc_coresets.exceptions import CoresetError, InvalidDataError
from pymc_coresets.rows.first_reading import spaced
from pymc_coresets.rows.sources.columns import Field, Table, library_of, read_column, required_table

BLOCK_ROWS = 2**17  #: Most rows of a chunk: some megabytes, which a core works on for milliseconds.

_DAMAGED = "It may be truncated or damaged: write it again."
_LOADING = "Try to load these rows without open_rows."


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that the source stores together (a row group, a partition, an array), or some of them.

    Parameters
    ----------
    where : str
        Name of the stored unit, for messages; empty for a table in memory.
    n_rows : int
    origin : int
        Number of the first row in messages: rows are counted from the start of what `where` names.
    held : object
        Information with which the reader finds the rows.
    n_stored : int, optional
        Number of rows that are stored together; by default these.

    Examples
    --------
    >>> [(part.n_rows, part.origin) for part in Piece("a", 9).divided(most=4)]
    [(3, 0), (3, 3), (3, 6)]
    """

    where: str
    n_rows: int
    origin: int = 0
    held: Any = None
    n_stored: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows that are stored together."""
        return self.n_stored in {None, self.n_rows}

    def divided(self, most: int) -> list[Self]:
        """Cut into parts of at most `most` rows."""
        return [
            replace(self, n_rows=b - a, origin=self.origin + a, n_stored=self.n_rows)
            for a, b in pairwise(cuts_of(self.n_rows, most))
        ]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive rows that are read together; depends on the layout of the source only.

    Parameters
    ----------
    start : int
        Position of the first row among all rows of the source.
    n_rows : int
        At least 1.
    where : str
        For messages: ``"flights/part-0057.parquet, row group 3"``.
    pieces : tuple of Piece
        The stored pieces that hold the rows.
    """

    start: int
    n_rows: int
    where: str
    pieces: tuple[Piece, ...] = field(repr=False)

    def piece_at(self, row: int) -> tuple[Piece, int]:
        """Return the piece of a row, and the row's number in messages.

        Examples
        --------
        >>> pieces = (Piece("a", 3), Piece("b", 5, origin=4))
        >>> piece, number = Chunk(start=0, n_rows=8, where="", pieces=pieces).piece_at(5)
        >>> piece.where, number
        ('b', 6)
        """
        for piece in self.pieces:
            if row < piece.n_rows:
                break
            row -= piece.n_rows
        return piece, piece.origin + row

    def place(self, row: int) -> str:
        """Return the location of a row: ``"part-0057.parquet, row group 3, row 41,207"``."""
        piece, number = self.piece_at(row)
        return f"{piece.where}{', ' if piece.where else ''}row {spaced(number)}"


def cuts_of(n_rows: int, most: int) -> list[int]:
    """Divide rows into as few parts as possible: all of one size, and the last of the rest.

    Examples
    --------
    >>> cuts_of(9, most=4)
    [0, 3, 6, 9]
    >>> cuts_of(5, most=2)
    [0, 2, 4, 5]
    """
    size = -(-n_rows // -(-n_rows // most))
    return [*range(0, n_rows, size), n_rows]


def chunks_of(
    pieces: Iterable[Piece], *, most: int = BLOCK_ROWS, divide: bool = True, row_bytes: int = 0
) -> tuple[Chunk, ...]:
    """Join and divide pieces into chunks of at most `most` rows.

    Parameters
    ----------
    pieces : iterable of Piece
        All of them, in order; empty ones are left out.
    most : int
        Number of rows.
    divide : bool
        Whether a piece that is larger than `most` may be divided.
    row_bytes : int
        Size of a row: no more than 128 MB of small pieces are joined.

    Examples
    --------
    >>> pieces = [Piece("a", 2), Piece("b", 0), Piece("c", 1), Piece("d", 5)]
    >>> [(chunk.start, chunk.n_rows, chunk.where) for chunk in chunks_of(pieces, most=3)]
    [(0, 3, 'a to c'), (3, 3, 'd, rows 0 to 2'), (6, 2, 'd, rows 3 to 4')]
    >>> [chunk.where for chunk in chunks_of(pieces, row_bytes=2**26)]  # two rows of 64 MB
    ['a', 'c', 'd']
    """
    parts = [
        part for piece in pieces if piece.n_rows
        for part in (piece.divided(most) if divide else [piece])
    ]  # fmt: skip
    # Small pieces are joined up to 128 MB, since a few chunks are in memory.
    most = min(most, 2**27 // max(row_bytes, 1))
    groups: list[list[Piece]] = []
    size = 0
    for piece in parts:
        size += piece.n_rows
        if not groups or size > most:
            groups.append([])
            size = piece.n_rows
        groups[-1].append(piece)
    sizes = [sum(piece.n_rows for piece in group) for group in groups]
    return tuple(
        Chunk(start=stop - size, n_rows=size, where=_name(group), pieces=tuple(group))
        for stop, size, group in zip(accumulate(sizes), sizes, groups, strict=True)
    )


def _name(pieces: Sequence[Piece]) -> str:
    first, last = pieces[0], pieces[-1]
    if first.where and first is not last:
        return f"{first.where} to {last.where}"
    if first.where and first.is_whole:
        return first.where
    rows = f"rows {spaced(first.origin)} to {spaced(last.origin + last.n_rows - 1)}"
    return f"{first.where}, {rows}" if first.where else rows


@dataclass(kw_only=True, eq=False)
class Reader:
    """Finds the rows of a source, independently of models, labels and weights.

    Also independently of the layout: chunks hold the information needed to find their rows.

    Parameters
    ----------
    find : callable
        Given a chunk and names of columns, yields tables with these: frames, mappings from names to
        arrays, or Dask collections.
    fields : mapping from str to Field
        Type of each column.
    kind : str
        For `repr`: ``"Parquet"``.
    divisible : bool
        Whether a large piece may be divided into several chunks.
    in_files : bool
        Whether other processes can read the rows from the files.
    """

    find: Callable[[Chunk, Sequence[str]], Iterable[object]]
    fields: Mapping[str, Field]
    kind: str = ""
    divisible: bool = True
    in_files: bool = False

    def tables(self, chunk: Chunk, names: Sequence[str]) -> list[Table]:
        """Read some columns of a chunk: tables that hold its rows, one after the other."""
        with reading_errors(chunk.where, _DAMAGED if self.in_files else _LOADING):
            return list(map(required_table, computed(list(self.find(chunk, names)))))

    def sent(self, chunk: Chunk, names: Sequence[str], *, to_dask: bool) -> list[object]:
        """Return the values or Dask collections from which another process makes these tables."""
        with reading_errors(chunk.where, _LOADING):
            found = list(self.find(chunk, names))
            if to_dask and all(map(is_dask, found)):
                return found
            tables = map(required_table, computed(found))
            return [{n: read_column(table[n]) for n in names if n in table} for table in tables]


type Opened = tuple[Reader, Sequence[Piece]]  # and the pieces with its rows, in order


@contextmanager
def reading_errors(where: str, remedy: str = _DAMAGED) -> Iterator[None]:
    """Convert errors of reading to errors of the package, which name the place.

    Parameters
    ----------
    where : str
        A file, a partition, some rows.
    remedy : str
        Remedy, if the error itself gives none.

    Raises
    ------
    InvalidDataError
        If the file is missing, unreadable, truncated or damaged, or there is too little memory.

    Examples
    --------
    >>> with reading_errors("flights.parquet"):
    ...     raise OSError("unexpected end of stream")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidDataError: flights.parquet cannot be read: unexpected end of
    stream. It may be truncated or damaged: write it again. (docs: troubleshooting#rows-and-files)
    """
    try:
        yield
    except CoresetError:
        raise
    except FileNotFoundError as error:
        raise InvalidDataError(
            f"{where} is missing ({error}): put it back, or open the other files with open_rows.",
            topic="rows-and-files",
        ) from error
    except PermissionError as error:
        raise InvalidDataError(
            f"{where} may not be read: change its permissions.", topic="rows-and-files"
        ) from error
    except MemoryError as error:
        raise InvalidDataError(
            f"{where} does not fit into memory ({error}). Let the process use more memory, or "
            "write the data in smaller row groups or partitions; a damaged file may also request "
            "too much memory.",
            topic="rows-and-files",
        ) from error
    # Of files, whatever the format; NotImplementedError is a RuntimeError.
    except (OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError) as error:
        said = str(error).strip().rstrip(".") or type(error).__name__
        raise InvalidDataError(
            f"{where} cannot be read: {said}. {remedy}", topic="rows-and-files"
        ) from error


# -- Dask ------------------------------------------------------------------------------------------


def is_dask(part: object) -> bool:
    """Whether Dask computes a frame, or all columns of a mapping.

    Examples
    --------
    >>> is_dask({"x": [0.5]})
    False
    """
    return all(library_of(each) == "dask" for each in _columns(part))


def computed(parts: list[object]) -> list[object]:
    """Compute Dask collections by the user's scheduler; without one, in the calling thread.

    Chunks are read by several threads already.  A task on a cluster asks the scheduler, which knows
    where persisted partitions are, and releases its slot until they arrive.

    Examples
    --------
    >>> computed([{"x": [0.5]}])
    [{'x': [0.5]}]
    """
    if not any(library_of(each) == "dask" for part in parts for each in _columns(part)):
        return parts
    import dask.base  # noqa: PLC0415

    scheduler = dask.config.get("scheduler", None) or "synchronous"
    if _in_a_task():
        with sys.modules["distributed"].worker_client() as client:
            return list(dask.base.compute(*parts, scheduler=client))
    if scheduler == "dask.distributed":  # as a Client has set it
        from pymc_coresets.rows.executors import Cluster  # noqa: PLC0415

        Cluster(sys.modules["distributed"].default_client()).await_workers("a Dask collection")
    return list(dask.base.compute(*parts, scheduler=scheduler))


def _columns(part: object) -> Iterable[object]:
    return part.values() if isinstance(part, Mapping) else [part]


def _in_a_task() -> bool:
    try:
        return "distributed" in sys.modules and bool(sys.modules["distributed"].get_worker())
    except ValueError:
        return False
