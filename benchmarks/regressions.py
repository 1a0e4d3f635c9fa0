"""The generalised linear models of the papers, and Laplace approximations of their posteriors."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, gammaln

from benchmarks.closed_forms import Array, Experiment, Gaussian
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.values import Rows

LOWEST = -500.0  # linear predictor; below it rates underflow, and poor posteriors reach that far
SLACK = 1e-12  # share of a log-density by which rounding may lower it


@dataclass(frozen=True, kw_only=True)
class Family:
    """Log-likelihoods of responses y at linear predictors eta, of shape (n_obs, ...).

    ``derivatives`` returns the first and the second derivative with respect to eta.
    """

    loglik_at: Callable[[Array, Array], Array]
    derivatives: Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True, kw_only=True)
class Regression:
    """``theta ~ N(0, I)``, and log-likelihoods of ``eta = X theta``, concave in eta."""

    features: Array
    response: Array
    family: Family

    @property
    def n_dims(self) -> int:
        return int(self.features.shape[1])

    def loglik_at(self, eta: Array) -> Array:
        return self.family.loglik_at(eta, self.response)

    def derivatives(self, eta: Array) -> tuple[Array, Array]:
        return self.family.derivatives(eta, self.response)

    def loglik(self, draws: Array) -> Array:
        """Evaluate the pointwise log-likelihoods, of shape (n_obs, n_draws)."""
        return self.loglik_at(self.features @ draws.T)

    def logp(self, theta: Array, weights: Array) -> float:
        """Return the weighted log-posterior up to the prior's constant."""
        return float(weights @ self.loglik_at(self.features @ theta) - theta @ theta / 2)

    def of(self, features: Array, response: Array) -> "Regression":
        """Return the same model of other rows."""
        return replace(self, features=features, response=response)

    def laplace(
        self, weights: Array, *, start: Array | None = None, precise: float = 1e-12
    ) -> Gaussian:
        """Approximate the weighted posterior about its mode, found by damped Newton steps."""
        support = np.flatnonzero(weights)
        if len(support) < len(weights):
            few = self.of(self.features[support], self.response[support])
            return few.laplace(weights[support], start=start, precise=precise)
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
    """Return a logistic regression with y in {-1, 1} (or {0, 1})."""

    def loglik_at(eta: Array, sign: Array) -> Array:
        return np.asarray(-np.logaddexp(0, -(sign * eta.T).T))

    def derivatives(eta: Array, sign: Array) -> tuple[Array, Array]:
        return sign * expit(-sign * eta), -expit(eta) * expit(-eta)

    family = Family(loglik_at=loglik_at, derivatives=derivatives)
    return Regression(features=features, response=np.where(y > 0, 1.0, -1.0), family=family)


def poisson(features: Array, y: Array) -> Regression:
    """Return a Poisson regression with rate ``log(1 + exp(eta))``."""

    def loglik_at(eta: Array, y: Array) -> Array:
        rate = np.logaddexp(0, np.maximum(eta, LOWEST))
        return np.asarray((y * np.log(rate).T - rate.T - gammaln(y + 1)).T)

    def derivatives(eta: Array, y: Array) -> tuple[Array, Array]:
        eta = np.maximum(eta, LOWEST)
        rate, slope = np.logaddexp(0, eta), expit(eta)
        excess = y / rate - 1
        return excess * slope, excess * slope * (1 - slope) - y * np.square(slope / rate)

    family = Family(loglik_at=loglik_at, derivatives=derivatives)
    return Regression(features=features, response=y, family=family)


class Laplace(Experiment):
    """Coreset posteriors of a regression, drawn from and judged as Laplace approximations.

    Its draws are matrices (n_obs, n_draws) of all rows' log-likelihoods at the parameters that
    were drawn: every method needs their sum and some of them, and they are evaluated once.  The
    search for a mode starts from the last mode.
    """

    def __init__(self, model: Regression) -> None:
        source = InMemoryRows([model.features, model.response])
        super().__init__(source, model.n_dims, lambda draws, rows: draws[rows.positions])
        self._model = model
        self._mode = np.zeros(model.n_dims)

    def gaussian(self, rows: Rows, weights: Array) -> Gaussian:
        return self._model.of(*rows.arrays).laplace(weights)

    def loglik_of_all(self, parameters: Array) -> Array:
        return self._model.loglik(parameters)

    def draw(self, rows: Rows, weights: Array, n_draws: int, *, rng: np.random.Generator) -> Array:
        few = self._model.of(*rows.arrays)
        approximation = few.laplace(weights, start=self._mode, precise=1e-6)
        self._mode = approximation.mean
        return self.loglik_of_all(approximation.draw(n_draws, rng=rng))

    def total(self, draws: Array) -> Array:
        total: Array = draws.sum(axis=0)
        return total
