"""The modes of the posterior of all rows: found on a sample, polished and weighed on all."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import xarray as xr
from scipy.special import softmax

from pymc_coresets.diagnostics.known_posterior import MODE, Modes
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.keyed import MANY_ROWS, ROWS_FOR_CURVATURE, rows_to_begin_with
from pymc_coresets.sampling.climbing import improve
from pymc_coresets.sampling.curvature import laplace, normal_near
from pymc_coresets.sampling.density import PosteriorDensity, Slopes
from pymc_coresets.sampling.mode_search import (
    NOTICEABLE,
    LocalMode,
    find_modes,
    image_points,
    mode_of,
    starting_points,
    starts_at_images,
)
from pymc_coresets.sampling.normal import Mixture, Normal

_LARGE = 150  # dimensions: climbs and gradients of all rows would cost more than what follows
_MOST_IMAGES = 24  # of other modes, where climbs begin
_LEAST_STARTS = 10  # of a search that is worth its name
_FOR_SDS = 100  # draws around each mode
_IMAGE = 0.5  # standard deviations between a mode and the image of another
_AS_HIGH = 0.1  # nats for each dimension: what the search for a mode leaves of its height

_log = logging.getLogger(__name__)


class Posteriors(Protocol):
    """What is needed of a sampler."""

    @property
    def loglikelihood(self) -> LogLikelihood:
        """The potentials of the model."""

    @property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model."""

    @property
    def full_density(self) -> PosteriorDensity:
        """The log-density of the model with all rows."""

    def density_of_some(self, size: int, key: int) -> PosteriorDensity:
        """Return the density of a sample of the rows, for many points at once."""


@dataclass(frozen=True, eq=False)
class FoundModes:
    """What a search found.

    Parameters
    ----------
    mixture : Mixture
        Around the modes of noticeable mass, the largest first.
    n_ended : ndarray of int64, of shape (n_modes,)
        Starts that ended there.
    n_starts : int
        How many there were; 0 where none but the first mode was looked for.
    images : sequence of str
        For each mode, of which earlier one it is an image.
    n_gradients : int
        Of all rows.
    """

    mixture: Mixture
    n_ended: np.ndarray
    n_starts: int
    images: Sequence[str]
    n_gradients: int

    @classmethod
    def of(
        cls,
        modes: Sequence[LocalMode],
        n_starts: int,
        images: Sequence[str] = ("",),
        n_gradients: int = 0,
    ) -> Self:
        """Weigh modes by their masses."""
        masses = softmax([mode.log_mass for mode in modes])
        n_ended = np.array([mode.n_ended for mode in modes], dtype=np.int64)
        mixture = Mixture([mode.around for mode in modes], masses)
        return cls(mixture, n_ended, n_starts, images, n_gradients)

    def table(self, space: Unconstrained, dims: Mapping[str, Sequence[str | None]]) -> Modes | None:
        """Return the modes on the variables' own scale; None where no others were looked for."""
        if not self.n_starts:
            return None
        parts, rng = self.mixture.parts, np.random.default_rng(0)
        positions = space.constrain(np.stack([part.location for part in parts])).values
        draws = [space.constrain(part.draw(_FOR_SDS, rng=rng)[0]).values for part in parts]
        sds = {name: np.stack([d[name].std(axis=0) for d in draws]) for name in positions}
        return Modes(
            positions=_along_modes(positions, dims),
            sds=_along_modes(sds, dims),
            mass=self.mixture.masses,
            n_ended=self.n_ended,
            n_starts=self.n_starts,
            images=tuple(self.images),
        )


def _along_modes(
    values: Mapping[str, np.ndarray], dims: Mapping[str, Sequence[str | None]]
) -> xr.Dataset:
    variables = {}
    for name, value in values.items():
        own = dims.get(name) or [None] * (value.ndim - 1)
        names = [d or f"{name}_dim_{i}" for i, d in enumerate(own)]
        variables[name] = ((MODE, *names), value)
    return xr.Dataset(variables)


def around_modes(
    posteriors: Posteriors, start_size: int, *, key: int, rng: np.random.Generator
) -> FoundModes:
    """Find the modes of the posterior of all rows, and the curvature there.

    One mode is found from that of a few rows, and others from many starts on the same rows.  Those
    whose mass may be noticeable, as far as the few rows can tell, are polished on all rows.

    Parameters
    ----------
    posteriors : Posteriors
    start_size : int
        Number of the few rows.
    key : int
        Of the sample that they are.
    rng : numpy.random.Generator
        For the starts.

    Raises
    ------
    SamplingError
        If there is no mode.
    """
    search = _Search(posteriors, start_size, key)
    space = search.space_of(start_size)
    found, n_starts = [mode_of(space, laplace(space))], 0
    if space.n_dims <= _LARGE:
        found, n_starts = search.others(space, found[0], rng=rng)
    return search.on_all(found, n_starts)


def beside_mode(
    posteriors: Posteriors,
    near: Normal,
    size: int,
    *,
    key: int,
    rng: np.random.Generator,
    n_gradients: float,
    held: np.ndarray | None = None,
) -> FoundModes | None:
    """PassSums for other modes than a known one; all rows are read only where there are others.

    Parameters
    ----------
    posteriors : Posteriors
    near : Normal
        Close to the mode of all rows.
    size : int
        Number of rows of the sample on which others are looked for.
    key : int
        Of that sample.
    rng : numpy.random.Generator
        For the starts.
    n_gradients : float
        Of the sample, after which no climb begins.
    held : ndarray of bool, of shape (n_dims,), optional
        Coordinates that are held near that mode, see `held_near`.

    Returns
    -------
    FoundModes, or None
        None where that is too few for a search.

    Raises
    ------
    SamplingError
        If the sample has no mode near that one.
    """
    search = _Search(posteriors, size, key, near.location, held)
    density = search.density_of(size)
    space = posteriors.space.with_density(density)
    first = mode_of(space, replace(near, location=improve(near, space)))
    found, n_starts = search.others(
        space, first, rng=rng, is_over=lambda: density.n_gradients > n_gradients
    )
    if n_starts < _LEAST_STARTS:
        return None
    if len(found) > 1:
        return search.on_all(found, n_starts)
    alone = replace(found[0], around=found[0].around.with_tails())
    return FoundModes.of([alone], n_starts)


def held_near(density: PosteriorDensity, at: np.ndarray, held: np.ndarray) -> PosteriorDensity:
    """Return a density in which some coordinates are held near a point, by a normal distribution.

    The density of a hierarchy has no mode: it rises without end where effects and their scale go to
    zero.  Given the scales it may have one or several.

    Parameters
    ----------
    density : PosteriorDensity
    at : ndarray of shape (n_dims,)
    held : ndarray of bool, of shape (n_dims,)
    """

    def add_up(points: np.ndarray) -> Slopes:
        away = np.where(held, points - at, 0.0)
        found = density.slopes(points - away)
        values = found.values - np.square(away).sum(axis=1) / 2
        return Slopes(values, np.where(held, -away, found.gradients))

    return PosteriorDensity(add_up)


@dataclass(frozen=True, eq=False)
class _Search:
    """A search on a sample of the rows, by its size and key, for modes of all of them."""

    posteriors: Posteriors
    size: int
    key: int
    at: np.ndarray | None = None
    held: np.ndarray | None = None

    def density_of(self, size: int | None) -> PosteriorDensity:
        """Return the density of a sample of so many rows, or of all."""
        own = self.posteriors
        density = own.full_density if size is None else own.density_of_some(size, self.key)
        if self.at is None or self.held is None:
            return density
        return held_near(density, self.at, self.held)

    def space_of(self, size: int) -> Unconstrained:
        """Return the model's space with that density."""
        return self.posteriors.space.with_density(self.density_of(size))

    def others(
        self,
        space: Unconstrained,
        first: LocalMode,
        *,
        rng: np.random.Generator,
        is_over: Callable[[], bool] = lambda: False,
    ) -> tuple[list[LocalMode], int]:
        """PassSums for modes of the sample, and for images of those that were found."""
        error = self._error()
        with np.errstate(all="ignore"):  # some starts are far out
            starts = starting_points(space, first.x, rng=rng)
            found, n_starts = find_modes(space, [first], starts, error=error, is_over=is_over)
            if len(found) == 1:
                return found, n_starts
            images = np.concatenate([starts_at_images(space, mode.x) for mode in found[1:]])
            more = images[:_MOST_IMAGES]
            found, n_more = find_modes(space, found, more, error=error, is_over=is_over)
        return found, n_starts + n_more

    def _error(self) -> Callable[[np.ndarray, np.ndarray], float]:
        """Return what says how far a difference between two modes of the sample may be off.

        The standard error of the difference of the log-likelihoods at two points, and what the mode
        of a sample is higher by than that of all rows.
        """
        loglik = self.posteriors.loglikelihood
        share = min(self.size / loglik.n_rows, 1.0)
        if share == 1.0:
            return lambda one, other: 0.0  # noqa: ARG005
        scan = loglik.source.scan(self.size, key=self.key, distinct=True)

        def error(one: np.ndarray, other: np.ndarray) -> float:
            draws = self.posteriors.space.constrain(np.stack([one, other]))
            difference = np.diff(loglik.matrix(draws, scan.rows, finite=False), axis=1)[:, 0]
            squares = np.square(scan.weights * (difference - difference.mean()))
            return float(np.sqrt(squares.sum() * (1 - share))) + loglik.n_dims / share / 2

        return error

    def on_all(self, found: Sequence[LocalMode], n_starts: int) -> FoundModes:
        """Polish modes of the sample on all rows, and weigh them."""
        full = self.density_of(None)
        polished = list(self.polished(found, full))
        if len(polished) > 1:
            heights = full.values(np.stack([mode.x for mode in polished]))
            polished = _noticeable(
                [replace(m, height=h) for m, h in zip(polished, heights, strict=True)]
            )
        images = _images(polished, self.posteriors.space)
        return FoundModes.of(polished, n_starts, images, full.n_gradients)

    def polished(self, found: Sequence[LocalMode], full: PosteriorDensity) -> Iterator[LocalMode]:
        """Follow the modes of the sample to those of all rows; at least one, or none is there."""
        refused, n_polished = None, 0
        for local in found:
            try:
                around = self.around_all(local.around, full)
            except SamplingError as error:
                _log.info("No mode of all rows is near one of a sample: %s", error)
                refused = error
            else:
                n_polished += 1
                yield LocalMode(around, 0.0, local.n_ended)
        if refused is not None and not n_polished:
            raise refused

    def around_all(self, start: Normal, full: PosteriorDensity) -> Normal:
        """Find the mode of all rows near that of the sample, and the curvature there."""
        n_rows, n_dims = self.posteriors.loglikelihood.n_rows, len(start.location)
        if n_rows > MANY_ROWS:
            space = self.space_of(rows_to_begin_with(n_dims, n_rows))
            start = laplace(space, start.location)
            return replace(start, location=improve(start, full)).with_tails()
        mode = improve(start, full) if self.size < n_rows else start.location
        few = ROWS_FOR_CURVATURE * n_dims
        if n_dims > _LARGE and few < n_rows:
            return normal_near(mode, start, self.density_of(few), polish=False)
        return normal_near(mode, start, full, polish=True)


def _noticeable(modes: Sequence[LocalMode]) -> list[LocalMode]:
    """Return the modes that are different ones and hold a noticeable mass, the largest first."""
    different: list[LocalMode] = []
    modes = [mode for mode in modes if np.isfinite(mode.height)]
    if not modes:
        raise SamplingError("The log-density of all rows is not finite at any mode of a sample.")
    for mode in sorted(modes, key=lambda mode: -mode.log_mass):
        same = [i for i, other in enumerate(different) if other.is_near(mode)]
        if same:
            known = different[same[0]]
            different[same[0]] = replace(known, n_ended=known.n_ended + mode.n_ended)
        else:
            different.append(mode)
    masses = softmax([mode.log_mass for mode in different])
    return [mode for mode, mass in zip(different, masses, strict=True) if mass >= NOTICEABLE]


def _images(modes: Sequence[LocalMode], space: Unconstrained) -> list[str]:
    """Say for each mode of which earlier one it is an image."""
    found = [""] * len(modes)
    for i, one in enumerate(modes[:-1]):
        names, points = image_points(space, one.x)
        for j, other in enumerate(modes):
            close = abs(one.height - other.height) < _AS_HIGH * len(one.x)
            if j > i and not found[j] and close:
                distance = np.linalg.norm(other.around.whiten(points), axis=1)
                if len(distance) and distance.min() < _IMAGE:
                    found[j] = f"image of mode {i}: {names[int(distance.argmin())]}"
    return found
