"""Hierarchical priors, normal given a few scales, and posteriors of quadratics under them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError
from scipy.sparse.linalg import splu

from pymc_coresets.deadline import paced
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.control_variates.precisions import (
    Precisions,
    decomposition_of,
    with_entries,
)
from pymc_coresets.glm.control_variates.sparse_derivatives import affine_derivatives
from pymc_coresets.glm.given_scales.kernel_mixture import KernelsOfModes
from pymc_coresets.glm.given_scales.normal_rows import NormalRows
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.reading.quadratic import Curvature, Quadratic
from pymc_coresets.sampling.factors.cholesky import (
    CholeskyFactor,
    Decomposition,
    DenseFactor,
    factor_of,
)
from pymc_coresets.sampling.maximisation.one_start import near_mode
from pymc_coresets.sampling.normal import Mixture, Normal, heavy_tailed
from pymc_coresets.sampling.scales.which_scales import (
    REACHES,
    ROUNDING,
    are_quadratic,
    fewest_scales,
    is_affine,
    ruling,
)

type Array = np.ndarray
type OfPoints = Callable[[Array], Array]

#: Precision that coordinates of a flat prior have for its mean, and log-densities whose rounding
#: exceeds a thousandth of a nat.
_FLAT, _LOST = 1e-10, 1e12
#: Entries in a row of the prior's precision from which its coordinate has a color of its own.
_WIDE = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Hierarchy:
    """A prior that is normal in some coordinates given the others, which are called scales here.

    Given the scales, coefficients are affine in the normal coordinates.  Examples are effects of
    unknown scale, centred or not, and, without scales, independent normal coefficients.

    Parameters
    ----------
    prior : callable
        Returns its log-densities at points (n_points, n_dims), and their gradients.
    coefficients : callable
        Returns the coefficients of a quadratic, (n_points, p).
    reference : ndarray of shape (n_dims,)
        Point around which both are expanded.
    is_scale : ndarray of bool, of shape (n_dims,)
    pattern : csr_array of shape (n_normal, n_normal)
        Has an entry for each possible entry of the prior's curvature.
    slopes : csr_array of shape (n_normal, p)
        Derivatives of the coefficients; if `moves`, only their sparsity pattern is used.
    moves : bool
        Whether the derivatives depend on the scales.
    """

    prior: Callable[[Array], tuple[Array, Array]]
    coefficients: OfPoints
    reference: Array
    is_scale: Array
    pattern: sparse.csr_array
    slopes: sparse.csr_array
    moves: bool

    @property
    def rules_precision(self) -> Array:
        """Which scales the prior's precision of the others depends on, (n_dims,).

        As they go to zero together with effects, the density is unbounded.
        """
        return ruling(lambda points: self.prior(points)[1], self.reference, self.is_scale)

    @cached_property
    def colors(self) -> Array:
        """Colors of coordinates, (n_normal,); those of the same color share no row of `pattern`.

        Wide rows excepted, such as those of a mean of all effects: their coordinates have colors of
        their own, and the entries that others have in them follow by symmetry.
        """
        narrow = sparse.diags_array((~self._is_wide).astype(float))
        entries = sparse.csr_array(abs(self.pattern) @ narrow)
        if self.moves:
            entries = sparse.csr_array(sparse.hstack([entries, abs(self.slopes)]))
        meet = sparse.csr_array(entries @ entries.T)
        colors = np.full(meet.shape[0], -1)
        for i in range(len(colors)):
            if self._is_wide[i]:
                continue
            taken = set(colors[meet.indices[meet.indptr[i] : meet.indptr[i + 1]]])
            colors[i] = next(color for color in range(len(colors)) if color not in taken)
        alone = np.flatnonzero(self._is_wide)
        colors[alone] = 1 + colors.max(initial=-1) + np.arange(len(alone))
        return colors

    @cached_property
    def _is_wide(self) -> Array:
        """Which rows of `pattern` have many entries."""
        found: Array = np.diff(self.pattern.indptr) > _WIDE
        return found

    def expanded(self, scales: Array) -> Iterator["_Expansion"]:
        """Expand prior and coefficients at draws of the scales, (n_draws, n_scales), in parts."""
        probes = np.zeros((2 + self.colors.max(initial=-1), len(self.reference)))
        probes[1 + self.colors, np.flatnonzero(~self.is_scale)] = 1.0
        step = min(256, rows_at_once(probes.size))
        for first in range(0, len(scales), step):
            some = scales[first : first + step]
            points = np.repeat((self.reference + probes)[None], len(some), axis=0)
            points[:, :, self.is_scale] = some[:, None]
            shape, flat = points.shape[:2], points.reshape(-1, points.shape[2])
            values, gradients = self.prior(flat)
            gradients = gradients[:, ~self.is_scale].reshape(*shape, -1)
            seen = self.coefficients(flat if self.moves else points[:, 0])
            seen = seen.reshape(len(some), -1, self.slopes.shape[1])
            precision = self._differences(self.pattern, -gradients)
            slopes = [self.slopes] * len(some)
            if self.moves:
                slopes = [
                    with_entries(self.slopes, own) for own in self._differences(self.slopes, seen)
                ]
            yield _Expansion(
                values=values.reshape(shape)[:, 0],
                gradients=gradients[:, 0],
                precisions=self._symmetric(precision),
                coefficients=seen[:, 0],
                slopes=slopes,
            )

    def _differences(self, places: sparse.csr_array, values: Array) -> Array:
        """Gather derivatives by coordinate from values at the probes, (B, 1 + n_colors, n)."""
        row = np.repeat(self.colors, np.diff(places.indptr))
        with np.errstate(invalid="ignore"):  # where both are infinite
            found: Array = values[:, 1 + row, places.indices] - values[:, 0, places.indices]
        return found

    def _symmetric(self, entries: Array) -> Array:
        """Average entries in `pattern`, (B, n), with those across the diagonal that are known."""
        mirrored = entries[:, self._mirrored]
        row = np.repeat(self._is_wide, np.diff(self.pattern.indptr))
        column = self._is_wide[self.pattern.indices]
        average: Array = (entries + mirrored) / 2
        return np.where(row == column, average, np.where(row, entries, mirrored))

    @cached_property
    def _mirrored(self) -> Array:
        """Positions of the transposed entries of `pattern`."""
        numbers = np.arange(self.pattern.nnz)
        return np.asarray(with_entries(self.pattern, numbers).T.tocsr().data)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Expansion:
    """Prior and coefficients at some draws of the scales, about a reference.

    Log-densities (B,), their gradients (B, n_normal), entries of the precisions in `pattern`,
    coefficients (B, p), and their derivatives (n_normal, p), B times.
    """

    values: Array
    gradients: Array
    precisions: Array
    coefficients: Array
    slopes: Sequence[sparse.csr_array]


def _of_no_rows(points: Array) -> Array:
    return np.zeros((len(points), 0))


def find_hierarchy(
    prior: Callable[[Array], tuple[Array, Array]],
    coefficients: OfPoints,
    start: Array,
    columns: list[Array],
    rows: OfPoints = _of_no_rows,
) -> Hierarchy:
    """Find the scales: the fewest variables given which all others are normal.

    Parameters
    ----------
    prior, coefficients : callable
        See `Hierarchy`.
    start : ndarray of shape (n_dims,)
    columns : list of ndarray of int
        The coordinates of each variable.
    rows : callable, optional
        Returns log-densities of some rows at points (n_points, n_dims), as (n_points, n_rows), that
        must be quadratic in the normal coordinates, too.

    Raises
    ------
    UnsupportedModelError
        If no variable is normal, or they are given more than 16 coordinates.

    Examples
    --------
    Three effects with one scale, whose logarithm is standard normal:

    >>> def prior(x):
    ...     scale, effects = np.exp(x[:, :1]), x[:, 1:]
    ...     z = effects / scale
    ...     values = -(x[:, 0] ** 2 + np.square(z).sum(axis=1)) / 2 - 3 * x[:, 0]
    ...     of_scale = -x[:, 0] + np.square(z).sum(axis=1) - 3
    ...     return values, np.column_stack([of_scale, -z / scale])
    >>> found = find_hierarchy(
    ...     prior, lambda x: x[:, 1:], np.zeros(4), [np.array([0]), np.array([1, 2, 3])]
    ... )
    >>> found.is_scale, found.moves, found.colors
    (array([ True, False, False, False]), False, array([0, 0, 0]))
    """
    rng = np.random.default_rng(0)
    x = start + rng.uniform(-0.5, 0.5, len(start))
    ways = rng.uniform(-0.5, 0.5, (2, len(start)))

    def is_normal(free: Array) -> bool:
        own = (lambda points: prior(points)[1][:, free], coefficients)
        if not all(is_affine(each, x, ways * free) for each in own):
            return False
        return all(are_quadratic(rows, x, r * ways[0] * free) for r in REACHES[:2])

    is_scale = fewest_scales(is_normal, columns)
    if is_scale.all():
        raise UnsupportedModelError(
            "The prior is normal in no variables given a few scales.", topic="regressions"
        )
    return _hierarchy_of(prior, coefficients, x + ways[0] * is_scale, columns, is_scale, x)


def _hierarchy_of(
    prior: Callable[[Array], tuple[Array, Array]],
    coefficients: OfPoints,
    other: Array,
    columns: Sequence[Array],
    is_scale: Array,
    x: Array,
) -> Hierarchy:
    free = ~is_scale
    normal = [own[free[own]] for own in columns if free[own].any()]

    def slopes(points: Array) -> Array:
        found: Array = np.where(free, prior(points)[1], 0.0)
        return found

    of_prior = affine_derivatives(slopes, x, normal, symmetric=True)[free][:, free]
    here, there = (
        sparse.csr_array(affine_derivatives(coefficients, at, normal)[free]) for at in (x, other)
    )
    moves = abs(here - there).max() > ROUNDING * abs(here).max()
    reference = x.copy()
    reference[free] = _toward_the_mean(x[free], prior(x[None])[1][0, free], of_prior)
    return Hierarchy(
        prior=prior,
        coefficients=coefficients,
        reference=reference,
        is_scale=is_scale,
        pattern=_sorted(abs(of_prior) + abs(of_prior).T),
        slopes=_sorted(abs(here) + abs(there)) if moves else here,
        moves=bool(moves),
    )


def _toward_the_mean(x: Array, gradient: Array, curvature: sparse.csr_array) -> Array:
    """Return the mean of a normal prior from a point, (n_normal,); the point if that is unknown.

    Effects are there at their mean, whatever their scale: elsewhere, as this goes to zero, values
    of the prior are so large that their differences are lost to rounding.
    """
    matrix = sparse.csc_array(_FLAT * sparse.eye_array(len(x)) - curvature)
    with np.errstate(all="ignore"), suppress(RuntimeError):
        found: Array = x + splu(matrix).solve(gradient)
        if np.isfinite(found).all():
            return found
    return x


def _sorted(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix = sparse.csr_array(matrix)
    matrix.sort_indices()
    return matrix


# -- posteriors ------------------------------------------------------------------------------------


#: A log-likelihood that is quadratic in coefficients, given those that depend on scales alone.  Its
#: curvature is a sum of constant matrices, with shares that depend on these.
type QuadraticGivenScales = Quadratic | NormalRows
#: A distribution of the scales.
type OfScales = Normal | Mixture | KernelsOfModes


@dataclass(frozen=True, eq=False)
class ConditionalGaussian:
    """The posterior of a quadratic under a hierarchical prior, with known density.

    Exact except for the marginal of the scales: their draws come from a slightly wider normal
    distribution around its mode, with the same skewness, and are corrected by importance weights.

    Parameters
    ----------
    hierarchy : Hierarchy
    quadratic : Quadratic or NormalRows
        Of the same coefficients: one for all scales, or one for each.
    scales : Normal, or another distribution
        Near the marginal posterior of the scales.
    n_operations : float
        Several draws share the same scales if decompositions would take more multiplications than
        this; by default a few seconds' worth.
    metric : CholeskyFactor, optional
        Of the precision in the middle of the posterior, for NUTS.
    decomposed : callable
        Decomposes precisions: see `decomposition_of`; by default each by itself.

    Examples
    --------
    >>> hierarchy = find_hierarchy(
    ...     lambda x: (-np.square(x).sum(axis=1) / 2, -x), lambda x: x, np.zeros(2),
    ...     [np.array([0, 1])],
    ... )
    >>> quadratic = Quadratic(
    ...     names=("a", "b"), center=np.ones(2), slope=np.zeros(2), curvature=-3 * np.eye(2)
    ... )
    >>> found = ConditionalGaussian.of(hierarchy, quadratic)
    >>> found.mode
    array([0.75, 0.75])
    >>> found.draw(10_000, rng=np.random.default_rng(1))[0].std(axis=0).round(1)
    array([0.5, 0.5])
    """

    hierarchy: Hierarchy
    quadratic: QuadraticGivenScales
    scales: OfScales
    n_operations: float = 2e10
    metric: CholeskyFactor | None = None
    decomposed: Decomposition = factor_of

    @classmethod
    def of(
        cls, hierarchy: Hierarchy, quadratic: QuadraticGivenScales, *, n_operations: float = 2e10
    ) -> Self:
        """Find the mode of the marginal posterior of the scales, and the curvature there.

        Parameters
        ----------
        hierarchy : Hierarchy
        quadratic : Quadratic or NormalRows
        n_operations : float

        Raises
        ------
        SamplingError
            If there is no mode.
        """
        first = hierarchy.reference[hierarchy.is_scale]
        start = heavy_tailed(first, 10 * np.eye(len(first)))
        return cls(hierarchy, quadratic, start, n_operations).of_similar(quadratic)

    def of_similar(self, quadratic: QuadraticGivenScales) -> Self:
        """Find them for a similar quadratic: the search starts at the scales of this one.

        Raises
        ------
        SamplingError
            If there is no mode.
        """
        start = self.scales
        assert isinstance(start, Normal)
        found = replace(self, quadratic=quadratic).laid_out
        if not len(start.location):
            return found
        scales = near_mode(found.log_marginals, start)
        found = replace(found, scales=scales).laid_out  # the start may have been too far away
        if scales.n_evaluations * found.n_operations_each <= found.n_operations:
            found = replace(found, scales=scales.split(found.log_marginals))
        return found

    @property
    def mode(self) -> Array:
        """Mode of the scales, and of the rest given these: (n_dims,)."""
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

        If decompositions take long, several draws share the same scales.
        """
        is_scale, points = self.hierarchy.is_scale, np.empty((n_draws, len(self.reference)))
        logq, n_scales = np.empty(n_draws), 1
        if len(self.scales.location):
            least = min(64, n_draws // 3)  # at any cost
            affordable = self.n_operations / self.n_operations_each
            n_scales = int(np.clip(affordable, least, n_draws))
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
        """See `KnownDensity`; LAPACK is ten times as fast."""
        return len(self.reference) ** 2 + self.n_operations_each / 10

    @property
    def n_operations_each(self) -> float:
        """Operations per draw of the scales, if there are any."""
        return self.given_mode.factor.n_operations if len(self.scales.location) else 0.0

    def _given(self, scales: Array) -> Iterator[tuple[Normal, float]]:
        """Return the other coordinates given each of some scales, and the scales' log-marginal.

        Completes the square: the maximum of a quadratic is one Newton step away.
        """
        start = self.reference[~self.hierarchy.is_scale]
        with paced("", len(scales), "decompositions") as count:
            for highest, gradient, precision in self._expanded(scales):
                count(1)
                try:
                    factor = self.decomposed(precision)
                    step = factor.solve(gradient)
                except (LinAlgError, ValueError):  # not definite, or not finite
                    yield Normal(start, DenseFactor(np.eye(len(start)))), -np.inf
                    continue
                log_marginal = float(highest + gradient @ step / 2 - factor.log_determinant / 2)
                if not abs(highest) < _LOST:
                    log_marginal = -np.inf
                yield Normal(start + step, factor), np.nan_to_num(log_marginal, nan=-np.inf)

    def _expanded(self, scales: Array) -> Iterator[tuple[float, Array, Curvature]]:
        """Return value, gradient and precision at the reference, given each of some scales."""
        own = self.quadratic
        for some in self.hierarchy.expanded(scales):
            values = some.values + own.at(some.coefficients)
            pulls, shares = own.slopes_at(some.coefficients), own.shares_at(some.coefficients)
            for i, value in enumerate(values):
                slopes = some.slopes[i]
                precision = self._precisions.at(shares[i], some.precisions[i], slopes)
                yield float(value), some.gradients[i] + slopes @ pulls[i], precision

    @cached_property
    def _precisions(self) -> Precisions:
        own = self.hierarchy
        return Precisions(self.quadratic.grams, own.pattern, own.slopes, moves=own.moves)

    @property
    def laid_out(self) -> Self:
        """The same, with how its precisions are decomposed, unless it is too far from the mode."""
        if self.decomposed is not factor_of:
            return self
        _, _, precision = next(self._expanded(self.scales.location[None]))
        try:
            return replace(self, decomposed=decomposition_of(precision))
        except (LinAlgError, ValueError):
            return self
