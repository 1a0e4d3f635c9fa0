"""The marginal posterior of the scales of a hierarchy, all other variables by Laplace."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.factors.cholesky import factor_of
from pymc_coresets.sampling.maximisation.many_starts import minimise_together
from pymc_coresets.sampling.maximisation.one_start import near_mode
from pymc_coresets.sampling.normal import Normal, heavy_tailed
from pymc_coresets.sampling.scales.scale_modes import MarginalModes, marginal_modes, starts_around
from pymc_coresets.sampling.symmetry.local_modes import LocalMode

type Array = np.ndarray
type OfPoints = Callable[[Array], tuple[Array, Array]]

#: Steps of ascents to the others' mode, and of differences there, in standard deviations given the
#: scales; and steps of the scales, in theirs, by which that mode moves.
_MOST_STEPS, _STEP, _MOVED = 40, 1e-3, 0.3
#: Ascents from one mode of the scales that end the search; and standard deviations of the marginal
#: from which the scales of a joint mode are elsewhere.
_FAILURES, _ELSEWHERE = 2, 5.0

_log = logging.getLogger(__name__)


class _ConditionalModes(NamedTuple):
    """All variables at the others' mode given scales, (n_points, n_dims), and densities there.

    Roots of the others' precisions are (n_points, n, n); log-densities (n_points,) are those of
    all variables, minus infinity where there is no mode.
    """

    points: Array
    roots: Array
    heights: Array

    @property
    def log_marginals(self) -> Array:
        """The log-densities of the scales, up to a constant, (n_points,)."""
        diagonals = np.diagonal(self.roots, axis1=1, axis2=2)
        found: Array = self.heights - np.log(diagonals).sum(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class LaplaceGivenScales:
    """A posterior whose prior is normal in all variables but a few, the scales.

    Its density may be far higher where effects and their scale are small, and hold less mass there:
    so modes are those of the marginal of the scales.

    Parameters
    ----------
    density, prior : callable
        Return log-densities at points (n_points, n_dims), and gradients; of the posterior and of
        the prior alone.
    is_scale : ndarray of bool, of shape (n_dims,)
    start : ndarray of shape (n_dims,)
        Where searches for the others' mode begin.
    curvature : ndarray of shape (n, n)
        That of the negative log-likelihood by the others, there.

    References
    ----------
    Rue, Martino, Chopin (2009). Approximate Bayesian inference for latent Gaussian models by using
    integrated nested Laplace approximations. Journal of the Royal Statistical Society B 71(2).
    """

    density: OfPoints
    prior: OfPoints
    is_scale: Array
    start: Array
    curvature: Array

    @classmethod
    def at(cls, density: OfPoints, prior: OfPoints, is_scale: Array, start: Array) -> Self:
        """Begin at a point (n_dims,)."""
        n = int((~is_scale).sum())
        found = cls(density, prior, is_scale, start, np.zeros((n, n)))
        precision = found._prior_precisions(start[None])
        [curvature] = found._curvatures(start[None], precision)
        values, axes = np.linalg.eigh(curvature - precision[0])
        return cls(density, prior, is_scale, start, (axes * np.maximum(values, 0.0)) @ axes.T)

    def log_marginals(self, scales: Array) -> Array:
        """Return the log-densities of scales (n_points, n_scales), up to a constant, in nats."""
        return self.given(scales).log_marginals

    def given(self, scales: Array) -> _ConditionalModes:
        """Find the others' mode and their precision there, given each of some scales."""
        points = np.repeat(self.start[None], len(scales), axis=0)
        points[:, self.is_scale] = scales
        with np.errstate(all="ignore"):  # some scales are far out
            known = self._prior_precisions(points)
            roots, _ = _roots(known + self.curvature)
            points, heights = self._ascended(points, roots)
            roots, is_mode = _roots(self._curvatures(points, known))
        return _ConditionalModes(points, roots, np.where(is_mode, heights, -np.inf))

    def _ascended(self, points: Array, roots: Array) -> tuple[Array, Array]:
        """Ascend by the others, in coordinates in which their precision is about one."""
        free = ~self.is_scale

        def placed(z: Array, which: Array) -> Array:
            moved: Array = points[which].copy()
            moved[:, free] += _solved(roots[which], z, transposed=True)
            return moved

        def negative(z: Array, which: Array) -> tuple[Array, Array]:
            values, slopes = self.density(placed(z, which))
            values, slopes = np.asarray(values), np.asarray(slopes)[:, free]
            return -values, -_solved(roots[which], slopes)

        every = np.arange(len(points))
        _, slopes = self.density(points)
        newton = _solved(roots, np.nan_to_num(np.asarray(slopes)[:, free]))
        starts = np.concatenate([newton, np.zeros_like(newton)])
        both = np.concatenate([every, every])
        better = negative(starts, both)[0].reshape(2, -1)
        better = np.where(np.isfinite(better), better, np.inf)
        starts = np.where((better[0] < better[1])[:, None], newton, 0.0)
        ends = minimise_together(negative, starts, most_steps=_MOST_STEPS, joins=False)
        return placed(ends.points, every), -ends.values

    def _prior_precisions(self, points: Array) -> Array:
        """Return the prior's precisions of the others given the scales, (n_points, n, n)."""
        steps = np.eye(len(self.start))[~self.is_scale]
        return self._differences(self.prior, points, np.repeat(steps[None], len(points), axis=0))

    def _curvatures(self, points: Array, known: Array) -> Array:
        """Return the posterior's, by differences in standard deviations given the scales."""
        diagonals = np.diagonal(known, axis1=1, axis2=2) + self.curvature.diagonal()
        sizes = _STEP / np.sqrt(np.where(diagonals > 0, diagonals, 1.0))
        steps = sizes[:, :, None] * np.eye(len(self.start))[~self.is_scale]
        return self._differences(self.density, points, steps)

    def _differences(self, density: OfPoints, points: Array, steps: Array) -> Array:
        n = steps.shape[1]
        tried = np.concatenate([points[:, None], points[:, None] + steps], axis=1)
        gradients = np.asarray(density(tried.reshape(-1, points.shape[1]))[1])
        gradients = gradients.reshape(len(points), n + 1, -1)[:, :, ~self.is_scale]
        sizes = steps.sum(axis=2)[:, :, None]
        found = -(gradients[:, 1:] - gradients[:, :1]) / sizes
        symmetric: Array = (found + found.transpose(0, 2, 1)) / 2
        return symmetric

    def near(self, start: Normal) -> Normal:
        """Return a normal distribution around the mode of the scales near another one."""
        return near_mode(self.log_marginals, start)

    def local(self, part: Normal) -> LocalMode:
        """Return a mode of all variables, with their curvature, from one of the scales."""
        free, k = ~self.is_scale, int(self.is_scale.sum())
        steps = _MOVED * part.factor.offset(np.eye(k)).T
        every = self.given(part.location + np.concatenate([np.zeros((1, k)), steps, -steps]))
        ahead, behind = np.split(every.points[1:, free], 2)
        moves = np.linalg.solve(2 * steps, ahead - behind).T  # of the others by the scales
        precision = np.empty((len(free), len(free)))
        own, root = part.factor.matrix, every.roots[0]
        across = root @ (root.T @ moves)
        precision[np.ix_(free, free)] = root @ root.T
        precision[np.ix_(free, self.is_scale)] = -across
        precision[np.ix_(self.is_scale, free)] = -across.T
        precision[np.ix_(self.is_scale, self.is_scale)] = own + moves.T @ across
        around = Normal(every.points[0], factor_of(precision)).with_tails()
        return LocalMode(around, float(every.heights[0]), 1)


def modes_given_scales(
    space: Unconstrained,
    some: OfPoints,
    full: OfPoints,
    prior: OfPoints,
    is_scale: Array,
    at: Array,
    *,
    error: float,
    rng: np.random.Generator,
) -> Iterator[tuple[list[LocalMode], MarginalModes]]:
    """Search for modes of the marginal of the scales, unless a joint mode is the only one.

    They are sought with some of the rows, and compared with all.  The joint mode may have scales
    so far from a mode of their marginal that it holds no mass.

    Parameters
    ----------
    space : Unconstrained
    some, full, prior : callable
        Return log-densities, of some rows or all, of all, and of none, and gradients at points
        (n_points, n_dims).
    is_scale : ndarray of bool, of shape (n_dims,)
    at : ndarray of shape (n_dims,)
        A mode of the density, or another point.
    error : float
        Of differences of the density of some rows from those of all, in nats.
    rng : numpy.random.Generator

    Yields
    ------
    list of LocalMode, and MarginalModes
        Of all variables, and of the scales, in the same order.
    """
    try:
        with np.errstate(all="ignore"):
            own = LaplaceGivenScales.at(some, prior, is_scale, at)
            known = own.near(heavy_tailed(at[is_scale], 10 * np.eye(int(is_scale.sum()))))

            def starts_of(part: Normal) -> Array:
                middle = own.given(part.location[None]).points[0]
                return starts_around(space, part, middle, is_scale, rng=rng)

            found = marginal_modes(
                own.log_marginals,
                known.split(own.log_marginals),
                starts_of,
                most_failures=_FAILURES,
                error=error,
            )
            away = float(np.linalg.norm(found.parts[0].whiten(at[is_scale])))
            if len(found) == 1 and found.is_first and away < _ELSEWHERE:
                return
            parts, modes = found.parts, [own.local(part) for part in found.parts]
            if error:
                every = [LaplaceGivenScales.at(full, prior, is_scale, mode.x) for mode in modes]
                parts = [each.near(part) for each, part in zip(every, parts, strict=True)]
                modes = [each.local(part) for each, part in zip(every, parts, strict=True)]
    except (SamplingError, LinAlgError) as failure:
        _log.info("No search for modes of the scales: %s", failure)
    else:
        yield modes, found


def _roots(matrices: Array) -> tuple[Array, Array]:
    """Return lower Cholesky factors (n_points, n, n), and which matrices are definite."""
    n = matrices.shape[1]
    roots, is_definite = np.repeat(np.eye(n)[None], len(matrices), axis=0), []
    for i, matrix in enumerate(matrices):
        try:
            roots[i] = cholesky(matrix, lower=True)
            is_definite.append(True)
        except (LinAlgError, ValueError):  # not definite, or not finite
            is_definite.append(False)
    return roots, np.array(is_definite)


def _solved(roots: Array, values: Array, *, transposed: bool = False) -> Array:
    """Return ``R^-1 x`` or ``R'^-1 x`` for each root and each row of x."""
    trans = "T" if transposed else "N"
    return np.stack(
        [
            solve_triangular(r, x, lower=True, trans=trans, check_finite=False)
            for r, x in zip(roots, values, strict=True)
        ]
    ).reshape(values.shape)
