"""Apply an operation to many cells at once: its inputs for each cell lie along a leading axis."""

from collections.abc import Mapping, Sequence
from typing import cast

import pytensor.tensor as pt
from pytensor.graph import Apply, FunctionGraph, Variable, vectorize_graph
from pytensor.tensor import TensorType, TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import (
    dfs_rewriter,
    local_dimshuffle_lift,
    unflatten_index_variables,
)
from pymc_coresets.reading.selection_rules import Lengths, rebuild


def apply_to_cells(
    node: Apply, output: int, inputs: Mapping[int, TensorVariable], lengths: Mapping[int, int]
) -> TensorVariable:
    """Apply the operation of `node` to many cells.

    Parameters
    ----------
    node : Apply
        Its application to all entries.
    output : int
        Which output to return.
    inputs : mapping of int to TensorVariable
        The inputs that differ between cells: the cells come first, and then the axes of the
        original input, those along which entries were selected with fewer of them.  The other
        inputs are taken whole.
    lengths : mapping of int to int
        How many entries each cell has along the axes of the output that were selected.

    Returns
    -------
    TensorVariable
        The cells come first, and then the axes of the original output, with these `lengths`.  If
        no input differs between cells, there is one.

    Examples
    --------
    >>> x, b = pt.matrix("x", shape=(2, 3)), pt.matrix("b", shape=(3, 1))
    >>> cells = pt.tensor3("cells", shape=(5, 1, 3))
    >>> apply_to_cells(pt.dot(x, b).owner, 0, {0: cells}, {0: 1}).type.shape
    (5, 1, 1)
    """
    if isinstance(node.op, ops.AdvancedSubtensor) and any(i > 0 for i in inputs):
        return _indexed(node, inputs)
    if isinstance(node.op, ops.Dot) or isinstance(getattr(node.op, "core_op", None), ops.Dot):
        product = _product(node, inputs)
        if product is not None:
            return product
    if isinstance(node.op, ops.Alloc) and 0 in inputs:
        value, result = inputs[0], node.outputs[0].type.shape
        if value.type.shape[1:] == tuple(lengths.get(i, n) for i, n in enumerate(result)):
            return value
    of_one: dict[int, Variable] = {
        i: TensorType(v.type.dtype, shape=v.type.shape[1:])() for i, v in inputs.items()
    }
    arguments = [of_one.get(i, v) for i, v in enumerate(node.inputs)]
    known: Lengths = {i: pt.constant(n, dtype="int64") for i, n in lengths.items()}
    one = cast(TensorVariable, rebuild(node.op, node, arguments, known)[output])
    cells = {of_one[i]: v for i, v in inputs.items()}
    return cast(TensorVariable, vectorize_graph(one, cells)) if cells else pt.expand_dims(one, 0)


def _product(node: Apply, inputs: Mapping[int, TensorVariable]) -> TensorVariable | None:
    """Multiply one row of each cell by a matrix that all share, or by one column of each cell."""
    ndim = node.outputs[0].type.ndim
    left = inputs.get(0)
    if left is None or set(left.type.shape[1:-1]) != {1}:
        return None
    right = inputs.get(1)
    if right is not None:
        if right.type.shape[-1] != 1:
            return None
        product = (left * right.swapaxes(-1, -2)).sum(axis=-1, keepdims=True)
        return cast(TensorVariable, product)
    shared = cast(TensorVariable, node.inputs[1])
    if any(n != 1 for n in shared.type.shape[:-2]):
        return None
    matrix = shared.dimshuffle(ndim - 2, ndim - 1)
    product = pt.dot(left.dimshuffle(0, ndim), matrix)
    return cast(TensorVariable, product.dimshuffle(0, *["x"] * (ndim - 1), 1))


def _indexed(node: Apply, inputs: Mapping[int, TensorVariable]) -> TensorVariable:
    """Index by arrays that differ between cells."""
    x = cast(TensorVariable, node.inputs[0])
    given = [inputs.get(i, v) for i, v in enumerate(node.inputs)]
    entries = dict(enumerate(unflatten_index_variables(given[1:], node.op.idx_list)))
    originals = unflatten_index_variables(node.inputs[1:], node.op.idx_list)
    own = {i: e.type.ndim for i, e in enumerate(originals) if not isinstance(e, slice)}
    ndim = max(own.values())
    arrays = [_aligned(cast(TensorVariable, entries[i]), n, ndim) for i, n in own.items()]
    others = [i for i in range(x.type.ndim) if i not in own]
    slices = [entries.get(i, slice(None)) for i in others]
    if 0 in inputs:
        x = inputs[0].dimshuffle(0, *(i + 1 for i in own), *(i + 1 for i in others))
        n_cells = x.type.shape[0] or x.shape[0]
        arrays = [pt.arange(n_cells).dimshuffle([0] + ["x"] * ndim), *arrays]
    else:
        x = x.dimshuffle(*own, *others)
    taken = x[(*arrays, *slices)]
    # The indexed axes stand behind the cells, and go to where the first of them was.
    last = ndim + 1 + sum(i < min(own) for i in others)
    order = [0, *range(ndim + 1, last), *range(1, ndim + 1), *range(last, taken.type.ndim)]
    return cast(TensorVariable, taken.dimshuffle(order))


def _aligned(array: TensorVariable, own: int, ndim: int) -> TensorVariable:
    """Give an index array that has `own` axes behind the cells as many as the longest has."""
    if array.type.ndim == own:
        return array
    return cast(TensorVariable, array.dimshuffle(0, *["x"] * (ndim - own), *range(1, own + 1)))


def without_length_one(graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Drop axes of length 1 where they are only added and taken away again, and merge equal parts.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> [graph] = without_length_one([pt.exp(x.dimshuffle(0, "x")).squeeze(1)])
    >>> graph.owner.inputs[0] is x
    True
    """
    fgraph = FunctionGraph(outputs=cast(list[Variable], list(graphs)), copy_inputs=False)
    lift, merge = dfs_rewriter(local_dimshuffle_lift), ops.MergeOptimizer()
    before: set[Apply] = set()
    while before != fgraph.apply_nodes:
        before = set(fgraph.apply_nodes)
        lift.rewrite(fgraph)
        merge.rewrite(fgraph)  # what is used once only can be lifted through
    return cast(list[TensorVariable], list(fgraph.outputs))
