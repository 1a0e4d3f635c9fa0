"""Tasks: pure functions of some chunks, how other processes carry them out, and in which order."""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from platform import python_version_tuple
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import Any, Protocol, Self

import cloudpickle

from pymc_coresets.exceptions import CoresetError, InvalidOptionError
from pymc_coresets.rows.chunks import Chunk
from pymc_coresets.rows.passes import one_blas_thread

__all__ = [
    "LOOK_SECONDS",
    "Call",
    "Engine",
    "Failure",
    "Portions",
    "in_order",
    "noted_places",
    "packed",
    "perform",
    "versions",
]

_PACKAGES = ("pymc-coresets", "pymc", "pytensor", "numba", "numpy")
LOOK_SECONDS = 1.0  #: After which whoever works is looked at.
_N_TRIES = 3  # where an operating system or a network failed


@dataclass(frozen=True)
class Call:
    """A task: some chunks, and the further arguments of the function that reads them.

    Parameters
    ----------
    chunks : sequence of Chunk
    args : tuple
        The same for all chunks.
    given : sequence, optional
        Something for each chunk: the first of the arguments.
    """

    chunks: Sequence[Chunk]
    args: tuple[Any, ...] = ()
    given: Sequence[Any] | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the function is called with after the chunks."""
        return self.args if self.given is None else (self.given, *self.args)

    @property
    def parts(self) -> list[Self]:
        """A task for each chunk, where there are several."""
        numbers = range(len(self.chunks) if len(self.chunks) > 1 else 0)
        given = [None if self.given is None else [self.given[i]] for i in numbers]
        return [replace(self, chunks=[self.chunks[i]], given=given[i]) for i in numbers]

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
        """Yield ``function(rows, call.chunks, *call.arguments)`` in the order of the calls.

        `rows` may be a portion with no other chunks than those.  What is still waiting is cancelled
        when the iterator is closed, or fails.
        """


# -- tasks in other processes ----------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """An error that a task found on purpose, as its result: no traceback of another process."""

    error: CoresetError
    passing: bool = False  # of the operating system or the network
    suspect: bool = False  # whether the task, or another one beside it, kills workers


def perform(
    expected: Mapping[str, str],
    work: bytes,
    task: bytes,
    tables: Sequence[Any] | None = None,
    notes: str = "",
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
    notes : str, optional
        A folder for notes, see `noted_places`.

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
        with one_blas_thread(), _noting(chunks, notes) as noted:
            return _unpacked(work)(rows, noted, *args)
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


@contextmanager
def _noting(chunks: Sequence[Chunk], folder: str) -> Iterator[Sequence[Chunk]]:
    """Yield the chunks; whoever iterates over them leaves a note of the one that is worked on."""
    if not Path(folder).is_absolute() or not Path(folder).is_dir():  # on another machine, perhaps
        yield chunks
        return
    note = Path(folder, f"{os.getpid()}-{get_ident()}")
    try:
        yield _Noted(chunks, note)
    finally:
        note.unlink(missing_ok=True)


class _Noted(list[Chunk]):
    def __init__(self, chunks: Sequence[Chunk], note: Path) -> None:
        super().__init__(chunks)
        self._note = note

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in super().__iter__():
            self._note.write_text(chunk.where, encoding="utf-8")
            yield chunk


def noted_places(folder: str) -> list[str]:
    """Return the places of the chunks that processes worked on when they ended."""
    return sorted(note.read_text(encoding="utf-8") for note in Path(folder).iterdir())


def in_order[T](
    calls: Sequence[Call],
    submit: Callable[[Call], Any],
    finished: Callable[[Any, Call], Any],
    n_ahead: Callable[[], int],
    idle: Callable[[Call], None] = lambda _: None,
    *,
    alone: bool = False,
) -> Iterator[T]:
    """Submit tasks, a few ahead, and yield their results in order; cancel the rest in the end.

    `idle` is called with a task that is waited for, every second in which none has ended.  Where a
    task kills workers, its chunks are worked on one by one, to name the one that does; so are those
    of tasks that are `alone`.
    """
    done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    waiting, tries = dict(enumerate(calls)), dict.fromkeys(range(len(calls)), 0)
    futures: dict[int, Any] = {}
    results: dict[int, T] = {}
    suspects: set[int] = set()
    n_yielded = 0
    try:
        while n_yielded < len(calls):
            limit = 1 if suspects or alone else n_ahead()
            for number in list(islice(waiting, max(limit - len(futures), 0))):
                futures[number] = submit(waiting.pop(number))
                futures[number].add_done_callback(lambda f, number=number: done.put((number, f)))
            number, future = _ended(done, lambda: idle(calls[next(iter(futures))]))
            if futures.get(number) is not future:
                continue  # one that was taken back
            outcome = finished(futures.pop(number), calls[number])
            tries[number] += 1
            if isinstance(outcome, Failure):
                if outcome.suspect:  # once more, with nothing beside it
                    waiting |= {n: calls[n] for n in futures}
                    _cancel(futures)
                    parts = [] if alone or number in suspects else calls[number].parts
                    suspects.add(number)
                    for _ in in_order(parts, submit, finished, n_ahead, idle, alone=True):
                        pass  # the one that kills them is an error
                if tries[number] >= _most_tries(outcome, 1 if alone else len(calls)):
                    raise outcome.error
                waiting = {number: calls[number]} | waiting
                continue
            suspects.discard(number)
            results[number] = outcome
            while n_yielded in results:
                yield results.pop(n_yielded)
                n_yielded += 1
    finally:
        _cancel(futures)


def _ended(done: "SimpleQueue[tuple[int, Any]]", idle: Callable[[], None]) -> tuple[int, Any]:
    while True:
        try:
            return done.get(timeout=LOOK_SECONDS)
        except Empty:
            idle()


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
