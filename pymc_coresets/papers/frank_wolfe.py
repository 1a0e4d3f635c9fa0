"""Frank-Wolfe: convex steps towards the row best aligned with the residual."""

from dataclasses import dataclass, replace
from typing import ClassVar

from pymc_coresets.methods.hilbert import HilbertMethod, State, refit
from pymc_coresets.options import flag
from pymc_coresets.solving.solution import Status


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(HilbertMethod[State]):
    """Hilbert coreset by the Frank-Wolfe algorithm on the polytope ``sum_n w_n ||V_n|| = sigma``.

    Offered for comparison with the literature: `GIGA` needs no such constraint and `Pursuit` is
    the most accurate. One pass over the vectors per step; a row may be selected repeatedly, so the
    coreset may end with fewer points than ``size``.

    Parameters
    ----------
    polish : bool
        Solve for the best non-negative weights on the chosen rows at the end (see `refit`);
        False gives the paper's own weights.
    tolerance : float, optional
        Stop once the held-out objective is at most this many nats, or 0.1 if that is less.  It is
        measured at the weighting draws: at draws of the coreset's own posterior, as in `check`,
        the divergence may be several times larger.

    Raises
    ------
    InvalidOptionError
        If an option is out of range.

    Notes
    -----
    With ``r = L - L(w)``, select ``f = argmax <r, V_n / ||V_n||>``; with
    ``d = (sigma / ||V_f||) V_f - L(w)`` and ``gamma = <d, r> / ||d||^2`` clipped to [0, 1], set
    ``w <- (1 - gamma) w + gamma (sigma / ||V_f||) 1_f``. The first step has ``gamma = 1``.

    References
    ----------
    .. [1] Campbell, T. and Broderick, T. (2019). Automated Scalable Bayesian Inference via
       Hilbert Coresets, Algorithm 2. https://jmlr.org/papers/v20/17-613.html

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.solving.problem import Problem
    >>> from pymc_coresets.methods.hilbert import solve
    >>> vectors = np.eye(2)
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), case_weights=np.ones(2))
    >>> solve(FrankWolfe(), problem, 2).weights
    array([1., 1.])
    """

    name: ClassVar[str] = "frank_wolfe"

    polish: bool = True

    def __post_init__(self) -> None:
        flag("polish", self.polish)
        super().__post_init__()

    def start(self, empty: State) -> State:
        """Start from no rows; the first step jumps to a vertex of the polytope."""
        return empty

    def step(self, state: State) -> State:
        """Move towards the best vertex by an exact line search."""
        space = state.space
        scores = space.project(state.residual)
        best = space.best(scores)
        is_first = not state.weights.any()
        if is_first and scores[best] <= space.rounding:
            return replace(state, status=Status.OPTIMAL)
        length = space.sigma / space.norms[best]
        direction = length * space.row(best) - (space.target - state.residual)
        descent, curvature = direction @ state.residual, direction @ direction
        if not is_first and descent <= 0:
            return replace(state, status=Status.OPTIMAL)
        gamma = 1.0 if is_first else min(descent / curvature, 1.0)
        residual = state.residual - gamma * direction
        if not is_first and residual @ residual >= state.residual @ state.residual:
            return replace(state, status=Status.NO_PROGRESS)
        weights = (1 - gamma) * state.weights
        weights[best] += gamma * length
        return state.moved(weights=weights, residual=residual)

    def finish(self, state: State) -> State:
        """Remove the rounding errors of the running residual, and polish."""
        exact = replace(state, residual=state.space.residual(state.weights))
        return refit(exact) if self.polish else exact
