"""Free variables that rows see by comparisons alone: their log-likelihood is a step function."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytensor.scalar as ps
from pytensor.graph import Constant, Variable, ancestors
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.pushdown import RowArray

__all__ = ["refuse_jumps"]

_COMPARISONS: dict[type, str] = {
    ps.GT: ">",
    ps.GE: ">=",
    ps.LT: "<",
    ps.LE: "<=",
    ps.EQ: "==",
    ps.NEQ: "!=",
}
_ROUNDINGS = (ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.Sign)
_MOST_NAMES = 3  # of a side of a comparison


def refuse_jumps(
    loglik: TensorVariable, parameters: Mapping[str, TensorVariable], rows: Sequence[RowArray]
) -> None:
    """Refuse continuous variables along which the log-likelihood of every row only jumps.

    There is no curvature along them, and gradients do not lead to the jump.

    Parameters
    ----------
    loglik : TensorVariable
        The log-likelihood of each row.
    parameters : mapping of str to TensorVariable
        The free variables that it is a graph of.
    rows : sequence of RowArray
        The data that it is a graph of.

    Raises
    ------
    UnsupportedModelError
        If there is one, with the comparison that it enters.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> tau = pt.dscalar("tau")
    >>> try:
    ...     refuse_jumps(pt.switch(pt.dvector("t") > tau, 0.0, -1.0), {"tau": tau}, [])
    ... except UnsupportedModelError as error:
    ...     print(error.message[:65])
    Rows see 'tau' by a comparison or rounding alone, 't > tau': alon
    """
    smooth, steps = _followed(loglik)
    for variable in parameters.values():
        entered = [step for step in steps if variable in ancestors([step])]
        if not _is_continuous(variable) or variable in smooth or not entered:
            continue
        written = _written(entered, variable, {row.placeholder: row.name for row in rows})
        raise UnsupportedModelError(
            f"Rows see {variable.name!r} by a comparison or rounding alone, {written!r}: along it "
            "their log-likelihood is flat but for jumps, where it has no curvature and NUTS does "
            "not find its way. Write a steep smooth change in its place, low + (high - low) * "
            "pm.math.sigmoid((t - tau) / width) for pm.math.switch(t > tau, high, low), where the "
            "width is a small number or a free variable; or choose rows all the same, by "
            "method='pursuit' with weighting='prior' or draws of your own."
        )


def _is_continuous(variable: Variable) -> bool:
    return str(variable.type.dtype).startswith("float")


def _is_rounded(variable: Variable) -> bool:
    op = None if variable.owner is None else variable.owner.op
    return isinstance(op, ops.Elemwise) and isinstance(op.scalar_op, _ROUNDINGS)


def _followed(graph: Variable) -> tuple[set[Variable], list[Variable]]:
    """Return what a graph depends on through numbers that vary, and where they become discrete."""
    smooth: set[Variable] = set()
    steps, todo = list[Variable](), [graph]
    while todo:
        variable = todo.pop()
        if variable in smooth:
            continue
        if not _is_continuous(variable) or _is_rounded(variable):
            steps.append(variable)
            continue
        smooth.add(variable)
        todo.extend(variable.owner.inputs if variable.owner is not None else ())
    return smooth, steps


def _written(steps: list[Variable], variable: Variable, rows: Mapping[Variable, str]) -> str:
    """Write the comparison that a variable enters; its name where it enters none."""
    for step in ancestors(steps):
        op = None if step.owner is None else step.owner.op
        symbol = _COMPARISONS.get(type(getattr(op, "scalar_op", None)))
        if symbol is not None and isinstance(op, ops.Elemwise) and variable in ancestors([step]):
            left, right = (_side(v, rows) for v in step.owner.inputs)
            return f"{left} {symbol} {right}"
    return str(variable.name)


def _side(graph: Variable, rows: Mapping[Variable, str]) -> str:
    """Name what a side of a comparison depends on."""
    names = list(dict.fromkeys(_names(graph, rows)))
    return ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


def _names(graph: Variable, rows: Mapping[Variable, str]) -> Iterator[str]:
    for variable in ancestors([graph]):
        if variable in rows:
            yield rows[variable]
        elif isinstance(variable, Constant):
            yield from [str(variable.data)] if np.ndim(variable.data) == 0 else ()
        elif variable.owner is None and variable.name:
            yield variable.name
