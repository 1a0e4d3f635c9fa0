"""Execution of tasks by threads, processes or a cluster, with results in order."""

import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from platform import python_version_tuple
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import cloudpickle

from pymc_coresets.exceptions import CoresetError, InvalidOptionError, warn_user
from pymc_coresets.rows.memory import n_cores, one_blas_thread

LOOK_SECONDS = 1.0  #: Interval of checks on the workers.
_SILENCE, _PATIENCE = 10.0, 1_800.0  # seconds without any worker: until a warning, and an error


@dataclass(frozen=True)
class Task:
    """A few chunks to process.

    Parameters
    ----------
    chunks : sequence of Chunk
    given : sequence, optional
        One input for each chunk.
    """

    chunks: Sequence[Any]
    given: Sequence[Any] = ()

    @property
    def where(self) -> str:
        """Location of the rows, for messages."""
        first, last = self.chunks[0].where, self.chunks[-1].where
        return first if len(self.chunks) == 1 else f"{first} to {last}"


class Pending(Protocol):
    """What both kinds of futures have, those of `concurrent.futures` and those of Dask."""

    def add_done_callback(self, function: Callable[..., object], /) -> object:
        """Call a function when the task has ended."""

    def cancel(self) -> object:
        """Do not begin the task."""


class HasSubmit(Protocol):
    """An executor of `concurrent.futures`, or the client of a Dask cluster."""

    def submit(self, function: Callable[..., object], /, *args: object) -> Pending:
        """Call a function elsewhere, and return its future."""


class Threads:
    """One thread of this process for each core.

    Examples
    --------
    >>> tasks = [Task([], [2]), Task([], [3])]
    >>> list(Threads().map(lambda rows, task: rows ** task.given[0], 5, tasks))
    [25, 125]
    """

    def map[T](
        self, function: Callable[..., T], rows: object, tasks: Sequence[Task]
    ) -> Iterator[T]:
        """Yield ``function(rows, task)`` in the order of the tasks.

        `rows` may be a `portion` with only the chunks of the task.  Waiting tasks are cancelled if
        the iterator is closed, or fails.
        """
        with ThreadPoolExecutor(n_cores()) as pool:
            yield from Pool(pool).map(function, rows, tasks)


@dataclass(frozen=True)
class Pool:
    """An executor of `concurrent.futures`, or anything with such a `submit`."""

    executor: Executor

    def map[T](self, function: Callable[..., T], rows: Any, tasks: Sequence[Task]) -> Iterator[T]:  # noqa: ANN401
        """See `Threads.map`."""
        n_bytes = most_bytes = 2**29  # limit on the total size of tasks submitted ahead

        def submit_here(task: Task) -> Future[Any]:
            with _named_errors(task):
                return self.executor.submit(_here, function, rows, task)

        def submit_elsewhere(task: Task) -> Future[Any]:
            nonlocal n_bytes
            with _named_errors(task):
                portion, found = rows.portion(task.chunks)
                sent = packed((portion.with_tables(found), task))
                n_bytes = len(work) + len(sent)
                return self.executor.submit(perform, versions(), work, sent)

        def finished(future: Future[object], task: Task) -> Any:  # noqa: ANN401
            with _named_errors(task):
                return future.result()

        def n_ahead() -> int:  # an executor does not say how many tasks it can work on
            return min(max(2 * n_cores(), most_bytes // n_bytes), 1024)

        submit = submit_here
        if not isinstance(self.executor, ThreadPoolExecutor):
            work, submit = packed(function), submit_elsewhere
        yield from in_order(tasks, submit, finished, n_ahead)


@contextmanager
def _named_errors(task: Task) -> Iterator[None]:
    """Report the task at which an executor broke, or that it was shut down."""
    try:
        yield
    except (BrokenExecutor, CancelledError, RuntimeError) as error:
        broken = isinstance(error, BrokenExecutor | CancelledError)
        if not broken and "shutdown" not in str(error):
            raise
        raise CoresetError(
            f"The executor failed on {task.where}, or on rows next to these: "
            f"{str(error) or type(error).__name__}. If it was shut down, keep it open for as long "
            "as the coreset is checked. If a process ended abruptly, it was probably killed for "
            "lack of memory: make a new executor with fewer processes. Or a script needs "
            '`if __name__ == "__main__":`, since the processes are spawned.',
            topic="executors-and-clusters",
        ) from error


def _here[T](function: Callable[..., T], rows: object, task: Task) -> T:
    with one_blas_thread():
        return function(rows, task)


def in_order[T, F: Pending](
    tasks: Sequence[Task],
    submit: Callable[[Task], F],
    finished: Callable[[F, Task], "T | Failure"],
    n_ahead: Callable[[], int],
    idle: Callable[[Task], None] = lambda _: None,
) -> Generator[T]:
    """Submit tasks, a few ahead, and yield their results in order; cancel the rest at the end.

    `idle` is called with the awaited task, every second in which no task has ended.  A task that
    failed for a transient reason is retried twice; one that killed its worker is retried once,
    alone.
    """
    done: SimpleQueue[int] = SimpleQueue()
    waiting, tries = deque(range(len(tasks))), Counter[int]()
    alone: set[int] = set()
    futures: dict[int, F] = {}
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


# -- a cluster -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """The workers that a client of `dask.distributed` reaches.

    The tasks of a worker that dies are repeated, since they are pure functions.  There are no more
    tasks at a time than the workers have threads: Dask counts a death against all tasks assigned to
    a worker, and fails those with four.  Such a task is then retried once, alone, to identify the
    one that kills workers.

    If there is no worker for ten seconds, there is a warning; work continues once some join.  After
    half an hour, or Dask's own ``distributed.scheduler.no-workers-timeout``, there is an error.
    """

    client: Any

    @property
    def _dask(self) -> Any:  # noqa: ANN401 - optional, and loaded when it is needed
        from pymc_coresets.compat import dask_api  # noqa: PLC0415

        return dask_api

    def map[T](self, function: Callable[..., T], rows: Any, tasks: Sequence[Task]) -> Iterator[T]:  # noqa: ANN401
        """See `Threads.map`."""
        self._require_open()
        work = packed(function)
        name = getattr(function, "func", function).__name__.strip("_")

        def submit(task: Task) -> Pending:
            portion, found = rows.portion(task.chunks, to_dask=True)
            sent = packed((portion, task))
            tables = [list(map(self._computed, some)) for some in found]
            given = (versions(), work, sent, tables)
            future: Pending = self._dask.submitted(self.client, name, _in_a_worker, *given)
            return future

        yield from in_order(
            tasks,
            submit,
            self._finished,
            lambda: max(self._n_threads(), 1),
            lambda task: self.await_workers(task.where),
        )

    def await_workers(self, where: str) -> None:
        """Wait until there are workers.

        Parameters
        ----------
        where : str
            The rows to read, for messages.

        Raises
        ------
        CoresetError
            If no worker joins.

        Warns
        -----
        CoresetWarning
            If no worker joins within ten seconds.
        """
        start, told = time.monotonic(), False
        limit = self._dask.no_workers_timeout() or _PATIENCE
        while not self._n_threads():
            waited = time.monotonic() - start
            said = (
                f"The Dask cluster has had no workers for {waited:.0f} seconds, and {where} is "
                "waiting for some: start them, for instance by cluster.scale(4), or read the logs "
                f"of those that died, possibly for lack of memory. After {limit:.0f} seconds, "
                "Dask's distributed.scheduler.no-workers-timeout, the work is aborted."
            )
            if waited > limit:
                raise CoresetError(said, topic="executors-and-clusters")
            if waited > _SILENCE and not told:
                told = True
                warn_user(said)
            time.sleep(LOOK_SECONDS)

    def _n_threads(self) -> int:
        try:
            return int(self._dask.n_threads(self.client))
        except (OSError, TimeoutError) as error:
            raise CoresetError(
                f"The scheduler of the Dask cluster cannot be reached: {_sentence(error)}",
                topic="executors-and-clusters",
            ) from error

    def _computed(self, value: object) -> Any:  # noqa: ANN401
        """Replace collections by futures, which the cluster computes where the data are."""
        if isinstance(value, Mapping):
            return dict(zip(value, self.client.compute(list(value.values())), strict=True))
        return self.client.compute(value)

    def _finished(self, future: Any, task: Task) -> Any:  # noqa: ANN401
        try:
            return future.result()
        except self._dask.KILLED as error:
            killed = CoresetError(
                f"{error.allowed_failures + 1} workers died, one after the other, while they read "
                f"or evaluated {task.where}: probably for lack of memory. Give each worker more "
                "memory, or fewer threads; see their logs for details.",
                topic="executors-and-clusters",
            )
            return Failure(killed, tries=2, deadly=True)
        except (CancelledError, self._dask.UNMANNED, ModuleNotFoundError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                raise
            self._require_open()
            raise CoresetError(
                f"The cluster failed on {task.where}: {_sentence(error)} Workers, and the "
                "scheduler, need the same version of pymc-coresets as this process. Data that were "
                "scattered, or persisted without their source, are lost with the worker that held "
                "them: open the files themselves with open_rows.",
                topic="executors-and-clusters",
            ) from error

    def _require_open(self) -> None:
        if self.client.status != "running":
            raise CoresetError(
                f"The Client of the Dask cluster is {self.client.status}: keep it open for as long "
                "as the coreset is checked, or read the coreset from a file with another "
                "(from_netcdf).",
                topic="executors-and-clusters",
            )


def _sentence(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") + "."


#: Maps functions over tasks.
type Engine = Threads | Pool | Cluster


def engine_of(executor: HasSubmit | None) -> Engine:
    """Return the engine for the user's ``executor=``.

    Raises
    ------
    InvalidOptionError
        If it is neither an executor nor a client of a Dask cluster.

    Examples
    --------
    >>> type(engine_of(None)).__name__
    'Threads'
    >>> engine_of(4)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: executor=4 must be a concurrent.futures.Executor,
    such as a ProcessPoolExecutor, or a dask.distributed.Client. (docs: troubleshooting#arguments)
    """
    if executor is None:
        return Threads()
    if type(executor).__module__.partition(".")[0] == "distributed":
        from pymc_coresets.compat.dask_api import is_client  # noqa: PLC0415

        if is_client(executor):
            return Cluster(executor)
    if isinstance(executor, type) or not isinstance(executor, Executor):
        raise InvalidOptionError(
            f"executor={executor!r} must be a concurrent.futures.Executor, such as a "
            "ProcessPoolExecutor, or a dask.distributed.Client."
        )
    return Pool(executor)


def no_rows_for(executor: object) -> InvalidOptionError:
    """Return the error for an executor without ``rows=``."""
    return InvalidOptionError(
        f"executor={executor!r}: only rows=open_rows(...) are read and evaluated elsewhere. The "
        "data of the model itself are evaluated by threads of this process; leave executor out."
    )


# -- in other processes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """An expected error as the result of a task, without the traceback of another process."""

    error: CoresetError
    tries: int = 1  # attempts; more if the operating system or a network failed
    deadly: bool = False


def perform(expected: Mapping[str, str], work: bytes, sent: bytes, *tables: object) -> object:
    """Process a task in another process.

    Parameters
    ----------
    expected : mapping of str
        Versions of the packages in the process that pickled the function.
    work : bytes
        The function; unpickled once for many tasks.
    sent : bytes
        The rows and the task.
    *tables : sequence
        Rows that a cluster holds, see `RowSource.with_tables`.

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
    for held in tables:
        rows = rows.with_tables(held)
    try:
        return _here(_unpacked(work), rows, task)
    except CoresetError as error:
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError | PermissionError):
            said = f"{error.message} All workers need to see it under this path."
            return Failure(type(error)(said, topic=error.topic))
        return Failure(error, tries=3 if isinstance(cause, OSError) else 1)
    except MemoryError:
        return Failure(
            CoresetError(
                f"There is not enough memory for {task.where}: give each process more, or use "
                "fewer.",
                topic="executors-and-clusters",
            )
        )


@cache
def versions() -> dict[str, str]:
    """Return the package versions that must agree in all processes."""
    found = {"python": ".".join(python_version_tuple()[:2])}
    for package in ("pymc-coresets", "pymc", "pytensor", "numba", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def packed(value: object) -> bytes:
    """Pickle an object for another process.

    Raises
    ------
    InvalidOptionError
        If it cannot be pickled.
    """
    try:
        data: bytes = cloudpickle.dumps(value)
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        raise InvalidOptionError(
            f"This cannot be sent to other processes: {error}. Leave executor=... out, or open "
            "files with open_rows."
        ) from error
    return data


def _in_a_worker(*args: Any) -> object:  # noqa: ANN401
    from pymc_coresets.compat.dask_api import keep_freed_memory  # noqa: PLC0415

    keep_freed_memory()
    return perform(*args)


@lru_cache(maxsize=8)
def _unpacked(work: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(work)
    return function
