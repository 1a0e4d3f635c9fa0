"""The same model with many other priors: what a coreset saves, and what its opponents take.

The prior of every free variable, but for those of single users, is raised to a power between 1/2
and 2, as in studies of a posterior's sensitivity to its prior.  The power is data of the model, so
that both sides compile once.
"""

import time

import numpy as np
import nutpie
import pymc as pm

from benchmarks.compiled_density import compiled_density
from benchmarks.opponent_sampling import NO_MODE, answer_of, built, sample_until
from benchmarks.opponent_task import (
    Answer,
    DoesNotFitError,
    Task,
    judged_chains,
    weighted_answer,
)
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.rows.keyed import rows_to_start
from pymc_coresets.sampling.curvature import laplace, normal_near
from pymc_coresets.sampling.density import Density, Slopes
from pymc_coresets.sampling.maximisation.one_start import maximise
from pymc_coresets.sampling.sampler import CoresetSampler

__all__ = ["coreset_refits", "laplace_refits", "nuts_refits", "with_power"]

POWER = "prior_power"
SHARED = 1_000  # entries at most: variables with more are those of users
PROPOSED = 2_000


def with_power(model: pm.Model) -> pm.Model:
    """Add the power of the prior to a model, as data; it is 1 at first."""
    with model:
        power = pm.Data(POWER, 1.0)
        shared = (v for v in model.free_RVs if np.prod(v.shape.eval()) <= SHARED)
        prior = sum(pm.logp(v, v).sum() for v in shared)
        pm.Potential("change_of_prior", (power - 1.0) * prior)
    return model


def powers(n: int) -> np.ndarray:
    """Return the powers, from 1/2 to 2."""
    return np.geomspace(0.5, 2.0, n)


def coreset_refits(task: Task) -> Answer:
    """Build one coreset; with each prior, sample it, check the draws, and follow what that says."""
    model = with_power(task.model)
    coreset, _ = built(task)
    answers: list[Answer] = []
    for power in powers(task.settings.refits):
        if time.perf_counter() > task.deadline:
            break
        model[POWER].set_value(np.asarray(power))
        answers.append(answer_of(task, coreset.with_model(model)))
    return _together(task, answers)


def nuts_refits(task: Task) -> Answer:
    """Sample the distinct rows with each prior, as many as there is time for."""
    loglik = task.distinct
    rows = loglik.in_memory.all
    model = with_power(coreset_model(loglik.observations, rows, rows.case_weights))
    with task.clock.compiling():
        compiled = nutpie.compile_pymc_model(model)
    answers: list[Answer] = []
    done = 0.0
    for power in powers(task.settings.refits):
        idata, share = sample_until(task, compiled.with_data(**{POWER: power}))
        done += share
        if share < 1:
            break
        answers.append(judged_chains(idata, model))
    return _together(task, answers, done=done)


def laplace_refits(task: Task) -> Answer:
    """Find the mode with each prior, from that of a sample, and weight draws from around it."""
    loglik = task.distinct
    no_row = loglik.in_memory.take(slice(0, 1)), np.zeros(1)
    new = with_power(coreset_model(loglik.observations, *no_row))
    sampler, prior = CoresetSampler(loglik), compiled_density(new)
    full, old = sampler.full_density, sampler.density_without_rows

    def slopes(points: np.ndarray) -> Slopes:
        """Let one prior take the place of another in the density of all rows."""
        values, gradients = map(np.array, zip(*map(prior, points), strict=True))
        before = old.slopes(points)
        return full.slopes(points).plus(
            Slopes(values - before.values, gradients - before.gradients)
        )

    density, own = Density(slopes), sampler.space
    answers: list[Answer] = []
    try:
        some = sampler.density_of_some(rows_to_start(loglik.n_dims), task.settings.seed)
        near = laplace(some, sampler.start)
        for power in powers(task.settings.refits):
            if time.perf_counter() > task.deadline:
                break
            new[POWER].set_value(np.asarray(power))
            around = normal_near(maximise(near, density), near, density, polish=True)
            positions, logq = around.draw(PROPOSED, rng=task.rng)
            logp = np.array([prior(x)[0] for x in positions])
            proposal = Proposal(draws=own.constrain(positions), log_ratios=logp - logq)
            answers.append(weighted_answer(loglik, proposal, task.rng))
    except SamplingError as error:
        raise DoesNotFitError(NO_MODE) from error
    return _together(task, answers)


def _together(task: Task, answers: list[Answer], *, done: float | None = None) -> Answer:
    """Reduce many fits to the worst of each figure."""
    n = task.settings.refits
    if not answers:
        return Answer(
            draws=None, effective=np.nan, warned=True, share=(done or np.nan) / n, remark="not one"
        )
    effective = min(a.effective for a in answers)
    n_warned = sum(a.warned for a in answers)
    said = f"{n} priors, at least {effective:,.0f} effective draws each"
    return Answer(
        draws=None,
        effective=np.nan,
        khat=max(a.khat for a in answers),
        warned=n_warned > 0,
        share=(len(answers) if done is None else done) / n,
        remark=said + (f", {n_warned} with a warning" if n_warned else ""),
    )
