"""Samples of rows by random numbers derived from their positions, independent of the reader."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.values import Rows

MANY_ROWS = 200_000  #: Above this, a sample determines the curvature of a posterior well enough.
FIRST_SAMPLE = 100_000  #: Rows: levels with few rows in a sample end far from the mode.
ROWS_FOR_CURVATURE = 500  #: Per dimension, if the curvature comes from a sample.


def random_key(rng: np.random.Generator) -> int:
    """Draw a key for `numbers_of`.

    Examples
    --------
    >>> random_key(np.random.default_rng(1)) >= 0
    True
    """
    return int(rng.integers(2**63))


def rows_to_start(n_dims: int) -> int:
    """Return the number of rows that roughly locate a posterior: 50 per dimension, at least 1,000.

    Examples
    --------
    >>> rows_to_start(3), rows_to_start(100)
    (1000, 5000)
    """
    return max(1_000, 50 * n_dims)  # from a tenth of that, the rounds diverged in a hierarchy


def rows_to_begin_with(n_dims: int) -> int:
    """Return the size of the sample from which a construction starts, if there are many rows.

    500 per dimension and at least 100,000, which determine the curvature of the full posterior.

    Examples
    --------
    >>> rows_to_begin_with(11), rows_to_begin_with(300)
    (100000, 150000)
    """
    return max(FIRST_SAMPLE, ROWS_FOR_CURVATURE * n_dims)


def numbers_of(positions: NDArray[np.int64], key: int) -> NDArray[np.float64]:
    """Return one uniform random number in [0, 1) for each position.

    The number depends on the position and the key alone, so it does not depend on chunks, reading
    order or processes. Gaps between positions of up to a few thousand cost as much as numbers;
    larger gaps cost nothing.

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
    # A new generator costs as much as 2^13 numbers. At most 2^20 are drawn at once, a few
    # megabytes.
    if positions[-1] - positions[0] <= 2**13:
        return _numbers_between(positions, key)
    apart = (np.diff(positions) > 2**13) | (np.diff(positions // 2**20) > 0)
    pieces = np.split(positions, np.flatnonzero(apart) + 1)
    return np.concatenate([_numbers_between(piece, key) for piece in pieces])


def _numbers_between(positions: NDArray[np.int64], key: int) -> NDArray[np.float64]:
    counter = int(positions[0]) // 4  # Philox makes four 64-bit numbers from each value of it
    bits = np.random.Philox(key=key)
    bits.advance(counter)
    numbers = np.random.Generator(bits).random(int(positions[-1]) + 1 - 4 * counter)
    return numbers[positions - 4 * counter]


def waiting_times(
    positions: NDArray[np.int64], case_weights: NDArray[np.float64], key: int
) -> NDArray[np.float64]:
    """Return a time for each row, ``-log(U_n) / u_n``; rows are sampled in the order of these.

    The rows with the smallest times are a weighted random sample without replacement, and those of
    a smaller sample are among those of a larger one with the same key.

    Parameters
    ----------
    positions : ndarray of int64, of shape (n,)
        Not negative and sorted.
    case_weights : ndarray of shape (n,)
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
        times: NDArray[np.float64] = -np.log1p(-numbers_of(positions, key)) / case_weights
    return times


def weights_of_first(
    case_weights: NDArray[np.float64], beyond: float, total: float
) -> NDArray[np.float64]:
    """Return weights by which the rows with the smallest waiting times represent all.

    Given the time t of the first row that is left out, row n is among them with probability
    ``1 - exp(-u_n t)``; it is weighted by u_n over that, and all in proportion to their total.
    Equal case weights give equal weights.

    Parameters
    ----------
    case_weights : ndarray of shape (n,)
        u of the rows, positive.
    beyond : float
        t; infinite if no row is left out.
    total : float
        Sum of the case weights of all rows.

    References
    ----------
    Cohen, Kaplan (2007). Summarizing data using bottom-k sketches. PODC 2007.
    https://doi.org/10.1145/1281100.1281133

    Examples
    --------
    >>> weights_of_first(np.ones(2), 0.4, 10.0)
    array([5., 5.])
    """
    weights: NDArray[np.float64] = case_weights / -np.expm1(-case_weights * beyond)
    weights *= total / weights.sum()
    return weights


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSample:
    """A weighted sample from one reading of the rows.

    Parameters
    ----------
    rows : Rows
        A random sample of the rows.
    weights : ndarray of shape (len(rows),)
        Positive weights that scale the sample to all rows; they sum to their total weight, and
        include the case weights.
    """

    rows: Rows
    weights: NDArray[np.float64]

    def part(self, most: int) -> "RowSample":
        """Return at most as many of the rows, evenly spread, which stand for all."""
        some = np.arange(0, len(self.weights), -(-len(self.weights) // most))
        share = self.weights[some].sum() / self.weights.sum()
        return RowSample(rows=self.rows.take(some), weights=self.weights[some] / share)


class Smallest:
    """The rows with the smallest keys so far, and possibly a few more.

    Parameters
    ----------
    size : int
        Number of rows to keep.

    Examples
    --------
    >>> found = Smallest(1)
    >>> found.add(Rows(np.arange(3), np.ones(3)), np.array([3.0, 1.0, 2.0]))
    >>> found.cut()[1], found.limit
    (array([1.]), 1.0)
    """

    def __init__(self, size: int) -> None:
        self._size, self._n_held = size, 0
        self._parts: list[tuple[Rows, NDArray[np.float64]]] = []
        self.limit = math.inf  # contains all rows with smaller keys

    def add(self, rows: Rows, keys: NDArray[np.float64]) -> None:
        """Add rows with larger positions."""
        early = keys <= self.limit
        if not early.all():
            rows, keys = rows.take(early), keys[early]
        if len(keys) or not self._parts:  # the first, for arrays without rows
            self._parts.append((rows, keys))
            self._n_held += len(keys)
        if self._n_held > 2 * self._size:
            self.cut()

    def cut(self) -> tuple[Rows, NDArray[np.float64]]:
        """Return the rows with the smallest keys, sorted by position, and the keys."""
        rows = Rows.joined([rows for rows, _ in self._parts])
        keys = np.concatenate([keys for _, keys in self._parts])
        if len(keys) > self._size:
            kept = np.sort(np.argpartition(keys, self._size)[: self._size])
            rows, keys = rows.take(kept), keys[kept]
            self.limit = float(keys.max(initial=0.0))
        self._parts, self._n_held = [(rows, keys)], len(keys)
        return rows, keys


def smallest(keys: NDArray[np.float64], size: int) -> tuple[NDArray[np.int64], float]:
    """Return the sorted positions of the `size` smallest finite keys, and the next key.

    Examples
    --------
    >>> smallest(np.array([3.0, 1.0, np.inf, 2.0]), 2)
    (array([1, 3]), 3.0)
    >>> smallest(np.array([3.0, 1.0, np.inf]), 2)
    (array([0, 1]), inf)
    """
    finite = np.flatnonzero(np.isfinite(keys))
    if len(finite) <= size:
        return finite, math.inf
    order = np.argpartition(keys, size)
    return np.sort(order[:size]), float(keys[order[size]])


@dataclass(frozen=True, eq=False)
class FirstRows:
    """The first rows in a random order of all rows, and possibly a few more.

    Parameters
    ----------
    rows : Rows
    times : ndarray of shape (len(rows),)
        Their `waiting_times`.
    limit : float
        All rows with smaller times are included; infinite if all rows are.
    key : int
        Of the order.

    Examples
    --------
    >>> rows = Rows(np.arange(3), np.ones(3))
    >>> first = FirstRows(rows, np.array([0.3, 0.1, 0.2]), 0.3, key=1)
    >>> first.subsample(1, total=10.0).rows.positions, first.has(1), first.has(3)
    (array([1]), True, False)
    """

    rows: Rows
    times: NDArray[np.float64]
    limit: float
    key: int

    @classmethod
    def of(cls, rows: Rows, key: int) -> "FirstRows":
        """Return rows of which none is left out."""
        return cls(rows, waiting_times(rows.positions, rows.case_weights, key), math.inf, key)

    @classmethod
    def none(cls, key: int = -1) -> "FirstRows":
        """Return no rows, of rows that are not known."""
        return cls(Rows(np.empty(0, dtype=np.int64), np.empty(0)), np.empty(0), 0.0, key)

    @classmethod
    def joined(cls, parts: Iterable["FirstRows"], size: int) -> "FirstRows":
        """Return the first `size` rows of consecutive parts of all rows, all of them known."""
        kept, limit, key = Smallest(size), math.inf, -1
        for part in parts:
            limit, key = min(limit, part.limit), part.key
            if limit > 0:
                kept.add(part.rows, part.times)
        if limit <= 0:
            return cls.none(key)
        rows, times = kept.cut()
        here = np.flatnonzero(times <= limit)
        return cls(rows.take(here), times[here], min(limit, kept.limit), key)

    def has(self, size: int) -> bool:
        """Whether the first `size` rows, and the time of the next, are among these."""
        return smallest(self.times, size)[1] <= self.limit

    def subsample(self, size: int, *, total: float) -> RowSample:
        """Return the first `size` rows, of all with weight `total`, if these are here: see `has`.

        Raises
        ------
        ValueError
            If they are not.
        """
        chosen, beyond = smallest(self.times, size)
        if beyond > self.limit:
            raise ValueError(f"{len(self.rows)} rows do not have the first {size} of all")
        rows = self.rows.take(chosen)
        return RowSample(rows=rows, weights=weights_of_first(rows.case_weights, beyond, total))
