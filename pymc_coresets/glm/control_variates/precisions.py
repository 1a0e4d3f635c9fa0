"""Precisions of conditional normal distributions, which share a sparsity pattern."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse

from pymc_coresets.reading.quadratic import Curvature, as_dense
from pymc_coresets.sampling.factors.arrowhead import Arrowhead
from pymc_coresets.sampling.factors.cholesky import Decomposition, Ordering, factor_of

type Array = np.ndarray

#: Largest number of products that are listed, for which a sparse product takes as long.
_MOST_PRODUCTS = 1_000_000


def with_entries(places: sparse.csr_array, entries: Array) -> sparse.csr_array:
    """Return a matrix with new entries and the same sparsity pattern.

    Examples
    --------
    >>> with_entries(sparse.csr_array(np.eye(2)), np.array([3.0, 4.0])).toarray()
    array([[3., 0.],
           [0., 4.]])
    """
    return sparse.csr_array((entries, places.indices, places.indptr), shape=places.shape)


class Precisions:
    """Precisions of normal coordinates: of the prior, and weighted sums of matrices of the rows.

    Parameters
    ----------
    grams : sequence of ndarray or csr_array, of shape (p, p)
        Negative curvatures of the rows' log-likelihood in the coefficients.
    prior : csr_array of shape (n, n)
        Its pattern is that of the prior's precision.
    slopes : csr_array of shape (n, p)
        Derivatives of the coefficients by the coordinates.
    moves : bool
        Whether only their pattern is known.

    Examples
    --------
    >>> identity = sparse.eye_array(2, format="csr")
    >>> found = Precisions([3 * identity], identity, identity, moves=False)
    >>> found.at(np.array([2.0]), np.array([0.5, 1.5]), identity).toarray()
    array([[6.5, 0. ],
           [0. , 7.5]])
    """

    def __init__(
        self,
        grams: Sequence[Curvature],
        prior: sparse.csr_array,
        slopes: sparse.csr_array,
        *,
        moves: bool,
    ) -> None:
        self._grams, self._prior, self._slopes, self._moves = grams, prior, slopes, moves
        counts = np.diff(slopes.indptr)
        self._is_scaling = moves and bool((counts <= 1).all())  # each sees one coefficient
        self._is_seen = counts > 0
        known = with_entries(slopes, np.ones(slopes.nnz)) if moves else slopes
        self._of_rows: list[Any] = [self._seen_by(known, gram) for gram in grams]
        self.is_dense = any(isinstance(part, np.ndarray) for part in self._of_rows)
        if self.is_dense:
            self._of_rows = [as_dense(part) for part in self._of_rows]
            return
        ones = [abs(with_entries(m, np.ones(m.nnz))) for m in (slopes, *grams, prior)]
        parts = [ones[0] @ gram @ ones[0].T for gram in ones[1:-1]]
        identity = sparse.eye_array(prior.shape[0], format="csr")
        self._places = sparse.csr_array(sum(parts, ones[-1] + identity))
        self._places.sort_indices()
        self._keys = _keys(self._places)
        self._prior_at = self._where(prior)
        self._rows_at = [self._where(part) for part in self._of_rows]

    def at(self, shares: Array, prior: Array, slopes: sparse.csr_array) -> Curvature:
        """Return the sum of the prior's precision and shares of the grams.

        Parameters
        ----------
        shares : ndarray of shape (n_grams,)
        prior : ndarray
            The entries of the prior's precision, in its pattern.
        slopes : csr_array of shape (n, p)
            The derivatives.
        """
        if self.is_dense:
            return self._dense_at(shares, prior, slopes)
        entries = np.zeros(self._places.nnz)
        entries[self._prior_at] = prior
        if self._moves and not self._is_scaling:
            for share, product in zip(shares, self._products, strict=True):
                entries += share * product(slopes)
        else:
            for share, part, at in zip(shares, self._of_rows, self._rows_at, strict=True):
                entries[at] += share * part.data * self._scaling(part, slopes)
        return with_entries(self._places, entries)

    def _dense_at(self, shares: Array, prior: Array, slopes: sparse.csr_array) -> Array:
        of_rows = self._of_rows
        if self._moves:
            of_rows = [self._seen_by(slopes, gram) for gram in self._grams]
        total = np.zeros(self._prior.shape)
        for share, part in zip(shares, of_rows, strict=True):
            total += share * as_dense(part)
        total[_row_of(self._prior), self._prior.indices] += prior
        return total

    def _scaling(self, part: sparse.csr_array, slopes: sparse.csr_array) -> Array | float:
        """Return products of derivatives of each coordinate's only coefficient, if these vary."""
        if not self._moves:
            return 1.0
        by = np.zeros(len(self._is_seen))
        by[self._is_seen] = slopes.data
        found: Array = by[_row_of(part)] * by[part.indices]
        return found

    @staticmethod
    def _seen_by(slopes: sparse.csr_array, gram: Curvature) -> Curvature:
        found: Curvature = slopes @ gram @ slopes.T
        return found if isinstance(found, np.ndarray) else sparse.csr_array(found)

    @cached_property
    def _products(self) -> list[Callable[[sparse.csr_array], Array]]:
        """Functions of slopes that return the entries of ``S G S'`` for each gram G."""
        return [self._product_with(gram) for gram in self._grams]

    def _product_with(self, gram: Curvature) -> Callable[[sparse.csr_array], Array]:
        for listed in _Products.of(self._slopes, gram, self._keys):
            return listed.summed
        return partial(self._multiplied, gram)

    def _multiplied(self, gram: Curvature, slopes: sparse.csr_array) -> Array:
        part, entries = self._seen_by(slopes, gram), np.zeros(self._places.nnz)
        entries[self._where(part)] = part.data
        return entries

    def _where(self, part: sparse.csr_array) -> Array:
        """Return the positions of a matrix's entries among those of the sum."""
        found: Array = np.searchsorted(self._keys, _keys(part))
        return found


@dataclass(frozen=True, eq=False)
class _Products:
    """The terms of ``S G S'`` for slopes S of a known pattern: no pattern is found out again.

    Parameters
    ----------
    one, other : ndarray of int, of shape (n_terms,)
        Which entries of S are multiplied,
    by : ndarray of shape (n_terms,)
        with which entry of G,
    places : ndarray of int, of shape (n_terms,)
        and the number of the sum's entry,
    n_entries : int
        of so many.
    """

    one: Array
    other: Array
    by: Array
    places: Array
    n_entries: int

    @classmethod
    def of(cls, slopes: sparse.csr_array, gram: Curvature, keys: Array) -> "Iterator[_Products]":
        """List them, unless they are more than a million, or the matrix G is dense.

        Examples
        --------
        >>> slopes, gram = sparse.csr_array(np.tri(2)), sparse.csr_array([[2.0, 1.0], [1.0, 3.0]])
        >>> [listed] = _Products.of(slopes, gram, np.arange(4))
        >>> listed.summed(with_entries(slopes, np.array([1.0, 10.0, 100.0])))
        array([2.0e+00, 1.2e+02, 1.2e+02, 3.22e+04])
        """
        if isinstance(gram, np.ndarray):
            return
        columns = sparse.csr_array(
            sparse.csr_array(
                (np.arange(1, slopes.nnz + 1), slopes.indices, slopes.indptr), shape=slopes.shape
            ).T
        )
        starts, counts = columns.indptr[:-1], np.diff(columns.indptr)
        a, b = _row_of(gram), gram.indices
        sizes = counts[a].astype(np.int64) * counts[b]
        if sizes.sum() > _MOST_PRODUCTS:
            return
        term = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        width = np.repeat(counts[b], sizes)
        one, other = (
            columns.data[np.repeat(starts[which], sizes) + at] - 1
            for which, at in ((a, term // width), (b, term % width))
        )
        row = _row_of(slopes).astype(np.int64)
        places = np.searchsorted(keys, row[one] * slopes.shape[0] + row[other])
        yield cls(one, other, np.repeat(gram.data, sizes), places, len(keys))

    def summed(self, slopes: sparse.csr_array) -> Array:
        """Return the entries of the product, (n_entries,)."""
        terms = slopes.data[self.one] * self.by * slopes.data[self.other]
        found: Array = np.bincount(self.places, terms, minlength=self.n_entries)
        return found


def _row_of(matrix: sparse.csr_array) -> Array:
    rows: Array = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows


def _keys(matrix: sparse.csr_array) -> Array:
    """Number the places of a matrix's entries, row by row."""
    found: Array = _row_of(matrix).astype(np.int64) * matrix.shape[1] + matrix.indices
    return found


def decomposition_of(matrix: Curvature) -> Decomposition:
    """Choose how matrices of a pattern are decomposed: by the fewest operations.

    Raises
    ------
    LinAlgError, ValueError
        If this one is not positive definite, or not finite.
    """
    if isinstance(matrix, np.ndarray):
        return factor_of
    by_order = Ordering.unknown(matrix).factor(matrix)
    for cut in Arrowhead.of(matrix):
        if cut.n_operations < by_order.n_operations:
            return cut.factor
    return by_order.layout.factor
