"""What a Hilbert coreset method is given: tangent vectors, their target, and unit rows of these."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError

type Vector = NDArray[np.float64]
type Matrix = NDArray[np.floating[Any]]

_BLOCK_ENTRIES = 2**18  # 2 MB of float64: a block and its temporaries stay in the cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Candidate rows, the exact sum that they have to match, and what each row stands for.

    The candidates may be a subset of the data, so ``target`` need not equal
    ``base_weights @ vectors``. Nothing of the size of ``vectors`` is copied.

    Parameters
    ----------
    vectors : ndarray of shape (n_obs, n_draws), float32 or float64
        Tangent vectors of the candidates: ``V_ns = (f_n(theta_s) - mean_s f_n) / sqrt(n_draws)``.
        C and Fortran order are equally fast; other strides are slow.
    target : array_like of shape (n_draws,)
        Exact sum of ``u_n V_n`` over all data.
    base_weights : array_like of shape (n_obs,)
        ``u_n >= 0``. Rows of weight 0 are absent from the data and never selected.
    total_norm : float, optional
        Sum of ``u_n ||V_n||`` over all data (Frank-Wolfe's sigma); by default that of the
        candidates.
    heldout_vectors : ndarray of shape (n_obs, n_heldout), optional
        Tangent vectors of the same rows at draws that must not choose the weights.
    heldout_target : array_like of shape (n_heldout,), optional
        Their exact sum over all data; needed exactly when ``heldout_vectors`` is given.
    prices : array_like of shape (n_obs,), optional
        What each row costs whoever uses the coreset, beside the others; by default all cost the
        same.

    Raises
    ------
    InvalidDataError
        If shapes disagree, ``vectors`` is neither float32 nor float64, a base weight is negative,
        or a value is not finite (``vectors`` itself is inspected when `norms` is first needed).

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), base_weights=np.ones(2))
    >>> problem.n_obs, problem.norms
    (2, array([1., 1.]))
    """

    vectors: Matrix
    target: Vector
    base_weights: Vector
    total_norm: float | None = None
    heldout_vectors: Matrix | None = None
    heldout_target: Vector | None = None
    prices: Vector | None = None

    def __post_init__(self) -> None:
        _check_matrix("vectors", self.vectors)
        self._set_vector("target", self.vectors.shape[1])
        self._set_vector("base_weights", self.n_obs)
        if (self.base_weights < 0).any():
            raise InvalidDataError(
                f"base_weights must not be negative, but the smallest is {self.base_weights.min()}"
            )
        if self.total_norm is not None and not 0 <= self.total_norm < np.inf:
            raise InvalidDataError(
                f"total_norm must be finite and not negative, but is {self.total_norm}"
            )
        if (self.heldout_vectors is None) != (self.heldout_target is None):
            raise InvalidDataError("pass heldout_vectors and heldout_target together, or neither")
        if self.heldout_vectors is not None:
            _check_matrix("heldout_vectors", self.heldout_vectors)
            if len(self.heldout_vectors) != self.n_obs:
                raise InvalidDataError(
                    f"heldout_vectors has {len(self.heldout_vectors)} rows, "
                    f"but vectors has {self.n_obs}: both describe the same observations"
                )
            self._set_vector("heldout_target", self.heldout_vectors.shape[1])
        if self.prices is not None:
            self._set_vector("prices", self.n_obs)
            if not (self.prices > 0).all():
                raise InvalidDataError(
                    f"prices must be positive, but the smallest is {self.prices.min()}"
                )

    def _set_vector(self, name: str, length: int) -> None:
        vector = np.asarray(getattr(self, name), dtype=np.float64)
        if vector.shape != (length,):
            raise InvalidDataError(f"{name} must have shape ({length},), but has {vector.shape}")
        if not np.isfinite(vector).all():
            raise InvalidDataError(f"{name} contains NaN or infinite values")
        object.__setattr__(self, name, vector)

    @property
    def n_obs(self) -> int:
        """Number of candidate rows."""
        return len(self.vectors)

    @cached_property
    def norms(self) -> Vector:
        """Euclidean norms of the rows, shape (n_obs,); one blocked pass, computed once.

        Raises
        ------
        InvalidDataError
            If ``vectors`` contains NaN or infinite values.
        """
        norms = np.empty(self.n_obs)
        for rows in _blocks(*self.vectors.shape):
            norms[rows] = _row_norms(self.vectors[rows], "vectors")
        return norms


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


def _check_matrix(name: str, matrix: Matrix) -> None:
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidDataError(
            f"{name} must have shape (n_obs, n_draws), neither of them 0, but has {matrix.shape}"
        )
    if matrix.dtype not in (np.float32, np.float64):
        raise InvalidDataError(
            f"{name} must be float32 or float64, but is {matrix.dtype}: convert it with astype"
        )


def _blocks(n_obs: int, n_draws: int) -> Iterator[slice]:
    step = max(1, _BLOCK_ENTRIES // n_draws)
    return (slice(start, start + step) for start in range(0, n_obs, step))


def _row_norms(block: Matrix, name: str) -> Vector:
    """Row norms that neither overflow nor underflow, for they divide by the largest entry."""
    peak = max(float(block.max()), -float(block.min()))
    if not np.isfinite(peak):
        raise InvalidDataError(f"{name} contains NaN or infinite values: check the draws")
    if peak == 0:
        return np.zeros(len(block))
    scaled = np.divide(block, peak, dtype=np.float64)
    norms: Vector = peak * np.sqrt(np.square(scaled, out=scaled).sum(axis=1))
    return norms


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


class TangentSpace:
    """A problem in its own unit of length, with the few operations that the methods share.

    Lengths are divided by a power of two near the longest row, which is exact, so that no square
    overflows or underflows whatever the scale of the potentials; the matrix itself is not copied.
    Sums over draws of selected rows are float64; only `project` runs in the matrix's own dtype.

    Parameters
    ----------
    problem : Problem
        What to solve; its norms are computed here if they were not before.

    Attributes
    ----------
    target : ndarray of shape (n_draws,)
        What the weighted rows have to match.
    norms : ndarray of shape (n_obs,)
        Lengths of the rows.
    inverse_norms : ndarray of shape (n_obs,)
        Their inverses; 0 for rows that must not be selected, because they are zero (next to the
        longest row) or absent from the data.
    prices : ndarray of shape (n_obs,), or None
        What each row costs, where they do not cost the same.
    total_norm : float
        Sum of base weight times length over all data.
    rounding : float
        Length below which a component of a residual is rounding error of the target.
    resolution : float
        Relative error of `project`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    >>> space = TangentSpace(Problem(vectors=rows, target=rows.sum(0), base_weights=np.ones(2)))
    >>> space.project(np.array([1.0, 0.0]))
    array([0.6, 0. ])
    """

    def __init__(self, problem: Problem) -> None:
        longest = float(problem.norms.max())
        self._unit = math.ldexp(1.0, min(max(math.frexp(longest)[1], -1000), 1000))
        self._problem = problem
        self.norms: Vector = problem.norms / self._unit
        selectable = self.norms > np.finfo(np.float64).eps * self.norms.max()
        selectable &= problem.base_weights > 0
        self.inverse_norms: Vector = np.zeros(problem.n_obs)
        np.divide(1.0, self.norms, out=self.inverse_norms, where=selectable)
        self._own_inverse_norms = self.inverse_norms / self._unit  # in the problem's own unit
        self._barred = np.flatnonzero(~selectable)

        self.target: Vector = problem.target / self._unit
        self.prices = problem.prices
        total_norm = problem.total_norm
        self.total_norm = (
            float(problem.base_weights @ self.norms)
            if total_norm is None
            else total_norm / self._unit
        )
        self.rounding = rounding(self.target)
        self.resolution = 4 * float(np.finfo(problem.vectors.dtype).eps)

    def project(self, direction: Vector) -> Vector:
        """Inner products of all unit rows ``V_n / ||V_n||`` with a vector: one pass.

        Parameters
        ----------
        direction : ndarray of shape (n_draws,)
            In this space's unit; it is normalised first, so that float32 keeps its digits.

        Returns
        -------
        ndarray of shape (n_obs,)
            Exactly 0 for rows that must not be selected.
        """
        length = float(np.linalg.norm(direction))
        if length == 0:
            return np.zeros_like(self.norms)
        vectors = self._problem.vectors
        products = vectors @ (direction / length).astype(vectors.dtype)
        cosines: Vector = products * self._own_inverse_norms
        cosines *= length
        return cosines

    def best(self, scores: Vector) -> int:
        """Position of the largest score among the rows that may be selected (others get -inf)."""
        scores[self._barred] = -np.inf
        return int(scores.argmax())

    def row(self, position: int) -> Vector:
        """One row in this space's unit, shape (n_draws,), float64."""
        row: Vector = self.rows(np.array([position]))[0]
        return row

    def rows(self, positions: NDArray[np.int64]) -> Vector:
        """Several rows in this space's unit, shape (len(positions), n_draws), float64."""
        rows: Vector = self._problem.vectors[positions].astype(np.float64) / self._unit
        return rows

    def residual(self, weights: Vector) -> Vector:
        """``L - L(w)``, shape (n_draws,), from the rows that have weight."""
        support = np.flatnonzero(weights)
        difference: Vector = self.target - weights[support] @ self.rows(support)
        return difference

    def objective(self, residual: Vector) -> float:
        """Squared length of a residual in nats (the problem's own unit)."""
        return float(residual @ residual) * self._unit * self._unit

    def heldout_objective(self, weights: Vector) -> float:
        """``J(w)`` on the held-out draws in nats, nan where the problem has none."""
        problem = self._problem
        if problem.heldout_vectors is None or problem.heldout_target is None:
            return math.nan
        support = np.flatnonzero(weights)
        matched = weights[support] @ problem.heldout_vectors[support].astype(np.float64)
        return self.objective((problem.heldout_target - matched) / self._unit)
