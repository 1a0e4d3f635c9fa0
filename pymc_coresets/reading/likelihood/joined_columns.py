"""Join the columns of a long sum of coefficients times columns: one product with a matrix."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import FunctionGraph, Variable, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.reading.pushdown import RowArray

type _Columns = Mapping[Variable, RowArray]


def join_columns(
    graphs: Sequence[TensorVariable], rows: Sequence[RowArray]
) -> tuple[list[TensorVariable], list[RowArray]]:
    """Write ``b1 * x1 + b2 * x2 + ...`` in graphs of rows as ``X @ [b1, b2, ...]``.

    Time and memory: a copy of the columns, where a sum has ten such terms or more.

    Parameters
    ----------
    graphs : sequence of TensorVariable
        They are changed in place.
    rows : sequence of RowArray
        The arrays that their placeholders stand for.  Those with a name stay as they are: users
        may know them by it, or put others in their place.

    Returns
    -------
    graphs : list of TensorVariable
    rows : list of RowArray
        Those that the graphs still need, and the matrices.

    Examples
    --------
    >>> b, x = [pt.dscalar() for _ in range(12)], [pt.dvector() for _ in range(12)]
    >>> rows = [RowArray(v, pt.zeros(5), np.zeros(5), 0) for v in x]
    >>> _, found = join_columns([sum(c * v for c, v in zip(b, x))], rows)
    >>> [row.values.shape for row in found]
    [(5, 12)]
    """
    columns: dict[Variable, RowArray] = {
        r.placeholder: r for r in rows if r.source.name is None and _is_column(r.placeholder)
    }
    fgraph = FunctionGraph(outputs=list(graphs), clone=False)
    joined: dict[tuple[Variable, ...], RowArray] = {}
    for total in _sums(fgraph.outputs):
        terms, others = _terms_of(total, columns)
        if len(terms) >= 10:  # with fewer, a matrix saves nothing
            added = tuple(terms)
            joined[added] = joined.get(added) or _matrix(
                [columns[v] for v in added], total.type.dtype
            )
            coefficients = pt.stack([pt.add(*c) if len(c) > 1 else c[0] for c in terms.values()])
            product = joined[added].placeholder @ coefficients
            column = product.dimshuffle(0, *["x"] * (total.type.ndim - 1))
            found = pt.add(column, *others) if others else column
            fgraph.replace(total, found, import_missing=True)
    gone = {v for added in joined for v in added}.difference(graph_inputs(fgraph.outputs))
    outputs = ops.checked_tensors(list(fgraph.outputs))
    return outputs, [*(r for r in rows if r.placeholder not in gone), *joined.values()]


def _sums(graphs: Sequence[Variable]) -> list[Variable]:
    """List the sums with one value per row that are not parts of others."""
    nodes = io_toposort([], list(graphs))
    outputs = (node.outputs[0] for node in nodes)
    sums = [v for v in outputs if isinstance(ops.scalar_op_of(v), ps.Add)]
    parts = {v for total in sums for v in total.owner.inputs if v.type == total.type}
    return [total for total in sums if _is_column(total) and total not in parts]


def _is_column(variable: Variable) -> bool:
    """Whether a variable has just one number for each row."""
    shape: tuple[int | None, ...] = variable.type.shape
    return shape[:1] == (None,) and all(n == 1 for n in shape[1:])


def _terms_of(
    total: Variable, columns: _Columns
) -> tuple[dict[Variable, list[Variable]], list[Variable]]:
    """Return the coefficients of each column in a sum, and what else is added."""
    terms: dict[Variable, list[Variable]] = {}
    others = []
    for part in _addends(total):
        inputs = part.owner.inputs if isinstance(ops.scalar_op_of(part), ps.Mul) else []
        known = [v for v in inputs if v in columns]
        scalars = [v for v in inputs if v not in columns]
        fits = all(all(v.type.broadcastable) and v.type.dtype == total.type.dtype for v in scalars)
        if len(known) == 1 and fits:
            factors = [_number(v) for v in scalars]
            coefficient = pt.mul(*factors) if len(factors) > 1 else factors[0]
            terms.setdefault(known[0], []).append(coefficient)
        else:
            others.append(part)
    return terms, others


def _addends(total: Variable) -> Iterator[Variable]:
    stack = [total]
    while stack:
        part = stack.pop()
        if isinstance(ops.scalar_op_of(part), ps.Add) and part.type == total.type:
            stack.extend(reversed(part.owner.inputs))
        else:
            yield part


def _number(v: Variable) -> Variable:
    inner = v.owner.inputs[0] if isinstance(ops.op_of(v), ops.DimShuffle) else v
    return inner if inner.type.ndim == 0 else ops.checked_tensor(v).dimshuffle()


def _matrix(columns: Sequence[RowArray], dtype: str) -> RowArray:
    placeholder = pt.tensor(dtype=dtype, shape=(None, len(columns)))
    values = np.stack([row.values.ravel() for row in columns], axis=1, dtype=dtype)
    source = pt.stack([pt.flatten(row.source) for row in columns], axis=1)
    return RowArray(placeholder, source, values, 0, columns[0].own)
