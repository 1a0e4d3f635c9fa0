"""Log-densities with gradients at many points, and that of what stands for all rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, reduce
from typing import NamedTuple, Self

import numpy as np
import pymc as pm

from pymc_coresets.diagnostics.importance import pareto_smooth, systematic_resample
from pymc_coresets.diagnostics.judging import NEARLY_ALL
from pymc_coresets.diagnostics.known_posterior import possible
from pymc_coresets.loops.fused_loops import Given, Kernel
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import BlockPass, RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.normal import KnownDensity, Mixture

#: Bytes of data of a block of rows, so that a second point reads it from the cache, and largest
#: number of rows of a block, so that temporary arrays fit there too.
_BLOCK_BYTES, _BLOCK_ROWS = 2**22, 2**14

#: Numbers at all points and rows of a block: with its temporaries they fit into a core's own cache.
#: And of rows of units at all points, if that is more with their nodes: fewer go into calls.
_CACHED, _OF_PLACES = 2**17, 2**15


class Slopes(NamedTuple):
    """Log-densities at some points, (n_points,), and their gradients, (n_points, n_dims)."""

    values: np.ndarray
    gradients: np.ndarray

    def plus(self, other: "Slopes") -> "Slopes":
        """Add other densities."""
        with np.errstate(invalid="ignore", over="ignore"):  # searches shorten such steps
            return Slopes(self.values + other.values, self.gradients + other.gradients)

    @classmethod
    def of_parts(cls, parts: Iterable["Slopes"], n_dims: int) -> "Slopes":
        """Return the densities at the points of all parts, one after the other, or of none."""
        none = cls(np.empty(0), np.empty((0, n_dims)))
        return cls(*(np.concatenate(found) for found in zip(none, *parts, strict=True)))


class Density:
    """A log-density with its gradients: one reading of the rows for any number of points.

    Parameters
    ----------
    slopes : callable
        Returns the log-densities at points (n_points, n_dims), and the gradients there.
    curvature : callable, optional
        The negative Hessian at a point (n_dims,), where that is known.

    Attributes
    ----------
    n_gradients : int
        At how many points so far.

    Examples
    --------
    >>> full = Density(lambda x: (-np.square(x).sum(axis=1), -2 * x))
    >>> full.gradients(np.array([[0.0], [1.0]]))
    array([[-0.],
           [-2.]])
    >>> full.n_gradients
    2
    """

    def __init__(
        self,
        slopes: Callable[[np.ndarray], Sequence[np.ndarray]],
        curvature: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self._slopes, self.curvature = slopes, curvature
        self._known: dict[bytes, tuple[float, np.ndarray]] = {}
        self.n_gradients = 0

    @classmethod
    def of_model(cls, space: Unconstrained) -> Self:
        """Return that which PyMC derives of a model, with Jacobians, evaluated by NumPy."""
        x = space.vector
        [logp] = space.at(x, [space.model.logp()])
        return cls(of_points([x], [logp], slope_of=logp))

    def logp_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return both at a point (n_dims,): one reading, unless it equals the last point."""
        key = np.asarray(x).tobytes()
        if key not in self._known:
            values, gradients = self.slopes(np.asarray(x)[None])
            self._known = {key: (float(values[0]), gradients[0])}
        return self._known[key]

    def gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradients at points (n_points, n_dims) in one reading."""
        return self.slopes(points).gradients

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the log-densities at points (n_points, n_dims) in one reading."""
        return self.slopes(points).values

    def slopes(self, points: np.ndarray) -> Slopes:
        """Return both at points (n_points, n_dims) in one reading."""
        self.n_gradients += len(points)
        return Slopes(*map(np.asarray, self._slopes(points)))


def gradient_pass(
    kernel: Kernel, points: np.ndarray, size: int, n_nodes: int = 1
) -> BlockPass[Slopes]:
    """Return the pass that adds up log-likelihoods of rows, times their case weights, at points.

    Parameters
    ----------
    kernel : Kernel
        See `Functions.gradients`.
    points : ndarray of shape (n_points, n_dims)
    size : int
        Number of rows of a block.
    n_nodes : int, default 1
        Number of evaluations of each row of a unit.
    """
    begin = partial(_slopes_of_blocks, kernel, points, n_nodes)
    return BlockPass(size, begin, partial(_total, points.shape))


def pass_of(loglik: LogLikelihood, points: np.ndarray) -> BlockPass[Slopes]:
    """Return the `gradient_pass` over rows of a model, see `Functions.gradients`."""
    observations = loglik.observations
    row_bytes = sum(row.values.nbytes for row in observations.inputs) // observations.n_obs
    row_bytes *= max(observations.n_nodes // 2, 1)  # few operations have all nodes
    most = _BLOCK_BYTES // max(row_bytes, _BLOCK_BYTES // _BLOCK_ROWS)
    kernel = loglik.functions.gradients
    return gradient_pass(kernel, points, max(most, 1), observations.n_nodes)


def _slopes_of_blocks(kernel: Kernel, points: np.ndarray, n_nodes: int) -> Callable[[Rows], Slopes]:
    @cache
    def densities(at_once: int) -> list[Given]:
        """Return functions of rows, for so many points each."""
        starts = range(0, len(points), at_once)
        return [kernel.program.given(points[i : i + at_once]) for i in starts]

    def slopes(rows: Rows) -> Slopes:
        of_rows = kernel.program.of_rows(rows.case_weights, *kernel.arrays(rows))
        most = _CACHED if n_nodes == 1 else max(_CACHED // n_nodes, _OF_PLACES)
        at_once = most // max(rows.n_unit_rows, 1)
        at_once = 2 ** max(at_once.bit_length() - 1, 0)  # few different ones
        found = (Slopes(*density.at(of_rows)) for density in densities(at_once))
        return Slopes.of_parts(found, points.shape[1])

    return slopes


def _total(shape: tuple[int, ...], parts: Iterable[Slopes]) -> Slopes:
    return reduce(Slopes.plus, parts, Slopes(np.zeros(shape[0]), np.zeros(shape)))


def slopes_of_all(loglik: LogLikelihood, source: RowBlocks, points: np.ndarray) -> Slopes:
    """Return log-likelihoods of all rows of a source at points (n_points, n_dims)."""
    return source.reduce(pass_of(loglik, points))


def slopes_of_each(loglik: LogLikelihood, each: Sequence[Rows], points: np.ndarray) -> Slopes:
    """Return log-likelihoods at points (n_points, n_dims), each of few rows of its own."""
    kernel = loglik.functions.gradients
    density = kernel.program.given
    found = (
        Slopes(*density(x[None])(rows.case_weights, *kernel.arrays(rows)))
        for x, rows in zip(points, each, strict=True)
    )
    return Slopes.of_parts(found, points.shape[1])


def slopes_without_rows(
    loglik: LogLikelihood, quadratic: Quadratic | None, points: np.ndarray
) -> Slopes:
    """Return log-densities of the prior, and a quadratic if there is one.

    Parameters
    ----------
    loglik : LogLikelihood
        Of the model.
    quadratic : Quadratic, or None
    points : ndarray of shape (n_points, n_dims)
    """
    if quadratic is None:
        return Slopes(*loglik.rest.slopes(points))
    rest = loglik.functions.rest_beside(quadratic.graph)
    of_quadratic, pulls = quadratic.values_and_slopes(rest.coefficients(points))
    values, gradients = rest.slopes(points, pulls)
    return Slopes(values + of_quadratic, gradients)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """What stands for all rows, with the prior: weighted rows, and a quadratic if there is one.

    Parameters
    ----------
    loglikelihood : LogLikelihood
    rows : Rows
    weights : ndarray of shape (n_rows,)
    quadratic : Quadratic, optional
    curvature : callable, optional
        The negative Hessian of its log-density at a point (n_dims,), where that is known.
    """

    loglikelihood: LogLikelihood
    rows: Rows
    weights: np.ndarray
    quadratic: Quadratic | None = None
    curvature: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model."""
        return self.loglikelihood.observations.space

    @property
    def model(self) -> pm.Model:
        """A model of PyMC with the same posterior, and the data of the rows."""
        own = self.loglikelihood.observations
        return coreset_model(own, self.rows, self.weights, quadratic=self.quadratic)

    @property
    def n_products(self) -> float:
        """Approximate cost of the density at a point, in products."""
        return self._n_products(1)

    @property
    def n_products_of_gradient(self) -> float:
        """The same with the gradient, which takes no steps to the nodes' places."""
        return self._n_products(3)

    def _n_products(self, n_times: int) -> float:
        """Return how many products there are if each of the density's is repeated so often."""
        matrices = [own.curvature for own in self._quadratics]
        entries = sum(getattr(matrix, "nnz", matrix.size) for matrix in matrices)
        n_nodes = self.loglikelihood.observations.n_nodes
        of_places = 3 if self.rows.unit_rows else 0
        return float((n_times * n_nodes + of_places) * self.rows.n_numbers + n_times * entries)

    def loglik(self, draws: DrawsLike) -> np.ndarray:
        """Return the log-likelihood in place of all rows, (n_draws,), which need not be finite."""
        observations = self.loglikelihood.observations
        draws = Draws.of(draws, observations.shapes)
        total = np.zeros(draws.n_draws)
        if self.weights.any():
            total += self.loglikelihood.weighted_sum(draws, self.rows, self.weights, finite=False)
        for own in self._quadratics:
            total += own.at_draws(observations, draws)
        return total

    @property
    def _quadratics(self) -> list[Quadratic]:
        return [own for own in (self.quadratic,) if own is not None]

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return the log-density of points (n_points, n_dims), up to a constant: (n_points,).

        In nats; minus infinity if it is not finite.
        """
        return self.loglikelihood.rest.with_rows(x, self.loglik)

    @cached_property
    def as_loops(self) -> "Surrogate":
        """The same by compiled loops, for chains, which ask thousands of times."""
        return replace(self, loglikelihood=self.loglikelihood.as_loops)

    def slopes(self, points: np.ndarray) -> Slopes:
        """Return the log-densities at points (n_points, n_dims), and their gradients."""
        others = slopes_without_rows(self.loglikelihood, self.quadratic, points)
        # A quadratic may need no rows.
        return self._of_rows(points).plus(others) if self.weights.any() else others

    def _of_rows(self, points: np.ndarray) -> Slopes:
        n_nodes = self.loglikelihood.observations.n_nodes
        if len(points) * n_nodes * self.rows.n_unit_rows > _CACHED:
            return slopes_of_all(self.loglikelihood, self._weighted, points)
        # Samplers ask this thousands of times: blocks and threads would take twice as long.
        density = self.loglikelihood.functions.gradients.program.given(points)
        return Slopes(*density(self.weights, *self._arrays))

    @cached_property
    def _weighted(self) -> InMemoryRows:
        return InMemoryRows.of(replace(self.rows, case_weights=self.weights))

    @cached_property
    def _arrays(self) -> list[np.ndarray]:
        return self.loglikelihood.functions.arrays(self.rows)

    @property
    def density(self) -> Density:
        """Its log-density, of which gradients are counted anew."""
        return Density(self.slopes, self.curvature)

    def weighed(
        self, near: KnownDensity, n_draws: int, *, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw from a distribution, (n_draws, n_dims), with log-weights for this posterior."""
        x, logq = near.draw(n_draws, rng=rng)
        return x, self.log_density(x) - logq

    def corrected(
        self, near: KnownDensity, n_draws: int, *, times: int, rng: np.random.Generator
    ) -> Iterator[np.ndarray]:
        """Draw from this posterior, (n_draws, n_dims), by resampling draws of another distribution.

        Yields nothing if the weights are unreliable, see `resampled`.
        """
        return resampled(*self.weighed(near, times * n_draws, rng=rng), n_draws, rng=rng)

    def corrected_around(
        self, modes: Mixture, n_draws: int, *, rng: np.random.Generator
    ) -> Iterator[np.ndarray]:
        """Draw from around its modes, from two to ten times as many points, depending on cost."""
        most, each = 2**28, max(self.n_products, 1.0)  # products in all: some tenths of a second
        times = int(np.clip(most // (n_draws * each), 2, 10))
        if len(modes.parts) > 1:
            x, logq = modes.draw(times * n_draws, rng=rng, equally=0.0)
            return resampled(x, self.log_density(x) - logq, n_draws, rng=rng)
        near = modes.parts[0].with_tails()
        if near.n_evaluations * each <= most:
            near = near.split(self.log_density)
        return self.corrected(near, n_draws, times=times, rng=rng)


def resampled(
    x: np.ndarray, log_weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield some of the points (n_points, ...), by their weights, if these are reliable.

    They are reliable if Pareto k-hat is at most 0.7, and the effective sample size at least a
    quarter of the points (Vehtari et al. 2024), or if it is three quarters.  Points whose
    log-weights are not finite are never chosen.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(1_000, 1))
    >>> [found.mean().round(1) for found in resampled(x, x[:, 0] / 2, 500, rng=rng)]
    [np.float64(0.5)]
    >>> [*resampled(x, 5 * x[:, 0], 500, rng=rng)]
    []
    """
    kept = possible(log_weights)
    if kept is None:
        return
    smoothed = pareto_smooth(log_weights[None, kept])
    # The tail is not informative if weights are nearly equal, or come in groups.
    if smoothed.sound or smoothed.ess >= NEARLY_ALL * len(x):
        yield x[kept[systematic_resample(smoothed.weights[0], n_draws, rng=rng)]]
