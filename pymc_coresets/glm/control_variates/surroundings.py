"""Modes and curvatures of posteriors of which only some coordinates are in the likelihood."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, eigh
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from pymc_coresets.reading.quadratic import Curvature, as_dense
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.maximisation.central_differences import sparse_differences
from pymc_coresets.sampling.maximisation.one_start import (
    FiniteObjective,
    minimise_where_finite,
    whitened,
)
from pymc_coresets.sampling.normal import Normal

#: Shares of its diagonal by which a precision is raised; lengths of steps along its most convex
#: direction, in standard deviations by the diagonal; and dimensions up to which all are known.
_DAMPING = (0.0, *np.logspace(-3, 4, 8))
_LENGTHS, _DECOMPOSED = (1.0, 0.3, 0.1), 3_000
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
        x[free] = minimise_where_finite(FiniteObjective(negative), x[free], most_steps=most_steps).x
    else:
        objective, begin = FiniteObjective(whitened(negative, like)), np.zeros_like(like.location)
        x[free] = like.at(minimise_where_finite(objective, begin, most_steps=most_steps).x)
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


def uphill_steps(precision: Curvature, gradient: np.ndarray) -> Iterator[np.ndarray]:
    """Yield steps uphill by a gradient and a curvature, (n_dims,), each shorter than the last.

    Newton steps whose precision is raised by shares of its diagonal until it is definite, as by
    Levenberg and Marquardt.  At a saddle they are zero: then steps follow along the direction of
    the most convexity, both ways.  None where the curvature is not finite.

    Parameters
    ----------
    precision : ndarray or csr_array, of shape (n_dims, n_dims)
        Its negative Hessian, which need not be definite.
    gradient : ndarray of shape (n_dims,)

    Examples
    --------
    Of ``x**2 / 2 - y**2 / 2``, at a point and at its saddle:

    >>> saddle = np.diag([-1.0, 1.0])
    >>> next(uphill_steps(saddle, np.array([0.1, -1.0]))).round(2)
    array([ 0.01, -0.09])
    >>> [*uphill_steps(saddle, np.zeros(2))][-1].round(2)
    array([-0.1,  0. ])
    """
    entries = precision if isinstance(precision, np.ndarray) else precision.data
    if not np.isfinite(entries).all():
        return
    size = np.abs(precision.diagonal())
    size = np.where(size > 0, size, 1.0)
    for damping in _DAMPING:
        damped = precision + sparse.diags_array(damping * size)
        with suppress(LinAlgError, ValueError):  # not definite
            yield factor_of(damped).solve(gradient)
    scale = 1 / np.sqrt(size)
    with suppress(ArpackNoConvergence):
        whitened_precision = sparse.diags_array(scale) @ precision @ sparse.diags_array(scale)
        lowest, direction = _lowest(whitened_precision)
        for length in _LENGTHS if lowest < 0 else ():
            step = length * scale * direction
            yield step
            yield -step


def _lowest(matrix: Curvature) -> tuple[float, np.ndarray]:
    """Return the lowest eigenvalue of a symmetric matrix, and its eigenvector."""
    if matrix.shape[0] <= _DECOMPOSED:
        value, vector = eigh(as_dense(matrix), subset_by_index=(0, 0))
    else:
        first = np.random.default_rng(0).standard_normal(matrix.shape[0])
        value, vector = eigsh(matrix, 1, which="SA", v0=first, tol=1e-2)
    return float(value[0]), vector[:, 0]
