"""How a stream grows: exact sums at the draws of an epoch, rows to choose from, new epochs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np

from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.methods.job import candidates_to_keep
from pymc_coresets.methods.pursuit import pursue
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.keyed import numbers_of
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import Look, Wanted
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Solution
from pymc_coresets.streams.arrivals import ArrivedRows
from pymc_coresets.streams.coverage import Coverage, Displacement

WIDENING = 2.0  # of the variance: draws of a later epoch are wider than the posterior then
_ROWS_OF_SUMMARY = 2  # for each of the coreset: its error is to be smaller
_PROBED_ROWS = 1_000  # for the scale of the tangent vectors


class Reason(Enum):
    """Why an epoch begins."""

    PILOT = "the pilot"
    OUTGROWN = "there are many more rows than at the beginning of the epoch before"
    DRIFT = "the posterior left the draws of the epoch before"


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """What does not change along a stream.

    Parameters
    ----------
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
    seed : int, optional
        What the key was drawn with, if that was a number.
    """

    size: int
    tolerance: float
    n_draws: int
    growth: float
    key: int
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Where an epoch began, and with what.

    Parameters
    ----------
    n_rows : int
        Rows before it.
    total_weight : float
        Sum of their base weights.
    chunk : int
        Number of the chunk that it began in; 0 for the pilot.
    reason : Reason
    size : int
        Rows of the coreset that stands for the rows before it.
    objective : float
        Held-out objective of that coreset in nats.
    distance : float
        Of the posterior from the draws before, see `Displacement`.
    """

    n_rows: int
    total_weight: float
    chunk: int
    reason: Reason
    size: int = 0
    objective: float = math.nan
    distance: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamState:
    """All that is kept of a stream.

    Parameters
    ----------
    n_rows : int
    total_weight : float
        Sum of the base weights.
    n_chunks : int
        Without the pilot.
    pilot_weight : float
        That of the pilot.
    draws : Draws
        At which all rows of the epoch are compared.
    origin : ndarray of shape (n_draws,)
        Centred log-likelihood of the weighted rows whose posterior they are from, in nats.
    mass : float
        Sum of the weights of these rows.
    scale : float
        Mean length of a row's tangent vector.
    summary : Rows
        The coreset that stands for all rows before the epoch; none in the first.
    summary_weights : ndarray of shape (len(summary),)
    seen : Look
        The sum of all log-likelihoods at the draws, and rows to choose from.
    beginnings : tuple of Beginning
        Of all epochs.
    known : tuple of int
        Digests of the pilot and of the last chunks, see `digest_of_rows`.
    """

    n_rows: int
    total_weight: float
    n_chunks: int
    pilot_weight: float
    draws: Draws
    origin: Vector
    mass: float
    scale: float
    summary: Rows
    summary_weights: Vector
    seen: Look
    beginnings: tuple[Beginning, ...]
    known: tuple[int, ...] = ()

    @property
    def log_ratios(self) -> Vector:
        """Log of the posterior of all rows over the density of the draws, in nats."""
        ratios: Vector = self.seen.total - self.origin
        return ratios

    @property
    def inherited_objective(self) -> float:
        """What the coresets that stand for earlier rows lacked, as far as it still counts, in nats.

        To first order an error of the log-likelihood varies over a posterior in proportion to that
        posterior's variance, which has shrunk since as the rows have become more.
        """
        later = self.beginnings[1:]
        return sum(one.objective * one.total_weight for one in later) / self.total_weight

    @property
    def displacement(self) -> Displacement:
        """Where the posterior lies among the draws."""
        return Displacement.of(self.draws, self.log_ratios)

    @property
    def coverage(self) -> Coverage:
        """What the draws say of the posterior."""
        return Coverage.of(self.draws, self.log_ratios)

    @property
    def candidates(self) -> Rows:
        """The rows to choose from."""
        kept = self.seen.candidates
        return Rows.joined([self.summary, kept]) if len(self.summary) else kept


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """A weighted random sample of the rows so far: those with the smallest ``U_n / q_n``.

    ``q_n = (u_n |V_n| / s + 1) / 2`` weighs half by the length of the tangent vector and half
    uniformly, as `Wanted` does, but depends on nothing that lies ahead: neither on the number of
    rows nor on the sum of their lengths.  ``U_n`` depends on the key and the row's position alone,
    so that the rows kept do not depend on how the stream is cut into chunks.

    Parameters
    ----------
    n_candidates : int
        How many rows to keep.
    scale : float
        s, about the mean of ``u_n |V_n|``; 0 for uniform samples.
    key : int
        Of the random numbers.
    limit : float, default infinity
        The largest key that can still be kept, which spares the rows beyond it.

    References
    ----------
    Duffield, Lund, Thorup (2007). Priority sampling for estimation of arbitrary subset sums.
    Journal of the ACM 54(6). https://doi.org/10.1145/1314690.1314696

    Examples
    --------
    >>> rule = Priorities(n_candidates=2, scale=1.0, key=1)
    >>> keys = rule.keys(Rows(np.arange(3), np.ones(3)), np.array([0.0, 1.0, 3.0]))
    >>> bool(np.isinf(keys[0])), bool(np.isfinite(keys[1:]).all())
    (True, True)
    """

    n_candidates: int
    scale: float
    key: int
    limit: float = math.inf

    def keys(self, rows: Rows, norms: Vector) -> Vector:
        """Return ``U_n / q_n`` for each row; infinite for rows that do not vary."""
        scores = rows.base_weights * norms
        shares = scores / self.scale if self.scale > 0 else np.zeros_like(scores)
        keys = numbers_of(rows.positions, self.key) / (0.5 * shares + 0.5)
        return np.where((scores > 0) & (keys <= self.limit), keys, np.inf)


class Growth:
    """Turns one state of a stream into the next; a pure function of state and rows.

    Parameters
    ----------
    template : LogLikelihood
        Of a model with a template of the rows.
    options : StreamOptions
    """

    def __init__(self, template: LogLikelihood, options: StreamOptions) -> None:
        self.template, self.options = template, options
        _ = template.kernel  # so that all chunks share what is compiled

    @cached_property
    def prior(self) -> Callable[[Draws], Vector]:
        """The log-density of all but the rows at some draws, in nats; compiled once."""
        remainder = self.template.remainder
        return lambda draws: remainder.values(remainder.space.free(draws))

    # -- states --------------------------------------------------------------------------------

    def first(self, pilot: ArrivedRows) -> StreamState:
        """Draw from the posterior of the pilot, and begin with its rows.

        Raises
        ------
        SamplingError
            If that posterior cannot be sampled.
        """
        weights = pilot.all.base_weights
        draws = self._drawn(pilot.all, weights, before=0)
        nothing = pilot.all.take(slice(0, 0))
        probe = pilot.scan(_PROBED_ROWS, key=self.options.key)
        spread = self.template.matrix(draws, probe.rows).std(axis=1)
        unseen = StreamState(
            n_rows=0,
            total_weight=0.0,
            n_chunks=0,
            pilot_weight=pilot.total_weight,
            draws=draws,
            origin=np.zeros(self.options.n_draws),
            mass=pilot.total_weight,
            scale=float(probe.weights @ spread) / pilot.n_rows,
            summary=nothing,
            summary_weights=np.zeros(0),
            seen=Look.of_sums(np.zeros(self.options.n_draws), None, nothing, Wanted()),
            beginnings=(Beginning(n_rows=0, total_weight=0.0, chunk=0, reason=Reason.PILOT),),
        )
        state = self._seen(unseen, pilot)
        return replace(state, origin=state.seen.total)

    def add(self, state: StreamState, rows: ArrivedRows) -> StreamState:
        """Add rows; begin a new epoch at the row with which the old one is outgrown, or drifts."""
        start, just_begun = 0, False
        while start < rows.n_rows:
            room = self.options.growth * state.mass - state.total_weight
            masses = np.cumsum(rows.all.base_weights[start:])
            stop = start + int(np.searchsorted(masses, room, side="right"))
            if stop == start and not just_begun:
                state, just_begun = self._begun(state, Reason.OUTGROWN), True
                continue
            stop = max(stop, start + 1)
            state, start, just_begun = self._looked(state, rows.part(start, stop)), stop, False
        return state

    def choose(self, state: StreamState, *, factor: int = 1) -> Solution:
        """Choose rows whose weighted sum is close to that of all, at the draws of the epoch.

        With a `factor`, so many times as many as the coreset may have.
        """
        candidates, smoothed = state.candidates, pareto_smooth(state.log_ratios[None])
        selection = pursue(
            self.template.matrix(state.draws, candidates),
            replace(state.seen, candidates=candidates),
            factor * self.options.size,
            tolerance=self.options.tolerance,
            rng=self._rng(state.n_rows, 1),
            weights=smoothed.weights[0] if smoothed.pareto_khat < KHAT_RELIABLE else None,
        )
        return selection.of(candidates)

    # -- parts ---------------------------------------------------------------------------------

    def _looked(self, state: StreamState, rows: ArrivedRows) -> StreamState:
        grown = self._seen(state, rows)
        found = grown.displacement
        return self._begun(state, Reason.DRIFT, rows, found.distance) if found.drifted else grown

    def _seen(self, state: StreamState, rows: ArrivedRows) -> StreamState:
        n_kept = candidates_to_keep(self.template.n_dims, self.options.size, self.options.n_draws)
        keys = state.seen.keys
        rule = Priorities(
            n_candidates=n_kept,
            scale=state.scale,
            key=self.options.key,
            limit=float(keys.max()) if len(keys) == n_kept else math.inf,
        )
        loglik = self.template.reading(rows)
        part = loglik.look_for(state.draws, rule)
        if not np.isfinite(part.total).all():
            loglik.matrix(state.draws, rows.all)  # names the row
        return replace(
            state,
            n_rows=rows.stop,
            total_weight=state.total_weight + rows.total_weight,
            seen=Look.joined([state.seen, part], rule),
        )

    def _begun(
        self,
        state: StreamState,
        reason: Reason,
        rows: ArrivedRows | None = None,
        distance: float = 0.0,
    ) -> StreamState:
        """Begin an epoch with the coreset so far, at draws that know of some more rows, too."""
        solution = self.choose(state, factor=_ROWS_OF_SUMMARY)
        summary, weights = solution.rows, solution.weights
        known = summary if rows is None else Rows.joined([summary, rows.all])
        more = [] if rows is None else [rows.all.base_weights]
        mass = state.total_weight + sum(float(each.sum()) for each in more)
        widening = min(max(mass / state.pilot_weight, 1.0), WIDENING)
        masses = np.concatenate([weights, *more]) / widening
        draws = self._drawn(known, masses, before=state.n_rows)
        loglik = _centred(self.template.matrix(draws, summary))
        lengths = weights @ loglik.std(axis=1)
        begun = replace(
            state,
            draws=draws,
            origin=masses @ _centred(self.template.matrix(draws, known)),
            mass=mass / widening,
            scale=float(lengths) / state.n_rows,
            summary=summary,
            summary_weights=weights,
            seen=replace(state.seen, total=weights @ loglik, norm_total=float(lengths)),
            beginnings=(
                *state.beginnings,
                Beginning(
                    n_rows=state.n_rows,
                    total_weight=state.total_weight,
                    chunk=state.n_chunks + 1,
                    reason=reason,
                    size=len(summary),
                    objective=solution.objective,
                    distance=distance,
                ),
            ),
        )
        return begun if rows is None else self._seen(begun, rows)

    def _drawn(self, rows: Rows, weights: Vector, *, before: int) -> Draws:
        # A sampler of its own: what another one has learned would not be known after a restart.
        sampler = CoresetSampler(self.template.reading(InMemoryRows(rows.arrays, weights)))
        return sampler.draw(rows, weights, self.options.n_draws, rng=self._rng(before, 0))

    def _rng(self, n_rows: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.options.key, n_rows, purpose])


def _centred(loglik: Vector) -> Vector:
    centred: Vector = loglik - loglik.mean(axis=1, keepdims=True)
    return centred
