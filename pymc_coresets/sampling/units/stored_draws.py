"""Whether draws of units' variables, stored beside shared ones, are those given these."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.posterior_draws import (
    NO_COPIES,
    SAMPLE_DIMS,
    Copies,
    copies_among,
    entry_name,
    evenly,
)
from pymc_coresets.diagnostics.stein import Deviation
from pymc_coresets.diagnostics.stein_of_units import (
    deviation_of_units,
    deviation_of_values,
    sizes_of_columns,
)
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.reading.units.factors import Part
from pymc_coresets.reading.units.nodes import Nodes
from pymc_coresets.reading.units.observations_of_units import UnitModel, UnitObservations, as_units
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.functions import Functions
from pymc_coresets.rows.values import Rows

#: Log-likelihoods of rows of units, at places and draws, that take a few tenths of a second.
_EVALUATIONS = 1e7
#: Numbers of draws and of units of which these are; and of draws by which units are chosen.
_DRAWS, _MOST_UNITS = 4_000, 500
_FEWEST_FIRST, _FIRST = 40, 500
#: Units among whose draws copies are sought.
_MOST_COMPARED = 1_000
_BLOCK = 2**19  # numbers of a block of units' rows at all places and draws
_STEP = 1e-4  # of differences, in standard deviations
#: Share of the draws that may have no density for rounding, in which a unit is left out.
_ROUNDED = 0.05


class StoredUnits(NamedTuple):
    """What draws of units' variables say; by default, nothing.

    Parameters
    ----------
    deviation : Deviation
        From their densities given the shared variables.
    copies : Copies
    constant : str
        A continuous variable whose draws are all equal; empty if there is none.
    """

    deviation: Deviation = Deviation()
    copies: Copies = NO_COPIES
    constant: str = ""


def judged_units(loglik: LogLikelihood, posterior: xr.Dataset) -> StoredUnits:
    """Compare stored draws of units' variables with their densities given the shared ones.

    Of all units with rows, or of evenly spread ones, if their rows at a thousand draws would take
    longer than a few tenths of a second.

    Parameters
    ----------
    loglik : LogLikelihood
    posterior : xarray.Dataset
        Draws with the dims chain and draw.

    Returns
    -------
    StoredUnits
        Empty if nothing was integrated out, or the posterior lacks draws of all levels.

    Raises
    ------
    InvalidDataError
        If draws are not finite.
    """
    if not loglik.observations.integrated:
        return StoredUnits()
    source = as_units(loglik.observations).source
    names, model = source.factor.names, source.rows.snapshot.whole
    shapes = dict(zip(names, shapes_of([model[name] for name in names]), strict=True))
    if any(name not in posterior or not _has(posterior[name], shape)
           for name, shape in shapes.items()):  # fmt: skip
        return StoredUnits()
    own = _StoredDraws(loglik, posterior, shapes)
    if source.factor.values:
        n_values = math.prod(map(len, source.factor.values))
        some = own.chosen(n_values, _DRAWS)[:_MOST_UNITS]
        return StoredUnits(own.at(some, _DRAWS).by_probabilities())
    copies, constant = own.repeated()
    return StoredUnits(Deviation() if constant else own.deviation(), copies, constant)


def _has(variable: xr.DataArray, shape: tuple[int, ...]) -> bool:
    """Whether a variable has draws of such a shape."""
    return set(SAMPLE_DIMS) <= set(variable.dims) and (
        variable.transpose(*SAMPLE_DIMS, ...).shape[2:] == shape
    )


@dataclass(frozen=True, eq=False)
class _StoredDraws:
    """Draws of units' variables, and of shared ones.

    Parameters
    ----------
    loglik : LogLikelihood
    posterior : xarray.Dataset
    shapes : dict of str to tuple of int
        Of the variables of units.
    """

    loglik: LogLikelihood
    posterior: xr.Dataset
    shapes: dict[str, tuple[int, ...]]

    @property
    def _units(self) -> UnitObservations:
        return as_units(self.loglik.observations)

    @cached_property
    def _own(self) -> tuple[np.ndarray, np.ndarray]:
        """The levels that have rows and variables, and how many rows."""
        units = self._units
        has = np.isin(units.source.levels, units.source.factor.with_variables)
        return units.source.levels[has], units.sizes[has]

    @cached_property
    def _spread(self) -> np.ndarray:
        """Numbers of these levels, so that the first ones are evenly spread."""
        found: np.ndarray = np.argsort(np.arange(len(self._own[0])) * 0.618 % 1, kind="stable")
        return found

    def chosen(self, n_places: int, n_draws: int) -> np.ndarray:
        """Return numbers of levels that can be evaluated at so many places and draws."""
        sizes, most = self._own[1][self._spread], _EVALUATIONS / n_places / n_draws
        n_units = int(np.searchsorted(np.cumsum(sizes), most, side="right"))
        return self._spread[: max(n_units, 1)]

    def deviation(self) -> Deviation:
        """Return what is least likely of continuous variables.

        All units are evaluated at a few draws; those that are least likely there, and others, at
        up to 4,000.
        """
        q = self._units.source.factor.n_dims
        first = self.chosen(4 * q, _FEWEST_FIRST)
        n_first = int(_EVALUATIONS / (4 * q) / self._own[1][first].sum())
        which = others = self.chosen(1 + 4 * q, 2 * _DRAWS)[:_MOST_UNITS]
        if len(others) < len(first):
            sizes = self.at(first, min(n_first, _FIRST)).sizes_of_units()
            least = first[np.argsort(-sizes, kind="stable")]
            which = np.concatenate([others, least[~np.isin(least, others)][: len(others)]])
        return self.at(which, _DRAWS).by_derivatives(len(others), len(first))

    def at(self, which: np.ndarray, most: int) -> "_SomeDraws":
        """Return evenly spread draws of the variables of some levels, by their numbers."""
        units, levels = self._units, self._own[0][which]
        source, (n_chains, n_each) = units.source, self._sizes
        numbers = evenly(np.arange(n_each), min(math.ceil(most / n_chains), n_each))
        if n_chains == 1:
            numbers = numbers[len(numbers) % 2 :]  # for two halves
        some = (n_each * np.arange(n_chains)[:, None] + numbers).ravel()
        shared, own = Draws.of(self.posterior, units.shapes).take(some), self._values.take(some)
        of_units, space = own.values, source.space
        if any(space.model.rvs_to_transforms[space.model[name]] for name in self.shapes):
            with np.errstate(all="ignore"):
                points = space.free(Draws({**shared.values, **own.values}))
            of_units = {name: points[:, space.columns[name]] for name in self.shapes}
        flat = [_of_levels(part, of_units[part.name], levels) for part in source.factor.parts]
        z = np.concatenate(flat, axis=2).astype(float)
        order = np.argsort(levels)
        rows = source.rows_of(units, levels[order]).take(np.argsort(order))
        return _SomeDraws(self.loglik, levels, rows, shared, z, max(n_chains, 2))

    @cached_property
    def _values(self) -> Draws:
        """The variables of units at all draws, chain by chain."""
        return Draws.of(self.posterior, self.shapes)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """Number of chains, and of draws of each."""
        return tuple(self.posterior.sizes[dim] for dim in SAMPLE_DIMS)

    def repeated(self) -> tuple[Copies, str]:
        """Return how many draws are copies, and a continuous variable that is the same in all."""
        found, levels = [NO_COPIES], self._own[0][self._spread[:_MOST_COMPARED]]
        for part in self._units.source.factor.parts:
            has = levels[part.has[levels]]
            own = _of_levels(part, self._values.values[part.name], has)
            names = [_name(part, n, j, own.shape[2]) for n in has for j in range(own.shape[2])]
            own = own.reshape(*self._sizes, -1)
            constant = np.flatnonzero(np.ptp(own, axis=(0, 1)) == 0)
            if constant.size:
                return found[0], names[constant[0]]
            found.append(copies_among(own, names))
        return max(found, key=lambda copies: copies.share), ""


@dataclass(frozen=True, eq=False)
class _SomeDraws:
    """Some draws of the variables of some units.

    Parameters
    ----------
    loglik : LogLikelihood
    levels : ndarray of int64
        Of the units.
    rows : Rows
    draws : Draws
        Of the shared variables.
    z : ndarray of shape (n_draws, n_units, q)
        Of the units' variables, unconstrained.
    n_chains : int
    """

    loglik: LogLikelihood
    levels: np.ndarray
    rows: Rows
    draws: Draws
    z: Floats
    n_chains: int

    @property
    def _source(self) -> UnitModel:
        return as_units(self.loglik.observations).source

    def _by_chains(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of draws (n_draws, ...) as (n_chains, n_draws, ...)."""
        return values.reshape(self.n_chains, -1, *values.shape[1:])

    # -- continuous variables --------------------------------------------------------------------

    def sizes_of_units(self) -> np.ndarray:
        """Return the largest size of a statistic of each unit, (n_units,)."""
        units, entries, scores = self._derivatives(n_each=1)
        z, of_z = map(self._by_chains, (self.z[:, units, entries], *scores))
        found = np.full(len(self.levels), math.inf)  # of units without derivatives
        found[units] = 0.0
        np.maximum.at(found, units, sizes_of_columns(z, of_z))
        return found

    def by_derivatives(self, n_spread: int, n_all: int) -> Deviation:
        """Return what is least likely.

        Parameters
        ----------
        n_spread : int
            How many units, the first ones, were chosen without regard to their draws.
        n_all : int
            Of how many units they are.
        """
        every = np.arange(len(self.levels))
        logs = self._log_densities(every, 1, lambda which: self.z[which][:, None])
        impossible = np.isneginf(logs[:, 0]).mean(axis=0)
        if impossible.max() > _ROUNDED:
            return Deviation(math.inf, 1.0, str(self._names[int(impossible.argmax()), 0]))
        units, entries, scores = self._derivatives(n_each=2)
        if not units.size:
            return Deviation()

        def log_density(columns: np.ndarray, x: Floats) -> Floats:
            own, position = np.unique(units[columns], return_inverse=True)

            def moved(which: np.ndarray) -> Floats:
                values: Floats = self.z[which][:, None, own]
                values[:, 0, position, entries[columns]] = x[which]
                return values

            found: Floats = self._log_densities(own, 1, moved)[:, 0].sum(axis=1)
            return found

        z, of_z, given = map(self._by_chains, (self.z[:, units, entries], *scores))
        return deviation_of_units(
            z,
            of_z,
            given,
            self._names[units, entries].tolist(),
            log_density,
            variables=self._variables[entries],
            together=units < n_spread,
            n_all=n_all * self.z.shape[2],
        )

    def _derivatives(self, n_each: int) -> tuple[np.ndarray, np.ndarray, list[Floats]]:
        """Return units and their variables, (n_columns,), and derivatives (n_draws, n_columns).

        Of the log-density at the draws, and the second ones where the variable is its median.
        """
        n_units, q = self.z.shape[1:]
        middle, spread = np.median(self.z, axis=0), self.z.std(axis=0)
        steps = _STEP * np.where(spread > 0, spread, 1.0)
        n_own = 2 * n_each  # places of a variable

        def places(which: np.ndarray) -> Floats:
            found = np.repeat(self.z[which][:, None], n_own * q, axis=1)
            for j in range(q):
                own = found[:, n_own * j : n_own * (j + 1), :, j]
                own[:, 2:] = middle[:, j]
                own += np.tile([1.0, -1.0], n_each)[:, None] * steps[:, j]
            return found

        logs = self._log_densities(np.arange(n_units), n_own * q, places)
        logs = logs.reshape(len(logs), q, n_each, 2, n_units)
        with np.errstate(invalid="ignore"):
            slopes = (logs[:, :, :, 0] - logs[:, :, :, 1]) / (2 * steps.T[:, None])
        finite = np.isfinite(slopes).all(axis=(0, 2)).T & np.isfinite(self.z).all(axis=0)
        units, entries = np.nonzero(self._has & finite)
        return units, entries, [slopes[:, entries, k, units] for k in range(n_each)]

    @property
    def _has(self) -> np.ndarray:
        """Whether units have these variables, (n_units, q)."""
        parts = self._source.factor.parts
        return np.concatenate(
            [np.repeat(p.has[self.levels][:, None], _width(p), axis=1) for p in parts], axis=1
        )

    @property
    def _names(self) -> np.ndarray:
        """Names of the units' numbers, (n_units, q)."""
        return np.array(
            [
                [_name(p, level, j, _width(p)) for p in self._source.factor.parts
                 for j in range(_width(p))]
                for level in self.levels
            ]
        )  # fmt: skip

    @property
    def _variables(self) -> np.ndarray:
        """The variable that each number of a unit belongs to, (q,)."""
        return np.array([p.name for p in self._source.factor.parts for _ in range(_width(p))])

    def _log_densities(
        self, which: np.ndarray, n_places: int, places: Callable[[np.ndarray], Floats]
    ) -> Floats:
        """Return log-densities of units, (n_draws, n_places, n_units).

        At what a function makes for some draws, (n_some, n_places, n_units, q).
        """

        def columns(some: np.ndarray) -> list[np.ndarray]:
            return [*map(np.ascontiguousarray, np.moveaxis(places(some), -1, 0))]

        rows = self.rows.take(which)
        kernel = self._functions(rows, n_places).unit_densities
        return self._evaluated(kernel, rows, n_places, columns)

    def _functions(self, rows: Rows, n_places: int) -> Functions:
        n_numbers = n_places * max(rows.n_unit_rows, 1)
        return self.loglik.functions.for_numbers(n_numbers * len(self.z))

    def _evaluated(
        self,
        kernel: Kernel,
        rows: Rows,
        n_places: int,
        inputs: Callable[[np.ndarray], Sequence[np.ndarray]],
    ) -> Floats:
        """Return the last output of a kernel, (n_draws, n_places, n_units), -inf if not finite."""
        arrays, found = kernel.arrays(rows), np.empty((len(self.z), n_places, len(rows)))
        for some in self._blocks(n_places * max(rows.n_unit_rows, 1)):
            evaluate = kernel.program.given(*self.loglik.given(self.draws.take(some)))
            with np.errstate(all="ignore"):
                found[some] = evaluate(*inputs(some), *arrays)[-1]
        return np.where(np.isfinite(found), found, -np.inf)

    def _blocks(self, n_numbers: int) -> list[np.ndarray]:
        """Cut the numbers of the draws, so that the rows of units fit into a cache."""
        every = np.arange(len(self.z))
        step = max(_BLOCK // n_numbers, 8)
        return [every[i : i + step] for i in range(0, len(every), step)]

    # -- discrete variables ----------------------------------------------------------------------

    def by_probabilities(self) -> Deviation:
        """Return what is least likely of discrete variables, given the others."""
        whole = np.flatnonzero(self._has.all(axis=1))
        if not whole.size:
            return Deviation()
        values, rows = Nodes.of_values(self._source.factor.values).points, self.rows.take(whole)
        kernel, places = self._functions(rows, len(values)).unit_places, values[:, None]
        if not self._source.density.has_common_values:
            places = np.broadcast_to(places, (len(values), len(rows), values.shape[1]))
        places = np.ascontiguousarray(places)
        logs = self._evaluated(kernel, rows, len(values), lambda _: [places])
        p = np.exp(logs - logs.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        drawn = np.full(logs[:, 0].shape, -1)
        for number, value in enumerate(values):
            drawn[(self.z[:, whole] == value).all(axis=2)] = number
        names, together = self._names[whole, 0].tolist(), str(self._variables[0])
        return deviation_of_values(self._by_chains(drawn), self._by_chains(p), names, together)


def _of_levels(part: Part, values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return draws of a variable (n_draws, *shape) at levels, (n_draws, n_levels, width)."""
    entries = np.moveaxis(values, 1 + part.axis, 1)[:, part.entries[levels]]
    return entries.reshape(*entries.shape[:2], -1)


def _width(part: Part) -> int:
    return int(part.columns.stop - part.columns.start)


def _name(part: Part, level: int, number: int, width: int) -> str:
    """Name a number of a level: by the entry of its variable, and by its place if it has several.

    The last axis may be shorter where the variable is unconstrained.
    """
    index = [int(part.entries[level])]
    if width > 1:
        other = (
            np.unravel_index(number, part.shape) if width == math.prod(part.shape) else (number,)
        )
        index = [*map(int, other[: part.axis]), *index, *map(int, other[part.axis :])]
    return entry_name(part.name, index)
