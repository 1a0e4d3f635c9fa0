"""Run a method on a model: each kind of method is given what it works with."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from pymc_coresets.algorithms import (
    AdaptiveMethod,
    Method,
    QuasiNewton,
    RiemannianPursuit,
    Solution,
    SparseVI,
    Status,
    Trace,
    Uniform,
    default_n_draws,
    sample_uniform,
    solve,
    solve_adaptively,
    tangent_problem,
)
from pymc_coresets.model.observations import Observations
from pymc_coresets.model.sampler import CoresetSampler
from pymc_coresets.progress import Reporter
from pymc_coresets.weighting import Weighting

__all__ = ["AnyMethod", "Construction"]

#: Methods at fixed draws, methods that draw as they go, and the one that works in rounds.
type AnyMethod = Method[Any] | AdaptiveMethod[Any] | RiemannianPursuit


@dataclass(frozen=True, kw_only=True, eq=False)
class Construction:
    """What a method may need to choose rows of a model.

    Parameters
    ----------
    observations : Observations
        Rows and pointwise log-likelihood of the model.
    posterior : CoresetSampler
        Draws of coreset posteriors, potentials, and the base weights.
    weighting : Weighting
        Where the methods with a fixed weighting distribution compare rows.
    size : int
        Largest number of weights.
    deadline : float
        Value of `time.perf_counter` after which no round begins.
    report : Reporter
        Shows and times the parts.
    """

    observations: Observations
    posterior: CoresetSampler
    weighting: Weighting
    size: int
    deadline: float
    report: Reporter

    def run(self, method: AnyMethod, *, rng: np.random.Generator) -> Solution:
        """Choose weighted rows."""
        if isinstance(method, Uniform):
            return _uniform(self.posterior.base_weights, self.size, rng)
        if isinstance(method, RiemannianPursuit):
            with self.report.part("rounds", total=method.max_rounds + 1) as show:
                return method.construct(
                    self.posterior, self.size, rng=rng, callback=show, deadline=self.deadline
                )
        if isinstance(method, SparseVI | QuasiNewton):
            return self._drawing(cast(AdaptiveMethod[Any], method), rng)
        return self._at_fixed_draws(cast(Method[Any], method), rng)

    def _drawing(self, method: AdaptiveMethod[Any], rng: np.random.Generator) -> Solution:
        posterior = self.posterior.with_sampler("laplace")  # hundreds of draws are asked for
        with self.report.part("choosing rows", total=self.size) as show:
            return solve_adaptively(method, posterior, self.size, rng=rng, callback=show)

    def _at_fixed_draws(self, method: Method[Any], rng: np.random.Generator) -> Solution:
        base_weights, n_draws = self.posterior.base_weights, default_n_draws(self.size)
        with self.report.part("weighting draws"):
            draws = self.weighting.draw(
                self.observations, n_draws, base_weights=base_weights, rng=rng
            )
        with self.report.part("log-likelihoods"):
            problem, candidates = tangent_problem(self.posterior, draws, rng=rng)
        with self.report.part("choosing rows", total=self.size) as show:
            fitting = min(self.size, problem.n_obs)
            solution = solve(method, problem, fitting, rng=rng, callback=show)
        return replace(solution, indices=candidates[solution.indices])


def _uniform(base_weights: np.ndarray, size: int, rng: np.random.Generator) -> Solution:
    indices, weights = sample_uniform(base_weights, size, rng=rng)
    empty = np.array([np.nan])
    trace = Trace(
        size=np.array([len(indices)]),
        objective=empty,
        heldout_objective=empty,
        seconds=np.zeros(1),
    )
    return Solution(indices=indices, weights=weights, history=trace, status=Status.SIZE_REACHED)
