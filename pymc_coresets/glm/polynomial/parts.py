"""Parts of the data of PASS-GLM: sums of their polynomials, how good these are, and the verdict."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.polynomial import polyval
from scipy import sparse

from pymc_coresets.diagnostics.judging import Check
from pymc_coresets.display import as_html, as_text
from pymc_coresets.exceptions import UnsupportedModelError, warn_user
from pymc_coresets.glm.polynomial.chebyshev import MIN_NODES, row_polynomials, shifted
from pymc_coresets.glm.polynomial.replacement import NormalPosterior
from pymc_coresets.glm.polynomial.statistics import (
    PolynomialStatistics,
    n_monomials,
    polynomial_statistics,
)
from pymc_coresets.glm.predictor.predictors import Predictors
from pymc_coresets.glm.predictor.seen_rows import BlockSums, RowsInMemory, SeenRows
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import Curvature
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.normal import CholeskyFactor, Normal
from pymc_coresets.solving.problem import Matrix, Vector

_log = logging.getLogger(__name__)

_SAMPLED_ROWS, _SAMPLED_ENTRIES = 100_000, 2**25
_FIRST_RADIUS, _LEAST_RADIUS = 4.0, 1.0
# Quadratics are best with 1.5 to 3 % of the predictors outside, on every data set that we tried: a
# wider radius makes the fit worse where nearly all predictors are.
_BULK, _SETTLED = 0.975, 0.05
_NEARLY_ALL, _MARGIN = 0.999, 1.1  # for higher degrees, which are bad outside
_OUTSIDE_NOTICEABLE = 0.03  # share of the predictors from which the verdict names the radius
_ROUNDS = 20
_DRAWS = 50
_TITLE = "Check of a polynomial posterior"


class Reach(NamedTuple):
    """Where the linear predictors lie at some draws, and how good the polynomials are there.

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
        width = n_monomials(len(self.names), -(-degree // 2)) if degree > 2 else 1
        size = seen.block_rows(max(width, MIN_NODES))
        work = partial(_statistics, seen, degree, radius)
        found = loglik.source.reduce(BlockSums(size, work)).finished()
        if show is not None:
            show(loglik.n_rows)
        return found

    def reach(self, degree: int, radius: float, coefficients: Matrix) -> Reach:
        """Compare the polynomials of a sample of the rows with their log-likelihoods at draws."""
        rows, weights = self._sample
        [line] = rows.lines
        eta = line.at(coefficients) + line.offset
        polynomial = polyval(eta, row_polynomials(rows, degree, radius).T[:, None], tensor=False)
        return Reach(
            outside=float(np.average((np.abs(eta) > radius).mean(axis=0), weights=weights)),
            far=self.quantile(coefficients, _NEARLY_ALL),
            max_error=float(np.abs(rows.density(eta) - polynomial).max()),
        )

    def quantile(self, coefficients: Matrix, probability: float) -> float:
        """Return a quantile of |eta_n| over a sample of the rows and all draws (n_draws, p)."""
        rows, weights = self._sample
        [line] = rows.lines
        eta = np.abs(line.at(coefficients) + line.offset)
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
            If it had not settled after 20 rounds.
        """
        radius, low, high = _FIRST_RADIUS, 0.0, math.inf
        for _ in range(_ROUNDS):
            statistics, bulk = self.statistics(2, radius, show), math.inf
            if statistics.is_proper:
                theta = self._draws(statistics, rng)
                bulk = self.quantile(theta, _BULK)
            _log.info("radius %.3g: %.1f %% of |eta| below %.3g", radius, 100 * _BULK, bulk)
            too_small = max(_LEAST_RADIUS, (1 + _SETTLED) * low)
            if abs(bulk / radius - 1) <= _SETTLED or bulk <= radius <= too_small:
                if degree == 2:
                    return radius
                return max(_MARGIN * self.quantile(theta, _NEARLY_ALL), _LEAST_RADIUS)
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
    def _sample(self) -> tuple[RowsInMemory, Vector]:
        """At most 100 000 rows, fewer where they are wide, and how many each of them stands for."""
        size = min(_SAMPLED_ROWS, max(1_000, _SAMPLED_ENTRIES // len(self.names)))
        scan = self.loglikelihood.source.scan(size, key=0, distinct=True)
        return self.seen.of(scan.rows), scan.weights

    def _draws(self, statistics: PolynomialStatistics, rng: np.random.Generator) -> np.ndarray:
        """Draw coefficients from a normal approximation of the posterior, (n_draws, p)."""
        quadratic = statistics.quadratic(self.names)
        try:
            return NormalPosterior.of(self.held, quadratic).draw(_DRAWS, rng=rng)
        except UnsupportedModelError:  # a unit-information prior takes the place of theirs
            information = -quadratic.curvature.diagonal() / max(statistics.n_obs, 1)
        # A coefficient that occurs in no row moves no predictor: any precision will do.
        unit = np.where(information > 0, information, 1.0)
        precision: Curvature = sparse.diags_array(unit) - quadratic.curvature
        is_dense = isinstance(precision, np.ndarray)
        factor = CholeskyFactor(precision if is_dense else sparse.csr_array(precision))
        return Normal(factor.solve(quadratic.slope), factor).draw(_DRAWS, rng=rng)[0]


def _statistics(seen: SeenRows, degree: int, radius: float, some: Rows) -> PolynomialStatistics:
    rows = seen.of(some)
    [line] = rows.lines
    coefficients = shifted(row_polynomials(rows, degree, radius), line.offset)
    if (rows.base_weights != 1.0).any():
        coefficients = coefficients * rows.base_weights[:, None]
    n_obs = float(rows.base_weights.sum())
    return polynomial_statistics(line.design, coefficients, radius, n_obs)


# -- the verdict -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PolynomialCheck:
    """What draws of a polynomial approximation say about its distance from the full posterior.

    Parameters
    ----------
    degree : int
        Degree of the polynomials.
    radius : float
        They approximate the log-likelihood where ``|eta_n| <= radius``.
    outside : float
        Share of the predictors eta_n, over all rows and draws, that lie outside the radius.
    reach : float
        The 99.9 % quantile of ``|eta_n|``: a radius that would hold nearly all.
    max_error : float
        Largest difference between the log-likelihood of a row and its polynomial at the draws, in
        nats.
    bounded : bool
        Whether the polynomial log-likelihood is bounded above: for degree 2, whether its curvature
        is negative semidefinite.
    draws : Check
        Importance ratios of the full posterior over the approximate one, and convergence; of the
        subject "polynomial".

    Notes
    -----
    The verdict follows from the importance ratios.  The share outside the radius, which is the
    warning sign of the paper (20 % where PASS-LR2 failed), says why ratios are bad, and what to do.

    Examples
    --------
    >>> draws = Check(
    ...     pareto_khat=1.4, ess=2.0, n_draws=1000, kl=40.0, kl_mcse=9.0, symmetrised_kl=90.0,
    ...     symmetrised_kl_mcse=10.0, rhat=1.001, ess_bulk=800.0, n_divergences=0,
    ... )
    >>> check = PolynomialCheck(
    ...     degree=2, radius=4.0, outside=0.3, reach=9.0, max_error=12.0, bounded=True, draws=draws
    ... )
    >>> check.reliable
    False
    """

    degree: int
    radius: float
    outside: float
    reach: float
    max_error: float
    bounded: bool
    draws: Check

    @property
    def reliable(self) -> bool:
        """Whether the draws serve for the full posterior, re-weighted where they need it."""
        return self.bounded and self.draws.reliable

    @property
    def needs_reweighting(self) -> bool:
        """Whether the draws, as they are, differ noticeably from the full posterior's."""
        return self.draws.needs_reweighting

    @property
    def verdict(self) -> str:
        """What to make of it and what to do, in words."""
        sentences = [self.draws.verdict]
        if not self.bounded:
            sentences.append("The polynomial is unbounded above: its posterior is improper.")
        if self.draws.converged and not self.draws.reliable:
            sentences.append(self._reason())
        return " ".join(sentences)

    def _reason(self) -> str:
        if self.outside < _OUTSIDE_NOTICEABLE:
            return (
                f"Few predictors leave the radius {self.radius:.3g}: polynomials of degree "
                f"{self.degree} are not close enough to the log-likelihood within it. Use a higher "
                "degree, or radius='auto'."
            )
        return (
            f"{self.outside:.0%} of the predictors lie outside the radius {self.radius:.3g}, where "
            "the polynomials approximate nothing. Use radius='auto', or a higher degree with a "
            f"radius that covers nearly all of them ({self.reach:.2g})."
        )

    def _facts(self) -> dict[str, str]:
        return {
            "predictors outside": f"{self.outside:.2%} beyond radius {self.radius:.3g}",
            "99.9 % of |eta| below": f"{self.reach:.3g}",
            "largest error of a row": f"{self.max_error:.2g} nats (degree {self.degree})",
            "bounded above": "yes" if self.bounded else "no",
            **self.draws.facts,
        }

    def __repr__(self) -> str:
        return as_text(_TITLE, self._facts(), self.verdict)

    def _repr_html_(self) -> str:
        return as_html(_TITLE, self._facts(), self.verdict)
