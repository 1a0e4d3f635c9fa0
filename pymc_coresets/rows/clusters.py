"""The workers of a Dask cluster as an engine."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from pymc_coresets.compat.dask_api import (
    KILLED,
    UNMANNED,
    keep_freed_memory,
    n_threads,
    no_workers_timeout,
    submitted,
)
from pymc_coresets.exceptions import CoresetError, warn_user
from pymc_coresets.rows.executors import (
    LOOK_SECONDS,
    Failure,
    Task,
    in_order,
    packed,
    perform,
    versions,
)

_SILENCE, _PATIENCE = 10.0, 1_800.0  # seconds without any worker: until a warning, and an error


@dataclass(frozen=True)
class Cluster:
    """The workers that a client of `dask.distributed` reaches.

    A worker that dies is replaced, and its tasks are done again, because they are pure functions.
    There are no more tasks at a time than the workers have threads: Dask counts a death against
    all tasks that a worker has been given, and gives up those that saw four.  Such a task is then
    worked on once more, with nothing beside it, to name the one that kills.

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
        limit = no_workers_timeout() or _PATIENCE
        while not self._n_threads():
            waited = time.monotonic() - start
            said = (
                f"The Dask cluster has had no workers for {waited:.0f} seconds, and {where} is "
                "waiting for some: start them, as by cluster.scale(4), or look into the logs of "
                f"those that died, for want of memory perhaps. After {limit:.0f} seconds, Dask's "
                "distributed.scheduler.no-workers-timeout, work is given up."
            )
            if waited > limit:
                raise CoresetError(said)
            if waited > _SILENCE and not told:
                told = True
                warn_user(said)
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
        except KILLED as error:
            killed = CoresetError(
                f"{error.allowed_failures + 1} workers died, one after the other, while they read "
                f"or evaluated {task.where}: probably for want of memory. Give each worker more "
                "memory, or fewer threads; their logs say more."
            )
            return Failure(killed, tries=2, deadly=True)
        except (CancelledError, UNMANNED, ModuleNotFoundError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                raise
            self._require_open()
            raise CoresetError(
                f"The cluster gave up its work on {task.where}: {_sentence(error)} Workers, and "
                "the scheduler, need pymc-coresets in the same version as here. Data that were "
                "scattered, or persisted from what is gone, are lost with the worker that held "
                "them: open the files themselves with open_rows."
            ) from error

    def _require_open(self) -> None:
        if self.client.status != "running":
            raise CoresetError(
                f"The Client of the Dask cluster is {self.client.status}: keep it open for as long "
                "as the coreset is checked, or read the coreset from a file with another "
                "(from_netcdf)."
            )


def _performed(*args: Any) -> Any:  # noqa: ANN401
    """Work on a task in a worker of the cluster."""
    keep_freed_memory()
    return perform(*args)


def _sentence(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") + "."
