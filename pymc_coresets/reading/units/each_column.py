"""Graphs of arrays side by side, written as graphs of each of them: nothing is joined, nothing cut.

The variables of units are columns of one array, the components of a mixture are joined along an
axis that is summed over, and the probabilities of categories along one from which each row picks
one; the utilities of goods depend on data that have a column for each.  For a few of them,
elementwise operations on each, which are compiled into one loop, take a third to a fifth of the
time of the joined array: loops along an axis of three do not use vector instructions.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from typing import NamedTuple, cast

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Op, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import rewritten_by
from pymc_coresets.reading.units.placement import Root
from pymc_coresets.reading.units.ragged import Collect, Spread

#: Arrays side by side that are treated one by one, at most.
_FEW = 8

_PAIRS: dict[type, Callable[[TensorVariable, TensorVariable], TensorVariable]] = {
    ps.Add: pt.add,
    ps.Mul: pt.mul,
    ps.AND: pt.and_,
    ps.OR: pt.or_,
    ps.Maximum: pt.maximum,
    ps.Minimum: pt.minimum,
}


class _Stack(NamedTuple):
    """Arrays that are joined along an axis, where their lengths are known."""

    axis: int
    parts: Sequence[TensorVariable]

    @property
    def lengths(self) -> list[int]:
        return [int(part.type.shape[self.axis]) for part in self.parts]

    @property
    def ends(self) -> list[int]:
        """Where parts begin, and where the last one ends."""
        return [0, *np.cumsum(self.lengths).tolist()]

    @property
    def joined(self) -> TensorVariable:
        return ops.checked_tensor(pt.join(self.axis, *self.parts))

    def between(self, start: int, stop: int) -> "_Stack | None":
        """Return the parts from one end of parts to another; None if these are not."""
        ends = self.ends
        if start >= stop or start not in ends or stop not in ends:
            return None
        return self._replace(parts=self.parts[ends.index(start) : ends.index(stop)])

    def cut(self, other: TensorVariable) -> list[TensorVariable] | None:
        """Return the parts of another array beside those of this; None if lengths differ."""
        length = other.type.shape[self.axis]
        if length == 1:
            return [other] * len(self.parts)
        if length != self.ends[-1]:
            return None
        before = (slice(None),) * self.axis
        if isinstance(other, Constant):
            return [
                ops.checked_tensor(pt.constant(other.data[(*before, slice(a, b))]))
                for a, b in pairwise(self.ends)
            ]
        return [_piece(other, self.axis, a, b) for a, b in pairwise(self.ends)]


def _piece(x: TensorVariable, axis: int, start: int, stop: int) -> TensorVariable:
    """Return a slice; of a single entry, by its number, so that its length of 1 remains known."""
    before = (slice(None),) * axis
    if stop - start > 1:
        return ops.checked_tensor(x[(*before, slice(start, stop))])
    return ops.checked_tensor(pt.expand_dims(x[(*before, start)], axis))


def by_columns(
    graphs: Sequence[TensorVariable],
    variables: TensorVariable,
    columns: Sequence[TensorVariable],
) -> list[TensorVariable]:
    """Write graphs of variables side by side as graphs of each by itself.

    Parameters
    ----------
    graphs : sequence of TensorVariable
    variables : TensorVariable of shape (n_units, q)
        An input.
    columns : sequence of TensorVariable of shape (n_units,)
        What takes its place.

    Examples
    --------
    >>> x, a, b = pt.matrix("x", shape=(None, 2)), pt.vector("a"), pt.vector("b")
    >>> [graph] = by_columns([pt.logsumexp(2 * x, axis=1)], x, [a, b])
    >>> graph.eval({a: [0.0, 1.0], b: [0.0, -np.inf]}).round(3)
    array([0.693, 2.   ])
    """
    whole = _Stack(1, [column[:, None] for column in columns])
    start = whole.joined
    stacks: dict[Variable, _Stack] = {start: whole} if len(columns) > 1 else {}
    found = _pass(graphs, {variables: start}, stacks)
    return _pass(found, {column: column for column in columns}, {})  # along another axis


def _pass(
    graphs: Sequence[TensorVariable],
    given: dict[Variable, TensorVariable],
    stacks: dict[Variable, _Stack],
) -> list[TensorVariable]:
    """Write graphs by parts that are side by side along one axis: those known, and others met.

    Parameters
    ----------
    graphs : sequence of TensorVariable
    given : dict of Variable to TensorVariable
        Units' variables, and what takes their place.
    stacks : dict of Variable to _Stack
        Which arrays are known to be joined; others are added.
    """
    of_units = set(given)

    def known(part: _Part) -> TensorVariable:
        if not isinstance(part, _Stack):
            return part
        if len(part.parts) == 1:
            return part.parts[0]
        joined = part.joined
        if len(part.parts) <= _FEW:
            stacks[joined] = part
        return joined

    def write(node: Apply, inputs: Sequence[Variable]) -> list[Variable] | None:
        found = _apart(node, cast(Sequence[TensorVariable], inputs), stacks)
        if not of_units.isdisjoint(node.inputs):
            of_units.update(node.outputs)
            if found is None and isinstance(node.op, ops.Elemwise):
                found = _of_narrow(node.op, cast(Sequence[TensorVariable], inputs))
        return None if found is None else [known(part) for part in found]

    return ops.checked_tensors(rewritten_by(write, graphs, given))


type _Part = _Stack | TensorVariable


def _apart(
    node: Apply, inputs: Sequence[TensorVariable], stacks: dict[Variable, _Stack]
) -> Sequence[_Part] | None:
    """Return the results of an operation by those of parts; None if it stays as it is."""
    op = node.op
    if isinstance(op, ops.Join):
        return _joined(op.axis, inputs, stacks)
    if isinstance(op, ops.Elemwise):
        return _of_elementwise(op, inputs, stacks)
    if isinstance(op, ops.Blockwise) and isinstance(op.core_op, ops.SolveTriangular):
        return _solved(op.core_op, inputs[0], stacks.get(inputs[1]))
    stack = stacks.get(inputs[0]) if inputs else None
    if stack is None:
        return None
    if isinstance(op, ops.LogSumExp | ops.LogSoftmax | ops.Softmax | ops.CAReduce):
        return _reduced(node, stack)
    if isinstance(op, ops.Subtensor):
        return _indexed(op, inputs[1:], stack)
    if isinstance(op, ops.AdvancedSubtensor):
        return _picked(op, inputs[1:], stack)
    return _one_by_one(op, inputs, stack)


def _joined(
    axis: int, inputs: Sequence[TensorVariable], stacks: dict[Variable, _Stack]
) -> Sequence[_Part] | None:
    if any(x.type.shape[axis] is None for x in inputs):
        return None
    own = [stacks.get(x, _Stack(axis, [x])) for x in inputs]
    every = [s.parts if s.axis == axis else [x] for s, x in zip(own, inputs, strict=True)]
    return [_Stack(axis, [part for parts in every for part in parts])]


def _one_by_one(op: Op, inputs: Sequence[TensorVariable], stack: _Stack) -> Sequence[_Part] | None:
    """Apply an operation to each part, if it leaves their axis alone; cut or add up parts."""
    if isinstance(op, ops.Split):
        return _split(inputs[1], stack) if op.axis == stack.axis else None
    if isinstance(op, ops.CumOp):
        return _running(op, stack)
    if isinstance(op, Spread | Collect):
        return _along_units(op, inputs, stack)
    if isinstance(op, ops.DimShuffle) and stack.axis in op.new_order:
        axis = op.new_order.index(stack.axis)
    else:
        return None
    return [_Stack(axis, [ops.checked_tensor(op(part, *inputs[1:])) for part in stack.parts])]


def _along_units(
    op: Spread | Collect, inputs: Sequence[TensorVariable], stack: _Stack
) -> Sequence[_Part] | None:
    """Return values of units at their rows, or their sums, of each part.

    Units are the last axis where parts have length 1 along another one behind it: loops over that
    one would be of a single number each.
    """
    own, axis = inputs[0].type.ndim - 1 - op.n_after, stack.axis
    if axis == own:
        return None
    if axis < own or any(length != 1 for length in stack.lengths):
        found = [op(part, *inputs[1:]) for part in stack.parts]
    else:
        inner = type(op)(op.n_after - 1)
        found = [
            pt.expand_dims(inner(part.squeeze(axis), *inputs[1:]), axis) for part in stack.parts
        ]
    return [_Stack(axis, ops.checked_tensors(found))]


def _of_elementwise(
    op: ops.Elemwise, inputs: Sequence[TensorVariable], stacks: dict[Variable, _Stack]
) -> Sequence[_Part] | None:
    own = [stacks.get(x) for x in inputs]
    first = next((stack for stack in own if stack is not None), None) or _of_shared(inputs)
    if first is None or len(op.inplace_pattern):
        return None
    columns = []
    for x, stack in zip(inputs, own, strict=True):
        same = stack is not None and (stack.axis, stack.ends) == (first.axis, first.ends)
        parts = stack.parts if same and stack is not None else first.cut(x)
        if parts is None:
            return None
        columns.append(parts)
    applied = [ops.checked_tensor(op(*each)) for each in zip(*columns, strict=True)]
    return [first._replace(parts=applied)]


def _of_narrow(op: ops.Elemwise, inputs: Sequence[TensorVariable]) -> Sequence[_Part] | None:
    """Apply an operation to units' variables and to each column of arrays of a few columns."""
    if len(op.inplace_pattern):
        return None
    shapes = [x.type.shape for x in inputs]
    for axis, lengths in enumerate(zip(*shapes, strict=True)):
        few = {n for n in lengths if n != 1}
        if len(few) != 1 or None in few or not 1 < (length := int(few.pop() or 0)) <= _FEW:
            continue
        if not any(n is None for shape in shapes for n in (*shape[:axis], *shape[axis + 1 :])):
            continue
        each = [
            [x] * length if n == 1 else [_piece(x, axis, i, i + 1) for i in range(length)]
            for x, n in zip(inputs, lengths, strict=True)
        ]
        parts = [ops.checked_tensor(op(*of_one)) for of_one in zip(*each, strict=True)]
        return [_Stack(axis, parts)]
    return None


def _of_shared(inputs: Sequence[TensorVariable]) -> _Stack | None:
    """Return a few numbers that meet columns of rows or units, as arrays side by side."""
    if not any(None in x.type.shape for x in inputs):
        return None
    for x in inputs:
        long = [axis for axis, length in enumerate(x.type.shape) if length != 1]
        if len(long) != 1 or not 1 < (x.type.shape[long[0]] or 0) <= _FEW:
            continue
        [axis], length = long, x.type.shape[long[0]]
        if all(_is_flat(other, axis, int(length)) for other in inputs):
            return _Stack(axis, [_piece(x, axis, i, i + 1) for i in range(int(length))])
    return None


def _is_flat(x: TensorVariable, axis: int, length: int) -> bool:
    """Whether an array has one entry along an axis, or is as long there and nowhere else."""
    rest = [n for other, n in enumerate(x.type.shape) if other != axis]
    return x.type.shape[axis] == 1 or (x.type.shape[axis] == length and set(rest) <= {1})


def _reduced(node: Apply, stack: _Stack) -> Sequence[_Part] | None:
    op, [out] = node.op, node.outputs
    if op.axis != (stack.axis,):
        return None
    if not isinstance(op, ops.CAReduce):
        if any(length != 1 for length in stack.lengths):
            return None
        if isinstance(op, ops.LogSumExp):
            return [_log_sum_exp([part.squeeze(stack.axis) for part in stack.parts])]
        whole = _log_sum_exp(stack.parts)
        logs = [ops.checked_tensor(part - whole) for part in stack.parts]
        is_log = isinstance(op, ops.LogSoftmax)
        return [stack._replace(parts=logs if is_log else [pt.exp(x) for x in logs])]
    pair = _PAIRS.get(type(op.scalar_op))
    dtypes = {part.type.dtype for part in stack.parts} | {out.type.dtype}
    if pair is None or len(dtypes) > 1:
        return None
    each = [
        part.squeeze(stack.axis) if length == 1 else ops.checked_tensor(op(part))
        for part, length in zip(stack.parts, stack.lengths, strict=True)
    ]
    return [reduce(pair, each)]


def _solved(
    op: ops.SolveTriangular, a: TensorVariable, stack: _Stack | None
) -> Sequence[_Part] | None:
    """Return the solution of a triangular system of one right-hand side, entry by entry."""
    if stack is None or op.unit_diagonal or op.b_ndim != 1:
        return None
    if stack.axis != stack.parts[0].type.ndim - 1 or any(length != 1 for length in stack.lengths):
        return None
    places = [[(i, j) for j in range(i + 1)] for i in range(len(stack.parts))]
    if op.lower:
        root = Root([[a[..., i, j, None] for i, j in row] for row in places])
        return [stack._replace(parts=root.solved(stack.parts))]
    root = Root([[a[..., j, i, None] for i, j in row] for row in places])
    return [stack._replace(parts=root.solved_above(stack.parts))]


def _running(op: ops.CumOp, stack: _Stack) -> Sequence[_Part] | None:
    """Return running sums or products along the axis of the parts."""
    if op.axis != stack.axis or any(length != 1 for length in stack.lengths):
        return None
    pair = pt.add if op.mode == "add" else pt.mul
    return [stack._replace(parts=list(accumulate(stack.parts, pair)))]


def _log_sum_exp(parts: Sequence[TensorVariable]) -> TensorVariable:
    """Return ``log sum_i exp(x_i)``; it does not depend on what is subtracted before."""
    highest = reduce(pt.maximum, parts)
    highest = ops.disconnected(pt.switch(pt.isinf(highest), 0.0, highest))
    return ops.checked_tensor(pt.log(sum(pt.exp(x - highest) for x in parts)) + highest)


def _split(sizes: TensorVariable, stack: _Stack) -> Sequence[_Part] | None:
    if not isinstance(sizes, Constant):
        return None
    ends = [0, *np.cumsum(sizes.data).tolist()]
    pieces = [stack.between(*pair) for pair in pairwise(ends)]
    return None if None in pieces else cast(list[_Part], pieces)


def _indexed(
    op: ops.Subtensor, entries: Sequence[TensorVariable], stack: _Stack
) -> Sequence[_Part] | None:
    if not all(isinstance(v, Constant) for v in entries):
        return None
    values = [int(cast(Constant, v).data) for v in entries]
    index = list(ops.unflatten_index_variables(values, op.idx_list))
    own = index.pop(stack.axis) if len(index) > stack.axis else slice(None)
    if any(entry != slice(None) for entry in index):
        return None
    length = stack.ends[-1]
    if isinstance(own, slice):
        start, stop, step = own.indices(length)
        found = stack.between(start, stop) if step == 1 and start < stop else None
        return None if found is None else [found]
    place = own + length if own < 0 else own
    found = stack.between(place, place + 1)
    return None if found is None else [found.parts[0].squeeze(stack.axis)]


def _picked(
    op: ops.AdvancedSubtensor, indices: Sequence[TensorVariable], stack: _Stack
) -> Sequence[_Part] | None:
    """Take the entry of one of the parts at each place, as of the category of each row."""
    if tuple(op.idx_list) != (0, 1) or stack.axis != 1 or len(set(stack.lengths)) > 1:
        return None
    places, which = indices
    if stack.lengths[0] != 1 or not _is_every_place(places) or which.type.dtype == "bool":
        return None
    if places.type.ndim != which.type.ndim or which.type.ndim > 2:
        return None
    n = len(stack.parts)
    # A category that is not there has no value; negative ones count from the end.
    found = ops.checked_tensor(pt.constant(np.array(np.nan, dtype=stack.parts[0].type.dtype)))
    for k, part in enumerate(stack.parts):
        own = part if which.type.ndim == 2 else part.squeeze(1)
        is_own = pt.or_(pt.eq(which, k), pt.eq(which, k - n))
        found = ops.checked_tensor(pt.switch(is_own, own, found))
    return [found]


def _is_every_place(index: TensorVariable) -> bool:
    """Whether an index runs along all rows, each of which has an entry of its own."""
    node = index.owner
    if node is not None and isinstance(node.op, ops.DimShuffle) and node.op.new_order == (0, "x"):
        node = node.inputs[0].owner
    if node is None or not isinstance(node.op, ops.ARange):
        return False
    start, _, step = node.inputs
    return all(
        isinstance(v, Constant) and int(v.data) == value for v, value in ((start, 0), (step, 1))
    )
