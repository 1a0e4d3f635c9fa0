"""Independence Metropolis-Hastings for many draws and units at once."""

import numpy as np
from scipy.special import gammaln

from pymc_coresets.compat.pytensor_api import compiled_on_disk

_FREEDOM = 8.0  # degrees, of proposals
LOG_PEAK = gammaln((_FREEDOM + 1) / 2) - gammaln(_FREEDOM / 2) - np.log(np.pi * _FREEDOM) / 2
"""Log-density of a t distribution of eight degrees of freedom at its mode."""

#: Shares of the mass of a density to which chains have not come: as they are meant to be long
#: enough for, and the largest with which their draws are reliable.
_AIM, _MOST = 2e-3, 1e-2
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
        self._known = Weights(n_units)
        self._needed, self._unreached = np.full((2, n_units), np.inf)
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
        """Tell how long chains have to be from the weights of a round of proposals, and of others.

        See `Weights`.  Those of all rounds count together: a large weight that one of them met
        would stand for too much mass in that one, and for none in the others.

        Parameters
        ----------
        units : ndarray of int
        log_weights : ndarray of shape (n_draws, n_proposals, n_units)
            Relative to constants of each draw and unit for which the mean weight of a unit varies
            little with the draw.
        """
        self._known.add(units, log_weights.reshape(-1, log_weights.shape[-1]))
        self._length[units] += log_weights.shape[1]
        largest = self._largest[:, units]
        lost = ~(largest >= np.median(largest, axis=0) - _BELOW)
        self.lost[units] = is_lost = lost.mean(axis=0) > _LOST
        needed, unreached = self._known.needed_and_unreached(units, self._length[units])
        self._needed[units] = np.where(is_lost, np.inf, needed)
        self._unreached[units] = np.where(is_lost, np.inf, unreached)

    def restart(self, units: np.ndarray) -> None:
        """Begin again with the chains of some units, whose proposals will be others."""
        self._weights[:, units] = self._largest[:, units] = -np.inf
        self._known.forget(units)
        self._length[units], self.lost[units] = 0, False
        self._needed[units] = self._unreached[units] = np.inf

    @property
    def left(self) -> np.ndarray:
        """The number of proposals that each unit's chains still need, (n_units,).

        To come to all but a five-hundredth of the mass.
        """
        found: np.ndarray = np.maximum(np.ceil(self._needed) - self._length, 0)
        return found

    @property
    def are_reliable(self) -> np.ndarray:
        """Whether chains have come to all but a hundredth of the mass, (n_units,)."""
        found: np.ndarray = self._unreached <= _MOST
        return found


class Weights:
    """The distribution of the weights of each unit's proposals, in classes, and what follows.

    A chain stays where its weight is w with probability ``r(w) = E max(1 - w'/w, 0)`` over the
    weights w' of proposals, and n proposals leave out about ``r(w)^n`` of the mass there (Liu 1996,
    Smith and Tierney 1996): ``(1 - 1/w*)^n`` at most if all weights, of a mean of one, are below
    w*.  Averaged over the mass, this bounds the distance in total variation of chains that start at
    a proposal.  Mass that is rarely proposed has large weights, however few.

    Parameters
    ----------
    n_units : int

    Examples
    --------
    >>> weights, units = Weights(1), np.arange(1)
    >>> weights.add(units, np.zeros((1_000, 1)))
    >>> needed, unreached = weights.needed_and_unreached(units, np.array([3]))
    >>> needed.tolist(), unreached.tolist()
    ([1.0], [0.0])
    """

    def __init__(self, n_units: int) -> None:
        self._numbers, self._masses = np.zeros((2, _CLASSES, n_units))
        self._top = np.full(n_units, -np.inf)  # of the first class, a multiple of its width

    def add(self, units: np.ndarray, log_weights: np.ndarray) -> None:
        """Add weights of some units, (n_proposals, n_units), up to a constant of each unit."""
        numbers, masses, top = self._numbers[:, units], self._masses[:, units], self._top[units]
        largest = np.fmax.reduce(log_weights)  # what is not a number has no density
        _add_to_classes(log_weights, largest, _NATS, top, numbers, masses)
        self._numbers[:, units], self._masses[:, units], self._top[units] = numbers, masses, top

    def forget(self, units: np.ndarray) -> None:
        """Remove the weights of some units."""
        self._numbers[:, units] = self._masses[:, units] = 0.0
        self._top[units] = -np.inf

    def needed_and_unreached(
        self, units: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return how many proposals reach all but a five-hundredth of the mass of some units.

        And the share of the mass that chains of some lengths (n_units,) leave out.  Both are
        infinite without a density.
        """
        shares, masses = self._numbers[:, units], self._masses[:, units]
        with np.errstate(all="ignore"):
            shares, masses = shares / shares.sum(axis=0), masses / shares.sum(axis=0)
            masses /= masses.sum(axis=0)
            weights = masses / shares  # relative to their mean
            stays = 1 - shares.cumsum(axis=0) - (1 - masses.cumsum(axis=0)) / weights
        stays = np.nan_to_num(stays).clip(0.0, 1.0)
        has_density = np.isfinite(masses).all(axis=0)

        def left_out(length: np.ndarray) -> np.ndarray:
            found: np.ndarray = (masses * stays**length).sum(axis=0)
            return found

        few, many = np.ones(len(units)), np.full(len(units), 2.0**_LONGEST)
        for _ in range(_LONGEST):
            middle = np.floor((few + many) / 2)
            enough = left_out(middle) <= _AIM
            few, many = np.where(enough, few, middle), np.where(enough, middle, many)
        many = np.where(left_out(np.ones(len(units))) <= _AIM, 1.0, many)
        needed = np.where(left_out(many) <= _AIM, many, np.inf)
        return needed, np.where(has_density, left_out(lengths), np.inf)


@compiled_on_disk
def _add_to_classes(
    log_weights: np.ndarray,
    largest: np.ndarray,
    nats: float,
    top: np.ndarray,
    numbers: np.ndarray,
    masses: np.ndarray,
) -> None:
    """Add weights to their classes (n_classes, n_units), the one of the largest first.

    Where there are larger ones than before, these are the first, and others move down.  Masses are
    relative to the top of the first class.
    """
    last = len(numbers) - 1
    for g in range(len(top)):
        if largest[g] > top[g]:
            above = nats * np.ceil(largest[g] / nats)
            n_down = int(min((above - top[g]) / nats + 0.5, last))
            for i in range(last, -1, -1):
                moved = i - n_down
                if i == last:  # has what was below already
                    for j in range(max(moved, 0), last):
                        numbers[last, g] += numbers[j, g]
                elif moved >= 0:
                    numbers[i, g] = numbers[moved, g]
                    masses[i, g] = masses[moved, g] * np.exp(-n_down * nats)
                else:
                    numbers[i, g] = masses[i, g] = 0.0
            top[g] = above
    for k in range(len(log_weights)):
        for g in range(len(top)):
            below = top[g] - log_weights[k, g]
            if below < nats * last:
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
