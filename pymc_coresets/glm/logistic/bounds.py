"""Bounds on the sensitivities of logistic regressions, and the size that a guarantee asks for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.glm.logistic.clustering import squared_distances
from pymc_coresets.glm.logistic.signed_rows import Clustering, LogisticRows, assign_clusters
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = [
    "Ball",
    "Sensitivities",
    "SensitivityBound",
    "bound_sensitivities",
    "guaranteed_size",
    "quantiles_of",
    "require_center",
]

_RADIUS = 3.0  # a of R = a / sqrt(I)
_CONSTANT = 2.0  # c of Theorem 3.2
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class Ball(Protocol):
    """The coefficients that bounds hold for, and whether they must be bounds."""

    @property
    def radius(self) -> float | None:
        """Radius in the unit of the coefficients; None for one that suits the rows."""

    @property
    def center(self) -> Sequence[float] | None:
        """Centre, one number for each coefficient; None for 0."""

    @property
    def uses_exact_centers(self) -> bool:
        """Whether rows are compared with the means of their clusters without themselves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivities:
    """Bounds on the sensitivities of all rows, and the ball of coefficients that they hold for.

    Parameters
    ----------
    values : ndarray of shape (n_obs,)
        m_n: how many times its share of the log-likelihood a row can have, somewhere in the ball.
        0 for rows of base weight 0.
    mean : float
        Their mean, weighted by the base weights; at least 1 if they are bounds.
    quantiles : dict of str to float
        Their distribution, weighted likewise, from ``"0%"`` to ``"100%"``.
    radius : float
        Radius of the ball.
    center : ndarray of shape (n_dims,)
        Its centre.

    Examples
    --------
    >>> from pymc_coresets.glm.logistic.sensitivity import Sensitivity
    >>> rows = LogisticRows(design=np.ones((10, 1)), labels=np.ones(10))
    >>> method, base_weights = Sensitivity(radius=1.0, exact_centers=True), np.ones(10)
    >>> bound_sensitivities(rows, np.array([[1.0, 0.0]]), method, base_weights=base_weights).mean
    1.0
    """

    values: Vector
    mean: float
    quantiles: dict[str, float]
    radius: float
    center: Vector


# -- the bounds ------------------------------------------------------------------------------------


def bound_sensitivities(
    rows: LogisticRows, centers: Matrix, ball: Ball, *, base_weights: ArrayLike
) -> Sensitivities:
    """Bound every row's share of the log-likelihood over a ball of coefficients.

    Two passes over the rows, in blocks: O(n_obs k n_dims) time; memory for a block and a few
    numbers per row.

    Parameters
    ----------
    rows : LogisticRows
    centers : ndarray of shape (k, n_dims + 1)
        From `find_centers`, or any others: rows belong to the nearest.
    ball : Ball
        Its radius and centre, and which kind of cluster centres is wanted; for instance a
        `Sensitivity`.
    base_weights : array_like of shape (n_obs,)
        How many rows each row stands for; not negative and not all 0.

    Returns
    -------
    Sensitivities

    Raises
    ------
    InvalidOptionError
        If ``ball.center`` has another length than the coefficients, or no radius is given and
        every row coincides with a centre.
    InvalidDataError
        If the design holds NaN or infinite values.

    Notes
    -----
    ``m_n = U / (u_n + sum_i g_i exp(-R |c_i - z_n| - |(c_i - z_n).theta* + b_i - o_n|))`` with the
    sum U of the base weights u, the masses g_i of the clusters without row n, their means c_i
    (z_n) and b_i (y_n o_n), and the ball's centre theta* and radius R (Huggins, Campbell and
    Broderick 2016, Lemma B.5, with unit base weights and no offset).  The lemma's proof carries
    over: u_n rows like row n have the ratio 1, and an offset, being a column with coefficient 1,
    counts with the ball's centre but not in the radius.  Offsets that vary within
    clusters make m_n large.

    The mean of row n's own cluster without row n is ``(g c - u_n z_n) / (g - u_n)``: further from
    z_n by the factor ``g / (g - u_n)``.  So the exact centres cost no more than the others.

    Examples
    --------
    >>> from pymc_coresets.glm.logistic.sensitivity import Sensitivity
    >>> design = np.array([[1.0], [1.0], [1.0], [5.0]])
    >>> rows = LogisticRows(design=design, labels=np.ones(4))
    >>> method = Sensitivity(radius=1.0, exact_centers=True)
    >>> centers = np.array([[1.0, 0.0], [5.0, 0.0]])
    >>> bound_sensitivities(rows, centers, method, base_weights=np.ones(4)).values
    array([1.326, 1.326, 1.326, 3.792])
    """
    weights = np.asarray(base_weights, dtype=np.float64)
    require_center(ball, rows.n_dims, rows.names)
    clustering = assign_clusters(rows, centers, weights)
    bound = SensitivityBound.of(clustering, centers, ball)
    values = np.empty(rows.n_obs)
    for block in rows.blocks():
        vectors, offset = rows.take(block)
        values[block] = bound.shares(vectors, offset, clustering.nearest[block], weights[block])
    total = weights.sum()
    values *= total
    return Sensitivities(
        values=values,
        mean=float(weights @ values / total),
        quantiles=quantiles_of(values, weights),
        radius=bound.radius,
        center=bound.center,
    )


def require_center(ball: Ball, n_dims: int, names: Sequence[str]) -> None:
    """Refuse a centre of another length than the coefficients."""
    if ball.center is not None and len(ball.center) != n_dims:
        listed = f": {list(names)!r}" if names else ""
        raise InvalidOptionError(
            f"center has {len(ball.center)} numbers, but there are {n_dims} coefficients{listed}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityBound:
    """What the bound of any row needs to know of all rows, see `bound_sensitivities`.

    Parameters
    ----------
    points : ndarray of shape (k, n_dims + 1)
        Centres or means of the clusters.
    masses : ndarray of shape (k,)
    radius : float
    center : ndarray of shape (n_dims,)
        Of the ball.
    exact : bool
        Whether a row is compared with the mean of its own cluster without itself.
    """

    points: Matrix
    masses: Vector
    radius: float
    center: Vector
    exact: bool

    @classmethod
    def of(cls, clustering: Clustering, centers: Matrix, ball: Ball) -> "SensitivityBound":
        """Take what is needed from the clusters of all rows."""
        n_dims = centers.shape[1] - 1
        return cls(
            points=clustering.means if ball.uses_exact_centers else centers,
            masses=clustering.masses,
            radius=_radius(clustering.spread) if ball.radius is None else float(ball.radius),
            center=np.zeros(n_dims) if ball.center is None else np.asarray(ball.center),
            exact=ball.uses_exact_centers,
        )

    def shares(
        self,
        vectors: Any,  # noqa: ANN401
        offset: Vector,
        nearest: NDArray[np.integer[Any]],
        weights: Vector,
    ) -> Vector:
        """Return m_n / U for a block of rows."""
        points, ball_center = self.points, self.center
        distances = np.sqrt(squared_distances(vectors, points[:, :-1]))
        shifts = points @ np.append(ball_center, 1.0) - (vectors @ ball_center + offset)[:, None]
        exponents = self.radius * distances + np.abs(shifts)
        return _bound(exponents, nearest, self.masses, weights, exact=self.exact)


def _bound(
    exponents: Matrix,
    nearest: NDArray[np.integer[Any]],
    masses: Vector,
    weights: Vector,
    *,
    exact: bool,
) -> Vector:
    """Return m_n / U for a block of rows."""
    each = np.arange(len(nearest))
    own = masses[nearest]
    others = np.maximum(own - weights, 0)  # of the row's own cluster; 0 but for rounding if alone
    if exact:
        scale = np.divide(own, others, out=np.full_like(own, np.inf), where=others > 0)
        apart = exponents[each, nearest]
        exponents[each, nearest] = np.multiply(apart, scale, out=apart, where=apart > 0)
    decays = np.exp(-exponents)
    similar = decays @ masses + decays[each, nearest] * (others - own)
    bounds: Vector = np.divide(
        1.0, weights + similar, out=np.zeros_like(weights), where=weights > 0
    )
    return bounds


def _radius(spread: float) -> float:
    if not spread > 0:
        raise InvalidOptionError(
            "Every row coincides with the centre of a cluster, so that the rule 3 / sqrt(mean "
            "squared distance) gives no radius: give radius=..., or fewer n_clusters."
        )
    return _RADIUS / math.sqrt(spread)


def quantiles_of(values: Vector, weights: Vector) -> dict[str, float]:
    """Return quantiles of sensitivities, weighted by base weights, some of which may be 0.

    Examples
    --------
    >>> quantiles_of(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 0.0]))["100%"]
    2.0
    """
    present = weights > 0
    found = np.quantile(
        values[present], _QUANTILES, weights=weights[present], method="inverted_cdf"
    )
    return {f"{100 * q:g}%": float(value) for q, value in zip(_QUANTILES, found, strict=True)}


# -- size -------------------------------------------------------------------------------


def guaranteed_size(mean: float, n_dims: int, *, epsilon: float, delta: float) -> int:
    """Return how many draws bound the relative error by epsilon everywhere in the ball.

    Parameters
    ----------
    mean : float
        Mean of the sensitivities' bounds, at least 1.
    n_dims : int
        Number of coefficients, that of the intercept included and an offset not.
    epsilon : float
        Relative error of the log-likelihood.
    delta : float
        Probability of failure.

    Returns
    -------
    int
        The number of draws M; there are fewer rows where some are drawn repeatedly.

    Notes
    -----
    ``M = ceil(c mean / epsilon^2 ((n_dims + 1) log(mean) + log(1 / delta)))`` (Huggins, Campbell
    and Broderick 2016, Theorem 3.2) with c = 2.  The theorem says that some c holds for all data,
    and neither [1]_ nor the work that it rests on gives its value.  At any one point of the ball
    Bernstein's inequality asks for
    ``(2 / epsilon^2) (mean - 1) (1 + epsilon / 3) log(2 / delta)`` draws; c = 2 is the constant of
    that, and the term in n_dims accounts for all points at once.  An offset adds no
    dimension: the rows shatter no more sets with it than without.

    References
    ----------
    .. [1] Huggins, J. H., Campbell, T. and Broderick, T. (2016). Coresets for Scalable Bayesian
       Logistic Regression. https://doi.org/10.48550/arXiv.1605.06423

    Examples
    --------
    >>> guaranteed_size(5.0, 3, epsilon=0.2, delta=0.05)
    2359
    """
    return math.ceil(
        _CONSTANT * mean / epsilon**2 * ((n_dims + 1) * math.log(mean) + math.log(1 / delta))
    )
