"""The rows of a coreset, and new ones after them, as one source of rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.keyed import Scan
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import Pass, RowBlocks
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows, in_blocks


@dataclass(frozen=True, eq=False)
class ExtendedRows(RowBlocks):
    """The rows of a coreset, which stand for data that are gone, and all new rows.

    They are a source of rows, see `RowBlocks`.

    Parameters
    ----------
    old : Rows
        At their positions; their weights are their base weights.
    new : StreamedRows
        At positions beyond those of the old ones.
    places : mapping of int to str
        Where the old ones were found.

    Examples
    --------
    >>> from pymc_coresets import open_rows
    >>> old = Rows(np.array([4]), np.array([90.0]), (np.array([1.0]),))
    >>> opened = open_rows({"x": np.array([2.0, 3.0])})
    >>> new = StreamedRows(opened, {"x": np.dtype(float)}, start=90)
    >>> rows = ExtendedRows(old, new, {4: "row 4"})
    >>> [block.arrays[0].tolist() for block in rows.blocks(2)], rows.total_weight
    ([[1.0, 2.0], [3.0]], 92.0)
    >>> rows.at(np.array([4, 91])).arrays, rows.place(91)
    ((array([1., 3.]),), 'row 1 of the new rows')
    """

    old: Rows
    new: StreamedRows
    places: Mapping[int, str]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.old) + self.new.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the base weights."""
        return self._held.total_weight + self.new.total_weight

    def blocks(self, size: int) -> Iterator[Rows]:
        """Read all rows, in blocks of `size`; only the last one may be smaller."""
        return in_blocks(chain([self.old], self.new.blocks(size)), size)

    def reduce[T](self, work: Pass[T]) -> T:
        """Add up what is computed from the old rows, and then from the new ones."""
        return work.joined([self._held.reduce(work), self.new.reduce(work)])

    def earliest(self, size: int, key: int) -> Scan:
        """Return all old rows by their weights, which are few, and a sample of the new ones."""
        few = self.new.earliest(max(size - len(self.old), 1), key)
        weights = np.concatenate([self.old.base_weights, few.weights])
        return Scan(rows=Rows.joined([self.old, few.rows]), weights=weights)

    def hit(self, points: NDArray[np.float64]) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows in whose share of the total weight points lie, see `RowBlocks`."""
        border = self._held.total_weight
        old, new = np.split(points, [np.searchsorted(points, border)])
        parts = [self._held.hit(old)] if len(old) else []
        parts += [self.new.hit(new - border)] if len(new) else []
        counts = np.concatenate([counts for _, counts in parts])
        return Rows.joined([rows for rows, _ in parts]), counts

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows that have the given positions."""
        old = positions < self.new.start
        return Rows.joined([self._held.at(np.sort(positions[old])), self.new.at(positions[~old])])

    def place(self, position: int) -> str:
        """Say where the user finds a row, for messages."""
        known = self.places.get(position)
        return f"{self.new.place(position)} of the new rows" if known is None else known

    @property
    def in_memory(self) -> InMemoryRows:
        """All of them, read at once: for few rows."""
        every = Rows.joined(list(self.blocks(self.n_rows)))
        return InMemoryRows.of(every)

    def holding(self, rows: Rows, columns: Mapping[str, np.dtype[Any]]) -> "ExtendedRows":
        """Return the same with other arrays of the old rows, and others in turn of the new."""
        return replace(self, old=rows, new=replace(self.new, columns=columns))

    @property
    def _held(self) -> InMemoryRows:
        return InMemoryRows.of(self.old)
