"""The problem of choosing among all rows of a matrix of log-likelihoods."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.solving.problem import Problem, tangent_vectors

ROUNDING = 8 * np.finfo(np.float64).eps


def problem_of(
    loglik: NDArray[np.float64], *, heldout: NDArray[np.float64] | None = None
) -> Problem:
    """Centre and scale log-likelihoods (n_obs, n_draws): all rows are candidates.

    Rows that vary no more than rounding does are exactly zero.

    >>> problem_of(np.array([[-1.0, -3.0], [-2.0, -2.0]])).norms
    array([1., 0.])
    """
    weights, vectors = np.ones(len(loglik)), _centred(loglik)
    problem = Problem(vectors=vectors, target=weights @ vectors, case_weights=weights)
    if heldout is None:
        return problem
    others = _centred(heldout)
    return replace(problem, heldout_vectors=others, heldout_target=weights @ others)


def _centred(loglik: NDArray[np.float64]) -> NDArray[np.float64]:
    vectors = tangent_vectors(loglik)
    limit = ROUNDING * np.abs(loglik).max(axis=1) / np.sqrt(loglik.shape[1])
    vectors[np.abs(vectors).max(axis=1) <= limit] = 0
    return vectors.astype(loglik.dtype, copy=False)
