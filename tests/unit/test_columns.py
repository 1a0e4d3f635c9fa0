"""Graphs of arrays side by side, written as graphs of each of them."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph import clone_replace, explicit_graph_inputs
from scipy.special import expit

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.reading.units.each_column import by_columns
from pymc_coresets.reading.units.ragged import Spread, collect, spread
from tests.modes import PLAIN_MODE

X, W, SIZES = pt.matrix("x", shape=(None, 3)), pt.matrix("w", shape=(None, 3)), pt.lvector("sizes")
VALUES = np.random.default_rng(1).normal(size=(4, 3))
WEIGHTS, N_ROWS = np.random.default_rng(2).normal(size=(6, 3)), np.array([1, 0, 3, 2])
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
    "rows": collect((spread(X, SIZES) * W).sum(axis=1), SIZES),
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
TASTE, GOODS = spread(X[:, 0], SIZES), pt.constant(np.array([2, 0, 1, 1, 0, 2]))
NARROW = {
    "a good by its utilities": pt.special.log_softmax(W * TASTE[:, None] + W**2, axis=1)[
        pt.arange(SIZES.sum()), GOODS
    ],
    "two data, of which one is for all rows": pt.logsumexp(FIXED - W * TASTE[:, None], axis=1),
    "columns of attributes of goods": pt.special.log_softmax(
        ((W[:, :, None] - FIXED[:2]) * spread(X[:, :2], SIZES)[:, None, :]).sum(axis=2), axis=1
    )[pt.arange(SIZES.sum()), GOODS],
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
        [*columns, W, SIZES], [apart, pt.stack(slopes, axis=1)], mode=PLAIN_MODE,
        on_unused_input="ignore",
    )  # fmt: skip
    other = pytensor.function(
        [X, W, SIZES], [graph, pt.grad(graph.sum(), X)], mode=PLAIN_MODE, on_unused_input="ignore"
    )
    return apart, [*other(VALUES, WEIGHTS, N_ROWS), *one(*VALUES.T, WEIGHTS, N_ROWS)]


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
    of_units = inputs - {W, SIZES}
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
    [apart] = by_columns([pt.sigmoid(spread(cuts, SIZES)).sum(axis=1)], X, columns)
    made = [n.op for n in ops.io_toposort([], [apart]) if isinstance(n.op, Spread)]
    assert [op.n_after for op in made] == [0, 0, 0, 0]
    unknown = pt.vector("of any length")  # as after a transform
    [graph] = clone_replace([apart], {CUTS: unknown}, rebuild_strict=False)
    f = pytensor.function(
        [*columns, SIZES, unknown], graph, mode=loop_mode(), on_unused_input="ignore"
    )
    values = np.array([-1.0, -0.2, 0.5, 1.5])
    expected = expit(VALUES[:, :1] + np.exp(VALUES[:, 1:2]) * values).sum(axis=1)
    found = f(*VALUES.T, N_ROWS, values)
    np.testing.assert_allclose(found, np.repeat(expected, N_ROWS), rtol=1e-12)


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
