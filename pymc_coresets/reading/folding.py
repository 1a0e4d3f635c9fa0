"""Find the parts of a graph that are known, and evaluate them with NumPy: nothing to compile."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_coresets.compat.pymc_api import resolve_shapes
from pymc_coresets.compat.pytensor_api import (
    Add,
    Apply,
    Blockwise,
    Constant,
    Elemwise,
    FunctionGraph,
    Log1mexp,
    Mode,
    Mul,
    OpFromGraph,
    RewriteDatabaseQuery,
    Softplus,
    TensorVariable,
    Variable,
    ancestors,
    clone_replace,
    dfs_rewriter,
    graph_inputs,
    inline_ofg_node,
    io_toposort,
    node_rewriter,
    rewrite_graph,
    vectorize_graph,
)

__all__ = [
    "MOST_OPERANDS",
    "PLAIN_MODE",
    "Known",
    "Step",
    "build_planned",
    "describe",
    "evaluate",
    "inline_graphs",
    "known_length",
    "numpy_function",
    "plain_mode",
    "simplified",
    "vectorised_loop",
]

#: Of an elementwise operation, its result included, that NumPy evaluates.
MOST_OPERANDS = 32


@node_rewriter([Elemwise])
def _as_ufuncs(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:  # noqa: ARG001
    """Write functions by others that NumPy has: PyTensor would call Python for each number."""
    x = node.inputs[0]
    if isinstance(node.op.scalar_op, Softplus):
        return [pt.maximum(x, 0) + pt.log1p(pt.exp(-pt.abs(x)))]
    if isinstance(node.op.scalar_op, Log1mexp):
        near_zero = pt.log(-pt.expm1(pt.maximum(x, -1)))
        return [pt.switch(x > -np.log(2), near_zero, pt.log1p(-pt.exp(x)))]
    return None


@node_rewriter([Elemwise])
def _in_parts(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:  # noqa: ARG001
    """Write sums and products of many arrays, which PyTensor makes of nested ones, in parts."""
    size, parts = MOST_OPERANDS - 1, list(node.inputs)
    if len(parts) <= size or not isinstance(node.op.scalar_op, Add | Mul):
        return None
    while len(parts) > 1:
        groups = [parts[i : i + size] for i in range(0, len(parts), size)]
        parts = [node.op(*group) if len(group) > 1 else group[0] for group in groups]
    return parts


@node_rewriter([OpFromGraph, Blockwise])
def inline_graphs(
    fgraph: FunctionGraph,  # noqa: ARG001 (PyTensor passes it)
    node: Apply,
) -> list[Variable] | None:
    """Replace operations such as a softmax by their parts, which PyTensor would compile."""
    if isinstance(node.op, OpFromGraph):
        inlined: list[Variable] = inline_ofg_node(node)
        return inlined
    if not isinstance(node.op.core_op, OpFromGraph):
        return None
    inner = node.op.core_op.fgraph.unfreeze()
    outputs: list[Variable] = vectorize_graph(
        inner.outputs, dict(zip(inner.inputs, node.inputs, strict=True))
    )
    return outputs


def vectorised_loop(node: Apply) -> list[Variable] | None:
    """Write a loop whose steps do not depend on each other without one; None where they do.

    PyMC's log-density of a distribution that is written as a loop (``pytensor.scan``) is such a
    loop: each step takes the values of the steps before from the data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, b = pt.vector("x"), pt.scalar("b")
    >>> y = pytensor.scan(lambda now, b: b * now, [x], non_sequences=[b], return_updates=False)
    >>> [vectorised] = vectorised_loop(y.owner)
    >>> vectorised.eval({x: [1.0, 2.0], b: 3.0})
    array([3., 6.])
    """
    op, info = node.op, node.op.info
    inner = op.fgraph.unfreeze()
    n_alone = info.n_seqs + info.n_non_seqs
    if info.as_while or (len(inner.inputs), len(inner.outputs)) != (n_alone, info.n_nit_sot):
        return None
    n_steps, *_ = node.inputs
    steps = [x[:n_steps] for x in op.outer_seqs(node.inputs)]
    given = dict(zip(inner.inputs, [*steps, *op.outer_non_seqs(node.inputs)], strict=True))
    outputs: list[Variable] = vectorize_graph(inner.outputs, given)
    has_steps = all(
        found.type.ndim == output.type.ndim
        for found, output in zip(outputs, node.outputs, strict=True)
    )
    return outputs if has_steps else None


def plain_mode(rewrites: str | RewriteDatabaseQuery) -> Mode:
    """Return a mode that evaluates a graph with NumPy, operation by operation.

    Parameters
    ----------
    rewrites : str or RewriteDatabaseQuery
        What PyTensor does to the graph before.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> pytensor.function([x], pt.add(*[x] * 40), mode=plain_mode("None"))([1.0])
    array([40.])
    """
    mode: Mode = Mode(linker="py", optimizer=rewrites).register((dfs_rewriter(_in_parts), 48.1))
    return mode


_STABLE = ("canonicalize", "stabilize", "local_check_parameter_to_ninf_switch")


def _numpy_mode() -> Mode:
    mode: Mode = plain_mode(RewriteDatabaseQuery(include=[*_STABLE, "specialize"])).register(
        (dfs_rewriter(inline_graphs), 47.9),  # after the rewrites that stabilise
        (dfs_rewriter(_as_ufuncs), 48.0),  # and after those that would undo it
    )
    return mode


#: Evaluates a graph that is too cheap to compile with NumPy, to the values that PyMC gives it.
#: Numerically unstable expressions are rewritten: ``log(1 - sigmoid(40))`` is -40, not minus
#: infinity.  Where the parameters of a distribution fail its checks, the log-density is minus
#: infinity.
PLAIN_MODE: Mode = _numpy_mode()


def numpy_function(
    inputs: Sequence[Variable], outputs: Sequence[Variable], mode: Mode | None = None
) -> Callable[..., list[np.ndarray]]:
    """Return a function of `inputs` that evaluates `outputs` with NumPy.

    Parameters
    ----------
    inputs : sequence of Variable
        Variables without a known value; an output need not depend on all of them.
    outputs : sequence of Variable
    mode : Mode, optional
        By default `PLAIN_MODE`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> b, x = pt.scalar("b"), pt.constant([-40.0, 40.0])
    >>> numpy_function([b], [b * pt.log(1 - pt.sigmoid(x))])(2.0)[0].round(9)
    array([ -0., -80.])
    """
    graphs, constants = _lifted(outputs)
    function = pytensor.function(
        [*inputs, *constants.values()],
        graphs,
        mode=PLAIN_MODE if mode is None else mode,
        on_unused_input="ignore",
    )
    data = [cast(Constant, constant).data for constant in constants]

    def call(*values: Any) -> list[np.ndarray]:  # noqa: ANN401
        with np.errstate(all="ignore"):  # whoever uses a value that is not finite names it
            results: list[np.ndarray] = function(*values, *data)
        return results

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
    `PLAIN_MODE`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> pytensor.dprint(simplified([pt.log(1 - pt.sigmoid(x))])[0], file="str").split()[:3]
    ['Neg', '[id', 'A]']
    """
    lifted, constants = _lifted(graphs)
    rewritten = cast(list[Variable], rewrite_graph(lifted, include=_STABLE, clone=True))
    put_back = {placeholder: constant for constant, placeholder in constants.items()}
    return clone_replace(rewritten, put_back) if put_back else rewritten


def evaluate(variables: Sequence[Variable]) -> list[np.ndarray]:
    """Evaluate variables that depend on nothing but data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> evaluate([pt.constant([1.0, 2.0]) * 2])
    [array([2., 4.])]
    """
    computed = [v for v in dict.fromkeys(variables) if not isinstance(v, Constant)]
    values: dict[Variable, Any] = {v: v.data for v in variables if isinstance(v, Constant)}
    if computed:
        # Positions, lengths and masks have nothing to stabilise.
        exact = all(v.type.dtype not in ("float64", "float32") for v in computed)
        mode = plain_mode("None") if exact else None
        values |= dict(zip(computed, numpy_function([], computed, mode)(), strict=True))
    return [np.asarray(values[v]) for v in variables]


def known_length(variable: TensorVariable, axis: int) -> int | None:
    """Return the length of an axis; None where the values of parameters may determine it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> w = pt.vector("w", shape=(2,))
    >>> known_length(pt.signal.convolve1d(np.ones(5), w), 0)
    6
    """
    length: int | None = variable.type.shape[axis]
    if length is not None:
        return length
    [shape] = resolve_shapes([variable.shape])
    if any(v.owner is None and not isinstance(v, Constant) for v in graph_inputs([shape])):
        return None
    [lengths] = evaluate([shape])
    return int(lengths[axis])


class Step[K](NamedTuple):
    """How a part of a graph is made that a key stands for: first its `needs`, then `build`."""

    needs: tuple[K, ...]
    build: Callable[[list[TensorVariable]], TensorVariable]


def build_planned[K](
    wanted: K, plan: Callable[[K], Step[K]], built: dict[K, TensorVariable]
) -> TensorVariable:
    """Make a part of a graph after all that it needs, however deep that goes.

    Parameters
    ----------
    wanted : hashable
        Key of the part.
    plan : callable
        Returns the step of a key.
    built : dict
        What has been made so far, by key; what is made is added.

    Returns
    -------
    TensorVariable

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> def plan(n):
    ...     return Step((n - 1,), lambda parts: parts[0] + 1)
    >>> float(build_planned(3, plan, {0: pt.constant(5.0)}).eval())
    8.0
    """
    stack, steps = [wanted], dict[K, Step[K]]()
    while stack:
        key = stack[-1]
        if key in built:
            stack.pop()
            continue
        if key not in steps:
            steps[key] = plan(key)
        step = steps[key]
        missing = [need for need in step.needs if need not in built]
        if missing:
            stack.extend(missing)
        else:
            built[key] = step.build([built[need] for need in step.needs])
    return built[wanted]


class Known:
    """What is known of graphs whose only free inputs are some parameters.

    Parameters
    ----------
    parameters : iterable of Variable
        The free inputs of the graphs.  All their other inputs are data.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> b, x = pt.scalar("b"), pt.constant([1.0, 2.0])
    >>> known = Known([b])
    >>> known.depends(b * x), known.depends(2 * x), known.value(2 * x)
    (True, False, array([2., 4.]))
    """

    def __init__(self, parameters: Iterable[Variable]) -> None:
        self.parameters = frozenset(parameters)
        self._dependent: dict[Variable, bool] = {}
        self._values: dict[Variable, np.ndarray] = {}

    def depends(self, variable: Variable) -> bool:
        """Whether `variable` is computed from any parameter."""
        if variable not in self._dependent:
            if variable.owner is None:
                self._dependent[variable] = variable in self.parameters
            for node in io_toposort([], [variable]):
                known = any(
                    self._dependent.setdefault(i, i in self.parameters) for i in node.inputs
                )
                self._dependent |= dict.fromkeys(node.outputs, known)
        return self._dependent[variable]

    def value(self, variable: Variable) -> np.ndarray:
        """Evaluate a variable that depends on no parameter, once."""
        if variable not in self._values:
            [self._values[variable]] = evaluate([variable])
        return self._values[variable]

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Return the shape of a variable, if the values of parameters do not determine it."""
        shape = tuple(getattr(variable.type, "shape", ()))
        if None not in shape:
            return shape
        zeros: dict[Variable, Variable] = {
            v: pt.zeros(v.type.shape, dtype=v.type.dtype)
            for v in self.parameters
            if None not in v.type.shape
        }
        [found] = evaluate(clone_replace([pt.shape(variable)], zeros, rebuild_strict=False))
        return tuple(int(n) for n in found)

    def broadcasts(self, variable: Variable, axis: int) -> bool:
        """Whether a variable has length 1 along an axis, even if its type does not say so."""
        length = variable.type.shape[axis]
        if length is not None or self.depends(variable):
            return bool(length == 1)
        return bool(self.value(variable).shape[axis] == 1)

    def holds(self, condition: Variable) -> bool:
        """Whether a condition that depends on no parameter is true everywhere."""
        return bool(np.all(self.value(condition)))


def describe(variable: Variable) -> str:
    """Name the operation that computes a variable, and the nearest variable with a name.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> mu = 2 * pt.vector("x")
    >>> mu.name = "mu"
    >>> describe(mu.exp())
    "Exp (in 'mu')"
    """
    named = (v.name for v in ancestors([variable]) if v.name and v.owner is not None)
    operation = variable.owner.op if variable.owner else "data"
    return f"{operation} (in {variable.name or next(named, 'the log-likelihood')!r})"
