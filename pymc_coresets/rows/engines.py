"""Who works on rows that lie elsewhere: threads, processes, or the workers of a cluster.

A pass over the rows is one pure function, mapped over tasks: some chunks, and what each of these
is given.  An engine says where it runs; what the tasks are depends on the layout of the rows, and
their results are added up in the order of the rows, so that all engines return the same bits.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from platform import python_version_tuple
from queue import SimpleQueue
from typing import Any, Protocol

import cloudpickle

from pymc_coresets.exceptions import CoresetError, InvalidOptionError
from pymc_coresets.rows.chunks import Chunk
from pymc_coresets.rows.passes import n_cores, one_blas_thread

__all__ = ["Call", "Engine", "Threads", "engine_of", "no_rows_for", "perform"]

_PACKAGES = ("pymc-coresets", "pymc", "pytensor", "numba", "numpy")
_MOST_AHEAD = 1024  # tasks that an executor is given; it does not say how many it can work on
_BYTES_AHEAD = 2**29  # that these hold together
_N_TRIES = 3  # where an operating system or a network failed
_ACCEPTED = (
    "a concurrent.futures.Executor, such as a ProcessPoolExecutor, or a dask.distributed.Client"
)


@dataclass(frozen=True)
class Call:
    """A task: some chunks, and the further arguments of the function that reads them."""

    chunks: Sequence[Chunk]
    args: tuple[Any, ...] = ()

    @property
    def where(self) -> str:
        """Say where the rows lie, for messages."""
        first, last = self.chunks[0].where, self.chunks[-1].where
        return first if len(self.chunks) == 1 else f"{first} to {last}"


class Portions(Protocol):
    """Rows of which some can be sent to another process."""

    def portion(self, chunks: Sequence[Chunk]) -> Any:  # noqa: ANN401
        """Return what stands for the rows of some chunks there."""

    def collections(self, chunks: Sequence[Chunk]) -> tuple[Any, Any] | None:
        """Return the same without rows, and the collections of Dask that these are; or None."""


class Engine(Protocol):
    """Maps a function over tasks."""

    def map[R: Portions, T](
        self, function: Callable[..., T], rows: R, calls: Sequence[Call]
    ) -> Iterator[T]:
        """Yield ``function(rows, call.chunks, *call.args)`` in the order of the calls.

        `rows` may be a portion with no other chunks than those.  What is still waiting is cancelled
        when the iterator is closed, or fails.
        """


class Threads:
    """One thread of this process for each core.

    Examples
    --------
    >>> calls = [Call([], (2,)), Call([], (3,))]
    >>> list(Threads().map(lambda rows, chunks, power: rows**power, 5, calls))
    [25, 125]
    """

    def map[R, T](self, function: Callable[..., T], rows: R, calls: Sequence[Call]) -> Iterator[T]:
        """See `Engine.map`."""
        with ThreadPoolExecutor(n_cores()) as pool:
            yield from Pool(pool).map(function, rows, calls)  # type: ignore[type-var]


@dataclass(frozen=True)
class Pool:
    """An executor of `concurrent.futures`, or anything with such a `submit`."""

    executor: Executor

    def map[R: Portions, T](
        self, function: Callable[..., T], rows: R, calls: Sequence[Call]
    ) -> Iterator[T]:
        """See `Engine.map`."""
        n_bytes = _BYTES_AHEAD
        if isinstance(self.executor, ThreadPoolExecutor):

            def submit(call: Call) -> Any:  # noqa: ANN401
                return self.executor.submit(_here, function, rows, call)
        else:
            work = packed(function)

            def submit(call: Call) -> Any:  # noqa: ANN401
                nonlocal n_bytes
                task = packed((rows.portion(call.chunks), call.chunks, call.args))
                n_bytes = len(work) + len(task)
                return self.executor.submit(perform, versions(), work, task)

        def n_ahead() -> int:
            return min(max(2 * n_cores(), _BYTES_AHEAD // n_bytes), _MOST_AHEAD)

        return in_order(calls, self._guarded(submit), self._finished, n_ahead)

    def _guarded(self, submit: Callable[[Call], Any]) -> Callable[[Call], Any]:
        def guarded(call: Call) -> Any:  # noqa: ANN401
            try:
                return submit(call)
            except BrokenExecutor as error:
                raise self._broken(call) from error
            except RuntimeError as error:
                if "shutdown" not in str(error):
                    raise
                raise CoresetError(
                    "The executor was shut down: keep it open for as long as the coreset is "
                    "checked, or read the coreset from a file with another (from_netcdf)."
                ) from error

        return guarded

    def _finished(self, future: Any, call: Call) -> Any:  # noqa: ANN401
        try:
            return future.result()
        except BrokenExecutor as error:
            raise self._broken(call) from error
        except CancelledError as error:
            raise CoresetError(
                f"The executor gave up its work on {call.where}: it was shut down, or has lost "
                "what that needs."
            ) from error

    def _broken(self, call: Call) -> CoresetError:
        return CoresetError(
            f"A process of the executor ended at once; {call.where} was waiting or being worked "
            "on. The process was probably killed for want of memory: make a new executor with "
            'fewer processes. Or a script lacks `if __name__ == "__main__":`, which processes need '
            "that are spawned."
        )


def engine_of(executor: Any) -> Engine:  # noqa: ANN401 - what users pass
    """Return the engine of what users pass as ``executor=``.

    Raises
    ------
    InvalidOptionError
        If it is no executor and no client of a Dask cluster.

    Examples
    --------
    >>> type(engine_of(None)).__name__
    'Threads'
    >>> engine_of(4)
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: executor=4 must be a concurrent.futures.Executor,
    such as a ProcessPoolExecutor, or a dask.distributed.Client.
    """
    if executor is None:
        return Threads()
    if type(executor).__module__.partition(".")[0] == "distributed":
        from pymc_coresets.rows.clusters import cluster_of  # noqa: PLC0415

        cluster = cluster_of(executor)
        if cluster is not None:
            return cluster
    if isinstance(executor, type) or not isinstance(executor, Executor):
        raise InvalidOptionError(f"executor={executor!r} must be {_ACCEPTED}.")
    return Pool(executor)


def no_rows_for(executor: object) -> InvalidOptionError:
    """Return the error where there is an executor, but no ``rows=``."""
    return InvalidOptionError(
        f"executor={executor!r}: only rows=open_rows(...) are read and evaluated elsewhere. The "
        "data of the model itself are evaluated by threads of this process; leave executor out."
    )


# -- tasks in other processes ----------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """An error that a task found on purpose, as its result: no traceback of another process."""

    error: CoresetError
    passing: bool = False  # of the operating system or the network
    suspect: bool = False  # whether the task, or another one beside it, kills workers


def perform(
    expected: Mapping[str, str], work: bytes, task: bytes, tables: Sequence[Any] | None = None
) -> Any:  # noqa: ANN401
    """Work on a task, in another process.

    Parameters
    ----------
    expected : mapping of str
        The versions of packages that the function was made with.
    work : bytes
        The function; unpickled once for many tasks.
    task : bytes
        The rows, the chunks, and further arguments.
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
    rows, chunks, args = pickle.loads(task)
    if tables is not None:
        rows = rows.with_tables(tables)
    try:
        with one_blas_thread():
            return _unpacked(work)(rows, chunks, *args)
    except CoresetError as error:
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError | PermissionError):
            said = f"{error.message} All workers need to see it under this path."
            return Failure(type(error)(said, topic=error.topic))
        return Failure(error, passing=isinstance(cause, OSError))
    except MemoryError:
        where = Call(chunks).where
        return Failure(
            CoresetError(
                f"There is not enough memory for {where}: give each process more, or use fewer."
            )
        )


def in_order[T](
    calls: Sequence[Call],
    submit: Callable[[Call], Any],
    finished: Callable[[Any, Call], Any],
    n_ahead: Callable[[], int],
) -> Iterator[T]:
    """Submit tasks, a few ahead, and yield their results in order; cancel the rest in the end."""
    done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    waiting, tries = dict(enumerate(calls)), dict.fromkeys(range(len(calls)), 0)
    futures: dict[int, Any] = {}
    results: dict[int, T] = {}
    suspects: set[int] = set()
    n_yielded = 0
    try:
        while n_yielded < len(calls):
            limit = 1 if suspects else n_ahead()
            for number in list(islice(waiting, max(limit - len(futures), 0))):
                futures[number] = submit(waiting.pop(number))
                futures[number].add_done_callback(lambda f, number=number: done.put((number, f)))
            number, future = done.get()
            if futures.get(number) is not future:
                continue  # one that was taken back
            outcome = finished(futures.pop(number), calls[number])
            tries[number] += 1
            if isinstance(outcome, Failure):
                if tries[number] >= _most_tries(outcome, len(calls)):
                    raise outcome.error
                waiting = {number: calls[number]} | waiting
                if outcome.suspect:  # once more, with nothing beside it
                    suspects.add(number)
                    waiting |= {n: calls[n] for n in futures}
                    _cancel(futures)
                continue
            suspects.discard(number)
            results[number] = outcome
            while n_yielded in results:
                yield results.pop(n_yielded)
                n_yielded += 1
    finally:
        _cancel(futures)


def _most_tries(failure: Failure, n_tasks: int) -> int:
    if failure.suspect:
        return min(n_tasks, 2)
    return _N_TRIES if failure.passing else 1


def _cancel(futures: dict[int, Any]) -> None:
    while futures:
        futures.popitem()[1].cancel()


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


def _here[T](function: Callable[..., T], rows: Any, call: Call) -> T:  # noqa: ANN401
    with one_blas_thread():
        return function(rows, call.chunks, *call.args)
