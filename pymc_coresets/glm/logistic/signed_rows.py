"""The rows of a logistic regression, signed by their labels, and their clusters."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.glm.logistic.clustering import Rows, cluster_sums, k_means, squared_distances
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = [
    "ClusterSums",
    "Clustering",
    "LogisticRows",
    "assign_clusters",
    "centers_of",
    "find_centers",
    "sample_size",
]

_BLOCK_ENTRIES = 2**18  # of a block of rows: 2 MB, which stays in the cache
_NOT_FINITE = "The design matrix of the logistic regression holds NaN or infinite values."


@dataclass(frozen=True, kw_only=True, eq=False)
class LogisticRows:
    """The rows of a logistic regression, ``log p(y_n) = -log(1 + exp(-y_n (x_n.theta + o_n)))``.

    Nothing of the size of the design is copied.

    Parameters
    ----------
    design : ndarray or csr_array of shape (n_obs, n_dims)
        The covariates x_n, that of an intercept included.
    labels : array_like of shape (n_obs,)
        y_n, each -1 or 1.
    offset : array_like of shape (n_obs,), optional
        o_n; 0 by default.
    names : tuple of str, optional
        Names of the coefficients, for error messages.

    Raises
    ------
    InvalidDataError
        If lengths disagree, a label is neither -1 nor 1, or an offset is not finite.

    Notes
    -----
    An offset is one more column, ``z_n = y_n (x_n, o_n)``, whose coefficient is known to be 1.

    Examples
    --------
    >>> rows = LogisticRows(design=np.array([[1.0, 2.0]]), labels=np.array([-1.0]))
    >>> rows.take(slice(None))
    (array([[-1., -2.]]), array([-0.]))
    """

    design: Rows
    labels: Vector
    offset: Vector | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n_obs = self.design.shape[0]
        object.__setattr__(self, "labels", np.asarray(self.labels, dtype=np.float64))
        if self.labels.shape != (n_obs,) or not (np.abs(self.labels) == 1).all():
            raise InvalidDataError(f"labels must be {n_obs} numbers, each -1 or 1.")
        if self.offset is not None:
            object.__setattr__(self, "offset", np.asarray(self.offset, dtype=np.float64))
            if self.offset.shape != (n_obs,) or not np.isfinite(self.offset).all():
                raise InvalidDataError(f"offset must be {n_obs} finite numbers.")

    @property
    def n_obs(self) -> int:
        """Number of rows."""
        return int(self.design.shape[0])

    @property
    def n_dims(self) -> int:
        """Number of coefficients."""
        return int(self.design.shape[1])

    def take(self, which: slice | NDArray[np.int64]) -> tuple[Rows, Vector]:
        """Return ``y_n x_n`` (n, n_dims) and ``y_n o_n`` (n,) for some rows."""
        labels, design = self.labels[which], self.design[which]
        offset = np.zeros(len(labels)) if self.offset is None else self.offset[which]
        if sparse.issparse(design):
            return sparse.diags_array(labels, format="csr") @ design, labels * offset
        return labels[:, None] * np.asarray(design, dtype=np.float64), labels * offset

    def blocks(self) -> Iterator[slice]:
        """Split the rows into blocks that fit the cache."""
        step = max(1, _BLOCK_ENTRIES // max(1, self.n_dims))
        if sparse.issparse(self.design):
            step = max(1, _BLOCK_ENTRIES * self.n_obs // max(1, self.design.nnz))
        for start in range(0, self.n_obs, step):
            yield slice(start, min(start + step, self.n_obs))


def find_centers(
    rows: LogisticRows, n_clusters: int, *, base_weights: Vector, rng: np.random.Generator
) -> Matrix:
    """Find the centres of clusters in a random sample of the rows.

    Parameters
    ----------
    rows : LogisticRows
    n_clusters : int
    base_weights : ndarray of shape (n_obs,)
        Rows of weight 0 are left out.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (k, n_dims + 1)
        Centres of z_n and, in the last column, of the offset.

    Raises
    ------
    InvalidDataError
        If a row of the sample holds NaN or infinite values.

    Notes
    -----
    The sample has ``min(1000 k, 0.025 N)`` rows (Huggins, Campbell and Broderick 2016, appendix
    E), and at least 50 k where there are that many.

    Examples
    --------
    >>> rows = LogisticRows(design=np.ones((10, 1)), labels=np.repeat([-1.0, 1.0], 5))
    >>> centers = find_centers(rows, 2, base_weights=np.ones(10), rng=np.random.default_rng(1))
    >>> np.sort(centers[:, 0])
    array([-1.,  1.])
    """
    present = np.flatnonzero(base_weights)
    wanted = sample_size(n_clusters, len(present))
    if wanted < len(present):
        present = np.sort(rng.choice(present, wanted, replace=False))
    return centers_of(*rows.take(present), base_weights[present], n_clusters, rng=rng)


def sample_size(n_clusters: int, n_present: int) -> int:
    """How many rows of positive weight show the clusters.

    Examples
    --------
    >>> sample_size(6, 10**6), sample_size(6, 10_000)
    (6000, 300)
    """
    return max(50 * n_clusters, min(1_000 * n_clusters, int(0.025 * n_present)))


def centers_of(
    vectors: Rows, offset: Vector, weights: Vector, n_clusters: int, *, rng: np.random.Generator
) -> Matrix:
    """Find the centres of clusters of signed rows, (k, n_dims + 1), see `find_centers`.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> centers_of(np.ones((3, 1)), np.zeros(3), np.ones(3), 1, rng=rng)
    array([[1., 0.]])
    """
    columns = [vectors, offset[:, None]]
    is_sparse = sparse.issparse(vectors)
    extended = sparse.hstack(columns, format="csr") if is_sparse else np.hstack(columns)
    if not np.isfinite(extended.data if is_sparse else extended).all():
        raise InvalidDataError(_NOT_FINITE)
    return k_means(extended, weights, n_clusters, rng=rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class Clustering:
    """The cluster of every row, and the size and mean of each cluster.

    Parameters
    ----------
    nearest : ndarray of unsigned int, of shape (n_obs,)
        Number of the centre that is nearest to each row.
    masses : ndarray of shape (k,)
        Sum of the base weights in each cluster.
    means : ndarray of shape (k, n_dims + 1)
        Mean of ``y_n x_n`` and ``y_n o_n`` in each cluster; the centre where a cluster is empty.
    spread : float
        Mean squared distance of ``y_n x_n`` from the centres.

    Examples
    --------
    >>> rows = LogisticRows(design=np.array([[1.0], [3.0]]), labels=np.ones(2))
    >>> assign_clusters(rows, np.array([[2.0, 0.0]]), np.ones(2)).spread
    1.0
    """

    nearest: NDArray[np.unsignedinteger[Any]]
    masses: Vector
    means: Matrix
    spread: float


class ClusterSums:
    """Adds up the clusters of signed rows that come in blocks.

    Parameters
    ----------
    centers : ndarray of shape (k, n_dims + 1)

    Examples
    --------
    >>> sums = ClusterSums(np.array([[6.0, 0.0], [0.0, 0.0]]))
    >>> sums.add(np.array([[1.0], [5.0]]), np.zeros(2), np.ones(2))
    array([1, 0])
    >>> sums.masses
    array([1., 1.])
    """

    def __init__(self, centers: Matrix) -> None:
        self.centers = centers
        self.masses, self._sums = np.zeros(len(centers)), np.zeros_like(centers)
        self._spread = 0.0

    def nearest(self, vectors: Rows, offset: Vector) -> tuple[NDArray[np.integer[Any]], Matrix]:
        """Return each row's nearest centre, and its squared distance but for the offset."""
        centers = self.centers
        squared = squared_distances(vectors, centers[:, :-1])
        own = (squared + (offset[:, None] - centers[:, -1]) ** 2).argmin(axis=1)
        return own, squared[np.arange(len(own)), own]

    def add(self, vectors: Rows, offset: Vector, weights: Vector) -> NDArray[np.integer[Any]]:
        """Add some rows, and return the numbers of their nearest centres."""
        n_clusters = len(self.centers)
        own, squared = self.nearest(vectors, offset)
        self._spread += float(weights @ squared)
        masses, sums = cluster_sums(vectors, own, weights, n_clusters)
        self.masses += masses
        self._sums[:, :-1] += sums
        self._sums[:, -1] += np.bincount(own, weights=weights * offset, minlength=n_clusters)
        return own

    def finished(
        self, total_weight: float, nearest: NDArray[np.unsignedinteger[Any]]
    ) -> Clustering:
        """Return the clusters of all rows that were added.

        Raises
        ------
        InvalidDataError
            If the design holds NaN or infinite values.
        """
        if not math.isfinite(self._spread):
            raise InvalidDataError(_NOT_FINITE)
        means, filled = self.centers.copy(), self.masses > 0
        means[filled] = self._sums[filled] / self.masses[filled, None]
        return Clustering(
            nearest=nearest, masses=self.masses, means=means, spread=self._spread / total_weight
        )


def assign_clusters(rows: LogisticRows, centers: Matrix, base_weights: Vector) -> Clustering:
    """Assign every row to the nearest centre, in one pass over blocks of rows.

    Parameters
    ----------
    rows : LogisticRows
    centers : ndarray of shape (k, n_dims + 1)
    base_weights : ndarray of shape (n_obs,)

    Returns
    -------
    Clustering

    Raises
    ------
    InvalidDataError
        If the design holds NaN or infinite values.

    Examples
    --------
    >>> rows = LogisticRows(design=np.array([[1.0], [5.0]]), labels=np.ones(2))
    >>> assign_clusters(rows, np.array([[6.0, 0.0], [0.0, 0.0]]), np.ones(2)).nearest
    array([1, 0], dtype=uint8)
    """
    sums = ClusterSums(centers)
    nearest = np.empty(rows.n_obs, dtype=np.min_scalar_type(len(centers)))
    for block in rows.blocks():
        nearest[block] = sums.add(*rows.take(block), base_weights[block])
    return sums.finished(float(base_weights.sum()), nearest)
