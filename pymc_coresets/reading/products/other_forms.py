"""Write operations that rows cannot be selected through by others that they can be."""

from collections.abc import Callable
from typing import cast

import numpy as np
import pytensor.tensor as pt
from pytensor import OpFromGraph
from pytensor.graph import Apply, Variable, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import inline_ofg_node
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.products.split_axes import sum_of_members, without_merged_axes
from pymc_coresets.reading.selection_rules import has_rule

#: Whether a variable is computed from any parameter.
type Depends = Callable[[Variable], bool]


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
    if not isinstance(node.op, ops.Scan):
        return None
    op, info = node.op, node.op.info
    inner = op.fgraph.unfreeze()
    n_alone = info.n_seqs + info.n_non_seqs
    if info.as_while or (len(inner.inputs), len(inner.outputs)) != (n_alone, info.n_nit_sot):
        return None
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


_FORMS = (
    _inlined,
    _looked_up,
    vectorised_loop,
    without_merged_axes,
    sum_of_members,
    lagged_product,
)
