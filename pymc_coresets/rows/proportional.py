"""Rows drawn in proportion to a score: by priorities, or by points that fall into their shares."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.rows.keyed import numbers_of
from pymc_coresets.rows.values import Rows


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """A weighted random sample of the rows: those with the smallest keys ``U_n / q_n``.

    ``q_n = (u_n |V_n| / s + 1) / 2`` weighs half by the length of the tangent vector and half
    uniformly.  ``U_n`` depends on the key and the row's position alone, so that the same rows are
    kept however the data are divided into chunks.  Neither the number of rows nor the sum of their
    lengths needs to be known.

    Parameters
    ----------
    n_candidates : int
        Largest number of rows; 0 for none.
    scale : float
        s, about the mean of ``u_n |V_n|``; 0 for uniform samples.
    key : int
        Of the random numbers.
    rate : float, default 1
        Multiplies q; infinite if all rows that vary are kept.
    certain : float, default infinity
        Largest product of both.
    limit : float, default infinity
        The largest key that can still be kept; rows beyond it are skipped.
    keeps_potentials : bool, default False
        Whether a pass keeps the log-likelihoods of these rows, which would be evaluated again.

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

    n_candidates: int = 0
    scale: float = 0.0
    key: int = 0
    rate: float = 1.0
    certain: float = math.inf
    limit: float = math.inf
    keeps_potentials: bool = False

    @classmethod
    def of_all(
        cls, n_candidates: int = 0, *, n_rows: int, scale: float = 0.0, key: int = 0
    ) -> Self:
        """Return the rule for about as many of a known number of rows.

        Row n is kept if ``U_n`` is at most ``p_n = min(1, K q_n / N)``: half of the expected K
        candidates come in proportion to the length of their tangent vectors, and half uniformly. If
        more than K are kept, those with the smallest ``U_n / p_n`` remain. If K is at least N, all
        rows that vary are kept.

        Parameters
        ----------
        n_candidates : int
            K; 0 for none.
        n_rows : int
            N.
        scale : float
            T, an estimate of the sum of ``u_n |V_n|`` over all rows.
        key : int
            Of the random numbers.

        Examples
        --------
        >>> rows, norms = Rows(np.arange(3), np.ones(3)), np.array([0.0, 1.0, 2.0])
        >>> Priorities.of_all(3, n_rows=3).keys(rows, norms)
        array([inf,  0.,  0.])
        """
        if n_candidates >= n_rows:
            return cls(n_candidates=n_candidates, key=key, rate=math.inf)
        rate, scale = n_candidates / n_rows, scale / n_rows
        return cls(
            n_candidates=n_candidates, scale=scale, key=key, rate=rate, certain=1.0, limit=1.0
        )

    def keys(self, rows: Rows, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a key for each row, by the length of its tangent vector.

        Infinite for rows that do not vary, and for those that are not kept.
        """
        if not self.n_candidates:
            return np.full(len(rows), np.inf)
        scores = rows.case_weights * norms
        shares = scores / self.scale if self.scale > 0 else np.zeros_like(scores)
        chances = np.minimum(self.rate * (0.5 * shares + 0.5), self.certain)
        keys = numbers_of(rows.positions, self.key) / chances
        return np.where((scores > 0) & (keys <= self.limit), keys, np.inf)


def random_points(size: int, total: float, key: int) -> NDArray[np.float64]:
    """Return sorted random points below the total mass of all rows.

    Examples
    --------
    >>> bool((random_points(5, 2.0, key=1) < 2.0).all())
    True
    """
    points = np.sort(np.random.default_rng(key).random(size) * total)
    # Rounding may move a point to the total, beyond the last row.
    return np.minimum(points, np.nextafter(total, 0.0))


def points_of_parts(
    points: NDArray[np.float64], heights: NDArray[np.float64]
) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """Yield the mass before each part of the rows, and the points that fall into it.

    Parameters
    ----------
    points : ndarray
        From `random_points`.
    heights : ndarray of shape (n_parts + 1,)
        Sums of the masses before each part, and of all.

    Examples
    --------
    >>> list(points_of_parts(np.array([0.5, 2.5]), np.array([0.0, 1.0, 3.0])))
    [(0.0, array([0.5])), (1.0, array([2.5]))]
    """
    inside = np.split(points, np.searchsorted(points, heights[1:-1]))
    return zip(heights[:-1].tolist(), inside, strict=True)


def hit_by(
    masses: NDArray[np.float64], points: NDArray[np.float64], *, before: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows into whose shares of the total mass points fall, with their numbers.

    Parameters
    ----------
    masses : ndarray of shape (n,)
        Not all 0.
    points : ndarray
    before : float
        Sum of the masses before these. Masses are added one by one, so the result does not depend
        on the parts.

    Examples
    --------
    >>> hit_by(np.array([1.0, 2.0]), np.array([0.5, 2.5, 2.9]))
    (array([0, 1]), array([1, 2]))
    """
    heights = np.cumsum(np.append(before, masses))[1:]
    which = np.searchsorted(heights, points, side="right")
    return np.unique(np.minimum(which, np.flatnonzero(masses)[-1]), return_counts=True)
