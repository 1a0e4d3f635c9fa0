"""Pieces, which a source stores together, and chunks, which are read together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Self

from pymc_coresets.rows.fingerprints import spaced

BLOCK_ROWS = 2**17  #: Most rows of a chunk: some megabytes, which a core works on for milliseconds.
_JOINED_BYTES = 2**27  # of small pieces that are read together


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that the source stores together (a row group, a partition, an array), or some of them.

    Parameters
    ----------
    where : str
        What is stored, for messages; empty for a whole table in memory.
    file : str
        What is counted in messages: the file, partition or chunk; empty for a table in memory.
    n_rows : int
    origin : int
        Number of the first row in messages: rows are counted from the start of what `where` names.
    held : object
        What the reader needs to find the rows.
    n_stored : int, optional
        Number of rows that are stored together; by default these.

    Examples
    --------
    >>> [(part.n_rows, part.origin) for part in Piece("a", "a", 9).divided(most=4)]
    [(3, 0), (3, 3), (3, 6)]
    """

    where: str
    file: str
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
        Where the source finds the rows.
    """

    start: int
    n_rows: int
    where: str
    pieces: tuple[Piece, ...] = field(repr=False)


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
    >>> pieces = [Piece("a", "a", 2), Piece("b", "b", 0), Piece("c", "c", 1), Piece("d", "d", 5)]
    >>> [(chunk.start, chunk.n_rows, chunk.where) for chunk in chunks_of(pieces, most=3)]
    [(0, 3, 'a to c'), (3, 3, 'd, rows 0 to 2'), (6, 2, 'd, rows 3 to 4')]
    >>> [chunk.where for chunk in chunks_of(pieces, row_bytes=2**26)]  # two rows of 64 MB
    ['a', 'c', 'd']
    """
    parts = [
        part for piece in pieces if piece.n_rows
        for part in (piece.divided(most) if divide else [piece])
    ]  # fmt: skip
    most = min(most, _JOINED_BYTES // max(row_bytes, 1))
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


def piece_at(chunk: Chunk, row: int) -> tuple[Piece, int]:
    """Return the piece of a row of a chunk, and the row's number in messages.

    Examples
    --------
    >>> pieces = (Piece("a", "a", 3), Piece("b", "b", 5, origin=4))
    >>> piece, number = piece_at(Chunk(start=0, n_rows=8, where="", pieces=pieces), 5)
    >>> piece.where, number
    ('b', 6)
    """
    for piece in chunk.pieces:
        if row < piece.n_rows:
            break
        row -= piece.n_rows
    return piece, piece.origin + row


def _name(pieces: Sequence[Piece]) -> str:
    first, last = pieces[0], pieces[-1]
    if first.where and first is not last:
        return f"{first.where} to {last.where}"
    if first.where and first.is_whole:
        return first.where
    rows = f"rows {spaced(first.origin)} to {spaced(last.origin + last.n_rows - 1)}"
    return f"{first.where}, {rows}" if first.where else rows
