"""All that is used of Dask's distributed beyond its clients and futures, in one place.

It is optional, and loaded when it is first used.  It may change these interfaces in any release;
`tests/rows/test_engines.py` says what broke.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import uuid4

import dask
from dask.utils import parse_timedelta
from distributed import Client, KilledWorker
from distributed.scheduler import NoValidWorkerError

#: Errors of a future whose task was given up for want of workers, or because it killed some.
UNMANNED: type[BaseException] = NoValidWorkerError
KILLED: type[KilledWorker] = KilledWorker


def is_client(value: object) -> bool:
    """Whether a value is the client of a cluster, and not an asynchronous one."""
    return isinstance(value, Client) and not value.asynchronous


def n_threads(client: Any) -> int:  # noqa: ANN401
    """Return how many tasks the workers of a cluster can work on, which may change."""
    threads: dict[str, int] = client.nthreads()
    return sum(threads.values())


def no_workers_timeout() -> float | None:
    """Return the number of seconds for which Dask waits for workers."""
    found = dask.config.get("distributed.scheduler.no-workers-timeout", None)
    seconds: float | None = parse_timedelta(found)
    return seconds


@cache
def keep_freed_memory() -> None:
    """Let this process keep some of the memory that it frees, if it is a worker of Dask.

    Nannies start workers with MALLOC_TRIM_THRESHOLD_=65536, so that glibc returns what is freed to
    the system at once, and maps every temporary array anew.  The page faults took ten times as long
    as the arithmetic on arrays of a megabyte.  Another value is the user's own, and stays.
    """
    if sys.platform == "linux" and os.environ.get("MALLOC_TRIM_THRESHOLD_") == "65536":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):  # other libraries than glibc have none
            library.mallopt(-1, 2**26)  # M_TRIM_THRESHOLD, in bytes
            library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD


def submitted(client: Any, name: str, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
    """Submit a task with its data, and with futures in lists and mappings that it waits for.

    Dask warns of tasks of more than 10 MB, and recommends to scatter the data; but data that were
    scattered are lost with the worker that holds them.
    """
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1000 PiB"}):
        return client.submit(function, *args, key=f"{name}-{uuid4().hex}", pure=False)
