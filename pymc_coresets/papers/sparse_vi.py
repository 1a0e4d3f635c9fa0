"""Greedy sparse variational inference: one row per step, weights by stochastic gradients."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.methods.loop import Measure, Measurement
from pymc_coresets.options import flag, if_given, positive_number, whole_number
from pymc_coresets.papers.adaptive import AdaptiveMethod, AdaptiveState
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector, rounding, tangent_vectors, unit_rows
from pymc_coresets.solving.solution import Selection, Status


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseVIState(AdaptiveState):
    """Adds the rows to choose from.

    Parameters
    ----------
    pool : Rows
        All rows; none if each selection draws its own subsample.
    """

    pool: Rows


@dataclass(frozen=True, kw_only=True)
class SparseVI(AdaptiveMethod[SparseVIState]):
    """Minimise KL(pi_w || pi) by stochastic gradients, adding one row per step.

    It needs no weighting distribution, since it draws from the coreset's own posterior. Use it
    if there are fewer rows than parameters; otherwise pursuit in the tangent space at pi_w is more
    accurate in a hundredth of the time. A step takes ``n_steps + 1`` sets of draws and
    ``n_steps + 2`` passes over the data, or over a subsample; a selection holds log-likelihoods of
    all rows, (n_obs, n_draws) numbers, in memory. A row may be selected repeatedly, so
    the coreset may end with fewer than ``size`` points.

    Parameters
    ----------
    draws : int
        Draws for each estimate.
    n_steps : int
        Updates of the weights in a step, each with fresh draws.
    step_size : float, optional
        A number gives the paper's own schedule, ``w <- max(0, w - step_size / t * gradient)``; it
        takes 1 for its Gaussian and 0.5 for its regression experiments. By default steps are
        scaled automatically, see Notes.
    adam : bool, default False
        Take Adam steps of length ``step_size / t`` instead of the gradient itself, as in the
        authors' published code, which produced the paper's figures.
    n_subsample : int, optional
        Rows that estimate the sum over the data, without bias, in each gradient and that compete
        in each selection with those already in the coreset; by default all.

    Raises
    ------
    InvalidOptionError
        If an option is out of range.

    Notes
    -----
    Selection takes the largest correlation of a log-likelihood with the residual ``log r``, or its
    absolute value for rows in the coreset (Equation 13). The paper's constant step depends neither
    on the number of rows nor on the variance of log-likelihoods: if it is too small, the sum of the
    weights grows only like the square of their number; if it is too large, the first step
    overshoots to a posterior too narrow for the next gradients to see the data. By default,
    gradients ``D_n`` are divided by the variances of ``f_n``, and step t goes the 1/t-th part of
    the way to the minimum of ``J`` along this direction p, to
    ``w + (-<D, p> / Var[sum_n p_n f_n] / t) p``, but not further than a standard deviation of
    1 nat in ``log pi_w``, beyond which J is not a valid model: a longer step may overshoot to a
    posterior too narrow to see the data. Scaling a log-likelihood then scales its weight inversely
    and changes nothing else.

    References
    ----------
    .. [1] Campbell, T. and Beronov, B. (2019). Sparse Variational Inference: Bayesian Coresets
       from Scratch, Algorithm 1. https://arxiv.org/abs/1906.03329

    Examples
    --------
    >>> SparseVI(draws=200, step_size=0.5).n_steps
    500
    """

    name: ClassVar[str] = "sparse_vi"

    draws: int = 100
    n_steps: int = 500
    step_size: float | None = None
    adam: bool = False
    n_subsample: int | None = None

    def __post_init__(self) -> None:
        whole_number("draws", self.draws, least=2)
        whole_number("n_steps", self.n_steps, least=1)
        if_given(positive_number, "step_size", self.step_size)
        if flag("adam", self.adam) and self.step_size is None:
            raise InvalidOptionError("adam=True needs a step_size, such as 0.5.")
        if_given(whole_number, "n_subsample", self.n_subsample, least=1)

    def start[D](self, measure: Measure[D], size: int) -> SparseVIState:
        """Draw from the prior."""
        posterior, n_rows = measure.posterior, measure.n_rows
        nothing = posterior.subsample(1, key=0).rows.take(slice(0, 0))
        prior = self.measured(measure, Selection(rows=nothing, weights=np.zeros(0)))
        empty = SparseVIState(measure=measure, size=size, coreset=prior, pool=nothing)
        if self.n_subsample is not None:
            return empty
        sums = measure.sums(prior.draws, self.draws, n_candidates=n_rows)
        return replace(empty, pool=sums.candidates)

    def step(self, state: SparseVIState) -> SparseVIState:
        """Select a row, and update the weights of all that are chosen."""
        best = self._select(state)
        if best is None:
            return replace(state, status=Status.OPTIMAL)
        before = state.coreset.support
        rows = Rows.joined([before.rows, best])
        weights = np.zeros(len(rows))
        weights[rows.where(before.rows.positions)] = before.weights
        for_all = self._descend(state.measure, Selection(rows=rows, weights=weights))
        moved = replace(state, coreset=self.measured(state.measure, for_all.support))
        is_full = moved.coreset.size >= state.size
        return replace(moved, status=Status.SIZE_REACHED) if is_full else moved

    def measured[D](self, measure: Measure[D], coreset: Selection) -> Measurement:
        """Draw from a coreset's posterior, and evaluate all rows there, or some of them."""
        size = self.n_subsample
        if size is None:
            return measure.at(coreset, self.draws)
        some = partial(measure.estimate, size=size)
        return measure.at(coreset, self.draws, sums=some)

    def _select(self, state: SparseVIState) -> Rows | None:
        """Row of the largest correlation with the residual, Equation 13; None if there is none."""
        measure, support, rows = state.measure, state.coreset.support.rows, state.pool
        residual = state.coreset.residual
        if self.n_subsample is not None:
            subsample = measure.posterior.subsample(self.n_subsample, key=random_key(measure.rng))
            rows = Rows.joined([support, subsample.rows])
        if not len(rows):
            return None
        vectors = tangent_vectors(measure.loglik(state.coreset.draws, rows, self.draws))
        correlations = unit_rows(vectors) @ residual
        chosen = np.isin(rows.positions, support.positions)
        scores = np.where(chosen, np.abs(correlations), correlations)
        best = int(scores.argmax())
        return rows.take(np.array([best])) if scores[best] > rounding(residual) else None

    def _descend[D](self, measure: Measure[D], coreset: Selection) -> Selection:
        """Projected gradient steps for the weights of the rows."""
        means = np.zeros((2, len(coreset.weights)))
        for t in range(1, self.n_steps + 1):
            measured = self.measured(measure, coreset)
            gradient = measured.gradient
            if self.adam:
                gradient = adam_direction(gradient, means, t)
            weights = self._moved(measured.weights, gradient, measured.vectors, t)
            coreset = Selection(rows=coreset.rows, weights=weights)
        return coreset

    def _moved(self, weights: Vector, gradient: Vector, vectors: Vector, t: int) -> Vector:
        """Projected gradient step t: the paper's, or one scaled automatically."""
        if self.step_size is not None:
            return np.maximum(weights - self.step_size / t * gradient, 0.0)
        variances = np.square(vectors).sum(axis=1)
        usable = (variances > 0) & ((weights > 0) | (gradient < 0))
        direction: Vector = np.divide(
            -gradient, variances, out=np.zeros_like(gradient), where=usable
        )
        speed = float(np.linalg.norm(direction @ vectors))
        if speed == 0:
            return weights
        slope = -float(gradient @ direction)
        length = min(slope / speed**2 / t, 1 / speed)  # changes log pi_w by 1 nat at most
        return np.maximum(weights + length * direction, 0.0)


def adam_direction(gradient: Vector, means: Vector, t: int) -> Vector:
    """Return a direction with entries of about 1 (Kingma and Ba 2015, Algorithm 1).

    The running means of gradients and of their squares, (2, n_rows), are moved in place.
    """
    betas, tiny = np.array([0.9, 0.999]), 1e-8  # as the authors recommend
    means *= betas[:, None]
    means += (1 - betas)[:, None] * [gradient, gradient**2]
    mean, square = means / (1 - betas**t)[:, None]
    direction: Vector = mean / (np.sqrt(square) + tiny)
    return direction
