"""A surrogate of each row's elpd, from a few points; which rows it fails for; sums by a sample."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.values import Rows

type Floats = NDArray[np.float64]
type Positions = NDArray[np.int64]


class ElpdSurrogate(NamedTuple):
    """Figures of each row, (n_rows,), from its log-likelihood at a few points.

    How often it counts; about the log of its predictive density given the others, in nats; what the
    row itself adds to that; and the variance of its log-likelihood, about the symmetrised KL
    divergence of the posteriors with and without the row.
    """

    counts: Floats
    elpd: Floats
    gain: Floats
    influence: Floats

    @classmethod
    def of(cls, logliks: Sequence[LogLikelihood], draws: Draws, weights: Floats) -> "ElpdSurrogate":
        """Compute it at 64 points, for draws with weights (n_draws,)."""
        points = _points(logliks[0], draws, weights)
        parts = [loglik.of_all(points, of_block, of_blocks) for loglik in logliks]
        return cls(*np.concatenate(parts, axis=1))

    def with_known(self, numbers: Positions, elpd: Floats, gain: Floats) -> "ElpdSurrogate":
        """Return it with known values of some rows."""
        own = self._replace(elpd=self.elpd.copy(), gain=self.gain.copy())
        own.elpd[numbers], own.gain[numbers] = elpd, gain
        return own

    def certain(self, size: int) -> Positions:
        """Return the numbers of rows that no sample of `size` rows should leave to chance.

        These are the rows that a sample in proportion to influence would contain with certainty,
        and those without which the posterior is another; `size` rows at most.

        References
        ----------
        Särndal, Swensson, Wretman (1992). Model Assisted Survey Sampling, section 3.6.2. Springer.

        Examples
        --------
        >>> influence = np.array([0.0, 1.0, 1.0, 1.0, 9.0, 1.0]) / 1000
        >>> zeros = np.zeros(6)
        >>> ElpdSurrogate(np.ones(6), zeros, zeros, influence).certain(2)
        array([4])
        """
        measure = self.counts * np.where(self.counts > 0, self.influence, 0.0)
        largest = np.argpartition(-measure, size)[:size] if size < len(measure) else slice(None)
        order = np.arange(len(measure))[largest]
        order = order[np.argsort(-measure[order])]
        heights = measure[order]
        with np.errstate(invalid="ignore"):
            finite = np.where(np.isfinite(heights), heights, 0.0)
            total = measure[np.isfinite(measure)].sum()
            rest = total - np.cumsum(finite) + finite  # of these rows and all below
            apart = np.logical_and.accumulate((size * heights >= rest) & (heights > 0))
        other = self.influence[order] >= 2 * TOLERANCE
        return np.sort(order[apart | other])


def of_block(values: np.ndarray, rows: Rows) -> Floats:
    """Return the figures of a block of rows, (4, n_rows), from values (n_points, n_rows)."""
    elpd = -_log_means(-values)
    with np.errstate(invalid="ignore"):
        influence = values.var(axis=0)
    influence[~np.isfinite(influence)] = np.inf
    return np.stack([rows.case_weights, elpd, _log_means(values) - elpd, influence])


def of_blocks(parts: Iterable[Floats]) -> Floats:
    """Join them."""
    return np.concatenate([np.empty((4, 0)), *parts], axis=1)


def _points(loglik: LogLikelihood, draws: Draws, weights: Floats) -> Draws:
    """Return some draws by their weights, moved to the mean of all, and their mirror images."""
    space = loglik.observations.space
    with np.errstate(divide="ignore", over="ignore"):  # for draws that were rounded to the border
        free = space.free(draws)
    usable = np.isfinite(free).all(axis=1)
    weights = np.where(usable, weights, 0.0)
    if not weights.any():
        raise InvalidDataError(
            "Every draw has a variable on the border of its support (a probability that is exactly "
            "1, for instance), where nothing can be moved: give the variable a prior that keeps it "
            "off the border."
        )
    free[~usable] = 0.0
    heights = np.cumsum(weights)
    pairs = 32  # of points: they cost as much as 64 draws
    evenly = (np.arange(pairs) + 0.5) / pairs * heights[-1]
    some = free[np.searchsorted(heights, evenly)]
    away = some - weights @ free / heights[-1]
    both = np.concatenate([some, some - 2 * away])
    # Discrete variables keep their values.
    both[:, ~space.continuous] = np.concatenate([some, some])[:, ~space.continuous]
    return space.constrain(both)


def _log_means(exponents: Floats) -> Floats:
    """Return ``log mean(exp(x))`` of each column, over the points where x is finite; 0 for none."""
    with np.errstate(invalid="ignore"):  # of infinite values
        top = exponents.max(axis=0)
        powers = exponents - top
        means: Floats = np.log(np.exp(powers, out=powers).mean(axis=0)) + top
        odd = ~np.isfinite(exponents.sum(axis=0))
    if odd.any():
        usable = np.isfinite(exponents[:, odd])
        number = usable.sum(axis=0)
        totals = logsumexp(exponents[:, odd], axis=0, b=usable)
        means[odd] = np.where(number, totals - np.log(np.maximum(number, 1)), 0.0)
    return means


# -- sums over all rows ----------------------------------------------------------------------------


class SumOfRows(NamedTuple):
    """A sum over all rows, and its standard errors over samples of rows and over data sets."""

    total: float
    subsampling_se: float
    data_se: float


def difference_estimate(
    *, surrogate: Floats, sampled: Positions, values: Floats, counts: Floats
) -> SumOfRows:
    """Estimate a sum over all rows from a surrogate of all, and the values of a random sample.

    Parameters
    ----------
    surrogate : ndarray of shape (n_rows,)
        Of the value of each row.
    sampled : ndarray of int64
        Numbers of the rows of a simple random sample without replacement, 2 at least.
    values : ndarray of shape (len(sampled),)
        Their values.
    counts : ndarray of shape (n_rows,)
        How often each row counts.

    Returns
    -------
    SumOfRows
        `subsampling_se` is 0 if all rows are in the sample; `data_se` is ``sqrt(N Var(value))``,
        counts included.

    References
    ----------
    Magnusson, Vehtari, Jonasson, Andersen (2020). Leave-one-out cross-validation for Bayesian model
    comparison in large data, equations 7 to 9. https://doi.org/10.48550/arXiv.2001.00980

    Examples
    --------
    >>> found = difference_estimate(
    ...     surrogate=np.zeros(4),
    ...     sampled=np.array([0, 2]),
    ...     values=np.array([1.0, 3.0]),
    ...     counts=np.ones(4),
    ... )
    >>> found.total, round(found.subsampling_se, 3)
    (8.0, 2.828)
    """
    all_rows, some, n_rows = counts * surrogate, counts[sampled], len(counts)
    total, se, _ = array_stats.diff_srs_estimator(
        some * values, all_rows[sampled], all_rows, n_rows
    )
    residual = some * (values**2 - surrogate[sampled] ** 2)
    squares = all_rows @ surrogate + n_rows * residual.mean()
    # The square of the estimate is too large by its variance.
    variance = squares - (total**2 - se**2) / counts.sum()
    return SumOfRows(float(total), float(se), math.sqrt(max(float(variance), 0.0)))
