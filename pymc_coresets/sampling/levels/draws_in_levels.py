"""Draws of thousands of levels and of what they share, with weights that make them exact."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.sampling.levels.conditionals import negative_logdet, points_at_once, solve_upper
from pymc_coresets.sampling.levels.grouped_density import GroupedDensity
from pymc_coresets.sampling.levels.nested_laplace import SHARED_TAILS, NestedLaplace, heavy_tailed
from pymc_coresets.sampling.steps.metric import Spread

type Array = NDArray[np.float64]

_TAILS = 100  # degrees of freedom, of each of thousands of levels


@dataclass(frozen=True, eq=False)
class NormalInLevels:
    """A nested Laplace approximation, and the marginal variances for NUTS.

    Parameters
    ----------
    approximation : NestedLaplace
    metric : Spread
    """

    approximation: NestedLaplace
    metric: Spread


@dataclass(frozen=True, eq=False)
class DrawsInLevels:
    """Draws from around a posterior whose levels are independent given what they share.

    With many levels, the ratio of two densities of all variables varies much, even if that of each
    level hardly does.  So each level has several draws for one of the shared variables: the product
    over levels of their mean weights estimates the marginal density of the latter without bias, and
    one draw of each level is taken by its weight.  Metropolis-Hastings by these estimates has the
    posterior as its stationary distribution (Andrieu and Roberts 2009).  Draws are in antithetic
    pairs, from around the level's mode: what its skewness adds to one weight it takes from the
    other's, so that one pair is mostly enough for a thousand levels.

    Parameters
    ----------
    density : GroupedDensity
    near : NestedLaplace
    n_pairs : int

    References
    ----------
    Andrieu, C. and Roberts, G. O. (2009). The pseudo-marginal approach for efficient Monte Carlo
    computations. Annals of Statistics 37(2), 697-725. https://doi.org/10.1214/07-AOS574
    """

    density: GroupedDensity
    near: NestedLaplace
    n_pairs: int

    @property
    def n_products(self) -> float:
        """About how many products a draw takes."""
        of_rows = self.density.data.rows.n_numbers
        return float(2 * self.n_pairs * (of_rows + self.near.terms[0].size))

    def weighed(self, n_draws: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Return draws (n, n_dims), the posterior's log-density there, and log-weights, (n,)."""
        each = points_at_once(self.near.terms.shape[1:])
        parts = [
            self._weighed(min(each, n_draws - first), rng) for first in range(0, n_draws, each)
        ]
        x, logp, log_weights = map(np.concatenate, zip(*parts, strict=True))
        return x, logp, log_weights

    def _weighed(self, n_draws: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        near = self.near
        z, of_shared = heavy_tailed((n_draws, 1, near.n_shared), SHARED_TAILS, rng)
        shared, (centre, root) = near.mode + z[:, 0] @ near.spread.T, near.given(z[:, 0])
        total = np.full(centre.shape[:2], -np.inf)  # of the weights so far, of which one is kept
        offset, own = np.empty_like(centre), np.empty_like(total)
        for _ in range(self.n_pairs):
            noise, logq = heavy_tailed(centre.shape, _TAILS, rng)
            away, logq = solve_upper(root, noise), logq - negative_logdet(root)
            for one in (away, -away):
                alone, log_density = self.density(shared, centre + one)
                log_weight = np.where(np.isfinite(log_density), log_density, -np.inf) - logq
                total = np.logaddexp(total, log_weight)
                # Exponential numbers are minus the logarithms of uniform ones.
                taken = log_weight - total > -rng.standard_exponential(total.shape)
                offset = np.where(taken[..., None], one, offset)
                own = np.where(taken, log_density, own)
        local = centre + offset
        return (
            self.density.positions(shared, local),
            alone + (own + self.density.of_absent(local)).sum(axis=1),
            alone + total.sum(axis=1) - of_shared[:, 0],
        )
