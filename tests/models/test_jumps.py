"""Models in which rows see a variable by comparisons alone, and others that look like these."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_coresets import UnsupportedModelError, build, build_coreset
from tests.builds import QUIET

T = np.linspace(0.0, 1.0, 1_000)


def switched(t, tau, a):
    return pm.math.switch(tau > t, a[0], a[1])


def looked_up(t, tau, a):
    return a[(t >= tau).astype("int64")]


def multiplied(t, tau, a):
    return a[0] + a[1] * (t < tau)


def rounded(t, tau, a):
    return a[0] * pt.floor(10 * tau * t)


def hinged(t, tau, a):
    return pm.math.switch(t > tau, a[0] * (t - tau), 0.0)


def smooth(t, tau, a):
    return a[0] + (a[1] - a[0]) * pm.math.sigmoid((t - tau) / 0.01)


def model_of(mean, prior=pm.Uniform):
    """A normal outcome whose scale is free, which PyMC compares with zero."""
    with pm.Model() as model:
        t = pm.Data("t", T)
        mean = mean(t, prior("tau"), pm.Normal("a", shape=2))
        pm.Normal("y", mean, pm.HalfNormal("s"), observed=np.ones_like(T))
    return model


class ArrivedError(Exception):
    """Rows are about to be chosen."""


@pytest.fixture
def complaint(fails):
    """Say why a model is refused before rows are chosen; nothing where it is not."""
    fails(build, "Job", ArrivedError())

    def complain(model):
        with pytest.raises((UnsupportedModelError, ArrivedError)) as caught:
            build_coreset(model, **QUIET)
        return "" if caught.type is ArrivedError else str(caught.value)

    return complain


@pytest.mark.parametrize("mean", [switched, looked_up, multiplied, rounded])
def test_the_variable_is_named_with_what_to_write(mean, complaint):
    assert re.search(r"'tau' by a comparison .*pm\.math\.sigmoid", complaint(model_of(mean)))


@pytest.mark.parametrize("mean", [hinged, smooth])
def test_what_has_a_slope_is_not_refused(mean, complaint):
    assert not complaint(model_of(mean))


def test_discrete_variables_have_messages_of_their_own(complaint):
    def count(name):
        return pm.DiscreteUniform(name, 0, 1)

    assert not complaint(model_of(switched, prior=count))
