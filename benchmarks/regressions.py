"""The generalised linear models of the papers, and Laplace approximations of their posteriors."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, gammaln

from benchmarks.closed_forms import Array, Gaussian
from pymc_coresets.methods.posterior import Indices

LOWEST = (
    -500.0
)  # linear predictor: a posterior that missed the data may reach where rates underflow
SLACK = 1e-12  # of a log-density, by which rounding may lower it


@dataclass(frozen=True, kw_only=True)
class Family:
    """Log-likelihoods of responses y at linear predictors eta, of shape (n_obs, ...).

    ``derivatives`` gives the first and the second by eta.
    """

    potential: Callable[[Array, Array], Array]
    derivatives: Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True, kw_only=True)
class Regression:
    """``theta ~ N(0, I)``, and potentials of ``eta = X theta``, concave in eta."""

    features: Array
    response: Array
    family: Family

    @property
    def n_dims(self) -> int:
        return int(self.features.shape[1])

    def potential(self, eta: Array) -> Array:
        return self.family.potential(eta, self.response)

    def derivatives(self, eta: Array) -> tuple[Array, Array]:
        return self.family.derivatives(eta, self.response)

    def loglik(self, draws: Array) -> Array:
        """Pointwise log-likelihoods, shape (n_obs, n_draws)."""
        return self.potential(self.features @ draws.T)

    def logp(self, theta: Array, weights: Array) -> float:
        """Weighted log-posterior up to the prior's constant."""
        return float(weights @ self.potential(self.features @ theta) - theta @ theta / 2)

    def rows(self, rows: Indices) -> "Regression":
        """The model of some rows."""
        return replace(self, features=self.features[rows], response=self.response[rows])

    def laplace(
        self, weights: Array, *, start: Array | None = None, precise: float = 1e-12
    ) -> Gaussian:
        """Laplace approximation of the weighted posterior, by damped Newton steps."""
        support = np.flatnonzero(weights)
        if len(support) < len(weights):
            return self.rows(support).laplace(weights[support], start=start, precise=precise)
        theta = np.zeros(self.n_dims) if start is None else start
        value = self.logp(theta, weights)
        for _ in range(200):
            gradient, precision = self._expand(theta, weights)
            move = np.linalg.solve(precision, gradient)
            if np.abs(move).max() < precise:
                break
            least = value - SLACK * abs(value)
            while not (value := self.logp(theta + move, weights)) >= least:
                move = move / 2
            theta = theta + move
        return Gaussian(mean=theta, precision=self._expand(theta, weights)[1])

    def _expand(self, theta: Array, weights: Array) -> tuple[Array, Array]:
        first, second = self.derivatives(self.features @ theta)
        gradient = self.features.T @ (weights * first) - theta
        precision = np.eye(len(theta)) - (self.features.T * (weights * second)) @ self.features
        return gradient, precision


def logistic(features: Array, y: Array) -> Regression:
    """Logistic regression with y in {-1, 1} (or {0, 1})."""

    def potential(eta: Array, sign: Array) -> Array:
        return np.asarray(-np.logaddexp(0, -(sign * eta.T).T))

    def derivatives(eta: Array, sign: Array) -> tuple[Array, Array]:
        return sign * expit(-sign * eta), -expit(eta) * expit(-eta)

    family = Family(potential=potential, derivatives=derivatives)
    return Regression(features=features, response=np.where(y > 0, 1.0, -1.0), family=family)


def poisson(features: Array, y: Array) -> Regression:
    """Poisson regression with rate ``log(1 + exp(eta))``."""

    def potential(eta: Array, y: Array) -> Array:
        rate = np.logaddexp(0, np.maximum(eta, LOWEST))
        return np.asarray((y * np.log(rate).T - rate.T - gammaln(y + 1)).T)

    def derivatives(eta: Array, y: Array) -> tuple[Array, Array]:
        eta = np.maximum(eta, LOWEST)
        rate, slope = np.logaddexp(0, eta), expit(eta)
        excess = y / rate - 1
        return excess * slope, excess * slope * (1 - slope) - y * np.square(slope / rate)

    family = Family(potential=potential, derivatives=derivatives)
    return Regression(features=features, response=y, family=family)


class Laplace:
    """Coreset posteriors of a regression, drawn from and judged as Laplace approximations.

    Its draws are the potentials of all rows at parameters drawn, for every method needs their sum.
    The search for a mode starts from the last one.
    """

    def __init__(self, model: Regression) -> None:
        self._model = model
        self._mode = np.zeros(model.n_dims)
        self.n_dims = model.n_dims
        self.n_obs = len(model.features)
        self.base_weights = np.ones(self.n_obs)

    def gaussian(self, weights: Array) -> Gaussian:
        return self._model.laplace(weights)

    def potentials(self, parameters: Array) -> Array:
        return self._model.loglik(parameters)

    def draw(
        self, indices: Indices, weights: Array, n_draws: int, *, rng: np.random.Generator
    ) -> Array:
        few = self._model.rows(indices)
        approximation = few.laplace(weights, start=self._mode, precise=1e-6)
        self._mode = approximation.mean
        return self.potentials(approximation.draw(n_draws, rng=rng))

    def loglik(self, draws: Array, rows: Indices | None = None) -> Array:
        return draws if rows is None else draws[rows]

    def total(self, draws: Array) -> Array:
        total: Array = draws.sum(axis=0)
        return total

    def moments(self, draws: Array) -> tuple[Array, Array]:
        return self.total(draws), draws.std(axis=1)
