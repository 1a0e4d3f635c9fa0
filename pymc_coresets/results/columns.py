"""Columns of the rows: their values in all rows, and in those of a coreset."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.potentials.code_checks import lookups
from pymc_coresets.reading.observations import TERM_OF_ROW, Observations
from pymc_coresets.reading.pushdown import UNNAMED, RowArray

_MOST_CLASSES = 20

type Values = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Levels:
    """What the whole numbers of a column stand for.

    Parameters
    ----------
    labels : ndarray of shape (n_levels,)
        Of the levels, whose numbers count up from `start`.
    start : int
    """

    labels: Values
    start: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def totals(self, codes: Values, masses: Values | None) -> NDArray[np.float64]:
        """Add up the masses of the rows of each level; their number, without masses.

        Examples
        --------
        >>> Levels(np.array(["a", "b"])).totals(np.array([1, 1]), np.array([0.5, 2.0]))
        array([0. , 2.5])
        """
        known = ~np.isnan(codes)  # rows of other likelihood terms have none
        codes, masses = codes[known], None if masses is None else masses[known]
        numbers = codes.astype(np.int64) - self.start
        numbers[numbers < 0] += len(self)  # as NumPy and PyTensor count from the end
        found = np.bincount(numbers, masses, minlength=len(self))
        return found.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Column:
    """One number of each row: a covariate, an outcome, or the number of a level.

    Parameters
    ----------
    name : str
    chosen : ndarray of shape (size,)
        In the rows of the coreset.
    every : ndarray of shape (n_known,), optional
        In all rows, or in a sample of them; None where they are out of reach.
    levels : Levels, optional
        Where the numbers stand for levels.
    totals : ndarray of shape (n_levels,), optional
        Number of rows of each level, where that is known better than from `every`.
    extremes : tuple of float, optional
        Smallest and largest of all values, likewise.
    """

    name: str
    chosen: Values
    every: Values | None
    levels: Levels | None = None
    totals: NDArray[np.float64] | None = None
    extremes: tuple[float, float] | None = None

    def with_classes(self) -> "Column":
        """Return the same with levels, if it has whole numbers in a range of at most 20.

        Examples
        --------
        >>> Column("y", np.array([1, 2]), np.array([1, 2, 3])).with_classes().levels.labels
        array([1, 2, 3])
        """
        known = self.chosen if self.every is None else self.every
        if self.levels is not None or known.dtype.kind not in "iub" or not known.size:
            return self
        low, high = self.extremes or (int(known.min()), int(known.max()))
        return replace(self, levels=classes_between(int(low), int(high)))


@dataclass(frozen=True, eq=False)
class RowColumns:
    """All columns of the rows of a coreset, beside those of the rows that it stands for.

    Parameters
    ----------
    columns : tuple of Column
        With different names.
    weights : ndarray of shape (size,)
    masses : ndarray of shape (n_known,), optional
        Number of rows that each known one stands for; 1 by default.
    n_sampled : int, optional
        How many rows were drawn, where `every` holds a sample.
    """

    columns: tuple[Column, ...]
    weights: NDArray[np.float64]
    masses: NDArray[np.float64] | None = None
    n_sampled: int | None = None

    def named(self, names: Sequence[str]) -> list[Column]:
        """Return columns by name; all parts of an array by that of the array.

        Raises
        ------
        InvalidOptionError
            If there is none of a name, or no name.
        """
        known = ", ".join(repr(c.name) for c in self.columns) or "none"
        if not names:
            raise InvalidOptionError(f"columns={names!r}: name at least one of {known}.")
        found: dict[str, Column] = {}
        for name in names:
            parts = [c for c in self.columns if c.name == name or c.name.startswith(f"{name}[")]
            if not parts:
                raise InvalidOptionError(
                    f"columns: the rows have no column {name!r}. Choose among: {known}."
                )
            found |= {part.name: part for part in parts}
        return list(found.values())


def classes_between(low: int, high: int) -> Levels | None:
    """Return the classes of whole numbers in a range; None where there are more than 20.

    Examples
    --------
    >>> classes_between(1, 3).labels, classes_between(0, 100)
    (array([1, 2, 3]), None)
    """
    few = high - low < _MOST_CLASSES
    return Levels(np.arange(low, high + 1), start=low) if few else None


def flat_columns(
    name: str, chosen: Values, every: Values | None, labels: Sequence[Sequence[Any] | None] = ()
) -> Iterator[Column]:
    """Split an array with several numbers for each row into columns.

    Parameters
    ----------
    name : str
    chosen, every : ndarray
        With the rows along the first axis.
    labels : sequence
        Of the entries along each other axis; None where they are numbered.

    Examples
    --------
    >>> [c.name for c in flat_columns("x", np.ones((2, 2)), None, [["age", "dose"]])]
    ['x[age]', 'x[dose]']
    """
    if chosen.ndim == 1:
        yield Column(name, chosen, every)
        return
    given = [*labels, *[None] * chosen.ndim]
    for entry in np.ndindex(*chosen.shape[1:]):
        known = (str(i if at is None else at[i]) for i, at in zip(entry, given, strict=False))
        part = (slice(None), *entry)
        yield Column(
            f"{name}[{', '.join(known)}]", chosen[part], None if every is None else every[part]
        )


def levels_of_rows(observations: Observations) -> Mapping[int, tuple[str, Levels]]:
    """Find the row arrays that are indices of variables, as ``group`` in ``effect[group]``.

    Parameters
    ----------
    observations : Observations

    Returns
    -------
    mapping of int to (str, Levels)
        By the position in ``observations.rows``: the name of the column, and its levels.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model(coords={"shop": ["a", "b"]}) as model:
    ...     effect = pm.Normal("effect", dims="shop")
    ...     y = pm.Normal("y", effect[np.array([0, 1, 1])], 1.0, observed=np.ones(3))
    >>> [(name, levels)] = levels_of_rows(find_observations(model)).values()
    >>> name, levels.labels.tolist()
    ('shop', ['a', 'b'])
    """
    found = lookups(observations)
    levels: dict[int, tuple[str, Levels]] = {}
    for number, row in enumerate(observations.rows):
        if observations.sets and row.name == TERM_OF_ROW:
            levels[number] = row.name, Levels(np.array([s.names for s in observations.sets]))
        uses = [lookup for lookup in found if lookup.codes is row.placeholder]
        if not uses or row.values.ndim > 1:
            continue
        length, table = max(lookup.length for lookup in uses), uses[0].table
        dims = (d for lookup in uses for d in _dims_of_length(observations, lookup.table, length))
        dim = next(dims, None)
        labels = np.arange(length) if dim is None else level_labels(observations, dim, length)
        name = row.name if row.name != UNNAMED else dim or f"index of {table}"
        levels[number] = name, Levels(labels)
    return levels


def own_values(row: RowArray, values: np.ndarray, positions: np.ndarray) -> np.ndarray:
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


def level_labels(observations: Observations, dim: str, length: int) -> np.ndarray:
    """Return the labels of a dimension; numbers where it has none."""
    labels = observations.model.coords.get(dim)
    return np.arange(length) if labels is None else np.asarray(labels)


def _dims_of_length(observations: Observations, table: str, length: int) -> list[str]:
    dims, coords = observations.model.named_vars_to_dims.get(table, ()), observations.model.coords
    return [dim for dim in dims if dim is not None and len(coords.get(dim) or ()) == length]
