"""Loops that are compiled once in a process, whichever graphs contain them."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from pytensor.graph import Apply

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import loop_as_function, numba_njit

type Function = Callable[..., Any]

_kernels: dict[tuple[str, ...], Function] = {}  # the loops compiled in this process


def compiled_loop(node: Apply) -> Function:
    """Return a compiled function of the values of the inputs of a node.

    An elementwise loop is one function for Numba, with its lookups and sums.  PyTensor's is a
    function in two others, each of which is optimised and linked by itself: a loop takes half a
    second instead of three tenths.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> compiled_loop(pt.exp(x).owner)(np.zeros(2))
    array([1., 1.])
    """
    is_loop = isinstance(node.op, ops.Elemwise | ops.FusedElemwise | ops.ScalarizedElemwise)
    source = loop_as_function(node) if is_loop else None
    if source is None:
        inner: Any
        inner, name = ops.numba_funcify_ensure_cache(node.op, node=node)
        source = inner.py_func, name
    return compiled_once(*source, node)


def compiled_once(
    function: Function, name: str | None, node: Apply, **options: Collection[str]
) -> Function:
    """Let Numba compile a function, unless this process has that of the same name and types.

    Parameters
    ----------
    function : callable
    name : str, or None
        In PyTensor's cache on disk; None if it has no place there.
    node : Apply
        Whose types the name need not include: Numba determines them at the call.
    **options
        Of `numba.njit`.
    """
    jit = partial(
        numba_njit, function, final_function=True, no_cfunc_wrapper=True, nogil=True, **options
    )
    if name is None:
        return jit(cache=False)
    signature = (name, *(str(v.type) for v in (*node.inputs, *node.outputs)))
    if signature not in _kernels:
        _kernels[signature] = jit(cache=True)
    return _kernels[signature]
