"""Symmetries of a likelihood, and the images of a mode under them."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
from scipy.linalg import LinAlgError, cholesky, inv

from pymc_coresets.diagnostics.posterior_draws import entry_name
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.curvature import normal_near
from pymc_coresets.sampling.density import Density, Slopes
from pymc_coresets.sampling.factors.cholesky import DenseFactor
from pymc_coresets.sampling.maximisation.one_start import maximise
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.symmetry.local_modes import ImageOfMode, KnownModes, LocalMode
from pymc_coresets.sampling.symmetry.value_changes import (
    PERIODS,
    Change,
    Values,
    both,
    changes,
    points_of,
    shifted,
    signs_of,
)

#: Relative difference up to which two log-densities are equal: sums of millions of terms in another
#: order differ by less.
_EQUAL = 1e-10
#: Nats by which an image may have less mass than the largest before it is left out.
_NEGLIGIBLE = 11.5
#: A shift that is no multiple of a period, and larger than all of them.
_NO_PERIOD = 1_000 * np.sqrt(2.0)
#: Largest number of changes that are tried.
_MOST_CHANGES = 400

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Symmetry:
    """An affine map of the unconstrained space, which preserves volumes and the likelihood.

    Parameters
    ----------
    name : str
    matrix : ndarray of shape (n_dims, n_dims)
    offset : ndarray of shape (n_dims,)
    of_prior : bool
        Whether it also preserves the prior.

    Examples
    --------
    >>> turned = Symmetry("sign of a", np.array([[-1.0]]), np.zeros(1), of_prior=True)
    >>> around = Normal(np.array([2.0]), DenseFactor.of(np.array([[4.0]])))
    >>> turned.of_normal(around).location
    array([-2.])
    """

    name: str
    matrix: np.ndarray
    offset: np.ndarray
    of_prior: bool

    @classmethod
    def identity(cls, n_dims: int) -> "Symmetry":
        """Return the map that changes nothing."""
        return cls("", np.eye(n_dims), np.zeros(n_dims), of_prior=True)

    def at(self, x: np.ndarray) -> np.ndarray:
        """Map points (n_dims,) or (n_points, n_dims)."""
        moved: np.ndarray = x @ self.matrix.T + self.offset
        return moved

    def after(self, first: "Symmetry") -> "Symmetry":
        """Return the map that applies another one first."""
        of_prior = self.of_prior and first.of_prior
        return Symmetry(self.name, self.matrix @ first.matrix, self.at(first.offset), of_prior)

    def of_normal(self, around: Normal) -> Normal:
        """Map a normal distribution."""
        back = inv(self.matrix)
        root = cholesky(back.T @ around.factor.matrix @ back, lower=True)
        return replace(around, location=self.at(around.location), factor=DenseFactor(root))

    def of_mode(self, mode: LocalMode, prior: Density) -> Iterator[LocalMode]:
        """Yield the image of a mode, if there is a mode nearby.

        If the prior differs there, the mode is that of the normal distribution around the image,
        times the prior there, over the prior around the known mode: no row is read.

        Parameters
        ----------
        mode : LocalMode
        prior : Density
            The density without rows.
        """
        around = self.of_normal(mode.around)
        if self.of_prior:
            yield LocalMode(around, mode.height)
            return
        back, precision = inv(self.matrix), around.factor.matrix

        def slopes(points: np.ndarray) -> Slopes:
            away = (points - around.location) @ precision
            here, there = prior.slopes(points), prior.slopes((points - self.offset) @ back.T)
            quadratic = ((points - around.location) * away).sum(axis=1) / 2
            return Slopes(
                mode.height - quadratic + here.values - there.values,
                here.gradients - away - there.gradients @ back,
            )

        density = Density(slopes)
        try:
            # Searches shorten steps to where the density is infinite.
            with np.errstate(over="ignore", invalid="ignore"):
                found = normal_near(maximise(around, density), around, density, polish=True)
        except (SamplingError, LinAlgError, ValueError) as error:
            _log.info("There is no mode near an image of one: %s", error)
        else:
            height = float(density.values(found.location[None])[0])
            yield LocalMode(replace(found, tails=around.tails), height)


class Alone:
    """Modes without images: no symmetry is known.

    Examples
    --------
    >>> mode = LocalMode(Normal(np.zeros(1), DenseFactor.of(np.eye(1))), 0.0)
    >>> Alone().of(mode) == [mode]
    True
    """

    most = math.inf

    def of(self, mode: LocalMode, number: int = 0) -> list[LocalMode]:
        """Return the mode."""
        del number
        return [mode]


@dataclass(frozen=True, eq=False)
class Orbits:
    """The images of modes under symmetries.

    Parameters
    ----------
    space : Unconstrained
    symmetries : sequence of Symmetry
    prior : Density
        The density without rows.
    most : int
        Largest number of images of a mode, with itself.
    """

    space: Unconstrained
    symmetries: Sequence[Symmetry]
    prior: Density
    most: int

    def that_keep(self, columns: np.ndarray) -> "Orbits":
        """Return those of the symmetries that leave some coordinates, (n_dims,), as they are."""
        kept = [
            one
            for one in self.symmetries
            if not one.offset[columns].any()
            and np.array_equal(one.matrix[columns], np.eye(len(columns))[columns])
        ]
        return replace(self, symmetries=kept)

    def of(self, mode: LocalMode, number: int = 0) -> list[LocalMode]:
        """Return a mode and its images; their mass may follow the prior.

        Parameters
        ----------
        mode : LocalMode
        number : int
            Of this mode, from which those of the images count.
        """
        begun = LocalMode(mode.around, mode.height, mode.n_ended)
        if not self.symmetries:
            return [begun]
        found, ways = KnownModes([begun]), [Symmetry.identity(len(mode.x))]
        largest, done = mode.log_mass, 0
        while done < len(found) < self.most:
            for symmetry in self.symmetries:
                way = symmetry.after(ways[done])
                for new in self._new(way, found, largest - _NEGLIGIBLE):
                    largest, named = max(largest, new.log_mass), symmetry.name
                    found.add(
                        ImageOfMode(new.around, new.height, parent=number + done, symmetry=named)
                    )
                    ways.append(way)
                if len(found) == self.most:
                    break
            done += 1
        return found.modes

    def _new(self, way: Symmetry, found: KnownModes, least: float) -> Iterator[LocalMode]:
        """Yield the image of the first mode, unless it is known, or its log-mass too small."""
        first = found.modes[0]
        if way.of_prior and found.hold(way.at(first.x)):
            return
        for image in way.of_mode(first, self.prior):
            ends = self.space.constrain(np.stack([first.x, image.x])).values.values()
            # The unconstrained space of angles repeats itself.
            is_first = all(np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in ends)
            if not (is_first or image.log_mass < least or found.hold(image.x)):
                yield image


#: The images that modes have.
type Images = Orbits | Alone
ALONE = Alone()  #: None.


def with_images(modes: Sequence[LocalMode], orbits: Images) -> tuple[list[LocalMode], bool]:
    """Return distinct modes, the largest first, with their images; and whether these are all.

    Where a symmetry of the likelihood is none of the prior, the image of a small mode may be a
    larger one.  It is listed once, and the other images of the small mode are images of the larger.

    Examples
    --------
    >>> from pymc_coresets.sampling.factors.cholesky import factor_of
    >>> modes = [LocalMode(Normal(np.full(1, x), factor_of(np.eye(1))), 0.0) for x in (0, 9)]
    >>> len(with_images(modes, ALONE)[0])
    2
    """
    every, is_whole = KnownModes(), True
    for mode in modes:
        if len(every) and every.hold(mode.x):
            continue
        images = orbits.of(mode, len(every))
        is_whole &= len(images) < orbits.most
        is_image = len(every) and any(every.hold(image.x) for image in images[1:])
        for image in images[:1] if is_image else images:
            every.add(image)
    return every.modes, is_whole


@dataclass(frozen=True, eq=False)
class SymmetryTest:
    """Tests of which changes of the variables preserve the likelihood.

    Parameters
    ----------
    space : Unconstrained
    around : Normal
        A mode.
    prior : Density
        The density without rows.
    samples : sequence of Density
        The densities of some rows: of few, and then of more.
    """

    space: Unconstrained
    around: Normal
    prior: Density
    samples: Sequence[Density]

    def symmetries(self, full: Callable[[], Density], most: int) -> list[Symmetry]:
        """Return symmetries of the likelihood that make up all those which were found.

        Only those that move the mode.  All rows are read once if there are any, else not.

        Parameters
        ----------
        full : callable
            Returns the density of all rows.
        most : int
            Largest number of images that matter.
        """
        [values] = self._values(self.around.location[None])
        found = self._at_mode(list(islice(changes(values), _MOST_CHANGES)))
        maps = [own for own in map(self._as_affine, found + self._of_periods(values)) if own]
        for density in self.samples:
            maps = self._preserving(density, maps)
        maps = self._seen_or_of_prior(maps)
        maps = _generators(maps, self._points[1], most)
        return self._preserving(full(), maps) if maps else []

    @cached_property
    def _points(self) -> np.ndarray:
        """The mode, and a point near it that no symmetry leaves where it is."""
        z = np.random.default_rng(0).standard_normal((1, self.space.n_dims))
        return np.concatenate([self.around.location[None], self.around.at(z)])

    def _values(self, points: np.ndarray) -> list[Values]:
        own = self.space.constrain(points).values
        return [{name: value[i] for name, value in own.items()} for i in range(len(points))]

    def _at_mode(self, tried: Sequence[Change]) -> list[Change]:
        """Return the changes that move the mode, but not the likelihood of the smallest sample."""
        if not tried:
            return []
        mode = self.around.location[None]
        [values] = self._values(mode)
        images = points_of(self.space, [change(values) for _, change in tried])
        moved = np.flatnonzero(np.isfinite(images).all(axis=1))
        moved = moved[np.linalg.norm(self.around.whiten(images[moved]), axis=1) > 2.0]
        known, *found = self._likelihood(self.samples[0], np.concatenate([mode, images[moved]]))
        return [tried[i] for i in moved[_same(np.array(found), known)]]

    def _of_periods(self, values: Values) -> list[Change]:
        """Return shifts by the shortest period of each entry, and by half of it with a sign."""
        transforms = self.space.model.rvs_to_transforms
        own_scale = [rv.name for rv in self.space.model.free_RVs if transforms[rv] is None]
        places = [(name, index) for name in own_scale for index in np.ndindex(values[name].shape)]
        # Shifts of what the rows do not see change nothing, by whatever number.
        any_number = [(entry_name(*at), shifted(*at, _NO_PERIOD)) for at in places]
        unseen = {name for name, _ in self._at_mode(any_number)}
        places = [at for at in places if entry_name(*at) not in unseen]
        tried = [(name, i, p, by) for name, i in places for p, by in PERIODS.items()]
        names = [f"{entry_name(name, i)} by {p}" for name, i, p, _ in tried]
        shifts = [shifted(name, i, by) for name, i, _, by in tried]
        shortest: dict[tuple[str, tuple[int, ...]], int] = {}
        passed = {name for name, _ in self._at_mode(list(zip(names, shifts, strict=True)))}
        for number, (name, i, _, _) in enumerate(tried):
            if names[number] in passed:
                shortest.setdefault((name, i), number)
        found: list[Change] = []
        for (name, i), number in shortest.items():
            by = tried[number][-1]
            found += [(names[number], shifts[number]), (names[number], shifted(name, i, -by))]
            # An amplitude changes its sign half a period later.
            found += self._at_mode([
                (f"sign of {other}, {entry_name(name, i)} by half a period",
                 both(signs_of([other]), shifted(name, i, way * by / 2)))
                for other in values for way in (1, -1) if other != name
            ])  # fmt: skip
        return found

    def _likelihood(self, density: Density, points: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            values: np.ndarray = density.values(points) - self.prior.values(points)
        return values

    def _as_affine(self, change: Change) -> Symmetry | None:
        """Return a change as a map of the unconstrained space; None if it is not affine there."""
        name, function = change
        mode, n_dims = self.around.location, self.space.n_dims
        units = mode + np.concatenate(
            [np.zeros((1, n_dims)), np.eye(n_dims), self._points[1:] - mode]
        )
        images = points_of(self.space, [function(values) for values in self._values(units)])
        if not np.isfinite(images).all():
            return None
        matrix = (images[1:-1] - images[0]).T
        matrix = np.where(np.abs(matrix - np.round(matrix)) < 1e-9, np.round(matrix), matrix)
        own = Symmetry(name, matrix, images[0] - matrix @ mode, of_prior=True)
        is_affine = np.allclose(own.at(units[-1]), images[-1], rtol=1e-9, atol=1e-9)
        keeps_volume = abs(np.linalg.slogdet(matrix)[1]) < 1e-9
        return own if is_affine and keeps_volume else None

    def _seen_or_of_prior(self, maps: Sequence[Symmetry]) -> list[Symmetry]:
        """Leave out the maps of what the rows do not see, unless they preserve the prior.

        Any change of such variables preserves the likelihood: of the means of effects, say.
        """
        unit, point = np.eye(self.space.n_dims), self._points[1]
        moves = [(own.matrix != unit).any(axis=1) | (own.offset != 0) for own in maps]
        z = np.random.default_rng(1).standard_normal(len(point))
        elsewhere = [np.where(moved, point + z, point) for moved in moves]
        known, *found = self._likelihood(self.samples[0], np.stack([point, *elsewhere]))
        unseen = _same(np.array(found), known)
        return [
            own
            for own, is_unseen in zip(maps, unseen, strict=True)
            if own.of_prior or not is_unseen
        ]

    def _preserving(self, density: Density, maps: Sequence[Symmetry]) -> list[Symmetry]:
        """Return the maps that preserve the likelihood of some rows, in one reading of them."""
        points = np.concatenate([self._points, *(own.at(self._points) for own in maps)])
        own, *images = np.split(self._likelihood(density, points), len(maps) + 1)
        with np.errstate(all="ignore"):
            prior, *others = np.split(self.prior.values(points), len(maps) + 1)
        return [
            replace(one, of_prior=bool(_same(there, prior).all()))
            for one, image, there in zip(maps, images, others, strict=True)
            if _same(image, own).all()
        ]


def _same(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    same: np.ndarray = np.abs(values - others) <= _EQUAL * (1.0 + np.abs(others))
    return same


def _generators(maps: Sequence[Symmetry], point: np.ndarray, most: int) -> list[Symmetry]:
    """Return some of the maps that lead from a point to all places to which any of them leads."""
    kept: list[Symmetry] = []
    orbit = point[None]
    for one in maps:
        distance = np.abs(orbit - one.at(point)).max(axis=1)
        if distance.min() > 1e-6 * (1.0 + np.abs(point).max()):
            kept.append(one)
            orbit = _closed(orbit, kept, most)
    return kept


def _closed(points: np.ndarray, maps: Sequence[Symmetry], most: int) -> np.ndarray:
    """Return points with their images under maps and those of these, up to a number."""
    known = {tuple(np.round(x, 6)) for x in points}
    latest = points
    while len(latest) and len(points) < most:
        images = np.concatenate([one.at(latest) for one in maps])
        fresh = {key: x for x in images if (key := tuple(np.round(x, 6) + 0.0)) not in known}
        known |= set(fresh)
        latest = np.stack(list(fresh.values())) if fresh else latest[:0]
        points = np.concatenate([points, latest])
    return points
