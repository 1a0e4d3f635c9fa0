"""The draws of a posterior in a DataTree: which there are, whether chains agree, and their use."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Self

import arviz_stats
import numpy as np
import xarray as xr

from pymc_coresets.diagnostics.importance import Floats, SmoothedWeights
from pymc_coresets.diagnostics.judging import Check, importance_figures
from pymc_coresets.diagnostics.shifts import largest_shifts
from pymc_coresets.exceptions import InvalidDataError

SAMPLE_DIMS = ("chain", "draw")
RESAMPLED = "resampling"
"""Attribute of draws that were resampled by their importance weights."""

MOST_ENTRIES = 100
"""Of a deterministic whose convergence is judged beside that of the free variables."""

_GROUP = "posterior"
_OF_ROWS = ("indices", "weights")  # in the group that `Coreset.sample` adds


def posterior_dataset(data: xr.DataTree | xr.Dataset, name: str) -> xr.Dataset:
    """Return the posterior draws of a DataTree, or a Dataset of draws, with their dims checked.

    Parameters
    ----------
    data : xarray.DataTree or xarray.Dataset
    name : str
        What to call it in an error message.

    Returns
    -------
    xarray.Dataset
        With dims chain and draw.

    Raises
    ------
    InvalidDataError
        If there is no group ``posterior``, it lacks the dims chain and draw, or has no draws.

    Examples
    --------
    >>> import xarray as xr
    >>> draws = xr.Dataset({"mu": (("chain", "draw"), [[0.0, 1.0]])})
    >>> posterior_dataset(xr.DataTree.from_dict({"posterior": draws}), "idata").sizes["draw"]
    2
    """
    if isinstance(data, xr.DataTree):
        if "posterior" not in data.children:
            raise InvalidDataError(
                f"{name} has the groups {list(data.children)} but no posterior: pass what "
                "pm.sample returns."
            )
        dataset = data["posterior"].to_dataset()
    elif isinstance(data, xr.Dataset):
        dataset = data
    else:
        raise InvalidDataError(f"{name} is a {type(data).__name__}: pass what pm.sample returns.")
    if not set(SAMPLE_DIMS) <= set(dataset.dims):
        raise InvalidDataError(
            f"the draws in {name} have dims {list(dataset.dims)}, but chain and draw are needed: "
            "arviz.convert_to_datatree makes them from arrays."
        )
    if not all(dataset.sizes[dim] for dim in SAMPLE_DIMS):
        raise InvalidDataError(f"{name} has no draws: its posterior is empty.")
    return dataset


def draws_tree(data: xr.DataTree | xr.Dataset) -> xr.DataTree:
    """Return a DataTree with the draws of a posterior, which may be given as a Dataset.

    Raises
    ------
    InvalidDataError
        As `posterior_dataset`.

    Examples
    --------
    >>> import xarray as xr
    >>> list(draws_tree(xr.Dataset({"mu": (("chain", "draw"), [[0.0, 1.0]])})).children)
    ['posterior']
    """
    posterior = posterior_dataset(data, "idata")
    return data if isinstance(data, xr.DataTree) else xr.DataTree.from_dict({_GROUP: posterior})


def diagnosed(posterior: xr.Dataset, free: Collection[str] | None) -> xr.Dataset:
    """Return the free variables, and deterministics of at most `MOST_ENTRIES` entries.

    Larger deterministics, as those of the rows, are functions of the free variables too, and take
    milliseconds for each entry.

    Parameters
    ----------
    posterior : xarray.Dataset
        With dims chain and draw.
    free : collection of str or None
        Names of the free variables; None where they are not known, so that all count.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = xr.Dataset({"mu": (("chain", "draw"), np.zeros((2, 3)))})
    >>> wide = draws.assign(fit=(("chain", "draw", "row"), np.zeros((2, 3, 101))))
    >>> list(diagnosed(wide, ["mu"])), list(diagnosed(wide, ["mu", "fit"]))
    (['mu'], ['mu', 'fit'])
    """
    if free is None:
        return posterior
    most = MOST_ENTRIES * posterior.sizes["chain"] * posterior.sizes["draw"]
    large = (n for n, v in posterior.data_vars.items() if n not in free and v.size > most)
    return posterior.drop_vars(list(large))


def require_own(
    idata: xr.DataTree | xr.Dataset, call: str, groups: Mapping[str, xr.Dataset] | None = None
) -> xr.DataTree:
    """Refuse draws that are not those of the approximate posterior.

    Some were resampled by their importance weights: they repeat themselves, so that the ratios of
    the few that are left look harmless, and a second correction by the same weights goes as far
    beyond the full posterior as they were before it.  Of draws of another coreset the ratios do not
    say how far these are from the full posterior.

    Parameters
    ----------
    idata : xarray.DataTree or xarray.Dataset
        Draws; of a DataTree the group ``posterior``.
    call : str
        Who needs others, for the message.
    groups : mapping from str to xarray.Dataset, optional
        What `sample` adds to its draws: row numbers and weights.

    Returns
    -------
    xarray.DataTree
        The same draws.

    Raises
    ------
    InvalidDataError
        If they were resampled, or the same groups hold other rows or weights.

    Examples
    --------
    >>> import xarray as xr
    >>> draws = xr.Dataset({"mu": (("chain", "draw"), [[0.0, 1.0]])})
    >>> list(require_own(xr.DataTree.from_dict({"posterior": draws}), "check()").children)
    ['posterior']
    """
    idata = draws_tree(idata)
    if RESAMPLED in idata[_GROUP].attrs:
        raise InvalidDataError(
            "These draws were resampled by their importance weights: they are corrected already, "
            f"and repeat themselves. {call} takes those of sample(). What resampled draws are "
            "worth is in their attribute 'verdict' (idata.posterior.attrs)."
        )
    for name, own in (groups or {}).items():
        given = idata.get(name)
        if given is not None and any(
            not np.array_equal(given[kept], own[kept]) for kept in _OF_ROWS if kept in given
        ):
            raise InvalidDataError(
                f"These draws are of another coreset than this one: the group {name!r} of idata "
                f"holds the rows and weights that they were sampled with. {call} takes the draws "
                "of the coreset itself: sample it again."
            )
    return idata


def thinned(idata: xr.DataTree, draws: int) -> xr.DataTree:
    """Return evenly spread draws of each chain: that many in all, or a few more.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    draws : int
        Over all chains; all of them where there are fewer.

    Returns
    -------
    xarray.DataTree
        With the group ``posterior`` alone.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> mu = xr.DataArray(np.zeros((2, 300)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> dict(thinned(idata, 100)["posterior"].sizes)
    {'chain': 2, 'draw': 50}
    """
    posterior = posterior_dataset(idata, "idata")
    n_chains, n_draws = (posterior.sizes[dim] for dim in SAMPLE_DIMS)
    kept = np.linspace(0, n_draws - 1, min(-(-draws // n_chains), n_draws)).round().astype(int)
    return xr.DataTree.from_dict({"posterior": posterior.isel(draw=kept)})


def ratios_by_chain(idata: xr.DataTree, log_ratios: Floats, *, impossible: str) -> Floats:
    """Arrange the log-ratios of all draws by chain; refuse draws that the full data exclude.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    log_ratios : ndarray of shape (n_chains * n_draws,)
        Log of full over approximate posterior density at these draws, in nats.
    impossible : str
        What it means if a draw has zero density under the full data, and what to do.

    Returns
    -------
    ndarray of shape (n_chains, n_draws)

    Raises
    ------
    InvalidDataError
        If a ratio is not finite.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> mu = xr.DataArray(np.zeros((2, 3)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> ratios_by_chain(idata, np.zeros(6), impossible="sample again.").shape
    (2, 3)
    """
    share = np.mean(~np.isfinite(log_ratios))
    if share:
        raise InvalidDataError(
            f"{share:.1%} of the draws are impossible under the full data: {impossible}"
        )
    sizes = posterior_dataset(idata, "idata").sizes
    return log_ratios.reshape(*(sizes[dim] for dim in SAMPLE_DIMS))


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """How well the chains of some draws agree.

    Parameters
    ----------
    rhat, ess_bulk, n_divergences, ess_tail, n_chains
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
    ess_tail: float
    n_chains: int

    @classmethod
    def of(cls, idata: xr.DataTree | xr.Dataset, posterior: xr.Dataset) -> Self:
        """Judge draws (dims chain, draw); `idata` may know of divergences."""
        # Draws of which nothing varies are those of a chain that does not move.
        ess_bulk, ess_tail = (
            min(_numbers(partial(arviz_stats.ess, method=method), posterior), default=0.0)
            for method in ("bulk", "tail")
        )
        stuck = np.nan if posterior.sizes["chain"] == 1 else np.inf
        return cls(
            rhat=max(_numbers(arviz_stats.rhat, posterior), default=stuck),
            ess_bulk=ess_bulk,
            n_divergences=_n_divergences(idata),
            ess_tail=ess_tail,
            n_chains=posterior.sizes["chain"],
        )

    def check(self, log_r: Floats, smoothed: SmoothedWeights, some: xr.Dataset) -> Check:
        """Judge log-ratios (n_chains, n_draws) at these draws, or at some of them."""
        figures = importance_figures(log_r, smoothed)
        # The draws' own autocorrelation remains when they are weighted.
        share = min(self.ess_bulk / log_r.size, 1.0)
        figures["ess"] = min(smoothed.ess, share * smoothed.ess_of_independent)
        mean, sd = largest_shifts(some, smoothed.weights) or (None, None)
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return Check(**figures, **own, mean_shift=mean, sd_shift=sd)


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
