"""Coresets of whole units, whose own variables are integrated out: ``python -m benchmarks.units``.

Each case is built by default settings and sampled in a process of its own.  J is the symmetrised
KL divergence at 400 fresh draws of the coreset's posterior.  Beside it stands by how many nats the
log-ratios differ from those that PyMC's own densities of all rows give, with the units' variables
integrated over a wide grid.  Seconds are those of processors; compilation is included: each case
runs twice, with an empty and then a filled folder of compiled functions.

``--nuts 600`` samples all rows with all variables by nutpie, for so many seconds, and compares the
shared variables, and the variables of thirty units; the time of a run that did not end is
extrapolated.  ``--cases users lkj --part 0.1`` runs some of the cases on a part of the units.
``--parameters`` shows the other choice: all variables are parameters, of a quadratic.
`benchmarks.unit_certificates` counts coresets that are called reliable and are not.
"""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import arviz_stats as azs
import numpy as np
import nutpie
import pymc as pm
import xarray as xr

from benchmarks.differences import Difference, difference_of, tails_of
from benchmarks.isolation import NotDoneError, empty_cache, isolated
from benchmarks.opponent_sampling import sample_until
from benchmarks.opponent_task import Settings, Task
from benchmarks.scale_parts import memory
from benchmarks.tables import by_case, markdown, parser_of
from benchmarks.unit_models import CASES, Case
from pymc_coresets import Coreset, CoresetError, UnsupportedModelError, build_coreset, compare
from pymc_coresets.reading.units.observations_of_units import UnitObservations

HEADER = ("case", "D", "units kept", "rows kept", "nodes", "error of nodes", "J",
          "PyMC's densities", "k-hat", "verdict", "build + sample, s, empty cache", "build, s",
          "sample, s", "memory, GB")  # fmt: skip
OF_NUTS = ("case", "build + sample, s", "NUTS on all rows, s", "its R-hat",
           "shared: largest shift, sd", "sd", "1 and 99 %, sd", "thirty units: largest shift, sd",
           "sd", "1 and 99 %, sd")  # fmt: skip
N_LEVELS = 30  # whose own variables are compared
LIMIT = 600.0  # seconds that a case may take, NUTS apart


@dataclass(frozen=True, kw_only=True)
class Beside:
    """How far two sets of draws are apart, in the middle and in the tails."""

    middle: Difference
    tails: tuple[float, float]

    @classmethod
    def of(cls, full: xr.Dataset, approximation: xr.Dataset) -> "Beside":
        """Compare draws of the same variables."""
        return cls(
            middle=difference_of(compare(full=full, approximation=approximation)),
            tails=tails_of(full, approximation),
        )


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Draws by way of a coreset beside those of NUTS on all rows."""

    seconds: float
    share: float
    rhat: float = np.nan
    shared: Beside | None = None
    local: Beside | None = None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one case is like; seconds of processor, bytes, nats."""

    name: str
    failure: str = ""
    dims: int = 0
    units: tuple[int, int] = (0, 0)
    rows: tuple[int, int] = (0, 0)
    nodes: int = 0
    node_error: float = np.nan
    objective: float = np.nan
    agrees: str = ""
    khat: float = np.nan
    said: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    at_first: dict[str, float] = field(default_factory=dict)  # with an empty cache
    memory: int = 0
    nuts: Compared | None = None


# -- one case --------------------------------------------------------------------------------------


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Add the processor seconds of a step."""
    began = sum(os.times()[:4])
    try:
        yield
    finally:
        seconds[step] = sum(os.times()[:4]) - began


@dataclass(frozen=True, kw_only=True)
class Way:
    """What part of the units is taken, and whether their variables are parameters."""

    part: float = 1.0
    seed: int = 1
    as_parameters: bool = False

    def integrate(self, case: Case) -> bool | str | list[str]:
        """Return what `build_coreset` is told."""
        if self.as_parameters:
            return False
        return list(case.local) if case.named else "auto"


def measured(case: Case, way: Way, nuts: float | None) -> Figures:
    """Build a coreset, sample it, check it, and compare its draws."""
    model, seed = case.model(way.part, way.seed), way.seed
    continuous = not model.discrete_value_vars  # NUTS needs it
    seconds: dict[str, float] = {}
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the memory from here on
    before = memory("VmRSS")
    try:
        with timed(seconds, "build"):
            coreset = build_coreset(
                model,
                integrate=way.integrate(case),
                allow_local=way.as_parameters,
                random_seed=seed,
                progressbar=False,
            )
        peak = memory("VmHWM") - before
        with timed(seconds, "sample"):
            idata = coreset.sample(cores=1, random_seed=seed, progressbar=False)
        with timed(seconds, "check"):
            check = coreset.check(idata)
    except CoresetError as error:
        print(error, file=sys.stderr)
        return Figures(name=case.name, failure=f"refused: {type(error).__name__}", seconds=seconds)
    loglik = coreset.loglikelihood
    assert loglik is not None
    units = loglik.observations
    common = Figures(
        name=case.name,
        dims=loglik.n_dims,
        rows=(coreset.rows.sizes["row"], loglik.n_rows),
        objective=check.symmetrised_kl,
        agrees=second_opinion(coreset, idata),
        khat=check.pareto_khat,
        said=check.verdict.level.lower(),
        seconds=seconds,
        memory=peak,
    )
    if not isinstance(units, UnitObservations):  # they are parameters
        return common
    with timed(seconds, "recover"):
        levels = levels_of(coreset, seed)
        local = coreset.recover(idata, case.local, levels=levels, random_seed=seed)
    return replace(
        common,
        units=(coreset.size, loglik.n_rows),
        rows=(coreset.rows.sizes["row"], len(units.positions_of_unit_rows)),
        nodes=units.n_nodes,
        node_error=units.node_error,
        nuts=beside_nuts(case, model, coreset, idata, local, nuts) if nuts and continuous else None,
    )


def levels_of(coreset: Coreset, seed: int) -> np.ndarray:
    """Choose thirty units at random."""
    assert coreset.loglikelihood is not None
    n_units = coreset.loglikelihood.n_rows
    chosen = np.random.default_rng(seed).choice(n_units, min(N_LEVELS, n_units), replace=False)
    found: np.ndarray = np.sort(chosen)
    return found


def second_opinion(coreset: Coreset, idata: xr.DataTree) -> str:
    """Return by how many nats PyMC's densities differ from the package's."""
    try:
        return f"{coreset.verify(idata, draws=8).difference:.1g}"
    except UnsupportedModelError as error:
        print(error, file=sys.stderr)
        return "do not agree"


def beside_nuts(
    case: Case,
    model: pm.Model,
    coreset: Coreset,
    idata: xr.DataTree,
    local: xr.Dataset,
    limit: float,
) -> Compared:
    """Sample all rows with all variables, and compare."""
    task = Task(name=case.name, model=model, settings=Settings(seconds=limit))
    seconds: dict[str, float] = {}
    with timed(seconds, "nuts"):
        with task.clock.compiling():
            compiled = nutpie.compile_pymc_model(model)
        found, share = sample_until(task, compiled)
    if share < 1:
        return Compared(seconds=seconds["nuts"], share=share)
    full = found["posterior"].to_dataset()
    shared = [v.name for v in coreset.model.free_RVs]
    levels = levels_of(coreset, 1)
    of_units = full[list(case.local)].isel({full[n].dims[2]: levels for n in case.local})
    labels = [name for name in of_units.coords if name not in {"chain", "draw"}]
    of_units = of_units.drop_vars(labels)  # those of some levels, in the same order
    own = xr.Dataset({name: (of_units[name].dims, local[name].values) for name in case.local})
    return Compared(
        seconds=seconds["nuts"],
        share=share,
        rhat=max(float(one.max()) for one in azs.rhat(full[shared]).data_vars.values()),
        shared=Beside.of(full[shared], idata["posterior"].to_dataset()[shared]),
        local=Beside.of(of_units, own),
    )


def guarded(name: str, way: Way, nuts: float | None) -> Figures:
    """Measure twice in processes of their own, which are ended where they take far too long."""
    try:
        with empty_cache():
            first = isolated(_quietly, LIMIT, name, way, None)
            again = isolated(_quietly, LIMIT + (nuts or 0.0), name, way, nuts)
    except NotDoneError as error:
        return Figures(name=CASES[name].name, failure=str(error))
    return replace(again, at_first=first.seconds)


def _quietly(name: str, way: Way, nuts: float | None) -> Figures:
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the verdict says it
        try:
            return measured(case, way, nuts)
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            return Figures(name=case.name, failure=f"crashed: {type(error).__name__}")


# -- tables ----------------------------------------------------------------------------------------


def line_of(found: Figures) -> list[str]:
    """Return a case's line of the table."""
    if found.failure:
        seconds = [f"{found.seconds[s]:.1f}" if s in found.seconds else "" for s in STEPS]
        return [found.name, *[""] * 8, found.failure, _in_all(found.at_first), *seconds, ""]
    return [
        found.name,
        f"{found.dims:,}",
        "{:,} of {:,}".format(*found.units) if found.nodes else "parameters",
        "{:,} of {:,}".format(*found.rows),
        str(found.nodes or ""),
        f"{found.node_error:.0e}" if found.nodes else "",
        f"{found.objective:.2g}",
        found.agrees,
        f"{found.khat:.2f}",
        found.said,
        _in_all(found.at_first),
        *(f"{found.seconds[step]:.1f}" for step in STEPS),
        f"{found.memory / 2**30:.1f}",
    ]


STEPS = ("build", "sample")


def _in_all(seconds: dict[str, float]) -> str:
    return f"{sum(seconds[step] for step in STEPS):.1f}" if seconds.keys() >= set(STEPS) else ""


def line_of_nuts(found: Figures) -> list[str]:
    """Return a case's line of the table beside NUTS."""
    nuts = found.nuts
    assert nuts is not None
    ours = " + ".join(f"{found.seconds[step]:.0f}" for step in STEPS)
    if nuts.shared is None:
        in_all = (
            f"{nuts.seconds / nuts.share:,.0f}, from" if nuts.share else "more than can be told, in"
        )
        return [found.name, ours, f"{in_all} {nuts.seconds:.0f} that were done", *[""] * 7]
    return [
        found.name,
        ours,
        f"{nuts.seconds:,.0f}",
        f"{nuts.rhat:.2f}",
        *(text for one in (nuts.shared, nuts.local) for text in _differences(one)),
    ]


def _differences(found: Beside | None) -> list[str]:
    assert found is not None
    middle, (largest, limit) = found.middle, found.tails
    return [
        f"{middle.mean:.3f} (noise: {middle.mean_limit:.3f})",
        f"× {np.exp(middle.sd):.2f} (noise: {np.exp(middle.sd_limit):.2f})",
        f"{largest:.2f} (noise: {limit:.2f})",
    ]


def report(found: Sequence[Figures]) -> str:
    """Return the tables."""
    tables = [markdown(HEADER, map(line_of, found))]
    if beside := [one for one in found if one.nuts is not None]:
        tables.append(markdown(OF_NUTS, map(line_of_nuts, beside)))
    return "\n\n".join(tables)


def parsed() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--part", type=float, default=1.0, help="of the units")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parameters", action="store_true", help="keep all variables as these")
    parser.add_argument("--nuts", type=float, help="compare with NUTS: seconds for it")
    return parser.parse_args()


def main() -> None:
    """Measure the cases."""
    options = parsed()
    way = Way(part=options.part, seed=options.seed, as_parameters=options.parameters)

    def measure(case: str) -> Figures:
        found = guarded(case, way, options.nuts)
        print({k: round(v, 1) for k, v in found.seconds.items()}, flush=True)
        return found

    name = "units-as-parameters" if options.parameters else "units"
    by_case(options.cases, measure, line_of, report, folder=options.tables, name=name)


if __name__ == "__main__":
    main()
