"""Axes along which a density is close to a product, by its curvature at several points."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, inv

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.maximisation.central_differences import differences
from pymc_coresets.sampling.normal import Normal

#: Points at which the curvature is compared, beside the mode, and the step of its differences, in
#: standard deviations: a hundredth would cross the bound of a single row under a wide prior.
_N_POINTS, _STEP = 4, 1e-5
#: Gradients for each dimension, which take as long as three values each.
N_GRADIENTS = 2 * (1 + _N_POINTS)
#: Root mean square change of the bounded curvature, from 0 to 1, along axes that stay as they are,
#: and largest number of others: more take longer than tables along them are worth.
_SAME, _MOST = 0.01, 100
#: Largest number of sweeps of a joint diagonalisation, and the rotation that ends it.
_SWEEPS, _SETTLED = 20, 1e-4


def independent_axes(
    near: Normal, gradients: Callable[[np.ndarray], np.ndarray], *, rng: np.random.Generator
) -> np.ndarray:
    """Return axes (n_dims, n_dims), in columns, along which a density is closest to a product.

    A density is a product of one for each coordinate, along some axes, if and only if these axes
    diagonalise its Hessian at all points.  Those of a normal distribution are not unique, but few
    rows that bound a sum of variables single out the axis along which this sum alone changes.
    Takes 10 D gradients.

    Parameters
    ----------
    near : Normal
        With about the density's curvature at its mode; draws of it are the points.
    gradients : callable
        Takes points (n_points, n_dims), and returns gradients of the log-density.
    rng : numpy.random.Generator

    Raises
    ------
    SamplingError
        If the curvature at the mode is not negative definite.

    Notes
    -----
    In the coordinates in which the curvature at the mode is one, that at another point, C, has
    orthogonal axes.  They are found by Jacobi rotations of all ``C (I + C)^-1``, which have the
    same axes, and no eigenvalue that outweighs the others.

    References
    ----------
    Cardoso, Souloumiac (1996). Jacobi angles for simultaneous diagonalization. SIAM Journal on
    Matrix Analysis and Applications 17(1). https://doi.org/10.1137/S0895479893259546

    Examples
    --------
    A standard normal density, of which a logistic function bounds the difference of two
    coordinates:

    >>> def gradients(x):
    ...     share = 1 / (1 + np.exp(20 * (x[:, :1] - x[:, 1:])))
    ...     return -x + 20 * share * [1.0, -1.0]
    >>> from pymc_coresets.sampling.factors.cholesky import factor_of
    >>> near = Normal(np.array([0.1, -0.1]), factor_of(np.array([[4.0, -3.0], [-3.0, 4.0]])))
    >>> axes = independent_axes(near, gradients, rng=np.random.default_rng(1))
    >>> np.abs(axes / np.linalg.norm(axes, axis=0)).round(2)
    array([[0.71, 0.71],
           [0.71, 0.71]])
    """
    n_dims = len(near.location)
    points = rng.standard_normal((_N_POINTS, n_dims))
    try:
        # Around a bound, differences of another step may have given another curvature.
        root = cholesky(_curvature(near, gradients, np.zeros(n_dims)), lower=True)
    except (LinAlgError, ValueError) as error:
        raise SamplingError(
            "The posterior has no proper mode: its curvature is not negative definite at the end "
            "of the search."
        ) from error
    found = [_curvature(near, gradients, z) for z in points]
    inverse = inv(root)
    apart = [_bounded(inverse @ c @ inverse.T) for c in found if np.isfinite(c).all()]
    axes = np.eye(n_dims)
    if apart:
        changes = np.stack(apart) - np.eye(n_dims) / 2
        sizes, axes = eigh(np.einsum("nij,njk->ik", changes, changes) / len(changes))
        n_others = min(int((sizes > _SAME**2).sum()), _MOST)
        some = axes[:, n_dims - n_others :]  # the largest changes
        axes[:, n_dims - n_others :] = some @ jointly_diagonal(some.T @ changes @ some)
    return near.factor.offset(inverse.T @ axes)


def _curvature(
    near: Normal, gradients: Callable[[np.ndarray], np.ndarray], z: np.ndarray
) -> np.ndarray:
    """Return the negative Hessian at a point, all in whitened coordinates."""

    def whitened(z: np.ndarray) -> np.ndarray:
        return near.factor.whiten_gradients(gradients(near.at(z)))

    with np.errstate(all="ignore"):  # a point may be outside the support
        hessian = differences(whitened, z, np.full(len(z), _STEP))
    curvature: np.ndarray = -(hessian + hessian.T) / 2
    return curvature


def _bounded(curvature: np.ndarray) -> np.ndarray:
    """Return ``C (I + C)^-1``, with the eigenvalues of C that are negative replaced by zero."""
    sizes, axes = eigh(curvature)
    sizes = np.maximum(sizes, 0.0)
    bounded: np.ndarray = (axes * (sizes / (1 + sizes))) @ axes.T
    return bounded


def jointly_diagonal(matrices: np.ndarray) -> np.ndarray:
    """Return the rotation (p, p) that brings symmetric matrices (n, p, p) closest to diagonal.

    Examples
    --------
    >>> rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> matrices = np.stack([rotation @ np.diag(d) @ rotation.T for d in ([1, 2], [3, 1])])
    >>> found = jointly_diagonal(matrices)
    >>> np.abs(found.T @ matrices @ found)[:, 0, 1].max() < 1e-8
    np.True_
    """
    found, p = np.array(matrices, dtype=float), matrices.shape[1]
    rotation = np.eye(p)
    for _ in range(_SWEEPS):
        largest = 0.0
        for i in range(p - 1):
            for j in range(i + 1, p):
                angle = _angle(found[:, i, i] - found[:, j, j], 2 * found[:, i, j])
                if abs(angle) < _SETTLED:
                    continue
                largest = max(largest, abs(angle))
                cos, sin = np.cos(angle), np.sin(angle)
                turn, both = np.array([[cos, -sin], [sin, cos]]), [i, j]
                found[:, :, both] = found[:, :, both] @ turn
                found[:, both] = turn.T @ found[:, both]
                rotation[:, both] = rotation[:, both] @ turn
        if largest < _SETTLED:
            break
    return rotation


def _angle(apart: np.ndarray, off: np.ndarray) -> float:
    """Return the rotation of two axes that makes the off-diagonal entries smallest, squared."""
    one, other = float(apart @ apart - off @ off), 2 * float(apart @ off)
    return float(np.arctan2(other, one + np.hypot(one, other)) / 2)
