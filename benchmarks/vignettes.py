"""Mixed models of lme4's, glmmTMB's and brms's users: ``python -m benchmarks.vignettes``.

`pymc_coresets.sample` gets nothing but the model and a seed, in a process of its own, for so many
seconds at most.  What it did is told by its line: drew exactly, or by importance weights, without a
coreset; kept some rows, or all; or left all rows to `pm.sample`.  Another process samples the full
model by nutpie, 2,000 draws of each of four chains after 1,000 to warm up.  All variables of the
model are compared: the largest difference of a mean, in posterior standard deviations, and the
largest ratio of standard deviations, each with what Monte Carlo errors of both runs exceed in one
of 20 comparisons.  Seconds are those of processors, with an empty and then, if that took less
than a minute, a filled folder of compiled functions; compilation is included.

``--cases wine kidney`` runs some of the cases.
"""

import argparse
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pymc as pm
import xarray as xr

import pymc_coresets as pmc
from benchmarks.differences import Difference, difference_of
from benchmarks.isolation import NotDoneError, twice
from benchmarks.tables import by_case, markdown, parser_of
from benchmarks.vignette_models import CASES
from pymc_coresets import Level, compare

HEADER = ("model", "rows, groups, D", "draws", "CPU s, empty cache (NUTS)", "CPU s (NUTS)",
          "mean, sd (noise)", "sd (noise)")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """A posterior, or why there is none; seconds of the processor."""

    said: str
    seconds: float = np.nan
    at_first: float = np.nan
    posterior: xr.Dataset | None = None
    drawn_from: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What became of a case."""

    key: str
    ours: Run
    nuts: Run
    difference: Difference | None = None


# -- one case --------------------------------------------------------------------------------------


def drawn_by_us(key: str, seed: int) -> Run:
    """Sample a case by one call."""
    model, data = CASES[key].model()

    def run() -> tuple[str, xr.DataTree]:
        with model:
            idata = pmc.sample(random_seed=seed, progressbar=False)
        level = idata.attrs["level"]
        return "" if level == Level.UNJUDGED else level.lower(), idata

    return _timed(run, len(data))


def drawn_by_nuts(key: str, seed: int) -> Run:
    """Sample all rows and variables of a case by nutpie."""
    model, data = CASES[key].model()

    def run() -> tuple[str, xr.DataTree]:
        idata = pm.sample(
            2_000,
            tune=1_000,
            chains=4,
            cores=1,
            nuts_sampler="nutpie",
            random_seed=seed,
            progressbar=False,
            model=model,
        )
        return f"{int(idata['sample_stats']['diverging'].sum())} divergences", idata

    return _timed(run, len(data))


def _timed(run: Callable[[], tuple[str, xr.DataTree]], n_rows: int) -> Run:
    began = sum(os.times()[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict says it
        try:
            said, idata = run()
        except pmc.CoresetError as error:
            print(error, file=sys.stderr)
            return Run(said=f"refused: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            return Run(said=f"crashed: {type(error).__name__}")
    seconds = sum(os.times()[:4]) - began
    return Run(
        said=said,
        seconds=seconds,
        posterior=idata["posterior"].to_dataset().load(),
        drawn_from=drawn_from(idata, n_rows),
    )


def drawn_from(idata: xr.DataTree, n_rows: int) -> str:
    """Return in a few words what the draws of one call are from."""
    if "coreset" in idata.children:
        coreset = idata["coreset"]
        n_kept = int(coreset.sizes["row"])
        units = json.loads(coreset.attrs["settings"])["units"]
        if units:
            return f"{n_kept:,} units of {', '.join(units['names'])}"
        return f"{n_kept:,} of {n_rows:,} rows"
    return "weighted" if "psis_ess" in idata.attrs else "NUTS"


def measured(key: str, limit: float, seed: int) -> Found:
    """Sample a case both ways, in processes of their own, which are ended if they take too long."""
    runs = []
    for draw in (drawn_by_us, drawn_by_nuts):
        try:
            first, again = twice(draw, lambda run: run.seconds, limit, key, seed)
            runs.append(replace(again, at_first=first.seconds))
        except NotDoneError as error:
            runs.append(Run(said=str(error)))
    ours, nuts = runs
    if ours.posterior is None or nuts.posterior is None:
        return Found(key=key, ours=ours, nuts=nuts)
    shared = sorted(map(str, ours.posterior.data_vars.keys() & nuts.posterior.data_vars.keys()))
    comparison = compare(full=nuts.posterior[shared], approximation=ours.posterior[shared])
    difference = difference_of(comparison)
    print(f"beyond noise: {difference.beyond_noise}", file=sys.stderr, flush=True)
    return Found(key=key, ours=ours, nuts=nuts, difference=difference)


# -- table -----------------------------------------------------------------------------------------


def line_of(found: Found) -> list[str]:
    """Return a case's line of the table."""
    model, data = CASES[found.key].model()
    n_dims = sum(np.size(value) for value in model.initial_point().values())
    groups = "+".join(f"{data[name].nunique():,}" for name in CASES[found.key].groups)
    difference, no = found.difference, ["", ""]
    ours, nuts = found.ours, found.nuts
    return [
        CASES[found.key].name,
        f"{len(data):,}, {groups}, {n_dims:,}",
        ": ".join(filter(None, (ours.drawn_from, ours.said))),
        f"{_in_s(ours.at_first)} ({_in_s(nuts.at_first)})",
        f"{_in_s(ours.seconds)} ({_in_s(nuts.seconds)})",
        *(no if difference is None else _differences(difference)),
    ]


def _in_s(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "–"


def _differences(found: Difference) -> list[str]:
    sd, limit = np.exp([found.sd, found.sd_limit])
    return [f"{found.mean:.2f} ({found.mean_limit:.2f})", f"{sd:.2f} ({limit:.2f})"]


def report(found: Sequence[Found]) -> str:
    """Return the table."""
    return markdown(HEADER, map(line_of, found))


def parsed() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of each run")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Sample the cases."""
    options = parsed()
    measure = partial(measured, limit=options.limit, seed=options.seed)
    by_case(options.cases, measure, line_of, report, folder=options.tables, name="vignettes")


if __name__ == "__main__":
    main()
