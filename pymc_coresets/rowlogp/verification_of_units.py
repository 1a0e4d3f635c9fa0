"""Comparison of units with PyMC's log-densities of their rows and variables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pymc_api import ParameterValueError
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.numerics import ABSOLUTE, RELATIVE
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import performed
from pymc_coresets.reading.units.factors import GroupingFactor
from pymc_coresets.reading.units.integral import CENTRE
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.rowlogp.verification import points_around, rounding_of


def verify_units(units: UnitModel, *, rng: np.random.Generator) -> None:
    """Compare the log-densities of levels with those that PyMC gives of their rows and variables.

    The variables of half of the levels move, then those of the other half, twice.  No row of a
    level that stays may change, and the log-density of each level that has rows must be the sum of
    PyMC's.  Costs five evaluations of PyMC's elementwise log-likelihood of all rows, and four of
    the derived one.  Points where PyMC's is not finite are left out.

    Parameters
    ----------
    units : UnitModel
    rng : numpy.random.Generator

    Raises
    ------
    UnsupportedModelError
        If rows depend on the variables of other levels, or the two differ.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.rowlogp.units import unit_model
    >>> with pm.Model() as model:
    ...     z = pm.Normal("z", pm.Normal("mu"), shape=3)
    ...     y = pm.Normal("y", z[np.array([0, 0, 1, 2])], 1.0, observed=np.zeros(4))
    >>> verify_units(unit_model(model, ["z"], {}), rng=np.random.default_rng(1))
    """
    densities, n_levels = _Densities(units), units.factor.n_levels
    start = densities.start(rng)
    if start is None:
        return
    before, _ = densities.of_pymc(start)
    for _ in range(2):
        half = rng.permutation(n_levels) < n_levels / 2
        for moves in (half, ~half):
            flat = np.where(moves[:, None], densities.moved(start.flat, rng), start.flat)
            point = start._replace(flat=flat)
            after, of_levels = densities.of_pymc(point)
            _refuse_changed_rows(units, before, after, ~moves[units.factor.level_of_row])
            densities.refuse_others(point, after, of_levels)


class _Point(NamedTuple):
    """Values of the shared variables, and of those of levels, (n_levels, q), unconstrained."""

    shared: Mapping[str, np.ndarray]
    flat: np.ndarray

    def values(
        self, parameters: Mapping[str, TensorVariable], factor: GroupingFactor
    ) -> dict[str, np.ndarray]:
        """Return the values of variables."""
        known = dict(self.shared) | factor.variables(self.flat)
        return {name: np.asarray(known[name], v.type.dtype) for name, v in parameters.items()}


@dataclass(frozen=True, eq=False)
class _Densities:
    """Log-densities of rows and levels, by PyMC and by the package, at values of all variables."""

    units: UnitModel

    def start(self, rng: np.random.Generator) -> _Point | None:
        """Return a point near the initial one where PyMC's log-densities are finite, if any is.

        The variables of levels differ, as equal ones would not show which level a row sees.
        """
        space = self.units.rows.space
        for size in (1.0, 0.3, 0.1, 0.03, 0.01):
            x = space.start + size * (points_around(space, rng)[0][2] - space.start)
            initial = self.units.initial_values
            flat = self.moved(np.where(np.isfinite(initial), initial, 0.0), rng, size)
            point = _Point(space.constrain(x[None]).at(0), flat)
            if np.isfinite(self.of_pymc(point)[0]).any():
                return point
        return None

    def moved(self, flat: np.ndarray, rng: np.random.Generator, size: float = 0.1) -> np.ndarray:
        """Move the variables of all levels by up to as much; discrete ones to any values."""
        if values := self.units.factor.values:
            return np.stack([rng.choice(own, size=len(flat)) for own in values], axis=1)
        signs = rng.choice([-size, size], size=flat.shape)
        found: np.ndarray = flat + signs * rng.uniform(0.2, 1.0, size=flat.shape)
        return found

    def of_pymc(self, point: _Point) -> tuple[np.ndarray, np.ndarray]:
        """Return those of rows, and of the variables of levels; NaN where PyMC refuses."""
        rows, factor = self.units.rows, self.units.factor
        try:
            return self.units.by_pymc(point.values(rows.parameters, factor), point.flat)
        except (np.linalg.LinAlgError, ParameterValueError):
            return np.full(rows.n_obs, np.nan), np.full(factor.n_levels, np.nan)

    def refuse_others(self, point: _Point, of_rows: np.ndarray, of_levels: np.ndarray) -> None:
        """Raise if the log-density of a level that has rows is not what PyMC gives."""
        units, factor = self.units, self.units.factor

        def sums(values: np.ndarray) -> np.ndarray:
            return np.bincount(factor.level_of_row, values, factor.n_levels)

        expected = (sums(of_rows) + of_levels)[units.levels]
        sizes = (sums(np.abs(of_rows)) + np.abs(of_levels))[units.levels]
        apart = np.abs(self._derived(point) - expected)
        wrong = np.isfinite(expected) & ~(apart <= RELATIVE * sizes + ABSOLUTE)
        if wrong.any():  # or large terms cancel
            values = point.values(units.rows.parameters, factor)
            at_point = Draws({name: value[None] for name, value in values.items()})
            wrong &= ~(apart <= sums(rounding_of(units.rows, at_point)[:, 0])[units.levels])
        if wrong.any():
            level = units.levels[np.flatnonzero(wrong)[0]]
            raise UnsupportedModelError(
                f"The log-density of {list(factor.names)!r} and of the rows of level {level} is "
                f"not what PyMC gives (a difference of {apart[wrong][0]:.3g} nats): the package "
                "does not understand this model. Keep the variables as parameters "
                f"({units.options_to_keep}), and please report it."
            )

    def _derived(self, point: _Point) -> np.ndarray:
        """Return the derived log-densities of the levels that have rows."""
        units, factor = self.units, self.units.factor
        form = units.observations_at_zero
        arrays = [
            point.flat[units.levels].astype(float) if row.name == CENTRE else row.values
            for row in form.inputs
        ]
        [found] = self._ours(*point.values(form.parameters, factor).values(), *arrays)
        values: np.ndarray = np.broadcast_to(found, len(units.levels))
        return values

    @cached_property
    def _ours(self) -> Callable[..., list[np.ndarray]]:
        form, density = self.units.observations_at_zero, self.units.density
        arrays = [
            density.variables if row.name == CENTRE else row.placeholder for row in form.inputs
        ]
        return performed([*form.parameters.values(), *arrays], [density.density])


def _refuse_changed_rows(
    units: UnitModel, before: np.ndarray, after: np.ndarray, stays: np.ndarray
) -> None:
    """Raise if rows have changed though the variables of their levels stay."""
    seen = stays & np.isfinite(before) & np.isfinite(after)
    changed = seen & (np.abs(after - before) > RELATIVE * np.abs(before) + ABSOLUTE)
    if changed.any():
        row = int(np.flatnonzero(changed)[0])
        raise UnsupportedModelError(
            f"The log-likelihood of {units.rows.place(row)} depends on "
            f"{list(units.factor.names)!r} of other levels than its own: they cannot be integrated "
            f"out level by level. Keep them as parameters ({units.options_to_keep}).",
            topic="local-latent-variables",
        )
