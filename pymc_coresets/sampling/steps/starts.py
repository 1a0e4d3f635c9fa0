"""How `pm.sample` begins near a known posterior: with chains made in advance, or with a metric."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from inspect import signature
from itertools import chain

import numpy as np
import pymc as pm
import pytensor
from scipy.linalg import LinAlgError, cholesky, inv
from scipy.special import softmax

from pymc_coresets.compat.pymc_api import KnownStart
from pymc_coresets.diagnostics.importance import systematic_resample
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.options import generator
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.density import Surrogate
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor
from pymc_coresets.sampling.normal import KnownDensity, Mixture, Normal, heavy_tailed
from pymc_coresets.sampling.steps.many_chains import ManyChains, Paths, WarmUp
from pymc_coresets.sampling.steps.metropolis import IndependentProposals
from pymc_coresets.sampling.steps.nuts import (
    PrecisionLeapfrog,
    PrecisionPotential,
    SampleOptions,
)
from pymc_coresets.sampling.steps.playback import Playback
from pymc_coresets.sampling.steps.split_hmc import SplitHmc, judged_by
from pymc_coresets.sampling.units.staying_nodes import nodes_that_stay

#: Options of `pm.sample` itself, and those that configure the start of NUTS.
_OWN = frozenset(signature(pm.sample).parameters)
_OTHER_STARTS = {"step", "init", "initvals", "nuts", "nuts_sampler_kwargs", "n_init"}
#: Products of a density at a point for which thousands of points take too long to try.
_MOST_PRODUCTS = 2**23
#: Gradients of a draw of NUTS up to so many dimensions, the products that take as long as one of
#: them in Python, and those for each of many points.
_OF_NUTS, _OF_DIMS, _IN_PYTHON, _AT_ONCE = 15, 25, 1e5, 5e3
#: Gradients of a draw of many chains, with their tuning.
_OF_MANY = 5
#: Number of chains at once, and products of all of them above which there are the least number.
_CHAINS, _LEAST_CHAINS, _OF_CHAINS = 64, 16, 2**22
#: Nats between the quartiles of log-ratios at draws of a distribution, above which other tails make
#: none of them a proposal that is accepted.
_APART = 4.0
#: Standard deviation of log-densities along whose gradients nine in ten trajectories are accepted.
_NEARBY = 0.1

_log = logging.getLogger(__name__)


def better_start(
    model: pm.Model,
    known: Proposal[Draws],
    posterior: Surrogate,
    options: SampleOptions,
) -> dict[str, object] | None:
    """Return options of `pm.sample` for chains that are made in advance, or for a better NUTS.

    By independent proposals if these are efficient, or else by many chains at once.  If these do
    not agree, NUTS goes on from where they are, with the normal distribution around them.

    Parameters
    ----------
    model : pm.Model
    known : Proposal
        Near the posterior, in the model's unconstrained space.
    posterior : Surrogate
        Of the same model.
    options : mapping of str
        Options for `pm.sample`.

    Returns
    -------
    dict of str, or None
        None if NUTS should begin with what is known: an option is one of NUTS, evaluations of the
        density take too long to try anything else, or the chains could not be tuned.
    """
    if posterior.n_products > _MOST_PRODUCTS or asks_for_nuts(options):
        return None
    rng = generator(options.get("random_seed")).spawn(1)[0]
    n_chains, n_draws = options.get("chains", 1), options.get("draws", 1_000)
    given = known, posterior, n_draws, n_chains, rng
    for made in chain(_independent(*given), _many_chains(*given)):
        if isinstance(made, WarmUp):
            _log.info("NUTS: neither independent proposals nor many chains serve")
            return _going_on(model, made, posterior.space, options, rng)
        with model:
            step = Playback(model.value_vars, posterior.space, made.chain)
        # The draws are known: PyMC's table of progress would show that none are made per second.
        tune = {"tune": 0} if isinstance(made, Paths) else {}
        return {"tune": 0, **options, **tune, "cores": 1, "step": step, "progressbar": False}
    _log.info("NUTS: neither independent proposals nor many chains serve")
    return None


def _independent(
    known: Proposal[Draws],
    posterior: Surrogate,
    n_draws: int,
    n_chains: int,
    rng: np.random.Generator,
) -> Iterator[IndependentProposals]:
    """Yield proposals for all chains, if these take less time than NUTS."""
    density = posterior.as_loops.log_density
    of_others = _OF_NUTS * (_IN_PYTHON + posterior.n_products_of_gradient)
    if not _has_several_modes(known):
        of_others = min(of_others, _OF_MANY * _of_many_chains(posterior))
    for around in _around(known, posterior):
        proposals = IndependentProposals(posterior.space, around, density, posterior.n_products)
        most = int(of_others // proposals.n_products)
        for found in proposals.tried(n_draws * n_chains, most, rng, n_chains=n_chains):
            _log.info("Independence Metropolis-Hastings: %d proposals per draw", found.n_skipped)
            yield found
        _log.info("Independent proposals are unreliable, or too many are needed")


def _around(known: Proposal[Draws], posterior: Surrogate) -> Iterator[KnownDensity]:
    if isinstance(known.around, KnownDensity):
        low, high = np.quantile(known.log_ratios, (0.25, 0.75))
        found: Iterable[KnownDensity] = [known.around] * bool(high - low < _APART)
    else:
        found = around_draws(posterior.space.free(known.draws))
    for around in found:
        if isinstance(around, Normal | Mixture):
            yield around.split(posterior.log_density)
        else:
            yield around


def _many_chains(
    known: Proposal[Draws],
    posterior: Surrogate,
    n_draws: int,
    n_chains: int,
    rng: np.random.Generator,
) -> Iterator[Paths | WarmUp]:
    """Yield chains of the result, joined from many, or where these are if they do not agree."""
    posterior = posterior.as_loops
    space, each = posterior.space, posterior.n_products
    if _has_several_modes(known) or not space.continuous.all():
        _log.info("Many chains need continuous variables, and do not move between several modes")
        return
    # Steps of many chains at once take less time each, where it is not the density that takes it;
    # fewer and longer ones agree after fewer of them.
    at_once = _CHAINS if _CHAINS * each <= _OF_CHAINS else _LEAST_CHAINS
    n_joined = max(at_once // n_chains, 1)
    # What NUTS takes, with its tuning: its steps are shorter by the fourth root of the dimensions.
    n_steps = _OF_NUTS * max(space.n_dims / _OF_DIMS, 1.0) ** 0.25
    of_each = n_steps * (_IN_PYTHON + posterior.n_products_of_gradient)
    most = of_each * (n_draws + 300) * n_chains / _of_many_chains(posterior)
    sampler = ManyChains(
        n_chains=n_joined * n_chains, n_draws=n_draws * n_chains, most=most, n_joined=n_chains
    )
    try:
        for near in normal_of(known, space):
            starts = spread_starts(known, space, sampler.n_chains, rng=rng)
            found = sampler.draw(_nearby(posterior, near, starts), starts, rng=rng)
            if not isinstance(found, WarmUp):
                yield found.joined(n_chains, n_draws)
            elif found.settled:
                yield found
    except (NotImplementedError, UnsupportedModelError) as error:
        _log.info("Many chains need gradients: %s", error)


def _nearby(posterior: Surrogate, near: Normal, points: np.ndarray) -> SplitHmc:
    """Return what moves chains: by gradients of the posterior, or of a faster density near it.

    Parameters
    ----------
    posterior : Surrogate
    near : Normal
        Around its mode.
    points : ndarray of shape (n_points, n_dims)
        Draws of the posterior, nearly.
    """
    rows_alone = replace(posterior, quadratic=None)
    of_points = cache(lambda: rows_alone.loglik(posterior.space.constrain(points)))
    for nodes in nodes_that_stay(posterior, near.location):
        away = of_points() - nodes.loglik(points)
        if np.isfinite(away).all() and away.std() < _NEARBY:
            _log.info("Trajectories follow a density within %.2g nats", away.std())
            return SplitHmc(nodes.density.slopes, near, judged_by(posterior.log_density))
    return SplitHmc(posterior.slopes, near)


def _of_many_chains(posterior: Surrogate) -> float:
    """Return the cost of a gradient of many chains, in products."""
    return _AT_ONCE + posterior.n_products_of_gradient + 2 * posterior.space.n_dims**2


def _going_on(
    model: pm.Model,
    tuned: WarmUp,
    space: Unconstrained,
    options: SampleOptions,
    rng: np.random.Generator,
) -> dict[str, object]:
    """Return options for NUTS from where many chains are, in the metric around them."""
    n_chains, n_points = options["chains"], len(tuned.points)
    chosen = space.constrain(tuned.points[rng.choice(n_points, n_chains, n_chains > n_points)])
    return _with_metric(model, tuned.around.factor, chosen, space, options, rng)


def _has_several_modes(known: Proposal[Draws]) -> bool:
    parts = known.around.parts if isinstance(known.around, Mixture) else ()
    return max(len(parts), len(known.modes or ())) > 1


def normal_of(known: Proposal[Draws], space: Unconstrained) -> Iterator[Normal]:
    """Yield a normal distribution near a posterior, unless there are too few draws of it.

    Around the largest mode, if there are several.

    Parameters
    ----------
    known : Proposal
    space : Unconstrained
    """
    points = space.free(known.draws)
    # Some distributions provide the posterior's width, which may exceed their own.
    around = getattr(known.around, "metric", None) or known.around
    if isinstance(around, Mixture):
        around = around.largest
    if isinstance(around, Normal):
        yield around
    elif isinstance(around, CholeskyFactor):
        yield Normal(points.mean(axis=0), around)
    else:
        yield from around_draws(points)


def spread_starts(
    known: Proposal[Draws], space: Unconstrained, n_chains: int, *, rng: np.random.Generator
) -> np.ndarray:
    """Choose starting points (n_chains, n_dims) among draws, by a power of their weights.

    The largest power at most one for which as many different points are left.
    """
    log_ratios, power = known.log_ratios, 1.0
    weights = softmax(log_ratios)
    while power > 0.01 and 1 / np.square(weights).sum() < n_chains:
        power /= 2
        weights = softmax(power * log_ratios)
    chosen = systematic_resample(weights, n_chains, rng=rng)
    points: np.ndarray = space.free(known.draws)[rng.permutation(chosen)]
    return points


def around_draws(points: np.ndarray) -> Iterator[Normal]:
    """Yield the normal distribution with the mean and covariance of draws (n_draws, n_dims).

    Unless they are too few for their dimensions.
    """
    n_draws, n_dims = points.shape
    if n_draws >= 5 * n_dims:
        with suppress(LinAlgError):
            root = cholesky(inv(np.atleast_2d(np.cov(points.T))), lower=True)
            yield heavy_tailed(points.mean(axis=0), root)


def asks_for_nuts(options: Mapping[str, object]) -> bool:
    """Whether options of `pm.sample` configure the start of NUTS, or a step method.

    Examples
    --------
    >>> asks_for_nuts({"draws": 100, "target_accept": 0.9}), asks_for_nuts({"draws": 100})
    (True, False)
    """
    return bool(_OTHER_STARTS & options.keys() or options.keys() - _OWN)


def known_metric(
    model: pm.Model, known: Proposal[Draws], space: Unconstrained, options: SampleOptions
) -> dict[str, object]:
    """Return options of `pm.sample` for a posterior near a known distribution.

    NUTS adapts a diagonal metric by default, over a thousand steps.  In the coordinates of the
    posterior's own covariance its trajectories are short, even for correlated variables, and only
    the step size needs tuning.

    Parameters
    ----------
    model : pm.Model
        All its free variables are continuous.
    known : Proposal
        Near the posterior, in the model's unconstrained space: the precision around its largest
        mode, or else of its draws, gives the metric, and some of its draws the starting points of
        the chains, divided among the modes.
    space : Unconstrained
        Of the model.
    options : mapping of str
        Options for `pm.sample`, with ``chains`` and ``compile_kwargs``.  Returned unchanged if they
        configure the start of NUTS, or the importance weights of the proposal are unreliable.

    Returns
    -------
    dict of str

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", sigma=3.0)
    >>> from pymc_coresets.sampling.normal import heavy_tailed
    >>> around = heavy_tailed(np.zeros(1), np.eye(1) / 3)
    >>> draws = Draws({"mu": np.linspace(-4.0, 4.0, 50)})
    >>> known = Proposal(draws=draws, log_ratios=np.zeros(50), around=around)
    >>> options = {"chains": 2, "compile_kwargs": {}}
    >>> found = known_metric(model, known, Unconstrained(model), options)
    >>> found["step"].potential.velocity(np.ones(1)), len(found["initvals"])
    (array([9.]), 2)
    """
    if _OTHER_STARTS & options.keys() or not known.is_reliable:
        return dict(options)
    rng, n_chains = generator(options.get("random_seed")), options["chains"]
    chosen = known.draws.take(_beginnings(known, n_chains, rng))
    for near in normal_of(known, space):
        return _with_metric(model, near.factor, chosen, space, options, rng)
    return {"init": "adapt_diag", "initvals": _points(chosen, space), **options}


def _points(draws: Draws, space: Unconstrained) -> list[KnownStart]:
    values = ({n: own[i] for n, own in draws.values.items()} for i in range(draws.n_draws))
    points = map(space.point, space.free(draws))
    return [KnownStart(own, point) for own, point in zip(values, points, strict=True)]


def _with_metric(
    model: pm.Model,
    precision: CholeskyFactor,
    starts: Draws,
    space: Unconstrained,
    options: Mapping[str, object],
    rng: np.random.Generator,
) -> dict[str, object]:
    """Return options of `pm.sample` for NUTS with a metric, from one draw for each chain."""
    # `pm.sample` passes options that are not its own parameters to the step method.
    of_nuts = options.keys() - _OWN
    stream = rng.spawn(1)[0]
    # With longer steps than for 0.9, trajectories diverge if the tails are not normal.
    step = pm.NUTS(
        potential=PrecisionPotential(precision, stream, pytensor.config.floatX),
        model=model,
        initial_point=space.initial_point,
        compile_kwargs=options["compile_kwargs"],
        rng=stream,
        **{"target_accept": 0.9} | {name: options[name] for name in of_nuts},
    )
    density = step._logp_dlogp_func  # noqa: SLF001 (which PyMC keeps under no other name)
    step.integrator = PrecisionLeapfrog(step.potential, density)
    return {"tune": 300} | {
        **{name: value for name, value in options.items() if name not in of_nuts},
        "step": step,
        "initvals": _points(starts, space),
    }


def _beginnings(known: Proposal[Draws], n_chains: int, rng: np.random.Generator) -> np.ndarray:
    """Choose the starting points of chains, cycling through the modes."""
    n_draws = known.draws.n_draws
    if known.modes is None or len(known.modes) == 1:
        return rng.choice(n_draws, n_chains, replace=n_chains > n_draws)
    nearest = known.modes.nearest(known.draws.values)
    which = [np.flatnonzero(nearest == mode) for mode in range(len(known.modes))]
    which = [draws for draws in which if len(draws)]
    return np.array([rng.choice(which[chain % len(which)]) for chain in range(n_chains)])
