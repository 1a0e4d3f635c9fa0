"""Tasks: who works on them, threads or other processes, and their results in order."""

import pickle
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from platform import python_version_tuple
from queue import Empty, SimpleQueue
from typing import Any, Protocol

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
        work = None if isinstance(self.executor, ThreadPoolExecutor) else packed(function)
        n_bytes = _BYTES_AHEAD

        def submit(task: Task) -> Any:  # noqa: ANN401
            nonlocal n_bytes
            with _named_errors(task):
                if work is None:
                    return self.executor.submit(_here, function, rows, task)
                portion, found = rows.portion(task.chunks)
                sent = packed((portion if found is None else portion.with_tables(found), task))
                n_bytes = len(work) + len(sent)
                return self.executor.submit(perform, versions(), work, sent)

        def finished(future: Any, task: Task) -> Any:  # noqa: ANN401
            with _named_errors(task):
                return future.result()

        def n_ahead() -> int:
            return min(max(2 * n_cores(), _BYTES_AHEAD // n_bytes), _MOST_AHEAD)

        yield from in_order(tasks, submit, finished, n_ahead)


@contextmanager
def _named_errors(task: Task) -> Iterator[None]:
    """Say where an executor broke, or that it was shut down."""
    try:
        yield
    except (BrokenExecutor, CancelledError, RuntimeError) as error:
        broken = isinstance(error, BrokenExecutor | CancelledError)
        if not broken and "shutdown" not in str(error):
            raise
        raise CoresetError(
            f"The executor gave up its work on {task.where}, or on rows beside these: "
            f"{str(error) or type(error).__name__}. If it was shut down, keep it open for as long "
            "as the coreset is checked. If a process ended at once, it was probably killed for "
            "want of memory: make a new executor with fewer processes. Or a script lacks "
            '`if __name__ == "__main__":`, which processes need that are spawned.'
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
    that failed for a passing reason is done again, twice; one that killed whoever worked on it
    once, with nothing beside it.
    """
    done: SimpleQueue[int] = SimpleQueue()
    waiting, tries = deque(range(len(tasks))), Counter[int]()
    alone: set[int] = set()
    futures: dict[int, Any] = {}
    results: dict[int, T] = {}
    try:
        for wanted in range(len(tasks)):
            while wanted not in results:
                while waiting and len(futures) < (1 if alone else n_ahead()):
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
                alone.discard(number)
                if not isinstance(outcome, Failure):
                    results[number] = outcome
                elif tries[number] < outcome.tries:
                    waiting.appendleft(number)
                    alone |= {number} if outcome.deadly else set()
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
    tries: int = 1  # until it is raised: more where the operating system or a network failed
    deadly: bool = False


def perform(
    expected: Mapping[str, str], work: bytes, sent: bytes, tables: Sequence[Any] | None = None
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
        return _here(_unpacked(work), rows, task)
    except CoresetError as error:
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError | PermissionError):
            said = f"{error.message} All workers need to see it under this path."
            return Failure(type(error)(said, topic=error.topic))
        return Failure(error, tries=_N_TRIES if isinstance(cause, OSError) else 1)
    except MemoryError:
        return Failure(
            CoresetError(
                f"There is not enough memory for {task.where}: give each process more, or use "
                "fewer."
            )
        )


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
