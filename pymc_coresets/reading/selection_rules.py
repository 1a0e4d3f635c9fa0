"""One rule for each Op: how a selection of rows passes from its output to its inputs.

:func:`input_axes` says along which axis of each input row ``n`` of the output needs row ``n``
alone, and :func:`rebuild` applies the Op again to inputs of which only some rows are left.
"""

# ruff: noqa: ARG001 (the rules of all Ops have one signature)

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import singledispatch

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Op, Variable, ancestors

from pymc_coresets.compat import pytensor_api as ops

#: The axis to select along of inputs of a node, by their numbers; the others are taken whole.
type InputAxes = Mapping[int, int]

#: How many rows are left along each axis of an output along which rows were selected.
type Lengths = Mapping[int, Variable]


@singledispatch
def input_axes(op: Op, node: Apply, axis: int) -> Iterator[InputAxes]:
    """Yield, for each input, the axis along which row n of the output needs only row n.

    Parameters
    ----------
    op : Op
        The operation; its type determines the rule.
    node : Apply
        Its application.
    axis : int
        An axis of the output, not negative.

    Yields
    ------
    mapping of int to int
        An axis by the number of each input that is not needed whole.  Nothing where no rule is
        known.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> node = pt.add(pt.matrix(), pt.row()).owner
    >>> list(input_axes(node.op, node, 0))
    [{0: 0}]
    """
    yield from ()


def has_rule(op: Op) -> bool:
    """Whether there is a rule for this type of Op.

    Examples
    --------
    >>> has_rule(pt.exp)
    True
    """
    return input_axes.dispatch(type(op)) is not input_axes.dispatch(object)


def is_black_box(op: Op) -> bool:
    """Whether an operation is none of PyTensor's or PyMC's.

    Examples
    --------
    >>> is_black_box(pt.exp)
    False
    """
    return type(op).__module__.partition(".")[0] not in {"pytensor", "pymc"}


def axis_before_integers(entries: Sequence[object], axis: int) -> int:
    """Return the axis of x that becomes output axis `axis` of a basic index ``x[entries]``.

    Examples
    --------
    >>> axis_before_integers((0, slice(None), 2), 1)
    3
    """
    kept = [i for i, entry in enumerate(entries) if isinstance(entry, slice)]
    return kept[axis] if axis < len(kept) else axis - len(kept) + len(entries)


def index_of(node: Apply) -> tuple[Sequence[slice | Variable], dict[int, Variable]]:
    """Return the entries of an index ``x[entries]``, and those that are not slices, by axis of x.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> index_of(pt.matrix()[:, pt.lvector("k")].owner)
    ((slice(None, None, None), k), {1: k})
    """
    entries = ops.unflatten_index_variables(node.inputs[1:], node.op.idx_list)
    return entries, {i: e for i, e in enumerate(entries) if not isinstance(e, slice)}


def _unless_broadcast(inputs: Iterable[Variable], axis: int) -> InputAxes:
    return {i: axis for i, v in enumerate(inputs) if not v.type.broadcastable[axis]}


@input_axes.register
def _(op: ops.Elemwise, node: Apply, axis: int) -> Iterator[InputAxes]:
    yield _unless_broadcast(node.inputs, axis)


@input_axes.register
def _(op: ops.DimShuffle, node: Apply, axis: int) -> Iterator[InputAxes]:
    source = op.new_order[axis]
    if source != "x":
        yield {0: source}


@input_axes.register
def _(op: ops.TypeCastingOp, node: Apply, axis: int) -> Iterator[InputAxes]:
    yield {0: axis}


# -- reductions, and Ops along one axis ------------------------------------------------------------


@input_axes.register(ops.CAReduce)
@input_axes.register(ops.Argmax)
def _reduced(op: ops.CAReduce | ops.Argmax, node: Apply, axis: int) -> Iterator[InputAxes]:
    yield {0: _kept_axis(op.axis, node.inputs[0].type.ndim, axis)}


@input_axes.register
def _(op: ops.LogSumExp, node: Apply, axis: int) -> Iterator[InputAxes]:
    # With keepdims the axes keep their places.
    if node.inputs[0].type.ndim == node.outputs[0].type.ndim:
        yield from _other_axis(op, node, axis)
    else:
        yield {0: _kept_axis(op.axis, node.inputs[0].type.ndim, axis)}


def _kept_axis(reduced: Collection[int] | None, ndim: int, axis: int) -> int:
    return [i for i in range(ndim) if i not in (reduced or ())][axis]


@input_axes.register(ops.Softmax)
@input_axes.register(ops.LogSoftmax)
@input_axes.register(ops.CumOp)
@input_axes.register(ops.SortOp)
@input_axes.register(ops.ArgSortOp)
def _other_axis(
    op: ops.ArgSortOp | ops.CumOp | ops.LogSoftmax | ops.LogSumExp | ops.Softmax | ops.SortOp,
    node: Apply,
    axis: int,
) -> Iterator[InputAxes]:
    """Rows are independent along every axis except the one that the Op works along."""
    [x] = node.inputs
    if axis not in ops.axes_of(op, x.type.ndim):
        yield {0: axis}


# -- linear algebra --------------------------------------------------------------------------------


@input_axes.register
def _(op: ops.Dot, node: Apply, axis: int) -> Iterator[InputAxes]:
    yield {0 if axis == 0 else 1: axis}


@input_axes.register
def _(op: ops.Blockwise, node: Apply, axis: int) -> Iterator[InputAxes]:
    batch, last = op.batch_ndim(node), len(node.inputs) - 1
    is_solved = isinstance(op.core_op, ops.SolveBase) and op.core_op.b_ndim == 2
    if axis < batch:
        yield _unless_broadcast(node.inputs, axis)
    elif isinstance(op.core_op, ops.Dot):
        yield {0 if axis == batch else 1: axis}
    elif is_solved and axis == batch + 1:
        yield {last: axis}


# -- indexing --------------------------------------------------------------------------------------


@input_axes.register
def _(op: ops.Subtensor, node: Apply, axis: int) -> Iterator[InputAxes]:
    entries, _ = index_of(node)
    x_axis = axis_before_integers(entries, axis)
    if x_axis >= len(entries) or entries[x_axis] == slice(None):
        yield {0: x_axis}


@input_axes.register
def _(op: ops.AdvancedSubtensor, node: Apply, axis: int) -> Iterator[InputAxes]:
    entries, arrays = index_of(node)
    first, last = min(arrays), max(arrays)
    adjacent = len(arrays) == last - first + 1
    if not adjacent or any(a.type.dtype == "bool" for a in arrays.values()):
        return
    ndim = max(a.type.ndim for a in arrays.values())
    if first <= axis < first + ndim:
        yield _index_axes(node.inputs, arrays, axis - first - ndim)
        return
    x_axis = axis if axis < first else axis - ndim + len(arrays)
    if x_axis >= len(entries) or entries[x_axis] == slice(None):
        yield {0: x_axis}


def _index_axes(
    inputs: Sequence[Variable], arrays: Mapping[int, Variable], from_end: int
) -> InputAxes:
    """Return the axes of index arrays, which broadcast against each other from the right."""
    return {
        i: v.type.ndim + from_end
        for i, v in enumerate(inputs)
        if i > 0
        and any(v is a for a in arrays.values())
        and v.type.ndim + from_end >= 0
        and not v.type.broadcastable[from_end]
    }


@input_axes.register(ops.IncSubtensor)
@input_axes.register(ops.AdvancedIncSubtensor)
def _written(
    op: ops.IncSubtensor | ops.AdvancedIncSubtensor, node: Apply, axis: int
) -> Iterator[InputAxes]:
    x, y, *index_inputs = node.inputs
    entries = ops.unflatten_index_variables(index_inputs, op.idx_list)
    if axis < len(entries) and entries[axis] != slice(None):
        return
    types = {i: e.type for i, e in enumerate(entries) if not isinstance(e, slice)}
    ndim = max((getattr(t, "ndim", 0) for t in types.values()), default=0)
    apart = ndim and len(types) <= max(types) - min(types)
    if apart or any(t.dtype == "bool" for t in types.values()):
        return
    before = sum(i < axis for i in types)
    y_axis = axis - before + (ndim if before else 0)
    y_axis -= x.type.ndim - len(types) + ndim - y.type.ndim
    whole = y_axis < 0 or y.type.broadcastable[y_axis]
    yield {0: axis} if whole else {0: axis, 1: y_axis}


# -- shapes ----------------------------------------------------------------------------------------


@input_axes.register
def _(op: ops.Join, node: Apply, axis: int) -> Iterator[InputAxes]:
    if axis != op.axis % node.outputs[0].type.ndim:
        yield dict.fromkeys(range(len(node.inputs)), axis)


@input_axes.register
def _(op: ops.Split, node: Apply, axis: int) -> Iterator[InputAxes]:
    if axis != op.axis % node.outputs[0].type.ndim:
        yield {0: axis}


@input_axes.register
def _(op: ops.Alloc, node: Apply, axis: int) -> Iterator[InputAxes]:
    value, *shape = node.inputs
    value_axis = axis - (len(shape) - value.type.ndim)
    whole = value_axis < 0 or value.type.broadcastable[value_axis]
    yield {} if whole else {0: value_axis}


@input_axes.register
def _(op: ops.SpecifyShape, node: Apply, axis: int) -> Iterator[InputAxes]:
    yield {0: axis}


@input_axes.register
def _(op: ops.Reshape, node: Apply, axis: int) -> Iterator[InputAxes]:
    """In C order an axis survives if its length and the product of those before it stay."""
    x, out = node.inputs[0], node.outputs[0]
    if None in x.type.shape or None in out.type.shape:
        return
    before = np.prod(out.type.shape[:axis], dtype=int)
    for x_axis, length in enumerate(x.type.shape):
        if length == out.type.shape[axis] and np.prod(x.type.shape[:x_axis], dtype=int) == before:
            yield {0: x_axis}
            return


@input_axes.register
def _(op: ops.JoinDims, node: Apply, axis: int) -> Iterator[InputAxes]:
    joined = node.inputs[0].type.shape[op.start_axis : op.start_axis + op.n_axes]
    long = [op.start_axis + i for i, length in enumerate(joined) if length != 1]
    if axis != op.start_axis:
        yield {0: axis if axis < op.start_axis else axis + op.n_axes - 1}
    elif len(long) == 1:
        yield {0: long[0]}


@input_axes.register
def _(op: ops.SplitDims, node: Apply, axis: int) -> Iterator[InputAxes]:
    n_new = node.outputs[0].type.ndim - node.inputs[0].type.ndim + 1
    if not op.axis <= axis < op.axis + n_new:
        yield {0: axis if axis < op.axis else axis - n_new + 1}


# -- loops -----------------------------------------------------------------------------------------


def has_steps_alone(op: ops.Scan) -> bool:
    """Whether no step of a loop needs another."""
    n_inputs = op.info.n_seqs + op.info.n_non_seqs
    found = (len(op.inner_inputs), len(op.inner_outputs))
    return not op.info.as_while and found == (n_inputs, op.info.n_nit_sot)


def is_ragged(op: ops.Scan) -> bool:
    """Whether steps of a loop count to numbers of their own, so that they have no common shape."""
    own = set(op.inner_seqs(op.inner_inputs))
    counting = [v for v in ancestors(op.inner_outputs) if isinstance(ops.op_of(v), ops.ARange)]
    return not own.isdisjoint(ancestors(counting))


@input_axes.register
def _(op: ops.Scan, node: Apply, axis: int) -> Iterator[InputAxes]:
    if axis == 0 and has_steps_alone(op) and is_ragged(op):  # others have another form
        yield dict.fromkeys(range(1, 1 + op.info.n_seqs), 0)


# -- rebuilding the Ops that hold the length of their output ---------------------------------------


@singledispatch
def rebuild(
    op: Op, node: Apply, inputs: Sequence[Variable], lengths: Lengths
) -> Sequence[Variable]:
    """Apply the Op of `node` again, to inputs with fewer rows.

    Parameters
    ----------
    op : Op
        The operation; its type determines the rule.
    node : Apply
        Its application to all rows.
    inputs : sequence of Variable
        The inputs, with rows selected along the axes that `input_axes` returned.
    lengths : mapping of int to Variable
        For each axis of the output along which rows were selected: how many are left.

    Returns
    -------
    sequence of Variable
        The outputs, with these lengths along these axes.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> node = pt.ones(5).owner
    >>> [few] = rebuild(node.op, node, node.inputs, {0: pt.constant(2)})
    >>> few.eval(mode="FAST_COMPILE")
    array([1., 1.])
    """
    return op.make_node(*inputs).outputs


@rebuild.register
def _(
    op: ops.SymbolicOp, node: Apply, inputs: Sequence[Variable], lengths: Lengths
) -> Sequence[Variable]:
    # An instance holds an inner graph for the shapes of its first inputs.
    fresh = type(op)(**{name: getattr(op, name) for name in getattr(op, "__props__", ())})
    output = fresh(*inputs)
    return output if isinstance(output, list) else [output]


@rebuild.register
def _(
    op: ops.Alloc, node: Apply, inputs: Sequence[Variable], lengths: Lengths
) -> Sequence[Variable]:
    value, *shape = inputs
    return [pt.broadcast_to(value, [lengths.get(i, n) for i, n in enumerate(shape)])]


@rebuild.register
def _(
    op: ops.SpecifyShape, node: Apply, inputs: Sequence[Variable], lengths: Lengths
) -> Sequence[Variable]:
    known = [None if i in lengths else n for i, n in enumerate(node.outputs[0].type.shape)]
    return [pt.specify_shape(inputs[0], known)]


@rebuild.register
def _(
    op: ops.Reshape, node: Apply, inputs: Sequence[Variable], lengths: Lengths
) -> Sequence[Variable]:
    shape = [lengths.get(i, n) for i, n in enumerate(node.outputs[0].type.shape)]
    return [pt.reshape(inputs[0], shape)]


@rebuild.register
def _(
    op: ops.Scan, node: Apply, inputs: Sequence[Variable], lengths: Lengths
) -> Sequence[Variable]:
    # Its inputs are the number of steps, what they take, how many results to keep, and the rest.
    n, n_taken = lengths[0], 1 + op.info.n_seqs
    kept = [n] * op.info.n_nit_sot
    given = [n, *inputs[1:n_taken], *kept, *inputs[n_taken + len(kept) :]]
    outputs: Sequence[Variable] = op.make_node(*given).outputs
    return outputs
