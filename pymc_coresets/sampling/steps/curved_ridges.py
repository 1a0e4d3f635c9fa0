"""Coordinates in which a thin curved ridge is straight, for chains that move along it."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from pymc_coresets.sampling.density import Density, Slopes
from pymc_coresets.sampling.maximisation.many_modes import (
    maximise_by_curvature,
    negative_hessians,
    settled_each,
)
from pymc_coresets.sampling.maximisation.many_starts import (
    Ends,
    minimise_together,
    negative_of_points,
)
from pymc_coresets.sampling.maximisation.paths import DIP, SHARES
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.steps.split_hmc import OfPoints

#: Ratio of the variance of draws along an axis to that by the curvature above which it is thin.
_THIN = 10.0
#: Largest degree of the polynomials, and draws and points of a ridge for each of their terms.
_DEGREE, _DRAWS_OF_TERM, _POINTS_OF_TERM = 8, 10, 2
#: Factor of the squared error that a further degree must reach, at points that it is not fitted to,
#: and that in standard deviations across the ridge after which none follows.
_BETTER, _SMALL = 0.8, 1e-4
#: Standard deviations across a ridge by which it leaves a straight line, share of them by which it
#: may leave the polynomials, and standard deviations at which no other tangent is tried.
_BENT, _MISSED, _FITS = 3.0, 0.3, 0.3
#: Number of draws whose tangents are tried besides that at the mode, and about how many gradients
#: lead to it.
_TANGENTS, _TO_MODE = 15, 500
#: Number of draws from which the ridge is followed, to which multiples of their distance from their
#: mean, and how many nats its density may be below the highest; and steps across it.
_TRACED, _LENGTHS, _LOW, _STEPS_ACROSS = 200, (1.0, 1.5, 2.0, 3.0, 5.0, 8.0), 12.0, 50
#: Nats by which the density of a ridge is below the highest where chains begin.
_HIGH = 4.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class CurvedRidge:
    """Coordinates by polynomials, of a ridge that is a graph over its tangent at the mode.

    Draws spread along a thin curved ridge have a covariance that is wide in all directions, and
    trajectories around such a normal distribution take steps as short as the ridge is thin.  Here
    the coordinates across the ridge are measured from a polynomial of those along it.  The map has
    a constant volume, so that the density in these coordinates is the one in the others.

    Parameters
    ----------
    location : ndarray of shape (n_dims,)
    axes : ndarray of shape (n_dims, n_dims)
        In columns, those along the ridge first.
    powers : ndarray of int, of shape (n_terms, n_along)
        Exponents of the terms of the polynomials.
    coefficients : ndarray of shape (n_terms, n_dims - n_along)
    widths : ndarray of shape (n_dims - n_along,)
        Standard deviations across the ridge, by the curvature at the point of its tangent.
    places : ndarray of shape (n_places, n_along)
        Where its density is high.

    References
    ----------
    Parno, Marzouk (2018). Transport map accelerated Markov chain Monte Carlo. SIAM/ASA Journal on
    Uncertainty Quantification 6(2). https://doi.org/10.1137/17M1134640

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> b = rng.normal(size=500)
    >>> draws = np.stack([1 - b**2 + 0.01 * rng.normal(size=500), b], axis=1)
    >>> def slopes(x):
    ...     off, b = 1e4 * (x[:, 0] + x[:, 1] ** 2 - 1), x[:, 1]
    ...     return -(off**2) / 2e4 - b**2 / 2, np.stack([-off, -2 * off * b - b], axis=1)
    >>> [ridge] = CurvedRidge.through(draws, slopes)
    >>> ridge.of(draws).std(axis=0).round(2)
    array([1.  , 0.01])
    >>> np.abs(ridge.at(ridge.of(draws)) - draws).max() < 1e-12
    np.True_
    """

    location: np.ndarray
    axes: np.ndarray
    powers: np.ndarray
    coefficients: np.ndarray
    widths: np.ndarray
    places: np.ndarray

    @classmethod
    def through(cls, draws: np.ndarray, slopes: OfPoints) -> "Iterator[CurvedRidge]":
        """Fit the coordinates to draws (n_draws, n_dims), if they lie on a curved ridge.

        The axes along the ridge and across it are those of the curvature at a point of it, relative
        to the standard deviations of all draws.  A ridge need not be a graph over each of its
        tangents: of those at the mode and at some draws, the one is taken that explains most.

        Parameters
        ----------
        draws : ndarray of shape (n_draws, n_dims)
            In random order.
        slopes : callable
            See `SplitHmc`.
        """
        draws = draws[np.sort(np.unique(draws, axis=0, return_index=True)[1])]
        if len(draws) < 2 * _DRAWS_OF_TERM * draws.shape[1]:
            return
        density = Density(slopes)
        with np.errstate(all="ignore"):  # some draws may be impossible, and searches go too far
            some = draws[:_TRACED]
            heights = np.nan_to_num(density.values(some), nan=-np.inf)
            start = some[[heights.argmax()]]
            mode = maximise_by_curvature(density, start, n_gradients=_TO_MODE).points
            [around] = settled_each(density, mode)
            mode = around.location[None] if isinstance(around, Normal) else mode
            hessian = negative_hessians(density, mode, kinks=False)
            if not _is_thinner(hessian[0], draws):
                return
            others = negative_hessians(density, draws[:_TANGENTS], kinks=False)
            best, found = np.inf, list[CurvedRidge]()
            for one in np.concatenate([hessian, others]):
                for fitted in cls._fitted(one, draws):
                    missed, ridge = fitted.traced(slopes, draws)
                    if missed < best and not ridge.leaves_out(draws, slopes):
                        best, found = missed, [ridge]
                if best < _FITS:
                    break
        _log.info("A curved ridge: coordinates miss it by %.2g standard deviations", best)
        yield from found

    @classmethod
    def _fitted(cls, hessian: np.ndarray, draws: np.ndarray) -> "Iterator[CurvedRidge]":
        """Return coordinates by the curvature at a point, fitted to draws."""
        if not np.isfinite(hessian).all():
            return
        location, scales = draws.mean(axis=0), draws.std(axis=0)
        thinness, ways = np.linalg.eigh(hessian * np.outer(scales, scales))
        n_along = int((thinness < _THIN).sum())
        if not 0 < n_along < len(location):
            return
        along, across = np.split(((draws - location) / scales) @ ways, [n_along], axis=1)
        widths = 1 / np.sqrt(thinness[n_along:])
        powers = _powers(along, across / widths, _DRAWS_OF_TERM)
        yield cls(
            location,
            scales[:, None] * ways,
            powers,
            _fit(along, across, powers),
            widths=widths,
            places=along,
        )

    def traced(self, slopes: OfPoints, draws: np.ndarray) -> tuple[float, "CurvedRidge"]:
        """Return coordinates fitted to the ridge itself, along the draws and beyond them.

        All draws are some way across it, and they may be of one part of it.  It is followed as far
        as the density is high enough.  The first result is by how much coordinates miss the ridge
        at most, in standard deviations across it; infinite if a straight line is about as good.
        """
        own, along = self, self.of(draws[:_TRACED])[:, : self.n_along]
        middle, places, misfit = along.mean(axis=0), along[:0], np.inf
        for length in _LENGTHS:
            places = np.concatenate([places, middle + length * (along - middle)])
            values, across = own._ridge_at(slopes, places)
            kept = values < values.min() + _LOW
            at, across = places[kept], across[kept]
            if len(at) < 2 * _POINTS_OF_TERM * (1 + self.n_along):
                break
            powers, straight = (
                _powers(at, across / self.widths, _POINTS_OF_TERM),
                _up_to(self.n_along, 1),
            )
            own = replace(own, powers=powers, coefficients=_fit(at, across, powers))
            missed, bent = (
                float((np.abs(across - _terms(at, p) @ _fit(at, across, p)) / self.widths).max())
                for p in (powers, straight)
            )
            misfit = missed if bent > max(_BENT, missed / _MISSED) else np.inf
            if not kept[-len(along) :].any():
                break
        return misfit, replace(own, places=places[values < values.min() + _HIGH])

    def leaves_out(self, draws: np.ndarray, slopes: OfPoints) -> bool:
        """Whether some draws lie on another ridge, which chains along this one would never see.

        Such as another branch of a hyperbola.  From those draws, ascents across the axes end where
        the density is high, but it dips between there and this ridge.
        """
        density, (along, z) = Density(self.seen_by(slopes)), self._parts(self.of(draws))
        ends, own = (self._ascended(density, along, each) for each in (z, np.zeros_like(z)))
        high = ends.values < min(ends.values.min(), own.values.min()) + _LOW
        away, begins = (ends.points - own.points)[high], own.points[high]
        lines = begins[:, None] + SHARES[:, None] * away[:, None]
        places = np.broadcast_to(along[high, None], (*lines.shape[:2], self.n_along))
        u = np.concatenate([places, self.widths * lines], axis=2)
        heights = density.values(u.reshape(-1, u.shape[2])).reshape(lines.shape[:2])
        return bool((~(heights >= -ends.values[high, None] - DIP)).any())

    def _parts(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates along the ridge, and those across it in standard deviations."""
        return u[:, : self.n_along], u[:, self.n_along :] / self.widths

    def _ridge_at(self, slopes: OfPoints, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return negative log-densities (n_points,) of a ridge, and where it is across the axes."""
        starts = np.zeros((len(along), len(self.widths)))
        ends = self._ascended(Density(self.seen_by(slopes)), along, starts)
        across = self.widths * ends.points + _terms(along, self.powers) @ self.coefficients
        return ends.values, across

    def _ascended(self, density: Density, along: np.ndarray, starts: np.ndarray) -> Ends:
        """Ascend across the axes from some starts, in standard deviations."""
        widths = self.widths

        def negative(z: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, gradients = negative_of_points(density, np.hstack([along[which], widths * z]))
            return values, widths * gradients[:, self.n_along :]

        return minimise_together(negative, starts, most_steps=_STEPS_ACROSS, joins=False)

    def spread(self, n_points: int, *, rng: np.random.Generator) -> np.ndarray:
        """Return coordinates (n_points, n_dims) all over the ridge, where chains may begin."""
        along = self.places[rng.integers(len(self.places), size=n_points)]
        across = self.widths * rng.standard_normal((n_points, len(self.widths)))
        return np.hstack([along, across])

    @property
    def n_along(self) -> int:
        """Number of dimensions of the ridge."""
        return int(self.powers.shape[1])

    def at(self, u: np.ndarray) -> np.ndarray:
        """Return the points (..., n_dims) at coordinates of the ridge."""
        y = u.copy()
        y[..., self.n_along :] += _terms(u[..., : self.n_along], self.powers) @ self.coefficients
        points: np.ndarray = self.location + y @ self.axes.T
        return points

    def of(self, points: np.ndarray) -> np.ndarray:
        """Return the coordinates of points (n_points, n_dims)."""
        u: np.ndarray = np.linalg.solve(self.axes, (points - self.location).T).T
        u[:, self.n_along :] -= _terms(u[:, : self.n_along], self.powers) @ self.coefficients
        return u

    def seen_by(self, slopes: OfPoints) -> Callable[[np.ndarray], Slopes]:
        """Return log-densities and gradients by the coordinates of the ridge."""

        def of_coordinates(u: np.ndarray) -> Slopes:
            along = u[:, : self.n_along]
            with np.errstate(all="ignore"):  # far from the ridge, searches shorten their steps
                values, gradients = slopes(self.at(u))
                found = gradients @ self.axes
                across = found[:, self.n_along :] @ self.coefficients.T
                for i in range(self.n_along):
                    found[:, i] += (_derivatives(along, self.powers, i) * across).sum(axis=1)
            return Slopes(values, found)

        return of_coordinates


def _is_thinner(hessian: np.ndarray, draws: np.ndarray) -> bool:
    """Whether draws are much wider in some direction than a normal density of this curvature."""
    try:
        root = cholesky(np.atleast_2d(np.cov(draws.T)), lower=True)
        thinness = np.linalg.eigvalsh(root.T @ hessian @ root)
    except (LinAlgError, ValueError):
        return False
    return bool(thinness[-1] > _THIN)


def _terms(along: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the terms of polynomials (..., n_terms) in coordinates (..., n_along)."""
    terms: np.ndarray = np.prod(along[..., None, :] ** powers, axis=-1)
    return terms


def _fit(along: np.ndarray, across: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the coefficients (n_terms, n_across) of polynomials, by least squares."""
    found: np.ndarray = np.linalg.lstsq(_terms(along, powers), across)[0]
    return found


def _derivatives(along: np.ndarray, powers: np.ndarray, i: int) -> np.ndarray:
    """Return the derivatives of the terms (n_points, n_terms) by one of the coordinates."""
    less = powers.copy()
    less[:, i] = np.maximum(powers[:, i] - 1, 0)
    found: np.ndarray = powers[:, i] * _terms(along, less)
    return found


def _powers(along: np.ndarray, across: np.ndarray, of_term: int) -> np.ndarray:
    """Return the powers of polynomials of the least degree that fits about as well as others.

    At points to which they are not fitted.
    """
    order = np.random.default_rng(0).permutation(len(along))
    along, across = along[order], across[order]
    half, powers, best = len(along) // 2, _up_to(along.shape[1], 1), np.inf
    for degree in range(1, _DEGREE + 1):
        more = _up_to(along.shape[1], degree)
        if of_term * len(more) > half:
            break
        fit = _fit(along[:half], across[:half], more)
        missed = float(
            np.square(across[half:] - _terms(along[half:], more) @ fit).mean(axis=0).max()
        )
        if missed < _BETTER * best:
            powers, best = more, missed
        if best < _SMALL:
            break
    return powers


def _up_to(n_dims: int, degree: int) -> np.ndarray:
    """Return the exponents of all terms of some variables up to a degree, (n_terms, n_dims)."""
    chosen = [
        own
        for total in range(degree + 1)
        for own in combinations_with_replacement(range(n_dims), total)
    ]
    return np.array([[own.count(i) for i in range(n_dims)] for own in chosen])
