"""PyMC's own inference runs on the coreset model, as on any model."""

import numpy as np
import pymc as pm
import pytest

from tests.builds import QUIET, of_some_rows
from tests.modes import PLAIN_MODE

N = 40


@pytest.fixture(scope="module")
def full():
    rng = np.random.default_rng(1)
    with pm.Model(coords={"obs": range(N), "k": ["a", "b"], "three": range(3)}) as model:
        x = pm.Data("x", rng.normal(size=(N, 2)), dims=("obs", "k"))
        b = pm.Normal("b", dims="k")
        mu = pm.Deterministic("mu", (x * b).sum(axis=1), dims="obs")  # compiles faster than x @ b
        pm.Deterministic("no_dims", pm.math.exp((x * b).sum(axis=1)))
        pm.Deterministic("two_of_three", mu[:, None] * np.ones(2), dims=("obs", "three"))
        pm.Normal("y", mu, pm.HalfNormal("s"), observed=rng.normal(size=N), dims="obs")
    return model


@pytest.fixture(scope="module")
def coreset(full):
    return of_some_rows(full, size=8).model


@pytest.fixture(scope="module")
def idata(coreset):
    return pm.sample(
        20, tune=20, chains=2, cores=1, model=coreset, nuts_sampler="pymc",
        compute_convergence_checks=False, compile_kwargs={"mode": PLAIN_MODE}, **QUIET,
    )  # fmt: skip


def test_nuts_records_what_is_not_along_the_rows(idata):
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == {"b", "s"}


@pytest.mark.slow  # nutpie compiles; test_sampler.py runs it on other models
def test_nutpie(coreset):
    pytest.importorskip("nutpie", reason="nutpie is not installed")
    idata = pm.sample(
        20, tune=20, chains=2, cores=1, model=coreset, nuts_sampler="nutpie",
        compute_convergence_checks=False, **QUIET,
    )  # fmt: skip
    assert set(idata["posterior"].data_vars) == {"b", "s"}


def test_posterior_predictive_of_all_rows(full, idata):
    predictive = pm.sample_posterior_predictive(idata, model=full, **QUIET)
    assert predictive["posterior_predictive"]["y"].sizes["obs"] == N


def test_prior_predictive(coreset):
    with pytest.warns(UserWarning, match="Potentials"):  # PyMC's, of any model that has one
        prior = pm.sample_prior_predictive(5, model=coreset, random_seed=1)
    assert set(prior["prior"].data_vars) == {"b", "s"}


@pytest.mark.slow
def test_mode(coreset):
    found = pm.find_MAP(model=coreset, progressbar=False, return_inferencedata=True, jitter=False)
    assert {"b", "s"} <= set(found["posterior"].data_vars)


@pytest.mark.slow  # compiles for half a minute
def test_variational_fit(coreset):
    approximation = pm.fit(10, model=coreset, **QUIET)
    assert approximation.sample(5)["posterior"]["b"].sizes["k"] == 2
