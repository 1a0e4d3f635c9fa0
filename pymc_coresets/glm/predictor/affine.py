"""Arrays that are affine in coefficients, and rules for operations on them.

An array is kept as one matrix for each coefficient node: ``array.ravel() = sum_k matrix_k @
node_k.ravel()``.  The number one is such a node, whose matrix is the offset.  A matrix that comes
from an index array is sparse and stays sparse; one that comes from covariates is the array of the
covariates itself.  Each Op has one rule, which combines the affine maps of its inputs.  The error
for an Op without a rule names it.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph import Apply, Constant, Variable, ancestors
from scipy import sparse

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import io_toposort
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.predictor.row_graph import RowGraph, n_predictors
from pymc_coresets.reading.folding import values_of

type Matrix = np.ndarray | sparse.csr_array
type Operand = Affine | np.ndarray

#: The node whose column is the offset.
ONE = pt.constant(1.0)


@dataclass(frozen=True, eq=False)
class Affine:
    """An array that is affine in coefficient nodes.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array.
    blocks : mapping of Variable to (ndarray or csr_array)
        For each coefficient node, a matrix of shape (entries of the array, entries of the node).
        That of `ONE` is dense.
    """

    shape: tuple[int, ...]
    blocks: Mapping[Variable, Matrix]

    @classmethod
    def of_data(cls, values: np.ndarray) -> "Affine":
        """Return an array that depends on no coefficient."""
        return cls(values.shape, {ONE: np.asarray(values, dtype=float).reshape(-1, 1)})

    @property
    def columns(self) -> dict[Variable, Matrix]:
        """The blocks of the nodes that depend on free variables."""
        return {v: m for v, m in self.blocks.items() if v is not ONE}

    @property
    def offset(self) -> np.ndarray:
        """What is added to the products, (entries of the array,)."""
        column: np.ndarray = np.asarray(self.blocks.get(ONE, np.zeros((self.size, 1))))
        return column[:, 0]

    @property
    def size(self) -> int:
        """Number of entries of the array."""
        return math.prod(self.shape)

    def reshaped(self, shape: tuple[int, ...]) -> "Affine":
        """Return the same entries, in the same order, with another shape."""
        return Affine(shape, self.blocks)

    def take(self, positions: np.ndarray) -> "Affine":
        """Return the array of the entries at `positions` of the raveled array."""
        flat = positions.ravel()
        if flat.size == self.size and np.array_equal(flat, np.arange(self.size)):
            return self.reshaped(positions.shape)
        return Affine(positions.shape, {v: m[flat] for v, m in self.blocks.items()})

    def broadcast(self, shape: tuple[int, ...]) -> "Affine":
        """Broadcast to `shape`."""
        if shape == self.shape:
            return self
        return self.take(np.broadcast_to(np.arange(self.size).reshape(self.shape), shape))

    def scaled(self, factor: np.ndarray) -> "Affine":
        """Multiply by data that broadcast against the array."""
        out = self.broadcast(np.broadcast_shapes(self.shape, factor.shape))
        by = np.broadcast_to(np.asarray(factor, dtype=float), out.shape).ravel()
        return Affine(out.shape, {v: _scaled_rows(m, by) for v, m in out.blocks.items()})

    def mapped(self, matrix: Matrix, shape: tuple[int, ...]) -> "Affine":
        """Multiply the raveled array from the left by a matrix."""
        return Affine(shape, {v: _times(matrix, m) for v, m in self.blocks.items()})

    def plus(self, other: Operand) -> "Affine":
        """Add another array, affine or data."""
        shape = np.broadcast_shapes(self.shape, other.shape)
        if isinstance(other, Affine):
            more = other.broadcast(shape)
        else:
            more = Affine.of_data(np.broadcast_to(other, shape))
        blocks = dict(self.broadcast(shape).blocks)
        for variable, matrix in more.blocks.items():
            blocks[variable] = blocks[variable] + matrix if variable in blocks else matrix
        return Affine(shape, blocks)


def _scaled_rows(matrix: Matrix, by: np.ndarray) -> Matrix:
    if isinstance(matrix, np.ndarray):
        return matrix * by[:, None]
    return sparse.csr_array(sparse.diags_array(by) @ matrix)


def _times(left: Matrix, right: Matrix) -> Matrix:
    n, k = left.shape[1], right.shape[1]
    if isinstance(left, np.ndarray) and not isinstance(right, np.ndarray):
        if n == k and right.nnz == n and (right != sparse.eye_array(n)).nnz == 0:
            return np.asarray(left, dtype=float)
        if k > n:
            return sparse.csr_array(sparse.csr_array(left) @ right)
    return left @ right


def joined(blocks: Sequence[Matrix]) -> Matrix:
    """Join matrices side by side, in float64; the result is sparse if any is smaller that way.

    Examples
    --------
    >>> joined([np.ones((3, 1)), sparse.csr_array((3, 2))]).format
    'csr'
    """
    smaller = [
        m if isinstance(m, np.ndarray) or 2 * m.nnz <= np.prod(m.shape) else m.toarray()
        for m in blocks
    ]
    if any(sparse.issparse(m) for m in smaller):
        return sparse.csr_array(sparse.hstack([sparse.csr_array(m) for m in smaller], "csr"))
    dense = [np.asarray(m, dtype=float) for m in smaller]
    return dense[0] if len(dense) == 1 else np.concatenate(dense, axis=1)


def affine_map(variable: Variable, graph: RowGraph) -> Affine:
    """Derive how a variable depends on the coefficient nodes below it.

    A coefficient node is a part of the graph, as large as possible, that depends on free variables
    but on no array of rows: a free variable, or an expression such as ``mu + sigma * z``.

    Parameters
    ----------
    variable : Variable
        A variable that depends on free variables.
    graph : RowGraph

    Returns
    -------
    Affine

    Raises
    ------
    UnsupportedModelError
        If the variable is not affine, or an operation has no rule.

    Examples
    --------
    >>> x, b = pt.vector("x"), pt.tensor("b", shape=(2,))
    >>> graph = RowGraph([b], {x: np.arange(3.0)})
    >>> found = affine_map(2.0 + b[1] * x, graph)
    >>> found.offset
    array([2., 2., 2.])
    >>> found.blocks[b].toarray()
    array([[0., 0.],
           [0., 1.],
           [0., 2.]])
    """
    nodes = _coefficients(variable, graph)
    maps = {node: _of_node(node, graph.shape(node)) for node in nodes}
    for node in io_toposort(nodes, [variable]):
        if any(graph.depends(i) for i in node.inputs):
            inputs = [maps[i] if graph.depends(i) else graph.values(i) for i in node.inputs]
            maps[node.outputs[0]] = _mapped(node, inputs, graph)
    found = maps[variable]
    blocks = {v: found.blocks[v] for v in [*nodes, *found.blocks] if v in found.blocks}
    return Affine(found.shape, blocks)


def designs_of(
    node: Variable, graph: RowGraph, n_obs: int
) -> Iterator[tuple[Mapping[Variable, Matrix], np.ndarray]]:
    """Derive design and offset of each predictor of a variable, which may be a matrix.

    Yields
    ------
    mapping of Variable to (ndarray or csr_array)
        The columns of each coefficient node, for the rows of the graph.
    ndarray of shape (n_obs,)
        The offset.
    """
    affine, n_numbers = affine_map(node, graph), n_predictors(node)
    if not graph.by_row(node):
        affine = affine.take(np.zeros(n_obs, dtype=int))
    if affine.size != n_obs * n_numbers:
        raise UnsupportedModelError(
            f"The predictor has {affine.size} entries for {n_obs} observations.",
            topic="regressions",
        )
    places = np.arange(affine.size).reshape(affine.shape)
    if n_numbers > 1:
        places = np.moveaxis(places, node.type.shape.index(None), -1)
    for own in places.reshape(n_numbers, n_obs):
        part = affine.take(own)
        yield part.columns, part.offset


def _coefficients(variable: Variable, graph: RowGraph) -> list[Variable]:
    """Find the coefficient nodes, in the order in which the expression has them."""
    found: dict[Variable, None] = {}
    seen = set()
    stack = [variable]
    while stack:
        part = stack.pop()
        if part in seen or not graph.depends(part):
            continue
        seen.add(part)
        if graph.is_coefficient(part):
            found[part] = None
        elif ops.is_input(part):
            raise UnsupportedModelError(
                f"The free variable {part.name!r} has one value per row.", topic="regressions"
            )
        else:
            stack.extend(reversed(part.owner.inputs))
    return list(found)


def _of_node(variable: Variable, shape: tuple[int, ...]) -> Affine:
    size = math.prod(shape)
    one = np.ones((1, 1)) if size == 1 else sparse.eye_array(size, format="csr")
    return Affine(shape, {variable: one})


# -- one rule for each Op --------------------------------------------------------------------------


def _mapped(node: Apply, inputs: Sequence[Operand], graph: RowGraph) -> Affine:
    match node.op:
        case op if isinstance(op, ops.MOVES):
            return _moved(node, inputs, graph)
        case ops.Join():
            return _joined(node.op.axis, inputs)
        case ops.CAReduce(scalar_op=ps.Add()):
            [x] = inputs
            assert isinstance(x, Affine)  # for it depends on coefficients
            return _summed(x, ops.axes_of(node.op, len(x.shape)))
        case ops.Dot() | ops.Blockwise(core_op=ops.Dot()):
            return _product(node, inputs, graph)
        case ops.SparseDot() | ops.StructuredDot():
            a, b = inputs
            if isinstance(b, Affine) and not isinstance(a, Affine) and b.shape[1:] == (1,):
                return b.mapped(sparse.csr_array(a), (a.shape[0], 1))
        case ops.Elemwise():
            return _elementwise(node, inputs, graph)
    raise _not_affine(node, graph)


def _elementwise(node: Apply, inputs: Sequence[Operand], graph: RowGraph) -> Affine:
    first, last = inputs[0], inputs[-1]
    match node.op.scalar_op:
        case ps.Add():
            return _added(inputs)
        case ps.Sub():
            minus = last.scaled(np.array(-1.0)) if isinstance(last, Affine) else -1.0 * last
            return _added([first, minus])
        case ps.Neg():
            return _multiplied(node, [*inputs, np.array(-1.0)], graph)
        case ps.Mul():
            return _multiplied(node, inputs, graph)
        case ps.TrueDiv():
            return _divided(node, first, last, graph)
        case ps.Identity() | ps.Cast() if node.outputs[0].type.dtype.startswith("float"):
            return _added(inputs)
        case ps.Second():
            return _added([last, Affine(first.shape, {})])
        case ps.Switch() if not isinstance(first, Affine):
            return _chosen(first, *inputs[1:])
    raise _not_affine(node, graph)


def _not_affine(node: Apply, graph: RowGraph) -> UnsupportedModelError:
    names = sorted(str(v.name) for v in ancestors(node.inputs) if v in graph.parameters)
    operation = getattr(node.op, "scalar_op", node.op)
    return UnsupportedModelError(
        f"The predictor is not linear in its coefficients: it applies {operation} to an expression "
        f"of the data and the free variables {names!r}. A linear predictor is made of sums, "
        "products with data, dot products, and indexing by data. Fix a variable (given={...}) if "
        "that makes it linear, multiply coefficients before indexing ((sigma * z)[group]), "
        "or use a method for general models.",
        topic="regressions",
    )


def _moved(node: Apply, inputs: Sequence[Operand], graph: RowGraph) -> Affine:
    op, (x, *options) = node.op, inputs
    if not isinstance(x, Affine) or any(isinstance(o, Affine) for o in options):
        raise _not_affine(node, graph)
    if isinstance(op, ops.DimShuffle) and list(op.shuffle) == sorted(op.shuffle):
        return x.reshaped(tuple(1 if i == "x" else x.shape[i] for i in op.new_order))
    positions = pt.constant(np.arange(x.size).reshape(x.shape))
    constants = [_constant(v, o) for v, o in zip(node.inputs[1:], options, strict=True)]
    [moved] = values_of([op.make_node(positions, *constants).outputs[0]])
    return x.take(moved)


def _constant(variable: Variable, values: Operand) -> Variable:
    assert not isinstance(values, Affine)
    if isinstance(variable, Constant):
        return variable
    if isinstance(variable.type, ps.ScalarType):
        return ps.constant(values[()], dtype=variable.type.dtype)
    return pt.constant(values, dtype=variable.type.dtype)


def _joined(axis: int, inputs: Sequence[Operand]) -> Affine:
    parts = [i if isinstance(i, Affine) else Affine.of_data(i) for i in inputs]
    starts = np.cumsum([0, *(p.size for p in parts)])
    numbered = [s + np.arange(p.size).reshape(p.shape) for s, p in zip(starts, parts, strict=False)]
    total = int(starts[-1])
    placed = [
        p.mapped(sparse.eye_array(total, p.size, k=-s, format="csr"), (total,))
        for s, p in zip(starts, parts, strict=False)
    ]
    return reduce(Affine.plus, placed).take(np.concatenate(numbered, axis=axis))


def _summed(x: Affine, axes: Collection[int]) -> Affine:
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    n_out = math.prod(kept)
    target = np.broadcast_to(np.arange(n_out).reshape(kept), x.shape).ravel()
    ones = np.ones(x.size)
    total = sparse.csr_array((ones, (target, np.arange(x.size))), shape=(n_out, x.size))
    return x.mapped(total, tuple(n for i, n in enumerate(x.shape) if i not in axes))


def _product(node: Apply, inputs: Sequence[Operand], graph: RowGraph) -> Affine:
    a, b = inputs
    shape, ones = (*a.shape[:-1], b.shape[-1]), (1,) * (len(a.shape) - 2)
    if isinstance(a, np.ndarray) and isinstance(b, Affine) and (a.ndim, shape[-1]) == (2, 1):
        return b.mapped(a, shape)
    if isinstance(a, np.ndarray) and isinstance(b, Affine) and b.shape == (*ones, a.shape[-1], 1):
        return b.mapped(a.reshape(-1, a.shape[-1]), shape)
    if isinstance(b, np.ndarray) and isinstance(a, Affine) and (b.ndim, shape[-2]) == (2, 1):
        return a.mapped(b.T, shape)
    left, right = _reshaped(a, (*a.shape, 1)), _reshaped(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    products = _multiplied(node, [left, right], graph)
    return _summed(products, [len(products.shape) - 2])


def _reshaped(x: Operand, shape: tuple[int, ...]) -> Operand:
    return x.reshaped(shape) if isinstance(x, Affine) else x.reshape(shape)


# -- elementwise -----------------------------------------------------------------------------------


def _added(terms: Sequence[Operand]) -> Affine:
    total = reduce(Affine.plus, [t for t in terms if isinstance(t, Affine)])
    return reduce(Affine.plus, [t for t in terms if not isinstance(t, Affine)], total)


def _divided(node: Apply, a: Operand, b: Operand, graph: RowGraph) -> Affine:
    if not isinstance(b, Affine):
        return _multiplied(node, [a, 1.0 / np.asarray(b, dtype=float)], graph)
    inverse = graph.reciprocal(_single(node, b, graph))
    return _multiplied(node, [a, _of_node(inverse, b.shape)], graph)


def _chosen(condition: np.ndarray, a: Operand, b: Operand) -> Affine:
    shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
    holds = np.broadcast_to(condition.astype(bool), shape).ravel()
    return _added([_where(holds, a, shape), _where(~holds, b, shape)])


def _where(holds: np.ndarray, x: Operand, shape: tuple[int, ...]) -> Operand:
    if not isinstance(x, Affine):
        return np.where(holds.reshape(shape), x, 0.0)
    kept = np.flatnonzero(holds)  # a product with 0 would keep NaN of the unused branch
    ones, size = np.ones(kept.size), holds.size
    return x.broadcast(shape).mapped(
        sparse.csr_array((ones, (kept, kept)), shape=(size, size)), shape
    )


def _multiplied(node: Apply, factors: Sequence[Operand], graph: RowGraph) -> Affine:
    """Multiply data, one affine array, and coefficients that are single numbers."""
    affine = sorted((f for f in factors if isinstance(f, Affine)), key=lambda f: f.size)
    out = affine.pop()
    for other in affine:
        single, shape = _single(node, other, graph), np.broadcast_shapes(out.shape, other.shape)
        # (M b + c) s = M (s b) + c s
        blocks = {
            single if v is ONE else graph.product(single, v): m for v, m in out.blocks.items()
        }
        out = Affine(shape, blocks)
    data = [np.asarray(f, dtype=float) for f in factors if not isinstance(f, Affine)]
    return reduce(Affine.scaled, data, out)


def _single(node: Apply, x: Affine, graph: RowGraph) -> Variable:
    """Return the coefficient of an array that is one number of a coefficient node."""
    if x.size != 1 or len(x.blocks) != 1 or ONE in x.blocks:
        raise _not_affine(node, graph)
    [(variable, matrix)] = x.blocks.items()
    found = sparse.coo_array(matrix)
    columns = found.col[found.data != 0.0]
    if len(columns) != 1 or found.sum() != 1.0:
        raise _not_affine(node, graph)
    return graph.entry(variable, int(columns[0]))
