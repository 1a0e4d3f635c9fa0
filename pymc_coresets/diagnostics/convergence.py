"""Whether the chains of some draws agree, and how many independent draws they are worth."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Self

import arviz_stats
import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.importance import Floats, SmoothedWeights
from pymc_coresets.diagnostics.judging import Check, importance_figures
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS
from pymc_coresets.exceptions import InvalidDataError


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """How well the chains of some draws agree.

    Parameters
    ----------
    rhat, ess_bulk, n_divergences, ess_folded
        As of a `Check`.

    Examples
    --------
    >>> mu = xr.DataArray(np.random.default_rng(1).normal(size=(4, 500)), dims=("chain", "draw"))
    >>> found = Convergence.of(xr.DataTree(), xr.Dataset({"mu": mu}))
    >>> found.ess_bulk > 1_000, found.n_divergences
    (True, None)
    """

    rhat: float
    ess_bulk: float
    n_divergences: int | None
    ess_folded: float

    @classmethod
    def of(cls, idata: xr.DataTree | xr.Dataset, posterior: xr.Dataset) -> Self:
        """Judge draws (dims chain, draw); `idata` may know of divergences."""
        sizes = [_numbers(statistic, posterior) for statistic in (arviz_stats.ess, _ess_folded)]
        # Draws of which nothing varies are those of a chain that does not move.
        ess_bulk, ess_folded = (min(numbers, default=0.0) for numbers in sizes)
        stuck = np.nan if posterior.sizes["chain"] == 1 else np.inf
        return cls(
            rhat=max(_numbers(arviz_stats.rhat, posterior), default=stuck),
            ess_bulk=ess_bulk,
            n_divergences=_n_divergences(idata),
            ess_folded=ess_folded,
        )

    def check(self, log_r: Floats, smoothed: SmoothedWeights) -> Check:
        """Judge log-ratios (n_chains, n_draws) at these draws, or at some of them."""
        figures = importance_figures(log_r, smoothed)
        # The draws' own autocorrelation remains when they are weighted.
        share = min(self.ess_bulk / log_r.size, 1.0)
        figures["ess"] = min(smoothed.ess, share * smoothed.ess_of_independent)
        return Check(**figures, **asdict(self))


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


def _n_divergences(idata: xr.DataTree | xr.Dataset) -> int | None:
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
