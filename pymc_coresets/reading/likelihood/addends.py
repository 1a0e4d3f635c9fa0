"""Find the arrays whose sums add up to a log-density that is one number."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort

#: What is applied to each part of a sum: a sign, a factor, or a check of the parameters.
type Wrap = Callable[[Variable], Variable]

#: A variable, and what is applied to its parts, the outermost first.
type _Wrapped = tuple[Variable, tuple[Wrap, ...]]


class Series(NamedTuple):
    """Where the terms of a sum are looked for.

    Attributes
    ----------
    axis : int
        The axis of the variable that they lie along.
    length : int or None
        Its length, where it is known how many terms there can be.
    """

    axis: int
    length: int | None


class Addend(NamedTuple):
    """One array of several whose sums add up to the whole.

    Attributes
    ----------
    variable : TensorVariable
    axis : int or None
        Along which its entries are terms of the sum; ``None`` where it is a remainder.
    """

    variable: TensorVariable
    axis: int | None


def total_of(graphs: Sequence[TensorVariable]) -> TensorVariable:
    """Return the sum of all entries of some graphs.

    Examples
    --------
    >>> float(total_of([pt.constant([1.0, 2.0]), pt.constant(3.0)]).eval())
    6.0
    """
    return _added([graph.sum() for graph in graphs])


def sum_over_events(graphs: Sequence[tuple[TensorVariable, int | None]]) -> TensorVariable:
    """Add up the terms, and within them the events, of each observation.

    Parameters
    ----------
    graphs : sequence of (TensorVariable, int)
        The terms, and their axes that have the observations.

    Examples
    --------
    >>> sum_over_events([(pt.ones((2, 3)), 0), (pt.ones(2), 0)]).eval()
    array([4., 4.])
    """
    others = [[i for i in range(graph.type.ndim) if i != axis] for graph, axis in graphs]
    return _added([g.sum(axis=o) if o else g for (g, _), o in zip(graphs, others, strict=True)])


def _added(graphs: Sequence[TensorVariable]) -> TensorVariable:
    return cast(TensorVariable, pt.add(*graphs)) if len(graphs) > 1 else graphs[0]


def addends_of(total: TensorVariable, series: Series) -> list[Addend]:
    """Take a sum apart, as far as it is linear in reductions over the axis of the series.

    Sums, differences, factors that all terms share, and parameter checks are passed.

    Parameters
    ----------
    total : TensorVariable
        With fewer axes than `series` asks for: a number, or one for each of several series.
    series : Series

    Returns
    -------
    list of Addend
        The sums of all their entries add up to the sum of `total`.

    Examples
    --------
    >>> x, s = pt.vector("x", shape=(5,)), pt.scalar("s")
    >>> total = -0.5 * pt.sqr(x / s).sum() - 5 * pt.log(s)
    >>> [(part.axis, part.variable.type.shape) for part in addends_of(total, Series(0, None))]
    [(None, ()), (0, (5,))]
    """
    lengths = _longest(total, series)
    found: list[Addend] = []
    stack: list[_Wrapped] = [(total, ())]
    while stack:
        variable, wraps = stack.pop()
        terms = _reduced(variable, series) if lengths.get(variable) else None
        if terms is not None and terms.axis is not None:
            found.append(Addend(_wrapped(terms.variable, wraps), terms.axis))
        elif lengths.get(variable):
            stack += [(v, wraps + w) for v, w in _operands(variable, terms, lengths)]
        else:
            found.append(Addend(_wrapped(variable, wraps), None))
    return found


def _longest(total: TensorVariable, series: Series) -> dict[Variable, int]:
    """Return how many terms the longest sum has that each variable is linear in."""
    lengths: dict[Variable, int] = {}
    for node in io_toposort([], [total]):
        variable = node.outputs[0]
        shape = getattr(variable.type, "shape", (None,) * (series.axis + 1))
        if len(shape) > series.axis and math.prod(n or 0 for n in shape) != 1:
            continue  # an array that has terms itself
        terms = _reduced(variable, series)
        if terms is not None and terms.axis is not None:
            lengths[variable] = terms.variable.type.shape[terms.axis] or 0
        else:
            below = [lengths.get(v, 0) for v, _ in _operands(variable, terms, lengths)]
            lengths[variable] = max(below, default=0)
    return lengths


def _reduced(variable: Variable, series: Series) -> Addend | None:
    """Return the array that a variable is the sum of, and its axis that has the terms."""
    node = variable.owner
    core = node.op.core_op if isinstance(node.op, ops.Blockwise) else node.op
    if isinstance(core, ops.Dot) and variable.type.shape == (1, 1) and series.axis == 0:
        row, column = node.inputs
        return Addend(row.dimshuffle(1) * column.dimshuffle(0), 0)
    if not isinstance(node.op, ops.Sum):
        return None
    x = cast(TensorVariable, node.inputs[0])
    if x.type.ndim <= series.axis:
        return Addend(x, None)
    axes = range(x.type.ndim) if node.op.axis is None else [a % x.type.ndim for a in node.op.axis]
    longest = series.length or math.inf
    possible = [a for a in axes if 1 < (x.type.shape[a] or 0) <= longest]
    best = sorted(possible, key=lambda a: (x.type.shape[a] != series.length, a != series.axis))
    if series.axis > 0 and series.axis not in possible:
        best = [a for a in best if x.type.shape[a] == series.length]  # or it is another series
    return Addend(x, best[0] if best else None)


def _wrapped(variable: Variable, wraps: Sequence[Wrap]) -> TensorVariable:
    for wrap in reversed(wraps):
        variable = wrap(variable)
    return cast(TensorVariable, variable)


# -- linear operations -----------------------------------------------------------------------------


def _operands(
    variable: Variable, terms: Addend | None, lengths: dict[Variable, int]
) -> list[_Wrapped]:
    """List what a variable is linear in, and what is applied to each; nothing if it is not."""
    node = variable.owner
    if terms is not None:
        return [(terms.variable, ())]
    if isinstance(node.op, ops.DimShuffle):
        return [(node.inputs[0], ())]
    if isinstance(node.op, ops.CheckAndRaise):
        x, *conditions = node.inputs
        return [(x, (lambda part: node.op(part, *conditions),))]
    if isinstance(node.op, ops.Elemwise):
        return list(_of_elemwise(node, lengths))
    return []


def _of_elemwise(node: Apply, lengths: dict[Variable, int]) -> Iterator[_Wrapped]:
    operation, inputs = node.op.scalar_op, node.inputs
    shape = node.outputs[0].type.shape
    if isinstance(operation, ps.Add | ps.Sub | ps.Neg):
        minus = {ps.Neg: 0, ps.Sub: 1}.get(type(operation))
        if all(None not in v.type.shape for v in (node.outputs[0], *inputs)):
            for i, v in enumerate(inputs):
                repeats = math.prod(shape) // max(math.prod(v.type.shape), 1)
                yield v, _times(-repeats if i == minus else repeats)
    elif isinstance(operation, ps.Mul | ps.TrueDiv):
        numerators = range(len(inputs) if isinstance(operation, ps.Mul) else 1)
        main = max(numerators, key=lambda i: lengths.get(inputs[i], 0))
        shared = all(all(v.type.broadcastable) for i, v in enumerate(inputs) if i != main)
        if shared and inputs[main].type.shape == shape:
            yield inputs[main], (_scaled_as(node, main),)


def _times(factor: int) -> tuple[Wrap, ...]:
    return () if factor == 1 else (lambda part: pt.mul(factor, part),)


def _scaled_as(node: Apply, main: int) -> Wrap:
    """Multiply or divide other arrays by what a node multiplies or divides an input by."""

    def scaled(part: Variable) -> Variable:
        inputs = [part if i == main else pt.squeeze(v) for i, v in enumerate(node.inputs)]
        return cast(Variable, node.op(*inputs))

    return scaled
