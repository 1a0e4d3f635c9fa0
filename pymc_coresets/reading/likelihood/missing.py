"""Positions, in the user's data, of the rows of a variable with missing values."""

from collections.abc import Sequence

import numpy as np
import pymc as pm
from pytensor.graph import ancestors

from pymc_coresets.compat.pymc_api import PartialObservedRV, resolve_shapes
from pymc_coresets.compat.pytensor_api import AdvancedIncSubtensor
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import evaluate

_SUFFIX = "_observed"  # PyMC's name for the part of a variable that is not missing


def imputed_names(model: pm.Model) -> set[str]:
    """Name the free variables that stand for missing values, and that nothing else depends on.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(3.0))
    >>> imputed_names(model)
    set()
    """
    observed = [v.name for v in model.observed_RVs if v.name.endswith(_SUFFIX)]
    names = {f"{name.removesuffix(_SUFFIX)}_unobserved" for name in observed}
    others = [rv for rv in model.basic_RVs if rv.name not in names]  # they may have such names
    behind = {v.name for v in ancestors([*others, *model.potentials])}
    return names.intersection(v.name for v in model.free_RVs) - behind


def common_positions(model: pm.Model, names: Sequence[str]) -> np.ndarray | None:
    """Return each observation's position in the user's data, where PyMC imputes missing values.

    PyMC splits a variable with missing values into an observed one, whose rows are numbered anew,
    and a free one.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        The observed variables to summarise.

    Returns
    -------
    ndarray of int64, or None
        Sorted positions; those of single cells, in C order, where each cell of a matrix is an
        observation.  ``None`` where all rows are observations, in their own order.

    Raises
    ------
    UnsupportedModelError
        If the variables lack values in different rows, or the positions cannot be found.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array([1.0, 2.0, 3.0]))
    >>> common_positions(model, ["y"]) is None
    True
    """
    found = [positions_of_data(model, name) for name in names]
    for name, other in zip(names, found, strict=True):
        if not same_positions(found[0], other):
            raise UnsupportedModelError(
                f"{names[0]!r} and {name!r} have missing values in different rows, and cannot "
                "form one observation together. Summarise one of them with observed=[...]."
            )
    return found[0]


def dims_of_data(model: pm.Model, name: str) -> tuple[str | None, ...]:
    """Return the dims of the data of an observed variable, where values may be missing from them.

    Examples
    --------
    >>> with pm.Model(coords={"dog": range(2)}) as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.ones(2), dims="dog")
    >>> dims_of_data(model, "y")
    ('dog',)
    """
    dims = model.named_vars_to_dims
    if name not in dims and positions_of_data(model, name) is not None:
        name = name.removesuffix(_SUFFIX)
    return tuple(dims.get(name) or ())


def dims_of_cells_left(model: pm.Model, names: Sequence[str]) -> tuple[str, ...]:
    """Return the dims of a matrix of which variables have the cells that are not missing.

    They are numbered along one axis, and what they are computed from is not: nothing is returned
    for all others.

    Examples
    --------
    >>> with pm.Model(coords={"dog": range(2)}) as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.ones(2), dims="dog")
    >>> dims_of_cells_left(model, ["y"])
    ()
    """
    if not model.named_vars_to_dims.keys().isdisjoint(names):
        return ()
    found = {dims_of_data(model, name) for name in names}
    dims = found.pop() if len(found) == 1 else ()
    named = tuple(dim for dim in dims if dim is not None)
    return named if len(named) == len(dims) > 1 else ()


def same_positions(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether positions are the same; None stands for all rows.

    Examples
    --------
    >>> same_positions(np.array([0, 2]), None), same_positions(None, None)
    (False, True)
    """
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def positions_of_data(model: pm.Model, name: str) -> np.ndarray | None:
    """Return where the rows of a variable lie in its data, if PyMC imputes missing ones.

    As `common_positions`, for one variable.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array([1.0, 2.0, 3.0]))
    >>> positions_of_data(model, "y") is None
    True
    """
    whole = name.removesuffix(_SUFFIX)
    unobserved = f"{whole}_unobserved"
    if whole == name or whole not in model.named_vars or unobserved not in model.named_vars:
        return None
    part, above = model[name], set(ancestors([model[whole]]))
    if part not in above:
        return None  # names that the user chose
    if isinstance(part.owner.op, PartialObservedRV) and model[unobserved].owner is part.owner:
        raise UnsupportedModelError(
            f"PyMC imputes the missing values of {whole!r} together with the others, in one "
            "density: without some rows there is none. Leave the rows with missing values out."
        )
    for variable in above:
        node = variable.owner
        if node is not None and isinstance(node.op, AdvancedIncSubtensor):
            _, written, *index = node.inputs
            if written is part:
                [shape] = evaluate(resolve_shapes([model[whole].shape]))  # draws no values
                return _flat_positions(evaluate(index), tuple(int(n) for n in shape))
    raise UnsupportedModelError(
        f"{whole!r} joins {name!r} and {unobserved!r}, but not as PyMC does where it imputes "
        "missing values: the positions of the observations in your data are unknown. Give "
        f"{whole!r} a masked array as observed=..., or rename the variables."
    )


def _flat_positions(index: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    if len(index) == 1 and index[0].dtype == bool:
        return np.flatnonzero(index[0])
    return np.ravel_multi_index(tuple(index), shape[: len(index)])
