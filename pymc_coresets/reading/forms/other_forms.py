"""Write operations that rows cannot be selected through by others that they can be.

In data in long form, several rows belong to one observation: K rows each, which a reshape turns
into a matrix (N, K); or any number of them, which a sum over each observation's rows puts together.
An axis of such a result is split further down, where that leaves an axis with the observations.
The rows of a sparse matrix are written the same way, as arrays (N, K) of their entries.
"""

import math
from typing import Any, NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor import OpFromGraph
from pytensor.graph import Apply, Variable, vectorize_graph
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import inline_ofg_node, unflatten_index_variables
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.forms.batching import apply_to_cells
from pymc_coresets.reading.indexing import Depends
from pymc_coresets.reading.known import Planned, Step
from pymc_coresets.reading.selection_rules import has_rule, has_steps_alone, input_axes, is_ragged

_SPARSE = 8  # times as many entries, most of which are none, as there were

#: Of the axes that an axis is split into.
type Lengths = tuple[int, ...]
#: Whence each entry of these axes comes, as an array of positions; None for those in C order.
type Members = np.ndarray | None


def written_otherwise(node: Apply, depends: Depends) -> list[Variable] | None:
    """Write an operation without a rule by others that have one; None where that is not known.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    depends : callable
        Whether a variable depends on the parameters.

    Returns
    -------
    list of Variable, or None
        Another graph for each output.

    Examples
    --------
    >>> x = pt.vector("x", shape=(2,))
    >>> [found] = written_otherwise(pt.repeat(x, [1, 2]).owner, lambda v: v is x)
    >>> found.eval({x: [1.0, 2.0]})
    array([1., 2., 2.])
    """
    for form in _FORMS:
        found = form(node, depends)
        if found is not None:
            return found
    return None


def _inlined(node: Apply, depends: Depends) -> list[Variable] | None:  # noqa: ARG001
    if not isinstance(node.op, OpFromGraph) or has_rule(node.op):
        return None
    inlined: list[Variable] = inline_ofg_node(node)
    return inlined


def _looked_up(node: Apply, depends: Depends) -> list[Variable] | None:
    """Write a repetition as a lookup."""
    if not isinstance(node.op, ops.Repeat) or depends(node.inputs[1]):
        return None
    x, counts = cast(list[TensorVariable], node.inputs)
    length = x.type.shape[node.op.axis]
    if length is None:
        return None
    positions = np.repeat(np.arange(length), evaluate([counts])[0])
    return [x[(slice(None),) * node.op.axis + (positions,)]]


def vectorised_loop(node: Apply, depends: Depends) -> list[Variable] | None:  # noqa: ARG001
    """Write a loop whose steps do not depend on each other without one; None where they do.

    PyMC's log-density of a distribution that is written as a loop (``pytensor.scan``) is such a
    loop: each step takes the values of the steps before from the data.

    Examples
    --------
    >>> import pytensor
    >>> x, b = pt.vector("x"), pt.scalar("b")
    >>> y = pytensor.scan(lambda now, b: b * now, [x], non_sequences=[b], return_updates=False)
    >>> [vectorised] = vectorised_loop(y.owner, lambda v: v is b)
    >>> vectorised.eval({x: [1.0, 2.0], b: 3.0})
    array([3., 6.])
    """
    op = node.op
    if not isinstance(op, ops.Scan) or not has_steps_alone(op) or is_ragged(op):
        return None
    inner = op.fgraph.unfreeze()
    n_steps, *_ = node.inputs
    steps = [x[:n_steps] for x in op.outer_seqs(node.inputs)]
    given = dict(zip(inner.inputs, [*steps, *op.outer_non_seqs(node.inputs)], strict=True))
    outputs: list[Variable] = vectorize_graph(inner.outputs, given)
    has_steps = all(
        found.type.ndim == output.type.ndim
        for found, output in zip(outputs, node.outputs, strict=True)
    )
    return outputs if has_steps else None


def lagged_product(node: Apply, depends: Depends) -> list[Variable] | None:
    """Write a convolution of data as the product of their lagged values with the weights.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    depends : callable
        Whether a variable depends on the parameters.

    Returns
    -------
    list of Variable, or None
        Of the one output.  None where the node is no convolution along the last axis, of data that
        are longer than the weights.

    Examples
    --------
    >>> w = pt.vector("w", shape=(2,))
    >>> effect = pt.signal.convolve1d(np.array([1.0, 2.0, 4.0]), w, mode="valid")
    >>> [found] = lagged_product(effect.owner, lambda v: v is w)
    >>> found.eval({w: [1.0, 0.5]})
    array([2.5, 5. ])
    """
    if not (isinstance(node.op, ops.Blockwise) and isinstance(node.op.core_op, ops.Convolve1d)):
        return None
    first, second, full = (cast(TensorVariable, v) for v in node.inputs)
    data, weights = (second, first) if depends(first) else (first, second)
    length, n_lags = data.type.shape[-1], weights.type.shape[-1]
    if depends(data) or length is None or n_lags is None or length < n_lags:
        return None
    if evaluate([full])[0]:
        zeros = pt.zeros((*data.shape[:-1], n_lags - 1), dtype=data.type.dtype)
        data, length = pt.join(-1, zeros, data, zeros), length + 2 * (n_lags - 1)
    lags = np.arange(length - n_lags + 1)[:, None] + np.arange(n_lags)
    return [(data[..., lags] * weights[..., None, ::-1]).sum(axis=-1)]


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
    found = _members(evaluate([index])[0] % n, n)
    if found is None:
        return None
    members, is_member = found
    inner = _split(_Key(y, 0), members.shape, members, depends)
    if inner is None:
        return None
    mask = is_member.reshape((*is_member.shape, *[1] * (y.type.ndim - 1)))
    return [x + pt.where(mask, inner, 0).sum(axis=1, dtype=x.type.dtype)]


def _members(labels: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """List the positions of each label, and which of the entries are such: (n, K) each.

    The others repeat a position of the same label, where a function of it has a derivative.  None
    where most entries would be others.
    """
    counts = np.bincount(labels, minlength=n)
    first, number = np.cumsum(counts) - counts, np.arange(max(int(counts.max()), 1))
    if not len(labels) or n * len(number) > _SPARSE * max(n, len(labels)):
        return None
    is_member = number < counts[:, None]
    places = np.minimum(first[:, None] + np.where(is_member, number, 0), len(labels) - 1)
    return np.argsort(labels, kind="stable")[places], is_member


def product_of_entries(node: Apply, depends: Depends) -> list[Variable] | None:
    """Write the product with a sparse matrix of data as a sum over the entries of each row.

    Rows with fewer entries than the longest are filled up with zeros.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    depends : callable
        Whether a variable depends on the parameters.

    Returns
    -------
    list of Variable, or None
        Of the one output; None if the node is no such product, or where the longest row has many
        times as many entries as there are on average.

    Examples
    --------
    >>> from pytensor.sparse import as_sparse_variable, structured_dot
    >>> b = pt.matrix("b", shape=(3, 1))
    >>> product = structured_dot(as_sparse_variable(sparse.csr_matrix([[0, 2.0, 0], [1, 0, 3]])), b)
    >>> [found] = product_of_entries(product.owner, lambda v: v is b)
    >>> found.eval({b: [[1.0], [10.0], [100.0]]})
    array([[ 20.],
           [301.]])
    """
    if not isinstance(node.op, ops.SparseDot | ops.StructuredDot):
        return None
    design, x = cast(list[Any], node.inputs)
    turned = depends(design)
    if turned:
        design, x = x.T, design.T
    if depends(design) or not isinstance(x, TensorVariable):
        return None
    rows = sparse.csr_array(evaluate([design])[0].item())
    found = _members(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.shape[0])
    if found is None:
        return None
    entries, is_entry = found
    values = np.where(is_entry, rows.data[entries], 0)
    products = values.reshape((*values.shape, *[1] * (x.type.ndim - 1))) * x[rows.indices[entries]]
    total = products.sum(axis=1, dtype=node.outputs[0].type.dtype)
    return [total.T if turned else total]


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


_FORMS = (
    _inlined,
    _looked_up,
    vectorised_loop,
    without_merged_axes,
    sum_of_members,
    lagged_product,
    product_of_entries,
)
