"""Tables that row data look values up in: which codes they allow."""

from collections.abc import Iterator
from dataclasses import dataclass

from pymc_coresets.compat.pytensor_api import (
    AdvancedSubtensor,
    TensorVariable,
    Variable,
    ancestors,
    graph_inputs,
    unflatten_index_variables,
)
from pymc_coresets.reading.observations import Observations

__all__ = ["Lookup", "lookups"]


@dataclass(frozen=True, eq=False)
class Lookup:
    """An index that is computed from row data alone.

    Attributes
    ----------
    codes : TensorVariable
        The index, as a function of the placeholders of the rows.
    columns : tuple of str
        The containers that it is computed from.
    table : str
        What is indexed.
    length : int
        Number of entries along the indexed axis.
    """

    codes: TensorVariable
    columns: tuple[str, ...]
    table: str
    length: int


def lookups(observations: Observations) -> list[Lookup]:
    """Find the indices in the potentials and deterministics of rows.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     group, y = pm.Data("group", np.array([0, 1, 1])), pm.Data("y", np.ones(3))
    ...     effect = pm.Normal("effect", shape=4)
    ...     likelihood = pm.Normal("likelihood", effect[group], 1.0, observed=y)
    >>> columns = {"group": np.zeros((), dtype=int), "y": np.zeros(())}
    >>> [found] = lookups(find_observations(model, columns=columns))
    >>> found.columns, found.table, found.length
    (('group',), 'effect', 4)
    """
    graphs = [observations.loglik, *observations.views.values()]
    found = {v: None for graph in graphs for v in ancestors([graph])}
    return [
        lookup
        for variable in found
        if variable.owner is not None and isinstance(variable.owner.op, AdvancedSubtensor)
        for lookup in _of_node(variable, observations)
    ]


def _of_node(variable: Variable, observations: Observations) -> Iterator[Lookup]:
    node = variable.owner
    names: dict[Variable, str] = {row.placeholder: row.name for row in observations.rows}
    entries = unflatten_index_variables(node.inputs[1:], node.op.idx_list)
    parameters = set(observations.parameters.values())
    x = node.inputs[0]
    table = next((v.name for v in ancestors([x]) if v.name and v not in names), "a table")
    for axis, entry in enumerate(entries):
        if isinstance(entry, slice):
            continue
        inputs = set(graph_inputs([entry]))
        columns = tuple(sorted(names[v] for v in inputs & names.keys()))
        length = x.type.shape[axis]
        if columns and length is not None and inputs.isdisjoint(parameters):
            yield Lookup(entry, columns, table, length)
