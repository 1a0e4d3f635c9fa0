"""What a construction asks of a model: potentials, and draws of coreset posteriors."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.solving.problem import Matrix, Vector

__all__ = ["CoresetPosterior", "Indices", "Potentials"]

type Indices = NDArray[np.int64]


class Potentials[D](Protocol):
    """The potentials of any rows at any draws.

    The type of the draws is the implementation's own: a matrix of parameters, or named arrays.
    """

    @property
    def n_obs(self) -> int:
        """Number of rows N."""

    @property
    def base_weights(self) -> Vector:
        """What each row stands for, u_n >= 0, of shape (n_obs,)."""

    def loglik(self, draws: D, rows: Indices | None = None) -> Matrix:
        """Potentials f_n(theta_s) of some rows (all by default), (n_rows, n_draws), in nats."""

    def total(self, draws: D) -> Vector:
        """Sum of u_n f_n(theta_s) over all rows, of shape (n_draws,): one pass over the data."""

    def moments(self, draws: D) -> tuple[Vector, Vector]:
        """Give `total`, and the standard deviation of each row's potential, in the same pass."""


class CoresetPosterior[D](Potentials[D], Protocol):
    """Draws from pi_w for any rows and weights, and the potentials of any rows at them."""

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D."""

    def draw(
        self, indices: Indices, weights: Vector, n_draws: int, *, rng: np.random.Generator
    ) -> D:
        """Draw from the posterior of the rows `indices` with the given weights.

        Rows of weight 0 are allowed; without any row it is the prior.
        """
