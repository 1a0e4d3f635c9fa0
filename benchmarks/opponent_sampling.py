"""NUTS on distinct rows and on all, Laplace with importance weights, and a coreset."""

import time
import warnings
from dataclasses import replace
from typing import Any

import nutpie
import pymc as pm
import xarray as xr

import pymc_coresets as pmc
from benchmarks.opponent_task import (
    CHAINS,
    ESS_TOLD,
    Answer,
    DoesNotApplyError,
    DoesNotFitError,
    Task,
    judged_chains,
    weighted_answer,
)
from pymc_coresets import Coreset, CoresetWarning, build_coreset
from pymc_coresets.diagnostics.importance import khat_threshold, pareto_smooth
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.keyed import rows_to_start
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.sampler import CoresetSampler

__all__ = [
    "built",
    "coreset_draws",
    "importance",
    "laplace",
    "nuts_all",
    "nuts_distinct",
    "one_call",
    "reference",
    "sample_until",
]

PROPOSED = 2_000  # draws from around the mode
NO_MODE = "said itself that the density has no proper mode"


# -- NUTS ------------------------------------------------------------------------------------------


def nuts_distinct(task: Task) -> Answer:
    """Sample the distinct rows with nutpie."""
    if not task.collapses:
        raise DoesNotApplyError("rows do not repeat")
    answer = _nutpie(task, task.weighted)
    n_obs = task.distinct.observations.n_obs
    remarks = [f"{task.distinct.n_rows:,} of {n_obs:,} rows", answer.remark]
    return replace(answer, remark="; ".join(filter(None, remarks)))


def nuts_all(task: Task) -> Answer:
    """Sample all rows with nutpie."""
    return _nutpie(task, task.model)


def reference(task: Task) -> Answer:
    """Sample the distinct rows with nutpie in small steps: what the other ways are judged by."""
    return _nutpie(task, task.weighted, target_accept=0.95)


def _nutpie(task: Task, model: pm.Model, **options: Any) -> Answer:  # noqa: ANN401
    with task.clock.compiling():
        compiled = nutpie.compile_pymc_model(model)
    idata, share = sample_until(task, compiled, **options)
    if not share:
        raise DoesNotFitError(f"not one draw in {task.settings.seconds:.0f} s")
    return judged_chains(idata, model, share=share)


def sample_until(
    task: Task,
    compiled: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> tuple[xr.DataTree, float]:
    """Return nutpie's draws, and the share of the run that was done at the deadline.

    There are no draws where that was before the end of the tuning: nutpie stops after a trajectory
    only, which can take minutes, and is not waited for.
    """
    progress = [0.0]

    def note(chains: Any) -> None:  # noqa: ANN401
        progress[:] = [sum(c.finished_draws for c in chains) / sum(c.total_draws for c in chains)]

    settings = task.settings
    sampling = nutpie.sample(
        compiled,
        draws=settings.draws,
        tune=settings.tune,
        chains=CHAINS,
        cores=CHAINS,
        seed=settings.seed,
        progress_bar=False,
        progress_callback=note,
        save_warmup=False,
        blocking=False,
        **options,
    )
    try:
        return sampling.wait(timeout=max(task.deadline - time.perf_counter(), 0.0)), 1.0
    except TimeoutError:
        if progress[0] > settings.tune / (settings.tune + settings.draws):
            return sampling.abort(), progress[0]
        sampling.pause()
        return xr.DataTree(), progress[0]


# -- importance sampling ---------------------------------------------------------------------------


def laplace(task: Task) -> Answer:
    """Draw from a t distribution at the mode of all rows, and weight the draws."""
    loglik = task.distinct
    start = rows_to_start(loglik.n_dims)
    found = proposal(CoresetSampler(loglik), PROPOSED, start_size=start, rng=task.rng)
    if found is None:
        raise DoesNotFitError(NO_MODE)
    return weighted_answer(loglik, found, task.rng)


# -- coresets --------------------------------------------------------------------------------------


def built(task: Task) -> tuple[Coreset, str]:
    """Return the coreset, and the first warning of its construction."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CoresetWarning)
        coreset = build_coreset(task.model, random_seed=task.settings.seed, progressbar=False)
    said = [str(w.message) for w in caught if issubclass(w.category, CoresetWarning)]
    return coreset, said[0].split(".")[0] if said else ""


def importance(task: Task) -> Answer:
    """Return the importance draws that a construction leaves behind."""
    coreset, _ = built(task)
    if coreset.proposal is None:
        raise DoesNotFitError(NO_MODE)
    ratios = coreset.proposal.log_ratios[None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)
        idata = coreset.importance_draws(random_seed=task.settings.seed)
    posterior = idata["posterior"]
    khat, ess = (float(posterior.attrs[name]) for name in ("pareto_khat", "psis_ess"))
    return Answer(
        draws=Draws.of(idata, {str(n): v.shape[2:] for n, v in posterior.data_vars.items()}),
        effective=ess,
        khat=khat,
        kl=pareto_smooth(ratios).kl,
        warned=khat > khat_threshold(ratios.size) or ess < ESS_TOLD,
        remark=f"with a coreset of {coreset.size:,} rows",
    )


def one_call(task: Task) -> Answer:
    """Call `pmc.sample` with its default numbers of chains and draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoresetWarning)
        idata = pmc.sample(task.model, random_seed=task.settings.seed, progressbar=False)
    warned = idata.attrs["level"] != pmc.Level.RELIABLE
    coreset = f"{idata['coreset'].sizes['row']:,} rows" if "coreset" in idata.children else ""
    remark = coreset or "no coreset was needed"
    if "psis_ess" not in idata.attrs:
        answer = judged_chains(idata, task.model)
        return replace(answer, warned=warned, sound=False, remark=remark)
    posterior = idata["posterior"]
    names = [v.name for v in task.model.free_RVs]
    return Answer(
        draws=Draws.of(idata, {n: posterior[n].shape[2:] for n in names}),
        effective=float(idata.attrs["psis_ess"]),
        khat=float(idata.attrs["pareto_khat"]),
        warned=warned,
        remark=remark,
    )


def coreset_draws(task: Task) -> Answer:
    """Build a coreset, sample it, check the draws, and follow what the check says."""
    return answer_of(task, *built(task))


def answer_of(task: Task, coreset: Coreset, said: str = "") -> Answer:
    """Sample a coreset, check the draws, and follow what the check says."""
    settings = task.settings
    idata = coreset.sample(
        draws=settings.draws,
        chains=CHAINS,
        cores=min(CHAINS, settings.cores),
        random_seed=settings.seed,
        progressbar=False,
    )  # which knows itself how long to tune
    check = coreset.check(idata)
    answer = judged_chains(idata, coreset.model)
    remarks = [f"{coreset.size:,} rows", answer.remark, said]
    if check.reliable and check.needs_reweighting:
        weighted = coreset.reweight(idata, random_seed=settings.seed)
        assert answer.draws is not None
        shapes = {n: v.shape[1:] for n, v in answer.draws.values.items()}
        answer = replace(answer, draws=Draws.of(weighted, shapes), effective=check.ess)
        remarks.append("re-weighted")
    return replace(
        answer,
        khat=check.pareto_khat,
        kl=check.kl,
        warned=not check.reliable,
        sound=False,
        remark="; ".join(filter(None, remarks)),
    )
