"""PASS-GLM: from a generalised linear model to polynomial approximate sufficient statistics."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_coresets.exceptions import InvalidOptionError, UnsupportedModelError, warn_user
from pymc_coresets.glm.given import fix_variables
from pymc_coresets.glm.polynomial.chebyshev import MAX_DEGREE
from pymc_coresets.glm.polynomial.closed_form import gaussian_posterior
from pymc_coresets.glm.polynomial.multi_indices import n_monomials
from pymc_coresets.glm.polynomial.prior import GaussianPrior, gaussian_prior
from pymc_coresets.glm.polynomial.reach import predictor_quantile
from pymc_coresets.glm.polynomial.replacement import (
    POLYNOMIAL,
    coefficient_draws,
    row_polynomials,
    verify_polynomial_model,
)
from pymc_coresets.glm.polynomial.statistics import (
    MAX_MONOMIALS,
    PolynomialStatistics,
    check_size,
    polynomial_statistics,
)
from pymc_coresets.glm.polynomial.summary import PolynomialSummary
from pymc_coresets.glm.predictor.linear import LinearPredictor, find_linear_predictor
from pymc_coresets.options import (
    flag,
    generator,
    names_of,
    positive_number,
    whole_number,
)
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.verification import verify
from pymc_coresets.progress import Reporter
from pymc_coresets.reading.context import given_model
from pymc_coresets.reading.observations import find_observations

__all__ = ["build_pass_glm"]

_log = logging.getLogger(__name__)

_FIRST_RADIUS, _LEAST_RADIUS = 4.0, 1.0
# Quadratics are best with 1.5 to 3 % of the predictors outside, on every data set that we tried: a
# wider radius makes the fit worse where nearly all predictors are.
_BULK, _SETTLED = 0.975, 0.05
_NEARLY_ALL, _MARGIN = 0.999, 1.1  # for higher degrees, which are bad outside
_ROUNDS = 20
_DRAWS = 50
_PROBED_ROWS = 1_000


def build_pass_glm(
    model: pm.Model | None = None,
    *,
    degree: int = 2,
    radius: float | str = 4.0,
    given: Mapping[str, ArrayLike] | None = None,
    observed: str | Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> PolynomialSummary:
    """Summarise a generalised linear model by polynomial approximate sufficient statistics.

    One pass over the data replaces each row's log-likelihood, a function of the linear predictor
    eta_n = x_n . theta + offset, by a polynomial.  What remains is one function of the coefficients
    whose size does not depend on the number of rows.  Use it for regressions with many rows and
    predictors within a moderate range: it is by far the fastest method here.  Where many predictors
    exceed the radius it is biased, and `PolynomialSummary.check` says so; use `build_coreset` then,
    and for models that are not generalised linear models.

    For p coefficients and degree 2 the pass costs 1 to 2 times as much as the product
    ``X.T @ X`` if few responses are distinct (binary and count data), and about 5 times as much
    otherwise.  Memory: X, unless the model holds it as one array, and O(p^2).

    Parameters
    ----------
    model : pm.Model, optional
        By default that of the context.  It is not changed.
    degree : int, default 2
        Degree of the polynomials, 20 at most.  Those above 2 are for few coefficients: at most
        2 000 monomials of half the degree.  A degree whose polynomial is unbounded above is
        refused; for logistic regression 2, 6, 10, ... are usable.
    radius : float or "auto", default 4.0
        The polynomials approximate the log-likelihood where ``|eta_n| <= radius``.  With "auto"
        it is chosen from the data to cover the predictors under the approximate posterior: 97.5 %
        of them for degree 2, and 99.9 % for higher degrees, with a margin.  The default is the
        paper's, for logistic regression.
    given : mapping of str to array_like, optional
        Values to fix free variables at, such as a noise scale: ``{"sigma": 1.0}``.
    observed : str or sequence of str, optional
        Observed variables to summarise; the others stay in the model as they are.
    dim : str or sequence of str, optional
        Name of the observation dimension; the leading axis of the observed variables by default.
        With several, such as ``("item", "person")``, each cell of an observed matrix is a row.
    random_seed : int or Generator, optional
        For comparing with PyMC's own log-likelihood at random points, and for ``radius="auto"``.
    progressbar : bool, default True
        Show the parts of the work and the rows that were read.

    Returns
    -------
    PolynomialSummary

    Raises
    ------
    UnsupportedModelError
        If the model is not a generalised linear model, or another free variable enters its
        likelihood (fix it with `given`).
    InvalidOptionError
        If `model` is no model, an option is of the wrong type or out of range, there are too many
        monomials, or the polynomial is unbounded above.
    InvalidDataError
        If data are not finite, or a log-likelihood is not finite within the radius.

    Warns
    -----
    CoresetWarning
        If ``radius="auto"`` had not settled after 20 rounds.

    Notes
    -----
    On ``[-R, R]`` each row's log-likelihood is expanded in Chebyshev polynomials, cut at the
    degree K: ``sum_n log p(y_n | eta_n) ~ sum_n sum_m b_nm (x_n . theta + o_n)^m``.  The error is
    exponentially small in K for smooth likelihoods, and none where the log-likelihood is itself a
    polynomial of that degree (Gaussian).

    ``radius="auto"`` starts from R = 4, and repeats: summarise with degree 2, draw from the
    Gaussian posterior (where the prior is not Gaussian, with one that is worth one row in its
    place), and make R the 97.5 % quantile of ``|eta_n|`` over draws and rows (100 000 of them at
    most), but not below 1, until it moves by less than 5 %.  A radius whose polynomial is
    unbounded above is too small.  Where the steps overshoot, the interval that is left is halved.
    Each round is a pass over the data.  For higher degrees, R is 1.1 times the 99.9 % quantile in
    the last round.

    References
    ----------
    Huggins, J. H., Adams, R. P. and Broderick, T. (2017). PASS-GLM: polynomial approximate
    sufficient statistics for scalable Bayesian GLM inference.
    https://doi.org/10.48550/arXiv.1709.09216

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(2_000, 3))
    >>> y = rng.binomial(1, 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.2])))
    >>> with pm.Model() as model:
    ...     beta = pm.Normal("beta", 0, 10, shape=3)
    ...     likelihood = pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    ...     summary = build_pass_glm(random_seed=1, progressbar=False)
    >>> summary
    PolynomialSummary
      rows          2,000
      coefficients  3
      degree        2
      radius        4
    >>> summary.closed_form()["coefficient"].values.tolist()
    ['beta[0]', 'beta[1]', 'beta[2]']
    """
    degree = whole_number("degree", degree, least=1, most=MAX_DEGREE)
    fixed_radius = _radius(radius)
    names, dim = names_of("observed", observed), names_of("dim", dim)
    rng, show_bars = generator(random_seed), flag("progressbar", progressbar)
    model = given_model(model)
    if POLYNOMIAL in model.named_vars:
        raise UnsupportedModelError(
            "This is the model of a summary already. Build another from the full model."
        )
    with Reporter(show=show_bars) as report:
        with report.part("reading the model"):
            observations = find_observations(
                model if given is None else fix_variables(model, given), observed=names, dim=dim
            )
            found = find_linear_predictor(observations)
            check_size(degree, len(found.names))
            verify(LogLikelihood(observations), rng=rng.spawn(1)[0])
        if fixed_radius is None:
            with report.passes("choosing the radius", observations.n_obs) as show:
                fixed_radius = _settled_radius(found, degree, rng.spawn(1)[0], show)
        with report.passes("summing polynomials", observations.n_obs) as show:
            statistics = _summarise(found, degree, fixed_radius, show)
        if not statistics.is_proper:
            raise _improper(found, statistics)
        summary = PolynomialSummary(statistics=statistics, parts=(found,))
        verify_polynomial_model(found, statistics, summary.model)
    return summary


def _radius(radius: float | str) -> float | None:
    """Return the radius, or None where it is to be chosen."""
    if isinstance(radius, str) and radius == "auto":
        return None
    try:
        return positive_number("radius", radius)
    except InvalidOptionError:
        raise InvalidOptionError(
            f"radius={radius!r} must be a positive, finite number, or 'auto'."
        ) from None


# -- statistics ------------------------------------------------------------------------------------


def _summarise(
    found: LinearPredictor, degree: int, radius: float, show: Callable[[int], None]
) -> PolynomialStatistics:
    rows = row_polynomials(found, degree, radius)
    return polynomial_statistics(found.design, rows, on_block=show)


def _improper(found: LinearPredictor, statistics: PolynomialStatistics) -> InvalidOptionError:
    radius, leading = statistics.radius, statistics.leading_degree
    usable = _usable_degrees(found, radius)
    remedy = f"Usable degrees here are {usable}" if usable else "No degree is surely usable here"
    return InvalidOptionError(
        f"degree={statistics.degree} with radius={radius:g} is improper: the polynomial, of "
        f"leading degree {leading}, grows without bound in some direction of the coefficients. "
        f"{remedy}; or use another radius (one that covers the responses, where these are not "
        "within it)."
    )


def _usable_degrees(found: LinearPredictor, radius: float) -> list[int]:
    """Return the degrees whose leading coefficient is negative for each of the first rows."""
    n_coefficients, usable = len(found.names), []
    for degree in range(2, MAX_DEGREE // 2 + 1, 2):
        if degree > 2 and n_monomials(n_coefficients, degree // 2) > MAX_MONOMIALS:
            break
        rows = row_polynomials(found, degree, radius)
        some = rows.in_predictor(slice(0, min(rows.n_obs, _PROBED_ROWS)))
        amounts = np.abs(some).max(axis=0) * radius ** np.arange(degree + 1)
        if (some[:, degree] < 0).all() and amounts[degree] > 1e-10 * amounts.max():
            usable.append(degree)
    return usable


# -- radius ----------------------------------------------------------------------------------------


def _settled_radius(
    found: LinearPredictor, degree: int, rng: np.random.Generator, show: Callable[[int], None]
) -> float:
    """Find the radius that covers the share of the predictors that suits the degree."""
    prior, radius, low, high = _gaussian_or_none(found), _FIRST_RADIUS, 0.0, math.inf
    for _ in range(_ROUNDS):
        statistics, bulk = _summarise(found, 2, radius, show), math.inf
        if statistics.is_proper:
            theta = _approximate_coefficients(found, statistics, prior, rng)
            bulk = predictor_quantile(found.design, found.offset, theta, _BULK)
        _log.info("radius %.3g: %.1f %% of |eta| below %.3g", radius, 100 * _BULK, bulk)
        too_small = max(_LEAST_RADIUS, (1 + _SETTLED) * low)
        if abs(bulk / radius - 1) <= _SETTLED or bulk <= radius <= too_small:
            if degree == 2:
                return radius
            reach = predictor_quantile(found.design, found.offset, theta, _NEARLY_ALL)
            return max(_MARGIN * reach, _LEAST_RADIUS)
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


def _gaussian_or_none(found: LinearPredictor) -> GaussianPrior | None:
    try:
        return gaussian_prior(found)
    except UnsupportedModelError:
        return None  # a unit-information prior takes its place


def _approximate_coefficients(
    found: LinearPredictor,
    statistics: PolynomialStatistics,
    prior: GaussianPrior | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw coefficients from a Gaussian approximation of the posterior, (n_draws, p)."""
    if prior is not None:
        return coefficient_draws(found, prior.posterior(statistics).draw(_DRAWS, rng=rng))
    information = -2 * statistics.moments[2].diagonal() / statistics.n_obs
    # A coefficient that occurs in no row moves no predictor: any precision will do.
    unit = np.diag(np.where(information > 0, information, 1.0))
    mean, covariance = gaussian_posterior(statistics, slope=np.zeros(len(unit)), precision=unit)
    z = rng.standard_normal((_DRAWS, len(mean)))
    draws: np.ndarray = mean + z @ np.linalg.cholesky(covariance).T
    return draws
