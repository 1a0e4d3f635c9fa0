"""Sparse derivatives of affine functions of many coordinates, by few evaluations."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from pymc_coresets.sampling.maximisation.central_differences import sparse_differences

type Array = np.ndarray
type OfPoints = Callable[[Array], Array]

_FEW = 32  #: Coordinates of a variable up to which each moves alone.
#: Derivatives that are zero up to rounding, relative to the largest; and equal ones.
_ZERO, _SAME = 1e-9, 1e-6


def affine_derivatives(
    function: OfPoints, x: Array, columns: Sequence[Array], *, symmetric: bool = False
) -> sparse.csr_array:
    """Return the derivatives of an affine function, (n_dims, p).

    An output that depends on a single coordinate of a variable is known from three evaluations: as
    all of them move by one, by their numbers, and at random.  If outputs depend on several, the
    coordinates of this variable move one after the other.

    Parameters
    ----------
    function : callable
        Takes points (n_points, n_dims), and returns values (n_points, p).
    x : ndarray of shape (n_dims,)
    columns : sequence of ndarray of int
        The coordinates of each variable; those that are missing do not move.
    symmetric : bool, default False
        Whether these are the second derivatives of one function.  Then what one coordinate tells of
        many others, such as a mean of its effects, need not be told by each of these.

    Examples
    --------
    >>> found = affine_derivatives(lambda x: 2 * x[:, ::-1], np.zeros(40), [np.arange(40)])
    >>> found.nnz, found[0, 39], found[39, 0]
    (40, np.float64(2.0), np.float64(2.0))
    """
    alone = [own for own in columns if len(own) <= _FEW]
    together = [own for own in columns if len(own) > _FEW]
    parts, unclear = [], np.zeros(function(x[None]).shape[1], dtype=bool)
    slow = []
    for own in together:
        part, several = _by_three(function, x, own)
        parts.append(part)
        slow.append(bool(several.any()))
        unclear |= several
    if symmetric:  # what depends on several coordinates moves alone
        slow = [bool(unclear[own].any()) for own in together]
    each = np.concatenate([*alone, *_those(together, slow), np.empty(0, np.int64)]).astype(np.int64)
    by_each = _one_by_one(function, x, each)
    others = sum(_those(parts, [not s for s in slow]), sparse.csr_array(by_each.shape))
    if not symmetric:
        return sparse.csr_array(by_each + others)
    left = np.ones(len(x))
    left[each] = 0.0
    keep = sparse.diags_array(left)
    return sparse.csr_array(by_each + others @ keep + keep @ by_each.T)


def _those[T](every: Sequence[T], which: Sequence[bool]) -> list[T]:
    return [one for one, is_chosen in zip(every, which, strict=True) if is_chosen]


def _one_by_one(function: OfPoints, x: Array, each: Array) -> sparse.csr_array:
    """Move each of some coordinates alone: (n_dims, p), with zeros for the others."""
    if not len(each):
        return sparse.csr_array((len(x), function(x[None]).shape[1]))
    found = sparse_differences(function, x, np.ones(len(x)), each)
    placed = (np.ones(len(each)), (each, np.arange(len(each))))
    return sparse.csr_array(sparse.csr_array(placed, shape=(len(x), len(each))) @ found)


def _by_three(function: OfPoints, x: Array, own: Array) -> tuple[sparse.csr_array, Array]:
    """Move coordinates together, see `affine_derivatives`; also return what depends on several.

    These outputs, (p,), have no entries.
    """
    n, rng = len(own), np.random.default_rng(0)
    steps = np.stack([np.zeros(n), np.ones(n), 1.0 + np.arange(n), rng.uniform(0.5, 1.5, n)])
    points = np.repeat(x[None], 4, axis=0)
    points[:, own] += steps
    with np.errstate(all="ignore"):
        values = function(points)
        ones, numbers, random = values[1:] - values[0]
        number = np.nan_to_num(np.round(numbers / ones) - 1, nan=-1.0, posinf=-1.0, neginf=-1.0)
        least = _ZERO * np.abs(values).max()
    depends = np.abs(np.stack([ones, numbers / n, random])).max(axis=0) > least
    is_one = depends & (number >= 0) & (number < n)
    at = np.where(is_one, number, 0).astype(np.int64)
    for found, step in ((numbers, steps[2]), (random, steps[3])):
        is_one &= np.abs(found - ones * step[at]) <= _SAME * np.abs(found)
    entries = (ones[is_one], (own[at[is_one]], np.flatnonzero(is_one)))
    return sparse.csr_array(entries, shape=(len(x), values.shape[1])), depends & ~is_one
