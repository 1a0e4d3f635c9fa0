"""Push a selection of observations down a graph to the data it is computed from.

A pointwise log-likelihood is computed for all N observations at once.  To have it for any few
of them, at the cost of those few, the selection ``loglik[rows]`` has to travel from the output
of the graph to its inputs: ``(X @ beta)[rows] == X[rows] @ beta``.  Each Op has one rule, which
says along which axis of each input row ``n`` of the output needs row ``n`` alone.  A part that
does not depend on the parameters becomes a *row array*: it is evaluated once, and stands in the
new graph as an input that accepts any rows.

Where no rule is known the selection is made on the spot.  That is always correct, but its cost
still grows with N; :attr:`Pushdown.unselected` names these places.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.mode import Mode
from pytensor.compile.ops import TypeCastingOp
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.linalg.solvers.core import SolveBase
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    unflatten_index_variables,
)

from pymc_coresets.model import checks

__all__ = ["Pushdown", "RowArray", "evaluate"]

#: For each input of a node: the axis to select along, or None where it is taken whole.
type InputAxes = Sequence[int | None]


@dataclass(frozen=True, eq=False)
class RowMap:
    """Which position of an inner axis each observation uses; ``None`` is the identity."""

    positions: np.ndarray | None = None

    def compose(self, inner: np.ndarray) -> "RowMap":
        return RowMap(inner if self.positions is None else inner[self.positions])


ALL_ROWS = RowMap()


@dataclass(frozen=True, eq=False)
class RowArray:
    """One array that is indexed by the observation.

    Attributes
    ----------
    placeholder : Variable
        The input of the selected graph that stands for any rows of the array.
    source : Variable
        The variable of the original graph that the rows are taken from.
    values : ndarray
        The array, with all ``n_obs`` rows along `axis`.
    axis : int
        The observation axis.
    """

    placeholder: Variable
    source: Variable
    values: np.ndarray
    axis: int

    @property
    def name(self) -> str:
        """The name of the array, or of the nearest named variable that it is computed from."""
        named = (v.name for v in ancestors([self.source]) if v.name)
        return self.source.name or next(named, "an unnamed array")

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """Give the rows at the positions `rows` (a view for a slice)."""
        index = (slice(None),) * self.axis + (rows,)
        return self.values[index]


def evaluate(variables: Sequence[Variable]) -> list[np.ndarray]:
    """Evaluate variables without free inputs, by NumPy, with nothing to compile.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> evaluate([pt.constant([1.0, 2.0]) * 2])
    [array([2., 4.])]
    """
    computed = [v for v in dict.fromkeys(variables) if not isinstance(v, Constant)]
    values: dict[Variable, Any] = {v: v.data for v in variables if isinstance(v, Constant)}
    if computed:
        plain = Mode(linker="py", optimizer=None)
        results = pytensor.function([], computed, mode=plain, on_unused_input="ignore")()
        values |= dict(zip(computed, results, strict=True))
    return [np.asarray(values[v]) for v in variables]


class _Key(NamedTuple):
    variable: Variable
    axis: int
    rows: RowMap


class _Step(NamedTuple):
    """How to select `key`: first its `needs`, then `build` from their selections."""

    needs: tuple[_Key, ...]
    build: Callable[[list[Variable]], Variable]


class Pushdown:
    """Select observations in graphs that share parameters and data.

    Parameters
    ----------
    parameters : iterable of Variable
        The free inputs of the graphs.  All their other inputs are data.
    n_obs : int
        The number of observations N.

    Attributes
    ----------
    n_rows : Variable
        Scalar input of the selected graphs: how many rows they are evaluated for.
    unselected : list of str
        Places where the selection could not be pushed further, by name.
    local : set of Variable
        Parameters that have an observation axis themselves (local latent variables).
    """

    def __init__(self, parameters: Iterable[Variable], n_obs: int) -> None:
        self.parameters = frozenset(parameters)
        self.n_obs = n_obs
        self.n_rows = pt.lscalar("n_rows")
        self.unselected: list[str] = []
        self.local: set[Variable] = set()
        self._dependent: dict[Variable, bool] = {}
        self._memo: dict[_Key, Variable] = {}
        self._leaves: dict[_Key, Variable] = {}
        self._positions = _Key(pt.arange(n_obs), 0, ALL_ROWS)

    def select(self, variable: Variable, axis: int) -> Variable:
        """Give `variable` with the rows of the placeholders along `axis`, instead of all N."""
        stack = [_Key(variable, axis, ALL_ROWS)]
        steps: dict[_Key, _Step] = {}
        while stack:
            key = stack[-1]
            if key in self._memo:
                stack.pop()
                continue
            if key not in steps:
                steps[key] = self._plan(key)
            step = steps[key]
            missing = [need for need in step.needs if need not in self._memo]
            if missing:
                stack.extend(missing)
            else:
                self._memo[key] = step.build([self._memo[need] for need in step.needs])
        return self._memo[_Key(variable, axis, ALL_ROWS)]

    def row_arrays(self) -> list[RowArray]:
        """Evaluate the row arrays that the selections so far depend on."""
        keys = list(self._leaves)
        values = evaluate([key.variable for key in keys])
        return [
            RowArray(
                placeholder=self._leaves[key],
                source=key.variable,
                values=value
                if key.rows.positions is None
                else np.take(value, key.rows.positions, axis=key.axis),
                axis=key.axis,
            )
            for key, value in zip(keys, values, strict=True)
        ]

    def depends(self, variable: Variable) -> bool:
        """Whether `variable` is computed from any parameter."""
        if variable not in self._dependent:
            if variable.owner is None:
                self._dependent[variable] = variable in self.parameters
            for node in io_toposort([], [variable]):
                known = any(
                    self._dependent.setdefault(i, i in self.parameters) for i in node.inputs
                )
                self._dependent |= dict.fromkeys(node.outputs, known)
        return self._dependent[variable]

    # -- planning ------------------------------------------------------------------------------

    def _plan(self, key: _Key) -> _Step:
        variable, axis, rows = key
        if not self.depends(variable):
            return _Step((), lambda _: self._leaf(key))
        if variable.owner is None:
            self.local.add(variable)
            return self._take_here(key)
        node = variable.owner
        if isinstance(node.op, CheckAndRaise):
            return self._plan_check(key, node)
        if isinstance(node.op, AdvancedSubtensor | Subtensor | Repeat):
            step = self._plan_index(key)
            if step is not None:
                return step
        axes = input_axes(node.op, node, axis)
        if axes is not None:
            return self._descend(key, node, axes)
        if isinstance(node.op, OpFromGraph):
            inlined = _Key(inline_ofg_node(node)[node.outputs.index(variable)], axis, rows)
            return _Step((inlined,), lambda built: built[0])
        self.unselected.append(_describe(variable))
        return self._take_here(key)

    def _descend(self, key: _Key, node: Apply, axes: InputAxes) -> _Step:
        selected = [i for i, a in enumerate(axes) if a is not None]
        needs = tuple(_Key(node.inputs[i], axes[i], key.rows) for i in selected)  # type: ignore[arg-type]

        def build(built: list[Variable]) -> Variable:
            inputs = [
                self._whole(v) if a is None else v for v, a in zip(node.inputs, axes, strict=True)
            ]
            for i, variable in zip(selected, built, strict=True):
                inputs[i] = variable
            outputs = rebuild(node.op, node, inputs, key.axis, self.n_rows)
            return outputs[node.outputs.index(key.variable)]

        return _Step(needs, build)

    def _plan_check(self, key: _Key, node: Apply) -> _Step:
        guarded = _Key(node.inputs[0], key.axis, key.rows)
        if not isinstance(node.op, CheckParameterValue):
            return _Step((guarded,), lambda built: built[0])
        found = [c for c in checks.conditions(node) if self.depends(c) or not self._holds(c)]
        axes = [checks.row_axis(c, guarded.variable, key.axis, self.n_obs) for c in found]
        by_row = [(c, a) for c, a in zip(found, axes, strict=True) if a is not None]
        whole = [(self._whole(c), None) for c, a in zip(found, axes, strict=True) if a is None]

        def build(built: list[Variable]) -> Variable:
            selected = [(c, a) for c, (_, a) in zip(built[1:], by_row, strict=True)]
            return checks.guard(built[0], key.axis, [*selected, *whole])

        return _Step((guarded, *(_Key(c, a, key.rows) for c, a in by_row)), build)

    def _holds(self, condition: Variable) -> bool:
        return bool(np.all(evaluate([condition])[0]))

    def _plan_index(self, key: _Key) -> _Step | None:
        """Follow ``x[index]`` where the observation axis is one that is indexed."""
        found = _indexed_axis(key.variable.owner, key.axis, self)
        if found is None:
            return None
        x, x_axis, positions = found
        if _only_leaves_out(positions) and x.owner is not None:
            # A mask or a slice: it only leaves rows out, so it can go down with the selection.
            inner = _Key(x, x_axis, key.rows.compose(positions))
            return _Step((inner,), lambda built: built[0])
        index = _Key(pt.constant(positions), 0, key.rows)
        return _Step((index,), lambda built: _take(self._whole(x), built[0], x_axis))

    def _take_here(self, key: _Key) -> _Step:
        positions = self._positions._replace(rows=key.rows)
        return _Step(
            (positions,), lambda built: _take(self._whole(key.variable), built[0], key.axis)
        )

    def _leaf(self, key: _Key) -> Variable:
        shape = [None if i == key.axis else n for i, n in enumerate(key.variable.type.shape)]
        placeholder = pt.tensor(dtype=key.variable.type.dtype, shape=tuple(shape))
        self._leaves[key] = placeholder
        return placeholder

    def _whole(self, variable: Variable) -> Variable:
        """Fold a part that is taken whole and needs no parameter into a constant."""
        if isinstance(variable, Constant) or self.depends(variable):
            return variable
        [value] = evaluate([variable])
        return (
            pt.constant(value, dtype=variable.type.dtype)
            if value.ndim
            else variable.type.filter_variable(value)
        )


def _only_leaves_out(positions: np.ndarray) -> bool:
    return positions.min(initial=0) >= 0 and len(np.unique(positions)) == len(positions)


def _describe(variable: Variable) -> str:
    named = (v.name for v in ancestors([variable]) if v.name and v.owner is not None)
    return f"{variable.owner.op} (in {variable.name or next(named, 'the log-likelihood')!r})"


def _take(x: Variable, positions: Variable, axis: int) -> Variable:
    return x[(slice(None),) * axis + (positions,)]


def _indexed_axis(
    node: Apply, axis: int, pushdown: Pushdown
) -> tuple[Variable, int, np.ndarray] | None:
    """Find ``(x, its axis, positions)`` where output axis `axis` indexes one axis of x by data."""
    x, *index_inputs = node.inputs
    if any(pushdown.depends(i) for i in index_inputs):
        return None
    if isinstance(node.op, Repeat):
        if node.op.axis != axis:
            return None
        [counts] = evaluate(index_inputs)
        return x, axis, np.repeat(np.arange(x.type.shape[axis]), counts)
    entries = unflatten_index_variables(index_inputs, node.op.idx_list)
    if isinstance(node.op, Subtensor):
        return _sliced_axis(x, entries, axis)
    arrays = [i for i, entry in enumerate(entries) if not isinstance(entry, slice)]
    if len(arrays) != 1 or any(e != slice(None) for e in entries if isinstance(e, slice)):
        return None
    [at] = arrays
    if entries[at].type.ndim != 1 or at != axis:
        return None
    [positions] = evaluate([entries[at]])
    return x, at, np.flatnonzero(positions) if positions.dtype == bool else positions


def _sliced_axis(
    x: Variable, entries: Sequence[Any], axis: int
) -> tuple[Variable, int, np.ndarray] | None:
    x_axis = _axis_before_integers(entries, axis)
    if x_axis >= len(entries) or entries[x_axis] == slice(None) or x.type.shape[x_axis] is None:
        return None
    bounds = [
        None if bound is None else int(evaluate([pt.as_tensor(bound)])[0])
        for bound in (entries[x_axis].start, entries[x_axis].stop, entries[x_axis].step)
    ]
    others = [slice(None) if i == x_axis else entry for i, entry in enumerate(entries)]
    positions = np.arange(x.type.shape[x_axis])[slice(*bounds)]
    return x[tuple(others)], axis, positions


def _axis_before_integers(entries: Sequence[Any], axis: int) -> int:
    """Which axis of x a basic index leaves at output axis `axis`."""
    kept = [i for i, entry in enumerate(entries) if isinstance(entry, slice)]
    return kept[axis] if axis < len(kept) else axis - len(kept) + len(entries)


# -- one rule per Op -------------------------------------------------------------------------------


@singledispatch
def input_axes(op: object, node: Apply, axis: int) -> InputAxes | None:
    """Along which axis of each input does row n of the output's `axis` need row n alone?"""
    return None


def _unless_broadcast(inputs: Iterable[Variable], axis: int) -> InputAxes:
    return [None if i.type.broadcastable[axis] else axis for i in inputs]


@input_axes.register
def _(op: Elemwise, node: Apply, axis: int) -> InputAxes | None:
    return _unless_broadcast(node.inputs, axis)


@input_axes.register
def _(op: DimShuffle, node: Apply, axis: int) -> InputAxes | None:
    source = op.new_order[axis]
    return None if source == "x" else [source]


@input_axes.register
def _(op: CAReduce, node: Apply, axis: int) -> InputAxes | None:
    return [_kept_axis(op.axis, node.inputs[0].type.ndim, axis)]


@input_axes.register
def _(op: LogSumExp, node: Apply, axis: int) -> InputAxes | None:
    # Its reduced axes may be kept with length 1: then they keep their places.
    if node.inputs[0].type.ndim == node.outputs[0].type.ndim:
        return _other_axis(op, node, axis)
    return [_kept_axis(op.axis, node.inputs[0].type.ndim, axis)]


@input_axes.register
def _(op: Argmax, node: Apply, axis: int) -> InputAxes | None:
    return [_kept_axis(op.axis, node.inputs[0].type.ndim, axis)]


def _kept_axis(reduced: Any, ndim: int, axis: int) -> int:
    return [i for i in range(ndim) if i not in tuple(reduced)][axis]


@input_axes.register(Softmax)
@input_axes.register(LogSoftmax)
@input_axes.register(CumOp)
@input_axes.register(SortOp)
@input_axes.register(ArgSortOp)
def _other_axis(op: Any, node: Apply, axis: int) -> InputAxes | None:
    """Rows are independent along every axis but the one that the Op works along."""
    worked = getattr(op, "axis", None)
    if worked is None and len(node.inputs) > 1:  # sorting takes its axis as an input
        [value] = evaluate([node.inputs[1]])
        worked = int(value)
    ndim = node.outputs[0].type.ndim
    worked_axes = range(ndim) if worked is None else np.atleast_1d(worked) % ndim
    return None if axis in worked_axes else [axis, *[None] * (len(node.inputs) - 1)]


@input_axes.register
def _(op: Dot, node: Apply, axis: int) -> InputAxes | None:
    return [axis, None] if axis == 0 else [None, axis]


@input_axes.register
def _(op: Blockwise, node: Apply, axis: int) -> InputAxes | None:
    batch = op.batch_ndim(node)
    if axis < batch:
        return _unless_broadcast(node.inputs, axis)
    if isinstance(op.core_op, Dot):
        return [axis, None] if axis == batch else [None, axis]
    if isinstance(op.core_op, SolveBase) and op.core_op.b_ndim == 2 and axis == batch + 1:
        return [*[None] * (len(node.inputs) - 1), axis]
    return None


@input_axes.register
def _(op: Subtensor, node: Apply, axis: int) -> InputAxes | None:
    entries = unflatten_index_variables(node.inputs[1:], op.idx_list)
    x_axis = _axis_before_integers(entries, axis)
    if x_axis < len(entries) and entries[x_axis] != slice(None):
        return None
    return [x_axis, *[None] * (len(node.inputs) - 1)]


@input_axes.register
def _(op: AdvancedSubtensor, node: Apply, axis: int) -> InputAxes | None:
    entries = unflatten_index_variables(node.inputs[1:], op.idx_list)
    arrays = [i for i, entry in enumerate(entries) if not isinstance(entry, slice)]
    if arrays != list(range(arrays[0], arrays[-1] + 1)) or any(
        entries[i].type.dtype == "bool" for i in arrays
    ):
        return None
    first, ndim = arrays[0], max(entries[i].type.ndim for i in arrays)
    if first <= axis < first + ndim:
        return [None, *_index_axes(node.inputs[1:], entries, axis - first - ndim)]
    x_axis = axis if axis < first else axis - ndim + len(arrays)
    if x_axis < len(entries) and entries[x_axis] != slice(None):
        return None
    return [x_axis, *[None] * (len(node.inputs) - 1)]


def _index_axes(inputs: Sequence[Variable], entries: Sequence[Any], from_end: int) -> InputAxes:
    """Select in index arrays, which broadcast against each other from the right."""
    arrays = [entry for entry in entries if not isinstance(entry, slice)]
    return [
        i.type.ndim + from_end
        if any(i is a for a in arrays)
        and i.type.ndim + from_end >= 0
        and not i.type.broadcastable[from_end]
        else None
        for i in inputs
    ]


@input_axes.register
def _(op: IncSubtensor, node: Apply, axis: int) -> InputAxes | None:
    x, y, *index_inputs = node.inputs
    entries = unflatten_index_variables(index_inputs, op.idx_list)
    if axis < len(entries) and entries[axis] != slice(None):
        return None
    y_axis = axis - sum(not isinstance(e, slice) for e in entries[:axis])
    y_axis -= x.type.ndim - sum(not isinstance(e, slice) for e in entries) - y.type.ndim
    whole = y_axis < 0 or y.type.broadcastable[y_axis]
    return [axis, None if whole else y_axis, *[None] * len(index_inputs)]


@input_axes.register
def _(op: Join, node: Apply, axis: int) -> InputAxes | None:
    joined = op.axis % node.outputs[0].type.ndim
    return None if axis == joined else [axis] * len(node.inputs)


@input_axes.register
def _(op: TypeCastingOp, node: Apply, axis: int) -> InputAxes | None:
    return [axis]


@input_axes.register
def _(op: Alloc, node: Apply, axis: int) -> InputAxes | None:
    value, *shape = node.inputs
    value_axis = axis - (len(shape) - value.type.ndim)
    whole = value_axis < 0 or value.type.broadcastable[value_axis]
    return [None if whole else value_axis, *[None] * len(shape)]


@input_axes.register
def _(op: SpecifyShape, node: Apply, axis: int) -> InputAxes | None:
    return [axis, *[None] * (len(node.inputs) - 1)]


@input_axes.register
def _(op: Reshape, node: Apply, axis: int) -> InputAxes | None:
    """In C order an axis survives where it has the same length and as much before it."""
    x, out = node.inputs[0], node.outputs[0]
    if None in x.type.shape or None in out.type.shape:
        return None
    before = np.prod(out.type.shape[:axis], dtype=int)
    for x_axis, length in enumerate(x.type.shape):
        if length == out.type.shape[axis] and np.prod(x.type.shape[:x_axis], dtype=int) == before:
            return [x_axis, None]
    return None


@input_axes.register
def _(op: JoinDims, node: Apply, axis: int) -> InputAxes | None:
    if axis < op.start_axis:
        return [axis]
    joined = node.inputs[0].type.shape[op.start_axis : op.start_axis + op.n_axes]
    if axis > op.start_axis:
        return [axis + op.n_axes - 1]
    long = [i for i, length in enumerate(joined) if length != 1]
    return [op.start_axis + long[0]] if len(long) == 1 else None


@input_axes.register
def _(op: SplitDims, node: Apply, axis: int) -> InputAxes | None:
    n_new = node.outputs[0].type.ndim - node.inputs[0].type.ndim + 1
    if op.axis <= axis < op.axis + n_new:
        return None
    return [axis if axis < op.axis else axis - n_new + 1, None]


# -- rebuilding the Ops that know the length of their output ---------------------------------------


@singledispatch
def rebuild(
    op: Any, node: Apply, inputs: list[Variable], axis: int, n_rows: Variable
) -> list[Variable]:
    """Apply the Op of `node` again, to inputs with fewer rows."""
    outputs: list[Variable] = op.make_node(*inputs).outputs
    return outputs


@rebuild.register
def _(
    op: SymbolicOp, node: Apply, inputs: list[Variable], axis: int, n_rows: Variable
) -> list[Variable]:
    # The inner graph of an instance is made for the shapes that it first saw.
    output = type(op)(**op._props_dict())(*inputs)
    return output if isinstance(output, list) else [output]


@rebuild.register
def _(
    op: Alloc, node: Apply, inputs: list[Variable], axis: int, n_rows: Variable
) -> list[Variable]:
    value, *shape = inputs
    shape[axis] = n_rows
    return [pt.alloc(value, *shape)]


@rebuild.register
def _(
    op: SpecifyShape, node: Apply, inputs: list[Variable], axis: int, n_rows: Variable
) -> list[Variable]:
    known = [None if i == axis else n for i, n in enumerate(node.outputs[0].type.shape)]
    return [pt.specify_shape(inputs[0], known)]


@rebuild.register
def _(
    op: Reshape, node: Apply, inputs: list[Variable], axis: int, n_rows: Variable
) -> list[Variable]:
    shape: list[Any] = list(node.outputs[0].type.shape)
    shape[axis] = n_rows
    return [inputs[0].reshape(shape)]
