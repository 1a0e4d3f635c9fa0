"""Passes over the rows of a generalised linear model: their sums, and the radius that suits."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from pymc_coresets.exceptions import UnsupportedModelError, warn_user
from pymc_coresets.glm.polynomial.closed_form import gaussian_posterior
from pymc_coresets.glm.polynomial.prior import GaussianPrior, gaussian_prior
from pymc_coresets.glm.polynomial.reach import SpreadRows
from pymc_coresets.glm.polynomial.replacement import polynomials_on_device, row_polynomials
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics, PolynomialSums
from pymc_coresets.glm.predictor.model_parts import PredictorBlock, coefficient_draws
from pymc_coresets.glm.predictor.streamed_predictor import PredictorRows

if TYPE_CHECKING:
    from pymc_coresets.glm.device_polynomials import DeviceSums

__all__ = ["Passes"]

_log = logging.getLogger(__name__)

_FIRST_RADIUS, _LEAST_RADIUS = 4.0, 1.0
# Quadratics are best with 1.5 to 3 % of the predictors outside, on every data set that we tried: a
# wider radius makes the fit worse where nearly all predictors are.
_BULK, _SETTLED = 0.975, 0.05
_NEARLY_ALL, _MARGIN = 0.999, 1.1  # for higher degrees, which are bad outside
_ROUNDS = 20
_DRAWS = 50


@dataclass(frozen=True, eq=False)
class Passes:
    """Sums polynomials of the log-likelihoods of all rows, as often as it is asked.

    Parameters
    ----------
    part : LinearPredictor or StreamedPredictor

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> passes = Passes(find_linear_predictor(find_observations(model)))
    >>> passes.statistics(2, 4.0).moments[2].round(3)
    array([[-0.245]])
    """

    part: PredictorRows

    def statistics(
        self, degree: int, radius: float, show: Callable[[int], None] | None = None
    ) -> PolynomialStatistics:
        """Sum the statistics of all rows: one pass over them.

        `show` is called with the number of rows of each block, or of each task of rows elsewhere.
        """
        work = partial(_summed, self._sums(degree, radius))
        weights, parts = zip(*self.part.of_parts(work, show), strict=True)
        total: PolynomialStatistics = reduce(add, parts)
        return replace(total, n_obs=round(sum(weights)))

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
        spread = SpreadRows.of(self.part)
        for _ in range(_ROUNDS):
            statistics, bulk = self.statistics(2, radius, show), math.inf
            if statistics.is_proper:
                theta = self._draws(statistics, rng)
                bulk = spread.quantile(theta, _BULK)
            _log.info("radius %.3g: %.1f %% of |eta| below %.3g", radius, 100 * _BULK, bulk)
            too_small = max(_LEAST_RADIUS, (1 + _SETTLED) * low)
            if abs(bulk / radius - 1) <= _SETTLED or bulk <= radius <= too_small:
                if degree == 2:
                    return radius
                return max(_MARGIN * spread.quantile(theta, _NEARLY_ALL), _LEAST_RADIUS)
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

    def _sums(self, degree: int, radius: float) -> "Callable[[], PolynomialSums | DeviceSums]":
        """Return what makes sums of no rows yet, on a device where that can have them."""
        on_device = polynomials_on_device(self.part.held, degree)
        if on_device is not None:
            return partial(on_device.sums, radius)
        return partial(PolynomialSums, degree, radius)

    @cached_property
    def _prior(self) -> GaussianPrior | None:
        try:
            return gaussian_prior(self.part.held)
        except UnsupportedModelError:
            return None  # a unit-information prior takes its place

    def _draws(self, statistics: PolynomialStatistics, rng: np.random.Generator) -> np.ndarray:
        """Draw coefficients from a Gaussian approximation of the posterior, (n_draws, p)."""
        if self._prior is not None:
            posterior = self._prior.posterior(statistics)
            return coefficient_draws(self.part.held, posterior.draw(_DRAWS, rng=rng))
        information = -2 * statistics.moments[2].diagonal() / max(statistics.n_obs, 1)
        # A coefficient that occurs in no row moves no predictor: any precision will do.
        unit = np.diag(np.where(information > 0, information, 1.0))
        mean, covariance = gaussian_posterior(statistics, slope=np.zeros(len(unit)), precision=unit)
        z = rng.standard_normal((_DRAWS, len(mean)))
        draws: np.ndarray = mean + z @ np.linalg.cholesky(covariance).T
        return draws


def _summed(
    begin: "Callable[[], PolynomialSums | DeviceSums]",
    blocks: Iterator[PredictorBlock],
    show: Callable[[int], None] | None,
) -> tuple[float, PolynomialStatistics]:
    sums = begin()
    for block in blocks:
        rows = row_polynomials(block.found, sums.degree, sums.radius)
        sums.add(block.found.design, rows, weights=block.weights, on_block=show)
    return sums.total_weight, sums.finished()
