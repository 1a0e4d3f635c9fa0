"""Distributions around several modes: what draws come from, and their densities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import logsumexp, softmax

from pymc_coresets.diagnostics.importance import pareto_smooth, systematic_resample
from pymc_coresets.diagnostics.judging import NEARLY_ALL
from pymc_coresets.diagnostics.known_posterior import possible
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.laplace import LaplaceApproximation
from pymc_coresets.sampling.mode_search import SAME, log_mass
from pymc_coresets.sampling.proposal import HeavyTailed

_PROPOSALS = (2, 10)  # for each draw by importance sampling
_PRODUCTS = 2**28  # of numbers, for all of them


@dataclass(frozen=True, eq=False)
class Mixture:
    """Distributions around several modes; half of the draws are shared equally among them.

    The equal half is for those who need to know a density around each of the modes, however small
    its mass is.

    Parameters
    ----------
    parts : sequence of HeavyTailed
    masses : ndarray of shape (n_parts,)
        Shares of the posterior's mass, which sum to one.

    Examples
    --------
    >>> parts = [HeavyTailed(np.full(1, centre), np.eye(1)) for centre in (-10.0, 10.0)]
    >>> mixture = Mixture(parts, np.array([0.9, 0.1]))
    >>> draws, logq = mixture.draw(1_000, rng=np.random.default_rng(1))
    >>> int((draws < 0).sum()), mixture.covariance
    (700, array([[1.]]))
    """

    parts: Sequence[HeavyTailed]
    masses: np.ndarray

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return len(self.parts) * self.parts[0].n_products

    def split(self, log_density: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Extend each part as far as a density does, see `HeavyTailed.split`."""
        return replace(self, parts=[part.split(log_density) for part in self.parts])

    @property
    def covariance(self) -> np.ndarray:
        """That around a mode, the mean over all modes, (n_dims, n_dims)."""
        covariances = np.stack([part.covariance for part in self.parts])
        covariance: np.ndarray = np.tensordot(self.masses, covariances, axes=1)
        return covariance

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        shares = (self.masses + 1 / len(self.masses)) / 2
        counts = _counts(shares, n_draws)
        found = [part.draw(n, rng=rng) for part, n in zip(self.parts, counts, strict=True)]
        if len(found) == 1:
            return found[0]
        draws = np.concatenate([draws for draws, _ in found])[rng.permutation(n_draws)]
        return draws, _log_mixture([part.log_density(draws) for part in self.parts], counts)


@dataclass(frozen=True, eq=False)
class LaplaceMixture:
    """Normal distributions around modes of one density, by their masses.

    Parameters
    ----------
    parts : sequence of LaplaceApproximation
        Of the same space, at least one.
    masses : ndarray of shape (n_parts,)
        Which sum to one.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 2.0, 0.5)
    >>> found = LaplaceMixture.of(Unconstrained(model))
    >>> len(found.parts), found.draw(10, rng=np.random.default_rng(1)).shape
    (1, (10, 1))
    """

    parts: Sequence[LaplaceApproximation]
    masses: np.ndarray

    @classmethod
    def of(cls, space: Unconstrained, starts: Sequence[np.ndarray] = ()) -> Self:
        """Find the modes that some points lead to; the initial point where there are none.

        Raises
        ------
        SamplingError
            If none of them leads to a mode.
        """
        parts: list[LaplaceApproximation] = []
        for start in starts or [space.start]:
            try:
                found = LaplaceApproximation.of(space, start)
            except SamplingError:
                if len(starts) < 2:
                    raise
                continue
            if all(np.linalg.norm(p.factor.T @ (found.mode - p.mode)) > SAME for p in parts):
                parts.append(found)
        if not parts:
            raise SamplingError("None of the modes of all rows is near one of the coreset's.")
        if len(parts) == 1:
            return cls(parts, np.ones(1))
        logp = space.logp_and_gradient
        return cls(parts, softmax([log_mass(logp(p.mode)[0], p.factor) for p in parts]))

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw from the approximation itself: (n_draws, n_dims)."""
        return self._positions(n_draws, rng)[0]

    def corrected(
        self,
        n_draws: int,
        log_density: Callable[[np.ndarray], np.ndarray],
        *,
        n_products: int = 0,
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        """Draw from the posterior, (n_draws, n_dims); None where importance sampling is not sound.

        Evaluates `log_density`, of which a point takes so many products, at two to ten times as
        many points at once.  Sound means a Pareto k-hat of at most 0.7, and an effective sample
        size of at least half the draws (Vehtari et al. 2024).
        """
        cheap = _PRODUCTS // (n_draws * max(n_products, 1))
        n = n_draws * int(np.clip(cheap, *_PROPOSALS))
        if len(self.parts) == 1:
            [part] = self.parts
            around = HeavyTailed(part.mode, part.factor)
            if around.n_evaluations * n_products <= _PRODUCTS:
                around = around.split(log_density)
            x, logq = around.draw(n, rng=rng)
        else:
            x, logq = self._positions(n, rng)
        return resampled(x, log_density(x) - logq, n_draws, rng=rng)

    def _positions(self, n_draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        z = rng.standard_normal((len(self.parts[0].mode), n_draws))
        if len(self.parts) == 1:
            [part] = self.parts
            return part.mode + part.offset(z).T, -np.square(z).sum(axis=0) / 2
        counts = _counts(self.masses, n_draws)
        which = rng.permutation(np.repeat(np.arange(len(counts)), counts))
        x = np.empty(z.T.shape)
        for i, part in enumerate(self.parts):
            x[which == i] = part.mode + part.offset(z[:, which == i]).T
        return x, _log_mixture([part.log_density(x) for part in self.parts], counts)


def resampled(
    x: np.ndarray, log_weights: np.ndarray, n_draws: int, *, rng: np.random.Generator
) -> np.ndarray | None:
    """Choose some of the points (n_points, n_dims) by their weights; None where that is not sound.

    Points whose log-weights are not finite are never chosen.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(1_000, 1))
    >>> resampled(x, x[:, 0] / 2, 500, rng=rng).mean().round(1)
    np.float64(0.5)
    >>> resampled(x, 5 * x[:, 0], 500, rng=rng) is None
    True
    """
    kept = possible(log_weights)
    if kept is None:
        return None
    smoothed = pareto_smooth(log_weights[None, kept])
    # Of weights that are nearly equal, or come in groups, the tail says nothing.
    if not (smoothed.sound or smoothed.ess >= NEARLY_ALL * len(x)):
        return None
    chosen: np.ndarray = x[kept[systematic_resample(smoothed.weights[0], n_draws, rng=rng)]]
    return chosen


def _counts(shares: np.ndarray, n_draws: int) -> np.ndarray:
    """Return how many of the draws each part has: as its share, up to one."""
    borders = np.round(np.cumsum(shares / shares.sum()) * n_draws).astype(np.int64)
    return np.diff(borders, prepend=0)


def _log_mixture(log_densities: Sequence[np.ndarray], counts: np.ndarray) -> np.ndarray:
    """Return the log-density of a mixture of which each part has so many draws."""
    used = [i for i, n in enumerate(counts) if n]
    logq: np.ndarray = logsumexp(
        np.stack([log_densities[i] for i in used]), axis=0, b=counts[used, None]
    )
    return logq
