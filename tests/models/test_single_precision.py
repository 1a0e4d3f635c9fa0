"""Models that were written while PyTensor's `floatX` was float32: a process of their own each."""

import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor
import pytest
from numpy.testing import assert_allclose

from tests.models.units import by_grid, loglik_of, nodes_at, read

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
import numpy as np, pymc as pm, xarray as xr
from pymc_coresets import build_coreset

y = np.random.default_rng(1).normal(0, 30, size=4_000).astype("float32")
with pm.Model() as model:
    log_sd = pm.Normal("log_sd", dtype="float32")
    pm.Normal("y", pm.HalfNormal("mu"), pm.math.exp(log_sd), observed=y)
assert model["mu"].dtype == "float32"
coreset = build_coreset(model, size=500, method="uniform", random_seed=1, progressbar=False)
log = 1e-4 * np.random.default_rng(2).normal(size=(2, 10))
posterior = {"log_sd": (("chain", "draw"), log), "mu": (("chain", "draw"), np.exp(log))}
found = coreset.verify(xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)}), draws=20)
assert found.n_draws == 20
assert found.difference < 1e-6, found  # of millions of nats
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [_PROGRAM, _COUNTS, _LARGE_LOG_DENSITY])
def test_everything_is_computed_in_double_precision(program):
    """In single precision the sum over rows alone is off by a tenth of a nat."""
    environment = {**os.environ, "PYTENSOR_FLAGS": "floatX=float32"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


def test_effects_are_integrated_out_in_double_precision():
    units, y = np.repeat(np.arange(5), 3), np.random.default_rng(1).normal(size=15)
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            effect = pm.Normal("effect", 0.0, pm.HalfNormal("scale"), shape=5)
            pm.StudentT("y", nu=5, mu=effect[units], sigma=1.0, observed=y)
        x = np.array([0.2])
        found = nodes_at(read(model, "effect"), 25, x)
        assert_allclose(loglik_of(found)(x), by_grid(found, x), rtol=1e-5)
