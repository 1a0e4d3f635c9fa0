"""What a task does with its chunks: pure functions, which engines send to where they run."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.engines.executors import Task
from pymc_coresets.rows.fingerprints import ChunkNotes
from pymc_coresets.rows.keyed import waiting_times, weights_of_first
from pymc_coresets.rows.passes import Pass, Scan, Smallest, smallest
from pymc_coresets.rows.sources.layout import Chunk
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.values import Rows

__all__ = [
    "FirstRows",
    "earliest_rows",
    "examined",
    "in_blocks",
    "reduced",
    "rows_at",
    "sample_rows",
]


class ReadRows(Protocol):
    """Rows that are read by chunks, see `StreamedRows`."""

    @property
    def source(self) -> RowSource: ...
    def read(self, chunk: Chunk) -> Rows: ...
    def rows_of(
        self, chunk: Chunk, found: Mapping[str, NDArray[Any]], weights: NDArray[np.float64] | None
    ) -> Rows: ...


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


def reduced[T](work: Pass[T], rows: ReadRows, task: Task) -> T:
    """Add up what is computed from the blocks of the chunks."""
    return work.joined(map(work.begin(), in_blocks(map(rows.read, task.chunks), work.size)))


def rows_at(rows: ReadRows, task: Task) -> Rows:
    """Return the rows of the chunks that have the given positions."""
    pairs = zip(task.chunks, task.given, strict=True)
    return Rows.joined([rows.read(chunk).take(some - chunk.start) for chunk, some in pairs])


def sample_rows(rows: ReadRows, task: Task) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows in whose share of the total weight points lie, and how many do.

    Given for each chunk: the weight of the rows before it, and the points.
    """
    parts, counts = [], []
    for chunk, (height, points) in zip(task.chunks, task.given, strict=True):
        whole = rows.read(chunk)
        # One by one, as the sums of all rows in memory.
        heights = np.cumsum(np.append(height, whole.base_weights))[1:]
        which = np.searchsorted(heights, points, side="right")
        which = np.minimum(which, np.flatnonzero(whole.base_weights)[-1])
        which, n_points = np.unique(which, return_counts=True)
        parts.append(whole.take(which))
        counts.append(n_points)
    return Rows.joined(parts), np.concatenate(counts)


# -- rows that come first in a random order --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FirstRows:
    """Rows that come first in a random order of all, and perhaps some more.

    Parameters
    ----------
    rows : Rows
    times : ndarray of shape (len(rows),)
        Their `waiting_times`.
    limit : float
        All rows whose times are smaller are here; infinite where all rows are.
    key : int
        Of the order.

    Examples
    --------
    >>> rows = Rows(np.arange(3), np.ones(3))
    >>> first = FirstRows(rows, np.array([0.3, 0.1, 0.2]), 0.3, key=1)
    >>> first.sample(1, total=10.0).rows.positions, first.sample(3, total=10.0)
    (array([1]), None)
    """

    rows: Rows
    times: NDArray[np.float64]
    limit: float
    key: int

    @classmethod
    def joined(cls, parts: Sequence["FirstRows | None"], size: int) -> "FirstRows | None":
        """Return the first `size` rows, and one more, of consecutive parts of all rows."""
        kept, limit, key = Smallest(size + 1), math.inf, 0
        for part in parts:
            if part is None:
                return None
            kept.add(part.rows, part.times)
            limit, key = min(limit, part.limit), part.key
        rows, times = kept.cut()
        here = np.flatnonzero(times <= limit)
        return cls(rows.take(here), times[here], min(limit, kept.limit), key)

    def sample(self, size: int, *, total: float) -> Scan | None:
        """Return the first `size` rows, of all that weigh `total`; None if some are not here."""
        chosen, beyond = smallest(self.times, size)
        if beyond > self.limit:
            return None
        rows = self.rows.take(chosen)
        return Scan(rows=rows, weights=weights_of_first(rows.base_weights, beyond, total))


def earliest_rows(rows: ReadRows, task: Task, size: int, key: int) -> FirstRows:
    """Return the rows with the smallest waiting times."""
    kept = Smallest(size)
    for chunk in task.chunks:
        _keep_earliest(kept, rows.read(chunk), key)
    return FirstRows(*kept.cut(), kept.limit, key)


def examined(
    rows: ReadRows, task: Task, key: int = 0, share: float = 0.0
) -> tuple[list[ChunkNotes], FirstRows | None]:
    """Note ranges, problems and fingerprints of the chunks, and keep a share of their rows.

    Those with the smallest waiting times: twice as many as will be wanted of them, for these may be
    anywhere.  Where values cannot be used, none are kept, for all will be refused.
    """
    wanted = share * sum(chunk.n_rows for chunk in task.chunks)
    kept = Smallest(math.ceil(2 * wanted + 8 * math.sqrt(wanted))) if share else None
    notes = []
    for chunk in task.chunks:
        arrays, found = rows.source.examine(chunk)
        notes.append(found)
        if found.problems:
            kept = None
        if kept is not None:
            weights = rows.source.weights(chunk)
            _keep_earliest(kept, rows.rows_of(chunk, arrays, weights), key)
    return notes, None if kept is None else FirstRows(*kept.cut(), kept.limit, key)


def _keep_earliest(kept: Smallest, rows: Rows, key: int) -> None:
    times = waiting_times(rows.positions, rows.base_weights, key)
    early = np.flatnonzero(np.isfinite(times) & (times < kept.limit))
    kept.add(rows.take(early), times[early])
    kept.cut()
