"""The tangent space at some draws: the exact target of all rows, and vectors of candidates."""

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.rows.passes import PassSums, Potentials
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Matrix, Problem, Vector, tangent_vectors

_MAX_ENTRIES = 2**25  # of the candidates' tangent vectors: 256 MB
_HELDOUT = 1 / 5  # of the draws
_MIN_DRAWS = 20
_PROBED_ROWS = 1_000  # for the scale of the tangent vectors
MOST_DRAWS = 4_000  #: By default: four for each of a thousand rows.

_PRICE_OF_ROWS = 0.5  # a unit costs this power of the number of its rows
_BLOCK = 1_000  # rows whose vectors are made at a time
_FEWEST_JUDGES = 30  # effective draws: with fewer, a few of large weight decide


def default_n_draws(size: int, n_dims: int) -> int:
    """Return how many draws choose `size` rows, and tell the dimensions apart.

    Four for each row or, where there are more of these, dimension; 500 at least, 4 000 at most.
    With two for each of 1 000 rows, the weights fitted the draws 16 times as well as others.

    Examples
    --------
    >>> default_n_draws(10, 2), default_n_draws(10, 300), default_n_draws(1_000, 2)
    (500, 1200, 4000)
    """
    return max(500, min(4 * max(size, n_dims), MOST_DRAWS))


def tangent_problem[D](
    potentials: Potentials[D], draws: D, *, rng: np.random.Generator
) -> tuple[Problem, Rows]:
    """Make the problem whose solution is a Hilbert coreset at the given draws.

    One pass over the data for the target, and one over the candidates.  The candidates are all
    rows where their vectors fit into 256 MB, and otherwise a sample of them, which loses nothing
    in the target.

    Parameters
    ----------
    potentials : Potentials
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
        If there are too few draws, no potential varies over them, or their sum is not finite.
    """
    probe = potentials.scan(_PROBED_ROWS, key=random_key(rng))
    loglik = potentials.loglik(draws, probe.rows)
    sums = potentials.sums(
        draws,
        n_candidates=n_candidates(loglik.shape[1]),
        scale=total_length(loglik, probe.weights),
        key=random_key(rng),
    )
    loglik = potentials.loglik(draws, sums.candidates)
    return problem_at(loglik, sums, rng=rng), sums.candidates


def total_length(loglik: Matrix, weights: Vector) -> float:
    """Return the weighted sum of the lengths of vectors, at the draws where all are finite.

    Parameters
    ----------
    loglik : ndarray of shape (n_rows, n_draws)
        Potentials of some rows.
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
    return max(1, _MAX_ENTRIES // n_draws)


def problem_at(
    loglik: Matrix,
    sums: PassSums,
    *,
    rng: np.random.Generator,
    goal: Vector | None = None,
    weights: Vector | None = None,
    dtype: DTypeLike = np.float64,
) -> Problem:
    """Make the problem of choosing among the candidates of a pass at all rows.

    Parameters
    ----------
    loglik : ndarray of shape (n_candidates, n_draws)
        Potentials of the candidates at the draws, in nats.
    sums : PassSums
        The sum over all rows, and the candidates.
    rng : numpy.random.Generator
        Says which draws are held out.
    goal : ndarray of shape (n_draws,), optional
        What to match, in nats; by default the sum over all rows.
    weights : ndarray of shape (n_draws,), optional
        Importance weights of the draws, for those that are held out, if these are worth more than
        30 draws.  Those that choose all count the same: the few of large weight would be matched,
        and no others.
    dtype : {float64, float32}
        Of the vectors that choose.

    Returns
    -------
    Problem
        Its rows are ``sums.candidates``.

    Raises
    ------
    InvalidDataError
        If there are too few draws, no potential varies over them, or their sum is not finite.

    Notes
    -----
    ``V_n = (F_n - mean_s F_ns) / sqrt(S)`` and ``L = sum_n u_n V_n`` over all rows (Campbell and
    Broderick 2019, Section 3).
    """
    n_draws = len(sums.total)
    if n_draws < _MIN_DRAWS:
        raise InvalidDataError(
            f"{n_draws} weighting draws are too few: at least {_MIN_DRAWS} are needed."
        )
    n_bad = n_draws - int(np.count_nonzero(np.isfinite(sums.total)))
    if n_bad:
        raise InvalidDataError(
            f"The log-likelihood of all rows is NaN or infinite at {n_bad} of {n_draws} weighting "
            "draws: check that the likelihood is positive wherever the prior is. Where its support "
            "depends on the variables, as of a uniform distribution, no few rows stand for all: "
            "sample the model itself."
        )
    if not len(sums.candidates) or np.ptp(sums.total) == 0:
        raise InvalidDataError(
            "The log-likelihood does not vary over the weighting draws: they are all the same, "
            "or the likelihood does not depend on the free variables."
        )
    target = sums.total if goal is None else goal
    # Draws by importance resampling repeat themselves: equal ones are on the same side.
    different, draw_of = np.unique(sums.total, return_inverse=True)
    if len(different) < _MIN_DRAWS:
        raise InvalidDataError(
            f"Only {len(different)} of {n_draws} weighting draws differ: at least {_MIN_DRAWS} are "
            "needed. Sample longer."
        )
    is_heldout = (rng.permutation(len(different)) < _HELDOUT * len(different))[draw_of]
    heldout, choosing = np.flatnonzero(is_heldout), np.flatnonzero(~is_heldout)
    judges = None if weights is None else _judges(weights[heldout])
    members = sums.candidates.members
    return Problem(
        vectors=_vectors_at(loglik, choosing, dtype),
        target=tangent_vectors(target[choosing]),
        base_weights=sums.candidates.base_weights,
        total_norm=sums.norm_total,
        heldout_vectors=tangent_vectors(loglik[:, heldout], weights=judges, in_place=True),
        heldout_target=tangent_vectors(target[heldout], weights=judges),
        prices=None if members is None else members.sizes.astype(np.float64) ** _PRICE_OF_ROWS,
    )


def _vectors_at(potentials: Matrix, draws: NDArray[np.intp], dtype: DTypeLike) -> Matrix:
    """Tangent vectors at some of the draws, made in blocks: together they take much memory."""
    vectors = np.empty((len(potentials), len(draws)), dtype=dtype)
    for start in range(0, len(potentials), _BLOCK):
        block = slice(start, start + _BLOCK)
        vectors[block] = tangent_vectors(potentials[block][:, draws], in_place=True)
    return vectors


def _judges(weights: Vector) -> Vector | None:
    """Normalised weights; None where they are worth too few draws (Kish's effective size)."""
    total = weights.sum()
    worth_enough = total > 0 and total**2 > _FEWEST_JUDGES * np.square(weights).sum()
    return weights / total if worth_enough else None
