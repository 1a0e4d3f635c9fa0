"""Tables that row data look values up in: which codes they allow."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pytensor.graph import Variable, ancestors
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import AdvancedSubtensor
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.selection_rules import index_of


@dataclass(frozen=True, eq=False)
class Lookup:
    """An index that is computed from row data alone.

    Attributes
    ----------
    codes : Variable
        The index, as a function of what holds the rows.
    columns : tuple of str
        The containers that it is computed from.
    table : str
        What is indexed.
    length : int
        Number of entries along the indexed axis.
    """

    codes: Variable
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
    columns: dict[Variable, str] = {row.placeholder: row.name for row in observations.rows}
    return lookups_in(
        graphs,
        columns,
        set(observations.parameters.values()),
        length_of=lambda table, axis: table.type.shape[axis],
    )


def lookups_in(
    graphs: Iterable[Variable],
    columns: Mapping[Variable, str],
    parameters: Collection[Variable],
    *,
    length_of: Callable[[TensorVariable, int], int | None],
) -> list[Lookup]:
    """Find the indices in some graphs that are computed from row data alone.

    Parameters
    ----------
    graphs : iterable of Variable
    columns : mapping of Variable to str
        What holds row data, and the names of the containers.
    parameters : collection of Variable
        What is no data; nothing below it is searched.
    length_of : callable
        Length of a table along an axis; None where it is unknown, and any index is allowed.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> group, effect = pt.lvector("group"), pt.tensor("effect", shape=(4,))
    >>> [found] = lookups_in(
    ...     [effect[group]], {group: "group"}, {effect}, length_of=lambda table, axis: 4
    ... )
    >>> found.table, found.length
    ('effect', 4)
    """
    found = {v: None for graph in graphs for v in ancestors([graph], blockers=parameters)}
    return [
        lookup
        for variable in found
        if variable.owner is not None and isinstance(variable.owner.op, AdvancedSubtensor)
        for lookup in _of_node(variable, columns, set(parameters), length_of)
    ]


def _of_node(
    variable: Variable,
    names: Mapping[Variable, str],
    parameters: set[Variable],
    length_of: Callable[[TensorVariable, int], int | None],
) -> Iterator[Lookup]:
    node = variable.owner
    x, (_, arrays) = node.inputs[0], index_of(node)
    table = next((v.name for v in ancestors([x]) if v.name and v not in names), "a table")
    for axis, entry in arrays.items():
        below = set(ancestors([entry]))
        codes = tuple(sorted(names[v] for v in below & names.keys()))
        if not codes or not below.isdisjoint(parameters):
            continue
        length = length_of(x, axis)
        if length is not None:
            yield Lookup(entry, codes, table, length)
