"""Where the posterior of a quadratic is: its mode, its precision, and what only the prior sees."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from pymc_coresets.reading.quadratic import Curvature
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.laplace import Guarded, descend
from pymc_coresets.sampling.steps.metric import sparse_differences

__all__ = ["derivatives", "mode_given_the_rest", "precision_near"]

_STEP = 1e-2  # of a scale, for differences


def mode_given_the_rest(
    space: Unconstrained, start: np.ndarray, free: np.ndarray, *, most_steps: int
) -> np.ndarray:
    """Return the mode of a density over some coordinates, (n_dims,); the others stay.

    For what rows see: the density of a hierarchy rises without end where effects and their scale,
    which only the prior sees, go to zero.

    Parameters
    ----------
    space : Unconstrained
    start : ndarray of shape (n_dims,)
    free : ndarray of bool, of shape (n_dims,)
    most_steps : int
        Of L-BFGS.
    """
    x = start.copy()

    def negative(some: np.ndarray) -> tuple[float, np.ndarray]:
        x[free] = some
        logp, gradient = space.logp_and_gradient(x)
        return -logp, -gradient[free]

    x[free] = descend(Guarded(negative), x[free], most_steps=most_steps).x
    return x


def derivatives(
    coefficients: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> sparse.csr_array:
    """Return those of the coefficients by the free coordinates at a point, (n_dims, p)."""
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
        Those of the prior, at points (n_points, n_dims); with the quadratic's tangent, where the
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
