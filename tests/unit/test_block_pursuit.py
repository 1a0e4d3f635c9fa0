"""Block pursuit on a normal hierarchy, whose posteriors are known for any weights."""

from contextlib import nullcontext
from functools import cached_property
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import (
    InvalidDataError,
    InvalidOptionError,
    SamplingError,
    UnsupportedModelError,
)
from pymc_coresets.methods.block_pursuit import BlockPursuit, rows_to_keep
from pymc_coresets.methods.group_rows import _together, choose_by_group
from pymc_coresets.rows.values import GroupedRows, Rows
from pymc_coresets.sampling.levels.nested_laplace import find_nested_laplace
from pymc_coresets.solving.solution import Status

G, P = 60, 2
SHARED = P + 1
SIZES = np.r_[1, 2, 700, np.full(G - 3, 25)]


class Hierarchy:
    """Lines with an effect of each group, around a mean that is unknown; all is normal."""

    n_shared, n_levels, n_local = SHARED, G, 1

    def __init__(self, seed=3):
        rng = np.random.default_rng(seed)
        group = rng.permutation(np.repeat(np.arange(G), SIZES))
        x = rng.normal(size=(len(group), P))
        effects = rng.normal(0.5, 0.7, G)
        y = x @ np.array([1.0, -1.0]) + effects[group] + rng.normal(size=len(group))
        rows = Rows(np.arange(len(group)), np.ones(len(group)), (x, y, group))
        self.data = GroupedRows.sorted(rows, rows.base_weights, group, G)
        self.n_failures = 0

    def loglik(self, draws, rows):
        x, y, group = rows.arrays
        shared, local = draws
        lines = x @ shared[:, 1:].T + local[:, group].T
        return -np.square(y[:, None] - lines) / 2

    def density(self, data):
        def evaluate(shared, local):
            values = data.weights[:, None] * self.loglik((shared, local[..., 0]), data.rows)
            by_group = np.zeros((len(shared), G))
            np.add.at(by_group.T, data.groups, values)
            prior = np.square(local[..., 0] - shared[:, :1])
            return -np.square(shared).sum(axis=1) / 50, by_group - prior

        return evaluate

    @cached_property
    def approximation(self):
        return find_nested_laplace(self.density(self.data), np.zeros(SHARED), G, 1)

    def draw(self, n_draws, *, rng):
        found = self.approximation.draw(n_draws, rng=rng)
        draws = (found.shared, found.local[..., 0])
        return SimpleNamespace(draws=draws, shared=found.whitened, noise=found.noise)

    def ratios(self, rows, weights, n_draws, *, rng):
        if self.n_failures:
            self.n_failures -= 1
            raise SamplingError("no mode")
        density = self.density(GroupedRows.sorted(rows, weights, rows.arrays[2], G))
        own = find_nested_laplace(density, np.zeros(SHARED), G, 1, self.approximation)
        found = own.corrected(density, n_draws, rng=rng)
        draws = (found.shared, found.local[..., 0])
        log_ratios = self.data.weights @ self.loglik(draws, self.data.rows)
        log_ratios = log_ratios - weights @ self.loglik(draws, rows)
        proposal = Proposal(draws=draws, log_ratios=log_ratios - log_ratios.mean())
        return SimpleNamespace(proposal=proposal, shared=found.whitened)

    def posterior(self, rows, weights):
        """Exact mean and precision of (mean, slopes, effects) given weighted rows."""
        x, y, group = rows.arrays
        design = np.zeros((len(y), SHARED + G))
        design[:, 1:SHARED] = x
        design[np.arange(len(y)), SHARED + group] = 1
        precision = (design.T * weights) @ design
        precision[:SHARED, :SHARED] += np.eye(SHARED) / 25
        contrasts = np.eye(SHARED + G)[SHARED:] - np.eye(SHARED + G)[0]
        precision += 2 * contrasts.T @ contrasts
        return np.linalg.solve(precision, design.T @ (weights * y)), precision


class Quiet:
    """Reports nothing."""

    def __init__(self):
        self.steps = []

    def part(self, name, total=None):
        return nullcontext(self.steps.append)


def run(hierarchy, seed=1, deadline=np.inf, **options):
    job = SimpleNamespace(
        by_groups=lambda: hierarchy,
        rng=np.random.default_rng(seed),
        report=Quiet(),
        deadline=deadline,
    )
    return BlockPursuit(**options).run(job)


@pytest.fixture(scope="module")
def hierarchy():
    return Hierarchy()


@pytest.fixture(scope="module")
def solution(hierarchy):
    return run(hierarchy)


def divergence(hierarchy, solution):
    """Symmetrised KL divergence from the posterior of all rows, in nats."""
    full, full_precision = hierarchy.posterior(hierarchy.data.rows, hierarchy.data.weights)
    mean, precision = hierarchy.posterior(solution.rows, solution.weights)
    spread = np.trace(np.linalg.solve(precision, full_precision)) - 2 * len(mean)
    spread += np.trace(np.linalg.solve(full_precision, precision))
    gap = mean - full
    return (spread + gap @ (precision + full_precision) @ gap) / 2


def test_the_posterior_is_close_to_that_of_all_rows(hierarchy, solution):
    true = divergence(hierarchy, solution)
    assert true < 0.1
    assert solution.status is Status.TOLERANCE_REACHED
    # What it says of itself is a variance over 400 draws.
    assert solution.objective < 0.1
    assert true < 4 * solution.objective + 0.01


def test_every_group_is_matched_by_few_rows(hierarchy, solution):
    rows = np.bincount(solution.rows.arrays[2], minlength=G)
    assert len(solution.rows) < 10 * G
    assert rows.max() < 20
    positions = solution.rows.positions
    assert (np.diff(positions) > 0).all()
    assert (solution.weights > 0).all()
    full, full_precision = hierarchy.posterior(hierarchy.data.rows, hierarchy.data.weights)
    mean, precision = hierarchy.posterior(solution.rows, solution.weights)
    deviations = np.sqrt(np.diag(np.linalg.inv(full_precision)))
    assert np.abs((mean - full) / deviations).max() < 0.1
    ratios = np.sqrt(np.diag(np.linalg.inv(precision))) / deviations
    assert np.abs(ratios - 1).max() < 0.1


def test_groups_of_one_or_two_rows_are_kept(solution):
    for group, size in ((0, 1), (1, 2)):
        own = solution.weights[solution.rows.arrays[2] == group]
        np.testing.assert_array_equal(own, np.ones(size))


def test_it_is_reproducible(hierarchy, solution):
    again = run(hierarchy)
    np.testing.assert_array_equal(again.rows.positions, solution.rows.positions)
    np.testing.assert_array_equal(again.weights, solution.weights)
    other = run(hierarchy, seed=2)
    assert not np.array_equal(other.rows.positions, solution.rows.positions)


def test_merged_rows_count_as_often_as_they_stand_for(hierarchy):
    rows = hierarchy.data.rows
    merged = Hierarchy()
    heavy = Rows(rows.positions, np.full(len(rows), 3.0), rows.arrays)
    merged.data = GroupedRows(heavy, heavy.base_weights, hierarchy.data.groups, G)
    found = run(merged)
    assert divergence(merged, found) < 0.1
    kept = found.weights[found.rows.arrays[2] == 1]
    np.testing.assert_array_equal(kept, [3.0, 3.0])


def test_the_history_tells_costs(solution):
    history = solution.history
    assert history.size[-1] == len(solution.rows)
    assert history.heldout_objective[-1] == solution.objective
    assert history.objective[-1] < 0.1
    # All rows at 400 draws twice; the large group's candidates twice, as they are chosen from all.
    assert 1.9 < history.n_passes[-1] < 2.4
    assert history.kl[-1] < 0.1


def test_the_best_round_is_kept_and_all_of_them_are_used(hierarchy):
    found = run(hierarchy, tolerance=1e-30, max_rounds=2)
    assert found.status is Status.ITERATION_LIMIT
    assert len(found.history.size) == 2
    assert found.objective == found.history.heldout_objective.min()


def test_a_deadline_ends_the_rounds(hierarchy):
    found = run(hierarchy, tolerance=1e-30, deadline=0.0)
    assert found.status is Status.OUT_OF_TIME
    assert len(found.history.size) == 1


def test_a_round_whose_posterior_defeats_the_sampler_is_followed_by_another():
    hierarchy = Hierarchy()
    hierarchy.n_failures = 1
    found = run(hierarchy)
    assert found.status is Status.TOLERANCE_REACHED
    assert np.isinf(found.history.heldout_objective[0])
    hierarchy.n_failures = 3
    found = run(hierarchy)
    assert found.status is Status.SAMPLING_FAILED
    assert np.isnan(found.objective)


def test_groups_that_need_almost_all_of_their_rows_are_kept_whole():
    """Two independent functions of a group's noise need all of four rows but one."""
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(5), 4)
    coefficients = rng.normal(size=(20, 3))
    rows = Rows(np.arange(20), np.ones(20), (coefficients, group))
    data = GroupedRows.sorted(rows, rows.base_weights, group, 5)
    shared = np.repeat(rng.normal(size=(200, 1)), 2, axis=0)
    noise = rng.normal(size=(200, 5, 1))
    noise = np.stack([noise, -noise], axis=1).reshape(400, 5, 1)

    def loglik(some):
        c, own = some.arrays[0].T[:, :, None], noise[:, some.arrays[1], 0].T
        return c[0] * own + c[1] * own**2 + c[2] * own * shared[:, 0]

    choice = choose_by_group(data, loglik, shared, noise, tolerance=1e-12, rng=rng)
    assert sorted(rows.positions[choice.chosen]) == list(range(20))
    assert choice.weights == pytest.approx(np.ones(20))


def test_groups_are_evaluated_together_once_each():
    sizes = np.array([3, 500, 4, 1])
    together = list(_together(np.array([2, 0, 1, 3]), sizes, 5))
    assert together == [[2], [1], [0, 3]]


def test_log_likelihoods_that_are_not_finite_are_refused(hierarchy):
    draws = hierarchy.draw(100, rng=np.random.default_rng(1))

    def loglik(rows):
        return np.full((len(rows), 100), -np.inf)

    with pytest.raises(InvalidDataError, match="at 100 of 100 draws"):
        choose_by_group(
            hierarchy.data,
            loglik,
            draws.shared,
            draws.noise,
            tolerance=0.1,
            rng=np.random.default_rng(1),
        )


@pytest.mark.parametrize("n_seen", [0, 2, 30])
def test_what_it_keeps_is_foreseen(hierarchy, solution, n_seen):
    """Of each group as many rows as a quadratic of what it depends on has numbers, or all."""
    each = 1 + 1 + n_seen + 1
    assert rows_to_keep(hierarchy, n_seen) == np.minimum(SIZES, each).sum()


def test_it_keeps_no_fewer_than_foreseen_by_half(hierarchy, solution):
    assert len(solution.rows) > rows_to_keep(hierarchy, P) / 2


def test_too_many_shared_variables_are_named():
    many = SimpleNamespace(n_shared=41, shared=("mean", "slopes"))
    with pytest.raises(UnsupportedModelError, match="41 coordinates, those of 'mean', 'slopes',"):
        run(many)


@pytest.mark.parametrize("option", [{"tolerance": 0.0}, {"draws": 99}, {"max_rounds": 0}])
def test_options_are_checked(option):
    with pytest.raises(InvalidOptionError, match=next(iter(option))):
        BlockPursuit(**option)
