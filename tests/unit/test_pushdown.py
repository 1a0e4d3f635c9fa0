"""How a selection of rows, and sums over rows, move through a graph."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.graph.traversal import graph_inputs
from pytensor.raise_op import Assert
from pytensor.sparse import as_sparse_variable, structured_dot
from pytensor.sparse import dot as sparse_dot
from pytensor.tensor.linalg import cholesky, inv, slogdet, solve, solve_triangular
from pytensor.tensor.linalg.solvers.psd import cho_solve
from pytensor.tensor.math import Sum
from pytensor.tensor.special import log_softmax, softmax
from scipy import sparse

from pymc_coresets.compat.pytensor_api import dfs_rewriter
from pymc_coresets.loops.rewrites import inline_graphs
from pymc_coresets.reading.folding import numpy_function, values_of, with_constant_shapes
from pymc_coresets.reading.likelihood.joined_columns import join_columns
from pymc_coresets.reading.likelihood.row_terms import addends_of
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.pushdown import Pushdown, RowArray
from tests.modes import PLAIN_MODE

# -- Every rule against NumPy: the rows of the whole result, along every axis that it has. ---------

N = 6
VALUES = np.random.default_rng(1).normal(size=1000)
GROUPS = np.array([2, 0, 1, 1, 0, 2])
MEMBERS = np.array([3, 0, 5, 5, 0, 2, 1, 1, 5, 3, 0, 1, 2, 5])  # none of 4
MASK = np.array([True, False, True, True, False, True, True, False])

# x(...) is data that a parameter has touched: a rule has to bring the selection to it.
scale = pt.dscalar("scale")
vector, matrix = pt.dvector("vector", shape=(4,)), pt.dmatrix("matrix", shape=(4, 3))
free = pt.dvector("free")
PARAMETERS = {
    scale: 1.3,
    vector: VALUES[:4],
    matrix: VALUES[4:16].reshape(4, 3),
    free: VALUES[16:19],
}


def data(*shape):
    return pt.constant(VALUES[: np.prod(shape, dtype=int)].reshape(shape))


def x(*shape):
    return data(*shape) * scale


def sparse_data(*shape, layout="csr"):
    """Return a matrix whose first row is full, and whose others have an entry at most."""
    table = np.eye(*shape, k=1)
    table[0] = VALUES[: shape[1]]
    return as_sparse_variable(sparse.csr_matrix(table).asformat(layout))


def lower(*batch):
    """Well-conditioned lower triangles, one for each batch entry."""
    return pt.tril(x(*batch, 4, 4)) + 5 * pt.eye(4)


def two_outputs(a, b):
    inner = [pt.matrix(shape=a.type.shape), pt.vector(shape=b.type.shape)]
    return OpFromGraph(inner, [inner[0] + inner[1], pt.exp(inner[0]).sum(axis=1)])(a, b)


def loop(step, sequences, **options):
    return pytensor.scan(
        step, sequences, non_sequences=[scale], strict=True, return_updates=False, **options
    )


# name: (graph, axes where the selection stops and says so)
CASES = {
    # elementwise
    "broadcast vector": (lambda: x(N, 4) + vector, set()),
    "broadcast column": (lambda: x(N, 4) * x(N, 1), set()),
    "scalars": (lambda: pt.exp(x(N)) * scale + 2.0, set()),
    "switch": (lambda: pt.switch(GROUPS[:, None] > 0, x(N, 4), vector), set()),
    "outer": (lambda: pt.outer(x(N), x(4)), set()),
    "view": (lambda: ViewOp()(x(N, 4)), set()),
    "transposed": (lambda: x(4, N, 3).transpose(2, 0, 1), set()),
    "new axes": (lambda: x(N, 4)[None, :, None], set()),
    "squeezed": (lambda: x(1, N, 1, 4).squeeze(), set()),
    # reductions
    "sum": (lambda: x(4, N, 3).sum(axis=(0, 2)), set()),
    "sum over none": (lambda: x(N, 4).sum(axis=()), set()),
    "sum from the end": (lambda: Sum(axis=(-2,))(x(4, N)), set()),
    "mean, kept": (lambda: x(N, 4, 3).mean(axis=1, keepdims=True), set()),
    "max": (lambda: x(4, N).max(axis=-2), set()),
    "argmax": (lambda: pt.argmax(x(N, 4), axis=-1), set()),
    "logsumexp": (lambda: pt.logsumexp(x(4, N, 3), axis=(0, -1)), set()),
    "logsumexp, kept": (lambda: pt.logsumexp(x(N, 4), axis=1, keepdims=True), set()),
    # along an axis
    "softmax": (lambda: softmax(x(N, 4), axis=-1), {1}),
    "softmax over all": (lambda: softmax(x(N, 4), axis=None), {0, 1}),
    "log_softmax": (lambda: log_softmax(x(4, N), axis=0), {0}),
    "cumsum": (lambda: pt.cumsum(x(N, 4), axis=1), {1}),
    "cumsum of all": (lambda: pt.cumsum(x(N, 4)), {0}),
    "sort": (lambda: pt.sort(x(N, 4), axis=-1), {1}),
    "argsort": (lambda: pt.argsort(x(4, N), axis=0), {0}),
    # linear algebra
    "matrix-vector": (lambda: data(N, 4) @ vector, set()),
    "vector-matrix": (lambda: vector @ data(4, N), set()),
    "matrix-matrix": (lambda: x(N, 4) @ x(4, 5), set()),
    "batches": (lambda: x(5, N, 4) @ x(5, 4, 3), set()),
    "one matrix for all": (lambda: x(N, 2, 4) @ matrix, set()),
    "batch against batch": (lambda: x(N, 1, 3, 4) @ x(5, 4, 2), set()),
    "matvec": (lambda: pt.matvec(x(N, 3, 4), vector), set()),
    "vecmat": (lambda: pt.vecmat(x(N, 4), x(N, 4, 3)), set()),
    "vecdot": (lambda: pt.vecdot(x(N, 4), vector), set()),
    "einsum": (lambda: pt.einsum("nk,kj,nj->n", x(N, 4), matrix, x(N, 3)), set()),
    "tensordot": (lambda: pt.tensordot(x(N, 2, 4), x(4, 5), axes=[[2], [0]]), set()),
    "tensordot over the middle": (lambda: pt.tensordot(x(N, 4, 2), matrix, [[1], [0]]), set()),
    "tensordot, the vector first": (lambda: pt.tensordot(vector, x(N, 2, 4), [[0], [2]]), set()),
    "tensordot of many axes": (lambda: pt.tensordot(x(2, N, 3, 4), matrix, [[3], [0]]), set()),
    "tensordot of two": (lambda: pt.tensordot(x(N, 2, 3), x(2, 4, 3), [[2], [2]]), {0, 1, 2, 3}),
    "parameter split": (lambda: vector.reshape((2, 2)), {0, 1}),
    "dot with a vector": (lambda: pt.dot(x(N, 2, 4), vector), set()),
    "einsum with a vector": (lambda: pt.einsum("k,njk->nj", vector, x(N, 2, 4)), set()),
    "triangular solve": (lambda: solve_triangular(lower(), x(4, N), lower=True), {0}),
    "solve each": (
        lambda: solve_triangular(lower(), x(N, 4), lower=True, b_ndim=1),
        {1},
    ),
    "solve in batches": (lambda: solve(lower(N), x(N, 4, 5)), {1}),
    "solve with each": (lambda: solve(lower(N), x(4, 5)), {1}),
    "cho_solve": (lambda: cho_solve((lower(), True), x(4, N)), {0}),
    "cholesky": (lambda: cholesky(lower(N) @ lower(N).mT), {1, 2}),
    "slogdet": (lambda: slogdet(lower(N))[1], set()),
    "inverse": (lambda: inv(lower(N)), {1, 2}),
    # indexing by data
    "groups": (lambda: vector[GROUPS], set()),
    "groups from the end": (lambda: vector[GROUPS - 3], set()),
    "rows of groups": (lambda: matrix[GROUPS], set()),
    "columns of groups": (lambda: x(5, 4)[:, GROUPS], set()),
    "two indices": (lambda: matrix[GROUPS, GROUPS[::-1]], set()),
    "an index and a number": (lambda: x(3, 4, 5)[:, 2, GROUPS], set()),
    "indices that broadcast": (lambda: matrix[GROUPS[:, None], [0, 1]], set()),
    "table of indices": (lambda: x(5, 4)[:, GROUPS.reshape(2, 3)], set()),
    "between other axes": (lambda: x(5, 4, N)[:, GROUPS.reshape(2, 3)], set()),
    "two indices before an axis": (lambda: x(3, 4, 5)[GROUPS, GROUPS], set()),
    "index after a new axis": (lambda: x(4, 3)[None, :, GROUPS], set()),
    "indices apart": (lambda: x(3, N, 4)[GROUPS, :, GROUPS], {0, 1}),
    "indices before a slice": (lambda: x(3, 4, 5)[GROUPS, GROUPS, :4], {1}),
    "index that is computed": (lambda: vector[pt.argmax(x(N, 4), axis=1)], set()),
    "mask": (lambda: x(8, 4)[MASK], {1}),
    "mask of a column": (lambda: x(4, 8)[:, MASK], {0}),
    "mask of both axes": (lambda: x(4, 3)[VALUES[:12].reshape(4, 3) > 0], {0}),
    "nested": (lambda: x(9, 4)[1:][MASK][::-1][GROUPS[1:4]], {1}),
    "permuted, then masked": (lambda: (x(8)[np.argsort(VALUES[:8])] + x(8))[MASK], set()),
    # basic indexing
    "number first": (lambda: x(3, N, 4)[1], set()),
    "number in the middle": (lambda: x(N, 3, 4)[:, -1], set()),
    "number last": (lambda: x(N, 4)[..., 2], set()),
    "slice of another axis": (lambda: x(N, 4)[:, 1:3], set()),
    "slice": (lambda: x(9, 4)[2:8:2], set()),
    "slice to the end": (lambda: x(9, 4)[-3:, 1], set()),
    "reversed": (lambda: x(N, 4)[::-1], set()),
    "back in steps": (lambda: x(9, 4)[7:1:-2, ::-1], set()),
    # setting parts
    "set column": (lambda: x(N, 4)[:, 1].set(x(N)), {1}),
    "set column to a number": (lambda: x(N, 4)[:, 1].set(scale), {1}),
    "add to columns": (lambda: x(N, 4)[:, 1:3].inc(x(2)), {1}),
    "set to one row": (lambda: x(N, 4, 3)[:, 2].set(x(1, 3)), {1}),
    "set row": (lambda: x(N, 4)[2].set(vector), {0}),
    "set in the middle": (lambda: x(3, N, 4)[1, :, 2].set(x(N)), {0, 2}),
    "set all but the first axis": (lambda: x(3, 4, N)[1].set(x(N)), {0}),
    "set by index": (lambda: x(N, 4)[GROUPS[:3]].set(0.0), {0}),
    "set columns by index": (lambda: x(N, 4)[:, [0, 2]].set(x(N, 2)), set()),
    "add to columns by index": (lambda: x(N, 4)[:, [0, 2, 0]].inc(x(3)), {1}),
    "set by a table": (lambda: x(4, N, 3)[[[0, 1], [2, 3]]].set(x(2, 2, N, 3)), {0}),
    "set rows of others by index": (lambda: x(4, N)[[0, 2]].set(x(N)), {0}),
    "set by indices apart": (lambda: x(3, N, 4)[[0, 1], :, [0, 2]].set(x(2, N)), {0, 1, 2}),
    "set by a mask": (lambda: x(8, N)[MASK].set(scale), {0, 1}),
    # loops
    "loop": (lambda: loop(lambda now, k: pt.exp(k * now), [x(N, 4)]), set()),
    "loop of fewer steps": (
        lambda: loop(lambda a, b, k: a.sum() * k + b, [x(9, 4), x(9)], n_steps=N),
        set(),
    ),
    "ragged loop": (
        lambda: loop(lambda n, k: pt.logsumexp(-k * pt.arange(n + 1)), [pt.constant(GROUPS)]),
        set(),
    ),
    "loop with a state": (
        lambda: loop(lambda now, last, k: k * last + now, [x(N)], outputs_info=[x(1)[0]]),
        {0},
    ),
    "loop that repeats": (lambda: loop(lambda now, k: pt.exp(k), [x(N)]), {0}),
    # shapes
    "part of one of those joined": (lambda: pt.concatenate([x(4), x(8)])[4:10] * scale, set()),
    "parts of two of those joined": (lambda: pt.concatenate([x(4), x(8)])[2:8], {0}),
    "joined, of several lengths": (lambda: pt.join(1, x(4, 2), x(4, N), x(4, 3))[:, 2:8], set()),
    "concatenated on another axis": (lambda: pt.join(-1, x(N, 4), data(N, 1)), {1}),
    "stacked": (lambda: pt.stack([x(N), x(N) ** 2, data(N)], axis=1), {1}),
    "reshape splits": (lambda: x(N, 4).reshape((N, 2, 2)), set()),
    "long form": (lambda: pt.exp(data(4 * N, 4) @ vector).reshape((N, 4)), set()),
    "long form, three axes": (lambda: pt.exp(x(2 * N * 2)).reshape((2, N, 2)), set()),
    "long form, broadcast": (lambda: (x(4 * N, 2) + x(1, 2)).reshape((N, 4, 2)), set()),
    "long form, one matrix": (lambda: (x(4 * N, 4) @ matrix).reshape((N, 4, 3)), set()),
    "long form, a lookup": (lambda: vector[np.arange(4 * N) % 4].reshape((N, 4)), set()),
    "long form, a reduction": (lambda: x(2, 4 * N, 3).sum(axis=(0, 2)).reshape((N, 4)), set()),
    "sums of members": (lambda: pt.zeros(N)[MEMBERS].inc(pt.exp(x(14))), set()),
    "sums of members, backwards": (lambda: x(N, 3)[-1 - MEMBERS].inc(x(14, 4) @ matrix), set()),
    "sums of members, lookups": (
        lambda: pt.zeros(N)[MEMBERS].inc(pt.exp(vector[np.arange(14) % 4] * x(14))),
        set(),
    ),
    "members put in place": (lambda: pt.zeros(N)[MEMBERS[:5]].set(x(5)), {0}),
    "sums of one number": (lambda: pt.zeros(N)[MEMBERS].inc(scale), {0}),
    "sums over unequal groups": (lambda: pt.zeros(3 * N)[[2] * 12].inc(x(12)), {0}),
    "long form, a parameter": (lambda: (vector * scale).reshape((2, 2)), {0, 1}),
    "long form, an index of two": (
        lambda: matrix[np.arange(4 * N) % 4, np.arange(4 * N) % 3].reshape((N, 4)),
        set(),
    ),
    "long form, lookups in columns": (
        lambda: matrix.T[:, np.arange(4 * N) % 4].reshape((3, N, 4)),
        set(),
    ),
    "long form, filled": (lambda: (pt.full((4 * N,), scale) + x(1)).reshape((N, 4)), set()),
    "long form, a softmax": (lambda: softmax(x(4 * N, 3), axis=1).reshape((N, 4, 3)), {2}),
    "reshape joins": (lambda: x(2, 3, 4, 5).reshape((6, 4, -1)), {0}),
    "reshape drops": (lambda: x(1, N, 1).reshape((N,)), set()),
    "reshape mixes": (lambda: x(2, 3, 4).reshape((3, 2, 4)), {0, 1}),
    "ravel": (lambda: x(N, 4).reshape((-1,)), {0}),
    "join_dims": (lambda: pt.join_dims(x(N, 2, 2, 3), 1, 2), {1}),
    "join_dims of length 1": (lambda: pt.join_dims(x(4, 1, N), 1, 2), set()),
    "join_dims of none": (lambda: pt.join_dims(x(N, 4), 1, 0), set()),
    "split_dims": (lambda: pt.split_dims(x(N, 4, 3), (2, 2), axis=1), {1, 2}),
    "alloc": (lambda: pt.alloc(scale, N, 4), set()),
    "alloc of rows": (lambda: pt.alloc(x(N, 1), 3, N, 4), set()),
    "broadcast_to": (lambda: pt.broadcast_to(vector, (N, 4)), set()),
    "masked alloc": (lambda: pt.alloc(scale, 8, 4)[MASK], {1}),
    "repeat": (lambda: pt.repeat(x(3, 4), [1, 3, 2], axis=0), set()),
    "repeat equally": (lambda: pt.repeat(x(3, 4), 2, axis=0), {0}),
    "repeat of any length": (lambda: pt.repeat(free, [1, 3, 2]), {0}),
    "repeat once": (lambda: pt.repeat(x(4, 3), [1, 0, 1, 1], axis=0), set()),
    "split": (lambda: pt.split(x(N, 5, 4), [2, 3], axis=1)[1], {1}),
    "specify_shape": (lambda: pt.specify_shape(x(N, 4), (N, None)), set()),
    # sparse matrices
    "sparse rows": (lambda: structured_dot(sparse_data(N, 4), matrix), set()),
    "sparse rows and a vector": (
        lambda: sparse_dot(sparse_data(N, 4, layout="csc"), vector),
        set(),
    ),
    "sparse columns": (lambda: structured_dot(x(5, 4), sparse_data(N, 4).T), set()),
    "sparse columns and a vector": (lambda: sparse_dot(vector, sparse_data(N, 4).T), set()),
    "sparse columns on the right": (lambda: sparse_dot(x(5, 4), sparse_data(N, 4).T), set()),
    "sparse, one long row": (lambda: structured_dot(sparse_data(40, 40), x(40, 2)), {0, 1}),
    "sparse, a parameter": (lambda: structured_dot(sparse_data(N, 4) * scale, matrix), {0, 1}),
    # graphs in graphs
    "first of two outputs": (lambda: two_outputs(x(N, 4), vector)[0], set()),
    "second of two outputs": (lambda: two_outputs(x(N, 4), vector)[1], set()),
    "logaddexp": (lambda: pt.logaddexp(x(N, 4), vector), set()),
    "Assert": (lambda: Assert()(x(N, 4), pt.gt(scale, 0)), set()),
    # no rule
    "diagonal": (lambda: pt.diagonal(x(N, N)), {0}),
    "rolled": (lambda: pt.roll(x(N), 1) + x(N), {0}),
    "unselected below a mask": (lambda: pt.cumsum(x(8))[MASK], {0}),
}


def call(graph, values):
    mode = Mode(linker="py", optimizer="None").register((dfs_rewriter(inline_graphs), 1))
    function = pytensor.function(list(values), graph, mode=mode, on_unused_input="ignore")
    return function(*values.values())


def select(graph, axis, rows, n_obs, parameters=PARAMETERS):
    """The rows of `graph` by the rules, and what the pushdown reports."""
    pushdown = Pushdown(parameters, n_obs)
    selected = pushdown.select(graph, axis)
    arrays = {array.placeholder: array.take(rows) for array in pushdown.row_arrays()}
    return call(selected, parameters | {pushdown.n_rows: len(rows)} | arrays), pushdown


AXES = [
    pytest.param(
        build,
        axis,
        axis in stops,
        id=f"{name}, axis {axis}",
        marks=[pytest.mark.slow] * (name == "ragged loop"),
    )
    for name, (build, stops) in CASES.items()
    for axis, length in enumerate(build().type.shape)
    if length != 1
]


@pytest.mark.parametrize(("build", "axis", "stops"), AXES)
def test_rows_are_those_of_the_whole(build, axis, stops):
    [graph] = with_constant_shapes([build()])
    whole = call(graph, PARAMETERS)
    n_obs = whole.shape[axis]
    rows = np.array([1, 0, n_obs - 1, 1])
    selected, pushdown = select(graph, axis, rows, n_obs)
    assert selected == pytest.approx(np.take(whole, rows, axis=axis), rel=1e-12)
    assert bool(pushdown.unselected) == stops


def test_no_rows():
    graph = pt.logsumexp(x(N, 4) + vector, axis=1)
    assert select(graph, 0, np.array([], dtype=int), N)[0].shape == (0,)


# -- checks ----------------------------------------------------------------------------------------


def checked(logp, *conditions):
    return CheckParameterValue("check")(logp, *map(pt.all, conditions))


ROWS = np.array([5, 3, 0])
EACH, TABLE = VALUES[:N] > 0, VALUES[: N * 4].reshape(N, 4) > -1


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ([x(N) > 0], EACH),
        ([x(N) <= 0, x(N) > 0], np.zeros(N, dtype=bool)),
        ([x(N, 4) > -1.3], TABLE.all(axis=1)),
        ([data(N) > 0], EACH),
        ([x(N) > 0, x(N, 4) > -1.3], EACH & TABLE.all(axis=1)),
        ([pt.stack([pt.all(x(N) > 0), scale > 0])], EACH),
        ([pt.exp(x(N)) > 0, pt.sigmoid(x(N)) <= 1.0], np.ones(N, dtype=bool)),
        ([pt.exp(x(N)) > 1, pt.sigmoid(x(N)) >= 0.5], EACH),
        ([pt.sigmoid(x(N)) <= 0.5], ~EACH),
        ([scale > 0, vector > -9], np.ones(N, dtype=bool)),
        ([scale < 0], np.zeros(N, dtype=bool)),
        ([vector > 1e3], np.zeros(N, dtype=bool)),
    ],
)
def test_check_holds_row_by_row(conditions, holds):
    selected, pushdown = select(checked(x(N) ** 2, *conditions), 0, ROWS, N)
    expected = np.where(holds, (1.3 * VALUES[:N]) ** 2, -np.inf)[ROWS]
    assert selected == pytest.approx(expected)
    assert not pushdown.unselected
    assert not pushdown.local


def test_check_of_columns_is_not_one_of_rows():
    """Where there are as many columns as rows, a condition belongs to the last axes."""
    graph = checked(x(4, 4), vector > np.median(VALUES[:4]))
    assert np.isneginf(select(graph, 0, np.array([0, 1, 2, 3]), 4)[0]).all()


def test_check_below_a_mask():
    logp, condition = x(8), x(8) > 0
    selected, _ = select(checked(logp, condition)[MASK], 0, np.arange(5), 5)
    assert selected == pytest.approx(np.where(VALUES[:8] > 0, 1.3 * VALUES[:8], -np.inf)[MASK])


# -- what is reported ------------------------------------------------------------------------------


def test_unselected_place_is_named():
    walk = pt.cumsum(x(N))
    walk.name = "walk"
    _, pushdown = select(pt.exp(walk), 0, ROWS, N)
    place = pushdown.unselected[0]
    assert "walk" in place
    assert "cumulative sum" in place


@pytest.mark.parametrize(
    ("graph", "local"),
    [(data(4) + pt.exp(vector), True), (data(N) + pt.exp(vector)[GROUPS], False)],
)
def test_local_parameters(graph, local):
    _, pushdown = select(graph, 0, np.array([1, 3]), graph.type.shape[0])
    assert pushdown.local == ({vector} if local else set())


def test_data_are_one_row_array_however_often_they_occur():
    covariate = data(N, 4)
    pushdown = Pushdown(PARAMETERS, N)
    first = pushdown.select(covariate @ vector, 0)
    second = pushdown.select(pt.exp(covariate * scale).sum(axis=1), 0)
    [array] = pushdown.row_arrays()
    assert array.values == pytest.approx(VALUES[: N * 4].reshape(N, 4))
    assert array.placeholder in set(graph_inputs([first]))
    assert array.placeholder in set(graph_inputs([second]))


def test_data_are_prepared_once_and_not_once_a_block():
    """The largest part without parameters is the row array."""
    pushdown = Pushdown(PARAMETERS, N)
    pushdown.select(pt.log(data(N) ** 2) * scale, 0)
    [array] = pushdown.row_arrays()
    assert array.values == pytest.approx(np.log(VALUES[:N] ** 2))


def test_row_array():
    source = pt.constant(np.arange(12.0).reshape(3, 4), name="X")
    array = RowArray(source.type(), pt.exp(source), source.data, axis=1)
    assert array.name == "X"
    assert array.take(np.array([3, 0])) == pytest.approx(source.data[:, [3, 0]])
    assert np.shares_memory(array.take(slice(1, 3)), source.data)


def test_depends():
    pushdown = Pushdown([scale], N)
    found = [pushdown.depends(v) for v in (scale, pt.exp(scale) + data(N), data(N), vector)]
    assert found == [True, True, False, False]


def test_evaluate_keeps_the_order_of_repeated_variables():
    one, two = pt.constant(1.0), pt.constant(1.0) + 1
    assert [float(v) for v in values_of([two, one, two])] == [2, 1, 2]


def test_an_index_that_counts_the_rows_needs_none_of_the_others():
    probabilities = x(N, 3)
    labels = pt.as_tensor(np.arange(N) % 3)
    picked = probabilities[pt.arange(N), labels]
    values, pushdown = select(picked, 0, ROWS, N)
    np.testing.assert_allclose(values, call(picked, PARAMETERS)[ROWS])
    assert {array.values.shape for array in pushdown.row_arrays()} == {(N, 3), (N,)}


def test_data_used_as_a_whole_are_named():
    data = pt.constant(np.arange(float(N)), name="dose")
    eta = scale * data
    pushdown = Pushdown(PARAMETERS, N)
    assert pushdown.taken_whole(pushdown.select(eta - eta.mean(), 0)) == ["dose (as a whole)"]
    assert pushdown.taken_whole(pushdown.select(pt.exp(eta), 0)) == []


def test_a_local_parameter_below_a_mask_is_found():
    local = pt.vector("local", shape=(8,))
    pushdown = Pushdown([scale, local], MASK.sum())
    pushdown.select((scale * local)[MASK], 0)
    assert pushdown.local == {local}


def test_a_lookup_of_distinct_groups_is_no_local_parameter():
    pushdown = Pushdown(PARAMETERS, 2)
    pushdown.select((scale * vector)[[2, 0]], 0)
    assert pushdown.local == set()


def test_as_many_rows_as_groups_are_no_reason_to_take_a_check_for_one_of_rows():
    shares = pt.vector("shares", shape=(3,))
    checked = CheckParameterValue()(x(3, 3) @ shares, pt.all(shares >= 0))
    pushdown = Pushdown([scale, shares], 3)
    pushdown.select(checked, 0)
    assert pushdown.local == set()


def test_nested_masks_are_followed_in_linear_time():
    walk = x(60)
    for _ in range(40):
        walk = pt.exp(walk[1:] * 0.1)
    pushdown = Pushdown(PARAMETERS, 20)
    pushdown.select(walk, 0)
    assert pushdown.unselected == []


# -- Long sums of coefficients times columns become products with one matrix; nothing else does. ---

RNG = np.random.default_rng(4)
N_JOINED, K = 7, 12
DATA = RNG.normal(size=(N_JOINED, K + 2))
COUNTS = RNG.integers(0, 5, size=(N_JOINED, K))
B = pt.tensor("b", shape=(K,), dtype="float64")
S = pt.dscalar("s")
X = [pt.constant(column) for column in DATA.T]


def equation(i):
    return sum(B[(i + j) % K] * X[j] for j in range(K))


def terms(n=K):
    return sum((B[j] * X[j] for j in range(n)), pt.as_tensor(0.0))


#: Each graph, and the shapes of the matrices that it is to have.
GRAPHS = {
    "a predictor": (lambda: 2.0 + S + terms(), [(N_JOINED, K)]),
    "few terms": (lambda: S + terms(3), []),
    "products of coefficients": (
        lambda: sum(S * B[j] * X[j] for j in range(K)),
        [(N_JOINED, K)],
    ),
    "whole numbers": (lambda: sum(B[j] * COUNTS[:, j] for j in range(K)), [(N_JOINED, K)]),
    "a column twice": (lambda: terms() + S * X[3], [(N_JOINED, K)]),
    "several equations": (
        lambda: pt.stack([equation(i) for i in range(3)], axis=1),
        [(N_JOINED, K)],
    ),
    "powers": (lambda: sum(B[j] * X[j] ** 2 for j in range(K)), [(N_JOINED, K)]),
    "products of columns": (lambda: terms() + S * X[12] * X[13], [(N_JOINED, K)]),
    "a matrix": (lambda: terms() + DATA[:, :K] @ B, [(N_JOINED, K)]),
    "two predictors": (lambda: terms() * pt.exp(1.0 - terms()), [(N_JOINED, K)]),
    "a sum in a sum": (
        lambda: terms() + pt.exp(S + terms(11)),
        [(N_JOINED, 11), (N_JOINED, K)],
    ),
    "a column elsewhere": (lambda: terms() * X[2], [(N_JOINED, K)]),
    "differences": (lambda: X[12] - terms(), [(N_JOINED, K)]),
    "a name": (lambda: terms(9) + S * pt.constant(DATA[:, 9], name="age"), []),
    "functions of both": (lambda: sum(pt.exp(B[j] * X[j]) for j in range(K)), []),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_joined_columns_have_the_same_values(name):
    build, shapes = GRAPHS[name]
    pushdown = Pushdown([B, S], N_JOINED)
    selected = pushdown.select(build(), 0)
    rows, b = pushdown.row_arrays(), RNG.normal(size=K)

    def values(graph, rows):
        function = numpy_function([B, S, *(row.placeholder for row in rows)], [graph])
        return function(b, 0.7, *(row.values for row in rows))[0]

    expected = values(selected, rows)
    [joined], found = join_columns([selected], rows)
    np.testing.assert_allclose(values(joined, found), expected, rtol=1e-12)
    matrices = [row for row in found if row.values.ndim == 2 and row not in rows]
    assert sorted(row.values.shape for row in matrices) == shapes
    for row in matrices:
        np.testing.assert_allclose(pt.as_tensor(row.source).eval(), row.values, rtol=1e-15)


def test_a_variable_of_the_model_shares_the_matrix():
    with pm.Model() as model:
        a, b = pm.Normal("a"), [pm.Normal(f"b{j}") for j in range(K)]
        mu = pm.Deterministic("mu", a + sum(b[j] * DATA[:, j] for j in range(K)))
        pm.Normal("y", mu, 1.0, observed=DATA[:, K])
    assert [row.values.shape for row in find_observations(model).rows] == [
        (N_JOINED,),
        (N_JOINED, K),
    ]


def test_containers_stay_apart():
    with pm.Model() as model:
        mu = sum(pm.Normal(f"b{j}") * pm.Data(f"x{j}", DATA[:, j]) for j in range(K))
        pm.Normal("y", mu, 1.0, observed=DATA[:, K])
    assert {row.name for row in find_observations(model).rows} >= {f"x{j}" for j in range(K)}


# -- A number that is a sum comes apart into arrays whose sums add up to it. -----------------------

N_TERMS = 7
SUMMED = np.random.default_rng(1).normal(size=(N_TERMS, 3))
s, b = pt.dscalar("s"), pt.dvector("b", shape=(3,))
POINT = {s: 1.3, b: np.array([0.2, -0.5, 0.7])}
terms_sums, few = pt.constant(SUMMED[:, 0]) * s, b**2
table = pt.constant(SUMMED) * b


def checked_sums(x):
    return CheckParameterValue("positive")(x, pt.all(s > 0))


# name: (graph, axis, lengths of the sums, or None for what is no sum)
SUMS = {
    "sum": (terms_sums.sum(), 0, [N_TERMS]),
    "of all entries": (table.sum(), 0, [N_TERMS]),
    "over one axis, then the other": (table.sum(axis=1).sum(), 0, [N_TERMS]),
    "two": (terms_sums.sum() + few.sum(), 0, [N_TERMS, 3]),
    "difference": (pt.log(s) - terms_sums.sum(), 0, [N_TERMS, None]),
    "difference from a sum": (terms_sums.sum() - few.sum() - s, 0, [N_TERMS, 3, None]),
    "negative": (-(terms_sums.sum() - s), 0, [N_TERMS, None]),
    "factor": (-0.5 * s * terms_sums.sum() * b[0], 0, [N_TERMS]),
    "factor that is a shorter sum": (few.sum() * terms_sums.sum(), 0, [N_TERMS]),
    "square of a number": (s * s + terms_sums.sum(), 0, [N_TERMS, None]),
    "square of a sum": (terms_sums.sum() ** 2, 0, [None]),
    "quotient": ((terms_sums.sum() + few.sum()) / s, 0, [N_TERMS, 3]),
    "divisor": (s / terms_sums.sum(), 0, [None]),
    "mean": (terms_sums.mean(), 0, [N_TERMS]),
    "product of vectors": (pt.dot(terms_sums, terms_sums) / s, 0, [N_TERMS]),
    "check": (2.0 * checked_sums(terms_sums.sum() - s), 0, [N_TERMS, None]),
    "new axis": ((terms_sums.sum()[None] + b[:1]).sum(), 0, [N_TERMS, None]),
    "function of a sum": (pt.exp(terms_sums.sum()), 0, [None]),
    "of several series": (b + table.sum(axis=0), 0, None),
    "of several series, by the other axis": (s + 2 * b + table.T.sum(axis=1), 1, [N_TERMS, None]),
    "of several series, scaled one by one": (b * table.T.sum(axis=1), 1, [None]),
    "of several series, and in all": (table.T.sum(), 1, [N_TERMS]),
    "of several series, added up first": (table.T.sum(axis=0).sum(), 1, [None]),
    "number": (pt.log(s), 0, [None]),
}


def value(graph):
    function = pytensor.function([s, b], graph, mode=PLAIN_MODE, on_unused_input="ignore")
    return function(*POINT.values())


@pytest.mark.parametrize("name", [n for n, (_, _, lengths) in SUMS.items() if lengths])
def test_sums_add_up(name):
    total, axis, lengths = SUMS[name]
    parts = addends_of(total, axis, N_TERMS if axis else 0)
    found = [p.variable.type.shape[p.axes[0]] if p.axes else None for p in parts]
    assert sorted(found, key=str) == sorted(lengths, key=str)
    whole = value([total.sum(), *(part.variable.sum() for part in parts)])
    np.testing.assert_allclose(whole[0], sum(whole[1:]), rtol=1e-12)
