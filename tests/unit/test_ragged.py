"""Sums over the rows of units, and values of units at their rows, in every mode."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph import graph_inputs, vectorize_graph

from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.units.ragged import (
    Collect,
    Spread,
    collect,
    in_common_operations,
    spread,
    without_filled,
)
from tests.modes import PLAIN_MODE

SIZES = np.array([2, 0, 1, 3, 0])
N_ROWS = SIZES.sum()
RNG = np.random.default_rng(5)


def by_hand(x: np.ndarray, axis: int) -> np.ndarray:
    """Add up the rows of each unit one by one."""
    rows, found = iter(np.moveaxis(x, axis, 0)), []
    for size in SIZES:
        total = np.zeros_like(np.moveaxis(x, axis, 0)[0])
        for _ in range(size):
            total = total + next(rows)
        found.append(total)
    return np.moveaxis(np.array(found), 0, axis)


def at_rows(x: np.ndarray, axis: int) -> np.ndarray:
    rows = [part for part, n in zip(np.moveaxis(x, axis, 0), SIZES, strict=True) for _ in range(n)]
    return np.moveaxis(np.array(rows), 0, axis)


#: How a function of one input, with the sizes as a second, is made.
MODES = {"NumPy": PLAIN_MODE, "loops": loop_mode(1)}
SHAPES = [((), 0), ((3,), 0), ((3,), 1), ((2, 3), 1), ((2, 3), 2)]


@pytest.fixture(scope="module", params=MODES)
def mode(request):
    return MODES[request.param]


def common(graph: pt.TensorVariable) -> pt.TensorVariable:
    return in_common_operations([graph])[0]


def data(shape: tuple[int, ...], axis: int, length: int) -> np.ndarray:
    whole = [*shape]
    whole.insert(axis, length)
    return np.random.default_rng(1).normal(size=whole)


@pytest.mark.parametrize("written", [lambda graph: graph, common])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_sums_and_values_along_any_axis(shape, axis, written):
    rows, units = data(shape, axis, N_ROWS), data(shape, axis, len(SIZES))
    sizes = pt.lvector("sizes")
    for function, x, expected in [
        (collect, rows, by_hand(rows, axis)),
        (spread, units, at_rows(units, axis)),
    ]:
        v = pt.tensor(dtype="float64", shape=(None,) * x.ndim)
        graph = written(function(v, sizes, axis))
        found = pytensor.function([v, sizes], graph, mode=PLAIN_MODE)(x, SIZES)
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_every_mode_agrees_with_more_axes_before_and_behind(mode):
    rows, units = data((2, 3), 1, N_ROWS), data((2, 3), 1, len(SIZES))
    x, z, sizes = pt.tensor3("x"), pt.tensor3("z"), pt.lvector("sizes")
    graphs = [collect(x, sizes, 1), spread(z, sizes, 1)]
    function = pytensor.function([x, z, sizes], graphs, mode=mode)
    total, spread_out = function(rows, units, SIZES)
    np.testing.assert_allclose(total, by_hand(rows, 1), rtol=1e-14)
    np.testing.assert_array_equal(spread_out, at_rows(units, 1))


@pytest.mark.parametrize("written", [lambda graph: graph, common])
def test_gradients_are_the_transposes(written):
    x, sizes, weights = pt.dmatrix("x"), pt.lvector("sizes"), pt.dmatrix("weights")
    given_rows, given_units = data((3,), 0, N_ROWS), data((3,), 0, len(SIZES))
    of_collect, of_spread = (
        pytensor.grad((weights * written(function(x, sizes))).sum(), x)
        for function in (collect, spread)
    )
    f = pytensor.function([x, sizes, weights], of_collect, mode=PLAIN_MODE)
    np.testing.assert_allclose(f(given_rows, SIZES, given_units), at_rows(given_units, 0))
    f = pytensor.function([x, sizes, weights], of_spread, mode=PLAIN_MODE)
    np.testing.assert_allclose(f(given_units, SIZES, given_rows), by_hand(given_rows, 0))


def test_second_derivatives_pass_through():
    x, sizes = pt.dvector("x"), pt.lvector("sizes")
    total = pt.exp(collect(spread(x, sizes) ** 2, sizes)).sum()
    slope = pytensor.grad(total, x)
    f = pytensor.function([x, sizes], pytensor.grad(slope.sum(), x), mode=PLAIN_MODE)
    values, n = np.array([0.3, -1.0, 0.5, 0.2, 2.0]), SIZES
    expected = np.exp(n * values**2) * (4 * (n * values) ** 2 + 2 * n)
    np.testing.assert_allclose(f(values, SIZES), expected, rtol=1e-13)


def test_arrays_filled_with_a_number_are_not_computed():
    """Where only elementwise operations need them: a running sum needs the array."""
    x, weights, sizes = pt.dvector("x"), pt.dvector("weights"), pt.lvector("sizes")
    per_unit = collect(weights * pt.exp(x), sizes)
    total = per_unit.sum() + pt.cumsum(spread(pt.full_like(per_unit, 2.0), sizes)).sum()
    slopes = pytensor.grad(total, [x, weights])
    found = without_filled(slopes)
    values, own, ones = RNG.normal(size=N_ROWS), RNG.normal(size=N_ROWS), [SIZES]
    for graph, before in zip(found, slopes, strict=True):
        assert sizes in graph_inputs([before])
        assert sizes not in graph_inputs([graph])
        f, g = (
            pytensor.function([x, weights, sizes], out, mode=PLAIN_MODE, on_unused_input="ignore")
            for out in (graph, before)
        )
        np.testing.assert_allclose(f(values, own, *ones), g(values, own, *ones), rtol=1e-14)
    [whole] = without_filled([pt.cumsum(spread(pt.full_like(per_unit, 2.0), sizes))])
    f = pytensor.function([x, weights, sizes], whole, mode=PLAIN_MODE)
    np.testing.assert_array_equal(f(values, own, SIZES), 2.0 * np.arange(1, N_ROWS + 1))


def test_values_of_too_few_units_are_refused():
    x, sizes = pt.dvector("x"), pt.lvector("sizes")
    function = pytensor.function([sizes, x], 2.0 * spread(x, sizes), mode=loop_mode(1))
    np.testing.assert_array_equal(function(np.array([2, 1]), np.arange(2.0)), [0.0, 0.0, 2.0])
    with pytest.raises(ValueError, match="values of 1 units, but sizes of 2"):
        function(np.array([2, 1]), np.zeros(1))


def test_draws_are_new_axes_of_one_operation():
    x, sizes, draws = pt.dvector("x"), pt.lvector("sizes"), pt.dmatrix("draws")
    batched = vectorize_graph(collect(spread(x, sizes), sizes), {x: draws})
    operations = [v.owner.op for v in (batched, batched.owner.inputs[0])]
    assert [type(op) for op in operations] == [Collect, Spread]
    values = np.random.default_rng(2).normal(size=(4, len(SIZES)))
    f = pytensor.function([draws, sizes], batched, mode=PLAIN_MODE)
    np.testing.assert_allclose(f(values, SIZES), values * SIZES, rtol=1e-14)


def test_one_value_of_all_units_stays_one(mode):
    x, sizes = pt.vector("x"), pt.lvector("sizes")
    of_all = pt.tensor("of_all", shape=(None, 1))
    at_rows, total = vectorize_graph([spread(x, sizes), collect(x, sizes)], {x: of_all})
    values = RNG.normal(size=(4, 1))
    found, sums = pytensor.function([of_all, sizes], [at_rows, total], mode=mode)(values, SIZES)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_allclose(sums, values * SIZES)


def test_sizes_that_depend_on_draws_are_refused():
    x, sizes, others = pt.dvector("x"), pt.lvector("sizes"), pt.lmatrix("others")
    with pytest.raises(NotImplementedError, match="sizes of units are data"):
        vectorize_graph(collect(x, sizes), {sizes: others})


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_sums_of_any_sizes(sizes):
    x = np.arange(1.0, 1.0 + sum(sizes))
    ends = np.cumsum(sizes)
    expected = [x[end - size : end].sum() for end, size in zip(ends, sizes, strict=True)]
    op, storage = Collect(), [[None]]
    op.perform(op.make_node(pt.dvector(), pt.lvector()), [x, np.array(sizes)], storage)
    np.testing.assert_array_equal(storage[0][0], expected)


@pytest.mark.parametrize("is_used_twice", [False, True])
def test_a_loop_reads_values_of_units_where_they_are(is_used_twice):
    z, w, sizes = pt.tensor3("z"), pt.dvector("w"), pt.lvector("sizes")
    at_each = spread(z, sizes, 2)
    graphs = [pt.exp(at_each) * w, *([at_each] if is_used_twice else [])]
    f = pytensor.function([z, w, sizes], graphs, mode=loop_mode(1))
    values, of_rows = data((2, 3), 2, len(SIZES)), data((), 0, N_ROWS)
    expected = at_rows(values, 2)
    np.testing.assert_allclose(f(values, of_rows, SIZES)[0], np.exp(expected) * of_rows, rtol=1e-13)
    is_copied = any(isinstance(node.op, Spread) for node in f.maker.fgraph.apply_nodes)
    assert is_copied == is_used_twice


@pytest.mark.parametrize("is_many", [False, True])
def test_a_loop_refuses_sizes_of_other_units(is_many):
    z, sizes = pt.dmatrix("z"), pt.lvector("sizes")
    f = pytensor.function([z, sizes], pt.exp(spread(z, sizes, 1)), mode=loop_mode(1))
    others = np.append(SIZES, 1) if is_many else SIZES[:-1]
    with pytest.raises(ValueError, match="units"):
        f(np.zeros((2, len(SIZES))), others)
