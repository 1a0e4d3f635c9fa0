"""polars frames as columns of numbers and text."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from pymc_coresets.rows.sources.tabular import Field, Values, array_values

__all__ = ["PolarsTable"]

_TEXT = (pl.String, pl.Categorical, pl.Enum, pl.Binary)


class PolarsTable:
    """A polars frame.

    Parameters
    ----------
    frame : polars.DataFrame
    """

    def __init__(self, frame: Any) -> None:  # noqa: ANN401
        self._frame = frame
        self.n_rows: int = frame.height
        self.fields: Mapping[str, Field] = {n: _kind_of(t) for n, t in frame.schema.items()}

    @property
    def n_bytes(self) -> int:
        """Size of all columns in memory."""
        return int(self._frame.estimated_size())

    def values(self, name: str, rows: slice) -> Values:
        """Return some rows of a column, see `Table.values`."""
        start, stop, _ = rows.indices(self.n_rows)
        column, field = self._frame[name].slice(start, stop - start), self.fields[name]
        if field.dtype is None:
            is_bytes = column.dtype == pl.Binary
            texts = (column if is_bytes else column.cast(pl.String)).to_list()
            return array_values(np.array(texts, dtype=object))
        missing = column.is_null().to_numpy() if column.null_count() else None
        if missing is not None:
            column = column.fill_null(value=False if field.dtype.kind == "b" else 0)
        return Values(column.to_numpy().astype(field.dtype, copy=False), missing)


def _kind_of(dtype: Any) -> Field:  # noqa: ANN401
    if dtype in _TEXT:
        return Field(None)
    if dtype.is_temporal():
        return Field(None, (), "dates or times")
    if dtype.is_decimal():
        return Field(np.dtype(np.float64))
    if dtype.is_numeric() or dtype == pl.Boolean:
        return Field(pl.Series([], dtype=dtype).to_numpy().dtype)
    return Field(None, (), f"values of type {dtype}")
