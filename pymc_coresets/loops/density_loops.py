"""The compilation mode for densities of few rows: loops that compile quickly.

PyTensor's own loops for sums and maxima sort the axes by their strides, and those for filled arrays
assign to a whole array. For this, Numba compiles a sorting algorithm and its indexing rules, which
takes several seconds with an empty cache. A nested loop is as fast, and compiles in a tenth of a
second.
"""

# ruff: noqa: ARG001 (PyTensor determines the arguments of its callbacks)

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor import Mode, get_mode
from pytensor.graph import Apply, FunctionGraph, Variable, node_rewriter
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import numba_njit, register_funcify_and_cache_key
from pymc_coresets.loops.vectormath import compile_trigamma

_VERSION = f"{__name__} 2"  # version of these functions in the keys of PyTensor's cache


class LoopSum(ops.Sum):
    """A sum over one axis of an array with two or three."""


class LoopMax(ops.Max):
    """A maximum over one axis of an array with two or three; NaN if one is."""


class _LoopAlloc(ops.Alloc):
    """An array filled with one number."""


@node_rewriter([ops.Sum, ops.Max, ops.Alloc])  # type: ignore[untyped-decorator]
def as_loops_over_axes(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Replace sums, maxima and filled arrays by the functions of this module.

    It runs after the fusion of loops: sums inside fused loops stay there.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from pymc_coresets.compat.pytensor_api import dfs_rewriter
    >>> x = pt.dmatrix("x")
    >>> loops = dfs_rewriter(as_loops_over_axes)
    >>> mode = pytensor.compile.mode.get_mode("NUMBA").register((loops, 49.4))
    >>> pytensor.function([x], x.sum(axis=0), mode=mode)([[1.0, 2.0], [3.0, 4.0]])
    array([4., 6.])
    """
    first, out, op = node.inputs[0], node.outputs[0], node.op
    fresh: Any
    if type(op) in (ops.Sum, ops.Max) and _is_over_one_axis(op, first, out):
        kind: Any = LoopSum if type(op) is ops.Sum else LoopMax
        fresh = kind(axis=op.axis)
    elif type(op) is ops.Alloc and all(first.type.broadcastable) and out.type.ndim in (1, 2):
        fresh = _LoopAlloc()
    else:
        return None
    outputs: list[Variable] = fresh.make_node(*node.inputs).outputs
    return outputs


@node_rewriter([ops.Sum, ops.Max])  # type: ignore[untyped-decorator]
def as_loops_along_rows(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Replace maxima over the last of three axes, if it is short.

    NumPy takes ten times as long for a maximum of a few numbers.
    """
    if node.inputs[0].type.ndim < 3 or node.op.axis != (node.inputs[0].type.ndim - 1,):
        return None
    found: list[Variable] | None = as_loops_over_axes.transform(fgraph, node)
    return found


def _is_over_one_axis(op: ops.Sum | ops.Max, x: Variable, out: Variable) -> bool:
    """Whether the functions below compute a sum or maximum."""
    kinds = {x.type.dtype, out.type.dtype, getattr(op, "acc_dtype", None) or out.type.dtype}
    axes = () if op.axis is None else op.axis
    return kinds == {"float64"} and len(axes) == 1 and x.type.ndim in (2, 3)


@register_funcify_and_cache_key(LoopSum)  # type: ignore[untyped-decorator]
@register_funcify_and_cache_key(LoopMax)  # type: ignore[untyped-decorator]
def _reduce(op: LoopSum | LoopMax, node: Apply, **_: object) -> tuple[Callable[..., Any], str]:
    axis = op.axis[0] if op.axis else 0
    is_max, n_axes = isinstance(op, LoopMax), node.inputs[0].type.ndim
    start = -np.inf if is_max else 0.0

    # `axis` and `is_max` are constants for the compiler, so the loops have no branches.
    @numba_njit
    def of_matrix(x: np.ndarray) -> np.ndarray:
        total = np.full(x.shape[1] if axis == 0 else x.shape[0], start)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                place = j if axis == 0 else i
                old, new = total[place], x[i, j]
                if is_max:
                    total[place] = new if new > old or np.isnan(new) else old
                else:
                    total[place] = old + new
        return total

    @numba_njit
    def of_three(x: np.ndarray) -> np.ndarray:
        n_first = x.shape[1] if axis == 0 else x.shape[0]
        total = np.full((n_first, x.shape[1] if axis == 2 else x.shape[2]), start)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                for k in range(x.shape[2]):
                    first, second = j if axis == 0 else i, j if axis == 2 else k
                    old, new = total[first, second], x[i, j, k]
                    if is_max:
                        total[first, second] = new if new > old or np.isnan(new) else old
                    else:
                        total[first, second] = old + new
        return total

    key = f"{_VERSION} {type(op).__name__} {axis} {n_axes}"
    return (of_matrix if n_axes == 2 else of_three), key


@numba_njit
def _fill_1(value: object, n: np.ndarray) -> np.ndarray:
    return np.full(n.item(), np.asarray(value).item())


@numba_njit
def _fill_2(value: object, n: np.ndarray, m: np.ndarray) -> np.ndarray:
    return np.full((n.item(), m.item()), np.asarray(value).item())


@register_funcify_and_cache_key(_LoopAlloc)  # type: ignore[untyped-decorator]
def _fill(op: _LoopAlloc, node: Apply, **_: object) -> tuple[Callable[..., Any], str]:
    n_axes = len(node.inputs) - 1
    return (_fill_1 if n_axes == 1 else _fill_2), f"{_VERSION} fill {n_axes}"


@node_rewriter([ops.Blockwise])  # type: ignore[untyped-decorator]
def solve_small_systems(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Write the solution of many small triangular systems by elementwise operations.

    Otherwise LAPACK is called for each system, at 50 ns per call.
    """
    solver = node.op.core_op
    if not isinstance(solver, ops.SolveTriangular) or solver.unit_diagonal:
        return None
    a, b = ops.checked_tensors(node.inputs)
    size = a.type.shape[-1]
    if size is None or size > 6:  # unknowns, up to which elementwise operations are faster
        return None
    columns = (slice(None),) * (solver.b_ndim - 1)
    every = (...,) if solver.b_ndim == 1 else (..., None)
    found: dict[int, TensorVariable] = {}
    for i in range(size) if solver.lower else reversed(range(size)):
        left = b[(..., i, *columns)] - sum(a[..., i, j][every] * x for j, x in found.items())
        found[i] = left / a[..., i, i][every]
    return [pt.stack([found[i] for i in range(size)], axis=-solver.b_ndim)]


def density_mode() -> Mode | None:
    """Return the mode for densities of few rows, which are evaluated thousands of times.

    PyTensor's Numba mode makes one function of the whole graph, the fastest to run, but takes many
    seconds to compile a product with BLAS.  For a product with one vector, or with a small matrix,
    a loop is as fast, and compiled in a tenth of the time; so are sums and maxima over an axis.

    Returns
    -------
    Mode, or None
        None if PyTensor is configured to use another backend.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> X, b = pt.matrix("X"), pt.vector("b")
    >>> f = pytensor.function([X, b], X @ b, mode=density_mode())
    >>> f(np.eye(2), np.array([1.0, 2.0]))
    array([1., 2.])
    """
    default = get_mode(None)
    if not isinstance(default.linker, ops.NumbaLinker):
        return None
    mode: Mode = Mode(default.linker, default.provided_optimizer).register(
        (ops.dfs_rewriter(_loop_over_product), 48.1),
        (ops.dfs_rewriter(compile_trigamma), 48.4),
        (ops.dfs_rewriter(as_loops_over_axes), 49.4),  # after the fusion of loops
    )
    return mode


@node_rewriter([ops.Dot, ops.BatchedDot, ops.Blockwise])  # type: ignore[untyped-decorator]
def _loop_over_product(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite a matrix product with few multiplications per entry of its longest axis as a sum."""
    is_product = isinstance(node.op, ops.Dot | ops.BatchedDot) or isinstance(
        node.op.core_op, ops.Dot
    )
    if not is_product:
        return None
    a, b = ops.checked_tensors(node.inputs)
    inner = a.type.shape[-1] or b.type.shape[-2]
    lengths = [a.type.shape[-2], inner, b.type.shape[-1]]
    known = sorted(n for n in lengths if n is not None)
    # Up to 64 multiplications for each entry of the longest axis, a loop is as fast as BLAS.
    if 1 not in known and (len(known) < 2 or known[0] * known[1] > 64):
        return None
    transpose = ops.DimShuffle(input_ndim=2, new_order=(1, 0))
    if lengths[2] == 1 and isinstance(node.op, ops.Dot) and getattr(a.owner, "op", 0) == transpose:
        return [(a.owner.inputs[0] * b).sum(axis=0)[:, None]]  # contiguous along its rows
    if lengths[2] == 1:
        return [(a * pt.matrix_transpose(b)).sum(axis=-1, keepdims=True)]
    if lengths[0] == 1:
        return [(pt.matrix_transpose(a) * b).sum(axis=-2, keepdims=True)]
    return [(a[..., None] * b[..., None, :, :]).sum(axis=-2)]
