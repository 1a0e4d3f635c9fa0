"""Operations that rows cannot be selected through, in other forms; and applied to many cells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from pytensor import OpFromGraph
from pytensor.graph import Apply, FunctionGraph, Variable, vectorize_graph
from pytensor.tensor import TensorType, TensorVariable
from scipy import sparse

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import known_length
from pymc_coresets.reading.known import KnownValues
from pymc_coresets.reading.selection_rules import (
    Lengths,
    has_rule,
    has_steps_alone,
    is_ragged,
    rebuild,
)


def _inlined(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:  # noqa: ARG001
    if isinstance(node.op, OpFromGraph) and not has_rule(node.op):
        yield ops.inline_ofg_node(node)


def _looked_up(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:
    """Write a repetition as a lookup."""
    if not isinstance(node.op, ops.Repeat) or known.depends(node.inputs[1]):
        return
    x, counts = ops.checked_tensors(node.inputs)
    for length in known_length(x, node.op.axis):
        positions = np.repeat(np.arange(length), known.value(counts))
        yield [x[(slice(None),) * node.op.axis + (positions,)]]


def vectorised_loop(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:  # noqa: ARG001
    """Write a loop whose steps do not depend on each other without one.

    PyMC's log-density of a distribution that is written as a loop (``pytensor.scan``) is such a
    loop: each step takes the values of the steps before from the data.

    Examples
    --------
    >>> import pytensor
    >>> x, b = pt.vector("x"), pt.scalar("b")
    >>> y = pytensor.scan(lambda now, b: b * now, [x], non_sequences=[b], return_updates=False)
    >>> [[vectorised]] = vectorised_loop(y.owner, KnownValues([b]))
    >>> vectorised.eval({x: [1.0, 2.0], b: 3.0})
    array([3., 6.])
    """
    op = node.op
    if not isinstance(op, ops.Scan) or not has_steps_alone(op) or is_ragged(op):
        return
    inner = op.fgraph.unfreeze()
    n_steps, *_ = node.inputs
    steps = [x[:n_steps] for x in op.outer_seqs(node.inputs)]
    given = dict(zip(inner.inputs, [*steps, *op.outer_non_seqs(node.inputs)], strict=True))
    outputs: list[Variable] = vectorize_graph(inner.outputs, given)
    pairs = zip(outputs, node.outputs, strict=True)
    if all(found.type.ndim == output.type.ndim for found, output in pairs):
        yield outputs


def lagged_product(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:
    """Write a convolution of data as the product of their lagged values with the weights.

    Nothing if the node is no convolution along the last axis, of data that are longer than the
    weights.

    Examples
    --------
    >>> w = pt.vector("w", shape=(2,))
    >>> effect = pt.signal.convolve1d(np.array([1.0, 2.0, 4.0]), w, mode="valid")
    >>> [[found]] = lagged_product(effect.owner, KnownValues([w]))
    >>> found.eval({w: [1.0, 0.5]})
    array([2.5, 5. ])
    """
    if not (isinstance(node.op, ops.Blockwise) and isinstance(node.op.core_op, ops.Convolve1d)):
        return
    first, second, full = (ops.checked_tensor(v) for v in node.inputs)
    data, weights = (second, first) if known.depends(first) else (first, second)
    length, n_lags = data.type.shape[-1], weights.type.shape[-1]
    if known.depends(data) or None in (length, n_lags) or length < n_lags:
        return
    if known.value(full):
        zeros = pt.zeros((*data.shape[:-1], n_lags - 1), dtype=data.type.dtype)
        data, length = pt.join(-1, zeros, data, zeros), length + 2 * (n_lags - 1)
    lags = np.arange(length - n_lags + 1)[:, None] + np.arange(n_lags)
    yield [(data[..., lags] * weights[..., None, ::-1]).sum(axis=-1)]


def members_of(labels: np.ndarray, n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the positions of each label, and which of the entries are such: (n, K) each.

    The others repeat a position of the same label, where a function of it has a derivative.
    Nothing where most entries would be others.
    """
    counts = np.bincount(labels, minlength=n)
    first, number = np.cumsum(counts) - counts, np.arange(max(int(counts.max()), 1))
    # Eight times as many entries as there were, and most of them are none.
    if not len(labels) or n * len(number) > 8 * max(n, len(labels)):
        return
    is_member = number < counts[:, None]
    places = np.minimum(first[:, None] + np.where(is_member, number, 0), len(labels) - 1)
    yield np.argsort(labels, kind="stable")[places], is_member


def product_of_entries(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:
    """Write the product with a sparse matrix of data as a sum over the entries of each row.

    Rows with fewer entries than the longest are filled up with zeros.

    Nothing if the node is no such product, or where the longest row has many times as many entries
    as there are on average.

    Examples
    --------
    >>> from pytensor.sparse import as_sparse_variable, structured_dot
    >>> b = pt.matrix("b", shape=(3, 1))
    >>> product = structured_dot(as_sparse_variable(sparse.csr_matrix([[0, 2.0, 0], [1, 0, 3]])), b)
    >>> [[found]] = product_of_entries(product.owner, KnownValues([b]))
    >>> found.eval({b: [[1.0], [10.0], [100.0]]})
    array([[ 20.],
           [301.]])
    """
    if not isinstance(node.op, ops.SparseDot | ops.StructuredDot):
        return
    design, x = cast(list[Any], node.inputs)
    turned = known.depends(design)
    if turned:
        design, x = x.T, design.T
    if known.depends(design) or not isinstance(x, TensorVariable):
        return
    rows = sparse.csr_array(known.value(design).item())
    labels = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    for entries, is_entry in members_of(labels, rows.shape[0]):
        values = np.where(is_entry, rows.data[entries], 0)
        columns = values.reshape((*values.shape, *[1] * (x.type.ndim - 1)))
        products = columns * x[rows.indices[entries]]
        total = products.sum(axis=1, dtype=node.outputs[0].type.dtype)
        yield [total.T if turned else total]


#: Other ways of writing an operation; each yields nothing if it does not apply.
FORMS = (_inlined, _looked_up, vectorised_loop, lagged_product, product_of_entries)


@dataclass(frozen=True, eq=False)
class Cells:
    """Where the cells lie along some axes.

    Attributes
    ----------
    lengths : tuple of int
        Length of each axis.
    indices : tuple of ndarray of int, each of shape (n_cells,)
        Position of each cell along each axis; the positions of the K entries of each, (n_cells, K),
        along a single axis.

    Examples
    --------
    >>> Cells.all_of((2, 3)).indices
    (array([0, 0, 0, 1, 1, 1]), array([0, 1, 2, 0, 1, 2]))
    """

    lengths: tuple[int, ...]
    indices: tuple[np.ndarray, ...]

    @classmethod
    def all_of(cls, lengths: Sequence[int]) -> "Cells":
        """Return all cells in C order: the last axis is the fastest."""
        return cls.at(np.arange(np.prod(lengths, dtype=int)), lengths)

    @classmethod
    def at(cls, positions: np.ndarray, lengths: Sequence[int]) -> "Cells":
        """Return the cells at some positions in C order."""
        return cls(tuple(lengths), np.unravel_index(positions, tuple(lengths)))

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.indices[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one cell: that of its K entries, or of a number."""
        return self.indices[0].shape[1:]

    def is_whole_axis(self, part: int) -> bool:
        """Whether the cells are the entries of one axis, in their order."""
        return np.array_equal(self.indices[part].ravel(), np.arange(self.lengths[part]))

    def are_distinct_along(self, parts: Sequence[int]) -> bool:
        """Whether no two cells share an entry of an array that has only some of the axes."""
        flat = np.ravel_multi_index(
            [self.indices[i] for i in parts], [self.lengths[i] for i in parts]
        )
        return len(np.unique(flat)) == self.n_cells


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
        for product in _product(node, inputs):
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
    one = ops.checked_tensor(rebuild(node.op, node, arguments, known)[output])
    cells = {of_one[i]: v for i, v in inputs.items()}
    return ops.checked_tensor(vectorize_graph(one, cells)) if cells else pt.expand_dims(one, 0)


def _product(node: Apply, inputs: Mapping[int, TensorVariable]) -> Iterator[TensorVariable]:
    """Multiply one row of each cell by a matrix that all share, or by one column of each cell."""
    ndim = node.outputs[0].type.ndim
    if 0 not in inputs or set(inputs[0].type.shape[1:-1]) != {1}:
        return
    left, right = inputs[0], inputs.get(1, ops.checked_tensor(node.inputs[1]))
    if 1 in inputs and right.type.shape[-1] == 1:
        product = (left * right.swapaxes(-1, -2)).sum(axis=-1, keepdims=True)
        yield ops.checked_tensor(product)
    elif 1 not in inputs and set(right.type.shape[:-2]) <= {1}:
        matrix = right.dimshuffle(ndim - 2, ndim - 1)
        product = pt.dot(left.dimshuffle(0, ndim), matrix)
        yield ops.checked_tensor(product.dimshuffle(0, *["x"] * (ndim - 1), 1))


def _indexed(node: Apply, inputs: Mapping[int, TensorVariable]) -> TensorVariable:
    """Index by arrays that differ between cells."""
    x = ops.checked_tensor(node.inputs[0])
    given = [inputs.get(i, v) for i, v in enumerate(node.inputs)]
    entries = dict(enumerate(ops.unflatten_index_variables(given[1:], node.op.idx_list)))
    originals = ops.unflatten_index_variables(node.inputs[1:], node.op.idx_list)
    own = {i: e.type.ndim for i, e in enumerate(originals) if not isinstance(e, slice)}
    ndim = max(own.values())
    arrays = [_aligned(ops.checked_tensor(entries[i]), n, ndim) for i, n in own.items()]
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
    return ops.checked_tensor(taken.dimshuffle(order))


def _aligned(array: TensorVariable, own: int, ndim: int) -> TensorVariable:
    """Give an index array that has `own` axes behind the cells as many as the longest has."""
    if array.type.ndim == own:
        return array
    return ops.checked_tensor(array.dimshuffle(0, *["x"] * (ndim - own), *range(1, own + 1)))


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
    lift, merge = ops.dfs_rewriter(ops.local_dimshuffle_lift), ops.MergeOptimizer()
    before: set[Apply] = set()
    while before != fgraph.apply_nodes:
        before = set(fgraph.apply_nodes)
        lift.rewrite(fgraph)
        merge.rewrite(fgraph)  # what is used once only can be lifted through
    return ops.checked_tensors(list(fgraph.outputs))
