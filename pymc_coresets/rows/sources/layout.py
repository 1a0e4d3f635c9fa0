"""How the pieces of a source become chunks: small ones are joined, large ones are divided."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pymc_coresets.rows.fingerprints import spaced

BLOCK_ROWS = 2**17
_JOINED_BYTES = 2**27  # of small pieces that are read together


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that the source stores together: a row group, a partition, a whole array.

    Parameters
    ----------
    where : str
        For messages; empty for a whole table in memory.
    file : str
        What is counted in messages: the file, partition or chunk; empty for a table in memory.
    n_rows : int
    origin : int
        Number of the first row in messages: rows are counted from the start of what `where` names.
    held : object
        What the reader needs to find the rows.
    """

    where: str
    file: str
    n_rows: int
    origin: int = 0
    held: Any = None


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one piece, numbered within it.

    Parameters
    ----------
    piece : Piece
    start, stop : int
        First row, and the one after the last.
    part : int
        Number of the segment among those of the piece.
    """

    piece: Piece
    start: int
    stop: int
    part: int = 0

    def __len__(self) -> int:
        return self.stop - self.start


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
    segments : tuple of Segment
        Where the source finds the rows.
    """

    start: int
    n_rows: int
    where: str
    segments: tuple[Segment, ...] = field(repr=False)


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
    joined = min(most, _JOINED_BYTES // max(row_bytes, 1))
    chunks: list[Chunk] = []
    start = 0
    for segments in _joined(_segments(pieces, most, divide=divide), joined):
        n_rows = sum(map(len, segments))
        where = _name(segments[0], segments[-1])
        chunks.append(Chunk(start=start, n_rows=n_rows, where=where, segments=segments))
        start += n_rows
    return tuple(chunks)


def segment_at(segments: Sequence[Segment], row: int) -> tuple[Piece, int]:
    """Return the piece of a row of a chunk, and the row's number within it.

    Examples
    --------
    >>> a, b = Piece("a", "a", 3), Piece("b", "b", 9)
    >>> piece, number = segment_at([Segment(a, 0, 3), Segment(b, 4, 9)], 5)
    >>> piece.where, number
    ('b', 6)
    """
    for segment in segments:
        if row < len(segment):
            break
        row -= len(segment)
    return segment.piece, segment.start + row


def _segments(pieces: Iterable[Piece], most: int, *, divide: bool) -> Iterator[Segment]:
    for piece in pieces:
        if piece.n_rows:
            cuts = cuts_of(piece.n_rows, most) if divide else [0, piece.n_rows]
            for part, (start, stop) in enumerate(pairwise(cuts)):
                yield Segment(piece, start, stop, part)


def _joined(segments: Iterator[Segment], most: int) -> Iterator[tuple[Segment, ...]]:
    group: list[Segment] = []
    for segment in segments:
        if group and sum(map(len, group)) + len(segment) > most:
            yield tuple(group)
            group = []
        group.append(segment)
    if group:
        yield tuple(group)


def _name(first: Segment, last: Segment) -> str:
    where = first.piece.where
    if where and first is not last:
        return f"{where} to {last.piece.where}"
    if where and len(first) == first.piece.n_rows:
        return where
    start, stop = first.start + first.piece.origin, last.stop + last.piece.origin
    rows = f"rows {spaced(start)} to {spaced(stop - 1)}"
    return f"{where}, {rows}" if where else rows
