"""Draws of posteriors that are normal given a few scales, certified by all rows."""

import logging
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor import scalar as ps
from pytensor.graph import Variable
from scipy.linalg import LinAlgError
from scipy.special import softmax

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.deadline import doing
from pymc_coresets.diagnostics.importance import SmoothedRatios, khat_threshold, pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Modes, Proposal
from pymc_coresets.exceptions import SamplingError, UnsupportedModelError
from pymc_coresets.glm.control_variates.hierarchy import (
    ConditionalGaussian,
    Hierarchy,
    find_hierarchy,
)
from pymc_coresets.glm.given_scales.kernel_mixture import KernelsOfModes
from pymc_coresets.glm.given_scales.normal_rows import NormalRows
from pymc_coresets.glm.predictor.finding import find_predictors
from pymc_coresets.glm.predictor.predictors import RowsInMemory
from pymc_coresets.glm.predictor.row_graph import evenly_spread, spread_rows
from pymc_coresets.glm.predictor.seen_rows import seen_rows_of
from pymc_coresets.numerics import free_memory
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.rest import RestLogDensity
from pymc_coresets.sampling.certified_draws.around_mode import (
    ENOUGH,
    AroundMode,
    aim_of,
    beyond,
)
from pymc_coresets.sampling.found_modes import table_of
from pymc_coresets.sampling.normal import Normal, heavy_tailed
from pymc_coresets.sampling.scales.scale_modes import MarginalModes, marginal_modes, starts_around
from pymc_coresets.sampling.scales.which_scales import are_quadratic

type Array = np.ndarray

#: Largest number of coordinates of the scales: independent draws of more are worth little.
_MOST_SCALES = 8
#: Rows that tell which variables the scales are.
_SOME_ROWS = 200
#: Draws that show what share of them the weights leave, and the least share.
_FIRST, _LEAST_SHARE = 60, 0.3
_TO_REFINE = 240  #: Further draws, if it is smaller, for kernels around them.
#: Pareto k-hat above which weights have no variance: the first draws may have missed a tail.
_FINITE = 0.5
#: Share of the draws from the scales' split normal distribution, at first and later.
_MOST_FIRST, _FEW_FIRST = 0.8, 0.1
#: Draws worth so many independent ones are enough where a decomposition takes long; and the number
#: of its multiplications, all together, up to which there are more.
_FEWEST, _OPERATIONS = 400, 1.5e11
_CHEAP = 2e9  #: Multiplications of all that take a second or two: there are as many as wanted.
#: Draws of all variables that must fit into this share of the free memory.
_DRAWS, _SHARE = 4_000, 0.2
#: Lines beyond the draws: along the smallest variables, as all others are normal given these.
_LINES = 26

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class GivenScales:
    """The posterior itself: exact but for rounding, and a constant.

    Parameters
    ----------
    near : ConditionalGaussian
        With which its draws are made.
    modes : MarginalModes
        Of the scales.
    rest : RestLogDensity
    rows : NormalRows
    """

    near: ConditionalGaussian
    modes: MarginalModes
    rest: RestLogDensity
    rows: NormalRows

    def log_density(self, points: Array) -> Array:
        """Return the log-density at points (n_points, n_dims), up to a constant, in nats."""
        found: Array = self.rest.values(points) + self.of_rows(points)
        return found

    def of_rows(self, points: Array) -> Array:
        """Return the log-likelihood of all rows there, up to a constant, in nats."""
        return self.rows.at(self.rest.coefficients(points))


def has_scales(model: pm.Model) -> bool:
    """Whether a vector's prior depends on another variable, or rows see their product.

    The density of such a hierarchy may have no mode.

    Examples
    --------
    >>> with pm.Model() as centred:
    ...     y = pm.Normal("y", pm.Normal("a", 0, pm.HalfNormal("s"), shape=3), observed=np.ones(3))
    >>> with pm.Model() as regression:
    ...     b, s = pm.Normal("b", shape=3), pm.HalfNormal("s")
    ...     y = pm.Normal("y", np.eye(3) @ b, s, observed=np.ones(3))
    >>> has_scales(centred), has_scales(regression)
    (True, False)
    """
    roots = [*model.free_RVs, *model.observed_RVs, *model.potentials]
    free, vectors = set(model.free_RVs), {v for v in model.free_RVs if v.ndim}
    seen: dict[Variable, frozenset[Variable]] = {}
    for node in ops.io_toposort([], roots):
        below = [seen.get(v, frozenset()) for v in node.inputs]
        every = frozenset[Variable]().union(*below)
        for output in node.outputs:
            if output in vectors and every:
                return True
            seen[output] = frozenset([output]) if output in free else every
        is_product = isinstance(ops.scalar_op_of(node.outputs[0]), ps.Mul)
        if is_product and every & vectors and len({own for own in below if own}) > 1:
            return True
    return False


def may_be_normal(observations: Observations) -> bool:
    """Whether some rows are quadratic in the longest variable: all would be, given the scales.

    Takes a fraction of a second, without compilation.  Draws of all variables must fit into a fifth
    of the free memory.
    """
    space = observations.space
    longest = max(space.columns.values(), key=np.size)
    if observations.integrated or observations.local or not space.continuous.all():
        return False
    if 8 * _DRAWS * space.n_dims > _SHARE * free_memory():
        return False
    which = spread_rows(observations.n_obs, _SOME_ROWS)
    arrays = {row.placeholder: row.take(which) for row in observations.rows}
    own = observations.parameters
    function = numpy_function([*own.values(), observations.n_rows, *arrays], [observations.loglik])

    def values(points: Array) -> Array:
        draws = space.constrain(points)
        found = []
        for s in range(len(points)):
            given = [np.asarray(draws.values[n][s], v.type.dtype) for n, v in own.items()]
            [of_rows] = function(*given, np.asarray(len(which)), *arrays.values())
            found.append(np.broadcast_to(of_rows, len(which)))
        return np.stack(found)

    way = np.zeros(space.n_dims)
    way[np.ravel(longest)] = evenly_spread(np.size(longest)) + 0.5
    return are_quadratic(values, space.start + 0.1 * way, way)


def drawn_given_scales(
    loglik: LogLikelihood, *, rng: np.random.Generator, wanted: int = ENOUGH
) -> AroundMode:
    """Draw from a posterior that is normal given a few scales.

    As that of a linear mixed model with normal outcomes, of any nesting and crossing.  Scales are
    drawn from a split normal distribution around the mode of their marginal posterior, with heavy
    tails, and from kernels around such draws, and weighted by that marginal, for which each takes a
    decomposition of the precision of all other variables.  These follow exactly, given the scales.
    All rows are evaluated at each draw, and along lines beyond them.

    Parameters
    ----------
    loglik : LogLikelihood
        Of rows in memory.
    rng : numpy.random.Generator
    wanted : int
        Number of independent draws beyond which more are of no use, see `aim_of`.

    Raises
    ------
    UnsupportedModelError
        If the posterior is not normal given at most eight scales.
    InvalidDataError
        If a design matrix or an offset is not finite.
    SamplingError
        If the draws are not certified.
    """
    posterior = _posterior_of(loglik, rng=rng)
    with doing("drawing given the scales"):
        every = _drawn(loglik, posterior, wanted=wanted, rng=rng)
        probes = beyond(loglik, every, most=_LINES)
    n_scales = len(posterior.near.scales.location)
    found = AroundMode(
        loglik,
        every,
        probes,
        enough=_enough(posterior.near),
        words=f"Draws of the full posterior, which is normal given {n_scales} of its dimensions",
    )
    found.require_certified()
    return found


def _posterior_of(loglik: LogLikelihood, *, rng: np.random.Generator) -> GivenScales:
    """Return the posterior, if it is normal given a few scales whose modes are known."""
    seen = seen_rows_of(loglik, find_predictors)
    rows = seen.of(loglik.all_rows)
    rest = loglik.functions.rest_beside(seen.found.coefficients)
    hierarchy = _hierarchy_of(rest, rows)
    if not 0 < hierarchy.is_scale.sum() <= _MOST_SCALES:
        raise UnsupportedModelError(
            "The posterior is normal given no scales, or many.", topic="regressions"
        )
    near = _conditional(hierarchy, _normal_rows(rest, rows, hierarchy, rng))
    modes = _modes_of_scales(near, rest.space, rng=rng)
    if not modes.is_complete:
        raise SamplingError("The marginal posterior of the scales is high where no mode is known.")
    if len(modes) > 1:
        _log.info("The marginal posterior of the scales has %d modes", len(modes))
    near = replace(near, scales=modes.mixture)
    assert isinstance(near.quadratic, NormalRows)
    return GivenScales(near, modes, rest, near.quadratic)


def _hierarchy_of(rest: RestLogDensity, rows: RowsInMemory) -> Hierarchy:
    """Find the scales given which prior and rows are normal."""
    space = rest.space
    some = rows.take(spread_rows(len(rows), _SOME_ROWS))
    columns = [np.ravel(own) for own in space.columns.values()]

    def values(points: Array) -> Array:
        return some.density(some.numbers(rest.coefficients(points)), compiled=False)

    return find_hierarchy(rest.slopes, rest.coefficients, space.start, columns, values)


def _normal_rows(
    rest: RestLogDensity, rows: RowsInMemory, hierarchy: Hierarchy, rng: np.random.Generator
) -> NormalRows:
    is_moving = np.zeros(hierarchy.slopes.shape[1], dtype=bool)
    is_moving[hierarchy.slopes.indices] = True
    away = rng.uniform(-0.5, 0.5, (4, len(hierarchy.reference)))
    away[0] = 0.0
    return NormalRows.of(rows, rest.coefficients(hierarchy.reference + away), is_moving)


def _conditional(hierarchy: Hierarchy, rows: NormalRows) -> ConditionalGaussian:
    """Find the mode of the scales, and their marginal's widths on either side of it.

    The sums are about the other variables' mode given the first scales, so that what is left of
    large outcomes is not lost to rounding.
    """
    first = hierarchy.reference[hierarchy.is_scale]
    start = heavy_tailed(first, 10 * np.eye(len(first)))
    begun = ConditionalGaussian(hierarchy, rows, start).mode
    rows = rows.about(hierarchy.coefficients(begun[None])[0])
    return ConditionalGaussian.of(hierarchy, rows, n_operations=math.inf)


def _modes_of_scales(
    near: ConditionalGaussian, space: Unconstrained, *, rng: np.random.Generator
) -> MarginalModes:
    """Search for the modes of the marginal of the scales, around one of which a distribution is."""
    known = near.scales
    assert isinstance(known, Normal)

    def starts_of(part: Normal) -> Array:
        at = replace(near, scales=part).mode
        return starts_around(space, part, at, near.hierarchy.is_scale, rng=rng)

    return marginal_modes(near.log_marginals, known, starts_of, most_failures=_n_climbs(near))


def _n_climbs(near: ConditionalGaussian) -> int:
    """Return how many ascents that find no other mode end the search: fewer, if they take long."""
    return int(np.clip(_OPERATIONS / near.n_operations_each / 1_000, 1, 4))


def _enough(near: ConditionalGaussian) -> int:
    """Return how many independent draws are enough: fewer, if each takes long."""
    return int(np.clip(_OPERATIONS / near.n_operations_each, _FEWEST, ENOUGH))


def _drawn(
    loglik: LogLikelihood, posterior: GivenScales, *, wanted: int, rng: np.random.Generator
) -> Proposal[Draws]:
    """Return draws, weighted by all rows."""
    enough, cheap = _enough(posterior.near), _CHEAP / posterior.near.n_operations_each
    aim = aim_of(loglik, min(wanted, int(cheap)), enough)
    found = _sound(posterior, enough=enough, aim=aim, rng=rng)
    rest = posterior.rest
    draws = rest.space.constrain(found.points)
    first = Proposal(
        draws=draws,
        log_ratios=rest.values(found.points) - found.logq,
        around=posterior,
        modes=_modes(posterior, found),
    )
    weighed = first.weighed(loglik.sums(draws).total)
    if weighed is None:
        raise SamplingError("Many of the draws given the scales are impossible.")
    return weighed


class _WeightedDraws(NamedTuple):
    """Draws (n_draws, n_dims), the log-density of what they are from, and their log-weights."""

    points: Array
    logq: Array
    log_weights: Array

    @classmethod
    def of(
        cls,
        posterior: GivenScales,
        near: ConditionalGaussian,
        n_draws: int,
        rng: np.random.Generator,
    ) -> "_WeightedDraws":
        """Draw from a distribution near the posterior."""
        points, logq = near.draw(n_draws, rng=rng)
        return cls(points, logq, posterior.log_density(points) - logq)

    def plus(self, more: "_WeightedDraws") -> "_WeightedDraws":
        """Add draws of the same distribution."""
        return _WeightedDraws(*(np.concatenate(both) for both in zip(self, more, strict=True)))

    @property
    def smoothed(self) -> SmoothedRatios:
        return pareto_smooth(self.log_weights[None])

    @property
    def share(self) -> float:
        """Which share of the draws their weights leave."""
        return float(self.smoothed.ess_of_independent / len(self.points))


def _sound(
    posterior: GivenScales, *, enough: int, aim: int, rng: np.random.Generator
) -> _WeightedDraws:
    """Return draws whose weights are reliable, and leave enough of them, or more.

    Most are from the scales' split normal distribution, some from kernels around its draws: these
    reach into tails that bend, where no draw of the former would be.  If this does not serve, most
    are from kernels around all of these draws, once or twice.
    """
    near = posterior.near
    is_scale = near.hierarchy.is_scale
    found = _WeightedDraws.of(posterior, near, _FIRST, rng)
    if found.share < _LEAST_SHARE:
        found = found.plus(_WeightedDraws.of(posterior, near, _TO_REFINE, rng))
    for of_first, limit in ((_MOST_FIRST, _FINITE), (_FEW_FIRST, 1.0), (_FEW_FIRST, 1.0)):
        at, modes = found.points[:, is_scale], posterior.modes
        try:
            scales = KernelsOfModes.of(
                modes.parts, modes.nearest(at), at, found.log_weights, of_first=of_first
            )
        except LinAlgError:  # so few draws have weights
            break
        near = replace(near, scales=scales)
        found = _WeightedDraws.of(posterior, near, _FIRST, rng)
        share = found.share
        n_more = math.ceil(1.1 * aim / share) if share >= _LEAST_SHARE else _TO_REFINE
        found = found.plus(_WeightedDraws.of(posterior, near, n_more, rng))
        smoothed, most = found.smoothed, min(limit, khat_threshold(len(found.points)))
        if smoothed.ess >= enough and smoothed.pareto_khat < most:
            return found
        _log.info(
            "Of %d draws given the scales, weights leave %.3g, with k-hat %.2f",
            len(found.points), smoothed.ess, smoothed.pareto_khat,
        )  # fmt: skip
    raise SamplingError("Weights leave too few of the draws given the scales.")


def _modes(posterior: GivenScales, found: _WeightedDraws) -> Modes:
    """Return the modes of the scales, and of the others given these, with their masses by weights.

    Deviations are those of the draws next to each that have weights.
    """
    near, modes = posterior.near, posterior.modes
    nearest = modes.nearest(found.points[:, near.hierarchy.is_scale])
    masses = np.bincount(nearest, softmax(found.log_weights), len(modes))
    at = np.stack([replace(near, scales=part).mode for part in modes.parts])
    next_to = [found.points[nearest == i] for i in range(len(modes))]
    return table_of(posterior.rest.space, at, next_to, masses, n_starts=modes.n_ascents)
