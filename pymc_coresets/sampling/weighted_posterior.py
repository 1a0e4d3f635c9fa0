"""The posterior of a coreset, at many points at once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.blocks.structure import Blocks
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.rewriting.quadratic import Quadratic
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.grouped import GroupedRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.levels.grouped_density import GroupedDensity, GroupedPrior


@dataclass(frozen=True, eq=False)
class WeightedPosterior:
    """The posterior of weighted rows, and of the quadratic beside them if there is one.

    Parameters
    ----------
    loglikelihood : LogLikelihood
    rows : Rows
    weights : ndarray of shape (n_rows,)
    quadratic : Quadratic, optional
    """

    loglikelihood: LogLikelihood
    rows: Rows
    weights: np.ndarray
    quadratic: Quadratic | None = None

    @property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model."""
        return self.loglikelihood.observations.space

    @property
    def n_products(self) -> float:
        """About how many numbers are multiplied for the density at a point."""
        curvature = None if self.quadratic is None else self.quadratic.curvature
        entries = 0 if curvature is None else getattr(curvature, "nnz", curvature.size)
        return float(self.rows.n_numbers + entries)

    def loglik(self, draws: DrawsLike) -> np.ndarray:
        """Return what stands for the log-likelihood of all rows, (n_draws,), in nats."""
        own = self.loglikelihood.weighted_sum(draws, self.rows, self.weights)
        if self.quadratic is not None:
            own = own + self.quadratic.at_draws(self.loglikelihood.observations, draws)
        return own

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return that of points (n_points, n_dims), in nats up to a constant: (n_points,)."""
        of_prior = self.loglikelihood.remainder.values(x)
        total: np.ndarray = of_prior + self.loglik(self.space.constrain(x))
        return total

    @cached_property
    def in_levels(self) -> GroupedDensity:
        """The density in parts, of a model whose rows fall into groups."""
        blocks = self.loglikelihood.blocks
        assert isinstance(blocks, Blocks), "the coreset was built by groups"
        level = blocks.block_of(self.rows)
        data = GroupedRows.sorted(self.rows, self.weights, level, blocks.n_blocks)
        return GroupedDensity(GroupedPrior(blocks), self.loglikelihood, data)
