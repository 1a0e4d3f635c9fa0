"""Evaluate log-likelihoods of any rows at any draws, compiled once, in blocks for the cache."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from pymc_coresets.deadline import doing
from pymc_coresets.display import counted
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.numerics import ENTRIES_AT_ONCE, rows_at_once
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.units.integral import not_derived
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.rowlogp.functions import Functions
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.rows.memory import (
    InMemoryRows,
    collapse_rows,
    in_threads,
    may_collapse,
    numbered_units,
)
from pymc_coresets.rows.passes import BlockPass, PassSums, RowBlocks
from pymc_coresets.rows.proportional import Priorities
from pymc_coresets.rows.values import Rows

#: Numbers of a block of units' rows at all their nodes and draws: for more, most of the time goes
#: into fresh memory, and for fewer into calls.  And of rows at all draws, that find nodes' places.
_OF_UNITS, _OF_PLACES = 2**19, 2**16
#: Rows of units from which on a block is cut into several along the rows rather than the draws:
#: loops run along the rows, and shorter ones take up to four times as long for each.
_LONG = 256
#: Whether to merge equal rows.
type Collapse = bool | Literal["auto"]


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluates blocks by the loops of a kernel; it may be sent to another process.

    Parameters
    ----------
    kernel : Kernel
        The log-likelihoods (n_draws, n_rows), as a function of the parameters at all draws, of the
        number of rows, and of their arrays.
    n_nodes : int, default 1
        Number of evaluations of each row of a unit.
    n_unit_rows : float, default 1
        Mean number of rows of a unit.
    """

    kernel: Kernel
    n_nodes: int = 1
    n_unit_rows: float = 1.0

    def block_rows(self, n_draws: int) -> int:
        """Return the number of rows to evaluate together."""
        # Numbers in a block, which with its temporaries fits into a core's own cache.  What finds
        # nodes' places calls several functions: at few draws, blocks have more units.
        cached = 2**17 if self.n_nodes == 1 else _OF_UNITS
        fewest = 64 if self.n_nodes == 1 else max(64, int(_LONG // self.n_unit_rows))
        return max(fewest, int(cached // (n_draws * self.n_nodes * self.n_unit_rows)))

    def at(self, given: Sequence[np.ndarray]) -> Callable[[Rows], np.ndarray]:
        """Return a function of rows to their log-likelihoods (n_draws, n_rows), in nats.

        Terms that all rows share at the given draws are computed once. Threads may share the
        function.
        """
        n_draws, half = len(given[0]), len(given[0]) // 2
        evaluate = cache(lambda: self.kernel.program.given(*given))
        halves = cache(lambda: [self.at([g[some] for g in given]) for some in parts])
        parts = slice(0, half), slice(half, n_draws)

        def values(rows: Rows) -> np.ndarray:
            of_places = min(_OF_PLACES, ENTRIES_AT_ONCE // self.n_nodes)
            is_small = n_draws * rows.n_unit_rows <= max(_OF_UNITS // self.n_nodes, of_places)
            if not rows.unit_rows or is_small or len(rows) * n_draws == 1:
                found: np.ndarray
                [found] = evaluate()(np.asarray(len(rows)), *self.kernel.arrays(rows))
                return found
            if n_draws > 1 and (len(rows) == 1 or rows.n_unit_rows <= _LONG):
                return np.concatenate([part(rows) for part in halves()])
            middle = len(rows) // 2
            both = rows.take(slice(0, middle)), rows.take(slice(middle, len(rows)))
            return np.concatenate([values(some) for some in both], axis=1)

        return values

    def of_blocks[T](
        self, given: Sequence[np.ndarray], of_block: Callable[[np.ndarray, Rows], T]
    ) -> Callable[[Rows], T]:
        """Return a function that applies `of_block` to rows and their log-likelihoods."""
        values = self.at(given)
        return lambda rows: of_block(values(rows), rows)


class LogLikelihood:
    """The pointwise log-likelihood of a model's observations, in memory or elsewhere.

    What it compiles are its `Functions`, for any number of rows and draws.  Time O(N S) times
    the cost of a likelihood term (2 to 10 ns per element for most models); memory as stated for
    each method, and no more.

    Parameters
    ----------
    observations : Observations
        Result of `find_observations` for the model.
    collapse : bool or "auto", default False
        Merge rows that are equal in all their data, which is exact; "auto" merges if a sample of
        the rows has equal ones.
    source : RowBlocks, optional
        Source of the rows, with the arrays of ``observations.rows``; by default these arrays
        themselves.
    functions : Functions, optional
        Those of rows of the same form.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1.0, observed=np.arange(3.0))
    >>> loglik = LogLikelihood(find_observations(model))
    >>> loglik.matrix({"mu": np.array([0.0, 1.0])}).round(3)
    array([[-0.919, -1.419],
           [-1.419, -0.919],
           [-2.919, -1.419]])
    """

    def __init__(
        self,
        observations: Observations,
        *,
        collapse: Collapse = False,
        source: RowBlocks | None = None,
        functions: Functions | None = None,
    ) -> None:
        self.observations, self.collapse, self._given_source = observations, collapse, source
        self.functions = functions or Functions.of(observations, are_all=source is None)
        #: What other rooms have made of these rows: it lives as long as they do.
        self.derived: dict[str, Any] = {}

    def __reduce__(self) -> tuple[object, ...]:
        given = (self.observations, self.collapse, self._given_source, self.functions)
        return _restored, given

    @property
    def source(self) -> RowBlocks:
        """Where the rows are read from."""
        return self._given_source or self.in_memory

    @cached_property
    def in_memory(self) -> InMemoryRows:
        """The rows that the model itself holds; if a source was given, the prototypes."""
        observations, n_obs = self.observations, self.observations.n_obs
        rows, unit_rows = observations.rows, observations.unit_rows
        arrays = tuple(np.moveaxis(row.values, row.axis, 0) for row in rows)
        kept: slice | np.ndarray = slice(None)
        counts = observations.case_weights
        if unit_rows:
            if self.collapse:
                numbers, first = numbered_units(unit_rows, not_derived(rows, arrays), n_obs)
                if len(first) <= 0.99 * n_obs:  # otherwise too few are equal for merging to pay
                    kept, counts = first, np.bincount(numbers, counts)
        elif may_collapse(arrays, n_obs) if self.collapse == "auto" else self.collapse:
            kept, counts = collapse_rows(arrays, n_obs)
        every = Rows(observations.positions, observations.case_weights, arrays, unit_rows)
        some = every.take(kept)
        return InMemoryRows(
            some.arrays, counts, some.positions, unit_rows=some.unit_rows, place=observations.place
        )

    def collapsed(self, *, collapse: Collapse) -> "LogLikelihood":
        """Return the same with equal rows merged, or not, sharing compiled functions.

        Rows that are read from a source are never merged.
        """
        if self._given_source is not None:
            return self
        return LogLikelihood(self.observations, collapse=collapse, functions=self.functions)

    def reading(self, source: RowBlocks) -> "LogLikelihood":
        """Return the same for rows from elsewhere, sharing compiled functions."""
        return LogLikelihood(self.observations, source=source, functions=self.functions)

    @cached_property
    def as_loops(self) -> "LogLikelihood":
        """See `Functions.as_loops`."""
        functions = self.functions.as_loops
        if functions is self.functions:
            return self
        return LogLikelihood(
            self.observations,
            collapse=self.collapse,
            source=self._given_source,
            functions=functions,
        )

    def of_same_form(self, observations: Observations) -> "LogLikelihood":
        """Return the same for other values of the rows' data, sharing compiled functions."""
        return LogLikelihood(observations, functions=self.functions)

    @property
    def rest(self) -> RestLogDensity:
        """See `Functions.rest`."""
        return self.functions.rest

    @property
    def some_row(self) -> Rows:
        """One row, to compile functions with."""
        first = self.in_memory.take(slice(0, 1))
        return replace(first, positions=np.zeros(1, dtype=np.int64), case_weights=np.ones(1))

    @property
    def all_rows(self) -> Rows:
        """All rows with their data, without a copy if they are in memory."""
        return Rows.joined(list(self.source.blocks(self.n_rows)))

    @property
    def n_rows(self) -> int:
        """Number of rows N; merged rows count once."""
        return self.source.n_rows

    @property
    def n_terms(self) -> int:
        """Number of terms evaluated at a draw: the rows; for units, those at all nodes."""
        own = self.observations
        return own.n_nodes * len(own.unit_rows.positions) if own.unit_rows else self.n_rows

    @property
    def node_error(self) -> float:
        """Error of integrals over variables of units, in nats; 0 without any, or if unknown."""
        own = self.observations
        return float(np.nan_to_num(own.node_error)) if isinstance(own, UnitObservations) else 0.0

    @property
    def total_weight(self) -> float:
        """Number of rows of the data."""
        return self.source.total_weight

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D of the model."""
        return self.observations.n_dims

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each free variable that the likelihood depends on."""
        return {name: v.type.shape for name, v in self.functions.parameters.items()}

    def matrix(
        self,
        draws: DrawsLike,
        rows: Rows | None = None,
        *,
        dtype: DTypeLike = np.float64,
        finite: bool = True,
    ) -> np.ndarray:
        """Evaluate f_n(theta_s), in nats, for some rows (or all) and all draws.

        Parameters
        ----------
        draws : Draws, DataTree, Dataset, or mapping of str to array_like
        rows : Rows, optional
            From ``source``; by default all rows of the model itself.
        dtype : {float64, float32}
            Of the result; the computation is always in float64.
        finite : bool, default True
            Raise if a value is NaN or infinite.

        Returns
        -------
        ndarray of shape (n_rows, n_draws)
            In Fortran order: a draw is contiguous.

        Raises
        ------
        InvalidDataError
            If draws are missing, misshapen or not finite; or a value is, unless ``finite=False``.
        """
        draws, rows = Draws.of(draws, self.shapes), self.in_memory.all if rows is None else rows
        out = np.empty((draws.n_draws, len(rows)), dtype=dtype)
        n_terms = self.observations.n_nodes * rows.n_unit_rows
        evaluator = self.evaluator_of(draws.n_draws, n_terms)
        size = evaluator.block_rows(draws.n_draws)
        values_of = evaluator.at(self.given(draws))

        def store(block: tuple[int, Rows]) -> None:
            start, some = block[0] * size, block[1]
            values = values_of(some)
            if finite and not np.isfinite(values).all():
                self._explain_non_finite(values, some)
            out[:, start : start + values.shape[1]] = values

        n_blocks = -(-len(rows) // size)
        for _ in in_threads(store, enumerate(rows.blocks(size)), n_blocks):
            pass
        return out.T

    def weighted_sum(
        self, draws: DrawsLike, rows: Rows, weights: np.ndarray, *, finite: bool = True
    ) -> np.ndarray:
        """Return the weighted sum of some rows' log-likelihoods at all draws, (n_draws,), in nats.

        Evaluates a few draws at a time: the matrix never exceeds 32 MB.  See `matrix` for `finite`.

        Raises
        ------
        InvalidDataError
            As `matrix`.
        """
        draws = Draws.of(draws, self.shapes)
        sums, step = np.zeros(draws.n_draws), rows_at_once(len(rows))
        for some in (slice(i, i + step) for i in range(0, draws.n_draws, step)):
            with np.errstate(invalid="ignore"):  # infinite log-likelihoods
                sums[some] = weights @ self.matrix(draws.take(some), rows, finite=finite)
        return sums

    def sums(
        self, draws: DrawsLike, *, n_candidates: int = 0, scale: float = 0.0, key: int = 0
    ) -> PassSums:
        """Evaluate all rows at the draws in one pass, see `PointwiseLogLikelihood.sums`.

        Memory O(S), plus the candidates: the matrix is never stored.  Of units, which take long,
        the log-likelihoods of the candidates are kept as well.
        """
        wanted = Priorities.of_all(n_candidates, n_rows=self.n_rows, scale=scale, key=key)
        keeps = bool(self.observations.unit_rows)
        return self.sums_for(draws, replace(wanted, keeps_potentials=keeps))

    def sums_for(self, draws: DrawsLike, wanted: Priorities) -> PassSums:
        """Evaluate all rows at the draws, as `sums` does, and keep candidates by any rule."""
        parts = (partial(make, wanted=wanted) for make in (PassSums.of, PassSums.joined))
        found: PassSums = self.of_all(draws, *parts)
        return found

    def of_all[T](
        self,
        draws: DrawsLike,
        of_block: Callable[[np.ndarray, Rows], T],
        join: Callable[[Iterable[T]], T],
    ) -> T:
        """Apply a function to all rows and log-likelihoods, block by block, and join the results.

        Parameters
        ----------
        draws : Draws, or mapping of str to array_like
        of_block : callable
            Takes log-likelihoods (n_draws, n_rows) of a block of rows, and these rows; it must be
            picklable.
        join : callable
            Joins the results of consecutive blocks.
        """
        draws = Draws.of(draws, self.shapes)
        evaluator = self.evaluator_of(draws.n_draws, self.n_terms)
        size = evaluator.block_rows(draws.n_draws)
        begin = partial(evaluator.of_blocks, self.given(draws), of_block)
        with doing(f"evaluating {self._rows_in_words} at {draws.n_draws:,} draws"):
            return self.source.reduce(BlockPass(size, begin, join))

    @property
    def _rows_in_words(self) -> str:
        """All rows, or units and their nodes, by their number."""
        n_nodes, unit_rows = self.observations.n_nodes, self.observations.unit_rows
        if not unit_rows:
            return f"{self.n_rows:,} rows"
        nodes = f"{n_nodes} nodes" if n_nodes > 1 else "one node"
        return f"{self.n_rows:,} units ({nodes} x {len(unit_rows.positions):,} rows)"

    def given(self, draws: Draws) -> list[np.ndarray]:
        """Return the parameters at all draws, in the order and types of the functions."""
        return [
            np.ascontiguousarray(draws.values[name], dtype=v.type.dtype)
            for name, v in self.functions.parameters.items()
        ]

    def evaluator_of(self, n_draws: int, n_terms: float) -> Evaluator:
        """Return what evaluates rows of so many terms at so many draws."""
        own = self.observations
        functions = self.functions.for_numbers(n_draws * n_terms)
        return Evaluator(functions.kernel, own.n_nodes, own.mean_size)

    def _explain_non_finite(self, values: np.ndarray, rows: Rows) -> None:
        bad_draws, bad_rows = np.nonzero(~np.isfinite(values))
        first = rows.take(bad_rows[:1])
        suspects = sorted(
            row.name
            for i, row in self.functions.rows.items()
            if row.values.dtype.kind == "f" and not np.isfinite(first.inputs[i]).all()
        )
        raise InvalidDataError(
            f"The log-likelihood of {self.source.place(int(first.positions[0]))} is "
            f"{values[bad_draws[0], bad_rows[0]]} at draw {bad_draws[0]} "
            f"({counted(len(np.unique(bad_rows)), 'row')}, "
            f"{counted(len(np.unique(bad_draws)), 'draw')} of a block). "
            + (f"Its data are not finite in {suspects}. " if suspects else "")
            + "Check the data there, or use a weighting distribution whose draws the data allow."
        )


def _restored(
    observations: Observations,
    collapse: Collapse,
    source: RowBlocks | None,
    functions: Functions,
) -> LogLikelihood:
    return LogLikelihood(observations, collapse=collapse, source=source, functions=functions)
