"""What a method that samples inside its loop is given: draws of coreset posteriors, on demand."""

from typing import Protocol

from numpy import random
from numpy.typing import NDArray

from pymc_coresets.algorithms.problem import Matrix, Vector

__all__ = ["CoresetPosterior", "Indices"]

type Indices = NDArray


class CoresetPosterior[D](Protocol):
    """Draws from pi_w, for any rows and weights, and the potentials of any rows at them.

    The type of the draws is the implementation's own: a matrix of parameters, or named arrays.
    """

    @property
    def n_obs(self) -> int:
        """Number of rows N."""

    @property
    def base_weights(self) -> Vector:
        """What each row stands for, u_n >= 0, of shape (n_obs,)."""

    def draw(
        self, indices: Indices, weights: Vector, n_draws: int, *, rng: random.Generator
    ) -> D:
        """Draw from the posterior of the rows `indices` with the given weights.

        Rows of weight 0 are allowed; without any row it is the prior.
        """

    def loglik(self, draws: D, rows: Indices | None = None) -> Matrix:
        """Potentials f_n(theta_s) of some rows (all by default), (n_rows, n_draws), in nats."""

    def total(self, draws: D) -> Vector:
        """Sum of u_n f_n(theta_s) over all rows, of shape (n_draws,): one pass over the data."""
