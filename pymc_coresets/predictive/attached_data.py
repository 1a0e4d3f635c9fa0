"""The data of all rows, as the groups of a DataTree in which `pm.sample` gives them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from pytensor.graph import Constant, Variable, ancestors

from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.predictive.stand_ins import StandIn
from pymc_coresets.reading.draws import dims_of
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.graphs import as_plain_tensor
from pymc_coresets.reading.user_model import data_of

_NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})
_GROUPS = ["observed_data", "constant_data"]


def with_data(idata: xr.DataTree, own: StandIn) -> xr.DataTree:
    """Add the data of all rows to draws, where the user's model holds them.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of an approximate posterior; its groups of data, which are those of a few rows, are
        replaced.
    own : StandIn
        What stands for all rows in it.

    Returns
    -------
    xarray.DataTree
        The same draws; other groups are as they were where rows lie elsewhere.
    """
    if not own.n_in_memory:
        return idata
    groups = data_groups(own.parts[0].observations.model)
    kept = idata.drop_nodes(_GROUPS, errors="ignore")
    found: xr.DataTree = kept.assign({name: xr.DataTree(group) for name, group in groups.items()})
    return found


def data_groups(model: pm.Model) -> dict[str, xr.Dataset]:
    """Return what was observed, and the data containers, as `pm.sample` does.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    dict of str to xarray.Dataset
        ``observed_data`` and ``constant_data``, where there are any.  The arrays are those of the
        model, which cannot be written to, and no copies.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0), dims="row")
    ...     y = pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=np.ones(3), dims="row")
    >>> {name: list(group.variables) for name, group in data_groups(model).items()}
    {'observed_data': ['y', 'row'], 'constant_data': ['x', 'row']}
    """
    observed = {str(rv.name): model.rvs_to_values[rv] for rv in model.observed_RVs}
    used = set(ancestors([*model.basic_RVs, *model.deterministics, *model.potentials]))
    values = set(observed.values())
    constant = {str(v.name): v for v in model.data_vars if v in used or v not in values}
    return {
        name: labelled(model, {n: _values(variable) for n, variable in variables.items()})
        for name, variables in zip(_GROUPS, (observed, constant), strict=True)
        if variables
    }


def labelled(
    model: pm.Model,
    arrays: Mapping[str, np.ndarray],
    *,
    before: Sequence[str] = (),
    labels: Mapping[str, np.ndarray] = _NOTHING,
) -> xr.Dataset:
    """Give arrays the dimensions and labels that a model has for them, as `pm.sample` does.

    Parameters
    ----------
    model : pm.Model
    arrays : mapping of str to ndarray
        By the names of its variables.
    before : sequence of str
        Dimensions that come before those of the variables.
    labels : mapping of str to ndarray
        In place of the model's.

    Examples
    --------
    >>> with pm.Model(coords={"k": ["u", "v"]}) as model:
    ...     slope = pm.Normal("slope", dims="k")
    >>> found = labelled(model, {"slope": np.zeros((5, 2))}, before=["draw"])
    >>> dict(found.sizes), found["k"].values.tolist()
    ({'draw': 5, 'k': 2}, ['u', 'v'])
    """
    named, n_before = model.named_vars_to_dims, len(before)
    dims = {name: dims_of(name, array.ndim - n_before, named) for name, array in arrays.items()}
    data = xr.Dataset({name: ([*before, *dims[name]], array) for name, array in arrays.items()})
    numbers: dict[Any, Any] = {dim: pd.RangeIndex(size) for dim, size in data.sizes.items()}
    held = {dim: np.array(model.coords[dim]) for dim in numbers if model.coords.get(dim)}
    return data.assign_coords(numbers | held | dict(labels))


def _values(variable: Variable) -> np.ndarray:
    known = isinstance(variable, Constant | SharedVariable)
    values = data_of(variable) if known else evaluate([as_plain_tensor(variable)])[0]
    view: np.ndarray = values.view()
    view.flags.writeable = False
    return view
