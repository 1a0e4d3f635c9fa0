"""Passes over the rows of a generalised linear model: their sums, and the radius that suits."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from pymc_coresets.exceptions import UnsupportedModelError, warn_user
from pymc_coresets.glm.polynomial.chebyshev import MIN_NODES, shifted
from pymc_coresets.glm.polynomial.closed_form import Gaussian, GaussianPrior
from pymc_coresets.glm.polynomial.forms import n_monomials
from pymc_coresets.glm.polynomial.reach import PredictorSample, Reach, reach_pass
from pymc_coresets.glm.polynomial.statistics import (
    PolynomialStatistics,
    polynomial_statistics,
    polynomials_of,
)
from pymc_coresets.glm.predictor.seen_rows import BlockSums, PredictorRows, SeenRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Matrix

_log = logging.getLogger(__name__)

_FIRST_RADIUS, _LEAST_RADIUS = 4.0, 1.0
# Quadratics are best with 1.5 to 3 % of the predictors outside, on every data set that we tried: a
# wider radius makes the fit worse where nearly all predictors are.
_BULK, _SETTLED = 0.975, 0.05
_NEARLY_ALL, _MARGIN = 0.999, 1.1  # for higher degrees, which are bad outside
_ROUNDS = 20
_DRAWS = 50


def polynomial_pass(
    seen: SeenRows, degree: int, radius: float, *, on_device: bool = False
) -> BlockSums[PolynomialStatistics]:
    """Return what adds up the statistics of all rows.

    Parameters
    ----------
    seen : SeenRows
        Of one predictor.
    degree : int
    radius : float
    on_device : bool, default False
        Whether JAX multiplies the monomials, on its default device.
    """
    width = n_monomials(len(seen.found.names), -(-degree // 2)) if degree > 2 else 1
    size = seen.block_rows(max(width, MIN_NODES))
    return BlockSums(size, partial(_statistics, seen, degree, radius, on_device=on_device))


def _statistics(
    seen: SeenRows, degree: int, radius: float, some: Rows, *, on_device: bool
) -> PolynomialStatistics:
    rows = seen.of(some)
    [line] = rows.lines
    coefficients = shifted(polynomials_of(rows, degree, radius), line.offset)
    if (rows.base_weights != 1.0).any():
        coefficients = coefficients * rows.base_weights[:, None]
    n_obs = float(rows.base_weights.sum())
    return polynomial_statistics(line.design, coefficients, radius, n_obs, on_device=on_device)


@dataclass(frozen=True, eq=False)
class Passes:
    """Sums polynomials of the log-likelihoods of all rows, as often as it is asked.

    Parameters
    ----------
    part : PredictorRows

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.glm.predictor.seen_rows import SeenRows
    >>> from pymc_coresets.potentials.evaluation import LogLikelihood
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> loglik = LogLikelihood(find_observations(model))
    >>> seen = SeenRows(find_linear_predictor(loglik.observations))
    >>> passes = Passes(PredictorRows(seen, loglik))
    >>> passes.statistics(2, 4.0).moments[2].round(3)
    array([[-0.245]])
    >>> passes.reach(2, 4.0, np.array([[5.0]])).far
    5.0
    """

    part: PredictorRows

    def statistics(
        self, degree: int, radius: float, show: Callable[[int], None] | None = None
    ) -> PolynomialStatistics:
        """Sum the statistics of all rows: one pass, after which `show` is told of how many."""
        seen, loglik = self.part.seen, self.part.loglikelihood
        # The processor adds up products of sparse rows.
        on_device = loglik.backend is not None and isinstance(
            seen.found.lines[0].design, np.ndarray
        )
        work = polynomial_pass(seen, degree, radius, on_device=on_device)
        found = loglik.source.reduce(work).finished()
        if show is not None:
            show(loglik.n_rows)
        return found

    def reach(self, degree: int, radius: float, coefficients: Matrix) -> Reach:
        """Compare the polynomials of all rows with their log-likelihoods at some draws.

        One pass over the rows, and a reading of some.
        """
        work = reach_pass(self.part.seen, degree, radius, coefficients)
        found = self.part.loglikelihood.source.reduce(work)
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
        return PredictorSample.of(self.part)

    @cached_property
    def _prior(self) -> GaussianPrior | None:
        try:
            return GaussianPrior.of(self.part.held)
        except UnsupportedModelError:
            return None  # a unit-information prior takes its place

    def _draws(self, statistics: PolynomialStatistics, rng: np.random.Generator) -> np.ndarray:
        """Draw coefficients from a Gaussian approximation of the posterior, (n_draws, p)."""
        quadratic = statistics.quadratic(self.part.names)
        if self._prior is not None:
            z = self._prior.posterior(quadratic).draw(_DRAWS, rng=rng)
            return self._prior.coefficients_at(z)
        information = -quadratic.curvature.diagonal() / max(statistics.n_obs, 1)
        # A coefficient that occurs in no row moves no predictor: any precision will do.
        unit = np.diag(np.where(information > 0, information, 1.0))
        return Gaussian(quadratic.minus(np.zeros(len(unit)), unit)).draw(_DRAWS, rng=rng)
