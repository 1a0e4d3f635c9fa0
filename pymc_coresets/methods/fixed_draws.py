"""What the methods have in common that compare rows at draws of a fixed weighting distribution."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pymc_coresets.methods.job import Job, moderate_size
from pymc_coresets.options import positive_number
from pymc_coresets.solving.candidates import default_n_draws, tangent_problem
from pymc_coresets.solving.loop import State, refit, solve
from pymc_coresets.solving.solution import Solution

LOOSEST = 0.1
"""Largest tolerance in nats, at draws of another posterior than the coreset's own: with fewer rows
some directions are not matched at all, where those draws do not show it."""


@dataclass(frozen=True, kw_only=True)
class HilbertMethod[S: State](ABC):
    """A greedy method in the tangent space of the weighting distribution.

    One pass over the data for the target, one over the candidates for their vectors, and what
    the method itself costs.

    Parameters
    ----------
    tolerance : float, optional
        Stop once the held-out objective is at most this many nats, or 0.1 where that is less.
    """

    accepts: ClassVar[Collection[str]] = frozenset({"rows", "size", "tolerance", "weighting"})
    draws_from: ClassVar[str] = ""

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            positive_number("tolerance", self.tolerance)

    @abstractmethod
    def start(self, empty: State) -> S:
        """Turn the empty coreset into this method's own state."""

    @abstractmethod
    def step(self, state: S) -> S:
        """Improve the weights once, or set the status, or both."""

    def finish(self, state: S) -> State:
        """Find the best weights of the chosen rows."""
        return refit(state)

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
        loose = self.tolerance is not None and self.tolerance > LOOSEST
        method = replace(self, tolerance=LOOSEST) if loose else self
        size = min(job.size, problem.n_obs)
        with job.report.part("choosing rows", total=job.size) as show:
            return solve(method, problem, size, rng=job.rng, callback=show).of(candidates)
