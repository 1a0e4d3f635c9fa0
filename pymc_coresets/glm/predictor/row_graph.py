"""The graph for selected rows: dependencies of its variables, values of its data, and names."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable, ancestors, graph_inputs

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import replace_rvs_by_values
from pymc_coresets.compat.pytensor_api import (
    SharedVariable,
    TypeCastingOp,
    equal_computations,
    op_of,
)
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.known import KnownValues
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.units.observations_of_units import as_units


class RowGraph:
    """Dependencies of each variable of a graph for selected rows, and values of its data.

    Parameters
    ----------
    parameters : sequence of Variable
        Inputs of known shape that represent the free variables.
    rows : mapping of Variable to ndarray
        The other inputs of the graph, and the values of each one for all rows.

    Examples
    --------
    >>> x, b = pt.vector("x"), pt.scalar("b")
    >>> graph = RowGraph([b], {x: np.arange(3.0)})
    >>> graph.depends(x * b), graph.depends(x + 1), graph.by_row(b + 1)
    (True, False, False)
    >>> graph.values(x + 1)
    array([1., 2., 3.])

    Attributes
    ----------
    computed : list of Variable
        Variables whose values were computed from the rows.
    """

    def __init__(self, parameters: Sequence[Variable], rows: Mapping[Variable, np.ndarray]) -> None:
        self.parameters = tuple(parameters)
        self.rows = dict(rows)
        self._of_parameters, self._of_rows = KnownValues(parameters), KnownValues(rows)
        self._made: dict[tuple[Variable | int, ...], Variable] = {}
        self.computed: list[Variable] = []

    def of_rows(self, rows: Mapping[Variable, np.ndarray]) -> "RowGraph":
        """Return the same graph for other rows, whose `computed` variables may be given too.

        Examples
        --------
        >>> x, b = pt.vector("x"), pt.scalar("b")
        >>> graph = RowGraph([b], {x: np.arange(3.0)})
        >>> graph.of_rows({x: np.array([7.0])}).values(x + 1)
        array([8.])
        """
        other = copy.copy(self)
        other.rows = dict(rows)
        return other

    def depends(self, variable: Variable) -> bool:
        """Whether a variable is computed from any free variable."""
        return self._of_parameters.depends(variable)

    def by_row(self, variable: Variable) -> bool:
        """Whether a variable is computed from any array of rows."""
        return self._of_rows.depends(variable)

    def values(self, variable: Variable) -> np.ndarray:
        """Return the values, for all rows, of a variable that depends on no free variable."""
        if variable in self.rows:
            return self.rows[variable]
        if isinstance(variable, Constant):
            known: np.ndarray = variable.data
            return known
        if not self.by_row(variable):
            return self._of_parameters.value(variable)
        self.computed.append(variable)
        [values] = values_of([variable], self.rows)
        return values

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Return the shape of a variable that depends on no array of rows."""
        return self._of_parameters.shape(variable)

    def is_coefficient(self, variable: Variable) -> bool:
        """Whether all rows share a variable, and it is not just a rearrangement of others."""
        if self.by_row(variable) or not self.depends(variable):
            return False
        if ops.is_input(variable):
            return True
        node = variable.owner
        if isinstance(node.op, ops.SparseDot | ops.StructuredDot):  # of all rows at once
            return self.depends(node.inputs[0])
        if not isinstance(node.op, (*ops.MOVES, ops.Join)):
            return True
        options = [] if isinstance(node.op, ops.Join) else node.inputs[1:]
        return any(self.depends(i) for i in options)

    def product(self, one: Variable, other: Variable) -> Variable:
        """Return the coefficient node `one * other`, always the same; `one` is a single number."""
        single = pt.reshape(one, ()) if one.type.ndim else one
        return self._made.setdefault((one, other), pt.mul(single, other))

    def entry(self, variable: Variable, position: int) -> Variable:
        """Return one number of a coefficient node, always the same; itself if it has but one."""
        if math.prod(self.shape(variable)) == 1:
            return variable
        return self._made.setdefault((variable, position), pt.flatten(variable)[position])

    def reciprocal(self, variable: Variable) -> Variable:
        """Return the coefficient node ``1 / variable``, always the same."""
        return self._made.setdefault((variable,), pt.reciprocal(variable))


def row_graph_of(observations: Observations) -> RowGraph:
    """Return the row graph of the log-likelihood, for the rows that the model holds.

    Raises
    ------
    UnsupportedModelError
        If variables of units are integrated out.
    """
    if observations.integrated:
        raise UnsupportedModelError(
            "Units have no linear predictor, since their variables are integrated out: keep these "
            f"as parameters ({as_units(observations).source.options_to_keep}), or use "
            "method='auto'.",
            topic="regressions",
        )
    used = set(graph_inputs([observations.loglik]))
    rows: dict[Variable, np.ndarray] = {}
    rows |= {r.placeholder: r.values for r in observations.rows if r.placeholder in used}
    rows[observations.n_rows] = np.asarray(observations.n_obs)
    return RowGraph([v for v in observations.parameters.values() if v in used], rows)


def few_rows_of(graph: RowGraph, observations: Observations) -> RowGraph:
    """Return the row graph for 60 of the rows, on which predictors are tried."""
    some = spread_rows(observations.n_obs, 60)
    few: dict[Variable, np.ndarray] = {observations.n_rows: np.asarray(len(some))}
    few |= {r.placeholder: r.take(some) for r in observations.rows if r.placeholder in graph.rows}
    return graph.of_rows(few)


def is_single(variable: Variable) -> bool:
    """Whether a variable has one entry."""
    return set(variable.type.shape) <= {1}


def n_predictors(node: Variable) -> int:
    """Return the number of entries of a variable per row: one, unless it is a matrix."""
    numbers = [n for n in node.type.shape if n != 1]
    return int(sum(n for n in numbers if n is not None)) if len(numbers) == 2 else 1


def observed_rows(observations: Observations) -> set[Variable]:
    """Find the placeholders of arrays that are computed from observed values, not covariates.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("b") * np.array([1.0, 2.0])
    ...     y = pm.Normal("y", mu, 1.0, observed=np.array([0.0, 1.0]))
    >>> observations = find_observations(model)
    >>> [r.values for r in observations.rows if r.placeholder in observed_rows(observations)]
    [array([0., 1.])]
    """
    model = observations.model
    names = {term.name for term in observations.terms}
    named = [rv for rv in model.observed_RVs if rv.name in names]
    values = [data for rv in named for data in _data(model.rvs_to_values[rv])]
    found: set[Variable] = set()
    for row in observations.rows:
        below = [data for v in ancestors([row.source]) for data in _data(v)]
        if any(_same(a, b) for a in [row.values, *below] for b in values):
            found.add(row.placeholder)
    return found


def _data(variable: Variable) -> Iterator[np.ndarray]:
    """Yield the values of a variable, if they are in the graph."""
    if isinstance(variable, Constant) and hasattr(variable.type, "ndim"):
        yield np.asarray(variable.data)
    elif isinstance(variable, SharedVariable):
        yield np.asarray(variable.get_value(borrow=True))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.ndim == 0 or one.shape != other.shape:
        return False
    return one is other or np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


# -- names -----------------------------------------------------------------------------------------


def coefficient_names(
    nodes: Mapping[Variable, tuple[int, ...]], parameters: Mapping[str, Variable], model: pm.Model
) -> Iterator[str]:
    """Label every entry of the coefficient nodes, in C order.

    Parameters
    ----------
    nodes : mapping of Variable to tuple of int
        The nodes and their shapes.
    parameters : mapping of str to Variable
        The inputs that represent the free variables in the nodes.
    model : pm.Model
        Provides the dims and coords, and the deterministics that nodes are named after.

    Yields
    ------
    str
        The name of the variable, followed by coordinates (or positions, without coords) in brackets
        unless it is a single number.  An expression that is not a variable of the model is called
        ``f(mu, sigma)``, after the free variables that it is computed from.

    Examples
    --------
    >>> with pm.Model(coords={"covariate": ["age", "sex"]}) as model:
    ...     beta = pm.Normal("beta", dims="covariate")
    >>> inputs = {"beta": pt.tensor("beta", shape=(2,))}
    >>> list(coefficient_names({inputs["beta"]: (2,)}, inputs, model))
    ['beta[age]', 'beta[sex]']
    """
    for node, shape in nodes.items():
        name = _name(node, parameters, model)
        single = math.prod(shape) == 1 and name not in model.named_vars
        dims = model.named_vars_to_dims.get(name) or (None,) * len(shape)
        axes = [] if single else [_labels(d, n, model) for d, n in zip(dims, shape, strict=True)]
        yield from (f"{name}[{', '.join(entry)}]" if entry else name for entry in product(*axes))


def _labels(dim: str | None, length: int, model: pm.Model) -> Sequence[str]:
    values: Iterable[object] | None = model.coords.get(dim)
    return [str(v) for v in (range(length) if values is None else values)]


def _name(node: Variable, parameters: Mapping[str, Variable], model: pm.Model) -> str:
    inputs = set(graph_inputs([node]))
    names = [name for name, v in parameters.items() if v in inputs]
    if ops.is_input(node):
        return names[0]
    free = {rv: parameters[rv.name] for rv in model.free_RVs if rv.name in names}
    for deterministic in model.deterministics:
        [graph] = replace_rvs_by_values([deterministic], rvs_to_values=free)
        if equal_computations([node], [_without_copies(graph)]):
            return str(deterministic.name)
    return f"f({', '.join(sorted(names))})"  # copies of a model have another order


def _without_copies(graph: Variable) -> Variable:
    while isinstance(op_of(graph), TypeCastingOp):
        graph = graph.owner.inputs[0]
    return graph


# -- evenly spread ---------------------------------------------------------------------------------


def evenly_spread(n: int) -> np.ndarray:
    """Return `n` numbers between 0 and 1 that fill the interval evenly, without a period.

    They are the multiples of the golden ratio, modulo 1.  A sequence in base 2, such as
    `scipy.stats.qmc.Halton`, would miss some of the groups if rows repeat periodically.

    Examples
    --------
    >>> evenly_spread(4).round(3)
    array([0.618, 0.236, 0.854, 0.472])
    """
    spread: np.ndarray = np.arange(1, n + 1) * ((np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    return spread


def spread_rows(n_obs: int, most: int) -> np.ndarray:
    """Return positions of at most `most` rows, spread evenly over the data; all, if they are few.

    Parameters
    ----------
    n_obs : int
        Number of rows.
    most : int
        Largest number of positions.

    Returns
    -------
    ndarray of int
        Sorted and unique.

    Examples
    --------
    >>> spread_rows(3, 10), spread_rows(1000, 3)
    (array([0, 1, 2]), array([236, 618, 854]))
    """
    if n_obs <= most:
        return np.arange(n_obs)
    return np.unique((evenly_spread(most) * n_obs).astype(np.int64))
