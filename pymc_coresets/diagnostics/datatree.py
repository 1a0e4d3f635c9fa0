"""Check and re-weight the draws of a coreset posterior that a DataTree holds."""

import math
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws
from pymc_coresets.diagnostics.importance import (
    KHAT_USELESS,
    MIN_PER_CHAIN,
    Floats,
    SmoothedWeights,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.judging import (
    TOLERANCE,
    Certificate,
    Check,
    importance_figures,
    verdict_on_weights,
)
from pymc_coresets.diagnostics.posterior_draws import (
    RESAMPLED,
    SAMPLE_DIMS,
    Convergence,
    diagnosed,
    posterior_dataset,
    thinned,
)
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError, warn_user

_FIRST_DRAWS = 400  # at which the KL divergence is known to 10 % where it is near the threshold
_OF_THE_PRIOR = {"prior", "prior_predictive", "sample_stats_prior"}
_REMEDY = "Build a larger coreset."


def check_draws(
    idata: xr.DataTree,
    log_ratios: ArrayLike | xr.DataArray,
    *,
    whole: xr.DataTree | None = None,
    tolerance: float = TOLERANCE,
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
    tolerance : float, default 0.01
        Symmetrised KL divergence in nats up to which the draws can be used as they are.

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
    some = posterior_dataset(idata, "idata")
    log_r, smoothed = _smoothed_ratios(some, log_ratios)
    every = idata if whole is None else whole
    convergence = Convergence.of(every, posterior_dataset(every, "idata"))
    return replace(convergence.check(log_r, smoothed, some), tolerance=tolerance)


def check_some_draws(
    idata: xr.DataTree,
    log_ratios: Callable[[xr.DataTree], Floats],
    *,
    draws: int | None = None,
    tolerance: float = TOLERANCE,
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
    tolerance : float, default 0.01
        See `check_draws`.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> mu = xr.DataArray(np.random.default_rng(1).normal(size=(4, 500)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> check_some_draws(idata, lambda some: 0.0 * some["posterior"]["mu"].values).n_draws
    400
    """
    some = thinned(idata, first_draws(idata, draws))
    check = check_draws(some, log_ratios(some), whole=idata, tolerance=tolerance)
    if draws is None and not check.negligible:
        check = check_draws(idata, log_ratios(idata), tolerance=tolerance)
    return check


def first_draws(idata: xr.DataTree, draws: int | None = None) -> int:
    """Return how many draws are judged first: 400, or as many as the user says."""
    least = MIN_PER_CHAIN * posterior_dataset(idata, "idata").sizes["chain"]
    return max(draws or _FIRST_DRAWS, least)


def reweight_draws(
    idata: xr.DataTree,
    log_ratios: ArrayLike | xr.DataArray,
    *,
    rng: np.random.Generator,
    draws: int | None = None,
    independent: bool = False,
    remedy: str = _REMEDY,
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

    Returns
    -------
    xarray.DataTree
        As many chains as in `idata`. Groups with the same draws are resampled alike, groups
        without draws (data) and those of the prior are kept, and others (warm-up) are left out.
        The posterior has the attributes ``pareto_khat``, ``psis_ess``, ``n_evaluated`` (at how
        many draws), ``resampling`` and ``verdict``, which says in words what these are worth.

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
    log_r, smoothed = _smoothed_ratios(posterior_dataset(idata, "idata"), log_ratios)
    found = EvaluatedDraws(np.arange(log_r.shape[1]), log_r, np.zeros_like(log_r))
    certificate = Certificate(**importance_figures(log_r, smoothed)) if independent else None
    return resample_draws(
        idata, found, rng=rng, draws=draws, remedy=remedy, certificate=certificate
    )


def resample_draws(
    idata: xr.DataTree,
    found: EvaluatedDraws,
    *,
    rng: np.random.Generator,
    draws: int | None = None,
    remedy: str = _REMEDY,
    free: Collection[str] | None = None,
    certificate: Certificate | None = None,
) -> xr.DataTree:
    """Do what `reweight_draws` does with those draws at which all rows were evaluated.

    Parameters
    ----------
    idata : xarray.DataTree
        All draws, with a group ``posterior`` (dims chain, draw).
    found : EvaluatedDraws
    rng : numpy.random.Generator
    draws : int, optional
        Draws per chain in the result; as many as were evaluated by default.
    remedy, free
        As in `reweight_draws`.
    certificate : Certificate, optional
        What the ratios say of the draws, where these need not converge.

    Returns
    -------
    xarray.DataTree
        As that of `reweight_draws`.

    Examples
    --------
    >>> import xarray as xr
    >>> rng = np.random.default_rng(1)
    >>> mu = xr.DataArray(rng.normal(size=(4, 1000)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> found = EvaluatedDraws(np.arange(0, 1000, 10), np.zeros((4, 100)), np.zeros((4, 100)))
    >>> resample_draws(idata, found, rng=rng).posterior.attrs["verdict"][-42:]
    'evaluated at 400 of 4 000 draws (see ess).'
    """
    posterior = posterior_dataset(idata, "idata")
    sizes = {dim: posterior.sizes[dim] for dim in SAMPLE_DIMS}
    draws = len(found.numbers) if draws is None else draws
    if draws < 1:
        raise InvalidOptionError(f"draws is {draws}: a positive number of draws is needed.")
    judged = diagnosed(posterior, free)
    check = certificate or Convergence.of(idata, judged).check(
        found.log_ratios, found.smoothed, judged.isel(draw=found.numbers)
    )
    _warn_of_weights(check, remedy)
    shape = (sizes["chain"], draws)
    flat = systematic_resample(found.smoothed.weights.ravel(), shape[0] * draws, rng=rng)
    chains, some = np.unravel_index(flat.reshape(shape), found.log_p.shape)
    picked = {
        dim: xr.DataArray(row, dims=SAMPLE_DIMS)
        for dim, row in zip(SAMPLE_DIMS, (chains, found.numbers[some]), strict=True)
    }
    groups: dict[str, xr.Dataset | xr.DataTree] = {}
    for name, node in idata.children.items():
        dataset = node.to_dataset()
        own = {dim: dataset.sizes[dim] for dim in SAMPLE_DIMS if dim in dataset.sizes}
        if name in _OF_THE_PRIOR or not own:
            groups[name] = node  # with the groups in it
        elif own == sizes and not name.startswith("warmup_"):
            groups[name] = _take(dataset, picked)
    n_draws = math.prod(sizes.values())
    groups["posterior"].attrs |= {
        "pareto_khat": found.smoothed.pareto_khat,
        "psis_ess": check.ess,
        "n_evaluated": found.log_p.size,
        RESAMPLED: "systematic",
        "verdict": verdict_on_weights(check) + _evaluated_at(found.log_p.size, n_draws),
    }
    result = xr.DataTree.from_dict(groups)
    result.attrs |= idata.attrs
    return result


def _evaluated_at(some: int, n_draws: int) -> str:
    """Say where all rows were evaluated, unless it was everywhere."""
    if some == n_draws:
        return ""
    few, many = (f"{number:,}".replace(",", " ") for number in (some, n_draws))
    return f" All rows were evaluated at {few} of {many} draws (see ess)."


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


def _warn_of_weights(check: Certificate, remedy: str) -> None:
    if isinstance(check, Check) and not check.converged:
        warn_user(
            "the draws have not converged to the coreset's own posterior (R-hat "
            f"{check.rhat:.3f}, effective sample size {check.ess_bulk:.0f} in the bulk and "
            f"{check.ess_tail:.0f} in the tails), and importance weights cannot mend that: sample "
            "longer, or more chains."
        )
    if check.weights_serve:
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
