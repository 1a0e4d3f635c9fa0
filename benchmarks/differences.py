"""Largest differences between two posteriors, and what Monte Carlo noise explains of them."""

import math
from dataclasses import dataclass

import arviz_stats as azs
import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import brentq
from scipy.stats import norm

from pymc_coresets.diagnostics.comparison import Comparison

CONFIDENCE = 0.95  # probability that no component of two equal posteriors is reported as different


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Largest differences from the full posterior, and which components noise does not explain.

    ``mean`` is |difference of means| / sd, ``sd`` |log ratio of sds|; the limits are what the
    largest of all components exceeds in one of 20 comparisons of equal posteriors, or as often as
    `difference_of` was asked.
    """

    mean: float
    mean_of: str
    mean_limit: float
    sd: float
    sd_of: str
    sd_limit: float
    beyond_noise: list[str]


def largest_by_noise(noise: pd.Series, *, confidence: float = CONFIDENCE) -> float:
    """Return what the largest of independent normal errors does not exceed, so probably."""
    sds = noise[noise > 0].to_numpy()
    if not len(sds):
        return 0.0

    def log_probability(limit: float) -> float:  # that all errors lie within the limit
        return float(np.log1p(-2 * norm.sf(limit / sds)).sum())

    tail = (1 - confidence) / 2
    ends = (
        sds.max(),
        2 * sds.max() * norm.isf(tail / len(sds)),
    )  # exceeded too often, and too seldom
    return float(brentq(lambda x: log_probability(x) - math.log(confidence), *ends))


def difference_of(comparison: Comparison, *, confidence: float = CONFIDENCE) -> Difference:
    """Reduce a comparison to its largest differences, and to those that noise does not explain."""
    table = comparison.table
    quantile = float(norm.isf((1 - confidence) / (2 * 2 * len(table))))  # means and sds
    with np.errstate(divide="ignore"):
        logs = np.log(table["sd_ratio"]).abs()
    shifted = table["delta_mean_sd"].abs() > quantile * table["delta_mean_noise"]
    scaled = logs > quantile * table["sd_ratio_noise"]
    mean = comparison.largest_mean_shift
    return Difference(
        mean=abs(mean.value),
        mean_of=mean.name,
        mean_limit=largest_by_noise(table["delta_mean_noise"], confidence=confidence),
        sd=float(logs.max()),
        sd_of=str(logs.idxmax()),
        sd_limit=largest_by_noise(table["sd_ratio_noise"], confidence=confidence),
        beyond_noise=[str(name) for name in table.index[shifted | scaled]],
    )


def tails_of(full: xr.Dataset, approximation: xr.Dataset) -> tuple[float, float]:
    """Return the largest shift of a quantile of 1 or 99 %, and what noise does not exceed.

    Both in standard deviations of the full posterior; variables, shapes and order are the same.
    """
    unit = full.std(["chain", "draw"])
    shifts, noise = [], []
    for probability in (0.01, 0.99):
        pair = [draws.quantile(probability, ["chain", "draw"]) for draws in (full, approximation)]
        errors = [
            azs.mcse(draws, method="quantile", prob=probability) for draws in (full, approximation)
        ]
        shifts.append(_flat((pair[1] - pair[0]) / unit))
        noise.append(_flat((errors[0] ** 2 + errors[1] ** 2) ** 0.5 / unit))
    largest = float(np.abs(np.concatenate(shifts)).max())
    return largest, largest_by_noise(pd.Series(np.concatenate(noise)))


def _flat(values: xr.Dataset) -> np.ndarray:
    return np.concatenate([np.ravel(values[name]) for name in values.data_vars])
