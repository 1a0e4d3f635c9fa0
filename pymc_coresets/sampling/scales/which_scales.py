"""Scales: the few variables given which a prior is normal in all others."""

from collections.abc import Callable, Sequence

import numpy as np

type Array = np.ndarray
type OfPoints = Callable[[Array], Array]

ROUNDING = 1e-6  #: Relative difference of second derivatives of the prior that are the same.
#: Lengths of the steps by which it is tested, in units of the coordinates; and the relative size of
#: derivatives that are zero.
REACHES, _ZERO = (1.0, 1e3, 1e6), 1e-6
_MOST = 16  #: Largest number of coordinates of the scales.


def fewest_scales(is_normal: Callable[[Array], bool], columns: Sequence[Array]) -> Array:
    """Return the fewest variables given which all others are normal, as (n_dims,).

    All are, if these have more than 16 coordinates.

    Parameters
    ----------
    is_normal : callable
        Whether coordinates (n_dims,) are, given the others.
    columns : sequence of ndarray of int
        The coordinates of each variable.

    Examples
    --------
    >>> fewest_scales(lambda free: not free[0], [np.array([0]), np.array([1, 2])])
    array([ True, False, False])
    """
    is_scale = np.zeros(sum(map(len, columns)), bool)
    by_size = sorted(columns, key=len)
    for own in by_size:
        if is_normal(~is_scale):
            break
        is_scale[own] = True
    for own in by_size:  # drop variables that need not be scales
        if is_scale[own].all():
            is_scale[own] = False
            is_scale[own] = not is_normal(~is_scale)
    found: Array = is_scale | (is_scale.sum() > _MOST)
    return found


def hierarchical_scales(
    prior: OfPoints, rows: OfPoints, start: Array, columns: Sequence[Array]
) -> Array:
    """Return the scales of effects, centred or not, as (n_dims,), if there are any.

    The scale of errors is not one of effects: alone it leaves modes comparable by their heights.

    Parameters
    ----------
    prior, rows : callable
        Return gradients at points (n_points, n_dims), of the log-prior and of the log-likelihood.
    start : ndarray of shape (n_dims,)
    columns : sequence of ndarray of int
        The coordinates of each variable.

    Examples
    --------
    >>> def prior(x):
    ...     own = -x[:, 1:] * np.exp(-2 * x[:, :1])
    ...     return np.column_stack([-(x[:, 1:] * own).sum(axis=1) - 2 - x[:, 0], own])
    >>> columns = [np.array([0]), np.array([1, 2])]
    >>> hierarchical_scales(prior, lambda x: 1 - x, np.zeros(3), columns)
    array([ True, False, False])
    """
    rng = np.random.default_rng(0)
    x = start + rng.uniform(-0.5, 0.5, len(start))
    ways = rng.uniform(-0.5, 0.5, (2, len(start)))

    def is_normal(free: Array) -> bool:
        return is_affine(lambda points: prior(points)[:, free], x, ways * free)

    is_scale = fewest_scales(is_normal, columns)
    if is_scale.all():
        return np.zeros_like(is_scale)
    factors = _factors(rows, x, columns)
    is_of_effects = (ruling(prior, x, is_scale) | factors).any()
    found: Array = (is_scale | factors) & is_of_effects
    return found


def _factors(rows: OfPoints, x: Array, columns: Sequence[Array]) -> Array:
    """Return which variables of one entry multiply a vector in all that rows see of it, (n_dims,).

    The derivative by such a variable, or its logarithm, is that along the vector but for a factor
    that does not depend on the vector.
    """
    rng = np.random.default_rng(0)
    found = np.zeros(len(x), bool)
    vectors = [own for own in columns if len(own) > 1]
    if not vectors:
        return found
    points = np.repeat(x[None], 3, axis=0)
    for own in vectors:
        points[:, own] += rng.uniform(-0.5, 0.5, (3, len(own)))
    with np.errstate(all="ignore"):
        slopes = rows(points)
        along = [(points[:, own] * slopes[:, own]).sum(axis=1) for own in vectors]
        for [k] in (own for own in columns if len(own) == 1):
            ratios = np.array([slopes[:, k] / each for each in along])
            same = np.ptp(ratios, axis=1) <= ROUNDING * np.abs(ratios).max(axis=1, initial=0.0)
            found[k] = bool((same & (ratios != 0).all(axis=1)).any()) if along else False
    return found


def ruling(gradients: OfPoints, x: Array, is_scale: Array) -> Array:
    """Return which scales the prior's precision of the others depends on, (n_dims,)."""
    rng = np.random.default_rng(0)
    away = rng.uniform(0.5, 1.0, len(x)) * ~is_scale
    found = np.zeros(len(x), bool)

    def others(points: Array) -> Array:
        return gradients(points)[:, ~is_scale]

    for k in np.flatnonzero(is_scale):
        way = 0.5 * (np.arange(len(away)) == k)
        first, second = _mixed_differences(others, x, away, way)
        size = np.abs(first[0]).max(initial=0.0)
        found[k] = not np.abs(second).max(initial=0.0) <= ROUNDING * (1 + size)
    return found


def is_affine(function: OfPoints, x: Array, ways: Array) -> bool:
    """Whether two steps from a point do not interact, of any length.

    Densities that are not normal may be so nearby: with heavy tails, and mixtures.
    """
    for reach in REACHES:
        first, second = _mixed_differences(function, x, *(reach * ways))
        size = np.abs(first)
        # Nearby, derivatives that are tiny are affine; farther, only zeros up to rounding.
        least = 1.0 if reach == 1.0 else _ZERO * size.max(initial=0.0)
        if not (np.abs(second) <= ROUNDING * (least + size.max(axis=0, initial=0.0))).all():
            return False
    return True


def are_quadratic(function: OfPoints, x: Array, way: Array) -> bool:
    """Whether the third differences of values along a line through a point are rounding errors.

    Examples
    --------
    >>> one = np.ones(1)
    >>> are_quadratic(lambda x: x**2, one, one), are_quadratic(lambda x: x**3, one, one)
    (True, False)
    """
    with np.errstate(all="ignore"):
        values = function(x + np.arange(4)[:, None] * way)
        size = np.abs(np.diff(values, axis=0)).max(axis=0, initial=0.0)
        third = np.abs(np.diff(values, n=3, axis=0))
    return bool((third <= ROUNDING * (1 + size)).all())


def _mixed_differences(
    function: OfPoints, x: Array, one: Array, other: Array
) -> tuple[Array, Array]:
    """Return changes of values by each of two steps, (2, k), and their interaction."""
    with np.errstate(all="ignore"):
        here, there, beside, across = function(x + np.stack([0 * x, one, other, one + other]))
        return np.stack([there - here, beside - here]), across - there - beside + here
