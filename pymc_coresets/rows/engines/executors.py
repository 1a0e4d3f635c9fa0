"""Threads of this process, and executors of `concurrent.futures`, as engines."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ThreadPoolExecutor
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from pymc_coresets.exceptions import CoresetError
from pymc_coresets.rows.engines.calls import (
    Call,
    Portions,
    in_order,
    noted_places,
    packed,
    perform,
    versions,
)
from pymc_coresets.rows.passes import n_cores, one_blas_thread

__all__ = ["Pool", "Threads"]

_MOST_AHEAD = 1024  # tasks that an executor is given; it does not say how many it can work on
_BYTES_AHEAD = 2**29  # that these hold together


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
        with TemporaryDirectory(prefix="pymc_coresets_") as notes:
            yield from self._map(function, rows, calls, notes)

    def _map[R: Portions, T](
        self, function: Callable[..., T], rows: R, calls: Sequence[Call], notes: str
    ) -> Iterator[T]:
        n_bytes = _BYTES_AHEAD
        if isinstance(self.executor, ThreadPoolExecutor):

            def submit(call: Call) -> Any:  # noqa: ANN401
                return self.executor.submit(_here, function, rows, call)
        else:
            work = packed(function)

            def submit(call: Call) -> Any:  # noqa: ANN401
                nonlocal n_bytes
                task = packed((rows.portion(call.chunks), call.chunks, call.arguments))
                n_bytes = len(work) + len(task)
                return self.executor.submit(perform, versions(), work, task, None, notes)

        def n_ahead() -> int:
            return min(max(2 * n_cores(), _BYTES_AHEAD // n_bytes), _MOST_AHEAD)

        def finished(future: Any, call: Call) -> Any:  # noqa: ANN401
            try:
                return future.result()
            except BrokenExecutor as error:
                raise _broken(call, notes) from error
            except CancelledError as error:
                raise CoresetError(
                    f"The executor gave up its work on {call.where}: it was shut down, or has lost "
                    "what that needs."
                ) from error

        return in_order(calls, _guarded(submit, notes), finished, n_ahead)


def _guarded(submit: Callable[[Call], Any], notes: str) -> Callable[[Call], Any]:
    def guarded(call: Call) -> Any:  # noqa: ANN401
        try:
            return submit(call)
        except BrokenExecutor as error:
            raise _broken(call, notes) from error
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise CoresetError(
                "The executor was shut down: keep it open for as long as the coreset is "
                "checked, or read the coreset from a file with another (from_netcdf)."
            ) from error

    return guarded


def _broken(call: Call, notes: str) -> CoresetError:
    found = noted_places(notes)
    where = " or ".join(found) or f"{call.where}, or before it began"
    return CoresetError(
        f"A process of the executor ended at once, at {where}. It was probably killed for want of "
        "memory: make a new executor with fewer processes. Or a script lacks "
        '`if __name__ == "__main__":`, which processes need that are spawned.'
    )


def _here[T](function: Callable[..., T], rows: Any, call: Call) -> T:  # noqa: ANN401
    with one_blas_thread():
        return function(rows, call.chunks, *call.arguments)
