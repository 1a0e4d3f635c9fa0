"""Seconds of `predict` beside those of PyMC's posterior predictive draws."""

import os
from collections.abc import Callable
from functools import partial

import pymc as pm
import xarray as xr

from benchmarks.real_rows import REAL_ROWS, flights_of
from benchmarks.tables import markdown
from pymc_coresets import build_coreset

HEADINGS = ("data", "rows × draws", "PyMC: draws", "predict: draws", "predict: means")


def timed[T](work: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and the processor seconds of all threads and child processes."""
    start = sum(os.times()[:4])
    result = work()
    return result, sum(os.times()[:4]) - start


def predicted_row(name: str, model: pm.Model, draws: int) -> tuple[str, ...]:
    coreset = build_coreset(model, random_seed=1, progressbar=False)
    idata = coreset.importance_draws(draws, random_seed=1)
    quiet = partial(coreset.predict, idata, random_seed=1, progressbar=False)
    ways = (
        partial(by_pymc, model, idata),
        partial(quiet, kind="draws"),
        partial(quiet, kind="mean"),
    )
    times = [f"{timed(way)[1]:.1f}" for way in ways]
    return (name, f"{coreset.n_observations:,} × {draws:,}", *times)


def by_pymc(model: pm.Model, idata: xr.DataTree) -> object:
    return pm.sample_posterior_predictive(idata, model=model, random_seed=1, progressbar=False)


def predictions_table() -> str:
    """Of all that is done from a call on: compilation is part of it."""
    sets: dict[str, tuple[Callable[[], pm.Model], int]] = {
        name: (make, 2_000) for name, make in REAL_ROWS.items()
    }
    sets["flights of a year, logistic"] = (partial(flights_of, None), 500)
    rows = [predicted_row(name, make(), draws) for name, (make, draws) in sets.items()]
    return markdown(HEADINGS, rows)
