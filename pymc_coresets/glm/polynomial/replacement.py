"""What replaces the likelihood of all rows: a potential, and in closed form a posterior."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pymc as pm
from scipy import sparse

from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.concavity import is_definite
from pymc_coresets.glm.control_variates.hierarchy import (
    ConditionalGaussian,
    Hierarchy,
    find_hierarchy,
)
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.glm.predictor.predictors import Predictors, coefficient_draws
from pymc_coresets.potentials.log_prior import LogPrior
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.rewrite import replace_terms
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.normal import Normal

#: Name of the potential that stands for the likelihood.
POLYNOMIAL = "polynomial_loglik"

_REMEDY = "Use sample(), which takes any prior."
_SINGULAR = 1e-12  # smallest eigenvalue of a matrix with unit diagonal: rounding is 1e-16 to 1e-15
_TOLERANCE = 1e-4  # of the size of log-densities, in nats: far along ridges, rounding is as large
_PRIOR_DRAWS, _PRIOR_ENTRIES = 400, 2**19  # at which the prior is compared, and of their points


def polynomial_model(found: Predictors, statistics: PolynomialStatistics) -> pm.Model:
    """Replace the likelihood of all rows by its polynomial, as one potential of the coefficients.

    Parameters
    ----------
    found : Predictors
        Read from the user's model, which is not changed.
    statistics : PolynomialStatistics

    Returns
    -------
    pm.Model
        A model with the free variables of the user's: names, dims, coords, priors, transforms.

    Raises
    ------
    UnsupportedModelError
        If the model has symbolic initial values, or is itself a model of such statistics.

    Examples
    --------
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> statistics = PolynomialStatistics(
    ...     degree=2, radius=4.0, n_obs=3, moments=(np.zeros((1, 1)), np.ones((1, 1)), -np.eye(1)),
    ...     rising=np.array([0.0, 4.0, 0.0]), falling=np.array([0.0, 0.0, 16.0]),
    ... )
    >>> polynomial_model(found, statistics).potentials
    [polynomial_loglik]
    """
    graph = statistics.potential(found.names, found.coefficients)
    return replace_terms(found.observations, graph, POLYNOMIAL)


def verify_polynomial_model(
    found: Predictors, statistics: PolynomialStatistics, model: pm.Model
) -> None:
    """Compare the model's potential with the statistics that it stands for.

    Raises
    ------
    UnsupportedModelError
        If the two differ at the model's initial point.

    Examples
    --------
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> statistics = PolynomialStatistics(
    ...     degree=2, radius=4.0, n_obs=3, moments=(np.zeros((1, 1)), np.ones((1, 1)), -np.eye(1)),
    ...     rising=np.array([0.0, 4.0, 0.0]), falling=np.array([0.0, 0.0, 16.0]),
    ... )
    >>> verify_polynomial_model(found, statistics, polynomial_model(found, statistics))
    """
    space = Unconstrained(model)
    logp = model.compile_logp(vars=[model[POLYNOMIAL]], jacobian=False, mode=PLAIN_MODE)
    value = float(logp(space.point(space.start)))
    theta = coefficient_draws(found, space.constrain(space.start[None]))[0]
    expected = float(statistics.loglik(theta))
    if not np.isclose(value, expected, rtol=1e-6, atol=1e-8 * statistics.n_obs):
        raise UnsupportedModelError(
            f"The model of the polynomial has the log-likelihood {value} where the statistics "
            f"give {expected}: its structure is not understood. Please report the model."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class NormalPosterior:
    """The posterior of a quadratic under a normal prior: a hierarchy without scales.

    Attributes
    ----------
    normal : Normal
        Of the free variables z, on their unconstrained scale.
    mean : ndarray of shape (n_coefficients,)
        Of the coefficients, which are affine in z.
    slopes : csr_array of shape (n_dims, n_coefficients)
        Their derivatives.

    Notes
    -----
    With the statistics t1 and T2 of PASS, whose quadratic has the slope t1 and the curvature 2 T2
    at zero, the precision of z is ``Sigma_0^-1 - 2 A' T2 A``, and its mean solves ``precision @
    mean = Sigma_0^-1 mu_0 + A' (t1 + 2 T2 a)``, for the coefficients ``a + A z``.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a", 1.0, 2.0), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> quadratic = Quadratic(
    ...     names=found.names, center=np.zeros(1), slope=np.ones(1), curvature=-0.25 * np.eye(1)
    ... )
    >>> posterior = NormalPosterior.of(found, quadratic)
    >>> posterior.mean, posterior.covariance
    (array([2.5]), array([[2.]]))
    """

    normal: Normal
    mean: np.ndarray
    slopes: sparse.csr_array

    @classmethod
    def of(cls, found: Predictors, of_rows: Quadratic) -> Self:
        """Combine the prior, which is all that is not summarised, with a quadratic of all rows.

        Raises
        ------
        UnsupportedModelError
            If a variable's prior is not normal, or the coefficients are not affine in it: by its
            gradients near the start, and its values at draws.  Those say what gradients do not,
            such as that a `pm.Potential` excludes values, or bends far away.
        InvalidDataError
            If the posterior is improper: the prior is flat in a direction that the data leave
            open, or so wide there that rounding hides it.
        """
        log_prior = LogPrior(found.observations, found.coefficients)
        hierarchy = _without_scales(log_prior)
        near = ConditionalGaussian.of(hierarchy, of_rows)
        normal = near.given_mode
        is_proper = np.isfinite(near.log_marginals(np.empty((1, 0)))[0])
        if not (is_proper and is_definite(normal.factor.matrix, _SINGULAR)):
            raise InvalidDataError(
                "The approximate posterior is improper, or its precision is singular up to "
                "rounding. Give the coefficients a proper prior, or a narrower one, or leave out "
                "collinear columns."
            )
        mean = log_prior.coefficients(near.mode[None])[0]
        _require_at_draws(log_prior, of_rows.about(mean), normal)
        return cls(normal=normal, mean=mean, slopes=hierarchy.slopes)

    @property
    def covariance(self) -> np.ndarray:
        """That of the coefficients, (n_coefficients, n_coefficients)."""
        product: np.ndarray = self.slopes.T @ self.normal.covariance @ self.slopes
        symmetric: np.ndarray = (product + product.T) / 2
        return symmetric

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw the coefficients, (n_draws, n_coefficients)."""
        points, _ = self.normal.draw(n_draws, rng=rng)
        coefficients: np.ndarray = self.mean + (points - self.normal.location) @ self.slopes
        return coefficients


def _without_scales(log_prior: LogPrior) -> Hierarchy:
    """Return the prior as one that is normal in all coordinates."""
    space, model = log_prior.space, log_prior.observations.model
    columns = {name: np.ravel(own) for name, own in space.columns.items()}
    names, hierarchy = [str(v.name) for v in model.discrete_value_vars], None
    if not names:
        parts = log_prior.slopes, log_prior.coefficients, space.start, list(columns.values())
        hierarchy = find_hierarchy(*parts)
        is_scale = np.ones(space.n_dims, bool) if hierarchy is None else hierarchy.is_scale
        names = [name for name, own in columns.items() if is_scale[own].any()]
    if names or hierarchy is None:
        raise UnsupportedModelError(
            f"There is no closed form: the prior of {names!r} is not Gaussian, or the coefficients "
            f"are not linear in them. {_REMEDY}"
        )
    return hierarchy


def _require_at_draws(log_prior: LogPrior, of_rows: Quadratic, normal: Normal) -> None:
    """Refuse a prior that is another one at draws of the posterior than where it was read."""
    n_draws = min(_PRIOR_DRAWS, max(2, _PRIOR_ENTRIES // len(normal.location)))
    points, logq = normal.draw(n_draws, rng=np.random.default_rng(0))
    values, quadratic = log_prior.values(points), of_rows.at(log_prior.coefficients(points))
    difference = values + quadratic - logq
    finite = np.isfinite(difference)
    usual = np.median(difference[finite]) if finite.any() else np.nan
    size = 1.0 + np.abs(logq) + np.abs(quadratic) + np.abs(values)
    same = finite & (np.abs(difference - usual) <= _TOLERANCE * size)
    if not same.all():
        raise UnsupportedModelError(
            f"There is no closed form: at {np.mean(~same):.0%} of its draws the prior, or another "
            "term of the model such as a pm.Potential, is not the Gaussian one that it is near the "
            f"model's initial point. {_REMEDY}"
        )
