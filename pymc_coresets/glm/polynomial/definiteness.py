"""Decide whether a form of even degree takes positive values."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from pymc_coresets.glm.polynomial.multi_indices import Level, monomials
from pymc_coresets.sampling.steps.metric import Factor
from pymc_coresets.solving.problem import Matrix, Vector

_ROUNDING = 1e-9
_MOST_STARTS = 60


def is_negative_semidefinite(matrix: Any) -> bool:  # noqa: ANN401
    """Whether a symmetric matrix, dense or sparse, has no positive eigenvalue beyond rounding.

    Examples
    --------
    >>> is_negative_semidefinite(np.array([[-1.0, 1.0], [1.0, -1.0]]))
    True
    """
    diagonal = matrix.diagonal()
    if (diagonal > _ROUNDING * np.abs(diagonal).max(initial=0.0)).any():
        return False
    # Scaled to a unit diagonal, so that the units of the columns do not matter.
    scale = sparse.diags_array(1 / np.sqrt(np.where(diagonal < 0, -diagonal, 1.0)))
    shift = _ROUNDING * len(diagonal) * sparse.eye_array(len(diagonal))
    try:
        Factor(shift - scale @ matrix @ scale)
    except LinAlgError:
        return False
    return True


def can_be_positive(moment: Any, levels: tuple[Level, ...]) -> bool:  # noqa: ANN401
    """Whether ``phi(theta)^T M phi(theta)`` is positive for some theta.

    Parameters
    ----------
    moment : ndarray or csr_array, of shape (n_monomials, n_monomials)
        M, symmetric.
    levels : tuple of Level
        The monomials up to half of the degree of the form; phi are those of the last level, times
        their multiplicities.

    Returns
    -------
    bool
        Exact for one level, that is for a quadratic form.  For more levels it is False where M is
        negative semidefinite; elsewhere the form is maximised on the unit sphere from many starts.

    Examples
    --------
    x^4 - 6 x^2 y^2 + y^4 is positive on the axes:

    >>> from pymc_coresets.glm.polynomial.multi_indices import monomial_levels
    >>> can_be_positive(np.diag([1.0, -1.5, 1.0]), monomial_levels(2, 2))
    True
    """
    if is_negative_semidefinite(moment):
        return False
    if len(levels) == 1:
        return True
    size = float(np.abs(moment).max())

    def negative(theta: Vector) -> tuple[float, Vector]:
        value, gradient = _form(moment / size, levels, theta)
        return -value, -gradient

    starts = _starts(moment, levels)
    values = np.array([negative(start)[0] for start in starts])
    for i in np.argsort(values)[:_MOST_STARTS]:
        found = values[i] if values[i] < -_ROUNDING else minimize(negative, starts[i], jac=True).fun
        if found < -_ROUNDING:
            return True
    return False


def _form(moment: Matrix, levels: tuple[Level, ...], theta: Vector) -> tuple[float, Vector]:
    """Return the form at theta / |theta|, and its gradient with respect to theta."""
    length = np.linalg.norm(theta)
    unit = theta / length
    values = monomials(unit, levels)
    jacobian = np.eye(len(unit))
    for below, level in zip(values, levels[1:], strict=False):
        jacobian = jacobian[level.parent] * unit[level.variable, None]
        jacobian[np.arange(len(level.parent)), level.variable] += below[level.parent]
    top = levels[-1].multiplicity
    product = moment @ (top * values[-1])
    value = float((top * values[-1]) @ product)
    gradient = 2 * (jacobian.T @ (top * product))
    return value, (gradient - (gradient @ unit) * unit) / length


def _starts(moment: Matrix, levels: tuple[Level, ...]) -> list[Vector]:
    """Return the axes, their sums and differences, and directions of leading eigenvectors."""
    n = int(levels[0].variable.max()) + 1
    axes = np.eye(n)
    starts = list(axes)
    for i in range(n):
        starts += [axes[i] + axes[j] for j in range(i)] + [axes[i] - axes[j] for j in range(i)]
    pure = [
        int(np.flatnonzero(levels[-1].multiplicity == 1.0)[i]) for i in range(n)
    ]  # x_i^a, the only monomials that occur once
    vectors = np.linalg.eigh(moment)[1][:, -n:]
    starts += [v for v in vectors[pure].T if np.any(v)]
    return starts
