"""Monomials of a vector, degree by degree, each computed from one of the degree below."""

from collections import Counter
from itertools import combinations_with_replacement
from math import comb, factorial, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.solving.problem import Vector


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
    >>> import numpy as np
    >>> monomials(np.array([2.0, 3.0]), monomial_levels(2, 2))[1]
    array([4., 6., 9.])
    """
    values = [x]
    for level in levels[1:]:
        values.append(values[-1][..., level.parent] * x[..., level.variable])
    return values
