"""Modes of a posterior, and lists of them in which those near a point are found at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy.special import softmax

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.sampling.factors.cholesky import DenseFactor
from pymc_coresets.sampling.normal import Normal

#: Share of the posterior's mass that modes which are left out may hold together.
NOTICEABLE = 0.01


@dataclass(frozen=True, eq=False)
class LocalMode:
    """A mode of a posterior, and the number of starts that ended there.

    Parameters
    ----------
    around : Normal
        Its position and curvature.
    height : float
        The log-density there, in nats.
    n_ended : int, default 0
    """

    is_image: ClassVar[bool] = False

    around: Normal
    height: float
    n_ended: int = 0

    @property
    def x(self) -> np.ndarray:
        """Its position, (n_dims,)."""
        return self.around.location

    @property
    def log_mass(self) -> float:
        """Log of its mass by Laplace's approximation, up to a constant."""
        return self.around.log_mass(self.height)

    @property
    def words(self) -> str:
        """Which other mode it is an image of, if any."""
        return ""

    def renumbered(self, numbers: Mapping[int, int]) -> Self:
        """Return the same in another list, by the new numbers of modes there."""
        del numbers
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageOfMode(LocalMode):
    """A mode that is the image of another one.

    Parameters
    ----------
    parent : int
        The number of the other mode.
    symmetry : str
        Under which it is its image.
    """

    is_image: ClassVar[bool] = True

    parent: int
    symmetry: str

    @property
    def words(self) -> str:
        """See `LocalMode.words`."""
        return f"image of mode {self.parent}: {self.symmetry}"

    def renumbered(self, numbers: Mapping[int, int]) -> Self:
        """See `LocalMode.renumbered`."""
        return replace(self, parent=numbers[self.parent])


class KnownModes:
    """A growing list of modes, in which those near a point are found at once.

    Parameters
    ----------
    modes : sequence of LocalMode

    Examples
    --------
    >>> from pymc_coresets.sampling.factors.cholesky import factor_of
    >>> modes = [LocalMode(Normal(np.full(1, x), factor_of(np.eye(1))), 0.0) for x in (0, 9)]
    >>> KnownModes(modes).holding(np.array([[8.0], [4.0]]))
    array([ 1, -1])
    """

    def __init__(self, modes: Sequence[LocalMode] = ()) -> None:
        self.modes: list[LocalMode] = []
        self._places = self._reach = np.empty((0, 0))
        for mode in modes:
            self.add(mode)

    def __len__(self) -> int:
        return len(self.modes)

    def add(self, mode: LocalMode) -> None:
        """Add a mode."""
        n, x = len(self), mode.x
        if n == len(self._places):
            larger = np.zeros((2, max(2 * n, 8), len(x)))
            if n:
                larger[:, :n] = self._places, self._reach
            self._places, self._reach = larger
        self.modes.append(mode)
        self.set(n, mode)

    def set(self, number: int, mode: LocalMode) -> None:
        """Replace a mode."""
        self.modes[number] = mode
        self._places[number] = mode.x
        self._reach[number] = 2.0 * np.sqrt(_variances(mode.around))

    def nearest(self, around: Normal) -> list[int]:
        """Return the numbers of all modes, those first that are nearest to a normal distribution.

        In its standard deviations.
        """
        away = np.linalg.norm(around.whiten(self._places[: len(self)]), axis=1)
        order: list[int] = np.argsort(away, kind="stable").tolist()
        return order

    def holding(self, points: np.ndarray, heights: np.ndarray | float = np.inf) -> np.ndarray:
        """Return the number of the first mode near each point, (n_points,); -1 if there is none.

        Within two standard deviations, and not 4 nats below it.

        Parameters
        ----------
        points : ndarray of shape (n_points, n_dims)
        heights : float or ndarray of shape (n_points,)
            Log-densities there; by default they do not matter.
        """
        n, found = len(self), np.full(len(points), -1)
        least = np.array([mode.height for mode in self.modes]) - 4.0
        # No coordinate can be further away than two of its own standard deviations.
        away = np.abs(points[:, None] - self._places[:n]) <= self._reach[:n]
        near = away.all(axis=2) & (np.reshape(heights, (-1, 1)) > least)
        for number in np.flatnonzero(near.any(axis=0)):
            some = np.flatnonzero(near[:, number] & (found < 0))
            found[some[self.modes[number].around.are_near(points[some])]] = number
        return found

    def hold(self, x: np.ndarray) -> bool:
        """Whether a point is within two standard deviations of a mode."""
        return bool(self.holding(x[None])[0] >= 0)


def _variances(around: Normal) -> np.ndarray:
    factor = around.factor
    if not isinstance(factor, DenseFactor):
        return np.full(factor.n_dims, np.inf)
    found: np.ndarray = np.square(factor.offset(np.eye(factor.n_dims))).sum(axis=1)
    return found


# -- modes and their images: a family ------------------------------------------------------------


def by_family(modes: Sequence[LocalMode], values: Sequence[float]) -> np.ndarray:
    """Add up values of modes and their images, (n_families,)."""
    return np.bincount(_families(modes), weights=values)


def _families(modes: Sequence[LocalMode]) -> np.ndarray:
    """Return the number of each mode's family: images follow what they are images of."""
    return np.cumsum([not mode.is_image for mode in modes]) - 1


def without_images(modes: Sequence[LocalMode]) -> list[LocalMode]:
    """Return the modes without images, each with the number of starts that ended at any of them."""
    counts = by_family(modes, [mode.n_ended for mode in modes])
    firsts = [mode for mode in modes if not mode.is_image]
    return [replace(m, n_ended=int(n)) for m, n in zip(firsts, counts, strict=True)]


def distinct(modes: Sequence[LocalMode]) -> list[LocalMode]:
    """Return the distinct ones of several modes, the largest first."""
    different = KnownModes()
    modes = [mode for mode in modes if np.isfinite(mode.height)]
    if not modes:
        raise SamplingError("The log-density of all rows is not finite at any mode of a sample.")
    for mode in sorted(modes, key=lambda mode: -mode.log_mass):
        for i, known in enumerate(different.modes):
            if known.around.is_near(mode.around):
                different.set(i, replace(known, n_ended=known.n_ended + mode.n_ended))
                break
        else:
            different.add(mode)
    return different.modes


def noticeable(modes: Sequence[LocalMode]) -> list[LocalMode]:
    """Leave out the smallest families of modes that hold no noticeable mass together."""
    masses = _masses_of_families(modes)
    order = np.argsort(masses)
    return _without(modes, order[np.cumsum(masses[order]) < NOTICEABLE])


def largest_families(modes: Sequence[LocalMode], most: int) -> list[LocalMode]:
    """Leave out all but the largest modes, with their images."""
    return _without(modes, np.argsort(-_masses_of_families(modes), kind="stable")[most:])


def _masses_of_families(modes: Sequence[LocalMode]) -> np.ndarray:
    return by_family(modes, softmax([mode.log_mass for mode in modes]))


def _without(modes: Sequence[LocalMode], left_out: np.ndarray) -> list[LocalMode]:
    kept = np.flatnonzero(~np.isin(_families(modes), left_out)).tolist()
    numbers = {old: new for new, old in enumerate(kept)}
    return [modes[i].renumbered(numbers) for i in kept]
