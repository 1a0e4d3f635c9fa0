"""Leave-one-out cross-validation of all rows, by a surrogate of all and a sample of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics.importance import (
    SmoothedWeights,
    khat_threshold,
    log_sum,
    pareto_smooth,
    smooth_tail,
)
from pymc_coresets.diagnostics.judging import KL_NEGLIGIBLE, MIN_ESS
from pymc_coresets.exceptions import InvalidDataError, warn_user
from pymc_coresets.potentials.backends.evaluator import Evaluator
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.predictive.elpd import DifferenceEstimate, ElpdOfAllRows
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.keyed import numbers_of
from pymc_coresets.rows.values import Rows

__all__ = ["CorrectedDraws", "elpd_of_rows"]

type Floats = NDArray[np.float64]
type Positions = NDArray[np.int64]

_PAIRS = 32  # of points of the surrogate: its cost is that of 64 draws
_WIDE = 600.0  # nats, beyond which exponentials overflow
_BLOCK_ENTRIES = 2**22  # of float64: 32 MB
_OBSERVATION = "observation"  # the dimension of the results
_N_SHOWN = 3
_INFLUENTIAL = (
    "The posterior without them differs too much: use a likelihood with heavier tails, or "
    "cross-validate them by refitting."
)


@dataclass(frozen=True, eq=False)
class CorrectedDraws:
    """Draws of one posterior, and what corrects them to another.

    Parameters
    ----------
    draws : Draws
        Of all free variables, the chains one after the other.
    log_p, log_q : ndarray of shape (n_chains, n_draws)
        Log-density that is meant, and that was drawn from, at the draws, each up to a constant.
    """

    draws: Draws
    log_p: Floats
    log_q: Floats

    @cached_property
    def log_ratios(self) -> Floats:
        """Log of the importance ratios, (n_chains * n_draws,)."""
        return np.ravel(self.log_p - self.log_q)

    @cached_property
    def smoothed(self) -> SmoothedWeights:
        """Their importance weights."""
        return pareto_smooth(self.log_ratios.reshape(self.log_p.shape))

    @property
    def weights(self) -> Floats:
        """The weights (n_chains * n_draws,), which sum to one."""
        return self.smoothed.weights.ravel()

    @property
    def influences(self) -> Floats:
        """Influence of each draw on the weighted mean of `log_p`, (n_chains * n_draws,)."""
        log_p = self.log_p.ravel()
        return log_p.size * self.weights * (log_p - self.weights @ log_p)

    def mcse(self, influences: Floats) -> float:
        """Monte Carlo standard error of an estimate, from the draws' influences on it."""
        stats: Any = array_stats
        return float(stats.mcse(influences.reshape(self.log_p.shape), method="mean"))


def elpd_of_rows(
    logliks: Sequence[LogLikelihood],
    found: CorrectedDraws,
    *,
    observations: int | None,
    key: int,
    remedy: str,
) -> ElpdOfAllRows:
    """Estimate the leave-one-out elpd of all rows.

    Costs 64 log-likelihoods of every row, and those of a sample of rows at all draws, whose tails
    are smoothed one by one (about 1.5 ms for each row).  Memory: some 40 bytes for each row.

    Parameters
    ----------
    logliks : sequence of LogLikelihood
        Of all rows, in one or several parts.
    found : CorrectedDraws
    observations : int or None
        Size of the sample; None for all rows.
    key : int
        Of the random numbers that choose the sample.
    remedy : str
        What to do where the correction of the draws is not to be relied on.

    Returns
    -------
    ElpdOfAllRows

    Warns
    -----
    CoresetWarning
        If Pareto k-hat of a row of the sample is too large, and the posterior without it differs
        noticeably; or if few of the corrected draws count.

    Notes
    -----
    With ratios r_s of the full posterior over the one that was drawn from, the weights of row n are
    ``r_s / p(y_n | theta_s)``, Pareto-smoothed (Magnusson et al. 2019, section 2.2).  Where a row
    stands for several equal ones, one of them is left out.

    The surrogate is the same without smoothing, at 64 points: 32 of the draws, moved so that their
    mean is the weighted mean of all draws, and their mirror images, all in the unconstrained space.
    It so shares what the draws' mean is off with the values of the sample, and what is left differs
    little from row to row.

    The Monte Carlo error is that of the sum over all rows: to first order its influences are those
    on the log-likelihood of all rows, which is known, and the sample gives the rest.

    References
    ----------
    Magnusson, Andersen, Jonasson, Vehtari (2019). Bayesian leave-one-out cross-validation for large
    data. https://doi.org/10.48550/arXiv.1904.10679

    Magnusson, Vehtari, Jonasson, Andersen (2020). Leave-one-out cross-validation for Bayesian model
    comparison in large data. https://doi.org/10.48550/arXiv.2001.00980
    """
    _warn_of_correction(found, remedy)
    rows = _AllRows([loglik.collapsed(collapse=False) for loglik in logliks])
    sampled = _sample(rows.n_rows, observations, key)
    left = _left_out(rows, sampled, found)
    everything = len(sampled) == rows.n_rows
    surrogate, gain, counts = (
        (left.elpd, left.gain, left.counts) if everything else _surrogate(rows, found)
    )
    estimate = DifferenceEstimate(
        surrogate=surrogate, sampled=sampled, values=left.elpd, counts=counts
    )
    parameters = DifferenceEstimate(
        surrogate=gain, sampled=sampled, values=left.gain, counts=counts
    )
    scale = rows.n_rows / len(sampled)
    pareto_k, good_k = rows.labelled(sampled, left.khat), khat_threshold(found.log_ratios.size)
    doubtful = (left.khat > good_k) & (left.divergence >= KL_NEGLIGIBLE)
    if doubtful.any():
        bad_posterior = found.smoothed.pareto_khat > good_k
        _warn(pareto_k[doubtful], len(sampled), good_k, remedy if bad_posterior else _INFLUENTIAL)
    contributions = counts * surrogate
    pointwise = contributions.copy()
    pointwise[sampled] = left.counts * left.elpd
    return ElpdOfAllRows(
        elpd=estimate.total,
        se=estimate.data_se,
        p=parameters.total,
        n_samples=found.log_ratios.size,
        n_data_points=rows.n_rows,
        scale="log",
        warning=bool(doubtful.any()),
        good_k=good_k,
        elpd_i=xr.DataArray(pointwise, dims=_OBSERVATION, name="elpd_i"),
        pareto_k=pareto_k,
        approx_posterior=True,
        subsample_size=len(sampled),
        subsampling_se=estimate.subsampling_se,
        loo_subsample_observations=sampled,
        elpd_loo_approx=xr.DataArray(contributions, dims=_OBSERVATION),
        log_p=xr.DataArray(found.log_p, dims=("chain", "draw")),
        log_q=xr.DataArray(found.log_q, dims=("chain", "draw")),
        mcse=found.mcse(found.influences + scale * left.influences),
        posterior_khat=found.smoothed.pareto_khat,
    )


def _sample(n_rows: int, size: int | None, key: int) -> Positions:
    """Return the numbers of a simple random sample: the same for all models of as many rows."""
    if size is None or size >= n_rows:
        return np.arange(n_rows)
    sampled: Positions = np.argpartition(numbers_of(np.arange(n_rows), key), size)[:size]
    sampled.sort()
    return sampled


class _AllRows:
    """The rows of all parts, numbered one part after the other."""

    def __init__(self, logliks: Sequence[LogLikelihood]) -> None:
        self.logliks = logliks
        self._borders = np.cumsum([0, *(loglik.n_rows for loglik in logliks)])
        self.n_rows = int(self._borders[-1])

    def blocks(self, size: int, sampled: Positions) -> Iterator[tuple[LogLikelihood, Rows]]:
        """Read the rows with some numbers in blocks of `size`."""
        for i, loglik in enumerate(self.logliks):
            if len(sampled) == self.n_rows:
                blocks = loglik.source.blocks(size)
            else:
                blocks = loglik.source.at(self._positions(i, sampled)).blocks(size)
            for block in blocks:
                yield loglik, block

    def labelled(self, sampled: Positions, values: Floats) -> xr.DataArray:
        """Label the values of some rows with the rows' positions and places."""
        parts = [self._positions(i, sampled) for i in range(len(self.logliks))]
        places = [
            loglik.source.place(position)
            for loglik, part in zip(self.logliks, parts, strict=True)
            for position in part.tolist()
        ]
        coords = {"position": np.concatenate(parts), "where": np.array(places, dtype=object)}
        along = {name: (_OBSERVATION, labels) for name, labels in coords.items()}
        return xr.DataArray(values, dims=_OBSERVATION, coords=along, name="pareto_k")

    def _positions(self, part: int, sampled: Positions) -> Positions:
        """Return the positions, in the user's data, of those rows that lie in a part."""
        first, last = self._borders[part : part + 2]
        own: Positions = sampled[(sampled >= first) & (sampled < last)] - first
        positions: Positions | None = self.logliks[part].observations.positions
        return own if positions is None else positions[own]


# -- every row at a few points ---------------------------------------------------------------------


def _surrogate(rows: _AllRows, found: CorrectedDraws) -> Floats:
    """Return, of every row, about its elpd and its own gain in it, and how often it counts."""
    points = _points(rows.logliks[0], found)
    parts = (
        part.source.reduce(
            _SurrogatePass(
                part.evaluator, part.given(points), part.evaluator.matrix_rows(points.n_draws)
            )
        )
        for part in rows.logliks
    )
    return np.concatenate(list(parts), axis=1)


@dataclass(frozen=True, eq=False)
class _SurrogatePass:
    """See `_surrogate`."""

    evaluator: Evaluator
    given: Sequence[np.ndarray]
    size: int

    def begin(self) -> Callable[[Rows], Floats]:
        values_of = self.evaluator.at(self.given).values

        def surrogate(rows: Rows) -> Floats:
            inverse, mean = _log_means(values_of(rows))
            return np.stack([-inverse, mean + inverse, rows.base_weights])

        return surrogate

    def joined(self, parts: Iterable[Floats]) -> Floats:
        return np.concatenate([np.empty((3, 0)), *parts], axis=1)


def _points(loglik: LogLikelihood, found: CorrectedDraws) -> Draws:
    """Return some draws by their weights, moved to the mean of all, and their mirror images."""
    space = Unconstrained(loglik.observations.model)
    with np.errstate(divide="ignore", over="ignore"):  # for draws that were rounded to the border
        free = space.free(found.draws)
    usable = np.isfinite(free).all(axis=1)
    weights = np.where(usable, found.weights, 0.0)
    if not weights.any():
        raise InvalidDataError(
            "Every draw has a variable on the border of its support (a probability that is exactly "
            "1, for instance), where nothing can be moved: give the variable a prior that keeps it "
            "off the border."
        )
    free[~usable] = 0.0
    heights = np.cumsum(weights)
    evenly = (np.arange(_PAIRS) + 0.5) / _PAIRS * heights[-1]
    some = free[np.searchsorted(heights, evenly)]
    away = some - weights @ free / heights[-1]
    both = np.concatenate([some, some - 2 * away])
    # What is discrete stays where it was.
    both[:, ~space.continuous] = np.concatenate([some, some])[:, ~space.continuous]
    return space.constrain(both)


def _log_means(values: Floats) -> tuple[Floats, Floats]:
    """Return ``log mean(exp(-x))`` and ``log mean(exp(x))`` of each column."""
    with np.errstate(invalid="ignore"):  # of infinite values
        lowest = values.min(axis=0)
        above = values - lowest
        ordinary = above.max(initial=0.0) < _WIDE  # not if a value is NaN
    if not ordinary:
        return _log_mean_of_finite(-values), _log_mean_of_finite(values)
    np.exp(above, out=above)
    mean = np.log(above.mean(axis=0))
    np.reciprocal(above, out=above)
    return np.log(above.mean(axis=0)) - lowest, mean + lowest


def _log_mean_of_finite(exponents: Floats) -> Floats:
    """Return ``log mean(exp(x))`` of each column, over the points where x is finite."""
    usable = np.isfinite(exponents)
    largest = np.max(exponents, axis=0, initial=-np.inf, where=usable)
    largest[np.isinf(largest)] = 0.0  # any number does, where there is none
    total = np.exp(np.where(usable, exponents, -np.inf) - largest).sum(axis=0)
    number = usable.sum(axis=0)
    logs: Floats = np.log(np.where(number, total, 1.0) / np.maximum(number, 1))
    return largest + logs


# -- a sample of rows at all draws -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _LeftOut:
    """Rows that were left out, one at a time.

    Attributes
    ----------
    elpd : ndarray of shape (n_rows,)
        Log of the predictive density of the row, given the others.
    gain : ndarray of shape (n_rows,)
        What the row itself adds to that.
    khat : ndarray of shape (n_rows,)
    divergence : ndarray of shape (n_rows,)
        About how far the posterior that was sampled is from that without the row, in nats.
    counts : ndarray of shape (n_rows,)
        How often each row counts.
    influences : ndarray of shape (n_draws,)
        Of each draw on the sum of elpd, less that on the sum of the mean log-likelihoods.
    """

    elpd: Floats
    gain: Floats
    khat: Floats
    divergence: Floats
    counts: Floats
    influences: Floats


def _left_out(rows: _AllRows, sampled: Positions, found: CorrectedDraws) -> _LeftOut:
    n_draws = found.log_ratios.size
    weights = found.weights
    log_weights = np.ravel(found.smoothed.log_weights)
    influences = np.zeros(n_draws)
    figures, counts = [], []
    for loglik, block in rows.blocks(max(1, _BLOCK_ENTRIES // n_draws), sampled):
        counts.append(block.base_weights)
        for count, f in zip(block.base_weights, loglik.matrix(found.draws, block), strict=True):
            ratios = found.log_ratios - f
            log_w, khat = smooth_tail(ratios)
            elpd = log_sum(log_w + f)
            figures.append((elpd, log_sum(log_weights + f) - elpd, khat, np.var(ratios) / 2))
            own = np.exp(log_w + f - elpd) - np.exp(log_w)
            influences += (count * n_draws) * (own - weights * (f - weights @ f))
    elpds, gains, khats, divergences = np.array(figures).T
    return _LeftOut(
        elpd=elpds,
        gain=gains,
        khat=khats,
        divergence=divergences,
        counts=np.concatenate(counts),
        influences=influences,
    )


def _warn_of_correction(found: CorrectedDraws, remedy: str) -> None:
    """Say that standard errors do not know what draws never saw, where few of them count."""
    ess = found.smoothed.ess
    if ess < MIN_ESS and np.var(found.log_ratios) / 2 >= KL_NEGLIGIBLE:
        warn_user(
            f"Corrected to the full posterior, the draws are worth {ess:.0f} independent ones: the "
            f"elpd is not to be relied on, whatever its standard errors. {remedy}"
        )


def _warn(pareto_k: xr.DataArray, n_sampled: int, good_k: float, remedy: str) -> None:
    worst = pareto_k[np.argsort(-pareto_k.to_numpy())[:_N_SHOWN]]
    named = ", ".join(
        f"{place} ({khat:.2f})"
        for place, khat in zip(worst["where"].values, worst.values, strict=True)
    )
    warn_user(
        f"Pareto k-hat is above {good_k:.2f} for {len(pareto_k):,} of the {n_sampled:,} rows that "
        f"were left out, the worst of them {named}: their elpd is not to be relied on. {remedy}"
    )
