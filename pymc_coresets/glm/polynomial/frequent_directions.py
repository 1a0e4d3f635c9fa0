"""A second moment of low rank, from rows that are seen once: frequent directions."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from scipy import sparse
from scipy.linalg.blas import dsyrk

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = ["FrequentDirections", "LowRankMoment"]

_ROUNDING = 1e-12  # of the largest coefficient, below which a positive one is 0


@dataclass(frozen=True, kw_only=True, eq=False)
class LowRankMoment:
    """``-S^-1 (F^T F + diag(e)) S^-1 / 2``: a negative semidefinite matrix in O(p rank) numbers.

    It stands for ``M = X^T diag(b) X``, with b <= 0, where p^2 numbers would not fit.  Its diagonal
    is exact.  ``theta @ moment`` and ``moment @ theta`` work as for an array.

    Parameters
    ----------
    factor : ndarray of shape (at most rank, n_coefficients)
        F, in coefficients that are scaled by S.
    squares : ndarray of shape (n_coefficients,)
        The diagonal of ``-2 S M S``, which is summed exactly.
    scales : ndarray of shape (n_coefficients,)
        S: the prior standard deviation of each coefficient.
    shrinkage : float
        The bound ``0 <= E <= shrinkage`` on all eigenvalues of ``E = -2 S M S - F^T F``.
    rank : int
        The largest number of rows of F.

    Examples
    --------
    >>> sketch = FrequentDirections(rank=1, scales=np.ones(2))
    >>> sketch.add(np.array([[3.0, 0.0], [0.0, 1.0]]), np.array([-0.5, -0.5]))
    >>> moment = sketch.finished()
    >>> float(moment.shrinkage), moment.residual
    (1.0, array([1., 1.]))
    >>> moment @ np.array([1.0, 2.0])
    array([-4.5, -1. ])
    """

    factor: Matrix
    squares: Vector
    scales: Vector
    shrinkage: float
    rank: int

    __array_ufunc__: ClassVar[None] = None  # so that arrays leave products to this class

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix that it stands for."""
        return len(self.scales), len(self.scales)

    @cached_property
    def residual(self) -> Vector:
        """The diagonal of E, which is e: what the factor leaves out of each coefficient's square.

        Of all diagonal matrices it is the closest to E, and its sum is the trace of E.
        """
        left: Vector = self.squares - np.einsum("kp,kp->p", self.factor, self.factor)
        return np.maximum(left, 0.0)

    @property
    def captured(self) -> float:
        """Share of the trace that the factor holds."""
        total = self.squares.sum()
        return float(1 - self.residual.sum() / total) if total > 0 else 1.0

    @property
    def off_diagonal(self) -> float:
        """Bound on the Frobenius norm of ``E - diag(e)``, all that is missing.

        ``|E - diag(e)|_F^2 = |E|_F^2 - |e|^2``, and ``|E|_F^2 <= shrinkage * trace(E)``.
        """
        e = self.residual
        return math.sqrt(max(self.shrinkage * float(e.sum()) - float(e @ e), 0.0))

    def __rmatmul__(self, theta: Any) -> Any:  # noqa: ANN401
        z = np.asarray(theta) / self.scales
        return -0.5 * ((z @ self.factor.T) @ self.factor + z * self.residual) / self.scales

    def __matmul__(self, theta: Any) -> Any:  # noqa: ANN401
        return (np.asarray(theta).T @ self).T  # it is symmetric

    def __add__(self, other: "LowRankMoment") -> "LowRankMoment":
        if not isinstance(other, LowRankMoment):
            return NotImplemented
        if self.rank != other.rank or not np.array_equal(self.scales, other.scales):
            raise InvalidOptionError(
                "Second moments of low rank add up only with the same rank and the same priors; "
                f"here the ranks are {self.rank} and {other.rank}."
            )
        factor, shrunk = _shrunk(np.vstack([self.factor, other.factor]), self.rank)
        return LowRankMoment(
            factor=factor,
            squares=self.squares + other.squares,
            scales=self.scales,
            shrinkage=self.shrinkage + other.shrinkage + shrunk,
            rank=self.rank,
        )


class FrequentDirections:
    """Sketches ``A^T A`` of rows ``a_n = sqrt(-2 b_n) S x_n`` that are seen once, in order.

    Costs 8 p rank operations for each row: less than the p^2 of the full matrix where the rank is
    below p / 8.  Memory: 2 rank rows.  The result does not depend on how the rows are cut into
    blocks.

    Parameters
    ----------
    rank : int
        Largest number of rows of the sketch, at least 1.
    scales : ndarray of shape (n_coefficients,)
        S, positive.

    Notes
    -----
    Rows fill a buffer of 2 rank rows.  When it is full, its squared singular values are lowered by
    the one after the first `rank`, which leaves `rank` rows.  The sketch F satisfies
    ``0 <= A^T A - F^T F <= d``, where d is the sum of what was subtracted, which is known; and
    ``d <= |A - A_k|_F^2 / (rank + 1 - k)`` for every k up to the rank, with the best approximation
    A_k of rank k.  Where A has no more than `rank` independent rows, F is exact.

    References
    ----------
    Ghashami, M., Liberty, E., Phillips, J. M. and Woodruff, D. P. (2016). Frequent directions:
    simple and deterministic matrix sketching. https://doi.org/10.1137/15M1009718

    Examples
    --------
    >>> x = np.random.default_rng(1).normal(size=(100, 2)) @ np.ones((2, 5))  # of rank 1
    >>> sketch = FrequentDirections(rank=2, scales=np.ones(5))
    >>> sketch.add(x, np.full(100, -0.5))
    >>> np.allclose(sketch.finished() @ np.eye(5), -0.5 * x.T @ x)
    True
    """

    def __init__(self, *, rank: int, scales: Vector) -> None:
        self.shape = (len(scales), len(scales))
        self._rank, self._scales = rank, scales
        self._buffer = np.empty((2 * rank, len(scales)))
        self._n_held = 0
        self._shrinkage = 0.0
        self._squares = np.zeros(len(scales))

    def add(self, x: Any, coefficients: Matrix) -> None:  # noqa: ANN401
        """Add ``sum_n b_n x_n x_n^T``.

        Parameters
        ----------
        x : ndarray or csr_array, of shape (n_rows, n_coefficients)
        coefficients : ndarray of shape (n_rows,)
            b, none of them positive.

        Raises
        ------
        UnsupportedModelError
            If one is positive: the log-likelihood of that row is not concave.
        """
        if coefficients.max() > _ROUNDING * np.abs(coefficients).max():
            raise UnsupportedModelError(
                "rank=... needs log-likelihoods whose quadratics are concave, as those of logistic "
                "and Poisson regressions are, but that of some row is convex. Leave rank out, or "
                "use a smaller radius."
            )
        roots = np.sqrt(np.maximum(-2 * coefficients, 0.0))
        start = 0
        while start < len(roots):
            rows = slice(start, start + len(self._buffer) - self._n_held)
            some = x[rows].toarray() if sparse.issparse(x) else x[rows]
            free = self._buffer[self._n_held : self._n_held + len(some)]
            np.multiply(some, roots[rows, None], out=free)
            free *= self._scales
            self._squares += np.einsum("np,np->p", free, free)
            self._n_held += len(some)
            start += len(some)
            if self._n_held == len(self._buffer):
                self._shrink()

    def finished(self) -> LowRankMoment:
        """Return the moment of all rows that were added.

        Raises
        ------
        InvalidDataError
            If it is not finite.
        """
        self._shrink()
        return LowRankMoment(
            factor=self._buffer[: self._n_held].copy(),
            squares=self._squares,
            scales=self._scales,
            shrinkage=self._shrinkage,
            rank=self._rank,
        )

    def _shrink(self) -> None:
        if not np.isfinite(self._squares).all():
            raise InvalidDataError(
                "The statistics of degree 2 are not finite: the design has NaN, infinite or too "
                "large values. Correct or scale its columns."
            )
        factor, shrunk = _shrunk(self._buffer[: self._n_held], self._rank)
        self._buffer[: len(factor)] = factor
        self._n_held = len(factor)
        self._shrinkage += shrunk


def _shrunk(rows: Matrix, rank: int) -> tuple[Matrix, float]:
    """Lower all squared singular values by that after the first `rank`, and return it."""
    if len(rows) <= rank:
        return rows, 0.0
    gram = dsyrk(1.0, rows.T, trans=1)
    values, vectors = scipy.linalg.eigh(gram, lower=False, overwrite_a=True, check_finite=False)
    least = max(float(values[-rank - 1]), 0.0)
    kept = values[-rank:]
    lowered = np.sqrt(np.divide(kept - least, kept, out=np.zeros_like(kept), where=kept > least))
    return (vectors[:, -rank:] * lowered).T @ rows, least
