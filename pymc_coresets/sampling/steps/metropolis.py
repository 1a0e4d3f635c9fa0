"""Independence Metropolis-Hastings: draws without a sampler where the posterior is known well."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from scipy.linalg import LinAlgError, cholesky, inv
from scipy.special import logsumexp, softmax

from pymc_coresets.compat.pymc_api import BlockedStep, StepMethodState
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.diagnostics.importance_draws import Proposal
from pymc_coresets.options import generator
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.proposal import HeavyTailed, KnownDensity
from pymc_coresets.sampling.steps.metric import asks_for_nuts

_PILOT = 1_000  # proposals
_MOST_PRODUCTS = 2**23  # for a proposal: thousands are made before it is known whether they serve
# What a draw of NUTS takes: gradients, each as long as so many products in Python, and of products.
_GRADIENTS, _IN_PYTHON, _OF_A_GRADIENT = 15, 1e5, 3
_DRAWS_PER_DIM = 5  # whose covariance is as good as the posterior's


type LogDensity = Callable[[np.ndarray], np.ndarray]
type Weighed = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class IndependentProposals:
    """Proposals that do not depend on where a chain is, and the density that they approximate.

    Parameters
    ----------
    space : Unconstrained
    around : KnownDensity
        What they are drawn from.
    log_density : callable
        That of the posterior at points (n_points, n_dims), in nats up to a constant: (n_points,).
    n_skipped : int, default 1
        Proposals for each draw of a chain.
    pilot : tuple of ndarray, optional
        What `weighed` returned for some first ones, among which chains begin.
    """

    space: Unconstrained
    around: KnownDensity
    log_density: LogDensity
    n_skipped: int = 1
    pilot: Weighed | None = None

    def weighed(self, n: int, rng: np.random.Generator) -> Weighed:
        """Return proposals (n, n_dims), the log-density there, and their log-weights, (n,)."""
        x, logq = self.around.draw(n, rng=rng)
        with np.errstate(all="ignore"):  # where it is not finite, no chain goes
            logp = np.nan_to_num(self.log_density(x), nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
        return x, logp, logp - logq

    def tried(self, most: int, rng: np.random.Generator) -> "IndependentProposals | None":
        """Say how many proposals a draw needs, by a thousand; None if they are more than `most`.

        Or if Pareto k-hat says that the weights have no mean.  Where a chain stays longest, at the
        largest weight, it accepts one of as many as that is times the mean weight: after so many
        proposals, it has hardly ever stayed.
        """
        pilot = self.weighed(_PILOT, rng)
        log_weights = pilot[2]
        finite = log_weights[np.isfinite(log_weights)]
        if len(finite) < _PILOT // 2 or pareto_smooth(finite[None]).pareto_khat > KHAT_RELIABLE:
            return None
        n = math.ceil(_PILOT * math.exp(finite.max() - logsumexp(finite)))
        return replace(self, n_skipped=n, pilot=pilot) if n <= most else None


def around_draws(points: np.ndarray) -> HeavyTailed | None:
    """Return the distribution with mean and covariance of draws (n_draws, n_dims).

    None where they are too few for their dimensions.
    """
    n_draws, n_dims = points.shape
    if n_draws < _DRAWS_PER_DIM * n_dims:
        return None
    try:
        precision = inv(np.atleast_2d(np.cov(points.T)))
        return HeavyTailed(points.mean(axis=0), cholesky(precision, lower=True))
    except LinAlgError:
        return None


def without_nuts(
    model: pm.Model,
    known: Proposal[Draws],
    density: Callable[[], tuple[Unconstrained, LogDensity]],
    n_products: int,
    options: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return options of `pm.sample` for draws that are proposed independently of each other.

    Parameters
    ----------
    model : pm.Model
    known : Proposal
        Near the posterior, in the model's unconstrained space.
    density : callable
        Returns that space, and the log-density of the model there.
    n_products : int
        Of numbers, for the density at one point.
    options : mapping of str
        What `pm.sample` would be passed.

    Returns
    -------
    dict of str, or None
        None where NUTS is to be used: an option is one of NUTS, or it does better.
    """
    if n_products > _MOST_PRODUCTS or asks_for_nuts(options):
        return None
    (space, log_density), around = density(), known.around
    if not isinstance(around, KnownDensity):
        around = around_draws(space.free(known.draws))
        if around is None:
            return None
    of_nuts = _GRADIENTS * (_IN_PYTHON + _OF_A_GRADIENT * n_products)
    most = int(of_nuts // (n_products + around.n_products))
    if not most:
        return None
    if isinstance(around, HeavyTailed):
        around = around.split(log_density)
    rng = generator(options.get("random_seed")).spawn(1)[0]
    proposals = IndependentProposals(space, around, log_density).tried(most, rng)
    if proposals is None:
        return None
    with model:
        step = IndependenceMetropolis(model.value_vars, proposals)
    return {"tune": 0, **options, "cores": 1, "step": step}


class IndependenceMetropolis(BlockedStep):  # type: ignore[misc] # PyMC's are not typed
    """Independence Metropolis-Hastings as a step method of PyMC.

    All proposals of a chain are drawn and evaluated at once when it begins, at one of the pilot
    that is chosen by its weight: there is nothing to tune.  Exact as MCMC is, and uniformly ergodic
    where the weights are bounded (Tierney 1994; Mengersen and Tweedie 1996).

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
    ...     space, around = Unconstrained(model), HeavyTailed(np.array([3.2]), np.eye(1))
    ...     proposals = IndependentProposals(
    ...         space, around, lambda x: -((x[:, 0] - 3.0) ** 2) / 2
    ...     )
    ...     step = IndependenceMetropolis(model.value_vars, proposals)
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
        self._proposals = proposals

    def setup_chain(self, rng: np.random.Generator, tune: int, draws: int) -> None:
        """Draw all proposals of a chain, and run it."""
        super().setup_chain(rng, tune, draws)
        n_draws, own = tune + draws, self._proposals
        pilot = own.weighed(_PILOT, self.rng) if own.pilot is None else own.pilot
        more = own.weighed(n_draws * own.n_skipped, self.rng)
        x, logp, log_weights = (np.concatenate(both) for both in zip(pilot, more, strict=True))
        where = self._path(log_weights)
        moved = np.diff(where) != 0
        kept = where[own.n_skipped :: own.n_skipped]
        self._accepted = moved.reshape(n_draws, -1).mean(axis=1)
        self._points, self._logp, self._next = x[kept], logp[kept], 0

    def _path(self, log_weights: np.ndarray) -> np.ndarray:
        """Return where a chain begins, and where it is after each proposal, as their numbers.

        It begins at one of the pilot, which are not proposed.
        """
        now = int(self.rng.choice(_PILOT, p=softmax(log_weights[:_PILOT])))
        limits = log_weights - np.log(self.rng.uniform(size=len(log_weights)))
        heights, path = log_weights.tolist(), [now]
        for i, limit in enumerate(limits[_PILOT:].tolist(), _PILOT):
            if limit >= heights[now]:
                now = i
            path.append(now)
        return np.array(path)

    def step(self, point: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[Any]]:  # noqa: ARG002
        """Go to the next point of the chain."""
        i = self._next
        self._next += 1
        stats = {"tune": self.tune, "accepted": self._accepted[i], "lp": self._logp[i]}
        return self._proposals.space.point(self._points[i]), [stats]
