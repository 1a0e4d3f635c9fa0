"""Functions in processes of their own, which are ended where they take far too long."""

import multiprocessing as mp
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Literal


class NotDoneError(Exception):
    """A process that did not return anything."""


def isolated[**A, T](
    function: Callable[A, T],
    limit: float,
    start: Literal["spawn", "forkserver"] = "spawn",
    *args: A.args,
    **kwargs: A.kwargs,
) -> T:
    """Call a function in a process of its own, for so many seconds at most.

    Raises
    ------
    NotDoneError
        If it takes longer, or the process ends before.
    """
    context: Any = mp.get_context(start)
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


def _work(
    sender: Connection,
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    sender.send(function(*args, **kwargs))
