"""Draws at which all rows were evaluated: as many as it takes, judged, and resampled."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.diagnostics.importance import (
    MIN_DRAWS,
    MIN_PER_CHAIN,
    Floats,
    SmoothedRatios,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.judging import TOLERANCE, Certificate, Check
from pymc_coresets.diagnostics.posterior_draws import RESAMPLED, SAMPLE_DIMS, Chains, evenly
from pymc_coresets.diagnostics.verdicts import Verdict
from pymc_coresets.exceptions import InvalidDataError, warn_user
from pymc_coresets.options import positive_number

FIRST_DRAWS = 400
"""Draws at which a KL divergence near the tolerance is known to 10 %."""

#: The log-densities of the full posterior and of the one that was drawn from at some draws, each
#: (n_draws,), the chains one after the other, in nats, and up to a constant of its own.
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

    @classmethod
    def at_all(cls, log_ratios: Floats) -> "EvaluatedDraws":
        """Return those of all draws, whose log-ratios are known, (n_chains, n_draws)."""
        return cls(np.arange(log_ratios.shape[1]), log_ratios, np.zeros_like(log_ratios))

    @cached_property
    def log_ratios(self) -> Floats:
        """Log of the importance ratios, (n_chains, n_draws)."""
        return self.log_p - self.log_q

    @cached_property
    def smoothed(self) -> SmoothedRatios:
        """Their importance weights."""
        return pareto_smooth(self.log_ratios)

    def ess(self, chains: Chains) -> float:
        """Return what they are worth once weighted: chains keep their own autocorrelation."""
        share = min(chains.ess_bulk / self.log_p.size, 1.0)
        return min(self.smoothed.ess, share * self.smoothed.ess_of_independent)

    def check(self, chains: Chains, *, tolerance: float = TOLERANCE) -> Check:
        """Judge the posterior that was drawn from, without a run of the full one.

        Parameters
        ----------
        chains : Chains
            All the draws, by which convergence is judged.
        tolerance : float, default 0.01
            Symmetrised KL divergence in nats up to which the draws can be used as they are.

        Examples
        --------
        >>> mu = np.random.default_rng(1).normal(size=(4, 500))
        >>> chains = Chains(xr.Dataset({"mu": (("chain", "draw"), mu)}))
        >>> EvaluatedDraws.at_all(np.zeros((4, 500))).check(chains).reliable
        True
        """
        mean, sd = chains.largest_shifts(self.smoothed.weights, self.numbers)
        return Check.of(
            self.smoothed,
            ess=self.ess(chains),
            rhat=chains.rhat,
            n_sampled=chains.n_chains * chains.n_draws,
            copies=chains.copies,
            ess_bulk=chains.ess_bulk,
            ess_tail=chains.ess_tail,
            n_divergences=chains.n_divergences,
            n_chains=chains.n_chains,
            mean_shift=mean,
            sd_shift=sd,
            tolerance=tolerance,
        )


def evaluate_enough(
    chains: Chains,
    log_densities: LogDensities,
    wanted: Callable[[EvaluatedDraws], float],
    *,
    first: float = FIRST_DRAWS,
    impossible: str,
) -> EvaluatedDraws:
    """Evaluate draws until they are enough, or none are left; what was evaluated once is kept.

    Parameters
    ----------
    chains : Chains
        All draws.
    log_densities : callable
        See `LogDensities`.
    wanted : callable
        Returns the number of draws needed, given those evaluated so far.
    first : float
        How many to begin with, evenly spread over the chains.
    impossible : str
        Message for draws with zero density under the full data, with a remedy.

    Raises
    ------
    InvalidDataError
        If a log-ratio is not finite.

    Examples
    --------
    >>> chains = Chains(xr.Dataset({"mu": (("chain", "draw"), np.zeros((4, 1000)))}))
    >>> def equal(some):
    ...     return np.zeros(some["posterior"]["mu"].size), np.zeros(some["posterior"]["mu"].size)
    >>> evaluate_enough(chains, equal, lambda found: 800, impossible="").log_p.shape
    (4, 200)
    """
    first = max(first, MIN_DRAWS, MIN_PER_CHAIN * chains.n_chains)
    found = _at(chains, chains.spread(first), log_densities, impossible)
    while len(found.numbers) < chains.n_draws and (most := wanted(found)) > found.log_p.size:
        more = max(len(chains.spread(most)) - len(found.numbers), 1)
        others = evenly(np.setdiff1d(np.arange(chains.n_draws), found.numbers), more)
        # Sums of log-likelihoods are known up to a constant of each pass: one draw joins these.
        again = _at(chains, np.append(found.numbers[:1], others), log_densities, impossible)
        numbers = np.append(found.numbers, others)
        order = np.argsort(numbers)
        joined = (
            np.append(old, new[:, 1:] + (old[0, 0] - new[0, 0]), axis=1)[:, order]
            for old, new in ((found.log_p, again.log_p), (found.log_q, again.log_q))
        )
        found = EvaluatedDraws(numbers[order], *joined)
    n_draws = chains.n_chains * chains.n_draws
    _log.info("All rows were evaluated at %d of %d draws.", found.log_p.size, n_draws)
    return found


def _at(
    chains: Chains, numbers: NDArray[np.int64], log_densities: LogDensities, impossible: str
) -> EvaluatedDraws:
    log_p, log_q = log_densities(chains.some(numbers))
    with np.errstate(invalid="ignore"):
        share = np.mean(~np.isfinite(log_p - log_q))
    if share:
        raise InvalidDataError(
            f"{share:.1%} of the draws are impossible under the full data: {impossible}",
            topic="draws",
        )
    shape = (chains.n_chains, len(numbers))
    return EvaluatedDraws(numbers, log_p.reshape(shape), log_q.reshape(shape))


def check_draws(
    chains: Chains,
    log_densities: LogDensities,
    *,
    draws: int | None = None,
    tolerance: float = TOLERANCE,
    impossible: str,
) -> Check:
    """Judge 400 draws, and all of them only if these do not show a negligible divergence.

    Parameters
    ----------
    chains : Chains
    log_densities, impossible
        See `evaluate_enough`.
    draws : int, optional
        Judge that many, whatever they show.
    tolerance : float, default 0.01
        Symmetrised KL divergence in nats up to which the draws can be used as they are.

    Examples
    --------
    >>> mu = np.random.default_rng(1).normal(size=(4, 500))
    >>> chains = Chains(xr.Dataset({"mu": (("chain", "draw"), mu)}))
    >>> def equal(some):
    ...     return np.zeros(some["posterior"]["mu"].size), np.zeros(some["posterior"]["mu"].size)
    >>> check_draws(chains, equal, impossible="").n_draws
    400
    """

    def wanted(found: EvaluatedDraws) -> float:
        enough = draws is not None or found.check(chains, tolerance=tolerance).negligible
        return 0.0 if enough else math.inf

    first = draws or FIRST_DRAWS
    found = evaluate_enough(chains, log_densities, wanted, first=first, impossible=impossible)
    return found.check(chains, tolerance=tolerance)


def enough_for(chains: Chains, ess: float) -> Callable[[EvaluatedDraws], float]:
    """Return the rule for a number of draws with an effective sample size, see `evaluate_enough`.

    Examples
    --------
    >>> mu = np.random.default_rng(1).normal(size=(4, 1000))
    >>> chains = Chains(xr.Dataset({"mu": (("chain", "draw"), mu)}))
    >>> def shifted(some):
    ...     return some["posterior"]["mu"].values.ravel(), np.zeros(some["posterior"]["mu"].size)
    >>> found = evaluate_enough(chains, shifted, enough_for(chains, 100), first=100, impossible="")
    >>> 100 <= found.ess(chains) < found.log_p.size < 4000
    True
    """

    def wanted(found: EvaluatedDraws) -> float:
        worth = found.ess(chains)
        if worth >= ess:
            return 0.0
        # A tenth more than an estimate of their worth asks for.
        return 1.1 * found.log_p.size * ess / worth if worth else math.inf

    return wanted


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
    return positive_number("ess", value)


def resample_draws(
    chains: Chains,
    found: EvaluatedDraws,
    *,
    rng: np.random.Generator,
    draws: int | None = None,
    remedy: str = "Build a larger coreset.",
    independent: bool = False,
) -> xr.DataTree:
    """Turn draws into draws of the full posterior by resampling.

    Draws are repeated in proportion to their Pareto-smoothed importance weights (systematic
    resampling, in random order). ArviZ treats the result as independent draws; the attribute
    ``psis_ess`` of the posterior holds their effective sample size.

    Parameters
    ----------
    chains : Chains
        All draws.
    found : EvaluatedDraws
        Those at which all rows were evaluated.
    rng : numpy.random.Generator
    draws : int, optional
        Draws per chain in the result; as many as were evaluated by default.
    remedy : str
        Remedy for unreliable weights, at the end of the warning.
    independent : bool, default False
        Whether the draws are independent, so that convergence is not checked.

    Returns
    -------
    xarray.DataTree
        As many chains as before. Groups with the same draws are resampled alike, groups
        without draws (data) and those of the prior are kept, and others (warm-up) are left out.
        The posterior has the attributes ``pareto_khat``, ``psis_ess``, ``n_evaluated`` (number of
        evaluated draws), ``resampling``, and those of a `Verdict`: ``verdict``, ``level`` and
        ``reason``.

    Warns
    -----
    CoresetWarning
        If the weights are unreliable and the two posteriors differ noticeably, or the draws have
        not converged.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25(72).
    https://doi.org/10.48550/arXiv.1507.02646

    Examples
    --------
    Draws of N(0, 1) become draws of N(0.5, 1):

    >>> rng = np.random.default_rng(1)
    >>> mu = xr.DataArray(rng.normal(size=(4, 1000)), dims=("chain", "draw"))
    >>> chains = Chains(xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": mu})}))
    >>> found = resample_draws(chains, EvaluatedDraws.at_all(0.5 * mu.values), rng=rng)
    >>> round(float(found.posterior["mu"].mean()), 1)
    0.5
    """
    draws = len(found.numbers) if draws is None else draws
    judged = Certificate.of(found.smoothed) if independent else found.check(chains)
    verdict = judged.verdict_on_weights
    if not judged.resampling_serves:
        warn_user(f"{verdict} The resampled draws are not draws of the full posterior. {remedy}")
    shape = (chains.n_chains, draws)
    flat = systematic_resample(found.smoothed.weights.ravel(), math.prod(shape), rng=rng)
    of_chain, some = np.unravel_index(flat.reshape(shape), found.log_p.shape)
    picked = {
        dim: xr.DataArray(row, dims=SAMPLE_DIMS)
        for dim, row in zip(SAMPLE_DIMS, (of_chain, found.numbers[some]), strict=True)
    }
    sizes = {"chain": chains.n_chains, "draw": chains.n_draws}
    groups: dict[str, xr.Dataset | xr.DataTree] = {}
    for name, node in chains.idata.children.items():
        own = {dim: node.sizes[dim] for dim in SAMPLE_DIMS if dim in node.sizes}
        if name in {"prior", "prior_predictive", "sample_stats_prior"} or not own:
            groups[name] = node  # with the groups in it
        elif own == sizes and not name.startswith("warmup_"):
            taken = node.to_dataset().drop_vars(SAMPLE_DIMS, errors="ignore").isel(picked)
            groups[name] = taken.assign_coords({n: np.arange(taken.sizes[n]) for n in SAMPLE_DIMS})
    n_draws, n_evaluated = math.prod(sizes.values()), found.log_p.size
    if n_evaluated < n_draws:
        few, many = (f"{number:,}" for number in (n_evaluated, n_draws))
        verdict = verdict.and_text(f"All rows were evaluated at {few} of {many} draws (see ess).")
    groups["posterior"].attrs |= {
        "pareto_khat": found.smoothed.pareto_khat,
        "psis_ess": judged.ess,
        "n_evaluated": n_evaluated,
        RESAMPLED: "systematic",
    } | verdict.attrs
    result = xr.DataTree.from_dict(groups)
    result.attrs |= chains.idata.attrs
    return result


def note_doubts(resampled: xr.DataTree, doubts: Iterable[Verdict]) -> None:
    """Replace the verdict on resampled draws by the first doubt about them, if that is worse.

    Parameters
    ----------
    resampled : xarray.DataTree
        From `resample_draws`; its attributes are changed.
    doubts : iterable of Verdict
        What the weights cannot show.
    """
    attrs = resampled["posterior"].attrs
    for doubt in doubts:
        if doubt.level.worse_than(Verdict.stored(attrs).level):
            attrs |= doubt.attrs
