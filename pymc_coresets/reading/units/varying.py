"""The terms of a log-density that depend on some variables: differences need no others."""

from collections.abc import Collection, Sequence

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.known import without_views
from pymc_coresets.reading.units.ragged import Collect


def varying_terms(graph: TensorVariable, variables: Sequence[TensorVariable]) -> TensorVariable:
    """Return a sum without the terms that do not depend on some variables.

    Such as normalising constants, whose log-gamma functions take as long as all that depends on the
    variables.  Of cases, each loses its own terms, if the variables do not decide which one holds,
    or all others are impossible.

    Parameters
    ----------
    graph : TensorVariable
    variables : sequence of TensorVariable

    Examples
    --------
    >>> z, a = pt.vectors("z", "a")
    >>> found = varying_terms(pt.gammaln(a) - 2.0 * (pt.exp(z) + a), [z])
    >>> found.eval({z: [0.0, 1.0]}).round(3)
    array([-2.   , -5.437])
    """
    own: set[Variable] = set(variables)
    for node in ops.io_toposort(list(variables), [graph]):
        if not own.isdisjoint(node.inputs):
            own.update(node.outputs)
    with ops.compiling():
        found = _varying(graph, own)
    return ops.checked_tensor(found[0] if found else graph)


def _varying(graph: Variable, own: Collection[Variable]) -> list[Variable]:
    """Return the sum of the terms that depend on what is in `own`; nothing without any."""
    if graph not in own:
        return []
    op, found = ops.op_of(graph), list[Variable]()
    if isinstance(op, ops.DimShuffle | Collect):
        first, *others = graph.owner.inputs
        found = [op.make_node(v, *others).outputs[0] for v in _varying(first, own)]
    elif isinstance(op, ops.Elemwise):
        found = _of_elements(type(op.scalar_op), ops.checked_tensors(graph.owner.inputs), own)
    # Without a term, a sum may have another shape.
    return [v for v in found if v.type == graph.type] or [graph]


def _of_elements(
    kind: type, inputs: Sequence[TensorVariable], own: Collection[Variable]
) -> list[Variable]:
    """Return the same of an elementwise operation, by its inputs, if it is such a sum."""
    parts = [_varying(v, own) for v in inputs]
    kept = [v for part in parts for v in part]
    if kind is ps.Add:
        return [pt.add(*kept) if len(kept) > 1 else kept[0]]
    if kind is ps.Sub:
        return [pt.sub(*kept)] if len(kept) > 1 else parts[0] or [pt.neg(*kept)]
    if kind is ps.Neg:
        return [pt.neg(*kept)]
    whole = [part[0] if part else v for v, part in zip(inputs, parts, strict=True)]
    if kind is ps.Mul and len(kept) == 1:
        return [pt.mul(*whole)]
    if kind is ps.Switch:  # differences between cases that may occur stay what they are
        possible = sum(not _is_impossible(v) for v in inputs[1:])
        return [pt.switch(*whole)] if possible < 2 or not parts[0] else []
    return []


def _is_impossible(case: Variable) -> bool:
    case = without_views(case)
    return isinstance(case, Constant) and bool(np.isneginf(case.data).all())
