"""Sums over the rows of each unit, and values of units at their rows: for units of any sizes."""

# ruff: noqa: ARG002 (PyTensor determines the arguments of its methods and callbacks)

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, cast

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Op, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import Graphs, Shapes, Storage
from pymc_coresets.loops.direct_calls import direct_call
from pymc_coresets.loops.rewrites import as_index
from pymc_coresets.loops.segments import Segments, repeated_segments, summed_segments
from pymc_coresets.reading.folding import kept, rewritten_by

_NONE: Any = ops.disconnected_type()

#: Rows of a unit from which a loop over those of each fills vector instructions.
LONG = 16


class _Ragged(Op):
    """An operation along the axis of units, or of rows, before `n_after` others."""

    __props__: tuple[str, ...] = ("n_after",)

    def __init__(self, n_after: int = 0) -> None:
        self.n_after = n_after

    def make_node(self, *inputs: Variable) -> Apply:
        """See `Op`."""
        x, sizes = (pt.as_tensor(v) for v in inputs)
        axis = x.type.ndim - 1 - self.n_after
        shape = [None if i == axis else n for i, n in enumerate(x.type.shape)]
        return Apply(self, [x, sizes], [pt.tensor(dtype=x.type.dtype, shape=tuple(shape))])

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Declare the sizes as data."""
        return [[True], [False]]

    def infer_shape(self, node: Apply, shapes: Shapes) -> list[tuple[Variable, ...]]:
        """See `Op`: shapes are known without the values."""
        axis, [x, _] = node.inputs[0].type.ndim - 1 - self.n_after, shapes
        return [(*x[:axis], self.length(ops.checked_tensor(node.inputs[1])), *x[axis + 1 :])]

    def length(self, sizes: TensorVariable) -> TensorVariable:
        """Return the length of the axis in the result."""
        raise NotImplementedError


class Spread(_Ragged):
    """Give each row the value of its unit: `x` of shape (..., n, *after) becomes (..., R, *after).

    The second input has the number of rows of each unit, (n,); rows follow one another unit by
    unit, and R is their number.  Its gradient is `Collect`.
    """

    def length(self, sizes: TensorVariable) -> TensorVariable:
        """Return the number of rows."""
        total: TensorVariable = sizes.sum()
        return total

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Storage) -> None:
        """See `Op`."""
        x, sizes = inputs
        single = (sizes == 1).all()  # a copy takes a third of the time
        output_storage[0][0] = x.copy() if single else np.repeat(x, sizes, axis=-1 - self.n_after)

    def pullback(self, inputs: Graphs, outputs: Graphs, cotangents: Graphs) -> list[Variable]:
        """See `Op`."""
        return [Collect(self.n_after).make_node(cotangents[0], inputs[1]).outputs[0], _NONE]


class Collect(_Ragged):
    """Add up the rows of each unit: `x` of shape (..., R, *after) becomes (..., n, *after).

    The second input has the number of rows of each unit, (n,).  Its gradient is `Spread`.

    Parameters
    ----------
    n_after : int, default 0
    are_long : bool, default False
        Whether units have so many rows that a loop over those of each is fastest, see `LONG`.
    """

    __props__ = ("n_after", "are_long")

    def __init__(self, n_after: int = 0, *, are_long: bool = False) -> None:
        super().__init__(n_after)
        self.are_long = are_long

    def length(self, sizes: TensorVariable) -> TensorVariable:
        """Return the number of units."""
        number: TensorVariable = sizes.shape[0]
        return number

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Storage) -> None:
        """See `Op`."""
        x, sizes = inputs
        axis = x.ndim - 1 - self.n_after
        some = np.flatnonzero(sizes)  # between the starts of these are no other rows
        starts = (np.cumsum(sizes) - sizes)[some]
        total = np.zeros((*x.shape[:axis], len(sizes), *x.shape[axis + 1 :]), dtype=x.dtype)
        if len(some):
            total[(slice(None),) * axis + (some,)] = np.add.reduceat(x, starts, axis=axis)
        output_storage[0][0] = total

    def pullback(self, inputs: Graphs, outputs: Graphs, cotangents: Graphs) -> list[Variable]:
        """See `Op`."""
        return [Spread(self.n_after).make_node(cotangents[0], inputs[1]).outputs[0], _NONE]


class UnitOfRow(Op):
    """The unit of each row: of the numbers of rows of units, (n,), those of units, (R,).

    They are unsigned, since loops would look for negative ones.
    """

    __props__ = ()

    def make_node(self, *inputs: Variable) -> Apply:
        """See `Op`."""
        return Apply(self, list(inputs), [pt.tensor(dtype="uint64", shape=(None,))])

    def infer_shape(self, node: Apply, shapes: object) -> list[tuple[Variable, ...]]:
        """See `Op`: shapes are known without the values."""
        return [(ops.checked_tensor(node.inputs[0]).sum(),)]

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Storage) -> None:
        """See `Op`."""
        [sizes] = inputs
        output_storage[0][0] = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)


class WithinUnits(Op):
    """Units of rows, which loops do not look for: values have to be there for as many as have rows.

    Its inputs are the result of `UnitOfRow`, the numbers of rows of units, and of how many units
    there are values.
    """

    __props__ = ()

    def __init__(self) -> None:
        self.view_map = {0: [0]}

    def make_node(self, *inputs: Variable) -> Apply:
        """See `Op`."""
        return Apply(self, list(inputs), [inputs[0].type()])

    def infer_shape(self, node: Apply, shapes: Shapes) -> list[tuple[Variable, ...]]:
        """See `Op`: shapes are known without the values."""
        return [shapes[0]]

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Storage) -> None:
        """See `Op`."""
        units, sizes, n_units = inputs
        if len(sizes) != n_units:
            raise ValueError(f"There are values of {n_units} units, but sizes of {len(sizes)}.")
        output_storage[0][0] = units


@as_index.register
def _(op: Spread, node: Apply) -> TensorVariable | None:
    """Return values of units at their rows, along the last axis, by the unit of each row."""
    x, sizes = ops.checked_tensors(node.inputs)
    if op.n_after:
        return None
    before = (slice(None),) * (x.type.ndim - 1)
    # The units of rows are known once for all draws.
    return ops.checked_tensor(x[(*before, WithinUnits()(UnitOfRow()(sizes), sizes, x.shape[-1]))])


@repeated_segments.register
def _(op: Spread, node: Apply) -> Segments | None:
    x, sizes = node.inputs
    return None if op.n_after else Segments(x, sizes)


@summed_segments.register
def _(op: Collect, node: Apply) -> Segments | None:
    x, sizes = node.inputs
    return None if op.n_after else Segments(x, sizes, op.are_long)


@direct_call.register
def _(op: Collect, node: Apply) -> Callable[..., Any]:
    """Return one compiled loop, whatever the axes: NumPy's takes ten times as long."""
    axis = node.inputs[0].type.ndim - 1 - op.n_after

    def collected(x: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        if x.shape[axis] == len(sizes) and (sizes == 1).all():
            return x.copy()
        if sizes.sum() != x.shape[axis]:
            raise ValueError(f"Units of {sizes.sum()} rows do not fit {x.shape[axis]}.")
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        total = np.zeros((prod(before), len(sizes), prod(after)), x.dtype)
        flat = np.ascontiguousarray(x).reshape(prod(before), x.shape[axis], prod(after))
        if total.shape[2] == 1:
            _sum_of_numbers(flat[:, :, 0], sizes, total[:, :, 0])
        else:
            _sum_of_arrays(flat, sizes, total)
        return total.reshape(*before, len(sizes), *after)

    return collected


# In any order: with each addition after the last, it would take four times as long.
@ops.compiled_on_disk
def _sum_of_numbers(x: np.ndarray, sizes: np.ndarray, total: np.ndarray) -> None:
    for i in range(len(x)):
        row = 0
        for unit in range(len(sizes)):
            one = total[i, unit]
            for r in range(row, row + sizes[unit]):
                one += x[i, r]
            total[i, unit] = one
            row += sizes[unit]


@ops.compiled_on_disk
def _sum_of_arrays(x: np.ndarray, sizes: np.ndarray, total: np.ndarray) -> None:
    for i in range(len(x)):
        row = 0
        for unit in range(len(sizes)):
            for r in range(row, row + sizes[unit]):
                for k in range(x.shape[2]):
                    total[i, unit, k] += x[i, r, k]
            row += sizes[unit]


@ops.vectorize_node.register(_Ragged)
def _with_more_axes(op: _Ragged, node: Apply, x: Variable, sizes: Variable) -> Apply:
    if sizes.type.ndim > 1:
        raise NotImplementedError("The sizes of units are data: they do not depend on draws.")
    [x, sizes], [before, _] = map(ops.checked_tensors, ([x, sizes], node.inputs))
    axis = -1 - op.n_after
    if x.type.shape[axis] == 1 != before.type.shape[axis]:  # one value for all units, or rows
        if isinstance(op, Spread):
            return cast(Apply, ops.Elemwise(ps.identity).make_node(x))
        shape: list[Any] = [*x.shape]
        shape[axis] = sizes.sum()
        x = pt.broadcast_to(x, shape)
    return op.make_node(x, sizes)


def in_common_operations(graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Write the operations of this module by indices, which every backend of PyTensor has.

    They are slower for many units.

    Examples
    --------
    >>> x, sizes = pt.vector("x"), pt.lvector("sizes")
    >>> [total] = in_common_operations([collect(spread(2 * x, sizes), sizes)])
    >>> total.eval({x: [1.0, 2.0, 3.0], sizes: [2, 0, 1]}, mode="FAST_COMPILE")
    array([4., 0., 6.])
    """
    return ops.checked_tensors(rewritten_by(_by_index, graphs))


def _by_index(node: Apply, inputs: Sequence[Variable]) -> Sequence[Variable]:
    if not isinstance(node.op, _Ragged):
        return kept(node, inputs)
    x, sizes = ops.checked_tensors(inputs)
    axis = x.type.ndim - 1 - node.op.n_after
    units = pt.repeat(pt.arange(sizes.shape[0]), sizes)
    index = (slice(None),) * axis + (units,)
    if isinstance(node.op, Spread):
        return [x[index]]
    shape = [sizes.shape[0] if i == axis else x.shape[i] for i in range(x.type.ndim)]
    return [pt.zeros(shape, dtype=x.type.dtype)[index].inc(x)]


def without_filled(graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Let operations take one number, instead of arrays of units or rows that are filled with it.

    As gradients have: a sum would be computed for its shape alone.

    Examples
    --------
    >>> x, sizes = pt.vector("x"), pt.lvector("sizes")
    >>> [slope] = without_filled([pt.grad(collect(x**2, sizes).sum(), x)])
    >>> slope.eval({x: [1.0, 2.0, 3.0]})
    array([2., 4., 6.])
    """
    numbers: dict[Variable, TensorVariable] = {}

    def number_of(node: Apply, inputs: Sequence[Variable]) -> Iterator[TensorVariable]:
        """Yield what fills the output of a node, if it has length 1 along some of its axes."""
        few = [numbers.get(v, v) for v in inputs]
        if isinstance(node.op, Spread):
            if few[0].type.shape[few[0].type.ndim - 1 - node.op.n_after] == 1:
                yield ops.checked_tensor(few[0])
        elif isinstance(node.op, ops.Elemwise) and isinstance(node.op.scalar_op, ps.Second):
            yield ops.checked_tensor(few[1])
        elif isinstance(node.op, ops.Elemwise) and few != [*inputs]:
            yield ops.checked_tensor(node.op(*few))

    def write(node: Apply, inputs: Sequence[Variable]) -> Sequence[Variable]:
        outputs = kept(node, inputs)
        for found in number_of(node, inputs):
            if found.type.broadcastable == outputs[0].type.broadcastable:
                return [found]
            numbers[outputs[0]] = found
        return outputs

    return ops.checked_tensors(rewritten_by(write, graphs))


def spread(x: TensorVariable, sizes: TensorVariable, axis: int = 0) -> TensorVariable:
    """Return the graph of values of units at their rows, along an axis.

    Parameters
    ----------
    x : TensorVariable
        With the units along `axis`.
    sizes : TensorVariable of int64, of shape (n_units,)
        How many rows each unit has; those of a unit follow one another.
    axis : int, default 0

    Examples
    --------
    >>> x, sizes = pt.vector("x"), pt.lvector("sizes")
    >>> spread(x, sizes).eval({x: [1.0, 2.0, 3.0], sizes: [2, 0, 1]}, mode="FAST_COMPILE")
    array([1., 1., 3.])
    """
    return ops.checked_tensor(Spread(x.type.ndim - 1 - axis)(x, sizes))


def collect(
    x: TensorVariable, sizes: TensorVariable, axis: int = 0, *, n_unit_rows: float = 1.0
) -> TensorVariable:
    """Return the graph of sums over the rows of each unit, along an axis: see `spread`.

    Parameters
    ----------
    x, sizes, axis
        See `spread`; x has the rows along that axis.
    n_unit_rows : float, default 1.0
        About how many rows each unit has, which decides how they are summed up fastest.

    Examples
    --------
    >>> x, sizes = pt.vector("x"), pt.lvector("sizes")
    >>> collect(x, sizes).eval({x: [1.0, 2.0, 3.0], sizes: [2, 0, 1]}, mode="FAST_COMPILE")
    array([3., 0., 3.])
    """
    op = Collect(x.type.ndim - 1 - axis, are_long=n_unit_rows >= LONG)
    return ops.checked_tensor(op(x, sizes))
