"""Nodes of units: placed at modes, with shared variables in the middle of the posterior."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pymc as pm
from numpy.linalg import norm

from pymc_coresets.deadline import doing
from pymc_coresets.exceptions import SamplingError, UnsupportedModelError
from pymc_coresets.reading.units.factors import options_to_keep
from pymc_coresets.reading.units.nodes import (
    Nodes,
    Rule,
    first_degree,
    has_rules,
    higher_rules,
    lower_rules,
    rule_to_judge_by,
    rules_to_judge_first_by,
)
from pymc_coresets.reading.units.observations_of_units import UnitModel, as_units
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.functions import Functions
from pymc_coresets.rowlogp.of_model import RowsToRead
from pymc_coresets.rowlogp.unit_modes import MOST_MODES, UnitModes
from pymc_coresets.rowlogp.units import (
    UnitSettings,
    chosen_units,
    may_have_units,
    why_too_many,
)
from pymc_coresets.rowlogp.verification import verify_rows
from pymc_coresets.rowlogp.verification_of_units import verify_units
from pymc_coresets.rows.keyed import RowSample
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.curvature import laplace, moved, where_flat
from pymc_coresets.sampling.decisive_rows import rows_that_decide, with_rows
from pymc_coresets.sampling.density import Density
from pymc_coresets.sampling.maximisation.one_start import minimise_where_finite, negative_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.sampler import CoresetSampler

_log = logging.getLogger(__name__)

#: Units in which several modes are looked for along several axes, which takes longer.
_FOR_MODES = 200
#: Units in which rules of fewer nodes are compared with those that all others are judged by, and
#: the part of the acceptable error up to which these may differ.
_FOR_JUDGES, _ALIKE = 200, 0.1  # also the part by which gradients may differ and be alike
#: Units of several modes, of all units, by which the error of nodes is judged.
_MOST_OF_SEVERAL = 1_000
#: Degree along several axes up to which nodes are tried, if those of lower ones find no mode.
_HIGHEST_TO_FAIL = 21
#: Part of the acceptable error that fewer nodes may have than those that any search begins with:
#: units of many rows, and those of normal outcomes, have densities so close to normal.
_TO_SPARE = 1e-3
#: Part of the acceptable error that is better, if at most so many times the nodes have it: that of
#: gradients is larger, since they are those at nodes that stay, and checks of draws ask for these.
_BETTER, _MORE = 1e-2, 1.5
#: Standard deviations of the posterior by which its middle may move after errors are measured.
_NEAR = 0.3
#: Steps of Newton's to the middle by gradients of more nodes, which have the same curvature.
_STEPS = 3
#: Part of an integral that is less than any error.
_NEGLIGIBLE = 1e-9


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
        difference of the summed log-likelihoods from those with many more nodes.

    Raises
    ------
    SamplingError
        If the posterior of the sample has no mode.
    UnsupportedModelError
        If no nodes have an error as small as that.

    Notes
    -----
    Alternates between maximising the posterior of a sample of units over the shared variables, with
    nodes around modes at the last point, and moving the nodes, until there is no more gain.  Nodes
    follow the shared variables anyway, so the middle of the posterior is needed only roughly.
    """
    n_dims = units.factor.n_dims
    if units.factor.values:  # their sum is exact
        x = units.observations_at_zero.space.start
        found = units.observations(Rule(0), *units.start, at=x, node_error=0.0)
        return LogLikelihood(found)
    if not has_rules(n_dims):
        raise UnsupportedModelError(why_too_many(units.rows, units.factor.names, n_dims))
    sample = _Sample.of(units, key)
    known, x = _Nodes(Rule(first_degree(n_dims, units.factor.n_unit_rows))), sample.start
    chosen, judged = known, None
    while True:
        form, begun = sample.form(known.n_modes), x
        try:
            with doing(f"finding the middle of the posterior, {form.in_words(known.rule)}"):
                x = form.highest(known.rule, begun)
                around = form.middle(known.rule, x)
        except SamplingError as error:  # values and gradients by few nodes may have other modes
            better = None if sample.is_as_by_many(known, x) else sample.after_failure(known, begun)
            if better is None:
                raise SamplingError(
                    f"{list(units.factor.names)!r} cannot be integrated out: with "
                    f"{len(units.nodes(known.rule))} nodes for each level, the posterior of the "
                    "other variables has no mode. Keep them as parameters "
                    f"({units.options_to_keep})."
                ) from error
            known, judged, x = better, None, begun
            continue
        x = around.location
        # Errors are those at draws of a wider posterior: they are known for a middle nearby.
        if judged is None or np.abs(judged.whiten(x)).max() > _NEAR:
            with doing("choosing how many nodes are enough"):
                chosen, judged = sample.sufficient(known, around, enough), around
        if chosen.is_finer(known):  # mostly their middle is so near that no search is needed
            known, form = chosen, sample.form(chosen.n_modes)
            middle, length = moved(around, form.density(known.rule, x))
            if not length <= _NEAR:
                continue
            x = middle.location
        with doing(f"placing nodes in {len(units.levels):,} units"):
            placed, n_modes = form.all_placed(x)
        loglik = form.loglik_at(placed, x, chosen)
        completed = sample.completed(loglik, n_modes, x, around)
        if completed is None:
            return loglik
        sample, judged = completed, None


@dataclass(frozen=True)
class _Nodes:
    """Nodes around some modes of each unit, and their error in nats."""

    rule: Rule
    n_modes: int = 1
    error: float = np.nan

    def is_finer(self, other: Self) -> bool:
        """Whether they are of a higher degree, or around more modes."""
        return self.rule.degree > other.rule.degree or self.n_modes > other.n_modes


@dataclass(frozen=True, eq=False)
class _Form:
    """Log-likelihoods of units by nodes around a number of modes, which are compiled once."""

    units: UnitModel
    sample: RowSample

    @cached_property
    def loglik(self) -> LogLikelihood:
        """The log-likelihoods by one node."""
        return LogLikelihood(self.units.observations_at_zero)

    @property
    def modes(self) -> UnitModes:
        """Finds where nodes lie."""
        return self.loglik.functions.unit_modes

    def in_words(self, rule: Rule) -> str:
        """Return how many nodes and rows the sample has."""
        rows, units = self.sample.rows, self.units
        n_nodes = len(units.nodes(rule)) * units.n_modes
        return f"{n_nodes} nodes x {rows.n_unit_rows:,} rows of {len(rows):,} units"

    def by_nodes(self, rule: Rule) -> LogLikelihood:
        """Return the log-likelihoods by the nodes of a rule."""
        return self.loglik.of_same_form(self.units.observations(rule, *self.units.start))

    def placed(self, x: np.ndarray, rows: Rows) -> Rows:
        """Return units with nodes around their modes, given unconstrained shared variables.

        Around several modes there are no moments, which units around one of them have at the end.
        """
        n_arrays = len(self.loglik.observations.rows)
        return self.modes.at(self.point(x), replace(rows, arrays=rows.arrays[:n_arrays]))

    def point(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return shared variables on their own scale."""
        return self.units.observations_at_zero.space.constrain(x[None]).at(0)

    def highest(self, rule: Rule, x: np.ndarray) -> np.ndarray:
        """Maximise from unconstrained values of the shared variables; nodes follow.

        Nodes begin anew where the search ends: by then, some units may have a higher mode than the
        one that they began with.
        """
        loglik, weights = self.by_nodes(rule), self.sample.weights
        sampler = CoresetSampler(loglik)
        # Half a nat of the sample: a smaller gain is not another position.
        share = self.sample.rows.case_weights.sum() / weights.sum()
        enough, some = 0.5 / share, _by_nodes_of(loglik, self.sample.rows)
        for _ in range(8):
            some = self.placed(x, some)
            objective = negative_of(sampler.posterior(some, weights).density)
            start = objective(x)[0]
            minimise_where_finite(objective, x, most_steps=100)
            if not np.isfinite(objective.lowest):
                break
            x = objective.x
            if start - objective.lowest < enough:
                break
        return x

    def middle(self, rule: Rule, x: np.ndarray) -> Normal:
        """Return the posterior of the sample around a mode near some values."""
        density = self.density(rule, x)
        try:
            around = where_flat(density, x)
        except SamplingError:
            around = laplace(density, x)
        # Those for tails reach to where nothing is left of any integral.
        more = [r for r in higher_rules(rule, self.units.factor.n_dims) if not r.tails]
        for finer in more[2:3] * _STEPS:
            around, length = moved(around, self.density(finer, around.location))
            if length < _NEAR / 3:
                break
        return around

    def density(self, rule: Rule, x: np.ndarray) -> Density:
        """Return the posterior density of the sample, by nodes that lie where they do at x."""
        loglik = self.by_nodes(rule)
        some = self.placed(x, _by_nodes_of(loglik, self.sample.rows))
        return CoresetSampler(loglik).posterior(some, self.sample.weights).density

    def _placed_once(self, x: np.ndarray, group: RowSample) -> Rows:
        """Return the units of a group as `placed` does, which several rules have in common."""
        known = self._placed.get(id(group))
        if known is None or not np.array_equal(known[1], x):
            known = self._placed[id(group)] = group, x, self.placed(x, group.rows)
        return known[2]

    @cached_property
    def _placed(self) -> dict[int, tuple[RowSample, np.ndarray, Rows]]:
        """Groups by their identity, where they were placed last, and their units there."""
        return {}

    def sums(self, rule: Rule, around: Normal, group: RowSample) -> np.ndarray:
        """Return the sum of the log-likelihoods of all units at draws of a wider posterior."""
        z = 1.5 * np.random.default_rng(0).standard_normal((len(around.location), 50))
        loglik = self.by_nodes(rule)
        rows = _by_nodes_of(loglik, self._placed_once(around.location, group))
        draws = loglik.observations.space.constrain(around.at(z.T))
        return loglik.weighted_sum(draws, rows, group.weights)

    def all_placed(self, x: np.ndarray) -> tuple[Rows, np.ndarray]:
        """Return all units with nodes around their modes, and how many modes each has.

        Along several axes, more than one are looked for in a sample only.
        """
        rows = self.loglik.in_memory.all
        if self.units.factor.n_dims > 1:
            return self.placed(x, rows), np.ones(len(rows), dtype=np.int64)
        found = self.modes.every(self.point(x), rows)
        return self.modes.around(found, self.point(x), rows), found.number

    def loglik_at(self, placed: Rows, x: np.ndarray, chosen: _Nodes) -> LogLikelihood:
        """Return the log-likelihoods of all units, sharing compiled functions."""
        places = self.modes.places(placed)
        found = self.units.observations(chosen.rule, *places, at=x, node_error=chosen.error)
        return self.loglik.of_same_form(found)


class _Several(NamedTuple):
    """Units of several modes, of all units, by which nodes are judged besides; and where."""

    group: RowSample
    x: np.ndarray


@dataclass(frozen=True, eq=False)
class _Sample:
    """A sample of units, whose posterior locates the middle of that of all units.

    Nodes are judged by its units, apart for `judges`, if there are any, and by those of several
    modes.
    """

    single: _Form
    forms: dict[int, _Form]
    has_all: bool
    several: tuple[_Several, ...] = ()
    judges: tuple[RowSample, ...] = ()

    @classmethod
    def of(cls, units: UnitModel, key: int) -> Self:
        # Of equal units one is enough, with their number as its weight.
        every = LogLikelihood(units.observations_at_zero, collapse="auto")
        # Enough to locate the middle of the posterior: units of about 20,000 rows.
        size = min(int(np.clip(20_000 / units.factor.n_unit_rows, 50, 1_000)), every.n_rows)
        subsample = every.source.subsample(size, key=key, distinct=True)
        return cls(_Form(units, subsample), {}, size == every.n_rows)

    @property
    def start(self) -> np.ndarray:
        """Initial values of the shared variables."""
        x: np.ndarray = self.single.units.observations_at_zero.space.start
        return x

    def form(self, n_modes: int) -> _Form:
        """Return the log-likelihoods by nodes around as many modes."""
        if n_modes == 1:
            return self.single
        if n_modes not in self.forms:
            units = replace(self.single.units, n_modes=n_modes)
            self.forms[n_modes] = _Form(units, self.single.sample)
        return self.forms[n_modes]

    def sufficient(self, known: _Nodes, around: Normal, enough: float) -> _Nodes:
        """Return the nodes that are fewest, of those whose error is small enough.

        Fewer than those that a search begins with have to have hardly any.

        Raises
        ------
        UnsupportedModelError
            If there are none.
        """
        groups = [*(self.judges or [self.single.sample]), *(own.group for own in self.several)]
        judged = [self._judge(around, group, enough) for group in groups]
        most = max(n_modes for n_modes, _, _ in judged)

        def error(nodes: _Nodes) -> float:
            form = self.form(nodes.n_modes)
            parts = [
                np.std(many - form.sums(nodes.rule, around, group)) + doubt
                for group, (_, many, doubt) in zip(groups, judged, strict=True)
            ]
            return float(np.sum(parts)) ** 2

        least, tried, usable = np.inf, known, list[_Nodes]()
        first = first_degree(self.single.units.factor.n_dims)
        for nodes in self._options(known, most, around):
            if usable and self._number(nodes) > _MORE * self._number(usable[0]):
                break
            found, is_lower = error(nodes), nodes.rule.degree < min(first, known.rule.degree)
            if found <= enough * (_TO_SPARE if is_lower else _BETTER):
                return replace(nodes, error=found)
            if found <= enough and not is_lower:
                usable.append(replace(nodes, error=found))
            if not found >= least:
                least, tried = found, nodes
        if usable:
            return usable[0]
        names, units = list(self.single.units.factor.names), self.form(tried.n_modes).units
        several = f" Levels have up to {most} modes each." if most > 1 else ""
        raise UnsupportedModelError(
            f"{names!r} cannot be integrated out: the error of {len(units.nodes(tried.rule))} "
            f"nodes for each level is {least:.2g} nats, more than {enough:.2g}.{several} Keep them "
            f"as parameters ({units.options_to_keep})."
        )

    def is_as_by_many(self, known: _Nodes, x: np.ndarray) -> bool:
        """Whether the posterior rises where a search ended as it does by many nodes.

        These would lead as far, as they do where the scale of other variables goes to zero.
        """
        form, many = self.form(known.n_modes), rule_to_judge_by(self.single.units.factor.n_dims)
        slopes = [form.density(rule, x).logp_and_gradient(x)[1] for rule in (known.rule, many)]
        return bool(norm(slopes[0] - slopes[1]) <= _ALIKE * norm(slopes[1]))

    def after_failure(self, known: _Nodes, x: np.ndarray) -> _Nodes | None:
        """Return the next nodes by which a mode is looked for; None if that took too long.

        By too few nodes, values and gradients contradict each other.

        Parameters
        ----------
        known : _Nodes
            By which none was found.
        x : ndarray of shape (n_dims,)
            Where the search begins.
        """
        n_dims = self.single.units.factor.n_dims
        more = higher_rules(known.rule, n_dims)
        if n_dims > 1:
            found = [rule for rule in more[1:2] if rule.degree <= _HIGHEST_TO_FAIL]
        else:
            found = [rule for rule in more if rule.degree > 2 * known.rule.degree]
        if not found:
            return None
        better = replace(known, rule=found[0])
        # Gradients far out in tails, where nothing is left of any integral, may be infinite.
        return _trimmed(better, *self._reach(x)) if better.rule.tails else better

    def _options(self, known: _Nodes, most: int, around: Normal) -> list[_Nodes]:
        """Return known nodes, and fewer and more, those of few nodes first."""
        units = self.single.units
        rules = [known.rule, *higher_rules(known.rule, units.factor.n_dims)]
        numbers = sorted({known.n_modes, max(known.n_modes, most)})
        every = [_Nodes(rule, n) for n in numbers for rule in rules]
        every += [_Nodes(rule, known.n_modes) for rule in lower_rules(known.rule)]
        if units.factor.n_dims == 1:
            reach = self._reach(around.location)
            every = [
                nodes if nodes.rule == known.rule else _trimmed(nodes, *reach) for nodes in every
            ]
        return sorted(every, key=self._number)

    def _number(self, nodes: _Nodes) -> int:
        """Return how many nodes each unit has."""
        return len(self.single.units.nodes(nodes.rule)) * nodes.n_modes

    def _judge(
        self, around: Normal, group: RowSample, enough: float
    ) -> tuple[int, np.ndarray, float]:
        """Return how many modes units of a group have, and sums by nodes of hardly an error.

        The last number is the standard deviation of that error, in nats.
        """
        single = self.single
        n_dims, some = single.units.factor.n_dims, group.rows
        if n_dims > 1:  # takes longer
            some = some.take(slice(0, _FOR_MODES))
        number = int(single.modes.every(single.point(around.location), some).number.max())
        if number > MOST_MODES:
            raise UnsupportedModelError(
                f"{list(single.units.factor.names)!r} cannot be integrated out: levels have "
                f"{number} modes and more, and {MOST_MODES} at most can have nodes. Keep them as "
                f"parameters ({single.units.options_to_keep}), or give them priors that allow "
                "fewer."
            )
        form, rule = self.form(number), rule_to_judge_by(n_dims)
        part, first = group.part(_FOR_JUDGES), rules_to_judge_first_by(n_dims)
        if first and len(part.weights) < len(group.weights):
            exact = form.sums(rule, around, part)
            for fewer in first:
                doubt = float(np.std(exact - form.sums(fewer, around, part)))
                if doubt**2 <= _ALIKE * enough:
                    return number, form.sums(fewer, around, group), doubt
        return number, form.sums(rule, around, group), 0.0

    def lacks(self, n_modes: np.ndarray, around: Normal) -> bool:
        """Whether units have several modes by which nodes have not been judged.

        Parameters
        ----------
        n_modes : ndarray of shape (n_units,)
            How many each unit has in the middle of the posterior.
        around : Normal
            The posterior of the sample.
        """
        if self.has_all or n_modes.max() == 1:
            return False
        return all(np.abs(around.whiten(own.x)).max() > _NEAR for own in self.several)

    def with_several_modes(self, n_modes: np.ndarray, x: np.ndarray) -> Self:
        """Judge by units of several modes besides: see `lacks`; x is where they have these."""
        every = self.single.loglik.in_memory.all
        found, masses = np.flatnonzero(n_modes > 1), every.case_weights
        some = found[:: -(-len(found) // _MOST_OF_SEVERAL)]
        share = masses[some].sum() / masses[found].sum()
        group = RowSample(rows=every.take(some), weights=masses[some] / share)
        return replace(self, several=(_Several(group, x),))

    def completed(
        self, loglik: LogLikelihood, n_modes: np.ndarray, x: np.ndarray, around: Normal
    ) -> Self | None:
        """Return the sample with units that it needs besides; None if it has all.

        Parameters
        ----------
        loglik : LogLikelihood
            Of all units, with nodes at x.
        n_modes, x, around
            See `lacks` and `with_several_modes`.
        """
        decisive = self.decisive(loglik, around)
        if len(decisive):
            return self.with_decisive(decisive)
        return self.with_several_modes(n_modes, x) if self.lacks(n_modes, around) else None

    def decisive(self, loglik: LogLikelihood, around: Normal) -> Rows:
        """Return units that the sample needs besides: see `rows_that_decide`.

        None of those that it has already.  Those of few rows first, which are the least normal,
        until they have as many as the sample.

        Parameters
        ----------
        loglik : LogLikelihood
            Of all units.
        around : Normal
            The posterior of the sample.
        """
        every, sample = loglik.in_memory.all, self.single.sample.rows
        if self.has_all or self.judges:
            return every.take(slice(0, 0))
        found = rows_that_decide(loglik, around, len(sample))
        sizes = np.array([one.n_unit_rows for one in found.blocks(1)])
        order = np.argsort(sizes, kind="stable")
        some = order[np.cumsum(sizes[order]) <= sample.n_unit_rows]
        return found.take(np.sort(some))

    def with_decisive(self, decisive: Rows) -> Self:
        """Add units to the sample, each of which stands for itself, and judge by these apart.

        Parameters
        ----------
        decisive : Rows
            Of all units, with nodes.
        """
        form, sample = self.single, self.single.sample
        units = form.loglik.in_memory.all
        own = units.take(units.where(decisive.positions))
        whole = with_rows(sample, own)
        others = np.flatnonzero(~np.isin(sample.rows.positions, own.positions))
        common = RowSample(rows=sample.rows.take(others), weights=sample.weights[others])
        single = _Form(form.units, whole)
        judges = (common, RowSample(rows=own, weights=own.case_weights))
        return replace(self, single=single, forms={}, judges=judges)

    def _reach(self, x: np.ndarray) -> tuple[float, float]:
        """Return the range of the nodes along one axis that add anything to any integral."""
        single = self.single
        nodes = single.units.nodes(rule_to_judge_by(1))
        point = single.point(x)
        parts = single.modes.parts_of_nodes(point, single.sample.rows, nodes).max(axis=0)
        counts = nodes.points[parts > _NEGLIGIBLE, 0]
        return float(counts.min()), float(counts.max())


def _trimmed(nodes: _Nodes, lowest: float, highest: float) -> _Nodes:
    """Leave out nodes for tails that add nothing to any integral, with two to spare."""
    if not nodes.rule.tails:
        return nodes
    x = Nodes.of_rule(Rule(nodes.rule.degree, tails=True), 1).points[:, 0]
    first, last = np.searchsorted(x, [lowest, highest]) + np.array([-2, 2])
    kept = nodes.rule._replace(first=max(int(first), 0), last=min(int(last), len(x)))
    return replace(nodes, rule=kept)


def _by_nodes_of(loglik: LogLikelihood, rows: Rows) -> Rows:
    """Return units that are integrated by the nodes of these log-likelihoods."""
    return replace(
        rows, unit_rows=replace(rows.unit_rows, nodes=loglik.observations.unit_rows.nodes)
    )


def integrated_out(
    model: pm.Model,
    wanted: RowsToRead,
    *,
    tolerance: float,
    rng: np.random.Generator,
    key: int,
    tell: Callable[[str], None] | None = None,
) -> tuple[LogLikelihood, RowsToRead] | None:
    """Return the log-likelihoods of units, and how to derive them again; None if rows are as good.

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
    tell : callable, optional
        Takes the reason why variables that the user has not named remain parameters, which is
        logged, too.

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
    names, reason = chosen_units(rows, named)
    if not names:
        _tell(reason, tell, logging.INFO)
        return None
    with doing("comparing rows with PyMC's log-density"):
        verify_rows(
            LogLikelihood(rows, functions=Functions(rows, few_rows=True, few_slopes=True)), rng=rng
        )
    must = named is not None or not set(names).isdisjoint(rows.local)
    try:
        keep = options_to_keep(rows, names)
        with doing(f"integrating {', '.join(names)} out ({keep} keeps them)"):
            units = wanted.units_of(model, names, rows)
            verify_units(units, rng=rng.spawn(1)[0])
            found = centred(units, enough=tolerance / 10, key=key)
    except (UnsupportedModelError, SamplingError) as error:
        if must:
            raise
        _tell(f"{list(names)!r} remain parameters. {error.message}", tell, logging.WARNING)
        return None
    made = as_units(found.observations)
    known = UnitSettings(
        names=list(names),
        rule=list(made.rule),
        n_modes=made.source.n_modes,
        at=made.at.tolist(),
        node_error=made.node_error,
    )
    return found.collapsed(collapse=wanted.collapse), replace(wanted, units=known)


def _tell(reason: str, tell: Callable[[str], None] | None, level: int) -> None:
    """Say why variables remain parameters, if there is a reason."""
    if reason:
        _log.log(level, reason)
    if reason and tell is not None:
        tell(reason)
