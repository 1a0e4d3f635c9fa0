"""Proofs of log-concavity: no claim that numbers contradict, and no search where there is one."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_coresets import build_coreset
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.log_concavity import (
    AFFINE,
    Convexities,
    is_log_concave,
    rows_are_log_concave,
)
from tests.modes import PLAIN_MODE

RNG = np.random.default_rng(1)
X = RNG.normal(size=(50, 3))
BINARY, COUNTS, MEASURED = (X[:, 0] > 0).astype(int), RNG.poisson(2, 50), X[:, 1]


def normal():
    return pm.Normal("b", 0, 1, shape=3)


def model_of(likelihood, prior=normal):
    with pm.Model() as model:
        likelihood(X @ prior())
    return model


CONCAVE = {
    "logistic": lambda e: pm.Bernoulli("y", logit_p=e, observed=BINARY),
    "logistic by p": lambda e: pm.Bernoulli("y", p=pm.math.sigmoid(e), observed=BINARY),
    "binomial": lambda e: pm.Binomial("y", 9, logit_p=e, observed=COUNTS),
    "poisson": lambda e: pm.Poisson("y", pm.math.exp(e), observed=COUNTS),
    "normal": lambda e: pm.Normal("y", e, 2.0, observed=MEASURED),
    "laplace": lambda e: pm.Laplace("y", e, 2.0, observed=MEASURED),
    "gamma": lambda e: pm.Gamma("y", 2.0, 2.0 / pm.math.exp(e), observed=COUNTS + 0.5),
    "weibull": lambda e: pm.Weibull("y", 2.0, pm.math.exp(e), observed=COUNTS + 0.5),
    "softmax": lambda e: pm.Categorical(
        "y", logit_p=pt.stack([e, -e, 2 * e], axis=1), observed=COUNTS % 3
    ),
    "known scale of effects": lambda e: pm.Bernoulli(
        "y",
        logit_p=e + pm.Normal("a", pm.Normal("m"), 1.0, shape=5)[COUNTS % 5],
        observed=BINARY,
    ),
    "normal in a logarithm": lambda e: pm.Poisson(
        "y", pm.math.exp(e) * pm.LogNormal("a", 0.0, 1.0), observed=COUNTS
    ),
}
OTHERS = {
    "free scale": lambda e: pm.Normal("y", e, pm.HalfNormal("s"), observed=MEASURED),
    "student": lambda e: pm.StudentT("y", nu=4, mu=e, sigma=1.0, observed=MEASURED),
    "squares": lambda e: pm.Normal("y", e**2, 1.0, observed=MEASURED),
    "free scale of effects": lambda e: pm.Bernoulli(
        "y",
        logit_p=e + pm.Normal("a", 0, pm.HalfNormal("t"), shape=5)[COUNTS % 5],
        observed=BINARY,
    ),
    "jump at a free place": lambda e: pm.Normal(
        "y", pm.math.switch(e > pm.Normal("at"), 1.0, 0.0), 1.0, observed=MEASURED
    ),
    "equal on a half-space": lambda e: pm.Potential(
        "y", pt.switch(pt.eq(pt.maximum(e, 0.0), 0.0), e, -e)
    ),
    "equal where a square is zero": lambda e: pm.Potential(
        "y", pt.switch(pt.eq(pt.sqr(pt.maximum(e, 0.0)), 0.0), e, -2 * e)
    ),
    "complement of a probability by squares": lambda e: pm.Bernoulli(
        "y", p=pm.math.sigmoid(-(e**2)), observed=0 * BINARY
    ),
    "discrete": lambda e: pm.Normal("y", e + pm.Bernoulli("k", 0.3), 1.0, observed=MEASURED),
}


def proven(model):
    return is_log_concave(LogLikelihood(find_observations(model)))


@pytest.mark.parametrize("kind", CONCAVE)
def test_what_is_proven_is_concave_by_the_density_of_pymc(kind):
    model = model_of(CONCAVE[kind])
    assert proven(model)
    logp = model.compile_logp(mode=PLAIN_MODE)
    n_dims = sum(np.size(value) for value in model.initial_point().values())
    for one, other in 2.0 * np.random.default_rng(2).normal(size=(12, 2, n_dims)):
        values = [logp(point_of(model, x)) for x in (one, other, (one + other) / 2)]
        assert values[2] >= (values[0] + values[1]) / 2 - 1e-9 * abs(values[2])


def point_of(model, x):
    point, used = {}, 0
    for name, start in model.initial_point().items():
        point[name] = x[used : used + start.size].reshape(start.shape)
        used += start.size
    return point


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_concave_is_not_proven(kind):
    assert not proven(model_of(OTHERS[kind]))


@pytest.mark.parametrize(
    ("prior", "is_concave"),
    [
        (lambda: pm.Laplace("b", 0, 1, shape=3), True),
        (lambda: pm.Flat("b", shape=3), True),
        (lambda: pm.StudentT("b", nu=3, shape=3), False),
        (lambda: pm.Cauchy("b", 0, 1, shape=3), False),
        (lambda: pm.NormalMixture("b", [0.5, 0.5], mu=[-1, 1], sigma=0.1, shape=3), False),
    ],
)
def test_the_prior_counts(prior, is_concave):
    assert proven(model_of(CONCAVE["logistic"], prior)) is is_concave


def test_nothing_is_known_of_rows_of_discrete_variables():
    assert not rows_are_log_concave(find_observations(model_of(OTHERS["discrete"])))


def test_nothing_is_known_of_rows_whose_signs_are_not():
    """With negative numbers of trials, which no model has, terms are convex."""
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.CustomDist("y", b, logp=lambda y, b: y * -pt.exp(b), observed=MEASURED)
    assert not proven(model)


# -- rules -----------------------------------------------------------------------------------------

ONE = [pt.exp, pt.softplus, pt.sigmoid, pt.sqr, pt.abs, pt.log1p, pt.neg, pt.erfc, pt.sqrt, pt.log]
TWO = [pt.add, pt.sub, pt.mul, pt.true_div, pt.maximum, pt.minimum]
LEAVES = st.sampled_from(["x", "y", "2", "-1", "0.5"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(ONE), inner), st.tuples(st.sampled_from(TWO), inner, inner)
    ),
    max_leaves=6,
)
PLACES = np.random.default_rng(3).uniform(-2, 2, size=(2, 2, 200))


def graph_of(tree, inputs):
    if isinstance(tree, str):
        return inputs[tree] if tree in inputs else pt.constant(float(tree))
    function, *arguments = tree
    return function(*(graph_of(one, inputs) for one in arguments))


@given(TREES)
@settings(max_examples=150, deadline=None)
def test_no_rule_claims_what_numbers_contradict(tree):
    inputs = {"x": pt.vector("x"), "y": pt.vector("y")}
    graph = graph_of(tree, inputs)
    claimed = Convexities(dict.fromkeys(inputs.values(), AFFINE), {}).of(graph)
    evaluated = numpy_function(list(inputs.values()), [graph * pt.ones_like(inputs["x"])])
    with np.errstate(all="ignore"):
        one, other, middle = (evaluated(*at)[0] for at in (*PLACES, PLACES.mean(axis=0)))
        mean, logs = (one + other) / 2, np.log(middle) - (np.log(one) + np.log(other)) / 2
        rounding = 1e-9 * (1 + np.abs(one) + np.abs(other))
        contradicted = {
            "convex": middle > mean + rounding,
            "concave": middle < mean - rounding,
            "log_convex": logs > 1e-9,
            "log_concave": logs < -1e-9,
            "nonnegative": middle < 0,
        }
    # Where a logarithm is not defined, nothing is claimed.
    defined = np.isfinite(one) & np.isfinite(other) & np.isfinite(middle)
    for name, against in contradicted.items():
        assert not (getattr(claimed, name) and (against & defined).any()), name


@pytest.mark.parametrize(("exponent", "is_even"), [(4, True), (3, False), ([2, 3, 2], False)])
def test_even_powers_are_convex(exponent, is_even):
    x = pt.vector("x")
    found = Convexities({x: AFFINE}, {}).of(pt.pow(x, np.array(exponent)))
    assert (found.convex, found.nonnegative, found.concave) == (is_even, is_even, False)


def test_a_square_is_not_positive_everywhere():
    x = pt.vector("x")
    never = pt.gt(pt.sqr(0.0 * x), 0.0)
    found = Convexities({x: AFFINE}, {}).of(pt.switch(never, -pt.sqr(x), pt.sqr(x)))
    assert (found.concave, found.convex) == (False, False)


# -- builds ----------------------------------------------------------------------------------------


def test_no_other_modes_are_looked_for_in_a_log_concave_posterior():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3_000, 3))
    y = rng.random(3_000) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5]))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        pm.Bernoulli("y", logit_p=x @ b, observed=y)
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    assert coreset.modes.n_starts == 0
    assert coreset.modes.n_ended.sum() == 0
    assert "log-concave" in repr(coreset.modes)
    assert "log-concave" in coreset.certificate.modes.words
    assert coreset.certificate.verdict.text.startswith("Reliable: ")
