"""Real models, judged by NUTS on all rows: ``python -m benchmarks.models [names...]``.

Every model of ``examples/`` is fitted twice: by `build_coreset()` without options and NUTS on the
coreset, and by NUTS on all rows with the same settings. ``mixture_two_noises_improper`` is there
because coresets fail for it: see docs/choosing.md. All but the flights take half an hour;
``--flights`` adds the flights, whose full run takes an hour on one core. ``--cache DIR`` saves the
full runs with their times and uses them again (empty it when a model changes); ``--coresets-only``
leaves the full runs out. ``--json FILE`` saves the results, and ``--load FILE ...`` prints saved
ones. Tables are in Markdown.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import arviz as az
import pymc as pm
import xarray as xr

from benchmarks.differences import difference_of
from benchmarks.example_models import (
    BUILD,
    FULL,
    SAMPLE,
    Fit,
    Stopwatch,
    available,
    fit_coreset,
    fit_full,
)
from benchmarks.model_records import Record, read, report, within
from pymc_coresets import Coreset, CoresetWarning, compare

REWEIGHT = "coreset: reweight"
NUTS_ALONE = "of it NUTS"  # the rest of the sampling is nearly all compilation


# One model


@dataclass
class ProcessorWatch(Stopwatch):
    """Wall time of each part, and processor time, which does not depend on other programs.

    Processor time is the sum over threads and child processes, among them compilers: two chains at
    once count twice.
    """

    processor: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        started = sum(os.times()[:4])
        with super().__call__(part):
            yield
        self.processor[part] = sum(os.times()[:4]) - started


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the package's warnings in a list."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found += [str(w.message) for w in caught if issubclass(w.category, CoresetWarning)]


def parts_of(coreset: Coreset) -> dict[str, float]:
    """Return the seconds of the parts of building, which are included in its total."""
    history = coreset.history
    last = history.isel(step=-1)
    drawing, evaluating = (float(last[f"seconds_{part}"]) for part in ("drawing", "evaluating"))
    return {
        "reading the model": history.attrs["seconds reading the model"],
        "drawing": drawing,
        "log-likelihoods": evaluating,
        "choosing rows": history.attrs["seconds rounds"] - drawing - evaluating,
    }


def seconds_of_nuts(idata: xr.DataTree) -> float:
    return float(idata["posterior"].attrs["sampling_time"])


def measure_coreset(name: str, model: pm.Model, *, draws: int, seed: int) -> tuple[Record, Fit]:
    """Build, sample and check a coreset."""
    watch = ProcessorWatch()
    with recorded() as said:
        fit = fit_coreset(model, watch, size=None, draws=draws, seed=seed)
    coreset, check = fit.coreset, fit.check
    n_dims = sum(variable.size for variable in model.initial_point().values())
    record = Record(
        name=name,
        n_obs=coreset.n_observations,
        n_dims=int(n_dims),
        size=coreset.size,
        n_rounds=coreset.history.sizes["step"] - 1,  # the first step is the uniform start
        n_passes=float(coreset.history["n_passes"][-1]),
        status=coreset.status,
        warnings=said,
        verdict=check.verdict,
        reliable=check.reliable,
        khat=check.pareto_khat,
        ess=check.ess,
        n_draws=check.n_draws,
        kl=check.kl,
        symmetrised_kl=check.symmetrised_kl,
        rhat=check.rhat,
        n_divergences=check.n_divergences or 0,
        seconds=watch.seconds
        | {within(BUILD, part): value for part, value in parts_of(coreset).items()}
        | {within(SAMPLE, NUTS_ALONE): seconds_of_nuts(fit.idata)},
        processor=watch.processor,
        draws=draws,
    )
    return record, fit


@dataclass(frozen=True, kw_only=True, eq=False)
class FullRun:
    """Draws of the full posterior, and their cost, from this run or an earlier one."""

    idata: xr.DataTree
    seconds: float
    processor: float
    cached: bool = False

    def keep(self, path: Path) -> None:
        """Save it to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = xr.DataTree.from_dict({"posterior": self.idata["posterior"].to_dataset()})
        kept.attrs |= {"seconds": self.seconds, "processor": self.processor}
        kept.to_netcdf(path, engine="h5netcdf")

    @classmethod
    def kept_in(cls, path: Path) -> Self:
        """Read what `keep` saved."""
        with xr.open_datatree(path, engine="h5netcdf") as kept:
            idata = kept.load()
        costs = {name: float(idata.attrs[name]) for name in ("seconds", "processor")}
        return cls(idata=idata, cached=True, **costs)


def full_run(name: str, model: pm.Model, *, draws: int, seed: int, cache: Path | None) -> FullRun:
    """Sample the full posterior, or read it from the cache."""
    path = None if cache is None else cache / f"{name}-{draws}-{seed}.nc"
    if path is not None and path.exists():
        return FullRun.kept_in(path)
    watch = ProcessorWatch()
    idata = fit_full(model, watch, draws=draws, seed=seed)
    run = FullRun(idata=idata, seconds=watch.seconds[FULL], processor=watch.processor[FULL])
    if path is not None:
        run.keep(path)
    return run


def measure(
    name: str, model: pm.Model, *, draws: int, seed: int, cache: Path | None, full_too: bool
) -> Record:
    """Fit a model by its coreset and, where asked, by all rows; compare the two."""
    record, fit = measure_coreset(name, model, draws=draws, seed=seed)
    if not full_too:
        return record
    run = full_run(name, model, draws=draws, seed=seed, cache=cache)
    full = run.idata
    watch = ProcessorWatch()
    with watch(REWEIGHT), recorded() as said:
        corrected = fit.coreset.reweight(fit.idata, random_seed=seed)
    rhat = az.rhat(full["posterior"].to_dataset())
    return replace(
        record,
        seconds=record.seconds
        | watch.seconds
        | {FULL: run.seconds, within(FULL, NUTS_ALONE): seconds_of_nuts(full)},
        processor=record.processor | watch.processor | {FULL: run.processor},
        warnings=record.warnings + said,
        full_cached=run.cached,
        full_rhat=float(max(variable.max() for variable in rhat.data_vars.values())),
        before=difference_of(compare(full=full, approximation=fit.idata)),
        after=difference_of(compare(full=full, approximation=corrected)),
    )


# The program


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="models; all but the flights by default")
    parser.add_argument("--flights", action="store_true", help="the flights too (slow)")
    parser.add_argument("--draws", type=int, default=1000, help="draws per chain (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (%(default)s)")
    parser.add_argument("--json", type=Path, help="save the records here")
    parser.add_argument(
        "--cache", type=Path, help="save full runs in this directory, and use those that are there"
    )
    parser.add_argument("--coresets-only", action="store_true", help="no full runs")
    parser.add_argument("--load", type=Path, nargs="+", help="print the records saved here")
    return parser.parse_args()


def run_all(options: argparse.Namespace) -> Iterator[Record]:
    """Measure one model after another."""
    models = available(flights=options.flights or "flights" in options.names)
    unknown = set(options.names) - set(models)
    if unknown:
        sys.exit(f"Unknown: {', '.join(sorted(unknown))}. There are {', '.join(models)}.")
    for name in options.names or models:
        yield measure(
            name,
            models[name](),
            draws=options.draws,
            seed=options.seed,
            cache=options.cache,
            full_too=not options.coresets_only,
        )
        print(f"{name}: done", file=sys.stderr)


def main() -> None:
    options = parsed()
    if options.load:
        report([record for path in options.load for record in read(path)])
        return
    records = []
    for record in run_all(options):
        records.append(record)
        if options.json:
            options.json.write_text(json.dumps([asdict(r) for r in records], indent=1))
    report(records)


if __name__ == "__main__":
    main()
