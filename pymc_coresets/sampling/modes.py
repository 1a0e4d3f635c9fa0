"""The modes of the posterior of all rows: found on a sample, polished and weighted on all."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np

from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rowlogp.verification import refuse_impossible_rows
from pymc_coresets.rows import keyed
from pymc_coresets.sampling.curvature import laplace
from pymc_coresets.sampling.found_modes import FoundModes
from pymc_coresets.sampling.maximisation.one_start import maximise
from pymc_coresets.sampling.mode_search import mode_of
from pymc_coresets.sampling.normal import Normal
from pymc_coresets.sampling.sample_search import (
    FEW_TO_SEARCH,
    SampleSearch,
    each_met_twice,
    held_near,
)
from pymc_coresets.sampling.sampler import CoresetSampler

#: How many times as large a sample is taken where the first has no mode: the log-densities of
#: quantile regressions have kinks, which larger samples smooth.
_SMOOTHER = 8
#: Units of a sample, at least, if there are as many.
_FEWEST_UNITS = 250

_log = logging.getLogger(__name__)


def proposal(
    sampler: CoresetSampler,
    n_draws: int,
    *,
    start_size: int,
    rng: np.random.Generator,
    key: int | None = None,
) -> Proposal[Draws] | None:
    """Draw from around the modes of the posterior of all rows, at which the sampler then starts.

    The search for other modes takes a few dozen starts, see `Modes`.  A mode is found from that of
    a sample of rows, with a few gradients of all; the curvature there takes 2 D more, or 2 D of a
    sample of the rows if D is large.  With more than two million rows, or 200,000 elsewhere, that
    sample is larger, and the search for the mode starts there, since each gradient of all rows
    reads them once.  Other modes are polished on all rows if the sample suggests a noticeable mass.
    If a sample has no mode, eight times as many rows are tried: they smooth kinks.

    Parameters
    ----------
    sampler : CoresetSampler
    n_draws : int
    start_size : int
        Number of rows of the sample. Of units it has fewer, with about as many rows in all.
    rng : numpy.random.Generator
    key : int, optional
        Key of the sample; drawn by default.

    Returns
    -------
    Proposal, or None
        None if the posterior has no mode, as in hierarchies, or has discrete variables.
    """
    key, stream = keyed.random_key(rng) if key is None else key, rng.spawn(1)[0]
    of_units = start_size / sampler.loglikelihood.observations.mean_size
    start_size = int(max(of_units, min(start_size, _FEWEST_UNITS)))
    larger = min(_SMOOTHER * start_size, sampler.loglikelihood.n_rows)
    has_more = larger > start_size and sampler.n_dims <= FEW_TO_SEARCH
    for size in [start_size] + [larger] * has_more:
        try:
            found = _found(SampleSearch(sampler, size, key), stream)
            break
        except SamplingError as error:
            _log.info("No proposal for the full posterior from %d rows: %s", size, error)
    else:
        refuse_impossible_rows(sampler.loglikelihood, sampler.space)
        return None
    sampler.begin_at(found.modes, n_gradients=found.n_gradients, images=found.orbits)
    positions, logq = found.mixture.draw(n_draws, rng=rng)
    with np.errstate(all="ignore"):  # some draws are far out
        draws = sampler.space.constrain(positions)
        of_prior = sampler.density_without_rows.values(positions)
    return Proposal(
        draws=draws,
        log_ratios=of_prior - logq,
        around=found.mixture,
        modes=found.table(sampler.space),
    )


def _found(search: SampleSearch, rng: np.random.Generator) -> FoundModes:
    density = search.density_of(search.size)
    first = mode_of(density, laplace(density, search.sampler.start))
    if search.sampler.is_log_concave:
        return search.on_all(FoundModes([first], 0), is_only=True)
    if search.sampler.n_dims > FEW_TO_SEARCH:
        return search.on_all(FoundModes([first], 0))
    larger = search.with_decisive_rows(first.around)
    if larger is not search:
        search, density = larger, larger.density_of(larger.size)
        first = mode_of(density, laplace(density, first.x))
    for by_scales in search.by_scales(density, first, rng=rng.spawn(1)[0]):
        return by_scales
    return search.on_all(search.others(density, first, rng=rng))


def beside_mode(
    sampler: CoresetSampler,
    near: Normal,
    size: int,
    *,
    key: int,
    rng: np.random.Generator,
    n_gradients: float,
    held: np.ndarray,
) -> FoundModes:
    """Search for modes other than a known one; reads all rows only if there are others.

    Parameters
    ----------
    sampler : CoresetSampler
    near : Normal
        Close to the mode of all rows.
    size : int
        Number of rows of the sample used for the search.
    key : int
        Key of that sample.
    rng : numpy.random.Generator
        For the starts.
    n_gradients : float
        Number of gradients of the sample, after which no search begins.
    held : ndarray of bool, of shape (n_dims,)
        Coordinates held near that mode, see `held_near`.

    Raises
    ------
    SamplingError
        If the sample has no mode near that one, or `n_gradients` is too small for a search.
    """
    search = SampleSearch(sampler, size, key, partial(held_near, at=near.location, held=held))
    density = search.density_of(size)
    first = mode_of(density, replace(near, location=maximise(near, density)))
    found = search.others(
        density, first, rng=rng, is_over=lambda: density.n_gradients > n_gradients
    )
    if found.n_starts < 10:
        raise SamplingError("There was no time to search for other modes.")
    if len(found.modes) > 1:
        return search.on_all(found)
    [alone] = found.modes
    is_complete = each_met_twice([alone]) and found.is_complete
    alone = replace(alone, around=alone.around.with_tails())
    return FoundModes([alone], found.n_starts, is_complete=is_complete)
