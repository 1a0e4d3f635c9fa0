"""Products of a symmetric matrix, dense or sparse, as graphs that every backend compiles."""

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from pytensor import OpFromGraph
from pytensor.graph import Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import (
    disconnected_type,
    numba_njit,
    register_funcify_and_cache_key,
)


class _SymmetricProduct(OpFromGraph):
    """A graph of gathers and a scatter, and in Numba's mode one loop, six times as fast."""


@register_funcify_and_cache_key(_SymmetricProduct)  # type: ignore[untyped-decorator]
def _loop(*_: Any, **__: Any) -> tuple[Any, str]:  # noqa: ANN401
    @numba_njit
    def product(
        entries: np.ndarray, rows: np.ndarray, columns: np.ndarray, x: np.ndarray
    ) -> np.ndarray:
        total = np.zeros(len(x))
        for k in range(len(entries)):
            total[rows[k]] += entries[k] * x[columns[k]]
        return total

    return product, "pymc_coresets symmetric product 2"


@cache
def _operation() -> _SymmetricProduct:
    entries, x = pt.vector("entries", dtype="float64"), pt.vector("x", dtype="float64")
    rows, columns = pt.vector("rows", dtype="int32"), pt.vector("columns", dtype="int32")
    product = pt.zeros_like(x)[rows].inc(entries * x[columns])

    def pullback(inputs: Any, _: Any, cotangents: Any) -> list[Variable]:  # noqa: ANN401
        # Without a derivative for the matrix: it is data.
        none: Any = [disconnected_type()] * 3
        return [*none, operation(*inputs[:3], *cotangents)]

    operation = _SymmetricProduct(
        [entries, rows, columns, x],
        [product],
        pullback=pullback,
        connection_pattern=[[False], [False], [False], [True]],
    )
    return operation


def symmetric_product(
    entries: Variable, rows: Variable, columns: Variable, x: TensorVariable
) -> TensorVariable:
    """Return the graph of ``A @ x``, for a symmetric matrix A in coordinate format.

    PyTensor's own sparse product has no gradient in JAX's mode, and is slow in Numba's.

    Parameters
    ----------
    entries : Variable of float64, of shape (n_entries,)
    rows, columns : Variable of int32, of shape (n_entries,)
        Both triangles are listed.
    x : TensorVariable of float64, of shape (p,)

    Examples
    --------
    >>> import pytensor
    >>> numbers = pt.vector("v"), pt.ivector("i"), pt.ivector("j"), pt.vector("x")
    >>> product = pytensor.function(list(numbers), symmetric_product(*numbers))
    >>> product([2.0, 5.0, 5.0], [0, 0, 1], [0, 1, 0], [1.0, 1.0])
    array([7., 5.])
    """
    return cast(TensorVariable, _operation()(entries, rows, columns, x))


@cache
def _half_form(*, is_sparse: bool) -> OpFromGraph:
    matrix: list[TensorVariable] = [pt.matrix("matrix", dtype="float64")]
    if is_sparse:
        matrix = [pt.vector(dtype="float64"), pt.vector(dtype="int32"), pt.vector(dtype="int32")]
    x = pt.vector("x", dtype="float64")

    def pullback(inputs: Any, _: Any, cotangents: Any) -> list[Variable]:  # noqa: ANN401
        none: Any = [disconnected_type()] * len(matrix)
        return [*none, cotangents[0] * _product(*inputs)]

    return OpFromGraph(
        [*matrix, x],
        [x @ _product(*matrix, x) / 2],
        inline=True,
        pullback=pullback,
        connection_pattern=[*([False] for _ in matrix), [True]],
    )


def _product(*matrix_and_x: TensorVariable) -> TensorVariable:
    if len(matrix_and_x) > 2:
        return symmetric_product(*matrix_and_x)
    matrix, x = matrix_and_x
    return cast(TensorVariable, matrix @ x)


def half_form(matrix: Sequence[Variable], x: TensorVariable) -> TensorVariable:
    """Return the graph of ``x' A x / 2`` for a symmetric matrix A.

    Its gradient is the product ``A x``, which the value has computed: one pass over A, where the
    gradient of the written formula, which knows of no symmetry, makes three.

    Parameters
    ----------
    matrix : sequence of Variable
        A itself, or what `symmetric_product` takes.
    x : TensorVariable of float64, of shape (p,)

    Examples
    --------
    >>> import pytensor
    >>> A, x = pt.matrix("A"), pt.vector("x")
    >>> form = half_form([A], x)
    >>> both = pytensor.function([A, x], [form, pt.grad(form, x)])
    >>> both([[2.0, 1.0], [1.0, 4.0]], [1.0, 1.0])
    [array(4.), array([3., 5.])]
    """
    return cast(TensorVariable, _half_form(is_sparse=len(matrix) > 1)(*matrix, x))
