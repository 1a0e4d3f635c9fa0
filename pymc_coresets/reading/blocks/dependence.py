"""Which coordinates of one free variable the entries of a graph depend on.

Each entry of an array gets one label: a coordinate of the variable that it depends on, or -1.  An
entry that depends on several links them, and has the label of any.  What is linked, directly or
through others, forms a component, so that entries with labels of different components have no
coordinate in common.  An operation without a rule links all that it depends on: this finds too few
components, but never too many.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor import OpFromGraph
from pytensor.graph import Apply, Variable
from pytensor.tensor import TensorVariable
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import inline_ofg_node, io_toposort
from pymc_coresets.reading.known import Known, reached
from pymc_coresets.reading.selection_rules import has_rule, input_axes

#: Of entries of the first input.
_MOVES = (
    ops.AdvancedSubtensor,
    ops.JoinDims,
    ops.Repeat,
    ops.Reshape,
    ops.Split,
    ops.SplitDims,
    ops.Subtensor,
)
_REPLACEMENTS = (ops.AdvancedIncSubtensor, ops.IncSubtensor)

type Labels = NDArray[np.int64]


class Dependence:
    """Labels of the entries of graphs, and links between the coordinates of one free variable.

    Parameters
    ----------
    source : TensorVariable
        The input that stands for the variable, of known shape.
    known : Known
        Tells which parts of the graphs are data.

    Attributes
    ----------
    labels : dict of Variable to ndarray of int64
        For each variable of the graphs that depends on the source, an array of its shape.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> a = pt.tensor("a", shape=(6,))
    >>> pairs = a.reshape((3, 2)).sum(axis=1)
    >>> found = Dependence(a, Known([a]))
    >>> found.follow([pairs])
    >>> found.components()
    array([0, 0, 1, 1, 2, 2])
    """

    def __init__(self, source: TensorVariable, known: Known) -> None:
        shape = tuple(source.type.shape)
        self.n_coordinates = math.prod(shape)
        self.labels: dict[Variable, Labels] = {source: np.arange(self.n_coordinates).reshape(shape)}
        self._known = known
        self._links: list[Labels] = []

    def follow(self, outputs: Iterable[Variable]) -> None:
        """Label all variables that lie between the source and the outputs."""
        outputs = list(outputs)
        self._follow(io_toposort([], outputs), _without_conditions(outputs))

    def _follow(self, nodes: Iterable[Apply], needed: Collection[Apply]) -> None:
        for node in nodes:
            if node.outputs[0] in self.labels or node not in needed:
                continue
            if not any(i in self.labels for i in node.inputs):
                continue
            if isinstance(node.op, OpFromGraph) and not has_rule(node.op):
                inlined = inline_ofg_node(node)
                inner = io_toposort(node.inputs, inlined)
                self._follow(inner, _without_conditions(inlined))
                found: Sequence[Labels | None] = [self.labels.get(v) for v in inlined]
            else:
                found = self._through(node)
            self.labels |= {
                v: labels
                for v, labels in zip(node.outputs, found, strict=True)
                if labels is not None
            }

    def linked(self, labels: Labels, axes: tuple[int, ...] | None = None) -> Labels:
        """Link the labels along some axes, or all, and return one of each set.

        Examples
        --------
        >>> import pytensor.tensor as pt
        >>> a = pt.tensor("a", shape=(4,))
        >>> found = Dependence(a, Known([a]))
        >>> found.linked(np.array([[0, -1], [-1, 1], [2, 3]]), (0,)), found.components()
        (array([2, 3]), array([0, 1, 0, 1]))
        """
        chosen = labels.max(axis=axes, initial=-1, keepdims=True)
        self._link(labels, np.broadcast_to(chosen, labels.shape))
        return np.squeeze(chosen, axis=axes)

    def components(self) -> Labels:
        """Return the component of each coordinate, numbered in the order of the coordinates."""
        return connected(self._links, self.n_coordinates)

    def _link(self, one: Labels, other: Labels) -> None:
        differ = (one >= 0) & (other >= 0) & (one != other)
        if differ.any():
            codes = np.unique(one[differ] * self.n_coordinates + other[differ])
            self._links.append(np.stack(np.divmod(codes, self.n_coordinates)))

    # -- operations ----------------------------------------------------------------------------

    def _through(self, node: Apply) -> Sequence[Labels | None]:
        op, labels = node.op, [self.labels.get(i) for i in node.inputs]
        if isinstance(op, ops.CheckAndRaise):
            return labels[:1]
        if isinstance(op, ops.Shape | ops.Shape_i):
            return [None]
        n_moved = self._n_moved(node)
        options = node.inputs[n_moved:]
        if n_moved and not any(self._known.depends(v) for v in options):
            moved = [self._or_none(v) for v in node.inputs[:n_moved]]
            found = performed(node, [*moved, *(self._known.value(v) for v in options)])
            return [labels.astype(np.int64, copy=False) for labels in found]
        return [self._separated(node, output) for output in node.outputs]

    @staticmethod
    def _n_moved(node: Apply) -> int:
        """Return how many of the inputs, the first ones, a node only puts elsewhere."""
        if isinstance(node.op, ops.Join | ops.MakeVector):
            return len(node.inputs)
        if isinstance(node.op, _REPLACEMENTS) and node.op.set_instead_of_inc:
            return 2
        return int(isinstance(node.op, _MOVES))

    def _or_none(self, variable: Variable) -> Labels:
        found = self.labels.get(variable)
        return np.full(self._known.shape(variable), -1) if found is None else found

    def _separated(self, node: Apply, output: Variable) -> Labels:
        """Keep entries apart along the axes for which there is a rule; link all others."""
        shape = self._known.shape(output)
        axes = [
            input_axes(node.op, node, axis) if len(node.outputs) == 1 else None
            for axis in range(len(shape))
        ]
        parts = [
            self._aligned(self.labels[v], [None if a is None else a[i] for a in axes])
            for i, v in enumerate(node.inputs)
            if v in self.labels
        ]
        return reduce(self._combined, parts, np.broadcast_to(np.int64(-1), shape))

    def _aligned(self, labels: Labels, own: Sequence[int | None]) -> Labels:
        """Bring the axes `own` of an input to where they are in the output."""
        kept = [axis for axis in own if axis is not None]
        if len(set(kept)) < len(kept):
            kept, own = [], [None] * len(own)
        linked = self.linked(labels, tuple(i for i in range(labels.ndim) if i not in kept))
        placed = linked.transpose([sorted(kept).index(axis) for axis in kept])
        return placed[tuple(None if axis is None else slice(None) for axis in own)]

    def _combined(self, one: Labels, other: Labels) -> Labels:
        one, other = np.broadcast_arrays(one, other)
        self._link(one, other)
        return np.maximum(one, other)


def _without_conditions(outputs: Iterable[Variable]) -> set[Apply]:
    """Find the nodes that outputs are computed by, but not those of checks.

    A condition says where the density is not zero; it has to hold for each level.
    """

    def below(node: Apply) -> list[Apply]:
        inputs = node.inputs[:1] if isinstance(node.op, ops.CheckAndRaise) else node.inputs
        return [v.owner for v in inputs if v.owner is not None]

    return set(reached([v.owner for v in outputs if v.owner is not None], below))


def performed(node: Apply, values: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Apply the operation of a node to other values, such as positions that it rearranges.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> performed(pt.vector()[2:].owner, [np.array([5, 6, 7, 8]), np.array(2)])
    [array([7, 8])]
    """
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, list(values), storage)
    return [np.asarray(cell[0]) for cell in storage]


def connected(links: Sequence[Labels], n: int) -> Labels:
    """Number the components of n things in their order, given pairs of these, of shape (2, k).

    Examples
    --------
    >>> connected([np.array([[0, 2], [3, 4]])], 5)
    array([0, 1, 2, 0, 2])
    """
    one, other = np.concatenate([np.zeros((2, 0), dtype=np.int64), *links], axis=1)
    graph = sparse.coo_array((np.ones(len(one), dtype=bool), (one, other)), shape=(n, n))
    return _in_order(connected_components(graph, directed=False)[1])


def _in_order(labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Number labels anew, in the order in which they appear."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
