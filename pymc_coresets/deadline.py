"""How long computations take: limits for all that a context does, and forecasts."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass

from pymc_coresets.exceptions import OutOfTimeError

#: Seconds from which a computation is announced, with a forecast of its length.
LONG = 20.0
#: Seconds after which a rate is known well enough for a forecast.
_ENOUGH = 1.0

_REMEDY = (
    "before there was a coreset. Allow more seconds, or sample the model itself, as "
    "pymc_coresets.sample(on_failure='nuts') does."
)

_log = logging.getLogger(__name__)


@dataclass
class _Teller:
    """Takes the forecasts of one call, and knows until when what runs has been announced."""

    tell: Callable[[str], None]
    until: float = -math.inf


#: Value of `time.perf_counter` after which nothing begins, and what an error then says at its end.
_limit: ContextVar[tuple[float, str]] = ContextVar("limit", default=(math.inf, _REMEDY))
#: What is computed, from the whole to its parts.
_doing: ContextVar[tuple[str, ...]] = ContextVar("doing", default=())
_teller: ContextVar[_Teller | None] = ContextVar("teller", default=None)


@contextmanager
def until(deadline: float, remedy: str = _REMEDY) -> Iterator[None]:
    """End what is computed here at the next block of rows, or step, after a deadline.

    Parameters
    ----------
    deadline : float
        Value of `time.perf_counter`.
    remedy : str, optional
        The end of the error's sentence, and what users can do.

    Raises
    ------
    OutOfTimeError

    Examples
    --------
    >>> with until(time.perf_counter() + 60.0):
    ...     stop_if_late()
    """
    before = _limit.set(min((deadline, remedy), _limit.get(), key=lambda limit: limit[0]))
    try:
        yield
    finally:
        _limit.reset(before)


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Name what is computed here, for forecasts and for the error at a deadline.

    Parameters
    ----------
    what : str
        As in "searching for the mode".

    Examples
    --------
    >>> with doing("integrating"), doing("placing nodes"), until(0.0, "too soon."):
    ...     stop_if_late("7 of 10 levels")
    Traceback (most recent call last):
    pymc_coresets.exceptions.OutOfTimeError: The time_budget was used up while integrating: placing
    nodes (7 of 10 levels), too soon. (docs: troubleshooting#sampling)
    """
    before = _doing.set((*_doing.get(), what))
    try:
        yield
    finally:
        _doing.reset(before)


def stop_if_late(reached: str = "", *, needed: float = 0.0) -> None:
    """Raise an error after the deadline, see `until`.

    Parameters
    ----------
    reached : str, optional
        How far what is computed has come.
    needed : float, default 0
        Seconds that come next and cannot be ended: it raises if there are fewer.
    """
    deadline, remedy = _limit.get()
    if time.perf_counter() + needed > deadline:
        what = ": ".join(_doing.get())
        parts = [f"while {what}" if what else "", f"({reached})" if reached else ""]
        words = " ".join(["The time_budget was used up", *filter(None, parts)])
        raise OutOfTimeError(f"{words}, {remedy}")


@contextmanager
def forecasts_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Send forecasts of long computations to a function; by default they are in the log.

    Parameters
    ----------
    tell : callable
        Takes one line.

    Examples
    --------
    >>> with forecasts_to(print), doing("counting sheep"):
    ...     forecast(90.0)
    Counting sheep: about 90 seconds.
    """
    before = _teller.set(_Teller(tell))
    try:
        yield
    finally:
        _teller.reset(before)


def forecast(seconds: float, remark: str = "") -> None:
    """Announce what is done here, if it takes long, and no forecast so far has allowed for that.

    Parameters
    ----------
    seconds : float
        How long it will take from now on.
    remark : str, optional
        A sentence that follows.
    """
    if not LONG <= seconds < math.inf:
        return
    teller, now = _teller.get() or _Teller(_log.info), time.perf_counter()
    # A part that is within what was announced for the whole is no news.
    if now + 0.8 * seconds <= teller.until:
        return
    teller.until = now + 1.2 * seconds
    what = ": ".join(_doing.get()) or "working"
    about = f"{what[0].upper()}{what[1:]}: about {in_words(seconds)}."
    teller.tell(f"{about} {remark}".rstrip())


@contextmanager
def paced(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts steps: it announces a long computation, and ends a late one.

    Parameters
    ----------
    what : str
        See `doing`; if empty, what is known already.
    total : int
        Number of steps; 0 if it is not known.
    unit : str
        What these are.

    Examples
    --------
    >>> with paced("counting", 3, "sheep") as count:
    ...     for _ in range(3):
    ...         count(1)
    """
    done, told = 0, False
    n_first, since = 0, 0.0  # those may have compiled functions

    def count(n: int) -> None:
        nonlocal done, told, n_first, since
        done += n
        if 0 < total <= done:
            return
        stop_if_late(f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}")
        now = time.perf_counter()
        if not n_first:
            n_first, since = done, now
        elif total and not told and now - since > _ENOUGH:
            told = True
            forecast((now - since) * (total - done) / (done - n_first))

    with doing(what) if what else nullcontext():
        yield count


@contextmanager
def compiling_in_time(n_operations: int, seconds: float) -> Iterator[None]:
    """Announce a compilation that takes long, and refuse one that a limit would not allow.

    None can be ended.

    Parameters
    ----------
    n_operations : int
    seconds : float
        What it is expected to take; zero if that is not known.

    Examples
    --------
    >>> with compiling_in_time(2_000, 30.0), until(time.perf_counter() + 60.0):
    ...     pass
    """
    with doing(f"compiling a function of {n_operations:,} operations"):
        stop_if_late(f"it takes about {in_words(seconds)}" if seconds else "", needed=seconds)
        forecast(seconds)
        yield


def here[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that knows this context's deadline in other threads, and is silent there.

    Examples
    --------
    >>> with until(0.0, "too soon."):
    ...     late = here(stop_if_late)
    >>> late()
    Traceback (most recent call last):
    pymc_coresets.exceptions.OutOfTimeError: The time_budget was used up, too soon. (docs:
    troubleshooting#sampling)
    """
    known = copy_context()

    def silent(*args: P.args, **kwargs: P.kwargs) -> T:
        _teller.set(_Teller(lambda _: None))
        return function(*args, **kwargs)

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return known.copy().run(silent, *args, **kwargs)  # one thread at a time may be in a context

    return run


def in_words(seconds: float) -> str:
    """Return a duration, rounded.

    Examples
    --------
    >>> in_words(33.0), in_words(250.0), in_words(10_000.0)
    ('35 seconds', '4 minutes', '3 hours')
    """
    if seconds < 100:
        return f"{max(5 * round(seconds / 5), 5)} seconds"
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 100 else f"{round(seconds / 3600)} hours"
