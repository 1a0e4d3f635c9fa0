"""Moment matrices of blocks of rows: sums of products of monomials, each with its coefficient."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dsyrk

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.glm.polynomial.multi_indices import monomials, n_monomials
from pymc_coresets.solving.problem import Matrix

__all__ = ["EQUAL", "add_amounts", "add_moments", "empty_moments", "finished_moment"]

#: Sums that differ by less are equal but for rounding.
EQUAL = 64 * np.finfo(float).eps
_DENSE = 1 / 8  # from this share of entries on, a dense matrix is faster


def empty_moments(design: Any, degree: int) -> list[Any]:  # noqa: ANN401
    """Return zeros for the moments of degree 0 ... `degree`; sparse where the design is.

    Examples
    --------
    >>> [m.shape for m in empty_moments(np.ones((5, 3)), 2)]
    [(1, 1), (1, 3), (3, 3)]
    """
    n = design.shape[1]
    if sparse.issparse(design) and degree <= 2:
        return [np.zeros((1, 1)), np.zeros((1, n)), sparse.csr_array((n, n))][: degree + 1]
    sizes = [n_monomials(n, a) for a in range(-(-degree // 2) + 1)]
    shapes = [(sizes[m // 2], sizes[m - m // 2]) for m in range(degree + 1)]
    return [np.zeros(shape, order="F") for shape in shapes]


def add_amounts(amounts: Matrix, coefficients: Matrix) -> None:
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


def add_moments(moments: list[Any], x: Any, coefficients: Matrix, levels: tuple[Any, ...]) -> None:  # noqa: ANN401
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
    if high - low <= EQUAL * max(-low, high):
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


def finished_moment(moment: Any, m: int) -> Any:  # noqa: ANN401
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
