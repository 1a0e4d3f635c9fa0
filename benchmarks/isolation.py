"""Functions in processes of their own, which are ended where they take far too long."""

import multiprocessing as mp
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

QUICK = 60.0  # seconds: what takes less depends on what is compiled already


class NotDoneError(Exception):
    """A process that did not return anything."""


def caches_in(folder: Path) -> dict[str, str]:
    """Return the variables of an environment whose compiled functions are kept in a folder."""
    return {
        "PYTENSOR_FLAGS": f"base_compiledir={folder}",
        "NUMBA_CACHE_DIR": str(folder / "numba"),
    }


@contextmanager
def empty_cache() -> Iterator[None]:
    """Have processes that are spawned meanwhile find nothing compiled, but what they compile."""
    before = os.environ.copy()
    with TemporaryDirectory() as folder:
        os.environ.update(caches_in(Path(folder)))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def isolated[**A, T](
    function: Callable[A, T],
    limit: float,
    *args: A.args,
    **kwargs: A.kwargs,
) -> T:
    """Call a function in a process of its own, for so many seconds at most.

    Raises
    ------
    NotDoneError
        If it takes longer, or the process ends before.
    """
    context: Any = mp.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, function, args, kwargs))
    process.start()
    sender.close()
    try:
        if receiver.poll(limit):
            found: T = receiver.recv()
            return found
        raise NotDoneError(f"not done after {limit:.0f} s")
    except EOFError:
        process.join()
        raise NotDoneError(f"the process ended with code {process.exitcode}") from None
    finally:
        process.terminate()
        process.join()


def twice[**A, T](
    function: Callable[A, T],
    seconds: Callable[[T], float],
    limit: float,
    *args: A.args,
    **kwargs: A.kwargs,
) -> tuple[T, T]:
    """Call a function with an empty folder of compiled functions, and with what is in it then.

    Each time in a process of its own.  What takes a minute or more is called once, for both.
    """
    with empty_cache():
        first = isolated(function, limit, *args, **kwargs)
        if seconds(first) < QUICK:
            return first, isolated(function, limit, *args, **kwargs)
        return first, first


def _work(
    sender: Connection,
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    sender.send(function(*args, **kwargs))
