"""Starting information for `pm.sample` near a known posterior: proposals, or a metric."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from scipy.linalg import LinAlgError, cholesky, inv
from scipy.special import logsumexp

from pymc_coresets.compat.pymc_api import BlockedStep, StepMethodState
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, MIN_DRAWS, pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.options import generator
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.density import WeightedPosterior
from pymc_coresets.sampling.normal import (
    CholeskyFactor,
    KnownDensity,
    Mixture,
    Normal,
    heavy_tailed,
)
from pymc_coresets.sampling.steps.nuts import PrecisionLeapfrog, PrecisionPotential

#: Products for the proposals of all chains: a few seconds.
_QUICK = 1e10
#: Numbers in proposals drawn ahead, for all chains: half a gigabyte.
_NUMBERS = 2**26
#: Options of `pm.sample` itself, and those that configure the start of NUTS.
_OWN = frozenset(signature(pm.sample).parameters)
_OTHER_STARTS = {"step", "init", "initvals", "nuts", "nuts_sampler_kwargs", "n_init"}


type Weighed = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class IndependentProposals:
    """Draws of a known distribution, independent of the chain's state, and their weights.

    Parameters
    ----------
    space : Unconstrained
    around : KnownDensity
    log_density : callable
        Of points (n_points, n_dims), in nats up to a constant: (n_points,).
    n_of_density : float, default 0
        Its cost at a point, in products.
    n_skipped : int, default 1
        Number of proposals per draw of a chain.
    drawn : tuple of ndarray, optional
        Result of `weighed` for the proposals of all chains, or of the first.
    """

    space: Unconstrained
    around: KnownDensity
    log_density: Callable[[np.ndarray], np.ndarray]
    n_of_density: float = 0.0
    n_skipped: int = 1
    drawn: Weighed | None = None

    @property
    def n_products(self) -> float:
        """Approximate cost of a proposal, in products."""
        return self.around.n_products + self.n_of_density

    def weighed(self, n: int, rng: np.random.Generator) -> Weighed:
        """Return proposals (n, n_dims), the log-density there, and their log-weights, (n,)."""
        with np.errstate(all="ignore"):  # points that are not finite are never accepted
            x, logq = self.around.draw(max(n, 100), rng=rng)  # a tenth are from a t
            logp = self.log_density(x[:n])
            logp, log_weights = (
                np.nan_to_num(own, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
                for own in (logp, logp - logq[:n])
            )
        return x[:n], logp, log_weights

    def tried(
        self, n: int, most: int, rng: np.random.Generator, *, n_chains: int = 1
    ) -> "IndependentProposals | None":
        """Draw proposals for n draws of all chains; None if each needs more than `most`.

        A pilot of a thousand determines their number per draw: the ratio of the largest weight to
        the mean, after which a chain has almost certainly moved.  If these would take more than a
        few seconds, there are fewer, but at least twice as many as give one independent draw by
        their weights.

        Then the weights of all of them, or as many as fit into memory, are checked.  None if they
        are unreliable by Pareto k-hat.  While a chain would not move for more than a hundredth of
        its draws, each draw takes more proposals.
        """
        weights = _Weights.of(self.weighed(1_000, rng)[2])
        if weights is None or weights.longest > most:
            return None
        quick = int(_QUICK // (n * self.n_products))
        n_skipped = max(min(math.ceil(weights.longest), quick), math.ceil(2 / weights.efficiency))
        may_stay, in_memory = max(n / n_chains / 100, 1.0), _NUMBERS // self.space.n_dims
        drawn = self.weighed(min(n * n_skipped, in_memory), rng)
        while True:
            weights = _Weights.of(drawn[2])
            if weights is None:
                return None
            if weights.longest <= may_stay * n_skipped:
                return replace(self, n_skipped=n_skipped, drawn=drawn)
            n_skipped = math.ceil(weights.longest / may_stay)
            if n_skipped > most:
                return None
            if n_more := min(n * n_skipped, in_memory) - len(drawn[2]):
                both = zip(drawn, self.weighed(n_more, rng), strict=True)
                x, logp, log_weights = (np.concatenate(each) for each in both)
                drawn = x, logp, log_weights


@dataclass(frozen=True)
class _Weights:
    """Summary of the importance weights of proposals, if these are reliable.

    Ratio of the largest weight to the mean, and effective sample size as a share of the draws.
    """

    longest: float
    efficiency: float

    @classmethod
    def of(cls, log_weights: np.ndarray) -> "_Weights | None":
        n, finite = len(log_weights), log_weights[np.isfinite(log_weights)]
        if len(finite) < n // 2:
            return None
        log_mean = logsumexp(finite) - math.log(n)
        longest = math.exp(finite.max() - log_mean)
        # The tail is not informative for weights in groups, as from a mixture of proposals.
        heavy = longest > math.sqrt(n) / 2
        few = len(finite) < MIN_DRAWS
        if heavy and (few or pareto_smooth(finite[None]).pareto_khat > KHAT_RELIABLE):
            return None
        square = math.exp(logsumexp(2 * finite) - math.log(n) - 2 * log_mean)
        return cls(longest, 1 / square)


def around_draws(points: np.ndarray) -> Normal | None:
    """Return the normal distribution with the mean and covariance of draws (n_draws, n_dims).

    None if they are too few for their dimensions.
    """
    n_draws, n_dims = points.shape
    if n_draws < 5 * n_dims:
        return None
    try:
        precision = inv(np.atleast_2d(np.cov(points.T)))
        return heavy_tailed(points.mean(axis=0), cholesky(precision, lower=True))
    except LinAlgError:
        return None


def without_nuts(
    model: pm.Model,
    known: Proposal[Draws],
    posterior: WeightedPosterior,
    options: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return options of `pm.sample` for independent proposals.

    Parameters
    ----------
    model : pm.Model
    known : Proposal
        Near the posterior, in the model's unconstrained space.
    posterior : WeightedPosterior
        Of the same model.
    options : mapping of str
        Options for `pm.sample`.

    Returns
    -------
    dict of str, or None
        None if NUTS should be used: an option is one of NUTS, or NUTS is more efficient.
    """
    # Thousands of proposals are made before their weights can be checked.
    if posterior.n_products > 2**23 or asks_for_nuts(options):
        return None
    # A draw of NUTS takes 15 gradients of three times as many products, and as long in Python as
    # 10^5 of them.
    of_nuts = 15 * (1e5 + 3 * posterior.n_products)
    rng = generator(options.get("random_seed")).spawn(1)[0]
    n_chains = options.get("chains", 1)
    n_draws = options.get("draws", 1_000) * n_chains
    around = _around(known, posterior)
    if around is None:
        return None
    proposals = IndependentProposals(
        posterior.space, around, posterior.log_density, posterior.n_products
    )
    most = int(of_nuts // proposals.n_products)
    found = proposals.tried(n_draws, most, rng, n_chains=n_chains) if most else None
    if found is None:
        return None
    with model:
        step = IndependenceMetropolis(model.value_vars, found)
    # The draws are known: PyMC's table of their progress would show that none are made per second.
    return {"tune": 0, **options, "cores": 1, "step": step, "progressbar": False}


def _around(known: Proposal[Draws], posterior: WeightedPosterior) -> KnownDensity | None:
    around: KnownDensity | None = known.around
    if not isinstance(around, KnownDensity):
        around = around_draws(posterior.space.free(known.draws))
    if isinstance(around, Normal | Mixture):
        return around.split(posterior.log_density)
    return around


class IndependenceMetropolis(BlockedStep):  # type: ignore[misc] # PyMC's are not typed
    """Independence Metropolis-Hastings as a step method of PyMC.

    A chain starts at any proposal, and all its proposals are drawn and evaluated in advance, so
    there is nothing to tune.  Exact like any MCMC, and uniformly ergodic if the weights are bounded
    (Tierney 1994; Mengersen and Tweedie 1996).

    Parameters
    ----------
    vars : list of Variable
        All of the model.
    proposals : IndependentProposals

    References
    ----------
    Tierney (1994). Markov chains for exploring posterior distributions. Annals of Statistics 22(4).

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 3.0, 1.0)
    ...     space, around = Unconstrained(model), heavy_tailed(np.array([3.2]), np.eye(1))
    ...     own = IndependentProposals(space, around, lambda x: -((x[:, 0] - 3.0) ** 2) / 2)
    ...     step = IndependenceMetropolis(model.value_vars, own)
    ...     idata = pm.sample(
    ...         1_000, tune=0, chains=2, cores=1, step=step, random_seed=1, progressbar=False
    ...     )
    >>> bool(abs(idata["posterior"]["mu"].mean() - 3.0) < 0.1)
    True
    """

    name = "independence_metropolis"
    default_blocked = True
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "tune": (bool, []),
        "accepted": (float, []),
        "lp": (float, []),
    }
    _state_class = StepMethodState

    def __init__(
        self,
        vars: list[Any],  # noqa: A002 (PyMC's name)
        proposals: IndependentProposals,
        *,
        model: pm.Model | None = None,  # noqa: ARG002 (which PyMC adds)
        blocked: bool = True,  # noqa: ARG002
    ) -> None:
        self.vars, self.rng, self.tune = vars, np.random.default_rng(), False
        self._proposals, self._n_used = proposals, 0

    def setup_chain(self, rng: np.random.Generator, tune: int, draws: int) -> None:
        """Run a chain through proposals of its own."""
        super().setup_chain(rng, tune, draws)
        n_skipped = self._proposals.n_skipped
        x, logp, log_weights = self._own((tune + draws) * n_skipped)
        begin = int(self.rng.choice(np.flatnonzero(np.isfinite(log_weights))))
        numbers = np.concatenate([[begin], np.arange(len(log_weights))])
        where = numbers[self._path(log_weights[numbers])]
        kept = where[n_skipped::n_skipped]
        self._points, self._logp = x[kept], logp[kept]
        self._accepted = (np.diff(where) != 0).reshape(-1, n_skipped).mean(axis=1)
        self._next = 0

    def _own(self, n: int) -> Weighed:
        """Return the next proposals drawn in advance, or new ones if these are used up."""
        drawn, first = self._proposals.drawn, self._n_used
        self._n_used += n
        if drawn is None or self._n_used > len(drawn[2]):
            return self._proposals.weighed(n, self.rng)
        x, logp, log_weights = (values[first : self._n_used] for values in drawn)
        return x, logp, log_weights

    def _path(self, log_weights: np.ndarray) -> np.ndarray:
        """Return a chain's state after each proposal, by numbers; it starts at the first."""
        limits = log_weights - np.log(self.rng.uniform(size=len(log_weights)))
        now, heights, path = 0, log_weights.tolist(), [0]
        for i, limit in enumerate(limits[1:].tolist(), 1):
            if limit >= heights[now]:
                now = i
            path.append(now)
        return np.array(path)

    def step(self, point: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[Any]]:  # noqa: ARG002
        """Move to the next point of the chain."""
        i = self._next
        self._next += 1
        stats = {"tune": self.tune, "accepted": self._accepted[i], "lp": self._logp[i]}
        return self._proposals.space.point(self._points[i]), [stats]


def asks_for_nuts(options: Mapping[str, Any]) -> bool:
    """Whether options of `pm.sample` configure the start of NUTS, or a step method.

    Examples
    --------
    >>> asks_for_nuts({"draws": 100, "target_accept": 0.9}), asks_for_nuts({"draws": 100})
    (True, False)
    """
    return bool(_OTHER_STARTS & options.keys() or options.keys() - _OWN)


def known_metric(
    model: pm.Model, known: Proposal[Draws], space: Unconstrained, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options of `pm.sample` for a posterior near a known distribution.

    NUTS adapts a diagonal metric by default, over a thousand steps.  In the coordinates of the
    posterior's own covariance its trajectories are short, even for correlated variables, and only
    the step size needs tuning.

    Parameters
    ----------
    model : pm.Model
        All its free variables are continuous.
    known : Proposal
        Near the posterior, in the model's unconstrained space: its covariance or precision gives
        the metric, and some of its draws the starting points of the chains, divided among the
        modes.  Without a known distribution, the covariance is that of the draws.
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
    chosen = known.draws.take(_beginnings(known, n_chains, rng)).values
    starts = [{name: own[chain] for name, own in chosen.items()} for chain in range(n_chains)]
    # Some distributions provide the posterior's width, which may exceed their own.
    around = getattr(known.around, "metric", known.around)
    if around is None:
        around = around_draws(space.free(known.draws))
    if around is None:
        return {"init": "adapt_diag", "initvals": starts, **options}
    # `pm.sample` passes options that are not its own parameters to the step method.
    of_nuts = options.keys() - _OWN
    stream = rng.spawn(1)[0]
    by: dict[str, Any] = (
        {"potential": PrecisionPotential(around, stream)}
        if isinstance(around, CholeskyFactor)
        else {"scaling": around.covariance, "is_cov": True}
    )
    # With longer steps than for 0.9, trajectories diverge if the tails are not normal.
    step = pm.NUTS(
        **by,
        model=model,
        compile_kwargs=options["compile_kwargs"],
        rng=stream,
        **{"target_accept": 0.9} | {name: options[name] for name in of_nuts},
    )
    if isinstance(around, CholeskyFactor):
        density = step._logp_dlogp_func  # noqa: SLF001 (which PyMC keeps under no other name)
        step.integrator = PrecisionLeapfrog(step.potential, density)
    return {"tune": 300} | {
        **{name: value for name, value in options.items() if name not in of_nuts},
        "step": step,
        "initvals": starts,
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
