"""Concavity of quadratics, and weights of rows under which the remainder is concave."""

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.reading.quadratic import Curvature, Quadratic, as_dense
from pymc_coresets.sampling.factors.cholesky import factor_of

#: Share of the posterior's curvature that rows may have before the weights of single rows shrink.
_ALLOWED = 0.9
#: Largest such share if rows are not log-concave.
NOT_CONCAVE = 1.5


def is_definite(matrix: Curvature, least: float = 0.0) -> bool:
    """Whether the eigenvalues of a symmetric matrix, scaled to a unit diagonal, exceed a limit.

    The scaling makes the result independent of the units of its columns.

    Examples
    --------
    >>> matrix = np.array([[1.0, 1e3], [1e3, 4e6]])
    >>> is_definite(matrix), is_definite(matrix, 0.6), is_definite(-matrix)
    (True, False, False)
    """
    diagonal = matrix.diagonal()
    scale = sparse.diags_array(1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)))
    shifted = scale @ matrix @ scale - least * sparse.eye_array(len(diagonal))
    try:
        factor_of(shifted)
    except (LinAlgError, ValueError):  # not definite, or not finite
        return False
    return True


def is_concave(curvature: Curvature) -> bool:
    """Whether a symmetric matrix has no positive eigenvalue beyond rounding.

    Examples
    --------
    >>> is_concave(np.array([[-1.0, 1.0], [1.0, -1.0]]))
    True
    """
    diagonal, rounding = curvature.diagonal(), 1e-9  # the latter for each dimension
    if (diagonal > rounding * np.abs(diagonal).max(initial=0.0)).any():
        return False
    return is_definite(-curvature, -rounding * len(diagonal))


def precision_of(quadratic: Quadratic, coefficients: np.ndarray) -> Curvature:
    """Return the precision of all rows, plus as little of the posterior's as makes it definite.

    The prior's precision here need not hold in the tails: that of effects is flat if their scale
    is large.
    """
    precision = 1 / np.maximum(coefficients.var(axis=0), np.finfo(float).tiny)
    of_rows, share = -quadratic.curvature, 1e-6
    while True:
        total: Curvature = of_rows + share * sparse.diags_array(precision)
        total = total if isinstance(total, np.ndarray) else sparse.csr_array(total)
        if share >= 1.0 or is_definite(total):
            return total
        share *= 10


def concave(
    rows: RowsInMemory,
    weights: np.ndarray,
    curvatures: np.ndarray,
    posterior: Curvature,
    away: np.ndarray,
    *,
    drawn: np.ndarray,
) -> np.ndarray:
    """Change weights until the rows' curvature is within a limit in every direction.

    The limit is the posterior's curvature.  Beyond it, the quadratic of all rows minus theirs is
    convex in some direction, and the density may be unbounded, since the rows' own log-likelihood
    is often only linear in the tails.  The weight of a drawn row shrinks by the share of its
    curvature in directions with an excess, times the relative excess there, or grows if it is
    convex there.  Any remaining excess is removed by scaling the weights of all drawn rows but
    those that are convex there; failing that, those of all such rows.

    In mixtures, rows that are kept whole may have more curvature than all rows together, because
    others are convex.  Scaling these would increase the excess, and whole rows, which have most of
    the residual, would have to shrink.  The limit is then 1.5 times the posterior's curvature.

    Parameters
    ----------
    rows : RowsInMemory
    weights : ndarray of shape (n_rows,)
    curvatures : ndarray of shape (k, k, n_rows)
        Of each row, in the numbers that it depends on.
    posterior : ndarray or csr_array, of shape (p, p)
        Its precision.
    away : ndarray of shape (n_draws, p)
        Draws of the posterior, less their mean.
    drawn : ndarray of bool, of shape (n_rows,)
        Rows that were drawn, and may have another weight.

    Returns
    -------
    ndarray of shape (n_rows,)

    Notes
    -----
    Costs at most ten decompositions of a (p, p) matrix, or fifty if these are not enough: O(p^3)
    each for a dense matrix; for a sparse one, a hundred directions by Lanczos' method.
    """
    try:
        compare = _Shares(posterior)
        of_whole = -rows.gram(np.where(drawn, 0.0, weights) * curvatures)
        if _some_are_convex(curvatures) and compare.largest(of_whole) > 1.0:
            compare = _Shares(NOT_CONCAVE * posterior)
    except LinAlgError:  # no maximum, with the prior and all rows
        return np.zeros_like(weights)
    size = _size(rows, curvatures, away)
    for _ in range(8):
        too_much, largest = compare.excess(-rows.gram(weights * curvatures), rows, curvatures)
        if largest <= 1.0:
            break
        changed = weights * (1 - np.clip(too_much / size, -1.0, 1.0))
        weights = np.where(drawn, changed, weights)
    for step in range(30):
        of_rows = -rows.gram(weights * curvatures)
        largest = compare.largest(of_rows)
        if largest <= 1.0:
            return weights
        too_much, _ = compare.excess(of_rows, rows, curvatures)
        smaller = weights / max(largest, 1.02) if largest < np.inf else np.zeros_like(weights)
        # With weights of rows that are convex there, too, the excess might grow.
        weights = np.where((drawn | (step >= 15)) & (too_much >= 0), smaller, weights)
    return np.zeros_like(weights)


def _some_are_convex(curvatures: np.ndarray) -> bool:
    values = np.linalg.eigvalsh(np.moveaxis(curvatures, -1, 0))
    return bool(values.max(initial=0.0) > 1e-9 * np.abs(values).max(initial=0.0))


def _size(rows: RowsInMemory, curvatures: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Return the curvature of each row relative to the posterior, summed over directions."""
    diagonal = np.arange(len(curvatures))
    total = np.abs(curvatures[diagonal, diagonal]) * rows.seen(away).var(axis=1)
    found: np.ndarray = np.maximum(total.sum(axis=0), np.finfo(float).tiny)
    return found


class _Shares:
    """Curvatures of rows relative to those of the posterior."""

    relative = 1e-2  # error of Lanczos' method

    def __init__(self, posterior: Curvature) -> None:
        self.posterior, solve = posterior, factor_of(posterior).solve
        self.inverse = LinearOperator(posterior.shape, matvec=solve, dtype=float)

    def beyond(self, of_rows: Curvature) -> tuple[np.ndarray, np.ndarray]:
        """Return the curvatures above the limit, ascending, and their directions."""
        if isinstance(self.posterior, np.ndarray):
            rows, limits = as_dense(of_rows), (_ALLOWED, np.inf)
            share, directions = eigh(rows, self.posterior, subset_by_value=limits)
        else:
            share, directions = self._lanczos(of_rows, min(100, of_rows.shape[0] // 3))
        return share[share > _ALLOWED], directions[:, share > _ALLOWED]

    def excess(
        self, of_rows: Curvature, rows: RowsInMemory, curvatures: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return how much too much curvature each row has, (n_rows,), and the largest of all.

        Summed over the directions in which all rows together, `of_rows`, are beyond the limit.
        """
        share, directions = self.beyond(of_rows)
        if not len(share):
            return np.zeros(len(rows)), 0.0
        seen = rows.seen(directions.T)
        each = -np.einsum("abn,ajn,bjn->jn", curvatures, seen, seen)
        return (1 - _ALLOWED / share) @ each, float(share[-1])

    def largest(self, of_rows: Curvature) -> float:
        """Return the largest, but at least 1."""
        if isinstance(self.posterior, np.ndarray):
            return largest_share(as_dense(of_rows), self.posterior)
        if is_definite(self.posterior - of_rows):
            return 1.0
        share, _ = self._lanczos(of_rows, 1)
        return float(max(1.0, *share)) * (1 + self.relative)

    def _lanczos(self, of_rows: Curvature, n: int) -> tuple[np.ndarray, np.ndarray]:
        first = np.random.default_rng(0).standard_normal(of_rows.shape[0])
        try:
            share, directions = eigsh(
                of_rows,
                n,
                self.posterior,
                Minv=self.inverse,
                which="LA",
                v0=first,
                tol=self.relative,
                maxiter=10,
            )
        except ArpackNoConvergence as error:  # some of those beyond the limit are enough
            share, directions = error.eigenvalues, error.eigenvectors
        order = np.argsort(share)
        return share[order], directions[:, order]


def largest_share(of_rows: np.ndarray, of_posterior: np.ndarray) -> float:
    """Return the largest curvature of chosen rows relative to that of the posterior.

    If it is at most one, the quadratic of all rows minus the rows' part is concave with the prior,
    so the density is bounded.

    Parameters
    ----------
    of_rows, of_posterior : ndarray of shape (p, p)
        Negative Hessians.

    Examples
    --------
    >>> largest_share(np.diag([1.0, 6.0]), np.diag([2.0, 3.0]))
    2.0
    """
    n = len(of_rows)
    try:
        return float(eigh(of_rows, of_posterior, subset_by_index=(n - 1, n - 1))[0][0])
    except LinAlgError:
        return np.inf
