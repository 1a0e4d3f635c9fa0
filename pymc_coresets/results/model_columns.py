"""The columns of rows that the model itself holds: containers, outcomes, arrays, cells."""

from collections.abc import Mapping
from itertools import chain, count

import numpy as np
from pytensor.graph import ancestors

from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import UNNAMED
from pymc_coresets.reading.units.integral import CENTRE, FACTOR
from pymc_coresets.reading.user_model import data_of
from pymc_coresets.results.columns import (
    Column,
    Labels,
    Values,
    columns_of,
    flat_columns,
    labels_of_lookups,
    own_values,
)


def columns_of_model(observations: Observations) -> dict[str, Column]:
    """Return what the model holds of its rows.

    These are its data containers along the observation dimension, whether the likelihood uses them
    or not, the observed values, other arrays that are indexed by the observation, the indices by
    which variables are looked up, and the dimensions of cells.

    Parameters
    ----------
    observations : Observations

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.array([2.0, 3.0, 5.0]))
    ...     y = pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(3))
    >>> list(columns_of_model(find_observations(model)))
    ['x', 'y']
    """
    positions = positions_of_rows(observations)
    codes = cell_codes(observations, positions)
    cells = codes if len(codes) > 1 else {}
    arrays, axes = ({}, {}) if observations.sets else _held(observations, codes, positions)
    labels: dict[str, Labels] = {dim: labels_of_dim(observations, dim) for dim in cells}
    lookups = labels_of_lookups(observations)
    unnamed = chain(["array"], map("array {}".format, count(1)))
    indices: dict[str, Values] = dict(cells)
    for number, row in enumerate(observations.rows):
        values = own_values(row, np.moveaxis(row.values, row.axis, 0), positions)
        if number not in lookups:
            # Containers are known; parameters are checked by truths, and nodes are no data.
            if row.name not in {*arrays, CENTRE, FACTOR} and row.values.dtype != bool:
                arrays[next(unnamed) if row.name == UNNAMED else row.name] = values
        elif row.name != UNNAMED or not cells:
            name, labels[name] = lookups[number]
            indices[name] = values
    return columns_of(flat_columns(arrays, axes) | indices, labels)


def positions_of_rows(observations: Observations) -> Values:
    """Return the positions of all rows in the user's data."""
    positions = observations.positions
    return np.arange(observations.n_obs) if positions is None else positions


def cell_codes(observations: Observations, positions: Values) -> dict[str, Values]:
    """Return where rows lie along each of the observation dimensions.

    Parameters
    ----------
    observations : Observations
    positions : ndarray of int
        Of the rows; of cells in C order.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"dog": range(2), "trial": range(3)}) as model:
    ...     mu = pm.Normal("mu", dims="dog")
    ...     y = pm.Normal("y", mu[:, None], 1.0, observed=np.ones((2, 3)), dims=("dog", "trial"))
    >>> cell_codes(find_observations(model, dim=("dog", "trial")), np.array([4]))
    {'dog': array([1]), 'trial': array([1])}
    """
    dims = observations.dims
    if len(dims) < 2:
        return dict.fromkeys(dims, positions)
    lengths = evaluate([observations.model.dim_lengths[dim] for dim in dims])
    codes = np.unravel_index(positions, [int(length) for length in lengths])
    return dict(zip(dims, codes, strict=True))


def labels_of_dim(observations: Observations, dim: str) -> Labels:
    """Return the labels of a dimension; numbers where it has none."""
    model = observations.model
    return model.coords.get(dim) or range(int(evaluate([model.dim_lengths[dim]])[0]))


def _held(
    observations: Observations, codes: Mapping[str, Values], positions: Values
) -> tuple[dict[str, Values], dict[str, list[Labels | None]]]:
    """Return containers and outcomes by rows, and the labels of their other axes."""
    model, n_obs = observations.model, observations.n_obs
    sources = [row.source for row in observations.rows]
    used = {variable.name for variable in ancestors(sources) if variable.name}
    arrays: dict[str, Values] = {}
    axes: dict[str, list[Labels | None]] = {}

    def add(name: str, array: Values, axis: int = 0) -> None:
        dims = [*(model.named_vars_to_dims.get(name) or ()), *[None] * array.ndim][: array.ndim]
        along = [dims.index(dim) for dim in codes if dim in dims]
        if along:
            rows = np.moveaxis(array, along, range(len(along)))
            rows = rows[tuple(codes[str(dims[i])] for i in along)]
        elif any(dims) or not array.ndim or name not in used:
            return
        else:
            along, rows = [axis], np.moveaxis(array, axis, 0)
            if len(rows) != n_obs:  # or else it has the rows that are left
                if observations.positions is None or len(rows) <= positions[-1]:
                    return
                rows = rows[positions]
        others = [dim for i, dim in enumerate(dims) if i not in along]
        axes[name] = [None if dim is None else model.coords.get(dim) for dim in others]
        arrays[name] = rows

    for variable in observations.held.live.data_vars:  # in the user's order
        add(variable.name, data_of(model[variable.name]))
    for term in () if observations.units else observations.terms:  # rows of units are no columns
        value = model.rvs_to_values.get(model[term.name])
        if value is not None and arrays.keys().isdisjoint(v.name for v in ancestors([value])):
            used.add(term.name)
            [array] = evaluate([value])
            add(term.name, array, term.axis)
    return arrays, axes
