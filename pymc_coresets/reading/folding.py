"""Fold the known parts of graphs, and evaluate them with NumPy, in float64: nothing to compile."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor import Mode, OpFromGraph
from pytensor.graph import (
    Apply,
    Constant,
    FunctionGraph,
    RewriteDatabaseQuery,
    Variable,
    ancestors,
    clone_replace,
    graph_inputs,
    node_rewriter,
)
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pymc_api import resolve_shapes
from pymc_coresets.compat.wording import describe
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.loops.fused_loops import Program
from pymc_coresets.loops.rewrites import (
    MOST_OPERANDS,
    OUT_OF_LOOPS,
    USELESS,
    as_ufuncs,
    inline_graphs,
)
from pymc_coresets.reading.selection_rules import rebuild

_BY_PYTHON = "FAST_COMPILE"  # of PyTensor's modes


@node_rewriter([ops.Elemwise])
def _in_parts(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:  # noqa: ARG001
    """Write sums and products of many arrays, which PyTensor makes of nested ones, in parts."""
    size, parts = MOST_OPERANDS - 1, list(node.inputs)
    if len(parts) <= size or not isinstance(node.op.scalar_op, ps.Add | ps.Mul):
        return None
    while len(parts) > 1:
        groups = [parts[i : i + size] for i in range(0, len(parts), size)]
        parts = [node.op(*group) if len(group) > 1 else group[0] for group in groups]
    return parts


@node_rewriter([ops.Scan])
def _without_c(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:  # noqa: ARG001
    """Let Python run loops, whose operations would be compiled one by one, for half a minute."""
    if node.op.mode == _BY_PYTHON:
        return None
    op = node.op.clone_with_inner_graph(node.op.fgraph)
    op.mode = _BY_PYTHON
    outputs: list[Variable] = op.make_node(*node.inputs).outputs
    return outputs


def numpy_mode(rewrites: str | RewriteDatabaseQuery) -> Mode:
    """Return a mode that evaluates a graph with NumPy, operation by operation.

    Parameters
    ----------
    rewrites : str or RewriteDatabaseQuery
        Rewrites that PyTensor applies first.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> pytensor.function([x], pt.add(*[x] * 40), mode=numpy_mode("None"))([1.0])
    array([40.])
    """
    mode: Mode = ops.HeldMode(linker="py", optimizer=rewrites).register(
        (ops.dfs_rewriter(_in_parts), 48.1), (ops.dfs_rewriter(_without_c), 48.2)
    )
    return mode


#: Evaluates a graph as it is written.  PyTensor would compile the graphs inside of operations.
WRITTEN_MODE: Mode = numpy_mode("minimum_compile").register((ops.dfs_rewriter(inline_graphs), 47.9))

_STABLE = ("canonicalize", "stabilize", "local_check_parameter_to_ninf_switch")
_SIMPLIFY = ops.HeldRewrites.of(_STABLE, exclude=(*USELESS, *OUT_OF_LOOPS))
_LEAVE_FILLS_OUT = ops.HeldRewrites.of(["local_elemwise_alloc"])


def _stable_mode() -> Mode:
    query = RewriteDatabaseQuery(include=[*_STABLE, "specialize"], exclude=USELESS)
    mode: Mode = numpy_mode(query).register(
        (ops.dfs_rewriter(inline_graphs), 47.9),  # after the rewrites that stabilise
        (ops.dfs_rewriter(as_ufuncs), 48.0),  # and after those that would undo it
    )
    return mode


#: Evaluates a graph that is too cheap to compile with NumPy, to the values that PyMC gives it.
#: Numerically unstable expressions are rewritten: ``log(1 - sigmoid(40))`` is -40, not minus
#: infinity.  Where the parameters of a distribution fail its checks, the log-density is minus
#: infinity.
NUMPY_MODE: Mode = _stable_mode()


def numpy_function(
    inputs: Sequence[Variable], outputs: Sequence[Variable], mode: Mode = NUMPY_MODE
) -> Callable[..., list[np.ndarray]]:
    """Return a function of `inputs` that evaluates `outputs` with NumPy.

    Parameters
    ----------
    inputs : sequence of Variable
        Variables without a known value; an output need not depend on all of them.
    outputs : sequence of Variable
    mode : Mode, default NUMPY_MODE

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> b, x = pt.scalar("b"), pt.constant([-40.0, 40.0])
    >>> numpy_function([b], [b * pt.log(1 - pt.sigmoid(x))])(2.0)[0].round(9)
    array([ -0., -80.])
    """
    with ops.compiling():
        graphs, constants = _lifted(outputs)
        function = pytensor.function(
            [*inputs, *constants.values()],
            graphs,
            mode=mode,
            on_unused_input="ignore",
        )
    data = [cast(Constant, constant).data for constant in constants]

    def call(*values: object) -> list[np.ndarray]:
        with np.errstate(all="ignore"):  # users of a value that is not finite name it
            results: list[np.ndarray] = function(*values, *data)
        return results

    return call


def written_function(
    inputs: Sequence[TensorVariable], outputs: Sequence[Variable]
) -> Callable[..., list[np.ndarray]]:
    """Return a function of arrays that performs operations as they are written.

    For small graphs whose operations are stable: PyTensor neither compiles a function nor rewrites
    what it would take apart.

    Parameters
    ----------
    inputs : sequence of TensorVariable
    outputs : sequence of Variable

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> written_function([x], [x[:1] + 1])(np.array([1.0, 2.0]))
    [array([2.])]
    """
    shared = [v for v in graph_inputs(outputs) if isinstance(v, ops.SharedVariable)]
    every = [*inputs, *shared]
    with ops.compiling():
        fgraph = FunctionGraph(every, list(outputs), clone=True)
        WRITTEN_MODE.optimizer.rewrite(fgraph)
    program = Program(fgraph, fgraph.toposort(), len(every), compiled=False)

    def call(*values: np.ndarray) -> list[np.ndarray]:
        given = [np.asarray(x, v.type.dtype) for x, v in zip(values, inputs, strict=True)]
        found = program(*given, *(v.get_value(borrow=True) for v in shared))
        # Views of what was given would change with it.
        return [x if x.flags.owndata else x.copy() for x in map(np.asarray, found)]

    return call


def _lifted(graphs: Sequence[Variable]) -> tuple[list[Variable], dict[Variable, Variable]]:
    """Return graphs with inputs in place of data, and these inputs.

    PyTensor evaluates functions of constants before it looks for unstable expressions.
    """
    constants: dict[Variable, Variable] = {
        v: v.type()
        for v in graph_inputs(graphs)
        if isinstance(v, Constant) and np.asarray(v.data).dtype.kind == "f" and v.type.ndim
    }
    return clone_replace(list(graphs), constants) if constants else list(graphs), constants


def simplified(graphs: Sequence[Variable]) -> list[Variable]:
    """Rewrite graphs before their gradients are taken, or they are vectorised.

    There is more to rewrite afterwards, which takes several times as long.  The values are those of
    `NUMPY_MODE`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> pytensor.dprint(simplified([pt.log(1 - pt.sigmoid(x))])[0], file="str").split()[:3]
    ['Neg', '[id', 'A]']
    """
    # Vectorised, what has the shape of something else would no longer be known to have length 1.
    lifted, constants = _lifted(with_constant_shapes(graphs))
    with ops.compiling():
        rewritten = _SIMPLIFY.rewritten(lifted)
    put_back = {placeholder: constant for constant, placeholder in constants.items()}
    return clone_replace(rewritten, put_back) if put_back else rewritten


def without_fills(graphs: Sequence[Variable]) -> list[Variable]:
    """Let elementwise operations repeat a number, instead of arrays that are filled with it.

    With draws along a new axis, PyTensor would fill these one by one.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> pytensor.dprint(without_fills([x + pt.full(x.shape, 2.0)])[0], file="str").count("Alloc")
    0
    """
    with ops.compiling():
        return _LEAVE_FILLS_OUT.rewritten(graphs)


def with_joined_scalars(graphs: Sequence[Variable]) -> list[Variable]:
    """Join the different scalars of vectors, and index them where one is there several times.

    PyTensor makes ``stack([a, b])[codes]`` a vector of as many scalars as there are codes, which
    takes hours to rewrite.

    Examples
    --------
    >>> a, b = pt.dscalars("a", "b")
    >>> [vector] = with_joined_scalars([pt.stack([a, b, a, a])])
    >>> vector.owner.inputs[1].data, vector.eval({a: 1.0, b: 2.0})
    (array([0, 1, 0, 0]), array([1., 2., 1., 1.]))
    """

    def joined(node: Apply, inputs: Sequence[Variable]) -> Sequence[Variable]:
        is_vector = isinstance(node.op, ops.MakeVector) and node.op.dtype in ("float64", "float32")
        return [_joined(inputs, node.op.dtype)] if is_vector else kept(node, inputs)

    return rewritten_by(joined, graphs)


def rewritten_by(
    write: Callable[[Apply, list[Variable]], Sequence[Variable]],
    graphs: Sequence[Variable],
    given: Mapping[Variable, Variable] = MappingProxyType({}),
) -> list[Variable]:
    """Write some operations otherwise, each after all that it needs; what does not change is kept.

    Parameters
    ----------
    write : callable
        Returns what stands for the outputs of a node, from its new inputs; see `kept`.
    graphs : sequence of Variable
    given : mapping of Variable to Variable, optional
        What takes the place of inputs.

    Examples
    --------
    >>> x = pt.scalar("x")
    >>> def doubled(node, inputs):
    ...     return [2 * inputs[0]] if node.op == pt.exp else kept(node, inputs)
    >>> float(rewritten_by(doubled, [pt.exp(pt.exp(x)) + 1])[0].eval({x: 1.0}))
    5.0
    """
    known = dict(given)
    for node in ops.io_toposort(list(graph_inputs(graphs)), graphs):
        found = write(node, [known.get(v, v) for v in node.inputs])
        known.update(zip(node.outputs, found, strict=True))
    return [known.get(v, v) for v in graphs]


def kept(node: Apply, inputs: Sequence[Variable]) -> Sequence[Variable]:
    """Return the outputs of an operation of other inputs; its own, if the inputs are the same."""
    same = list(inputs) == node.inputs
    outputs: Sequence[Variable] = (node if same else node.clone_with_new_inputs(inputs)).outputs
    return outputs


def _joined(scalars: Sequence[Variable], dtype: str) -> Variable:
    codes = {scalar: code for code, scalar in enumerate(dict.fromkeys(scalars))}
    vector = pt.join(0, *(pt.cast(scalar, dtype)[None] for scalar in codes))
    every = np.array([codes[scalar] for scalar in scalars])
    joined: Variable = vector if len(codes) == len(every) else vector[every]
    return joined


def values_of(
    variables: Sequence[Variable], given: Mapping[Variable, np.ndarray] = MappingProxyType({})
) -> list[np.ndarray]:
    """Evaluate variables once, to the values of `NUMPY_MODE`; no function is made of them.

    Parameters
    ----------
    variables : sequence of Variable
    given : mapping of Variable to ndarray, optional
        Values of inputs, if they depend on anything but data.

    Returns
    -------
    list of ndarray
        To be read only: they may be views of `given`, or of the data that the model holds.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> values_of([pt.constant([1.0, 2.0]) * 2])
    [array([2., 4.])]
    """
    return performed(list(given), variables)(*given.values())


def performed(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[..., list[np.ndarray]]:
    """Return a function that evaluates outputs a few times, to the values of `NUMPY_MODE`.

    PyTensor rewrites the graph, but makes no function of it.

    Parameters
    ----------
    inputs : sequence of Variable
        Variables without a known value; an output need not depend on all of them.
    outputs : sequence of Variable

    Examples
    --------
    >>> x = pt.vector("x")
    >>> exp_of = performed([x], [pt.exp(x)])
    >>> exp_of(np.zeros(1)), exp_of(np.ones(2))
    ([array([1.])], [array([2.71828183, 2.71828183])])
    """
    graphs, known = list(outputs), dict[Variable, Any]()
    if not all(_is_as_written(node) for node in ops.io_toposort([], outputs)):
        with ops.compiling():
            lifted, constants = _lifted(outputs)
            fgraph = FunctionGraph(outputs=lifted, clone=True, copy_inputs=False)
            NUMPY_MODE.optimizer.rewrite(fgraph)
        graphs = list(fgraph.outputs)
        known = {new: _held_by(old) for old, new in constants.items()}
    return lambda *values: _performed(graphs, known | dict(zip(inputs, values, strict=True)))


def _is_as_written(node: Apply) -> bool:
    """Whether NumPy performs a node as it is: of positions, lengths, masks, or other views.

    Numbers may have to be stabilised, labelled arrays be lowered, and long sums be cut.
    """
    if len(node.inputs) >= MOST_OPERANDS or any(
        isinstance(v, ops.XTensorVariable) for v in (*node.inputs, *node.outputs)
    ):
        return False
    is_cast = isinstance(node.op, ops.Elemwise) and isinstance(node.op.scalar_op, ps.Cast)
    is_float = any(getattr(v.type, "dtype", "").startswith("float") for v in node.outputs)
    return not is_float or is_cast or isinstance(node.op, (*ops.MOVES, ops.Join))


def _performed(graphs: Sequence[Variable], given: Mapping[Variable, object]) -> list[np.ndarray]:
    """Perform operations one after the other, as PyTensor's functions do: none is made."""
    storage = {
        v: [np.asarray(given[v], v.type.dtype) if v in given else _held_by(v)]
        for v in graph_inputs(graphs)
    }
    order = ops.io_toposort([], graphs)
    last_use = {v: node for node in order for v in node.inputs}
    is_known = defaultdict[Variable, list[bool]](lambda: [True])  # which lazy operations ask for
    with np.errstate(all="ignore"):
        for node in order:
            storage |= {v: [None] for v in node.outputs}
            node.op.make_thunk(node, storage, is_known, [], impl="py")()
            for v in node.inputs:  # large arrays are released early
                if last_use[v] is node and v not in graphs:
                    storage.pop(v, None)
    return [np.asarray(storage[v][0]) for v in graphs]


def _held_by(variable: Variable) -> Any:  # noqa: ANN401
    """Return what a constant or a shared variable holds."""
    if isinstance(variable, ops.SharedVariable):
        return variable.get_value(borrow=True)
    return cast(Constant, variable).data


def known_length(variable: TensorVariable, axis: int) -> Iterator[int]:
    """Yield the length of an axis, if the values of parameters cannot determine it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> w = pt.vector("w", shape=(2,))
    >>> list(known_length(pt.signal.convolve1d(np.ones(5), w), 0))
    [6]
    """
    length = variable.type.shape[axis]
    if length is not None:
        yield length
        return
    [shape] = resolve_shapes([variable.shape])
    if all(isinstance(v, Constant) for v in graph_inputs([shape])):
        [lengths] = values_of([shape])
        yield int(lengths[axis])


def with_constant_shapes(graphs: Sequence[Variable]) -> list[Variable]:
    """Fold shapes, and the lengths and positions computed from them, whatever the values are.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x", shape=(3,))
    >>> with_constant_shapes([pt.zeros(2 * x.shape[0])])[0].type.shape
    (6,)
    """
    while known := _known_shapes(graphs):
        # Other shapes become known with these: each node is made anew.
        graphs = clone_replace(list(graphs), known, rebuild_strict=False)
    return list(graphs)


def _known_shapes(graphs: Sequence[Variable]) -> dict[Variable, Variable]:
    known: dict[Variable, Variable] = {}
    for variable in ancestors(graphs):
        if ops.is_input(variable):
            continue
        node = variable.owner
        shape = node.inputs[0].type.shape if isinstance(node.op, ops.Shape | ops.Shape_i) else ()
        if isinstance(node.op, ops.Shape_i) and shape[node.op.i] is not None:
            known[variable] = pt.constant(shape[node.op.i], dtype="int64")
        elif isinstance(node.op, ops.Shape) and None not in shape:
            known[variable] = pt.constant(np.array(shape, dtype="int64"))
        elif _is_length(node):
            [value] = values_of([variable])
            known[variable] = variable.type.constant_type(variable.type, value)
        elif isinstance(node.op, ops.SymbolicOp) and None in variable.type.shape:
            fresh = rebuild(node.op, node, node.inputs, {})[node.outputs.index(variable)]
            if fresh.type.shape != variable.type.shape:
                known[variable] = fresh
    return known


def _is_length(node: Apply) -> bool:
    """Whether a node computes one integer from constants too short to be data."""
    [output, *others] = node.outputs
    return (
        not others
        and getattr(output.type, "dtype", None) == "int64"
        and output.type.ndim == 0
        and all(isinstance(i, Constant) and np.size(i.data) < 10 for i in node.inputs)
    )


def widened(graphs: Sequence[Variable], given: Mapping[Variable, Variable]) -> list[Variable]:
    """Replace inputs of float32 by others of float64, and do all that follows in float64.

    Sums over rows, a search for a mode and differences of gradients need the digits.  Data keep
    their type.

    Parameters
    ----------
    graphs : sequence of Variable
        Left as they are.
    given : mapping of Variable to Variable
        What takes the place of inputs.

    Raises
    ------
    UnsupportedModelError
        If a loop, or another graph within the graph, was made for float32.

    Examples
    --------
    >>> x, wide = pt.vector("x", dtype="float32"), pt.vector("x", dtype="float64")
    >>> widened([pt.exp(x).sum()], {x: wide})[0].type.dtype
    'float64'
    """
    return rewritten_by(_made_anew, graphs, given)


def _made_anew(node: Apply, inputs: list[Variable]) -> Sequence[Variable]:
    op = node.op
    if inputs == node.inputs:
        return kept(node, inputs)
    if isinstance(op, ops.SymbolicOp):
        outputs: Sequence[Variable] = op(*inputs, return_list=True)
        return outputs
    pairs = zip(inputs, node.inputs, strict=True)
    if all(_dtype(new) == _dtype(old) for new, old in pairs):
        return node.clone_with_new_inputs(inputs, strict=False).outputs
    if isinstance(op, OpFromGraph | ops.Scan):
        raise UnsupportedModelError(
            "The model is in float32, but log-likelihoods are added up in float64, and "
            f"{describe(node.outputs[0])} cannot be: set pytensor.config.floatX = 'float64' before "
            "you write the model."
        )
    if isinstance(op, ops.Elemwise) and isinstance(op.scalar_op, ps.Cast):
        return [pt.cast(inputs[0], _wide(node.outputs[0].type.dtype))]
    if isinstance(op, ops.IncSubtensor | ops.AdvancedIncSubtensor):
        inputs[:2] = [pt.cast(v, "float64") for v in inputs[:2]]
    if any(_wide(value) is not value for value in vars(op).values()):  # as of a sum
        op = copy(op)
        vars(op).update({name: _wide(value) for name, value in vars(op).items()})
    made: Sequence[Variable] = op.make_node(*inputs).outputs
    return made


def _dtype(variable: Variable) -> str | None:
    """Return the type of the entries; None of slices, and of None as an index."""
    dtype: str | None = getattr(variable.type, "dtype", None)
    return dtype


def _wide(dtype: object) -> Any:  # noqa: ANN401 - the attributes of operations are of all kinds
    return "float64" if isinstance(dtype, str) and dtype == "float32" else dtype
