"""All that is used of PyTensor beyond its four public modules, in one place.

These are ``pytensor``, and in it ``graph``, ``scalar`` and ``tensor``.  PyTensor may move or
change these names in any release; `tests/unit/test_compat.py` says what broke.
"""

import ast
import gc
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from textwrap import dedent
from threading import Lock
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import builtin_registry
from pytensor import Mode, __version__, config, get_mode
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.mode import AddDestroyHandler
from pytensor.compile.ops import TypeCastingOp
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import DisconnectedGrad, disconnected_type
from pytensor.graph import Apply, FunctionGraph, Op, RewriteDatabaseQuery, Variable, ancestors
from pytensor.graph.basic import equal_computations
from pytensor.graph.null_type import NullType
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.op import _NoPythonOp as NoPythonOp
from pytensor.graph.replace import _vectorize_node as vectorize_node
from pytensor.graph.rewriting.basic import MergeOptimizer, dfs_rewriter
from pytensor.graph.traversal import io_toposort
from pytensor.link.basic import JITLinker
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    numba_funcify_ensure_cache,
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.link.numba.dispatch.scalar import numba_funcify_Composite, register_scalar_funcify
from pytensor.link.numba.linker import NumbaLinker
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import ScalarOp
from pytensor.scan.basic import scan
from pytensor.scan.op import Scan
from pytensor.scan.utils import until
from pytensor.sparse.math import Dot as SparseDot
from pytensor.sparse.math import StructuredDot
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise, BlockwiseWithCoreShape
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.linalg.solvers.core import SolveBase
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Argmax, Dot, Max, Sum
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.rewriting.elemwise import local_dimshuffle_lift
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.rewriting.scalarize import ScalarizedElemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.signal.conv import Convolve1d
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    unflatten_index_variables,
)
from pytensor.tensor.type_other import NoneTypeT
from pytensor.xtensor import as_xtensor
from pytensor.xtensor.type import XTensorVariable

#: Ops that only rearrange the entries of their first input.
MOVES = (
    AdvancedSubtensor,
    Alloc,
    DimShuffle,
    JoinDims,
    Reshape,
    SpecifyShape,
    SplitDims,
    Subtensor,
    TypeCastingOp,
)


def checked_tensor(variable: object) -> pt.TensorVariable:
    """Return a variable that is a tensor, which PyTensor's annotations do not say.

    Raises
    ------
    TypeError
        If it is something else.

    Examples
    --------
    >>> checked_tensor(pt.exp(pt.vector("x"))).type.ndim
    1
    """
    if not isinstance(variable, pt.TensorVariable):
        raise TypeError(f"{variable!r} is no tensor, but a {type(variable).__name__}.")
    return variable


def checked_tensors(variables: object) -> list[pt.TensorVariable]:
    """Return a sequence of variables that are tensors, see `checked_tensor`.

    Examples
    --------
    >>> len(checked_tensors(pt.vectors("x", "y")))
    2
    """
    if not isinstance(variables, Sequence):
        raise TypeError(f"{variables!r} is no sequence of tensors.")
    return [checked_tensor(variable) for variable in variables]


#: What the methods of an operation take: graphs, the shapes of graphs, and where results are put.
type Graphs = Sequence[Variable]
type Shapes = Sequence[tuple[Variable, ...]]
type Storage = list[list[np.ndarray | None]]

_MOST_INPUTS = 200  # Numba refuses tuples of more than a thousand
_HEAD = re.compile(r"def \w+\(\*(\w+)\):\n( +)")


def loop_as_function(node: Apply) -> tuple[Callable[..., Any], str | None] | None:
    """Return an elementwise loop as one function to compile, and its name on disk.

    PyTensor's is a function that is chosen by Numba when another one is compiled, which is called
    by a third.  This is the first, with an argument for each input.

    None if this release of PyTensor makes loops in another way, or there are too many inputs.

    Examples
    --------
    >>> function, _ = loop_as_function((pt.vector("x") + pt.vector("y")).owner)
    >>> numba_njit(function, final_function=True)(np.ones(2), np.ones(2))
    array([2., 2.])
    """
    names = ", ".join(f"x{i}" for i in range(len(node.inputs)))
    if len(node.inputs) > _MOST_INPUTS:
        return None
    outer, name = numba_funcify_and_cache_key(node.op, node=node)
    chosen = next((kind for one, kind in reversed(builtin_registry.globals) if one is outer), None)
    if chosen is None:
        return None
    inner = chosen.templates[0]._overload_func()  # noqa: SLF001
    source = getattr(inner, "__source__", None) or dedent(inspect.getsource(inner))
    head = _HEAD.match(source)
    if head is None:
        return None
    packed, indent = head.groups()
    source = f"def loop({names}):\n{indent}{packed} = ({names},)\n{indent}{source[head.end() :]}"
    values = inner.__globals__ | inspect.getclosurevars(inner).nonlocals | {"__name__": __name__}
    if name is not None:
        # PyTensor's own names have versions of what makes loops; this one has that of the release.
        kinds = [v.type.dtype for v in node.outputs]
        known = ("as one function", __version__, name, kinds, config.numba__fastmath)
        name = sha256(str(known).encode()).hexdigest() if config.numba__cache else None
    return compile_numba_function_src(source, "loop", values, cache_key=name), name


def with_scalar_op(
    op: FusedElemwise, changed: Callable[[ScalarOp], ScalarOp]
) -> FusedElemwise | None:
    """Return a loop with sums or lookups that evaluates another function; None if it is the same.

    Examples
    --------
    >>> with_scalar_op(FusedElemwise([x := pt.vector("x")], [pt.exp(x)]), lambda own: own) is None
    True
    """
    [own] = [node.op.scalar_op for node in op.fgraph.apply_nodes if isinstance(node.op, Elemwise)]
    if (scalar_op := changed(own)) is own:
        return None
    inner = op.fgraph.unfreeze()
    [loop] = [node for node in inner.apply_nodes if isinstance(node.op, Elemwise)]
    written = Elemwise(scalar_op, loop.op.inplace_pattern).make_node(*loop.inputs)
    inner.replace_all(list(zip(loop.outputs, written.outputs, strict=True)))
    specs = ("destroy_map", "indexed_inputs", "indexed_outputs", "reduced_outputs")
    found: FusedElemwise = type(op)(
        inner.inputs, inner.outputs, **{name: getattr(op, name) for name in specs}
    )
    return found


#: What Numba makes of these depends on the options of the function that they are in.
_BY_OPTIONS = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def with_expressions(function: Dispatcher) -> tuple[Callable[..., Any], str]:
    """Return PyTensor's function of scalar operations with short ones written out, and its source.

    Numba compiles each function that another one calls by itself, for a hundredth of a second or
    more, and PyTensor makes two of each operation.  A function that returns an expression, and has
    the same options, is what LLVM would inline anyway.

    Parameters
    ----------
    function : Dispatcher
        Of `numba_funcify_Composite`.

    Examples
    --------
    >>> from pytensor.scalar import Composite, float64
    >>> x = float64("x")
    >>> op = Composite([x], [x * (x + x)])
    >>> function, _ = numba_funcify_Composite(op, op.make_node(x))
    >>> print(with_expressions(function)[1])
    def numba_composite(nominal_scalar_variable):
        scalar_variable = nominal_scalar_variable + nominal_scalar_variable
        scalar_variable_1 = nominal_scalar_variable * scalar_variable
        return scalar_variable_1
    """
    whole, known = _definition_of(function.py_func), dict(function.py_func.__globals__)
    for number, line in enumerate(whole.body):
        if not isinstance(line, ast.Assign) or not isinstance(line.value, ast.Call):
            continue
        name = ast.unparse(line.value.func)
        inner = known.get(name)
        if not isinstance(inner, Dispatcher):
            continue
        # PyTensor keeps each operation on disk, in a function of its own around it.
        inner = known[name] = inner.py_func.__globals__.get("jitable_func", inner)
        if inner.targetoptions["fastmath"] == function.targetoptions["fastmath"]:
            line.value = _written_out(line.value, inner.py_func, f"__{number}", known)
    source = ast.unparse(whole)
    return compile_numba_function_src(source, whole.name, known), source


def _written_out(
    call: ast.Call, function: Callable[..., object], suffix: str, known: dict[str, Any]
) -> ast.expr:
    """Return the expression that a call stands for, and add its names to those known.

    The call itself if its function does more than return an expression.
    """
    definition = _definition_of(function)
    [*others, last] = definition.body
    names = [argument.id for argument in call.args if isinstance(argument, ast.Name)]
    parameters = [argument.arg for argument in definition.args.args]
    if others or not isinstance(last, ast.Return) or last.value is None:
        return call
    if not len(names) == len(call.args) == len(parameters):
        return call
    nodes = list(ast.walk(last.value))
    if any(isinstance(node, _BY_OPTIONS) for node in nodes):
        return call
    outer = inspect.getclosurevars(function)
    values = {**outer.globals, **outer.nonlocals}
    known |= {f"{name}{suffix}": value for name, value in values.items()}
    renamed = {name: f"{name}{suffix}" for name in values}
    renamed |= dict(zip(parameters, names, strict=True))
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = renamed.get(node.id, node.id)
    return last.value


def _definition_of(function: Callable[..., object]) -> ast.FunctionDef:
    source = getattr(function, "__source__", None) or dedent(inspect.getsource(function))
    [definition] = ast.parse(source).body
    if not isinstance(definition, ast.FunctionDef):
        raise TypeError(f"{function!r} is no function with a name.")
    return definition


def compiled_on_disk(function: Callable[..., object]) -> Callable[..., Any]:
    """Let Numba compile a function at its first call, and keep it on disk with PyTensor's.

    Its name there is its bytecode.

    Examples
    --------
    >>> @compiled_on_disk
    ... def twice(x):
    ...     return 2 * x
    >>> twice(3)
    6
    """
    code = function.__code__
    known = (function.__qualname__, code.co_code, code.co_consts, code.co_names)
    release = (__version__, config.numba__fastmath)
    CACHED_SRC_FUNCTIONS[function] = sha256(str((*known, *release)).encode()).hexdigest()
    compiled: Callable[..., Any] = numba_njit(
        function, final_function=True, no_cfunc_wrapper=True, nogil=True, cache=config.numba__cache
    )
    return compiled


def axes_of(op: Any, n_axes: int) -> list[int]:  # noqa: ANN401 - an Op with an axis
    """Return the axes of an array that an operation works along: all of them if it names none.

    Examples
    --------
    >>> axes_of(Sum(axis=-1), 2), axes_of(Sum(), 2)
    ([1], [0, 1])
    """
    every = list(range(n_axes))
    return every if op.axis is None else [every[axis] for axis in np.atleast_1d(op.axis)]


def is_input(variable: Variable) -> bool:
    """Whether no operation computes a variable: it is an input, or data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> is_input(x), is_input(pt.constant(1.0)), is_input(x.sum())
    (True, True, False)
    """
    return variable.owner is None


def op_of(variable: Variable) -> Op | None:
    """Return the operation that a variable is the result of; None for an input.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> op_of(x), isinstance(op_of(x.sum()), Sum)
    (None, True)
    """
    return None if is_input(variable) else variable.owner.op


def scalar_op_of(variable: Variable) -> ScalarOp | None:
    """Return what is done to each element; None for an input, or other operations.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> type(scalar_op_of(x + 1)).__name__, scalar_op_of(x.sum())
    ('Add', None)
    """
    op = op_of(variable)
    return op.scalar_op if isinstance(op, Elemwise) else None


class WhileAny[T]:
    """A setting of the process that is another one while any block runs, in whichever thread.

    Parameters
    ----------
    exchange : callable
        Sets a value, and returns that which was set before.
    value : object

    Examples
    --------
    >>> values = [1]
    >>> two = WhileAny(lambda value: (values.append(value), values[-2])[1], 2)
    >>> with two(), two():
    ...     values[-1]
    2
    >>> values
    [1, 2, 1]
    """

    def __init__(self, exchange: Callable[[T], T], value: T) -> None:
        self._exchange, self._value = exchange, value
        self._lock, self._n_running, self._before = Lock(), 0, value

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return the context of a block."""
        with self._lock:
            if not self._n_running:
                self._before = self._exchange(self._value)
            self._n_running += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_running -= 1
                if not self._n_running:
                    self._exchange(self._before)


def _set_limit(limit: int) -> int:
    before: int = config.traceback__limit
    config.traceback__limit = limit
    return before


def _set_collection(enabled: bool) -> bool:  # noqa: FBT001
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    return before


#: Variables and operations do not know which line of code made them, which PyTensor finds for each
#: of the thousands that its rewrites make.
untraced = WhileAny(_set_limit, 0)
_uncollected = WhileAny(_set_collection, False)  # noqa: FBT003


@contextmanager
def compiling() -> Iterator[None]:
    """Make graphs and functions in a fifth less time.

    They are untraced, and Python looks for cycles among these many objects when all are made.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> with compiling():
    ...     x = pt.vector()
    >>> x.tag.trace
    []
    """
    with untraced(), _uncollected():
        yield


class HeldRewrites:
    """Rewrites that are looked up once for many graphs.

    PyTensor looks them up in its database for each graph, and finds out anew which of hundreds
    apply to each operation.  For small graphs this takes a tenth of the time.

    Parameters
    ----------
    look_up : callable
        Returns a rewriter.

    Examples
    --------
    >>> held = HeldRewrites.of(["canonicalize"])
    >>> x = pt.vector("x")
    >>> held.rewritten([x * 1]) == [x], held.rewriter is held.rewriter
    (True, True)
    """

    #: Graphs for which a rewriter is used: it keeps a reference to each operation that it has met.
    _MOST_GRAPHS = 100

    def __init__(self, look_up: Callable[[], Any]) -> None:
        self._look_up = look_up
        self._rewriter, self._n_left = None, 0

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str] = ()) -> "HeldRewrites":
        """Hold the rewrites that have some names or tags, and none of others."""
        query = RewriteDatabaseQuery(include=include, exclude=exclude)
        return cls(lambda: get_mode("FAST_COMPILE").optdb.query(query))

    @property
    def rewriter(self) -> Any:  # noqa: ANN401
        """The rewriter, for one graph."""
        if self._n_left <= 0:  # threads may have counted at once
            self._rewriter, self._n_left = self._look_up(), self._MOST_GRAPHS
        self._n_left -= 1
        return self._rewriter

    def rewritten(self, graphs: Sequence[Variable]) -> list[Variable]:
        """Return rewritten copies of graphs."""
        fgraph = FunctionGraph(outputs=list(graphs), clone=True, copy_inputs=False)
        self.rewriter.rewrite(fgraph)
        return list(fgraph.outputs)


class HeldMode(Mode):
    """A mode whose rewrites are looked up once for many functions.

    Examples
    --------
    >>> mode = HeldMode("py", "fast_compile").excluding("fusion")
    >>> type(mode).__name__, mode.optimizer is mode.optimizer
    ('HeldMode', True)
    """

    @cached_property
    def _held(self) -> HeldRewrites:
        return HeldRewrites(lambda: super(HeldMode, self).optimizer)

    @property
    def optimizer(self) -> Any:  # noqa: ANN401
        """The rewriter, for one function."""
        return self._held.rewriter


class _WholeDisconnected(DisconnectedGrad):
    """One operation on a whole array, where PyTensor's would loop over new axes."""


@vectorize_node.register(_WholeDisconnected)
def _of_more_axes(op: _WholeDisconnected, _: Apply, x: Variable) -> Apply:
    of_array: Apply = op.make_node(x)  # type: ignore[no-untyped-call]
    return of_array


def disconnected[V: Variable](x: V) -> V:
    """Return the same values without a gradient.

    A gradient of zero would be the same, but PyTensor would carry it on through the graph of these
    values, and take as long for its rewrites as for those of all the rest.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> x = pt.scalar("x")
    >>> float(pytensor.grad(x * disconnected(x), x).eval({x: 3.0}))
    3.0
    """
    return cast(V, _WholeDisconnected()(x))


def without_traces[V: Variable](graph: V) -> V:
    """Forget where the parts of a graph, which is no one else's, were written; return it.

    Rewrites add up the traces of what they join: in a graph of thousands of parts these may become
    longer than memory.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> getattr(without_traces(pt.vector() + 1).tag, "trace", [])
    []
    """
    for variable in ancestors([graph]):
        variable.tag.trace = []
    return graph


def unwrapped(function: Any) -> Callable[..., Sequence[np.ndarray]]:  # noqa: ANN401
    """Return what a PyTensor function calls, if its linker made one function of the whole graph.

    It takes and returns arrays of exactly the right types, and may run in several threads.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> double = unwrapped(pytensor.function([x], [2 * x], mode="NUMBA"))
    >>> double(np.array([1.0, 2.0]))[0]
    array([2., 4.])
    """
    compiled: Callable[..., Sequence[np.ndarray]] = function.vm.jit_fn
    return compiled
