"""Operations by one call of NumPy, without PyTensor's overhead.

PyTensor's own evaluation of an operation spends a few microseconds on checks and conversions, about
ten times as long as NumPy needs for a few numbers.
Axes, constant indices and types, which are the same in every call, are looked up once here.
"""

# ruff: noqa: ARG001 (the functions of all operations have one signature)

from collections.abc import Callable, Sequence
from functools import reduce, singledispatch
from itertools import combinations, pairwise
from typing import Any, TypeGuard

import numpy as np
import pytensor.scalar as ps
from pytensor.graph import Apply, Constant, Op, Variable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import unflatten_index_variables
from pymc_coresets.compat.wording import describe

_FEW = 500  # entries; above this, a flat index is faster than one along several axes

type Function = Callable[..., Any]


@singledispatch
def direct_call(op: Op, node: Apply) -> Function | None:
    """Return a function of the inputs of a node to its output.

    Parameters
    ----------
    op : Op
        The operation; its type determines the function.
    node : Apply
        Its application.

    Returns
    -------
    callable, or None
        None if only PyTensor can evaluate the operation. The values equal PyTensor's bit for bit,
        and views of an input stay views.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> node = pt.sub(pt.matrix(), pt.row()).owner
    >>> direct_call(node.op, node)(np.ones((2, 2)), np.array([[0.0, 1.0]]))
    array([[1., 0.],
           [1., 0.]])
    """
    return None


def in_order(value: object) -> Any:  # noqa: ANN401
    """Store an array in C order.

    PyTensor's elementwise operations keep the memory order of their inputs, except for constants
    and draws that were sent from another process; and the order affects the last bits of a product.
    """
    return np.asarray(value, order="C") if isinstance(value, np.ndarray | np.generic) else value


# -- shapes ----------------------------------------------------------------------------------------


@direct_call.register
def _(op: ops.DimShuffle, node: Apply) -> Function:
    order = (*(i for i in op.new_order if i != "x"), *op.drop)
    kept = tuple(None if i == "x" else slice(None) for i in op.new_order)
    if not op.drop:
        if order == tuple(range(len(order))):
            return lambda x: x[kept]
        return lambda x: x.transpose(order)[kept]
    lengths, index, [output] = (1,) * len(op.drop), (*kept, *(0,) * len(op.drop)), node.outputs

    def dropped(x: np.ndarray) -> np.ndarray:
        moved = x.transpose(order)  # the axes to drop are the last
        if moved.shape[-len(lengths) :] != lengths:
            raise ValueError(f"An axis does not have length 1: {x.shape}, in {describe(output)}.")
        return np.asarray(moved[index])

    return dropped


@direct_call.register
def _(op: ops.Reshape, node: Apply) -> Function:
    return lambda x, shape: x.reshape(shape)


@direct_call.register
def _(op: ops.Alloc, node: Apply) -> Function | None:
    value, *_ = node.inputs
    if not all(value.type.broadcastable):
        return None
    dtype = np.dtype(value.type.dtype)

    def filled(x: np.ndarray, *shape: np.ndarray) -> np.ndarray:
        out = np.empty([int(n) for n in shape], dtype)
        out[...] = x
        return out

    return filled


@direct_call.register
def _(op: ops.Split, node: Apply) -> Function | None:
    (_, sizes), (whole, *_) = node.inputs, node.outputs
    if not isinstance(sizes, Constant) or len(sizes.data) < 2:
        return None
    ends = np.cumsum(sizes.data).tolist()
    before = (slice(None),) * op.axis
    parts = [(*before, slice(*ends_of)) for ends_of in pairwise([0, *ends])]

    def split(x: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, ...]:
        if x.shape[op.axis] != ends[-1]:
            raise ValueError(f"{x.shape} does not have {ends[-1]} entries, in {describe(whole)}.")
        return tuple(x[part] for part in parts)

    return split


@direct_call.register
def _(op: ops.ScalarFromTensor, node: Apply) -> Function:
    return lambda x: x[()]


# -- indexing --------------------------------------------------------------------------------------


def _are_constant(entries: Sequence[Variable]) -> TypeGuard[Sequence[Constant]]:
    return all(isinstance(v, Constant) for v in entries)


def _index_of(op: ops.Subtensor | ops.IncSubtensor, entries: Sequence[Constant]) -> tuple[Any, ...]:
    return tuple(unflatten_index_variables([v.data for v in entries], op.idx_list))


@direct_call.register
def _(op: ops.Subtensor, node: Apply) -> Function | None:
    if not _are_constant(entries := node.inputs[1:]):
        return None
    index = _index_of(op, entries)
    return lambda x, *_: np.asarray(x[index])


@direct_call.register
def _(op: ops.IncSubtensor, node: Apply) -> Function | None:
    if op.inplace or not _are_constant(entries := node.inputs[2:]):
        return None
    index, is_set = _index_of(op, entries), op.set_instead_of_inc

    def changed(x: np.ndarray, y: np.ndarray, *_: object) -> np.ndarray:
        out = x.copy()
        if is_set:
            out[index] = y
        else:
            out[index] += y
        return out

    return changed


def takes_numbers(
    op: ops.AdvancedSubtensor | ops.AdvancedIncSubtensor, index: Sequence[Any]
) -> bool:
    """Whether the first axes of an array are indexed by numbers, at least one of them a list."""
    return (
        all(isinstance(entry, int) for entry in op.idx_list)
        and all(np.dtype(v.type.dtype).kind in "iu" for v in index)
        and any(v.type.ndim for v in index)
    )


def axis_by_numbers(
    op: ops.AdvancedSubtensor | ops.AdvancedIncSubtensor, index: Sequence[Any]
) -> int | None:
    """Return the axis that is indexed by numbers, if all of the others before it are whole.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, k = pt.matrix("x"), pt.lvector("k")
    >>> [axis_by_numbers(y.owner.op, y.owner.inputs[1:]) for y in (x[k], x[:, k], x[k, k])]
    [0, 1, None]
    """
    *before, last = op.idx_list
    is_one = last == 0 and all(entry == slice(None) for entry in before)
    return len(before) if is_one and np.dtype(index[0].type.dtype).kind in "iu" else None


@direct_call.register
def _(op: ops.AdvancedSubtensor, node: Apply) -> Function | None:
    if takes_numbers(op, node.inputs[1:]):
        return lambda x, *index: x[index]
    axis = axis_by_numbers(op, node.inputs[1:])
    if axis is None:
        return None
    return lambda x, index: x.take(index, axis=axis)  # in C order, unlike `x[:, index]`


@direct_call.register
def _(op: ops.AdvancedIncSubtensor, node: Apply) -> Function | None:
    entries = node.inputs[2:]
    is_sum = not (op.set_instead_of_inc or op.ignore_duplicates or op.inplace)
    if not is_sum or not takes_numbers(op, entries):
        return None
    require_fit = fit_of(node)

    def added(x: np.ndarray, y: np.ndarray, *index: np.ndarray) -> np.ndarray:
        rows = np.broadcast_shapes(*(entry.shape for entry in index))
        shape = (*rows, *x.shape[len(index) :])
        require_fit(y, shape)
        out = np.array(x, order="C")
        if y.size < _FEW:
            np.add.at(out, index, y)
        else:
            flat = _flat_index(index, x.shape)
            np.add.at(out.reshape(-1), flat, np.broadcast_to(y, shape).reshape(-1))
        return out

    return added


def fit_of(node: Apply) -> Callable[[np.ndarray, Sequence[int]], None]:
    """Return a check that what a node adds has the shape of its places.

    NumPy, and compiled loops, would broadcast an axis that happens to have length 1.
    """
    y, out = node.inputs[1], node.outputs[0]
    as_is = [i for i, broadcast in enumerate(y.type.broadcastable, -y.type.ndim) if not broadcast]

    def require_fit(y: np.ndarray, shape: Sequence[int]) -> None:
        if any(y.shape[i] != shape[i] for i in as_is):
            raise ValueError(
                f"An array of shape {y.shape} does not fit in places {tuple(shape)}, in "
                f"{describe(out)}."
            )

    return require_fit


def require_within(index: np.ndarray, length: int) -> None:
    """Raise an IndexError if numbers are not those of entries of an axis."""
    if index.size and not -length <= index.min() <= index.max() < length:
        raise IndexError(f"An index is out of bounds for an axis of length {length}.")


def _flat_index(index: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return positions in the flattened array, at which NumPy adds much faster."""
    flat = places_of(index, shape)
    size = int(np.prod(shape[len(index) :]))
    whole = flat if size == 1 else flat[..., None] * size + np.arange(size)
    return whole.reshape(-1)


def places_of(index: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """Return positions along the first axes of an array, as if these were one.

    Raises
    ------
    IndexError
        If a number is out of bounds.

    Examples
    --------
    >>> places_of([np.array([0, 1, -1]), np.array([0, 2, 2])], (2, 3))
    array([0, 5, 5])
    """
    flat = np.zeros((), dtype=np.intp)
    for entry, length in zip(index, shape, strict=False):
        places = np.asarray(entry, dtype=np.intp)
        require_within(places, length)
        flat = flat * length + np.where(places < 0, places + length, places)
    return flat


# -- numbers ---------------------------------------------------------------------------------------


@direct_call.register
def _(op: ops.Dot, node: Apply) -> Function:
    return lambda x, y: np.asarray(np.dot(x, y))


@direct_call.register
def _(op: ops.CAReduce, node: Apply) -> Function | None:
    [x], [out] = node.inputs, node.outputs
    dtype = np.dtype(out.type.dtype)
    accumulator = getattr(op, "acc_dtype", None) or dtype
    if np.dtype(accumulator) != dtype or np.dtype(x.type.dtype) != dtype:
        return None
    sum_up, axis = op.ufunc.reduce, op.axis
    return lambda x: np.asarray(sum_up(x, axis=axis, dtype=dtype))


@direct_call.register
def _(op: ops.Elemwise, node: Apply) -> Function | None:
    if not op.inplace_pattern and isinstance(op.scalar_op, ps.Second | ps.Identity | ps.Cast):
        return _copied(node)
    is_chain = isinstance(op.scalar_op, ps.Add | ps.Mul)
    if op.nfunc_spec is None or not (is_chain or op.nfunc_spec[1] == len(node.inputs)):
        return None
    op.prepare_node(node, None, None, "py")
    function, dtype = op.nfunc, np.dtype(node.outputs[0].type.dtype)
    if not isinstance(function, np.ufunc) or hasattr(node.tag, "sig") or op.inplace_pattern:
        return None
    if len(node.inputs) == 1:
        return lambda x: np.asarray(function(x), dtype=dtype, order="C")
    if len(node.inputs) > 2 and not is_chain:
        return None
    as_is = _axes_in_common(node)

    def of_several(*arrays: np.ndarray) -> np.ndarray:
        _require_shapes(arrays, as_is, node)
        return np.asarray(reduce(function, arrays), dtype=dtype, order="C")

    return of_several


def _require_shapes(
    arrays: Sequence[np.ndarray], pairs: Sequence[tuple[int, int, list[int]]], node: Apply
) -> None:
    """NumPy would broadcast an axis that happens to have length 1."""
    for i, j, axes in pairs:
        x, y = arrays[i].shape, arrays[j].shape
        if x != y and any(x[axis] != y[axis] for axis in axes):
            raise ValueError(
                f"The shapes {x} and {y} do not fit together, in {describe(node.outputs[0])}."
            )


def _copied(node: Apply) -> Function:
    """Copy the last of one or two arrays: in their common shape, and in another type."""
    dtype, axes = np.dtype(node.outputs[0].type.dtype), _axes_in_common(node)

    def copied(*arrays: np.ndarray) -> np.ndarray:
        _require_shapes(arrays, axes, node)
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        return np.array(np.broadcast_to(arrays[-1], shape), dtype=dtype, order="C")

    return copied


def _axes_in_common(node: Apply) -> list[tuple[int, int, list[int]]]:
    """List pairs of inputs, and the axes that neither of them is broadcast along."""
    pairs = []
    for (i, x), (j, y) in combinations(enumerate(node.inputs), 2):
        both = zip(x.type.broadcastable, y.type.broadcastable, strict=True)
        axes = [axis for axis, pair in enumerate(both) if not any(pair)]
        if axes:
            pairs.append((i, j, axes))
    return pairs
