"""Draws at which all rows were evaluated: as many as their importance weights need."""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.diagnostics.importance import (
    MIN_DRAWS,
    MIN_PER_CHAIN,
    Floats,
    SmoothedWeights,
    pareto_smooth,
)
from pymc_coresets.diagnostics.posterior_draws import (
    SAMPLE_DIMS,
    Convergence,
    diagnosed,
    posterior_dataset,
)
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import positive_number

ENOUGH_ESS = 400.0
"""Effective sample size at which Monte Carlo standard errors are 5 % of the posterior sd."""

_SPARE = 1.1  # of the number of draws that an estimate of their worth asks for

type LogDensities = Callable[[xr.DataTree], tuple[Floats, Floats]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EvaluatedDraws:
    """Some draws of each chain, and the log-densities that were evaluated there.

    Parameters
    ----------
    numbers : ndarray of int64, of shape (n_draws,)
        Numbers of the draws, the same in every chain, sorted.
    log_p, log_q : ndarray of shape (n_chains, n_draws)
        Log-density of the full posterior, and of the one that was drawn from, in nats, each up to
        a constant.

    Examples
    --------
    >>> found = EvaluatedDraws(np.arange(100), np.zeros((4, 100)), np.zeros((4, 100)))
    >>> found.smoothed.pareto_khat
    -inf
    """

    numbers: NDArray[np.int64]
    log_p: Floats
    log_q: Floats

    @cached_property
    def log_ratios(self) -> Floats:
        """Log of the importance ratios, (n_chains, n_draws)."""
        return self.log_p - self.log_q

    @cached_property
    def smoothed(self) -> SmoothedWeights:
        """Their importance weights."""
        return pareto_smooth(self.log_ratios)

    def of(self, idata: xr.DataTree) -> xr.DataTree:
        """Return these draws alone, with the group ``posterior``."""
        return _some(idata, self.numbers)


def wanted_ess(value: object) -> float:
    """Return an option ``ess``, which must be positive and may be infinite.

    Raises
    ------
    InvalidOptionError
        If it is not.

    Examples
    --------
    >>> wanted_ess(400), wanted_ess(math.inf)
    (400.0, inf)
    """
    if isinstance(value, float) and value == math.inf:
        return math.inf
    try:
        return positive_number("ess", value)
    except InvalidOptionError as error:
        raise InvalidOptionError(
            f"ess={value!r} must be a positive number, or math.inf for all draws."
        ) from error


def enough_draws(
    idata: xr.DataTree,
    log_densities: LogDensities,
    *,
    ess: float = ENOUGH_ESS,
    at_least: float = 0,
    free: Collection[str] | None = None,
) -> EvaluatedDraws:
    """Evaluate draws until they are worth enough independent ones of the full posterior.

    First `ess` draws, evenly spread over the chains; then as many more as their weights say are
    missing, until these are enough or none are left.  What was evaluated once is kept.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws, with a group ``posterior`` (dims chain, draw).
    log_densities : callable
        Returns the log-densities of the full posterior and of the one that was drawn from at some
        of the draws, both (n_chains, n_draws), each up to a constant of its own.
    ess : float
        Effective sample size that is enough; infinite for all draws.
    at_least : float
        Number of draws that are evaluated anyway, over all chains.
    free : collection of str, optional
        The free variables, by whose autocorrelation the draws are judged: see `diagnosed`.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> mu = xr.DataArray(rng.normal(size=(4, 1000)), dims=("chain", "draw"))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})})
    >>> def shifted(some):
    ...     return some["posterior"]["mu"].values, np.zeros(some["posterior"]["mu"].shape)
    >>> found = enough_draws(idata, shifted, ess=100)
    >>> 100 <= found.smoothed.ess < found.log_p.size < 4000
    True
    """
    posterior = posterior_dataset(idata, "idata")
    n_chains, n_draws = (posterior.sizes[dim] for dim in SAMPLE_DIMS)
    first = max(ess, at_least, MIN_DRAWS, MIN_PER_CHAIN * n_chains)
    bulk, found = math.inf, None
    while True:
        each = n_draws if math.isinf(first) else min(math.ceil(first / n_chains), n_draws)
        found = _with_more(idata, log_densities, found, each)
        if each == n_draws:
            break
        if math.isinf(bulk):
            bulk = Convergence.of(idata, diagnosed(posterior, free)).ess_bulk
        share = min(bulk / found.log_p.size, 1.0)
        worth = min(found.smoothed.ess, share * found.smoothed.ess_of_independent)
        if worth >= ess:
            break
        first = _SPARE * found.log_p.size * ess / worth
    _log.info("All rows were evaluated at %d of %d draws.", found.log_p.size, n_chains * n_draws)
    return found


def _with_more(
    idata: xr.DataTree, log_densities: LogDensities, found: EvaluatedDraws | None, each: int
) -> EvaluatedDraws:
    """Evaluate further draws, evenly spread over those that were not, until each chain has some."""
    n_draws = posterior_dataset(idata, "idata").sizes["draw"]
    known = np.empty(0, np.int64) if found is None else found.numbers
    others = np.setdiff1d(np.arange(n_draws), known)
    wanted = max(each - len(known), 1)
    more = others[np.linspace(0, len(others) - 1, wanted).round().astype(np.int64)]
    if found is None:
        return EvaluatedDraws(more, *log_densities(_some(idata, more)))
    # Sums of log-likelihoods are known up to a constant of each evaluation: one draw joins them.
    densities = log_densities(_some(idata, np.append(known[:1], more)))
    numbers = np.append(known, more)
    order = np.argsort(numbers)
    joined = (
        np.append(old, new[:, 1:] + (old[0, 0] - new[0, 0]), axis=1)[:, order]
        for old, new in zip((found.log_p, found.log_q), densities, strict=True)
    )
    return EvaluatedDraws(numbers[order], *joined)


def _some(idata: xr.DataTree, numbers: NDArray[np.int64]) -> xr.DataTree:
    posterior = posterior_dataset(idata, "idata").isel(draw=numbers)
    return xr.DataTree.from_dict({"posterior": posterior})
