"""A table that compares the rows of a coreset with all rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, count
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pytensor.graph import ancestors

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import names_of
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.known import without_views
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import UNNAMED, RowArray
from pymc_coresets.reading.units.integral import DERIVED
from pymc_coresets.reading.user_model import data_of
from pymc_coresets.results.facts import (
    Floats,
    Labels,
    Values,
    cell_codes,
    effective_size,
    labels_of_dim,
    labels_of_lookups,
    own_values,
    row_labels,
)
from pymc_coresets.rowlogp.kept_rows import arrays_of_dataset
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import AbsentRows, BlockPass, RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.weighted_rows import WeightedRows, chosen_rows, required_likelihood

_BLOCK_ROWS = 2**16
_MEASURES = ["all", "chosen", "weighted"]


# -- columns ---------------------------------------------------------------------------------------


class Columns(NamedTuple):
    """How rows are split into columns, each of which has one number of a row.

    Parameters
    ----------
    names : sequence of str
        Of the rows' arrays.
    axes : mapping of str to sequence
        Labels of the entries along each axis of an array but the first; those of other arrays are
        numbered.
    labels : mapping of str to sequence
        Of the columns that hold positions in them.

    Examples
    --------
    >>> columns = Columns(["x", "y"], {"x": [["age", "dose"]]}, {})
    >>> list(columns.of(Rows(np.arange(3), np.ones(3), (np.ones((3, 2)), np.ones(3)))))
    ['x[age]', 'x[dose]', 'y']
    """

    names: Sequence[str]
    axes: Mapping[str, Sequence[Labels]]
    labels: Mapping[str, Labels]

    def of(self, rows: Rows) -> dict[str, Values]:
        """Return the columns of some rows."""
        found = {}
        for name, array in zip(self.names, rows.arrays, strict=True):
            named = self.axes.get(name, ())
            given = [*named, *map(range, array.shape[1 + len(named) :])]
            for entry in np.ndindex(*array.shape[1:]):
                known = [str(at[i]) for i, at in zip(entry, given, strict=True)]
                column = f"{name}[{', '.join(known)}]" if known else name
                found[column] = array[(slice(None), *entry)]
        return found


def columns_of_model(observations: Observations) -> tuple[Columns, InMemoryRows]:
    """Return the columns of rows that the model itself holds, and these rows.

    These are its data containers along the observation dimension, whether the likelihood uses them
    or not, the observed values, other arrays that are indexed by the observation, the indices by
    which variables are looked up, and the dimensions of cells.

    Parameters
    ----------
    observations : Observations

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", np.array([2.0, 3.0, 5.0]))
    ...     y = pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(3))
    >>> columns, rows = columns_of_model(find_observations(model))
    >>> list(columns.of(rows.all))
    ['x', 'y']
    """
    positions = observations.positions
    codes = cell_codes(observations, positions)
    cells = codes if len(codes) > 1 else {}
    arrays, axes = ({}, {}) if observations.sets else _held(observations, codes, positions)
    labels = {dim: labels_of_dim(observations, dim) for dim in cells}
    found = labels_of_lookups(observations)
    unnamed = chain(["array"], map("array {}".format, count(1)))
    indices: dict[str, Values] = dict(cells)
    for number, row in enumerate(observations.rows):
        numbers = np.arange(observations.n_obs)
        values = own_values(row, np.moveaxis(row.values, row.axis, 0), numbers)
        if number not in found:
            # Containers are known; parameters are checked by truths, and nodes are not data.
            if row.name in {*arrays, *DERIVED} or row.values.dtype == bool:
                continue
            terms = _coefficients(observations, row) if row.name == UNNAMED else []
            if terms and arrays.keys().isdisjoint(terms):
                arrays |= dict(zip(terms, np.moveaxis(values, 1, 0), strict=True))
            else:
                arrays[next(unnamed) if row.name == UNNAMED else row.name] = values
        elif row.name != UNNAMED or not cells:
            name, labels[name] = found[number]
            indices[name] = values
    arrays |= indices
    rows = InMemoryRows([*arrays.values()], positions=positions)
    return Columns(list(arrays), axes, labels), rows


def columns_of_rows(observations: Observations) -> Columns:
    """Return the columns of rows from elsewhere, of which a model holds prototypes."""
    names, axes = [row.name for row in observations.rows], {}
    for row in observations.rows:
        lengths = np.moveaxis(row.values, row.axis, 0).shape[1:]
        dims = observations.model.named_vars_to_dims.get(row.name, ())[1:]
        axes[row.name] = [
            labels_of_dim(observations, dim) if dim else range(length)
            for dim, length in zip(dims, lengths, strict=False)  # others have numbers
        ]
    return Columns(names, axes, dict(labels_of_lookups(observations).values()))


def named_columns(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return which columns have some names; all parts of an array have that of the array.

    Raises
    ------
    InvalidOptionError
        If there is none of a name, or no name.

    Examples
    --------
    >>> named_columns(["x[age]", "x[dose]", "y"], ["x"])
    ['x[age]', 'x[dose]']
    """
    known = ", ".join(map(repr, columns)) or "none"
    if not names:
        raise InvalidOptionError(f"columns={names!r}: name at least one of {known}.")
    found: list[str] = []
    for name in names:
        parts = [n for n in columns if n == name or n.startswith(f"{name}[")]
        if not parts:
            raise InvalidOptionError(
                f"columns: the rows have no column {name!r}. Choose among: {known}."
            )
        found += [part for part in parts if part not in found]
    return found


def _coefficients(observations: Observations, row: RowArray) -> list[str]:
    """Return the names of the coefficients that the columns of a matrix are multiplied by.

    Bambi joins a model's terms into one such vector, and gives each the name that its column has in
    the formula.

    Returns
    -------
    list of str
        One for each column; none if a column's coefficient has no name of its own.
    """
    model = observations.model
    names: dict[Any, str] = {v: n for n, v in observations.parameters.items()}
    for product in ancestors([observations.loglik]):
        if not isinstance(ops.op_of(product), ops.Dot):
            continue
        matrix, vector = map(without_views, product.owner.inputs)
        if matrix is not row.placeholder or not isinstance(ops.op_of(vector), ops.Join):
            continue
        found: list[str] = []
        for term in map(without_views, vector.owner.inputs):
            if term not in names:
                return []
            name = names[term]
            dims = model.named_vars_to_dims.get(name, ())
            labels = [labels_of_dim(observations, dim) for dim in dims]
            found += [f"{name}[{label}]" for label in labels[0]] if labels else [name]
        return found if len(set(found)) == row.values.shape[1] else []
    return []


# -- rows that the model holds ---------------------------------------------------------------------


def _held(
    observations: Observations, codes: Mapping[str, Values], positions: Values
) -> tuple[dict[str, Values], dict[str, list[Labels]]]:
    """Return containers and outcomes by rows, and the labels of their other axes."""
    model, n_obs = observations.model, observations.n_obs
    sources = [row.source for row in observations.rows]
    used = {variable.name for variable in ancestors(sources) if variable.name}
    arrays: dict[str, Values] = {}
    axes: dict[str, list[Labels]] = {}

    def add(name: str, array: Values, axis: int = 0) -> None:
        dims = [*(model.named_vars_to_dims.get(name) or ()), *[None] * array.ndim][: array.ndim]
        at: dict[int, Any] = {dims.index(dim): rows for dim, rows in codes.items() if dim in dims}
        if not at:
            if any(dims) or not array.ndim or name not in used:
                return
            length = array.shape[axis]
            if length != n_obs and (observations.is_whole or length <= positions[-1]):
                return
            at = {axis: slice(None) if length == n_obs else positions}  # or the rows that are left
        arrays[name] = np.moveaxis(array, [*at], range(len(at)))[tuple(at.values())]
        axes[name] = [
            labels_of_dim(observations, dim) if dim else range(array.shape[i])
            for i, dim in enumerate(dims)
            if i not in at
        ]

    for variable in observations.snapshot.live.data_vars:  # in the user's order
        add(variable.name, data_of(model[variable.name]))
    # The rows of units are no columns.
    for term in () if observations.integrated else observations.terms:
        value = model.rvs_to_values.get(model[term.name])
        if value is not None and arrays.keys().isdisjoint(v.name for v in ancestors([value])):
            used.add(term.name)
            [array] = values_of([value])
            add(term.name, array, term.axis)
    return arrays, axes


# -- what is added up of a column ------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnSums:
    """Sums of one column over some rows.

    Attributes
    ----------
    n_rows : float
        Sum of the rows' masses.
    mean, squares : float
        The mean, and the sum of squared differences from it.
    ends : (float, float)
        The smallest and the largest value.

    Examples
    --------
    >>> one = ColumnSums.of(np.array([1.0, 3.0]), np.ones(2))
    >>> both = one + ColumnSums.of(np.array([5.0, np.nan]), np.array([2.0, 1.0]))
    >>> both.numbers
    {'mean': 3.5, 'sd': 1.658, 'min': 1.0, 'max': 5.0}
    """

    n_rows: float
    mean: float
    squares: float
    ends: tuple[float, float]

    @classmethod
    def of(cls, values: Values, masses: Floats, labels: Labels | None = None) -> "ColumnSums":
        """Add up some rows; of positions, and whole numbers that may be classes, a `ClassSums`.

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
        >>> ColumnSums.of(np.array([1, -1, 0]), np.ones(3), ["a", "b"]).counts.to_dict()
        {0: 1.0, 1: 2.0}
        """
        known = ~np.isnan(values)
        x, masses = values[known].astype(np.float64), masses[known]
        n_rows = float(masses.sum())
        mean = float(masses @ x) / n_rows if n_rows else 0.0
        ends = float(x.min(initial=np.inf)), float(x.max(initial=-np.inf))
        numbers = ColumnSums(n_rows, mean, float(masses @ (x - mean) ** 2), ends)
        if labels is not None:
            counts = pd.Series(masses).groupby(x.astype(np.int64) % len(labels)).sum()
            return numbers.by_class(counts, partial(getitem, labels), np.inf)
        if values.dtype.kind not in "iub":
            return numbers
        # Whole numbers within a range of 20 are counted, as classes of outcomes are.
        return numbers.by_class(pd.Series(masses).groupby(x.astype(np.int64)).sum(), int, 20)

    def by_class(
        self, counts: pd.Series, label_of: Callable[[int], object], below: float
    ) -> "ColumnSums":
        """Return the same with the mass of each class, if their numbers lie close enough."""
        if len(counts) and np.ptp(counts.index) >= below:
            return self
        own = (self.n_rows, self.mean, self.squares, self.ends)
        return ClassSums(*own, counts, label_of, below)

    def __add__(self, other: "ColumnSums") -> "ColumnSums":
        """Return the column of these rows and others (Chan, Golub and LeVeque 1983)."""
        n_rows, shift = self.n_rows + other.n_rows, other.mean - self.mean
        share = other.n_rows / n_rows if n_rows else 0.0
        return ColumnSums(
            n_rows,
            mean=self.mean + share * shift,
            squares=self.squares + other.squares + self.n_rows * share * shift**2,
            ends=(min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])),
        )

    @property
    def numbers(self) -> dict[str, float]:
        """Describe the distribution of the masses, without any correction of its sd."""
        if not self.n_rows:
            return {}
        sd = (self.squares / self.n_rows) ** 0.5
        return {"mean": self.mean, "sd": sd, "min": self.ends[0], "max": self.ends[1]}


@dataclass(frozen=True)
class ClassSums(ColumnSums):
    """Sums of a column of classes.

    Attributes
    ----------
    counts : pandas.Series
        The mass of each class, by its number.
    label_of : callable
        Returns the label of a number.
    below : float
        Range of numbers from which on they are no classes.
    """

    counts: pd.Series
    label_of: Callable[[int], object]
    below: float

    def __add__(self, other: ColumnSums) -> ColumnSums:
        """Return the column of these rows and others."""
        numbers = super().__add__(other)
        if not isinstance(other, ClassSums):
            return numbers
        counts = self.counts.add(other.counts, fill_value=0.0)
        return numbers.by_class(counts, self.label_of, self.below)


# -- the table -------------------------------------------------------------------------------------


def summarise_rows(
    coreset: WeightedRows, columns: str | Sequence[str] | None = None
) -> "SummaryTable":
    """Compare the chosen rows with all rows, see `Coreset.summary`."""
    asked, weights = names_of("columns", columns), coreset.weights
    largest = np.argsort(-weights, kind="stable")[:5]
    labels = row_labels(coreset, coreset.indices[largest])
    parts = {
        "rows": _row_counts(weights, coreset.n_observations, coreset.n_distinct),
        "largest weights": _table([(1, 1, weight) for weight in weights[largest]], labels),
    }
    measured = _measured(coreset, [asked] if isinstance(asked, str) else asked)
    for name in measured["chosen"]:
        parts[name] = described({measure: found[name] for measure, found in measured.items()})
    return SummaryTable(pd.concat(parts, names=["part", "quantity"]))


class SummaryTable(pd.DataFrame):  # type: ignore[misc]  # pandas has no types
    """A table of floats that prints whole numbers whole, and four digits of others.

    Differences below 1e-12 are rounding errors, and are not printed.

    Results computed from it are plain DataFrames.

    Examples
    --------
    >>> SummaryTable({"all": [20000.0, 0.123456], "weighted": [20398.2049, -3e-17]})
          all   weighted
    0  20,000   20,398.2
    1  0.1235          0
    """

    def __repr__(self) -> str:
        # Commas stand between thousands: columns need two spaces between them.
        text: str = self.to_string(float_format=lambda value: f" {_in_few_digits(value)}")
        return text

    def _repr_html_(self) -> str:
        page: str = self.to_html(float_format=_in_few_digits)
        return page


def _in_few_digits(value: float) -> str:
    if abs(value - round(value)) < 1e-12:
        return f"{round(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1_000 else f"{value:.4g}"


def described(parts: Mapping[str, ColumnSums]) -> pd.DataFrame:
    """Describe a column by each measure: its numbers, or how many rows have each label.

    Parameters
    ----------
    parts : mapping of str to ColumnSums
        ``all``, where that is known, ``chosen`` and ``weighted``.

    Examples
    --------
    >>> x, weights = np.array([1.0, 3.0]), np.array([3.0, 1.0])
    >>> parts = {"chosen": ColumnSums.of(x, np.ones(2)), "weighted": ColumnSums.of(x, weights)}
    >>> described(parts).loc["mean"].tolist()
    [nan, 2.0, 1.5]
    """
    classes = {name: part for name, part in parts.items() if isinstance(part, ClassSums)}
    if len(classes) < len(parts):
        numbers = {name: part.numbers for name, part in parts.items()}
        lines = ["mean", "sd", "min", "max"]
        return pd.DataFrame(numbers, index=lines, columns=_MEASURES, dtype=np.float64)
    counts = pd.DataFrame({name: part.counts for name, part in classes.items()}).fillna(0.0)
    table = counts[(counts > 0).any(axis=1)].reindex(columns=_MEASURES)
    covered = table["chosen"] > 0
    n_all = len(table) if "all" in parts else np.nan
    head = _table(
        [(n_all, covered.sum(), covered.sum()), table[covered].sum(skipna=False)],
        ["levels", "in these levels"],
    )
    if len(table) > 20:
        return head
    shown = map(classes["chosen"].label_of, table.index.tolist())
    return pd.concat([head, table.set_axis([f"= {label}" for label in shown])])


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


def _sums(columns: Columns, names: Sequence[str], rows: Rows) -> dict[str, ColumnSums]:
    """Add up columns of some rows, with their case weights."""
    values, labels = columns.of(rows), columns.labels
    return {
        name: ColumnSums.of(values[name], rows.case_weights, labels.get(name)) for name in names
    }


def _joined(parts: Iterable[dict[str, ColumnSums]]) -> dict[str, ColumnSums]:
    return reduce(lambda one, other: {n: one[n] + other[n] for n in one}, parts)


def _measured(
    coreset: WeightedRows, asked: Sequence[str] | None
) -> dict[str, dict[str, ColumnSums]]:
    """Add up the columns of the chosen rows, with and without weights, and of all in reach."""
    loglik, kept = coreset.loglikelihood, coreset.data
    every: dict[str, RowBlocks] = {}  # all rows, if they are in reach
    if kept is None:
        columns, held = columns_of_model(required_likelihood(coreset).observations)
        chosen, every = held.at(coreset.indices), {"all": held}
    elif loglik is None:
        arrays = arrays_of_dataset(kept)
        columns = Columns(list(arrays), {}, {})
        chosen = Rows(coreset.indices, coreset.weights, tuple(arrays.values()))
    else:
        columns, chosen = columns_of_rows(loglik.observations), chosen_rows(coreset)
        if not isinstance(loglik.source, AbsentRows):
            every = {"all": loglik.source}
    known = list(columns.of(chosen))
    names = known if asked is None else named_columns(known, asked)
    sums = partial(_sums, columns, names)
    weights = {"chosen": np.ones(len(chosen)), "weighted": coreset.weights}
    found = {part: sums(replace(chosen, case_weights=w)) for part, w in weights.items()}
    work = BlockPass.of(_BLOCK_ROWS, sums, _joined)
    return {part: source.reduce(work) for part, source in every.items()} | found
