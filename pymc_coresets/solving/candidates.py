"""The tangent space at some draws: the exact target of all rows, and vectors of candidates."""

import math

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.methods.posterior import Potentials
from pymc_coresets.solving.problem import Matrix, Problem, Vector

__all__ = ["default_n_draws", "sample_candidates", "tangent_problem"]

_MAX_ENTRIES = 2**25  # of the candidates' tangent vectors: 256 MB
_HELDOUT = 1 / 5  # of the draws
_MIN_DRAWS = 20


def default_n_draws(size: int, n_dims: int) -> int:
    """Draws to choose `size` rows at, and to tell the dimensions apart.

    Four for each row or, where there are more of these, dimension; 500 at least, 2 000 at most.

    Examples
    --------
    >>> default_n_draws(10, 2), default_n_draws(10, 300), default_n_draws(1_000, 2)
    (500, 1200, 2000)
    """
    return max(500, min(4 * max(size, n_dims), 2_000))


def tangent_problem[D](
    potentials: Potentials[D],
    draws: D,
    *,
    rng: np.random.Generator,
    moments: tuple[Vector, Vector] | None = None,
) -> tuple[Problem, NDArray[np.int64]]:
    """Make the problem whose solution is a Hilbert coreset at the given draws.

    One pass over the data for the target, and one over the candidates.  The candidates are all
    rows where their vectors fit into 256 MB, and otherwise a sample of them, which loses nothing
    in the target.

    Parameters
    ----------
    potentials : Potentials
        Gives the potentials of any rows at the draws.
    draws
        Draws of the weighting distribution, at least 20; a fifth of them is held out.
    rng : numpy.random.Generator
    moments : tuple of ndarray, optional
        ``potentials.moments(draws)``, where they are known: saves the pass over all rows.

    Returns
    -------
    problem : Problem
    candidates : ndarray of int64
        The row of each candidate.

    Raises
    ------
    InvalidDataError
        If there are too few draws, no potential varies over them, or their sum is not finite.

    Notes
    -----
    ``V_n = (F_n - mean_s F_ns) / sqrt(S)`` and ``L = sum_n u_n V_n`` over all rows (Campbell and
    Broderick 2019, Section 3).
    """
    total, norms = potentials.moments(draws) if moments is None else moments
    n_draws = len(total)
    if n_draws < _MIN_DRAWS:
        raise InvalidDataError(
            f"{n_draws} weighting draws are too few: give at least {_MIN_DRAWS}."
        )
    n_bad = n_draws - int(np.count_nonzero(np.isfinite(total)))
    if n_bad:
        raise InvalidDataError(
            f"The log-likelihood of all rows is NaN or infinite at {n_bad} of {n_draws} weighting "
            "draws: check that the likelihood is positive wherever the prior is."
        )
    scores = potentials.base_weights * norms
    candidates = sample_candidates(scores, max(1, _MAX_ENTRIES // n_draws), rng=rng)
    if not candidates.size or np.ptp(total) == 0:
        raise InvalidDataError(
            "The log-likelihood does not vary over the weighting draws: they are all the same, "
            "or the likelihood does not depend on the free variables."
        )
    loglik = potentials.loglik(draws, candidates)
    # Draws by importance resampling repeat themselves: equal ones are on the same side.
    different, draw_of = np.unique(total, return_inverse=True)
    is_heldout = (rng.permutation(len(different)) < _HELDOUT * len(different))[draw_of]
    heldout, choosing = np.flatnonzero(is_heldout), np.flatnonzero(~is_heldout)
    problem = Problem(
        vectors=_tangent(loglik[:, choosing]),
        target=_tangent(total[None, choosing])[0],
        base_weights=potentials.base_weights[candidates],
        total_norm=float(scores.sum()),
        heldout_vectors=_tangent(loglik[:, heldout]),
        heldout_target=_tangent(total[None, heldout])[0],
    )
    return problem, candidates


def _tangent(loglik: Matrix) -> Matrix:
    """Centre and scale a fresh matrix of log-likelihoods (n_rows, n_draws) in place."""
    loglik -= loglik.mean(axis=1, keepdims=True)
    loglik /= math.sqrt(loglik.shape[1])
    return loglik


def sample_candidates(
    scores: Vector, n_candidates: int, *, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Sample distinct rows, half of them in proportion to their scores and half uniformly.

    Parameters
    ----------
    scores : ndarray of shape (n_obs,)
        Non-negative; u_n times the norm of the row's tangent vector.
    n_candidates : int
        How many; all rows with a positive score where there are fewer.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64
        Sorted positions.

    Examples
    --------
    >>> sample_candidates(np.array([0.0, 1.0, 2.0]), 2, rng=np.random.default_rng(1))
    array([1, 2])
    """
    useful = np.flatnonzero(scores > 0)
    if len(useful) <= n_candidates:
        return useful
    mixture = 0.5 * scores[useful] / scores[useful].sum() + 0.5 / len(useful)
    # The largest of log(p) + Gumbel noise are a sample without replacement.
    keys = np.log(mixture) + rng.gumbel(size=len(useful))
    return np.sort(useful[np.argpartition(-keys, n_candidates)[:n_candidates]])
