"""Sizes of temporary arrays and of rounding errors, for all modules."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

#: Numbers that a temporary array may have, or what is evaluated at once: 32 MB of float64. More
#: saves no time, since calls into NumPy are long by then, and costs memory in every thread.
ENTRIES_AT_ONCE = 2**22

#: By how much sums of the same terms in another order may differ, relatively: random errors of
#: a few thousand terms add up to this, and those of a mistake are larger by orders of magnitude.
ROUNDING = 64 * float(np.finfo(float).eps)


def rows_at_once(entries_a_row: float, *, least: int = 1) -> int:
    """Rows of a block whose temporary arrays have at most `ENTRIES_AT_ONCE` numbers.

    Parameters
    ----------
    entries_a_row : float
        Numbers that each row takes.
    least : int, default 1
        Rows of a block, however many numbers each takes.

    Returns
    -------
    int

    Examples
    --------
    >>> rows_at_once(2**12), rows_at_once(2**30), rows_at_once(0)
    (1024, 1, 4194304)
    """
    return max(least, int(ENTRIES_AT_ONCE // max(entries_a_row, 1)))


def free_memory() -> int:
    """Bytes that this process may still use without others being moved to disk, approximately.

    What a container allows counts; where the system does not say, two gigabytes.

    Examples
    --------
    >>> free_memory() > 0
    True
    """
    found = []
    with suppress(OSError, ValueError, IndexError):
        [line] = [
            each
            for each in Path("/proc/meminfo").read_text().splitlines()
            if each.startswith("MemAvailable")
        ]
        found.append(1024 * int(line.split()[1]))
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        found.append(max(int(most) - int(used), 0))
    with suppress(OSError, ValueError, AttributeError):
        if not found:  # half of the memory there is, as on macOS
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return min(found, default=2 * 10**9)
