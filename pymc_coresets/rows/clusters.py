"""The workers of a Dask cluster as an engine."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pymc_coresets.compat.dask_api import (
    LOST,
    UNMANNED,
    KilledWorker,
    is_client,
    keep_freed_memory,
    n_threads,
    no_workers_timeout,
    submitted,
)
from pymc_coresets.exceptions import CoresetError, InvalidOptionError, warn_user
from pymc_coresets.rows.executors import (
    LOOK_SECONDS,
    Task,
    in_order,
    packed,
    perform,
    versions,
)

_SILENCE, _PATIENCE = 10.0, 1_800.0  # seconds without any worker: until a warning, and an error


class _Killed(Exception):  # noqa: N818 - nobody sees it
    """A task, or another one beside it, kills workers."""

    def __init__(self, task: Task, error: CoresetError) -> None:
        super().__init__()
        self.task, self.error = task, error


@dataclass(frozen=True)
class Cluster:
    """The workers that a client of `dask.distributed` reaches.

    A worker that dies is replaced, and its tasks are done again, because they are pure functions.
    There are no more tasks at a time than the workers have threads: Dask counts a death against
    all tasks that a worker has been given, and gives up those that saw four.  The chunks of such a
    task are then worked on one by one, with nothing beside them, to name the one that kills; then
    the task itself is, too.

    Where there is no worker for ten seconds there is a warning; work goes on when some come.  After
    half an hour, or Dask's own ``distributed.scheduler.no-workers-timeout``, there is an error.
    """

    client: Any

    def map[T](self, function: Callable[..., T], rows: Any, tasks: Sequence[Task]) -> Iterator[T]:  # noqa: ANN401
        """See `Engine.map`."""
        self._require_open()
        work = packed(function)
        name = getattr(function, "func", function).__name__.strip("_")

        def submit(task: Task) -> Any:  # noqa: ANN401
            portion, found = rows.portion(task.chunks, to_dask=True)
            sent = packed((portion, task))
            tables = None if found is None else [list(map(self._computed, some)) for some in found]
            return submitted(self.client, name, _performed, versions(), work, sent, tables)

        def results(some: Sequence[Task]) -> Generator[T]:
            return in_order(
                some,
                submit,
                self._finished,
                lambda: 1 if suspects else max(self._n_threads(), 1),
                lambda task: self.await_workers(task.where),
            )

        left, suspects = deque(tasks), set[int]()
        while left:
            try:
                with closing(results(list(left))) as found:
                    for result in found:
                        suspects.discard(id(left.popleft()))
                        yield result
            except _Killed as killed:
                task = killed.task
                if id(task) in suspects or len(left) == len(task.chunks) == 1:
                    raise killed.error from None
                suspects.add(id(task))  # with which nothing works beside what comes next
                try:
                    for part in task.parts:
                        list(results([part]))
                except _Killed as again:
                    raise again.error from None

    def await_workers(self, where: str) -> None:
        """Wait until there are workers.

        Parameters
        ----------
        where : str
            Which rows wait for them, for messages.

        Raises
        ------
        CoresetError
            If none come.

        Warns
        -----
        CoresetWarning
            If none come for some seconds.
        """
        start, told = time.monotonic(), False
        while not self._n_threads():
            waited = time.monotonic() - start
            if waited > (no_workers_timeout() or _PATIENCE):
                raise _unmanned(where, f"for {waited:.0f} seconds")
            if waited > _SILENCE and not told:
                told = True
                warn_user(
                    f"The Dask cluster has no workers: {where} is waiting for some, and work goes "
                    "on when they come. Start them, as by cluster.scale(4), or look into their "
                    f"logs if they died; after {no_workers_timeout() or _PATIENCE:.0f} seconds "
                    "there is an error."
                )
            time.sleep(LOOK_SECONDS)

    def _n_threads(self) -> int:
        try:
            return n_threads(self.client)
        except (OSError, TimeoutError) as error:
            raise CoresetError(
                f"The scheduler of the Dask cluster cannot be reached: {_sentence(error)}"
            ) from error

    def _computed(self, value: Any) -> Any:  # noqa: ANN401
        """Put futures in the place of collections: these are computed where their data lie."""
        if isinstance(value, Mapping):
            return dict(zip(value, self.client.compute(list(value.values())), strict=True))
        return self.client.compute(value)

    def _finished(self, future: Any, task: Task) -> Any:  # noqa: ANN401
        try:
            return future.result()
        except KilledWorker as error:
            killed = CoresetError(
                f"{error.allowed_failures + 1} workers died, one after the other, while they read "
                f"or evaluated {task.where}: probably for want of memory. Give each worker more "
                "memory, or fewer threads; their logs say more."
            )
            raise _Killed(task, killed) from error
        except UNMANNED as error:
            raise _unmanned(task.where, "for as long as the scheduler waits") from error
        except LOST as error:
            self._require_open()
            raise CoresetError(
                f"The cluster gave up its work on {task.where}: {_sentence(error)} Data that were "
                "scattered, or persisted from what is gone, are lost with the worker that held "
                "them. Open the files themselves with open_rows."
            ) from error
        except (ModuleNotFoundError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                raise
            raise CoresetError(
                f"The workers, or the scheduler, cannot load the package ({_sentence(error)}) "
                "Install pymc-coresets there, in the same version as here."
            ) from error

    def _require_open(self) -> None:
        if self.client.status != "running":
            raise CoresetError(
                f"The Client of the Dask cluster is {self.client.status}: keep it open for as long "
                "as the coreset is checked, or read the coreset from a file with another "
                "(from_netcdf)."
            )


def cluster_of(client: Any) -> Cluster | None:  # noqa: ANN401
    """Return the engine of a client; None if it is none.

    Raises
    ------
    InvalidOptionError
        If the client is asynchronous.
    """
    if not is_client(client):
        return None
    if client.asynchronous:
        raise InvalidOptionError(
            "executor is an asynchronous Client: make it without asynchronous=True."
        )
    return Cluster(client)


def _unmanned(where: str, how_long: str) -> CoresetError:
    return CoresetError(
        f"The Dask cluster had no workers {how_long}, while {where} was waiting: start some, as by "
        "cluster.scale(4), look into the logs of those that died (for want of memory, perhaps), or "
        "leave executor=... out. To wait longer, set distributed.scheduler.no-workers-timeout by "
        "dask.config."
    )


def _performed(*args: Any) -> Any:  # noqa: ANN401
    """Work on a task in a worker of the cluster."""
    keep_freed_memory()
    return perform(*args)


def _sentence(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") + "."
