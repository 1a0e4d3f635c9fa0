"""Sums of products of monomials by JAX, on its default device."""

from functools import partial
from typing import Any

import numpy as np

from pymc_coresets.compat.jax_api import in_double, jax, jnp, placed
from pymc_coresets.glm.polynomial.forms import monomial_levels, monomials, n_monomials
from pymc_coresets.potentials.backends.jax_evaluator import n_parts, padded
from pymc_coresets.solving.problem import Matrix

_CPU_ENTRIES = 2**22  # of monomials: a part's sums are as large as 1 000 rows of them


def moments_on_device(x: Matrix, coefficients: Matrix) -> list[np.ndarray]:
    """Sum the moments of degree 2, 3, ... over rows, see `PolynomialStatistics`.

    Only the rows themselves are sent; their monomials exist on the device, for some rows at once.

    Parameters
    ----------
    x : ndarray of shape (n_rows, p)
    coefficients : ndarray of shape (n_rows, degree + 1)

    Examples
    --------
    >>> moments_on_device(np.array([[1.0], [2.0]]), np.array([[0.0, 1.0, 3.0], [0.0, 2.0, 1.0]]))
    [array([[7.]])]
    """
    (n, p), degree = x.shape, coefficients.shape[1] - 1
    size = padded(n)
    rows, weights = np.asarray(x, dtype=float), coefficients[:, 2:]
    if size > n:
        rows, weights = (np.pad(a, [(0, size - n), (0, 0)]) for a in (rows, weights))
    parts = n_parts(size, n_monomials(p, -(-degree // 2)), _CPU_ENTRIES)
    with in_double():
        found = _summed(placed(rows), placed(weights), parts=parts)
        return [np.asarray(moment) for moment in found]


@partial(jax.jit, static_argnames="parts")
def _summed(x: Any, weights: Any, *, parts: int) -> Any:  # noqa: ANN401
    p, degree = x.shape[1], weights.shape[1] + 1
    halves = [(m // 2, m - m // 2) for m in range(2, degree + 1)]
    levels = monomial_levels(p, halves[-1][1])

    def add(totals: Any, part: Any) -> tuple[Any, None]:  # noqa: ANN401
        some, own = part
        values = [None, *monomials(some, levels)]
        return [
            total + (values[a] * own[:, i : i + 1]).T @ values[c]
            for i, (total, (a, c)) in enumerate(zip(totals, halves, strict=True))
        ], None

    start = [jnp.zeros((n_monomials(p, a), n_monomials(p, c))) for a, c in halves]
    divided = (a.reshape(parts, -1, a.shape[1]) for a in (x, weights))
    return jax.lax.scan(add, start, tuple(divided))[0]
