"""Models that were written while PyTensor's `floatX` was float32: a process of their own each."""

import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import UnsupportedModelError
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.reading.folding import widened
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.units.placement import with_loops
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.starts import known_metric
from tests.models.units import by_grid, loglik_of, nodes_at, read
from tests.refusals import refused

_PROGRAM = """
import numpy as np, pymc as pm, pytensor
from pymc_coresets import build_coreset

assert pytensor.config.floatX == "float32"
rng = np.random.default_rng(1)
x = rng.normal(size=4_000)
y = rng.normal(1_000 + 2 * x)
with pm.Model() as model:
    slope, intercept = pm.Normal("slope", 0, 5), pm.Normal("intercept", 0, 1_000)
    sigma = pm.HalfNormal("sigma")
    pm.Normal("y", intercept + slope * pm.Data("x", x), sigma, observed=y)
coreset = build_coreset(model, random_seed=1, progressbar=False)
assert coreset.model["slope"].dtype == "float32"
assert coreset.objective < 0.01, coreset
options = {"draws": 100, "tune": 200, "chains": 2, "cores": 1, "progressbar": False}
idata = coreset.sample(random_seed=1, compute_convergence_checks=False, **options)
check = coreset.check(idata)
assert check.kl < 0.02, check
exact = coreset.importance_draws(random_seed=1)["posterior"]["slope"]
sd, [slope, _] = 1 / np.sqrt(np.square(x - x.mean()).sum()), np.polyfit(x, y, 1)
assert abs(exact.mean() - slope) < 0.3 * sd
assert 0.8 < exact.std() / sd < 1.25
assert abs(idata["posterior"]["slope"].mean() - slope) < sd
assert coreset.loo(idata, random_seed=1).elpd < -4_000
assert coreset.predict(idata, random_seed=1, progressbar=False)["posterior_predictive"]["y"].size
coreset.reweight(idata, random_seed=1)
"""

_COUNTS = """
import numpy as np, pymc as pm
from pymc_coresets import Coreset, build_coreset

rng = np.random.default_rng(1)
x = rng.normal(size=(4_000, 3))
with pm.Model() as model:
    eta = pm.Normal("intercept") + x @ pm.Normal("slopes", shape=3)
    pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(x @ [0.3, -0.2, 0.1])))
coreset = build_coreset(model, random_seed=1, progressbar=False)
assert coreset.certificate.reliable, coreset
coreset.importance_draws(random_seed=1)
"""

_LARGE_LOG_DENSITY = """
import numpy as np, pymc as pm
from pymc_coresets.predictive.pymc_densities import log_densities
from pymc_coresets.reading.user_model import terms_of

y = np.random.default_rng(1).normal(0, 30, size=4_000).astype("float32")
with pm.Model() as model:
    log_sd = pm.Normal("log_sd", dtype="float32")
    pm.Normal("y", pm.HalfNormal("mu"), pm.math.exp(log_sd), observed=y)
points = [{"log_sd": np.float32(x), "mu_log__": np.float32(x)} for x in (0, 1e-4)]
found = np.diff(log_densities([(model, terms_of(model))])(points))
assert model["mu"].dtype == "float32"
log = np.array([0, np.float32(1e-4)], dtype=float)
mu = sd = np.exp(log)
of_rows = -np.square((y.astype(float)[:, None] - mu) / sd).sum(axis=0) / 2 - len(y) * log
expected = of_rows - log**2 / 2 - mu**2 / 2 + log
assert abs(found - np.diff(expected)) < 1e-6, (found, np.diff(expected))  # of millions of nats
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [_PROGRAM, _COUNTS, _LARGE_LOG_DENSITY])
def test_everything_is_computed_in_double_precision(program):
    """In single precision the sum over rows alone is off by a tenth of a nat."""
    environment = {**os.environ, "PYTENSOR_FLAGS": "floatX=float32"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


def test_graphs_are_made_anew_with_casts_and_symbolic_operations():
    single, double = pt.vector("x", dtype="float32"), pt.vector("x", dtype="float64")
    log_sum = pt.logsumexp(pt.cast(single**2, "float32"))
    first = pt.set_subtensor(pt.zeros(2, dtype="float32")[0], single.sum())
    parts = pt.stack([log_sum, first.sum(), pt.cast(single.shape[0], "float32")])
    [wide] = widened([parts], {single: double})
    found = pytensor.function([double], wide, mode="FAST_COMPILE")([1e-9, 1.0])
    assert_allclose(found, [1.3132616875182228, 1 + 1e-9, 2], rtol=1e-14)


def test_a_loop_of_single_precision_is_refused():
    x = pt.vector("x", dtype="float32")
    total = pytensor.scan(lambda a, b: a + b, x, x[0], return_updates=False)[-1]
    with refused(UnsupportedModelError, "floatX = 'float64'"):
        widened([total], {x: pt.vector("x", dtype="float64")})


@pytest.fixture
def sampler():
    """NUTS of a normal distribution in single precision, whose mode is far from the start."""
    with pytensor.config.change_flags(floatX="float32"):
        y = np.random.default_rng(1).normal(20.0, 1.0, size=4_000)
        with pm.Model():
            pm.Normal("y", pm.Normal("mu", 0.0, 100.0), 1.0, observed=y)
            yield CoresetSampler(LogLikelihood(find_observations()), kind="nuts")


def test_chains_of_models_in_single_precision_arrive(sampler):
    every = sampler.loglikelihood.in_memory.all
    mean, sd = every.inputs[0].mean(), 1 / np.sqrt(4_000)
    points = sampler.drawn(every, np.ones(4_000), 400, rng=np.random.default_rng(1)).points
    assert_allclose(points.mean(), mean, atol=0.3 * sd)
    assert 0.8 < points.std() / sd < 1.25


def test_the_metric_that_is_known_serves_models_in_single_precision(sampler):
    every, space = sampler.loglikelihood.in_memory.all, sampler.space
    around = sampler.laplace(every, np.ones(4_000))
    points, _ = around.draw(50, rng=np.random.default_rng(1))
    known = Proposal(draws=space.constrain(points), log_ratios=np.zeros(50), around=around)
    options = {"chains": 2, "compile_kwargs": {}, "random_seed": 1}
    options = known_metric(space.model, known, space, options)
    quick = {"draws": 200, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
    idata = pm.sample(model=space.model, **options, **quick)
    assert_allclose(idata["posterior"]["mu"].mean(), around.location[0], atol=0.3 / np.sqrt(4_000))
    points = sampler.drawn_in_metric(
        every, np.ones(4_000), 200, starts=points, metric=around.largest.factor,
        rng=np.random.default_rng(1),
    ).points  # fmt: skip
    assert_allclose(points.mean(), around.location[0], atol=0.3 / np.sqrt(4_000))


def test_effects_are_integrated_out_in_double_precision():
    units, y = np.repeat(np.arange(5), 3), np.random.default_rng(1).normal(size=15)
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            effect = pm.Normal("effect", 0.0, pm.HalfNormal("scale"), shape=5)
            pm.StudentT("y", nu=5, mu=effect[units], sigma=1.0, observed=y)
        x = np.array([0.2])
        found = nodes_at(read(model, "effect"), 25, x)
        assert_allclose(loglik_of(found)(x), by_grid(found, x), rtol=1e-5)
        assert with_loops(found.loglik).dtype == "float64"
