"""Coresets of rows that depend on many numbers, and of units with many shared variables."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit, softmax

from pymc_coresets import Coreset, SamplingError, build_coreset, open_rows
from tests.modes import PLAIN_MODE
from tests.refusals import refused

N, K, P = 4_000, 7, 5


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, P))
    chances = softmax(x @ np.c_[np.zeros(P), rng.normal(0, 0.5, (P, K - 1))], axis=1)
    return {"x": x, "kind": (chances.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1)}


def regression(data):
    """Softmax regression: 30 dimensions, all of which every row sees."""
    with pm.Model() as model:
        x, kind = pm.Data("x", data["x"]), pm.Data("kind", data["kind"])
        eta = x @ pm.Normal("w", shape=(P, K - 1))
        logit_p = pt.concatenate([pt.zeros((x.shape[0], 1)), eta], axis=1)
        pm.Categorical("y", logit_p=logit_p, observed=kind)
    return model


@pytest.fixture(scope="module")
def classes(data):
    return regression(data)


@pytest.fixture(scope="module")
def persons():
    """Item response with abilities integrated out: 26 shared variables, 1,200 persons."""
    rng, n, items = np.random.default_rng(2), 1_200, 13
    slopes, levels = np.exp(rng.normal(0, 0.3, items)), rng.normal(size=items)
    y = rng.binomial(1, expit(slopes * rng.normal(size=(n, 1)) - levels))
    person, item = np.divmod(np.arange(n * items), items)
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0, 0.5, shape=items), pm.Normal("b", 0, 1.5, shape=items)
        ability = pm.Normal("ability", shape=n)
        logit_p = a[item] * ability[person] - b[item]
        pm.Bernoulli("y", logit_p=logit_p, observed=y.ravel())
    return model


@pytest.fixture(scope="module")
def built(request):
    @cache
    def of(name):
        model = request.getfixturevalue(name)
        return build_coreset(model, random_seed=1, progressbar=False)

    return of


@pytest.fixture(scope="module", params=["classes", pytest.param("persons", marks=pytest.mark.slow)])
def coreset(request, built):
    return built(request.param)


def test_it_is_reliable_with_a_part_of_the_rows(coreset):
    assert coreset.method == "control_variates"
    idata = coreset.sample(random_seed=1, cores=1, progressbar=False)
    check = coreset.check(idata)
    assert check.reliable
    assert check.symmetrised_kl < 0.01
    assert coreset.size < 0.75 * coreset.n_distinct
    # PyMC's own densities of all rows say the same.
    opinion = coreset.verify(idata, draws=10)
    assert opinion.difference < 0.05
    assert opinion.by_pymc < 0.03  # at ten draws


def test_a_file_has_its_quadratic(classes, built, tmp_path):
    coreset = built("classes")
    coreset.to_netcdf(tmp_path / "coreset.nc")
    again = Coreset.from_netcdf(tmp_path / "coreset.nc", classes)
    x = coreset.model.initial_point()
    logp, other = (c.model.compile_logp(mode=PLAIN_MODE)(x) for c in (coreset, again))
    assert float(logp) == pytest.approx(float(other), rel=1e-12)


def test_rows_from_elsewhere_are_the_same(data):
    few = regression({name: values[:20] for name, values in data.items()})
    coreset, other = (
        build_coreset(model, rows=rows, random_seed=1, progressbar=False)
        for model, rows in ((regression(data), None), (few, open_rows(data)))
    )
    np.testing.assert_array_equal(coreset.indices, other.indices)
    np.testing.assert_allclose(coreset.weights, other.weights, rtol=1e-7)


def test_rows_alone_are_chosen_where_a_quadratic_cannot_begin(classes, fails):
    impossible = "The log-likelihood is not finite near the posterior's mode."
    fails("curvature by gradients", error=SamplingError(impossible))
    coreset = build_coreset(classes, random_seed=1, progressbar=False)
    assert coreset.quadratic is None
    assert coreset.objective < 0.01
    with refused(SamplingError, "log-likelihood", "mode"):
        build_coreset(classes, method="control_variates", random_seed=1, progressbar=False)


@pytest.mark.slow
def test_new_rows_are_added_to_the_quadratic(data):
    half, rest = (
        regression({name: values[part] for name, values in data.items()})
        for part in (slice(0, N // 2), slice(N // 2, N))
    )
    coreset = build_coreset(half, random_seed=1, progressbar=False)
    coreset = coreset.extend(rest, random_seed=1, progressbar=False)
    full, own = (model.compile_logp(mode=PLAIN_MODE) for model in (regression(data), coreset.model))
    draws = coreset.sample(draws=100, chains=2, cores=1, random_seed=1, progressbar=False)
    points = [{"w": w} for w in draws["posterior"]["w"].to_numpy().reshape(-1, P, K - 1)[::4]]
    ratios = [float(full(point) - own(point)) for point in points]
    assert np.var(ratios) < 0.015  # the tolerance, at fifty draws
