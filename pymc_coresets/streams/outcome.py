"""The coreset of a stream: what was chosen, and how far it is from all rows, which are gone."""

from typing import Any

from pymc_coresets.coreset import Coreset
from pymc_coresets.exceptions import warn_user
from pymc_coresets.potentials.from_rows import Settings
from pymc_coresets.potentials.kept_rows import kept_dataset
from pymc_coresets.rows.passes import AbsentRows
from pymc_coresets.solving.solution import Solution
from pymc_coresets.storage import history_dataset
from pymc_coresets.streams.growth import Growth, StreamState

_NOTICEABLE = 1.0  # nats: a coreset further away deserves a warning
_GONE = (
    "The rows of this stream were seen once and are gone: the coreset can be sampled, but this "
    "needs all of them. coreset.objective, measured against their exact sum at draws that chose "
    "nothing, and stream.coverage are what can be said without them. If the rows can be read "
    "again, in the same order, store the coreset and read it with Coreset.from_netcdf(path, model, "
    "rows=open_rows(...))."
)


def rows_gone(n_rows: int = 0, total_weight: float = 0.0) -> AbsentRows:
    """Return the rows of a stream, as those who ask for them find them.

    Examples
    --------
    >>> rows_gone(10, 10.0).n_rows
    10
    """
    return AbsentRows(n_rows, total_weight, _GONE)


def chosen_coreset(growth: Growth, state: StreamState, settings: Settings) -> Coreset:
    """Choose weighted rows that stand for all that a stream has seen: `CoresetStream.coreset`."""
    options = growth.options
    solution = growth.choose(state)
    objective = solution.objective + state.inherited_objective
    if not objective <= max(_NOTICEABLE, options.tolerance):
        warn_user(
            f"The coreset is {objective:.3g} nats from the rows of the stream at its "
            f"draws: allow a larger size than {options.size}, or more draws than "
            f"{options.n_draws}, or begin with a larger pilot."
        )
    loglik = growth.template.reading(rows_gone(state.n_rows, state.total_weight))
    one_epoch = len(state.beginnings) == 1
    return Coreset(
        indices=solution.rows.positions,
        weights=solution.weights,
        n_observations=round(state.total_weight),
        n_distinct=state.n_rows,
        method="stream",
        weighting="the pilot's posterior" if one_epoch else "the last epoch's draws",
        status=solution.status.value,
        objective=objective,
        random_seed=options.seed,
        history=history_dataset(solution.history, _figures(solution, state)),
        settings=settings,
        loglikelihood=loglik,
        data=kept_dataset(loglik, solution.rows, solution.weights),
    )


def _figures(solution: Solution, state: StreamState) -> dict[str, Any]:
    found = state.coverage
    return {
        "n_chunks": state.n_chunks,
        "n_epochs": len(state.beginnings),
        "epochs": "; ".join(
            f"from row {one.n_rows}: {one.reason.value}"
            + (f", objective of the coreset before {one.objective:.3g}" if one.size else "")
            for one in state.beginnings
        ),
        "inherited_objective": state.inherited_objective,
        "n_candidates": len(state.candidates),
        "n_draws": found.n_draws,
        "n_passes": 1,
        "draws_distance": found.displacement.distance,
        "draws_width": found.displacement.width,
        "pareto_khat": found.pareto_khat,
        "psis_ess": found.ess,
        "norm_total": state.seen.norm_total,
        "size": len(solution.rows),
    }
