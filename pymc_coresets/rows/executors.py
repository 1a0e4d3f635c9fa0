"""Tasks: who works on them, threads or other processes, and their results in order."""

import os
import pickle
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version_tuple
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import get_ident
from typing import Any, Protocol, Self

import cloudpickle

from pymc_coresets.exceptions import CoresetError, InvalidOptionError
from pymc_coresets.rows.memory import n_cores, one_blas_thread
from pymc_coresets.rows.sources.chunks import Chunk

_PACKAGES = ("pymc-coresets", "pymc", "pytensor", "numba", "numpy")
LOOK_SECONDS = 1.0  #: After which whoever works is looked at.
_N_TRIES = 3  # where an operating system or a network failed
_MOST_AHEAD = 1024  # tasks that an executor is given; it does not say how many it can work on
_BYTES_AHEAD = 2**29  # that these hold together


@dataclass(frozen=True)
class Task:
    """Some chunks to work on.

    Parameters
    ----------
    chunks : sequence of Chunk
    given : sequence, optional
        Something for each chunk.
    """

    chunks: Sequence[Chunk]
    given: Sequence[Any] = ()

    @property
    def parts(self) -> list[Self]:
        """A task for each chunk."""
        return [
            replace(self, chunks=self.chunks[i : i + 1], given=self.given[i : i + 1])
            for i in range(len(self.chunks))
        ]

    @property
    def where(self) -> str:
        """Say where the rows lie, for messages."""
        first, last = self.chunks[0].where, self.chunks[-1].where
        return first if len(self.chunks) == 1 else f"{first} to {last}"


class Engine(Protocol):
    """Maps a function over tasks."""

    def map[T](self, function: Callable[..., T], rows: Any, tasks: Sequence[Task]) -> Iterator[T]:  # noqa: ANN401
        """Yield ``function(rows, task)`` in the order of the tasks.

        `rows` may be a `portion` with no other chunks than those of the task.  What still waits is
        cancelled when the iterator is closed, or fails.
        """


class Threads:
    """One thread of this process for each core.

    Examples
    --------
    >>> tasks = [Task([], [2]), Task([], [3])]
    >>> list(Threads().map(lambda rows, task: rows ** task.given[0], 5, tasks))
    [25, 125]
    """

    def map[T](self, function: Callable[..., T], rows: Any, tasks: Sequence[Task]) -> Iterator[T]:  # noqa: ANN401
        """See `Engine.map`."""
        with ThreadPoolExecutor(n_cores()) as pool:
            yield from Pool(pool).map(function, rows, tasks)


@dataclass(frozen=True)
class Pool:
    """An executor of `concurrent.futures`, or anything with such a `submit`."""

    executor: Executor

    def map[T](self, function: Callable[..., T], rows: Any, tasks: Sequence[Task]) -> Iterator[T]:  # noqa: ANN401
        """See `Engine.map`."""
        with TemporaryDirectory(prefix="pymc_coresets_") as notes:
            work = None if isinstance(self.executor, ThreadPoolExecutor) else packed(function)
            n_bytes = _BYTES_AHEAD

            def submit(task: Task) -> Any:  # noqa: ANN401
                nonlocal n_bytes
                with _named_errors(task, notes):
                    if work is None:
                        return self.executor.submit(_here, function, rows, task)
                    portion, found = rows.portion(task.chunks)
                    whole = portion if found is None else portion.with_tables(found)
                    sent = packed((whole, task))
                    n_bytes = len(work) + len(sent)
                    return self.executor.submit(perform, versions(), work, sent, None, notes)

            def finished(future: Any, task: Task) -> Any:  # noqa: ANN401
                with _named_errors(task, notes):
                    return future.result()

            def n_ahead() -> int:
                return min(max(2 * n_cores(), _BYTES_AHEAD // n_bytes), _MOST_AHEAD)

            yield from in_order(tasks, submit, finished, n_ahead)


@contextmanager
def _named_errors(task: Task, notes: str) -> Iterator[None]:
    """Say where an executor broke, or that it was shut down."""
    try:
        yield
    except BrokenExecutor as error:
        where = " or ".join(noted_places(notes)) or f"{task.where}, or before it began"
        raise CoresetError(
            f"A process of the executor ended at once, at {where}. It was probably killed for want "
            "of memory: make a new executor with fewer processes. Or a script lacks "
            '`if __name__ == "__main__":`, which processes need that are spawned.'
        ) from error
    except CancelledError as error:
        raise CoresetError(
            f"The executor gave up its work on {task.where}: it was shut down, or has lost what "
            "that needs."
        ) from error
    except RuntimeError as error:
        if "shutdown" not in str(error):
            raise
        raise CoresetError(
            "The executor was shut down: keep it open for as long as the coreset is checked, or "
            "read the coreset from a file with another (from_netcdf)."
        ) from error


def _here[T](function: Callable[..., T], rows: Any, task: Task) -> T:  # noqa: ANN401
    with one_blas_thread():
        return function(rows, task)


def in_order[T](
    tasks: Sequence[Task],
    submit: Callable[[Task], Any],
    finished: Callable[[Any, Task], Any],
    n_ahead: Callable[[], int],
    idle: Callable[[Task], None] = lambda _: None,
) -> Generator[T]:
    """Submit tasks, a few ahead, and yield their results in order; cancel the rest in the end.

    `idle` is called with a task that is waited for, every second in which none has ended.  A task
    that failed for a passing reason is done again, twice.
    """
    done: SimpleQueue[int] = SimpleQueue()
    waiting, tries = deque(range(len(tasks))), Counter[int]()
    futures: dict[int, Any] = {}
    results: dict[int, T] = {}
    try:
        for wanted in range(len(tasks)):
            while wanted not in results:
                while waiting and len(futures) < n_ahead():
                    number = waiting.popleft()
                    futures[number] = submit(tasks[number])
                    futures[number].add_done_callback(lambda _, number=number: done.put(number))
                try:
                    number = done.get(timeout=LOOK_SECONDS)
                except Empty:
                    idle(tasks[next(iter(futures))])
                    continue
                outcome = finished(futures.pop(number), tasks[number])
                tries[number] += 1
                if not isinstance(outcome, Failure):
                    results[number] = outcome
                elif outcome.passing and tries[number] < _N_TRIES:
                    waiting.appendleft(number)
                else:
                    raise outcome.error
            yield results.pop(wanted)
    finally:
        for future in futures.values():
            future.cancel()


# -- in other processes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """An error that a task found on purpose, as its result: no traceback of another process."""

    error: CoresetError
    passing: bool = False  # of the operating system or the network


def perform(
    expected: Mapping[str, str],
    work: bytes,
    sent: bytes,
    tables: Sequence[Any] | None = None,
    notes: str = "",
) -> Any:  # noqa: ANN401
    """Work on a task, in another process.

    Parameters
    ----------
    expected : mapping of str
        The versions of packages that the function was made with.
    work : bytes
        The function; unpickled once for many tasks.
    sent : bytes
        The rows and the task.
    tables : sequence, optional
        Rows that a cluster holds.
    notes : str, optional
        A folder for notes, see `noted_places`.

    Returns
    -------
    object
        What the function returns, or a `Failure`.
    """
    differing = [f"{n} {v} (here {expected[n]})" for n, v in versions().items() if v != expected[n]]
    if differing:
        return Failure(
            InvalidOptionError(
                f"The workers have other versions than this process: {', '.join(differing)}. "
                "Install the same ones everywhere."
            )
        )
    rows, task = pickle.loads(sent)
    if tables is not None:
        rows = rows.with_tables(tables)
    try:
        with one_blas_thread(), _noting(task, notes) as noted:
            return _unpacked(work)(rows, noted)
    except CoresetError as error:
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError | PermissionError):
            said = f"{error.message} All workers need to see it under this path."
            return Failure(type(error)(said, topic=error.topic))
        return Failure(error, passing=isinstance(cause, OSError))
    except MemoryError:
        return Failure(
            CoresetError(
                f"There is not enough memory for {task.where}: give each process more, or use "
                "fewer."
            )
        )


@contextmanager
def _noting(task: Task, folder: str) -> Iterator[Task]:
    """Yield the task; whoever iterates over its chunks notes the one that is worked on."""
    if not Path(folder).is_absolute() or not Path(folder).is_dir():  # on another machine, perhaps
        yield task
        return
    note = Path(folder, f"{os.getpid()}-{get_ident()}")
    try:
        yield replace(task, chunks=_Noted(task.chunks, note))
    finally:
        note.unlink(missing_ok=True)


class _Noted(list[Chunk]):
    def __init__(self, chunks: Sequence[Chunk], note: Path) -> None:
        super().__init__(chunks)
        self._note = note

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in super().__iter__():
            self._note.write_text(chunk.where, encoding="utf-8")
            yield chunk


def noted_places(folder: str) -> list[str]:
    """Return the places of the chunks that processes worked on when they ended."""
    return sorted(note.read_text(encoding="utf-8") for note in Path(folder).iterdir())


@cache
def versions() -> dict[str, str]:
    """Return the versions that must be the same in all processes."""
    found = {"python": ".".join(python_version_tuple()[:2])}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def packed(value: Any) -> bytes:  # noqa: ANN401
    """Pickle what is sent to another process.

    Raises
    ------
    InvalidOptionError
        If it cannot be.
    """
    try:
        data: bytes = cloudpickle.dumps(value)
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        raise InvalidOptionError(
            f"This cannot be sent to other processes: {error}. Leave executor=... out, or open "
            "files with open_rows."
        ) from error
    return data


@lru_cache(maxsize=8)
def _unpacked(work: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(work)
    return function
