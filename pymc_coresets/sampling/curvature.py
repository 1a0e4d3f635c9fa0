"""Laplace's approximation of a density: its mode, and its curvature (exact if known)."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, DenseFactor
from pymc_coresets.sampling.maximisation.central_differences import both_sides
from pymc_coresets.sampling.maximisation.many_modes import (
    factors_at,
    maximise_by_curvature,
    settled_each,
)
from pymc_coresets.sampling.maximisation.one_start import (
    REMEDY,
    minimise,
    minimise_where_finite,
    negative_like,
    negative_of,
)
from pymc_coresets.sampling.normal import Normal, heavy_tailed

#: Ascents to the mode, each by the curvature where the last one ended, and gain in nats after which
#: another one follows.
_CLIMBS, _NOTICED = 3, 0.1
#: Steps of Newton's to where the gradient is zero, and standard deviations from there that suffice.
_STEPS, _FLAT = 10, 0.1
#: Approximate number of gradients to spend on narrow ridges.
_ON_RIDGES = 10_000


def normal_near(mode: np.ndarray, like: Normal, density: Density, *, polish: bool) -> Normal:
    """Return a heavy-tailed normal distribution of the curvature near a mode, by 2 D gradients.

    Takes 2 D more if the curvature is much steeper than that of `like`, for instance because a few
    rows determine a coefficient: differences are then repeated within its own scale.

    Parameters
    ----------
    mode : ndarray of shape (n_dims,)
        From `maximise`.
    like : Normal
        Of a similar curvature; gives the scale of the differences.
    density : Density
    polish : bool
        Whether `mode` is the density's own, so that a Newton step improves it, and a further search
        if the curvature is not negative definite yet, as on ridges that bend.

    Raises
    ------
    SamplingError
        If the curvature is not negative definite.
    """
    if not polish:
        return _normal_at(mode, like.factor, density)[0]
    try:
        around, step = _normal_at(mode, like.factor, density)
        arrived = _is_flat(around, mode + step, density)
    except SamplingError:
        arrived = False
    if arrived:
        return replace(around, location=mode + step)
    found, factor, height = like, like.factor, density.logp_and_gradient(mode)[0]
    for climb in range(_CLIMBS):
        # Along a ridge the gradient is small far from the mode, and a step of Newton's leaves it.
        start = Normal(mode, factor)
        mode = start.at(
            minimise(negative_like(density, start), np.zeros(len(mode)), most_steps=200).x
        )
        try:
            around, step = _normal_at(mode, factor, density)
        except SamplingError:
            if not climb:
                raise
            return found  # of the ascent before, where the curvature was that of a mode
        is_flat = _is_flat(around, mode, density)
        mode, before = mode + _uphill(mode, step, density, 1 if is_flat else 20), height
        found, factor = replace(around, location=mode), around.factor
        height = density.logp_and_gradient(mode)[0]
        if is_flat or _is_flat(around, mode, density) or not height > before + _NOTICED:
            break
    return found


def _is_flat(around: Normal, x: np.ndarray, density: Density) -> bool:
    """Whether a point is within a tenth of a standard deviation of the mode, by its gradient."""
    slope = density.logp_and_gradient(x)[1]
    return bool(np.abs(around.factor.whiten_gradients(slope)).max() < 0.1)


def _uphill(x: np.ndarray, step: np.ndarray, density: Density, n_tries: int) -> np.ndarray:
    """Halve a step until the density does not fall: it may cross a bound set by a few rows.

    On a flat place nothing but rounding decides, and further tries would be wasted.
    """
    height = density.logp_and_gradient(x)[0]
    for _ in range(n_tries):
        if density.logp_and_gradient(x + step)[0] >= height:
            return step
        step = step / 2
    return np.zeros_like(step)


def _normal_at(
    mode: np.ndarray, factor: CholeskyFactor, density: Density
) -> tuple[Normal, np.ndarray]:
    """Return the normal distribution of the curvature at a point, and Newton's step there."""
    for _ in range(5):
        curvature, middle, root = _definite_curvature(mode, factor, density)
        like_factor, factor = factor, DenseFactor(factor.lower @ root)
        if curvature.diagonal().max() < 25.0:  # steps are half a scale long
            break
    step = like_factor.offset(DenseFactor(root).solve(middle))
    return heavy_tailed(mode, factor.lower), step


def _definite_curvature(
    mode: np.ndarray, factor: CholeskyFactor, density: Density
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the negative Hessian in the coordinates of a factor, and the mean gradient nearby.

    Also its Cholesky factor, for the longest steps that give one: if a scale multiplies a
    well-determined variable, even a fraction of its standard deviation leaves the ridge.
    """
    for step in (0.1, 0.01, 0.001):  # of a standard deviation
        moves = factor.offset(step * np.eye(len(mode))).T
        both = both_sides(density.gradients, mode, moves)
        if not all(np.isfinite(side).all() for side in both):
            raise SamplingError("The gradient is infinite near the mode of the posterior.")
        above, below = map(factor.whiten_gradients, both)
        curvature = (below - above) / (2 * step)
        curvature = (curvature + curvature.T) / 2
        try:
            root = cholesky(curvature, lower=True)
        except (LinAlgError, ValueError):
            continue
        return curvature, ((above + below) / 2).mean(axis=0), root
    raise SamplingError(
        "The posterior of all rows has no proper mode: its curvature is not negative definite "
        "at the end of the search."
    )


_log = logging.getLogger(__name__)


def laplace(density: Density, start: np.ndarray) -> Normal:
    """Return the normal distribution with the mode of a posterior and its curvature there.

    Parameters
    ----------
    density : Density
    start : ndarray of shape (n_dims,)
        Start of the search.

    Raises
    ------
    SamplingError
        If the optimiser finds no mode, or the curvature there is not negative definite.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 2.0, 0.5)
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> found = laplace(Density.of_model(Unconstrained(model)), np.zeros(1))
    >>> found.location.round(6), found.factor.root.round(3)
    (array([2.]), array([[2.]]))
    """
    x = _highest(density, start)
    try:
        return _settled(density, x)
    except SamplingError as error:
        _log.info("The search goes on by curvatures, as on ridges: %s", error.message)
        ends = maximise_by_curvature(density, x[None], n_gradients=_ON_RIDGES)
        return _settled(density, ends.points[0])


def where_flat(density: Density, start: np.ndarray) -> Normal:
    """Return the normal distribution around the point near another at which the gradient is zero.

    By gradients alone, with steps of Newton's: they may be better known than the values, which then
    have no maximum there.

    Parameters
    ----------
    density : Density
    start : ndarray of shape (n_dims,)

    Raises
    ------
    SamplingError
        If the curvature is not negative definite, or steps do not end.

    Examples
    --------
    >>> rough = Density(lambda x: (np.sin(1e4 * x[:, 0]), 1.0 - np.expm1(x)))
    >>> where_flat(rough, np.zeros(1)).location.round(2)
    array([0.69])
    """
    x = start
    for _ in range(_STEPS):
        factors = factors_at(density, x[None], kinks=False)
        if not factors:
            break
        around, length = moved(Normal(x, factors[0]), density)
        if length < _FLAT:
            return around
        if not np.isfinite(length):
            break
        x = around.location
    raise SamplingError(f"The gradient of the posterior is zero nowhere nearby: {REMEDY}")


def moved(around: Normal, density: Density) -> tuple[Normal, float]:
    """Move a normal distribution by a step of Newton's; also its length in standard deviations.

    The length is the largest along any of the whitened axes; infinite, without a step, if the
    gradient is not finite.
    """
    slope = density.logp_and_gradient(around.location)[1]
    if not np.isfinite(slope).all():
        return around, np.inf
    step = around.factor.solve(slope)
    length = np.abs(around.factor.whiten(step)).max()
    return replace(around, location=around.location + step), float(length)


def laplace_parts(
    density: Density, starts: Sequence[np.ndarray]
) -> tuple[list[Normal], list[float]]:
    """Return Laplace approximations at the modes found from some points, and the heights there.

    Parameters
    ----------
    density : Density
    starts : sequence of ndarray of shape (n_dims,)

    Returns
    -------
    list of Normal
    list of float
        In nats, up to a constant.

    Raises
    ------
    SamplingError
        If none of them leads to a mode.
    """
    parts: list[Normal] = []
    for start in starts:
        try:
            found = laplace(density, start)
        except SamplingError:
            if len(starts) < 2:
                raise
            continue
        if not any(part.has_near(found.location) for part in parts):
            parts.append(found)
    if not parts:
        raise SamplingError("None of the modes of all rows is near one of the coreset's.")
    alone = len(parts) == 1
    return parts, [0.0 if alone else density.logp_and_gradient(p.location)[0] for p in parts]


def _highest(density: Density, start: np.ndarray) -> np.ndarray:
    negative = negative_of(density)
    if density.curvature is not None:  # a few Newton steps instead of hundreds of gradients
        with suppress(SamplingError):
            newton = minimise(
                negative, start, most_steps=30, by="trust-exact", curvature=density.curvature
            )
            if newton.success and np.isfinite(newton.fun):
                return np.asarray(newton.x)
    result = minimise_where_finite(negative_of(density), start)
    if not (np.isfinite(result.fun) and np.isfinite(result.x).all()):
        raise SamplingError(f"The posterior has no mode ({result.message}): {REMEDY}")
    return np.asarray(result.x)


def _settled(density: Density, x: np.ndarray) -> Normal:
    """Return the normal distribution around the mode near a point."""
    [found] = settled_each(density, x[None])
    if isinstance(found, SamplingError):
        raise found
    return found
