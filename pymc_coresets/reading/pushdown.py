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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Variable, ancestors
from pytensor.tensor import TensorConstant, TensorVariable

from pymc_coresets.compat.pymc_api import CheckParameterValue
from pymc_coresets.compat.pytensor_api import CheckAndRaise, checked_tensor
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
    positions : ndarray of int, optional
        None for the identity.
    own : ndarray of bool, optional
        The observations that the axis belongs to, where others merely repeat some of its
        positions; None for all of them.
    """

    positions: np.ndarray | None = None
    own: np.ndarray | None = None

    def compose(self, inner: np.ndarray) -> "RowMap":
        """Return the map through an index of the axis."""
        return RowMap(inner if self.positions is None else inner[self.positions], self.own)

    def restricted(self, own: np.ndarray) -> "RowMap":
        """Return the map for some of the observations alone, given which."""
        return RowMap(self.positions, own if self.own is None else own & self.own)

    def at(self, positions: np.ndarray) -> "RowMap":
        """Return the map of the same observations to other positions."""
        return RowMap(positions, self.own)


ALL_ROWS = RowMap()


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
    own : ndarray of bool, or None
        Which observations have the array; ``None`` where all have it.  The values of others are
        repeated ones, and count for nothing.
    """

    placeholder: TensorVariable
    source: TensorVariable
    values: np.ndarray
    axis: int
    own: np.ndarray | None = None

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
        row_inputs: Mapping[Variable, np.ndarray] | None = None,
        *,
        of_levels: bool = False,
    ) -> None:
        self.row_inputs = row_inputs or {}
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
        self._positions: dict[RowMap, _Key] = {ALL_ROWS: _Key(pt.arange(n_obs), 0, ALL_ROWS)}

    def select(
        self, variable: TensorVariable, axis: int, rows: RowMap = ALL_ROWS
    ) -> TensorVariable:
        """Return `variable` with the rows of the placeholders along `axis`, instead of all N.

        With `rows`, each observation has the entry of `variable` that these say.
        """
        self._lengths.update(n for n in variable.type.shape[axis : axis + 1] if n is not None)
        return self._selected.part(_Key(variable, axis, rows))

    @property
    def placeholders(self) -> set[Variable]:
        """Of the row arrays that the selections so far depend on."""
        return set(self._leaves.values())

    def row_arrays(self) -> list[RowArray]:
        """Evaluate the row arrays that the selections so far depend on."""
        arrays = []
        for key, placeholder in self._leaves.items():
            given, rows = self.row_inputs.get(key.variable), key.rows.positions
            values = self.value(key.variable) if given is None else given
            values = values.astype(placeholder.type.dtype, copy=False)
            if rows is not None:
                values = np.take(values, rows, axis=key.axis)
            if values.shape[key.axis] != self.n_obs:
                raise UnsupportedModelError(
                    f"{describe(key.variable)} has {values.shape[key.axis]} entries where "
                    f"{self.n_obs} observations were expected: the package does not understand "
                    "this model. Please report it."
                )
            arrays.append(RowArray(placeholder, key.variable, values, key.axis, key.rows.own))
        return arrays

    def taken_whole(self, selected: TensorVariable) -> list[str]:
        """Name the row data that a selected graph needs as a whole, as in ``mu - mu.mean()``."""
        sources = {v for key in self._leaves for v in ancestors([key.variable])}
        below = ancestors([selected], blockers=self._entered)
        constants = (v for v in below if isinstance(v, TensorConstant))
        whole = [c for c in constants if c in sources and self._lengths.intersection(c.type.shape)]
        return [f"{c.name or UNNAMED} (as a whole)" for c in whole]

    # -- planning ------------------------------------------------------------------------------

    def _plan(self, key: _Key) -> Step[_Key]:
        variable, axis, rows = key
        node = variable.owner
        if node is None or not (self.row_inputs or self.depends(variable)):
            return self._plan_input(key)
        if isinstance(node.op, CheckAndRaise):
            return self._plan_check(key, node)
        step = (
            self._plan_index(key, node)
            or self._plan_joined(key, node)
            or self._plan_written(key, node)
            or self._plan_descent(key, node)
        )
        if step is not None:
            return step
        other = written_otherwise(node, self)
        if other is not None:
            inner = _key(other[node.outputs.index(variable)], axis, rows)
            return Step((inner,), lambda built: built[0])
        return self._plan_black_box(key, node) or self._take_here(key)

    def _plan_input(self, key: _Key) -> Step[_Key]:
        """End at data, or at a parameter that has the rows itself."""
        if key.variable in self._free:
            return self._take_here(key)
        return Step((), lambda _: self._leaf(key))

    def _plan_descent(self, key: _Key, node: Apply) -> Step[_Key] | None:
        """Follow the rule of an operation."""
        axes, counting = axes_of_inputs(node, key.axis, self)
        return None if axes is None else self._apply_to_rows(key, node, axes, counting)

    def _plan_black_box(self, key: _Key, node: Apply) -> Step[_Key] | None:
        """Take an operation of another package to work row by row, which is verified later."""
        if key.axis or not is_black_box(node.op):
            return None
        lengths = [getattr(v.type, "shape", ())[:1] for v in node.inputs]
        axes = [0 if length == (self.n_obs,) else None for length in lengths]
        return self._apply_to_rows(key, node, axes) if 0 in axes else None

    def _apply_to_rows(
        self, key: _Key, node: Apply, axes: InputAxes, counting: int | None = None
    ) -> Step[_Key]:
        selected = {
            i: a
            for i, a in enumerate(axes)
            if a is not None and not self.broadcasts(node.inputs[i], a)
        }
        needs = tuple(_key(node.inputs[i], a, key.rows) for i, a in selected.items())

        def build(built: list[TensorVariable]) -> TensorVariable:
            chosen: dict[int, Variable] = dict(zip(selected, built, strict=True))
            if counting is not None:
                view = node.inputs[counting].type.broadcastable
                numbers = pt.arange(self.n_rows)
                chosen[counting] = numbers.dimshuffle(["x" if single else 0 for single in view])
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

        def part(condition: Variable) -> _Key | None:
            axis = axis_of_condition(condition, guarded.variable, key.axis, length)
            return None if axis is None else _key(condition, axis, key.rows)

        by_row, whole = conditions_by_row(node, self, guarded, part, self._parameters_below)

        def build(built: list[TensorVariable]) -> TensorVariable:
            guards = [(c, part.axis) for c, part in zip(built[1:], by_row, strict=True)]
            shared = [(self._whole(c), None) for c in whole]
            return guard(built[0], key.axis, [*guards, *shared])

        return Step((guarded, *by_row), build)

    def _plan_index(self, key: _Key, node: Apply) -> Step[_Key] | None:
        """Follow ``x[index]`` where the observation axis is one that is indexed."""
        index = indexed(node, key.axis, self)
        if index is None or len(index.positions) > 1:
            return None
        inner = _Key(index.x, index.axis, key.rows.compose(index.positions[0]))
        if index.by_label and (index.repeats or self._parameters_below(inner)):
            return None  # a lookup: its index is a row array
        # The index only leaves rows out: the selection can pass through it.
        return Step((inner,), lambda built: built[0])

    def _plan_joined(self, key: _Key, node: Apply) -> Step[_Key] | None:
        """Follow a part of ``concatenate([a, b])`` that is a part of ``a`` or of ``b`` alone."""
        if key.rows.positions is None:
            return None
        piece = joined_piece(node, key.axis, key.rows.positions)
        if piece is None:
            return None
        [positions] = piece.positions
        in_order = piece.lengths == (self.n_obs,) and np.array_equal(
            positions, np.arange(self.n_obs)
        )
        rows = ALL_ROWS if in_order else RowMap(positions, key.rows.own)
        return Step((_Key(piece.x, piece.axis, rows),), lambda built: built[0])

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
            numbers = np.arange(self.n_obs) if rows.positions is None else rows.positions
            own = ALL_ROWS if rows.own is None else RowMap(None, rows.own)
            self._positions[rows] = _Key(pt.constant(numbers), 0, own)
        return self._positions[rows]

    def _plan_written(self, key: _Key, node: Apply) -> Step[_Key] | None:
        """Follow ``x[index].set(y)`` along the axis of the index, where that is data."""
        found = None if self.row_inputs else written(node, key.axis, self)
        if found is None:
            return None
        entries = _entries(found, key)
        needs = [*entries.written.values(), *entries.left]
        local = frozenset[Variable]().union(*(self._parameters_below(k) for k in needs))
        if not local or self._of_levels:
            return _joined_from(key, entries)
        self._entered[key.variable] = local  # rows look them up, among data

        def looked_up(built: list[TensorVariable]) -> TensorVariable:
            self.written.setdefault(describe(key.variable), set()).update(local)
            return self._looked_up(key, built[0])

        return Step((self._positions_of(key.rows),), looked_up)

    def _note(self, key: _Key) -> None:
        """Take down where a selection ended, and the parameters with an observation axis there."""
        variable = key.variable
        if variable.owner is None:
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
        if self.row_inputs and (axis != 0 or rows is not ALL_ROWS):
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


class _Entries(NamedTuple):
    """Where entries of an array come from, of which some have been written: see `Assignment`.

    Attributes
    ----------
    has : ndarray of bool
        Which have been, for each observation.
    written : dict of tuple to _Key
        What is in each entry of an observation, by its index.
    left : list of _Key
        The others, if there are any.
    """

    has: np.ndarray
    written: dict[tuple[int, ...], _Key]
    left: list[_Key]


def _entries(found: Assignment, key: _Key) -> _Entries:
    rows = key.rows
    places = found.places if rows.positions is None else found.places[rows.positions]
    has = places >= 0
    parts = {}
    for entry in np.ndindex(places.shape[1:]):
        own, at = has[(slice(None), *entry)], places[(slice(None), *entry)]
        if own.any():
            restricted = rows.restricted(own)
            parts[entry] = _Key(found.y, key.axis, restricted.at(np.where(own, at, 0)))
    lacking = ~has.reshape(len(has), -1).all(axis=1)
    others = rows.restricted(lacking)
    is_needed = others.own is not None and others.own.any()
    return _Entries(has, parts, [_Key(found.x, key.axis, others)] if is_needed else [])


def _joined_from(key: _Key, entries: _Entries) -> Step[_Key]:
    """Join what is written into the entries of observations with what is in the others."""
    has = entries.has
    mask = [_Key(pt.constant(has), 0, ALL_ROWS)] if entries.left else []

    def build(built: list[TensorVariable]) -> TensorVariable:
        columns = dict(zip(entries.written, built, strict=False))
        flat = [columns.get(entry, built[0]) for entry in np.ndindex(has.shape[1:])]
        joined = flat[0]
        if has.ndim > 1:
            after = key.axis + 1
            stacked = pt.stack(flat, axis=after)
            shape = [stacked.shape[i] for i in range(stacked.type.ndim)]
            shape[after : after + 1] = has.shape[1:]
            joined = stacked.reshape(shape)
        if not entries.left:
            return joined
        is_written, x = built[-2:]
        n_after = x.type.ndim - key.axis - has.ndim
        order = [*["x"] * key.axis, *range(has.ndim), *["x"] * n_after]
        chosen = pt.switch(is_written.dimshuffle(order), joined, x)
        return checked_tensor(chosen.astype(key.variable.type.dtype))

    return Step((*entries.written.values(), *mask, *entries.left), build)


def _computable(variable: Variable) -> str:
    """Return the dtype to keep data in: Numba cannot compute in half precision."""
    dtype: str = variable.type.dtype
    return "float32" if dtype == "float16" else dtype
