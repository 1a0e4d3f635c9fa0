"""Draws of a coreset once its check is followed, and how far they are from NUTS on all rows."""

from dataclasses import dataclass

import xarray as xr

from benchmarks.differences import Difference, difference_of
from pymc_coresets import Check, Coreset, compare

CONFIDENCE = 0.999  # one of a thousand equal posteriors is beyond it


@dataclass(frozen=True, kw_only=True)
class Followed:
    """What a check said of draws, and how far these are from the truth, once re-weighted if so."""

    check: Check
    reweighted: bool
    found: Difference


def followed(coreset: Coreset, truth: xr.Dataset, random_seed: int) -> Followed:
    """Sample a coreset, check its draws, re-weight them if the check says so, and compare them."""
    idata = coreset.sample(cores=1, random_seed=random_seed, progressbar=False)
    check = coreset.check(idata)
    reweighted = check.reliable and check.needs_reweighting
    if reweighted:
        idata = coreset.reweight(idata, random_seed=random_seed)
    return Followed(check=check, reweighted=reweighted, found=distance(truth, idata))


def distance(truth: xr.Dataset, idata: xr.DataTree) -> Difference:
    """Return how far draws are from the truth, in the variables that both have."""
    drawn = idata["posterior"].to_dataset()
    shared = [name for name in truth.data_vars if name in drawn]
    found = compare(full=truth[shared], approximation=drawn[shared].assign_attrs(drawn.attrs))
    return difference_of(found, confidence=CONFIDENCE)
