"""Whether the draws of a stream lie where the posterior of all its rows is."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.stats import chi2

from pymc_coresets.diagnostics.importance import EFFECTIVE_SHARE, KHAT_RELIABLE, pareto_smooth
from pymc_coresets.display.report import as_text
from pymc_coresets.reading.draws import Draws
from pymc_coresets.solving.problem import Vector

_UNLIKELY = 1e-5  # chance that a stream without drift is said to drift
_RANK = 1e-6  # relative length of a direction in which the draws do not vary
_DRAWS_PER_DIRECTION = 4  # of the quadratic, which has two coefficients for each


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Where the posterior of all rows so far lies among the draws of a stream, and how wide it is.

    The sums of all log-likelihoods at these draws are exact, so that everything here is, too, apart
    from the finite number of draws.  It does not judge a coreset: that is its objective at
    held-out draws.

    Parameters
    ----------
    distance : float
        Of the posterior's centre from that of the draws, in standard deviations of the draws.
    width : float
        How many times wider than it the draws are, the geometric mean over the directions.
    limit : float
        Distance that is hardly ever exceeded where the draws' posterior is that of some of the
        rows, chosen at random.
    pareto_khat, ess : float
        Tail and effective sample size of the draws, once re-weighted to the posterior.
        Only while the draws are hardly wider can they stand for it; it is no fault if they cannot.
    n_draws : int

    Notes
    -----
    Let z be the draws in coordinates in which they have mean 0 and covariance I.  The log-ratios of
    the two densities are fitted by ``c + b.z - z.diag(h).z / 2``; the posterior's centre is then at
    ``b / (1 + h)`` and its precision is ``1 + h``.  Where n rows made the draws and N are seen, h
    is about N / n - 1 in every direction, and the squared distance about chi-squared.

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
            limit=float(np.sqrt(chi2.isf(_UNLIKELY, n_directions))),
            pareto_khat=smoothed.pareto_khat,
            ess=smoothed.ess,
            n_draws=len(log_ratios),
        )

    @property
    def drifted(self) -> bool:
        """Whether the posterior lies where the draws are not."""
        return not self.distance <= self.limit

    @property
    def draws_serve(self) -> bool:
        """Whether the stream's own draws, re-weighted, can stand for the posterior."""
        return self.pareto_khat <= KHAT_RELIABLE and self.ess >= EFFECTIVE_SHARE * self.n_draws

    @property
    def verdict(self) -> str:
        """What the numbers mean, in words."""
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
        return as_text("Coverage of a stream", facts, self.verdict)


def _whitened(draws: Draws) -> Vector:
    """Return the draws (n_draws, n_directions) in coordinates of mean 0 and covariance I."""
    values = np.concatenate(
        [np.asarray(v, dtype=float).reshape(draws.n_draws, -1) for v in draws.values.values()],
        axis=1,
    )
    values = values - values.mean(axis=0)
    varying = values[:, np.ptp(values, axis=0) > 0]
    left, lengths, _ = np.linalg.svd(varying / varying.std(axis=0), full_matrices=False)
    kept = np.flatnonzero(lengths > _RANK * lengths[0])[: draws.n_draws // _DRAWS_PER_DIRECTION]
    whitened: Vector = left[:, kept] * np.sqrt(draws.n_draws)
    return whitened
