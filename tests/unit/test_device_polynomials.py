"""PASS statistics by JAX are those of the processor, whatever the blocks; or rows are named."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.glm.device_polynomials import DevicePolynomials
from pymc_coresets.glm.polynomial.reach import reach_pass
from pymc_coresets.glm.polynomial.settling import Passes, polynomial_pass
from pymc_coresets.glm.predictor.linear import find_linear_predictor
from pymc_coresets.glm.predictor.seen_rows import PredictorRows, SeenRows
from pymc_coresets.potentials.backends.choice import Jax
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rows.memory import InMemoryRows

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
    monkeypatch.setattr(DevicePolynomials, "block_rows", lambda *_: 256)


ROWS = InMemoryRows([], WEIGHTS, np.arange(N))


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
@pytest.mark.usefixtures("small_blocks")
def test_sums_are_those_of_the_processor(found, degree):
    seen, on_device = SeenRows(found), DevicePolynomials(found.density, degree)
    expected = ROWS.reduce(polynomial_pass(seen, degree, 4.0)).finished()
    statistics = ROWS.reduce(polynomial_pass(seen, degree, 4.0, on_device)).finished()
    assert statistics.n_obs == expected.n_obs == WEIGHTS.sum()
    size = max(np.abs(moment).max() for moment in expected.moments)  # odd ones may be 0
    for moment, wanted in zip(statistics.moments, expected.moments, strict=True):
        assert_allclose(moment, wanted, rtol=1e-10, atol=1e-12 * size)
    scale = expected.rising + expected.falling
    assert_allclose(statistics.rising, expected.rising, rtol=1e-10, atol=1e-12 * scale.max())
    assert_allclose(statistics.falling, expected.falling, rtol=1e-10, atol=1e-12 * scale.max())


@pytest.mark.usefixtures("small_blocks")
def test_the_reach_is_that_of_the_processor(found):
    seen, theta = SeenRows(found), RNG.normal(size=(5, P))
    on_device = DevicePolynomials(found.density, 2)
    expected = ROWS.reduce(reach_pass(seen, 2, 1.5, theta))
    reach = ROWS.reduce(reach_pass(seen, 2, 1.5, theta, on_device))
    assert reach.n_outside == expected.n_outside > 0
    assert_allclose(reach.max_error, expected.max_error, rtol=1e-10)


def test_a_row_without_a_finite_log_likelihood_is_named():
    found = predictor(KINDS["gamma"])
    on_device = DevicePolynomials(found.density, 2)
    values = {row.placeholder: row.values.copy() for row in found.density.rows}
    for array in values.values():
        array[600] = np.inf
    broken = replace(found, density=found.density.of_rows(values))
    with pytest.raises(InvalidDataError, match="of row 600 is "):
        ROWS.reduce(polynomial_pass(SeenRows(broken), 2, 4.0, on_device))


def test_sparse_designs_and_other_backends_stay_with_the_processor():
    def on_device(model, backend):
        loglik = LogLikelihood(find_observations(model), backend=backend)
        seen = SeenRows(find_linear_predictor(loglik.observations))
        return Passes(PredictorRows(seen, loglik))._on_device(2)

    with pm.Model() as dense:
        pm.Bernoulli("y", logit_p=X @ pm.Normal("b", shape=P), observed=np.arange(N) % 2)
    with pm.Model() as sparse:
        effect = pm.Normal("effect", shape=200)
        pm.Bernoulli("y", logit_p=effect[RNG.integers(0, 200, N)], observed=np.arange(N) % 2)
    assert on_device(dense, None) is None
    assert isinstance(on_device(dense, Jax()), DevicePolynomials)
    assert on_device(sparse, Jax()) is None
