"""BLAS has one thread in all that takes long: for small matrices, others only wait."""

import numpy as np
import pymc as pm
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import pymc_coresets as pmc
from pymc_coresets.sampling.factors.cholesky import DenseFactor

QUIET = {"random_seed": 1, "progressbar": False}


def threads():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture
def seen(monkeypatch):
    """The numbers of BLAS threads when normal distributions are factorised or used."""
    found = set()
    for name in ("__init__", "solve", "whiten", "offset"):
        usual = getattr(DenseFactor, name)

        def counted(self, *args, usual=usual, **kwargs):
            found.update(threads())
            return usual(self, *args, **kwargs)

        monkeypatch.setattr(DenseFactor, name, counted)
    return found


@pytest.fixture(scope="module")
def model():
    x = np.random.default_rng(1).normal(size=(3_000, 26))
    with pm.Model() as model:
        eta = 0.5 + x @ pm.Normal("b", 0, 1, shape=26)
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(3_000) % 4)
    return model


def test_builds_samples_and_checks_use_one_thread(model, seen):
    with threadpool_limits(2, "blas"):
        coreset = pmc.build_coreset(model, method="control_variates", **QUIET)
        coreset.importance_draws(random_seed=1)
        coreset.check(coreset.sample(**QUIET))
        assert seen == {1}
        assert threads() == {2}  # of the user, as before


def test_one_call_uses_one_thread(model, seen):
    with threadpool_limits(2, "blas"):
        pmc.sample(model, **QUIET)
    assert seen == {1}
