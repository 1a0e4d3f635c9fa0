"""Hamiltonian Monte Carlo of many chains at once: its target by closed forms, and failures."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import polygamma, psi

from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.steps.split_hmc import QUARTER, SplitHmc, judged_by

N_CHAINS, N_DIMS, SHAPE = 1_000, 40, 5.0
MIX = np.eye(N_DIMS) + np.diag(np.full(N_DIMS - 1, 0.5), 1)  # of independent coordinates
MEAN = np.full(N_DIMS, psi(SHAPE)) @ MIX.T
PRECISION = np.linalg.inv(polygamma(1, SHAPE) * MIX @ MIX.T)


def slopes(x):
    """Sums of logarithms of gamma variables, which are skewed."""
    z = np.linalg.solve(MIX, x.T).T
    return (SHAPE * z - np.exp(z)).sum(axis=1), (SHAPE - np.exp(z)) @ np.linalg.inv(MIX)


def beginnings(rng):
    """Draw from the normal distribution around, whose importance weights are useless."""
    return MEAN + factor_of(PRECISION).draw_inverse(N_CHAINS, rng=rng)


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
def test_normal_draws_become_those_of_a_skewed_density(as_matrix):
    """Mean, variance and skewness of its independent coordinates, at five standard errors."""
    rng = np.random.default_rng(1)
    factor = factor_of(as_matrix(np.where(np.abs(PRECISION) < 1e-12, 0.0, PRECISION)))
    [found] = SplitHmc(slopes, Normal(MEAN, factor)).moved(beginnings(rng), rng=rng)
    z = np.linalg.solve(MIX, found.T).ravel()
    variance, n = polygamma(1, SHAPE), z.size
    skewness, excess = polygamma(2, SHAPE) / variance**1.5, polygamma(3, SHAPE) / variance**2
    away = (z - psi(SHAPE)) / variance**0.5
    assert abs(away.mean()) < 5 / n**0.5
    assert abs(np.square(away).mean() - 1) < 5 * ((2 + excess) / n) ** 0.5
    assert (away**3).mean() == pytest.approx(skewness, abs=0.15)  # -0.47


def test_draws_forget_where_they_began():
    rng = np.random.default_rng(2)
    points = beginnings(rng)
    [found] = SplitHmc(slopes, Normal(MEAN, factor_of(PRECISION))).moved(points, rng=rng)
    correlations = [np.corrcoef(*own)[0, 1] for own in zip(points.T, found.T, strict=True)]
    assert np.abs(correlations).max() < 5 / N_CHAINS**0.5


def test_a_normal_density_is_followed_exactly():
    """So that every proposal is accepted, with one gradient, however long the step."""
    rng = np.random.default_rng(3)
    points = beginnings(rng)

    def normal(x):
        away = x - MEAN
        pull = -away @ PRECISION
        return (away * pull).sum(axis=1) / 2, pull

    hmc = SplitHmc(normal, Normal(MEAN, factor_of(PRECISION)))
    after = hmc.after(hmc.at(points), QUARTER, 1, rng=rng)
    assert after.accepted.all()
    correlation = np.corrcoef(points[:, 0], after.states.points[:, 0])[0, 1]
    assert np.abs(correlation) < 5 / N_CHAINS**0.5


def test_chains_that_do_not_forget_give_nothing():
    """Two modes, far apart: none of the chains goes from one to the other."""
    rng = np.random.default_rng(4)

    def two_modes(x):
        distance = np.abs(x[:, :1]) - 50.0
        gradients = -x.copy()
        gradients[:, :1] = -distance * np.sign(x[:, :1])
        return -(np.square(distance[:, 0]) + np.square(x[:, 1:]).sum(axis=1)) / 2, gradients

    points = rng.normal(size=(200, 2)) + [50.0, 0.0] * rng.choice([-1, 1], (200, 1))
    hmc = SplitHmc(two_modes, Normal(np.zeros(2), factor_of(np.diag([1 / 2_500, 1.0]))))
    assert not [*hmc.moved(points, rng=rng)]


@pytest.mark.parametrize(("width", "comes"), [(2.6, True), (4.0, False)])
def test_chains_that_forget_slowly_go_on_while_that_is_worth_it(width, comes):
    """A normal density that is wider than the one around: a trajectory keeps 0.82, or 0.92."""
    rng = np.random.default_rng(6)
    calls = []

    def wide(x):
        calls.append(len(x))
        return -np.square(x / width).sum(axis=1) / 2, -x / width**2

    hmc = SplitHmc(wide, Normal(np.zeros(1), factor_of(np.eye(1))))
    points = rng.normal(0, width, (2_000, 1))
    every = [*hmc.moved(points, rng=rng)]
    n_trajectories = (len(calls) - 1) / 4
    if comes:
        [found] = every
        assert 12 < n_trajectories < 20
        assert abs(np.corrcoef(points[:, 0], found[:, 0])[0, 1]) < 0.05 + 4 / 2_000**0.5
        assert found.std() == pytest.approx(width, rel=5 / 4_000**0.5)
    else:
        assert not every
        assert n_trajectories == 12


def test_no_chain_goes_where_the_density_is_not_finite():
    rng = np.random.default_rng(5)

    def positive(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(x)
        return (4 * logs - x).sum(axis=1), 4 / x - 1

    hmc = SplitHmc(positive, Normal(np.full(2, 5.0), factor_of(np.eye(2) / 5)))
    [found] = hmc.moved(rng.gamma(5.0, size=(500, 2)), rng=rng)
    assert found.min() > 0
    assert found.mean() == pytest.approx(5.0, abs=5 * (5 / 1_000) ** 0.5)


def test_gradients_of_another_density_give_draws_of_the_one_whose_values_are_known():
    """Those of gamma variables of another shape, whose mean logarithm is nine errors higher."""
    rng = np.random.default_rng(5)

    def of_other_shape(x):
        values, gradients = slopes(x)
        z = np.linalg.solve(MIX, x.T).T
        return values + 0.1 * z.sum(axis=1), gradients + 0.1 * np.linalg.inv(MIX).sum(axis=0)

    around = Normal(MEAN, factor_of(PRECISION))
    hmc = SplitHmc(of_other_shape, around, judged_by(lambda x: slopes(x)[0]))
    [found] = hmc.moved(beginnings(rng), rng=rng)
    z = np.linalg.solve(MIX, found.T).ravel()
    error = (polygamma(1, SHAPE) / z.size) ** 0.5
    assert abs(z.mean() - psi(SHAPE)) < 4.5 * error < psi(SHAPE + 0.1) - psi(SHAPE)


def test_no_end_is_where_the_known_values_have_no_density():
    rng = np.random.default_rng(6)

    def right_half(x):
        return np.where(x[:, 0] > MEAN[0], slopes(x)[0], np.nan)

    hmc = SplitHmc(slopes, Normal(MEAN, factor_of(PRECISION)), judged_by(right_half))
    points = beginnings(rng)
    start = hmc.at(points[points[:, 0] > MEAN[0]])
    after = hmc.after(start, QUARTER, 4, rng=rng)
    assert (after.states.points[:, 0] > MEAN[0]).all()
    assert 0.2 < after.accepted.mean() < 0.8
