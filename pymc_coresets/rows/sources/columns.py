"""Arrays of NumPy and pandas as numbers and text, with missing values."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

TEXT = np.dtype(object)


@dataclass(frozen=True)
class Field:
    """What a column of a source holds.

    Parameters
    ----------
    dtype : numpy.dtype
        Of numbers and truth values; `TEXT` for text and categories.
    shape : tuple of int
        Shape of one row.
    refused : str
        Why the column cannot be used: ``"dates or times"``; empty if it can.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    refused: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it holds text or categories, or nothing that can be used."""
        return self.dtype == TEXT

    def __str__(self) -> str:
        kind = self.refused or ("text" if self.is_text else str(self.dtype))
        return f"{kind} of shape {self.shape}" if self.shape else kind


@dataclass(frozen=True, eq=False)
class Values:
    """What a column holds, whichever library it is of.

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


def array_field(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Field:
    """Say what an array holds, of which each row has the given shape.

    Examples
    --------
    >>> str(array_field(np.dtype("U2"), ())), str(array_field(np.dtype(float), (2,)))
    ('text', 'float64 of shape (2,)')
    """
    if dtype.kind in "OUST":
        return Field(TEXT, shape, "text of several columns" if shape else "")
    if dtype.kind in "Mm":
        return Field(TEXT, shape, "dates or times")
    if dtype.kind not in "biuf":
        return Field(TEXT, shape, f"{dtype} values")
    return Field(dtype.newbyteorder("="), shape)


def column_field(column: Any) -> Field:  # noqa: ANN401
    """Say what an array of NumPy or pandas holds.

    Examples
    --------
    >>> str(column_field(pd.array([3, None])))
    'int64'
    """
    if isinstance(column, np.ndarray):
        return array_field(column.dtype, column.shape[1:])
    types = pd.api.types
    dtype = column.dtype.subtype if isinstance(column.dtype, pd.SparseDtype) else column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or types.is_string_dtype(dtype):
        return Field(TEXT)
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return Field(TEXT, (), "dates or times")
    if types.is_bool_dtype(dtype) or types.is_integer_dtype(dtype) or types.is_float_dtype(dtype):
        return array_field(np.dtype(getattr(dtype, "numpy_dtype", dtype)), ())
    return Field(TEXT, (), f"values of type {dtype}")


def column_values(column: Any, field: Field) -> Values:  # noqa: ANN401
    """Return the values of an array of NumPy or pandas.

    Examples
    --------
    >>> column = pd.array([3, None])
    >>> column_values(column, column_field(column))
    Values(data=array([3, 0]), missing=array([False,  True]), categories=None)
    """
    if isinstance(column, np.ndarray):
        return _array_values(column)
    absent = np.asarray(column.isna())
    missing = absent if absent.any() else None
    if isinstance(column, pd.Categorical):
        return Values(column.codes.astype(np.int64), missing, list(column.categories))
    if field.is_text:
        return _array_values(column.to_numpy(object))
    if missing is None:
        return Values(column.to_numpy(field.dtype))
    return Values(column.to_numpy(field.dtype, na_value=field.dtype.type(0)), missing)


def _array_values(array: NDArray[Any]) -> Values:
    """Return the values of an array, with text as positions among its distinct values."""
    mask = np.ma.getmask(array)
    missing = None if mask is np.ma.nomask else mask.reshape(len(array), -1).any(axis=1)
    if isinstance(array, np.ma.MaskedArray):
        array = array.filled(array.dtype.type(0)) if array.dtype.kind in "biuf" else array.data
    if array.dtype.kind not in "OUST":
        return Values(np.asarray(array), missing)
    codes, found = pd.factorize(array.astype(object))
    absent = (codes < 0) if missing is None else (codes < 0) | missing
    return Values(codes, absent if absent.any() else None, list(found))
