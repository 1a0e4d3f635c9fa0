"""Write a log-density of cells, such as ``y[dog, trial]``, in long format: one row for each cell.

Cell n lies at ``(i1[n], i2[n])``.  An array with both axes becomes its cells in one row after the
other, one with the first axis alone becomes ``v[i1]``, and one with neither stays as it is.  So a
parameter of each dog is looked up in long format, just as ``a[dog]`` is in a model that was
written so; and a selection of rows can then be pushed down as in any other model.

The rules of `selection_rules` are followed along each axis: entry n of the output needs entry n of
an input.  The operation is then applied to one cell, whose selected axes have length 1, and
vectorised over the cells.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, FunctionGraph, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import CheckParameterValue
from pymc_coresets.compat.pytensor_api import dfs_rewriter, local_dimshuffle_lift
from pymc_coresets.reading import checks
from pymc_coresets.reading.forms.batching import apply_to_cells
from pymc_coresets.reading.forms.other_forms import written_otherwise
from pymc_coresets.reading.indexing import axes_of_inputs, indexed_cells
from pymc_coresets.reading.known import Known, Planned, Step, describe


@dataclass(frozen=True, eq=False)
class Cells:
    """Where the cells lie along some axes.

    Attributes
    ----------
    lengths : tuple of int
        Length of each axis.
    indices : tuple of ndarray of int, each of shape (n_cells,)
        Position of each cell along each axis.

    Examples
    --------
    >>> Cells.all_of((2, 3)).indices
    (array([0, 0, 0, 1, 1, 1]), array([0, 1, 2, 0, 1, 2]))
    """

    lengths: tuple[int, ...]
    indices: tuple[np.ndarray, ...]

    @classmethod
    def all_of(cls, lengths: Sequence[int]) -> "Cells":
        """Return all cells in C order: the last axis is the fastest."""
        return cls.at(np.arange(np.prod(lengths, dtype=int)), lengths)

    @classmethod
    def at(cls, positions: np.ndarray, lengths: Sequence[int]) -> "Cells":
        """Return the cells at some positions in C order."""
        return cls(tuple(lengths), np.unravel_index(positions, tuple(lengths)))

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.indices[0])

    def is_whole_axis(self, part: int) -> bool:
        """Whether the cells are the entries of one axis, in their order."""
        return np.array_equal(self.indices[part], np.arange(self.lengths[part]))

    def are_distinct_along(self, parts: Sequence[int]) -> bool:
        """Whether no two cells share an entry of an array that has only some of the axes."""
        flat = np.ravel_multi_index(
            [self.indices[i] for i in parts], [self.lengths[i] for i in parts]
        )
        return len(np.unique(flat)) == self.n_cells


class _Key(NamedTuple):
    """What to write in long format: a variable with the axes of the cells that it has."""

    variable: TensorVariable
    axes: tuple[int | None, ...]
    cells: Cells

    @property
    def selected(self) -> dict[int, int]:
        """Which of the cells' axes the variable has, and where."""
        return {i: axis for i, axis in enumerate(self.axes) if axis is not None}


class LongFormat(Known):
    """Write graphs that share their parameters and data in long format.

    Parameters
    ----------
    parameters : iterable of Variable
        The free inputs of the graphs.  All their other inputs are data.

    Attributes
    ----------
    unselected : list of str
        Parts with one value for each cell that can only be computed for all cells at once, by
        name.
    local : set of Variable
        Parameters with one value for each cell.

    Examples
    --------
    >>> a, b = pt.vector("a", shape=(2,)), pt.vector("b", shape=(3,))
    >>> long = LongFormat([a, b]).of(a[:, None] * b, (0, 1), Cells.all_of((2, 3)))
    >>> long.eval({a: np.array([1.0, 10.0]), b: np.arange(3.0)})
    array([ 0.,  1.,  2.,  0., 10., 20.])
    """

    def __init__(self, parameters: Iterable[Variable]) -> None:
        super().__init__(parameters)
        self.unselected: list[str] = []
        self.local: set[Variable] = set()
        self._long = Planned(self._plan)
        self._ends: set[_Key] = set()
        self._indices: dict[tuple[Cells, int], TensorVariable] = {}

    def of(self, variable: TensorVariable, axes: Sequence[int], cells: Cells) -> TensorVariable:
        """Return `variable` with the cells along its first axis, in place of `axes`.

        Parameters
        ----------
        variable : TensorVariable
        axes : sequence of int
            Where it has the axes of the cells.
        cells : Cells

        Returns
        -------
        TensorVariable
            Of shape (n_cells, ...), with the other axes of `variable` in their order.
        """
        key = self._key(variable, axes, cells)
        long = self._long.part(key) if key.selected else pt.expand_dims(variable, 0)
        kept = [i for i in range(variable.type.ndim) if i not in axes]
        flat = long.dimshuffle(0, *(i + 1 for i in kept))
        if flat.type.shape[0] == 1:  # all cells are alike
            flat = pt.broadcast_to(flat, (cells.n_cells, *flat.shape[1:]))
        return cast(TensorVariable, flat)

    def _key(self, variable: Variable, axes: Sequence[int | None], cells: Cells) -> _Key:
        own = (None if a is None or self.broadcasts(variable, a) else a for a in axes)
        return _Key(cast(TensorVariable, variable), tuple(own), cells)

    # -- planning ------------------------------------------------------------------------------

    def _plan(self, key: _Key) -> Step[_Key]:
        variable, axes, cells = key
        node = variable.owner
        if not key.selected:
            return Step((), lambda _: variable)
        if not self.depends(variable):
            return Step((), lambda _: self._gathered(key))
        if node is None:
            return self._gather_here(key)
        if isinstance(node.op, ops.CheckAndRaise):
            return self._plan_check(key, node)
        step = self._plan_cells(key, node) or self._plan_descent(key, node)
        if step is not None:
            return step
        other = written_otherwise(node, self.depends)
        if other is not None:
            inner = self._key(other[node.outputs.index(variable)], axes, cells)
            return Step((inner,), lambda built: built[0])
        return self._gather_here(key)

    def _plan_check(self, key: _Key, node: Apply) -> Step[_Key]:
        guarded = self._key(node.inputs[0], key.axes, key.cells)
        if not isinstance(node.op, CheckParameterValue):
            return Step((guarded,), lambda built: built[0])
        # A condition that is as long as an axis may concern a parameter that all cells share, such
        # as the probabilities of as many categories: then it is no cell's own.
        own = self._reached(guarded)
        found = [self._condition_key(c, guarded) for c in checks.conditions(node, self)]
        by_cell = [part for part in found if part.selected and not self._reached(part) - own]
        shared = [(part.variable, None) for part in found if part not in by_cell]

        def build(built: list[TensorVariable]) -> TensorVariable:
            return checks.guard(built[0], 0, [*((c, 0) for c in built[1:]), *shared])

        return Step((guarded, *by_cell), build)

    def _reached(self, key: _Key) -> set[Variable]:
        """Find where the cells of what a key stands for are taken."""
        below = list(self._long.below(key))  # whose steps are planned now
        return {part.variable for part in self._ends.intersection(below)}

    def _condition_key(self, condition: Variable, guarded: _Key) -> _Key:
        axes: list[int | None] = [None] * len(guarded.axes)
        for part, axis in guarded.selected.items():
            length = guarded.cells.lengths[part]
            axes[part] = checks.row_axis(condition, guarded.variable, axis, length)
        found = [axis for axis in axes if axis is not None]
        if len(set(found)) < len(found):
            axes = [None] * len(axes)
        return self._key(condition, axes, guarded.cells)

    def _plan_cells(self, key: _Key, node: Apply) -> Step[_Key] | None:
        """Follow ``x[i1, i2]`` or ``x[mask]``, as where PyMC leaves out missing cells."""
        if len(key.selected) != 1:
            return None
        [(part, axis)] = key.selected.items()
        index = indexed_cells(node, axis, self.depends)
        if index is None:
            return None
        rows = key.cells.indices[part]
        inner = Cells(index.lengths, tuple(i[rows] for i in index.positions))
        last = axis + len(index.lengths)
        need = self._key(index.x, range(axis, last), inner)
        if not need.selected:
            return None

        def build(built: list[TensorVariable]) -> TensorVariable:
            kept = [i for i in range(built[0].type.ndim) if not axis + 1 < i <= last]
            return cast(TensorVariable, built[0].dimshuffle(kept))

        return Step((need,), build)

    def _plan_descent(self, key: _Key, node: Apply) -> Step[_Key] | None:
        """Follow the rules of an operation along each axis."""
        columns: list[Sequence[int | None]] = []
        shared: dict[int, np.ndarray] = {}  # inputs for one cell that are the same for all
        for axis in key.axes:
            if axis is None:
                columns.append([None] * len(node.inputs))
                continue
            column, counting = axes_of_inputs(node, axis, self.depends)
            if column is None:
                return None
            columns.append(column)
            if counting is not None:
                # Row n of x[arange(n), k] needs row n of x, of which one is left: row 0.
                shared[counting] = np.zeros((1,) * node.inputs[counting].type.ndim, dtype=int)
        needs: dict[int, _Key] = {}
        for i, variable in enumerate(node.inputs):
            axes = [column[i] for column in columns]
            chosen = [axis for axis in axes if axis is not None]
            if len(set(chosen)) < len(chosen):
                return None
            need = self._key(variable, axes, key.cells) if chosen else None
            if need is not None and need.selected:
                needs[i] = need
            elif need is not None and None in variable.type.shape and not self.depends(variable):
                shared[i] = self.value(variable)  # of length 1, which its type does not say
        return Step(tuple(needs.values()), self._application(key, node, needs, shared))

    def _application(
        self, key: _Key, node: Apply, needs: Mapping[int, _Key], shared: Mapping[int, np.ndarray]
    ) -> Callable[[list[TensorVariable]], TensorVariable]:
        def build(built: list[TensorVariable]) -> TensorVariable:
            cells = dict(zip(needs, built, strict=True))
            cells |= {i: pt.constant(value[None]) for i, value in shared.items()}
            output = node.outputs.index(key.variable)
            return apply_to_cells(node, output, cells, dict.fromkeys(key.selected.values(), 1))

        return build

    # -- gathering -----------------------------------------------------------------------------

    def _gather_here(self, key: _Key) -> Step[_Key]:
        """Take the cells where no rule leads further."""
        self._ends.add(key)

        def build(_: list[TensorVariable]) -> TensorVariable:
            if key.cells.are_distinct_along(list(key.selected)):
                if key.variable.owner is None:
                    self.local.add(key.variable)
                else:
                    self.unselected.append(describe(key.variable))
            return self._gathered(key)

        return Step((), build)

    def _gathered(self, key: _Key) -> TensorVariable:
        """Return the cells of a variable, with length 1 along the selected axes."""
        variable, selected = key.variable, key.selected
        axes = list(selected.values())
        others = [i for i in range(variable.type.ndim) if i not in axes]
        table = variable.dimshuffle(*axes, *others)
        if len(axes) > 1 or not key.cells.is_whole_axis(next(iter(selected))):
            table = table[tuple(self._index(key.cells, part) for part in selected)]
        order = ["x" if i in axes else 1 + others.index(i) for i in range(variable.type.ndim)]
        return cast(TensorVariable, table.dimshuffle(0, *order))

    def _index(self, cells: Cells, part: int) -> TensorVariable:
        if (cells, part) not in self._indices:
            self._indices[cells, part] = pt.constant(cells.indices[part])
        return self._indices[cells, part]


def without_length_one(graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Drop axes of length 1 where they are only added and taken away again, and merge equal parts.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> [graph] = without_length_one([pt.exp(x.dimshuffle(0, "x")).squeeze(1)])
    >>> graph.owner.inputs[0] is x
    True
    """
    fgraph = FunctionGraph(outputs=cast(list[Variable], list(graphs)), copy_inputs=False)
    lift, merge = dfs_rewriter(local_dimshuffle_lift), ops.MergeOptimizer()
    before: set[Apply] = set()
    while before != fgraph.apply_nodes:
        before = set(fgraph.apply_nodes)
        lift.rewrite(fgraph)
        merge.rewrite(fgraph)  # what is used once only can be lifted through
    return cast(list[TensorVariable], list(fgraph.outputs))
