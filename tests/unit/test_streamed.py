"""Rows in chunks are the same rows as in memory, however the chunks are cut."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_coresets import InvalidDataError, RowSource, open_rows
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.sources.readers import Chunk, Piece, chunks_of
from pymc_coresets.rows.streamed import StreamedRows
from tests.refusals import refused

N = 700
X = np.random.default_rng(1).normal(size=(N, 2))
CUTS = {"one": [N], "empty ones": [0, 1, 7, 0, 492, 200, 0], "single rows": [1] * N}
WEIGHTS = {
    "none": None,
    "counts": np.random.default_rng(2).poisson(1.0, size=N).astype(float),
    "real": np.random.default_rng(3).random(N),
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
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("distinct", [True, False])
def test_samples_are_those_of_rows_in_memory(cut, weights, distinct):
    found = streamed(cut, WEIGHTS[weights]).subsample(90, key=5, distinct=distinct)
    expected = InMemoryRows([X], WEIGHTS[weights]).subsample(90, key=5, distinct=distinct)
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
    data = {"x": X} if WEIGHTS[weights] is None else {"x": X, "n": WEIGHTS[weights]}
    parts = [dict(zip(data, some, strict=True)) for some in zip(
        *(np.array_split(column, n_chunks) for column in data.values()), strict=True
    )]  # fmt: skip
    runs_of(-(-N // n_chunks))
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
    weights = np.where(np.arange(N) < N // 10, 1.0, 1e-9)
    parts = [{"x": x, "n": n} for x, n in zip(
        np.array_split(X, 10), np.array_split(weights, 10), strict=True
    )]  # fmt: skip
    runs_of(N // 10)
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
    assert len(list(StreamedRows(in_chunks({"x": X}, [N]), {"x": X.dtype}, first).blocks(100))) == 7
    with refused(InvalidDataError, "rows 0 to 699", "'x'", topic="rows-and-files"):
        list(StreamedRows(in_chunks({"x": X + 1}, [N]), {"x": X.dtype}, first).blocks(100))


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_case_weights_that_are_none_are_refused(weight):
    weights = np.ones(N)
    weights[8] = weight
    with refused(InvalidDataError, "row 8", "column 'n'", topic="rows-and-files"):
        streamed("empty ones", weights).subsample(5, key=1)


def test_a_sum_of_0_is_refused():
    with refused(InvalidDataError, "case weights", "0.0", topic="rows-and-files"):
        streamed("one", np.zeros(N)).subsample(5, key=1)
