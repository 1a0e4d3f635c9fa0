"""pandas frames as columns of numbers and text."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.tabular import Field, Values, array_values

__all__ = ["PandasTable"]


class PandasTable:
    """A pandas frame; its index is left aside.

    Parameters
    ----------
    frame : pandas.DataFrame

    Raises
    ------
    InvalidDataError
        If two columns have the same name.

    Examples
    --------
    >>> table = PandasTable(pd.DataFrame({"n": pd.array([3, None], dtype="Int64")}))
    >>> table.values("n", slice(0, 2))
    Values(data=array([3, 0]), missing=array([False,  True]), categories=None)
    """

    def __init__(self, frame: Any) -> None:  # noqa: ANN401
        if not frame.columns.is_unique:
            name = frame.columns[frame.columns.duplicated()][0]
            raise InvalidDataError(f"The frame has two columns {name!r}: rename one of them.")
        self._columns = {str(name): frame[name] for name in frame.columns}
        if len(self._columns) < len(frame.columns):
            raise InvalidDataError(
                "Two columns of the frame have names that are the same as text, such as 1 and '1': "
                "rename one of them."
            )
        self.n_rows: int = len(frame)
        self.n_bytes = int(frame.memory_usage(index=False).sum())
        self.fields: Mapping[str, Field] = {
            name: _field_of(column.dtype) for name, column in self._columns.items()
        }

    def values(self, name: str, rows: slice) -> Values:
        """Return some rows of a column, see `Table.values`."""
        column, field = self._columns[name].iloc[rows], self.fields[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes = column.cat.codes.to_numpy(np.int64)
            absent = codes < 0
            return Values(codes, absent if absent.any() else None, list(column.cat.categories))
        if field.dtype is None:
            return array_values(column.to_numpy(object))
        if isinstance(column.dtype, np.dtype):
            return array_values(column.to_numpy())
        absent = column.isna().to_numpy()
        if not absent.any():
            return Values(column.to_numpy(field.dtype))
        return Values(column.to_numpy(field.dtype, na_value=field.dtype.type(0)), absent)


def _field_of(dtype: Any) -> Field:  # noqa: ANN401
    types = pd.api.types
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if isinstance(dtype, pd.CategoricalDtype) or types.is_string_dtype(dtype):
        return Field(None)
    if types.is_object_dtype(dtype):
        return Field(None)
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return Field(None, (), "dates or times")
    if types.is_bool_dtype(dtype) or types.is_integer_dtype(dtype) or types.is_float_dtype(dtype):
        numbers = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype.numpy_dtype)
        return Field(numbers.newbyteorder("="))
    return Field(None, (), f"values of type {dtype}")
