"""Second moments of low rank: the bound of frequent directions, and Gaussians without p x p."""

import numpy as np
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse, stats

from pymc_coresets import InvalidOptionError, UnsupportedModelError, build_pass_glm, open_rows
from pymc_coresets.glm.polynomial.frequent_directions import FrequentDirections
from pymc_coresets.glm.polynomial.independent import LowRankGaussian, independent_prior
from pymc_coresets.glm.predictor.linear import find_linear_predictor
from pymc_coresets.reading.folding import PLAIN_MODE
from pymc_coresets.reading.observations import find_observations

P, QUIET = 12, {"random_seed": 1, "progressbar": False}


def decaying(rng, n_rows, n_columns, power):
    """Rows whose columns matter less and less, in random directions."""
    basis = np.linalg.qr(rng.normal(size=(n_columns, n_columns)))[0]
    return rng.normal(size=(n_rows, n_columns)) * np.arange(1.0, n_columns + 1) ** -power @ basis


def sketched(x, b, rank, scales, n_blocks=1):
    sketch = FrequentDirections(rank=rank, scales=scales)
    for rows in np.array_split(np.arange(len(x)), n_blocks):
        if len(rows):
            sketch.add(x[rows], b[rows])
    return sketch.finished()


def missing(moment, x, b):
    """E: what the factor leaves out of the scaled second moment."""
    whole = -2 * moment.scales[:, None] * (x.T * b) @ x * moment.scales
    return whole - moment.factor.T @ moment.factor


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6), n_rows=st.integers(1, 90), rank=st.integers(1, P),
    power=st.floats(0.0, 3.0), n_blocks=st.integers(1, 7),
)  # fmt: skip
def test_the_bound_holds_and_is_no_larger_than_promised(seed, n_rows, rank, power, n_blocks):
    rng = np.random.default_rng(seed)
    x, b = decaying(rng, n_rows, P, power), -rng.gamma(1.0, size=n_rows)
    scales = rng.gamma(2.0, size=P)
    moment = sketched(x, b, rank, scales, n_blocks)
    E, total = missing(moment, x, b), moment.squares.sum()
    slack = 1e-12 * total
    values = np.linalg.eigvalsh(E)
    assert values[0] >= -slack
    assert values[-1] <= moment.shrinkage + slack
    assert_allclose(moment.residual, np.diag(E), atol=slack)
    assert np.linalg.norm(E - np.diag(np.diag(E))) <= moment.off_diagonal + 1e-6 * total
    singular = np.linalg.svd(np.sqrt(-2 * b)[:, None] * x * scales, compute_uv=False) ** 2
    for k in range(min(rank, len(singular))):  # of Ghashami et al., Theorem 1.1
        assert moment.shrinkage <= singular[k:].sum() / (rank + 1 - k) + slack
    assert len(moment.factor) <= rank
    assert_allclose(moment.factor, sketched(x, b, rank, scales).factor, atol=1e-9 * total**0.5)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_few_directions_are_exact(layout):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3)) @ rng.normal(size=(3, P))
    b, scales = -rng.random(200), rng.gamma(2.0, size=P)
    sketch = FrequentDirections(rank=3, scales=scales)
    sketch.add(layout(x), b)
    moment = sketch.finished()
    assert_allclose(moment @ np.eye(P), (x.T * b) @ x, rtol=1e-9, atol=1e-9)
    assert_allclose(np.eye(P) @ moment, (x.T * b) @ x, rtol=1e-9, atol=1e-9)
    assert moment.shrinkage < 1e-12 * moment.squares.sum()
    assert moment.captured == pytest.approx(1)


def test_moments_of_parts_add_up_and_so_do_their_bounds():
    rng = np.random.default_rng(2)
    x, b, scales = decaying(rng, 120, P, 1.0), -np.ones(120), np.ones(P)
    one, other = sketched(x[:50], b[:50], 4, scales), sketched(x[50:], b[50:], 4, scales)
    both = one + other
    values = np.linalg.eigvalsh(missing(both, x, b))
    assert both.shrinkage >= one.shrinkage + other.shrinkage
    assert -1e-9 <= values[0] <= values[-1] <= both.shrinkage + 1e-9
    assert_allclose(both.squares, 2 * (x**2).sum(axis=0), rtol=1e-12)
    with pytest.raises(InvalidOptionError, match="4 and 5"):
        one + sketched(x, b, 5, scales)
    with pytest.raises(TypeError):
        one + 1


def test_a_gaussian_is_that_of_its_dense_precision():
    rng = np.random.default_rng(3)
    F, d, h = rng.normal(size=(4, P)), rng.gamma(2.0, size=P), rng.normal(size=P)
    covariance = np.linalg.inv(np.diag(d) + F.T @ F)
    gaussian = LowRankGaussian(linear=h, diagonal=d, factor=F)
    assert_allclose(gaussian.mean, covariance @ h, rtol=1e-10)
    assert_allclose(gaussian.variance, np.diag(covariance), rtol=1e-10)
    points = rng.normal(size=(3, P))
    expected = stats.multivariate_normal(covariance @ h, covariance).logpdf(points)
    assert_allclose(gaussian.logpdf(points), expected, rtol=1e-10)
    n_draws = 40_000
    draws = gaussian.draw(n_draws, rng=rng)
    whitened = (draws - gaussian.mean) @ np.linalg.cholesky(np.diag(d) + F.T @ F)
    # The largest of 144 entries, with a standard error of sqrt(2 / n) at most.
    assert np.abs(np.cov(whitened.T) - np.eye(P)).max() < 5 * np.sqrt(2 / n_draws)
    assert np.abs(whitened.mean(axis=0)).max() < 5 / np.sqrt(n_draws)
    empty = LowRankGaussian(linear=h, diagonal=d, factor=np.empty((0, P)))
    assert_allclose(empty.mean, h / d)


# -- summaries -------------------------------------------------------------------------------------

N, COLUMNS = 400, 50
_rng = np.random.default_rng(4)
X = decaying(_rng, N, COLUMNS, 1.0)
LATE = _rng.binomial(1, 1 / (1 + np.exp(-X @ _rng.normal(size=COLUMNS))))


def model_of(make_prior, likelihood=None):
    with pm.Model() as model:
        eta = 0.3 + X @ make_prior()
        (likelihood or (lambda eta: pm.Bernoulli("y", logit_p=eta, observed=LATE)))(eta)
    return model


def scaled():
    """A scale for each coefficient, a mean, and a free variable that is in no predictor."""
    pm.Normal("elsewhere", 2.0, 3.0)
    return 2.0 * pm.Normal("b", 0.25, np.linspace(0.2, 1.0, COLUMNS), shape=COLUMNS)


@pytest.fixture(scope="module")
def exact():
    return build_pass_glm(model_of(scaled), **QUIET)


def test_at_full_rank_the_posterior_is_the_exact_one(exact):
    found = build_pass_glm(model_of(scaled), rank=COLUMNS, **QUIET)
    mine, its = found.closed_form(), exact.closed_form()
    assert "covariance" not in mine
    assert_allclose(mine["mean"], its["mean"], atol=1e-8)
    assert_allclose(mine["sd"], its["sd"], rtol=1e-8)
    assert found.kl_of_rank < 1e-12
    assert (found.rank, exact.rank, exact.kl_of_rank) == (COLUMNS, None, 0.0)
    posterior = found._gaussian
    dense = stats.multivariate_normal(its["mean"], its["covariance"])
    at = its["mean"].values + 0.1
    assert posterior.logpdf(at) == pytest.approx(dense.logpdf(at), rel=1e-6)
    point = found.model.initial_point()
    logps = [s.model.compile_logp(mode=PLAIN_MODE)(point) for s in (found, exact)]
    assert logps[0] == pytest.approx(logps[1], rel=1e-9)


@pytest.mark.parametrize("rank", [5, 15, 30])
def test_the_divergence_is_below_its_bound(exact, rank):
    found = build_pass_glm(model_of(scaled), rank=rank, **QUIET)
    mine, its = found._gaussian, exact.closed_form()
    S = mine.moment.scales
    Q = np.diag(mine.gaussian.diagonal) + mine.gaussian.factor.T @ mine.gaussian.factor
    P = S[:, None] * np.linalg.inv(its["covariance"].values) * S
    away = mine.gaussian.mean - its["mean"].values / S
    kl = 0.5 * (
        np.trace(np.linalg.solve(Q, P)) - len(S) + np.linalg.slogdet(Q)[1]
        - np.linalg.slogdet(P)[1] + away @ P @ away
    )  # fmt: skip
    assert 1e-9 < kl <= found.kl_of_rank
    assert_allclose(np.diag(Q), np.diag(P), rtol=1e-9)  # the diagonal is exact
    assert f"rank           {rank}" in repr(found)
    if rank == 15:
        check = found.check(random_seed=1)
        assert check.kl_of_rank == found.kl_of_rank
        assert "error of rank 15" in repr(check)
        draws = found.draw(1_000, random_seed=1)["posterior"]["elsewhere"].values
        assert abs(draws.mean() - 2.0) < 5 * 3.0 / np.sqrt(4_000)


def test_the_rank_may_be_used_with_a_chosen_radius():
    options = QUIET | {"radius": "auto"}
    full, low = (build_pass_glm(model_of(scaled), rank=r, **options) for r in (None, 45))
    assert low.radius == pytest.approx(full.radius, rel=0.05)  # of 50 random draws
    both = low + low
    assert both.rank == 45
    assert both.n_observations == 2 * N


def test_rows_in_chunks_have_the_sketch_of_the_rows_in_memory():
    def chunked():
        return ({"X": X[a : a + 37], "y": LATE[a : a + 37]} for a in range(0, N, 37))

    with pm.Model() as model:
        x, y = pm.Data("X", X[:10]), pm.Data("y", LATE[:10])
        b = 2.0 * pm.Normal("b", 0.25, np.linspace(0.2, 1.0, COLUMNS), shape=COLUMNS)
        pm.Normal("elsewhere", 2.0, 3.0)
        pm.Bernoulli("likelihood", logit_p=0.3 + x @ b, observed=y)
    mine = build_pass_glm(model, rows=open_rows(chunked), rank=10, **QUIET)
    its = build_pass_glm(model_of(scaled), rank=10, **QUIET)
    assert_allclose(mine.closed_form()["mean"], its.closed_form()["mean"], rtol=1e-9, atol=1e-10)
    assert mine.kl_of_rank == pytest.approx(its.kl_of_rank, rel=1e-9)


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (lambda: pm.Normal("b", 0, pm.HalfNormal("s"), shape=COLUMNS), "'s'.* not one of indep"),
        (lambda: pm.Laplace("b", 0, 1, shape=COLUMNS), "'b'.* not one of indep"),
        (lambda: pm.MvNormal("b", np.zeros(50), np.eye(50) + 0.5), "'b'.* not one of indep"),
        (lambda: pm.Flat("b", shape=COLUMNS), "'b'.* not one of indep"),
        (lambda: pm.HalfNormal("b", 1, shape=COLUMNS), "'b'.* not one of indep"),
        (lambda: pm.Normal("b", shape=(2, 50)).sum(axis=0), "not each a free number"),
    ],
)
def test_other_priors_are_refused_by_name(prior, words):
    with pytest.raises(UnsupportedModelError, match=words):
        independent_prior(find_linear_predictor(find_observations(model_of(prior))))


def test_convex_log_likelihoods_are_refused():
    y = np.linspace(-40.0, 40.0, N)
    model = model_of(scaled, lambda eta: pm.Cauchy("y", eta, 1.0, observed=y))
    with pytest.raises(UnsupportedModelError, match="convex"):
        build_pass_glm(model, rank=5, **QUIET)
