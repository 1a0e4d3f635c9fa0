"""What a coreset says of itself: its rows beside all rows in one table, and a few words."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import generator, names_of
from pymc_coresets.reading.observations import TERM_OF_ROW
from pymc_coresets.results.columns import (
    Column,
    RowColumns,
    level_labels,
    levels_of_rows,
    own_values,
)
from pymc_coresets.results.kept_columns import columns_of_kept
from pymc_coresets.results.model_columns import cell_codes, columns_of_model
from pymc_coresets.updates.new_rows import OBJECTIVE_OF_PARTS
from pymc_coresets.weighted_rows import WeightedRows, chosen_rows, required_likelihood

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SHOWN_WEIGHTS = 5
_SHOWN_LEVELS = 20
_MEASURES = ("all", "chosen", "weighted")

type _Lines = Iterator[tuple[str, Sequence[float]]]
type Floats = NDArray[np.float64]
_SHOWN_GROUPS = 6


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
    names, probabilities = names_of("columns", columns), _probabilities(quantiles)
    rng = generator(random_seed)
    if coreset.data is not None:
        found = columns_of_kept(coreset.loglikelihood, coreset.data, coreset.weights, rng=rng)
    else:
        held = columns_of_model(required_likelihood(coreset).observations, coreset.indices)
        found = RowColumns(held, coreset.weights)
    named = [names] if isinstance(names, str) else names
    return summary_table(
        found,
        found.columns if named is None else found.named(named),
        labels=row_labels(coreset),
        n_observations=coreset.n_observations,
        n_distinct=coreset.n_distinct,
        quantiles=probabilities,
    )


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
    levels, totals = column.levels, column.totals
    assert levels is not None  # or else it is one of numbers
    if totals is None and column.every is not None:
        totals = levels.totals(column.every, found.masses)
    known = totals is not None
    rows = np.full(len(levels), np.nan) if totals is None else totals
    chosen, weight = (levels.totals(column.chosen, some) for some in (None, found.weights))
    covered = chosen > 0
    present = covered | (rows > 0)
    n_present, n_covered = float(present.sum()), float(covered.sum())
    yield "levels", (n_present if known else np.nan, n_covered, n_covered)
    yield "in these levels", (rows[covered].sum() if known else np.nan, chosen.sum(), weight.sum())
    if n_present <= _SHOWN_LEVELS:
        for i in np.flatnonzero(present):
            yield f"= {levels.labels[i]}", (rows[i], chosen[i], weight[i])


def row_labels(coreset: WeightedRows) -> list[str]:
    """Labels of the chosen rows: their positions, or the labels of their cells."""
    if coreset.data is None and coreset.loglikelihood is not None:
        observations = coreset.loglikelihood.observations
        if observations.sets:
            return [observations.place(position) for position in coreset.indices.tolist()]
        if len(observations.dims) > 1:
            codes = cell_codes(observations, coreset.indices)
            labels = [
                level_labels(observations, dim, int(max(c) + 1))[c] for dim, c in codes.items()
            ]
            return [", ".join(map(str, pair)) for pair in zip(*labels, strict=True)]
    return [f"row {position}" for position in coreset.indices]


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


def facts_of(coreset: WeightedRows) -> dict[str, str]:
    """Return what is shown of a coreset, by name."""
    found = {
        "rows": _numbers_of_rows(coreset),
        "integrated": _integrated(coreset),
        "quadratic": ""
        if coreset.quadratic is None
        else f"of {len(coreset.quadratic.names):,} coefficients, for all rows",
        "weights": _weights(coreset),
        "terms": _terms(coreset),
        "groups": _groups(coreset),
        "method": coreset.method,
        "weighting": coreset.weighting,
        "divergence": _divergence(coreset),
        "modes": _modes(coreset),
        "status": coreset.status,
    }
    always = ("method", "weighting", "status")
    return {name: words for name, words in found.items() if words or name in always}


def _numbers_of_rows(coreset: WeightedRows) -> str:
    rows = f"{len(coreset.indices):,} of {coreset.n_observations:,}"
    merged = coreset.n_distinct < coreset.n_observations
    rows = f"{rows} ({coreset.n_distinct:,} distinct)" if merged else rows
    units = None if coreset.loglikelihood is None else coreset.loglikelihood.observations.units
    if units is None:
        return rows
    chosen = chosen_rows(coreset).n_members
    return f"{chosen:,} of {len(units.positions):,}, all those of {rows} units"


def _integrated(coreset: WeightedRows) -> str:
    """Say which variables were integrated out, by how many nodes, and how far these are off."""
    units = None if coreset.loglikelihood is None else coreset.loglikelihood.observations.units
    if units is None:
        return ""
    names = ", ".join(units.integrated)
    return f"{names}, by {units.n_nodes} nodes for each unit (error {units.node_error:.1g} nats)"


def _weights(coreset: WeightedRows) -> str:
    weights = coreset.weights
    if not len(weights):
        return ""
    lowest, highest = f"{weights.min():,.4g}", f"{weights.max():,.4g}"
    if lowest == highest:
        return f"{lowest} each"
    largest = row_labels(coreset)[int(np.argmax(weights))]
    return f"{lowest} to {highest} ({largest}), worth {effective_size(weights):,.0f} equal ones"


def _terms(coreset: WeightedRows) -> str:
    """Say how many rows each likelihood term has, and how many are chosen, where these differ."""
    sets = () if coreset.loglikelihood is None else coreset.loglikelihood.observations.sets
    numbers = [np.searchsorted(coreset.indices, [s.start, s.stop]) for s in sets]
    return ", ".join(
        f"{stop - start:,} of {s.stop - s.start:,} of {s.names}"
        for (start, stop), s in zip(numbers, sets, strict=True)
    )


def _groups(coreset: WeightedRows) -> str:
    """Say how many levels have a chosen row, for each index by which variables are looked up."""
    if coreset.loglikelihood is None:
        return ""
    observations, rows = coreset.loglikelihood.observations, chosen_rows(coreset)
    found = []
    for i, (name, levels) in levels_of_rows(observations).items():
        if name != TERM_OF_ROW:
            codes = own_values(observations.rows[i], rows.arrays[i], rows.positions)
            covered = np.count_nonzero(levels.totals(codes.ravel(), None))
            found.append(f"{name} {covered:,} of {len(levels):,}")
    more = len(found) - _SHOWN_GROUPS
    return ", ".join([*found[:_SHOWN_GROUPS], *([f"and {more} more"] if more > 0 else [])])


def _divergence(coreset: WeightedRows) -> str:
    unmeasured = np.isnan(coreset.history.attrs.get(OBJECTIVE_OF_PARTS, 0.0))
    if unmeasured or not np.isfinite(coreset.objective):
        return ""
    return f"about {coreset.objective:.3g} nats"


def _modes(coreset: WeightedRows) -> str:
    modes = None if coreset.certificate is None else coreset.certificate.modes
    return modes.words if modes is not None and modes.n_modes > 1 else ""
