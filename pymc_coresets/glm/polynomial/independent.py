"""Gaussian posteriors of many coefficients: independent priors, and data of low rank."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.golden import evenly_spread
from pymc_coresets.glm.polynomial.frequent_directions import LowRankMoment
from pymc_coresets.glm.polynomial.prior import continuous_space, owners_of, prior_gradient
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.glm.predictor.linear import LinearPredictor
from pymc_coresets.glm.predictor.model_parts import coefficient_draws
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = ["IndependentPrior", "LowRankGaussian", "LowRankPosterior", "independent_prior"]

_TOLERANCE = 1e-7
_NAMED = 5
_REMEDY = "rank=... is for such priors with known scales only: leave it out."


@dataclass(frozen=True, kw_only=True, eq=False)
class LowRankGaussian:
    """``N(mean, (diag(d) + F^T F)^-1)`` of p variables, in O(p k) numbers for F with k rows.

    Time: O(p k^2) once, O(p k) for a draw or a density.

    Parameters
    ----------
    linear : ndarray of shape (p,)
        ``precision @ mean``.
    diagonal : ndarray of shape (p,)
        d, positive.
    factor : ndarray of shape (k, p)
        F.

    Notes
    -----
    With ``G = F diag(d)^-1/2``, the precision is ``d^1/2 (I + G^T G) d^1/2``.  Woodbury's identity
    gives ``(I + G^T G)^-1 = I - G^T (I + G G^T)^-1 G``; and with ``G G^T = U diag(s) U^T`` and
    ``r = sqrt(1 + s)``, the root of the inverse, which makes draws, is
    ``I - G^T U diag(1 / (r (1 + r))) U^T G``.

    Examples
    --------
    >>> one = LowRankGaussian(linear=np.ones(1), diagonal=np.ones(1), factor=np.ones((1, 1)))
    >>> one.mean, one.variance, one.draw(2, rng=np.random.default_rng(1)).shape
    (array([0.5]), array([0.5]), (2, 1))
    >>> bool(np.isclose(one.logpdf(np.array([0.5])), 0.5 * np.log(2 / (2 * np.pi))))
    True
    """

    linear: Vector
    diagonal: Vector
    factor: Matrix

    @cached_property
    def _scaled(self) -> tuple[Matrix, Vector]:
        """U^T G, and the eigenvalues s."""
        G = self.factor / np.sqrt(self.diagonal)
        values, U = scipy.linalg.eigh(G @ G.T) if len(G) else (np.empty(0), np.empty((0, 0)))
        return U.T @ G, np.maximum(values, 0.0)

    @cached_property
    def mean(self) -> Vector:
        """Of shape (p,)."""
        G, s = self._scaled
        root = np.sqrt(self.diagonal)
        z = self.linear / root
        mean: Vector = (z - G.T @ ((G @ z) / (1 + s))) / root
        return mean

    @property
    def variance(self) -> Vector:
        """The diagonal of the covariance, of shape (p,)."""
        G, s = self._scaled
        variance: Vector = (1 - np.einsum("kp,k,kp->p", G, 1 / (1 + s), G)) / self.diagonal
        return variance

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> Matrix:
        """Return independent draws, (n_draws, p)."""
        G, s = self._scaled
        r = np.sqrt(1 + s)
        z = rng.standard_normal((n_draws, len(self.linear)))
        z -= ((z @ G.T) / (r * (1 + r))) @ G
        z /= np.sqrt(self.diagonal)
        z += self.mean
        return z

    def logpdf(self, x: Matrix) -> Vector:
        """Return the log-density at points of shape (p,) or (n_points, p), in nats."""
        _, s = self._scaled
        away = np.asarray(x) - self.mean
        length = (away**2 @ self.diagonal) + ((away @ self.factor.T) ** 2).sum(axis=-1)
        log_det = np.log(self.diagonal).sum() + np.log1p(s).sum()
        density: Vector = 0.5 * (log_det - len(self.linear) * np.log(2 * np.pi) - length)
        return density


@dataclass(frozen=True, kw_only=True, eq=False)
class LowRankPosterior:
    """A Gaussian posterior of coefficients whose priors are independent.

    Parameters
    ----------
    gaussian : LowRankGaussian
        Of the coefficients in units of their prior standard deviations.
    moment : LowRankMoment
        The second moment that it came from.
    prior : IndependentPrior
    """

    gaussian: LowRankGaussian
    moment: LowRankMoment
    prior: "IndependentPrior"

    def coefficients(self) -> tuple[Vector, Vector]:
        """Return mean and standard deviation of the coefficients, each of shape (p,)."""
        scales = self.moment.scales
        return scales * self.gaussian.mean, scales * np.sqrt(self.gaussian.variance)

    def logpdf(self, theta: Matrix) -> Vector:
        """Return the log-density of coefficients (p,) or (n_points, p), in nats."""
        scales = self.moment.scales
        density: Vector = self.gaussian.logpdf(np.asarray(theta) / scales) - np.log(scales).sum()
        return density

    def free(self, n_draws: int, *, rng: np.random.Generator) -> Matrix:
        """Return independent draws of the free variables, (n_draws, n_dims), unconstrained."""
        prior = self.prior
        others = rng.standard_normal((n_draws, len(prior.mean)))
        z = prior.mean + prior.sd * others
        theta = self.moment.scales * self.gaussian.draw(n_draws, rng=rng)
        z[:, prior.index] = (theta - prior.origin) / prior.slope
        return z

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Return independent draws of the free variables."""
        return self.prior.space.constrain(self.free(n_draws, rng=rng))

    @property
    def kl_bound(self) -> float:
        """Bound on KL(this || the posterior of the full second moment), in nats.

        Notes
        -----
        In units of the prior, the full precision is ``P = I + F^T F + E`` and this one
        ``Q = I + F^T F + diag(e)``, with the diagonal e of E.  Where l are the eigenvalues of
        ``Q^-1/2 (P - Q) Q^-1/2``, none is below ``-max(e) / (1 + max(e))``, so that the covariance
        costs ``sum(l - log(1 + l)) / 2 <= (1 + max(e)) |E - diag(e)|_F^2 / (4 (1 + min(e))^2)``.
        The means differ by ``P^-1 (E - diag(e)) m`` for the mean m of this one, which costs half
        of ``|(E - diag(e)) m|^2`` in the norm of P^-1; as ``P >= I + E``, that norm is at most
        ``d |m| / sqrt(1 + d) + |e m|``, and at most ``d |m|``, where d bounds E.
        """
        moment, mean = self.moment, self.gaussian.mean
        e, d = moment.residual, moment.shrinkage
        shape = (1 + e.max()) * moment.off_diagonal**2 / (4 * (1 + e.min()) ** 2)
        size = float(np.linalg.norm(mean))
        shift = min(d * size, d / np.sqrt(1 + d) * size + float(np.linalg.norm(e * mean)))
        return float(shape + shift**2 / 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class IndependentPrior:
    """Independent Gaussian priors; each coefficient is affine in one free number of its own.

    Attributes
    ----------
    mean, sd : ndarray of shape (n_dims,)
        Of the free numbers z.
    index : ndarray of int, of shape (n_coefficients,)
        The coefficients are ``origin + slope * z[index]``.
    origin, slope : ndarray of shape (n_coefficients,)
    space : Unconstrained
        In which z lives.
    """

    mean: Vector
    sd: Vector
    index: np.ndarray
    origin: Vector
    slope: Vector
    space: Unconstrained

    @property
    def scales(self) -> Vector:
        """Prior standard deviation of each coefficient."""
        scales: Vector = np.abs(self.slope) * self.sd[self.index]
        return scales

    def log_density(self, z: Matrix, center: Vector) -> Vector:
        """Return the log-density at z (n, n_dims), less that at the center, in nats."""
        density: Vector = (z - center) / self.sd**2 @ (self.mean - center)
        density -= 0.5 * (((z - center) / self.sd) ** 2).sum(axis=1)
        return density

    def posterior(self, statistics: PolynomialStatistics) -> LowRankPosterior:
        """Combine it with a quadratic log-likelihood whose second moment is of low rank."""
        moment: LowRankMoment = statistics.moments[2]
        if not np.allclose(moment.scales, self.scales, rtol=1e-12, atol=0):
            raise InvalidOptionError("The second moment was summed for other priors.")
        before = (self.origin + self.slope * self.mean[self.index]) / self.scales
        gaussian = LowRankGaussian(
            linear=before + self.scales * statistics.moments[1][0],
            diagonal=1 + moment.residual,
            factor=moment.factor,
        )
        return LowRankPosterior(gaussian=gaussian, moment=moment, prior=self)


def independent_prior(found: LinearPredictor) -> IndependentPrior:
    """Read independent Gaussian priors from five gradients, however many variables there are.

    Parameters
    ----------
    found : LinearPredictor

    Returns
    -------
    IndependentPrior

    Raises
    ------
    UnsupportedModelError
        If a prior is not Gaussian or not independent of others, or a coefficient is not affine in
        one free number of its own.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=3 * pm.Normal("a", 1.0, 2.0), observed=[0, 1, 1])
    >>> prior = independent_prior(find_linear_predictor(find_observations(model)))
    >>> prior.mean, prior.sd, prior.scales
    (array([1.]), array([2.]), array([2.]))
    """
    space = continuous_space(found, _REMEDY)
    n_dims = space.n_dims
    pattern = 2.0 * evenly_spread(n_dims) - 1.0
    probes = np.stack([pattern, -3.0 * pattern, 2.0 * pattern[::-1]])
    basic = np.stack([np.zeros(n_dims), np.ones(n_dims), np.arange(1.0, n_dims + 1)])
    slope_at = prior_gradient(found, space)
    at_zero, at_one = slope_at(basic[0]), slope_at(basic[1])
    precision = at_zero - at_one
    gradients = np.stack([slope_at(x) for x in probes])
    wrong = ~_close(gradients, at_zero - probes * precision, probes * precision, at_zero)
    wrong |= ~(precision > 0)
    if wrong.any():
        raise UnsupportedModelError(
            f"The prior of {owners_of(space, wrong)[:_NAMED]!r} is not one of independent "
            f"Gaussian numbers. {_REMEDY}"
        )
    theta = coefficient_draws(found, space.constrain(np.concatenate([basic, probes])))
    origin, slope = theta[0], theta[1] - theta[0]
    with np.errstate(all="ignore"):
        index = np.nan_to_num(np.round((theta[2] - origin) / slope)).astype(np.int64) - 1
    index = np.clip(index, 0, n_dims - 1)
    moved = slope * probes[:, index]
    wrong = ~_close(theta[3:], origin + moved, moved, origin) | (slope == 0)
    wrong |= np.bincount(index, minlength=n_dims)[index] > 1
    if wrong.any():
        names = [found.names[i] for i in np.flatnonzero(wrong)[:_NAMED]]
        raise UnsupportedModelError(
            f"The coefficients {names!r} are not each a free number of its own, times a known "
            f"number. {_REMEDY}"
        )
    return IndependentPrior(
        mean=at_zero / precision,
        sd=1 / np.sqrt(precision),
        index=index,
        origin=origin,
        slope=slope,
        space=space,
    )


def _close(values: Matrix, expected: Matrix, *sizes: Matrix) -> np.ndarray:
    """Say for which columns the values are as expected, but for rounding of numbers so large."""
    size = sum(map(np.abs, sizes)) + 1e-300
    with np.errstate(invalid="ignore"):
        close: np.ndarray = (np.abs(values - expected) <= _TOLERANCE * size).all(axis=0)
    return close
