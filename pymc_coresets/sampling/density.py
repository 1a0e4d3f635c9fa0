"""The posterior density of all rows and its gradient, read block by block."""

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import Rows

__all__ = ["BLOCK_ROWS", "Density", "FullDensity"]

#: Rows of a block, of which the temporary arrays stay in the cache.
BLOCK_ROWS = 2**14


class Density(Protocol):
    """A log-density on the unconstrained scale, with its gradient."""

    def logp_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return both at a point (n_dims,)."""

    def gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradients at points (n_points, n_dims), in the same shape."""


class FullDensity:
    """The log-density of a model with all rows: one reading of them for any number of points.

    Parameters
    ----------
    given : callable
        Returns the space of the model with the density of some weighted rows.
    blocks : callable
        Returns all rows in blocks, each time that it is called.
    some_row : Rows
        Any row: with weight 0, it leaves the prior.

    Examples
    --------
    >>> import pymc as pm
    >>> import pytensor
    >>> total = pytensor.shared(0.0)
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     pull = pm.Potential("pull", total * mu)
    >>> space = Unconstrained(model)
    >>> def given(rows, weights):
    ...     total.set_value(float(weights @ rows.arrays[0]))
    ...     return space
    >>> rows = Rows(np.arange(3), np.ones(3), (np.array([1.0, 2.0, 3.0]),))
    >>> full = FullDensity(given, lambda: rows.blocks(2), rows.take(slice(0, 1)))
    >>> full.gradients(np.array([[0.0], [1.0]]))
    array([[6.],
           [5.]])
    """

    def __init__(
        self,
        given: Callable[[Rows, np.ndarray], Unconstrained],
        blocks: Callable[[], Iterable[Rows]],
        some_row: Rows,
    ) -> None:
        self._given, self._blocks, self._some_row = given, blocks, some_row
        self._known: dict[bytes, tuple[float, np.ndarray]] = {}
        self.n_gradients = 0

    def logp_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return both at a point (n_dims,): one reading, unless it was the last point too."""
        key = np.asarray(x).tobytes()
        if key not in self._known:
            values, gradients = self._at(np.asarray(x)[None])
            self._known = {key: (float(values[0]), gradients[0])}
        return self._known[key]

    def gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradients at points (n_points, n_dims) in one reading."""
        return self._at(points)[1]

    def _at(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add up the blocks' densities, and take off the prior but once."""
        values, gradients = np.zeros(len(points)), np.zeros_like(points)
        n_blocks = 0
        for block in self._blocks():
            space, n_blocks = self._given(block, block.base_weights), n_blocks + 1
            for i, x in enumerate(points):
                value, gradient = space.logp_and_gradient(x)
                values[i] += value
                gradients[i] += gradient
        if n_blocks > 1:
            prior = self._given(self._some_row, np.zeros(1))
            for i, x in enumerate(points):
                value, gradient = prior.logp_and_gradient(x)
                values[i] -= (n_blocks - 1) * value
                gradients[i] -= (n_blocks - 1) * gradient
        self.n_gradients += len(points)
        return values, gradients
