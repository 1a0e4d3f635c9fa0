"""Coordinates in which a thin curved ridge is straight, for chains that move along it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from pymc_coresets.sampling.climbs.many_climbs import climb_together, negative_of_points
from pymc_coresets.sampling.climbs.many_modes import climb_by_curvature, negative_hessians
from pymc_coresets.sampling.density import Density, Slopes
from pymc_coresets.sampling.steps.split_hmc import OfPoints

#: Ratio of the variance of draws along an axis to that by the curvature above which it is thin.
_THIN = 10.0
#: Largest degree of the polynomials, draws for each of their terms, and factor of the variance that
#: a further degree must reach at draws that it is not fitted to.
_DEGREE, _DRAWS_OF_TERM, _BETTER = 4, 10, 0.8
#: Share of the variance across a straight ridge that a curved one may leave.
_LEFT = 0.1
#: Number of draws whose tangents are tried besides that at the mode, and about how many gradients
#: lead to it.
_TANGENTS, _TO_MODE = 15, 500
#: Number of draws from which the ridge is followed, to which multiples of their distance from their
#: mean, and how many nats its density may be below the highest; and steps across it.
_TRACED, _LENGTHS, _LOW, _STEPS_ACROSS = 100, (1.0, 1.5, 2.0, 3.0), 12.0, 50

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
    >>> ridge = CurvedRidge.through(draws, slopes)
    >>> ridge.of(draws).std(axis=0).round(2)
    array([1.  , 0.01])
    >>> np.abs(ridge.at(ridge.of(draws)) - draws).max() < 1e-12
    np.True_
    """

    location: np.ndarray
    axes: np.ndarray
    powers: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def through(cls, draws: np.ndarray, slopes: OfPoints) -> "CurvedRidge | None":
        """Fit the coordinates to draws (n_draws, n_dims); None if they lie on no curved ridge.

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
            return None
        density = Density(slopes)
        with np.errstate(all="ignore"):  # some draws may be impossible
            some = draws[:_TRACED]
            heights = np.nan_to_num(density.values(some), nan=-np.inf)
            start = some[[heights.argmax()]]
            mode = climb_by_curvature(density, start, n_gradients=_TO_MODE).points
            hessian = negative_hessians(density, mode, kinks=False)
            if not _is_thinner(hessian[0], draws):
                return None
            others = negative_hessians(density, draws[:_TANGENTS], kinks=False)
        fitted = [
            ridge
            for one in np.concatenate([hessian, others])
            if (ridge := cls._fitted(one, draws)) is not None
        ]
        if not fitted:
            return None
        misfits, traced = zip(*(ridge.traced(slopes, draws) for ridge in fitted), strict=True)
        best = int(np.argmin(misfits))
        _log.info("A curved ridge, which coordinates miss by %.2g of its width", misfits[best])
        found: CurvedRidge = traced[best]
        return found

    @classmethod
    def _fitted(cls, hessian: np.ndarray, draws: np.ndarray) -> "CurvedRidge | None":
        """Return coordinates by the curvature at a point; None if a straight ridge is as good."""
        if not np.isfinite(hessian).all():
            return None
        location, scales = draws.mean(axis=0), draws.std(axis=0)
        thinness, ways = np.linalg.eigh(hessian * np.outer(scales, scales))
        n_along = int((thinness < _THIN).sum())
        if not 0 < n_along < len(location):
            return None
        axes = scales[:, None] * ways
        y = ((draws - location) / scales) @ ways
        along, across = y[:, :n_along], y[:, n_along:]
        powers, left = _polynomial(along, across)
        if left > _LEFT:
            return None
        return cls(location, axes, powers, _fit(along, across, powers))

    def traced(self, slopes: OfPoints, draws: np.ndarray) -> tuple[float, "CurvedRidge"]:
        """Return coordinates fitted to the ridge itself, along the draws and beyond them.

        All draws are some way across it, and they may be of one part of it.  It is followed as far
        as the density is above `_LOW`.  The first result is by how much coordinates miss it, in
        standard deviations of draws across it.
        """
        own, u = self, self.of(draws)
        scales = u[:, self.n_along :].std(axis=0)
        middle = u[:, : self.n_along].mean(axis=0)
        along = u[:_TRACED, : self.n_along] - middle
        misfit = np.inf
        for length in _LENGTHS:
            places = middle + np.concatenate([s * along for s in _LENGTHS if s <= length])
            values, across = own._ridge_at(slopes, places, scales)
            kept = values < values.min() + _LOW
            if _DRAWS_OF_TERM * len(own.powers) > kept.sum():
                break
            places, across = places[kept], across[kept]
            order = np.random.default_rng(0).permutation(len(places))
            powers, _ = _polynomial(places[order], across[order])
            own = replace(own, powers=powers, coefficients=_fit(places, across, powers))
            missed = (across - _terms(places, powers) @ own.coefficients) / scales
            misfit = float(np.abs(missed).max())
        return misfit, own

    def _ridge_at(
        self, slopes: OfPoints, along: np.ndarray, scales: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return negative log-densities (n_points,) of a ridge, and where it is across the axes."""
        density = Density(self.seen_by(slopes))

        def negative(z: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, gradients = negative_of_points(density, np.hstack([along[which], scales * z]))
            return values, scales * gradients[:, self.n_along :]

        starts = np.zeros((len(along), len(scales)))
        ends = climb_together(negative, starts, most_steps=_STEPS_ACROSS, joins=False)
        across = scales * ends.points + _terms(along, self.powers) @ self.coefficients
        return ends.values, across

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
            values, gradients = slopes(self.at(u))
            found = gradients @ self.axes
            across = found[:, self.n_along :] @ self.coefficients.T
            for i in range(self.n_along):
                found[:, i] += (_derivatives(u[:, : self.n_along], self.powers, i) * across).sum(1)
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


def _polynomial(along: np.ndarray, across: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the powers of polynomials, and the share of the variance across that they leave.

    Of what linear terms leave, at draws to which they are not fitted.
    """
    powers, best, linear = _up_to(along.shape[1], 1), 1.0, np.ones(1)
    half = len(along) // 2
    for degree in range(1, _DEGREE + 1):
        more = _up_to(along.shape[1], degree)
        if _DRAWS_OF_TERM * len(more) > half:
            break
        fit = _fit(along[:half], across[:half], more)
        fitted = _terms(along[half:], more) @ fit
        errors = np.square(across[half:] - fitted).mean(axis=0)
        linear = errors if degree == 1 else linear
        left = float((errors / linear).min())
        if left < _BETTER * best:
            powers, best = more, left
    return powers, best


def _up_to(n_dims: int, degree: int) -> np.ndarray:
    """Return the exponents of all terms of some variables up to a degree, (n_terms, n_dims)."""
    chosen = [
        own
        for total in range(degree + 1)
        for own in combinations_with_replacement(range(n_dims), total)
    ]
    return np.array([[own.count(i) for i in range(n_dims)] for own in chosen])
