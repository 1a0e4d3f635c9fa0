"""Polynomial statistics against brute force, closed forms, and known coefficients."""

import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev
from numpy.polynomial.polynomial import polyval
from scipy import sparse
from scipy.special import gammaln

from pymc_coresets import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.concavity import is_concave
from pymc_coresets.glm.predictor import predictors, row_density
from pymc_coresets.glm.predictor.finding import find_linear_predictor
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.papers.polynomial.parts_of_data import (
    PredictorRows,
    chebyshev_fit,
    row_polynomials,
    shifted,
)
from pymc_coresets.papers.polynomial.replacement import NormalPosterior
from pymc_coresets.papers.polynomial.statistics import (
    check_size,
    monomial_levels,
    monomials,
    n_monomials,
    polynomial_statistics,
)
from tests.derived import likelihood_of, predictor_of, rows_seen
from tests.refusals import refused

N, P = 300, 3


def logistic(y):
    return lambda eta, rows: y[rows, None] * eta - np.logaddexp(0, eta)


def poisson(y):
    return lambda eta, rows: y[rows, None] * eta - np.exp(eta) - gammaln(y[rows, None] + 1)


def gaussian(y):
    return lambda eta, rows: -0.5 * (y[rows, None] - eta) ** 2


def cauchy(y):
    return lambda eta, rows: -np.log1p((y[rows, None] - eta) ** 2)


FAMILIES = {
    "logistic": (logistic, np.random.default_rng(1).integers(0, 2, N)),
    "poisson": (poisson, np.random.default_rng(2).poisson(1.5, N)),
    "gaussian": (gaussian, np.random.default_rng(3).normal(size=N)),
    "cauchy": (cauchy, np.random.default_rng(4).normal(size=N)),
}


@pytest.fixture(params=FAMILIES)
def family(request):
    make, y = FAMILIES[request.param]
    return make(y), y


@pytest.fixture(scope="module")
def design():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, P)) * rng.integers(0, 2, size=(N, P))
    return X, 0.3 * rng.normal(size=N)


@dataclass(frozen=True)
class Rows:
    """Some rows of one predictor, whose log-likelihood is a function of it and of their numbers."""

    loglik: object
    response: list
    some: object = slice(None)
    where = staticmethod("row {}".format)
    kinds_at = RowsInMemory.kinds_at

    def take(self, some):
        return replace(self, some=some)

    def density(self, eta, *, compiled=True):
        assert compiled is isinstance(self.some, slice)
        return self.loglik(eta[0, :, 0], self.some).T


@dataclass(frozen=True)
class Polynomials:
    """Those of some rows in their predictors, on an interval."""

    each: np.ndarray
    offset: np.ndarray
    radius: float


def prepare(loglik, y, offset=None, degree=2, radius=4.0):
    offset = np.zeros(len(y)) if offset is None else offset
    each = row_polynomials(Rows(loglik, [y]), degree, radius)
    return Polynomials(each, offset, radius)


def statistics_of(X, rows):
    return polynomial_statistics(X, shifted(rows.each, rows.offset), rows.radius).finished()


def brute_force(X, rows, theta):
    """The definition: the polynomial of each row at its predictor, added up."""
    return sum(polyval(x @ theta + o, b) for x, o, b in zip(X, rows.offset, rows.each, strict=True))


# -- coefficients ----------------------------------------------------------------------------------


def test_the_papers_quadratic_for_logistic_regression():
    nodes, fit = chebyshev_fit(2, 4.0)
    np.testing.assert_allclose(
        -np.logaddexp(0, -nodes) @ fit, [-0.76187, 0.5, -0.081668], atol=5e-6
    )


@given(
    b=st.lists(st.floats(-3, 3), min_size=1, max_size=9),
    radius=st.floats(0.3, 20),
    extra=st.integers(0, 3),
    offset=st.floats(-2, 2),
)
def test_polynomials_are_their_own_expansion_and_shift(b, radius, extra, offset):
    nodes, fit = chebyshev_fit(max(len(b) - 1 + extra, 1), radius)
    found = polyval(nodes, b) @ fit
    s = np.linspace(-radius, radius, 7)
    size = max(1.0, np.abs(polyval(radius, np.abs(b))))
    np.testing.assert_allclose(polyval(s, found), polyval(s, b), atol=1e-11 * size)
    moved = shifted(found[None], np.array([offset]))[0]
    reach = size * max(1.0, (abs(offset) + radius) / radius) ** 12
    np.testing.assert_allclose(polyval(s, moved), polyval(s + offset, found), atol=1e-10 * reach)


@pytest.mark.parametrize("degree", [2, 5, 6, 10])
def test_the_error_is_the_tail_of_the_chebyshev_series(degree, family):
    loglik, y = family
    rows = prepare(loglik, y, degree=degree)
    grid = np.linspace(-4, 4, 801)
    error = np.abs(loglik(grid, slice(0, 20)) - polyval(grid, rows.each[:20].T)).max(axis=1)
    for n in range(20):
        series = chebyshev.chebinterpolate(lambda t, n=n: loglik(4 * t, np.array([n]))[0], 400)
        # Beyond the tail, what 32 nodes fold back onto the coefficients.
        folded = np.abs(series[64 - degree :]).sum()
        assert error[n] <= np.abs(series[degree + 1 :]).sum() + folded + 1e-10


def test_equal_responses_are_evaluated_once_and_agree_with_every_row(monkeypatch, family, design):
    loglik, y = family
    counted = []

    def counting(eta, rows):
        values = loglik(eta, rows)
        counted.append(len(values))
        return values

    table = prepare(counting, y).each
    assert sum(counted) == len(np.unique(y))
    monkeypatch.setattr(row_density.distinct_rows, "__defaults__", (1,))
    np.testing.assert_allclose(prepare(counting, y).each, table, atol=1e-12)
    assert counted[-1] == N


@pytest.mark.parametrize("n_determined", [0, 120, N])
def test_responses_of_several_columns(n_determined):
    rng = np.random.default_rng(6)
    trials, y = rng.integers(1, 12, N), rng.integers(0, 12, N).astype(float)
    kind = rng.integers(0, 2, (N, 2)).astype(bool)
    trials[:n_determined], kind[:n_determined] = 12 + y[:n_determined], False

    def loglik(eta, rows):
        size = trials[rows] + 2.0 * kind[rows, 0] - kind[rows, 1]
        return y[rows, None] * eta - size[:, None] * np.logaddexp(0, eta)

    found = row_polynomials(Rows(loglik, [trials, y, kind]), 4, 2.0)
    nodes, fit = chebyshev_fit(4, 2.0)
    np.testing.assert_allclose(found, loglik(nodes, slice(0, N)) @ fit, atol=1e-11)


@given(
    columns=st.lists(
        st.lists(st.sampled_from([0.0, 1.5, -2.0, np.nan]), min_size=7, max_size=7),
        min_size=1, max_size=3,
    ),
    beginning=st.integers(1, 7),
    most=st.integers(1, 8),
)  # fmt: skip
def test_distinct_rows_are_numbered(columns, beginning, most):
    arrays = [np.array(column) for column in columns]
    kinds = list(dict.fromkeys(tuple(map(repr, row)) for row in zip(*columns, strict=True)))
    found = row_density.distinct_rows(arrays, most, beginning=beginning)
    rows = [tuple(map(repr, row)) for row in zip(*columns, strict=True)]
    all_differ = len(set(rows[:beginning])) == beginning
    if len(kinds) > most or (all_differ and most < 7):
        assert found is None
        return
    numbers, some = found
    assert [rows[some[number]] for number in numbers] == rows
    assert len(some) == len(kinds)


# -- statistics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sparse.csr_array])
def test_statistics_give_the_sum_of_the_rows_polynomials(degree, layout, family, design):
    (loglik, y), (X, offset) = family, design
    rows = prepare(loglik, y, offset, degree)
    statistics = statistics_of(layout(X), rows)
    thetas = np.random.default_rng(7).normal(size=(4, P))
    expected = [brute_force(X, rows, theta) for theta in thetas]
    np.testing.assert_allclose(statistics.loglik(thetas), expected, rtol=1e-9)
    assert statistics.n_obs == N


def test_degree_two_is_a_scalar_a_vector_and_a_matrix_with_all_entries():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(N, 2)) @ np.linalg.cholesky([[1, 0.8], [0.8, 1]]).T
    y = rng.integers(0, 2, N)
    statistics = statistics_of(X, prepare(logistic(y), y))
    b = chebyshev_fit(2, 4.0)[1].T @ -np.logaddexp(0, -chebyshev_fit(2, 4.0)[0])
    Z = X * (2 * y - 1)[:, None]
    np.testing.assert_allclose(statistics.moments[0], [[N * b[0]]])
    np.testing.assert_allclose(statistics.moments[1], [b[1] * Z.sum(axis=0)])
    np.testing.assert_allclose(statistics.moments[2], b[2] * Z.T @ Z)


@pytest.mark.parametrize("degree", [2, 6])
def test_blocks_and_parts_add_up(limits, degree, family, design):
    (loglik, y), (X, offset) = family, design
    theta = np.array([0.5, -1.0, 0.3])
    whole = statistics_of(X, prepare(loglik, y, offset, degree))
    limits(gram_entries=64)
    blocks = statistics_of(X, prepare(loglik, y, offset, degree))
    parts = []
    for part in (slice(0, 100), slice(100, N)):
        rows = prepare(
            lambda eta, r, part=part: loglik(eta, np.arange(N)[part][r]),
            y[part],
            offset[part],
            degree,
        )
        parts.append(statistics_of(X[part], rows))
    total = parts[0] + parts[1]
    for found in (blocks, total):
        assert found.n_obs == N
        np.testing.assert_allclose(found.loglik(theta), whole.loglik(theta), rtol=1e-11)
        for a, b in zip(found.moments, whole.moments, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10 * max(1.0, np.abs(b).max()))
        np.testing.assert_allclose(found.rising, whole.rising, atol=1e-9)


def test_weights_of_both_signs():
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(N, P)), rng.normal(scale=5, size=N)
    rows = prepare(cauchy(y), y)
    b2 = rows.each[:, 2]
    assert (b2 > 0).any()
    assert (b2 < 0).any()
    found = statistics_of(X, rows)
    np.testing.assert_allclose(found.moments[2], X.T @ (b2[:, None] * X), atol=1e-12 * N)
    np.testing.assert_allclose(found.rising[2] / 16, b2[b2 > 0].sum())
    np.testing.assert_allclose(found.falling[2] / 16, -b2[b2 < 0].sum())


def test_a_sparse_design_stays_sparse_where_that_is_smaller():
    rng = np.random.default_rng(10)
    groups, y = rng.integers(0, 500, 5_000), rng.integers(0, 2, 5_000)
    X = sparse.csr_array((np.ones(5_000), (np.arange(5_000), groups)), shape=(5_000, 500))
    found = statistics_of(X, prepare(logistic(y), y)).moments[2]
    assert sparse.issparse(found)
    assert found.nnz == len(np.unique(groups))
    small = statistics_of(X[:, :3], prepare(logistic(y), y)).moments[2]
    assert isinstance(small, np.ndarray)


def test_nothing_of_the_size_of_the_design_is_copied():
    X = np.random.default_rng(11).normal(size=(200_000, 20))  # 32 MB
    weights = np.random.default_rng(12).normal(size=len(X))
    tracemalloc.start()
    try:
        found = predictors.weighted_gram(X, weights)
        assert tracemalloc.get_traced_memory()[1] < 16e6
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found, X.T @ (weights[:, None] * X), atol=1e-8)


def test_monomials_with_their_multiplicities_are_powers_of_a_sum():
    levels = monomial_levels(4, 5)
    x, theta = np.random.default_rng(12).normal(size=(2, 4))
    for a, (values, level) in enumerate(zip(monomials(x, levels), levels, strict=True), start=1):
        assert len(values) == n_monomials(4, a)
        own = level.multiplicity * monomials(theta, levels)[a - 1]
        np.testing.assert_allclose(values @ own, (x @ theta) ** a)


# -- properness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "proper"),
    [(1, False), (2, True), (3, True), (4, False), (6, True), (8, False), (10, True), (12, False)],
)
def test_logistic_degrees(degree, proper):
    y = np.array([0, 1, 1, 1])
    statistics = statistics_of(np.ones((4, 1)), prepare(logistic(y), y, degree=degree))
    assert statistics.is_proper is proper
    far = statistics.loglik(np.array([[1e4], [-1e4]])) < 0
    assert far.all() == proper


def test_poisson_is_proper_for_even_degrees_and_a_gaussian_stays_quadratic():
    y = FAMILIES["poisson"][1]
    X = np.ones((N, 1))
    for degree in range(2, 9):
        statistics = statistics_of(X, prepare(poisson(y), y, degree=degree))
        assert statistics.is_proper is (degree % 2 == 0)
    y = FAMILIES["gaussian"][1]
    statistics = statistics_of(X, prepare(gaussian(y), y, degree=7))
    assert statistics.leading_degree == 2
    assert statistics.is_proper


def test_outliers_of_a_cauchy_make_a_quadratic_improper():
    y = np.r_[np.zeros(5), np.full(100, 9.0)]
    assert not statistics_of(np.ones((105, 1)), prepare(cauchy(y), y)).is_proper
    y = np.r_[np.zeros(20), np.full(5, 9.0)]
    assert statistics_of(np.ones((25, 1)), prepare(cauchy(y), y)).is_proper


def test_a_form_that_grows_in_some_direction_is_never_called_proper():
    """Of rows whose leading coefficients have both signs: along the first column they are positive.

    With the second sign in a few rows only, or where it is outweighed, the form is concave.
    """
    X = np.random.default_rng(17).normal(size=(200, 2))
    b = np.zeros((200, 5))
    b[:, 4] = -1.0
    assert polynomial_statistics(X, b, 4.0).is_proper
    b[:1, 4] = 1e-3
    assert polynomial_statistics(X, b, 4.0).is_proper
    b[:, 4] = np.where(np.abs(X[:, 0]) > np.abs(X[:, 1]), 1.0, -1.0)
    grows = polynomial_statistics(X, b, 4.0)
    assert grows.loglik(np.array([1e3, 0.0])) > 0
    assert not grows.is_proper


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_definiteness_does_not_depend_on_units(layout):
    rng = np.random.default_rng(13)
    A = rng.normal(size=(6, 4)) * np.array([1e-6, 1.0, 1e6, 1.0])
    singular = np.column_stack([A, A[:, 1] + A[:, 3]])
    assert is_concave(layout(-singular.T @ singular))
    assert not is_concave(layout(np.diag([-1.0, 1e-6])))
    wrong = -A.T @ A
    wrong[0, 1] = wrong[1, 0] = 1.1 * np.sqrt(wrong[0, 0] * wrong[1, 1])
    assert not is_concave(layout(wrong))


# -- closed form -----------------------------------------------------------------------------------


def test_a_gaussian_likelihood_gives_the_conjugate_posterior(design):
    X, offset = design
    y = FAMILIES["gaussian"][1]
    rng = np.random.default_rng(14)
    A = rng.normal(size=(P, 2))
    a, mu0, sd0 = rng.normal(size=P), np.array([0.5, -1.0]), np.array([2.0, 0.1])
    with pm.Model() as model:
        b = pm.Deterministic("b", a + A @ pm.Normal("z", mu0, sd0, shape=2))
        pm.Normal("y", X @ b + offset, 1.0, observed=y)
    held = predictor_of(model)
    statistics = statistics_of(X, prepare(gaussian(y), y, offset))
    B = X @ A
    precision = np.diag(sd0**-2) + B.T @ B
    expected = np.linalg.solve(precision, mu0 / sd0**2 + B.T @ (y - offset - X @ a))
    found = NormalPosterior.of(held, statistics.quadratic(held.names))
    np.testing.assert_allclose(found.normal.location, expected, rtol=1e-9)
    np.testing.assert_allclose(found.normal.covariance, np.linalg.inv(precision), rtol=1e-9)
    np.testing.assert_allclose(found.mean, a + A @ expected, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, A @ np.linalg.inv(precision) @ A.T, atol=1e-12)
    draws = found.draw(40_000, rng=rng)
    np.testing.assert_allclose(np.cov(draws.T), found.covariance, atol=0.03 * draws.var())


def test_closed_form_refuses_other_degrees_and_improper_posteriors(design):
    X, _ = design
    y = FAMILIES["logistic"][1]
    collinear = np.column_stack([X, X[:, 0]])
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=collinear @ pm.Flat("b", shape=P + 1), observed=y)
    held = predictor_of(model)
    two = statistics_of(collinear, prepare(logistic(y), y))
    with refused(InvalidDataError, "improper", topic="regressions"):
        NormalPosterior.of(held, two.quadratic(held.names))
    six = statistics_of(X, prepare(logistic(y), y, degree=6))
    with refused(InvalidOptionError, "degree 6"):
        six.quadratic(range(P))


# -- reach -----------------------------------------------------------------------------------------


def test_passes_agree_with_brute_force(design):
    (X, offset), y = design, FAMILIES["poisson"][1]
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(X @ pm.Normal("b", shape=P) + offset), observed=y)
    loglik = likelihood_of(model)
    part = PredictorRows(SeenRows(find_linear_predictor(loglik.observations)), loglik)
    expected = prepare(poisson(y), y, offset)
    rows = RowsInMemory(part.held, np.arange(N), np.ones(N))
    np.testing.assert_allclose(row_polynomials(rows, 2, 4.0), expected.each, atol=1e-6)
    thetas = np.random.default_rng(15).normal(scale=2, size=(5, P))
    statistics = part.statistics(2, 4.0)
    brute = [brute_force(X, expected, theta) for theta in thetas]
    np.testing.assert_allclose(statistics.loglik(thetas), brute, rtol=1e-6)
    found = part.reach(2, 4.0, thetas)
    eta = X @ thetas.T + offset[:, None]
    assert found.outside == pytest.approx(np.mean(np.abs(eta) > 4))
    polynomial = np.stack([polyval(e, c) for e, c in zip(eta, expected.each, strict=True)])
    error = np.abs(poisson(y)(eta, slice(0, N)) - polynomial).max()
    assert found.max_error == pytest.approx(error)
    for weights, times in ((np.ones(N), 1), (np.arange(N) % 3 + 1.0, np.arange(N) % 3 + 1)):
        part.__dict__["_sample"] = rows, weights
        many = np.repeat(np.abs(eta), times, axis=0)
        how = "linear" if np.ptp(times) == 0 else "inverted_cdf"
        quantile = np.quantile(many, 0.9, method=how)
        assert part.quantile(thetas, 0.9) == pytest.approx(quantile)
        assert part.reach(2, 4.0, thetas).outside == pytest.approx(np.mean(many > 4))


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"degree": 4}, {"radius": 5.0}])
def test_only_like_statistics_add_up(other, design):
    X, _ = design
    y = FAMILIES["poisson"][1]
    one = statistics_of(X, prepare(poisson(y), y))
    with refused(InvalidOptionError, next(iter(other))):
        one + statistics_of(X, prepare(poisson(y), y, **other))
    with refused(InvalidOptionError, "n_coefficients"):
        one + statistics_of(X[:, :2], prepare(poisson(y), y))


def test_too_many_monomials_are_refused_but_not_for_degree_two():
    y = np.zeros(4)
    statistics_of(np.ones((4, 2_500)), prepare(gaussian(y), y))
    with refused(InvalidOptionError, "degree=4", "3,126,250 monomials", "degree=2"):
        check_size(4, 2_500)


def test_a_log_likelihood_that_is_not_finite_names_the_row():
    y = np.ones(10)
    y[7] = np.nan
    with refused(InvalidDataError, "row 7", topic="regressions"):
        statistics_of(np.ones((10, 1)), prepare(gaussian(y), y))


def test_designs_that_do_not_fit():
    y = np.ones(10)
    with refused(InvalidDataError, "degree 1", "not finite", topic="regressions"):
        statistics_of(np.full((10, 1), np.inf), prepare(gaussian(y), y))


@pytest.mark.parametrize("negative", [True, False])
def test_sparse_matrices_are_judged_like_dense_ones(negative):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(20, 9))
    matrix = np.zeros((10, 10))
    matrix[:9, :9] = -A.T @ A
    matrix[8, 9] = matrix[9, 8] = 0.0 if negative else np.sqrt(-matrix[8, 8]) * 1.1
    matrix[9, 9] = -1.0
    assert is_concave(sparse.csr_array(matrix)) is negative
    assert is_concave(matrix) is negative


def test_large_radii_do_not_lose_the_tails():
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=np.array([0, 1, 1]))
    found = row_polynomials(rows_seen(predictor_of(model)), 2, 60.0)
    nodes, fit = chebyshev_fit(2, 60.0)
    y = np.array([0.0, 1.0, 1.0])[:, None]
    np.testing.assert_allclose(found, (y * nodes - np.logaddexp(0, nodes)) @ fit, rtol=1e-9)
