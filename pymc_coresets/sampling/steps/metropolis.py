"""Independence Metropolis-Hastings, whose proposals are drawn and evaluated in advance."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, MIN_DRAWS, pareto_smooth
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.normal import KnownDensity
from pymc_coresets.sampling.steps.playback import Recorded

#: Products for the proposals of all chains: a few seconds.
_QUICK = 1e10
#: Numbers in proposals drawn ahead, for all chains: half a gigabyte.
_NUMBERS = 2**26

type Weighed = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class IndependentProposals:
    """Draws of a known distribution, independent of the chain's state, and their weights.

    A chain starts at any proposal, so there is nothing to tune.  Exact like any MCMC, and uniformly
    ergodic if the weights are bounded (Tierney 1994; Mengersen and Tweedie 1996).

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
    drawn : tuple of ndarray
        Result of `weighed` for the proposals of all chains, or of the first, or of none.

    References
    ----------
    Tierney (1994). Markov chains for exploring posterior distributions. Annals of Statistics 22(4).
    """

    space: Unconstrained
    around: KnownDensity
    log_density: Callable[[np.ndarray], np.ndarray]
    n_of_density: float = 0.0
    n_skipped: int = 1
    drawn: Weighed = np.empty((0, 0)), np.empty(0), np.empty(0)

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
    ) -> "Iterator[IndependentProposals]":
        """Draw proposals for n draws of all chains, unless each needs more than `most`.

        A pilot of a thousand determines their number per draw: the ratio of the largest weight to
        the mean, after which a chain has almost certainly moved.  If these would take more than a
        few seconds, a pilot of n follows, and there are fewer, but at least twice as many as give
        one independent draw by their weights.

        Then the weights of all of them, or as many as fit into memory, are checked.  Yields nothing
        if they are unreliable by Pareto k-hat.  While a chain would not move for more than a
        hundredth of its draws, each draw takes more proposals.
        """
        if most < 1:
            return
        quick = int(_QUICK // (n * self.n_products))
        longest, efficiency = _summary(self.weighed(1_000, rng)[2])
        if quick < longest < math.inf:
            longest, efficiency = _summary(self.weighed(n, rng)[2])
        if longest > most:
            return
        n_skipped = max(min(math.ceil(longest), quick), math.ceil(2 / efficiency))
        may_stay, in_memory = max(n / n_chains / 100, 1.0), _NUMBERS // self.space.n_dims
        drawn = self.weighed(min(n * n_skipped, in_memory), rng)
        while True:
            longest, _ = _summary(drawn[2])
            if longest <= may_stay * n_skipped:
                yield replace(self, n_skipped=n_skipped, drawn=drawn)
                return
            if longest / may_stay > most:
                return
            n_skipped = math.ceil(longest / may_stay)
            if n_more := min(n * n_skipped, in_memory) - len(drawn[2]):
                both = zip(drawn, self.weighed(n_more, rng), strict=True)
                x, logp, log_weights = (np.concatenate(each) for each in both)
                drawn = x, logp, log_weights

    def chain(self, number: int, n_draws: int, *, rng: np.random.Generator) -> Recorded:
        """Run a chain through proposals of its own, see `Playback`."""
        n_skipped = self.n_skipped
        x, logp, log_weights = self._own(number, n_draws * n_skipped, rng)
        begin = int(rng.choice(np.flatnonzero(np.isfinite(log_weights))))
        numbers = np.concatenate([[begin], np.arange(len(log_weights))])
        where = numbers[path(log_weights[numbers], rng=rng)]
        kept = where[n_skipped::n_skipped]
        accepted = (np.diff(where) != 0).reshape(-1, n_skipped).mean(axis=1)
        return x[kept], logp[kept], accepted

    def _own(self, number: int, n: int, rng: np.random.Generator) -> Weighed:
        """Return a chain's proposals drawn in advance, or new ones if these are used up."""
        some = slice(number * n, (number + 1) * n)
        if some.stop > len(self.drawn[2]):
            return self.weighed(n, rng)
        x, logp, log_weights = (values[some] for values in self.drawn)
        return x, logp, log_weights


def path(log_weights: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    """Return a chain's state after each proposal, by numbers; it starts at the first."""
    limits = log_weights - np.log(rng.uniform(size=len(log_weights)))
    now, heights, numbers = 0, log_weights.tolist(), [0]
    for i, limit in enumerate(limits[1:].tolist(), 1):
        if limit >= heights[now]:
            now = i
        numbers.append(now)
    return np.array(numbers)


def _summary(log_weights: np.ndarray) -> tuple[float, float]:
    """Summarise the importance weights of proposals.

    Return the ratio of the largest weight to the mean, infinite if they are unreliable; and the
    effective sample size as a share of the draws.
    """
    unreliable = math.inf, 0.0
    n, finite = len(log_weights), log_weights[np.isfinite(log_weights)]
    if len(finite) < n // 2:
        return unreliable
    log_mean = logsumexp(finite) - math.log(n)
    longest = math.exp(finite.max() - log_mean)
    # The tail is not informative for weights in groups, as from a mixture of proposals.
    heavy = longest > math.sqrt(n) / 2
    few = len(finite) < MIN_DRAWS
    if heavy and (few or pareto_smooth(finite[None]).pareto_khat > KHAT_RELIABLE):
        return unreliable
    square = math.exp(logsumexp(2 * finite) - math.log(n) - 2 * log_mean)
    return longest, 1 / square
