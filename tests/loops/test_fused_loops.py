"""Programs of fused loops compute what PyTensor's own mode computes, in any thread."""

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numba.core.event
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import Mode
from pytensor.graph import FunctionGraph, RewriteDatabaseQuery, vectorize_graph
from pytensor.scalar import Composite

from pymc_coresets.compat import pytensor_api
from pymc_coresets.compat.pytensor_api import BatchedDot, BlockwiseWithCoreShape, Dot
from pymc_coresets.loops import compilation, fused_loops
from pymc_coresets.loops.density_loops import density_mode
from pymc_coresets.loops.fused_loops import Kernel, loop_mode

pytestmark = pytest.mark.compiled

STABLE = ("canonicalize", "stabilize", "specialize", "local_check_parameter_to_ninf_switch")
PLAIN_MODE = Mode("py", RewriteDatabaseQuery(include=STABLE))
RNG = np.random.default_rng(11)
X, B, D = RNG.normal(size=(40, 3)), RNG.normal(size=(7, 3)), np.abs(RNG.normal(size=(7, 4)))
GROUP = RNG.integers(0, 3, size=40)


def compiled(inputs, graph, n_given=0):
    return pytensor.function(inputs, [graph], mode=loop_mode(n_given)).vm.jit_fn


x, b, d = pt.dmatrix("x"), pt.dmatrix("b"), pt.dmatrix("d")
group = pt.lvector("group")


def of_each_draw(build, **inputs):
    """Batch a graph of one draw's vector over the rows of b."""
    one = pt.dvector("one")
    return vectorize_graph(build(one, **inputs), {one: b})


def joined(one, x):
    return pt.join(1, x, pt.exp(x), pt.zeros_like(x) + one)


GRAPHS = {
    "a product": pt.log1p(pt.exp(x @ b.T)).T,
    "many products": pt.matmul(x[None], b[:, :, None])[..., 0],
    "indexing": pt.exp(b[:, group]) - x[:, 0],
    "a softmax": of_each_draw(lambda one, x: pt.special.log_softmax(x * one, axis=1), x=x),
    "a sum of exponentials": of_each_draw(lambda one, x: pt.logsumexp(x * one, axis=1), x=x),
    "a join of unequal batches": of_each_draw(joined, x=x),
    "draws before and after rows": (b.sum(axis=1)[:, None] + x[:7, :1]) * pt.exp(b.sum()),
    "sorted draws": of_each_draw(lambda one, x: pt.sort(one)[group] + x[:, 1], x=x),
    "triangular matrices of draws": of_each_draw(
        lambda one, x: pt.linalg.solve_triangular(
            pt.linalg.cholesky(pt.eye(3) + pt.outer(one, one)), x.T, lower=True
        ),
        x=x,
    ),
    "sums by group at each draw": pt.zeros_like(b)[:, group].inc(
        pt.exp(b.sum(axis=1)[:, None] + x[:, 0])
    ),
    "sums of rows by group": pt.zeros((7, 4, 3))[:, group].inc(b[:, None] * x),
    "no rows at all": pt.exp(b) + 1.0,
    "an input itself": x,
    "a constant": pt.constant(np.arange(3.0)),
}


#: Long to compile; the models with matrices of draws compile the last ones, too.
SLOW = {
    ("sorted draws", 0),
    *(("draws before and after rows", g) for g in (0, 1)),
    ("a softmax", 0),
    *(("a sum of exponentials", g) for g in (0, 1)),
    *(("triangular matrices of draws", g) for g in (0, 1)),
}


@pytest.mark.parametrize(
    ("name", "n_given"),
    [
        pytest.param(n, g, marks=[pytest.mark.slow] * ((n, g) in SLOW))
        for n in GRAPHS
        for g in (0, 1)
    ],
)
def test_results_are_those_of_numpy(name, n_given):
    inputs, values = [b, x, group], [B, X, GROUP]
    program = compiled_unused(inputs, GRAPHS[name], n_given)
    plain = pytensor.function(inputs, GRAPHS[name], mode=PLAIN_MODE, on_unused_input="ignore")
    expected = plain(*values)
    np.testing.assert_allclose(program(*values)[0], expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        program.given(*values[:n_given])(*values[n_given:])[0], expected, rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(
    ("index", "added"),
    [([0, 9], np.ones((7, 2))), ([-8, 0], np.ones((7, 2))), ([0, 1], np.ones((7, 1)))],
)
def test_sums_by_group_stay_within_their_array(index, added):
    y = pt.dmatrix("y")
    program = compiled([b, y, group], b[:, group].inc(y))
    with pytest.raises((IndexError, ValueError), match=r"out of bounds|fit in places"):
        program(B, added, np.array(index))


def compiled_unused(inputs, graph, n_given):
    function = pytensor.function(inputs, [graph], mode=loop_mode(n_given), on_unused_input="ignore")
    return function.vm.jit_fn


def test_what_is_given_is_computed_once(monkeypatch):
    runs = []
    performed = fused_loops._performed

    def counting(node):
        function = performed(node)

        def run(*inputs):
            runs.append(node.op)
            return function(*inputs)

        return run

    monkeypatch.setattr(fused_loops, "direct_call", lambda op, node: counting(node))
    evaluate = compiled([b, x], pt.exp(b @ b.T)[0, 0] * x, n_given=1).given(B)
    n_products = sum(isinstance(op, Dot) for op in runs)
    results = [evaluate(X)[0] for _ in range(3)]
    assert n_products == sum(isinstance(op, Dot) for op in runs) == 1
    np.testing.assert_array_equal(results[0], results[2])


def test_what_is_of_rows_alone_is_computed_once_for_several_that_are_given():
    """And not written into, though a program may write into what it computes itself."""
    graph = (x.T @ x)[1:].sum() * b + pt.set_subtensor((x.T @ x)[0], b[0])
    program = compiled([b, x], graph, n_given=1)
    others = [RNG.normal(size=(3, 3)) for _ in range(3)]
    of_rows = program.of_rows(X)
    for own in [*others, others[0]]:
        [found] = program.given(own).at(of_rows)
        np.testing.assert_array_equal(found, program(own, X)[0])
        product = X.T @ X
        product[0] = own[0]
        np.testing.assert_allclose(found, (X.T @ X)[1:].sum() * own + product, rtol=1e-12)


def test_threads_share_a_program():
    evaluate = compiled([b, x], pt.log1p(pt.exp(x @ b.T)) + x[:, 0][:, None], n_given=1).given(B)
    blocks = [RNG.normal(size=(n, 3)) for n in range(1, 200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda block: evaluate(block)[0], blocks))
    for block, values in zip(blocks, found, strict=True):
        np.testing.assert_allclose(values, np.logaddexp(0, block @ B.T) + block[:, :1], rtol=1e-12)


def test_arrays_are_let_go_when_they_have_been_used():
    """Ten functions one after another of a vector of 8 MB: two of them at a time."""
    graph = z = pt.dvector("z")
    for i in range(10):
        graph = pt.cumsum(graph) + i
    program = compiled([z], graph)
    values = np.full(10**6, 1e-9)
    program(values)
    tracemalloc.start()
    program(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * values.nbytes


def test_inputs_are_not_written_into():
    program = compiled([b, x], pt.set_subtensor(x[0], 1.0) + pt.exp(x) + b[0])
    copies = B.copy(), X.copy()
    program(B, X)
    np.testing.assert_array_equal(B, copies[0])
    np.testing.assert_array_equal(X, copies[1])


def test_products_have_the_layout_of_the_other_arrays():
    function = pytensor.function([b, x], [(x @ b.T).T + 1.0], mode=loop_mode())
    [product] = [n for n in function.maker.fgraph.toposort() if isinstance(n.op, Dot)]
    clients = function.maker.fgraph.clients[product.outputs[0]]
    assert not any("Transpose" in str(node.op) for node, _ in clients)
    np.testing.assert_allclose(function(B, X), [B @ X.T + 1.0], rtol=1e-12)


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[:, group]])
def test_loops_run_along_rows(view, monkeypatch):
    orders = []
    compiled_function = fused_loops.compiled_loop

    def watched(node):
        function = compiled_function(node)

        def call(*inputs):
            orders.extend(a.flags.c_contiguous for a in inputs if np.ndim(a) > 1)
            return function(*inputs)

        return call

    monkeypatch.setattr(fused_loops, "compiled_loop", watched)
    scaled = x * 1.5
    program = pytensor.function(
        [b, x, group],
        [pt.exp(view(scaled)) + 1.0, scaled @ b.T],
        mode=loop_mode(),
        on_unused_input="ignore",
    ).vm.jit_fn
    program(B, X, GROUP % 3)
    assert orders
    assert all(orders)


def test_short_operations_are_compiled_as_part_of_their_loop():
    names = []

    class Watch(numba.core.event.Listener):
        def on_start(self, event):
            names.append(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event):
            pass

    graph = pt.exp(-x * (d[:, :3] + x)) / (1 + x**2)
    with (
        pytensor.config.change_flags(numba__cache=False),
        numba.core.event.install_listener("numba:compile", Watch()),
    ):
        function = pytensor.function([x, d], graph, mode=loop_mode())
        found = function(X[:7], D)
    np.testing.assert_allclose(found, graph.eval({x: X[:7], d: D}, mode=PLAIN_MODE), rtol=1e-14)
    assert {"loop", "numba_composite"} <= {*names}
    assert not {"add", "mul", "negative", "neg", "square", "sqr"} & {*names}


def test_no_loop_stores_choices_in_single_precision_beside_others():
    """It would not be vectorised.  The supports of PyMC's densities are such choices."""
    size = pt.dcol("size")
    inside = pt.switch(size > 0, *(pt.constant(v, dtype="float32") for v in (0.0, -np.inf)))
    graph = pt.exp(x) * pt.gammaln(abs(size)) + pt.switch(x > 0, inside, x)
    assert inside.type.dtype == "float32"
    function = pytensor.function([x, size], graph, mode=loop_mode())
    expected = graph.eval({x: X[:7], size: B[:, :1]}, mode=PLAIN_MODE)
    np.testing.assert_allclose(function(X[:7], B[:, :1]), expected, rtol=1e-13)
    types = {v.type.dtype for node in function.maker.fgraph.apply_nodes for v in node.outputs}
    assert "float32" not in types
    # What is single precision in the result stays so.
    assert pytensor.function([size], inside, mode=loop_mode())(B[:, :1]).dtype == "float32"


@pytest.mark.parametrize("looked_up", [False, True])
def test_what_is_summed_and_used_as_it_is_is_compiled_into_its_loop(looked_up):
    """A loop that calls a function for each number is not vectorised, and takes ten times."""
    scale = d[:, GROUP % 3] if looked_up else d[:, : len(GROUP)]
    values = pt.switch(x > 0, scale * pt.sigmoid(x), -scale * pt.sigmoid(-x))
    graphs = [values, values.sum(axis=0)]
    of_arrays = {x: np.resize(X, (len(D), len(GROUP))), d: np.resize(D, (len(D), len(GROUP)))}
    function = pytensor.function([x, d], graphs, mode=loop_mode())
    found = function(*of_arrays.values())
    for own, graph in zip(found, graphs, strict=True):
        np.testing.assert_allclose(own, graph.eval(of_arrays, mode=PLAIN_MODE), rtol=1e-14)
    loops = [
        node.op
        for outer in function.maker.fgraph.apply_nodes
        if isinstance(outer.op, pytensor_api.FusedElemwise)
        for node in outer.op.fgraph.apply_nodes
        if isinstance(node.op, pytensor_api.Elemwise)
    ]
    assert loops
    assert not any(type(op.scalar_op) is Composite for op in loops)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("b_ndim", [1, 2])
def test_small_systems_are_solved_without_lapack(size, lower, b_ndim):
    rng = np.random.default_rng(size)
    matrices = rng.normal(size=(5, size, size)) + 3 * np.eye(size)
    right = rng.normal(size=(5, size, 4)[: 1 + b_ndim])
    a = pt.tensor("a", shape=(None, size, size), dtype="float64")
    c = pt.tensor("c", shape=(None, size, 4)[: 1 + b_ndim], dtype="float64")
    graph = pt.linalg.solve_triangular(a, c, lower=lower, b_ndim=b_ndim)
    function = pytensor.function([a, c], [graph], mode=loop_mode())
    is_small = "SolveTriangular" not in str(function.maker.fgraph.toposort())
    assert is_small == (size <= 6)
    if not is_small:
        return  # LAPACK itself, which takes long to compile
    triangles = np.tril(matrices) if lower else np.triu(matrices)
    columns = right if b_ndim == 2 else right[..., None]
    expected = np.linalg.solve(triangles, columns).reshape(right.shape)
    np.testing.assert_allclose(function(matrices, right)[0], expected, rtol=1e-9)


@pytest.mark.parametrize("batch", [(2, 3), (0, 3), (1, 1)])
def test_axes_of_a_batch_are_numbered_once(batch):
    rows, many = pt.vector("rows"), pt.tensor3("many", shape=(None, None, None))
    every = vectorize_graph(pt.arange(1, rows.shape[0], 2), {rows: many})
    numbers = pytensor.function([many], every, mode=loop_mode())
    nodes = numbers.maker.fgraph.toposort()
    assert not any(isinstance(node.op, pytensor_api.Blockwise) for node in nodes)
    expected = np.broadcast_to([1, 3], (*batch, 2))
    np.testing.assert_array_equal(numbers(np.zeros((*batch, 5))), expected)


def test_entries_of_a_batch_that_count_for_themselves_do_so():
    ends = pt.vector("ends", dtype="int64")
    each = pytensor_api.Blockwise(pytensor_api.ARange("int64"), signature="(),(),()->(n)")
    numbers = pytensor.function([ends], each(0, ends, 1), mode=loop_mode())
    np.testing.assert_array_equal(numbers([3, 3]), [[0, 1, 2], [0, 1, 2]])
    with pytest.raises(ValueError, match="shape"):
        numbers([3, 4])


@pytest.mark.parametrize("n", [1, 2, 5, 31])
def test_largest_of_short_rows(n):
    cube = np.random.default_rng(n).normal(size=(3, 4, n))
    cube[0, 0, 0], cube[1, 1] = np.nan, -np.inf
    y = pt.dtensor3("y")
    program = compiled([y], pt.max(y, axis=2))
    np.testing.assert_array_equal(program(cube)[0], cube.max(axis=2))


def test_a_product_that_is_also_used_as_it_is_stays():
    product = x @ b.T
    program = compiled([b, x], product.T @ product)
    np.testing.assert_allclose(program(B, X)[0], (X @ B.T).T @ (X @ B.T), rtol=1e-12)


def test_loops_on_disk_are_those_of_one_release_of_pytensor(monkeypatch):
    """What makes loops is PyTensor's, and Numba's files do not say whose they are."""
    node = pt.exp(pt.vector("x")).owner
    names = [pytensor_api.loop_as_function(node)[1]]
    monkeypatch.setattr(pytensor_api, "__version__", "another")
    names.append(pytensor_api.loop_as_function(node)[1])
    assert names[0] != names[1]


def test_loops_with_lookups_and_sums_are_one_function_for_numba():
    """PyTensor's are three, each of which is optimised by itself."""
    y, k = pt.dmatrix("y"), pt.lvector("k")
    every = pytensor.function([y, k], pt.exp(y[k] * 1.5).sum(axis=1), mode=loop_mode())
    values, places = np.random.default_rng(0).normal(size=(3, 4)), np.array([0, 2, 2])
    expected = np.exp(values[places] * 1.5).sum(axis=1)
    np.testing.assert_allclose(every(values, places), expected, rtol=1e-12)
    nodes = every.maker.fgraph.toposort()
    [loop] = [node for node in nodes if isinstance(node.op, pytensor_api.FusedElemwise)]
    function, name = pytensor_api.loop_as_function(loop)
    assert name is not None
    assert function.__code__.co_argcount == len(loop.inputs)
    assert "_vectorized(" in function.__source__


def test_equal_loops_are_compiled_once():
    y, z = pt.dvector("y"), pt.dvector("z")
    first = compiled([y], pt.log1p(pt.exp(3.25 * y)) ** 2)
    n_kernels = len(compilation._kernels)
    second = compiled([z], pt.log1p(pt.exp(3.25 * z)) ** 2)
    assert len(compilation._kernels) == n_kernels > 0
    values = np.linspace(-2.0, 2.0, 7)
    np.testing.assert_allclose(first(values)[0], np.log1p(np.exp(3.25 * values)) ** 2, rtol=1e-12)
    np.testing.assert_array_equal(second(values)[0], first(values)[0])


@pytest.mark.parametrize(
    ("other", "factor"), [(b, 0.1 + x.T), (x, b[:, 0] + b.T)], ids=["a constant", "draws"]
)
def test_a_program_that_was_sent_returns_the_same_bits(other, factor):
    """NumPy may lay out otherwise what is computed of an array that was sent."""
    rows, draws = RNG.normal(size=(1310, 2)), RNG.normal(size=(101, 2))
    kernel = Kernel([b], [x], [factor, other @ factor], {0: 0})
    sent, there = pickle.loads(pickle.dumps((kernel, draws)))
    here, elsewhere = kernel.program.given(draws)(rows), sent.program.given(there)(rows)
    assert here[0].strides == elsewhere[0].strides
    np.testing.assert_array_equal(here[1], elsewhere[1])


@pytest.mark.parametrize("chosen", [True, False])
def test_a_program_that_was_sent_is_compiled_where_it_was_here(chosen, calls):
    here = Kernel([b], [x, group], [b[:, 0][:, None] + x[group, 0]], {0: 0, 1: 0}, compiled=chosen)
    sent = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(here))))
    functions = calls(fused_loops, "_function_of")
    assert sent.program.compiled == chosen
    assert {made.kwargs["compiled"] for made in functions} == {chosen}


# -- densities -------------------------------------------------------------------------------------

column, row = b[0][:, None], b[0][None]
few, many = pt.dmatrix("few", shape=(2, 3)), pt.dmatrix("many", shape=(56, 3))
long, other = pt.dmatrix("long", shape=(None, 3)), pt.dmatrix("other", shape=(None, 3))
KNOWN = {few: B[:2], many: np.tile(B, (8, 1)), long: X[:5], other: X[5:10]}
PRODUCTS = {
    "with a column": (x @ column, 0),
    "of a transpose with a column": (x.T @ x[:, 0][:, None], 0),
    "of a row": (row @ x.T, 0),
    "of a row with a column": (row @ column, 0),
    "of matrices": (x @ b.T, 1),
    "with a small matrix": (x @ few.T, 0),
    "of a small matrix": (pt.dot(few, x.T), 0),
    "over a long axis": (long.T @ other, 0),
    "with a matrix that is not small": (x @ many.T, 1),
    "of stacks": (pt.matmul(long[:, :, None], other[:, None]), 0),
    "of stacks with columns": (pt.matmul(x[None], few[:, :, None]), 0),
    "of stacks of matrices": (pt.matmul(pt.stack([x, x]), b.T), 1),
}


def is_product(op):
    if isinstance(op, BlockwiseWithCoreShape):
        return any(is_product(n.op) for n in op.fgraph.apply_nodes)
    return isinstance(getattr(op, "core_op", op), Dot | BatchedDot)


@pytest.mark.slow  # counts operations, which differ after some other tests of the same process
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_a_density(name):
    graph, n_left = PRODUCTS[name]
    inputs, values = [b, x, *KNOWN], [B, X, *KNOWN.values()]
    function = pytensor.function(inputs, graph, mode=density_mode(), on_unused_input="ignore")
    left = [n for n in function.maker.fgraph.toposort() if is_product(n.op)]
    assert len(left) == n_left
    plain = pytensor.function(inputs, graph, mode=PLAIN_MODE, on_unused_input="ignore")
    np.testing.assert_allclose(function(*values), plain(*values), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name, (_, n_left) in PRODUCTS.items() if not n_left])
def test_products_of_a_density_are_sums(name):
    """The graph after its rewrites, evaluated by NumPy."""
    inputs, values = [b, x, *KNOWN], [B, X, *KNOWN.values()]
    graph = PRODUCTS[name][0]
    rewritten = FunctionGraph(inputs, [graph], clone=True)
    density_mode().excluding("fusion", "inplace").optimizer.rewrite(rewritten)
    assert not any(is_product(node.op) for node in rewritten.toposort())
    options = {"mode": PLAIN_MODE, "on_unused_input": "ignore"}
    found = pytensor.function(rewritten.inputs, rewritten.outputs, **options)(*values)
    plain = pytensor.function(inputs, [graph], **options)(*values)
    np.testing.assert_allclose(found, plain, rtol=1e-12)


number, stack = b[0, 0], pt.join(0, b[None, :2], few[None] + 1)
PLAIN = {
    "a sum over rows": (pt.inc_subtensor(b[0], 1.0).sum(axis=0), "Sum"),
    "a sum over columns": (pt.inc_subtensor(b[0], 1.0).T[:, 1:].sum(axis=1), "Sum"),
    **{
        f"over axis {i} of three": (pt.inc_subtensor(stack[0], 1.0).sum(axis=i), "Sum")
        for i in range(3)
    },
    **{
        f"largest over axis {i} of three": (pt.inc_subtensor(stack[0], 1.0).max(axis=i), "Max")
        for i in range(3)
    },
    "largest of rows": (pt.set_subtensor(b[1, 1], np.nan).max(axis=0), "Max"),
    "largest of columns": (pt.set_subtensor(b[:, 1], -np.inf).T.max(axis=1), "Max"),
    "a filled vector": (pt.inc_subtensor(pt.alloc(number, x.shape[0])[2], 1.0), "Alloc"),
    "a filled matrix": (pt.inc_subtensor(pt.alloc(number, 2, x.shape[0])[1], 1.0), "Alloc"),
    "filled with one": (pt.inc_subtensor(pt.alloc(few[:1, :1], 2, x.shape[0])[1], 1.0), "Alloc"),
    "zeros": (pt.inc_subtensor(pt.zeros(x.shape)[group], 1.0), "Alloc"),
}


#: Along each axis of three, compiled anew.
BETWEEN = {f"{kind} axis {i} of three" for kind in ("over", "largest over") for i in (1, 2)}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in BETWEEN)) for n in PLAIN]
)
def test_sums_and_filled_arrays_of_a_density(name):
    graph, kind = PLAIN[name]
    inputs, values = [b, x, group, few], [B, X, GROUP, KNOWN[few]]
    function = pytensor.function(inputs, graph, mode=density_mode(), on_unused_input="ignore")
    ops = [type(n.op).__name__ for n in function.maker.fgraph.toposort()]
    assert {f"Loop{kind}", f"_Loop{kind}"} & set(ops)
    plain = pytensor.function(inputs, graph, mode=PLAIN_MODE, on_unused_input="ignore")
    np.testing.assert_allclose(function(*values), plain(*values), rtol=1e-14)


def test_graphs_of_small_arrays_need_no_compilation(fails):
    fails("compiled loop")
    graph = pt.log1mexp(-pt.softplus(b) - pt.sigmoid(few[:1])).sum(axis=0) * b[0]
    inputs, values = [b, few], [B, KNOWN[few]]
    function = pytensor.function(inputs, graph, mode=loop_mode(compiled=False))
    plain = pytensor.function(inputs, graph, mode=PLAIN_MODE)
    np.testing.assert_allclose(function(*values), plain(*values), rtol=1e-14)


def test_adding_to_places_of_small_arrays_needs_no_compilation(fails):
    """As in the gradient of a lookup, for which Numba takes five seconds."""
    fails("compiled loop")
    x, codes = pt.vector("x"), pt.lvector("codes")
    slope = pt.grad(pt.sqr(x[codes]).sum(), x)
    function = pytensor.function([x, codes], slope, mode=loop_mode(compiled=False))
    np.testing.assert_array_equal(function([1.0, 2.0, 3.0], [0, 2, 2]), [2.0, 0.0, 12.0])


def test_another_backend_is_left_to_the_user():
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert density_mode() is None


@pytest.mark.parametrize("dtypes", [("int64", "float64"), ("float64", "int64"), ("int32", "int64")])
def test_a_loop_over_other_types_is_another_one(dtypes):
    for dtype in dtypes:
        z = pt.vector("z", dtype=dtype)
        values = np.array([-3, 0, 2], dtype=dtype)
        [found] = compiled([z], pt.switch(pt.gt(z, 0), z * z, -z) + z)(values)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, [0, 0, 6])


def test_what_many_calls_have_in_common_is_not_written_into():
    """The gradient of a lookup adds to zeros that do not depend on the rows."""
    x, codes, values = pt.vector("x"), pt.lvector("codes"), pt.vector("values")
    total = (pt.exp(pt.specify_shape(x, 3)[codes]) * values).sum()
    outputs = [total, pt.grad(total, x)]
    program = pytensor.function([x, codes, values], outputs, mode=loop_mode(1)).vm.jit_fn
    evaluate = program.given(np.zeros(3))
    for _ in range(3):
        [_, found] = evaluate(np.array([0, 2, 2]), np.array([1.0, 2.0, 4.0]))
        np.testing.assert_allclose(found, [1.0, 0.0, 6.0])


def test_a_loop_does_not_wait_for_its_own_sum():
    """Adding to an array that depends on the sum: fused into one loop, it would be a cycle."""
    x, a, at = pt.vector("x"), pt.vector("a"), pt.lvector("at")
    terms = pt.exp(2 * x) + 1
    added = pt.inc_subtensor((a * terms.sum())[at], terms)
    function = pytensor.function([x, a, at], added, mode=loop_mode())
    values, where = np.linspace(-1.0, 1.0, 5), np.array([0, 1, 2, 0, 1])
    expected = np.ones(3) * (np.exp(2 * values) + 1).sum()
    np.add.at(expected, where, np.exp(2 * values) + 1)
    np.testing.assert_allclose(function(values, np.ones(3), where), expected)


def test_a_compilation_is_watched_by_the_rate_of_those_before_it(limits, monkeypatch):
    seen = []

    @contextmanager
    def watch(n_operations, seconds):
        seen.append((n_operations, seconds))
        yield

    monkeypatch.setattr(fused_loops, "_watch", [None])
    limits(compilation_rates={"seconds per operation": 10.0})
    fused_loops.watched_by(watch)
    x = pt.vector("x")
    _ = Kernel([], [x], [pt.exp(x) + pt.log(x)], {}).program
    assert seen == [(3, 30.0)]
