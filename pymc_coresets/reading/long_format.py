"""Write a log-density of cells, such as ``y[dog, trial]``, in long format: one row for each cell.

Cell n lies at ``(i1[n], i2[n])``.  An array with both axes becomes its cells in one row after the
other, one with the first axis alone becomes ``v[i1]``, and one with neither stays as it is.  So a
parameter of each dog is looked up in long format, just as ``a[dog]`` is in a model that was
written so; and a selection of rows can then be pushed down as in any other model.

The rules of `selection_rules` are followed along each axis: entry n of the output needs entry n of
an input.  The operation is then applied to one cell, whose selected axes have length 1, and
vectorised over the cells.

In data that are in long form already, several rows belong to one observation: K rows each, which a
reshape turns into a matrix (N, K); or any number of them, which a sum over each observation's rows
puts together.  An axis of such a result is split the same way, into cells of K entries each, where
that leaves an axis with the observations.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Variable
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import CheckParameterValue
from pymc_coresets.compat.wording import describe
from pymc_coresets.reading import other_forms
from pymc_coresets.reading.indexing import IndexedAxes, axes_of_inputs, indexed
from pymc_coresets.reading.known import (
    KnownValues,
    Plan,
    Step,
    axis_of_condition,
    conditions_by_row,
    guard,
)
from pymc_coresets.reading.other_forms import Cells, apply_to_cells


class _Key(NamedTuple):
    """A variable to write in long format, with its axes along the cells."""

    variable: TensorVariable
    places: tuple[tuple[int, int], ...]
    cells: Cells

    @property
    def selected(self) -> dict[int, int]:
        """Which of the cells' axes the variable has, and where."""
        return dict(self.places)


class LongFormat(KnownValues):
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
        self._long = Plan(self._plan)
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
        key = self._key(variable, dict(enumerate(axes)), cells)
        long = self._long.part(key) if key.selected else pt.expand_dims(variable, 0)
        kept = [i for i in range(variable.type.ndim) if i not in axes]
        flat = long.dimshuffle(0, *(i + 1 for i in kept))
        if flat.type.shape[0] == 1:  # all cells are alike
            flat = pt.broadcast_to(flat, (cells.n_cells, *flat.shape[1:]))
        return ops.checked_tensor(flat)

    def split(
        self, variable: TensorVariable, axis: int, index: np.ndarray
    ) -> Iterator[TensorVariable]:
        """Yield the entries of `variable` at the positions `index`, (n, K), in place of an axis.

        Nothing if the entries have to be taken from a parameter, or from what has no rule.
        """
        key = self._key(variable, {0: axis}, Cells(variable.type.shape[axis : axis + 1], (index,)))
        if not key.selected or self._reached(key):
            return
        cells = self._long.part(key)
        if cells.type.shape[0] == 1:  # all are alike
            cells = pt.broadcast_to(cells, (len(index), *cells.shape[1:]))
        yield pt.moveaxis(cells, 0, axis)

    def _key(self, variable: Variable, axes: Mapping[int, int], cells: Cells) -> _Key:
        own = ((part, a) for part, a in axes.items() if not self.broadcasts(variable, a))
        return _Key(ops.checked_tensor(variable), tuple(own), cells)

    # -- planning ------------------------------------------------------------------------------

    def _plan(self, key: _Key) -> Step[_Key]:
        variable, node = key.variable, key.variable.owner
        if not key.selected:
            return Step((), lambda _: variable)
        if not self.depends(variable):
            return Step((), lambda _: self._gathered(key))
        if variable in self.parameters:
            return self._gather_here(key)
        if isinstance(node.op, ops.CheckAndRaise):
            return self._plan_check(key, node)
        steps = (
            self._plan_merged(key, node),
            self._plan_index(key, node),
            self._plan_descent(key, node),
            self._plan_otherwise(key, node),
        )
        for step in chain.from_iterable(steps):  # the first one is made
            return step
        return self._gather_here(key)

    def _plan_otherwise(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        for other in written_otherwise(node, self):
            inner = self._key(other[node.outputs.index(key.variable)], key.selected, key.cells)
            yield Step((inner,), lambda built: built[0])

    def _plan_check(self, key: _Key, node: Apply) -> Step[_Key]:
        guarded = self._key(node.inputs[0], key.selected, key.cells)
        if not isinstance(node.op, CheckParameterValue):
            return Step((guarded,), lambda built: built[0])
        if key.cells.shape:
            return self._gather_here(key)
        by_cell, whole = conditions_by_row(
            node, self, guarded, lambda c: self._conditions(c, guarded), self._reached
        )

        def build(built: list[TensorVariable]) -> TensorVariable:
            return guard(built[0], 0, [(c, 0) for c in built[1:]], whole)

        return Step((guarded, *by_cell), build)

    def _reached(self, key: _Key) -> set[Variable]:
        """Find where the cells of what a key stands for are taken."""
        below = list(self._long.below(key))  # whose steps are planned now
        return {part.variable for part in self._ends.intersection(below)}

    def _conditions(self, condition: Variable, guarded: _Key) -> Iterator[_Key]:
        axes = {
            part: own
            for part, axis in guarded.places
            for own in axis_of_condition(
                condition, guarded.variable, axis, guarded.cells.lengths[part]
            )
        }
        key = self._key(condition, axes, guarded.cells)
        if key.selected and len(set(axes.values())) == len(axes):
            yield key

    def _plan_merged(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Take the entries of cells from where they had an axis, before a reshape merged it."""
        if not key.cells.shape or not isinstance(node.op, ops.Reshape):
            return
        x, merged = key.variable, ops.checked_tensor(node.inputs[0])
        [axis], n_more = key.selected.values(), merged.type.ndim - x.type.ndim
        before, after = x.type.shape[:axis], x.type.shape[axis + 1 :]
        lengths = merged.type.shape[axis : axis + n_more + 1]
        split = merged.type.shape == (*before, *lengths, *after) and lengths[-1:] == key.cells.shape
        if n_more < 1 or not split or not key.cells.is_whole_axis(0):
            return
        cells = pt.moveaxis(merged, range(axis, axis + n_more), range(n_more))
        shape = (key.cells.n_cells, *cells.type.shape[n_more:])
        yield Step((), lambda _: cells if n_more == 1 else cells.reshape(shape))

    def _plan_index(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Follow ``x[i1, i2]``, ``x[mask]`` or a slice, as where PyMC leaves out missing cells."""
        for part, axis in key.places:
            for index in indexed(node, axis, self):
                if len(index.positions) > 1 or not index.by_label:
                    yield from self._plan_indexed(key, part, index)
                    return
        # or a lookup, whose index is data by cell

    def _plan_indexed(self, key: _Key, part: int, index: IndexedAxes) -> Iterator[Step[_Key]]:
        rows, n_axes, first = key.cells.indices[part], len(index.positions), index.axis
        inside = cast(tuple[int, ...], index.lengths)
        taken = tuple(positions[rows] for positions in index.positions)
        if n_axes == 1:
            lengths, indices = list(key.cells.lengths), list(key.cells.indices)
            [lengths[part]], [indices[part]] = inside, taken
            inner = Cells(tuple(lengths), tuple(indices))
            yield Step((self._key(index.x, key.selected, inner),), lambda built: built[0])
            return
        if len(key.selected) > 1 or key.cells.shape:
            return
        axes = dict(enumerate(range(first, first + n_axes)))
        need = self._key(index.x, axes, Cells(inside, taken))

        def build(built: list[TensorVariable]) -> TensorVariable:
            gone = range(first + 2, first + n_axes + 1)  # the cells come before them
            kept = [i for i in range(built[0].type.ndim) if i not in gone]
            return ops.checked_tensor(built[0].dimshuffle(kept))

        if need.selected:
            yield Step((need,), build)

    def _plan_descent(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Follow the rules of an operation along each axis."""
        rules = {
            part: rule for part, axis in key.places for rule in axes_of_inputs(node, axis, self)
        }
        if len(rules) < len(key.places):
            return
        shared: dict[int, np.ndarray] = {}  # inputs for one cell that are the same for all
        for i in chain.from_iterable(counting for _, counting in rules.values()):
            # Row n of x[arange(n), k] needs row n of x, of which one is left: row 0.
            shared[i] = np.zeros((1,) * node.inputs[i].type.ndim, dtype=int)
            if key.cells.shape:
                return
        needs: dict[int, _Key] = {}
        for i, variable in enumerate(node.inputs):
            axes = {part: chosen[i] for part, (chosen, _) in rules.items() if i in chosen}
            if len(set(axes.values())) < len(axes):
                return
            if not axes:
                continue
            need = self._key(variable, axes, key.cells)
            if need.selected:
                needs[i] = need
            elif None in variable.type.shape and not self.depends(variable):
                shared[i] = self.value(variable)  # of length 1, which its type does not say
        yield Step(tuple(needs.values()), self._application(key, node, needs, shared))

    def _application(
        self, key: _Key, node: Apply, needs: Mapping[int, _Key], shared: Mapping[int, np.ndarray]
    ) -> Callable[[list[TensorVariable]], TensorVariable]:
        def build(built: list[TensorVariable]) -> TensorVariable:
            cells = dict(zip(needs, built, strict=True))
            cells |= {i: pt.constant(value[None]) for i, value in shared.items()}
            lengths = dict.fromkeys(key.selected.values(), math.prod(key.cells.shape))
            return apply_to_cells(node, node.outputs.index(key.variable), cells, lengths)

        return build

    # -- gathering -----------------------------------------------------------------------------

    def _gather_here(self, key: _Key) -> Step[_Key]:
        """Take the cells where no rule leads further."""
        self._ends.add(key)

        def build(_: list[TensorVariable]) -> TensorVariable:
            if key.cells.are_distinct_along(list(key.selected)):
                if key.variable in self.parameters:
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
        table, shape = variable.dimshuffle(*axes, *others), key.cells.shape
        if len(axes) > 1 or shape or not key.cells.is_whole_axis(next(iter(selected))):
            table = table[tuple(self._index(key.cells, part) for part in selected)]
        first, own = (2, 1) if shape else (1, "x")
        order = [own if i in axes else first + others.index(i) for i in range(variable.type.ndim)]
        return ops.checked_tensor(table.dimshuffle(0, *order))

    def _index(self, cells: Cells, part: int) -> TensorVariable:
        if (cells, part) not in self._indices:
            self._indices[cells, part] = pt.constant(cells.indices[part])
        return self._indices[cells, part]


def written_otherwise(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:
    """Write an operation without a rule by others that have one, where that is known.

    Parameters
    ----------
    node : Apply
        The application of any Op.
    known : KnownValues
        Distinguishes parameters from data.

    Yields
    ------
    list of Variable
        Another graph for each output.

    Examples
    --------
    >>> x = pt.vector("x", shape=(2,))
    >>> [[found]] = written_otherwise(pt.repeat(x, [1, 2]).owner, KnownValues([x]))
    >>> found.eval({x: [1.0, 2.0]})
    array([1., 2., 2.])
    """
    for form in (*other_forms.FORMS, without_merged_axes, sum_of_members):
        yield from form(node, known)


def without_merged_axes(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:
    """Write a reshape that splits an axis as the same operations on data with split axes.

    ``pt.dot(x, b)`` of an array (N, K, P) merges its first axes, multiplies matrices, and splits
    the product's first axis again: in between, no axis has the observations.  Nor has any where
    data in long form, K rows for each of N observations, become a matrix (N, K) at the end.

    Nothing if the node is no such reshape, where lengths are not known, or where a parameter
    itself or an operation without a rule is split.

    Examples
    --------
    >>> from pymc_coresets.reading.folding import with_constant_shapes
    >>> x, b = pt.tensor("x", shape=(5, 4, 2)), pt.vector("b", shape=(2,))
    >>> [product] = with_constant_shapes([pt.dot(x, b)])
    >>> [[found]] = without_merged_axes(product.owner, KnownValues([x, b]))
    >>> product.owner.op, found.owner.op
    (Reshape(ndim=2), DimShuffle(input_ndim=3,new_order=(0, 1)))
    """
    if not isinstance(node.op, ops.Reshape):
        return
    x, shape = ops.checked_tensor(node.inputs[0]), node.outputs[0].type.shape
    n_new = len(shape) - x.type.ndim + 1
    if n_new < 2 or None in shape or None in x.type.shape:
        return
    for axis in range(x.type.ndim):
        lengths = shape[axis : axis + n_new]
        whole = (*x.type.shape[:axis], *lengths, *x.type.shape[axis + 1 :])
        if whole == shape and x.type.shape[axis] == np.prod(lengths):
            index = np.arange(x.type.shape[axis]).reshape(-1, lengths[-1])
            for split in LongFormat(known.parameters).split(x, axis, index):
                yield [split if n_new == 2 else split.reshape(shape)]
            return


def sum_of_members(node: Apply, known: KnownValues) -> Iterator[list[Variable]]:
    """Write ``x[index].inc(y)``, of an index that is data, as sums over an axis of data.

    So a sum over the rows of each choice set, in long form, is one over an axis (N, K): K is the
    size of the largest set, and smaller ones are filled up with zeros.

    Nothing if the node is no such sum, where lengths are not known or too different, or where a
    parameter itself or an operation without a rule is split.

    Examples
    --------
    >>> b = pt.scalar("b")
    >>> total = pt.zeros(2)[np.array([0, 1, 0])].inc(pt.exp(b * np.array([1.0, 2.0, 3.0])))
    >>> next(sum_of_members(total.owner, KnownValues([b])))[0].eval({b: 0.0})
    array([2., 1.])
    """
    if not isinstance(node.op, ops.AdvancedIncSubtensor) or node.op.set_instead_of_inc:
        return
    (x, y), index_inputs = ops.checked_tensors(node.inputs[:2]), node.inputs[2:]
    [index, *others] = ops.unflatten_index_variables(index_inputs, node.op.idx_list)
    if others or isinstance(index, slice) or index.type.ndim != 1 or index.type.dtype == "bool":
        return
    if known.depends(index) or y.type.ndim != x.type.ndim:
        return
    n, m = x.type.shape[0], y.type.shape[0]
    if None in (n, m) or m == 1:
        return
    for members, is_member in other_forms.members_of(known.value(index) % n, n):
        mask = is_member.reshape((*is_member.shape, *[1] * (y.type.ndim - 1)))
        for inner in LongFormat(known.parameters).split(y, 0, members):
            yield [x + pt.where(mask, inner, 0).sum(axis=1, dtype=x.type.dtype)]
