"""Where rows look up values by the levels of factors, and which free variables these are."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Variable, ancestors, clone_replace, graph_inputs
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.selection_rules import index_of
from pymc_coresets.reading.units.ragged import spread

#: Of a table, beside its levels: up to which number of columns all of them are given to the rows.
_FEW_COLUMNS = 12


class Factor(NamedTuple):
    """A factor that rows look up values by: the level of each row, and where it does."""

    level_of_row: np.ndarray  # -1 for rows that look up none
    n_levels: int
    lookups: list["Lookup"]
    entries: list[np.ndarray]  # of its table that each level has, for each lookup; -1 for none

    def joined(self, other: "Factor") -> "Iterator[Factor]":
        """Add the lookups of another factor of which each level is in one level of this, if it is.

        So it is for the same table in other rows, and for variables that some levels have.
        """
        at = {look.found for look in self.lookups}
        if not at.isdisjoint(look.found for look in other.lookups):
            return  # two indices of one table, as in walk[area, year]
        own, others = self.level_of_row, other.level_of_row
        both, lookups = (own >= 0) & (others >= 0), [*self.lookups, *other.lookups]
        tables = [{look.table for look in factor.lookups} for factor in (self, other)]
        if self.n_levels == other.n_levels and not tables[0].isdisjoint(tables[1]):
            if not np.array_equal(own[both], others[both]):
                return
            levels = np.maximum(own, others)
            yield Factor(levels, self.n_levels, lookups, [*self.entries, *other.entries])
            return
        if not both.any() or (both != (others >= 0)).any():
            return
        pairs = np.unique(np.stack([own[both], others[both]]), axis=1)
        if any(len(np.unique(levels)) < len(levels) for levels in pairs):
            return
        without_rows = np.setdiff1d(np.arange(other.n_levels), pairs[1])
        same = np.concatenate([np.full(self.n_levels, -1), without_rows])
        same[pairs[0]] = pairs[1]
        entries = [np.append(e, np.full(len(without_rows), -1)) for e in self.entries]
        entries += [np.where(same < 0, -1, e[same]) for e in other.entries]
        yield Factor(own, len(same), lookups, entries)


class Lookup(NamedTuple):
    """A place where rows take the values of their levels from a table: ``table[..., level]``.

    Other axes may have an index of rows, too, as in ``table[level, column]``.
    """

    found: TensorVariable  # the values at the rows
    table: TensorVariable
    axis: int  # of the table, that of the levels
    levels: Variable  # the placeholder of each row's level
    entries: tuple[slice | Variable, ...]  # of the index

    @property
    def of_levels(self) -> TensorVariable:
        """The table with the axes along which rows have an index, and those that have none."""
        others = tuple(e if _is_number(e) else slice(None) for e in self.entries)
        if all(isinstance(entry, slice) for entry in others):
            return self.table
        return ops.checked_tensor(self.table[others])

    @property
    def level_axis(self) -> int:
        """Where `of_levels` has the levels."""
        return sum(not _is_number(entry) for entry in self.entries[: self.axis])

    def at_rows(self, of_levels: TensorVariable, sizes: TensorVariable) -> TensorVariable:
        """Return what `found` is at the rows of some levels, from `of_levels` at these.

        Parameters
        ----------
        of_levels : TensorVariable
        sizes : TensorVariable of int64, of shape (n_levels,)
            How many rows each level has: see `spread`.
        """
        left, axis = _without_numbers(self.entries), self.level_axis
        columns = [i for i, e in enumerate(left) if not isinstance(e, slice) and i != axis]
        if not columns:
            return spread(of_levels, sizes, axis)
        n_columns = of_levels.type.shape[columns[0]]
        is_few = len(columns) == 1 and (n_columns or math.inf) <= _FEW_COLUMNS
        if is_few and of_levels.type.dtype.startswith("float"):
            return _of_columns(of_levels, sizes, axis, left, columns[0])
        levels = spread(ops.checked_tensor(pt.arange(sizes.shape[0])), sizes)
        index = tuple(levels if i == axis else entry for i, entry in enumerate(left))
        return ops.checked_tensor(of_levels[index])


def _of_columns(
    table: TensorVariable,
    sizes: TensorVariable,
    axis: int,
    entries: Sequence[slice | Variable],
    column: int,
) -> TensorVariable:
    """Return ``table[level, column]`` at rows by giving them all columns.

    Its gradient is a sum over the rows of each level then, and not over those of each entry.
    """
    of_row, length = ops.checked_tensor(entries[column]), cast(int, table.type.shape[column])
    of_row = ops.checked_tensor(pt.switch(of_row < 0, of_row + length, of_row))
    own, to = axis - (column < axis), _row_axis(entries)
    n_after = table.type.ndim - 2 - to
    numbers = of_row.dimshuffle(*["x"] * to, 0, *["x"] * n_after)
    found = pt.constant(np.nan, dtype=table.type.dtype)  # for a number that is no column's
    for number in range(length):
        of_levels = ops.checked_tensor(table[(slice(None),) * column + (number,)])
        found = pt.switch(
            pt.eq(numbers, number), pt.moveaxis(spread(of_levels, sizes, own), own, to), found
        )
    return ops.checked_tensor(found)


def lookups_of(observations: Observations) -> list[Factor]:
    """Find where rows look up the levels of factors.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", shape=3)
    ...     y = pm.Normal("y", z[np.array([0, 0, 1, 2])], 1.0, observed=np.zeros(4))
    >>> [factor] = lookups_of(find_observations(model))
    >>> factor.level_of_row, [look.table for look in factor.lookups]
    (array([0, 0, 1, 2]), [z])
    """
    of_rows: dict[Variable, RowArray] = {row.placeholder: row for row in observations.rows}
    parameters = set(observations.parameters.values())
    factors: dict[tuple[int, bytes], Factor] = {}
    for node in ops.io_toposort([], [observations.loglik]):
        for found in _lookups(node, of_rows):
            if parameters.isdisjoint(ancestors([found.table])):
                continue
            row, length = of_rows[found.levels], found.table.type.shape[found.axis] or 0
            if length and row.values.size:
                levels = np.where(row.values < 0, row.values + length, row.values).astype(np.int64)
                levels = np.where(row.own, levels, -1)
                key = length, levels.tobytes()
                factor = factors.setdefault(key, Factor(levels, length, [], []))
                factor.lookups.append(found)
                factor.entries.append(np.arange(length))
    return _joined(list(factors.values()))


def _joined(factors: list[Factor]) -> list[Factor]:
    """Join factors, the largest first."""
    found: list[Factor] = []
    for factor in sorted(factors, key=lambda f: -f.n_levels):
        both = ((i, joint) for i, other in enumerate(found) for joint in other.joined(factor))
        for i, joint in both:
            found[i] = joint
            break
        else:
            found.append(factor)
    return found


def _lookups(node: Apply, of_rows: Collection[Variable]) -> list[Lookup]:
    """Read an index as one by levels: along each axis that has an index of rows, these may be."""
    if not isinstance(node.op, ops.AdvancedSubtensor):
        return []
    entries, arrays = index_of(node)
    at = [axis for axis, index in arrays.items() if index in of_rows]
    others = [e for i, e in enumerate(entries) if i not in at]
    simple = all(e == slice(None) if isinstance(e, slice) else _is_number(e) for e in others)
    if not at or not simple or any(arrays[axis].type.ndim != 1 for axis in at):
        return []
    if _row_axis(entries) != _row_axis(_without_numbers(entries)):
        return []
    table, found = ops.checked_tensors([node.inputs[0], node.outputs[0]])
    return [Lookup(found, table, axis, arrays[axis], tuple(entries)) for axis in at]


def _row_axis(entries: Sequence[slice | Variable]) -> int:
    """Return where an index puts the rows: NumPy puts them first if a slice lies in between."""
    numbers = [i for i, e in enumerate(entries) if not isinstance(e, slice)]
    together = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers[0] if together else 0


def _without_numbers(entries: Sequence[slice | Variable]) -> list[slice | Variable]:
    return [entry for entry in entries if not _is_number(entry)]


def _is_number(entry: slice | Variable) -> bool:
    return isinstance(entry, Constant) and np.ndim(entry.data) == 0


def find_factors(observations: Observations) -> list[tuple[int, tuple[str, ...]]]:
    """Return the number of levels of each factor, and the free variables that may belong to them.

    The largest factor comes first; `factor_of` says whether they do.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", pm.Normal("mu"), shape=3)
    ...     y = pm.Normal("y", z[np.array([0, 0, 1, 2])], 1.0, observed=np.zeros(4))
    >>> find_factors(find_observations(model))
    [(3, ('z',))]
    """
    every = lookups_of(observations)
    found = [(f.n_levels, _local(observations, f.lookups)) for f in every]
    return sorted((pair for pair in found if pair[1]), key=lambda pair: -pair[0])


def _local(observations: Observations, lookups: Sequence[Lookup]) -> tuple[str, ...]:
    """Name the variables of the levels of a factor that rows see through its lookups alone.

    They have its length, or are written into an array that has.
    """
    cut: dict[Variable, Variable] = {lookup.found: lookup.found.type() for lookup in lookups}
    [rest] = clone_replace([observations.loglik], cut, rebuild_strict=False)
    tables = [lookup.table for lookup in lookups]
    elsewhere, below = set(ancestors([rest])), set(ancestors(tables))
    lengths = {lookup.table.type.shape[lookup.axis] for lookup in lookups}
    entered = set(_entered(tables, lengths))
    model = observations.model
    names = [
        name
        for name, v in observations.parameters.items()
        if v in below and v not in elsewhere and (lengths & set(v.type.shape) or v in entered)
    ]
    own = {*names, *(term.name for term in observations.terms)}
    others = [v for v in (*model.basic_RVs, *model.potentials) if v.name not in own]
    behind = set(ancestors(others))
    return tuple(name for name in names if model[name] not in behind)


def _entered(tables: Sequence[Variable], lengths: set[int | None]) -> Iterator[Variable]:
    """Find the inputs of which arrays are computed that are written into others of some lengths."""
    for node in ops.io_toposort([], list(tables)):
        writes = isinstance(node.op, ops.AdvancedIncSubtensor | ops.IncSubtensor)
        if writes and lengths & set(node.outputs[0].type.shape):
            y = node.inputs[1]
            own = set(y.type.shape) - {1}
            yield from (v for v in graph_inputs([y]) if own & set(getattr(v.type, "shape", ())))
