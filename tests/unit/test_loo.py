"""The elpd of all rows: against closed forms, ArviZ, and over repeated samples and draws."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple

import cloudpickle
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_base import from_dict
from arviz_stats import compare, loo, loo_approximate_posterior
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import logsumexp

from pymc_coresets import (
    InvalidDataError,
    InvalidOptionError,
    build_coreset,
    build_pass_glm,
    open_rows,
)
from pymc_coresets.after import surrogates
from pymc_coresets.after.leave_one_out import elpd_of_rows, units_of
from pymc_coresets.after.surrogates import ElpdSurrogate, difference_estimate, of_block
from pymc_coresets.after.without_rows import AffineMove
from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.passes import BlockPass
from pymc_coresets.rows.values import NO_UNIT_ROWS, Rows, UnitRows
from tests.derived import likelihood_of
from tests.refusals import refused, warned

N, PRIOR_SD, NOISE = 500, 2.0, 1.3
X = np.random.default_rng(1).normal(size=(N, 3))
Y = np.random.default_rng(2).normal(X @ [1.0, -1.0, 0.5], NOISE)
SHAPE = (2, 200)


def regression(x=X, y=Y):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, PRIOR_SD, shape=x.shape[1])
        pm.Normal("y", x @ beta, NOISE, observed=y)
    return model


class Corrected(NamedTuple):
    draws: Draws
    evaluated: EvaluatedDraws

    @classmethod
    def of(cls, beta, log_p, log_q):
        numbers = np.arange(log_p.shape[1])
        draws = Draws({"beta": beta.reshape(-1, beta.shape[-1])})
        return cls(draws, EvaluatedDraws(numbers, log_p, log_q))


class Exact:
    """A Gaussian regression with known noise: its posterior, and its elpd, in closed form."""

    def __init__(self, x=X, y=Y, counts=None):
        self.x, self.y = x, y
        self.counts = np.ones(len(y)) if counts is None else counts
        precision = np.eye(x.shape[1]) / PRIOR_SD**2 + (x.T * self.counts) @ x / NOISE**2
        self.covariance = np.linalg.inv(precision)
        self.mean = self.covariance @ x.T @ (self.counts * y) / NOISE**2

    def elpds(self):
        """Of each row, when it is left out once."""
        found = []
        precision = np.linalg.inv(self.covariance)
        for x, y in zip(self.x, self.y, strict=True):
            covariance = np.linalg.inv(precision - np.outer(x, x) / NOISE**2)
            mean = covariance @ (precision @ self.mean - x * y / NOISE**2)
            found.append(stats.norm.logpdf(y, x @ mean, np.sqrt(NOISE**2 + x @ covariance @ x)))
        return np.array(found)

    def draws(self, seed, *, shift=0.0, stretch=1.0):
        """Return independent draws of a Gaussian near the posterior, corrected to it."""
        z = np.random.default_rng(seed).normal(size=(*SHAPE, len(self.mean)))
        root = np.linalg.cholesky(self.covariance)
        beta = self.mean + (shift + stretch * z) @ root.T
        log_p = -0.5 * np.sum((shift + stretch * z) ** 2, axis=-1)
        prior = -0.5 * np.sum(beta**2, axis=-1) / PRIOR_SD**2
        # What is corrected are the log-likelihoods; the prior is in both densities.
        own = -0.5 * np.sum(z**2, axis=-1)
        return Corrected.of(beta, log_p - prior, own - prior)


@pytest.fixture(scope="module")
def loglik():
    found = likelihood_of(regression())
    found.matrix({"beta": np.zeros((1, 3))})  # compiles it for all tests
    return found


@pytest.fixture(scope="module")
def exact():
    return Exact()


def estimate(loglik, found, observations, key=1):
    return elpd_of_rows([loglik], *found, observations=observations, key=key, remedy="Draw more.")


def error_and_se(found, truth):
    return found.elpd - truth, np.hypot(found.mcse, found.subsampling_se)


# -- estimates -------------------------------------------------------------------------------------


def test_all_rows_are_what_arviz_computes(loglik, exact):
    found = exact.draws(1, shift=0.3, stretch=1.2)
    values = loglik.matrix(found.draws)
    matrix = {"y": values.T.reshape(*SHAPE, N)}
    expected = loo_approximate_posterior(
        from_dict({"log_likelihood": matrix}),
        found.evaluated.log_p,
        found.evaluated.log_q,
        pointwise=True,
    )
    result = estimate(loglik, found, np.inf)
    assert_allclose(result.elpd_i, expected.elpd_i, rtol=1e-10)
    assert_allclose(result.pareto_k, expected.pareto_k, rtol=1e-8)
    se = expected.se * np.sqrt(1 - 1 / N)  # ArviZ divides by N - 1 here, by N in subsamples
    assert_allclose([result.elpd, result.se], [expected.elpd, se], rtol=1e-10)
    assert (result.subsampling_se, result.subsample_size, result.warning) == (0.0, N, False)


def test_with_exact_draws_loo_is_that_of_arviz(loglik, exact):
    found = exact.draws(2)
    matrix = {"y": loglik.matrix(found.draws).T.reshape(*SHAPE, N)}
    expected = loo(from_dict({"log_likelihood": matrix}), reff=1.0)
    result = estimate(loglik, found, np.inf)
    assert_allclose([result.elpd, result.p], [expected.elpd, expected.p])


def test_the_sums_are_arviz_difference_estimates():
    rng = np.random.default_rng(3)
    surrogate, sampled = rng.normal(size=50), np.arange(0, 50, 4)
    values = surrogate[sampled] + 0.1 * rng.normal(size=len(sampled))
    found = difference_estimate(
        surrogate=surrogate, sampled=sampled, values=values, counts=np.ones(50)
    )
    expected = array_stats.diff_srs_estimator(values, surrogate[sampled], surrogate, 50)
    assert_allclose([found.total, found.subsampling_se, found.data_se], expected)


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_reported_errors_cover_the_exact_elpd(loglik, exact, shift):
    """Over draws and samples of rows, 95 % of the estimates are within 1.96 standard errors.

    Of 25, Binomial(25, 0.95) is below 20 with probability 0.001.
    """
    truth = exact.elpds().sum()
    found = [
        estimate(loglik, exact.draws(seed, shift=shift, stretch=1.0 + shift / 2), 40, key=seed)
        for seed in range(25)
    ]
    errors, ses = np.array([error_and_se(one, truth) for one in found]).T
    assert np.count_nonzero(np.abs(errors) < 1.96 * ses) >= 20
    # The standard errors are of the right size: the mean square of 25 is known to 28 %.
    assert 0.3 < np.mean(np.square(errors / ses)) < 2.0


def test_the_parts_of_the_error_are_apart(loglik, exact):
    """Over samples of rows alone, the estimates vary by `subsampling_se`; over draws, by `mcse`."""
    draws = exact.draws(5, shift=0.5)
    by_rows = [estimate(loglik, draws, 20, key=key) for key in range(25)]
    reported = np.sqrt(np.mean([one.subsampling_se**2 for one in by_rows]))
    assert_allclose(np.std([one.elpd for one in by_rows]), reported, rtol=0.5)
    few = likelihood_of(regression(X[:50], Y[:50] / 2))
    few.matrix({"beta": np.zeros((1, 3))})
    its = Exact(X[:50], Y[:50] / 2)
    by_draws = [estimate(few, its.draws(seed), np.inf) for seed in range(25)]
    reported = np.mean([one.mcse for one in by_draws])
    assert_allclose(np.std([one.elpd for one in by_draws]), reported, rtol=0.5)


def test_a_row_counts_as_often_as_it_stands_for(exact):
    """Rows with case weights are the same as these rows, repeated."""
    counts = np.random.default_rng(4).poisson(2.0, size=300).astype(float)
    x, y = X[:300], Y[:300]
    weighted = Exact(x, y, counts)
    source = open_rows({"x": x, "observed": y, "n": counts}, weight="n")
    with pm.Model() as model:
        rows = pm.Data("x", x[:9])
        observed = pm.Data("observed", y[:9])
        beta = pm.Normal("beta", 0.0, PRIOR_SD, shape=3)
        pm.Normal("y", rows @ beta, NOISE, observed=observed)
    coreset = build_coreset(
        model, rows=source, size=40, method="uniform", random_seed=1, progressbar=False
    )
    loglik, found = coreset.loglikelihood, weighted.draws(1)
    elpds = weighted.elpds()
    result = estimate(loglik, found, np.inf)
    error, se = error_and_se(result, counts @ elpds)
    assert abs(error) < 3 * se
    assert np.sqrt(np.mean((result.elpd_i - counts * elpds) ** 2)) < 0.05
    total = counts.sum()
    data_se = np.sqrt(counts @ (elpds - counts @ elpds / total) ** 2)
    assert_allclose(result.se, data_se, rtol=0.01)
    error, se = error_and_se(estimate(loglik, found, 150), counts @ elpds)
    assert abs(error) < 3 * se


def test_rows_elsewhere_are_what_they_are_in_memory(loglik, exact):
    """Whoever evaluates them, in whatever chunks; what is sent to a worker can be pickled."""
    cut = [0, 7, 200, N]
    chunks = [{"x": X[a:b], "observed": Y[a:b]} for a, b in pairwise(cut)]
    with pm.Model() as model, ThreadPoolExecutor(2) as pool:
        rows, observed = pm.Data("x", X[:9]), pm.Data("observed", Y[:9])
        pm.Normal("y", rows @ pm.Normal("beta", 0.0, PRIOR_SD, shape=3), NOISE, observed=observed)
        elsewhere = build_coreset(
            model,
            rows=open_rows(chunks),
            executor=pool,
            size=40,
            method="uniform",
            random_seed=1,
            progressbar=False,
        ).loglikelihood
        found = exact.draws(2)
        results = [estimate(one, found, 90) for one in (loglik, elsewhere)]
    for name in ("elpd_i", "elpd_loo_approx"):
        assert_allclose(*(getattr(result, name) for result in results), rtol=1e-9)
    given = loglik.given(Draws({"beta": np.zeros((64, 3))}))
    of_block, of_blocks = surrogates.of_block, surrogates.of_blocks
    begin = partial(loglik.evaluator_of(1, N).of_blocks, given, of_block)
    work = BlockPass(100, begin, of_blocks)
    sent = cloudpickle.loads(cloudpickle.dumps(work))
    some = loglik.source.at(np.arange(5))
    assert_array_equal(sent.begin()(some), work.begin()(some))


def test_values_that_are_not_finite_count_for_nothing_in_the_surrogate():
    values = np.array([[0.0, 0.0, 700.0, -np.inf], [1.0, np.nan, 0.0, -np.inf]])
    inverse, mean = surrogates._log_means(-values), surrogates._log_means(values)
    assert_allclose(inverse, [np.log((1 + np.exp(-1)) / 2), 0.0, -np.log(2), 0.0])
    assert_allclose(mean, [np.log((1 + np.e) / 2), 0.0, 700 - np.log(2), 0.0])
    ordinary = np.random.default_rng(1).normal(scale=50, size=(64, 20))
    expected = logsumexp(ordinary, axis=0) - np.log(64)
    assert_allclose(surrogates._log_means(ordinary), expected, rtol=1e-12)


def test_merged_rows_are_the_same_as_separate_ones():
    """Rows that a coreset's construction merges are left out one by one."""
    x, y = X[:400].round(), Y[:400].round()
    merged = LogLikelihood(find_observations(regression(x, y)), collapse=True)
    separate = LogLikelihood(merged.observations)
    assert merged.n_rows < separate.n_rows
    draws = Exact(x, y).draws(1)
    one, other = (estimate(loglik, draws, 80) for loglik in (merged, separate))
    assert (one.elpd, one.se, one.p) == (other.elpd, other.se, other.p)
    assert_array_equal(one.pareto_k["position"], other.pareto_k["position"])


def test_parts_are_one_sum(exact):
    """Two halves of the data are the data."""
    halves = [
        likelihood_of(regression(x, y)) for x, y in zip(np.split(X, 2), np.split(Y, 2), strict=True)
    ]
    draws, whole = exact.draws(1), likelihood_of(regression())
    both = elpd_of_rows(halves, *draws, observations=90, key=3, remedy="")
    one = estimate(whole, draws, 90, key=3)
    assert_allclose([both.elpd, both.se, both.mcse], [one.elpd, one.se, one.mcse])


# -- warnings and comparison -----------------------------------------------------------------------


def test_influential_rows_are_named():
    x, y = X[:300], Y[:300].copy()
    y[17] += 60.0
    loglik, draws = likelihood_of(regression(x, y)), Exact(x, y).draws(1)
    with warned("1 of the 300 rows", "observation 17", "heavier tails"):
        found = estimate(loglik, draws, np.inf)
    assert found.warning
    assert found.pareto_k["position"][np.argmax(found.pareto_k.to_numpy())] == 17


def test_draws_that_miss_the_posterior_are_told(loglik, exact):
    with (
        warned("21 rows", "Draw more."),
        warned("worth 1"),
    ):
        found = estimate(loglik, exact.draws(1, shift=8.0), 20)
    assert found.posterior_khat > found.good_k


def test_models_are_compared_row_by_row(loglik, exact):
    """The difference of two models is known far better than either, by rows that both share."""
    fewer = likelihood_of(regression(X[:, :2]))
    small = Exact(X[:, :2])
    z = np.random.default_rng(7).normal(size=(*SHAPE, 2))
    beta = small.mean + z @ np.linalg.cholesky(small.covariance).T
    log_p = np.zeros(SHAPE)
    draws = Corrected.of(beta, log_p, log_p)
    both = {
        "three": estimate(loglik, exact.draws(1), 200, key=9),
        "two": estimate(fewer, draws, 200, key=9),
    }
    assert_array_equal(*(found.loo_subsample_observations for found in both.values()))
    table = compare(both, round_to="none")
    assert list(table.index) == ["three", "two"]
    by_row = small.elpds() - exact.elpds()
    assert_allclose(table.loc["two", "elpd_diff"], by_row.sum(), atol=1.0)
    assert_allclose(table.loc["two", "dse"], np.sqrt(N) * by_row.std(), rtol=0.05)
    assert table.loc["two", "subsampling_dse"] < 1.0
    assert table.loc["three", "weight"] > 0.9


# -- from coresets and polynomials -----------------------------------------------------------------


@pytest.fixture(scope="module")
def logistic():
    y = np.random.default_rng(5).binomial(1, 1 / (1 + np.exp(-X[:, 0])))
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.Normal("b", 0, 3) * X[:, 0], observed=y)
    return model


def build_fine_polynomials(model, **options):
    return build_pass_glm(model, degree=6, **options)


@pytest.mark.parametrize("build", [build_coreset, build_fine_polynomials])
def test_an_approximation_knows_the_elpd_of_all_rows(logistic, build):
    """Draws of the approximation give the elpd of the full posterior, both by sums over a grid."""
    approximation = build(logistic, random_seed=1, progressbar=False)
    grid = np.linspace(-1.0, 3.0, 4_001)
    values = likelihood_of(logistic).matrix({"b": grid})
    on_grid = xr.DataTree.from_dict({"posterior": xr.Dataset({"b": (("chain", "draw"), [grid])})})
    full, own = values.sum(axis=0), approximation.approximation.replacement.loglik(on_grid)
    weights, heights = (
        np.exp(log_p - log_p.max()) for log_p in (full - grid**2 / 18, own - grid**2 / 18)
    )
    exact = -np.sum(np.log(np.exp(-values) @ weights / weights.sum()))
    cumulative = np.cumsum(heights) / heights.sum()
    b = np.interp(np.random.default_rng(1).random(size=(4, 250)), cumulative, grid)
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"b": (("chain", "draw"), b)})})
    found = approximation.loo(idata, observations=100, random_seed=1)
    assert abs(found.elpd - exact) < 3 * np.hypot(found.mcse, found.subsampling_se)
    assert "Monte Carlo standard error" in str(found)
    assert found.elpd == approximation.loo(idata, observations=100, random_seed=1).elpd


def test_draws_that_were_corrected_are_refused(logistic):
    coreset = build_coreset(logistic, random_seed=1, progressbar=False)
    with refused(InvalidDataError, "loo()", "sample()", topic="draws"):
        coreset.loo(coreset.importance_draws(random_seed=1))


def test_draws_that_were_rounded_to_the_border_are_no_points_of_the_surrogate():
    """A probability that is exactly 1 in some draws, where every outcome is 1."""
    with pm.Model():
        pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.ones(200))
        coreset = build_coreset(method="exact", progressbar=False)

    def elpd(p):
        draws = xr.DataTree.from_dict({"posterior": xr.Dataset({"p": (("chain", "draw"), p)})})
        return coreset.loo(draws, observations=50, random_seed=1).elpd

    p = np.random.default_rng(1).beta(201, 1, size=(2, 400))
    assert elpd(np.where(p > 0.999, 1.0, p)) == pytest.approx(elpd(p), rel=0.2)
    with refused(InvalidDataError, "border", "prior"):
        elpd(np.ones((2, 400)))


@pytest.mark.parametrize("observations", [1, 0, 2.5, "all", True])
def test_wrong_numbers_of_rows_are_refused(logistic, observations):
    coreset = build_coreset(logistic, size=5, method="uniform", random_seed=1, progressbar=False)
    with refused(InvalidOptionError, "observations="):
        coreset.loo(xr.DataTree(), observations=observations)
    with refused(InvalidDataError, "groups", "no posterior", topic="draws"):
        coreset.loo(xr.DataTree())


# -- the way to the unconstrained space ------------------------------------------------------------


def test_free_is_the_inverse_of_constrain():
    with pm.Model() as model:
        low = pm.Normal("low")
        pm.TruncatedNormal("above", lower=low, shape=2)
        pm.Dirichlet("shares", np.ones(3))
        pm.HalfNormal("sd")
    space = Unconstrained(model)
    points = np.random.default_rng(1).normal(size=(5, space.n_dims))
    assert_allclose(space.free(space.constrain(points)), points)


# -- rows that are left out in any case ------------------------------------------------------------


def test_groupings_are_told_by_the_rows_of_each_unit():
    def named(sizes, positions):
        unit_rows = UnitRows(np.array(sizes), np.array(positions))
        return units_of([SimpleNamespace(observations=SimpleNamespace(unit_rows=unit_rows))])

    one = named([2, 1], [0, 1, 2])
    assert one.startswith("2 units of several rows")
    assert one == named([2, 1], [0, 1, 2])
    assert len({one, named([1, 2], [0, 1, 2]), named([2, 1], [0, 2, 1])}) == 3
    assert units_of([SimpleNamespace(observations=SimpleNamespace(unit_rows=NO_UNIT_ROWS))]) == ""


def test_at_most_as_many_rows_as_the_sample_has_are_left_out_in_any_case():
    influence = np.random.default_rng(1).exponential(size=300)
    zeros = np.zeros(300)
    assert_array_equal(
        ElpdSurrogate(np.ones(300), zeros, zeros, influence).certain(20),
        np.sort(np.argsort(-influence)[:20]),
    )
    assert not len(ElpdSurrogate(np.ones(300), zeros, zeros, zeros).certain(20))


def test_values_that_are_not_finite_leave_their_row_to_no_sample():
    values = np.array([[0.0, 1.0, -np.inf], [0.0, 2.0, 0.0]])
    surrogate = ElpdSurrogate(*of_block(values, Rows(np.arange(3), np.ones(3))))
    assert_allclose(surrogate.influence, [0.0, 0.25, np.inf])
    assert_array_equal(surrogate.certain(1), [2])


def test_values_are_moved_to_their_weighted_mean_and_covariance():
    x = np.random.default_rng(1).normal(size=(2_000, 2)) @ [[1.0, 0.5], [0.0, 2.0]]
    log_weights = 0.4 * x[:, 0] - 0.1 * x[:, 1] ** 2
    found = AffineMove(x, 0.25).matched(log_weights, log_weights, np.array([True, True]))
    weights = np.exp(log_weights) / np.exp(log_weights).sum()
    expected = np.cov(x.T, aweights=weights, ddof=0)
    assert_allclose(found.points.mean(axis=0), weights @ x, rtol=1e-10)
    assert_allclose(np.cov(found.points.T, ddof=0), expected, rtol=1e-10)
    log_dets = [np.linalg.slogdet(each)[1] for each in (expected, np.cov(x.T, ddof=0))]
    assert_allclose(found.log_det, 0.25 + np.subtract(*log_dets) / 2, rtol=1e-10)
