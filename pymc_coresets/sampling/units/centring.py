"""Nodes of units: placed at modes, with shared variables in the middle of the posterior."""

import logging
import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pymc as pm

from pymc_coresets.exceptions import SamplingError, UnsupportedModelError
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.of_model import RowsToRead
from pymc_coresets.potentials.units import (
    UnitModes,
    UnitSettings,
    chosen_units,
    may_have_units,
    unit_model,
)
from pymc_coresets.potentials.verification import verify
from pymc_coresets.reading.units.nodes import degree_to_judge_by, first_degree, higher_degree
from pymc_coresets.reading.units.observations_of_units import UnitModel
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.climbing import descend, negative_of
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.sampler import CoresetSampler

_log = logging.getLogger(__name__)


def centred(units: UnitModel, *, enough: float, key: int) -> LogLikelihood:
    """Find the positions of the nodes of units, and their number.

    Parameters
    ----------
    units : UnitModel
    enough : float
        Acceptable error of the nodes, in nats.
    key : int
        Key of the sample of units used for the search.

    Returns
    -------
    LogLikelihood
        Its units have a `node_error`: the variance, over a slightly wider posterior, of the
        difference of the summed potentials from those with many more nodes.

    Raises
    ------
    SamplingError
        If the posterior of the sample has no mode.

    Notes
    -----
    Alternates between maximising the posterior of a sample of units over the shared variables, with
    nodes around modes at the last point, and moving the nodes, until there is no more gain.  Nodes
    follow the shared variables anyway, so the middle of the posterior is needed only roughly.
    """
    n_dims, n_members = units.factor.n_dims, units.rows.n_obs / len(units.levels)
    degree = first_degree(n_dims, n_members)
    if units.factor.values:  # their sum is exact
        x = units.observations_at_zero.space.start
        found = units.observations(units.nodes(0), *units.start, at=x, node_error=0.0)
        return LogLikelihood(found)
    if degree is None:
        raise UnsupportedModelError(
            f"{list(units.factor.names)!r} have {n_dims} values for each level: too many to be "
            "integrated out (six at most). Keep them as parameters (integrate=False)."
        )
    sample = _Sample.of(units, key)
    judge, x = sample.by_nodes(degree_to_judge_by(n_dims)), sample.start
    while True:
        loglik = sample.by_nodes(degree)
        try:
            around, rows = sample.middle(loglik, x)
        except SamplingError:  # values and gradients by few nodes may have other modes
            more = higher_degree(degree, n_dims)
            if more is None:
                raise
        else:
            x, error = around.location, sample.error(around, rows, loglik, judge)
            if error <= enough:
                return sample.all_around(x, loglik, error)
            # With the next degree the error falls to a tenth, at best.
            more = higher_degree(degree, n_dims, math.ceil(math.log10(error / enough)))
            if more is None:
                raise UnsupportedModelError(
                    f"The error of nodes of degree {degree} for {list(units.factor.names)!r} is "
                    f"{error:.2g} nats, more than {enough:.2g}: keep them as parameters "
                    "(integrate=False)."
                )
        degree = more


@dataclass(frozen=True, eq=False)
class _Sample:
    """A sample of units, whose posterior locates the middle of that of all units."""

    units: UnitModel
    modes: UnitModes
    form: LogLikelihood  # compiled once for potentials by any nodes
    rows: Rows
    weights: np.ndarray
    total: float  # weight of all units

    @classmethod
    def of(cls, units: UnitModel, key: int) -> Self:
        every = LogLikelihood(units.observations_at_zero)
        n_members = units.rows.n_obs / every.n_rows
        # Enough to locate the middle of the posterior: units of about 20,000 rows.
        size = int(np.clip(20_000 / n_members, 50, 1_000))
        scan = every.source.scan(min(size, every.n_rows), key=key, distinct=True)
        every.prepare()
        return cls(units, UnitModes(units), every, scan.rows, scan.weights, every.total_weight)

    @property
    def start(self) -> np.ndarray:
        """Initial values of the shared variables."""
        x: np.ndarray = self.units.observations_at_zero.space.start
        return x

    def by_nodes(self, degree: int) -> LogLikelihood:
        """Return the potentials by nodes of a degree."""
        nodes = self.units.nodes(degree)
        return self.form.of_same_form(self.units.observations(nodes, *self.units.start))

    def middle(self, loglik: LogLikelihood, x: np.ndarray) -> tuple[Normal, Rows]:
        """Maximise from unconstrained values of the shared variables, with nodes that follow.

        Returns the posterior of the sample, and its units, with nodes around their modes there.
        """
        sampler, space = CoresetSampler(loglik), loglik.observations.space
        # Half a nat of the sample: a smaller gain is not another position.
        enough, some = self.total / len(self.rows) / 2, _by_nodes_of(loglik, self.rows)
        for _ in range(8):
            rows = self.modes.at(space.constrain(x[None]).at(0), some)
            guarded = negative_of(sampler.posterior_of(rows, self.weights))
            start = guarded(x)[0]
            descend(guarded, x, most_steps=100)
            if guarded.x is None:
                break
            x, gained = guarded.x, start - guarded(guarded.x)[0]
            if gained < enough:
                break
        rows = self.modes.at(space.constrain(x[None]).at(0), some)
        return laplace(sampler.posterior_of(rows, self.weights), x), rows

    def error(
        self, around: Normal, rows: Rows, loglik: LogLikelihood, judge: LogLikelihood
    ) -> float:
        """Return the variance of the difference from other nodes, over a wider posterior."""
        z = 1.5 * np.random.default_rng(0).standard_normal((len(around.location), 50))
        draws = loglik.observations.space.constrain(around.at(z.T))
        few, many = (
            p.weighted_sum(draws, _by_nodes_of(p, rows), self.weights) for p in (loglik, judge)
        )
        return float(np.var(many - few))

    def all_around(self, x: np.ndarray, loglik: LogLikelihood, error: float) -> LogLikelihood:
        """Return the potentials of all units by as many nodes, sharing compiled functions."""
        units = loglik.observations.units
        assert units is not None
        point = loglik.observations.space.constrain(x[None]).at(0)
        places = self.modes.places(self.modes.at(point, loglik.in_memory.all))
        nodes = self.units.nodes(units.degree)
        found = self.units.observations(nodes, *places, at=x, node_error=error)
        return loglik.of_same_form(found)


def _by_nodes_of(loglik: LogLikelihood, rows: Rows) -> Rows:
    """Return units that are integrated by the nodes of these potentials."""
    units, members = loglik.observations.units, rows.members
    assert units is not None
    assert members is not None
    return replace(rows, members=replace(members, nodes=tuple(a.values for a in units.nodes)))


def integrated_out(
    model: pm.Model, wanted: RowsToRead, *, tolerance: float, rng: np.random.Generator, key: int
) -> tuple[LogLikelihood, RowsToRead] | None:
    """Return the potentials of units, and how to derive them again; None if rows are as good.

    Parameters
    ----------
    model : pm.Model
    wanted : RowsToRead
        Its `integrate` is the user's choice.
    tolerance : float
        In nats; nodes may use up a tenth of it.
    rng : numpy.random.Generator
        Source of the points at which the rows are compared with PyMC.
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
    if not (named or may_have_units(model)):
        return None
    rows = wanted.rows_of(model)
    names = chosen_units(rows, named)
    if names is None:
        return None
    verify(LogLikelihood(rows), rng=rng)
    must = named is not None or not set(names).isdisjoint(rows.local)
    try:
        units = unit_model(model, names, wanted.of_rows, rows)
        found = centred(units, enough=tolerance / 10, key=key)
    except (UnsupportedModelError, SamplingError) as error:
        if must:
            raise
        _log.warning("%s remain parameters, as they cannot be integrated out: %s", names, error)
        return None
    made = found.observations.units
    assert made is not None
    known = UnitSettings(
        names=list(names), degree=made.degree, at=made.at.tolist(), node_error=made.node_error
    )
    return found.collapsed(collapse=wanted.collapse), replace(wanted, integrate=known)
