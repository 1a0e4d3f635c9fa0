"""Normal distributions, with and without heavy tails, and mixtures of them around several modes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import norm
from scipy.stats import t as student_t

from pymc_coresets.numerics import log_standard_normal
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, DenseFactor

#: Degrees of freedom, and share of the draws, of the t component of a normal with `Tails`.  A
#: larger share loses more draws if the posterior is normal; a smaller one bounds the importance
#: weights less.
_DEGREES, _SHARE = 5, 0.1
#: Standard deviations at which a distribution is split, and larger ones that detect heavy tails.
_DISTANCES, _FAR = (1.5, 3.0, 5.0), (10.0, 20.0)


@runtime_checkable
class KnownDensity(Protocol):
    """A distribution on the unconstrained scale with draws and a known density."""

    @property
    def n_products(self) -> float:
        """Approximate cost of a draw, in products."""

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Tails:
    """Heavy tails and skewness that a distribution has in addition to a normal one.

    Parameters
    ----------
    stretch : ndarray of shape (2, n_dims), optional
        Relative widths along the axes of the factor, to the left and to the right.
    heavy : ndarray of int, of shape (n_heavy,), optional
        Axes of the factor along which tails are heavy.
    degrees : ndarray of shape (n_heavy,), optional
        Degrees of freedom along these axes.
    """

    stretch: np.ndarray | None = None
    heavy: np.ndarray | None = None
    degrees: np.ndarray | None = None

    def scales(self, z: np.ndarray) -> np.ndarray:
        """Return the relative width on the side of each entry of z (n_draws, n_dims)."""
        if self.stretch is None:
            return np.ones_like(z)
        scales: np.ndarray = np.where(z > 0, self.stretch[1], self.stretch[0])
        return scales

    def groups(self, which: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Divide draws among the heavy axes: each alone, and all together."""
        if self.heavy is None or self.degrees is None:
            return []
        groups = [np.array([i]) for i in range(len(self.heavy))]
        if len(groups) > 1:
            groups.append(np.arange(len(self.heavy)))
        some = np.array_split(which, len(groups))
        return [(self.heavy[g], self.degrees[g], own) for g, own in zip(groups, some, strict=True)]

    def draw(self, n_draws: int, n_dims: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw in coordinates in which the normal distribution is standard, (n_draws, n_dims)."""
        z = rng.standard_normal((n_draws, n_dims))
        if self.stretch is not None:
            left, right = self.stretch
            is_right = rng.uniform(size=z.shape) < right / (left + right)
            z = np.abs(z) * np.where(is_right, right, -left)
        order, n_wide = rng.permutation(n_draws), round(_SHARE * n_draws)
        wide = order[:n_wide]
        z[wide] *= np.sqrt(_DEGREES / rng.chisquare(_DEGREES, (len(wide), 1)))
        for axes, degrees, some in self.groups(order[n_wide : 2 * n_wide]):
            at = np.ix_(some, axes)
            sizes = np.abs(rng.standard_t(degrees, (len(some), len(axes))))
            z[at] = np.where(z[at] > 0, sizes, -sizes) * self.scales(z)[at]
        return z

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Return its log-density in these coordinates, (n_draws,)."""
        n_dims, stretched = z.shape[1], 0.0
        z = z / self.scales(z)
        if self.stretch is not None:
            stretched = float(np.log(self.stretch.mean(axis=0)).sum())
        squares, normal = np.square(z).sum(axis=1), log_standard_normal(z)
        wide = gammaln((_DEGREES + n_dims) / 2) - gammaln(_DEGREES / 2)
        wide = wide - n_dims / 2 * np.log(_DEGREES * np.pi)
        wide = wide - (_DEGREES + n_dims) / 2 * np.log1p(squares / _DEGREES)
        groups = self.groups(np.arange(0))
        left_over = 1 - _SHARE * (2 if groups else 1)
        parts = [np.log(left_over) + normal, np.log(_SHARE) + wide]
        for axes, degrees, _ in groups:
            gain = student_t.logpdf(z[:, axes], degrees) - norm.logpdf(z[:, axes])
            parts.append(np.log(_SHARE / len(groups)) + normal + gain.sum(axis=1))
        logq: np.ndarray = np.logaddexp.reduce(parts) - stretched
        return logq


@dataclass(frozen=True, eq=False)
class Normal:
    """A normal distribution by the root of its precision, which may be sparse, and its tails.

    With `Tails`, a tenth of it is a t distribution.  Its tails are then heavier than those of a
    posterior of the same mode and curvature, so that importance weights have a finite variance:
    they are at most ten times those of a t distribution alone.  If the posterior is close to
    normal, nearly all draws count, even in many dimensions, in which hardly any draw of a t
    distribution is as near to the mode as those of a normal one.  Along axes on which the posterior
    is known to have heavier tails, another tenth of the draws is from a t distribution of few
    degrees of freedom: along each alone, and along all of them.

    Parameters
    ----------
    location : ndarray of shape (n_dims,)
    factor : CholeskyFactor
        Of its precision.
    tails : Tails, optional
        None for a plain normal distribution.

    Notes
    -----
    With R R' the precision and mu the location, a draw is mu + R'^-1 z, z ~ N(0, I).

    References
    ----------
    Geweke (1989). Bayesian inference in econometric models using Monte Carlo integration.
    Econometrica 57(6), section 5: split-normal importance densities.

    Examples
    --------
    >>> found = Normal(np.ones(2), DenseFactor(np.diag([2.0, 1.0])))
    >>> draws, logq = found.draw(1_000, rng=np.random.default_rng(1))
    >>> draws.mean(axis=0).round(1), draws.std(axis=0).round(1)
    (array([1., 1.]), array([0.5, 1. ]))
    """

    location: np.ndarray
    factor: CholeskyFactor
    tails: Tails | None = None

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return float(len(self.location) ** 2)

    @property
    def n_evaluations(self) -> int:
        """Number of evaluations of a density by `split`."""
        return 2 * len(_DISTANCES + _FAR) * len(self.location)

    @property
    def covariance(self) -> np.ndarray:
        """The inverse of the precision, (n_dims, n_dims)."""
        return self.factor.solve(np.eye(len(self.location)))

    def at(self, z: np.ndarray) -> np.ndarray:
        """Return points from whitened coordinates (n_dims,) or (n, n_dims)."""
        points: np.ndarray = self.location + self.factor.offset(z.T).T
        return points

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return whitened coordinates of points (n_dims,) or (n, n_dims)."""
        return self.factor.whiten(x - self.location)

    def has_near(self, x: np.ndarray) -> bool:
        """Whether a point belongs to the same mode: within two standard deviations."""
        return bool(self.are_near(x[None])[0])

    def are_near(self, points: np.ndarray) -> np.ndarray:
        """Whether each of the points (n_points, n_dims) is so near."""
        found: np.ndarray = np.linalg.norm(self.whiten(points), axis=1) < 2.0
        return found

    def is_near(self, other: "Normal") -> bool:
        """Whether either mode is within two standard deviations of the other."""
        return self.has_near(other.location) or other.has_near(self.location)

    def log_mass(self, height: float) -> float:
        """Return the log of the mass of a density with a given height, up to a constant.

        Laplace's approximation, for a density with this mode and curvature.

        Examples
        --------
        >>> round(Normal(np.zeros(2), DenseFactor(np.diag([1.0, 2.0]))).log_mass(0.0), 3)
        -0.693
        """
        return float(height - self.factor.log_determinant / 2)

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        n_dims = len(self.location)
        if self.tails is not None:
            return self.placed(self.tails.draw(n_draws, n_dims, rng=rng))
        return self.placed(rng.standard_normal((n_dims, n_draws)).T)

    def placed(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of coordinates (n_draws, n_dims), and the log-density there."""
        return self.at(z), self._log_density(z)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Return its log-density at points (n_points, n_dims), in nats."""
        return self._log_density(self.whiten(x))

    def _log_density(self, z: np.ndarray) -> np.ndarray:
        round_ = log_standard_normal(z) if self.tails is None else self.tails.log_density(z)
        logq: np.ndarray = round_ + self.factor.log_determinant / 2
        return logq

    def with_tails(self) -> Self:
        """Return the distribution with a tenth of a t distribution."""
        return replace(self, tails=Tails())

    def split(self, log_density: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Match the widths of a density on either side of the mode: 10 D evaluations at once.

        Along each axis, by the largest of the scales of the density at 1.5, 3 and 5 standard
        deviations.  If it falls even more slowly from there to 10 and 20, the axis is heavy.

        Parameters
        ----------
        log_density : callable
            Takes points (n_points, n_dims), and returns (n_points,), in nats.

        Examples
        --------
        >>> found = heavy_tailed(np.zeros(1), np.eye(1))
        >>> split = found.split(lambda x: np.where(x > 0, -x * x / 8, -x * x / 2)[:, 0])
        >>> split.tails.stretch.round(3)
        array([[1.],
               [2.]])
        >>> found.split(lambda x: -np.log1p(x[:, 0] ** 2)).tails.heavy
        array([0])
        """
        axes = np.eye(len(self.location))
        height = float(log_density(self.location[None])[0])
        distances = np.array(_DISTANCES + _FAR)[:, None]
        with np.errstate(invalid="ignore", over="ignore"):
            below = height - np.array(
                [[log_density(self.at(way * axes)) for way in side * distances] for side in (-1, 1)]
            )
            falls = np.nan_to_num(below[:, -1] - below[:, -2], nan=np.inf)
            # A fall that overflows is one of no width, as one to minus infinity.
            scales = np.nan_to_num(distances / np.sqrt(2 * np.maximum(below, 1e-3)), nan=1.0)
        near, far = np.split(scales, [len(_DISTANCES)], axis=1)
        stretch = np.clip(near.max(axis=1), 0.5, 3.0)
        excess = (far.max(axis=1) / stretch).max(axis=0)
        heaviest = np.argsort(-excess, kind="stable")[:8]
        heavy = np.sort(heaviest[excess[heaviest] > 1.3])
        if not heavy.size:
            return replace(self, tails=Tails(stretch=stretch))
        # A power falls by less than three nats from 10 to 20 standard deviations, an exponential by
        # more.
        degrees = np.where(np.min(falls, axis=0)[heavy] < 3.0, 1.0, 8.0)
        return replace(self, tails=Tails(stretch=stretch, heavy=heavy, degrees=degrees))


def heavy_tailed(location: np.ndarray, root: np.ndarray) -> Normal:
    """Return a normal distribution by a Cholesky factor of its precision, with a tenth of a t.

    Examples
    --------
    >>> found = heavy_tailed(np.zeros(1), np.eye(1))
    >>> draws, logq = found.draw(1_000, rng=np.random.default_rng(1))
    >>> weights = np.exp(-draws[:, 0] ** 2 / 2 - logq)  # of a normal posterior
    >>> bool(weights.sum() ** 2 / (weights**2).sum() > 990)
    True
    """
    return Normal(location, DenseFactor(root), Tails())


@dataclass(frozen=True, eq=False)
class Mixture:
    """Distributions around several modes.

    Parameters
    ----------
    parts : sequence of Normal
    masses : ndarray of shape (n_parts,)
        Shares of the posterior's mass, which sum to one.

    Examples
    --------
    >>> parts = [heavy_tailed(np.full(1, centre), np.eye(1)) for centre in (-10.0, 10.0)]
    >>> mixture = Mixture(parts, np.array([0.9, 0.1]))
    >>> draws, logq = mixture.draw(1_000, rng=np.random.default_rng(1))
    >>> int((draws < 0).sum()), mixture.location
    (700, array([-10.]))
    """

    parts: Sequence[Normal]
    masses: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[Normal], heights: Sequence[float]) -> Self:
        """Weigh distributions around modes of a density by Laplace's approximation of their mass.

        Parameters
        ----------
        parts : sequence of Normal
        heights : sequence of float
            Of the log-density at the modes, in nats up to a constant.
        """
        masses = [part.log_mass(height) for part, height in zip(parts, heights, strict=True)]
        return cls(parts, softmax(masses))

    @property
    def largest(self) -> Normal:
        """The part of most mass."""
        return self.parts[int(np.argmax(self.masses))]

    @property
    def location(self) -> np.ndarray:
        """The mode of the largest part."""
        return self.largest.location

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return len(self.parts) * self.parts[0].n_products

    def split(self, log_density: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Match the widths of a density around each part, see `Normal.split`."""
        return replace(self, parts=[part.split(log_density) for part in self.parts])

    def draw(
        self, n_draws: int, *, rng: np.random.Generator, equally: float = 0.5
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant.

        Part of the draws is divided equally among the modes, so that each has some, whatever its
        mass.
        """
        shares = (1 - equally) * self.masses + equally / len(self.masses)
        borders = np.round(np.cumsum(shares / shares.sum()) * n_draws).astype(np.int64)
        counts = np.diff(borders, prepend=0)
        found = [part.draw(n, rng=rng) for part, n in zip(self.parts, counts, strict=True)]
        if len(found) == 1:
            return found[0]
        draws = np.concatenate([draws for draws, _ in found])[rng.permutation(n_draws)]
        used = [i for i, n in enumerate(counts) if n]
        logs = np.stack([self.parts[i].log_density(draws) for i in used])
        logq: np.ndarray = logsumexp(logs, axis=0, b=counts[used, None] / n_draws)
        return draws, logq
