"""Labels for the coefficients of a linear predictor."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import pymc as pm
from pytensor.graph import Variable, graph_inputs

from pymc_coresets.compat.pymc_api import replace_rvs_by_values
from pymc_coresets.compat.pytensor_api import TypeCastingOp, equal_computations


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
