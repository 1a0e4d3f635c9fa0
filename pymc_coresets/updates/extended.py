"""A coreset that was extended: its rows and the new ones, and the errors of its steps."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.display.facts import facts_text
from pymc_coresets.exceptions import CoresetError
from pymc_coresets.rows.keyed import Scan
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import Pass
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows, in_blocks
from pymc_coresets.weighted_rows import WeightedRows, chosen_rows, required_likelihood

_OBJECTIVES, _ROWS = "objectives_of_updates", "rows_of_updates"
#: Attribute of a history: what the coresets that went into this one lacked, in nats.
OBJECTIVE_OF_PARTS = "objective_of_parts"


@dataclass(frozen=True, eq=False)
class ExtendedRows:
    """The rows of a coreset, which stand for data that are gone, and all new rows.

    They are a source of rows, see `RowBlocks`.

    Parameters
    ----------
    old : Rows
        At their positions; their weights are their base weights.
    new : StreamedRows
        At positions beyond those of the old ones.
    places : mapping of int to str
        Where the old ones were found.

    Examples
    --------
    >>> from pymc_coresets import open_rows
    >>> old = Rows(np.array([4]), np.array([90.0]), (np.array([1.0]),))
    >>> opened = open_rows({"x": np.array([2.0, 3.0])})
    >>> new = StreamedRows(opened, {"x": np.dtype(float)}, start=90)
    >>> rows = ExtendedRows(old, new, {4: "row 4"})
    >>> [block.arrays[0].tolist() for block in rows.blocks(2)], rows.total_weight
    ([[1.0, 2.0], [3.0]], 92.0)
    >>> rows.at(np.array([4, 91])).arrays, rows.place(91)
    ((array([1., 3.]),), 'row 1 of the new rows')
    """

    old: Rows
    new: StreamedRows
    places: Mapping[int, str]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.old) + self.new.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the base weights."""
        return self._held.total_weight + self.new.total_weight

    def blocks(self, size: int) -> Iterator[Rows]:
        """Read all rows, in blocks of `size`; only the last one may be smaller."""
        return in_blocks(chain([self.old], self.new.blocks(size)), size)

    def reduce[T](self, work: Pass[T]) -> T:
        """Add up what is computed from the old rows, and then from the new ones."""
        return work.joined([self._held.reduce(work), self.new.reduce(work)])

    def scan(self, size: int, *, key: int, distinct: bool = False) -> Scan:
        """Sample rows, see `Potentials.scan`.

        Distinct: all old rows by their weights, which are few, and a sample of the new ones.
        """
        if distinct:
            few = self.new.scan(max(size - len(self.old), 1), key=key, distinct=True)
            weights = np.concatenate([self.old.base_weights, few.weights])
            return Scan(rows=Rows.joined([self.old, few.rows]), weights=weights)
        share = self._held.total_weight / self.total_weight
        n_old = int(np.random.default_rng(key).binomial(size, share))
        rows, counts = [], []
        for part, n in ((self._held, n_old), (self.new, size - n_old)):
            if n:
                scan = part.scan(n, key=key)
                rows.append(scan.rows)
                counts.append(scan.weights * n / part.total_weight)
        weights = np.concatenate(counts) * self.total_weight / size
        return Scan(rows=Rows.joined(rows), weights=weights)

    def at(self, positions: NDArray[np.int64]) -> Rows:
        """Return the rows that have the given positions."""
        old = positions < self.new.start
        return Rows.joined([self._held.at(np.sort(positions[old])), self.new.at(positions[~old])])

    def place(self, position: int) -> str:
        """Say where the user finds a row, for messages."""
        known = self.places.get(position)
        return f"{self.new.place(position)} of the new rows" if known is None else known

    @property
    def in_memory(self) -> InMemoryRows:
        """All of them, read at once: for few rows."""
        every = Rows.joined(list(self.blocks(self.n_rows)))
        return InMemoryRows(every.arrays, every.base_weights, every.positions)

    def holding(self, rows: Rows, columns: Mapping[str, np.dtype[Any]]) -> "ExtendedRows":
        """Return the same with other arrays of the old rows, and others in turn of the new."""
        return replace(self, old=rows, new=replace(self.new, columns=columns))

    @property
    def _held(self) -> InMemoryRows:
        return InMemoryRows(self.old.arrays, self.old.base_weights, self.old.positions)


def has_all_rows(coreset: WeightedRows) -> bool:
    """Whether the posterior of a coreset is that of all rows."""
    loglik = required_likelihood(coreset)
    gone = isinstance(loglik.source, ExtendedRows)
    if gone or loglik.n_rows != len(coreset.indices):
        return False
    every = loglik.all_rows
    pairs = [(every.positions, coreset.indices), (every.base_weights, coreset.weights)]
    if coreset.data is not None:
        pairs += zip(every.arrays, chosen_rows(coreset).arrays, strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def require_all_rows(coreset: WeightedRows) -> None:
    """Refuse where some of the rows that a coreset stands for are gone."""
    if isinstance(required_likelihood(coreset).source, ExtendedRows):
        raise CoresetError(
            "This coreset was extended without the old rows, of which only some are left: for "
            "this, store it, and read it with Coreset.from_netcdf(path, model, rows=...), where "
            "rows has the old ones and, after them, the new ones."
        )


@dataclass(frozen=True)
class Ancestry:
    """How a coreset came about: rows that each construction added, and how far it was off.

    Parameters
    ----------
    rows : tuple of int
        Rows that the first construction, and each `Coreset.extend` after it, read.
    objectives : tuple of float
        What each estimated of its own divergence, in nats; NaN where that is not known.

    Notes
    -----
    An objective is the squared length ``|L - L(w)|^2`` of the error that one construction added, at
    the posterior that it was made for.  Lengths obey the triangle inequality: measured at one
    posterior, all errors together have at most the length of their sum.  Where new rows move the
    posterior by several of its standard deviations, an older error may be many times larger there,
    and nothing that is left of the old rows can tell.

    Examples
    --------
    >>> found = Ancestry((1_000, 50), (0.01, 0.0025))
    >>> round(found.combined, 4)
    0.0225
    """

    rows: tuple[int, ...]
    objectives: tuple[float, ...]

    @classmethod
    def of(cls, attrs: Mapping[str, Any], n_observations: int, objective: float) -> Self:
        """Read it from the attributes of a history, and from what else a coreset says of itself."""
        if _ROWS in attrs:
            rows, objectives = (np.atleast_1d(attrs[name]) for name in (_ROWS, _OBJECTIVES))
            return cls(tuple(map(int, rows)), tuple(map(float, objectives)))
        parts = float(attrs.get(OBJECTIVE_OF_PARTS, 0.0))
        return cls((n_observations,), (_together([parts, objective]),))

    def extended(self, n_rows: int, objective: float) -> "Ancestry":
        """Add a construction."""
        return Ancestry((*self.rows, n_rows), (*self.objectives, float(objective)))

    @property
    def unmeasured(self) -> "Ancestry":
        """The same for another posterior, at which no error was measured."""
        return Ancestry(self.rows, (math.nan,) * len(self.rows))

    @property
    def combined(self) -> float:
        """Square of the sum of all errors' lengths, in nats: a bound where the posterior stays."""
        return _together(self.objectives)

    @property
    def attrs(self) -> dict[str, Any]:
        """As attributes of a history."""
        return {
            _ROWS: np.array(self.rows),
            _OBJECTIVES: np.array(self.objectives),
            OBJECTIVE_OF_PARTS: _together(self.objectives[:-1]),
        }

    def __repr__(self) -> str:
        steps = zip(self.rows, self.objectives, strict=True)
        facts = {
            f"{'update' if i else 'first'} {i or ''}".strip(): f"{rows:,} rows, {_nats(objective)}"
            for i, (rows, objective) in enumerate(steps)
        }
        facts["together"] = f"at most {_nats(self.combined)}, if the posterior hardly moves"
        return facts_text("Ancestry of a coreset", facts, self._words())

    def _words(self) -> str:
        if len(self.rows) == 1:
            return "It was built once, from all its rows."
        return (
            "check() compares it with the rows of the last update, exactly, and with the coreset "
            "before it in place of all others: what that one lacked is not in it, but here."
        )


def _together(objectives: Sequence[float]) -> float:
    return float(np.sqrt(np.asarray(objectives, dtype=float)).sum() ** 2)


def _nats(objective: float) -> str:
    return "a divergence that is not known" if math.isnan(objective) else f"{objective:.2g} nats"
