"""Modes and widths of the variables of each unit, given the shared variables: Newton's method."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.reading.units.integral import CENTRE, FACTOR
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows

_STEPS = 60
_SETTLED = 1e-6  # of a width: a step that ends the search
_SMALLEST = 2.0**-20  # part of a step that is tried
_FLAT = 1e-8  # of a unit's curvature, beside the largest along another axis
_MEMBERS = 2**14  # of a block
_LONGEST = 5.0  # of a step along an axis, on the unconstrained scale


class _Shape(NamedTuple):
    """Log-densities (n,), gradients (n, q) and Hessians (n, q, q) of units at some values."""

    density: np.ndarray
    slope: np.ndarray
    hessian: np.ndarray


@dataclass(frozen=True, eq=False)
class UnitModes:
    """Finds where each unit's nodes lie.

    Parameters
    ----------
    units : UnitModel
    """

    units: UnitModel

    def at(self, point: Mapping[str, np.ndarray], rows: Rows) -> Rows:
        """Return the units with modes and widths of their variables, given the shared ones.

        All units take Newton's steps at the same time, each damped on its own.  Where the density
        of a unit is not concave, its curvature is replaced by that of the same size.  Time: some
        ten gradients and curvatures of all rows.

        Parameters
        ----------
        point : mapping of str to ndarray
            The shared variables, on their own scale.
        rows : Rows
            Units, from whose centres the search begins.
        """
        if self.units.factor.values:
            return rows
        middle, width = self._columns
        names = [n for n in self.units.rows.parameters if n not in self.units.factor.names]
        evaluate = self._kernel.program.given(*(np.asarray(point[name]) for name in names))

        def shape(some: Rows, z: np.ndarray) -> _Shape:
            at_z = replace(some, arrays=_with(some.arrays, {middle: z}))
            found = evaluate(*self._kernel.arrays(at_z))
            return _Shape(*(np.asarray(part, dtype=float) for part in found))

        def settled(some: Rows) -> Rows:
            z, factor = _climbed(lambda z: shape(some, z), some.arrays[middle])
            return replace(some, arrays=_with(some.arrays, {middle: z, width: factor}))

        n_members = max(rows.n_members / max(len(rows), 1), 1.0)
        size = max(int(_MEMBERS / n_members), 1)
        return Rows.joined(list(in_threads(settled, rows.blocks(size))))

    def places(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the modes (n_units, q) and widths (n_units, q, q) that units have."""
        middle, width = self._columns
        return rows.arrays[middle], rows.arrays[width]

    @cached_property
    def _columns(self) -> tuple[int, int]:
        """Which arrays of units these are."""
        names = [row.name for row in self.units.observations_at_zero.rows]
        return names.index(CENTRE), names.index(FACTOR)

    @cached_property
    def _kernel(self) -> Kernel:
        density, at_zero = self.units.density, self.units.observations_at_zero
        slope, *rows = density.derivatives
        hessian = pt.stack(rows, axis=1)
        parameters = [
            v for n, v in self.units.rows.parameters.items() if n not in self.units.factor.names
        ]
        inputs = [
            density.variables if row.name == CENTRE else row.placeholder for row in at_zero.inputs
        ]
        axes = {i: row.axis for i, row in enumerate(at_zero.inputs)}
        return Kernel(parameters, inputs, [density.density, slope, hessian], axes)


def _with(arrays: tuple[np.ndarray, ...], new: Mapping[int, np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(new.get(i, array) for i, array in enumerate(arrays))


def _climbed(shape: Callable[[np.ndarray], _Shape], z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the modes (n, q) and the roots of the inverse curvatures there, (n, q, q)."""
    z = z.copy()
    found = shape(z)
    going = np.isfinite(found.density)
    part = np.ones(len(z))
    values, vectors = _curvature(found.hessian)
    for _ in range(_STEPS):
        step = _solved(values, vectors, found.slope)
        widths = np.sqrt(np.square(np.einsum("nij,ni->nj", vectors, step)) * values).max(axis=1)
        going &= (widths > _SETTLED) & (part > _SMALLEST)
        if not going.any():
            break
        step *= np.minimum(1.0, _LONGEST / np.maximum(np.abs(step).max(axis=1), 1e-300))[:, None]
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
    return z, np.linalg.cholesky(covariance)


def _curvature(hessian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and vectors of the negative Hessians, the values made positive."""
    symmetric = -(hessian + np.swapaxes(hessian, 1, 2)) / 2
    symmetric = np.where(np.isfinite(symmetric), symmetric, 0.0)
    values, vectors = np.linalg.eigh(symmetric)
    largest = np.abs(values).max(axis=1, keepdims=True)
    sizes = np.maximum(np.abs(values), np.maximum(_FLAT * largest, 1e-10))
    return sizes, vectors


def _solved(values: np.ndarray, vectors: np.ndarray, slope: np.ndarray) -> np.ndarray:
    turned = np.einsum("nij,ni->nj", vectors, np.where(np.isfinite(slope), slope, 0.0))
    step: np.ndarray = np.einsum("nij,nj->ni", vectors, turned / values)
    return step
