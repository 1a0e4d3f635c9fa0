"""Independence Metropolis-Hastings for many draws and units at once."""

import numpy as np
from scipy.special import gammaln

from pymc_coresets.compat.pytensor_api import compiled_on_disk

_FREEDOM = 8.0  # degrees, of proposals
LOG_PEAK = gammaln((_FREEDOM + 1) / 2) - gammaln(_FREEDOM / 2) - np.log(np.pi * _FREEDOM) / 2
"""Log-density of a t distribution of eight degrees of freedom at its mode."""

#: Share of the mass of a density to which chains have not come, at most.
_UNREACHED = 2e-3
#: Classes of weights, by which their distribution is known: nats of each, their number, and the
#: binary logarithm of the greatest length that is asked for.
_NATS, _CLASSES, _LONGEST = 0.125, 128, 20
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
    """Return the log-density (...,) of proposals (q, ...), less q times `LOG_PEAK`.

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

        See `needed_lengths`.  Of several rounds the one counts that asks for most: in others,
        proposals may have missed what is rarely proposed.

        Parameters
        ----------
        units : ndarray of int
        log_weights : ndarray of shape (n_draws, n_proposals, n_units)
            Relative to constants of each draw and unit for which the mean weight of a unit varies
            little with the draw.
        """
        needed = needed_lengths(log_weights.reshape(-1, log_weights.shape[-1]))
        before = self._needed[units]
        needed = np.where(np.isfinite(before), np.maximum(needed, before), needed)
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


def needed_lengths(log_weights: np.ndarray) -> np.ndarray:
    """Return how many proposals chains need to reach all but a five-hundredth of the mass.

    A chain stays where its weight is w with probability ``r(w) = E max(1 - w'/w, 0)`` over the
    weights w' of proposals, and n proposals leave out about ``r(w)^n`` of the mass there (Liu 1996,
    Smith and Tierney 1996).  Mass that is rarely proposed has large weights, however few.

    Parameters
    ----------
    log_weights : ndarray of shape (n_proposals, n_units)
        Of proposals at all draws, up to a constant for each unit.

    Returns
    -------
    ndarray of shape (n_units,)
        Infinite without a density.

    Examples
    --------
    >>> float(needed_lengths(np.zeros((1_000, 1)))[0])
    1.0
    """
    n, n_units = log_weights.shape
    shares, masses = np.zeros((2, _CLASSES, n_units))
    _add_to_classes(log_weights, log_weights.max(axis=0), _NATS, shares, masses)
    with np.errstate(all="ignore"):
        shares, masses = shares / n, masses / n
        masses /= masses.sum(axis=0)
        weights = masses / shares  # relative to their mean
        stays = 1 - shares.cumsum(axis=0) - (1 - masses.cumsum(axis=0)) / weights
    stays = np.nan_to_num(stays).clip(0.0, 1.0)

    def is_enough(length: np.ndarray) -> np.ndarray:
        found: np.ndarray = (masses * stays**length).sum(axis=0) <= _UNREACHED
        return found

    few = np.ones(n_units)
    many = np.where(np.isfinite(masses).all(axis=0), 2.0**_LONGEST, np.inf)
    for _ in range(_LONGEST):
        middle = np.floor((few + many) / 2)
        enough = is_enough(middle)
        few, many = np.where(enough, few, middle), np.where(enough, middle, many)
    many = np.where(is_enough(np.ones(n_units)), 1.0, many)
    return np.where(is_enough(many), many, np.inf)


@compiled_on_disk
def _add_to_classes(
    log_weights: np.ndarray, top: np.ndarray, nats: float, numbers: np.ndarray, masses: np.ndarray
) -> None:
    """Add weights to their classes (n_classes, n_units), the one of the largest first."""
    for k in range(len(log_weights)):
        for g in range(len(top)):
            below = top[g] - log_weights[k, g]
            if below < nats * (len(numbers) - 1):
                i = int(below / nats)
                numbers[i, g] += 1.0
                masses[i, g] += np.exp(-below)
            else:  # no density, too
                numbers[-1, g] += 1.0


@compiled_on_disk
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
