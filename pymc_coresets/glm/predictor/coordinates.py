"""What predictors and shared numbers are functions of, on unconstrained scales, and their names."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable, clone_replace, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import replace_rvs_by_values
from pymc_coresets.compat.pytensor_api import TypeCastingOp, equal_computations
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.row_graph import MOVES, RowGraph, evenly_spread, is_single
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import interface_at


@dataclass(frozen=True, eq=False)
class Coordinate:
    """A free variable on its unconstrained scale, or on its own.

    Attributes
    ----------
    variable : Variable
        The input that stands for it.
    forward : TensorVariable
        What it is on that scale: a graph of `variable`.
    value : TensorVariable
        An input on that scale.
    backward : Variable
        The variable again: a graph of `value`.
    name : str
        Of the scale, such as ``sigma_log__``.
    """

    variable: Variable
    forward: TensorVariable
    value: TensorVariable
    backward: Variable
    name: str

    @classmethod
    def of(
        cls, variable: Variable, observations: Observations, *, apart: bool = False
    ) -> "Coordinate":
        """Take a free variable's own scale where the unconstrained one needs another variable.

        Also where it has no number for each entry, if these are wanted `apart`.
        """
        found = cls.unconstrained(variable, observations, apart=apart)
        if found is not None:
            return found
        [name] = [n for n, v in observations.parameters.items() if v is variable]
        value = pt.tensor(dtype=variable.type.dtype, shape=variable.type.shape)
        return cls(variable, cast(TensorVariable, variable), value, value, name)

    @classmethod
    def unconstrained(
        cls, variable: Variable, observations: Observations, *, apart: bool
    ) -> "Coordinate | None":
        """Take the unconstrained scale of a free variable; None where it has none of its own."""
        names = [name for name, v in observations.parameters.items() if v is variable]
        model: pm.Model = observations.model
        rv = model[names[0]] if names else None
        transform = None if rv is None else model.rvs_to_transforms[rv]
        if rv is None or transform is None or (apart and transform.ndim_supp):
            return None
        inputs, stands = rv.owner.inputs, model.rvs_to_values[rv]
        forward = cast(TensorVariable, transform.forward(variable, *inputs))
        value = pt.tensor(dtype=forward.type.dtype, shape=stands.type.shape)
        backward = transform.backward(value, *inputs)
        others = {v for v in graph_inputs([forward, backward]) if not isinstance(v, Constant)}
        if not others <= {variable, value} or None in value.type.shape:
            return None
        return cls(variable, forward, value, backward, str(stands.name))

    @property
    def size(self) -> int:
        """Number of its entries."""
        return math.prod(cast(tuple[int, ...], self.value.type.shape))

    @property
    def names(self) -> tuple[str, ...]:
        """A label for each entry."""
        if not self.value.type.ndim:
            return (self.name,)
        return tuple(f"{self.name}[{k}]" for k in range(self.size))

    @property
    def has_single_bounds(self) -> bool:
        """Whether the scale is the same for all entries: no limit is an array."""
        inputs = graph_inputs([self.forward, self.backward])
        return all(is_single(v) for v in inputs if isinstance(v, Constant))


@dataclass(frozen=True, eq=False)
class FreeCoordinates:
    """The free variables that rows depend on, on their unconstrained scale.

    Attributes
    ----------
    names : tuple of str
    coefficients : TensorVariable of shape (p,)
    columns : ndarray of int64, of shape (p,)
        Where they stand among all coordinates of the model.
    """

    names: tuple[str, ...]
    coefficients: TensorVariable
    columns: np.ndarray

    is_sparse = False
    entries_a_row = 1

    @classmethod
    def of(cls, observations: Observations) -> "FreeCoordinates":
        """Find them.

        Raises
        ------
        UnsupportedModelError
            If one is discrete, or has no unconstrained scale of its own.
        """
        used = set(graph_inputs([observations.loglik]))
        seen = {n: v for n, v in observations.parameters.items() if v in used}
        found = [Coordinate.of(v, observations) for v in seen.values()]
        parts = [pt.cast(c.forward.ravel(), "float64") for c in found]
        coefficients = cast(TensorVariable, pt.concatenate(parts))
        space = observations.space
        columns = np.concatenate([space.columns[name].ravel() for name in seen])
        at = space.start + evenly_spread(space.n_dims) * space.continuous
        values = interface_at(coefficients, observations, space.constrain(at[None]))[0]
        is_other = values.shape != columns.shape or not np.allclose(values, at[columns])
        if is_other or not space.continuous[columns].all():
            raise UnsupportedModelError(
                f"Rows depend on variables without continuous coordinates of their own, among "
                f"{list(seen)!r}: use method='auto'."
            )
        return cls(tuple(name for c in found for name in c.names), coefficients, columns)


class Link(NamedTuple):
    """What a predictor is an elementwise function of.

    Attributes
    ----------
    below : Variable
        A coefficient node, such as ``log_sd``, or a positive variable's logarithm.
    of : callable
        The function, for values of any shape.
    """

    below: Variable
    of: Callable[[TensorVariable], TensorVariable]


def links_below(node: Variable, graph: RowGraph, observations: Observations) -> Link | None:
    """Find what a predictor is a function of, where it is but entries of a coefficient node.

    Quadratics are good approximations on the unconstrained scale: posteriors are closer to normal
    there, and nothing is impossible near them, such as degrees of freedom below zero.

    Parameters
    ----------
    node : Variable
        A predictor.
    graph : RowGraph
    observations : Observations

    Returns
    -------
    Link, or None
        None where it is on that scale, or more than entries of one node.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.glm.predictor.finding import find_predictors
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     sd = pm.math.exp(pm.Normal("log_sd", shape=2))
    ...     y = pm.Normal("y", 0.0, sd[np.array([0, 1, 1])], observed=np.zeros(3))
    >>> find_predictors(find_observations(model)).names
    ('log_sd[0]', 'log_sd[1]')
    """
    while not graph.is_coefficient(node):
        if node.owner is None or not isinstance(node.owner.op, MOVES):
            return None
        node = node.owner.inputs[0]
        if not graph.depends(node):
            return None
    below = node
    while (inner := _argument(below, graph)) is not None:
        below = inner
    own = Coordinate.unconstrained(below, observations, apart=True)
    if own is not None and not own.has_single_bounds:
        own = None
    if own is None and below is node:
        return None

    def of(eta: TensorVariable) -> TensorVariable:
        inside: Variable = eta
        if own is not None:
            swaps: dict[Variable, Variable] = {own.value: eta}
            [inside] = clone_replace([own.backward], swaps, rebuild_strict=False)
        [outside] = clone_replace([node], {below: inside}, rebuild_strict=False)
        return cast(TensorVariable, outside)

    return Link(below if own is None else own.forward, of)


def _argument(node: Variable, graph: RowGraph) -> Variable | None:
    """Return what a node is an elementwise function of, if that is one array of its shape."""
    if node.owner is None or not isinstance(node.owner.op, ops.Elemwise):
        return None
    inner: list[Variable] = [i for i in node.owner.inputs if graph.depends(i)]
    single = all(i in inner or is_single(i) for i in node.owner.inputs)
    if len(inner) != 1 or not single or graph.shape(inner[0]) != graph.shape(node):
        return None
    return inner[0]


def coefficient_names(
    nodes: Mapping[Variable, tuple[int, ...]], parameters: Mapping[str, Variable], model: pm.Model
) -> Iterator[str]:
    """Label every entry of the coefficient nodes, in C order.

    Parameters
    ----------
    nodes : mapping of Variable to tuple of int
        The nodes and their shapes.
    parameters : mapping of str to Variable
        The inputs that stand for the free variables in the nodes.
    model : pm.Model
        Has the dims and coords, and the deterministics that nodes are named after.

    Yields
    ------
    str
        The name of the variable, followed by coordinates (or positions, without coords) in brackets
        unless it is a single number.  An expression that is not a variable of the model is called
        ``f(mu, sigma)``, after the free variables that it is computed from.

    Examples
    --------
    >>> import pytensor.tensor as pt
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
    if node.owner is None:
        return names[0]
    free = {rv: parameters[rv.name] for rv in model.free_RVs if rv.name in names}
    for deterministic in model.deterministics:
        [graph] = replace_rvs_by_values([deterministic], rvs_to_values=free)
        if equal_computations([node], [_without_copies(graph)]):
            return str(deterministic.name)
    return f"f({', '.join(sorted(names))})"  # copies of a model have another order


def _without_copies(graph: Variable) -> Variable:
    while graph.owner is not None and isinstance(graph.owner.op, TypeCastingOp):
        graph = graph.owner.inputs[0]
    return graph
