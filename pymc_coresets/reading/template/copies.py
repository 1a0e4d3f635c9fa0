"""Copies of a model: what PyMC's conversion leaves out, and other rows in the containers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph import Constant, Variable

from pymc_coresets.compat.pymc_api import fgraph_from_model, model_from_fgraph
from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.exceptions import UnsupportedModelError


def data_of(variable: Any) -> np.ndarray:  # noqa: ANN401 - two classes without a common one
    """Return what a data container of a model holds, or was frozen to; not a copy.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0))
    >>> data_of(x)
    array([0., 1., 2.])
    """
    frozen = isinstance(variable, Constant)
    values: np.ndarray = variable.data if frozen else variable.get_value(borrow=True)
    return values


def settable_data(model: pm.Model) -> dict[str, np.ndarray]:
    """Return what the data containers hold that other data can be put into; not copies.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(3.0))
    >>> settable_data(model)
    {'x': array([0., 1., 2.])}
    """
    return {str(v.name): data_of(v) for v in model.data_vars if isinstance(v, SharedVariable)}


def copy_with_rows(model: pm.Model, rows: Mapping[str, np.ndarray]) -> pm.Model:
    """Copy a model, and put other rows into the data containers of the copy.

    Parameters
    ----------
    model : pm.Model
        Left as it is.
    rows : mapping of str to ndarray
        What each of some containers is to hold.

    Returns
    -------
    pm.Model

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.arange(5.0))
    >>> copy_with_rows(model, {"x": np.ones(2)})["x"].get_value(), len(x.get_value())
    (array([1., 1.]), 5)
    """
    fgraph, _ = fgraph_from_model(convertible(model))
    copy = model_from_fgraph(fgraph, mutate_fgraph=True)
    carry_over(model, copy)
    for name, values in rows.items():
        copy[name].set_value(values)
    return copy


def carry_over(model: pm.Model, copy: pm.Model) -> None:
    """Give a copy of `convertible` what that leaves out of the model, for the variables it has.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.ones((5, 2)), dims=("row", None))
    >>> with pm.Model() as copy:
    ...     x = pm.Data("x", np.ones((5, 2)))
    >>> carry_over(model, copy)
    >>> copy.named_vars_to_dims["x"]
    ('row', None)
    """
    sort_as_in(model, copy)
    free = {rv.name for rv in copy.free_RVs}
    for name, value in initial_values(model).items():
        if name in free:
            copy.set_initval(copy[name], value)
    for name, dims in model.named_vars_to_dims.items():
        if dims and None in dims and name in copy.named_vars:
            copy.named_vars_to_dims[name] = dims


def sort_as_in(model: pm.Model, copy: pm.Model) -> None:
    """Put the free variables of a copy in order: a point of one model is then one of the other.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     a, b = pm.Normal("a"), pm.Normal("b")
    >>> with pm.Model() as copy:
    ...     b, a = pm.Normal("b"), pm.Normal("a")
    >>> sort_as_in(model, copy)
    >>> copy.free_RVs
    [a, b]
    """
    places = {rv.name: place for place, rv in enumerate(model.free_RVs)}
    copy.free_RVs.sort(key=lambda rv: places[rv.name])


def initial_values(model: pm.Model) -> dict[str, Any]:
    """Return the initial values that the user gave, by the name of the variable.

    Raises
    ------
    UnsupportedModelError
        If one is symbolic.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", initval=2.0)
    ...     sigma = pm.HalfNormal("sigma")
    >>> {name: float(value) for name, value in initial_values(model).items()}
    {'mu': 2.0}
    """
    values = {}
    for rv, value in model.rvs_to_initial_values.items():
        if isinstance(value, Variable) and not isinstance(value, Constant):
            raise UnsupportedModelError(
                f"{rv.name!r} has a symbolic initial value, which cannot be carried over to the "
                "coreset model. Give it as numbers (initval=...), or leave it out."
            )
        if value is not None:
            values[rv.name] = value
    return values


def convertible(model: pm.Model) -> pm.Model:
    """Return a view of the model without what PyMC's conversion refuses.

    Those are initial values, and dims with unnamed entries; both are carried over by name.  The
    view shares all else with the user's model, which other threads may be reading.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", initval=2.0)
    >>> list(convertible(model).rvs_to_initial_values.values())
    [None]
    """
    dims = model.named_vars_to_dims
    view = object.__new__(type(model))
    vars(view).update(
        vars(model),
        rvs_to_initial_values=dict.fromkeys(model.rvs_to_initial_values),
        named_vars_to_dims={n: d for n, d in dims.items() if not d or None not in d},
    )
    return view
