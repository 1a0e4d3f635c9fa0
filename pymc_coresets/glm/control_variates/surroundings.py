"""Modes and curvatures of posteriors of which only some coordinates are in the likelihood."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from pymc_coresets.reading.quadratic import Curvature
from pymc_coresets.sampling.climbing import Guarded, descend, whitened
from pymc_coresets.sampling.curvature import sparse_differences
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.normal import Normal

_STEP = 1e-2  #: Step of differences, in a coordinate's scale: their errors are of its square.


def mode_given_the_rest(
    density: Density,
    start: np.ndarray,
    free: np.ndarray,
    *,
    most_steps: int,
    like: Normal | None = None,
) -> np.ndarray:
    """Return the mode of a density over some coordinates, (n_dims,); the others stay.

    For variables in the likelihood: the density of a hierarchy is unbounded as effects and their
    scale, which occurs only in the prior, go to zero.

    Parameters
    ----------
    density : Density
    start : ndarray of shape (n_dims,)
    free : ndarray of bool, of shape (n_dims,)
    most_steps : int
        Of L-BFGS.
    like : Normal, optional
        Of the free ones, around the start: steps are in its whitened coordinates, and a tenth as
        many for correlated coordinates, or widths that differ.
    """
    x = start.copy()

    def negative(some: np.ndarray) -> tuple[float, np.ndarray]:
        x[free] = some
        logp, gradient = density.logp_and_gradient(x)
        return -logp, -gradient[free]

    if like is None:
        x[free] = descend(Guarded(negative), x[free], most_steps=most_steps).x
    else:
        guarded, begin = Guarded(whitened(negative, like)), np.zeros_like(like.location)
        x[free] = like.at(descend(guarded, begin, most_steps=most_steps).x)
    return x


def derivatives(
    coefficients: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> sparse.csr_array:
    """Return derivatives of the coefficients by the free coordinates at a point, (n_dims, p)."""
    return sparse_differences(coefficients, x, np.full(len(x), _STEP))


def precision_near(
    slopes: sparse.csr_array,
    gradients: Callable[[np.ndarray], np.ndarray],
    curvature: Curvature,
    x: np.ndarray,
) -> Curvature:
    """Return the precision of the posterior of a quadratic at a point: 2 D gradients of the prior.

    Parameters
    ----------
    slopes : csr_array of shape (n_dims, p)
        Derivatives of the coefficients there.
    gradients : callable
        Gradients of the prior, at points (n_points, n_dims); plus the quadratic's tangent, if the
        coefficients are not linear.
    curvature : ndarray or csr_array, of shape (p, p)
        Of the quadratic.
    x : ndarray of shape (n_dims,)

    Returns
    -------
    ndarray or csr_array, of shape (n_dims, n_dims)
    """
    of_rows = slopes @ -curvature @ slopes.T
    # The quadratic may be convex along a coordinate.
    steps = _STEP / np.sqrt(1 + np.maximum(of_rows.diagonal(), 0.0))
    of_prior = sparse_differences(gradients, x, steps)
    precision: Curvature = of_rows - (of_prior + of_prior.T) / 2
    return precision
