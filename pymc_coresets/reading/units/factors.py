"""Which free variables belong to the levels of one factor: each to one level, and to its rows."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Variable, ancestors, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import known_length
from pymc_coresets.reading.graphs import plain_model
from pymc_coresets.reading.likelihood.row_terms import sum_over_events
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import ALL_ROWS, Pushdown, RowArray, RowMap
from pymc_coresets.reading.selection_rules import index_of


class Lookup(NamedTuple):
    """A place where rows take the values of their levels from a table: ``table[..., level]``."""

    found: TensorVariable  # the values at the rows
    table: TensorVariable
    axis: int  # of the table, that of the levels
    levels: Variable  # the placeholder of each row's level
    entries: tuple[slice | Variable, ...]  # of the index

    @property
    def of_levels(self) -> TensorVariable:
        """The table with the levels along the axis that the rows have in `found`."""
        others = tuple(slice(None) if i == self.axis else e for i, e in enumerate(self.entries))
        if all(isinstance(entry, slice) for entry in others):
            return self.table
        return cast(TensorVariable, self.table[others])

    @property
    def row_axis(self) -> int:
        """Where `found` has the rows, and `of_levels` the levels."""
        return sum(isinstance(entry, slice) for entry in self.entries[: self.axis])


class Part(NamedTuple):
    """Where a variable stands among the numbers of a level, side by side."""

    name: str
    variable: TensorVariable  # at any levels
    axis: int  # of the variable, that of the levels
    shape: tuple[int, ...]  # at one level
    columns: slice

    def of(self, flat: Any) -> Any:  # noqa: ANN401 - an array, or a graph
        """Return the variable at all levels from the numbers of these, (n_levels, q)."""
        part = flat[:, self.columns].reshape((flat.shape[0], *self.shape))
        move = np.moveaxis if isinstance(flat, np.ndarray) else pt.moveaxis
        return move(part, 0, self.axis).astype(self.variable.type.dtype)

    def flat(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers of the levels, (n_levels, width), from the variable at all of them."""
        rows = np.moveaxis(values, self.axis, 0)
        return rows.reshape(len(rows), self.columns.stop - self.columns.start)


@dataclass(frozen=True, eq=False)
class GroupingFactor:
    """Free variables of the levels of a factor, which are independent given all others.

    Attributes
    ----------
    parts : tuple of Part
        The variables, each an input that stands for it at any levels, on its unconstrained scale.
    n_levels : int
        G.
    level_of_row : ndarray of int64, of shape (n_obs,)
    lookups : tuple of (TensorVariable, TensorVariable, int)
        Terms of the rows' log-likelihood that depend on the levels; the same as functions of the
        variables at the levels; and the axis of the levels.
    log_prior : TensorVariable
        Of each level, (n_levels,), in nats, with the logarithm of the Jacobian.
    n_rows : Variable
        Scalar input: how many levels there are.
    arrays : tuple of RowArray
        Data of the levels.
    reference : tuple of TensorVariable
        The log-priors of the variables as PyMC derives them, as functions of the parameters.
    values : tuple of range
        Possible values of each entry of a level for discrete variables; empty for continuous ones.
    """

    parts: tuple[Part, ...]
    n_levels: int
    level_of_row: np.ndarray
    lookups: tuple[tuple[TensorVariable, TensorVariable, int], ...]
    log_prior: TensorVariable
    n_rows: Variable
    arrays: tuple[RowArray, ...]
    reference: tuple[TensorVariable, ...]
    values: tuple[range, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variables."""
        return tuple(part.name for part in self.parts)

    @property
    def n_dims(self) -> int:
        """Number of free dimensions q of a level."""
        return int(self.parts[-1].columns.stop)


def lookups_of(observations: Observations) -> dict[bytes, list[Lookup]]:
    """Find where rows look up the levels of factors, by factor.

    Examples
    --------
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", shape=3)
    ...     y = pm.Normal("y", z[np.array([0, 0, 1, 2])], 1.0, observed=np.zeros(4))
    >>> [[look.table for look in looks] for looks in lookups_of(find_observations(model)).values()]
    [[z]]
    """
    of_rows: dict[Variable, RowArray] = {row.placeholder: row for row in observations.rows}
    parameters = set(observations.parameters.values())
    factors: dict[bytes, list[Lookup]] = {}
    for node in ops.io_toposort([], [observations.loglik]):
        found = _lookup(node, of_rows)
        if found is not None and not parameters.isdisjoint(ancestors([found.table])):
            length = found.table.type.shape[found.axis]
            levels = of_rows[found.levels].values
            if length is not None and levels.size:
                key = np.where(levels < 0, levels + length, levels).astype(np.int64).tobytes()
                factors.setdefault(key, []).append(found)
    return factors


def _lookup(node: Apply, of_rows: Collection[Variable]) -> Lookup | None:
    if not isinstance(node.op, ops.AdvancedSubtensor):
        return None
    entries, arrays = index_of(node)
    at = [axis for axis, index in arrays.items() if index in of_rows]
    others = [e for i, e in enumerate(entries) if i not in at]
    simple = all(e == slice(None) if isinstance(e, slice) else _is_number(e) for e in others)
    if len(at) != 1 or not simple or arrays[at[0]].type.ndim != 1:
        return None
    [axis] = at
    table, found = cast(list[TensorVariable], [node.inputs[0], node.outputs[0]])
    lookup = Lookup(found, table, axis, arrays[axis], tuple(entries))
    # NumPy puts the rows first where a slice lies between a number and them.
    numbers = [i for i, e in enumerate(entries) if not isinstance(e, slice)]
    together = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return lookup if together or lookup.row_axis == 0 else None


def _is_number(entry: Variable) -> bool:
    return isinstance(entry, Constant) and np.ndim(entry.data) == 0


def find_factors(observations: Observations) -> list[tuple[int, tuple[str, ...]]]:
    """Return the number of levels of each factor, and the free variables that may belong to them.

    The largest factor comes first; `factor_of` says whether they do.

    Examples
    --------
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", pm.Normal("mu"), shape=3)
    ...     y = pm.Normal("y", z[np.array([0, 0, 1, 2])], 1.0, observed=np.zeros(4))
    >>> find_factors(find_observations(model))
    [(3, ('z',))]
    """
    every = lookups_of(observations).values()
    found = [(_n_levels(lookups), _local(observations, lookups)) for lookups in every]
    return sorted((pair for pair in found if pair[1]), key=lambda pair: -pair[0])


def _n_levels(lookups: Sequence[Lookup]) -> int:
    return int(lookups[0].table.type.shape[lookups[0].axis])


def _local(observations: Observations, lookups: Sequence[Lookup]) -> tuple[str, ...]:
    """Name the variables with the length of a factor that rows see through its lookups alone."""
    n_levels = _n_levels(lookups)
    if any(lookup.table.type.shape[lookup.axis] != n_levels for lookup in lookups):
        return ()
    cut: dict[Variable, Variable] = {lookup.found: lookup.found.type() for lookup in lookups}
    [rest] = clone_replace([observations.loglik], cut, rebuild_strict=False)
    elsewhere, below = set(ancestors([rest])), set(ancestors([lookup.table for lookup in lookups]))
    model = observations.model
    names = [
        name
        for name, v in observations.parameters.items()
        if v in below and v not in elsewhere and n_levels in v.type.shape
    ]
    own = {*names, *(term.name for term in observations.terms)}
    others = [v for v in (*model.basic_RVs, *model.potentials) if v.name not in own]
    behind = set(ancestors(others))
    return tuple(name for name in names if model[name] not in behind)


def factor_of(observations: Observations, names: Sequence[str]) -> GroupingFactor:
    """Derive what the levels of a factor are, for any of them.

    Parameters
    ----------
    observations : Observations
        Whose parameters are on their unconstrained scale for these variables.
    names : sequence of str
        From `find_factors`.

    Returns
    -------
    GroupingFactor

    Raises
    ------
    UnsupportedModelError
        If the levels are not independent of each other, given the other variables, or rows see
        entries of other levels.

    Examples
    --------
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", pm.Normal("mu"), shape=3)
    ...     y = pm.Normal("y", z[np.array([0, 0, 1, 2])], 1.0, observed=np.zeros(4))
    >>> found = find_observations(model, unconstrained=["z"])
    >>> factor = factor_of(found, ["z"])
    >>> factor.n_levels, factor.n_dims, factor.level_of_row
    (3, 1, array([0, 0, 1, 2]))
    """
    inputs = {name: observations.parameters[name] for name in names}
    key, lookups = next(
        (key, lookups)
        for key, lookups in lookups_of(observations).items()
        if not set(inputs.values()).isdisjoint(ancestors([lookup.table for lookup in lookups]))
    )
    level_of_row, log_priors = np.frombuffer(key, dtype=np.int64), _log_priors(observations, names)
    find = partial(_Selected.of, observations.parameters, inputs, lookups, log_priors)
    found = find(ALL_ROWS)
    if not np.array_equal(entries := found.entries, np.arange(len(entries))):
        # Their levels are numbered as the entries of the variables are.
        found, level_of_row = find(RowMap(np.argsort(entries))), entries[level_of_row]
    fresh, stand_ins = found.of_levels
    used = set(ancestors(fresh))
    parts = _parts(stand_ins, found.axes)
    return GroupingFactor(
        parts=parts,
        n_levels=len(entries),
        level_of_row=level_of_row,
        lookups=tuple(
            (lookup.found, table, lookup.row_axis)
            for lookup, table in zip(lookups, fresh, strict=False)
        ),
        log_prior=cast(TensorVariable, sum(fresh[len(lookups) :])),
        n_rows=found.pushdown.n_rows,
        arrays=tuple(row for row in found.arrays if row.placeholder in used),
        reference=tuple(log_priors.values()),
        values=_values(observations.held.whole, parts),
    )


def _log_priors(observations: Observations, names: Sequence[str]) -> dict[str, TensorVariable]:
    """Return the log-priors of variables as PyMC derives them, as functions of the parameters."""
    priors = plain_model(observations.model, list(names), unconstrained=names)
    own: dict[Variable, Variable] = {
        v: observations.parameters[name] for name, v in priors.parameters.items()
    }
    graphs = clone_replace([priors.graphs[name] for name in names], own, rebuild_strict=False)
    return dict(zip(names, cast(list[TensorVariable], graphs), strict=True))


def _parts(stand_ins: Mapping[str, TensorVariable], axes: Mapping[str, int]) -> tuple[Part, ...]:
    parts = list[Part]()
    for name, variable in stand_ins.items():
        start = parts[-1].columns.stop if parts else 0
        of_level = tuple(n for i, n in enumerate(variable.type.shape) if i != axes[name])
        columns = slice(start, start + math.prod(of_level))
        parts.append(Part(name, variable, axes[name], of_level, columns))
    return tuple(parts)


@dataclass(frozen=True, eq=False)
class _Selected:
    """Graphs of any levels, from graphs of all of them.

    Attributes
    ----------
    inputs : dict of str to TensorVariable
        The variables at all levels.
    tables, log_priors : list of TensorVariable
        What rows look up, and the log-prior of each variable.
    pushdown : Pushdown
    axes : dict of str to int
        Axis of each variable that has the levels.
    """

    inputs: dict[str, TensorVariable]
    tables: list[TensorVariable]
    log_priors: list[TensorVariable]
    pushdown: Pushdown
    axes: dict[str, int]

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, TensorVariable],
        inputs: dict[str, TensorVariable],
        lookups: Sequence[Lookup],
        log_priors: Mapping[str, TensorVariable],
        order: RowMap,
    ) -> Self:
        """Select levels, each with the entry of the lookups' tables that `order` says."""
        n_levels = _n_levels(lookups)
        pushdown = Pushdown(parameters.values(), n_levels)
        tables = [pushdown.select(look.of_levels, look.row_axis, order) for look in lookups]
        axes = {place.name: place.axis for place in _taken(tables, inputs)}
        if set(axes) != set(inputs):
            raise _tied(set(inputs) - set(axes))
        of_levels = []
        for name, graph in log_priors.items():
            if graph.type.ndim <= axes[name] or graph.type.shape[axes[name]] not in (
                n_levels,
                None,
            ):
                raise _tied([name])
            selected = pushdown.select(graph, axes[name])
            of_levels.append(sum_over_events([(selected, axes[name])]))
        return cls(inputs, tables, of_levels, pushdown, axes)

    @cached_property
    def arrays(self) -> list[RowArray]:
        """Data of the levels."""
        return self.pushdown.row_arrays()

    @property
    def entries(self) -> np.ndarray:
        """Which entry of the variables the rows of each level see, (n_levels,).

        Raises
        ------
        UnsupportedModelError
            If they see several, or one that other levels see; or if the log-prior at an entry
            depends on another one.
        """
        own = np.arange(self.pushdown.n_obs)
        for name, entries in self._entries(self.log_priors):
            if not np.array_equal(entries, own):
                raise _tied([name])
        seen = list(self._entries(self.tables))
        for name, entries in seen:
            is_common = np.array_equal(entries, seen[0][1])
            if not is_common or not np.array_equal(np.sort(entries), own):
                raise _of_other_levels(name)
        return seen[0][1]

    def _entries(self, graphs: Sequence[TensorVariable]) -> Iterator[tuple[str, np.ndarray]]:
        """For each place where a variable is taken, find which of its entries each level gets."""
        known: dict[Variable, np.ndarray] = {row.placeholder: row.values for row in self.arrays}
        for name, _, axis, levels in _taken(graphs, self.inputs):
            entries, length = known.get(levels), self.inputs[name].type.shape[axis]
            if entries is None or entries.dtype.kind not in "iu":
                raise _tied([name])
            yield name, np.where(entries < 0, entries + length, entries).astype(np.int64)

    @property
    def of_levels(self) -> tuple[list[TensorVariable], dict[str, TensorVariable]]:
        """Tables and log-priors as functions of the variables at any levels; and these."""
        graphs, inputs, axes = [*self.tables, *self.log_priors], self.inputs, self.axes
        replaced: dict[Variable, Variable] = {}
        stand_ins: dict[str, TensorVariable] = {}
        for name, variable in inputs.items():
            shape = [None if i == axes[name] else n for i, n in enumerate(variable.type.shape)]
            stand_ins[name] = variable.type.clone(shape=tuple(shape))(name=name)
        for place in _taken(graphs, inputs):
            if place.axis != axes[place.name]:
                raise _tied([place.name])
            replaced[place.found] = stand_ins[place.name]
        fresh = clone_replace(graphs, replaced, rebuild_strict=False)
        tied = {name for name, v in inputs.items() if v in set(ancestors(fresh))}
        if tied or self.pushdown.unselected:
            raise _tied(tied or inputs, self.pushdown.unselected)
        return cast(list[TensorVariable], fresh), stand_ins


def _values(model: pm.Model, parts: Sequence[Part]) -> tuple[range, ...]:
    """Return what discrete variables of a level may be.

    Raises
    ------
    UnsupportedModelError
        If they are discrete without end, or some are and others are not.
    """
    discrete = [p.name for p in parts if model[p.name].type.dtype.startswith(("int", "uint"))]
    if not discrete:
        return ()
    if len(discrete) < len(parts):
        raise UnsupportedModelError(
            f"{discrete!r} are discrete, but others of the same levels are not: they cannot be "
            "integrated out together. Sum the discrete ones out of the likelihood (pm.Mixture)."
        )
    found: list[range] = []
    for part in parts:
        found += [_support(model, part.name)] * math.prod(part.shape)
    return tuple(found)


def _support(model: pm.Model, name: str) -> range:
    node = model[name].owner
    kind, parameters = getattr(node.op, "name", ""), node.op.dist_params(node)
    if kind == "bernoulli":
        return range(2)
    if kind == "categorical" and (n_classes := known_length(parameters[0], -1)) is not None:
        return range(n_classes)
    if kind == "discrete_uniform" and all(isinstance(v, Constant) for v in parameters):
        low, high = (int(np.min(v.data)) for v in parameters)
        return range(low, high + 1)
    raise UnsupportedModelError(
        f"{name!r} is discrete, and it is not known which values it may have: a Bernoulli, "
        "Categorical or DiscreteUniform variable can be summed out. Write the likelihood without "
        "it (pm.Mixture)."
    )


class _Place(NamedTuple):
    """A place where levels are selected from a variable, along an axis, by their numbers."""

    name: str
    found: TensorVariable
    axis: int
    levels: TensorVariable


def _taken(graphs: Sequence[Variable], inputs: Mapping[str, TensorVariable]) -> Iterator[_Place]:
    """Find where levels are selected from the variables, and nothing but levels."""
    names: dict[Variable, str] = {v: name for name, v in inputs.items()}
    for node in ops.io_toposort([], list(graphs)):
        if isinstance(node.op, ops.AdvancedSubtensor) and node.inputs[0] in names:
            entries, arrays = index_of(node)
            others = [e for i, e in enumerate(entries) if i not in arrays]
            if len(arrays) == 1 and all(entry == slice(None) for entry in others):
                [(axis, index)] = arrays.items()
                found = cast(TensorVariable, node.outputs[0])
                yield _Place(names[node.inputs[0]], found, axis, cast(TensorVariable, index))


def _tied(names: Collection[str], places: Sequence[str] = ()) -> UnsupportedModelError:
    where = f" ({'; '.join(places)})" if places else ""
    return UnsupportedModelError(
        f"The entries of {sorted(names)!r} are not independent of each other given the other "
        f"variables{where}: they cannot be integrated out one by one. Keep them as parameters "
        "(integrate=False).",
        topic="local-latent-variables",
    )


def _of_other_levels(name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"Rows of one level depend on {name!r} of other levels, as in effect[neighbour][level]: it "
        "cannot be integrated out level by level. Index it by the level of each row alone "
        f"({name}[level]), or keep it as a parameter (integrate=False).",
        topic="local-latent-variables",
    )
