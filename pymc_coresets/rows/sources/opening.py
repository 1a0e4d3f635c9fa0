"""`open_rows`: finds out what kind of source it is given."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.rows.chunks import RowSource
from pymc_coresets.rows.sources.reader import Reader, TableReader
from pymc_coresets.rows.sources.recipes import recipes_of, weight_recipe
from pymc_coresets.rows.sources.row_table import RowTable
from pymc_coresets.rows.sources.tabular import ArrayTable

__all__ = ["open_rows"]


def open_rows(
    source: Any,  # noqa: ANN401 - of many libraries
    *,
    columns: Mapping[str, str | int | Sequence[str | int]] | None = None,
    labels: Mapping[str, Collection[Any]] | None = None,
    weight: str | int | None = None,
    dim: str | None = None,
) -> RowSource:
    """Open a table of rows that need not fit into memory.

    Parameters
    ----------
    source : object
        See Notes.
    columns : mapping, optional
        From the name of an array in the model to a column of the source, or to a list of columns
        that are stacked along a trailing axis: ``{"X": ["distance", "hour"], "late": "late"}``.
        By default, every column under its own name.
    labels : mapping, optional
        From the name of an array in the model to the labels that its column may hold: text,
        categories, whole numbers or truth values.  The array holds their positions in this list.
    weight : str, optional
        A column that says how many rows each row stands for, finite and >= 0.
    dim : str, optional
        The dimension of the rows, of an `xarray.Dataset`.

    Returns
    -------
    RowSource

    Raises
    ------
    InvalidOptionError
        If the source is of an unknown kind, can be read only once, or has no such column.
    InvalidDataError
        If files cannot be read or differ in their columns, or there are no rows.

    Notes
    -----
    A mapping of arrays, memory-mapped ones too.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets import open_rows
    >>> rows = open_rows(
    ...     {"hour": np.array([5.0, 9.0]), "carrier": np.array(["UA", "AA"])},
    ...     labels={"carrier": ["AA", "UA"]},
    ... )
    >>> rows.head(2)
    {'hour': array([5., 9.]), 'carrier': array([1, 0])}
    """
    reader = _reader_of(source, dim)
    return RowTable(
        reader,
        recipes_of(reader.fields, columns, labels, weight),
        weight_recipe(reader.fields, weight),
    )


def _reader_of(source: Any, dim: str | None) -> Reader:  # noqa: ANN401
    del dim
    if isinstance(source, str | Path):
        return _of_paths(source)
    if isinstance(source, Mapping):
        return TableReader(ArrayTable(source), "arrays")
    if type(source).__module__.startswith("pyarrow."):
        return _of_dataset(source)
    return _refuse(source)


def _of_paths(source: str | Path) -> Reader:
    def read() -> Reader:
        from pymc_coresets.rows.sources.arrow_datasets import (  # noqa: PLC0415
            dataset_at,
            dataset_reader,
        )

        return dataset_reader(dataset_at(source))

    return _with_library("parquet", read)


def _of_dataset(source: Any) -> Reader:  # noqa: ANN401
    from pymc_coresets.rows.sources.arrow_datasets import dataset_reader  # noqa: PLC0415

    return dataset_reader(source)


def _with_library(extra: str, read: Callable[[], Reader]) -> Reader:
    """Name the extra of a library that is not installed."""
    try:
        return read()
    except ModuleNotFoundError as error:
        raise InvalidOptionError(
            f"This source needs {error.name}, which is not installed: "
            f'pip install "pymc-coresets[{extra}]".'
        ) from error


def _refuse(source: Any) -> NoReturn:  # noqa: ANN401
    raise InvalidOptionError(f"open_rows cannot read a {type(source).__name__}.")
