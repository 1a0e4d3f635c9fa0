"""Which free variables become blocks, and which are shared."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.reading.blocks.dependence import connected

MOST_SHARED = 60  # coordinates: the blocks are matched at p (p + 3) / 2 functions of these
_MOST_FACTORS = 8  # of which all subsets are tried

type Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """The coordinates of one free variable, and which of them are independent given all others.

    Attributes
    ----------
    name : str
        The free variable.
    components : ndarray of int64, of shape (n_coordinates,)
        Coordinates of different components have no potential or prior density in common.
    in_rows : ndarray of int64, of shape (n_patterns,)
        The component that the rows of each pattern depend on, or -1.
    in_terms : tuple of ndarray of int64
        The same for the entries of each term of the prior; empty for one without this variable.
    in_tables : tuple of ndarray of int64
        The same for the entries of each array that all rows share.
    """

    name: str
    components: Labels
    in_rows: Labels
    in_terms: tuple[Labels, ...]
    in_tables: tuple[Labels, ...]

    @property
    def n_components(self) -> int:
        """How many components there are."""
        return int(self.components.max()) + 1

    def meets(self, other: "Part") -> Labels:
        """Return the components of both that something depends on together, of shape (2, n)."""
        found = [np.zeros((2, 0), dtype=np.int64)]
        for one, two in zip(
            (self.in_rows, *self.in_terms), (other.in_rows, *other.in_terms), strict=True
        ):
            if one.size and two.size:
                both = (one >= 0) & (two >= 0)
                codes = np.unique(one[both] * other.n_components + two[both])
                found.append(np.stack(np.divmod(codes, other.n_components)))
        return np.unique(np.concatenate(found, axis=1), axis=1)


@dataclass(frozen=True, eq=False)
class Factoring:
    """Variables whose coordinates fall into blocks; all others are shared.

    Attributes
    ----------
    parts : tuple of Part
        The local variables.
    block_of : tuple of ndarray of int64
        The block of each component of each part.
    n_blocks : int
    seen : ndarray of bool, of shape (n_blocks,)
        Which blocks have rows.
    sizes : ndarray of int64, of shape (n_blocks,)
        How many coordinates each block has.
    """

    parts: tuple[Part, ...]
    block_of: tuple[Labels, ...]
    n_blocks: int
    seen: NDArray[np.bool_]
    sizes: Labels

    def blocks_of(self, labels: Sequence[Labels]) -> Labels:
        """Return the block of each entry of an array, or -1; of length 1 if none depends on one.

        Parameters
        ----------
        labels : sequence of ndarray
            For each part the component that each entry depends on, or -1; empty if none does.
        """
        found = np.full(1, -1)
        for own, blocks in zip(labels, self.block_of, strict=True):
            if own.size:
                found = np.maximum(found, np.append(blocks, -1)[own])
        return found

    def divides(self) -> bool:
        """Whether the rows fall into several blocks, none of them larger than all others."""
        own = self.sizes[self.seen]
        return own.size > 1 and bool(2 * own.max() <= own.sum())

    def n_shared(self, n_dims: int) -> int:
        """Number of coordinates that are shared."""
        return n_dims - int(self.sizes.sum())

    def n_products(self, n_dims: int) -> int:
        """Number of products of coordinates in the log-density: entries of half its Hessian."""
        p = self.n_shared(n_dims)
        own = self.sizes.astype(float)
        return int((own * (own + 1)).sum() / 2 + own.sum() * p + p * (p + 1) / 2)


def best_factoring(factors: Sequence[Sequence[Part]], n_dims: int) -> Factoring | None:
    """Choose the factors whose variables become blocks: those that leave the fewest products.

    Parameters
    ----------
    factors : sequence of sequences of Part
        Variables with the same levels, from `as_factors`.
    n_dims : int
        Number of all coordinates D.

    Returns
    -------
    Factoring or None
        None where all choices share too many coordinates, or give no blocks.

    Examples
    --------
    Six shops and two items; the effects of the items are shared:

    >>> shop, item = np.arange(12) // 2, np.arange(12) % 2
    >>> parts = [Part("a", np.arange(6), shop, (), ()), Part("b", np.arange(2), item, (), ())]
    >>> found = best_factoring(as_factors(parts), 8)
    >>> [part.name for part in found.parts], found.n_blocks, found.n_shared(8)
    (['a'], 6, 2)
    """
    some = sorted(factors, key=lambda f: -sum(p.components.size for p in f))[:_MOST_FACTORS]
    subsets = (s for n in range(1, len(some) + 1) for s in combinations(some, n))
    found = (factoring([part for factor in subset for part in factor]) for subset in subsets)
    fit = [f for f in found if f.divides() and f.n_shared(n_dims) <= MOST_SHARED]
    return min(fit, key=lambda f: f.n_products(n_dims), default=None)


def as_factors(parts: Sequence[Part]) -> list[list[Part]]:
    """Group variables with the same levels: each component of one meets only one of the other.

    Examples
    --------
    >>> rows = np.array([0, 1, 2])
    >>> parts = [Part(name, rows, rows, (), ()) for name in "ab"]
    >>> [[part.name for part in factor] for factor in as_factors(parts)]
    [['a', 'b']]
    """
    same = list[Labels]()
    for (i, one), (j, other) in combinations(enumerate(parts), 2):
        met = one.meets(other)
        if met.size and all(len(np.unique(side)) == side.size for side in met):
            same.append(np.array([[i], [j]]))
    factor = connected(same, len(parts))
    return [[p for p, f in zip(parts, factor, strict=True) if f == k] for k in np.unique(factor)]


def factoring(parts: Sequence[Part]) -> Factoring:
    """Make blocks of some variables: components of all that something depends on together.

    Examples
    --------
    Four shops in two towns:

    >>> shop, town = np.array([0, 1, 2, 3]), np.array([0, 1, 0, 1])
    >>> parts = [Part("a", np.arange(4), shop, (), ()), Part("b", np.arange(2), town, (), ())]
    >>> found = factoring(parts)
    >>> found.n_blocks, found.sizes
    (2, array([3, 3]))
    """
    parts = sorted(parts, key=lambda p: p.n_components)  # the outermost levels number the blocks
    starts = np.cumsum([0, *(p.n_components for p in parts)])
    pairs = combinations(enumerate(parts), 2)
    links = [one.meets(other) + starts[[i, j]][:, None] for (i, one), (j, other) in pairs]
    blocks = connected(links, int(starts[-1]))
    block_of = tuple(blocks[s:e] for s, e in pairwise(starts))
    n_blocks = int(blocks.max()) + 1
    seen = np.zeros(n_blocks, dtype=bool)
    sizes = np.zeros(n_blocks, dtype=np.int64)
    for part, own in zip(parts, block_of, strict=True):
        seen[own[part.in_rows[part.in_rows >= 0]]] = True
        sizes += np.bincount(own[part.components], minlength=n_blocks)
    return Factoring(tuple(parts), block_of, n_blocks, seen, sizes)
