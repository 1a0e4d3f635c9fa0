"""Distance of a posterior from the draws at which rows were compared, and growth of errors."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.stats import chi2

from pymc_coresets.ancestry import Distance
from pymc_coresets.diagnostics.importance import (
    EFFECTIVE_SHARE,
    KHAT_RELIABLE,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.display import as_text
from pymc_coresets.exceptions import SamplingError, warn_user
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.density import Surrogate
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Solution
from pymc_coresets.weighted_rows import WeightedRows


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Position and width of the posterior of all rows so far, relative to the draws of a stream.

    The sums of all log-likelihoods at these draws are exact, so the only error is that of a finite
    number of draws. The accuracy of a coreset is a separate question, which its objective at
    held-out draws answers.

    Parameters
    ----------
    distance : float
        Distance between the centres of the posterior and the draws, in standard deviations of the
        draws.
    width : float
        Width of the draws over that of the posterior, as the geometric mean over the directions.
    limit : float
        Distance that is hardly ever exceeded if the draws follow the posterior of a random sample
        of the rows.
    pareto_khat, ess : float
        Tail and effective sample size of the draws, once re-weighted to the posterior.
        They are reliable only while the draws are hardly wider than the posterior; wider draws are
        not an error.
    n_draws : int

    Notes
    -----
    Let z be the draws in coordinates in which they have mean 0 and covariance I.  The log-ratios of
    the two densities are fitted by ``c + b.z - z.diag(h).z / 2``; the posterior's centre is then at
    ``b / (1 + h)`` and its precision is ``1 + h``.  If the draws are of the posterior of n rows,
    and N have been read, h is about N / n - 1 in every direction, and the squared distance is
    approximately chi-squared.

    Examples
    --------
    >>> z = np.random.default_rng(1).normal(size=(400, 2))
    >>> found = Coverage.of(Draws({"b": z}), -((z - [0.0, 3.0]) ** 2).sum(axis=1) * 49.5)
    >>> round(found.distance, 1), round(found.width), round(found.limit, 1), found.draws_serve
    (3.1, 10, 4.8, False)
    """

    distance: float
    width: float
    limit: float
    pareto_khat: float
    ess: float
    n_draws: int

    @classmethod
    def of(cls, draws: Draws, log_ratios: Vector) -> Self:
        """Judge by the log-ratios of the posterior of all rows over the draws' own density."""
        z, smoothed = _whitened(draws), pareto_smooth(log_ratios[None])
        n_directions = z.shape[1]
        design = np.column_stack([np.ones(len(z)), z, z * z - 1])
        found = np.linalg.lstsq(design, log_ratios, rcond=None)[0]
        slopes, curvatures = found[1 : n_directions + 1], -2 * found[n_directions + 1 :]
        precisions = 1 + np.maximum(curvatures, 0.0)
        return cls(
            distance=float(np.linalg.norm(slopes / precisions)),
            width=float(np.exp(0.5 * np.log(precisions).mean())),
            # False alarms: one in 10^5 streams without drift.
            limit=float(np.sqrt(chi2.isf(1e-5, n_directions))),
            pareto_khat=smoothed.pareto_khat,
            ess=smoothed.ess,
            n_draws=len(log_ratios),
        )

    @property
    def drifted(self) -> bool:
        """Whether the posterior lies outside the region of the draws."""
        return not self.distance <= self.limit

    @property
    def draws_serve(self) -> bool:
        """Whether the stream's own draws, re-weighted, represent the posterior."""
        return self.pareto_khat <= KHAT_RELIABLE and self.ess >= EFFECTIVE_SHARE * self.n_draws

    @property
    def verdict(self) -> str:
        """Interpretation, in words."""
        if self.drifted:
            return (
                "The posterior lies where the draws of the stream are not: the rows have drifted "
                "away from the first ones. Begin again with a pilot from all over the data."
            )
        if self.draws_serve:
            return "The draws cover the posterior, and can stand for it once they are re-weighted."
        return (
            "The draws cover the posterior, and are wider, as they should be: too wide to be "
            "re-weighted to it."
        )

    def __repr__(self) -> str:
        facts = {
            "posterior's centre": f"{self.distance:.2g} sd of the draws from theirs "
            f"(at most {self.limit:.2g})",
            "width of the draws": f"{self.width:.3g} times the posterior's",
            "Pareto k-hat": f"{self.pareto_khat:.2f}",
            "ESS re-weighted": f"{self.ess:.0f} of {self.n_draws} draws",
        }
        return as_text("Coverage of a stream", self.verdict, facts)


def _whitened(draws: Draws) -> Vector:
    """Return the draws (n_draws, n_directions) in coordinates of mean 0 and covariance I."""
    values = np.concatenate(
        [np.asarray(v, dtype=float).reshape(draws.n_draws, -1) for v in draws.values.values()],
        axis=1,
    )
    values = values - values.mean(axis=0)
    varying = values[:, np.ptp(values, axis=0) > 0]
    left, lengths, _ = np.linalg.svd(varying / varying.std(axis=0), full_matrices=False)
    # Four draws for each direction, since the quadratic has two coefficients for each.
    kept = np.flatnonzero(lengths > 1e-6 * lengths[0])[: draws.n_draws // 4]
    whitened: Vector = left[:, kept] * np.sqrt(draws.n_draws)
    return whitened


# -- coresets --------------------------------------------------------------------------------------


_log = logging.getLogger(__name__)


def moved_from(
    coresets: Sequence[tuple[WeightedRows, Surrogate]],
    solution: Solution,
    *,
    rng: np.random.Generator,
) -> Distance:
    """Return the largest distance by which additional rows move the posterior of a coreset.

    Parameters
    ----------
    coresets : sequence of tuple
        Coresets, and their posteriors in one model.
    solution : Solution
        The union of their rows with further ones.
    rng : numpy.random.Generator

    Returns
    -------
    Distance
        Zero if no error was measured for the coresets; unknown if a posterior cannot be sampled.

    Warns
    -----
    CoresetWarning
        If it is so large that the error of the coreset there is unknown.
    """
    measured = [pair for pair in coresets if math.isfinite(pair[0].objective)]
    n_dims = coresets[0][1].space.n_dims
    if not measured:
        return Distance(1.0, 0.0, n_dims)
    posterior = replace(
        measured[0][1], rows=solution.rows, weights=solution.weights, quadratic=solution.quadratic
    )
    try:
        points = _points(posterior, solution.proposal, rng)
        distances = [
            _distance(own, _points(own, coreset.proposal, rng), points) for coreset, own in measured
        ]
        found = max(distances, key=lambda each: (each.is_far, each.mean_square))
    except SamplingError as error:
        _log.info("It is not known how far the posterior moves: %s", error)
        found = Distance(math.nan, math.nan, n_dims)
    if found.is_far:
        warn_user(
            f"Other rows move the posterior by {found.words}. A coreset is accurate only near the "
            "posterior that it was built for: its error here is unknown, and check() cannot "
            "measure it. Build a coreset of all rows."
        )
    return found


def _distance(posterior: Surrogate, own: np.ndarray, points: np.ndarray) -> Distance:
    """Return the distance of draws of another posterior from the centre of a coreset's own.

    The mean of ``-2 log p`` over draws of another posterior exceeds that over draws of p by
    ``E|z|^2 - D`` if p is normal and z whitened by it.  This requires neither a covariance matrix
    nor more draws than dimensions.
    """
    n_dims = points.shape[1]
    with np.errstate(all="ignore"):  # points may have zero density here
        here, there = (posterior.log_density(x).mean() for x in (own, points))
        square = max(1 + 2 * float(here - there) / n_dims, 0.0)
    shift = np.abs(points.mean(axis=0) - own.mean(axis=0)) / own.std(axis=0)
    return Distance(square, float(shift.max()), n_dims)


def _points(
    posterior: Surrogate, known: Proposal[Draws] | None, rng: np.random.Generator
) -> np.ndarray:
    """Return draws (n_draws, n_dims): the stored, weighted ones if their weights are reliable."""
    n_draws = 400  # enough for a mean square distance to a few percent
    space = posterior.space
    if (
        known is not None
        and known.draws.values.keys() == space.columns.keys()
        and known.is_reliable
    ):
        kept = systematic_resample(known.smoothed.weights[0], n_draws, rng=rng)
        return space.free(known.draws.take(kept))
    sampler = CoresetSampler(posterior.loglikelihood, quadratic=posterior.quadratic)
    return sampler.drawn(posterior.rows, posterior.weights, n_draws, rng=rng).points
