"""Precisions of conditional normal distributions, which share a sparsity pattern."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from pymc_coresets.reading.quadratic import Curvature, as_dense
from pymc_coresets.sampling.factors.arrowhead import Arrowhead
from pymc_coresets.sampling.factors.cholesky import EachByItself, Layout, Ordering

type Array = np.ndarray


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
    >>> found.at(np.array([2.0]), np.array([0.5, 1.5])).toarray()
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

    def at(self, shares: Array, prior: Array, slopes: Array | None = None) -> Curvature:
        """Return the sum of the prior's precision and shares of the grams.

        Parameters
        ----------
        shares : ndarray of shape (n_grams,)
        prior : ndarray
            The entries of the prior's precision, in its pattern.
        slopes : ndarray, optional
            The derivatives' entries in their pattern, if these vary.
        """
        if self.is_dense:
            return self._dense_at(shares, prior, slopes)
        entries = np.zeros(self._places.nnz)
        entries[self._prior_at] = prior
        if slopes is None or self._is_scaling:
            for share, part, at in zip(shares, self._of_rows, self._rows_at, strict=True):
                entries[at] += share * part.data * self._scaling(part, slopes)
        else:
            for share, gram in zip(shares, self._grams, strict=True):
                part = self._seen_by(with_entries(self._slopes, slopes), gram)
                entries[self._where(part)] += share * part.data
        return with_entries(self._places, entries)

    def _dense_at(self, shares: Array, prior: Array, slopes: Array | None) -> Array:
        of_rows = self._of_rows
        if slopes is not None:
            of_all = with_entries(self._slopes, slopes)
            of_rows = [self._seen_by(of_all, gram) for gram in self._grams]
        total = np.zeros(self._prior.shape)
        for share, part in zip(shares, of_rows, strict=True):
            total += share * as_dense(part)
        total[_row_of(self._prior), self._prior.indices] += prior
        return total

    def _scaling(self, part: sparse.csr_array, slopes: Array | None) -> Array | float:
        """Return products of derivatives of each coordinate's only coefficient, if these vary."""
        if slopes is None:
            return 1.0
        by = np.zeros(len(self._is_seen))
        by[self._is_seen] = slopes
        found: Array = by[_row_of(part)] * by[part.indices]
        return found

    @staticmethod
    def _seen_by(slopes: sparse.csr_array, gram: Curvature) -> Curvature:
        found: Curvature = slopes @ gram @ slopes.T
        return found if isinstance(found, np.ndarray) else sparse.csr_array(found)

    def _where(self, part: sparse.csr_array) -> Array:
        """Return the positions of a matrix's entries among those of the sum."""
        found: Array = np.searchsorted(self._keys, _keys(part))
        return found


def _row_of(matrix: sparse.csr_array) -> Array:
    rows: Array = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows


def _keys(matrix: sparse.csr_array) -> Array:
    """Number the places of a matrix's entries, row by row."""
    found: Array = _row_of(matrix).astype(np.int64) * matrix.shape[1] + matrix.indices
    return found


def layout_of(matrix: Curvature) -> Layout:
    """Choose how matrices of a pattern are decomposed: by the fewest operations.

    Raises
    ------
    LinAlgError, ValueError
        If this one is not positive definite, or not finite.
    """
    if isinstance(matrix, np.ndarray):
        return EachByItself()
    by_order, cut = Ordering.unknown(matrix).factor(matrix), Arrowhead.of(matrix)
    if cut is not None and cut.n_operations < by_order.n_operations:
        return cut
    return by_order.layout
