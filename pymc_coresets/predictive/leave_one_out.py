"""Leave-one-out cross-validation of all rows, by a surrogate of all and a sample of them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_coresets.compat.arviz_api import ELPDDataLOOSubsample, array_stats
from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws, wanted_ess
from pymc_coresets.diagnostics.importance import khat_threshold, log_sum, smooth_tail
from pymc_coresets.diagnostics.judging import ENOUGH_ESS, MIN_ESS, TOLERANCE
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, Chains, require_own
from pymc_coresets.exceptions import InvalidDataError, warn_user
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.options import generator, whole_number
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.predictive.stand_ins import HasStandIn
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.keyed import numbers_of, random_key
from pymc_coresets.rows.values import Rows

type Floats = NDArray[np.float64]
type Positions = NDArray[np.int64]
type _Part = tuple[LogLikelihood, Positions]


@dataclass(kw_only=True, repr=False, eq=False)
class ElpdOfAllRows(ELPDDataLOOSubsample):
    """Result of `Coreset.loo`: `arviz.ELPDData` with two additional numbers.

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
    which is its elpd times its base weight.  `elpd_i` holds the surrogate if a row is not in
    the sample `loo_subsample_observations`.  `pareto_k` has one entry per row of the sample, with
    the coordinates ``position`` and ``where``.
    """

    mcse: float
    posterior_khat: float

    def __str__(self) -> str:
        note = f"Monte Carlo standard error of elpd_loo: {self.mcse:.2g}"
        table: str = super().__str__()  # type: ignore[no-untyped-call]
        return f"{table}\n{note}\n"


def loo(
    result: HasStandIn,
    idata: xr.DataTree,
    *,
    ess: float = ENOUGH_ESS,
    observations: int | None = 1_000,
    random_seed: int | np.random.Generator | None = None,
) -> ElpdOfAllRows:
    """Estimate the leave-one-out predictive density (elpd) of all rows, not of the few.

    All rows are evaluated at as many draws as `reweight` evaluates: all where this takes some
    seconds, and elsewhere as many as are worth 400 independent ones; the result states the
    Monte Carlo error.  Costs one or two passes over the data for these draws, one for 64, and
    `observations` rows at the same draws, about 1 ms for each.  Memory: some 40 bytes per row
    of the data.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, from `sample` or `pm.sample`.
    ess : float, default 400
        Effective sample size of the draws, weighted by the full posterior, that is enough;
        `math.inf` evaluates all draws.
    observations : int, optional
        How many rows, drawn at random, are left out one by one; None for all.  The others
        contribute by a surrogate.
    random_seed : int or Generator, optional
        Decides which.  The same seed gives the same rows for every model of the data, so that
        `arviz.compare` compares them pair by pair.

    Returns
    -------
    ElpdOfAllRows
        An `arviz.ELPDData`, with standard errors apart: `subsampling_se`, `mcse` and `se`.

    Raises
    ------
    InvalidOptionError
        If `observations` is not a whole number of at least 2, `ess` not positive, or `random_seed`
        not a seed.
    InvalidDataError
        If the draws lack a variable, are impossible under the full data, fewer than 30, or
        those of `reweight` or `importance_draws`, which are corrected already.

    Warns
    -----
    CoresetWarning
        If Pareto k-hat of a row that was left out is too large, or few draws count once they
        are corrected to the full posterior.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.sample(draws=100, tune=100, chains=2, random_seed=1, progressbar=False)
    >>> coreset.loo(idata, observations=100, random_seed=1).n_data_points
    500
    """
    own = result.stand_in
    if observations is not None:
        observations = whole_number("observations", observations, least=2)
    ess, key = wanted_ess(ess), random_key(generator(random_seed))
    own.require_all_rows()
    idata = require_own(idata, "loo()", own.groups)
    chains = Chains(idata, own.free)
    evaluated = own.evaluated(chains, ess, exactly=True)
    draws = Draws.of(chains.some(evaluated.numbers), own.free)
    return elpd_of_rows(
        own.parts, draws, evaluated, observations=observations, key=key, remedy=own.remedy
    )


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


def elpd_of_rows(
    logliks: Sequence[LogLikelihood],
    draws: Draws,
    found: EvaluatedDraws,
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
    draws : Draws
        The chains one after the other.
    found : EvaluatedDraws
        Importance weights that correct them to the full posterior.
    observations : int or None
        Size of the sample; None for all rows.
    key : int
        Key of the random numbers that choose the sample.
    remedy : str
        Remedy if the correction of the draws is unreliable.

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
    ess = found.smoothed.ess
    if ess < MIN_ESS and np.var(found.log_ratios) / 2 >= TOLERANCE:
        # Standard errors do not know what draws never saw.
        warn_user(
            f"Corrected to the full posterior, the draws are worth {ess:.0f} independent ones: the "
            f"elpd is not to be relied on, whatever its standard errors. {remedy}"
        )
    logliks = [loglik.collapsed(collapse=False) for loglik in logliks]
    n_rows = sum(loglik.n_rows for loglik in logliks)
    sampled = _sample(n_rows, observations, key)
    parts = _rows_of_parts(logliks, sampled)
    left, influences = _left_out(parts, draws, found)
    all_rows = left if len(sampled) == n_rows else _surrogate(logliks, draws, found)
    elpd, parameters = (
        difference_estimate(
            surrogate=surrogate, sampled=sampled, values=values, counts=all_rows.counts
        )
        for surrogate, values in ((all_rows.elpd, left.elpd), (all_rows.gain, left.gain))
    )
    pareto_k, good_k = _labelled(left.khat, parts), khat_threshold(found.log_p.size)
    doubtful = (left.khat > good_k) & (left.divergence >= TOLERANCE)
    if doubtful.any():
        if found.smoothed.pareto_khat <= good_k:  # the rows are at fault, and not the draws
            remedy = (
                "The posterior without them differs too much: use a likelihood with heavier "
                "tails, or cross-validate them by refitting."
            )
        _warn(pareto_k[doubtful], len(sampled), good_k, remedy)
    contributions = all_rows.counts * all_rows.elpd
    pointwise = contributions.copy()
    pointwise[sampled] = left.counts * left.elpd
    log_p, weights = found.log_p.ravel(), found.smoothed.weights.ravel()
    # Of each draw on the weighted mean of the log-likelihood of all rows, and on what is left.
    of_mean = log_p.size * weights * (log_p - weights @ log_p)
    influences = of_mean + n_rows / len(sampled) * influences
    return ElpdOfAllRows(
        elpd=elpd.total,
        se=elpd.data_se,
        p=parameters.total,
        n_samples=found.log_p.size,
        n_data_points=n_rows,
        scale="log",
        warning=bool(doubtful.any()),
        good_k=good_k,
        elpd_i=xr.DataArray(pointwise, dims="observation", name="elpd_i"),
        pareto_k=pareto_k,
        approx_posterior=True,
        subsample_size=len(sampled),
        subsampling_se=elpd.subsampling_se,
        loo_subsample_observations=sampled,
        elpd_loo_approx=xr.DataArray(contributions, dims="observation"),
        log_p=xr.DataArray(found.log_p, dims=SAMPLE_DIMS),
        log_q=xr.DataArray(found.log_q, dims=SAMPLE_DIMS),
        mcse=float(array_stats.mcse(influences.reshape(found.log_p.shape), method="mean")),
        posterior_khat=found.smoothed.pareto_khat,
    )


def _sample(n_rows: int, size: int | None, key: int) -> Positions:
    """Return the numbers of a simple random sample: the same for all models of as many rows."""
    if size is None or size >= n_rows:
        return np.arange(n_rows)
    sampled: Positions = np.argpartition(numbers_of(np.arange(n_rows), key), size)[:size]
    sampled.sort()
    return sampled


def _rows_of_parts(logliks: Sequence[LogLikelihood], numbers: Positions) -> list[_Part]:
    """Return the positions, in the data of each part, of rows that are numbered over all parts."""
    parts, start = [], 0
    for loglik in logliks:
        own = numbers[(numbers >= start) & (numbers < start + loglik.n_rows)] - start
        positions = loglik.observations.positions
        parts.append((loglik, own if positions is None else positions[own]))
        start += loglik.n_rows
    return parts


def _labelled(values: Floats, parts: Sequence[_Part]) -> xr.DataArray:
    """Label the values of rows with their positions and places."""
    places = [loglik.source.place(int(i)) for loglik, positions in parts for i in positions]
    labels = {
        "position": np.concatenate([positions for _, positions in parts]),
        "where": np.array(places, dtype=object),
    }
    along = {name: ("observation", values) for name, values in labels.items()}
    return xr.DataArray(values, dims="observation", coords=along, name="pareto_k")


# -- every row at a few points ---------------------------------------------------------------------


def _surrogate(logliks: Sequence[LogLikelihood], draws: Draws, found: EvaluatedDraws) -> "_Elpds":
    """Return, of every row, about its elpd and its own gain in it, and how often it counts."""
    points = _points(logliks[0], draws, found.smoothed.weights.ravel())
    parts = [loglik.of_all(points, _of_block, _of_blocks) for loglik in logliks]
    return _Elpds(*np.concatenate(parts, axis=1))


def _of_block(values: np.ndarray, rows: Rows) -> Floats:
    elpd = -_log_means(-values)
    return np.stack([rows.base_weights, elpd, _log_means(values) - elpd])


def _of_blocks(parts: Iterable[Floats]) -> Floats:
    return np.concatenate([np.empty((3, 0)), *parts], axis=1)


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


# -- a sample of rows at all draws -----------------------------------------------------------------


class _Elpds(NamedTuple):
    """Figures of rows: how often each counts, and what leaving it out once says.

    The log of the predictive density of the row given the others, what the row itself adds to that,
    Pareto k-hat, and about how far the posterior that was sampled is from that without the row, in
    nats.
    """

    counts: Floats
    elpd: Floats
    gain: Floats
    khat: Floats = np.empty(0)
    divergence: Floats = np.empty(0)


def _left_out(parts: Sequence[_Part], draws: Draws, found: EvaluatedDraws) -> tuple[_Elpds, Floats]:
    """Leave out rows one at a time.

    Also returns the influence of each draw on the sum of elpd, less that on the sum of the mean
    log-likelihoods.
    """
    log_weights, log_ratios = found.smoothed.log_weights.ravel(), found.log_ratios.ravel()
    weights, influences = np.exp(log_weights), np.zeros(draws.n_draws)
    figures, size = [], rows_at_once(draws.n_draws)
    for loglik, positions in parts:
        whole = len(positions) == loglik.n_rows
        rows = loglik.source if whole else loglik.source.at(positions)
        for block in rows.blocks(size):
            for count, f in zip(block.base_weights, loglik.matrix(draws, block), strict=True):
                ratios = log_ratios - f
                log_w, khat = smooth_tail(ratios)
                elpd = log_sum(log_w + f)
                gain = log_sum(log_weights + f) - elpd
                figures.append((count, elpd, gain, khat, np.var(ratios) / 2))
                own = np.exp(log_w + f - elpd) - np.exp(log_w)
                influences += count * draws.n_draws * (own - weights * (f - weights @ f))
    return _Elpds(*np.array(figures).T), influences


def _warn(pareto_k: xr.DataArray, n_sampled: int, good_k: float, remedy: str) -> None:
    worst = pareto_k[np.argsort(-pareto_k.to_numpy())[:3]]
    named = ", ".join(
        f"{place} ({khat:.2f})"
        for place, khat in zip(worst["where"].values, worst.values, strict=True)
    )
    warn_user(
        f"Pareto k-hat is above {good_k:.2f} for {len(pareto_k):,} of the {n_sampled:,} rows that "
        f"were left out, the worst of them {named}: their elpd is not to be relied on. {remedy}"
    )
