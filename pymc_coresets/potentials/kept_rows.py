"""The rows of a coreset with their data, as a dataset that is kept with it."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.of_model import (
    RowsToRead,
    likelihood_of_rows,
    template_of_rows,
)
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rows.passes import AbsentRows
from pymc_coresets.rows.streamed import no_rows_for
from pymc_coresets.rows.values import Rows

_BASE = "base_weight"
_PREFIX = "data "  # of the names of columns, which may be those of other variables here


def kept_dataset(loglik: LogLikelihood, rows: Rows, weights: np.ndarray) -> xr.Dataset:
    """Return chosen rows with their data, weights, positions and places.

    Parameters
    ----------
    loglik : LogLikelihood
        Of rows that are read from a source.
    rows : Rows
        From this source.
    weights : ndarray of shape (len(rows),)

    Returns
    -------
    xarray.Dataset
        With the dimension ``row``: the variables ``weight``, ``base_weight``, ``position``,
        ``where``, and each column by its name after ``data``.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets import open_rows
    >>> from pymc_coresets.potentials.of_model import RowsToRead, likelihood_of_rows
    >>> source = open_rows({"y": np.arange(100.0)})
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", source.head(10)["y"])
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    >>> wanted = RowsToRead(rows=source)
    >>> loglik = likelihood_of_rows(model, wanted, rng=np.random.default_rng(1))
    >>> kept = kept_dataset(loglik, loglik.source.at(np.array([4, 70])), np.array([50.0, 50.0]))
    >>> kept["data y"].values, kept["where"].values.tolist()
    (array([ 4., 70.]), ['row 4', 'row 70'])
    >>> rows_of_dataset(loglik.observations, kept).arrays
    (array([ 4., 70.]),)
    """
    observations = loglik.observations
    places = [loglik.source.place(int(position)) for position in rows.positions]
    columns = {
        f"{_PREFIX}{name}": (("row", *(f"{name}_dim_{i}" for i in range(1, array.ndim))), array)
        for name, array in observations.by_name(rows).items()
    }
    kept = {
        "weight": ("row", weights),
        _BASE: ("row", rows.base_weights),
        "position": ("row", rows.positions),
        "where": ("row", np.array(places, dtype=object)),
    }
    return xr.Dataset(kept | columns, attrs={"free_variables": _free_variables(observations)})


def rows_of_dataset(observations: Observations, kept: xr.Dataset) -> Rows:
    """Return the rows of such a dataset, for a model of the same columns.

    Raises
    ------
    InvalidDataError
        If the model has other free variables, or other data containers along the rows.
    """
    names = [row.name for row in observations.rows]
    stored = [str(n).removeprefix(_PREFIX) for n in kept.data_vars if str(n).startswith(_PREFIX)]
    if kept.attrs["free_variables"] != _free_variables(observations) or {*names} != {*stored}:
        raise InvalidDataError(
            "The model has other free variables, or other data containers along the rows "
            f"({sorted(names)!r}), than the one that the coreset was built from "
            f"({sorted(stored)!r}): give that one."
        )
    arrays = []
    for row in observations.rows:
        array = kept[f"{_PREFIX}{row.name}"].to_numpy()
        if array.shape[1:] != row.values.shape[1:]:
            raise InvalidDataError(
                f"A row of {row.name!r} has shape {row.values.shape[1:]} in the model, but "
                f"{array.shape[1:]} in the coreset: give the model that it was built from."
            )
        arrays.append(array.astype(row.values.dtype, copy=False))
    return Rows(kept["position"].to_numpy(), kept[_BASE].to_numpy(), tuple(arrays))


def columns_of_dataset(kept: xr.Dataset) -> dict[str, Any]:
    """Return one row of each column of such a dataset, which has its shape and dtype."""
    return {name: array[0] for name, array in arrays_of_dataset(kept).items()}


def arrays_of_dataset(kept: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the columns of such a dataset by their names."""
    names = {str(name): array.to_numpy() for name, array in kept.data_vars.items()}
    return {n.removeprefix(_PREFIX): a for n, a in names.items() if n.startswith(_PREFIX)}


def for_other_priors(observations: Observations, kept: xr.Dataset) -> xr.Dataset:
    """Return such a dataset for a model that has other free variables."""
    return kept.assign_attrs(free_variables=_free_variables(observations))


def likelihood_of_stored(
    model: pm.Model, stored: Mapping[str, Any], wanted: RowsToRead
) -> LogLikelihood:
    """Derive the potentials that a stored coreset was built from, from its model.

    Parameters
    ----------
    model : pm.Model
        With all rows, or a template of them.
    stored : mapping of str
        The fields of the coreset: ``data``, ``indices``, ``n_observations``, ``n_distinct``.
    wanted : RowsToRead
        With the rows that it was built from, if they lie elsewhere.

    Raises
    ------
    InvalidOptionError
        If there is an executor, but no rows.
    InvalidDataError
        If the model or the rows are not those that it was built from.
    """
    kept = stored["data"]
    if wanted.executor is not None and kept is None:
        raise no_rows_for(wanted.executor)
    if kept is None:
        return _of_all(model, stored, wanted)
    if wanted.rows is not None:
        loglik = likelihood_of_rows(model, wanted, rng=np.random.default_rng(0))
        chosen = rows_of_dataset(loglik.observations, kept)
        if loglik.n_rows != stored["n_distinct"] or not _same(chosen, loglik, stored["indices"]):
            raise InvalidDataError(
                f"The coreset was built from {stored['n_distinct']} other rows: open those with "
                "open_rows, or build it again."
            )
        return loglik
    template = template_of_rows(model, columns_of_dataset(kept), wanted)
    rows_of_dataset(template.observations, kept)  # which refuses another model
    absent = AbsentRows(stored["n_distinct"], float(stored["n_observations"]))
    return template.reading(absent)


def _of_all(model: pm.Model, stored: Mapping[str, Any], wanted: RowsToRead) -> LogLikelihood:
    found = wanted.found_in(model)
    loglik = LogLikelihood(found, collapse="auto")
    if loglik.observations.n_obs != stored["n_observations"]:
        raise InvalidDataError(
            f"The coreset was built for {stored['n_observations']} observations, but the model "
            f"has {loglik.observations.n_obs}: give the model that it was built from."
        )
    loglik.collapsed(collapse=False).source.at(stored["indices"])
    return loglik


def _same(chosen: Rows, loglik: LogLikelihood, indices: np.ndarray) -> bool:
    if len(indices) and indices[-1] >= loglik.n_rows:
        return False
    found = loglik.source.at(indices)
    return all(map(np.array_equal, found.arrays, chosen.arrays))


def _free_variables(observations: Observations) -> str:
    return json.dumps({name: observations.shapes[name] for name in sorted(observations.shapes)})
