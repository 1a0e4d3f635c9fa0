"""Evaluate the parts of a graph with NumPy, with nothing to compile."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_coresets.compat.pytensor_api import (
    Apply,
    Constant,
    Elemwise,
    FunctionGraph,
    Log1mexp,
    Mode,
    RewriteDatabaseQuery,
    Softplus,
    Variable,
    clone_replace,
    dfs_rewriter,
    graph_inputs,
    node_rewriter,
)

__all__ = ["PLAIN_MODE", "evaluate", "numpy_function"]


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


def _numpy_mode() -> Mode:
    rewrites = RewriteDatabaseQuery(include=["canonicalize", "stabilize", "specialize"])
    plain = Mode(linker="py", optimizer=rewrites)
    mode: Mode = plain.including("local_check_parameter_to_ninf_switch").register(
        (dfs_rewriter(_as_ufuncs), 48.0)  # after the rewrites that would undo it
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
    # PyTensor evaluates functions of constants before it looks for unstable expressions.
    constants: dict[Variable, Variable] = {
        v: v.type()
        for v in graph_inputs(outputs)
        if isinstance(v, Constant) and np.asarray(v.data).dtype.kind == "f" and v.type.ndim
    }
    function = pytensor.function(
        [*inputs, *constants.values()],
        clone_replace(list(outputs), constants) if constants else list(outputs),
        mode=PLAIN_MODE if mode is None else mode,
        on_unused_input="ignore",
    )
    data = [cast(Constant, constant).data for constant in constants]

    def call(*values: Any) -> list[np.ndarray]:  # noqa: ANN401
        with np.errstate(all="ignore"):  # whoever uses a value that is not finite names it
            results: list[np.ndarray] = function(*values, *data)
        return results

    return call


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
        mode = Mode(linker="py", optimizer="None") if exact else None
        values |= dict(zip(computed, numpy_function([], computed, mode)(), strict=True))
    return [np.asarray(values[v]) for v in variables]
