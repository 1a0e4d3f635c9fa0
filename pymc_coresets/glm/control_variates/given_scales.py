"""Draws from the posterior of a quadratic under a hierarchical prior, with known density."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError

from pymc_coresets.glm.control_variates.hierarchy import Hierarchy, with_entries
from pymc_coresets.reading.quadratic import Curvature, Quadratic
from pymc_coresets.sampling.climbing import near_mode
from pymc_coresets.sampling.normal import Factor, Normal, heavy_tailed

__all__ = ["NormalGivenScales"]

type Array = np.ndarray

_FIRST_SPREAD = 0.1
_OPERATIONS, _FASTER = 2e10, 10  # of all decompositions: some seconds
_LEAST_SCALES, _SHARED = 64, 3  # draws, and of so many one at least, however dear


@dataclass(frozen=True, eq=False)
class NormalGivenScales:
    """The posterior of a quadratic under a hierarchical prior, with known density.

    Exact but for the marginal of the scales, whose draws importance weights correct: they come
    from a normal distribution around its mode, a little wider and skewed as it is.

    Parameters
    ----------
    hierarchy : Hierarchy
    quadratic : Quadratic
        Of the same coefficients.
    scales : Normal
        Near the marginal posterior of the scales.
    n_operations : float
        Several draws have the same scales where decompositions would take more multiplications than
        that.
    metric : Factor, optional
        Of the precision in the midst of the posterior, for NUTS.
    order : ndarray of int, optional
        See `Factor`.

    Examples
    --------
    >>> from pymc_coresets.glm.control_variates.hierarchy import find_hierarchy
    >>> hierarchy = find_hierarchy(
    ...     lambda x: (-np.square(x).sum(axis=1) / 2, -x), lambda x: x, np.zeros(2),
    ...     [np.array([0, 1])],
    ... )
    >>> quadratic = Quadratic(
    ...     names=("a", "b"), center=np.ones(2), slope=np.zeros(2), curvature=-3 * np.eye(2)
    ... )
    >>> found = NormalGivenScales.of(hierarchy, quadratic)
    >>> found.mode
    array([0.75, 0.75])
    >>> found.draw(10_000, rng=np.random.default_rng(1))[0].std(axis=0).round(1)
    array([0.5, 0.5])
    """

    hierarchy: Hierarchy
    quadratic: Quadratic
    scales: Normal
    n_operations: float = _OPERATIONS
    metric: Factor | None = None
    order: Array | None = None

    @classmethod
    def of(cls, hierarchy: Hierarchy, quadratic: Quadratic, like: Self | None = None) -> Self:
        """Find the mode of the marginal posterior of the scales, and the curvature there.

        Parameters
        ----------
        hierarchy : Hierarchy
        quadratic : Quadratic
        like : NormalGivenScales, optional
            That of a similar quadratic: the search begins there.

        Raises
        ------
        SamplingError
            If there is no mode.
        """
        first = hierarchy.reference[hierarchy.is_scale]
        start, order = heavy_tailed(first, np.eye(len(first)) / _FIRST_SPREAD), None
        if like is not None:
            start, order = like.scales, like.order
        found = cls(hierarchy, quadratic, start, order=order)
        found = replace(found, order=found.given_mode.factor.order)
        if not len(first):
            return found
        found = replace(found, scales=near_mode(found.log_marginals, start))
        each = found._n_operations_each  # noqa: SLF001 (of its own class)
        if found.scales.n_evaluations * each <= found.n_operations:
            found = replace(found, scales=found.scales.split(found.log_marginals))
        return found

    @property
    def mode(self) -> Array:
        """That of the scales, and of the rest given these: (n_dims,)."""
        is_scale = self.hierarchy.is_scale
        mode = np.empty(len(is_scale))
        mode[is_scale], mode[~is_scale] = self.scales.location, self.given_mode.location
        return mode

    @cached_property
    def given_mode(self) -> Normal:
        """The other coordinates, given the mode of the scales."""
        return next(self._given(self.scales.location[None]))[0]

    def log_marginals(self, scales: Array) -> Array:
        """Return the log-densities of scales (n_points, n_scales), up to a constant, in nats."""
        return np.array([log_marginal for _, log_marginal in self._given(scales)])

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant.

        Where decompositions take long, several draws have the same scales.
        """
        is_scale, points = self.hierarchy.is_scale, np.empty((n_draws, len(self.reference)))
        logq, n_scales = np.empty(n_draws), self._n_scales(n_draws)
        at, of_scales = self.scales.draw(n_scales, rng=rng)
        parts = np.array_split(rng.permutation(n_draws), n_scales)
        given = (normal for normal, _ in self._given(at))
        for which, scales, logs, normal in zip(parts, at, of_scales, given, strict=True):
            points[np.ix_(which, is_scale)] = scales
            z = rng.standard_normal((len(which), len(normal.location)))
            points[np.ix_(which, ~is_scale)], own = normal.placed(z)
            logq[which] = logs + own
        return points, logq

    @property
    def reference(self) -> Array:
        """A point, (n_dims,)."""
        return self.hierarchy.reference

    @property
    def n_products(self) -> float:
        """See `KnownDensity`; LAPACK's take a tenth of the time of others."""
        return len(self.reference) ** 2 + self._n_operations_each / _FASTER

    @property
    def _n_operations_each(self) -> float:
        """Operations for a draw of the scales, if there are any."""
        return self.given_mode.factor.n_operations if len(self.scales.location) else 0.0

    def _n_scales(self, n_draws: int) -> int:
        if not len(self.scales.location):
            return 1
        least = min(_LEAST_SCALES, n_draws // _SHARED)
        return int(np.clip(self.n_operations / self._n_operations_each, least, n_draws))

    def _given(self, scales: Array) -> Iterator[tuple[Normal, float]]:
        """Return the other coordinates given each of some scales, and the scales' log-marginal.

        Completes the square: what is quadratic has its maximum a Newton step away.
        """
        places, own = self.hierarchy.slopes, self.quadratic
        start = self.reference[~self.hierarchy.is_scale]
        for some in self.hierarchy.expanded(scales):
            values = some.values + own.at(some.coefficients)
            for i, pull in enumerate(own.slopes_at(some.coefficients)):
                slopes, of_rows = places, self._of_rows
                if some.slopes is not None:
                    slopes = with_entries(places, some.slopes[i])
                    of_rows = self._seen_by(slopes)
                gradient = some.gradients[i] + slopes @ pull
                try:
                    factor = Factor(self._with_prior(of_rows, some.precisions[i]), self.order)
                    step = factor.solve(gradient)
                except (LinAlgError, ValueError):  # not definite, or not finite
                    yield Normal(start, Factor(np.eye(len(start)))), -np.inf
                    continue
                highest = values[i] + gradient @ step / 2
                log_marginal = float(highest - factor.log_determinant / 2)
                yield Normal(start + step, factor), np.nan_to_num(log_marginal, nan=-np.inf)

    @cached_property
    def _of_rows(self) -> Curvature:
        """Where the coefficients' derivatives do not depend on the scales."""
        return self._seen_by(self.hierarchy.slopes)

    def _seen_by(self, slopes: sparse.csr_array) -> Curvature:
        found: Curvature = slopes @ -self.quadratic.curvature @ slopes.T
        return found

    def _with_prior(self, of_rows: Curvature, entries: Array) -> Curvature:
        places = self.hierarchy.pattern
        if not isinstance(of_rows, np.ndarray):
            return sparse.csr_array(of_rows + with_entries(places, entries))
        total = of_rows.copy()
        total[np.repeat(np.arange(len(total)), np.diff(places.indptr)), places.indices] += entries
        return total
