"""A mixture of t distributions around weighted draws of few numbers."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.special import gammaln, logsumexp, softmax

from pymc_coresets.sampling.normal import Normal

type Array = np.ndarray

_DEGREES = 5  #: Degrees of freedom: tails are heavier than those of any posterior of log-scales.
#: Share of the draws from the distribution that the weighted draws are from; share of those from
#: wider kernels, which reach into exponential tails, and how many times as wide these are.
_SHARE, _SHARE_WIDE, _WIDE = 0.1, 0.15, 4.0


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelMixture:
    """A kernel density of weighted draws, and a tenth of the distribution that they are from.

    It follows tails of any shape, and correlations that change: the logarithm of a scale that may
    be zero falls exponentially to one side.

    Parameters
    ----------
    first : Normal
        The distribution that the draws are from.
    centers : ndarray of shape (n, n_dims)
    masses : ndarray of shape (n,)
        Which sum to one.
    root : ndarray of shape (n_dims, n_dims)
        Lower Cholesky factor of the scale matrix of each kernel.

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
    root: Array

    @classmethod
    def of(cls, first: Normal, points: Array, log_weights: Array) -> Self:
        """Place kernels at draws (n, n_dims) with importance weights, in nats.

        Their width is that of Silverman's rule, for the effective number of draws.

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
        root = np.linalg.cholesky(covariance) * width * np.sqrt((_DEGREES - 2) / _DEGREES)
        return cls(first=first, centers=points, masses=masses, root=root)

    @property
    def location(self) -> Array:
        """The mode of the first distribution."""
        return self.first.location

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return draws (n_draws, n_dims), and the log-density there, in nats."""
        n_first = round(_SHARE * n_draws)
        around = self.centers[rng.choice(len(self.masses), n_draws - n_first, p=self.masses)]
        z = rng.standard_normal(around.shape)
        z *= np.sqrt(_DEGREES / rng.chisquare(_DEGREES, (len(z), 1)))
        z[: round(_SHARE_WIDE * n_draws)] *= _WIDE
        points = np.concatenate([around + z @ self.root.T, self.first.draw(n_first, rng=rng)[0]])
        points = points[rng.permutation(n_draws)]
        return points, self.log_density(points)

    def log_density(self, points: Array) -> Array:
        """Return the log-density at points (n_points, n_dims), in nats."""
        n_dims = len(self.root)
        own, centers = (
            solve_triangular(self.root, x.T, lower=True) for x in (points, self.centers)
        )
        squares = np.square(own[:, :, None] - centers[:, None]).sum(axis=0)
        constant = gammaln((_DEGREES + n_dims) / 2) - gammaln(_DEGREES / 2)
        constant -= n_dims / 2 * np.log(_DEGREES * np.pi) + np.log(self.root.diagonal()).sum()
        parts = [np.log(_SHARE) + self.first.log_density(points)]
        for share, width in ((1 - _SHARE - _SHARE_WIDE, 1.0), (_SHARE_WIDE, _WIDE)):
            log_kernels = -(_DEGREES + n_dims) / 2 * np.log1p(squares / width**2 / _DEGREES)
            of_kernels = logsumexp(log_kernels, axis=1, b=self.masses) + constant
            parts.append(np.log(share) + of_kernels - n_dims * np.log(width))
        found: Array = np.logaddexp.reduce(parts)
        return found
