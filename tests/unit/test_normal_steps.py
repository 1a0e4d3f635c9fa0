"""Draws without chains, and steps of chains, where a posterior is nearly normal."""

import numpy as np
import pytest
from scipy import sparse
from scipy.integrate import quad
from scipy.special import polygamma, psi
from scipy.stats import norm

from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals, Table
from pymc_coresets.sampling.steps.split_hmc import QUARTER, SplitHmc, judged_by

# -- Posteriors that are normal but for some directions, of which the density is tabulated. --------

_BOUNDED = 1  # the coordinate that a few rows bound to one side


_PRECISION = np.array([[2.0, 0.5, 0.3], [0.5, 1.0, 0.2], [0.3, 0.2, 3.0]])


def _one_sided(x):
    """Three correlated normal coordinates, and three rows that keep one of them above 0."""
    return -(x * (x @ _PRECISION)).sum(axis=1) / 2 - 3 * np.logaddexp(0, -200 * x[:, _BOUNDED])


def _slopes(x):
    share = np.exp(-np.logaddexp(0, 200 * x[:, _BOUNDED]))
    return -x @ _PRECISION + 3 * 200 * share[:, None] * np.eye(3)[_BOUNDED]


@pytest.fixture(scope="module")
def found():
    """Around the mode, with the curvature there."""
    mode, curvature = np.zeros(3), _PRECISION
    for _ in range(100):
        share = 1 / (1 + np.exp(200 * mode[_BOUNDED]))
        slope, curvature = -_PRECISION @ mode, _PRECISION.copy()
        slope[_BOUNDED] += 3 * 200 * share
        curvature[_BOUNDED, _BOUNDED] += 3 * 200**2 * share * (1 - share)
        mode = mode + np.linalg.solve(curvature, slope)
    [found] = GriddedMarginals.around(Normal(mode, factor_of(curvature)), _one_sided, _slopes)
    return found


def test_a_table_is_a_normalised_density_of_its_draws():
    """By quadrature, and the distribution function at five standard errors."""
    table = Table(np.array([-1.0, 0.0, 0.5, 3.0]), np.array([-2.0, 0.0, 0.0, -9.0]))

    def density(x):
        return np.exp(table.log_density(np.array([x])))[0]

    assert quad(density, -1, 3, points=[0, 0.5])[0] == pytest.approx(1.0)
    draws = table.draw(20_000, rng=np.random.default_rng(1))
    for limit in (-0.5, 0.2, 0.7):
        below = quad(density, -1, limit, points=[0, 0.5])[0]
        assert (draws < limit).mean() == pytest.approx(below, abs=5 * 0.5 / 20_000**0.5)


def test_importance_weights_are_nearly_equal(found):
    """Laplace's approximation would lose nearly all of its draws."""
    draws, logq = found.draw(4_000, rng=np.random.default_rng(1))
    weights = np.exp(_one_sided(draws) - logq)
    assert weights.sum() ** 2 / np.square(weights).sum() > 0.9 * len(weights)
    assert weights.max() < 5 * weights.mean()


def test_weighted_draws_have_the_mean_of_the_bounded_coordinate(found):
    """By quadrature of its marginal density."""
    draws, logq = found.draw(20_000, rng=np.random.default_rng(2))
    weights = np.exp(_one_sided(draws) - logq)
    variance = np.linalg.inv(_PRECISION)[_BOUNDED, _BOUNDED]

    def density(x):
        return np.exp(-(x**2) / variance / 2 - 3 * np.logaddexp(0, -200 * x))

    mass = quad(density, -0.2, 8, points=[0])[0]
    first = quad(lambda x: x * density(x), -0.2, 8, points=[0])[0]
    mean = weights @ draws[:, _BOUNDED] / weights.sum()
    assert mean == pytest.approx(first / mass, abs=5 * variance**0.5 / len(draws) ** 0.5)


def test_a_tenth_of_the_density_is_a_flatter_one():
    """Of a normal variable alone, whose density to the power 0.8 is a wider normal one."""
    found = GriddedMarginals(np.array([2.0]), np.array([[3.0]]), {})
    z = np.linspace(-6.0, 6.0, 13)
    expected = np.log(0.9 * norm.pdf(z) + 0.1 * norm.pdf(z, scale=0.8**-0.5))
    away = found.log_density(2.0 + 3.0 * z[:, None]) - expected
    np.testing.assert_allclose(away, away[0])


def test_normal_axes_have_no_table(found):
    """So that thousands of dimensions cost some points each."""
    assert len(found.tables) == 1


def test_too_many_points_are_not_evaluated():
    """What it takes to find the axes alone is 150 D points."""
    near = Normal(np.zeros(3), factor_of(np.eye(3)))
    assert not [*GriddedMarginals.around(near, _one_sided, _slopes, most=100)]


def test_rows_bound_sums_of_variables():
    """Each of two sums by rows of its own: axes along variables would mix them."""
    rows = np.array([[3.0, -3.0, 0.0], [0.0, 20.0, 10.0]])

    def log_density(x):
        return -np.square(x).sum(axis=1) / 2 - np.logaddexp(0, -x @ rows.T).sum(axis=1)

    def slopes(x):
        return -x + np.exp(-np.logaddexp(0, x @ rows.T)) @ rows

    mode = np.zeros(3)
    for _ in range(50):
        share = np.exp(-np.logaddexp(0, rows @ mode))
        curvature = np.eye(3) + rows.T @ np.diag(share * (1 - share)) @ rows
        mode = mode + np.linalg.solve(curvature, slopes(mode[None])[0])
    [found] = GriddedMarginals.around(Normal(mode, factor_of(curvature)), log_density, slopes)
    assert len(found.tables) == 2
    draws, logq = found.draw(4_000, rng=np.random.default_rng(1))
    weights = np.exp(log_density(draws) - logq)
    assert weights.sum() ** 2 / np.square(weights).sum() > 0.9 * len(weights)


# -- Hamiltonian Monte Carlo of many chains at once: its target by closed forms, and failures. -----

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
