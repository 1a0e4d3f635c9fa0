"""Operations on each array of a batch, by one call of NumPy for all.

PyTensor's are loops, for which Numba compiles its rules of indexing, joins and messages: with an
empty cache, three to five seconds for each.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor.graph import Apply, Constant, Variable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import compiled_on_disk
from pymc_coresets.loops.direct_calls import in_order, places_of, takes_numbers

type Function = Callable[..., Any]

#: Numbers that an operation has looked up from which on a compiled loop does: it takes a quarter of
#: the time, but half a second to compile, and copies the same numbers.
_MANY = 2**22


def repeated(op: ops.BlockwiseWithCoreShape) -> Apply:
    """Return the batched operation inside one whose core shape is known."""
    [core] = [node for node in op.fgraph.apply_nodes if isinstance(node.op, ops.Blockwise)]
    return core


def batched_call(node: Apply, inputs: Sequence[Variable]) -> Function | None:
    """Return a function of the inputs of a batched operation, and of any that follow them.

    None if it is neither a join, a cut at known places, nor a lookup of numbers.

    Parameters
    ----------
    node : Apply
    inputs : sequence of Variable
        Its own, or those of the operation that it is inside of, which may be constants.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor.graph import vectorize_graph
    >>> x, k = pt.vector("x"), pt.lvector("k")
    >>> each = vectorize_graph(x[k], {x: pt.matrix("x"), k: pt.lmatrix("k")})
    >>> lookup = batched_call(each.owner, each.owner.inputs)
    >>> lookup(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1, 1, 0], [0, 1, 0]]))
    array([[2., 2., 1.],
           [3., 4., 3.]])
    """
    core = node.op.core_op
    if isinstance(core, ops.Join):
        return _joined(node)
    if isinstance(core, ops.Split):
        return _cut(node, inputs[1])
    return _looked_up(node) if isinstance(core, ops.AdvancedSubtensor) else None


def _joined(node: Apply) -> Function:
    n, axis = node.op.batch_ndim(node), node.op.core_op.axis

    def join(*inputs: Any) -> Any:  # noqa: ANN401
        arrays = inputs[: len(node.inputs)]
        batch = np.broadcast_shapes(*(a.shape[:n] for a in arrays))
        whole = [np.broadcast_to(a, batch + a.shape[n:]) for a in arrays]
        return np.concatenate(whole, axis=n + axis)

    return join


def _cut(node: Apply, sizes: Variable) -> Function | None:
    """Cut arrays into parts of known lengths, which may be repeated for each entry of a batch."""
    batch = node.inputs[0].type.broadcastable[: node.op.batch_ndim(node)]
    if isinstance(ops.op_of(sizes), ops.Alloc) and not any(batch):
        sizes = sizes.owner.inputs[0]
    if not isinstance(sizes, Constant) or sizes.data.size != sizes.type.shape[-1]:
        return None
    axis = node.op.batch_ndim(node) + node.op.core_op.axis
    ends = np.cumsum(sizes.data.ravel())[:-1]
    return lambda x, *_: tuple(map(in_order, np.split(x, ends, axis=axis)))


def _looked_up(node: Apply) -> Function | None:
    """Look up entries of each array at places of its own."""
    if not takes_numbers(node.op.core_op, node.inputs[1:]):
        return None
    n, n_inputs = node.op.batch_ndim(node), len(node.inputs)
    broadcast, n_numbers = [v.type.broadcastable[:n] for v in node.inputs], 0

    def look_up(*inputs: np.ndarray) -> np.ndarray:
        nonlocal n_numbers  # threads may miss some of them
        x, *index = inputs[:n_inputs]
        _require_same_batch(inputs[:n_inputs], broadcast)
        core = x.shape[n:]
        lead, rest = core[: len(index)], core[len(index) :]
        one = _with_batch(index, n)
        places = one[0] if len(one) == 1 else places_of(one, lead)
        before = np.broadcast_shapes(x.shape[:n], places.shape[:n])
        of_x, of_places = (_numbered(a.shape[:n], before) for a in (x, places))
        flat = np.ascontiguousarray(x).reshape(prod(x.shape[:n]), prod(lead), prod(rest))
        each = np.ascontiguousarray(places, dtype=np.int64)
        each = each.reshape(prod(places.shape[:n]), prod(places.shape[n:]))
        found = np.empty((len(of_x), each.shape[1], flat.shape[2]), x.dtype)
        n_numbers += found.size
        take = _take if n_numbers > _MANY else _take_by_numpy
        if not take(flat, each, of_x, of_places, found):
            raise IndexError(f"An index is out of bounds for an axis of {lead}.")
        return found.reshape(*before, *places.shape[n:], *rest)

    return look_up


def _take_by_numpy(
    x: np.ndarray,
    places: np.ndarray,
    of_x: np.ndarray,
    of_places: np.ndarray,
    found: np.ndarray,
) -> bool:
    """Do what `_take` does, or raise an IndexError."""
    found[...] = x[of_x[:, None], places[of_places]]
    return True


@compiled_on_disk
def _take(
    x: np.ndarray,
    places: np.ndarray,
    of_x: np.ndarray,
    of_places: np.ndarray,
    found: np.ndarray,
) -> bool:
    """Fill (B, J, r) from (X, n, r) at places (P, J); return whether all of them exist."""
    n = x.shape[1]
    for b in range(len(found)):
        i, p = of_x[b], of_places[b]
        for j in range(places.shape[1]):
            k = np.int64(places[p, j])
            if k < 0:
                k += n
            if not 0 <= k < n:
                return False
            for r in range(x.shape[2]):
                found[b, j, r] = x[i, k, r]
    return True


def _numbered(shape: tuple[int, ...], batch: tuple[int, ...]) -> np.ndarray:
    """Number arrays of a shape, and repeat the numbers over a batch."""
    numbers = np.arange(prod(shape)).reshape(shape)
    return np.broadcast_to(numbers, batch).ravel()


def _with_batch(index: Sequence[np.ndarray], n: int) -> list[np.ndarray]:
    """Align the other axes of places at the last, behind those of the batch."""
    most = max(one.ndim for one in index)
    return [one.reshape(*one.shape[:n], *(1,) * (most - one.ndim), *one.shape[n:]) for one in index]


def _require_same_batch(inputs: Sequence[np.ndarray], broadcast: Sequence[Sequence[bool]]) -> None:
    """NumPy would broadcast an axis that happens to have length 1."""
    for axis, every in enumerate(zip(*broadcast, strict=True)):
        lengths = {x.shape[axis] for x, is_one in zip(inputs, every, strict=True) if not is_one}
        if len(lengths) > 1:
            raise ValueError(
                f"Axis {axis} has the lengths {sorted(lengths)}, of arrays of a batch."
            )
