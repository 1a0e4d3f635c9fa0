"""Models whose coreset posteriors are Gaussian, so that divergences are known exactly."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from pymc_coresets.methods.posterior import CoresetPosterior, Indices

type Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """A normal distribution by its mean and precision matrix."""

    mean: Array
    precision: Array

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> Array:
        """Draws of shape (n_draws, n_dims): ``mean + L^-T z`` for precision ``L L^T``."""
        root = np.linalg.cholesky(self.precision)
        noise = rng.normal(size=(len(self.mean), n_draws))
        draws: Array = self.mean + solve_triangular(root, noise, lower=True, trans="T").T
        return draws

    def kl(self, other: "Gaussian") -> float:
        """KL(self || other) in nats, accurate for near-equal precisions too."""
        root = np.linalg.cholesky(self.precision)
        relative = solve_triangular(root, other.precision - self.precision, lower=True)
        excess = np.linalg.eigvalsh(solve_triangular(root, relative.T, lower=True))
        excess = np.maximum(excess, np.nextafter(-1, 0))  # what rounding may cross
        shift = other.mean - self.mean
        return float((excess - np.log1p(excess)).sum() + shift @ other.precision @ shift) / 2


class Experiment(CoresetPosterior[Array], Protocol):
    """A coreset posterior that is, or is taken for, a Gaussian."""

    @property
    def n_dims(self) -> int:
        """Number of parameters."""

    def gaussian(self, weights: Array) -> Gaussian:
        """The posterior of all rows with these weights."""

    def potentials(self, parameters: Array) -> Array:
        """Potentials of all rows at parameters of shape (n_draws, n_dims)."""


def full_and_prior(experiment: Experiment) -> tuple[Gaussian, Gaussian]:
    """The posterior of all rows, and of none."""
    everything = experiment.base_weights
    return experiment.gaussian(everything), experiment.gaussian(0 * everything)


@dataclass(frozen=True, kw_only=True)
class Location:
    """``theta ~ N(0, I)``, ``x_n ~ N(theta, I)``."""

    data: Array

    @property
    def n_obs(self) -> int:
        return len(self.data)

    @property
    def n_dims(self) -> int:
        return int(self.data.shape[1])

    @property
    def base_weights(self) -> Array:
        return np.ones(self.n_obs)

    def gaussian(self, weights: Array) -> Gaussian:
        precision = 1 + weights.sum()
        mean = weights @ self.data / precision
        return Gaussian(mean=mean, precision=precision * np.eye(len(mean)))

    def potentials(self, parameters: Array) -> Array:
        return self.loglik(parameters)

    def draw(
        self, indices: Indices, weights: Array, n_draws: int, *, rng: np.random.Generator
    ) -> Array:
        precision = 1 + weights.sum()
        mean = weights @ self.data[indices] / precision
        draws: Array = mean + rng.normal(size=(n_draws, len(mean))) / np.sqrt(precision)
        return draws

    def loglik(self, draws: Array, rows: Indices | None = None) -> Array:
        """Up to ``-|x_n|^2 / 2``, a constant."""
        data = self.data if rows is None else self.data[rows]
        potentials: Array = data @ draws.T - np.square(draws).sum(axis=1) / 2
        return potentials

    def total(self, draws: Array) -> Array:
        total: Array = draws @ self._sum
        return total - self.n_obs * np.square(draws).sum(axis=1) / 2

    def moments(self, draws: Array) -> tuple[Array, Array]:
        return self.total(draws), self.loglik(draws).std(axis=1)

    @cached_property
    def _sum(self) -> Array:
        total: Array = self.data.sum(axis=0)
        return total


@dataclass(frozen=True, kw_only=True)
class LinearRegression:
    """``alpha ~ N(mu_0, sigma_0^2 I)``, ``y_n ~ N(b_n alpha, sigma^2)``, all scales known."""

    basis: Array
    response: Array
    prior_mean: float
    prior_variance: float
    noise_variance: float

    @property
    def n_obs(self) -> int:
        return len(self.response)

    @property
    def n_dims(self) -> int:
        return int(self.basis.shape[1])

    @property
    def base_weights(self) -> Array:
        return np.ones(self.n_obs)

    def gaussian(self, weights: Array) -> Gaussian:
        rows = np.flatnonzero(weights)
        return self._posterior(rows, weights[rows])

    def potentials(self, parameters: Array) -> Array:
        return self.loglik(parameters)

    def draw(
        self, indices: Indices, weights: Array, n_draws: int, *, rng: np.random.Generator
    ) -> Array:
        return self._posterior(indices, weights).draw(n_draws, rng=rng)

    def loglik(self, draws: Array, rows: Indices | None = None) -> Array:
        chosen: Any = slice(None) if rows is None else rows
        missed = self.response[chosen, None] - self.basis[chosen] @ draws.T
        potentials: Array = np.square(missed) / (-2 * self.noise_variance)
        return potentials

    def total(self, draws: Array) -> Array:
        """From the sufficient statistics, expanded about the least-squares fit."""
        gram, fit, smallest = self._statistics
        away = draws - fit
        squares: Array = smallest + np.einsum("sk,sk->s", away @ gram, away)
        return squares / (-2 * self.noise_variance)

    def moments(self, draws: Array) -> tuple[Array, Array]:
        return self.total(draws), self.loglik(draws).std(axis=1)

    def _posterior(self, rows: Indices, weights: Array) -> Gaussian:
        basis = self.basis[rows]
        weighted = basis.T * (weights / self.noise_variance)
        precision = weighted @ basis
        diagonal = np.diag_indices_from(precision)
        rounding = len(precision) * np.finfo(float).eps * np.max(precision[diagonal], initial=0)
        precision[diagonal] += 1 / self.prior_variance + rounding  # positive definite in floats too
        slope = weighted @ self.response[rows] + self.prior_mean / self.prior_variance
        return Gaussian(mean=np.linalg.solve(precision, slope), precision=precision)

    @cached_property
    def _statistics(self) -> tuple[Array, Array, float]:
        """Gram matrix of the basis, least-squares fit, and its sum of squares."""
        fit = np.linalg.lstsq(self.basis, self.response)[0]
        missed = self.response - self.basis @ fit
        return self.basis.T @ self.basis, fit, float(missed @ missed)
