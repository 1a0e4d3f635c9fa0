"""Hamiltonian Monte Carlo of hundreds of chains at once, near a normal distribution."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_coresets.sampling.steps.metric import Factor

__all__ = ["SplitHmc"]

type Array = np.ndarray

_FEWEST, _MOST = 4, 16  # gradients of a trajectory
_ACCEPTED = 0.8  # of the proposals, at least: else there are twice as many gradients
_FORGOTTEN, _TRAJECTORIES = 0.05, 12

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Chains:
    """Where chains are, (n_chains, n_dims), with the log-density there and its pull on them."""

    points: Array
    values: Array
    pull: Array

    def moved(self, others: "_Chains", which: Array) -> "_Chains":
        """Move some of the chains to where the others are."""
        return _Chains(
            np.where(which[:, None], others.points, self.points),
            np.where(which, others.values, self.values),
            np.where(which[:, None], others.pull, self.pull),
        )

    def correlation(self, others: "_Chains") -> float:
        """Return the largest one with other chains, of a coordinate or of the log-density."""
        one, other = (np.column_stack([c.points, c.values]) for c in (self, others))
        one, other = one - one.mean(axis=0), other - other.mean(axis=0)
        sizes = np.sqrt(np.square(one).sum(axis=0) * np.square(other).sum(axis=0))
        return float((np.abs((one * other).sum(axis=0)) / sizes).max())


@dataclass(frozen=True, eq=False)
class SplitHmc:
    """Moves draws of a distribution near a density until they are draws of that density.

    For thousands of dimensions, in which the sum of many small differences makes importance weights
    useless.  All draws move at once, each as a chain of its own.  A trajectory is a quarter turn of
    the normal distribution around them, which is followed exactly; only what the density differs
    from that by takes steps.  So four gradients lead to a draw that hardly depends on where the
    chain began.

    Parameters
    ----------
    slopes : callable
        Returns the log-densities (n_points,), in nats, and gradients at points (n_points, n_dims).
    location : ndarray of shape (n_dims,)
        About the mean of the density.
    factor : Factor
        Of its precision.

    References
    ----------
    Shahbaba, Lan, Johnson, Neal (2014). Split Hamiltonian Monte Carlo. Statistics and Computing
    24. https://doi.org/10.1007/s11222-012-9373-1

    Examples
    --------
    Logarithms of gamma variables, which are skewed:

    >>> hmc = SplitHmc(
    ...     lambda x: ((5 * x - np.exp(x)).sum(axis=1), 5 - np.exp(x)),
    ...     np.full(3, 1.5),
    ...     Factor(np.eye(3) / 0.22),
    ... )
    >>> rng = np.random.default_rng(1)
    >>> draws = hmc.moved(rng.normal(1.5, 0.47, size=(2_000, 3)), rng=rng)
    >>> np.exp(draws).mean().round(1), np.exp(draws).var().round(0)
    (np.float64(5.0), np.float64(5.0))
    """

    slopes: Callable[[Array], tuple[Array, Array]]
    location: Array
    factor: Factor

    def moved(self, points: Array, *, rng: np.random.Generator) -> Array | None:
        """Return as many draws, (n_chains, n_dims); None where they do not forget the points.

        Trajectories follow one another until the product of the correlations between the ends of
        each is at most 0.05, where the largest one counts, of a coordinate or the log-density, and
        every chain has moved.
        """
        chains, n_steps, left = self._at(points), _FEWEST, 1.0
        moved = np.zeros(len(points), bool)
        for _ in range(_TRAJECTORIES):
            before = chains
            chains, accepted = self._after_a_quarter(before, n_steps, rng)
            left, moved = left * before.correlation(chains), moved | accepted
            share = float(accepted.mean())
            _log.info("%d gradients: %.2f accepted, %.2g remembered", n_steps, share, left)
            if left <= _FORGOTTEN and moved.all():
                return chains.points
            if share < _ACCEPTED:
                n_steps *= 2
            if n_steps > _MOST or not np.isfinite(left):
                break
        return None

    def _at(self, points: Array) -> _Chains:
        """Evaluate the density; where it is not finite, it is zero, and pulls nowhere."""
        with np.errstate(all="ignore"):
            values, gradients = self.slopes(points)
        finite = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
        gradients = np.where(finite[:, None], gradients, 0.0)
        pull = self.factor.solve(gradients.T).T + points - self.location
        return _Chains(points, np.where(finite, values, -np.inf), pull)

    def _after_a_quarter(
        self, start: _Chains, n_steps: int, rng: np.random.Generator
    ) -> tuple[_Chains, Array]:
        """Propose the ends of trajectories; return the chains, and which of them moved."""
        velocity = self.factor.draw_inverse(len(start.points), rng=rng)
        energy = self.factor.squares(velocity) / 2 - start.values
        end, angle = start, np.pi / 2 / n_steps
        cos, sin = np.cos(angle), np.sin(angle)
        for _ in range(n_steps):
            velocity = velocity + angle / 2 * end.pull
            away = end.points - self.location
            end = self._at(self.location + cos * away + sin * velocity)
            velocity = cos * velocity - sin * away + angle / 2 * end.pull
        with np.errstate(invalid="ignore"):
            gained = energy - (self.factor.squares(velocity) / 2 - end.values)
        which = np.log(rng.uniform(size=len(gained))) < gained
        return start.moved(end, which), which
