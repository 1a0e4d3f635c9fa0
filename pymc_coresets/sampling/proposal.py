"""Draws from near the posterior of all rows, before there is any coreset."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import norm
from scipy.stats import t as student_t

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.unconstrained import Density
from pymc_coresets.sampling.laplace import LaplaceApproximation

_DEGREES, _SHARE = 5, 0.1  # of freedom of the t distribution, and its share of the draws
_DISTANCES, _FAR = (1.5, 3.0, 5.0), (10.0, 20.0)  # standard deviations
_HEAVIER, _MOST_HEAVY = 1.3, 8  # times as far as it extends closer by; axes where it does
_SLOW = 3.0  # nats from 10 to 20 standard deviations: less is a power, more an exponential
_POWER, _EXPONENTIAL = 1.0, 8.0  # degrees of freedom for these
_LEAST_BELOW, _STRETCHES = 1e-3, (0.5, 3.0)
_CLOSE = 0.1  # of a posterior standard deviation: the largest gradient at the mode
_STEPS = (0.1, 0.01, 0.001)  # the same, for differences of gradients: on curved ridges, shorter
_STEEPER = 25.0  # times the curvature that steps are made for: they are half a scale long
_MOST_SCALES = 5
_MOST_STEPS = 200
_MOST_HALVINGS = 20


@runtime_checkable
class KnownDensity(Protocol):
    """A distribution on the unconstrained scale that has draws with a density."""

    @property
    def n_products(self) -> float:
        """About how many products a draw takes, or could take in that time."""

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""


def improve(start: LaplaceApproximation, space: Density) -> np.ndarray:
    """Find the mode of another density from the mode and the curvature of one like it.

    In coordinates in which the curvature is that of a standard normal, a step along the gradient
    leads near the mode, and BFGS takes a few more.

    Parameters
    ----------
    start : LaplaceApproximation
        Of the posterior of some of the rows.
    space : Density
        With the density of all rows.

    Returns
    -------
    ndarray of shape (n_dims,)

    Raises
    ------
    SamplingError
        If there is no mode nearby.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.reading.unconstrained import Unconstrained
    >>> with pm.Model() as few:
    ...     mu = pm.Normal("mu", 2.0, 0.6)
    >>> with pm.Model() as all_rows:
    ...     mu = pm.Normal("mu", 2.5, 0.5)
    >>> start = LaplaceApproximation.of(Unconstrained(few))
    >>> improve(start, Unconstrained(all_rows)).round(1)
    array([2.5])
    """
    negative = start.whitened(space.logp_and_gradient)
    z = np.zeros(len(start.mode))
    value, slope = negative(z)
    for halvings in range(_MOST_HALVINGS):
        tried = -slope / 2**halvings
        if negative(tried)[0] < value:
            z = tried
            break
    found = minimize(
        negative, z, jac=True, method="BFGS", options={"gtol": _CLOSE, "maxiter": _MOST_STEPS}
    )
    if not (np.isfinite(found.fun) and np.abs(found.jac).max() < 1.0):
        raise SamplingError(f"No mode of the posterior of all rows was found ({found.message}).")
    mode: np.ndarray = start.mode + start.offset(found.x)
    return mode


@dataclass(frozen=True, eq=False)
class HeavyTailed:
    """A normal distribution with the mode and curvature of a posterior, and a tenth of a t.

    Its tails are heavier than the posterior's, so that importance weights have a variance: beside
    those of a t distribution alone, they are ten times as large at most.  Where the posterior is
    close to normal, nearly all draws count, also in many dimensions, in which hardly any draw of a
    t distribution is as near to the mode as those of a normal one.  Along axes on which the
    posterior is known to have heavier tails, another tenth of the draws is of a t distribution of
    few degrees of freedom: along each alone, and along all of them.

    Parameters
    ----------
    location : ndarray of shape (n_dims,)
    factor : ndarray of shape (n_dims, n_dims)
        Lower Cholesky factor of the precision.
    stretch : ndarray of shape (2, n_dims), optional
        How much further it extends along the axes of the factor, to the left and to the right.
    heavy : ndarray of int, of shape (n_heavy,), optional
        Axes of the factor along which tails are heavy.
    degrees : ndarray of shape (n_heavy,), optional
        Of freedom there.

    References
    ----------
    Geweke (1989). Bayesian inference in econometric models using Monte Carlo integration.
    Econometrica 57(6), section 5: split-normal importance densities.

    Examples
    --------
    >>> found = HeavyTailed(np.zeros(1), np.eye(1))
    >>> draws, logq = found.draw(1_000, rng=np.random.default_rng(1))
    >>> weights = np.exp(-draws[:, 0] ** 2 / 2 - logq)  # of a normal posterior
    >>> bool(weights.sum() ** 2 / (weights**2).sum() > 990)
    True
    """

    location: np.ndarray
    factor: np.ndarray
    stretch: np.ndarray | None = None
    heavy: np.ndarray | None = None
    degrees: np.ndarray | None = None

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return float(len(self.location) ** 2)

    @property
    def n_evaluations(self) -> int:
        """Of a density, to split it."""
        return 2 * len(_DISTANCES + _FAR) * len(self.location)

    def split(self, log_density: Callable[[np.ndarray], np.ndarray]) -> "HeavyTailed":
        """Extend it as far as a density does to either side of the mode: 10 D evaluations at once.

        Along each axis, by the largest of the scales that the density has at 1.5, 3 and 5 standard
        deviations.  Where it falls more slowly still from there to 10 and 20, the axis is heavy.

        Parameters
        ----------
        log_density : callable
            Takes points (n_points, n_dims), and returns (n_points,), in nats.

        Examples
        --------
        >>> found = HeavyTailed(np.zeros(1), np.eye(1))
        >>> found.split(lambda x: np.where(x > 0, -x * x / 8, -x * x / 2)[:, 0]).stretch.round(3)
        array([[1.],
               [2.]])
        >>> found.split(lambda x: -np.log1p(x[:, 0] ** 2)).heavy
        array([0])
        """
        axes = np.eye(len(self.location))
        height = float(log_density(self.location[None])[0])
        near, far, falls = [], [], []
        for side in (-1.0, 1.0):
            scales, below = [], np.zeros(len(axes))
            for distance in (*_DISTANCES, *_FAR):
                x = self.location + _offset(self.factor, side * distance * axes).T
                with np.errstate(invalid="ignore", over="ignore"):
                    before, below = below, height - log_density(x)
                scale = distance / np.sqrt(2 * np.maximum(below, _LEAST_BELOW))
                scales.append(np.nan_to_num(scale, nan=1.0))
            near.append(np.max(scales[: len(_DISTANCES)], axis=0))
            far.append(np.max(scales[len(_DISTANCES) :], axis=0))
            with np.errstate(invalid="ignore"):
                falls.append(np.nan_to_num(below - before, nan=np.inf))
        stretch = np.clip(near, *_STRETCHES)
        excess = np.max(far / stretch, axis=0)
        heaviest = np.argsort(-excess, kind="stable")[:_MOST_HEAVY]
        heavy = np.sort(heaviest[excess[heaviest] > _HEAVIER])
        if not heavy.size:
            return replace(self, stretch=stretch, heavy=None, degrees=None)
        degrees = np.where(np.min(falls, axis=0)[heavy] < _SLOW, _POWER, _EXPONENTIAL)
        return replace(self, stretch=stretch, heavy=heavy, degrees=degrees)

    @classmethod
    def around(
        cls, mode: np.ndarray, like: LaplaceApproximation, space: Density, *, polish: bool
    ) -> "HeavyTailed":
        """Take the curvature of a density near its mode, by 2 D gradients.

        By 2 D more where it is much steeper than the other one, as if that lacked the few rows that
        determine a coefficient: differences are then taken again, within its own scale.

        Parameters
        ----------
        mode : ndarray of shape (n_dims,)
            As `improve` found it.
        like : LaplaceApproximation
            Of a similar curvature: says how far a standard deviation is.
        space : Density
            With the density.
        polish : bool
            Whether that is its own mode, so that a Newton step leads nearer to it.

        Raises
        ------
        SamplingError
            If the curvature is not negative definite.
        """
        factor = like.factor
        for _ in range(_MOST_SCALES):
            curvature, middle, root = _definite_curvature(mode, factor, space)
            like_factor, factor = factor, factor @ root
            if curvature.diagonal().max() < _STEEPER:
                break
        if polish:
            mode = mode + _offset(like_factor, cho_solve((root, True), middle))
        return cls(mode, factor)

    @property
    def covariance(self) -> np.ndarray:
        """The inverse of the precision, (n_dims, n_dims)."""
        covariance: np.ndarray = cho_solve((self.factor, True), np.eye(len(self.location)))
        return covariance

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        z = rng.standard_normal((n_draws, len(self.location)))
        if self.stretch is not None:
            left, right = self.stretch
            is_right = rng.uniform(size=z.shape) < right / (left + right)
            z = np.abs(z) * np.where(is_right, right, -left)
        order, n_wide = rng.permutation(n_draws), round(_SHARE * n_draws)
        wide = order[:n_wide]
        z[wide] *= np.sqrt(_DEGREES / rng.chisquare(_DEGREES, (len(wide), 1)))
        for axes, degrees, some in self._heavy_parts(order[n_wide : 2 * n_wide]):
            at = np.ix_(some, axes)
            sizes = np.abs(rng.standard_t(degrees, (len(some), len(axes))))
            z[at] = np.where(z[at] > 0, sizes, -sizes) * self._scales(z)[at]
        draws = self.location + solve_triangular(self.factor, z.T, lower=True, trans="T").T
        return draws, self._log_density(z)

    def _heavy_parts(self, which: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Share draws among the heavy axes: of each alone, and of all together."""
        if self.heavy is None or self.degrees is None:
            return []
        groups = [np.array([i]) for i in range(len(self.heavy))]
        if len(groups) > 1:
            groups.append(np.arange(len(self.heavy)))
        some = np.array_split(which, len(groups))
        return [(self.heavy[g], self.degrees[g], own) for g, own in zip(groups, some, strict=True)]

    def _scales(self, z: np.ndarray) -> np.ndarray:
        if self.stretch is None:
            return np.ones_like(z)
        scales: np.ndarray = np.where(z > 0, self.stretch[1], self.stretch[0])
        return scales

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return its log-density at points (n_points, n_dims), up to a constant of D alone."""
        return self._log_density((x - self.location) @ self.factor)

    def _log_density(self, z: np.ndarray) -> np.ndarray:
        scales, n_dims = np.log(np.diag(self.factor)).sum(), z.shape[1]
        if self.stretch is not None:
            z = z / self._scales(z)
            scales = scales - np.log(self.stretch.mean(axis=0)).sum()
        squares = np.square(z).sum(axis=1)
        normal = -(squares + n_dims * np.log(2 * np.pi)) / 2
        wide = gammaln((_DEGREES + n_dims) / 2) - gammaln(_DEGREES / 2)
        wide = wide - n_dims / 2 * np.log(_DEGREES * np.pi)
        wide = wide - (_DEGREES + n_dims) / 2 * np.log1p(squares / _DEGREES)
        groups = self._heavy_parts(np.arange(0))
        left_over = 1 - _SHARE * (2 if groups else 1)
        parts = [np.log(left_over) + normal, np.log(_SHARE) + wide]
        for axes, degrees, _ in groups:
            gain = student_t.logpdf(z[:, axes], degrees) - norm.logpdf(z[:, axes])
            parts.append(np.log(_SHARE / len(groups)) + normal + gain.sum(axis=1))
        logq: np.ndarray = np.logaddexp.reduce(parts) + scales
        return logq


def _definite_curvature(
    mode: np.ndarray, factor: np.ndarray, space: Density
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `_curvature` does, and the Cholesky factor, by the longest steps that have one.

    Where a scale multiplies what is well determined, a step of a part of its own leaves the ridge.
    """
    for step in _STEPS:
        curvature, middle = _curvature(mode, factor, space, step)
        try:
            return curvature, middle, cholesky(curvature, lower=True)
        except (LinAlgError, ValueError):
            continue
    raise SamplingError(
        "The posterior of all rows has no proper mode: its curvature is not negative definite "
        "where the search ended."
    )


def _curvature(
    mode: np.ndarray, factor: np.ndarray, space: Density, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the negative Hessian in the coordinates of a factor, and the mean gradient nearby."""
    steps = step * np.eye(len(mode))
    gradients = space.gradients(mode + _offset(factor, np.concatenate([steps, -steps]).T).T)
    if not np.isfinite(gradients).all():
        raise SamplingError("The gradient is infinite near the mode of the posterior.")
    above, below = np.split(solve_triangular(factor, gradients.T, lower=True).T, 2)
    curvature = (below - above) / (2 * step)
    return (curvature + curvature.T) / 2, ((above + below) / 2).mean(axis=0)


def _offset(factor: np.ndarray, z: np.ndarray) -> np.ndarray:
    offset: np.ndarray = solve_triangular(factor, z, lower=True, trans="T")
    return offset
