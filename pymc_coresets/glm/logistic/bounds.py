"""Bounds on the sensitivities of logistic regressions, and the size that a guarantee asks for."""

import math
from dataclasses import dataclass

import numpy as np

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.glm.logistic.clustering import squared_distances
from pymc_coresets.glm.logistic.signed_rows import ClusterSums, SignedRows, nearest
from pymc_coresets.solving.problem import Matrix, Vector

_RADIUS = 3.0  # a of R = a / sqrt(I)
_CONSTANT = 2.0  # c of Theorem 3.2


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityBound:
    """Bounds any row's share of the log-likelihood over a ball of coefficients.

    Parameters
    ----------
    centers : ndarray of shape (k, n_dims + 1)
        Rows belong to the nearest.
    masses : ndarray of shape (k,)
        Sum of the base weights in each cluster.
    means : ndarray of shape (k, n_dims + 1), or None
        Means of the clusters, of which a row's own is then taken without itself; by default, rows
        are compared with the centers.
    radius : float
        Of the ball.
    center : ndarray of shape (n_dims,)
        Of the ball.

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
    >>> rows = SignedRows(np.array([[1.0], [1.0], [1.0], [5.0]]), np.zeros(4), np.ones(4))
    >>> sums = ClusterSums(np.array([[1.0, 0.0], [5.0, 0.0]]))
    >>> sums.add(rows)
    >>> bound = SensitivityBound.of(sums, radius=1.0, center=None, exact=True)
    >>> bound.values(rows)
    array([1.326, 1.326, 1.326, 3.792])
    """

    centers: Matrix
    masses: Vector
    means: Matrix | None
    radius: float
    center: Vector

    @classmethod
    def of(
        cls, sums: ClusterSums, *, radius: float | None, center: Vector | None, exact: bool
    ) -> "SensitivityBound":
        """Take what is needed from the clusters of all rows.

        Parameters
        ----------
        sums : ClusterSums
        radius : float, optional
            By default one that suits the rows.
        center : ndarray of shape (n_dims,), optional
            By default 0.
        exact : bool
            Whether rows are compared with the means of their clusters without themselves, so that
            the bounds are certain.

        Raises
        ------
        InvalidOptionError
            If no radius is given and every row coincides with a centre.
        """
        if radius is None:
            if not sums.spread > 0:
                raise InvalidOptionError(
                    "Every row coincides with the centre of a cluster, so that the rule 3 / "
                    "sqrt(mean squared distance) gives no radius: give radius=..., or fewer "
                    "n_clusters."
                )
            radius = _RADIUS / math.sqrt(sums.spread)
        return cls(
            centers=sums.centers,
            masses=sums.masses,
            means=sums.means if exact else None,
            radius=float(radius),
            center=np.zeros(sums.centers.shape[1] - 1) if center is None else np.asarray(center),
        )

    def values(self, rows: SignedRows) -> Vector:
        """Return m_n of each row; 0 for rows of base weight 0."""
        points = self.centers if self.means is None else self.means
        own, _ = nearest(rows, self.centers)
        distances = np.sqrt(squared_distances(rows.vectors, points[:, :-1]))
        of_rows = rows.vectors @ self.center + rows.offset
        shifts = points @ np.append(self.center, 1.0) - of_rows[:, None]
        exponents, weights = self.radius * distances + np.abs(shifts), rows.weights
        each, mass = np.arange(len(own)), self.masses[own]
        others = np.maximum(mass - weights, 0)  # of its own cluster; 0 but for rounding if alone
        if self.means is not None:
            scale = np.divide(mass, others, out=np.full_like(mass, np.inf), where=others > 0)
            apart = exponents[each, own]
            exponents[each, own] = np.multiply(apart, scale, out=apart, where=apart > 0)
        decays = np.exp(-exponents)
        similar = decays @ self.masses + decays[each, own] * (others - mass)
        shares = np.divide(1.0, weights + similar, out=np.zeros_like(weights), where=weights > 0)
        return np.asarray(self.masses.sum() * shares)


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
