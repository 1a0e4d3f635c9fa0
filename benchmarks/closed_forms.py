"""Models whose coreset posteriors are Gaussian, so that divergences are known exactly."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.rows.proportional import Priorities
from pymc_coresets.rows.values import Rows

type Array = NDArray[np.float64]

_BLOCK_ENTRIES = 2**17  # of float64


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """A normal distribution by its mean and precision matrix."""

    mean: Array
    precision: Array

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> Array:
        """Return draws ``mean + L^-T z``, (n_draws, n_dims), where the precision is ``L L^T``."""
        root = np.linalg.cholesky(self.precision)
        noise = rng.normal(size=(len(self.mean), n_draws))
        draws: Array = self.mean + solve_triangular(root, noise, lower=True, trans="T").T
        return draws

    def kl(self, other: "Gaussian") -> float:
        """Return KL(self || other) in nats, accurate even where the precisions are nearly equal."""
        root = np.linalg.cholesky(self.precision)
        relative = solve_triangular(root, other.precision - self.precision, lower=True)
        excess = np.linalg.eigvalsh(solve_triangular(root, relative.T, lower=True))
        excess = np.maximum(excess, np.nextafter(-1, 0))  # rounding errors may cross this bound
        shift = other.mean - self.mean
        return float((excess - np.log1p(excess)).sum() + shift @ other.precision @ shift) / 2


class InMemoryLogLikelihoods[D]:
    """Log-likelihoods of rows in memory by a plain function, for models that are not PyMC's.

    Parameters
    ----------
    source : InMemoryRows
        The data.
    n_dims : int
        Number of free dimensions.
    loglik : callable
        From draws and `Rows` to the log-likelihoods, of shape (n_rows, n_draws), in nats.

    Examples
    --------
    >>> source = InMemoryRows([np.array([0.0, 2.0])])
    >>> normal = InMemoryLogLikelihoods(
    ...     source, 1, lambda draws, rows: -0.5 * (rows.arrays[0][:, None] - draws) ** 2
    ... )
    >>> normal.sums(np.array([0.0, 1.0])).total
    array([-0.5,  0.5])
    """

    def __init__(
        self,
        source: InMemoryRows,
        n_dims: int,
        loglik: Callable[[D, Rows], NDArray[np.floating[Any]]],
    ) -> None:
        self.source, self.n_dims = source, n_dims
        self.loglik = loglik

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.source.n_rows

    n_terms = n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the case weights."""
        return self.source.total_weight

    def subsample(self, size: int, *, key: int, distinct: bool = False) -> RowSample:
        """Sample rows, see `InMemoryRows.subsample`."""
        return self.source.subsample(size, key=key, distinct=distinct)

    def sums(
        self, draws: D, *, n_candidates: int = 0, scale: float = 0.0, key: int = 0
    ) -> PassSums:
        """Evaluate all rows at the draws, see `PointwiseLogLikelihood.sums`."""
        wanted = Priorities.of_all(n_candidates, n_rows=self.n_rows, scale=scale, key=key)
        n_draws = self.loglik(draws, self.source.take(slice(0, 1))).shape[1]
        parts = (
            PassSums.of(self.loglik(draws, block).T.astype(np.float64), block, wanted)
            for block in self.source.blocks(max(64, _BLOCK_ENTRIES // n_draws))
        )
        return PassSums.joined(parts, wanted)


class Experiment(InMemoryLogLikelihoods[Array], ABC):
    """Coreset posteriors that are Gaussian, or are approximated by Gaussians."""

    @abstractmethod
    def gaussian(self, rows: Rows, weights: Array) -> Gaussian:
        """Return the posterior of the rows with these weights."""

    @abstractmethod
    def loglik_of_all(self, parameters: Array) -> Array:
        """Evaluate the log-likelihoods of all rows at parameters of shape (n_draws, n_dims)."""

    @abstractmethod
    def total(self, draws: Array) -> Array:
        """Return the sum of the log-likelihoods of all rows at each draw, as fast as possible."""

    @abstractmethod
    def draw(self, rows: Rows, weights: Array, n_draws: int, *, rng: np.random.Generator) -> Array:
        """Draw from the posterior of the rows with these weights."""

    def rough_draw(
        self, rows: Rows, weights: Array, n_draws: int, *, rng: np.random.Generator
    ) -> Array:
        return self.draw(rows, weights, n_draws, rng=rng)

    def sums(
        self, draws: Array, *, n_candidates: int = 0, scale: float = 0.0, key: int = 0
    ) -> PassSums:
        """Read the rows one by one only where candidates are wanted."""
        if n_candidates:
            return super().sums(draws, n_candidates=n_candidates, scale=scale, key=key)
        total, nothing = self.total(draws), self.source.take(slice(0, 0))
        return PassSums(total=total - total.mean(), norm_total=0.0, candidates=nothing)


def full_and_prior(experiment: Experiment) -> tuple[Gaussian, Gaussian]:
    """Return the posterior of all rows, and that of none."""
    rows, nothing = experiment.source.all, experiment.source.take(slice(0, 0))
    full = experiment.gaussian(rows, rows.case_weights)
    return full, experiment.gaussian(nothing, nothing.case_weights)


class Location(Experiment):
    """``theta ~ N(0, I)``, ``x_n ~ N(theta, I)``; draws are parameters, (n_draws, n_dims)."""

    def __init__(self, data: Array) -> None:
        super().__init__(InMemoryRows([data]), data.shape[1], self._loglik)
        self._sum: Array = data.sum(axis=0)

    def gaussian(self, rows: Rows, weights: Array) -> Gaussian:
        precision = 1 + weights.sum()
        mean = weights @ rows.arrays[0] / precision
        return Gaussian(mean=mean, precision=precision * np.eye(len(mean)))

    def draw(self, rows: Rows, weights: Array, n_draws: int, *, rng: np.random.Generator) -> Array:
        """Draw without the matrices, which are multiples of the identity."""
        precision = 1 + weights.sum()
        mean = weights @ rows.arrays[0] / precision
        draws: Array = mean + rng.normal(size=(n_draws, len(mean))) / np.sqrt(precision)
        return draws

    def loglik_of_all(self, parameters: Array) -> Array:
        return self.loglik(parameters, self.source.all)

    def total(self, draws: Array) -> Array:
        """Sum from the sufficient statistics, up to the constant that `_loglik` omits."""
        total: Array = draws @ self._sum
        return total - self.n_rows * np.square(draws).sum(axis=1) / 2

    @staticmethod
    def _loglik(draws: Array, rows: Rows) -> Array:
        """Evaluate the log-likelihoods without ``-|x_n|^2 / 2``, which is constant."""
        loglik_of_all: Array = rows.arrays[0] @ draws.T - np.square(draws).sum(axis=1) / 2
        return loglik_of_all


class LinearRegression(Experiment):
    """``alpha ~ N(mu_0, sigma_0^2 I)``, ``y_n ~ N(b_n alpha, sigma^2)``, all scales known.

    Draws are parameters, of shape (n_draws, n_dims).
    """

    def __init__(
        self,
        basis: Array,
        response: Array,
        *,
        prior_mean: float,
        prior_variance: float,
        noise_variance: float,
    ) -> None:
        super().__init__(InMemoryRows([basis, response]), basis.shape[1], self._loglik)
        self.prior_mean, self.prior_variance = prior_mean, prior_variance
        self.noise_variance = noise_variance
        self._gram, self._fit = basis.T @ basis, np.linalg.lstsq(basis, response)[0]
        missed = response - basis @ self._fit
        self._smallest = float(missed @ missed)

    def gaussian(self, rows: Rows, weights: Array) -> Gaussian:
        basis, response = rows.arrays
        weighted = basis.T * (weights / self.noise_variance)
        precision = weighted @ basis
        diagonal = np.diag_indices_from(precision)
        rounding = len(precision) * np.finfo(float).eps * np.max(precision[diagonal], initial=0)
        precision[diagonal] += 1 / self.prior_variance + rounding  # positive definite in floats too
        slope = weighted @ response + self.prior_mean / self.prior_variance
        return Gaussian(mean=np.linalg.solve(precision, slope), precision=precision)

    def loglik_of_all(self, parameters: Array) -> Array:
        return self.loglik(parameters, self.source.all)

    def draw(self, rows: Rows, weights: Array, n_draws: int, *, rng: np.random.Generator) -> Array:
        return self.gaussian(rows, weights).draw(n_draws, rng=rng)

    def total(self, draws: Array) -> Array:
        """Expand the sum of squares about the least-squares fit."""
        away = draws - self._fit
        squares: Array = self._smallest + np.einsum("sk,sk->s", away @ self._gram, away)
        return squares / (-2 * self.noise_variance)

    def _loglik(self, draws: Array, rows: Rows) -> Array:
        basis, response = rows.arrays
        missed = response[:, None] - basis @ draws.T
        loglik_of_all: Array = np.square(missed) / (-2 * self.noise_variance)
        return loglik_of_all
