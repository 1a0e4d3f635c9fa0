"""The likelihood terms of a model: which are summarised, and where their rows lie in the data."""

import math
from collections.abc import Sequence

import numpy as np
import pymc as pm
from pytensor.graph import Apply, Variable, ancestors, graph_inputs
from pytensor.tensor import TensorConstant, TensorVariable

from pymc_coresets.compat.pymc_api import PartialObservedRV
from pymc_coresets.compat.pytensor_api import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    io_toposort,
    op_of,
)
from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.graphs import PlainModel, shapes_of
from pymc_coresets.reading.likelihood.row_terms import RowTerm, observed_length, row_term
from pymc_coresets.reading.pushdown import Pushdown

_FEW = 500  # terms that cost NUTS next to nothing, and stay exact where they are
_FEW_LOCAL = 25  # the same for those with a variable for each row


def as_names(dim: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in ``dim=``: none, one, or several that differ.

    Examples
    --------
    >>> as_names("obs"), as_names(["dog", "trial"]), as_names(None)
    (('obs',), ('dog', 'trial'), ())
    """
    names = () if dim is None else (dim,) if isinstance(dim, str) else tuple(dim)
    if len(set(names)) < len(names) or (dim is not None and not names):
        raise InvalidOptionError(f"dim={dim!r} must be a name, or several that differ.")
    return names


def term_names(
    model: pm.Model, observed: str | Sequence[str] | None, dim: tuple[str, ...]
) -> list[str]:
    """Name the terms to summarise: those asked for, those with the dims, or all.

    Raises
    ------
    UnsupportedModelError
        If there are none, or the model has no such dimension.

    Examples
    --------
    >>> import numpy as np
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(5.0))
    >>> term_names(model, None, ())
    ['y']
    """
    for name in dim:
        if name not in model.coords:
            raise UnsupportedModelError(
                f"dim={name!r} is not a dimension of the model. It has {list(model.coords)!r}."
            )
    dims = model.named_vars_to_dims
    available = [v.name for v in (*model.observed_RVs, *model.potentials)]
    if observed is not None:
        names = [observed] if isinstance(observed, str) else list(observed)
        unknown = [name for name in names if name not in available]
        if unknown or not names:
            raise UnsupportedModelError(
                f"observed={names!r}: {unknown!r} is not an observed variable or potential "
                f"of the model. It has {available!r}."
            )
        return names
    if dim:
        return _with_dims(model, available, dim)
    names = [v.name for v in model.observed_RVs]
    axis_dims = {dims[name][0] for name in names if dims.get(name)}
    names += [
        p.name
        for p in model.potentials
        if p.type.ndim and (not names or dims.get(p.name, (None,))[0] in axis_dims)
    ]
    if not names:
        scalars = [p.name for p in model.potentials]
        raise UnsupportedModelError(
            "The model has no observed variable, and no potential with one value per observation: "
            "there is no likelihood to summarise. Give a variable its data with observed=..."
            + (f" If one of {scalars!r} is a sum over data, name it: observed=..." * bool(scalars))
        )
    return names


def _with_dims(model: pm.Model, available: Sequence[str], dim: tuple[str, ...]) -> list[str]:
    one = len(dim) == 1
    own = model.named_vars_to_dims
    found = {n: own.get(n) or () if one else dims_of_data(model, n) for n in available}
    names = [name for name, dims in found.items() if set(dim) <= set(dims)]
    if not names:
        wanted = f"dimension {dim[0]!r}" if one else f"dimensions {dim!r}"
        raise UnsupportedModelError(
            f"No observed variable of the model has the {wanted}: give {'it' if one else 'them'} "
            f"to one (dims={dim[0] if one else dim!r}), or name the variables with "
            f"observed=[...]. It has {list(available)!r}."
        )
    return names


def by_default(
    plain: PlainModel, names: Sequence[str], *, with_local: bool = False
) -> tuple[list[str], tuple[str, ...]]:
    """Choose the terms: the longest ones, and others of many rows that can be taken apart.

    A potential is a part of the likelihood if it is a sum, or has one value, over many rows of
    data: a potential of lookups alone, as of neighbours on a map, is a prior.

    Parameters
    ----------
    plain : PlainModel
        With the graphs of these terms, and of `other_potentials`.
    names : sequence of str
        From `term_names`.
    with_local : bool, default False
        Whether terms may have a variable for each row.  The known values of covariates with
        missing ones are among the terms then, because the missing ones are such variables.

    Returns
    -------
    names : list of str
        Of the terms to summarise.
    whole : tuple of str
        Others with many data, which stay in the coreset's model: in words, with their lengths.

    Examples
    --------
    >>> from pymc_coresets.reading.graphs import plain_model
    >>> with pm.Model() as model:
    ...     rate, t = pm.Gamma("rate", 1, 1), np.linspace(1, 2, 600)
    ...     seen = pm.Exponential("seen", rate, observed=np.ones(900))
    ...     censored = pm.Potential("censored", -(rate * t).sum())
    >>> by_default(plain_model(model, ["seen", "censored"]), ["seen"])[0]
    ['seen', 'censored']
    """
    model = plain.model
    every = [*names, *other_potentials(model, names)]
    terms = {name: row_term(plain, name, 0) for name in every}
    observed = [v.name for v in model.observed_RVs if v.name in names] or list(names)
    lengths = {name: found.term.length for name, found in terms.items()}
    longest = max((lengths[name] for name in observed), default=0)
    no_rows = [observed_length(model, name, 0) for name in observed if not terms[name].has_rows]
    if max((n or 1 for n in no_rows), default=0) > longest:
        return list(names), ()  # what is not a sum of rows is the likelihood, and refused
    outcomes = [n for n in names if lengths[n] == longest]
    covariates = set(ancestors([model[n] for n in outcomes])) - {model[n] for n in outcomes}
    chosen, whole = [], []
    for name in every:
        is_covariate = model[name] in covariates  # whose missing values PyMC imputes
        if name in outcomes or (
            with_local and has_rows_of(model, name, longest)
            if is_covariate
            else _is_worth_it(terms[name], plain, is_data=name in observed, with_local=with_local)
        ):
            chosen.append(name)
        elif (length := _length_of_data(plain.graphs[name])) >= _FEW:
            whole.append(f"{name!r} (computed from {length:,} rows)")
    return chosen, tuple(whole)


# -- terms that are chosen by default --------------------------------------------------------------


def other_potentials(model: pm.Model, names: Sequence[str]) -> list[str]:
    """Name the potentials that are not among the terms.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     centred = pm.Potential("centred", -(pm.Normal("mu", shape=2).sum() ** 2))
    >>> other_potentials(model, ["y"])
    ['centred']
    """
    return [p.name for p in model.potentials if p.name not in names]


def _is_worth_it(found: RowTerm, plain: PlainModel, *, is_data: bool, with_local: bool) -> bool:
    """Whether a term has many rows, and can be taken apart into them."""
    if found.term.length < (_FEW_LOCAL if with_local else _FEW):
        return False
    pushdown = Pushdown(plain.parameters.values(), found.term.length)
    try:
        rows = pushdown.select(found.rows, found.term.axis)
    except UnsupportedModelError:
        return False
    by_value = is_data or not pushdown.placeholders.isdisjoint(_more_than_indices(rows))
    is_long, local = found.term.length >= _FEW, pushdown.local.union(*pushdown.written.values())
    allowed = is_long if not local else with_local
    return by_value and allowed and not pushdown.unselected


def _length_of_data(graph: TensorVariable) -> int:
    constants = (v for v in _more_than_indices(graph) if isinstance(v, TensorConstant))
    return max((max(np.shape(v.data), default=0) for v in constants), default=0)


def _more_than_indices(graph: TensorVariable) -> set[Variable]:
    """Return the inputs of a graph that are more than an index of something else."""
    used: set[Variable] = {graph}
    for node in reversed(list(io_toposort([], [graph]))):
        if not used.isdisjoint(node.outputs):
            is_lookup = isinstance(node.op, AdvancedSubtensor)
            used.update(node.inputs[:1] if is_lookup else node.inputs)
    return used.intersection(graph_inputs([graph]))


_SUFFIX = "_observed"  # PyMC's name for the part of a variable that is not missing
#: PyMC's name for the missing part.
UNOBSERVED = "_unobserved"


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
    names = {f"{name.removesuffix(_SUFFIX)}{UNOBSERVED}" for name in observed}
    others = [rv for rv in model.basic_RVs if rv.name not in names]  # they may have such names
    behind = {v.name for v in ancestors([*others, *model.potentials])}
    return names.intersection(v.name for v in model.free_RVs) - behind


def common_positions(model: pm.Model, names: Sequence[str], n_rows: int) -> tuple[np.ndarray, int]:
    """Return each observation's position in the user's data, where PyMC imputes missing values.

    PyMC splits a variable with missing values into an observed one, whose rows are numbered anew,
    and a free one.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        The observed variables to summarise.
    n_rows : int
        How many rows each has.

    Returns
    -------
    positions : ndarray of int64
        Sorted; those of single cells, in C order, if each cell of a matrix is an observation.
    n_data : int
        Number of rows, or cells, of the user's data.

    Raises
    ------
    UnsupportedModelError
        If the variables lack values in different rows, or the positions cannot be found.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array([1.0, 2.0, 3.0]))
    >>> common_positions(model, ["y"], 3)
    (array([0, 1, 2]), 3)
    """
    found = [positions_of_data(model, name, n_rows) for name in names]
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
    if name not in dims and is_known_part(model, name):
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
    return dims_of_cells(model, names)


def dims_of_cells(model: pm.Model, names: Sequence[str]) -> tuple[str, ...]:
    """Return the dims of the data of variables, if all are matrices with the same.

    Examples
    --------
    >>> with pm.Model(coords={"dog": range(2), "day": range(3)}) as model:
    ...     y = pm.Normal("y", observed=np.ones((2, 3)), dims=("dog", "day"))
    >>> dims_of_cells(model, ["y"])
    ('dog', 'day')
    """
    found = {dims_of_data(model, name) for name in names}
    dims = found.pop() if len(found) == 1 else ()
    return tuple(map(str, dims)) if len(dims) > 1 and None not in dims else ()


def same_positions(one: tuple[np.ndarray, int], other: tuple[np.ndarray, int]) -> bool:
    """Whether rows have the same positions in data, of which both lack some, or neither.

    Examples
    --------
    >>> same_positions((np.array([0, 1]), 3), (np.array([0, 1]), 2))
    False
    """
    lacking = [len(positions) < n_data for positions, n_data in (one, other)]
    return lacking[0] == lacking[1] and np.array_equal(one[0], other[0])


def is_known_part(model: pm.Model, name: str) -> bool:
    """Whether a term is the known part of a variable of which PyMC imputes missing values.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array([1.0, 2.0, 3.0]))
    >>> is_known_part(model, "y")
    False
    """
    return bool(_writing(model, name))


def positions_of_data(model: pm.Model, name: str, n_rows: int) -> tuple[np.ndarray, int]:
    """Return where the rows of a variable lie in its data, of which PyMC may impute missing ones.

    As `common_positions`, for one variable.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array([1.0, 2.0, 3.0]))
    >>> positions_of_data(model, "y", 3)
    (array([0, 1, 2]), 3)
    """
    for node in _writing(model, name):
        [shape] = shapes_of([model[name.removesuffix(_SUFFIX)]])
        index = values_of(node.inputs[2:])
        if len(index) == 1 and index[0].dtype == bool:
            return np.flatnonzero(index[0]), index[0].size
        cells = shape[: len(index)]
        return np.ravel_multi_index(tuple(index), cells), math.prod(cells)
    return np.arange(n_rows), n_rows


def _writing(model: pm.Model, name: str) -> list[Apply]:
    """Return what writes the known part of a variable among its missing values, if it is one."""
    whole = name.removesuffix(_SUFFIX)
    unobserved = f"{whole}{UNOBSERVED}"
    if whole == name or whole not in model.named_vars or unobserved not in model.named_vars:
        return []
    part, above = model[name], set(ancestors([model[whole]]))
    if part not in above:
        return []  # names that the user chose
    joint = isinstance(part.owner.op, PartialObservedRV) and model[unobserved].owner is part.owner
    nodes = {v.owner for v in above if isinstance(op_of(v), AdvancedIncSubtensor)}
    writing = [node for node in nodes if node.inputs[1] is part]
    if joint or not writing:
        raise UnsupportedModelError(
            f"PyMC imputes the missing values of {whole!r} together with the others, in one "
            f"density; or {whole!r} joins {name!r} and {unobserved!r} in a way of your own. It is "
            "not known which rows these are. Leave the rows with missing values out, or rename the "
            "variables."
        )
    return writing


def has_rows_of(model: pm.Model, name: str, n_rows: int) -> bool:
    """Whether a term is the known part of a variable with missing values that has so many rows.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.array([1.0, 2.0, 3.0]))
    >>> has_rows_of(model, "y", 3)
    False
    """
    if not is_known_part(model, name):
        return False
    whole, (positions, _) = model[name.removesuffix(_SUFFIX)], positions_of_data(model, name, 0)
    return len(positions) < n_rows and whole.type.shape == (n_rows,)
