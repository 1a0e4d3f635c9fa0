"""How the pieces of a source become chunks: small ones are joined, large ones are divided."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pymc_coresets.rows.chunks import Chunk
from pymc_coresets.rows.first_reading import spaced

__all__ = ["BLOCK_ROWS", "Piece", "Segment", "chunks_of", "cuts_of", "segment_at"]

BLOCK_ROWS = 2**17
_JOINED_BYTES = 2**27  # of small pieces that are read together


@dataclass(frozen=True)
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
    """

    where: str
    file: str
    n_rows: int
    origin: int = 0


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one piece, numbered within it.

    Parameters
    ----------
    piece : int
        Number of the piece.
    start, stop : int
        First row, and the one after the last.
    part : int
        Number of the segment among those of the piece.
    """

    piece: int
    start: int
    stop: int
    part: int = 0


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
    pieces: Sequence[Piece], *, most: int = BLOCK_ROWS, divide: bool = True, row_bytes: int = 0
) -> tuple[Chunk, ...]:
    """Join and divide pieces into chunks of at most `most` rows; the key is a tuple of segments.

    Parameters
    ----------
    pieces : sequence of Piece
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
    chunks: list[Chunk] = []
    start = 0
    joined = min(most, _JOINED_BYTES // max(row_bytes, 1))
    for segments in _joined(_segments(pieces, most, divide=divide), joined):
        n_rows = sum(segment.stop - segment.start for segment in segments)
        where = _name(pieces, segments)
        chunks.append(Chunk(start=start, n_rows=n_rows, where=where, key=segments))
        start += n_rows
    return tuple(chunks)


def segment_at(segments: Sequence[Segment], row: int) -> tuple[int, int]:
    """Return the piece of a row of a chunk, and the row's number within it.

    Examples
    --------
    >>> segment_at([Segment(0, 0, 3), Segment(2, 4, 9)], 5)
    (2, 6)
    """
    starts = [0]
    for segment in segments:
        starts.append(starts[-1] + segment.stop - segment.start)
    which = bisect_right(starts, row) - 1
    return segments[which].piece, segments[which].start + row - starts[which]


def _segments(pieces: Sequence[Piece], most: int, *, divide: bool) -> Iterator[Segment]:
    for number, piece in enumerate(pieces):
        cuts = cuts_of(piece.n_rows, most) if divide and piece.n_rows else [0, piece.n_rows]
        for part in range(len(cuts) - 1):
            if cuts[part + 1] > cuts[part]:
                yield Segment(number, cuts[part], cuts[part + 1], part)


def _joined(segments: Iterator[Segment], most: int) -> Iterator[tuple[Segment, ...]]:
    group: list[Segment] = []
    n_rows = 0
    for segment in segments:
        size = segment.stop - segment.start
        if group and n_rows + size > most:
            yield tuple(group)
            group, n_rows = [], 0
        group.append(segment)
        n_rows += size
    if group:
        yield tuple(group)


def _name(pieces: Sequence[Piece], segments: Sequence[Segment]) -> str:
    first, last = segments[0], segments[-1]
    piece, where = pieces[first.piece], pieces[first.piece].where
    if where and len(segments) > 1:
        return f"{where} to {pieces[last.piece].where}"
    if where and first.stop - first.start == piece.n_rows:
        return where
    stop = last.stop + pieces[last.piece].origin
    rows = f"rows {spaced(first.start + piece.origin)} to {spaced(stop - 1)}"
    return f"{where}, {rows}" if where else rows
