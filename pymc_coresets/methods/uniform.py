"""Uniform sampling with replacement: the baseline that needs no vectors."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.solving.loop import State
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Status


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Draw rows at random, in proportion to their base weights.

    Use it as a baseline and as a cheap start for the others; its error falls only like
    ``1 / sqrt(size)``. No pass over the vectors.

    See Also
    --------
    sample_uniform : The same without a problem.

    References
    ----------
    .. [1] Campbell, T. and Broderick, T. (2019). Automated Scalable Bayesian Inference via
       Hilbert Coresets, Section 4.1. https://jmlr.org/papers/v20/17-613.html

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.solving.problem import Problem
    >>> from pymc_coresets.solving.loop import solve
    >>> vectors = np.eye(4)
    >>> problem = Problem(vectors=vectors, target=vectors.sum(0), base_weights=np.ones(4))
    >>> float(solve(Uniform(), problem, 3, rng=np.random.default_rng(1)).weights.sum())
    4.0
    """

    tolerance: ClassVar[float | None] = None

    def start(self, empty: State) -> State:
        """Start from no rows."""
        return empty

    def step(self, state: State) -> State:
        """Draw ``size`` rows; repeated ones add their weights."""
        weights = np.zeros_like(state.weights)
        indices, drawn = sample_uniform(state.space.base_weights, state.size, rng=state.rng)
        weights[indices] = drawn
        residual = state.space.residual(weights)
        return replace(state, weights=weights, residual=residual, status=Status.SIZE_REACHED)

    def finish(self, state: State) -> State:
        """Leave the weights as they are: they are unbiased only unpolished."""
        return state


def sample_uniform(
    base_weights: ArrayLike, size: int, *, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Vector]:
    """Sample rows with replacement, with probabilities proportional to their base weights.

    O(n_obs) time and memory.

    Parameters
    ----------
    base_weights : array_like of shape (n_obs,)
        ``u_n >= 0``; 1 for raw data.
    size : int
        Number of draws, at least 1; fewer rows result where some are drawn repeatedly.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    indices : ndarray of int64
        Sorted and unique.
    weights : ndarray of float64
        Positive; they sum to ``sum(base_weights)``.

    Raises
    ------
    InvalidDataError
        If the base weights are not a vector of finite, non-negative numbers of positive sum.

    Notes
    -----
    ``K ~ Multinomial(size, u / sum(u))`` and ``w_n = K_n sum(u) / size``, so that ``E[w_n] = u_n``
    and ``Cov[w_n, w_m] = (sum(u) u_n [n = m] - u_n u_m) / size``.

    Examples
    --------
    >>> indices, weights = sample_uniform(np.ones(10), 4, rng=np.random.default_rng(1))
    >>> float(weights.sum())
    10.0
    """
    masses = np.asarray(base_weights, dtype=np.float64)
    total = masses.sum()
    if masses.ndim != 1 or not (masses >= 0).all() or not 0 < total < np.inf:
        raise InvalidDataError(
            "base_weights must be a vector of finite, non-negative numbers, not all 0, "
            f"but has shape {masses.shape} and sum {total}"
        )
    counts = rng.multinomial(size, masses / total)
    indices = np.flatnonzero(counts)
    return indices, counts[indices] * (total / size)
