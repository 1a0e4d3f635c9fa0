"""What replaces the likelihood of all rows: a potential, and in closed form a posterior."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.concavity import is_definite
from pymc_coresets.glm.golden import evenly_spread
from pymc_coresets.glm.polynomial.forms import monomial_levels, weighted_monomials
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.glm.predictor.several import Predictors, coefficient_draws
from pymc_coresets.potentials.remainder import Remainder
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.quadratic import Quadratic, as_dense
from pymc_coresets.reading.rewrite import replace_terms
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.normal import Factor

#: Name of the potential that stands for the likelihood.
POLYNOMIAL = "polynomial_loglik"

_REMEDY = "Use sample(), which takes any prior."
_IMPROPER = (
    "The approximate posterior is improper, or its precision is singular up to rounding. Give the "
    "coefficients a proper prior, or a narrower one, or leave out collinear columns."
)
_SINGULAR = 1e-12  # smallest eigenvalue of a matrix with unit diagonal: rounding is 1e-16 to 1e-15
_TOLERANCE = 1e-7


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
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
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
    graph = _polynomial_graph(found, statistics)
    return replace_terms(found.observations, graph, POLYNOMIAL)


def _polynomial_graph(found: Predictors, statistics: PolynomialStatistics) -> TensorVariable:
    """Build ``sum_m phi_a(theta)^T M_m phi_c(theta)``; the moments are shared variables."""
    leading = statistics.leading_degree
    constant = float(statistics.moments[0].item())
    if leading <= 2:
        quadratic = statistics.quadratic(found.names, found.coefficients)
        return cast(TensorVariable, quadratic.potential() + constant)
    levels = monomial_levels(statistics.n_coefficients, -(-leading // 2))
    sides = [pt.ones(1), *weighted_monomials(found.coefficients, levels)]
    terms = [
        sides[m // 2] @ (pytensor.shared(statistics.moments[m]) @ sides[m - m // 2])
        for m in range(1, leading + 1)
    ]
    return sum(terms, start=pt.constant(constant))


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
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
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


@dataclass(frozen=True, eq=False)
class Gaussian:
    """The normal distribution whose log-density is a quadratic, up to a constant.

    Parameters
    ----------
    quadratic : Quadratic

    Raises
    ------
    InvalidDataError
        If there is none: the prior is flat in a direction that the data leave open, or so wide
        there that rounding hides it.

    Examples
    --------
    >>> found = Gaussian(
    ...     Quadratic(names=("a",), center=np.ones(1), slope=np.ones(1), curvature=-4 * np.eye(1))
    ... )
    >>> found.mean, found.covariance
    (array([1.25]), array([[0.25]]))
    """

    quadratic: Quadratic

    def __post_init__(self) -> None:
        if not is_definite(self._precision, _SINGULAR):
            raise InvalidDataError(_IMPROPER)

    @property
    def mean(self) -> np.ndarray:
        """Of shape (n_dims,)."""
        quadratic, scale = self.quadratic, self._scale
        mean: np.ndarray = quadratic.center + scale * self._factor.solve(scale * quadratic.slope)
        return mean

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of shape (n_dims, n_dims)."""
        inverse = self._factor.solve(np.eye(len(self._scale)))
        covariance: np.ndarray = np.outer(self._scale, self._scale) * (inverse + inverse.T) / 2
        return covariance

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Return independent draws, (n_draws, n_dims)."""
        z = rng.standard_normal((n_draws, len(self._scale)))
        draws: np.ndarray = self.mean + z @ np.linalg.cholesky(self.covariance).T
        return draws

    @property
    def _precision(self) -> np.ndarray:
        return -as_dense(self.quadratic.curvature)

    @cached_property
    def _scale(self) -> np.ndarray:
        """That gives the precision a unit diagonal: columns in small units do not lack any."""
        scale: np.ndarray = 1 / np.sqrt(self._precision.diagonal())
        return scale

    @cached_property
    def _factor(self) -> Factor:
        return Factor(self._precision * np.outer(self._scale, self._scale))


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPrior:
    """A prior whose log-density is a quadratic, and coefficients that are affine.

    Attributes
    ----------
    quadratic : Quadratic
        Of the free variables z, on their unconstrained scale; everything that is not summarised.
    origin : ndarray of shape (n_coefficients,)
    linear : ndarray of shape (n_coefficients, n_dims)
        The coefficients of the predictor are ``origin + linear @ z``.
    remainder : Remainder
        The log-density itself.
    """

    quadratic: Quadratic
    origin: np.ndarray
    linear: np.ndarray
    remainder: Remainder

    @classmethod
    def of(cls, found: Predictors) -> "GaussianPrior":
        """Read it from its gradient, which is affine.

        Everything that is not summarised counts as the prior, including other observed variables
        and potentials.  Costs one gradient of it for each free dimension.

        Raises
        ------
        UnsupportedModelError
            If a variable's prior is not Gaussian, or the coefficients are not affine in the
            variables.

        Examples
        --------
        >>> import pymc as pm
        >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
        >>> from pymc_coresets.reading.observations import find_observations
        >>> with pm.Model() as model:
        ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a", 1.0, 2.0), observed=[0, 1, 1])
        >>> prior = GaussianPrior.of(find_linear_predictor(find_observations(model)))
        >>> prior.quadratic.slope, prior.quadratic.curvature
        (array([0.25]), array([[-0.25]]))
        """
        model, space = found.observations.model, found.observations.space
        if model.discrete_value_vars:
            names = [v.name for v in model.discrete_value_vars]
            raise UnsupportedModelError(f"{names!r} are discrete, not Gaussian. {_REMEDY}")
        remainder = Remainder(found.observations, found.coefficients)
        slope, curvature, wrong = _affine(lambda z: remainder.slopes(z)[1], space.n_dims)
        if wrong.any():
            owners = [name for name, own in space.columns.items() if wrong[own].any()]
            raise UnsupportedModelError(
                f"There is no closed form: the prior of {owners!r} is not Gaussian. {_REMEDY}"
            )
        origin, linear, wrong = _affine(remainder.coefficients, space.n_dims)
        if wrong.any():
            names = [name for name, bad in zip(found.names, wrong, strict=True) if bad]
            raise UnsupportedModelError(
                f"There is no closed form: the coefficients {names!r} are not linear in the free "
                f"variables. {_REMEDY}"
            )
        quadratic = Quadratic(
            names=tuple(map(str, range(space.n_dims))),
            center=np.zeros(space.n_dims),
            slope=slope,
            curvature=(curvature + curvature.T) / 2,
        )
        return cls(quadratic=quadratic, origin=origin, linear=linear, remainder=remainder)

    def posterior(self, of_rows: Quadratic) -> Gaussian:
        """Combine it with a quadratic log-likelihood of the coefficients.

        Notes
        -----
        With the statistics t1 and T2 of PASS, whose quadratic has the slope t1 and the curvature
        2 T2 at zero, the precision is ``Sigma_0^-1 - 2 A' T2 A``, and the mean solves ``precision @
        mean = Sigma_0^-1 mu_0 + A' (t1 + 2 T2 origin)``, for the coefficients ``origin + A z``.
        """
        [slope] = of_rows.slopes_at(self.coefficients_at(self.quadratic.center[None]))
        curvature = self.linear.T @ (of_rows.curvature @ self.linear)
        return Gaussian(self.quadratic.minus(-self.linear.T @ slope, -curvature))

    def coefficients(self, z: Gaussian) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (p,) and the covariance (p, p) of the coefficients."""
        return self.origin + self.linear @ z.mean, self.linear @ z.covariance @ self.linear.T

    def coefficients_at(self, z: np.ndarray) -> np.ndarray:
        """Return the coefficients (n_draws, p) at points (n_draws, n_dims)."""
        coefficients: np.ndarray = self.origin + z @ self.linear.T
        return coefficients

    def require_at(self, z: np.ndarray) -> None:
        """Refuse a prior that is another one at points (n_points, n_dims) than where it was read.

        Gradients say nothing of a `pm.Potential` that excludes values, or bends far from zero.

        Raises
        ------
        UnsupportedModelError
        """
        values = self.remainder.values(z)
        expected = self.quadratic.about(z.mean(axis=0)).at(z)
        size = np.abs(expected) + np.abs(expected).max() + np.abs(values)
        difference = values - expected
        finite = np.isfinite(values)
        usual = np.median(difference[np.isfinite(difference)]) if finite.any() else np.nan
        same = np.abs(difference - usual) <= _TOLERANCE * (1.0 + size)
        same &= finite  # what is not finite is within any tolerance of its size
        if not same.all():
            raise UnsupportedModelError(
                f"There is no closed form: at {np.mean(~same):.0%} of its draws the prior, or "
                "another term of the model such as a pm.Potential, is not the Gaussian one that "
                f"it is near zero. {_REMEDY}"
            )


def _affine(
    function: Callable[[np.ndarray], np.ndarray], n_dims: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return origin (k,), matrix (k, n_dims), and which entries of a function are not affine."""
    pattern = 2.0 * evenly_spread(n_dims) - 1.0
    probes = np.stack([pattern, -3.0 * pattern, 2.0 * pattern[::-1]])
    points = np.concatenate([np.zeros((1, n_dims)), np.eye(n_dims), probes])
    values = function(points)
    origin, matrix = values[0], (values[1 : n_dims + 1] - values[0]).T
    predicted = origin + probes @ matrix.T
    size = np.abs(origin) + np.abs(probes) @ np.abs(matrix.T)
    with np.errstate(invalid="ignore"):
        close = np.abs(values[n_dims + 1 :] - predicted) <= _TOLERANCE * (size + 1e-300)
    return origin, matrix, ~close.all(axis=0)
