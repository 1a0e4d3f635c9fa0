"""Variables of units given the shared ones: chains, frames, histograms and nodes."""

import logging
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from scipy.stats import kstest, norm, t

from pymc_coresets import build_coreset
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.units.nodes import Rule, rule_to_judge_by, rules_to_judge_first_by
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.sampling.normal import Normal, heavy_tailed
from pymc_coresets.sampling.steps import starts
from pymc_coresets.sampling.units.centring import _Nodes, _Sample, _Several
from pymc_coresets.sampling.units.chains import (
    LOG_PEAK,
    LocalChains,
    Weights,
    student,
    student_log_density,
)
from pymc_coresets.sampling.units.frames import Frames
from pymc_coresets.sampling.units.histograms import Histograms, places_around
from pymc_coresets.sampling.units.regressions import HELD_OUT, linear_and_quadratic
from pymc_coresets.sampling.units.staying_nodes import nodes_that_stay

# -- Proposals for the variables of units, and how many of them a chain needs. ---------------------

Q, DRAWS, MODES, UNITS = 3, 5, 2, 4


@pytest.fixture(scope="module")
def frames() -> Frames:
    rng = np.random.default_rng(1)
    root = np.zeros((Q, Q, DRAWS, MODES, UNITS))
    root[range(Q), range(Q)] = np.exp(0.3 * rng.normal(size=(Q, DRAWS, MODES, UNITS)))
    root[np.triu_indices(Q, 1)] = rng.normal(size=(3, DRAWS, MODES, UNITS))
    middle, height = (
        rng.normal(size=(Q, DRAWS, MODES, UNITS)),
        rng.normal(size=(DRAWS, MODES, UNITS)),
    )
    return Frames(middle, root, height)


def test_frames_are_as_many_numbers(frames):
    numbers = frames.numbers
    assert numbers.shape == (DRAWS, Q + Q * (Q + 1) // 2 + 1, MODES, UNITS)
    back = Frames.of_numbers(numbers, Q)
    for own, other in zip(vars(frames).values(), vars(back).values(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)


def test_frames_are_found_from_places(frames):
    x = np.concatenate([np.zeros((1, Q)), np.eye(Q)])
    z = frames.middle[:, None] + np.einsum("jidmu,ki->jkdmu", frames.root, x)
    logs = np.repeat(frames.height[:, :, None], 1 + Q, axis=2)
    back = Frames.of_places(np.moveaxis(z, (0, 1), (1, 3)), logs)
    for own, other in zip(vars(frames).values(), vars(back).values(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)


def test_axes_that_are_turned_are_those_of_the_same_covariance(frames):
    """Around means, places are products of an upper triangular root and a lower one."""
    turned = frames.root + 0.4 * np.swapaxes(frames.root, 0, 1)
    x = np.concatenate([np.zeros((1, Q)), np.eye(Q)])
    z = frames.middle[:, None] + np.einsum("jidmu,ki->jkdmu", turned, x)
    logs = np.repeat(frames.height[:, :, None], 1 + Q, axis=2)
    found = Frames.of_places(np.moveaxis(z, (0, 1), (1, 3)), logs).root
    assert not found[np.tril_indices(Q, -1)].any()
    own, exact = (np.einsum("ik...,jk...->ij...", a, a) for a in (found, turned))
    np.testing.assert_allclose(own, exact, rtol=1e-9, atol=1e-12)


def test_only_units_that_are_off_are_replaced(frames):
    other = Frames.of_numbers(frames.numbers, Q)
    other.root[1, 1, 2, 0, 3] *= 2
    np.testing.assert_array_equal(other.are_near(frames), [True, True, True, False])
    draws, units = np.arange(DRAWS), np.array([3])
    other.replace(draws, units, frames.take(draws, units))
    assert other.are_near(frames).all()


@pytest.mark.parametrize("n_modes", [1, MODES])
def test_proposals_around_modes_have_the_density_of_their_mixture(frames, n_modes):
    """The mean of normal densities over those of proposals is the mass of the normal ones."""
    some = (frames.middle[..., :n_modes, :], frames.root[..., :n_modes, :], frames.height)
    one = Frames(*some[:2], some[2][:, :n_modes]).take(np.array([0]), np.array([0]))
    values, own = one.proposed(100_000, np.random.default_rng(2))
    z, log_q = values[:, 0, :, 0], own[0, :, 0]
    mode = one.middle[:, 0, 0, 0]
    root = one.root[:, :, 0, 0, 0]
    scores = np.linalg.solve(root, z - mode[:, None])
    log_p = norm.logpdf(scores).sum(axis=0) - np.log(np.linalg.det(root))
    whole = np.logaddexp.reduce(one.height[0, :, 0])
    weights = np.exp(log_p - log_q + whole)
    error = weights.std() / np.sqrt(len(weights))
    assert abs(weights.mean() - 1) < 4 * error < 0.05


def test_widened_frames_have_a_mode_where_values_are():
    rng = np.random.default_rng(12)
    turned = np.linalg.cholesky([[2.0, 0.9], [0.9, 1.0]])
    values = np.moveaxis(rng.normal(size=(4_000, 2, 2)) @ turned.T, -1, 0) + 3.0
    values[..., 1] = 0.0  # chains that have moved nowhere
    shape = (2, 2, 4_000, 1, 2)
    whole = np.broadcast_to(np.eye(2)[:, :, None, None, None], shape)
    before = Frames(np.zeros(shape[1:]), whole, np.zeros(shape[2:]))
    found = before.widened(values)
    for kept, one in zip(vars(before).values(), vars(found).values(), strict=True):
        np.testing.assert_array_equal(one[..., :1, :], kept)
    np.testing.assert_allclose(found.middle[:, 7, 1, 0], values[..., 0].mean(axis=1))
    root = found.root[:, :, 7, 1, 0]
    np.testing.assert_allclose(root @ root.T, np.cov(values[..., 0], bias=True))
    assert root[1, 0] == 0
    np.testing.assert_array_equal(found.root[:, :, 7, 1, 1], np.eye(2))
    assert np.isneginf(found.height[:, 1]).all()


def distance(weights: np.ndarray, n_proposals: int) -> float:
    """Return the distance in total variation of chains over states that are proposed equally."""
    n = len(weights)
    accepted = np.minimum(weights[None] / weights[:, None], 1.0) / n
    np.fill_diagonal(accepted, 0.0)
    step = accepted + np.diag(1 - accepted.sum(axis=1))
    found = np.full(n, 1 / n) @ np.linalg.matrix_power(step, n_proposals - 1)
    return np.abs(found - weights / weights.sum()).sum() / 2


WEIGHTS = {
    "light": np.linspace(0.8, 1.2, 200),
    "heavy": np.random.default_rng(3).pareto(1.5, size=200) + 0.01,
    "rare": np.append(np.random.default_rng(4).uniform(0.5, 1.5, size=199), 12.0),
    "in halves": np.repeat([1e-6, 1.0], 100),
}


ONE = np.arange(1)


def judged(log_weights: np.ndarray, length: int = 1) -> tuple[float, float]:
    """Return the length that is needed, and the share of the mass that another leaves out."""
    weights = Weights(1)
    weights.add(ONE, log_weights.reshape(-1, 1))
    [needed], [unreached] = weights.needed_and_unreached(ONE, np.array([length]))
    return float(needed), float(unreached)


@pytest.mark.parametrize("name", WEIGHTS)
def test_chains_are_as_long_as_their_distance_says(name):
    weights = WEIGHTS[name]
    needed = int(judged(np.log(weights))[0])
    assert distance(weights, needed) < 2.2e-3  # weights of a class differ by an eighth
    assert needed == 1 or distance(weights, int(0.8 * needed)) > 1.5e-3


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("length", [1, 5, 40])
def test_the_share_out_of_reach_bounds_the_distance_and_is_below_the_geometric_one(name, length):
    weights = WEIGHTS[name]
    unreached = judged(np.log(weights), length)[1]
    assert 0.9 * distance(weights, length) < unreached + 1e-9
    assert unreached < 1.1 * (1 - weights.mean() / weights.max()) ** length


def test_mass_that_is_rarely_proposed_makes_chains_long():
    """One of 4,000 proposals has a twentieth of the mass: a weight of 200."""
    logs = np.zeros(4_000)
    assert judged(logs)[0] == 1
    logs[17] = np.log(4_000 * 0.05 / 0.95)
    needed, unreached = judged(logs, 480)
    assert needed == pytest.approx(np.log(0.05 / 2e-3) * 200, rel=0.02)
    assert unreached == pytest.approx(0.05 * np.exp(-480 / 200), rel=0.02)


def test_weights_of_all_rounds_count_together():
    """In any order, though the largest are in the last round or in the first."""
    rng = np.random.default_rng(8)
    rounds = [rng.normal([level, 0.0], size=(n, 2)) for n, level in ((50, -30), (9, 0), (70, -2))]
    rounds[1][3] = -np.inf, np.nan
    units, found = np.arange(2), []
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        weights = Weights(3)
        for i in order:
            weights.add(units, rounds[i])
        found.append(weights.needed_and_unreached(np.arange(3), np.array([1, 3, 2])))
    for needed, unreached in found:
        np.testing.assert_array_equal(needed, found[0][0])
        np.testing.assert_allclose(unreached, found[0][1])
        assert needed[2] == unreached[2] == np.inf  # without weights


def test_a_large_weight_of_one_round_stands_for_its_share_of_all_proposals():
    chains, logs = LocalChains(1, 1_000, 1), np.zeros((1_000, 4, 1))
    logs[3, 2] = np.log(4_000 * 0.05)
    rng = np.random.default_rng(2)
    chains.move(np.arange(1_000), ONE, np.zeros((1, 1_000, 4, 1)), logs, rng)
    chains.judge(ONE, logs)
    assert chains.left[0] > 500
    assert not chains.are_reliable[0]
    chains.judge(ONE, np.zeros((1_000, 32, 1)))  # the weight is 200 of 36,200 now
    share = 200 / 36_200
    assert chains.left[0] == pytest.approx(200 * np.log(share / 2e-3) - 36, rel=0.02)
    assert chains.are_reliable[0]  # of less than a hundredth of the mass


@pytest.mark.parametrize(
    ("weight", "share", "is_reliable"), [(2_000, 0.2, False), (200, 0.2, False), (200, 0.05, True)]
)
def test_chains_that_leave_out_a_hundredth_of_the_mass_are_not_reliable(weight, share, is_reliable):
    """After 480 proposals they have come to all but ``share exp(-480 / weight)``."""
    rng, n = np.random.default_rng(9), 4_000
    chains = LocalChains(1, n, 1)
    for _ in range(15):
        is_rare = rng.random((n, 32, 1)) < share / weight
        logs = np.where(is_rare, np.log(weight), np.log((1 - share) / (1 - share / weight)))
        chains.move(np.arange(n), ONE, is_rare[None].astype(float), logs, rng)
        chains.judge(ONE, logs)
    left_out = share * (1 - 1 / weight) ** 480
    assert chains.values.mean() == pytest.approx(share - left_out, abs=4.5 * np.sqrt(share / n))
    assert (left_out <= 0.01) == is_reliable == chains.are_reliable[0]
    assert chains.left[0] > 0


def test_densities_of_proposals_have_a_mass_of_one():
    assert pytest.approx(t(8).logpdf(0.0)) == LOG_PEAK


def test_no_chain_is_long_enough_without_a_density():
    rng = np.random.default_rng(4)
    chains, logs = LocalChains(1, 50, 1), np.full((50, 3, 1), -np.inf)
    chains.move(np.arange(50), np.arange(1), student((1, 50, 3, 1), rng), logs, rng)
    chains.judge(np.arange(1), logs)
    assert chains.left[0] == np.inf


def test_chains_of_a_few_draws_whose_proposals_are_elsewhere_are_lost():
    """Their weights are far below those of others, which decide on the length for all."""
    rng, n = np.random.default_rng(6), 1_000
    chains, every, units = LocalChains(1, n, 2), np.arange(n), np.arange(2)
    for again in (True, False):
        x = student((1, n, 5, 2), rng)
        away = np.where(again & (every % 50 == 0), 30.0, 0.0)[:, None] * [0.0, 1.0]
        logs = norm.logpdf(x[0], away[:, None]) - student_log_density(x)
        chains.move(every, units, x, logs, rng)
        chains.judge(units, logs)
        np.testing.assert_array_equal(chains.lost, [False, again])
        assert np.isinf(chains.left[1]) == again
        np.testing.assert_array_equal(chains.are_reliable, [True, not again])
        chains.restart(units)


def test_draws_far_out_judge_regressions_or_are_left_out():
    x = np.random.default_rng(7).normal(size=(4_000, 2)) * [1.0, 100.0]
    x[10::1000] = [[-9.0, 0.0], [0.0, 900.0], [9.0, 0.0], [0.0, -900.0]]
    for design in linear_and_quadratic(x):
        assert set(range(10, 4_000, 1000)) <= set(design.outer)
        assert len(design.outer) == 40
        assert not set(design.outer) & set(design.which)
        assert len(set(design.which)) == design.n_fitted + HELD_OUT
        inner = np.delete(np.abs(x[:, 0]), design.outer)
        assert np.abs(x[design.judging, 0]).max() > inner.max() - 0.2


def test_few_draws_are_not_regressed():
    x = np.random.default_rng(5).normal(size=(400, 3))
    linear, quadratic = linear_and_quadratic(x)
    assert [d.features.shape[1] for d in (linear, quadratic)] == [4, 10]
    assert linear_and_quadratic(x[:50]) == []
    exact = 1.0 + x @ [1.0, 2.0, 3.0]
    found = linear.at(linear.coefficients(exact[linear.which][: linear.n_fitted]), slice(None))
    np.testing.assert_allclose(found, exact)


# -- Histograms of the only variable of units as proposals. ----------------------------------------

THREE_MODES = np.array([[-20.0, 0.0], [0.0, 0.0], [30.0, 0.0]])  # of two units, three each


@pytest.fixture(scope="module")
def places() -> np.ndarray:
    return places_around(THREE_MODES[None], np.full((1, 3, 2), 0.5))


def log_density(z: np.ndarray) -> np.ndarray:
    """Of (..., n_units): two modes far apart and one that no frame knows, and a normal one."""
    parts = [(0.5, -20.0, 0.5), (0.3, 30.0, 0.5), (0.2, 10.0, 1.0)]
    first = np.logaddexp.reduce([np.log(p) + norm.logpdf(z[..., 0], m, s) for p, m, s in parts])
    return np.stack([first, norm.logpdf(z[..., 1], 0.0, 0.5)], axis=-1)


@pytest.fixture(scope="module")
def histograms(places) -> Histograms:
    return Histograms.of_tables(places, log_density(places)[None])


def test_places_are_around_all_modes_in_ascending_order(places):
    assert (np.diff(places, axis=0) >= 0).all()
    near = np.abs(places[:, None] - THREE_MODES).min(axis=0)
    assert near.max() < 0.1
    assert np.diff(places[:, 0]).max() < 0.5


def test_masses_are_those_of_densities(places, histograms):
    steps = np.diff(places, axis=0)
    inner = np.exp(histograms.log_density[1:-1])
    np.testing.assert_allclose((inner * steps).sum(axis=0), 1.0)
    np.testing.assert_allclose(np.diff(histograms.below, axis=0), inner * steps, atol=1e-12)
    assert np.isinf(histograms.log_density[[0, -1]]).all()
    lower = np.interp(5.0, places[:, 0], histograms.below[:, 0])
    assert abs(lower - 0.5) < 0.05


def test_values_are_drawn_from_cells_by_their_mass(places, histograms):
    z = histograms.some_replaced(np.full((1, 40, 500, 2), 1e3), np.random.default_rng(1))
    assert abs(np.mean(z == 1e3) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / z.size)
    for g in range(2):
        own, below = places[:, g], histograms.below[:, g]
        drawn = z[..., g][z[..., g] < 1e3]
        assert kstest(drawn, lambda x, o=own, b=below: np.interp(x, o, b)).pvalue > 1e-4


def test_averages_over_draws_weigh_them_alike(places):
    """Whatever constants their log-densities have; draws without a density do not count."""
    logs = np.stack([log_density(places), log_density(places + 1.0) + 50.0])
    both = np.exp(Histograms.of_tables(places, logs).log_density)
    each = [np.exp(Histograms.of_tables(places, own[None]).log_density) for own in logs]
    np.testing.assert_allclose(both, np.mean(each, axis=0), rtol=1e-9)
    none = np.full_like(logs[:1], -np.inf)
    some = Histograms.of_tables(places, np.concatenate([logs, none]))
    np.testing.assert_allclose(np.exp(some.log_density), both, rtol=1e-9)


def test_without_any_density_values_stay(places):
    found = Histograms.of_tables(places, np.full((2, *places.shape), -np.inf))
    z = np.random.default_rng(2).normal(size=(1, 3, 50, 2))
    np.testing.assert_array_equal(found.some_replaced(z, np.random.default_rng(3)), z)
    mixed = found.mixed(z, np.zeros_like(z[0]))
    np.testing.assert_allclose(mixed, np.log(0.25))


def test_weights_of_proposals_have_a_mean_of_one_and_are_bounded(histograms):
    """Also where a mode is known to the histogram alone: the mass of a density is one."""
    n = 50_000
    frames = Frames(THREE_MODES[None, None], np.full((1, 1, 1, 3, 2), 0.5), np.zeros((1, 3, 2)))
    values, own = frames.proposed(n, np.random.default_rng(4), histograms)
    z, log_q = values[0, 0], own[0] - np.log(3)  # less the height
    weights = np.exp(log_density(z) - log_q)
    error = weights.std(axis=0) / np.sqrt(n)
    assert (np.abs(weights.mean(axis=0) - 1) < 4 * error).all()
    assert weights.max() < 2


# -- Nodes that stay: densities near that of units, whose draws have the same distribution. --------

N_UNITS, N_EACH = 300, 5
UNIT = np.repeat(np.arange(N_UNITS), N_EACH)


@cache
def surrogate(kind):
    """Return what stands for all units of a model, and a normal distribution near it."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=len(UNIT))
    with pm.Model():
        sd = pm.HalfNormal("sd", 1.0)
        if kind == "intercepts":
            eta = pm.Normal("a", pm.Normal("mean"), sd, shape=N_UNITS)[UNIT]
        elif kind == "two":
            each = pm.Normal("a", [0.5, 0.0], sd, shape=(N_UNITS, 2))
            eta = each[UNIT, 0] + each[UNIT, 1] * x
        else:
            eta = pm.Normal("mean") + 2.0 * pm.Bernoulli("a", 0.4, shape=N_UNITS)[UNIT] * sd
        seen = rng.poisson(np.exp(rng.normal(0.5, 0.5, N_UNITS)[UNIT]))
        pm.Poisson("y", pm.math.exp(eta), observed=seen)
        coreset = build_coreset(integrate=["a"], random_seed=1, progressbar=False)
    return coreset._posterior, coreset


def points_near(middle, n=20):
    return middle + 0.03 * np.random.default_rng(2).normal(size=(n, len(middle)))


@pytest.mark.parametrize("kind", ["intercepts", pytest.param("two", marks=pytest.mark.slow)])
def test_values_and_gradients_are_near_those_of_nodes_that_follow(kind, limits):
    """More nodes have a smaller error where they stay, and one of tenths of nats around it."""
    posterior, _ = surrogate(kind)
    middle = posterior.loglikelihood.observations.at
    points = np.concatenate([middle[None], points_near(middle)])
    own = posterior.as_loops.slopes(points)
    limits(degrees=(5, 7))
    errors = []
    draws = posterior.space.constrain(points)
    for nodes in nodes_that_stay(posterior, middle):
        near = nodes.density
        found = near.slopes(points)
        assert_allclose(found.values, near.log_density(points), rtol=1e-10)
        assert_allclose(nodes.loglik(points), near.loglik(draws), rtol=1e-10)
        away = found.values - own.values
        of_gradients = np.abs(found.gradients - own.gradients).max() / np.abs(own.gradients).max()
        errors.append([abs(away[0]), away[1:].std(), of_gradients])
    assert len(errors) == 2
    assert errors[1][0] < 0.2 * errors[0][0]
    assert max(errors[1]) < 0.2


@pytest.mark.parametrize("kind", ["intercepts", pytest.param("two", marks=pytest.mark.slow)])
def test_gradients_are_those_of_the_values(kind):
    posterior, _ = surrogate(kind)
    middle = posterior.loglikelihood.observations.at
    near = next(nodes_that_stay(posterior, middle)).density
    [point] = points_near(middle, 1)
    step = 1e-5 * np.eye(len(point))
    found = near.slopes(point[None]).gradients[0]
    differences = near.log_density(point + step) - near.log_density(point - step)
    assert_allclose(differences / 2e-5, found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_quadratic", [False, True])
def test_trajectories_follow_them_beside_a_quadratic_too(has_quadratic, limits):
    posterior, _ = surrogate("intercepts")
    own, middle = posterior.loglikelihood.observations, posterior.loglikelihood.observations.at
    if has_quadratic:
        mean = pt.stack([own.parameters["mean"]])
        quadratic = Quadratic(
            names=("mean",), center=np.zeros(1), slope=np.full(1, 50.0), curvature=-np.eye(1),
            interface=mean,
        )  # fmt: skip
        posterior = replace(posterior, quadratic=quadratic)
    limits(nearby=0.2)
    found = starts._nearby(posterior, SimpleNamespace(location=middle), points_near(middle))
    assert found.slopes != posterior.slopes


def test_there_are_hardly_more_of_them_than_of_those_that_follow(limits):
    """Each takes as long, but for the places."""
    posterior, _ = surrogate("intercepts")
    middle = posterior.loglikelihood.observations.at
    limits(degrees=(5, 7, 9, 11, 99))
    numbers = [nodes.places.shape[1] for nodes in nodes_that_stay(posterior, middle)]
    n_nodes = posterior.loglikelihood.observations.n_nodes
    assert numbers == [n for n in (3, 4, 5, 6) if n <= 1.3 * n_nodes]


def test_discrete_variables_have_no_nodes():
    posterior, _ = surrogate("discrete")
    middle = posterior.space.start
    assert not list(nodes_that_stay(posterior, middle))


@pytest.mark.usefixtures("not_independent")
def test_chains_along_their_gradients_are_draws_of_the_same_posterior(limits, caplog):
    _, coreset = surrogate("intercepts")
    means = []
    for degrees in ((5,), ()):
        limits(degrees=degrees, nearby=3.0)
        with caplog.at_level(logging.INFO, "pymc_coresets"):
            idata = coreset.sample(var_names=["mean", "sd"], random_seed=1, progressbar=False)
        assert ("Trajectories follow" in caplog.text) == bool(degrees)
        caplog.clear()
        means.append(idata["posterior"].to_dataset().mean(("chain", "draw")))
    sds = idata["posterior"].to_dataset().std(("chain", "draw"))
    for name in ("mean", "sd"):  # of 1,000 effective draws each, at four errors
        assert abs(means[0][name] - means[1][name]) < 4 * sds[name] * (2 / 1_000) ** 0.5


# -- By what the number of nodes of units is judged, whatever their log-likelihoods are. -----------

N_DIMS, N_JUDGED, ENOUGH = 2, 500, 1e-3
AROUND = heavy_tailed(np.zeros(1), np.eye(1))
#: Of 50 draws, with mean 0 and standard deviation 1.
NOISE = np.tile([-1.0, 1.0], 25)


class Units:
    """Which units of a group are left."""

    def __init__(self, which):
        self.which = which

    def take(self, some):
        return Units(self.which[some])


def sample_of(errors, several=()):
    """Return a sample of units whose sums have an error of some size by each rule."""

    def sums(rule, around, group):
        used.append((rule, len(group.weights)))
        return errors.get(rule, 0.0) * NOISE

    used = []
    factor = SimpleNamespace(n_dims=N_DIMS, names=("a", "b"))
    numbers = SimpleNamespace(number=np.ones(N_JUDGED, dtype=int))
    single = SimpleNamespace(
        units=SimpleNamespace(factor=factor),
        point=lambda x: {},
        modes=SimpleNamespace(every=lambda point, rows: numbers),
        sums=sums,
        sample=RowSample(rows=Units(np.arange(N_JUDGED)), weights=np.ones(N_JUDGED)),
    )
    return _Sample(single, {}, has_all=False, several=several), used


@pytest.mark.parametrize("doubt", [0.0, 0.009, 0.011, 0.1])
def test_fewer_nodes_judge_where_they_are_as_good(doubt):
    """In a part of the units: if their variance is a tenth of what is acceptable."""
    most, [fewer] = rule_to_judge_by(N_DIMS), rules_to_judge_first_by(N_DIMS)
    sample, used = sample_of({fewer: doubt})
    number, sums, stated = sample._judge(AROUND, sample.single.sample, ENOUGH)
    is_alike = doubt**2 <= ENOUGH / 10
    assert number == 1
    assert stated == (pytest.approx(doubt) if is_alike else 0.0)
    np.testing.assert_allclose(sums, doubt * NOISE if is_alike else 0.0)
    assert used == [
        (most, 167),
        (fewer, 167),
        (fewer if is_alike else most, N_JUDGED),
    ]


def test_doubts_add_to_the_error(monkeypatch):
    own = Rule(5)
    monkeypatch.setattr(_Sample, "_options", lambda *_: [_Nodes(own)])
    [fewer] = rules_to_judge_first_by(N_DIMS)
    # Both are off by 0.002 in the same direction: their difference is none.
    sample, _ = sample_of({own: 0.002, fewer: 0.002})
    found = sample.sufficient(_Nodes(own), AROUND, ENOUGH)
    assert found.error == pytest.approx(0.002**2)


def near(x):
    return Normal(np.full(1, x), AROUND.factor)


@pytest.mark.parametrize(
    ("most_modes", "several_at", "lacks"),
    [(1, [], False), (2, [], True), (2, [0.29], False), (2, [-0.29], False), (2, [-0.31], True)],
)
def test_units_of_several_modes_are_judged_by_near_the_middle(most_modes, several_at, lacks):
    several = [_Several(None, np.full(1, x)) for x in several_at]
    sample, _ = sample_of({}, several)
    assert sample.lacks(np.array([1, most_modes, 1]), near(0.0)) == lacks


def test_a_part_of_the_units_stands_for_all():
    weights = np.random.default_rng(1).uniform(1, 5, N_JUDGED)
    part = RowSample(rows=Units(np.arange(N_JUDGED)), weights=weights).part(200)
    assert len(part.weights) == len(part.rows.which) == 167
    assert part.weights.sum() == pytest.approx(weights.sum())
    np.testing.assert_allclose(np.ptp(part.weights / weights[part.rows.which]), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("local", "options"),
    [((), "integrate=False"), (("z", "b"), "integrate=False, allow_local=True")],
)
def test_variables_of_each_row_are_kept_by_two_options(local, options):
    factor, rows = SimpleNamespace(names=("a", "b")), SimpleNamespace(local=local)
    assert UnitModel(rows, factor, None).options_to_keep == options
