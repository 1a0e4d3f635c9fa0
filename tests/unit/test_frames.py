"""Proposals for the variables of units, and how many of them a chain needs."""

import numpy as np
import pytest
from scipy.stats import norm, t

from pymc_coresets.sampling.units.chains import (
    LOG_PEAK,
    LocalChains,
    Weights,
    student,
    student_log_density,
)
from pymc_coresets.sampling.units.frames import Frames
from pymc_coresets.sampling.units.regressions import HELD_OUT, linear_and_quadratic

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
    found = one.proposed(100_000, np.random.default_rng(2))
    z, log_q = found.values[:, 0, :, 0], found.log_density[0, :, 0]
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
