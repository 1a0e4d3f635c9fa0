"""Quasi-Newton coresets: rows chosen at random, weights by Newton steps under pi_w."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from pymc_coresets.diagnostics.importance import EFFECTIVE_SHARE
from pymc_coresets.methods.loop import Measure, Measurement
from pymc_coresets.options import positive_number, whole_number
from pymc_coresets.papers.adaptive import AdaptiveMethod, AdaptiveState
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.solving.problem import Vector, nonnegative_least_squares
from pymc_coresets.solving.solution import Selection, Status


@dataclass(frozen=True, kw_only=True)
class QuasiNewton(AdaptiveMethod[AdaptiveState]):
    """Choose rows uniformly, then fit their weights by Newton steps for KL(pi_w || pi).

    It is cheap: rows are chosen once, and a step costs one pass over the data, one set of draws
    and one non-negative least-squares problem in (size, n_draws). As rows are chosen without
    looking at the data, it needs several times as many as methods that select them. Use at least
    3 to 5 times as many draws as points.

    Parameters
    ----------
    draws : int
        Draws for each step.
    max_iterations : int
        Largest number of Newton steps.
    regularisation : float
        Ridge of the covariance of the log-likelihoods, as a share of their mean variance.

    Raises
    ------
    InvalidOptionError
        If an option is out of range.

    Notes
    -----
    With ``G = Cov_w[f_A]`` and ``D = Cov_w[f_A, log r]`` from draws of pi_w, the paper takes
    ``w + g (G + tau I)^-1 D``, clips it at 0, and searches g with new draws. Here the full step
    goes to the minimiser v of ``(v - w)^T (G + tau I) (v - w) / 2 - D^T (v - w)`` over ``v >= 0``,
    because clipping loses the mass that other weights were to balance, and tau is relative, because
    G has the unit of squared log-likelihoods. The first of ``g = 1, 1/1.5, 1/1.5^2, ...`` is taken
    that lowers KL(pi_w || pi) by two standard errors, in the estimate from the same draws
    re-weighted by ``exp(sum (w' - w) f)``, as long as their effective sample size is at least a
    quarter of their number. If none does, the run stops: the remaining error is Monte Carlo noise,
    which more draws would lower.

    References
    ----------
    .. [1] Naik, C., Rousseau, J. and Campbell, T. (2022). Fast Bayesian Coresets via Subsampling
       and Quasi-Newton Refinement, Algorithm 1. https://arxiv.org/abs/2203.09675

    Examples
    --------
    >>> QuasiNewton(draws=1000).max_iterations
    50
    """

    name: ClassVar[str] = "quasi_newton"

    draws: int = 500
    max_iterations: int = 50
    regularisation: float = 1e-3

    def __post_init__(self) -> None:
        whole_number("draws", self.draws, least=2)
        whole_number("max_iterations", self.max_iterations, least=1)
        positive_number("regularisation", self.regularisation)

    def start[D](self, measure: Measure[D], size: int) -> AdaptiveState:
        """Start from distinct rows, drawn in proportion to their case weights."""
        subsample = measure.posterior.subsample(size, key=random_key(measure.rng), distinct=True)
        uniform = Selection(rows=subsample.rows, weights=subsample.weights)
        return AdaptiveState(measure=measure, size=size, coreset=measure.at(uniform, self.draws))

    def most_steps(self, size: int) -> int:  # noqa: ARG002
        """Largest number of steps, from the option."""
        return self.max_iterations

    def step(self, state: AdaptiveState) -> AdaptiveState:
        """Step towards the Newton point, with a length supported by the draws."""
        coreset = state.coreset
        change = self._newton_point(coreset) - coreset.weights
        for trial in range(25):  # the last step is 6e-5 of a Newton step
            move = change * 1.5**-trial
            if _lowers_divergence(coreset, move):
                break
        else:
            return replace(state, status=Status.NO_PROGRESS)
        moved = Selection(rows=coreset.rows, weights=np.maximum(coreset.weights + move, 0.0))
        return replace(state, coreset=state.measure.at(moved, self.draws))

    def _newton_point(self, coreset: Measurement) -> Vector:
        """Non-negative minimiser of the regularised quadratic model."""
        vectors, weights = coreset.vectors, coreset.weights
        ridge = math.sqrt(self.regularisation * float(np.square(vectors).sum()) / len(vectors))
        rows = np.hstack([vectors, ridge * np.eye(len(vectors))])
        goal = np.concatenate([coreset.residual + weights @ vectors, ridge * weights])
        return nonnegative_least_squares(rows, goal)


def _lowers_divergence(coreset: Measurement, move: Vector) -> bool:
    """Whether KL(pi_w || pi) falls after a change of w, estimated by re-weighting the same draws.

    Up to a constant, ``KL(pi_w || pi) = -log Z(w) - E_w[log r]``; its standard error follows from
    the estimator's influence function.
    """
    missing = coreset.log_ratios
    n_draws = len(missing)
    tilt = math.sqrt(n_draws) * (move @ coreset.vectors)
    log_ratio = float(logsumexp(tilt)) - math.log(n_draws)
    ratios = np.exp(tilt - log_ratio)
    left = missing - tilt
    change = -log_ratio - float(ratios @ left) / n_draws
    influence = missing - (ratios - 1) - ratios * (left - ratios @ left / n_draws)
    error = float(np.std(influence)) / math.sqrt(n_draws)
    effective = n_draws / float(np.square(ratios).mean())
    return change < -max(2 * error, 1e-10) and effective >= EFFECTIVE_SHARE * n_draws
