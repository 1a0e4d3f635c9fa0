"""The posterior density of all rows and its gradient, read block by block."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, cast

import numpy as np
import pytensor.tensor as pt

from pymc_coresets.compat.pytensor_api import Variable
from pymc_coresets.potentials.backends.evaluator import SlopesOfRows
from pymc_coresets.potentials.kernel import Kernel
from pymc_coresets.reading.precision import widened
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import Rows

__all__ = [
    "BLOCK_ROWS",
    "Density",
    "FullDensity",
    "GradientPass",
    "KernelSlopes",
    "Slopes",
    "block_by_block",
    "gradient_kernel",
]

#: Rows of a block, of which the temporary arrays stay in the cache.
BLOCK_ROWS = 2**14
_BLOCK_BYTES = 2**22  # of their data: a second time, they are read from the cache


class Density(Protocol):
    """A log-density on the unconstrained scale, with its gradient."""

    def logp_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return both at a point (n_dims,)."""

    def gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradients at points (n_points, n_dims), in the same shape."""


class Slopes(NamedTuple):
    """Log-densities at some points, (n_points,), and their gradients, (n_points, n_dims)."""

    values: np.ndarray
    gradients: np.ndarray

    @classmethod
    def of(
        cls, density: Callable[[np.ndarray], tuple[float, np.ndarray]], points: np.ndarray
    ) -> Self:
        """Evaluate a density at some points."""
        pairs = [density(x) for x in points]
        return cls(np.array([value for value, _ in pairs]), np.stack([slope for _, slope in pairs]))

    def plus(self, other: "Slopes", times: float = 1.0) -> "Slopes":
        """Add multiples of other densities."""
        with np.errstate(invalid="ignore", over="ignore"):  # searches step back from there
            values = self.values + times * other.values
            return Slopes(values, self.gradients + times * other.gradients)


class FullDensity:
    """The log-density of a model with all rows: one reading of them for any number of points.

    Parameters
    ----------
    add_up : callable
        Returns the `Slopes` of all rows and the prior at points (n_points, n_dims).

    Examples
    --------
    >>> full = FullDensity(lambda x: Slopes(-np.square(x).sum(axis=1), -2 * x))
    >>> full.gradients(np.array([[0.0], [1.0]]))
    array([[-0.],
           [-2.]])
    >>> full.n_gradients
    2
    """

    def __init__(self, add_up: Callable[[np.ndarray], Slopes]) -> None:
        self._add_up = add_up
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
        return self._at(points).gradients

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the log-densities at points (n_points, n_dims) in one reading."""
        return self._at(points).values

    def _at(self, points: np.ndarray) -> Slopes:
        self.n_gradients += len(points)
        return self._add_up(points)


def block_by_block(
    given: Callable[[Rows, np.ndarray], Unconstrained], rows: Rows, some_row: Rows
) -> Callable[[np.ndarray], Slopes]:
    """Return the function that adds up densities of blocks, and takes off the prior but once.

    Where there are many points, a block stays in the cache for all of them.

    For rows in memory: `given` compiled what it needs for other rows already.

    Parameters
    ----------
    given : callable
        Returns the space of the model with the density of some weighted rows.
    rows : Rows
        All rows.
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
    >>> add_up = block_by_block(given, rows, rows.take(slice(0, 1)))
    >>> add_up(np.array([[0.0], [1.0]])).gradients
    array([[6.],
           [5.]])
    """
    row_bytes = sum(array[:1].nbytes for array in rows.arrays)
    blocks = list(rows.blocks(max(_BLOCK_BYTES // max(row_bytes, _BLOCK_BYTES // BLOCK_ROWS), 1)))

    def add_up(points: np.ndarray) -> Slopes:
        total = Slopes(np.zeros(len(points)), np.zeros_like(points))
        for block in blocks:
            density = given(block, block.base_weights).logp_and_gradient
            total = total.plus(Slopes.of(density, points))
        if len(blocks) > 1:
            prior = given(some_row, np.zeros(1)).logp_and_gradient
            total = total.plus(Slopes.of(prior, points), 1 - len(blocks))
        return total

    return add_up


def gradient_kernel(
    space: Unconstrained,
    potential: Variable,
    weights: Variable,
    rows: Sequence[tuple[int, int, Variable]],
) -> Kernel:
    """Return the log-likelihood of weighted rows and its gradient at a vector, without data.

    Parameters
    ----------
    space : Unconstrained
        Of the model with some rows.
    potential : Variable
        Their weighted log-likelihood, as a function of the model's value variables.
    weights : Variable
        The weights in it.
    rows : sequence of (int, int, Variable)
        The arrays of rows in it: their numbers, and along which axis they have the rows.
    """
    x = pt.vector("x", dtype="float64")
    inputs = {v: v.type() for v in (weights, *(v for _, _, v in rows))}
    [logp] = widened([potential], space.parts(x) | inputs)
    gradient = cast(Variable, pt.grad(logp, x))
    axes = {number: axis for number, axis, _ in rows}
    return Kernel([x], list(inputs.values()), [logp, gradient], axes)


@dataclass(frozen=True, eq=False)
class KernelSlopes:
    """The gradients of blocks of rows by a compiled graph.

    Parameters
    ----------
    kernel : Kernel
        See `gradient_kernel`.
    """

    kernel: Kernel
    size: int = BLOCK_ROWS

    def at(self, points: np.ndarray) -> Callable[[Rows], tuple[np.ndarray, np.ndarray]]:
        """See `SlopesOfRows`."""
        densities = [self.kernel.program.given(x) for x in points]

        def slopes(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
            arrays = self.kernel.arrays(rows)
            found = [density(rows.base_weights, *arrays) for density in densities]
            return np.array([float(value) for value, _ in found]), np.stack([g for _, g in found])

        return slopes


@dataclass(frozen=True, eq=False)
class GradientPass:
    """The log-likelihood of all rows, times their base weights, and its gradient at some points.

    Parameters
    ----------
    of_rows : SlopesOfRows
        Those of a block.
    points : ndarray of shape (n_points, n_dims)
    """

    of_rows: SlopesOfRows
    points: np.ndarray

    @property
    def size(self) -> int:
        """See `Pass`."""
        return self.of_rows.size

    def begin(self) -> Callable[[Rows], Slopes]:
        """See `Pass`."""
        slopes = self.of_rows.at(self.points)
        return lambda rows: Slopes(*slopes(rows))

    def joined(self, parts: Iterable[Slopes]) -> Slopes:
        """See `Pass`."""
        total = Slopes(np.zeros(len(self.points)), np.zeros_like(self.points))
        for part in parts:
            total = total.plus(part)
        return total
