"""Operations that are called directly, in batches, by segments, or in parts of a graph."""

import pickle
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pytensor.graph import Variable, ancestors, vectorize_graph

from pymc_coresets.compat import pytensor_api
from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import Split
from pymc_coresets.loops.compilation import compiled_loop
from pymc_coresets.loops.direct_calls import direct_call
from pymc_coresets.loops.fused_loops import Kernel, Program, loop_mode
from pymc_coresets.loops.segments import SumsOfSegments
from pymc_coresets.loops.taken_apart import is_large, parts_of
from pymc_coresets.reading.units.ragged import LONG, Collect, collect, spread

pytestmark = pytest.mark.compiled


# -- One call of NumPy computes what PyTensor's own evaluation does, to the last bit. --------------

RNG = np.random.default_rng(28)
MATRIX, OTHER, ROW = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 3)), RNG.normal(size=(1, 3))
NUMBERS, PLACES = RNG.normal(size=7), np.array([2, 0, -1, 1, 1, 0, 2])
BYTES = np.arange(21, dtype=np.int8).reshape(7, 3)
CUBE, MANY = RNG.normal(size=(3, 4, 2)), RNG.integers(-3, 3, size=900)

x, y, row, v = pt.dmatrix("x"), pt.dmatrix("y"), pt.drow("row"), pt.dvector("v")
k, cube = pt.lvector("k"), pt.dtensor3("cube")
m = pt.bmatrix("m")
a, b, c = (pt.scalar_from_tensor(pt.dscalar(n)) for n in "abc")

# name: (output, input and its value, ...)
CALLS = {
    "transposed": (x.T, (x, MATRIX)),
    "new axes": (v.dimshuffle("x", 0, "x"), (v, NUMBERS)),
    "moved and new": (cube.dimshuffle(2, "x", 0, 1), (cube, CUBE)),
    "dropped": (row.dimshuffle(1), (row, ROW)),
    "dropped in the middle": (pt.tensor3(shape=(3, 1, 2)).dimshuffle(2, 0), (None, CUBE[:, :1])),
    "reshaped": (x.reshape((3, 7)), (x, MATRIX), (None, np.array([3, 7]))),
    "filled": (pt.alloc(pt.dscalar(), 2, 3), (None, np.array(1.5)), (None, 2), (None, 3)),
    "filled with one": (pt.alloc(pt.tensor(shape=(1, 1)), 2, 3), (None, ROW[:, :1]),
                        (None, 2), (None, 3)),
    "a number": (pt.scalar_from_tensor(pt.dscalar()), (None, np.array(2.5))),
    "sliced": (x[1:5:2, ::-1], (x, MATRIX)),
    "one entry": (x[-1, 2], (x, MATRIX)),
    "set": (pt.set_subtensor(x[1:], y[1:]), (x, MATRIX), (None, OTHER[1:])),
    "increased": (pt.inc_subtensor(x[2], v[:3]), (x, MATRIX), (None, NUMBERS[:3])),
    "looked up": (x[k], (x, MATRIX), (k, PLACES)),
    "looked up in two": (x[k, k], (x, MATRIX), (k, PLACES), (k, PLACES)),
    "looked up along rows": (x[:, k], (x, MATRIX), (k, PLACES)),
    "looked up along the last of three": (cube[:, :, k], (cube, CUBE), (k, PLACES % 2)),
    "added by row": (pt.inc_subtensor(x[k], y), (x, MATRIX), (y, OTHER), (k, PLACES)),
    "added by column": (pt.inc_subtensor(x[k, k], v), (x, MATRIX), (v, NUMBERS), (k, PLACES),
                        (k, PLACES)),
    "added to all": (pt.inc_subtensor(x[k], pt.dscalar()), (x, MATRIX), (None, np.array(0.3)),
                     (k, PLACES)),
    "many added by row": (pt.inc_subtensor(x[k], y), (x, MATRIX), (y, RNG.normal(size=(900, 3))),
                          (k, MANY)),
    "many added in two": (pt.inc_subtensor(cube[k, k], y), (cube, CUBE),
                          (y, RNG.normal(size=(900, 2))), (k, MANY), (k, MANY)),
    "many added in one": (pt.inc_subtensor(x[k, 1], v), (x, MATRIX), (v, RNG.normal(size=900)),
                          (k, MANY), (None, np.array(1))),
    "a product": (pt.dot(x, y.T), (x, MATRIX), (None, OTHER.T)),
    "a sum": (x.sum(axis=0), (x, MATRIX)),
    "a sum of all": (x.sum(), (x, MATRIX)),
    "a maximum": (x.max(axis=1), (x, MATRIX)),
    "repeated like another": (pt.second(x, row), (x, MATRIX), (row, ROW)),
    "a copy": (pt.tensor_copy(x), (x, MATRIX)),
    "in another type": (pt.cast(x, "float32"), (x, MATRIX)),
    "whole numbers": (pt.cast(x, "int64"), (x, 9 * MATRIX)),
    "a difference": (x - y, (x, MATRIX), (y, OTHER)),
    "a difference of a row": (x - row, (x, MATRIX), (row, ROW)),
    "a sum of three": (pt.add(x, row, y), (x, MATRIX), (row, ROW), (y, OTHER)),
    "a product of four": (pt.mul(x, y, x, row), (x, MATRIX), (y, OTHER), (x, OTHER), (row, ROW)),
    "a comparison": (x > y, (x, MATRIX), (y, OTHER)),
    "a function": (pt.exp(x), (x, MATRIX.T)),
    "a sum with bytes": (x + m, (x, MATRIX), (m, BYTES)),
}  # fmt: skip


def performed(node, values):
    storage = [[None]]
    prepare = getattr(node.op, "prepare_node", None)
    if prepare:
        prepare(node, None, None, "py")
    node.op.perform(node, values, storage)
    return storage[0][0]


@pytest.mark.parametrize("name", CALLS)
def test_values_are_those_of_the_operation(name):
    output, *inputs = CALLS[name]
    node = output.owner
    assert direct_call(node.op, node) is not None
    values = [np.asarray(value) for _, value in inputs]
    values += [i.data for i in node.inputs[len(values) :]]
    before = [value.copy() for value in values]
    found, expected = direct_call(node.op, node)(*values), performed(node, values)
    assert_array_equal(found, expected, strict=True)
    for value, old in zip(values, before, strict=True):
        assert_array_equal(value, old)


MISFITS = {
    "a difference": (x - y, MATRIX, OTHER[:1]),
    "a sum of three": (pt.add(x, row, y), MATRIX, ROW, OTHER[:1]),
    "added by row": (pt.inc_subtensor(x[k], y), MATRIX, OTHER[:1], PLACES),
    "dropped": (row.dimshuffle(1), MATRIX),
    "out of bounds": (pt.inc_subtensor(x[k], y), MATRIX, np.ones((900, 3)), np.full(900, 7)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_lengths_that_do_not_fit_are_refused(name):
    output, *values = MISFITS[name]
    node = output.owner
    with pytest.raises((ValueError, IndexError), match=r"fit|cannot add|length"):
        direct_call(node.op, node)(*values)


OTHERS = {
    "an index that is computed": x[pt.lscalar() :],
    "part of a row beside an index": x[1:, k],
    "set at places": pt.set_subtensor(x[k], y),
    "a mask": x[pt.gt(v, 0)],
    "rows in two": pt.alloc(v, 2, 3),
    "a sum of integers": pt.bmatrix().sum(axis=0),
    "a choice": pt.switch(pt.gt(x, 0), x, y),
    "a split at numbers that are computed": Split(2, axis=0)(x, k)[0],
    "integers made real": pt.exp(pt.lmatrix()),
    "a join": pt.join(0, x, y),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_is_left_to_the_operation(name):
    node = OTHERS[name].owner
    assert direct_call(node.op, node) is None


def test_what_is_looked_up_lies_row_by_row():
    node = x[:, k].owner
    found = direct_call(node.op, node)(MATRIX, PLACES % 3)
    assert found.flags.c_contiguous
    assert not MATRIX[:, PLACES % 3].flags.c_contiguous


def test_parts_are_those_of_the_operation():
    node = Split(3, axis=0)(x, [2, 0, 5])[0].owner
    storage = [[None] for _ in range(3)]
    node.op.perform(node, [MATRIX, node.inputs[1].data], storage)
    found = direct_call(node.op, node)(MATRIX, node.inputs[1].data)
    for part, [expected] in zip(found, storage, strict=True):
        assert_array_equal(part, expected, strict=True)
    with pytest.raises(ValueError, match="does not have 7 entries, in a split"):
        direct_call(node.op, node)(MATRIX[:3], node.inputs[1].data)


def test_few_places_are_as_good_as_many(limits):
    node = pt.inc_subtensor(x[k], y).owner
    few = direct_call(node.op, node)(MATRIX, OTHER, PLACES)
    limits(few_places=0)
    assert_array_equal(direct_call(node.op, node)(MATRIX, OTHER, PLACES), few)


# -- Operations on each array of a batch by one call, against NumPy's own indexing. ----------------

RANDOM = np.random.default_rng(3)


@pytest.fixture
def nothing_is_compiled(fails):
    fails("compiled loop")


def batched(graph, *inputs):
    """Return a function of inputs with an axis before their own."""
    new = {v: v.type.clone(shape=(None, *v.type.shape))() for v in inputs}
    graphs = vectorize_graph(graph, new)
    kinds = (pytensor_api.Blockwise, pytensor_api.BlockwiseWithCoreShape)
    function = pytensor.function(list(new.values()), graphs, mode=loop_mode())
    assert any(isinstance(node.op, kinds) for node in function.maker.fgraph.toposort())
    return function


@pytest.fixture(params=[0, 2**22], ids=["compiled", "numpy"])
def many(request, limits):
    limits(many_lookups=request.param)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
@pytest.mark.usefixtures("nothing_is_compiled")
def test_entries_are_looked_up_in_each_array(dtype, shape):
    x, k = pt.tensor("x", shape=(None,) * (len(shape) - 1)), pt.vector("k", dtype=dtype)
    values = RANDOM.normal(size=shape)
    places = RANDOM.integers(0 if dtype == "uint8" else -4, 4, size=(5, 7)).astype(dtype)
    found = batched(x[k], x, k)(values, places)
    expected = [one[own.astype(int)] for one, own in zip(values, places, strict=True)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("n", [(1, 5), (5, 1)])
@pytest.mark.usefixtures("nothing_is_compiled")
def test_one_array_or_one_set_of_places_is_that_of_all(n):
    x, k = pt.vector("x"), pt.lvector("k")
    axes = [1 if length == 1 else None for length in n]
    arrays = pt.tensor("arrays", shape=(axes[0], None))
    places = pt.tensor("places", shape=(axes[1], None), dtype="int64")
    graph = vectorize_graph(x[k], {x: arrays, k: places})
    values, own = RANDOM.normal(size=(n[0], 4)), RANDOM.integers(-4, 4, size=(n[1], 7))
    found = pytensor.function([arrays, places], graph, mode=loop_mode())(values, own)
    expected = np.take_along_axis(
        np.broadcast_to(values, (5, 4)), np.broadcast_to(own % 4, (5, 7)), 1
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("many")
@pytest.mark.usefixtures("nothing_is_compiled")
def test_entries_of_two_axes_are_looked_up_at_places_that_are_broadcast():
    x, i, j = pt.matrix("x"), pt.lvector("i"), pt.lmatrix("j")
    values, rows = RANDOM.normal(size=(5, 3, 4)), RANDOM.integers(-3, 3, size=(5, 7))
    columns = RANDOM.integers(-4, 4, size=(5, 2, 7))
    found = batched(x[i, j], x, i, j)(values, rows, columns)
    expected = [one[own, other] for one, own, other in zip(values, rows, columns, strict=True)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("place", [-5, 4])
@pytest.mark.usefixtures("nothing_is_compiled")
def test_places_that_do_not_exist_are_refused(place):
    x, k = pt.vector("x"), pt.lvector("k")
    with pytest.raises(IndexError):
        batched(x[k], x, k)(np.ones((2, 4)), np.array([[0, 1], [2, place]]))


@pytest.mark.usefixtures("nothing_is_compiled")
def test_a_batch_of_one_is_not_that_of_the_others():
    """NumPy would repeat it."""
    x, k = pt.vector("x"), pt.lvector("k")
    with pytest.raises(ValueError, match="lengths"):
        batched(x[k], x, k)(np.ones((1, 4)), np.zeros((3, 2), dtype=int))


@pytest.mark.usefixtures("nothing_is_compiled")
def test_arrays_are_cut_into_parts_of_known_lengths():
    x, values = pt.matrix("x"), RANDOM.normal(size=(5, 6))
    cut = pytensor_api.Split(3, axis=0)
    each = pytensor_api.Blockwise(cut, signature="(m),(k)->(a),(b),(c)")(x, [[1, 2, 3]])
    parts = pytensor.function([x], each, mode=loop_mode())(values)
    for part, expected in zip(parts, np.split(values, [1, 3], axis=1), strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("n_arrays", [5, 1])
@pytest.mark.usefixtures("nothing_is_compiled")
def test_lengths_may_be_repeated_for_a_batch(n_arrays):
    x, n = pt.matrix("x", shape=(None if n_arrays > 1 else 1, 3)), pt.lscalar("n")
    cut = pytensor_api.Blockwise(pytensor_api.Split(2, axis=0), signature="(m),(k)->(a),(b)")
    each = cut(x, pt.alloc(np.array([[1, 2]]), n, 2))
    values = RANDOM.normal(size=(n_arrays, 3))
    first, others = pytensor.function([x, n], each, mode=loop_mode())(values, 5)
    np.testing.assert_array_equal(first, np.tile(values[:, :1], (5 // n_arrays, 1)))
    np.testing.assert_array_equal(others, np.tile(values[:, 1:], (5 // n_arrays, 1)))


@pytest.mark.usefixtures("nothing_is_compiled")
def test_arrays_of_a_batch_are_joined_along_an_axis_of_their_own():
    join = pytensor_api.Join(0)
    each = pytensor_api.Blockwise(join, signature="(m,k),(n,k)->(o,k)")
    x, y = pt.tensor3("x"), pt.tensor("y", shape=(1, None, None))
    a, b = RANDOM.normal(size=(5, 1, 3)), RANDOM.normal(size=(1, 2, 3))
    found = pytensor.function([x, y], each(x, y), mode=loop_mode())(a, b)
    np.testing.assert_array_equal(found, [np.concatenate([one, b[0]]) for one in a])


@pytest.mark.usefixtures("nothing_is_compiled")
def test_a_batch_may_be_empty():
    x, k = pt.vector("x"), pt.lvector("k")
    found = batched(x[k], x, k)(np.ones((0, 4)), np.zeros((0, 3), dtype=int))
    assert found.shape == (0, 3)


# -- Sums over consecutive entries, in the loop that computes these. -------------------------------

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


# -- Fused loops that NumPy evaluates operation by operation. --------------------------------------

FEW = pt.tensor("few", dtype="float64", shape=(None, 3))


def _graphs() -> dict[str, Variable]:
    return {
        "functions": pt.softplus(FEW) + pt.log1p(pt.exp(-FEW)) * pt.sigmoid(FEW),
        "sum": pt.exp(FEW - 1.0).sum(axis=1),
        "maximum": (2 * FEW + 1).max(axis=1),
        "all": pt.all(pt.isnan(FEW) | (FEW > 0), axis=1),
        "cases": pt.switch(FEW > 0, FEW**3, pt.clip(FEW, -1, 1) / 3),
        "two": pt.logsumexp(FEW, axis=1) + pt.gammaln(abs(FEW[:, 0]) + 1),
    }


@pytest.mark.parametrize("name", _graphs())
def test_parts_have_the_values_of_the_loop(name: str) -> None:
    graph = _graphs()[name]
    x = np.random.default_rng(1).normal(size=(7, 3))
    function = pytensor.function([FEW], graph, mode=loop_mode())
    loops = [n for n in function.maker.fgraph.apply_nodes if parts_of(n) is not None]
    assert loops
    for node in loops:
        parts = parts_of(node)
        assert parts is not None
        values = [_some(v, x) for v in node.inputs]
        found = Program(parts, parts.toposort(), 0)(*values)
        expected = compiled_loop(node)(*values)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)
            assert one.dtype == other.dtype


def _some(variable: Variable, x: np.ndarray) -> np.ndarray:
    """Return values that fit in an input of a loop."""
    if isinstance(variable, pt.TensorConstant):
        return np.asarray(variable.data)
    shape = [n if n is not None else len(x) for n in variable.type.shape]
    return np.resize(x, shape).astype(variable.type.dtype)


def test_what_depends_on_draws_alone_is_not_compiled(calls: Callable[..., list[Any]]) -> None:
    made = calls("compiled loop")
    draws, n, y = pt.matrix("draws", shape=(None, 3)), pt.lscalar("n"), pt.vector("y")
    scale = pt.exp(draws - draws.max(axis=1, keepdims=True)).sum(axis=1)
    at_rows = -pt.square((y - draws[:, :1]) / scale[:, None]) - pt.log(scale)[:, None]
    kernel = Kernel([draws], [n, y], [at_rows, pt.exp(at_rows).sum(axis=1)], {0: 0})
    x, rows = np.random.default_rng(2).normal(size=(5, 3)), np.arange(4.0)
    found, sums = kernel.program.given(x)(np.array(4), rows)
    own = np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1)[:, None]
    expected = -np.square((rows - x[:, :1]) / own) - np.log(own)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(sums, np.exp(expected).sum(axis=1), rtol=1e-12)
    compiled = [call.args[0] for call in made]
    assert compiled
    assert all(is_large(node) for node in compiled)
    assert not [node for node in compiled if not _reads(node, y)]


def _reads(node: pytensor.graph.Apply, rows: Variable) -> bool:
    return any(v.name == rows.name for v in ops.ancestors([*node.outputs]))


def test_neither_indices_nor_rows_alone_are_large() -> None:
    index = pt.ltensor3("index")
    assert not is_large(pt.clip(index, 0, 2).owner)
    assert not is_large(pt.exp(pt.row()).owner)
    assert not is_large(pt.exp(pt.tensor(shape=(1, None, None))).owner)
    assert is_large((pt.matrix() > 0).owner)


def test_functions_that_numpy_lacks_stay_loops() -> None:
    many = [pt.vector() for _ in range(40)]
    function = pytensor.function(many, pt.add(*many), mode=loop_mode())
    [node] = [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, ops.Elemwise)]
    assert parts_of(node) is None
