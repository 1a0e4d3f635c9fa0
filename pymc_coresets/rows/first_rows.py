"""Rows that come first in a random order, of which smaller samples are parts of larger ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.keyed import waiting_times, weights_of_first
from pymc_coresets.rows.passes import Scan, Smallest, smallest
from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, eq=False)
class FirstRows:
    """Rows that come first in a random order of all, and perhaps some more.

    Parameters
    ----------
    rows : Rows
    times : ndarray of shape (len(rows),)
        Their `waiting_times`.
    limit : float
        All rows whose times are smaller are here; infinite where all rows are.
    key : int
        Of the order.

    Examples
    --------
    >>> rows = Rows(np.arange(3), np.ones(3))
    >>> first = FirstRows(rows, np.array([0.3, 0.1, 0.2]), 0.3, key=1)
    >>> first.sample(1, total=10.0).rows.positions, first.sample(3, total=10.0)
    (array([1]), None)
    """

    rows: Rows
    times: NDArray[np.float64]
    limit: float
    key: int

    @classmethod
    def joined(cls, parts: Sequence["FirstRows | None"], size: int) -> "FirstRows | None":
        """Return the first `size` rows, and one more, of consecutive parts of all rows."""
        kept, limit, key = Smallest(size + 1), math.inf, 0
        for part in parts:
            if part is None:
                return None
            kept.add(part.rows, part.times)
            limit, key = min(limit, part.limit), part.key
        rows, times = kept.cut()
        here = np.flatnonzero(times <= limit)
        return cls(rows.take(here), times[here], min(limit, kept.limit), key)

    def sample(self, size: int, *, total: float) -> Scan | None:
        """Return the first `size` rows, of all that weigh `total`; None if some are not here."""
        chosen, beyond = smallest(self.times, size)
        if beyond > self.limit:
            return None
        rows = self.rows.take(chosen)
        return Scan(rows=rows, weights=weights_of_first(rows.base_weights, beyond, total))


def keep_earliest(kept: Smallest, rows: Rows, key: int) -> None:
    """Add rows to those with the smallest waiting times.

    Examples
    --------
    >>> kept = Smallest(2)
    >>> for rows in Rows(np.arange(9), np.ones(9)).blocks(4):
    ...     keep_earliest(kept, rows, key=1)
    >>> len(kept.cut()[0])
    2
    """
    times = waiting_times(rows.positions, rows.base_weights, key)
    early = np.flatnonzero(np.isfinite(times) & (times < kept.limit))
    kept.add(rows.take(early), times[early])
    kept.cut()
