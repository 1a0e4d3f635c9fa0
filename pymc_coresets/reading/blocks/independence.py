"""Check numerically that levels are independent, as the graph says."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pytensor.graph import Variable, clone_replace

from pymc_coresets.compat.pymc_api import ParameterValueError
from pymc_coresets.reading.blocks.parting import Parting
from pymc_coresets.reading.folding import numpy_function, plain_mode
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rows.values import Rows

_N_SPLITS = 4  # each separates any two levels with a probability of 1/2
_HALF = 0.5
_MAX_ROWS = 200
_SPREADS = (0.5, 0.05)  # on the unconstrained scale
_TOLERANCE = 1e-8


def dependence_between(
    columns: Sequence[NDArray[np.int64]],
    parting: Parting,
    block_of: Callable[[Rows], NDArray[np.int64]],
) -> str | None:
    """Look for rows that depend on other levels, and for terms of the prior that depend on several.

    Half of the levels take their coordinates from another random point.  The potentials of the rows
    of all other levels must stay what they are, so that their derivatives are zero; and a term T
    of the prior must change by as much as it does where the other half does:
    ``T(a, b) + T(b, a) = T(a, a) + T(b, b)``, so that its mixed derivatives are zero.

    Parameters
    ----------
    columns : sequence of ndarray of int64
        For each level the positions of its coordinates in the unconstrained vector.
    parting : Parting
    block_of : callable
        Returns the level of each of some rows.

    Returns
    -------
    str or None
        What depends on other levels; None if nothing does.

    Examples
    --------
    Of a random walk, two halves are no levels:

    >>> import pymc as pm
    >>> from pymc_coresets.reading.graphs import unconstrained_graphs
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     walk = pm.GaussianRandomWalk("walk", init_dist=pm.Normal.dist(), shape=4)
    ...     y = pm.Normal("y", walk[[0, 2, 2]], 1.0, observed=np.arange(3.0))
    >>> parting = Parting(find_observations(model), unconstrained_graphs(model, ["y"]))
    >>> columns = [np.array([0, 1]), np.array([2, 3])]
    >>> dependence_between(columns, parting, lambda rows: np.array([0, 1, 1]))
    "the density of 'walk' links levels. Please report this model."
    """
    rng = np.random.default_rng(1)  # any points do: the answer is the same
    rows = _some_rows(parting, rng)
    levels = block_of(rows)
    space = parting.observations.space
    evaluate = _evaluation(parting, rows, space)
    own = np.concatenate(columns)
    points = _two_points(space, own, evaluate, rng)
    if points is None:
        return (
            "the log-density is not finite near the model's initial point, where the independence "
            "of the levels was to be checked. Give a better one (initval=...)."
        )
    here, there = points
    start, end = evaluate(here), evaluate(there)
    scale = _TOLERANCE * (1.0 + start.magnitudes + end.magnitudes)
    for _ in range(_N_SPLITS):
        changed = rng.random(len(columns)) < _HALF
        swapped = own[np.repeat(changed, [len(c) for c in columns])]
        one, other = here.copy(), there.copy()
        one[swapped], other[swapped] = there[swapped], here[swapped]
        mixed, reverse = evaluate(one), evaluate(other)
        kept = ~changed[levels]
        if not np.allclose(mixed.rows[kept], start.rows[kept], rtol=_TOLERANCE, equal_nan=True):
            return "the log-likelihood of some row depends on two levels. Please report this model."
        off = np.abs(mixed.terms + reverse.terms - start.terms - end.terms) > scale
        if off.any():
            name = list(parting.graphs.terms)[int(np.argmax(off))]
            return f"the density of {name!r} links levels. Please report this model."
    return None


class _Values(NamedTuple):
    rows: NDArray[np.float64]  # potentials
    terms: NDArray[np.float64]  # sums of the entries of each term
    magnitudes: NDArray[np.float64]  # and of their absolute values


def _some_rows(parting: Parting, rng: np.random.Generator) -> Rows:
    obs = parting.observations
    size = min(obs.n_obs, _MAX_ROWS)
    positions = np.sort(rng.choice(obs.n_obs, size, replace=False))
    arrays = tuple(np.moveaxis(r.take(positions), r.axis, 0) for r in obs.rows)
    return Rows(positions, np.ones(size), arrays)


def _evaluation(
    parting: Parting, rows: Rows, space: Unconstrained
) -> Callable[[NDArray[np.float64]], _Values]:
    """Return a function of points in the unconstrained space, (D,)."""
    obs, graphs = parting.observations, parting.graphs
    free: dict[Variable, Variable] = {p: graphs.variables[n] for n, p in obs.parameters.items()}
    [loglik] = clone_replace([obs.loglik], free, rebuild_strict=False)
    inputs = [*graphs.inputs.values(), obs.n_rows, *(r.placeholder for r in obs.rows)]
    function = numpy_function(inputs, [loglik, *graphs.terms.values()], plain_mode("fast_compile"))
    given = [np.asarray(len(rows))]
    given += [np.moveaxis(a, 0, r.axis) for a, r in zip(rows.arrays, obs.rows, strict=True)]

    def evaluate(x: NDArray[np.float64]) -> _Values:
        point = space.point(x)
        values = [
            np.asarray(point[value.name], v.type.dtype)
            for value, v in zip(obs.model.value_vars, graphs.inputs.values(), strict=True)
        ]
        potentials, *terms = function(*values, *given)
        return _Values(
            np.broadcast_to(potentials, len(rows)),
            np.array([np.sum(t) for t in terms]),
            np.array([np.sum(np.abs(t)) for t in terms]),
        )

    return evaluate


def _two_points(
    space: Unconstrained,
    own: NDArray[np.int64],
    evaluate: Callable[[NDArray[np.float64]], _Values],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Draw two points that differ in the coordinates of levels, and have finite densities."""
    for spread in _SPREADS:
        steps = spread * rng.uniform(-1.0, 1.0, size=(2, space.n_dims))
        here, other = space.start + np.where(space.continuous, steps, 0.0)
        there = here.copy()
        there[own] = other[own]
        try:
            found = [evaluate(x).terms for x in (here, there)]
        except (ParameterValueError, np.linalg.LinAlgError):
            continue
        if np.isfinite(found).all():
            return here, there
    return None
