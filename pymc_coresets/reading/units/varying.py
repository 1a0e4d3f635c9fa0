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
    return graph if found is None else ops.checked_tensor(found)


def _varying(graph: Variable, own: Collection[Variable]) -> Variable | None:
    """Return the terms that depend on what is in `own`; None without any."""
    if graph not in own:
        return None
    node = graph.owner
    if node is None:
        return graph
    if isinstance(node.op, ops.DimShuffle | Collect):
        inner = _varying(node.inputs[0], own)
        found = None if inner is None else node.op.make_node(inner, *node.inputs[1:]).outputs[0]
    elif isinstance(node.op, ops.Elemwise):
        found = _of_elements(type(node.op.scalar_op), ops.checked_tensors(node.inputs), own)
    else:
        found = None
    # Without a term, a sum may have another shape.
    return graph if found is None or found.type != graph.type else found


def _of_elements(
    kind: type, inputs: Sequence[TensorVariable], own: Collection[Variable]
) -> Variable | None:
    """Return the same of an elementwise operation, by its inputs; None if it is no such sum."""
    parts = [_varying(v, own) for v in inputs]
    kept = [v for v in parts if v is not None]
    found: Variable | None = None
    if kind is ps.Add:
        found = kept[0] if len(kept) == 1 else pt.add(*kept)
    elif kind is ps.Sub:
        found = pt.neg(parts[1]) if parts[0] is None else parts[0]
        found = found if len(kept) == 1 else pt.sub(*kept)
    elif kind is ps.Neg:
        found = pt.neg(*kept)
    elif (kind is ps.Mul and len(kept) == 1) or (kind is ps.Switch and _may_lose(parts, inputs)):
        same = pt.mul if kind is ps.Mul else pt.switch
        pairs = zip(inputs, parts, strict=True)
        found = same(*(v if part is None else part for v, part in pairs))
    return found


def _may_lose(parts: Sequence[Variable | None], inputs: Sequence[Variable]) -> bool:
    """Whether cases may lose different terms: differences between them stay what they are."""
    return parts[0] is None or sum(not _is_impossible(v) for v in inputs[1:]) < 2


def _is_impossible(case: Variable) -> bool:
    case = without_views(case)
    return isinstance(case, Constant) and bool(np.isneginf(case.data).all())
