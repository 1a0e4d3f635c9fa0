"""PASS statistics by JAX are those of the processor, whatever the blocks; or rows are named."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.glm import device_polynomials
from pymc_coresets.glm.device_polynomials import DevicePolynomials
from pymc_coresets.glm.polynomial.reach import predictor_reach
from pymc_coresets.glm.polynomial.replacement import polynomials_on_device, row_polynomials
from pymc_coresets.glm.polynomial.statistics import PolynomialSums
from pymc_coresets.glm.predictor.linear import find_linear_predictor
from pymc_coresets.potentials.backends.choice import Jax
from pymc_coresets.reading.observations import find_observations

N, P = 700, 3
RNG = np.random.default_rng(1)
X, OFFSET = RNG.normal(size=(N, P)), 0.3 * RNG.normal(size=N)
TRIALS = RNG.integers(1, 9, N)
WEIGHTS = RNG.integers(1, 4, N).astype(float)
KINDS = {
    "binomial": lambda eta: pm.Binomial("y", n=TRIALS, logit_p=eta, observed=TRIALS // 2),
    "gamma": lambda eta: pm.Gamma(
        "y", alpha=2.0, beta=2.0 * pm.math.exp(-eta), observed=RNG.gamma(2.0, size=N)
    ),
}


def predictor(kind, design=X):
    with pm.Model() as model:
        kind(design @ pm.Normal("beta", shape=P) + OFFSET)
    return find_linear_predictor(find_observations(model))


@pytest.fixture(scope="module", params=KINDS)
def found(request):
    return predictor(KINDS[request.param])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(device_polynomials, "_BLOCK_ROWS", (1, 256))


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
@pytest.mark.usefixtures("small_blocks")
def test_sums_are_those_of_the_processor(found, degree):
    rows, seen = row_polynomials(found, degree, 4.0), []
    host, device = PolynomialSums(degree, 4.0), DevicePolynomials(found.link, degree).sums(4.0)
    for sums, watch in ((host, None), (device, seen.append)):
        sums.add(found.design, rows, weights=WEIGHTS, on_block=watch)
        sums.add(found.design, rows)
    expected, statistics = host.finished(), device.finished()
    assert sum(seen) == N
    assert len(seen) > 1
    assert statistics.n_obs == expected.n_obs
    size = max(np.abs(moment).max() for moment in expected.moments)  # odd ones may be 0
    for moment, wanted in zip(statistics.moments, expected.moments, strict=True):
        assert_allclose(moment, wanted, rtol=1e-10, atol=1e-12 * size)
    scale = expected.rising + expected.falling
    assert_allclose(statistics.rising, expected.rising, rtol=1e-10, atol=1e-12 * scale.max())
    assert_allclose(statistics.falling, expected.falling, rtol=1e-10, atol=1e-12 * scale.max())


@pytest.mark.usefixtures("small_blocks")
def test_the_reach_is_that_of_the_processor(found):
    rows, theta = row_polynomials(found, 2, 1.5), RNG.normal(size=(5, P))
    on_device = DevicePolynomials(found.link, 2)
    expected = predictor_reach(found.design, rows, theta, WEIGHTS)
    reach = predictor_reach(found.design, rows, theta, WEIGHTS, on_device=on_device)
    assert reach.n_outside == expected.n_outside > 0
    assert_allclose(reach.max_error, expected.max_error, rtol=1e-10)


def test_a_row_without_a_finite_log_likelihood_is_named():
    found = predictor(KINDS["gamma"])
    on_device = DevicePolynomials(found.link, 2)
    values = [row.values.copy() for row in found.link.rows]
    for array in values:
        array[600] = np.inf
    rows = row_polynomials(replace(found, link=found.link.of_rows(values)), 2, 4.0)
    with pytest.raises(InvalidDataError, match="of row 600 is "):
        on_device.sums(4.0).add(found.design, rows)


def test_sparse_designs_and_other_backends_stay_with_the_processor():
    found = predictor(KINDS["binomial"])
    assert polynomials_on_device(found, 2) is None
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=200)
        pm.Bernoulli("y", logit_p=effect[RNG.integers(0, 200, N)], observed=np.arange(N) % 2)
    sparse = find_linear_predictor(find_observations(model))
    assert polynomials_on_device(replace(sparse, backend=Jax()), 2) is None
