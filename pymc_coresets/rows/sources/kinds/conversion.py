"""Tables from whatever holds columns in memory: mappings, frames, Arrow tables, matrices."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pymc_coresets.rows.sources.kinds.pandas_tables import PandasTable
from pymc_coresets.rows.sources.tabular import ArrayTable, Table

__all__ = ["library_of", "table_of"]


def library_of(value: Any) -> str:  # noqa: ANN401
    """Return the package that a value's class comes from, without importing it.

    Examples
    --------
    >>> library_of(pd.DataFrame()), library_of([])
    ('pandas', 'builtins')
    """
    return type(value).__module__.partition(".")[0]


def table_of(value: Any) -> Table | None:  # noqa: ANN401
    """Return a table of columns in memory, or None if the value is nothing of the kind.

    The columns of a matrix are named ``"0"``, ``"1"``, ...

    Examples
    --------
    >>> table_of(np.zeros((5, 2))).fields.keys()
    dict_keys(['0', '1'])
    >>> table_of(3) is None
    True
    """
    kind = (library_of(value), type(value).__name__)
    if isinstance(value, pd.DataFrame):
        return PandasTable(value)
    if isinstance(value, Mapping):
        return ArrayTable({str(name): _plain(array) for name, array in value.items()})
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return ArrayTable({str(j): column for j, column in enumerate(value.T)})
    if kind == ("polars", "DataFrame"):
        from pymc_coresets.rows.sources.kinds.polars_tables import PolarsTable  # noqa: PLC0415

        return PolarsTable(value)
    if kind in {("pyarrow", "Table"), ("pyarrow", "RecordBatch")}:
        from pymc_coresets.rows.sources.kinds.arrow_tables import ArrowTable  # noqa: PLC0415

        return ArrowTable(value)
    return None


def _plain(column: Any) -> Any:  # noqa: ANN401
    """Return a column of a mapping as an array; text of a frame's column stays text."""
    arrow = library_of(column) == "pyarrow"
    if arrow or isinstance(column, pd.Series | pd.Categorical | pd.Index):
        table = _arrow_column(column) if arrow else PandasTable(pd.DataFrame({"column": column}))
        values = table.values("column", slice(None))
        if values.categories is not None:
            return np.array([*values.categories, None], dtype=object)[values.data]
        mask: Any = np.ma.nomask if values.missing is None else values.missing
        return np.ma.MaskedArray(values.data, mask) if mask is not np.ma.nomask else values.data
    return column.to_numpy() if hasattr(column, "to_numpy") else column


def _arrow_column(column: Any) -> Table:  # noqa: ANN401
    import pyarrow as pa  # noqa: PLC0415

    from pymc_coresets.rows.sources.kinds.arrow_tables import ArrowTable  # noqa: PLC0415

    return ArrowTable(pa.table({"column": column}))
