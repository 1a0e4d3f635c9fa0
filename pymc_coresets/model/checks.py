"""Make the parameter checks of a log-density hold row by row.

PyMC guards a log-density with one check over all observations: a single bad row sends the whole
vector to minus infinity.  For any few rows the check has to be a statement about these rows:
``f_n = -inf`` exactly where a condition fails for row n.  The sum over all rows is unchanged.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar import AND, GE, GT, LE, Abs, Exp, Sigmoid, Softplus, Sqr
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.special import Softmax

__all__ = ["conditions", "guard", "row_axis"]

_NON_NEGATIVE = (Sigmoid, Exp, Softplus, Sqr, Abs)


def conditions(node: Apply) -> list[Variable]:
    """List the elementwise conditions of a check, without those that always hold."""
    found = (c for conjunction in node.inputs[1:] for c in _conjuncts(conjunction))
    return [c for c in dict.fromkeys(found) if not _always_true(c)]


def row_axis(condition: Variable, x: Variable, axis: int, n_obs: int) -> int | None:
    """Find the axis of `condition` that runs along the observations, which are `axis` of `x`.

    Parameters of a distribution broadcast against its value from the right; the event dimensions
    of a multivariate one come last.
    """
    for candidate in (axis, axis + condition.type.ndim - x.type.ndim):
        if 0 <= candidate < condition.type.ndim and condition.type.shape[candidate] == n_obs:
            return candidate
    return None


def guard(x: Variable, axis: int, checked: Sequence[tuple[Variable, int | None]]) -> Variable:
    """Set `x` to minus infinity in the rows where any of the conditions fails."""
    for condition, condition_axis in checked:
        others = [i for i in range(condition.type.ndim) if i != condition_axis]
        holds = condition.all(axis=others) if others else condition
        if condition_axis is not None:
            holds = holds.dimshuffle(["x"] * axis + [0] + ["x"] * (x.type.ndim - axis - 1))
        x = pt.switch(holds, x, np.array(-np.inf, dtype=x.type.dtype))
    return x


def _conjuncts(condition: Variable) -> Iterator[Variable]:
    node = condition.owner
    if node is not None and isinstance(node.op, ScalarFromTensor | TensorFromScalar | MakeVector):
        for part in node.inputs:
            yield from _conjuncts(part)
    elif node is not None and isinstance(node.op, CAReduce) and condition.type.ndim == 0:
        # All of all is all; any other reduction is a condition of its own.
        if isinstance(node.op.scalar_op, AND):
            yield from _conjuncts(node.inputs[0])
        else:
            yield condition
    else:
        yield condition


def _always_true(condition: Variable) -> bool:
    if isinstance(condition, Constant):
        return bool(np.all(condition.data))
    node = condition.owner
    if node is None or not isinstance(node.op, Elemwise) or len(node.inputs) != 2:
        return False
    left, right = (_without_views(i) for i in node.inputs)
    if not isinstance(right, Constant):
        return False
    if isinstance(node.op.scalar_op, GE):
        return _computed_by(left, _NON_NEGATIVE) and bool(np.all(right.data <= 0))
    if isinstance(node.op.scalar_op, LE):
        return _computed_by(left, (Sigmoid,)) and bool(np.all(right.data >= 1))
    # An underflow to zero of a positive function is no reason to reject a draw.
    if isinstance(node.op.scalar_op, GT):
        return _computed_by(left, (Exp, Softplus)) and bool(np.all(right.data <= 0))
    return False


def _computed_by(variable: Variable, functions: tuple[type, ...]) -> bool:
    node = variable.owner
    if node is None:
        return False
    if isinstance(node.op, Softmax):
        return True
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, functions)


def _without_views(variable: Variable) -> Variable:
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return variable
