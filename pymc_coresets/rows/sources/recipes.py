"""How columns of a source become arrays of the model: codes of labels, nulls, stacked columns."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.tables import Column, Field, Table, column_field, read_column

_STACKED_ROWS = 2048  # a block of stacked columns stays in a core's own cache
_MISSING, _UNSEEN = "missing value", "unseen label"
_VALUES_SHOWN = 5
_INDEX = "__index_level_"  # how pandas names an index without a name in a file
_REMEDIES = {
    "dates or times": "leave it out by columns=, or turn it into numbers, such as days since the "
    "first",
}


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
        pieces, offset = [], 0
        for table in tables:
            _require_same_field(field, table.get(part), part, where(offset))
            column = read_column(table[part])
            _require_same_field(field, column, part, where(offset))  # Dask may have said another
            array, found = _part(recipe, part, column)
            faults += [replace(fault, rows=fault.rows + offset) for fault in found]
            offset += len(array)
            pieces.append(array)
        columns.append(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
    array = _stacked(columns, recipe.column.dtype) if recipe.stacked else columns[0]
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


def _require_same_field(expected: Field, column: Any, part: str, where: str) -> None:  # noqa: ANN401
    if column is None:
        raise InvalidDataError(f"{where} has no column {part!r}, which the first rows have.")
    found = column_field(column)
    if found != expected:
        raise InvalidDataError(
            f"{where} has {part!r} as {found}, and the first rows as {expected}: give the column "
            "one type everywhere."
        )


def _part(recipe: Recipe, part: str, values: Column) -> tuple[NDArray[Any], list[Fault]]:
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
    part: str, values: Column, labels: tuple[Hashable, ...]
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
    wanted = _wanted(fields, columns, weight)
    coded = _labels_by_name(labels, wanted)
    return {name: _recipe(name, parts, fields, coded.get(name)) for name, parts in wanted.items()}


def weight_recipe(fields: Mapping[str, Field], weight: Any) -> Recipe | None:  # noqa: ANN401
    """Return how the base weights are made, or None if there are none.

    Raises
    ------
    InvalidOptionError
        If `weight` is no column of numbers.
    """
    if weight is None:
        return None
    (part,) = _parts("weight", weight, fields, stack=False)
    field = fields[part]
    if field.refused or field.is_text or field.shape:
        raise InvalidOptionError(
            f"weight={weight!r} must name a column of numbers, but it holds {field}."
        )
    return Recipe(name="(weight)", fields={part: field}, column=Field(np.dtype(float)))


def _wanted(
    fields: Mapping[str, Field],
    columns: Any,  # noqa: ANN401
    weight: Any,  # noqa: ANN401
) -> dict[str, str | tuple[str, ...]]:
    """Return the columns of each array: one, or a tuple to be stacked."""
    if columns is None:
        names = [n for n in fields if n != str(weight) and not n.startswith(_INDEX)]
        if not names:
            raise InvalidOptionError("The source has no column besides the weights.")
        return {name: name for name in names}
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidOptionError(
            f"columns={columns!r} must map names in the model to columns of the source, as in "
            "{'X': ['distance', 'hour'], 'late': 'late'}."
        )
    wanted: dict[str, str | tuple[str, ...]] = {}
    for name, value in columns.items():
        if not isinstance(name, str):
            raise InvalidOptionError(f"columns: {name!r} must be the name of a variable.")
        single = isinstance(value, str | int)
        parts = _parts(f"columns: {name}", value, fields, stack=not single)
        wanted[name] = parts[0] if single else parts
    return wanted


def _parts(
    name: str,
    value: Any,  # noqa: ANN401
    fields: Mapping[str, Field],
    *,
    stack: bool,
) -> tuple[str, ...]:
    """Return names of columns; columns of a matrix may be given by number."""
    items = list(value) if stack and isinstance(value, Collection) else [value]
    if not items or any(not isinstance(i, str | int) or isinstance(i, bool) for i in items):
        raise InvalidOptionError(
            f"{name}={value!r} must name a column of the source, or list some of them."
        )
    missing = [item for item in items if str(item) not in fields]
    if missing:
        raise InvalidOptionError(
            f"{name}={value!r}: the source has no column {missing[0]!r}. "
            f"It has {', '.join(fields)}."
        )
    return tuple(map(str, items))


def _labels_by_name(
    labels: Any,  # noqa: ANN401
    wanted: Collection[str],
) -> dict[str, tuple[Hashable, ...]]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InvalidOptionError(
            f"labels={labels!r} must map names in the model to lists of labels, as in "
            "{'carrier': ['AA', 'B6', 'DL']}."
        )
    found = {}
    for name, values in labels.items():
        if name not in wanted:
            raise InvalidOptionError(
                f"labels: there is no array {name!r}. There are {', '.join(wanted)}."
            )
        found[name] = _distinct(name, values)
    return found


def _distinct(name: str, values: Any) -> tuple[Hashable, ...]:  # noqa: ANN401
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidOptionError(f"labels: {name!r} needs a list of labels, not {values!r}.")
    items = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    unusable = [v for v in items if not isinstance(v, str | bytes | int)]
    if not items or unusable:
        what = f"{unusable[0]!r} is none" if unusable else "there are none"
        raise InvalidOptionError(
            f"labels: those of {name!r} must be text, whole numbers or truth values; {what}."
        )
    if len({type(v) for v in items}) > 1:
        raise InvalidOptionError(f"labels: those of {name!r} must all be of one type.")
    if len(set(items)) < len(items):
        twice = next(v for v in items if items.count(v) > 1)
        raise InvalidOptionError(f"labels: {name!r} has {twice!r} more than once.")
    return items


def _recipe(
    name: str,
    parts: str | tuple[str, ...],
    fields: Mapping[str, Field],
    labels: tuple[Hashable, ...] | None,
) -> Recipe:
    stacked = isinstance(parts, tuple)
    names = parts if isinstance(parts, tuple) else (parts,)
    used = {part: fields[part] for part in names}
    for part, field in used.items():
        _require_usable(name, part, field, labels)
    shapes = {field.shape for field in used.values()}
    if stacked and shapes != {()}:
        raise InvalidDataError(
            f"{name!r}: columns {', '.join(names)} cannot be stacked, because not all of them "
            "hold single numbers. Give each an array of its own."
        )
    dtypes = [np.dtype(np.int64) if labels else field.dtype for field in used.values()]
    shape = (len(names),) if stacked else next(iter(shapes))
    column = Field(np.result_type(*dtypes), shape)
    return Recipe(name=name, fields=used, column=column, stacked=stacked, labels=labels)


def _require_usable(
    name: str, part: str, field: Field, labels: tuple[Hashable, ...] | None
) -> None:
    if field.refused:
        remedy = _REMEDIES.get(field.refused, "leave it out by columns=, or turn it into numbers")
        raise InvalidDataError(
            f"Column {part!r} holds {field.refused}, which no array of a model can: {remedy}."
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
