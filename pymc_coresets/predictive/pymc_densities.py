"""Another estimate of the divergence, by PyMC's own log-densities of both models."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.compat.pytensor_api import compiling
from pymc_coresets.diagnostics.judging import HARMLESS, SecondOpinion
from pymc_coresets.diagnostics.posterior_draws import require_own, thinned
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.options import whole_number
from pymc_coresets.predictive.approximate_posterior import HasApproximatePosterior, log_ratios
from pymc_coresets.predictive.model_data import HeldRows, filled_with_own
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import numpy_function, widened, with_joined_scalars
from pymc_coresets.reading.units.observations_of_units import UnitObservations, as_units
from pymc_coresets.reading.user_model import copy_with_rows, terms_of
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.unit_modes import ModesOfUnits
from pymc_coresets.rows.values import Rows

# Radius and step of a grid around modes, by the number of axes.  Along one it is equidistant in t,
# for x = sinh(t) widths, and reaches into tails; along several, in x.  For what is as smooth as a
# normal density, a sum over a grid in x is off by exp(-2 (pi / step)^2); where that is not enough,
# a finer and wider one is tried.
_GRIDS = {
    1: ((5.0, 0.25), (9.0, 0.2), (18.0, 0.15)),
    2: ((6.0, 1.0), (7.0, 0.75), (9.0, 0.4)),
    3: ((5.5, 1.0),),
}

type Floats = NDArray[np.float64]
#: Values of a model's value variables, by name.
type Point = dict[str, np.ndarray]


def verify(
    result: HasApproximatePosterior, idata: xr.DataTree, *, draws: int = 30
) -> SecondOpinion:
    """Ask PyMC's own log-densities of both models how far the posteriors differ.

    A second opinion: `check` uses log-likelihoods that the package derives from the model,
    and asks for this opinion at a few draws if the model holds a million rows at most.
    Costs one evaluation of the full model by NumPy for each draw; rows elsewhere are read once.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the approximate posterior, from `sample` or `pm.sample`.
    draws : int, default 30
        At how many draws, evenly spread over the chains.

    Returns
    -------
    SecondOpinion
        Both estimates of the divergence, and by how much the log-ratios differ.

    Raises
    ------
    UnsupportedModelError
        If they differ noticeably.
    InvalidDataError
        If the draws lack a variable, are impossible under the full data, or are another
        coreset's.
    InvalidOptionError
        If `draws` is not a whole number of at least 2, or the rows lie in several models.
    CoresetError
        If not all rows are within reach.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> x = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=x)
    ...     coreset = build_coreset(size=5, method="uniform", random_seed=1, progressbar=False)
    >>> idata = coreset.sample(draws=50, tune=50, chains=2, random_seed=1, progressbar=False)
    >>> coreset.verify(idata).difference < 1e-8
    True
    """
    own = result.approximation
    draws = whole_number("draws", draws, least=2)
    idata = require_own(idata, "verify()", own.groups)
    some = thinned(idata, draws)
    return opinion_at(result, some, log_ratios(result, some).ravel())


def opinion_at(result: HasApproximatePosterior, some: xr.DataTree, ratios: Floats) -> SecondOpinion:
    """Return the opinion at some draws, whose log-ratios (n_draws,) are known, see `verify`.

    Raises
    ------
    UnsupportedModelError
        If they differ noticeably.
    """
    own = result.approximation
    base = own.parts[0].observations
    space = base.space
    with np.errstate(divide="ignore", over="ignore"):  # for draws that were rounded to a border
        shared = Draws.of(some, base.shapes)
        points = [space.point(x) for x in space.free(shared)]
    terms = [term.name for term in base.terms]
    others = [name for name in terms_of(base.model) if name not in terms]
    approximate = (result.model, terms_of(result.model))
    if isinstance(base, UnitObservations):
        of_own, of_rest = log_densities([approximate, (base.model, others)])(points)
        of_rest = of_rest + own.of_earlier(shared)
        return opinion_of_units(own.parts[0], shared, of_rest, of_own, ratios)
    filled = filled_with_own(own, copy_with_rows(base.model, {}))
    if isinstance(filled, HeldRows):
        full = (base.model, terms_of(base.model))
        of_own, of_full = log_densities([approximate, full])(points)
    else:
        of_own, of_rest = log_densities([approximate, (filled.model, others)])(points)
        of_rows = log_densities([(filled.model, terms)])
        of_full = of_rest + sum(of_rows(points)[0] for _ in filled.blocks())
    return second_opinion(of_full, of_own, ratios)


def second_opinion(
    of_full: Floats,
    of_approximate: Floats,
    log_ratios: Floats,
    *,
    node_error: float | None = None,
) -> SecondOpinion:
    """Compare log-ratios with the difference of the log-densities that PyMC gives.

    Parameters
    ----------
    of_full, of_approximate : ndarray of shape (n_draws,)
        PyMC's log-densities of the two models, in nats, up to a constant each.
    log_ratios : ndarray of shape (n_draws,)
        Likewise.
    node_error : float, optional
        Divergence that the nodes of units make where the posterior is, in nats.  Where an
        approximation is far from it they are less exact, but not by as much.

    Raises
    ------
    UnsupportedModelError
        If they differ by more than 0.005 nats and the errors of rounding and nodes: enough to
        matter.

    Examples
    --------
    >>> of_full = np.array([-5.0, -4.0, -4.5])
    >>> second_opinion(of_full, of_full / 2, of_full / 2 + 1).difference
    0.0
    """
    with np.errstate(invalid="ignore"):
        theirs = of_full - of_approximate
    used = np.isfinite(theirs)
    if not used.any():
        return SecondOpinion(by_pymc=np.nan, by_us=np.nan, difference=np.nan, n_draws=0)
    theirs, ours = theirs[used], log_ratios[used]
    differences = (theirs - theirs.mean()) - (ours - ours.mean())
    largest = float(np.abs(differences).max())
    size = float(np.abs([of_full[used], of_approximate[used]]).max())
    harmless = HARMLESS
    reasons = "the model has changed since, or the package does not understand it"
    if node_error is not None:
        # By a twentieth of the sd of log-ratios, their variance is off by a tenth at most.
        harmless = max(HARMLESS, 0.05 * float(np.std(ours)))
        # Five deviations of what nodes are off by, at a few draws.
        harmless += 5.0 * node_error**0.5 if np.isfinite(node_error) else 0.0
        reasons = f"nodes do not integrate the variables of all units out, or {reasons}"
    # Sums of many terms have fewer digits than single ones.
    if largest > harmless + 1e-9 * size:
        raise UnsupportedModelError(
            f"The log-ratio of the full over the approximate posterior density differs by "
            f"{largest:.3g} nats from what PyMC's own log-densities of the two models give: "
            f"{reasons}. Build again; if that does not help, please report it."
        )
    return SecondOpinion(
        by_pymc=float(np.var(theirs)),
        by_us=float(np.var(ours)),
        difference=largest,
        n_draws=len(theirs),
    )


@compiling()
def log_densities(
    wanted: Sequence[tuple[pm.Model, Sequence[str]]],
) -> Callable[[Sequence[Point]], Floats]:
    """Return a function that evaluates PyMC's log-densities, Jacobians included, by NumPy.

    Shared terms, such as priors, are evaluated once.

    Parameters
    ----------
    wanted : sequence of (pm.Model, sequence of str)
        Models with the same value variables; for each, the names of the variables and potentials
        that are added up.

    Returns
    -------
    callable
        Of a sequence of points; it returns an array (n_wanted, n_points), in nats.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    >>> log_densities([(model, ["mu"])])([{"mu": np.array(0.0)}]).round(4)
    array([[-0.9189]])
    """
    # In float32, where the model was written so, there were no digits to compare.
    inputs = {
        v.name: v.type.clone(dtype="float64")(v.name) if v.type.dtype == "float32" else v
        for v in wanted[0][0].value_vars
    }
    graphs = []
    for model, names in wanted:
        terms = [model[name] for name in names]
        others = {v: inputs[v.name] for v in model.value_vars if inputs[v.name] is not v}
        graphs += widened([model.logp(vars=terms)], others)
    function = numpy_function(list(inputs.values()), with_joined_scalars(graphs))

    def at_points(points: Sequence[Point]) -> Floats:
        values = [function(*(point[name] for name in inputs)) for point in points]
        return np.array(values, dtype=np.float64).T

    return at_points


def opinion_of_units(
    loglik: LogLikelihood,
    draws: Draws,
    of_rest: Floats,
    of_own: Floats,
    log_ratios: Floats,
) -> SecondOpinion:
    """Compare log-ratios of units with what PyMC's densities of the model give, see below.

    By grids that become finer and wider as long as they differ.  `of_rest` is the log-density of
    all but the units.
    """
    units = as_units(loglik.observations)
    *coarse, last = _GRIDS.get(units.source.factor.n_dims, ((4.5, 1.5),))

    def compared(grid: tuple[float, float]) -> SecondOpinion:
        of_full = of_rest + log_densities_of_units(loglik, draws, grid)
        return second_opinion(of_full, of_own, log_ratios, node_error=units.node_error)

    for grid in coarse:
        with suppress(UnsupportedModelError):
            return compared(grid)
    return compared(last)


def log_densities_of_units(
    loglik: LogLikelihood,
    draws: Draws,
    grid: tuple[float, float] = _GRIDS[1][0],
) -> Floats:
    """Evaluate the log-density of all units by PyMC's, with their variables integrated out.

    Each counts as often as its case weight says.  The integrals are sums over a wide grid of each
    unit's own variables, around all modes that the unit has at each draw: PyMC's elementwise
    log-densities of all rows and levels are evaluated once for each point of it.  Modes are looked
    for over the whole prior.

    Parameters
    ----------
    loglik : LogLikelihood
        Of units.
    draws : Draws
        Of the shared variables.
    grid : (float, float)
        Its radius and step, see `_GRIDS`.

    Returns
    -------
    ndarray of shape (n_points,)
        In nats.
    """
    source = as_units(loglik.observations).source
    factor = source.factor
    every = loglik.collapsed(collapse=False).in_memory.all
    x, log_volumes = _places(factor.n_dims, *grid)
    levels, start = source.levels, source.initial_values

    def of_levels(known: Point, flat: Floats) -> Floats:
        of_rows, priors = source.by_pymc(known | factor.variables(flat), flat)
        found = np.bincount(factor.level_of_row, of_rows, factor.n_levels) + priors
        inside: Floats = np.where(np.isnan(found), -np.inf, found)[levels]
        return inside

    total = []
    for s in range(draws.n_draws):
        known, flat = draws.at(s), start.copy()
        integral = np.full(len(levels), -np.inf)
        for at in product(*factor.values) if factor.values else ():  # all values that there are
            flat[levels] = np.array(at, dtype=float)
            integral = np.logaddexp(integral, of_levels(known, flat))
        for modes, m in _modes(loglik, known, every):
            volume = np.linalg.slogdet(modes.widths[:, m])[1]
            for at, log_volume in zip(x, log_volumes, strict=True):
                z = modes.places[:, m] + modes.widths[:, m] @ at
                flat[levels] = z
                parts = of_levels(known, flat) + _log_shares(z, modes, m) + volume + log_volume
                integral = np.logaddexp(integral, parts)
        total.append(float(every.case_weights @ integral))
    return np.array(total)


def _places(n_dims: int, radius: float, step: float) -> tuple[Floats, Floats]:
    """Return the places of a grid, (n_places, n_dims), and the logs of what each stands for."""
    axis = step * np.arange(-(radius // step), radius // step + 1)
    if n_dims == 1:
        return np.sinh(axis)[:, None], np.log(step * np.cosh(axis))
    places = np.array(list(product(axis, repeat=n_dims)))
    places = places[np.square(places).sum(axis=1) <= radius**2]
    return places, np.full(len(places), n_dims * np.log(step))


def _modes(loglik: LogLikelihood, known: Point, every: Rows) -> Iterator[tuple[ModesOfUnits, int]]:
    """Yield the modes of all units, once for each number of a mode; none of discrete variables."""
    source, finder = as_units(loglik.observations).source, loglik.functions.unit_modes
    if source.factor.values:
        return
    if source.factor.n_dims == 1 or source.n_modes > 1:
        found = finder.every(known, every)
    else:  # looking for others takes longer
        places, widths, *_ = finder.places(finder.at(known, every))
        found = ModesOfUnits(places[:, None], widths[:, None], np.zeros((len(places), 1)))
    for m in range(found.log_masses.shape[1]):
        yield found, m


def _log_shares(z: Floats, modes: ModesOfUnits, m: int) -> Floats:
    """Return which part of the densities at z, (n_units, q), belongs to the m-th modes."""
    if modes.places.shape[1] == 1:
        return np.zeros(len(z))
    root = np.linalg.inv(modes.widths)
    away = np.einsum("nmij,nmj->nmi", root, z[:, None] - modes.places)
    logs = np.linalg.slogdet(root)[1] - 3.0 * np.log1p(np.square(away).sum(axis=2))
    shares: Floats = logs[:, m] - np.logaddexp.reduce(logs, axis=1)
    return shares
