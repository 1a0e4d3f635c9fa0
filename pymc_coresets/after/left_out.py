"""Rows left out one by one: by the weights of all draws, or removed from the posterior."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.after.surrogates import ElpdSurrogate
from pymc_coresets.after.without_rows import Removal
from pymc_coresets.diagnostics.evaluated_draws import EvaluatedDraws
from pymc_coresets.diagnostics.importance import khat_threshold, log_sum, smooth_tail
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rowlogp.evaluation import LogLikelihood

type Floats = NDArray[np.float64]
type Positions = NDArray[np.int64]
type Part = tuple[LogLikelihood, Positions]

MOST_REMOVED = 10
"""Rows that are removed from the posterior at most: each costs a pass over the data, or three."""

_EVEN = 0.4  # nats: no weight exceeds the mean by more than half of it


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Figures of rows that are left out one at a time, (n_rows,) each.

    Parameters
    ----------
    parts : sequence of LogLikelihood and ndarray
        The positions of the rows, in increasing order, in the data of each part.
    counts : ndarray
        How often each counts.
    elpd : ndarray
        The log of its predictive density given the others, in nats.
    gain : ndarray
        What the row itself adds to that.
    khat : ndarray
        Pareto k-hat of the weights without it.
    largest : ndarray
        Distance of the largest log-ratio from their mean.
    represented : ndarray
        Number of rows that it represents in the sum.
    influences : ndarray of shape (n_draws,)
        Of each draw on the sum of elpd, less that on the sum of the mean log-likelihoods.
    """

    parts: Sequence[Part]
    counts: Floats
    elpd: Floats
    gain: Floats
    khat: Floats
    largest: Floats
    represented: Floats
    influences: Floats

    @classmethod
    def of(
        cls, parts: Sequence[Part], draws: Draws, found: EvaluatedDraws, represented: Floats
    ) -> "LeaveOneOut":
        """Leave out rows by the weights of all draws.

        Parameters
        ----------
        parts : sequence of LogLikelihood and ndarray
            The positions of the rows, in increasing order, in the data of each part.
        draws : Draws
        found : EvaluatedDraws
        represented : ndarray of shape (n_rows,)
        """
        weights = _Weights(found)
        figures: list[tuple[float, ...]] = []
        influences, size = np.zeros(draws.n_draws), rows_at_once(draws.n_draws)
        for loglik, positions in parts:
            whole = len(positions) == loglik.n_rows
            rows = loglik.source if whole else loglik.source.at(positions)
            for block in rows.blocks(size):
                for count, f in zip(block.case_weights, loglik.matrix(draws, block), strict=True):
                    *own, of_draws = weights.without(f)
                    influences += represented[len(figures)] * count * of_draws
                    figures.append((count, *own))
        counts, elpd, gain, khat, largest = np.array(figures).T
        return cls(parts, counts, elpd, gain, khat, largest, represented, influences)

    @property
    def good_k(self) -> float:
        """Pareto k-hat up to which weights of so many draws are reliable."""
        return khat_threshold(len(self.influences))

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Whether the weights without each row are unreliable, and uneven enough to matter."""
        return (self.khat > self.good_k) & (self.largest > _EVEN)

    @property
    def labelled_khat(self) -> xr.DataArray:
        """Pareto k-hat with the positions of the rows, and their places in words."""
        named = [(int(i), loglik.source.place(int(i))) for loglik, some in self.parts for i in some]
        labels = zip(("position", "where"), zip(*named, strict=True), strict=True)
        along = {name: ("observation", list(values)) for name, values in labels}
        return xr.DataArray(self.khat, dims="observation", coords=along, name="pareto_k")

    def as_surrogate(self) -> ElpdSurrogate:
        """Return their own values in place of a surrogate of all rows."""
        return ElpdSurrogate(self.counts, self.elpd, self.gain, np.full(len(self.khat), np.inf))

    @property
    def error(self) -> float:
        """Return a standard error, in nats, for what the influences of draws do not show.

        The mean of weights with the tail shape k converges as ``n_draws ** (k - 1)`` (Vehtari et
        al. 2024), and not at all if k is 1 or more.
        """
        failed, n_draws = self.doubtful, len(self.influences)
        khat = self.khat[failed]
        errors = np.where(khat < 1, n_draws ** (np.minimum(khat, 1.0) - 1.0), np.inf)
        return float(np.linalg.norm((self.counts * self.represented)[failed] * errors))

    def removed(self, removal: Removal) -> "LeaveOneOut":
        """Return it with the doubtful rows removed from the posterior, where that is possible.

        Parameters
        ----------
        removal : Removal
        """
        every = [(loglik, some[i : i + 1]) for loglik, some in self.parts for i in range(len(some))]
        numbers = np.flatnonzero(self.doubtful)
        rows = [(loglik, loglik.source.at(one)) for loglik, one in (every[i] for i in numbers)]
        elpd, gain, khat = self.elpd.copy(), self.gain.copy(), self.khat.copy()
        influences, weights = self.influences.copy(), _Weights(removal.found)
        for number, found in removal.without(rows, self.good_k).items():
            of_row, khat_of_row, of_draws = found
            if khat_of_row > self.good_k:
                continue
            i, f = numbers[number], removal.at_draws(rows[number])
            old = weights.without(f)[-1] + weights.of_mean(f)
            influences += self.represented[i] * self.counts[i] * (of_draws - old)
            gain[i] += elpd[i] - of_row
            elpd[i], khat[i] = of_row, khat_of_row
        return replace(self, elpd=elpd, gain=gain, khat=khat, influences=influences)


class _Weights:
    """The weights that correct draws to the full posterior, and those without a row."""

    def __init__(self, found: EvaluatedDraws) -> None:
        self.log_ratios = found.log_ratios.ravel()
        self.log_weights = found.smoothed.log_weights.ravel()
        self.weights = np.exp(self.log_weights)

    def without(self, f: Floats) -> tuple[float, float, float, float, Floats]:
        """Return the elpd of a row, its gain, k-hat, the largest distance, and influences.

        Parameters
        ----------
        f : ndarray of shape (n_draws,)
            Log-likelihood of the row.
        """
        ratios = self.log_ratios - f
        log_w, khat = smooth_tail(ratios)
        elpd = log_sum(log_w + f)
        gain = log_sum(self.log_weights + f) - elpd
        own = len(f) * (np.exp(log_w + f - elpd) - np.exp(log_w))
        return elpd, gain, khat, float(ratios.max() - ratios.mean()), own - self.of_mean(f)

    def of_mean(self, f: Floats) -> Floats:
        """Return the influence of each draw on the mean log-likelihood of a row."""
        influences: Floats = len(f) * self.weights * (f - self.weights @ f)
        return influences


def parts_of(logliks: Sequence[LogLikelihood], numbers: Positions) -> list[Part]:
    """Return the positions, in the data of each part, of rows that are numbered over all parts."""
    parts, start = [], 0
    for loglik in logliks:
        own = numbers[(numbers >= start) & (numbers < start + loglik.n_rows)] - start
        parts.append((loglik, loglik.observations.positions_of(own)))
        start += loglik.n_rows
    return parts
