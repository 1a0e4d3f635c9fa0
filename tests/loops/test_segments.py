"""Sums over consecutive entries, in the loop that computes these."""

import pickle
import zlib

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph import ancestors

from pymc_coresets.loops.fused_loops import Kernel
from pymc_coresets.loops.segments import SumsOfSegments
from pymc_coresets.reading.units.ragged import LONG, Collect, collect, spread

pytestmark = pytest.mark.compiled
SIZES = pt.lvector("sizes")
A, B, C = (pt.matrix(name) for name in "abc")  # (nodes, units)
X, SEEN, SCALE = pt.vector("x"), pt.vector("seen", dtype="bool"), pt.scalar("scale")
INPUTS = [SIZES, A, B, C, X, SEEN, SCALE]


def _row_values(a, b, c):
    at_rows = [spread(v, SIZES, axis=1) for v in (a, b, c)]
    return pt.switch(SEEN, at_rows[0] + at_rows[1] * pt.exp(at_rows[2] * X), -at_rows[0]) * SCALE


def _kernel(*rows, n_unit_rows=LONG):
    sums = [collect(each, SIZES, axis=1, n_unit_rows=n_unit_rows) for each in rows]
    return Kernel([], INPUTS, sums, {})


def _has_loop(kernel):
    _, outputs, *_ = pickle.loads(zlib.decompress(kernel.graph))
    nodes = [v.owner for v in ancestors(outputs) if v.owner is not None]
    return any(isinstance(node.op, SumsOfSegments) for node in nodes)


def _given(sizes, n_nodes=2, seed=1):
    rng, n_rows = np.random.default_rng(seed), sum(sizes)
    a, b, c = rng.normal(size=(3, n_nodes, len(sizes)))
    x, seen = rng.normal(size=n_rows), rng.random(n_rows) < 0.5
    return [np.array(sizes, dtype=np.int64), a, b, c, x, seen, np.array(1.7)]


@pytest.fixture(scope="module")
def kernel():
    return _kernel(_row_values(A, B, C), _row_values(B, C, A))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 3), st.integers(0, 9))
def test_sums_are_those_of_rows(kernel, sizes, n_nodes, seed):
    values = _given(sizes, n_nodes, seed)
    _, a, b, c, x, seen, scale = values
    units = np.repeat(np.arange(len(sizes)), sizes)

    def expected(a, b, c):
        rows = np.where(seen, a[:, units] + b[:, units] * np.exp(c[:, units] * x), -a[:, units])
        return [np.bincount(units, row, minlength=len(sizes)) for row in scale * rows]

    whole = expected(a, b, c), expected(b, c, a)
    for found, exact in zip(kernel.program(*values), whole, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


def test_values_that_are_not_finite_stay_in_their_segment(kernel):
    values = _given([3, 2, 20])
    values[1][0, 1] = np.nan
    one, other = kernel.program(*values)
    assert not np.isfinite([one[0, 1], other[0, 1]]).any()
    rest = np.ones_like(one, dtype=bool)
    rest[0, 1] = False
    assert np.isfinite(one[rest]).all()
    assert np.isfinite(other[rest]).all()


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        (_row_values(A, B, C), {}, True),
        (_row_values(A, B, C), {"n_unit_rows": LONG - 1}, False),
        (_row_values(A, B, A), {}, False),  # two arrays are looked up in less time
    ],
)
def test_a_loop_over_segments_is_used_where_it_is_faster(rows, options, expected):
    assert _has_loop(_kernel(rows, **options)) == expected


def test_rows_that_have_another_use_are_stored():
    rows = _row_values(A, B, C)
    sums = [collect(rows, SIZES, axis=1, n_unit_rows=LONG), rows.max(axis=1)]
    kernel = Kernel([], INPUTS, sums, {})
    assert not _has_loop(kernel)
    values = _given([17, 3])
    total, most = kernel.program(*values)
    _, a, b, c, x, seen, scale = values
    units = np.repeat([0, 1], [17, 3])
    each = scale * np.where(seen, a[:, units] + b[:, units] * np.exp(c[:, units] * x), -a[:, units])
    np.testing.assert_allclose(total, [np.bincount(units, row) for row in each])
    np.testing.assert_allclose(most, each.max(axis=1))


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_what_all_segments_add_up_to_is_added_up_at_once(axis):
    graph = collect(A * X, SIZES, axis=1)
    kernel = Kernel([], [SIZES, A, X], [graph.sum(axis=axis)], {})
    _, outputs, *_ = pickle.loads(zlib.decompress(kernel.graph))
    nodes = [v.owner for v in ancestors(outputs) if v.owner is not None]
    assert any(isinstance(node.op, Collect) for node in nodes) == (axis == 0)
    rng, sizes = np.random.default_rng(1), np.array([2, 0, 3])
    a, x = rng.normal(size=(4, 5)), rng.normal(size=5)
    [found] = kernel.program(sizes, a, x)
    of_segments = np.stack([(a * x)[:, :2].sum(axis=1), np.zeros(4), (a * x)[:, 2:].sum(axis=1)])
    np.testing.assert_allclose(found, of_segments.T.sum(axis=axis))


@pytest.mark.parametrize("number", [1, 4, 5], ids=["units", "rows", "truth values of rows"])
def test_arrays_of_other_lengths_are_refused(kernel, number):
    values = _given([3, 2, 20])
    values[number] = values[number][..., :-1]
    with pytest.raises(ValueError, match="fit"):
        kernel.program(*values)


def test_nodes_of_other_numbers_are_refused(kernel):
    values = _given([3, 2, 20])
    values[2] = values[2][:1]
    with pytest.raises(ValueError, match="fit"):
        kernel.program(*values)
