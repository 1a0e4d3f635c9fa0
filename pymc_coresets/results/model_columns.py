"""The columns of rows that the model itself holds: containers, outcomes, arrays, cells."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pytensor.graph import ancestors

from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import UNNAMED
from pymc_coresets.reading.units.integral import CENTRE, FACTOR
from pymc_coresets.reading.user_model import data_of
from pymc_coresets.results.columns import (
    Column,
    Levels,
    flat_columns,
    level_labels,
    levels_of_rows,
    own_values,
)

type Labels = list[Sequence[Any] | None]


def columns_of_model(observations: Observations, indices: np.ndarray) -> tuple[Column, ...]:
    """Return what the model holds of its rows.

    These are its data containers along the observation dimension, whether the likelihood uses them
    or not, the observed values, other arrays that are indexed by the observation, the indices by
    which variables are looked up, and the dimensions of cells.

    Parameters
    ----------
    observations : Observations
    indices : ndarray of int
        Positions of the chosen rows in the user's data.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.array([2.0, 3.0, 5.0]))
    ...     y = pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(3))
    >>> [c.name for c in columns_of_model(find_observations(model), np.array([0, 2]))]
    ['x', 'y']
    """
    return tuple(_Reader(observations, indices).columns())


def cell_codes(observations: Observations, positions: np.ndarray) -> dict[str, np.ndarray]:
    """Return where rows lie along each of the observation dimensions.

    Parameters
    ----------
    observations : Observations
    positions : ndarray of int
        Of the rows; of cells in C order.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"dog": range(2), "trial": range(3)}) as model:
    ...     mu = pm.Normal("mu", dims="dog")
    ...     y = pm.Normal("y", mu[:, None], 1.0, observed=np.ones((2, 3)), dims=("dog", "trial"))
    >>> cell_codes(find_observations(model, dim=("dog", "trial")), np.array([4]))
    {'dog': array([1]), 'trial': array([1])}
    """
    dims = observations.dims
    if len(dims) < 2:
        return dict.fromkeys(dims, positions)
    lengths = evaluate([observations.model.dim_lengths[dim] for dim in dims])
    codes = np.unravel_index(positions, [int(length) for length in lengths])
    return dict(zip(dims, codes, strict=True))


class _Reader:
    def __init__(self, observations: Observations, indices: np.ndarray) -> None:
        self.obs, self.model = observations, observations.model
        n_obs, positions = observations.n_obs, observations.positions
        self.positions = np.arange(n_obs) if positions is None else positions
        self.chosen = np.searchsorted(self.positions, indices)
        self.codes = cell_codes(observations, self.positions)
        self.levels = levels_of_rows(observations)
        self.used = {v.name for v in ancestors([row.source for row in observations.rows]) if v.name}

    def columns(self) -> list[Column]:
        found = {c.name: c for name, v, at in self._arrays() for c in self._flat(name, v, at)}
        for dim, codes in self.codes.items() if len(self.codes) > 1 else ():
            levels = Levels(level_labels(self.obs, dim, int(codes.max()) + 1))
            found[dim] = Column(dim, codes[self.chosen], codes, levels)
        for number, (name, levels) in self.levels.items():
            row = self.obs.rows[number]
            if row.name != UNNAMED or len(self.codes) < 2:
                codes = self._values(number)
                found[name] = Column(name, codes[self.chosen], codes, levels)
        return [column.with_classes() for column in found.values()]

    def _flat(self, name: str, values: np.ndarray, labels: Labels) -> Iterator[Column]:
        return flat_columns(name, values[self.chosen], values, labels)

    def _arrays(self) -> Iterator[tuple[str, np.ndarray, Labels]]:
        """Arrays with the rows along the first axis, with labels of their other axes."""
        names: set[str] = set()
        if self.obs.sets:  # no container has values for all rows
            yield from self._others(names)
            return
        for name in (variable.name for variable in self.obs.held.live.data_vars):  # in their order
            found = self._along_rows(name, data_of(self.model[name]))
            if found is not None:
                names.add(name)
                yield name, *found
        for term in self.obs.terms:
            found = self._observed(term.name, term.axis, names)
            if found is not None:
                names.add(term.name)
                yield term.name, *found
        yield from self._others(names)

    def _along_rows(
        self, name: str, values: np.ndarray, axis: int = 0, *, used: bool = False
    ) -> tuple[np.ndarray, Labels] | None:
        """Return the rows of an array, if it has any."""
        dims: Sequence[str | None] = self.model.named_vars_to_dims.get(name, ())
        dims = [*dims, *[None] * (values.ndim - len(dims))]
        axes = {dim: dims.index(dim) for dim in self.codes if dim in dims}
        if axes:
            rows = np.moveaxis(values, list(axes.values()), range(len(axes)))
            taken = rows[tuple(self.codes[dim] for dim in axes)]
            return taken, self._labels(dims, axes.values())
        if any(dims) or not values.ndim or not (used or name in self.used):
            return None
        rows, n_obs = np.moveaxis(values, axis, 0), self.obs.n_obs
        if len(rows) != n_obs:
            if self.obs.positions is None or len(rows) <= self.positions[-1]:
                return None
            rows = rows[self.positions]
        return rows, self._labels(dims, [axis])

    def _labels(self, dims: Sequence[str | None], axes: Any) -> Labels:  # noqa: ANN401
        others = [dim for i, dim in enumerate(dims) if i not in set(axes)]
        return [None if dim is None else self.model.coords.get(dim) for dim in others]

    def _observed(self, name: str, axis: int, known: set[str]) -> tuple[np.ndarray, Labels] | None:
        """Return the values of an observed variable, unless a container holds them."""
        if self.obs.units is not None:  # its values are those of rows in units
            return None
        value = self.model.rvs_to_values.get(self.model[name])
        if value is None or {v.name for v in ancestors([value])} & known:
            return None
        [data] = evaluate([value])
        return self._along_rows(name, data, axis, used=True)

    def _others(self, known: set[str]) -> Iterator[tuple[str, np.ndarray, Labels]]:
        """Return row arrays that are not computed from what is known."""
        number = 0
        for i, row in enumerate(self.obs.rows):
            if i in self.levels or row.name in known or row.values.dtype == bool:
                continue
            if row.name in (CENTRE, FACTOR):  # where nodes are, which no data say
                continue
            name = row.name
            if name == UNNAMED:
                name, number = f"array {number}" if number else "array", number + 1
            else:
                known = known | {name}
            yield name, self._values(i), []

    def _values(self, number: int) -> np.ndarray:
        """Return the values of a row array in all rows."""
        row = self.obs.rows[number]
        return own_values(row, np.moveaxis(row.values, row.axis, 0), self.positions)
