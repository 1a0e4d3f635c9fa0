"""Nothing of a model outlives its coreset: a process may build thousands."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytest

from pymc_coresets import ControlVariates, build_coreset

RNG = np.random.default_rng(5)
X = RNG.normal(size=(400, 2))
BINARY = (RNG.random(400) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
MEASURED = X[:, 0] + RNG.normal(size=400)
GROUP = np.arange(400) % 40


def logistic():
    pm.Bernoulli("y", logit_p=X @ pm.Normal("b", shape=2), observed=BINARY)


def scaled():
    """Its quadratics come from gradients: rows see all variables."""
    b, s = pm.Normal("b", shape=2), pm.HalfNormal("s")
    pm.StudentT("y", nu=4, mu=pm.math.tanh(X @ b), sigma=s, observed=MEASURED)


def units():
    effect = pm.Normal("effect", 0, pm.HalfNormal("tau"), shape=40)
    pm.Bernoulli("y", logit_p=pm.Normal("a") + effect[GROUP], observed=BINARY)


def two_modes():
    pm.Normal("y", X[:, 0] * pm.Normal("b", initval=0.8) ** 2, 1.0, observed=MEASURED)


KINDS = {
    "logistic": (logistic, {}),
    "logistic, with a quadratic": (logistic, {"method": "control_variates"}),
    "quadratic by gradients": (scaled, {"method": ControlVariates(tolerance=0.1)}),
    "units": (units, {"integrate": "effect"}),
    "several modes": (two_modes, {}),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            k, marks=[pytest.mark.slow] * (k in ("quadratic by gradients", "several modes"))
        )
        for k in KINDS
    ],
)
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
def test_nothing_outlives_a_coreset(kind):
    build, options = KINDS[kind]
    with pm.Model() as model:
        build()
    coreset = build_coreset(model, random_seed=1, progressbar=False, **options)
    coreset.check(coreset.sample(draws=200, random_seed=1, progressbar=False))
    held = [model, coreset, coreset.loglikelihood, coreset.loglikelihood.observations]
    known = [weakref.ref(one) for one in held]
    del model, coreset, held
    gc.collect()
    assert [one() for one in known] == [None] * 4
