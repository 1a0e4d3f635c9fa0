"""Sums over consecutive entries of an axis, in the loop that computes what is summed.

Each segment of the axis has values of its own, such as those of a unit that all of its rows see.
An elementwise loop would look these up for each entry, and store its results for a sum: with three
such values or more, and twenty entries or more, three times the time of one loop over segments and
the entries of each.
"""

# ruff: noqa: ARG001 (PyTensor determines the arguments of its methods and callbacks)

from collections.abc import Callable, Sequence
from functools import singledispatch
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, FunctionGraph, Op, Variable, node_rewriter
from pytensor.scalar import ScalarOp

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import Storage
from pymc_coresets.loops.compilation import compiled_once
from pymc_coresets.loops.direct_calls import direct_call

type Function = Callable[..., Any]

#: What an array has along the last axis: a value of each segment, of each entry, or one for all.
_OF_SEGMENTS, _OF_ENTRIES, _OF_ALL = "segments", "entries", "all"
#: Arrays of segments from which such a loop is faster: vector instructions look up one or two in
#: less time than they lose at the ends of segments.
_WORTH_IT = 3
#: Additions within a segment may be in any order, as in vector instructions.
_IN_ANY_ORDER = {"reassoc", "nsz", "contract"}
_VERSION = f"{__name__} 2"  # of the loops below, in the keys of PyTensor's cache


class Segments(NamedTuple):
    """An array of segments, or of their entries, and the graph of how many entries each has.

    `are_long` says whether each has so many that a loop over its entries fills vector instructions.
    """

    array: Variable
    sizes: Variable
    are_long: bool = True


@singledispatch
def summed_segments(op: Op, node: Apply) -> Segments | None:
    """Return the entries that an operation sums up along the last axis, if it does that."""
    return None


@singledispatch
def repeated_segments(op: Op, node: Apply) -> Segments | None:
    """Return the segments whose values an operation repeats along the last axis, if it does so."""
    return None


class SumsOfSegments(Op):
    """Elementwise results summed up over segments of the last axis.

    The inputs are the number of entries of each segment, (n,), and arrays that broadcast but for
    their last axis, which has n values, one for each entry, or a single one.  The outputs are
    arrays (..., n).

    Parameters
    ----------
    scalar_op : ScalarOp
        Its results are summed up.
    kinds : tuple of str
        What each array has along the last axis.
    """

    __props__ = ("scalar_op", "kinds")

    def __init__(self, scalar_op: ScalarOp, kinds: tuple[str, ...]) -> None:
        self.scalar_op, self.kinds = scalar_op, kinds

    def make_node(self, *inputs: Variable) -> Apply:
        """See `Op`."""
        arrays = ops.checked_tensors(inputs[1:])
        masks = zip(*(x.type.broadcastable[:-1] for x in arrays), strict=True)
        shape = (*(1 if all(axis) else None for axis in masks), None)
        outputs = [
            pt.tensor(dtype=v.type.dtype, shape=shape)
            for v in ops.Elemwise(self.scalar_op).make_scalar_node(*arrays).outputs
        ]
        return Apply(self, list(inputs), outputs)

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Storage) -> None:
        """See `Op`."""
        found = _function_of(self, node)(*inputs)
        every = found if len(node.outputs) > 1 else (found,)
        for storage, value in zip(output_storage, every, strict=True):
            storage[0] = value


@node_rewriter([ops.Elemwise])  # type: ignore[untyped-decorator]
def sum_up_in_loops(fgraph: FunctionGraph, node: Apply) -> dict[Variable, Variable] | None:
    """Compute elementwise results that are only summed up over segments by `SumsOfSegments`."""
    sums: dict[Variable, Segments] = {}
    for output in node.outputs:
        for client, _ in fgraph.clients[output]:
            found = None if isinstance(client, str) else summed_segments(client.op, client)
            if found is None or not found.are_long or output.type.dtype != "float64":
                return None
            sums[client.outputs[0]] = found
    counts = {found.sizes for found in sums.values()}
    if len(counts) != 1 or len(sums) != len(node.outputs) or node.op.inplace_pattern:
        return None
    [sizes] = counts
    arrays, kinds = zip(*(_seen(v, sizes) for v in node.inputs), strict=True)
    if kinds.count(_OF_SEGMENTS) < _WORTH_IT:
        return None
    outputs = SumsOfSegments(node.op.scalar_op, kinds).make_node(sizes, *arrays).outputs
    new = dict(zip(node.outputs, outputs, strict=True))
    return {total: new[found.array] for total, found in sums.items()}


@node_rewriter([ops.Sum])  # type: ignore[untyped-decorator]
def sum_at_once(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Add up all entries where sums of segments would be added up, as for what all segments see."""
    [sums] = node.inputs
    if ops.is_input(sums) or len(fgraph.clients[sums]) > 1:
        return None
    found, axes = summed_segments(sums.owner.op, sums.owner), node.op.axis
    if found is None or not (axes is None or sums.type.ndim - 1 in axes):
        return None
    total: Variable = node.op(found.array)
    return [total]


def _seen(array: Variable, sizes: Variable) -> tuple[Variable, str]:
    """Return the array that a loop over segments reads instead of one of entries, and its kind."""
    node = array.owner
    found = None if node is None else repeated_segments(node.op, node)
    if found is not None and found.sizes is sizes:
        return found.array, _OF_SEGMENTS
    return array, _OF_ALL if array.type.broadcastable[-1] else _OF_ENTRIES


@direct_call.register
def _function_of(op: SumsOfSegments, node: Apply) -> Function:
    _, *arrays = node.inputs
    loop, masks = _compiled(op, node), [x.type.broadcastable[:-1] for x in arrays]
    dtypes = [v.type.dtype for v in node.outputs]

    def summed(sizes: np.ndarray, *values: np.ndarray) -> Any:  # noqa: ANN401
        lengths = {_OF_SEGMENTS: len(sizes), _OF_ENTRIES: int(sizes.sum()), _OF_ALL: 1}
        if sizes.size and sizes.min() < 0:
            raise ValueError("The number of entries of a segment is negative.")
        for kind, x in zip(op.kinds, values, strict=True):
            if x.shape[-1] != lengths[kind]:
                raise ValueError(f"{x.shape[-1]} {kind} do not fit segments of {sizes} entries.")
        shape = np.broadcast_shapes(*(x.shape[:-1] for x in values))
        for mask, x in zip(masks, values, strict=True):  # NumPy would repeat any axis of length 1
            expected = tuple(1 if is_one else n for n, is_one in zip(shape, mask, strict=True))
            if x.shape[:-1] != expected:
                raise ValueError(f"The shapes {x.shape[:-1]} and {expected} do not fit together.")
        totals = [np.empty((*shape, len(sizes)), dtype) for dtype in dtypes]
        loop(sizes, *map(np.ascontiguousarray, values), *totals)
        return tuple(totals) if len(totals) > 1 else totals[0]

    return summed


def _compiled(op: SumsOfSegments, node: Apply) -> Function:
    """Return the compiled loop; it writes into its last arguments."""
    _, *arrays = node.inputs
    of_entry = ops.Elemwise(op.scalar_op).make_scalar_node(*arrays)
    function, key = ops.numba_funcify_ensure_cache(op.scalar_op, node=of_entry)
    source = _source(op.kinds, [x.type.broadcastable[:-1] for x in arrays], len(node.outputs))
    known = (_VERSION, key, source, [v.type.dtype for v in (*node.inputs, *node.outputs)])
    name = None if key is None else sha256(str(known).encode()).hexdigest()
    values = {"of_entry": function, "__name__": __name__}
    written = ops.compile_numba_function_src(source, "loop", values, cache_key=name)
    return compiled_once(written, name, node, fastmath=_IN_ANY_ORDER)


def _source(kinds: Sequence[str], masks: Sequence[Sequence[bool]], n_outputs: int) -> str:
    """Return the source of a loop over segments, inside those over all axes before the last."""
    n_axes, every = len(masks[0]), range(len(kinds))
    inputs, totals = [f"x{i}" for i in every], [f"total{i}" for i in range(n_outputs)]
    lines = [f"def loop(sizes, {', '.join([*inputs, *totals])}):"]
    lines += [
        f"{'    ' * (axis + 1)}for i{axis} in range(total0.shape[{axis}]):"
        for axis in range(n_axes)
    ]
    indent = "    " * (n_axes + 1)

    def at(name: str, mask: Sequence[bool], last: str) -> str:
        before = ["0" if is_one else f"i{axis}" for axis, is_one in enumerate(mask)]
        return f"{name}[{', '.join([*before, last])}]"

    def reads(kind: str, last: str, depth: str) -> list[str]:
        some = [i for i in every if kinds[i] == kind]
        return [f"{depth}v{i} = {at(inputs[i], masks[i], last)}" for i in some]

    lines += reads(_OF_ALL, "0", indent)
    lines += [f"{indent}first = 0", f"{indent}for segment in range(sizes.shape[0]):"]
    inner = indent + "    "
    lines += reads(_OF_SEGMENTS, "segment", inner)
    lines += [f"{inner}sum{i} = 0.0" for i in range(n_outputs)]
    lines += [f"{inner}last = first + sizes[segment]", f"{inner}for entry in range(first, last):"]
    lines += reads(_OF_ENTRIES, "entry", inner + "    ")
    values = ", ".join(f"v{i}" for i in every)
    found = ", ".join(f"found{i}" for i in range(n_outputs))
    lines.append(f"{inner}    {found} = of_entry({values})")
    lines += [f"{inner}    sum{i} += found{i}" for i in range(n_outputs)]
    whole = [False] * n_axes
    lines += [f"{inner}{at(t, whole, 'segment')} = sum{i}" for i, t in enumerate(totals)]
    return "\n".join([*lines, f"{inner}first = last", ""])
