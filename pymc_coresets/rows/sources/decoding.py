"""Arrays of the model from columns of the source: labels to codes, nulls, stacked columns."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.sources.columns import Field, Values
from pymc_coresets.rows.sources.tables import Table

_STACKED_ROWS = 2048  # a block of stacked columns stays in a core's own cache
_MISSING, _UNSEEN = "missing value", "unseen label"
_VALUES_SHOWN = 5


@dataclass(frozen=True)
class ColumnType:
    """What an array of a source looks like, apart from its number of rows.

    Parameters
    ----------
    shape : tuple of int
        Shape of one row; ``()`` for a single number.
    dtype : numpy.dtype
        int64 where labels were turned into codes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.dtype}{''.join(f'[{size}]' for size in self.shape)}"


@dataclass(frozen=True, eq=False)
class Fault:
    """Rows of a chunk in which a column cannot be used.

    Parameters
    ----------
    column : str
        Its name in the source.
    kind : str
        See `BadValues.kind`.
    rows : ndarray of int64
        Numbers within the chunk, increasing; not empty.
    value : str
        What stands in the first of them, as text.
    """

    column: str
    kind: str
    rows: NDArray[np.int64]
    value: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recipe:
    """How an array of the model is made from columns of the source.

    Parameters
    ----------
    name : str
        In the model.
    fields : mapping from str to Field
        Its parts, which are columns of the source, and what these hold in the first piece.
    column : ColumnType
        What the array will look like.
    stacked : bool
        Whether the parts become a trailing axis; otherwise there is one part.
    labels : tuple, optional
        Values whose positions in this tuple are the codes.
    """

    name: str
    fields: Mapping[str, Field]
    column: ColumnType
    stacked: bool = False
    labels: tuple[Hashable, ...] | None = None


def decode(
    recipe: Recipe, tables: Sequence[Table], where: Callable[[int], str]
) -> tuple[NDArray[Any], list[Fault]]:
    """Make an array of the model from the rows of some tables, one after the other.

    Parameters
    ----------
    recipe : Recipe
    tables : sequence of Table
    where : callable
        Says, for messages, where the table lies that begins with a row.

    Returns
    -------
    array : ndarray
        Contiguous in C order and writeable.  Where a value is missing it is NaN, or 0; where a
        label is missing or unseen the code is -1.
    faults : list of Fault

    Raises
    ------
    InvalidDataError
        If a column has another type than in the first piece.
    """
    faults: list[Fault] = []
    columns = []
    for part, field in recipe.fields.items():
        pieces, offset = [], 0
        for table in tables:
            _require_same_field(field, table.fields.get(part), part, where(offset))
            array, found = _part(recipe, part, table.values(part))
            faults += [replace(fault, rows=fault.rows + offset) for fault in found]
            offset += len(array)
            pieces.append(array)
        columns.append(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
    array = _stacked(columns, recipe.column.dtype) if recipe.stacked else columns[0]
    if array.flags.c_contiguous and array.flags.writeable and type(array) is np.ndarray:
        return array, faults
    return np.array(array, order="C", subok=False), faults


def not_finite(recipe: Recipe, array: NDArray[Any]) -> list[Fault]:
    """Find NaN and infinite values; nulls among them are faults already."""
    faults = []
    for j, part in enumerate(recipe.fields):
        values = array[:, j] if recipe.stacked else array
        for kind, wrong in (("NaN", np.isnan(values)), ("infinite", np.isinf(values))):
            rows = np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
            if rows.size:
                faults.append(Fault(part, kind, rows, kind))
    return faults


def _require_same_field(expected: Field, found: Field | None, part: str, where: str) -> None:
    if found == expected:
        return
    if found is None:
        raise InvalidDataError(f"{where} has no column {part!r}, which the first rows have.")
    raise InvalidDataError(
        f"{where} has {part!r} as {found}, and the first rows as {expected}: give the column one "
        "type everywhere."
    )


def _part(recipe: Recipe, part: str, values: Values) -> tuple[NDArray[Any], list[Fault]]:
    if recipe.labels is not None:
        return _codes(part, values, recipe.labels)
    data = values.data.astype(recipe.fields[part].dtype, copy=False)
    if not recipe.stacked:
        data = data.astype(recipe.column.dtype, copy=False)
    if values.missing is None or not values.missing.any():
        return data, []
    rows = np.flatnonzero(values.missing)
    data = data.copy()
    data[rows] = np.nan if data.dtype.kind == "f" else 0
    return data, [Fault(part, _MISSING, rows)]


def _codes(
    part: str, values: Values, labels: tuple[Hashable, ...]
) -> tuple[NDArray[np.int64], list[Fault]]:
    """Turn values into their positions among the labels."""
    codes, categories = values.data, values.categories
    if categories is None:
        codes, found = pd.factorize(values.data)
        categories = found.tolist()
    positions = {label: code for code, label in enumerate(labels)}
    table = [positions.get(category, -1) for category in categories]
    coded = np.array([*table, -1])[codes]  # -1, a missing value, takes the last
    missing = np.zeros(len(codes), bool) if values.missing is None else values.missing
    coded[missing] = -1
    absent, unseen = np.flatnonzero(missing), np.flatnonzero((coded < 0) & ~missing)
    faults = [Fault(part, _MISSING, absent)] if absent.size else []
    if unseen.size:
        distinct = [repr(categories[code]) for code in pd.unique(codes[unseen])]
        more = ["..."] if len(distinct) > _VALUES_SHOWN else []
        faults.append(Fault(part, _UNSEEN, unseen, ", ".join(distinct[:_VALUES_SHOWN] + more)))
    return coded, faults


def _stacked(columns: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Put columns side by side, in blocks of rows that stay in the cache."""
    n_rows = len(columns[0])
    array = np.empty((n_rows, len(columns)), dtype)
    for start in range(0, n_rows, _STACKED_ROWS):
        block = array[start : start + _STACKED_ROWS]
        for j, column in enumerate(columns):
            block[:, j] = column[start : start + _STACKED_ROWS]
    return array
