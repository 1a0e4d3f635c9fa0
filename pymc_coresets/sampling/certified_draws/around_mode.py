"""Draws of the full posterior by importance weights, from around its mode: without a coreset."""

import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol, runtime_checkable

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.deadline import doing
from pymc_coresets.diagnostics.importance import Floats, khat_threshold
from pymc_coresets.diagnostics.judging import Certificate
from pymc_coresets.diagnostics.known_posterior import NOT_SOUGHT, Proposal
from pymc_coresets.diagnostics.lines import Probes
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, draws_tree
from pymc_coresets.exceptions import InvalidDataError, SamplingError
from pymc_coresets.predictive.approximate_posterior import ApproximatePosterior, KnownLikelihood
from pymc_coresets.predictive.pymc_densities import verify
from pymc_coresets.reading.draws import Draws, DrawsLike
from pymc_coresets.reading.rewrite import coreset_model
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.keyed import rows_to_start
from pymc_coresets.sampling.density import Surrogate
from pymc_coresets.sampling.modes import proposal
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.probing import Probing
from pymc_coresets.sampling.sample_and_check import importance_draws
from pymc_coresets.sampling.sample_search import FEW_TO_SEARCH
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals

ENOUGH = 1_000  #: Effective sample size of the weighted draws.
_FIRST = 100  #: Draws that show what share of them the weights leave.
_LEAST_SHARE = 0.5
#: Values of terms up to which as many independent draws are aimed at as users ask for: these take
#: less than a second, and what precedes them several.
_CHEAP = 2e8
#: Largest number of values of the density to find where it is not normal.
_MOST_VALUES = 6 * ENOUGH

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AroundMode:
    """Weighted draws of the full posterior from a known distribution near it.

    Parameters
    ----------
    loglikelihood : LogLikelihood
    proposal : Proposal
    probes : Probes
        Comparison of both densities along lines through the draws.
    enough : int
        How many independent draws the weighted ones must be worth.
    words : str
        What they are.
    """

    loglikelihood: LogLikelihood
    proposal: Proposal[Draws]
    probes: Probes
    enough: int = ENOUGH
    words: str = "Draws of the full posterior, from around its mode"

    @property
    def certificate(self) -> Certificate:
        """What the weights say of the distribution."""
        own = self.proposal
        modes = NOT_SOUGHT if own.modes is None else own.modes.seen_by(own.draws.values)
        return Certificate.of(own.smoothed, probes=self.probes, modes=modes)

    def require_certified(self) -> None:
        """Raise if the weighted draws do not follow the full posterior, or are too few.

        Raises
        ------
        SamplingError
        """
        if not self.is_certified:
            raise SamplingError(f"{self.words} are not certified: {self.certificate}")

    @property
    def is_certified(self) -> bool:
        """Whether the weighted draws follow the full posterior, and are enough."""
        found = self.certificate
        is_light = found.pareto_khat < khat_threshold(found.n_draws)
        return is_light and found.ess >= self.enough and not list(found.doubts())

    @cached_property
    def model(self) -> pm.Model:
        """The model without its rows."""
        own = self.loglikelihood
        return coreset_model(own.observations, own.some_row, np.zeros(1))

    @property
    def approximation(self) -> ApproximatePosterior:
        """The distribution in place of all rows."""
        own = self.proposal
        return replace(approximation_by(self.loglikelihood, own.around), modes=own.modes)

    def drawn(self, *, chains: int, draws: int, rng: np.random.Generator) -> xr.DataTree:
        """Return draws of the full posterior, see `importance_draws`, in chains.

        Raises
        ------
        UnsupportedModelError
            If PyMC's own log-densities contradict the weights.
        """
        idata = importance_draws(self, chains * draws, random_seed=rng)
        posterior = idata["posterior"].to_dataset()
        if 0 < self.approximation.n_in_memory <= 1_000_000:
            verify(_WithoutRows(self), draws_tree(posterior.drop_attrs()), draws=8)
        return idata.assign(posterior=xr.DataTree(in_chains(posterior, chains)))


@dataclass(frozen=True)
class _WithoutRows:
    """The prior in place of the full posterior, for a comparison with PyMC's densities."""

    of: AroundMode

    @property
    def model(self) -> pm.Model:
        return self.of.model

    @property
    def approximation(self) -> ApproximatePosterior:
        own = self.of.loglikelihood
        return replace(self.of.approximation, replacement=Surrogate(own, own.some_row, np.zeros(1)))


@runtime_checkable
class KnowsRows(Protocol):
    """A distribution that is the prior's times a known likelihood."""

    def of_rows(self, points: Floats, /) -> Floats:
        """Return the log-likelihood at points (n_points, n_dims), (n_points,), in nats."""


def _loglik_of(
    loglik: LogLikelihood, around: Normal | GriddedMarginals | KnowsRows, draws: DrawsLike
) -> Floats:
    """Return the log-density of a known distribution at draws, less the prior's."""
    own = loglik.observations
    points = own.space.free(Draws.of(draws, own.shapes))
    if isinstance(around, KnowsRows):
        return around.of_rows(points)
    values: Floats = around.log_density(points) - loglik.rest.values(points)
    return values


def approximation_by(
    loglik: LogLikelihood, around: Normal | GriddedMarginals | KnowsRows
) -> ApproximatePosterior:
    """Return a known distribution as what stands for all rows: its log-density less the prior's."""
    return ApproximatePosterior(
        parts=(loglik,),
        replacement=KnownLikelihood(loglik, partial(_loglik_of, loglik, around)),
        impossible="the distribution around the mode is not to be used.",
        remedy="Build a coreset.",
    )


def aim_of(loglik: LogLikelihood, wanted: int, enough: int = ENOUGH) -> int:
    """Return how many independent draws are aimed at: as many as wanted, if all rows are few.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> [aim_of(SimpleNamespace(n_terms=n), 4_000) for n in (10_000, 100_000, 1_000_000)]
    [4000, 2000, 1000]
    """
    return max(enough, min(wanted, int(_CHEAP // max(loglik.n_terms, 1))))


def drawn_around_mode(
    loglik: LogLikelihood, *, key: int | None, rng: np.random.Generator, wanted: int = ENOUGH
) -> AroundMode:
    """Draw from around the mode of the posterior of all rows.

    The posterior must be log-concave: then there is no other mode.  A hundred draws of Laplace's
    approximation show which share of them the weights leave.  If this is small because a few rows
    bound some sums of variables, such as those of a rare category with equal outcomes, tables of
    the density along these directions replace it (`GriddedMarginals`).  As many draws follow as are
    worth a thousand independent ones, or those wanted if the rows are few.  All rows are evaluated
    at each, and along lines beyond them.

    Parameters
    ----------
    loglik : LogLikelihood
    key : int, optional
        Key of nested samples of the rows.
    rng : numpy.random.Generator
    wanted : int
        Number of independent draws beyond which more are of no use.

    Raises
    ------
    SamplingError
        If the posterior is not proven to be log-concave, or the draws are not certified.
    """
    sampler = CoresetSampler(loglik)
    if loglik.n_dims > FEW_TO_SEARCH or not sampler.is_log_concave:
        raise SamplingError("There may be modes other than the one to draw around.")
    with doing("drawing from around the mode"):
        every = _enough(sampler, _begun(sampler, key, rng), aim_of(loglik, wanted), rng)
        found = AroundMode(loglik, every, beyond(loglik, every))
    found.require_certified()
    return found


def _begun(sampler: CoresetSampler, key: int | None, rng: np.random.Generator) -> Proposal[Draws]:
    """Return the first weighted draws around the mode: by Laplace, or along axes."""
    start_size = rows_to_start(sampler.n_dims)
    first = proposal(sampler, _FIRST, start_size=start_size, rng=rng, key=key)
    if first is None:
        raise SamplingError("There is no mode to draw around.")
    [around] = first.around.parts
    first = replace(first, around=around)
    for weighed in _weighed(sampler, first):
        return weighed
    for weighed in _weighed(sampler, _along_axes(sampler, first, rng)):
        return weighed
    raise SamplingError("Weights leave too few of the draws around the mode.")


def _weighed(sampler: CoresetSampler, first: Proposal[Draws]) -> Iterator[Proposal[Draws]]:
    """Yield the first draws with their weights, if all are possible and enough of them are left."""
    found = first.weighed(sampler.sums(first.draws).total)
    if found is not None and len(found.log_ratios) == _FIRST and _share(found) >= _LEAST_SHARE:
        yield found


def _share(weighed: Proposal[Draws]) -> float:
    """Return which share of the first draws their weights leave."""
    return weighed.smoothed.ess_of_independent / _FIRST


def _enough(
    sampler: CoresetSampler, weighed: Proposal[Draws], aim: int, rng: np.random.Generator
) -> Proposal[Draws]:
    """Add draws that are worth so many; once more if the first hundred promised too much."""
    n_more = math.ceil(1.1 * aim / _share(weighed)) - _FIRST
    every = with_more(sampler, weighed, n_more, rng=rng)
    n, ess = len(every.log_ratios), every.smoothed.ess
    if _LEAST_SHARE * n <= ess < ENOUGH:
        every = with_more(sampler, every, math.ceil(1.1 * ENOUGH * n / ess) - n, rng=rng)
    return every


def _along_axes(
    sampler: CoresetSampler, first: Proposal[Draws], rng: np.random.Generator
) -> Proposal[Draws]:
    """Draw from tables of the density along axes instead."""
    mode = first.around.location

    def height(points: np.ndarray) -> Floats:
        # Sums of log-likelihoods are known up to a constant of each pass.
        points = np.concatenate([mode[None], points])
        draws = sampler.space.constrain(points)
        heights = sampler.loglikelihood.sums(draws).total + sampler.rest.values(points)
        above: Floats = heights[1:] - heights[0]
        return above

    gradients = sampler.full_density.gradients
    for around in GriddedMarginals.around(first.around, height, gradients, most=_MOST_VALUES):
        _log.info("Tables of the density along %d axes through the mode", len(around.tables))
        points, logq = around.draw(_FIRST, rng=rng)
        draws = sampler.space.constrain(points)
        log_ratios = sampler.rest.values(points) - logq
        return replace(first, draws=draws, log_ratios=log_ratios, around=around)
    raise SamplingError("Tables of the density around the mode would take too many of its values.")


def with_more(
    sampler: CoresetSampler, first: Proposal[Draws], n_more: int, *, rng: np.random.Generator
) -> Proposal[Draws]:
    """Add draws of the same distribution, with weights.

    Raises
    ------
    SamplingError
        If one of them is impossible.
    """
    new, _ = first.around.draw(n_more, rng=rng)
    # Sums of log-likelihoods are known up to a constant of each pass: one draw joins these.
    points = np.concatenate([sampler.space.free(first.draws.take(np.arange(1))), new])
    with np.errstate(all="ignore"):  # some are far out
        draws = sampler.space.constrain(points)
        ratios = sampler.sums(draws).total + sampler.rest.values(points)
        ratios -= first.around.log_density(points)
    if not np.isfinite(ratios).all():
        raise SamplingError("Some of the draws around the mode are impossible.")
    log_ratios = np.append(first.log_ratios, ratios[1:] + (first.log_ratios[0] - ratios[0]))
    values = {n: np.append(v, draws.values[n][1:], axis=0) for n, v in first.draws.values.items()}
    return replace(first, draws=Draws(values), log_ratios=log_ratios)


def beyond(loglik: LogLikelihood, found: Proposal[Draws], *, most: int = sys.maxsize) -> Probes:
    """Look along lines beyond the draws, `most` at most.

    Raises
    ------
    SamplingError
        If that is impossible.
    """
    try:
        probing = Probing.of(approximation_by(loglik, found.around), found.draws, most=most)
    except InvalidDataError as error:
        raise SamplingError(f"No lines go through the draws: {error.message}") from error
    if not len(probing.lines):
        raise SamplingError("There are no lines through draws that do not vary.")
    probing.looked_along_lines()
    return probing.result()


def in_chains(posterior: xr.Dataset, n_chains: int) -> xr.Dataset:
    """Cut a single chain of exchangeable draws into several.

    Examples
    --------
    >>> one = xr.Dataset({"mu": (("chain", "draw", "unit"), np.zeros((1, 12, 2)))})
    >>> dict(in_chains(one, 4).sizes)
    {'chain': 4, 'draw': 3, 'unit': 2}
    """

    def cut(variable: xr.DataArray) -> xr.DataArray:
        if not set(SAMPLE_DIMS) <= set(variable.dims):
            return variable
        ordered = variable.transpose(*SAMPLE_DIMS, ...)
        values = ordered.to_numpy().reshape(n_chains, -1, *ordered.shape[2:])
        kept = {n: c for n, c in ordered.coords.items() if not set(SAMPLE_DIMS) & set(c.dims)}
        numbers = {n: np.arange(size) for n, size in zip(SAMPLE_DIMS, values.shape, strict=False)}
        return xr.DataArray(values, {**numbers, **kept}, ordered.dims, attrs=variable.attrs)

    return xr.Dataset({n: cut(v) for n, v in posterior.data_vars.items()}, attrs=posterior.attrs)
