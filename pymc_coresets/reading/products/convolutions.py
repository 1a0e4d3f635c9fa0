"""Write a convolution of data with few weights as a product: each row has its own lags."""

from collections.abc import Callable
from typing import cast

import numpy as np
import pytensor.tensor as pt

from pymc_coresets.compat.pytensor_api import (
    Apply,
    Blockwise,
    Convolve1d,
    TensorVariable,
    Variable,
)
from pymc_coresets.reading.folding import evaluate

__all__ = ["lagged_product"]


def lagged_product(node: Apply, depends: Callable[[Variable], bool]) -> list[Variable] | None:
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
    if not (isinstance(node.op, Blockwise) and isinstance(node.op.core_op, Convolve1d)):
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
