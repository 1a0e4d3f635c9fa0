"""Accelerated iterative hard thresholding: projected gradient steps on sparse weights."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pymc_coresets.methods.hilbert import HilbertMethod, State
from pymc_coresets.options import whole_number
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Status


@dataclass(frozen=True, kw_only=True, eq=False)
class IHTState(State):
    """Adds the current iterate, which may be worse than the best one.

    Lengths ``x_n = w_n ||V_n||`` take the place of weights.

    Parameters
    ----------
    lengths, lengths_residual : ndarray of shape (n_obs,), (n_draws,)
        Current iterate and its residual.
    ahead, ahead_residual : ndarray of shape (n_obs,), (n_draws,)
        The point that momentum extrapolates to, where the next gradient is taken.
    stalled : int
        Iterations since the objective last fell.
    """

    lengths: Vector
    lengths_residual: Vector
    ahead: Vector
    ahead_residual: Vector
    stalled: int = 0


@dataclass(frozen=True, kw_only=True)
class IHT(HilbertMethod[IHTState]):
    """Hilbert coreset by accelerated iterative hard thresholding.

    Chooses all points together rather than one by one, and ends with the best weights on its
    support (see `refit`); without refitting it does not converge on nearly collinear vectors. One
    pass over the vectors per iteration.

    Parameters
    ----------
    max_iterations : int
        Largest number of iterations; it stops earlier after 10 without improvement.
    tolerance : float, optional
        Stop once the held-out objective, before the final refit, is at most this many nats, or 0.1
        if that is less.  It is measured at the weighting draws: at draws of the coreset's own
        posterior, as in `check`, the divergence may be several times larger.

    Raises
    ------
    InvalidOptionError
        If an option is out of range.

    Notes
    -----
    Minimises ``||L - sum_n x_n l_n||^2`` over at most M positive lengths ``x_n = w_n ||V_n||`` of
    the unit rows ``l_n``; the paper works on w, which makes the result depend on the rows'
    lengths. With half the negative gradient ``g_n = <l_n, r(z)>`` at the extrapolated point z and
    S the support of z and the M largest positive g outside it, the exact step is
    ``mu = ||g_S||^2 / ||sum_S g_n l_n||^2``; x is z + mu g cut to its M largest positive entries,
    and ``z <- x + tau (x - x_old)`` with the exact ``tau`` clipped at 0. As hard thresholding is
    not monotone, the best iterate is kept.

    References
    ----------
    .. [1] Zhang, J. Y., Khanna, R., Kyrillidis, A. and Koyejo, O. (2021). Bayesian Coresets:
       Revisiting the Nonconvex Optimization Perspective, Algorithm 2.
       https://proceedings.mlr.press/v130/zhang21g.html

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.solving.problem import Problem
    >>> from pymc_coresets.methods.hilbert import solve
    >>> vectors = np.eye(2)
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), case_weights=np.ones(2))
    >>> solve(IHT(), problem, 2).weights
    array([1., 1.])
    """

    name: ClassVar[str] = "iht"

    max_iterations: int = 100

    def __post_init__(self) -> None:
        whole_number("max_iterations", self.max_iterations, least=1)
        super().__post_init__()

    def start(self, empty: State) -> IHTState:
        """Start from no rows and no momentum."""
        return IHTState(
            **vars(empty),
            lengths=empty.weights,
            lengths_residual=empty.residual,
            ahead=empty.weights,
            ahead_residual=empty.residual,
        )

    def most_steps(self, size: int) -> int:  # noqa: ARG002
        """Largest number of steps, from the option."""
        return self.max_iterations

    def step(self, state: IHTState) -> IHTState:
        """Take one thresholded gradient step, and extrapolate."""
        space = state.space
        gradient = space.project(state.ahead_residual)
        if np.linalg.norm(state.residual) <= space.rounding or (
            not state.ahead.any() and gradient.max() <= space.rounding
        ):
            return replace(state, status=Status.OPTIMAL)
        step_size = _exact_step(state, gradient)
        if not step_size:
            return replace(state, status=Status.NO_PROGRESS)
        lengths = _threshold(state.ahead + step_size * gradient, state.size)
        weights = lengths * space.inverse_norms
        residual = space.residual(weights)

        moved = state.lengths_residual - residual
        distance = moved @ moved
        momentum = max(float(residual @ moved / distance), 0.0) if distance > 0 else 0.0
        iterate = replace(
            state,
            lengths=lengths,
            lengths_residual=residual,
            ahead=lengths + momentum * (lengths - state.lengths),
            ahead_residual=residual - momentum * moved,
        )
        if residual @ residual < state.residual @ state.residual:
            return replace(iterate, weights=weights, residual=residual, stalled=0)
        stalled = state.stalled + 1
        status = Status.NO_PROGRESS if stalled == 10 else None
        return replace(iterate, stalled=stalled, status=status)


def _exact_step(state: IHTState, gradient: Vector) -> float:
    """Line search along the gradient on the support and the best ``size`` rows outside it."""
    space, support = state.space, state.ahead != 0
    outside = _threshold(np.where(support, 0.0, gradient), state.size)
    restricted = np.where(support, gradient, outside)
    change = space.target - space.residual(restricted * space.inverse_norms)
    curvature = float(change @ change)
    return float(restricted @ restricted) / curvature if curvature > 0 else 0.0


def _threshold(values: Vector, size: int) -> Vector:
    """Keep the ``size`` largest positive entries and set the others to 0."""
    kept = np.zeros_like(values)
    largest = np.argpartition(values, -size)[-size:]
    kept[largest] = np.maximum(values[largest], 0.0)
    return kept
