"""Random numbers that belong to rows: the same for a row wherever, and whenever, it is read."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["numbers_of", "random_key"]

_PER_BLOCK = 4  # 64-bit numbers that Philox makes from one value of its counter


def random_key(rng: np.random.Generator) -> int:
    """Draw a key for `numbers_of`.

    Examples
    --------
    >>> random_key(np.random.default_rng(1)) >= 0
    True
    """
    return int(rng.integers(2**63))


def numbers_of(positions: NDArray[np.int64], key: int) -> NDArray[np.float64]:
    """Return one uniform random number in [0, 1) for each position.

    The number depends on the position and the key alone, so that rows that are read in other
    chunks, in another order or by other processes are given the same numbers.  Costs O(span) for
    the span between the smallest and the largest position.

    Parameters
    ----------
    positions : ndarray of int64, of shape (n,)
        Not negative and sorted.
    key : int
        From `random_key`.

    Returns
    -------
    ndarray of shape (n,)

    References
    ----------
    Salmon, Moraes, Dror, Shaw (2011). Parallel random numbers: as easy as 1, 2, 3.
    https://doi.org/10.1145/2063384.2063405

    Examples
    --------
    >>> whole = numbers_of(np.arange(100), key=7)
    >>> bool((numbers_of(np.arange(13, 20), key=7) == whole[13:20]).all())
    True
    """
    if not len(positions):
        return np.empty(0)
    first, last = int(positions[0]), int(positions[-1])
    bits = np.random.Philox(key=key)
    bits.advance(first // _PER_BLOCK)
    start = first - first % _PER_BLOCK
    numbers = np.random.Generator(bits).random(last + 1 - start)
    return numbers[positions - start]
