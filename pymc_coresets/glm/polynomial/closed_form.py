"""The posterior of a quadratic log-likelihood under a Gaussian prior, in closed form."""

import numpy as np
import scipy.linalg
from scipy import sparse

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.solving.problem import Matrix, Vector

_IMPROPER = (
    "The approximate posterior is improper, or its precision is singular up to rounding. Give the "
    "coefficients a proper prior, or a narrower one, or leave out collinear columns."
)
_SINGULAR = 1e-12  # smallest eigenvalue of a matrix with unit diagonal: rounding is 1e-16 to 1e-15


def gaussian_posterior(
    statistics: PolynomialStatistics,
    *,
    slope: Vector,
    precision: Matrix,
    linear: Matrix | None = None,
    origin: Vector | None = None,
) -> tuple[Vector, Matrix]:
    """Return the posterior mean and covariance under a Gaussian prior, for degree 2.

    Parameters
    ----------
    statistics : PolynomialStatistics
    slope : ndarray of shape (n_dims,)
        ``Sigma_0^-1 mu_0``, of the prior of z.
    precision : ndarray of shape (n_dims, n_dims)
        ``Sigma_0^-1``; zeros for a flat prior.
    linear : ndarray of shape (n_coefficients, n_dims), optional
    origin : ndarray of shape (n_coefficients,), optional
        The coefficients are ``theta = origin + linear @ z``; by default theta is z.

    Returns
    -------
    mean : ndarray of shape (n_dims,)
    covariance : ndarray of shape (n_dims, n_dims)
        Of z.

    Raises
    ------
    InvalidOptionError
        If the polynomial is of another degree than 2.
    InvalidDataError
        If the posterior is improper: the prior is flat in a direction that the data leave open, or
        so wide there that rounding hides it.

    Notes
    -----
    With statistics t1 and T2, the precision is ``Sigma_0^-1 - 2 A^T T2 A`` and the mean solves
    ``precision @ mean = Sigma_0^-1 mu_0 + A^T (t1 + 2 T2 origin)``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.glm.polynomial.statistics import polynomial_statistics
    >>> y = np.array([1.0, 2.0, 3.0])
    >>> polynomials = np.stack([-0.5 * y**2, y, np.full(3, -0.5)], axis=1)
    >>> statistics = polynomial_statistics(np.ones((3, 1)), polynomials, 4.0)
    >>> mean, covariance = gaussian_posterior(statistics, slope=np.zeros(1), precision=np.eye(1))
    >>> mean.round(3), covariance.round(3)
    (array([1.5]), array([[0.25]]))
    """
    if statistics.degree != 2:
        raise InvalidOptionError(
            f"A polynomial of degree {statistics.degree} has no posterior in closed form: use "
            "degree=2, or sample."
        )
    t1, T2 = statistics.moments[1][0], statistics.moments[2]
    if origin is not None:
        t1 = t1 + 2 * (T2 @ origin)
    if linear is not None:
        t1, T2 = linear.T @ t1, linear.T @ (T2 @ linear)
    posterior_precision = precision - 2 * (T2.toarray() if sparse.issparse(T2) else T2)
    try:
        # Scaled to a unit diagonal: columns in small units do not lack information.
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = 1 / np.sqrt(np.diag(posterior_precision))
        scaled = posterior_precision * np.outer(scale, scale)
        factor = scipy.linalg.cholesky(scaled, lower=True)
        smallest = scipy.linalg.eigvalsh(scaled, subset_by_index=[0, 0])[0]
    except (scipy.linalg.LinAlgError, ValueError) as error:
        raise InvalidDataError(_IMPROPER) from error
    if smallest < _SINGULAR:
        raise InvalidDataError(_IMPROPER)
    solve = scipy.linalg.cho_solve
    mean = scale * solve((factor, True), scale * (slope + t1))
    covariance = np.outer(scale, scale) * solve((factor, True), np.eye(len(scale)))
    return mean, (covariance + covariance.T) / 2
