"""Rows that lie in the memory of this process."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.keyed import Scan, smallest, waiting_times, weights_of_first
from pymc_coresets.rows.passes import Pass
from pymc_coresets.rows.threads import TASK_ROWS, reduced_by_threads
from pymc_coresets.rows.values import Rows


class InMemoryRows:
    """All rows of some data, as arrays; the only place that holds arrays as long as the data.

    Parameters
    ----------
    arrays : sequence of ndarray
        The data, each array with the rows along its first axis.  They are not copied.
    base_weights : ndarray of shape (n_rows,), optional
        How many rows each row stands for; 1 by default.
    positions : ndarray of int64, of shape (n_rows,), optional
        Positions in the user's data, sorted and unique; 0, 1, ... by default.
    place : callable, optional
        From a position to where the user finds the row, for messages.

    Raises
    ------
    InvalidDataError
        If the base weights are not finite and non-negative, or all 0.

    Examples
    --------
    >>> rows = InMemoryRows([np.array([2.0, 3.0, 5.0])])
    >>> rows.n_rows, rows.total_weight, rows.take(np.array([1])).arrays
    (3, 3.0, (array([3.]),))
    """

    def __init__(
        self,
        arrays: Sequence[NDArray[Any]],
        base_weights: NDArray[np.float64] | None = None,
        positions: NDArray[np.int64] | None = None,
        *,
        place: Callable[[int], str] = "observation {}".format,
    ) -> None:
        self._place = place
        n_rows = len(arrays[0]) if positions is None else len(positions)
        weights = np.ones(n_rows) if base_weights is None else np.asarray(base_weights, float)
        if weights.shape != (n_rows,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
            raise InvalidDataError(
                f"base_weights must be {n_rows} finite, non-negative numbers, not all 0, but have "
                f"shape {weights.shape} and sum {weights.sum()}"
            )
        numbers = np.arange(n_rows) if positions is None else positions
        self.all = Rows(numbers, weights, tuple(arrays))
        self.total_weight = float(weights.sum())

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return len(self.all)

    def take(self, which: NDArray[np.int64] | slice) -> Rows:
        """Return the rows with the numbers `which` among these."""
        return self.all.take(which)

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows that have the given positions in the user's data.

        Raises
        ------
        InvalidDataError
            If there is no row at a position.
        """
        found = np.minimum(self.all.where(positions), self.n_rows - 1)
        missing = np.flatnonzero(self.all.positions[found] != positions)
        if missing.size:
            raise InvalidDataError(
                f"The data have no row at position {positions[missing[0]]}: it lies outside of "
                "them, or its value is missing."
            )
        return self.take(found)

    def blocks(self, size: int) -> Iterator[Rows]:
        """Split the rows into consecutive blocks, without copying the data."""
        return self.all.blocks(size)

    def reduce[T](self, work: Pass[T]) -> T:
        """Add up what threads compute from blocks of the rows."""
        groups = list(self.blocks(TASK_ROWS))
        blocks = chain.from_iterable(group.blocks(work.size) for group in groups)
        return reduced_by_threads(work, blocks, list(map(len, groups)))

    def place(self, position: int) -> str:
        """Say where the user finds a row, for messages."""
        return self._place(position)

    def scan(self, size: int, *, key: int, distinct: bool = False) -> Scan:
        """Sample rows in proportion to their base weights, see `Potentials.scan`.

        O(N) time and memory.

        Notes
        -----
        With replacement: see `multinomial_sample`.  Distinct: successive sampling, by the smallest
        `waiting_times`, with `weights_of_first`.

        Examples
        --------
        >>> scan = InMemoryRows([np.arange(10.0)]).scan(4, key=1)
        >>> float(scan.weights.sum())
        10.0
        """
        weights = self.all.base_weights
        if distinct:
            times = waiting_times(self.all.positions, weights, key)
            chosen, beyond = smallest(times, size)
            rows = self.take(chosen)
            masses = weights_of_first(rows.base_weights, beyond, self.total_weight)
            return Scan(rows=rows, weights=masses)
        chosen, masses = multinomial_sample(weights, size, key=key)
        return Scan(rows=self.take(chosen), weights=masses)


def multinomial_sample(
    masses: NDArray[np.float64], size: int, *, key: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample with replacement, in proportion to masses.

    O(n) time and memory for n masses.

    Parameters
    ----------
    masses : ndarray of shape (n,)
        ``u_n >= 0``, not all 0.
    size : int
        Number of draws; fewer numbers result where some are drawn repeatedly.
    key : int
        Of the random numbers.

    Returns
    -------
    which : ndarray of int64
        Sorted and unique.
    weights : ndarray of float64
        Positive; they sum to ``sum(masses)``.

    Notes
    -----
    ``K ~ Multinomial(size, u / sum(u))`` and ``w_n = K_n sum(u) / size``, so that ``E[w_n] = u_n``
    and ``Cov[w_n, w_m] = (sum(u) u_n [n = m] - u_n u_m) / size``.

    Examples
    --------
    >>> which, weights = multinomial_sample(np.ones(10), 4, key=1)
    >>> float(weights.sum())
    10.0
    """
    heights = np.cumsum(masses)
    points = np.random.default_rng(key).random(size) * heights[-1]
    drawn = np.searchsorted(heights, points, side="right")
    # Rounding may lift a point onto the total, where no mass lies.
    drawn = np.minimum(drawn, np.flatnonzero(masses)[-1])
    which, counts = np.unique(drawn, return_counts=True)
    return which, counts * (heights[-1] / size)
