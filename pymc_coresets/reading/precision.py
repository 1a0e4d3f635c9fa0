"""Graphs that were written in float32, done in float64."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor import OpFromGraph
from pytensor.graph import Apply, Variable, graph_inputs

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.exceptions import UnsupportedModelError


def widened(graphs: Sequence[Variable], given: Mapping[Variable, Variable]) -> list[Variable]:
    """Replace inputs of float32 by others of float64, and do all that follows in float64.

    Sums over rows, a search for a mode and differences of gradients need the digits.  Data keep
    their type.

    Parameters
    ----------
    graphs : sequence of Variable
        Left as they are.
    given : mapping of Variable to Variable
        What takes the place of inputs.

    Raises
    ------
    UnsupportedModelError
        If a loop, or another graph within the graph, was made for float32.

    Examples
    --------
    >>> x, wide = pt.vector("x", dtype="float32"), pt.vector("x", dtype="float64")
    >>> widened([pt.exp(x).sum()], {x: wide})[0].type.dtype
    'float64'
    """
    known = dict(given)
    for node in io_toposort(list(graph_inputs(graphs)), graphs):
        inputs = [known.get(v, v) for v in node.inputs]
        if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            known.update(zip(node.outputs, _made_anew(node, inputs), strict=True))
    return [known.get(v, v) for v in graphs]


def _made_anew(node: Apply, inputs: list[Variable]) -> Sequence[Variable]:
    op = node.op
    if isinstance(op, ops.SymbolicOp):
        outputs: Sequence[Variable] = op(*inputs, return_list=True)
        return outputs
    pairs = zip(inputs, node.inputs, strict=True)
    if all(new.type.dtype == old.type.dtype for new, old in pairs):
        return node.clone_with_new_inputs(inputs, strict=False).outputs
    if isinstance(op, OpFromGraph | ops.Scan):
        raise UnsupportedModelError(
            f"The model is in float32, but log-likelihoods are added up in float64, and {op} "
            "cannot be: set pytensor.config.floatX = 'float64' before you write the model."
        )
    if isinstance(op, ops.Elemwise) and isinstance(op.scalar_op, ps.Cast):
        return [pt.cast(inputs[0], _wide(node.outputs[0].type.dtype))]
    if isinstance(op, ops.IncSubtensor | ops.AdvancedIncSubtensor):
        inputs[:2] = [pt.cast(v, "float64") for v in inputs[:2]]
    if any(_wide(value) is not value for value in vars(op).values()):  # as of a sum
        op = copy(op)
        vars(op).update({name: _wide(value) for name, value in vars(op).items()})
    made: Sequence[Variable] = op.make_node(*inputs).outputs
    return made


def _wide(dtype: Any) -> Any:  # noqa: ANN401 - the attributes of operations are of all kinds
    return "float64" if isinstance(dtype, str) and dtype == "float32" else dtype
