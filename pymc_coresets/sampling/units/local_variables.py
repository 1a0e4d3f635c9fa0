"""The variables that were integrated out of a model: their draws, given the shared variables."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph import ancestors

from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import evaluate, plain_mode
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows

PROPOSALS = 12  #: For each draw of a unit, of which weights choose one.
_FREEDOM = 8.0  # degrees of freedom of proposals
_TAIL = (_FREEDOM + 1) / 2  # power of their density's tails
_NUMBERS = 2**20  # of a block: draws, times proposals, times rows
_DRAWS = 256  # of a block


@dataclass(frozen=True, eq=False)
class LocalVariables:
    """The variables that were integrated out of a model.

    Parameters
    ----------
    loglik : LogLikelihood
        Of units.
    """

    loglik: LogLikelihood

    @property
    def observations(self) -> Observations:
        """The units."""
        return self.loglik.observations

    @cached_property
    def names(self) -> list[str]:
        """Those variables, and deterministics that are computed from them, but not along rows."""
        model, rows = self._source.rows.held.whole, self._source.rows
        integrated = {model[name] for name in self._source.factor.names}
        others = [
            v.name
            for v in model.deterministics
            if v.name not in rows.left_out and not integrated.isdisjoint(ancestors([v]))
        ]
        return [*self._source.factor.names, *others]

    @cached_property
    def of_single_levels(self) -> list[str]:
        """Those of them whose value at a level depends on no other level.

        Every other level is moved, at which values at the levels between have to stay.
        """
        points = np.tile(self._space.start, (2, 1))
        for part in self._source.factor.parts:
            moved = part.flat(self._space.columns[part.name])[1::2]
            is_value = bool(self._source.factor.values)
            points[1, moved] += np.where(is_value & (points[1, moved] > 0), -1.0, 1.0)
        found = self._variables(tuple(self.names))(points)

        def stays(name: str, values: np.ndarray) -> bool:
            if (axis := self._axis(name)) is None:
                return False
            between = np.moveaxis(values, 1 + axis, 1)[:, ::2]
            return np.array_equal(between[0], between[1], equal_nan=True)

        return [n for n, values in zip(self.names, found, strict=True) if stays(n, values)]

    @property
    def _source(self) -> Any:  # noqa: ANN401 - see `Units`
        assert self.observations.units is not None
        return self.observations.units.source

    @property
    def _dim(self) -> str | None:
        return cast(str | None, self.observations.dim)

    def numbers_of(self, levels: Sequence[Any] | None) -> np.ndarray:
        """Return the numbers of levels that are given by their labels."""
        n_levels = self._source.factor.n_levels
        if levels is None:
            return np.arange(n_levels)
        labels = self._labels
        known = {label: i for i, label in enumerate(labels)}
        missing = [level for level in levels if level not in known]
        if missing:
            raise InvalidOptionError(
                f"levels={missing!r} are not among the {n_levels:,} levels"
                + (f" of {self._dim!r}." if self._dim else ".")
            )
        return np.array(sorted({known[level] for level in levels}), dtype=np.int64)

    @property
    def _labels(self) -> Sequence[Any]:
        coords = self._source.rows.held.whole.coords
        labels = None if self._dim is None else coords.get(self._dim)
        return range(self._source.factor.n_levels) if labels is None else list(labels)

    def n_bytes(self, names: Sequence[str], posterior: xr.Dataset, n_levels: int) -> int:
        """Return the size of a result."""
        n_each = sum(math.prod(self._shapes[name]) for name in names) / self._source.factor.n_levels
        return int(8 * posterior.sizes["chain"] * posterior.sizes["draw"] * n_each * n_levels)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the variables, with all levels."""
        model = self._source.rows.held.whole
        shapes = evaluate([pt.as_tensor(model[name].shape) for name in self.names])
        return {n: tuple(map(int, shape)) for n, shape in zip(self.names, shapes, strict=True)}

    def drawn(
        self,
        posterior: xr.Dataset,
        names: Sequence[str],
        which: np.ndarray,
        rng: np.random.Generator,
    ) -> xr.Dataset:
        """Return draws of variables at levels with these numbers."""
        draws = Draws.of(posterior, self.observations.shapes)
        rows = self._source.rows_of(self.observations, which)
        values: dict[str, list[np.ndarray]] = {name: [] for name in names}
        counted = []
        for start in range(0, draws.n_draws, _DRAWS):
            some = draws.take(slice(start, start + _DRAWS))
            flat, ess = self._at(some, rows, rng)
            counted.append(ess)
            for name, value in self._on_own_scale(some, flat, which, names).items():
                values[name].append(value)
        sizes = [posterior.sizes[dim] for dim in SAMPLE_DIMS]
        found = {
            name: self._labelled(name, np.concatenate(parts), which, sizes, posterior)
            for name, parts in values.items()
        }
        return xr.Dataset(found, attrs={"ess_of_proposals": float(np.mean(counted))})

    def _at(self, draws: Draws, rows: Rows, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """Return draws (n_draws, n_levels, q) of the variables, unconstrained, and the mean ESS."""
        kernel, n_dims = self.loglik.unit_places, self._source.factor.n_dims
        evaluate = kernel.program.given(*self.loglik.given(draws))
        pieces = list(_pieces(rows, draws.n_draws))

        every = np.array(list(product(*self._source.factor.values)), dtype=float)

        def chosen(block: tuple[Rows, np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
            some, own = block
            if self._source.factor.values:
                x = np.broadcast_to(every[:, None], (draws.n_draws, len(every), len(some), n_dims))
            else:
                x = _proposed((draws.n_draws, PROPOSALS, len(some), n_dims), own)
            z, logs = evaluate(np.ascontiguousarray(x), *kernel.arrays(some))
            if not self._source.factor.values:
                logs = logs + _TAIL * np.log1p(np.square(x) / _FREEDOM).sum(axis=-1)
            logs = np.where(np.isfinite(logs), logs, -np.inf)
            weights = np.exp(logs - logs.max(axis=1, keepdims=True))
            below = np.cumsum(weights, axis=1)
            ess = np.square(below[:, -1]) / np.square(weights).sum(axis=1)
            level = own.random((len(below), 1, len(some))) * below[:, -1:]
            picked = np.minimum((below <= level).sum(axis=1), x.shape[1] - 1)
            return np.take_along_axis(z, picked[:, None, :, None], axis=1)[:, 0], ess

        parts = list(in_threads(chosen, zip(pieces, rng.spawn(len(pieces)), strict=True)))
        return np.concatenate([z for z, _ in parts], axis=1), float(
            np.mean(np.concatenate([ess for _, ess in parts], axis=1))
        )

    @cached_property
    def _space(self) -> Unconstrained:
        return Unconstrained(self._source.rows.held.whole)

    def _on_own_scale(
        self, draws: Draws, flat: np.ndarray, which: np.ndarray, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Return variables on their own scale, with the chosen levels only."""
        full, factor = self._space, self._source.factor
        points = np.tile(full.start, (draws.n_draws, 1))
        shared, own = self.observations.space, full.columns
        free = shared.free(draws)
        for name, columns in shared.columns.items():
            points[:, own[name].ravel()] = free[:, columns.ravel()]
        for part in factor.parts:
            columns = part.flat(own[part.name])[which]
            points[:, columns.ravel()] = flat[:, :, part.columns].reshape(len(flat), -1)
        found = self._variables(tuple(names))(points)
        chosen = {}
        for name, values in zip(names, found, strict=True):
            axis = self._axis(name)
            chosen[name] = values if axis is None else np.take(values, which, axis=1 + axis)
        return chosen

    def _variables(self, names: tuple[str, ...]) -> Callable[..., list[np.ndarray]]:
        known: dict[tuple[str, ...], Any] = self.__dict__.setdefault("_compiled", {})
        if names not in known:
            model, x = self._space.model, pt.vector("x", dtype="float64")
            graphs = model.replace_rvs_by_values([model[name] for name in names])
            tensors = [pt.as_tensor(v, allow_xtensor_conversion=True) for v in graphs]
            known[names] = of_points([x], self._space.at(x, tensors), plain_mode("minimum_compile"))
        found: Callable[..., list[np.ndarray]] = known[names]
        return found

    def _axis(self, name: str) -> int | None:
        """Return the axis of a variable that has the levels."""
        dims = self._space.model.named_vars_to_dims.get(name) or ()
        if self._dim is not None and self._dim in dims:
            return dims.index(self._dim)
        n_levels, shape = self._source.factor.n_levels, self._shapes[name]
        return shape.index(n_levels) if n_levels in shape else None

    def level_dim(self, name: str) -> str:
        """Return the name of a variable's dimension that has the levels."""
        return self._dims(name)[self._axis(name) or 0]

    def _dims(self, name: str) -> list[str]:
        own = self._space.model.named_vars_to_dims.get(name) or ()
        return [
            (own[i] if i < len(own) else None) or f"{name}_dim_{i}"
            for i in range(len(self._shapes[name]))
        ]

    def _labelled(
        self,
        name: str,
        values: np.ndarray,
        which: np.ndarray,
        sizes: Sequence[int],
        posterior: xr.Dataset,
    ) -> xr.DataArray:
        whole, dims, axis = self._shapes[name], self._dims(name), self._axis(name)
        coords: dict[str, Any] = {dim: posterior[dim] for dim in SAMPLE_DIMS}
        for i, dim in enumerate(dims):
            labels = self._space.model.coords.get(dim)
            every = np.arange(whole[i]) if labels is None else np.asarray(labels)
            coords[dim] = every[which] if i == axis else every
        return xr.DataArray(
            values.reshape(*sizes, *values.shape[1:]), coords, [*SAMPLE_DIMS, *dims]
        )


def _proposed(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw from a t distribution of eight degrees of freedom: Bailey 1994, Math. Comp. 62."""
    radius = 1 / np.sqrt(np.sqrt(1 - rng.random(shape))) - 1
    drawn: np.ndarray = np.sqrt(_FREEDOM * radius) * np.cos(2 * np.pi * rng.random(shape))
    return drawn


def _pieces(rows: Rows, n_draws: int) -> Iterator[Rows]:
    """Cut units into blocks of about as many rows; one of many rows is a block by itself."""
    assert rows.members is not None
    most = max(_NUMBERS // (n_draws * PROPOSALS), 1)
    ends = np.cumsum(np.maximum(rows.members.sizes, 1))
    start, done = 0, 0
    while start < len(rows):
        stop = max(int(np.searchsorted(ends, done + most, side="right")), start + 1)
        yield rows.take(slice(start, stop))
        start, done = stop, int(ends[stop - 1])
