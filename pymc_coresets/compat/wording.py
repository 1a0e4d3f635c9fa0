"""What messages call an operation of a graph, and the user's variables that it belongs to."""

from itertools import islice
from typing import Any

from pytensor.graph import Constant, Op, Variable, ancestors

from pymc_coresets.compat import pytensor_api as ops

_MOST_NAMES = 3
_IN_WORDS: dict[type, str] = {
    ops.Scan: "a loop (pytensor.scan)",
    ops.Split: "a split of an array",
    ops.Join: "a concatenation",
    ops.CumOp: "a cumulative sum or product",
    ops.SortOp: "a sort",
    ops.ArgSortOp: "an order",
    ops.Argmax: "the position of a maximum",
    ops.Dot: "a matrix product",
    ops.SolveBase: "the solution of linear equations",
    ops.Convolve1d: "a convolution",
    ops.Reshape: "a change of shape",
    ops.Repeat: "a repetition",
    ops.CAReduce: "a sum or product over an axis",
    ops.Subtensor: "an index",
    ops.AdvancedSubtensor: "an index",
    ops.IncSubtensor: "an array with changed entries",
    ops.AdvancedIncSubtensor: "an array with changed entries",
}


def in_words(op: Op) -> str:
    """Name an operation for users, who write functions and know no classes of PyTensor.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> in_words(pt.exp), in_words(pt.linalg.cholesky(pt.matrix()).owner.op)
    ('the function exp', 'the operation cholesky')
    """
    core: Any = getattr(op, "core_op", op)
    for kind, words in _IN_WORDS.items():
        if isinstance(core, kind):
            return words
    if isinstance(core, ops.Elemwise):
        return f"the function {type(core.scalar_op).__name__.lower()}"
    return f"the operation {type(core).__name__.lower()}"


def describe(variable: Variable) -> str:
    """Name the operation that computes a variable, and the nearest variable with a name.

    Without one, the names of what it is computed from.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> mu = 2 * pt.vector("x")
    >>> describe(mu.exp())
    "the function exp of 'x'"
    >>> mu.name = "mu"
    >>> describe(mu.exp())
    "the function exp (in 'mu')"
    """
    words = in_words(variable.owner.op) if variable.owner else "the data"
    below = [v for v in ancestors([variable]) if v.name and not isinstance(v, Constant)]
    for v in below:
        if v is variable or not ops.is_input(v):
            return f"{words} (in {v.name!r})"
    names = list(islice(dict.fromkeys(v.name for v in below), _MOST_NAMES))
    return f"{words} of {' and '.join(map(repr, names))}" if names else words
