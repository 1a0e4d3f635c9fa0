"""What evaluates potentials of blocks of rows: which users choose, and that by compiled loops."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol, cast

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import one_of
from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.passes import CandidateRule, Look
from pymc_coresets.rows.values import Rows

_BLOCK_ENTRIES = 2**17  # of float64: a block and its temporaries stay in a core's own cache
_MOST_ENTRIES = 2**21  # of a block of units, however many rows one of them has

_SINGLE = 1e-3  # nats, absolute or for each nat, by which potentials in float32 may be off


@dataclass(frozen=True, kw_only=True)
class Jax:
    """Potentials of all rows by JAX, on its default device: a GPU where there is one.

    Use it as ``backend=Jax(dtype="float32")``, or ``backend="jax"`` for float64.  Without a GPU,
    Numba is faster.  Sums over rows and over draws, and all gradients, are in float64 whatever the
    type.

    Parameters
    ----------
    dtype : {"float64", "float32"}
        Type of the potentials of single rows.  Most GPUs compute much faster in float32, where a
        potential is off by about 1e-7 of the largest term in it, which may be far larger, and is
        -inf where a probability is below 6e-8.  `build_coreset` compares it with float64.

    Raises
    ------
    InvalidOptionError
        If there is no such type.

    Examples
    --------
    >>> Jax(dtype="float32")
    Jax(dtype='float32')
    """

    dtype: str = "float64"

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, ["float64", "float32"])

    @property
    def slack(self) -> float:
        """By how much potentials may differ from exact ones, beyond what rounding in float64 does.

        In nats, and relative to their size.
        """
        return _SINGLE if self.dtype == "float32" else 0.0


def backend_of(backend: Any, executor: Any = None) -> Jax | None:  # noqa: ANN401 - of users
    """Return the options of a backend; None for Numba, which has none.

    Raises
    ------
    InvalidOptionError
        If there is no such backend, or JAX is not installed; or there is an executor, while the
        rows are evaluated on a device of this process.

    Examples
    --------
    >>> backend_of("numba", "an executor") is None
    True
    >>> backend_of("cuda")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: backend='cuda' must be one of ['numba', 'jax'], or
    options such as Jax(dtype='float32'). (docs: troubleshooting#arguments)
    >>> backend_of(Jax(), "an executor")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidOptionError: executor='an executor': backend='jax' evaluates the
    rows on a device of this process. Leave executor out, or use backend='numba'.
    (docs: troubleshooting#arguments)
    """
    if isinstance(backend, str) and backend == "numba":
        return None
    chosen = Jax() if isinstance(backend, str) and backend == "jax" else backend
    if not isinstance(chosen, Jax):
        raise InvalidOptionError(
            f"backend={backend!r} must be one of ['numba', 'jax'], or options such as "
            "Jax(dtype='float32')."
        )
    if find_spec("jax") is None:
        raise InvalidOptionError(
            f'backend={backend!r} needs the package jax: pip install "pymc-coresets[jax]", and '
            "jax[cuda13] or the like for a GPU."
        )
    if executor is not None:
        raise InvalidOptionError(
            f"executor={executor!r}: backend='jax' evaluates the rows on a device of this process. "
            "Leave executor out, or use backend='numba'."
        )
    return chosen


class AtDraws(Protocol):
    """Functions of blocks of rows, at some draws; threads may share them."""

    def values(self, rows: Rows) -> np.ndarray:
        """Return the potentials (n_draws, n_rows), in nats."""

    def look(self, rows: Rows, wanted: CandidateRule) -> Look:
        """Return what a look finds in the rows."""


class SlopesOfRows(Protocol):
    """The weighted log-likelihood of blocks of rows, and its gradient."""

    @property
    def size(self) -> int:
        """Number of rows of a block."""

    def at(self, points: np.ndarray) -> Callable[[Rows], tuple[np.ndarray, np.ndarray]]:
        """Return the function of rows for points (n_points, D) of the unconstrained space.

        It returns log-likelihoods (n_points,), in nats, and their gradients (n_points, D).
        """


class Evaluator(Protocol):
    """The potentials of the rows of one source, compiled once."""

    def matrix_rows(self, n_draws: int) -> int:
        """Return how many rows to evaluate together where all potentials are kept."""

    def look_rows(self, n_draws: int) -> int:
        """Return how many rows to evaluate together where their sums are kept."""

    def at(self, given: Sequence[np.ndarray]) -> AtDraws:
        """Prepare what all blocks have in common at the given draws of each parameter."""

    def slopes(self, space: Unconstrained) -> SlopesOfRows | None:
        """Return gradients of blocks of rows; None where the sampler's own are as good."""


@dataclass(frozen=True, eq=False)
class NumbaEvaluator:
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

    def matrix_rows(self, n_draws: int) -> int:
        """See `Evaluator`."""
        return max(64, int(_BLOCK_ENTRIES // (n_draws * self.n_nodes * self.n_members)))

    def look_rows(self, n_draws: int) -> int:
        """See `Evaluator`."""
        return self.matrix_rows(n_draws)

    def at(self, given: Sequence[np.ndarray]) -> "_LoopsAtDraws":
        """See `Evaluator`."""
        return _LoopsAtDraws(self, list(given), self.kernel.program.given(*given))

    def slopes(self, space: Unconstrained) -> None:  # noqa: ARG002 - of the protocol
        """See `Evaluator`: the sampler compiles the gradient of the coreset's own model."""
        return


@dataclass(frozen=True, eq=False)
class _LoopsAtDraws:
    by: NumbaEvaluator
    given: list[np.ndarray]
    evaluate: Callable[..., list[Any]]

    def values(self, rows: Rows) -> np.ndarray:
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
