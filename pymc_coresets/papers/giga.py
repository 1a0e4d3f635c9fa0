"""GIGA: greedy iterative geodesic ascent on the unit sphere."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pymc_coresets.methods.hilbert import HilbertMethod, State, refit
from pymc_coresets.options import flag
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Status


@dataclass(frozen=True, kw_only=True, eq=False)
class GIGAState(State):
    """Adds inner products that avoid a second pass.

    Parameters
    ----------
    alignment : ndarray of shape (n_obs,)
        ``<V_n / ||V_n||, L>``, from the only pass before the first step.
    direction : ndarray of shape (n_draws,)
        ``y = L(w) / ||L(w)||``; 0 at the start.
    """

    alignment: Vector
    direction: Vector


@dataclass(frozen=True, kw_only=True)
class GIGA(HilbertMethod[GIGAState]):
    """Hilbert coreset by greedy iterative geodesic ascent.

    Its error falls geometrically at little cost per step. `Pursuit` reaches smaller errors at the
    same size for the same number of passes. One pass over the vectors per step and one before the
    first; a row may be selected repeatedly, so the coreset may end with fewer than ``size`` points.

    Parameters
    ----------
    polish : bool
        Solve for the best non-negative weights on the chosen rows at the end (see `refit`);
        False gives the paper's own weights, whose KL divergence is often larger by orders of
        magnitude.
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
    With unit vectors ``l_n``, ``l`` and ``y`` of rows, target and coreset, each step selects the
    row whose geodesic from y starts closest to the one that leads to l, and goes to the point
    of its geodesic closest to l. As the coreset is always scaled optimally, its residual is
    ``r = L - <L, y> y``, orthogonal to y, and the score is

    ``<l - <l,y>y, l_n - <l_n,y>y> / ||l_n - <l_n,y>y|| ~ <l_n, r> / sqrt(1 - <l_n, y>^2)``

    with ``<l_n, y> = (<l_n, L> - <l_n, r>) / <L, y>``: one product with r is enough, and unlike
    a running combination of products it neither drifts nor cancels when y is close to l.

    References
    ----------
    .. [1] Campbell, T. and Broderick, T. (2018). Bayesian Coreset Construction via Greedy
       Iterative Geodesic Ascent, Algorithm 2. https://proceedings.mlr.press/v80/campbell18a.html

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.solving.problem import Problem
    >>> from pymc_coresets.methods.hilbert import solve
    >>> vectors = np.eye(2)
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), case_weights=np.ones(2))
    >>> solve(GIGA(), problem, 2).weights
    array([1., 1.])
    """

    name: ClassVar[str] = "giga"

    polish: bool = True

    def __post_init__(self) -> None:
        flag("polish", self.polish)
        super().__post_init__()

    def start(self, empty: State) -> GIGAState:
        """Compare all rows with the target."""
        alignment, nowhere = empty.space.project(empty.residual), np.zeros_like(empty.residual)
        return GIGAState(**vars(empty), alignment=alignment, direction=nowhere)

    def step(self, state: GIGAState) -> GIGAState:
        """Follow the best geodesic to its point closest to the target."""
        space = state.space
        ascent, sine = _geodesics(state)
        best = space.best(ascent / sine)
        unit = space.row(best) * space.inverse_norms[best]
        rise = unit @ state.residual
        if rise <= space.rounding + space.resolution * np.linalg.norm(state.residual):
            return replace(state, status=Status.OPTIMAL)
        y = state.direction
        reach, overlap = space.target @ y, unit @ y
        side = unit - overlap * y
        # zeta_0 - zeta_1 zeta_2 and zeta_1 - zeta_0 zeta_2 of the paper, times ||L||
        gamma = rise / (rise + max(reach * (side @ side) - overlap * rise, 0.0))

        combined = (1 - gamma) * y + gamma * unit
        length = float(np.linalg.norm(combined))
        y = combined / length
        residual = space.target - (space.target @ y) * y
        residual -= (residual @ y) * y  # once more: r is a small difference near the optimum
        if residual @ residual >= state.residual @ state.residual:
            return replace(state, status=Status.NO_PROGRESS)
        weights = state.weights * ((1 - gamma) / (reach or 1.0))
        weights[best] += gamma * space.inverse_norms[best]
        weights *= (space.target @ y) / length
        return state.moved(weights=weights, residual=residual, direction=y)

    def finish(self, state: GIGAState) -> State:
        """Remove the rounding errors of the running direction, and polish."""
        space = state.space
        matched = space.target - space.residual(state.weights)
        scale = (space.target @ matched) / (matched @ matched) if matched.any() else 1.0
        weights = scale * state.weights
        exact = replace(state, weights=weights, residual=space.residual(weights))
        return refit(exact) if self.polish else exact


def _geodesics(state: GIGAState) -> tuple[Vector, Vector]:
    """``<l_n, r>`` and ``||l_n - <l_n, y> y||`` of every row, from one pass."""
    space = state.space
    ascent = space.project(state.residual)
    reach = float(space.target @ state.direction)
    cosine = (state.alignment - ascent) / (reach or 1.0)
    # The direction of a row this close to y is rounding error: its score is bounded, not amplified.
    return ascent, np.sqrt(np.maximum(1 - np.square(cosine), 4 * space.resolution))
