"""How far the linear predictors reach, and how far the polynomials are off there."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.polynomial.polynomial import polyval

from pymc_coresets.glm.polynomial.statistics import polynomials_of
from pymc_coresets.glm.predictor.seen_rows import BlockSums, PredictorRows, RowsInMemory, SeenRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Matrix, Vector

_SAMPLED_ROWS, _SAMPLED_ENTRIES = 100_000, 2**25


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where the linear predictors lie at some draws, and how good the polynomials are there.

    Attributes
    ----------
    n_obs : float
        Number of rows N, each counted as often as its base weight says.
    n_outside : float
        Number of predictors with |eta_n| > radius, over all rows and draws, counted likewise.
    n_draws : int
        Number of draws.
    max_error : float
        Largest difference between the log-likelihood of a row and its polynomial, in nats.
    far : float
        The 99.9 % quantile of |eta_n|, or the largest of those of several parts; 0 if unknown.
    """

    n_obs: float
    n_outside: float
    n_draws: int
    max_error: float
    far: float = 0.0

    @property
    def outside(self) -> float:
        """Share of the predictors outside the radius."""
        return self.n_outside / (self.n_obs * self.n_draws)

    def __add__(self, other: "Reach") -> "Reach":
        if not isinstance(other, Reach):
            return NotImplemented
        return replace(
            self,
            n_obs=self.n_obs + other.n_obs,
            n_outside=self.n_outside + other.n_outside,
            max_error=max(self.max_error, other.max_error),
            far=max(self.far, other.far),
        )


def reach_pass(
    seen: SeenRows, degree: int, radius: float, coefficients: Matrix
) -> BlockSums[Reach]:
    """Return what compares the polynomials of all rows with their log-likelihoods.

    Parameters
    ----------
    seen : SeenRows
        Of one predictor.
    degree : int
    radius : float
    coefficients : ndarray of shape (n_draws, n_coefficients)
    """
    work = partial(_reach, seen, degree, radius, coefficients)
    return BlockSums(seen.block_rows(8 * len(coefficients)), work)


def _reach(seen: SeenRows, degree: int, radius: float, coefficients: Matrix, some: Rows) -> Reach:
    rows = seen.of(some)
    [line] = rows.lines
    eta = line.at(coefficients) + line.offset
    polynomial = polyval(eta, polynomials_of(rows, degree, radius).T[:, None], tensor=False)
    return Reach(
        n_obs=float(rows.base_weights.sum()),
        n_outside=float(np.count_nonzero(np.abs(eta) > radius, axis=0) @ rows.base_weights),
        n_draws=len(coefficients),
        max_error=float(np.abs(rows.density(eta) - polynomial).max()),
    )


@dataclass(frozen=True, eq=False)
class PredictorSample:
    """At most 100 000 rows, fewer where they are wide, for quantiles of the predictors of all rows.

    Parameters
    ----------
    rows : RowsInMemory
    weights : ndarray of shape (len(rows),)
        How many rows each one stands for.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.potentials.evaluation import LogLikelihood
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     eta = pm.Normal("b") * np.array([1.0, -3.0])
    ...     y = pm.Bernoulli("y", logit_p=eta, observed=[0, 1])
    >>> loglik = LogLikelihood(find_observations(model))
    >>> seen = SeenRows(find_linear_predictor(loglik.observations))
    >>> PredictorSample.of(PredictorRows(seen, loglik)).quantile(np.array([[2.0]]), 0.5)
    4.0
    """

    rows: RowsInMemory
    weights: Vector

    @classmethod
    def of(cls, part: PredictorRows) -> "PredictorSample":
        """Take them, in one reading of rows that lie elsewhere."""
        size = min(_SAMPLED_ROWS, max(1_000, _SAMPLED_ENTRIES // len(part.names)))
        scan = part.loglikelihood.source.scan(size, key=0, distinct=True)
        return cls(part.seen.of(scan.rows), scan.weights)

    def quantile(self, coefficients: Matrix, probability: float) -> float:
        """Return a quantile of |eta_n| over these rows and all draws (n_draws, n_coefficients)."""
        [line] = self.rows.lines
        eta = np.abs(line.at(coefficients) + line.offset)
        if not np.ptp(self.weights):
            return float(np.quantile(eta, probability))
        weights = np.broadcast_to(self.weights, eta.shape).ravel()
        return float(np.quantile(eta.ravel(), probability, method="inverted_cdf", weights=weights))
