"""What a construction costs: passes over the data, log-likelihoods, and seconds, as it goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pymc_coresets.methods.posterior import CoresetPosterior, Indices
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = ["Metered"]


class Metered[D]:
    """A posterior that counts what is asked of it.

    Parameters
    ----------
    posterior : CoresetPosterior
        What answers.

    Attributes
    ----------
    n_evaluations : int
        Potentials that were evaluated, each at one draw.
    n_passes : float
        Passes over the data: rows that were evaluated, over N, whatever the number of draws.
    seconds_drawing, seconds_evaluating : float
        Wall time in the sampler, and in the potentials.

    Examples
    --------
    >>> import numpy as np
    >>> class Constant:
    ...     n_obs, base_weights = 4, np.ones(4)
    ...     def loglik(self, draws, rows=None):
    ...         return np.zeros((4 if rows is None else len(rows), draws))
    >>> metered = Metered(Constant())
    >>> values = metered.loglik(10), metered.loglik(10, np.array([0, 2]))
    >>> metered.n_passes, metered.n_evaluations
    (1.5, 60)
    """

    def __init__(self, posterior: CoresetPosterior[D]) -> None:
        self._posterior = posterior
        self.n_evaluations, self.n_passes = 0, 0.0
        self.seconds_drawing = self.seconds_evaluating = 0.0

    @property
    def costs(self) -> dict[str, Any]:
        """The counts so far, by the names of the fields of `Progress`."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @property
    def n_obs(self) -> int:
        """Number of rows N."""
        return self._posterior.n_obs

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D."""
        return self._posterior.n_dims

    @property
    def base_weights(self) -> Vector:
        """What each row stands for, of shape (n_obs,)."""
        return self._posterior.base_weights

    def draw(
        self, indices: Indices, weights: Vector, n_draws: int, *, rng: np.random.Generator
    ) -> D:
        """Draw from the posterior of the rows `indices` with the given weights."""
        start = time.perf_counter()
        draws = self._posterior.draw(indices, weights, n_draws, rng=rng)
        self.seconds_drawing += time.perf_counter() - start
        return draws

    def loglik(self, draws: D, rows: Indices | None = None) -> Matrix:
        """Potentials of some rows (all by default), (n_rows, n_draws), in nats."""
        with self._timed():
            values = self._posterior.loglik(draws, rows)
        self._count(*values.shape)
        return values

    def total(self, draws: D) -> Vector:
        """Sum of the weighted potentials of all rows, of shape (n_draws,)."""
        with self._timed():
            total = self._posterior.total(draws)
        self._count(self.n_obs, len(total))
        return total

    def moments(self, draws: D) -> tuple[Vector, Vector]:
        """Give `total`, and the standard deviation of each row's potential, in one pass."""
        with self._timed():
            moments = self._posterior.moments(draws)
        self._count(self.n_obs, len(moments[0]))
        return moments

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds_evaluating += time.perf_counter() - start

    def _count(self, n_rows: int, n_draws: int) -> None:
        self.n_evaluations += n_rows * n_draws
        self.n_passes += n_rows / self.n_obs
