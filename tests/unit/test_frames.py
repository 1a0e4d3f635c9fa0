"""Proposals for the variables of units, and how many of them a chain needs."""

import numpy as np
import pytest
from scipy.stats import norm, t

from pymc_coresets.sampling.units.chains import (
    LOG_PEAK,
    LocalChains,
    needed_lengths,
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


@pytest.mark.parametrize("name", WEIGHTS)
def test_chains_are_as_long_as_their_distance_says(name):
    weights = WEIGHTS[name]
    [needed] = needed_lengths(np.log(weights)[:, None]).astype(int)
    assert distance(weights, needed) < 2.2e-3  # weights of a class differ by an eighth
    assert needed == 1 or distance(weights, int(0.8 * needed)) > 1.5e-3


def test_mass_that_is_rarely_proposed_makes_chains_long():
    """One of 4,000 proposals has a twentieth of the mass: a weight of 200."""
    logs = np.zeros((4_000, 2))
    logs[17, 1] = np.log(4_000 * 0.05 / 0.95)
    needed = needed_lengths(logs)
    assert needed[0] == 1
    assert needed[1] == pytest.approx(np.log(0.05 / 2e-3) * 200, rel=0.02)


def test_of_several_rounds_that_one_counts_which_met_rare_mass():
    chains, units = LocalChains(1, 1_000, 1), np.arange(1)
    logs = np.zeros((1_000, 4, 1))
    logs[3, 2] = np.log(4_000 * 0.05)
    chains.judge(units, logs)
    needed = chains.left[0] + 4
    chains.judge(units, np.zeros((1_000, 32, 1)))
    assert needed > 500
    assert chains.left[0] == needed - 36


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
