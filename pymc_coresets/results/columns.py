"""The columns that rows have (containers, outcomes, lookups, axes of cells), and their sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pytensor.graph import ancestors

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.potentials.code_checks import lookups
from pymc_coresets.reading.folding import evaluate
from pymc_coresets.reading.observations import TERM_OF_ROW, Observations
from pymc_coresets.reading.pushdown import UNNAMED, RowArray
from pymc_coresets.reading.units.integral import CENTRE, FACTOR
from pymc_coresets.reading.user_model import data_of
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.values import Rows

#: Whole numbers within a range of so many are counted, as classes of outcomes are.
_MOST_CLASSES = 20

type Values = NDArray[Any]
type Floats = NDArray[np.float64]
type Labels = Sequence[Any] | Values


class Columns(NamedTuple):
    """How rows are split into columns, each of which has one number of a row.

    Parameters
    ----------
    names : sequence of str
        Of the rows' arrays.
    axes : mapping of str to sequence
        Labels of the entries along each axis of an array but the first; None where they are
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
    axes: Mapping[str, Sequence[Labels | None]]
    labels: Mapping[str, Labels]

    def of(self, rows: Rows) -> dict[str, Values]:
        """Return the columns of some rows."""
        found = {}
        for name, array in zip(self.names, rows.arrays, strict=True):
            given = [*self.axes.get(name, ()), *[None] * array.ndim]
            for entry in np.ndindex(*array.shape[1:]):
                pairs = zip(entry, given, strict=False)
                known = [str(i if at is None else at[i]) for i, at in pairs]
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
    positions = np.arange(observations.n_obs) if positions is None else positions
    codes = cell_codes(observations, positions)
    cells = codes if len(codes) > 1 else {}
    arrays, axes = ({}, {}) if observations.sets else _held(observations, codes, positions)
    labels = {dim: labels_of_dim(observations, dim) for dim in cells}
    found = labels_of_lookups(observations)
    unnamed = chain(["array"], map("array {}".format, count(1)))
    indices: dict[str, Values] = dict(cells)
    for number, row in enumerate(observations.rows):
        values = own_values(row, np.moveaxis(row.values, row.axis, 0), positions)
        if number not in found:
            # Containers are known; parameters are checked by truths, and nodes are no data.
            if row.name not in {*arrays, CENTRE, FACTOR} and row.values.dtype != bool:
                arrays[next(unnamed) if row.name == UNNAMED else row.name] = values
        elif row.name != UNNAMED or not cells:
            name, labels[name] = found[number]
            indices[name] = values
    arrays |= indices
    rows = InMemoryRows([*arrays.values()], positions=positions)
    return Columns(list(arrays), axes, labels), rows


def columns_of_rows(observations: Observations) -> Columns:
    """Return the columns of rows from elsewhere, of which a model holds a template."""
    model, names = observations.model, [row.name for row in observations.rows]
    dims = {name: model.named_vars_to_dims.get(name, ())[1:] for name in names}
    axes = {n: [dim and model.coords.get(dim) for dim in found] for n, found in dims.items()}
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


def labels_of_lookups(observations: Observations) -> dict[int, tuple[str, Labels]]:
    """Find the row arrays that are indices of variables, as ``group`` in ``effect[group]``.

    Parameters
    ----------
    observations : Observations

    Returns
    -------
    dict of int to (str, sequence)
        By the position in ``observations.rows``: the name of the column, and its labels.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"shop": ["a", "b"]}) as model:
    ...     effect = pm.Normal("effect", dims="shop")
    ...     y = pm.Normal("y", effect[np.array([0, 1, 1])], 1.0, observed=np.ones(3))
    >>> labels_of_lookups(find_observations(model))
    {0: ('shop', ('a', 'b'))}
    """
    model, found = observations.model, lookups(observations)
    labels: dict[int, tuple[str, Labels]] = {}
    for number, row in enumerate(observations.rows):
        if observations.sets and row.name == TERM_OF_ROW:
            labels[number] = row.name, [s.names for s in observations.sets]
        uses = [lookup for lookup in found if lookup.codes is row.placeholder]
        if not uses or row.values.ndim > 1:
            continue
        length = max(lookup.length for lookup in uses)
        dims = [dim for lookup in uses for dim in model.named_vars_to_dims.get(lookup.table, ())]
        dim = next((dim for dim in dims if len(model.coords.get(dim) or ()) == length), None)
        own = dim or f"index of {uses[0].table}"
        name = own if row.name == UNNAMED else row.name
        labels[number] = name, range(length) if dim is None else model.coords[dim]
    return labels


def own_values(row: RowArray, values: Values, positions: Values) -> Values:
    """Return the values of a row array, with NaN for rows of other likelihood terms.

    Parameters
    ----------
    row : RowArray
    values : ndarray
        For some rows, which lie along the first axis.
    positions : ndarray of int
        Of these rows.
    """
    if row.own is None:
        return values
    start, stop = row.own
    own = (positions >= start) & (positions < stop)
    return np.where(own.reshape(-1, *[1] * (values.ndim - 1)), values, np.nan)


# -- rows that the model holds ---------------------------------------------------------------------


def cell_codes(observations: Observations, positions: Values) -> dict[str, Values]:
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


def labels_of_dim(observations: Observations, dim: str) -> Labels:
    """Return the labels of a dimension; numbers where it has none."""
    model = observations.model
    return model.coords.get(dim) or range(int(evaluate([model.dim_lengths[dim]])[0]))


def _held(
    observations: Observations, codes: Mapping[str, Values], positions: Values
) -> tuple[dict[str, Values], dict[str, list[Labels | None]]]:
    """Return containers and outcomes by rows, and the labels of their other axes."""
    model, n_obs = observations.model, observations.n_obs
    sources = [row.source for row in observations.rows]
    used = {variable.name for variable in ancestors(sources) if variable.name}
    arrays: dict[str, Values] = {}
    axes: dict[str, list[Labels | None]] = {}

    def add(name: str, array: Values, axis: int = 0) -> None:
        dims = [*(model.named_vars_to_dims.get(name) or ()), *[None] * array.ndim][: array.ndim]
        at: dict[int, Any] = {dims.index(dim): rows for dim, rows in codes.items() if dim in dims}
        if not at:
            if any(dims) or not array.ndim or name not in used:
                return
            length = array.shape[axis]
            if length != n_obs and (observations.positions is None or length <= positions[-1]):
                return
            at = {axis: slice(None) if length == n_obs else positions}  # or the rows that are left
        arrays[name] = np.moveaxis(array, [*at], range(len(at)))[tuple(at.values())]
        axes[name] = [dim and model.coords.get(dim) for i, dim in enumerate(dims) if i not in at]

    for variable in observations.held.live.data_vars:  # in the user's order
        add(variable.name, data_of(model[variable.name]))
    for term in () if observations.units else observations.terms:  # rows of units are no columns
        value = model.rvs_to_values.get(model[term.name])
        if value is not None and arrays.keys().isdisjoint(v.name for v in ancestors([value])):
            used.add(term.name)
            [array] = evaluate([value])
            add(term.name, array, term.axis)
    return arrays, axes


# -- what is added up of a column ------------------------------------------------------------------


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
