"""Streams that can only be read from their start, asked for one item after another by threads."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from threading import Lock
from typing import Any

__all__ = ["Cursor", "Cursors"]

_N_OPEN = 8  # streams that are read at the same time
_N_AHEAD = 8  # blocks of one of them that wait for their thread

_NOTHING = object()


class Cursor[T]:
    """Items of a stream by number; items that are asked for in order are read once.

    An item that is asked for too early, by another thread, makes the stream run ahead; those
    passed over are kept.  An item that was given up is read again, from the start.

    Parameters
    ----------
    start : callable
        Returns a new iterator over all items.
    n_kept : int
        Most items that are kept.
    once : bool
        Whether an item is asked for only once, so that it need not be kept after that.
    n_items : int, optional
        After this many, the stream is closed.

    Examples
    --------
    >>> cursor = Cursor(lambda: iter("abc"), n_kept=2, once=True)
    >>> cursor.item(1), cursor.item(0), cursor.item(2), cursor.item(3)
    ('b', 'a', 'c', None)
    """

    def __init__(
        self,
        start: Callable[[], Iterator[T]],
        *,
        n_kept: int,
        once: bool,
        n_items: int | None = None,
    ) -> None:
        self._start, self._n_kept, self._once = start, n_kept, once
        self._n_items = n_items
        self._lock = Lock()
        self._kept: OrderedDict[int, T] = OrderedDict()
        self._stream: Iterator[T] | None = None
        self._next = 0

    def item(self, number: int) -> T | None:
        """Return an item; None where the stream has ended before it."""
        with self._lock:
            if number not in self._kept and not self._run_to(number):
                return None
            return self._kept.pop(number) if self._once else self._kept[number]

    def _run_to(self, number: int) -> bool:
        """Read up to the item, from the start if it has been passed; False if there is none."""
        if self._stream is None or number < self._next:
            self._stream, self._next = self._start(), 0
        try:
            while self._next <= number:
                item = next(self._stream, _NOTHING)
                if item is _NOTHING:
                    self._stream = None
                    return False
                self._kept[self._next] = item  # type: ignore[assignment]
                self._next += 1
                while len(self._kept) > self._n_kept:
                    self._kept.popitem(last=False)
        except BaseException:
            self._stream = None  # a stream that failed has no next item
            raise
        if self._next == self._n_items:
            self._stream = None  # which closes its file
        return True


class Cursors:
    """The cursors of a source's large pieces, each shared by all threads; a pickle holds none.

    Examples
    --------
    >>> cursors = Cursors()
    >>> cursors.get("piece 3", lambda: iter("abc"), n_items=3).item(0)
    'a'
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: OrderedDict[Hashable, Cursor[Any]] = OrderedDict()

    def __reduce__(self) -> tuple[type["Cursors"], tuple[()]]:
        return Cursors, ()

    def get(
        self, key: Hashable, start: Callable[[], Iterator[Any]], *, n_items: int
    ) -> Cursor[Any]:
        """Return the cursor of a key; those that were used least recently are given up."""
        with self._lock:
            cursor = self._open.pop(key, None) or Cursor(
                start, n_kept=_N_AHEAD, once=True, n_items=n_items
            )
            self._open[key] = cursor
            while len(self._open) > _N_OPEN:
                self._open.popitem(last=False)
        return cursor
