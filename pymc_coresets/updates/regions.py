"""Where the summary of some rows was measured, and how far another posterior is from there."""

import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_coresets.diagnostics.importance import (
    KHAT_RELIABLE,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.density import WeightedPosterior
from pymc_coresets.sampling.sampler import CoresetSampler

# Standard deviations beyond which errors that were measured say little: of many coordinates, the
# root of the mean square, and of a single one.
_FAR, _FAR_OF_ONE = 1.5, 2.5
_DRAWS = 400

_log = logging.getLogger(__name__)


class Distance(NamedTuple):
    """How far a posterior is from another one, in standard deviations of that.

    As more rows of the same kind come in, the mean square stays at 1 on average.  By chance it
    varies more in few dimensions, which are allowed more.

    Parameters
    ----------
    mean_square : float
        Over coordinates and draws, 1 for those of that posterior itself; NaN where it is not known.
    shift : float
        Of the mean of the coordinate that has moved most.
    n_dims : int

    Examples
    --------
    >>> Distance(1.1, 0.5, 20).is_far, Distance(4.0, 2.2, 20).is_far
    (False, True)
    >>> Distance(1.5, 0.9, 20).growth
    3.375
    """

    mean_square: float
    shift: float
    n_dims: int

    @property
    def growth(self) -> float:
        """Factor by which errors that were measured there are larger here, about.

        Of a log-likelihood that is matched up to the second order, what is left is cubic: its
        variance grows with the sixth power of the distance.
        """
        return max(self.mean_square, 1.0) ** 3

    @property
    def is_far(self) -> bool:
        """Whether it is so far, or unknown, that errors that were measured there say nothing."""
        root, shift = self._parts
        return not (root <= 1 and shift <= 1)

    @property
    def words(self) -> str:
        """Say it, as the end of "moves the posterior by"."""
        if math.isnan(self.mean_square):
            return "an unknown number of its standard deviations (it could not be sampled)"
        root, shift = self._parts
        value = math.sqrt(self.mean_square) if root > shift else self.shift
        return f"{value:.1f} of its standard deviations"

    @property
    def _parts(self) -> tuple[float, float]:
        """Root of the mean square, and shift, as parts of what each may be."""
        square = _FAR**2 + (_FAR_OF_ONE**2 - _FAR**2) / self.n_dims
        largest = math.sqrt(2 * math.log(self.n_dims))  # of as many normal numbers, about
        return math.sqrt(self.mean_square / square), self.shift / (_FAR_OF_ONE + largest)


def farthest_of(
    parts: Sequence[tuple[WeightedPosterior, Proposal[Draws] | None]],
    posterior: WeightedPosterior,
    known: Proposal[Draws] | None,
    *,
    rng: np.random.Generator,
) -> Distance:
    """Return how far a posterior is from that of the coreset of which it is farthest.

    Parameters
    ----------
    parts : sequence of tuple
        Posteriors of coresets, at least one, and draws that their constructions have weighed.
    posterior : WeightedPosterior
        In the same model.
    known : Proposal, optional
        Draws that were weighed for this one.
    rng : numpy.random.Generator

    Returns
    -------
    Distance
        Not known where one of them cannot be sampled.
    """
    try:
        points = _points(posterior, known, rng)
        distances = [_distance(own, _points(own, draws, rng), points) for own, draws in parts]
    except SamplingError as error:
        _log.info("It is not known how far the posterior moves: %s", error)
        return Distance(math.nan, math.nan, posterior.space.n_dims)
    return max(distances, key=lambda each: (each.is_far, each.mean_square))


def _distance(posterior: WeightedPosterior, own: np.ndarray, points: np.ndarray) -> Distance:
    """Return how far draws of another posterior lie from the middle of its own.

    The mean of ``-2 log p`` over draws of another posterior exceeds that over draws of p by
    ``E|z|^2 - D`` if p is normal and z whitened by it.  This takes neither a covariance nor more
    draws than dimensions.
    """
    n_dims = points.shape[1]
    with np.errstate(all="ignore"):  # points may be impossible here
        here, there = (posterior.log_density(x).mean() for x in (own, points))
        square = max(1 + 2 * float(here - there) / n_dims, 0.0)
    shift = np.abs(points.mean(axis=0) - own.mean(axis=0)) / own.std(axis=0)
    return Distance(square, float(shift.max()), n_dims)


def _points(
    posterior: WeightedPosterior, known: Proposal[Draws] | None, rng: np.random.Generator
) -> np.ndarray:
    """Return draws (n_draws, n_dims): those that were weighed, if their weights are reliable."""
    space = posterior.space
    if known is not None and known.draws.values.keys() == space.columns.keys():
        smoothed = pareto_smooth(known.log_ratios[None])
        if smoothed.pareto_khat < KHAT_RELIABLE:
            kept = systematic_resample(smoothed.weights[0], _DRAWS, rng=rng)
            return space.free(known.draws.take(kept))
    sampler = CoresetSampler(posterior.loglikelihood, quadratic=posterior.quadratic)
    return sampler.points(posterior.rows, posterior.weights, _DRAWS, rng=rng)
