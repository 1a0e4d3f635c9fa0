"""The compilation mode of log-likelihoods: fused loops, with NumPy between them.

PyTensor's own Numba mode compiles a whole graph into one function. With an empty cache this takes a
minute, most of it for matrix products, indexing and joins, which NumPy has compiled already. For
arrays as large as a block of log-likelihoods, Python's overhead between operations is small. So
this mode compiles only elementwise loops, and operations that NumPy would run as a loop in Python;
each is compiled once for all models that contain it. For a few rows the overhead dominates:
`direct_calls` reduces it.
"""

# ruff: noqa: ARG002 (PyTensor determines the arguments of its callbacks)

import pickle
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, cached_property
from threading import Lock, RLock
from typing import Any, NamedTuple, Protocol, cast

import cloudpickle
import numpy as np
import pytensor
from pytensor import Mode
from pytensor.graph import (
    Apply,
    Constant,
    FunctionGraph,
    Op,
    RewriteDatabaseQuery,
    Variable,
    ancestors,
    clone_replace,
    graph_inputs,
)
from pytensor.tensor import TensorConstant, TensorType

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import HeldMode, compiling, dfs_rewriter
from pymc_coresets.loops import vectormath
from pymc_coresets.loops.batches import batched_call, repeated
from pymc_coresets.loops.compilation import compiled_loop
from pymc_coresets.loops.density_loops import (
    LoopMax,
    LoopSum,
    as_loops_along_rows,
    solve_small_systems,
)
from pymc_coresets.loops.direct_calls import (
    axis_by_numbers,
    direct_call,
    fit_of,
    in_order,
    require_within,
)
from pymc_coresets.loops.rewrites import (
    ENDLESS,
    MOST_OPERANDS,
    OUT_OF_LOOPS,
    USELESS,
    as_ufuncs,
    choose_in_float64,
    count_once,
    inline_graphs,
    read_by_index,
)
from pymc_coresets.loops.segments import sum_at_once, sum_up_in_loops
from pymc_coresets.loops.taken_apart import is_large, parts_of

type Function = Callable[..., Any]
type Storage = list[Any]
#: Returns a context for the compilation of so many operations, which takes about so many seconds.
type Watch = Callable[[int, float], AbstractContextManager[object]]
type Step = tuple[Function, list[int], list[int], list[int]]  # inputs, outputs, released

_LOOPS = (
    (dfs_rewriter(choose_in_float64), 48.05),
    (dfs_rewriter(sum_at_once), 48.1),
    (dfs_rewriter(vectormath.pull_function_out_of_switch), 48.2),
    (dfs_rewriter(vectormath.compare_without_sigmoid), 48.3),
    (dfs_rewriter(vectormath.vectorise), 48.4),
    (dfs_rewriter(vectormath.inline_composite), 49.4),  # after the fusion of loops
    (dfs_rewriter(sum_up_in_loops), 49.41),
    (dfs_rewriter(read_by_index), 49.42),
    (dfs_rewriter(as_loops_along_rows), 49.45),
    # It rejects cycles: the rewrite that fuses loops does not check whether a loop adds to an array
    # that depends on the loop's own sum.
    (ops.AddDestroyHandler(), 49.5),
    (dfs_rewriter(vectormath.inline_fused_composite), 100.5),  # after sums are part of loops
)

#: Operations from which the time of a compilation says what others take, and that rate.
_MANY = 100
_rates: dict[str, float] = {}
_watch: list[Watch] = [lambda *_: nullcontext()]

_lock = RLock()
_known: dict[bytes, "Kernel"] = {}


@cache
def loop_mode(n_given: int = 0, *, compiled: bool = True) -> Mode:
    """Return the mode. Its functions release the GIL in their loops, and threads may share them.

    Parameters
    ----------
    n_given : int, default 0
        Number of leading inputs that many calls share, see `Program.given`.
    compiled : bool, default True
        If False, NumPy runs every operation that it has a function for: in the time
        that loops take to compile, small arrays can be evaluated thousands of times.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> x, y = pt.vectors("x", "y")
    >>> f = pytensor.function([x, y], pt.exp(x) + y, mode=loop_mode(1))
    >>> bool(np.allclose(f([0.0, 1.0], [1.0, 1.0]), [2.0, 1.0 + np.e], rtol=1e-15))
    True
    >>> add_to_exp_of_x = f.vm.jit_fn.given(np.array([0.0, 1.0]))
    >>> bool(np.allclose(add_to_exp_of_x(np.array([1.0, 1.0])), [2.0, 1.0 + np.e], rtol=1e-15))
    True
    """
    own = OUT_OF_LOOPS if compiled else ("fusion", "fuse_indexed_into_elemwise")
    query = RewriteDatabaseQuery(
        include=["fast_run", "numba"],
        exclude=[*_LoopLinker.incompatible_rewrites, *USELESS, *ENDLESS, *own],
        extra_rewrites=[
            (dfs_rewriter(count_once), 1.5),  # once shapes are known, and before loops are fused
            (dfs_rewriter(inline_graphs, solve_small_systems), 47.9),  # after those for stability
            *(_LOOPS if compiled else [(dfs_rewriter(as_ufuncs), 48.0)]),
        ],
    )
    return HeldMode(_LoopLinker(n_given, compiled=compiled), query)


class Program:
    """A graph as a sequence of functions, one for each operation.

    Parameters
    ----------
    fgraph : FunctionGraph
    order : sequence of Apply
        Its operations, each after those that it depends on.
    n_given : int
        Number of inputs, the first ones, that many calls have in common.
    compiled : bool, default True
        Whether to compile what NumPy has a slower function for.
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        order: Sequence[Apply],
        n_given: int,
        *,
        compiled: bool = True,
    ) -> None:
        self._n_given, self._n_inputs, self.compiled = n_given, len(fgraph.inputs), compiled
        slots = {v: i for i, v in enumerate(fgraph.inputs)}
        self._constants: list[Any] = []
        for v in (*fgraph.outputs, *(v for node in order for v in node.inputs)):
            if isinstance(v, Constant) and v not in slots:
                slots[v] = len(slots)
                self._constants.append(in_order(v.data))
        for node in order:
            slots |= {v: len(slots) + i for i, v in enumerate(node.outputs)}
        of_rows, given = set(fgraph.inputs[n_given:]), set(fgraph.inputs[:n_given])
        first, alone, later = list[Apply](), list[Apply](), list[Apply]()
        for node in order:
            if of_rows.isdisjoint(node.inputs):
                first.append(node)
                given.update(node.outputs)
                continue
            of_rows.update(node.outputs)
            if given.isdisjoint(node.inputs):
                alone.append(node)
            else:
                given.update(node.outputs)
                later.append(node)
        last_use = {v: node for node in (*first, *alone, *later) for v in node.inputs}

        def step(node: Apply, *, is_later: bool) -> Step:
            done = {v for v in node.inputs if last_use[v] is node} - set(fgraph.outputs)
            function = _function_of(node, of_rows=is_later, compiled=compiled)
            written = {i for which in node.op.destroy_map.values() for i in which}
            of_both = of_rows & given  # of one call; others are shared by several
            shared = {i for i in written if is_later and node.inputs[i] not in of_both}
            # Views may have any memory order, for each of which a loop would be compiled.
            is_view = isinstance(node.op, ops.DimShuffle | ops.Subtensor | ops.AdvancedSubtensor)
            if is_view and not _in_products(node, fgraph):
                function = _with_result_in_order(function)
            return (
                _with_copies(function, shared) if shared else function,
                [slots[v] for v in node.inputs],
                [slots[v] for v in node.outputs],
                [slots[v] for v in done],
            )

        self._first = [step(node, is_later=False) for node in first]
        self._alone = [step(node, is_later=True) for node in alone]
        self._later = [step(node, is_later=True) for node in later]
        self._outputs = [slots[v] for v in fgraph.outputs]
        of_rows = {*fgraph.inputs[n_given:], *(v for node in alone for v in node.outputs)}
        self._of_rows = [slots[v] for v in of_rows]
        self._n_slots = len(slots)

    def __call__(self, *inputs: object) -> Storage:
        """Evaluate the graph."""
        found: list[Any] = self.given(*inputs[: self._n_given])(*inputs[self._n_given :])
        return found

    def given(self, *inputs: Any) -> "Given":  # noqa: ANN401
        """Evaluate all that depends on the first inputs alone; return a function of the others."""
        values = self._with_constants(0, inputs)
        _run(self._first, values)
        return Given(self, values)

    def of_rows(self, *others: Any) -> Storage:  # noqa: ANN401
        """Evaluate all that depends on the other inputs alone, once for several `Given`."""
        values = self._with_constants(self._n_given, others)
        _run(self._alone, values)
        return values

    def _with_constants(self, start: int, inputs: Sequence[Any]) -> Storage:
        values = [None] * self._n_slots
        values[start : start + len(inputs)] = inputs
        values[self._n_inputs : self._n_inputs + len(self._constants)] = self._constants
        return values

    def joined(self, given: Storage, of_rows: Storage) -> Storage:
        """Return the outputs, by what is known of the first inputs and of the others."""
        values = given.copy()  # local to this call: threads share the function
        for i in self._of_rows:
            values[i] = of_rows[i]
        _run(self._later, values)
        return [values[i] for i in self._outputs]


class Given(NamedTuple):
    """A `Program` whose first inputs are given: a function of the others."""

    program: Program
    known: Storage

    def __call__(self, *others: Any) -> Storage:  # noqa: ANN401
        """Evaluate the graph."""
        return self.at(self.program.of_rows(*others))

    def at(self, of_rows: Storage) -> Storage:
        """Evaluate the graph by the result of `Program.of_rows`."""
        return self.program.joined(self.known, of_rows)


def _run(steps: Sequence[Step], values: Storage) -> None:
    with np.errstate(all="ignore"):  # callers report values that are not finite
        for function, inputs, outputs, done in steps:
            found = function(*[values[i] for i in inputs])
            for i in done:  # so that large arrays are released early
                values[i] = None
            if len(outputs) == 1:
                values[outputs[0]] = found
            else:
                for i, value in zip(outputs, found, strict=True):
                    values[i] = value


class _LoopLinker(ops.JITLinker):
    """Makes a `Program` of a graph."""

    required_rewrites = ("minimum_compile",)
    # In-place operations would write into rows and draws.
    incompatible_rewrites = ("cxx_only", "BlasOpt", "local_careduce_fusion", "inplace")

    def __init__(self, n_given: int = 0, *, compiled: bool = True) -> None:
        super().__init__()
        self.n_given, self.compiled = n_given, compiled

    def fgraph_convert(
        self,
        fgraph: FunctionGraph,
        order: Sequence[Apply],
        input_storage: Storage,
        output_storage: Storage,
        storage_map: dict[Variable, Storage],
        **kwargs: object,
    ) -> Program:
        return Program(fgraph, order, self.n_given, compiled=self.compiled)

    def jit_compile(self, fn: Function) -> Function:
        return fn

    def create_thunk_inputs(self, storage_map: dict[Variable, Storage]) -> list[Storage]:
        return [storage_map[v] for v in cast(FunctionGraph, self.fgraph).inputs]


def _function_of(node: Apply, *, of_rows: bool, compiled: bool) -> Function:
    """Return a function of the values of the inputs of a node."""
    op, as_loop = node.op, of_rows and is_large(node)
    if not as_loop and (graph := parts_of(node)) is not None:
        return _in_parts(graph)
    if isinstance(op, ops.Blockwise):
        return batched_call(node, node.inputs) or _performed(node)
    if isinstance(op, ops.BlockwiseWithCoreShape):
        return _of_batch(node, of_rows=of_rows)
    if isinstance(op, ops.Elemwise):
        few = len(node.inputs) < MOST_OPERANDS
        known = direct_call(op, node) if few else None
        is_ufunc = few and op.nfunc_spec is not None
        return known or (_performed(node) if is_ufunc else compiled_loop(node))
    if isinstance(op, (ops.HasInnerGraph, ops.NoPythonOp)):
        return compiled_loop(node)
    if as_loop and isinstance(op, LoopSum | LoopMax):
        return compiled_loop(node)  # NumPy's takes ten times as long
    to_add = isinstance(op, ops.AdvancedIncSubtensor) and not op.set_instead_of_inc
    if compiled and as_loop and to_add:
        axis = axis_by_numbers(op, node.inputs[2:])
        if axis is not None and node.inputs[2].type.ndim == 1:
            return _added(node, axis)
    return direct_call(op, node) or _performed(node)


def _in_parts(graph: FunctionGraph) -> Function:
    """Return a function of the inputs of a graph that evaluates its operations by NumPy."""
    program, is_one = Program(graph, graph.toposort(), 0), len(graph.outputs) == 1

    def evaluate(*inputs: object) -> Any:  # noqa: ANN401
        found = program(*inputs)
        return found[0] if is_one else tuple(found)

    return evaluate


def _of_batch(node: Apply, *, of_rows: bool) -> Function:
    core = repeated(node.op)
    known = batched_call(core, node.inputs)
    if known is not None:
        return known
    if isinstance(core.op.core_op, ops.Dot) or not of_rows:  # Python's loops suffice
        perform = _performed(core)
        return lambda *inputs: perform(*inputs[: len(core.inputs)])
    return compiled_loop(node)


def _added(node: Apply, axis: int) -> Function:
    """Add to places of an axis by a compiled loop, which does not look whether they are there."""
    loop, require_fit = compiled_loop(node), fit_of(node)  # NumPy's takes ten times as long

    def added(x: np.ndarray, y: np.ndarray, index: np.ndarray) -> np.ndarray:
        require_within(index, x.shape[axis])
        require_fit(y, (*x.shape[:axis], len(index), *x.shape[axis + 1 :]))
        result: np.ndarray = loop(x, y, index)
        return result

    return added


def _in_products(node: Apply, fgraph: FunctionGraph) -> bool:
    """Whether only products use the output of a node: they accept any memory order."""
    return all(_is_product(client.op) for client, _ in fgraph.clients[node.outputs[0]])


def _is_product(op: Op) -> bool:
    inner = repeated(op).op.core_op if isinstance(op, ops.BlockwiseWithCoreShape) else op
    return isinstance(inner, ops.Dot | ops.BatchedDot)


def _with_result_in_order(function: Function) -> Function:
    """Store a result in C order: compiled loops along other axes take six times as long."""
    return lambda *inputs: in_order(function(*inputs))


def _with_copies(function: Function, which: Collection[int]) -> Function:
    """Copy inputs that calls share before a function writes into them."""

    def of_copies(*inputs: Any) -> Any:  # noqa: ANN401
        return function(*(x.copy() if i in which else x for i, x in enumerate(inputs)))

    return of_copies


def _performed(node: Apply) -> Function:
    is_array = [isinstance(v.type, TensorType) for v in node.outputs]
    as_array = in_order if isinstance(node.op, ops.Elemwise) else np.asarray
    # PyTensor's loop over a batch stores the values of all its calls in the same buffers.
    alone = Lock() if _loops_in_python(node.op) else nullcontext()

    def perform(*inputs: object) -> Any:  # noqa: ANN401
        storage: list[Storage] = [[None] for _ in node.outputs]  # of this call alone
        with alone:
            node.op.perform(node, inputs, storage)
        found = [
            as_array(value) if array else value
            for [value], array in zip(storage, is_array, strict=True)
        ]
        return found[0] if len(found) == 1 else tuple(found)

    return perform


def _loops_in_python(op: Op) -> bool:
    if not isinstance(op, ops.Blockwise):
        return False
    return (op.gufunc_spec or getattr(op.core_op, "gufunc_spec", None)) is None


class HasInputs(Protocol):
    """Rows: what functions of them take."""

    @property
    def inputs(self) -> Sequence[np.ndarray]:
        """Arrays that have the rows along their first axis."""


class Kernel:
    """Functions of rows, and of values that many blocks of rows share.

    A pickle holds the graph, without data. Each process compiles it once: PyTensor would compile a
    pickled function again anyway.

    Parameters
    ----------
    given : sequence of Variable
        Inputs that many blocks share.
    of_rows : sequence of Variable
        The inputs for a block, which follow those: see `evaluated`.
    outputs : sequence of Variable
    axes : mapping from int to int
        Numbers of the row arrays that are inputs, with the axis along which the input has the rows.
    compiled : bool, default True
        See `loop_mode`.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import pytensor.tensor as pt
    >>> slope, n, x = pt.scalar("slope"), pt.lscalar("n"), pt.vector("x")
    >>> kernel = pickle.loads(pickle.dumps(Kernel([slope], [n, x], [n * slope * x], {0: 0})))
    >>> rows = SimpleNamespace(inputs=[np.array([1.0, 3.0])])
    >>> evaluate = kernel.program.given(np.array(0.5))
    >>> evaluate(np.array(2), *kernel.arrays(rows))
    [array([1., 3.])]
    """

    def __init__(
        self,
        given: Sequence[Variable],
        of_rows: Sequence[Variable],
        outputs: Sequence[Variable],
        axes: Mapping[int, int],
        *,
        compiled: bool = True,
    ) -> None:
        self._compiled = compiled
        self._given, self._of_rows, self._outputs = list(given), list(of_rows), list(outputs)
        self.axes = dict(axes)

    @property
    def program(self) -> Program:
        """The compiled functions."""
        with _lock:  # PyTensor's compilation is not thread-safe
            self._rewritten  # noqa: B018 - compiles it, unless it was sent from another process
            return self._program

    @property
    def graph(self) -> bytes:
        """The rewritten graph for other processes, where the rewrites might give another result."""
        with _lock:
            fgraph, compiled = self._rewritten, self._program.compiled
        parts = fgraph.inputs, fgraph.outputs, len(self._given), self.axes, compiled
        return zlib.compress(cloudpickle.dumps(parts))

    @cached_property
    def _program(self) -> Program:
        order = self._rewritten.toposort()
        return Program(self._rewritten, order, len(self._given), compiled=self._compiled)

    @cached_property
    def _rewritten(self) -> FunctionGraph:
        inputs = [*self._given, *self._of_rows]
        mode = loop_mode(len(self._given), compiled=self._compiled)
        # Programs take no data, such as bounds of a variable, but their inputs.
        values: dict[Variable, Variable] = {
            v: TensorConstant(cast(TensorType, v.type), v.get_value())
            for v in graph_inputs(self._outputs)
            if isinstance(v, ops.SharedVariable)
        }
        outputs = clone_replace(self._outputs, values, rebuild_strict=False)
        with compiling(), _timed(outputs):
            function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
        self._program = cast(Program, ops.unwrapped(function))
        fgraph: FunctionGraph = function.maker.fgraph
        return fgraph

    def __reduce__(self) -> tuple[Callable[[bytes], "Kernel"], tuple[bytes]]:
        return _kernel_of, (self.graph,)

    def arrays(self, rows: HasInputs) -> list[np.ndarray]:
        """Return the arrays of rows that are inputs, with the inputs' axes."""
        return arrays_along(rows, self.axes)


def arrays_along(rows: HasInputs, axes: Mapping[int, int]) -> list[np.ndarray]:
    """Return some arrays of rows, by their numbers, with the rows along an axis of each."""
    inputs = ((rows.inputs[i], axis) for i, axis in axes.items())
    return [np.ascontiguousarray(np.moveaxis(x, 0, axis) if axis else x) for x, axis in inputs]


def watched_by(watch: Watch) -> None:
    """Enter a context around each compilation from now on, which may announce or refuse it.

    Parameters
    ----------
    watch : callable
        Takes the number of operations, and the seconds that they take by the rate of those before;
        zero if no rate is known.
    """
    _watch[0] = watch


@contextmanager
def _timed(outputs: Sequence[Variable]) -> Iterator[None]:
    """Measure the rate of a compilation, and let it be watched, see `watched_by`."""
    n_nodes = len({v.owner for v in ancestors(outputs)} - {None})
    expected = n_nodes * _rates.get("seconds per operation", 0.0)
    with _watch[0](n_nodes, expected):
        start = time.perf_counter()
        yield
    if n_nodes >= _MANY:
        _rates["seconds per operation"] = (time.perf_counter() - start) / n_nodes


def _kernel_of(graph: bytes) -> Kernel:
    """Return the kernel of a graph; the same object for the same graph."""
    with _lock:
        if graph in _known:
            kernel = _known.pop(graph)
        else:
            inputs, outputs, n_given, axes, compiled = pickle.loads(zlib.decompress(graph))
            kernel = Kernel(inputs[:n_given], inputs[n_given:], outputs, axes, compiled=compiled)
            kernel._rewritten = FunctionGraph(inputs, outputs, clone=False)  # noqa: SLF001
        _known[graph] = kernel  # the last
        while len(_known) > 16:  # kernels of a process
            del _known[next(iter(_known))]
    return kernel
