"""Variables of units with tails, or with several modes: against closed forms and integrals."""

from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.integrate import quad_vec
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import nbinom, norm
from scipy.stats import t as student

from pymc_coresets import Certificate, Level, Reason, UnsupportedModelError, build_coreset
from pymc_coresets.predictive.pymc_densities import log_densities_of_units
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.units.nodes import Nodes, Rule
from pymc_coresets.reading.units.observations_of_units import normal_moments
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import verify_form
from pymc_coresets.rowlogp.unit_modes import _moments_of
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.sampling import curvature
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.units.centring import _Form, _Nodes, _Sample, centred
from tests.models.units import by_grid, loglik_of, nodes_at, read
from tests.refusals import refused

ENOUGH = 1e-3  # nats: the error of nodes that a build accepts


def chosen(model: pm.Model) -> Observations:
    """Choose nodes as a build does."""
    return centred(read(model, "z"), enough=ENOUGH, key=1).observations


# -- tails -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_density", "exact"),
    [
        (lambda x: -np.square(x) / 2, np.log(2 * np.pi) / 2),
        (lambda x: student.logpdf(x, 2), 0.0),
        (lambda x: student.logpdf(x, 1), 0.0),
        # The logarithm of a gamma variable of shape 0.3, in widths of 1/sqrt(0.3) from its mode.
        (
            lambda x: 0.3 * (x / 0.3**0.5 - np.exp(np.minimum(x / 0.3**0.5, 700))),
            gammaln(0.3) - 0.3 * np.log(0.3) + np.log(0.3) / 2,
        ),
    ],
    ids=["normal", "Student t of 2", "Cauchy", "log-gamma of shape 0.3"],
)
def test_nodes_for_tails_integrate_what_gauss_nodes_do_not(log_density, exact):
    def error(nodes: Nodes) -> float:
        found = logsumexp(nodes.log_weights + log_density(nodes.points[:, 0]))
        return abs(found - exact)

    few, many, gauss = Nodes.for_tails(61), Nodes.for_tails(201), Nodes.of_degree(121, 1)
    assert error(many) < 1e-7
    assert error(few) < 2e-3
    assert error(few) < error(gauss) or error(gauss) < 1e-12


def test_rules_keep_some_nodes():
    whole, part = (Nodes.of_rule(Rule(121, True, *ends), 1) for ends in [(), (10, 40)])
    np.testing.assert_array_equal(part.points, whole.points[10:40])
    np.testing.assert_array_equal(part.log_weights, whole.log_weights[10:40])


SUCCESSES = np.repeat(np.arange(4), 10)  # of three trials, of forty levels


@pytest.mark.parametrize("nu", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_effects_of_heavy_tails_are_integrated_out(nu):
    with pm.Model() as model:
        z = pm.StudentT("z", nu=nu, mu=pm.Normal("m"), sigma=pm.HalfNormal("w"), shape=40)
        pm.Binomial("y", n=3, logit_p=z, observed=SUCCESSES)
    units = chosen(model)
    assert units.rule.tails or nu > 1  # Gauss's nodes reach far enough for others
    assert units.node_error < ENOUGH
    errors = []
    for x in (np.array(units.at), np.array([0.2, -0.4]), np.array([-0.4, -0.5])):

        def density(t: float, m: float = x[0], w: float = np.exp(x[1])) -> np.ndarray:
            z = m + w * np.sinh(t)
            logs = np.arange(4) * z - 3 * np.logaddexp(0, z)
            return np.exp(logs + student.logpdf(np.sinh(t), nu)) * np.cosh(t)

        integral, _ = quad_vec(density, -40, 40, epsabs=1e-12, epsrel=1e-12, points=[0.0])
        expected = np.log(integral * np.array([1, 3, 3, 1]))[SUCCESSES]
        errors.append((loglik_of(units)(x) - expected).sum())
    # Constants change nothing.
    assert np.ptp(errors) < 3 * ENOUGH**0.5


def test_rates_of_a_small_shape_are_those_of_a_negative_binomial_distribution():
    counts = np.repeat([0, 0, 0, 0, 1, 2, 9], 10)
    with pm.Model() as model:
        a, b = pm.HalfNormal("a"), pm.HalfNormal("b", 3)
        pm.Poisson("y", pm.Gamma("z", alpha=a, beta=b, shape=70), observed=counts)
    units = chosen(model)
    for shape, rate in [(0.3, 0.2), (0.25, 0.3)]:
        found = loglik_of(units)({"a": shape, "b": rate})
        expected = nbinom.logpmf(counts, shape, rate / (1 + rate))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


# -- several modes ---------------------------------------------------------------------------------

READINGS = np.random.default_rng(1).normal(0.0, 1.5, 60) + np.repeat([0.0, 3.0], [40, 20])


def shifted(value: Any, z: Any) -> Any:
    """Log-density of a reading that is shifted by three with a probability of 0.3."""
    parts = [np.log(p / 0.02) - pt.square((value - z - d) / 0.02) / 2 for p, d in SHIFTS]
    return pm.math.logaddexp(*parts) - np.log(2 * np.pi) / 2


SHIFTS = [(0.7, 0.0), (0.3, 3.0)]


@cache
def readings() -> pm.Model:
    with pm.Model() as model:
        z = pm.Normal("z", 0, pm.HalfNormal("w", 3), shape=60)
        pm.CustomDist("y", z, logp=shifted, observed=READINGS)
    return model


def closed_form(w: float) -> np.ndarray:
    """Log-densities of the readings, with z integrated out."""
    sd = np.hypot(w, 0.02)
    return logsumexp([np.log(p) + norm.logpdf(READINGS, d, sd) for p, d in SHIFTS], axis=0)


def test_units_of_two_distant_modes_have_nodes_around_both():
    # 150 widths apart: nodes around one of them agree with any others around it.
    units = chosen(readings())
    assert units.source.n_modes == 2
    assert units.n_nodes == 2 * len(units.nodes[0].values)
    for w in (0.8, 1.5, 2.5):
        np.testing.assert_allclose(loglik_of(units)({"w": w}), closed_form(w), rtol=0, atol=1e-8)


@pytest.mark.slow  # PyTensor compiles a coreset of one of them
def test_units_of_two_modes_have_the_form_that_pytensor_compiles():
    verify_form(LogLikelihood(chosen(readings())))


def test_densities_of_pymc_are_integrated_around_all_modes():
    units = nodes_at(read(readings(), "z"), 13)  # around one mode
    widths = [0.8, 1.5, 2.5]
    x = np.log(widths)[:, None]
    found = log_densities_of_units(LogLikelihood(units), units.space.constrain(x))
    expected = [closed_form(w).sum() for w in widths]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_nodes_around_modes_that_meet_integrate_each_once():
    rng = np.random.default_rng(2)
    with pm.Model() as model:
        z = pm.StudentT("z", nu=2, mu=0.0, sigma=pm.HalfNormal("w"), shape=30)
        pm.StudentT("y", nu=3, mu=z, sigma=0.5, observed=rng.normal(0.0, 3.0, 30))
    units = read(model, "z")
    for n_modes in (2, 3):  # levels have one or two
        found, x = nodes_at(units, Rule(241, tails=True), n_modes=n_modes), np.zeros(1)
        expected = by_grid(found, x, half=200.0, step=0.02)
        # Shares that did not add up to one would be off by log 2.
        np.testing.assert_allclose(loglik_of(found)(x), expected, rtol=0, atol=5e-3)


def test_nodes_in_tails_may_be_where_a_scale_is_zero_or_infinite_by_rounding():
    """There a Weibull density of a shape below one is infinite, for what was seen uncensored."""
    time = np.random.default_rng(1).weibull(0.8, 12) * 5.0
    censored = np.where(np.arange(12) % 3, np.inf, time)
    with pm.Model() as model:
        z = pm.Normal("z", 0, pm.HalfNormal("w"), shape=12)
        latent = pm.Weibull.dist(alpha=pm.Gamma("shape", 2, 2), beta=pm.math.exp(1.5 + z))
        pm.Censored("y", latent, lower=None, upper=censored, observed=time)
    found = nodes_at(read(model, "z"), Rule(401, tails=True))
    for x in (np.array([0.0, -0.3]), np.array([-1.0, 0.3])):
        np.testing.assert_allclose(loglik_of(found)(x), by_grid(found, x), rtol=0, atol=1e-6)


def test_nodes_of_infinite_density_have_no_part_of_an_integral():
    """A Weibull density of a shape below one has them in a tail of every unit."""
    with pm.Model() as model:
        z = pm.Normal("z", 0, pm.HalfNormal("w"), shape=8)
        pm.Weibull("y", 0.6, pm.math.exp(1.5 + z), observed=np.linspace(1.0, 9.0, 8))
    sample, rule = _Sample.of(read(model, "z"), key=1), Rule(401, tails=True)
    single, nodes = sample.single, Nodes.of_rule(rule, 1)
    point = single.point(sample.start)
    parts = single.modes.parts_of_nodes(point, single.sample.rows, nodes)
    np.testing.assert_allclose(parts.sum(axis=1), 1.0, atol=0.2)  # the larger of two placements
    assert (parts[:, np.abs(nodes.points[:, 0]) > 1e3] == 0.0).all()


def test_nodes_have_their_gaussian_weights_as_parts_of_normal_units():
    """Whatever the width of a unit is."""
    noise = np.geomspace(0.1, 3.0, 6)
    with pm.Model() as model:
        z = pm.Normal("z", pm.Normal("m"), 1.0, shape=6)
        pm.Normal("y", z, noise, observed=np.linspace(-2.0, 2.0, 6))
    sample = _Sample.of(read(model, "z"), key=1)
    single, nodes = sample.single, Nodes.of_rule(Rule(9), 1)
    parts = single.modes.parts_of_nodes(single.point(sample.start), single.sample.rows, nodes)
    x, weights = hermegauss(5)
    order = np.argsort(nodes.points[:, 0])
    np.testing.assert_allclose(nodes.points[order, 0], x, atol=1e-9)
    expected = np.broadcast_to(weights / weights.sum(), parts.shape)
    np.testing.assert_allclose(parts[:, order], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("start", "end", "is_known"),
    [(40.0, np.inf, True), (1.0, 1.6, False), (-0.1, 0.1, False), (5.0, np.inf, False)],
)
def test_a_density_that_is_infinite_where_it_counts_has_no_integral(start, end, is_known):
    def logp(value, z):
        return pt.switch((z >= start) & (z <= end), np.inf, -pt.square(value - z) / 2)

    y = np.linspace(-0.5, 0.5, 4)
    with pm.Model() as model:
        z = pm.Normal("z", 0, pm.HalfNormal("w"), shape=4)
        pm.CustomDist("y", z, logp=logp, observed=y)
    for rule in (Rule(401, tails=True), Rule(121, tails=True)):
        found = loglik_of(nodes_at(read(model, "z"), rule))(np.array([0.0]))
        expected = norm.logpdf(y, 0, 2**0.5) + np.log(2 * np.pi) / 2
        np.testing.assert_allclose(found, expected if is_known else -np.inf, rtol=1e-7)


def test_nodes_around_two_modes_of_two_variables_are_as_good_as_around_one():
    """Units around one mode have moments besides, which those around several lack."""
    rng, n_levels = np.random.default_rng(1), 30
    level, x = np.repeat(np.arange(n_levels), 4), rng.normal(size=4 * n_levels)
    with pm.Model() as model:
        z, slope = (pm.Normal(name, shape=n_levels) for name in ("z", "slope"))
        line = pm.Normal("b") + z[level] + slope[level] * x
        pm.Normal("y", line, 1.0, observed=rng.normal(size=len(x)))
    sample = _Sample.of(read(model, "z", "slope"), key=1)
    around, group = Normal(np.zeros(1), factor_of(np.eye(1))), sample.single.sample
    one, two = (sample.form(n).sums(Rule(9), around, group) for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)


def phases(n_shops: int, sd: float) -> pm.Model:
    rng = np.random.default_rng(3)
    shop, month = np.repeat(np.arange(n_shops), 6), np.tile(np.arange(6) / 6, n_shops)
    y = 2 * np.cos(2 * np.pi * month + rng.normal(size=n_shops)[shop])
    with pm.Model() as model:
        phase = pm.Normal("phase", 0.0, sd, shape=n_shops)
        wave = pm.HalfNormal("size", 3) * pt.cos(2 * np.pi * month + phase[shop])
        pm.Normal("y", wave, 0.5, observed=y + 0.5 * rng.normal(size=len(y)))
    return model


def test_an_error_says_that_levels_have_too_many_modes():
    with refused(UnsupportedModelError, "'phase'", "modes", "1,800 rows"):
        build_coreset(phases(300, 20.0), random_seed=1, progressbar=False)


def test_exact_is_said_only_if_nodes_are():
    exact = Certificate.of(np.zeros(400))
    assert exact.verdict.reason is Reason.EXACT
    assert Certificate.of(np.zeros(400), node_error=1e-23).verdict.reason is Reason.EXACT
    found = Certificate.of(np.zeros(400), node_error=1.5e-4).verdict
    assert (found.level, found.reason) == (Level.RELIABLE, Reason.INTEGRALS)
    assert "exact" not in found.text
    assert "0.0001 nats" in found.text or "0.0002 nats" in found.text


def test_nodes_suit_units_that_alone_see_a_variable():
    """Two units of 1,200 have effects with heavy tails: a sample at random has none of them."""
    n, rng = 1_200, np.random.default_rng(3)
    x, rare = rng.normal(size=n), np.isin(np.arange(n), [364, 804])
    size = np.where(rare, 3, 40)
    y = rng.binomial(size, np.where(rare, 0.9, expit(0.5 * x + rng.normal(0, 0.3, n))))
    with pm.Model() as model:
        slope, wide = pm.Normal("slope"), pm.HalfNormal("wide", 5)
        scale = pt.switch(rare, wide, 0.3)
        z = pm.StudentT("z", np.where(rare, 1.0, 30.0), mu=0, sigma=scale, shape=n)
        pm.Binomial("y", size, logit_p=slope * x + z, observed=y)
    units = read(model, "z")
    assert not rare[_Sample.of(units, key=1).single.sample.rows.positions].any()
    found = centred(units, enough=ENOUGH, key=1).observations
    few, many = (loglik_of(each) for each in (found, nodes_at(units, Rule(401, tails=True))))
    at = [np.array([0.5, wide]) for wide in np.linspace(0.3, 2.3, 7)]
    assert np.var([(few(x) - many(x))[rare].sum() for x in at]) < ENOUGH


# -- the middle of the posterior -------------------------------------------------------------------


def of_sizes(sizes: np.ndarray, **initval: float) -> pm.Model:
    """Return a logistic regression with an effect of each level."""
    rng = np.random.default_rng(9)
    level = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.random(len(level)) < expit(rng.normal(-1, 0.7, len(sizes)))[level]
    with pm.Model() as model:
        mean, width = pm.Normal("mean", 0, 2, **initval), pm.HalfNormal("width")
        z = pm.Normal("z", shape=len(sizes))
        pm.Bernoulli("y", logit_p=mean + width * z[level], observed=y.astype(int))
    return model


def middle(form, rule, x):
    """Return the posterior around the mode to which a search leads from somewhere."""
    return form.middle(rule, form.highest(rule, x))


def test_nodes_follow_the_search_for_the_middle_however_far_it_begins():
    """With nodes that lag behind, densities of large levels have ridges, on which searches end."""
    model = of_sizes(np.array([1, 2, 5, 10] * 6 + [100] * 4 + [2_000, 6_000]))
    form = _Sample.of(read(model, "z"), key=1).single
    starts = [[0.0, 0.0], [3.0, 0.0], [-8.0, 2.0]]
    found = [middle(form, Rule(9), np.array(x)).location for x in starts]
    np.testing.assert_allclose(found, found[:1] * 3, atol=0.01)  # a 25th of a standard deviation


@pytest.mark.slow
def test_searches_begin_where_nodes_were_placed_and_not_at_the_initial_point(calls):
    model = of_sizes(np.array([5] * 200 + [100] * 100 + [1_000] * 4), initval=8.0)
    sampler = CoresetSampler(centred(read(model, "z"), enough=ENOUGH, key=1))
    searches = calls(curvature, "_highest")
    found = proposal(sampler, 100, start_size=1_000, rng=np.random.default_rng(1))
    assert found is not None
    [around] = found.around.parts
    at = sampler.loglikelihood.observations.at
    np.testing.assert_array_equal(searches[0].args[1], at)
    assert np.abs(around.whiten(at)).max() < 0.5
    assert sampler.counts["n_gradients"] < 100


# -- by which nodes the error of others is judged --------------------------------------------------


@cache
def counts_of_two_effects() -> tuple[_Sample, Normal]:
    """Return 240 units of three counts, and the posterior of what they share.

    Each has a twin of nearly the same data beside it, so that half of them stand for all.
    """
    rng, n = np.random.default_rng(3), 240
    level, twin = np.repeat(np.arange(n), 3), np.repeat(np.arange(n // 2), 6).reshape(-1, 6)
    at_three = np.tile(rng.normal(size=(n // 2, 3)), 2).ravel()
    x = at_three + rng.normal(0, 0.01, 3 * n)
    own, slope = (rng.normal(0, sd, n // 2)[twin].ravel() for sd in (0.6, 0.4))
    with pm.Model() as model:
        sd, mean = pm.HalfNormal("sd"), pm.Normal("mean")
        a, b = pm.Normal("a", mean, sd, shape=n), pm.Normal("b", 0, sd, shape=n)
        y = rng.poisson(np.exp(0.5 + own + slope * at_three)).reshape(-1, 2, 3)
        y = np.repeat(y[:, :1], 2, axis=1).ravel()
        pm.Poisson("y", pm.math.exp(a[level] + b[level] * x), observed=y)
    sample = _Sample.of(read(model, "a", "b"), key=1)
    return sample, middle(sample.single, Rule(9), sample.start)


@pytest.fixture
def evaluated(monkeypatch) -> list[tuple[int, int]]:
    """Return degrees of rules, and numbers of units that are integrated by them."""
    found, sums = [], _Form.sums

    def recorded(self: _Form, rule: Rule, around: Normal, group: RowSample) -> np.ndarray:
        found.append((rule.degree, len(group.weights)))
        return sums(self, rule, around, group)

    monkeypatch.setattr(_Form, "sums", recorded)
    return found


def test_rules_of_fewer_nodes_judge_others_where_their_error_is_small(evaluated):
    """Of 629 nodes and 101: a part of the units tells how far these are off."""
    sample, around = counts_of_two_effects()
    group = sample.single.sample
    _, found, doubt = sample._judge(around, group, ENOUGH)
    assert evaluated == [(61, 120), (21, 120), (21, 240)]
    exact = sample.single.sums(Rule(61), around, group)
    assert doubt == pytest.approx(np.std(exact - found), rel=0.2)
    assert 0.0 < doubt**2 < 0.01 * ENOUGH


def test_rules_that_judge_others_reach_further_into_tails():
    """Otherwise they share the error of those that they judge, which is in the tails."""

    def error(degree: int) -> float:
        nodes = Nodes.of_degree(degree, 2)
        heights = (student(3).logpdf(nodes.points / scale).sum(axis=1) for scale in (0.8, 1.0, 1.2))
        logs = [logsumexp(h + nodes.log_weights) for h in heights]
        return float(np.std(np.array(logs) - 2 * np.log([0.8, 1.0, 1.2])))

    assert error(61) < error(49) / 2


@pytest.mark.parametrize("degree", [11, 13])
def test_nodes_around_means_have_a_smaller_error_than_around_modes(degree):
    """Of two independent log-gamma variables, whose shapes differ from those of the moments."""
    middle, nodes = np.array([2.0, 3.0]), Nodes.of_degree(degree, 2)

    def logs(shapes: np.ndarray, x: np.ndarray) -> np.ndarray:
        z = np.log(shapes) + x / np.sqrt(shapes)  # by mode and curvature
        return np.asarray((shapes * z - np.exp(z)).sum(axis=-1))

    def error(moments: np.ndarray) -> float:
        mean, root = moments[:, 0], moments[:, 1:-1]
        x, volume = mean + nodes.points @ root.T, np.log(np.diag(root)).sum()
        return float(np.std([
            logsumexp(logs(a, x) + nodes.log_weights) + volume - np.log(a).sum() / 2
            - gammaln(a).sum()
            for a in middle * np.exp(0.3 * np.random.default_rng(1).normal(size=(30, 2)))
        ]))  # fmt: skip

    many = Nodes.of_degree(13, 2)
    at_many = (logs(middle, many.points) + many.log_weights)[None]
    [found] = _moments_of(many.points, at_many, np.eye(2)[None])
    assert error(found) < error(normal_moments(1, 2)[0]) / 3


def test_moments_of_a_normal_density_are_its_own():
    rng, n_dims = np.random.default_rng(1), 3
    root = np.tril(0.3 * rng.normal(size=(4, n_dims, n_dims))) + np.eye(n_dims)
    mean = 0.1 * rng.normal(size=(4, n_dims))
    spread = root @ (np.eye(n_dims) + 0.05 * rng.normal(size=root.shape))
    nodes = Nodes.of_degree(13, n_dims)
    away = np.einsum("nij,kj->nki", root, nodes.points) - mean[:, None]
    white = np.linalg.solve(spread[:, None], away[..., None])[..., 0]
    logs = nodes.log_weights - np.square(white).sum(axis=2) / 2
    found = _moments_of(nodes.points, logs, root)
    upper = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(root @ root.mT))).mT
    places = np.einsum("nij,nj->ni", upper, found[..., 0])
    np.testing.assert_allclose(places, mean, atol=1e-3)
    roots = upper @ found[..., 1:-1]
    np.testing.assert_allclose(roots @ roots.mT, spread @ spread.mT, atol=5e-3)


def test_moments_of_densities_far_from_normal_are_left_out():
    nodes, root = Nodes.of_degree(13, 2), np.tile(np.eye(2), (2, 1, 1))
    logs = np.stack([np.full(len(nodes), -np.inf), 3.0 * nodes.points[:, 0] ** 2])
    np.testing.assert_array_equal(_moments_of(nodes.points, logs, root), normal_moments(2, 2))


@pytest.mark.slow
def test_rules_of_many_nodes_judge_others_where_that_error_is_not_small(evaluated):
    sample, around = counts_of_two_effects()
    group = sample.single.sample
    _, found, doubt = sample._judge(around, group, ENOUGH**3)
    assert evaluated == [(61, 120), (21, 120), (61, 240)]
    assert doubt == 0.0
    np.testing.assert_array_equal(found, sample.single.sums(Rule(61), around, group))


def test_the_error_of_nodes_contains_that_of_those_that_judge_them():
    sample, around = counts_of_two_effects()
    _, many, doubt = sample._judge(around, sample.single.sample, ENOUGH)
    few = sample.single.sums(Rule(9), around, sample.single.sample)
    stated = sample.sufficient(_Nodes(Rule(9)), around, ENOUGH).error
    assert stated == pytest.approx((np.std(many - few) + doubt) ** 2)
    exact = sample.single.sums(Rule(61), around, sample.single.sample)
    assert np.var(exact - few) <= stated


def test_part_of_the_units_stands_for_all_of_them():
    sample, _ = counts_of_two_effects()
    group = sample.single.sample
    part = group.part(50)
    assert len(part.weights) == len(part.rows) == 48
    assert part.weights.sum() == pytest.approx(group.weights.sum())


# -- where nodes are too few for a mode ------------------------------------------------------------


def frailties(n: int) -> pm.Model:
    """Times of four events for each unit, at a rate that has a gamma distribution."""
    rng, unit = np.random.default_rng(1), np.repeat(np.arange(n), 4)
    times = (rng.exponential(size=len(unit)) / rng.gamma(2.0, 0.5, n)[unit]) ** (1 / 1.4)
    with pm.Model() as model:
        shape, k = pm.Gamma("shape", 2, 1), pm.Gamma("k", 4, 4)
        own = pm.Gamma("own", shape, shape, shape=n)
        scale = (own[unit] * pt.exp(pm.Normal("mean", 0, 2))) ** (-1 / k)
        pm.Weibull("y", k, scale, observed=times)
    return model


def test_after_a_failure_twice_as_many_nodes_follow_and_their_gradients_are_finite():
    sample = _Sample.of(read(frailties(60), "own"), key=1)
    form, x = sample.single, sample.start
    tried = [_Nodes(Rule(13))]
    while (better := sample.after_failure(tried[-1], x)) is not None:
        tried.append(better)
    assert [(nodes.rule.degree, nodes.rule.tails) for nodes in tried] == [
        (13, False), (33, False), (81, True), (241, True),
    ]  # fmt: skip
    expected = middle(form, Rule(49), x).location
    for nodes in tried:
        found = middle(form, nodes.rule, x)
        np.testing.assert_allclose(found.whiten(expected), 0.0, atol=0.3)


def beside_others(sd) -> pm.Model:
    """Return two binary rows of each unit, and effects of forty groups, whose scale may be free."""
    rng, unit = np.random.default_rng(1), np.repeat(np.arange(400), 2)
    group = rng.integers(40, size=400)
    eta = rng.normal(0, 1, 40)[group] + rng.normal(0, 1, 400)
    with pm.Model() as model:
        others = pm.Normal("others", 0, sd or pm.HalfNormal("sd_others"), shape=40)
        own = pm.Normal("own", 0, pm.HalfNormal("sd"), shape=400)
        logit = (others[group] + own)[unit]
        pm.Bernoulli("y", logit_p=logit, observed=rng.binomial(1, expit(eta[unit])))
    return model


@pytest.mark.parametrize(("sd", "degree", "alike"), [(None, 13, True), (1.0, 5, False)])
def test_more_nodes_do_not_help_where_the_scale_of_others_goes_to_zero(sd, degree, alike):
    sample = _Sample.of(read(beside_others(sd), "own"), key=1)
    end = sample.single.highest(Rule(degree), sample.start)
    assert sample.is_as_by_many(_Nodes(Rule(degree)), end) == alike


def test_equal_units_are_evaluated_once_where_nodes_are_placed():
    """Counts of 2,000 levels with one row each, of which some sixty are distinct."""
    y = np.random.default_rng(7).poisson(np.exp(np.random.default_rng(8).normal(1.5, 0.9, 2_000)))
    with pm.Model() as model:
        z = pm.Normal("z", shape=2_000)
        pm.Poisson("y", pm.math.exp(pm.Normal("a", 0, 2) + pm.HalfNormal("s") * z), observed=y)
    sample = _Sample.of(read(model, "z"), key=1)
    group = sample.single.sample
    assert sample.has_all
    assert len(group.rows) == len(np.unique(y))
    assert group.weights.sum() == 2_000
    np.testing.assert_array_equal(group.weights, group.rows.case_weights)
