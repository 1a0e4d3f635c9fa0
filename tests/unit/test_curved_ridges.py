"""Chains along thin curved ridges draw from the density itself."""

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import approx_fprime
from scipy.special import logsumexp, softmax

from pymc_coresets import build_coreset
from pymc_coresets.sampling.steps.curved_ridges import CurvedRidge
from pymc_coresets.sampling.steps.many_chains import ManyChains, Paths
from pymc_coresets.sampling.steps.split_hmc import SplitHmc
from pymc_coresets.sampling.steps.starts import around_draws


def parabola(points):
    """A normal density along b, bent: a + b^2 has a standard deviation of .007."""
    a, b = points.T
    off = (a + b**2 - 1) / 0.007**2
    values = -((a + b**2 - 1) ** 2) / 0.007**2 / 2 - b**2 / 2
    return values, np.stack([-off, -2 * b * off - b], axis=1)


def of_parabola(b, rng):
    return np.stack([1 - b**2 + rng.normal(0, 0.007, len(b)), b], axis=1)


@pytest.mark.parametrize(("least", "most"), [(-0.4, 1.3), (-0.3, 0.3)])
def test_chains_from_a_part_of_a_ridge_reach_all_of_it(least, most):
    rng = np.random.default_rng(1)
    draws = of_parabola(rng.uniform(least, most, 400), rng)
    [ridge] = CurvedRidge.through(draws, parabola)
    along = ridge.spread(1_000, rng=rng)
    sampler = ManyChains(n_chains=64, n_draws=4_000, most=1e5, seen_at=ridge.at)
    [near] = around_draws(along)
    found = sampler.draw(SplitHmc(ridge.seen_by(parabola), near), along[:64], rng=rng)
    assert isinstance(found, Paths)
    a, b = ridge.at(found.points).reshape(-1, 2).T
    # Of b standard normal, with the error of four thousand draws, half of them independent.
    assert abs(b.mean()) < 4 / 2_000**0.5
    assert b.std() == pytest.approx(1.0, abs=4 * 0.5**0.5 / 2_000**0.5)
    assert a.mean() == pytest.approx(0.0, abs=4 * 2**0.5 / 2_000**0.5)
    assert (a + b**2 - 1).std() == pytest.approx(0.007, rel=0.05)


def test_densities_by_coordinates_have_their_own_gradients():
    rng = np.random.default_rng(1)
    [ridge] = CurvedRidge.through(of_parabola(rng.normal(size=400), rng), parabola)
    slopes = ridge.seen_by(parabola)
    for u in ridge.of(of_parabola(np.array([-1.5, 0.3, 2.0]), rng)):
        [value], [gradient] = slopes(u[None])
        np.testing.assert_allclose(value, parabola(ridge.at(u[None]))[0][0])
        expected = approx_fprime(u, lambda x: slopes(x[None])[0][0], 1e-7)
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-2)


def test_surfaces_are_followed_in_both_of_their_directions():
    """The third coordinate is a cubic of two others, and the fourth is none of the ridge's."""
    scale = 0.01

    def slopes(points):
        a, b, c, d = points.T
        off = c - a**2 + a * b - b**3 / 4
        values = -(off**2) / scale**2 / 2 - (a**2 + b**2 + d**2) / 2
        pull = off / scale**2
        gradients = [pull * (2 * a - b) - a, pull * (3 * b**2 / 4 - a) - b, -pull, -d]
        return values, np.stack(gradients, axis=1)

    rng = np.random.default_rng(1)
    a, b, d = rng.normal(size=(3, 1_000))
    c = a**2 - a * b + b**3 / 4 + scale * rng.normal(size=1_000)
    draws = np.stack([a, b, c, d], axis=1)
    [ridge] = CurvedRidge.through(draws, slopes)
    assert ridge.n_along == 3
    assert ridge.of(draws)[:, 3].std() * np.linalg.norm(ridge.axes[:, 3]) < 2 * scale


def hyperbola(points):
    """The product of two coordinates, whose means are .5 and .3, is one with a deviation of .02."""
    a, b = points.T
    pull = (1 - a * b) / 0.02**2
    values = -((1 - a * b) ** 2) / 0.02**2 / 2 - ((a - 0.5) ** 2 + (b - 0.3) ** 2) / 2
    return values, np.stack([pull * b - a + 0.5, pull * a - b + 0.3], axis=1)


def test_no_coordinates_are_used_that_leave_out_another_ridge():
    """Chains that begin on the higher branch would agree, and never see the other one."""
    rng = np.random.default_rng(1)
    a = np.exp(rng.normal(0, 0.4, 400))
    draws = np.stack([a, (1 + 0.02 * rng.normal(size=400)) / a], axis=1)
    assert [*CurvedRidge.through(draws, hyperbola)]
    signs = rng.choice([1.0, -1.0], p=[0.95, 0.05], size=400)
    assert not [*CurvedRidge.through(draws * signs[:, None], hyperbola)]


@pytest.mark.parametrize("other", [0.0, 12.0])
def test_coordinates_may_miss_a_ridge_by_some_widths_but_no_other_ridge(other):
    """A straight ridge, by coordinates four widths off, and one beside it or none."""
    ridge = CurvedRidge(
        location=np.zeros(2),
        axes=np.eye(2),
        powers=np.zeros((1, 1), dtype=int),
        coefficients=np.array([[0.04]]),
        widths=np.array([0.01]),
        places=np.zeros((1, 1)),
    )
    b = np.array([0.0, 0.01 * other])

    def slopes(points):
        x, z = points[:, 0], (points[:, 1:] - b) / 0.01
        values = -np.square(z) / 2
        shares = softmax(values, axis=1)
        return logsumexp(values, axis=1) - x**2 / 2, np.stack([-x, -(shares * z).sum(1) / 0.01], 1)

    rng = np.random.default_rng(1)
    draws = np.stack([rng.normal(size=40), rng.choice(b, 40) + 0.01 * rng.normal(size=40)], axis=1)
    assert ridge.leaves_out(draws, slopes) == (other > 0)


def test_densities_that_overflow_beyond_the_ridge_are_no_warnings():
    """One coordinate is the other's exponential, with a standard deviation of .02."""

    def slopes(points):
        a, b = points.T
        pull = (1 - np.exp(a) - b) / 0.02**2
        values = -(((1 - np.exp(a) - b) / 0.02) ** 2) / 2 - (a**2 + b**2) / 2
        return values, np.stack([pull * np.exp(a) - a, pull - b], axis=1)

    rng = np.random.default_rng(1)
    a = rng.normal(-0.3, 0.7, 1_000)
    draws = np.stack([a, 1 - np.exp(a) + 0.02 * rng.normal(size=1_000)], axis=1)
    assert [*CurvedRidge.through(draws, slopes)]  # warnings are errors


def test_normal_densities_have_no_curved_ridge_however_correlated():
    rng = np.random.default_rng(1)
    precision = np.linalg.inv(np.array([[1.0, 0.9999], [0.9999, 1.0]]))
    draws = rng.multivariate_normal(np.zeros(2), np.linalg.inv(precision), 400)

    def slopes(points):
        pull = points @ precision
        return -(points * pull).sum(axis=1) / 2, -pull

    assert not [*CurvedRidge.through(draws, slopes)]


def test_a_heavy_tail_is_no_ridge():
    rng = np.random.default_rng(1)
    draws = rng.standard_t(2, size=(1_000, 2))

    def slopes(points):
        return -1.5 * np.log1p(points**2 / 2).sum(axis=1), -1.5 * points / (1 + points**2 / 2)

    assert not [*CurvedRidge.through(draws, slopes)]


@pytest.mark.slow
# The construction warns that its own chains diverge, and that rows are few: the draws are right.
@pytest.mark.filterwarnings("ignore::pymc_coresets.CoresetWarning")
@pytest.mark.parametrize("seed", [1, 3])
def test_a_coreset_of_a_curved_posterior_converges_to_what_a_grid_says(seed):
    """Draws of the construction are of one half of the ridge, or from around the mode alone."""
    outcomes = np.random.default_rng(1).normal(1, 1, 20_000)
    with pm.Model() as model:
        place = pm.Normal("a", 0, 2) + pm.Normal("b", 0, 1) ** 2
        pm.Normal("y", place, 1, observed=outcomes)
    coreset = build_coreset(model, random_seed=seed, progressbar=False)
    idata = coreset.sample(random_seed=seed, progressbar=False, quiet=True)
    check = coreset.check(idata)
    assert check.reliable
    # Given b, a is normal: the marginal posterior of b, on a grid.
    b, mean, n = np.linspace(-6, 6, 20_001), outcomes.mean(), len(outcomes)
    weights = np.exp(-(b**2) / 2 - (mean - b**2) ** 2 / (2 * (4 + 1 / n)))
    a = (mean - b**2) * 4 / (4 + 1 / n)
    for name, values in {"a": a, "b": b}.items():
        expected = np.average(values, weights=weights)
        sd = np.sqrt(np.average((values - expected) ** 2, weights=weights))
        drawn = idata["posterior"][name].to_numpy()
        error = sd / check.ess_bulk**0.5
        assert drawn.mean() == pytest.approx(expected, abs=4 * error)
        # The fourth moment of a is five times that of a normal variable at most.
        assert drawn.std() == pytest.approx(sd, abs=4 * error * 2)
