"""The expected log predictive density of all rows, as ArviZ's own kind of result."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_coresets.compat.arviz_api import ELPDDataLOOSubsample, array_stats

type Floats = NDArray[np.float64]


@dataclass(kw_only=True, repr=False, eq=False)
class ElpdOfAllRows(ELPDDataLOOSubsample):
    """What `Coreset.loo` returns: `arviz.ELPDData` with two figures more.

    Parameters
    ----------
    mcse : float
        Monte Carlo standard error of `elpd`, in nats: what other draws would change.  What other
        rows in the sample would change is `subsampling_se`; what other data would, `se`.
    posterior_khat : float
        Pareto k-hat of the importance ratios of the full posterior over the one that was sampled.

    Notes
    -----
    Its arrays `elpd_i` and `elpd_loo_approx` have one entry per row: what the row adds to the sum,
    which is its elpd times its base weight.  `elpd_i` holds the surrogate where a row is not in
    the sample `loo_subsample_observations`.  `pareto_k` has one entry per row of the sample, with
    the coordinates ``position`` and ``where``.
    """

    mcse: float
    posterior_khat: float

    def __str__(self) -> str:
        note = f"Monte Carlo standard error of elpd_loo: {self.mcse:.2g}"
        table: str = super().__str__()  # type: ignore[no-untyped-call]
        return f"{table}\n{note}\n"


class SumOfRows(NamedTuple):
    """A sum over all rows, and its standard errors over samples of rows and over data sets."""

    total: float
    subsampling_se: float
    data_se: float


def difference_estimate(
    *, surrogate: Floats, sampled: NDArray[np.int64], values: Floats, counts: Floats
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
        `subsampling_se` is 0 where all rows are in the sample; `data_se` is ``sqrt(N Var(value))``,
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
    stats: Any = array_stats
    all_rows, some, n_rows = counts * surrogate, counts[sampled], len(counts)
    total, se, _ = stats.diff_srs_estimator(some * values, all_rows[sampled], all_rows, n_rows)
    residual = some * (values**2 - surrogate[sampled] ** 2)
    squares = all_rows @ surrogate + n_rows * residual.mean()
    # The square of the estimate is too large by its variance.
    variance = squares - (total**2 - se**2) / counts.sum()
    return SumOfRows(float(total), float(se), math.sqrt(max(float(variance), 0.0)))
