"""Normal approximations of every group's own variables, given the shared ones."""

from collections.abc import Callable
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

type Array = NDArray[np.float64]
#: A log-density whose groups are independent given what they share: at points, shared (B, p) and
#: local (B, G, q), the parts (B,) and (B, G), in nats.
type PartedDensity = Callable[[Array, Array], tuple[Array, Array]]

_STEP = 0.05  # standard deviations, for differences
_FIRST_STEP = 1e-3
_MOST_STEPS = 60
_SHORTER = 0.1
_SHORTEST = 1e-10
_SLACK = 1e-5  # nats: the differences' mode is not quite the density's
_ROUNDING = 1e-10
_ENTRIES = 2**20  # of float64: 8 MB
_FLATTEST = 1e-10  # curvature, relative to that of the other variables
_TOLERANCE = 1e-11  # nats that a step may still promise, for each group


class Conditionals(NamedTuple):
    """What is known of the groups' own variables at B points of the shared ones.

    Parameters
    ----------
    centre : ndarray of shape (B, G, q)
        Conditional modes.
    root : ndarray of shape (B, G, q, q)
        Lower Cholesky factors of the conditional precisions.
    log_marginal : ndarray of shape (B,)
        Laplace's approximation of the shared variables' marginal density, in nats, up to a
        constant; not finite where the density is not.
    """

    centre: Array
    root: Array
    log_marginal: Array


class _Slopes(NamedTuple):
    alone: Array  # (B,)
    value: Array  # (B, G)
    gradient: Array  # (B, G, q)
    precision: Array  # (B, G, q, q)


def find_conditionals(
    density: PartedDensity, shared: Array, start: Array, scale: Array
) -> Conditionals:
    """Find the conditional modes of all groups at once, by Newton's method on differences.

    Memory: the result, and some thirty arrays of 2^20 entries for as many points as these hold.

    Parameters
    ----------
    density : PartedDensity
    shared : ndarray of shape (B, p)
    start : ndarray of shape (B, G, q)
        Where to look for the modes.
    scale : ndarray of shape (B, G, q)
        Rough conditional standard deviations; 0 where they are not known.

    Notes
    -----
    With h(a) the density of a group's variables a given phi, the marginal of phi is approximately
    ``p(phi) prod_g exp(h(a_g)) |H_g|^(-1/2)`` at the modes a_g (Tierney and Kadane 1986).  Each
    step takes 2 q + 1 + q (q - 1) evaluations of the density at all B points.

    References
    ----------
    Tierney, L. and Kadane, J. B. (1986). Accurate approximations for posterior moments and
    marginal densities. JASA 81, 82-86. https://doi.org/10.1080/01621459.1986.10478240

    Examples
    --------
    >>> def normal(shared, local):  # one variable in each of two groups
    ...     return -0.5 * shared[:, 0] ** 2, -2.0 * (local[..., 0] - shared) ** 2
    >>> found = find_conditionals(normal, np.ones((1, 1)), np.zeros((1, 2, 1)), np.zeros((1, 2, 1)))
    >>> found.centre.round(6).ravel(), found.root.round(4).ravel()
    (array([1., 1.]), array([2., 2.]))
    """
    each = points_at_once(start.shape[1:])
    parts = [slice(first, first + each) for first in range(0, len(shared), each)]
    found = [_found(density, shared[i], start[i], scale[i]) for i in parts]
    return Conditionals(*map(np.concatenate, zip(*found, strict=True)))


def points_at_once(shape: tuple[int, ...]) -> int:
    """Return at how many points arrays of a shape, of all groups, are held at once.

    Examples
    --------
    >>> points_at_once((10_000, 1))
    104
    """
    return max(_ENTRIES // max(prod(shape), 1), 1)


def _found(density: PartedDensity, shared: Array, start: Array, scale: Array) -> Conditionals:
    centre, trial = start, start
    value = np.full(start.shape[:2], -np.inf)
    share, step = np.ones(start.shape[:2]), np.zeros_like(start)
    for _ in range(_MOST_STEPS):
        found = _slopes(density, shared, trial, np.where(scale > 0, _STEP * scale, _FIRST_STEP))
        newton = _newton(found)
        better = found.value >= value - _SLACK - _ROUNDING * np.abs(value)
        usable = better & np.isfinite(newton.promised)
        centre = np.where(usable[..., None], trial, centre)
        value = np.where(usable, found.value, value)
        step = np.where(usable[..., None], newton.step, step)
        scale = np.where(usable[..., None], newton.scale, scale)
        share = np.where(usable, 1.0, _SHORTER * share)
        trial = centre + share[..., None] * step
        done = (usable & (newton.promised <= _TOLERANCE)).all(axis=1)
        if (done | (share < _SHORTEST).any(axis=1)).all():
            break
    total = found.alone + (found.value + newton.promised / 2 + negative_logdet(newton.root)).sum(1)
    return Conditionals(trial, newton.root, np.where(done & np.isfinite(total), total, -np.inf))


def negative_logdet(root: Array) -> Array:
    """Return ``-log|L|`` of Cholesky factors (..., q, q).

    Examples
    --------
    >>> float(negative_logdet(np.eye(2)))
    -0.0
    """
    logdet: Array = -np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)
    return logdet


class _Newton(NamedTuple):
    step: Array  # (B, G, q)
    scale: Array  # (B, G, q)
    promised: Array  # (B, G): twice the nats that the step promises; NaN where there is none
    root: Array  # (B, G, q, q)


def _newton(found: _Slopes) -> _Newton:
    """Take the Newton step, uphill where the curvature has the wrong sign."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        root = _root(found.precision)
        half = solve_lower(root, found.gradient)
        units = np.eye(half.shape[-1])
        deviations = [np.square(solve_lower(root, e)).sum(axis=-1) for e in units]
        return _Newton(
            step=solve_upper(root, half),
            scale=np.sqrt(np.stack(deviations, axis=-1)),
            promised=np.square(half).sum(axis=-1),
            root=root,
        )


def _root(precision: Array) -> Array:
    """Cholesky factors of matrices (..., q, q), whose pivots are made positive."""
    n_local = precision.shape[-1]
    root = np.zeros_like(precision)
    least = _FLATTEST * np.abs(np.trace(precision, axis1=-2, axis2=-1)) + np.finfo(float).tiny
    for c in range(n_local):
        row = root[..., c, :c]
        pivot = precision[..., c, c] - np.square(row).sum(axis=-1)
        root[..., c, c] = np.sqrt(np.maximum(np.abs(pivot), least))
        for d in range(c + 1, n_local):
            rest = precision[..., d, c] - (root[..., d, :c] * row).sum(axis=-1)
            root[..., d, c] = rest / root[..., c, c]
    return root


def solve_lower(root: Array, right: Array) -> Array:
    """Solve ``L x = b`` for lower triangles (..., q, q) and vectors (..., q).

    Examples
    --------
    >>> solve_lower(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0]))
    array([1., 2.])
    """
    solution = np.zeros(np.broadcast_shapes(root.shape[:-1], right.shape))
    for c in range(root.shape[-1]):
        known = (root[..., c, :c] * solution[..., :c]).sum(axis=-1)
        solution[..., c] = (right[..., c] - known) / root[..., c, c]
    return solution


def solve_upper(root: Array, right: Array) -> Array:
    """Solve ``L' x = b`` for lower triangles (..., q, q) and vectors (..., q).

    Examples
    --------
    >>> solve_upper(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([3.0, 1.0]))
    array([1., 1.])
    """
    solution = np.zeros(np.broadcast_shapes(root.shape[:-1], right.shape))
    for c in reversed(range(root.shape[-1])):
        known = (root[..., c + 1 :, c] * solution[..., c + 1 :]).sum(axis=-1)
        solution[..., c] = (right[..., c] - known) / root[..., c, c]
    return solution


def _slopes(density: PartedDensity, shared: Array, local: Array, steps: Array) -> _Slopes:
    """Value, gradient and precision of each group's density, by central differences."""
    n_local = local.shape[-1]
    alone, value = density(shared, local)
    gradient, precision = np.empty_like(local), np.empty((*local.shape, n_local))
    units = np.eye(n_local) * steps[..., None, :]  # (B, G, q, q)
    with np.errstate(invalid="ignore", over="ignore"):
        sides = [
            (
                density(shared, local + units[..., c, :])[1],
                density(shared, local - units[..., c, :])[1],
            )
            for c in range(n_local)
        ]
        for c, (above, below) in enumerate(sides):
            gradient[..., c] = (above - below) / (2 * steps[..., c])
            precision[..., c, c] = (2 * value - above - below) / np.square(steps[..., c])
        for c, d in combinations(range(n_local), 2):
            both = units[..., c, :] + units[..., d, :]
            ends = density(shared, local + both)[1] + density(shared, local - both)[1]
            mixed = ends + 2 * value - sum(sides[c]) - sum(sides[d])
            mixed = -mixed / (2 * steps[..., c] * steps[..., d])
            precision[..., c, d] = precision[..., d, c] = mixed
    return _Slopes(alone, value, gradient, precision)
