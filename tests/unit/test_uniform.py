import numpy as np
import pytest

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.methods.uniform import sample_uniform

BASE_WEIGHTS = np.array([1.0, 2.0, 0.0, 4.0, 0.5])
SIZE, REPEATS = 3, 40_000


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(20)
    weights = np.zeros((REPEATS, 5))
    for row in weights:
        indices, row_weights = sample_uniform(BASE_WEIGHTS, SIZE, rng=rng)
        row[indices] = row_weights
    return weights


def test_mean_is_the_base_weight(samples):
    """Five standard errors of the mean."""
    error = samples.std(axis=0) / np.sqrt(REPEATS)
    assert (np.abs(samples.mean(axis=0) - BASE_WEIGHTS) <= 5 * error).all()


def test_covariance_is_multinomial(samples):
    """Five standard errors of each entry, from the spread of the products."""
    total = BASE_WEIGHTS.sum()
    expected = (total * np.diag(BASE_WEIGHTS) - np.outer(BASE_WEIGHTS, BASE_WEIGHTS)) / SIZE
    centred = samples - BASE_WEIGHTS
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(axis=0) / np.sqrt(REPEATS)
    assert (np.abs(products.mean(axis=0) - expected) <= 5 * error + 1e-12).all()


def test_every_sample_has_the_total_mass(samples):
    assert samples.sum(axis=1) == pytest.approx(BASE_WEIGHTS.sum())
    assert (np.count_nonzero(samples, axis=1) <= SIZE).all()


@pytest.mark.parametrize("bad", [[0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [[1.0]], [np.inf, 1.0]])
def test_bad_base_weights_are_rejected(bad):
    with pytest.raises(InvalidDataError, match="base_weights"):
        sample_uniform(bad, 1, rng=np.random.default_rng(1))
