"""Rows as values, samples of them, and passes over them in memory and in chunks."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.closed_forms import InMemoryLogLikelihoods
from pymc_coresets import InvalidDataError, RowSource, open_rows
from pymc_coresets.rows import memory
from pymc_coresets.rows.first_reading import FirstReading, all_finite, array_hash
from pymc_coresets.rows.keyed import FirstRows, numbers_of
from pymc_coresets.rows.memory import InMemoryRows, collapse_rows, may_collapse
from pymc_coresets.rows.passes import PassSums
from pymc_coresets.rows.proportional import Priorities, hit_by
from pymc_coresets.rows.sources.readers import Chunk, Piece, chunks_of
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows, UnitRows
from tests.refusals import refused

# -- What one evaluation of all rows returns, and that it does not depend on how rows are read. ----

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


# -- memory ----------------------------------------------------------------------------------------

CASE_WEIGHTS = np.array([1.0, 2.0, 0.0, 4.0, 0.5])
SIZE, REPEATS = 3, 20_000


@pytest.fixture(scope="module")
def samples():
    source, weights = InMemoryRows([np.arange(5)], CASE_WEIGHTS), np.zeros((REPEATS, 5))
    for key, row in enumerate(weights):
        subsample = source.subsample(SIZE, key=key)
        row[subsample.rows.positions] = subsample.weights
    return weights


def test_mean_is_the_base_weight(samples):
    """Five standard errors of the mean."""
    error = samples.std(axis=0) / np.sqrt(REPEATS)
    assert (np.abs(samples.mean(axis=0) - CASE_WEIGHTS) <= 5 * error).all()


def test_covariance_is_multinomial(samples):
    """Five standard errors of each entry, from the spread of the products."""
    total = CASE_WEIGHTS.sum()
    expected = (total * np.diag(CASE_WEIGHTS) - np.outer(CASE_WEIGHTS, CASE_WEIGHTS)) / SIZE
    centred = samples - CASE_WEIGHTS
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(axis=0) / np.sqrt(REPEATS)
    assert (np.abs(products.mean(axis=0) - expected) <= 5 * error + 1e-12).all()


def test_every_sample_has_the_total_mass(samples):
    assert samples.sum(axis=1) == pytest.approx(CASE_WEIGHTS.sum())
    assert (np.count_nonzero(samples, axis=1) <= SIZE).all()


def test_distinct_rows_follow_successive_sampling():
    """Shares of the pairs of two distinct rows, within five standard errors."""
    source = InMemoryRows([np.arange(5)], CASE_WEIGHTS)
    n, pairs = 20_000, np.zeros((5, 5))
    for key in range(n):
        subsample = source.subsample(2, key=key, distinct=True)
        first, second = subsample.rows.positions
        pairs[first, second] += 1 / n
        assert subsample.weights.sum() == pytest.approx(CASE_WEIGHTS.sum())
    p = CASE_WEIGHTS / CASE_WEIGHTS.sum()
    first_then_second = np.outer(p, p) / (1 - p)[:, None]
    expected = np.triu(first_then_second + first_then_second.T, 1)
    assert np.all(np.abs(pairs - expected) <= 5 * np.sqrt(expected * (1 - expected) / n) + 1e-12)


def test_weights_of_distinct_rows_add_up_to_those_of_all():
    """Estimates of a sum over unequal rows are right in the mean, within five standard errors."""
    rng = np.random.default_rng(5)
    base, x = rng.lognormal(sigma=1.5, size=400), rng.normal(size=400)
    source, estimates = InMemoryRows([x], base), []
    for key in range(4_000):
        subsample = source.subsample(60, key=key, distinct=True)
        estimates.append(subsample.weights @ subsample.rows.arrays[0])
    error = np.std(estimates) / np.sqrt(len(estimates))
    equal_weights = base.sum() * x.mean()
    assert abs(np.mean(estimates) - base @ x) < 5 * error < abs(equal_weights - base @ x)


def test_smaller_samples_of_distinct_rows_are_parts_of_larger_ones():
    source = InMemoryRows([np.arange(50)], np.random.default_rng(1).random(50))
    found = [set(source.subsample(n, key=3, distinct=True).rows.positions) for n in (5, 20, 50)]
    assert found[0] < found[1] < found[2] == set(range(50))


def test_no_more_distinct_rows_than_there_are():
    subsample = InMemoryRows([np.arange(5)], CASE_WEIGHTS).subsample(100, key=1, distinct=True)
    assert subsample.rows.positions.tolist() == [0, 1, 3, 4]
    assert subsample.weights.tolist() == [1.0, 2.0, 4.0, 0.5]


@pytest.mark.parametrize("bad", [[0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0], [np.inf, 1.0]])
def test_bad_case_weights_are_rejected(bad):
    with refused(InvalidDataError, "case_weights", topic="rows-and-files"):
        InMemoryRows([np.arange(2)], np.array(bad))


# -- Rows of units: taken and joined as if unit by unit. -------------------------------------------

UNITS = st.lists(st.integers(1, 4), min_size=1, max_size=9)


def units_of(sizes: list[int], first: int = 0) -> Rows:
    """Units whose rows hold ten times the unit's position, and their number in it."""
    n, counts = len(sizes), np.array(sizes)
    of_row = np.repeat(np.arange(first, first + n), counts)
    within = np.concatenate([np.arange(size) for size in sizes])
    arrays = (10 * of_row + within, np.stack([of_row, within], axis=1))
    unit_rows = UnitRows(counts, 100 * of_row + within, arrays)
    return Rows(np.arange(first, first + n), np.ones(n), (counts.astype(float),), unit_rows)


def assert_has_units(rows: Rows, sizes: list[int], units: list[int]) -> None:
    expected = [(unit, i) for unit in units for i in range(sizes[unit])]
    unit_rows = rows.unit_rows
    np.testing.assert_array_equal(rows.positions, units)
    np.testing.assert_array_equal(unit_rows.sizes, [sizes[unit] for unit in units])
    np.testing.assert_array_equal(unit_rows.positions, [100 * u + i for u, i in expected])
    np.testing.assert_array_equal(unit_rows.arrays[0], [10 * u + i for u, i in expected])
    np.testing.assert_array_equal(
        unit_rows.arrays[1].reshape(-1, 2), np.array(expected).reshape(-1, 2)
    )
    assert rows.n_unit_rows == len(expected)
    assert rows.n_numbers == len(units) + 3 * len(expected)


@given(UNITS, st.data())
def test_units_are_taken_with_their_rows(sizes, data):
    rows = units_of(sizes)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
    assert_has_units(rows.take(np.array(chosen, dtype=np.int64)), sizes, chosen)
    mask = np.isin(np.arange(len(sizes)), chosen)
    assert_has_units(rows.take(mask), sizes, chosen)
    start, stop = (data.draw(st.integers(0, len(sizes) + 1)) for _ in range(2))
    part = rows.take(slice(start, stop))
    assert_has_units(part, sizes, list(range(len(sizes)))[start:stop])
    # Taking again from what was taken.
    if len(part):
        assert_has_units(part.take(slice(len(part) - 1, None)), sizes, [start + len(part) - 1])


@given(UNITS, st.data())
def test_parts_are_joined_in_order_each_unit_once(sizes, data):
    rows, n = units_of(sizes), len(sizes)
    subsets = data.draw(
        st.lists(st.sets(st.integers(0, n - 1), min_size=1), min_size=2, max_size=4)
    )
    parts = [rows.take(np.array(sorted(some))) for some in subsets]
    assert_has_units(Rows.joined(parts), sizes, sorted(set().union(*subsets)))


@given(UNITS, st.integers(1, 5))
def test_blocks_are_views_that_join_to_the_whole(sizes, size):
    rows = units_of(sizes)
    blocks = list(rows.blocks(size))
    assert all(np.shares_memory(b.unit_rows.arrays[0], rows.unit_rows.arrays[0]) for b in blocks)
    assert_has_units(Rows.joined(blocks), sizes, list(range(len(sizes))))


# -- Rows in chunks are the same rows as in memory, however the chunks are cut. --------------------

N_IN_CHUNKS = 700
X = np.random.default_rng(1).normal(size=(N_IN_CHUNKS, 2))
CUTS = {
    "one": [N_IN_CHUNKS],
    "empty ones": [0, 1, 7, 0, 492, 200, 0],
    "single rows": [1] * N_IN_CHUNKS,
}
WEIGHTS_IN_CHUNKS = {
    "none": None,
    "counts": np.random.default_rng(2).poisson(1.0, size=N_IN_CHUNKS).astype(float),
    "real": np.random.default_rng(3).random(N_IN_CHUNKS),
}


def in_chunks(arrays, sizes, weights=None):
    """Return arrays as rows in chunks of given sizes, which are worked on as those of a file."""
    weighted = {} if weights is None else {"n": weights}
    whole = open_rows(
        arrays | weighted, columns={n: n for n in arrays}, weight="n" if weighted else None
    )
    reader = whole._reader
    reader.in_files = True
    stops = np.cumsum(sizes).tolist()
    chunks = [
        Chunk(
            start=stop - size,
            n_rows=size,
            where=f"chunk {i}",
            pieces=(Piece("", size, stop - size),),
        )
        for i, (stop, size) in enumerate(zip(stops, sizes, strict=True))
    ]
    return RowSource(reader, whole._mappings, whole._weights, chunks)


def streamed(cut, weights=None):
    return StreamedRows(in_chunks({"x": X}, CUTS[cut], weights), {"x": X.dtype})


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("size", [1, 64, 262, 2_000])
def test_blocks_do_not_depend_on_chunks(cut, size):
    found, expected = list(streamed(cut).blocks(size)), list(InMemoryRows([X]).blocks(size))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one.positions, other.positions)
        assert_array_equal(one.arrays[0], other.arrays[0])


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("weights", WEIGHTS_IN_CHUNKS)
@pytest.mark.parametrize("distinct", [True, False])
def test_samples_are_those_of_rows_in_memory(cut, weights, distinct):
    found = streamed(cut, WEIGHTS_IN_CHUNKS[weights]).subsample(90, key=5, distinct=distinct)
    expected = InMemoryRows([X], WEIGHTS_IN_CHUNKS[weights]).subsample(90, key=5, distinct=distinct)
    assert_array_equal(found.rows.positions, expected.rows.positions)
    assert_array_equal(found.rows.case_weights, expected.rows.case_weights)
    assert_array_equal(found.rows.arrays[0], X[found.rows.positions])
    assert_allclose(found.weights, expected.weights, rtol=1e-13)


@pytest.fixture
def runs_of(monkeypatch):
    """Read so many rows at once, and not thousands."""
    return lambda most: monkeypatch.setitem(chunks_of.__kwdefaults__, "most", most)


@pytest.mark.parametrize("n_chunks", [1, 13])
@pytest.mark.parametrize("weights", ["none", "counts"])
def test_samples_that_the_first_reading_keeps_cost_no_other(
    n_chunks, weights, runs_of, monkeypatch
):
    """However the rows are cut, the rows kept are those of a sample of its own."""
    data = (
        {"x": X}
        if WEIGHTS_IN_CHUNKS[weights] is None
        else {"x": X, "n": WEIGHTS_IN_CHUNKS[weights]}
    )
    parts = [dict(zip(data, some, strict=True)) for some in zip(
        *(np.array_split(column, n_chunks) for column in data.values()), strict=True
    )]  # fmt: skip
    runs_of(-(-N_IN_CHUNKS // n_chunks))
    opened = open_rows(parts, columns={"x": "x"}, weight=None if weights == "none" else "n")
    rows = StreamedRows(opened, {"x": X.dtype})
    first, initial = rows.examine(60, key=5)
    rows = replace(rows, first=first, initial_sample=initial)
    alone = StreamedRows(opened, {"x": X.dtype}, first)
    expected = {n: alone.subsample(n, key=5, distinct=True) for n in (1, 30, 60)}
    other = alone.subsample(30, key=6, distinct=True)
    with monkeypatch.context() as nothing_is_read:
        nothing_is_read.setattr(StreamedRows, "read", None)
        for n, its in expected.items():
            found = rows.subsample(n, key=5, distinct=True)
            assert_array_equal(found.rows.positions, its.rows.positions)
            assert_array_equal(found.rows.arrays[0], its.rows.arrays[0])
            assert_array_equal(found.weights, its.weights)
    assert_array_equal(
        rows.subsample(30, key=6, distinct=True).rows.positions, other.rows.positions
    )
    assert len(rows.subsample(200, key=5, distinct=True).rows) == 200  # read again


def test_a_heavy_part_is_read_again_where_too_few_of_it_were_kept(runs_of):
    """All the weight lies in one of many chunks, which kept its share of the rows only."""
    weights = np.where(np.arange(N_IN_CHUNKS) < N_IN_CHUNKS // 10, 1.0, 1e-9)
    parts = [{"x": x, "n": n} for x, n in zip(
        np.array_split(X, 10), np.array_split(weights, 10), strict=True
    )]  # fmt: skip
    runs_of(N_IN_CHUNKS // 10)
    rows = StreamedRows(open_rows(parts, columns={"x": "x"}, weight="n"), {"x": X.dtype})
    first, initial = rows.examine(60, key=5)
    assert len(rows._runs) == 10
    found = replace(rows, first=first, initial_sample=initial).subsample(60, key=5, distinct=True)
    its = InMemoryRows([X], weights).subsample(60, key=5, distinct=True)
    assert not initial.has(60)
    assert_array_equal(found.rows.positions, its.rows.positions)
    assert_allclose(found.weights, its.weights, rtol=1e-12)


def test_rows_at_positions():
    rows = streamed("empty ones").at(np.array([0, 1, 8, 699]))
    assert_array_equal(rows.arrays[0], X[[0, 1, 8, 699]])
    with refused(InvalidDataError, "position 700", topic="rows-and-files"):
        streamed("one").at(np.array([3, 700]))


@pytest.mark.parametrize("distinct", [True, False])
def test_rows_that_come_after_others_keep_their_distance(distinct):
    rows = replace(streamed("empty ones"), start=900)
    for found in (
        rows.subsample(30, key=5, distinct=distinct).rows,
        rows.at(np.array([900, 1_599])),
    ):
        assert_array_equal(found.arrays[0], X[found.positions - 900])
    assert [block.positions[0] for block in rows.blocks(300)] == [900, 1_200, 1_500]
    assert rows.place(907) == "row 7"
    assert pickle.loads(pickle.dumps(rows)).at(np.array([907])).positions == [907]
    for position in (899, 1_600):
        with refused(InvalidDataError, f"position {position}", topic="rows-and-files"):
            rows.at(np.array([position]))


def test_a_chunk_that_has_lost_rows_is_named():
    rows = in_chunks({"x": X[:650]}, CUTS["empty ones"])
    with refused(InvalidDataError, "chunk 5", "150 rows", "200", topic="rows-and-files"):
        list(StreamedRows(rows, {"x": X.dtype}).blocks(100))


def test_chunks_are_compared_with_the_first_reading():
    first = open_rows({"x": X}).check()
    assert (
        len(
            list(
                StreamedRows(in_chunks({"x": X}, [N_IN_CHUNKS]), {"x": X.dtype}, first).blocks(100)
            )
        )
        == 7
    )
    with refused(InvalidDataError, "rows 0 to 699", "'x'", topic="rows-and-files"):
        list(
            StreamedRows(in_chunks({"x": X + 1}, [N_IN_CHUNKS]), {"x": X.dtype}, first).blocks(100)
        )


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_case_weights_that_are_none_are_refused(weight):
    weights = np.ones(N_IN_CHUNKS)
    weights[8] = weight
    with refused(InvalidDataError, "row 8", "column 'n'", topic="rows-and-files"):
        streamed("empty ones", weights).subsample(5, key=1)


def test_a_sum_of_0_is_refused():
    with refused(InvalidDataError, "case weights", "0.0", topic="rows-and-files"):
        streamed("one", np.zeros(N_IN_CHUNKS)).subsample(5, key=1)


# -- Hashes of arrays, and the notes of chunks joined. ---------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?"])
@pytest.mark.parametrize("size", [1, 5, 1021, 5000])
def test_a_hash_changes_with_every_value(dtype, size):
    array = (np.arange(size) % 2).astype(dtype)
    known = array_hash(array)
    assert (array_hash(array.copy()), len(known)) == (known, 8)
    for place in {0, size // 2, size - 1}:
        changed = array.copy()
        changed[place] = 1 - array[place]
        assert array_hash(changed) != known


def test_a_hash_changes_with_the_last_bit_of_a_large_sum():
    array = np.full(100_000, 1e9)
    changed = array.copy()
    changed[7] = np.nextafter(1e9, 2e9)
    assert array_hash(changed) != array_hash(array)


def test_a_hash_changes_with_shape_and_dtype():
    arrays = [
        np.zeros(6),
        np.zeros((6, 1)),
        np.zeros((3, 2)),
        np.zeros(6, "i8"),
        np.zeros(12, "f4"),
    ]
    assert len({array_hash(array) for array in arrays}) == len(arrays)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("place", [0, 1500, 4999])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(dtype, place, value):
    array = np.ones(5000, dtype)
    assert all_finite(array)
    array[place] = value
    assert not all_finite(array)


def test_sums_that_overflow_are_of_finite_numbers():
    assert all_finite(np.full(5000, 1e308))
    assert open_rows({"x": np.full(5000, 1e308)}).check().problems == ()


def test_case_weights_whose_sum_overflows():
    rows = open_rows({"x": np.ones(3), "n": np.full(3, 1e308)}, weight="n")
    with refused(InvalidDataError, "case weights", "inf", topic="rows-and-files"):
        rows.check().require_usable()


def test_chunks_may_be_joined_in_any_order():
    """An infinite value in the first chunk, a group in each."""
    parts = [np.array([3.0, np.inf]), np.array([np.nan]), np.array([2.0, np.nan, np.inf])]
    chunks = [{"x": x, "g": np.arange(len(x)) + 5 * i} for i, x in enumerate(parts)]
    chunks[1:1] = [{"x": np.ones(2**17), "g": np.full(2**17, 4)}]
    rows = open_rows(chunks)
    assert len(rows.chunks) == 3
    notes = [rows.examine(chunk)[-1] for chunk in rows.chunks]
    notes = FirstReading.joined(notes[::-1])
    assert notes.ranges == {"g": (0, 12)}
    assert notes.n_rows == notes.total_weight == len(rows)
    found = [(p.kind, p.first, p.n_rows) for p in notes.problems]
    assert found == [
        ("infinite", "chunk 0, row 1", 2),
        ("NaN", "chunk 2, row 0", 2),
    ]
    assert [notes.problems[0].position, notes.problems[1].position] == [1, 2**17 + 2]


def test_case_weights_may_sum_to_less_than_1():
    rows = open_rows({"x": np.ones(2), "n": np.array([0.25, 0.0])}, weight="n")
    notes = rows.check()
    notes.require_usable()
    assert notes.total_weight == 0.25


def test_priorities_estimate_sums_without_bias():
    norms = np.random.default_rng(1).gamma(0.5, size=400)
    rows, shares = Rows(np.arange(400), np.ones(400)), 0.5 * norms / norms.mean() + 0.5
    estimates = []
    for key in range(400):
        rule = Priorities(n_candidates=50, scale=float(norms.mean()), key=key)
        keys = rule.keys(rows, norms)
        threshold = np.partition(keys, 50)[50]
        kept = keys < threshold
        estimates.append((norms[kept] / np.minimum(1.0, shares[kept] * threshold)).sum())
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - norms.sum()) < 4 * error
