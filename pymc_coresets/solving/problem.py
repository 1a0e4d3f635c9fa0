"""The problem of a Hilbert coreset: tangent vectors, their target, and what all methods need."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError

type Vector = NDArray[np.float64]
type Matrix = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Candidate rows, the exact sum that they have to match, and what each row stands for.

    And the few operations that all methods share.  The candidates may be a subset of the data, so
    ``target`` need not equal ``base_weights @ vectors``.  Nothing of the size of ``vectors`` is
    copied.  Sums over draws of selected rows are float64; only `project` runs in the matrix's own
    dtype.

    Parameters
    ----------
    vectors : ndarray of shape (n_obs, n_draws), float32 or float64
        Tangent vectors of the candidates: ``V_ns = (f_n(theta_s) - mean_s f_n) / sqrt(n_draws)``.
        C and Fortran order are equally fast; other strides are slow.
    target : ndarray of shape (n_draws,)
        Exact sum of ``u_n V_n`` over all data.
    base_weights : ndarray of shape (n_obs,)
        ``u_n >= 0``. Rows of weight 0 are absent from the data and never selected.
    total_norm : float, optional
        Sum of ``u_n ||V_n||`` over all data; by default that of the candidates.
    heldout_vectors : ndarray of shape (n_obs, n_heldout), optional
        Tangent vectors of the same rows at draws that must not choose the weights.
    heldout_target : ndarray of shape (n_heldout,), optional
        Their exact sum over all data; needed exactly when ``heldout_vectors`` is given.
    prices : ndarray of shape (n_obs,), optional
        What each row costs whoever uses the coreset, beside the others; by default all cost the
        same.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[3.0, 4.0], [0.0, 0.0]])
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), base_weights=np.ones(2))
    >>> problem.norms, problem.project(np.array([1.0, 0.0]))
    (array([5., 0.]), array([0.6, 0. ]))
    """

    vectors: Matrix
    target: Vector
    base_weights: Vector
    total_norm: float | None = None
    heldout_vectors: Matrix | None = None
    heldout_target: Vector | None = None
    prices: Vector | None = None

    @property
    def n_obs(self) -> int:
        """Number of candidate rows."""
        return len(self.vectors)

    @cached_property
    def norms(self) -> Vector:
        """Euclidean norms of the rows, shape (n_obs,); one pass, computed once."""
        norms: Vector = np.einsum("ns,ns->n", self.vectors, self.vectors, dtype=np.float64)
        return np.sqrt(norms)

    @cached_property
    def inverse_norms(self) -> Vector:
        """Their inverses; 0 for rows that must not be selected.

        These are zero (next to the longest row), or absent from the data.
        """
        selectable = self.norms > np.finfo(np.float64).eps * self.norms.max()
        selectable &= self.base_weights > 0
        return np.divide(1.0, self.norms, out=np.zeros(self.n_obs), where=selectable)

    @cached_property
    def sigma(self) -> float:
        """Sum of base weight times norm over all data, as in Frank-Wolfe's polytope."""
        known = self.total_norm
        return float(self.base_weights @ self.norms) if known is None else known

    @cached_property
    def rounding(self) -> float:
        """Length below which a component of a residual is rounding error of the target."""
        return rounding(self.target)

    @property
    def resolution(self) -> float:
        """Relative error of `project`."""
        return 4 * float(np.finfo(self.vectors.dtype).eps)

    def project(self, direction: Vector) -> Vector:
        """Inner products of all unit rows ``V_n / ||V_n||`` with a vector: one pass.

        Parameters
        ----------
        direction : ndarray of shape (n_draws,)
            It is normalised first, so that float32 keeps its digits.

        Returns
        -------
        ndarray of shape (n_obs,)
            Exactly 0 for rows that must not be selected.
        """
        length = float(np.linalg.norm(direction))
        if length == 0:
            return np.zeros_like(self.norms)
        products = self.vectors @ (direction / length).astype(self.vectors.dtype)
        cosines: Vector = products * self.inverse_norms
        cosines *= length
        return cosines

    def best(self, scores: Vector) -> int:
        """Position of the largest score among the rows that may be selected (others get -inf)."""
        scores[self.inverse_norms == 0] = -np.inf
        return int(scores.argmax())

    def row(self, position: int) -> Vector:
        """One row, shape (n_draws,), float64."""
        row: Vector = self.rows(np.array([position]))[0]
        return row

    def rows(self, positions: NDArray[np.int64]) -> Vector:
        """Several rows, shape (len(positions), n_draws), float64."""
        return np.asarray(self.vectors[positions], dtype=np.float64)

    def residual(self, weights: Vector) -> Vector:
        """``L - L(w)``, shape (n_draws,), from the rows that have weight."""
        support = np.flatnonzero(weights)
        difference: Vector = self.target - weights[support] @ self.rows(support)
        return difference

    def heldout_objective(self, weights: Vector) -> float:
        """``J(w)`` on the held-out draws in nats, nan where the problem has none."""
        if self.heldout_vectors is None or self.heldout_target is None:
            return math.nan
        support = np.flatnonzero(weights)
        matched = weights[support] @ self.heldout_vectors[support].astype(np.float64)
        residual = self.heldout_target - matched
        return float(residual @ residual)


def tangent_vectors(
    potentials: Matrix, *, weights: Vector | None = None, in_place: bool = False
) -> Vector:
    """Centre potentials over the draws, and divide them by ``sqrt(n_draws)``.

    Parameters
    ----------
    potentials : ndarray of shape (..., n_draws), float64
        In nats.
    weights : ndarray of shape (n_draws,), optional
        Importance weights of the draws, which sum to one; by default all the same.
    in_place : bool, default False
        Overwrite the potentials, which spares a copy.

    Returns
    -------
    ndarray of shape (..., n_draws)
        Tangent vectors: their inner products are (weighted) covariances over the draws.

    Raises
    ------
    InvalidDataError
        If a value is not finite.

    Examples
    --------
    >>> vector = tangent_vectors(np.array([1.0, 3.0]))
    >>> float(vector @ vector)
    1.0
    """
    vectors = cast(Vector, potentials) if in_place else potentials.astype(np.float64)
    with np.errstate(invalid="ignore"):  # of infinite values, which are refused
        mean = vectors.mean(axis=-1) if weights is None else vectors @ weights
        vectors -= mean[..., None]
    if not np.isfinite(vectors).all():
        raise InvalidDataError(
            "A log-likelihood is NaN or infinite at a draw: check that the likelihood is positive "
            "wherever the prior is."
        )
    vectors *= 1 / math.sqrt(potentials.shape[-1]) if weights is None else np.sqrt(weights)
    return vectors


def unit_rows(vectors: Vector) -> Vector:
    """Return rows of length 1; those of zeros stay.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vector = vectors / np.where(norms > 0, norms, 1.0)
    return unit


def rounding(vector: Vector) -> float:
    """Length below which a component of a vector is rounding error.

    Parameters
    ----------
    vector : ndarray of shape (n_draws,)
        The whole, for instance a target of which a residual is what is left.

    Returns
    -------
    float
        Four times float64's epsilon times ``sqrt(n_draws)`` times the vector's length.

    Examples
    --------
    >>> import numpy as np
    >>> rounding(np.ones(4)) < 1e-14
    True
    """
    epsilon = float(np.finfo(np.float64).eps)
    return 4 * epsilon * math.sqrt(len(vector)) * float(np.linalg.norm(vector))
