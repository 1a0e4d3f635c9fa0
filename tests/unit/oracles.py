"""Models whose coreset posteriors, covariances and divergences are known in closed form."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.closed_forms import InMemoryLogLikelihoods
from pymc_coresets.rows.memory import InMemoryRows


def dense(solution, n_rows):
    """Weights of all rows: 0 for those that are not in the coreset."""
    weights = np.zeros(n_rows)
    weights[solution.rows.positions] = solution.weights
    return weights


@dataclass(frozen=True)
class Conjugate:
    """A coreset posterior that is Gaussian: standard normal prior, quadratic log-likelihoods.

    Log-likelihood n is ``-(y_n - B_n theta)^T (y_n - B_n theta) / 2`` up to a constant, for
    a matrix B_n of shape (k, d) and y_n of shape (k,).
    """

    matrices: np.ndarray
    responses: np.ndarray
    case_weights: np.ndarray

    @cached_property
    def source(self):
        return InMemoryRows([self.matrices, self.responses], self.case_weights)

    @property
    def n_rows(self):
        return len(self.responses)

    n_terms = n_rows

    @property
    def total_weight(self):
        return self.source.total_weight

    @property
    def n_dims(self):
        return self.matrices.shape[2]

    def subsample(self, size, *, key, distinct=False):
        return self.source.subsample(size, key=key, distinct=distinct)

    def sums(self, draws, **options):
        return InMemoryLogLikelihoods(self.source, self.n_dims, self.loglik).sums(draws, **options)

    def gaussian(self, weights):
        """Mean and covariance of the weighted posterior."""
        precision = np.eye(self.matrices.shape[2]) + np.einsum(
            "n,nki,nkj->ij", weights, self.matrices, self.matrices, optimize=True
        )
        slope = np.einsum("n,nki,nk->i", weights, self.matrices, self.responses, optimize=True)
        return np.linalg.solve(precision, slope), np.linalg.inv(precision)

    def draw(self, rows, weights, n_draws, *, rng):
        everything = np.zeros(self.n_rows)
        everything[rows.positions] = weights
        mean, covariance = self.gaussian(everything)
        noise = rng.normal(size=(n_draws, len(mean)))
        return mean + noise @ np.linalg.cholesky(covariance).T

    rough_draw = draw

    def loglik(self, draws, rows=None):
        matrices, responses = (self.source.all if rows is None else rows).arrays
        fits = np.einsum("nki,si->nks", matrices, draws, optimize=True)
        return -0.5 * np.square(responses[:, :, None] - fits).sum(1)

    def kl(self, weights):
        """KL(pi_w || pi) in nats."""
        (mean, covariance), (full, full_covariance) = map(
            self.gaussian, (weights, self.case_weights)
        )
        ratio = np.linalg.solve(full_covariance, covariance)
        shift = np.linalg.solve(full_covariance, full - mean) @ (full - mean)
        return 0.5 * (np.trace(ratio) - len(mean) - np.linalg.slogdet(ratio)[1] + shift)

    def kl_gradient(self, weights):
        return -self.covariance(weights) @ (self.case_weights - weights)


class Location(Conjugate):
    """``theta ~ N(0, I)``, ``x_n ~ N(theta, I)``."""

    @classmethod
    def simulate(cls, n_obs, dimension, *, seed):
        rng = np.random.default_rng(seed)
        matrices = np.broadcast_to(np.eye(dimension), (n_obs, dimension, dimension))
        return cls(matrices, 1 + rng.normal(size=(n_obs, dimension)), np.ones(n_obs))

    def covariance(self, weights):
        """Cov_w[f_n, f_m], Equation 30 of Campbell and Beronov (2019)."""
        mean, psi = self.gaussian(weights)
        nu = self.responses - mean
        return 0.5 * np.sum(psi**2) + nu @ psi @ nu.T


class Line(Conjugate):
    """``theta ~ N(0, I)``, ``y_n ~ N(b_n theta, 1)``: linear regression."""

    @classmethod
    def simulate(cls, n_obs, dimension, *, seed):
        rng = np.random.default_rng(seed)
        slopes = rng.normal(size=(n_obs, dimension)) * np.linspace(0.5, 2, dimension)
        responses = slopes @ np.linspace(-1, 1, dimension) + rng.normal(size=n_obs)
        return cls(slopes[:, None], responses[:, None], np.ones(n_obs))

    def covariance(self, weights):
        """Cov_w[f_n, f_m], Appendix B of Campbell and Beronov (2019)."""
        mean, covariance = self.gaussian(weights)
        slopes = self.matrices[:, 0]
        nu = self.responses[:, 0] - slopes @ mean
        inner = slopes @ covariance @ slopes.T
        return np.outer(nu, nu) * inner + 0.5 * inner**2
