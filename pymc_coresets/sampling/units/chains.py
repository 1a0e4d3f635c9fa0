"""Independence Metropolis-Hastings for many draws and units at once."""

import numpy as np
from numba import njit

_FREEDOM = 8.0  # degrees, of proposals
#: Nats by which a chain is closer to its distribution than its first proposal, at least.
_CLOSER = 4.0
#: Share of the proposals whose weights may be larger than those that decide on the length.
_LARGER = 1e-3
#: Nats by which all weights of a draw are below those of others if its proposals are elsewhere, and
#: the share of such draws that is too large.
_BELOW, _LOST = 4.0, 5e-3


def student(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw from a t distribution of eight degrees of freedom.

    Examples
    --------
    >>> student((3, 2), np.random.default_rng(1)).shape
    (3, 2)
    """
    return rng.standard_t(_FREEDOM, shape)


def student_log_density(x: np.ndarray) -> np.ndarray:
    """Return the log-density (...,) of proposals (q, ...), up to a constant.

    Examples
    --------
    >>> float(student_log_density(np.zeros(2)))
    -0.0
    """
    found: np.ndarray = -(_FREEDOM + 1) / 2 * np.log1p(np.square(x) / _FREEDOM).sum(axis=0)
    return found


class LocalChains:
    """Independence Metropolis-Hastings chains, one for each draw of the shared variables and unit.

    The first proposal of a chain is its start.

    Parameters
    ----------
    n_dims, n_draws, n_units : int

    Attributes
    ----------
    values : ndarray of shape (q, n_draws, n_units)
        Where the chains are.
    lost : ndarray of bool, of shape (n_units,)
        Whether no proposal has been where the density is, at too many draws.  The weights of all
        draws together cannot show that.
    """

    def __init__(self, n_dims: int, n_draws: int, n_units: int) -> None:
        self.values = np.zeros((n_dims, n_draws, n_units))
        self._weights = np.full((n_draws, n_units), -np.inf)
        self._largest = self._weights.copy()
        self._length = np.zeros(n_units, dtype=int)
        self._needed = np.full(n_units, np.inf)
        self.lost = np.zeros(n_units, dtype=bool)

    def move(
        self,
        which: np.ndarray,
        units: np.ndarray,
        proposed: np.ndarray,
        log_weights: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        """Move chains of some draws and units through proposals (q, n_draws, n_proposals, n_units).

        Parameters
        ----------
        which, units : ndarray of int
        proposed : ndarray of shape (q, n_draws, n_proposals, n_units)
        log_weights : ndarray of shape (n_draws, n_proposals, n_units)
            Log-densities, less those of the proposals.
        rng : numpy.random.Generator
        """
        at = np.ix_(which, units)
        weights, largest = self._weights[at], self._largest[at]
        exponential = rng.standard_exponential(log_weights.shape)
        last = _last_moves(log_weights, exponential, weights, largest)
        self._weights[at], self._largest[at] = weights, largest
        taken = np.take_along_axis(proposed, np.maximum(last, 0)[None, :, None], axis=2)[:, :, 0]
        for own, new in zip(self.values, taken, strict=True):
            own[at] = np.where(last >= 0, new, own[at])

    def judge(self, units: np.ndarray, log_weights: np.ndarray) -> None:
        """Tell how long chains have to be from all weights of a round of proposals.

        Where the largest weight is w times their mean, a chain of n proposals is within ``(1 -
        1/w)^n`` of its distribution, in total variation (Mengersen and Tweedie 1996).

        Parameters
        ----------
        units : ndarray of int
        log_weights : ndarray of shape (n_draws, n_proposals, n_units)
            Relative to constants of each draw and unit for which the mean weight of a unit varies
            little with the draw.
        """
        n = log_weights.shape[0] * log_weights.shape[1]
        flat = log_weights.reshape(n, -1)
        rank = min(int(np.ceil((1 - _LARGER) * n)), n - 1)
        largest = np.partition(flat, rank, axis=0)[rank]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = np.exp(flat - largest).mean(axis=0)
            needed = _CLOSER / -np.log1p(-np.minimum(mean, 1 - 1e-9))
        largest = self._largest[:, units]
        lost = ~(largest >= np.median(largest, axis=0) - _BELOW)
        self.lost[units] = lost.mean(axis=0) > _LOST
        is_known = np.isfinite(needed) & ~self.lost[units]
        self._needed[units] = np.where(is_known, needed, np.inf)
        self._length[units] += log_weights.shape[1]

    def restart(self, units: np.ndarray) -> None:
        """Begin again with the chains of some units, whose proposals will be others."""
        self._weights[:, units] = self._largest[:, units] = -np.inf
        self._length[units], self._needed[units], self.lost[units] = 0, np.inf, False

    @property
    def left(self) -> np.ndarray:
        """The number of proposals that each unit's chains still need, (n_units,)."""
        found: np.ndarray = np.maximum(np.ceil(self._needed) - self._length, 0)
        return found


@njit(cache=True, nogil=True, error_model="numpy")
def _last_moves(
    log_weights: np.ndarray, exponential: np.ndarray, weights: np.ndarray, largest: np.ndarray
) -> np.ndarray:
    """Return the last proposal that each chain moves to, or -1, and change its weight to its own.

    The largest weight of all proposals is kept, too.

    A chain moves if the logarithm of a uniform number is below the ratio of weights.
    """
    n_draws, n_proposals, n_units = log_weights.shape
    last = np.full((n_draws, n_units), -1, np.int64)
    for s in range(n_draws):
        for k in range(n_proposals):
            for g in range(n_units):
                new = log_weights[s, k, g]
                largest[s, g] = max(largest[s, g], new)
                if new > -np.inf and new + exponential[s, k, g] >= weights[s, g]:
                    weights[s, g] = new
                    last[s, g] = k
    return last
