"""Rows that are read chunk by chunk, whenever they are needed: no array is as long as the data."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import CoresetError, InvalidDataError
from pymc_coresets.rows.chunks import Chunk, RowSource
from pymc_coresets.rows.keyed import numbers_of
from pymc_coresets.rows.source import Scan
from pymc_coresets.rows.values import Rows

__all__ = ["AbsentRows", "StreamedRows"]


@dataclass(frozen=True, eq=False)
class StreamedRows:
    """The columns that a model needs of rows that are read chunk by chunk.

    Memory: two chunks, and what a method returns.

    Parameters
    ----------
    source : RowSource
        Where the chunks are read from.
    columns : mapping of str to dtype
        The columns to read, in the order of the arrays of the rows, and the types of these.
    verify : callable, optional
        Refuses the arrays of a chunk that starts at some position if they are no longer those of
        the first reading.

    Examples
    --------
    >>> from pymc_coresets import open_rows
    >>> pairs = open_rows([{"x": np.array([2.0, 3.0])}, {"x": np.array([5.0, 7.0])}])
    >>> rows = StreamedRows(pairs, {"x": np.dtype(float)})
    >>> [block.arrays[0] for block in rows.blocks(3)]
    [array([2., 3., 5.]), array([7.])]
    >>> rows.at(np.array([1, 3])).arrays
    (array([3., 7.]),)
    """

    source: RowSource
    columns: Mapping[str, np.dtype[Any]]
    verify: Callable[[int, Mapping[str, NDArray[Any]]], None] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.source.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the base weights."""
        return float(self._heights[-1])

    def place(self, position: int) -> str:
        """Say where the user finds a row, for messages."""
        return self.source.locate(position)

    def blocks(self, size: int) -> Iterator[Rows]:
        """Read all rows in blocks of `size`, whose borders do not depend on those of the chunks."""
        left: list[Rows] = []  # less than a block
        n_left = 0
        for chunk in self._in_advance():
            left.append(chunk)
            n_left += len(chunk)
            if n_left >= size:
                rows = Rows.joined(left)
                n_left = len(rows) % size
                yield from rows.take(slice(0, len(rows) - n_left)).blocks(size)
                left = [rows.take(slice(len(rows) - n_left, None))] if n_left else []
        if n_left:
            yield Rows.joined(left)

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows that have the given positions: reads the chunks that they lie in.

        Raises
        ------
        InvalidDataError
            If there is no row at a position.
        """
        if len(positions) and not 0 <= positions.min() <= positions.max() < self.n_rows:
            raise InvalidDataError(f"There is no row at position {positions.max()}.")
        parts = [self._nothing]
        for chunk in self.source.chunks:
            inside = (positions >= chunk.start) & (positions < chunk.start + chunk.n_rows)
            if inside.any():
                parts.append(self._read(chunk).take(positions[inside] - chunk.start))
        return Rows.joined(parts)

    def scan(self, size: int, *, key: int, distinct: bool = False) -> Scan:
        """Sample rows in proportion to their base weights, see `Potentials.scan`.

        The same rows as those of `InMemoryRows.scan`.
        """
        return self._distinct(size, key) if distinct else self._with_replacement(size, key)

    # -- sampling ------------------------------------------------------------------------------

    def _with_replacement(self, size: int, key: int) -> Scan:
        total = self.total_weight
        points = np.sort(np.random.default_rng(key).random(size) * total)
        # Rounding may lift a point onto the total, where no mass lies.
        points = np.minimum(points, np.nextafter(total, 0.0))
        borders = np.searchsorted(points, self._heights)
        parts = [self._nothing]
        weights: list[NDArray[np.float64]] = [np.empty(0)]
        for i in np.flatnonzero(np.diff(borders)).tolist():
            chunk, some = self.source.chunks[i], points[borders[i] : borders[i + 1]]
            heights = _running_sums(self._heights[i], self._weights(chunk))[1:]
            drawn, counts = np.unique(
                np.searchsorted(heights, some, side="right"), return_counts=True
            )
            parts.append(self._read(chunk).take(drawn))
            weights.append(np.asarray(counts * (total / size), dtype=np.float64))
        return Scan(rows=Rows.joined(parts), weights=np.concatenate(weights))

    def _distinct(self, size: int, key: int) -> Scan:
        """Keep the rows with the smallest ``-log(U_n) / u_n`` (Efraimidis and Spirakis 2006)."""
        found, order = np.empty(0, dtype=np.int64), np.empty(0)
        for chunk in self.source.chunks:
            positions = chunk.start + np.arange(chunk.n_rows)
            with np.errstate(divide="ignore"):
                own = -np.log1p(-numbers_of(positions, key)) / self._weights(chunk)
            found = np.concatenate([found, positions[np.isfinite(own)]])
            order = np.concatenate([order, own[np.isfinite(own)]])
            if len(found) > size:
                kept = np.argpartition(order, size - 1)[:size]
                found, order = found[kept], order[kept]
        rows = self.at(np.sort(found))
        return Scan(rows=rows, weights=np.full(len(rows), self.total_weight / len(rows)))

    @cached_property
    def _heights(self) -> NDArray[np.float64]:
        """Sums of the base weights of all rows before each chunk, and of all."""
        heights = [0.0]
        for chunk in self.source.chunks:
            heights.append(float(_running_sums(heights[-1], self._weights(chunk))[-1]))
        if not 0 < heights[-1] < np.inf:
            raise InvalidDataError(f"The base weights sum to {heights[-1]}: there are no rows.")
        return np.array(heights)

    # -- reading -------------------------------------------------------------------------------

    @cached_property
    def _nothing(self) -> Rows:
        """No rows, with arrays of the right shapes."""
        return self._read(self.source.chunks[0]).take(slice(0, 0))

    def _in_advance(self) -> Iterator[Rows]:
        """Read the chunks one after the other, each while the one before is in use."""
        with ThreadPoolExecutor(1) as reader:
            waiting = None
            for chunk in self.source.chunks:
                coming = reader.submit(self._read, chunk)
                if waiting is not None:
                    yield waiting.result()
                waiting = coming
            if waiting is not None:
                yield waiting.result()

    def _read(self, chunk: Chunk) -> Rows:
        found = self.source.read(chunk, list(self.columns))
        if self.verify is not None:
            self.verify(chunk.start, found)
        arrays = tuple(
            np.asarray(found[name]).astype(dtype, casting="same_kind", copy=False)
            for name, dtype in self.columns.items()
        )
        lengths = {len(array) for array in arrays}
        if lengths != {chunk.n_rows}:
            raise InvalidDataError(
                f"{chunk.where} has {sorted(lengths)} rows, where {chunk.n_rows} were expected: it "
                "has changed since the rows were opened. Open them again."
            )
        return Rows(chunk.start + np.arange(chunk.n_rows), self._weights(chunk), arrays)

    def _weights(self, chunk: Chunk) -> NDArray[np.float64]:
        found = self.source.weights(chunk)
        if found is None:
            return np.ones(chunk.n_rows)
        weights: NDArray[np.float64] = np.asarray(found, dtype=np.float64)
        bad = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
        if bad.size:
            raise InvalidDataError(
                f"The base weight of {self.place(chunk.start + int(bad[0]))} is "
                f"{weights[bad[0]]}: base weights must be finite and not negative."
            )
        return weights


def _running_sums(before: float, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `before`, and the sums from there on: one by one, as those of all rows in memory."""
    sums: NDArray[np.float64] = np.cumsum(np.append(before, weights))
    return sums


@dataclass(frozen=True)
class AbsentRows:
    """Rows that were not given again: known by number, but nobody can read them.

    Examples
    --------
    >>> AbsentRows(1_000, 1_000.0).n_rows
    1000
    """

    n_rows: int
    total_weight: float

    def blocks(self, size: int) -> NoReturn:  # noqa: ARG002
        """Refuse to read."""
        raise self._error()

    def scan(self, size: int, *, key: int, distinct: bool = False) -> NoReturn:  # noqa: ARG002
        """Refuse to read."""
        raise self._error()

    def at(self, positions: NDArray[np.int64]) -> NoReturn:  # noqa: ARG002
        """Refuse to read."""
        raise self._error()

    def place(self, position: int) -> str:
        """Say where the user finds a row, for messages."""
        return f"row {position}"

    def _error(self) -> CoresetError:
        return CoresetError(
            "This coreset was read without the rows that it stands for: it can be sampled, but for "
            "this read it again with Coreset.from_netcdf(path, model, rows=...)."
        )
