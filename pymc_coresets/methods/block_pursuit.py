"""Block pursuit: coresets of models with thousands of groups."""

import logging
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import SamplingError, UnsupportedModelError
from pymc_coresets.methods.adaptive import judge
from pymc_coresets.methods.group_rows import choose_by_group
from pymc_coresets.methods.job import LOOSEST, GroupedPosterior, Job, draws_to_certify
from pymc_coresets.options import positive_number, whole_number
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.groups import rows_of_group
from pymc_coresets.solving.loop import advance
from pymc_coresets.solving.problem import Matrix, Vector, tangent_vectors
from pymc_coresets.solving.shared_basis import SharedBasis, n_functions
from pymc_coresets.solving.solution import History, Solution, Status

#: Shared dimensions beyond which the functions of them are more than draws tell apart.
MOST_SHARED = 40

_log = logging.getLogger(__name__)

_LEAST_DRAWS = 400
_MOST_DRAWS = 2_000
_DRAWS_PER_FUNCTION = 10
_FEWEST_PER_FUNCTION = 3
_CLOSER = 0.1  # of the tolerance within groups, in a round after one that was not enough


@dataclass(frozen=True, kw_only=True)
class BlockPursuit:
    """Pursuit in every group of a factor, and joint weights for what the groups share.

    Use it for hierarchies with many levels, in which each row belongs to one level of a factor,
    such as a shop or a person: hundreds of levels or many thousands, with a few variables each.
    Given what they share, the levels are then independent, so that the rows of each may be
    chosen by themselves, while a running account of the shared part is kept.  A few rows for each
    level follow: 5 to 10 with one variable for each level and five shared ones.

    The draws come from nested Laplace approximations of the posterior: normal distributions of
    each level's variables given the shared ones, and of the latter with the former integrated out.
    Nothing is of size D x D.  A round costs two passes over the rows, for S and for 400 draws, and
    some ten milliseconds for each level; before these come a hundred to a few thousand
    evaluations of all rows for the approximation, O(p^2) for p shared dimensions.  Memory: one
    level's rows times S draws, and S draws of all variables.

    Parameters
    ----------
    tolerance : float, default 0.1
        Stop when the symmetrised KL divergence, of all variables together, is estimated below this
        many nats.
    draws : int, optional
        Draws that choose rows.  By default 10 for each quadratic function of the shared variables,
        of which there are p(p + 3)/2; but 400 at least, and 2 000 at most unless these are fewer
        than 3 for each.
    max_rounds : int, default 3
        Largest number of rounds.  One is usual.

    Raises
    ------
    InvalidOptionError
        If an option is not positive.

    Notes
    -----
    With R_g the part of ``log r = sum_n (u_n - w_n) f_n`` that rows of level g make up, and phi the
    shared variables, independence given phi makes the variance a sum:
    ``Var(log r) = Var(sum_g E[R_g | phi]) + sum_g E Var(R_g | phi)``.  E[R_g | phi] is estimated
    by regression on quadratic functions of phi, and both parts are minimised over w.

    Levels of one or two rows, and those that would need almost all of theirs, are kept whole.
    The best round by ``Var(log r)`` at fresh draws of its own posterior is returned.

    With two crossed factors, such as persons and items, the levels of one are not independent
    given the rest: such models are refused unless the second factor is small enough to be shared.

    Examples
    --------
    >>> BlockPursuit(tolerance=0.01).max_rounds
    3
    """

    name: ClassVar[str] = "block_pursuit"
    accepts: ClassVar[Collection[str]] = frozenset({"tolerance", "time_budget"})
    draws_from: ClassVar[str] = "the full posterior's nested Laplace approximation"

    tolerance: float = 0.1
    draws: int | None = None
    max_rounds: int = 3

    def __post_init__(self) -> None:
        positive_number("tolerance", self.tolerance)
        whole_number("max_rounds", self.max_rounds, least=1)
        if self.draws is not None:
            whole_number("draws", self.draws, least=100)

    def default_size(self, n_dims: int, n_rows: int) -> int:  # noqa: ARG002
        """As many rows as it takes."""
        return n_rows

    def run(self, job: Job[Any]) -> Solution:
        """Choose rows in rounds, until the tolerance is met.

        Raises
        ------
        UnsupportedModelError
            If the model has no groups, or they share too many variables.
        SamplingError
            If the full posterior has no nested Laplace approximation.
        """
        posterior = job.by_groups()
        if posterior.n_shared > MOST_SHARED:
            raise UnsupportedModelError(
                f"The groups share {posterior.n_shared} coordinates, those of "
                f"{', '.join(map(repr, posterior.shared))}, and block pursuit can tell apart "
                f"{MOST_SHARED} at most: give the model fewer shared coefficients, or use "
                "method=RiemannianPursuit()."
            )
        with job.report.part("rounds", total=self.max_rounds) as show:
            run = _Run(self.tolerance, posterior, job.rng, History(show))
            n_draws = self.default_draws(posterior.n_shared)
            return run.solution(n_draws, self.max_rounds, job.deadline)

    def default_draws(self, n_shared: int) -> int:
        """Return how many draws choose rows.

        Examples
        --------
        >>> BlockPursuit().default_draws(6), BlockPursuit().default_draws(12)
        (400, 900)
        """
        if self.draws is not None:
            return self.draws
        m = n_functions(n_shared)
        most = max(_MOST_DRAWS, _FEWEST_PER_FUNCTION * m)
        return min(max(_LEAST_DRAWS, _DRAWS_PER_FUNCTION * m), most)


def rows_to_keep(posterior: GroupedPosterior[Any], n_seen: int) -> int:
    """Return about how many rows block pursuit keeps, before anything is evaluated.

    All of levels that have no more than match what their log-likelihood depends on: their own
    variables, and so many shared ones besides, see `rows_of_group`.
    """
    each = rows_of_group(posterior.n_local, n_seen)
    return int(np.minimum(np.diff(posterior.data.bounds), each).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Coreset:
    """Weighted rows, and what draws of their posterior say of them."""

    rows: Rows
    weights: Vector
    predicted: float
    objective: float = math.inf
    shared_part: float = math.inf  # of the objective
    proposal: Proposal[Any] | None = None


@dataclass(frozen=True, eq=False)
class _Round:
    """The best coreset so far, and how the next one is to be chosen."""

    best: _Coreset
    within: float  # nats within groups
    n_draws: int
    failed: bool


class _Run[D]:
    """One construction: how a round chooses and measures."""

    def __init__(
        self,
        tolerance: float,
        posterior: GroupedPosterior[D],
        rng: np.random.Generator,
        history: History,
    ) -> None:
        self.tolerance, self.posterior, self.rng = tolerance, posterior, rng
        self.history, self.n_rows = history, len(posterior.data.rows)

    def solution(self, n_draws: int, max_rounds: int, deadline: float) -> Solution:
        within = self.tolerance
        first = self._after(self._measured(self._chosen(n_draws, within)), n_draws, within)
        last, status = advance(
            first, self._round, self._judged, limit=max_rounds - 1, deadline=deadline
        )
        if status is Status.ITERATION_LIMIT and last.failed:
            status = Status.SAMPLING_FAILED
        best, proposal = last.best, last.best.proposal
        return self.history.solution(
            best.rows, best.weights, status, best.objective,
            proposal=proposal, log_ratios=None if proposal is None else proposal.log_ratios,
        )  # fmt: skip

    def _judged(self, found: _Round) -> Status | None:
        return Status.TOLERANCE_REACHED if found.best.objective <= self.tolerance else None

    def _round(self, before: _Round) -> _Round:
        found = self._measured(self._chosen(before.n_draws, before.within))
        after = self._after(found, before.n_draws, before.within)
        return (
            after if found.objective < before.best.objective else replace(after, best=before.best)
        )

    def _after(self, found: _Coreset, n_draws: int, within: float) -> _Round:
        more = 2 if found.shared_part > found.objective / 2 else 1
        failed = not math.isfinite(found.objective)
        return _Round(found, _CLOSER * within, more * n_draws, failed)

    def _chosen(self, n_draws: int, within: float) -> _Coreset:
        """Choose the rows of every group in turn, and then all their weights together."""
        posterior, rng = self.posterior, self.rng.spawn(1)[0]
        with self.history.drawing():
            found = posterior.draw(n_draws, rng=rng)
        n_draws = len(found.shared)

        def loglik(rows: Rows) -> Matrix:
            with self.history.evaluating(len(rows), n_draws, of=self.n_rows):
                return posterior.loglik(found.draws, rows)

        choice = choose_by_group(
            posterior.data,
            loglik,
            found.shared,
            found.noise,
            tolerance=min(within / posterior.n_levels, LOOSEST),
            rng=self.rng.spawn(1)[0],
        )
        rows = posterior.data.rows.take(choice.chosen)
        order = np.argsort(rows.positions)
        return _Coreset(
            rows=rows.take(order), weights=choice.weights[order], predicted=choice.objective
        )

    def _measured(self, coreset: _Coreset) -> _Coreset:
        """See how much log r varies over fresh draws of a coreset's own posterior."""
        n_draws, rng = draws_to_certify(self.n_rows), self.rng.spawn(1)[0]
        judged: dict[str, Any] = {}
        try:
            with self.history.drawing():
                found = self.posterior.ratios(coreset.rows, coreset.weights, n_draws, rng=rng)
        except SamplingError as error:
            _log.info("A round is taken back: %s", error)
        else:
            self.history.count(self.n_rows, n_draws, of=self.n_rows)
            log_ratios = found.proposal.log_ratios
            together = SharedBasis.of(found.shared).coordinates(tangent_vectors(log_ratios))
            judged = judge(log_ratios)
            coreset = replace(
                coreset,
                objective=float(np.var(log_ratios)),
                shared_part=float(together @ together),
                proposal=found.proposal,
            )
        self.history.add(
            size=len(coreset.rows),
            objective=coreset.predicted,
            heldout_objective=coreset.objective,
            **judged,
        )
        return coreset
