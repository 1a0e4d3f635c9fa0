"""Polynomial statistics of rows that are read in chunks: those of the same rows in memory."""

import pickle
from functools import cache
from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

from pymc_coresets import (
    CoresetError,
    InvalidDataError,
    InvalidOptionError,
    UnsupportedModelError,
    build_pass_glm,
    open_rows,
)
from tests.modes import PLAIN_MODE
from tests.refusals import refused, warned

N = 1_025  # so that the last block of 64 rows is a single row
SETTINGS = {"random_seed": 3, "progressbar": False}
_rng = np.random.default_rng(8)
COLUMNS = {
    "X": _rng.normal(size=(N, 2)),
    "group": _rng.integers(0, 3, size=N),
    "exposure": _rng.gamma(4.0, 0.5, size=N),
}
_rate = COLUMNS["exposure"] * np.exp(COLUMNS["X"] @ [0.3, -0.2] + 0.1 * COLUMNS["group"] - 0.5)
COLUMNS["count"] = _rng.poisson(_rate)
COLUMNS["late"] = _rng.integers(0, 2, size=N)
COLUMNS["y"] = _rng.normal(size=N)


def data_of(columns, names, n_rows):
    return [pm.Data(name, columns[name][:n_rows]) for name in names]


def counts(columns, n_rows):
    """Groups, an offset, and covariates that the model standardises."""
    with pm.Model() as model:
        X, group, exposure, count = data_of(columns, ("X", "group", "exposure", "count"), n_rows)
        base, slope = pm.Normal("base", 0, 1, shape=3), pm.Normal("slope", 0.5, 1, shape=2)
        eta = base[group] + ((X - 0.1) / 1.5) @ slope + pm.math.log(exposure)
        pm.Poisson("likelihood", pm.math.exp(eta), observed=count)
    return model


def logistic(columns, n_rows):
    with pm.Model() as model:
        X, late = data_of(columns, ("X", "late"), n_rows)
        slope = pm.Normal("slope", 0, 1, shape=2)
        pm.Bernoulli("likelihood", logit_p=X @ slope, observed=late)
    return model


def intercept(columns, n_rows):
    """One predictor for all rows, whose responses differ."""
    with pm.Model() as model:
        [y] = data_of(columns, ("y",), n_rows)
        pm.Normal("likelihood", pm.Normal("mu"), 3.0, observed=y)
    return model


MODELS = {"counts": counts, "logistic": logistic, "intercept": intercept}


def in_chunks(sizes, columns=COLUMNS, **options):
    """Open rows in pieces of some sizes, the last one repeated."""
    n = len(columns["y"])
    cuts = np.minimum(np.cumsum([0, *sizes, *[sizes[-1]] * (n // sizes[-1] + 1)]), n)
    pairs = [(a, b) for a, b in pairwise(cuts) if a < b]
    return open_rows(lambda: ({k: c[a:b] for k, c in columns.items()} for a, b in pairs), **options)


def statistics(model, degree=2, rows=None):
    return build_pass_glm(model, rows=rows, degree=degree, radius=3.0, **SETTINGS).statistics


@cache
def in_memory(name, degree=2):
    return statistics(MODELS[name](COLUMNS, N), degree)


def dense(moment):
    return moment if isinstance(moment, np.ndarray) else moment.toarray()


@pytest.mark.parametrize(("sizes", "most"), [([1, 7, 300], 64), ([N], 4096), ([64], 64)])
@pytest.mark.parametrize("name", MODELS)
def test_the_sums_are_those_of_the_rows_in_memory(name, sizes, most, limits):
    limits(seen_rows=(64, most))
    make = MODELS[name]
    for degree in (2, 4) if name == "intercept" else (2,):
        mine = statistics(make(COLUMNS, 30), degree, in_chunks(sizes))
        its = in_memory(name, degree)
        assert mine.n_obs == its.n_obs == N
        for one, other in zip(mine.moments, its.moments, strict=True):
            assert_allclose(dense(one), dense(other), rtol=1e-12, atol=1e-12)
        assert_allclose(mine.rising, its.rising, rtol=1e-12, atol=1e-12)
        assert_allclose(mine.falling, its.falling, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_case_weights_count_rows(name):
    make, times = MODELS[name], np.random.default_rng(5).integers(0, 4, size=N)
    rows = in_chunks([100], COLUMNS | {"n": times}, weight="n")
    repeated = {name: np.repeat(c, times, axis=0) for name, c in COLUMNS.items()}
    mine, its = statistics(make(COLUMNS, 30), rows=rows), statistics(make(repeated, times.sum()))
    assert mine.n_obs == its.n_obs == times.sum()
    for theta in np.random.default_rng(6).normal(size=(3, its.moments[1].size)):
        assert_allclose(mine.loglik(theta), its.loglik(theta), rtol=1e-12)


# -- summaries -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def summaries():
    """A summary of rows in chunks, and that of the same rows in memory, with a chosen radius."""
    options = SETTINGS | {"radius": "auto"}
    return (
        build_pass_glm(counts(COLUMNS, 30), rows=in_chunks([7, 400]), **options),
        build_pass_glm(counts(COLUMNS, N), **options),
    )


def test_fractions_of_rows_are_rounded_once():
    """Each chunk is a task of its own; of 0.4 rows, none would be left."""
    columns = COLUMNS | {"n": np.full(N, 0.4)}
    rows = in_chunks([1, 4], columns, weight="n")
    summary = build_pass_glm(logistic(COLUMNS, 30), rows=rows, **SETTINGS)
    assert summary.n_observations == round(0.4 * N)


def test_the_posterior_is_that_of_the_rows_in_memory(summaries):
    mine, its = summaries
    assert mine.radius == pytest.approx(its.radius, rel=1e-12)
    one, other = mine.closed_form(), its.closed_form()
    assert one["coefficient"].values.tolist() == other["coefficient"].values.tolist()
    for name in ("mean", "sd", "covariance"):
        assert_allclose(one[name], other[name], rtol=1e-10, atol=1e-13)
    point = mine.model.initial_point()
    logps = [summary.model.compile_logp(mode=PLAIN_MODE)(point) for summary in summaries]
    assert logps[0] == pytest.approx(logps[1], rel=1e-12)


def test_draws_are_checked_against_all_rows(summaries):
    mine, its = summaries
    idata = its.draw(random_seed=2)
    assert_allclose(mine.log_ratios(idata), its.log_ratios(idata), rtol=1e-9, atol=1e-8)
    one, other = mine.check(idata), its.check(idata)
    assert (one.outside, one.draws.kl) == pytest.approx((other.outside, other.draws.kl), rel=1e-6)
    assert (one.reach, one.max_error) == pytest.approx((other.reach, other.max_error), rel=1e-9)
    assert mine.check(random_seed=4).reliable == its.check(random_seed=4).reliable
    with warned("Not to be used", "k-hat", "check()"):  # a quadratic does not do here
        assert mine.reweight(idata, random_seed=1)["posterior"].sizes["draw"] == 500


def test_what_is_summarised_can_be_pickled_and_added(summaries):
    mine, its = summaries
    again = pickle.loads(pickle.dumps(mine))
    both = again + its
    assert both.n_observations == 2 * N
    assert_allclose(both.statistics.moments[2], 2 * its.statistics.moments[2], rtol=1e-12)
    idata = its.draw(40, random_seed=2)
    assert_allclose(again.log_ratios(idata), mine.log_ratios(idata), rtol=1e-12)
    with refused(CoresetError, "rows", "pm.set_data"):
        mine.full_model  # noqa: B018


# -- errors ----------------------------------------------------------------------------------------


def not_linear(columns, n_rows):
    with pm.Model() as model:
        X, late = data_of(columns, ("X", "late"), n_rows)
        slope = pm.Normal("slope", 0, 1, shape=2)
        pm.Bernoulli("likelihood", logit_p=pm.math.exp(X @ slope) + slope[0] ** 2, observed=late)
        pm.Normal("b")
    return model


def two_predictors(columns, n_rows):
    with pm.Model() as model:
        X, y = data_of(columns, ("X", "y"), n_rows)
        pm.Normal("likelihood", X[:, 0] * pm.Normal("a"), pm.HalfNormal("s"), observed=y)
    return model


def of_all_rows(columns, n_rows):
    with pm.Model() as model:
        X, late = data_of(columns, ("X", "late"), n_rows)
        pm.Bernoulli("likelihood", logit_p=(X - X.mean(0)) @ pm.Normal("b", shape=2), observed=late)
    return model


@pytest.mark.parametrize(
    ("make", "facts", "topic"),
    [
        (not_linear, ("several numbers", "linear predictor"), "regressions"),
        (two_predictors, ("['s']", "given={'s': ...}"), "regressions"),
        (of_all_rows, ("Sum", "'X'"), "models-that-are-refused"),
    ],
)
def test_what_is_no_generalised_linear_model_is_named(make, facts, topic):
    with refused(UnsupportedModelError, facts, topic=topic):
        build_pass_glm(make(COLUMNS, 30), rows=in_chunks([500]), **SETTINGS)


def changed(name, row, value):
    column = COLUMNS[name].astype(float) if isinstance(value, float) else COLUMNS[name].copy()
    column[row] = value
    return COLUMNS | {name: column}


@pytest.mark.parametrize(
    ("name", "value", "facts", "topic"),
    [
        ("X", np.nan, ("chunk 1, row 200", "column 'X'", "NaN"), "rows-and-files"),
        ("exposure", 0.0, ("offset", "-inf", "chunk 1, row 200"), "regressions"),
        ("group", 3, ("chunk 1, row 200", "'group'", "entry 3"), "the-data-and-the-model"),
        ("count", -1, ("log-likelihood", "-inf", "chunk 1, row 200"), "regressions"),
    ],
)
def test_rows_that_cannot_be_used_are_named(name, value, facts, topic):
    rows = in_chunks([500, 525], changed(name, 700, value))
    with refused(InvalidDataError, facts, topic=topic):
        build_pass_glm(counts(COLUMNS, 30), rows=rows, **SETTINGS)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"rows": COLUMNS}, ("rows is a dict", "open_rows(...)")),
        ({"dim": ("a", "b")}, ("dim=", "cells")),
        ({"executor": 4}, "executor=4"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, facts):
    options = {"rows": open_rows(COLUMNS)} | options
    with refused(InvalidOptionError, facts):
        build_pass_glm(counts(COLUMNS, 30), **options, **SETTINGS)
