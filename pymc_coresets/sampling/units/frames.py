"""Where the densities of units lie at draws of the shared variables, and proposals from there."""

from dataclasses import dataclass

import numpy as np

from pymc_coresets.sampling.units.chains import LOG_PEAK, student, student_log_density
from pymc_coresets.sampling.units.histograms import NO_HISTOGRAMS, Histograms

#: By how many widths a place or a width may be off, for proposals that are worth their while.
_OFF = 0.3


@dataclass(frozen=True, eq=False)
class Frames:
    """Axes along which the variables of units are standardised: ``z = middle + root x``.

    Parameters
    ----------
    middle : ndarray of shape (q, n_draws, n_modes, n_units)
        The modes.
    root : ndarray of shape (q, q, n_draws, n_modes, n_units)
        Upper triangular roots of the inverse curvatures.
    height : ndarray of shape (n_draws, n_modes, n_units)
        Logarithms of about the masses of the densities, up to a constant of each unit.
    """

    middle: np.ndarray
    root: np.ndarray
    height: np.ndarray

    @classmethod
    def of_places(cls, z: np.ndarray, logs: np.ndarray) -> "Frames":
        """Find the axes from where standardised values lie: the origin, and one on each axis.

        Parameters
        ----------
        z : ndarray of shape (n_draws, q, n_modes, 1 + q, n_units)
        logs : ndarray of shape (n_draws, n_modes, 1 + q, n_units)
            Densities times volumes there.
        """
        z = np.moveaxis(z, (1, 3), (0, 1))
        return cls(z[:, 0], _triangular(z[:, 1:] - z[:, :1]), logs[:, :, 0])

    @property
    def numbers(self) -> np.ndarray:
        """All of them as numbers that may be regressed, (n_draws, n_numbers, n_modes, n_units)."""
        q = len(self.middle)
        with np.errstate(all="ignore"):
            found = [*self.middle, *(np.log(self.root[j, j]) for j in range(q))]
        above = [self.root[j, i] for j in range(q) for i in range(j + 1, q)]
        return np.stack([*found, *above, self.height], axis=1)

    @classmethod
    def of_numbers(cls, numbers: np.ndarray, q: int) -> "Frames":
        """Undo `numbers`."""
        first = np.moveaxis(numbers, 1, 0)
        root = np.zeros((q, q, *first.shape[1:]))
        root[range(q), range(q)] = np.exp(first[q : 2 * q])
        root[np.triu_indices(q, 1)] = first[2 * q : -1]
        return cls(np.ascontiguousarray(first[:q]), root, np.ascontiguousarray(first[-1]))

    def are_near(self, others: "Frames") -> np.ndarray:
        """Return whether those of each unit are much like others at all draws, (n_units,)."""
        q = len(self.middle)
        with np.errstate(all="ignore"):
            widths = np.stack([others.root[j, j] for j in range(q)])
            apart = [
                *(self.middle - others.middle) / widths,
                *((self.root - others.root) / widths[:, None]).reshape(q * q, *widths.shape[1:]),
                self.height - others.height,
            ]
            found: np.ndarray = (np.abs(apart) < _OFF).all(axis=(0, 1, 2))
        return found

    def replace(self, draws: np.ndarray, units: np.ndarray, others: "Frames") -> None:
        """Replace those of some draws and units, numbers of each, by others."""
        at = (draws[:, None, None], np.arange(self.height.shape[1])[:, None], units)
        self.middle[(slice(None), *at)] = others.middle
        self.root[(slice(None), slice(None), *at)] = others.root
        self.height[at] = others.height

    def take(self, draws: np.ndarray, units: np.ndarray) -> "Frames":
        """Return those of some draws and units."""
        each = (self.middle, self.root, self.height)
        return Frames(*(a.take(draws, axis=-3).take(units, axis=-1) for a in each))

    def widened(self, values: np.ndarray) -> "Frames":
        """Add a mode with the mean and the covariance of values, in common for all draws.

        It has no mass of its own.  Without a covariance of full rank, the first mode counts twice.

        Parameters
        ----------
        values : ndarray of shape (q, n_draws, n_units)
        """
        q, n_draws, n_units = values.shape
        mean = values.mean(axis=1, keepdims=True)
        apart = np.moveaxis((values - mean) / np.sqrt(n_draws), -1, 0)
        root = _triangular(np.moveaxis(np.linalg.qr(apart.mT, mode="r"), (2, 1), (0, 1)))
        is_regular = root[range(q), range(q)].min(axis=0) > 0
        middle = np.where(is_regular, mean, self.middle[:, :, 0])
        root = np.where(is_regular, root[:, :, None], self.root[:, :, :, 0])
        none = np.full((n_draws, 1, n_units), -np.inf)
        return Frames(
            np.concatenate([self.middle, middle[:, :, None]], axis=2),
            np.concatenate([self.root, root[:, :, :, None]], axis=3),
            np.concatenate([self.height, none], axis=1),
        )

    def proposed(
        self, n_proposals: int, rng: np.random.Generator, histograms: Histograms = NO_HISTOGRAMS
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw from t distributions along the axes, around any of the modes.

        Parameters
        ----------
        n_proposals : int
        rng : numpy.random.Generator
        histograms : Histograms, optional
            Those of the only variable of each unit, of several modes: most draws are from these.

        Returns
        -------
        values : ndarray of shape (q, n_draws, n_proposals, n_units)
        log_density : ndarray of shape (n_draws, n_proposals, n_units)
            Relative to a unit's height.
        """
        q, n_draws, n_modes, n_units = self.middle.shape
        x = student((q, n_draws, n_proposals, n_units), rng)
        height = np.logaddexp.reduce(self.height, axis=1)[:, None]
        constant = q * LOG_PEAK - np.log(n_modes)
        if n_modes == 1:
            z = self._standardised_to(x, np.zeros((1, 1, 1), dtype=np.int64))
            log_density = student_log_density(x) - self._log_volume(0)
            return z, log_density + (height + constant)
        z = self._standardised_to(x, rng.integers(n_modes, size=x.shape[1:]))
        z = histograms.some_replaced(z, rng)
        each = [
            student_log_density(self._standardised(z, m)) - self._log_volume(m)
            for m in range(n_modes)
        ]
        log_density = histograms.mixed(z, np.logaddexp.reduce(each) + constant)
        return z, log_density + height

    def _log_volume(self, mode: int) -> np.ndarray:
        """Return the logarithm of the volume of the axes around a mode, (n_draws, 1, n_units)."""
        widths = np.stack([self.root[j, j, :, mode] for j in range(len(self.root))])
        with np.errstate(all="ignore"):
            found: np.ndarray = np.log(widths).sum(axis=0)[:, None]
        return found

    def _standardised_to(self, x: np.ndarray, mode: np.ndarray) -> np.ndarray:
        """Return values at standardised ones, each around one of the modes."""
        q = len(x)
        z = np.empty_like(x)
        for j in range(q):
            z[j] = np.take_along_axis(self.middle[j], mode, axis=1)
            for i in range(j, q):
                z[j] += np.take_along_axis(self.root[j, i], mode, axis=1) * x[i]
        return z

    def _standardised(self, z: np.ndarray, mode: int) -> np.ndarray:
        """Return the standardised values around a mode, by back substitution."""
        q = len(z)
        x = np.empty_like(z)
        for j in reversed(range(q)):
            left = z[j] - self.middle[j, :, None, mode]
            for i in range(j + 1, q):
                left -= self.root[j, i, :, None, mode] * x[i]
            x[j] = left / self.root[j, j, :, None, mode]
        return x


def _triangular(root: np.ndarray) -> np.ndarray:
    """Return upper triangular roots of what other roots (q, q, ...) are roots of.

    Places around a mean are along axes that are turned: see `stretched`.  Entries of the roots
    follow by orthogonalising rows, the last one first.
    """
    q, rows = len(root), root.copy()
    found = np.zeros_like(root)
    for j in reversed(range(q)):
        found[j, j] = np.sqrt(np.square(rows[j]).sum(axis=0))
        with np.errstate(all="ignore"):
            axis = rows[j] / found[j, j]
        for i in range(j):
            found[i, j] = (rows[i] * axis).sum(axis=0)
            rows[i] -= found[i, j] * axis
    return found
