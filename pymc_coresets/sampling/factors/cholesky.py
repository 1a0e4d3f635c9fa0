"""Cholesky factors of dense and sparse matrices, and how those of one pattern are decomposed."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.sparse.linalg import splu

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.quadratic import Curvature, as_dense


class CholeskyFactor(ABC):
    """A root R of a symmetric positive definite matrix, ``R R' = matrix``, of shape (p, p)."""

    @property
    @abstractmethod
    def n_dims(self) -> int:
        """Its number of rows p."""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """Log-determinant of the matrix."""

    @property
    @abstractmethod
    def n_operations(self) -> float:
        """Approximate cost of the decomposition, in multiplications by LAPACK."""

    @property
    @abstractmethod
    def matrix(self) -> Curvature:
        """The matrix itself, dense or sparse."""

    @property
    def lower(self) -> np.ndarray:
        """The lower Cholesky factor as a dense array (p, p), whatever the order of R."""
        return np.asarray(cholesky(as_dense(self.matrix), lower=True))

    @abstractmethod
    def solve(self, x: np.ndarray) -> np.ndarray:
        """Return ``matrix^-1 x``, for x of shape (p,) or (p, n)."""

    @abstractmethod
    def root_times(self, z: np.ndarray) -> np.ndarray:
        """Return ``R z``, (p,) or (p, n): of covariance `matrix` if z is standard normal."""

    @abstractmethod
    def offset(self, z: np.ndarray) -> np.ndarray:
        """Return ``R'^-1 z``, (p,) or (p, n): of precision `matrix` if z is standard normal."""

    @abstractmethod
    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return ``R' x`` for points (n_points, p) in rows: the inverse of `offset`."""

    def whiten_gradients(self, gradients: np.ndarray) -> np.ndarray:
        """Return ``R^-1 g`` for gradients (p,) or (n_points, p): those by whitened coordinates."""
        return self.whiten(self.solve(gradients.T).T)

    def draw_inverse(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw (n_draws, p) from a normal distribution of this precision, around zero."""
        return self.offset(rng.standard_normal((n_draws, self.n_dims)).T).T


#: How matrices of one pattern are decomposed: raises `LinAlgError` or `ValueError` if they are not
#: positive definite, or not finite.
type Decomposition = Callable[[Any], CholeskyFactor]


@dataclass(frozen=True, eq=False)
class DenseFactor(CholeskyFactor):
    """The lower Cholesky factor of a dense matrix, in O(p^3).

    Parameters
    ----------
    root : ndarray of shape (p, p)

    Examples
    --------
    >>> factor = DenseFactor.of(np.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> factor.root, factor.solve(np.array([4.0, 2.0]))
    (array([[2., 0.], [1., 1.]]), array([1., 0.]))
    """

    root: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> Self:
        """Decompose a matrix.

        Raises
        ------
        LinAlgError, ValueError
            If it is not positive definite, or not finite.
        """
        return cls(cholesky(matrix, lower=True))

    @property
    def lower(self) -> np.ndarray:
        """The lower Cholesky factor."""
        return self.root

    @property
    def matrix(self) -> np.ndarray:
        """The matrix itself."""
        matrix: np.ndarray = self.root @ self.root.T
        return matrix

    @property
    def n_dims(self) -> int:
        """Its number of rows p."""
        return len(self.root)

    @property
    def log_determinant(self) -> float:
        """Log-determinant of the matrix."""
        return 2 * float(np.log(self.root.diagonal()).sum())

    @property
    def n_operations(self) -> float:
        """Approximate cost of the decomposition, in multiplications."""
        return float(self.n_dims**3 / 3)

    def solve(self, x: np.ndarray) -> np.ndarray:
        """Return ``matrix^-1 x``, for x of shape (p,) or (p, n)."""
        return np.asarray(cho_solve((self.root, True), x))

    def root_times(self, z: np.ndarray) -> np.ndarray:
        """Return ``R z``, (p,) or (p, n): of covariance `matrix` if z is standard normal."""
        return np.asarray(self.root @ z)

    def offset(self, z: np.ndarray) -> np.ndarray:
        """Return ``R'^-1 z``, (p,) or (p, n): of precision `matrix` if z is standard normal."""
        return np.asarray(solve_triangular(self.root, z, lower=True, trans="T"))

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return ``R' x`` for points (n_points, p) in rows: the inverse of `offset`."""
        whitened: np.ndarray = x @ self.root
        return whitened

    def whiten_gradients(self, gradients: np.ndarray) -> np.ndarray:
        """Return ``R^-1 g`` for gradients (p,) or (n_points, p): those by whitened coordinates."""
        return np.asarray(solve_triangular(self.root, gradients.T, lower=True)).T


@dataclass(frozen=True, eq=False)
class Ordering:
    """The layout of sparse matrices in an order that keeps their factors sparse.

    Parameters
    ----------
    order, places : ndarray of int, of shape (p,)
        Of the rows, and where each is then.
    entries : ndarray of int, or slice
        Of the matrix, in the order in which the reordered one stores them.
    pattern : tuple of ndarray of int
        Indices and their starts, of the reordered one.
    permutation : str, default "NATURAL"
        SuperLU's name of how it reorders the rows once more.
    """

    order: np.ndarray
    places: np.ndarray
    entries: np.ndarray | slice
    pattern: tuple[np.ndarray, np.ndarray]
    permutation: str = "NATURAL"

    @classmethod
    def unknown(cls, matrix: sparse.csr_array) -> Self:
        """Leave the order to SuperLU: finding one takes ten times as long as the decomposition."""
        as_it_is, pattern = np.arange(matrix.shape[0]), (matrix.indices, matrix.indptr)
        # The arrays themselves, which SuperLU sorts together where they are not.
        return cls(as_it_is, as_it_is, slice(None), pattern, "MMD_AT_PLUS_A")

    def factor(self, matrix: sparse.csr_array) -> "SparseFactor":
        """Return the factor of a matrix of this pattern."""
        return SparseFactor(self, matrix)


class SparseFactor(CholeskyFactor):
    """A root of a sparse matrix, decomposed by SuperLU without pivoting.

    Parameters
    ----------
    given : Ordering
    matrix : csr_array of shape (p, p)

    Raises
    ------
    LinAlgError
        If it is not positive definite.

    Examples
    --------
    >>> matrix = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> factor = factor_of(sparse.csr_array(matrix))
    >>> root = np.column_stack([factor.root_times(z) for z in np.eye(2)])
    >>> (root @ root.T).round(12).tolist()
    [[4.0, 1.0], [1.0, 3.0]]
    >>> factor.layout.factor(2 * factor.matrix).solve(matrix[0]).round(12)
    array([0.5, 0. ])
    """

    def __init__(self, given: Ordering, matrix: sparse.csr_array) -> None:
        self._given, self._matrix = given, matrix
        # A symmetric matrix is its own transpose: by columns, it has the same arrays.
        arrays = (matrix.data[given.entries], *given.pattern)
        try:
            self._lu: Any = splu(
                sparse.csc_array(arrays, shape=matrix.shape),
                permc_spec=given.permutation,
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError as error:
            raise LinAlgError("The matrix is singular.") from error
        self._pivots, places = self._lu.U.diagonal(), self._lu.perm_r
        if not (np.array_equal(places, self._lu.perm_c) and (self._pivots > 0).all()):
            raise LinAlgError("The matrix is not positive definite.")
        self._places = places[given.places]
        self._order = np.argsort(self._places)

    @property
    def matrix(self) -> sparse.csr_array:
        """The matrix itself."""
        return self._matrix

    @cached_property
    def layout(self) -> Ordering:
        """How matrices of this pattern are put into this order."""
        if self._given.permutation == "NATURAL":
            return self._given
        order, own = self._order, self._matrix
        numbers = sparse.csr_array((np.arange(own.nnz), own.indices, own.indptr), shape=own.shape)
        moved = numbers[order][:, order]
        moved.sort_indices()
        return Ordering(order, self._places, moved.data, (moved.indices, moved.indptr))

    @cached_property
    def _root(self) -> sparse.csr_array:
        """Of the reordered matrix; it takes as long as the decomposition."""
        return sparse.csr_array(self._lu.L * np.sqrt(self._pivots))

    @property
    def n_dims(self) -> int:
        """Its number of rows p."""
        return len(self._places)

    @property
    def log_determinant(self) -> float:
        """Log-determinant of the matrix."""
        return float(np.log(self._pivots).sum())

    @property
    def n_operations(self) -> float:
        """Approximate cost of the decomposition, in multiplications by LAPACK."""
        # SuperLU takes 20 times as long as LAPACK for each multiplication.
        return float(20 * self._root.nnz**2 / max(self.n_dims, 1))

    def solve(self, x: np.ndarray) -> np.ndarray:
        """Return ``matrix^-1 x``, for x of shape (p,) or (p, n)."""
        solution: np.ndarray = self._lu.solve(x[self._given.order])[self._given.places]
        return solution

    def root_times(self, z: np.ndarray) -> np.ndarray:
        """Return ``R z``, (p,) or (p, n): of covariance `matrix` if z is standard normal."""
        widths = np.sqrt(self._pivots)
        product = self._lu.L @ (z * (widths if z.ndim == 1 else widths[:, None]))
        placed: np.ndarray = product[self._places]
        return placed

    def offset(self, z: np.ndarray) -> np.ndarray:
        """Return ``R'^-1 z``, (p,) or (p, n): of precision `matrix` if z is standard normal."""
        return self.solve(self.root_times(z))

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return ``R' x`` for points (n_points, p) in rows: the inverse of `offset`."""
        whitened: np.ndarray = x[..., self._order] @ self._root
        return whitened

    def __reduce__(self) -> tuple[object, ...]:
        return factor_of, (self._matrix,)


def factor_of(matrix: Curvature) -> DenseFactor | SparseFactor:
    """Decompose a matrix, dense or sparse.

    Raises
    ------
    LinAlgError, ValueError
        If it is not positive definite, or not finite.

    Examples
    --------
    >>> for matrix in (np.diag([4.0, 1.0]), sparse.diags_array([4.0, 1.0]).tocsr()):
    ...     type(factor_of(matrix)).__name__, factor_of(matrix).offset(np.ones(2))
    ('DenseFactor', array([0.5, 1. ]))
    ('SparseFactor', array([0.5, 1. ]))
    """
    if isinstance(matrix, np.ndarray):
        return DenseFactor.of(matrix)
    rows = sparse.csr_array(matrix)
    return Ordering.unknown(rows).factor(rows)


def factor_near(matrix: Curvature) -> DenseFactor | SparseFactor:
    """Decompose a matrix, adding to its diagonal until it is positive definite.

    Raises
    ------
    SamplingError
        If no addition makes it positive definite.
    """
    diagonal, more = np.abs(matrix.diagonal()), 0.0
    while more < 1e3:
        try:
            return factor_of(matrix + sparse.diags_array(more * diagonal))
        except (LinAlgError, ValueError):
            more = max(10 * more, 1e-3)
    raise SamplingError(
        "The posterior is improper: its precision at the draws is not positive definite, as "
        "with a flat prior of a variable that the data do not determine. Give all variables a "
        "proper prior."
    )
