"""The draws of a posterior by chains: which there are, how well they agree, what weights move."""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.compat.arviz_api import array_stats
from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.exceptions import InvalidDataError

SAMPLE_DIMS = ("chain", "draw")
RESAMPLED = "resampling"
"""Attribute of draws that were resampled by their importance weights."""
UNRELIABLE = "unreliable"
"""Attribute of draws: the levels whose own variables could not be drawn reliably, in words."""


def posterior_dataset(data: xr.DataTree | xr.Dataset, name: str) -> xr.Dataset:
    """Return the posterior draws of a DataTree, or a Dataset of draws, with their dims checked.

    Parameters
    ----------
    data : xarray.DataTree or xarray.Dataset
    name : str
        Its name in error messages.

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
    is_tree = isinstance(data, xr.DataTree)
    dataset = data["posterior"].to_dataset() if is_tree and "posterior" in data.children else data
    if not isinstance(dataset, xr.Dataset):
        found = f"is a {type(data).__name__}"
        if is_tree:
            found = f"has the groups {list(data.children)} but no posterior"
        raise InvalidDataError(f"{name} {found}: pass what pm.sample returns.", topic="draws")
    if not all(dataset.sizes.get(dim) for dim in SAMPLE_DIMS):
        raise InvalidDataError(
            f"{name} has no draws: the sizes of its posterior are {dict(dataset.sizes)}, but chain "
            "and draw are needed. arviz.convert_to_datatree makes them from arrays.",
            topic="draws",
        )
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
    groups = {"posterior": posterior_dataset(data, "idata")}
    return data if isinstance(data, xr.DataTree) else xr.DataTree.from_dict(groups)


def require_own(
    idata: xr.DataTree | xr.Dataset,
    call: str,
    groups: Mapping[str, xr.Dataset] = MappingProxyType({}),
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
        The function that needs others, for the message.
    groups : mapping from str to xarray.Dataset, optional
        Groups that `sample` adds to its draws: row numbers and weights.

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
    if RESAMPLED in idata["posterior"].attrs:
        raise InvalidDataError(
            "These draws were resampled by their importance weights: they are corrected already, "
            f"and repeat themselves. {call} takes those of sample(). What resampled draws are "
            "worth is in their attribute 'verdict' (idata.posterior.attrs).",
            topic="draws",
        )
    for name in groups.keys() & idata.children.keys():
        given, own = idata[name], groups[name]
        if any(
            not np.array_equal(given[kept], own[kept])
            for kept in ("indices", "weights")  # `Coreset.sample` adds them
            if kept in given
        ):
            raise InvalidDataError(
                f"These draws are of another coreset than this one: the group {name!r} of idata "
                f"holds the rows and weights that they were sampled with. {call} takes the draws "
                "of the coreset itself: sample it again.",
                topic="draws",
            )
    return idata


@dataclass(frozen=True)
class Shift:
    """How much a number of a posterior changes.

    Parameters
    ----------
    name : str
        The variable, with the index of its entry.
    size, error : float
        The change, in standard deviations of the variable, and its Monte Carlo standard error.
    """

    name: str
    size: float
    error: float


class Copies(NamedTuple):
    """Share of draws that equal earlier ones, and of which entry; empty for whole draws."""

    share: float = 0.0
    where: str = ""


NO_COPIES = Copies()


@dataclass(frozen=True, eq=False)
class Chains:
    """The draws of a posterior by chains: how well these agree, and what weights change.

    Parameters
    ----------
    idata : xarray.DataTree or xarray.Dataset
        Draws with dims chain and draw; of a DataTree the group ``posterior``, and the divergences
        of NUTS in ``sample_stats``.
    free : collection of str, optional
        The free variables.  If they are known, deterministics of more than 100 entries, such as
        those of the rows, are not judged beside them: they are functions of the free variables, and
        take milliseconds for each entry.

    Examples
    --------
    >>> mu = xr.DataArray(np.random.default_rng(1).normal(size=(4, 500)), dims=("chain", "draw"))
    >>> found = Chains(xr.Dataset({"mu": mu}))
    >>> found.ess_bulk > 1_000, found.n_divergences, found.copies.share
    (True, None, 0.0)
    """

    idata: xr.DataTree | xr.Dataset
    free: Collection[str] | None = None

    @cached_property
    def posterior(self) -> xr.Dataset:
        """The draws, with their dims checked."""
        return posterior_dataset(self.idata, "idata")

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self.posterior.sizes["chain"])

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return int(self.posterior.sizes["draw"])

    # -- some of the draws -------------------------------------------------------------------------

    def spread(self, draws: float) -> NDArray[np.int64]:
        """Return numbers of evenly spread draws of each chain: that many in all, or a few more."""
        each = min(math.ceil(min(draws, 2**62) / self.n_chains), self.n_draws)
        return evenly(np.arange(self.n_draws), each)

    def some(self, numbers: NDArray[np.int64]) -> xr.DataTree:
        """Return some draws of each chain, as the group ``posterior`` alone."""
        return xr.DataTree.from_dict({"posterior": self.posterior.isel(draw=numbers)})

    # -- how well chains agree ---------------------------------------------------------------------

    @cached_property
    def _judged(self) -> dict[str, xr.DataArray]:
        """The variables that are numbers, chain and draw first."""
        # Each entry takes 3 ms: deterministics of at most 100 are judged beside the free variables.
        most = 100 * self.n_chains * self.n_draws
        return {
            str(name): variable.transpose(*SAMPLE_DIMS, ...)
            for name, variable in self.posterior.data_vars.items()
            if variable.dtype.kind in "biuf"
            and set(SAMPLE_DIMS) <= set(variable.dims)
            and (variable.size <= most or self._is_free(name))
        }

    def _is_free(self, name: Hashable) -> bool:
        """Whether a variable is free, or may be."""
        return self.free is None or name in self.free

    def _of_entries(self, statistic: Callable[[Floats], Floats]) -> Iterator[float]:
        """Yield a statistic of all entries that vary: it means nothing of constants."""
        for variable in self._judged.values():
            draws = np.moveaxis(_by_entry(variable), -1, 0)
            moving = draws[np.ptp(draws, axis=(1, 2)) > 0]
            with np.errstate(divide="ignore", invalid="ignore"):  # of chains that stand still
                numbers = statistic(moving) if len(moving) else np.empty(0)
            yield from numbers[~np.isnan(numbers)].tolist()

    @cached_property
    def rhat(self) -> float:
        """Largest R-hat; NaN for a single chain, infinite if nothing moves."""
        stuck = np.nan if self.n_chains == 1 else np.inf
        return max(self._of_entries(array_stats.rhat), default=stuck)

    @cached_property
    def ess_bulk(self) -> float:
        """Smallest effective sample size in the bulk; 0 if nothing moves."""
        return min(self._of_entries(array_stats.ess), default=0.0)

    @cached_property
    def ess_tail(self) -> float:
        """Smallest effective sample size of the quantiles of 11 and 89 %, ArviZ's default."""
        tails = partial(array_stats.ess, method="tail", prob=(0.11, 0.89))
        return min(self._of_entries(tails), default=0.0)

    @property
    def too_coarse(self) -> str:
        """Why numbers of few digits cannot show a variable's spread; empty if they can."""
        for name, variable in self._judged.items():
            if variable.dtype.kind == "f" and variable.dtype.itemsize < 8:
                draws = _by_entry(variable)
                sd = draws.std(axis=(0, 1))
                middle = np.abs(draws.mean(axis=(0, 1))).astype(variable.dtype)
                if ((sd > 0) & (np.spacing(middle) > 0.1 * sd)).any():
                    return (
                        f"draws of {name!r} are numbers of type {variable.dtype}, which are too "
                        "coarse for its posterior. Centre it, or set pytensor.config.floatX = "
                        "'float64' before you write the model."
                    )
        return ""

    @cached_property
    def copies(self) -> Copies:
        """Share of the draws that equal an earlier one, but not the one before in their chain.

        Of all variables together, or of an entry of one of them if more of its draws do.  Those of
        Markov chains of continuous variables never return to a point exactly.
        """
        moved = np.zeros((self.n_chains, self.n_draws), dtype=bool)
        moved[:, 0] = True
        hashes, found = [], [NO_COPIES]
        for name, variable in self._judged.items():
            if variable.dtype.kind == "f" and self._is_free(name):
                draws = _by_entry(variable)
                moved[:, 1:] |= (draws[:, 1:] != draws[:, :-1]).any(axis=2)
                hashes.append([hash(draw.tobytes()) for draw in draws.reshape(moved.size, -1)])
                indices = np.ndindex(variable.shape[2:])
                found.append(copies_among(draws, [entry_name(name, i) for i in indices]))
        if not hashes:
            return found[0]
        distinct = {
            of_draw
            for of_draw, is_new in zip(zip(*hashes, strict=True), moved.ravel(), strict=True)
            if is_new
        }
        return max(Copies(1.0 - len(distinct) / int(moved.sum())), *found, key=lambda c: c.share)

    @property
    def n_divergences(self) -> int | None:
        """Divergent transitions of NUTS; None if they were not recorded."""
        groups = self.idata.children if isinstance(self.idata, xr.DataTree) else {}
        if "sample_stats" not in groups or "diverging" not in groups["sample_stats"]:
            return None
        diverging = groups["sample_stats"]["diverging"]
        if diverging.dtype.kind not in "biuf":
            raise InvalidDataError(
                f"idata has a sample_stats group whose 'diverging' is of type {diverging.dtype}, "
                "but True or False is needed for each draw: pass what pm.sample returns.",
                topic="draws",
            )
        return int(diverging.sum())

    # -- what weights change -----------------------------------------------------------------------

    def largest_shifts(
        self, weights: Floats, numbers: NDArray[np.int64] | slice = slice(None)
    ) -> tuple[Shift | None, Shift | None]:
        """Return the largest shift of a mean, and the largest relative change of an sd.

        Parameters
        ----------
        weights : ndarray of shape (n_chains, n_draws)
            Importance weights of draws, which sum to one.
        numbers : ndarray of int64 or slice
            Of these draws in each chain; all by default.

        Returns
        -------
        tuple of Shift, or of None
            None if nothing varies.

        Notes
        -----
        With relative weights ``r_s = n w_s``, the shift of a mean in standard deviations is the
        mean of ``(r - 1) z`` for standardised draws z, and that of a variance the mean of
        ``(r - 1) z^2``: the sd changes by half of it, to first order.  Errors are those of these
        means for independent draws.

        Examples
        --------
        >>> mu = np.random.default_rng(1).normal(size=(4, 1_000))
        >>> weights = np.exp(0.1 * mu) / np.exp(0.1 * mu).sum()
        >>> chains = Chains(xr.Dataset({"mu": (("chain", "draw"), mu)}))
        >>> mean, sd = chains.largest_shifts(weights)
        >>> mean.name, abs(mean.size - 0.1) < 4 * mean.error
        ('mu', True)
        """
        relative = (weights * weights.size).reshape(-1, 1) - 1.0
        found: list[list[Shift]] = [[], []]
        for name, variable in self._judged.items():
            draws = _by_entry(variable)[:, numbers].reshape(weights.size, -1)
            centred = draws - draws.mean(axis=0)
            sd = centred.std(axis=0)
            varies = np.flatnonzero(sd > 0)
            if not len(varies):
                continue
            z = centred[:, varies] / sd[varies]
            for shifts, values in zip(found, (z, (np.square(z) - 1) / 2), strict=True):
                changes = relative * values
                worst = int(np.abs(changes.mean(axis=0)).argmax())
                index = np.unravel_index(varies[worst], variable.shape[2:])
                change = changes[:, worst]
                error = float(change.std() / np.sqrt(weights.size))
                shifts.append(Shift(entry_name(name, index), float(change.mean()), error))
        of_mean, of_sd = (max(each, key=lambda s: abs(s.size), default=None) for each in found)
        return of_mean, of_sd


def copies_among(draws: Floats, names: Sequence[str]) -> Copies:
    """Return the largest share of copies among the draws of an entry.

    Parameters
    ----------
    draws : ndarray of shape (n_chains, n_draws, n_entries)
        Of continuous variables.
    names : sequence of str
        Of the entries.

    Notes
    -----
    A draw that equals the one before it in its chain is one that a sampler did not accept.  The
    smallest and the largest value may be borders of the support, to which others are rounded.
    If all are rounded to multiples of the smallest distance d between different ones, a share of
    n d / (3 sd) at most equals others by chance, which is subtracted.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(2, 500, 2))
    >>> copies_among(draws, ["a", "b"]).share
    0.0
    >>> draws[1, :, 1] = draws[0, ::-1, 1]
    >>> share, name = copies_among(draws, ["a", "b"])
    >>> round(share, 1), name
    (0.5, 'b')
    """
    n_chains, n_draws, n_entries = draws.shape
    stays = np.zeros((n_chains, n_draws), dtype=bool)
    found = [NO_COPIES]
    for j in range(n_entries):
        own = draws[:, :, j]
        stays[:, 1:] = own[:, 1:] == own[:, :-1]
        values = np.sort(own[~stays])
        gaps = np.diff(values)
        equal = gaps == 0
        if not equal.any() or equal.all():
            continue
        n_equal = equal[(values[1:] > values[0]) & (values[1:] < values[-1])].sum()
        by_rounding = len(values) * gaps[~equal].min() / (3 * values.std())
        found.append(Copies(float(n_equal / len(values) - by_rounding), names[j]))
    return max(found, key=lambda copies: copies.share)


def _by_entry(variable: xr.DataArray) -> Floats:
    """Return draws as (n_chains, n_draws, n_entries)."""
    values = np.asarray(variable.to_numpy(), dtype=np.float64)
    return values.reshape(*values.shape[:2], -1)


def evenly(numbers: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return so many of some numbers, evenly spread from the first to the last.

    Examples
    --------
    >>> evenly(np.arange(10), 4)
    array([0, 3, 6, 9])
    """
    return numbers[np.linspace(0, len(numbers) - 1, n).round().astype(np.int64)]


def thinned(idata: xr.DataTree, draws: int) -> xr.DataTree:
    """Return evenly spread draws of each chain: that many in all, or a few more.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    draws : int
        Over all chains; all of them if there are fewer.

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
    chains = Chains(idata)
    return chains.some(chains.spread(draws))


def entry_name(name: str, index: Iterable[object]) -> str:
    """Name an entry of a variable: ``beta[0, 1]``; the variable alone, if it is a scalar.

    Examples
    --------
    >>> entry_name("beta", (0, 1)), entry_name("mu", ())
    ('beta[0, 1]', 'mu')
    """
    index = list(index)
    return f"{name}[{', '.join(map(str, index))}]" if index else name
