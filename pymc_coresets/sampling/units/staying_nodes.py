"""A density near that of units, whose nodes stay where they are in the middle of the posterior."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from pymc_coresets.reading.units.integral import not_derived
from pymc_coresets.reading.units.nodes import Nodes, Rule
from pymc_coresets.reading.units.observations_of_units import UnitObservations, as_units
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.sampling.density import Surrogate

#: Degrees of nodes whose places are near enough for the gradients of trajectories.
_DEGREES = (5, 7, 9, 11)
#: Most of them, relative to those of the posterior: the places of these take longer than as many.
_MORE = 1.3


@dataclass(frozen=True, eq=False)
class StayingNodes:
    """Nodes of units that stay where they are at one theta: see `nodes_that_stay`.

    Parameters
    ----------
    posterior : Surrogate
    places : ndarray of shape (n_units, n_nodes, q)
    log_shares : ndarray of shape (n_units, n_nodes)
        What is added to the log-densities there.
    """

    posterior: Surrogate
    places: np.ndarray
    log_shares: np.ndarray

    def loglik(self, points: np.ndarray) -> np.ndarray:
        """Return the weighted log-likelihood of the units at points (n_points, n_dims).

        By the functions that found the places: none is compiled.
        """
        loglik, rows = self.posterior.loglikelihood, self.posterior.rows
        given = loglik.given(self.posterior.space.constrain(points))
        density = loglik.functions.unit_densities
        columns, arrays = np.ascontiguousarray(self.places.T), density.arrays(rows)
        found = np.empty(len(points))
        for s in range(len(points)):  # of one draw, arrays are smaller
            [at_nodes] = density.program.given(*(v[s : s + 1] for v in given))(
                *columns[:, None], *arrays
            )
            found[s] = logsumexp(at_nodes[0] + self.log_shares.T, axis=0) @ self.posterior.weights
        return found

    @property
    def density(self) -> Surrogate:
        """The density near the posterior, by compiled loops."""
        posterior = self.posterior
        own = as_units(posterior.loglikelihood.observations)
        arrays = not_derived(own.rows, posterior.rows.arrays)
        rows = replace(posterior.rows, arrays=(*arrays, self.places, self.log_shares))
        form = LogLikelihood(own.with_places(self.places, self.log_shares)).as_loops
        return replace(posterior, loglikelihood=form, rows=rows)


def nodes_that_stay(posterior: Surrogate, at: np.ndarray) -> Iterator[StayingNodes]:
    """Yield nodes for densities near a posterior, whose gradients take two thirds of the time.

    Or less: more than half of it is for the places of nodes, which the posterior's follow theta.
    These stay where they are at one theta: the integrals are exact but for the nodes' error, which
    grows with the distance from that theta.

    Parameters
    ----------
    posterior : Surrogate
        None are yielded if its rows are no units, or if their variables are discrete.
    at : ndarray of shape (n_dims,)
        In the middle of the posterior.

    Yields
    ------
    StayingNodes
        Those of few nodes first.
    """
    own = posterior.loglikelihood.observations
    if not isinstance(own, UnitObservations) or own.source.factor.values:
        return
    for degree in _DEGREES:
        nodes = Nodes.of_rule(Rule(degree), own.source.factor.n_dims)
        if len(nodes) * own.source.n_modes > _MORE * own.n_nodes:
            return
        yield StayingNodes(posterior, *_places(posterior, nodes, at))


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
