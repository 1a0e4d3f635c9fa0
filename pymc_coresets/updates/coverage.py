"""Distance of a posterior from the draws at which rows were compared, and growth of errors."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.stats import chi2

from pymc_coresets.diagnostics.importance import (
    EFFECTIVE_SHARE,
    KHAT_RELIABLE,
    pareto_smooth,
    systematic_resample,
)
from pymc_coresets.diagnostics.judging import TOLERANCE
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.display import as_text
from pymc_coresets.exceptions import SamplingError, warn_user
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.streamed import ExtendedRows
from pymc_coresets.sampling.density import WeightedPosterior
from pymc_coresets.sampling.sampler import CoresetSampler
from pymc_coresets.solving.problem import Vector
from pymc_coresets.solving.solution import Solution
from pymc_coresets.weighted_rows import WeightedRows, required_likelihood


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

# Distances, in standard deviations, beyond which measured errors no longer apply: the root mean
# square over many coordinates, and the limit of a single one.
_FAR, _FAR_OF_ONE = 1.5, 2.5

_log = logging.getLogger(__name__)


class Distance(NamedTuple):
    """Distance of a posterior from another one, in standard deviations of the latter.

    As more rows of the same kind come in, the mean square stays at 1 on average.  In few dimensions
    its random variation is larger, and so is the limit.

    Parameters
    ----------
    mean_square : float
        Mean square over coordinates and draws; 1 for draws of that posterior itself, NaN if
        unknown.
    shift : float
        Shift of the mean of the coordinate that has moved most.
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
        """Approximate factor by which errors measured there are larger here.

        If a log-likelihood is matched up to the second order, the error is cubic: its variance
        grows with the sixth power of the distance.
        """
        return max(self.mean_square, 1.0) ** 3

    @property
    def is_far(self) -> bool:
        """Whether the distance is unknown, or too large for errors measured there to apply."""
        root, shift = self._parts
        return not (root <= 1 and shift <= 1)

    @property
    def words(self) -> str:
        """Describe the distance, as the end of "moves the posterior by"."""
        if math.isnan(self.mean_square):
            return "an unknown number of its standard deviations (it could not be sampled)"
        root, shift = self._parts
        value = math.sqrt(self.mean_square) if root > shift else self.shift
        return f"{value:.1f} of its standard deviations"

    @property
    def _parts(self) -> tuple[float, float]:
        """Root mean square and shift, as fractions of their limits."""
        square = _FAR**2 + (_FAR_OF_ONE**2 - _FAR**2) / self.n_dims
        largest = math.sqrt(2 * math.log(self.n_dims))  # approximately, for as many normal numbers
        return math.sqrt(self.mean_square / square), self.shift / (_FAR_OF_ONE + largest)


def moved_from(
    coresets: Sequence[tuple[WeightedRows, WeightedPosterior]],
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


def _distance(posterior: WeightedPosterior, own: np.ndarray, points: np.ndarray) -> Distance:
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
    posterior: WeightedPosterior, known: Proposal[Draws] | None, rng: np.random.Generator
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


# -- errors of several steps -----------------------------------------------------------------------

_OBJECTIVES, _ROWS = "objectives_of_updates", "rows_of_updates"
#: Attribute of a history: summed divergences of the coresets merged into this one, in nats.
OBJECTIVE_OF_PARTS = "objective_of_parts"


@dataclass(frozen=True)
class Ancestry:
    """History of a coreset: the rows that each construction added, and its divergence.

    Parameters
    ----------
    rows : tuple of int
        Numbers of rows read by the first construction, and by each later `Coreset.extend`.
    objectives : tuple of float
        Each construction's estimate of its divergence, in nats; increased if later rows have moved
        the posterior, see Notes, and NaN if unknown.

    Notes
    -----
    An objective is the squared length ``|L - L(w)|^2`` of the error that one construction added, at
    the posterior that it was made for.  Lengths obey the triangle inequality: measured at one
    posterior, all errors together have at most the length of their sum.  If a log-likelihood is
    matched up to the second order, the error is cubic: at draws with root mean square distance r,
    in standard deviations of the previous posterior, its variance is r^6 times as large. If r
    exceeds 1 after an update, older errors are multiplied by this factor. If r exceeds 1.5, or 2.5
    for a single parameter, the old errors are unknown.

    Examples
    --------
    >>> found = Ancestry((1_000, 50), (0.01, 0.0025))
    >>> round(found.combined, 4)
    0.0225
    """

    rows: tuple[int, ...]
    objectives: tuple[float, ...]

    @classmethod
    def of(cls, attrs: Mapping[str, Any], n_observations: int, objective: float) -> Self:
        """Read it from a history's attributes, and from the coreset's size and objective."""
        if _ROWS in attrs:
            rows, objectives = (np.atleast_1d(attrs[name]) for name in (_ROWS, _OBJECTIVES))
            return cls(tuple(map(int, rows)), tuple(map(float, objectives)))
        parts = float(attrs.get(OBJECTIVE_OF_PARTS, 0.0))
        return cls((n_observations,), (_together([parts, objective]),))

    def extended(self, n_rows: int, objective: float) -> "Ancestry":
        """Add a construction."""
        return Ancestry((*self.rows, n_rows), (*self.objectives, float(objective)))

    def moved_by(self, distance: Distance) -> "Ancestry":
        """The same after new rows have moved the posterior: errors grow, or become unknown."""
        if distance.is_far:
            return self.unmeasured
        return Ancestry(self.rows, tuple(distance.growth * each for each in self.objectives))

    @property
    def unmeasured(self) -> "Ancestry":
        """The same for another posterior, at which no error was measured."""
        return Ancestry(self.rows, (math.nan,) * len(self.rows))

    @property
    def earlier(self) -> float:
        """`combined`, for all constructions but the last, whose rows are still available."""
        return _together(self.objectives[:-1])

    @property
    def combined(self) -> float:
        """Square of the errors' summed lengths, in nats: a bound if the posterior hardly moves."""
        return _together(self.objectives)

    @property
    def attrs(self) -> dict[str, Any]:
        """As attributes of a history."""
        return {
            _ROWS: np.array(self.rows),
            _OBJECTIVES: np.array(self.objectives),
            OBJECTIVE_OF_PARTS: self.earlier,
        }

    def __repr__(self) -> str:
        steps = zip(self.rows, self.objectives, strict=True)
        facts = {
            f"{'update' if i else 'first'} {i or ''}".strip(): f"{rows:,} rows, {_nats(objective)}"
            for i, (rows, objective) in enumerate(steps)
        }
        facts["together"] = f"at most {_nats(self.combined)}, if the posterior hardly moves"
        return as_text("Ancestry of a coreset", facts, self._words())

    def _words(self) -> str:
        if len(self.rows) == 1:
            return "It was built once, from all its rows."
        return (
            "check() compares it with the rows of the last update, exactly, and with the previous "
            "coreset instead of all others: the error of that one is included only here."
        )


def caveat_of(coreset: WeightedRows) -> str:
    """Describe the error that a comparison with the available rows cannot detect, if relevant.

    Parameters
    ----------
    coreset : WeightedRows
        With its model.
    """
    if not isinstance(required_likelihood(coreset).source, ExtendedRows):
        return ""
    found = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    if found.earlier <= 2 * TOLERANCE:  # symmetrised
        return ""
    unseen = "an unknown divergence" if math.isnan(found.earlier) else f"{_nats(found.earlier)}"
    return (
        f"the old rows are not available, and the coreset that represents them may be off by "
        f"{unseen} here, not included in these numbers. Build a coreset of all rows; or read this "
        "one with Coreset.from_netcdf(path, model, rows=...), and check it against all of them."
    )


def _together(objectives: Sequence[float]) -> float:
    return float(np.sqrt(np.asarray(objectives, dtype=float)).sum() ** 2)


def _nats(objective: float) -> str:
    return "a divergence that is not known" if math.isnan(objective) else f"{objective:.2g} nats"
