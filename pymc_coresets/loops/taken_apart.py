"""Fused loops taken apart again, where NumPy evaluates their operations sooner than they compile.

Compiled loops pay where rows meet draws.  What depends on draws alone, on rows alone, or is left
of both after a sum, is small: a loop takes a fifth of a second to compile, and NumPy microseconds.
"""

from collections.abc import Iterator

from pytensor.graph import Apply, FunctionGraph, Op
from pytensor.tensor import TensorType

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import dfs_rewriter
from pymc_coresets.loops.direct_calls import direct_call
from pymc_coresets.loops.rewrites import MOST_OPERANDS, as_ufuncs
from pymc_coresets.loops.vectormath import as_pytensors

_LOOPS = (ops.FusedElemwise, ops.ScalarizedElemwise)
_by_numpy = dfs_rewriter(as_pytensors, as_ufuncs)


def is_large(node: Apply) -> bool:
    """Whether numbers run over two axes of unknown length: draws, the first one, and rows.

    Integers and truth values alone are those of indices, which are far fewer.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> draws, rows = pt.col(), pt.row()
    >>> of_draws = pt.tensor(shape=(None, 3))
    >>> is_large((draws + rows).owner), is_large((of_draws + draws).owner)
    (True, False)
    """
    every = list(_types(node))
    if not any(kind.dtype.startswith("float") for kind in every):
        return False
    return any(kind.ndim > 1 and kind.shape[0] is None and None in kind.shape[1:] for kind in every)


def _types(node: Apply) -> Iterator[TensorType]:
    """Return the types of the arrays in an operation, and in its parts."""
    parts = node.op.fgraph.apply_nodes if isinstance(node.op, _LOOPS) else ()
    for v in (*node.inputs, *node.outputs, *(v for part in parts for v in part.outputs)):
        if isinstance(v.type, TensorType):
            yield v.type


def parts_of(node: Apply) -> FunctionGraph | None:
    """Return the operations of a loop as a graph of its inputs.

    None if it is no loop, a single operation, or NumPy has not all of them.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> parts_of(pt.exp(pt.vector()).owner) is None
    True
    >>> graph = parts_of(pt.softplus(pt.vector()).owner)
    >>> "exp" in {str(getattr(node.op, "scalar_op", "")) for node in graph.apply_nodes}
    True
    """
    if isinstance(node.op, _LOOPS):
        graph = node.op.fgraph.unfreeze()
    elif isinstance(node.op, ops.Elemwise):
        inputs = [v.type() for v in node.inputs]
        graph = FunctionGraph(inputs, node.op.make_node(*inputs).outputs, clone=False)
    else:
        return None
    whole, before = next(iter(graph.apply_nodes)).op, -1
    while len(graph.apply_nodes) != before:  # what was inside a fused expression is rewritten, too
        before = len(graph.apply_nodes)
        _by_numpy.rewrite(graph)
    is_whole = all(part.op == whole for part in graph.apply_nodes)
    return None if is_whole or not all(map(_has_numpy, graph.apply_nodes)) else graph


def _has_numpy(node: Apply) -> bool:
    op: Op = node.op
    if isinstance(op, ops.Elemwise):
        if len(node.inputs) >= MOST_OPERANDS:
            return False
        return op.nfunc_spec is not None or direct_call(op, node) is not None
    return not isinstance(op, ops.HasInnerGraph | ops.NoPythonOp | ops.Blockwise)
