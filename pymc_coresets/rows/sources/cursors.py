"""Streams that can only be read from their start, and what is kept of them."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from threading import Lock
from typing import Self

_N_AHEAD = 8  # blocks that wait for their thread

_NOTHING = object()


class Cursor[T]:
    """Items of a stream by number; items that are asked for in order are read once.

    An item that is asked for too early, by another thread, makes the stream run ahead; those
    passed over are kept.  An item that was given up is read again, from the start.

    Parameters
    ----------
    start : callable
        Returns a new iterator over all items.
    n_kept : int, default 8
        Most items that are kept.
    once : bool, default True
        Whether an item is asked for only once, so that it need not be kept after that.
    n_items : int, optional
        After this many, the stream is closed.

    Examples
    --------
    >>> cursor = Cursor(lambda: iter("abc"))
    >>> cursor.item(1), cursor.item(0), cursor.item(2), cursor.item(3)
    ('b', 'a', 'c', None)
    """

    def __init__(
        self,
        start: Callable[[], Iterator[T]],
        *,
        n_kept: int = _N_AHEAD,
        once: bool = True,
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


class Recent[K: Hashable, V]:
    """What was made for some keys, of which those used last are kept; a pickle holds none.

    Parameters
    ----------
    size : int
        Most keys.

    Examples
    --------
    >>> recent = Recent(1)
    >>> [recent.get(key, lambda: [key])[0] for key in (1, 2, 2)]
    [1, 2, 2]
    """

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, Lock()
        self._held: OrderedDict[K, V] = OrderedDict()

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self._size,)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return what belongs to a key; it is made where it is not held."""
        with self._lock:
            value = self._held.pop(key) if key in self._held else make()
            self._held[key] = value
            while len(self._held) > self._size:
                self._held.popitem(last=False)
        return value
