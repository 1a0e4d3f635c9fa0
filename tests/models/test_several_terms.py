"""Likelihood terms with rows of their own: each has its rows and weights in one coreset."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import (
    InvalidDataError,
    UnsupportedModelError,
    build_coreset,
    open_rows,
)
from tests.builds import of_all_rows, of_some_rows, read
from tests.models.reference import density
from tests.modes import PLAIN_MODE
from tests.refusals import refused, warned

rng = np.random.default_rng(0)
N, OTHERS = 23, 17
X, Z = rng.normal(size=N), rng.normal(size=OTHERS)
Y, COUNT = 1 + X + rng.normal(size=N), rng.poisson(2.0, size=OTHERS)
GROUP = np.arange(OTHERS) % 4


def line():
    a, b = pm.Normal("a"), pm.Normal("b")
    mu = pm.Deterministic("mu", a + b * pm.Data("x", X, dims="obs"), dims="obs")
    pm.Normal("y", mu, pm.HalfNormal("s"), observed=Y, dims="obs")
    return a, b


def two_lengths():
    a, b = line()
    effect = pm.Normal("effect", shape=4)
    pm.Poisson("z", pm.math.exp(a + b * Z + effect[GROUP]), observed=COUNT)


def two_dims_of_equal_length():
    a, _ = line()
    pm.Normal("z", a, 2.0, observed=X[::-1], dims="other")


def a_sum_beside_a_term():
    a, b = line()
    pm.Potential("z", pm.logcdf(pm.Normal.dist(a + b * Z, 1.0), 0.5).sum())


def missing_in_different_rows():
    a, b = pm.Normal("a"), pm.Normal("b")
    pm.Normal("y", a, 1.0, observed=np.ma.masked_array(Y, np.arange(N) == 2))
    pm.Normal("z", b, 1.0, observed=np.ma.masked_array(X, np.arange(N) == 5))


def a_matrix_and_a_vector():
    a, _ = line()
    pm.Normal("z", a * np.arange(1.0, 4.0), 1.0, observed=rng.normal(size=(OTHERS, 3)))


MODELS = {
    two_lengths: ["y", "z"],
    two_dims_of_equal_length: ["y", "z"],
    a_sum_beside_a_term: ["y", "z"],
    missing_in_different_rows: ["y_observed", "z_observed"],
    a_matrix_and_a_vector: ["z", "y"],
}


@pytest.fixture(params=MODELS, ids=lambda build: build.__name__, scope="module")
def found(request):
    with (
        pytest.warns(match="missing values") if "missing" in request.param.__name__ else _nothing(),
        pm.Model(coords={"obs": range(N), "other": range(N)}) as model,
    ):
        request.param()
    return of_all_rows(model, observed=MODELS[request.param])


def _nothing():
    return pytest.MonkeyPatch.context()


def points(model):
    rng = np.random.default_rng(1)
    start = model.initial_point(random_seed=1)
    return [{n: v + rng.uniform(-0.5, 0.5, np.shape(v)) for n, v in start.items()} for _ in "ab"]


def test_unit_weights_on_all_rows_give_the_full_model(found):
    full = found.loglikelihood.observations.model
    small = density(found.model)
    full_density = density(full)
    for point in points(full):
        (logp, gradient), (expected, slopes) = small(point), full_density(point)
        assert_allclose(logp, expected, rtol=1e-9)
        for name, slope in slopes.items():
            assert_allclose(gradient[name], slope, rtol=1e-8, atol=1e-8, err_msg=name)


def test_potentials_are_pymcs(found):
    """A build compares them: here are all rows of both, and none depends on others."""
    observations = found.loglikelihood.observations
    assert found.size == sum(s.stop - s.start for s in observations.sets)
    assert not observations.local
    assert not observations.unselected


def test_each_row_counts_for_its_own_term_alone():
    with pm.Model(coords={"obs": range(N)}) as model:
        two_lengths()
    coreset = of_some_rows(model, size=20, observed=["y", "z"])
    weights, small = np.zeros(N + OTHERS), density(coreset.model)
    weights[coreset.indices] = coreset.weights
    assert all(np.unique(part).size > 2 for part in (weights[:N], weights[N:]))
    of_terms = model.compile_logp(vars=[model["y"], model["z"]], sum=False, mode=PLAIN_MODE)
    prior = model.compile_logp(vars=model.free_RVs, mode=PLAIN_MODE)
    for point in points(model):
        y, z = of_terms(point)
        expected = prior(point) + weights[:N] @ y + weights[N:] @ z
        assert_allclose(small(point)[0], expected, rtol=1e-9)


def test_what_is_as_long_as_the_data_is_left_out_of_the_model():
    with pm.Model(coords={"obs": range(N)}) as model:
        two_lengths()
    coreset = of_some_rows(model, observed=["y", "z"])
    assert coreset.loglikelihood.observations.left_out == ("mu",)
    assert {"x", "mu"}.isdisjoint(coreset.model.named_vars)


# -- which terms are summarised by default ---------------------------------------------------------

MANY, SOME = 900, 600
TIMES = np.linspace(0.1, 2.0, SOME)


def few_others(rate):
    pm.Exponential("z", rate, observed=np.ones(20))


def a_sum_over_data(rate):
    pm.Potential("z", -(rate * TIMES).sum())


def one_value_for_each_row(rate):
    pm.Potential("z", -rate * TIMES)


def a_prior_on_many_parameters(rate):
    pm.Potential("z", -((pm.Normal("p", shape=SOME) * rate) ** 2).sum())


def neighbours_on_a_map(rate):
    phi, edges = pm.Normal("phi", shape=50), np.arange(SOME) % 49
    pm.Potential("z", -rate * ((phi[edges] - phi[edges + 1]) ** 2).sum())


def counts_by_hand(rate):
    pm.Potential("z", (np.arange(SOME) % 5 * pm.math.log(rate) - rate).sum())


def no_sum_of_rows(rate):
    pm.Potential("z", -pm.math.log(1 + (rate * TIMES).sum()))


@pytest.mark.parametrize(
    ("add", "names", "whole"),
    [
        (few_others, ["y"], False),
        (a_sum_over_data, ["y", "z"], False),
        (one_value_for_each_row, ["y", "z"], False),
        (a_prior_on_many_parameters, ["y"], False),
        (counts_by_hand, ["y", "z"], False),
        (neighbours_on_a_map, ["y"], False),
        (no_sum_of_rows, ["y"], True),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_terms_of_many_rows_of_data_are_summarised(add, names, whole):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 1, 1)
        pm.Exponential("y", rate, observed=np.linspace(0.1, 3, MANY))
        add(rate)
    found = read(model).observations
    assert [term.name for term in found.terms] == names
    assert found.whole == (("'z' (computed from 600 rows)",) if whole else ())


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_covariates_with_imputed_values_stay_whole():
    x = np.ma.masked_array(np.linspace(0, 1, MANY), np.arange(MANY) % 100 == 3)
    with pm.Model() as model:
        covariate = pm.Normal("x", pm.Normal("m"), 1.0, observed=x)
        pm.Normal("y", pm.Normal("b") * covariate, 1.0, observed=np.ones(MANY))
    found = read(model).observations
    assert [term.name for term in found.terms] == ["y"]
    assert found.whole == (f"'x_observed' (computed from {x.count()} rows)",)


def test_a_term_that_is_left_whole_is_named():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 1, 1)
        pm.Exponential("y", rate, observed=np.linspace(0.1, 3, MANY))
        no_sum_of_rows(rate)
    with warned("'z'", "600 rows", "observed="):
        build_coreset(model, method="uniform", size=5, random_seed=1, progressbar=False)


# -- a coreset of two terms ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def survival():
    rng = np.random.default_rng(3)
    x = rng.normal(size=4_000)
    time, end = rng.weibull(1.5, x.size) * np.exp(0.3 * x), rng.uniform(0.3, 2, x.size)
    seen, observed = time < end, np.minimum(time, end)
    with pm.Model() as model:
        a, b, shape = pm.Normal("a"), pm.Normal("b"), pm.Gamma("shape", 2, 1)
        pm.Weibull("event", shape, pm.math.exp(a + b * x[seen]), observed=observed[seen])
        scale = pm.math.exp(a + b * x[~seen])
        pm.Potential("censored", -((observed[~seen] / scale) ** shape).sum())
    return build_coreset(model, random_seed=1, progressbar=False), int(seen.sum())


def test_both_terms_have_rows(survival):
    coreset, n_seen = survival
    assert coreset.n_observations == 4_000
    assert coreset.size <= 60
    counts = coreset.summary("likelihood term")["all"]
    assert counts[("likelihood term", "= 'event'")] == n_seen
    of_event = coreset.indices < n_seen
    assert of_event.any()
    assert not of_event.all()
    labels = coreset.summary().loc["largest weights"].index
    assert all(" of 'event'" in label or " of 'censored'" in label for label in labels)


def test_the_terms_are_printed(survival):
    coreset, n_seen = survival
    n = int((coreset.indices < n_seen).sum())
    expected = (
        f"terms       {n} of {n_seen:,} of 'event', {coreset.size - n} of {4_000 - n_seen:,} of"
    )
    assert expected in repr(coreset)
    assert "groups" not in repr(coreset)


def test_the_divergence_is_that_of_pymcs_own_densities(survival):
    coreset, _ = survival
    rng, space = np.random.default_rng(4), coreset.proposal.draws
    which = rng.choice(space.n_draws, 40, replace=False)
    draws = {name: values[which] for name, values in space.values.items()}
    full, small = (m.compile_logp(mode=PLAIN_MODE) for m in (coreset.full_model, coreset.model))
    found = []
    for a, b, shape in zip(draws["a"], draws["b"], draws["shape"], strict=True):
        point = {"a": a, "b": b, "shape_log__": np.log(shape)}
        found.append(full(point) - small(point))
    loglik = coreset.loglikelihood.collapsed(collapse=False)
    chosen = loglik.source.at(coreset.indices)
    ratios = loglik.sums(draws).total - coreset.weights @ loglik.matrix(draws, chosen)
    assert_allclose(ratios - ratios.mean(), found - np.mean(found), atol=1e-7)
    assert np.var(found) < 0.01


def test_a_row_of_one_term_is_named_by_it():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, 1.0, observed=np.ones(9))
        pm.Normal("z", a, np.r_[1.0, np.nan, np.ones(3)], observed=np.ones(5))
    with refused(InvalidDataError, "row 1", "'z'"):
        build_coreset(model, observed=["y", "z"], size=3, method="uniform", progressbar=False)


def test_rows_elsewhere_are_of_one_kind():
    with pm.Model() as model:
        x, a = pm.Data("x", X), pm.Normal("a")
        pm.Normal("y", a, 1.0, observed=x)
        pm.Normal("z", a, 1.0, observed=Z)
    rows = open_rows({"x": np.tile(X, 9)})
    with refused(UnsupportedModelError, "'y': 23", "'z': 17", "observed="):
        build_coreset(model, rows=rows, progressbar=False)


def test_such_coresets_are_not_extended(survival):
    coreset, _ = survival
    with refused(UnsupportedModelError, "'event', 'censored'", "extended"):
        coreset.extend(coreset.full_model)


def test_labels_of_the_chosen_rows(survival):
    coreset, n_seen = survival
    assert coreset.loglikelihood.observations.place(n_seen) == "row 0 of 'censored'"
    assert_array_equal(coreset.weights > 0, True)
