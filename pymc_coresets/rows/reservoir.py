"""Which rows of a stream to keep, of which nobody knows how many will come."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.keyed import numbers_of
from pymc_coresets.rows.values import Rows

__all__ = ["Priorities"]


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """A weighted random sample of the rows so far: those with the smallest ``U_n / q_n``.

    ``q_n = (u_n |V_n| / s + 1) / 2`` weighs half by the length of the tangent vector and half
    uniformly, as `Wanted` does, but depends on nothing that lies ahead: neither on the number of
    rows nor on the sum of their lengths.  ``U_n`` depends on the key and the row's position alone,
    so that the rows kept do not depend on how the stream is cut into chunks.

    Parameters
    ----------
    n_candidates : int
        How many rows to keep.
    scale : float
        s, about the mean of ``u_n |V_n|``; 0 for uniform samples.
    key : int
        Of the random numbers.
    limit : float, default infinity
        The largest key that can still be kept, which spares the rows beyond it.

    References
    ----------
    Duffield, Lund, Thorup (2007). Priority sampling for estimation of arbitrary subset sums.
    Journal of the ACM 54(6). https://doi.org/10.1145/1314690.1314696

    Examples
    --------
    >>> rule = Priorities(n_candidates=2, scale=1.0, key=1)
    >>> keys = rule.keys(Rows(np.arange(3), np.ones(3)), np.array([0.0, 1.0, 3.0]))
    >>> bool(np.isinf(keys[0])), bool(np.isfinite(keys[1:]).all())
    (True, True)
    """

    n_candidates: int
    scale: float
    key: int
    limit: float = math.inf

    def keys(self, rows: Rows, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``U_n / q_n`` for each row; infinite for rows that do not vary."""
        scores = rows.base_weights * norms
        shares = scores / self.scale if self.scale > 0 else np.zeros_like(scores)
        keys = numbers_of(rows.positions, self.key) / (0.5 * shares + 0.5)
        return np.where((scores > 0) & (keys <= self.limit), keys, np.inf)
