"""Rows that are normal in a linear predictor, given the scales: their sufficient statistics."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy import sparse

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.affine import Matrix
from pymc_coresets.glm.predictor.parabolas import Parabolas
from pymc_coresets.glm.predictor.predictors import RowsInMemory, weighted_gram
from pymc_coresets.numerics import differing
from pymc_coresets.reading.quadratic import Curvature

type Array = np.ndarray

#: Largest number of kinds of rows whose widths depend on the scales in different ways.
_MOST_KINDS = 64
#: Relative difference of widths, as functions of the scales, that are the same.
_SAME = 1e-6
#: Share of non-zero entries from which a matrix of pairs is dense.
_DENSE_FROM = 0.1
_BLOCK_ROWS = 2**15


@dataclass(frozen=True, eq=False, kw_only=True)
class NormalRows:
    """The log-likelihood of rows that are normal in one linear predictor, given the scales.

    Row n of kind k has ``a_k(s) + b_n - r_k(s) v_n (eta_n - e_n)^2 / 2`` at scales s, with
    ``eta_n = X_n c``.  So the sum over the rows of a kind needs ``X'vX``, ``X've``, ``e've`` and
    their number, which are computed in one pass; a and r are evaluated at one row of each kind.
    Examples are outcomes that are normal, or whose logarithm is, with one standard deviation, known
    multiples of it, or one for each of a few groups.

    Attributes
    ----------
    names : tuple of str
        Labels of the coefficients.
    which : int
        Which of the rows' numbers is that predictor.
    center : ndarray of shape (p,)
        Coefficients about which the sums are computed.
    grams : tuple of ndarray or csr_array, of shape (p, p)
        ``X'vX`` for each kind.
    pulls, squares : ndarray of shape (n_kinds, p), and (n_kinds,)
        ``X'v(e - X center)`` and ``(e - X center)'v(e - X center)``.
    counts : ndarray of shape (n_kinds,)
        Rows of each kind, by their case weights.
    first : RowsInMemory
        A row of each kind.
    own : Parabolas
        Of these, at the scales where a is 0 and r is 1.
    rows : RowsInMemory
        All of them.
    parabolas : Parabolas
        Of all, at the same scales.
    kinds : ndarray of int, of shape (n_rows,)
        Which kind each is of.
    """

    names: tuple[str, ...]
    which: int
    center: Array
    grams: tuple[Curvature, ...]
    pulls: Array
    squares: Array
    counts: Array
    first: RowsInMemory
    own: Parabolas
    rows: RowsInMemory = field(repr=False)
    parabolas: Parabolas = field(repr=False)
    kinds: Array = field(repr=False)

    @classmethod
    def of(cls, rows: RowsInMemory, coefficients: Array, is_moving: Array) -> "NormalRows":
        """Compute the sums of all rows.

        Parameters
        ----------
        rows : RowsInMemory
            All rows.
        coefficients : ndarray of shape (n_points, p)
            At several scales.  At the first point, a is 0 and r is 1.  At the last, each row is
            compared with its log-density; the others tell of which kind it is.
        is_moving : ndarray of bool, of shape (p,)
            Which coefficients depend on the normal coordinates.

        Raises
        ------
        UnsupportedModelError
            If rows are not normal in one predictor.
        """
        which = _the_only_one(rows, is_moving)
        every, kinds = _parabolas_of(rows, coefficients[:-1], which)
        _, first = np.unique(kinds, return_index=True)
        found = cls(
            names=rows.found.names,
            which=which,
            center=coefficients[0],
            grams=(),
            pulls=np.empty(0),
            squares=np.empty(0),
            counts=np.bincount(kinds, rows.case_weights),
            first=rows.take(first),
            own=Parabolas(
                peaks=every.peaks[first],
                heights=every.heights[first],
                precisions=every.precisions[first],
            ),
            rows=rows,
            parabolas=every,
            kinds=kinds,
        )
        if not found.is_confirmed(coefficients[-1]):
            raise _not_normal("their log-densities differ from those of their kind")
        return found.about(coefficients[0])

    def about(self, center: Array) -> "NormalRows":
        """Return the same with sums about other coefficients, nearer to their posterior."""
        predictor = self.rows.predictors[self.which - self.rows.found.n_shared]
        every, p = self.parabolas, len(self.names)
        left = every.peaks - predictor.offset - predictor.at(center[None])[0]
        weights = self.rows.case_weights * every.precisions
        grams, pulls, squares = list(self.grams), [], []
        for kind in range(len(self.counts)):
            own = np.where(self.kinds == kind, weights, 0.0)
            pull = np.zeros(p)
            pull[predictor.columns] = predictor.design.T @ (own * left)
            pulls.append(pull)
            squares.append(float(own @ np.square(left)))
            if len(self.grams) < len(self.counts):
                grams.append(_placed(weighted_gram(predictor.design, own), predictor.columns, p))
        return replace(
            self,
            center=center,
            grams=tuple(grams),
            pulls=np.stack(pulls),
            squares=np.array(squares),
        )

    def is_confirmed(self, coefficients: Array) -> bool:
        """Whether rows have the log-densities (p,) that follow from those of their kind."""
        every = self.parabolas
        shares, heights = (v[0][self.kinds] for v in self._given(coefficients[None]))
        for some, place in _blocks(self.rows):
            seen = some.numbers(coefficients[None])
            expected = some.density(seen, compiled=False)[0]
            away = np.square(seen[self.which, 0] - every.peaks[place]) / 2
            found = every.heights[place] + heights[place]
            found = found - shares[place] * every.precisions[place] * away
            if len(differing(found[None], expected[None])):
                return False
        return True

    def shares_at(self, coefficients: Array) -> Array:
        """Return r at coefficients (n_points, p), as (n_points, n_kinds)."""
        return self._given(coefficients)[0]

    def at(self, coefficients: Array) -> Array:
        """Evaluate at coefficients (n_points, p); the result is (n_points,), in nats."""
        shares, heights = self._given(coefficients)
        away = coefficients - self.center
        total: Array = heights @ self.counts
        for k, gram in enumerate(self.grams):
            curved = np.einsum("ps,sp->s", gram @ away.T, away)
            total += shares[:, k] * (away @ self.pulls[k] - (self.squares[k] + curved) / 2)
        return total

    def slopes_at(self, coefficients: Array) -> Array:
        """Return the derivatives by the coefficients of the predictor, (n_points, p)."""
        shares, away = self.shares_at(coefficients), coefficients - self.center
        total = np.zeros(away.shape)
        for k, gram in enumerate(self.grams):
            total += shares[:, [k]] * (self.pulls[k] - (gram @ away.T).T)
        return total

    def _given(self, coefficients: Array) -> tuple[Array, Array]:
        """Return r and a at coefficients (n_points, p), as (n_points, n_kinds) each."""
        own, seen = self.own, self.first.numbers(coefficients)
        n_points = seen.shape[1]
        seen = np.concatenate([seen, seen], axis=1)
        seen[self.which, :n_points] = own.peaks
        seen[self.which, n_points:] = own.peaks + 1 / np.sqrt(own.precisions)
        above, below = np.split(self.first.density(seen, compiled=False), 2)
        return 2 * (above - below), above - own.heights


def _parabolas_of(rows: RowsInMemory, coefficients: Array, which: int) -> tuple[Parabolas, Array]:
    """Return the parabolas of rows at the first scales, and the kind of each row.

    Raises if rows have no maximum, or are of too many kinds.
    """
    parts, widths = [], []
    for some, _ in _blocks(rows):
        seen = some.numbers(coefficients)
        density = partial(some.density, compiled=False)
        at_points = [Parabolas.of(density, seen[:, s], which) for s in range(len(coefficients))]
        if not all(each.are_proper for each in at_points):
            raise _not_normal("some have no maximum")
        parts.append(at_points[0])
        widths.append(np.stack([np.log(each.precisions) for each in at_points]))
    own = Parabolas(
        peaks=np.concatenate([part.peaks for part in parts]),
        heights=np.concatenate([part.heights for part in parts]),
        precisions=np.concatenate([part.precisions for part in parts]),
    )
    each = np.concatenate(widths, axis=1)
    return own, _kinds(each[1:] - each[0])


def _blocks(rows: RowsInMemory) -> Iterator[tuple[RowsInMemory, slice]]:
    """Yield some rows after the other, and where they are."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        place = slice(start, start + _BLOCK_ROWS)
        yield rows.take(place), place


def _not_normal(why: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"Rows are not normal given the scales: {why}.", topic="regressions"
    )


def _the_only_one(rows: RowsInMemory, is_moving: Array) -> int:
    """Return which of the rows' numbers depends on such coefficients, if only a predictor does."""
    m = rows.found.n_shared
    moving = [m + i for i, p in enumerate(rows.predictors) if is_moving[p.columns].any()]
    if is_moving[:m].any() or len(moving) != 1:
        raise _not_normal("several of their numbers depend on normal variables")
    return moving[0]


def _kinds(values: Array) -> Array:
    """Number the distinct columns, up to rounding; raise if there are many.

    Examples
    --------
    >>> _kinds(np.array([[1.0, 2.0, 1.0 + 1e-12]]))
    array([0, 1, 0])
    """
    kinds = np.zeros(values.shape[1], dtype=np.int64)
    for row in values:
        order = np.argsort(row, kind="stable")
        steps = np.cumsum(np.diff(row[order], prepend=row[order[0]]) > _SAME)
        own = np.empty_like(kinds)
        own[order] = steps
        kinds = np.unique(kinds * (1 + steps[-1]) + own, return_inverse=True)[1]
        if kinds.max() >= _MOST_KINDS:
            raise _not_normal("their widths depend on these in many ways")
    return kinds


def _placed(gram: Matrix, columns: Array, p: int) -> Curvature:
    """Put a matrix of some coefficients into that of all, sparse if it has few entries."""
    entries = sparse.coo_array(gram)
    at = columns[entries.coords[0]], columns[entries.coords[1]]
    placed = sparse.csr_array((entries.data, at), shape=(p, p))
    placed.sort_indices()
    return placed if placed.nnz <= _DENSE_FROM * p**2 else placed.toarray()
