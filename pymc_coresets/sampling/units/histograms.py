"""Proposals for the only variable of each unit from histograms, which know all of its modes."""

from dataclasses import dataclass

import numpy as np

from pymc_coresets.compat.pytensor_api import compiled_on_disk

#: Share of the proposals that are from histograms.
_SHARE = 0.75
#: Where densities are tabulated: distances from each mode, in its widths, and the number of places
#: at equal distances between the outermost ones.
_HALF = np.array([0.3, 0.6, 1.0, 1.5, 2.2, 3.2, 5.0, 8.0, 14.0, 25.0])
_AROUND = np.concatenate([-_HALF[::-1], [0.0], _HALF])
_EQUIDISTANT = 256


def places_around(middle: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return places through all modes, and between them, (n_places, n_units), in ascending order.

    Parameters
    ----------
    middle, width : ndarray of shape (n_draws, n_modes, n_units)
        At some draws of the shared variables.

    Examples
    --------
    >>> places_around(np.zeros((2, 3, 4)), np.ones((2, 3, 4))).shape
    (382, 4)
    """
    around = middle[..., None, :] + width[..., None, :] * _AROUND[:, None]
    around = around.reshape(-1, middle.shape[-1])
    between = np.linspace(around.min(axis=0), around.max(axis=0), _EQUIDISTANT)
    found: np.ndarray = np.sort(np.concatenate([around, between]), axis=0)
    return found


@dataclass(frozen=True, eq=False)
class Histograms:
    """Densities that are constant in each of the cells between places, of many units.

    `NO_HISTOGRAMS` have no places: with these, all draws are others.

    Parameters
    ----------
    places : ndarray of shape (n_places, n_units)
        Ascending.
    below : ndarray of shape (n_places, n_units)
        Masses up to the places, of one altogether.
    log_density : ndarray of shape (n_places + 1, n_units)
        Logarithms of the density before, between and beyond the places.
    """

    places: np.ndarray
    below: np.ndarray
    log_density: np.ndarray

    @classmethod
    def of_tables(cls, places: np.ndarray, logs: np.ndarray) -> "Histograms":
        """Average densities over draws of the shared variables.

        Parameters
        ----------
        places : ndarray of shape (n_places, n_units)
            Ascending.
        logs : ndarray of shape (n_draws, n_places, n_units)
            Log-densities there, up to a constant for each draw and unit.

        Examples
        --------
        >>> places, logs = np.array([[0.0], [1.0], [3.0]]), np.zeros((1, 3, 1))
        >>> np.exp(Histograms.of_tables(places, logs).log_density).ravel().round(3)
        array([0.   , 0.333, 0.333, 0.   ])
        """
        steps = np.diff(places, axis=0)
        with np.errstate(all="ignore"):
            heights = np.exp(logs - logs.max(axis=1, keepdims=True))
            # The larger end of a cell: in none is the density much larger than its histogram.
            masses = np.nan_to_num(steps * np.maximum(heights[:, 1:], heights[:, :-1]))
            mass = np.nan_to_num(masses / masses.sum(axis=1, keepdims=True)).mean(axis=0)
            mass /= mass.sum(axis=0)
            inner = np.where(steps > 0, np.log(mass / steps), -np.inf)
        outside = np.full((1, places.shape[1]), -np.inf)
        below = np.concatenate([np.zeros_like(outside), np.nan_to_num(mass).cumsum(axis=0)])
        inner = np.where(np.isnan(inner), -np.inf, inner)
        return cls(places, below, np.concatenate([outside, inner, outside]))

    def take(self, units: np.ndarray) -> "Histograms":
        """Return those of some units."""
        if not len(self.places):
            return self
        return Histograms(*(a.take(units, axis=1) for a in vars(self).values()))

    def some_replaced(self, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return values (1, n_draws, n_proposals, n_units), of which some are drawn from these."""
        if not len(self.places):
            return z
        own = rng.random(z.shape[1:]) / _SHARE  # a uniform number where it is below one
        cells = _numbers(self.below, own).clip(1, len(self.places) - 1)
        start, end = (np.take_along_axis(self.places, k, axis=0) for k in _flat(cells - 1, cells))
        before, after = (np.take_along_axis(self.below, k, axis=0) for k in _flat(cells - 1, cells))
        with np.errstate(all="ignore"):  # without a density, or from a number above one
            share = (own.reshape(before.shape) - before) / (after - before)
            drawn = (start + share * (end - start)).reshape(z.shape)
        return np.where((own < 1) & np.isfinite(drawn), drawn, z)

    def mixed(self, z: np.ndarray, log_density: np.ndarray) -> np.ndarray:
        """Return the log-density of `some_replaced` at values, given that of those they replace.

        Parameters
        ----------
        z : ndarray of shape (1, n_draws, n_proposals, n_units)
        log_density : ndarray of shape (n_draws, n_proposals, n_units)
        """
        if not len(self.places):
            return log_density
        [cells] = _flat(_numbers(self.places, z[0]))
        own = np.take_along_axis(self.log_density, cells, axis=0).reshape(log_density.shape)
        found: np.ndarray = np.logaddexp(np.log(_SHARE) + own, np.log1p(-_SHARE) + log_density)
        return found


NO_HISTOGRAMS = Histograms(*np.empty((3, 0, 0)))


def _flat(*numbers: np.ndarray) -> list[np.ndarray]:
    return [each.reshape(-1, each.shape[-1]) for each in numbers]


@compiled_on_disk
def _numbers(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return how many entries (n_entries, n_units) values of the same unit are not below.

    Parameters
    ----------
    ascending : ndarray of shape (n_entries, n_units)
    values : ndarray of shape (n_draws, n_values, n_units)
    """
    found = np.empty(values.shape, np.int64)
    for s in range(values.shape[0]):
        for k in range(values.shape[1]):
            for g in range(values.shape[2]):
                low, high = 0, len(ascending)
                while low < high:
                    middle = (low + high) // 2
                    if ascending[middle, g] <= values[s, k, g]:
                        low = middle + 1
                    else:
                        high = middle
                found[s, k, g] = low
    return found
