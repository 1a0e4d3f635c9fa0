"""Which free variables belong to the levels of one factor: each to one level, and to its rows."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable, ancestors, clone_replace
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import known_length
from pymc_coresets.reading.graphs import plain_model
from pymc_coresets.reading.likelihood.row_terms import sum_over_events
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import Pushdown, RowArray
from pymc_coresets.reading.selection_rules import index_of
from pymc_coresets.reading.units.lookups import Factor, Lookup, lookups_of


class Part(NamedTuple):
    """Where a variable stands among the numbers of a level, side by side.

    A variable of which only some levels have entries, or several, has a part for each entry that a
    level may have.  Levels without one have a standard normal number in its place, or any of its
    values with the same probability, which no row sees.
    """

    name: str
    variable: TensorVariable  # at any levels
    axis: int  # of the variable, that of the levels
    shape: tuple[int, ...]  # at one level
    columns: slice
    entries: np.ndarray  # of the variable, one for each level; -1 for none

    def of(self, flat: Any) -> Any:  # noqa: ANN401 - an array, or a graph
        """Return the variable at all levels from the numbers of these, (n_levels, q)."""
        part = flat[:, self.columns].reshape((flat.shape[0], *self.shape))
        move = np.moveaxis if isinstance(flat, np.ndarray) else pt.moveaxis
        return move(part, 0, self.axis).astype(self.variable.type.dtype)

    def flat(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers of the levels, (n_levels, width), from the variable at all of them."""
        rows = np.moveaxis(values, self.axis, 0)
        width = self.columns.stop - self.columns.start
        found = rows[self.entries].reshape(len(self.entries), width)
        return np.where(self.has[:, None], found, np.zeros((), found.dtype))

    @property
    def has(self) -> np.ndarray:
        """Which levels have an entry of the variable."""
        return self.entries >= 0


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
    lookups : tuple of (Lookup, TensorVariable)
        Where the rows' log-likelihood depends on the levels; and the table there as a function of
        the variables at the levels.
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
    shapes : dict of str to tuple of int
        Of the variables, with all levels.
    """

    parts: tuple[Part, ...]
    n_levels: int
    level_of_row: np.ndarray
    lookups: tuple[tuple[Lookup, TensorVariable], ...]
    log_prior: TensorVariable
    n_rows: Variable
    arrays: tuple[RowArray, ...]
    reference: tuple[TensorVariable, ...]
    values: tuple[range, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def n_unit_rows(self) -> float:
        """Mean number of rows of a level that has any."""
        return len(self.level_of_row) / len(np.unique(self.level_of_row))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variables."""
        return tuple(dict.fromkeys(part.name for part in self.parts))

    @cached_property
    def in_order(self) -> bool:
        """Whether each level has the entry of its own number of every variable."""
        return all(_counts(part.entries) for part in self.parts)

    @cached_property
    def with_variables(self) -> np.ndarray:
        """The levels that have a variable."""
        has = np.zeros(self.n_levels, dtype=bool)
        for part in self.parts:
            has |= part.has
        return np.flatnonzero(has)

    def entries_of(self, name: str, levels: np.ndarray) -> tuple[int, np.ndarray]:
        """Return the axis of a variable that has the levels, and which entries some levels have."""
        parts = [part for part in self.parts if part.name == name]
        entries = np.unique(np.concatenate([part.entries[levels] for part in parts]))
        return parts[0].axis, entries[entries >= 0]

    def variables(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the variables from the numbers of all levels, (n_levels, q)."""
        found: dict[str, np.ndarray] = {}
        for part in self.parts:
            values = part.of(flat)
            if part.name not in found:
                found[part.name] = np.zeros(self.shapes[part.name], values.dtype)
            whole = np.moveaxis(found[part.name], part.axis, 0)
            whole[part.entries[part.has]] = np.moveaxis(values, part.axis, 0)[part.has]
        return found

    def log_priors(self, reference: Sequence[np.ndarray], flat: np.ndarray) -> np.ndarray:
        """Return the log-prior of each level from the values of `reference` and its numbers."""
        of_variable = dict(zip(self.names, reference, strict=True))
        total = np.zeros(self.n_levels)
        for part in self.parts:
            own = np.moveaxis(of_variable[part.name], part.axis, 0)
            by_entry = own.reshape(len(own), -1).sum(axis=1)
            numbers, values = flat[:, part.columns], self.values[part.columns]
            lacking = -np.log([len(v) for v in values]) if values else _log_normal(numbers)
            total += np.where(part.has, by_entry[part.entries], np.sum(lacking, axis=-1))
        return total

    @property
    def n_dims(self) -> int:
        """Number of free dimensions q of a level."""
        return int(self.parts[-1].columns.stop)


def _log_normal(x: Any) -> Any:  # noqa: ANN401 - an array, or a graph
    return -(x**2 + math.log(2 * math.pi)) / 2


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
    refused: list[UnsupportedModelError] = []
    for factor in lookups_of(observations):
        if set(inputs.values()).isdisjoint(ancestors([look.table for look in factor.lookups])):
            continue
        try:
            return _of_factor(observations, inputs, factor)
        except UnsupportedModelError as error:  # in walk[area, year], areas are independent
            refused.append(error)
    raise refused[0]


def options_to_keep(rows: Observations, names: Collection[str]) -> str:
    """Return the options of a build by which variables of levels, or of rows, remain parameters."""
    is_local = not set(names).isdisjoint(rows.local)
    return "integrate=False, allow_local=True" if is_local else "integrate=False"


def _of_factor(
    observations: Observations, inputs: dict[str, TensorVariable], factor: Factor
) -> GroupingFactor:
    """Derive what the levels of a factor are: see `factor_of`."""
    level_of_row, n_levels, lookups, entries_of_tables = factor
    level_of_row, n_single = _with_single_rows(level_of_row, n_levels)
    log_priors = _log_priors(observations, list(inputs))
    find = partial(_GraphsOfLevels.of, observations, inputs, lookups, log_priors)
    single = np.full(n_single, -1)
    found = find([np.append(entries, single) for entries in entries_of_tables])
    entries = found.common_entries
    if not _counts(entries):  # levels are numbered as the entries of the variables are
        found = find([np.argsort(entries)] * len(lookups))
        level_of_row = entries[level_of_row]
    fresh, parts = found.of_levels
    used = set(ancestors(fresh))
    return GroupingFactor(
        parts=parts,
        n_levels=found.pushdown.n_obs,
        level_of_row=level_of_row,
        lookups=tuple(zip(lookups, fresh, strict=False)),
        log_prior=ops.checked_tensor(sum(fresh[len(lookups) :])),
        n_rows=found.pushdown.n_rows,
        arrays=tuple(row for row in found.arrays if row.placeholder in used),
        reference=tuple(log_priors.values()),
        values=_values(observations.snapshot.whole, parts),
        shapes={name: variable.type.shape for name, variable in inputs.items()},
    )


def _with_single_rows(level_of_row: np.ndarray, n_levels: int) -> tuple[np.ndarray, int]:
    """Give each row without a level one of its own, after the others, and count these.

    Examples
    --------
    >>> _with_single_rows(np.array([0, -1, 1, -1]), 2)
    (array([0, 2, 1, 3]), 2)
    """
    single = np.flatnonzero(level_of_row < 0)
    found = level_of_row.copy()
    found[single] = n_levels + np.arange(len(single))
    return found, len(single)


def _counts(entries: np.ndarray) -> bool:
    return np.array_equal(entries, np.arange(len(entries)))


def _log_priors(observations: Observations, names: Sequence[str]) -> dict[str, TensorVariable]:
    """Return the log-priors of variables as PyMC derives them, as functions of the parameters."""
    priors = plain_model(observations.model, list(names), unconstrained=names)
    own: dict[Variable, Variable] = {
        v: observations.parameters[name] for name, v in priors.parameters.items()
    }
    graphs = clone_replace([priors.graphs[name] for name in names], own, rebuild_strict=False)
    return dict(zip(names, ops.checked_tensors(graphs), strict=True))


@dataclass(frozen=True, eq=False)
class _GraphsOfLevels:
    """Graphs of any levels, from graphs of all of them.

    Attributes
    ----------
    inputs : dict of str to TensorVariable
        The variables at all levels.
    tables, log_priors : list of TensorVariable
        What rows look up, and the log-prior of each part of the variables.
    pushdown : Pushdown
    axes : dict of str to int
        Axis of each variable that has the levels.
    entries : list of (str, ndarray)
        The variable of each part, and which of its entries each level has; -1 for none.
    values : list of range
        What a discrete part may be.
    options_to_keep : str
        See `options_to_keep`.
    """

    inputs: dict[str, TensorVariable]
    tables: list[TensorVariable]
    log_priors: list[TensorVariable]
    pushdown: Pushdown
    axes: dict[str, int]
    entries: list[tuple[str, np.ndarray]]
    values: dict[str, range]
    options_to_keep: str

    @classmethod
    def of(
        cls,
        observations: Observations,
        inputs: dict[str, TensorVariable],
        lookups: Sequence[Lookup],
        log_priors: Mapping[str, TensorVariable],
        orders: Sequence[np.ndarray],
    ) -> Self:
        """Select levels, each with the entry of the lookups' tables that `orders` say; -1 for none.

        Raises
        ------
        UnsupportedModelError
            If entries of the variables are not those of one level each; or if the log-prior at an
            entry depends on another one.
        """
        pushdown = Pushdown(observations.parameters.values(), len(orders[0]), of_levels=True)
        tables = [
            pushdown.select_entries(look.of_levels, look.level_axis, order)
            for look, order in zip(lookups, orders, strict=True)
        ]
        axes = {place.name: place.axis for place in _taken(tables, inputs)}
        keep = options_to_keep(observations, inputs)
        if set(axes) != set(inputs):
            raise _tied(set(inputs) - set(axes), keep)
        discrete = (n for n, v in inputs.items() if v.type.dtype.startswith(("int", "uint")))
        values = {name: _support(observations.snapshot.whole, name) for name in discrete}
        found = cls(inputs, tables, [], pushdown, axes, [], values, keep)
        found.entries.extend(found._own_entries())
        for name, entries in found.entries:
            graph, axis = log_priors[name], axes[name]
            if graph.type.ndim <= axis or graph.type.shape[axis] not in (
                inputs[name].type.shape[axis],
                None,
            ):
                raise _tied([name], keep)
            chosen = pushdown.select_entries(graph, axis, entries)
            selected = sum_over_events([(chosen, axis)])
            known = [e for n, e in found._entries([selected]) if n == name]
            if not all(np.array_equal(e, entries) for e in known):
                raise _tied([name], keep)
            found.log_priors.append(selected)
        return found

    def _own_entries(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the parts of variables that levels see, by the entries that these have."""
        places = list(self._entries(self.tables))
        for name in self.inputs:
            own = _merged([entries for n, entries in places if n == name])
            seen = np.concatenate(own)
            every = np.arange(self.inputs[name].type.shape[self.axes[name]])
            if not np.array_equal(np.sort(seen[seen >= 0]), every):
                raise _of_other_levels(name, self.options_to_keep)
            yield from ((name, entries) for entries in own)

    @cached_property
    def arrays(self) -> list[RowArray]:
        """Data of the levels."""
        return self.pushdown.row_arrays()

    @property
    def common_entries(self) -> np.ndarray:
        """Which entry each level has of every variable; its own number if some lack any."""
        _, first = self.entries[0]
        same = all(np.array_equal(entries, first) for _, entries in self.entries)
        return first if same and (first >= 0).all() else np.arange(len(first))

    def _entries(self, graphs: Sequence[TensorVariable]) -> Iterator[tuple[str, np.ndarray]]:
        """For each place where a variable is taken, find which of its entries each level gets."""
        for place in _taken(graphs, self.inputs):
            yield place.name, self._entries_at(place)

    def _entries_at(self, place: "_Place") -> np.ndarray:
        rows = {row.placeholder: row for row in self.pushdown.row_arrays()}
        is_own = place.levels in rows and place.axis == self.axes[place.name]
        if not is_own or rows[place.levels].values.dtype.kind not in "iu":
            raise _tied([place.name], self.options_to_keep)
        row, length = rows[place.levels], self.inputs[place.name].type.shape[place.axis]
        entries = np.where(row.values < 0, row.values + length, row.values).astype(np.int64)
        return np.where(row.own, entries, -1)

    @property
    def of_levels(self) -> tuple[list[TensorVariable], tuple[Part, ...]]:
        """Tables and log-priors as functions of the parts at any levels; and these."""
        graphs, parts = [*self.tables, *self.log_priors], self._parts()
        replaced: dict[Variable, Variable] = {
            place.found: self._part_at(place, parts).variable
            for place in _taken(graphs, self.inputs)
        }
        fresh = clone_replace(graphs, replaced, rebuild_strict=False)
        tied = {name for name, v in self.inputs.items() if v in set(ancestors(fresh))}
        if tied or self.pushdown.unselected:
            names = tied or set(self.inputs)
            raise _tied(names, self.options_to_keep, self.pushdown.unselected)
        n_tables = len(self.tables)
        priors = map(self._or_normal, fresh[n_tables:], parts)
        return ops.checked_tensors([*fresh[:n_tables], *priors]), parts

    def _part_at(self, place: "_Place", parts: Sequence[Part]) -> Part:
        """Return the part that is taken at a place."""
        found = self._entries_at(place)
        for (name, entries), part in zip(self.entries, parts, strict=True):
            if name == place.name and np.array_equal(found, np.where(found < 0, -1, entries)):
                return part
        raise _tied([place.name], self.options_to_keep)

    def _parts(self) -> tuple[Part, ...]:
        parts = list[Part]()
        for name, entries in self.entries:
            variable, axis = self.inputs[name], self.axes[name]
            shape = tuple(None if i == axis else n for i, n in enumerate(variable.type.shape))
            placeholder = variable.type.clone(shape=shape)(name=name)
            start = parts[-1].columns.stop if parts else 0
            of_level = tuple(n for i, n in enumerate(variable.type.shape) if i != axis)
            columns = slice(start, start + math.prod(of_level))
            parts.append(Part(name, placeholder, axis, of_level, columns, entries))
        return tuple(parts)

    def _or_normal(self, log_prior: Variable, part: Part) -> TensorVariable:
        """Return the log-prior of a part, with that of a placeholder where levels have no entry."""
        if part.has.all():
            return ops.checked_tensor(log_prior)
        has = self.pushdown.select(pt.constant(part.has), 0)
        if values := self.values.get(part.name):
            uniform = -math.log(len(values)) * math.prod(part.shape)
            return ops.checked_tensor(pt.switch(has, log_prior, uniform))
        normal = sum_over_events([(_log_normal(part.variable), part.axis)])
        return ops.checked_tensor(pt.switch(has, log_prior, normal))


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
    for n_classes in known_length(parameters[0], -1) if kind == "categorical" else ():
        return range(n_classes)
    if kind == "discrete_uniform" and all(isinstance(v, Constant) for v in parameters):
        low, high = (int(np.min(v.data)) for v in parameters)
        return range(low, high + 1)
    raise UnsupportedModelError(
        f"{name!r} is discrete, and it is not known which values it may have: a Bernoulli, "
        "Categorical or DiscreteUniform variable can be summed out. Write the likelihood without "
        "it (pm.Mixture)."
    )


def _merged(entries: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Join entries at places that differ only where one has none.

    Examples
    --------
    >>> _merged([np.array([0, -1, -1]), np.array([-1, 2, 1]), np.array([0, 1, -1])])
    [array([0, 2, 1]), array([ 0,  1, -1])]
    """
    found: list[np.ndarray] = []
    for own in entries:
        for i, other in enumerate(found):
            if ((own == other) | (own < 0) | (other < 0)).all():
                found[i] = np.maximum(own, other)
                break
        else:
            found.append(own)
    return found


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
                found = ops.checked_tensor(node.outputs[0])
                yield _Place(names[node.inputs[0]], found, axis, ops.checked_tensor(index))


def _tied(names: Collection[str], keep: str, places: Sequence[str] = ()) -> UnsupportedModelError:
    found = ", and ".join(dict.fromkeys(places))
    where = f" (their log-density cannot be taken of some levels alone, because of {found})"
    return UnsupportedModelError(
        f"The entries of {sorted(names)!r} are not independent of each other given the other "
        f"variables{where if places else ''}: they cannot be integrated out one by one. Keep them "
        f"as parameters ({keep}).",
        topic="local-latent-variables",
    )


def _of_other_levels(name: str, keep: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"Rows of one level depend on {name!r} of other levels, as in effect[neighbour][level]: it "
        "cannot be integrated out level by level. Index it by the level of each row alone "
        f"({name}[level]), or keep it as a parameter ({keep}).",
        topic="local-latent-variables",
    )
