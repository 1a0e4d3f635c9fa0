"""The rows of a coreset beside all rows, in one table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_coresets.options import names_of
from pymc_coresets.potentials.kept_rows import arrays_of_dataset
from pymc_coresets.results.columns import (
    Columns,
    Labels,
    Values,
    cell_codes,
    columns_of_model,
    columns_of_rows,
    labels_of_dim,
    named_columns,
)
from pymc_coresets.rows.passes import AbsentRows, RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.weighted_rows import WeightedRows, chosen_rows, required_likelihood

_MOST_CLASSES = (
    20  # whole numbers within a range of so many are counted, as classes of outcomes are
)
_SHOWN_WEIGHTS = 5
_SHOWN_LEVELS = 20
_BLOCK_ROWS = 2**16
_MEASURES = ["all", "chosen", "weighted"]

type Floats = NDArray[np.float64]


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
        "rows": _numbers_of_rows(weights, coreset.n_observations, coreset.n_distinct),
        "largest weights": _table([(1, 1, weight) for weight in weights[largest]], labels),
    }
    measured = _measured(coreset, [asked] if isinstance(asked, str) else asked)
    for name in measured["chosen"]:
        parts[name] = described({measure: found[name] for measure, found in measured.items()})
    return pd.concat(parts, names=["part", "quantity"])


@dataclass(frozen=True)
class Column:
    """What is added up of one column over some rows.

    Attributes
    ----------
    n_rows : float
        Sum of the rows' masses.
    mean, squares : float
        The mean, and the sum of squared differences from it.
    ends : (float, float)
        The smallest and the largest value.
    labels : sequence or None
        What the values are positions of.
    counts : pandas.Series or None
        The mass of each label, or whole number; None of numbers that are no classes.

    Examples
    --------
    >>> one = Column.of(np.array([1.0, 3.0]), np.ones(2))
    >>> both = one + Column.of(np.array([5.0, np.nan]), np.array([2.0, 1.0]))
    >>> both.numbers
    {'mean': 3.5, 'sd': 1.658, 'min': 1.0, 'max': 5.0}
    """

    n_rows: float
    mean: float
    squares: float
    ends: tuple[float, float]
    labels: Labels | None = None
    counts: pd.Series | None = None

    @classmethod
    def of(cls, values: Values, masses: Floats, labels: Labels | None = None) -> Self:
        """Add up some rows.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
            Numbers, or positions in `labels`, of which negative ones count from the end; NaN for
            none.
        masses : ndarray of shape (n_rows,)
            How many rows each stands for.
        labels : sequence, optional

        Examples
        --------
        >>> Column.of(np.array([1, -1, 0]), np.ones(3), ["a", "b"]).counts.to_dict()
        {0: 1.0, 1: 2.0}
        """
        known = ~np.isnan(values)
        x, masses = values[known].astype(np.float64), masses[known]
        n_rows = float(masses.sum())
        mean = float(masses @ x) / n_rows if n_rows else 0.0
        counts = None
        if labels is not None or values.dtype.kind in "iub":
            codes = x.astype(np.int64) if labels is None else x.astype(np.int64) % len(labels)
            counts = _few(pd.Series(masses).groupby(codes).sum(), labels)
        ends = float(x.min(initial=np.inf)), float(x.max(initial=-np.inf))
        return cls(n_rows, mean, float(masses @ (x - mean) ** 2), ends, labels, counts)

    def __add__(self, other: "Column") -> "Column":
        """Return the column of these rows and others (Chan, Golub and LeVeque 1983)."""
        n_rows, shift = self.n_rows + other.n_rows, other.mean - self.mean
        share = other.n_rows / n_rows if n_rows else 0.0
        counts = None
        if self.counts is not None and other.counts is not None:
            counts = _few(self.counts.add(other.counts, fill_value=0.0), self.labels)
        return Column(
            n_rows,
            mean=self.mean + share * shift,
            squares=self.squares + other.squares + self.n_rows * share * shift**2,
            ends=(min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])),
            labels=self.labels,
            counts=counts,
        )

    @property
    def numbers(self) -> dict[str, float]:
        """Describe the distribution of the masses, without any correction of its sd."""
        if not self.n_rows:
            return {}
        sd = (self.squares / self.n_rows) ** 0.5
        return {"mean": self.mean, "sd": sd, "min": self.ends[0], "max": self.ends[1]}


def _few(counts: pd.Series, labels: Labels | None) -> pd.Series | None:
    if labels is None and len(counts) and np.ptp(counts.index) >= _MOST_CLASSES:
        return None
    return counts


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
