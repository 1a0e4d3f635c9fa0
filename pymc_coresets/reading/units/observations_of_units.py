"""Observations that are units, from observations that are rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import checked_tensor
from pymc_coresets.reading.folding import performed
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.units.factors import GroupingFactor, options_to_keep
from pymc_coresets.reading.units.integral import (
    CENTRE,
    DERIVED,
    FACTOR,
    LOG_SHARES,
    LOG_WEIGHTS,
    MOMENTS,
    PLACES,
    POINTS,
    SIZE,
    UnitDensity,
    at_places,
    integrated,
    summed,
)
from pymc_coresets.reading.units.nodes import Nodes, Rule
from pymc_coresets.rows.values import Rows, UnitRows


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitObservations(Observations):
    """Observations that are units: each is all rows of one level of a factor.

    Parameters
    ----------
    source : UnitModel
        The rows and the levels that they are made of.
    sizes : ndarray of int64, of shape (n_units,)
        How many rows each unit has.
    positions_of_unit_rows : ndarray of int64, of shape (n_unit_rows,)
        Of the rows in the user's data, unit by unit.
    data_of_unit_rows : tuple of RowArray
        Their data.
    nodes : tuple of RowArray
        By which all units are integrated: arrays without an axis of units.
    rule : Rule
        Which nodes these are; around how many modes, `source` knows.
    at : ndarray of shape (D,)
        Where the shared variables are, unconstrained, for which nodes begin at modes.
    node_error : float
        Estimate of the divergence, in nats, that more nodes would make.
    """

    source: "UnitModel"
    sizes: np.ndarray
    positions_of_unit_rows: np.ndarray
    data_of_unit_rows: tuple[RowArray, ...]
    nodes: tuple[RowArray, ...]
    rule: Rule
    at: np.ndarray = field(default_factory=lambda: np.zeros(0))
    node_error: float = np.nan

    @property
    def inputs(self) -> tuple[RowArray, ...]:
        """The arrays of units, of their rows, and of nodes: see `Rows.inputs`."""
        return self.rows + self.data_of_unit_rows + self.nodes

    @cached_property
    def unit_rows(self) -> UnitRows:
        """The rows of all units."""
        data = tuple(np.moveaxis(row.values, row.axis, 0) for row in self.data_of_unit_rows)
        nodes = tuple(row.values for row in self.nodes)
        return UnitRows(self.sizes, self.positions_of_unit_rows, data, nodes)

    @property
    def case_weights(self) -> np.ndarray:
        """How many units each represents."""
        known = self.source.case_weights
        return np.ones(self.n_obs) if known is None else known

    @property
    def n_nodes(self) -> int:
        """How many nodes a unit has, around all modes."""
        return len(self.nodes[0].values) * self.source.n_modes

    def with_places(self, places: np.ndarray, log_shares: np.ndarray) -> "UnitObservations":
        """Return log-likelihoods by nodes that stay: see `pymc_coresets.reading.units.integral`.

        Parameters
        ----------
        places : ndarray of shape (n_units, n_nodes, q)
        log_shares : ndarray of shape (n_units, n_nodes)
        """
        where = pt.tensor("places", dtype="float64", shape=(None, None, places.shape[2]))
        shares = pt.matrix("log_shares", dtype="float64")
        own = [_array(where, PLACES, places), _array(shares, LOG_SHARES, log_shares)]
        loglik = at_places(self.source.density, where, shares)
        rows = tuple(row for row in self.rows if row.name not in DERIVED)
        found = replace(self, loglik=loglik, reference=loglik, rows=(*rows, *own))
        found.keep_space(self.space)
        return found

    @property
    def integrated(self) -> tuple[str, ...]:
        """Free variables of the levels, which are integrated out."""
        return self.source.factor.names


def as_units(observations: Observations) -> UnitObservations:
    """Return observations that are units, where others cannot come."""
    assert isinstance(observations, UnitObservations)
    return observations


@dataclass(frozen=True, eq=False)
class UnitModel:
    """The units of a model, before it is known where each one's nodes lie.

    Attributes
    ----------
    rows : Observations
        The rows that the units are made of.
    factor : GroupingFactor
    density : UnitDensity
    n_modes : int, default 1
        Around how many modes of each unit there are nodes.
    case_weights : ndarray of shape (n_units,), optional
        How many units each represents, where others are gone; 1 by default.
    filled : bool
        Whether the model is a copy of the user's that was filled with rows from elsewhere.
    """

    rows: Observations
    factor: GroupingFactor
    density: UnitDensity
    n_modes: int = 1
    case_weights: np.ndarray | None = None
    filled: bool = False

    @classmethod
    def of(cls, rows: Observations, factor: GroupingFactor) -> "UnitModel":
        """Join rows and the levels of a factor."""
        return cls(rows, factor, UnitDensity.of(rows, factor))

    @property
    def options_to_keep(self) -> str:
        """The options of a build by which the variables of units remain parameters."""
        return options_to_keep(self.rows, self.factor.names)

    @property
    def levels(self) -> np.ndarray:
        """The levels that have rows: these are the units."""
        return np.unique(self.factor.level_of_row)

    def observations(
        self,
        rule: Rule,
        *places: np.ndarray,
        at: ArrayLike = (),
        node_error: float = np.nan,
    ) -> UnitObservations:
        """Return the log-likelihoods of the units: of one form, which is compiled once.

        Parameters
        ----------
        rule : Rule
        *places : ndarray
            The mode, or modes, of each unit's variables, on their unconstrained scale, of shape
            (n_units, q), or (n_units, n_modes, q).  A lower triangular root of their covariance
            there, (n_units, q, q), or (n_units, n_modes, q, q).  Moments, (n_units, q, q + 2), see
            `stretched`; by default those of normal densities.
        at : array_like of shape (D,), optional
            Where the shared variables are at which these are the modes.
        node_error : float
            See `UnitObservations`.
        """
        form, nodes = self.observations_at_zero, self.nodes(rule)
        values = dict(zip((CENTRE, FACTOR, MOMENTS), places, strict=False))
        values |= {POINTS: nodes.points, LOG_WEIGHTS: nodes.log_weights}

        def filled(arrays: Sequence[RowArray]) -> tuple[RowArray, ...]:
            return tuple(replace(a, values=values.get(a.name, a.values)) for a in arrays)

        found = replace(
            form,
            rows=filled(form.rows),
            nodes=filled(form.nodes),
            rule=rule,
            at=np.asarray(at, dtype=float),
            node_error=node_error,
        )
        found.keep_space(form.space)
        return found

    @cached_property
    def observations_at_zero(self) -> UnitObservations:
        """The log-likelihoods by one node, which is where the variables' initial values are."""
        n_dims, nodes = self.factor.n_dims, self.nodes(Rule(1))
        of_modes = (self.n_modes,) if self.n_modes > 1 else ()
        middle = pt.tensor("centre", dtype="float64", shape=(None, *of_modes, n_dims))
        width = pt.tensor("factor", dtype="float64", shape=(None, *of_modes, n_dims, n_dims))
        points = pt.tensor("points", dtype="float64", shape=(None, n_dims))
        log_weights = pt.vector("log_weights", dtype="float64")
        moments = pt.tensor("moments", dtype="float64", shape=(None, n_dims, n_dims + 2))
        if self.factor.values:
            loglik = summed(self.density, middle, points)
        else:
            around = [moments] if self.has_moments else []
            loglik = integrated(self.density, middle, width, points, log_weights, *around)
        levels, level_of_row = self.levels, self.factor.level_of_row
        order = np.argsort(level_of_row, kind="stable")
        unit_rows = self.density.unit_rows
        if (np.diff(level_of_row) < 0).any():
            unit_rows = tuple(_at(row, order) for row in unit_rows)
        sizes = np.bincount(level_of_row)[levels].astype(np.int64)
        centre, factor = self.start
        own = [
            *(_at(row, levels) for row in self.density.arrays),
            _array(self.density.sizes, SIZE, sizes),
            _array(middle, CENTRE, centre),
            _array(width, FACTOR, factor),
        ]
        if self.has_moments:
            own.append(_array(moments, MOMENTS, normal_moments(len(levels), n_dims)))
        base, names = self.rows, set(self.factor.names)
        of_rows = {field.name: getattr(base, field.name) for field in fields(base) if field.init}
        of_units = {
            "snapshot": replace(base.snapshot, integrated=frozenset(names)),
            "dims": self.level_dims,
            "n_obs": len(levels),
            "parameters": {n: v for n, v in base.parameters.items() if n not in names},
            "loglik": loglik,
            "n_rows": pt.lscalar("n_rows"),
            "rows": tuple(own),
            "positions": levels,
            "n_data": self.factor.n_levels,
            "local": (),
            "reference": loglik,
            "sets": (),
        }
        found = UnitObservations(
            **(of_rows | of_units),
            source=self,
            sizes=sizes,
            positions_of_unit_rows=order,
            data_of_unit_rows=unit_rows,
            nodes=(
                _array(points, POINTS, nodes.points),
                _array(log_weights, LOG_WEIGHTS, nodes.log_weights),
            ),
            rule=Rule(nodes.degree),
        )
        found.keep_space(Unconstrained(found.model, point=self.space.initial_point))
        return found

    @property
    def has_moments(self) -> bool:
        """Whether nodes lie around the mean of each unit's density, see `stretched`."""
        return self.n_modes == 1 and not self.factor.values

    @property
    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """Where a search for modes begins, and widths of one: see `observations`."""
        return self._initial(self.levels)

    def _initial(self, levels: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Return the initial values of levels as their modes, and widths of one."""
        middle, width = self.initial_values[levels], np.eye(self.factor.n_dims)
        if self.n_modes > 1:
            middle = np.repeat(middle[:, None], self.n_modes, axis=1)
        return middle.copy(), np.broadcast_to(width, (*middle.shape, len(width))).copy()

    def nodes(self, rule: Rule) -> Nodes:
        """Return the nodes of a rule; for discrete variables, all their values."""
        if self.factor.values:
            return Nodes.of_values(self.factor.values)
        return Nodes.of_rule(rule, self.factor.n_dims)

    def rows_of(self, observations: UnitObservations, levels: np.ndarray) -> Rows:
        """Return levels with their rows, also those that have none.

        Parameters
        ----------
        observations : UnitObservations
            Of these units.
        levels : ndarray of int64
            Increasing.
        """
        n_levels = self.factor.n_levels
        known = {row.name: row.values for row in observations.rows}
        sizes = np.zeros(n_levels, dtype=np.int64)
        centre, width = self._initial(slice(None))
        sizes[self.levels], centre[self.levels] = observations.sizes, known[CENTRE]
        width[self.levels] = known[FACTOR]
        own = {SIZE: sizes, CENTRE: centre, FACTOR: width}
        if self.has_moments:
            own[MOMENTS] = normal_moments(n_levels, self.factor.n_dims)
            own[MOMENTS][self.levels] = known[MOMENTS]
        whole = {row.placeholder: row.values for row in self.density.arrays}
        arrays = (
            own.get(row.name, np.moveaxis(whole.get(row.placeholder, row.values), row.axis, 0))
            for row in observations.rows
        )
        unit_rows = replace(observations.unit_rows, sizes=sizes)
        return Rows(np.arange(n_levels), np.ones(n_levels), tuple(arrays), unit_rows).take(levels)

    @cached_property
    def initial_values(self) -> np.ndarray:
        """Where samplers start with the variables of the levels, (n_levels, q), unconstrained."""
        space = self.space
        model, point = space.model, space.initial_point
        values = {p.name: point[model.rvs_to_values[model[p.name]].name] for p in self.factor.parts}
        flat = [p.flat(np.asarray(values[p.name], dtype=float)) for p in self.factor.parts]
        return np.concatenate(flat, axis=1)

    @property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model with the variables of the levels."""
        whole = self.rows.snapshot.whole
        return self.rows.space if self.rows.model is whole else Unconstrained(whole)

    def by_pymc(
        self, values: Mapping[str, np.ndarray], flat: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return PyMC's log-densities of all rows, and of the variables of all levels.

        Parameters
        ----------
        values : mapping of str to ndarray
            All free variables, on their own scale.
        flat : ndarray of shape (n_levels, q)
            Those of levels, unconstrained.
        """
        of_rows, *priors = self._reference(*(values[name] for name in self.rows.parameters))
        return np.broadcast_to(of_rows, self.rows.n_obs), self.factor.log_priors(priors, flat)

    @cached_property
    def _reference(self) -> Callable[..., list[np.ndarray]]:
        inputs = list(self.rows.parameters.values())
        return performed(inputs, [self.rows.reference, *self.factor.reference])

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def level_dims(self) -> tuple[str, ...]:
        """The name of the dimension that the variables have along their levels, if it has one."""
        dims = self.rows.snapshot.whole.named_vars_to_dims
        parts = self.factor.parts if self.factor.in_order else ()
        own = [d for part in parts for d in (dims.get(part.name) or ())[part.axis :][:1] if d]
        return tuple(map(str, own[:1]))


def normal_moments(n_units: int, n_dims: int) -> np.ndarray:
    """Return the moments of normal densities, (n_units, q, q + 2): see `stretched`.

    Examples
    --------
    >>> normal_moments(1, 2)
    array([[[0., 1., 0., 0.],
            [0., 0., 1., 0.]]])
    """
    return np.tile(np.eye(n_dims, n_dims + 2, 1), (n_units, 1, 1))


def _at(row: RowArray, places: np.ndarray) -> RowArray:
    """Return an array of rows with some of them, or in another order."""
    own = np.broadcast_to(row.own, row.values.shape[row.axis])[places]
    return replace(row, values=np.take(row.values, places, axis=row.axis), own=own)


def _array(placeholder: TensorVariable, name: str, values: np.ndarray) -> RowArray:
    source = checked_tensor(placeholder.type(name=name))
    return RowArray(placeholder, source, values, 0)
