"""Graphs of arrays side by side, written as graphs of each of them: nothing is joined, nothing cut.

The variables of units are columns of one array, the components of a mixture are joined along an
axis that is summed over, and the probabilities of categories along one from which each row picks
one; the utilities of goods depend on data that have a column for each.  For a few of them,
elementwise operations on each, which are compiled into one loop, take a third to a fifth of the
time of the joined array: loops along an axis of three do not use vector instructions.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import accumulate, chain, islice, pairwise, product
from typing import NamedTuple, cast

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Op, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import kept, rewritten_by
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

    def between(self, start: int, stop: int) -> "Iterator[_Stack]":
        """Yield the parts from one end of parts to another, if these are."""
        ends = self.ends
        if start < stop and start in ends and stop in ends:
            yield self._replace(parts=self.parts[ends.index(start) : ends.index(stop)])

    def beside(self, other: TensorVariable) -> Iterator[Sequence[TensorVariable]]:
        """Yield the parts of another array beside those of this, if lengths are equal."""
        length, before = other.type.shape[self.axis], (slice(None),) * self.axis
        if length == 1:
            yield [other] * len(self.parts)
        elif length == self.ends[-1] and isinstance(other, Constant):
            pieces = (other.data[(*before, slice(a, b))] for a, b in pairwise(self.ends))
            yield [ops.checked_tensor(pt.constant(piece)) for piece in pieces]
        elif length == self.ends[-1]:
            yield [_piece(other, self.axis, a, b) for a, b in pairwise(self.ends)]


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

    def write(node: Apply, inputs: Sequence[Variable]) -> Sequence[Variable]:
        tensors = cast(Sequence[TensorVariable], inputs)
        found = [_apart(node, tensors, stacks)]
        if not of_units.isdisjoint(node.inputs):
            of_units.update(node.outputs)
            if isinstance(node.op, ops.Elemwise):
                found.append(_of_narrow(node.op, tensors))
        for parts in chain.from_iterable(found):
            return [known(part) for part in parts]
        return kept(node, inputs)

    return ops.checked_tensors(rewritten_by(write, graphs, given))


type _Part = _Stack | TensorVariable

#: The results of an operation by those of parts; nothing if it stays as it is.
type _Apart = Iterator[Sequence[_Part]]


def _apart(node: Apply, inputs: Sequence[TensorVariable], stacks: dict[Variable, _Stack]) -> _Apart:
    op = node.op
    if isinstance(op, ops.Join):
        return _joined(op.axis, inputs, stacks)
    if isinstance(op, ops.Elemwise):
        return _of_elementwise(op, inputs, stacks)
    if isinstance(op, ops.Blockwise) and isinstance(op.core_op, ops.SolveTriangular):
        return chain.from_iterable(
            _solved(op.core_op, inputs[0], stacks[x]) for x in inputs[1:] if x in stacks
        )
    return chain.from_iterable(
        _of_first(node, inputs, stacks[x]) for x in inputs[:1] if x in stacks
    )


def _of_first(node: Apply, inputs: Sequence[TensorVariable], stack: _Stack) -> _Apart:
    """Yield the result of an operation whose first input is joined."""
    op = node.op
    if isinstance(op, ops.LogSumExp | ops.LogSoftmax | ops.Softmax | ops.CAReduce):
        return _reduced(node, stack)
    if isinstance(op, ops.Subtensor):
        return _indexed(op, inputs[1:], stack)
    if isinstance(op, ops.AdvancedSubtensor):
        return _picked(op, inputs[1:], stack)
    return _one_by_one(op, inputs, stack)


def _joined(axis: int, inputs: Sequence[TensorVariable], stacks: dict[Variable, _Stack]) -> _Apart:
    if None not in [x.type.shape[axis] for x in inputs]:
        own = [stacks.get(x, _Stack(axis, [x])) for x in inputs]
        every = [s.parts if s.axis == axis else [x] for s, x in zip(own, inputs, strict=True)]
        yield [_Stack(axis, [part for parts in every for part in parts])]


def _one_by_one(op: Op, inputs: Sequence[TensorVariable], stack: _Stack) -> _Apart:
    """Apply an operation to each part, if it leaves their axis alone; cut or add up parts."""
    if isinstance(op, ops.Split) and op.axis == stack.axis:
        yield from _split(inputs[1], stack)
    elif isinstance(op, ops.CumOp):
        yield from _running(op, stack)
    elif isinstance(op, Spread | Collect):
        yield from _along_units(op, inputs, stack)
    elif isinstance(op, ops.DimShuffle) and stack.axis in op.new_order:
        parts = [ops.checked_tensor(op(part, *inputs[1:])) for part in stack.parts]
        yield [_Stack(op.new_order.index(stack.axis), parts)]


def _along_units(op: Spread | Collect, inputs: Sequence[TensorVariable], stack: _Stack) -> _Apart:
    """Yield values of units at their rows, or their sums, of each part.

    Units are the last axis where parts have length 1 along another one behind it: loops over that
    one would be of a single number each.
    """
    own, axis = inputs[0].type.ndim - 1 - op.n_after, stack.axis
    if axis == own:
        return
    if axis < own or any(length != 1 for length in stack.lengths):
        found = [op(part, *inputs[1:]) for part in stack.parts]
    else:
        inner = type(op)(op.n_after - 1)
        found = [
            pt.expand_dims(inner(part.squeeze(axis), *inputs[1:]), axis) for part in stack.parts
        ]
    yield [_Stack(axis, ops.checked_tensors(found))]


def _of_elementwise(
    op: ops.Elemwise, inputs: Sequence[TensorVariable], stacks: dict[Variable, _Stack]
) -> _Apart:
    if len(op.inplace_pattern):
        return
    own = {x: stacks[x] for x in inputs if x in stacks}
    for first in islice([*own.values()] or _of_shared(inputs), 1):
        cut = {x for x, s in own.items() if (s.axis, s.ends) == (first.axis, first.ends)}
        parts = ([own[x].parts] if x in cut else first.beside(x) for x in inputs)
        for columns in product(*parts):
            applied = [ops.checked_tensor(op(*each)) for each in zip(*columns, strict=True)]
            yield [first._replace(parts=applied)]


def _of_narrow(op: ops.Elemwise, inputs: Sequence[TensorVariable]) -> _Apart:
    """Apply an operation to units' variables and to each column of arrays of a few columns."""
    if len(op.inplace_pattern):
        return
    shapes = [x.type.shape for x in inputs]
    for axis, lengths in enumerate(zip(*shapes, strict=True)):
        few = {n for n in lengths if n != 1}
        if len(few) != 1 or None in few or not 1 < (length := int(few.pop() or 0)) <= _FEW:
            continue
        if None not in {n for shape in shapes for n in (*shape[:axis], *shape[axis + 1 :])}:
            continue
        each = [
            [x] * length if n == 1 else [_piece(x, axis, i, i + 1) for i in range(length)]
            for x, n in zip(inputs, lengths, strict=True)
        ]
        yield [_Stack(axis, [ops.checked_tensor(op(*x)) for x in zip(*each, strict=True)])]
        return


def _of_shared(inputs: Sequence[TensorVariable]) -> Iterator[_Stack]:
    """Yield a few numbers that meet columns of rows or units, as arrays side by side."""
    if not any(None in x.type.shape for x in inputs):
        return
    for x in inputs:
        long = [axis for axis, length in enumerate(x.type.shape) if length != 1]
        if len(long) != 1 or not 1 < (x.type.shape[long[0]] or 0) <= _FEW:
            continue
        [axis], length = long, int(x.type.shape[long[0]])
        if all(_is_flat(other, axis, length) for other in inputs):
            yield _Stack(axis, [_piece(x, axis, i, i + 1) for i in range(length)])


def _is_flat(x: TensorVariable, axis: int, length: int) -> bool:
    """Whether an array has one entry along an axis, or is as long there and nowhere else."""
    rest = [n for other, n in enumerate(x.type.shape) if other != axis]
    return x.type.shape[axis] == 1 or (x.type.shape[axis] == length and set(rest) <= {1})


def _reduced(node: Apply, stack: _Stack) -> _Apart:
    op, [out] = node.op, node.outputs
    if op.axis != (stack.axis,):
        return
    if isinstance(op, ops.CAReduce):
        dtypes = {part.type.dtype for part in stack.parts} | {out.type.dtype}
        if type(op.scalar_op) in _PAIRS and len(dtypes) == 1:
            each = [
                part.squeeze(stack.axis) if length == 1 else ops.checked_tensor(op(part))
                for part, length in zip(stack.parts, stack.lengths, strict=True)
            ]
            yield [reduce(_PAIRS[type(op.scalar_op)], each)]
    elif set(stack.lengths) == {1}:
        if isinstance(op, ops.LogSumExp):
            yield [_log_sum_exp([part.squeeze(stack.axis) for part in stack.parts])]
            return
        whole = _log_sum_exp(stack.parts)
        logs = [ops.checked_tensor(part - whole) for part in stack.parts]
        is_log = isinstance(op, ops.LogSoftmax)
        yield [stack._replace(parts=logs if is_log else [pt.exp(x) for x in logs])]


def _solved(op: ops.SolveTriangular, a: TensorVariable, stack: _Stack) -> _Apart:
    """Yield the solution of a triangular system of one right-hand side, entry by entry."""
    if op.unit_diagonal or op.b_ndim != 1:
        return
    if stack.axis != stack.parts[0].type.ndim - 1 or set(stack.lengths) != {1}:
        return
    places = [[(i, j) for j in range(i + 1)] for i in range(len(stack.parts))]
    if op.lower:
        root = Root([[a[..., i, j, None] for i, j in row] for row in places])
        yield [stack._replace(parts=root.solved(stack.parts))]
    else:
        root = Root([[a[..., j, i, None] for i, j in row] for row in places])
        yield [stack._replace(parts=root.solved_above(stack.parts))]


def _running(op: ops.CumOp, stack: _Stack) -> _Apart:
    """Yield running sums or products along the axis of the parts."""
    if op.axis == stack.axis and set(stack.lengths) == {1}:
        pair = pt.add if op.mode == "add" else pt.mul
        yield [stack._replace(parts=list(accumulate(stack.parts, pair)))]


def _log_sum_exp(parts: Sequence[TensorVariable]) -> TensorVariable:
    """Return ``log sum_i exp(x_i)``; it does not depend on what is subtracted before."""
    highest = reduce(pt.maximum, parts)
    highest = ops.disconnected(pt.switch(pt.isinf(highest), 0.0, highest))
    return ops.checked_tensor(pt.log(sum(pt.exp(x - highest) for x in parts)) + highest)


def _split(sizes: TensorVariable, stack: _Stack) -> _Apart:
    if isinstance(sizes, Constant):
        ends = [0, *np.cumsum(sizes.data).tolist()]
        yield from product(*(stack.between(*pair) for pair in pairwise(ends)))


def _indexed(op: ops.Subtensor, entries: Sequence[TensorVariable], stack: _Stack) -> _Apart:
    if not all(isinstance(v, Constant) for v in entries):
        return
    values = [int(cast(Constant, v).data) for v in entries]
    index = list(ops.unflatten_index_variables(values, op.idx_list))
    own = index.pop(stack.axis) if len(index) > stack.axis else slice(None)
    if any(entry != slice(None) for entry in index):
        return
    length = stack.ends[-1]
    if isinstance(own, slice):
        start, stop, step = own.indices(length)
        if step == 1:
            yield from ([found] for found in stack.between(start, stop))
    else:
        place = own + length if own < 0 else own
        found = stack.between(place, place + 1)
        yield from ([one.parts[0].squeeze(stack.axis)] for one in found)


def _picked(op: ops.AdvancedSubtensor, indices: Sequence[TensorVariable], stack: _Stack) -> _Apart:
    """Take the entry of one of the parts at each place, as of the category of each row."""
    if tuple(op.idx_list) != (0, 1) or stack.axis != 1 or len(set(stack.lengths)) > 1:
        return
    places, which = indices
    if stack.lengths[0] != 1 or not _is_every_place(places) or which.type.dtype == "bool":
        return
    if places.type.ndim != which.type.ndim or which.type.ndim > 2:
        return
    n = len(stack.parts)
    # A category that is not there has no value; negative ones count from the end.
    found = ops.checked_tensor(pt.constant(np.array(np.nan, dtype=stack.parts[0].type.dtype)))
    for k, part in enumerate(stack.parts):
        own = part if which.type.ndim == 2 else part.squeeze(1)
        is_own = pt.or_(pt.eq(which, k), pt.eq(which, k - n))
        found = ops.checked_tensor(pt.switch(is_own, own, found))
    yield [found]


def _is_every_place(index: TensorVariable) -> bool:
    """Whether an index runs along all rows, each of which has an entry of its own."""
    op = ops.op_of(index)
    if isinstance(op, ops.DimShuffle) and op.new_order == (0, "x"):
        index = index.owner.inputs[0]
    if not isinstance(ops.op_of(index), ops.ARange):
        return False
    start, _, step = index.owner.inputs
    return all(
        isinstance(v, Constant) and int(v.data) == value for v, value in ((start, 0), (step, 1))
    )
