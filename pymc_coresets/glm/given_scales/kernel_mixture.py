"""A mixture of t distributions around weighted draws of few numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.special import gammaln, logsumexp, softmax

from pymc_coresets.numerics import rows_at_once
from pymc_coresets.sampling.normal import Normal

type Array = np.ndarray

_DEGREES = 5  #: Degrees of freedom: tails are heavier than those of any posterior of log-scales.
#: Share of the draws from wider kernels, which reach into exponential tails, and their width.
_SHARE_WIDE, _WIDE = 0.1, 4.0
#: Share of those from kernels that are long in one coordinate; their length in its units, which are
#: those of a logarithm, and in standard deviations at least and at most.
_SHARE_LONG, _LONG, _LEAST_LONG, _MOST_LONG = 0.1, 1.0, 4.0, 30.0


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelMixture:
    """A kernel density of weighted draws, and a share of the distribution that they are from.

    It follows tails of any shape, and correlations that change: the logarithm of a scale that may
    be zero falls exponentially to one side, where other scales no longer depend on it.  For such
    tails, some kernels are long in one coordinate.

    Parameters
    ----------
    first : Normal
        The distribution that the draws are from.
    centers : ndarray of shape (n, n_dims)
    masses : ndarray of shape (n,)
        Which sum to one.
    roots : ndarray of shape (n_shapes, n_dims, n_dims)
        Lower Cholesky factors of the scale matrices of kernels of each shape.
    shares : ndarray of shape (1 + n_shapes,)
        Of the draws: from the first distribution, and from kernels of each shape.

    References
    ----------
    West (1993). Approximating posterior distributions by mixtures. Journal of the Royal Statistical
    Society B 55(2), whose kernels are t distributions, too.

    Examples
    --------
    >>> from pymc_coresets.sampling.normal import heavy_tailed
    >>> first = heavy_tailed(np.zeros(1), np.eye(1))
    >>> points, logq = first.draw(500, rng=np.random.default_rng(1))
    >>> found = KernelMixture.of(first, points, -np.abs(points[:, 0]) - logq)
    >>> points, logq = found.draw(1_000, rng=np.random.default_rng(2))
    >>> weights = np.exp(-np.abs(points[:, 0]) - logq)
    >>> bool(weights.sum() ** 2 / (weights**2).sum() > 800)
    True
    """

    first: Normal
    centers: Array
    masses: Array
    roots: Array
    shares: Array

    @classmethod
    def of(cls, first: Normal, points: Array, log_weights: Array, *, of_first: float = 0.1) -> Self:
        """Place kernels at draws (n, n_dims) with importance weights, in nats.

        Their width is that of Silverman's rule, for the effective number of draws.  A share
        `of_first` is from the first distribution.

        Raises
        ------
        LinAlgError
            If these are too few for a covariance.
        """
        masses = softmax(log_weights)
        n_dims, size = points.shape[1], 1 / np.square(masses).sum()
        if not size > 1 + n_dims:
            raise LinAlgError("Too few draws have weights for a covariance of them.")
        width = (4 / (n_dims + 2) / size) ** (1 / (n_dims + 4))
        covariance = np.atleast_2d(np.cov(points.T, aweights=masses))
        scale = covariance * width**2 * (_DEGREES - 2) / _DEGREES
        sds = np.sqrt(covariance.diagonal())
        long = np.clip(_LONG, _LEAST_LONG * sds, _MOST_LONG * sds)
        longer = [scale + np.diag(row) for row in np.diag(long**2)]
        left = 1 - of_first
        narrow = [max(left - _SHARE_WIDE - _SHARE_LONG, 0.0), _SHARE_WIDE]
        shares = np.array([of_first, *narrow, *np.full(n_dims, _SHARE_LONG / n_dims)])
        return cls(
            first=first,
            centers=points,
            masses=masses,
            roots=np.linalg.cholesky(np.stack([scale, _WIDE**2 * scale, *longer])),
            shares=shares / shares.sum(),
        )

    @property
    def location(self) -> Array:
        """The mode of the first distribution."""
        return self.first.location

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return draws (n_draws, n_dims), and the log-density there, in nats."""
        borders = np.round(np.cumsum(self.shares) * n_draws).astype(np.int64)
        n_first, *counts = np.diff(borders, prepend=0)
        parts = [self.first.draw(n_first, rng=rng)[0]]
        for root, n in zip(self.roots, counts, strict=True):
            around = self.centers[rng.choice(len(self.masses), n, p=self.masses)]
            z = rng.standard_normal(around.shape)
            z *= np.sqrt(_DEGREES / rng.chisquare(_DEGREES, (n, 1)))
            parts.append(around + z @ root.T)
        points = np.concatenate(parts)[rng.permutation(n_draws)]
        return points, self.log_density(points)

    def log_density(self, points: Array) -> Array:
        """Return the log-density at points (n_points, n_dims), in nats."""
        step = rows_at_once(self.centers.size)
        blocks = range(0, max(len(points), 1), step)
        return np.concatenate([self._of_block(points[i : i + step]) for i in blocks])

    def _of_block(self, points: Array) -> Array:
        """Return the log-density at some points.

        Distances of all pairs are sums of squares and products, about the mode, and kernels are
        powers of them: without logarithms, a pair costs a tenth.
        """
        n_dims = points.shape[1]
        constant = gammaln((_DEGREES + n_dims) / 2) - gammaln(_DEGREES / 2)
        constant -= n_dims / 2 * np.log(_DEGREES * np.pi)
        parts = [np.log(self.shares[0]) + self.first.log_density(points)]
        around = [x - self.location for x in (points, self.centers)]
        for root, share in zip(self.roots, self.shares[1:], strict=True):
            if not share:
                continue
            own, centers = (solve_triangular(root, x.T, lower=True).T for x in around)
            pairs = own @ (-2 / _DEGREES * centers.T)
            pairs += np.square(own).sum(axis=1)[:, None] / _DEGREES
            pairs += np.square(centers).sum(axis=1) / _DEGREES
            pairs += 1.0
            np.maximum(pairs, 1.0, out=pairs)  # rounding
            of_kernels = _inverse_root(pairs, _DEGREES + n_dims) @ self.masses
            with np.errstate(divide="ignore"):  # so far out that they are zero
                logs = np.log(of_kernels) + constant
            parts.append(np.log(share) + logs - np.log(root.diagonal()).sum())
        found: Array = np.logaddexp.reduce(parts)
        return found


def _inverse_root(x: Array, power: int) -> Array:
    """Return 1 / sqrt(x) to a whole power, of numbers that are at least 1.

    Examples
    --------
    >>> _inverse_root(np.array([1.0, 4.0]), 3)
    array([1.   , 0.125])
    """
    step, found = 1 / np.sqrt(x), np.ones_like(x)
    while power:
        if power % 2:
            found *= step
        step *= step
        power //= 2
    return found


@dataclass(frozen=True, eq=False)
class KernelsOfModes:
    """A mixture of such mixtures, or of normal distributions: one around each of some modes.

    Parameters
    ----------
    parts : sequence of KernelMixture or Normal
    masses : ndarray of shape (n_parts,)
        Which sum to one.  Half of the draws are divided equally among the parts.

    Examples
    --------
    >>> from pymc_coresets.sampling.normal import heavy_tailed
    >>> parts = [heavy_tailed(np.full(1, at), np.eye(1)) for at in (-9.0, 9.0)]
    >>> points, logq = KernelsOfModes(parts, np.array([0.9, 0.1])).draw(
    ...     1_000, rng=np.random.default_rng(1)
    ... )
    >>> int((points < 0).sum())
    700
    """

    parts: Sequence[KernelMixture | Normal]
    masses: Array

    @classmethod
    def of(
        cls,
        firsts: Sequence[Normal],
        which: Array,
        points: Array,
        log_weights: Array,
        *,
        of_first: float,
    ) -> Self:
        """Place kernels at draws (n, n_dims), of which each belongs to a mode.

        Around a mode to which too few of them belong remains its first distribution.

        Parameters
        ----------
        firsts : sequence of Normal
            Around the modes, from which the draws are.
        which : ndarray of int, of shape (n,)
            The number of the mode that each draw belongs to.
        points, log_weights, of_first
            See `KernelMixture.of`.

        Raises
        ------
        LinAlgError
            If they are too few around each mode.
        """
        weights, parts, is_alone = softmax(log_weights), list[KernelMixture | Normal](), True
        for number, first in enumerate(firsts):
            own = which == number
            try:
                found = KernelMixture.of(first, points[own], log_weights[own], of_first=of_first)
            except (LinAlgError, ValueError):  # so few have weights, or there are none
                parts.append(first)
            else:
                parts.append(found)
                is_alone = False
        if is_alone:
            raise LinAlgError("Too few draws have weights around each of the modes.")
        return cls(parts, np.bincount(which, weights, len(firsts)))

    @property
    def location(self) -> Array:
        """The mode of the largest part."""
        return self.parts[int(np.argmax(self.masses))].location

    @property
    def _shares(self) -> Array:
        shares: Array = (self.masses + 1 / len(self.masses)) / 2
        return shares

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return draws (n_draws, n_dims), and the log-density there, in nats."""
        borders = np.round(np.cumsum(self._shares) * n_draws).astype(np.int64)
        counts = np.diff(borders, prepend=0)
        drawn = [part.draw(n, rng=rng)[0] for part, n in zip(self.parts, counts, strict=True)]
        points = np.concatenate(drawn)[rng.permutation(n_draws)]
        return points, self.log_density(points)

    def log_density(self, points: Array) -> Array:
        """Return the log-density at points (n_points, n_dims), in nats."""
        logs = np.stack([part.log_density(points) for part in self.parts])
        found: Array = logsumexp(logs, axis=0, b=self._shares[:, None])
        return found
