"""The workers of a Dask cluster as an engine."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pymc_coresets.rows.engines.calls import (
    LOOK_SECONDS,
    Call,
    Failure,
    Portions,
    in_order,
    packed,
    perform,
    versions,
)

__all__ = ["Cluster", "cluster_of"]

_SILENCE, _PATIENCE = 10.0, 1_800.0  # seconds without any worker: until a warning, and an error


@dataclass(frozen=True)
class Cluster:
    """The workers that a client of `dask.distributed` reaches.

    A worker that dies is replaced, and its tasks are done again, because they are pure functions.
    There are no more tasks at a time than the workers have threads: Dask counts a death against
    all tasks that a worker has been given, and gives up those that saw four.  Where there is no
    worker for ten seconds there is a warning; work goes on when some come.  After half an hour, or
    Dask's own ``distributed.scheduler.no-workers-timeout``, there is an error.
    """

    client: Any

    def map[R: Portions, T](
        self, function: Callable[..., T], rows: R, calls: Sequence[Call]
    ) -> Iterator[T]:
        """See `Engine.map`."""
        self._require_open()
        work = packed(function)
        name = getattr(function, "func", function).__name__.strip("_")

        def submit(call: Call) -> Any:  # noqa: ANN401
            lacking = rows.collections(call.chunks)
            portion, found = (rows.portion(call.chunks), None) if lacking is None else lacking
            task = packed((portion, call.chunks, call.arguments))
            tables = None if found is None else self._computed(found)
            return submitted(self.client, name, _performed, versions(), work, task, tables)

        return in_order(
            calls,
            submit,
            self._finished,
            lambda: max(self._n_threads(), 1),
            lambda call: self.await_workers(call.where),
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

    def _computed(self, found: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Put futures in the place of collections: these are computed where their data lie."""

        def future_of(value: Any) -> Any:  # noqa: ANN401
            if isinstance(value, Mapping):
                return dict(zip(value, self.client.compute(list(value.values())), strict=True))
            return self.client.compute(value)

        return [list(map(future_of, some)) for some in found]

    def _finished(self, future: Any, call: Call) -> Any:  # noqa: ANN401
        try:
            return future.result()
        except KilledWorker as error:
            n_deaths = error.allowed_failures + 1
            killed = CoresetError(
                f"{n_deaths} workers died, one after the other, while they read or evaluated "
                f"{call.where}: probably for want of memory. Give each worker more memory, or "
                "fewer threads; their logs say more."
            )
            return Failure(killed, suspect=True)
        except UNMANNED as error:
            raise _unmanned(call.where, "for as long as the scheduler waits") from error
        except LOST as error:
            self._require_open()
            raise CoresetError(
                f"The cluster gave up its work on {call.where}: {_sentence(error)} Data that were "
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
