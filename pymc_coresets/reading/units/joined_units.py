"""Units with all their data, apart from their model, and models that are filled with such units."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph import Constant, ancestors

from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.units.labels import as_index
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.reading.user_model import copy_with_rows, data_of, labels_of, settable_data
from pymc_coresets.rows.values import converted

_OF_ROWS, _OF_LEVELS = "data ", "level data "  # prefixes: names may be those of other variables


class _Containers(NamedTuple):
    """What the data containers of a model are to its units."""

    dim: str
    codes: list[str]  # with the number of each row's level
    of_rows: list[str]
    of_levels: dict[str, int]  # and the axis of the levels


def kept_units(units: UnitModel, levels: np.ndarray) -> xr.Dataset:
    """Return the data of some units: what the model's containers hold for them.

    Parameters
    ----------
    units : UnitModel
    levels : ndarray of int64
        Numbers of levels that have rows, increasing.

    Returns
    -------
    xarray.Dataset
        With the dimensions ``unit`` and ``row``, the rows unit by unit: ``label`` and ``size`` of
        each unit, and each container by its name after a prefix.

    Raises
    ------
    UnsupportedModelError
        If levels have no labels, by which other ones are told from them, or data of rows or levels
        are not in containers.

    Examples
    --------
    >>> from pymc_coresets.rowlogp.units import unit_model
    >>> with pm.Model(coords={"user": ["a", "b", "c"]}) as model:
    ...     user = pm.Data("user_of_row", np.array([0, 1, 2, 1]))
    ...     seen = pm.Data("seen", np.arange(4.0))
    ...     z = pm.Normal("z", pm.Normal("mu"), 1.0, dims="user")
    ...     y = pm.Normal("y", z[user], 1.0, observed=seen)
    >>> kept = kept_units(unit_model(model, ["z"], {}), np.array([1, 2]))
    >>> kept["label"].values.tolist(), kept["data seen"].values
    (['b', 'c'], array([1., 3., 2.]))
    >>> filled = model_of_units(model, [kept.isel(unit=[0], row=[0, 1]), kept])
    >>> filled.coords["user"], filled["user_of_row"].get_value().tolist()
    (('b', 'b', 'c'), [0, 0, 1, 1, 2])
    """
    model, found = units.rows.snapshot.whole, _containers(units)
    order = np.argsort(units.factor.level_of_row, kind="stable")
    sizes = np.bincount(units.factor.level_of_row, minlength=units.factor.n_levels)
    rows = order[np.repeat(np.isin(np.arange(len(sizes)), levels), sizes)]
    values = settable_data(model)
    labels = as_index(model.coords[found.dim]).to_numpy()
    columns: dict[str, tuple[list[str], np.ndarray]] = {
        "label": (["unit"], labels[levels]),
        "size": (["unit"], sizes[levels]),
    }
    for name in found.of_rows:
        taken = values[name][rows]
        if name in found.codes:  # numbered anew, unit by unit
            taken = np.repeat(np.arange(len(levels)), sizes[levels]).astype(taken.dtype)
        columns[_OF_ROWS + name] = (_dims(name, taken, "row", 0), taken)
    for name, axis in found.of_levels.items():
        taken = np.take(values[name], levels, axis=axis)
        columns[_OF_LEVELS + name] = (_dims(name, taken, "unit", axis), taken)
    return xr.Dataset(columns, attrs={"dim": found.dim, "codes": json.dumps(found.codes)})


def model_of_units(model: pm.Model, parts: Sequence[xr.Dataset]) -> pm.Model:
    """Return a copy of a model that holds the units of some parts, one after the other.

    Parameters
    ----------
    model : pm.Model
        With containers of the same names, and any data.
    parts : sequence of xarray.Dataset
        From `kept_units`.

    Raises
    ------
    InvalidDataError
        If the model has no such containers, or levels of another dimension.
    """
    dim, first = parts[0].attrs["dim"], dict(_arrays(parts[0]))
    held = settable_data(model)
    missing = sorted({name for name, _ in first.values()} - held.keys())
    if missing or dim not in model.coords:
        what = ", ".join(map(repr, missing)) or f"the dimension {dim!r}"
        raise InvalidDataError(
            f"The model lacks {what}, which the coreset's own has: its levels and rows are there. "
            "Pass a model with the same data containers and dims.",
            topic="the-data-and-the-model",
        )
    every: dict[str, np.ndarray] = {}
    for key, (name, axis) in first.items():
        arrays = [part[key].to_numpy() for part in parts]
        if name in json.loads(parts[0].attrs["codes"]):
            starts = np.cumsum([0, *(part.sizes["unit"] for part in parts[:-1])])
            arrays = [a + start for a, start in zip(arrays, starts, strict=True)]
        joined = np.concatenate(arrays, axis=axis)
        every[name] = converted(name, joined, held[name].dtype, "the units")
    copy = copy_with_rows(model, every)
    labels = np.concatenate([part["label"].to_numpy() for part in parts])
    _resize(copy, dim, as_index(labels).tolist())  # dates are those of pandas
    of_rows = [name for key, (name, _) in first.items() if key.startswith(_OF_ROWS)]
    for name in of_rows:  # their own dimension may have labels, which nothing depends on
        for own in (copy.named_vars_to_dims.get(name) or ())[:1]:
            if own in labels_of(copy):
                _resize(copy, own, list(range(len(every[name]))))
    return copy


def refuse_other_data(units: UnitModel, other: UnitModel) -> None:
    """Raise if two models differ in data that are neither those of rows nor of levels.

    Raises
    ------
    InvalidDataError
    """
    own, found = units.rows.snapshot.whole, other.rows.snapshot.whole
    of_units, values = _containers(units), settable_data(found)
    joined = {*of_units.of_rows, *of_units.of_levels}
    differing = [
        name
        for name, held in settable_data(own).items()
        if name not in joined and not (name in values and np.array_equal(held, values[name]))
    ]
    apart = {of_units.dim, *(d for n in of_units.of_rows for d in _dims_of(own, n)[:1])}
    differing += [
        dim
        for dim, labels in own.coords.items()
        if dim not in apart and found.coords.get(dim) != labels
    ]
    if differing:
        raise InvalidDataError(
            f"{', '.join(map(repr, differing))} must be the same in both models: new units differ "
            "in their rows and levels only.",
            topic="the-data-and-the-model",
        )


def _containers(units: UnitModel) -> _Containers:
    """Find out what each data container is to the units.

    Raises
    ------
    UnsupportedModelError
        See `kept_units`.
    """
    model, factor, n_rows = units.rows.snapshot.whole, units.factor, units.rows.n_obs
    names = list(factor.names)
    labelled = [dim for dim in units.level_dims if dim in labels_of(model)]
    if not labelled:
        raise UnsupportedModelError(
            f"The levels of {names!r} have no labels, so that those of other rows cannot be told "
            'from them. Give them a dimension with labels: pm.Model(coords={"level": labels}), '
            'and dims="level" in place of shape=....'
        )
    [dim], values = labelled, settable_data(model)
    of_levels = {n: _dims_of(model, n).index(dim) for n in values if dim in _dims_of(model, n)}
    of_rows = [n for n, v in values.items() if n not in of_levels and v.shape[:1] == (n_rows,)]
    single = np.array_equal(factor.level_of_row, np.arange(n_rows))  # levels are rows
    for arrays, held, length in (
        (units.rows.rows, [*of_rows, *of_levels] if single else of_rows, n_rows),
        (factor.arrays, of_levels, factor.n_levels),
    ):
        _refuse_constants(model, arrays, held, length)
    whole_numbers = (n for n in of_rows if values[n].dtype.kind in "iu" and values[n].ndim == 1)
    codes = [n for n in whole_numbers if np.array_equal(values[n], factor.level_of_row)]
    if not codes and not single:
        raise UnsupportedModelError(
            f"No data container has the levels of the rows, by which {names!r} are looked up: put "
            "the number of each row's level into pm.Data."
        )
    return _Containers(dim, codes, of_rows, of_levels)


def _refuse_constants(
    model: pm.Model, arrays: Sequence[RowArray], held: Sequence[str] | Mapping[str, int], n: int
) -> None:
    """Raise if arrays along the rows, or the levels, are computed from others than containers."""
    names = {v.name for v in model.data_vars}
    for row in arrays:
        for found in ancestors([row.source]):
            if not isinstance(found, Constant | SharedVariable) or n not in np.shape(
                data_of(found)
            ):
                continue
            if found.name not in held:
                kind = "has no dims of the levels" if found.name in names else "is not in pm.Data"
                raise UnsupportedModelError(
                    f"An array of length {n:,} ({found.name or 'without a name'}) {kind}: put what "
                    "rows and levels have into pm.Data, and give those of levels their dims. Then "
                    "other units can be joined to them."
                )


def _arrays(part: xr.Dataset) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the columns of a part, with the container that each is of and the axis of the units."""
    for key in map(str, part.data_vars):
        for prefix, dim in ((_OF_ROWS, "row"), (_OF_LEVELS, "unit")):
            if key.startswith(prefix):
                yield key, (key.removeprefix(prefix), list(part[key].dims).index(dim))


def _dims(name: str, array: np.ndarray, dim: str, axis: int) -> list[str]:
    return [dim if i == axis else f"{name}_{i}" for i in range(array.ndim)]


def _dims_of(model: pm.Model, name: str) -> tuple[str | None, ...]:
    return tuple(model.named_vars_to_dims.get(name) or ())


def _resize(model: pm.Model, dim: str, labels: Sequence[object]) -> None:
    length = model.dim_lengths[dim]
    if isinstance(length, SharedVariable):
        model.set_dim(dim, len(labels), coord_values=labels)
