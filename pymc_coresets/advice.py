"""Warnings about the limits of a coreset, issued once, after its construction."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from pymc_coresets.diagnostics.importance import KHAT_USELESS
from pymc_coresets.diagnostics.judging import TOLERANCE, Certificate
from pymc_coresets.diagnostics.known_posterior import BETWEEN_MODES, has_several
from pymc_coresets.diagnostics.lines import NO_PROBES, Probes
from pymc_coresets.display import counted
from pymc_coresets.exceptions import warn_user
from pymc_coresets.methods.job import Method, rows_of_a_quadratic, tolerance_of
from pymc_coresets.methods.riemannian import RiemannianPursuit
from pymc_coresets.reading.observations import Observations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.density import Surrogate
from pymc_coresets.solving.solution import Solution, Status

FEW_PER_DIMENSION = 10  # observations: with fewer, a coreset hardly helps
_EARLY = {Status.INTERRUPTED, Status.SAMPLING_FAILED, Status.OUT_OF_TIME}


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """The result of a construction, before it becomes a `Coreset`.

    Parameters
    ----------
    solution : Solution
        The chosen rows, with the history of the method.
    observations : Observations
        Of the model.
    n_obs : int
        Number of rows that the coreset represents.
    size : int
        Largest number of weights that the method was allowed.
    tolerance : float, optional
        Requested divergence, in nats; without it, only a divergence above 1 nat causes a warning.
    counts : mapping of str to int
        Counts of the sampler.
    method : Method
        Method that chose the rows.
    probes : Probes
        Comparison of the posteriors beyond the coreset's draws.
    """

    solution: Solution
    observations: Observations
    n_obs: int
    size: int
    tolerance: float | None
    counts: Mapping[str, float]
    method: Method
    probes: Probes = NO_PROBES


def warn_of_limits(found: Outcome) -> None:
    """Warn of what limits a coreset, and say what to try."""
    for message in limitations(found):
        warn_user(message)


def limitations(found: Outcome) -> Iterator[str]:
    """Return warnings with remedies; none if nothing limits the coreset."""
    yield from _of_rows(found)
    solution, observations, counts = found.solution, found.observations, found.counts
    n_draws, n_divergences = counts.get("n_sampler_draws", 0), counts.get("n_divergences", 0)
    if n_divergences > 0.01 * n_draws:
        yield (
            f"{n_divergences} of {n_draws} draws of the coresets' posteriors diverged, so that the "
            "rows may have been chosen in the wrong places: reparametrise the model (for "
            "hierarchies, non-centred)."
        )
    if has_several(solution.modes):
        seen = solution.modes.listed
        every = seen.listed(range(seen.n_modes))
        yield f"The posterior has {seen.n_modes} modes: {every}. {BETWEEN_MODES}"
    if found.probes.most > (found.tolerance or TOLERANCE):
        yield (
            f"The posterior of all rows reaches further along {found.probes.where} than the "
            f"coreset's, by {found.probes.most:.2g} nats that no weights can mend. Allow a "
            "larger size, or give that variable a prior with lighter tails."
        )
    if not observations.integrated and found.n_obs < FEW_PER_DIMENSION * observations.n_dims:
        yield (
            f"The data are {counted(found.n_obs, 'observation')} for "
            f"{counted(observations.n_dims, 'free dimension')}, so few that a coreset hardly "
            "helps: sample the model itself."
        )
    if observations.local:
        yield (
            f"{', '.join(observations.local)} has one value per observation, all of which stay in "
            "the coreset's model: its cost still grows with the number of observations."
        )
    if observations.unselected:
        yield (
            f"The cost of {', '.join(observations.unselected)} grows with the number of "
            "observations, in the coreset's model too: the selection of rows stops there."
        )
    if observations.whole:
        yield (
            f"{', '.join(observations.whole)} stay in the coreset's model as they are, and every "
            "gradient costs as many rows. If they are a sum over rows, or have one value per row, "
            "name them with observed=[...] to have them summarised, or to see why they cannot be."
        )
    if solution.status in _EARLY:
        measured = "" if math.isfinite(solution.objective) else " How good it is was not measured."
        yield f"The construction ended early. {solution.status.value}{measured}"


def _of_rows(found: Outcome) -> Iterator[str]:
    """Warn of measured divergences that are too large."""
    solution, n_dims = found.solution, found.observations.n_dims
    # A coreset that is further away than a nat deserves a warning in any case.
    limit = 1.0 if found.tolerance is None else found.tolerance
    if solution.objective > limit and solution.status is Status.CORRECTABLE:
        yield (
            f"The coreset is about {solution.objective:.3g} nats (symmetrised KL divergence) from "
            f"the full posterior, because {found.n_obs:,} rows are few for "
            f"{counted(n_dims, 'free dimension')}. Importance weights correct that: use reweight() "
            "or importance_draws(), or allow a size or a tolerance of your own."
        )
    elif solution.objective > limit:
        yield (
            f"The coreset is about {solution.objective:.3g} nats (symmetrised KL divergence) from "
            f"the full posterior, and not within {limit:g}. {_remedy(found)} check() tells whether "
            "it is accurate enough."
        )
    elif solution.is_uninformative:
        yield (
            "The log-likelihood of all rows does not vary over the draws of the coreset's "
            "posterior: the data say nothing there, and no certificate does. The posterior may be "
            "improper, as that of separated classes with a flat prior: give all variables a proper "
            "one."
        )
    elif len(solution.rows) < n_dims and solution.quadratic is None:
        yield (
            f"With {counted(len(solution.rows), 'row')} for {n_dims} free dimensions, some "
            "directions are left to the prior alone, where the estimated divergence means little: "
            f"allow a size of {2 * n_dims} at least."
        )
    unmeasured = math.isnan(solution.objective) and solution.status not in _EARLY
    if found.tolerance is not None and unmeasured:
        yield (
            f"Whether the coreset is within {found.tolerance:g} nats of the full posterior was not "
            "measured, because its own could not be sampled, or because the log-likelihood of all "
            "rows is NaN or infinite at one of its draws: check() its draws."
        )


def with_informativeness(solution: Solution, loglik: LogLikelihood) -> Solution:
    """Note whether the log-likelihood varies over the draws at which a coreset was measured.

    Where it does not, nor do the log-ratios, as if the coreset were exact.

    Parameters
    ----------
    solution : Solution
    loglik : LogLikelihood
        Of all rows.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_coresets.reading.draws import Draws
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(3))
    >>> loglik, draws = LogLikelihood(find_observations(model)), Draws({"mu": np.arange(5.0)})
    >>> exact = Solution.sampled(loglik.all_rows, np.ones(3))
    >>> exact = replace(exact, log_ratios=np.zeros(5), draws=draws)
    >>> with_informativeness(exact, loglik).is_uninformative
    False
    """
    if solution.log_ratios is None or np.ptp(solution.log_ratios):
        return solution
    weighted = Surrogate(loglik, solution.rows, solution.weights, solution.quadratic)
    return replace(solution, is_uninformative=not np.ptp(weighted.loglik(solution.draws)))


def certificate_of(
    solution: Solution, tolerance: float | None = None, *, node_error: float = 0.0
) -> Certificate | None:
    """Return what fresh draws say of a coreset; None if they were not made, or say nothing.

    Parameters
    ----------
    solution : Solution
    tolerance : float, optional
        What the method was asked for, in nats.
    node_error : float
        See `Certificate`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.rows.values import Rows
    >>> certificate_of(Solution.sampled(Rows(np.array([4]), np.ones(1)), np.array([10.0])))
    """
    if solution.certificate is None or solution.is_uninformative:
        return None
    found: Certificate = replace(solution.certificate, node_error=node_error)
    if tolerance is not None:
        found = replace(found, tolerance=tolerance)
    if solution.modes is None:
        return found
    return replace(found, modes=solution.modes.seen_by(solution.draws.values))


def decided_by(
    solution: Solution, tolerance: float | None = None, *, node_error: float = 0.0
) -> dict[str, Any]:
    """Return the fields of a coreset that the method which chose its rows has decided.

    Parameters
    ----------
    solution : Solution
    tolerance : float, optional
        What the method was asked for, in nats.
    node_error : float
        See `Certificate`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_coresets.rows.values import Rows
    >>> found = decided_by(Solution.sampled(Rows(np.array([4]), np.ones(1)), np.array([10.0])))
    >>> found["indices"], found["certificate"]
    (array([4]), None)
    """
    return {
        "indices": solution.rows.positions,
        "weights": solution.weights,
        "status": solution.status.value,
        "objective": solution.objective,
        "proposal": solution.proposal,
        "certificate": certificate_of(solution, tolerance, node_error=node_error),
        "modes": solution.modes,
        "quadratic": solution.quadratic,
    }


def wanted_tolerance(method: Method, *, asked: bool) -> float | None:
    """Return the divergence in nats above which to warn, or None if no tolerance was asked for.

    Parameters
    ----------
    method : Method
    asked : bool
        Whether the method's tolerance, if it has one, sets the size or was asked for.

    Examples
    --------
    >>> from pymc_coresets import RiemannianPursuit
    >>> wanted_tolerance(RiemannianPursuit(tolerance=0.1), asked=False)
    0.1
    """
    tolerance = tolerance_of(method)
    return tolerance if asked or tolerance != _default("tolerance", method) else None


def _default(name: str, options: object) -> object:
    """Return the default of a field; None if it is no dataclass with that."""
    found = fields(options) if is_dataclass(options) else ()
    return next((field.default for field in found if field.name == name), None)


def _remedy(found: Outcome) -> str:
    """Return remedies, including re-weighting unless a few draws would carry all the weight."""
    judged: Certificate | None = found.solution.certificate
    # Of log-ratios that are normal, with a variance of 3, a twentieth of the draws counts.
    serve = judged.pareto_khat < KHAT_USELESS if judged else found.solution.objective < 3.0
    words = _other_remedy(found)
    return f"{words}, or reweight the coreset's draws;" if serve else f"{words}."


def _other_remedy(found: Outcome) -> str:
    solution, method, n_dims = found.solution, found.method, found.observations.n_dims
    if solution.status is Status.OUT_OF_TIME:
        return "Allow a longer time_budget"
    larger = f"a larger size than {found.size}"
    if solution.quadratic is not None:
        return f"Use method='control_variates' and {larger}"
    is_full, needed = len(solution.rows) == found.size, rows_of_a_quadratic(n_dims)
    if needed > 0.5 * found.n_obs:  # more rows than that save nothing
        return (
            f"With {counted(n_dims, 'free dimension')}, log-likelihoods may vary in {needed} "
            f"directions, and {found.n_obs} observations are few beside that: a coreset hardly "
            "helps. Sample the model itself"
        )
    if found.size < needed and is_full:
        return (
            f"A quadratic log-posterior in {counted(n_dims, 'dimension')} takes up to "
            f"{needed} rows: allow {larger}"
        )
    if not isinstance(method, RiemannianPursuit):
        way = f"Allow {larger}, or use" if is_full else "Use"
        return f"{way} method='auto'"
    return f"Allow {f'{larger}, ' if is_full else ''}more draws (RiemannianPursuit(draws=...))"
