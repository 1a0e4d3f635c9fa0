"""Rows on which a posterior depends along some axis, few of which a sample at random has.

A coefficient may be seen by three rows of a million, and the scale of a rare kind of units by two
units.  A sample without them knows only the prior along that axis: it shows neither the modes that
these rows make nor the nodes that these units need.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.normal import Normal

#: Standard deviations along each axis, over which log-likelihoods differ.
_STEP = 1.5
#: Rows along each axis that are kept at most, and the part of the sum over all rows that a row has.
_MOST, _PART = 20, 0.01
#: How many rows that share an axis a sample has, on average, if it shows what they say of it.
_SEEN = 10.0


def rows_that_decide(loglik: LogLikelihood, around: Normal, n_sampled: int) -> Rows:
    """Return the rows that a sample needs besides; mostly none.

    Along an axis of the sample's posterior, the log-likelihood of a row differs by ``d_n`` over one
    and a half standard deviations.  If its part of the sum over all rows is p, the axis depends on
    about ``1 / p`` rows, of which a sample has ``n_sampled / (p n_rows)``.

    Time: D + 1 evaluations of all rows.

    Parameters
    ----------
    loglik : LogLikelihood
        Of all rows.
    around : Normal
        The posterior of the sample.
    n_sampled : int
        Number of rows of the sample.
    """
    n_dims = len(around.location)
    points = np.concatenate([around.location[None], around.at(_STEP * np.eye(n_dims))])
    with np.errstate(all="ignore"):  # far out
        draws = loglik.observations.space.constrain(points)
        found: _Differences = loglik.of_all(draws, _Differences.of, _Differences.joined)
    part = found.of_rows / np.where(found.total > 0, found.total, np.inf)
    least = max(_PART, n_sampled / loglik.n_rows / _SEEN)
    return found.rows.take(np.flatnonzero((part > least).any(axis=1)))


def with_rows(sample: RowSample, decisive: Rows) -> RowSample:
    """Add rows that stand for themselves alone to a sample.

    Examples
    --------
    >>> sample = RowSample(rows=Rows(np.array([1, 4]), np.ones(2)), weights=np.array([5.0, 5.0]))
    >>> more = with_rows(sample, Rows(np.array([3, 4]), np.ones(2)))
    >>> more.rows.positions, more.weights
    (array([1, 3, 4]), array([5., 1., 1.]))
    """
    others = ~np.isin(sample.rows.positions, decisive.positions)
    rows = Rows.joined([sample.rows.take(others), decisive])
    weights = np.empty(len(rows))
    weights[rows.where(sample.rows.positions[others])] = sample.weights[others]
    weights[rows.where(decisive.positions)] = decisive.case_weights
    return RowSample(rows=rows, weights=weights)


@dataclass(frozen=True, eq=False)
class _Differences:
    """Absolute differences of log-likelihoods along axes, in nats: sums, and the largest.

    Parameters
    ----------
    total : ndarray of shape (n_dims,)
    rows : Rows
        Those of the largest differences along each axis.
    of_rows : ndarray of shape (len(rows), n_dims)
    """

    total: np.ndarray
    rows: Rows
    of_rows: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, rows: Rows) -> Self:
        """Take log-likelihoods (1 + n_dims, n_rows) in the middle and along each axis."""
        with np.errstate(invalid="ignore"):  # infinite ones
            size = rows.case_weights * np.abs(values[1:] - values[0])
        size = np.where(np.isfinite(size), size, 0.0).T
        return cls(size.sum(axis=0), rows, size).largest

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Join those of consecutive blocks."""
        every = [*parts]
        total = np.sum([part.total for part in every], axis=0)
        rows = Rows.joined([part.rows for part in every])
        of_rows = np.empty((len(rows), len(total)))
        for part in every:
            of_rows[rows.where(part.rows.positions)] = part.of_rows
        return cls(total, rows, of_rows).largest

    @property
    def largest(self) -> Self:
        """The same without the rows that are not among the largest along any axis."""
        if len(self.rows) <= _MOST:
            return self
        last = np.argpartition(-self.of_rows, _MOST - 1, axis=0)[:_MOST]
        kept = np.unique(last)
        return replace(self, rows=self.rows.take(kept), of_rows=self.of_rows[kept])
