"""Graphs of what rows of units have in common: evaluated once, with the same values."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph import (
    ancestors,
    clone_replace,
    explicit_graph_inputs,
    graph_inputs,
    vectorize_graph,
)
from scipy.special import expit

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.units.complements import without_double_complements
from pymc_coresets.reading.units.each_column import by_columns
from pymc_coresets.reading.units.fewer_functions import with_fewer_functions
from pymc_coresets.reading.units.ragged import (
    Collect,
    Spread,
    collect,
    in_common_operations,
    spread,
    without_filled,
)
from pymc_coresets.reading.units.varying import varying_terms
from tests.modes import PLAIN_MODE, loop_mode

# -- Sums over the rows of units, and values of units at their rows, in every mode. ----------------

SIZES = np.array([2, 0, 1, 3, 0])
N_ROWS = SIZES.sum()
RNG = np.random.default_rng(5)
N_EACH = pt.lvector("sizes")  # of units, in graphs


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


# -- Graphs of arrays side by side, written as graphs of each of them. -----------------------------

X, W = pt.matrix("x", shape=(None, 3)), pt.matrix("w", shape=(None, 3))
VALUES = np.random.default_rng(1).normal(size=(4, 3))
WEIGHTS, COUNTS = np.random.default_rng(2).normal(size=(6, 3)), np.array([1, 0, 3, 2])
SHIFTS = pt.constant([0.0, 1.0])
ROOT = pt.constant(np.array([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [-1.0, 0.3, 0.7]]))
FIXED = pt.constant([0.5, -1.0, 2.0])

GRAPHS = {
    "a column": X[:, -2],
    "differences": pt.sum((X[:, 1:] - X[:, :-1]) ** 2, axis=1),
    "a sum of joined arrays": pt.join(1, X[:, :1] / 2, X[:, 1:] - X[:, :-1]).sum(axis=1),
    "a maximum": (X * FIXED).max(axis=1),
    "all of them": pt.all(X > -1.0, axis=1) + 0.0,
    "a sum of exponentials": pt.logsumexp(X[None] * 2, axis=2)[0],
    "a mixture": pt.logsumexp(pt.stack([X[:, 0], -pt.exp(X[:, 1])], axis=1) + SHIFTS, axis=1),
    "rows": collect((spread(X, N_EACH) * W).sum(axis=1), N_EACH),
    "a running sum": X.cumsum(axis=1).sum(axis=1),
    "a running product": pt.log(pt.square(X).cumprod(axis=1))[:, 2],
    "a triangular system": pt.linalg.solve_triangular(ROOT, X, lower=True, b_ndim=1).sum(axis=1),
    "one from below": (pt.linalg.solve_triangular(ROOT.T, X, b_ndim=1) ** 2).sum(axis=1),
    "an axis that is moved": pt.expand_dims(X, 1).sum(axis=2)[:, 0],
}
CUTS = pt.vector("cuts", shape=(4,))
KINDS = np.array([0, 4, 2, 1])


def probabilities(z: pt.TensorVariable, cuts: pt.TensorVariable) -> pt.TensorVariable:
    """Return those of five categories by four thresholds, (n, 5)."""
    below = pt.sigmoid(cuts[None] - z[:, None])
    return pt.join(1, below[:, :1], below[:, 1:] - below[:, :-1], 1.0 - below[:, 3:])


#: Of an array of a few numbers that meet a column.
SHARED = {
    "a category by its logits": lambda z, c: pt.special.log_softmax(z[:, None] * c[None], axis=1)[
        pt.arange(z.shape[0]), KINDS % 4
    ],
    "a probability by logits": lambda z, c: pt.special.softmax(z[:, None] + c[None] ** 2, axis=1)[
        pt.arange(z.shape[0]), KINDS % 4
    ],
    "a mixture of shared means": lambda z, c: pt.logsumexp(-((z[:, None] - c[None]) ** 2), axis=1),
    "a category of each": lambda z, c: probabilities(z, c)[pt.arange(z.shape[0]), KINDS],
    "one from the end": lambda z, c: probabilities(z, c)[pt.arange(z.shape[0]), KINDS - 5],
    "a category in a column": lambda z, c: probabilities(z, c)[
        pt.arange(z.shape[0])[:, None], KINDS[:, None]
    ][:, 0],
    "a check": lambda z, c: pt.all(probabilities(z, c) > 0.2, axis=1) + z,
}
#: Of data with a column for each of three goods, at rows of units.
TASTE, GOODS = spread(X[:, 0], N_EACH), pt.constant(np.array([2, 0, 1, 1, 0, 2]))
NARROW = {
    "a good by its utilities": pt.special.log_softmax(W * TASTE[:, None] + W**2, axis=1)[
        pt.arange(N_EACH.sum()), GOODS
    ],
    "two data, of which one is for all rows": pt.logsumexp(FIXED - W * TASTE[:, None], axis=1),
    "columns of attributes of goods": pt.special.log_softmax(
        ((W[:, :, None] - FIXED[:2]) * spread(X[:, :2], N_EACH)[:, None, :]).sum(axis=2),
        axis=1,
    )[pt.arange(N_EACH.sum()), GOODS],
    "a sum": (pt.exp(W) * TASTE[:, None]).sum(axis=1),
}
#: These need the whole array.
WHOLE = {
    "a product with data of goods": (W * TASTE[:, None]) @ W[:3].T,
    "a sum over rows": (W * TASTE[:, None]).sum(axis=0),
    "a product of matrices": X @ W[:3].T,
    "a running sum over units": X.cumsum(axis=0).sum(axis=1),
    "a sum over units": X.sum(axis=0),
    "products of pairs": ((X[:, :, None] - X[:, None, :]) * W[:3]).sum(axis=(1, 2)),
    "a system of ones": pt.linalg.solve_triangular(
        ROOT, X, lower=True, b_ndim=1, unit_diagonal=True
    ).sum(axis=1),
    "parts of other lengths": (pt.join(1, X[:, :1], X @ W[:3, :2]) * X).sum(axis=1),
}


def both(graph: pt.TensorVariable) -> tuple[pt.TensorVariable, list[np.ndarray]]:
    """Return what is written by columns, and its values and gradients after those of the graph."""
    columns = [pt.vector() for _ in range(3)]
    [apart] = by_columns([graph], X, columns)
    slopes = pt.grad(apart.sum(), columns, disconnected_inputs="ignore")
    one = pytensor.function(
        [*columns, W, N_EACH], [apart, pt.stack(slopes, axis=1)], mode=PLAIN_MODE,
        on_unused_input="ignore",
    )  # fmt: skip
    other = pytensor.function(
        [X, W, N_EACH],
        [graph, pt.grad(graph.sum(), X)],
        mode=PLAIN_MODE,
        on_unused_input="ignore",
    )
    return apart, [
        *other(VALUES, WEIGHTS, COUNTS),
        *one(*VALUES.T, WEIGHTS, COUNTS),
    ]


@pytest.mark.parametrize("name", GRAPHS | NARROW | WHOLE)
def test_values_and_gradients_are_the_same(name):
    _, [values, slopes, own, of_columns] = both((GRAPHS | NARROW | WHOLE)[name])
    np.testing.assert_allclose(own, values, rtol=1e-12)
    np.testing.assert_allclose(of_columns, slopes, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_is_joined(name):
    apart, _ = both(GRAPHS[name])
    assert not any(isinstance(n.op, ops.Join | ops.Split) for n in ops.io_toposort([], [apart]))


@pytest.mark.parametrize("name", NARROW)
def test_units_meet_columns_of_data_one_by_one(name):
    apart, _ = both(NARROW[name])
    inputs, wide = set(explicit_graph_inputs([apart])), []
    of_units = inputs - {W, N_EACH}
    for node in ops.io_toposort([], [apart]):
        if not of_units.isdisjoint(node.inputs):
            of_units.update(node.outputs)
            wide += [v for v in node.outputs if {2, 3} & set(v.type.shape)]
    assert not wide


def test_data_of_many_columns_stay_side_by_side():
    many, columns = pt.matrix(shape=(None, 9)), [pt.vector() for _ in range(3)]
    [apart] = by_columns([(many * X[:, :1]).sum(axis=1)], X, columns)
    assert any(isinstance(n.op, ops.CAReduce) for n in ops.io_toposort([], [apart]))


def test_a_component_without_a_density_has_no_share():
    columns = [pt.vector() for _ in range(3)]
    [graph] = by_columns([pt.logsumexp(X, axis=1)], X, columns)
    none = np.array([-np.inf, -np.inf])
    found = pytensor.function(columns, graph, mode=PLAIN_MODE)(none, none, [0.5, -np.inf])
    np.testing.assert_array_equal(found, [0.5, -np.inf])


def shared(name: str) -> tuple[pt.TensorVariable, list[list[np.ndarray]]]:
    """Return what is written by columns, and values and gradients of the graph and of that."""
    whole, columns = pt.matrix(shape=(None, 3)), [pt.vector() for _ in range(3)]
    graph = SHARED[name](whole[:, 0], CUTS)
    [apart] = by_columns([graph], whole, columns)
    found = []
    for inputs, out in (([whole], graph), (columns, apart)):
        slopes = pt.grad(out.sum(), [inputs[0], CUTS], disconnected_inputs="ignore")
        function = pytensor.function(
            [*inputs, CUTS], [out, *slopes], mode=PLAIN_MODE, on_unused_input="ignore"
        )
        data = [VALUES] if len(inputs) == 1 else VALUES.T
        found.append(function(*data, np.array([-1.0, -0.2, 0.5, 1.5])))
    found[0][1] = found[0][1][:, 0]
    return apart, found


@pytest.mark.parametrize("name", SHARED)
def test_a_few_shared_numbers_meet_columns_one_by_one(name):
    apart, [expected, found] = shared(name)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    kinds = ops.Join | ops.Split | ops.AdvancedSubtensor | ops.CAReduce | ops.LogSumExp
    kinds |= ops.Softmax | ops.LogSoftmax
    assert not any(isinstance(n.op, kinds) for n in ops.io_toposort([], [apart]))


def test_units_are_the_last_axis_and_shared_numbers_may_be_any_of_as_many():
    columns = [pt.vector() for _ in range(3)]
    cuts = X[:, :1] + pt.exp(X[:, 1:2]) * CUTS[None]
    [apart] = by_columns([pt.sigmoid(spread(cuts, N_EACH)).sum(axis=1)], X, columns)
    made = [n.op for n in ops.io_toposort([], [apart]) if isinstance(n.op, Spread)]
    assert [op.n_after for op in made] == [0, 0, 0, 0]
    unknown = pt.vector("of any length")  # as after a transform
    [graph] = clone_replace([apart], {CUTS: unknown}, rebuild_strict=False)
    f = pytensor.function(
        [*columns, N_EACH, unknown], graph, mode=loop_mode(), on_unused_input="ignore"
    )
    values = np.array([-1.0, -0.2, 0.5, 1.5])
    expected = expit(VALUES[:, :1] + np.exp(VALUES[:, 1:2]) * values).sum(axis=1)
    found = f(*VALUES.T, COUNTS, values)
    np.testing.assert_allclose(found, np.repeat(expected, COUNTS), rtol=1e-12)


def test_a_few_shared_numbers_meet_a_single_column():
    whole, column, cuts = pt.matrix(shape=(None, 1)), pt.vector(), np.array([-1.0, -0.2, 0.5, 1.5])
    graph = pt.logsumexp(whole * CUTS[None], axis=1)
    [apart] = by_columns([graph], whole, [column])
    expected = pytensor.function([whole, CUTS], graph, mode=PLAIN_MODE)(VALUES[:, :1], cuts)
    found = pytensor.function([column, CUTS], apart, mode=PLAIN_MODE)(VALUES[:, 0], cuts)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not any(isinstance(n.op, ops.LogSumExp) for n in ops.io_toposort([], [apart]))


def test_a_category_that_is_not_there_has_no_value():
    columns = [pt.vector() for _ in range(3)]
    graph = probabilities(X[:, 0], CUTS)[pt.arange(X.shape[0]), np.array([0, 5, 2, -6])]
    [apart] = by_columns([graph], X, columns)
    function = pytensor.function([*columns, CUTS], apart, mode=PLAIN_MODE, on_unused_input="ignore")
    found = function(*VALUES.T, np.array([-1.0, -0.2, 0.5, 1.5]))
    np.testing.assert_array_equal(np.isnan(found), [False, True, False, True])


@pytest.mark.parametrize(
    "places",
    [np.array([2, 0, 1, 3]), pt.arange(1, X.shape[0]), pt.arange(0, -X.shape[0], -1)],
    ids=["in another order", "all but the first", "backwards"],
)
def test_places_of_some_rows_need_the_whole_array(places):
    columns = [pt.vector() for _ in range(3)]
    kinds = pt.constant(KINDS)[: pt.as_tensor(places).shape[0]]
    graph = probabilities(X[:, 0], CUTS)[places, kinds]
    [apart] = by_columns([graph], X, columns)
    given, cuts = [X, CUTS], np.array([-1.0, -0.2, 0.5, 1.5])
    expected = pytensor.function(given, graph, mode=PLAIN_MODE)(VALUES, cuts)
    function = pytensor.function([*columns, CUTS], apart, mode=PLAIN_MODE, on_unused_input="ignore")
    np.testing.assert_allclose(function(*VALUES.T, cuts), expected, rtol=1e-12)


# -- Terms of a log-density that depend on some variables. -----------------------------------------

Z, A = pt.dvector("z"), pt.dvector("a")
Y = pt.dvector("y")
OF_ROWS = Y * spread(Z, N_EACH) - pt.exp(spread(Z, N_EACH)) - pt.gammaln(Y + 1)
TERMS = {
    "sum": pt.gammaln(A) - 2.0 * (pt.exp(Z) + A),
    "difference": A - pt.exp(Z),
    "units": collect(OF_ROWS, N_EACH) - pt.gammaln(A),
    "possible cases": pt.switch(pt.exp(Z) > 0, -(Z**2) - pt.gammaln(A), -np.inf),
    "cases of data": pt.switch(A > 1.0, Z - pt.gammaln(A), pt.exp(Z) + A),
}
DATA = [np.array([0.5, 2.0]), np.array([3, 1]), np.array([1.0, 0.0, 2.0, 4.0])]


@pytest.mark.parametrize("graph", TERMS.values(), ids=TERMS)
def test_differences_are_kept_and_nothing_is_evaluated_that_they_do_not_need(graph):
    found = varying_terms(graph, [Z])
    assert "gammaln" not in pytensor.dprint(found, file="str").lower()
    whole, terms = (numpy_function([Z, A, N_EACH, Y], [g]) for g in (graph, found))
    ones, others = np.array([0.3, -1.0]), np.array([1.3, 0.2])
    changes = [np.subtract(*(f(z, *DATA)[0] for z in (ones, others))) for f in (whole, terms)]
    np.testing.assert_allclose(*changes, rtol=1e-12)


def test_cases_that_the_variables_decide_keep_their_constants():
    graph = pt.switch(Z > 0, A - Z, 2.0 * A)
    assert varying_terms(graph, [Z]) is graph


def test_a_sum_without_the_variables_is_left_as_it_is():
    graph = pt.gammaln(A)
    assert varying_terms(graph, [Z]) is graph


# -- The complement of a complement, of rows that are censored. ------------------------------------

OF_ROW, SEEN = pt.vector("x", dtype="float64"), pt.vector("seen", dtype="bool")
COMPLEMENTS = {
    "alone": pt.log1mexp(OF_ROW),
    "beside impossible ones": pt.switch(SEEN, pt.log1mexp(OF_ROW), -np.inf),
    "beside certain ones": pt.switch(
        SEEN, 0.0, pt.switch(OF_ROW > -2.0, pt.log1mexp(OF_ROW), -0.5)
    ),
}


@pytest.mark.parametrize("inner", COMPLEMENTS.values(), ids=COMPLEMENTS)
def test_values_and_gradients_are_those_of_two_complements(inner):
    whole = pt.log1mexp(inner)
    [found] = without_double_complements([whole])
    assert "log1mexp" not in pytensor.dprint(found, file="str").lower()
    both = [numpy_function([OF_ROW, SEEN], [g, pt.grad(g.sum(), OF_ROW)]) for g in (whole, found)]
    x, seen = np.array([-0.7, -1.0, -1.5, -3.0]), np.array([True, True, False, False])
    with np.errstate(all="ignore"):
        expected, written = (f(x, seen) for f in both)
    is_known = np.isfinite(expected[1])
    assert is_known.any()
    np.testing.assert_allclose(written[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(written[1][is_known], expected[1][is_known], rtol=1e-12)


def test_what_is_no_log_probability_remains_so():
    [found] = without_double_complements([pt.log1mexp(pt.log1mexp(OF_ROW))])
    np.testing.assert_array_equal(found.eval({OF_ROW: [np.nan, 1.0, 0.0]}), [np.nan, np.nan, 0.0])


def test_other_complements_are_kept():
    other = pt.log1mexp(pt.switch(SEEN, pt.log1mexp(OF_ROW), OF_ROW))
    assert without_double_complements([other])[0] is other


# -- Equal log-densities with fewer functions of each row. -----------------------------------------

U = pt.vector("u")  # of units, as Z
K = pt.vector("k", shape=(1,))  # of all
Z_AT_ROWS, U_AT_ROWS = spread(Z, N_EACH), spread(U, N_EACH)
INPUTS = [OF_ROW, Z, U, K, N_EACH]
GIVEN = [
    np.array([0.3, -1.2, 2.0, 0.5, -0.1, 7.0]),
    np.array([0.7, -2.0, 1.1, 0.0]),
    np.array([-0.3, 0.4, 2.0, -1.0]),
    np.array([1.7]),
    np.array([2, 0, 3, 1]),
]

# By name: what is written otherwise, a scalar operation, and how often it is there at the end.
EQUAL = {
    "a power of a scale": (pt.exp(Z_AT_ROWS) ** -2.0, "pow", 0),
    "a power of a product": (
        (pt.sqr(OF_ROW) * pt.exp(Z_AT_ROWS) / pt.exp(OF_ROW)) ** K,
        "pow",
        1,
    ),
    "a power of a quotient": (
        (pt.sqr(OF_ROW) / (pt.exp(OF_ROW) * spread(pt.exp(Z), N_EACH))) ** K,
        "pow",
        1,
    ),
    "one over exponentials": (
        (1.0 / pt.sqr(OF_ROW) / pt.exp(Z_AT_ROWS)) ** K,
        "pow",
        1,
    ),
    "a power by row": (pt.exp(Z_AT_ROWS) ** OF_ROW, "pow", 1),
    "a logarithm": (
        pt.log(pt.sqr(OF_ROW) * pt.exp(Z_AT_ROWS) / spread(pt.exp(U), N_EACH)),
        "log",
        1,
    ),
    "a logarithm of exponentials": (
        pt.log(pt.exp(Z_AT_ROWS) / pt.exp(OF_ROW)),
        "log",
        0,
    ),
    "no exponential": (
        pt.log(pt.sqr(OF_ROW) * pt.sqr(Z_AT_ROWS)),
        "log",
        1,
    ),
}


def _count(graph, name):
    found = [ops.scalar_op_of(v) for v in ancestors([graph])]
    return sum(type(op).__name__.lower() == name for op in found)


def _values_and_gradients(graph):
    gradients = pt.grad(
        pt.sum(graph * pt.cos(OF_ROW)),
        [OF_ROW, Z, U, K],
        disconnected_inputs="ignore",
    )
    function = numpy_function(INPUTS, [graph, *gradients])
    with np.errstate(all="ignore"):
        return function(*GIVEN)


@pytest.mark.parametrize(("graph", "name", "number"), EQUAL.values(), ids=EQUAL)
def test_values_and_gradients_remain_with_fewer_functions(graph, name, number):
    [found] = with_fewer_functions([graph])
    assert _count(found, name) == number
    for before, after in zip(*map(_values_and_gradients, (graph, found)), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-14)


def _spread_last(graph):
    """Return the operations on values that have been given to rows."""
    found = [v.owner for v in ancestors([graph]) if v.owner is not None]
    return [
        type(node.op.scalar_op).__name__
        for node in found
        if isinstance(node.op, ops.Elemwise)
        and any(isinstance(ops.op_of(v), Spread) for v in node.inputs)
    ]


@pytest.mark.parametrize(
    ("graph", "of_rows"),
    [
        (pt.sin(Z_AT_ROWS), []),
        (pt.sin(K * Z_AT_ROWS) + U_AT_ROWS, []),
        (pt.mul(OF_ROW, Z_AT_ROWS, pt.cos(U_AT_ROWS)), ["Mul"]),
        (OF_ROW / pt.sqrt(1 + pt.sqr(Z_AT_ROWS)), ["TrueDiv"]),
        (OF_ROW - Z_AT_ROWS, ["Sub"]),
        (
            spread(Z, N_EACH) + spread(U, N_EACH * 1),
            ["Add"],
        ),  # other units, for all that is known
    ],
)
def test_what_a_unit_has_is_computed_before_its_rows(graph, of_rows):
    [found] = with_fewer_functions([graph])
    assert _spread_last(found) == of_rows
    for before, after in zip(*map(_values_and_gradients, (graph, found)), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-14)


def test_values_of_units_with_other_axes_come_before_rows():
    matrix = pt.matrix("m")
    whole = pt.exp(spread(matrix, N_EACH)) * spread(matrix, N_EACH)
    [found] = with_fewer_functions([collect(whole, N_EACH).sum(axis=1)])
    assert _spread_last(found) == []
    m = np.arange(8.0).reshape(4, 2)
    expected = (GIVEN[-1][:, None] * m * np.exp(m)).sum(axis=1)
    np.testing.assert_allclose(numpy_function([matrix, N_EACH], [found])(m, GIVEN[-1])[0], expected)


def test_powers_do_not_overflow_where_a_factor_would():
    graph = (pt.exp(Z_AT_ROWS) * pt.exp(-U_AT_ROWS)) ** K
    [found] = with_fewer_functions([graph])
    function = numpy_function([Z, U, K, N_EACH], [found])
    far = np.array([-800.0, 0.0, 0.0, 0.0])
    [value] = function(far, np.zeros(4), np.array([0.25]), GIVEN[-1])
    np.testing.assert_allclose(value[:2], np.exp(-200.0))
