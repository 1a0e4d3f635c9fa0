"""Leave-one-out cross-validation of all rows, by a surrogate of all and a sample of them."""

import math
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.after.left_out import MOST_REMOVED, LeaveOneOut, parts_of
from pymc_coresets.after.surrogates import ElpdSurrogate, difference_estimate
from pymc_coresets.after.without_rows import Removal
from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics.elpd import ElpdOfAllRows
from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws, wanted_ess
from pymc_coresets.diagnostics.judging import ENOUGH_ESS, MIN_ESS, TOLERANCE
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, Chains, require_own
from pymc_coresets.exceptions import warn_user
from pymc_coresets.options import generator, if_given, whole_number
from pymc_coresets.predictive.approximate_posterior import HasApproximatePosterior
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import numbers_of, random_key

type Positions = NDArray[np.int64]

_NAMED = 10  #: Rows that a warning names.


def loo(
    result: HasApproximatePosterior,
    idata: xr.DataTree,
    *,
    ess: float = ENOUGH_ESS,
    observations: int | None = 1_000,
    random_seed: int | np.random.Generator | None = None,
) -> ElpdOfAllRows:
    """Estimate the leave-one-out predictive density of all rows, see `Coreset.loo`."""
    own = result.approximation
    n_left = if_given(whole_number, "observations", observations, least=2)
    ess, key = wanted_ess(ess), random_key(generator(random_seed))
    own.require_all_rows()
    idata = require_own(idata, "loo()", own.groups)
    chains = Chains(idata, own.free)
    evaluated = own.evaluated(chains, ess, exactly=True)
    draws = Draws.of(chains.some(evaluated.numbers), own.free)
    return elpd_of_rows(
        own.parts,
        draws,
        evaluated,
        observations=math.inf if n_left is None else n_left,
        key=key,
        remedy=own.remedy,
        remove=lambda left: left.removed(Removal(own, draws, evaluated)),
    )


def elpd_of_rows(
    logliks: Sequence[LogLikelihood],
    draws: Draws,
    found: EvaluatedDraws,
    *,
    observations: float,
    key: int,
    remedy: str,
    remove: Callable[[LeaveOneOut], LeaveOneOut] = lambda left: left,
) -> ElpdOfAllRows:
    """Estimate the leave-one-out elpd of all rows.

    Costs 64 log-likelihoods of every row, and those of some rows at all draws, whose tails
    are smoothed one by one (about 1.5 ms for each row).  Memory: some 70 bytes for each row.

    Parameters
    ----------
    logliks : sequence of LogLikelihood
        Of all rows, in one or several parts.
    draws : Draws
        The chains one after the other.
    found : EvaluatedDraws
        Importance weights that correct them to the full posterior.
    observations : int or inf
        Size of the sample; infinite for all rows.
    key : int
        Key of the random numbers that choose the sample.
    remedy : str
        Remedy if the correction of the draws is unreliable.
    remove : callable
        Computes the elpd of a few rows without which the posterior is another, if it can.

    Returns
    -------
    ElpdOfAllRows

    Warns
    -----
    CoresetWarning
        If Pareto k-hat of a row that was left out is too large; or if few of the corrected draws
        count.

    Notes
    -----
    With ratios r_s of the full posterior over the one that was drawn from, the weights of row n are
    ``r_s / p(y_n | theta_s)``, Pareto-smoothed (Magnusson et al. 2019, section 2.2).  Where a row
    stands for several equal ones, one of them is left out.

    The surrogate is the same without smoothing, at 64 points: 32 of the draws, moved so that their
    mean is the weighted mean of all draws, and their mirror images, all in the unconstrained space.
    It so shares what the draws' mean is off with the values of the sample, and what is left differs
    little from row to row.  It fails for rows whose log-likelihood varies much over the posterior.
    These are left out in any case, which makes their surrogate exact: the difference estimator of
    the others stays unbiased, and the sample is one of all rows, as `arviz.compare` takes it.

    The Monte Carlo error is that of the sum over all rows: to first order its influences are those
    on the log-likelihood of all rows, which is known, and the rows that were left out give the
    rest.  The mean of weights with the tail shape k converges as ``S**(k - 1)``.

    References
    ----------
    Magnusson, Andersen, Jonasson, Vehtari (2019). Bayesian leave-one-out cross-validation for large
    data. https://doi.org/10.48550/arXiv.1904.10679

    Magnusson, Vehtari, Jonasson, Andersen (2020). Leave-one-out cross-validation for Bayesian model
    comparison in large data. https://doi.org/10.48550/arXiv.2001.00980
    """
    _warn_of_few(found, remedy)
    logliks = [loglik.collapsed(collapse=False) for loglik in logliks]
    n_rows = sum(loglik.n_rows for loglik in logliks)
    sampled = certain = _subsample(n_rows, observations, key)
    is_sample = len(sampled) < n_rows
    if is_sample:
        surrogate = ElpdSurrogate.of(logliks, draws, found.smoothed.weights.ravel())
        certain = surrogate.certain(len(sampled))
    numbers = np.union1d(sampled, certain)
    represented = np.where(np.isin(numbers, certain), 1.0, n_rows / len(sampled))
    by_weights = LeaveOneOut.of(parts_of(logliks, numbers), draws, found, represented)
    left = _removed(by_weights, found, remove, remedy)
    exact = surrogate if is_sample else left.as_surrogate()
    exact = exact.with_known(certain, left.elpd[represented == 1], left.gain[represented == 1])
    of_sample = np.searchsorted(numbers, sampled)
    elpd, parameters = (
        difference_estimate(
            surrogate=values, sampled=sampled, values=own[of_sample], counts=exact.counts
        )
        for values, own in ((exact.elpd, left.elpd), (exact.gain, left.gain))
    )
    contributions = exact.counts * exact.elpd
    pointwise = contributions.copy()
    pointwise[numbers] = left.counts * left.elpd
    return ElpdOfAllRows(
        elpd=elpd.total,
        se=elpd.data_se,
        p=parameters.total,
        n_samples=found.log_p.size,
        n_data_points=n_rows,
        scale="log",
        warning=bool(left.doubtful.any()),
        good_k=left.good_k,
        elpd_i=xr.DataArray(pointwise, dims="observation", name="elpd_i"),
        pareto_k=left.labelled_khat,
        influence_pareto_k=by_weights.labelled_khat,
        approx_posterior=True,
        subsample_size=len(sampled),
        subsampling_se=elpd.subsampling_se,
        loo_subsample_observations=sampled,
        elpd_loo_approx=xr.DataArray(contributions, dims="observation"),
        log_p=xr.DataArray(found.log_p, dims=SAMPLE_DIMS),
        log_q=xr.DataArray(found.log_q, dims=SAMPLE_DIMS),
        mcse=_monte_carlo_error(left, found),
        posterior_khat=found.smoothed.pareto_khat,
        units=units_of(logliks),
    )


def _removed(
    by_weights: LeaveOneOut,
    found: EvaluatedDraws,
    remove: Callable[[LeaveOneOut], LeaveOneOut],
    remedy: str,
) -> LeaveOneOut:
    """Remove rows from the posterior if weights fail for them, and warn of these."""
    doubtful = by_weights.doubtful
    if not doubtful.any():
        return by_weights
    left = by_weights
    if found.smoothed.pareto_khat <= left.good_k:  # the rows are at fault, and not the draws
        remedy = (
            "The posterior without them differs too much: use a likelihood with heavier tails, or "
            "cross-validate them by refitting."
        )
        if np.count_nonzero(doubtful) <= MOST_REMOVED:
            left = remove(by_weights)
    khat = by_weights.labelled_khat
    known = doubtful & ~left.doubtful
    if known.any():
        _warn(khat, known, left.good_k, "they were removed from the posterior instead.", "")
    if left.doubtful.any():
        _warn(khat, left.doubtful, left.good_k, "their elpd is not to be relied on.", remedy)
    return left


def _warn(
    pareto_k: xr.DataArray, which: NDArray[np.bool_], good_k: float, therefore: str, remedy: str
) -> None:
    rows = pareto_k[which]
    worst = rows[np.argsort(-rows.to_numpy())[:_NAMED]]
    named = ", ".join(
        f"{place} ({khat:.2f})"
        for place, khat in zip(worst["where"].values, worst.values, strict=True)
    )
    which_of_them = "" if len(worst) == len(rows) else "the worst of them "
    warn_user(
        f"Pareto k-hat is above {good_k:.2f} for {len(rows):,} of the {len(pareto_k):,} rows that "
        f"were left out, {which_of_them}{named}: {therefore} {remedy}".rstrip()
    )


def _warn_of_few(found: EvaluatedDraws, remedy: str) -> None:
    """Warn if few draws count: standard errors do not know what these never saw."""
    ess = found.smoothed.ess
    if ess < MIN_ESS and np.var(found.log_ratios) / 2 >= TOLERANCE:
        warn_user(
            f"Corrected to the full posterior, the draws are worth {ess:.0f} independent ones: the "
            f"elpd is not to be relied on, whatever its standard errors. {remedy}"
        )


def _monte_carlo_error(left: LeaveOneOut, found: EvaluatedDraws) -> float:
    """Return the standard error, over draws, of the sum over all rows."""
    log_p, weights = found.log_p.ravel(), found.smoothed.weights.ravel()
    # Of each draw on the weighted mean of the log-likelihood of all rows, and on what is left.
    of_mean = log_p.size * weights * (log_p - weights @ log_p)
    influences = (of_mean + left.influences).reshape(found.log_p.shape)
    return math.hypot(float(array_stats.mcse(influences, method="mean")), left.error)


def units_of(logliks: Sequence[LogLikelihood]) -> str:
    """Name the units that are left out by their number, and by which rows they have."""
    unit_rows = [own for loglik in logliks if (own := loglik.observations.unit_rows)]
    if not unit_rows:
        return ""
    rows = b"".join(own.sizes.tobytes() + own.positions.tobytes() for own in unit_rows)
    n_units = sum(len(own.sizes) for own in unit_rows)
    return f"{n_units:,} units of several rows (grouping {zlib.crc32(rows):08x})"


def _subsample(n_rows: int, size: float, key: int) -> Positions:
    """Return the numbers of a simple random sample: the same for all models of as many rows."""
    if size >= n_rows:
        return np.arange(n_rows)
    n = int(size)
    sampled: Positions = np.argpartition(numbers_of(np.arange(n_rows), key), n)[:n]
    sampled.sort()
    return sampled
