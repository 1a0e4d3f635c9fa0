"""Passes over the rows of a generalised linear model: sums, their errors, the radius that suits."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyval

from pymc_coresets.exceptions import UnsupportedModelError, warn_user
from pymc_coresets.glm.polynomial.chebyshev import MIN_NODES, row_polynomials, shifted
from pymc_coresets.glm.polynomial.forms import n_monomials
from pymc_coresets.glm.polynomial.replacement import Gaussian, GaussianPrior
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics, polynomial_statistics
from pymc_coresets.glm.predictor.seen_rows import BlockSums, RowsInMemory, SeenRows
from pymc_coresets.glm.predictor.several import Predictors
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Matrix, Vector

_log = logging.getLogger(__name__)

_SAMPLED_ROWS, _SAMPLED_ENTRIES = 100_000, 2**25
_FIRST_RADIUS, _LEAST_RADIUS = 4.0, 1.0
# Quadratics are best with 1.5 to 3 % of the predictors outside, on every data set that we tried: a
# wider radius makes the fit worse where nearly all predictors are.
_BULK, _SETTLED = 0.975, 0.05
_NEARLY_ALL, _MARGIN = 0.999, 1.1  # for higher degrees, which are bad outside
_ROUNDS = 20
_DRAWS = 50


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
    polynomial = polyval(eta, row_polynomials(rows, degree, radius).T[:, None], tensor=False)
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
    def of(cls, part: "PredictorRows") -> "PredictorSample":
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


def polynomial_pass(seen: SeenRows, degree: int, radius: float) -> BlockSums[PolynomialStatistics]:
    """Return what adds up the statistics of all rows.

    Parameters
    ----------
    seen : SeenRows
        Of one predictor.
    degree : int
    radius : float
    """
    width = n_monomials(len(seen.found.names), -(-degree // 2)) if degree > 2 else 1
    size = seen.block_rows(max(width, MIN_NODES))
    return BlockSums(size, partial(_statistics, seen, degree, radius))


def _statistics(seen: SeenRows, degree: int, radius: float, some: Rows) -> PolynomialStatistics:
    rows = seen.of(some)
    [line] = rows.lines
    coefficients = shifted(row_polynomials(rows, degree, radius), line.offset)
    if (rows.base_weights != 1.0).any():
        coefficients = coefficients * rows.base_weights[:, None]
    n_obs = float(rows.base_weights.sum())
    return polynomial_statistics(line.design, coefficients, radius, n_obs)


@dataclass(frozen=True, eq=False)
class PredictorRows:
    """A generalised linear model of all rows of some data, wherever they lie.

    Polynomials of their log-likelihoods are summed as often as it is asked.

    Parameters
    ----------
    seen : SeenRows
        Of one predictor.
    loglikelihood : LogLikelihood
        The model's own log-likelihood of all rows.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> loglik = LogLikelihood(find_observations(model))
    >>> rows = PredictorRows(SeenRows(find_linear_predictor(loglik.observations)), loglik)
    >>> rows.statistics(2, 4.0).moments[2].round(3)
    array([[-0.245]])
    >>> rows.reach(2, 4.0, np.array([[5.0]])).far
    5.0
    """

    seen: SeenRows
    loglikelihood: LogLikelihood

    def __getstate__(self) -> dict[str, Any]:
        return {"seen": self.seen, "loglikelihood": self.loglikelihood}  # and no sample of rows

    @property
    def held(self) -> Predictors:
        """The predictor of the rows that the model holds."""
        return self.seen.found

    @property
    def names(self) -> tuple[str, ...]:
        """A label for each coefficient."""
        return self.held.names

    @property
    def observations(self) -> Observations:
        """The observations that the model holds."""
        return self.held.observations

    def statistics(
        self, degree: int, radius: float, show: Callable[[int], None] | None = None
    ) -> PolynomialStatistics:
        """Sum the statistics of all rows: one pass, after which `show` is told of how many."""
        seen, loglik = self.seen, self.loglikelihood
        work = polynomial_pass(seen, degree, radius)
        found = loglik.source.reduce(work).finished()
        if show is not None:
            show(loglik.n_rows)
        return found

    def reach(self, degree: int, radius: float, coefficients: Matrix) -> Reach:
        """Compare the polynomials of all rows with their log-likelihoods at some draws.

        One pass over the rows, and a reading of some.
        """
        work = reach_pass(self.seen, degree, radius, coefficients)
        found = self.loglikelihood.source.reduce(work)
        return replace(found, far=self._sample.quantile(coefficients, _NEARLY_ALL))

    def settled_radius(
        self, degree: int, *, rng: np.random.Generator, show: Callable[[int], None]
    ) -> float:
        """Find the radius that covers the share of the predictors that suits the degree.

        Warns
        -----
        CoresetWarning
            If it had not settled after 20 rounds.
        """
        radius, low, high = _FIRST_RADIUS, 0.0, math.inf
        for _ in range(_ROUNDS):
            statistics, bulk = self.statistics(2, radius, show), math.inf
            if statistics.is_proper:
                theta = self._draws(statistics, rng)
                bulk = self._sample.quantile(theta, _BULK)
            _log.info("radius %.3g: %.1f %% of |eta| below %.3g", radius, 100 * _BULK, bulk)
            too_small = max(_LEAST_RADIUS, (1 + _SETTLED) * low)
            if abs(bulk / radius - 1) <= _SETTLED or bulk <= radius <= too_small:
                if degree == 2:
                    return radius
                return max(_MARGIN * self._sample.quantile(theta, _NEARLY_ALL), _LEAST_RADIUS)
            low, high = (radius, high) if bulk > radius else (low, radius)
            # Without a posterior the radius is too small: the responses lie outside it.
            radius = max(bulk if bulk < math.inf else 2 * radius, _LEAST_RADIUS)
            if not low < radius < high:
                radius = math.sqrt(low * high)
        warn_user(
            f"radius='auto' had not settled after {_ROUNDS} rounds, and stays at {radius:.3g}: see "
            "check(), and give a radius, or scale the covariates."
        )
        return radius

    @cached_property
    def _sample(self) -> PredictorSample:
        return PredictorSample.of(self)

    @cached_property
    def _prior(self) -> GaussianPrior | None:
        try:
            return GaussianPrior.of(self.held)
        except UnsupportedModelError:
            return None  # a unit-information prior takes its place

    def _draws(self, statistics: PolynomialStatistics, rng: np.random.Generator) -> np.ndarray:
        """Draw coefficients from a Gaussian approximation of the posterior, (n_draws, p)."""
        quadratic = statistics.quadratic(self.names)
        if self._prior is not None:
            z = self._prior.posterior(quadratic).draw(_DRAWS, rng=rng)
            return self._prior.coefficients_at(z)
        information = -quadratic.curvature.diagonal() / max(statistics.n_obs, 1)
        # A coefficient that occurs in no row moves no predictor: any precision will do.
        unit = np.diag(np.where(information > 0, information, 1.0))
        return Gaussian(quadratic.minus(np.zeros(len(unit)), unit)).draw(_DRAWS, rng=rng)
