"""A density near that of units, whose nodes stay where they are in the middle of the posterior."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pymc_coresets.reading.units.integral import not_derived
from pymc_coresets.reading.units.nodes import Nodes, Rule
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.density import Surrogate

#: Degrees of nodes whose places are near enough for the gradients of trajectories.
_DEGREES = (5, 7, 9)


def with_staying_nodes(posterior: Surrogate, at: np.ndarray) -> Iterator[Surrogate]:
    """Yield densities near a posterior, whose gradients take a third of the time or less.

    Most of that time is for the places of nodes, which the posterior's follow theta.  These stay
    where they are at one theta: the integrals are exact but for the nodes' error, which grows with
    the distance from that theta.

    Parameters
    ----------
    posterior : Surrogate
        None are yielded if its rows are no units, or if their variables are discrete.
    at : ndarray of shape (n_dims,)
        In the middle of the posterior.
    """
    own = posterior.loglikelihood.observations
    if not isinstance(own, UnitObservations) or own.source.factor.values:
        return
    form: LogLikelihood | None = None
    for degree in _DEGREES:
        rule = Rule(degree)
        if rule.degree >= own.rule.degree:
            return
        places, log_shares = _places(posterior, Nodes.of_rule(rule, own.source.factor.n_dims), at)
        arrays = (*not_derived(own.rows, posterior.rows.arrays), places, log_shares)
        rows = replace(posterior.rows, arrays=arrays)
        if form is None:
            form = LogLikelihood(own.with_places(places, log_shares)).as_loops
        yield replace(posterior, loglikelihood=form, rows=rows)


def _places(posterior: Surrogate, nodes: Nodes, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where nodes are at a point, (n_units, n_nodes, q), and what is added there."""
    loglik, rows = posterior.loglikelihood, posterior.rows
    draws = posterior.space.constrain(at[None])
    functions, given = loglik.functions, loglik.given(draws)
    kernel, density = functions.unit_places, functions.unit_densities
    x = np.broadcast_to(
        nodes.points[None, :, None], (1, len(nodes), len(rows), nodes.points.shape[1])
    )
    z, logs = kernel.program.given(*given)(np.ascontiguousarray(x), *kernel.arrays(rows))
    [alone] = density.program.given(*given)(*np.moveaxis(z, 1, 0), *density.arrays(rows))
    n_modes = logs.shape[1] // len(nodes)
    with np.errstate(invalid="ignore"):
        shares = (logs - alone)[0] + np.tile(nodes.log_weights, n_modes)[:, None]
    shares = np.where(np.isnan(shares), -np.inf, shares)
    return np.ascontiguousarray(np.moveaxis(z[0], 0, -1).swapaxes(0, 1)), shares.T.copy()
