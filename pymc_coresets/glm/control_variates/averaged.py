"""The quadratic of every row, averaged over the posterior, and its residual."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from pymc_coresets.glm.concavity import concave, precision_of
from pymc_coresets.glm.control_variates.by_levels import (
    IMPORTANCES,
    PursuedLevel,
    SampleOfLevels,
    in_chunks,
    levels_of,
)
from pymc_coresets.glm.control_variates.expansion import (
    AveragedRows,
    Choice,
    ResidualSample,
    SumsAndSample,
    calibrated,
    joined,
)
from pymc_coresets.glm.predictor.parabolas import derivatives_of
from pymc_coresets.glm.predictor.predictors import Predictors, RowsInMemory
from pymc_coresets.glm.predictor.row_density import MOST_TOGETHER, effects, kinds_by_entries
from pymc_coresets.glm.predictor.seen_rows import SeenRows
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.reading.quadratic import Curvature, Quadratic
from pymc_coresets.reading.units.nodes import Nodes
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.memory import InMemoryRows, in_threads
from pymc_coresets.rows.passes import BlockPass, RowBlocks, added_up
from pymc_coresets.rows.values import Rows

#: Largest number of coefficients for which all pairs that occur in a row are kept.
MOST_DENSE = 3_000

#: Share of non-zero entries above which a curvature is kept as a dense matrix.
_DENSE_FROM = 0.1
#: Number of times that weights are calibrated and then shrunk.
_CALIBRATIONS = 4

#: Rows that are kept beside a quadratic that is exact.
_FEW_ROWS = 40

#: Share of the goal below which more rows of a level bring no gain.
_GAIN = 0.25

#: Slope, curvature and residual of some rows.
type Sums = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class RowQuadratics:
    """The quadratic of each row, and its residuals at draws.

    With ``e_n = X_n (c - center)``, of k numbers, row n is approximated by ``slopes[:, n] . e_n +
    e_n' curvatures[:, :, n] e_n / 2``, up to a constant.

    Parameters
    ----------
    slopes : ndarray of shape (k, n_rows)
    curvatures : ndarray of shape (k, k, n_rows)
    left : ndarray of shape (n_draws, n_rows)
        In nats, centred.
    spread : ndarray of shape (n_rows,)
        Standard deviation of a row's residual over the draws, in nats, times the row's case weight;
        infinite if its log-density is not finite nearby.
    """

    slopes: np.ndarray
    curvatures: np.ndarray
    left: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class ByPredictors:
    """Quadratics of rows that depend on few numbers: each row has its own.

    Parameters
    ----------
    source : RowBlocks
    seen : SeenRows
        The predictors of rows.
    """

    source: RowBlocks
    seen: SeenRows
    calibration: ClassVar[float] = 1.0

    @property
    def interface(self) -> Predictors:
        """The coefficients of the quadratics."""
        return self.seen.found

    @property
    def is_exact(self) -> bool:
        """Whether a quadratic of all rows leaves nothing."""
        return self.interface.is_quadratic

    @cached_property
    def levels(self) -> np.ndarray:
        """The level of each row, whose residual is pursued by itself: see `levels_of`.

        Rows outside memory are read in blocks, not by level.
        """
        if self.is_exact or self.seen.elsewhere or not isinstance(self.source, InMemoryRows):
            return np.empty(0, dtype=np.int64)
        return levels_of(self.seen.of(self.source.all))

    @property
    def has_levels(self) -> bool:
        """Whether there are any."""
        return len(self.levels) > 0

    def reading(self, loglik: LogLikelihood) -> "ByPredictors":
        """Return the same for other rows."""
        return replace(self, source=loglik.source)

    def n_evaluations(self, n_draws: int, n_kept: int) -> int:  # noqa: ARG002 - of `ByGradients`
        """Return the cost of an average, in log-likelihoods of all rows."""
        return n_draws

    def at_point(self, coefficients: np.ndarray, *, key: int) -> Quadratic:
        """Approximate all rows at a point (1, p): the sum of their quadratics there."""
        at = average(self.source, self.seen, coefficients[0], coefficients, key=key)
        return at.quadratic(self.interface)

    def average(
        self,
        draws: np.ndarray,
        before: Quadratic,  # noqa: ARG002 - of `ByGradients`
        *,
        n_kept: int = 0,
        goal: float = 0.0,
        key: int = 0,
        prior: Callable[[], Curvature],  # noqa: ARG002 - of `ByGradients`
    ) -> AveragedRows:
        """Approximate all rows on average over draws, about their mean; see `average`.

        Parameters
        ----------
        draws : ndarray of shape (n_draws, p)
            Of the coefficients.
        before : Quadratic
            Quadratic from whose posterior they were drawn.
        n_kept : int, default 0
            Size of the largest sample of rows needed later.
        goal : float, default 0.0
            Mean squared residual that rows may leave, in squared nats.
        key : int, default 0
            Key of the rows' random numbers.
        prior : callable
            Returns the precision of the prior near the draws, (n_dims, n_dims).
        """
        center = draws.mean(axis=0)
        sampled = partial(average, self.source, self.seen, center, draws, n_kept=n_kept, key=key)
        if not (n_kept and self.has_levels):
            return sampled()
        found = self._of_levels(center, draws, goal=goal, key=key)
        if found.missed_by(n_kept) <= goal:
            return found
        return min(found, sampled(), key=lambda each: each.missed_by(n_kept))

    def _of_levels(
        self, center: np.ndarray, draws: np.ndarray, *, goal: float, key: int
    ) -> AveragedRows:
        """See `average`; the rows of each level are pursued for its own residual."""
        levels, source = self.levels, self.source
        assert isinstance(source, InMemoryRows)
        n_entries = self.seen.found.n_seen * len(draws)
        chunks = list(in_chunks(levels, rows_at_once(n_entries, least=256)))
        least = _GAIN * goal / (1 + levels.max())
        work = partial(_of_levels, self.seen, center, draws - center, levels, least, key)
        parts = in_threads(lambda which: work(which, source.take(which)), chunks, len(chunks))
        sums, pursued = zip(*parts, strict=True)
        total = tuple(map(added_up, zip(*sums, strict=True)))
        return _averaged(draws, total, SampleOfLevels([*chain.from_iterable(pursued)]))

    def chosen(
        self, averaged: AveragedRows, quadratic: Quadratic, size: int, *, goal: float
    ) -> Choice:
        """Choose rows in addition to the quadratic of all of them.

        If weights of the sample have to shrink, the error is larger than its variance predicts.

        Parameters
        ----------
        averaged : AveragedRows
            With at least `size` rows.
        quadratic : Quadratic
            Of all rows.
        size : int
        goal : float
            Allowed residual, in squared nats.
        """
        if isinstance(averaged.sample, SampleOfLevels):
            return self._chosen_of_levels(averaged, averaged.sample, quadratic, size, goal=goal)
        chosen, drawn = averaged.sample.first(size)
        rows, away = self.seen.of(chosen), averaged.draws - quadratic.center
        if self.is_exact:  # also for those that are left
            each = row_quadratics(rows, quadratic.center, away)
            return _beside(quadratic, chosen, rows, each, rows.case_weights, 0.0, size)
        posterior = precision_of(quadratic, averaged.draws)
        each = row_quadratics(rows, quadratic.center, away)
        weights, lacking = averaged.weighted(size, each.left)
        best, least = weights, math.inf
        for _ in range(_CALIBRATIONS):
            wanted = weights.copy()
            wanted[drawn] *= calibrated((each.left * weights)[:, drawn], lacking)
            weights = concave(rows, wanted, each.curvatures, posterior, away, drawn=drawn)
            left = float(np.var(averaged.residual - each.left @ weights))
            if left < least:
                best, least = weights, left
            if left <= goal or np.array_equal(weights, wanted):
                break
        return _beside(quadratic, chosen, rows, each, best, least, size)

    def _chosen_of_levels(
        self,
        averaged: AveragedRows,
        sample: SampleOfLevels,
        quadratic: Quadratic,
        size: int,
        *,
        goal: float,
    ) -> Choice:
        """Choose rows of each level, by its own residual.

        Weights that have to shrink miss that: others follow, of which less is left.
        """
        positions, is_whole = sample.first(size)
        chosen = self.source.at(positions)
        rows, away = self.seen.of(chosen), averaged.draws - quadratic.center
        each = row_quadratics(rows, quadratic.center, away)
        curved = _second_order(rows, each, away)
        posterior = precision_of(quadratic, averaged.draws)
        best, least = np.zeros(len(rows)), math.inf
        for importance in IMPORTANCES:
            wanted = np.where(is_whole, rows.case_weights, 0.0)
            for which, own in sample.weights(size, positions, each.left, curved, importance):
                wanted[which] = own
            weights = concave(rows, wanted, each.curvatures, posterior, away, drawn=~is_whole)
            left = float(np.var(averaged.residual - each.left @ weights))
            if left < least:
                best, least = weights, left
            if left <= goal or np.array_equal(weights, wanted):
                break
        least = max(least, sample.variance(size))  # that of the draws which did not choose
        return _beside(quadratic, chosen, rows, each, best, least, size)


def _beside(
    quadratic: Quadratic,
    chosen: Rows,
    rows: RowsInMemory,
    each: RowQuadratics,
    weights: np.ndarray,
    left: float,
    tried: int,
) -> Choice:
    """Return weighted rows with the quadratic of all rows, less their own."""
    kept = weights > 0
    slope, curvature = rows.slope(weights * each.slopes), rows.gram(weights * each.curvatures)
    rest = quadratic.minus(slope, curvature)
    return Choice(
        rows=chosen.take(kept),
        weights=weights[kept],
        quadratic=rest,
        of_all=quadratic,
        tried=tried,
        left=left,
    )


def average(
    source: RowBlocks,
    seen: SeenRows,
    center: np.ndarray,
    draws: np.ndarray,
    *,
    n_kept: int = 0,
    key: int = 0,
) -> AveragedRows:
    """Approximate every row by the quadratic that is closest to it on average over draws.

    As a function of the k numbers that the row depends on, taken as normal around ``X_n center``
    with the covariance of the draws: the projection on Hermite polynomials of degree 2, by
    quadrature.  By Stein's identity its coefficients are the averages of the gradient and of the
    Hessian.  One pass: O(N p (S + p)) for a dense design, memory O(p^2) and the rows kept.

    Parameters
    ----------
    source : RowBlocks
    seen : SeenRows
    center : ndarray of shape (p,)
        Point of expansion.
    draws : ndarray of shape (n_draws, p)
        Of the coefficients.
    n_kept : int, default 0
        Size of the largest sample of rows needed later.
    key : int, default 0
        Key of the rows' random numbers.
    """
    k, p, n_nodes = seen.found.n_seen, len(center), 1
    if seen.found.is_quadratic:
        n_kept = min(n_kept, _FEW_ROWS)
    else:
        n_nodes = len(_nodes(min(k, MOST_TOGETHER)))
    entries = max(k * len(draws), k * n_nodes, p)  # of each row
    size = rows_at_once(entries, least=256)
    work = partial(_of_block, seen, center, draws - center, n_kept, key)
    add = partial(joined, most=n_kept)
    sums, sample = source.reduce(BlockPass.of(size, work, add))
    if seen.found.is_quadratic:
        sample = replace(sample, is_exact=True)
    return _averaged(draws, sums, sample)


def _averaged(
    draws: np.ndarray, sums: Sums, sample: ResidualSample | SampleOfLevels
) -> AveragedRows:
    slope, curvature, residual = sums
    p = len(slope)
    if sparse.issparse(curvature) and p <= MOST_DENSE and curvature.nnz > _DENSE_FROM * p**2:
        curvature = curvature.toarray()
    return AveragedRows(draws, slope, curvature, residual, sample, missed=residual)


def _sums(rows: RowsInMemory, each: RowQuadratics) -> Sums:
    slope = rows.slope(rows.case_weights * each.slopes)
    curvature = rows.gram(rows.case_weights * each.curvatures)
    return slope, curvature, each.left @ rows.case_weights


def _of_block(
    seen: SeenRows, center: np.ndarray, away: np.ndarray, n_kept: int, key: int, some: Rows
) -> SumsAndSample:
    rows = seen.of(some)
    each = row_quadratics(rows, center, away)
    sample = ResidualSample.of(some, each.spread, n_kept, key=key)
    return _sums(rows, each), sample


def _of_levels(
    seen: SeenRows,
    center: np.ndarray,
    away: np.ndarray,
    levels: np.ndarray,
    least: float,
    key: int,
    which: np.ndarray,
    some: Rows,
) -> tuple[Sums, list[PursuedLevel]]:
    """Return sums over all rows of some levels, and pursue each of these."""
    rows = seen.of(some)
    each = row_quadratics(rows, center, away)
    curved, pursued = _second_order(rows, each, away), []
    for level in np.unique(levels[which]):
        own = np.flatnonzero(levels[which] == level)
        pursued.append(
            PursuedLevel.of(
                some.positions[own],
                some.case_weights[own],
                each.left[:, own],
                curved[:, own],
                each.spread[own],
                least=least,
                key=key,
            )
        )
    return _sums(rows, each), pursued


def _second_order(rows: RowsInMemory, each: RowQuadratics, away: np.ndarray) -> np.ndarray:
    """Return the second-order terms of rows' quadratics at draws, (n_draws, n_rows), in nats."""
    moved, total = rows.seen(away), np.zeros((len(away), len(rows)))
    for a, one in enumerate(moved):
        for b in range(a + 1):
            total += each.curvatures[a, b] * (1.0 if b < a else 0.5) * one * moved[b]
    return total


def row_quadratics(rows: RowsInMemory, center: np.ndarray, away: np.ndarray) -> RowQuadratics:
    """Approximate each of some rows, see `average`, for draws (n_draws, p) minus the center.

    If rows have many numbers, each is a function of those it depends on; the others follow these.
    """
    if rows.found.is_quadratic:
        return _exact(rows, center, len(away))
    middle, moved = rows.numbers(center[None])[:, 0], rows.seen(away)
    k, n = middle.shape
    if k <= MOST_TOGETHER:
        return _quadratics(rows, np.arange(k), middle, moved)
    found = RowQuadratics(
        slopes=np.zeros((k, n)),
        curvatures=np.zeros((k, k, n)),
        left=np.empty((len(away), n)),
        spread=np.empty(n),
    )
    size = effects(rows.density, middle, moved.std(axis=1))
    for own, which in kinds_by_entries(size):
        part = _quadratics(rows.take(which), own, middle[:, which], moved[:, :, which])
        found.slopes[np.ix_(own, which)] = part.slopes
        found.curvatures[np.ix_(own, own, which)] = part.curvatures
        found.left[:, which], found.spread[which] = part.left, part.spread
    return found


def _exact(rows: RowsInMemory, center: np.ndarray, n_draws: int) -> RowQuadratics:
    """Return the quadratics that rows are; all rows are as likely to be kept."""
    slopes, curvatures = derivatives_of(rows, rows.numbers(center[None])[:, 0])
    left = np.broadcast_to(0.0, (n_draws, len(rows)))
    return RowQuadratics(slopes, curvatures, left, rows.case_weights)


def _quadratics(
    rows: RowsInMemory, own: np.ndarray, middle: np.ndarray, moved: np.ndarray
) -> RowQuadratics:
    """Approximate rows as functions of some of their numbers."""
    cov = _covariances(moved)
    factor = _factors(rows, own, middle, cov[np.ix_(own, own)])
    quadrature = _nodes(len(own))
    nodes, masses = quadrature.points, quadrature.weights
    seen = np.repeat(middle[:, None], len(nodes), axis=1)
    steps = nodes @ np.ascontiguousarray(np.moveaxis(factor, 0, -1))
    seen[own] += steps
    _follow(seen, steps, own, cov, factor, rows.found.n_shared)
    at_nodes = rows.density(seen).copy()
    impossible = ~np.isfinite(at_nodes).all(axis=0)
    at_nodes[:, impossible] = 0.0
    products = nodes[:, :, None] * nodes[:, None] - np.eye(len(own))
    first = (masses[:, None] * nodes).T @ at_nodes
    second = (masses[:, None, None] * products).reshape(len(nodes), -1).T @ at_nodes
    second = second.reshape(len(own), len(own), -1)
    inverse = np.linalg.inv(factor)
    slopes = np.einsum("nba,bn->an", inverse, first)
    curvatures = np.einsum("nca,cdn,ndb->abn", inverse, second, inverse, optimize=True)
    left = _left(rows, middle, moved, own, slopes, curvatures)
    spread = rows.case_weights * left.std(axis=0)
    spread[impossible] = np.inf
    return RowQuadratics(slopes, curvatures, left, spread)


def _follow(
    seen: np.ndarray,
    steps: np.ndarray,
    own: np.ndarray,
    cov: np.ndarray,
    factor: np.ndarray,
    n_shared: int,
) -> None:
    """Move the other numbers, in place, as far as they are expected to move with a row's own.

    A row does not depend on them, but a cut point that moves alone would pass its neighbour.
    Numbers shared by all rows move with the row's own, but not further.
    """
    others = np.setdiff1d(np.arange(len(seen)), own)
    of_all, of_rows = others[others < n_shared], others[others >= n_shared]
    m = int((own < n_shared).sum())
    for some, k, which in ((of_all, m, slice(1)), (of_rows, len(own), slice(None))):
        if len(some) and k:
            by = factor[which, :k, :k]
            own_cov = by @ np.moveaxis(by, 1, 2)
            between = np.moveaxis(cov[np.ix_(some, own[:k])][:, :, which], -1, 0)
            slopes = between @ np.linalg.inv(own_cov)
            seen[some] += np.einsum("nab,bjn->ajn", slopes, steps[:k, :, which])


def _left(
    rows: RowsInMemory,
    middle: np.ndarray,
    moved: np.ndarray,
    own: np.ndarray,
    slopes: np.ndarray,
    curvatures: np.ndarray,
) -> np.ndarray:
    left = _finite(rows.density(middle[:, None] + moved))
    for a, one in enumerate(moved[own]):
        left -= slopes[a] * one
        for b in range(a + 1):
            left -= curvatures[a, b] * (1.0 if b < a else 0.5) * one * moved[own[b]]
    centred: np.ndarray = left - left.mean(axis=0)
    return centred


def _finite(values: np.ndarray) -> np.ndarray:
    """Copy, with values that are not finite replaced by the lowest finite one of their row."""
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return values.copy()
    lowest = np.where(wrong, np.inf, values).min(axis=0)
    return np.where(wrong, np.where(np.isfinite(lowest), lowest, 0.0), values)


def _covariances(moved: np.ndarray) -> np.ndarray:
    """Return covariances of the numbers of each row, (k, k, n)."""
    away = moved - moved.mean(axis=1, keepdims=True)
    cov = np.empty((len(moved), *moved.shape[::2]))
    for a, one in enumerate(away):
        for b, other in enumerate(away[: a + 1]):
            cov[a, b] = cov[b, a] = (one * other).mean(axis=0)
    return cov


def _factors(
    rows: RowsInMemory, own: np.ndarray, middle: np.ndarray, cov: np.ndarray
) -> np.ndarray:
    """Return Cholesky factors (n, k, k) of the covariances (k, k, n), if not too narrow."""
    k = len(own)
    width = np.sqrt(cov[np.arange(k), np.arange(k)])
    narrow = width < 1e-5 * (1 + np.abs(middle[own]))  # such differences are rounding errors
    least = width
    if narrow.any():
        units = np.array([_unit(rows, j, middle) for j in own])
        least = 1e-5 * (units[:, None] + np.abs(middle[own]))
    width = np.where(narrow, least, width)
    correlation = cov / (width[:, None] * width) * (1 - 1e-4)  # none is one
    correlation[np.arange(k), np.arange(k)] = 1.0
    factor = np.linalg.cholesky(np.moveaxis(correlation, -1, 0))
    scaled: np.ndarray = width.T[:, :, None] * factor
    return scaled


def _unit(rows: RowsInMemory, j: int, middle: np.ndarray) -> float:
    """Return a step of a number that most rows notice: 1, or a power of 1,000 of large numbers."""
    seen, unit = np.repeat(middle[:, None], 2, axis=1), 1.0
    while unit < 1e15:
        seen[j, 1] = middle[j] + unit
        before, after = rows.density(seen)
        with np.errstate(invalid="ignore"):
            change = np.abs(after - before)
        if np.median(np.where(np.isfinite(change), change, 0.0)) > 1e-3:
            return unit
        unit *= 1e3
    return 1.0


def _nodes(k: int) -> Nodes:
    """Return nodes for k numbers: 203 at most."""
    return Nodes.of_degree((1, 13, 9, 9, 7, 7)[k], k)
