"""What a construction costs: passes over the data, log-likelihoods, and seconds."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from pymc_coresets.methods.job import CoresetPosterior
from pymc_coresets.rows.passes import Look, Scan
from pymc_coresets.rows.values import Rows
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
    >>> from pymc_coresets.rows.memory import InMemoryPotentials, InMemoryRows
    >>> source = InMemoryRows([np.arange(4.0)])
    >>> metered = Metered(
    ...     InMemoryPotentials(source, 1, lambda draws, rows: np.outer(rows.arrays[0], draws))
    ... )
    >>> draws = np.arange(10.0)
    >>> look, values = metered.look(draws), metered.loglik(draws, source.take(slice(0, 2)))
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
    def n_rows(self) -> int:
        """Number of rows N."""
        return self._posterior.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the base weights."""
        return self._posterior.total_weight

    @property
    def n_dims(self) -> int:
        """Number of free dimensions D."""
        return self._posterior.n_dims

    def draw(self, rows: Rows, weights: Vector, n_draws: int, *, rng: np.random.Generator) -> D:
        """Draw from the posterior of the rows with the given weights."""
        with self.drawing():
            return self._posterior.draw(rows, weights, n_draws, rng=rng)

    def rough_draw(
        self, rows: Rows, weights: Vector, n_draws: int, *, rng: np.random.Generator
    ) -> D:
        """Draw from roughly the region of that posterior."""
        with self.drawing():
            return self._posterior.rough_draw(rows, weights, n_draws, rng=rng)

    def scan(self, size: int, *, key: int, distinct: bool = False) -> Scan:
        """Sample rows: no potential is evaluated."""
        return self._posterior.scan(size, key=key, distinct=distinct)

    def loglik(self, draws: D, rows: Rows) -> Matrix:
        """Potentials of some rows, (n_rows, n_draws), in nats."""
        with self._timed("seconds_evaluating"):
            values = self._posterior.loglik(draws, rows)
        self._count(*values.shape)
        return values

    def look(self, draws: D, *, n_candidates: int = 0, scale: float = 0.0, key: int = 0) -> Look:
        """Evaluate all rows at the draws."""
        with self._timed("seconds_evaluating"):
            look = self._posterior.look(draws, n_candidates=n_candidates, scale=scale, key=key)
        self._count(self.n_rows, len(look.total))
        return look

    def drawing(self) -> AbstractContextManager[None]:
        """Count the time of what is done within as time in the sampler."""
        return self._timed("seconds_drawing")

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        setattr(self, name, getattr(self, name) + time.perf_counter() - start)

    def _count(self, n_rows: int, n_draws: int) -> None:
        self.n_evaluations += n_rows * n_draws
        self.n_passes += n_rows / self.n_rows
