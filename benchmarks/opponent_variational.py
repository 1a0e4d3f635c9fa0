"""Variational ways: ADVI by `pm.fit`, of all rows and of minibatches, and Pathfinder."""

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph import graph_inputs

from benchmarks.opponent_packages import row_values
from benchmarks.opponent_task import (
    ESS_TOLD,
    Answer,
    DoesNotFitError,
    Task,
    importance_ratios,
)
from pymc_coresets.compat.pytensor_api import SharedVariable
from pymc_coresets.diagnostics.importance import (
    KHAT_RELIABLE,
    pareto_smooth,
)
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood

__all__ = ["advi", "advi_adam", "advi_minibatch", "pathfinder"]

STEPS = 20_000
FIRST_RATE, LAST_RATE = 0.05, 1e-4  # of Adam: it falls exponentially
DRAWS, JUDGED = 2_000, 400  # the second where all rows are evaluated for k-hat
BATCH = 1_000
MOST_BYTES = 1e9  # of one number for each row and each draw of Pathfinder


def advi(task: Task) -> Answer:
    """Fit independent normal distributions to the distinct rows' posterior, as PyMC does."""
    return _fitted(task, task.weighted, adam=False)


def advi_adam(task: Task) -> Answer:
    """Do the same with Adam and a falling rate: far better in some models, and worse in others."""
    return _fitted(task, task.weighted)


def advi_minibatch(task: Task) -> Answer:
    """Do the same with Adam and a fresh thousand of all rows in each step."""
    every = task.distinct.collapsed(collapse=False)
    batch = min(BATCH, every.n_rows)
    observations, weights = every.observations, np.full(batch, every.n_rows / batch)

    def values() -> dict[str, np.ndarray]:
        rows = every.in_memory.take(task.rng.integers(every.n_rows, size=batch))
        return row_values(observations, rows, weights)

    first = every.in_memory.take(np.arange(batch))
    model = coreset_model(observations, first, weights)
    names = values()
    inputs = graph_inputs([model.logp()])
    shared = [v for v in inputs if isinstance(v, SharedVariable) and v.name in names]

    def renew(*_: Any) -> None:  # noqa: ANN401
        fresh = values()
        for variable in shared:
            variable.set_value(fresh[str(variable.name)], borrow=True)

    return _fitted(task, model, renew)


def _fitted(
    task: Task, model: pm.Model, *every_step: Callable[..., None], adam: bool = True
) -> Answer:
    """Run ADVI until the steps or the seconds are over, by Adam or with PyMC's defaults.

    The rate of Adam falls, and is small at the end.  ADVI does not say how good the result is; its
    k-hat is computed here for the table.
    """
    rate = pytensor.shared(FIRST_RATE, name="rate")
    began = time.perf_counter()

    def fall(_: Any, losses: np.ndarray, __: int) -> None:  # noqa: ANN401
        now = time.perf_counter()
        done = max(len(losses) / STEPS, (now - began) / max(task.deadline - began, 1e-9))
        rate.set_value(FIRST_RATE * (LAST_RATE / FIRST_RATE) ** min(done, 1.0))
        if done >= 1:
            raise StopIteration("The steps or the seconds are over")

    options = {"obj_optimizer": pm.adam(learning_rate=rate)} if adam else {}
    approximation = pm.fit(
        STEPS + 1,
        method="advi",
        model=model,
        callbacks=[*every_step, fall],
        random_seed=task.settings.seed,
        progressbar=False,
        **options,
    )
    space = Unconstrained(model)
    _check_order(approximation, space)
    mean, sd = approximation.mean.eval(), approximation.std.eval()
    z = task.rng.standard_normal((DRAWS, len(mean)))
    drawn = space.constrain(mean + sd * z)
    log_densities = -0.5 * np.square(z[:JUDGED]).sum(axis=1)
    positions = (mean + sd * z)[:JUDGED]
    proposal = proposal_of(task.distinct, drawn.take(slice(0, JUDGED)), positions, log_densities)
    _, ratios = importance_ratios(task.distinct, proposal)
    smoothed = pareto_smooth(ratios[None])
    return Answer(
        draws=drawn,
        effective=np.nan,
        khat=smoothed.pareto_khat,
        kl=smoothed.kl,
        warned=False,
        finished=len(approximation.hist) > 0.95 * STEPS,
        remark=f"{len(approximation.hist):,} of {STEPS:,} steps",
    )


def _check_order(approximation: Any, space: Unconstrained) -> None:  # noqa: ANN401
    """Refuse an approximation whose variables come in another order than the model's."""
    [group] = approximation.groups
    if list(group.ordering) != list(space.point(space.start)):
        raise DoesNotFitError("pm.fit orders the variables in another way")


def proposal_of(
    loglik: LogLikelihood, draws: Draws, positions: np.ndarray, log_densities: np.ndarray
) -> Proposal[Draws]:
    """Return draws with the log of the prior over their own density."""
    return Proposal(draws=draws, log_ratios=loglik.rest.values(positions) - log_densities)


def pathfinder(task: Task) -> Answer:
    """Run multi-path Pathfinder of pymc-extras, which resamples by importance itself."""
    if find_spec("pymc_extras") is None:
        raise DoesNotFitError("not installed: pymc-extras")
    from pymc_extras import fit_pathfinder  # noqa: PLC0415

    idata = fit_pathfinder(
        model=task.weighted,
        num_draws=DRAWS,
        num_draws_per_path=DRAWS,
        importance_sampling="psir",  # with replacement: without it, draws are not the posterior's
        vectorize_logp=task.distinct.n_rows * DRAWS * 8 < MOST_BYTES,
        random_seed=task.settings.seed,
        parallel=False,
        progressbar=False,
    )
    posterior = idata["posterior"]
    shapes = {v.name: posterior[v.name].shape[2:] for v in task.weighted.free_RVs}
    draws = Draws.of(idata, shapes)
    khat, effective = _pareto_k(idata), _effective(draws)
    return Answer(
        draws=draws,
        effective=effective if khat < KHAT_RELIABLE else np.nan,
        khat=khat,
        warned=not khat < KHAT_RELIABLE or effective < ESS_TOLD,
    )


def _effective(draws: Draws) -> float:
    """Estimate the effective size 1 / sum(w^2) of importance weights from what they resampled.

    Two draws with replacement are the same with probability sum(w^2).
    """
    rows = np.hstack([v.reshape(draws.n_draws, -1) for v in draws.values.values()])
    _, counts = np.unique(rows, axis=0, return_counts=True)
    pairs = float((counts * (counts - 1)).sum())
    return min(draws.n_draws * (draws.n_draws - 1) / max(pairs, 1.0), float(draws.n_draws))


def _pareto_k(idata: Any) -> float:  # noqa: ANN401
    """Find Pathfinder's own k-hat among its groups."""
    for node in idata.subtree:
        for name, value in {**node.data_vars, **node.attrs}.items():
            if "pareto_k" in str(name):
                return float(np.asarray(value))
    return np.nan
