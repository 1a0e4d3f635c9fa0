"""Check and re-weight the draws of a coreset posterior that a DataTree holds."""

from collections.abc import Callable, Collection

import arviz_stats
import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_coresets.diagnostics.importance import (
    KHAT_USELESS,
    MIN_PER_CHAIN,
    Floats,
    SmoothedWeights,
    khat_threshold,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.judging import (
    Certificate,
    Check,
    importance_figures,
    verdict_on_weights,
)
from pymc_coresets.diagnostics.posterior_draws import (
    RESAMPLED,
    SAMPLE_DIMS,
    diagnosed,
    posterior_dataset,
    thinned,
)
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, warn_user

_FIRST_DRAWS = 400  # at which the KL divergence is known to 10 % where it is near the threshold
_OF_THE_PRIOR = {"prior", "prior_predictive", "sample_stats_prior"}
_REMEDY = "Build a larger coreset, or one with a weighting distribution closer to the posterior."


def check_draws(
    idata: xr.DataTree,
    log_ratios: ArrayLike | xr.DataArray,
    *,
    whole: xr.DataTree | None = None,
    kind: type[Check] = Check,
) -> Check:
    """Judge draws of a coreset posterior without a run of the full posterior.

    Costs a few passes over the draws; the expensive part, one pass over the data for all draws,
    went into the log-ratios.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the coreset model, with a group ``posterior`` (dims chain, draw).
    log_ratios : array_like of shape (n_chains, n_draws)
        Log of full over coreset posterior density at these draws, in nats, up to a constant.
    whole : xarray.DataTree, optional
        All the draws, where `idata` has some of them only: to judge the convergence by.
    kind : type
        The verdict's words: `Check`, or a subclass.

    Returns
    -------
    Check

    Raises
    ------
    InvalidDataError
        If the ratios do not match the draws, are not finite, or are fewer than 30.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72).
    https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> mu = xr.DataArray(np.random.default_rng(1).normal(size=(4, 500)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> check_draws(idata, np.zeros((4, 500))).reliable
    True
    """
    ratios = _smoothed_ratios(posterior_dataset(idata, "idata"), log_ratios)
    every = idata if whole is None else whole
    return _check(every, posterior_dataset(every, "idata"), *ratios, kind=kind)


def check_some_draws(
    idata: xr.DataTree,
    log_ratios: Callable[[xr.DataTree], Floats],
    *,
    draws: int | None = None,
    kind: type[Check] = Check,
) -> Check:
    """Judge 400 draws, and all of them only where these do not show a negligible divergence.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    log_ratios : callable
        Returns the log-ratios of some of them, (n_chains, n_draws).
    draws : int, optional
        Judge that many, whatever they show.
    kind : type
        As in `check_draws`.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> mu = xr.DataArray(np.random.default_rng(1).normal(size=(4, 500)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> check_some_draws(idata, lambda some: 0.0 * some["posterior"]["mu"].values).n_draws
    400
    """
    least = MIN_PER_CHAIN * posterior_dataset(idata, "idata").sizes["chain"]
    some = thinned(idata, max(draws or _FIRST_DRAWS, least))
    check = check_draws(some, log_ratios(some), whole=idata, kind=kind)
    if draws is None and not check.negligible:
        check = check_draws(idata, log_ratios(idata), kind=kind)
    return check


def reweight_draws(
    idata: xr.DataTree,
    log_ratios: ArrayLike | xr.DataArray,
    *,
    rng: np.random.Generator,
    draws: int | None = None,
    independent: bool = False,
    remedy: str = _REMEDY,
    free: Collection[str] | None = None,
) -> xr.DataTree:
    """Turn draws of the coreset posterior into draws of the full posterior by resampling.

    Draws are repeated in proportion to their Pareto-smoothed importance weights (systematic
    resampling, in random order). ArviZ takes the result for independent draws; their effective
    sample size is the attribute ``psis_ess`` of the posterior.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the coreset model, with a group ``posterior`` (dims chain, draw).
    log_ratios : array_like of shape (n_chains, n_draws)
        Log of full over coreset posterior density at these draws, in nats, up to a constant.
    rng : numpy.random.Generator
    draws : int, optional
        Draws per chain in the result; as many as in `idata` by default.
    independent : bool, default False
        Whether the draws are independent ones, which need not converge.
    remedy : str
        What to do where the weights cannot be relied on: the end of the warning.
    free : collection of str, optional
        The free variables, to judge the convergence by: see `diagnosed`.

    Returns
    -------
    xarray.DataTree
        As many chains as in `idata`. Groups with the same draws are resampled alike, groups
        without draws (data) and those of the prior are kept, and others (warm-up) are left out.
        The posterior has the attributes ``pareto_khat``, ``psis_ess``, ``resampling`` and
        ``verdict``, which says in words what these are worth.

    Warns
    -----
    CoresetWarning
        If the weights are unreliable and the two posteriors differ noticeably, or the draws have
        not converged.

    Raises
    ------
    InvalidDataError
        If the ratios do not match the draws, are not finite, or are fewer than 30.
    InvalidOptionError
        If `draws` is not positive.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72).
    https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    Draws of N(0, 1) become draws of N(0.5, 1):

    >>> import numpy as np, xarray as xr
    >>> rng = np.random.default_rng(1)
    >>> mu = xr.DataArray(rng.normal(size=(4, 1000)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> round(float(reweight_draws(idata, 0.5 * mu, rng=rng).posterior["mu"].mean()), 1)
    0.5
    """
    posterior = posterior_dataset(idata, "idata")
    sizes = {dim: posterior.sizes[dim] for dim in SAMPLE_DIMS}
    draws = sizes["draw"] if draws is None else draws
    if draws < 1:
        raise InvalidOptionError(f"draws is {draws}: a positive number of draws is needed.")
    log_r, smoothed = _smoothed_ratios(posterior, log_ratios)
    check = (
        Certificate(**importance_figures(log_r, smoothed))
        if independent
        else _check(idata, diagnosed(posterior, free), log_r, smoothed)
    )
    _warn_of_weights(check, remedy)
    shape = (sizes["chain"], draws)
    flat = systematic_resample(smoothed.weights.ravel(), shape[0] * draws, rng=rng)
    rows = np.unravel_index(flat.reshape(shape), log_r.shape)
    picked = {
        dim: xr.DataArray(row, dims=SAMPLE_DIMS) for dim, row in zip(SAMPLE_DIMS, rows, strict=True)
    }
    groups: dict[str, xr.Dataset] = {}
    for name, node in idata.children.items():
        dataset = node.to_dataset()
        found = {dim: dataset.sizes[dim] for dim in SAMPLE_DIMS if dim in dataset.sizes}
        if name in _OF_THE_PRIOR or not found:
            groups[name] = dataset
        elif found == sizes and not name.startswith("warmup_"):
            groups[name] = _take(dataset, picked)
    groups["posterior"].attrs |= {
        "pareto_khat": smoothed.pareto_khat,
        "psis_ess": check.ess,
        RESAMPLED: "systematic",
        "verdict": verdict_on_weights(check),
    }
    result = xr.DataTree.from_dict(groups)
    result.attrs |= idata.attrs
    return result


def _smoothed_ratios(
    posterior: xr.Dataset, log_ratios: ArrayLike | xr.DataArray
) -> tuple[Floats, SmoothedWeights]:
    if isinstance(log_ratios, xr.DataArray) and set(log_ratios.dims) == set(SAMPLE_DIMS):
        log_ratios = log_ratios.transpose(*SAMPLE_DIMS)
    log_r = np.asarray(log_ratios, dtype=np.float64)
    wanted = tuple(posterior.sizes[dim] for dim in SAMPLE_DIMS)
    if log_r.shape != wanted:
        raise InvalidDataError(
            f"log_ratios has shape {log_r.shape}, but the posterior has {wanted[0]} chains of "
            f"{wanted[1]} draws: one ratio for each draw is needed."
        )
    return log_r, pareto_smooth(log_r)


def _check(
    idata: xr.DataTree,
    posterior: xr.Dataset,
    log_r: Floats,
    smoothed: SmoothedWeights,
    *,
    kind: type[Check] = Check,
) -> Check:
    sizes = [_numbers(statistic, posterior) for statistic in (arviz_stats.ess, _ess_folded)]
    # Draws of which nothing varies are those of a chain that does not move.
    ess_bulk, ess_folded = (min(numbers, default=0.0) for numbers in sizes)
    stuck = np.nan if posterior.sizes["chain"] == 1 else np.inf
    figures = importance_figures(log_r, smoothed)
    # The draws' own autocorrelation remains when they are weighted.
    share = min(ess_bulk / log_r.size, 1.0)
    figures["ess"] = min(smoothed.ess, share * smoothed.ess_of_independent)
    return kind(
        **figures,
        rhat=max(_numbers(arviz_stats.rhat, posterior), default=stuck),
        ess_bulk=ess_bulk,
        n_divergences=_n_divergences(idata),
        ess_folded=ess_folded,
    )


def _ess_folded(posterior: xr.Dataset) -> xr.Dataset:
    folded: xr.Dataset = arviz_stats.ess(abs(posterior - posterior.median(SAMPLE_DIMS)))
    return folded


def _numbers(statistic: Callable[[xr.Dataset], xr.Dataset], posterior: xr.Dataset) -> list[float]:
    """Return a statistic of all components that vary: it means nothing of constants."""
    sampled = [
        name
        for name, variable in posterior.data_vars.items()
        if variable.dtype.kind in "biuf" and set(SAMPLE_DIMS) <= set(variable.dims)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(posterior[sampled])
    found = []
    for name in sampled:
        draws, numbers = posterior[name], values[name].values
        varies = (draws.max(SAMPLE_DIMS) > draws.min(SAMPLE_DIMS)).values
        found += numbers[varies & ~np.isnan(numbers)].tolist()
    return found


def _n_divergences(idata: xr.DataTree) -> int | None:
    if not isinstance(idata, xr.DataTree):
        return None
    if "sample_stats" not in idata.children or "diverging" not in idata["sample_stats"]:
        return None
    diverging = idata["sample_stats"]["diverging"]
    if diverging.dtype.kind not in "biuf":
        raise InvalidDataError(
            f"idata has a sample_stats group whose 'diverging' is of type {diverging.dtype}, but "
            "True or False is needed for each draw: pass what pm.sample returns."
        )
    return int(diverging.sum())


def _warn_of_weights(check: Certificate, remedy: str) -> None:
    if isinstance(check, Check) and not check.converged:
        warn_user(
            "the draws have not converged to the coreset's own posterior (R-hat "
            f"{check.rhat:.3f}, bulk effective sample size {check.ess_bulk:.0f}), and importance "
            "weights cannot mend that: sample longer, or more chains."
        )
    if check.negligible or check.pareto_khat < khat_threshold(check.n_draws):
        return
    quality = "useless" if check.pareto_khat >= KHAT_USELESS else "not to be relied on"
    warn_user(
        f"the importance weights are {quality} (Pareto k-hat {check.pareto_khat:.2f}, effective "
        f"sample size {check.ess:.0f}): the resampled draws are not draws of the full posterior. "
        f"{remedy}"
    )


def _take(dataset: xr.Dataset, picked: dict[str, xr.DataArray]) -> xr.Dataset:
    taken = dataset.drop_vars(SAMPLE_DIMS, errors="ignore").isel(picked)
    numbers = {dim: np.arange(taken.sizes[dim]) for dim in SAMPLE_DIMS}
    return taken.assign_coords(numbers)
