"""Rows for the residual of each level of a factor, where levels have many rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.methods.pursuit import ActiveSet, add_best
from pymc_coresets.rows.keyed import numbers_of, smallest
from pymc_coresets.solving.problem import nonnegative_least_squares, rounding, unit_rows

#: Rows of a level for each coefficient that these depend on, from which levels are pursued.
_LARGE = 10
#: Rows of a level that are candidates, at most.
_MOST_CANDIDATES = 1_000
#: The second-order terms of the chosen rows should be this share of all rows', so that the
#: remaining quadratic is concave.
_CURVED = 0.95
#: Importance of that next to the residual: the first one, or others if it is not concave then.
IMPORTANCES = (0.1, 0.3, 1.0, 3.0)
#: Ratio of the sizes of successive choices, and choices without a gain that end a pursuit.
_GROWTH, _PATIENCE = 1.25, 4


def levels_of(rows: RowsInMemory) -> np.ndarray:
    """Return the level of each row, (n_rows,), or (0,) if most levels have few rows.

    The level of a row is the coefficient in it that the fewest rows depend on.  Most rows have to
    be of levels with at least ten rows for each coefficient that these depend on.  So they are if
    there is a single factor, but not if crossed factors meet in many pairs of levels.
    """
    n_rows, n_in_all = len(rows), rows.found.n_shared
    used = sparse.csr_array((n_rows, len(rows.found.names)))
    for predictor in rows.predictors:
        if isinstance(predictor.design, np.ndarray):
            n_in_all += len(predictor.columns)
            continue
        entries = sparse.coo_array(predictor.design)
        at = entries.row, predictor.columns[entries.col]
        used = used + sparse.csr_array((np.ones(entries.nnz), at), shape=used.shape)
    none = np.empty(0, dtype=np.int64)
    if not used.nnz:
        return none
    row, column = sparse.coo_array(used).coords
    order = np.lexsort((column, np.bincount(column)[column], row))
    known, first = np.unique(row[order], return_index=True)
    rarest = np.full(n_rows, -1)
    rarest[known] = column[order][first]
    _, levels, sizes = np.unique(rarest, return_inverse=True, return_counts=True)
    members = sparse.csr_array((np.ones(n_rows), (levels, np.arange(n_rows))))
    n_used = n_in_all + np.diff(sparse.csr_array(members @ used).indptr)
    is_large = sizes >= _LARGE * n_used
    return levels if len(sizes) > 1 and sizes[is_large].sum() > n_rows / 2 else none


def in_chunks(levels: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield the numbers of rows, ascending, of some whole levels at a time.

    Parameters
    ----------
    levels : ndarray of int, of shape (n_rows,)
        Numbers from 0, each of which occurs.
    size : int
        Most rows at a time, but for a single level that has more.

    Examples
    --------
    >>> [*in_chunks(np.array([0, 1, 0, 1, 2, 1]), 3)]
    [array([0, 2]), array([1, 3, 5]), array([4])]
    """
    order = np.argsort(levels, kind="stable")
    ends = np.cumsum(np.bincount(levels))
    start = 0
    while start < len(order):
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, start + size, side="right")) - 1
        end = int(ends[max(first, last)])
        yield np.sort(order[start:end])
        start = end


@dataclass(frozen=True, eq=False)
class PursuedLevel:
    """Choices of a level's rows, each larger than the last, for the residual of its quadratics.

    Parameters
    ----------
    whole : ndarray of int64
        Positions of rows that keep their weights in all choices.
    choices : sequence of ndarray of int64
        Positions of other rows; none in the first choice.
    left : ndarray of shape (n_choices,)
        Mean squared residual of each choice at draws that did not choose, in squared nats.
    target : ndarray of shape (2, n_draws)
        Residual and second-order terms of all rows but the whole ones, in nats.
    """

    whole: np.ndarray
    choices: Sequence[np.ndarray]
    left: np.ndarray
    target: np.ndarray

    @classmethod
    def of(
        cls,
        positions: np.ndarray,
        case_weights: np.ndarray,
        left: np.ndarray,
        curved: np.ndarray,
        spread: np.ndarray,
        *,
        least: float,
        key: int,
    ) -> "PursuedLevel":
        """Pursue the residual of a level's rows: by half of the draws, judged by the others.

        Parameters
        ----------
        positions : ndarray of int64
            Of its rows.
        case_weights, spread : ndarray of shape (n_rows,)
        left, curved : ndarray of shape (n_draws, n_rows)
            Their residuals, and second-order terms, in nats.
        least : float
            Squared nats below which more rows bring no gain.
        key : int
            Key of the rows' random numbers, if not all are candidates.
        """
        is_whole = np.isinf(spread)
        target = np.stack([left, curved]) @ np.where(is_whole, 0.0, case_weights)
        with np.errstate(divide="ignore"):
            keys = (1 - numbers_of(positions, key)) / np.where(is_whole, 0.0, spread)
        which, _ = smallest(keys, min(_MOST_CANDIDATES, int(np.isfinite(keys).sum())))
        choosing = left[::2, which], curved[::2, which], target[:, ::2]
        vectors, goal = _vectors(*choosing, IMPORTANCES[0])
        judges, wanted = left[1::2, which], target[0, 1::2]
        active = ActiveSet(goal, len(goal) // 4)
        choices, squares, size = [which[:0]], [float(np.var(wanted))], 4
        unit, least_score = unit_rows(vectors), rounding(goal)
        while squares[-1] > least and min(squares[-_PATIENCE:]) <= min(squares):
            while len(active.numbers) < size and add_best(
                active, unit @ active.residual, vectors.__getitem__, least_score
            ):
                pass
            if len(active.numbers) <= len(choices[-1]):
                break
            kept = np.array(active.numbers)
            choices.append(np.sort(which[kept]))
            squares.append(float(np.var(wanted - judges[:, kept] @ active.weights)))
            size = math.ceil(_GROWTH * size)
        return cls(positions[is_whole], [positions[c] for c in choices], np.array(squares), target)

    def weights(
        self, left: np.ndarray, curved: np.ndarray, importance: float = IMPORTANCES[0]
    ) -> np.ndarray:
        """Return weights for residuals and second-order terms (n_draws, n_rows) of a choice."""
        vectors, goal = _vectors(left, curved, self.target, importance)
        return nonnegative_least_squares(vectors, goal)


def _vectors(
    left: np.ndarray, curved: np.ndarray, target: np.ndarray, importance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of rows, (n_rows, 2 S), and what their weighted sum should be, (2 S,)."""
    share = np.array([[1.0], [importance * _CURVED]])
    goal = share * (target - target.mean(axis=1, keepdims=True))
    parts = [own - own.mean(axis=0) for own in (left, importance * curved)]
    scale = 1 / math.sqrt(len(left))
    return scale * np.concatenate(parts).T, scale * goal.ravel()


@dataclass(frozen=True, eq=False)
class SampleOfLevels:
    """Choices of the rows of all levels.

    Parameters
    ----------
    levels : sequence of PursuedLevel
    """

    levels: Sequence[PursuedLevel]

    @property
    def has_impossible_rows(self) -> bool:
        """Whether there are rows of infinite spread."""
        return any(len(level.whole) for level in self.levels)

    @property
    def most(self) -> int:
        """Number of rows from which more are of no use, whole ones apart."""
        return sum(len(level.choices[-1]) for level in self.levels)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and squares of the choices, (n_levels, n_choices); the last one is repeated."""
        most = max(len(level.choices) for level in self.levels)
        sizes = np.array(
            [
                np.pad([len(c) for c in level.choices], (0, most - len(level.choices)), "edge")
                for level in self.levels
            ]
        )
        left = [np.pad(level.left, (0, most - len(level.left)), "edge") for level in self.levels]
        return sizes, np.minimum.accumulate(np.array(left), axis=1)

    def choices(self, size: int) -> np.ndarray:
        """Return which choice of each level together have at most so many rows, whole ones apart.

        All have about the same residual, the smallest that is possible.
        """
        sizes, left = self._table
        each = np.arange(len(left))

        def at(limit: float) -> np.ndarray:
            reached = left <= limit
            found: np.ndarray = np.where(
                reached.any(axis=1), reached.argmax(axis=1), left.argmin(axis=1)
            )
            return found

        limits = np.unique(left)
        low, high = 0, len(limits) - 1
        while low < high:
            middle = (low + high) // 2
            if sizes[each, at(limits[middle])].sum() <= size:
                high = middle
            else:
                low = middle + 1
        return at(limits[high])

    def variance(self, size: int) -> float:
        """Estimate the mean squared residual of all rows, with so many of them, in squared nats."""
        _, left = self._table
        return float(left[np.arange(len(left)), self.choices(size)].sum())

    def first(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of rows, ascending, and which of them are whole."""
        pairs = zip(self.levels, self.choices(size), strict=True)
        drawn = np.concatenate([level.choices[choice] for level, choice in pairs])
        whole = np.concatenate([level.whole for level in self.levels])
        positions = np.sort(np.concatenate([drawn, whole]))
        return positions, np.isin(positions, whole)

    def weights(
        self,
        size: int,
        positions: np.ndarray,
        left: np.ndarray,
        curved: np.ndarray,
        importance: float,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield which rows, of those of some size, are of a level, and their weights.

        Parameters
        ----------
        size : int
        positions : ndarray of int64
            From `first`.
        left, curved : ndarray of shape (n_draws, n_rows)
            Residuals, and second-order terms, of these rows.
        importance : float
            Of second-order terms.
        """
        for level, choice in zip(self.levels, self.choices(size), strict=True):
            which = np.searchsorted(positions, level.choices[choice])
            if len(which):
                yield which, level.weights(left[:, which], curved[:, which], importance)
