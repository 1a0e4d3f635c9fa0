"""Rewrites of graphs before they are evaluated, and those of PyTensor that are left out."""

from functools import singledispatch

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor import OpFromGraph
from pytensor.graph import (
    Apply,
    Constant,
    FunctionGraph,
    Op,
    Variable,
    node_rewriter,
    vectorize_graph,
)
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops

#: Of an elementwise operation, its result included, that NumPy evaluates.
MOST_OPERANDS = 32


@node_rewriter([ops.Elemwise])
def as_ufuncs(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:  # noqa: ARG001
    """Write functions by others that NumPy has: PyTensor would call Python for each number."""
    op, [x, *others] = node.op.scalar_op, node.inputs
    if isinstance(op, ps.Softplus):
        return [pt.maximum(x, 0) + pt.log1p(pt.exp(-pt.abs(x)))]
    if isinstance(op, ps.Log1mexp):
        near_zero = pt.log(-pt.expm1(pt.maximum(x, -1)))
        return [pt.switch(x > -np.log(2), near_zero, pt.log1p(-pt.exp(x)))]
    if isinstance(op, ps.TriGamma) and x.type.dtype == "float64":
        return [pt.polygamma(1, x)]
    if isinstance(op, ps.Clip):
        low, high = others
        return [pt.switch(pt.lt(x, low), low, pt.minimum(x, high))]
    if isinstance(op, ps.Composite):  # such as an integer power, of squares
        arrays = dict(zip(op.fgraph.inputs, node.inputs, strict=True))
        for part in op.fgraph.toposort():
            inputs = [arrays[v] if v in arrays else v.clone() for v in part.inputs]
            arrays |= zip(
                part.outputs, ops.Elemwise(part.op).make_node(*inputs).outputs, strict=True
            )
        return [arrays[v] for v in op.fgraph.outputs]
    return None


@node_rewriter([ops.Elemwise])
def choose_in_float64(
    fgraph: FunctionGraph,  # noqa: ARG001 (PyTensor passes it)
    node: Apply,
) -> list[Variable] | None:
    """Write choices between constants of float32, such as 0 and -inf, by those of float64.

    A loop that stores numbers of both types is not vectorised, and takes eight times as long.
    """
    if "float64" not in {v.type.dtype for v in node.outputs}:
        return None
    inputs = [_chosen_in_float64(v) for v in node.inputs]
    if inputs == node.inputs:
        return None
    outputs: list[Variable] = node.op.make_node(*inputs).outputs
    alike = [v.type for v in outputs] == [v.type for v in node.outputs]
    return outputs if alike else None


def _chosen_in_float64(variable: Variable) -> Variable:
    """Return a choice between constants of float32 in float64; others as they are."""
    op = ops.op_of(variable)
    if variable.type.dtype != "float32" or not isinstance(op, ops.Elemwise):
        return variable
    condition, *branches = variable.owner.inputs
    if not isinstance(op.scalar_op, ps.Switch) or not all(
        isinstance(v, Constant) for v in branches
    ):
        return variable
    wide = [pt.constant(v.data, dtype="float64") for v in branches]
    found: Variable = op.make_node(condition, *wide).outputs[0]
    return found


@singledispatch
def as_index(op: Op, node: Apply) -> TensorVariable | None:  # noqa: ARG001
    """Return the output of an operation by an index of an axis, ``x[..., index]``, if it is that.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> as_index(pt.exp(x).owner.op, pt.exp(x).owner) is None
    True
    """
    return None


@node_rewriter([ops.Elemwise])
def read_by_index(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Let a loop read entries of arrays where they are, by `as_index`.

    PyTensor's fusion of loops takes an index that a single loop needs into it.  It runs after the
    fusion of elementwise operations, when it is known which these are.
    """
    inputs = [_read(fgraph, v) for v in node.inputs]
    if inputs == node.inputs:
        return None
    outputs: list[Variable] = node.op.make_node(*inputs).outputs
    return outputs


def _read(fgraph: FunctionGraph, variable: Variable) -> Variable:
    """Return an input of a loop by an index, if it has no other use."""
    if ops.is_input(variable) or len(fgraph.clients[variable]) > 1:
        return variable
    found = as_index(variable.owner.op, variable.owner)
    return variable if found is None else found


@node_rewriter([OpFromGraph, ops.Blockwise])
def inline_graphs(
    fgraph: FunctionGraph,  # noqa: ARG001 (PyTensor passes it)
    node: Apply,
) -> list[Variable] | None:
    """Replace operations such as a softmax by their parts, which PyTensor would compile."""
    if isinstance(node.op, OpFromGraph):
        inlined: list[Variable] = ops.inline_ofg_node(node)
        return inlined
    if not isinstance(node.op.core_op, OpFromGraph):
        return None
    inner = node.op.core_op.fgraph.unfreeze()
    outputs: list[Variable] = vectorize_graph(
        inner.outputs, dict(zip(inner.inputs, node.inputs, strict=True))
    )
    return outputs


@node_rewriter([ops.Blockwise])
def count_once(
    fgraph: FunctionGraph,  # noqa: ARG001 (PyTensor passes it)
    node: Apply,
) -> list[Variable] | None:
    """Count once where each entry of a batch counts as far, as along a shape.

    PyTensor repeats shapes along the axes of a batch.  So gradients of triangular systems would
    number the rows of a matrix for each unit, at each node, by a call of Python.
    """
    if not isinstance(node.op.core_op, ops.ARange):
        return None
    numbers = [_repeated(v) for v in node.inputs]
    known = [v for v in numbers if v is not None]
    if len(known) < len(numbers):
        return None
    once = ops.checked_tensor(node.op.core_op(*known))
    batch = pt.broadcast_shape(*node.inputs)
    return [ops.checked_tensor(pt.alloc(once, *batch, once.shape[0]))]


def _repeated(array: Variable) -> TensorVariable | None:
    """Return the number that all entries of an array are, if that is plain."""
    is_filled = isinstance(ops.op_of(array), ops.Alloc)
    value = ops.checked_tensor(array.owner.inputs[0] if is_filled else array)
    return value.squeeze() if all(value.type.broadcastable) else None


#: Rewrites that change nothing here, and take a third of the time of all: they look for matrices
#: that are diagonal or symmetric, and for slices of as many entries as there are.
USELESS = (
    "dot_diag_to_elemwise",
    "selection_dot_to_indexing",
    "useless_symmetric_transpose",
    "local_useless_subtensor",
)


#: A rewrite that makes arrays of what loops only repeat: these, and the graphs of their shapes, may
#: be half of all operations.
OUT_OF_LOOPS = ("local_second_to_alloc",)


#: What this one makes of gathered constants, others undo: both are tried a thousand times.
ENDLESS = ("local_blockwise_alloc_inputs",)
