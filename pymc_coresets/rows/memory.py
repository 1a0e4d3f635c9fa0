"""Rows in the memory of this process: samples, passes by its threads, merging of equal ones."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from threading import Lock
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from pymc_coresets.deadline import here, paced, stop_if_late
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.keyed import FirstRows, RowSample
from pymc_coresets.rows.passes import BlockPass, RowBlocks
from pymc_coresets.rows.proportional import hit_by
from pymc_coresets.rows.values import NO_UNIT_ROWS, Rows, UnitRows

#: Least number of rows of a task: a second or more of log-likelihoods, and eight chunks, so that
#: reading a chunk twice, for two tasks, costs little.
TASK_ROWS = 2**20

# An odd constant near 2**64 divided by the golden ratio: multiplying by it spreads the low bits.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

_lock = Lock()
_users = 0
_limits: Any = None

type Columns = Sequence[np.ndarray]


class InMemoryRows(RowBlocks):
    """All rows of some data, as arrays; the only place that holds arrays as long as the data.

    Parameters
    ----------
    arrays : sequence of ndarray
        The data, each array with the rows along its first axis.  They are not copied.
    case_weights : ndarray of shape (n_rows,), optional
        Number of rows that each row represents; 1 by default.
    positions : ndarray of int64, of shape (n_rows,), optional
        Positions in the user's data, sorted and unique; 0, 1, ... by default.
    unit_rows : UnitRows, optional
        The rows of units.
    place : callable, optional
        Maps a position to the row's location in the user's data, for messages.

    Raises
    ------
    InvalidDataError
        If the case weights are not finite and non-negative, or all 0.

    Examples
    --------
    >>> rows = InMemoryRows([np.array([2.0, 3.0, 5.0])])
    >>> rows.n_rows, rows.total_weight, rows.take(np.array([1])).arrays
    (3, 3.0, (array([3.]),))
    >>> float(rows.subsample(4, key=1).weights.sum())
    3.0
    """

    def __init__(
        self,
        arrays: Sequence[np.ndarray],
        case_weights: NDArray[np.float64] | None = None,
        positions: NDArray[np.int64] | None = None,
        *,
        unit_rows: UnitRows = NO_UNIT_ROWS,
        place: Callable[[int], str] = "observation {}".format,
    ) -> None:
        self._place = place
        numbers = np.arange(len(arrays[0])) if positions is None else positions
        n_rows = len(numbers)
        weights = np.ones(n_rows) if case_weights is None else np.asarray(case_weights, float)
        if weights.shape != (n_rows,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
            raise InvalidDataError(
                f"case_weights must be {n_rows} finite, non-negative numbers, not all 0, but have "
                f"shape {weights.shape} and sum {weights.sum()}",
                topic="rows-and-files",
            )
        self.all = Rows(numbers, weights, tuple(arrays), unit_rows)
        self._total_weight = float(weights.sum())

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Hold rows that are in memory already, with their case weights."""
        return cls(rows.arrays, rows.case_weights, rows.positions, unit_rows=rows.unit_rows)

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return len(self.all)

    @property
    def total_weight(self) -> float:
        """Sum of the case weights."""
        return self._total_weight

    def take(self, which: NDArray[np.int64] | slice) -> Rows:
        """Return the rows with the numbers `which` among these."""
        return self.all.take(which)

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows that have the given positions in the user's data.

        Raises
        ------
        InvalidDataError
            If there is no row at a position.
        """
        found = np.minimum(self.all.where(positions), self.n_rows - 1)
        missing = np.flatnonzero(self.all.positions[found] != positions)
        if missing.size:
            raise InvalidDataError(
                f"The data have no row at position {positions[missing[0]]}: it is out of range, "
                "or its value is missing.",
                topic="rows-and-files",
            )
        return self.take(found)

    def blocks(self, size: int) -> Iterator[Rows]:
        """Split the rows into consecutive blocks, without copying the data."""
        return self.all.blocks(size)

    def reduce[T](self, work: BlockPass[T]) -> T:
        """Add up the results of blocks, which threads compute."""
        groups = list(self.blocks(TASK_ROWS))
        blocks = chain.from_iterable(group.blocks(work.size) for group in groups)
        return reduced_by_threads(work, blocks, list(map(len, groups)))

    def place(self, position: int) -> str:
        """Return the location of a row in the user's data, for messages."""
        return self._place(position)

    def earliest(self, size: int, key: int) -> RowSample:
        """Return the first rows in the random order of a key, see `RowBlocks`."""
        return FirstRows.of(self.all, key).subsample(size, total=self.total_weight)

    def hit(self, points: NDArray[np.float64]) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows in whose share of the total weight points lie, see `RowBlocks`."""
        which, counts = hit_by(self.all.case_weights, points)
        return self.take(which), counts


def reduced_by_threads[T](work: BlockPass[T], blocks: Iterable[Rows], groups: Sequence[int]) -> T:
    """Add up the results of blocks, first within each group of rows, then over the groups.

    Floating-point sums depend on the order, so all engines use this one.

    Parameters
    ----------
    work : BlockPass
    blocks : iterable of Rows
        In order, each of ``work.size`` rows but for the last one of a group.
    groups : sequence of int
        Number of rows of each group.
    """
    with one_blas_thread():
        n_blocks = [-(-n_rows // work.size) for n_rows in groups]
        parts = in_threads(work.begin(), blocks, sum(n_blocks))
        return work.joined(work.joined(islice(parts, number)) for number in n_blocks)


def in_threads[B, T](use: Callable[[B], T], blocks: Iterable[B], n_blocks: int = 0) -> Iterator[T]:
    """Yield the function of each block, in their order, computed in one thread per core.

    The first block is computed alone, because it may compile functions.  None begins after the
    deadline of `deadline.until`, which the threads know.  If their number is given, blocks that
    will take long are announced.

    Examples
    --------
    >>> import numpy as np
    >>> list(in_threads(len, Rows(np.arange(5), np.ones(5)).blocks(2)))
    [2, 2, 1]
    """
    pending, elsewhere = iter(blocks), here(use)
    queue: deque[Future[T]] = deque()
    # Blocks run in parallel, so BLAS threads inside them would only compete.
    with (
        one_blas_thread(),
        ThreadPoolExecutor(n_cores()) as pool,
        paced("", n_blocks, "blocks of rows") as count,
    ):
        stop_if_late()
        for first in map(use, islice(pending, 1)):
            count(1)
            yield first
        queue.extend(pool.submit(elsewhere, block) for block in islice(pending, 2 * n_cores()))
        try:
            while queue:
                result = queue.popleft().result()
                count(1)
                queue.extend(pool.submit(elsewhere, block) for block in islice(pending, 1))
                yield result
        finally:
            for waiting in queue:
                waiting.cancel()


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _libraries() -> ThreadpoolController:
    # Finding the libraries reads the memory map of the process, which takes as long as many blocks.
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread until the last thread leaves this context.

    For matrices of a few hundred rows, other threads mostly wait for each other: with two, and
    another process beside them, a construction took five times as long.  The number of threads is
    a setting of the whole process, and affects the last bits of results.
    """
    global _users, _limits  # noqa: PLW0603 - as BLAS has it
    with _lock:
        _users += 1
        if _users == 1:
            _limits = _libraries().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limits.restore_original_limits()


def collapse_rows(arrays: Columns, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Merge rows that are equal in every array, and so have the same log-likelihood.

    Exact: rows of the same hash are compared with the first of them.  Time O(N) times the length
    of a row; memory O(N).

    Parameters
    ----------
    arrays : sequence of ndarray
        Everything that is indexed by the observation, each array with the N rows along its first
        axis.
    n_rows : int
        N.

    Returns
    -------
    which : ndarray of int64
        The first row of each kind, sorted.
    counts : ndarray of float64
        How many rows are equal to it; they sum to N.

    Examples
    --------
    >>> collapse_rows([np.array([1, 0, 1, 1])], 4)
    (array([0, 1]), array([3., 1.]))
    """
    if not arrays:
        return np.zeros(1, dtype=np.int64), np.array([float(n_rows)])
    numbers, first = numbered_rows(arrays, n_rows)
    return first, np.bincount(numbers).astype(float)


def numbered_rows(arrays: Columns, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the kinds of rows that are equal in every array, as they appear.

    Exact, as `collapse_rows`.

    Returns
    -------
    numbers : ndarray of int64
        The kind of each row.
    first : ndarray of int64
        The first row of each kind, sorted.

    Examples
    --------
    >>> numbered_rows([np.array([5, 3, 5])], 3)
    (array([0, 1, 0]), array([0, 1]))
    """
    columns = _columns(arrays, n_rows)
    numbers, first = _kinds(columns, n_rows)
    if all(np.array_equal(c, c[first][numbers]) for c in columns):
        return numbers, first
    return _sorted_apart(columns)


def numbered_units(
    unit_rows: UnitRows, arrays: Columns, n_units: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the kinds of units with equal data and equal rows in any order, as they appear.

    Exact, as `collapse_rows`.  Time O(N log N) for N rows.

    Parameters
    ----------
    unit_rows : UnitRows
        The rows of all units.
    arrays : sequence of ndarray
        The data of the units themselves.
    n_units : int

    Returns
    -------
    numbers : ndarray of int64
        The kind of each unit.
    first : ndarray of int64
        The first unit of each kind, sorted.

    Examples
    --------
    >>> unit_rows = UnitRows(np.array([2, 1, 2]), np.arange(5), (np.array([1, 0, 1, 0, 1]),))
    >>> numbered_units(unit_rows, [], 3)
    (array([0, 1, 0]), array([0, 1]))
    """
    columns = _columns(unit_rows.arrays, len(unit_rows.positions))
    hashes = _hashes(columns, len(unit_rows.positions))
    units = np.repeat(np.arange(n_units), unit_rows.sizes)
    order = np.lexsort((hashes, units))  # now rows of equal units are in the same order
    of_rows = np.zeros(n_units, dtype=np.uint64)
    np.add.at(of_rows, units, (hashes ^ (hashes >> np.uint64(32))) * _MULTIPLIER)
    own = [*_columns(arrays, n_units), unit_rows.sizes.astype(np.uint64), of_rows]
    numbers, first = _kinds(own, n_units)
    same = first[numbers]
    ends = np.cumsum(unit_rows.sizes)
    within = np.arange(len(units)) - (ends - unit_rows.sizes)[units]
    others = (ends - unit_rows.sizes)[same][units] + within
    if all(np.array_equal(c, c[same]) for c in own[:-1]) and all(
        np.array_equal(c[order], c[order][others]) for c in columns
    ):
        return numbers, first
    return np.arange(n_units), np.arange(n_units)  # two kinds have the same hash


def _kinds(
    columns: Sequence[NDArray[np.uint64]], n_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the hashes of rows as they appear, and return the first row of each."""
    kinds, found = pd.factorize(_hashes(columns, n_rows))
    first = np.empty(len(found), dtype=np.int64)
    first[kinds[::-1]] = np.arange(n_rows)[::-1]  # the last assignment wins
    return kinds, first


def may_collapse(arrays: Columns, n_rows: int) -> bool:
    """Whether merging can pay: not all of a few thousand evenly spread rows are distinct.

    Rare equal rows, such as pairs, are not detected.

    Examples
    --------
    >>> may_collapse([np.arange(100)], 100), may_collapse([np.arange(100) // 2], 100)
    (False, True)
    """
    n_probed = min(n_rows, 20_000)
    rows = np.sort(np.random.default_rng(n_rows).choice(n_rows, n_probed, replace=False))
    which, _ = collapse_rows([array[rows] for array in arrays], n_probed)
    return len(which) < 0.99 * n_probed


def _columns(arrays: Columns, n_rows: int) -> list[NDArray[np.uint64]]:
    """Return the bits of each column as whole numbers."""
    columns = [c for array in arrays for c in array.reshape(n_rows, -1).T]
    # Adding zero makes -0.0 and 0.0 the same key.
    return [(c + 0.0).astype(float).view(np.uint64) if c.dtype.kind == "f"
            else c.astype(np.int64).view(np.uint64) for c in columns]  # fmt: skip


def _hashes(columns: Sequence[NDArray[np.uint64]], n_rows: int) -> NDArray[np.uint64]:
    hashes = np.zeros(n_rows, dtype=np.uint64)
    for column in columns:
        hashes ^= column
        hashes *= _MULTIPLIER
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _sorted_apart(
    columns: Sequence[NDArray[np.uint64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number equal rows by sorting the rows themselves, if two kinds have the same hash."""
    rows = np.stack(columns, axis=1)
    _, first, numbers = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[numbers.ravel()], first[order]
