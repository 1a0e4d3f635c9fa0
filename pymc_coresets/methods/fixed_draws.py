"""What the methods have in common that compare rows at draws of a fixed weighting distribution."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

from pymc_coresets.methods.job import Job, moderate_size
from pymc_coresets.solving.candidates import default_n_draws, tangent_problem
from pymc_coresets.solving.loop import GreedyMethod, solve
from pymc_coresets.solving.solution import Solution

__all__ = ["LOOSEST", "HilbertMethod"]

LOOSEST = 0.1
"""Largest tolerance in nats, at draws of another posterior than the coreset's own: with fewer rows
some directions are not matched at all, where those draws do not show it."""


class HilbertMethod:
    """A greedy method in the tangent space of the weighting distribution.

    One pass over the data for the target, one over the candidates for their vectors, and what
    the method itself costs.
    """

    accepts: ClassVar[Collection[str]] = frozenset({"rows", "size", "tolerance", "weighting"})
    draws_from: ClassVar[str] = ""
    tolerance: float | None

    def default_size(self, n_dims: int, n_rows: int) -> int:
        """As many rows as match a quadratic log-likelihood, 50 to 500."""
        return moderate_size(n_dims, n_rows)

    def run(self, job: Job[Any]) -> Solution:
        """Draw, evaluate the potentials of all rows there, and choose."""
        n_draws = default_n_draws(job.size, job.posterior.n_dims)
        with job.report.part("weighting draws"):
            draws = job.weighting(n_draws, rng=job.rng)
        with job.report.part("log-likelihoods"):
            problem, candidates = tangent_problem(job.posterior, draws, rng=job.rng)
        with job.report.part("choosing rows", total=job.size) as show:
            selection = solve(
                cast(GreedyMethod[Any], self._capped()),
                problem,
                min(job.size, problem.n_obs),
                rng=job.rng,
                callback=show,
            )
        return selection.of(candidates)

    def _capped(self) -> Self:
        tolerance = self.tolerance
        if tolerance is None or tolerance <= LOOSEST:
            return self
        return cast(Self, replace(cast(Any, self), tolerance=LOOSEST))
