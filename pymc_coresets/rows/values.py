"""Some rows of the data, as a value: their positions, case weights, and data."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError


@dataclass(frozen=True, eq=False)
class UnitRows:
    """The rows of some units, stored unit by unit; by default, and false, of none.

    Parameters
    ----------
    sizes : ndarray of int64, of shape (n_units,)
        How many rows each unit has, at least one.
    positions : ndarray of int64, of shape (n_unit_rows,)
        Positions of the rows in the user's data.
    arrays : tuple of ndarray
        Their data, each array with the rows along its first axis.
    nodes : tuple of ndarray
        Nodes of the integrals in the log-likelihoods of units.

    Examples
    --------
    >>> unit_rows = UnitRows(np.array([1, 2]), np.arange(3), (np.array([5.0, 7.0, 9.0]),))
    >>> unit_rows.take(np.array([1])).arrays
    (array([7., 9.]),)
    """

    sizes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    positions: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    arrays: tuple[np.ndarray, ...] = ()
    nodes: tuple[np.ndarray, ...] = ()

    def __bool__(self) -> bool:
        return bool(len(self.sizes))

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.sizes)

    def take(self, which: slice | NDArray[np.int64] | NDArray[np.bool_]) -> "UnitRows":
        """Return the rows of some of the units."""
        if not self:
            return self
        sizes = self.sizes[which]
        if isinstance(which, slice):  # a view
            first = which.indices(len(self.sizes))[0]
            start = int(self._ends[first - 1]) if first else 0
            chosen: Any = slice(start, start + int(sizes.sum()))
        else:
            starts = (self._ends - self.sizes)[which]
            before = np.cumsum(sizes) - sizes
            chosen = np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
        arrays = tuple(a[chosen] for a in self.arrays)
        return UnitRows(sizes, self.positions[chosen], arrays, self.nodes)

    @classmethod
    def joined(cls, parts: Sequence["UnitRows"]) -> "UnitRows":
        """Concatenate several parts."""
        return cls(
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.positions for part in parts]),
            tuple(map(np.concatenate, zip(*(part.arrays for part in parts), strict=True))),
            parts[0].nodes,
        )


#: Those of rows that are no units.
NO_UNIT_ROWS = UnitRows()


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of the user's data, with all that is needed to evaluate their log-likelihood.

    They may be units of several rows each: then all fields but `unit_rows` describe units.

    Parameters
    ----------
    positions : ndarray of int64, of shape (n_rows,)
        Positions along the observation axis of the user's own data, sorted and unique.
    case_weights : ndarray of float64, of shape (n_rows,)
        Number of rows of the data that each row represents, ``u_n >= 0``; 1 unless equal rows were
        merged.  Log-likelihoods of rows are those of a single one.
    arrays : tuple of ndarray
        The data, each array with the rows along its first axis.
    unit_rows : UnitRows
        The rows of units.

    Examples
    --------
    >>> x = np.array([2.0, 3.0, 5.0])
    >>> rows = Rows(np.arange(3), np.ones(3), (x,))
    >>> len(rows), rows.take(np.array([0, 2])).arrays
    (3, (array([2., 5.]),))
    """

    positions: NDArray[np.int64]
    case_weights: NDArray[np.float64]
    arrays: tuple[np.ndarray, ...] = ()
    unit_rows: UnitRows = NO_UNIT_ROWS

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, which: slice | NDArray[np.int64] | NDArray[np.bool_]) -> "Rows":
        """Return some of the rows; `which` selects among these, in increasing order."""
        return Rows(
            self.positions[which],
            self.case_weights[which],
            tuple(array[which] for array in self.arrays),
            self.unit_rows.take(which),
        )

    def blocks(self, size: int) -> Iterator["Rows"]:
        """Split the rows into consecutive blocks of at most `size`, without copying the data."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    @property
    def n_numbers(self) -> int:
        """Number of numbers in the rows."""
        return sum(array.size for array in self.inputs)

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        """All arrays: those of the rows, or of units and of their rows, and the nodes."""
        return self.arrays + self.unit_rows.arrays + self.unit_rows.nodes

    @property
    def n_unit_rows(self) -> int:
        """Number of rows of the user's data."""
        return len(self.unit_rows.positions) if self.unit_rows else len(self)

    def where(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the rows with the given positions, all of which must be included.

        Examples
        --------
        >>> Rows(np.array([3, 7, 9]), np.ones(3)).where(np.array([9, 3]))
        array([2, 0])
        """
        return np.searchsorted(self.positions, positions)

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return all rows of one or more parts, sorted by position, each once.

        Examples
        --------
        >>> part = Rows(np.array([2]), np.ones(1), (np.array([0.5]),))
        >>> Rows.joined([part, part]).arrays
        (array([0.5]),)
        """
        if len(parts) == 1:
            return parts[0]
        every = cls(
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.case_weights for part in parts]),
            tuple(map(np.concatenate, zip(*(part.arrays for part in parts), strict=True))),
            UnitRows.joined([part.unit_rows for part in parts]),
        )
        if (np.diff(every.positions) > 0).all():  # each row is copied once
            return every
        return every.take(np.unique(every.positions, return_index=True)[1])


def in_blocks(parts: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Cut consecutive rows into blocks of `size`; only the last one may be smaller."""
    left: list[Rows] = []  # less than a block
    n_left = 0
    for part in parts:
        n_taken = min(size - n_left, len(part))
        left.append(part.take(slice(0, n_taken)))
        n_left += n_taken
        if n_left < size:
            continue
        yield Rows.joined(left)
        left = []  # a view would keep the previous part in memory
        # Whole blocks of a part are views of it: only blocks across a border are copied.
        n_left = (len(part) - n_taken) % size
        yield from part.take(slice(n_taken, len(part) - n_left)).blocks(size)
        left = [part.take(slice(len(part) - n_left, None))] if n_left else []
    if n_left:
        yield Rows.joined(left)


def converted(name: str, array: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    """Return numbers of a column in the type of the model's container.

    Parameters
    ----------
    name, where : str
        Of the column and the rows, for the message.
    array : ndarray
    dtype : numpy.dtype
        Of the same kind.

    Raises
    ------
    InvalidDataError
        If a whole number does not fit.

    Examples
    --------
    >>> converted("n", np.array([1, 2]), np.dtype("int8"), "chunk 0")
    array([1, 2], dtype=int8)
    """
    narrower = dtype.kind in "iu" and array.size and not np.can_cast(array.dtype, dtype)
    if narrower:
        limits, low, high = np.iinfo(dtype), array.min(), array.max()
        if low < limits.min or high > limits.max:
            beyond = low if low < limits.min else high
            raise InvalidDataError(
                f"{where}: column {name!r} has {beyond}, which does not fit into "
                f"pm.Data({name!r}), of {dtype}: PyMC gives whole numbers this type. Make the "
                "column floating-point numbers before open_rows.",
                topic="rows-and-files",
            )
    return array.astype(dtype, casting="same_kind", copy=False)
