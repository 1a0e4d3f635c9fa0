"""All ways from a model to draws of its posterior, by name."""

from collections.abc import Mapping

from benchmarks.opponent_packages import gpboost, hmcecs
from benchmarks.opponent_refits import coreset_refits, laplace_refits, nuts_refits
from benchmarks.opponent_sampling import (
    coreset_draws,
    importance,
    laplace,
    nuts_all,
    nuts_distinct,
    one_call,
    reference,
)
from benchmarks.opponent_task import Way
from benchmarks.opponent_variational import advi, advi_adam, advi_minibatch, pathfinder

__all__ = ["CORESET_REFITS", "OURS", "REFERENCE", "REFITS", "WAYS", "way_called"]

OURS = "ours: "
REFERENCE = "reference run of NUTS"
CORESET_REFITS = f"{OURS}refits of one coreset"

#: In the order of the table.
WAYS: Mapping[str, Way] = {
    "NUTS, distinct rows": nuts_distinct,
    "NUTS, all rows": nuts_all,
    "Laplace + PSIS": laplace,
    "Pathfinder + PSIS": pathfinder,
    "ADVI": advi,
    "ADVI, Adam": advi_adam,
    "ADVI, minibatches": advi_minibatch,
    "GPBoost": gpboost,
    "HMCECS": hmcecs,
    f"{OURS}importance draws": importance,
    f"{OURS}coreset": coreset_draws,
    f"{OURS}one call": one_call,
}

#: The same model with other priors, again and again, by opponents that can do that.
REFITS: Mapping[str, Way] = {
    "NUTS, distinct rows": nuts_refits,
    "NUTS, all rows": nuts_refits,
    "Laplace + PSIS": laplace_refits,
}

_OTHERS: Mapping[str, Way] = {REFERENCE: reference, CORESET_REFITS: coreset_refits}


def way_called(name: str) -> Way:
    """Return a way; that of refits is called after its opponent, with ``refits of`` before it."""
    of = name.removeprefix("refits of ")
    return REFITS[of] if of != name else {**WAYS, **_OTHERS}[name]
