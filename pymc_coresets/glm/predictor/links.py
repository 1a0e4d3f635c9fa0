"""Predictors that are entries of one array, on the unconstrained scale of what it is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pymc as pm
from pytensor.graph import Constant, Variable, clone_replace, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.glm.predictor.row_graph import MOVES, RowGraph
from pymc_coresets.reading.observations import Observations

__all__ = ["Link", "links_below"]


@dataclass(frozen=True, eq=False)
class Link:
    """A coefficient node that is an elementwise function of another one.

    Attributes
    ----------
    node : Variable
        Such as ``exp(log_sd)``, or a positive free variable.
    below : Variable
        What it is a function of, of the same shape: ``log_sd``, or the variable's logarithm.
    of : callable
        The function, for values of any shape.
    """

    node: Variable
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
    >>> from pymc_coresets.glm.predictor.several import find_predictors
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
    own = _unconstrained(below, observations)
    if own is None and below is node:
        return None
    found, value, result = own or (below, below, below)

    def of(eta: TensorVariable) -> TensorVariable:
        swaps: dict[Variable, Variable] = {value: eta}
        [inside] = clone_replace([result], swaps, rebuild_strict=False)
        [outside] = clone_replace([node], {below: inside}, rebuild_strict=False)
        return cast(TensorVariable, outside)

    return Link(node, found, of)


def _argument(node: Variable, graph: RowGraph) -> Variable | None:
    """Return what a node is an elementwise function of, if that is one array of its shape."""
    if node.owner is None or not isinstance(node.owner.op, ops.Elemwise):
        return None
    inner: list[Variable] = [i for i in node.owner.inputs if graph.depends(i)]
    single = all(i in inner or _is_single(i) for i in node.owner.inputs)
    if len(inner) != 1 or not single or graph.shape(inner[0]) != graph.shape(node):
        return None
    return inner[0]


def _is_single(variable: Variable) -> bool:
    return set(variable.type.shape) <= {1}


def _unconstrained(
    variable: Variable, observations: Observations
) -> tuple[Variable, Variable, Variable] | None:
    """Return a free variable's unconstrained values, an input for these, and the way back."""
    names = [name for name, v in observations.parameters.items() if v is variable]
    model: pm.Model = observations.model
    rv = model[names[0]] if names else None
    transform = None if rv is None else model.rvs_to_transforms[rv]
    if rv is None or transform is None or transform.ndim_supp:
        return None
    inputs, value = rv.owner.inputs, variable.type()
    forward, backward = transform.forward(variable, *inputs), transform.backward(value, *inputs)
    others = {v for v in graph_inputs([forward, backward]) if v not in {variable, value}}
    if not all(isinstance(v, Constant) and _is_single(v) for v in others):
        return None
    return forward, value, backward
