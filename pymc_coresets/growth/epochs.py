"""Growth of a stream: exact sums at the draws of an epoch, candidates, and new epochs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.exceptions import warn_user
from pymc_coresets.growth.coverage import Coverage
from pymc_coresets.methods.job import candidates_to_keep
from pymc_coresets.methods.pursuit import pursue
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.known_rows import KnownRows
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import PassSums, RowBlocks
from pymc_coresets.rows.proportional import Priorities
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Solution

WIDENING = 2.0  # of the variance: later epochs draw wider than the posterior


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamState:
    """The state of a stream.

    Parameters
    ----------
    n_rows : int
        Rows so far, including those of weight 0: the position of the next row.
    total_weight : float
        Sum of the case weights.
    n_chunks : int
        Number of chunks after the pilot.
    pilot_weight : float
        Total weight of the pilot.
    mass : float
        Sum of the weights of the rows whose posterior the draws are from.
    scale : float
        Mean length of a row's tangent vector.
    inherited : float
        Sum over epochs of the objective of the coreset that represents earlier rows, in nats, times
        the weight of these rows.
    epochs : tuple of str
        Where each epoch began, and why.
    last_chunk : sequence
        Sample of its rows, see `KnownRows`.
    draws : Draws
        Draws at which all rows of the epoch are compared.
    origin : ndarray of shape (n_draws,)
        Centred log-likelihood, in nats, of the weighted rows whose posterior the draws follow.
    seen : PassSums
        The sum of all log-likelihoods at the draws, and rows to choose from.  Rows that represent
        earlier epochs are included, with the key 0.
    """

    n_rows: int
    total_weight: float
    n_chunks: int
    pilot_weight: float
    mass: float
    scale: float
    inherited: float
    epochs: tuple[str, ...]
    last_chunk: Sequence[Any]
    draws: Draws
    origin: Vector
    seen: PassSums

    @property
    def numbers(self) -> dict[str, object]:
        """All fields but the arrays."""
        arrays = ("draws", "origin", "seen")
        return {name: value for name, value in vars(self).items() if name not in arrays}

    @property
    def inherited_objective(self) -> float:
        """Divergence inherited from coresets of earlier rows, at the present posterior, in nats.

        To first order, the variance of a log-likelihood's error is proportional to the posterior's
        variance, which shrinks as rows are added.
        """
        return self.inherited / self.total_weight

    @property
    def log_ratios(self) -> Vector:
        """Log of the posterior of all rows over the density of the draws, in nats."""
        ratios: Vector = self.seen.total - self.origin
        return ratios

    @property
    def coverage(self) -> Coverage:
        """Diagnostic of whether the draws cover the posterior."""
        return Coverage.of(self.draws, self.log_ratios)


@dataclass(frozen=True, kw_only=True, eq=False)
class Growth:
    """Turns one state of a stream into the next; a pure function of state and rows.

    Parameters
    ----------
    loglikelihood : LogLikelihood
        Of a model with prototype rows.
    size : int
        Largest number of weights.
    tolerance : float
        In nats, see `pursue`.
    n_draws : int
        Draws of an epoch.
    growth : float
        Number of rows, over that of the draws' posterior, at which an epoch ends.
    key : int
        Of all random numbers.
    """

    loglikelihood: LogLikelihood
    size: int
    tolerance: float
    n_draws: int
    growth: float
    key: int

    @property
    def options(self) -> dict[str, object]:
        """All fields but `loglikelihood`."""
        return {name: value for name, value in vars(self).items() if name != "loglikelihood"}

    # -- states --------------------------------------------------------------------------------

    def first(self, pilot: LogLikelihood) -> StreamState:
        """Draw from the posterior of the pilot, and start with its rows.

        Raises
        ------
        SamplingError
            If that posterior cannot be sampled.
        """
        rows = _weighted(pilot.all_rows)
        draws = self._drawn(rows, rows.case_weights, before=0)
        probe = InMemoryRows.of(rows).subsample(1_000, key=self.key)
        lengths = self.loglikelihood.matrix(draws, probe.rows).std(axis=1)
        nothing = np.zeros(self.n_draws)
        unseen = StreamState(
            n_rows=0,
            total_weight=0.0,
            n_chunks=0,
            pilot_weight=pilot.total_weight,
            mass=pilot.total_weight,
            scale=float(probe.weights @ lengths) / len(rows),
            inherited=0.0,
            epochs=("from row 0: the pilot",),
            last_chunk=KnownRows.among(pilot, 0),
            draws=draws,
            origin=nothing,
            seen=PassSums.of_sums(nothing, np.zeros(0), rows.take(slice(0, 0)), Priorities()),
        )
        state = self._seen(unseen, rows, pilot.source)
        return replace(state, origin=state.seen.total, n_rows=pilot.n_rows)

    def add(self, state: StreamState, source: RowBlocks) -> StreamState:
        """Add rows; start a new epoch at the row where the number of rows or a drift requires it.

        Warns
        -----
        CoresetWarning
            If the rows drift away from those before them.
        """
        end = state.n_rows + source.n_rows
        for block in source.blocks(2**17):
            rows = _weighted(block)
            while len(rows):
                state = replace(state, n_rows=int(rows.positions[0]))
                if self._room(state) < rows.case_weights[0]:
                    why = "there are many more rows than at the beginning of the epoch before"
                    state = self._begun(state, why, rows.take(slice(0, 0)))
                masses = np.cumsum(rows.case_weights)
                fitting = np.searchsorted(masses, self._room(state), side="right")
                n_taken = max(int(fitting), 1)
                state = self._looked(state, rows.take(slice(0, n_taken)), source)
                rows = rows.take(slice(n_taken, None))
        return replace(state, n_rows=end)

    def choose(self, state: StreamState, *, factor: int = 1) -> Solution:
        """Choose rows whose weighted sum is close to that of all, at the draws of the epoch.

        With a `factor`, the limit is this many times the coreset's.
        """
        candidates, smoothed = state.seen.candidates, pareto_smooth(state.log_ratios[None])
        return pursue(
            self.loglikelihood.matrix(state.draws, candidates),
            state.seen,
            state.seen.total,
            factor * self.size,
            tolerance=self.tolerance,
            rng=self._rng(state.n_rows, 1),
            weights=smoothed.weights[0] if smoothed.pareto_khat < KHAT_RELIABLE else None,
        )

    # -- parts ---------------------------------------------------------------------------------

    def _room(self, state: StreamState) -> float:
        """Total weight of the rows that the epoch can still take."""
        return self.growth * state.mass - state.total_weight

    def _looked(self, state: StreamState, rows: Rows, source: RowBlocks) -> StreamState:
        grown = self._seen(state, rows, source)
        found = grown.coverage
        if not found.drifted:
            return grown
        begun = self._begun(state, "the posterior left the draws of the epoch before", rows)
        warn_user(
            f"Chunk {state.n_chunks + 1} moves the posterior {found.distance:.3g} standard "
            "deviations of the stream's draws away from them: its rows differ from those before. A "
            "new epoch begins, in which a coreset represents all rows before it, and the draws "
            "include this chunk. If that is not an exception, restart the stream with a pilot from "
            "the whole data, or let the model depend on time."
        )
        return self._seen(begun, rows, source)

    def _seen(self, state: StreamState, rows: Rows, source: RowBlocks) -> StreamState:
        n_kept = candidates_to_keep(self.loglikelihood.n_dims, self.size, self.n_draws)
        keys = state.seen.keys
        rule = Priorities(
            n_candidates=n_kept,
            scale=state.scale,
            key=self.key,
            limit=float(keys.max()) if len(keys) == n_kept else math.inf,
        )
        part = self.loglikelihood.reading(InMemoryRows.of(rows)).sums_for(state.draws, rule)
        if not np.isfinite(part.total).all():
            self.loglikelihood.reading(source).matrix(state.draws, rows)  # with the row's location
        return replace(
            state,
            total_weight=state.total_weight + float(rows.case_weights.sum()),
            seen=PassSums.joined([state.seen, part], rule),
        )

    def _begun(self, state: StreamState, reason: str, rows: Rows) -> StreamState:
        """Start an epoch from the current coreset, at draws that also account for some new rows."""
        solution = self.choose(state, factor=2)  # more rows than a coreset, for a smaller error
        summary, weights = solution.rows, solution.weights
        known = Rows.joined([summary, rows])
        masses = np.concatenate([weights, rows.case_weights])
        mass = state.total_weight + float(rows.case_weights.sum())
        widening = min(max(mass / state.pilot_weight, 1.0), WIDENING)
        draws = self._drawn(known, masses / widening, before=state.n_rows)
        loglik = _centred(self.loglikelihood.matrix(draws, summary))
        lengths = float(weights @ loglik.std(axis=1))
        kept, keys = state.seen.candidates, state.seen.keys
        stands = np.isin(kept.positions, summary.positions)
        stays = stands | (keys > 0)  # rows that represent earlier epochs may be dropped
        objective = solution.objective
        begun = f"from row {state.n_rows}: {reason}, objective of the coreset before"
        return replace(
            state,
            mass=mass / widening,
            scale=lengths / state.n_rows,
            inherited=state.inherited + objective * state.total_weight,
            epochs=(*state.epochs, f"{begun} {objective:.3g}"),
            draws=draws,
            origin=masses / widening @ _centred(self.loglikelihood.matrix(draws, known)),
            seen=PassSums(
                total=weights @ loglik,
                norm_total=lengths,
                candidates=kept.take(stays),
                keys=np.where(stands, 0.0, keys)[stays],
            ),
        )

    def _drawn(self, rows: Rows, weights: Vector, *, before: int) -> Draws:
        # A new sampler: the adaptation of an existing one would be lost by a restart.
        sampler = CoresetSampler(self.loglikelihood.reading(InMemoryRows(rows.arrays, weights)))
        return sampler.draw(rows, weights, self.n_draws, rng=self._rng(before, 0))

    def _rng(self, n_rows: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.key, n_rows, purpose])


def _weighted(rows: Rows) -> Rows:
    """Leave out rows of weight 0."""
    return rows if rows.case_weights.all() else rows.take(rows.case_weights > 0)


def _centred(loglik: Vector) -> Vector:
    centred: Vector = loglik - loglik.mean(axis=1, keepdims=True)
    return centred
