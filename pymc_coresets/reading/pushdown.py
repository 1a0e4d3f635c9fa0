"""Push a selection of observations down a graph to the data it is computed from.

A pointwise log-likelihood is computed for all N observations at once.  To have it for any few
of them, at the cost of those few, the selection ``loglik[rows]`` has to travel from the output
of the graph to its inputs: ``(X @ beta)[rows] == X[rows] @ beta``.  Each Op has one rule, which
says along which axis of each input row ``n`` of the output needs row ``n`` alone.  A part that
does not depend on the parameters becomes a *row array*: it is evaluated once, and stands in the
new graph as an input that accepts any rows.

If the model holds only prototype rows, the data containers are inputs too, and the
selection goes on until it reaches them: what is computed from them is computed for any rows.

Where no rule is known the selection is made on the spot.  That is always correct, but its cost
still grows with N; :attr:`Pushdown.unselected` names these places.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Variable, ancestors
from pytensor.tensor import TensorConstant, TensorVariable

from pymc_coresets.compat.pymc_api import CheckParameterValue
from pymc_coresets.compat.pytensor_api import CheckAndRaise, checked_tensor, is_input
from pymc_coresets.compat.wording import describe
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.indexing import (
    Assignment,
    axes_of_inputs,
    indexed,
    joined_piece,
    written,
)
from pymc_coresets.reading.known import (
    KnownValues,
    Plan,
    Step,
    axis_of_condition,
    conditions_by_row,
    guard,
)
from pymc_coresets.reading.likelihood.prototypes import (
    constant_of_rows,
    not_row_by_row,
    taken_over_rows,
)
from pymc_coresets.reading.long_format import written_otherwise
from pymc_coresets.reading.selection_rules import InputAxes, is_black_box, rebuild

#: What messages call an array that neither has a name nor is computed from one that has.
UNNAMED = "an unnamed array"


@dataclass(frozen=True, eq=False)
class RowMap:
    """Which position of an inner axis each observation uses.

    Parameters
    ----------
    positions : ndarray of int
    own : ndarray of bool, or True
        The observations that the axis belongs to; others merely repeat some of its positions.
    """

    positions: np.ndarray
    own: np.ndarray | np.bool_ = np.True_

    def compose(self, inner: np.ndarray) -> "RowMap":
        """Return the map through an index of the axis."""
        return replace(self, positions=inner[self.positions])

    def restricted(self, own: np.ndarray) -> "RowMap":
        """Return the map for some of the observations alone, given which."""
        return replace(self, own=own & self.own)

    @property
    def entries(self) -> np.ndarray:
        """The positions, and -1 for observations to which the axis does not belong."""
        return np.where(self.own, self.positions, -1)


@dataclass(frozen=True, eq=False)
class RowArray:
    """One array that is indexed by the observation.

    Attributes
    ----------
    placeholder : TensorVariable
        The input of the selected graph that stands for any rows of the array.
    source : TensorVariable
        The variable of the original graph that the rows are taken from.
    values : ndarray
        The array, with all ``n_obs`` rows along `axis`.
    axis : int
        The observation axis.
    own : ndarray of bool, or True
        Which observations have the array.  The values of others are repeated ones, and count for
        nothing.
    """

    placeholder: TensorVariable
    source: TensorVariable
    values: np.ndarray
    axis: int
    own: np.ndarray | np.bool_ = np.True_

    @property
    def name(self) -> str:
        """The name of the array, or of the nearest named variable that it is computed from."""
        named = (v.name for v in ancestors([self.source]) if v.name)
        return self.source.name or next(named, UNNAMED)

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the rows at the positions `rows` (a view for a slice)."""
        index = (slice(None),) * self.axis + (rows,)
        return self.values[index]


class _Key(NamedTuple):
    """A selection: `rows` of `variable` along `axis`."""

    variable: TensorVariable
    axis: int
    rows: RowMap


def _key(variable: Variable, axis: int, rows: RowMap) -> _Key:
    return _Key(checked_tensor(variable), axis, rows)  # what has an axis is a tensor


class Pushdown(KnownValues):
    """Select observations in graphs that share their parameters and data.

    Parameters
    ----------
    parameters : iterable of Variable
        The free inputs of the graphs.  All their other inputs are data.
    n_obs : int
        The number of observations N.
    row_inputs : mapping of Variable to ndarray, optional
        Inputs of the graphs that hold prototype rows along their first axis, and these
        rows.  If there are any, nothing else may be indexed by the observation, and nothing may be
        computed from several of their rows: that is refused.
    of_levels : bool, default False
        Whether the observations are levels of a factor.  Arrays into which entries of parameters
        are written, as those of missing values, are taken apart then; rows look them up.

    Attributes
    ----------
    n_rows : TensorVariable
        Scalar input of the selected graphs: how many rows they are evaluated for.
    unselected : list of str
        Places where the selection could not be pushed further, by name.
    stops : list of (Variable, int)
        The same places, and their axes that have the rows.
    local : set of Variable
        Parameters that have an observation axis themselves (local latent variables).
    written : dict of str to set of Variable
        Names of arrays with an observation axis into which entries of parameters are written, as
        those of missing values; and these parameters.
    """

    def __init__(
        self,
        parameters: Iterable[Variable],
        n_obs: int,
        row_inputs: Mapping[Variable, np.ndarray] = MappingProxyType({}),
        *,
        of_levels: bool = False,
    ) -> None:
        self.row_inputs = row_inputs
        super().__init__([*parameters, *self.row_inputs])
        self._free = self.parameters.difference(self.row_inputs)
        self._from_rows = KnownValues(self.row_inputs)
        self.n_obs, self._lengths, self._of_levels = n_obs, {n_obs}, of_levels
        self.n_rows = pt.lscalar("n_rows")
        self.unselected: list[str] = []
        self.stops: list[tuple[Variable, int]] = []
        self.local: set[Variable] = set()
        self.written: dict[str, set[Variable]] = {}
        self._entered: dict[Variable, frozenset[Variable]] = {}
        self._folded: dict[Variable, Variable] = {}
        self._selected = Plan(self._plan)
        self._leaves: dict[_Key, TensorVariable] = {}
        self._every = RowMap(np.arange(n_obs))
        self._maps = [self._every]
        self._positions = {self._every: _Key(pt.arange(n_obs), 0, self._every)}

    def select(self, variable: TensorVariable, axis: int) -> TensorVariable:
        """Return `variable` with the rows of the placeholders along `axis`, instead of all N."""
        return self._select(_Key(variable, axis, self._every))

    def select_entries(
        self, variable: TensorVariable, axis: int, entries: np.ndarray
    ) -> TensorVariable:
        """Return `variable` with, along `axis`, the entry that each row of the placeholders has.

        Parameters
        ----------
        variable : TensorVariable
        axis : int
        entries : ndarray of int, of shape (n_obs,)
            The entry of each observation; -1 for none: it has another's, which counts for nothing.
        """
        for rows in self._maps:
            if np.array_equal(rows.entries, entries):
                break
        else:
            rows = RowMap(np.maximum(entries, 0), entries >= 0)
            self._maps.append(rows)
        return self._select(_Key(variable, axis, rows))

    def _select(self, key: _Key) -> TensorVariable:
        self._lengths |= {*key.variable.type.shape[key.axis : key.axis + 1]} - {None}
        return self._selected.part(key)

    @property
    def placeholders(self) -> set[Variable]:
        """Of the row arrays that the selections so far depend on."""
        return set(self._leaves.values())

    def row_arrays(self) -> list[RowArray]:
        """Evaluate the row arrays that the selections so far depend on."""
        arrays = []
        for key, placeholder in self._leaves.items():
            given, rows = key.variable in self.row_inputs, key.rows.positions
            values = self.row_inputs[key.variable] if given else self.value(key.variable)
            values = values.astype(placeholder.type.dtype, copy=False)
            if rows is not self._every.positions:
                values = np.take(values, rows, axis=key.axis)
            self._require_all(key.variable, values.shape[key.axis])
            arrays.append(RowArray(placeholder, key.variable, values, key.axis, key.rows.own))
        return arrays

    def _require_all(self, variable: Variable, length: int) -> None:
        """Raise for an axis of another length than that of the observations, all of which it has.

        Raises
        ------
        UnsupportedModelError
        """
        if length != self.n_obs:
            raise UnsupportedModelError(
                f"{describe(variable)} has {length} entries where {self.n_obs} observations were "
                "expected: the package does not understand this model. Please report it."
            )

    def taken_whole(self, selected: TensorVariable) -> list[str]:
        """Name the row data that a selected graph needs as a whole, as in ``mu - mu.mean()``."""
        sources = {v for key in self._leaves for v in ancestors([key.variable])}
        below = ancestors([selected], blockers=self._entered)
        constants = (v for v in below if isinstance(v, TensorConstant))
        whole = [c for c in constants if c in sources and self._lengths.intersection(c.type.shape)]
        return [f"{c.name or UNNAMED} (as a whole)" for c in whole]

    # -- planning ------------------------------------------------------------------------------

    def _plan(self, key: _Key) -> Step[_Key]:
        variable, node = key.variable, key.variable.owner
        if is_input(variable) or not (self.row_inputs or self.depends(variable)):
            return self._plan_input(key)
        if isinstance(node.op, CheckAndRaise):
            return self._plan_check(key, node)
        steps = (
            self._plan_index(key, node),
            self._plan_joined(key, node),
            self._plan_written(key, node),
            self._plan_descent(key, node),
            self._plan_otherwise(key, node),
            self._plan_black_box(key, node),
        )
        for step in chain.from_iterable(steps):  # the first one is made
            return step
        return self._take_here(key)

    def _plan_input(self, key: _Key) -> Step[_Key]:
        """End at data, or at a parameter that has the rows itself."""
        if key.variable in self._free:
            return self._take_here(key)
        return Step((), lambda _: self._leaf(key))

    def _plan_descent(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Follow the rule of an operation."""
        for axes, counting in axes_of_inputs(node, key.axis, self):
            yield self._apply_to_rows(key, node, axes, counting)

    def _plan_otherwise(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Follow other operations that give the same."""
        for other in written_otherwise(node, self):
            inner = _key(other[node.outputs.index(key.variable)], key.axis, key.rows)
            yield Step((inner,), lambda built: built[0])

    def _plan_black_box(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Take an operation of another package to work row by row, which is verified later."""
        shapes = [getattr(v.type, "shape", ()) for v in node.inputs]
        axes = {i: 0 for i, shape in enumerate(shapes) if shape[:1] == (self.n_obs,)}
        if key.axis == 0 and is_black_box(node.op) and axes:
            yield self._apply_to_rows(key, node, axes)

    def _apply_to_rows(
        self, key: _Key, node: Apply, axes: InputAxes, counting: Iterable[int] = ()
    ) -> Step[_Key]:
        selected = {i: a for i, a in axes.items() if not self.broadcasts(node.inputs[i], a)}
        needs = tuple(_key(node.inputs[i], a, key.rows) for i, a in selected.items())

        def build(built: list[TensorVariable]) -> TensorVariable:
            chosen: dict[int, Variable] = dict(zip(selected, built, strict=True))
            for i in counting:
                view, numbers = node.inputs[i].type.broadcastable, pt.arange(self.n_rows)
                chosen[i] = numbers.dimshuffle(["x" if single else 0 for single in view])
            inputs = [
                chosen[i] if i in chosen else self._whole(v) for i, v in enumerate(node.inputs)
            ]
            outputs = rebuild(node.op, node, inputs, {key.axis: self.n_rows})
            return checked_tensor(outputs[node.outputs.index(key.variable)])

        return Step(needs, build)

    def _plan_check(self, key: _Key, node: Apply) -> Step[_Key]:
        guarded = _key(node.inputs[0], key.axis, key.rows)
        if not isinstance(node.op, CheckParameterValue):
            return Step((guarded,), lambda built: built[0])
        length = guarded.variable.type.shape[key.axis] or self.n_obs

        def parts(condition: Variable) -> list[_Key]:
            axes = axis_of_condition(condition, guarded.variable, key.axis, length)
            return [_key(condition, axis, key.rows) for axis in axes]

        by_row, whole = conditions_by_row(node, self, guarded, parts, self._parameters_below)

        def build(built: list[TensorVariable]) -> TensorVariable:
            guards = [(c, part.axis) for c, part in zip(built[1:], by_row, strict=True)]
            return guard(built[0], key.axis, guards, map(self._whole, whole))

        return Step((guarded, *by_row), build)

    def _plan_index(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Follow ``x[index]`` where the observation axis is one that is indexed."""
        for index in indexed(node, key.axis, self):
            if len(index.positions) > 1:
                return
            if key.rows.positions is self._every.positions:
                self._require_all(key.variable, len(index.positions[0]))
            inner = _Key(index.x, index.axis, key.rows.compose(index.positions[0]))
            # The index of a lookup is a row array.  Another one only leaves rows out: the
            # selection can pass through it.
            if not (index.by_label and (index.repeats or self._parameters_below(inner))):
                yield Step((inner,), lambda built: built[0])

    def _plan_joined(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Follow a part of ``concatenate([a, b])`` that is a part of ``a`` or of ``b`` alone."""
        for piece in joined_piece(node, key.axis, key.rows.positions):
            [positions], every = piece.positions, self._every
            in_order = np.array_equal(positions, every.positions)
            is_whole = in_order and piece.lengths == (self.n_obs,)
            rows = every if is_whole else replace(key.rows, positions=positions)
            yield Step((_Key(piece.x, piece.axis, rows),), lambda built: built[0])

    def _parameters_below(self, key: _Key) -> frozenset[Variable]:
        """Find the parameters that a selection of rows reaches."""
        below = {part.variable for part in self._selected.below(key)}
        return self._free.intersection(below).union(*(self._entered.get(v, ()) for v in below))

    def _take_here(self, key: _Key) -> Step[_Key]:
        """Select the rows where no rule leads further; that costs as much as all rows."""

        def build(built: list[TensorVariable]) -> TensorVariable:
            self._note(key)
            if self.row_inputs:
                return key.variable  # a local variable: the caller refuses it
            return self._looked_up(key, built[0])

        return Step(() if self.row_inputs else (self._positions_of(key.rows),), build)

    def _looked_up(self, key: _Key, positions: TensorVariable) -> TensorVariable:
        index = (slice(None),) * key.axis + (positions,)
        return checked_tensor(self._whole(key.variable)[index])

    def _positions_of(self, rows: RowMap) -> _Key:
        """Return the selection of the numbers of the positions that observations use."""
        if rows not in self._positions:
            own = replace(self._every, own=rows.own)
            self._positions[rows] = _Key(pt.constant(rows.positions), 0, own)
        return self._positions[rows]

    def _plan_written(self, key: _Key, node: Apply) -> Iterator[Step[_Key]]:
        """Follow ``x[index].set(y)`` along the axis of the index, where that is data."""
        for found in () if self.row_inputs else written(node, key.axis, self):
            has = found.places[key.rows.positions] >= 0
            entries, left = _entries(found, key)
            needs = (*entries.values(), *left)
            local = frozenset[Variable]().union(*(self._parameters_below(k) for k in needs))
            if not local or self._of_levels:
                mask = [_Key(pt.constant(has), 0, self._every)] if left else []
                build = partial(_joined_from, key, list(entries), has)
                yield Step((*entries.values(), *mask, *left), build)
            else:
                self._entered[key.variable] = local
                yield self._look_up(key, local)

    def _look_up(self, key: _Key, local: frozenset[Variable]) -> Step[_Key]:
        """Let rows look up parameters that are written among data."""

        def looked_up(built: list[TensorVariable]) -> TensorVariable:
            self.written.setdefault(describe(key.variable), set()).update(local)
            return self._looked_up(key, built[0])

        return Step((self._positions_of(key.rows),), looked_up)

    def _note(self, key: _Key) -> None:
        """Take down where a selection ended, and the parameters with an observation axis there."""
        variable = key.variable
        if is_input(variable):
            self.local.add(variable)
            return
        if self.row_inputs:
            raise taken_over_rows(variable, self.row_inputs)
        self.unselected.append(describe(variable))
        self.stops.append((variable, key.axis))
        below = self._free.intersection(ancestors([variable]))
        self.local.update(v for v in below if self._lengths.intersection(v.type.shape))  # of steps

    def _leaf(self, key: _Key) -> TensorVariable:
        variable, axis, rows = key
        if self.row_inputs and variable not in self.row_inputs:
            raise constant_of_rows(variable, axis)
        if self.row_inputs and (axis != 0 or rows is not self._every):
            raise not_row_by_row(
                f"The rows of {variable.name!r} are sliced, reordered, or not along its first axis"
            )
        shape = [None if i == axis else n for i, n in enumerate(variable.type.shape)]
        placeholder = pt.tensor(dtype=_computable(variable), shape=tuple(shape))
        self._leaves[key] = placeholder
        return placeholder

    def _whole[V: Variable](self, variable: V) -> V:
        """Turn a part that is taken whole and depends on no parameter into a constant."""
        dtype = getattr(variable.type, "dtype", None)  # of None, as in an unknown shape, none
        if isinstance(variable, Constant) and dtype != "float16":
            return variable
        if self._from_rows.depends(variable):
            raise taken_over_rows(variable, self.row_inputs)
        if self.depends(variable):
            return variable
        if variable not in self._folded:
            self._folded[variable] = pt.as_tensor(self.value(variable), dtype=_computable(variable))
        return cast(V, self._folded[variable])


def _entries(found: Assignment, key: _Key) -> tuple[dict[tuple[int, ...], _Key], list[_Key]]:
    """Return what is in each entry of an observation, by its index; and, if needed, in the others.

    Parameters
    ----------
    found : Assignment
        An array into which entries have been written.
    key : _Key
        A selection from it.
    """
    rows = key.rows
    places = found.places[rows.positions]
    has, parts = places >= 0, dict[tuple[int, ...], _Key]()
    for entry in np.ndindex(places.shape[1:]):
        own, at = has[(slice(None), *entry)], places[(slice(None), *entry)]
        if own.any():
            places_in_y = replace(rows.restricted(own), positions=np.where(own, at, 0))
            parts[entry] = _Key(found.y, key.axis, places_in_y)
    others = rows.restricted(~has.reshape(len(has), -1).all(axis=1))
    return parts, [_Key(found.x, key.axis, others)] if others.own.any() else []


def _joined_from(
    key: _Key, entries: Sequence[tuple[int, ...]], has: np.ndarray, built: list[TensorVariable]
) -> TensorVariable:
    """Join what is written into the entries of observations with what is in the others.

    Parameters
    ----------
    key : _Key
        A selection from the array that they are written into.
    entries : sequence of tuple of int
        Indices of those that some observation has.
    has : ndarray of bool
        Which have been written, for each observation.
    built : list of TensorVariable
        The entries; and, if there are others, `has` and these.
    """
    columns = dict(zip(entries, built, strict=False))
    flat = [columns.get(entry, built[0]) for entry in np.ndindex(has.shape[1:])]
    joined = flat[0]
    if has.ndim > 1:
        after = key.axis + 1
        stacked = pt.stack(flat, axis=after)
        shape = [stacked.shape[i] for i in range(stacked.type.ndim)]
        shape[after : after + 1] = has.shape[1:]
        joined = stacked.reshape(shape)
    if len(built) == len(entries):
        return joined
    is_written, x = built[-2:]
    n_after = x.type.ndim - key.axis - has.ndim
    order = [*["x"] * key.axis, *range(has.ndim), *["x"] * n_after]
    chosen = pt.switch(is_written.dimshuffle(order), joined, x)
    return checked_tensor(chosen.astype(key.variable.type.dtype))


def _computable(variable: Variable) -> str:
    """Return the dtype to keep data in: Numba cannot compute in half precision."""
    dtype: str = variable.type.dtype
    return "float32" if dtype == "float16" else dtype
