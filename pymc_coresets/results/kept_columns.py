"""The columns of rows that lie elsewhere: exact counts by one reading, the rest from a sample."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import arrays_of_dataset, rows_of_dataset
from pymc_coresets.results.columns import (
    MOST_CLASSES,
    Column,
    Labels,
    Measure,
    MeasuredColumns,
    Values,
    classes,
    columns_of,
    flat_columns,
    labels_of_lookups,
)
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import AbsentRows
from pymc_coresets.rows.values import Rows

_SAMPLED = 100_000  # rows: quantiles are within 0.5 % of their probabilities
_BLOCK_ROWS = 2**16


def columns_of_kept(
    loglik: LogLikelihood | None,
    kept: xr.Dataset,
    weights: NDArray[np.float64],
    *,
    rng: np.random.Generator,
) -> MeasuredColumns:
    """Return the columns of the chosen rows, and of those that they were chosen from.

    Costs two readings of the rows: one counts labels and finds the smallest and largest values, the
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
    >>> {name: len(column.values) for name, column in found.columns.items()}
    {'y': 205}
    """
    size = len(weights)
    measures: dict[str, Measure] = {
        "chosen": (slice(size), None),
        "weighted": (slice(size), weights),
    }
    if loglik is None:
        return MeasuredColumns(columns_of(flat_columns(arrays_of_dataset(kept))), measures)
    model, names = loglik.observations.model, [row.name for row in loglik.observations.rows]
    dims = {name: model.named_vars_to_dims.get(name, ())[1:] for name in names}
    axes = {n: [dim and model.coords.get(dim) for dim in found] for n, found in dims.items()}
    flat = partial(_flat, names, axes)
    labels: dict[str, Labels | None] = dict(labels_of_lookups(loglik.observations).values())
    chosen, source = flat(rows_of_dataset(loglik.observations, kept)), loglik.source
    if isinstance(source, AbsentRows):
        return MeasuredColumns(columns_of(chosen, labels), measures)
    is_sampled = source.n_rows > _SAMPLED and not isinstance(source, InMemoryRows)
    exact: dict[str, Values] = {}
    if is_sampled:
        drawn = source.scan(_SAMPLED, key=int(rng.integers(2**63)))
        known, masses = drawn.rows, drawn.weights
        for name, counts in source.reduce(_ExactPass(flat, dict(labels), _BLOCK_ROWS)).items():
            least, most = counts.index[0], counts.index[-1]
            if labels.setdefault(name, classes(counts.index.to_numpy())) is None:
                exact[name] = np.array([least, most])
            else:
                exact[name] = counts.reindex(range(least, most + 1), fill_value=0.0).to_numpy()
    else:
        known = Rows.joined(list(source.blocks(_BLOCK_ROWS)))
        masses = known.base_weights
    both = {n: np.concatenate([chosen[n], every]) for n, every in flat(known).items()}
    measures["all"] = slice(size, None), masses
    return MeasuredColumns(
        columns_of(both, labels), measures, exact, n_sampled=_SAMPLED if is_sampled else None
    )


def _flat(
    names: Sequence[str], axes: Mapping[str, Sequence[Labels | None]], rows: Rows
) -> dict[str, Values]:
    return flat_columns(dict(zip(names, rows.arrays, strict=True)), axes)


@dataclass(frozen=True, eq=False)
class _ExactPass:
    """Counts the rows of each code and of each whole number of a small range, see `Pass`.

    What is counted is the index of a series; of other numbers the smallest and the largest.
    """

    flat: Callable[[Rows], dict[str, Values]]
    labels: Mapping[str, Labels | None]
    size: int

    def begin(self) -> Callable[[Rows], dict[str, pd.Series]]:
        return self._of_block

    def _of_block(self, rows: Rows) -> dict[str, pd.Series]:
        columns = columns_of(self.flat(rows), self.labels)
        return {name: _counted(column, rows.base_weights) for name, column in columns.items()}

    def joined(self, parts: Iterable[dict[str, pd.Series]]) -> dict[str, pd.Series]:
        return reduce(self._plus, parts)

    def _plus(self, one: dict[str, pd.Series], other: dict[str, pd.Series]) -> dict[str, pd.Series]:
        return {
            name: counts + other[name] if name in self.labels else _plus(counts, other[name])
            for name, counts in one.items()
        }


def _plus(one: pd.Series, other: pd.Series) -> pd.Series:
    """Add up counts of numbers; of too many to be counted, only the ends are kept."""
    counts = pd.concat([one, other]).groupby(level=0).sum()
    return counts if len(counts) <= MOST_CLASSES else counts.iloc[[0, -1]]


def _counted(column: Column, masses: Values) -> pd.Series:
    if column.labels is None:
        return pd.Series(0.0, index=[column.values.min(), column.values.max()])
    codes = column.labels if isinstance(column.labels, range) else range(len(column.labels))
    return pd.Series(column.counts(masses), index=codes)
