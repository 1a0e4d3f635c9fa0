"""Draws from around the mode of the posterior of all rows, against closed forms."""

import itertools
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pymc as pm
import pytest
from scipy import optimize, stats

from pymc_coresets import SamplingError, open_rows
from pymc_coresets.diagnostics.importance import pareto_smooth
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling import curvature, modes
from pymc_coresets.sampling.curvature import laplace, moved, normal_near, where_flat
from pymc_coresets.sampling.density import Density, Slopes, pass_of
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.maximisation.one_start import maximise, maximise_by_sample
from pymc_coresets.sampling.normal import Normal, heavy_tailed
from pymc_coresets.sampling.sampler import CoresetSampler
from tests.derived import sampler_of
from tests.refusals import refused

N, P = 5_000, 3
RNG = np.random.default_rng(21)
X = RNG.normal(size=(N, P)) * np.array([1.0, 5.0, 0.2])
Y = X @ np.array([1.0, -2.0, 3.0]) + RNG.normal(size=N)
PRECISION = np.eye(P) / 100 + X.T @ X
MEAN = np.linalg.solve(PRECISION, X.T @ Y)
DEVIATIONS = np.sqrt(np.diag(np.linalg.inv(PRECISION)))


@pytest.fixture(scope="module")
def sampler():
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 10.0, shape=P)
        pm.Normal("y", pm.Data("X", X) @ b, 1.0, observed=Y)
    return sampler_of(model)


def proposed(sampler, n_draws=4_000, start_size=200, seed=1):
    rng = np.random.default_rng(seed)
    return modes.proposal(sampler, n_draws, start_size=start_size, rng=rng)


@pytest.mark.parametrize("start_size", [50, 1_000, N, 2 * N])
def test_draws_are_from_around_the_mode(sampler, start_size):
    """Five standard errors of the mean, and a tenth of the deviations."""
    draws = proposed(sampler, start_size=start_size).draws.values["b"]
    np.testing.assert_allclose(
        draws.mean(axis=0), MEAN, atol=(5 * DEVIATIONS / np.sqrt(len(draws))).max(), rtol=0
    )
    np.testing.assert_allclose(draws.std(axis=0), DEVIATIONS * np.sqrt(0.9 + 0.1 * 5 / 3), rtol=0.1)


def test_ratios_and_the_likelihood_of_all_rows_weigh_the_posterior(sampler):
    found = proposed(sampler)
    log_ratios = found.log_ratios + sampler.sums(found.draws).total
    exact = stats.multivariate_normal(MEAN, np.linalg.inv(PRECISION)).logpdf(
        found.draws.values["b"]
    )
    drawn_from = log_mixture(MEAN, PRECISION, found.draws.values["b"])
    np.testing.assert_allclose(
        log_ratios - log_ratios.mean(), exact - drawn_from - (exact - drawn_from).mean(), atol=0.02
    )
    smoothed = pareto_smooth(log_ratios[None])
    assert smoothed.pareto_khat < 0.5
    assert smoothed.ess > 0.9 * len(log_ratios)


def test_where_gradients_are_many_the_curvature_is_that_of_some_rows(sampler, limits):
    limits(few_to_search=1, rows_for_curvature=700)
    found = proposed(sampler)
    log_ratios = found.log_ratios + sampler.sums(found.draws).total
    assert pareto_smooth(log_ratios[None]).ess > 0.8 * len(log_ratios)


def test_blocks_of_rows_add_up_to_the_density_of_all(sampler, limits):
    points = RNG.normal(size=(2, P))
    whole = sampler.full_density.gradients(points)
    limits(density_block_bytes=700 * 8 * (P + 1))
    in_blocks = CoresetSampler(sampler.loglikelihood)
    assert pass_of(in_blocks.loglikelihood, points).size == 700
    np.testing.assert_allclose(in_blocks.full_density.gradients(points), whole, rtol=1e-10)


def test_gradients_of_all_rows_are_counted(sampler, calls):
    before, counted = sampler.counts["n_gradients"], calls(sampler.loglikelihood.source, "reduce")
    assert modes.proposal(sampler, 100, start_size=50, rng=np.random.default_rng(1)) is not None
    taken = sampler.counts["n_gradients"] - before
    assert len(counted) == taken - 2 * sampler.n_dims + 1  # curvature: one reading
    assert 2 * sampler.n_dims + 2 < taken < 2 * sampler.n_dims + 50  # curvature, and a search


def test_a_row_far_from_all_others_is_no_obstacle():
    """The gradient of all rows is infinite on the way from the mode of some."""
    y = RNG.normal(size=3_000)
    y[7] = 1e4
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 10), pm.HalfNormal("s", 10), observed=y)
    draws = proposed(sampler_of(model)).draws.values

    def energy(point):  # of mu and log s
        s = np.exp(point[1])
        squares = np.square(y - point[0]).sum() / s**2 + (point[0] ** 2 + s**2) / 100
        return squares / 2 + (len(y) - 1) * point[1]

    mode = optimize.minimize(energy, [y.mean(), np.log(y.std())], method="Nelder-Mead").x
    for values, center in zip((draws["mu"], np.log(draws["s"])), mode, strict=True):
        assert np.median(values) == pytest.approx(center, abs=0.1 * values.std())


@pytest.mark.parametrize("many", [10_000, 50_000])
def test_rows_that_determine_a_coefficient_alone_may_be_missing_at_the_start(many, limits):
    """A step that some rows call small is a million times as long for all of them.

    With many rows, the curvature would be that of a larger sample, which lacks them, too.
    """
    limits(many_rows=many, rows_to_begin_with=lambda *_: 4_000)
    x = RNG.normal(size=20_000)
    y = RNG.normal(2 * x)
    x[:3] = 1e6
    with pm.Model() as model:
        slope, scale = pm.Normal("slope", 0, 10), pm.HalfNormal("scale", 10)
        pm.Normal("y", slope * x, scale, observed=y)
    sampler = sampler_of(model)
    found = proposed(sampler, start_size=1_000)
    smoothed = pareto_smooth((found.log_ratios + sampler.sums(found.draws).total)[None])
    assert smoothed.pareto_khat < 0.7
    assert smoothed.ess > 0.8 * found.draws.n_draws


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_level_that_a_large_sample_lacks_is_found_by_the_gradient(elsewhere, limits):
    limits(many_rows=10_000, rows_to_begin_with=lambda *_: 4_000)
    n, key, rng = 20_000, 7, np.random.default_rng(1)
    sample = InMemoryRows.of(Rows(np.arange(n), np.ones(n))).subsample(
        4_000, key=key, distinct=True
    )
    level = np.zeros(n, int)
    level[np.setdiff1d(np.arange(n), sample.rows.positions)[:3]] = 1
    y = RNG.normal(2.0 * level)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 10, shape=2)
        pm.Normal("y", effect[pm.Data("level", level)], 1.0, observed=pm.Data("data", y))
    loglik = LogLikelihood(find_observations(model), collapse=False)
    if elsewhere:
        columns = {row.name: row.values.dtype for row in loglik.observations.rows}
        loglik = loglik.reading(StreamedRows(open_rows({"level": level, "data": y}), columns))
    sampler = CoresetSampler(loglik)
    found = modes.proposal(sampler, 1_000, start_size=1_000, rng=rng, key=key)
    smoothed = pareto_smooth((found.log_ratios + sampler.sums(found.draws).total)[None])
    assert smoothed.ess > 0.8 * found.draws.n_draws


def test_a_funnel_has_no_mode():
    group = np.arange(200) % 20
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        a = pm.Normal("a", 0.0, scale, shape=20)
        pm.Normal("y", a[group], 3.0, observed=RNG.normal(size=200))
    assert proposed(sampler_of(model)) is None


def test_discrete_variables_have_no_mode():
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5)
        pm.Normal("y", k + pm.Normal("m"), 1.0, observed=RNG.normal(size=100))
    assert proposed(sampler_of(model)) is None


def density_of(model):
    return Density.of_model(Unconstrained(model))


@pytest.fixture(scope="module")
def densities():
    with pm.Model() as few:
        pm.MvNormal("m", np.array([30.0, -20.0]), tau=np.array([[2.0, 0.5], [0.5, 1.0]]))
    with pm.Model() as everything:
        m = pm.MvNormal("m", np.zeros(2), tau=np.array([[1.5, 0.0], [0.0, 2.0]]))
        pm.Potential("skewed", -0.1 * pm.math.logsumexp(m))
    return density_of(few), density_of(everything)


def test_the_mode_is_found_from_afar(densities):
    few, everything = densities
    mode = maximise(laplace(few, np.zeros(2)), everything)
    assert np.abs(everything.logp_and_gradient(mode)[1]).max() < 0.2


@pytest.mark.parametrize(("size", "n_gradients"), [(100, 12), (1_000, 3), (4_000, 1)])
def test_a_sample_leads_to_the_mode_of_all_rows(sampler, size, n_gradients):
    """With the fewer gradients of all rows, the larger it is."""
    full = sampler.density(sampler.loglikelihood.source)
    sample, half = (sampler.density_of_some(n, 5) for n in (size, size // 2))
    start = laplace(sample, sampler.start)
    mode = maximise_by_sample(start, full, sample, half)
    away = np.abs(np.linalg.cholesky(PRECISION).T @ (mode - MEAN)).max()
    assert away < 0.6  # twice as much as it aims at: the error is estimated from two halves
    assert full.n_gradients <= n_gradients


def test_newton_s_step_and_the_curvature(densities):
    everything = densities[1]
    like, exact = (laplace(own, np.zeros(2)) for own in densities)
    found = normal_near(exact.location + 0.05, like, everything, polish=True)
    np.testing.assert_allclose(found.location, exact.location, atol=1e-3)
    np.testing.assert_allclose(found.factor.matrix, exact.factor.matrix, rtol=1e-3, atol=1e-3)


def groups_of(n, means):
    """A non-centred effect of ten groups, whose means have standard errors of the root of 1/n."""
    with pm.Model() as model:
        away = pm.HalfNormal("scale", 2.5) * pm.Normal("z", shape=len(means))
        pm.Normal("y", pm.Normal("mean", 0, 5) + away, n**-0.5, observed=means)
    return density_of(model)


EFFECTS = np.array([0.55, -0.25, 0.28, 0.03, -0.31, 0.13, 0.12, 0.06, -0.09, -0.09])


@pytest.fixture(scope="module")
def ridge():
    """The density of many rows, whose ridge bends, and its mode."""
    everything = groups_of(3_000, EFFECTS)
    return everything, laplace(everything, np.zeros(12)).location


def like_ridge(seed):
    """Mode and curvature of a thirtieth of the rows."""
    means = EFFECTS + np.random.default_rng(seed).normal(size=10) / 10
    return laplace(groups_of(100, means), np.zeros(12))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_steps_are_short_enough_for_the_curvature_of_a_ridge(ridge, seed):
    """Steps of a tenth of a few rows' scale leave it."""
    everything, mode = ridge
    found = normal_near(mode, like_ridge(seed), everything, polish=False)
    steps = 1e-4 * np.eye(len(mode))
    above, below = (everything.gradients(mode + side * steps) for side in (1, -1))
    relative = np.linalg.solve(found.factor.root, (below - above) / 2e-4)
    ratios = np.linalg.eigvalsh(np.linalg.solve(found.factor.root, relative.T))
    np.testing.assert_allclose(ratios[1:-1], 1.0, rtol=1e-2)  # all but along the ridge, which bends


@pytest.mark.parametrize("seed", range(5))
def test_a_search_goes_on_where_it_ended_on_a_ridge(ridge, seed):
    """The gradient is small far from the mode, and Newton's step leaves the ridge."""
    everything, mode = ridge
    like = like_ridge(seed)
    found = normal_near(maximise(like, everything), like, everything, polish=True)
    best, height = (everything.logp_and_gradient(x)[0] for x in (mode, found.location))
    assert height > best - 1e-3


@pytest.mark.parametrize("start", [-0.05, 0.03, 1.0])
def test_no_step_crosses_the_bound_of_a_row(start):
    """The curvature at the mode is that of the prior: the row bounds a five-thousandth of it."""
    slope, width = 450.0, np.array([10.0, 0.5])

    def add_up(x):
        beyond = np.logaddexp(0, slope * x[:, 0])
        values = -np.square(x / width).sum(axis=1) / 2 - beyond
        share = np.exp(slope * x[:, :1] - beyond[:, None])
        return Slopes(values, -x / width**2 - slope * share * [1.0, 0.0])

    density = Density(add_up)
    like = Normal(np.zeros(2), factor_of(np.diag(width**-2.0)))
    found = normal_near(np.array([start, 0.1]), like, density, polish=True)
    heights = add_up(np.stack([np.linspace(-0.1, 0.1, 100_001), np.zeros(100_001)], axis=1)).values
    assert add_up(found.location[None]).values[0] > heights.max() - 0.01


def failing(monkeypatch, *numbers):
    """Let some of the comparisons of curvatures, counted from zero, find no mode."""
    normal_at, count = curvature._normal_at, itertools.count()

    def found(*arguments):
        if next(count) in numbers:
            raise SamplingError("no proper mode")
        return normal_at(*arguments)

    monkeypatch.setattr(curvature, "_normal_at", found)


def test_a_second_climb_that_fails_leaves_the_result_of_the_first(ridge, limits, monkeypatch):
    everything, mode = ridge
    like = like_ridge(1)
    monkeypatch.setattr(curvature, "_is_flat", lambda *_: False)  # so that it ascents again
    limits(noticed_slopes=-np.inf)
    failing(monkeypatch, 0, 2)
    found = normal_near(maximise(like, everything), like, everything, polish=True)
    best, height = (everything.logp_and_gradient(x)[0] for x in (mode, found.location))
    assert height > best - 1.0


def test_steps_on_a_flat_place_are_not_halved(monkeypatch):
    """Rounding decides there: every try would be a pass over all rows."""
    highest, tried = np.array([0.03, 0.0]), []

    def add_up(x):
        tried.extend(x[:, 0])
        return Slopes(-np.square(x - highest).sum(axis=1) / 2, -x)

    failing(monkeypatch, 0)  # so that it ascents
    like = Normal(np.zeros(2), factor_of(np.eye(2)))
    monkeypatch.setattr(curvature, "minimise", lambda *_, **__: SimpleNamespace(x=np.zeros(2)))
    found = normal_near(highest, like, Density(add_up), polish=True)
    np.testing.assert_array_equal(found.location, highest)
    assert not {0.015, 0.0075} & set(np.round(tried, 6))


def test_no_curvature_no_proposal(densities):
    with pm.Model() as model:
        pm.Mixture("m", [0.5, 0.5], pm.Normal.dist([-4.0, 4.0], 1.0), shape=2)
    like = laplace(densities[0], np.zeros(2))
    with refused(SamplingError, "no proper mode"):
        normal_near(np.zeros(2), like, density_of(model), polish=True)


def log_mixture(location, precision, x):
    covariance = np.linalg.inv(precision)
    normal = stats.multivariate_normal(location, covariance).logpdf(x)
    return np.logaddexp(
        np.log(0.9) + normal,
        np.log(0.1) + stats.multivariate_t(location, covariance, df=5).logpdf(x),
    )


def test_density_of_the_draws():
    factor = np.array([[2.0, 0.0], [1.0, 0.5]])
    location = np.array([3.0, -1.0])
    draws, logq = heavy_tailed(location, factor).draw(50, rng=np.random.default_rng(2))
    exact = log_mixture(location, factor @ factor.T, draws)
    np.testing.assert_allclose(logq - logq[0], exact - exact[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        heavy_tailed(location, factor).log_density(draws), logq, rtol=1e-10, atol=1e-12
    )


def test_a_tenth_of_the_draws_is_of_the_t_distribution():
    """Its distances from the centre vary more than those of a normal distribution."""
    n_dims, n_draws = 40, 20_000
    draws, _ = heavy_tailed(np.zeros(n_dims), np.eye(n_dims)).draw(
        n_draws, rng=np.random.default_rng(3)
    )
    found = np.square(draws).sum(axis=1)
    t = stats.f(n_dims, 5)
    limit = n_dims * t.isf(0.02)
    expected = 0.9 * stats.chi2(n_dims).sf(limit) + 0.1 * 0.02
    error = np.sqrt(expected / n_draws)
    assert abs((found > limit).mean() - expected) < 4 * error


def test_the_mode_on_a_narrow_ridge_is_found():
    """A scale times variables of scale 1, all but known: c / (2 s^2) + s^2 / (2 0.2^2) - log s."""
    size = 0.7 ** np.arange(12)
    y = 0.1 * size * np.random.default_rng(1).normal(size=12)
    with pm.Model() as model:
        scale, z = pm.HalfNormal("scale", 0.2), pm.Normal("z", shape=12)
        pm.Normal("y", scale * size * z, 1e-5, observed=y)
    space = Unconstrained(model)
    found = laplace(Density.of_model(space), space.start)
    square = (1 + np.sqrt(1 + 4 * np.sum((y / size) ** 2) / 0.2**2)) * 0.2**2 / 2
    np.testing.assert_allclose(np.exp(2 * found.location[0]), square, rtol=1e-3)


@pytest.fixture(scope="module")
def no_mode():
    """Levels that hardly differ: the density grows without end as their spread goes to 0."""
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(8))
        levels = pm.Normal("levels", 0, pm.Exponential("spread", 1), shape=8)
        pm.Normal("seen", levels, 0.3, observed=y)
    return Unconstrained(model)


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=[pytest.mark.slow] * (s > 3)) for s in range(12)]
)
def test_a_density_without_a_mode_is_refused(no_mode, seed):
    """The search ends at curvatures that no solver can square, without a warning."""
    y = np.random.default_rng(seed).normal(0, 0.05, 8)
    no_mode.model["y"].set_value(y)
    with refused(SamplingError, "mode", "weighting='subsample'"):
        laplace(Density.of_model(no_mode), no_mode.start)


def test_a_split_normal_density_is_normalised_and_bounds_the_weights_of_a_skewed_one():
    """The logarithm of a gamma variable, whose left tail is exponential."""

    def log_density(x):
        return (6 * x - 5 * np.exp(x))[:, 0]

    found = heavy_tailed(np.array([np.log(6 / 5)]), np.full((1, 1), 6**0.5)).split(log_density)
    left, right = found.tails.stretch[:, 0]
    assert left > 1 > right
    x = np.linspace(-40, 40, 80_001)
    density = np.exp(found.log_density(x[:, None]))
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-6)
    draws, logq = found.draw(20_000, rng=np.random.default_rng(1))
    np.testing.assert_allclose(found.log_density(draws), logq)
    # Of a distribution function at 20,000 draws, at five standard errors.
    below = np.array([density[x <= limit].sum() for limit in (-0.5, 0.0, 0.5)]) * (x[1] - x[0])
    shares = [(draws < limit).mean() for limit in (-0.5, 0.0, 0.5)]
    np.testing.assert_allclose(shares, below, atol=5 * 0.5 / 20_000**0.5)
    weights = np.exp(log_density(draws) - logq)
    assert weights.max() < 2 * weights.mean()


HEAVY = {
    "power": (stats.cauchy.logpdf, [0], [1.0]),
    "exponential": (lambda x: stats.laplace.logpdf(x, scale=2.0), [0], [8.0]),
    "normal": (stats.norm.logpdf, None, None),
}


@pytest.mark.parametrize("tail", HEAVY)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tails_that_a_density_has_far_out_are_proposed(tail, seed):
    """Of two coordinates the first has heavy tails: the mean weight of draws is one."""
    log_first, heavy, degrees = HEAVY[tail]

    def log_density(x):
        return log_first(x[:, 0]) + stats.norm.logpdf(x[:, 1], scale=3.0)

    found = heavy_tailed(np.zeros(2), np.diag([1.0, 1 / 3])).split(log_density)
    assert (found.tails.heavy is None) == (heavy is None)
    if heavy is not None:
        assert (found.tails.heavy.tolist(), found.tails.degrees.tolist()) == (heavy, degrees)
    draws, logq = found.draw(20_000, rng=np.random.default_rng(seed))
    np.testing.assert_allclose(found.log_density(draws), logq)
    weights = np.exp(log_density(draws) - logq)
    assert weights.mean() == pytest.approx(1.0, abs=4 * weights.std() / np.sqrt(len(weights)))
    assert weights.max() < 25  # whereas those of a normal distribution have no bound


def test_several_heavy_axes_are_proposed_alone_and_together():
    """Of three Cauchy variables, one or all may be far out."""
    location = np.array([1.0, -2.0, 3.0])

    def log_density(x):
        return stats.cauchy.logpdf(x - location).sum(axis=1)

    found = heavy_tailed(location, np.sqrt(2) * np.eye(3)).split(log_density)
    assert found.tails.heavy.tolist() == [0, 1, 2]
    draws, logq = found.draw(100_000, rng=np.random.default_rng(4))
    np.testing.assert_allclose(found.log_density(draws), logq)
    assert set((np.abs(draws - location) > 8).sum(axis=1)) == {0, 1, 2, 3}
    weights = np.exp(log_density(draws) - logq)
    assert weights.mean() == pytest.approx(1.0, abs=4 * weights.std() / np.sqrt(len(weights)))
    # One or all of a million standard deviations from the middle.
    far = location + 1e6 * np.array([*np.eye(3), np.ones(3)])
    assert np.exp(log_density(far) - found.log_density(far)).max() < 100


def test_at_most_eight_axes_are_heavy_and_they_are_the_heaviest():
    def log_density(x):
        logs = [stats.t.logpdf(x[:, i], df) for i, df in enumerate([1e9, *range(1, 11)])]
        return np.sum(logs, axis=0)

    found = heavy_tailed(np.zeros(11), np.eye(11)).split(log_density)
    assert found.tails.heavy.tolist() == list(range(1, 9))
    assert found.tails.degrees[0] == 1.0


def test_an_axis_that_is_bounded_is_not_heavy():
    """Where a density is zero far out it falls steeply; no number says nothing."""
    for outside in (-np.inf, np.nan):
        found = heavy_tailed(np.zeros(1), np.eye(1)).split(
            lambda x, outside=outside: np.where(np.abs(x) < 6, -np.square(x) / 2, outside)[:, 0]
        )
        assert found.tails.heavy is None
        np.testing.assert_allclose(found.tails.stretch, 1.0)


# -- where gradients are zero, whatever the values are ---------------------------------------------


def of_gradients(gradients, seed=3):
    """Return a density whose values are noise."""
    noise = np.random.default_rng(seed)
    return Density(lambda x: (noise.normal(size=len(x)), gradients(x)))


def test_gradients_lead_to_where_they_are_zero():
    around = where_flat(of_gradients(lambda x: (MEAN - x) @ PRECISION), np.zeros(P))
    np.testing.assert_allclose(around.location, MEAN, rtol=1e-6)
    np.testing.assert_allclose(around.factor.matrix, PRECISION, rtol=1e-6)


@pytest.mark.parametrize("start", [-2.0, 0.0, 4.0])
def test_steps_are_repeated_where_the_curvature_changes(start):
    """To a tenth of a standard deviation: that of exp(x) - x is one."""
    around = where_flat(of_gradients(lambda x: 1 - np.exp(x)), np.array([start]))
    assert abs(around.location[0]) < 0.01


@pytest.mark.parametrize(
    "gradients",
    [lambda x: x, np.ones_like, lambda x: np.full_like(x, np.nan), lambda x: -x + np.inf],
)
def test_gradients_that_lead_nowhere_are_refused(gradients):
    with refused(SamplingError, "zero"):
        where_flat(of_gradients(gradients), np.ones(2))


def test_lengths_of_steps_are_in_standard_deviations():
    around = Normal(np.array([1.0, 2.0]), factor_of(np.diag([4.0, 100.0])))
    there, length = moved(around, of_gradients(lambda x: np.array([2.0, -10.0]) + 0 * x))
    np.testing.assert_allclose(there.location, [1.5, 1.9])
    assert length == pytest.approx(1.0)
    there, length = moved(around, of_gradients(lambda x: np.inf + x))
    assert there is around
    assert length == np.inf


# -- units -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_unit_rows", "size"), [(1.0, 1_000), (2.5, 400), (20.0, 250), (1_000.0, 250)]
)
def test_samples_of_units_have_as_many_rows(sampler, monkeypatch, n_unit_rows, size):
    sizes = []
    monkeypatch.setattr(type(sampler.loglikelihood.observations), "mean_size", n_unit_rows)
    monkeypatch.setattr(modes, "SampleSearch", lambda _, n, key: sizes.append(n))
    monkeypatch.setattr(modes, "_found", Mock(side_effect=SamplingError("no mode")))
    assert proposed(sampler, start_size=1_000) is None
    assert sizes == [size, min(8 * size, N)]
