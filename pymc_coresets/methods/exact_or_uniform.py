"""Methods that do not compare rows: all distinct rows, or a random sample."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from pymc_coresets.methods.job import Job, draws_around_mode, moderate_size
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.solving.solution import History, Selection, Solution, Status

#: Draws that tell weights: more are for methods that choose rows by them.
_ENOUGH = 1_000


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Keep every distinct row, weighted by its number of duplicates.

    The posterior is that of all rows.  Use it for data with few distinct rows, such as counts in
    categories or a census.  Costs one pass over them for `Coreset.importance_draws`.

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

    def run[D](self, job: Job[D]) -> Solution:
        """Take all rows."""
        posterior, history = job.posterior, History()
        n_rows = posterior.n_rows
        rows = posterior.subsample(n_rows, key=0, distinct=True).rows
        n_draws = min(draws_around_mode(posterior.n_dims, n_rows), _ENOUGH)
        found: dict[str, object] = {}
        with history.drawing():
            proposal = job.propose(n_draws, start_size=n_rows, rng=job.rng)
        if proposal is not None:
            with history.evaluating(n_rows, len(proposal.log_ratios), of=n_rows):
                sums = posterior.sums(proposal.draws)
            found = {"proposal": proposal.weighed(sums.total), "modes": proposal.modes}
        history.add(size=len(rows), objective=0.0, heldout_objective=0.0, kl=0.0, reverse_kl=0.0)
        everything = Selection(rows=rows, weights=rows.case_weights)
        return history.solution(everything, Status.EXACT, 0.0, **found)


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Draw rows at random, in proportion to their case weights.

    Use it as a baseline; its error falls only like ``1 / sqrt(size)``.  No log-likelihood is
    evaluated.  A row drawn several times is kept once, so the coreset may have fewer rows than
    `size`.

    References
    ----------
    .. [1] Campbell, T. and Broderick, T. (2019). Automated Scalable Bayesian Inference via
       Hilbert Coresets, Section 4.1. https://jmlr.org/papers/v20/17-613.html

    Examples
    --------
    >>> Uniform().default_size(2, 1_000)
    50
    """

    name: ClassVar[str] = "uniform"
    accepts: ClassVar[Collection[str]] = frozenset({"rows", "size"})
    with_replacement: ClassVar[bool] = True
    draws_from: ClassVar[str] = "none"
    default_size = staticmethod(moderate_size)

    def run[D](self, job: Job[D]) -> Solution:
        """Draw ``job.size`` rows; repeated ones add their weights."""
        subsample = job.posterior.subsample(job.size, key=random_key(job.rng))
        return Solution.sampled(subsample.rows, subsample.weights)
