"""The problem of a Hilbert coreset: tangent vectors, their target, and shared operations."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import cast

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.optimize import nnls

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.numerics import ENTRIES_AT_ONCE, rows_at_once
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.passes import PassSums, PointwiseLogLikelihood
from pymc_coresets.rows.values import Rows

type Vector = NDArray[np.float64]
type Matrix = NDArray[np.floating]


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Candidate rows, their case weights, and the exact sum that they have to match.

    Also the few operations that all methods share.  The candidates may be a subset of the data, so
    ``target`` need not equal ``case_weights @ vectors``.  Nothing of the size of ``vectors`` is
    copied.  Sums over draws of selected rows are float64; only `project` runs in the matrix's own
    dtype.

    Parameters
    ----------
    vectors : ndarray of shape (n_obs, n_draws), float32 or float64
        Tangent vectors of the candidates: ``V_ns = (f_n(theta_s) - mean_s f_n) / sqrt(n_draws)``.
        C and Fortran order are equally fast; other strides are slow.
    target : ndarray of shape (n_draws,)
        Exact sum of ``u_n V_n`` over all data.
    case_weights : ndarray of shape (n_obs,)
        ``u_n >= 0``. Rows of weight 0 are absent from the data and never selected.
    total_norm : float, optional
        Sum of ``u_n ||V_n||`` over all data; by default that of the candidates.
    heldout_vectors : ndarray of shape (n_obs, n_heldout), optional
        Tangent vectors of the same rows at draws that must not choose the weights.
    heldout_target : ndarray of shape (n_heldout,), optional
        Their exact sum over all data; needed exactly when ``heldout_vectors`` is given.
    prices : ndarray of shape (n_obs,), optional
        Relative cost of each row in use of the coreset; by default all cost the same.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[3.0, 4.0], [0.0, 0.0]])
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), case_weights=np.ones(2))
    >>> problem.norms, problem.project(np.array([1.0, 0.0]))
    (array([5., 0.]), array([0.6, 0. ]))
    """

    vectors: Matrix
    target: Vector
    case_weights: Vector
    total_norm: float | None = None
    heldout_vectors: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    heldout_target: Vector = field(default_factory=lambda: np.zeros(0))
    prices: Vector = field(default_factory=lambda: np.ones(1))

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
        selectable &= self.case_weights > 0
        return np.divide(1.0, self.norms, out=np.zeros(self.n_obs), where=selectable)

    @cached_property
    def sigma(self) -> float:
        """Sum of case weight times norm over all data, as in Frank-Wolfe's polytope."""
        known = self.total_norm
        return float(self.case_weights @ self.norms) if known is None else known

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
        """``L - L(w)``, shape (n_draws,), from the rows of positive weight."""
        support = np.flatnonzero(weights)
        difference: Vector = self.target - weights[support] @ self.rows(support)
        return difference

    @property
    def has_heldout(self) -> bool:
        """Whether there are held-out draws."""
        return len(self.heldout_target) > 0

    def heldout_objective(self, weights: Vector) -> float:
        """``J(w)`` on the held-out draws in nats; nan if the problem has none."""
        if not self.has_heldout:
            return math.nan
        support = np.flatnonzero(weights)
        matched = weights[support] @ self.heldout_vectors[support].astype(np.float64)
        residual = self.heldout_target - matched
        return float(residual @ residual)


def tangent_vectors(loglik: Matrix, *, in_place: bool = False) -> Vector:
    """Centre log-likelihoods over the draws, and divide them by ``sqrt(n_draws)``.

    Parameters
    ----------
    loglik : ndarray of shape (..., n_draws), float64
        In nats.
    in_place : bool, default False
        Overwrite the log-likelihoods, to avoid a copy.

    Returns
    -------
    ndarray of shape (..., n_draws)
        Tangent vectors: their inner products are covariances over the draws.

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
    vectors = cast(Vector, loglik) if in_place else loglik.astype(np.float64)
    with np.errstate(invalid="ignore"):  # of infinite values, which are refused
        vectors -= vectors.mean(axis=-1)[..., None]
    _require_finite(vectors)
    vectors *= 1 / math.sqrt(loglik.shape[-1])
    return vectors


def weighted_tangent_vectors(loglik: Matrix, *, weights: Vector, in_place: bool = False) -> Vector:
    """Return tangent vectors whose inner products are covariances over draws of some weights.

    These are importance weights (n_draws,), which sum to one.  Else see `tangent_vectors`.
    """
    vectors = cast(Vector, loglik) if in_place else loglik.astype(np.float64)
    with np.errstate(invalid="ignore"):
        vectors -= (vectors @ weights)[..., None]
    _require_finite(vectors)
    vectors *= np.sqrt(weights)
    return vectors


def _require_finite(vectors: Vector) -> None:
    if not np.isfinite(vectors).all():
        raise InvalidDataError(
            "A log-likelihood is NaN or infinite at a draw: check that the likelihood is positive "
            "at all points of the prior."
        )


def unit_rows(vectors: Vector) -> Vector:
    """Return rows scaled to length 1; rows of zeros stay zero.

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
    """Length below which a component of a vector (n_draws,), such as a residual, is rounding error.

    Four times float64's epsilon times ``sqrt(n_draws)`` times the vector's length.

    Examples
    --------
    >>> rounding(np.ones(4)) < 1e-14
    True
    """
    epsilon = float(np.finfo(np.float64).eps)
    return 4 * epsilon * math.sqrt(len(vector)) * float(np.linalg.norm(vector))


def nonnegative_least_squares(rows: Vector, target: Vector) -> Vector:
    """Non-negative weights of rows whose weighted sum is closest to a target.

    Uses :func:`scipy.optimize.nnls` on rows of length 1.  Of collinear rows, an independent subset
    gets weight.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_draws)
        Vectors to combine.
    target : ndarray of shape (n_draws,)
        Target of the weighted sum.

    Returns
    -------
    ndarray of shape (n_rows,)
        Weights, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> nonnegative_least_squares(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -3.0]))
    array([2., 0.])
    """
    norms = np.linalg.norm(rows, axis=1)
    # A row that is added and dropped costs one iteration each time.
    lengths, _ = nnls(unit_rows(rows).T, target, maxiter=30 * len(rows))
    weights: Vector = lengths / np.where(norms > 0, norms, 1.0)
    return weights


# -- candidates -----------------------------------------------------------------------------------

#: Draws that choose rows, by default: four for each of a thousand rows.
MOST_DRAWS = 4_000


def default_n_draws(size: int, n_dims: int) -> int:
    """Return the default number of draws for choosing `size` rows.

    Four per row or, if there are more of these, per dimension; at least 500, at most 4,000.  With
    two per row for 1,000 rows, weights fitted these draws 16 times better than other draws.

    Examples
    --------
    >>> default_n_draws(10, 2), default_n_draws(10, 300), default_n_draws(1_000, 2)
    (500, 1200, 4000)
    """
    return max(500, min(4 * max(size, n_dims), MOST_DRAWS))


def tangent_problem[D](
    evaluator: PointwiseLogLikelihood[D], draws: D, *, rng: np.random.Generator
) -> tuple[Problem, Rows]:
    """Make the problem whose solution is a Hilbert coreset at the given draws.

    Costs one pass over the data for the target, and one over the candidates.  The candidates are
    all rows if their vectors fit into 256 MB, and otherwise a sample; the target is exact either
    way.

    Parameters
    ----------
    evaluator : PointwiseLogLikelihood
        Evaluates rows at the draws.
    draws
        Draws of the weighting distribution, at least 20; a fifth of them is held out.
    rng : numpy.random.Generator

    Returns
    -------
    problem : Problem
    candidates : Rows

    Raises
    ------
    InvalidDataError
        If there are too few draws, no log-likelihood varies over them, or their sum is not finite.
    """
    probe = evaluator.subsample(1_000, key=random_key(rng))
    loglik = evaluator.loglik(draws, probe.rows)
    sums = evaluator.sums(
        draws,
        n_candidates=n_candidates(loglik.shape[1]),
        scale=total_length(loglik, probe.weights),
        key=random_key(rng),
    )
    found = sums.loglik_or(partial(evaluator.loglik, draws))
    return problem_at(found, sums, sums.total, rng=rng), sums.candidates


def total_length(loglik: Matrix, weights: Vector) -> float:
    """Return the weighted sum of the lengths of tangent vectors, at draws where all are finite.

    Parameters
    ----------
    loglik : ndarray of shape (n_rows, n_draws)
        Log-likelihoods of some rows.
    weights : ndarray of shape (n_rows,)

    Examples
    --------
    >>> total_length(np.array([[1.0, 3.0, 0.0], [1.0, 1.0, -np.inf]]), np.array([5.0, 1.0]))
    5.0
    """
    finite = np.isfinite(loglik).all(axis=0)
    return float(weights @ loglik[:, finite].std(axis=1)) if finite.any() else 0.0


def n_candidates(n_draws: int) -> int:
    """Number of candidates whose vectors fit into 256 MB.

    Examples
    --------
    >>> n_candidates(1_024)
    32768
    """
    return max(1, 8 * ENTRIES_AT_ONCE // n_draws)


def problem_at(
    loglik: Matrix,
    sums: PassSums,
    target: Vector,
    *,
    rng: np.random.Generator,
    weights: Vector | None = None,
    dtype: DTypeLike = np.float64,
) -> Problem:
    """Make the problem of choosing among the candidates of a pass over all rows.

    Parameters
    ----------
    loglik : ndarray of shape (n_candidates, n_draws)
        Log-likelihoods of the candidates at the draws, in nats.
    sums : PassSums
        The sum over all rows, and the candidates.
    target : ndarray of shape (n_draws,)
        Sum to match, in nats.
    rng : numpy.random.Generator
        Chooses the held-out draws.
    weights : ndarray of shape (n_draws,), optional
        Importance weights of the draws, used for held-out draws if their effective sample size
        exceeds 30.  Draws that choose rows have equal weights: otherwise only the few of large
        weight would be matched.
    dtype : {float64, float32}
        Of the vectors that choose.

    Returns
    -------
    Problem
        Its rows are ``sums.candidates``.

    Raises
    ------
    InvalidDataError
        If there are too few draws, no log-likelihood varies over them, or their sum is not finite.

    Notes
    -----
    ``V_n = (F_n - mean_s F_ns) / sqrt(S)`` and ``L = sum_n u_n V_n`` over all rows (Campbell and
    Broderick 2019, Section 3).
    """
    n_draws, fewest = len(sums.total), 20
    if n_draws < fewest:
        raise InvalidDataError(
            f"{n_draws} weighting draws are too few: at least {fewest} are needed."
        )
    n_bad = n_draws - int(np.count_nonzero(np.isfinite(sums.total)))
    if n_bad:
        raise InvalidDataError(
            f"The log-likelihood of all rows is NaN or infinite at {n_bad} of {n_draws} weighting "
            "draws: check that the likelihood is positive at all points of the prior. If its "
            "support depends on the variables, as for a uniform distribution, a few rows cannot "
            "represent all: sample the model itself."
        )
    if not len(sums.candidates) or np.ptp(sums.total) == 0:
        raise InvalidDataError(
            "The log-likelihood does not vary over the weighting draws: they are all the same, "
            "or the likelihood does not depend on the free variables."
        )
    # Importance resampling repeats draws: equal ones are either all held out or none.
    different, draw_of = np.unique(sums.total, return_inverse=True)
    if len(different) < fewest:
        raise InvalidDataError(
            f"Only {len(different)} of {n_draws} weighting draws differ: at least {fewest} are "
            "needed. Sample longer."
        )
    is_heldout = (rng.permutation(len(different)) < len(different) / 5)[draw_of]
    heldout, choosing = np.flatnonzero(is_heldout), np.flatnonzero(~is_heldout)
    judge: Callable[..., Vector] = tangent_vectors
    if weights is not None:
        own = weights[heldout]
        if own.sum() ** 2 > 30 * np.square(own).sum():  # Kish's effective sample size
            judge = partial(weighted_tangent_vectors, weights=own / own.sum())
    unit_rows = sums.candidates.unit_rows
    # A unit costs the root of the number of its rows.
    return Problem(
        vectors=_vectors_at(loglik, choosing, dtype),
        target=tangent_vectors(target[choosing]),
        case_weights=sums.candidates.case_weights,
        total_norm=sums.norm_total,
        heldout_vectors=judge(loglik[:, heldout], in_place=True),
        heldout_target=judge(target[heldout]),
        prices=np.sqrt(unit_rows.sizes) if unit_rows else np.ones(1),
    )


def _vectors_at(loglik: Matrix, draws: NDArray[np.intp], dtype: DTypeLike) -> Matrix:
    """Tangent vectors at some of the draws, computed in blocks to save memory."""
    vectors = np.empty((len(loglik), len(draws)), dtype=dtype)
    step = rows_at_once(len(draws))
    for start in range(0, len(loglik), step):
        block = slice(start, start + step)
        vectors[block] = tangent_vectors(loglik[block][:, draws], in_place=True)
    return vectors
