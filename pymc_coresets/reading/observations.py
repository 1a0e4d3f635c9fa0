"""Find a model's observations: its likelihood terms, their axis, and a pointwise log-likelihood."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, NoReturn

import numpy as np
import pymc as pm

from pymc_coresets.compat.pytensor_api import (
    TensorVariable,
    Variable,
    ancestors,
)
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.cells.matrices import long_terms
from pymc_coresets.reading.context import given_model
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.graphs import has_randomness, parameter_inputs, plain_graphs
from pymc_coresets.reading.missing import common_positions, dims_of_data, imputed_names
from pymc_coresets.reading.pushdown import Pushdown, RowArray
from pymc_coresets.reading.sums.splitting import (
    SplitSum,
    refuse_elsewhere,
    refuse_entangled,
    rows_of_series,
    split_sums,
    total_of,
    views_of_series,
)
from pymc_coresets.reading.template.inputs import ColumnLike, Template
from pymc_coresets.reading.terms import (
    Term,
    as_names,
    common_length,
    dim_of_terms,
    refuse_complex,
    refuse_constant,
    row_term,
    term_names,
)

__all__ = ["Observations", "find_observations"]


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations of a model, and all that is needed to evaluate their potentials.

    Attributes
    ----------
    model : pm.Model
        The user's model, never changed.
    terms : tuple of Term
        The likelihood terms to summarise.
    dim : str, tuple of str, or None
        Name of the observation dimension, if it has one; names, where each cell of a matrix is an
        observation.
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
    unweighted : TensorVariable or None
        What the rows of a log-density that is one number lack, a number: it stays in the
        coreset's model, with weight one.
    total : TensorVariable or None
        The log-density of all terms as PyMC derives it, where one of them is one number.
    template : Template or None
        The containers that hold a template of the rows, where the model does not hold all; N is
        the number of its rows then, and `reference` is a function of its inputs too.
    """

    model: pm.Model
    terms: tuple[Term, ...]
    dim: str | tuple[str, ...] | None
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
    unweighted: TensorVariable | None = None
    total: TensorVariable | None = None
    template: Template | None = None

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions whose entries, or cells, are the observations."""
        return as_names(self.dim)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each free variable."""
        return {name: v.type.shape for name, v in self.parameters.items()}

    @cached_property
    def n_dims(self) -> int:
        """Number of free dimensions D of the posterior that the rows determine.

        A variable that sums to zero has one less; values that PyMC imputes are none: no row
        depends on them.
        """
        shapes, imputed = self.model.eval_rv_shapes(), imputed_names(self.model)
        values = {rv.name: self.model.rvs_to_values[rv] for rv in self.model.free_RVs}
        return sum(math.prod(shapes[v.name]) for name, v in values.items() if name not in imputed)


def find_observations(
    model: pm.Model | None = None,
    *,
    observed: str | Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    allow_local: bool = False,
    columns: Mapping[str, ColumnLike] | None = None,
) -> Observations:
    """Derive the pointwise log-likelihood of a model for any of its rows.

    Parameters
    ----------
    model : pm.Model, optional
        By default the model of the enclosing ``with`` block.
    observed : str or sequence of str, optional
        The observed variables and potentials to summarise.  By default all that have the
        observation dimension.  A potential that is one number, as a sum over data, has to be named.
    dim : str or sequence of str, optional
        Name of the observation dimension.  By default the leading axis of the observed variables.
        Several names make each cell of an observed matrix an observation, numbered in C order.
    allow_local : bool, default False
        Accept free variables that have the observation axis themselves.  They stay in the coreset
        model in full, so that its cost still grows with N.
    columns : mapping of str to ColumnLike, optional
        Columns of rows that lie elsewhere.  The model's data containers of these names hold a few
        of the rows, and nothing else in the likelihood may be indexed by the observation.

    Returns
    -------
    Observations

    Raises
    ------
    UnsupportedModelError
        If the model has no observed variable, a log-likelihood that is one number and no sum of
        rows, one that depends on no free variable, observation axes of different length, local
        latent variables, minibatches, or is part of another model; with `columns`, if anything is
        computed from several rows.
    InvalidDataError
        If the containers and the columns do not fit together.
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
    dims = as_names(dim)
    names = term_names(model, observed, dims)
    parameters = parameter_inputs(model)
    template = None if columns is None else Template.of(model, columns)
    graphs = plain_graphs(model, names, parameters, template.inputs if template else {})
    refuse_constant(names, graphs, parameters)
    refuse_complex(graphs)
    if len(dims) > 1:
        layout = _layout_of_cells(model, names, dims, graphs, parameters)
    else:
        axis_dim = dims[0] if dims else None
        if template is not None:
            refuse_elsewhere(model, names, axis_dim, graphs)
        layout = _layout_of_rows(model, names, axis_dim, graphs, parameters)
    found = _select(model, layout, parameters, template, allow_local=allow_local)
    if template is not None:
        template.refuse_other_uses(model, {*names, *found.views})
    return found


# -- how the observations lie in the terms ---------------------------------------------------------


class _Layout(NamedTuple):
    """Graphs with the observations along one axis each."""

    terms: Sequence[Term]
    dim: str | tuple[str, ...] | None
    n_obs: int
    graphs: Mapping[str, TensorVariable]  # of the terms
    views: Mapping[str, tuple[TensorVariable, int]]  # deterministics, and their axes
    reference: TensorVariable
    positions: np.ndarray | None
    unselected: Sequence[str] = ()
    local: Collection[Variable] = ()
    sums: Mapping[str, SplitSum] = MappingProxyType({})  # the terms that are one number
    total: TensorVariable | None = None


def _layout_of_rows(
    model: pm.Model,
    names: Sequence[str],
    dim: str | None,
    graphs: Mapping[str, TensorVariable],
    parameters: Mapping[str, TensorVariable],
) -> _Layout:
    sums = split_sums(model, names, dim, graphs, parameters)
    by_row = {name: sums[name].rows if name in sums else graphs[name] for name in names}
    terms = [
        sums[name].term if name in sums else row_term(model, name, graphs[name], dim)
        for name in names
    ]
    n_obs = common_length(terms)
    dim = dim or dim_of_terms(model, terms)
    positions = rows_of_series(sums, terms)
    return _Layout(
        terms=terms,
        dim=dim,
        n_obs=n_obs,
        graphs=by_row,
        views=views_of_series(_views(model, terms, n_obs, dim, graphs), positions),
        reference=_sum_over_events([(by_row[t.name], t.axis) for t in terms]),
        positions=common_positions(model, names) if positions is None else positions,
        unselected=[split.grows for split in sums.values() if split.grows],
        sums=sums,
        total=total_of([graphs[name] for name in names]) if sums else None,
    )


def _layout_of_cells(
    model: pm.Model,
    names: Sequence[str],
    dim: tuple[str, ...],
    graphs: Mapping[str, TensorVariable],
    parameters: Mapping[str, TensorVariable],
) -> _Layout:
    long = long_terms(model, names, dim, graphs, parameters)
    terms = [Term(name, 0, long.n_cells) for name in names]
    return _Layout(
        terms=terms,
        dim=dim,
        n_obs=common_length(terms),
        graphs=long.terms,
        views={name: (graph, 0) for name, graph in long.views.items()},
        reference=_sum_over_events([(graph, 0) for graph in long.references.values()]),
        positions=long.positions,
        unselected=long.unselected,
        local=long.local,
    )


# -- selection -------------------------------------------------------------------------------------


def _select(
    model: pm.Model,
    layout: _Layout,
    parameters: Mapping[str, TensorVariable],
    template: Template | None,
    *,
    allow_local: bool,
) -> Observations:
    given = {} if template is None else template.given
    pushdown = Pushdown(parameters.values(), layout.n_obs, given)
    loglik = _sum_over_events([(_selected(t, layout, pushdown), t.axis) for t in layout.terms])
    rests = [split.rest for split in layout.sums.values() if split.rest is not None]
    local = tuple(sorted(str(v.name) for v in {*pushdown.local, *layout.local}))
    if local and not allow_local:
        _refuse_local(model, layout, local)
    unselected = [*layout.unselected, *pushdown.unselected, *pushdown.taken_whole(loglik)]
    views = _selected_views(layout, pushdown)
    return Observations(
        model=model,
        terms=tuple(layout.terms),
        dim=layout.dim,
        n_obs=layout.n_obs,
        parameters=parameters,
        loglik=loglik,
        n_rows=pushdown.n_rows,
        views=views,
        rows=tuple(pushdown.row_arrays()),
        positions=layout.positions,
        unselected=tuple(dict.fromkeys(unselected)),
        local=local,
        reference=layout.reference,
        unweighted=total_of(rests) if rests else None,
        total=layout.total,
        template=template,
    )


def _selected(term: Term, layout: _Layout, pushdown: Pushdown) -> TensorVariable:
    n_before = len(pushdown.unselected)
    selected = pushdown.select(layout.graphs[term.name], term.axis)
    if term.name in layout.sums:
        refuse_entangled(layout.sums[term.name], pushdown.unselected[n_before:])
    return selected


def _refuse_local(model: pm.Model, layout: _Layout, local: Sequence[str]) -> NoReturn:
    raise UnsupportedModelError(
        f"The free variables {list(local)!r} have one value per observation. A coreset cannot "
        "leave them out: marginalise them (pm.Censored, pm.Mixture, an overdispersed "
        "likelihood, pymc_extras.marginalize, ...), or keep them all with allow_local=True."
        + _advice_on_cells(model, layout, local),
        topic="local-latent-variables",
    )


def _advice_on_cells(model: pm.Model, layout: _Layout, local: Sequence[str]) -> str:
    """Suggest that each cell be a row, where the variables are shared by cells of a matrix."""
    for term in layout.terms:
        dims = dims_of_data(model, term.name)
        lengths = evaluate([model.dim_lengths[d] for d in dims if d is not None])
        shapes = [model[name].type.ndim for name in local]
        if len(lengths) > 1 and None not in dims and max(shapes) < len(dims):
            return (
                f" If each cell of {term.name!r} is an observation, give dim={dims!r}: these "
                "variables then are shared by several."
            )
    return ""


def _selected_views(layout: _Layout, pushdown: Pushdown) -> dict[str, TensorVariable]:
    """Select the deterministics that have the observations and no local variable."""
    views = {}
    for name, (graph, axis) in layout.views.items():
        local_before = set(pushdown.local)
        selected = pushdown.select(graph, axis)
        if pushdown.local == local_before:
            views[name] = selected
        pushdown.local = local_before
    return views


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


def _views(
    model: pm.Model,
    terms: Sequence[Term],
    n_obs: int,
    dim: str | None,
    graphs: Mapping[str, TensorVariable],
) -> dict[str, tuple[TensorVariable, int]]:
    """Find the deterministics that have the observation axis, and where."""
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
        if has_axis and not has_randomness(graph):
            views[name] = (graph, axis)
    return views
