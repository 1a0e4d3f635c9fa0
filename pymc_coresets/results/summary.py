"""The rows of a coreset beside all rows, in one table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import generator, names_of
from pymc_coresets.results.columns import (
    Column,
    Labels,
    Measure,
    MeasuredColumns,
    Values,
    named_columns,
)
from pymc_coresets.results.kept_columns import columns_of_kept
from pymc_coresets.results.model_columns import (
    cell_codes,
    columns_of_model,
    labels_of_dim,
    positions_of_rows,
)
from pymc_coresets.weighted_rows import WeightedRows, required_likelihood

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SHOWN_WEIGHTS = 5
_SHOWN_LEVELS = 20
_MEASURES = ["all", "chosen", "weighted"]

type Floats = NDArray[np.float64]


def summarise_rows(
    coreset: WeightedRows,
    columns: str | Sequence[str] | None = None,
    *,
    quantiles: Sequence[float] = _QUANTILES,
    random_seed: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    """Summarise the chosen rows: how they differ from all rows, and how the weights correct that.

    Each quantity is computed three times: for all rows, for the chosen rows without their
    weights, and with them.  The chosen rows alone often lie far out, where they say most about
    the parameters.  With their weights they come closer to all rows, but need not match them
    (least of all beside a quadratic, which stands for most of what they say):
    what is matched is the log-likelihood.

    Costs a sort of each column of the data.  Rows elsewhere (``rows=...``) are read twice: what
    is counted, the smallest and the largest value are exact, all else comes from 100 000 rows
    drawn at random, if there are more.

    Parameters
    ----------
    columns : str or sequence of str, optional
        Which columns to summarise; an array with several numbers for each row is one name.  By
        default all: the data containers along the observation dimension (also those that the
        likelihood does not use), the observed values, other arrays with one entry for each row,
        the indices by which variables are looked up, and the dimensions of cells.
    quantiles : sequence of float
        Their probabilities, between 0 and 1.
    random_seed : int or Generator, optional
        Which rows are drawn, of rows elsewhere.

    Returns
    -------
    pandas.DataFrame
        With the columns ``all``, ``chosen`` and ``weighted``, and an index of two levels,
        ``part`` and ``quantity``:

        ===================  ==================================================================
        rows                 ``number``; ``distinct``, where equal rows were merged;
                             ``effective``: ``(sum w)^2 / sum w^2``, as many rows of equal
                             weights
        largest weights      the five rows of the largest weights
        (name of a column)   ``mean``, ``sd``, ``min``, quantiles, ``max``; of a column of
                             levels, ``levels`` (that have rows), ``in these levels`` (rows in
                             levels of which a row was chosen), and the rows of each level, if
                             there are at most 20
        ===================  ==================================================================

        Numbers of rows are sums of weights in the column ``weighted``.  ``all`` is NaN where
        all rows are out of reach, as after `merge` or reading without ``rows=...``.  Missing
        values are left out.  ``attrs["n_sampled"]`` is the number of rows drawn, or None.

    Raises
    ------
    InvalidOptionError
        If there is no column of a name, or `quantiles` are not between 0 and 1.
    CoresetError
        If the coreset was read without its model.

    Notes
    -----
    The effective number is that of Kish (1965), *Survey Sampling*.  Quantiles are those of the
    distribution that has the given weights: the smallest value up to which at least this share
    of the weight lies.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.arange(500.0)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> table = coreset.summary()
    >>> table.loc[("rows", "number")].tolist()
    [500.0, 5.0, 500.0]
    >>> float(table.loc[("y", "50%"), "all"])
    249.0
    """
    asked, probabilities = names_of("columns", columns), _probabilities(quantiles)
    rng = generator(random_seed)
    loglik, weights = coreset.loglikelihood, coreset.weights
    if coreset.data is not None:
        found = columns_of_kept(loglik, coreset.data, weights, rng=rng)
    else:
        observations = required_likelihood(coreset).observations
        chosen = np.searchsorted(positions_of_rows(observations), coreset.indices)
        found = MeasuredColumns(
            columns_of_model(observations),
            {"all": (slice(None), None), "chosen": (chosen, None), "weighted": (chosen, weights)},
        )
    names = [asked] if isinstance(asked, str) else asked
    shown = found.columns if names is None else named_columns(found.columns, names)
    largest = np.argsort(-weights, kind="stable")[:_SHOWN_WEIGHTS]
    labels = row_labels(coreset, coreset.indices[largest])
    parts = {
        "rows": _numbers_of_rows(weights, coreset.n_observations, coreset.n_distinct),
        "largest weights": _table([(1, 1, weight) for weight in weights[largest]], labels),
    }
    for name, column in shown.items():
        parts[name] = described(column, found.measures, probabilities, found.exact.get(name))
    table = pd.concat(parts, names=["part", "quantity"])
    table.attrs["n_sampled"] = found.n_sampled
    return table


def described(
    column: Column,
    measures: Mapping[str, Measure],
    quantiles: Sequence[float],
    exact: Values | None = None,
) -> pd.DataFrame:
    """Describe one column of the rows by each measure: its numbers, or how many have each label.

    Parameters
    ----------
    column : Column
    measures, exact
        See `MeasuredColumns`.
    quantiles : sequence of float
        Probabilities.

    Examples
    --------
    >>> column = Column(np.array([1.0, 2.0, 3.0]))
    >>> measures = {"chosen": ([0, 2], None), "weighted": ([0, 2], np.array([2.0, 1.0]))}
    >>> described(column, measures, [0.5]).loc["50%"].tolist()
    [nan, 1.0, 1.0]
    """
    parts = {name: (column.at(rows), masses) for name, (rows, masses) in measures.items()}
    if column.labels is not None:
        counts = {name: part.counts(masses) for name, (part, masses) in parts.items()}
        return _of_labels(column.labels, counts if exact is None else counts | {"all": exact})
    numbers = {
        name: _of_numbers(part.values, masses, quantiles) for name, (part, masses) in parts.items()
    }
    if exact is not None:
        numbers["all"] |= dict(zip(("min", "max"), exact, strict=True))
    names = list(numbers["chosen"])
    return pd.DataFrame(numbers, index=names, columns=_MEASURES, dtype=np.float64)


def effective_size(weights: Floats) -> float:
    """Return the number of rows of equal weights that are worth as much, by Kish's formula.

    Examples
    --------
    >>> effective_size(np.array([2.0, 2.0])), effective_size(np.array([1.0, 0.0]))
    (2.0, 1.0)
    """
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def row_labels(coreset: WeightedRows, positions: NDArray[np.int64]) -> list[str]:
    """Return the labels of rows by their positions: of cells by those of their dimensions."""
    if coreset.data is None and coreset.loglikelihood is not None:
        observations = coreset.loglikelihood.observations
        if observations.sets:
            return [observations.place(position) for position in positions.tolist()]
        if len(observations.dims) > 1:
            codes = cell_codes(observations, positions)
            labels = [[labels_of_dim(observations, dim)[i] for i in codes[dim]] for dim in codes]
            return [", ".join(map(str, pair)) for pair in zip(*labels, strict=True)]
    return [f"row {position}" for position in positions]


def _table(lines: Sequence[Sequence[float]], names: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(lines, index=names, columns=_MEASURES, dtype=np.float64)


def _numbers_of_rows(weights: Floats, n_observations: int, n_distinct: int) -> pd.DataFrame:
    size = len(weights)
    lines = {
        "number": (n_observations, size, weights.sum()),
        "distinct": (n_distinct, size, size),
        "effective": (n_observations, size, effective_size(weights)),
    }
    if n_distinct == n_observations:
        del lines["distinct"]
    return _table([*lines.values()], [*lines])


def _of_labels(labels: Labels, counts: Mapping[str, Floats]) -> pd.DataFrame:
    """Count labels that have rows, rows with labels that were chosen, and those of each label."""
    table = pd.DataFrame(counts, columns=_MEASURES, dtype=np.float64)
    covered = table["chosen"] > 0
    present = covered | (table["all"] > 0)
    n_all = present.sum() if "all" in counts else np.nan
    head = _table(
        [(n_all, covered.sum(), covered.sum()), table[covered].sum(skipna=False)],
        ["levels", "in these levels"],
    )
    shown = np.flatnonzero(present).tolist()
    if len(shown) > _SHOWN_LEVELS:
        return head
    return pd.concat([head, table.iloc[shown].set_axis([f"= {labels[i]}" for i in shown])])


def _of_numbers(
    values: Values, masses: Floats | None, quantiles: Sequence[float]
) -> dict[str, float]:
    """Describe the distribution that has these masses, without any correction of its sd."""
    known = ~np.isnan(values)
    numbers, masses = values[known].astype(np.float64), None if masses is None else masses[known]
    names = [f"{100 * p:.4g}%" for p in quantiles]
    if not numbers.size:
        return dict.fromkeys(["mean", "sd", "min", *names, "max"], np.nan)
    mean = np.average(numbers, weights=masses)
    cuts = np.quantile(numbers, quantiles, method="inverted_cdf", weights=masses)
    return {
        "mean": mean,
        "sd": np.sqrt(np.average((numbers - mean) ** 2, weights=masses)),
        "min": numbers.min(),
        **dict(zip(names, cuts, strict=True)),
        "max": numbers.max(),
    }


def _probabilities(quantiles: Any) -> list[float]:  # noqa: ANN401 - what users pass
    try:
        found = np.asarray(quantiles)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    kind, n_axes = found.dtype.kind, found.ndim
    if kind not in "iuf" or n_axes != 1 or not ((found >= 0) & (found <= 1)).all():
        raise InvalidOptionError(
            f"quantiles={quantiles!r} must be a sequence of numbers between 0 and 1."
        )
    return [float(p) for p in found]
