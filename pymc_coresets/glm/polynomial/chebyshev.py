"""Polynomials in the linear predictor that approximate the log-likelihoods of rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.special import comb

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = ["MAX_DEGREE", "RowPolynomials", "chebyshev_fit"]

#: Beyond this degree, the conversion to monomials loses more than half of the digits.
MAX_DEGREE = 20
_MIN_NODES = 32  # more than the degree needs, so that what is cut off hardly folds back (aliasing)
_MAX_DISTINCT = 4096
_FEW = 8  # up to so many values, comparing with each is faster than searching

#: log p(y_n | eta) in nats, of shape (n_rows, n_eta), for a slice or positions of rows.  eta is a
#: vector for all of these rows, or a matrix with its own row for each.
type PredictorLogLikelihood = Callable[[Vector, slice | NDArray[np.int64]], Matrix]


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
    n_nodes = max(_MIN_NODES, 2 * (degree + 1))
    nodes = radius * np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    series = dct(np.eye(n_nodes), type=2, axis=0)[: degree + 1] / n_nodes
    series[0] /= 2
    to_monomials = np.zeros((degree + 1, degree + 1))
    for k in range(degree + 1):
        to_monomials[k, : k + 1] = cheb2poly(np.eye(degree + 1)[k, : k + 1])
    powers = radius ** np.arange(degree + 1.0)
    return nodes, np.ascontiguousarray(series.T @ (to_monomials / powers))


class RowPolynomials:
    """The polynomial of each row, from its log-likelihood at Chebyshev nodes.

    Rows with the same response have the same polynomial, which is computed once for each of up to
    4 096 distinct responses.  If there are more, it is computed for every row, from 32 values of
    its log-likelihood.  Memory O(rows asked for).

    Parameters
    ----------
    loglik : callable
        ``loglik(eta, rows)`` returns log p(y_n | eta) in nats, of shape (n_rows, n_eta), for a
        slice or positions of rows; eta is a vector for all of these rows, or a matrix with its own
        row for each.
    response : sequence of ndarray, each of shape (n_obs, ...)
        All that the function depends on besides eta.
    offset : ndarray of shape (n_obs,)
        The part of the linear predictor besides x_n . theta.
    degree : int
    radius : float
    place : callable, optional
        Says where a row lies, for messages.

    Raises
    ------
    InvalidOptionError
        If the degree or the radius is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([1.0, -1.0, 1.0])
    >>> rows = RowPolynomials(
    ...     lambda eta, rows: -np.log1p(np.exp(-y[rows, None] * eta)),
    ...     response=[y], offset=np.zeros(3), degree=2, radius=4.0,
    ... )
    >>> rows.in_predictor(slice(0, 3))[:, 1].round(3)
    array([ 0.5, -0.5,  0.5])
    """

    def __init__(
        self,
        loglik: PredictorLogLikelihood,
        *,
        response: Sequence[NDArray[Any]],
        offset: Vector,
        degree: int,
        radius: float,
        place: Callable[[int], str] = "row {}".format,
    ) -> None:
        self.degree, self.radius = degree, float(radius)
        self.response, self.offset, self._place = response, offset, place
        self.loglik = loglik
        self._nodes, self._fit = chebyshev_fit(degree, radius)
        self._responses: _Distinct | None = _Distinct(response)
        self._table = np.empty((degree + 1, 0))  # a power is contiguous
        self._tabled = np.empty(0, dtype=np.int64)

    @property
    def n_obs(self) -> int:
        """Number of rows N."""
        return len(self.offset)

    def in_predictor(self, rows: slice) -> Matrix:
        """Coefficients b_n0 ... b_nK of the powers of eta, (n_rows, degree + 1), in Fortran order.

        Raises
        ------
        InvalidDataError
            If the log-likelihood of a row is not finite at a node.
        """
        if self._responses is not None:
            numbers, first = self._responses.number(rows)
            if len(first) <= _MAX_DISTINCT:
                self._extend_table(first)
                return np.take(self._table, numbers, axis=1).T
            self._responses = None
        return self._fitted(rows)

    def in_coefficients(self, rows: slice) -> Matrix:
        """Coefficients of the powers of x_n . theta: `in_predictor`, shifted by the offsets."""
        return shifted(self.in_predictor(rows), self.offset[rows])

    def _extend_table(self, first: NDArray[np.int64]) -> None:
        """Fit one row for each distinct response that is new."""
        known = len(self._tabled)
        if not np.array_equal(first[:known], self._tabled):
            known = 0  # they were numbered anew
        if known < len(first):
            new = self._fitted(first[known:]).T
            self._table, self._tabled = np.hstack([self._table[:, :known], new]), first

    def _fitted(self, rows: slice | NDArray[np.int64]) -> Matrix:
        values = self.loglik(self._nodes, rows)
        if not np.isfinite(values).all():
            row, node = np.argwhere(~np.isfinite(values))[0]
            position = row + rows.start if isinstance(rows, slice) else rows[row]
            if not np.isfinite(values[row]).any():
                raise InvalidDataError(
                    f"The log-likelihood of {self._place(int(position))} is {values[row, node]} at "
                    "every linear predictor: correct an observation that is impossible under the "
                    "model, or leave it out."
                )
            raise InvalidDataError(
                f"The log-likelihood of {self._place(int(position))} is {values[row, node]} where "
                f"the linear predictor is {self._nodes[node]:.3g}: no polynomial stands for it on "
                f"[-{self.radius:g}, {self.radius:g}]. Use a smaller radius, or another link."
            )
        fitted: Matrix = (self._fit.T @ values.T).T
        return fitted


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
    degree = coefficients.shape[1] - 1
    result = coefficients.copy()
    power = np.ones_like(offset, dtype=float)
    for k in range(1, degree + 1):
        power = power * offset
        for j in range(degree + 1 - k):
            result[:, j] += comb(j + k, j, exact=True) * coefficients[:, j + k] * power
    return result


class _Distinct:
    """Numbers the distinct rows of some columns in the order of their appearance.

    Often one column determines the others, which are computed from it.  Checking that is faster
    than numbering all columns, and is tried first.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        columns = [a.reshape(len(a), -1) for a in arrays]
        self._columns = [c[:, i] for c in columns for i in range(c.shape[1])]
        self._one_is_enough = True
        self._restart()

    def _restart(self) -> None:
        self._values = [_Numbering() for _ in self._columns]
        self._pairs = [_Numbering() for _ in self._columns]
        self._first = np.empty(0, dtype=np.int64)

    def number(self, rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of each row of the slice, and the first row of every number so far."""
        if self._one_is_enough:
            if not len(self._first):
                self._columns.sort(key=lambda c: -len(np.unique(c[rows])))
            numbers = self._number(rows, 1)
            others = self._columns[1:]
            if all(np.array_equal(c[rows], c[self._first][numbers]) for c in others):
                return numbers, self._first
            self._one_is_enough = False
            self._restart()
        return self._number(rows, len(self._columns)), self._first

    def _number(self, rows: slice, n_columns: int) -> NDArray[np.int64]:
        numbers = np.zeros(rows.stop - rows.start, dtype=np.int64)
        for i, column in enumerate(self._columns[:n_columns]):
            own = self._values[i].number(column[rows])
            numbers = own if i == 0 else self._pairs[i].number((numbers << 32) + own)
        n_known = len(self._first)
        if not n_known or numbers.max() >= n_known:
            new = np.flatnonzero(numbers >= n_known)
            _, places = np.unique(numbers[new], return_index=True)
            self._first = np.concatenate([self._first, new[places] + rows.start])
        return numbers


class _Numbering:
    """Numbers distinct values in the order in which blocks bring them."""

    def __init__(self) -> None:
        self._sorted: NDArray[Any] | None = None
        self._numbers = np.empty(0, dtype=np.int64)

    def number(self, values: NDArray[Any]) -> NDArray[np.int64]:
        if self._sorted is None:
            self._sorted = np.unique(values)
            self._numbers = np.arange(len(self._sorted))
        places = self._places(self._sorted, values)
        unknown = self._sorted[places] != values
        if unknown.any():
            new = np.unique(values[unknown])
            merged = np.concatenate([self._sorted, new])
            order = np.argsort(merged, kind="stable")
            self._sorted = merged[order]
            self._numbers = np.concatenate(
                [self._numbers, len(self._numbers) + np.arange(len(new))]
            )[order]
            places = self._places(self._sorted, values)
        found: NDArray[np.int64] = self._numbers[places]
        return found

    @staticmethod
    def _places(ordered: NDArray[Any], values: NDArray[Any]) -> NDArray[np.int64]:
        """Return where the values are, or would be, among the known ones."""
        has_nan = ordered[-1] != ordered[-1]  # NaN equals nothing, but sorts last
        if len(ordered) > _FEW or has_nan:
            return np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        places = np.zeros(len(values), dtype=np.int64)
        for value in ordered[1:]:
            places += values >= value
        return places
