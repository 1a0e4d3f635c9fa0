"""Operations that rows cannot be selected through, written by others that they can be."""

from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from pytensor import OpFromGraph
from pytensor.graph import Apply, Variable, vectorize_graph
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import inline_ofg_node
from pymc_coresets.reading.known import Known
from pymc_coresets.reading.selection_rules import has_rule, has_steps_alone, is_ragged

_SPARSE = 8  # times as many entries, most of which are none, as there were


def _inlined(node: Apply, known: Known) -> list[Variable] | None:  # noqa: ARG001
    if not isinstance(node.op, OpFromGraph) or has_rule(node.op):
        return None
    inlined: list[Variable] = inline_ofg_node(node)
    return inlined


def _looked_up(node: Apply, known: Known) -> list[Variable] | None:
    """Write a repetition as a lookup."""
    if not isinstance(node.op, ops.Repeat) or known.depends(node.inputs[1]):
        return None
    x, counts = cast(list[TensorVariable], node.inputs)
    length = x.type.shape[node.op.axis]
    if length is None:
        return None
    positions = np.repeat(np.arange(length), known.value(counts))
    return [x[(slice(None),) * node.op.axis + (positions,)]]


def vectorised_loop(node: Apply, known: Known) -> list[Variable] | None:  # noqa: ARG001
    """Write a loop whose steps do not depend on each other without one; None where they do.

    PyMC's log-density of a distribution that is written as a loop (``pytensor.scan``) is such a
    loop: each step takes the values of the steps before from the data.

    Examples
    --------
    >>> import pytensor
    >>> x, b = pt.vector("x"), pt.scalar("b")
    >>> y = pytensor.scan(lambda now, b: b * now, [x], non_sequences=[b], return_updates=False)
    >>> [vectorised] = vectorised_loop(y.owner, Known([b]))
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


def lagged_product(node: Apply, known: Known) -> list[Variable] | None:
    """Write a convolution of data as the product of their lagged values with the weights.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    known : Known
        Tells the parameters from data.

    Returns
    -------
    list of Variable, or None
        Of the one output.  None where the node is no convolution along the last axis, of data that
        are longer than the weights.

    Examples
    --------
    >>> w = pt.vector("w", shape=(2,))
    >>> effect = pt.signal.convolve1d(np.array([1.0, 2.0, 4.0]), w, mode="valid")
    >>> [found] = lagged_product(effect.owner, Known([w]))
    >>> found.eval({w: [1.0, 0.5]})
    array([2.5, 5. ])
    """
    if not (isinstance(node.op, ops.Blockwise) and isinstance(node.op.core_op, ops.Convolve1d)):
        return None
    first, second, full = (cast(TensorVariable, v) for v in node.inputs)
    data, weights = (second, first) if known.depends(first) else (first, second)
    length, n_lags = data.type.shape[-1], weights.type.shape[-1]
    if known.depends(data) or length is None or n_lags is None or length < n_lags:
        return None
    if known.value(full):
        zeros = pt.zeros((*data.shape[:-1], n_lags - 1), dtype=data.type.dtype)
        data, length = pt.join(-1, zeros, data, zeros), length + 2 * (n_lags - 1)
    lags = np.arange(length - n_lags + 1)[:, None] + np.arange(n_lags)
    return [(data[..., lags] * weights[..., None, ::-1]).sum(axis=-1)]


def members_of(labels: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray] | None:
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


def product_of_entries(node: Apply, known: Known) -> list[Variable] | None:
    """Write the product with a sparse matrix of data as a sum over the entries of each row.

    Rows with fewer entries than the longest are filled up with zeros.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    known : Known
        Tells the parameters from data.

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
    >>> [found] = product_of_entries(product.owner, Known([b]))
    >>> found.eval({b: [[1.0], [10.0], [100.0]]})
    array([[ 20.],
           [301.]])
    """
    if not isinstance(node.op, ops.SparseDot | ops.StructuredDot):
        return None
    design, x = cast(list[Any], node.inputs)
    turned = known.depends(design)
    if turned:
        design, x = x.T, design.T
    if known.depends(design) or not isinstance(x, TensorVariable):
        return None
    rows = sparse.csr_array(known.value(design).item())
    found = members_of(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.shape[0])
    if found is None:
        return None
    entries, is_entry = found
    values = np.where(is_entry, rows.data[entries], 0)
    products = values.reshape((*values.shape, *[1] * (x.type.ndim - 1))) * x[rows.indices[entries]]
    total = products.sum(axis=1, dtype=node.outputs[0].type.dtype)
    return [total.T if turned else total]


#: Other ways of writing an operation; each returns None where it does not apply.
FORMS = (_inlined, _looked_up, vectorised_loop, lagged_product, product_of_entries)
