"""Split an axis of a result further down, where that leaves an axis with the observations.

In data in long form, several rows belong to one observation: K rows each, which a reshape turns
into a matrix (N, K); or any number of them, which a sum over each observation's rows puts together.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import unflatten_index_variables
from pymc_coresets.reading.cells.batching import apply_to_cells
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.known import Planned, Step
from pymc_coresets.reading.selection_rules import input_axes

_SPARSE = 8  # times as many entries, most of which are none, as there were

#: Whether a variable is computed from any parameter.
type Depends = Callable[[Variable], bool]
#: Of the axes that an axis is split into.
type Lengths = tuple[int, ...]
#: Whence each entry of these axes comes, as an array of positions; None for those in C order.
type Members = np.ndarray | None


class _NoSplitError(Exception):
    """An axis cannot be split."""


class _Key(NamedTuple):
    """What to split: an axis of a variable."""

    x: TensorVariable
    axis: int


def without_merged_axes(node: Apply, depends: Depends) -> list[Variable] | None:
    """Write a reshape that splits an axis as the same operations on data with split axes.

    ``pt.dot(x, b)`` of an array (N, K, P) merges its first axes, multiplies matrices, and splits
    the product's first axis again: in between, no axis has the observations.  Nor has any where
    data in long form, K rows for each of N observations, become a matrix (N, K) at the end.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    depends : callable
        Whether a variable depends on the parameters.

    Returns
    -------
    list of Variable, or None
        Of the one output; None if the node is no such reshape, where lengths are not
        known, or where a parameter itself or an operation without a rule is split.

    Examples
    --------
    >>> from pymc_coresets.reading.folding import with_constant_shapes
    >>> x, b = pt.tensor("x", shape=(5, 4, 2)), pt.vector("b", shape=(2,))
    >>> [product] = with_constant_shapes([pt.dot(x, b)])
    >>> [found] = without_merged_axes(product.owner, lambda v: True)
    >>> product.owner.op, found.owner.op
    (Reshape(ndim=2), DimShuffle(input_ndim=3,new_order=(0, 1)))
    """
    if not isinstance(node.op, ops.Reshape):
        return None
    x, shape = cast(TensorVariable, node.inputs[0]), node.outputs[0].type.shape
    n_new = len(shape) - x.type.ndim + 1
    if n_new < 2 or None in shape or None in x.type.shape:
        return None
    for axis in range(x.type.ndim):
        lengths = shape[axis : axis + n_new]
        if _split_shape(x, axis, lengths) == shape and x.type.shape[axis] == np.prod(lengths):
            split = _split(_Key(x, axis), lengths, None, depends)
            return None if split is None else [split]
    return None


def sum_of_members(node: Apply, depends: Depends) -> list[Variable] | None:
    """Write ``x[index].inc(y)``, of an index that is data, as sums over an axis of data.

    So a sum over the rows of each choice set, in long form, is one over an axis (N, K): K is the
    size of the largest set, and smaller ones are filled up with zeros.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    depends : callable
        Whether a variable depends on the parameters.

    Returns
    -------
    list of Variable, or None
        Of the one output; None if the node is no such sum, where lengths are not known
        or too different, or where a parameter itself or an operation without a rule is split.

    Examples
    --------
    >>> from pymc_coresets.reading.known import Known
    >>> b = pt.scalar("b")
    >>> total = pt.zeros(2)[np.array([0, 1, 0])].inc(pt.exp(b * np.array([1.0, 2.0, 3.0])))
    >>> sum_of_members(total.owner, Known([b]).depends)[0].eval({b: 0.0})
    array([2., 1.])
    """
    if not isinstance(node.op, ops.AdvancedIncSubtensor) or node.op.set_instead_of_inc:
        return None
    x, y, *index_inputs = cast(list[TensorVariable], node.inputs)
    [index, *others] = unflatten_index_variables(index_inputs, node.op.idx_list)
    if others or isinstance(index, slice) or index.type.ndim != 1 or index.type.dtype == "bool":
        return None
    if depends(index) or y.type.ndim != x.type.ndim:
        return None
    n, m = x.type.shape[0], y.type.shape[0]
    if n is None or m is None or m == 1:
        return None
    members, is_member = _members(evaluate([index])[0] % n, n)
    if members.size > _SPARSE * max(n, m):
        return None
    inner = _split(_Key(y, 0), members.shape, members, depends)
    if inner is None:
        return None
    mask = is_member.reshape((*is_member.shape, *[1] * (y.type.ndim - 1)))
    return [x + pt.where(mask, inner, 0).sum(axis=1, dtype=x.type.dtype)]


def _members(labels: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """List the positions of each label, and which of the entries are such: (n, K) each.

    The others repeat a position of the same label, where a function of it has a derivative.
    """
    order, counts = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=n)
    first, number = np.cumsum(counts) - counts, np.arange(max(int(counts.max()), 1))
    is_member = number < counts[:, None]
    places = np.minimum(first[:, None] + np.where(is_member, number, 0), len(labels) - 1)
    return order[places], is_member


def _split(
    key: _Key, lengths: Lengths, members: Members, depends: Depends
) -> TensorVariable | None:
    """Split an axis of x, down to data or to where it was merged."""
    try:
        cells = Planned(lambda k: _plan(k, lengths, members, depends)).part(key)
    except _NoSplitError:
        return None
    *first, _ = lengths
    if cells.type.shape[0] == 1:  # all are alike
        cells = pt.broadcast_to(cells, (math.prod(first), *cells.shape[1:]))
    split = cells if len(first) == 1 else cells.reshape((*first, *cells.type.shape[1:]))
    return pt.moveaxis(split, range(len(first)), range(key.axis, key.axis + len(first)))


def _plan(key: _Key, lengths: Lengths, members: Members, depends: Depends) -> Step[_Key]:
    """Bring up an axis of length n * K as n cells, which come first, of K entries each."""
    x, axis = key
    split = _split_here(key, lengths, members, depends)
    if split is not None:
        *first, _ = lengths
        cells = pt.moveaxis(split, range(axis, axis + len(first)), range(len(first)))
        if len(first) > 1:
            cells = cells.reshape((math.prod(first), *cells.type.shape[len(first) :]))
        return Step((), lambda _: cells)
    node = x.owner
    axes = None if node is None else input_axes(node.op, node, axis)
    if axes is None or isinstance(node.op, ops.Reshape):
        raise _NoSplitError
    inputs = cast(list[TensorVariable], node.inputs)
    needs = {i: _Key(inputs[i], a) for i, a in enumerate(axes) if a is not None}

    def build(built: list[TensorVariable]) -> TensorVariable:
        parts = dict(zip(needs, built, strict=True))
        return apply_to_cells(node, node.outputs.index(x), parts, {axis: lengths[-1]})

    return Step(tuple(needs.values()), build)


def _split_here(
    key: _Key, lengths: Lengths, members: Members, depends: Depends
) -> TensorVariable | None:
    """Split an axis of data, or of what was merged."""
    x, axis = key
    shape = _split_shape(x, axis, lengths)
    if not depends(x):
        split = x.reshape(shape) if members is None else pt.take(x, members, axis=axis)
        return cast(TensorVariable, split)
    if x.owner is None or not isinstance(x.owner.op, ops.Reshape) or members is not None:
        return None
    merged: TensorVariable = x.owner.inputs[0]
    return merged if merged.type.shape == shape else None


def _split_shape(x: TensorVariable, axis: int, lengths: Lengths) -> tuple[int | None, ...]:
    shape: tuple[int | None, ...] = x.type.shape
    return (*shape[:axis], *lengths, *shape[axis + 1 :])
