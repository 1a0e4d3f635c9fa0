"""Whether draws are right about the tails, for ``python -m benchmarks.trust``.

The share of the draws below a true quantile is compared with its level.  A symmetrised KL
divergence between two posteriors is at least that between the two probabilities of any event, so
the tolerance says exactly which shares it allows.  Draws are wrong where their share, by an
interval of three standard errors, cannot be any of these.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy.stats import beta, norm

from benchmarks.trust_models import Array
from benchmarks.trust_truth import LEVELS, Marginal, components, effective_size
from pymc_coresets.compat.arviz_api import array_stats

__all__ = ["TOLERANCE", "Convergence", "Judgement", "convergence", "judge", "variables"]

TOLERANCE = 0.01  # nats
_ONE_SIDED = float(norm.sf(3))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The event of which draws are most certainly wrong.

    ``excess`` is the symmetrised KL divergence in nats that the draws have at least, by the share
    of them that lies below a true quantile.
    """

    variable: str
    level: float
    share: float
    excess: float

    @property
    def right(self) -> bool:
        """Whether the tolerance allows what was found."""
        return self.excess <= TOLERANCE

    @property
    def worst(self) -> str:
        """The worst event in words: what the truth and the draws say of it."""
        return f"{self.variable}: {self.share:.2%} for {self.level:.0%}"


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """Largest R-hat, and smallest bulk or tail effective sample size, of the free variables."""

    rhat: float
    ess: float

    @property
    def reached(self) -> bool:
        """Whether PyMC has nothing to say of four chains."""
        return self.rhat <= 1.01 and self.ess >= 400


def variables(truth: dict[str, Marginal]) -> list[str]:
    """Return the names of the variables of which components are judged."""
    return list(dict.fromkeys(label.partition("[")[0] for label in truth))


def convergence(posterior: xr.Dataset, truth: dict[str, Marginal]) -> Convergence:
    """Judge the chains as PyMC does, by ArviZ's figures."""
    every = [values for _, values in _components(posterior, truth)]
    return Convergence(
        rhat=max(array_stats.rhat(values, chain_axis=0, draw_axis=1) for values in every),
        ess=min(
            effective_size(values, method=method) for values in every for method in ("bulk", "tail")
        ),
    )


def judge(posterior: xr.Dataset, truth: dict[str, Marginal], most: float = np.inf) -> Judgement:
    """Compare draws, worth at most so many independent ones, with the truth."""
    return max(
        (
            judged
            for label, values in _components(posterior, truth)
            for judged in _each_level(label, values, truth[label], most)
        ),
        key=lambda one: (one.excess, _divergence(one.share, one.level)),
    )


def _components(posterior: xr.Dataset, truth: dict[str, Marginal]) -> Iterator[tuple[str, Array]]:
    for name in variables(truth):
        for label, values in components(posterior, name):
            if label in truth:
                yield label, values


def _each_level(label: str, values: Array, truth: Marginal, most: float) -> Iterator[Judgement]:
    for level, quantile in zip(LEVELS, truth.quantiles, strict=True):
        below = (values < quantile).astype(float)
        share = float(below.mean())
        varies = 0 < share < 1
        size = effective_size(below, method="mean") if varies else effective_size(values)
        size = min(size, most)
        if truth.size is not None:
            size = 1 / (1 / size + 1 / truth.size)
        excess = _certain(share, size, float(level))
        yield Judgement(variable=label, level=float(level), share=share, excess=excess)


def _certain(share: float, size: float, level: float) -> float:
    """Smallest divergence of a share that so many independent draws do not contradict."""
    count = share * size
    low = beta.ppf(_ONE_SIDED, count, size - count + 1) if share > 0 else 0.0
    high = beta.isf(_ONE_SIDED, count + 1, size - count) if share < 1 else 1.0
    return _divergence(float(np.clip(level, low, high)), level)


def _divergence(share: float, level: float) -> float:
    """Symmetrised KL divergence between two probabilities of an event."""
    if share in {0.0, 1.0}:
        return np.inf
    odds = np.log(share / level) - np.log((1 - share) / (1 - level))
    return float((share - level) * odds)
