"""Greedy sparse variational inference, and the alternatives of the paper's Appendix D."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.methods.adaptive import AdaptiveMethod, AdaptiveState, Tangent, TangentDraws
from pymc_coresets.options import flag, one_of, positive_number, whole_number
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.nnls import nonnegative_least_squares
from pymc_coresets.solving.problem import Vector, rounding, tangent_vectors, unit_rows
from pymc_coresets.solving.solution import Status

type Update = Literal["sgd", "single", "quadratic", "l1"]

_RIDGE = 0.01  # smallest curvature of a Newton step over the mean variance of the potentials
_REACH = 1.0  # standard deviation of the change of log pi_w in a step: its model is local
_MEMORY, _TINY = (0.9, 0.999), 1e-8  # of Adam, as its authors recommend
_DECREASE = 10.0  # of an l1 penalty whose coreset is still small enough
_PENALTIES = 16  # tried for l1, by decreases and then by bisection


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseVIState(AdaptiveState):
    """Adds the rows to choose from and, for ``update="l1"``, the bracket of the penalty.

    Parameters
    ----------
    pool : Rows or None
        All rows; None where each selection draws its own subsample.
    scales : ndarray of shape (len(pool),)
        Standard deviations of the potentials under the prior; empty for the greedy updates.
    enough, too_little : float
        Smallest penalty known to leave at most ``size`` rows, largest known to leave more.
    """

    pool: Rows | None = None
    scales: Vector = field(default_factory=lambda: np.zeros(0))
    enough: float = math.inf
    too_little: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SparseVI(AdaptiveMethod[SparseVIState]):
    """Minimise KL(pi_w || pi) by stochastic gradients, one row after another.

    It needs no weighting distribution, for it draws from the coreset's own posterior. Use it
    where rows are fewer than parameters; elsewhere pursuit in the tangent space at pi_w is more
    accurate in a hundredth of the time. A step takes ``n_steps + 1`` sets of draws and
    ``n_steps + 2`` passes over the data, or over a subsample; its selection holds the potentials of
    all rows, (n_obs, n_draws) numbers, in memory. A row may be selected repeatedly, so
    the coreset may end with fewer than ``size`` points.

    Parameters
    ----------
    update : {"sgd", "single", "quadratic", "l1"}
        How weights change after a selection: all of them by projected gradient steps; only the
        scale of the old ones and the new one (Appendix D.1); by non-negative Newton steps, of
        which a few are enough (``n_steps=5``; D.2). "l1" selects no rows but follows the gradients
        of all under a penalty that leaves ``size`` of them (D.3); then it refines these without
        penalty. It costs up to 32 ``n_steps`` passes in all, ends far below ``size`` because
        similar rows leave together, and is offered for comparison only.
    draws : int
        Draws for each estimate.
    n_steps : int
        Updates of the weights in a step, each with fresh draws.
    step_size : float, optional
        A number gives the paper's own schedule, ``w <- max(0, w - step_size / t * gradient)``; it
        takes 1 for its Gaussian and 0.5 for its regression experiments. By default steps have the
        right scale by themselves, see Notes.
    adam : bool, default False
        Take Adam steps of length ``step_size / t`` instead of the gradient itself, as the authors'
        published code does: the paper's figures are those of these steps.
    n_subsample : int, optional
        Rows that estimate the sum over the data, without bias, in each gradient and that compete
        in each selection with those already in the coreset; by default all.

    Raises
    ------
    InvalidOptionError
        If an option is out of range.

    Notes
    -----
    Selection takes the largest correlation of a potential with the residual ``log r``, or its
    absolute value for rows in the coreset (Equation 13). The paper's constant step knows neither
    the number of rows nor how much the potentials vary: where it is too small, the sum of the
    weights grows only like the square of their number, and where it is too large, the first step
    overshoots to a posterior too narrow for the next gradients to see the data. By default,
    gradients ``D_n`` are divided by the variances of ``f_n``, and step t goes the 1/t-th part of
    the way to the minimum of ``J`` along this direction p, to
    ``w + (-<D, p> / Var[sum_n p_n f_n] / t) p``, but not further than a standard deviation of
    1 nat in ``log pi_w``, beyond which J is no model any more: a longer step may overshoot to a
    posterior too narrow to see the data. Scaling a potential then scales its weight inversely and
    changes nothing else. For "quadratic", ``w <- (1 - g) w + g v`` with
    ``g = min(1, step_size / t)``, by default 1/t, which averages the solutions v. The Hessian of
    Equation 91 is indefinite far from the optimum: its eigenvalues are replaced by their absolute
    values, and small ones by a hundredth of the mean variance of the potentials.

    References
    ----------
    .. [1] Campbell, T. and Beronov, B. (2019). Sparse Variational Inference: Bayesian Coresets
       from Scratch, Algorithm 1 and Appendix D. https://arxiv.org/abs/1906.03329

    Examples
    --------
    >>> SparseVI(draws=200, step_size=0.5).update
    'sgd'
    """

    name: ClassVar[str] = "sparse_vi"

    update: Update = "sgd"
    draws: int = 100
    n_steps: int = 500
    step_size: float | None = None
    adam: bool = False
    n_subsample: int | None = None

    def __post_init__(self) -> None:
        one_of("update", self.update, get_args(Update.__value__))
        whole_number("draws", self.draws, least=2)
        whole_number("n_steps", self.n_steps, least=1)
        if self.step_size is not None:
            positive_number("step_size", self.step_size)
        if flag("adam", self.adam) and (
            self.step_size is None or self.update not in {"sgd", "single"}
        ):
            raise InvalidOptionError(
                f"adam=True takes a step_size, like 0.5 (it is {self.step_size}), and update='sgd' "
                f"or 'single' (it is {self.update!r})."
            )
        if self.n_subsample is not None:
            whole_number("n_subsample", self.n_subsample, least=1)

    def start(self, source: TangentDraws[Any], size: int) -> SparseVIState:
        """Draw from the prior."""
        posterior, n_rows = source.posterior, source.n_rows
        nothing = posterior.scan(1, key=0).rows.take(slice(0, 0))
        tangent = self._tangent(source, nothing, np.zeros(0))
        empty = SparseVIState(
            source=source,
            size=size,
            rows=nothing,
            weights=np.zeros(0),
            tangent=tangent,
            step_limit=size,
        )
        if self.update != "l1" and self.n_subsample is not None:
            return empty
        with source.history.evaluating(n_rows, self.draws, of=n_rows):
            pool = posterior.look(tangent.draws, n_candidates=n_rows).candidates
        if self.update != "l1":
            return replace(empty, pool=pool)
        vectors = tangent_vectors(source.loglik(tangent.draws, pool, self.draws))
        return replace(
            empty,
            pool=pool,
            rows=pool,
            weights=np.zeros(len(pool)),
            scales=np.linalg.norm(vectors, axis=1),
            enough=float((unit_rows(vectors) @ tangent.residual).max(initial=0.0)),
            step_limit=_PENALTIES,
        )

    def step(self, state: SparseVIState) -> SparseVIState:
        """Select a row and update the weights; for "l1", try a penalty."""
        if self.update == "l1":
            return self._try_penalty(state)
        best = self._select(state)
        if best is None:
            return replace(state, status=Status.OPTIMAL)
        rows = Rows.joined([state.support, best])
        weights = np.zeros(len(rows))
        weights[rows.where(state.support.positions)] = state.weights[state.weights > 0]
        if self.update == "quadratic":
            weights = self._newton(state, rows, weights)
        elif self.update == "sgd":
            weights = self._descend(state, rows, weights)
        else:  # the scale of the old weights and the new weight, Equation 89
            is_new = (rows.positions == best.positions).astype(np.float64)
            both = np.stack([weights, is_new])
            weights = self._descend(state, rows, np.array([1.0, 0.0]), directions=both)
        return self._move(state, rows, weights)

    def _tangent(self, source: TangentDraws[Any], rows: Rows, weights: Vector) -> Tangent:
        return source.at(rows, weights, self.draws, self.n_subsample)

    def _move(self, state: SparseVIState, rows: Rows, weights: Vector) -> SparseVIState:
        """Return the state at these weights, and 0 elsewhere."""
        kept = np.flatnonzero(weights > 0)
        rows, weights = rows.take(kept), weights[kept]
        tangent = self._tangent(state.source, rows, weights)
        moved = replace(state, rows=rows, weights=weights, tangent=tangent)
        return replace(moved, status=Status.SIZE_REACHED) if moved.is_full else moved

    def _select(self, state: SparseVIState) -> Rows | None:
        """Row of the largest correlation with the residual, Equation 13; None if there is none."""
        source, tangent, support = state.source, state.tangent, state.support
        rows = state.pool
        if rows is None:
            n_subsample = cast(int, self.n_subsample)
            scan = source.posterior.scan(n_subsample, key=random_key(source.rng))
            rows = Rows.joined([support, scan.rows])
        if not len(rows):
            return None
        vectors = tangent_vectors(source.loglik(tangent.draws, rows, self.draws))
        correlations = unit_rows(vectors) @ tangent.residual
        chosen = np.isin(rows.positions, support.positions)
        scores = np.where(chosen, np.abs(correlations), correlations)
        best = int(scores.argmax())
        return rows.take(np.array([best])) if scores[best] > rounding(tangent.residual) else None

    def _descend(
        self,
        state: SparseVIState,
        rows: Rows,
        factors: Vector,
        *,
        directions: Vector | None = None,
        penalty: Vector | float = 0.0,
    ) -> Vector:
        """Projected gradient steps for the weights, or for the factors of directions of them.

        With a penalty per row they are those of Equation 96.
        """
        adam = _Adam(np.zeros_like(factors), np.zeros_like(factors))
        weights = factors if directions is None else factors @ directions
        for t in range(1, self.n_steps + 1):
            tangent = self._tangent(state.source, rows, weights)
            vectors = tangent.vectors if directions is None else directions @ tangent.vectors
            gradient = penalty - vectors @ tangent.residual
            if self.adam:
                gradient, adam = adam.after(gradient, t)
            factors = self._moved(factors, gradient, vectors, t)
            weights = factors if directions is None else factors @ directions
        return weights

    def _moved(self, weights: Vector, gradient: Vector, vectors: Vector, t: int) -> Vector:
        """Projected gradient step t: the paper's, or one that finds its own scale."""
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
        return np.maximum(weights + min(slope / speed**2 / t, _REACH / speed) * direction, 0.0)

    def _newton(self, state: SparseVIState, rows: Rows, weights: Vector) -> Vector:
        """Damped non-negative Newton steps, Equations 90 to 94."""
        for t in range(1, self.n_steps + 1):
            tangent = self._tangent(state.source, rows, weights)
            missing = tangent.residual * math.sqrt(self.draws)
            hessian = (tangent.vectors * (1 - missing)) @ tangent.vectors.T
            ridge = _RIDGE * np.square(tangent.vectors).sum() / len(rows)
            values, axes = np.linalg.eigh(hessian)
            lengths = np.sqrt(np.maximum(np.abs(values), ridge))
            root = axes * lengths  # H = root @ root.T
            goal = weights @ root - (tangent.gradient @ axes) / lengths
            optimum = nonnegative_least_squares(root, goal)
            share = min(1.0, (self.step_size or 1.0) / t)
            weights = (1 - share) * weights + share * optimum
        return weights

    def _try_penalty(self, state: SparseVIState) -> SparseVIState:
        """Follow one penalty, and narrow the bracket of those that leave ``size`` rows."""
        if state.enough <= 0:
            return replace(state, status=Status.OPTIMAL)
        penalty = math.sqrt(state.enough * state.too_little) or state.enough / _DECREASE
        pool = cast(Rows, state.pool)
        weights = np.zeros(len(pool))
        weights[pool.where(state.rows.positions)] = state.weights
        weights = self._descend(state, pool, weights, penalty=penalty * state.scales)
        kept = np.flatnonzero(weights > 0)
        if len(kept) > state.size:
            return replace(state, too_little=penalty)
        refined = self._descend(state, pool.take(kept), weights[kept])
        return replace(self._move(state, pool.take(kept), refined), enough=penalty)


@dataclass(frozen=True, eq=False)
class _Adam:
    """Running means of gradients and of their squares (Kingma and Ba 2015, Algorithm 1)."""

    mean: Vector
    square: Vector

    def after(self, gradient: Vector, t: int) -> tuple[Vector, "_Adam"]:
        """Return a direction with entries of about 1, and the means for the next step."""
        mean = _MEMORY[0] * self.mean + (1 - _MEMORY[0]) * gradient
        square = _MEMORY[1] * self.square + (1 - _MEMORY[1]) * gradient**2
        corrected = np.sqrt(square / (1 - _MEMORY[1] ** t))
        direction = mean / (1 - _MEMORY[0] ** t) / (corrected + _TINY)
        return direction, _Adam(mean, square)
