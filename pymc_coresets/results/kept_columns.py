"""The columns of rows that lie elsewhere: exact counts by one reading, the rest from a sample."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import arrays_of_dataset, rows_of_dataset
from pymc_coresets.reading.observations import Observations
from pymc_coresets.results.columns import (
    Column,
    Levels,
    RowColumns,
    classes_between,
    flat_columns,
    levels_of_rows,
)
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import AbsentRows, RowBlocks
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows

_SAMPLED = 100_000
_BLOCK_ROWS = 2**16


def columns_of_kept(
    loglik: LogLikelihood | None,
    kept: xr.Dataset,
    weights: np.ndarray,
    *,
    rng: np.random.Generator,
) -> RowColumns:
    """Return the columns of the chosen rows, and of those that they were chosen from.

    Costs two readings of the rows: one counts levels and finds the smallest and largest values, the
    other draws 100 000 rows in proportion to their base weights, for all else.  Where there are no
    more rows than that, all are kept.  Memory: those rows.

    Parameters
    ----------
    loglik : LogLikelihood or None
        Of the rows; None where the coreset was read without its model.
    kept : xarray.Dataset
        The chosen rows, as `kept_dataset` makes it.
    weights : ndarray of shape (size,)
    rng : Generator
        Which rows are drawn.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets import build_coreset, open_rows
    >>> source = open_rows({"y": np.arange(200.0)})
    >>> with pm.Model() as model:
    ...     y = pm.Data("y", source.head(10)["y"])
    ...     likelihood = pm.Normal("likelihood", pm.Normal("mu"), 1.0, observed=y)
    ...     coreset = build_coreset(
    ...         rows=source, size=5, method="uniform", random_seed=1, progressbar=False
    ...     )
    >>> found = columns_of_kept(
    ...     coreset.loglikelihood, coreset.rows, coreset.weights, rng=np.random.default_rng(1)
    ... )
    >>> [(c.name, len(c.every)) for c in found.columns]
    [('y', 200)]
    """
    if loglik is None:
        arrays = arrays_of_dataset(kept)
        flat = [c for name, array in arrays.items() for c in flat_columns(name, array, None)]
        return RowColumns(tuple(c.with_classes() for c in flat), weights)
    observations, source = loglik.observations, loglik.source
    chosen = rows_of_dataset(observations, kept)
    levels = {i: found for i, (_, found) in levels_of_rows(observations).items()}
    if isinstance(source, AbsentRows):
        return RowColumns(_columns(observations, chosen, levels), weights)
    if source.n_rows <= _SAMPLED or isinstance(source, InMemoryRows):
        known = Rows.joined(list(source.blocks(_BLOCK_ROWS)))
        columns = _columns(observations, chosen, levels, known)
        return RowColumns(columns, weights, known.base_weights)
    levels = _classes(observations, source) | levels
    drawn = source.scan(_SAMPLED, key=int(rng.integers(2**63)))
    counts = source.reduce(_CountPass(levels))
    columns = _columns(observations, chosen, levels, drawn.rows, counts)
    return RowColumns(columns, weights, drawn.weights, n_sampled=_SAMPLED)


def _columns(
    observations: Observations,
    chosen: Rows,
    levels: Mapping[int, Levels],
    known: Rows | None = None,
    counts: "_Counts | None" = None,
) -> tuple[Column, ...]:
    found: list[Column] = []
    for i, row in enumerate(observations.rows):
        every = None if known is None else known.arrays[i]
        parts = list(
            flat_columns(row.name, chosen.arrays[i], every, _labels(observations, row.name))
        )
        if i in levels:
            parts = [replace(part, levels=levels[i]) for part in parts]
        if counts is not None:
            pairs = zip(np.ravel(counts.lows[i]), np.ravel(counts.highs[i]), strict=True)
            totals = counts.totals.get(i)
            parts = [
                replace(part, extremes=pair, totals=totals)
                for part, pair in zip(parts, pairs, strict=True)
            ]
        found += parts
    return tuple(column.with_classes() for column in found)


def _labels(observations: Observations, name: str) -> list[Sequence[Any] | None]:
    dims = observations.model.named_vars_to_dims.get(name, ())[1:]
    return [None if dim is None else observations.model.coords.get(dim) for dim in dims]


# -- what is counted exactly -----------------------------------------------------------------------


def _classes(observations: Observations, source: RowBlocks) -> dict[int, Levels]:
    """Find whole numbers of a small range, which the first reading of all rows knows."""
    first = source.first if isinstance(source, StreamedRows) else None
    if first is None:
        return {}
    ranges = {i: first.ranges.get(row.name) for i, row in enumerate(observations.rows)}
    plain = {i: found for i, found in ranges.items() if observations.rows[i].values.ndim == 1}
    classes = {i: classes_between(*found) for i, found in plain.items() if found is not None}
    return {i: levels for i, levels in classes.items() if levels is not None}


class _Counts(NamedTuple):
    """Rows of each level, and the smallest and largest values of each array."""

    totals: dict[int, NDArray[np.float64]]
    lows: list[NDArray[Any]]
    highs: list[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class _CountPass:
    """See `columns_of_kept`."""

    levels: Mapping[int, Levels]
    size: int = _BLOCK_ROWS

    def begin(self) -> Callable[[Rows], _Counts]:
        return self._of_block

    def _of_block(self, rows: Rows) -> _Counts:
        return _Counts(
            {i: each.totals(rows.arrays[i], rows.base_weights) for i, each in self.levels.items()},
            [array.min(axis=0) for array in rows.arrays],
            [array.max(axis=0) for array in rows.arrays],
        )

    def joined(self, parts: Iterable[_Counts]) -> _Counts:
        totals, lows, highs = zip(*parts, strict=True)
        return _Counts(
            {i: np.sum([some[i] for some in totals], axis=0) for i in self.levels},
            [np.min(some, axis=0) for some in zip(*lows, strict=True)],
            [np.max(some, axis=0) for some in zip(*highs, strict=True)],
        )
