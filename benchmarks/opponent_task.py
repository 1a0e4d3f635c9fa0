"""What a way is given, what it returns, and how its draws are weighted and judged.

A way takes a `Task` and returns an `Answer`.  All but NUTS on all rows work on the distinct rows
with their numbers, where rows repeat: a knowledgeable user would merge them first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

from benchmarks.opponent_clock import CompilationClock
from pymc_coresets.diagnostics.importance import (
    MIN_DRAWS,
    khat_threshold,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.observations import find_observations
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.normal import Mixture

__all__ = [
    "CHAINS",
    "ESS_TOLD",
    "Answer",
    "DoesNotApplyError",
    "DoesNotFitError",
    "Settings",
    "Task",
    "Way",
    "importance_ratios",
    "judged_chains",
    "weighted_answer",
]

CHAINS = 2
MIN_ESS, KHAT_REFERENCE, RHAT_REFERENCE = 400.0, 0.5, 1.02  # what a reference must reach
RHAT_TOLD, ESS_TOLD = 1.01, 100.0  # the second for each chain: what PyMC warns of


class DoesNotFitError(RuntimeError):
    """A way cannot be taken for this model; the message says why."""


class DoesNotApplyError(DoesNotFitError):
    """A way is meant for other models, and is left out of this one's table."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of all ways: draws and tuning steps of each chain, seconds, seed, cores."""

    draws: int = 1_000
    tune: int = 1_000
    seconds: float = 300.0
    seed: int = 1
    cores: int = 1
    refits: int = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A model to be fitted."""

    name: str
    model: pm.Model
    settings: Settings
    clock: CompilationClock = field(default_factory=CompilationClock)
    began: float = field(default_factory=time.perf_counter)

    @property
    def deadline(self) -> float:
        """When the seconds are over, of which compilation takes none."""
        return self.began + self.clock.seconds + self.settings.seconds

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.settings.seed)

    @cached_property
    def distinct(self) -> LogLikelihood:
        """The log-likelihood of the distinct rows."""
        return LogLikelihood(find_observations(self.model), collapse="auto")

    @property
    def collapses(self) -> bool:
        return self.distinct.n_rows < self.distinct.observations.n_obs

    @cached_property
    def weighted(self) -> pm.Model:
        """The model of the distinct rows and their numbers; the model itself without repetitions.

        Its posterior is that of the model.
        """
        if not self.collapses:
            return self.model
        rows = self.distinct.in_memory.all
        return coreset_model(self.distinct.observations, rows, rows.case_weights)


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What a way returned.

    Parameters
    ----------
    draws : Draws or None
        Of the free variables, or of some of them; None where the run ended before there were any.
    effective : float
        Independent draws that they are worth, for the worst variable; NaN where the distribution
        drawn from is not the posterior, whose precision it would say nothing of.
    warned : bool
        Whether the way's own diagnostics say that its draws should not be trusted.
    n_chains : int
        Of equal length.
    khat, kl : float
        Pareto k-hat of the importance ratios, posterior over the distribution drawn from, and the
        divergence KL(drawn from || posterior) in nats that they show.
    share : float
        Of the run that was done when its seconds were over.
    sound : bool
        Whether the draws may serve as a reference.
    finished : bool
        False where an optimisation was stopped well before its last step.
    remark : str
    """

    draws: Draws | None
    effective: float
    warned: bool
    n_chains: int = 1
    khat: float = np.nan
    kl: float = np.nan
    share: float = 1.0
    sound: bool = False
    finished: bool = True
    remark: str = ""


type Way = Callable[[Task], Answer]


# -- chains ----------------------------------------------------------------------------------------


def judged_chains(idata: xr.DataTree, model: pm.Model, *, share: float = 1.0) -> Answer:
    """Judge chains by R-hat, bulk effective sample size and divergences, as PyMC does."""
    names = [v.name for v in model.free_RVs]
    if "posterior" not in idata.children or idata["posterior"].sizes.get("draw", 0) < MIN_DRAWS:
        return Answer(draws=None, effective=np.nan, warned=True, share=share)
    dataset = idata["posterior"].to_dataset()[names].dropna("draw")
    ess = min(float(v.min()) for v in az.ess(dataset).data_vars.values())
    rhat = max(float(v.max()) for v in az.rhat(dataset).data_vars.values())
    stats = idata["sample_stats"].to_dataset()
    n_divergences = int(stats["diverging"].sum()) if "diverging" in stats else 0
    n_chains = dataset.sizes["chain"]
    remarks = [f"{n_divergences} divergences"] if n_divergences else []
    remarks += [f"R-hat {rhat:.2f}"] if rhat > RHAT_REFERENCE else []
    return Answer(
        draws=Draws.of(dataset, {n: dataset[n].shape[2:] for n in names}),
        n_chains=n_chains,
        effective=ess,
        warned=rhat > RHAT_TOLD or ess < ESS_TOLD * n_chains or n_divergences > 0,
        share=share,
        sound=rhat < RHAT_REFERENCE and ess >= MIN_ESS,
        remark=", ".join(remarks),
    )


# -- importance sampling ---------------------------------------------------------------------------


def importance_ratios(loglik: LogLikelihood, proposal: Proposal[Draws]) -> tuple[Draws, np.ndarray]:
    """Return the draws at which the posterior is positive, and their log-ratios."""
    ratios = proposal.log_ratios + loglik.sums(proposal.draws).total
    finite = np.flatnonzero(np.isfinite(ratios))
    return proposal.draws.take(finite), ratios[finite]


def weighted_answer(
    loglik: LogLikelihood, proposal: Proposal[Draws], rng: np.random.Generator
) -> Answer:
    """Resample draws by their importance weights."""
    draws, ratios = importance_ratios(loglik, proposal)
    smoothed = pareto_smooth(ratios[None])
    chosen = systematic_resample(smoothed.weights[0], len(ratios), rng=rng)
    khat, ess = smoothed.pareto_khat, smoothed.ess
    return Answer(
        draws=draws.take(chosen),
        effective=ess,
        khat=khat,
        kl=_kl_without_tails(loglik, proposal, draws, ratios),
        warned=khat > khat_threshold(len(ratios)) or ess < ESS_TOLD,
        sound=khat < KHAT_REFERENCE and ess >= MIN_ESS,
    )


def _kl_without_tails(
    loglik: LogLikelihood, proposal: Proposal[Draws], draws: Draws, ratios: np.ndarray
) -> float:
    """Divergence of a proposal without its heavy tails, which importance weights alone need."""
    smoothed, around = pareto_smooth(ratios[None]), proposal.around
    if not isinstance(around, Mixture) or len(around.parts) > 1:
        return smoothed.kl
    [part], x = around.parts, loglik.observations.space.free(draws)
    log_shares = replace(part, tails=None).log_density(x) - part.log_density(x)
    shares = np.exp(log_shares)
    mean = shares @ (ratios - log_shares) / shares.sum()
    return max(float(smoothed.log_mean_ratio - mean), 0.0)
