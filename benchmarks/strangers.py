"""What `sample` makes of other people's models: ``python -m benchmarks.strangers``.

Each case is a model as its users write it, of the size of public data, which are drawn from known
values.  `pymc_coresets.sample` gets nothing but the model, in a process of its own, for ten minutes
at most.  The result should have every variable and dimension of the model, and known values should
lie within the 99 % intervals of the posterior: about one in a hundred does not.  Seconds are those
of processors, with an empty and then, if that took less than a minute, a filled folder of compiled
functions; compilation is included.

``--cases weeks claims --part 0.1`` runs some of the cases on a part of their units.
"""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

import pymc_coresets as pmc
from benchmarks.isolation import NotDoneError, twice
from benchmarks.stranger_models import CASES, Case
from benchmarks.tables import by_case, markdown, parser_of
from pymc_coresets.reading.draws import dims_of

HEADER = ("case", "D", "verdict", "J", "processor, s, empty cache", "processor, s",
          "rows or units kept", "not in the result", "known values outside 99 %",
          "worst shared, sd")  # fmt: skip
LIMIT = 600.0  # seconds that a case may take
FEW = 40  # entries of a variable that all units share, at most
LEVELS = (0.005, 0.995)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How far known values are from the posterior."""

    outside: int  # of the 99 % intervals
    known: int
    worst: float  # in posterior standard deviations, among the variables that all units share


@dataclass(frozen=True, kw_only=True)
class Found:
    """What became of a case; seconds of processor, nats."""

    name: str
    said: str
    dims: int = 0
    seconds: float = np.nan
    at_first: float = np.nan  # with an empty folder of compiled functions
    divergence: float = np.nan
    kept: int = 0  # rows, or units; none where no coreset was needed
    missing: tuple[str, ...] = ()
    judged: Judged | None = None


def judge(posterior: xr.Dataset, truth: Mapping[str, Any]) -> Judged:
    """Compare the draws of each variable with its known values."""
    outside, known, worst = 0, 0, 0.0
    for name in truth.keys() & set(posterior.data_vars):
        exact, drawn = np.asarray(truth[name]), posterior[name]
        low, high = (drawn.quantile(level, ["chain", "draw"]).values for level in LEVELS)
        outside += int(((exact < low) | (exact > high)).sum())
        known += exact.size
        if exact.size <= FEW:
            mean, sd = (one(["chain", "draw"]).values for one in (drawn.mean, drawn.std))
            worst = max(worst, float(np.abs((exact - mean) / sd).max()))
    return Judged(outside=outside, known=known, worst=worst)


def not_in(posterior: xr.Dataset, model: pm.Model) -> tuple[str, ...]:
    """Return the variables that `pm.sample` has and the posterior has not, or by other dims."""
    dims = model.named_vars_to_dims
    expected = {
        rv.name: ("chain", "draw", *dims_of(rv.name, rv.ndim, dims)) for rv in model.unobserved_RVs
    }
    return tuple(
        name
        for name, own in expected.items()
        if name not in posterior or posterior[name].dims != own
    )


def measured(key: str, part: float, seed: int) -> Found:
    """Sample a case in this process."""
    case: Case = CASES[key]
    model, truth = case.model(part, seed)
    dims = sum(np.size(value) for value in model.initial_point().values())
    began = sum(os.times()[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict says it
        try:
            idata = pmc.sample(model, random_seed=seed, progressbar=False, **case.options)
        except pmc.CoresetError as error:
            print(error, file=sys.stderr)
            said = f"refused: {type(error).__name__}"
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            said = f"crashed: {type(error).__name__}"
        else:
            said = idata.attrs["level"].lower()
    seconds = sum(os.times()[:4]) - began
    if said.startswith(("refused", "crashed")):
        return Found(name=case.name, said=said, dims=dims, seconds=seconds)
    posterior = idata["posterior"].to_dataset()
    return Found(
        name=case.name,
        said=said,
        dims=dims,
        seconds=seconds,
        divergence=idata.attrs["divergence"],
        kept=idata["coreset"].sizes["row"] if "coreset" in idata.children else 0,
        missing=not_in(posterior, model),
        judged=judge(posterior, truth),
    )


def guarded(key: str, part: float, seed: int) -> Found:
    """Do the same in a process of its own, which is ended where it takes far too long."""
    try:
        first, again = twice(measured, lambda found: found.seconds, LIMIT, key, part, seed)
        return replace(again, at_first=first.seconds)
    except NotDoneError as error:
        return Found(name=CASES[key].name, said=str(error))


def line_of(found: Found) -> list[str]:
    """Return a case's line of the table."""
    judged, known = found.judged, np.isfinite(found.divergence)
    return [
        found.name,
        f"{found.dims:,}" if found.dims else "",
        found.said,
        f"{found.divergence:.2g}" if known else "",
        *(f"{s:.0f}" if np.isfinite(s) else "" for s in (found.at_first, found.seconds)),
        f"{found.kept:,}" if found.kept else "",
        ", ".join(found.missing),
        "" if judged is None else f"{judged.outside:,} of {judged.known:,}",
        "" if judged is None else f"{judged.worst:.1f}",
    ]


def report(found: Sequence[Found]) -> str:
    """Return the table."""
    return markdown(HEADER, map(line_of, found))


def parsed() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--part", type=float, default=1.0, help="of the units")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Sample the cases."""
    options = parsed()
    measure = partial(guarded, part=options.part, seed=options.seed)
    by_case(options.cases, measure, line_of, report, folder=options.tables, name="strangers")


if __name__ == "__main__":
    main()
