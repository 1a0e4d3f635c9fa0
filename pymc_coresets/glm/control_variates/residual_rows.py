"""Rows for what a quadratic leaves: sampled by size, and weighted to match its sum."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

__all__ = ["calibrated", "inclusion", "systematic_sample"]

_RIDGE = 0.2  # of the mean eigenvalue
_MOST = 3.0  # times the weight by the design


def inclusion(spread: np.ndarray, size: int) -> np.ndarray:
    """Return probabilities to be chosen, in proportion to the spreads where these are below one.

    Parameters
    ----------
    spread : ndarray of shape (n_rows,)
        Not negative, not all zero.
    size : int
        Their sum; all rows that have a spread, where these are no more.

    Examples
    --------
    >>> inclusion(np.array([8.0, 1.0, 1.0, 0.0]), 2)
    array([1. , 0.5, 0.5, 0. ])
    """
    if np.count_nonzero(spread) <= size:
        return (spread > 0).astype(float)
    if np.isinf(spread).any():
        spread = np.where(np.isinf(spread), 2 * size * spread[np.isfinite(spread)].sum(), spread)
    ordered = np.sort(spread)[::-1]
    rest = np.cumsum(ordered[::-1])[::-1][:size]
    factors = np.arange(size, 0, -1) / rest  # where the rows before have probability one
    factor = factors[np.argmax(factors * ordered[:size] <= 1.0)]
    found: np.ndarray = np.minimum(1.0, factor * spread)
    return found


def systematic_sample(probabilities: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    """Draw distinct rows with given inclusion probabilities, by one random number.

    Rows of probability one are always among them.  Rows are put into a random order first, so that
    neighbours are no more alike than others.

    Parameters
    ----------
    probabilities : ndarray of shape (n_rows,)
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int64
        Numbers of rows, ascending.

    Examples
    --------
    >>> systematic_sample(np.array([1.0, 0.0, 1.0]), rng=np.random.default_rng(1))
    array([0, 2])
    """
    whole = np.flatnonzero(probabilities >= 1.0)
    others = rng.permutation(np.flatnonzero((probabilities > 0) & (probabilities < 1.0)))
    steps = np.floor(np.cumsum(probabilities[others]) + rng.random())
    drawn = others[np.diff(steps, prepend=0.0) > 0]
    return np.sort(np.concatenate([whole, drawn]))


def calibrated(residuals: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return factors of weights that bring a sum of residuals closer to their goal.

    Ridge regression towards one, in its dual form: O(S^2 M) for S draws and M rows.

    Parameters
    ----------
    residuals : ndarray of shape (n_draws, n_rows)
        Weighted, and centred over the draws.
    goal : ndarray of shape (n_draws,)
        Centred, too.

    Returns
    -------
    ndarray of shape (n_rows,)
        Between 0 and 3.

    Examples
    --------
    >>> residuals = np.array([[1.0], [-1.0]])
    >>> calibrated(residuals, np.array([1.0, -1.0]))
    array([1.])
    """
    gram = residuals @ residuals.T
    ridge = _RIDGE * np.trace(gram) / len(gram)
    if not ridge > 0:
        return np.ones(residuals.shape[1])
    lacking = goal - residuals.sum(axis=1)
    factor = cho_factor(gram + ridge * np.eye(len(gram)))
    change = residuals.T @ cho_solve(factor, lacking)
    found: np.ndarray = np.clip(1.0 + change, 0.0, _MOST)
    return found
