"""Run a method on a model: each kind of method is given what it works with."""

import logging
import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError, SamplingError
from pymc_coresets.glm.logistic.recognition import logistic_rows
from pymc_coresets.glm.logistic.sensitivity import (
    Sensitivities,
    Sensitivity,
    bound_sensitivities,
    guaranteed_size,
    sample_by_sensitivity,
)
from pymc_coresets.glm.logistic.signed_rows import find_centers
from pymc_coresets.glm.predictor.linear import find_linear_predictor
from pymc_coresets.methods.adaptive import AdaptiveMethod, solve_adaptively
from pymc_coresets.methods.quasi_newton import QuasiNewton
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.methods.sparse_vi import SparseVI
from pymc_coresets.methods.uniform import Uniform, sample_uniform
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.observations import Observations
from pymc_coresets.sampling.reuse import ReusingSampler
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.weighting import Weighting
from pymc_coresets.solving.candidates import default_n_draws, tangent_problem
from pymc_coresets.solving.loop import Method, solve
from pymc_coresets.solving.solution import Progress, Solution, Status, Trace

__all__ = ["AnyMethod", "Construction"]

_log = logging.getLogger(__name__)

#: Methods at fixed draws, methods that draw as they go, the one that works in rounds, and the one
#: for logistic regression.
type AnyMethod = Method[Any] | AdaptiveMethod[Any] | RiemannianPursuit | Sensitivity


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
            return _sampled(*sample_uniform(self.posterior.base_weights, self.size, rng=rng))
        if isinstance(method, Sensitivity):
            return self._by_sensitivity(method, rng)
        if isinstance(method, RiemannianPursuit):
            with self.report.part("rounds", total=method.max_rounds + 1) as show:
                solution = method.construct(
                    self.posterior, self.size, rng=rng, callback=show, deadline=self.deadline
                )
            self.report.counts.update(self.posterior.counts)
            return solution
        if isinstance(method, SparseVI | QuasiNewton):
            return self._drawing(cast(AdaptiveMethod[Any], method), rng)
        return self._at_fixed_draws(cast(Method[Any], method), rng)

    def _drawing(self, method: AdaptiveMethod[Any], rng: np.random.Generator) -> Solution:
        """Draw hundreds of times: Laplace's draws, or re-weighted ones where there is no mode."""
        laplace = self.posterior.with_sampler("laplace")
        with self.report.part("choosing rows", total=self.size) as show:
            try:
                solution = solve_adaptively(method, laplace, self.size, rng=rng, callback=show)
            except SamplingError as error:
                _log.info("NUTS instead of Laplace approximations: %s", error)
            else:
                if solution.status is not Status.SAMPLING_FAILED:
                    self.report.counts.update(laplace.counts)
                    return solution
            reusing = ReusingSampler(self.posterior.with_sampler("auto", coarse_start=False))
            solution = solve_adaptively(method, reusing, self.size, rng=rng, callback=show)
            self.report.counts.update(reusing.counts)
            return solution

    def _by_sensitivity(self, method: Sensitivity, rng: np.random.Generator) -> Solution:
        base_weights = self.posterior.base_weights
        with self.report.part("linear predictor"):
            rows = logistic_rows(find_linear_predictor(self.observations))
        with self.report.part("sensitivities"):
            centers = find_centers(rows, method.n_clusters, base_weights=base_weights, rng=rng)
            found = bound_sensitivities(rows, centers, method, base_weights=base_weights)
        n_draws = self._n_draws(method, found, rows.n_dims)
        self.report.figures.update(_figures(method, found, n_draws))
        return _sampled(*sample_by_sensitivity(found.values, base_weights, n_draws, rng=rng))

    def _n_draws(self, method: Sensitivity, found: Sensitivities, n_dims: int) -> int:
        if method.epsilon is None:
            return self.size
        n_draws = guaranteed_size(found.mean, n_dims, epsilon=method.epsilon, delta=method.delta)
        if n_draws >= self.size:
            raise InvalidOptionError(
                f"epsilon={method.epsilon} with delta={method.delta} asks for {n_draws:,} draws at "
                f"a mean sensitivity of {found.mean:.3g} in a ball of radius {found.radius:.3g}, "
                f"but there are {self.size:,} rows: allow a larger epsilon, give a smaller radius "
                "(and center=... for where the ball lies), or leave epsilon out and give a size."
            )
        return n_draws

    def _at_fixed_draws(self, method: Method[Any], rng: np.random.Generator) -> Solution:
        base_weights = self.posterior.base_weights
        n_draws = default_n_draws(self.size, self.posterior.n_dims)
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


def _figures(method: Sensitivity, found: Sensitivities, n_draws: int) -> dict[str, Any]:
    """What the guarantee rests on."""
    figures: dict[str, Any] = {"n_draws": n_draws, "mean sensitivity": found.mean}
    figures |= {f"sensitivity {level}": value for level, value in found.quantiles.items()}
    figures |= {"radius": found.radius, "center": 0.0 if method.center is None else found.center}
    if method.epsilon is not None:
        figures |= {"epsilon": method.epsilon, "delta": method.delta}
    return figures


def _sampled(indices: np.ndarray, weights: np.ndarray) -> Solution:
    only = Progress(size=len(indices), objective=math.nan, heldout_objective=math.nan, seconds=0.0)
    trace = Trace.of([only])
    return Solution(
        indices=indices,
        weights=weights,
        history=trace,
        status=Status.SIZE_REACHED,
        objective=math.nan,
    )
