"""Nodes that stay: densities near that of units, whose draws have the same distribution."""

import logging
from functools import cache

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import build_coreset
from pymc_coresets.sampling.units import staying_nodes

N_UNITS, N_EACH = 300, 5
UNIT = np.repeat(np.arange(N_UNITS), N_EACH)


@cache
def surrogate(kind):
    """Return what stands for all units of a model, and a normal distribution near it."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=len(UNIT))
    with pm.Model():
        sd = pm.HalfNormal("sd", 1.0)
        if kind == "intercepts":
            eta = pm.Normal("a", pm.Normal("mean"), sd, shape=N_UNITS)[UNIT]
        elif kind == "two":
            each = pm.Normal("a", [0.5, 0.0], sd, shape=(N_UNITS, 2))
            eta = each[UNIT, 0] + each[UNIT, 1] * x
        else:
            eta = pm.Normal("mean") + 2.0 * pm.Bernoulli("a", 0.4, shape=N_UNITS)[UNIT] * sd
        seen = rng.poisson(np.exp(rng.normal(0.5, 0.5, N_UNITS)[UNIT]))
        pm.Poisson("y", pm.math.exp(eta), observed=seen)
        coreset = build_coreset(integrate=["a"], random_seed=1, progressbar=False)
    return coreset._posterior, coreset


def points_near(middle, n=20):
    return middle + 0.03 * np.random.default_rng(2).normal(size=(n, len(middle)))


@pytest.mark.parametrize("kind", ["intercepts", pytest.param("two", marks=pytest.mark.slow)])
def test_values_and_gradients_are_near_those_of_nodes_that_follow(kind, limits):
    """More nodes have a smaller error where they stay, and one of tenths of nats around it."""
    posterior, _ = surrogate(kind)
    middle = posterior.loglikelihood.observations.at
    points = np.concatenate([middle[None], points_near(middle)])
    own = posterior.as_loops.slopes(points)
    limits(degrees=(5, 7))
    errors = []
    for near in staying_nodes.with_staying_nodes(posterior, middle):
        found = near.slopes(points)
        assert_allclose(found.values, near.log_density(points), rtol=1e-10)
        away = found.values - own.values
        of_gradients = np.abs(found.gradients - own.gradients).max() / np.abs(own.gradients).max()
        errors.append([abs(away[0]), away[1:].std(), of_gradients])
    assert len(errors) == 2
    assert errors[1][0] < 0.2 * errors[0][0]
    assert max(errors[1]) < 0.2


@pytest.mark.parametrize("kind", ["intercepts", pytest.param("two", marks=pytest.mark.slow)])
def test_gradients_are_those_of_the_values(kind):
    posterior, _ = surrogate(kind)
    middle = posterior.loglikelihood.observations.at
    near = next(staying_nodes.with_staying_nodes(posterior, middle))
    [point] = points_near(middle, 1)
    step = 1e-5 * np.eye(len(point))
    found = near.slopes(point[None]).gradients[0]
    differences = near.log_density(point + step) - near.log_density(point - step)
    assert_allclose(differences / 2e-5, found, rtol=1e-5, atol=1e-5)


def test_discrete_variables_have_no_nodes():
    posterior, _ = surrogate("discrete")
    middle = posterior.space.start
    assert not list(staying_nodes.with_staying_nodes(posterior, middle))


@pytest.mark.usefixtures("not_independent")
def test_chains_along_their_gradients_are_draws_of_the_same_posterior(limits, caplog):
    _, coreset = surrogate("intercepts")
    means = []
    for degrees in ((5,), ()):
        limits(degrees=degrees, nearby=3.0)
        with caplog.at_level(logging.INFO, "pymc_coresets"):
            idata = coreset.sample(var_names=["mean", "sd"], random_seed=1, progressbar=False)
        assert ("Trajectories follow" in caplog.text) == bool(degrees)
        caplog.clear()
        means.append(idata["posterior"].to_dataset().mean(("chain", "draw")))
    sds = idata["posterior"].to_dataset().std(("chain", "draw"))
    for name in ("mean", "sd"):  # of 1,000 effective draws each, at four errors
        assert abs(means[0][name] - means[1][name]) < 4 * sds[name] * (2 / 1_000) ** 0.5
