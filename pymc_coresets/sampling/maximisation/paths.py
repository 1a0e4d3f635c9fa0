"""Paths of highest density between modes, which tell whether modes are one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.maximisation.many_starts import minimise_together, negative_of_points
from pymc_coresets.sampling.normal import Normal

type Pair = tuple[Normal, Normal]

#: Nats below the lower of two modes that chains hardly cross.
DIP = 3.0
#: Where the points of a path are, as shares of the way.
SHARES = np.linspace(0, 1, 10)


def are_apart(density: Density, pairs: Sequence[Pair]) -> np.ndarray:
    """Whether the density dips between the modes of each pair, on a path of highest density.

    By three nats, which chains hardly cross.  All paths are found together.

    Parameters
    ----------
    density : Density
    pairs : sequence of pairs of Normal
        Around modes of its density.

    Returns
    -------
    ndarray of bool, of shape (n_pairs,)
    """
    found = np.array([not one.is_near(other) for one, other in pairs], dtype=bool)
    left = np.flatnonzero(found)
    if left.size:
        found[left] = _Paths.between(density, [pairs[i] for i in left.tolist()]).dip()
    return found


@dataclass(frozen=True, eq=False)
class _Paths:
    """Paths between modes, in the coordinates of the first one of each.

    Parameters
    ----------
    density : Density
    first : sequence of Normal
        Around the modes where the paths begin.
    ways : ndarray of shape (n_paths, n_dims)
        To the others.
    """

    density: Density
    first: Sequence[Normal]
    ways: np.ndarray

    @classmethod
    def between(cls, density: Density, pairs: Sequence[Pair]) -> "_Paths":
        """Return the paths between modes."""
        ways = [other.location - one.location for one, other in pairs]
        return cls(density, [one for one, _ in pairs], np.stack(ways))

    def take(self, which: np.ndarray) -> "_Paths":
        """Return some of the paths."""
        return _Paths(self.density, [self.first[i] for i in which.tolist()], self.ways[which])

    def dip(self) -> np.ndarray:
        """Return whether the density dips along each path, (n_paths,).

        Most modes are either on a straight line above the dip, or so far apart that the lowest
        point of the line remains below it: other points are moved only where that one is not.
        """
        begins = np.stack([one.location for one in self.first])
        straight = begins[:, None] + SHARES[:, None] * self.ways[:, None]
        lines = self._heights(straight)
        least = np.minimum(lines[:, 0], lines[:, -1]) - DIP
        found: np.ndarray = ~(lines > least[:, None]).all(axis=1)
        left = np.flatnonzero(found)
        if not left.size:
            return found
        lowest = lines[left, 1:-1].argmin(axis=1)[:, None] + 1
        moved = self.take(left).relaxed(lowest)
        left = left[self._heights(moved)[:, 0] > least[left]]
        if left.size:
            paths = straight[left]
            every = np.tile(np.arange(1, len(SHARES) - 1), (len(left), 1))
            paths[:, 1:-1] = self.take(left).relaxed(every)
            paths = np.concatenate([paths, (paths[:, 1:] + paths[:, :-1]) / 2], axis=1)
            found[left] = (self._heights(paths) <= least[left, None]).any(axis=1)
        return found

    def _heights(self, points: np.ndarray) -> np.ndarray:
        """Return the log-density at points (n_paths, n_points, n_dims) of the paths."""
        heights = self.density.values(points.reshape(-1, points.shape[2]))
        found: np.ndarray = heights.reshape(points.shape[:2])
        return found

    def relaxed(self, which: np.ndarray) -> np.ndarray:
        """Return points of highest density across the straight lines, (n_paths, n_points, n_dims).

        By their numbers on the lines, (n_paths, n_points).
        """
        pairs = zip(self.first, self.ways, strict=True)
        whole = np.stack([one.factor.whiten(way) for one, way in pairs])
        n_points = which.shape[1]
        lengths = np.linalg.norm(whole, axis=1)[:, None]
        directions = np.repeat(whole / lengths, n_points, axis=0)
        along = (SHARES[which][:, :, None] * whole[:, None]).reshape(-1, whole.shape[1])
        paths = np.repeat(np.arange(len(which)), n_points)

        def across(z: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            own = directions[numbers]
            straight: np.ndarray = z - (z * own).sum(axis=1)[:, None] * own
            return straight

        def at(z: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            points = along[numbers] + across(z, numbers)
            for path, some in self._of_each(paths[numbers]):
                points[some] = self.first[path].at(points[some])
            moved: np.ndarray = points
            return moved

        def negative(z: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, slopes = negative_of_points(self.density, at(z, numbers))
            for path, some in self._of_each(paths[numbers]):
                slopes[some] = self.first[path].factor.whiten_gradients(slopes[some])
            return values, across(slopes, numbers)

        ends = minimise_together(negative, np.zeros_like(along), most_steps=15, joins=False)
        moved: np.ndarray = at(ends.points, np.arange(len(along)))
        return moved.reshape(*which.shape, -1)

    @staticmethod
    def _of_each(paths: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return the numbers of paths, and which points belong to each."""
        return [(int(path), paths == path) for path in np.unique(paths)]
