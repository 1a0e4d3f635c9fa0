"""The signed rows of logistic regressions, their clusters, and bounds on their sensitivities."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.solving.problem import Matrix, Vector

_NOT_FINITE = "The design matrix of the logistic regression holds NaN or infinite values."

#: Rows of numbers: an ndarray, or a `scipy.sparse.csr_array`.
type Numbers = Any


@dataclass(frozen=True, eq=False)
class SignedRows:
    """Rows of a logistic regression, ``log p(y_n) = -log(1 + exp(-y_n (x_n.theta + o_n)))``.

    Parameters
    ----------
    vectors : ndarray or csr_array, of shape (n_rows, n_dims + 1)
        ``y_n x_n``, with labels of -1 or 1, and the covariates x_n, that of an intercept included;
        and in the last column ``y_n o_n``, whose coefficient is known to be 1.
    weights : ndarray of shape (n_rows,)
        Case weights.
    """

    vectors: Numbers
    weights: Vector


def signed_by_labels(rows: RowsInMemory) -> SignedRows:
    """Find the labels of a logistic regression, in any parametrisation, and sign its rows.

    For every kind of row, the likelihood is evaluated at seven values of the linear predictor and
    must be ``-log(1 + exp(-y eta))`` with a label y of -1 or 1.  It may be written as a Bernoulli
    variable with ``logit_p`` or ``p``, or as a potential, with labels 0 and 1 or any others.

    Parameters
    ----------
    rows : RowsInMemory
        Of one predictor.

    Raises
    ------
    UnsupportedModelError
        If a row has another likelihood; the message names the row and the values.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     eta = pm.Normal("b") * np.array([2.0, 3.0])
    ...     y = pm.Bernoulli("y", logit_p=eta, observed=[0, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> signed_by_labels(RowsInMemory(found, np.arange(2), np.ones(2))).vectors
    array([[-2., -0.],
           [ 3.,  0.]])
    """
    eta = np.array([-6.0, -2.0, -0.5, 0.0, 1.0, 3.0, 6.0])
    loglik, numbers, first = rows.kinds_at(eta)
    labels = np.where(loglik[:, -1] > loglik[:, 0], 1.0, -1.0)
    expected = -np.logaddexp(0, -labels[:, None] * eta)
    wrong = ~np.isclose(loglik, expected, rtol=1e-6, atol=0)
    if wrong.any():
        n, k = np.argwhere(wrong)[0]
        where = rows.where(int(first[n]))
        raise UnsupportedModelError(
            "method='sensitivity' needs a logistic regression with one trial per row, but the "
            f"log-likelihood of {where} is {loglik[n, k]:.6g} nats at a linear predictor of "
            f"{eta[k]:g}, and not {expected[n, k]:.6g}. Write binomial counts as one row per "
            "trial (build_coreset(collapse=True) merges equal ones); for other likelihoods "
            "use method='auto'.",
            topic="regressions",
        )
    [predictor], signs = rows.predictors, labels[numbers]
    offset = (signs * predictor.offset)[:, None]
    if sparse.issparse(predictor.design):
        signed = sparse.diags_array(signs, format="csr") @ predictor.design
        return SignedRows(sparse.hstack([signed, offset], format="csr"), rows.case_weights)
    return SignedRows(np.hstack([signs[:, None] * predictor.design, offset]), rows.case_weights)


def centers_of(rows: SignedRows, n_clusters: int, *, rng: np.random.Generator) -> Matrix:
    """Find the centres of clusters of a sample of the rows.

    Returns
    -------
    ndarray of shape (k, n_dims + 1)

    Raises
    ------
    InvalidDataError
        If a row holds NaN or infinite values.

    Examples
    --------
    >>> rows = SignedRows(np.array([[1.0, 0.0], [1.0, 0.0]]), np.ones(2))
    >>> centers_of(rows, 1, rng=np.random.default_rng(1))
    array([[1., 0.]])
    """
    vectors = rows.vectors
    if not np.isfinite(vectors.data if sparse.issparse(vectors) else vectors).all():
        raise InvalidDataError(_NOT_FINITE, topic="regressions")
    return k_means(vectors, rows.weights, n_clusters, rng=rng)


class ClusterSums:
    """Adds up the clusters of signed rows that come in blocks.

    Parameters
    ----------
    centers : ndarray of shape (k, n_dims + 1)
        Each row belongs to the nearest one.

    Attributes
    ----------
    masses : ndarray of shape (k,)
        Sum of the case weights in each cluster.

    Examples
    --------
    >>> sums = ClusterSums(np.array([[6.0, 0.0], [0.0, 0.0]]))
    >>> sums.add(SignedRows(np.array([[1.0, 0.0], [5.0, 0.0]]), np.ones(2)))
    >>> sums.masses, sums.means.ravel(), sums.spread
    (array([1., 1.]), array([5., 0., 1., 0.]), 1.0)
    """

    def __init__(self, centers: Matrix) -> None:
        self.centers = centers
        self.masses, self._sums = np.zeros(len(centers)), np.zeros_like(centers)
        self._squares = 0.0

    def add(self, rows: SignedRows) -> None:
        """Add some rows.

        Raises
        ------
        InvalidDataError
            If the design holds NaN or infinite values.
        """
        own, squared = nearest(rows, self.centers)
        self._squares += float(rows.weights @ squared)
        if not math.isfinite(self._squares):
            raise InvalidDataError(_NOT_FINITE, topic="regressions")
        masses, sums = cluster_sums(rows.vectors, own, rows.weights, len(self.centers))
        self.masses += masses
        self._sums += sums

    @property
    def means(self) -> Matrix:
        """Mean of the rows of each cluster, like `centers`; its centre if the cluster is empty."""
        means, filled = self.centers.copy(), self.masses > 0
        means[filled] = self._sums[filled] / self.masses[filled, None]
        return means

    @property
    def spread(self) -> float:
        """Mean squared distance of ``y_n x_n`` from the centres."""
        return self._squares / float(self.masses.sum())


def nearest(rows: SignedRows, centers: Matrix) -> tuple[NDArray[np.integer], Vector]:
    """Return each row's nearest centre, and its squared distance without the offset."""
    squared, of_offsets = _squared_parts(rows, centers)
    own = (squared + of_offsets).argmin(axis=1)
    return own, np.asarray(squared[np.arange(len(own)), own], dtype=np.float64)


def _squared_parts(rows: SignedRows, centers: Matrix) -> tuple[Matrix, Matrix]:
    """Return squared distances (n, k) from centres: in the covariates, and in the offset."""
    covariates, offset = rows.vectors[:, :-1], _dense(rows.vectors[:, [-1]])
    return squared_distances(covariates, centers[:, :-1]), (offset - centers[:, -1]) ** 2


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityBound:
    """Bounds any row's share of the log-likelihood over a ball of coefficients.

    Parameters
    ----------
    centers : ndarray of shape (k, n_dims + 1)
        Each row belongs to the nearest one.
    masses : ndarray of shape (k,)
        Sum of the case weights in each cluster.
    points : ndarray of shape (k, n_dims + 1)
        What rows are compared with: the centers, or the means of the clusters.
    are_means : bool
        Whether these are the means; a row's own cluster is taken without that row then.
    radius : float
        Of the ball.
    center : ndarray of shape (n_dims,)
        Of the ball.

    Notes
    -----
    ``m_n = U / (u_n + sum_i g_i exp(-R |c_i - z_n| - |(c_i - z_n).theta* + b_i - o_n|))`` with the
    sum U of the case weights u, the masses g_i of the clusters without row n, their means c_i
    (z_n) and b_i (y_n o_n), and the ball's centre theta* and radius R (Huggins, Campbell and
    Broderick 2016, Lemma B.5, with unit case weights and no offset).  The lemma's proof carries
    over: u_n rows like row n have the ratio 1, and an offset, being a column with coefficient 1,
    counts with the ball's centre but not in the radius.  Offsets that vary within
    clusters make m_n large.

    The mean of row n's own cluster without row n is ``(g c - u_n z_n) / (g - u_n)``: further from
    z_n by the factor ``g / (g - u_n)``.  So the exact centres cost no more than the others.

    Examples
    --------
    >>> rows = SignedRows(np.array([[1.0, 0], [1.0, 0], [1.0, 0], [5.0, 0]]), np.ones(4))
    >>> sums = ClusterSums(np.array([[1.0, 0.0], [5.0, 0.0]]))
    >>> sums.add(rows)
    >>> bound = SensitivityBound.of(sums, radius=1.0, center=None, exact=True)
    >>> bound.values(rows)
    array([1.326, 1.326, 1.326, 3.792])
    """

    centers: Matrix
    masses: Vector
    points: Matrix
    are_means: bool
    radius: float
    center: Vector

    @classmethod
    def of(
        cls, sums: ClusterSums, *, radius: float | None, center: ArrayLike | None, exact: bool
    ) -> "SensitivityBound":
        """Make the bound from the clusters of all rows.

        Parameters
        ----------
        sums : ClusterSums
        radius : float, optional
            By default, derived from the rows.
        center : array_like of shape (n_dims,), optional
            By default 0.
        exact : bool
            Whether rows are compared with the means of their clusters without themselves, which
            gives true bounds.

        Raises
        ------
        InvalidOptionError
            If no radius is given and every row coincides with a centre.
        """
        if radius is None:
            if not sums.spread > 0:
                raise InvalidOptionError(
                    "Every row coincides with the centre of a cluster, so the rule 3 / "
                    "sqrt(mean squared distance) gives no radius: give radius=..., or fewer "
                    "n_clusters."
                )
            radius = 3 / math.sqrt(sums.spread)
        return cls(
            centers=sums.centers,
            masses=sums.masses,
            points=sums.means if exact else sums.centers,
            are_means=exact,
            radius=float(radius),
            center=np.zeros(sums.centers.shape[1] - 1) if center is None else np.asarray(center),
        )

    def values(self, rows: SignedRows) -> Vector:
        """Return m_n of each row; 0 for rows of case weight 0."""
        points = self.points
        own, _ = nearest(rows, self.centers)
        distances, along = np.sqrt(_squared_parts(rows, points)[0]), np.append(self.center, 1.0)
        shifts = points @ along - (rows.vectors @ along)[:, None]
        exponents, weights = self.radius * distances + np.abs(shifts), rows.weights
        each, mass = np.arange(len(own)), self.masses[own]
        others = np.maximum(mass - weights, 0)  # of its own cluster; 0 but for rounding if alone
        if self.are_means:
            scale = np.divide(mass, others, out=np.full_like(mass, np.inf), where=others > 0)
            apart = exponents[each, own]
            exponents[each, own] = np.multiply(apart, scale, out=apart, where=apart > 0)
        decays = np.exp(-exponents)
        similar = decays @ self.masses + decays[each, own] * (others - mass)
        shares = np.divide(1.0, weights + similar, out=np.zeros_like(weights), where=weights > 0)
        return np.asarray(self.masses.sum() * shares)


def guaranteed_size(mean: float, n_dims: int, *, epsilon: float, delta: float) -> int:
    """Return the number of draws that bounds the relative error by epsilon in the whole ball.

    Parameters
    ----------
    mean : float
        Mean of the sensitivities' bounds, at least 1.
    n_dims : int
        Number of coefficients, including an intercept but not an offset.
    epsilon : float
        Relative error of the log-likelihood.
    delta : float
        Probability of failure.

    Returns
    -------
    int
        The number of draws M; there are fewer rows if some are drawn repeatedly.

    Notes
    -----
    ``M = ceil(c mean / epsilon^2 ((n_dims + 1) log(mean) + log(1 / delta)))`` (Huggins, Campbell
    and Broderick 2016, Theorem 3.2) with c = 2.  The theorem says that some c holds for all data,
    and neither [1]_ nor the work it is based on gives its value.  At any one point of the ball
    Bernstein's inequality requires
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
    of_all_points = (n_dims + 1) * math.log(mean) + math.log(1 / delta)
    return math.ceil(2 * mean / epsilon**2 * of_all_points)


# -- clusters --------------------------------------------------------------------------------------


def k_means(rows: Numbers, weights: Vector, n_clusters: int, *, rng: np.random.Generator) -> Matrix:
    """Return the centres of clusters: the best of ten runs of k-means++ and Lloyd's iterations.

    A single run often ends with two centres in one cluster and none in a rare one.
    `scipy.cluster.vq.kmeans2` takes neither weights nor sparse rows, and warns where a cluster
    becomes empty.  Each iteration takes O(n k p) time.

    Parameters
    ----------
    rows : ndarray or csr_array of shape (n, p)
        Rows to cluster.
    weights : ndarray of shape (n,)
        Positive weights.
    n_clusters : int
        At least 1.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (k, p)
        ``n_clusters`` centres, or fewer if fewer rows are distinct.

    References
    ----------
    .. [1] Arthur, D. and Vassilvitskii, S. (2007). k-means++: The Advantages of Careful Seeding.
       https://dl.acm.org/doi/10.5555/1283383.1283494

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> np.sort(k_means(rows, np.ones(4), 2, rng=np.random.default_rng(1)), axis=0)
    array([[ 0.5],
           [10.5]])
    """
    runs = [_run(rows, weights, n_clusters, rng) for _ in range(10)]
    return min(runs, key=lambda run: run[1])[0]


def _run(
    rows: Numbers, weights: Vector, n_clusters: int, rng: np.random.Generator
) -> tuple[Matrix, float]:
    """Return the centres, and the weighted sum of squared distances from them."""
    centers = _seed(rows, weights, n_clusters, rng)
    nearest = np.full(len(weights), -1)
    for _ in range(50):
        previous, nearest = nearest, squared_distances(rows, centers).argmin(axis=1)
        if np.array_equal(previous, nearest):
            break
        masses, sums = cluster_sums(rows, nearest, weights, len(centers))
        filled = masses > 0
        centers[filled] = sums[filled] / masses[filled, None]
    return centers, float(weights @ squared_distances(rows, centers).min(axis=1))


def _seed(rows: Numbers, weights: Vector, n_clusters: int, rng: np.random.Generator) -> Matrix:
    """Draw starting centres, each in proportion to the squared distance from those before it."""
    chosen = [int(rng.choice(len(weights), p=weights / weights.sum()))]
    distances = squared_distances(rows, _dense(rows[chosen]))[:, 0]
    while len(chosen) < n_clusters:
        distances[chosen] = 0  # exactly, without rounding errors
        scores = weights * distances
        total = scores.sum()
        if not total > 0:
            break
        chosen.append(int(rng.choice(len(weights), p=scores / total)))
        new = squared_distances(rows, _dense(rows[chosen[-1:]]))[:, 0]
        distances = np.minimum(distances, new)
    return np.array(_dense(rows[chosen]), dtype=np.float64)


def squared_distances(rows: Numbers, centers: Matrix) -> Matrix:
    """Squared Euclidean distances (n, k) of rows from centres.

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 3.0]]), np.array([[4.0, 0.0]]))
    array([[25.]])
    """
    if not sparse.issparse(rows):
        between: Matrix = cdist(rows, centers, "sqeuclidean")
        return between
    norms = rows.multiply(rows).sum(axis=1)
    squared: Matrix = norms[:, None] - 2 * (rows @ centers.T) + np.square(centers).sum(axis=1)
    return np.maximum(squared, 0, out=squared)  # below 0 by rounding only


def cluster_sums(
    rows: Numbers, nearest: NDArray[np.integer], weights: Vector, n_clusters: int
) -> tuple[Vector, Matrix]:
    """Return each cluster's sum of weights (k,) and sum of weighted rows (k, p).

    Examples
    --------
    >>> cluster_sums(np.array([[1.0], [2.0]]), np.array([0, 0]), np.array([1.0, 3.0]), 1)
    (array([4.]), array([[7.]]))
    """
    n_rows = len(weights)
    members = sparse.csr_array((weights, (nearest, np.arange(n_rows))), shape=(n_clusters, n_rows))
    masses: Vector = np.bincount(nearest, weights=weights, minlength=n_clusters)
    return masses, _dense(members @ rows)


def _dense(rows: Numbers) -> Matrix:
    return rows.toarray() if sparse.issparse(rows) else rows  # type: ignore[no-any-return]
