"""How columns of a source become arrays of the model: codes of labels, nulls, stacked columns."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.columns import Column, Field, Table, column_field, read_column

_MISSING, _UNSEEN = "missing value", "unseen label"
_VALUES_SHOWN = 5
_INDEX = "__index_level_"  # how pandas names an index without a name in a file


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
    column : Field
        What the array will hold; int64 where labels are turned into codes.
    stacked : bool
        Whether the parts become a trailing axis; otherwise there is one part.
    labels : tuple, optional
        Values whose positions in this tuple are the codes.
    """

    name: str
    fields: Mapping[str, Field]
    column: Field
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
        pieces, offset = [np.empty((0, *field.shape), recipe.column.dtype)], 0
        for table in tables:
            column = _read(table.get(part), field, part, where(offset))
            array, wrong = _codes(column, recipe.labels) if recipe.labels else _numbers(column)
            faults += [Fault(part, kind, rows + offset, value) for kind, rows, value in wrong]
            offset += len(array)
            pieces.append(array)
        columns.append(pieces[1] if len(pieces) == 2 else np.concatenate(pieces))
    dtype = recipe.column.dtype
    array = np.stack(columns, axis=1) if recipe.stacked else columns[0]
    array = array.astype(dtype, copy=False)
    if array.flags.c_contiguous and array.flags.writeable and type(array) is np.ndarray:
        return array, faults
    return np.array(array, order="C", subok=False), faults


def not_finite(recipe: Recipe, array: NDArray[Any], nulls: Iterable[Fault] = ()) -> list[Fault]:
    """Find NaN and infinite values; nulls among them are faults already."""
    missing = {fault.column: fault.rows for fault in nulls}
    faults = []
    for j, part in enumerate(recipe.fields):
        values = array[:, j] if recipe.stacked else array
        for kind, wrong in (("NaN", np.isnan(values)), ("infinite", np.isinf(values))):
            found = np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
            rows = np.setdiff1d(found, missing[part]) if part in missing else found
            if rows.size:
                faults.append(Fault(part, kind, rows, kind))
    return faults


def _read(values: Any, expected: Field, part: str, where: str) -> Column:  # noqa: ANN401
    if values is None:
        raise InvalidDataError(f"{where} has no column {part!r}, which the first rows have.")
    found = column_field(values)
    if found == expected:
        column = read_column(values)
        found = column.field  # Dask may have said another
    if found != expected:
        raise InvalidDataError(
            f"{where} has {part!r} as {found}, and the first rows as {expected}: give the column "
            "one type everywhere."
        )
    return column


def _numbers(column: Column) -> tuple[NDArray[Any], list[Any]]:
    data = column.data.astype(column.field.dtype, copy=False)
    if column.missing is None or not column.missing.any():
        return data, []
    data = data.copy()
    data[column.missing] = np.nan if data.dtype.kind == "f" else 0
    return data, [(_MISSING, np.flatnonzero(column.missing), "")]


def _codes(column: Column, labels: tuple[Hashable, ...]) -> tuple[NDArray[np.int64], list[Any]]:
    """Turn values into their positions among the labels."""
    codes, categories = column.data, column.categories
    if categories is None:
        codes, found = pd.factorize(column.data)
        categories = found.tolist()
    positions = {label: code for code, label in enumerate(labels)}
    table = [positions.get(category, -1) for category in categories]
    coded = np.array([*table, -1])[codes]  # -1, a missing value, takes the last
    missing = np.zeros(len(codes), bool) if column.missing is None else column.missing
    coded[missing] = -1
    absent, unseen = np.flatnonzero(missing), np.flatnonzero((coded < 0) & ~missing)
    distinct = [repr(categories[code]) for code in pd.unique(codes[unseen])]
    more = ["..."] if len(distinct) > _VALUES_SHOWN else []
    shown = ", ".join(distinct[:_VALUES_SHOWN] + more)
    faults = [(_MISSING, absent, ""), (_UNSEEN, unseen, shown)]
    return coded, [fault for fault in faults if fault[1].size]


# -- what users ask for ----------------------------------------------------------------------------


def recipes_of(
    fields: Mapping[str, Field],
    columns: Any,  # noqa: ANN401 - what users pass
    labels: Any,  # noqa: ANN401
    weight: Any,  # noqa: ANN401
) -> dict[str, Recipe]:
    """Return how each array is made, by its name in the model.

    Raises
    ------
    InvalidOptionError
        If `columns`, `labels` or `weight` do not fit each other or the source.
    InvalidDataError
        If a column holds what no array can.

    Examples
    --------
    >>> fields = {"a": Field(np.dtype(float)), "b": Field(np.dtype("f4"))}
    >>> recipes_of(fields, {"X": ["b", "a"]}, None, None)["X"].column
    Field(dtype=dtype('float64'), shape=(2,), refused='')
    """
    if columns is None:
        columns = {n: n for n in fields if n != str(weight) and not n.startswith(_INDEX)}
        if not columns:
            raise InvalidOptionError("The source has no column besides the weights.")
    _require_mapping("columns", columns, "columns", "{'X': ['distance', 'hour'], 'late': 'late'}")
    if not columns or not all(isinstance(name, str) for name in columns):
        raise InvalidOptionError(f"columns={columns!r}: each name must be that of a variable.")
    labels = {} if labels is None else labels
    _require_mapping("labels", labels, "lists of labels", "{'carrier': ['AA', 'B6', 'DL']}")
    if unknown := [name for name in labels if name not in columns]:
        raise InvalidOptionError(
            f"labels: there is no array {unknown[0]!r}. There are {', '.join(columns)}."
        )
    coded = {name: _distinct(name, values) for name, values in labels.items()}
    return {name: _recipe(name, value, fields, coded.get(name)) for name, value in columns.items()}


def weight_recipe(fields: Mapping[str, Field], weight: Any) -> Recipe | None:  # noqa: ANN401
    """Return how the base weights are made, or None if there are none.

    Raises
    ------
    InvalidOptionError
        If `weight` is no column of numbers.
    """
    if weight is None:
        return None
    recipe = _recipe("weight", weight, fields, None)
    if recipe.column.shape:
        raise InvalidOptionError(f"weight={weight!r} must name a column of numbers.")
    return replace(recipe, name="(weight)", column=Field(np.dtype(float)))


def _require_mapping(option: str, value: Any, to: str, example: str) -> None:  # noqa: ANN401
    if not isinstance(value, Mapping):
        raise InvalidOptionError(
            f"{option}={value!r} must map names in the model to {to}, as in {example}."
        )


def _parts(
    option: str,
    value: Any,  # noqa: ANN401
    items: Sequence[Any],
    fields: Mapping[str, Field],
) -> dict[str, Field]:
    """Return columns by their names; those of a matrix may be given by number."""
    if not items or any(not isinstance(i, str | int) or isinstance(i, bool) for i in items):
        raise InvalidOptionError(
            f"{option}={value!r} must name a column of the source, or list some of them."
        )
    missing = [item for item in items if str(item) not in fields]
    if missing:
        raise InvalidOptionError(
            f"{option}={value!r}: the source has no column {missing[0]!r}. "
            f"It has {', '.join(fields)}."
        )
    return {str(item): fields[str(item)] for item in items}


def _distinct(name: str, values: Any) -> tuple[Hashable, ...]:  # noqa: ANN401
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidOptionError(f"labels: {name!r} needs a list of labels, not {values!r}.")
    items = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    usable = all(isinstance(v, str | bytes | int) for v in items)
    if not items or not usable or len({type(v) for v in items}) > 1 or len(set(items)) < len(items):
        raise InvalidOptionError(
            f"labels: those of {name!r} must be text, whole numbers or truth values, all of one "
            f"type and each given once, not {list(items)!r}."
        )
    return items


def _recipe(
    name: str,
    value: Any,  # noqa: ANN401
    fields: Mapping[str, Field],
    labels: tuple[Hashable, ...] | None,
) -> Recipe:
    stacked = isinstance(value, Collection) and not isinstance(value, str)
    used = _parts(f"columns: {name}", value, list(value) if stacked else [value], fields)
    for part, field in used.items():
        _require_usable(name, part, field, labels)
    shapes = {field.shape for field in used.values()}
    if stacked and shapes != {()}:
        raise InvalidDataError(
            f"{name!r}: columns {', '.join(used)} cannot be stacked, because not all of them "
            "hold single numbers. Give each an array of its own."
        )
    dtypes = [np.dtype(np.int64) if labels else field.dtype for field in used.values()]
    column = Field(np.result_type(*dtypes), (len(used),) if stacked else next(iter(shapes)))
    return Recipe(name=name, fields=used, column=column, stacked=stacked, labels=labels)


def _require_usable(
    name: str, part: str, field: Field, labels: tuple[Hashable, ...] | None
) -> None:
    if field.refused:
        raise InvalidDataError(
            f"Column {part!r} holds {field}, which no array of a model can: leave it out by "
            "columns=, or turn it into numbers, as dates into days since the first."
        )
    if labels is None and field.is_text:
        raise InvalidOptionError(
            f"Column {part!r} holds text or categories: say which labels there are, in the order "
            f"of their codes, as in labels={{{name!r}: ['a', 'b']}}, or leave it out by columns=. "
            "Numbers that are stored as Python objects become numbers by astype(float)."
        )
    if labels is not None and (field.dtype.kind == "f" or field.shape):
        raise InvalidOptionError(
            f"labels: column {part!r} holds {field}. Labels are found by value among text, "
            "categories, whole numbers or truth values: turn the column into whole numbers."
        )
