"""Columns of the rows: numbers, or codes of labels, by name."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.potentials.code_checks import lookups
from pymc_coresets.reading.observations import TERM_OF_ROW, Observations
from pymc_coresets.reading.pushdown import UNNAMED, RowArray

#: Whole numbers within a range of at most so many are counted one by one, as classes of outcomes
#: are; of more, quantiles say more than a list.
MOST_CLASSES = 20

type Values = NDArray[Any]
type Labels = Sequence[Any] | Values
type Measure = tuple[slice | Values, NDArray[np.float64] | None]


class Column(NamedTuple):
    """One number of each row: a covariate, an outcome, or the code of a label.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        With labels, positions in these; -1 for none.
    labels : sequence, optional
    """

    values: Values
    labels: Labels | None = None

    @classmethod
    def of(cls, codes: Values, labels: Labels | None) -> Self:
        """Return the column of some numbers or codes.

        Parameters
        ----------
        codes : ndarray of shape (n_rows,)
            Numbers, if there are no labels; values in `labels`, if these are a range; or else
            positions there.  Negative positions count from the end, as in NumPy and PyTensor; NaN
            for none.
        labels : sequence or None

        Examples
        --------
        >>> Column.of(np.array([1.0, -1.0, np.nan]), ["a", "b", "c"]).values
        array([ 1,  2, -1])
        >>> Column.of(np.array([3, 5]), range(3, 6)).values
        array([0, 2])
        """
        if labels is None:
            return cls(codes)
        start = labels.start if isinstance(labels, range) else 0
        positions = (codes.astype(np.float64) - start) % max(len(labels), 1)
        return cls(np.nan_to_num(positions, nan=-1.0).astype(np.int64), labels)

    def at(self, rows: slice | Values) -> Self:
        """Return the column of some of the rows."""
        return self._replace(values=self.values[rows])

    def counts(self, masses: Values | None = None) -> NDArray[np.float64]:
        """Add up the masses of the rows of each label; their number, without masses.

        Examples
        --------
        >>> Column(np.array([1, 1, -1]), ["a", "b"]).counts(np.array([0.5, 2.0, 1.0]))
        array([0. , 2.5])
        """
        assert self.labels is not None  # or else there is nothing to count
        known = self.values >= 0
        masses = None if masses is None else masses[known]
        found = np.bincount(self.values[known], masses, minlength=len(self.labels))
        return found.astype(np.float64)


def named_columns(columns: Mapping[str, Column], names: Sequence[str]) -> dict[str, Column]:
    """Return columns by name; all parts of an array by that of the array.

    Raises
    ------
    InvalidOptionError
        If there is none of a name, or no name.
    """
    known = ", ".join(map(repr, columns)) or "none"
    if not names:
        raise InvalidOptionError(f"columns={names!r}: name at least one of {known}.")
    found: dict[str, Column] = {}
    for name in names:
        parts = {n: c for n, c in columns.items() if n == name or n.startswith(f"{name}[")}
        if not parts:
            raise InvalidOptionError(
                f"columns: the rows have no column {name!r}. Choose among: {known}."
            )
        found |= parts
    return found


class MeasuredColumns(NamedTuple):
    """Columns of some rows, and the distributions over these rows that are summarised.

    Parameters
    ----------
    columns : mapping of str to Column
    measures : mapping of str to (slice or ndarray of int, ndarray or None)
        Which of the rows, and how many each of these stands for; None: one.
    exact : mapping of str to ndarray
        Of the measure ``all``, where that is a sample: the number of rows of each label, or the
        smallest and the largest value.
    n_sampled : int, optional
        How many rows were drawn for it.
    """

    columns: Mapping[str, Column]
    measures: Mapping[str, Measure]
    exact: Mapping[str, Values] = MappingProxyType({})
    n_sampled: int | None = None


def classes(values: Values) -> range | None:
    """Return the range of whole numbers that lie in a small one.

    Examples
    --------
    >>> classes(np.array([3, 1])), classes(np.array([0, 99])), classes(np.array([0.0, 1.0]))
    (range(1, 4), None, None)
    """
    if values.dtype.kind not in "iub" or not values.size:
        return None
    low, high = int(values.min()), int(values.max())
    return range(low, high + 1) if high - low < MOST_CLASSES else None


def flat_columns(
    arrays: Mapping[str, Values], axes: Mapping[str, Sequence[Labels | None]] | None = None
) -> dict[str, Values]:
    """Split arrays with several numbers for each row into columns.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        With the rows along the first axis.
    axes : mapping of str to sequence, optional
        Labels of the entries along each other axis; None where they are numbered.

    Examples
    --------
    >>> list(flat_columns({"x": np.ones((2, 2)), "y": np.ones(2)}, {"x": [["age", "dose"]]}))
    ['x[age]', 'x[dose]', 'y']
    """
    found = {}
    for name, array in arrays.items():
        given = [*(axes or {}).get(name, ()), *[None] * array.ndim]
        for entry in np.ndindex(*array.shape[1:]):
            known = [str(i if at is None else at[i]) for i, at in zip(entry, given, strict=False)]
            column = f"{name}[{', '.join(known)}]" if known else name
            found[column] = array[(slice(None), *entry)]
    return found


def columns_of(
    arrays: Mapping[str, Values], labels: Mapping[str, Labels | None] | None = None
) -> dict[str, Column]:
    """Return columns with labels, where they have any, or are whole numbers of a small range.

    Parameters
    ----------
    arrays : mapping of str to ndarray of shape (n_rows,)
    labels : mapping of str to sequence or None, optional
        Of columns for which this is known.

    Examples
    --------
    >>> found = columns_of({"y": np.array([2, 3]), "x": np.ones(2)})
    >>> found["y"].labels, found["x"].labels
    (range(2, 4), None)
    """
    known = {name: classes(array) for name, array in arrays.items()} | dict(labels or {})
    return {name: Column.of(array, known[name]) for name, array in arrays.items()}


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
