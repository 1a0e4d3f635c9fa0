"""Tables in memory, whichever library their columns are of."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import mmap
from typing import Any, Self

import numpy as np
import pandas as pd

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.columns import (
    Field,
    Values,
    column_field,
    column_values,
    library_of,
)


@dataclass(frozen=True, eq=False)
class Table:
    """Some rows in memory, by column.

    Parameters
    ----------
    columns : mapping from str to array
        Arrays of NumPy, extension arrays of pandas or chunked arrays of Arrow, of equal lengths;
        or `Values`, which were read elsewhere.
    fields : mapping from str to Field
    n_rows : int

    Examples
    --------
    >>> table = table_of({"x": np.arange(3.0), "g": np.array(["b", None, "b"], dtype=object)})
    >>> table.values("g")
    Values(data=array([ 0, -1,  0]), missing=array([False,  True, False]), categories=['b'])
    >>> table.part(["x"], slice(1, 3)).values("x").data
    array([1., 2.])
    """

    columns: Mapping[str, Any]
    fields: Mapping[str, Field]
    n_rows: int

    @classmethod
    def of(cls, named: Iterable[tuple[str, Any]]) -> Self:
        """Say what columns hold, each with its name.

        Raises
        ------
        InvalidDataError
            If two have the same name, one has no rows axis, or the lengths differ.
        """
        named = list(named)
        for name, count in Counter(name for name, _ in named).items():
            if count > 1:
                raise InvalidDataError(
                    f"There are two columns {name!r}: rename one of them. Names are compared as "
                    "text."
                )
        columns = dict(named)
        lengths = {name: len(c) if getattr(c, "ndim", 1) else None for name, c in columns.items()}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            raise InvalidDataError(
                "Each array needs the rows along its first axis, and as many of them as the "
                f"others, but the numbers of rows are {lengths}."
            )
        fields = {name: column_field(column) for name, column in columns.items()}
        return cls(columns, fields, next(iter(lengths.values()), 0) or 0)

    @property
    def n_bytes(self) -> int:
        """Size of all columns."""
        return sum(int(column.nbytes) for column in self.columns.values())

    def part(self, names: Sequence[str], rows: slice) -> Self:
        """Return some rows of some columns, which are views of these."""
        columns = {name: self.columns[name][rows] for name in names if name in self.columns}
        return replace(self, columns=columns, n_rows=len(range(*rows.indices(self.n_rows))))

    def values(self, name: str) -> Values:
        """Return what a column holds."""
        return column_values(self.columns[name], self.fields[name])

    def read(self, names: Sequence[str]) -> Self:
        """Return some of the columns as values, which can be sent elsewhere."""
        known = [name for name in names if name in self.columns]
        columns = {name: self.values(name) for name in known}
        return replace(self, columns=columns, fields={name: self.fields[name] for name in known})

    def __getstate__(self) -> dict[str, Any]:
        stored = {name: _mapped_file(column) for name, column in self.columns.items()}
        return vars(self) | {"columns": stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = state.pop("columns").items()
        columns = {n: np.memmap(**c) if isinstance(c, dict) else c for n, c in stored}
        vars(self).update(state, columns=columns)


def table_of(value: Any) -> Table | None:  # noqa: ANN401
    """Return what holds columns in memory as a table, or None if the value is nothing of the kind.

    The columns of a matrix are named ``"0"``, ``"1"``, ...  The index of a frame is left aside.

    Raises
    ------
    InvalidDataError
        If two columns have the same name, or their lengths differ.
    InvalidOptionError
        If it is of polars, and there is no pyarrow.

    Examples
    --------
    >>> table_of(np.zeros((5, 2))).fields.keys()
    dict_keys(['0', '1'])
    >>> table_of(3) is None
    True
    """
    kind = (library_of(value), type(value).__name__)
    if isinstance(value, pd.DataFrame):
        pairs = enumerate(value.columns)
        return Table.of((str(name), _plain(value.iloc[:, j])) for j, name in pairs)
    if isinstance(value, Mapping):
        return Table.of((str(name), _plain(column)) for name, column in value.items())
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return Table.of((str(j), column) for j, column in enumerate(value.T))
    if kind == ("polars", "DataFrame"):
        try:
            return table_of(value.to_arrow())
        except ModuleNotFoundError as error:
            raise InvalidOptionError(
                "A frame of polars needs pyarrow, which is not installed: "
                'pip install "pymc-coresets[parquet]".'
            ) from error
    if kind in {("pyarrow", "Table"), ("pyarrow", "RecordBatch")}:
        return arrow_table(value)
    return None


def arrow_table(value: Any) -> Table:  # noqa: ANN401
    """Return a table or a record batch of Arrow as a table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> arrow_table(pa.table({"x": [1, None]})).values("x").missing
    array([False,  True])
    """
    return Table.of(zip(value.schema.names, value.columns, strict=True))


def _plain(column: Any) -> Any:  # noqa: ANN401
    """Return a column of a mapping as a `Table` holds it."""
    if isinstance(column, pd.Series | pd.Index):
        column = column.array
    if isinstance(column, pd.Categorical) or library_of(column) == "pyarrow":
        return column
    if isinstance(column, pd.api.extensions.ExtensionArray):
        return column.to_numpy() if isinstance(column.dtype, np.dtype) else column
    return np.asanyarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _mapped_file(column: Any) -> Any:  # noqa: ANN401
    """Return how a memory-mapped array is opened again; other columns, and views, themselves."""
    if not isinstance(column, np.memmap) or not isinstance(column.base, mmap):
        return column
    order = "C" if column.flags.c_contiguous else "F"
    return {
        "filename": column.filename, "dtype": column.dtype, "mode": "r",
        "offset": column.offset, "shape": column.shape, "order": order,
    }  # fmt: skip


# -- readers ---------------------------------------------------------------------------------------
