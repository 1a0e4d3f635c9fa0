"""Threads of this process and executors of `concurrent.futures` as engines; which one is meant."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from pymc_coresets.exceptions import CoresetError, InvalidOptionError
from pymc_coresets.rows.engines.dispatch import (
    Portions,
    Task,
    in_order,
    noted_places,
    packed,
    perform,
    versions,
)
from pymc_coresets.rows.threads import n_cores, one_blas_thread

__all__ = ["Engine", "Pool", "Threads", "engine_of", "no_rows_for"]

_MOST_AHEAD = 1024  # tasks that an executor is given; it does not say how many it can work on
_BYTES_AHEAD = 2**29  # that these hold together
_ACCEPTED = (
    "a concurrent.futures.Executor, such as a ProcessPoolExecutor, or a dask.distributed.Client"
)


class Engine(Protocol):
    """Maps a function over tasks."""

    def map[R: Portions, T](
        self, function: Callable[..., T], rows: R, tasks: Sequence[Task]
    ) -> Iterator[T]:
        """Yield ``function(rows, task)`` in the order of the tasks.

        `rows` may be a portion with no other chunks than those of the task.  What is still waiting
        is cancelled when the iterator is closed, or fails.
        """


class Threads:
    """One thread of this process for each core.

    Examples
    --------
    >>> tasks = [Task([], [2]), Task([], [3])]
    >>> list(Threads().map(lambda rows, task: rows ** task.given[0], 5, tasks))
    [25, 125]
    """

    def map[R, T](self, function: Callable[..., T], rows: R, tasks: Sequence[Task]) -> Iterator[T]:
        """See `Engine.map`."""
        with ThreadPoolExecutor(n_cores()) as pool:
            yield from Pool(pool).map(function, rows, tasks)  # type: ignore[type-var]


@dataclass(frozen=True)
class Pool:
    """An executor of `concurrent.futures`, or anything with such a `submit`."""

    executor: Executor

    def map[R: Portions, T](
        self, function: Callable[..., T], rows: R, tasks: Sequence[Task]
    ) -> Iterator[T]:
        """See `Engine.map`."""
        with TemporaryDirectory(prefix="pymc_coresets_") as notes:
            work = None if isinstance(self.executor, ThreadPoolExecutor) else packed(function)
            n_bytes = _BYTES_AHEAD

            def submit(task: Task) -> Any:  # noqa: ANN401
                nonlocal n_bytes
                with _named_errors(task, notes):
                    if work is None:
                        return self.executor.submit(_here, function, rows, task)
                    sent = packed((rows.portion(task.chunks)[0], task))
                    n_bytes = len(work) + len(sent)
                    return self.executor.submit(perform, versions(), work, sent, None, notes)

            def finished(future: Any, task: Task) -> Any:  # noqa: ANN401
                with _named_errors(task, notes):
                    return future.result()

            def n_ahead() -> int:
                return min(max(2 * n_cores(), _BYTES_AHEAD // n_bytes), _MOST_AHEAD)

            yield from in_order(tasks, submit, finished, n_ahead)


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
    such as a ProcessPoolExecutor, or a dask.distributed.Client. (docs: troubleshooting#arguments)
    """
    if executor is None:
        return Threads()
    if type(executor).__module__.partition(".")[0] == "distributed":
        from pymc_coresets.rows.engines.clusters import cluster_of  # noqa: PLC0415

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
