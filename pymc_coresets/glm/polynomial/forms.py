"""Monomials of a vector, and forms in them: what polynomials of degrees above 2 are made of."""

from collections import Counter
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pymc_coresets.glm.concavity import is_concave
from pymc_coresets.solving.problem import Matrix, Vector

_ROUNDING = 1e-9
_MOST_STARTS = 60


class Level(NamedTuple):
    """The monomials of one degree a: ``x[variable] * (monomial parent of degree a - 1)``.

    Attributes
    ----------
    parent, variable : ndarray of int, of shape (n_monomials,)
    multiplicity : ndarray of shape (n_monomials,)
        The multinomial coefficients: how often each monomial occurs in (x_1 + ... + x_p)^a.
    """

    parent: NDArray[np.int64]
    variable: NDArray[np.int64]
    multiplicity: Vector


def n_monomials(n_variables: int, degree: int) -> int:
    """Return the number of monomials of exactly this degree.

    Examples
    --------
    >>> n_monomials(3, 2)
    6
    """
    return comb(n_variables + degree - 1, degree)


def monomial_levels(n_variables: int, degree: int) -> tuple[Level, ...]:
    """Return the monomials of degree 1, 2, ..., `degree`, in lexicographic order.

    Examples
    --------
    x^2, x y, y^2 in (x + y)^2:

    >>> monomial_levels(2, 2)[1].multiplicity
    array([1., 2., 1.])
    """
    levels = []
    below: dict[tuple[int, ...], int] = {(): 0}
    for a in range(1, degree + 1):
        tuples = list(combinations_with_replacement(range(n_variables), a))
        counts = [prod(factorial(c) for c in Counter(t).values()) for t in tuples]
        levels.append(
            Level(
                parent=np.array([below[t[:-1]] for t in tuples]),
                variable=np.array([t[-1] for t in tuples]),
                multiplicity=factorial(a) / np.array(counts, dtype=float),
            )
        )
        below = {t: i for i, t in enumerate(tuples)}
    return tuple(levels)


def monomials(x: Any, levels: tuple[Level, ...]) -> list[Any]:  # noqa: ANN401
    """Return the values of the monomials of degree 1, 2, ... along the last axis of `x`.

    Parameters
    ----------
    x : ndarray or tensor variable, of shape (..., n_variables)
    levels : tuple of Level

    Returns
    -------
    list
        The values for each level, of shape (..., n_monomials); the first is `x` itself.

    Examples
    --------
    >>> monomials(np.array([2.0, 3.0]), monomial_levels(2, 2))[1]
    array([4., 6., 9.])
    """
    values = [x]
    for level in levels[1:]:
        values.append(values[-1][..., level.parent] * x[..., level.variable])
    return values


def weighted_monomials(theta: Any, levels: tuple[Level, ...]) -> list[Any]:  # noqa: ANN401
    """Return the vectors for which ``(x . theta)^a = phi_a(x) . vector_a``, for each degree a."""
    return [
        level.multiplicity * values
        for level, values in zip(levels, monomials(theta, levels), strict=False)
    ]


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

    >>> can_be_positive(np.diag([1.0, -1.5, 1.0]), monomial_levels(2, 2))
    True
    """
    if is_concave(moment):
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
