"""Replacements of the likelihood of all rows: a potential, a normal posterior, and their check."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import numpy as np
import pymc as pm
from scipy import sparse

from pymc_coresets.diagnostics.judging import Check
from pymc_coresets.diagnostics.verdicts import Level, Reason, Verdict
from pymc_coresets.display import as_html, as_text
from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.concavity import is_definite
from pymc_coresets.glm.control_variates.hierarchy import (
    ConditionalGaussian,
    Hierarchy,
    find_hierarchy,
)
from pymc_coresets.glm.predictor.predictors import Predictors, coefficient_draws
from pymc_coresets.numerics import agree, rows_at_once
from pymc_coresets.papers.polynomial.statistics import PolynomialStatistics
from pymc_coresets.reading.folding import NUMPY_MODE
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.rewrite import replace_terms
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.sampling.normal import Normal

#: Name of the potential that replaces the likelihood.
POLYNOMIAL = "polynomial_loglik"


def polynomial_model(found: Predictors, statistics: PolynomialStatistics) -> pm.Model:
    """Replace the likelihood of all rows by its polynomial, as one potential of the coefficients.

    Parameters
    ----------
    found : Predictors
        From the user's model, which is not changed.
    statistics : PolynomialStatistics

    Returns
    -------
    pm.Model
        A model with the user's free variables: names, dims, coords, priors, transforms.

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
    """Compare the model's potential with its statistics.

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
    logp = model.compile_logp(vars=[model[POLYNOMIAL]], jacobian=False, mode=NUMPY_MODE)
    value = float(logp(space.point(space.start)))
    theta = coefficient_draws(found, space.constrain(space.start[None]))[0]
    expected = float(statistics.loglik(theta))
    if not agree(value, expected, size=statistics.n_obs):
        raise UnsupportedModelError(
            f"The model of the polynomial has the log-likelihood {value}, but its statistics give "
            f"{expected}: the model's structure is not understood. Please report the model.",
            topic="regressions",
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
        """Combine the prior (all terms that are not summarised) with a quadratic of all rows.

        Raises
        ------
        UnsupportedModelError
            If a variable's prior is not normal, or the coefficients are not affine in it, judged
            by its gradients near the start and its values at draws.  The latter detect, for
            instance, a `pm.Potential` that excludes values, or is not quadratic in the tails.
        InvalidDataError
            If the posterior is improper: the prior is flat in a direction that the data do not
            determine, or so wide that it is lost to rounding.
        """
        rest = RestLogDensity(found.observations, found.coefficients)
        hierarchy = _without_scales(rest)
        near = ConditionalGaussian.of(hierarchy, of_rows)
        normal = near.given_mode
        is_proper = np.isfinite(near.log_marginals(np.empty((1, 0)))[0])
        # Rounding of a matrix with unit diagonal is 1e-16 to 1e-15.
        if not (is_proper and is_definite(normal.factor.matrix, 1e-12)):
            raise InvalidDataError(
                "The approximate posterior is improper, or its precision is singular up to "
                "rounding. Give the coefficients a proper prior, or a narrower one, or leave out "
                "collinear columns.",
                topic="regressions",
            )
        mean = rest.coefficients(near.mode[None])[0]
        _require_at_draws(rest, of_rows.about(mean), normal)
        return cls(normal=normal, mean=mean, slopes=hierarchy.slopes)

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the coefficients, (n_coefficients, n_coefficients)."""
        product: np.ndarray = self.slopes.T @ self.normal.covariance @ self.slopes
        symmetric: np.ndarray = (product + product.T) / 2
        return symmetric

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw the coefficients, (n_draws, n_coefficients)."""
        points, _ = self.normal.draw(n_draws, rng=rng)
        coefficients: np.ndarray = self.mean + (points - self.normal.location) @ self.slopes
        return coefficients


def _without_scales(rest: RestLogDensity) -> Hierarchy:
    """Return the prior as a hierarchy that is normal in all coordinates."""
    space, model = rest.space, rest.observations.model
    columns = {name: np.ravel(own) for name, own in space.columns.items()}
    names = [str(v.name) for v in model.discrete_value_vars]
    if not names:
        names, parts = list(columns), (rest.slopes, rest.coefficients, space.start)
        with suppress(UnsupportedModelError):
            hierarchy = find_hierarchy(*parts, list(columns.values()))
            names = [name for name, own in columns.items() if hierarchy.is_scale[own].any()]
            if not names:
                return hierarchy
    raise UnsupportedModelError(
        f"There is no closed form: the prior of {names!r} is not Gaussian, or the coefficients "
        f"are not linear in them. Use sample(), which takes any prior.",
        topic="regressions",
    )


def _require_at_draws(rest: RestLogDensity, of_rows: Quadratic, normal: Normal) -> None:
    """Raise if the prior at draws of the posterior is not the normal one found near the start."""
    n_draws = min(400, rows_at_once(8 * len(normal.location), least=2))
    points, logq = normal.draw(n_draws, rng=np.random.default_rng(0))
    values, quadratic = rest.values(points), of_rows.at(rest.coefficients(points))
    difference = values + quadratic - logq
    finite = np.isfinite(difference)
    usual = np.median(difference[finite]) if finite.any() else np.nan
    size = 1.0 + np.abs(logq) + np.abs(quadratic) + np.abs(values)
    # Rounding reaches this size far along ridges.
    same = finite & (np.abs(difference - usual) <= 1e-4 * size)
    if not same.all():
        raise UnsupportedModelError(
            f"There is no closed form: at {np.mean(~same):.0%} of the draws the prior, or another "
            "term of the model such as a pm.Potential, differs from its Gaussian form near the "
            f"model's initial point. Use sample(), which takes any prior.",
            topic="regressions",
        )


# -- the check -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PolynomialCheck:
    """Diagnostics of a polynomial approximation: its divergence from the full posterior.

    Parameters
    ----------
    degree : int
        Degree of the polynomials.
    radius : float
        They approximate the log-likelihood where ``|eta_n| <= radius``.
    outside : float
        Share of the predictors eta_n, over all rows and draws, that lie outside the radius.
    reach : float
        The 99.9 % quantile of ``|eta_n|``: a radius that covers nearly all predictors.
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
    The verdict follows from the importance ratios.  The share outside the radius, the warning sign
    of the paper (20 % when PASS-LR2 failed), explains poor ratios, and suggests the remedy.

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
        """Whether the draws can represent the full posterior, re-weighted if necessary."""
        return self.verdict.level.reliable

    @property
    def needs_reweighting(self) -> bool:
        """Whether the unweighted draws differ noticeably from the full posterior's."""
        return self.draws.needs_reweighting

    @property
    def verdict(self) -> Verdict:
        """Conclusion and recommendation."""
        of_draws = self.draws.verdict
        remedy = self._reason() if self.draws.converged and not of_draws.level.reliable else ""
        if self.bounded:
            return of_draws.and_text(remedy)
        words = "the polynomial is unbounded above: its posterior is improper."
        improper = Verdict.starting(Level.UNUSABLE, Reason.IMPROPER, words)
        return improper.and_text("" if of_draws.level.reliable else of_draws.text, remedy)

    def _reason(self) -> str:
        if self.outside < 0.03:
            return (
                f"Few predictors leave the radius {self.radius:.3g}: polynomials of degree "
                f"{self.degree} are not close enough to the log-likelihood within it. Use a higher "
                "degree, or radius='auto'."
            )
        return (
            f"{self.outside:.0%} of the predictors lie outside the radius {self.radius:.3g}, where "
            "the polynomials are invalid. Use radius='auto', or a higher degree with a radius "
            f"that covers nearly all of them ({self.reach:.2g})."
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
        return as_text("Check of a polynomial posterior", self.verdict, self._facts())

    def _repr_html_(self) -> str:
        return as_html("Check of a polynomial posterior", self.verdict, self._facts())
