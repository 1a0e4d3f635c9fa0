"""What evaluates potentials of blocks of rows, and the passes that need nothing else."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.rows.passes import CandidateRule, Look
from pymc_coresets.rows.values import Rows

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache
_MOST_ENTRIES = 2**21  # of a block of units, however many rows one of them has


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluates blocks by the loops of a kernel; it may be sent to another process.

    Parameters
    ----------
    kernel : Kernel
        The potentials (n_draws, n_rows), as a function of the parameters at all draws, of the
        number of rows, and of their arrays.
    n_nodes : int, default 1
        How often each row of a unit is evaluated.
    n_members : float, default 1
        How many rows a unit has on average.
    """

    kernel: Kernel
    n_nodes: int = 1
    n_members: float = 1.0

    def block_rows(self, n_draws: int) -> int:
        """Return how many rows to evaluate together."""
        return max(64, int(_BLOCK_ENTRIES // (n_draws * self.n_nodes * self.n_members)))

    def at(self, given: Sequence[np.ndarray]) -> "AtDraws":
        """Prepare what all blocks have in common at the given draws of each parameter."""
        return AtDraws(self, list(given), self.kernel.program.given(*given))


@dataclass(frozen=True, eq=False)
class AtDraws:
    """Functions of blocks of rows, at some draws; threads may share them."""

    by: Evaluator
    given: list[np.ndarray]
    evaluate: Callable[..., list[Any]]

    def values(self, rows: Rows) -> np.ndarray:
        """Return the potentials (n_draws, n_rows), in nats."""
        n_draws = len(self.given[0])
        n_numbers = n_draws * self.by.n_nodes * rows.n_members
        if rows.members is None or n_numbers <= _MOST_ENTRIES or len(rows) * n_draws == 1:
            [values] = self.evaluate(np.asarray(len(rows)), *self.by.kernel.arrays(rows))
            return cast(np.ndarray, values)
        if len(rows) > 1:  # units of many rows
            half = len(rows) // 2
            parts = rows.take(slice(0, half)), rows.take(slice(half, len(rows)))
            return np.concatenate([self.values(part) for part in parts], axis=1)
        half = n_draws // 2
        halves = [g[:half] for g in self.given], [g[half:] for g in self.given]
        return np.concatenate([self.by.at(part).values(rows) for part in halves])

    def look(self, rows: Rows, wanted: CandidateRule) -> Look:
        """Return what a look finds in the rows."""
        return Look.of(self.values(rows), rows, wanted)


@dataclass(frozen=True, eq=False)
class LookPass:
    """A look at all rows, for `RowBlocks.reduce`."""

    evaluator: Evaluator
    given: Sequence[np.ndarray]
    wanted: CandidateRule
    size: int

    def begin(self) -> Callable[[Rows], Look]:
        """Return what is done to a block of rows."""
        at_draws = self.evaluator.at(self.given)
        return lambda rows: at_draws.look(rows, self.wanted)

    def joined(self, parts: Iterable[Look]) -> Look:
        """Add up what was found in the blocks."""
        return Look.joined(parts, self.wanted)


@dataclass(frozen=True, eq=False)
class NowhereFinitePass:
    """Counts the rows without a finite potential at any draw, and finds the first of them."""

    evaluator: Evaluator
    given: Sequence[np.ndarray]
    size: int

    def begin(self) -> Callable[[Rows], tuple[int, int]]:
        """Return what is done to a block of rows."""
        values_of = self.evaluator.at(self.given).values

        def found(rows: Rows) -> tuple[int, int]:
            bad = np.flatnonzero(~np.isfinite(values_of(rows)).any(axis=0))
            return bad.size, int(rows.positions[bad[0]]) if bad.size else -1

        return found

    def joined(self, parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Add up what was found in the blocks."""
        n_bad, first = 0, -1
        for n, position in parts:
            n_bad, first = n_bad + n, position if first < 0 else first
        return n_bad, first
