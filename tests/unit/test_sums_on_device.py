"""PASS statistics whose sums JAX computes are those of the processor."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets.glm.polynomial import settling
from pymc_coresets.glm.polynomial.settling import PredictorRows, polynomial_pass
from pymc_coresets.glm.predictor.linear import find_linear_predictor
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.potentials.backends.evaluator import Jax
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rows.memory import InMemoryRows

pytest.importorskip("jax")

N, P = 700, 3
RNG = np.random.default_rng(1)
X, OFFSET = RNG.normal(size=(N, P)), 0.3 * RNG.normal(size=N)
TRIALS = RNG.integers(1, 9, N)
ROWS = InMemoryRows([], RNG.integers(1, 4, N).astype(float), np.arange(N))


def model_of(eta):
    pm.Binomial("y", n=TRIALS, logit_p=eta, observed=TRIALS // 2)


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_sums_are_those_of_the_processor(degree, monkeypatch):
    from pymc_coresets.glm.polynomial import sums_on_device  # noqa: PLC0415 - it needs JAX

    monkeypatch.setattr(SeenRows, "block_rows", lambda *_, **__: 256)
    monkeypatch.setattr(sums_on_device, "_CPU_ENTRIES", 2**9)  # of a part
    with pm.Model() as model:
        model_of(X @ pm.Normal("beta", shape=P) + OFFSET)
    seen = SeenRows(find_linear_predictor(find_observations(model)))
    expected, found = (
        ROWS.reduce(polynomial_pass(seen, degree, 4.0, on_device=on_device)).finished()
        for on_device in (False, True)
    )
    assert found.n_obs == expected.n_obs == ROWS.total_weight
    size = max(np.abs(moment).max() for moment in expected.moments)  # odd ones may be 0
    for moment, wanted in zip(found.moments, expected.moments, strict=True):
        assert moment.dtype == np.float64
        assert_allclose(moment, wanted, rtol=1e-10, atol=1e-12 * size)


def test_sparse_designs_and_other_backends_stay_with_the_processor(monkeypatch):
    asked = []

    def watched(*given, on_device):
        asked.append(on_device)
        return polynomial_pass(*given, on_device=on_device)

    monkeypatch.setattr(settling, "polynomial_pass", watched)
    with pm.Model() as dense:
        model_of(X @ pm.Normal("b", shape=P))
    with pm.Model() as sparse:
        model_of(pm.Normal("effect", shape=200)[RNG.integers(0, 200, N)])
    for model, backend in ((dense, None), (dense, Jax()), (sparse, Jax())):
        loglik = LogLikelihood(find_observations(model), backend=backend)
        seen = SeenRows(find_linear_predictor(loglik.observations))
        PredictorRows(seen, loglik).statistics(2, 4.0)
    assert asked == [False, True, False]


def test_blocks_are_larger_where_a_device_computes_what_is_wide():
    with pm.Model() as model:
        model_of(X @ pm.Normal("beta", shape=P))
    seen = SeenRows(find_linear_predictor(find_observations(model)))
    on_host, on_device = (polynomial_pass(seen, 6, 4.0, on_device=d).size for d in (False, True))
    assert on_device == 4 * on_host
    assert polynomial_pass(replace(seen, elsewhere=True), 6, 4.0, on_device=True).size == on_device
