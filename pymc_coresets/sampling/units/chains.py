"""Independence Metropolis-Hastings for many draws and units at once."""

import numpy as np

_FREEDOM = 8.0  # degrees, of proposals


def student(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw from a t distribution of eight degrees of freedom: Bailey 1994, Math. Comp. 62.

    Examples
    --------
    >>> student((3, 2), np.random.default_rng(1)).shape
    (3, 2)
    """
    radius = 1 / np.sqrt(np.sqrt(1 - rng.random(shape))) - 1
    drawn: np.ndarray = np.sqrt(_FREEDOM * radius) * np.cos(2 * np.pi * rng.random(shape))
    return drawn


def student_log_density(x: np.ndarray) -> np.ndarray:
    """Return the log-density (...,) of proposals (..., q), up to a constant.

    Examples
    --------
    >>> float(student_log_density(np.zeros(2)))
    -0.0
    """
    found: np.ndarray = -(_FREEDOM + 1) / 2 * np.log1p(np.square(x) / _FREEDOM).sum(axis=-1)
    return found


class Chains:
    """Independence Metropolis-Hastings chains, one for each draw of the shared variables and unit.

    Parameters
    ----------
    values : ndarray of shape (n_draws, n_units, q)
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values, shape = values, values.shape[:2]
        self._weights, self._largest, self._total = (np.full(shape, -np.inf) for _ in range(3))
        self._length = np.zeros(shape[1], dtype=int)

    @classmethod
    def at_start(cls, shape: tuple[int, ...]) -> "Chains":
        """Begin at the first proposals; `shape` is that of the values."""
        return cls(np.zeros(shape))

    def move(
        self,
        which: np.ndarray,
        units: np.ndarray,
        proposed: np.ndarray,
        log_weights: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        """Move chains of some draws and units through proposals (n_draws, n_proposals, ...)."""
        at = np.ix_(which, units)
        now, weights = self.values[at], self._weights[at]
        limits = log_weights + rng.standard_exponential(log_weights.shape)
        for k in range(log_weights.shape[1]):
            moves = (limits[:, k] >= weights) & (log_weights[:, k] > -np.inf)
            weights = np.where(moves, log_weights[:, k], weights)
            now = np.where(moves[..., None], proposed[:, k], now)
        self.values[at], self._weights[at] = now, weights
        self._largest[at] = np.maximum(self._largest[at], log_weights.max(axis=1))
        with np.errstate(invalid="ignore"):
            total = np.logaddexp.reduce(log_weights, axis=1)
            self._total[at] = np.logaddexp(self._total[at], total)
        if which[-1] == len(self.values) - 1:  # the last of a round
            self._length[units] += log_weights.shape[1]

    @property
    def are_long_enough(self) -> np.ndarray:
        """Whether chains are four times as long as the largest weight is above the mean."""
        with np.errstate(invalid="ignore"):
            ratio = np.exp(self._largest - self._total) * self._length
        found: np.ndarray = np.quantile(np.nan_to_num(ratio, nan=np.inf), 0.99, axis=0)
        return np.asarray(self._length >= 4 * found)
