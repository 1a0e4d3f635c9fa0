"""Parts of the data of PASS-GLM: polynomials of their rows, sums of these, and their accuracy."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly, chebvander
from numpy.polynomial.polynomial import polyval
from scipy import sparse
from scipy.special import comb

from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError, warn_user
from pymc_coresets.glm.predictor.predictors import Predictors, RowsInMemory
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.papers.polynomial.replacement import NormalPosterior
from pymc_coresets.papers.polynomial.statistics import (
    PolynomialStatistics,
    n_monomials,
    polynomial_statistics,
)
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import FIRST_SAMPLE
from pymc_coresets.rows.passes import BlockPass
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.solving.problem import Matrix, Vector

_log = logging.getLogger(__name__)

#: Above this degree, the conversion to monomials loses more than half of the digits.
MAX_DEGREE = 20
#: Fewest values per row: more than the degree needs, to limit aliasing of truncated terms.
MIN_NODES = 32
#: Largest number of passes over the data to choose the radius.
_ROUNDS = 20


# -- the polynomial of a row -----------------------------------------------------------------------


@lru_cache(maxsize=8)
def chebyshev_fit(degree: int, radius: float) -> tuple[Vector, Matrix]:
    """Return nodes on [-radius, radius], and the map from values there to a polynomial.

    Parameters
    ----------
    degree : int
        K, between 1 and 20.
    radius : float
        R > 0.

    Returns
    -------
    nodes : ndarray of shape (n_nodes,)
        Chebyshev nodes, at least 32 and at least 2 (K + 1).
    fit : ndarray of shape (n_nodes, degree + 1)
        ``phi(nodes) @ fit`` are the coefficients b_0 ... b_K of 1, eta, ..., eta^K.

    Notes
    -----
    The expansion phi ~ sum_k c_k T_k(eta / R) is cut at K; c_k comes from the discrete cosine
    transform of more values than K + 1, so that it is the coefficient of the series itself and not
    that of an interpolant (the paper's eq. 7 with Chebyshev's measure).
    The error on [-R, R] is within a factor of about 2 of the best polynomial's of that degree.

    References
    ----------
    Huggins, J. H., Adams, R. P. and Broderick, T. (2017). PASS-GLM: polynomial approximate
    sufficient statistics for scalable Bayesian GLM inference.
    https://doi.org/10.48550/arXiv.1709.09216

    Examples
    --------
    The paper's PASS-LR2:

    >>> nodes, fit = chebyshev_fit(2, 4.0)
    >>> (-np.log1p(np.exp(-nodes)) @ fit).round(3)
    array([-0.762,  0.5  , -0.082])
    """
    n_nodes = max(MIN_NODES, 2 * (degree + 1))
    nodes = radius * np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    series = chebvander(nodes / radius, degree) * 2 / n_nodes  # the discrete cosine transform
    series[:, 0] /= 2
    to_monomials = np.zeros((degree + 1, degree + 1))
    for k in range(degree + 1):
        to_monomials[k, : k + 1] = cheb2poly(np.eye(degree + 1)[k, : k + 1])
    powers = radius ** np.arange(degree + 1.0)
    return nodes, np.ascontiguousarray(series @ (to_monomials / powers))


def row_polynomials(rows: RowsInMemory, degree: int, radius: float) -> Matrix:
    """Return the polynomial of each row in its predictor, from its log-likelihood at nodes.

    Rows with the same response have the same polynomial, which is computed once for each of up to
    4,096 distinct responses.  If there are more, it is computed for every row, from 32 values of
    its log-likelihood.

    Parameters
    ----------
    rows : RowsInMemory
        Of one predictor.
    degree : int
    radius : float

    Returns
    -------
    ndarray of shape (n_rows, degree + 1)
        Coefficients b_n0 ... b_nK of the powers of eta, in Fortran order.

    Raises
    ------
    InvalidDataError
        If the log-likelihood of a row is not finite at a node.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> row_polynomials(RowsInMemory(found, np.arange(2), np.ones(2)), 2, 4.0).round(3)
    array([[-0.762, -0.5  , -0.082],
           [-0.762,  0.5  , -0.082]])
    """
    nodes, fit = chebyshev_fit(degree, radius)
    values, numbers, first = rows.kinds_at(nodes)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row, node = np.argwhere(wrong)[0]
        where = rows.where(int(first[row]))
        if wrong[row].all():
            raise InvalidDataError(
                f"The log-likelihood of {where} is {values[row, node]} at every linear predictor: "
                "correct an observation that is impossible under the model, or leave it out.",
                topic="regressions",
            )
        raise InvalidDataError(
            f"The log-likelihood of {where} is {values[row, node]} where the linear predictor is "
            f"{nodes[node]:.3g}: no polynomial approximates it on [-{radius:g}, {radius:g}]. Use a "
            "smaller radius, or another link.",
            topic="regressions",
        )
    fitted: Matrix = fit.T @ values.T
    return (fitted if isinstance(numbers, slice) else np.take(fitted, numbers, axis=1)).T


def shifted(coefficients: Matrix, offset: Vector) -> Matrix:
    """Return the polynomials in s that have the values of the given ones at s + offset.

    Parameters
    ----------
    coefficients : ndarray of shape (n_rows, degree + 1)
    offset : ndarray of shape (n_rows,)

    Returns
    -------
    ndarray of shape (n_rows, degree + 1)

    Examples
    --------
    >>> shifted(np.array([[0.0, 0.0, 1.0]]), np.array([3.0]))  # (s + 3)^2
    array([[9., 6., 1.]])
    """
    if not offset.any():
        return coefficients
    powers = coefficients.T
    n = len(powers)
    moved = [
        sum(comb(j + k, j, exact=True) * powers[j + k] * offset**k for k in range(n - j))
        for j in range(n)
    ]
    return np.stack(moved).T


# -- sums over rows --------------------------------------------------------------------------------


class Reach(NamedTuple):
    """Range of the linear predictors at some draws, and accuracy of the polynomials there.

    Attributes
    ----------
    outside : float
        Share of the predictors with |eta_n| > radius, over rows and draws.
    far : float
        The 99.9 % quantile of |eta_n|.
    max_error : float
        Largest difference between the log-likelihood of a row and its polynomial, in nats.
    """

    outside: float
    far: float
    max_error: float


@dataclass(frozen=True, eq=False)
class PredictorRows:
    """A generalised linear model of all rows of some data, in memory or elsewhere.

    Sums polynomials of their log-likelihoods, repeatedly if needed.

    Parameters
    ----------
    seen : SeenRows
        Of one predictor.
    loglikelihood : LogLikelihood
        The model's own log-likelihood of all rows.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
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

    def __getstate__(self) -> dict[str, object]:
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

    def statistics(self, degree: int, radius: float) -> PolynomialStatistics:
        """Sum the statistics of all rows in one pass."""
        seen, loglik = self.seen, self.loglikelihood
        width = n_monomials(len(self.names), -(-degree // 2)) if degree > 2 else 1
        size = seen.block_rows(max(width, MIN_NODES))
        work = partial(_statistics, seen, degree, radius)
        return loglik.source.reduce(BlockPass.of(size, work)).finished()

    def reach(self, degree: int, radius: float, coefficients: Matrix) -> Reach:
        """Compare the polynomials of a sample of the rows with their log-likelihoods at draws."""
        rows, weights = self._sample
        [eta] = rows.numbers(coefficients)
        polynomial = polyval(eta, row_polynomials(rows, degree, radius).T[:, None], tensor=False)
        return Reach(
            outside=float(np.average((np.abs(eta) > radius).mean(axis=0), weights=weights)),
            far=self.quantile(coefficients, 0.999),
            max_error=float(np.abs(rows.density(eta[None]) - polynomial).max()),
        )

    def quantile(self, coefficients: Matrix, probability: float) -> float:
        """Return a quantile of |eta_n| over a sample of the rows and all draws (n_draws, p)."""
        rows, weights = self._sample
        eta = np.abs(rows.numbers(coefficients)[0])
        if not np.ptp(weights):
            return float(np.quantile(eta, probability))
        weights = np.broadcast_to(weights, eta.shape).ravel()
        return float(np.quantile(eta.ravel(), probability, method="inverted_cdf", weights=weights))

    def settled_radius(
        self, degree: int, *, rng: np.random.Generator, show: Callable[[int], None]
    ) -> float:
        """Find the radius that covers the share of the predictors that suits the degree.

        Warns
        -----
        CoresetWarning
            If it has not converged after 20 rounds.
        """
        # Quadratics are best with 1.5 to 3 % of the predictors outside, on every data set tried:
        # a wider radius worsens the fit in the bulk of the predictors.  Higher degrees are
        # inaccurate outside.
        radius, low, high, least, settled = 4.0, 0.0, math.inf, 1.0, 0.05
        for _ in range(_ROUNDS):
            statistics, bulk = self.statistics(2, radius), math.inf
            show(self.loglikelihood.n_rows)
            if statistics.is_proper:
                theta = self._draws(statistics, 50, rng)
                bulk = self.quantile(theta, 0.975)
            _log.info("radius %.3g: 97.5 %% of |eta| below %.3g", radius, bulk)
            too_small = max(least, (1 + settled) * low)
            if abs(bulk / radius - 1) <= settled or bulk <= radius <= too_small:
                if degree == 2:
                    return radius
                return max(1.1 * self.quantile(theta, 0.999), least)
            low, high = (radius, high) if bulk > radius else (low, radius)
            # An improper posterior means that the radius is too small: responses lie outside it.
            radius = max(bulk if bulk < math.inf else 2 * radius, least)
            if not low < radius < high:
                radius = math.sqrt(low * high)
        warn_user(
            f"radius='auto' has not converged after {_ROUNDS} rounds; using {radius:.3g}. Call "
            "check(), and give a radius or scale the covariates if it fails."
        )
        return radius

    @cached_property
    def _sample(self) -> tuple[RowsInMemory, Vector]:
        """A sample of at most 100,000 rows, fewer if they are wide, with their case weights."""
        size = min(FIRST_SAMPLE, rows_at_once(len(self.names) / 8, least=1_000))
        subsample = self.loglikelihood.source.subsample(size, key=0, distinct=True)
        return self.seen.of(subsample.rows), subsample.weights

    def _draws(
        self, statistics: PolynomialStatistics, n_draws: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw coefficients from a normal approximation of the posterior, (n_draws, p)."""
        quadratic = statistics.quadratic(self.names)
        try:
            return NormalPosterior.of(self.held, quadratic).draw(n_draws, rng=rng)
        except UnsupportedModelError:  # use a unit-information prior instead
            information = -quadratic.curvature.diagonal() / max(statistics.n_obs, 1)
        # A coefficient that occurs in no row changes no predictor: any precision will do.
        unit = np.where(information > 0, information, 1.0)
        factor = factor_of(sparse.diags_array(unit) - quadratic.curvature)
        return Normal(factor.solve(quadratic.slope), factor).draw(n_draws, rng=rng)[0]


def _statistics(seen: SeenRows, degree: int, radius: float, some: Rows) -> PolynomialStatistics:
    rows = seen.of(some)
    [predictor] = rows.predictors
    coefficients = shifted(row_polynomials(rows, degree, radius), predictor.offset)
    if (rows.case_weights != 1.0).any():
        coefficients = coefficients * rows.case_weights[:, None]
    n_obs = float(rows.case_weights.sum())
    return polynomial_statistics(predictor.design, coefficients, radius, n_obs)
