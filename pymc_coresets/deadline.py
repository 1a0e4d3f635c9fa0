"""When a construction ends for want of time: a limit for all that is computed in a context."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pymc_coresets.exceptions import OutOfTimeError

#: Value of `time.perf_counter` after which no block of rows begins, and what is done until then.
_limit: ContextVar[tuple[float, str]] = ContextVar("limit", default=(math.inf, ""))


@contextmanager
def until(deadline: float, doing: str = "") -> Iterator[None]:
    """End what is computed here at the next block of rows, or step, after a deadline.

    Parameters
    ----------
    deadline : float
        Value of `time.perf_counter`.
    doing : str, optional
        What is computed, as in "while variables of levels were integrated out".

    Raises
    ------
    OutOfTimeError

    Examples
    --------
    >>> with until(time.perf_counter() + 60.0):
    ...     stop_if_late()
    """
    before = _limit.set(min((deadline, doing), _limit.get(), key=lambda limit: limit[0]))
    try:
        yield
    finally:
        _limit.reset(before)


def stop_if_late() -> None:
    """Raise an error after the deadline, see `until`."""
    deadline, doing = _limit.get()
    if time.perf_counter() > deadline:
        raise OutOfTimeError(
            f"The time_budget was used up {doing}, before there was a coreset. Allow more "
            "seconds, or sample the model itself, as pymc_coresets.sample(on_failure='nuts') does."
        )
