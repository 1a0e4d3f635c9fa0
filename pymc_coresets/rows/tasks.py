"""What a task does with its chunks: pure functions, which engines send to where they run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.chunks import Chunk, RowSource
from pymc_coresets.rows.first_reading import ChunkScan
from pymc_coresets.rows.keyed import numbers_of
from pymc_coresets.rows.source import Pass
from pymc_coresets.rows.values import Rows

__all__ = ["drawn", "examined", "foremost", "in_blocks", "reduced", "smallest", "taken"]


class ReadRows(Protocol):
    """Rows that are read by chunks."""

    @property
    def source(self) -> RowSource:
        """Where from."""

    def read(self, chunk: Chunk) -> Rows:
        """Read a chunk."""

    def weights(self, chunk: Chunk) -> NDArray[np.float64]:
        """Read the base weights of a chunk."""


def in_blocks(parts: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Cut consecutive rows into blocks of `size`; only the last one may be smaller."""
    left: list[Rows] = []  # less than a block
    n_left = 0
    for part in parts:
        n_taken = min(size - n_left, len(part))
        left.append(part.take(slice(0, n_taken)))
        n_left += n_taken
        if n_left < size:
            continue
        yield Rows.joined(left)
        left = []  # which would keep the part before this one in memory
        # Whole blocks of a part are views of it: only what lies across a border is copied.
        n_left = (len(part) - n_taken) % size
        yield from part.take(slice(n_taken, len(part) - n_left)).blocks(size)
        left = [part.take(slice(len(part) - n_left, None))] if n_left else []
    if n_left:
        yield Rows.joined(left)


def reduced[T](work: Pass[T], rows: ReadRows, chunks: Sequence[Chunk]) -> T:
    """Add up what is computed from the blocks of the chunks."""
    return work.joined(map(work.begin(), in_blocks(map(rows.read, chunks), work.size)))


def examined(rows: ReadRows, chunks: Sequence[Chunk]) -> list[ChunkScan]:
    """Note ranges, problems and fingerprints of the chunks."""
    return [rows.source.examine(chunk)[1] for chunk in chunks]


def taken(rows: ReadRows, chunks: Sequence[Chunk], positions: Sequence[NDArray[np.int64]]) -> Rows:
    """Return the rows of the chunks that have some positions."""
    pairs = zip(chunks, positions, strict=True)
    return Rows.joined([rows.read(chunk).take(some - chunk.start) for chunk, some in pairs])


def drawn(
    rows: ReadRows,
    chunks: Sequence[Chunk],
    points: Sequence[tuple[float, NDArray[np.float64]]],
) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows in whose share of the total weight points lie, and how many do."""
    parts, counts = [], []
    for chunk, (height, some) in zip(chunks, points, strict=True):
        whole = rows.read(chunk)
        # One by one, as the sums of all rows in memory.
        heights = np.cumsum(np.append(height, whole.base_weights))[1:]
        which = np.searchsorted(heights, some, side="right")
        which = np.minimum(which, np.flatnonzero(whole.base_weights)[-1])
        which, n_points = np.unique(which, return_counts=True)
        parts.append(whole.take(which))
        counts.append(n_points)
    return Rows.joined(parts), np.concatenate(counts)


def foremost(
    rows: ReadRows, chunks: Sequence[Chunk], size: int, key: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the positions with the smallest ``-log(U_n) / u_n``, and these."""
    found, order = np.empty(0, dtype=np.int64), np.empty(0)
    for chunk in chunks:
        positions = chunk.start + np.arange(chunk.n_rows)
        with np.errstate(divide="ignore"):
            own = -np.log1p(-numbers_of(positions, key)) / rows.weights(chunk)
        finite = np.isfinite(own)
        found, order = np.append(found, positions[finite]), np.append(order, own[finite])
        found, order = smallest(found, order, size)
    return found, order


def smallest(
    positions: NDArray[np.int64], order: NDArray[np.float64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the `size` positions that come first in an order, and their places in it."""
    if len(positions) <= size:
        return positions, order
    kept = np.argpartition(order, size - 1)[:size]
    return positions[kept], order[kept]
