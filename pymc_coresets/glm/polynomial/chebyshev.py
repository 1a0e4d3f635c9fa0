"""Polynomials in the linear predictor that approximate the log-likelihoods of rows."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.special import comb

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.predictor.kinds_of_rows import distinct_rows
from pymc_coresets.solving.problem import Matrix, Vector

#: Beyond this degree, the conversion to monomials loses more than half of the digits.
MAX_DEGREE = 20
#: More than the degree needs, so that what is cut off hardly folds back (aliasing).
MIN_NODES = 32

#: log p(y_n | eta) in nats, of shape (n_rows, n_eta), for a slice or positions of rows, and
#: a vector eta.
type PredictorLogLikelihood = Callable[[Vector, slice | NDArray[np.int64]], Matrix]


@lru_cache(maxsize=8)
def chebyshev_fit(degree: int, radius: float) -> tuple[Vector, Matrix]:
    """Return nodes on [-radius, radius], and the map from values there to a polynomial.

    Parameters
    ----------
    degree : int
        K, between 1 and 20.
    radius : float
        R > 0.

    Returns
    -------
    nodes : ndarray of shape (n_nodes,)
        Chebyshev nodes, at least 32 and at least 2 (K + 1).
    fit : ndarray of shape (n_nodes, degree + 1)
        ``phi(nodes) @ fit`` are the coefficients b_0 ... b_K of 1, eta, ..., eta^K.

    Raises
    ------
    InvalidOptionError
        If the degree or the radius is out of range.

    Notes
    -----
    The expansion phi ~ sum_k c_k T_k(eta / R) is cut at K; c_k comes from the discrete cosine
    transform of more values than K + 1, so that it is the coefficient of the series itself and not
    that of an interpolant (the paper's eq. 7 with Chebyshev's measure).
    The error on [-R, R] is within a factor of about 2 of the best polynomial's of that degree.

    References
    ----------
    Huggins, J. H., Adams, R. P. and Broderick, T. (2017). PASS-GLM: polynomial approximate
    sufficient statistics for scalable Bayesian GLM inference.
    https://doi.org/10.48550/arXiv.1709.09216

    Examples
    --------
    The paper's PASS-LR2:

    >>> import numpy as np
    >>> nodes, fit = chebyshev_fit(2, 4.0)
    >>> (-np.log1p(np.exp(-nodes)) @ fit).round(3)
    array([-0.762,  0.5  , -0.082])
    """
    if not 1 <= degree <= MAX_DEGREE:
        raise InvalidOptionError(f"degree={degree} must lie between 1 and {MAX_DEGREE}.")
    if not 0 < radius < np.inf:
        raise InvalidOptionError(f"radius={radius} must be positive and finite.")
    n_nodes = max(MIN_NODES, 2 * (degree + 1))
    nodes = radius * np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    series = dct(np.eye(n_nodes), type=2, axis=0)[: degree + 1] / n_nodes
    series[0] /= 2
    to_monomials = np.zeros((degree + 1, degree + 1))
    for k in range(degree + 1):
        to_monomials[k, : k + 1] = cheb2poly(np.eye(degree + 1)[k, : k + 1])
    powers = radius ** np.arange(degree + 1.0)
    return nodes, np.ascontiguousarray(series.T @ (to_monomials / powers))


def row_polynomials(
    loglik: PredictorLogLikelihood,
    response: Sequence[NDArray[Any]],
    *,
    degree: int,
    radius: float,
    place: Callable[[int], str] = "row {}".format,
) -> Matrix:
    """Compute the polynomial of each row, from its log-likelihood at Chebyshev nodes.

    Rows with the same response have the same polynomial, which is computed once for each of up to
    4 096 distinct responses.  If there are more, it is computed for every row, from 32 values of
    its log-likelihood.

    Parameters
    ----------
    loglik : callable
        ``loglik(eta, rows)`` returns log p(y_n | eta) in nats, of shape (n_rows, n_eta), for a
        slice or positions of rows, at a vector eta.
    response : sequence of ndarray, each of shape (n_rows, ...)
        All that the function depends on besides eta; at least one array.
    degree : int
    radius : float
    place : callable, optional
        Says where a row lies, for messages.

    Returns
    -------
    ndarray of shape (n_rows, degree + 1)
        Coefficients b_n0 ... b_nK of the powers of eta, in Fortran order.

    Raises
    ------
    InvalidOptionError
        If the degree or the radius is out of range.
    InvalidDataError
        If the log-likelihood of a row is not finite at a node.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([1.0, -1.0, 1.0])
    >>> row_polynomials(
    ...     lambda eta, rows: -np.log1p(np.exp(-y[rows, None] * eta)), [y], degree=2, radius=4.0
    ... )[:, 1].round(3)
    array([ 0.5, -0.5,  0.5])
    """
    nodes, fit = chebyshev_fit(degree, radius)
    kinds = distinct_rows(response)
    first = slice(None) if kinds is None else kinds[1]
    values = loglik(nodes, first)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row, node = np.argwhere(wrong)[0]
        where = place(int(row if isinstance(first, slice) else first[row]))
        if wrong[row].all():
            raise InvalidDataError(
                f"The log-likelihood of {where} is {values[row, node]} at every linear predictor: "
                "correct an observation that is impossible under the model, or leave it out."
            )
        raise InvalidDataError(
            f"The log-likelihood of {where} is {values[row, node]} where the linear predictor is "
            f"{nodes[node]:.3g}: no polynomial stands for it on [-{radius:g}, {radius:g}]. Use a "
            "smaller radius, or another link."
        )
    fitted: Matrix = fit.T @ values.T
    return (fitted if kinds is None else np.take(fitted, kinds[0], axis=1)).T


def shifted(coefficients: Matrix, offset: Vector) -> Matrix:
    """Return the polynomials in s that have the values of the given ones at s + offset.

    Parameters
    ----------
    coefficients : ndarray of shape (n_rows, degree + 1)
    offset : ndarray of shape (n_rows,)

    Returns
    -------
    ndarray of shape (n_rows, degree + 1)

    Examples
    --------
    >>> import numpy as np
    >>> shifted(np.array([[0.0, 0.0, 1.0]]), np.array([3.0]))  # (s + 3)^2
    array([[9., 6., 1.]])
    """
    if not offset.any():
        return coefficients
    powers = coefficients.T
    n = len(powers)
    moved = [
        sum(comb(j + k, j, exact=True) * powers[j + k] * offset**k for k in range(n - j))
        for j in range(n)
    ]
    return np.stack(moved).T
