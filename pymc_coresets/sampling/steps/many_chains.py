"""Draws by many short chains at once, which are tuned together and judged by their agreement."""

import logging
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, inv
from scipy.stats import chi2

from pymc_coresets.diagnostics.judging import RHAT_CONVERGED
from pymc_coresets.diagnostics.posterior_draws import evenly
from pymc_coresets.diagnostics.short_chains import agreement
from pymc_coresets.sampling.factors.cholesky import DenseFactor
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.steps.playback import Recorded
from pymc_coresets.sampling.steps.split_hmc import QUARTER, SplitHmc

#: Largest relative difference of the angle of a trajectory from a quarter turn.
_JITTER = 0.3
#: Nats by which the energy of a trajectory may grow.  If nine in ten are accepted, the standard
#: deviation is a third of a nat: more means that steps are too long for a part of the posterior,
#: which chains then do not enter.  The share of such trajectories, as for divergences of NUTS.
_DIVERGENT, _FEW = 10.0, 1e-3
#: Acceptance of trajectories that are tuned enough, what it is tuned to, and where tuning fails.
_ENOUGH, _WANTED, _LEAST = (0.86, 0.97), 0.92, 0.8
#: Rounds of tuning, trajectories of each, and largest number of steps of a trajectory.
_ROUNDS, _LENGTH, _MOST_STEPS = 16, 10, 128
#: Changes of the normal distribution around chains that need no further tuning, and those after
#: which chains are still on their way.
_SETTLED, _UNSETTLED = 0.1, 0.5
#: Least draws of a chain, of whose halves R-hat of hundreds of entries is below 1.01 at rest.
_SHORTEST = 60
#: Least factor by which chains become longer, and share of their draws that is left out then.
_LONGER, _LEFT_OUT = 1.25, 0.25
#: Effective draws of a chain, of whose halves R-hat is at its limit, and least number of chains.
_OF_CHAIN, _FEWEST = 2 * RHAT_CONVERGED**2 / (RHAT_CONVERGED**2 - 1), 16
#: Largest numbers of gradients that tuning takes, and all draws, as multiples of `most`: NUTS does
#: not mix well either where these chains need more.  The factor of the latter if chains nearly
#: agree: NUTS would begin anew where less than as many draws again are missing.
_TUNING, _PATIENCE, _NEAR = 0.5, 3.0, 2.0

_log = logging.getLogger(__name__)


class Paths(NamedTuple):
    """Draws of chains: points (n_draws, n_chains, n_dims), log-densities, and acceptance there."""

    points: np.ndarray
    values: np.ndarray
    chances: np.ndarray

    def of_first(self, n_chains: int) -> "Paths":
        """Return the draws of the first chains alone."""
        return Paths(*(own[:, :n_chains] for own in self))

    def followed_by(self, more: "Paths") -> "Paths":
        """Continue the chains; the first of these draws are left out, as nearer to the starts."""
        old = (own[round(_LEFT_OUT * len(own)) :] for own in self)
        return Paths(*map(np.concatenate, zip(old, more, strict=True)))

    def joined(self, n_chains: int, n_draws: int) -> "Paths":
        """Join chains end to end: as many draws of each as the result needs, evenly spread.

        Parameters
        ----------
        n_chains : int
            Of the result, which divides that of these.
        n_draws : int
            Of each chain of the result.

        Examples
        --------
        >>> numbers = np.arange(12.0).reshape(3, 4)  # of four chains, three draws each
        >>> joined = Paths(numbers[..., None], numbers, numbers).joined(2, 5)
        >>> joined.values.T
        array([[ 0.,  4.,  8.,  1.,  5.],
               [ 2.,  6., 10.,  3.,  7.]])
        """
        n_each = self.values.shape[1] // n_chains
        kept = evenly(np.arange(len(self.values)), math.ceil(n_draws / n_each))

        def join(own: np.ndarray) -> np.ndarray:
            by_chain = np.swapaxes(own[kept], 0, 1)
            every = by_chain.reshape(n_chains, n_each * len(kept), *own.shape[2:])
            return np.swapaxes(every[:, :n_draws], 0, 1)

        return Paths(*map(join, self))

    def chain(self, number: int, n_draws: int, *, rng: np.random.Generator) -> Recorded:  # noqa: ARG002
        """Return a chain by its number, see `pymc_coresets.sampling.steps.playback`."""
        points, values, chances = (own[:n_draws, number] for own in self)
        return points, values, chances


@dataclass(frozen=True, eq=False)
class WarmUp:
    """What chains found that do not agree: NUTS goes on from there, if they were tuned.

    Parameters
    ----------
    around : Normal
        Estimated from all chains together.
    points : ndarray of shape (n_chains, n_dims)
        Where the chains are.
    settled : bool
        Whether enough trajectories were accepted, and the normal distribution hardly changed.
    """

    around: Normal
    points: np.ndarray
    settled: bool


@dataclass(frozen=True, kw_only=True)
class ManyChains:
    """A sampler of many chains of split Hamiltonian Monte Carlo.

    The chains share the number of steps of their trajectories, and the normal distribution around
    them, which are estimated from all of them together.  Each trajectory has an angle of its own,
    near a quarter turn.

    Parameters
    ----------
    n_chains : int
        Number of chains.
    n_draws : int
        Number of draws that are wanted, of all chains together.
    most : float
        Number of gradients that NUTS is expected to take.  Chains take three times as many at most,
        and six times if less than as many draws again are missing.
    n_joined : int, default 1
        Number of chains of the result, see `Paths.joined`: a divisor of `n_chains`.

    Notes
    -----
    R-hat of halves is 1.01 if each chain has a hundred effective draws.  Chains that mix slowly
    have more of them together than are wanted, before each has so many: then only as many go on as
    have half the number that is wanted, 16 at least.  These are the first, whatever their places.

    Examples
    --------
    Logarithms of gamma variables, which are skewed, from a normal distribution of another width:

    >>> sampler = ManyChains(n_chains=64, n_draws=4_000, most=1e6)
    >>> rng = np.random.default_rng(1)
    >>> hmc = SplitHmc(
    ...     lambda x: ((5 * x - np.exp(x)).sum(axis=1), 5 - np.exp(x)),
    ...     Normal(np.full(3, 1.0), DenseFactor.of(np.eye(3))),
    ... )
    >>> paths = sampler.draw(hmc, rng.normal(1.5, 0.5, size=(64, 3)), rng=rng)
    >>> paths.points.shape[1:], np.exp(paths.points).mean().round(1)
    ((64, 3), np.float64(5.0))
    """

    n_chains: int
    n_draws: int
    most: float
    n_joined: int = 1

    def draw(
        self, hmc: SplitHmc, starts: np.ndarray, *, rng: np.random.Generator
    ) -> Paths | WarmUp:
        """Return draws of all chains; what tuning found if they do not agree.

        Parameters
        ----------
        hmc : SplitHmc
            What moves them, at first.
        starts : ndarray of shape (n_chains, n_dims)
            Spread as widely as the density, where it is finite.
        rng : numpy.random.Generator

        Returns
        -------
        Paths, or WarmUp
            With R-hat at most 1.01, and as evenly spread draws as are wanted at least half their
            number in effective ones: of each coordinate and of the log-density.  No draws if more
            than one trajectory in a thousand diverges, or so many gradients do not suffice; or if
            too few trajectories are accepted, or the normal distribution still changes.
        """
        run = _Run(hmc, starts, self.most, rng)
        if not run.tune():
            _log.info("Many chains: steps are still too long, or the chains on their way")
            return run.tuned(settled=False)
        shortest = max(math.ceil(self.n_draws / self.n_chains), _SHORTEST)
        paths: Paths | None = None
        length = shortest
        while not run.is_over:
            more = run.drawn(length)
            if run.diverges:
                if not (run.refine() and run.is_worth(shortest)):
                    break
                length, paths = shortest, None
                continue
            paths = more if paths is None else paths.followed_by(more)
            n_draws, wanted = len(paths.values), self._wanted_length(paths)
            if wanted <= n_draws:
                _log.info("Many chains: %d gradients, %d steps", run.n_gradients, run.n_steps)
                return paths
            if wanted > 2 * n_draws:  # all of these chains would take too long
                paths = paths.of_first(run.keep_first(self._fewest()))
            if not run.is_worth(wanted - n_draws, are_near=wanted <= 2 * n_draws):
                break
            length = math.ceil(min(wanted, 2 * n_draws) - (1 - _LEFT_OUT) * n_draws)
        _log.info("Many chains: not converged after %d gradients", run.n_gradients)
        return run.tuned(settled=True)

    def _fewest(self) -> int:
        """Return the number of chains that need not have more effective draws than are wanted."""
        least = max(self.n_draws / 2 / _OF_CHAIN, _FEWEST)
        return min(math.ceil(least / self.n_joined) * self.n_joined, self.n_chains)

    def _wanted_length(self, paths: Paths) -> float:
        """Return how long chains must be, as far as they show: their own length if that is enough.

        The excess of the square of R-hat over one falls with the inverse of the length.
        """
        whole = np.concatenate([paths.points, paths.values[..., None]], axis=2)
        rhat, ess = agreement(whole)
        _log.info("Many chains of %d: R-hat %.4f, ESS %.0f", len(whole), rhat, ess)
        if not rhat <= RHAT_CONVERGED:
            excess = (rhat**2 - 1) / (RHAT_CONVERGED**2 - 1)
            return len(whole) * max(excess, _LONGER)
        n_chains = int(whole.shape[1])
        n_kept = max(math.ceil(self.n_draws / n_chains), 4)
        if n_kept > len(whole):
            return float(n_kept)
        if n_kept < len(whole):
            _, ess = agreement(whole[evenly(np.arange(len(whole)), n_kept)])
        # The least of many estimates is too low: of equal ones by that of as many variances.
        n_halves, n_estimates = 2 * n_chains, 2 * whole.shape[2]
        noise = chi2.ppf(1 - 0.5 / n_estimates, n_halves - 1) / (n_halves - 1)
        return len(whole) * (1.0 if noise * ess >= self.n_draws / 2 else 2.0)


class _Run:
    """Chains on their way: where they are, and what moves them."""

    def __init__(
        self, hmc: SplitHmc, starts: np.ndarray, most: float, rng: np.random.Generator
    ) -> None:
        self._hmc, self._most, self._rng = hmc, most, rng
        self._states = hmc.at(starts)
        self.n_steps, self.n_gradients = 4, 0
        self.n_divergent = self._n_trajectories = 0

    @property
    def is_over(self) -> bool:
        """Whether all gradients are used up."""
        return self.n_gradients > _NEAR * _PATIENCE * self._most

    def tuned(self, *, settled: bool) -> WarmUp:
        """Return where the chains are, and the normal distribution around them."""
        return WarmUp(self._hmc.around, self._states.points, settled)

    @property
    def diverges(self) -> bool:
        """Whether too many trajectories diverged since the chains were tuned."""
        return self.n_divergent > _FEW * self._n_trajectories

    def is_worth(self, n_draws: float, *, are_near: bool = False) -> bool:
        """Whether so many draws more may be made; the number is a rough estimate.

        Twice as many if the chains nearly agree.
        """
        n_more = n_draws * self.n_steps * len(self._states.points)
        patience = _NEAR * _PATIENCE if are_near else _PATIENCE
        return self.n_gradients + n_more < patience * self._most

    def keep_first(self, n_chains: int) -> int:
        """End all chains but the first, and return how many are left."""
        self._states = self._states.first(n_chains)
        return len(self._states.points)

    def drawn(self, n_draws: int, *, to_the_end: bool = False) -> Paths:
        """Continue the chains; by default, end as soon as too many trajectories diverge."""
        n_chains = len(self._states.points)
        planned = self._n_trajectories + n_draws * n_chains
        most = math.inf if to_the_end else _FEW * planned
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        while len(found) < n_draws and self.n_divergent <= most:
            angles = QUARTER * self._rng.uniform(1 - _JITTER, 1 + _JITTER, n_chains)
            moved = self._hmc.after(self._states, angles, self.n_steps, rng=self._rng)
            self._states = now = moved.states
            found.append((now.points, now.values, moved.chances))
            self.n_gradients += n_chains * self.n_steps
            self._n_trajectories += n_chains
            self.n_divergent += int((moved.lost > _DIVERGENT).sum())
        return Paths(*map(np.stack, zip(*found, strict=True)))

    def refine(self) -> bool:
        """Halve the steps; return whether this is possible."""
        self.n_steps *= 2
        _log.info("Many chains: %d trajectories diverged", self.n_divergent)
        self.n_divergent = self._n_trajectories = 0
        return self.n_steps <= _MOST_STEPS

    def tune(self) -> bool:
        """Tune the number of steps and the normal distribution; return whether this succeeded."""
        share, change = 0.0, math.inf
        for _ in range(_ROUNDS):
            paths = self.drawn(_LENGTH, to_the_end=True)
            share = float(paths.chances.mean())
            near, change = adapted(self._hmc.around, np.concatenate(list(paths.points)))
            is_tuned = _ENOUGH[0] <= share and (share <= _ENOUGH[1] or self.n_steps == 2)
            _log.info("Tuning: %d steps, %.2f accepted, change %.2f", self.n_steps, share, change)
            if is_tuned and change < _SETTLED:
                break
            if change >= _SETTLED:
                self._hmc = replace(self._hmc, around=near)
                self._states = self._hmc.at(self._states.points)
            if not is_tuned:
                wanted = self.n_steps * math.sqrt((1 - share) / (1 - _WANTED))
                wanted = float(np.clip(wanted, self.n_steps / 2, self.n_steps * 3))
                self.n_steps = min(max(round(wanted), 2), _MOST_STEPS)
            if self.n_gradients > _TUNING * self._most:
                return False
        self.n_divergent = self._n_trajectories = 0
        return share >= _LEAST and change < _UNSETTLED


def adapted(around: Normal, points: np.ndarray) -> tuple[Normal, float]:
    """Estimate a normal distribution anew from draws, and by how much it changes.

    In whitened coordinates the covariance is that of the draws, shrunk towards one by as much as
    minimises its expected squared error.  A sparse precision stays as it is.

    Parameters
    ----------
    around : Normal
    points : ndarray of shape (n_draws, n_dims)

    Returns
    -------
    Normal
    float
        Root mean square of what the covariance matrix changes.

    References
    ----------
    Ledoit, Wolf (2004). A well-conditioned estimator for large-dimensional covariance matrices.
    Journal of Multivariate Analysis 88(2). https://doi.org/10.1016/S0047-259X(03)00096-4

    Examples
    --------
    >>> points = np.random.default_rng(1).normal(0, [1.0, 3.0], size=(1_000, 2))
    >>> near, change = adapted(Normal(np.zeros(2), DenseFactor.of(np.eye(2))), points)
    >>> near.covariance.diagonal().round(0), change > 1
    (array([1., 9.]), True)
    """
    z = around.whiten(points)
    n, n_dims = z.shape
    n_free = n / 2  # draws of chains are correlated
    mean = z.mean(axis=0)
    noise, size = n_dims / n_free, float(mean @ mean)
    mean = mean * max(1 - noise / size, 0.0) if size else mean
    near = replace(around, location=around.at(mean), tails=None)
    moved = float(mean @ mean)
    if not isinstance(around.factor, DenseFactor):
        return near, math.sqrt(moved / n_dims)
    z = z - z.mean(axis=0)
    covariance = z.T @ z / n
    apart = covariance - np.eye(n_dims)
    squares = float(np.square(apart).sum())
    error = (float((np.square(z).sum(axis=1) ** 2).mean()) - np.square(covariance).sum()) / n_free
    kept = max(1 - error / squares, 0.0) if squares else 0.0
    change = math.sqrt((squares * kept**2 + moved) / n_dims)
    try:
        inverse = cholesky(inv(np.eye(n_dims) + kept * apart), lower=True)
    except (LinAlgError, ValueError):  # chains are far apart
        return around, math.inf
    return replace(near, factor=DenseFactor(around.factor.root @ inverse)), change
