"""Polynomials in the linear predictor that approximate the log-likelihoods of rows."""

from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly, chebvander
from scipy.special import comb

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.glm.predictor.seen_rows import RowsInMemory
from pymc_coresets.solving.problem import Matrix, Vector

#: Beyond this degree, the conversion to monomials loses more than half of the digits.
MAX_DEGREE = 20
#: More than the degree needs, so that what is cut off hardly folds back (aliasing).
MIN_NODES = 32


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

    >>> nodes, fit = chebyshev_fit(2, 4.0)
    >>> (-np.log1p(np.exp(-nodes)) @ fit).round(3)
    array([-0.762,  0.5  , -0.082])
    """
    n_nodes = max(MIN_NODES, 2 * (degree + 1))
    nodes = radius * np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    series = chebvander(nodes / radius, degree) * 2 / n_nodes  # the discrete cosine transform
    series[:, 0] /= 2
    to_monomials = np.zeros((degree + 1, degree + 1))
    for k in range(degree + 1):
        to_monomials[k, : k + 1] = cheb2poly(np.eye(degree + 1)[k, : k + 1])
    powers = radius ** np.arange(degree + 1.0)
    return nodes, np.ascontiguousarray(series @ (to_monomials / powers))


def row_polynomials(rows: RowsInMemory, degree: int, radius: float) -> Matrix:
    """Return the polynomial of each row in its predictor, from its log-likelihood at nodes.

    Rows with the same response have the same polynomial, which is computed once for each of up to
    4 096 distinct responses.  If there are more, it is computed for every row, from 32 values of
    its log-likelihood.

    Parameters
    ----------
    rows : RowsInMemory
        Of one predictor.
    degree : int
    radius : float

    Returns
    -------
    ndarray of shape (n_rows, degree + 1)
        Coefficients b_n0 ... b_nK of the powers of eta, in Fortran order.

    Raises
    ------
    InvalidDataError
        If the log-likelihood of a row is not finite at a node.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> row_polynomials(RowsInMemory(found, np.arange(2), np.ones(2)), 2, 4.0).round(3)
    array([[-0.762, -0.5  , -0.082],
           [-0.762,  0.5  , -0.082]])
    """
    nodes, fit = chebyshev_fit(degree, radius)
    values, numbers, first = rows.kinds_at(nodes)
    wrong = ~np.isfinite(values)
    if wrong.any():
        row, node = np.argwhere(wrong)[0]
        where = rows.where(int(row if isinstance(first, slice) else first[row]))
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
    return (fitted if isinstance(numbers, slice) else np.take(fitted, numbers, axis=1)).T


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
