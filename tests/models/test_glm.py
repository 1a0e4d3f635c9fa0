"""The linear predictor that is read from a model, against one that is built by hand."""

import tracemalloc
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered
from pytensor.sparse import as_sparse_variable, structured_dot
from scipy import sparse, special, stats

from pymc_coresets import InvalidDataError, InvalidOptionError, UnsupportedModelError
from pymc_coresets.glm.predictor.affine import joined
from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.predictors import Predictors, RowsInMemory, verify_predictors
from pymc_coresets.papers.pass_glm import fix_variables
from pymc_coresets.reading.observations import find_observations
from tests.derived import likelihood_of, predictor_of
from tests.modes import PLAIN_MODE
from tests.refusals import refused

pytensor.config.blas__ldflags = ""

N = 47
_rng = np.random.default_rng(7)
X = _rng.normal(size=(N, 3))
x = _rng.normal(size=N)
GROUP, ITEM = _rng.integers(0, 4, size=N), _rng.integers(0, 3, size=N)
GROUP[:4], ITEM[:3] = range(4), range(3)
EXPOSURE, SCALE = _rng.gamma(2.0, size=N), _rng.gamma(2.0, size=N)
TRIALS = _rng.integers(5, 9, size=N)
BINARY, COUNT = _rng.integers(0, 2, size=N), _rng.integers(0, 5, size=N)
REAL, POSITIVE = _rng.normal(size=N), _rng.gamma(2.0, size=N)
ONES = np.ones((N, 1))
G, H = np.eye(4)[GROUP], np.eye(3)[ITEM]
GRID = np.linspace(-2.5, 2.5, 5)


def normal(name, **kwargs):
    return pm.Normal(name, 0.0, 1.0, **kwargs)


def hierarchical():
    mu, sigma = normal("mu"), pm.HalfNormal("sigma")
    return pm.Deterministic("a", mu + sigma * normal("z", shape=4))


def read(build, **kwargs):
    with pm.Model(**kwargs) as model:
        build()
    return Read(predictor_of(model))


@dataclass(frozen=True)
class Read:
    """What was found, and its only predictor."""

    found: Predictors

    def __getattr__(self, name):
        return getattr(self.found, name)

    design = property(lambda self: self.found.predictors[0].design)
    offset = property(lambda self: self.found.predictors[0].offset)

    def predictor(self, coefficients):
        assert self.found.n_shared == 0
        [predictor] = self.found.predictors
        return (predictor.at(np.atleast_2d(coefficients)) + predictor.offset).T

    def loglik(self, eta, some=slice(None), **options):
        n_obs = self.found.observations.n_obs
        rows = RowsInMemory(self.found, np.arange(n_obs), np.ones(n_obs)).take(some)
        return rows.density((eta.T if eta.ndim == 2 else eta[:, None])[None], **options).T


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


# -- families --------------------------------------------------------------------------------------


def huber(residual):
    size = abs(residual)
    where = np.where if isinstance(residual, np.ndarray) else pt.switch
    return -where(size < 1.0, 0.5 * residual**2, size - 0.5)


def bernoulli(p):
    return stats.bernoulli.logpmf(BINARY[:, None], p)


def negative_binomial(eta, alpha=3.0):
    return stats.nbinom.logpmf(COUNT[:, None], alpha, alpha / (alpha + np.exp(eta)))


def gamma(eta, shape=2.0):
    return stats.gamma.logpdf(POSITIVE[:, None], shape, scale=np.exp(eta) / shape)


y = REAL[:, None]
#: What is observed, given the predictor; and log p(y | eta) by SciPy.
FAMILIES = {
    "logistic": (
        lambda eta: pm.Bernoulli("y", logit_p=eta, observed=BINARY),
        lambda eta: bernoulli(special.expit(eta)),
    ),
    "logistic, by probability": (
        lambda eta: pm.Bernoulli("y", p=pm.math.sigmoid(eta), observed=BINARY),
        lambda eta: bernoulli(special.expit(eta)),
    ),
    "logistic, of signs": (
        lambda eta: pm.Potential("y", -pt.softplus(-(2.0 * BINARY - 1.0) * eta)),
        lambda eta: bernoulli(special.expit(eta)),
    ),
    "probit": (
        lambda eta: pm.Bernoulli("y", p=pm.math.invprobit(eta), observed=BINARY),
        lambda eta: bernoulli(special.ndtr(eta)),
    ),
    "complementary log-log": (
        lambda eta: pm.Bernoulli("y", p=1.0 - pt.exp(-pt.exp(eta)), observed=BINARY),
        lambda eta: bernoulli(-np.expm1(-np.exp(eta))),
    ),
    "binomial": (
        lambda eta: pm.Binomial("y", n=TRIALS, logit_p=eta, observed=COUNT),
        lambda eta: stats.binom.logpmf(COUNT[:, None], TRIALS[:, None], special.expit(eta)),
    ),
    "poisson": (
        lambda eta: pm.Poisson("y", pt.exp(eta), observed=COUNT),
        lambda eta: stats.poisson.logpmf(COUNT[:, None], np.exp(eta)),
    ),
    "zero-inflated poisson": (
        lambda eta: pm.ZeroInflatedPoisson("y", psi=0.7, mu=pt.exp(eta), observed=COUNT),
        lambda eta: np.log(
            0.7 * stats.poisson.pmf(COUNT[:, None], np.exp(eta)) + 0.3 * (COUNT[:, None] == 0)
        ),
    ),
    "negative binomial": (
        lambda eta: pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=3.0, observed=COUNT),
        negative_binomial,
    ),
    "gamma": (
        lambda eta: pm.Gamma("y", alpha=2.0, beta=2.0 / pt.exp(eta), observed=POSITIVE),
        gamma,
    ),
    "gamma, by rate": (
        lambda eta: pm.Gamma("y", alpha=2.0, beta=2.0 * pt.exp(-eta), observed=POSITIVE),
        gamma,
    ),
    "gaussian": (
        lambda eta: pm.Normal("y", eta, 0.5, observed=REAL),
        lambda eta: stats.norm.logpdf(y, eta, 0.5),
    ),
    "gaussian, scale of each row": (
        lambda eta: pm.Normal("y", eta, SCALE, observed=REAL),
        lambda eta: stats.norm.logpdf(y, eta, SCALE[:, None]),
    ),
    "student": (
        lambda eta: pm.StudentT("y", nu=4.0, mu=eta, sigma=0.5, observed=REAL),
        lambda eta: stats.t.logpdf(y, 4.0, eta, 0.5),
    ),
    "cauchy": (
        lambda eta: pm.Cauchy("y", eta, 0.5, observed=REAL),
        lambda eta: stats.cauchy.logpdf(y, eta, 0.5),
    ),
    "laplace": (
        lambda eta: pm.Laplace("y", eta, 0.5, observed=REAL),
        lambda eta: stats.laplace.logpdf(y, eta, 0.5),
    ),
    "huber, as a potential": (
        lambda eta: pm.Potential("y", huber(pt.as_tensor(REAL) - eta)),
        lambda eta: huber(y - eta),
    ),
    "huber, as a distribution": (
        lambda eta: pm.CustomDist("y", eta, logp=lambda v, m: huber(v - m), observed=REAL),
        lambda eta: huber(y - eta),
    ),
    "two likelihoods": (
        lambda eta: [FAMILIES["poisson"][0](eta), pm.Normal("z", eta, 0.5, observed=REAL)],
        lambda eta: FAMILIES["poisson"][1](eta) + stats.norm.logpdf(y, eta, 0.5),
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    observe, log_density = FAMILIES[request.param]
    found = read(lambda: observe(X @ normal("b", shape=3) + np.log(EXPOSURE)))
    grouped = read(lambda: observe(normal("a", shape=4)[GROUP] + x * normal("c")))
    return found, grouped, log_density


def test_dense_design(family):
    found, _, _ = family
    assert isinstance(found.design, np.ndarray)
    np.testing.assert_array_equal(found.design, X)
    np.testing.assert_allclose(found.offset, np.log(EXPOSURE), rtol=1e-15)
    assert found.names == ("b[0]", "b[1]", "b[2]")


def test_sparse_design(family):
    _, found, _ = family
    assert sparse.issparse(found.design)
    np.testing.assert_array_equal(found.design.toarray(), np.hstack([G, x[:, None]]))
    assert not found.offset.any()
    assert found.names == ("a[0]", "a[1]", "a[2]", "a[3]", "c")


def test_log_density(family):
    found, _, log_density = family
    expected = log_density(np.broadcast_to(GRID, (N, len(GRID))))
    # PyMC writes log(2 pi) and the like as constants in float32.
    values = found.loglik(GRID, compiled=False)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_no_covariate_is_taken_for_a_response(family):
    found, grouped, _ = family
    for predictor, covariates in ((found, (X, np.log(EXPOSURE))), (grouped, (x, GROUP))):
        for row in predictor.density.rows:
            assert not any(np.array_equal(row.values, c) for c in covariates)


@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_values_of_the_predictor_and_rows(name):
    observe, log_density = FAMILIES[name]
    found = read(lambda: observe(X @ normal("b", shape=3)))
    eta = np.random.default_rng(1).normal(size=(N, 3))
    expected = log_density(eta)
    np.testing.assert_allclose(found.loglik(eta), expected, rtol=1e-9)
    rows = np.array([5, 40, 5, 0])
    np.testing.assert_allclose(found.loglik(eta[rows], rows), expected[rows], rtol=1e-9)
    for some in (slice(10, 20), slice(3, 40, 7), slice(20, 10, -2), slice(-5, None), slice(4, 4)):
        np.testing.assert_allclose(found.loglik(eta[some], some), expected[some], rtol=1e-9)
        np.testing.assert_allclose(found.loglik(GRID, some), found.loglik(GRID)[some], rtol=1e-12)


# -- predictors ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A predictor; its coefficients by hand, from the free variables; design and offset."""

    build: object
    design: np.ndarray
    coefficients: object
    offset: np.ndarray | float = 0.0
    names: tuple | None = None


def flat(*names):
    return lambda v: np.concatenate([np.ravel(v[name]) for name in names])


def data(name, values):
    return pm.Data(name, values)


CASES = {
    "intercept, slope, offset": Case(
        lambda: 1.5 + normal("a") + x * normal("b") - pt.log(EXPOSURE),
        np.column_stack([ONES, x]),
        flat("a", "b"),
        1.5 - np.log(EXPOSURE),
        ("a", "b"),
    ),
    "groups, covariates, slope": Case(
        lambda: normal("a", shape=4)[GROUP] + X @ normal("beta", shape=3) + normal("b") * x,
        np.hstack([G, X, x[:, None]]),
        flat("a", "beta", "b"),
    ),
    "pm.math.dot, either way round": Case(
        lambda: pm.math.dot(X, normal("u", shape=3)) + pm.math.dot(normal("v", shape=3), X.T),
        np.hstack([X, X]),
        flat("u", "v"),
    ),
    "data containers and deterministics": Case(
        lambda: pm.Deterministic(
            "eta",
            normal("a", shape=4)[data("g", GROUP)]
            + pm.Deterministic("fixed", data("X", X) @ normal("b", shape=3)),
        ),
        np.hstack([G, X]),
        flat("a", "b"),
    ),
    "the same coefficient twice": Case(
        lambda: (b := normal("b", shape=3))[ITEM] + X @ b + b[0] * x,
        H + X + np.column_stack([x, 0 * x, 0 * x]),
        flat("b"),
    ),
    "entries of a vector": Case(
        lambda: (b := normal("b", shape=3))[0] + b[1] * x + b[-1] * x**2,
        np.column_stack([ONES, x, x**2]),
        flat("b"),
    ),
    "a part of a vector": Case(
        lambda: X[:, :2] @ normal("b", shape=5)[1:3],
        np.hstack([0 * ONES, X[:, :2], 0 * ONES, 0 * ONES]),
        flat("b"),
    ),
    "interaction of groups": Case(
        lambda: normal("a", shape=(4, 3))[GROUP, ITEM],
        np.einsum("ni,nj->nij", G, H).reshape(N, -1),
        flat("a"),
        names=tuple(f"a[{i}, {j}]" for i in range(4) for j in range(3)),
    ),
    "random slopes": Case(
        lambda: (normal("a", shape=(4, 3))[GROUP] * X).sum(axis=-1),
        np.einsum("ni,nj->nij", G, X).reshape(N, -1),
        flat("a"),
    ),
    "random slopes, by rows of a table": Case(
        lambda: (X * normal("a", shape=(3, 4))[:, GROUP].T).sum(axis=1),
        np.einsum("nj,ni->nji", X, G).reshape(N, -1),
        flat("a"),
    ),
    "random slopes, as a product of vectors": Case(
        lambda: pt.vecdot(X, normal("a", shape=(4, 3))[GROUP]),
        np.einsum("ni,nj->nij", G, X).reshape(N, -1),
        flat("a"),
    ),
    "einsum": Case(lambda: pt.einsum("nk,k->n", X, normal("b", shape=3)), X, flat("b")),
    "mean of columns": Case(lambda: (X * normal("b", shape=3)).mean(axis=1), X / 3.0, flat("b")),
    "joined coefficients": Case(
        lambda: X @ pt.concatenate([normal("a")[None], normal("b", shape=2)]),
        X,
        flat("a", "b"),
    ),
    "reference group": Case(
        lambda: pt.concatenate([[2.0], normal("a", shape=3)])[GROUP] + x * normal("b"),
        np.hstack([G[:, 1:], x[:, None]]),
        flat("a", "b"),
        2.0 * G[:, 0],
    ),
    "joined parts of the data": Case(
        lambda: pt.stack([x * normal("a"), REAL * normal("b")], axis=1).sum(axis=1),
        np.column_stack([x, REAL]),
        flat("a", "b"),
    ),
    "scaled after the sum": Case(
        lambda: EXPOSURE * (normal("a") + x * normal("b") + 1.0) / 2.0 + 0.0,
        np.column_stack([EXPOSURE, EXPOSURE * x]) / 2.0,
        flat("a", "b"),
        EXPOSURE / 2.0,
    ),
    "divided by data": Case(
        lambda: (normal("a") + x * normal("b")) / EXPOSURE,
        np.column_stack([ONES, x]) / EXPOSURE[:, None],
        flat("a", "b"),
    ),
    "subtracted from data": Case(
        lambda: EXPOSURE - (normal("a") + x * normal("b")),
        -np.column_stack([ONES, x]),
        flat("a", "b"),
        EXPOSURE,
    ),
    "choice by a condition": Case(
        lambda: pt.switch(x > 0, normal("a") * np.log(np.abs(x)), normal("b")),
        np.column_stack([np.where(x > 0, np.log(np.abs(x)), 0.0), x <= 0]),
        flat("a", "b"),
    ),
    "integer covariates": Case(
        lambda: normal("a") * COUNT + normal("b") * (ITEM == 1),
        np.column_stack([COUNT, ITEM == 1]),
        flat("a", "b"),
    ),
    "indicators from a table of groups": Case(
        lambda: pt.constant(np.eye(4))[GROUP] @ normal("a", shape=4), G, flat("a")
    ),
    "centred hierarchy": Case(
        lambda: pm.Normal("a", normal("mu"), pm.HalfNormal("sigma"), shape=4)[GROUP],
        G,
        flat("a"),
    ),
    "non-centred hierarchy": Case(
        lambda: hierarchical()[GROUP] + normal("b") * x,
        np.hstack([G, x[:, None]]),
        lambda v: np.append(v["mu"] + v["sigma"] * v["z"], v["b"]),
        names=("a[0]", "a[1]", "a[2]", "a[3]", "b"),
    ),
    "scaled after it was indexed": Case(
        lambda: normal("mu") + pm.HalfNormal("sigma") * normal("z", shape=4)[GROUP],
        np.hstack([ONES, G]),
        lambda v: np.append(v["mu"], v["sigma"] * v["z"]),
        names=("mu", *(f"f(sigma, z)[{i}]" for i in range(4))),
    ),
    "divided by a free scale": Case(
        lambda: (normal("a") + x * normal("b") - EXPOSURE) / pm.HalfNormal("s"),
        np.column_stack([ONES, x, -EXPOSURE]),
        lambda v: np.array([v["a"], v["b"], 1.0]) / v["s"],
    ),
    "positive slope": Case(
        lambda: normal("a") + pt.exp(normal("log_b")) * x,
        np.column_stack([ONES, x]),
        lambda v: np.array([v["a"], np.exp(v["log_b"])]),
        names=("a", "f(log_b)"),
    ),
    "random walk": Case(
        lambda: pt.cumsum(normal("z", shape=4))[GROUP], G, lambda v: np.cumsum(v["z"])
    ),
    "zero-sum effects": Case(lambda: pm.ZeroSumNormal("a", shape=4)[GROUP], G, flat("a")),
    "one for all rows": Case(lambda: normal("a"), ONES, flat("a")),
    "one for all rows, of two": Case(
        lambda: normal("a") + normal("b"), ONES, lambda v: np.array([v["a"] + v["b"]])
    ),
}


@pytest.fixture(scope="module", params=CASES)
def specimen(request):
    case = CASES[request.param]

    def build():
        pm.Bernoulli("y", logit_p=case.build(), observed=BINARY)

    return case, read(build)


def point(observations, rng):
    return {
        name: np.abs(rng.normal(size=v.type.shape)) for name, v in observations.parameters.items()
    }


def test_predictor(specimen):
    """The order of columns is free; each belongs to its coefficient."""
    case, found = specimen
    values = point(found.observations, np.random.default_rng(3))
    inputs = list(found.observations.parameters.values())
    function = pytensor.function(
        inputs, found.coefficients, mode=PLAIN_MODE, on_unused_input="ignore"
    )
    c, expected = function(*values.values()), np.asarray(case.coefficients(values), dtype=float)
    np.testing.assert_allclose(np.sort(c), np.sort(expected), rtol=1e-12)
    design = np.asarray(case.design, dtype=float)
    np.testing.assert_allclose(
        dense(found.design)[:, np.argsort(c)],
        design[:, np.argsort(expected)],
        rtol=1e-10,
        atol=1e-12,
    )
    np.testing.assert_allclose(found.offset, np.broadcast_to(case.offset, N), rtol=1e-12)
    np.testing.assert_allclose(
        found.predictor(c)[:, 0], design @ expected + case.offset, rtol=1e-10, atol=1e-12
    )
    assert len(found.names) == len(set(found.names)) == len(c)
    if case.names is not None:
        assert found.names == case.names


def test_predictor_and_link_give_the_potentials(specimen):
    _, found = specimen
    values = {n: v[None] for n, v in point(found.observations, np.random.default_rng(4)).items()}
    used = list(found.observations.parameters.values())
    function = pytensor.function(
        used, found.coefficients, mode=PLAIN_MODE, on_unused_input="ignore"
    )
    eta = found.predictor(np.array([function(*(v[0] for v in values.values()))]))
    logliks = found.loglik(eta, compiled=False).T
    function = pytensor.function(
        used, found.observations.reference, mode=PLAIN_MODE, on_unused_input="ignore"
    )
    np.testing.assert_allclose(logliks[0], function(*(v[0] for v in values.values())))


def test_predictor_of_draws():
    found = read(lambda: pm.Normal("y", X @ normal("b", shape=3) + x, 1.0, observed=REAL))
    draws = np.random.default_rng(5).normal(size=(4, 3))
    eta = found.predictor(draws)
    np.testing.assert_allclose(eta, X @ draws.T + x[:, None])
    np.testing.assert_allclose(eta[:, [2]], found.predictor(draws[2]), rtol=1e-12)


def test_the_users_matrix_is_not_copied():
    found = read(lambda: pm.Normal("y", X @ normal("b", shape=3), 1.0, observed=REAL))
    assert np.shares_memory(found.design, X)


def test_labels_are_coordinates():
    coords = {"obs": range(N), "covariate": ["age", "sex", "dose"], "place": list("abcd")}

    def build():
        b = normal("b", dims=("place", "covariate"))
        a = pm.Deterministic("a", normal("mu") * normal("z", dims="place"), dims="place")
        eta = (b[GROUP] * X).sum(axis=1) + a[GROUP]
        pm.Poisson("y", pt.exp(eta), observed=COUNT, dims="obs")

    names = read(build, coords=coords).names
    assert names[:2] == ("b[a, age]", "b[a, sex]")
    assert names[-4:] == ("a[a]", "a[b]", "a[c]", "a[d]")


def test_dims_model():
    pmd = pytest.importorskip("pymc.dims")
    coords = {"obs": range(N), "covariate": ["age", "sex", "dose"], "place": list("abcd")}

    def build():
        table, group = pmd.Data("X", X, dims=("obs", "covariate")), pmd.Data("g", GROUP, "obs")
        a, b = pmd.Normal("a", 0, 1, dims="place"), pmd.Normal("b", 0, 1, dims="covariate")
        eta = (table * b).sum("covariate") + a.isel(place=group)
        pmd.Poisson("y", pmd.math.exp(eta), observed=pmd.as_xtensor(COUNT, dims=("obs",)))

    found = read(build, coords=coords)
    assert found.names == ("b[age]", "b[sex]", "b[dose]", "a[a]", "a[b]", "a[c]", "a[d]")
    np.testing.assert_array_equal(found.design.toarray(), np.hstack([X, G]))


def test_sparse_covariates():
    table = sparse.random_array((N, 30), density=0.05, rng=np.random.default_rng(6), format="csr")

    def build():
        b = normal("b", shape=30)
        eta = structured_dot(as_sparse_variable(sparse.csr_matrix(table)), b[:, None])
        pm.Bernoulli("y", logit_p=eta[:, 0], observed=BINARY)

    found = read(build)
    assert sparse.issparse(found.design)
    np.testing.assert_array_equal(found.design.toarray(), table.toarray())


def test_the_offset_of_a_potential_is_what_is_added():
    sign = 2.0 * BINARY - 1.0

    def build():
        pm.Potential("y", -pt.softplus(-sign * (X @ normal("b", shape=3) + x)))

    found = read(build)
    np.testing.assert_array_equal(found.design, X)
    np.testing.assert_array_equal(found.offset, x)
    [response] = found.density.rows
    np.testing.assert_array_equal(np.abs(response.values), 1.0)


def test_several_columns_of_outcomes_share_a_predictor():
    outcomes = np.column_stack([REAL, x])
    found = read(
        lambda: pm.Normal("y", (X @ normal("b", shape=3))[:, None], 1.0, observed=outcomes)
    )
    np.testing.assert_array_equal(found.design, X)
    expected = stats.norm.logpdf(outcomes[:, :, None], GRID).sum(axis=1)
    np.testing.assert_allclose(found.loglik(GRID), expected)


def test_a_predictor_in_single_precision():
    def build():
        single = pt.cast(X @ normal("b", shape=3), "float32")
        pm.Normal("y", single + x * normal("c"), 1.0, observed=REAL)

    np.testing.assert_allclose(dense(read(build).design), np.column_stack([X, x]))


def test_outcomes_far_from_zero():
    """Near zero, the log-density of every row is a straight line; it is none further out."""
    found = read(lambda: pm.Laplace("y", X @ normal("b", shape=3), 1.0, observed=REAL + 50.0))
    np.testing.assert_array_equal(found.design, X)


def test_an_intercept_alone_is_found_below_its_link():
    """Both the rate and its logarithm enter alone; the logarithm may have any sign."""
    found = read(lambda: pm.Poisson("y", EXPOSURE * pt.exp(normal("a")), observed=COUNT))
    assert found.names == ("a",)
    expected = stats.poisson.logpmf(COUNT[:, None], EXPOSURE[:, None] * np.exp(GRID))
    values = found.loglik(GRID, compiled=False)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


# -- bambi -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noncentered", [True, False])
def test_bambi(noncentered):
    bambi = pytest.importorskip("bambi", reason="bambi is not installed")
    pandas = pytest.importorskip("pandas")
    places = np.array(list("abcd"))[GROUP]
    table = pandas.DataFrame({"y": BINARY, "x": x, "place": places, "w": REAL})
    formula = "y ~ x + place + x:w + (x | place) + offset(w)"
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        model = bambi.Model(formula, table, family="bernoulli", noncentered=noncentered)
        model.build()
    found = Read(find_linear_predictor(find_observations(model.backend.model)))
    columns = dict(zip(found.names, dense(found.design).T, strict=True))
    np.testing.assert_allclose(columns["Intercept"], 1.0)
    # Bambi centres what is common to all places.
    np.testing.assert_allclose(columns["x"], x - x.mean())
    np.testing.assert_allclose(columns["place[c]"], G[:, 2] - G[:, 2].mean())
    np.testing.assert_allclose(columns["x:w"], x * REAL - np.mean(x * REAL))
    np.testing.assert_allclose(columns["1|place[b]"], G[:, 1])
    np.testing.assert_allclose(columns["x|place[d]"], x * G[:, 3])
    assert len(columns) == 1 + 1 + 3 + 1 + 4 + 4
    np.testing.assert_allclose(found.offset, REAL)


# -- size ------------------------------------------------------------------------------------------


def test_many_groups_stay_sparse():
    n_obs, n_groups, rng = 200_000, 10_000, np.random.default_rng(8)
    group, covariates = rng.integers(0, n_groups, n_obs), rng.normal(size=(n_obs, 3))
    slope, outcome = rng.normal(size=n_obs), rng.integers(0, 2, n_obs)
    with pm.Model() as model:
        a = normal("mu") + pm.HalfNormal("sigma") * normal("z", shape=n_groups)
        eta = (
            a[group]
            + covariates @ normal("b", shape=3)
            + normal("c", shape=n_groups)[group] * slope
        )
        pm.Bernoulli("y", logit_p=eta, observed=outcome)
    observations = find_observations(model)
    tracemalloc.start()
    [predictor] = find_linear_predictor(observations).predictors
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert predictor.design.shape == (n_obs, 2 * n_groups + 3)
    assert predictor.design.nnz == 5 * n_obs
    # A dense matrix would have 32 GB.
    assert peak < 0.005 * 8 * np.prod(predictor.design.shape)
    np.testing.assert_array_equal(
        predictor.design[[7]].indices,
        [group[7], *range(n_groups, n_groups + 3), n_groups + 3 + group[7]],
    )


def test_columns_are_joined_in_the_smaller_form():
    few, many = sparse.eye_array(4, 2, format="csr"), sparse.csr_array(np.ones((4, 2)))
    assert isinstance(joined([many, np.zeros((4, 1))]), np.ndarray)
    assert sparse.issparse(joined([few, many, np.ones((4, 1))]))
    np.testing.assert_array_equal(
        joined([few, many, np.ones((4, 1))]).toarray(),
        np.hstack([few.toarray(), np.ones((4, 3))]),
    )


# -- refusals --------------------------------------------------------------------------------------


def free_scale():
    pm.Normal("y", X @ normal("b", shape=3), pm.HalfNormal("sigma"), observed=REAL)


def b3():
    return X @ normal("b", shape=3)


REFUSED = {
    "free scale": (free_scale, ("['sigma']", "['b']", "given={'sigma': ...}")),
    "free dispersion": (
        lambda: pm.NegativeBinomial(
            "y", mu=pt.exp(b3()), alpha=pm.HalfNormal("alpha"), observed=COUNT
        ),
        ("['alpha']", "['b']", "given={'alpha': ...}"),
    ),
    "free scale and degrees of freedom": (
        lambda: pm.StudentT(
            "y", pm.Gamma("nu", 2, 0.1), mu=b3(), sigma=pm.HalfNormal("s"), observed=REAL
        ),
        ("given={", "'nu': ...", "'s': ..."),
    ),
    "free share of zeros": (
        lambda: pm.ZeroInflatedPoisson(
            "y", psi=pm.Beta("psi", 1, 1), mu=pt.exp(b3()), observed=COUNT
        ),
        ("['psi']", "['b']", "given={'psi': ...}"),
    ),
    "free cut points": (
        lambda: pm.OrderedLogistic(
            "y",
            eta=b3(),
            cutpoints=pm.Normal("cut", shape=2, transform=ordered, initval=[-1.0, 1.0]),
            observed=ITEM,
        ),
        ("['cut']", "['b']", "given={'cut': ...}"),
    ),
    "two predictors": (
        lambda: pm.Normal("y", b3(), pt.exp(X @ normal("c", shape=3)), observed=REAL),
        ("['c']", "['b']", "another linear predictor"),
    ),
    "not affine": (
        lambda: pm.Poisson("y", pt.exp(normal("a") + pt.exp(normal("b") * x)), observed=COUNT),
        ("exp", "['b']", "given={...}"),
    ),
    "product of effects": (
        lambda: pm.Normal(
            "y", normal("a", shape=4)[GROUP] * normal("b", shape=3)[ITEM], 1.0, observed=REAL
        ),
        ("mul", "['a', 'b']"),
    ),
    "neural network": (
        lambda: pm.Normal(
            "y", pt.tanh(X @ normal("w", shape=(3, 2))) @ normal("v", shape=2), 1.0, observed=REAL
        ),
        ("tanh", "['w']"),
    ),
    "categories": (
        lambda: pm.Categorical("y", logit_p=X @ normal("w", shape=(3, 3)), observed=ITEM),
        "several numbers",
    ),
    "several outcomes": (
        lambda: pm.Normal(
            "y", X @ normal("w", shape=(3, 2)), 1.0, observed=np.column_stack([REAL, x])
        ),
        "several numbers",
    ),
    "free scale in a potential": (
        lambda: pm.Potential("y", huber((REAL - b3()) / (s := pm.HalfNormal("s"))) - pt.log(s)),
        ("['s']", "['b']", "given={'s': ...}"),
    ),
    "no predictor at all": (
        lambda: pm.Gamma("y", pm.HalfNormal("shape"), pm.HalfNormal("rate"), observed=POSITIVE),
        "scale or dispersion",
    ),
    "an exponential family alone": (
        lambda: pm.CustomDist(
            "y",
            pm.HalfNormal("shape"),
            pm.HalfNormal("rate"),
            logp=lambda v, a, b: pt.switch(
                v > 0.5, a * pt.log(b) - pt.gammaln(a) + (a - 1.0) * pt.log(v) - b * v, 0.0
            ),
            observed=POSITIVE,
        ),
        "scale or dispersion",
    ),
    "cut to whole numbers": (
        lambda: pm.Normal("y", pt.cast(b3(), "int64") + x * normal("c"), 1.0, observed=REAL),
        ("Cast{int64}", "['b']"),
    ),
    "computed for all rows at once": (
        lambda: pm.Normal("y", pt.sort(X @ normal("b", shape=3)), 1.0, observed=REAL),
        ("sort", "'b'"),
    ),
    "operation without a rule": (
        lambda: pm.Normal(
            "y", pt.cumsum(X * normal("b", shape=3), axis=1)[:, 2], 1.0, observed=REAL
        ),
        "Cumsum",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name):
    build, facts = REFUSED[name]
    with refused(UnsupportedModelError, facts, topic="regressions"):
        read(build)


def test_a_predictor_that_is_not_the_models_is_refused():
    found = read(lambda: pm.Normal("y", X @ normal("b", shape=3), 1.0, observed=REAL))
    for wrong in ({"offset": found.offset + 0.01}, {"design": X[:, ::-1]}):
        wrongly = (replace(found.predictors[0], **wrong),)
        with refused(
            UnsupportedModelError,
            "observation 0",
            "linear predictor",
            "report",
            topic="regressions",
        ):
            verify_predictors(replace(found.found, predictors=wrongly))


def test_a_covariate_that_is_missing_is_named():
    holes = X.copy()
    holes[11, 2] = np.nan
    with refused(InvalidDataError, "'b[2]'", "nan", "observation 11", topic="regressions"):
        read(lambda: pm.Normal("y", holes @ normal("b", shape=3), 1.0, observed=REAL))


def test_an_infinite_offset_is_named():
    exposure = EXPOSURE.copy()
    exposure[5] = 0.0
    with (
        refused(InvalidDataError, "offset", "-inf", "observation 5", topic="regressions"),
        np.errstate(divide="ignore"),
    ):
        read(lambda: pm.Poisson("y", pt.exp(normal("a") * x + np.log(exposure)), observed=COUNT))


# -- fixed variables -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unfixed():
    with pm.Model(coords={"covariate": ["age", "sex", "dose"]}) as model:
        b, sigma = normal("b", dims="covariate"), pm.HalfNormal("sigma")
        pm.Deterministic("twice", 2.0 * sigma)
        pm.Normal("y", X @ b, sigma, observed=REAL)
    return model


def test_a_fixed_scale_makes_a_model_linear(unfixed):
    fixed = fix_variables(unfixed, {"sigma": 0.5})
    found = Read(predictor_of(fixed))
    np.testing.assert_array_equal(found.design, X)
    assert found.names == ("b[age]", "b[sex]", "b[dose]")
    np.testing.assert_allclose(found.loglik(GRID), stats.norm.logpdf(y, GRID, 0.5))
    assert {v.name for v in unfixed.free_RVs} == {"b", "sigma"}


def test_fixed_coefficients_are_an_offset(unfixed):
    fixed = fix_variables(unfixed, {"b": [1.0, 2.0, 3.0]})
    with pm.Model() as expected:
        pm.Normal("y", X @ np.array([1.0, 2.0, 3.0]), pm.HalfNormal("sigma"), observed=REAL)
    draws = {"sigma": np.array([0.5, 2.0])}
    np.testing.assert_allclose(
        likelihood_of(fixed).matrix(draws),
        likelihood_of(expected).matrix(draws),
    )


def test_unnamed_dims_and_initial_values_survive():
    with pm.Model() as model:
        data = pm.Data("x", X, dims=("row", None))
        b = pm.Normal("b", shape=X.shape[1], initval=np.full(X.shape[1], 0.5))
        pm.Normal("y", data @ b, pm.HalfNormal("sigma", initval=2.0), observed=REAL, dims="row")
    fixed = fix_variables(model, {"sigma": 0.5})
    assert fixed.named_vars_to_dims["x"] == model.named_vars_to_dims["x"] == ("row", None)
    np.testing.assert_array_equal(fixed.rvs_to_initial_values[fixed["b"]], [0.5] * X.shape[1])
    [predictor] = predictor_of(fixed).predictors
    np.testing.assert_array_equal(predictor.design, X)


def test_nothing_fixed_is_the_model_itself(unfixed):
    assert fix_variables(unfixed, {}) is unfixed


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"tau": 1.0}, ("'tau'", "['b', 'sigma']")),
        ({"y": REAL}, ("'y'", "['b', 'sigma']")),
        ({"twice": 1.0}, ("'twice'", "['b', 'sigma']")),
        (
            {"sigma": [1.0, 2.0]},
            ("given['sigma']", "[1.0, 2.0]"),
        ),
        ({"b": 1.0}, ("given['b']", "(3,)", "1.0")),
        ({"sigma": np.nan}, ("given['sigma']", "nan")),
        ({"sigma": "one"}, ("given['sigma']", "'one'")),
    ],
)
def test_refused_values(unfixed, given, facts):
    with refused(InvalidOptionError, facts):
        fix_variables(unfixed, given)


def test_a_value_outside_the_support_is_refused(unfixed):
    fixed = fix_variables(unfixed, {"sigma": -1.0})
    with refused(InvalidDataError, "given={...}", topic="regressions"):
        predictor_of(fixed)
