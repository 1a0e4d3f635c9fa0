"""Which likelihood terms are summarised where the user names none, and which stay whole."""

from collections.abc import Sequence

import numpy as np
import pymc as pm
from pytensor.graph import Variable, ancestors, graph_inputs
from pytensor.tensor import TensorConstant, TensorVariable

from pymc_coresets.compat.pytensor_api import AdvancedSubtensor, io_toposort
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.pushdown import Pushdown
from pymc_coresets.reading.sums.splitting import RowTerm, observed_length, row_term

_FEW = 500  # terms that cost NUTS next to nothing, and stay exact where they are


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


def by_default(plain: PlainModel, names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Choose the terms: the longest ones, and others of many rows that can be taken apart.

    A potential is a part of the likelihood if it is a sum, or has one value, over many rows of
    data: a potential of lookups alone, as of neighbours on a map, is a prior.

    Parameters
    ----------
    plain : PlainModel
        With the graphs of these terms, and of `other_potentials`.
    names : sequence of str
        From `term_names`.

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
    terms = {name: row_term(plain, name, None) for name in every}
    observed = [v.name for v in model.observed_RVs if v.name in names] or list(names)
    longest = max((t.term.length for name in observed if (t := terms[name])), default=0)
    no_rows = [observed_length(model, name, 0) for name in observed if terms[name] is None]
    if max((n or 1 for n in no_rows), default=0) > longest:
        return list(names), ()  # what is no sum of rows is the likelihood, and refused
    outcomes = [n for n in names if (t := terms[n]) is not None and t.term.length == longest]
    covariates = set(ancestors([model[n] for n in outcomes])) - {model[n] for n in outcomes}
    chosen, whole = [], []
    for name in every:
        if name in outcomes or (
            model[name] not in covariates  # whose missing values PyMC imputes
            and _is_worth_it(terms[name], plain, is_data=name in observed)
        ):
            chosen.append(name)
        elif (length := _length_of_data(plain.graphs[name])) >= _FEW:
            whole.append(f"{name!r} (computed from {length:,} rows)")
    return chosen, tuple(whole)


def _is_worth_it(found: RowTerm | None, plain: PlainModel, *, is_data: bool) -> bool:
    """Whether a term has many rows, and can be taken apart into them."""
    if found is None or found.term.length < _FEW:
        return False
    pushdown = Pushdown(plain.parameters.values(), found.term.length)
    try:
        rows = pushdown.select(found.rows, found.term.axis)
    except UnsupportedModelError:
        return False
    by_value = is_data or not pushdown.placeholders.isdisjoint(_used_by_value(rows))
    return by_value and not pushdown.local and not pushdown.unselected


def _length_of_data(graph: TensorVariable) -> int:
    constants = (v for v in _used_by_value(graph) if isinstance(v, TensorConstant))
    return max((max(np.shape(v.data), default=0) for v in constants), default=0)


def _used_by_value(graph: TensorVariable) -> set[Variable]:
    """Return the inputs of a graph that are more than an index of something else."""
    used: set[Variable] = {graph}
    for node in reversed(list(io_toposort([], [graph]))):
        if not used.isdisjoint(node.outputs):
            is_lookup = isinstance(node.op, AdvancedSubtensor)
            used.update(node.inputs[:1] if is_lookup else node.inputs)
    return used.intersection(graph_inputs([graph]))
