"""Weighted rows, group by group."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """All rows, those of a group next to each other.

    Parameters
    ----------
    rows : Rows
        Not in the order of their positions.
    weights : ndarray of shape (n_rows,)
    groups : ndarray of int64, of shape (n_rows,)
        Number of each row's group, not falling.
    n_groups : int
        Number of groups G.

    Examples
    --------
    >>> rows = Rows(np.arange(3), np.ones(3), (np.array([1, 0, 1]),))
    >>> grouped = GroupedRows.sorted(rows, rows.base_weights, rows.arrays[0], 2)
    >>> grouped.rows.positions, grouped.of(1)
    (array([1, 0, 2]), array([1, 2]))
    """

    rows: Rows
    weights: NDArray[np.float64]
    groups: NDArray[np.int64]
    n_groups: int

    @classmethod
    def sorted(
        cls,
        rows: Rows,
        weights: NDArray[np.float64],
        groups: NDArray[np.int64],
        n_groups: int,
    ) -> Self:
        """Sort rows by their groups."""
        order = np.argsort(groups, kind="stable")
        return cls(rows.take(order), weights[order], groups[order], n_groups)

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """Where the rows of each group begin, and those of the last one end: (G + 1,)."""
        return np.searchsorted(self.groups, np.arange(self.n_groups + 1))

    def of(self, group: int) -> NDArray[np.int64]:
        """Return where the rows of a group stand."""
        return np.arange(self.bounds[group], self.bounds[group + 1])
