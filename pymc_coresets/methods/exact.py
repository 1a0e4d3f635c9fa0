"""All rows, where equal ones were merged and few are left."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from pymc_coresets.methods.job import Job, draws_around_mode
from pymc_coresets.solving.solution import History, Solution, Status


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Keep every distinct row, with the number of rows that are equal to it as its weight.

    The posterior is that of all rows.  Use it where the data have few distinct rows: counts in
    categories, a census.  Costs one pass over them for `Coreset.importance_draws`.

    Examples
    --------
    >>> Exact().default_size(2, 1_000)
    1000
    """

    name: ClassVar[str] = "exact"
    accepts: ClassVar[Collection[str]] = frozenset()
    draws_from: ClassVar[str] = "none"

    def default_size(self, n_dims: int, n_rows: int) -> int:  # noqa: ARG002
        """All rows."""
        return n_rows

    def run(self, job: Job[Any]) -> Solution:
        """Take all rows."""
        posterior, history = job.posterior, History()
        n_rows = posterior.n_rows
        rows = posterior.scan(n_rows, key=0, distinct=True).rows
        n_draws = draws_around_mode(posterior.n_dims, n_rows)
        with history.drawing():
            proposal = job.propose(n_draws, start_size=n_rows, rng=job.rng)
        modes = None if proposal is None else proposal.modes
        if proposal is not None:
            with history.evaluating(n_rows, len(proposal.log_ratios), of=n_rows):
                look = posterior.look(proposal.draws)
            proposal = proposal.weighed(look.total)
        history.add(size=len(rows), objective=0.0, heldout_objective=0.0, kl=0.0, reverse_kl=0.0)
        exact = Status.EXACT
        return history.solution(rows, rows.base_weights, exact, 0.0, proposal=proposal, modes=modes)
