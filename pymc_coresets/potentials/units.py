"""Units of a user's model: the variables that are integrated out, and their modes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypedDict

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError
from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.units.factors import factor_of, find_factors
from pymc_coresets.reading.units.integral import CENTRE, FACTOR
from pymc_coresets.reading.units.nodes import first_degree
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows

#: Up to which choosing rows alone takes no longer than a quadratic.
FEW_DIMENSIONS = 24

_FEWEST_LEVELS = 250  # with fewer, the variables stay parameters


class UnitSettings(TypedDict):
    """What was integrated out, and how; enough to repeat it."""

    names: list[str]
    degree: int
    at: list[float]
    node_error: float


def may_have_units(model: pm.Model) -> bool:
    """Whether a free variable is as long as a factor whose levels may be integrated out.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", shape=1_000)
    >>> may_have_units(model)
    True
    """
    lengths = (int(n) for shape in model.eval_rv_shapes().values() for n in shape)
    return max(lengths, default=0) >= _FEWEST_LEVELS


def chosen_units(
    observations: Observations, asked: Sequence[str] | None = None
) -> tuple[str, ...] | None:
    """Choose the factor whose variables are integrated out.

    Parameters
    ----------
    observations : Observations
        Rows.
    asked : sequence of str, optional
        Variables that the user named.  By default, those of the largest factor of at least 250
        levels, if there are at least five times as many as a coreset needs. It needs one more than
        the D(D + 3)/2 coefficients of a quadratic in the D other dimensions; or 4 D, if D is above
        24 and a quadratic is used. Variables with one value per row are always integrated out,
        because rows cannot be left out otherwise.

    Returns
    -------
    tuple of str, or None
        None if all variables stay parameters.

    Raises
    ------
    InvalidOptionError
        If the variables that the user named do not belong to one factor.
    """
    factors = find_factors(observations)
    if asked is not None:
        for _, names in factors:
            if set(asked) <= set(names):
                return tuple(name for name in names if name in asked)
        lengths = " in likelihoods of one length" if observations.sets else ""
        raise InvalidOptionError(
            f"integrate={list(asked)!r}: these are not variables of the levels of one factor, "
            f"which the rows see through its index alone{lengths}. Those that may be integrated "
            f"out are {[list(names) for _, names in factors]!r}."
        )
    if not factors:
        return None
    n_levels, names = factors[0]
    sizes = {name: math.prod(shape) for name, shape in observations.shapes.items()}
    if first_degree(sum(sizes[name] for name in names) // n_levels) is None:
        return None
    n_shared = sum(n for name, n in sizes.items() if name not in names)
    is_few = n_shared <= FEW_DIMENSIONS  # above this, a quadratic is used
    needed = n_shared * (n_shared + 3) // 2 + 1 if is_few else 4 * n_shared
    enough = max(_FEWEST_LEVELS, 5 * needed)  # with fewer, a coreset saves little
    must = not set(names).isdisjoint(observations.local)
    return names if must or n_levels >= enough else None


def unit_model(
    model: pm.Model,
    names: Sequence[str],
    settings: dict[str, object],
    rows: Observations | None = None,
) -> UnitModel:
    """Derive the units of a model from its rows.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        From `chosen_units`.
    settings : dict
        Arguments of `find_observations`.
    rows : Observations, optional
        The rows, if they have been found already.

    Raises
    ------
    UnsupportedModelError
        If the levels are not independent of each other.
    """
    is_free = all(model.rvs_to_transforms[model[name]] is None for name in names)
    if rows is None or not is_free:
        given = settings | {"allow_local": True}
        rows = find_observations(model, **given, unconstrained=names)  # type: ignore[arg-type]
    refuse_other_local(rows, names)
    return UnitModel.of(rows, factor_of(rows, names))


def refuse_other_local(rows: Observations, names: Sequence[str]) -> None:
    """Raise for variables with one value per row that remain parameters.

    Raises
    ------
    UnsupportedModelError
    """
    others = sorted(set(rows.local) - set(names))
    if others:
        raise UnsupportedModelError(
            f"{others!r} have one value per observation, and cannot be integrated out together "
            f"with {list(names)!r}: integrate them out of the likelihood, or keep all of them "
            "(integrate=False, allow_local=True).",
            topic="local-latent-variables",
        )


# -- modes -----------------------------------------------------------------------------------------


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

        All units take Newton steps at the same time, each with its own damping. If a unit's density
        is not concave, the negative eigenvalues of its curvature change sign. Time: about ten
        gradients and curvatures of all rows.

        Parameters
        ----------
        point : mapping of str to ndarray
            The shared variables, on their own scale.
        rows : Rows
            Units; the search begins at their centres.
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
        size = max(int(2**14 / n_members), 1)  # units, whose arrays fit into a core's own cache
        return Rows.joined(list(in_threads(settled, rows.blocks(size))))

    def places(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the modes (n_units, q) and widths (n_units, q, q) that units have."""
        middle, width = self._columns
        return rows.arrays[middle], rows.arrays[width]

    @cached_property
    def _columns(self) -> tuple[int, int]:
        """Positions of the centres and widths among the arrays of units."""
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
    for _ in range(60):  # a few are enough where the density is concave
        step = _solved(values, vectors, found.slope)
        widths = np.sqrt(np.square(np.einsum("nij,ni->nj", vectors, step)) * values).max(axis=1)
        going &= (widths > 1e-6) & (part > 2.0**-20)
        if not going.any():
            break
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
    return z, np.linalg.cholesky(covariance)


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
