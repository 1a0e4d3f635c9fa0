"""A posterior's density in parts, for groups of rows and what they share; draws from around it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable
from scipy.sparse import csr_array

from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.blocks.structure import Blocks
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import of_points
from pymc_coresets.rows.values import GroupedRows
from pymc_coresets.sampling.levels.conditionals import negative_logdet, points_at_once, solve_upper
from pymc_coresets.sampling.levels.nested_laplace import SHARED_TAILS, NestedLaplace, heavy_tailed
from pymc_coresets.sampling.steps.metric import Spread

type Array = NDArray[np.float64]

_ABSENT = -1
_TAILS = 100  # degrees of freedom, of each of thousands of levels


class GroupedPrior:
    """What a model has besides its rows, level by level, on the unconstrained scale.

    Priors, potentials, and observed variables that are not summarised.

    Parameters
    ----------
    blocks : Blocks
        Which coordinates and which terms belong to which level.

    Attributes
    ----------
    shared_columns : ndarray of int64, of shape (p,)
        Where the shared variables stand in the unconstrained vector.
    local_columns : ndarray of int64, of shape (G, q)
        Those of the levels, q for the largest; -1 where a level has fewer.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.blocks.structure import find_blocks
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     effect = pm.Normal("effect", pm.Normal("mu"), 1.0, shape=3)
    ...     y = pm.Normal("y", effect[[0, 1, 2, 2]], 1.0, observed=np.arange(4.0))
    >>> prior = GroupedPrior(find_blocks(find_observations(model)))
    >>> draws, shared, by_level = prior.at(np.array([[2.0, 0.0, 0.0, 3.0]]))
    >>> by_level - by_level.min()  # known up to a constant
    array([[0. , 0. , 1.5]])
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.shared_columns = blocks.shared_columns
        n_local = max(map(len, blocks.local_columns))
        self.local_columns = np.full((blocks.n_blocks, n_local), _ABSENT)
        for level, columns in enumerate(blocks.local_columns):
            self.local_columns[level, : len(columns)] = columns

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which of the variables (G, q) there are."""
        present: NDArray[np.bool_] = self.local_columns != _ABSENT
        return present

    def at(self, x: Array) -> tuple[Draws, Array, Array]:
        """Return draws of the variables, and the log-density, shared (B,) and by level (B, G)."""
        values = [
            np.asarray(x[:, own].reshape(-1, *v.type.shape), v.type.dtype)
            for own, v in self._inputs
        ]
        *draws, terms = self._terms(*values)
        sums = terms @ self._members
        variables = self._blocks.prior.parting.graphs.variables
        return Draws(dict(zip(variables, draws, strict=True))), sums[:, -1], sums[:, :-1]

    @cached_property
    def _inputs(self) -> list[tuple[slice, TensorVariable]]:
        """Where each value variable stands in the unconstrained vector."""
        inputs = list(self._blocks.prior.inputs.values())
        ends = np.cumsum([0, *(np.prod(v.type.shape, dtype=int) for v in inputs)])
        return [(slice(*ends[i : i + 2]), v) for i, v in enumerate(inputs)]

    @cached_property
    def _members(self) -> csr_array:
        """The level of each entry of all terms, 0 or 1: (n_entries, G + 1), shared ones last."""
        owners = [np.zeros(0, np.int64), *(term.levels for term in self._blocks.prior.terms)]
        levels = np.concatenate(owners) % (self._blocks.n_blocks + 1)  # of -1, the last
        entries = (np.ones(levels.size), (np.arange(levels.size), levels))
        return csr_array(entries, shape=(levels.size, self._blocks.n_blocks + 1))

    @cached_property
    def _terms(self) -> Callable[..., list[Array]]:
        """Free variables on their own scale, and all terms of the log-density in one vector."""
        prior = self._blocks.prior
        terms = pt.concatenate([np.zeros(0), *(term.graph.ravel() for term in prior.terms)])
        outputs = [*prior.parting.graphs.variables.values(), terms]
        return of_points(list(prior.inputs.values()), outputs)


@dataclass(frozen=True, eq=False)
class GroupedDensity:
    """The log-density of a model with weighted rows, as a function of shared and local variables.

    A level with fewer variables than others has standard normal ones instead, which nothing else
    depends on.

    Parameters
    ----------
    prior : GroupedPrior
    loglikelihood : LogLikelihood
    data : GroupedRows
    """

    prior: GroupedPrior
    loglikelihood: LogLikelihood
    data: GroupedRows

    def __call__(self, shared: Array, local: Array) -> tuple[Array, Array]:
        """Evaluate points, shared (B, p) and local (B, G, q): returns (B,) and (B, G), in nats."""
        draws, alone, by_level = self.prior.at(self.positions(shared, local))
        by_level += self.sums(draws)
        by_level -= self.of_absent(local)
        return alone, by_level

    def of_absent(self, local: Array) -> Array | float:
        """Return what standard normal stand-ins for absent variables subtract, (B, G), in nats."""
        absent = ~self.prior.present
        return np.square(np.where(absent, local, 0.0)).sum(axis=2) / 2 if absent.any() else 0.0

    def sums(self, draws: Draws) -> Array:
        """Return the weighted sums of the potentials of each level, (n_draws, G), in nats."""
        return self.loglikelihood.by_group(draws, self.data)

    def positions(self, shared: Array, local: Array) -> Array:
        """Join shared (B, p) and local (B, G, q) variables to unconstrained vectors (B, D)."""
        prior, present = self.prior, self.prior.present
        x = np.empty((len(shared), prior.shared_columns.size + int(present.sum())))
        x[:, prior.shared_columns] = shared
        x[:, prior.local_columns[present]] = local[:, present]
        return x


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
