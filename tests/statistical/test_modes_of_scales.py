"""Hierarchies whose scales have several modes: compared by what they hold, against a grid."""

import numpy as np
import pymc as pm
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import logsumexp

from tests.derived import proposed

RNG = np.random.default_rng(5)
N, LEVELS = 1_500, 12
LEVEL = RNG.integers(LEVELS, size=N)
EFFECT = 0.4 * RNG.normal(size=LEVELS)
NORMAL = EFFECT[LEVEL] + RNG.normal(size=N)
BINARY = (RNG.uniform(size=N) < 1 / (1 + np.exp(-EFFECT[LEVEL]))).astype(int)
NODES, LOG_SHARES = hermegauss(81)
LOG_SHARES = np.log(LOG_SHARES / LOG_SHARES.sum())


def hierarchy(own, weights, centres, *, centred=True, binary=True):
    """Return a model with effects whose log-scale has a prior of narrow components."""
    with pm.Model() as model:
        log_scale = pm.NormalMixture("log_scale", weights, mu=centres, sigma=0.3)
        scale = pm.math.exp(log_scale)
        effect = own(scale) if centred else scale * pm.Normal("effect", shape=LEVELS)
        if binary:
            pm.Bernoulli("y", logit_p=effect[LEVEL], observed=BINARY)
        else:
            pm.Normal("y", effect[LEVEL], 1.0, observed=NORMAL)
    return model


def of_each_level(scale):
    return pm.Normal("effect", 0, scale, shape=LEVELS)


def masses(weights, centres, *, binary=True):
    """Return those of the components, by a grid of the log-scale, and nodes for each effect."""
    counts, found = np.bincount(LEVEL), []
    sums = np.bincount(LEVEL, BINARY if binary else NORMAL)
    offsets = np.linspace(-2.0, 2.0, 121)
    for weight, centre in zip(weights, centres, strict=True):
        effect = np.exp(centre + offsets)[:, None, None] * NODES
        curved = np.logaddexp(0, effect) if binary else np.square(effect) / 2
        of_level = sums[:, None] * effect - counts[:, None] * curved
        log_density = logsumexp(of_level + LOG_SHARES, axis=2).sum(axis=1)
        found.append(np.log(weight) + logsumexp(log_density - np.square(offsets / 0.3) / 2))
    return np.exp(found - logsumexp(found))


SEVERAL = {
    "binary": ([0.02, 0.98], [-8.0, -0.5], {}),
    "binary, not centred": ([0.02, 0.98], [-8.0, -0.5], {"centred": False}),
    "near each other": ([0.02, 0.98], [-4.0, -0.5], {}),
    "normal": ([0.3, 0.7], [-8.0, -0.5], {"binary": False}),
    "normal, not centred": ([0.3, 0.7], [-8.0, -0.5], {"binary": False, "centred": False}),
}


def found_modes(model):
    return proposed(model, 100, start_size=N).modes


@pytest.mark.parametrize(
    "several",
    [
        pytest.param(
            v, id=n, marks=[pytest.mark.slow] * (n not in ("binary", "normal, not centred"))
        )
        for n, v in SEVERAL.items()
    ],
)
def test_modes_have_the_masses_of_a_grid(several):
    weights, centres, form = several
    modes = found_modes(hierarchy(of_each_level, weights, centres, **form))
    of_likelihood = {"binary": form.get("binary", True)}
    exact = masses(weights, centres, **of_likelihood)
    at = modes.positions["log_scale"].to_numpy()
    nearest = np.abs(at[:, None] - centres).argmin(axis=1)
    found = np.bincount(nearest, modes.mass, len(centres))
    # Laplace's approximation of both; a mode of less than a hundredth may be left out.
    np.testing.assert_allclose(found, exact, atol=0.05)
    assert ((found > 0) | (exact < 0.02)).all()


@pytest.mark.parametrize("centred", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_hierarchy_of_one_mode_has_one(centred):
    modes = found_modes(hierarchy(of_each_level, [1.0], [-0.5], centred=centred))
    assert modes.mass[0] > 0.99
    assert modes.is_complete


def with_slope(of_slope):
    """Return a hierarchy of two modes of the scale, and a slope known up to a second mode."""
    x = np.random.default_rng(3).normal(size=N)
    y = (RNG.uniform(size=N) < 1 / (1 + np.exp(-x))).astype(int)
    with pm.Model() as model:
        log_scale = pm.NormalMixture("log_scale", [0.3, 0.7], mu=[-4.0, -0.5], sigma=0.3)
        effect = of_each_level(pm.math.exp(log_scale))
        slope = of_slope(pm.Normal("root", 0, 2))
        pm.Bernoulli("y", logit_p=effect[LEVEL] + slope * x, observed=y)
    return model


@pytest.mark.slow
def test_images_of_modes_are_kept_beside_those_of_the_scales():
    modes = found_modes(with_slope(pm.math.sqr))
    root = modes.positions["root"].to_numpy()
    assert np.isclose(modes.mass[root < 0].sum(), 0.5)
    assert modes.is_complete


def test_other_modes_given_the_scales_make_the_search_incomplete():
    modes = found_modes(with_slope(lambda root: root * (root + 0.2)))
    assert not modes.is_complete


def test_the_only_mode_of_the_scales_may_be_far_from_the_joint_one():
    with pm.Model() as model:
        log_scale = pm.Normal("log_scale", -6.0, 0.6)
        effect = of_each_level(pm.math.exp(log_scale))
        pm.Bernoulli("y", logit_p=effect[LEVEL], observed=BINARY)
    [at] = found_modes(model).positions["log_scale"].to_numpy()
    assert abs(at + 6.0) < 0.6  # the joint one is at -10.3
