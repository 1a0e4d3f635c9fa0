"""Sums over an axis of a matrix, and filled arrays, as loops that are quick to compile.

PyTensor's own loops for them sort the axes by their strides, and assign to a whole array: for that
Numba compiles a sorting algorithm and its rules for indices, which takes several seconds where
nothing is cached.  A nested loop over a matrix runs as fast, and takes a tenth of a second.
"""

# ruff: noqa: ARG001 (PyTensor determines the arguments of its callbacks)

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_coresets.compat.pytensor_api import (
    Alloc,
    Apply,
    FunctionGraph,
    Sum,
    Variable,
    node_rewriter,
    numba_njit,
    register_funcify_and_cache_key,
)

__all__ = ["as_plain_loops"]

_VERSION = 1  # of the functions here, for PyTensor's cache


class _PlainSum(Sum):
    """A sum over one axis of a matrix."""


class _PlainAlloc(Alloc):
    """An array of a number."""


@node_rewriter([Sum, Alloc])  # type: ignore[untyped-decorator]
def as_plain_loops(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Have sums and filled arrays compiled by the functions of this module.

    Those that elementwise loops were fused with are compiled there: this comes after.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from pymc_coresets.compat.pytensor_api import dfs_rewriter
    >>> x = pt.dmatrix("x")
    >>> loops = dfs_rewriter(as_plain_loops)
    >>> mode = pytensor.compile.mode.get_mode("NUMBA").register((loops, 49.4))
    >>> pytensor.function([x], x.sum(axis=0), mode=mode)([[1.0, 2.0], [3.0, 4.0]])
    array([4., 6.])
    """
    first, out, op = node.inputs[0], node.outputs[0], node.op
    fresh: Any = None
    if type(op) is Sum and first.type.ndim == 2 and op.axis is not None and len(op.axis) == 1:
        kinds = {first.type.dtype, out.type.dtype, op.acc_dtype or out.type.dtype}
        if kinds == {"float64"}:
            plain: Any = _PlainSum
            fresh = plain(axis=op.axis, dtype=op.dtype, acc_dtype=op.acc_dtype)
    elif type(op) is Alloc and all(first.type.broadcastable) and 1 <= out.type.ndim <= len(_FILLS):
        fresh = _PlainAlloc()
    if fresh is None:
        return None
    outputs: list[Variable] = fresh.make_node(*node.inputs).outputs
    return outputs


@register_funcify_and_cache_key(_PlainSum)  # type: ignore[untyped-decorator]
def _sum(op: _PlainSum, **_: Any) -> tuple[Callable[..., Any], str]:  # noqa: ANN401
    @numba_njit
    def over_rows(x: np.ndarray) -> np.ndarray:
        total = np.zeros(x.shape[1])
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                total[j] += x[i, j]
        return total

    @numba_njit
    def over_columns(x: np.ndarray) -> np.ndarray:
        total = np.zeros(x.shape[0])
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                total[i] += x[i, j]
        return total

    axis = op.axis[0] if op.axis else 0
    return (over_columns if axis else over_rows), f"pymc_coresets sum {axis} {_VERSION}"


@numba_njit
def _fill_1(value: Any, n: np.ndarray) -> np.ndarray:  # noqa: ANN401
    return np.full(n.item(), np.asarray(value).item())


@numba_njit
def _fill_2(value: Any, n: np.ndarray, m: np.ndarray) -> np.ndarray:  # noqa: ANN401
    return np.full((n.item(), m.item()), np.asarray(value).item())


_FILLS = (_fill_1, _fill_2)


@register_funcify_and_cache_key(_PlainAlloc)  # type: ignore[untyped-decorator]
def _fill(op: _PlainAlloc, node: Apply, **_: Any) -> tuple[Callable[..., Any], str]:  # noqa: ANN401
    n_axes = len(node.inputs) - 1
    return _FILLS[n_axes - 1], f"pymc_coresets fill {n_axes} {_VERSION}"
