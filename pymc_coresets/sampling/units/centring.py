"""Where the nodes of units lie: at modes, for shared variables in the middle of the posterior."""

from dataclasses import replace
from functools import partial

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import SamplingError, UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.of_model import RowsToRead
from pymc_coresets.potentials.unit_models import (
    UnitSettings,
    chosen_units,
    may_have_units,
    unit_model,
)
from pymc_coresets.potentials.unit_modes import UnitModes
from pymc_coresets.potentials.verification import verify
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.reading.units.integral import CENTRE, FACTOR
from pymc_coresets.reading.units.nodes import Nodes, fewest_nodes, more_nodes
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.laplace import Guarded, LaplaceApproximation, descend
from pymc_coresets.sampling.sampler import CoresetSampler

_UNITS = 1_000  # whose posterior says where the middle of that of all is
_ROUNDS = 8
_STEPS = 100  # of a climb, after which nodes move
_GAINED = 0.5  # nats of the sample: less is no other place
_SHARE = 0.1  # of the tolerance, that the error of nodes may be
_DRAWS = 100  # that say what more nodes change


def centred(units: UnitModel, *, enough: float, key: int) -> LogLikelihood:
    """Find where the nodes of units lie, and how many of them there have to be.

    Parameters
    ----------
    units : UnitModel
    enough : float
        Error of the nodes, in nats, that is small enough.
    key : int
        Of the sample of units whose posterior is climbed.

    Returns
    -------
    LogLikelihood
        Whose units have a `node_error`, the variance, over the posterior, of the difference of all
        potentials together from those by twice as many nodes along each axis.

    Raises
    ------
    SamplingError
        If the posterior of the sample has no mode.
    UnsupportedModelError
        If levels have too many values, or nodes are off by more than the tolerance.

    Notes
    -----
    The shared variables climb the posterior of a sample of units by nodes around modes at the last
    point, which then move, until that gains no more.  Nodes follow the shared variables anyway, so
    that they need to be in the middle of the posterior of all only roughly.  Gradients are those at
    nodes that stay: where nodes are too few, they are not quite those of the density, of which a
    search may then find no mode; so it begins again with more.
    """
    n_dims = units.factor.n_dims
    n_each = fewest_nodes(n_dims)
    if n_each is None:
        raise UnsupportedModelError(
            f"{list(units.factor.names)!r} have {n_dims} values for each level: too many to be "
            "integrated out by nodes. Keep them as parameters (integrate=False)."
        )
    while True:
        try:
            return _centred(units, n_each, enough, key)
        except SamplingError:
            more = more_nodes(n_each, n_dims)
            if more is None:
                raise
            n_each = more


def _centred(units: UnitModel, n_each: int, enough: float, key: int) -> LogLikelihood:
    """Do the same with at least so many nodes."""
    n_dims = units.factor.n_dims
    modes, first = UnitModes(units), units.observations_at_zero
    loglik, space = _by_nodes(units, first, n_each), first.space
    sampler = CoresetSampler(loglik)
    scan = sampler.scan(min(_UNITS, loglik.n_rows), key=key, distinct=True)
    some, x = scan.rows, space.start
    enough_gained = _GAINED * loglik.total_weight / len(some)
    for _ in range(_ROUNDS):
        some = modes.at(_point(space, x), some)
        guarded = Guarded(partial(_negative, sampler.posterior_of(some, scan.weights)))
        start = guarded(x)[0]
        descend(guarded, x, most_steps=_STEPS)
        if guarded.x is None:
            break
        x, gained = guarded.x, start - guarded(guarded.x)[0]
        if gained < enough_gained:
            break
    some = modes.at(_point(space, x), some)
    around = LaplaceApproximation.of(sampler.posterior_of(some, scan.weights), x)
    draws = around.draw(_DRAWS, rng=np.random.default_rng(key))
    sums, error = loglik.weighted_sum(draws, some, scan.weights), np.inf
    while not error <= enough and (more := more_nodes(n_each, n_dims)) is not None:
        by_more = _by_nodes(units, first, more)
        sums_of_more = by_more.weighted_sum(draws, some, scan.weights)
        error = float(np.var(sums_of_more - sums))
        if not error <= enough:
            loglik, n_each, sums = by_more, more, sums_of_more
    compared = np.isfinite(error) or n_each != fewest_nodes(n_dims)
    if compared and not error <= enough / _SHARE:
        raise UnsupportedModelError(
            f"Nodes do not integrate {list(units.factor.names)!r} out: with {n_each} along each "
            f"axis the log-density is off by {error**0.5:.2g} nats. Levels may have several modes. "
            "Keep these variables as parameters (integrate=False)."
        )
    every = modes.at(_point(space, around.mode), loglik.in_memory.all)
    return loglik.of_same_form(
        units.moved(loglik.observations, *_places(first, every), at=around.mode, node_error=error)
    )


def integrated_out(
    model: pm.Model, wanted: RowsToRead, *, tolerance: float, rng: np.random.Generator, key: int
) -> tuple[LogLikelihood, RowsToRead] | None:
    """Return the potentials of units, and how to derive them again; None where rows are as good.

    Parameters
    ----------
    model : pm.Model
    wanted : RowsToRead
        Whose `integrate` says what the user wants.
    tolerance : float
        In nats; nodes may use up a tenth of it.
    rng : numpy.random.Generator
        Of the points at which the rows are compared with PyMC.
    key : int
        See `centred`.

    Raises
    ------
    UnsupportedModelError, SamplingError, InvalidOptionError
        If variables that the user named, or that have one value for each row, cannot be integrated
        out.
    """
    named = wanted.named
    if wanted.integrate is False or wanted.rows is not None or wanted.allow_local:
        return None
    if wanted.evaluated_by is not None or not (named or may_have_units(model)):
        return None
    rows = wanted.rows_of(model)
    names = chosen_units(rows, named)
    if names is None:
        return None
    verify(LogLikelihood(rows), rng=rng)
    must = named is not None or not set(names).isdisjoint(rows.local)
    try:
        units = unit_model(model, names, wanted.of_rows, rows)
        found = centred(units, enough=_SHARE * tolerance, key=key)
    except (UnsupportedModelError, SamplingError):
        if must:
            raise
        return None
    of_units = found.observations.units
    assert of_units is not None
    known = UnitSettings(names=list(names), n_each=of_units.n_each, at=of_units.at.tolist())
    return found, replace(wanted, integrate=known)


def _by_nodes(units: UnitModel, first: Observations, n_each: int) -> LogLikelihood:
    nodes = Nodes.of_axes(n_each, units.factor.n_dims)
    return LogLikelihood(units.observations(nodes, *_places(first)))


def _negative(space: Unconstrained, x: np.ndarray) -> tuple[float, np.ndarray]:
    value, slope = space.logp_and_gradient(x)
    return -value, -slope


def _places(observations: Observations, rows: Rows | None = None) -> list[np.ndarray]:
    """Return where the nodes of units are, and how wide these are there."""
    names = [row.name for row in observations.rows]
    arrays = [row.values for row in observations.rows] if rows is None else rows.arrays
    return [arrays[names.index(name)] for name in (CENTRE, FACTOR)]


def _point(space: Unconstrained, x: np.ndarray) -> dict[str, np.ndarray]:
    return {name: value[0] for name, value in space.constrain(x[None]).values.items()}
