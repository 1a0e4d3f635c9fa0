"""The posterior without one row: draws that are moved there step by step, and its constant."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws
from pymc_coresets.diagnostics.importance import log_sum, smooth_tail
from pymc_coresets.predictive.approximate_posterior import ApproximatePosterior
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows

type Floats = NDArray[np.float64]
type OneRow = tuple[LogLikelihood, Rows]
#: What the posterior without a row says of it, see `Removal.without`.
type OfRow = tuple[float, float, Floats]

ENOUGH = 0.5  #: Share of the draws that count after each step.
STEPS = 100  #: At most; a row that moves the posterior by 30 standard deviations takes some 20.
ROUNDS = 3  #: Evaluations of all rows, at most.
WIDER = 1.15  #: Than the density without the row: costs 3 % of the draws.


class Removal:
    """Removes rows, one at a time, from the posterior of which there are draws.

    Parameters
    ----------
    own : ApproximatePosterior
    draws : Draws
        Of its posterior.
    found : EvaluatedDraws
        The densities at them.

    Notes
    -----
    The share of the row that is removed from the approximation's density grows from zero to one, in
    steps that leave half of the draws.  After each, the draws are moved and stretched so that they
    have the mean and the covariance of the density without this share.  In the end all rows are
    evaluated at the draws.

    Let q be the density that was drawn from, and T the map of its draws.  The ratios ``p(T(theta))
    |det T| / (p(y_n | T(theta)) q(theta))`` have a mean in proportion to the normalising constant
    of the posterior without row n, and ``p(theta) / q(theta)`` to that of the posterior: the
    predictive density of the row is their quotient.  Its mean over draws from the posterior
    without the row has the larger a variance, the less these explain the row.

    References
    ----------
    Paananen, Piironen, Bürkner, Vehtari (2021). Implicitly adaptive importance sampling. Statistics
    and Computing 31(16). https://doi.org/10.1007/s11222-020-09982-2
    """

    def __init__(self, own: ApproximatePosterior, draws: Draws, found: EvaluatedDraws) -> None:
        self.own, self.draws, self.found = own, draws, found

    @cached_property
    def start(self) -> "AffineMove":
        """The draws; some are not finite if they were rounded to the border of their support."""
        with np.errstate(divide="ignore", over="ignore"):
            return AffineMove(self.own.space.free(self.draws), 0.0)

    @cached_property
    def log_q(self) -> Floats:
        """Their log-density, (n_draws,)."""
        return self.own.replacement.log_density(self.start.points)

    def at_draws(self, row: OneRow) -> Floats:
        """Return the log-likelihood of a row at the draws, (n_draws,)."""
        return self._of_row(row, self.start)

    def without(self, rows: Sequence[OneRow], good_k: float) -> dict[int, OfRow]:
        """Leave out rows one at a time.

        Costs a pass over the data, for as many draws as there are times the number of rows; two
        more, at most, for rows without which the approximation is inexact.

        Parameters
        ----------
        rows : sequence of (LogLikelihood, Rows)
            One row each, with its log-likelihood.
        good_k : float
            Pareto k-hat that will do.

        Returns
        -------
        dict of int to (float, float, ndarray of shape (n_draws,))
            By the numbers of the rows, but of those without which the draws do not reach the
            posterior: the log of the row's predictive density, in nats, Pareto k-hat of the ratios
            of the moved draws, and the influence of each draw on the former.
        """
        found: dict[int, OfRow] = {}
        moved = {i: at for i, row in enumerate(rows) for at in self._moved(row)}
        for _ in range(ROUNDS):
            again = {}
            for i, full in self._full(moved).items():
                f = self._of_row(rows[i], moved[i])
                ratios = full + moved[i].log_det - f
                if np.isfinite(ratios).all():
                    found[i] = _, khat, _ = self._quotient(ratios)
                    if khat > good_k:
                        again[i] = moved[i].matched(ratios, f, self.own.space.continuous)
            moved = again
        return found

    def _moved(self, row: OneRow) -> "Iterator[AffineMove]":
        """Yield the draws, moved to the approximation's posterior without the row, if they can be.

        They cannot where too few of them would count.
        """
        at, share = self.start, 0.0
        if not np.isfinite(at.points).all():
            return
        for _ in range(STEPS):
            f = self._of_row(row, at)
            base = self.own.replacement.log_density(at.points) - self.log_q + at.log_det
            usable = np.isfinite(base) & np.isfinite(f)
            base, f = np.where(usable, base, -np.inf), np.where(usable, f, 0.0)
            share = next_share(base, f, share)
            if not share:
                return
            at = at.matched(base - share * f, f, self.own.space.continuous)
            if share == 1.0:
                yield at.widened(self._of_row(row, at), self.own.space.continuous)
                return

    def _of_row(self, row: OneRow, at: "AffineMove") -> Floats:
        """Return the log-likelihood of a row at the draws, (n_draws,)."""
        loglik, rows = row
        found: Floats = loglik.matrix(self.own.space.constrain(at.points), rows, finite=False)[0]
        return found

    def _full(self, moved: Mapping[int, "AffineMove"]) -> dict[int, Floats]:
        """Return the logs of ``p(T(theta)) / q(theta)`` at the draws of each row, in one pass.

        The sum over all rows is known up to a constant of each pass: one draw joins them.
        """
        if not moved:
            return {}
        points = np.concatenate([self.start.points[:1], *(at.points for at in moved.values())])
        full, own = self.own.log_densities_at(self.own.space.constrain(points))
        with np.errstate(invalid="ignore"):
            full = self.own.replacement.log_density(points) - own + full
        full += self.log_q[0] + self.found.log_ratios.flat[0] - full[0]
        parts = np.split(full[1:], len(moved))
        return {i: part - self.log_q for i, part in zip(moved, parts, strict=True)}

    def _quotient(self, log_ratios: Floats) -> OfRow:
        log_w, khat = smooth_tail(log_ratios)
        # Smoothing leaves most ratios as they are: the median is the log of their sum.
        log_mean = float(np.median(log_ratios - log_w)) - np.log(len(log_w))
        smoothed = self.found.smoothed
        influences = len(log_w) * (smoothed.weights.ravel() - np.exp(log_w))
        return smoothed.log_mean_ratio - log_mean, khat, influences


@dataclass(frozen=True, eq=False)
class AffineMove:
    """An affine function of draws.

    Parameters
    ----------
    points : ndarray of shape (n_draws, D)
        Its values, unconstrained.
    log_det : float
        Logarithm of its determinant.
    """

    points: Floats
    log_det: float

    def matched(
        self, log_weights: Floats, f: Floats, continuous: NDArray[np.bool_]
    ) -> "AffineMove":
        """Return the function that gives the values their weighted mean and covariance.

        With many dimensions, the latter only in the direction in which a row moves the values.

        Parameters
        ----------
        log_weights : ndarray of shape (n_draws,)
        f : ndarray of shape (n_draws,)
            Log-likelihood of the row.
        continuous : ndarray of bool, of shape (D,)
            Coordinates that can be moved.

        Examples
        --------
        >>> at = AffineMove(np.linspace(-1.0, 1.0, 101)[:, None], 0.0)
        >>> f = at.points[:, 0]
        >>> at.matched(f, f, np.array([True])).points.mean().round(2)
        np.float64(0.32)
        """
        weights = np.exp(log_weights - log_sum(log_weights))
        own = self.points[:, continuous]
        away, mean = own - own.mean(axis=0), weights @ own
        if 1 / np.sum(weights**2) < 3 * own.shape[1] ** 2:
            stretch = partial(_along, away, f, weights)
        else:
            stretch = partial(_whole, away, own - mean, weights)
        return self._to(mean, away, stretch, continuous)

    def widened(self, f: Floats, continuous: NDArray[np.bool_]) -> "AffineMove":
        """Return the function whose values vary a little more where a row moves them.

        The weights of a skewed density then stay bounded.
        """
        own = self.points[:, continuous]
        mean = own.mean(axis=0)
        return self._to(mean, own - mean, partial(_along, own - mean, f), continuous)

    def _to(
        self,
        mean: Floats,
        away: Floats,
        stretch: Callable[[], Floats],
        continuous: NDArray[np.bool_],
    ) -> "AffineMove":
        try:
            matrix = stretch()
        except np.linalg.LinAlgError:  # where a variable follows from others, but for rounding
            matrix = np.eye(len(mean))
        points = self.points.copy()
        points[:, continuous] = mean + away @ matrix.T
        return AffineMove(points, self.log_det + float(np.linalg.slogdet(matrix)[1]))


def _whole(away: Floats, from_mean: Floats, weights: Floats) -> Floats:
    """Return the matrix (D, D) that gives deviations their weighted covariance."""
    old = np.linalg.cholesky(away.T @ away / len(away))
    new = np.linalg.cholesky((from_mean.T * weights) @ from_mean)
    matrix: Floats = np.linalg.solve(old.T, new.T).T
    return matrix


def _along(away: Floats, f: Floats, weights: Floats | None = None) -> Floats:
    """Return the matrix (D, D) that changes deviations in the direction in which a row moves them.

    A row that sees one linear predictor changes the covariance in this direction alone.  The
    variance of the linear part of `f` becomes the weighted one, or `WIDER` squared times its own.
    """
    n_draws, n_dims = away.shape
    covariances = away.T @ (f - f.mean()) / n_draws
    if n_draws < 3 * n_dims or not covariances.any():
        return np.eye(n_dims)
    slopes = np.linalg.solve(away.T @ away / n_draws, covariances)
    linear, variance = away @ slopes, float(slopes @ covariances)
    factor = WIDER
    if weights is not None:
        factor = float(np.sqrt(weights @ (linear - weights @ linear) ** 2 / variance))
    return np.eye(n_dims) + (factor - 1) / variance * np.outer(covariances, slopes)


def next_share(base: Floats, f: Floats, share: float) -> float:
    """Return how much of a row can be removed if half of the draws shall count after it.

    Parameters
    ----------
    base : ndarray of shape (n_draws,)
        Log-weights of the draws with the row.
    f : ndarray of shape (n_draws,)
        Its log-likelihood.
    share : float
        How much is removed already.

    Returns
    -------
    float
        More than `share`, 1 at most; 0 if too few draws count already.

    Examples
    --------
    >>> next_share(np.zeros(9), np.zeros(9), 0.0)
    1.0
    >>> round(next_share(np.zeros(101), np.linspace(-9.0, 9.0, 101), 0.2), 2)
    0.42
    >>> next_share(np.append(np.zeros(9), 99.0), np.zeros(10), 0.5)
    0.0
    """

    def count(share: float) -> float:
        log_w = base - share * f
        return float(np.exp(2 * log_sum(log_w) - log_sum(2 * log_w)))

    wanted = ENOUGH * count(share)
    if wanted < ENOUGH**3 * len(f):
        return 0.0
    if count(1.0) >= wanted:
        return 1.0
    low, high = share, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if count(middle) >= wanted else (low, middle)
    return low if low > share else 0.0
