import numpy as np
import pytest

from pymc_coresets import InvalidDataError
from pymc_coresets.rows.memory import InMemoryRows
from tests.refusals import refused

CASE_WEIGHTS = np.array([1.0, 2.0, 0.0, 4.0, 0.5])
SIZE, REPEATS = 3, 20_000


@pytest.fixture(scope="module")
def samples():
    source, weights = InMemoryRows([np.arange(5)], CASE_WEIGHTS), np.zeros((REPEATS, 5))
    for key, row in enumerate(weights):
        subsample = source.subsample(SIZE, key=key)
        row[subsample.rows.positions] = subsample.weights
    return weights


def test_mean_is_the_base_weight(samples):
    """Five standard errors of the mean."""
    error = samples.std(axis=0) / np.sqrt(REPEATS)
    assert (np.abs(samples.mean(axis=0) - CASE_WEIGHTS) <= 5 * error).all()


def test_covariance_is_multinomial(samples):
    """Five standard errors of each entry, from the spread of the products."""
    total = CASE_WEIGHTS.sum()
    expected = (total * np.diag(CASE_WEIGHTS) - np.outer(CASE_WEIGHTS, CASE_WEIGHTS)) / SIZE
    centred = samples - CASE_WEIGHTS
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(axis=0) / np.sqrt(REPEATS)
    assert (np.abs(products.mean(axis=0) - expected) <= 5 * error + 1e-12).all()


def test_every_sample_has_the_total_mass(samples):
    assert samples.sum(axis=1) == pytest.approx(CASE_WEIGHTS.sum())
    assert (np.count_nonzero(samples, axis=1) <= SIZE).all()


def test_distinct_rows_follow_successive_sampling():
    """Shares of the pairs of two distinct rows, within five standard errors."""
    source = InMemoryRows([np.arange(5)], CASE_WEIGHTS)
    n, pairs = 20_000, np.zeros((5, 5))
    for key in range(n):
        subsample = source.subsample(2, key=key, distinct=True)
        first, second = subsample.rows.positions
        pairs[first, second] += 1 / n
        assert subsample.weights.sum() == pytest.approx(CASE_WEIGHTS.sum())
    p = CASE_WEIGHTS / CASE_WEIGHTS.sum()
    first_then_second = np.outer(p, p) / (1 - p)[:, None]
    expected = np.triu(first_then_second + first_then_second.T, 1)
    assert np.all(np.abs(pairs - expected) <= 5 * np.sqrt(expected * (1 - expected) / n) + 1e-12)


def test_weights_of_distinct_rows_add_up_to_those_of_all():
    """Estimates of a sum over unequal rows are right in the mean, within five standard errors."""
    rng = np.random.default_rng(5)
    base, x = rng.lognormal(sigma=1.5, size=400), rng.normal(size=400)
    source, estimates = InMemoryRows([x], base), []
    for key in range(4_000):
        subsample = source.subsample(60, key=key, distinct=True)
        estimates.append(subsample.weights @ subsample.rows.arrays[0])
    error = np.std(estimates) / np.sqrt(len(estimates))
    equal_weights = base.sum() * x.mean()
    assert abs(np.mean(estimates) - base @ x) < 5 * error < abs(equal_weights - base @ x)


def test_smaller_samples_of_distinct_rows_are_parts_of_larger_ones():
    source = InMemoryRows([np.arange(50)], np.random.default_rng(1).random(50))
    found = [set(source.subsample(n, key=3, distinct=True).rows.positions) for n in (5, 20, 50)]
    assert found[0] < found[1] < found[2] == set(range(50))


def test_no_more_distinct_rows_than_there_are():
    subsample = InMemoryRows([np.arange(5)], CASE_WEIGHTS).subsample(100, key=1, distinct=True)
    assert subsample.rows.positions.tolist() == [0, 1, 3, 4]
    assert subsample.weights.tolist() == [1.0, 2.0, 4.0, 0.5]


@pytest.mark.parametrize("bad", [[0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0], [np.inf, 1.0]])
def test_bad_case_weights_are_rejected(bad):
    with refused(InvalidDataError, "case_weights", topic="rows-and-files"):
        InMemoryRows([np.arange(2)], np.array(bad))
