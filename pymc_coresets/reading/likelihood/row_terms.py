"""Likelihood terms and their rows; scalar log-densities are split into rows."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, cast

import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Variable, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import known_length, values_of
from pymc_coresets.reading.graphs import PlainModel
from pymc_coresets.reading.indexing import joints
from pymc_coresets.reading.known import KnownValues, reached
from pymc_coresets.reading.selection_rules import input_axes


class Addend(NamedTuple):
    """One array of several whose sums add up to the whole.

    Attributes
    ----------
    variable : TensorVariable
    axes : tuple of int
        The one along which its entries are terms of the sum; none where it is a log-prior.
    """

    variable: TensorVariable
    axes: tuple[int, ...] = ()

    @property
    def n_terms(self) -> int:
        """How many terms it has; none for a log-prior."""
        return sum(self.variable.type.shape[axis] or 0 for axis in self.axes)


#: What variables are the sums of.
type _Parts = Mapping[Variable, list[Addend]]


@dataclass(frozen=True)
class Term:
    """One likelihood term: an observed variable, or a potential with one value for each row.

    Attributes
    ----------
    name : str
        Name of the variable in the model.
    axis : int
        Its observation axis.
    length : int
        Its number of observations; 0 if it cannot be taken apart into any.
    """

    name: str
    axis: int
    length: int


@dataclass(frozen=True, eq=False)
class RowTerm:
    """A likelihood term with its rows, and for a scalar log-density the remaining terms.

    Attributes
    ----------
    term : Term
    rows : TensorVariable
        Its log-likelihoods, in nats, with the rows along the term's axis.
    is_sum : bool
        Whether the log-density is a scalar, the sum of the rows and of a log-prior.
    first : int
        Position of the first row in the variable's series: the last row is its last entry.
    rest : tuple of TensorVariable
        Parts of the log-density, in nats, that belong to no row; they stay in the coreset's model
        with weight one.
    grows : str
        Description of `rest` if it has many terms; empty if there are few.
    is_placed : bool
        Whether `rows` have zeros where values are missing, and all rows of the data.
    """

    term: Term
    rows: TensorVariable
    is_sum: bool = False
    first: int = 0
    rest: tuple[TensorVariable, ...] = ()
    grows: str = ""
    is_placed: bool = False

    @property
    def has_rows(self) -> bool:
        """Whether it is a sum of rows, or has one value for each."""
        return self.term.axis < len(self.rows.type.shape)


def row_term(plain: PlainModel, name: str, axis: int) -> RowTerm:
    """Find the rows of a term; take it apart if its log-likelihoods lack the axis of observations.

    Parameters
    ----------
    plain : PlainModel
    name : str
        The term.
    axis : int
        That of the observations.

    Returns
    -------
    RowTerm
        Without rows, if the log-likelihoods lack the axis and are no sum over it.

    Raises
    ------
    UnsupportedModelError
        If the number of rows depends on free variables.

    Notes
    -----
    The longest of the sums has the rows, and others of the same length are added to it entry by
    entry.  Where arrays are concatenated, a sum over them is one over each: so the first entries
    of a series, whose distribution is another, become a part of the log-prior.

    Examples
    --------
    >>> from pymc_coresets.reading.graphs import plain_model
    >>> with pm.Model() as model:
    ...     rho, start = pm.Normal("rho", shape=2), pm.Normal.dist(0.0, 1.0)
    ...     y = pm.AR("y", rho, sigma=1.0, init_dist=start, observed=[0.0, 1, 2, 3, 4, 5])
    >>> found = row_term(plain_model(model, ["y"]), "y", 0)
    >>> found.term, found.first
    (Term(name='y', axis=0, length=4), 2)
    """
    graph = plain.graphs[name]
    if axis < graph.type.ndim:
        for length in known_length(graph, axis):
            return RowTerm(Term(name, axis, length), graph)
        raise UnsupportedModelError(
            f"The number of observations of {name!r} depends on the values of free variables: "
            "there are no rows to choose from. Give the data a fixed length."
        )
    length = observed_length(plain.model, name, axis)
    addends = [
        part
        for addend in addends_of(graph, axis, length)
        for part in _without_joints(addend, plain.known)
    ]
    n_rows = max(part.n_terms for part in addends)
    if n_rows == 0:
        return RowTerm(Term(name, axis, 0), graph)
    rows = [part for part in addends if part.n_terms == n_rows]
    rest = [part for part in addends if part.n_terms != n_rows]
    n_others = sum(part.n_terms for part in rest)
    others = f"the sum of {n_others} terms in {name!r} that are not rows"
    return RowTerm(
        Term(name, 0, n_rows),
        sum_over_events([(part.variable, axis) for part in rows for axis in part.axes]),
        is_sum=True,
        first=max(length - n_rows, 0),
        rest=tuple(_with_known_parts(total_of([part.variable]), plain.known) for part in rest),
        grows=others if n_others > 100 else "",  # fewer terms cost next to nothing
    )


def observed_length(model: pm.Model, name: str, axis: int) -> int:
    """Return how many entries an observed variable has along an axis; 0 for potentials.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.0, 1.0, 2.0])
    >>> observed_length(model, "y", 0)
    3
    """
    variable = model[name]
    if variable not in model.rvs_to_values:
        return 0
    value = model.rvs_to_values[variable]
    [shape] = values_of([(value.values if isinstance(value, ops.XTensorVariable) else value).shape])
    return int(shape[axis]) if axis < len(shape) else 0


def _without_joints(part: Addend, known: KnownValues) -> list[Addend]:
    """Cut an array where others are joined in what it is computed from, along the same axis."""
    x, n_terms = part.variable, part.n_terms
    for axis in part.axes:
        cuts = sorted({0, n_terms} | {c for c in _cuts(x, axis, known) if 0 < c < n_terms})
        pieces = [slice(start, stop) for start, stop in pairwise(cuts)]
        longest = max((piece.stop - piece.start for piece in pieces), default=0)
        # If too few would be rows, the selection stops there, with a warning.
        if len(pieces) > 1 and 2 * longest >= n_terms:
            return [Addend(x[(slice(None),) * axis + (p,)], (axis,)) for p in pieces]
    return [part]


def _cuts(x: TensorVariable, axis: int, known: KnownValues) -> set[int]:
    cuts: set[int] = set()

    def below(place: tuple[Variable, int]) -> list[tuple[Variable, int]]:
        variable, axis = place
        op, node = ops.op_of(variable), variable.owner
        if not op or not known.depends(variable):
            return []
        cuts.update(start for start, _ in joints(node, axis))
        rules = [{0: axis}] if isinstance(op, ops.CheckAndRaise) else input_axes(op, node, axis)
        return [(node.inputs[i], a) for axes in rules for i, a in axes.items()]

    start: tuple[Variable, int] = (x, axis)
    list(reached([start], below))
    return cuts


def _with_known_parts(graph: TensorVariable, known: KnownValues) -> TensorVariable:
    """Evaluate what is computed from data alone, so that the data are not kept with it."""
    if not known.depends(graph):
        return ops.checked_tensor(pt.constant(known.value(graph)))
    nodes = [node for node in ops.io_toposort([], [graph]) if known.depends(node.outputs[0])]
    ready: dict[Variable, Variable] = {
        v: pt.constant(known.value(v), dtype=v.type.dtype)
        for v in dict.fromkeys(v for node in nodes for v in node.inputs)
        if isinstance(v, TensorVariable) and not (ops.is_input(v) or known.depends(v))
    }
    [folded] = clone_replace([graph], ready, rebuild_strict=False)
    return ops.checked_tensor(folded)


# -- sums ------------------------------------------------------------------------------------------


def total_of(graphs: Sequence[TensorVariable]) -> TensorVariable:
    """Return the sum of all entries of some graphs.

    Examples
    --------
    >>> float(total_of([pt.constant([1.0, 2.0]), pt.constant(3.0)]).eval())
    6.0
    """
    return _added([graph.sum() for graph in graphs])


def sum_over_events(graphs: Sequence[tuple[TensorVariable, int]]) -> TensorVariable:
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
    return ops.checked_tensor(pt.add(*graphs)) if len(graphs) > 1 else graphs[0]


def addends_of(total: TensorVariable, axis: int, length: int = 0) -> list[Addend]:
    """Take a sum apart, as far as it is linear in reductions over the axis of a series.

    Sums, differences, factors that all terms share, and parameter checks are passed.

    Parameters
    ----------
    total : TensorVariable
        Without that axis: a number, or one for each of several series.
    axis : int
        That of the variable along which the terms lie.
    length : int, default 0
        Its length in the data; 0 if it is not known how many terms there can be.

    Returns
    -------
    list of Addend
        The sums of all their entries add up to the sum of `total`.

    Examples
    --------
    >>> x, s = pt.vector("x", shape=(5,)), pt.scalar("s")
    >>> total = -0.5 * pt.sqr(x / s).sum() - 5 * pt.log(s)
    >>> [(part.axes, part.variable.type.shape) for part in addends_of(total, 0)]
    [((0,), (5,)), ((), ())]
    """
    known: dict[Variable, list[Addend]] = {}  # terms that are linear in sums
    for node in ops.io_toposort([], [total]):
        variable = node.outputs[0]
        shape = getattr(variable.type, "shape", (None,) * (axis + 1))
        if len(shape) > axis and math.prod(n or 0 for n in shape) != 1:
            continue  # an array that has terms itself
        found = list(_addends(node, axis, length, known))
        if any(part.axes for part in found):
            known[variable] = found
    return _parts(total, known)


def _parts(variable: Variable, known: _Parts) -> list[Addend]:
    return known.get(variable) or [Addend(ops.checked_tensor(variable))]


def _addends(node: Apply, axis: int, length: int, known: _Parts) -> Iterable[Addend]:
    """List what the output of a node is the sum of; nothing if it is not linear in its inputs."""
    if not node.inputs:
        return []
    x, *others = cast(list[TensorVariable], node.inputs)  # its index may be scalars
    core = node.op.core_op if isinstance(node.op, ops.Blockwise) else node.op
    if isinstance(core, ops.Dot) and node.outputs[0].type.shape == (1, 1) and axis == 0:
        return [Addend(x.dimshuffle(1) * others[0].dimshuffle(0), (0,))]
    if isinstance(node.op, ops.Sum):
        return [Addend(x, (a,)) for a in _axes_of_terms(node, axis, length)] or _parts(x, known)
    if isinstance(node.op, ops.DimShuffle):
        return _parts(x, known)
    if isinstance(node.op, ops.CheckAndRaise):
        parts = [(node.op(p.variable, *others), p.axes) for p in _parts(x, known)]
        return [Addend(ops.checked_tensor(checked), axes) for checked, axes in parts]
    if isinstance(node.op, ops.Elemwise):
        return _of_elemwise(node, known)
    return []


def _axes_of_terms(node: Apply, axis: int, length: int) -> list[int]:
    """Return the axis that has the terms of a sum, if one has."""
    shape = node.inputs[0].type.shape
    if len(shape) <= axis:
        return []
    longest = length or math.inf
    possible = [a for a in ops.axes_of(node.op, len(shape)) if 1 < (shape[a] or 0) <= longest]
    best = sorted(possible, key=lambda a: (shape[a] != length, a != axis))
    if axis > 0 and axis not in possible:
        best = [a for a in best if shape[a] == length]  # or it is another series
    return best[:1]


def _of_elemwise(node: Apply, known: _Parts) -> Iterator[Addend]:
    operation, inputs = node.op.scalar_op, node.inputs
    shape = node.outputs[0].type.shape
    if isinstance(operation, ps.Add | ps.Sub | ps.Neg):
        minus = {ps.Neg: 0, ps.Sub: 1}.get(type(operation))
        if all(None not in v.type.shape for v in (node.outputs[0], *inputs)):
            for i, v in enumerate(inputs):
                repeats = math.prod(shape) // max(math.prod(v.type.shape), 1)
                factor = -repeats if i == minus else repeats
                yield from (
                    p if factor == 1 else Addend(pt.mul(factor, p.variable), p.axes)
                    for p in _parts(v, known)
                )
    elif isinstance(operation, ps.Mul | ps.TrueDiv):
        numerators = range(len(inputs) if isinstance(operation, ps.Mul) else 1)
        main = max(numerators, key=lambda i: max(p.n_terms for p in _parts(inputs[i], known)))
        others = {i: pt.squeeze(v) for i, v in enumerate(inputs) if i != main}
        shared = all(all(inputs[i].type.broadcastable) for i in others)
        if shared and inputs[main].type.shape == shape:
            for p in _parts(inputs[main], known):
                own = [others.get(i, p.variable) for i in range(len(inputs))]
                yield Addend(ops.checked_tensor(node.op(*own)), p.axes)
