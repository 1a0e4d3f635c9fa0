"""What groups of rows share: functions of the shared variables, and vectors split along them."""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from scipy.linalg import qr

from pymc_coresets.solving.problem import Vector

_DEPENDENT = 1e-8  # of the largest pivot: functions that the draws do not tell apart
_MOST_FUNCTIONS = 0.25  # of the number of draws, for regressions on them


def chance_functions(noise: Vector, shared: Vector) -> Vector:
    """Functions whose means do not depend on the shared variables, but seem to in a sample.

    Parameters
    ----------
    noise : ndarray of shape (n_draws, q)
        What is random in a group's variables given the shared ones: independent and standard
        normal, each draw with a partner of the same shared variables and the opposite noise.
    shared : ndarray of shape (n_draws, p)
        Shared variables, whitened.

    Returns
    -------
    ndarray of shape (n_draws, k)
        ``e_a e_b - E[e_a e_b]`` for each pair of the noise; and, unless these are too many for the
        draws, their products with each shared variable, and all products of four of the noise.
        Odd functions of the noise need not be here: over pairs of draws they are uncorrelated with
        functions of the shared variables.

    Examples
    --------
    >>> pair, same = np.array([[2.0], [-2.0]]), np.array([[0.5], [0.5]])
    >>> chance_functions(np.tile(pair, (8, 1)), np.tile(same, (8, 1)))[:2]
    array([[ 3. ,  1.5, 16. ],
           [ 3. ,  1.5, 16. ]])
    """
    n_draws, n_noise = noise.shape
    first, second = np.triu_indices(n_noise)
    squares: Vector = noise[:, first] * noise[:, second] - (first == second)
    n_all = squares.shape[1] * (1 + shared.shape[1]) + comb(n_noise + 3, 4)
    if n_all > _MOST_FUNCTIONS * n_draws:
        return squares
    with_shared = (squares[:, :, None] * shared[:, None, :]).reshape(n_draws, -1)
    fours = np.array(list(combinations_with_replacement(range(n_noise), 4)))
    return np.concatenate([squares, with_shared, noise[:, fours].prod(axis=2)], axis=1)


def n_functions(n_shared: int) -> int:
    """Number m = p(p + 3)/2 of linear and quadratic functions of p variables.

    Examples
    --------
    >>> n_functions(2)
    5
    """
    return n_shared * (n_shared + 3) // 2


@dataclass(frozen=True, eq=False)
class SharedBasis:
    """Orthonormal functions of the shared variables at some draws.

    Given the shared variables phi, the variables of different groups are independent, so that the
    log-likelihoods of different groups covary through their means given phi alone.  As functions
    of phi, these are quadratic to a good approximation.

    Parameters
    ----------
    functions : ndarray of shape (n_draws, m)
        Orthonormal, and of mean zero over the draws.

    Examples
    --------
    >>> z = np.random.default_rng(1).normal(size=(100, 2))
    >>> basis = SharedBasis.of(z)
    >>> basis.functions.shape, np.allclose(basis.functions.T @ basis.functions, np.eye(5))
    ((100, 5), True)
    """

    functions: Vector

    @classmethod
    def of(cls, shared: Vector) -> "SharedBasis":
        """Take all linear and quadratic functions of draws (n_draws, p) of whitened variables."""
        first, second = np.triu_indices(shared.shape[1])
        functions = np.concatenate([shared, shared[:, first] * shared[:, second]], axis=1)
        functions -= functions.mean(axis=0)
        if not functions.shape[1]:
            return cls(functions)
        basis, triangle, _ = qr(functions, mode="economic", pivoting=True)
        pivots = np.abs(np.diag(triangle))
        return cls(np.ascontiguousarray(basis[:, pivots > _DEPENDENT * pivots[0]]))

    def coordinates(self, vectors: Vector) -> Vector:
        """Return the shared parts of vectors (..., n_draws), of shape (..., m)."""
        coordinates: Vector = vectors @ self.functions
        return coordinates

    def without_noise(self, vectors: Vector, noise: Vector) -> Vector:
        """Take out of vectors what is shared only by chance.

        In a sample, functions of a group's own variables are correlated with the shared ones even
        where they are independent.  Every row of the group inherits that in proportion to how much
        it depends on those functions, and non-negative least squares would make use of it.

        Parameters
        ----------
        vectors : ndarray of shape (n_rows, n_draws)
            Tangent vectors of the rows of a group.
        noise : ndarray of shape (n_draws, k)
            Functions of the group's own variables, centred, that are known to be uncorrelated with
            functions of the shared ones, such as `chance_functions`.

        Returns
        -------
        ndarray of shape (n_rows, n_draws)

        Notes
        -----
        With C = noise' Phi, the chance covariances, and b the regression of the vectors' local
        parts on the noise's: ``V - b C Phi'``, the method of control variates.

        Examples
        --------
        >>> rng = np.random.default_rng(1)
        >>> basis, own = SharedBasis.of(rng.normal(size=(50, 1))), rng.normal(size=(50, 1))
        >>> own -= own.mean(axis=0)
        >>> cleaned = basis.without_noise(own.T, own)
        >>> bool(np.abs(basis.coordinates(cleaned)).max() < 1e-12)
        True
        """
        by_chance = self.functions @ self.coordinates(noise.T).T
        own = noise - by_chance
        slopes = np.linalg.lstsq(own, vectors.T, rcond=None)[0]
        cleaned: Vector = vectors - slopes.T @ by_chance.T
        return cleaned
