"""Modes of the variables of units, around which their nodes lie: all that have mass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import graph_inputs
from pytensor.tensor import TensorVariable
from scipy.special import logsumexp

from pymc_coresets.deadline import stop_if_late
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.bending import bends_of
from pymc_coresets.reading.units.integral import CENTRE, FACTOR, MOMENTS, stretched
from pymc_coresets.reading.units.nodes import Nodes, rule_for_moments
from pymc_coresets.reading.units.observations_of_units import UnitModel, normal_moments
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows

#: Modes of less mass, relative to that of a unit's largest, are left out.
_NOTICEABLE = 1e-6
#: Around how many modes of a unit there can be nodes.
MOST_MODES = 8

_BLOCK = 2**14  # rows whose arrays fit into a core's own cache
_PLACES = 16  # of a grid, at which rows are evaluated together
_EVALUATIONS = 200_000_000  # of rows on grids, at most: seconds
# Of a grid along one axis, in widths of the prior: where it is equidistant, and how far it reaches.
_MIDDLE, _REACH = 6.0, 300.0
_SAME = 3.0  # Modes within as many widths of both have nodes around the larger one.


class _Shape(NamedTuple):
    """Log-densities (n,), gradients (n, q) and Hessians (n, q, q) of units at some values."""

    density: np.ndarray
    slope: np.ndarray
    hessian: np.ndarray


class ModesOfUnits(NamedTuple):
    """Modes of units, those of the largest mass first.

    Units of fewer modes than others have the first one again, with a log-mass of minus infinity.

    Attributes
    ----------
    places : ndarray of shape (n_units, n_modes, q)
    widths : ndarray of shape (n_units, n_modes, q, q)
        Lower triangular roots of the inverse curvatures.
    log_masses : ndarray of shape (n_units, n_modes)
        By Laplace's method, relative to a unit's largest.
    """

    places: np.ndarray
    widths: np.ndarray
    log_masses: np.ndarray

    @property
    def number(self) -> np.ndarray:
        """How many modes of noticeable mass each unit has."""
        found: np.ndarray = (self.log_masses > np.log(_NOTICEABLE)).sum(axis=1)
        return found

    def first(self, n_modes: int) -> "ModesOfUnits":
        """Return as many modes of each unit, the first one again where there are fewer."""
        n_units, known = self.log_masses.shape
        which = np.tile(np.arange(n_modes), (n_units, 1))
        which[which >= np.minimum(self.number, known)[:, None]] = 0
        units = np.arange(n_units)[:, None]
        masses = np.where((which == 0) & (np.arange(n_modes) > 0), -np.inf, 0.0)
        return ModesOfUnits(
            self.places[units, which],
            self.widths[units, which],
            self.log_masses[units, which] + masses,
        )


@dataclass(frozen=True, eq=False)
class UnitModes:
    """Finds where each unit's nodes lie.

    Parameters
    ----------
    units : UnitModel
    parameters : sequence of str
        The shared variables that the units depend on.
    densities : Kernel
        See `Functions.unit_densities`.
    compiled : bool
        See `loop_mode`.
    """

    units: UnitModel
    parameters: Sequence[str]
    densities: Kernel
    compiled: bool

    def at(self, point: Mapping[str, np.ndarray], rows: Rows) -> Rows:
        """Return the units with modes and widths of their variables, given the shared ones.

        Along one axis, the mode of the largest mass is found on a grid over the whole prior.  Along
        several, the search begins at the units' centres.  With nodes around several modes, all
        are looked for.

        Parameters
        ----------
        point : mapping of str to ndarray
            The shared variables, on their own scale.
        rows : Rows
            Units.
        """
        if self.units.factor.values:
            return rows
        if self.units.n_modes == 1 and self.units.factor.n_dims > 1:
            return self.near(point, rows)
        return self.around(self.every(point, rows), point, rows)

    def around(self, modes: ModesOfUnits, point: Mapping[str, np.ndarray], rows: Rows) -> Rows:
        """Return units with nodes around as many of their modes as each has nodes for.

        Parameters
        ----------
        modes : ModesOfUnits
            From `every`.
        point, rows
            See `at`.
        """
        n_modes, (middle, width) = self.units.n_modes, self._columns
        found = modes.first(n_modes)
        new = {middle: found.places, width: found.widths}
        if n_modes == 1:
            new = {i: values[:, 0] for i, values in new.items()}
            blocks = _blocks(rows)
            ends = np.cumsum([len(some) for some in blocks])[:-1]

            def of_block(block: tuple[Rows, np.ndarray, np.ndarray]) -> np.ndarray:
                return self._moments(point, *block)

            each = zip(blocks, *(np.split(values, ends) for values in new.values()), strict=True)
            parts = list(in_threads(of_block, each, len(blocks)))
            new |= {i: np.concatenate(parts) for i in self._column_of_moments}
        return replace(rows, arrays=_with(rows.arrays, new))

    def near(self, point: Mapping[str, np.ndarray], rows: Rows) -> Rows:
        """Return units with the modes to which an ascent leads from the places that they have.

        For nodes around one mode.  Time: that of some evaluations of all rows.

        Parameters
        ----------
        point, rows
            See `at`.
        """
        (middle, width), ascent = self._columns, self._ascent(point)
        has_moments, blocks = self.units.has_moments, _blocks(rows)

        def of_block(some: Rows) -> list[np.ndarray]:
            z, root, _ = ascent(some, some.arrays[middle])
            moments = [self._moments(point, some, z, root)] if has_moments else []
            return [z, root, *moments]

        parts = list(in_threads(of_block, blocks, len(blocks)))
        columns = [middle, width, *self._column_of_moments]
        found = map(np.concatenate, zip(*parts, strict=True))
        return replace(rows, arrays=_with(rows.arrays, dict(zip(columns, found, strict=True))))

    def every(self, point: Mapping[str, np.ndarray], rows: Rows) -> ModesOfUnits:
        """Find all modes of units of noticeable mass, given the shared variables.

        All units take Newton steps at the same time, each with its own damping; if a unit's density
        is not concave, the negative eigenvalues of its curvature change sign.  Along one axis they
        start from all maxima on a grid over the whole prior and around the unit's first mode: time,
        that of a few hundred evaluations of all rows.  Along several, from places all over the
        prior, and from modes of other units.

        Parameters
        ----------
        point, rows
            See `at`.
        """
        ascent, of_prior = self._ascent(point), self._ascent(point, self._prior)
        n_dims, n_unit_rows = self.units.factor.n_dims, max(rows.n_unit_rows, len(rows))
        middle, _ = self._columns
        initial = rows.arrays[middle].reshape(len(rows), -1, n_dims)[:, 0]
        n_grid = int(np.clip(_EVALUATIONS / n_unit_rows, 60, 400))

        def of_block(block: tuple[Rows, np.ndarray]) -> ModesOfUnits:
            some, start = block
            m, root, _ = of_prior(some, start)
            found = ascent(some, np.where(np.isfinite(start), start, m))
            if n_dims == 1:
                z = _along_axis(m, root, found, n_grid)
                unit, starts = _maxima(z, self._heights(point, some, z))
            else:
                z = _around(m, root, found[0])
                unit, starts = np.repeat(np.arange(len(some)), z.shape[1]), z.reshape(-1, n_dims)
            return _distinct(len(some), unit, *ascent(some.take(unit), starts))

        blocks = _blocks(rows, _PLACES // 4 if n_dims == 1 else 1)
        starts = np.split(initial, np.cumsum([len(some) for some in blocks])[:-1])
        parts = list(in_threads(of_block, zip(blocks, starts, strict=True), len(blocks)))
        most = max(part.log_masses.shape[1] for part in parts)
        return ModesOfUnits(
            *map(np.concatenate, zip(*(part.first(most) for part in parts), strict=True))
        )

    def parts_of_nodes(
        self, point: Mapping[str, np.ndarray], rows: Rows, nodes: Nodes
    ) -> np.ndarray:
        """Return which part of each unit's integral nodes around its modes are, at most.

        Of shape (n_units, n_nodes), for variables of one dimension.
        """
        found = self.every(point, rows)
        width = found.widths[..., 0, :]
        z = found.places + width * nodes.points[:, 0]  # (n_units, n_modes, n_nodes)
        volume = np.broadcast_to(np.log(width), z.shape)
        if self.units.has_moments:  # also where they lie by these, around the first mode
            middle, own, moments = self.places(self.around(found, point, rows))
            away, volume_of_own = _stretched()(nodes.points, moments)
            z = np.concatenate([z, (middle + own[:, 0] * away.T)[:, None]], axis=1)
            of_own = np.log(own[:, 0]) + volume_of_own.T
            volume = np.concatenate([volume, of_own[:, None]], axis=1)
        logs = self._heights(point, rows, z.reshape(len(z), -1, 1)).reshape(z.shape)
        logs = logs + nodes.log_weights + volume
        logs = np.where(logs < np.inf, logs, -np.inf)  # as the integral has it in tails
        parts: np.ndarray = np.exp(logs - logsumexp(logs, axis=2, keepdims=True)).max(axis=1)
        return np.where(np.isnan(parts), 0.0, parts)

    def places(self, rows: Rows) -> tuple[np.ndarray, ...]:
        """Return modes, widths and moments that units have: see `UnitModel.observations`."""
        return tuple(rows.arrays[i] for i in (*self._columns, *self._column_of_moments))

    def _moments(
        self, point: Mapping[str, np.ndarray], some: Rows, z: np.ndarray, root: np.ndarray
    ) -> np.ndarray:
        """Return the moments of units by nodes around their modes, (n_units, q, q + 2)."""
        nodes = Nodes.of_rule(rule_for_moments(z.shape[1]), z.shape[1])
        places = z[:, None] + np.einsum("nij,kj->nki", root, nodes.points)
        logs = self._heights(point, some, places) + nodes.log_weights
        return _moments_of(nodes.points, logs, root)

    def _ascent(
        self, point: Mapping[str, np.ndarray], kernel: Kernel | None = None
    ) -> Callable[[Rows, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return a function of units and places, which finds modes, widths and log-densities."""
        kernel = kernel or self._kernel
        evaluate = kernel.program.given(*self._given(point))

        def ascent(some: Rows, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            def shape(z: np.ndarray) -> _Shape:
                found = evaluate(*kernel.arrays(self._with_variables(some, z)))
                return _Shape(*(np.asarray(part, dtype=float) for part in found))

            return _ascended(shape, z)

        return ascent

    def _heights(self, point: Mapping[str, np.ndarray], some: Rows, z: np.ndarray) -> np.ndarray:
        """Return log-densities at places (n_units, n_places, q), of shape (n_units, n_places)."""
        evaluate = self.densities.program.given(*(v[None] for v in self._given(point)))
        arrays, found = self.densities.arrays(some), []
        for places in np.array_split(z, -(-z.shape[1] // _PLACES), axis=1):
            stop_if_late()
            at_z = np.ascontiguousarray(places.T)  # (q, n_places, n_units)
            [values] = evaluate(*at_z[:, None], *arrays)
            found.append(np.broadcast_to(values[0], at_z.shape[1:]).T)
        heights: np.ndarray = np.concatenate(found, axis=1)
        return np.where(np.isnan(heights), -np.inf, heights)

    def _given(self, point: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(point[name]) for name in self.parameters]

    def _with_variables(self, some: Rows, z: np.ndarray) -> Rows:
        return replace(some, arrays=_with(some.arrays, {self._columns[0]: z}))

    @cached_property
    def _columns(self) -> tuple[int, int]:
        """Positions of the centres and widths among the arrays of units."""
        names = [row.name for row in self.units.observations_at_zero.rows]
        return names.index(CENTRE), names.index(FACTOR)

    @cached_property
    def _column_of_moments(self) -> tuple[int, ...]:
        """Position of the moments among the arrays of units; none where there are none."""
        names = [row.name for row in self.units.observations_at_zero.rows]
        return tuple(i for i, name in enumerate(names) if name == MOMENTS)

    @cached_property
    def _kernel(self) -> Kernel:
        return self._with_derivatives(self.units.density.density)

    @cached_property
    def _prior(self) -> Kernel:
        return self._with_derivatives(self.units.density.log_prior)

    def _with_derivatives(self, values: TensorVariable) -> Kernel:
        density, at_zero = self.units.density, self.units.observations_at_zero
        slope, *rows = density.derivatives_of(values)
        outputs = [values, slope, pt.stack(rows, axis=1)]
        parameters = [self.units.rows.parameters[name] for name in self.parameters]
        used = {*graph_inputs(outputs), density.variables}
        arrays = [
            (i, density.variables if row.name == CENTRE else row.placeholder, row.axis)
            for i, row in enumerate(at_zero.inputs)
        ]
        inputs = [v for _, v, _ in arrays if v in used]
        axes = {i: axis for i, v, axis in arrays if v in used}
        return Kernel(parameters, inputs, outputs, axes, compiled=self.compiled)


def _blocks(rows: Rows, n_places: int = 1) -> list[Rows]:
    n_unit_rows = max(rows.n_unit_rows / max(len(rows), 1), 1.0)
    return list(rows.blocks(max(int(_BLOCK / n_unit_rows / n_places), 1)))


def _with(arrays: tuple[np.ndarray, ...], new: Mapping[int, np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(new.get(i, array) for i, array in enumerate(arrays))


@cache
def _stretched() -> Callable[..., list[np.ndarray]]:
    """Return the function that `stretched` is of places (n_places, 1), along one axis."""
    x = pt.tensor("x", dtype="float64", shape=(None, 1))
    moments = pt.tensor("moments", dtype="float64", shape=(None, 1, 3))
    [places], volume = stretched([x], moments)
    return numpy_function([x, moments], [places, volume])


def _along_axis(
    middle: np.ndarray, width: np.ndarray, own: tuple[np.ndarray, ...], n_grid: int
) -> np.ndarray:
    """Return places along the only axis, in ascending order, (n_units, n_places, 1)."""
    inner = np.linspace(-_MIDDLE, _MIDDLE, n_grid)
    outer = np.geomspace(_MIDDLE, _REACH, n_grid // 8)[1:]
    of_prior = middle + width[:, 0] * np.concatenate([-outer[::-1], inner, outer])
    around = np.sinh(np.linspace(-5.0, 5.0, n_grid // 4 | 1))
    return np.sort(np.concatenate([of_prior, own[0] + own[1][:, 0] * around], axis=1))[..., None]


def _maxima(z: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the units and places of the highest local maxima, one at least for each unit."""
    is_top = np.isfinite(heights)
    is_top[:, 1:] &= heights[:, 1:] > heights[:, :-1]
    is_top[:, :-1] &= heights[:, :-1] >= heights[:, 1:]
    is_top[~is_top.any(axis=1), 0] = True  # without a density
    unit, number = np.nonzero(is_top)  # few, of all places
    found = heights[unit, number]
    order = np.lexsort((-found, unit))
    unit, number, found = unit[order], number[order], found[order]
    counts = is_top.sum(axis=1)
    first = np.cumsum(counts) - counts
    with np.errstate(invalid="ignore"):
        # Widths may differ by some orders of magnitude.
        kept = found > found[first][unit] + np.log(_NOTICEABLE) - 7.0
    kept &= np.arange(len(unit)) - first[unit] < 2 * MOST_MODES
    kept[first] = True
    unit, number = unit[kept], number[kept]
    return unit, z[unit, number]


def _around(middle: np.ndarray, width: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return places all over the prior, and modes of other units, (n_units, n_places, q)."""
    n_dims = middle.shape[1]
    axes = np.concatenate([s * np.eye(n_dims) for s in (-3.0, -1.5, 1.5, 3.0)])
    corners = np.array(list(product((-1.5, 1.5), repeat=n_dims)))[:: max(2**n_dims // 16, 1)]
    x = np.concatenate([np.zeros((1, n_dims)), axes, corners])
    of_prior = middle[:, None] + np.einsum("nij,pj->npi", width, x)
    others = own[np.argsort(own[:, 0])[np.linspace(0, len(own) - 1, 6).astype(int)]]
    every = np.broadcast_to(others, (len(own), *others.shape))
    return np.concatenate([own[:, None], of_prior, every], axis=1)


def _distinct(
    n_units: int, unit: np.ndarray, z: np.ndarray, root: np.ndarray, density: np.ndarray
) -> ModesOfUnits:
    """Return the modes among the ends of ascents, of units in ascending order."""
    counts = np.bincount(unit, minlength=n_units)
    number = np.arange(len(unit)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = n_units, int(counts.max())
    places = np.zeros((*shape, *z.shape[1:]))
    widths = np.broadcast_to(np.eye(z.shape[1]), (*shape, *root.shape[1:])).copy()
    masses = np.full(shape, -np.inf)
    places[unit, number], widths[unit, number] = z, root
    size = np.linalg.slogdet(root)[1]
    masses[unit, number] = np.where(np.isfinite(density), density + size, -np.inf)
    order, every = np.argsort(-masses, axis=1, kind="stable"), np.arange(n_units)[:, None]
    places, widths, masses = places[every, order], widths[every, order], masses[every, order]
    for i in range(1, shape[1]):
        for j in range(i):
            apart = (places[:, i] - places[:, j])[..., None]
            away = [np.linalg.solve(widths[:, k], apart) for k in (i, j)]
            same = (np.abs(away).max(axis=(0, 2, 3)) < _SAME) & np.isfinite(masses[:, j])
            masses[same, i] = -np.inf
    masses[:, 0] = np.where(np.isfinite(masses[:, 0]), masses[:, 0], 0.0)
    masses -= masses[:, :1]
    order = np.argsort(-masses, axis=1, kind="stable")
    found = ModesOfUnits(places[every, order], widths[every, order], masses[every, order])
    return found.first(int(found.number.max()))


def _ascended(
    shape: Callable[[np.ndarray], _Shape], z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return modes (n, q), roots of the inverse curvatures (n, q, q) and log-densities (n,)."""
    z = z.copy()
    found = shape(z)
    going = np.isfinite(found.density)
    part = np.ones(len(z))
    values, vectors = _curvature(found.hessian)
    for _ in range(60):  # a few are enough where the density is concave
        step = _solved(values, vectors, found.slope)
        widths = np.sqrt(np.square(np.einsum("nij,ni->nj", vectors, step)) * values).max(axis=1)
        going &= (widths > 1e-6) & (part > 2.0**-20)
        if not going.any():
            break
        stop_if_late()
        # Along any axis at most 5, or as many widths if these are larger.
        scales = np.maximum(np.sqrt((np.square(vectors) / values[:, None, :]).sum(axis=2)), 1.0)
        longest = np.maximum(np.abs(step / scales).max(axis=1), 5.0)
        step *= (5.0 / longest)[:, None]
        tried = np.where(going[:, None], z + part[:, None] * step, z)
        new = shape(tried)
        better = going & (new.density >= found.density - 1e-9 * np.abs(found.density))
        better &= np.isfinite(new.slope).all(axis=1) & np.isfinite(new.hessian).all(axis=(1, 2))
        z[better] = tried[better]
        found = _Shape(
            *(
                np.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b)
                for a, b in zip(new, found, strict=True)
            )
        )
        values, vectors = _curvature(found.hessian)
        part = np.where(better, np.minimum(2 * part, 1.0), part / 4)
    covariance = np.einsum("nij,nj,nkj->nik", vectors, 1 / values, vectors)
    return z, np.linalg.cholesky(covariance), found.density


def _moments_of(x: np.ndarray, logs: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Return mean, covariance and bends of standardised variables, see `stretched`.

    Parameters
    ----------
    x : ndarray of shape (n_places, q)
        Standardised by the lower triangular roots of the inverse curvatures.
    logs : ndarray of shape (n_units, n_places)
        Log-densities of units at these places, with the places' weights.
    root : ndarray of shape (n_units, q, q)

    Returns
    -------
    ndarray of shape (n_units, q, q + 2)
        Those of a normal density where these are far from that.
    """
    n_units, n_dims = root.shape[:2]
    usual = normal_moments(n_units, n_dims)
    some = np.isfinite(logs.max(axis=1))
    weights = np.exp(logs[some] - logs[some].max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ x
    around = x - mean[:, None]
    covariance = np.einsum("nk,nki,nkj->nij", weights, around, around)
    # Nodes are standardised by upper triangular roots, which are those here but for a rotation.
    turn, upper = np.linalg.qr(root[some, ::-1].mT)
    turn *= np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)[:, None]
    turn = turn.mT[:, ::-1]
    covariance = turn @ covariance @ turn.mT
    spread = np.linalg.eigvalsh(covariance)
    near = (spread > 0.25).all(axis=1) & (spread < 4.0).all(axis=1)
    near &= np.square(mean).sum(axis=1) < 1.0
    which = np.flatnonzero(some)[near]
    usual[which, :, 0] = np.einsum("nij,nj->ni", turn[near], mean[near])
    usual[which, :, 1:-1] = roots = np.linalg.cholesky(covariance[near])
    white = np.linalg.solve(roots, turn[near] @ around[near].mT)  # (n_near, q, n_places)
    skewness = np.einsum("nk,njk->nj", weights[near], white**3)
    usual[which, :, -1] = bends_of(skewness)
    return usual


def _curvature(hessian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and vectors of the negative Hessians, the values made positive."""
    symmetric = -(hessian + np.swapaxes(hessian, 1, 2)) / 2
    symmetric = np.where(np.isfinite(symmetric), symmetric, 0.0)
    values, vectors = np.linalg.eigh(symmetric)
    largest = np.abs(values).max(axis=1, keepdims=True)
    return np.maximum(np.abs(values), np.where(largest > 0, 1e-8 * largest, 1.0)), vectors


def _solved(values: np.ndarray, vectors: np.ndarray, slope: np.ndarray) -> np.ndarray:
    turned = np.einsum("nij,ni->nj", vectors, np.where(np.isfinite(slope), slope, 0.0))
    step: np.ndarray = np.einsum("nij,nj->ni", vectors, turned / values)
    return step
