"""The modes of the posterior of all rows: found on a sample, polished and weighed on all."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

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
    def full_density(self) -> PosteriorDensity:
        """The log-density of the model with all rows."""

    @property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model."""

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
    space = _space_of_some(posteriors, start_size, key)
    found, n_starts = [mode_of(space, laplace(space))], 0
    if space.n_dims <= _LARGE:
        found, n_starts = _search(posteriors, space, found[0], start_size, key, rng=rng)
    return _on_all(posteriors, found, n_starts, start_size, key)


def _space_of_some(posteriors: Posteriors, size: int, key: int) -> Unconstrained:
    return posteriors.space.with_density(posteriors.density_of_some(size, key))


def beside_mode(
    posteriors: Posteriors,
    near: Normal,
    size: int,
    *,
    key: int,
    rng: np.random.Generator,
    n_gradients: float,
) -> FoundModes | None:
    """Look for other modes than a known one; all rows are read only where there are others.

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

    Returns
    -------
    FoundModes, or None
        None where that is too few for a search.

    Raises
    ------
    SamplingError
        If the sample has no mode near that one.
    """
    density = posteriors.density_of_some(size, key)
    space = posteriors.space.with_density(density)
    first = mode_of(space, replace(near, location=improve(near, space)))
    found, n_starts = _search(
        posteriors,
        space,
        first,
        size,
        key,
        rng=rng,
        is_over=lambda: density.n_gradients > n_gradients,
    )
    if n_starts < _LEAST_STARTS:
        return None
    if len(found) > 1:
        return _on_all(posteriors, found, n_starts, size, key)
    [alone] = found
    return FoundModes(
        mixture=Mixture([alone.around.with_tails()], np.ones(1)),
        n_ended=np.array([alone.n_ended], dtype=np.int64),
        n_starts=n_starts,
        images=[""],
        n_gradients=0,
    )


def _on_all(
    posteriors: Posteriors, found: Sequence[LocalMode], n_starts: int, start_size: int, key: int
) -> FoundModes:
    """Polish modes of a sample on all rows, and weigh them."""
    full = posteriors.full_density
    polished = list(_polished(posteriors, found, start_size, key, full))
    if len(polished) > 1:
        heights = full.values(np.stack([mode.x for mode in polished]))
        polished = _noticeable(
            [replace(m, height=h) for m, h in zip(polished, heights, strict=True)]
        )
    return FoundModes(
        mixture=Mixture(
            [mode.around for mode in polished], softmax([mode.log_mass for mode in polished])
        ),
        n_ended=np.array([mode.n_ended for mode in polished], dtype=np.int64),
        n_starts=n_starts,
        images=_images(polished, posteriors.space),
        n_gradients=full.n_gradients,
    )


def _search(
    posteriors: Posteriors,
    space: Unconstrained,
    first: LocalMode,
    size: int,
    key: int,
    *,
    rng: np.random.Generator,
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[list[LocalMode], int]:
    """Look for modes of a sample, and for images of those that were found."""
    error = _error_of_sample(posteriors, size, key)
    with np.errstate(all="ignore"):  # some starts are far out
        starts = starting_points(space, first.x, rng=rng)
        found, n_starts = find_modes(space, [first], starts, error=error, is_over=is_over)
        if len(found) == 1:
            return found, n_starts
        others = [starts_at_images(space, mode.x) for mode in found[1:]]
        more = np.concatenate(others)[:_MOST_IMAGES]
        found, n_more = find_modes(space, found, more, error=error, is_over=is_over)
    return found, n_starts + n_more


@dataclass(frozen=True, eq=False)
class Held:
    """Posteriors in which some coordinates are held near a point, by a normal distribution.

    The density of a hierarchy has no mode: it rises without end where effects and their scale go to
    zero.  Given the scales it may have one or several.

    Parameters
    ----------
    posteriors : Posteriors
    at : ndarray of shape (n_dims,)
    held : ndarray of bool, of shape (n_dims,)
    """

    posteriors: Posteriors
    at: np.ndarray
    held: np.ndarray

    @property
    def loglikelihood(self) -> LogLikelihood:
        """See `Posteriors`."""
        return self.posteriors.loglikelihood

    @property
    def full_density(self) -> PosteriorDensity:
        """See `Posteriors`."""
        return self._holding(self.posteriors.full_density)

    def density_of_some(self, size: int, key: int) -> PosteriorDensity:
        """See `Posteriors`."""
        return self._holding(self.posteriors.density_of_some(size, key))

    @property
    def space(self) -> Unconstrained:
        """See `Posteriors`."""
        return self.posteriors.space

    def _holding(self, density: PosteriorDensity) -> PosteriorDensity:
        def add_up(points: np.ndarray) -> Slopes:
            away = np.where(self.held, points - self.at, 0.0)
            found = density.slopes(points - away)
            values = found.values - np.square(away).sum(axis=1) / 2
            return Slopes(values, np.where(self.held, -away, found.gradients))

        return PosteriorDensity(add_up)


def _error_of_sample(
    posteriors: Posteriors, size: int, key: int
) -> Callable[[np.ndarray, np.ndarray], float]:
    """Return the function that says how far a difference between two modes of a sample may be off.

    The standard error of the difference of the log-likelihoods at two points, and what the mode of
    a sample is higher by than that of all rows.
    """
    loglik = posteriors.loglikelihood
    share = min(size / loglik.n_rows, 1.0)
    if share == 1.0:
        return lambda one, other: 0.0  # noqa: ARG005
    scan = loglik.source.scan(size, key=key, distinct=True)

    def error(one: np.ndarray, other: np.ndarray) -> float:
        draws = posteriors.space.constrain(np.stack([one, other]))
        difference = np.diff(loglik.matrix(draws, scan.rows, finite=False), axis=1)[:, 0]
        variance = np.square(scan.weights * (difference - difference.mean())).sum() * (1 - share)
        return float(np.sqrt(variance)) + loglik.n_dims / share / 2

    return error


def _polished(
    posteriors: Posteriors,
    found: Sequence[LocalMode],
    start_size: int,
    key: int,
    full: PosteriorDensity,
) -> Iterator[LocalMode]:
    """Follow the modes of a sample to those of all rows; at least one, or none is there."""
    refused, n_polished = None, 0
    for local in found:
        try:
            around = _on_all_rows(posteriors, local.around, start_size, key, full)
        except SamplingError as error:
            _log.info("No mode of all rows is near one of a sample: %s", error)
            refused = error
        else:
            n_polished += 1
            yield LocalMode(around, 0.0, local.n_ended)
    if refused is not None and not n_polished:
        raise refused


def _on_all_rows(
    posteriors: Posteriors, start: Normal, start_size: int, key: int, full: PosteriorDensity
) -> Normal:
    """Find the mode of the posterior of all rows near that of a sample, and the curvature there."""
    loglik = posteriors.loglikelihood
    n_rows, n_dims = loglik.n_rows, loglik.n_dims
    if n_rows > MANY_ROWS:
        size = rows_to_begin_with(n_dims, n_rows)
        start = laplace(_space_of_some(posteriors, size, key), start.location)
        return replace(start, location=improve(start, full)).with_tails()
    mode = improve(start, full) if start_size < n_rows else start.location
    if n_dims > _LARGE and ROWS_FOR_CURVATURE * n_dims < n_rows:
        some = posteriors.density_of_some(ROWS_FOR_CURVATURE * n_dims, key)
        return normal_near(mode, start, some, polish=False)
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
