"""Polynomial approximate sufficient statistics of a generalised linear model (PASS-GLM)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.polynomial.chebyshev import RowPolynomials
from pymc_coresets.glm.polynomial.definiteness import can_be_positive
from pymc_coresets.glm.polynomial.moments import (
    EQUAL,
    add_amounts,
    add_moments,
    empty_moments,
    finished_moment,
)
from pymc_coresets.glm.polynomial.multi_indices import monomial_levels, monomials, n_monomials
from pymc_coresets.solving.problem import Vector

__all__ = [
    "MAX_MONOMIALS",
    "PolynomialStatistics",
    "PolynomialSums",
    "check_size",
    "polynomial_statistics",
    "weighted_monomials",
]

#: Most monomials of half the degree: the largest moment matrix has at most 2 000 x 2 000 entries.
MAX_MONOMIALS = 2_000
_BLOCK_ENTRIES = 2**19  # of float64: a block and its scaled copy stay in the cache
_BLOCK_ROWS = (512, 2**15)  # at least and at most


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
        Number of rows summed over, each as often as its base weight says.
    moments : tuple of (ndarray or csr_array)
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
        rounding = np.finfo(float).eps * 2.0 ** (self.degree + 8) * amounts[1:].max(initial=0.0)
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
        if leading == 0 or rises <= EQUAL * falls:
            return True
        if falls <= EQUAL * rises:
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


class PolynomialSums:
    """Adds up the statistics of rows that come in parts, in the order in which they come.

    Memory: blocks of 4 MB and the moments; nothing as large as a part is copied.

    Parameters
    ----------
    degree : int
    radius : float

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[1.0], [2.0]]), np.array([1.0, -1.0])
    >>> sums = PolynomialSums(2, 4.0)
    >>> for i in range(2):
    ...     sums.add(x[[i]], RowPolynomials(
    ...         lambda eta, rows: -np.log1p(np.exp(-y[[i]][rows, None] * eta)),
    ...         response=[y[[i]]], offset=np.zeros(1), degree=2, radius=4.0,
    ...     ))
    >>> sums.finished().moments[2].round(3)  # -0.0817 (1 + 4)
    array([[-0.408]])
    """

    def __init__(self, degree: int, radius: float) -> None:
        self.degree, self.radius = degree, radius
        self.total_weight = 0.0
        self._amounts = np.zeros((2, degree + 1))
        self._moments: list[Any] = []
        self._levels: tuple[Any, ...] = ()

    def add(
        self,
        design: NDArray[Any] | sparse.csr_array,
        rows: RowPolynomials,
        *,
        weights: Vector | None = None,
        on_block: Callable[[int], None] | None = None,
    ) -> None:
        """Add the statistics of some rows.

        Parameters
        ----------
        design : ndarray or csr_array, of shape (n_obs, n_coefficients)
            X, without the offset.
        rows : RowPolynomials
            The polynomial of each row, of the degree and radius of these sums.
        weights : ndarray of shape (n_obs,), optional
            How many rows each row stands for; 1 by default.
        on_block : callable, optional
            Called with the number of rows of each block, once they are summed.

        Raises
        ------
        InvalidOptionError
            If there are more than 2 000 monomials of half the degree (degree above 2).
        InvalidDataError
            If the design does not have one row for each offset.
        """
        n_obs = design.shape[0]
        if n_obs != rows.n_obs:
            raise InvalidDataError(
                f"The design has {n_obs} rows, but there are {rows.n_obs} observations."
            )
        if not self._moments:
            self._start(design)
        width = max(m.shape[1] for m in self._moments)
        if isinstance(design, sparse.csr_array) and not self._levels:
            width = 1 + design.nnz // n_obs
        for block in _blocks(n_obs, width):
            coefficients = rows.in_coefficients(block)
            if weights is not None:
                coefficients = coefficients * weights[block, None]
            add_amounts(self._amounts, coefficients)
            with np.errstate(over="ignore", invalid="ignore"):  # refused when it is finished
                add_moments(self._moments, design[block], coefficients, self._levels)
            if on_block is not None:
                on_block(len(coefficients))
        self.total_weight += n_obs if weights is None else weights.sum()

    def _start(self, design: Any) -> None:  # noqa: ANN401
        n_coefficients = design.shape[1]
        check_size(self.degree, n_coefficients)
        if self.degree > 2:
            self._levels = monomial_levels(n_coefficients, -(-self.degree // 2))
        self._moments = empty_moments(design, self.degree)

    def finished(self) -> "PolynomialStatistics":
        """Return the statistics of all rows that were added.

        Raises
        ------
        InvalidDataError
            If a statistic is not finite.
        """
        powers = self.radius ** np.arange(self.degree + 1.0)
        return PolynomialStatistics(
            degree=self.degree,
            radius=self.radius,
            n_obs=round(self.total_weight),
            moments=tuple(finished_moment(moment, m) for m, moment in enumerate(self._moments)),
            rising=self._amounts[0] * powers,
            falling=self._amounts[1] * powers,
        )


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
    sums = PolynomialSums(rows.degree, rows.radius)
    sums.add(design, rows, on_block=on_block)
    return sums.finished()


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


def _blocks(n_obs: int, width: int) -> list[slice]:
    """Divide rows so that no block border depends on how the rows came in parts of 2^k rows."""
    most = max(1, _BLOCK_ENTRIES // width)
    step = int(np.clip(2 ** (most.bit_length() - 1), *_BLOCK_ROWS))
    return [slice(i, min(i + step, n_obs)) for i in range(0, n_obs, step)]
