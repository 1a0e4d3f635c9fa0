"""Hamiltonian Monte Carlo of many chains at once, around a normal distribution."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pymc_coresets.deadline import stop_if_late
from pymc_coresets.sampling.normal import Normal

type OfPoints = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

#: Angle of a trajectory under the normal distribution after which its end is independent of its
#: start.
QUARTER = np.pi / 2
#: Trajectories after which the correlation with the starts must show that as many again, at most,
#: bring it to the other number.
_TRAJECTORIES, _FORGOTTEN = 12, 0.05

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class States:
    """States of chains, (n_chains, n_dims), with the log-density and its gradient there."""

    points: np.ndarray
    values: np.ndarray
    pull: np.ndarray

    def moved(self, others: "States", which: np.ndarray) -> "States":
        """Replace the states of some chains by those of others."""
        return States(
            np.where(which[:, None], others.points, self.points),
            np.where(which, others.values, self.values),
            np.where(which[:, None], others.pull, self.pull),
        )

    def first(self, n_chains: int) -> "States":
        """Return the states of the first chains alone."""
        return States(self.points[:n_chains], self.values[:n_chains], self.pull[:n_chains])

    def correlation(self, others: "States") -> float:
        """Return the largest correlation with other states, of a coordinate or the log-density."""
        one, other = (np.column_stack([c.points, c.values]) for c in (self, others))
        one, other = one - one.mean(axis=0), other - other.mean(axis=0)
        sizes = np.sqrt(np.square(one).sum(axis=0) * np.square(other).sum(axis=0))
        return float((np.abs((one * other).sum(axis=0)) / sizes).max())


def judged_by(log_density: Callable[[np.ndarray], np.ndarray]) -> Callable[[States], States]:
    """Return a function that replaces the log-densities of states."""

    def judged(states: States) -> States:
        with np.errstate(all="ignore"):
            values = log_density(states.points)
        return replace(states, values=np.where(np.isfinite(values), values, -np.inf))

    return judged


def _as_they_are(states: States) -> States:
    """Accept trajectories by the density that they follow."""
    return states


@dataclass(frozen=True, eq=False)
class TrajectoryEnds:
    """Chains after a trajectory each, by how much its energy grew, and whether they moved."""

    states: States
    lost: np.ndarray
    accepted: np.ndarray

    @property
    def chances(self) -> np.ndarray:
        """Probability of acceptance of each trajectory, (n_chains,)."""
        chances: np.ndarray = np.exp(-np.maximum(self.lost, 0.0))
        return chances


@dataclass(frozen=True, eq=False)
class SplitHmc:
    """Moves draws of a distribution near a density until they are draws of that density.

    All draws move at once, each as its own chain.  A trajectory is a quarter turn under the normal
    distribution around them, which is followed exactly; only the difference of the density from the
    normal needs steps.  So a few gradients give a draw that hardly depends on the start of the
    chain, also in thousands of dimensions, in which the sum of many small differences makes
    importance weights useless.

    Parameters
    ----------
    slopes : callable
        Returns the log-densities (n_points,), in nats, and gradients at points (n_points, n_dims).
    around : Normal
        With approximately the mean and precision of the density.
    judged : callable, optional
        Gives states the log-densities of the draws, see `judged_by`, if gradients are those of
        another density near by, which takes less time.  Trajectories along any gradients preserve
        volume and can be reversed, so that draws are exact: ends are accepted by these values.

    References
    ----------
    Shahbaba, Lan, Johnson, Neal (2014). Split Hamiltonian Monte Carlo. Statistics and Computing
    24. https://doi.org/10.1007/s11222-012-9373-1

    Examples
    --------
    Logarithms of gamma variables, which are skewed:

    >>> from pymc_coresets.sampling.factors.cholesky import factor_of
    >>> hmc = SplitHmc(
    ...     lambda x: ((5 * x - np.exp(x)).sum(axis=1), 5 - np.exp(x)),
    ...     Normal(np.full(3, 1.5), factor_of(np.eye(3) / 0.22)),
    ... )
    >>> rng = np.random.default_rng(1)
    >>> [draws] = hmc.moved(rng.normal(1.5, 0.47, size=(2_000, 3)), rng=rng)
    >>> np.exp(draws).mean().round(1), np.exp(draws).var().round(0)
    (np.float64(5.0), np.float64(5.0))
    """

    slopes: OfPoints
    around: Normal
    judged: Callable[[States], States] = _as_they_are

    def moved(self, points: np.ndarray, *, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield as many draws, (n_chains, n_dims), unless they stay correlated with the starts.

        Trajectories are repeated until every chain has moved and the product of the correlations
        between the ends of each trajectory is at most 0.05.  The largest correlation counts, of a
        coordinate or the log-density.  After twelve, as many again follow if they will be enough:
        other samplers take longer, and begin at fewer points.
        """
        chains, n_steps, left = self.at(points), 4, 1.0
        moved = np.zeros(len(points), bool)
        for n_done in range(1, 2 * _TRAJECTORIES + 1):
            after = self.after(chains, QUARTER, n_steps, rng=rng)
            left, moved = left * chains.correlation(after.states), moved | after.accepted
            chains, share = after.states, float(after.accepted.mean())
            _log.info("%d gradients: %.2f accepted, correlation %.2g", n_steps, share, left)
            if left <= _FORGOTTEN and moved.all():
                yield chains.points
                return
            if share < 0.8:
                n_steps *= 2
            is_slow = n_done == _TRAJECTORIES and left > math.sqrt(_FORGOTTEN)
            if n_steps > 16 or is_slow or not np.isfinite(left):
                break

    def at(self, points: np.ndarray) -> States:
        """Evaluate the density; if it is not finite, it is zero, with gradient zero."""
        return self.judged(self._along(points))

    def _along(self, points: np.ndarray) -> States:
        """Evaluate the density whose gradients trajectories follow."""
        with np.errstate(all="ignore"):
            values, gradients = self.slopes(points)
        finite = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
        gradients = np.where(finite[:, None], gradients, 0.0)
        pull = self.around.factor.solve(gradients.T).T + points - self.around.location
        return States(points, np.where(finite, values, -np.inf), pull)

    def after(
        self,
        start: States,
        angle: np.ndarray | float,
        n_steps: int,
        *,
        rng: np.random.Generator,
    ) -> TrajectoryEnds:
        """Propose the ends of trajectories by some angle, or one for each chain."""
        stop_if_late()
        factor, location = self.around.factor, self.around.location
        velocity = factor.draw_inverse(len(start.points), rng=rng)
        energy = np.square(factor.whiten(velocity)).sum(axis=1) / 2 - start.values
        step = np.broadcast_to(np.asarray(angle) / n_steps, len(velocity))[:, None]
        end, cos, sin = start, np.cos(step), np.sin(step)
        with np.errstate(invalid="ignore", over="ignore"):  # trajectories that diverge
            for _ in range(n_steps):
                velocity = velocity + step / 2 * end.pull
                away = end.points - location
                end = self._along(location + cos * away + sin * velocity)
                velocity = cos * velocity - sin * away + step / 2 * end.pull
            end = self.judged(end)
            lost = np.square(factor.whiten(velocity)).sum(axis=1) / 2 - end.values - energy
        lost = np.nan_to_num(lost, nan=np.inf)
        accepted = rng.exponential(size=len(lost)) > lost
        return TrajectoryEnds(start.moved(end, accepted), lost, accepted)
