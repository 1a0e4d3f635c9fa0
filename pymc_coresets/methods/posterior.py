"""What a method asks of a model: potentials, and draws of coreset posteriors."""

from typing import Protocol

import numpy as np

from pymc_coresets.rows.source import Potentials
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Vector

__all__ = ["CoresetPosterior"]


class CoresetPosterior[D](Potentials[D], Protocol):
    """Draws from pi_w for any rows and weights, and the potentials of any rows at them."""

    def draw(self, rows: Rows, weights: Vector, n_draws: int, *, rng: np.random.Generator) -> D:
        """Draw from the posterior of the rows with the given weights.

        Rows of weight 0 are allowed; without any row it is the prior.

        Raises
        ------
        SamplingError
            If the posterior cannot be sampled.
        """

    def rough_draw(
        self, rows: Rows, weights: Vector, n_draws: int, *, rng: np.random.Generator
    ) -> D:
        """Draw as fast as possible from roughly the region of that posterior."""
