"""Graphs before they are compiled: folded, unpacked, and given to code of others."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pytensor.compile.maker import FunctionMaker
from pytensor.graph import Apply, Op, vectorize_graph

from pymc_coresets import UnsupportedModelError, build_coreset
from pymc_coresets.compat import pytensor_api
from pymc_coresets.compat.pytensor_api import Elemwise
from pymc_coresets.reading.folding import (
    numpy_function,
    numpy_mode,
    values_of,
    widened,
    with_joined_scalars,
)
from pymc_coresets.reading.long_format import LongFormat
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.other_forms import Cells, without_length_one
from tests.modes import PLAIN_MODE, loop_mode
from tests.refusals import refused

# -- Graphs that NumPy evaluates: stable, and never one number at a time. --------------------------

X = np.array([-800.0, -40.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 40.0, 800.0])
FUNCTIONS = {
    "log of a probability": (lambda x: pt.log(pt.sigmoid(x)), -np.logaddexp(0, -X)),
    "log of its complement": (lambda x: pt.log1p(-pt.sigmoid(x)), -np.logaddexp(0, X)),
    "softplus": (pt.softplus, np.logaddexp(0, X)),
    "log1mexp": (
        lambda x: pt.log1mexp(-pt.abs(x) - 1e-9),
        np.log(-np.expm1(-np.abs(X) - 1e-9)),
    ),
    "an integer power": (lambda x: x**6 - x**4, X**6 - X**4),
    "limits": (lambda x: pt.clip(x, -2, 3), np.clip(X, -2, 3)),
    "limits in the wrong order": (
        lambda x: pt.clip(x, 3, -2),
        np.where(X < 3, 3.0, np.minimum(X, -2)),  # as PyTensor's own
    ),
}


def test_values_of_data_are_stable_and_make_no_function(fails):
    fails(FunctionMaker, "__init__")
    x, length = pt.dvector("x"), pytensor.shared(np.int64(4))
    for function, expected in FUNCTIONS.values():
        of_data, of_input = values_of([function(pt.constant(X)), function(x)], {x: X})
        np.testing.assert_allclose(of_data, expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(of_input, expected, rtol=1e-12, atol=1e-15)
    chosen, positions = values_of([pt.constant(X)[length:], 2 * pt.arange(length)])
    np.testing.assert_array_equal(chosen, X[4:])
    np.testing.assert_array_equal(positions, [0, 2, 4, 6])


def test_labelled_outcomes_and_long_sums_are_evaluated_without_a_function():
    codes = pmd.as_xtensor(np.array([True, False]), dims="obs").astype("int64")
    numbers = [pt.constant(i, dtype="int64") for i in range(40)]
    [values, total] = values_of([(2 * codes).values, pt.add(*numbers)])
    np.testing.assert_array_equal(values, [2, 0])
    assert total == sum(range(40))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_stable_and_come_from_ufuncs(name):
    function, expected = FUNCTIONS[name]
    x = pt.dvector("x")
    [found] = numpy_function([x], [function(x)])(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    compiled = pytensor.function([x], function(x), mode=PLAIN_MODE)
    for node in compiled.maker.fgraph.apply_nodes:
        if isinstance(node.op, Elemwise):
            assert node.op.nfunc_spec is not None or node.op.scalar_op.nfunc_spec, node


@pytest.mark.parametrize("function", [pt.add, pt.mul], ids=["sum", "product"])
@pytest.mark.parametrize(
    ("mode", "n_arrays"), [(PLAIN_MODE, 1_000), (numpy_mode("None"), 1_000), (loop_mode(), 40)]
)
def test_more_arrays_than_numpy_takes_at_once(function, mode, n_arrays):
    arrays = np.random.default_rng(1).normal(size=(n_arrays, 3))
    inputs = pt.dvectors(len(arrays))
    compiled = pytensor.function(inputs, function(*inputs), mode=mode)
    expected = arrays.sum(axis=0) if function is pt.add else arrays.prod(axis=0)
    np.testing.assert_allclose(compiled(*arrays), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [lambda x: pt.specify_shape(x, (None, 2)), pm.Normal.dist, lambda x: x[1:, None]],
    ids=["a shape that is partly known", "a random draw", "slices"],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_without_a_type_of_numbers_stay_as_they_are(function, dtype):
    x = pt.matrix("x", dtype=dtype)
    [found] = widened([function(x)], {x: pt.matrix("wide", dtype="float64")})
    assert found.type.dtype == "float64"


def test_vectors_of_scalars_are_joined_within_each_other():
    a, b, c = pt.dscalars("a", "b", "c")
    inner = pt.stack([a, b, b])
    found = with_joined_scalars([pt.stack([inner.sum(), c, inner.sum()]), inner, a])
    assert "MakeVector" not in pytensor.dprint(found, file="str")
    values = numpy_function([a, b, c], found)(1.0, 2.0, 4.0)
    for value, expected in zip(values, ([5.0, 4.0, 5.0], [1.0, 2.0, 2.0], 1.0), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_loops_that_are_evaluated_a_few_times_are_not_compiled_by_c():
    x = pt.vector("x")
    steps = pytensor_api.scan(
        lambda state: pt.sin(2 * state) + 1, outputs_info=x, n_steps=3, return_updates=False
    )
    values = np.array([0.1, 0.2])
    function = pytensor.function([x], steps[-1], mode=PLAIN_MODE)
    expected = values
    for _ in range(3):
        expected = np.sin(2 * expected) + 1
    np.testing.assert_allclose(function(values), expected, rtol=1e-12)
    nodes = function.maker.fgraph.toposort()
    [loop] = [node.op for node in nodes if isinstance(node.op, pytensor_api.Scan)]
    assert not any(hasattr(thunk, "cthunk") for thunk in loop.fn.vm.thunks)


# -- Graphs in long format have the cells of the graphs that they were written from. ---------------

A, B, C = 4, 5, 3
_rng = np.random.default_rng(5)


def data(*shape):
    """Return a constant with random entries."""
    return pt.constant(_rng.normal(size=shape))


a, b, ab = pt.vector("a", shape=(A,)), pt.vector("b", shape=(B,)), pt.matrix("ab", shape=(A, B))
ac, cb = pt.matrix("ac", shape=(A, C)), pt.matrix("cb", shape=(C, B))
abc = pt.tensor3("abc", shape=(A, B, C))
c, s = pt.vector("c", shape=(C,)), pt.scalar("s")
PARAMETERS = [a, b, c, s, ab, ac, cb, abc]
VALUES = [_rng.normal(size=v.type.shape) for v in PARAMETERS]
GROUP, COLUMN = np.array([0, 2, 2, 1]), np.array([0, 0, 1, 1, 2])
ENTRY = _rng.integers(C, size=(A, B))

#: A name, a graph with the axes of the cells in front, and whether all cells must be computed.
GRAPHS = {
    "outer": (lambda: a[:, None] * b, False),
    "one axis": (lambda: pt.exp(a)[:, None] + data(A, B), False),
    "neither axis": (lambda: pt.full((A, B), s), False),
    "matrix": (lambda: pt.exp(ab) + ab[:, :1], False),
    "transposed": (lambda: (data(B, A) * b[:, None]).T, False),
    "product with a vector": (lambda: data(A, B, C) @ c, False),
    "product with a matrix": (lambda: data(A, B, C) @ cb, False),
    "product of matrices": (lambda: ac @ cb, False),
    "product with a table": (lambda: ac @ data(C, B), False),
    "product from the left": (lambda: data(A, A) @ ab, False),
    "sum over another axis": (lambda: (data(A, B, C) * ac[:, None]).sum(axis=-1), False),
    "centred": (lambda: ab - ab.mean(axis=0), False),
    "softmax over another axis": (lambda: pt.special.softmax(abc, axis=-1)[..., 1], False),
    "logsumexp over another axis": (lambda: pt.logsumexp(abc, axis=-1), False),
    "cumulative along an axis": (lambda: pt.cumsum(ab, axis=1), True),
    "cumulative table": (lambda: pt.cumsum(b) + a[:, None], False),
    "concatenated behind": (lambda: pt.concatenate([abc, data(A, B, 1)], axis=-1), False),
    "stacked": (lambda: pt.stack([ab, a[:, None] + b], axis=-1), False),
    "looked up": (lambda: c[GROUP][:, None] + c[COLUMN], False),
    "looked up in two": (lambda: ac[:, COLUMN], False),
    "looked up by two": (lambda: cb[GROUP[:, None], COLUMN], False),
    "looked up by cell": (lambda: c[ENTRY], False),
    "one entry for each cell": (
        lambda: abc[np.arange(A)[:, None], np.arange(B), ENTRY],
        False,
    ),
    "one entry for each cell, of a table": (lambda: ac[np.arange(A)[:, None], ENTRY], False),
    "looked up in the middle": (
        lambda: (
            data(2, A, B, C)[:, np.arange(A)[:, None], np.arange(B)[::-1]].sum(axis=(0, -1)) * ab
        ),
        False,
    ),
    "looked up in the middle by cell": (
        lambda: pt.stack([abc, 2 * abc])[:, np.arange(A)[:, None], np.arange(B), ENTRY].sum(axis=0),
        False,
    ),
    "looked up on both sides by cell": (
        lambda: pt.stack([abc, 2 * abc], axis=1)[np.arange(A)[:, None], :, np.arange(B)][..., 0],
        True,
    ),
    "looked up on both sides of the last but one": (
        lambda: (
            pt.stack([abc, 2 * abc])
            .dimshuffle(0, 1, 3, 2)[:, np.arange(A)[:, None], :, np.arange(B)]
            .sum(axis=(-2, -1))
        ),
        True,
    ),
    "allocated": (lambda: pt.alloc(a[:, None], A, B), False),
    "reshaped behind": (lambda: abc.reshape((A, B, C, 1)) * c[:, None], False),
    "data alone": (lambda: data(A, B), False),
    "masked and filled again": (
        lambda: pt.set_subtensor(pt.zeros((A, B, C))[..., 0], ab),
        False,
    ),
    "shape specified": (lambda: pt.specify_shape(ab, (A, B)), False),
    "events behind": (lambda: abc * c, False),
}


@pytest.mark.parametrize(("build", "whole"), GRAPHS.values(), ids=GRAPHS.keys())
def test_cells_of_a_graph(build, whole):
    graph = build()
    long_format = LongFormat(PARAMETERS)
    cells = Cells.all_of((A, B))
    [long] = without_length_one([long_format.of(graph, (0, 1), cells)])
    found, expected = numpy_function(PARAMETERS, [long, graph])(*VALUES)
    assert_allclose(found, expected.reshape(-1, *expected.shape[2:]), rtol=1e-12)
    assert bool(long_format.unselected) == whole


@pytest.mark.parametrize("name", ["outer", "product of matrices", "one entry for each cell"])
def test_some_cells_in_another_order(name):
    graph = GRAPHS[name][0]()
    positions = np.array([19, 3, 3, 7])
    cells = Cells.at(positions, (B, A))
    long = LongFormat(PARAMETERS).of(graph, (1, 0), cells)
    found, expected = numpy_function(PARAMETERS, [long, graph])(*VALUES)
    assert_allclose(found, expected.T.ravel()[positions], rtol=1e-12)


def test_which_parameters_are_local():
    long_format = LongFormat(PARAMETERS)
    long_format.of(a[:, None] * b + ab + abc[..., 0] + ac @ cb, (0, 1), Cells.all_of((A, B)))
    assert long_format.local == {ab, abc}


@pytest.mark.parametrize("positions", [None, [5, 0, 0, 3]], ids=["all", "some, in another order"])
def test_what_is_left_of_a_matrix_by_a_mask(positions):
    mask = np.arange(A * B).reshape(A, B) % 3 > 0
    graph = (a[:, None] * b)[mask]
    order = np.arange(mask.sum()) if positions is None else np.array(positions)
    long_format = LongFormat(PARAMETERS)
    long = long_format.of(graph, (0,), Cells.at(order, (int(mask.sum()),)))
    found, expected = numpy_function(PARAMETERS, [long, graph])(*VALUES)
    assert_allclose(found, expected[order])
    assert not long_format.unselected
    assert not long_format.local


# -- Operations of other packages, as likelihoods: rows are selected, or the operation is named. ---

DATA = np.random.default_rng(1).normal(0.5, size=4_000)


class WithoutGradient(Op):
    """Minus half the squared distance of each observation from the mean."""

    def make_node(self, *inputs):
        data, mu = (pt.as_tensor(x) for x in inputs)
        return Apply(self, [data, mu], [data.type()])

    def perform(self, node, inputs, storage):
        data, mu = inputs
        storage[0][0] = np.asarray(-((data - mu) ** 2) / 2)


class RowByRow(WithoutGradient):
    def pullback(self, inputs, outputs, cotangents):
        data, mu = inputs
        slope = (cotangents[0] * (data - mu)).sum(keepdims=mu.type.ndim > 0)
        return [pt.zeros_like(data), slope]


class AllAtOnce(RowByRow):
    def perform(self, node, inputs, storage):
        super().perform(node, inputs, storage)
        storage[0][0] = np.cumsum(storage[0][0])


def model_of(op):
    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("mu"), logp=op, observed=DATA)
    return model


def test_rows_of_a_black_box_are_selected():
    model = model_of(RowByRow())
    assert not find_observations(model).unselected
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.sample(random_seed=1, progressbar=False)
    assert coreset.size < 10
    assert coreset.check(idata).reliable
    mean = DATA.sum() / (len(DATA) + 1)
    assert_allclose(idata["posterior"]["mu"].mean(), mean, atol=5 * len(DATA) ** -0.5 / 1_000**0.5)


@pytest.mark.parametrize(
    ("op", "facts"),
    [
        (AllAtOnce(), ("['AllAtOnce']", "observation 7")),
        (WithoutGradient(), ("gradient", "WithoutGradient")),
    ],
)
def test_other_black_boxes_are_refused_by_name(op, facts):
    with refused(UnsupportedModelError, facts):
        build_coreset(model_of(op), random_seed=1, progressbar=False)


def test_threads_share_a_loop_over_a_black_box():
    data, mu, several = pt.vector("data"), pt.scalar("mu"), pt.vector("several")
    one = RowByRow()(data, mu)
    function = pytensor.function(
        [several, data], vectorize_graph(one, {mu: several}), mode=loop_mode()
    ).vm.jit_fn
    means = np.arange(20.0)
    parts = [DATA[:n] for n in range(1, 400)]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda part: function(means, part), parts)
        for part, values in zip(parts, found, strict=True):
            assert_allclose(np.squeeze(values, axis=0), -((part - means[:, None]) ** 2) / 2)


# -- graphs of single precision --------------------------------------------------------------------


def test_graphs_are_made_anew_with_casts_and_symbolic_operations():
    single, double = pt.vector("x", dtype="float32"), pt.vector("x", dtype="float64")
    log_sum = pt.logsumexp(pt.cast(single**2, "float32"))
    first = pt.set_subtensor(pt.zeros(2, dtype="float32")[0], single.sum())
    parts = pt.stack([log_sum, first.sum(), pt.cast(single.shape[0], "float32")])
    [wide] = widened([parts], {single: double})
    found = pytensor.function([double], wide, mode="FAST_COMPILE")([1e-9, 1.0])
    assert_allclose(found, [1.3132616875182228, 1 + 1e-9, 2], rtol=1e-14)


def test_a_loop_of_single_precision_is_refused():
    x = pt.vector("x", dtype="float32")
    total = pytensor.scan(lambda a, b: a + b, x, x[0], return_updates=False)[-1]
    with refused(UnsupportedModelError, "floatX = 'float64'"):
        widened([total], {x: pt.vector("x", dtype="float64")})
