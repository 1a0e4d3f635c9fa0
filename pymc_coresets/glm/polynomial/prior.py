"""Priors that are Gaussian in the unconstrained space, however the user wrote them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_coresets.compat.pymc_api import gradient
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.golden import evenly_spread
from pymc_coresets.glm.polynomial.closed_form import gaussian_posterior
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.glm.predictor.several import Predictors, coefficient_draws
from pymc_coresets.potentials.remainder import Remainder, remainder_graph
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.unconstrained import Unconstrained

_REMEDY = "Use sample(), which takes any prior."
_TOLERANCE = 1e-7


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPosterior:
    """A Gaussian posterior of the free variables, and the coefficients that are affine in them.

    Attributes
    ----------
    mean : ndarray of shape (n_dims,)
    covariance : ndarray of shape (n_dims, n_dims)
        Moments of the free variables, in the order of ``prior.space``.
    prior : GaussianPrior
    """

    mean: np.ndarray
    covariance: np.ndarray
    prior: "GaussianPrior"

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (p,) and covariance (p, p) of the coefficients."""
        linear = self.prior.linear
        return self.prior.origin + linear @ self.mean, linear @ self.covariance @ linear.T

    def free(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Return independent draws of the free variables, (n_draws, n_dims), unconstrained."""
        factor = np.linalg.cholesky(self.covariance)
        z = rng.standard_normal((n_draws, len(self.mean)))
        return self.mean + z @ factor.T

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> Draws:
        """Return independent draws of the free variables."""
        return self.prior.space.constrain(self.free(n_draws, rng=rng))


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPrior:
    """A prior whose log-density is quadratic: ``slope . z - z . precision z / 2``.

    Attributes
    ----------
    slope : ndarray of shape (n_dims,)
    precision : ndarray of shape (n_dims, n_dims)
    linear : ndarray of shape (n_coefficients, n_dims)
    origin : ndarray of shape (n_coefficients,)
        The coefficients of the predictor are ``origin + linear @ z``.
    space : Unconstrained
        The unconstrained space of the model, in which z lives.
    """

    slope: np.ndarray
    precision: np.ndarray
    linear: np.ndarray
    origin: np.ndarray
    space: Unconstrained

    def log_density(self, z: np.ndarray, center: np.ndarray) -> np.ndarray:
        """Return the log-density at z (n, n_dims), less that at the center, in nats."""
        away = z - center
        slope = self.slope - self.precision @ center
        density: np.ndarray = away @ slope - 0.5 * np.vecdot(away @ self.precision, away)
        return density

    def posterior(self, statistics: PolynomialStatistics) -> GaussianPosterior:
        """Combine it with a quadratic log-likelihood, in closed form."""
        mean, covariance = gaussian_posterior(
            statistics,
            slope=self.slope,
            precision=self.precision,
            linear=self.linear,
            origin=self.origin,
        )
        return GaussianPosterior(mean=mean, covariance=covariance, prior=self)


def gaussian_prior(found: Predictors) -> GaussianPrior:
    """Read a Gaussian prior from its gradient, which is affine.

    Everything that is not summarised counts as the prior, including other observed variables and
    potentials.  Costs one gradient of it for each free dimension.

    Parameters
    ----------
    found : Predictors

    Returns
    -------
    GaussianPrior

    Raises
    ------
    UnsupportedModelError
        If a variable's prior is not Gaussian, or the coefficients are not affine in the variables.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a", 1.0, 2.0), observed=[0, 1, 1])
    >>> prior = gaussian_prior(find_linear_predictor(find_observations(model)))
    >>> prior.slope, prior.precision
    (array([0.25]), array([[0.25]]))
    """
    model = found.observations.model
    if model.discrete_value_vars:
        names = [v.name for v in model.discrete_value_vars]
        raise UnsupportedModelError(f"{names!r} are discrete, not Gaussian. {_REMEDY}")
    space = Unconstrained(model)
    slope, minus_precision, wrong = _affine(_gradients(found, space), space.n_dims)
    if wrong.any():
        flags = space.point(wrong.astype(float))
        owners = [rv.name for rv, v in model.rvs_to_values.items() if np.any(flags.get(v.name))]
        raise UnsupportedModelError(
            f"There is no closed form: the prior of {owners!r} is not Gaussian. {_REMEDY}"
        )
    origin, linear, wrong = _affine(
        lambda points: coefficient_draws(found, space.constrain(points)), space.n_dims
    )
    if wrong.any():
        names = [name for name, bad in zip(found.names, wrong, strict=True) if bad]
        raise UnsupportedModelError(
            f"There is no closed form: the coefficients {names!r} are not linear in the free "
            f"variables. {_REMEDY}"
        )
    return GaussianPrior(
        slope=slope,
        precision=-(minus_precision + minus_precision.T) / 2,
        linear=linear,
        origin=origin,
        space=space,
    )


def require_prior_at(
    found: Predictors,
    z: np.ndarray,
    log_density: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> None:
    """Refuse a prior that is another one at some points than where it was read.

    Gradients say nothing of a `pm.Potential` that excludes values, or bends far from zero.

    Parameters
    ----------
    found : Predictors
    z : ndarray of shape (n_points, n_dims)
        Where the posterior lies.
    log_density : callable
        Of the prior that was read, at such points, less that at another one.

    Raises
    ------
    UnsupportedModelError
    """
    values = Remainder(found.observations).values(z)
    expected = log_density(z, z.mean(axis=0))
    size = np.abs(expected) + np.abs(expected).max() + np.abs(values)
    difference = values - expected
    usual = np.median(difference[np.isfinite(difference)]) if np.isfinite(values).any() else np.nan
    same = np.abs(difference - usual) <= _TOLERANCE * (1.0 + size)
    same &= np.isfinite(values)  # what is not finite is within any tolerance of its size
    if not same.all():
        raise UnsupportedModelError(
            f"There is no closed form: at {np.mean(~same):.0%} of its draws the prior, or another "
            "term of the model such as a pm.Potential, is not the Gaussian one that it is near "
            f"zero. {_REMEDY}"
        )


def _gradients(found: Predictors, space: Unconstrained) -> Callable[[np.ndarray], np.ndarray]:
    """Compile the gradient, at points, of the log-density of everything not summarised."""
    variables = space.model.value_vars
    connected = sum(0.0 * v.sum() for v in variables)  # flat priors depend on nothing
    graph = gradient(remainder_graph(found.observations) + connected, variables)
    function = numpy_function(variables, [graph])
    return lambda points: np.stack([function(*space.point(x).values())[0] for x in points])


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
