"""What one evaluation of all rows returns, and that it does not depend on how rows are read."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.closed_forms import InMemoryLogLikelihoods
from pymc_coresets import InvalidDataError
from pymc_coresets.rows import memory
from pymc_coresets.rows.keyed import FirstRows, numbers_of
from pymc_coresets.rows.memory import InMemoryRows, collapse_rows, may_collapse
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.rows.proportional import Priorities, hit_by
from pymc_coresets.rows.values import Rows
from tests.refusals import refused

N, S = 400, 30
RNG = np.random.default_rng(1)
VALUES = RNG.normal(size=(N, S)) * RNG.gamma(0.5, size=(N, 1)) + 1e3
WEIGHTS = RNG.integers(0, 4, N).astype(float)
POSITIONS = np.sort(RNG.choice(10 * N, N, replace=False))
SOURCE = InMemoryRows([VALUES], WEIGHTS, POSITIONS)
NORMS = VALUES.std(axis=1)


def look_in_chunks(sizes, *, keeps=False, **options):
    wanted = replace(Priorities.of_all(n_rows=N, **options), keeps_potentials=keeps)
    ends = np.cumsum([*sizes, N])
    parts = [
        PassSums.of(block.arrays[0].T.copy(), block, wanted)
        for start, end in zip(np.r_[0, ends], ends, strict=False)
        if len(block := SOURCE.take(slice(start, min(end, N)))) or not start
    ]
    return PassSums.joined(parts, wanted)


@given(sizes=st.lists(st.integers(1, 150), max_size=8), n_candidates=st.integers(1, 2 * N))
def test_the_same_rows_and_sums_come_from_all_chunks(sizes, n_candidates):
    options = {"n_candidates": n_candidates, "scale": float(WEIGHTS @ NORMS), "key": 7}
    whole, chunked = look_in_chunks([], **options), look_in_chunks(sizes, **options)
    np.testing.assert_array_equal(whole.candidates.positions, chunked.candidates.positions)
    np.testing.assert_array_equal(whole.candidates.arrays[0], chunked.candidates.arrays[0])
    np.testing.assert_allclose(whole.total, chunked.total, rtol=1e-9, atol=1e-9)
    assert whole.norm_total == pytest.approx(chunked.norm_total)


@pytest.mark.parametrize("n_candidates", [50, 2 * N])
@pytest.mark.parametrize("sizes", [[], [150, 1, 90]])
def test_kept_potentials_are_those_of_the_candidates(sizes, n_candidates):
    too_many = 0.2 * float(WEIGHTS @ NORMS)  # of which some are dropped in the end
    options = {"n_candidates": n_candidates, "scale": too_many, "key": 7}
    assert look_in_chunks(sizes, **options).loglik is None
    sums = look_in_chunks(sizes, keeps=True, **options)
    expected = VALUES[SOURCE.all.where(sums.candidates.positions)]
    np.testing.assert_allclose(sums.loglik, expected, rtol=1e-14)
    assert sums.loglik.flags.f_contiguous


def test_totals_are_centred_weighted_sums():
    sums = look_in_chunks([100])
    centred = VALUES - VALUES.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(sums.total, WEIGHTS @ centred, rtol=1e-9, atol=1e-9)
    assert len(sums.candidates) == 0
    with_norms = look_in_chunks([100], n_candidates=N)
    assert with_norms.norm_total == pytest.approx(WEIGHTS @ NORMS)


def test_all_rows_that_vary_are_candidates_where_they_fit():
    sums = look_in_chunks([], n_candidates=N)
    np.testing.assert_array_equal(sums.candidates.positions, POSITIONS[WEIGHTS > 0])
    constant = InMemoryLogLikelihoods(InMemoryRows([np.arange(9.0)]), 1, lambda draws, rows: (
        np.outer(rows.arrays[0] > 4, draws)
    ))  # fmt: skip
    found = constant.sums(np.arange(5.0), n_candidates=9).candidates
    np.testing.assert_array_equal(found.positions, np.arange(5, 9))


def test_candidates_are_kept_with_the_probabilities_of_the_mixture():
    """Shares over 4,000 keys, within five standard errors, where no more than K are kept."""
    n_keys, n_candidates, scale = 4_000, 20, float(WEIGHTS @ NORMS)
    rows = SOURCE.take(slice(0, 40))
    kept = np.zeros(40)
    for key in range(n_keys):
        wanted = Priorities.of_all(n_candidates, n_rows=N, scale=scale, key=key)
        kept += np.isfinite(wanted.keys(rows, NORMS[:40])) / n_keys
    scores = rows.case_weights * NORMS[:40]
    chances = np.minimum(1, n_candidates * (0.5 * scores / scale + 0.5 / N))
    expected = np.where(rows.case_weights > 0, chances, 0)
    errors = np.sqrt(expected * (1 - expected) / n_keys)
    assert (np.abs(kept - expected) <= 5 * errors + 1e-12).all()


def test_no_more_candidates_than_asked_for():
    sizes = [
        len(look_in_chunks([], n_candidates=50, scale=float(WEIGHTS @ NORMS), key=key).candidates)
        for key in range(50)
    ]
    assert max(sizes) == 50
    assert np.mean(sizes) > 35


def test_of_too_many_candidates_those_of_the_smallest_keys_remain():
    options = {"n_candidates": 50, "scale": 0.2 * float(WEIGHTS @ NORMS), "key": 3}
    keys = Priorities.of_all(n_rows=N, **options).keys(SOURCE.all, NORMS)
    assert np.isfinite(keys).sum() > 100
    smallest = np.sort(np.argsort(keys)[:50])
    found = look_in_chunks([70], **options).candidates.positions
    np.testing.assert_array_equal(found, POSITIONS[smallest])


def test_a_potential_that_is_not_finite_loses_its_draw_alone():
    values = VALUES[:5].T.copy()
    values[3, 2] = -np.inf
    part = PassSums.of(values, Rows(np.arange(5), np.ones(5)), Priorities.of_all(5, n_rows=5))
    assert np.flatnonzero(~np.isfinite(part.total)).tolist() == [3]


def test_rounding_errors_are_no_variation():
    values = np.full((S, 3), 1e6) + 1e-10 * RNG.normal(size=(S, 3))
    part = PassSums.of(values, Rows(np.arange(3), np.ones(3)), Priorities.of_all(3, n_rows=3))
    assert part.norm_total == 0
    assert len(part.candidates) == 0


@given(start=st.integers(0, 10**9), length=st.integers(1, 50), key=st.integers(0, 2**63 - 1))
def test_random_numbers_belong_to_positions(start, length, key):
    positions = np.arange(start, start + length)
    numbers = numbers_of(positions, key)
    np.testing.assert_array_equal(numbers[length // 2 :], numbers_of(positions[length // 2 :], key))
    assert ((numbers >= 0) & (numbers < 1)).all()


@given(
    gaps=st.lists(st.integers(1, 3) | st.sampled_from([8_192, 8_193, 2**20, 10**15]), max_size=9),
    key=st.integers(0, 2**63 - 1),
)
def test_positions_far_apart_have_the_same_numbers(gaps, key):
    positions = 2**20 - 2 + np.cumsum([0, *gaps])
    alone = [numbers_of(positions[i : i + 1], key) for i in range(len(positions))]
    np.testing.assert_array_equal(numbers_of(positions, key), np.concatenate(alone))


def test_keys_give_different_numbers():
    assert not np.array_equal(numbers_of(np.arange(9), 1), numbers_of(np.arange(9), 2))


def test_rows_are_found_by_position():
    rows = SOURCE.at(POSITIONS[[3, 9]])
    np.testing.assert_array_equal(rows.arrays[0], VALUES[[3, 9]])
    missing = int(np.setdiff1d(np.arange(POSITIONS[-1]), POSITIONS)[0])
    with refused(InvalidDataError, f"position {missing}", topic="rows-and-files"):
        SOURCE.at(np.array([missing]))
    with refused(InvalidDataError, "position", topic="rows-and-files"):
        SOURCE.at(POSITIONS[-1:] + 1)


@given(
    binary=arrays(np.bool_, (12, 2)),
    counts=arrays(np.int64, 12, elements=st.integers(0, 2)),
    reals=arrays(np.float64, 12, elements=st.sampled_from([0.0, -0.0, 1.5])),
)
def test_collapse_agrees_with_a_plain_count(binary, counts, reals):
    kept, weights = collapse_rows([binary, counts, reals], 12)
    rows = [(*b, c, r) for b, c, r in zip(binary, counts, reals, strict=True)]
    assert [rows[i] for i in kept] == list(dict.fromkeys(rows))
    assert [rows.count(rows[i]) for i in kept] == weights.tolist()


def test_rows_are_sorted_only_where_two_kinds_have_the_same_hash(fails):
    fails(memory, "_sorted_apart")
    kept, weights = collapse_rows([np.array([2.0, 1.0, 2.0, 3.0, 1.0]), np.arange(5) % 2], 5)
    np.testing.assert_array_equal(kept, [0, 1, 3, 4])
    np.testing.assert_array_equal(weights, [2, 1, 1, 1])


def test_rows_without_any_data_are_all_equal():
    kept, weights = collapse_rows([], 7)
    assert (kept.tolist(), weights.tolist()) == ([0], [7.0])


def test_rows_of_the_same_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(memory, "_hashes", lambda columns, n: np.zeros(n, np.uint64))
    kept, weights = collapse_rows([np.array([2.0, 1.0, 2.0, 3.0])], 4)
    assert (kept.tolist(), weights.tolist()) == ([0, 1, 3], [2.0, 1.0, 1.0])


@pytest.mark.parametrize(("n_kinds", "pays"), [(1_000, True), (10**9, False)])
@pytest.mark.parametrize("n_rows", [5_000, 50_000])
def test_a_sample_says_whether_merging_pays(n_rows, n_kinds, pays):
    column = np.random.default_rng(1).integers(0, n_kinds, n_rows)
    assert may_collapse([column, np.ones((n_rows, 2))], n_rows) is pays


def test_a_point_between_two_shares_is_in_the_later_one():
    """Shares are half-open, so that rows without mass are never hit, also not by 0."""
    masses, points = np.array([0.0, 1.0, 0.0, 2.0, 0.0]), np.array([0.0, 0.5, 1.0, 2.0, 3.0])
    which, counts = hit_by(masses, points)
    np.testing.assert_array_equal(which, [1, 3])
    np.testing.assert_array_equal(counts, [2, 3])


def test_few_rows_that_are_first_have_equal_weights_and_many_those_of_their_cases():
    """They are first in proportion to their case weights, unless hardly any are left out."""
    case_weights = np.array([1.0, 2.0, 5.0, 1.0])
    for scale, expected in ((1e-9, np.ones(3)), (100.0, case_weights[:3])):
        rows, times = Rows(np.arange(4), case_weights), scale * np.arange(1.0, 5.0)
        found = FirstRows(rows, times, np.inf, key=1).subsample(3, total=60.0)
        np.testing.assert_array_equal(found.rows.positions, [0, 1, 2])
        np.testing.assert_allclose(found.weights, 60 * expected / expected.sum(), rtol=1e-7)
