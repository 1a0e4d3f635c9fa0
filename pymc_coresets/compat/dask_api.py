"""All that is used of Dask's distributed beyond its clients and futures, in one place.

It is optional, and loaded when it is first used.  It may change these interfaces in any release;
`tests/rows/test_engines.py` says what broke.
"""

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, KilledWorker

__all__ = ["LOST", "KilledWorker", "is_client", "n_threads", "submitted"]

_WARNING = "distributed.admin.large-graph-warning-threshold"
_NEVER = "1000 PiB"

#: Errors of a future whose task lacks data that it needs, or whose client has closed.
LOST: tuple[type[BaseException], ...] = (CancelledError,)


def is_client(value: object) -> bool:
    """Whether a value is the client of a cluster."""
    return isinstance(value, Client)


def n_threads(client: Any) -> int:  # noqa: ANN401
    """Return how many tasks the workers of a cluster can work on, which may change; 1 at least."""
    threads: dict[str, int] = client.nthreads()
    return max(sum(threads.values()), 1)


def submitted(client: Any, name: str, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
    """Submit a task with its data, and with futures in lists and mappings that it waits for.

    Dask warns of tasks of more than 10 MB, and recommends to scatter the data; but data that were
    scattered are lost with the worker that holds them.
    """
    with dask.config.set({_WARNING: _NEVER}):
        return client.submit(function, *args, key=f"{name}-{uuid4().hex}", pure=False)
