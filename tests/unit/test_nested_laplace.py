"""Nested Laplace approximations against hierarchies that are known in closed form."""

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.levels import conditionals
from pymc_coresets.sampling.levels.conditionals import find_conditionals
from pymc_coresets.sampling.levels.nested_laplace import find_nested_laplace

G, N_ROWS, P = 40, 12, 2
SHARED = P + 1


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(21)


@pytest.fixture(scope="module", params=[1, 2], ids=["intercepts", "slopes"])
def hierarchy(request, rng):
    """A linear model with normal effects around shared means: density, mean and covariance."""
    q = request.param
    z = np.concatenate([np.ones((G, N_ROWS, 1)), rng.normal(size=(G, N_ROWS, q - 1))], axis=2)
    x = rng.normal(size=(G, N_ROWS, P))
    y = x @ np.array([1.0, -2.0]) + (z @ rng.normal(0.5, 0.7, (G, q, 1)))[..., 0]
    y = y + rng.normal(size=y.shape)

    def density(shared, local):
        """Effects are normal around the first shared variable, with variance 1/2."""
        mean, slopes = shared[:, :1], shared[:, 1:]
        lines = np.einsum("gnp,bp->bgn", x, slopes) + np.einsum("gnq,bgq->bgn", z, local)
        prior = np.square(local - mean[:, :, None]).sum(axis=2)
        return -np.square(shared).sum(axis=1) / 50, -np.square(y - lines).sum(axis=2) / 2 - prior

    n_dims = SHARED + G * q
    design = np.zeros((G, N_ROWS, n_dims))
    design[..., 1:SHARED] = x
    precision = np.zeros((n_dims, n_dims))
    precision[:SHARED, :SHARED] = np.eye(SHARED) / 25
    for g in range(G):
        columns = SHARED + g * q + np.arange(q)
        design[g][:, columns] = z[g]
        for column in columns:
            contrast = np.eye(n_dims)[column] - np.eye(n_dims)[0]
            precision += 2 * np.outer(contrast, contrast)
    flat = design.reshape(-1, n_dims)
    covariance = np.linalg.inv(precision + flat.T @ flat)
    return density, q, covariance @ flat.T @ y.ravel(), covariance


def test_a_normal_hierarchy_is_found_exactly(hierarchy):
    density, q, mean, covariance = hierarchy
    found = find_nested_laplace(density, np.zeros(SHARED), G, q)
    np.testing.assert_allclose(found.mode, mean[:SHARED], atol=1e-6)
    np.testing.assert_allclose(
        found.spread @ found.spread.T, covariance[:SHARED, :SHARED], rtol=1e-5, atol=1e-9
    )
    shared, local = found.deviations()
    deviations = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(shared, deviations[:SHARED], rtol=1e-5)
    np.testing.assert_allclose(local.ravel(), deviations[SHARED:], rtol=1e-5)
    centre, _ = found.given(np.zeros((1, SHARED)))
    np.testing.assert_allclose(centre.ravel(), mean[SHARED:], atol=1e-5)


def test_draws_have_its_mean_and_covariance(hierarchy, rng):
    density, q, mean, covariance = hierarchy
    found = find_nested_laplace(density, np.zeros(SHARED), G, q)
    n_draws = 2_000
    for draws in (
        found.draw(n_draws, rng=rng),
        found.corrected(density, n_draws, rng=rng),
    ):
        x = np.concatenate([draws.shared, draws.local.reshape(n_draws, -1)], axis=1)
        z = (x.mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
        # Half of the draws of a pair, or of the proposals, are independent.
        assert np.abs(z).max() < 5 * np.sqrt(2 / n_draws)
        ratios = np.cov(x.T) / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        scaled = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        assert np.abs(ratios - scaled).max() < 6 * np.sqrt(2 / n_draws) * 1.5


def test_noise_comes_in_pairs_and_says_what_is_local(hierarchy, rng):
    density, q, *_ = hierarchy
    found = find_nested_laplace(density, np.zeros(SHARED), G, q)
    draws = found.draw(10, rng=rng)
    np.testing.assert_array_equal(draws.noise[:5], -draws.noise[5:])
    np.testing.assert_array_equal(draws.shared[:5], draws.shared[5:])
    np.testing.assert_allclose(draws.shared, found.mode + draws.whitened @ found.spread.T)
    centre, _ = found.given(draws.whitened[:5])
    np.testing.assert_allclose((draws.local[:5] + draws.local[5:]) / 2, centre)


def gammas(shared, local):
    """Logarithms of gamma variables of shape 3, whose logarithmic scales are shared."""
    x = local[..., 0] - shared
    with np.errstate(over="ignore"):
        return -np.square(shared[:, 0]) / 2, 3 * x - np.exp(x)


def test_skewed_groups_are_drawn_from_exactly(rng):
    found = find_nested_laplace(gammas, np.ones(1), 30, 1)
    draws = found.corrected(gammas, 1_000, rng=rng)
    x = draws.local[..., 0] - draws.shared
    n = x.size
    assert abs(x.mean() - digamma(3)) < 5 * np.sqrt(polygamma(1, 3) / n) + 0.002
    assert abs(x.var() / polygamma(1, 3) - 1) < 0.03
    third = np.mean((x - x.mean()) ** 3) / x.std() ** 3
    assert abs(third - polygamma(2, 3) / polygamma(1, 3) ** 1.5) < 0.06  # Laplace's is 0
    # The marginal is not changed by what integrates to a constant.
    np.testing.assert_allclose(found.mode, 0.0, atol=1e-3)
    np.testing.assert_allclose(found.spread, 1.0, rtol=1e-3)


def test_conditional_modes_are_found_from_far_away():
    start = np.full((1, 2, 1), -10.0)
    found = find_conditionals(gammas, np.zeros((1, 1)), start, np.zeros_like(start))
    np.testing.assert_allclose(found.centre, np.log(3), atol=1e-3)
    np.testing.assert_allclose(found.root, np.sqrt(3), rtol=2e-3)
    laplace = 2 * (3 * np.log(3) - 3 - np.log(3) / 2)
    np.testing.assert_allclose(found.log_marginal, laplace, atol=1e-3)


def test_a_density_without_bounds_has_no_mode():
    def rising(shared, local):
        return np.exp(shared[:, 0]), -np.square(local[..., 0])

    with pytest.raises(SamplingError, match="has no mode"):
        find_nested_laplace(rising, np.zeros(1), 2, 1)


def test_a_marginal_far_from_normal_is_refused(rng):
    def heavy(shared, local):
        return -0.6 * np.log1p(np.square(shared[:, 0])), -np.square(local[..., 0])

    found = find_nested_laplace(heavy, np.zeros(1), 2, 1)
    with pytest.raises(SamplingError, match="too far from normal"):
        found.corrected(heavy, 1_000, rng=rng)


def test_points_may_be_taken_a_few_at_a_time(hierarchy, monkeypatch):
    """As many as memory allows: what is found at each does not depend on the others."""
    density, q, *_ = hierarchy
    approximation = find_nested_laplace(density, np.zeros(SHARED), G, q)
    sizes = []

    def watched(shared, local):
        sizes.append(len(shared))
        return density(shared, local)

    def corrected():
        return approximation.corrected(watched, 60, rng=np.random.default_rng(1))

    together = corrected()
    assert max(sizes) == 120
    monkeypatch.setattr(conditionals, "_ENTRIES", 7 * G * q * (q + 3) // 2)
    sizes.clear()
    few = corrected()
    assert max(sizes) <= 7 * (q + 3) // 2
    np.testing.assert_allclose(few.shared, together.shared)
    # Random numbers come in another order; the moments are the same.
    spread = together.local.std(axis=0).max()
    np.testing.assert_allclose(few.local.mean(0), together.local.mean(0), atol=6 * spread / 60**0.5)
    np.testing.assert_allclose(few.noise.std(), together.noise.std(), rtol=0.1)
