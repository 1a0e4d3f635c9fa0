"""Sensitivities of rows, and clusters of signed rows, against brute force."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from pymc_coresets import InvalidDataError, InvalidOptionError, Sensitivity
from pymc_coresets.papers import signed_rows
from pymc_coresets.papers.sensitivity import Sensitivities, SignedBlocks, sample_size
from pymc_coresets.papers.signed_rows import (
    ClusterSums,
    SensitivityBound,
    SignedRows,
    cluster_sums,
    guaranteed_size,
    k_means,
    squared_distances,
)
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.memory import InMemoryRows
from tests.refusals import refused

# -- Sensitivities of logistic regression against brute force, and the sample against its formulas.

BINARY10 = np.array([1, 0.2, 0.3, 0.5, 0.01, 0.1, 0.2, 0.007, 0.005, 0.001])
THETA10 = np.array([-3, 1.2, -0.5, 0.8, 3, -1, -0.7, 4, 3.5, 4.5])


def phi(s):
    return np.logaddexp(0, -s)


@dataclass(frozen=True)
class Regression:
    """The rows of a logistic regression."""

    design: object
    labels: np.ndarray
    offset: np.ndarray | None = None

    @property
    def n_obs(self):
        return len(self.labels)

    def signed(self, weights=None):
        """All rows, signed by their labels."""
        offset = np.zeros(self.n_obs) if self.offset is None else self.offset
        is_sparse, ones = sparse.issparse(self.design), np.ones(self.n_obs)
        labels = (
            sparse.diags_array(self.labels, format="csr") if is_sparse else self.labels[:, None]
        )
        vectors = labels @ self.design if is_sparse else labels * self.design
        parts = [vectors, (self.labels * offset)[:, None]]
        extended = sparse.hstack(parts, format="csr") if is_sparse else np.hstack(parts)
        return SignedRows(extended, ones if weights is None else weights)

    def blocks(self, weights=None, size=64, extra=()):
        """The same in blocks, beside other arrays."""
        every = self.signed(weights)
        source = InMemoryRows([every.vectors, *extra], every.weights)
        return SignedBlocks(source, lambda r: SignedRows(r.arrays[0], r.case_weights), size)


@dataclass(frozen=True)
class Bounds:
    """Bounds on the sensitivities of some rows."""

    bound: SensitivityBound
    values: np.ndarray
    mean: float


def random_rows(rng, n_obs, n_dims=2, *, offset=False):
    return Regression(
        design=rng.normal(size=(n_obs, n_dims)) + 1.5 * rng.integers(2, size=(n_obs, 1)),
        labels=rng.choice([-1.0, 1.0], size=n_obs),
        offset=rng.normal(size=n_obs) if offset else None,
    )


def binary10(n_obs):
    rng = np.random.default_rng(n_obs)
    design = (rng.random((n_obs, 10)) < BINARY10).astype(float)
    labels = np.where(rng.random(n_obs) < 1 / (1 + np.exp(-design @ THETA10)), 1.0, -1.0)
    return Regression(design=design, labels=labels)


def centers_of(rows, n_clusters=4, *, case_weights=None, seed=1):
    rng, blocks = np.random.default_rng(seed), rows.blocks(case_weights)
    subsample, weights = blocks.subsample(sample_size(n_clusters, rows.n_obs), key=random_key(rng))
    return signed_rows.centers_of(replace(subsample, weights=weights), n_clusters, rng=rng)


def bounds_of(rows, centers, case_weights=None, **options):
    signed, sums = rows.signed(case_weights), ClusterSums(centers)
    sums.add(signed)
    bound = Sensitivity(**options).bound(sums)
    values = bound.values(signed)
    return Bounds(bound, values, np.average(values, weights=signed.weights))


def all_of(rows, case_weights=None, *, size=64, n_clusters=4, extra=(), **options):
    """Bounds on the sensitivities of all rows, read in blocks."""
    blocks, rng = rows.blocks(case_weights, size, extra), np.random.default_rng(1)
    return Sensitivities.of(blocks, Sensitivity(**options).bound, n_clusters, rng=rng)


def losses(rows, thetas):
    """phi(z_n.theta) of all rows (n_obs, n_thetas)."""
    signed = rows.signed()
    return phi(signed.vectors @ np.column_stack([thetas, np.ones(len(thetas))]).T)


def shares(rows, thetas, case_weights):
    """Each row's share of the log-likelihood, times the number of rows."""
    loss = losses(rows, thetas)
    return case_weights.sum() * loss / (case_weights @ loss)


def disc(center, radius):
    """Points that fill the ball in two dimensions, its edge included."""
    angles, radii = np.linspace(0, 2 * np.pi, 181), radius * np.linspace(0, 1, 41)
    edge = np.column_stack([np.cos(angles), np.sin(angles)])
    return center + (radii[:, None, None] * edge).reshape(-1, 2)


def by_definition(rows, centers, case_weights, radius, theta, *, exact):
    """m_n of Lemma B.5 row by row, the cluster means recomputed without the row."""
    signed = rows.signed()
    z = signed.vectors
    nearest = [np.argmin([np.linalg.norm(row - c) for c in centers]) for row in z]
    result = []
    for n in range(len(z)):
        total = case_weights[n]
        for i, center in enumerate(centers):
            others = [m for m in range(len(z)) if nearest[m] == i and m != n]
            mass = sum(case_weights[m] for m in others)
            if mass == 0:
                continue
            mean = sum(case_weights[m] * z[m] for m in others) / mass if exact else center
            apart = mean - z[n]
            along = abs(apart @ np.append(theta, 1))
            total += mass * np.exp(-radius * np.linalg.norm(apart[:-1]) - along)
        result.append(case_weights.sum() / total)
    return np.array(result)


# -- the bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True])
def test_bounds_follow_their_definition(exact):
    rng = np.random.default_rng(1)
    rows, weights = random_rows(rng, 40, 3, offset=True), rng.random(40) + 0.2
    centers, theta = centers_of(rows, 5), rng.normal(size=3)
    found = bounds_of(rows, centers, weights, radius=0.7, center=theta, exact_centers=exact)
    expected = by_definition(rows, centers, weights, 0.7, theta, exact=exact)
    assert found.values == pytest.approx(expected)
    assert found.mean == pytest.approx(np.average(expected, weights=weights))
    assert (found.bound.radius, found.bound.center.tolist()) == (0.7, theta.tolist())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_obs=st.integers(1, 12),
    n_clusters=st.integers(1, 5),
    radius=st.floats(0.05, 8),
    offset=st.booleans(),
)
def test_no_point_of_the_ball_exceeds_the_bound(seed, n_obs, n_clusters, radius, offset):
    rng = np.random.default_rng(seed)
    rows, theta = random_rows(rng, n_obs, offset=offset), rng.normal(size=2)
    weights = rng.choice([0.3, 1.0, 2.0, 7.5], size=n_obs)
    centers = centers_of(rows, n_clusters, case_weights=weights)
    found = bounds_of(rows, centers, weights, radius=radius, center=theta, exact_centers=True)
    largest = shares(rows, disc(theta, radius), weights).max(axis=1)
    assert (found.values >= largest * (1 - 1e-9)).all()
    assert found.mean >= 1 - 1e-9
    assert (found.values <= weights.sum() / weights * (1 + 1e-9)).all()


@pytest.mark.parametrize("radius", [1.0, 10.0, 40.0])
def test_bounds_are_tight_on_the_construction_of_corollary_3_7(radius):
    """Unit vectors close to each other, one of which a hyperplane cuts off from the rest."""
    n_obs, closeness = 6, 0.3
    angles = 2 * np.pi * np.arange(n_obs) / n_obs
    around = np.column_stack([np.cos(angles), np.sin(angles)])
    gap = 1 - np.cos(2 * np.pi / n_obs)
    delta = np.sqrt(closeness / 2)
    z = np.column_stack([delta * around, np.full(n_obs, np.sqrt(1 - delta**2))])
    rows = Regression(design=z, labels=np.ones(n_obs))
    centers = np.column_stack([z, np.zeros(n_obs)])  # a cluster for each
    found = bounds_of(rows, centers, radius=radius, exact_centers=True).values
    alpha = radius / (np.sqrt(2) * delta)
    height = alpha * delta**2 * (1 - gap / 2) / np.sqrt(1 - delta**2)
    thetas = np.column_stack([-alpha * delta * around, np.full(n_obs, height)])
    assert (np.linalg.norm(thetas, axis=1) <= radius).all()
    reached = np.diag(shares(rows, thetas, np.ones(n_obs)))
    lower = n_obs / (1 + (n_obs - 1) * np.exp(-radius * gap * np.sqrt(closeness) / 4))
    upper = n_obs / (1 + (n_obs - 1) * np.exp(-radius * np.sqrt(2 * closeness)))
    assert (lower <= reached).all()
    assert (reached <= found).all()
    assert (found <= upper).all()


def test_centers_of_the_sample_are_close_to_the_exact_ones():
    both = [all_of(binary10(50_000), size=2**14, exact_centers=exact) for exact in (False, True)]
    assert both[0].mean == pytest.approx(both[1].mean, rel=0.05)


def test_radius_is_three_root_mean_square_distances():
    rows = random_rows(np.random.default_rng(2), 200, 3, offset=True)
    centers, signed = centers_of(rows), rows.signed()
    extended = signed.vectors[:, None] - centers
    nearest = (extended**2).sum(axis=2).argmin(axis=1)
    spread = (extended[np.arange(200), nearest, :-1] ** 2).sum(axis=1).mean()
    assert bounds_of(rows, centers).bound.radius == pytest.approx(3 / np.sqrt(spread))


def test_bounds_grow_with_the_radius():
    rows = random_rows(np.random.default_rng(3), 100)
    centers = centers_of(rows)
    small, large = (bounds_of(rows, centers, radius=r, exact_centers=True) for r in (0.5, 1.0))
    assert (small.values < large.values).all()


# -- what must not matter --------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True])
def test_blocks_do_not_matter(exact):
    rng = np.random.default_rng(4)
    rows, weights = random_rows(rng, 103, 3, offset=True), rng.random(103)
    whole, parts = (all_of(rows, weights, size=n, exact_centers=exact) for n in (103, 10))
    assert (len(whole.heights), len(parts.heights)) == (2, 12)
    assert parts.mean == pytest.approx(whole.mean, rel=1e-12)
    assert parts.bound.radius == pytest.approx(whole.bound.radius, rel=1e-12)
    assert parts.largest == pytest.approx(whole.largest, rel=1e-12)
    one, other = (found.draw(40, key=5) for found in (whole, parts))
    assert one.rows.positions.tolist() == other.rows.positions.tolist()
    assert one.weights == pytest.approx(other.weights, rel=1e-12)


def test_sparse_design_gives_the_same():
    rows = binary10(2_000)
    compressed = Regression(design=sparse.csr_array(rows.design), labels=rows.labels)
    centers = centers_of(rows)
    found, expected = (bounds_of(r, centers, exact_centers=True) for r in (compressed, rows))
    assert found.values == pytest.approx(expected.values)
    both = [
        signed_rows.centers_of(r.signed(), 4, rng=np.random.default_rng(2))
        for r in (rows, compressed)
    ]
    assert both[0] == pytest.approx(both[1])


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(5)
    rows, weights, order = random_rows(rng, 50, offset=True), rng.random(50), rng.permutation(50)
    permuted = Regression(rows.design[order], rows.labels[order], rows.offset[order])
    centers = centers_of(rows)
    found = bounds_of(permuted, centers, weights[order], exact_centers=True)
    expected = bounds_of(rows, centers, weights, exact_centers=True)
    assert found.values == pytest.approx(expected.values[order])


def test_unit_of_the_case_weights_does_not_matter():
    rng = np.random.default_rng(6)
    rows, weights = random_rows(rng, 50), rng.random(50)
    centers = centers_of(rows)
    both = [bounds_of(rows, centers, c * weights, exact_centers=True) for c in (1, 1_000)]
    assert both[0].values == pytest.approx(both[1].values)


def test_case_weights_stand_for_repeated_rows():
    """All but the term of one row: the bound leaves out all copies of a row, or only one."""
    rng = np.random.default_rng(7)
    rows, counts = random_rows(rng, 60, offset=True), rng.integers(0, 4, size=60)
    weights = counts.astype(float)
    repeated = Regression(
        design=np.repeat(rows.design, counts, axis=0),
        labels=np.repeat(rows.labels, counts),
        offset=np.repeat(rows.offset, counts),
    )
    centers = centers_of(rows)
    clusters, expected = ClusterSums(centers), ClusterSums(centers)
    clusters.add(rows.signed(weights))
    expected.add(repeated.signed())
    assert clusters.masses == pytest.approx(expected.masses)
    assert clusters.means == pytest.approx(expected.means)
    assert clusters.spread == pytest.approx(expected.spread)
    few = np.repeat(bounds_of(rows, centers, weights, exact_centers=True).values, counts)
    many = bounds_of(repeated, centers, exact_centers=True).values
    assert (few <= many * (1 + 1e-12)).all()
    single = np.repeat(counts, counts) == 1
    assert few[single] == pytest.approx(many[single])
    extra = (np.repeat(counts, counts) - 1) / repeated.n_obs
    assert (1 / few <= 1 / many + extra + 1e-12).all()


def test_rows_of_base_weight_zero_are_absent():
    rng = np.random.default_rng(8)
    rows, weights = random_rows(rng, 40), np.repeat([1.0, 0.0], 20)
    first = Regression(design=rows.design[:20], labels=rows.labels[:20])
    centers = centers_of(rows, case_weights=weights)
    assert centers == pytest.approx(centers_of(first))
    found = bounds_of(rows, centers, weights, exact_centers=True)
    expected = bounds_of(first, centers, exact_centers=True)
    assert found.values[:20] == pytest.approx(expected.values)
    assert (found.values[20:] == 0).all()
    assert found.mean == pytest.approx(expected.mean)


def test_a_constant_offset_is_a_shift_of_the_intercept():
    rng = np.random.default_rng(9)
    design = np.column_stack([np.ones(60), rng.normal(size=60)])
    labels = rng.choice([-1.0, 1.0], size=60)
    plain = Regression(design=design, labels=labels)
    shifted = Regression(design=design, labels=labels, offset=np.full(60, 0.8))
    centers = centers_of(plain)
    extended = np.column_stack([centers[:, :-1], 0.8 * centers[:, 0]])
    found = bounds_of(shifted, extended, center=[0.1, -0.4], exact_centers=True)
    expected = bounds_of(plain, centers, center=[0.9, -0.4], exact_centers=True)
    assert found.values == pytest.approx(expected.values)


def test_mean_and_largest_bound_are_those_of_the_rows():
    rows, weights = (
        random_rows(np.random.default_rng(10), 200),
        np.repeat([3.0, 1.0, 0.0], [100, 60, 40]),
    )
    found = all_of(rows, weights)
    repeated = np.repeat(found.bound.values(rows.signed(weights)), weights.astype(int))
    assert found.largest == repeated.max()
    assert found.mean == pytest.approx(repeated.mean())


# -- mean sensitivity ------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [1.0, 3.0])
def test_mean_sensitivity_is_constant_in_the_rows_and_robust_to_the_clusters(radius):
    means = [
        bounds_of(rows, centers_of(rows, k), radius=radius, exact_centers=True).mean
        for rows in map(binary10, (10_000, 40_000, 160_000))
        for k in (4, 5, 6, 7, 8)
    ]
    assert max(means) / min(means) < 1.15


# -- size and sample -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sampled():
    """Weighted log-likelihoods at three thetas, over many samples."""
    rng = np.random.default_rng(11)
    rows, weights = random_rows(rng, 30), rng.random(30) + 0.5
    loss = losses(rows, np.array([[0.0, 0.0], [1.0, -2.0], [0.5, 3.0]]))
    found = all_of(rows, weights, size=16, extra=[loss], radius=1.5)
    totals = np.empty((10_000, 3))
    for key, total in enumerate(totals):
        subsample = found.draw(7, key=key)
        total[:] = subsample.weights @ subsample.rows.arrays[-1]
    return found.bound.values(rows.signed(weights)), weights, loss, totals


def test_mean_of_the_weighted_loglikelihood(sampled):
    """Five standard errors."""
    _, weights, loss, totals = sampled
    error = totals.std(axis=0) / np.sqrt(len(totals))
    assert (np.abs(totals.mean(axis=0) - weights @ loss) <= 5 * error).all()


def test_variance_of_the_weighted_loglikelihood(sampled):
    """Five standard errors, from the spread of the squares."""
    values, weights, loss, totals = sampled
    probabilities = weights * values / (weights @ values)
    expected = (weights**2 / probabilities) @ loss**2 - (weights @ loss) ** 2
    squares = (totals - weights @ loss) ** 2
    error = squares.std(axis=0) / np.sqrt(len(totals))
    assert (np.abs(squares.mean(axis=0) - expected / 7) <= 5 * error).all()


def test_a_size_for_a_guarantee_keeps_it():
    """In the whole disc, in all of 40 samples: at least 95 % of all are to."""
    rng = np.random.default_rng(12)
    rows = random_rows(rng, 4_000)
    loss = losses(rows, disc(np.zeros(2), 1.0)[::7])
    found = all_of(rows, size=1_000, extra=[loss], radius=1.0, epsilon=0.2)
    size = guaranteed_size(found.mean, 2, epsilon=0.2, delta=Sensitivity().delta)
    assert size < 4_000
    for key in range(40):
        subsample = found.draw(size, key=key)
        assert (
            np.abs(subsample.weights @ subsample.rows.arrays[-1] / loss.sum(axis=0) - 1) <= 0.2
        ).all()


def test_size_for_a_guarantee_is_that_of_the_theorem():
    size = guaranteed_size(8.0, 4, epsilon=0.1, delta=0.01)
    assert size == np.ceil(2 * 8 / 0.01 * (5 * np.log(8) + np.log(100)))


@pytest.mark.parametrize("mean", [1.5, 4.0, 50.0])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_size_for_a_guarantee_exceeds_what_bernstein_asks_for_at_one_point(mean, epsilon):
    single = 2 / epsilon**2 * (mean - 1) * (1 + epsilon / 3) * np.log(2 / 0.05)
    assert guaranteed_size(mean, 2, epsilon=epsilon, delta=0.05) > single


# -- refusals --------------------------------------------------------------------------------------


def test_options_with_a_center_can_be_compared():
    assert Sensitivity(center=np.ones(2)) == Sensitivity(center=[1.0, 1.0])


def test_a_guarantee_uses_exact_centers():
    assert Sensitivity(epsilon=0.1).uses_exact_centers
    assert not Sensitivity().uses_exact_centers


def test_rows_that_are_all_centers_need_a_radius():
    rows = Regression(design=np.ones((20, 1)), labels=np.repeat([-1.0, 1.0], 10))
    with refused(InvalidOptionError, "radius=...", "n_clusters"):
        bounds_of(rows, centers_of(rows, 2))
    # One unit of z apart from the other half at radius 1, twice that at -1 and 1.
    found = bounds_of(rows, centers_of(rows, 2), radius=1.0, exact_centers=True)
    assert found.values == pytest.approx(np.full(20, 2 / (1 + np.exp(-2))))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_designs_must_be_finite(bad):
    design = np.random.default_rng(14).normal(size=(30, 2))
    rows = Regression(design=design, labels=np.ones(30))
    centers = centers_of(rows)
    design[7, 1] = bad
    with refused(InvalidDataError, "design matrix", "NaN", topic="regressions"):
        bounds_of(rows, centers)
    with refused(InvalidDataError, "design matrix", "NaN", topic="regressions"):
        centers_of(rows)


# -- clustering ------------------------------------------------------------------------------------

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
