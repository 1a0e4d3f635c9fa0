import numpy as np
import pytest
from scipy import sparse

from pymc_coresets.papers.signed_rows import cluster_sums, k_means, squared_distances

CENTERS = np.array([[0.0, 0.0, 0.0], [20.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 20.0]])


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(1)
    sizes = [500, 300, 40, 5]
    return np.repeat(CENTERS, sizes, axis=0) + rng.normal(size=(sum(sizes), 3))


@pytest.mark.parametrize("seed", range(5))
def test_finds_separate_clusters_however_rare(blobs, seed):
    centers = k_means(blobs, np.ones(len(blobs)), 4, rng=np.random.default_rng(seed))
    nearest = centers[squared_distances(CENTERS, centers).argmin(axis=1)]
    assert np.abs(nearest - CENTERS).max() < 5 / np.sqrt(5)  # five standard errors of the rarest


def test_a_weight_counts_like_repeated_rows(blobs):
    """Once the centres are the same; the seeds are drawn from other arrays."""
    counts = np.random.default_rng(2).integers(1, 4, size=len(blobs))
    rngs = [np.random.default_rng(3) for _ in range(2)]
    weighted = k_means(blobs, counts.astype(float), 4, rng=rngs[0])
    repeated = np.repeat(blobs, counts, axis=0)
    plain = k_means(repeated, np.ones(len(repeated)), 4, rng=rngs[1])
    assert np.sort(weighted, axis=0) == pytest.approx(np.sort(plain, axis=0))


def test_centers_are_the_means_of_their_rows(blobs):
    weights = np.random.default_rng(4).random(len(blobs)) + 0.1
    centers = k_means(blobs, weights, 6, rng=np.random.default_rng(4))
    nearest = squared_distances(blobs, centers).argmin(axis=1)
    for cluster, center in enumerate(centers):
        own = nearest == cluster
        assert np.average(blobs[own], weights=weights[own], axis=0) == pytest.approx(center)


def test_there_are_no_more_centers_than_distinct_rows():
    rows = np.repeat([[0.1, 0.3], [0.7, 0.3]], 10, axis=0)
    centers = k_means(rows, np.ones(20), 5, rng=np.random.default_rng(1))
    assert np.sort(centers[:, 0]) == pytest.approx([0.1, 0.7])


def test_sparse_rows_give_the_same(blobs):
    rounded = np.where(np.abs(blobs) < 1, 0, blobs)
    both = [
        k_means(rows, np.ones(len(blobs)), 4, rng=np.random.default_rng(5))
        for rows in (rounded, sparse.csr_array(rounded))
    ]
    assert both[0] == pytest.approx(both[1])


def test_distances_and_sums_by_hand():
    rng = np.random.default_rng(6)
    rows, centers = rng.normal(size=(7, 3)), rng.normal(size=(2, 3))
    nearest, weights = rng.integers(2, size=7), rng.random(7)
    expected = [[((row - center) ** 2).sum() for center in centers] for row in rows]
    sums = [sum(weights[n] * rows[n] for n in range(7) if nearest[n] == i) for i in range(2)]
    for made in (rows, sparse.csr_array(rows)):
        assert squared_distances(made, centers) == pytest.approx(np.array(expected))
        assert cluster_sums(made, nearest, weights, 2)[1] == pytest.approx(np.array(sums))


def test_distances_do_not_lose_digits_far_from_the_origin():
    rows = 1e9 + np.array([[0.0], [1.0], [3.0]])
    assert squared_distances(rows, rows[:1])[:, 0] == pytest.approx([0, 1, 9])


def test_a_row_of_hardly_any_weight_gets_no_center():
    rows, weights = np.array([[0.0], [1.0], [100.0]]), np.array([1.0, 1.0, 1e-12])
    centers = k_means(rows, weights, 2, rng=np.random.default_rng(7))
    assert np.sort(centers[:, 0]) == pytest.approx([0, 1], abs=1e-6)
