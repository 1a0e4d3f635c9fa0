"""k-means clustering of weighted rows, dense or sparse; meant for a few thousand rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from pymc_coresets.solving.problem import Matrix, Vector

#: Rows of numbers: an ndarray, or a `scipy.sparse.csr_array`.
type Rows = Any

_N_RUNS = 10
_MAX_ITERATIONS = 50


def k_means(rows: Rows, weights: Vector, n_clusters: int, *, rng: np.random.Generator) -> Matrix:
    """Return the centres of clusters: the best of ten runs of k-means++ and Lloyd's iterations.

    A single run often ends with two centres in one cluster and none in a rare one.
    `scipy.cluster.vq.kmeans2` takes neither weights nor sparse rows, and warns where a cluster
    becomes empty.  Each iteration takes O(n k p) time.

    Parameters
    ----------
    rows : ndarray or csr_array of shape (n, p)
        What to cluster.
    weights : ndarray of shape (n,)
        How often each row counts; positive.
    n_clusters : int
        At least 1.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (k, p)
        ``n_clusters`` centres, or fewer where fewer rows are distinct.

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
    runs = [_run(rows, weights, n_clusters, rng) for _ in range(_N_RUNS)]
    return min(runs, key=lambda run: run[1])[0]


def _run(
    rows: Rows, weights: Vector, n_clusters: int, rng: np.random.Generator
) -> tuple[Matrix, float]:
    """Return the centres, and the weighted sum of squared distances from them."""
    centers = _seed(rows, weights, n_clusters, rng)
    nearest = None
    for _ in range(_MAX_ITERATIONS):
        previous, nearest = nearest, squared_distances(rows, centers).argmin(axis=1)
        if previous is not None and np.array_equal(previous, nearest):
            break
        masses, sums = cluster_sums(rows, nearest, weights, len(centers))
        filled = masses > 0
        centers[filled] = sums[filled] / masses[filled, None]
    return centers, float(weights @ squared_distances(rows, centers).min(axis=1))


def _seed(rows: Rows, weights: Vector, n_clusters: int, rng: np.random.Generator) -> Matrix:
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


def squared_distances(rows: Rows, centers: Matrix) -> Matrix:
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
    rows: Rows, nearest: NDArray[np.integer[Any]], weights: Vector, n_clusters: int
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


def _dense(rows: Rows) -> Matrix:
    return rows.toarray() if sparse.issparse(rows) else rows  # type: ignore[no-any-return]
