"""Quadratics from gradients of all rows, for units and rows that depend on many numbers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from scipy.linalg import eigh, eigvalsh

from pymc_coresets.exceptions import SamplingError
from pymc_coresets.glm.concavity import NOT_CONCAVE, precision_of
from pymc_coresets.glm.control_variates.expansion import (
    OF_A_GRADIENT,
    AveragedRows,
    Choice,
    ResidualSample,
    SumsAndSample,
    calibrated,
    joined,
)
from pymc_coresets.glm.predictor.finding import FreeCoordinates
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Curvature, Quadratic, as_dense
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import FIRST_SAMPLE
from pymc_coresets.rows.memory import InMemoryRows
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.density import Slopes, pass_of
from pymc_coresets.sampling.maximisation.central_differences import differences

#: Directions along which residuals are measured, each at four values of all rows.
_DIRECTIONS = 32


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedGradients(AveragedRows):
    """The same of rows that have no quadratics of their own.

    Parameters
    ----------
    directions : ndarray of shape (n_directions, p)
        Of the points at which rows are chosen.
    gradients : ndarray of shape (n_draws, p)
        Of all rows.
    prior : ndarray of shape (p, p)
        Precision of the prior.
    """

    directions: np.ndarray
    gradients: np.ndarray
    prior: np.ndarray


@dataclass(frozen=True, eq=False)
class ByGradients:
    """Quadratics in all free variables, for rows of any structure.

    Slope and curvature are regressions of the gradients of all rows on draws: by Stein's identity
    the averages of the gradient and of the Hessian.  The residual of a row needs no derivatives:
    values at four points along a direction give the terms of third order and above.  The remainder
    after weighted rows is also smooth, and closer to a quadratic, which is regressed in the same
    way.

    Parameters
    ----------
    loglik : LogLikelihood

    References
    ----------
    Stein, C. (1981). Estimation of the mean of a multivariate normal distribution. Annals of
    Statistics 9(6). https://doi.org/10.1214/aos/1176345632
    """

    loglik: LogLikelihood
    calibration: ClassVar[float] = 0.25
    has_levels: ClassVar[bool] = False
    is_exact: ClassVar[bool] = False

    @cached_property
    def interface(self) -> FreeCoordinates:
        """The coefficients of the quadratics."""
        return FreeCoordinates.of(self.loglik.observations)

    def reading(self, loglik: LogLikelihood) -> "ByGradients":
        """Return the same for other rows."""
        return ByGradients(loglik)

    def n_evaluations(self, n_draws: int, n_kept: int) -> int:
        """Return the cost of an average, in log-likelihoods of all rows."""
        return OF_A_GRADIENT * n_draws + (4 * _DIRECTIONS + 1 if n_kept else 0)

    def at_point(self, coefficients: np.ndarray, *, key: int) -> Quadratic:
        """See `ByPredictors.at_point`: a gradient of all rows, and the curvature of a sample."""
        [center], found = coefficients, self._at(coefficients, self.loglik.source)
        return Quadratic(
            names=self.interface.names,
            center=center,
            slope=found.gradients[0],
            curvature=self._curvature(center, key),
            interface=self.interface.coefficients,
        )

    def average(
        self,
        draws: np.ndarray,
        before: Quadratic,
        *,
        n_kept: int = 0,
        goal: float = 0.0,  # noqa: ARG002 - of `ByPredictors`
        key: int = 0,
        prior: Callable[[], Curvature],
    ) -> AveragedGradients:
        """See `ByPredictors.average`: a gradient of all rows for each draw, 129 values."""
        center, found = draws.mean(axis=0), self._at(draws, self.loglik.source)
        before = before.about(center)
        left = found.gradients - before.slopes_at(draws)
        if not np.isfinite(left).all():
            raise SamplingError("The log-likelihood is not finite near the posterior's mode.")
        columns = self.interface.columns
        eigenvalues, vectors = eigh(as_dense(prior())[np.ix_(columns, columns)])
        of_prior = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T  # it need not be concave
        root = _root(before, draws, of_prior)
        slope, curvature = regressed(draws - center, left, root, most=0.75)
        slope, curvature = before.slope + slope, as_dense(before.curvature) + curvature
        away = draws - center
        residual = found.values - away @ slope - np.einsum("sp,pq,sq->s", away, curvature, away) / 2
        residual = residual - residual.mean()
        directions = away[:: max(len(away) // _DIRECTIONS, 1)][:_DIRECTIONS]
        missed = np.zeros(2 * len(directions))
        sample = ResidualSample.of(self.loglik.some_row, np.ones(1), 0, key=key)
        if n_kept:
            missed, sample = self._beyond(center, directions, n_kept, key)
        return AveragedGradients(
            draws, slope, curvature, residual, sample, missed,
            directions=directions, gradients=found.gradients, prior=of_prior,
        )  # fmt: skip

    def chosen(
        self,
        averaged: AveragedRows,
        quadratic: Quadratic,
        size: int,
        *,
        goal: float,  # noqa: ARG002
    ) -> Choice:
        """See `ByPredictors.chosen`: needs gradients of the chosen rows only.

        All weights shrink until the rows' curvature is at most 1.5 times that of all rows, plus the
        prior's, in every direction: the remainder is convex there, and rows may be linear in the
        tails.
        """
        assert isinstance(averaged, AveragedGradients)  # they are of its own
        assert isinstance(averaged.sample, ResidualSample)
        rows, drawn = averaged.sample.first(size)
        each = self._beyond_of(quadratic.center, averaged.directions, rows)
        weights, lacking = averaged.weighted(size, each)
        weights[drawn] *= calibrated(each[:, drawn] * weights[drawn], lacking)
        kept = np.flatnonzero(weights > 0)
        rows, weights, each = rows.take(kept), weights[kept], each[:, kept]
        draws, center = averaged.draws, quadratic.center
        root = _root(quadratic, draws, averaged.prior)
        weighted = InMemoryRows.of(replace(rows, case_weights=weights))
        curvature = self._differences(weighted, center, root)
        of_prior = root.T @ averaged.prior @ root
        allowed = NOT_CONCAVE * np.eye(len(root)) - (NOT_CONCAVE - 1) * of_prior
        largest = float(eigvalsh(-root.T @ curvature @ root, allowed)[-1])
        share = min(1.0, 1.0 / largest) if largest > 0 else 1.0
        weights, curvature = share * weights, share * curvature
        slope = share * self._at(center[None], weighted).gradients[0]
        away, own = draws - center, share * self._at(draws, weighted).gradients
        rest = averaged.slope - slope + away @ (averaged.curvature - curvature)
        by, more = regressed(away, averaged.gradients - own - rest, root)
        left = float(np.var(averaged.missed - each @ weights))
        others = quadratic.minus(slope - by, curvature - more)
        return Choice(
            rows=rows, weights=weights, quadratic=others, of_all=quadratic, tried=size, left=left
        )

    # -- all rows ------------------------------------------------------------------------------

    def _points(self, coefficients: np.ndarray) -> Draws:
        """Return draws of the free variables; those not in the likelihood are arbitrary."""
        return self.loglik.observations.space.constrain(self._coordinates(coefficients))

    def _coordinates(self, coefficients: np.ndarray) -> np.ndarray:
        x = np.tile(self.loglik.observations.space.start, (len(coefficients), 1))
        x[:, self.interface.columns] = coefficients
        return x

    def _at(self, coefficients: np.ndarray, source: RowBlocks) -> Slopes:
        found = source.reduce(pass_of(self.loglik.as_loops, self._coordinates(coefficients)))
        return Slopes(found.values, found.gradients[:, self.interface.columns])

    def _curvature(self, center: np.ndarray, key: int) -> np.ndarray:
        """Estimate the curvature of all rows at a point from a sample of them.

        50 per dimension, or as many as cost 60 gradients of all rows, up to 100,000: curvatures of
        mixtures have both signs, and cancel for the most part.
        """
        n_rows, p = self.loglik.n_rows, len(center)
        size = min(max(50 * p, 1_000, min(30 * n_rows // p, FIRST_SAMPLE)), n_rows)
        subsample = self.loglik.source.subsample(size, key=key, distinct=True)
        rows = InMemoryRows.of(replace(subsample.rows, case_weights=subsample.weights))
        found = self._differences(rows, center, np.eye(len(center)))
        if not np.isfinite(found).all():
            raise SamplingError("The log-likelihood is not finite near the posterior's mode.")
        values, vectors = eigh(found)
        # If it is convex, far from the mode, the posterior of a quadratic would be improper.
        concave: np.ndarray = -(vectors * np.abs(values)) @ vectors.T
        return concave

    def _differences(self, rows: RowBlocks, center: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Return the curvature of rows at a point, by steps of 0.001 of a coordinate's width."""
        steps = 1e-3 * np.sqrt(np.square(root).sum(axis=1))
        found = differences(lambda x: self._at(x, rows).gradients, center, steps)
        curvature: np.ndarray = (found + found.T) / 2
        return curvature

    def _beyond_of(self, center: np.ndarray, directions: np.ndarray, rows: Rows) -> np.ndarray:
        """Return the residuals of some rows, (2 K, n_rows)."""
        draws = self._points(_along(center, directions))
        return _of_possible_rows(self.loglik.matrix(draws, rows, finite=False).T)[0]

    def _beyond(
        self, center: np.ndarray, directions: np.ndarray, n_kept: int, key: int
    ) -> tuple[np.ndarray, ResidualSample]:
        points = self._points(_along(center, directions))
        of_block, join = partial(_beyond, n_kept, key), partial(joined, most=n_kept)
        [missed], sample = self.loglik.of_all(points, of_block, join)
        return missed, sample


# -- terms of third order and above ----------------------------------------------------------------


def _along(center: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return the points at which rows are evaluated, (4 K + 1, p)."""
    steps = (center + scale * directions for scale in (1.0, -1.0, 0.5, -0.5))
    return np.concatenate([center[None], *steps])


def beyond_second_order(values: np.ndarray) -> np.ndarray:
    """Return remainders of functions' quadratic Taylor expansions, K steps ahead and K behind.

    Exact for polynomials of fourth degree: with o(s) and e(s) odd and even parts along a step s,
    the cubic is ``(o(s) - 2 o(s / 2)) 4 / 3``, and the quartic ``(e(s) - 4 e(s / 2)) 4 / 3``.

    Parameters
    ----------
    values : ndarray of shape (4 K + 1, n)
        At a point, and then at K steps from it: whole, backwards, half, and half backwards.

    Returns
    -------
    ndarray of shape (2 K, n)
        Ahead and behind of the first step, of the second, and so on.

    Examples
    --------
    >>> s = np.array([0.0, 2.0, -2.0, 1.0, -1.0])
    >>> beyond_second_order((1 + s + s**2 + s**3 + s**4)[:, None])
    array([[24.],
           [ 8.]])
    """
    with np.errstate(invalid="ignore"):
        ahead, behind, half, half_behind = np.split(values[1:] - values[0], 4)
        odd = (ahead - behind) / 2 - (half - half_behind)
        even = (ahead + behind) / 2 - 2 * (half + half_behind)
        both = np.stack([even + odd, even - odd], axis=1) * (4 / 3)
    found: np.ndarray = both.reshape(-1, values.shape[1])
    return found


def _of_possible_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values with zeros for rows that are impossible at some draw, and which rows are."""
    missed = beyond_second_order(values)
    impossible: np.ndarray = ~np.isfinite(missed).all(axis=0)
    missed[:, impossible] = 0.0
    return missed, impossible


def _beyond(n_kept: int, key: int, values: np.ndarray, rows: Rows) -> SumsAndSample:
    """Return the summed residual of some rows, (2 K,), and a sample by their residuals."""
    missed, impossible = _of_possible_rows(values)
    spread = rows.case_weights * np.sqrt(np.square(missed).mean(axis=0))
    spread[impossible] = np.inf
    sample = ResidualSample.of(rows, spread, n_kept, key=key)
    return (missed @ rows.case_weights,), sample


# -- regression ------------------------------------------------------------------------------------


def _root(quadratic: Quadratic, draws: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return a root of the posterior's covariance, by the quadratic and the prior's precision."""
    values, vectors = eigh(as_dense(precision_of(quadratic, draws)) + prior)
    root: np.ndarray = vectors / np.sqrt(values)
    return root


def regressed(
    away: np.ndarray, gradients: np.ndarray, root: np.ndarray, *, most: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """Return slope and symmetric curvature of the quadratic whose gradients are closest to some.

    Ridge regression in coordinates in which the draws have variance one; the ridge is chosen by
    two-fold cross-validation over the draws.  O(S p^2 + p^3) for S draws.

    Parameters
    ----------
    away : ndarray of shape (n_draws, p)
        Draws, minus the point of expansion.
    gradients : ndarray of shape (n_draws, p)
    root : ndarray of shape (p, p)
        A root of the covariance of the draws.
    most : float, optional
        Largest curvature in any direction, in units of the draws' precision: if far from normal,
        they may suggest one at which the posterior of the quadratic is improper.

    Returns
    -------
    slope : ndarray of shape (p,)
    curvature : ndarray of shape (p, p)

    Examples
    --------
    >>> away = np.random.default_rng(1).normal(size=(50, 2))
    >>> curvature = np.array([[-2.0, 1.0], [1.0, -3.0]])
    >>> slope, found = regressed(away, 1.0 + away @ curvature, np.eye(2))
    >>> bool(np.allclose(slope, 1.0) and np.allclose(found, curvature))
    True
    """
    inverse = np.linalg.inv(root)
    z, pulls = away @ inverse.T, gradients @ root
    half, ridges = len(z) // 2, (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    first, second = (z[:half], pulls[:half]), (z[half:], pulls[half:])
    errors = np.zeros(len(ridges))
    for (own_z, own_pulls), (other_z, other_pulls) in ((first, second), (second, first)):
        for i, (slope, curvature) in enumerate(_by_ridges(own_z, own_pulls, ridges)):
            errors[i] += np.square(other_pulls - slope - other_z @ curvature).sum()
    [(slope, curvature)] = _by_ridges(z, pulls, [ridges[int(np.argmin(errors))]])
    values, vectors = eigh(curvature)
    if values[-1] > most:
        curvature = (vectors * np.minimum(values, most)) @ vectors.T
        slope = pulls.mean(axis=0) - curvature @ z.mean(axis=0)
    return inverse.T @ slope, inverse.T @ curvature @ inverse


def _by_ridges(
    z: np.ndarray, pulls: np.ndarray, ridges: Sequence[float]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield slope and curvature: B of ``B C + C B + 2 ridge B = M + M'``, by C's eigenvectors."""
    middle, mean = z.mean(axis=0), pulls.mean(axis=0)
    values, vectors = eigh(np.cov(z.T, bias=True).reshape(z.shape[1], -1))
    both = (pulls - mean).T @ (z - middle) / len(z)
    both = vectors.T @ (both + both.T) @ vectors
    for ridge in ridges:
        sums = np.maximum(values[:, None] + values + 2 * ridge, np.finfo(float).eps)
        curvature = vectors @ (both / sums) @ vectors.T
        yield mean - curvature @ middle, curvature
