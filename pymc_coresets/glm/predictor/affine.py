"""Arrays that are affine in coefficients, and the operations that keep them so.

An array is kept as one matrix for each coefficient node and an offset: ``array.ravel() =
sum_k matrix_k @ node_k.ravel() + offset``.  A matrix that comes from an index array is sparse and
stays sparse; one that comes from covariates is the array of the covariates itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pytensor.graph import Variable
from scipy import sparse

type Matrix = np.ndarray | sparse.csr_array
type Operand = Affine | np.ndarray

_DENSE = 0.5  # share of entries from which on a dense matrix is the smaller one


@dataclass(frozen=True, eq=False)
class Affine:
    """An array that is affine in coefficient nodes.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array.
    blocks : mapping of Variable to (ndarray or csr_array)
        For each coefficient node, a matrix of shape (entries of the array, entries of the node).
    offset : ndarray of shape (entries of the array,), or None
        ``None`` stands for zeros.
    """

    shape: tuple[int, ...]
    blocks: Mapping[Variable, Matrix]
    offset: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of entries of the array."""
        return math.prod(self.shape)

    def reshaped(self, shape: tuple[int, ...]) -> "Affine":
        """Return the same entries, in the same order, with another shape."""
        return Affine(shape, self.blocks, self.offset)

    def take(self, positions: np.ndarray) -> "Affine":
        """Return the array of the entries at `positions` of the raveled array."""
        flat = positions.ravel()
        if flat.size == self.size and np.array_equal(flat, np.arange(self.size)):
            return self.reshaped(positions.shape)
        blocks = {v: m[flat] for v, m in self.blocks.items()}
        offset = None if self.offset is None else self.offset[flat]
        return Affine(positions.shape, blocks, offset)

    def broadcast(self, shape: tuple[int, ...]) -> "Affine":
        """Broadcast to `shape`."""
        if shape == self.shape:
            return self
        return self.take(np.broadcast_to(np.arange(self.size).reshape(self.shape), shape))

    def scaled(self, factor: np.ndarray) -> "Affine":
        """Multiply by data that broadcast against the array."""
        out = self.broadcast(np.broadcast_shapes(self.shape, factor.shape))
        by = np.broadcast_to(np.asarray(factor, dtype=float), out.shape).ravel()
        blocks = {v: _scaled_rows(m, by) for v, m in out.blocks.items()}
        return Affine(out.shape, blocks, None if out.offset is None else out.offset * by)

    def mapped(self, matrix: Matrix, shape: tuple[int, ...]) -> "Affine":
        """Multiply the raveled array from the left by a matrix."""
        blocks = {v: _product(matrix, m) for v, m in self.blocks.items()}
        return Affine(shape, blocks, None if self.offset is None else matrix @ self.offset)

    def plus(self, other: Operand) -> "Affine":
        """Add another array, affine or data."""
        shape = np.broadcast_shapes(self.shape, other.shape)
        out = self.broadcast(shape)
        if not isinstance(other, Affine):
            added = np.broadcast_to(np.asarray(other, dtype=float), shape).ravel()
            return Affine(shape, out.blocks, _sum(out.offset, added))
        other = other.broadcast(shape)
        blocks = dict(out.blocks)
        for variable, matrix in other.blocks.items():
            blocks[variable] = blocks[variable] + matrix if variable in blocks else matrix
        return Affine(shape, blocks, _sum(out.offset, other.offset))


def _sum(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    total: np.ndarray = a + b
    return total


def _scaled_rows(matrix: Matrix, by: np.ndarray) -> Matrix:
    if isinstance(matrix, np.ndarray):
        return matrix * by[:, None]
    return sparse.csr_array(sparse.diags_array(by) @ matrix)


def _product(left: Matrix, right: Matrix) -> Matrix:
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
        m if isinstance(m, np.ndarray) or m.nnz <= _DENSE * np.prod(m.shape) else m.toarray()
        for m in blocks
    ]
    if any(sparse.issparse(m) for m in smaller):
        return sparse.csr_array(sparse.hstack([sparse.csr_array(m) for m in smaller], "csr"))
    dense = [np.asarray(m, dtype=float) for m in smaller]
    return dense[0] if len(dense) == 1 else np.concatenate(dense, axis=1)
