"""Which columns of the source become which arrays of the model: `columns`, `labels`, `weight`."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.rows.sources.columns import Field
from pymc_coresets.rows.sources.decoding import ColumnType, Recipe

_INDEX = "__index_level_"  # how pandas names an index without a name in a file
_REMEDIES = {
    "dates or times": "leave it out by columns=, or turn it into numbers, such as days since the "
    "first",
}


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
    ColumnType(shape=(2,), dtype=dtype('float64'))
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
    column = ColumnType((), np.dtype(float))
    return Recipe(name="(weight)", fields={part: field}, column=column)


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
    column = ColumnType(shape, np.result_type(*dtypes))
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
