"""Polynomial approximate sufficient statistics of a generalised linear model (PASS-GLM)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.blas import dsyrk

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.polynomial.chebyshev import RowPolynomials
from pymc_coresets.glm.polynomial.definiteness import can_be_positive
from pymc_coresets.glm.polynomial.multi_indices import monomial_levels, monomials, n_monomials
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = [
    "MAX_MONOMIALS",
    "PolynomialStatistics",
    "polynomial_statistics",
]

#: Most monomials of half the degree: the largest moment matrix has at most 2 000 x 2 000 entries.
MAX_MONOMIALS = 2_000
_BLOCK_ENTRIES = 2**19  # of float64: a block and its scaled copy stay in the cache
_BLOCK_ROWS = (512, 2**15)  # at least and at most
_EQUAL = 64 * np.finfo(float).eps
_DENSE = 1 / 8  # from this share of entries on, a dense matrix is faster


@dataclass(frozen=True, kw_only=True, eq=False)
class PolynomialStatistics:
    """Sums over rows that give a polynomial approximation of their log-likelihood.

    Nothing else of the data is needed, and their size does not depend on the number of rows.  The
    statistics of disjoint data add up (``a + b``) without further error.

    Parameters
    ----------
    degree : int
        Degree K of the polynomials in the linear predictor.
    radius : float
        They approximate the log-likelihood of a row where |eta_n| <= radius.
    n_obs : int
        Number of rows summed over.
    moments : tuple of ndarray or csr_array
        ``M_m = sum_n b_nm phi_a(x_n) phi_c(x_n)^T`` for m = 0 ... K, with a = m // 2, c = m - a and
        phi_a(x) the monomials of degree a.  For K = 2: a scalar, a row vector and the matrix
        X^T diag(b_2) X; sparse where the design is.
    rising, falling : ndarray of shape (degree + 1,)
        ``sum_n max(b_nm, 0) R^m`` and ``sum_n max(-b_nm, 0) R^m``: how much each degree m
        contributes with either sign.

    Notes
    -----
    ``sum_n f_n(theta) ~ sum_m <sum_n b_nm x_n^(m), theta^(m)>`` (the paper's eq. 9), where the
    tensor of order m is folded to a matrix between the monomials of degree a and c.

    References
    ----------
    Huggins, J. H., Adams, R. P. and Broderick, T. (2017). PASS-GLM: polynomial approximate
    sufficient statistics for scalable Bayesian GLM inference.
    https://doi.org/10.48550/arXiv.1709.09216

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([0.5, 3.0])
    >>> rows = RowPolynomials(
    ...     lambda eta, rows: -0.5 * (y[rows, None] - eta) ** 2,
    ...     response=[y], offset=np.zeros(2), degree=2, radius=4.0,
    ... )
    >>> statistics = polynomial_statistics(x, rows)
    >>> float(statistics.loglik(np.array([1.0, 0.5])).round(3))  # exact: a Gaussian is quadratic
    -0.625
    """

    degree: int
    radius: float
    n_obs: int
    moments: tuple[Any, ...]
    rising: Vector
    falling: Vector

    @property
    def n_coefficients(self) -> int:
        """Length p of theta."""
        return int(self.moments[1].shape[1])

    @property
    def leading_degree(self) -> int:
        """The highest degree that is more than rounding error; 2 for Gaussian likelihoods."""
        amounts = self.rising + self.falling
        rounding = np.finfo(float).eps * 2.0 ** (self.degree + 8) * amounts.max()
        return int(np.flatnonzero(amounts > rounding).max(initial=0))

    @property
    def is_proper(self) -> bool:
        """Whether the polynomial is bounded above, whatever theta is.

        Exact for degree 2, and where the leading coefficients of all rows have the same sign.
        Elsewhere it searches for a direction of growth, and True means that it found none.
        """
        leading = self.leading_degree
        if leading % 2:
            return False
        rises, falls = self.rising[leading], self.falling[leading]
        if leading == 0 or rises <= _EQUAL * falls:
            return True
        if falls <= _EQUAL * rises:
            return False
        levels = monomial_levels(self.n_coefficients, leading // 2)
        return not can_be_positive(self.moments[leading], levels)

    def __add__(self, other: "PolynomialStatistics") -> "PolynomialStatistics":
        if not isinstance(other, PolynomialStatistics):
            return NotImplemented
        for name in ("degree", "radius", "n_coefficients"):
            own, its = getattr(self, name), getattr(other, name)
            if own != its:
                raise InvalidOptionError(
                    f"Statistics add up only with the same {name}; here they are {own} and {its}. "
                    "Summarise all parts of the data with the same model, degree and radius."
                )
        return PolynomialStatistics(
            degree=self.degree,
            radius=self.radius,
            n_obs=self.n_obs + other.n_obs,
            moments=tuple(a + b for a, b in zip(self.moments, other.moments, strict=True)),
            rising=self.rising + other.rising,
            falling=self.falling + other.falling,
        )

    def loglik(self, theta: Vector) -> Vector:
        """Evaluate the polynomial log-likelihood, in nats.

        Parameters
        ----------
        theta : ndarray of shape (n_coefficients,) or (n_draws, n_coefficients)

        Returns
        -------
        ndarray of shape () or (n_draws,)
        """
        theta = np.asarray(theta, dtype=float)
        levels = monomial_levels(self.n_coefficients, -(-self.leading_degree // 2))
        sides = [np.ones((*theta.shape[:-1], 1)), *weighted_monomials(theta, levels)]
        total = np.zeros(theta.shape[:-1])
        for m in range(self.leading_degree + 1):
            left, right = sides[m // 2], sides[m - m // 2]
            total += ((left @ self.moments[m]) * right).sum(axis=-1)
        return total


def weighted_monomials(theta: Any, levels: tuple[Any, ...]) -> list[Any]:  # noqa: ANN401
    """Return the vectors for which ``(x . theta)^a = phi_a(x) . vector_a``, for each degree a."""
    return [
        level.multiplicity * values
        for level, values in zip(levels, monomials(theta, levels), strict=False)
    ]


# -- one pass over the rows ------------------------------------------------------------------------


def polynomial_statistics(
    design: NDArray[Any] | sparse.csr_array,
    rows: RowPolynomials,
    *,
    on_block: Callable[[int], None] | None = None,
) -> PolynomialStatistics:
    """Sum the statistics of all rows, in one pass over blocks of them.

    For degree 2 the pass costs 1 to 2 times as much as ``design.T @ design`` if few responses are
    distinct.  For degree K it costs as much as that product of all monomials of degree K / 2.
    Memory: blocks of 4 MB and the moments; nothing as large as the design is copied.

    Parameters
    ----------
    design : ndarray or csr_array, of shape (n_obs, n_coefficients)
        X, without the offset.
    rows : RowPolynomials
        The polynomial of each row.
    on_block : callable, optional
        Called with the number of rows of each block, once they are summed.

    Returns
    -------
    PolynomialStatistics

    Raises
    ------
    InvalidOptionError
        If there are more than 2 000 monomials of half the degree (degree above 2).
    InvalidDataError
        If the design does not have one row for each offset, or a statistic is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[1.0], [2.0]]), np.array([1.0, -1.0])
    >>> rows = RowPolynomials(
    ...     lambda eta, rows: -np.log1p(np.exp(-y[rows, None] * eta)),
    ...     response=[y], offset=np.zeros(2), degree=2, radius=4.0,
    ... )
    >>> polynomial_statistics(x, rows).moments[2].round(3)  # -0.0817 (1 + 4)
    array([[-0.408]])
    """
    n_obs, n_coefficients = design.shape
    if n_obs != rows.n_obs:
        raise InvalidDataError(
            f"The design has {n_obs} rows, but there are {rows.n_obs} observations."
        )
    check_size(rows.degree, n_coefficients)
    levels = monomial_levels(n_coefficients, -(-rows.degree // 2)) if rows.degree > 2 else ()
    moments = _empty_moments(design, rows.degree)
    amounts = np.zeros((2, rows.degree + 1))
    width = max(m.shape[1] for m in moments)
    if isinstance(design, sparse.csr_array) and not levels:
        width = 1 + design.nnz // n_obs
    for block in _blocks(n_obs, width):
        coefficients = rows.in_coefficients(block)
        _add_amounts(amounts, coefficients)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            _add_block(moments, design[block], coefficients, levels)
        if on_block is not None:
            on_block(len(coefficients))
    powers = rows.radius ** np.arange(rows.degree + 1.0)
    return PolynomialStatistics(
        degree=rows.degree,
        radius=rows.radius,
        n_obs=n_obs,
        moments=tuple(_finished(moment, m) for m, moment in enumerate(moments)),
        rising=amounts[0] * powers,
        falling=amounts[1] * powers,
    )


def check_size(degree: int, n_coefficients: int) -> None:
    """Raise `InvalidOptionError` if a degree above 2 has too many monomials.

    Examples
    --------
    >>> check_size(6, 20)
    """
    half = -(-degree // 2)
    if degree > 2 and n_monomials(n_coefficients, half) > MAX_MONOMIALS:
        raise InvalidOptionError(
            f"degree={degree} with {n_coefficients} coefficients has "
            f"{n_monomials(n_coefficients, half):,} monomials of degree {half}, more than the "
            f"{MAX_MONOMIALS:,} that are allowed. Use a lower degree: degree=2 has no such limit."
        )


def _empty_moments(design: Any, degree: int) -> list[Any]:  # noqa: ANN401
    n = design.shape[1]
    if sparse.issparse(design) and degree <= 2:
        return [np.zeros((1, 1)), np.zeros((1, n)), sparse.csr_array((n, n))][: degree + 1]
    sizes = [n_monomials(n, a) for a in range(-(-degree // 2) + 1)]
    shapes = [(sizes[m // 2], sizes[m - m // 2]) for m in range(degree + 1)]
    return [np.zeros(shape, order="F") for shape in shapes]


def _blocks(n_obs: int, width: int) -> list[slice]:
    step = int(np.clip(_BLOCK_ENTRIES // width, *_BLOCK_ROWS))
    return [slice(i, min(i + step, n_obs)) for i in range(0, n_obs, step)]


def _add_amounts(amounts: Matrix, coefficients: Matrix) -> None:
    """Add the positive and the negative coefficients of each power, in place."""
    for m, column in enumerate(coefficients.T):
        if column.max() <= 0:
            amounts[1, m] -= column.sum()
        elif column.min() >= 0:
            amounts[0, m] += column.sum()
        else:
            rises = np.maximum(column, 0).sum()
            amounts[0, m] += rises
            amounts[1, m] += max(rises - column.sum(), 0)


def _add_block(moments: list[Any], x: Any, coefficients: Matrix, levels: tuple[Any, ...]) -> None:  # noqa: ANN401
    """Add the moments of a block of rows, in place."""
    moments[0] += coefficients[:, 0].sum()
    moments[1] += x.T @ coefficients[:, 1]
    if len(moments) == 2:
        return
    if sparse.issparse(x) and not levels:
        scaled = x.copy()
        scaled.data = scaled.data * np.repeat(coefficients[:, 2], np.diff(x.indptr))
        moments[2] = moments[2] + x.T.tocsr() @ scaled
        return
    dense = np.ascontiguousarray(x.toarray() if sparse.issparse(x) else x, dtype=float)
    values = [np.ones((len(dense), 1)), *(monomials(dense, levels) if levels else [dense])]
    for m in range(2, len(moments)):
        half, weights = values[m // 2], coefficients[:, m]
        if m % 2:
            moments[m] += (half * weights[:, None]).T @ values[m - m // 2]
        else:
            _add_gram(moments[m], half, weights)


def _add_gram(total: Matrix, x: Matrix, weights: Matrix) -> None:
    """Add the upper triangle of ``x.T @ diag(weights) @ x``, in place.

    The symmetric product of BLAS takes half the time of a general one, but knows no weights: the
    rows are scaled by the roots of these, for each sign separately.  For canonical links b_2 is
    the same for all rows, and there is nothing to scale.
    """
    low, high = weights.min(), weights.max()
    if high - low <= _EQUAL * max(-low, high):
        _add_scaled_gram(total, x, float(low + high) / 2)
        return
    for sign in (-1.0, 1.0):
        chosen = weights * sign > 0
        if chosen.all():
            _add_scaled_gram(total, x * np.sqrt(np.abs(weights))[:, None], sign)
        elif chosen.any():
            roots = np.sqrt(np.abs(weights[chosen]))[:, None]
            _add_scaled_gram(total, x[chosen] * roots, sign)


def _add_scaled_gram(total: Matrix, x: Matrix, scale: float) -> None:
    dsyrk(scale, x.T, beta=1.0, c=total, overwrite_c=1)


def _finished(moment: Any, m: int) -> Any:  # noqa: ANN401
    """Fill the lower triangle, choose the faster layout, and refuse values that are not finite."""
    if sparse.issparse(moment):
        if moment.nnz >= _DENSE * moment.shape[0] ** 2:
            moment = moment.toarray()
    elif m % 2 == 0:
        moment = np.ascontiguousarray(np.triu(moment) + np.triu(moment, 1).T)
    values = moment.data if sparse.issparse(moment) else moment
    if not np.isfinite(values).all():
        raise InvalidDataError(
            f"The statistics of degree {m} are not finite: the design has NaN, infinite or too "
            "large values. Correct or scale its columns."
        )
    return moment
