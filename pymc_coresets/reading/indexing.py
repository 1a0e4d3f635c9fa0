"""Index operations along the observation axis, where the index is data."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import known_length, values_of
from pymc_coresets.reading.known import KnownValues
from pymc_coresets.reading.selection_rules import (
    InputAxes,
    axis_before_integers,
    index_of,
    input_axes,
)


class IndexedAxes(NamedTuple):
    """Consecutive axes of x with an index along them that is data.

    Attributes
    ----------
    x : TensorVariable
        The indexed variable.
    axis : int
        The first of the indexed axes of x.
    lengths : tuple of (int or None)
        Length of each of these axes, as far as it is known.
    positions : tuple of ndarray of int
        Where each row of the result comes from, along each of them.
    by_label : bool
        Whether x is a table that rows are looked up in (``effect[group]``), and not just
        shortened by a mask or a slice.
    """

    x: TensorVariable
    axis: int
    lengths: tuple[int | None, ...]
    positions: tuple[np.ndarray, ...]
    by_label: bool = False

    @property
    def repeats(self) -> bool:
        """Whether some row of x, along its one axis, may be used more than once."""
        [positions] = self.positions
        return positions.min(initial=0) < 0 or len(np.unique(positions)) < len(positions)


def indexed(node: Apply, axis: int, known: KnownValues) -> Iterator[IndexedAxes]:
    """Find the axes of x that output axis `axis` comes from, where data are the index.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    axis : int
        An axis of its output.
    known : KnownValues
        Distinguishes parameters from data.

    Examples
    --------
    >>> x, table = pt.vector("x", shape=(5,)), pt.matrix("table", shape=(2, 2))
    >>> next(indexed(x[1:4].owner, 0, KnownValues([x]))).positions
    (array([1, 2, 3]),)
    >>> cells = table[np.array([[True, False], [True, True]])]
    >>> next(indexed(cells.owner, 0, KnownValues([table]))).positions
    (array([0, 1, 1]), array([0, 0, 1]))
    """
    if not isinstance(node.op, ops.AdvancedSubtensor | ops.Subtensor):
        return
    x, index_inputs = ops.checked_tensor(node.inputs[0]), node.inputs[1:]
    if any(known.depends(i) for i in index_inputs):
        return
    entries, arrays = index_of(node)
    if isinstance(node.op, ops.Subtensor):
        yield from _sliced_axis(x, entries, axis)
        return
    is_whole = all(entry == slice(None) for entry in entries if isinstance(entry, slice))
    if not is_whole or list(arrays) != list(range(axis, axis + len(arrays))):
        return
    values = [known.value(array) for array in arrays.values()]
    lengths = x.type.shape[axis : axis + len(values)]
    by_label = len(values) > 1 or values[0].dtype != bool
    if not by_label:
        lengths, values = values[0].shape, list(np.nonzero(values[0]))
    if any(v.ndim != 1 or v.dtype == bool for v in values):
        return
    if len(values) > 1:
        if None in lengths:
            return
        values = [v % n for v, n in zip(values, lengths, strict=True)]
    yield IndexedAxes(x, axis, lengths, tuple(values), by_label)


def _sliced_axis(
    x: TensorVariable, entries: Sequence[slice | Variable], axis: int
) -> Iterator[IndexedAxes]:
    x_axis = axis_before_integers(entries, axis)
    entry = entries[x_axis] if x_axis < len(entries) else slice(None)
    if not isinstance(entry, slice) or entry == slice(None):
        return
    for length in known_length(x, x_axis):
        positions = tuple(values_of([pt.arange(length)[entry]]))
        others = [slice(None) if i == x_axis else other for i, other in enumerate(entries)]
        if all(other == slice(None) for other in others):
            yield IndexedAxes(x, x_axis, (length,), positions)
        else:
            yield IndexedAxes(x[tuple(others)], axis, (length,), positions)


def joints(node: Apply, axis: int) -> list[tuple[int, float]]:
    """Return where each input of a join lies along the joined axis, as far as lengths are known.

    Returns
    -------
    list of (int, float)
        First position, and the one after the last (infinite: to the end).  Nothing if the
        application is not a join along this axis.

    Examples
    --------
    >>> x = pt.vector("x", shape=(2,))
    >>> joints(pt.join(0, x, pt.vector("y")).owner, 0)
    [(0, 2), (2, inf)]
    """
    if not isinstance(node.op, ops.Join) or node.op.axis % node.outputs[0].type.ndim != axis:
        return []
    found: list[tuple[int, float]] = []
    start = 0
    for length in (piece.type.shape[axis] for piece in node.inputs):
        if length is None:
            return [*found, (start, math.inf)]
        found.append((start, start + length))
        start += length
    return found


def joined_piece(node: Apply, axis: int, positions: np.ndarray) -> Iterator[IndexedAxes]:
    """Find the one input of a join that all of some positions of its output lie in.

    Examples
    --------
    >>> x, y = pt.vector("x", shape=(2,)), pt.vector("y", shape=(3,))
    >>> [piece] = joined_piece(pt.join(0, x, y).owner, 0, np.array([2, 4]))
    >>> piece.x.name, piece.positions
    ('y', (array([0, 2]),))
    """
    for x, (start, stop) in zip(node.inputs, joints(node, axis), strict=False):
        in_reach = stop < math.inf or x is node.inputs[-1]
        if in_reach and positions.min() >= start and positions.max() < stop:
            length = x.type.shape[axis : axis + 1]
            yield IndexedAxes(ops.checked_tensor(x), axis, length, (positions - start,))


class Assignment(NamedTuple):
    """An array of which entries along consecutive axes have been replaced: ``x[index].set(y)``.

    Attributes
    ----------
    x, y : TensorVariable
    axis : int
        The first of the indexed axes of x, and the axis of y that lies along them.
    places : ndarray of int
        Which entry of y each of x has become, along the indexed axes; -1 where x stays.
    """

    x: TensorVariable
    y: TensorVariable
    axis: int
    places: np.ndarray


def written(node: Apply, axis: int, known: KnownValues) -> Iterator[Assignment]:
    """Find what is written into the entries along an axis, where data are the index.

    Examples
    --------
    >>> x, y = pt.vector("x", shape=(4,)), pt.vector("y", shape=(2,))
    >>> next(written(x[np.array([3, 1])].set(y).owner, 0, KnownValues([x, y]))).places
    array([-1,  1, -1,  0])
    """
    if not isinstance(node.op, ops.AdvancedIncSubtensor | ops.IncSubtensor):
        return
    (x, y), index_inputs = ops.checked_tensors(node.inputs[:2]), node.inputs[2:]
    if not node.op.set_instead_of_inc or any(known.depends(i) for i in index_inputs):
        return
    entries = list(ops.unflatten_index_variables(index_inputs, node.op.idx_list))
    while entries and entries[-1] == slice(None):
        entries.pop()
    before, own = entries[:axis], [_value(entry, known) for entry in entries[axis:]]
    is_slice = len(own) == 1 and isinstance(own[0], slice)
    arrays = all(isinstance(entry, np.ndarray) and entry.ndim for entry in own)
    if any(e != slice(None) for e in before) or not own or not (is_slice or arrays):
        return
    masks = [e for e in own if isinstance(e, np.ndarray) and e.dtype.kind == "b"]
    n_axes = len(own) + sum(mask.ndim - 1 for mask in masks)
    shape = x.type.shape[axis : axis + n_axes]
    if None in shape or y.type.ndim != x.type.ndim - n_axes + 1:
        return
    numbers = np.arange(math.prod(shape)).reshape(shape)[tuple(own)]
    is_once = numbers.ndim == 1 and len(np.unique(numbers)) == len(numbers)
    if not is_once or y.type.shape[axis] != len(numbers):
        return
    places = np.full(math.prod(shape), -1)
    places[numbers] = np.arange(len(numbers))
    yield Assignment(x, y, axis, places.reshape(shape))


def _value(entry: slice | Variable, known: KnownValues) -> slice | np.ndarray:
    if not isinstance(entry, slice):
        return known.value(entry)
    ends = (entry.start, entry.stop, entry.step)
    return slice(*(None if v is None else int(known.value(v)) for v in ends))


def axes_of_inputs(
    node: Apply, axis: int, known: KnownValues
) -> Iterator[tuple[InputAxes, Collection[int]]]:
    """Yield `input_axes`, with a second rule for ``x[arange(n), k]``: its row n needs row n of x.

    Yields
    ------
    axes : mapping of int to int
    counting : collection of int
        Which inputs are such an ``arange``, to be made anew for the rows that are selected.

    Examples
    --------
    >>> x, k = pt.matrix("x", shape=(3, 2)), pt.as_tensor([0, 1, 1])
    >>> next(axes_of_inputs(x[pt.arange(3), k].owner, 0, KnownValues([x])))
    ({2: 0, 0: 0}, (1,))
    """
    for axes in input_axes(node.op, node, axis):
        if isinstance(node.op, ops.AdvancedSubtensor):
            for i, x_axis in _counting(node, axis, known):
                others = {j: a for j, a in axes.items() if j not in (0, i)}
                yield others | {0: x_axis}, (i,)
                return
        yield axes, ()


def _counting(node: Apply, axis: int, known: KnownValues) -> Iterator[tuple[int, int]]:
    """Yield which inputs count the rows of x, and its axis that has them."""
    _, arrays = index_of(node)
    first, ndim = min(arrays), max(entry.type.ndim for entry in arrays.values())
    from_end = axis - first - ndim
    if -ndim <= from_end < 0 and len(arrays) > 1:
        for x_axis, entry in arrays.items():
            length = node.inputs[0].type.shape[x_axis]
            if _counts(entry, from_end, length or 0, known):
                yield next(i for i, v in enumerate(node.inputs) if v is entry), x_axis


def _counts(index: Variable, from_end: int, length: int, known: KnownValues) -> bool:
    """Whether an index is 0, 1, ... along one axis, and has no other."""
    if index.type.ndim + from_end < 0 or known.depends(index) or index.type.dtype == "bool":
        return False
    positions = known.value(index)
    only_axis = positions.size == positions.shape[from_end]
    return only_axis and length > 1 and np.array_equal(positions.ravel(), np.arange(length))
