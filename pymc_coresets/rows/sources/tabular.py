"""What a piece of a source has to offer: columns of numbers or of text, with missing values."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError

__all__ = ["ArrayTable", "Field", "ReadTable", "Table", "Values", "array_field", "array_values"]


@dataclass(frozen=True)
class Field:
    """What a column of a source holds.

    Parameters
    ----------
    dtype : numpy.dtype or None
        Of numbers and truth values; None for text and categories.
    shape : tuple of int
        Shape of one row.
    refused : str
        Why the column cannot be used: ``"dates or times"``; empty if it can.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] = ()
    refused: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Field):
            return NotImplemented
        return self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    @property
    def _compared(self) -> tuple[object, ...]:
        """Whether it is text comes first: NumPy takes None for float64."""
        return self.dtype is None, self.dtype, self.shape, self.refused

    def __str__(self) -> str:
        kind = self.refused or ("text" if self.dtype is None else str(self.dtype))
        return f"{kind} of shape {self.shape}" if self.shape else kind


@dataclass(frozen=True, eq=False)
class Values:
    """Some rows of a column.

    Parameters
    ----------
    data : ndarray
        Numbers with the rows along the first axis, or positions in `categories`.
    missing : ndarray of bool, optional
        Which rows have no value; None where all have one.
    categories : sequence, optional
        The distinct values of text or categories.
    """

    data: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    categories: Sequence[Hashable] | None = None


class Table(Protocol):
    """Some rows in memory, by column."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_bytes(self) -> int:
        """Size of all columns in memory; an estimate."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """What each column holds."""

    def values(self, name: str, rows: slice) -> Values:
        """Return some rows of a column."""


@dataclass(frozen=True, eq=False)
class ReadTable:
    """The values of some rows, which were read elsewhere.

    Parameters
    ----------
    n_rows : int
    fields : mapping from str to Field
    columns : mapping from str to Values
    """

    n_rows: int
    fields: Mapping[str, Field]
    columns: Mapping[str, Values]

    @classmethod
    def of(cls, table: Table, rows: slice, names: Sequence[str]) -> Self:
        """Read some rows of a table.

        Examples
        --------
        >>> ReadTable.of(ArrayTable({"x": np.arange(9.0)}), slice(2, 5), ["x"]).n_rows
        3
        """
        columns = {name: table.values(name, rows) for name in names if name in table.fields}
        fields = {name: table.fields[name] for name in columns}
        return cls(len(range(*rows.indices(table.n_rows))), fields, columns)

    @property
    def n_bytes(self) -> int:
        """Size of the columns, see `Table.n_bytes`."""
        return sum(values.data.nbytes for values in self.columns.values())

    def values(self, name: str, rows: slice) -> Values:
        """Return some rows of a column, see `Table.values`."""
        values = self.columns[name]
        missing = None if values.missing is None else values.missing[rows]
        return Values(values.data[rows], missing, values.categories)


def array_field(array: NDArray[Any]) -> Field:
    """Say what an array holds.

    Examples
    --------
    >>> str(array_field(np.array(["a", "b"]))), str(array_field(np.zeros((3, 2))))
    ('text', 'float64 of shape (2,)')
    """
    shape, kind = array.shape[1:], array.dtype.kind
    if kind in "OUST":
        return Field(None, shape, "text of several columns" if shape else "")
    if kind in "Mm":
        return Field(None, shape, "dates or times")
    if kind not in "biuf":
        return Field(None, shape, f"{array.dtype} values")
    return Field(array.dtype.newbyteorder("="), shape)


def array_values(array: NDArray[Any]) -> Values:
    """Return the values of an array, with text as positions among its distinct values.

    Examples
    --------
    >>> values = array_values(np.array(["b", None, "b"], dtype=object))
    >>> values.data, values.missing, list(values.categories)
    (array([ 0, -1,  0]), array([False,  True, False]), ['b'])
    """
    mask = np.ma.getmask(array)
    missing = None if mask is np.ma.nomask else mask.reshape(len(array), -1).any(axis=1)
    if isinstance(array, np.ma.MaskedArray):
        array = array.filled(array.dtype.type(0)) if array.dtype.kind in "biuf" else array.data
    if array.dtype.kind not in "OUST":
        return Values(np.asarray(array), missing)
    codes, found = pd.factorize(array.astype(object))
    absent = (codes < 0) if missing is None else (codes < 0) | missing
    return Values(codes, absent if absent.any() else None, list(found))


class ArrayTable:
    """Arrays of equal lengths, by name.

    Parameters
    ----------
    arrays : mapping from str to array
        Each with the rows along its first axis.

    Raises
    ------
    InvalidDataError
        If an array has no rows axis, or the lengths differ.

    Examples
    --------
    >>> ArrayTable({"x": np.zeros(3)}).n_rows
    3
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = {name: np.asanyarray(array) for name, array in arrays.items()}
        lengths = {name: len(a) if a.ndim else None for name, a in self._arrays.items()}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            raise InvalidDataError(
                "Each array needs the rows along its first axis, and as many of them as the "
                f"others, but the numbers of rows are {lengths}."
            )
        self.n_rows = next(iter(lengths.values()), 0) or 0
        self.n_bytes = sum(array.nbytes for array in self._arrays.values())
        self.fields: Mapping[str, Field] = {n: array_field(a) for n, a in self._arrays.items()}

    def __getstate__(self) -> dict[str, Any]:
        stored = {name: _mapped_file(array) for name, array in self._arrays.items()}
        return vars(self) | {"_arrays": stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = state.pop("_arrays").items()
        opened = {n: np.memmap(**a) if isinstance(a, dict) else a for n, a in arrays}
        vars(self).update(state, _arrays=opened)

    def values(self, name: str, rows: slice) -> Values:
        """Return some rows of a column, see `Table.values`."""
        return array_values(self._arrays[name][rows])


def _mapped_file(array: NDArray[Any]) -> NDArray[Any] | dict[str, Any]:
    """Return how a memory-mapped array is opened again; other arrays, and views, themselves."""
    if not isinstance(array, np.memmap) or not isinstance(array.base, mmap):
        return array
    order = "C" if array.flags.c_contiguous else "F"
    return {
        "filename": array.filename, "dtype": array.dtype, "mode": "r",
        "offset": array.offset, "shape": array.shape, "order": order,
    }  # fmt: skip
