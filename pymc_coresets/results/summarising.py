"""All rows, the chosen rows, and the chosen rows with their weights, in one table."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.results.columns import Column, RowColumns

__all__ = ["effective_size", "summary_table"]

_SHOWN_WEIGHTS = 5
_SHOWN_LEVELS = 20
_MEASURES = ("all", "chosen", "weighted")

type _Lines = Iterator[tuple[str, Sequence[float]]]
type Floats = NDArray[np.float64]


def summary_table(
    found: RowColumns,
    columns: Sequence[Column],
    *,
    labels: Sequence[str],
    n_observations: int,
    n_distinct: int,
    quantiles: Sequence[float],
) -> pd.DataFrame:
    """Return the table that `Coreset.summary` describes.

    Parameters
    ----------
    found : RowColumns
    columns : sequence of Column
        Those of them that are summarised.
    labels : sequence of str
        Of the chosen rows.
    n_observations, n_distinct : int
        Number of rows, and of different ones.
    quantiles : sequence of float
        Probabilities.

    Examples
    --------
    >>> column = Column("x", np.array([1.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    >>> found = RowColumns((column,), np.array([2.0, 1.0]))
    >>> table = summary_table(
    ...     found, [column], labels=["row 0", "row 2"], n_observations=3, n_distinct=3,
    ...     quantiles=[0.5],
    ... )
    >>> table.loc[("x", "50%")].tolist()
    [2.0, 1.0, 1.0]
    """
    parts = {
        "rows": _rows(found.weights, n_observations, n_distinct),
        "largest weights": _largest(found.weights, labels),
    }
    lines = [(part, *line) for part, some in parts.items() for line in some]
    for column in columns:
        some = (
            _numbers(column, found, quantiles) if column.levels is None else _levels(column, found)
        )
        lines += [(column.name, *line) for line in some]
    index = pd.MultiIndex.from_tuples(
        [(part, name) for part, name, _ in lines], names=["part", "quantity"]
    )
    table = pd.DataFrame([values for *_, values in lines], index=index, columns=list(_MEASURES))
    table.attrs["n_sampled"] = found.n_sampled
    return table


def effective_size(weights: Floats) -> float:
    """Return the number of rows of equal weights that are worth as much, by Kish's formula.

    Examples
    --------
    >>> effective_size(np.array([2.0, 2.0])), effective_size(np.array([1.0, 0.0]))
    (2.0, 1.0)
    """
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def _rows(weights: Floats, n_observations: int, n_distinct: int) -> _Lines:
    yield "number", (n_observations, len(weights), weights.sum())
    if n_distinct < n_observations:
        yield "distinct", (n_distinct, len(weights), len(weights))
    yield "effective", (n_observations, len(weights), effective_size(weights))


def _largest(weights: Floats, labels: Sequence[str]) -> _Lines:
    for i in np.argsort(-weights, kind="stable")[:_SHOWN_WEIGHTS]:
        yield labels[i], (1, 1, weights[i])


def _numbers(column: Column, found: RowColumns, quantiles: Sequence[float]) -> _Lines:
    every = None if column.every is None else _described(column.every, found.masses, quantiles)
    chosen = _described(column.chosen, None, quantiles)
    weighted = _described(column.chosen, found.weights, quantiles)
    for name, value in chosen.items():
        of_all = np.nan if every is None else every[name]
        if column.extremes is not None and name in ("min", "max"):
            of_all = column.extremes[name == "max"]
        yield name, (of_all, value, weighted[name])


def _described(
    values: NDArray[np.generic], masses: Floats | None, quantiles: Sequence[float]
) -> dict[str, float]:
    """Describe the distribution that has these masses, without any correction of its sd."""
    numbers = values.astype(np.float64)
    known = ~np.isnan(numbers)
    if not known.all():
        numbers, masses = numbers[known], None if masses is None else masses[known]
    names = [f"{100 * p:.4g}%" for p in quantiles]
    if not numbers.size:
        return dict.fromkeys(["mean", "sd", "min", *names, "max"], np.nan)
    mean = np.average(numbers, weights=masses)
    cuts = np.quantile(numbers, quantiles, method="inverted_cdf", weights=masses)
    return {
        "mean": float(mean),
        "sd": float(np.sqrt(np.average((numbers - mean) ** 2, weights=masses))),
        "min": float(numbers.min()),
        **dict(zip(names, map(float, cuts), strict=True)),
        "max": float(numbers.max()),
    }


def _levels(column: Column, found: RowColumns) -> _Lines:
    table = found.by_level(column)
    chosen = table["chosen"] > 0
    known = bool(table["rows"].notna().all())
    present = chosen | (table["rows"] > 0)
    yield "levels", (present.sum() if known else np.nan, chosen.sum(), chosen.sum())
    of_all = table["rows"][chosen].sum() if known else np.nan
    yield "in these levels", (of_all, table["chosen"].sum(), table["weight"].sum())
    if present.sum() <= _SHOWN_LEVELS:
        for label, line in table[present].iterrows():
            yield f"= {label}", tuple(line)
