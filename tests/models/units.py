"""Units for tests: what the package makes of them, and the same integrals by sums over a grid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph import vectorize_graph
from scipy.special import logsumexp

from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import WRITTEN_MODE, numpy_function
from pymc_coresets.reading.observations import Observations, find_observations
from pymc_coresets.reading.units.integral import MOMENTS
from pymc_coresets.reading.units.nodes import Rule
from pymc_coresets.reading.units.observations_of_units import UnitModel, normal_moments
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import units_at
from pymc_coresets.rowlogp.units import chosen_units, unit_model
from pymc_coresets.rowlogp.verification import verify_rows
from pymc_coresets.rowlogp.verification_of_units import verify_units
from pymc_coresets.sampling.units.conditionals import Conditionals

__all__ = [
    "Shared",
    "around_the_mode",
    "by_grid",
    "chosen",
    "compared",
    "drawn",
    "loglik_of",
    "nodes_at",
    "read",
]

#: Values of the shared variables, on their own scale.
type Shared = Mapping[str, Any]


def read(model: pm.Model, *names: str) -> UnitModel:
    """Derive the units of a model whose variables `names` are integrated out."""
    return unit_model(model, names, {})


def compared(model: pm.Model, *names: str) -> UnitModel:
    """Do the same, and compare rows and units with PyMC."""
    rng, rows = np.random.default_rng(1), find_observations(model, allow_local=True)
    verify_rows(LogLikelihood(rows), rng=rng)
    units = unit_model(model, names, {}, rows)
    verify_units(units, rng=rng)
    return units


def chosen(model: pm.Model, asked: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the variables that are integrated out, by themselves or where they are asked for."""
    return chosen_units(find_observations(model, allow_local=True), asked)[0]


def drawn(units: Observations, seed: int = 2, **shared: np.ndarray) -> np.ndarray:
    """Draw the variables of all units given draws of the shared ones."""
    loglik = LogLikelihood(units)
    conditionals = Conditionals(loglik, Draws(shared))
    found = conditionals.drawn(loglik.in_memory.all, np.random.default_rng(seed))
    assert found.enough.all()
    return found.values


def nodes_at(
    units: UnitModel, rule: int | Rule, at: Sequence[float] | None = None, n_modes: int = 1
) -> Observations:
    """Place nodes for shared variables at a vector of unconstrained values, by default zeros.

    By a rule, or Gauss's of a degree.
    """
    n_shared = units.observations_at_zero.space.n_dims
    start = [0.0] * n_shared if at is None else list(at)
    rule = Rule(rule) if isinstance(rule, int) else rule
    settings = {"names": list(units.factor.names), "rule": list(rule), "n_modes": n_modes}
    return units_at(units, settings | {"at": start, "node_error": 0.0})


def around_the_mode(units: Observations) -> Observations:
    """Return the same with nodes by mode and curvature alone, not by moments."""
    rows = [
        replace(row, values=normal_moments(*row.values.shape[:2])) if row.name == MOMENTS else row
        for row in units.rows
    ]
    return replace(units, rows=tuple(rows))


def loglik_of(units: Observations) -> Callable[[Shared | np.ndarray], np.ndarray]:
    """Return the log-likelihoods of all units, (n_units,), as a function of the shared variables.

    By NumPy, so that nothing is compiled.
    """
    inputs = [*units.parameters.values(), *(row.placeholder for row in units.inputs), units.n_rows]
    function = numpy_function(inputs, [units.loglik])
    arrays = [row.values for row in units.inputs]

    def evaluate(shared: Shared | np.ndarray) -> np.ndarray:
        if isinstance(shared, np.ndarray):  # unconstrained
            shared = {n: v[0] for n, v in units.space.constrain(shared[None]).values.items()}
        given = [np.asarray(shared[name]).astype(v.dtype) for name, v in units.parameters.items()]
        [values] = function(*given, *arrays, units.n_obs)
        return values

    return evaluate


def by_grid(
    units: Observations,
    x: np.ndarray,
    *,
    half: float = 18.0,
    step: float = 0.05,
    values: np.ndarray | None = None,
) -> np.ndarray:
    """Integrate PyMC's own densities over a grid of the variables of each unit, (n_units,).

    Sums over a grid are exact for what is smooth over a step, and small beyond the grid.

    Parameters
    ----------
    units : Observations
    x : ndarray of shape (D,)
        The shared variables, unconstrained.
    half, step : float
        Of the grid along each axis, on the unconstrained scale of the variables.
    values : ndarray of shape (n_values, q), optional
        All values of discrete variables, which are summed instead.
    """
    factor, model = units.source.factor, units.source.rows.snapshot.whole
    axis = np.arange(-half, half + step / 2, step)
    grid = np.array(list(product(axis, repeat=factor.n_dims))) if values is None else values
    own = {}
    for part in factor.parts:
        places = grid[:, part.columns].reshape(len(grid), 1, *part.shape)
        every = np.repeat(places, factor.n_levels, axis=1)
        value = model.rvs_to_values[model[part.name]]
        own[value] = np.moveaxis(every, 1, 1 + part.axis).astype(value.dtype)
    terms = model.logp(vars=[model[t.name] for t in units.terms], sum=False)
    priors = model.logp(vars=[model[name] for name in factor.names], sum=False)
    inputs = {v: pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in own}
    known = {v.name: v for v in model.value_vars if v not in own}
    graphs = vectorize_graph(
        [pt.as_tensor(t, allow_xtensor_conversion=True) for t in [*terms, *priors]], inputs
    )
    function = pytensor.function(
        [*known.values(), *inputs.values()], graphs, mode=WRITTEN_MODE, on_unused_input="ignore"
    )
    shared = units.space.point(x)
    found = function(*(shared[name] for name in known), *own.values())
    at_levels = np.zeros((len(grid), factor.n_levels))
    for of_term in found[: len(terms)]:
        n_obs = len(factor.level_of_row)
        each = of_term.reshape(len(grid), n_obs, -1).sum(axis=2)
        for level in range(factor.n_levels):
            at_levels[:, level] += each[:, factor.level_of_row == level].sum(axis=1)
    for prior, part in zip(found[len(terms) :], factor.parts, strict=True):
        every = np.broadcast_to(prior, (len(grid), *prior.shape[1:]))
        each = np.moveaxis(every, 1 + part.axis, 1)
        at_levels += each.reshape(len(grid), factor.n_levels, -1).sum(axis=2)
    at_levels[np.isnan(at_levels)] = -np.inf  # infinite rates
    integrals = logsumexp(at_levels, axis=0)
    if values is None:
        integrals += factor.n_dims * np.log(step)
    return integrals[units.source.levels]
