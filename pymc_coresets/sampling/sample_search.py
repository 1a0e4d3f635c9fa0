"""The search for modes on a sample of the rows; what it finds is polished and weighed on all."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Self

import numpy as np

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows import keyed
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.sampling.curvature import laplace, normal_near
from pymc_coresets.sampling.decisive_rows import rows_that_decide, with_rows
from pymc_coresets.sampling.density import Density, Slopes
from pymc_coresets.sampling.found_modes import FoundModes
from pymc_coresets.sampling.maximisation.data_starts import starts_from_data
from pymc_coresets.sampling.maximisation.one_start import maximise, maximise_by_sample
from pymc_coresets.sampling.mode_search import (
    MOST_SEARCHED,
    find_modes,
    highest,
    image_points,
    mode_of,
    n_searched,
    starting_points,
    starts_at_images,
    starts_beyond_dips,
)
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.scales.laplace_given_scales import modes_given_scales
from pymc_coresets.sampling.scales.scale_modes import MarginalModes
from pymc_coresets.sampling.scales.which_scales import hierarchical_scales
from pymc_coresets.sampling.symmetry.local_modes import (
    LocalMode,
    by_family,
    distinct,
    largest_families,
    noticeable,
    without_images,
)
from pymc_coresets.sampling.symmetry.symmetries import (
    Orbits,
    SymmetryTest,
    with_images,
)

#: Dimensions above which there is no search for other modes, and the curvature is that of a
#: sample: searches and gradients of all rows would cost more than the later steps.
FEW_TO_SEARCH = 150

#: Number of starts, of all kinds, after which a search may end for want of time.
ENOUGH_STARTS = 20
#: Largest number of images of a mode, and of numbers in their curvatures: some 64 MB.
MOST_IMAGES, _NUMBERS = 1_000, 2**23
#: Nats by which modes of a sample's scales may be smaller than those of all rows.
_ERROR = 40.0
#: Rows on which a symmetry is tested first.
_FEW_ROWS = 100

_log = logging.getLogger(__name__)


def held_near(density: Density, at: np.ndarray, held: np.ndarray) -> Density:
    """Return a density in which a normal distribution holds some coordinates near a point.

    The density of a hierarchy has no mode: it is unbounded as effects and their scale go to zero.
    Given the scales it may have one or several.

    Parameters
    ----------
    density : Density
    at : ndarray of shape (n_dims,)
    held : ndarray of bool, of shape (n_dims,)
    """

    def add_up(points: np.ndarray) -> Slopes:
        away = np.where(held, points - at, 0.0)
        found = density.slopes(points - away)
        values = found.values - np.square(away).sum(axis=1) / 2
        return Slopes(values, np.where(held, -away, found.gradients))

    return Density(add_up)


def each_met_twice(modes: Sequence[LocalMode]) -> bool:
    """Whether several starts ended at each mode, or at its images.

    The share of starts that met a mode which no other start met estimates the share of further
    starts that would meet unknown modes (Good 1953).
    """
    return bool((by_family(modes, [mode.n_ended for mode in modes]) > 1).all())


def _free(density: Density) -> Density:
    """Hold no coordinates."""
    return density


def _as_drawn(sample: RowSample) -> RowSample:
    """Add no rows."""
    return sample


@dataclass(frozen=True, eq=False)
class SampleSearch:
    """A search on a sample of the rows, by its size and key, for modes of all of them.

    Parameters
    ----------
    sampler : CoresetSampler
    size : int
    key : int
    hold : callable
        Holds some coordinates of a density near a point, see `held_near`.
    completed : callable
        Adds rows that belong to the sample besides, see `rows_that_decide`.
    """

    sampler: CoresetSampler
    size: int
    key: int
    hold: Callable[[Density], Density] = _free
    completed: Callable[[RowSample], RowSample] = _as_drawn

    def with_decisive_rows(self, around: Normal) -> Self:
        """Add the rows on which the posterior depends along an axis, but not that of the sample.

        Parameters
        ----------
        around : Normal
            The posterior of the sample.
        """
        if self.size >= self.sampler.n_rows:
            return self
        found = rows_that_decide(self.sampler.loglikelihood, around, self.size)
        return replace(self, completed=partial(with_rows, decisive=found)) if len(found) else self

    @cached_property
    def sample(self) -> RowSample:
        """The rows."""
        size = min(self.size, self.sampler.n_rows)
        return self.completed(self.sampler.subsample(size, key=self.key, distinct=True))

    def density_of(self, size: int) -> Density:
        """Return the density of a sample of rows of a given size."""
        if size == self.size < self.sampler.n_rows:
            return self.hold(self.sampler.density_of_sample(self.sample))
        return self.hold(self.sampler.density_of_some(size, self.key))

    @cached_property
    def full(self) -> Density:
        """The density of all rows."""
        return self.hold(self.sampler.full_density)

    def others(
        self,
        density: Density,
        first: LocalMode,
        *,
        rng: np.random.Generator,
        is_over: Callable[[], bool] = lambda: False,
    ) -> FoundModes:
        """Search for modes of the sample, for images of those found, and beyond dips.

        The search is complete if enough starts were used, and all modes refined.
        """
        with np.errstate(all="ignore"):  # some starts are far out
            elsewhere, nearby = self._starts(density, first, rng)
            if not len(elsewhere):
                return FoundModes([first], 0)
            orbits = self._orbits(first)
            starts = rng.permutation(np.concatenate([nearby, elsewhere]))  # time may not be enough
            search = partial(
                find_modes, density, error=self._error(), is_over=is_over, orbits=orbits
            )
            known = orbits.of(replace(first, n_ended=1))  # by the ascent that led there
            found, n_starts = search(known, starts)
            are_enough = n_starts >= min(len(starts), ENOUGH_STARTS)
            space = self.sampler.space
            images = [starts_at_images(space, density, m.x) for m in found if not m.is_image]
            more, n_at_images = search(found, np.concatenate(images)[:24])
            found = _counted_before(more, found)
            are_all = n_searched(found) < MOST_SEARCHED
            found, n_beyond, has_room = _beyond_dips(found, density, search)
        is_complete = are_enough and are_all and has_room and n_searched(found) < MOST_SEARCHED
        n_starts += n_beyond
        n_starts += 1 + n_at_images
        return FoundModes(found, n_starts, is_complete=is_complete, orbits=orbits)

    def by_scales(
        self, density: Density, first: LocalMode, *, rng: np.random.Generator
    ) -> Iterator[FoundModes]:
        """Compare modes of a hierarchy by what they hold, if the first one is not the only one.

        A joint density may be hundreds of nats higher where effects and their scale are small, and
        have no mode where most of the mass is.  Yields nothing if the marginal of the scales has no
        mode other than the first one, or there are no scales.
        """
        space, prior = self.sampler.space, self.sampler.density_without_rows.slopes
        columns = [np.ravel(each) for each in space.columns.values()]

        def of_prior(points: np.ndarray) -> np.ndarray:
            return prior(points).gradients

        def of_rows(points: np.ndarray) -> np.ndarray:
            gradients: np.ndarray = density.gradients(points) - of_prior(points)
            return gradients

        is_scale = hierarchical_scales(of_prior, of_rows, first.x, columns)
        if not is_scale.any():
            return
        error = _ERROR if self.size < self.sampler.n_rows else 0.0
        some, full = density.slopes, self.full.slopes
        for modes, of_scales in modes_given_scales(
            space, some, full, prior, is_scale, first.x, error=error, rng=rng
        ):
            yield self._given_scales(noticeable(distinct(modes)), is_scale, of_scales, rng)

    def _given_scales(
        self,
        modes: Sequence[LocalMode],
        is_scale: np.ndarray,
        of_scales: MarginalModes,
        rng: np.random.Generator,
    ) -> FoundModes:
        """Add the images of modes under symmetries of all variables but the scales.

        Other modes of these, given the scales, are only looked for: the search is incomplete if
        there are any.
        """
        orbits = self._orbits(modes[0]).that_keep(is_scale)
        every, is_whole = with_images(modes, orbits)
        is_complete = of_scales.is_complete and is_whole
        is_complete = is_complete and all(self._is_alone(mode, is_scale, rng) for mode in modes)
        kept, words = _largest_first(noticeable(every), self.sampler.space)
        n_starts, n_gradients = of_scales.n_ascents, self.full.n_gradients
        return FoundModes(kept, n_starts, words, n_gradients, is_complete, orbits)

    def _is_alone(self, mode: LocalMode, held: np.ndarray, rng: np.random.Generator) -> bool:
        """Whether a mode is the only one but for its images, with some coordinates held.

        By proof, if the prior is normal given these, or by a search.
        """
        if self.sampler.has_log_concave_rows(held):
            return True
        near = replace(self, hold=partial(held_near, at=mode.x, held=held))
        density = near.density_of(self.size)
        try:
            found = near.others(density, mode_of(density, laplace(density, mode.x)), rng=rng)
        except SamplingError as error:
            _log.info("No search for other modes given the scales: %s", error)
            return False
        alone = without_images(found.modes)
        return len(alone) == 1 and each_met_twice(alone) and found.is_complete

    def _starts(
        self, density: Density, first: LocalMode, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return starts by the prior and the data; and near the initial point, no search alone."""
        of_prior, nearby = starting_points(self.sampler.space, density, rng=rng)
        of_data = starts_from_data(
            self.sample,
            lambda each: self.hold(self.sampler.density_of_each(each)),
            first.around,
            rng=rng,
        )
        return np.concatenate([of_prior, highest(density, of_data, len(of_data), 0)]), nearby

    def _orbits(self, first: LocalMode) -> Orbits:
        """Return what makes the images of modes, under symmetries that all rows have."""
        space, prior = self.sampler.space, self.hold(self.sampler.density_without_rows)
        most = int(min(MOST_IMAGES, max(_NUMBERS // space.n_dims**2, 1)))
        sizes = (min(_FEW_ROWS, self.size), self.size)
        test = SymmetryTest(space, first.around, prior, [self.density_of(n) for n in sizes])
        found = test.symmetries(lambda: self.full, most)
        return Orbits(space, found, prior, most)

    def _error(self) -> Callable[[np.ndarray, np.ndarray], float]:
        """Return a function for the error of height differences between modes of the sample.

        It adds the standard error of the difference of log-likelihoods at two points, and the
        excess of the height of a sample's mode over that of all rows.
        """
        loglik = self.sampler.loglikelihood
        share = min(self.size / loglik.n_rows, 1.0)
        if share == 1.0:
            return lambda one, other: 0.0  # noqa: ARG005
        sample = self.sample

        def error(one: np.ndarray, other: np.ndarray) -> float:
            draws = self.sampler.space.constrain(np.stack([one, other]))
            difference = np.diff(loglik.matrix(draws, sample.rows, finite=False), axis=1)[:, 0]
            squares = np.square(sample.weights * (difference - difference.mean()))
            return float(np.sqrt(squares.sum() * (1 - share))) + loglik.n_dims / share / 2

        return error

    def on_all(self, found: FoundModes, *, is_only: bool = False) -> FoundModes:
        """Polish modes of the sample on all rows, compute their masses, and add their images.

        Parameters
        ----------
        found : FoundModes
            Of the sample.
        is_only : bool, default False
            Whether there can be no other mode.
        """
        full = self.full
        searched = without_images(found.modes)
        polished = self.polished(searched, full)
        if len(polished) > 1:
            heights = full.values(np.stack([mode.x for mode in polished]))
            polished = [replace(m, height=h) for m, h in zip(polished, heights, strict=True)]
            polished = distinct(polished)
        orbits = found.orbits
        every, is_whole = with_images(polished, orbits)
        kept = noticeable(every)
        is_complete = is_only or (is_whole and each_met_twice(kept) and found.is_complete)
        modes, words = _largest_first(kept, self.sampler.space)
        return FoundModes(modes, found.n_starts, words, full.n_gradients, is_complete, orbits)

    def polished(self, found: Sequence[LocalMode], full: Density) -> list[LocalMode]:
        """Find the modes of all rows from those of the sample; raises if there are none."""
        polished, refused = [], list[SamplingError]()
        for local in found:
            try:
                polished.append(replace(local, around=self.around_all(local.around, full)))
            except SamplingError as error:
                _log.info("No mode of all rows is near one of a sample: %s", error)
                refused.append(error)
        if refused and not polished:
            raise refused[-1]
        return polished

    def around_all(self, start: Normal, full: Density) -> Normal:
        """Find the mode of all rows near that of the sample, and the curvature there."""
        n_rows, n_dims = self.sampler.loglikelihood.n_rows, len(start.location)
        if n_rows > keyed.MANY_ROWS:
            for found in self._by_a_large_sample(start, full, keyed.rows_to_begin_with(n_dims)):
                return found
        mode = maximise(start, full) if self.size < n_rows else start.location
        few = keyed.ROWS_FOR_CURVATURE * n_dims
        if n_dims > FEW_TO_SEARCH and few < n_rows:
            return normal_near(mode, start, self.density_of(few), polish=False)
        return normal_near(mode, start, full, polish=True)

    def _by_a_large_sample(self, start: Normal, full: Density, size: int) -> Iterator[Normal]:
        """Find both by a few gradients of all rows, unless the sample lacks rows that matter.

        One gradient more tells this.  Elsewhere it takes a reading, and is left out unless the
        mode moved further than samples of that size differ.
        """
        some, fewer = self.density_of(size), self.density_of(size // 2)
        try:
            start = laplace(some, start.location)
            mode = maximise_by_sample(start, full, some, fewer)
        except SamplingError as error:
            _log.info("No mode of all rows by a large sample of them: %s", error)
            return
        source = self.sampler.loglikelihood.source
        is_far = np.abs(start.whiten(mode)).max() > 6 * np.sqrt(source.n_rows / size)
        if is_far or not isinstance(source, StreamedRows):
            slope = start.factor.whiten_gradients(full.gradients(mode[None])[0])
            if not np.abs(slope).max() < 1.0:
                return
        yield replace(start, location=mode).with_tails()


def _beyond_dips(
    found: list[LocalMode],
    density: Density,
    search: Callable[..., tuple[list[LocalMode], int]],
) -> tuple[list[LocalMode], int, bool]:
    """Search for modes beyond dips along each coordinate through the largest mode.

    If this leads to a larger mode, search from there, too: in the first one, a coordinate may have
    been in its lesser mode.  Finally, through the mode where most starts ended: that of all rows
    may be another one than that of the sample.

    Returns
    -------
    list of LocalMode
    int
        Number of starts used.
    bool
        Whether there was room for all modes found before.
    """
    n_starts, has_room, scanned = 0, True, list[np.ndarray]()
    for by in ("log_mass", "log_mass", "log_mass", "n_ended"):
        through = max(found, key=attrgetter(by))
        if any(np.array_equal(through.x, x) for x in scanned):
            continue
        scanned.append(through.x)
        starts = starts_beyond_dips(density, through.around)
        if len(starts):
            has_room = has_room and n_searched(found) <= MOST_SEARCHED // 2
            found = largest_families(found, MOST_SEARCHED // 2)
            more, n_used = search(found, starts, is_over=lambda: False)  # there are few
            found, n_starts = _counted_before(more, found), n_starts + n_used
    return found, n_starts, has_room


def _counted_before(modes: Sequence[LocalMode], known: Sequence[LocalMode]) -> list[LocalMode]:
    """Return modes, first the known ones, with the starts that ended at these before.

    A start that was made from a known mode says nothing if it ends there, or at an image of it.
    """
    first = [replace(m, n_ended=own.n_ended) for m, own in zip(modes, known, strict=False)]
    return first + list(modes[len(known) :])


def _largest_first(
    modes: Sequence[LocalMode], space: Unconstrained
) -> tuple[list[LocalMode], list[str]]:
    """Sort modes by their mass; also describe, for each, which other one it is an image of."""
    order = sorted(range(len(modes)), key=lambda i: -round(modes[i].log_mass, 6))
    numbers = {old: new for new, old in enumerate(order)}
    found = [modes[i].renumbered(numbers) for i in order]
    words = [mode.words for mode in found]
    searched = [i for i, mode in enumerate(found) if not mode.is_image]
    for i, words_of_one in zip(searched, _images(found, searched, space), strict=True):
        words[i] = words_of_one
    return found, words


def _images(modes: Sequence[LocalMode], searched: Sequence[int], space: Unconstrained) -> list[str]:
    """Describe, for modes that were searched for, the earlier one that it is an image of."""
    found = dict.fromkeys(searched, "")
    for i in searched[:-1]:
        one = modes[i]
        names, points = image_points(space, one.x)
        for j in searched:
            other = modes[j]
            close = abs(one.height - other.height) < 0.1 * len(one.x)  # the accuracy of the search
            if j > i and not found[j] and close:
                distance = np.linalg.norm(other.around.whiten(points), axis=1)
                if len(distance) and distance.min() < 0.5:
                    found[j] = f"image of mode {i}: {names[int(distance.argmin())]}"
    return list(found.values())
