"""What a coreset shows of itself: facts in a few words, and its rows beside all rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.options import names_of
from pymc_coresets.potentials.kept_rows import arrays_of_dataset
from pymc_coresets.reading.observations import TERM_OF_ROW
from pymc_coresets.results.columns import (
    Column,
    Columns,
    Floats,
    cell_codes,
    columns_of_model,
    columns_of_rows,
    labels_of_dim,
    labels_of_lookups,
    named_columns,
    own_values,
)
from pymc_coresets.rows.passes import AbsentRows, RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.updates.coverage import OBJECTIVE_OF_PARTS
from pymc_coresets.weighted_rows import WeightedRows, chosen_rows, required_likelihood

_SHOWN_WEIGHTS = 5
_SHOWN_LEVELS = 20
_SHOWN_GROUPS = 6
_BLOCK_ROWS = 2**16
_MEASURES = ["all", "chosen", "weighted"]


def summarise_rows(
    coreset: WeightedRows, columns: str | Sequence[str] | None = None
) -> pd.DataFrame:
    """Summarise the chosen rows: how they differ from all rows, and how the weights correct that.

    Each quantity is computed three times: for all rows, for the chosen rows without their
    weights, and with them.  The chosen rows alone often lie far out, where they say most about
    the parameters.  With their weights they come closer to all rows, but need not match them
    (least of all beside a quadratic, which stands for most of what they say):
    what is matched is the log-likelihood.

    Costs one pass over the data; rows elsewhere (``rows=...``) are read once.

    Parameters
    ----------
    columns : str or sequence of str, optional
        Which columns to summarise; an array with several numbers for each row is one name.  By
        default all: the data containers along the observation dimension (also those that the
        likelihood does not use), the observed values, other arrays with one entry for each row,
        the indices by which variables are looked up, and the dimensions of cells.

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
        (name of a column)   ``mean``, ``sd``, ``min``, ``max``; of a column of levels, or of
                             whole numbers in a range of 20, ``levels`` (that have rows), ``in
                             these levels`` (rows in levels of which a row was chosen), and the
                             rows of each level, if there are at most 20
        ===================  ==================================================================

        Numbers of rows are sums of weights in the column ``weighted``.  ``all`` is NaN where
        all rows are out of reach, as after `merge` or reading without ``rows=...``.  Missing
        values are left out.

    Raises
    ------
    InvalidOptionError
        If there is no column of a name.
    CoresetError
        If the coreset was read without its model.

    Notes
    -----
    The effective number is that of Kish (1965), *Survey Sampling*.

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
    >>> float(table.loc[("y", "mean"), "all"])
    249.5
    """
    asked, weights = names_of("columns", columns), coreset.weights
    largest = np.argsort(-weights, kind="stable")[:_SHOWN_WEIGHTS]
    labels = row_labels(coreset, coreset.indices[largest])
    parts = {
        "rows": _row_counts(weights, coreset.n_observations, coreset.n_distinct),
        "largest weights": _table([(1, 1, weight) for weight in weights[largest]], labels),
    }
    measured = _measured(coreset, [asked] if isinstance(asked, str) else asked)
    for name in measured["chosen"]:
        parts[name] = described({measure: found[name] for measure, found in measured.items()})
    return pd.concat(parts, names=["part", "quantity"])


def described(parts: Mapping[str, Column]) -> pd.DataFrame:
    """Describe a column by each measure: its numbers, or how many rows have each label.

    Parameters
    ----------
    parts : mapping of str to Column
        ``all``, where that is known, ``chosen`` and ``weighted``.

    Examples
    --------
    >>> x, weights = np.array([1.0, 3.0]), np.array([3.0, 1.0])
    >>> parts = {"chosen": Column.of(x, np.ones(2)), "weighted": Column.of(x, weights)}
    >>> described(parts).loc["mean"].tolist()
    [nan, 2.0, 1.5]
    """
    if any(part.counts is None for part in parts.values()):
        numbers = {name: part.numbers for name, part in parts.items()}
        lines = ["mean", "sd", "min", "max"]
        return pd.DataFrame(numbers, index=lines, columns=_MEASURES, dtype=np.float64)
    counts = pd.DataFrame({name: part.counts for name, part in parts.items()}).fillna(0.0)
    table = counts[(counts > 0).any(axis=1)].reindex(columns=_MEASURES)
    covered = table["chosen"] > 0
    n_all = len(table) if "all" in parts else np.nan
    head = _table(
        [(n_all, covered.sum(), covered.sum()), table[covered].sum(skipna=False)],
        ["levels", "in these levels"],
    )
    if len(table) > _SHOWN_LEVELS:
        return head
    labels = parts["chosen"].labels
    shown = [i if labels is None else labels[i] for i in table.index.tolist()]
    return pd.concat([head, table.set_axis([f"= {label}" for label in shown])])


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


def effective_size(weights: Floats) -> float:
    """Return the number of rows of equal weights that are worth as much, by Kish's formula.

    Examples
    --------
    >>> effective_size(np.array([2.0, 2.0])), effective_size(np.array([1.0, 0.0]))
    (2.0, 1.0)
    """
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def _table(lines: Sequence[Sequence[float]], names: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(lines, index=names, columns=_MEASURES, dtype=np.float64)


def _row_counts(weights: Floats, n_observations: int, n_distinct: int) -> pd.DataFrame:
    size = len(weights)
    lines = {
        "number": (n_observations, size, weights.sum()),
        "distinct": (n_distinct, size, size),
        "effective": (n_observations, size, effective_size(weights)),
    }
    if n_distinct == n_observations:
        del lines["distinct"]
    return _table([*lines.values()], [*lines])


# -- one pass over the rows ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sums:
    """Adds up columns of all rows, see `Pass`."""

    columns: Columns
    names: Sequence[str]
    size: int

    def of(self, rows: Rows, masses: Floats) -> dict[str, Column]:
        values, labels = self.columns.of(rows), self.columns.labels
        return {name: Column.of(values[name], masses, labels.get(name)) for name in self.names}

    def begin(self) -> Callable[[Rows], dict[str, Column]]:
        return lambda rows: self.of(rows, rows.base_weights)

    def joined(self, parts: Iterable[dict[str, Column]]) -> dict[str, Column]:
        return reduce(lambda one, other: {n: one[n] + other[n] for n in one}, parts)


def _measured(coreset: WeightedRows, asked: Sequence[str] | None) -> dict[str, dict[str, Column]]:
    """Add up the columns of the chosen rows, with and without weights, and of all in reach."""
    loglik, kept = coreset.loglikelihood, coreset.data
    source: RowBlocks | None = None
    if kept is None:
        columns, source = columns_of_model(required_likelihood(coreset).observations)
        chosen = source.at(coreset.indices)
    elif loglik is None:
        arrays = arrays_of_dataset(kept)
        columns = Columns(list(arrays), {}, {})
        chosen = Rows(coreset.indices, coreset.weights, tuple(arrays.values()))
    else:
        columns, chosen = columns_of_rows(loglik.observations), chosen_rows(coreset)
        source = None if isinstance(loglik.source, AbsentRows) else loglik.source
    known = list(columns.of(chosen))
    names = known if asked is None else named_columns(known, asked)
    sums = _Sums(columns, names, _BLOCK_ROWS)
    found = {} if source is None else {"all": source.reduce(sums)}
    unweighted = sums.of(chosen, np.ones(len(chosen)))
    return found | {"chosen": unweighted, "weighted": sums.of(chosen, coreset.weights)}


# -- what is printed -------------------------------------------------------------------------------


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
    [largest] = row_labels(coreset, coreset.indices[[np.argmax(weights)]])
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
    for i, (name, labels) in labels_of_lookups(observations).items():
        if name != TERM_OF_ROW:
            codes = own_values(observations.rows[i], rows.arrays[i], rows.positions)
            covered = np.unique(codes[~np.isnan(codes)] % len(labels))
            found.append(f"{name} {len(covered):,} of {len(labels):,}")
    more = len(found) - _SHOWN_GROUPS
    return ", ".join([*found[:_SHOWN_GROUPS], *([f"and {more} more"] if more > 0 else [])])


def _divergence(coreset: WeightedRows) -> str:
    unmeasured = np.isnan(coreset.history.attrs.get(OBJECTIVE_OF_PARTS, 0.0))
    measured = np.isfinite(coreset.objective) and not unmeasured
    return f"about {coreset.objective:.3g} nats" if measured else ""


def _modes(coreset: WeightedRows) -> str:
    modes = None if coreset.certificate is None else coreset.certificate.modes
    return modes.words if modes is not None and modes.n_modes > 1 else ""
