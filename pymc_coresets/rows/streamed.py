"""Rows that are read chunk by chunk on demand, possibly after the rows of a coreset."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.deadline import paced
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.executors import Engine, Task, Threads
from pymc_coresets.rows.first_reading import ChunkNotes, FirstReading
from pymc_coresets.rows.keyed import FirstRows, RowSample, Smallest, waiting_times
from pymc_coresets.rows.memory import InMemoryRows, reduced_by_threads
from pymc_coresets.rows.passes import BlockPass, RowBlocks
from pymc_coresets.rows.proportional import hit_by, points_of_parts
from pymc_coresets.rows.sources.readers import Chunk
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.rows.values import Rows, converted, in_blocks


def unwatched(n_rows: int, n_total: int) -> None:
    """Show nothing of a reading of all rows."""
    del n_rows, n_total


@dataclass(frozen=True, eq=False)
class StreamedRows(RowBlocks):
    """The columns that a model needs of rows that are read chunk by chunk.

    Memory: two chunks, for a short time three, and the result of a method.

    Parameters
    ----------
    source : RowSource
        Where the chunks are read from.
    columns : mapping of str to dtype
        The columns to read, in the order of the rows' arrays, with the types of these.
    first : FirstReading, optional
        The first reading, from which later ones must not differ.
    engine : Engine, optional
        Reads and evaluates the rows; by default, threads of this process.  Not included in pickles:
        unpickled rows use threads.
    watch : callable
        Called with the number of rows that a reading of all rows has finished, and N.
    initial_sample : FirstRows
        Rows that the first reading has kept, for samples with the same key.
    start : int, default 0
        Position of the first row, if other rows precede these.

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
    columns: Mapping[str, np.dtype]
    first: FirstReading | None = None
    engine: Engine = field(default_factory=Threads)
    watch: Callable[[int, int], None] = unwatched
    initial_sample: FirstRows = field(default_factory=FirstRows.none)
    start: int = 0

    def __getstate__(self) -> dict[str, object]:
        return {n: getattr(self, n) for n in ("source", "columns", "first", "start")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(StreamedRows(**state)))

    def moved(self, start: int) -> "StreamedRows | InMemoryRows":
        """Return the same at other positions; in memory, if the first reading kept all rows."""
        moved, kept = replace(self, start=start), self.initial_sample
        if len(kept.rows) < max(self.n_rows, 1):
            return replace(moved, initial_sample=FirstRows.none())
        positions = start + np.arange(self.n_rows)
        weights = kept.rows.case_weights
        return InMemoryRows(kept.rows.arrays, weights, positions, place=moved.place)

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.source.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the case weights."""
        return float(self._heights[-1])

    def place(self, position: int) -> str:
        """Return the location of a row in the user's data, for messages."""
        return self.source.locate(position - self.start)

    def blocks(self, size: int) -> Iterator[Rows]:
        """Read all rows in blocks of `size`, independent of the chunks."""
        return in_blocks(self._in_advance(), size)

    def reduce[T](self, work: BlockPass[T]) -> T:
        """Read all rows, and add up what is computed from their blocks.

        Blocks do not cross tasks. With any engine, results are added up within tasks, and then over
        tasks in their order.
        """
        if not isinstance(self.engine, Threads):
            add_up = partial(StreamedRows._reduced, work=work)
            return work.joined(self._of_tasks(add_up))
        with closing(self._in_advance()) as found:
            parts = self._watched(found, [chunk.n_rows for chunk in self.source.chunks])
            runs = (in_blocks(islice(parts, len(chunks)), work.size) for chunks in self._runs)
            return reduced_by_threads(work, chain.from_iterable(runs), self._run_sizes)

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows at the given positions, by reading the chunks that contain them.

        Raises
        ------
        InvalidDataError
            If there is no row at a position.
        """
        positions = np.sort(positions) - self.start
        for position in positions[(positions < 0) | (positions >= self.n_rows)][-1:]:
            raise InvalidDataError(
                f"There is no row at position {position + self.start}.", topic="rows-and-files"
            )
        starts = [chunk.start for chunk in self.source.chunks[1:]]
        inside = np.split(positions, np.searchsorted(positions, starts))
        tasks = self._tasks_given([len(some) > 0 for some in inside], inside)
        if not tasks:
            return self.read(self.source.chunks[0]).take(slice(0, 0))
        return Rows.joined(list(self.engine.map(StreamedRows._rows_at, self, tasks)))

    def examine(self, size: int = 0, *, key: int = 0) -> tuple[FirstReading, FirstRows]:
        """Read all columns of the source, and note ranges, problems and hashes.

        Keeps rows for distinct samples of at most `size` rows with that key. It keeps fewer if they
        would take more than 128 MB, and none if some cannot be used.
        """
        size = min(size, self.n_rows, self.most_kept)
        work = partial(StreamedRows._examined, key=key, share=size / self.n_rows)
        parts = list(self._of_tasks(work))
        first = FirstReading.joined([notes for part, _ in parts for notes in part])
        some = (found for _, found in parts)
        return first, FirstRows.joined(some, size + 1)

    @property
    def most_kept(self) -> int:
        """Largest number of rows kept by the first reading: 128 MB."""
        columns = self.source.columns
        each = (math.prod(columns[n].shape) * dtype.itemsize for n, dtype in self.columns.items())
        return int(2**27 // (16 + sum(each)))  # position and case weight

    # -- sampling ------------------------------------------------------------------------------

    def hit(self, points: NDArray[np.float64]) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows in whose share of the total weight points lie, see `RowBlocks`."""
        pairs = list(points_of_parts(points, self._heights))
        tasks = self._tasks_given([len(some) > 0 for _, some in pairs], pairs)
        parts = list(self.engine.map(StreamedRows._hit, self, tasks))
        counts = np.concatenate([counts for _, counts in parts])
        return Rows.joined([rows for rows, _ in parts]), counts

    def earliest(self, size: int, key: int) -> RowSample:
        """Return the first rows in the random order of a key, see `RowBlocks`."""
        if self.initial_sample.key == key and self.initial_sample.has(size):
            return self.initial_sample.subsample(size, total=self.total_weight)
        find = partial(StreamedRows._first_rows, size=size + 1, key=key)
        parts = self.engine.map(find, replace(self, columns={}), list(map(Task, self._runs)))
        first = FirstRows.joined(parts, size + 1)
        chosen = first.subsample(size, total=self.total_weight)
        return replace(chosen, rows=self.at(chosen.rows.positions))

    @cached_property
    def _heights(self) -> NDArray[np.float64]:
        """Sums of the case weights of all rows before each chunk, and of all."""
        if self.first is None:
            bare = replace(self, columns={})
            weights = [float(bare.read(chunk).case_weights.sum()) for chunk in self.source.chunks]
        else:
            weights = [self.first.chunks[chunk.start].total_weight for chunk in self.source.chunks]
        heights: NDArray[np.float64] = np.cumsum([0.0, *weights])
        if not 0 < heights[-1] < np.inf:
            raise InvalidDataError(
                f"The case weights sum to {heights[-1]}: there are no rows.", topic="rows-and-files"
            )
        return heights

    # -- tasks ---------------------------------------------------------------------------------

    @cached_property
    def _runs(self) -> list[list[Chunk]]:
        """The chunks of each task, which depend on the layout alone."""
        # This process stores the results of all tasks, so there are at most 2,048.
        least = max(self.source.task_rows, self.n_rows // 2048)
        runs: list[list[Chunk]] = []
        for chunk in self.source.chunks:
            enough = not runs or chunk.start - runs[-1][0].start >= least
            if enough and self.source.may_begin(chunk):
                runs.append([])
            runs[-1].append(chunk)
        return runs

    @property
    def _run_sizes(self) -> list[int]:
        return [sum(chunk.n_rows for chunk in chunks) for chunks in self._runs]

    def _of_tasks[T](self, function: Callable[..., T]) -> Iterator[T]:
        """Yield the function's result for each task, in the order of the tasks."""
        parts = self.engine.map(function, self, list(map(Task, self._runs)))
        return self._watched(parts, self._run_sizes)

    def _watched[T](self, parts: Iterable[T], sizes: Iterable[int]) -> Iterator[T]:
        """Report the number of rows of the finished parts."""
        n_rows = 0
        with paced("", self.n_rows, "rows") as count:
            for part, size in zip(parts, sizes, strict=True):
                n_rows += size
                self.watch(n_rows, self.n_rows)
                count(size)
                yield part

    def _tasks_given(self, is_read: Sequence[bool], given: Sequence[object]) -> list[Task]:
        """Return tasks for the chunks that are read, with their inputs."""
        every = zip(self.source.chunks, given, is_read, strict=True)
        used = [
            [(c, some) for c, some, wanted in islice(every, len(run)) if wanted]
            for run in self._runs
        ]
        return [Task([c for c, _ in run], [some for _, some in run]) for run in used if run]

    def portion(
        self, chunks: Sequence[Chunk], *, to_dask: bool = False
    ) -> tuple["StreamedRows", list[list[object]]]:
        """Return the rows of some chunks in the form sent to other processes.

        See `RowSource.portion`.
        """
        source, waiting = self.source.portion(chunks, list(self.columns), to_dask=to_dask)
        first = None if self.first is None else self.first.of(c.start for c in chunks)
        return StreamedRows(source, self.columns, first, start=self.start), waiting

    def with_tables(self, found: Sequence[Sequence[object]]) -> "StreamedRows":
        """Return a portion with its rows, see `RowSource.with_tables`."""
        return replace(self, source=self.source.with_tables(found))

    # -- work of a task, in any process --------------------------------------------------------

    def _reduced[T](self, task: Task, work: BlockPass[T]) -> T:
        """Add up the results of the blocks of the chunks."""
        return work.joined(map(work.begin(), in_blocks(map(self.read, task.chunks), work.size)))

    def _rows_at(self, task: Task) -> Rows:
        """Return the rows of the chunks that have the given positions."""
        pairs = zip(task.chunks, task.given, strict=True)
        return Rows.joined([self.read(chunk).take(some - chunk.start) for chunk, some in pairs])

    def _hit(self, task: Task) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows in whose share of the total weight points lie, and how many do.

        The input of each chunk is the weight of the rows before it, and the points.
        """
        parts, counts = [], []
        for chunk, (height, points) in zip(task.chunks, task.given, strict=True):
            whole = self.read(chunk)
            which, n_points = hit_by(whole.case_weights, points, before=height)
            parts.append(whole.take(which))
            counts.append(n_points)
        return Rows.joined(parts), np.concatenate(counts)

    def _first_rows(self, task: Task, size: int, key: int) -> FirstRows:
        """Return the rows with the smallest waiting times."""
        return FirstRows.joined((FirstRows.of(self.read(c), key) for c in task.chunks), size)

    def _examined(self, task: Task, key: int, share: float) -> tuple[list[ChunkNotes], FirstRows]:
        """Note ranges, problems and hashes of the chunks, and keep a share of their rows.

        It keeps the rows with the smallest waiting times, twice the expected share, because the
        chosen ones are spread at random. If some values cannot be used, it keeps none.
        """
        wanted = share * sum(chunk.n_rows for chunk in task.chunks)
        kept = Smallest(math.ceil(2 * wanted + 8 * math.sqrt(wanted)))
        notes, is_kept = [], share > 0
        for chunk in task.chunks:
            arrays, weights, found = self.source.examine(chunk)
            notes.append(found)
            is_kept = is_kept and not found.problems
            if is_kept:
                rows = self.rows_of(chunk, arrays, weights)
                kept.add(rows, waiting_times(rows.positions, rows.case_weights, key))
        if not is_kept:
            return notes, FirstRows.none(key)
        return notes, FirstRows(*kept.cut(), kept.limit, key)

    # -- reading -------------------------------------------------------------------------------

    def read(self, chunk: Chunk) -> Rows:
        """Read a chunk.

        Raises
        ------
        InvalidDataError
            If it differs from the first reading, or a case weight is invalid.
        """
        found, weights = self.source.weighted(chunk, list(self.columns))
        if self.first is not None:
            self.first.verify(chunk.start, found)
        return self.rows_of(chunk, found, weights)

    def rows_of(
        self, chunk: Chunk, found: Mapping[str, np.ndarray], weights: NDArray[np.float64]
    ) -> Rows:
        """Return the rows of a chunk that was read, with the columns of the model.

        Raises
        ------
        InvalidDataError
            If numbers do not fit into the model's types.
        """
        arrays = tuple(
            converted(name, found[name], dtype, chunk.where) for name, dtype in self.columns.items()
        )
        positions = self.start + chunk.start + np.arange(chunk.n_rows)
        return Rows(positions, weights, arrays)

    def _in_advance(self) -> Generator[Rows]:
        """Read the chunks one after the other, each while the previous one is in use."""
        chunks = self.source.chunks
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self.read, chunks[0])
            for chunk in chunks[1:]:
                found, coming = coming, reader.submit(self.read, chunk)
                yield found.result()
            yield coming.result()


@dataclass(frozen=True, eq=False)
class ExtendedRows(RowBlocks):
    """The rows of a coreset, which represent data no longer available, and all new rows.

    They are a source of rows, see `RowBlocks`.

    Parameters
    ----------
    old : Rows
        At their positions; their weights are their case weights.
    new : StreamedRows
        At positions beyond those of the old ones.
    places : mapping of int to str
        Locations of the old rows, for messages.

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
        """Sum of the case weights."""
        return self._held.total_weight + self.new.total_weight

    def blocks(self, size: int) -> Iterator[Rows]:
        """Read all rows, in blocks of `size`; only the last one may be smaller."""
        return in_blocks(chain([self.old], self.new.blocks(size)), size)

    def reduce[T](self, work: BlockPass[T]) -> T:
        """Add up the results of the old rows, and then of the new ones."""
        return work.joined([self._held.reduce(work), self.new.reduce(work)])

    def earliest(self, size: int, key: int) -> RowSample:
        """Return all old rows with their weights, and a sample of the new ones."""
        few = self.new.earliest(max(size - len(self.old), 1), key)
        weights = np.concatenate([self.old.case_weights, few.weights])
        return RowSample(rows=Rows.joined([self.old, few.rows]), weights=weights)

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
        """Return the location of a row in the user's data, for messages."""
        if position in self.places:
            return self.places[position]
        return f"{self.new.place(position)} of the new rows"

    def holding(self, rows: Rows, columns: Mapping[str, np.dtype]) -> "ExtendedRows":
        """Return the same with other arrays of the old rows, and other columns of the new ones."""
        return replace(self, old=rows, new=replace(self.new, columns=columns))

    @property
    def _held(self) -> InMemoryRows:
        return InMemoryRows.of(self.old)
