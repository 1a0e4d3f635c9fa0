"""Sizes of temporary arrays and of rounding errors, for all modules; equal log-likelihoods."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Numbers that a temporary array may have, or what is evaluated at once: 32 MB of float64. More
#: saves no time, since calls into NumPy are long by then, and costs memory in every thread.
ENTRIES_AT_ONCE = 2**22

#: By how much sums of the same terms in another order may differ, relatively: random errors of
#: a few thousand terms add up to this, and those of a mistake are larger by orders of magnitude.
ROUNDING = 64 * float(np.finfo(float).eps)

#: By how much two computations of the same log-likelihood may differ, relatively, and in nats.
RELATIVE, ABSOLUTE = 1e-6, 1e-8


def agree(
    found: ArrayLike, expected: ArrayLike, *, size: float = 1.0, nan: bool = False
) -> np.ndarray:
    """Return where two computations of the same log-likelihoods agree.

    Parameters
    ----------
    found, expected : array_like
        In nats.
    size : float, default 1
        How many rows each is the sum of.
    nan : bool, default False
        Whether NaN agrees with NaN.

    Examples
    --------
    >>> agree([1.0, 1.0], [1.0 + 1e-9, 1.001])
    array([ True, False])
    """
    atol = ABSOLUTE * size
    return np.asarray(np.isclose(found, expected, rtol=RELATIVE, atol=atol, equal_nan=nan))


def differing(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the places where the expected log-likelihood is finite, and the one found differs.

    Returns
    -------
    ndarray of int, of shape (n_places, ndim)

    Examples
    --------
    >>> differing(np.array([[1.0, 2.0]]), np.array([[np.nan, 3.0]]))
    array([[0, 1]])
    """
    return np.argwhere(np.isfinite(expected) & ~agree(found, expected))


def log_standard_normal(z: np.ndarray) -> np.ndarray:
    """Return the log-density of a standard normal distribution at points (n_points, n_dims).

    Examples
    --------
    >>> log_standard_normal(np.zeros((1, 2))).round(3)
    array([-1.838])
    """
    logq: np.ndarray = -(np.square(z).sum(axis=1) + z.shape[1] * np.log(2 * np.pi)) / 2
    return logq


def as_slice(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return numbers in another form if they follow one another: arrays are copied much faster.

    Examples
    --------
    >>> as_slice(np.array([3, 4, 5])), as_slice(np.array([3, 5]))
    (slice(3, 6, None), array([3, 5]))
    """
    if not numbers.size or not (np.diff(numbers) == 1).all():
        return numbers
    return slice(int(numbers[0]), int(numbers[-1]) + 1)


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
