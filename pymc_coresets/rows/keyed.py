"""Random numbers that belong to rows: the same for a row wherever, and whenever, it is read."""

import numpy as np
from numpy.typing import NDArray

MANY_ROWS = 2_000_000  #: Of more, a sample tells the curvature of a posterior well enough.
ROWS_FOR_CURVATURE = 500  #: For each dimension, where it comes from a sample.

_LEAST_START, _LEAST_FOR_CURVATURE = 1_000, 100_000
_ROWS_PER_DIMENSION = 50  # of the start: from a tenth of that, the rounds diverged in a hierarchy
_PER_BLOCK = 4  # 64-bit numbers that Philox makes from one value of its counter


def random_key(rng: np.random.Generator) -> int:
    """Draw a key for `numbers_of`.

    Examples
    --------
    >>> random_key(np.random.default_rng(1)) >= 0
    True
    """
    return int(rng.integers(2**63))


def rows_to_start(n_dims: int) -> int:
    """How many rows say roughly where the posterior is: 50 per dimension, and 1 000 at least.

    Examples
    --------
    >>> rows_to_start(3), rows_to_start(100)
    (1000, 5000)
    """
    return max(_LEAST_START, _ROWS_PER_DIMENSION * n_dims)


def rows_to_begin_with(n_dims: int, n_rows: int) -> int:
    """How many rows are sampled where all are too many to begin with them.

    Of more than two million rows, 500 for each dimension and 100 000 at least: these tell the
    curvature of the posterior of all.  Of fewer, 50 for each dimension and 1 000 at least.

    Examples
    --------
    >>> rows_to_begin_with(3, 10**5), rows_to_begin_with(11, 10**7)
    (1000, 100000)
    """
    if n_rows > MANY_ROWS:
        return max(_LEAST_FOR_CURVATURE, ROWS_FOR_CURVATURE * n_dims)
    return rows_to_start(n_dims)


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


def waiting_times(
    positions: NDArray[np.int64], base_weights: NDArray[np.float64], key: int
) -> NDArray[np.float64]:
    """Return one time for each row, ``-log(U_n) / u_n``, by whose order rows are sampled.

    The rows with the smallest times are a weighted random sample without replacement, and those of
    a smaller sample are among those of a larger one with the same key.

    Parameters
    ----------
    positions : ndarray of int64, of shape (n,)
        Not negative and sorted.
    base_weights : ndarray of shape (n,)
        u; the times of rows with ``u_n = 0`` are infinite.
    key : int
        From `random_key`.

    References
    ----------
    Efraimidis, Spirakis (2006). Weighted random sampling with a reservoir. Information Processing
    Letters 97(5). https://doi.org/10.1016/j.ipl.2005.11.003

    Examples
    --------
    >>> float(waiting_times(np.arange(2), np.array([1.0, 0.0]), key=7)[1])
    inf
    """
    with np.errstate(divide="ignore"):
        times: NDArray[np.float64] = -np.log1p(-numbers_of(positions, key)) / base_weights
    return times


def weights_of_first(
    base_weights: NDArray[np.float64], beyond: float, total: float
) -> NDArray[np.float64]:
    """Return weights by which the rows with the smallest waiting times stand for all.

    Given the time t of the first row that is left out, row n is among them with probability
    ``1 - exp(-u_n t)``; it is weighted by u_n over that, and all in proportion to their total.
    Equal base weights give equal weights.

    Parameters
    ----------
    base_weights : ndarray of shape (n,)
        u of the rows, positive.
    beyond : float
        t; infinite where no row is left out.
    total : float
        Sum of the base weights of all rows.

    References
    ----------
    Cohen, Kaplan (2007). Summarizing data using bottom-k sketches. PODC 2007.
    https://doi.org/10.1145/1281100.1281133

    Examples
    --------
    >>> weights_of_first(np.ones(2), 0.4, 10.0)
    array([5., 5.])
    """
    weights: NDArray[np.float64] = base_weights / -np.expm1(-base_weights * beyond)
    weights *= total / weights.sum()
    return weights
