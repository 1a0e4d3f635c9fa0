"""Cholesky factors of matrices most of whose coordinates meet none but a few others."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from pymc_coresets.sampling.factors.cholesky import CholeskyFactor

type Array = np.ndarray

#: Largest number of products that are listed to eliminate the inner coordinates: 0.3 GB.
_MOST_PRODUCTS = 1e7


@dataclass(frozen=True, eq=False, kw_only=True)
class Arrowhead:
    """A sparsity pattern cut into inner coordinates, no two of which meet, and outer ones.

    With the inner coordinates first, the matrix is ``[[D, B], [B', C]]`` with D diagonal: its
    Cholesky factor consists of the roots of D, of ``B' D^-1/2``, and of the dense factor of the
    Schur complement ``C - B' D^-1 B``.  For crossed factors, the levels of the larger one are
    inner; for nested ones, those of the innermost.

    Attributes
    ----------
    inner, outer : ndarray of int
        The coordinates.
    diagonal : ndarray of int, of shape (n_inner,)
        Where D is among the entries of the pattern.
    border : csr_array of shape (n_inner, n_outer)
        Where B is.
    corner : tuple of ndarray of int
        Where the lower triangle of C is among the entries; and in the raveled matrix.
    """

    inner: Array
    outer: Array
    diagonal: Array
    border: sparse.csr_array
    corner: tuple[Array, Array]

    @classmethod
    def of(cls, pattern: sparse.csr_array) -> "Iterator[Arrowhead]":
        """Cut the pattern of a symmetric matrix, which includes its diagonal.

        Yields nothing if eliminating the inner coordinates would take more memory than 0.3 GB.

        Examples
        --------
        Three coordinates that meet a fourth one alone:

        >>> dense = np.diag([2.0, 3.0, 4.0, 5.0])
        >>> dense[3, :3] = dense[:3, 3] = 1.0
        >>> matrix = sparse.csr_array(dense)
        >>> [cut] = Arrowhead.of(matrix)
        >>> cut.inner, cut.outer
        (array([0, 1, 2]), array([3]))
        >>> abs(cut.factor(matrix).solve(dense[3]).round(12))
        array([0., 0., 0., 1.])
        """
        is_inner = independent(pattern)
        inner, outer = np.flatnonzero(is_inner), np.flatnonzero(~is_inner)
        numbers = sparse.csr_array(
            (np.arange(1, pattern.nnz + 1), pattern.indices, pattern.indptr), shape=pattern.shape
        )
        border = sparse.csr_array(numbers[inner][:, outer])
        border.data -= 1
        sizes = np.diff(border.indptr).astype(float)
        if sizes @ (sizes + 1) / 2 > _MOST_PRODUCTS:
            return
        corner = sparse.coo_array(sparse.tril(numbers[outer][:, outer]))
        row, column = corner.coords
        yield cls(
            inner=inner,
            outer=outer,
            diagonal=numbers.diagonal()[inner] - 1,
            border=border,
            corner=(corner.data - 1, row * len(outer) + column),
        )

    @property
    def n_operations(self) -> float:
        """Approximate cost of a factor, in multiplications by LAPACK."""
        # A product that is gathered and added takes as long as twenty of these.
        n_gathered = len(self._products[0]) + len(self.inner)
        return float(len(self.outer) ** 3 / 3 + 20 * n_gathered)

    @cached_property
    def _products(self) -> tuple[Array, Array, Array, Array]:
        """Pairs of entries of B whose products are added, starts of the sums, and their places."""
        sizes = np.diff(self.border.indptr)
        ones, others = [], []
        for size in np.unique(sizes[sizes > 0]):
            a, b = np.tril_indices(size)
            first = self.border.indptr[:-1][sizes == size][:, None]
            ones.append((first + a).ravel())
            others.append((first + b).ravel())
        one, other = (np.concatenate([np.empty(0, np.int64), *each]) for each in (ones, others))
        columns = self.border.indices.astype(np.int64)
        lower = np.maximum(columns[one], columns[other]) * len(self.outer)
        target = lower + np.minimum(columns[one], columns[other])
        order = np.argsort(target, kind="stable")
        one, other, target = one[order], other[order], target[order]
        starts = np.flatnonzero(np.diff(target, prepend=-1))
        return one.astype(np.intp), other.astype(np.intp), starts, target[starts]

    def factor(self, matrix: sparse.csr_array) -> "ArrowheadFactor":
        """Return the factor of a matrix of this pattern.

        Raises
        ------
        LinAlgError
            If it is not positive definite.
        """
        return ArrowheadFactor(self, matrix)


class ArrowheadFactor(CholeskyFactor):
    """A root of a positive definite matrix by the Schur complement of its inner coordinates.

    Parameters
    ----------
    cut : Arrowhead
    matrix : csr_array
        Of its pattern.

    Raises
    ------
    LinAlgError
        If it is not positive definite.
    """

    def __init__(self, cut: Arrowhead, matrix: sparse.csr_array) -> None:
        self.cut, self._matrix = cut, matrix
        diagonal, entries = matrix.data[cut.diagonal], matrix.data[cut.border.data]
        if not (diagonal > 0).all():
            raise LinAlgError("The matrix is not positive definite.")
        self._widths = np.sqrt(diagonal)
        scaled = entries / np.repeat(self._widths, np.diff(cut.border.indptr))
        self._border = sparse.csr_array(
            (scaled, cut.border.indices, cut.border.indptr), shape=cut.border.shape
        )
        self._upper = self._outer_root(scaled)

    def _outer_root(self, scaled: Array) -> Array:
        cut, n = self.cut, len(self.cut.outer)
        one, other, starts, targets = cut._products  # noqa: SLF001 (of the same module)
        corner = np.zeros(n * n)
        corner[cut.corner[1]] = self._matrix.data[cut.corner[0]]
        if len(starts):
            corner[targets] -= np.add.reduceat(scaled.take(one) * scaled.take(other), starts)
        # The lower triangle in C's order is the upper one in that of LAPACK, which copies neither.
        upper: Array = cholesky(
            corner.reshape(n, n).T, lower=False, overwrite_a=True, check_finite=False
        )
        if not np.isfinite(upper.diagonal()).all():
            raise LinAlgError("The matrix is not finite.")
        return upper

    @property
    def n_dims(self) -> int:
        """Its number of rows."""
        return int(self._matrix.shape[0])

    @property
    def matrix(self) -> sparse.csr_array:
        """The matrix itself."""
        return self._matrix

    @property
    def log_determinant(self) -> float:
        """Log-determinant of the matrix."""
        return 2 * float(np.log(self._widths).sum() + np.log(self._upper.diagonal()).sum())

    @property
    def n_operations(self) -> float:
        """Approximate cost of the decomposition, in multiplications."""
        return self.cut.n_operations

    def solve(self, x: Array) -> Array:
        """Return ``matrix^-1 x``, for x of shape (p,) or (p, n)."""
        widths = self._widths if x.ndim == 1 else self._widths[:, None]
        inner = x[self.cut.inner] / widths
        outer = cho_solve((self._upper, False), x[self.cut.outer] - self._border.T @ inner)
        return self._placed((inner - self._border @ outer) / widths, outer)

    def root_times(self, z: Array) -> Array:
        """Return ``R z``, (p,) or (p, n): of covariance `matrix` if z is standard normal."""
        inner, outer = np.split(z, [len(self.cut.inner)])
        widths = self._widths if z.ndim == 1 else self._widths[:, None]
        return self._placed(widths * inner, self._border.T @ inner + self._upper.T @ outer)

    def offset(self, z: Array) -> Array:
        """Return ``R'^-1 z``, (p,) or (p, n): of precision `matrix` if z is standard normal."""
        inner, outer = np.split(z, [len(self.cut.inner)])
        widths = self._widths if z.ndim == 1 else self._widths[:, None]
        outer = solve_triangular(self._upper, outer, lower=False)
        return self._placed((inner - self._border @ outer) / widths, outer)

    def whiten(self, x: Array) -> Array:
        """Return ``R' x`` for points (n_points, p) in rows: the inverse of `offset`."""
        inner, outer = x[..., self.cut.inner], x[..., self.cut.outer]
        first = inner * self._widths + (self._border @ outer.T).T
        return np.concatenate([first, outer @ self._upper.T], axis=-1)

    def _placed(self, inner: Array, outer: Array) -> Array:
        found = np.empty((self.n_dims, *inner.shape[1:]))
        found[self.cut.inner], found[self.cut.outer] = inner, outer
        return found

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.cut, self._matrix))


def independent(pattern: sparse.csr_array) -> Array:
    """Choose coordinates no two of which meet, as many as possible: (p,), bool.

    Again and again one that meets the fewest of those that are left.

    Examples
    --------
    >>> independent(sparse.csr_array(np.ones((2, 2))))
    array([ True, False])
    """
    indices, indptr = pattern.indices.tolist(), pattern.indptr.tolist()
    left = np.diff(pattern.indptr).tolist()
    state = [0] * len(left)  # 1 is chosen, 2 left out
    waiting = [(size, i) for i, size in enumerate(left)]
    heapify(waiting)
    while waiting:
        size, i = heappop(waiting)
        if state[i] or size != left[i]:
            continue
        state[i] = 1
        for j in indices[indptr[i] : indptr[i + 1]]:
            if state[j]:
                continue
            state[j] = 2
            for k in indices[indptr[j] : indptr[j + 1]]:
                if not state[k]:
                    left[k] -= 1
                    heappush(waiting, (left[k], k))
    is_inner: Array = np.array(state) == 1
    return is_inner
