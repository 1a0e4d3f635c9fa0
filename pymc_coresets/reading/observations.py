"""Find a model's observations: its likelihood terms, their axis, and a pointwise log-likelihood."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm

from pymc_coresets.compat.pymc_api import resolve_shapes
from pymc_coresets.compat.pytensor_api import Constant, TensorVariable, ancestors, graph_inputs
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.context import given_model
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.graphs import has_randomness, parameter_inputs, plain_graphs
from pymc_coresets.reading.missing import common_positions
from pymc_coresets.reading.pushdown import Pushdown, RowArray

__all__ = ["Observations", "Term", "find_observations"]


@dataclass(frozen=True)
class Term:
    """One likelihood term: an observed variable, or a potential with one value for each row.

    Attributes
    ----------
    name : str
        Name of the variable in the model.
    axis : int
        Its observation axis.
    length : int
        Its number of observations.
    """

    name: str
    axis: int
    length: int


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of a model, and all that is needed to evaluate their potentials.

    Attributes
    ----------
    model : pm.Model
        The user's model, never changed.
    terms : tuple of Term
        The likelihood terms to summarise.
    dim : str or None
        Name of the observation dimension, if it has one.
    n_obs : int
        Number of observations N.
    parameters : mapping of str to TensorVariable
        Inputs that stand for the free variables, on their own (constrained) scale.
    loglik : TensorVariable
        The potentials (n_rows,) as a function of `parameters`, the placeholders of `rows`, and
        `n_rows`.
    n_rows : TensorVariable
        How many rows the placeholders hold.
    rows : tuple of RowArray
        The arrays that are indexed by the observation.
    positions : ndarray of int or None
        Position of each observation in the user's data, where missing values leave some of them
        out; ``None`` otherwise.
    unselected : tuple of str
        Parts of the model whose cost grows with N for any number of rows, by name.
    local : tuple of str
        Free variables that have the observation axis themselves.
    views : mapping of str to TensorVariable
        Deterministics that have the observation axis, for the rows of the placeholders.
    reference : TensorVariable
        The potentials (n_obs,) as PyMC derives them, to check the others against.
    """

    model: pm.Model
    terms: tuple[Term, ...]
    dim: str | None
    n_obs: int
    parameters: Mapping[str, TensorVariable]
    loglik: TensorVariable
    n_rows: TensorVariable
    rows: tuple[RowArray, ...]
    positions: np.ndarray | None
    unselected: tuple[str, ...]
    local: tuple[str, ...]
    views: Mapping[str, TensorVariable]
    reference: TensorVariable

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each free variable."""
        return {name: v.type.shape for name, v in self.parameters.items()}

    @property
    def n_dims(self) -> int:
        """Number of scalar free variables D."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def find_observations(
    model: pm.Model | None = None,
    *,
    observed: str | Sequence[str] | None = None,
    dim: str | None = None,
    allow_local: bool = False,
) -> Observations:
    """Derive the pointwise log-likelihood of a model for any of its rows.

    Parameters
    ----------
    model : pm.Model, optional
        By default the model of the enclosing ``with`` block.
    observed : str or sequence of str, optional
        The observed variables (or potentials with one value per row) to summarise.  By default
        all that have the observation dimension.
    dim : str, optional
        Name of the observation dimension.  By default the leading axis of the observed variables.
    allow_local : bool, default False
        Accept free variables that have the observation axis themselves.  They stay in the coreset
        model in full, so that its cost still grows with N.

    Returns
    -------
    Observations

    Raises
    ------
    UnsupportedModelError
        If the model has no observed variable, a scalar log-likelihood, one that depends on no
        free variable, observation axes of different length, local latent variables, minibatches,
        or is part of another model.
    InvalidOptionError
        If `model` is not a model, or is left out where there is no enclosing ``with`` block.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1.0, observed=np.arange(5.0))
    >>> find_observations(model).n_obs
    5
    """
    model = given_model(model)
    if model.parent is not None:
        raise UnsupportedModelError(
            f"The model {model.name!r} is part of another model. Build the coreset of the parent "
            "model, which holds its variables too."
        )
    names = _term_names(model, observed, dim)
    parameters = parameter_inputs(model)
    graphs = plain_graphs(model, names, parameters)
    _refuse_constant(names, graphs, parameters)
    terms = [_term(model, name, graphs[name], dim) for name in names]
    n_obs = _common_length(terms)
    return _select(model, terms, n_obs, dim, parameters, graphs, allow_local=allow_local)


# -- which terms ----------------------------------------------------------------------------------


def _term_names(
    model: pm.Model, observed: str | Sequence[str] | None, dim: str | None
) -> list[str]:
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
    if dim is not None:
        if dim not in model.coords:
            raise UnsupportedModelError(
                f"dim={dim!r} is not a dimension of the model. It has {list(model.coords)!r}."
            )
        names = [name for name in available if dim in dims.get(name, ())]
        if not names:
            raise UnsupportedModelError(
                f"No observed variable of the model has the dimension {dim!r}: give it to one "
                f"(dims={dim!r}), or name the variables with observed=[...]. It has {available!r}."
            )
        return names
    names = [v.name for v in model.observed_RVs]
    axis_dims = {dims[name][0] for name in names if dims.get(name)}
    names += [
        p.name
        for p in model.potentials
        if p.type.ndim and (not names or dims.get(p.name, (None,))[0] in axis_dims)
    ]
    if not names:
        raise UnsupportedModelError(
            "The model has no observed variable, and no potential with one value per observation: "
            "there is no likelihood to summarise. Give a variable its data with observed=..."
        )
    return names


def _refuse_constant(
    names: Sequence[str],
    graphs: Mapping[str, TensorVariable],
    parameters: Mapping[str, TensorVariable],
) -> None:
    inputs = set(graph_inputs([graphs[name] for name in names]))
    if inputs.isdisjoint(parameters.values()):
        has = f"only {list(parameters)!r}" if parameters else "none"
        raise UnsupportedModelError(
            f"The log-likelihood of {list(names)!r} depends on no free variable (the model has "
            f"{has}): there is no posterior to approximate. Give a variable of the likelihood a "
            "prior, or name other observed variables with observed=[...]."
        )


def _term(model: pm.Model, name: str, graph: TensorVariable, dim: str | None) -> Term:
    dims = model.named_vars_to_dims.get(name, ())
    if dim is not None and dims and dim not in dims:
        raise UnsupportedModelError(
            f"{name!r} has the dimensions {dims!r}, not {dim!r}. Leave it out of observed=[...]."
        )
    axis = dims.index(dim) if dim is not None and dims else 0
    if axis >= graph.type.ndim:
        raise UnsupportedModelError(
            f"The log-likelihood of {name!r} is "
            + ("one number" if graph.type.ndim == 0 else f"not split along {dim!r}")
            + " (as for a Gaussian process' marginal likelihood or a time series): it is no sum "
            "over observations, and a coreset cannot be chosen from it."
        )
    return Term(name, axis, _length(name, graph, axis))


def _length(name: str, graph: TensorVariable, axis: int) -> int:
    length: int | None = graph.type.shape[axis]
    if length is not None:
        return length
    [shape] = resolve_shapes([graph.shape])
    if any(v.owner is None and not isinstance(v, Constant) for v in graph_inputs([shape])):
        raise UnsupportedModelError(
            f"The number of observations of {name!r} depends on the values of free variables: "
            "there are no rows to choose from. Give the data a fixed length."
        )
    [lengths] = evaluate([shape])
    return int(lengths[axis])


def _common_length(terms: Sequence[Term]) -> int:
    lengths = {term.name: term.length for term in terms}
    if len(set(lengths.values())) > 1:
        raise UnsupportedModelError(
            f"The observed variables have different numbers of observations: {lengths}. Name the "
            "ones to summarise with observed=[...] (or their dimension with dim=...); the others "
            "stay in the model as they are."
        )
    n_obs = terms[0].length
    if n_obs < 2:
        raise UnsupportedModelError(
            f"{terms[0].name!r} has {n_obs} observation: there is nothing to choose from."
        )
    return n_obs


# -- selection -------------------------------------------------------------------------------------


def _select(
    model: pm.Model,
    terms: Sequence[Term],
    n_obs: int,
    dim: str | None,
    parameters: Mapping[str, TensorVariable],
    graphs: Mapping[str, TensorVariable],
    *,
    allow_local: bool,
) -> Observations:
    pushdown = Pushdown(parameters.values(), n_obs)
    loglik = _sum_over_events([(pushdown.select(graphs[t.name], t.axis), t.axis) for t in terms])
    local = tuple(sorted(str(v.name) for v in pushdown.local))
    if local and not allow_local:
        raise UnsupportedModelError(
            f"The free variables {list(local)!r} have one value per observation. A coreset cannot "
            "leave them out: marginalise them (pm.Censored, pm.Mixture, an overdispersed "
            "likelihood, pymc_extras.marginalize, ...), or keep them all with allow_local=True."
        )
    unselected = tuple(dict.fromkeys([*pushdown.unselected, *pushdown.taken_whole(loglik)]))
    dim = dim or _dim_of(model, terms)
    views = _views(model, terms, n_obs, dim, graphs, pushdown)
    reference = _sum_over_events([(graphs[t.name], t.axis) for t in terms])
    return Observations(
        model=model,
        terms=tuple(terms),
        dim=dim,
        n_obs=n_obs,
        parameters=parameters,
        loglik=loglik,
        n_rows=pushdown.n_rows,
        rows=tuple(pushdown.row_arrays()),
        positions=common_positions(model, [t.name for t in terms]),
        unselected=unselected,
        local=local,
        views=views,
        reference=reference,
    )


def _sum_over_events(graphs: Sequence[tuple[TensorVariable, int]]) -> TensorVariable:
    """Add up the terms, and within them the events, of each observation."""
    per_row = [
        graph.sum(axis=[i for i in range(graph.type.ndim) if i != axis])
        if graph.type.ndim > 1
        else graph
        for graph, axis in graphs
    ]
    total = per_row[0]
    for other in per_row[1:]:
        total = total + other
    return total


def _dim_of(model: pm.Model, terms: Sequence[Term]) -> str | None:
    dims = {
        model.named_vars_to_dims[t.name][t.axis]
        for t in terms
        if model.named_vars_to_dims.get(t.name)
    }
    if len(dims) > 1:
        raise UnsupportedModelError(
            f"The observed variables {[t.name for t in terms]!r} have different observation "
            f"dimensions {sorted(map(str, dims))!r} of the same length. Name the one to summarise "
            "with dim=..."
        )
    return dims.pop() if dims else None


def _views(
    model: pm.Model,
    terms: Sequence[Term],
    n_obs: int,
    dim: str | None,
    graphs: Mapping[str, TensorVariable],
    pushdown: Pushdown,
) -> dict[str, TensorVariable]:
    """Select the deterministics that have the observation axis and no local variable."""
    views = {}
    used = set(ancestors([model[t.name] for t in terms]))
    for deterministic in model.deterministics:
        name, graph = deterministic.name, graphs[deterministic.name]
        dims = model.named_vars_to_dims.get(name)
        axis = dims.index(dim) if dims and dim in dims else 0
        # Without dims, length N means rows only in what the likelihood is computed from.
        has_axis = (
            dim in dims if dims else graph.type.shape[:1] == (n_obs,) and deterministic in used
        )
        if not has_axis or has_randomness(graph):
            continue
        local_before = set(pushdown.local)
        selected = pushdown.select(graph, axis)
        if pushdown.local == local_before:
            views[name] = selected
        pushdown.local = local_before
    return views
